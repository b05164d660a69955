/*
 * protocol/openai_chat.c - reads a chat completion request by the table below. Writing is in
 * openai_format.c. Any thread; nothing here has state.
 *
 * If you add a field: one row in the table; /v1/capabilities follows, and tests/unit/protocol
 * checks each row against what the parser does.
 */
#include "protocol/openai_chat.h"

#include <stdio.h>
#include <string.h>

#define MEMBER(m) .offset = offsetof(struct chat_request, m)

/* ---- parsers of single fields ---- */

static t9_status parse_model(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_str(v))
        return policy_wrong(c, f->name, "a string", v);
    c->request->model = json_str(v);
    return T9_STATUS_OK;
}

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

/* One part's text; images and the like are refused by name. */
static t9_status part_text(struct policy_ctx *c, size_t i, yyjson_val *part, str *out)
{
    str type = json_str(json_get(part, "type"));
    yyjson_val *text = json_get(part, str_eqz(type, "refusal") ? "refusal" : "text");
    if (!yyjson_is_obj(part) || type.n == 0)
        return bad_message(c, i, "content", "a string or an array of objects with a type", part);
    if (!str_eqz(type, "text") && !str_eqz(type, "refusal")) {
        char brief[80], name[64];
        (void)snprintf(name, sizeof name, "messages[%zu].content", i);
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, name, "unsupported_content",
                         "%s has a part of type %s, and this model takes text only: leave it out",
                         name, chat_brief(json_get(part, "type"), brief));
    }
    if (!yyjson_is_str(text))
        return bad_message(c, i, "content", "made of parts that have a text", text);
    *out = json_str(text);
    return T9_STATUS_OK;
}

/* Parts joined by a line feed, as chat templates that take strings expect. */
static t9_status join_parts(struct policy_ctx *c, size_t i, yyjson_val *parts, str *out)
{
    size_t n_bytes = 0, idx, max, at = 0;
    yyjson_val *part;
    str text;
    yyjson_arr_foreach(parts, idx, max, part)
    {
        T9_TRY(part_text(c, i, part, &text));
        n_bytes += text.n + (idx ? 1 : 0);
    }
    if (yyjson_arr_size(parts) == 1) {
        *out = text;
        return T9_STATUS_OK;
    }
    char *p = arena_alloc(&c->request->arena, n_bytes + 1);
    if (!p)
        return chat_fail(c->err, T9_STATUS_TOO_LARGE, "messages", NULL,
                         "the parts of messages[%zu] are too large together", i);
    yyjson_arr_foreach(parts, idx, max, part)
    {
        T9_TRY(part_text(c, i, part, &text));
        if (idx)
            p[at++] = '\n';
        if (text.n)
            memcpy(p + at, text.p, text.n);
        at += text.n;
    }
    *out = (str){p, n_bytes};
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
    if (yyjson_is_arr(v) && yyjson_arr_size(v) > 0)
        return join_parts(c, i, v, &m->content);
    m->has_content = false;
    if (m->role == CHAT_ROLE_ASSISTANT && (!v || yyjson_is_null(v)))
        return T9_STATUS_OK;
    return bad_message(c, i, "content", "a string or an array of at least one part", v);
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
    yyjson_arr_foreach(v, idx, max, call)
    {
        yyjson_val *fn = json_get(call, "function");
        if (!yyjson_is_str(json_get(fn, "name")))
            return bad_message(c, i, "tool_calls", "made of calls that have a function.name", call);
    }
    m->tool_calls = v;
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
    T9_TRY(parse_role(c, i, json_get(v, "role"), &m->role));
    T9_TRY(parse_content(c, i, json_get(v, "content"), m));
    T9_TRY(optional_str(c, i, v, "name", &m->name));
    T9_TRY(optional_str(c, i, v, "tool_call_id", &m->tool_call_id));
    T9_TRY(optional_str(c, i, v, "reasoning_content", &m->reasoning));
    yyjson_val *old = json_get(v, "function_call");
    if (old && !yyjson_is_null(old))
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, "messages", "unsupported_parameter",
                         "messages[%zu].function_call is the old form: use tool_calls", i);
    return parse_tool_calls(c, i, json_get(v, "tool_calls"), m);
}

static t9_status parse_messages(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
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
    return T9_STATUS_OK;
}

static t9_status parse_stream_options(struct policy_ctx *c, const struct policy_field *f,
                                      yyjson_val *v)
{
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    yyjson_val *usage = json_get(v, "include_usage");
    if (!usage || yyjson_is_null(usage))
        return T9_STATUS_OK;
    if (!yyjson_is_bool(usage))
        return policy_wrong(c, "stream_options.include_usage", "true or false", usage);
    c->request->include_usage = yyjson_is_true(usage);
    return T9_STATUS_OK;
}

static t9_status parse_seed(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_int(v))
        return policy_wrong(c, f->name, "a whole number of 64 bits", v);
    c->request->sampling.seed =
        yyjson_is_uint(v) ? yyjson_get_uint(v) : (uint64_t)yyjson_get_sint(v);
    c->request->has_seed = true;
    return T9_STATUS_OK;
}

