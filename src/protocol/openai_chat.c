/*
 * protocol/openai_chat.c - reads a chat completion request by the table below; rows that
 * completions have too are in openai_fields.h. Writing is in openai_format.c. Any thread; nothing
 * here has state.
 *
 * If you add a field: one row in the table; /v1/capabilities follows, and tests/unit/protocol
 * checks each row against what the parser does.
 */
#include "protocol/openai_chat.h"

#include "protocol/chat_parts.h"
#include "protocol/chat_tools.h"
#include "protocol/openai_fields.h"

#include <stdio.h>
#include <string.h>

/* ---- parsers of single fields ---- */

static t9_status bad_message(struct policy_ctx *c, size_t i, const char *member, const char *wanted,
                             yyjson_val *v)
{
    char name[64];
    (void)snprintf(name, sizeof name, "messages[%zu]%s%s", i, *member ? "." : "", member);
    return policy_wrong(c, name, wanted, v);
}

static t9_status parse_role(struct policy_ctx *c, size_t i, yyjson_val *v, chat_role *out)
{
    static const struct {
        const char *name;
        chat_role role;
    } roles[] = {
        {"system", CHAT_ROLE_SYSTEM}, {"developer", CHAT_ROLE_SYSTEM},
        {"user", CHAT_ROLE_USER},     {"assistant", CHAT_ROLE_ASSISTANT},
        {"tool", CHAT_ROLE_TOOL},     {"function", CHAT_ROLE_TOOL},
    };
    str name = json_str(v);
    for (size_t k = 0; k < T9_COUNT(roles); k++) {
        if (str_eqz(name, roles[k].name)) {
            *out = roles[k].role;
            return T9_STATUS_OK;
        }
    }
    return bad_message(c, i, "role", "system, developer, user, assistant or tool", v);
}

/* Members of a message that nobody knows. `annotations` come back from other servers and are no
 * part of the prompt; `cache_control` of a part is meant for them. */
static t9_status check_members(struct policy_ctx *c, size_t i, yyjson_val *v)
{
    static const char *const members[] = {
        "role",       "content",       "name",        "tool_call_id", "reasoning_content",
        "tool_calls", "function_call", "annotations", "reasoning",    "refusal"};
    char where[64];
    (void)snprintf(where, sizeof where, "messages[%zu]", i);
    return policy_members(c, v, members, T9_COUNT(members), where, "a message");
}

/* One part's text; images and the like are refused by name. */
static t9_status part_text(struct policy_ctx *c, const char *where, yyjson_val *part, str *out)
{
    static const char *const members[] = {"type", "text", "refusal", "cache_control"};
    str type = json_str(json_get(part, "type"));
    yyjson_val *text = json_get(part, str_eqz(type, "refusal") ? "refusal" : "text");
    if (!yyjson_is_obj(part) || type.n == 0)
        return policy_wrong(c, where, "a string or an array of objects with a type", part);
    T9_TRY(policy_members(c, part, members, T9_COUNT(members), where, "a content part"));
    if (!str_eqz(type, "text") && !str_eqz(type, "refusal"))
        return chat_part_refused(c, where, part);
    if (!yyjson_is_str(text))
        return policy_wrong(c, where, "made of parts that have a text", text);
    *out = json_str(text);
    return T9_STATUS_OK;
}

static t9_status parse_content(struct policy_ctx *c, size_t i, yyjson_val *v,
                               struct chat_message *m)
{
    m->has_content = true;
    if (yyjson_is_str(v)) {
        m->content = json_str(v);
        return T9_STATUS_OK;
    }
    char where[64];
    (void)snprintf(where, sizeof where, "messages[%zu].content", i);
    if (yyjson_is_arr(v) && yyjson_arr_size(v) > 0)
        return chat_join_parts(c, where, v, part_text, &m->content);
    m->has_content = false;
    if (m->role == CHAT_ROLE_ASSISTANT && (!v || yyjson_is_null(v)))
        return T9_STATUS_OK;
    return bad_message(c, i, "content", "a string or an array of at least one part", v);
}

