/*
 * backend/cpu/slab.h - private to backend/cpu: memory for weights, many to a piece.
 *
 * Most matrices of a small model are smaller than a huge page, so on their own they would lie in
 * small ones; there each page costs a walk of the page table, and the CPU's own prefetching stops
 * at its end. A piece is aligned to huge pages and asks for them. Used by one thread at a time.
 */
#ifndef T9_BACKEND_CPU_SLAB_H
#define T9_BACKEND_CPU_SLAB_H

#include <stddef.h>

struct slab;
struct slabs { /* {0} is empty */
    struct slab *first;
};

/* On a cache line; NULL when there is no memory. */
void *slabs_alloc(struct slabs *s, size_t size_bytes);
/* What slabs_alloc gave, or NULL. A piece goes back when nothing in it is in use. */
void slabs_free(struct slabs *s, void *p);
/* Gives everything back. */
void slabs_deinit(struct slabs *s);

#endif
