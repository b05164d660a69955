/*
 * protocol/responses.c - reads a Responses request by the table below; see responses.h for the
 * other files. Rows that chat completions have too are in openai_fields.h. Any thread; nothing here
 * has state.
 *
 * If you add a field: one row in the table; /v1/capabilities follows, and tests/unit/protocol
 * checks each row against what the parser does.
 */
#include "protocol/responses.h"

#include "protocol/chat_tools.h"
#include "protocol/openai_fields.h"

/* ---- parsers of single fields ---- */

static t9_status parse_input(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (yyjson_is_str(v) || (yyjson_is_arr(v) && yyjson_arr_size(v) > 0))
        return T9_STATUS_OK; /* read once all fields were: see responses_input */
    return policy_wrong(c, f->name, "a string or an array of at least one item", v);
}

static t9_status parse_instructions(struct policy_ctx *c, const struct policy_field *f,
                                    yyjson_val *v)
{
    return yyjson_is_str(v) ? T9_STATUS_OK : policy_wrong(c, f->name, "a string", v);
}

static t9_status parse_reasoning(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const members[] = {"effort", "summary", "generate_summary", "context",
                                          "mode"};
    static const char *const summaries[] = {"auto", "concise", "detailed"};
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    T9_TRY(policy_members(c, v, members, T9_COUNT(members), f->name, f->name));
    yyjson_val *effort = json_get(v, "effort"), *summary = json_get(v, "summary");
    if (!summary || yyjson_is_null(summary))
        summary = json_get(v, "generate_summary");
    if (effort && !yyjson_is_null(effort)) {
        static const struct policy_field row = {.name = "reasoning.effort"};
        T9_TRY(openai_reasoning_effort(c, &row, effort));
    }
    if (!summary || yyjson_is_null(summary))
        return T9_STATUS_OK;
    for (size_t i = 0; i < T9_COUNT(summaries); i++)
        responses_own(c->request)->summarise |= str_eqz(json_str(summary), summaries[i]);
    return responses_own(c->request)->summarise
               ? T9_STATUS_OK
               : policy_wrong(c, "reasoning.summary", "auto, concise or detailed", summary);
}

/* What hosted tools found is never there. */
static t9_status parse_include(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const of_hosted[] = {"file_search_call.results",
                                            "web_search_call.results",
                                            "web_search_call.action.sources",
                                            "message.input_image.image_url",
                                            "computer_call_output.output.image_url",
                                            "code_interpreter_call.outputs"};
    size_t idx, max;
    yyjson_val *item;
    char brief[80];
    if (!yyjson_is_arr(v))
        return policy_wrong(c, f->name, "an array of names", v);
    yyjson_arr_foreach(v, idx, max, item)
    {
        bool known = false;
        for (size_t i = 0; i < T9_COUNT(of_hosted); i++)
            known |= str_eqz(json_str(item), of_hosted[i]);
        if (str_eqz(json_str(item), "reasoning.encrypted_content"))
            responses_own(c->request)->seal = true;
        else if (str_eqz(json_str(item), "message.output_text.logprobs"))
            c->request->logprobs = true;
        else if (!known && (c->strict || !yyjson_is_str(item)))
            return policy_wrong(c, f->name, "made of names that are known", item);
        else if (!known)
            chat_warn(c->request, "%s of include is not known and was ignored",
                      chat_brief(item, brief));
    }
    return T9_STATUS_OK;
}

static t9_status parse_top_logprobs(struct policy_ctx *c, const struct policy_field *f,
                                    yyjson_val *v)
{
    T9_TRY(policy_i32(c, f, v));
    c->request->logprobs |= c->request->n_top > 0;
    return T9_STATUS_OK;
}

