/*
 * protocol/openai_completions.h - OpenAI's text completions: prompts as they are, no messages.
 */
#ifndef T9_PROTOCOL_OPENAI_COMPLETIONS_H
#define T9_PROTOCOL_OPENAI_COMPLETIONS_H

#include "protocol/adapter.h"

extern const struct chat_adapter openai_completions_adapter;

/* The protocol's fields and what is done with each. */
extern const struct policy_field openai_completions_fields[];
extern const size_t openai_completions_n_fields;

#endif
