/*
 * base/arena.h - bump allocator with a hard cap, for things that die together (a request, a parse).
 * Chunks grow geometrically; mark and release give nested scopes. One thread at a time.
 */
#ifndef T9_BASE_ARENA_H
#define T9_BASE_ARENA_H

#include "base/str.h"

#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *head; /* newest chunk */
    size_t used, max;         /* bytes handed out, hard cap */
};
struct arena_mark {
    struct arena_chunk *chunk;
    size_t chunk_used, used;
};

void arena_init(struct arena *a, size_t max_bytes);
void arena_deinit(struct arena *a); /* accepts a zeroed arena */
/* 16-byte aligned, not zeroed; NULL when over the cap or out of memory. */
void *arena_alloc(struct arena *a, size_t n_bytes);
void *arena_calloc(struct arena *a, size_t n, size_t size_bytes);
/* Copy with a NUL after it (the NUL is not counted); p == NULL on failure. */
str arena_str(struct arena *a, str s);
struct arena_mark arena_save(const struct arena *a);
void arena_release(struct arena *a, struct arena_mark m);

#endif
