/*
 * protocol/prep.c - see prep.h.
 */
#include "protocol/prep.h"

#include "base/mem.h"
#include "protocol/layout.h"

#include <stdio.h>
#include <string.h>

#define JSON_BYTES_MAX    ((size_t)256 << 20)
#define PROMPT_TOKENS_MAX ((size_t)8 << 20)
/* Prompts up to here are counted whole, however low the limit is. */
#define PROMPT_TOKENS_COUNTED ((size_t)64 << 10)

struct prep {
    struct prep_params params;
    struct prep_info info;
};

void prep_ids_deinit(struct prep_ids *ids)
{
    t9_ids_free(&ids->made);
    buf_deinit(&ids->joined);
    *ids = (struct prep_ids){0};
}

void prep_ids_drop(struct prep_ids *ids)
{
    struct prep_ids kept = {.n = ids->n, .reasoning_open = ids->reasoning_open};
    prep_ids_deinit(ids);
    *ids = kept;
}

/* ---- limits ---- */

/* Where a prompt that is too long is given up: far enough beyond the limit that most refusals can
 * name the length, near enough that a huge body does not hold a thread for seconds. */
static size_t tokens_max(const struct prep *p)
{
    if (!p->params.engine)
        return PROMPT_TOKENS_MAX;
    size_t max = (size_t)prep_max_length(p) * 4;
    if (max < PROMPT_TOKENS_COUNTED)
        max = PROMPT_TOKENS_COUNTED;
    return max < PROMPT_TOKENS_MAX ? max : PROMPT_TOKENS_MAX;
}

/* Text that is too long whatever its tokens are is refused unread: a word of megabytes takes the
 * tokenizer seconds and many times its size. The normal form may have a fourth of the bytes. */
static uint64_t text_bytes_max(const struct prep *p)
{
    uint64_t longest = (uint64_t)p->info.model.token_bytes_max;
    return p->params.engine ? 4 * (uint64_t)prep_max_length(p) * longest : UINT64_MAX;
}

static t9_status too_long(const struct prep *p, const char *param, struct chat_error *err)
{
    return chat_fail(err, T9_STATUS_INVALID, param, "context_length_exceeded",
                     "the prompt has more than %zu tokens, over the limit: shorten the "
                     "conversation",
                     tokens_max(p));
}

/* ---- given tokens ---- */

static t9_status check_ids(const struct prep *p, const struct chat_prompt *prompt,
                           const char *param, struct chat_error *err)
{
    int32_t n_vocab = p->info.model.n_vocab;
    for (size_t i = 0; i < prompt->n_tokens; i++) {
        if (prompt->tokens[i] < 0 || prompt->tokens[i] >= n_vocab)
            return chat_fail(err, T9_STATUS_INVALID, param, "invalid_value",
                             "token %zu of %s is %d, and the vocabulary has 0 to %d", i, param,
                             prompt->tokens[i], n_vocab - 1);
    }
    return T9_STATUS_OK;
}

static size_t n_joined(const struct prep_ids *out)
{
    return out->joined.n / sizeof *out->p;
}

static void join_ids(struct prep_ids *out, const int32_t *ids, size_t n)
{
    buf_append(&out->joined, ids, n * sizeof *ids);
}

/* ---- conversations ---- */

static bool has_tools(const struct chat_request *r)
{
    return r->n_tools > 0 && !r->no_calls;
}

/* Whether the template leaves it to us to tell the model of the tools. */
static bool tells_tools(const struct prep *p, const struct chat_request *r)
{
    return has_tools(r) && !p->info.model.template_tools.tools;
}

const struct dialect *prep_dialect(const struct prep *p, const struct chat_request *r)
{
    const struct dialect *own = p->info.dialect;
    return tells_tools(p, r) && !own->reads_bare ? dialect_find(STR("generic_json")) : own;
}

