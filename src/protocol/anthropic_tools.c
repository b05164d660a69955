/*
 * protocol/anthropic_tools.c - tools of a Messages request. Any thread; nothing here has state.
 *
 * Three kinds: the client's own with a schema; built-in ones that the client runs, named by a dated
 * version whose arguments are published (the table below); and those that Anthropic's servers run,
 * which are left out.
 */
#include "protocol/anthropic_impl.h"
#include "protocol/chat_tools.h"

#include <stdio.h>

enum { WHERE_BYTES = 64, BRIEF_BYTES = 80 };

/* ---- built-in tools that the client runs ---- */

#define TEXT(what)  "{\"type\":\"string\",\"description\":\"" what "\"}"
#define WHOLE(what) "{\"type\":\"integer\",\"description\":\"" what "\"}"
#define PAIR(what)                                                                                 \
    "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":2,"          \
    "\"description\":\"" what "\"}"
#define OBJECT(members, required)                                                                  \
    "{\"type\":\"object\",\"properties\":{" members "},\"required\":[" required "]}"

#define BASH                                                                                       \
    OBJECT("\"command\":" TEXT(                                                                    \
               "the command to run") ",\"restart\":{\"type\":\"boolean\","                         \
                                     "\"description\":\"true: begin a new shell instead\"}",       \
           "")
#define BASH_SAYS                                                                                  \
    "Runs a command in a shell that stays open: directory and variables are kept from call to "    \
    "call."

/* What editors of files have in common; `insert` is the name of the text that insert takes. */
#define EDIT_MEMBERS(commands)                                                                     \
    "\"command\":{\"type\":\"string\",\"enum\":[" commands                                         \
    "]},\"path\":" TEXT("absolute path of the file or folder") ",\"file_text\":" TEXT(             \
        "create: all of the new file") ",\"old_str\":" TEXT("str_replace: the text to replace, "   \
                                                            "which must be there exactly once") ",\"insert_line\":" WHOLE("insert: the line behind which the text goes, 0: the beginning") ",\"view_range\":" PAIR("view: the first and the last line, -1: to the end")
#define EDIT_NEW ",\"new_str\":" TEXT("str_replace, insert: the new text")
#define EDIT_SPLIT                                                                                 \
    ",\"new_str\":" TEXT("str_replace: the new text") ",\"insert_text\":" TEXT("insert: the text")
#define EDIT_VERBS "\"view\",\"create\",\"str_replace\",\"insert\""
#define EDIT_SAYS  "Views, creates and edits text files."
#define EDIT_UNDO  OBJECT(EDIT_MEMBERS(EDIT_VERBS ",\"undo_edit\"") EDIT_NEW, "\"command\",\"path\"")

#define MEMORY                                                                                     \
    OBJECT(EDIT_MEMBERS(EDIT_VERBS ",\"delete\",\"rename\"") EDIT_SPLIT ",\"old_path\":" TEXT(     \
               "rename: the path as it is") ",\"new_path\":" TEXT("rename: the path to be"),       \
           "\"command\"")
#define MEMORY_SAYS                                                                                \
    "Keeps notes as files under /memories that last from one conversation to the next: view, "     \
    "create, str_replace, insert, delete, rename."

#define ACTIONS                                                                                    \
    "\"key\",\"type\",\"mouse_move\",\"left_click\",\"left_click_drag\",\"right_click\","          \
    "\"middle_click\",\"double_click\",\"screenshot\",\"cursor_position\""
#define MORE_ACTIONS                                                                               \
    ",\"left_mouse_down\",\"left_mouse_up\",\"scroll\",\"hold_key\",\"wait\",\"triple_click\""
#define SCREEN_MEMBERS(actions)                                                                    \
    "\"action\":{\"type\":\"string\",\"enum\":[" actions                                           \
    "]},\"coordinate\":" PAIR("x and y in pixels from the upper left corner") ",\"text\":" TEXT(   \
        "type: the text; key and hold_key: the keys; clicks: keys to hold")
#define MORE_MEMBERS                                                                               \
    ",\"start_coordinate\":" PAIR(                                                                 \
        "left_click_drag: where it begins") ",\"scroll_direction\":{"                              \
                                            "\"type\":\"string\",\"enum\":[\"up\",\"down\","       \
                                            "\"left\",\"right\"]},\"scroll_amount\":" WHOLE(       \
                                                "clicks of the wheel") ",\"duration\":{\"type\":"  \
                                                                       "\"number\","               \
                                                                       "\"description\":"          \
                                                                       "\"seconds\"}"
#define ZOOM                                                                                       \
    ",\"region\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":4,"             \
    "\"maxItems\":4,\"description\":\"zoom: x and y of two corners\"}"
#define SCREEN_SAYS "Uses mouse, keyboard and screen of a computer, and takes screenshots."

