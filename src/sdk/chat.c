/*
 * sdk/chat.c - from a conversation to text and tokens. The keyword arguments are written as JSON
 * text and parsed back: one linear pass each way, and the origin of a string is then a question of
 * where its value lies in the parsed document.
 *
 * Which special tokens are recognised where: all of them in what the template wrote (bos_token and
 * eos_token count as that), user-defined ones in the assistant's own past content, none elsewhere.
 * So no text of a message becomes a control token. Any thread.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "sdk/history.h"
#include "sdk/internal.h"
#include "sdk/marks.h"
#include "sdk/recent.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define KWARGS_BYTES_MAX ((size_t)256 << 20)
#define ARENA_BYTES_MAX  ((size_t)256 << 20)

static const struct json_limits LIMITS_MESSAGES = {KWARGS_BYTES_MAX, 128, 16u << 20};
static const struct json_limits LIMITS_KWARGS = {KWARGS_BYTES_MAX, 160, 32u << 20};

static const char chatml[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

/* A string of the keyword arguments, and whose it is. */
struct origin {
    const yyjson_val *text;
    uint8_t class;
};

/* Where strings of the keyword arguments come from. */
struct origins {
    struct origin *contents; /* of messages, ascending addresses */
    size_t n_contents;
    yyjson_val *bos, *eos;
};

/* What a rendering is made of, parsed. */
struct conversation {
    const struct turn *turns;
    size_t n_turns;
    yyjson_val *tools, *kwargs; /* or NULL */
    bool no_generation_prompt;
    int64_t now_unix_s;
};

static int by_address(const void *a, const void *b)
{
    const yyjson_val *x = ((const struct origin *)a)->text, *y = ((const struct origin *)b)->text;
    return x < y ? -1 : x > y;
}

static uint8_t origin_of(void *ctx, yyjson_val *text)
{
    const struct origins *o = ctx;
    if (text == o->bos || text == o->eos)
        return JINJA_ORIGIN_TEMPLATE;
    const struct origin key = {.text = text};
    const struct origin *found = NULL;
    if (o->n_contents)
        found = bsearch(&key, o->contents, o->n_contents, sizeof key, by_address);
    return found ? found->class : JINJA_ORIGIN_USER;
}

static t9_status find_origins(struct origins *o, yyjson_val *kwargs, size_t n_messages)
{
    size_t idx, max;
    yyjson_val *m;
    o->bos = json_get(kwargs, "bos_token");
    o->eos = json_get(kwargs, "eos_token");
    o->contents = mem_calloc(n_messages + 1, sizeof(*o->contents));
    if (!o->contents)
        return T9_STATUS_NOMEM;
    yyjson_arr_foreach(json_get(kwargs, "messages"), idx, max, m)
    {
        yyjson_val *content = json_get(m, "content");
        str role = json_str(json_get(m, "role"));
        if (!yyjson_is_str(content) || str_eqz(role, "system") || str_eqz(role, "developer"))
            continue;
        o->contents[o->n_contents++] =
            (struct origin){content, str_eqz(role, "assistant") ? ORIGIN_ASSISTANT : ORIGIN_TURN};
    }
    /* They lie in document order already; sorting keeps us independent of that. */
    qsort(o->contents, o->n_contents, sizeof *o->contents, by_address);
    return T9_STATUS_OK;
}

static void write_special(const t9_model *m, struct buf *out, const char *key, int32_t id)
{
    if (id < 0)
        return;
    buf_putc(out, ',');
    json_write_key(out, key);
    json_write_str(out, tokenizer_piece(m->tokenizer, id));
}

/* A variable that the caller may set: theirs wins. */
static bool is_ours(const struct conversation *c, const char *key, struct buf *out)
{
    if (json_get(c->kwargs, key))
        return false;
    buf_putc(out, ',');
    json_write_key(out, key);
    return true;
}