void prep_write_messages(const struct chat_request *r, struct buf *out)
{
    layout_messages(r, (struct layout_form){0}, out);
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

/* enable_thinking and reasoning_effort, then the client's own variables. A template that knows only
 * the first gets it from the second. */
static void write_kwargs(const struct prep *p, const struct chat_request *r, struct buf *out)
{
    bool has_effort = r->reasoning_effort.n > 0;
    const char *before = "{";
    if ((r->has_thinking || (has_effort && !p->info.effort_switch)) &&
        is_free(r, "enable_thinking")) {
        buf_puts(out, "{\"enable_thinking\":");
        json_write_bool(out, r->has_thinking ? r->thinking : !effort_is_none(r));
        before = ",";
    }
    if (has_effort && p->info.effort_switch && is_free(r, "reasoning_effort")) {
        buf_puts(out, before);
        buf_puts(out, "\"reasoning_effort\":");
        json_write_str(out, r->reasoning_effort);
        before = ",";
    }
    yyjson_obj_iter it = yyjson_obj_iter_with(r->template_kwargs);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        buf_puts(out, before);
        json_write_str(out, json_str(key));
        buf_putc(out, ':');
        json_write_val(out, yyjson_obj_iter_get_val(key));
        before = ",";
    }
    buf_puts(out, *before == '{' ? "{}" : "}");
}

/* A conversation as the library takes it: JSON texts and the parameters that point to them. */
struct layout {
    struct buf messages, tools, kwargs;
    struct t9_chat_params params;
};

static void layout_deinit(struct layout *l)
{
    buf_deinit(&l->messages);
    buf_deinit(&l->tools);
    buf_deinit(&l->kwargs);
}

/* Freed by the caller whatever comes back. */
static t9_status layout_init(struct layout *l, const struct prep *p, const struct chat_request *r,
                             struct chat_error *err)
{
    buf_init(&l->messages, JSON_BYTES_MAX);
    buf_init(&l->tools, JSON_BYTES_MAX);
    buf_init(&l->kwargs, JSON_BYTES_MAX);
    const struct t9_template_info *t = &p->info.model.chat_template;
    if (!t->present && !t->chatml_fallback)
        return chat_fail(err, T9_STATUS_UNSUPPORTED, r->prompt_field, "no_chat_template",
                         "this model has no chat template and its vocabulary no <|im_start|>, so "
                         "messages can't be laid out for it: serve a chat model");
    const struct t9_template_tools *can = &p->info.model.template_tools;
    struct layout_form form = {.tell_tools = tells_tools(p, r),
                               .calls_text = !can->calls || tells_tools(p, r),
                               .results_text = !can->results || tells_tools(p, r),
                               .id_letters = p->info.dialect->id_letters};
    bool tools = has_tools(r) && can->tools;
    layout_messages(r, form, &l->messages);
    write_kwargs(p, r, &l->kwargs);
    if (tools)
        layout_tools(r, &l->tools);
    if (l->messages.failed || l->kwargs.failed || l->tools.failed)
        return chat_fail(err, T9_STATUS_INVALID, r->prompt_field, "template_error",
                         "the conversation is too large to be rendered");
    t9_chat_params_init(&l->params, sizeof l->params);
    l->params.messages = l->messages.p;
    l->params.messages_bytes = l->messages.n;
    l->params.tools = tools ? l->tools.p : NULL;
    l->params.tools_bytes = l->tools.n;
    l->params.kwargs = l->kwargs.p;
    l->params.kwargs_bytes = l->kwargs.n;
    l->params.now_unix_s = p->params.now_unix_s;
    l->params.max_tokens = (int32_t)tokens_max(p);
    l->params.max_length = prep_max_length(p);
    return T9_STATUS_OK;
}

/* What the library's refusal is to the client. */
static t9_status layout_failed(const struct chat_request *r, t9_status s, const struct t9_err *e,
                               struct chat_error *err)
{
    if (s == T9_STATUS_TOO_LARGE)
        return chat_fail(err, T9_STATUS_INVALID, r->prompt_field, "context_length_exceeded", "%s",
                         e->msg);
    if (s == T9_STATUS_INVALID)
        return chat_fail(err, s, r->prompt_field, "template_error", "%s", e->msg);
    return chat_fail(err, s, NULL, NULL, "%s", e->msg);
}

