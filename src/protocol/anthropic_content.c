/*
 * protocol/anthropic_content.c - system and messages of a Messages request. Any thread; nothing
 * here has state.
 *
 * A message of that API is a list of blocks. Those of a user become messages of the tool (one for
 * each tool_result) and of the user (texts between them), in their order; those of an assistant
 * become one message. Texts side by side are joined by a line feed.
 */
#include "protocol/anthropic_impl.h"
#include "protocol/chat_parts.h"
#include "protocol/chat_tools.h"

#include <stdio.h>
#include <string.h>

enum { WHERE_BYTES = 64 };

/* Texts that become one. */
struct texts {
    str *p;
    size_t n, n_bytes; /* with the line feeds between them */
};

/* One message of the request, while it is read. */
struct reader {
    struct policy_ctx *c;
    char where[WHERE_BYTES]; /* "messages[3]", "system" */
    chat_role role;
    struct texts content, reasoning;
    struct chat_call *calls;
    size_t n_calls;
};

/* ---- texts ---- */

static t9_status too_large(struct policy_ctx *c, const char *where)
{
    return chat_fail(c->err, T9_STATUS_TOO_LARGE, where, NULL, "%s is too large", where);
}

static bool texts_new(struct texts *t, struct arena *a, size_t max)
{
    *t = (struct texts){.p = arena_calloc(a, max + 1, sizeof *t->p)};
    return t->p != NULL;
}

static void texts_add(struct texts *t, str text)
{
    t->n_bytes += text.n + (t->n > 0);
    t->p[t->n++] = text;
}

/* Empties it; false without memory. */
static bool texts_join(struct texts *t, struct arena *a, str *out)
{
    size_t n = t->n, at = 0;
    *out = n ? t->p[0] : (str){0};
    if (n > 1) {
        char *p = arena_alloc(a, t->n_bytes + 1);
        if (!p)
            return false;
        for (size_t i = 0; i < n; i++) {
            if (i)
                p[at++] = '\n';
            if (t->p[i].n)
                memcpy(p + at, t->p[i].p, t->p[i].n);
            at += t->p[i].n;
        }
        *out = (str){p, at};
    }
    t->n = t->n_bytes = 0;
    return true;
}

/* ---- cache marks ---- */

t9_status anthropic_cache_ms(struct policy_ctx *c, const char *where, yyjson_val *v, int64_t *out)
{
    static const char *const names[] = {"type", "ttl", "scope"};
    enum { MS_5M = 300000, MS_1H = 3600000 };
    char name[WHERE_BYTES + 16];
    yyjson_val *ttl = json_get(v, "ttl");
    *out = 0;
    if (!v || yyjson_is_null(v))
        return T9_STATUS_OK;
    (void)snprintf(name, sizeof name, "%s%scache_control", where, *where ? "." : "");
    if (!str_eqz(json_str(json_get(v, "type")), "ephemeral"))
        return policy_wrong(c, name, "an object of type ephemeral", v);
    T9_TRY(policy_members(c, v, names, T9_COUNT(names), name, "cache_control"));
    if (ttl && !yyjson_is_null(ttl) && !str_eqz(json_str(ttl), "5m") &&
        !str_eqz(json_str(ttl), "1h"))
        return policy_wrong(c, name, "kept for 5m or 1h", ttl);
    *out = str_eqz(json_str(ttl), "1h") ? MS_1H : MS_5M;
    return T9_STATUS_OK;
}

/* Of several marks the last one tells where, and the longest one for how long. */
static t9_status take_mark(struct reader *rd, const char *where, yyjson_val *block,
                           size_t n_messages, size_t content_bytes)
{
    int64_t ms;
    struct chat_pin *pin = &rd->c->request->pin;
    T9_TRY(anthropic_cache_ms(rd->c, where, json_get(block, "cache_control"), &ms));
    if (ms == 0)
        return T9_STATUS_OK;
    pin->ms = ms > pin->ms ? ms : pin->ms;
    pin->n_messages = n_messages;
    pin->content_bytes = content_bytes;
    return T9_STATUS_OK;
}

