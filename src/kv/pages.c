/*
 * kv/pages.c - the page pool: pages out of a byte budget, which states of hybrid models (state.c)
 * share. See pool.h for how pieces of memory are handed out and given back.
 *
 * Starting costs nothing, whatever the budget. While the pool grows, a thread takes memory ahead of
 * it (ahead.h). It knows nothing of sequences or tokens. Engine thread only, except kv_pool_stats.
 */
#include "kv/kv.h"

#include "base/mem.h"
#include "kv/pool.h"

#include <string.h>

#define PAGES_MAX ((uint64_t)1 << 28)

t9_status kv_pool_new(struct kv_pool **out, struct be *be, const struct kv_geom *geom,
                      uint64_t budget_bytes, struct t9_err *err)
{
    *out = NULL;
    uint64_t n = budget_bytes / geom->page_bytes;
    if (n < 1)
        return t9_fail(
            err, T9_STATUS_INVALID,
            "KV cache: a budget of %llu bytes holds no page; a page of %d tokens of this "
            "model takes %zu bytes",
            (unsigned long long)budget_bytes, KV_PAGE_TOKENS, geom->page_bytes);
    if (n > PAGES_MAX) {
        n = PAGES_MAX;
        budget_bytes = n * geom->page_bytes;
    }
    struct kv_pool *p = mem_calloc(1, sizeof *p);
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "KV cache: out of memory");
    p->be = be;
    p->geom = *geom;
    p->budget_bytes = budget_bytes;
    t9_status st = pieces_init(&p->pages, be, n, geom->page_bytes, geom->page_bytes, 0, err);
    if (st == T9_STATUS_OK)
        st = ahead_init(&p->ahead, p->pages.base, p->pages.base_bytes, err);
    if (st != T9_STATUS_OK) {
        kv_pool_free(p);
        return st;
    }
    *out = p;
    return T9_STATUS_OK;
}

void kv_pool_free(struct kv_pool *p)
{
    if (!p)
        return;
    ahead_deinit(&p->ahead);
    pieces_deinit(&p->pages, p->be);
    pieces_deinit(&p->states, p->be);
    mem_free(p);
}

void *kv_pool_base(const struct kv_pool *p)
{
    return p->pages.base;
}

const struct kv_geom *kv_pool_geom(const struct kv_pool *p)
{
    return &p->geom;
}

struct be *kv_pool_be(const struct kv_pool *p)
{
    return p->be;
}

int32_t kv_page_alloc(struct kv_pool *p)
{
    int32_t n_ever = p->pages.n_ever;
    int32_t page = pieces_alloc(p, &p->pages, &p->states);
    if (p->pages.n_ever > n_ever)
        ahead_grow(&p->ahead, (size_t)p->pages.n_ever * p->geom.page_bytes);
    return page;
}

void kv_page_free(struct kv_pool *p, int32_t page)
{
    pieces_free(&p->pages, page);
}

void kv_page_copy(struct kv_pool *p, int32_t dst, int32_t src)
{
    bool ok = kv_page_is_used(p, dst) && src >= 0 && src < p->pages.n_max;
    T9_ASSERT(ok);
    if (ok && dst != src)
        memcpy((char *)p->pages.base + (size_t)dst * p->geom.page_bytes,
               (const char *)p->pages.base + (size_t)src * p->geom.page_bytes, p->geom.page_bytes);
}

bool kv_page_is_used(const struct kv_pool *p, int32_t page)
{
    return pieces_is_used(&p->pages, page);
}

void kv_pool_trim(struct kv_pool *p)
{
    struct pieces *x = &p->pages;
    size_t page_bytes = p->geom.page_bytes;
    char *base = x->base;
    pieces_trim(p, &p->states);
    if (x->n_free == x->n_ever) {
        /* Nothing is used: one call for all, and pages are handed out from the start again. */
        size_t end = ahead_shrink(&p->ahead, 0);
        if ((size_t)x->n_ever * page_bytes > end)
            end = (size_t)x->n_ever * page_bytes;
        if (x->n_ever > 0)
            be_decommit(p->be, base, end);
        x->n_ever = x->n_free = x->n_trimmed = 0;
        return;
    }
    pieces_trim(p, x);
    size_t used_bytes = (size_t)x->n_ever * page_bytes;
    be_decommit(p->be, base + used_bytes, ahead_shrink(&p->ahead, used_bytes) - used_bytes);
}

struct kv_pool_stats kv_pool_stats(const struct kv_pool *p)
{
    int32_t pages = atomic_load_explicit(&p->pages.n_used, memory_order_relaxed);
    int32_t states = atomic_load_explicit(&p->states.n_used, memory_order_relaxed);
    uint64_t used_bytes =
        (uint64_t)pages * p->pages.cost_bytes + (uint64_t)states * p->states.cost_bytes;
    return (struct kv_pool_stats){
        .pages_total = p->pages.n_max,
        .pages_used = pages,
        .pages_peak = atomic_load_explicit(&p->pages.n_peak, memory_order_relaxed),
        .states_used = states,
        .page_bytes = p->geom.page_bytes,
        .state_bytes = p->states.cost_bytes,
        .free_bytes = p->budget_bytes > used_bytes ? p->budget_bytes - used_bytes : 0,
    };
}
