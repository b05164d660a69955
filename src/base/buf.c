/*
 * base/buf.c - growable byte buffer with a maximum and a sticky failure.
 *
 * Capacity doubles up to max + 1: the spare byte is for the NUL that vsnprintf writes, which is
 * never counted. One thread at a time.
 */
#include "base/buf.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BUF_CAP_MIN 64

void buf_init(struct buf *b, size_t max_bytes)
{
    *b = (struct buf){.max = max_bytes};
}

void buf_deinit(struct buf *b)
{
    mem_free(b->p);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->failed = false;
}

/* Room for n more counted bytes and one more; false sets `failed`. */
static bool grow(struct buf *b, size_t n)
{
    if (b->failed)
        return false;
    if (n > b->max - b->n) {
        b->failed = true;
        return false;
    }
    size_t need = b->n + n;
    if (need < b->cap)
        return true;
    size_t cap = b->cap < BUF_CAP_MIN ? BUF_CAP_MIN : b->cap;
    while (cap <= need)
        cap = cap > SIZE_MAX / 2 ? SIZE_MAX : cap * 2;
    if (b->max < SIZE_MAX && cap > b->max + 1)
        cap = b->max + 1;
    char *p = mem_realloc(b->p, cap, 1);
    if (!p) {
        b->failed = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void buf_append(struct buf *b, const void *p, size_t n)
{
    if (n == 0 || !grow(b, n))
        return;
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void buf_puts(struct buf *b, const char *z)
{
    buf_append(b, z, strlen(z));
}

void buf_putc(struct buf *b, char c)
{
    buf_append(b, &c, 1);
}

void buf_puts_str(struct buf *b, str s)
{
    buf_append(b, s.p, s.n);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_list again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
    } else if (grow(b, (size_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

char *buf_reserve(struct buf *b, size_t n)
{
    return grow(b, n) ? b->p + b->n : NULL;
}

void buf_consume(struct buf *b, size_t n)
{
    if (n > b->n)
        n = b->n;
    b->n -= n;
    if (b->n)
        memmove(b->p, b->p + n, b->n);
}
