/*
 * protocol/ollama_chat.c - POST /api/chat: reads a conversation by the table below and writes its
 * answer. Any thread; nothing here has state.
 *
 * A call is sent when it is whole, as its arguments are an object there. What the model wrote of a
 * call that was cut off, or with arguments that are no object, is content.
 */
#include "protocol/chat_tools.h"
#include "protocol/ollama_fields.h"
#include "protocol/ollama_write.h"

#include <stdio.h>
#include <string.h>

/* ---- messages ---- */

static t9_status wrong(struct policy_ctx *c, size_t i, const char *member, const char *wanted,
                       yyjson_val *v)
{
    char name[64];
    (void)snprintf(name, sizeof name, "messages[%zu]%s%s", i, *member ? "." : "", member);
    return policy_wrong(c, name, wanted, v);
}

static t9_status parse_role(struct policy_ctx *c, size_t i, yyjson_val *v, chat_role *out)
{
    static const chat_role roles[] = {CHAT_ROLE_SYSTEM, CHAT_ROLE_USER, CHAT_ROLE_ASSISTANT,
                                      CHAT_ROLE_TOOL};
    for (size_t k = 0; k < T9_COUNT(roles); k++) {
        if (str_eqz(json_str(v), chat_role_name(roles[k]))) {
            *out = roles[k];
            return T9_STATUS_OK;
        }
    }
    return wrong(c, i, "role", "system, user, assistant or tool", v);
}

static t9_status text_of(struct policy_ctx *c, size_t i, yyjson_val *msg, const char *member,
                         str *out)
{
    yyjson_val *v = json_get(msg, member);
    if (v && !yyjson_is_null(v) && !yyjson_is_str(v))
        return wrong(c, i, member, "a string", v);
    *out = json_str(v);
    return T9_STATUS_OK;
}

/* Templates and what checks results want ids, which these clients mostly leave out. */
static str make_id(struct policy_ctx *c, size_t i, size_t k)
{
    char id[48];
    int n = snprintf(id, sizeof id, "call_%zu_%zu", i, k);
    return arena_str(&c->request->arena, (str){id, n > 0 ? (size_t)n : 0});
}

static t9_status parse_calls(struct policy_ctx *c, size_t i, yyjson_val *v, struct chat_message *m)
{
    size_t idx, max;
    yyjson_val *item;
    if (!v || yyjson_is_null(v) || policy_is_empty(v))
        return T9_STATUS_OK;
    if (!yyjson_is_arr(v) || m->role != CHAT_ROLE_ASSISTANT)
        return wrong(c, i, "tool_calls", "an array, in a message of the assistant", v);
    struct chat_call *calls = chat_calls_new(c, "messages", yyjson_arr_size(v));
    if (!calls)
        return c->err->err.code;
    yyjson_arr_foreach(v, idx, max, item)
    {
        yyjson_val *fn = json_get(item, "function");
        if (!yyjson_is_str(json_get(fn, "name")))
            return wrong(c, i, "tool_calls", "made of calls that have a function.name", item);
        calls[idx].name = json_str(json_get(fn, "name"));
        calls[idx].id = json_str(json_get(item, "id"));
        if (calls[idx].id.n == 0)
            calls[idx].id = make_id(c, i, idx);
        T9_TRY(openai_arguments(c, i, json_get(fn, "arguments"), &calls[idx].args));
    }
    m->calls = calls;
    m->n_calls = max;
    return T9_STATUS_OK;
}

static t9_status check_images(struct policy_ctx *c, size_t i, yyjson_val *v)
{
    char name[48];
    if (!v || yyjson_is_null(v) || policy_is_empty(v))
        return T9_STATUS_OK;
    (void)snprintf(name, sizeof name, "messages[%zu].images", i);
    return chat_fail(c->err, T9_STATUS_UNSUPPORTED, name, "unsupported_content",
                     "%s has images, and this model takes text only: leave them out", name);
}

static t9_status parse_message(struct policy_ctx *c, size_t i, yyjson_val *v,
                               struct chat_message *m)
{
    static const char *const known[] = {"role",       "content",   "thinking",    "images",
                                        "tool_calls", "tool_name", "tool_call_id"};
    char where[48];
    (void)snprintf(where, sizeof where, "messages[%zu]", i);
    if (!yyjson_is_obj(v))
        return wrong(c, i, "", "an object with role and content", v);
    T9_TRY(policy_members(c, v, known, T9_COUNT(known), where, "a message"));
    T9_TRY(parse_role(c, i, json_get(v, "role"), &m->role));
    T9_TRY(text_of(c, i, v, "content", &m->content));
    T9_TRY(text_of(c, i, v, "thinking", &m->reasoning));
    T9_TRY(text_of(c, i, v, "tool_name", &m->name));
    T9_TRY(text_of(c, i, v, "tool_call_id", &m->tool_call_id));
    T9_TRY(check_images(c, i, json_get(v, "images")));
    T9_TRY(parse_calls(c, i, json_get(v, "tool_calls"), m));
    m->has_content = m->content.n > 0 || m->n_calls == 0;
    return T9_STATUS_OK;
}

