/*
 * protocol/history.c - see history.h.
 */
#include "protocol/history.h"

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

static void push(struct arranger *a, chat_role role, str content, bool has_content,
                 const struct chat_message *src)
{
    a->entries[a->h->n_entries++] = (struct history_entry){role, content, has_content, src};
}

static void carry_more(struct arranger *a, str text)
{
    a->carry = a->carry.p ? join3(&a->h->arena, a->carry, gap, text) : text;
    a->failed |= a->carry.p == NULL;
}

/* A system message after the first turn. `next_is_user`: whether a user turn follows at once. */
static void later_system(struct arranger *a, const struct chat_message *m, bool next_is_user)
{
    if (a->caps.later_system) {
        push(a, CHAT_ROLE_SYSTEM, m->content, true, m);
        return;
    }
    str marked = join3(&a->h->arena, mark, m->content, (str){0});
    a->failed |= marked.p == NULL;
    size_t n = a->h->n_entries;
    bool after_user = n > 0 && a->entries[n - 1].role == CHAT_ROLE_USER;
    if (a->caps.user_twice || (!next_is_user && !after_user)) {
        push(a, CHAT_ROLE_USER, marked, true, NULL);
    } else if (next_is_user) {
        carry_more(a, marked);
    } else {
        a->entries[n - 1].content = join3(&a->h->arena, a->entries[n - 1].content, gap, marked);
        a->failed |= a->entries[n - 1].content.p == NULL;
    }
}

static void turn(struct arranger *a, const struct chat_message *m)
{
    str content = m->content;
    if (m->role == CHAT_ROLE_USER && a->carry.p) {
        content = join3(&a->h->arena, a->carry, gap, content);
        a->failed |= content.p == NULL;
        a->carry = (str){0};
    }
    push(a, m->role, content, m->has_content, m);
}

static size_t lead_system(struct arranger *a, const struct chat_message *messages, size_t n)
{
    size_t lead = 0;
    str text = {0};
    for (; lead < n && messages[lead].role == CHAT_ROLE_SYSTEM; lead++) {
        text = lead == 0 ? messages[0].content
                         : join3(&a->h->arena, text, gap, messages[lead].content);
        a->failed |= lead > 0 && text.p == NULL;
    }
    if (lead && a->caps.system)
        push(a, CHAT_ROLE_SYSTEM, text, true, NULL);
    else if (lead)
        carry_more(a, text.p ? text : STR(""));
    return lead;
}

/* Joining copies; a long run of system messages would copy quadratically, so memory is bounded. */
static size_t arena_max(const struct chat_message *messages, size_t n)
{
    size_t bytes = (size_t)1 << 20;
    for (size_t i = 0; i < n; i++)
        bytes += messages[i].content.n + 64 + sizeof(struct history_entry) * 2;
    return bytes < ((size_t)1 << 26) ? bytes * 8 : bytes + ((size_t)1 << 28);
}

t9_status history_arrange(struct history *h, const struct chat_message *messages, size_t n,
                          struct history_caps caps, struct t9_err *err)
{
    memset(h, 0, sizeof *h);
    arena_init(&h->arena, arena_max(messages, n));
    struct arranger a = {.h = h, .caps = caps};
    a.entries = h->entries = arena_calloc(&h->arena, n + 1, sizeof *h->entries);
    if (!a.entries)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory to arrange %zu messages", n);
    for (size_t i = lead_system(&a, messages, n); i < n && !a.failed; i++) {
        if (messages[i].role == CHAT_ROLE_SYSTEM)
            later_system(&a, &messages[i], i + 1 < n && messages[i + 1].role == CHAT_ROLE_USER);
        else
            turn(&a, &messages[i]);
    }
    if (a.carry.p && !a.failed)
        push(&a, CHAT_ROLE_USER, a.carry, true, NULL);
    if (a.failed)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "the system messages are too many or too large to be joined");
    return T9_STATUS_OK;
}

void history_deinit(struct history *h)
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

static void write_arguments(struct buf *out, yyjson_val *v)
{
    yyjson_doc *doc = NULL;
    if (yyjson_is_str(v) &&
        json_parse(&doc, json_str(v), JSON_LIMITS_REQUEST, NULL) == T9_STATUS_OK) {
        yyjson_val *root = yyjson_doc_get_root(doc);
        json_write_val(out, yyjson_is_obj(root) ? root : v);
        yyjson_doc_free(doc);
    } else if (v) {
        json_write_val(out, v);
    } else {
        buf_puts(out, "{}");
    }
}

static void write_tool_calls(struct buf *out, yyjson_val *calls)
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
        write_arguments(out, json_get(fn, "arguments"));
        buf_puts(out, "}}");
    }
    buf_putc(out, ']');
}

void history_write(const struct history *h, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct history_entry *e = &h->entries[i];
        const struct chat_message *m = e->src;
        buf_puts(out, i ? ",{\"role\":" : "{\"role\":");
        json_write_str(out, str_from(chat_role_name(e->role)));
        if (e->has_content || !m || !m->tool_calls)
            member(out, "content", e->content);
        else
            buf_puts(out, ",\"content\":null");
        if (m && m->name.n)
            member(out, "name", m->name);
        if (m && m->tool_call_id.n)
            member(out, "tool_call_id", m->tool_call_id);
        if (m && m->reasoning.n)
            member(out, "reasoning_content", m->reasoning);
        if (m && m->tool_calls)
            write_tool_calls(out, m->tool_calls);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}