/* The end of a prompt, back to the last control token but for those of reasoning. */
static void prompt_tail(const struct prep *p, const struct dialect *d, const int32_t *ids,
                        size_t n_ids, struct buf *out)
{
    enum { TOKENS_MAX = 64 };
    str piece[TOKENS_MAX];
    size_t n = 0;
    while (n < n_ids && n < TOKENS_MAX) {
        int32_t id = ids[n_ids - 1 - n];
        str text = prep_piece(p, id);
        bool think = str_eqz(text, d->think_open) || str_eqz(text, d->think_close);
        if (!think && t9_token_flags(p->params.model, id) & (T9_TOKEN_CONTROL | T9_TOKEN_ENDS))
            break;
        piece[n++] = text;
    }
    while (n > 0)
        buf_puts_str(out, piece[--n]);
}

bool prep_opens_reasoning(const struct prep *p, const struct dialect *d, const int32_t *ids,
                          size_t n_ids)
{
    struct buf tail;
    bool open = false;
    if (!d->think_open)
        return false;
    buf_init(&tail, (size_t)1 << 20);
    prompt_tail(p, d, ids, n_ids, &tail);
    str text = buf_str(&tail);
    for (size_t at = 0; at < text.n; at++) {
        str rest = str_slice(text, at, text.n);
        open = str_has_prefix(rest, str_from(d->think_open)) ||
               (open && !str_has_prefix(rest, str_from(d->think_close)));
    }
    buf_deinit(&tail);
    return open;
}

/* Puts what came before in front; what the messages were laid out to begins the text no more. */
static t9_status put_before(const struct prep *p, const struct chat_request *r,
                            struct prep_ids *out, struct chat_error *err)
{
    const struct t9_model_info *m = &p->info.model;
    size_t n = r->before.n_tokens, skip = m->add_bos && out->made.p[0] == m->bos ? 1 : 0;
    T9_TRY(check_ids(p, &r->before, "context", err));
    if (n > tokens_max(p))
        return too_long(p, "context", err);
    buf_init(&out->joined, (n + out->made.n) * sizeof *out->p);
    join_ids(out, r->before.tokens, n);
    join_ids(out, out->made.p + skip, out->made.n - skip);
    if (out->joined.failed)
        return chat_fail(err, T9_STATUS_NOMEM, NULL, NULL, "no memory for a prompt");
    out->p = (const int32_t *)(const void *)out->joined.p;
    out->n = n_joined(out);
    for (size_t i = 0; i < out->n_marks; i++)
        out->marks[i].n_tokens += (int32_t)(n - skip);
    return T9_STATUS_OK;
}

t9_status prep_tokens(const struct prep *p, const struct chat_request *r, struct prep_ids *out,
                      struct chat_error *err)
{
    struct layout l;
    struct t9_err e = {0};
    *out = (struct prep_ids){0};
    t9_status s = layout_init(&l, p, r, err);
    if (s == T9_STATUS_OK) {
        s = t9_chat_tokens_marked(p->params.model, &l.params, &out->made, out->marks, &out->n_marks,
                                  &e);
        if (s != T9_STATUS_OK)
            s = layout_failed(r, s, &e, err);
        else if (out->made.n == 0)
            s = chat_fail(err, T9_STATUS_INVALID, r->prompt_field, "empty_prompt",
                          "the template made an empty prompt of these messages");
    }
    layout_deinit(&l);
    out->p = out->made.p;
    out->n = out->made.n;
    if (s == T9_STATUS_OK && r->before.n_tokens)
        s = put_before(p, r, out, err);
    out->reasoning_open = prep_opens_reasoning(p, prep_dialect(p, r), out->p, out->n);
    return s;
}

t9_status prep_render(const struct prep *p, const struct chat_request *r, struct buf *out,
                      struct chat_error *err)
{
    struct layout l;
    t9_text text = {0};
    struct t9_err e = {0};
    t9_status s = layout_init(&l, p, r, err);
    if (s == T9_STATUS_OK) {
        s = t9_chat_render(p->params.model, &l.params, &text, &e);
        if (s == T9_STATUS_OK)
            buf_append(out, text.p, text.n);
        else
            s = chat_fail(err, s, r->prompt_field, "template_error", "%s", e.msg);
    }
    t9_text_free(&text);
    layout_deinit(&l);
    return s;
}

/* ---- raw prompts ---- */

