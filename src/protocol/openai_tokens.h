/*
 * protocol/openai_tokens.h - what needs no engine: text to tokens and back, messages to the text of
 * a prompt. Members that other local servers use for the same are understood and given as well.
 */
#ifndef T9_PROTOCOL_OPENAI_TOKENS_H
#define T9_PROTOCOL_OPENAI_TOKENS_H

#include "protocol/adapter.h"

extern const struct chat_adapter tokenize_adapter;
extern const struct chat_adapter detokenize_adapter;
extern const struct chat_adapter apply_template_adapter;

#endif