static const struct builtin {
    const char *type, *description, *schema;
    bool has_screen;
} builtins[] = {
    {"bash_20241022", BASH_SAYS, BASH, false},
    {"bash_20250124", BASH_SAYS, BASH, false},
    {"text_editor_20241022", EDIT_SAYS, EDIT_UNDO, false},
    {"text_editor_20250124", EDIT_SAYS, EDIT_UNDO, false},
    {"text_editor_20250429", EDIT_SAYS,
     OBJECT(EDIT_MEMBERS(EDIT_VERBS) EDIT_NEW, "\"command\",\"path\""), false},
    {"text_editor_20250728", EDIT_SAYS,
     OBJECT(EDIT_MEMBERS(EDIT_VERBS) EDIT_SPLIT, "\"command\",\"path\""), false},
    {"memory_20250818", MEMORY_SAYS, MEMORY, false},
    {"computer_20241022", SCREEN_SAYS, OBJECT(SCREEN_MEMBERS(ACTIONS), "\"action\""), true},
    {"computer_20250124", SCREEN_SAYS,
     OBJECT(SCREEN_MEMBERS(ACTIONS MORE_ACTIONS) MORE_MEMBERS, "\"action\""), true},
    {"computer_20251124", SCREEN_SAYS,
     OBJECT(SCREEN_MEMBERS(ACTIONS MORE_ACTIONS ",\"zoom\"") MORE_MEMBERS ZOOM, "\"action\""),
     true},
};

static const struct builtin *builtin_find(str type)
{
    for (size_t i = 0; i < T9_COUNT(builtins); i++) {
        if (str_eqz(type, builtins[i].type))
            return &builtins[i];
    }
    return NULL;
}

/* All their schemas, by version, parsed once for a request; NULL without memory. */
static yyjson_val *builtin_schema(struct chat_request *r, const struct builtin *b)
{
    struct buf text;
    struct chat_error e;
    yyjson_val *root = NULL;
    if (r->n_docs == 0) {
        buf_init(&text, (size_t)1 << 20);
        for (size_t i = 0; i < T9_COUNT(builtins); i++) {
            buf_putc(&text, i ? ',' : '{');
            json_write_key(&text, builtins[i].type);
            buf_puts(&text, builtins[i].schema);
        }
        buf_putc(&text, '}');
        if (!text.failed)
            (void)chat_request_parse_more(r, buf_str(&text), &root, &e);
        buf_deinit(&text);
    }
    return r->n_docs ? json_get(yyjson_doc_get_root(r->docs[0]), b->type) : NULL;
}

/* A side of a screen in pixels; 0: it is not told. */
static t9_status screen_side(struct policy_ctx *c, const char *where, const char *member,
                             yyjson_val *tool, int64_t *out)
{
    char name[WHERE_BYTES];
    yyjson_val *v = json_get(tool, member);
    *out = 0;
    if (!v || yyjson_is_null(v) || (policy_whole(v, out) && *out > 0))
        return T9_STATUS_OK;
    (void)snprintf(name, sizeof name, "%.40s.%s", where, member);
    return policy_wrong(c, name, "a whole number above 0", v);
}

/* What it does, and where it has a screen, how large that is. */
static t9_status builtin_says(struct policy_ctx *c, const char *where, const struct builtin *b,
                              yyjson_val *tool, str *out)
{
    char text[160];
    int64_t width = 0, height = 0;
    *out = str_from(b->description);
    if (!b->has_screen)
        return T9_STATUS_OK;
    T9_TRY(screen_side(c, where, "display_width_px", tool, &width));
    T9_TRY(screen_side(c, where, "display_height_px", tool, &height));
    if (width == 0 || height == 0)
        return T9_STATUS_OK;
    (void)snprintf(text, sizeof text, "%s The screen has %lld x %lld pixels.", b->description,
                   (long long)width, (long long)height);
    *out = arena_str(&c->request->arena, str_from(text));
    return T9_STATUS_OK;
}

static t9_status add_builtin(struct policy_ctx *c, const char *where, const struct builtin *b,
                             yyjson_val *v)
{
    struct chat_tool tool = {.name = json_str(json_get(v, "name")),
                             .schema = builtin_schema(c->request, b)};
    T9_TRY(builtin_says(c, where, b, v, &tool.description));
    if (!tool.schema || !tool.description.p)
        return chat_fail(c->err, T9_STATUS_NOMEM, where, NULL, "no memory for %s", where);
    return chat_tool_add(c, where, tool);
}

/* ---- tools of others ---- */

static bool is_hosted(str type)
{
    static const char *const prefixes[] = {"web_search_",       "web_fetch_", "code_execution_",
                                           "tool_search_tool_", "advisor_",   "mcp_toolset"};
    for (size_t i = 0; i < T9_COUNT(prefixes); i++) {
        if (str_has_prefix(type, str_from(prefixes[i])))
            return true;
    }
    return false;
}

