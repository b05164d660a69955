/*
 * protocol/responses_tools.c - the tools of a Responses request: functions, custom tools, which
 * take one text, and namespaces of both, which models see as one list of names. Tools that a server
 * would run are left out. Any thread; nothing here has state.
 */
#include "protocol/responses.h"

#include "protocol/chat_tools.h"

#include <stdio.h>

static t9_status tool_wrong(struct policy_ctx *c, const char *where, const char *member,
                            const char *wanted, yyjson_val *v)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.40s%s%s", where, *member ? "." : "", member);
    return policy_wrong(c, name, wanted, v);
}

str responses_flat_name(struct chat_request *r, str space, str local)
{
    struct buf name;
    if (space.n == 0)
        return local;
    buf_init(&name, space.n + local.n + 2);
    buf_puts_str(&name, space);
    if (!str_has_suffix(space, STR("__")))
        buf_puts(&name, "__");
    buf_puts_str(&name, local);
    str flat = name.failed ? (str){0} : arena_str(&r->arena, buf_str(&name));
    buf_deinit(&name);
    return flat;
}

/* ---- kinds ---- */

static t9_status check_strict(struct policy_ctx *c, const char *where, yyjson_val *strict)
{
    char name[64];
    if (!strict || yyjson_is_null(strict) || yyjson_is_false(strict))
        return T9_STATUS_OK;
    (void)snprintf(name, sizeof name, "%.40s.strict", where);
    return chat_fail(c->err, T9_STATUS_UNSUPPORTED, name, "unsupported_parameter",
                     "%s is set, and schemas are not enforced yet: leave it out or say false",
                     name);
}

static t9_status read_function(struct policy_ctx *c, const char *where, yyjson_val *v,
                               struct chat_tool *tool)
{
    static const char *const members[] = {"type",          "name",           "description",
                                          "parameters",    "strict",         "defer_loading",
                                          "output_schema", "allowed_callers"};
    T9_TRY(policy_members(c, v, members, T9_COUNT(members), where, "a function"));
    T9_TRY(check_strict(c, where, json_get(v, "strict")));
    T9_TRY(chat_tool_says(c, where, v, &tool->description));
    yyjson_val *schema = json_get(v, "parameters");
    tool->schema = yyjson_is_null(schema) ? NULL : schema;
    return T9_STATUS_OK;
}

/* What the client's grammar says is told in words: it can't be enforced yet. */
static t9_status describe_format(struct policy_ctx *c, const char *where, yyjson_val *format,
                                 str *description)
{
    str type = json_str(json_get(format, "type"));
    str grammar = json_str(json_get(format, "definition"));
    struct buf text;
    if (!format || yyjson_is_null(format) || str_eqz(type, "text"))
        return T9_STATUS_OK;
    if (!str_eqz(type, "grammar") || !grammar.p)
        return tool_wrong(c, where, "format", "of type text, or of type grammar with a definition",
                          format);
    chat_warn(c->request, "the grammar of %s is told to the model and not enforced yet", where);
    buf_init(&text, description->n + grammar.n + 128);
    buf_puts_str(&text, *description);
    buf_puts(&text, description->n ? "\n\nThe input follows this grammar:\n"
                                   : "The input follows this grammar:\n");
    buf_puts_str(&text, grammar);
    *description = text.failed ? (str){0} : arena_str(&c->request->arena, buf_str(&text));
    buf_deinit(&text);
    return description->p ? T9_STATUS_OK
                          : chat_fail(c->err, T9_STATUS_TOO_LARGE, where, NULL,
                                      "the grammar of %s is too large", where);
}

static t9_status read_custom(struct policy_ctx *c, const char *where, yyjson_val *v,
                             struct chat_tool *tool)
{
    static const char *const members[] = {"type",   "name",          "description",
                                          "format", "defer_loading", "allowed_callers"};
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":"
                                 "\"string\"}},\"required\":[\"input\"]}";
    T9_TRY(policy_members(c, v, members, T9_COUNT(members), where, "a custom tool"));
    T9_TRY(chat_tool_says(c, where, v, &tool->description));
    T9_TRY(describe_format(c, where, json_get(v, "format"), &tool->description));
    for (size_t i = 0; i < c->request->n_tools && !tool->schema; i++) {
        if (responses_own(c->request)->tools[i].is_text)
            tool->schema = c->request->tools[i].schema;
    }
    return tool->schema ? T9_STATUS_OK
                        : chat_request_parse_more(c->request, STR(schema), &tool->schema, c->err);
}

/* ---- the list ---- */