/* bos_token and eos_token are not the caller's, since their text counts as the template's. */
static void write_kwargs(const t9_model *m, const struct history *h, const struct conversation *c,
                         struct buf *out)
{
    buf_puts(out, "{\"messages\":");
    turns_write(h, out);
    if (is_ours(c, "add_generation_prompt", out))
        json_write_bool(out, !c->no_generation_prompt);
    if (is_ours(c, "documents", out))
        buf_puts(out, "null");
    if (is_ours(c, "tools", out)) {
        if (c->tools)
            json_write_val(out, c->tools);
        else
            buf_puts(out, "null");
    }
    yyjson_obj_iter it = yyjson_obj_iter_with(c->kwargs);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        str name = json_str(key);
        if (str_eqz(name, "bos_token") || str_eqz(name, "eos_token") || str_eqz(name, "messages"))
            continue;
        buf_putc(out, ',');
        json_write_str(out, name);
        buf_putc(out, ':');
        json_write_val(out, yyjson_obj_iter_get_val(key));
    }
    write_special(m, out, "bos_token", tokenizer_bos(m->tokenizer));
    write_special(m, out, "eos_token", tokenizer_eos(m->tokenizer));
    buf_putc(out, '}');
}

static t9_status render(const t9_model *m, const struct conversation *c, struct jinja_output *out,
                        struct t9_err *err)
{
    struct history h = {0};
    struct origins origins = {0};
    struct buf text;
    yyjson_doc *doc = NULL;
    const struct t9_template_info *can = &m->template_info;
    struct history_caps caps = {.system = can->system,
                                .later_system = can->later_system,
                                .user_twice = can->user_twice,
                                .arguments_text = m->template_tools.arguments_text,
                                .no_null = m->template_no_null,
                                .reasoning_alone = m->template_reasoning_alone,
                                .reasoning_key = m->template_reasoning_key};
    buf_init(&text, KWARGS_BYTES_MAX);

    t9_status s = turns_arrange(&h, c->turns, c->n_turns, caps, err);
    if (s != T9_STATUS_OK)
        goto done;
    write_kwargs(m, &h, c, &text);
    if (text.failed) {
        s = text.n < KWARGS_BYTES_MAX / 4
                ? t9_fail(err, T9_STATUS_NOMEM, "no memory to lay out %zu messages", h.n_entries)
                : t9_fail(err, T9_STATUS_TOO_LARGE, "the conversation is too large to be rendered");
        goto done;
    }
    s = json_parse(&doc, buf_str(&text), LIMITS_KWARGS, err);
    if (s != T9_STATUS_OK)
        goto done;
    buf_deinit(&text);
    s = find_origins(&origins, yyjson_doc_get_root(doc), h.n_entries);
    if (s != T9_STATUS_OK) {
        (void)t9_fail(err, s, "no memory to render %zu messages", h.n_entries);
        goto done;
    }
    struct jinja_env env = {.now_unix_s = c->now_unix_s ? c->now_unix_s : clock_unix_s(),
                            .origin = origin_of,
                            .origin_ctx = &origins};
    s = jinja_render(m->chat_template, yyjson_doc_get_root(doc), NULL, &env, out, err);
done:
    mem_free(origins.contents);
    if (doc)
        yyjson_doc_free(doc);
    buf_deinit(&text);
    turns_deinit(&h);
    return s;
}

/* ---- what a template can do ---- */

/* Whether the template renders these turns and shows the last text of each. NOMEM says nothing
 * about the template and must not be taken for an answer. */
static t9_status renders(const t9_model *m, const char *roles, bool *yes, struct t9_err *err)
{
    static const char *const texts[] = {"t9probe-a", "t9probe-b", "t9probe-c", "t9probe-d"};
    struct turn turns[4] = {0};
    struct jinja_output out = {0};
    size_t n = strlen(roles);
    for (size_t i = 0; i < n; i++) {
        turns[i].role = roles[i] == 's'   ? TURN_ROLE_SYSTEM
                        : roles[i] == 'u' ? TURN_ROLE_USER
                                          : TURN_ROLE_ASSISTANT;
        turns[i].content = str_from(texts[i]);
    }
    struct conversation c = {.turns = turns, .n_turns = n};
    t9_status s = render(m, &c, &out, err);
    bool ok = s == T9_STATUS_OK;
    for (size_t i = 0; i < n && ok; i++)
        ok = str_find(buf_str(&out.text), turns[i].content, 0) != (size_t)-1;
    jinja_output_deinit(&out);
    *yes = ok;
    return s == T9_STATUS_NOMEM ? s : T9_STATUS_OK;
}