/* -1 is what several clients send for "off". */
static t9_status parse_top_k(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    T9_TRY(policy_i32(c, f, v));
    if (c->request->sampling.top_k < 0)
        c->request->sampling.top_k = 0;
    return T9_STATUS_OK;
}

static t9_status parse_top_p(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (yyjson_is_num(v) && !(yyjson_get_num(v) > 0))
        return policy_wrong(c, f->name, "greater than 0 and at most 1", v);
    return policy_f32(c, f, v);
}

static t9_status add_stop(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    struct chat_request *r = c->request;
    str s = json_str(v);
    if (!yyjson_is_str(v) || s.n == 0 || s.n > CHAT_STOP_BYTES_MAX)
        return policy_wrong(c, f->name, "made of strings of 1 to 256 bytes", v);
    if (r->n_stops == CHAT_STOPS_MAX)
        return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                         "stop has more than %d strings", CHAT_STOPS_MAX);
    r->stops[r->n_stops++] = s;
    return T9_STATUS_OK;
}

static t9_status parse_stop(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    size_t idx, max;
    yyjson_val *item;
    c->request->n_stops = 0;
    if (!yyjson_is_arr(v))
        return add_stop(c, f, v);
    yyjson_arr_foreach(v, idx, max, item)
    {
        T9_TRY(add_stop(c, f, item));
    }
    return T9_STATUS_OK;
}

static t9_status parse_template_kwargs(struct policy_ctx *c, const struct policy_field *f,
                                       yyjson_val *v)
{
    static const char *const ours[] = {"messages",  "tools",     "documents",
                                       "bos_token", "eos_token", "add_generation_prompt"};
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    for (size_t i = 0; i < T9_COUNT(ours); i++) {
        if (json_get(v, ours[i]))
            return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                             "chat_template_kwargs must not set %s: the server does", ours[i]);
    }
    c->request->template_kwargs = v;
    return T9_STATUS_OK;
}

/* ---- values that ask for nothing ---- */

static bool is_text_format(yyjson_val *v)
{
    return str_eqz(json_str(json_get(v, "type")), "text");
}