t9_status anthropic_left_out(struct policy_ctx *c, const char *where, const char *why)
{
    if (c->strict)
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, where, "unsupported_parameter",
                         "%s is not taken: %s, and this server is strict: leave it out", where,
                         why);
    chat_warn(c->request, "%s was left out: %s", where, why);
    return T9_STATUS_OK;
}

t9_status anthropic_hosted(struct policy_ctx *c, const char *where, yyjson_val *type)
{
    char brief[BRIEF_BYTES], why[BRIEF_BYTES + 48];
    (void)snprintf(why, sizeof why, "%s is run by Anthropic's servers only",
                   chat_brief(type, brief));
    return anthropic_left_out(c, where, why);
}

/* ---- the client's own ---- */

static t9_status check_strict(struct policy_ctx *c, const char *where, yyjson_val *strict)
{
    char name[WHERE_BYTES];
    if (!yyjson_is_true(strict))
        return T9_STATUS_OK;
    (void)snprintf(name, sizeof name, "%.40s.strict", where);
    return chat_fail(c->err, T9_STATUS_UNSUPPORTED, name, "unsupported_parameter",
                     "%s is set, and schemas are not enforced yet: leave it out", name);
}

static t9_status add_custom(struct policy_ctx *c, const char *where, yyjson_val *v)
{
    char name[WHERE_BYTES];
    yyjson_val *schema = json_get(v, "input_schema");
    struct chat_tool tool = {.name = json_str(json_get(v, "name")), .schema = schema};
    (void)snprintf(name, sizeof name, "%.40s.input_schema", where);
    if (!yyjson_is_obj(schema))
        return policy_wrong(c, name, "a JSON Schema, an object", schema);
    T9_TRY(chat_tool_says(c, where, v, &tool.description));
    return chat_tool_add(c, where, tool);
}

static t9_status parse_tool(struct policy_ctx *c, size_t i, yyjson_val *v)
{
    /* Besides what they are, some say when and by whom they may be called: it is always the model,
     * and directly. */
    static const char *const names[] = {"type",
                                        "name",
                                        "description",
                                        "input_schema",
                                        "cache_control",
                                        "strict",
                                        "defer_loading",
                                        "eager_input_streaming",
                                        "max_characters",
                                        "allowed_callers",
                                        "display_width_px",
                                        "display_height_px",
                                        "display_number",
                                        "enable_zoom"};
    struct chat_request *r = c->request;
    char where[WHERE_BYTES], brief[BRIEF_BYTES];
    yyjson_val *type = json_get(v, "type");
    str kind = json_str(type);
    int64_t ms;
    (void)snprintf(where, sizeof where, "tools[%zu]", i);
    if (!yyjson_is_obj(v))
        return policy_wrong(c, where, "an object with name and input_schema", v);
    if (is_hosted(kind))
        return anthropic_hosted(c, where, type);
    T9_TRY(policy_members(c, v, names, T9_COUNT(names), where, "a tool"));
    T9_TRY(check_strict(c, where, json_get(v, "strict")));
    const struct builtin *b = builtin_find(kind);
    if (b)
        T9_TRY(add_builtin(c, where, b, v));
    else if (!type || yyjson_is_null(type) || str_eqz(kind, "custom"))
        T9_TRY(add_custom(c, where, v));
    else
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, where, "unsupported_parameter",
                         "%s is of type %s, which is not known here: declare it as a tool with an "
                         "input_schema",
                         where, chat_brief(type, brief));
    T9_TRY(anthropic_cache_ms(c, where, json_get(v, "cache_control"), &ms));
    if (ms > 0)
        r->pin.n_tools = r->n_tools;
    r->pin.ms = ms > r->pin.ms ? ms : r->pin.ms;
    return T9_STATUS_OK;
}

t9_status anthropic_tools(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
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

t9_status anthropic_tool_choice(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const names[] = {"type", "disable_parallel_tool_use", "name"};
    str type = json_str(json_get(v, "type"));
    yyjson_val *one = json_get(v, "disable_parallel_tool_use");
    if (str_eqz(type, "any") || str_eqz(type, "tool"))
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, f->name, "unsupported_parameter",
                         "tool_choice of type " STR_FMT
                         " is not supported: calls can't be enforced yet; auto and none are taken",
                         STR_ARG(type));
    if (!str_eqz(type, "auto") && !str_eqz(type, "none"))
        return policy_wrong(c, f->name, "an object of type auto or none", v);
    T9_TRY(policy_members(c, v, names, T9_COUNT(names), f->name, f->name));
    if (one && !yyjson_is_null(one) && !yyjson_is_bool(one))
        return policy_wrong(c, "tool_choice.disable_parallel_tool_use", "true or false", one);
    c->request->no_calls = str_eqz(type, "none");
    c->request->one_call = yyjson_is_true(one);
    return T9_STATUS_OK;
}
