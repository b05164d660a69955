/*
 * cli/visible.c - see visible.h. Held bytes and a new piece are joined only around the cut; the
 * rest is read where it lies.
 */
#include "cli/visible.h"

#include "base/utf8.h"

#include <string.h>

static void put(const struct visible *v, const char *p, size_t n, struct buf *out)
{
    uint32_t cp = 0;
    for (size_t i = 0, len; i < n; i += len ? len : 1) {
        len = utf8_decode(p + i, n - i, &cp);
        bool control = cp < 0x20 || (cp >= 0x7F && cp < 0xA0);
        if (len == 0)
            buf_puts(out, "\xEF\xBF\xBD");
        else if (!control || (v->lines && (cp == '\n' || cp == '\t')))
            buf_append(out, p + i, len);
        else
            buf_printf(out, "\\x%02x", (unsigned)cp);
    }
}

void visible_push(struct visible *v, const char *p, size_t n, struct buf *out)
{
    while (v->n_held > 0 && n > 0) {
        v->held[v->n_held++] = *p++;
        n--;
        if (utf8_incomplete_tail((str){v->held, v->n_held}) == v->n_held)
            continue;
        /* A character is whole, or this byte has spoiled it and may begin another one itself. */
        size_t tail = utf8_incomplete_tail((str){v->held, v->n_held});
        put(v, v->held, v->n_held - tail, out);
        memmove(v->held, v->held + v->n_held - tail, tail);
        v->n_held = tail;
    }
    size_t tail = n > 0 ? utf8_incomplete_tail((str){p, n}) : 0;
    put(v, p, n - tail, out);
    if (tail > 0)
        memcpy(v->held, p + n - tail, tail);
    v->n_held += tail;
}

void visible_end(struct visible *v, struct buf *out)
{
    if (v->n_held > 0)
        buf_puts(out, "\xEF\xBF\xBD");
    v->n_held = 0;
}
