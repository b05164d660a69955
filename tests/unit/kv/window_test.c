/*
 * window_test: window pages in the pool and in the prefix tree. What layers with a window keep,
 * what goes first, and where a text can be gone on with; then random lives, with the tree's own
 * check after every operation. Each page holds a hash of the text that it stands for, in both
 * groups.
 */
#include "resident.h"
#include "tree_rig.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kv/pool.h"

enum {
    P = KV_PAGE_TOKENS,
    WINDOW = 70, /* reaches three pages back */
    SPAN = 3,
    LONG = 40 * P,
};

static int setup(void **state)
{
    (void)state;
    const struct kv_shape shapes[] = {{8, 8, WINDOW}, {1, 8, 0}, {8, 8, 20}};
    if (!kv_geom_init(&geom, shapes, 3, KV_TYPE_F16))
        return 1;
    return rig_open();
}

static void open_tree(uint64_t bytes)
{
    struct t9_err err;
    assert_int_equal(kv_pool_new(&pool, be, &geom, bytes, &err), T9_STATUS_OK);
    rig_open_tree();
}

static uint64_t *page_content(int32_t page)
{
    return (uint64_t *)(void *)((char *)kv_pool_base(pool) + (size_t)page * geom.page_bytes);
}

static uint64_t *window_content(int32_t page)
{
    return (uint64_t *)(void *)((char *)kv_window_base(pool) + (size_t)page * geom.window_bytes);
}

/* A page of the text up to n tokens, in both groups; false when there is no room. */
static bool new_page(const int32_t *tokens, int32_t n, int32_t *page, int32_t *window)
{
    *window = kv_window_alloc(pool);
    *page = kv_page_alloc(pool);
    if (*page < 0 || *window < 0) {
        if (*window >= 0)
            kv_window_free(pool, *window);
        if (*page >= 0)
            kv_page_free(pool, *page);
        return false;
    }
    *page_content(*page) = *window_content(*window) = hash_of(tokens, n);
    return true;
}

/* Adds the next page of the text to the hold. */
static bool grow_one(struct kv_hold *hold, const int32_t *tokens)
{
    int32_t n = (hold->n_pages + 1) * P;
    int32_t page;
    int32_t window;
    if (!new_page(tokens, n, &page, &window))
        return false;
    assert_int_equal(kv_tree_add(tree, hold, tokens + n - P, &page, &window, hold, now),
                     T9_STATUS_OK);
    assert_int_equal(*page_content(page), hash_of(tokens, n));
    assert_int_equal(*window_content(window), hash_of(tokens, n));
    return true;
}

static void grow(struct kv_hold *hold, const int32_t *tokens, int32_t n_pages)
{
    while (hold->n_pages < n_pages)
        assert_true(grow_one(hold, tokens));
}

static void add_tail(const struct kv_hold *hold, const int32_t *tokens, int32_t n)
{
    int32_t page;
    int32_t window;
    int32_t done = hold->n_pages * P;
    assert_true(new_page(tokens, n, &page, &window));
    kv_tree_add_tail(tree, hold, tokens + done, n - done, page, window, now);
}

/* Matches, and looks at all that the match says may be read. */
static struct kv_match match(struct kv_hold *hold, const int32_t *tokens, int32_t n)
{
    int32_t pages[LONG / P];
    int32_t windows[LONG / P];
    int32_t n_before = hold->n_pages;
    struct kv_match m = kv_tree_match(tree, hold, tokens, n, pages, now);
    kv_hold_windows(tree, hold, windows);
    assert_int_equal(hold->window_from, kv_window_first(&geom, hold->n_pages));
    for (int32_t i = 0; i < hold->n_pages; i++) {
        if (i >= n_before)
            assert_int_equal(*page_content(pages[i]), hash_of(tokens, (i + 1) * P));
        if (i >= hold->window_from)
            assert_int_equal(*window_content(windows[i]), hash_of(tokens, (i + 1) * P));
    }
    assert_int_equal(m.n_tail > 0, m.tail_page >= 0);
    assert_int_equal(m.n_tail > 0, m.tail_window >= 0);
    if (m.n_tail > 0)
        assert_int_equal(*page_content(m.tail_page), *window_content(m.tail_window));
    return m;
}

