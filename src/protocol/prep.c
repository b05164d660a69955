/*
 * protocol/prep.c - see prep.h. The keyword arguments are written as JSON text and parsed back: one
 * linear pass each way, and the origin of a string is then a question of where its value lies in
 * the parsed document.
 */
#include "protocol/prep.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "protocol/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ORIGIN_ASSISTANT = 2 };

#define KWARGS_BYTES_MAX  ((size_t)256 << 20)
#define PROMPT_TOKENS_MAX ((size_t)8 << 20)
/* Prompts up to here are counted whole, however low the limit is. */
#define PROMPT_TOKENS_COUNTED ((size_t)64 << 10)

static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

/* Tokens around the parts of a text with a hole, by the names that vocabularies give them. */
static const char *const fim_names[][3] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    {"<PRE>", "<SUF>", "<MID>"},
};

struct prep {
    struct prep_params params;
    int32_t fim[3]; /* prefix, suffix, middle; -1 when there are none */
    struct prep_template_info info;
    struct jinja_template *own; /* the fallback */
    const struct jinja_template *tmpl;
};

/* Where strings of the keyword arguments come from, besides the user. */
struct origins {
    yyjson_val **assistant; /* contents of the assistant's messages, ascending addresses */
    size_t n_assistant;
    yyjson_val *bos, *eos;
};

static int by_address(const void *a, const void *b)
{
    const yyjson_val *x = *(yyjson_val *const *)a, *y = *(yyjson_val *const *)b;
    return x < y ? -1 : x > y;
}

static uint8_t origin_of(void *ctx, yyjson_val *text)
{
    const struct origins *o = ctx;
    if (text == o->bos || text == o->eos)
        return JINJA_ORIGIN_TEMPLATE;
    if (o->n_assistant &&
        bsearch(&text, o->assistant, o->n_assistant, sizeof *o->assistant, by_address))
        return ORIGIN_ASSISTANT;
    return JINJA_ORIGIN_USER;
}

static t9_status find_origins(struct origins *o, yyjson_val *kwargs, size_t n_messages)
{
    size_t idx, max;
    yyjson_val *m;
    o->bos = json_get(kwargs, "bos_token");
    o->eos = json_get(kwargs, "eos_token");
    o->assistant = mem_calloc(n_messages + 1, sizeof(*o->assistant));
    if (!o->assistant)
        return T9_STATUS_NOMEM;
    yyjson_arr_foreach(json_get(kwargs, "messages"), idx, max, m)
    {
        yyjson_val *content = json_get(m, "content");
        if (yyjson_is_str(content) && str_eqz(json_str(json_get(m, "role")), "assistant"))
            o->assistant[o->n_assistant++] = content;
    }
    /* They lie in document order already; sorting keeps us independent of that. */
    qsort(o->assistant, o->n_assistant, sizeof *o->assistant, by_address);
    return T9_STATUS_OK;
}

static void write_special(const struct prep *p, struct buf *out, const char *key, int32_t id)
{
    if (id < 0)
        return;
    buf_putc(out, ',');
    json_write_key(out, key);
    json_write_str(out, tokenizer_piece(p->params.tokenizer, id));
}

/* Whether the client's own kwargs leave this switch to us. */
static bool is_free(const struct chat_request *r, const char *name)
{
    return !json_get(r->template_kwargs, name);
}

static bool effort_is_none(const struct chat_request *r)
{
    return str_eqz(r->reasoning_effort, "none") || str_eqz(r->reasoning_effort, "minimal");
}

/* enable_thinking and reasoning_effort. A template that knows only the first gets it from the
 * second. */
static void write_switches(const struct prep *p, const struct chat_request *r, struct buf *out)
{
    bool has_effort = r->reasoning_effort.n > 0;
    if ((r->has_thinking || (has_effort && !p->info.effort_switch)) &&
        is_free(r, "enable_thinking")) {
        buf_puts(out, ",\"enable_thinking\":");
        json_write_bool(out, r->has_thinking ? r->thinking : !effort_is_none(r));
    }
    if (has_effort && p->info.effort_switch && is_free(r, "reasoning_effort")) {
        buf_puts(out, ",\"reasoning_effort\":");
        json_write_str(out, r->reasoning_effort);
    }
}

