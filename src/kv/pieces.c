/*
 * kv/pieces.c - which pieces of the pool are used, and when memory goes back to the system: what
 * pages, window pages and states have in common. See pool.h. It knows nothing of what lies in a
 * piece.
 */
#include "kv/pool.h"

t9_status pieces_init(struct pieces *x, struct be *be, uint64_t n, size_t stride_bytes,
                      uint64_t cost_bytes, size_t table_bytes, struct t9_err *err)
{
    x->n_max = (int32_t)n;
    x->stride_bytes = stride_bytes;
    x->cost_bytes = cost_bytes;
    x->base_bytes = (size_t)n * stride_bytes;
    x->tables_bytes = (size_t)n * (sizeof *x->free_stack + sizeof *x->used + table_bytes);
    T9_TRY(be_reserve(be, x->base_bytes, &x->base, err));
    /* A huge page would also take what a piece leaves unused of its stride (a state's journal). */
    if (stride_bytes == cost_bytes)
        be_want_huge(be, x->base, x->base_bytes);
    T9_TRY(be_reserve(be, x->tables_bytes, &x->tables, err));
    x->free_stack = x->tables;
    x->used = (uint8_t *)(x->free_stack + n);
    return T9_STATUS_OK;
}

void pieces_deinit(struct pieces *x, struct be *be)
{
    if (x->base)
        be_unreserve(be, x->base, x->base_bytes);
    if (x->tables)
        be_unreserve(be, x->tables, x->tables_bytes);
}

static void decommit(struct kv_pool *p, struct pieces *x, int32_t id)
{
    be_decommit(p->be, (char *)x->base + (size_t)id * x->stride_bytes, x->stride_bytes);
}

static size_t ever_bytes(const struct pieces *x)
{
    return (size_t)x->n_ever * x->stride_bytes;
}

uint64_t pieces_ahead_bytes(const struct pieces *x)
{
    return ahead_beyond(&x->ahead, ever_bytes(x));
}

void pieces_give_back_ahead(struct kv_pool *p, struct pieces *x)
{
    size_t from = ever_bytes(x);
    be_decommit(p->be, (char *)x->base + from, ahead_shrink(&x->ahead, from) - from);
}

/* What has memory, of all kinds. */
static uint64_t memory_bytes(const struct kv_pool *p)
{
    const struct pieces *kinds[] = {&p->pages, &p->windows, &p->states};
    uint64_t all = 0;
    for (size_t i = 0; i < T9_COUNT(kinds); i++)
        all += (uint64_t)(kinds[i]->n_ever - kinds[i]->n_trimmed) * kinds[i]->cost_bytes +
               pieces_ahead_bytes(kinds[i]);
    return all;
}

uint64_t pieces_ahead_max(const struct kv_pool *p, const struct pieces *x)
{
    uint64_t all = memory_bytes(p);
    return pieces_ahead_bytes(x) + (all < p->budget_bytes ? p->budget_bytes - all : 0);
}

/* What is not in use makes way for a piece of x that has no memory yet: first what was taken ahead,
 * then unused pieces of the other kinds. */
static void make_way(struct kv_pool *p, const struct pieces *x)
{
    struct pieces *kinds[] = {&p->pages, &p->windows, &p->states};
    uint64_t all = memory_bytes(p) + x->cost_bytes;
    for (size_t i = 0; i < T9_COUNT(kinds) && all > p->budget_bytes; i++) {
        uint64_t ahead_bytes = pieces_ahead_bytes(kinds[i]);
        if (ahead_bytes == 0)
            continue;
        pieces_give_back_ahead(p, kinds[i]);
        all -= ahead_bytes;
    }
    for (size_t i = 0; i < T9_COUNT(kinds); i++) {
        struct pieces *other = kinds[i];
        while (other != x && all > p->budget_bytes && other->n_trimmed < other->n_free) {
            decommit(p, other, other->free_stack[other->n_trimmed++]);
            all -= other->cost_bytes;
        }
    }
}

int32_t pieces_alloc(struct kv_pool *p, struct pieces *x)
{
    int32_t id;
    if (kv_pool_stats(p).free_bytes < x->cost_bytes)
        return -1;
    if (x->n_free > 0) {
        if (x->n_trimmed == x->n_free)
            make_way(p, x);
        id = x->free_stack[--x->n_free];
        if (x->n_trimmed > x->n_free)
            x->n_trimmed = x->n_free;
    } else if (x->n_ever < x->n_max) {
        if (pieces_ahead_bytes(x) < x->cost_bytes) /* else its memory is counted already */
            make_way(p, x);
        id = x->n_ever++;
    } else {
        return -1;
    }
    x->used[id] = 1;
    int32_t used = atomic_load_explicit(&x->n_used, memory_order_relaxed) + 1;
    atomic_store_explicit(&x->n_used, used, memory_order_relaxed);
    if (used > atomic_load_explicit(&x->n_peak, memory_order_relaxed))
        atomic_store_explicit(&x->n_peak, used, memory_order_relaxed);
    return id;
}

void pieces_free(struct pieces *x, int32_t id)
{
    bool ok = pieces_is_used(x, id);
    T9_ASSERT(ok);
    if (!ok)
        return;
    x->used[id] = 0;
    x->free_stack[x->n_free++] = id;
    atomic_fetch_sub_explicit(&x->n_used, 1, memory_order_relaxed);
}

bool pieces_is_used(const struct pieces *x, int32_t id)
{
    return id >= 0 && id < x->n_ever && x->used[id] != 0;
}

void pieces_trim(struct kv_pool *p, struct pieces *x)
{
    for (; x->n_trimmed < x->n_free; x->n_trimmed++)
        decommit(p, x, x->free_stack[x->n_trimmed]);
}
