/*
 * kv/pool.h - private to kv/: the pool that pages.c and state.c share, and its byte budget.
 */
#ifndef T9_KV_POOL_H
#define T9_KV_POOL_H

#include "kv/ahead.h"
#include "kv/kv.h"
#include "kv/state.h"

#include <stdatomic.h>

/* Numbered pieces of a range of address space. 0 .. n_ever have been handed out at least once;
 * freed ones lie on a stack, so the one whose memory is warmest is used next. n_trimmed entries at
 * the bottom of the stack have given their memory back. Both tables are touched only where pieces
 * have been used. */
struct pieces {
    void *base;
    size_t base_bytes;
    size_t stride_bytes; /* from one piece to the next */
    uint64_t cost_bytes; /* of the budget that a used one takes, and of its memory */
    int32_t n_max, n_ever, n_free, n_trimmed;
    int32_t *free_stack; /* [n_max] */
    uint8_t *used;       /* [n_max] */
    void *tables;
    size_t tables_bytes;
    _Atomic int32_t n_used, n_peak;
    struct ahead ahead; /* of pages */
};

struct kv_pool {
    struct be *be;
    struct kv_geom geom;
    struct state_geom state_geom; /* no layers: the pool has no states */
    uint64_t budget_bytes;
    struct pieces pages, windows, states; /* the last two: n_max is 0 where there are none */
    uint8_t *state_dirty; /* [states.n_max] its memory may hold something else than zeros */
};

/* Reserves n pieces and their tables, with table_bytes more for each. */
t9_status pieces_init(struct pieces *x, struct be *be, uint64_t n, size_t stride_bytes,
                      uint64_t cost_bytes, size_t table_bytes, struct t9_err *err);
void pieces_deinit(struct pieces *x, struct be *be); /* accepts a zeroed one */
/* A piece, -1 when none or no bytes of the budget are left. When it needs memory of which all kinds
 * together would exceed the budget, what was taken ahead and unused pieces of other kinds go back.
 */
int32_t pieces_alloc(struct kv_pool *p, struct pieces *x);
/* A piece that is not used is a programmer error; outside debug builds it is ignored, since handing
 * one piece to two sequences would be far worse than losing it. */
void pieces_free(struct pieces *x, int32_t id);
bool pieces_is_used(const struct pieces *x, int32_t id);
/* Memory taken ahead of the pieces, and its end: it goes back. */
uint64_t pieces_ahead_bytes(const struct pieces *x);
void pieces_give_back_ahead(struct kv_pool *p, struct pieces *x);
/* As much as may be ahead of x: what is, and what all kinds leave of the budget. */
uint64_t pieces_ahead_max(const struct kv_pool *p, const struct pieces *x);
/* Gives back the memory of unused pieces. */
void pieces_trim(struct kv_pool *p, struct pieces *x);

#endif
