/*
 * sdk/history.c - see history.h.
 */
#include "sdk/history.h"

#include <stdio.h>
#include <string.h>

static const str mark = {"[System message]\n", 17};
static const str gap = {"\n\n", 2};

/* a + b + c in the arena; p == NULL when it is full. */
static str join3(struct arena *a, str x, str y, str z)
{
    size_t n = x.n + y.n + z.n;
    char *p = arena_alloc(a, n + 1);
    if (!p)
        return (str){0};
    if (x.n)
        memcpy(p, x.p, x.n);
    if (y.n)
        memcpy(p + x.n, y.p, y.n);
    if (z.n)
        memcpy(p + x.n + y.n, z.p, z.n);
    p[n] = 0;
    return (str){p, n};
}

struct arranger {
    struct history *h;
    struct history_entry *entries; /* h's */
    struct history_caps caps;
    str carry; /* text that goes in front of the next user turn; p == NULL when there is none */
    bool failed;
};

static void push(struct arranger *a, turn_role role, str content, const struct turn *src)
{
    a->entries[a->h->n_entries++] = (struct history_entry){role, content, src};
}

static void carry_more(struct arranger *a, str text)
{
    a->carry = a->carry.p ? join3(&a->h->arena, a->carry, gap, text) : text;
    a->failed |= a->carry.p == NULL;
}

/* A system message after the first turn. `next_is_user`: whether a user turn follows at once. */
static void later_system(struct arranger *a, const struct turn *m, bool next_is_user)
{
    if (a->caps.later_system) {
        push(a, TURN_ROLE_SYSTEM, m->content, m);
        return;
    }
    str marked = join3(&a->h->arena, mark, m->content, (str){0});
    a->failed |= marked.p == NULL;
    size_t n = a->h->n_entries;
    bool after_user = n > 0 && a->entries[n - 1].role == TURN_ROLE_USER;
    if (a->caps.user_twice || (!next_is_user && !after_user)) {
        push(a, TURN_ROLE_USER, marked, NULL);
    } else if (next_is_user) {
        carry_more(a, marked);
    } else {
        a->entries[n - 1].content = join3(&a->h->arena, a->entries[n - 1].content, gap, marked);
        a->failed |= a->entries[n - 1].content.p == NULL;
    }
}

static void turn(struct arranger *a, const struct turn *m)
{
    str content = m->content;
    if (m->role == TURN_ROLE_USER && a->carry.p) {
        content = join3(&a->h->arena, a->carry, gap, content);
        a->failed |= content.p == NULL;
        a->carry = (str){0};
    }
    push(a, m->role, content, m);
}

static size_t lead_system(struct arranger *a, const struct turn *messages, size_t n)
{
    size_t lead = 0;
    str text = {0};
    for (; lead < n && messages[lead].role == TURN_ROLE_SYSTEM; lead++) {
        text = lead == 0 ? messages[0].content
                         : join3(&a->h->arena, text, gap, messages[lead].content);
        a->failed |= lead > 0 && text.p == NULL;
    }
    if (lead && a->caps.system)
        push(a, TURN_ROLE_SYSTEM, text, NULL);
    else if (lead)
        carry_more(a, text.p ? text : STR(""));
    return lead;
}

/* Joining copies; a long run of system messages would copy quadratically, so memory is bounded. */
static size_t arena_max(const struct turn *messages, size_t n)
{
    size_t bytes = (size_t)1 << 20;
    for (size_t i = 0; i < n; i++)
        bytes += messages[i].content.n + 64 + sizeof(struct history_entry) * 2;
    return bytes < ((size_t)1 << 26) ? bytes * 8 : bytes + ((size_t)1 << 28);
}

t9_status turns_arrange(struct history *h, const struct turn *messages, size_t n,
                        struct history_caps caps, struct t9_err *err)
{
    memset(h, 0, sizeof *h);
    arena_init(&h->arena, arena_max(messages, n));
    struct arranger a = {.h = h, .caps = caps};
    h->caps = caps;
    a.entries = h->entries = arena_calloc(&h->arena, n + 1, sizeof *h->entries);
    if (!a.entries)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory to arrange %zu messages", n);
    for (size_t i = lead_system(&a, messages, n); i < n && !a.failed; i++) {
        if (messages[i].role == TURN_ROLE_SYSTEM)
            later_system(&a, &messages[i], i + 1 < n && messages[i + 1].role == TURN_ROLE_USER);
        else
            turn(&a, &messages[i]);
    }
    if (a.carry.p && !a.failed)
        push(&a, TURN_ROLE_USER, a.carry, NULL);
    if (a.failed && h->arena.used < h->arena.max / 2)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory to arrange %zu messages", n);
    if (a.failed)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "the system messages are too many or too large to be joined");
    return T9_STATUS_OK;
}

void turns_deinit(struct history *h)
{
    arena_deinit(&h->arena);
    memset(h, 0, sizeof *h);
}

static void member(struct buf *out, const char *key, str v)
{
    buf_putc(out, ',');
    json_write_key(out, key);
    json_write_str(out, v);
}

