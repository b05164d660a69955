/*
 * protocol/anthropic.h - Anthropic's Messages API: requests, replies, stream events, errors.
 */
#ifndef T9_PROTOCOL_ANTHROPIC_H
#define T9_PROTOCOL_ANTHROPIC_H

#include "protocol/adapter.h"

extern const struct chat_adapter anthropic_messages_adapter, anthropic_count_adapter;

/* Appends {"type":"error","error":{"type":..,"message":..},"request_id":..}. */
void anthropic_write_error(const struct chat_error *e, struct buf *out);

#endif
