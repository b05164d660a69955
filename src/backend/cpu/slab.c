/*
 * backend/cpu/slab.c - see slab.h.
 *
 * A piece is filled from its start and never refilled: weights come once and go together. Pieces
 * double, so that a tiny model takes little; what lies behind the last weight is never touched.
 */
#include "backend/cpu/slab.h"

#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LINE = 64,
    SLAB_BYTES_MAX = 64 << 20, /* but for a larger weight, which has one of its own */
};

struct slab {
    struct slab *next;
    char *p;
    size_t size_bytes, used_bytes;
    size_t n_live; /* weights in it */
};

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* A piece with room for size_bytes, twice the newest one where that is enough. */
static struct slab *slab_new(struct slabs *s, size_t size_bytes)
{
    size_t want = s->first ? 2 * s->first->size_bytes : MEM_HUGE_BYTES;
    want = want < SLAB_BYTES_MAX ? want : SLAB_BYTES_MAX;
    size_bytes = round_up(size_bytes > want ? size_bytes : want, MEM_HUGE_BYTES);
    struct slab *slab = mem_calloc(1, sizeof *slab);
    char *p = mem_alloc_aligned(MEM_HUGE_BYTES, size_bytes);
    if (!slab || !p) {
        mem_free(slab);
        mem_free(p);
        return NULL;
    }
    mem_want_huge(p, size_bytes);
    *slab = (struct slab){.next = s->first, .p = p, .size_bytes = size_bytes};
    s->first = slab;
    return slab;
}

void *slabs_alloc(struct slabs *s, size_t size_bytes)
{
    if (size_bytes > SIZE_MAX - MEM_HUGE_BYTES)
        return NULL;
    size_bytes = round_up(size_bytes > 0 ? size_bytes : 1, LINE);
    struct slab *slab = s->first;
    while (slab && slab->size_bytes - slab->used_bytes < size_bytes)
        slab = slab->next;
    if (!slab)
        slab = slab_new(s, size_bytes);
    if (!slab)
        return NULL;
    char *p = slab->p + slab->used_bytes;
    slab->used_bytes += size_bytes;
    slab->n_live++;
    return p;
}

static bool holds(const struct slab *slab, const void *p)
{
    uintptr_t at = (uintptr_t)p, start = (uintptr_t)slab->p;
    return at >= start && at - start < slab->size_bytes;
}

void slabs_free(struct slabs *s, void *p)
{
    struct slab **link = &s->first;
    while (*link && !holds(*link, p))
        link = &(*link)->next;
    struct slab *slab = *link;
    if (!slab || --slab->n_live > 0)
        return;
    *link = slab->next;
    mem_free(slab->p);
    mem_free(slab);
}

void slabs_deinit(struct slabs *s)
{
    while (s->first) {
        struct slab *slab = s->first;
        s->first = slab->next;
        mem_free(slab->p);
        mem_free(slab);
    }
}
