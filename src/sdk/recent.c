/*
 * sdk/recent.c - see recent.h.
 *
 * Why the tokens are the same: text between two special tokens is encoded by itself, and which
 * special tokens a text has is decided from left to right, each by the bytes from its beginning on,
 * as many as the longest marker has. So where two texts agree (in bytes and in who wrote them) up
 * to that many bytes beyond the end of a special token, their tokens up to that end are the same,
 * and the rest is encoded as after any special token.
 */
#include "sdk/recent.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

enum { ENTRIES_MAX = 64, BLOCK_BYTES = 4096 };

struct entry {
    uint64_t id, used; /* id 0: none; when it was used last */
    size_t n_bytes;    /* that it takes */
    str text;
    const struct jinja_span *spans;
    size_t n_spans;
    const int32_t *ids;
    size_t n_ids;
    const struct tok_cut *cuts;
    size_t n_cuts;
    void *block; /* all of these */
};

struct recent {
    pthread_mutex_t lock;
    size_t n_bytes, max_bytes;
    uint64_t clock;
    struct entry entries[ENTRIES_MAX];
};

struct recent *recent_new(size_t max_bytes)
{
    struct recent *r = mem_calloc(1, sizeof *r);
    if (!r)
        return NULL;
    (void)pthread_mutex_init(&r->lock, NULL);
    r->max_bytes = max_bytes;
    return r;
}

static void drop(struct recent *r, struct entry *e)
{
    r->n_bytes -= e->n_bytes;
    mem_free(e->block);
    *e = (struct entry){0};
}

void recent_free(struct recent *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < ENTRIES_MAX; i++)
        drop(r, &r->entries[i]);
    (void)pthread_mutex_destroy(&r->lock);
    mem_free(r);
}

/* ---- finding ---- */

static size_t common_bytes(str a, str b)
{
    size_t n = a.n < b.n ? a.n : b.n, at = 0;
    while (at + BLOCK_BYTES <= n && memcmp(a.p + at, b.p + at, BLOCK_BYTES) == 0)
        at += BLOCK_BYTES;
    while (at < n && a.p[at] == b.p[at])
        at++;
    return at;
}

/* How many of the first n bytes the same writers wrote. */
static size_t common_origins(const struct entry *e, const struct jinja_output *b, size_t n)
{
    size_t at = 0, i = 0, k = 0;
    while (at < n && i < e->n_spans && k < b->n_spans && e->spans[i].origin == b->spans[k].origin) {
        size_t x = e->spans[i].end, y = b->spans[k].end;
        at = x < y ? x : y;
        i += x == at;
        k += y == at;
    }
    return at < n ? at : n;
}

/* Cuts of the entry that hold for a text which is the same for n bytes. */
static size_t n_cuts_within(const struct entry *e, size_t n, size_t marker_bytes_max)
{
    size_t low = 0, high = e->n_cuts;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (e->cuts[mid].n_bytes + marker_bytes_max <= n)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Takes over what the entry knows; without memory nothing. */
static void take(struct entry *e, size_t n_cuts, struct tok_ids *ids, struct recent_match *out)
{
    const struct tok_cut *last = &e->cuts[n_cuts - 1];
    if (last->n_tokens > ids->max || !tok_cuts_append(&out->cuts, e->cuts, n_cuts))
        return;
    int32_t *p = mem_alloc((last->n_tokens + 1) * sizeof *p);
    if (!p) {
        tok_cuts_deinit(&out->cuts);
        return;
    }
    memcpy(p, e->ids, last->n_tokens * sizeof *p);
    ids->p = p;
    ids->n = last->n_tokens;
    ids->cap = last->n_tokens + 1;
    out->n_bytes = last->n_bytes;
}

void recent_find(struct recent *r, const struct jinja_output *text, size_t marker_bytes_max,
                 struct tok_ids *ids, struct recent_match *out)
{
    struct entry *best = NULL;
    size_t best_n = 0;
    *out = (struct recent_match){0};
    if (text->text.n < RECENT_TEXT_BYTES_MIN)
        return;
    (void)pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        struct entry *e = &r->entries[i];
        size_t n = e->id ? common_bytes(e->text, buf_str(&text->text)) : 0;
        if (n <= best_n)
            continue;
        n = common_origins(e, text, n);
        if (n > best_n) {
            best = e;
            best_n = n;
        }
    }
    if (best) {
        size_t n_cuts = n_cuts_within(best, best_n, marker_bytes_max);
        best->used = ++r->clock;
        out->entry = best->id;
        out->goes_on = best_n >= best->text.n - best->text.n / 8;
        if (n_cuts)
            take(best, n_cuts, ids, out);
    }
    (void)pthread_mutex_unlock(&r->lock);
}

/* ---- keeping ---- */

static void *put(char **at, const void *p, size_t n_bytes)
{
    void *to = *at;
    if (n_bytes)
        memcpy(to, p, n_bytes);
    *at += (n_bytes + 15) & ~(size_t)15;
    return to;
}

static bool fill(struct entry *e, const struct jinja_output *text, const struct tok_ids *ids,
                 const struct tok_cuts *cuts)
{
    size_t spans_bytes = text->n_spans * sizeof *text->spans, ids_bytes = ids->n * sizeof *ids->p;
    size_t cuts_bytes = cuts->n * sizeof *cuts->p;
    size_t n = text->text.n + spans_bytes + ids_bytes + cuts_bytes + (size_t)4 * 16;
    char *at = mem_alloc(n);
    if (!at)
        return false;
    *e = (struct entry){.n_bytes = n, .block = at};
    e->n_spans = text->n_spans;
    e->spans = put(&at, text->spans, spans_bytes);
    e->n_ids = ids->n;
    e->ids = put(&at, ids->p, ids_bytes);
    e->n_cuts = cuts->n;
    e->cuts = put(&at, cuts->p, cuts_bytes);
    e->text = (str){put(&at, text->text.p, text->text.n), text->text.n};
    return true;
}

/* A place for n more bytes: that of `instead` if it is still there, a free one, the oldest. */
static struct entry *make_room(struct recent *r, uint64_t instead, size_t n_bytes)
{
    for (size_t i = 0; i < ENTRIES_MAX; i++) {
        if (instead && r->entries[i].id == instead)
            drop(r, &r->entries[i]);
    }
    for (;;) {
        struct entry *free_one = NULL, *oldest = NULL;
        for (size_t i = 0; i < ENTRIES_MAX; i++) {
            struct entry *e = &r->entries[i];
            if (!e->id)
                free_one = e;
            else if (!oldest || e->used < oldest->used)
                oldest = e;
        }
        if (free_one && r->n_bytes + n_bytes <= r->max_bytes)
            return free_one;
        drop(r, oldest);
    }
}

void recent_keep(struct recent *r, const struct jinja_output *text, const struct tok_ids *ids,
                 const struct recent_match *match)
{
    struct entry e;
    if (text->text.n < RECENT_TEXT_BYTES_MIN || match->cuts.n == 0 ||
        text->text.n > r->max_bytes / 8 || !fill(&e, text, ids, &match->cuts))
        return;
    if (e.n_bytes > r->max_bytes / 2) {
        mem_free(e.block);
        return;
    }
    (void)pthread_mutex_lock(&r->lock);
    struct entry *to = make_room(r, match->goes_on ? match->entry : 0, e.n_bytes);
    *to = e;
    to->used = to->id = ++r->clock;
    r->n_bytes += e.n_bytes;
    (void)pthread_mutex_unlock(&r->lock);
}