/* ---- blocks ---- */

static t9_status check_members(struct policy_ctx *c, const char *where, yyjson_val *block)
{
    /* Members of any kind of block that say nothing to a model. */
    static const char *const names[] = {
        "type",  "text",         "cache_control", "citations", "thinking", "signature",
        "data",  "id",           "name",          "input",     "caller",   "tool_use_id",
        "title", "context",      "content",       "is_error",  "source",   "toolset_name",
        "index", "parsed_output"};
    return policy_members(c, block, names, T9_COUNT(names), where, "a content block");
}

static t9_status block_text(struct policy_ctx *c, const char *where, yyjson_val *block,
                            const char *member, str *out)
{
    char name[WHERE_BYTES + 32];
    yyjson_val *v = json_get(block, member);
    (void)snprintf(name, sizeof name, "%s.%s", where, member);
    if (!yyjson_is_str(v))
        return policy_wrong(c, name, "a string", v);
    *out = json_str(v);
    return T9_STATUS_OK;
}

/* One that may be missing. */
static t9_status block_note(struct policy_ctx *c, const char *where, yyjson_val *block,
                            const char *member, str *out)
{
    yyjson_val *v = json_get(block, member);
    *out = (str){0};
    return v && !yyjson_is_null(v) ? block_text(c, where, block, member, out) : T9_STATUS_OK;
}

static t9_status result_part(struct policy_ctx *c, const char *where, yyjson_val *part, str *out);

/* A text as a document, with what is said about it in front. */
static t9_status document_text(struct policy_ctx *c, const char *where, yyjson_val *block, str *out)
{
    struct arena *a = &c->request->arena;
    yyjson_val *source = json_get(block, "source"), *content = json_get(source, "content");
    str kind = json_str(json_get(source, "type")), text = {0}, title, context;
    struct texts all;
    T9_TRY(block_note(c, where, block, "title", &title));
    T9_TRY(block_note(c, where, block, "context", &context));
    if (str_eqz(kind, "text"))
        T9_TRY(block_text(c, where, source, "data", &text));
    else if (str_eqz(kind, "content") && yyjson_is_str(content))
        text = json_str(content);
    else if (str_eqz(kind, "content") && yyjson_is_arr(content))
        T9_TRY(chat_join_parts(c, where, content, result_part, &text));
    else
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, where, "unsupported_content",
                         "%s is a document that is no text, and only those with a source of type "
                         "text or content are taken: leave it out",
                         where);
    if (yyjson_is_true(json_get(json_get(block, "citations"), "enabled")))
        chat_warn(c->request, "citations of documents are not made");
    if (!texts_new(&all, a, 3))
        return too_large(c, where);
    if (title.n)
        texts_add(&all, title);
    if (context.n)
        texts_add(&all, context);
    texts_add(&all, text);
    return texts_join(&all, a, out) ? T9_STATUS_OK : too_large(c, where);
}

/* One part of what a tool gave, or of a document. */
static t9_status result_part(struct policy_ctx *c, const char *where, yyjson_val *part, str *out)
{
    str type = json_str(json_get(part, "type"));
    *out = (str){0};
    if (!yyjson_is_obj(part) || type.n == 0)
        return policy_wrong(c, where, "made of objects with a type", part);
    if (str_eqz(type, "tool_reference"))
        return block_text(c, where, part, "tool_name", out);
    T9_TRY(check_members(c, where, part));
    if (str_eqz(type, "text"))
        return block_text(c, where, part, "text", out);
    return chat_part_refused(c, where, part);
}

/* A call's id as the model's own template knows it: we put the prefix in front. */
static str own_id(str id)
{
    str prefix = STR(ANTHROPIC_CALL_PREFIX);
    return str_has_prefix(id, prefix) ? str_slice(id, prefix.n, id.n) : id;
}

