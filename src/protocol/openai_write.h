/*
 * protocol/openai_write.h - private to the openai_*.c files: pieces of replies. All append.
 */
#ifndef T9_PROTOCOL_OPENAI_WRITE_H
#define T9_PROTOCOL_OPENAI_WRITE_H

#include "protocol/openai_chat.h"

void openai_member_str(struct buf *b, const char *key, str v);
void openai_member_i64(struct buf *b, const char *key, int64_t v);
/* {"id":..,"object":..,"created":..,"model":..,"system_fingerprint":..  without the closing brace
 */
void openai_write_head(const struct chat_reply *r, const char *object, struct buf *b);
/* "usage":{..} */
void openai_write_usage(const struct chat_usage *u, struct buf *b);
/* ,"warnings":[..] where there are some. */
void openai_write_warnings(const struct chat_request *r, struct buf *b);
/* Our extensions: timings when asked for, the seed that was used, warnings. */
void openai_write_extras(const struct chat_reply *r, const struct chat_event *end, struct buf *b);

/* A token's text as a JSON string; one that is no whole characters as "bytes:\\xe6\\x97". */
void openai_write_token(const struct chat_reply *r, int32_t id, struct buf *b);
/* Its bytes as an array of numbers. */
void openai_write_bytes(const struct chat_reply *r, int32_t id, struct buf *b);
/* Probability 0 is -9999. */
void openai_write_logprob(float logprob, struct buf *b);
/* [{"token":..,"logprob":..,"bytes":..,"top_logprobs":[..]}, ..] of tokens that have them. */
void openai_write_logprobs(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b);
void openai_write_ids(const int32_t *ids, size_t n, struct buf *b);
/* "finish_reason":.. and, where a token of stop_token_ids ended it, "stop_reason":<id> */
void openai_write_finish(t9_finish finish, int32_t stop_token, struct buf *b);
/* With return_token_ids: ,"prompt_token_ids":[..] and ,"token_ids":[..] */
void openai_write_prompt_ids(const struct chat_reply *r, struct buf *b);
void openai_write_token_ids(const struct chat_reply *r, const struct chat_tokens *t, struct buf *b);
/* One choice of a whole reply, an object; index is its place. */
typedef void (*openai_choice_fn)(const struct chat_reply *r, const struct chat_choice *c,
                                 size_t index, struct buf *b);
/* A whole reply: head, choices, usage, extensions. */
void openai_write_whole(const struct chat_reply *r, const char *object,
                        const struct chat_choice *choices, size_t n_choices,
                        openai_choice_fn write_choice, const struct chat_event *end, struct buf *b);
/* The last event of a stream that broke off. */
void openai_write_stream_error(const struct chat_event *ev, struct buf *b);

#endif