static t9_status add_tool(struct policy_ctx *c, const char *where, str space, yyjson_val *v)
{
    struct chat_request *r = c->request;
    str type = json_str(json_get(v, "type"));
    struct responses_tool *own = &responses_own(r)->tools[r->n_tools];
    struct chat_tool tool = {0};
    *own = (struct responses_tool){
        .space = space, .local = json_str(json_get(v, "name")), .is_text = str_eqz(type, "custom")};
    T9_TRY(own->is_text ? read_custom(c, where, v, &tool) : read_function(c, where, v, &tool));
    tool.name = own->name = responses_flat_name(r, space, own->local);
    if (space.n && !tool.name.p)
        return chat_fail(c->err, T9_STATUS_NOMEM, where, NULL, "no memory for %s", where);
    return chat_tool_add(c, where, tool);
}

static bool is_callable(yyjson_val *v)
{
    str type = json_str(json_get(v, "type"));
    return str_eqz(type, "function") || str_eqz(type, "custom");
}

static t9_status left_out(struct policy_ctx *c, const char *where, yyjson_val *v)
{
    char brief[80], name[64];
    (void)chat_brief(json_get(v, "type"), brief);
    (void)snprintf(name, sizeof name, "%.40s.type", where);
    if (c->strict)
        return chat_fail(
            c->err, T9_STATUS_UNSUPPORTED, name, "unsupported_parameter",
            "%s is %s, which a server would have to run, and this one is strict: leave "
            "it out",
            name, brief);
    chat_warn(c->request, "tools of type %s were left out: this server runs no tools itself",
              brief);
    return T9_STATUS_OK;
}

static t9_status add_namespace(struct policy_ctx *c, const char *where, yyjson_val *v)
{
    static const char *const members[] = {"type", "name", "description", "tools"};
    yyjson_val *tools = json_get(v, "tools"), *tool;
    str space = json_str(json_get(v, "name"));
    size_t idx, max;
    char inner[64];
    T9_TRY(policy_members(c, v, members, T9_COUNT(members), where, "a namespace"));
    if (space.n == 0)
        return tool_wrong(c, where, "name", "a name", json_get(v, "name"));
    if (!yyjson_is_arr(tools))
        return tool_wrong(c, where, "tools", "an array of tools", tools);
    yyjson_arr_foreach(tools, idx, max, tool)
    {
        (void)snprintf(inner, sizeof inner, "%.24s.tools[%zu]", where, idx);
        if (!yyjson_is_obj(tool))
            return tool_wrong(c, inner, "", "an object with a type", tool);
        T9_TRY(is_callable(tool) ? add_tool(c, inner, space, tool) : left_out(c, inner, tool));
    }
    return T9_STATUS_OK;
}

/* How many tools a list may have at most. */
static size_t count_tools(yyjson_val *list)
{
    size_t n = 0, idx, max;
    yyjson_val *tool;
    yyjson_arr_foreach(list, idx, max, tool)
    {
        yyjson_val *inner = json_get(tool, "tools");
        n += 1 + (yyjson_is_arr(inner) ? yyjson_arr_size(inner) : 0);
    }
    return n;
}

/* Whether the reply repeats it: a tool that is left out is not told of. */
static bool is_told(yyjson_val *tool)
{
    return is_callable(tool) || str_eqz(json_str(json_get(tool, "type")), "namespace");
}

static t9_status tell_tools(struct policy_ctx *c, yyjson_val *list)
{
    struct responses_own *own = responses_own(c->request);
    struct buf text;
    size_t idx, max;
    yyjson_val *tool;
    buf_init(&text, c->request->kept.max);
    buf_putc(&text, '[');
    yyjson_arr_foreach(list, idx, max, tool)
    {
        if (!is_told(tool))
            continue;
        if (text.n > 1)
            buf_putc(&text, ',');
        json_write_val(&text, tool);
    }
    buf_putc(&text, ']');
    own->tools_text = text.failed ? (str){0} : arena_str(&c->request->kept, buf_str(&text));
    buf_deinit(&text);
    return own->tools_text.p ? T9_STATUS_OK
                             : chat_fail(c->err, T9_STATUS_TOO_LARGE, "tools", NULL,
                                         "the tools are too large together");
}

t9_status responses_tools(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    size_t idx, max;
    yyjson_val *tool;
    char where[40];
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array of tools", v);
    T9_TRY(chat_tools_begin(c, f->name, count_tools(v)));
    responses_own(c->request)->tools =
        arena_calloc(&c->request->kept, count_tools(v) + 1, sizeof(struct responses_tool));
    if (!responses_own(c->request)->tools)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory for tools");
    yyjson_arr_foreach(v, idx, max, tool)
    {
        (void)snprintf(where, sizeof where, "tools[%zu]", idx);
        if (!yyjson_is_obj(tool) || !yyjson_is_str(json_get(tool, "type")))
            return tool_wrong(c, where, "", "an object with a type", tool);
        if (is_callable(tool))
            T9_TRY(add_tool(c, where, (str){0}, tool));
        else
            T9_TRY(is_told(tool) ? add_namespace(c, where, tool) : left_out(c, where, tool));
    }
    return tell_tools(c, v);
}