static void write_kwargs(const struct prep *p, const struct history *h,
                         const struct chat_request *r, struct buf *out)
{
    buf_puts(out, "{\"messages\":");
    history_write(h, out);
    buf_puts(out, ",\"add_generation_prompt\":true,\"documents\":null,\"tools\":");
    if (r->tools)
        json_write_val(out, r->tools);
    else
        buf_puts(out, "null");
    write_special(p, out, "bos_token", tokenizer_bos(p->params.tokenizer));
    write_special(p, out, "eos_token", tokenizer_eos(p->params.tokenizer));
    write_switches(p, r, out);
    yyjson_obj_iter it = yyjson_obj_iter_with(r->template_kwargs);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        buf_putc(out, ',');
        json_write_str(out, json_str(key));
        buf_putc(out, ':');
        json_write_val(out, yyjson_obj_iter_get_val(key));
    }
    buf_putc(out, '}');
}

static t9_status render(const struct prep *p, const struct chat_request *r,
                        struct jinja_output *out, struct t9_err *err)
{
    static const struct json_limits limits = {KWARGS_BYTES_MAX, 160, 32u << 20};
    struct history h = {0};
    struct origins origins = {0};
    struct buf text;
    yyjson_doc *doc = NULL;
    struct history_caps caps = {p->info.system, p->info.later_system, p->info.user_twice};
    buf_init(&text, KWARGS_BYTES_MAX);

    t9_status s = history_arrange(&h, r->messages, r->n_messages, caps, err);
    if (s != T9_STATUS_OK)
        goto done;
    write_kwargs(p, &h, r, &text);
    if (text.failed) {
        s = t9_fail(err, T9_STATUS_TOO_LARGE, "the conversation is too large to be rendered");
        goto done;
    }
    s = json_parse(&doc, buf_str(&text), limits, err);
    if (s != T9_STATUS_OK)
        goto done;
    buf_deinit(&text);
    s = find_origins(&origins, yyjson_doc_get_root(doc), h.n_entries);
    if (s != T9_STATUS_OK) {
        (void)t9_fail(err, s, "no memory to render %zu messages", h.n_entries);
        goto done;
    }
    struct jinja_env env = {.now_unix_s =
                                p->params.now_unix_s ? p->params.now_unix_s : clock_unix_s(),
                            .origin = origin_of,
                            .origin_ctx = &origins};
    s = jinja_render(p->tmpl, yyjson_doc_get_root(doc), NULL, &env, out, err);
done:
    mem_free(origins.assistant);
    if (doc)
        yyjson_doc_free(doc);
    buf_deinit(&text);
    history_deinit(&h);
    return s;
}

static t9_status encode(const struct prep *p, const struct jinja_output *text, struct tok_ids *out,
                        struct t9_err *err)
{
    const struct tokenizer *t = p->params.tokenizer;
    struct tok_span *spans = mem_calloc(text->n_spans + 1, sizeof *spans);
    if (!spans)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for %zu spans", text->n_spans);
    size_t from = 0;
    for (size_t i = 0; i < text->n_spans; i++) {
        uint8_t origin = text->spans[i].origin;
        spans[i].text = str_slice(buf_str(&text->text), from, text->spans[i].end);
        spans[i].parse_control = origin == JINJA_ORIGIN_TEMPLATE;
        spans[i].parse_user_defined = origin == JINJA_ORIGIN_TEMPLATE || origin == ORIGIN_ASSISTANT;
        from = text->spans[i].end;
    }
    t9_status s = tokenizer_encode(t, spans, text->n_spans, tokenizer_add_bos(t), out, err);
    mem_free(spans);
    return s;
}

/* Where a prompt that is too long is given up: far enough beyond the limit that most refusals can
 * name the length, near enough that a huge body does not hold a thread for seconds. */
static size_t tokens_max(const struct prep *p)
{
    if (!p->params.engine)
        return PROMPT_TOKENS_MAX;
    size_t max = (size_t)engine_max_length(p->params.engine) * 4;
    if (max < PROMPT_TOKENS_COUNTED)
        max = PROMPT_TOKENS_COUNTED;
    return max < PROMPT_TOKENS_MAX ? max : PROMPT_TOKENS_MAX;
}