/* What was gathered of a user or the system becomes a message. */
static t9_status close_message(struct reader *rd)
{
    struct chat_request *r = rd->c->request;
    struct chat_message *m = &r->messages[r->n_messages];
    m->role = rd->role;
    m->has_content = rd->content.n > 0;
    m->calls = rd->calls;
    m->n_calls = rd->n_calls;
    if (!texts_join(&rd->content, &r->arena, &m->content) ||
        !texts_join(&rd->reasoning, &r->arena, &m->reasoning))
        return too_large(rd->c, rd->where);
    /* Nothing is left of a message that had only what other servers did. */
    if (m->has_content || m->n_calls || m->reasoning.n)
        r->n_messages++;
    return T9_STATUS_OK;
}

static t9_status read_text(struct reader *rd, const char *where, yyjson_val *block)
{
    str text = {0};
    T9_TRY(block_text(rd->c, where, block, "text", &text));
    texts_add(&rd->content, text);
    return take_mark(rd, where, block, rd->c->request->n_messages + 1, rd->content.n_bytes);
}

static t9_status read_document(struct reader *rd, const char *where, yyjson_val *block)
{
    str text = {0};
    T9_TRY(document_text(rd->c, where, block, &text));
    texts_add(&rd->content, text);
    return take_mark(rd, where, block, rd->c->request->n_messages + 1, rd->content.n_bytes);
}

/* One of ours must be as it was; what others signed, or nobody, is taken as it is. */
static t9_status read_thinking(struct reader *rd, const char *where, yyjson_val *block)
{
    char ours[ANTHROPIC_SIGNATURE_BYTES + 1];
    struct anthropic_seal seal = {0};
    str text = {0}, signature;
    T9_TRY(block_text(rd->c, where, block, "thinking", &text));
    T9_TRY(block_note(rd->c, where, block, "signature", &signature));
    anthropic_seal_add(&seal, text);
    str expected = anthropic_seal_text(&seal, ours);
    if (str_has_prefix(signature, STR(ANTHROPIC_SIGNATURE_PREFIX)) && !str_eq(signature, expected))
        chat_warn(rd->c->request, "%s is not what this server signed: it was changed", where);
    if (text.n)
        texts_add(&rd->reasoning, text);
    return T9_STATUS_OK;
}

/* What another model hid says nothing to this one. */
static t9_status read_nothing(struct reader *rd, const char *where, yyjson_val *block)
{
    (void)rd, (void)where, (void)block;
    return T9_STATUS_OK;
}

static t9_status read_tool_use(struct reader *rd, const char *where, yyjson_val *block)
{
    struct chat_call *call = &rd->calls[rd->n_calls];
    yyjson_val *input = json_get(block, "input");
    char name[WHERE_BYTES + 16];
    struct buf args;
    T9_TRY(block_text(rd->c, where, block, "id", &call->id));
    T9_TRY(block_text(rd->c, where, block, "name", &call->name));
    (void)snprintf(name, sizeof name, "%s.input", where);
    if (!yyjson_is_obj(input))
        return policy_wrong(rd->c, name, "an object", input);
    buf_init(&args, (size_t)64 << 20);
    json_write_val(&args, input);
    call->id = own_id(call->id);
    call->args = args.failed ? (str){0} : arena_str(&rd->c->request->arena, buf_str(&args));
    buf_deinit(&args);
    if (!call->args.p)
        return too_large(rd->c, where);
    rd->n_calls++;
    return take_mark(rd, where, block, rd->c->request->n_messages + 1, CHAT_PIN_ALL);
}

static t9_status result_content(struct policy_ctx *c, const char *where, yyjson_val *v, str *out)
{
    *out = STR("");
    if (!v || yyjson_is_null(v))
        return T9_STATUS_OK;
    if (yyjson_is_arr(v))
        return yyjson_arr_size(v) ? chat_join_parts(c, where, v, result_part, out) : T9_STATUS_OK;
    if (!yyjson_is_str(v))
        return policy_wrong(c, where, "a string or an array of blocks", v);
    *out = json_str(v);
    return T9_STATUS_OK;
}

