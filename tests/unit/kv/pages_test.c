/*
 * pages_test: what the page pool hands out, that a random life never hands a page out twice, and
 * that memory follows use.
 */
#include "kv/pages.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct be *be;
static struct kv_geom geom;

static int setup(void **state)
{
    (void)state;
    struct be_params bp = {.n_threads = 1, .max_rows = 1};
    struct t9_err err;
    if (!kv_geom_init_same(&geom, 4, 2, 64, KV_TYPE_F16))
        return 1;
    return be_new(&be, "ref", &bp, &err) == T9_STATUS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    be_free(be);
    return 0;
}

static struct kv_pool *new_pool(uint64_t bytes)
{
    struct kv_pool *p = NULL;
    struct t9_err err;
    assert_int_equal(kv_pool_new(&p, be, &geom, bytes, &err), T9_STATUS_OK);
    return p;
}

/* Resident bytes of this process. */
static size_t resident(void)
{
    unsigned long size = 0;
    unsigned long rss = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &size, &rss), 2);
    fclose(f);
    return (size_t)rss * (size_t)sysconf(_SC_PAGESIZE);
}

/* The pool asks for huge pages: "hg" among the flags of its mapping. */
static void on_huge_pages(void **state)
{
    (void)state;
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f || access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) != 0) {
        if (f)
            fclose(f);
        skip();
    }
    struct kv_pool *p = new_pool(64 * geom.page_bytes);
    uintptr_t at = (uintptr_t)kv_pool_base(p);
    char line[512];
    bool inside = false, huge = false;
    unsigned long long from = 0;
    unsigned long long to = 0;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
            inside = at >= from && at < to;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            huge = strstr(line, " hg") != NULL;
    }
    fclose(f);
    assert_true(huge);
    kv_pool_free(p);
}

static void budget(void **state)
{
    (void)state;
    struct kv_pool *p = NULL;
    struct t9_err err;
    assert_int_equal(kv_pool_new(&p, be, &geom, geom.page_bytes - 1, &err), T9_STATUS_INVALID);
    assert_null(p);
    char want[32];
    snprintf(want, sizeof want, "%zu bytes", geom.page_bytes);
    assert_non_null(strstr(err.msg, want));
    p = new_pool(3 * geom.page_bytes + 17);
    assert_int_equal(kv_pool_stats(p).pages_total, 3);
    assert_int_equal(kv_pool_stats(p).page_bytes, geom.page_bytes);
    kv_pool_free(p);
    mem_test_fail_nth(1);
    assert_int_equal(kv_pool_new(&p, be, &geom, geom.page_bytes, &err), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
    kv_pool_free(NULL);
}

static void last_in_first_out(void **state)
{
    (void)state;
    struct kv_pool *p = new_pool(4 * geom.page_bytes);
    for (int32_t i = 0; i < 4; i++)
        assert_int_equal(kv_page_alloc(p), i);
    assert_int_equal(kv_page_alloc(p), -1);
    kv_page_free(p, 1);
    kv_page_free(p, 3);
    assert_int_equal(kv_pool_stats(p).pages_used, 2);
    assert_int_equal(kv_page_alloc(p), 3);
    assert_int_equal(kv_page_alloc(p), 1);
    assert_int_equal(kv_page_alloc(p), -1);
    assert_int_equal(kv_pool_stats(p).pages_peak, 4);
    kv_pool_free(p);
}

#ifndef T9_DEBUG
/* Debug builds stop here instead. */
static void double_free_is_ignored(void **state)
{
    (void)state;
    struct kv_pool *p = new_pool(4 * geom.page_bytes);
    int32_t a = kv_page_alloc(p);
    kv_page_free(p, a);
    kv_page_free(p, a);
    kv_page_free(p, -1);
    kv_page_free(p, 3);
    kv_page_free(p, 4);
    assert_int_equal(kv_pool_stats(p).pages_used, 0);
    assert_int_not_equal(kv_page_alloc(p), kv_page_alloc(p));
    kv_pool_free(p);
}
#endif

static void random_life(void **state)
{
    (void)state;
    enum { PAGES = 300, STEPS = 40000 };
    struct kv_pool *p = new_pool(PAGES * geom.page_bytes);
    int32_t held[PAGES];
    bool mine[PAGES] = {false};
    int32_t n = 0;
    uint64_t x = 88172645463325252ull;
    for (int i = 0; i < STEPS; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        /* Long swings between empty and full. */
        bool grow = (x >> 20) % 100 < ((i / 3000) % 2 ? 30u : 70u);
        if (grow) {
            int32_t page = kv_page_alloc(p);
            assert_int_equal(page < 0, n == PAGES);
            if (page < 0)
                continue;
            assert_false(mine[page]);
            mine[page] = true;
            memset(kv_page_k(&geom.layers[0], kv_pool_base(p), page, 0), page & 255, 64);
            held[n++] = page;
        } else if (n > 0) {
            int32_t at = (int32_t)((x >> 33) % (uint64_t)n);
            int32_t page = held[at];
            const unsigned char *k =
                (const unsigned char *)kv_page_k(&geom.layers[0], kv_pool_base(p), page, 0);
            assert_int_equal(k[63], page & 255);
            held[at] = held[--n];
            mine[page] = false;
            kv_page_free(p, page);
        }
        if (i % 501 == 0)
            kv_pool_trim(p);
        assert_int_equal(kv_pool_stats(p).pages_used, n);
    }
    kv_pool_free(p);
}

static void memory_follows_use(void **state)
{
    (void)state;
    enum { USED = 1000 };
    const size_t mb = (size_t)1 << 20;
    size_t start = resident();
    struct kv_pool *p = new_pool((uint64_t)64 << 30);
    assert_true(resident() < start + mb);
    int32_t pages[USED];
    for (int i = 0; i < USED; i++) {
        pages[i] = kv_page_alloc(p);
        memset((char *)kv_pool_base(p) + (size_t)pages[i] * geom.page_bytes, 1, geom.page_bytes);
    }
    size_t full = resident();
    assert_true(full > start + USED * geom.page_bytes - mb);
    for (int i = 10; i < USED; i++)
        kv_page_free(p, pages[i]);
    kv_pool_trim(p);
    size_t trimmed = resident();
    /* A slice that was being taken ahead may come late, on two huge pages. */
    assert_true(trimmed < start + 10 * geom.page_bytes + 5 * mb);
    /* What is in use was not touched. */
    assert_int_equal(((char *)kv_pool_base(p))[(size_t)pages[9] * geom.page_bytes], 1);
    for (int i = 0; i < 10; i++)
        kv_page_free(p, pages[i]);
    kv_pool_trim(p);
    assert_int_equal(kv_page_alloc(p), 0);
    kv_pool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_huge_pages),
        cmocka_unit_test(budget),
        cmocka_unit_test(last_in_first_out),
#ifndef T9_DEBUG
        cmocka_unit_test(double_free_is_ignored),
#endif
        cmocka_unit_test(random_life),
        cmocka_unit_test(memory_follows_use),
    };
    return cmocka_run_group_tests_name("kv", tests, setup, teardown);
}