/* Text that is too long whatever its tokens are is refused unread: a word of megabytes takes the
 * tokenizer seconds and many times its size. The normal form may have a fourth of the bytes. */
static uint64_t text_bytes_max(const struct prep *p)
{
    uint64_t longest = tokenizer_vocab(p->params.tokenizer)->longest_bytes;
    return p->params.engine ? 4 * (uint64_t)engine_max_length(p->params.engine) * longest
                            : UINT64_MAX;
}

static bool surely_too_long(const struct prep *p, size_t n_bytes)
{
    return n_bytes > text_bytes_max(p);
}

static t9_status too_many_bytes(const struct prep *p, size_t n_bytes, const char *param,
                                struct chat_error *err)
{
    return chat_fail(err, T9_STATUS_INVALID, param, "context_length_exceeded",
                     "the prompt has %zu bytes of text, and prompt and reply together may have %d "
                     "tokens: shorten the conversation",
                     n_bytes, engine_max_length(p->params.engine));
}

/* What a failed encoding is to the client. */
static t9_status encode_failed(t9_status s, const struct tok_ids *out, const char *param,
                               const struct t9_err *e, struct chat_error *err)
{
    if (s == T9_STATUS_TOO_LARGE)
        return chat_fail(err, T9_STATUS_INVALID, param, "context_length_exceeded",
                         "the prompt has more than %zu tokens, over the limit: shorten the "
                         "conversation",
                         out->max);
    return chat_fail(err, s, NULL, NULL, "%s", e->msg);
}

static t9_status render_checked(const struct prep *p, const struct chat_request *r,
                                struct jinja_output *text, struct chat_error *err)
{
    struct t9_err e = {0};
    if (!p->tmpl)
        return chat_fail(err, T9_STATUS_UNSUPPORTED, "messages", "no_chat_template",
                         "this model has no chat template and its vocabulary no <|im_start|>, so "
                         "messages can't be laid out for it: serve a chat model");
    t9_status s = render(p, r, text, &e);
    /* A template that hits our bounds met a conversation it can't take: the client's to change. */
    if (s == T9_STATUS_UNSUPPORTED || s == T9_STATUS_TOO_LARGE)
        s = T9_STATUS_INVALID;
    return s == T9_STATUS_OK ? s : chat_fail(err, s, "messages", "template_error", "%s", e.msg);
}

t9_status prep_tokens(const struct prep *p, const struct chat_request *r, struct tok_ids *out,
                      struct chat_error *err)
{
    struct jinja_output text = {0};
    struct t9_err e = {0};
    tok_ids_init(out, tokens_max(p));
    T9_TRY(render_checked(p, r, &text, err));
    size_t n_bytes = text.text.n;
    bool refused = surely_too_long(p, n_bytes);
    t9_status s = refused ? T9_STATUS_OK : encode(p, &text, out, &e);
    jinja_output_deinit(&text);
    if (refused)
        return too_many_bytes(p, n_bytes, "messages", err);
    if (s != T9_STATUS_OK)
        return encode_failed(s, out, "messages", &e, err);
    if (out->n == 0)
        return chat_fail(err, T9_STATUS_INVALID, "messages", "empty_prompt",
                         "the template made an empty prompt of these messages");
    return T9_STATUS_OK;
}

t9_status prep_render(const struct prep *p, const struct chat_request *r, struct buf *out,
                      struct chat_error *err)
{
    struct jinja_output text = {0};
    T9_TRY(render_checked(p, r, &text, err));
    buf_puts_str(out, buf_str(&text.text));
    jinja_output_deinit(&text);
    return T9_STATUS_OK;
}

/* ---- raw prompts ---- */

static t9_status check_ids(const struct prep *p, const struct chat_prompt *prompt,
                           const char *param, struct chat_error *err)
{
    uint32_t n_vocab = tokenizer_vocab(p->params.tokenizer)->n_tokens;
    for (size_t i = 0; i < prompt->n_tokens; i++) {
        if (prompt->tokens[i] < 0 || (uint32_t)prompt->tokens[i] >= n_vocab)
            return chat_fail(err, T9_STATUS_INVALID, param, "invalid_value",
                             "token %zu of %s is %d, and the vocabulary has 0 to %u", i, param,
                             prompt->tokens[i], n_vocab - 1);
    }
    return T9_STATUS_OK;
}