/* Where the text can be gone on with. */
static int32_t resume(const int32_t *tokens, int32_t n)
{
    struct kv_hold hold = {0};
    struct kv_match m = match(&hold, tokens, n);
    int32_t at = hold.n_pages * P + m.n_tail;
    kv_tree_release(tree, &hold, now);
    return at;
}

static uint64_t free_windows(int32_t n)
{
    return kv_tree_free_bytes(tree, (uint64_t)n * geom.window_bytes, false, -1, now);
}

/* ---- geometry and pool ---- */

static void groups(void **state)
{
    (void)state;
    struct kv_geom g;
    const struct kv_shape all_slide[] = {{1, 8, 5}, {1, 8, 9}};
    const struct kv_shape wide[] = {{1, 8, 0}, {1, 8, INT32_MAX}};
    const struct kv_shape bad[] = {{1, 8, 0}, {1, 8, -1}};
    assert_int_equal(geom.window, WINDOW);
    assert_int_equal(geom.page_bytes, 4096);
    assert_int_equal(geom.window_bytes, 2 * 8192);
    assert_true(geom.layers[0].in_window && !geom.layers[1].in_window && geom.layers[2].in_window);
    assert_int_equal(geom.layers[0].layer_offset, 0);
    assert_int_equal(geom.layers[1].layer_offset, 0);
    assert_int_equal(geom.layers[2].layer_offset, 8192);
    assert_int_equal(geom.layers[1].page_bytes, 4096);
    assert_int_equal(geom.layers[2].page_bytes, 2 * 8192);
    assert_int_equal(kv_window_span(&geom), SPAN);
    /* A row at the start of page 5 sees tokens from 160 - 69 on. */
    assert_int_equal(kv_window_first(&geom, 5), (5 * P - WINDOW + 1) / P);
    assert_int_equal(kv_window_first(&geom, 2), 0);
    geom.window = 65;
    assert_int_equal(kv_window_span(&geom), 2);
    geom.window = 1;
    assert_int_equal(kv_window_span(&geom), 0);
    geom.window = WINDOW;
    assert_true(kv_geom_init(&g, all_slide, 2, KV_TYPE_F16));
    assert_int_equal(g.window, 0); /* one group */
    assert_int_equal(g.window_bytes, 0);
    assert_false(g.layers[0].in_window);
    assert_true(kv_geom_init(&g, wide, 2, KV_TYPE_F16));
    assert_int_equal(kv_window_first(&g, 1 << 20), 0);
    assert_false(kv_geom_init(&g, bad, 2, KV_TYPE_F16));
}

static void one_budget(void **state)
{
    (void)state;
    struct t9_err err = {0};
    int32_t windows[8];
    int32_t pages[33];
    assert_int_equal(kv_pool_new(&pool, be, &geom, geom.page_bytes + geom.window_bytes - 1, &err),
                     T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "takes 20480 bytes"));
    assert_int_equal(kv_pool_new(&pool, be, &geom, 8 * geom.window_bytes, &err), T9_STATUS_OK);
    for (int32_t i = 0; i < 8; i++)
        assert_true((windows[i] = kv_window_alloc(pool)) >= 0);
    assert_int_equal(kv_window_alloc(pool), -1);
    assert_int_equal(kv_page_alloc(pool), -1);
    assert_int_equal(kv_pool_stats(pool).free_bytes, 0);
    *window_content(windows[3]) = 77;
    kv_window_copy(pool, windows[4], windows[3]);
    assert_int_equal(*window_content(windows[4]), 77);
    /* What one kind gives back the other can have, and the bytes with it. */
    kv_window_free(pool, windows[3]);
    for (int32_t i = 0; i < 4; i++)
        assert_true((pages[i] = kv_page_alloc(pool)) >= 0);
    assert_int_equal(kv_page_alloc(pool), -1);
    assert_int_equal(kv_window_alloc(pool), -1);
    assert_int_equal(*window_content(windows[3]), 0); /* its memory went */
    assert_int_equal(*window_content(windows[4]), 77);
    for (int32_t i = 0; i < 4; i++)
        kv_page_free(pool, pages[i]);
    assert_true(kv_window_alloc(pool) >= 0);
    assert_int_equal(kv_pool_stats(pool).windows_used, 8);
    assert_int_equal(kv_pool_stats(pool).window_bytes, geom.window_bytes);
    for (int32_t i = 0; i < 8; i++)
        kv_window_free(pool, i);
    kv_pool_trim(pool);
    assert_int_equal(*window_content(windows[4]), 0);
    kv_pool_free(pool);
}

