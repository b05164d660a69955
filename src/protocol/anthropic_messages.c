/*
 * protocol/anthropic_messages.c - the fields of a Messages request, and its two adapters. Content
 * is read in anthropic_content.c, tools in anthropic_tools.c; anthropic_write.c answers. Any
 * thread; nothing here has state.
 *
 * If you add a field: one row in the table; /v1/capabilities follows, and tests/unit/protocol
 * checks each row against what the parser does.
 */
#include "protocol/anthropic_impl.h"

#include "protocol/openai_fields.h"
#include "protocol/openai_write.h"
#include "protocol/prep.h"

#include <stdio.h>

/* ---- parsers of single fields ---- */

/* That API thinks only when it is asked to, so an absent field turns it off, where that can be.
 * What was thought is shown, whatever `display` says: only so does it come back with the
 * conversation. */
static t9_status parse_thinking(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const names[] = {"type", "budget_tokens", "display"};
    struct chat_request *r = c->request;
    str type = json_str(json_get(v, "type"));
    yyjson_val *budget = json_get(v, "budget_tokens");
    int64_t n = 0;
    bool enabled = str_eqz(type, "enabled");
    if (!enabled && !str_eqz(type, "adaptive") && !str_eqz(type, "disabled"))
        return policy_wrong(c, f->name, "an object of type enabled, adaptive or disabled",
                            yyjson_is_obj(v) ? json_get(v, "type") : v);
    T9_TRY(policy_members(c, v, names, T9_COUNT(names), f->name, f->name));
    if (enabled && (!policy_whole(budget, &n) || n < 1))
        return policy_wrong(c, "thinking.budget_tokens", "a whole number of at least 1", budget);
    if (enabled)
        chat_warn(r, "thinking.budget_tokens is not enforced: the model thinks for as long as it "
                     "wants, within max_tokens");
    r->thinking = !str_eqz(type, "disabled");
    r->thinking_is_wish = !enabled;
    r->thinking_field = f->name;
    return T9_STATUS_OK;
}

static t9_status parse_output_config(struct policy_ctx *c, const struct policy_field *f,
                                     yyjson_val *v)
{
    static const char *const names[] = {"effort", "format"};
    static const char *const known[] = {"low", "medium", "high", "xhigh", "max"};
    struct chat_request *r = c->request;
    yyjson_val *effort = json_get(v, "effort"), *format = json_get(v, "format");
    size_t i = 0;
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    T9_TRY(policy_members(c, v, names, T9_COUNT(names), f->name, f->name));
    if (format && !yyjson_is_null(format))
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, "output_config.format",
                         "unsupported_parameter",
                         "output_config.format is not supported: constrained output is not "
                         "enforced yet");
    if (!effort || yyjson_is_null(effort))
        return T9_STATUS_OK;
    while (i < T9_COUNT(known) && !str_eqz(json_str(effort), known[i]))
        i++;
    if (i == T9_COUNT(known))
        return policy_wrong(c, "output_config.effort", "low, medium, high, xhigh or max", effort);
    /* No template knows more than high. */
    r->reasoning_effort = i < 2 ? json_str(effort) : STR("high");
    r->effort_is_wish = true;
    return T9_STATUS_OK;
}

/* 0 is that API's way to have a prompt in the cache. */
static t9_status parse_max_tokens(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    T9_TRY(policy_i64(c, f, v));
    c->request->no_reply = c->request->max_tokens == 0;
    return T9_STATUS_OK;
}

/* The mark of a whole request is one at its end; see take_end_mark. */
static t9_status parse_cache_control(struct policy_ctx *c, const struct policy_field *f,
                                     yyjson_val *v)
{
    int64_t ms;
    (void)f;
    return anthropic_cache_ms(c, "", v, &ms);
}

static t9_status parse_stops(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    return yyjson_is_arr(v) ? openai_stop(c, f, v)
                            : policy_wrong(c, f->name, "an array of strings", v);
}

static t9_status parse_container(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_str(v) && !yyjson_is_obj(v))
        return policy_wrong(c, f->name, "a string or an object", v);
    return anthropic_left_out(c, f->name, "only Anthropic's servers run code in containers");
}

