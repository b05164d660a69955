/*
 * kv/pages.c - the page pool: pages and window pages out of a byte budget, which states of hybrid
 * models (state.c) share. See pool.h for how pieces of memory are handed out and given back.
 *
 * Starting costs nothing, whatever the budget. While the pool grows, a thread takes memory ahead of
 * it (ahead.h). It knows nothing of sequences or tokens. Engine thread only, except kv_pool_stats.
 */
#include "kv/kv.h"

#include "base/mem.h"
#include "kv/pool.h"

#include <string.h>

#define PAGES_MAX ((uint64_t)1 << 28)

static t9_status group_init(struct kv_pool *p, struct pieces *x, size_t page_bytes,
                            struct t9_err *err)
{
    T9_TRY(pieces_init(x, p->be, p->budget_bytes / page_bytes, page_bytes, page_bytes, 0, err));
    return ahead_init(&x->ahead, x->base, x->base_bytes, err);
}

t9_status kv_pool_new(struct kv_pool **out, struct be *be, const struct kv_geom *geom,
                      uint64_t budget_bytes, struct t9_err *err)
{
    *out = NULL;
    bool windows = geom->window_bytes > 0;
    size_t least =
        windows && geom->window_bytes < geom->page_bytes ? geom->window_bytes : geom->page_bytes;
    if (budget_bytes < kv_geom_bytes(geom))
        return t9_fail(
            err, T9_STATUS_INVALID,
            "KV cache: a budget of %llu bytes holds no page; a page of %d tokens of this "
            "model takes %zu bytes",
            (unsigned long long)budget_bytes, KV_PAGE_TOKENS, kv_geom_bytes(geom));
    if (budget_bytes / least > PAGES_MAX)
        budget_bytes = PAGES_MAX * least;
    struct kv_pool *p = mem_calloc(1, sizeof *p);
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "KV cache: out of memory");
    p->be = be;
    p->geom = *geom;
    p->budget_bytes = budget_bytes;
    t9_status st = group_init(p, &p->pages, geom->page_bytes, err);
    if (st == T9_STATUS_OK && windows)
        st = group_init(p, &p->windows, geom->window_bytes, err);
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
    ahead_deinit(&p->pages.ahead);
    ahead_deinit(&p->windows.ahead);
    pieces_deinit(&p->pages, p->be);
    pieces_deinit(&p->windows, p->be);
    pieces_deinit(&p->states, p->be);
    mem_free(p);
}

const struct kv_geom *kv_pool_geom(const struct kv_pool *p)
{
    return &p->geom;
}

struct be *kv_pool_be(const struct kv_pool *p)
{
    return p->be;
}

/* ---- pages of either group ---- */

static int32_t group_alloc(struct kv_pool *p, struct pieces *x)
{
    int32_t n_ever = x->n_ever;
    int32_t page = pieces_alloc(p, x);
    if (x->n_ever > n_ever)
        ahead_grow(&x->ahead, (size_t)x->n_ever * x->stride_bytes, pieces_ahead_max(p, x));
    return page;
}

static void group_copy(struct pieces *x, int32_t dst, int32_t src)
{
    bool ok = pieces_is_used(x, dst) && src >= 0 && src < x->n_max;
    T9_ASSERT(ok);
    if (ok && dst != src)
        memcpy((char *)x->base + (size_t)dst * x->stride_bytes,
               (const char *)x->base + (size_t)src * x->stride_bytes, x->stride_bytes);
}

static void group_trim(struct kv_pool *p, struct pieces *x)
{
    char *base = x->base;
    if (x->n_max == 0)
        return;
    if (x->n_free == x->n_ever) {
        /* Nothing is used: one call for all, and pages are handed out from the start again. */
        size_t end = ahead_shrink(&x->ahead, 0);
        if ((size_t)x->n_ever * x->stride_bytes > end)
            end = (size_t)x->n_ever * x->stride_bytes;
        if (x->n_ever > 0)
            be_decommit(p->be, base, end);
        x->n_ever = x->n_free = x->n_trimmed = 0;
        return;
    }
    pieces_trim(p, x);
    pieces_give_back_ahead(p, x);
}

void *kv_pool_base(const struct kv_pool *p)
{
    return p->pages.base;
}

int32_t kv_page_alloc(struct kv_pool *p)
{
    return group_alloc(p, &p->pages);
}

void kv_page_free(struct kv_pool *p, int32_t page)
{
    pieces_free(&p->pages, page);
}

void kv_page_copy(struct kv_pool *p, int32_t dst, int32_t src)
{
    group_copy(&p->pages, dst, src);
}

bool kv_page_is_used(const struct kv_pool *p, int32_t page)
{
    return pieces_is_used(&p->pages, page);
}

void *kv_window_base(const struct kv_pool *p)
{
    return p->windows.base;
}

int32_t kv_window_alloc(struct kv_pool *p)
{
    return p->windows.n_max > 0 ? group_alloc(p, &p->windows) : -1;
}

void kv_window_free(struct kv_pool *p, int32_t page)
{
    pieces_free(&p->windows, page);
}

void kv_window_copy(struct kv_pool *p, int32_t dst, int32_t src)
{
    group_copy(&p->windows, dst, src);
}

bool kv_window_is_used(const struct kv_pool *p, int32_t page)
{
    return pieces_is_used(&p->windows, page);
}

int32_t kv_window_max(const struct kv_pool *p)
{
    return p->windows.n_max;
}

void kv_pool_trim(struct kv_pool *p)
{
    pieces_trim(p, &p->states);
    group_trim(p, &p->windows);
    group_trim(p, &p->pages);
}

struct kv_pool_stats kv_pool_stats(const struct kv_pool *p)
{
    int32_t pages = atomic_load_explicit(&p->pages.n_used, memory_order_relaxed);
    int32_t states = atomic_load_explicit(&p->states.n_used, memory_order_relaxed);
    int32_t windows = atomic_load_explicit(&p->windows.n_used, memory_order_relaxed);
    uint64_t used_bytes = (uint64_t)pages * p->pages.cost_bytes +
                          (uint64_t)windows * p->windows.cost_bytes +
                          (uint64_t)states * p->states.cost_bytes;
    return (struct kv_pool_stats){
        .pages_total = p->pages.n_max,
        .pages_used = pages,
        .pages_peak = atomic_load_explicit(&p->pages.n_peak, memory_order_relaxed),
        .states_used = states,
        .windows_used = windows,
        .page_bytes = p->geom.page_bytes,
        .state_bytes = p->states.cost_bytes,
        .window_bytes = p->windows.cost_bytes,
        .free_bytes = p->budget_bytes > used_bytes ? p->budget_bytes - used_bytes : 0,
    };
}