/* A result without an id is the first call's that has no result yet and, where the result names a
 * tool, is of that. */
static void match_result(const struct chat_message *calls, bool *answered, struct chat_message *m)
{
    for (size_t k = 0; calls && k < calls->n_calls; k++) {
        const struct chat_call *call = &calls->calls[k];
        bool same = m->tool_call_id.n ? str_eq(m->tool_call_id, call->id)
                                      : m->name.n == 0 || str_eq(m->name, call->name);
        if (answered[k] || !same)
            continue;
        answered[k] = true;
        m->tool_call_id = call->id;
        return;
    }
}

static void match_results(struct chat_request *r)
{
    bool answered[T9_CALLS_MAX];
    const struct chat_message *calls = NULL;
    for (size_t i = 0; i < r->n_messages; i++) {
        struct chat_message *m = &r->messages[i];
        if (m->n_calls) {
            calls = m;
            memset(answered, 0, sizeof answered);
        }
        if (m->role == CHAT_ROLE_TOOL)
            match_result(calls, answered, m);
    }
}

static t9_status parse_messages(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    size_t n = yyjson_arr_size(v), idx, max;
    yyjson_val *item;
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array of messages", v);
    if (n > CHAT_MESSAGES_MAX)
        return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                         "messages has %zu entries, and at most %d are taken", n,
                         CHAT_MESSAGES_MAX);
    r->messages = arena_calloc(&r->arena, n + 1, sizeof *r->messages);
    if (!r->messages)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory for %zu messages", n);
    r->n_messages = n;
    yyjson_arr_foreach(v, idx, max, item)
    {
        T9_TRY(parse_message(c, idx, item, &r->messages[idx]));
    }
    match_results(r);
    chat_check_results(r);
    return T9_STATUS_OK;
}

static const struct policy_field fields[] = {
    OLLAMA_MODEL,
    HONOURED(
        "messages", parse_messages, .schema = "{\"$ref\":\"#/components/schemas/OllamaMessages\"}",
        .note = "roles system, user, assistant, tool; text content; none: the model is loaded, "
                "which it is"),
    HONOURED("tools", openai_tools, .schema = "{\"$ref\":\"#/components/schemas/Tools\"}",
             .note = "functions that the model may call, at most 512"),
    OLLAMA_THINKING,
    OLLAMA_SENDING,
    OLLAMA_OPTIONS,
    OLLAMA_NOT_HONOURED,
};

static t9_status parse(str body, bool strict, struct chat_request *out, struct chat_error *err)
{
    T9_TRY(ollama_parse(body, strict, fields, T9_COUNT(fields), out, err));
    return out->n_messages ? T9_STATUS_OK : ollama_load(out, err);
}

static t9_status answer(const struct prep *p, struct chat_request *r, struct buf *out,
                        struct chat_error *err)
{
    (void)err;
    ollama_write_loaded(p, "\"message\":{\"role\":\"assistant\",\"content\":\"\"}", r, out);
    return T9_STATUS_OK;
}

/* ---- calls ---- */

/* Whether the client can be given it as a call. */
static bool is_call(const struct chat_part *p)
{
    yyjson_doc *doc = NULL;
    bool ok = p->complete && json_parse(&doc, p->text, JSON_LIMITS_REQUEST, NULL) == T9_STATUS_OK &&
              yyjson_is_obj(yyjson_doc_get_root(doc));
    yyjson_doc_free(doc);
    return ok;
}

/* JSON text as it is, but on one line: line ends are no part of its strings. */
static void write_on_line(str json, struct buf *b)
{
    for (size_t i = 0; i < json.n; i++)
        buf_putc(b, json.p[i] == '\n' || json.p[i] == '\r' ? ' ' : json.p[i]);
}

static void write_call(const struct chat_part *p, int32_t index, struct buf *b)
{
    buf_putc(b, '{');
    openai_member_str(b, "id", p->call_id);
    buf_printf(b, ",\"function\":{\"index\":%d,", index);
    openai_member_str(b, "name", p->name);
    buf_puts(b, ",\"arguments\":");
    write_on_line(p->text, b);
    buf_puts(b, "}}");
}

/* What the model wrote, about. */
static void call_as_text(const struct chat_part *p, struct buf *text)
{
    buf_puts_str(text, p->name);
    buf_putc(text, ' ');
    buf_puts_str(text, p->text);
}