enum { BUDGET = 64 * MB };

/* Takes and writes pages of one group until `bytes` of the budget are free. With what was taken
 * ahead of both, all stays within the budget. Returns the most that was ahead of this group. */
static uint64_t fill(bool windows, uint64_t bytes)
{
    struct pieces *x = windows ? &pool->windows : &pool->pages;
    uint64_t most = 0;
    while (kv_pool_stats(pool).free_bytes >= bytes + x->cost_bytes) {
        int32_t page = windows ? kv_window_alloc(pool) : kv_page_alloc(pool);
        assert_true(page >= 0);
        memset((char *)x->base + (size_t)page * x->stride_bytes, 1, x->stride_bytes);
        uint64_t memory = pieces_ahead_bytes(&pool->pages) + pieces_ahead_bytes(&pool->windows) +
                          (uint64_t)pool->pages.n_ever * geom.page_bytes +
                          (uint64_t)pool->windows.n_ever * geom.window_bytes;
        assert_true(memory <= BUDGET);
        uint64_t ahead_bytes = pieces_ahead_bytes(x);
        most = ahead_bytes > most ? ahead_bytes : most;
    }
    return most;
}

/* Memory is taken ahead of both groups, and of both together no more than the budget. */
static void ahead_of_both(void **state)
{
    (void)state;
    struct t9_err err;
    for (int first = 0; first < 2; first++) {
        assert_int_equal(kv_pool_new(&pool, be, &geom, BUDGET, &err), T9_STATUS_OK);
        assert_true(fill(first, BUDGET / 2) > 2 * MB);
        assert_true(fill(!first, BUDGET / 4) > 2 * MB);
        clock_sleep_ms(20);
        fill(first, 0);
        clock_sleep_ms(20);
        /* Of each group a slice that was under way when the rest went back may have come after, and
         * its last memory may be a huge page. */
        assert_true(resident(pool->pages.base, pool->pages.base_bytes) +
                        resident(pool->windows.base, pool->windows.base_bytes) <=
                    BUDGET + 2 * (AHEAD_SLICE_BYTES + MEM_HUGE_BYTES));
        kv_pool_free(pool);
    }
}

static void none_without(void **state)
{
    (void)state;
    struct t9_err err = {0};
    struct kv_geom g;
    assert_true(kv_geom_init_same(&g, 2, 1, 8, KV_TYPE_F16));
    assert_int_equal(kv_pool_new(&pool, be, &g, 4 * g.page_bytes, &err), T9_STATUS_OK);
    assert_null(kv_window_base(pool));
    assert_int_equal(kv_window_max(pool), 0);
    assert_int_equal(kv_window_alloc(pool), -1);
    assert_false(kv_window_is_used(pool, 0));
    assert_int_equal(kv_tree_new(&tree, pool, STR("salt"), &err), T9_STATUS_OK);
    assert_null(tree->windows);
    kv_tree_free(tree);
    kv_pool_free(pool);
}

/* ---- the tree ---- */