static t9_status encode_raw(const struct prep *p, str text, bool add_bos, bool specials,
                            struct tok_ids *out, const char *param, struct chat_error *err)
{
    struct t9_err e = {0};
    struct tok_span span = {text, specials, specials};
    if (surely_too_long(p, text.n))
        return too_many_bytes(p, text.n, param, err);
    t9_status s = tokenizer_encode(p->params.tokenizer, &span, 1, add_bos, out, &e);
    return s == T9_STATUS_OK ? s : encode_failed(s, out, param, &e, err);
}

static t9_status encode_hole(const struct prep *p, const struct chat_request *r, str prefix,
                             struct tok_ids *out, struct chat_error *err)
{
    if (p->fim[0] < 0)
        return chat_fail(err, T9_STATUS_UNSUPPORTED, "suffix", "unsupported_parameter",
                         "suffix needs a vocabulary with fill-in-the-middle tokens, which this "
                         "model's has not: leave it out");
    int32_t bos = tokenizer_bos(p->params.tokenizer);
    if (tokenizer_add_bos(p->params.tokenizer) && bos >= 0)
        tok_ids_push(out, bos);
    tok_ids_push(out, p->fim[0]);
    T9_TRY(encode_raw(p, prefix, false, false, out, "prompt", err));
    tok_ids_push(out, p->fim[1]);
    T9_TRY(encode_raw(p, r->suffix, false, false, out, "suffix", err));
    tok_ids_push(out, p->fim[2]);
    return out->failed ? chat_fail(err, T9_STATUS_INVALID, "prompt", "context_length_exceeded",
                                   "prompt and suffix are over the limit together")
                       : T9_STATUS_OK;
}

static t9_status take_ids(const struct prep *p, const struct chat_prompt *prompt,
                          struct tok_ids *out, struct chat_error *err)
{
    T9_TRY(check_ids(p, prompt, "prompt", err));
    for (size_t i = 0; i < prompt->n_tokens; i++)
        tok_ids_push(out, prompt->tokens[i]);
    return out->failed ? encode_failed(T9_STATUS_TOO_LARGE, out, "prompt", NULL, err)
                       : T9_STATUS_OK;
}

t9_status prep_prompt(const struct prep *p, const struct chat_request *r, size_t i,
                      struct tok_ids *out, struct chat_error *err)
{
    const struct tokenizer *t = p->params.tokenizer;
    const struct chat_prompt *prompt = &r->prompts[i];
    tok_ids_init(out, tokens_max(p));
    if (r->has_suffix && prompt->tokens)
        return chat_fail(err, T9_STATUS_INVALID, "suffix", "invalid_value",
                         "suffix goes with prompts that are text, not tokens");
    if (prompt->tokens)
        T9_TRY(take_ids(p, prompt, out, err));
    else if (r->has_suffix)
        T9_TRY(encode_hole(p, r, prompt->text, out, err));
    else
        T9_TRY(encode_raw(p, prompt->text, tokenizer_add_bos(t), true, out, "prompt", err));
    if (out->n == 0 && tokenizer_bos(t) >= 0)
        tok_ids_push(out, tokenizer_bos(t));
    if (out->n == 0)
        return chat_fail(err, T9_STATUS_INVALID, "prompt", "empty_prompt",
                         "the prompt is empty, and this vocabulary has no token to begin with");
    return T9_STATUS_OK;
}