/* Text to at most max_tokens tokens. */
static t9_status encode_raw(const struct prep *p, str text, uint32_t flags, size_t max_tokens,
                            t9_ids *out, const char *param, struct chat_error *err)
{
    struct t9_err e = {0};
    if (text.n > text_bytes_max(p))
        return chat_fail(err, T9_STATUS_INVALID, param, "context_length_exceeded",
                         "the prompt has %zu bytes of text, and prompt and reply together may have "
                         "%d tokens: shorten the conversation",
                         text.n, prep_max_length(p));
    if (max_tokens == 0)
        return too_long(p, param, err);
    t9_status s = t9_tokenize_upto(p->params.model, text.p, text.n, flags, max_tokens, out, &e);
    if (s == T9_STATUS_TOO_LARGE)
        return too_long(p, param, err);
    return s == T9_STATUS_OK ? s : chat_fail(err, s, NULL, NULL, "%s", e.msg);
}

/* One side of the hole: the token in front of it, then its text, in which nothing is special. */
static t9_status join_side(const struct prep *p, int32_t mark, str text, struct prep_ids *out,
                           const char *param, struct chat_error *err)
{
    t9_ids ids = {0};
    join_ids(out, &mark, 1);
    size_t n = n_joined(out), max = tokens_max(p);
    t9_status s = encode_raw(p, text, 0, n < max ? max - n : 0, &ids, param, err);
    join_ids(out, ids.p, ids.n);
    t9_ids_free(&ids);
    return s;
}

static t9_status encode_hole(const struct prep *p, const struct chat_request *r, str prefix,
                             struct prep_ids *out, struct chat_error *err)
{
    const struct t9_model_info *m = &p->info.model;
    if (!p->info.fill_in_middle)
        return chat_fail(err, T9_STATUS_UNSUPPORTED, "suffix", "unsupported_parameter",
                         "suffix needs a vocabulary with fill-in-the-middle tokens, which this "
                         "model's has not: leave it out");
    buf_init(&out->joined, (tokens_max(p) + 4) * sizeof *out->p);
    if (m->add_bos && m->bos >= 0)
        join_ids(out, &m->bos, 1);
    T9_TRY(join_side(p, m->fim_prefix, prefix, out, "prompt", err));
    T9_TRY(join_side(p, m->fim_suffix, r->suffix, out, "suffix", err));
    join_ids(out, &m->fim_middle, 1);
    if (out->joined.failed)
        return chat_fail(err, T9_STATUS_NOMEM, NULL, NULL, "no memory for a prompt");
    if (n_joined(out) > tokens_max(p))
        return chat_fail(err, T9_STATUS_INVALID, "prompt", "context_length_exceeded",
                         "prompt and suffix are over the limit together");
    out->p = (const int32_t *)(const void *)out->joined.p;
    out->n = n_joined(out);
    return T9_STATUS_OK;
}

static t9_status take_ids(const struct prep *p, const struct chat_prompt *prompt,
                          struct prep_ids *out, struct chat_error *err)
{
    T9_TRY(check_ids(p, prompt, "prompt", err));
    if (prompt->n_tokens > tokens_max(p))
        return too_long(p, "prompt", err);
    out->p = prompt->tokens;
    out->n = prompt->n_tokens;
    return T9_STATUS_OK;
}

static t9_status take_text(const struct prep *p, str text, struct prep_ids *out,
                           struct chat_error *err)
{
    T9_TRY(encode_raw(p, text, T9_TOKENIZE_SPECIAL | T9_TOKENIZE_BOS, tokens_max(p), &out->made,
                      "prompt", err));
    out->p = out->made.p;
    out->n = out->made.n;
    return T9_STATUS_OK;
}

t9_status prep_prompt(const struct prep *p, const struct chat_request *r, size_t i,
                      struct prep_ids *out, struct chat_error *err)
{
    const struct chat_prompt *prompt = &r->prompts[i];
    *out = (struct prep_ids){0};
    if (r->has_suffix && prompt->tokens)
        return chat_fail(err, T9_STATUS_INVALID, "suffix", "invalid_value",
                         "suffix goes with prompts that are text, not tokens");
    if (prompt->tokens)
        T9_TRY(take_ids(p, prompt, out, err));
    else if (r->has_suffix)
        T9_TRY(encode_hole(p, r, prompt->text, out, err));
    else
        T9_TRY(take_text(p, prompt->text, out, err));
    if (out->n == 0 && p->info.model.bos >= 0) {
        out->p = &p->info.model.bos;
        out->n = 1;
    }
    if (out->n == 0)
        return chat_fail(err, T9_STATUS_INVALID, "prompt", "empty_prompt",
                         "the prompt is empty, and this vocabulary has no token to begin with");
    return T9_STATUS_OK;
}