static void a_long_text_costs_a_window(void **state)
{
    (void)state;
    int32_t t[LONG];
    struct kv_hold hold = {0};
    count_up(t, LONG, 5);
    open_tree(64 * geom.window_bytes);
    grow(&hold, t, 10);
    check(&hold, 1);
    struct kv_tree_stats s = kv_tree_stats(tree);
    assert_int_equal(s.windows, 10);
    assert_int_equal(s.cold_windows, 10 - SPAN);
    assert_int_equal(hold.window_from, 10 - SPAN);
    /* As long as there is room everything can be resumed. */
    assert_int_equal(resume(t, 10 * P + 1), 10 * P);
    assert_int_equal(resume(t, 4 * P + 1), 4 * P);
    /* Memory is wanted: windows that nobody needs go, and no page does. */
    assert_int_equal(free_windows(100), (10 - SPAN) * geom.window_bytes);
    check(&hold, 1);
    s = kv_tree_stats(tree);
    assert_int_equal(s.windows, SPAN);
    assert_int_equal(s.evicted_windows, 10 - SPAN);
    assert_int_equal(s.pages, 10);
    assert_int_equal(s.evicted_pages, 0);
    /* Right after the pages it can be gone on, before that not: what is needed is gone. */
    assert_int_equal(resume(t, 10 * P + 1), 10 * P);
    assert_int_equal(resume(t, 9 * P + 1), 0);
    grow(&hold, t, 30);
    (void)free_windows(100);
    s = kv_tree_stats(tree);
    assert_int_equal(s.windows, SPAN);
    assert_int_equal(s.pages, 30);
    assert_int_equal(kv_pool_stats(pool).windows_used, SPAN);
    kv_tree_release(tree, &hold, now);
    check(NULL, 0);
    /* Nobody needs anything now, and a page without its window is of no use. */
    assert_int_equal(free_windows(1), geom.window_bytes);
    assert_int_equal(resume(t, 30 * P + 1), 0);
    assert_int_equal(kv_tree_free_bytes(tree, UINT64_MAX, false, -1, now),
                     (SPAN - 1) * geom.window_bytes + 30 * geom.page_bytes);
    assert_int_equal(kv_tree_stats(tree).nodes, 0);
    close_tree();
}

static void points_keep_windows(void **state)
{
    (void)state;
    int32_t t[LONG];
    int32_t other[LONG];
    struct kv_hold hold = {0};
    count_up(t, LONG, 5);
    open_tree(64 * geom.window_bytes);
    assert_false(kv_tree_keep_windows(tree, &hold, now)); /* nothing is held */
    grow(&hold, t, 6);
    assert_true(kv_tree_keep_windows(tree, &hold, now));
    grow(&hold, t, 12);
    now += 1000000000;
    assert_true(kv_tree_keep_windows(tree, &hold, now));
    assert_true(kv_tree_keep_windows(tree, &hold, now)); /* again: no other one */
    kv_tree_release(tree, &hold, now);
    check(NULL, 0);
    assert_int_equal(kv_tree_stats(tree).points, 2);
    /* Pages 0, 1, 6 and 7 are between the two. */
    assert_int_equal(free_windows(4), 4 * geom.window_bytes);
    check(NULL, 0);
    assert_int_equal(kv_tree_stats(tree).windows, 8);
    assert_int_equal(resume(t, 12 * P + 1), 12 * P);
    assert_int_equal(resume(t, 12 * P), 12 * P - 1); /* anywhere in its page */
    assert_int_equal(resume(t, 6 * P + 1), 6 * P);
    assert_int_equal(resume(t, 6 * P - 9), 6 * P - 10);
    /* Between them back to the first one; what is beyond is there, but of no use. */
    assert_int_equal(resume(t, 9 * P + 1), 6 * P);
    memcpy(other, t, sizeof t);
    other[9 * P + 3] = 1;
    struct kv_match m = match(&hold, other, 12 * P);
    assert_int_equal(hold.n_pages, 6);
    assert_int_equal(m.n_common, 9 * P);
    assert_int_equal(m.n_tail, 0);
    /* Somebody who computes it again gives the windows back. */
    grow(&hold, other, 11);
    check(&hold, 1);
    assert_int_equal(kv_tree_stats(tree).windows, 8 + 2 + 2);
    assert_int_equal(kv_tree_stats(tree).duplicates, 3);
    kv_tree_release(tree, &hold, now);
    assert_int_equal(resume(t, 9 * P + 1), 9 * P);
    close_tree();
}

