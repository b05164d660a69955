/*
 * protocol/divergence.h - the texts at the place where a prompt left what was cached, for the debug
 * log. Prompts never go to a log unless the operator asked for this by name.
 */
#ifndef T9_PROTOCOL_DIVERGENCE_H
#define T9_PROTOCOL_DIVERGENCE_H

#include "base/buf.h"
#include "engine/engine.h"
#include "tokenizer/tokenizer.h"

/* For engine_params.diverged; `tokenizer` is a const struct tokenizer. Logs one line at level
 * debug. On the engine thread: it allocates, which is why it is off by default. */
void divergence_log(void *tokenizer, const struct engine_divergence *d);
/* Appends the two texts as JSON strings: cached "..", asked for "..". */
void divergence_write(const struct tokenizer *t, const struct engine_divergence *d,
                      struct buf *out);

#endif