/* Arguments as the client had them from us, text, or as others send them, an object. */
t9_status openai_arguments(struct policy_ctx *c, size_t i, yyjson_val *v, str *out)
{
    struct buf text;
    if (!v || yyjson_is_null(v) || yyjson_is_str(v)) {
        *out = json_str(v);
        return T9_STATUS_OK;
    }
    if (!yyjson_is_obj(v))
        return bad_message(c, i, "tool_calls", "made of calls whose arguments are a string", v);
    buf_init(&text, c->request->arena.max);
    json_write_val(&text, v);
    *out = text.failed ? (str){0} : arena_str(&c->request->arena, buf_str(&text));
    buf_deinit(&text);
    return out->p ? T9_STATUS_OK
                  : chat_fail(c->err, T9_STATUS_TOO_LARGE, "messages", NULL,
                              "the arguments of messages[%zu] are too large", i);
}

static t9_status parse_tool_calls(struct policy_ctx *c, size_t i, yyjson_val *v,
                                  struct chat_message *m)
{
    size_t idx, max;
    yyjson_val *call;
    if (!v || yyjson_is_null(v) || policy_is_empty(v))
        return T9_STATUS_OK;
    if (!yyjson_is_arr(v) || m->role != CHAT_ROLE_ASSISTANT)
        return bad_message(c, i, "tool_calls", "an array, in a message of the assistant", v);
    struct chat_call *calls = chat_calls_new(c, "messages", yyjson_arr_size(v));
    if (!calls)
        return c->err->err.code;
    yyjson_arr_foreach(v, idx, max, call)
    {
        yyjson_val *fn = json_get(call, "function");
        if (!yyjson_is_str(json_get(fn, "name")))
            return bad_message(c, i, "tool_calls", "made of calls that have a function.name", call);
        calls[idx].id = json_str(json_get(call, "id"));
        calls[idx].name = json_str(json_get(fn, "name"));
        T9_TRY(openai_arguments(c, i, json_get(fn, "arguments"), &calls[idx].args));
    }
    m->calls = calls;
    m->n_calls = max;
    return T9_STATUS_OK;
}

static t9_status optional_str(struct policy_ctx *c, size_t i, yyjson_val *msg, const char *member,
                              str *out)
{
    yyjson_val *v = json_get(msg, member);
    if (v && !yyjson_is_null(v) && !yyjson_is_str(v))
        return bad_message(c, i, member, "a string", v);
    *out = json_str(v);
    return T9_STATUS_OK;
}

static t9_status parse_message(struct policy_ctx *c, size_t i, yyjson_val *v,
                               struct chat_message *m)
{
    if (!yyjson_is_obj(v))
        return bad_message(c, i, "", "an object with role and content", v);
    T9_TRY(check_members(c, i, v));
    T9_TRY(parse_role(c, i, json_get(v, "role"), &m->role));
    T9_TRY(parse_content(c, i, json_get(v, "content"), m));
    T9_TRY(optional_str(c, i, v, "name", &m->name));
    T9_TRY(optional_str(c, i, v, "tool_call_id", &m->tool_call_id));
    T9_TRY(optional_str(c, i, v, "reasoning_content", &m->reasoning));
    if (m->reasoning.n == 0) /* the newer name */
        T9_TRY(optional_str(c, i, v, "reasoning", &m->reasoning));
    yyjson_val *old = json_get(v, "function_call");
    if (old && !yyjson_is_null(old))
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, "messages", "unsupported_parameter",
                         "messages[%zu].function_call is the old form: use tool_calls", i);
    return parse_tool_calls(c, i, json_get(v, "tool_calls"), m);
}

t9_status openai_messages(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    size_t n = yyjson_arr_size(v), idx, max;
    yyjson_val *item;
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array of messages", v);
    if (n == 0)
        return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                         "messages is empty: it must have at least one message");
    if (n > CHAT_MESSAGES_MAX)
        return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                         "messages has %zu entries, and at most %d are taken", n,
                         CHAT_MESSAGES_MAX);
    r->messages = arena_calloc(&r->arena, n, sizeof *r->messages);
    if (!r->messages)
        return chat_fail(c->err, T9_STATUS_NOMEM, f->name, NULL, "no memory for %zu messages", n);
    r->n_messages = n;
    yyjson_arr_foreach(v, idx, max, item)
    {
        T9_TRY(parse_message(c, idx, item, &r->messages[idx]));
    }
    chat_check_results(r);
    return T9_STATUS_OK;
}