/* The point used longest ago goes first, a pinned one last; with a point go the windows that
 * nothing else needs. */
static void points_go_in_order(void **state)
{
    (void)state;
    int32_t t[LONG];
    struct kv_hold hold = {0};
    count_up(t, LONG, 5);
    open_tree(64 * geom.window_bytes);
    for (int32_t n = 6; n <= 30; n += 8) {
        grow(&hold, t, n);
        assert_true(kv_tree_keep_windows(tree, &hold, now));
        now += 1000000000;
    }
    /* Used again: the second, as by a prompt that goes on there. */
    struct kv_hold again = {0};
    (void)match(&again, t, 14 * P + 1);
    assert_true(kv_tree_keep_windows(tree, &again, now));
    kv_tree_release(tree, &again, now);
    assert_int_equal(kv_tree_pin(tree, t, 6 * P, now + 1000), 6);
    check(&hold, 1);
    (void)free_windows(30 - 4 * (SPAN + 1)); /* what is between */
    assert_int_equal(kv_tree_stats(tree).points, 4);
    now += 1;
    assert_int_equal(free_windows(1), geom.window_bytes);
    check(&hold, 1);
    assert_int_equal(kv_tree_stats(tree).points, 3);
    assert_int_equal(free_windows(SPAN), SPAN * geom.window_bytes);
    assert_int_equal(resume(t, 22 * P + 1), 14 * P);
    assert_int_equal(resume(t, 30 * P + 1), 30 * P);
    /* All that is not pinned. The running sequence keeps what it needs; it is not a point's. */
    (void)free_windows(1000);
    check(&hold, 1);
    assert_int_equal(kv_tree_stats(tree).points, 1);
    assert_int_equal(resume(t, 14 * P + 1), 6 * P);
    assert_int_equal(resume(t, 30 * P + 1), 30 * P);
    assert_int_equal(kv_tree_stats(tree).windows, SPAN + SPAN + 1);
    assert_int_equal(kv_tree_free_bytes(tree, geom.window_bytes, true, -1, now), geom.window_bytes);
    assert_int_equal(resume(t, 6 * P + 1), 5 * P);
    kv_tree_release(tree, &hold, now);
    close_tree();
}

/* A leaf without its window goes before any point, and its pages up to one that can be resumed. */
static void useless_pages_go_first(void **state)
{
    (void)state;
    int32_t t[LONG];
    int32_t other[LONG];
    struct kv_hold hold = {0};
    count_up(t, LONG, 5);
    count_up(other, LONG, 7);
    open_tree(64 * geom.window_bytes);
    grow(&hold, other, 2); /* another one's, used longest ago */
    assert_true(kv_tree_keep_windows(tree, &hold, now));
    kv_tree_release(tree, &hold, now);
    now += 1000000000;
    grow(&hold, t, 6);
    assert_true(kv_tree_keep_windows(tree, &hold, now));
    grow(&hold, t, 10);
    kv_tree_release(tree, &hold, now);
    (void)free_windows(10 - SPAN - 1);
    assert_int_equal(kv_tree_stats(tree).pages, 12);
    assert_int_equal(kv_tree_free_bytes(tree, 4 * geom.page_bytes, false, -1, now),
                     4 * geom.page_bytes);
    assert_int_equal(resume(t, 10 * P), 6 * P);
    check(NULL, 0);
    /* Then a cold page with its window, of the text used longest ago. */
    assert_int_equal(kv_tree_free_bytes(tree, 1, false, -1, now + 1000),
                     geom.page_bytes + geom.window_bytes);
    assert_int_equal(resume(other, 10 * P), P);
    assert_int_equal(resume(t, 10 * P), 6 * P);
    close_tree();
}