static t9_status parse_text(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    static const char *const members[] = {"format", "verbosity"};
    char brief[80];
    if (!yyjson_is_obj(v))
        return policy_wrong(c, f->name, "an object", v);
    T9_TRY(policy_members(c, v, members, T9_COUNT(members), f->name, f->name));
    yyjson_val *format = json_get(v, "format"), *verbosity = json_get(v, "verbosity");
    if (format && !yyjson_is_null(format) && !str_eqz(json_str(json_get(format, "type")), "text"))
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, "text.format", "unsupported_parameter",
                         "text.format of type %s is not supported: nothing but text is enforced "
                         "yet",
                         chat_brief(json_get(format, "type"), brief));
    if (yyjson_is_str(verbosity) && !str_eqz(json_str(verbosity), "medium"))
        chat_warn(c->request, "text.verbosity was ignored: models served here have no such switch");
    return T9_STATUS_OK;
}

static t9_status parse_truncation(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!str_eqz(json_str(v), "auto") && !str_eqz(json_str(v), "disabled"))
        return policy_wrong(c, f->name, "auto or disabled", v);
    if (str_eqz(json_str(v), "auto"))
        chat_warn(c->request, "truncation auto was taken for disabled: a conversation that is too "
                              "long is refused, never cut");
    return T9_STATUS_OK;
}

static t9_status parse_store(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_bool(v))
        return policy_wrong(c, f->name, "true or false", v);
    responses_own(c->request)->keep = c->request->keeping.store && yyjson_is_true(v);
    if (yyjson_is_true(v) && !c->request->keeping.store)
        chat_warn(c->request, "store was ignored: this server was not started with --store");
    return T9_STATUS_OK;
}

static t9_status parse_previous(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_str(v))
        return policy_wrong(c, f->name, "a string", v);
    if (!c->request->keeping.store)
        return chat_fail(c->err, T9_STATUS_UNSUPPORTED, f->name, "unsupported_parameter",
                         "%s needs stored responses: start the server with --store FILE, or send "
                         "the conversation as input",
                         f->name);
    responses_own(c->request)->previous = json_str(v);
    return T9_STATUS_OK;
}