t9_status prep_tokenize(const struct prep *p, const struct chat_request *r, str text,
                        struct prep_ids *out, struct chat_error *err)
{
    struct t9_err e = {0};
    uint32_t flags = (r->no_parse_special ? 0 : T9_TOKENIZE_SPECIAL) |
                     (r->add_special ? T9_TOKENIZE_BOS | T9_TOKENIZE_EOS : 0);
    *out = (struct prep_ids){0};
    if (text.n > text_bytes_max(p))
        return chat_fail(err, T9_STATUS_INVALID, "prompt", "text_too_long",
                         "the text has %zu bytes, and with this model %llu are tokenised at once: "
                         "send it in parts",
                         text.n, (unsigned long long)text_bytes_max(p));
    t9_status s =
        t9_tokenize_upto(p->params.model, text.p, text.n, flags, PROMPT_TOKENS_MAX, &out->made, &e);
    out->p = out->made.p;
    out->n = out->made.n;
    if (s == T9_STATUS_TOO_LARGE)
        return chat_fail(err, T9_STATUS_INVALID, "prompt", "text_too_long",
                         "the text has more than %zu tokens: send it in parts", PROMPT_TOKENS_MAX);
    return s == T9_STATUS_OK ? s : chat_fail(err, s, NULL, NULL, "%s", e.msg);
}

t9_status prep_detokenize(const struct prep *p, const struct chat_prompt *tokens, bool special,
                          struct buf *out, struct chat_error *err)
{
    t9_text text = {0};
    struct t9_err e = {0};
    T9_TRY(check_ids(p, tokens, "tokens", err));
    t9_status s = t9_detokenize(p->params.model, tokens->tokens, tokens->n_tokens,
                                special ? T9_DETOKENIZE_SPECIAL : 0, &text, &e);
    if (s != T9_STATUS_OK)
        return chat_fail(err, s, NULL, NULL, "%s", e.msg);
    buf_append(out, text.p, text.n);
    t9_text_free(&text);
    return T9_STATUS_OK;
}

/* ---- what requests name ---- */

str prep_piece(const struct prep *p, int32_t id)
{
    str s = {0};
    s.p = t9_token_bytes(p->params.model, id, &s.n);
    return s;
}

int32_t prep_max_length(const struct prep *p)
{
    return p->params.engine ? t9_engine_max_length(p->params.engine) : 0;
}

static t9_status check_id(const struct prep *p, const char *param, int32_t id,
                          struct chat_error *err)
{
    if (id >= 0 && id < p->info.model.n_vocab)
        return T9_STATUS_OK;
    return chat_fail(err, T9_STATUS_INVALID, param, "invalid_value",
                     "%s names token %d, and the vocabulary has 0 to %d", param, id,
                     p->info.model.n_vocab - 1);
}

t9_status prep_check_ids(const struct prep *p, const struct chat_request *r, struct chat_error *err)
{
    for (size_t i = 0; i < r->sampling.n_bias; i++)
        T9_TRY(check_id(p, "logit_bias", r->sampling.bias[i].token, err));
    for (int32_t i = 0; i < r->n_stop_tokens; i++)
        T9_TRY(check_id(p, "stop_token_ids", r->stop_tokens[i], err));
    return T9_STATUS_OK;
}

static void no_switch(struct chat_request *r, const char *field)
{
    chat_warn(r, "%s has no effect: the model's chat template has no such switch", field);
}

void prep_note_switches(const struct prep *p, struct chat_request *r)
{
    if (p->params.engine && r->wanted_length > prep_max_length(p))
        chat_warn(r, "a context of %lld tokens was asked for, and a request may have %d here",
                  (long long)r->wanted_length, prep_max_length(p));
    if (r->has_thinking && !r->thinking_is_wish && !p->info.thinking_switch)
        no_switch(r, r->thinking_field);
    if (r->reasoning_effort.n > 0 && !r->effort_is_wish && !p->info.effort_switch &&
        !p->info.thinking_switch)
        no_switch(r, r->effort_field);
    if (r->n_messages && r->messages[r->n_messages - 1].role == CHAT_ROLE_ASSISTANT)
        chat_warn(r, "the last message is the assistant's, and the answer is a new turn behind it: "
                     "a message can't be gone on with; /v1/completions does that with text");
    if (tells_tools(p, r))
        chat_warn(r, "the model's chat template knows no tools: they are described in a message of "
                     "the system, and the model may not know how to call them");
}