/* ---- streams ---- */

static void open_message(const struct chat_reply *r, str content, struct buf *b)
{
    ollama_write_head(r, b);
    buf_puts(b, ",\"message\":{\"role\":\"assistant\",");
    openai_member_str(b, "content", content);
}

static void close_message(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    buf_putc(b, '}');
    ollama_write_logprobs(r, &ev->tokens, b);
    ollama_write_more(b);
}

static void write_text(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    bool thinking = ev->kind == CHAT_EVENT_REASONING;
    open_message(r, ev->kind == CHAT_EVENT_TEXT ? ev->text : STR(""), b);
    if (thinking) {
        buf_putc(b, ',');
        openai_member_str(b, "thinking", ev->text);
    }
    close_message(r, ev, b);
}

static void write_whole_call(const struct chat_reply *r, const struct chat_event *ev, struct buf *b)
{
    const struct chat_part *p = ev->whole_call;
    struct buf text;
    if (is_call(p)) {
        open_message(r, STR(""), b);
        buf_puts(b, ",\"tool_calls\":[");
        write_call(p, ev->call, b);
        buf_putc(b, ']');
    } else {
        buf_init(&text, p->name.n + p->text.n + 1);
        call_as_text(p, &text);
        b->failed |= text.failed;
        open_message(r, buf_str(&text), b);
        buf_deinit(&text);
    }
    close_message(r, ev, b);
}

static void stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out)
{
    switch (ev->kind) {
    case CHAT_EVENT_NONE:
    case CHAT_EVENT_BEGIN:
    case CHAT_EVENT_PROGRESS:
    case CHAT_EVENT_FINISH: break;
    case CHAT_EVENT_CALL:
    case CHAT_EVENT_ARGS:
        if (r->request->logprobs && ev->tokens.n)
            write_text(r, ev, out);
        break;
    case CHAT_EVENT_TEXT:
    case CHAT_EVENT_REASONING: write_text(r, ev, out); break;
    case CHAT_EVENT_CALL_END: write_whole_call(r, ev, out); break;
    case CHAT_EVENT_END:
        open_message(r, STR(""), out);
        buf_putc(out, '}');
        ollama_write_done(r, ev->choices[0].finish, ev, out);
        buf_putc(out, '\n');
        break;
    case CHAT_EVENT_ERROR: ollama_write_stream_error(ev, out); break;
    }
}

/* ---- whole replies ---- */

/* All that is content, in the order in which the model wrote it. */
static void gather_content(const struct chat_choice *c, struct buf *text)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        const struct chat_part *p = &c->parts[i];
        if (p->kind == CHAT_EVENT_TEXT)
            buf_puts_str(text, p->text);
        else if (p->kind == CHAT_EVENT_CALL && !is_call(p))
            call_as_text(p, text);
    }
}

static void write_calls(const struct chat_choice *c, struct buf *b)
{
    const char *before = ",\"tool_calls\":[";
    int32_t index = 0;
    for (size_t i = 0; i < c->n_parts; i++) {
        if (c->parts[i].kind != CHAT_EVENT_CALL)
            continue;
        if (is_call(&c->parts[i])) {
            buf_puts(b, before);
            write_call(&c->parts[i], index, b);
            before = ",";
        }
        index++;
    }
    if (*before == ',' && !before[1])
        buf_putc(b, ']');
}

static void whole(const struct chat_reply *r, const struct chat_choice *choices, size_t n_choices,
                  const struct chat_event *end, struct buf *out)
{
    const struct chat_choice *c = choices;
    struct buf text;
    (void)n_choices;
    buf_init(&text, out->max);
    gather_content(c, &text);
    out->failed |= text.failed;
    open_message(r, buf_str(&text), out);
    buf_deinit(&text);
    if (c->reasoning.n) {
        buf_putc(out, ',');
        openai_member_str(out, "thinking", c->reasoning);
    }
    write_calls(c, out);
    buf_putc(out, '}');
    ollama_write_logprobs(r, &c->answer, out);
    ollama_write_done(r, c->finish, end, out);
}

const struct chat_adapter ollama_chat_adapter = {
    .name = "ollama_chat",
    .path = "/api/chat",
    .summary = "Answers a conversation, as Ollama does.",
    .fields = fields,
    .n_fields = T9_COUNT(fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/OllamaChat\"}",
    .error_schema = "{\"$ref\":\"#/components/schemas/OllamaError\"}",
    .stream_type = "application/x-ndjson",
    .id_prefix = "ollama-",
    .comment = "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n",
    .keeps_choices = true,
    .parse = parse,
    .answer = answer,
    .error = ollama_error,
    .stream = stream,
    .whole = whole,
};