/* Each probe claims the ability that it tests, so that the turns reach the template as they are. */
static t9_status probe(t9_model *m, struct t9_err *err)
{
    static const char *const roles[] = {"suas", "suau", "susu", "su", "uu"};
    enum { LATER, LATER_USER, LATER_THEN_USER, HEAD, TWICE, N };
    struct t9_template_info *info = &m->template_info;
    bool yes[N];
    info->system = info->later_system = info->user_twice = true;
    for (int i = 0; i < N; i++)
        T9_TRY(renders(m, roles[i], &yes[i], err));
    info->system = yes[HEAD];
    info->later_system = yes[HEAD] && yes[LATER] && yes[LATER_USER] && yes[LATER_THEN_USER];
    info->user_twice = yes[TWICE];
    return T9_STATUS_OK;
}

/* Text that probes look for in what a template makes of tools, calls and results. */
#define PROBE_TOOLS                                                                                \
    "[{\"type\":\"function\",\"function\":{\"name\":\"t9probe_f\",\"description\":\"t9probe-d\","  \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"t9probe_p\":{\"type\":\"string\","      \
    "\"description\":\"t9probe-e\"}},\"required\":[\"t9probe_p\"]}}}]"
#define PROBE_CALLS                                                                                \
    "[{\"id\":\"t9probe00\",\"type\":\"function\",\"function\":{\"name\":\"t9probe_f\","           \
    "\"arguments\":{\"t9probe_p\":\"t9probe-v\"}}}]"

enum { SHOWS_TOOL = 1, SHOWS_VALUE = 2, SHOWS_RESULT = 4, SHOWS_REASONING = 8, SHOWS_REPR = 16 };

/* Which of them it shows; 0 when it refuses the turns. NOMEM as in renders. */
static t9_status shows(const t9_model *m, const struct conversation *c, int *out,
                       struct t9_err *err)
{
    static const char *const texts[] = {"t9probe_f", "t9probe-v", "t9probe-r", "t9probe-t",
                                        "'t9probe_p'"};
    struct jinja_output text = {0};
    t9_status s = render(m, c, &text, err);
    *out = 0;
    for (size_t i = 0; i < T9_COUNT(texts) && s == T9_STATUS_OK; i++) {
        if (str_find(buf_str(&text.text), str_from(texts[i]), 0) != (size_t)-1)
            *out |= 1 << i;
    }
    jinja_output_deinit(&text);
    return s == T9_STATUS_NOMEM ? s : T9_STATUS_OK;
}

/* Finds the form of calls that the template shows: arguments as an object or as text, and content
 * null or an empty text. The first is better where both do, but for arguments that come out as
 * Python writes them. */
static t9_status probe_calls(t9_model *m, const struct conversation *c, int *out,
                             struct t9_err *err)
{
    int best = -1, best_shown = 0;
    for (int form = 0; form < 4; form++) {
        int shown;
        m->template_tools.arguments_text = (form & 2) != 0;
        m->template_no_null = (form & 1) != 0;
        T9_TRY(shows(m, c, &shown, err));
        bool fine = (shown & SHOWS_VALUE) && !(shown & SHOWS_REPR);
        if (fine || ((shown & SHOWS_VALUE) && best < 0)) {
            best = form;
            best_shown = shown;
        }
        if (fine)
            break;
    }
    m->template_tools.arguments_text = best > 0 && (best & 2);
    m->template_no_null = best < 0 || (best & 1);
    *out = best_shown;
    return T9_STATUS_OK;
}