const struct policy_field responses_fields[] = {
    OPENAI_MODEL,
    HONOURED("input", parse_input, .schema = "{\"$ref\":\"#/components/schemas/Input\"}",
             .note =
                 "text, or items: messages of user, assistant, system and developer, reasoning, "
                 "function and custom tool calls and their outputs; text content; items of "
                 "other kinds are ignored with a warning"),
    HONOURED("instructions", parse_instructions, .schema = "{\"type\":\"string\"}",
             .note = "a system message before the input"),
    CLAMPED("max_output_tokens", policy_i64, .min = 1, .max = 9007199254740991.0,
            MEMBER(max_tokens), .note = "at most what fits the context beside the prompt"),
    OPENAI_SAMPLING,
    OPENAI_ENDING,
    OPENAI_SENDING,
    HONOURED("top_logprobs", parse_top_logprobs, .min = 0, .max = T9_TOP_LOGPROBS_MAX,
             MEMBER(n_top), .schema = "{\"type\":\"integer\",\"minimum\":0,\"maximum\":20}",
             .note = "log probabilities of each token of the text and of so many likeliest ones; 0 "
                     "gives none, unless include names message.output_text.logprobs"),
    CLAMPED("reasoning", parse_reasoning, .schema = "{\"type\":\"object\"}",
            .note = "effort, as reasoning_effort of chat completions; with summary auto, concise "
                    "or detailed the reasoning itself is given as the summary"),
    HONOURED("include", parse_include,
             .schema = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}",
             .note = "reasoning.encrypted_content: reasoning as an opaque text that may be sent "
                     "back; message.output_text.logprobs; what hosted tools would have found is "
                     "never there"),
    HONOURED("chat_template_kwargs", openai_template_kwargs, .schema = "{\"type\":\"object\"}",
             .note = "variables for the chat template, such as enable_thinking"),
    CLAMPED("enable_thinking", openai_enable_thinking, .schema = "{\"type\":\"boolean\"}",
            .note = "for the chat template; a warning when it has no such switch"),
    CLAMPED("tools", responses_tools,
            .schema = "{\"type\":\"array\",\"maxItems\":512,\"items\":{\"$ref\":"
                      "\"#/components/schemas/ResponseTool\"}}",
            .note = "functions, custom tools, and namespaces of both, at most 512; strict is "
                    "refused: schemas are not enforced yet; tools that a server runs, such as "
                    "web_search, are left out with a warning"),
    HONOURED("tool_choice", responses_tool_choice,
             .schema =
                 "{\"anyOf\":[{\"enum\":[\"auto\",\"none\"]},{\"type\":\"object\",\"required\":"
                 "[\"type\",\"mode\",\"tools\"],\"properties\":{\"type\":{\"const\":"
                 "\"allowed_tools\"},\"mode\":{\"const\":\"auto\"},\"tools\":{\"type\":"
                 "\"array\"}}}]}",
             .note = "auto, none, or allowed_tools with mode auto: the model is told of these "
                     "only; required and named ones are refused: calls can't be enforced yet"),
    OPENAI_PARALLEL,
    CLAMPED("text", parse_text, .schema = "{\"type\":\"object\"}",
            .note = "format: only {\"type\":\"text\"}, others are refused; verbosity is ignored "
                    "with a warning"),
    CLAMPED("truncation", parse_truncation, .schema = "{\"enum\":[\"auto\",\"disabled\"]}",
            .note = "a conversation is never cut: auto is taken for disabled, with a warning"),
    CLAMPED("store", parse_store, .schema = "{\"type\":\"boolean\"}",
            .note = "with --store: true when absent; without it nothing is stored, with a warning "
                    "where it is true"),
    HONOURED("previous_response_id", parse_previous, .schema = "{\"type\":\"string\"}",
             .note = "with --store: the conversation goes on from there, without its instructions; "
                     "refused without --store"),
    REFUSED("conversation", NULL, "use previous_response_id, or send it as input"),
    REFUSED("background", policy_is_false, "answers are given on the connection that asked"),
    REFUSED("prompt", NULL, "no prompts are stored"),
    REFUSED("context_management", policy_is_empty, "conversations are never compacted"),
    REFUSED("moderation", NULL, "nothing is moderated"),
    NO_EFFECT("metadata", "it comes back in the reply"),
    NO_EFFECT("client_metadata", "nothing is stored"),
    NO_EFFECT("max_tool_calls", "it counts hosted tools, of which there are none"),
    NO_EFFECT("prompt_cache_options", "equal prompts are found by their content"),
    OPENAI_NOT_ENFORCED,
    OPENAI_WITHOUT_EFFECT,
};
const size_t responses_n_fields = T9_COUNT(responses_fields);

/* ---- what replies repeat ---- */

static void tell(struct buf *b, const char *name, yyjson_val *v, const char *otherwise)
{
    buf_putc(b, ',');
    json_write_key(b, name);
    if (v && !yyjson_is_null(v))
        json_write_val(b, v);
    else
        buf_puts(b, otherwise);
}

static void tell_f32(struct buf *b, const char *name, float v)
{
    buf_putc(b, ',');
    json_write_key(b, name);
    buf_printf(b, "%.7g", (double)v);
}

static void tell_reasoning(struct buf *b, yyjson_val *v)
{
    yyjson_val *summary = json_get(v, "summary");
    buf_puts(b, ",\"reasoning\":{\"effort\":");
    if (json_str(json_get(v, "effort")).p)
        json_write_str(b, json_str(json_get(v, "effort")));
    else
        buf_puts(b, "null");
    tell(b, "summary", summary ? summary : json_get(v, "generate_summary"), "null");
    buf_putc(b, '}');
}

static yyjson_val *if_object(yyjson_val *v)
{
    return yyjson_is_obj(v) ? v : NULL;
}

