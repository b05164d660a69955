/*
 * protocol/openai_fields.h - private to the openai_*.c files: rows of field tables that several
 * requests share, and the parsers behind them. A row is written once, so that a field means the
 * same everywhere.
 */
#ifndef T9_PROTOCOL_OPENAI_FIELDS_H
#define T9_PROTOCOL_OPENAI_FIELDS_H

#include "protocol/policy.h"

/* Each takes its field's value into the request; see struct policy_field. */
t9_status openai_model(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_messages(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_stream_options(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_seed(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_top_k(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_top_p(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_stop(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_stop_token_ids(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_logit_bias(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_template_kwargs(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_enable_thinking(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_reasoning_effort(struct policy_ctx *c, const struct policy_field *f,
                                  yyjson_val *v);
t9_status openai_tools(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_tool_choice(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status openai_parallel(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
/* A call's arguments in messages[i]: text, or an object, of which text is made. */
t9_status openai_arguments(struct policy_ctx *c, size_t i, yyjson_val *v, str *out);
/* An array of token ids into *out, made in the request's arena. */
t9_status openai_token_array(struct policy_ctx *c, const char *name, yyjson_val *v,
                             struct chat_prompt *out);
/* Values that ask for nothing. */
bool openai_is_one(yyjson_val *v);

/* Parses `body` by a table. */
t9_status openai_parse(str body, bool strict, const struct policy_field *fields, size_t n_fields,
                       struct chat_request *out, struct chat_error *err);
/* 400: the field is missing. */
t9_status openai_missing(const char *name, struct chat_error *err);

#define MEMBER(m) .offset = offsetof(struct chat_request, m)
#define HONOURED(n, fn, ...)                                                                       \
    {                                                                                              \
        .name = (n), .cls = POLICY_HONOURED, .parse = (fn), __VA_ARGS__                            \
    }
#define CLAMPED(n, fn, ...)                                                                        \
    {                                                                                              \
        .name = (n), .cls = POLICY_CLAMPED, .parse = (fn), __VA_ARGS__                             \
    }
#define NO_EFFECT(n, why)                                                                          \
    {                                                                                              \
        .name = (n), .cls = POLICY_NO_EFFECT, .note = (why)                                        \
    }
#define REFUSED(n, ok, why)                                                                        \
    {                                                                                              \
        .name = (n), .cls = POLICY_REFUSED, .neutral = (ok), .note = (why)                         \
    }

#define OPENAI_MODEL                                                                               \
    HONOURED("model", openai_model, .schema = "{\"type\":\"string\"}",                             \
             .note = "a name from /v1/models; absent or \"default\": the served one")
#define OPENAI_MESSAGES                                                                            \
    HONOURED("messages", openai_messages,                                                          \
             .schema = "{\"$ref\":\"#/components/schemas/Messages\"}",                             \
             .note = "roles system, developer, user, assistant, tool; text content")

/* How an answer is sampled, ended and sent. */
#define OPENAI_SAMPLING                                                                            \
    HONOURED("temperature", policy_f32, .min = 0, .max = 100, MEMBER(sampling.temperature),        \
             .note = "0 is greedy"),                                                               \
        HONOURED("top_p", openai_top_p, .min = 0, .max = 1, MEMBER(sampling.top_p),                \
                 .schema = "{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}",           \
                 .note = "greater than 0; 1 is off"),                                              \
        HONOURED("top_k", openai_top_k, .min = -1, .max = 2147483647, MEMBER(sampling.top_k),      \
                 .schema = "{\"type\":\"integer\",\"minimum\":-1,\"maximum\":2147483647}",         \
                 .note = "0 or -1 is off"),                                                        \
        HONOURED("min_p", policy_f32, .min = 0, .max = 1, MEMBER(sampling.min_p),                  \
                 .note = "0 is off"),                                                              \
        HONOURED("presence_penalty", policy_f32, .min = -2, .max = 2,                              \
                 MEMBER(sampling.presence_penalty),                                                \
                 .note = "taken from the logit of each token that the answer has; 0 is off"),      \
        HONOURED("frequency_penalty", policy_f32, .min = -2, .max = 2,                             \
                 MEMBER(sampling.frequency_penalty),                                               \
                 .note = "taken from a token's logit for each time that the answer has it; 0 is "  \
                         "off"),                                                                   \
        HONOURED("repetition_penalty", policy_f32, .min = 0.01, .max = 10,                         \
                 MEMBER(sampling.repetition_penalty),                                              \
                 .note = "divides positive and multiplies negative logits of tokens that prompt "  \
                         "or answer have; 1 is off"),                                              \
        HONOURED("repeat_penalty", policy_f32, .min = 0.01, .max = 10,                             \
                 MEMBER(sampling.repetition_penalty), .same_as = "repetition_penalty",             \
                 .note = "as repetition_penalty"),                                                 \
        HONOURED(                                                                                  \
            "logit_bias", openai_logit_bias,                                                       \
            .schema = "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[0-9]{1,9}$\"},"     \
                      "\"additionalProperties\":{\"type\":\"number\",\"minimum\":-100,"            \
                      "\"maximum\":100},\"maxProperties\":1024}",                                  \
            .note = "token id to a number from -100 to 100, at most 1024; added to the logit"),    \
        HONOURED("seed", openai_seed,                                                              \
                 .schema = "{\"type\":\"integer\",\"minimum\":-9223372036854775808,"               \
                           "\"maximum\":18446744073709551615}",                                    \
                 .note = "absent: chosen at random and told in the reply; a negative one stands "  \
                         "for its 64 bits, so that -1 is 18446744073709551615")

#define OPENAI_ENDING                                                                              \
    HONOURED("stop", openai_stop,                                                                  \
             .schema = "{\"oneOf\":[{\"type\":\"string\",\"minLength\":1,\"maxLength\":64},"       \
                       "{\"type\":\"array\",\"maxItems\":16,\"items\":{\"type\":\"string\","       \
                       "\"minLength\":1,\"maxLength\":64}}]}",                                     \
             .note = "a string or up to 16, of 1 to 256 bytes; exact across token edges"),         \
        HONOURED("stop_token_ids", openai_stop_token_ids,                                          \
                 .schema = "{\"type\":\"array\",\"maxItems\":128,\"items\":{\"type\":\"integer\"," \
                           "\"minimum\":0,\"maximum\":2147483647}}",                               \
                 .note = "up to 128 tokens that end the answer and are not part of it"),           \
        HONOURED("min_tokens", policy_i32, .min = 0, .max = 2147483647, MEMBER(min_tokens),        \
                 .note = "what ends the answer, but for max_tokens, counts only after so many "    \
                         "tokens; a stop string counts that is complete after them"),              \
        HONOURED("ignore_eos", policy_bool, MEMBER(ignore_eos),                                    \
                 .note = "goes on past end-of-answer tokens, for measurements")

#define OPENAI_CHOICES                                                                             \
    HONOURED("n", policy_i32, .min = 1, .max = CHAT_CHOICES_MAX, MEMBER(n),                        \
             .note = "answers to each prompt; the prompt is computed once"),                       \
        HONOURED("return_token_ids", policy_bool, MEMBER(token_ids),                               \
                 .note = "the reply has prompt_token_ids and each choice token_ids")

#define OPENAI_SENDING                                                                             \
    HONOURED("stream", policy_bool, MEMBER(stream), .note = "server-sent events"),                 \
        HONOURED("stream_options", openai_stream_options,                                          \
                 .schema = "{\"type\":\"object\",\"properties\":{\"include_usage\":{\"type\":"     \
                           "\"boolean\"}}}",                                                       \
                 .note = "include_usage: a last chunk with the token counts"),                     \
        HONOURED("timings", policy_bool, MEMBER(timings),                                          \
                 .note = "the reply has a timings object: phases, tokens computed and reused"),    \
        HONOURED("priority", policy_i32, .min = -CHAT_PRIORITY_MAX, .max = CHAT_PRIORITY_MAX,      \
                 MEMBER(priority), .note = "higher is served first; 0 is normal"),                 \
        HONOURED("queue_timeout_ms", policy_i64, .min = 1, .max = CHAT_QUEUE_TIMEOUT_MAX_MS,       \
                 MEMBER(queue_timeout_ms),                                                         \
                 .note = "503 when the answer was not begun this long after the request came")

#define OPENAI_TEMPLATE                                                                            \
    HONOURED("chat_template_kwargs", openai_template_kwargs, .schema = "{\"type\":\"object\"}",    \
             .note = "variables for the chat template, such as enable_thinking"),                  \
        CLAMPED("enable_thinking", openai_enable_thinking, .schema = "{\"type\":\"boolean\"}",     \
                .note = "for the chat template; a warning when it has no such switch"),            \
        CLAMPED(                                                                                   \
            "reasoning_effort", openai_reasoning_effort,                                           \
            .schema =                                                                              \
                "{\"enum\":[\"none\",\"minimal\",\"low\",\"medium\",\"high\",\"xhigh\",\"max\"]}", \
            .note = "for the chat template; where it only knows enable_thinking, none and "        \
                    "minimal turn that off; a warning when it knows neither")

#define OPENAI_TOOLS                                                                               \
    HONOURED("tools", openai_tools, .schema = "{\"$ref\":\"#/components/schemas/Tools\"}",         \
             .note = "functions that the model may call, at most 512; strict is refused: schemas " \
                     "are not enforced yet"),                                                      \
        HONOURED("tool_choice", openai_tool_choice, .schema = "{\"enum\":[\"auto\",\"none\"]}",    \
                 .note = "auto, or none: the model is told of no tools; required and named ones "  \
                         "are refused: calls can't be enforced yet")

#define OPENAI_PARALLEL                                                                            \
    HONOURED("parallel_tool_calls", openai_parallel, .schema = "{\"type\":\"boolean\"}",           \
             .note = "false: the answer ends with its first call")

/* What is refused in every request for an answer. */
#define OPENAI_NOT_ENFORCED                                                                        \
    REFUSED("guided_json", NULL, "constrained output is not enforced yet"),                        \
        REFUSED("guided_regex", NULL, "constrained output is not enforced yet"),                   \
        REFUSED("guided_choice", NULL, "constrained output is not enforced yet"),                  \
        REFUSED("guided_grammar", NULL, "constrained output is not enforced yet"),                 \
        REFUSED("grammar", policy_is_empty, "constrained output is not enforced yet"),             \
        REFUSED("json_schema", policy_is_empty, "constrained output is not enforced yet"),         \
        REFUSED("bad_words", policy_is_empty, "not enforced; logit_bias does it for tokens"),      \
        REFUSED("typical_p", openai_is_one, "this sampler is not there"),                          \
        REFUSED("mirostat", policy_is_zero, "this sampler is not there")

/* What is accepted without effect in every one. */
#define OPENAI_WITHOUT_EFFECT                                                                      \
    NO_EFFECT("user", "callers are not told apart"),                                               \
        NO_EFFECT("safety_identifier", "callers are not told apart"),                              \
        NO_EFFECT("service_tier", "there is one tier"),                                            \
        NO_EFFECT("prompt_cache_key", "equal prompts are found by their content"),                 \
        NO_EFFECT("prompt_cache_retention", "equal prompts are found by their content"),           \
        NO_EFFECT("cache_prompt", "equal prompts are found by their content"),                     \
        NO_EFFECT("timings_per_token", "the phases are given once, at the end, with timings")

/* What is refused or has no effect where nothing is ever stored. */
#define OPENAI_NOT_HONOURED                                                                        \
    OPENAI_NOT_ENFORCED, NO_EFFECT("store", "only responses are ever stored"),                     \
        NO_EFFECT("metadata", "nothing is stored"), OPENAI_WITHOUT_EFFECT

#endif
