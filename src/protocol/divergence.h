/*
 * protocol/divergence.h - the texts at the place where a prompt left what was cached, for the debug
 * log. Prompts never go to a log unless the operator asked for this by name.
 */
#ifndef T9_PROTOCOL_DIVERGENCE_H
#define T9_PROTOCOL_DIVERGENCE_H

#include "base/buf.h"
#include "tempo9.h"

/* For `diverged` of struct t9_engine_params; `model` is the engine's t9_model. Logs one line at
 * level debug. On the engine thread: it allocates, which is why it is off by default. */
void divergence_log(void *model, const struct t9_divergence *d);
/* Appends the two texts as JSON strings, and their tokens: cached ".." (1 2), asked for ".." (3).
 */
void divergence_write(const t9_model *m, const struct t9_divergence *d, struct buf *out);

#endif
