/*
 * protocol/openai_chat.h - OpenAI's chat completions: request fields, replies, stream chunks,
 * errors.
 */
#ifndef T9_PROTOCOL_OPENAI_CHAT_H
#define T9_PROTOCOL_OPENAI_CHAT_H

#include "protocol/adapter.h"
#include "protocol/policy.h"

extern const struct chat_adapter openai_chat_adapter;

/* The protocol's fields and what is done with each. */
extern const struct policy_field openai_chat_fields[];
extern const size_t openai_chat_n_fields;

/* The adapter's writers (openai_format.c): see struct chat_adapter. */
void openai_chat_stream(const struct chat_reply *r, const struct chat_event *ev, struct buf *out);
void openai_chat_whole(const struct chat_reply *r, const struct chat_choice *choices,
                       size_t n_choices, const struct chat_event *end, struct buf *out);

/* Appends {"error":{"message":..,"type":..,"param":..,"code":..}}. */
void openai_write_error(const struct chat_error *e, struct buf *out);

#endif
