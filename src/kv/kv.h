/*
 * kv/kv.h - the page pool (decision D5): address space reserved at start, memory taken page by page
 * as tokens arrive. Engine thread only, except kv_pool_stats.
 *
 * A declared context costs nothing: the pool's bookkeeping is sized by its byte budget, not by any
 * declared length. Freed pages are reused last-in first-out, so memory follows use. The recurrent
 * states of hybrid models (state.h) come out of the same budget.
 *
 * Models some of whose layers see only a window of tokens keep those layers in window pages
 * (kv_geom.h): ids and address space of their own, out of the same budget. No such model has
 * states.
 */
#ifndef T9_KV_KV_H
#define T9_KV_KV_H

#include "backend/be.h"
#include "backend/kv_geom.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_pool;

struct kv_pool_stats {
    int32_t pages_total, pages_used, pages_peak;    /* total: if there were nothing else */
    int32_t states_used, windows_used;              /* windows: window pages */
    uint64_t page_bytes, state_bytes, window_bytes; /* of one */
    uint64_t free_bytes;                            /* of the budget, which they share */
};

/* As many pages as fit budget_bytes (at least one in all its groups, else INVALID with the smallest
 * useful budget). */
t9_status kv_pool_new(struct kv_pool **out, struct be *be, const struct kv_geom *geom,
                      uint64_t budget_bytes, struct t9_err *err);
void kv_pool_free(struct kv_pool *p);
void *kv_pool_base(const struct kv_pool *p);
const struct kv_geom *kv_pool_geom(const struct kv_pool *p);
struct be *kv_pool_be(const struct kv_pool *p);
/* A page id, or -1 when the budget is used up. Its memory may hold an earlier owner's values:
 * attention never reads beyond the tokens a sequence wrote. */
int32_t kv_page_alloc(struct kv_pool *p);
void kv_page_free(struct kv_pool *p, int32_t page);
/* Copies all bytes of page src to page dst. */
void kv_page_copy(struct kv_pool *p, int32_t dst, int32_t src);
bool kv_page_is_used(const struct kv_pool *p, int32_t page); /* false for ids that cannot be */
/* The same for window pages; without them the base is NULL and there is none to be had. */
void *kv_window_base(const struct kv_pool *p);
int32_t kv_window_alloc(struct kv_pool *p);
void kv_window_free(struct kv_pool *p, int32_t page);
void kv_window_copy(struct kv_pool *p, int32_t dst, int32_t src);
bool kv_window_is_used(const struct kv_pool *p, int32_t page);
int32_t kv_window_max(const struct kv_pool *p); /* ids are below it */
/* Gives the memory of unused pages back to the system; called when the engine is idle. */
void kv_pool_trim(struct kv_pool *p);
/* Any thread. */
struct kv_pool_stats kv_pool_stats(const struct kv_pool *p);

#endif