static t9_status probe_turns(t9_model *m, yyjson_val *tools, yyjson_val *calls, struct t9_err *err)
{
    struct t9_template_tools *t = &m->template_tools;
    struct turn turns[] = {
        {.role = TURN_ROLE_USER, .content = STR("t9probe-a")},
        {.role = TURN_ROLE_ASSISTANT, .reasoning = STR("t9probe-t"), .tool_calls = calls},
        {.role = TURN_ROLE_TOOL, .content = STR("t9probe-r"), .tool_call_id = STR("t9probe00")},
    };
    struct conversation c = {.turns = turns, .n_turns = 1, .tools = tools};
    int shown;
    T9_TRY(shows(m, &c, &shown, err));
    t->tools = shown & SHOWS_TOOL;
    c.n_turns = T9_COUNT(turns);
    if (!t->tools)
        c.tools = NULL;
    T9_TRY(probe_calls(m, &c, &shown, err));
    t->calls = (shown & SHOWS_VALUE) != 0;
    t->results = (shown & SHOWS_RESULT) != 0;
    t->reasoning = t->calls && (shown & SHOWS_REASONING);
    turns[1].content = STR("t9probe-b");
    if (!t->calls) /* what comes in place of them is text */
        turns[1].tool_calls = NULL;
    T9_TRY(shows(m, &c, &shown, err));
    if (!t->calls)
        t->results = (shown & SHOWS_RESULT) != 0;
    m->template_reasoning_alone = t->calls && !(shown & SHOWS_VALUE);
    return T9_STATUS_OK;
}

/* By what messages are asked for it, if at all. */
static const char *reasoning_key(const struct jinja_template *t)
{
    static const char *const keys[] = {"reasoning_content", "thinking", "reasoning"};
    for (size_t i = 0; i < T9_COUNT(keys); i++) {
        if (jinja_mentions(t, keys[i]))
            return keys[i];
    }
    return keys[0];
}

static t9_status probe_tools(t9_model *m, struct t9_err *err)
{
    yyjson_doc *tools = NULL, *calls = NULL;
    t9_status s = json_parse(&tools, STR(PROBE_TOOLS), LIMITS_MESSAGES, err);
    if (s == T9_STATUS_OK)
        s = json_parse(&calls, STR(PROBE_CALLS), LIMITS_MESSAGES, err);
    if (s == T9_STATUS_OK)
        s = probe_turns(m, yyjson_doc_get_root(tools), yyjson_doc_get_root(calls), err);
    yyjson_doc_free(tools);
    yyjson_doc_free(calls);
    return s;
}

static t9_status file_template(t9_model *m, struct t9_err *err)
{
    str source;
    t9_status s = gguf_get_str(m->gguf, "tokenizer.chat_template", &source, err);
    if (s == T9_STATUS_NOT_FOUND)
        return T9_STATUS_OK;
    if (s == T9_STATUS_OK)
        s = jinja_parse(&m->own_template, source, err);
    return s == T9_STATUS_OK ? s : t9_err_prefix(err, "%s: chat template", gguf_file_name(m->gguf));
}

t9_status sdk_template_open(t9_model *m, struct t9_err *err)
{
    if (!m->chat_template && m->gguf)
        T9_TRY(file_template(m, err));
    if (m->own_template)
        m->chat_template = m->own_template;
    m->template_info.present = m->chat_template != NULL;
    if (!m->chat_template && tokenizer_find(m->tokenizer, STR("<|im_start|>")) >= 0 &&
        tokenizer_find(m->tokenizer, STR("<|im_end|>")) >= 0) {
        T9_TRY(jinja_parse(&m->own_template, STR(chatml), err));
        m->chat_template = m->own_template;
        m->template_info.chatml_fallback = true;
    }
    if (!m->chat_template)
        return T9_STATUS_OK;
    m->template_reasoning_key = reasoning_key(m->chat_template);
    T9_TRY(probe(m, err));
    return probe_tools(m, err);
}

const char *t9_template_source(const t9_model *m, size_t *n_bytes)
{
    str s = m->chat_template ? jinja_source(m->chat_template) : (str){0};
    *n_bytes = s.n;
    return s.p;
}

bool t9_template_mentions(const t9_model *m, const char *name)
{
    return m->chat_template && jinja_mentions(m->chat_template, name);
}

/* ---- the calls ---- */

void t9_chat_params_init(struct t9_chat_params *p, size_t struct_size)
{
    sdk_params_zero(p, struct_size);
}