static bool is_one(yyjson_val *v)
{
    return yyjson_is_num(v) && !(yyjson_get_num(v) < 1) && !(yyjson_get_num(v) > 1);
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

#define HONOURED(n, fn, ...)                                                                       \
    {                                                                                              \
        .name = (n), .cls = POLICY_HONOURED, .parse = (fn), __VA_ARGS__                            \
    }
#define NO_EFFECT(n, why)                                                                          \
    {                                                                                              \
        .name = (n), .cls = POLICY_NO_EFFECT, .note = (why)                                        \
    }
#define REFUSED(n, ok, why)                                                                        \
    {                                                                                              \
        .name = (n), .cls = POLICY_REFUSED, .neutral = (ok), .note = (why)                         \
    }
#define MAX_TOKENS(n)                                                                              \
    {                                                                                              \
        .name = (n), .cls = POLICY_CLAMPED, .parse = policy_i64, .min = 1,                         \
        .max = 9007199254740991.0, MEMBER(max_tokens),                                             \
        .note = "at most what fits the context beside the prompt"                                  \
    }

const struct policy_field openai_chat_fields[] = {
    HONOURED("model", parse_model,
             .note = "a name from /v1/models; absent or \"default\": the served one"),
    HONOURED("messages", parse_messages,
             .note = "roles system, developer, user, assistant, tool; text content"),
    HONOURED("stream", policy_bool, MEMBER(stream), .note = "server-sent events"),
    HONOURED("stream_options", parse_stream_options,
             .note = "include_usage: a last chunk with the token counts"),
    MAX_TOKENS("max_tokens"),
    MAX_TOKENS("max_completion_tokens"),
    HONOURED("temperature", policy_f32, .min = 0, .max = 100, MEMBER(sampling.temperature),
             .note = "0 is greedy"),
    HONOURED("top_p", parse_top_p, .min = 0, .max = 1, MEMBER(sampling.top_p),
             .note = "greater than 0; 1 is off"),
    HONOURED("top_k", parse_top_k, .min = -1, .max = 2147483647, MEMBER(sampling.top_k),
             .note = "0 or -1 is off"),
    HONOURED("min_p", policy_f32, .min = 0, .max = 1, MEMBER(sampling.min_p), .note = "0 is off"),
    HONOURED("seed", parse_seed, .note = "absent: chosen at random and told in the reply"),
    HONOURED("stop", parse_stop, .note = "a string or up to 16; exact across token edges"),
    HONOURED("priority", policy_i32, .min = -CHAT_PRIORITY_MAX, .max = CHAT_PRIORITY_MAX,
             MEMBER(priority), .note = "higher is served first; 0 is normal"),
    HONOURED("queue_timeout_ms", policy_i64, .min = 1, .max = CHAT_QUEUE_TIMEOUT_MAX_MS,
             MEMBER(queue_timeout_ms),
             .note = "503 when the answer was not begun this long after the request came"),
    HONOURED("timings", policy_bool, MEMBER(timings),
             .note = "the reply has a timings object: phases, tokens computed and reused"),
    HONOURED("ignore_eos", policy_bool, MEMBER(ignore_eos),
             .note = "goes on past end-of-answer tokens, for measurements"),
    HONOURED("chat_template_kwargs", parse_template_kwargs,
             .note = "variables for the chat template, such as enable_thinking"),
    REFUSED("n", is_one, "only one answer per request is given now"),
    REFUSED("tools", policy_is_empty, "tool calls are not parsed yet"),
    REFUSED("tool_choice", is_none_or_auto, "tool calls are not parsed yet"),
    REFUSED("functions", policy_is_empty, "tool calls are not parsed yet"),
    REFUSED("function_call", is_none_or_auto, "tool calls are not parsed yet"),
    REFUSED("logprobs", policy_is_false, "log probabilities are not given yet"),
    REFUSED("top_logprobs", policy_is_zero, "log probabilities are not given yet"),
    REFUSED("logit_bias", policy_is_empty, "biases are not applied yet"),
    REFUSED("presence_penalty", policy_is_zero, "penalties are not applied yet; 0 is fine"),
    REFUSED("frequency_penalty", policy_is_zero, "penalties are not applied yet; 0 is fine"),
    REFUSED("repetition_penalty", is_one, "penalties are not applied yet; 1 is fine"),
    REFUSED("repeat_penalty", is_one, "penalties are not applied yet; 1 is fine"),
    REFUSED("response_format", is_text_format,
            "only {\"type\":\"text\"}: nothing else is enforced yet"),
    REFUSED("guided_json", NULL, "constrained output is not enforced yet"),
    REFUSED("guided_regex", NULL, "constrained output is not enforced yet"),
    REFUSED("guided_choice", NULL, "constrained output is not enforced yet"),
    REFUSED("guided_grammar", NULL, "constrained output is not enforced yet"),
    REFUSED("grammar", policy_is_empty, "constrained output is not enforced yet"),
    REFUSED("json_schema", policy_is_empty, "constrained output is not enforced yet"),
    REFUSED("modalities", is_text_only, "text is the only modality"),
    REFUSED("audio", NULL, "text is the only modality"),
    REFUSED("web_search_options", NULL, "no connection to the outside is made"),
    REFUSED("store", policy_is_false, "nothing is stored"),
    REFUSED("echo", policy_is_false, "the prompt is not repeated"),
    REFUSED("min_tokens", policy_is_zero, "not enforced"),
    REFUSED("bad_words", policy_is_empty, "not enforced"),
    REFUSED("stop_token_ids", policy_is_empty, "use stop"),
    REFUSED("typical_p", is_one, "this sampler is not there"),
    REFUSED("mirostat", policy_is_zero, "this sampler is not there"),
    REFUSED("reasoning_effort", NULL, "use chat_template_kwargs where the template has a switch"),
    REFUSED("verbosity", NULL, "models served here have no such switch"),
    NO_EFFECT("metadata", "nothing is stored"),
    NO_EFFECT("user", "callers are not told apart"),
    NO_EFFECT("safety_identifier", "callers are not told apart"),
    NO_EFFECT("service_tier", "there is one tier"),
    NO_EFFECT("prompt_cache_key", "equal prompts are found by their content"),
    NO_EFFECT("prompt_cache_retention", "equal prompts are found by their content"),
    NO_EFFECT("cache_prompt", "equal prompts are found by their content"),
    NO_EFFECT("timings_per_token", "the phases are given once, at the end, with timings"),
    NO_EFFECT("parallel_tool_calls", "tool calls are not parsed yet"),
    NO_EFFECT("prediction", "a hint for speed only"),
};
const size_t openai_chat_n_fields = T9_COUNT(openai_chat_fields);

static t9_status parse(str body, bool strict, struct chat_request *out, struct chat_error *err)
{
    struct t9_err e = {0};
    struct policy_ctx ctx = {out, err, strict};
    t9_status s = json_parse(&out->doc, body, JSON_LIMITS_REQUEST, &e);
    if (s != T9_STATUS_OK)
        return chat_fail(err, s == T9_STATUS_NOMEM ? s : T9_STATUS_INVALID, NULL, "invalid_json",
                         "the body is not acceptable JSON: %s", e.msg);
    yyjson_val *root = yyjson_doc_get_root(out->doc);
    char brief[80];
    if (!yyjson_is_obj(root))
        return chat_fail(err, T9_STATUS_INVALID, NULL, "invalid_value",
                         "the body must be a JSON object, not %s", chat_brief(root, brief));
    T9_TRY(policy_walk(&ctx, openai_chat_fields, openai_chat_n_fields, root));
    if (out->n_messages == 0)
        return chat_fail(err, T9_STATUS_INVALID, "messages", "missing_required_parameter",
                         "messages is missing");
    return T9_STATUS_OK;
}

const struct chat_adapter openai_chat_adapter = {
    .name = "openai_chat",
    .stream_type = "text/event-stream",
    .id_prefix = "chatcmpl-",
    .comment = ": keep-alive\n\n",
    .parse = parse,
    .stream = openai_chat_stream,
    .whole = openai_chat_whole,
};
