/*
 * tokenizer/stop.h - stop strings over a stream of text.
 *
 * The definition does not know tokens: reading the answer byte by byte, the first byte at which any
 * stop string is complete ends it; the text is cut where the longest of the strings that end there
 * begins. So the same answer is cut at the same place however it was split into tokens. Text that
 * could still turn out to be the beginning of a stop string is held back. One thread at a time.
 */
#ifndef T9_TOKENIZER_STOP_H
#define T9_TOKENIZER_STOP_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct stop_matcher {
    const str *stops; /* not owned; none is empty */
    size_t n_stops;
    size_t longest_bytes;
    size_t hit;      /* once one is complete: which of them */
    struct buf held; /* not yet known to be free of a stop string */
};

void stop_init(struct stop_matcher *m, const str *stops, size_t n_stops);
void stop_deinit(struct stop_matcher *m); /* accepts a zeroed one */
/* Takes more text and appends to `out` what is certain. true: a stop string is complete, the text
 * before it was appended, and nothing may be pushed any more. Check out->failed and held.failed. */
bool stop_push(struct stop_matcher *m, str text, struct buf *out);
/* Takes text in which no stop string counts that is complete there; one that is complete later
 * counts, also when it began here. */
void stop_pass(struct stop_matcher *m, str text, struct buf *out);
/* The answer ended without one: appends what was held back. */
void stop_finish(struct stop_matcher *m, struct buf *out);

#endif
