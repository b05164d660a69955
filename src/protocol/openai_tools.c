/*
 * protocol/openai_tools.c - the tools of a request as chat completions and the requests about its
 * prompt have them. Any thread; nothing here has state.
 */
#include "protocol/chat_tools.h"
#include "protocol/openai_fields.h"

#include <stdio.h>

static t9_status tool_wrong(struct policy_ctx *c, size_t i, const char *member, const char *wanted,
                            yyjson_val *v)
{
    char name[64];
    (void)snprintf(name, sizeof name, "tools[%zu]%s%s", i, *member ? "." : "", member);
    return policy_wrong(c, name, wanted, v);
}

static t9_status check_strict(struct policy_ctx *c, size_t i, yyjson_val *strict)
{
    char name[64];
    if (!strict || yyjson_is_null(strict) || yyjson_is_false(strict))
        return T9_STATUS_OK;
    (void)snprintf(name, sizeof name, "tools[%zu].function.strict", i);
    return chat_fail(c->err, T9_STATUS_UNSUPPORTED, name, "unsupported_parameter",
                     "%s is set, and schemas are not enforced yet: leave it out", name);
}

static t9_status parse_tool(struct policy_ctx *c, size_t i, yyjson_val *v)
{
    static const char *const of_tool[] = {"type", "function", "cache_control"};
    static const char *const of_function[] = {"name", "description", "parameters", "strict"};
    char where[40], brief[80];
    yyjson_val *type = json_get(v, "type"), *fn = json_get(v, "function");
    if (!yyjson_is_obj(v))
        return tool_wrong(c, i, "", "an object with type and function", v);
    (void)snprintf(where, sizeof where, "tools[%zu].type", i);
    if (!str_eqz(json_str(type), "function"))
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, where, "unsupported_parameter",
                         "%s is %s, and only function is taken", where, chat_brief(type, brief));
    if (!yyjson_is_obj(fn))
        return tool_wrong(c, i, "function", "an object with a name", fn);
    (void)snprintf(where, sizeof where, "tools[%zu]", i);
    T9_TRY(policy_members(c, v, of_tool, T9_COUNT(of_tool), where, "a tool"));
    (void)snprintf(where, sizeof where, "tools[%zu].function", i);
    T9_TRY(policy_members(c, fn, of_function, T9_COUNT(of_function), where, "a function"));
    T9_TRY(check_strict(c, i, json_get(fn, "strict")));
    yyjson_val *schema = json_get(fn, "parameters");
    struct chat_tool tool = {.name = json_str(json_get(fn, "name")),
                             .schema = yyjson_is_null(schema) ? NULL : schema};
    T9_TRY(chat_tool_says(c, where, fn, &tool.description));
    return chat_tool_add(c, where, tool);
}

t9_status openai_tools(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    size_t idx, max;
    yyjson_val *tool;
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array of tools", v);
    T9_TRY(chat_tools_begin(c, f->name, yyjson_arr_size(v)));
    yyjson_arr_foreach(v, idx, max, tool)
    {
        T9_TRY(parse_tool(c, idx, tool));
    }
    return T9_STATUS_OK;
}

t9_status openai_tool_choice(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    char brief[80];
    bool forced = str_eqz(json_str(v), "required") || yyjson_is_str(json_get(v, "type"));
    if (forced)
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, f->name, "unsupported_parameter",
                         "tool_choice = %s is not supported: calls can't be enforced yet; auto and "
                         "none are taken",
                         chat_brief(v, brief));
    if (!str_eqz(json_str(v), "auto") && !str_eqz(json_str(v), "none"))
        return policy_wrong(c, f->name, "auto or none", v);
    c->request->no_calls = str_eqz(json_str(v), "none");
    return T9_STATUS_OK;
}
