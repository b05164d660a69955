/*
 * base/arena.c - bump allocator over a list of chunks, newest first.
 *
 * A chunk's payload follows its header. Releasing to a mark frees the chunks made after it. The cap
 * counts bytes handed out (rounded up to 16), not the slack of chunks, which geometric growth keeps
 * below the same order. One thread at a time.
 */
#include "base/arena.h"

#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ARENA_ALIGN     16
#define ARENA_CHUNK_MIN ((size_t)512) /* thousands of requests wait, each with one */
#define ARENA_CHUNK_MAX ((size_t)1 << 20)

struct arena_chunk {
    struct arena_chunk *older;
    size_t cap, used; /* payload bytes */
    size_t pad;       /* keeps the payload 16-byte aligned */
};
_Static_assert(sizeof(struct arena_chunk) % ARENA_ALIGN == 0, "payload must be aligned");

void arena_init(struct arena *a, size_t max_bytes)
{
    *a = (struct arena){.max = max_bytes};
}

static void free_down_to(struct arena *a, const struct arena_chunk *keep)
{
    while (a->head && a->head != keep) {
        struct arena_chunk *older = a->head->older;
        mem_free(a->head);
        a->head = older;
    }
}

void arena_deinit(struct arena *a)
{
    free_down_to(a, NULL);
    *a = (struct arena){0};
}

static bool chunk_add(struct arena *a, size_t need)
{
    size_t cap = a->head ? a->head->cap * 2 : ARENA_CHUNK_MIN;
    if (cap > ARENA_CHUNK_MAX)
        cap = ARENA_CHUNK_MAX;
    if (cap < need)
        cap = need;
    struct arena_chunk *c = mem_alloc(sizeof *c + cap);
    if (!c)
        return false;
    *c = (struct arena_chunk){.older = a->head, .cap = cap};
    a->head = c;
    return true;
}

void *arena_alloc(struct arena *a, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX / 2)
        return NULL;
    size_t n = n_bytes ? (n_bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1) : ARENA_ALIGN;
    if (n > a->max - a->used)
        return NULL;
    if ((!a->head || n > a->head->cap - a->head->used) && !chunk_add(a, n))
        return NULL;
    void *p = (char *)(a->head + 1) + a->head->used;
    a->head->used += n;
    a->used += n;
    return p;
}

void *arena_calloc(struct arena *a, size_t n, size_t size_bytes)
{
    size_t total;
    if (__builtin_mul_overflow(n, size_bytes, &total))
        return NULL;
    void *p = arena_alloc(a, total);
    if (p)
        memset(p, 0, total);
    return p;
}

str arena_str(struct arena *a, str s)
{
    char *p = s.n < SIZE_MAX ? arena_alloc(a, s.n + 1) : NULL;
    if (!p)
        return (str){NULL, 0};
    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = 0;
    return (str){p, s.n};
}

struct arena_mark arena_save(const struct arena *a)
{
    return (struct arena_mark){
        .chunk = a->head, .chunk_used = a->head ? a->head->used : 0, .used = a->used};
}

void arena_release(struct arena *a, struct arena_mark m)
{
    free_down_to(a, m.chunk);
    if (a->head)
        a->head->used = m.chunk_used;
    a->used = m.used;
}
