/*
 * template/jstr.c - strings whose bytes know their origin, and the builder that makes them.
 *
 * A string is bytes plus runs of origins; most have one origin and no runs. Slices share the bytes.
 * Concatenation leaves spare room behind the result, and the next one appends in place when its
 * left side is the latest string of that room: the older, shorter views stay what they are.
 */
#include "base/utf8.h"
#include "template/value.h"

#include <string.h>

struct jstr *jstr_new(struct rctx *c, const char *p, size_t n, uint8_t origin)
{
    struct jstr *s = rt_alloc(c, 1, sizeof *s);
    if (s)
        *s = (struct jstr){.p = p, .n = n, .n_cp = NCP_UNKNOWN, .origin = origin};
    return s;
}

bool val_str(struct rctx *c, const char *z, struct val *out)
{
    struct jstr *s = jstr_new(c, z, strlen(z), JINJA_ORIGIN_TEMPLATE);
    *out = val_jstr(s);
    return s != NULL;
}

size_t jstr_n_cp(const struct jstr *s)
{
    return s->n_cp != NCP_UNKNOWN ? s->n_cp : utf8_count(jstr_view(s));
}

size_t jstr_offset(const struct jstr *s, size_t cp)
{
    if (s->n_cp == s->n)
        return cp;
    size_t i = 0;
    for (; cp > 0 && i < s->n; cp--) {
        i++;
        while (i < s->n && ((unsigned char)s->p[i] & 0xc0) == 0x80)
            i++;
    }
    return i;
}