/* Of an object, or of one in a string. */
static void write_object(struct buf *out, yyjson_val *v)
{
    yyjson_doc *doc = NULL;
    t9_status s = yyjson_is_str(v) ? json_parse(&doc, json_str(v), JSON_LIMITS_REQUEST, NULL)
                                   : T9_STATUS_INVALID;
    yyjson_val *root = yyjson_doc_get_root(doc);
    if (v)
        json_write_val(out, yyjson_is_obj(root) ? root : v);
    else
        buf_puts(out, "{}");
    yyjson_doc_free(doc);
    out->failed |= s == T9_STATUS_NOMEM; /* which says nothing about the text */
}

static void write_text(struct buf *out, yyjson_val *v)
{
    struct buf text;
    if (yyjson_is_str(v)) {
        json_write_val(out, v);
        return;
    }
    buf_init(&text, out->max);
    write_object(&text, v);
    json_write_str(out, buf_str(&text));
    out->failed |= text.failed;
    buf_deinit(&text);
}

static void write_tool_calls(struct buf *out, yyjson_val *calls, bool arguments_text)
{
    size_t idx, max;
    yyjson_val *call;
    buf_puts(out, ",\"tool_calls\":[");
    yyjson_arr_foreach(calls, idx, max, call)
    {
        yyjson_val *fn = json_get(call, "function");
        buf_puts(out, idx ? ",{\"type\":\"function\"" : "{\"type\":\"function\"");
        if (yyjson_is_str(json_get(call, "id")))
            member(out, "id", json_str(json_get(call, "id")));
        buf_puts(out, ",\"function\":{\"name\":");
        json_write_str(out, json_str(json_get(fn, "name")));
        buf_puts(out, ",\"arguments\":");
        if (arguments_text)
            write_text(out, json_get(fn, "arguments"));
        else
            write_object(out, json_get(fn, "arguments"));
        buf_puts(out, "}}");
    }
    buf_putc(out, ']');
}

/* The name of the call with this id; empty when there is none. */
static str call_name(yyjson_val *calls, str id)
{
    size_t idx, max;
    yyjson_val *call;
    yyjson_arr_foreach(calls, idx, max, call)
    {
        if (str_eq(json_str(json_get(call, "id")), id))
            return json_str(json_get(json_get(call, "function"), "name"));
    }
    return (str){0};
}

/* What a message has beside role and content. `calls`: the newest ones up to here. */
static void write_members(const struct turn *m, bool has_content, yyjson_val *calls,
                          const struct history_caps *caps, struct buf *out)
{
    str name = m->name;
    bool reasoning = m->reasoning.n && !(caps->reasoning_alone && m->tool_calls && has_content);
    if (m->role == TURN_ROLE_TOOL && m->tool_call_id.n && !name.n)
        name = call_name(calls, m->tool_call_id);
    if (name.n)
        member(out, "name", name);
    if (m->tool_call_id.n)
        member(out, "tool_call_id", m->tool_call_id);
    if (reasoning)
        member(out, caps->reasoning_key ? caps->reasoning_key : "reasoning_content", m->reasoning);
    if (m->tool_calls)
        write_tool_calls(out, m->tool_calls, caps->arguments_text);
}

void turns_write(const struct history *h, struct buf *out)
{
    yyjson_val *calls = NULL;
    buf_putc(out, '[');
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct history_entry *e = &h->entries[i];
        const struct turn *m = e->src;
        /* Clients write either for calls alone; a template may look for null. */
        bool null = e->content.n == 0 && m && m->tool_calls && !h->caps.no_null;
        buf_puts(out, i ? ",{\"role\":" : "{\"role\":");
        json_write_str(out, str_from(turn_role_name(e->role)));
        if (null)
            buf_puts(out, ",\"content\":null");
        else
            member(out, "content", e->content);
        if (m && m->tool_calls)
            calls = m->tool_calls;
        if (m)
            write_members(m, e->content.n > 0, calls, &h->caps, out);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

/* ---- reading ---- */

const char *turn_role_name(turn_role r)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    return (unsigned)r < T9_COUNT(names) ? names[r] : "?";
}

static bool role_parse(str s, turn_role *out)
{
    static const struct {
        const char *name;
        turn_role role;
    } roles[] = {{"system", TURN_ROLE_SYSTEM},
                 {"developer", TURN_ROLE_SYSTEM},
                 {"user", TURN_ROLE_USER},
                 {"assistant", TURN_ROLE_ASSISTANT},
                 {"tool", TURN_ROLE_TOOL}};
    for (size_t i = 0; i < T9_COUNT(roles); i++) {
        if (str_eqz(s, roles[i].name)) {
            *out = roles[i].role;
            return true;
        }
    }
    return false;
}

static t9_status bad(struct t9_err *err, size_t i, const char *member, const char *want)
{
    return t9_fail(err, T9_STATUS_INVALID, "messages[%zu]%s must be %s", i, member, want);
}

