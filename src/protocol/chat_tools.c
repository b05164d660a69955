/*
 * protocol/chat_tools.c - see chat_tools.h.
 */
#include "protocol/chat_tools.h"

#include <stdio.h>

static bool name_is_fine(str name)
{
    if (name.n == 0 || name.n > CHAT_TOOL_NAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char ch = name.p[i];
        bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
        bool other = ch == '_' || ch == '-' || ch == '.' || ch == ':' || ch == '/';
        if (!letter && !other && !(ch >= '0' && ch <= '9'))
            return false;
    }
    return true;
}

t9_status chat_tools_begin(struct policy_ctx *c, const char *field, size_t n)
{
    struct chat_request *r = c->request;
    if (n > CHAT_TOOLS_MAX)
        return chat_fail(c->err, T9_STATUS_INVALID, field, "invalid_value",
                         "%s has %zu entries, and at most %d are taken", field, n, CHAT_TOOLS_MAX);
    r->tools = arena_calloc(&r->arena, n + 1, sizeof *r->tools);
    r->n_tools = 0;
    if (!r->tools)
        return chat_fail(c->err, T9_STATUS_NOMEM, field, NULL, "no memory for %zu tools", n);
    return T9_STATUS_OK;
}

t9_status chat_tool_says(struct policy_ctx *c, const char *where, yyjson_val *tool, str *out)
{
    char param[64];
    yyjson_val *v = json_get(tool, "description");
    *out = json_str(v);
    if (!v || yyjson_is_null(v) || yyjson_is_str(v))
        return T9_STATUS_OK;
    (void)snprintf(param, sizeof param, "%.48s.description", where);
    return policy_wrong(c, param, "a string", v);
}

static t9_status wrong(struct policy_ctx *c, const char *where, const char *member,
                       const char *what, str name)
{
    char param[64], brief[64];
    (void)snprintf(param, sizeof param, "%.48s.%s", where, member);
    (void)snprintf(brief, sizeof brief, STR_FMT, (int)(name.n < 60 ? name.n : 60), name.p);
    return chat_fail(c->err, T9_STATUS_INVALID, param, "invalid_value", "%s of \"%s\" %s", param,
                     brief, what);
}

t9_status chat_tool_add(struct policy_ctx *c, const char *where, struct chat_tool tool)
{
    struct chat_request *r = c->request;
    if (!name_is_fine(tool.name))
        return wrong(c, where, "name",
                     "must have 1 to 128 letters, digits, '_', '-', '.', ':' or '/'", tool.name);
    for (size_t i = 0; i < r->n_tools; i++) {
        if (str_eq(r->tools[i].name, tool.name))
            return wrong(c, where, "name", "is taken by another tool", tool.name);
    }
    if (tool.schema && !yyjson_is_obj(tool.schema))
        return wrong(c, where, "parameters", "must be a JSON Schema, an object", tool.name);
    r->tools[r->n_tools++] = tool;
    return T9_STATUS_OK;
}

struct chat_call *chat_calls_new(struct policy_ctx *c, const char *where, size_t n)
{
    if (n > T9_CALLS_MAX) {
        (void)chat_fail(c->err, T9_STATUS_INVALID, where, "invalid_value",
                        "%s has %zu calls, and at most %d are taken", where, n, T9_CALLS_MAX);
        return NULL;
    }
    struct chat_call *calls = arena_calloc(&c->request->arena, n + 1, sizeof *calls);
    if (!calls)
        (void)chat_fail(c->err, T9_STATUS_NOMEM, where, NULL, "no memory for %zu calls", n);
    return calls;
}

str chat_call_name(const struct chat_message *m, str id)
{
    for (size_t i = 0; m && i < m->n_calls; i++) {
        if (str_eq(m->calls[i].id, id))
            return m->calls[i].name;
    }
    return (str){0};
}

void chat_check_results(struct chat_request *r)
{
    const struct chat_message *calls = NULL;
    for (size_t i = 0; i < r->n_messages; i++) {
        const struct chat_message *m = &r->messages[i];
        if (m->n_calls)
            calls = m;
        if (m->role == CHAT_ROLE_TOOL && m->tool_call_id.n &&
            chat_call_name(calls, m->tool_call_id).n == 0)
            chat_warn(r, "messages[%zu] answers a tool call that no message before it made", i);
    }
}