static t9_status parse_mcp_servers(struct policy_ctx *c, const struct policy_field *f,
                                   yyjson_val *v)
{
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array", v);
    return policy_is_empty(v)
               ? T9_STATUS_OK
               : anthropic_left_out(c, f->name, "only Anthropic's servers connect to MCP servers");
}

/* What would be left out of the conversation on the way; all thoughts are kept anyway. */
static t9_status parse_context(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const names[] = {"edits"};
    yyjson_val *edits = json_get(v, "edits"), *edit;
    size_t idx, max;
    char brief[80];
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    T9_TRY(policy_members(c, v, names, T9_COUNT(names), f->name, f->name));
    yyjson_arr_foreach(edits, idx, max, edit)
    {
        yyjson_val *type = json_get(edit, "type");
        if (str_has_prefix(json_str(type), STR("clear_thinking_")) &&
            str_eqz(json_str(json_get(edit, "keep")), "all"))
            continue;
        chat_warn(c->request, "%s: %s is not done: the conversation is taken whole", f->name,
                  chat_brief(type, brief));
    }
    return T9_STATUS_OK;
}

/* ---- the tables ---- */

#define OBJECT_SCHEMA "{\"type\":\"object\"}"

/* What the prompt is made of. */
#define PROMPT_FIELDS                                                                              \
    OPENAI_MODEL,                                                                                  \
        HONOURED("messages", anthropic_messages,                                                   \
                 .schema = "{\"$ref\":\"#/components/schemas/AnthropicMessages\"}",                \
                 .note = "roles user, assistant and system; a string, or blocks of type text, "    \
                         "thinking, redacted_thinking, tool_use, tool_result and, as text, "       \
                         "document; images are refused"),                                          \
        HONOURED("system", anthropic_system,                                                       \
                 .schema = "{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":"      \
                           "{\"$ref\":\"#/components/schemas/Part\"}}]}",                          \
                 .note = "a string or text blocks"),                                               \
        HONOURED("tools", anthropic_tools,                                                         \
                 .schema = "{\"type\":\"array\",\"maxItems\":512,\"items\":{\"$ref\":"             \
                           "\"#/components/schemas/AnthropicTool\"}}",                             \
                 .note = "tools with an input_schema, and bash, text_editor, computer and memory " \
                         "by their dated versions; tools that Anthropic's servers run are left "   \
                         "out with a warning; strict is refused: schemas are not enforced yet"),   \
        HONOURED(                                                                                  \
            "tool_choice", anthropic_tool_choice,                                                  \
            .schema =                                                                              \
                "{\"type\":\"object\",\"properties\":{\"type\":{\"enum\":[\"auto\","               \
                "\"none\"]},\"disable_parallel_tool_use\":{\"type\":[\"boolean\",\"null\"]}},"     \
                "\"required\":[\"type\"]}",                                                        \
            .note = "auto or none, with disable_parallel_tool_use; any and tool are refused: "     \
                    "calls can't be enforced yet"),                                                \
        CLAMPED("thinking", parse_thinking, .schema = OBJECT_SCHEMA,                               \
                .note = "enabled, adaptive or disabled, for the chat template; absent: disabled; " \
                        "a warning when enabled and the template has no such switch, and that "    \
                        "budget_tokens is not enforced"),                                          \
        CLAMPED("output_config", parse_output_config, .schema = OBJECT_SCHEMA,                     \
                .note = "effort, where the chat template has that switch; above high it is high; " \
                        "format is refused: constrained output is not enforced yet"),              \
        HONOURED("cache_control", parse_cache_control, .schema = OBJECT_SCHEMA,                    \
                 .note = "here and in blocks: the cache keeps the prompt up to the last mark "     \
                         "longest, for 5m or 1h"),                                                 \
        CLAMPED("context_management", parse_context, .schema = OBJECT_SCHEMA,                      \
                .note = "nothing is left out of a conversation; a warning when that was asked "    \
                        "for"),                                                                    \
        CLAMPED("mcp_servers", parse_mcp_servers, .schema = "{\"type\":\"array\"}",                \
                .note = "left out with a warning: only Anthropic's servers connect to them"),      \
        CLAMPED("container", parse_container,                                                      \
                .note = "left out with a warning: nothing runs here")

#define ANY_FIELDS                                                                                 \
    REFUSED("output_format", NULL, "constrained output is not enforced yet"),                      \
        REFUSED("compaction", NULL, "nothing is left out of a conversation"),                      \
        REFUSED("thread", NULL, "nothing is stored"), NO_EFFECT("metadata", "nothing is stored"),  \
        NO_EFFECT("service_tier", "there is one tier"), NO_EFFECT("speed", "there is one speed"),  \
        NO_EFFECT("inference_geo", "it is all done here"),                                         \
        NO_EFFECT("diagnostics", "/v1/state and the log have them"),                               \
        NO_EFFECT("fallbacks", "one model is served"),                                             \
        NO_EFFECT("fallback_credit_token", "nothing is paid for"),                                 \
        NO_EFFECT("billing_policy", "nothing is paid for"),                                        \
        NO_EFFECT("user_profile_id", "callers are not told apart"),                                \
        NO_EFFECT("workspace_id", "callers are not told apart"),                                   \
        NO_EFFECT("betas", "what is there needs no leave"),                                        \
        NO_EFFECT("anthropic_beta", "what is there needs no leave"),                               \
        NO_EFFECT("anthropic_version", "there is one version")

static const struct policy_field messages_fields[] = {
    PROMPT_FIELDS,
    CLAMPED("max_tokens", parse_max_tokens, .required = true, .min = 0, .max = 9007199254740991.0,
            MEMBER(max_tokens),
            .schema = "{\"type\":\"integer\",\"minimum\":0,\"maximum\":9007199254740991}",
            .note = "required; at most what fits the context beside the prompt; 0: the prompt is "
                    "brought into the cache, and nothing is answered"),
    HONOURED("stream", policy_bool, MEMBER(stream), .note = "server-sent events"),
    HONOURED("stop_sequences", parse_stops,
             .schema = "{\"type\":\"array\",\"maxItems\":16,\"items\":{\"type\":\"string\","
                       "\"minLength\":1,\"maxLength\":64}}",
             .note = "up to 16, of 1 to 256 bytes; exact across token edges"),
    HONOURED("temperature", policy_f32, .min = 0, .max = 100, MEMBER(sampling.temperature),
             .note = "0 is greedy"),
    HONOURED("top_p", openai_top_p, .min = 0, .max = 1, MEMBER(sampling.top_p),
             .schema = "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}",
             .note = "greater than 0; 1 is off"),
    HONOURED("top_k", openai_top_k, .min = -1, .max = 2147483647, MEMBER(sampling.top_k),
             .schema = "{\"type\":\"integer\",\"minimum\":-1,\"maximum\":2147483647}",
             .note = "0 or -1 is off"),
    HONOURED("seed", openai_seed,
             .schema = "{\"type\":\"integer\",\"minimum\":-9223372036854775808,"
                       "\"maximum\":18446744073709551615}",
             .note = "an extension; absent: chosen at random and told in the reply"),
    HONOURED("priority", policy_i32, .min = -CHAT_PRIORITY_MAX, .max = CHAT_PRIORITY_MAX,
             MEMBER(priority), .note = "an extension; higher is served first; 0 is normal"),
    HONOURED("queue_timeout_ms", policy_i64, .min = 1, .max = CHAT_QUEUE_TIMEOUT_MAX_MS,
             MEMBER(queue_timeout_ms),
             .note = "an extension; 503 when the answer was not begun this long after the request "
                     "came"),
    ANY_FIELDS,
};

#define NOT_PROMPT(n) NO_EFFECT(n, "it is no part of the prompt")

static const struct policy_field count_fields[] = {
    PROMPT_FIELDS,
    NOT_PROMPT("max_tokens"),
    NOT_PROMPT("stream"),
    NOT_PROMPT("stop_sequences"),
    NOT_PROMPT("temperature"),
    NOT_PROMPT("top_p"),
    NOT_PROMPT("top_k"),
    NOT_PROMPT("seed"),
    ANY_FIELDS,
};

/* ---- requests ---- */

static void take_end_mark(struct chat_request *r)
{
    struct policy_ctx c = {.request = r};
    int64_t ms = 0;
    (void)anthropic_cache_ms(&c, "", json_get(yyjson_doc_get_root(r->doc), "cache_control"), &ms);
    if (ms == 0)
        return;
    r->pin.ms = ms > r->pin.ms ? ms : r->pin.ms;
    r->pin.n_messages = r->n_messages;
    r->pin.content_bytes = CHAT_PIN_ALL;
}

static t9_status parse_prompt(str body, bool strict, const struct policy_field *fields,
                              size_t n_fields, struct chat_request *r, struct chat_error *err)
{
    r->has_thinking = r->thinking_is_wish = true;
    T9_TRY(openai_parse(body, strict, fields, n_fields, r, err));
    if (!json_get(yyjson_doc_get_root(r->doc), "messages"))
        return openai_missing("messages", err);
    if (r->n_messages == 0)
        return chat_fail(err, T9_STATUS_INVALID, "messages", "invalid_value",
                         "nothing is left of the messages: there must be one with text");
    if (r->messages[r->n_messages - 1].role == CHAT_ROLE_ASSISTANT)
        return chat_fail(err, T9_STATUS_UNSUPPORTED, "messages", "unsupported_parameter",
                         "the last message is the assistant's, and an answer that goes on with one "
                         "is not supported: end with a message of the user");
    take_end_mark(r);
    return T9_STATUS_OK;
}

static t9_status parse_messages(str body, bool strict, struct chat_request *out,
                                struct chat_error *err)
{
    out->max_tokens = -1;
    T9_TRY(parse_prompt(body, strict, messages_fields, T9_COUNT(messages_fields), out, err));
    return out->max_tokens < 0 ? openai_missing("max_tokens", err) : T9_STATUS_OK;
}

static t9_status parse_count(str body, bool strict, struct chat_request *out,
                             struct chat_error *err)
{
    return parse_prompt(body, strict, count_fields, T9_COUNT(count_fields), out, err);
}

static t9_status answer_count(const struct prep *p, struct chat_request *r, struct buf *out,
                              struct chat_error *err)
{
    struct prep_ids ids;
    t9_status s = prep_tokens(p, r, &ids, err);
    if (s == T9_STATUS_OK) {
        buf_printf(out, "{\"input_tokens\":%zu", ids.n);
        anthropic_write_extras(r, NULL, NULL, out);
        buf_putc(out, '}');
    }
    prep_ids_deinit(&ids);
    return s;
}

#define EVENT_STREAM "text/event-stream"

#define ANTHROPIC_ERROR "{\"$ref\":\"#/components/schemas/AnthropicError\"}"

const struct chat_adapter anthropic_messages_adapter = {
    .name = "anthropic_messages",
    .path = "/v1/messages",
    .summary = "Answers a conversation, in Anthropic's form.",
    .fields = messages_fields,
    .n_fields = T9_COUNT(messages_fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/AnthropicMessage\"}",
    .stream_type = EVENT_STREAM,
    .id_prefix = "msg_",
    .comment = ": keep-alive\n\n",
    .ping = ANTHROPIC_PING,
    .call_prefix = ANTHROPIC_CALL_PREFIX,
    .parse = parse_messages,
    .error = anthropic_write_error,
    .error_schema = ANTHROPIC_ERROR,
    .state_bytes = sizeof(struct anthropic_state),
    .begin_has_usage = true,
    .stream = anthropic_stream,
    .whole = anthropic_whole,
};

const struct chat_adapter anthropic_count_adapter = {
    .name = "anthropic_count_tokens",
    .path = "/v1/messages/count_tokens",
    .summary = "Counts the tokens of the prompt that a Messages request would be.",
    .fields = count_fields,
    .n_fields = T9_COUNT(count_fields),
    .reply_schema = "{\"type\":\"object\",\"required\":[\"input_tokens\"],\"properties\":{"
                    "\"input_tokens\":{\"type\":\"integer\"}}}",
    .id_prefix = "",
    .parse = parse_count,
    .answer = answer_count,
    .error = anthropic_write_error,
    .error_schema = ANTHROPIC_ERROR,
};