/* Index of the run that holds `byte`. */
static uint32_t run_at(const struct jstr *s, size_t byte)
{
    uint32_t lo = 0, hi = s->n_runs - 1;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->runs[mid].end <= byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

uint8_t jstr_origin_at(const struct jstr *s, size_t byte)
{
    return s->n_runs ? s->runs[run_at(s, byte)].origin : s->origin;
}

bool jstr_slice(struct rctx *c, const struct jstr *s, size_t from, size_t to, struct val *out)
{
    if (from == 0 && to == s->n) {
        *out = val_jstr(s);
        return true;
    }
    struct jstr *r = jstr_new(c, s->p + from, to - from, s->origin);
    if (!r)
        return false;
    *out = val_jstr(r);
    r->markup = s->markup;
    if (s->n_cp == s->n)
        r->n_cp = r->n;
    if (s->n_runs == 0 || r->n == 0)
        return true;
    uint32_t lo = run_at(s, from), hi = run_at(s, to - 1);
    r->origin = s->runs[lo].origin;
    if (lo == hi)
        return true;
    struct jrun *runs = rt_alloc(c, hi - lo + 1, sizeof *runs);
    if (!runs)
        return false;
    for (uint32_t i = lo; i <= hi; i++)
        runs[i - lo] = (struct jrun){s->runs[i].end - from, s->runs[i].origin};
    r->runs = runs;
    r->n_runs = hi - lo + 1;
    return rt_charge(c, r->n_runs / 16);
}

void sb_init(struct rctx *c, struct sb *b, size_t max_bytes)
{
    *b = (struct sb){.c = c, .max = max_bytes};
}

static bool sb_room(struct sb *b, size_t n)
{
    if (n > b->max - b->n)
        return rt_fail(b->c, T9_STATUS_TOO_LARGE, "the text would be longer than %zu bytes",
                       b->max);
    if (n <= b->cap - b->n)
        return true;
    size_t cap = b->cap ? b->cap * 2 : 64;
    while (cap < b->n + n)
        cap *= 2;
    char *p = rt_alloc(b->c, cap, 1);
    if (!p)
        return false;
    if (b->n)
        memcpy(p, b->p, b->n);
    b->p = p;
    b->cap = cap;
    return true;
}

static bool sb_mark(struct sb *b, size_t end, uint8_t origin)
{
    if (b->n_runs && b->runs[b->n_runs - 1].origin == origin) {
        b->runs[b->n_runs - 1].end = end;
        return true;
    }
    if (b->n_runs == b->runs_cap) {
        uint32_t cap = b->runs_cap ? b->runs_cap * 2 : 4;
        struct jrun *r = rt_alloc(b->c, cap, sizeof *r);
        if (!r)
            return false;
        if (b->n_runs)
            memcpy(r, b->runs, b->n_runs * sizeof *r);
        b->runs = r;
        b->runs_cap = cap;
    }
    b->runs[b->n_runs++] = (struct jrun){end, origin};
    return true;
}

bool sb_put(struct sb *b, const char *p, size_t n, uint8_t origin)
{
    if (n == 0)
        return true;
    if (!sb_room(b, n) || !rt_charge(b->c, n / 64))
        return false;
    memcpy(b->p + b->n, p, n);
    b->n += n;
    return sb_mark(b, b->n, origin);
}

bool sb_put_slice(struct sb *b, const struct jstr *s, size_t from, size_t to)
{
    if (from == to)
        return true;
    if (s->n_runs == 0)
        return sb_put(b, s->p + from, to - from, s->origin);
    uint32_t i = run_at(s, from);
    while (from < to) {
        size_t end = s->runs[i].end < to ? s->runs[i].end : to;
        if (!sb_put(b, s->p + from, end - from, s->runs[i].origin))
            return false;
        from = end;
        i++;
    }
    return true;
}

bool sb_finish(struct sb *b, struct val *out)
{
    struct jstr *s = jstr_new(b->c, b->p ? b->p : "", b->n,
                              b->n_runs ? b->runs[0].origin : JINJA_ORIGIN_TEMPLATE);
    if (!s)
        return false;
    if (b->n_runs > 1) {
        s->runs = b->runs;
        s->n_runs = b->n_runs;
    }
    *out = val_jstr(s);
    return true;
}

/* Runs of a then b, as a fresh array; the two neighbours merge when equal. */
static bool concat_runs(struct rctx *c, const struct jstr *a, const struct jstr *b, struct jstr *r)
{
    if (a->n_runs == 0 && b->n_runs == 0 && a->origin == b->origin) {
        r->origin = a->origin;
        return true;
    }
    uint32_t na = a->n_runs ? a->n_runs : 1, nb = b->n_runs ? b->n_runs : 1, n = na;
    struct jrun *runs = rt_alloc(c, (size_t)na + nb, sizeof *runs);
    if (!runs || !rt_charge(c, (na + nb) / 16))
        return false;
    if (a->n_runs)
        memcpy(runs, a->runs, na * sizeof *runs);
    else
        runs[0].origin = a->origin;
    runs[na - 1].end = a->n;
    for (uint32_t i = 0; i < nb; i++) {
        uint8_t origin = b->n_runs ? b->runs[i].origin : b->origin;
        size_t end = a->n + (b->n_runs && i + 1 < nb ? b->runs[i].end : b->n);
        if (i == 0 && runs[n - 1].origin == origin)
            runs[n - 1].end = end;
        else
            runs[n++] = (struct jrun){end, origin};
    }
    r->runs = runs;
    r->n_runs = n;
    r->origin = runs[0].origin;
    return true;
}

bool jstr_concat(struct rctx *c, const struct jstr *a, const struct jstr *b, struct val *out)
{
    if (a->n == 0 || b->n == 0) {
        const struct jstr *one = a->n == 0 ? b : a;
        *out = val_jstr(one);
        if (one->markup == (a->markup || b->markup))
            return true;
        struct jstr *copy = jstr_new(c, one->p, one->n, one->origin);
        if (!copy)
            return false;
        *copy = *one;
        copy->markup = true;
        *out = val_jstr(copy);
        return true;
    }
    size_t n = a->n + b->n;
    if (n < a->n || !rt_charge(c, b->n / 64 + 1))
        return false;
    struct jstr *r = jstr_new(c, a->p, n, JINJA_ORIGIN_TEMPLATE);
    if (!r || !concat_runs(c, a, b, r))
        return false;
    r->markup = a->markup || b->markup;
    if (a->n_cp != NCP_UNKNOWN && b->n_cp != NCP_UNKNOWN)
        r->n_cp = a->n_cp + b->n_cp;
    *out = val_jstr(r);
    if (a->back && a->back->used == a->n && a->back->cap - a->n >= b->n) {
        /* a is the latest string of its room, which only this rendering writes to */
        memcpy((char *)(uintptr_t)(a->p + a->n), b->p, b->n);
        a->back->used = n;
        r->back = a->back;
        return true;
    }
    size_t cap = a->back ? n * 2 : n + 32;
    char *p = rt_alloc(c, cap, 1);
    struct jback *back = p ? rt_alloc(c, 1, sizeof *back) : NULL;
    if (!back || !rt_charge(c, a->n / 64))
        return false;
    memcpy(p, a->p, a->n);
    memcpy(p + a->n, b->p, b->n);
    *back = (struct jback){n, cap};
    r->p = p;
    r->back = back;
    return true;
}

bool jstr_escape_html(struct rctx *c, const struct jstr *s, struct val *out)
{
    static const struct {
        char ch;
        const char *text;
    } map[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    struct sb b;
    sb_init(c, &b, c->limits.max_memory_bytes);
    for (size_t i = 0; i < s->n; i++) {
        const char *text = NULL;
        for (size_t k = 0; k < T9_COUNT(map); k++)
            if (s->p[i] == map[k].ch)
                text = map[k].text;
        if (text ? !sb_put(&b, text, strlen(text), jstr_origin_at(s, i))
                 : !sb_put_slice(&b, s, i, i + 1))
            return false;
    }
    if (!rt_charge(c, s->n / 16) || !sb_finish(&b, out))
        return false;
    struct jstr *r = jstr_new(c, "", 0, 0);
    if (!r)
        return false;
    *r = *out->s;
    r->markup = true;
    *out = val_jstr(r);
    return true;
}