t9_status prep_tokenize(const struct prep *p, const struct chat_request *r, str text,
                        struct tok_ids *out, struct chat_error *err)
{
    tok_ids_init(out, PROMPT_TOKENS_MAX);
    struct t9_err e = {0};
    struct tok_span span = {text, !r->no_parse_special, !r->no_parse_special};
    bool add_bos = r->add_special && tokenizer_add_bos(p->params.tokenizer);
    if (surely_too_long(p, text.n))
        return chat_fail(err, T9_STATUS_INVALID, "prompt", "text_too_long",
                         "the text has %zu bytes, and with this model %llu are tokenised at once: "
                         "send it in parts",
                         text.n, (unsigned long long)text_bytes_max(p));
    t9_status s = tokenizer_encode(p->params.tokenizer, &span, 1, add_bos, out, &e);
    if (s == T9_STATUS_TOO_LARGE)
        return chat_fail(err, T9_STATUS_INVALID, "prompt", "text_too_long",
                         "the text has more than %zu tokens: send it in parts", out->max);
    return s == T9_STATUS_OK ? s : encode_failed(s, out, "prompt", &e, err);
}

t9_status prep_detokenize(const struct prep *p, const struct chat_prompt *tokens, bool special,
                          struct buf *out, struct chat_error *err)
{
    struct detok d;
    T9_TRY(check_ids(p, tokens, "tokens", err));
    detok_init(&d, tokenizer_vocab(p->params.tokenizer));
    for (size_t i = 0; i < tokens->n_tokens; i++)
        detok_push(&d, tokens->tokens[i], out, special);
    detok_finish(&d, out);
    return T9_STATUS_OK;
}

str prep_piece(const struct prep *p, int32_t id)
{
    return tokenizer_piece(p->params.tokenizer, id);
}

int32_t prep_max_length(const struct prep *p)
{
    return p->params.engine ? engine_max_length(p->params.engine) : 0;
}

static t9_status no_such_id(const struct prep *p, const char *param, int32_t id,
                            struct chat_error *err)
{
    return chat_fail(err, T9_STATUS_INVALID, param, "invalid_value",
                     "%s names token %d, and the vocabulary has 0 to %u", param, id,
                     tokenizer_vocab(p->params.tokenizer)->n_tokens - 1);
}

t9_status prep_check_ids(const struct prep *p, const struct chat_request *r, struct chat_error *err)
{
    const struct vocab *v = tokenizer_vocab(p->params.tokenizer);
    for (int32_t i = 0; i < r->sampling.n_bias; i++) {
        if (!vocab_has(v, r->sampling.bias[i].id))
            return no_such_id(p, "logit_bias", r->sampling.bias[i].id, err);
    }
    for (int32_t i = 0; i < r->n_stop_tokens; i++) {
        if (!vocab_has(v, r->stop_tokens[i]))
            return no_such_id(p, "stop_token_ids", r->stop_tokens[i], err);
    }
    return T9_STATUS_OK;
}

void prep_note_switches(const struct prep *p, struct chat_request *r)
{
    if (r->has_thinking && !p->info.thinking_switch)
        chat_warn(r, "enable_thinking has no effect: the model's chat template has no such switch");
    if (r->reasoning_effort.n > 0 && !p->info.effort_switch && !p->info.thinking_switch)
        chat_warn(r,
                  "reasoning_effort has no effect: the model's chat template has no such switch");
}

t9_status prep_check_model(const struct prep *p, struct chat_request *r, struct chat_error *err)
{
    const struct prep_params *q = &p->params;
    char brief[80];
    if (r->model.n == 0 || str_eqz(r->model, "default") || str_eqz(r->model, q->model_name))
        return T9_STATUS_OK;
    for (size_t i = 0; i < q->n_aliases; i++)
        if (str_eqz(r->model, q->aliases[i]))
            return T9_STATUS_OK;
    str shown = r->model.n > 60 ? str_slice(r->model, 0, 60) : r->model;
    (void)snprintf(brief, sizeof brief, STR_FMT, STR_ARG(shown));
    if (!q->any_model)
        return chat_fail(err, T9_STATUS_NOT_FOUND, "model", "model_not_found",
                         "there is no model \"%s\" here; the one served is \"%.100s\"", brief,
                         q->model_name);
    chat_warn(r, "the model \"%s\" was asked for and \"%s\" answered", brief, q->model_name);
    return T9_STATUS_OK;
}

