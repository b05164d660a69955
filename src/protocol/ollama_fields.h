/*
 * protocol/ollama_fields.h - private to the ollama_*.c files: rows that the requests of that API
 * share, and the parsers behind them.
 */
#ifndef T9_PROTOCOL_OLLAMA_FIELDS_H
#define T9_PROTOCOL_OLLAMA_FIELDS_H

#include "protocol/openai_fields.h"

t9_status ollama_model(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status ollama_think(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status ollama_options(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
/* Members of options. */
t9_status ollama_top_p(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status ollama_seed(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status ollama_num_predict(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status ollama_repeat_last_n(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
/* Values that ask for nothing. */
bool ollama_is_true(yyjson_val *v);

/* Parses the body; a stream is what a request without `stream` wants. */
t9_status ollama_parse(str body, bool strict, const struct policy_field *fields, size_t n_fields,
                       struct chat_request *out, struct chat_error *err);
/* A request without anything to answer asks to load the model, which is done, or with keep_alive 0
 * to unload it, which is refused. */
t9_status ollama_load(struct chat_request *r, struct chat_error *err);

#define OLLAMA_MODEL                                                                               \
    HONOURED("model", ollama_model, .schema = "{\"type\":\"string\"}",                             \
             .note = "the served model's name, with or without :latest; absent or \"default\": "   \
                     "the served one")

#define OLLAMA_THINKING                                                                            \
    CLAMPED("think", ollama_think,                                                                 \
            .schema = "{\"enum\":[true,false,\"low\",\"medium\",\"high\"]}",                       \
            .note = "for the chat template, as enable_thinking and reasoning_effort are; a "       \
                    "warning when it has no such switch")

#define OLLAMA_SENDING                                                                             \
    HONOURED("stream", policy_bool, MEMBER(stream), .note = "lines of JSON; true when absent"),    \
        HONOURED("logprobs", policy_bool, MEMBER(logprobs),                                        \
                 .note = "log probabilities of the answer's tokens, as the model gave them"),      \
        HONOURED("top_logprobs", policy_i32, .min = 0, .max = T9_TOP_LOGPROBS_MAX, MEMBER(n_top),  \
                 .note = "of so many likeliest tokens beside each; with logprobs")

#define OLLAMA_NOT_HONOURED                                                                        \
    REFUSED("format", policy_is_empty, "constrained output is not enforced yet"),                  \
        NO_EFFECT("keep_alive", "the model stays loaded while the server runs; 0 with nothing to " \
                                "answer, which asks to unload it, is refused"),                    \
        NO_EFFECT("truncate", "nothing is ever cut off; what is too long is refused"),             \
        NO_EFFECT("shift", "nothing is ever cut off; an answer ends where the context does")

#define OLLAMA_AT_START "decided when the server starts"
#define OLLAMA_OPTIONS                                                                             \
    HONOURED("options", ollama_options, .schema = "{\"type\":\"object\"}",                         \
             .note = "sampling and lengths, listed as options.NAME; without one the server's own " \
                     "defaults hold, as on its other APIs"),                                       \
        HONOURED("options.temperature", policy_f32, .min = 0, .max = 100,                          \
                 MEMBER(sampling.temperature), .note = "0 is greedy"),                             \
        HONOURED("options.top_k", openai_top_k, .min = -1, .max = 2147483647,                      \
                 MEMBER(sampling.top_k),                                                           \
                 .schema = "{\"type\":\"integer\",\"minimum\":-1,\"maximum\":2147483647}",         \
                 .note = "0 or -1 is off"),                                                        \
        HONOURED("options.top_p", ollama_top_p, .min = 0, .max = 1, MEMBER(sampling.top_p),        \
                 .schema = "{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",                    \
                 .note = "1 is off; 0 keeps the likeliest token alone"),                           \
        HONOURED("options.min_p", policy_f32, .min = 0, .max = 1, MEMBER(sampling.min_p),          \
                 .note = "0 is off"),                                                              \
        HONOURED("options.repeat_penalty", policy_f32, .min = 0, .max = 10,                        \
                 MEMBER(sampling.repetition_penalty), .note = "0 and 1 are off"),                  \
        CLAMPED("options.repeat_last_n", ollama_repeat_last_n, .min = -1, .max = 2147483647,       \
                .schema = "{\"type\":\"integer\",\"minimum\":-1,\"maximum\":2147483647}",          \
                .note = "0 turns the penalties off; else they look at all of prompt and answer, "  \
                        "with a warning where fewer were asked for"),                              \
        HONOURED("options.presence_penalty", policy_f32, .min = -2, .max = 2,                      \
                 MEMBER(sampling.presence_penalty), .note = "0 is off"),                           \
        HONOURED("options.frequency_penalty", policy_f32, .min = -2, .max = 2,                     \
                 MEMBER(sampling.frequency_penalty), .note = "0 is off"),                          \
        HONOURED("options.seed", ollama_seed, .schema = "{\"type\":\"integer\"}",                  \
                 .note = "negative or absent: chosen at random and told in the reply"),            \
        HONOURED("options.stop", openai_stop,                                                      \
                 .schema = "{\"oneOf\":[{\"type\":\"string\",\"minLength\":1,\"maxLength\":64},"   \
                           "{\"type\":\"array\",\"maxItems\":16,\"items\":{\"type\":\"string\","   \
                           "\"minLength\":1,\"maxLength\":64}}]}",                                 \
                 .note = "a string or up to 16, of 1 to 256 bytes; exact across token edges"),     \
        CLAMPED("options.num_predict", ollama_num_predict, .min = -2, .max = 2147483647,           \
                MEMBER(max_tokens),                                                                \
                .schema = "{\"type\":\"integer\",\"minimum\":-2,\"maximum\":2147483647}",          \
                .note =                                                                            \
                    "at most what fits the context beside the prompt; 0, -1 and -2: all that"),    \
        CLAMPED("options.num_ctx", policy_i64, .min = 0, .max = 2147483647, MEMBER(wanted_length), \
                .note = "a warning when it is more than a request may have here; memory is taken " \
                        "as it is used, so that a smaller one changes nothing"),                   \
        REFUSED("options.typical_p", openai_is_one, "this sampler is not there"),                  \
        REFUSED("options.tfs_z", openai_is_one, "this sampler is not there"),                      \
        REFUSED("options.mirostat", policy_is_zero, "this sampler is not there"),                  \
        REFUSED("options.penalize_newline", ollama_is_true, "penalties make no exceptions"),       \
        REFUSED("options.vocab_only", policy_is_false, "a model is loaded whole"),                 \
        REFUSED("options.embedding_only", policy_is_false, "there are no embeddings yet"),         \
        NO_EFFECT("options.mirostat_tau", "of a sampler that is not there"),                       \
        NO_EFFECT("options.mirostat_eta", "of a sampler that is not there"),                       \
        NO_EFFECT("options.num_keep", "nothing is ever cut off"),                                  \
        NO_EFFECT("options.num_batch", OLLAMA_AT_START),                                           \
        NO_EFFECT("options.num_gpu", OLLAMA_AT_START),                                             \
        NO_EFFECT("options.main_gpu", OLLAMA_AT_START),                                            \
        NO_EFFECT("options.num_thread", OLLAMA_AT_START),                                          \
        NO_EFFECT("options.numa", OLLAMA_AT_START),                                                \
        NO_EFFECT("options.low_vram", OLLAMA_AT_START),                                            \
        NO_EFFECT("options.f16_kv", OLLAMA_AT_START),                                              \
        NO_EFFECT("options.use_mmap", OLLAMA_AT_START),                                            \
        NO_EFFECT("options.use_mlock", OLLAMA_AT_START),                                           \
        NO_EFFECT("options.logits_all", "logprobs gives them")

#endif