/* The model is told that a tool failed: no template has a place for it. */
static t9_status tell_error(struct policy_ctx *c, const char *where, yyjson_val *block, str *text)
{
    static const str before = {"Error: ", 7};
    yyjson_val *v = json_get(block, "is_error");
    if (v && !yyjson_is_null(v) && !yyjson_is_bool(v))
        return policy_wrong(c, where, "true or false in is_error", v);
    if (!yyjson_is_true(v))
        return T9_STATUS_OK;
    char *p = arena_alloc(&c->request->arena, before.n + text->n);
    if (!p)
        return too_large(c, where);
    memcpy(p, before.p, before.n);
    if (text->n)
        memcpy(p + before.n, text->p, text->n);
    *text = (str){p, before.n + text->n};
    return T9_STATUS_OK;
}

static t9_status read_tool_result(struct reader *rd, const char *where, yyjson_val *block)
{
    struct chat_request *r = rd->c->request;
    char name[WHERE_BYTES + 16];
    str id = {0}, text = {0};
    T9_TRY(close_message(rd)); /* the texts before it */
    T9_TRY(block_text(rd->c, where, block, "tool_use_id", &id));
    (void)snprintf(name, sizeof name, "%s.content", where);
    T9_TRY(result_content(rd->c, name, json_get(block, "content"), &text));
    T9_TRY(tell_error(rd->c, where, block, &text));
    r->messages[r->n_messages++] = (struct chat_message){
        .role = CHAT_ROLE_TOOL, .content = text, .has_content = true, .tool_call_id = own_id(id)};
    return take_mark(rd, where, block, r->n_messages, CHAT_PIN_ALL);
}

enum { OF_SYSTEM = 1, OF_USER = 2, OF_ASSISTANT = 4 };

static const struct block_kind {
    const char *type;
    unsigned roles;
    t9_status (*read)(struct reader *rd, const char *where, yyjson_val *block);
} kinds[] = {
    {"text", OF_SYSTEM | OF_USER | OF_ASSISTANT, read_text},
    {"document", OF_USER, read_document},
    {"tool_result", OF_USER, read_tool_result},
    {"tool_use", OF_ASSISTANT, read_tool_use},
    {"thinking", OF_ASSISTANT, read_thinking},
    {"redacted_thinking", OF_ASSISTANT, read_nothing},
};

/* What tools on another server asked and gave. */
static bool is_hosted(str type)
{
    return str_eqz(type, "server_tool_use") || str_eqz(type, "mcp_tool_use") ||
           str_eqz(type, "container_upload") || str_has_suffix(type, STR("_tool_result"));
}

static t9_status read_block(struct reader *rd, size_t i, yyjson_val *block)
{
    static const unsigned bits[] = {OF_SYSTEM, OF_USER, OF_ASSISTANT};
    char where[WHERE_BYTES];
    yyjson_val *type = json_get(block, "type");
    (void)snprintf(where, sizeof where, "%.24s%s[%zu]", rd->where,
                   *rd->where == 's' ? "" : ".content", i);
    if (!yyjson_is_str(type))
        return policy_wrong(rd->c, where, "an object with a type", block);
    if (is_hosted(json_str(type)))
        return anthropic_hosted(rd->c, where, type);
    for (size_t k = 0; k < T9_COUNT(kinds); k++) {
        if (!str_eqz(json_str(type), kinds[k].type) || !(kinds[k].roles & bits[rd->role]))
            continue;
        T9_TRY(check_members(rd->c, where, block));
        return kinds[k].read(rd, where, block);
    }
    return chat_part_refused(rd->c, where, block);
}

/* ---- messages ---- */

static size_t n_blocks(yyjson_val *content, const char *type)
{
    size_t n = 0, idx, max;
    yyjson_val *block;
    yyjson_arr_foreach(content, idx, max, block)
    {
        n += str_eqz(json_str(json_get(block, "type")), type);
    }
    return n;
}