static yyjson_val *if_string(yyjson_val *v)
{
    return yyjson_is_str(v) ? v : NULL;
}

static t9_status make_told(struct chat_request *r, yyjson_val *body, struct chat_error *err)
{
    struct responses_own *own = responses_own(r);
    struct buf b;
    buf_init(&b, r->kept.max);
    buf_puts(&b, ",\"background\":false");
    tell(&b, "instructions", json_get(body, "instructions"), "null");
    tell(&b, "max_output_tokens", json_get(body, "max_output_tokens"), "null");
    buf_puts(&b, ",\"max_tool_calls\":null");
    tell(&b, "metadata", if_object(json_get(body, "metadata")), "{}");
    buf_printf(&b, ",\"parallel_tool_calls\":%s", r->one_call ? "false" : "true");
    tell(&b, "previous_response_id", json_get(body, "previous_response_id"), "null");
    tell(&b, "prompt_cache_key", if_string(json_get(body, "prompt_cache_key")), "null");
    tell_reasoning(&b, json_get(body, "reasoning"));
    tell(&b, "safety_identifier", if_string(json_get(body, "safety_identifier")), "null");
    buf_printf(&b, ",\"service_tier\":\"default\",\"store\":%s", own->keep ? "true" : "false");
    tell_f32(&b, "temperature", r->sampling.temperature);
    buf_puts(&b, ",\"text\":{\"format\":{\"type\":\"text\"}}");
    tell(&b, "tool_choice", json_get(body, "tool_choice"), "\"auto\"");
    buf_puts(&b, ",\"tools\":");
    buf_puts_str(&b, own->tools_text.p ? own->tools_text : STR("[]"));
    buf_printf(&b, ",\"top_logprobs\":%d", r->n_top);
    tell_f32(&b, "top_p", r->sampling.top_p);
    buf_puts(&b, ",\"truncation\":\"disabled\"");
    tell(&b, "user", if_string(json_get(body, "user")), "null");
    own->told = b.failed ? (str){0} : arena_str(&r->kept, buf_str(&b));
    buf_deinit(&b);
    return own->told.p ? T9_STATUS_OK
                       : chat_fail(err, T9_STATUS_TOO_LARGE, NULL, NULL,
                                   "instructions, tools and metadata are too large together");
}

/* ---- the adapter ---- */

static t9_status parse(str body, bool strict, struct chat_request *out, struct chat_error *err)
{
    struct policy_ctx c = {out, err, strict};
    out->prompt_field = "input";
    out->limit_field = "max_output_tokens";
    out->extra = arena_calloc(&out->kept, 1, sizeof(struct responses_own));
    if (!out->extra)
        return chat_fail(err, T9_STATUS_NOMEM, NULL, NULL, "no memory for a request");
    responses_own(out)->keep = out->keeping.store != NULL;
    T9_TRY(openai_parse(body, strict, responses_fields, responses_n_fields, out, err));
    yyjson_val *root = yyjson_doc_get_root(out->doc), *input = json_get(root, "input");
    if (!input || yyjson_is_null(input))
        return openai_missing("input", err);
    T9_TRY(responses_allow_tools(&c, root));
    T9_TRY(responses_input(&c, root));
    return make_told(out, root, err);
}

const struct chat_adapter responses_adapter = {
    .name = "openai_responses",
    .path = "/v1/responses",
    .summary = "Answers a conversation of items.",
    .fields = responses_fields,
    .n_fields = T9_COUNT(responses_fields),
    .reply_schema = "{\"$ref\":\"#/components/schemas/Response\"}",
    .stream_type = "text/event-stream",
    .id_prefix = "resp_",
    .comment = ": keep-alive\n\n",
    .parse = parse,
    .state_bytes = RESPONSES_STATE_BYTES,
    .keeps_choices = true,
    .counts_tokens = true,
    .stream = responses_stream,
    .whole = responses_whole,
};
