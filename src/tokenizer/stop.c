/*
 * tokenizer/stop.c - see stop.h. Texts and stop strings are short (a token, 256 bytes), so plain
 * comparison is enough: the last byte is looked at first.
 */
#include "tokenizer/stop.h"

#include <string.h>

void stop_init(struct stop_matcher *m, const str *stops, size_t n_stops)
{
    memset(m, 0, sizeof *m);
    m->stops = stops;
    m->n_stops = n_stops;
    for (size_t i = 0; i < n_stops; i++)
        if (stops[i].n > m->longest_bytes)
            m->longest_bytes = stops[i].n;
    buf_init(&m->held, (size_t)1 << 20);
}

void stop_deinit(struct stop_matcher *m)
{
    buf_deinit(&m->held);
}

/* Bytes of the longest stop string that ends at the end of `s`, 0 when none does. Notes which. */
static size_t complete_at_end(struct stop_matcher *m, str s)
{
    size_t best = 0;
    for (size_t i = 0; i < m->n_stops; i++) {
        str stop = m->stops[i];
        if (stop.n > best && stop.n <= s.n && stop.p[stop.n - 1] == s.p[s.n - 1] &&
            str_has_suffix(s, stop)) {
            best = stop.n;
            m->hit = i;
        }
    }
    return best;
}

/* Bytes at the end of `s` that begin a stop string. */
static size_t begun_at_end(const struct stop_matcher *m, str s)
{
    size_t from = s.n >= m->longest_bytes ? s.n - (m->longest_bytes - 1) : 0;
    for (; from < s.n; from++) {
        str tail = str_slice(s, from, s.n);
        for (size_t i = 0; i < m->n_stops; i++)
            if (tail.n < m->stops[i].n && str_has_prefix(m->stops[i], tail))
                return tail.n;
    }
    return 0;
}

/* Appends what can't be the beginning of a stop string any more. */
static void release(struct stop_matcher *m, struct buf *out)
{
    size_t keep = begun_at_end(m, buf_str(&m->held));
    size_t free_bytes = m->held.n - keep;
    buf_append(out, m->held.p, free_bytes);
    buf_consume(&m->held, free_bytes);
}

bool stop_push(struct stop_matcher *m, str text, struct buf *out)
{
    if (m->n_stops == 0) {
        buf_puts_str(out, text);
        return false;
    }
    size_t seen = m->held.n;
    buf_puts_str(&m->held, text);
    for (size_t end = seen + 1; end <= m->held.n; end++) {
        size_t n = complete_at_end(m, (str){m->held.p, end});
        if (n) {
            buf_append(out, m->held.p, end - n);
            buf_clear(&m->held);
            return true;
        }
    }
    release(m, out);
    return false;
}

void stop_pass(struct stop_matcher *m, str text, struct buf *out)
{
    if (m->n_stops == 0) {
        buf_puts_str(out, text);
        return;
    }
    buf_puts_str(&m->held, text);
    release(m, out);
}

void stop_finish(struct stop_matcher *m, struct buf *out)
{
    buf_puts_str(out, buf_str(&m->held));
    buf_clear(&m->held);
}