static t9_status read_content(struct reader *rd, yyjson_val *v)
{
    struct arena *a = &rd->c->request->arena;
    size_t n = yyjson_is_arr(v) ? yyjson_arr_size(v) : 1, idx, max;
    yyjson_val *block;
    char name[WHERE_BYTES];
    if (!texts_new(&rd->content, a, n) || !texts_new(&rd->reasoning, a, n))
        return too_large(rd->c, rd->where);
    if (yyjson_is_str(v)) {
        texts_add(&rd->content, json_str(v));
        return close_message(rd);
    }
    (void)snprintf(name, sizeof name, "%.32s%s", rd->where, *rd->where == 's' ? "" : ".content");
    if (!yyjson_is_arr(v) || n == 0)
        return policy_wrong(rd->c, name, "a string or an array of at least one block", v);
    rd->calls = chat_calls_new(rd->c, name, n_blocks(v, "tool_use"));
    if (!rd->calls)
        return rd->c->err->err.code;
    yyjson_arr_foreach(v, idx, max, block)
    {
        T9_TRY(read_block(rd, idx, block));
    }
    return close_message(rd);
}

static t9_status read_message(struct policy_ctx *c, size_t i, yyjson_val *v)
{
    static const char *const names[] = {"role", "content"};
    struct reader rd = {.c = c};
    char name[WHERE_BYTES];
    str role = json_str(json_get(v, "role"));
    (void)snprintf(rd.where, sizeof rd.where, "messages[%zu]", i);
    (void)snprintf(name, sizeof name, "messages[%zu].role", i);
    if (!yyjson_is_obj(v))
        return policy_wrong(c, rd.where, "an object with role and content", v);
    T9_TRY(policy_members(c, v, names, T9_COUNT(names), rd.where, "a message"));
    if (str_eqz(role, "user"))
        rd.role = CHAT_ROLE_USER;
    else if (str_eqz(role, "assistant"))
        rd.role = CHAT_ROLE_ASSISTANT;
    else if (str_eqz(role, "system"))
        rd.role = CHAT_ROLE_SYSTEM;
    else
        return policy_wrong(c, name, "user, assistant or system", json_get(v, "role"));
    return read_content(&rd, json_get(v, "content"));
}

t9_status anthropic_system(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (yyjson_is_str(v) || yyjson_is_arr(v))
        return T9_STATUS_OK;
    return policy_wrong(c, f->name, "a string or an array of text blocks", v);
}

static t9_status read_system(struct policy_ctx *c)
{
    struct reader rd = {.c = c, .where = "system", .role = CHAT_ROLE_SYSTEM};
    yyjson_val *v = json_get(yyjson_doc_get_root(c->request->doc), "system");
    bool empty = yyjson_is_null(v) || (yyjson_is_arr(v) && yyjson_arr_size(v) == 0) ||
                 (yyjson_is_str(v) && yyjson_get_len(v) == 0);
    return v && !empty ? read_content(&rd, v) : T9_STATUS_OK;
}

t9_status anthropic_messages(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    size_t n = 1, idx, max;
    yyjson_val *item;
    if (!yyjson_is_arr(v) || yyjson_arr_size(v) == 0)
        return policy_wrong(c, f->name, "an array of at least one message", v);
    yyjson_arr_foreach(v, idx, max, item)
    {
        /* Texts before, between and behind results, each of which is one, too. */
        n += 1 + 2 * n_blocks(json_get(item, "content"), "tool_result");
    }
    r->messages = arena_calloc(&r->arena, n, sizeof *r->messages);
    if (!r->messages)
        return too_large(c, f->name);
    T9_TRY(read_system(c));
    yyjson_arr_foreach(v, idx, max, item)
    {
        T9_TRY(read_message(c, idx, item));
    }
    if (r->n_messages > CHAT_MESSAGES_MAX)
        return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                         "messages make %zu turns, and at most %d are taken", r->n_messages,
                         CHAT_MESSAGES_MAX);
    chat_check_results(r);
    return T9_STATUS_OK;
}
