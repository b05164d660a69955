/*
 * cli/visible.h - text from elsewhere as a terminal may have it. A model, a file or a server must
 * not drive the terminal: control characters (C0 but for those named below, DEL, C1) come out as
 * \x1b and the like, and what is not UTF-8 as U+FFFD. One thread at a time.
 */
#ifndef T9_CLI_VISIBLE_H
#define T9_CLI_VISIBLE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct visible {
    bool lines; /* line feeds and tabs stay */
    char held[4];
    size_t n_held; /* the start of a character that the next piece may complete */
};

/* Appends a piece of a text. Pieces may be cut anywhere. */
void visible_push(struct visible *v, const char *p, size_t n, struct buf *out);
/* The text ends here; another one may begin. */
void visible_end(struct visible *v, struct buf *out);

#endif
