/*
 * base/buf.h - growable byte buffer that cannot be made without a maximum.
 *
 * Failure (maximum reached, out of memory) is sticky: later appends do nothing, `failed` stays set,
 * and the caller checks once at the end. One thread at a time.
 */
#ifndef T9_BASE_BUF_H
#define T9_BASE_BUF_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *p;
    size_t n, cap, max;
    bool failed;
};

void buf_init(struct buf *b, size_t max_bytes);
void buf_deinit(struct buf *b); /* accepts a zeroed buf */
void buf_clear(struct buf *b);  /* n = 0, failed = false, keeps memory */
void buf_append(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *z);
void buf_putc(struct buf *b, char c);
void buf_puts_str(struct buf *b, str s);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Makes room for n more bytes and returns where to write them, or NULL; then set b->n yourself. */
char *buf_reserve(struct buf *b, size_t n);
/* Removes the first n bytes. */
void buf_consume(struct buf *b, size_t n);
static inline str buf_str(const struct buf *b)
{
    return (str){b->p, b->n};
}

#endif