static void tails(void **state)
{
    (void)state;
    int32_t t[LONG];
    struct kv_hold hold = {0};
    count_up(t, LONG, 5);
    open_tree(64 * geom.window_bytes);
    grow(&hold, t, 8);
    add_tail(&hold, t, 8 * P + 20);
    add_tail(&hold, t, 8 * P + 20); /* an equal one: nothing new */
    kv_tree_release(tree, &hold, now);
    check(NULL, 0);
    assert_int_equal(kv_tree_stats(tree).tails, 1);
    assert_int_equal(kv_pool_stats(pool).windows_used, 9);
    /* The end of a text is a resume point, from anywhere in the tail. */
    (void)free_windows(9 - SPAN - 1);
    check(NULL, 0);
    assert_int_equal(kv_tree_stats(tree).points, 1);
    assert_int_equal(resume(t, LONG), 8 * P + 20);
    assert_int_equal(resume(t, 8 * P + 4), 8 * P + 3);
    assert_int_equal(resume(t, 8 * P), 0);
    /* A tail without its window cannot be copied; another one of the same text takes its place. */
    (void)match(&hold, t, 8 * P + 1);
    (void)free_windows(1);
    check(&hold, 1);
    assert_int_equal(kv_tree_stats(tree).windows, SPAN);
    struct kv_match m = match(&hold, t, LONG);
    assert_int_equal(m.n_tail, 0);
    add_tail(&hold, t, 8 * P + 20);
    check(&hold, 1);
    m = match(&hold, t, LONG);
    assert_int_equal(m.n_tail, 20);
    kv_tree_release(tree, &hold, now);
    close_tree();
}

/* What is discarded goes with its window pages and resume points, but not what was proven before.
 */
static void discarded(void **state)
{
    (void)state;
    int32_t t[LONG];
    count_up(t, LONG, 100);
    open_tree(64 * (geom.page_bytes + geom.window_bytes));
    struct kv_hold h[2] = {{0}, {0}};
    grow(&h[0], t, 6);
    kv_tree_prove(tree, &h[0]);
    grow(&h[0], t, 12);
    assert_true(kv_tree_keep_windows(tree, &h[0], now));
    grow(&h[1], t, 14);
    add_tail(&h[1], t, 14 * P + 3);
    check(h, 2);
    kv_tree_discard(tree, &h[0], now);
    check(h, 2);
    assert_int_equal(kv_tree_stats(tree).pages, 15); /* the other one's */
    kv_tree_discard(tree, &h[1], now);
    check(h, 2);
    assert_int_equal(kv_tree_stats(tree).pages, 6);
    assert_int_equal(kv_tree_stats(tree).points, 0);
    assert_int_equal(kv_pool_stats(pool).pages_used, 6);
    assert_int_equal(kv_pool_stats(pool).windows_used, 6);
    assert_int_equal(match(&h[0], t, LONG).n_ready, 6);
    kv_tree_release(tree, &h[0], now);
    close_tree();
}

/* A page that the pool has not handed out is refused, in either group. */
static void not_handed_out(void **state)
{
    (void)state;
    int32_t t[LONG];
    struct kv_hold hold = {0};
    int32_t page;
    int32_t window;
    count_up(t, LONG, 5);
    open_tree(64 * geom.window_bytes);
    assert_true(new_page(t, P, &page, &window));
    int32_t bad = window + 1;
    assert_int_equal(kv_tree_add(tree, &hold, t, &page, &bad, t, now), T9_STATUS_INTERNAL);
    assert_int_equal(kv_tree_stats(tree).nodes, 0);
    kv_page_free(pool, page);
    kv_window_free(pool, window);
    close_tree();
}

