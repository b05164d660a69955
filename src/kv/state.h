/*
 * kv/state.h - the recurrent states of hybrid models (decision D6): buffers out of the pool's byte
 * budget, beside its pages. A running sequence has one, and so has each checkpoint of the prefix
 * tree; a buffer goes from one to the other without a copy. Engine thread only.
 *
 * A state costs what a snapshot holds, in whole memory pages. Its journal (state_geom.h) costs
 * nothing as long as nobody writes to it.
 */
#ifndef T9_KV_STATE_H
#define T9_KV_STATE_H

#include "backend/state_geom.h"
#include "kv/kv.h"

/* Right after kv_pool_new. As many states as fit the budget if there were no pages; without layers
 * there are none. INVALID when the budget does not hold one state and one page. */
t9_status kv_pool_add_states(struct kv_pool *p, const struct state_geom *geom, struct t9_err *err);
/* NULL without states. */
const struct state_geom *kv_state_geom(const struct kv_pool *p);
void *kv_state_base(const struct kv_pool *p);
/* Bytes of the budget that one state takes; 0 without states. */
uint64_t kv_state_bytes(const struct kv_pool *p);
int32_t kv_state_max(const struct kv_pool *p); /* ids are below it */
/* A state with whatever was in it, to be cleared or copied to; -1 when no bytes are left. */
int32_t kv_state_alloc(struct kv_pool *p);
void kv_state_free(struct kv_pool *p, int32_t state);
void kv_state_clear(struct kv_pool *p, int32_t state); /* as before a first token */
/* The state without its journal. */
void kv_state_copy(struct kv_pool *p, int32_t dst, int32_t src);
bool kv_state_is_used(const struct kv_pool *p, int32_t state); /* false for ids that cannot be */

#endif