static str part_text(yyjson_val *part)
{
    str type = json_str(json_get(part, "type"));
    bool is_text =
        str_eqz(type, "text") || str_eqz(type, "input_text") || str_eqz(type, "output_text");
    return is_text ? json_str(json_get(part, "text")) : (str){0};
}

/* Text parts, a line feed between. */
static t9_status join_parts(struct turn *t, size_t i, yyjson_val *parts, struct arena *arena,
                            struct t9_err *err)
{
    size_t idx, max, bytes = 0;
    yyjson_val *part;
    yyjson_arr_foreach(parts, idx, max, part)
    {
        str text = part_text(part);
        if (!text.p)
            return bad(err, i, ".content", "text, or parts {\"type\":\"text\",\"text\":...}");
        bytes += text.n + 1;
    }
    char *p = arena_alloc(arena, bytes);
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for messages[%zu]", i);
    size_t n = 0;
    yyjson_arr_foreach(parts, idx, max, part)
    {
        str text = part_text(part);
        if (idx)
            p[n++] = '\n';
        if (text.n)
            memcpy(p + n, text.p, text.n);
        n += text.n;
    }
    t->content = (str){p, n};
    return T9_STATUS_OK;
}

static t9_status read_content(struct turn *t, size_t i, yyjson_val *v, struct arena *arena,
                              struct t9_err *err)
{
    if (yyjson_is_str(v)) {
        t->content = json_str(v);
        return T9_STATUS_OK;
    }
    if (yyjson_is_arr(v) && yyjson_arr_size(v) > 0)
        return join_parts(t, i, v, arena, err);
    if (t->role == TURN_ROLE_ASSISTANT && (!v || yyjson_is_null(v)))
        return T9_STATUS_OK;
    return bad(err, i, ".content", "text, or an array of at least one text part");
}

static t9_status read_optional(str *out, size_t i, yyjson_val *m, const char *key,
                               struct t9_err *err)
{
    yyjson_val *v = json_get(m, key);
    char member[40];
    if (!v || yyjson_is_null(v))
        return T9_STATUS_OK;
    if (yyjson_is_str(v)) {
        *out = json_str(v);
        return T9_STATUS_OK;
    }
    (void)snprintf(member, sizeof member, ".%.32s", key);
    return bad(err, i, member, "text");
}

static t9_status read_tool_calls(struct turn *t, size_t i, yyjson_val *v, struct t9_err *err)
{
    size_t idx, max;
    yyjson_val *call;
    if (!v || yyjson_is_null(v))
        return T9_STATUS_OK;
    if (!yyjson_is_arr(v) || t->role != TURN_ROLE_ASSISTANT)
        return bad(err, i, ".tool_calls", "an array, in an assistant's message");
    if (yyjson_arr_size(v) > T9_CALLS_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "messages[%zu] has %zu tool_calls; at most %d are taken", i,
                       yyjson_arr_size(v), T9_CALLS_MAX);
    yyjson_arr_foreach(v, idx, max, call)
    {
        if (!yyjson_is_str(json_get(json_get(call, "function"), "name")))
            return bad(err, i, ".tool_calls",
                       "made of {\"function\":{\"name\":text,\"arguments\":text or object}}");
    }
    t->tool_calls = yyjson_arr_size(v) ? v : NULL;
    return T9_STATUS_OK;
}

static t9_status turn_read(struct turn *t, size_t i, yyjson_val *m, struct arena *arena,
                           struct t9_err *err)
{
    if (!yyjson_is_obj(m))
        return bad(err, i, "", "an object with role and content");
    if (!role_parse(json_str(json_get(m, "role")), &t->role))
        return bad(err, i, ".role", "system, developer, user, assistant or tool");
    T9_TRY(read_content(t, i, json_get(m, "content"), arena, err));
    T9_TRY(read_optional(&t->name, i, m, "name", err));
    T9_TRY(read_optional(&t->tool_call_id, i, m, "tool_call_id", err));
    T9_TRY(read_optional(&t->reasoning, i, m, "reasoning_content", err));
    return read_tool_calls(t, i, json_get(m, "tool_calls"), err);
}

t9_status turns_read(struct turn **out, size_t *n, yyjson_val *messages, struct arena *arena,
                     struct t9_err *err)
{
    size_t idx, max;
    yyjson_val *m;
    if (!yyjson_is_arr(messages) || yyjson_arr_size(messages) == 0)
        return t9_fail(err, T9_STATUS_INVALID,
                       "messages must be a JSON array of at least one message");
    if (yyjson_arr_size(messages) > T9_MESSAGES_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%zu messages; at most %d are taken",
                       yyjson_arr_size(messages), T9_MESSAGES_MAX);
    struct turn *turns = arena_calloc(arena, yyjson_arr_size(messages), sizeof *turns);
    if (!turns)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for %zu messages",
                       yyjson_arr_size(messages));
    yyjson_arr_foreach(messages, idx, max, m) T9_TRY(turn_read(&turns[idx], idx, m, arena, err));
    *out = turns;
    *n = max;
    return T9_STATUS_OK;
}