/* Whether the template renders these turns and shows the last text of each. */
static bool renders(const struct prep *p, const char *roles)
{
    static const char *const texts[] = {"t9probe-a", "t9probe-b", "t9probe-c", "t9probe-d"};
    struct chat_message m[4] = {0};
    struct chat_request r;
    struct jinja_output out = {0};
    size_t n = strlen(roles);
    for (size_t i = 0; i < n; i++) {
        m[i].role = roles[i] == 's'   ? CHAT_ROLE_SYSTEM
                    : roles[i] == 'u' ? CHAT_ROLE_USER
                                      : CHAT_ROLE_ASSISTANT;
        m[i].content = str_from(texts[i]);
        m[i].has_content = true;
    }
    chat_request_init(&r, 4096);
    r.messages = m;
    r.n_messages = n;
    bool ok = render(p, &r, &out, NULL) == T9_STATUS_OK;
    for (size_t i = 0; i < n && ok; i++)
        ok = str_find(buf_str(&out.text), m[i].content, 0) != (size_t)-1;
    jinja_output_deinit(&out);
    chat_request_deinit(&r);
    return ok;
}

/* Each probe claims the ability that it tests, so that the turns reach the template as they are. */
static void probe(struct prep *p)
{
    struct prep_template_info *info = &p->info;
    info->system = info->later_system = info->user_twice = true;
    bool later = renders(p, "suas") && renders(p, "suau");
    bool later_then_user = renders(p, "susu");
    bool head = renders(p, "su");
    bool twice = renders(p, "uu");
    info->system = head;
    info->later_system = head && later && later_then_user;
    info->user_twice = twice;
    info->thinking_switch = jinja_mentions(p->tmpl, "enable_thinking");
    info->effort_switch = jinja_mentions(p->tmpl, "reasoning_effort");
}

static int32_t find_special(const struct tokenizer *t, const char *text)
{
    int32_t id = tokenizer_find(t, str_from(text));
    tok_type type = vocab_type(tokenizer_vocab(t), id);
    return type == TOK_TYPE_CONTROL || type == TOK_TYPE_USER_DEFINED ? id : -1;
}

static void find_fim(struct prep *p)
{
    for (size_t i = 0; i < T9_COUNT(fim_names) && !p->info.fill_in_middle; i++) {
        for (size_t k = 0; k < 3; k++)
            p->fim[k] = find_special(p->params.tokenizer, fim_names[i][k]);
        p->info.fill_in_middle = p->fim[0] >= 0 && p->fim[1] >= 0 && p->fim[2] >= 0;
    }
    if (!p->info.fill_in_middle)
        p->fim[0] = p->fim[1] = p->fim[2] = -1;
}

t9_status prep_new(struct prep **out, const struct prep_params *params, struct t9_err *err)
{
    struct prep *p = mem_calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory");
    p->params = *params;
    if (!(p->params.sampling.top_p > 0))
        sample_params_init(&p->params.sampling);
    p->tmpl = params->tmpl;
    p->info.present = params->tmpl != NULL;
    if (!p->tmpl && tokenizer_find(params->tokenizer, STR("<|im_start|>")) >= 0 &&
        tokenizer_find(params->tokenizer, STR("<|im_end|>")) >= 0) {
        t9_status s = jinja_parse(&p->own, STR(chatml), err);
        if (s != T9_STATUS_OK) {
            mem_free(p);
            return s;
        }
        p->tmpl = p->own;
        p->info.chatml_fallback = true;
    }
    if (p->tmpl)
        probe(p);
    find_fim(p);
    *out = p;
    return T9_STATUS_OK;
}

void prep_free(struct prep *p)
{
    if (!p)
        return;
    jinja_free(p->own);
    mem_free(p);
}

const struct prep_params *prep_params_of(const struct prep *p)
{
    return &p->params;
}

struct prep_template_info prep_info(const struct prep *p)
{
    return p->info;
}

void prep_engine_stats(const struct prep *p, struct engine_stats *out)
{
    memset(out, 0, sizeof *out);
    if (p->params.engine)
        engine_stats_read(p->params.engine, out);
}

void prep_engine_state(const struct prep *p, struct engine_state *out)
{
    memset(out, 0, sizeof *out);
    if (p->params.engine)
        engine_state_read(p->params.engine, out);
}

int32_t prep_retry_after_s(const struct prep *p)
{
    int32_t s = p->params.engine ? engine_retry_after_s(p->params.engine) : 1;
    return s < 1 ? 1 : s;
}