static t9_status parse_part(yyjson_doc **doc, const char *text, size_t n, const char *name,
                            struct t9_err *err)
{
    if (!text)
        return T9_STATUS_OK;
    t9_status s = json_parse(doc, (str){text, n}, LIMITS_MESSAGES, err);
    return s == T9_STATUS_OK ? s : t9_err_prefix(err, "%s", name);
}

/* Parses what the caller gave and renders it. */
static t9_status render_params(const t9_model *m, const struct t9_chat_params *params,
                               struct t9_chat_params *p, struct jinja_output *out,
                               struct t9_err *err)
{
    yyjson_doc *messages = NULL, *tools = NULL, *kwargs = NULL;
    struct turn *turns = NULL;
    struct conversation c = {0};
    struct arena arena;
    T9_TRY(sdk_params_take(p, sizeof *p, params, "chat_params", err));
    if (!m->chat_template)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "this model has no chat template and its vocabulary no <|im_start|>, so "
                       "messages can't be laid out for it: use a chat model");
    arena_init(&arena, ARENA_BYTES_MAX);
    t9_status s = p->messages
                      ? parse_part(&messages, p->messages, p->messages_bytes, "messages", err)
                      : t9_fail(err, T9_STATUS_INVALID, "no messages were given");
    if (s == T9_STATUS_OK)
        s = parse_part(&tools, p->tools, p->tools_bytes, "tools", err);
    if (s == T9_STATUS_OK)
        s = parse_part(&kwargs, p->kwargs, p->kwargs_bytes, "kwargs", err);
    if (s == T9_STATUS_OK)
        s = turns_read(&turns, &c.n_turns, yyjson_doc_get_root(messages), &arena, err);
    c.turns = turns;
    c.tools = yyjson_doc_get_root(tools);
    c.kwargs = yyjson_doc_get_root(kwargs);
    c.no_generation_prompt = p->no_generation_prompt;
    c.now_unix_s = p->now_unix_s;
    if (s == T9_STATUS_OK && c.tools && !yyjson_is_arr(c.tools))
        s = t9_fail(err, T9_STATUS_INVALID, "tools must be a JSON array");
    if (s == T9_STATUS_OK && c.kwargs && !yyjson_is_obj(c.kwargs))
        s = t9_fail(err, T9_STATUS_INVALID, "kwargs must be a JSON object");
    if (s == T9_STATUS_OK)
        s = render(m, &c, out, err);
    /* A template that hits our bounds met a conversation that it can't take: the caller's to
     * change.
     */
    if (s == T9_STATUS_UNSUPPORTED || s == T9_STATUS_TOO_LARGE)
        s = err ? (err->code = T9_STATUS_INVALID) : T9_STATUS_INVALID;
    yyjson_doc_free(messages);
    yyjson_doc_free(tools);
    yyjson_doc_free(kwargs);
    arena_deinit(&arena);
    return s;
}

t9_status t9_chat_render(const t9_model *m, const struct t9_chat_params *params, t9_text *out,
                         struct t9_err *err)
{
    struct jinja_output text = {0};
    struct t9_chat_params p;
    *out = (t9_text){0};
    t9_status s = render_params(m, params, &p, &text, err);
    if (s == T9_STATUS_OK)
        s = sdk_text_give(out, &text.text, err);
    jinja_output_deinit(&text);
    return sdk_end(s, err);
}

/* The spans of the text from its byte `from` on. */
static struct tok_span *spans_from(const struct jinja_output *text, size_t from, size_t *n)
{
    struct tok_span *spans = mem_calloc(text->n_spans + 1, sizeof *spans);
    *n = 0;
    for (size_t i = 0; spans && i < text->n_spans; i++) {
        uint8_t origin = text->spans[i].origin;
        bool by_template = origin == JINJA_ORIGIN_TEMPLATE;
        if (text->spans[i].end <= from)
            continue;
        spans[(*n)++] =
            (struct tok_span){.text = str_slice(buf_str(&text->text), from, text->spans[i].end),
                              .parse_control = by_template,
                              .parse_user_defined = by_template || origin == ORIGIN_ASSISTANT};
        from = text->spans[i].end;
    }
    return spans;
}

/* Where the marks of a prompt go. */
struct marks_out {
    struct t9_mark *p; /* [T9_MARKS_MAX], NULL: nobody wants them */
    size_t n;
};