/* ---- choice ---- */

static bool allows(yyjson_val *v)
{
    return str_eqz(json_str(json_get(v, "type")), "allowed_tools") &&
           str_eqz(json_str(json_get(v, "mode")), "auto");
}

t9_status responses_tool_choice(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    char brief[80];
    if (str_eqz(json_str(v), "auto") || allows(v))
        return T9_STATUS_OK;
    if (str_eqz(json_str(v), "none")) {
        c->request->no_calls = true;
        return T9_STATUS_OK;
    }
    if (!str_eqz(json_str(v), "required") && !yyjson_is_str(json_get(v, "type")))
        return policy_wrong(c, f->name, "auto, none or allowed_tools", v);
    return chat_fail(c->err, T9_STATUS_UNSUPPORTED, f->name, "unsupported_parameter",
                     "tool_choice = %s is not supported: calls can't be enforced yet; auto, none "
                     "and allowed_tools with mode auto are taken",
                     chat_brief(yyjson_is_str(v) ? v : json_get(v, "type"), brief));
}

/* Whether an entry of allowed_tools means this tool: by its name, or its namespace's. */
static bool means(yyjson_val *entry, const struct responses_tool *t)
{
    str name = json_str(json_get(entry, "name"));
    if (str_eqz(json_str(json_get(entry, "type")), "namespace"))
        return t->space.n && str_eq(name, t->space);
    return str_eq(name, t->local) && str_eq(json_str(json_get(entry, "namespace")), t->space);
}

/* Whether it means one of the tools that were left out, by its type or its name. */
static bool means_left_out(yyjson_val *entry, yyjson_val *list)
{
    str type = json_str(json_get(entry, "type")), name = json_str(json_get(entry, "name"));
    size_t idx, max;
    yyjson_val *tool;
    yyjson_arr_foreach(list, idx, max, tool)
    {
        if (!is_told(tool) && (str_eq(json_str(json_get(tool, "type")), type) ||
                               (name.n && str_eq(json_str(json_get(tool, "name")), name))))
            return true;
    }
    return false;
}

static t9_status check_allowed(struct policy_ctx *c, size_t i, yyjson_val *entry, yyjson_val *list)
{
    const struct chat_request *r = c->request;
    yyjson_val *name = json_get(entry, "name");
    char where[48], brief[80];
    (void)snprintf(where, sizeof where, "tool_choice.tools[%zu]", i);
    if (!yyjson_is_obj(entry))
        return policy_wrong(c, where, "an object with a type", entry);
    for (size_t k = 0; k < r->n_tools; k++) {
        if (means(entry, &responses_own(r)->tools[k]))
            return T9_STATUS_OK;
    }
    (void)chat_brief(name ? name : json_get(entry, "type"), brief);
    if (!means_left_out(entry, list))
        return chat_fail(c->err, T9_STATUS_INVALID, where, "invalid_value",
                         "%s names %s, which is not among the tools", where, brief);
    chat_warn(c->request, "%s names %s, which was left out of the tools", where, brief);
    return T9_STATUS_OK;
}

t9_status responses_allow_tools(struct policy_ctx *c, yyjson_val *body)
{
    struct chat_request *r = c->request;
    struct responses_tool *own = responses_own(r)->tools;
    yyjson_val *choice = json_get(body, "tool_choice"), *allowed = json_get(choice, "tools"), *v;
    size_t n = 0, idx, max;
    if (!allows(choice))
        return T9_STATUS_OK;
    if (!yyjson_is_arr(allowed))
        return policy_wrong(c, "tool_choice.tools", "an array of tools", allowed);
    if (yyjson_arr_size(allowed) > CHAT_TOOLS_MAX)
        return chat_fail(c->err, T9_STATUS_INVALID, "tool_choice.tools", "invalid_value",
                         "tool_choice.tools has more than the %d tools that are taken",
                         CHAT_TOOLS_MAX);
    yyjson_arr_foreach(allowed, idx, max, v)
        T9_TRY(check_allowed(c, idx, v, json_get(body, "tools")));
    for (size_t i = 0; i < r->n_tools; i++) {
        bool kept = false;
        yyjson_arr_foreach(allowed, idx, max, v) kept |= means(v, &own[i]);
        if (!kept)
            continue;
        r->tools[n] = r->tools[i];
        own[n++] = own[i];
    }
    r->n_tools = n;
    return T9_STATUS_OK;
}