static t9_status parse_verbosity(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    str s = json_str(v);
    if (!str_eqz(s, "low") && !str_eqz(s, "medium") && !str_eqz(s, "high"))
        return policy_wrong(c, f->name, "low, medium or high", v);
    if (!str_eqz(s, "medium"))
        chat_warn(c->request, "verbosity was ignored: models served here have no such switch");
    return T9_STATUS_OK;
}

/* ---- values that ask for nothing ---- */

static bool is_text_format(yyjson_val *v)
{
    return str_eqz(json_str(json_get(v, "type")), "text");
}

static bool is_none_or_auto(yyjson_val *v)
{
    return str_eqz(json_str(v), "none") || str_eqz(json_str(v), "auto");
}

static bool is_text_only(yyjson_val *v)
{
    return yyjson_is_arr(v) && yyjson_arr_size(v) == 1 &&
           str_eqz(json_str(yyjson_arr_get_first(v)), "text");
}

#define MAX_TOKENS(n, other)                                                                       \
    {                                                                                              \
        .name = (n), .cls = POLICY_CLAMPED, .parse = policy_i64, .min = 1,                         \
        .max = 9007199254740991.0, MEMBER(max_tokens), .same_as = (other),                         \
        .note = "at most what fits the context beside the prompt"                                  \
    }

const struct policy_field openai_chat_fields[] = {
    OPENAI_MODEL,
    OPENAI_MESSAGES,
    MAX_TOKENS("max_tokens", NULL),
    MAX_TOKENS("max_completion_tokens", "max_tokens"),
    OPENAI_SAMPLING,
    OPENAI_ENDING,
    OPENAI_CHOICES,
    OPENAI_SENDING,
    HONOURED("logprobs", policy_bool, MEMBER(logprobs),
             .note = "log probabilities of the answer's tokens, as the model gave them: before "
                     "bias, penalties, temperature and filters"),
    HONOURED("top_logprobs", policy_i32, .min = 0, .max = T9_TOP_LOGPROBS_MAX, MEMBER(n_top),
             .note = "of so many likeliest tokens beside each; with logprobs"),
    OPENAI_TEMPLATE,
    OPENAI_TOOLS,
    OPENAI_PARALLEL,
    REFUSED("functions", policy_is_empty, "the old form: use tools"),
    REFUSED("function_call", is_none_or_auto, "the old form: use tool_choice"),
    REFUSED("response_format", is_text_format,
            "only {\"type\":\"text\"}: nothing else is enforced yet"),
    REFUSED("modalities", is_text_only, "text is the only modality"),
    REFUSED("audio", NULL, "text is the only modality"),
    REFUSED("web_search_options", NULL, "no connection to the outside is made"),
    REFUSED("echo", policy_is_false, "the prompt is not repeated; /v1/completions can do that"),
    NO_EFFECT("prediction", "a hint for speed only"),
    CLAMPED("verbosity", parse_verbosity, .schema = "{\"enum\":[\"low\",\"medium\",\"high\"]}",
            .note = "a warning where it is not medium: models served here have no such switch"),
    OPENAI_NOT_HONOURED,
};
const size_t openai_chat_n_fields = T9_COUNT(openai_chat_fields);

static t9_status parse(str body, bool strict, struct chat_request *out, struct chat_error *err)
{
    T9_TRY(openai_parse(body, strict, openai_chat_fields, openai_chat_n_fields, out, err));
    if (out->n_messages == 0)
        return openai_missing("messages", err);
    if (out->n_top > 0 && !out->logprobs)
        return chat_fail(err, T9_STATUS_INVALID, "top_logprobs", "invalid_value",
                         "top_logprobs needs logprobs to be true");
    return T9_STATUS_OK;
}

const struct chat_adapter openai_chat_adapter = {
    .name = "openai_chat",
    .path = "/v1/chat/completions",
    .summary = "Answers a conversation.",
    .fields = openai_chat_fields,
    .n_fields = T9_COUNT(openai_chat_fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/ChatCompletion\"}",
    .stream_type = "text/event-stream",
    .id_prefix = "chatcmpl-",
    .comment = ": keep-alive\n\n",
    .parse = parse,
    .stream = openai_chat_stream,
    .whole = openai_chat_whole,
};