/* Tokens of the text, as far as they are known from conversations before. */
static t9_status encode(const t9_model *m, const struct jinja_output *text, struct tok_ids *out,
                        struct marks_out *marks, struct t9_err *err)
{
    const struct tokenizer *t = m->tokenizer;
    struct recent_match known;
    size_t n_spans;
    t9_status s = T9_STATUS_OK;
    recent_find(m->recent, text, tokenizer_vocab(t)->longest_bytes, out, &known);
    struct tok_span *spans = spans_from(text, known.n_bytes, &n_spans);
    if (spans)
        s = tokenizer_encode_on(t, spans, n_spans, known.n_bytes, tokenizer_add_bos(t), out,
                                &known.cuts, err);
    else
        s = t9_fail(err, T9_STATUS_NOMEM, "no memory for %zu spans", text->n_spans);
    if (s == T9_STATUS_OK)
        recent_keep(m->recent, text, out, &known);
    if (s == T9_STATUS_OK && marks->p)
        marks->n = marks_find(text, &known.cuts, marks->p);
    tok_cuts_deinit(&known.cuts);
    mem_free(spans);
    return s;
}

/* Text that is too long whatever its tokens are is refused unread: a word of megabytes takes the
 * tokenizer seconds and many times its size. The normal form may have a fourth of the bytes. */
static t9_status check_bytes(const t9_model *m, const struct t9_chat_params *p, size_t n_bytes,
                             size_t max_tokens, struct t9_err *err)
{
    uint64_t longest = tokenizer_vocab(m->tokenizer)->longest_bytes;
    if (p->max_length > 0 && n_bytes / 4 > (uint64_t)p->max_length * longest)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "the prompt has %zu bytes of text, and prompt and reply together may have "
                       "%d tokens: shorten the conversation",
                       n_bytes, p->max_length);
    if (n_bytes / 4 > max_tokens * longest)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "the prompt has %zu bytes of text, and it may have %zu tokens: shorten the "
                       "conversation",
                       n_bytes, max_tokens);
    return T9_STATUS_OK;
}

static t9_status chat_tokens(const t9_model *m, const struct t9_chat_params *params, t9_ids *out,
                             struct marks_out *marks, struct t9_err *err)
{
    struct jinja_output text = {0};
    struct t9_chat_params p;
    struct tok_ids ids = {0};
    *out = (t9_ids){0};
    t9_status s = render_params(m, params, &p, &text, err);
    if (s != T9_STATUS_OK)
        goto done;
    size_t max = p.max_tokens > 0 ? (size_t)p.max_tokens : SDK_PROMPT_TOKENS_MAX;
    tok_ids_init(&ids, max < SDK_PROMPT_TOKENS_MAX ? max : SDK_PROMPT_TOKENS_MAX);
    s = check_bytes(m, &p, text.text.n, ids.max, err);
    if (s != T9_STATUS_OK)
        goto done;
    s = encode(m, &text, &ids, marks, err);
    if (s == T9_STATUS_TOO_LARGE)
        s = t9_fail(err, s,
                    "the prompt has more than %zu tokens, over the limit: shorten the conversation",
                    ids.max);
    if (s == T9_STATUS_OK) {
        *out = (t9_ids){ids.p, ids.n};
        ids = (struct tok_ids){0};
    }
done:
    tok_ids_deinit(&ids);
    jinja_output_deinit(&text);
    return sdk_end(s, err);
}

t9_status t9_chat_tokens(const t9_model *m, const struct t9_chat_params *params, t9_ids *out,
                         struct t9_err *err)
{
    struct marks_out none = {0};
    return chat_tokens(m, params, out, &none, err);
}

t9_status t9_chat_tokens_marked(const t9_model *m, const struct t9_chat_params *params, t9_ids *out,
                                struct t9_mark marks[T9_MARKS_MAX], size_t *n_marks,
                                struct t9_err *err)
{
    struct marks_out wanted = {.p = marks};
    t9_status s = chat_tokens(m, params, out, &wanted, err);
    if (s == T9_STATUS_OK)
        *n_marks = wanted.n;
    return s;
}