static str without_latest(str name)
{
    str tag = STR(":latest");
    return str_has_suffix(name, tag) ? str_slice(name, 0, name.n - tag.n) : name;
}

static bool asks_for(const struct chat_request *r, const char *name)
{
    return r->latest_tag ? str_cmp(without_latest(r->model), without_latest(str_from(name))) == 0
                         : str_eqz(r->model, name);
}

t9_status prep_check_model(const struct prep *p, struct chat_request *r, struct chat_error *err)
{
    const struct prep_params *q = &p->params;
    char brief[80];
    if (r->model.n == 0 || asks_for(r, "default") || asks_for(r, q->model_name))
        return T9_STATUS_OK;
    for (size_t i = 0; i < q->n_aliases; i++)
        if (asks_for(r, q->aliases[i]))
            return T9_STATUS_OK;
    str shown = r->model.n > 60 ? str_slice(r->model, 0, 60) : r->model;
    (void)snprintf(brief, sizeof brief, STR_FMT, STR_ARG(shown));
    if (!q->any_model)
        return chat_fail(
            err, T9_STATUS_NOT_FOUND, "model", "model_not_found",
            "there is no model \"%s\" here; the one served is \"%.100s\" (or \"default\")", brief,
            q->model_name);
    chat_warn(r, "the model \"%s\" was asked for and \"%s\" answered", brief, q->model_name);
    return T9_STATUS_OK;
}

/* ---- life ---- */

static bool has_token(const void *model, const char *text)
{
    int32_t id = t9_token_find(model, text, strlen(text));
    return id >= 0 && (t9_token_flags(model, id) & (T9_TOKEN_CONTROL | T9_TOKEN_USER_DEFINED)) != 0;
}

static void choose_dialect(struct prep_info *i, const t9_model *model)
{
    struct dialect_model m = {.has_token = has_token, .ctx = model};
    m.chat_template.p = t9_template_source(model, &m.chat_template.n);
    i->dialect = dialect_choose(&m);
    const char *const *text = i->dialect->shown;
    for (; text && *text && i->n_shown_ids < T9_COUNT(i->shown_ids); text++) {
        int32_t id = t9_token_find(model, *text, strlen(*text));
        if (id >= 0 && (t9_token_flags(model, id) & T9_TOKEN_CONTROL))
            i->shown_ids[i->n_shown_ids++] = id;
    }
}

t9_status prep_new(struct prep **out, const struct prep_params *params, struct t9_err *err)
{
    struct prep *p = mem_calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory");
    p->params = *params;
    if (!(p->params.sampling.top_p > 0))
        t9_request_params_init(&p->params.sampling, sizeof p->params.sampling);
    struct prep_info *i = &p->info;
    i->model.struct_size = sizeof i->model;
    (void)t9_model_info(params->model, &i->model);
    i->thinking_switch = t9_template_mentions(params->model, "enable_thinking");
    i->effort_switch = t9_template_mentions(params->model, "reasoning_effort");
    i->fill_in_middle = i->model.fim_prefix >= 0;
    choose_dialect(i, params->model);
    *out = p;
    return T9_STATUS_OK;
}

void prep_free(struct prep *p)
{
    mem_free(p);
}

const struct prep_params *prep_params_of(const struct prep *p)
{
    return &p->params;
}

const struct prep_info *prep_info(const struct prep *p)
{
    return &p->info;
}

void prep_engine_stats(const struct prep *p, struct t9_stats *out)
{
    *out = (struct t9_stats){.struct_size = sizeof *out};
    if (p->params.engine)
        (void)t9_engine_stats(p->params.engine, out);
}

void prep_engine_state(const struct prep *p, struct t9_state *out)
{
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    if (p->params.engine)
        (void)t9_engine_state(p->params.engine, out);
}

int32_t prep_retry_after_s(const struct prep *p)
{
    return p->params.engine ? t9_engine_retry_after_s(p->params.engine) : 1;
}