/* ---- random lives ---- */

enum { LIVES = 5, LIFE_STEPS = 30000, TEXT_PAGES = 14 };

static uint64_t rng_next(uint64_t *rng, uint64_t n)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (*rng >> 33) % n;
}

/* Few texts with common beginnings. */
static void text_of(uint64_t number, int32_t *tokens)
{
    for (int32_t i = 0; i < LONG; i++)
        tokens[i] = i + (number % 2 && i > 40 ? 1 : 0) + (number % 4 > 1 && i > 170 ? 2 : 0) +
                    (number > 3 && i > 300 ? 4 : 0);
}

static void random_lives(void **state)
{
    (void)state;
    static int32_t t[LIVES][LONG];
    struct kv_hold hold[LIVES] = {0};
    uint64_t rng = 12;
    uint64_t resumed = 0;
    open_tree(30 * geom.window_bytes);
    tree->hash_mask = 3;
    for (int32_t i = 0; i < LIVES; i++)
        text_of((uint64_t)i, t[i]);
    for (int32_t step = 0; step < LIFE_STEPS; step++) {
        uint64_t i = rng_next(&rng, LIVES);
        int32_t n = 1 + (int32_t)rng_next(&rng, (TEXT_PAGES + 1) * P);
        now += rng_next(&rng, 2000000000);
        switch (rng_next(&rng, 8)) {
        case 0:
            if (hold[i].n_pages > 0 && n % 3 == 0 && kv_pool_stats(pool).free_bytes > 2 * 20480)
                add_tail(&hold[i], t[i], hold[i].n_pages * P + 1 + n % (P - 1));
            if (n % 7 == 0)
                kv_tree_discard(tree, &hold[i], now);
            else
                kv_tree_release(tree, &hold[i], now);
            text_of(rng_next(&rng, 8), t[i]);
            break;
        case 1:
        case 2: {
            struct kv_match m = match(&hold[i], t[i], n);
            resumed += (uint64_t)m.n_ready;
            break;
        }
        case 3:
            (void)kv_tree_keep_windows(tree, &hold[i], now);
            if (n % 2)
                kv_tree_prove(tree, &hold[i]);
            break;
        case 4: (void)kv_tree_free_bytes(tree, rng_next(&rng, 100000), n % 5 == 0, -1, now); break;
        case 5:
            if (n % 10 == 0)
                (void)kv_tree_pin(tree, t[i], n, now + rng_next(&rng, 20000000000u));
            break;
        default:
            for (int32_t k = n % 4; k >= 0 && hold[i].n_pages < TEXT_PAGES; k--) {
                if (!grow_one(&hold[i], t[i]) &&
                    kv_tree_free_bytes(tree, 20480, true, -1, now) == 0)
                    break;
            }
        }
        check(hold, LIVES);
    }
    struct kv_tree_stats s = kv_tree_stats(tree);
    assert_true(resumed > 1000 && s.evicted_windows > 1000 && s.evicted_pages > 100);
    assert_true(s.hits_partial > 10 && s.duplicates > 100);
    for (int32_t i = 0; i < LIVES; i++)
        kv_tree_release(tree, &hold[i], now);
    check(NULL, 0);
    (void)kv_tree_free_bytes(tree, UINT64_MAX, true, -1, now);
    assert_int_equal(kv_tree_stats(tree).nodes, 0);
    close_tree();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups),
        cmocka_unit_test(one_budget),
        cmocka_unit_test(ahead_of_both),
        cmocka_unit_test(none_without),
        cmocka_unit_test(a_long_text_costs_a_window),
        cmocka_unit_test(points_keep_windows),
        cmocka_unit_test(points_go_in_order),
        cmocka_unit_test(useless_pages_go_first),
        cmocka_unit_test(tails),
        cmocka_unit_test(discarded),
        cmocka_unit_test(not_handed_out),
        cmocka_unit_test(random_lives),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
