/*
 * kv/state.c - recurrent states out of the pool's budget. See state.h.
 *
 * Memory that nobody has used yet, or that was given back, is zeros and needs no clearing: states
 * are large.
 */
#include "kv/state.h"

#include "kv/pool.h"

#include <string.h>

enum { MEMORY_PAGE = 4096, STATES_MAX = 1 << 24 };

t9_status kv_pool_add_states(struct kv_pool *p, const struct state_geom *geom, struct t9_err *err)
{
    if (geom->shape.n_layers == 0)
        return T9_STATUS_OK;
    uint64_t cost = (geom->state_bytes + MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
    uint64_t n = p->budget_bytes / cost;
    if (p->budget_bytes < cost + p->geom.page_bytes)
        return t9_fail(err, T9_STATUS_INVALID,
                       "KV cache: a budget of %llu bytes does not hold one sequence; a state of "
                       "this model takes %llu bytes and a page of %d tokens %zu",
                       (unsigned long long)p->budget_bytes, (unsigned long long)cost,
                       KV_PAGE_TOKENS, p->geom.page_bytes);
    if (n > STATES_MAX)
        n = STATES_MAX;
    p->state_geom = *geom;
    T9_TRY(pieces_init(&p->states, p->be, n, geom->slot_bytes, cost, sizeof *p->state_dirty, err));
    p->state_dirty = p->states.used + n;
    return T9_STATUS_OK;
}

const struct state_geom *kv_state_geom(const struct kv_pool *p)
{
    return p->states.n_max > 0 ? &p->state_geom : NULL;
}

void *kv_state_base(const struct kv_pool *p)
{
    return p->states.base;
}

uint64_t kv_state_bytes(const struct kv_pool *p)
{
    return p->states.cost_bytes;
}

int32_t kv_state_max(const struct kv_pool *p)
{
    return p->states.n_max;
}

int32_t kv_state_alloc(struct kv_pool *p)
{
    int32_t n_ever = p->states.n_ever;
    int32_t n_trimmed = p->states.n_trimmed;
    int32_t state = pieces_alloc(p, &p->states);
    if (state >= 0 && (p->states.n_ever > n_ever || p->states.n_trimmed < n_trimmed))
        p->state_dirty[state] = 0;
    return state;
}

void kv_state_free(struct kv_pool *p, int32_t state)
{
    pieces_free(&p->states, state);
}

static char *memory_of(const struct kv_pool *p, int32_t state)
{
    return state_slot(&p->state_geom, p->states.base, state);
}

void kv_state_clear(struct kv_pool *p, int32_t state)
{
    bool ok = kv_state_is_used(p, state);
    T9_ASSERT(ok);
    if (ok && p->state_dirty[state])
        memset(memory_of(p, state), 0, p->state_geom.state_bytes);
    if (ok)
        p->state_dirty[state] = 1; /* it is about to be written */
}

void kv_state_copy(struct kv_pool *p, int32_t dst, int32_t src)
{
    bool ok = kv_state_is_used(p, dst) && kv_state_is_used(p, src);
    T9_ASSERT(ok);
    if (!ok || dst == src)
        return;
    memcpy(memory_of(p, dst), memory_of(p, src), p->state_geom.state_bytes);
    p->state_dirty[dst] = 1;
}

bool kv_state_is_used(const struct kv_pool *p, int32_t state)
{
    return pieces_is_used(&p->states, state);
}
