/*
 * kv/pages.c - the page pool: which pages are used, and when memory goes back to the system.
 *
 * Pages 0 .. n_ever have been handed out at least once; freed ones lie on a stack, so the page
 * whose memory is warmest is used next and memory follows use. Both tables beside the pages live in
 * reserved address space and are touched only where pages have been used: starting costs nothing,
 * whatever the budget. `n_trimmed` entries at the bottom of the stack have given their memory back
 * already. While the pool grows, a thread takes memory ahead of it (ahead.h).
 *
 * It knows nothing of sequences or tokens. Engine thread only, except kv_pool_stats.
 */
#include "kv/kv.h"

#include "base/mem.h"
#include "kv/ahead.h"

#include <stdatomic.h>
#include <string.h>

#define PAGES_MAX ((uint64_t)1 << 28)

struct kv_pool {
    struct be *be;
    struct kv_geom geom;
    int32_t n_pages;
    int32_t n_ever, n_free, n_trimmed;
    void *base;
    size_t base_bytes;
    int32_t *free_stack; /* [n_pages] */
    uint8_t *used;       /* [n_pages] */
    void *tables;
    size_t tables_bytes;
    struct ahead ahead;
    _Atomic int32_t n_used, n_peak;
};

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
    if (n > PAGES_MAX)
        n = PAGES_MAX;
    struct kv_pool *p = mem_calloc(1, sizeof *p);
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "KV cache: out of memory");
    p->be = be;
    p->geom = *geom;
    p->n_pages = (int32_t)n;
    p->base_bytes = (size_t)n * geom->page_bytes;
    p->tables_bytes = (size_t)n * (sizeof *p->free_stack + sizeof *p->used);
    atomic_init(&p->n_used, 0);
    atomic_init(&p->n_peak, 0);
    t9_status st = be_reserve(be, p->base_bytes, &p->base, err);
    if (st == T9_STATUS_OK) {
        be_want_huge(be, p->base, p->base_bytes);
        st = be_reserve(be, p->tables_bytes, &p->tables, err);
    }
    if (st == T9_STATUS_OK)
        st = ahead_init(&p->ahead, p->base, p->base_bytes, err);
    if (st != T9_STATUS_OK) {
        kv_pool_free(p);
        return st;
    }
    p->free_stack = p->tables;
    p->used = (uint8_t *)(p->free_stack + n);
    *out = p;
    return T9_STATUS_OK;
}

void kv_pool_free(struct kv_pool *p)
{
    if (!p)
        return;
    ahead_deinit(&p->ahead);
    if (p->base)
        be_unreserve(p->be, p->base, p->base_bytes);
    if (p->tables)
        be_unreserve(p->be, p->tables, p->tables_bytes);
    mem_free(p);
}

void *kv_pool_base(const struct kv_pool *p)
{
    return p->base;
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
    int32_t page;
    if (p->n_free > 0) {
        page = p->free_stack[--p->n_free];
        if (p->n_trimmed > p->n_free)
            p->n_trimmed = p->n_free;
    } else if (p->n_ever < p->n_pages) {
        page = p->n_ever++;
        ahead_grow(&p->ahead, (size_t)p->n_ever * p->geom.page_bytes);
    } else {
        return -1;
    }
    p->used[page] = 1;
    int32_t used = atomic_load_explicit(&p->n_used, memory_order_relaxed) + 1;
    atomic_store_explicit(&p->n_used, used, memory_order_relaxed);
    if (used > atomic_load_explicit(&p->n_peak, memory_order_relaxed))
        atomic_store_explicit(&p->n_peak, used, memory_order_relaxed);
    return page;
}

/* A page that is not used is a programmer error; outside debug builds it is ignored, since handing
 * one page to two sequences would be far worse than losing it. */
void kv_page_free(struct kv_pool *p, int32_t page)
{
    bool ok = page >= 0 && page < p->n_ever && p->used[page];
    T9_ASSERT(ok);
    if (!ok)
        return;
    p->used[page] = 0;
    p->free_stack[p->n_free++] = page;
    atomic_fetch_sub_explicit(&p->n_used, 1, memory_order_relaxed);
}

void kv_page_copy(struct kv_pool *p, int32_t dst, int32_t src)
{
    bool ok = kv_page_is_used(p, dst) && src >= 0 && src < p->n_pages;
    T9_ASSERT(ok);
    if (ok && dst != src)
        memcpy((char *)p->base + (size_t)dst * p->geom.page_bytes,
               (const char *)p->base + (size_t)src * p->geom.page_bytes, p->geom.page_bytes);
}

bool kv_page_is_used(const struct kv_pool *p, int32_t page)
{
    return page >= 0 && page < p->n_ever && p->used[page] != 0;
}

void kv_pool_trim(struct kv_pool *p)
{
    size_t page_bytes = p->geom.page_bytes;
    char *base = p->base;
    if (p->n_free == p->n_ever) {
        /* Nothing is used: one call for all, and pages are handed out from the start again. */
        size_t end = ahead_shrink(&p->ahead, 0);
        if ((size_t)p->n_ever * page_bytes > end)
            end = (size_t)p->n_ever * page_bytes;
        if (p->n_ever > 0)
            be_decommit(p->be, base, end);
        p->n_ever = p->n_free = p->n_trimmed = 0;
        return;
    }
    for (int32_t i = p->n_trimmed; i < p->n_free; i++)
        be_decommit(p->be, base + (size_t)p->free_stack[i] * page_bytes, page_bytes);
    p->n_trimmed = p->n_free;
    size_t used_bytes = (size_t)p->n_ever * page_bytes;
    be_decommit(p->be, base + used_bytes, ahead_shrink(&p->ahead, used_bytes) - used_bytes);
}

struct kv_pool_stats kv_pool_stats(const struct kv_pool *p)
{
    return (struct kv_pool_stats){
        .pages_total = p->n_pages,
        .pages_used = atomic_load_explicit(&p->n_used, memory_order_relaxed),
        .pages_peak = atomic_load_explicit(&p->n_peak, memory_order_relaxed),
        .page_bytes = p->geom.page_bytes,
    };
}
