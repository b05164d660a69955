/*
 * prefix_test: the prefix tree. Single behaviours first; then random lives of sequences against a
 * naive model (a list of texts), with the tree's own check after every operation, once with a hash
 * that collides all the time. Every page holds what its tokens say, so a page of another text
 * shows.
 */
#include "kv/tree.h"

#include "base/hash.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { P = KV_PAGE_TOKENS, LONG = 8 * P };

static struct be *be;
static struct kv_geom geom;
static struct kv_pool *pool;
static struct kv_tree *tree;

static int setup(void **state)
{
    (void)state;
    struct be_params bp = {.n_threads = 1, .max_rows = 1};
    struct t9_err err;
    if (!kv_geom_init_same(&geom, 1, 1, 8, KV_TYPE_F16))
        return 1;
    return be_new(&be, "ref", &bp, &err) == T9_STATUS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    be_free(be);
    return 0;
}

static void open_tree(int32_t n_pages)
{
    struct t9_err err;
    assert_int_equal(kv_pool_new(&pool, be, &geom, (uint64_t)n_pages * geom.page_bytes, &err),
                     T9_STATUS_OK);
    assert_int_equal(kv_tree_new(&tree, pool, STR("salt"), &err), T9_STATUS_OK);
}

static void close_tree(void)
{
    kv_tree_free(tree);
    assert_int_equal(kv_pool_stats(pool).pages_used, 0);
    kv_pool_free(pool);
}

static void check(const struct kv_hold *holds, int32_t n)
{
    struct t9_err err = {0};
    if (kv_tree_check(tree, holds, n, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
}

/* What a page of tokens[from .. from + n) says: a hash of the text before it, then its tokens. */
struct content {
    uint64_t before;
    int32_t tokens[P];
};

static struct content *content_of(int32_t page)
{
    return (struct content *)(void *)((char *)kv_pool_base(pool) + (size_t)page * geom.page_bytes);
}

static void write_page(int32_t page, const int32_t *tokens, int32_t from, int32_t n)
{
    struct content *c = content_of(page);
    memset(c, 0xee, sizeof *c);
    c->before = hash_xxh3_64(tokens, (size_t)from * sizeof *tokens, 1);
    memcpy(c->tokens, tokens + from, (size_t)n * sizeof *tokens);
}

static void expect_page(int32_t page, const int32_t *tokens, int32_t from, int32_t n)
{
    assert_true(kv_page_is_used(pool, page));
    const struct content *c = content_of(page);
    assert_int_equal(c->before, hash_xxh3_64(tokens, (size_t)from * sizeof *tokens, 1));
    assert_memory_equal(c->tokens, tokens + from, (size_t)n * sizeof *tokens);
}

/* tokens[i] = base + i */
static void count_up(int32_t *tokens, int32_t n, int32_t base)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = base + i;
}

static int32_t new_page(const int32_t *tokens, int32_t from, int32_t n)
{
    int32_t page = kv_page_alloc(pool);
    assert_true(page >= 0);
    write_page(page, tokens, from, n);
    return page;
}

/* Adds the full pages of tokens[0 .. n) after the hold, and the rest as a tail. */
static void grow(struct kv_hold *hold, const int32_t *tokens, int32_t n, uint64_t now)
{
    for (int32_t i = hold->n_pages; i < n / P; i++) {
        int32_t page = new_page(tokens, i * P, P);
        assert_int_equal(kv_tree_add(tree, hold, tokens + i * P, &page, NULL, hold, now),
                         T9_STATUS_OK);
        expect_page(page, tokens, i * P, P);
    }
    if (n % P)
        kv_tree_add_tail(tree, hold, tokens + n / P * P, n % P, new_page(tokens, n / P * P, n % P),
                         -1, now);
}

static void store(const int32_t *tokens, int32_t n, uint64_t now)
{
    struct kv_hold hold = {0};
    grow(&hold, tokens, n, now);
    kv_tree_release(tree, &hold, now);
}

static struct kv_match match(struct kv_hold *hold, const int32_t *tokens, int32_t n, uint64_t now)
{
    int32_t pages[64];
    int32_t had = hold->n_pages;
    struct kv_match m = kv_tree_match(tree, hold, tokens, n, pages, now);
    assert_int_equal(hold->n_pages, had + m.n_ready);
    for (int32_t i = had; i < hold->n_pages; i++)
        expect_page(pages[i], tokens, i * P, P);
    assert_int_equal(m.n_tail > 0, m.tail_page >= 0);
    if (m.n_tail > 0)
        expect_page(m.tail_page, tokens, hold->n_pages * P, m.n_tail);
    return m;
}

/* Whole pages that a prompt of these tokens and one more would find; holds nothing afterwards. */
static int32_t found(const int32_t *tokens, int32_t n, uint64_t now)
{
    int32_t more[LONG + 1];
    memcpy(more, tokens, (size_t)n * sizeof *more);
    more[n] = 9;
    struct kv_hold hold = {0};
    struct kv_match m = match(&hold, more, n + 1, now);
    kv_tree_release(tree, &hold, now);
    return m.n_ready;
}

/* ---- single behaviours ---- */

static void out_of_memory(void **state)
{
    (void)state;
    struct t9_err err;
    struct kv_tree *t;
    open_tree(4);
    mem_test_fail_nth(1);
    assert_int_equal(kv_tree_new(&t, pool, STR(""), &err), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
    assert_null(t);
    kv_tree_free(NULL);
    close_tree();
}

static void hit_leaves_the_last_token(void **state)
{
    (void)state;
    open_tree(16);
    int32_t t[LONG];
    count_up(t, LONG, 100);
    store(t, 2 * P + 5, 1);
    check(NULL, 0);
    assert_int_equal(kv_tree_stats(tree).pages, 3);
    assert_int_equal(kv_tree_stats(tree).cold_pages, 3);
    assert_int_equal(kv_tree_stats(tree).tails, 1);

    struct kv_hold h = {0};
    struct kv_match m = match(&h, t, 2 * P, 2);
    assert_int_equal(m.n_ready, 1);
    assert_int_equal(m.n_tail, P - 1);
    assert_false(m.pending);
    check(&h, 1);
    kv_tree_release(tree, &h, 3);
    assert_null(h.last);

    m = match(&h, t, 2 * P + 1, 4);
    assert_int_equal(m.n_ready, 2);
    assert_int_equal(m.n_tail, 0);
    kv_tree_release(tree, &h, 5);

    m = match(&h, t, 2 * P + 20, 6);
    assert_int_equal(m.n_ready, 2);
    assert_int_equal(m.n_tail, 5);
    /* Goes on from where the hold stands. */
    m = match(&h, t, 2 * P + 3, 6);
    assert_int_equal(m.n_ready, 0);
    assert_int_equal(m.n_tail, 2);
    kv_tree_release(tree, &h, 7);

    assert_int_equal(match(&h, t, 1, 8).n_tail, 0);
    assert_int_equal(match(&h, t, 0, 8).n_ready, 0);
    struct kv_tree_stats s = kv_tree_stats(tree);
    assert_int_equal(s.hits_full, 3);
    assert_int_equal(s.hits_partial, 3);
    assert_int_equal(s.misses, 2);
    assert_int_equal(s.hit_tokens, (1 + 2 + 2) * P + P - 1 + 5 + 2);
    check(NULL, 0);
    close_tree();
}

static void tail_of_a_longer_page(void **state)
{
    (void)state;
    open_tree(16);
    int32_t a[LONG];
    int32_t b[LONG];
    count_up(a, LONG, 100);
    count_up(b, LONG, 100);
    b[P + 20] = 7;
    store(a, 2 * P, 1);
    struct kv_hold h = {0};
    struct kv_match m = match(&h, b, 3 * P, 2);
    assert_int_equal(m.n_ready, 1);
    assert_int_equal(m.n_tail, 20);
    int32_t own = kv_page_alloc(pool);
    kv_page_copy(pool, own, m.tail_page);
    expect_page(own, b, P, 20);
    write_page(own, b, P, P);
    assert_int_equal(kv_tree_add(tree, &h, b + P, &own, NULL, &h, 3), T9_STATUS_OK);
    check(&h, 1);
    /* The page that it was copied from is what it was. */
    kv_tree_release(tree, &h, 4);
    assert_int_equal(found(a, 2 * P, 5), 2);
    assert_int_equal(found(b, 2 * P, 5), 2);
    close_tree();
}

static void tails_do_not_pile_up(void **state)
{
    (void)state;
    open_tree(16);
    int32_t t[LONG];
    count_up(t, LONG, 100);
    store(t, P + 5, 1);
    store(t, P + 9, 2); /* covers the first */
    store(t, P + 7, 3); /* is covered */
    store(t, P + 9, 4);
    check(NULL, 0);
    assert_int_equal(kv_tree_stats(tree).tails, 1);
    assert_int_equal(kv_pool_stats(pool).pages_used, 2);
    store(t, 2 * P, 5); /* the whole page covers it */
    check(NULL, 0);
    assert_int_equal(kv_tree_stats(tree).tails, 0);
    store(t, P + 9, 6);
    assert_int_equal(kv_tree_stats(tree).tails, 0);
    t[P + 3] = 1; /* another text */
    store(t, P + 9, 7);
    assert_int_equal(kv_tree_stats(tree).tails, 1);
    /* Nothing of it: the page goes back. */
    struct kv_hold h = {0};
    kv_tree_add_tail(tree, &h, t, 0, kv_page_alloc(pool), -1, 8);
    kv_tree_add_tail(tree, &h, t, P, kv_page_alloc(pool), -1, 8);
    assert_int_equal(kv_pool_stats(pool).pages_used, 3);
    check(NULL, 0);
    close_tree();
}

static void equal_pages_become_one(void **state)
{
    (void)state;
    open_tree(16);
    int32_t t[LONG];
    count_up(t, LONG, 100);
    struct kv_hold h[2] = {{0}, {0}};
    grow(&h[0], t, 2 * P, 1);
    grow(&h[1], t, 2 * P, 2);
    check(h, 2);
    assert_ptr_equal(h[0].last, h[1].last);
    assert_int_equal(kv_pool_stats(pool).pages_used, 2);
    assert_int_equal(kv_tree_stats(tree).duplicates, 2);
    kv_tree_release(tree, &h[0], 3);
    check(&h[1], 1);
    assert_int_equal(kv_tree_evict(tree, 5, true, 4), 0);
    kv_tree_release(tree, &h[1], 3);
    assert_int_equal(kv_tree_evict(tree, 5, false, 4), 2);
#ifndef T9_DEBUG
    int32_t wrong = 3;
    assert_int_equal(kv_tree_add(tree, &h[0], t, &wrong, NULL, t, 5), T9_STATUS_INTERNAL);
#endif
    check(h, 2);
    close_tree();
}

static void salt_separates(void **state)
{
    (void)state;
    open_tree(4);
    struct kv_tree *other;
    assert_int_equal(kv_tree_new(&other, pool, STR("other"), NULL), T9_STATUS_OK);
    int32_t t[P];
    count_up(t, P, 0);
    assert_int_not_equal(tree_hash(tree, &tree->root, t), tree_hash(other, &other->root, t));
    kv_tree_free(other);
    close_tree();
}

static void waits_for_promises(void **state)
{
    (void)state;
    open_tree(16);
    int32_t t[LONG];
    count_up(t, LONG, 100);
    struct kv_hold h[2] = {{0}, {0}};
    kv_tree_promise(tree, &h[0], t, 3 * P + 4, &h[0]);
    check(h, 2);
    assert_int_equal(kv_tree_stats(tree).promised, 3);
    struct kv_match m = match(&h[1], t, 3 * P, 1); /* the last page holds its last token */
    assert_true(m.pending);
    assert_int_equal(m.n_pending, 2);
    assert_int_equal(m.n_ready, 0);
    kv_tree_promise(tree, &h[1], t, 5 * P, &h[1]); /* somebody has it already */
    assert_int_equal(kv_tree_stats(tree).promised, 3);

    grow(&h[0], t, P, 2);
    check(h, 2);
    m = match(&h[1], t, 3 * P, 3);
    assert_int_equal(m.n_ready, 1);
    assert_int_equal(m.n_pending, 1);
    /* The producer goes away: what it has computed stays, the rest is nobody's. */
    kv_tree_unpromise(tree, &h[0]);
    kv_tree_release(tree, &h[0], 4);
    check(h, 2);
    assert_int_equal(kv_tree_stats(tree).promised, 0);
    m = match(&h[1], t, 3 * P, 5);
    assert_false(m.pending);
    kv_tree_promise(tree, &h[1], t, 3 * P, &h[1]);
    assert_int_equal(kv_tree_stats(tree).promised, 2);
    m = match(&h[0], t, 3 * P, 6);
    assert_int_equal(m.n_ready, 1);
    assert_int_equal(m.n_pending, 1);
    grow(&h[1], t, 3 * P, 7);
    kv_tree_unpromise(tree, &h[1]);
    m = match(&h[0], t, 3 * P, 8);
    assert_int_equal(m.n_ready, 1);
    check(h, 2);
    struct kv_tree_stats s = kv_tree_stats(tree);
    assert_int_equal(s.hits_inflight, 2);
    assert_int_equal(s.misses, 0);
    assert_int_equal(s.overtaken, 0);
    kv_tree_release(tree, &h[0], 9);
    kv_tree_release(tree, &h[1], 9);
    close_tree();
}

static void overtakes_a_slow_producer(void **state)
{
    (void)state;
    open_tree(16);
    int32_t t[LONG];
    count_up(t, LONG, 100);
    struct kv_hold h[2] = {{0}, {0}};
    int a;
    kv_tree_promise(tree, &h[0], t, 3 * P, &a);
    grow(&h[1], t, 2 * P, 1); /* did not wait */
    check(h, 2);
    assert_int_equal(kv_tree_stats(tree).overtaken, 2);
    assert_int_equal(kv_tree_stats(tree).promised, 1);
    int32_t page = new_page(t, 0, P);
    assert_int_equal(kv_tree_add(tree, &h[0], t, &page, NULL, &a, 2), T9_STATUS_OK);
    check(h, 2);
    kv_tree_unpromise(tree, &a);
    assert_int_equal(kv_tree_stats(tree).promised, 0);
    assert_int_equal(kv_tree_stats(tree).nodes, 2);
    kv_tree_release(tree, &h[0], 3);
    kv_tree_release(tree, &h[1], 3);
    check(h, 2);
    close_tree();
}

static void promises_are_bounded(void **state)
{
    (void)state;
    open_tree(8);
    int32_t t[LONG * 8];
    count_up(t, LONG * 8, 100);
    struct kv_hold h = {0};
    kv_tree_promise(tree, &h, t, LONG * 8, t);
    assert_int_equal(kv_tree_stats(tree).promised, 8);
    check(&h, 1);
    kv_tree_unpromise(tree, t);
    /* More producers than there is room for promise nothing. */
    tree->n_promised_max = TREE_PRODUCERS + 10;
    tree->n_nodes_max = 8 + 8;
    for (int i = 0; i < TREE_PRODUCERS + 5; i++) {
        t[0] = i;
        kv_tree_promise(tree, &h, t, P, &t[i]);
    }
    assert_int_equal(kv_tree_stats(tree).promised, 16);
    check(&h, 1);
    for (int i = 0; i < TREE_PRODUCERS + 5; i++)
        kv_tree_unpromise(tree, &t[i]);
    assert_int_equal(kv_tree_stats(tree).nodes, 0);
    check(&h, 1);
    close_tree();
}

static void collisions_are_misses(void **state)
{
    (void)state;
    open_tree(64);
    tree->hash_mask = 0; /* all pages of all texts have one hash */
    int32_t t[LONG];
    int32_t u[LONG];
    count_up(t, LONG, 100);
    count_up(u, LONG, 100);
    u[3] = 1;
    store(t, 4 * P, 1);
    assert_int_equal(found(u, 4 * P, 2), 0);
    store(u, 4 * P, 3);
    check(NULL, 0);
    assert_int_equal(found(t, 4 * P, 4), 4);
    assert_int_equal(found(u, 4 * P, 4), 4);
    /* The same page after another text is another page. */
    struct kv_hold h = {0};
    int32_t v[LONG];
    memcpy(v, t + P, P * sizeof *v);
    memcpy(v + P, t + P, P * sizeof *v);
    struct kv_match m = match(&h, v, 2 * P, 5);
    assert_int_equal(m.n_ready + m.n_tail, 0);
    assert_true(kv_tree_stats(tree).collisions > 0);
    /* Removal from the middle of one long probe sequence. */
    assert_int_equal(kv_tree_evict(tree, 5, false, 6), 5);
    check(NULL, 0);
    assert_int_equal(found(t, 4 * P, 7) + found(u, 4 * P, 7), 3);
    close_tree();
}

static void least_benefit_goes_first(void **state)
{
    (void)state;
    const uint64_t s = 1000000000;
    open_tree(64);
    int32_t text[5][LONG];
    for (int i = 0; i < 5; i++)
        count_up(text[i], LONG, 1000 * (i + 1));
    store(text[0], P, 10 * s); /* used often */
    for (uint64_t i = 0; i < 7; i++)
        assert_int_equal(found(text[0], P, 10 * s), 1);
    store(text[1], P, 9 * s);  /* old */
    store(text[2], P, 11 * s); /* newer */
    store(text[3], 4, 11 * s); /* a tail of four tokens is cheap to compute again */
    store(text[4], 3 * P, 12 * s);
    check(NULL, 0);
    const int32_t order[] = {3, 1, 2};
    for (size_t i = 0; i < T9_COUNT(order); i++) {
        assert_int_equal(kv_tree_evict(tree, 1, false, 13 * s), 1);
        check(NULL, 0);
        const int32_t *gone = text[order[i]];
        struct kv_hold h = {0};
        assert_int_equal(match(&h, gone, order[i] == 3 ? 5 : P + 1, 13 * s).n_ready +
                             match(&h, gone, 5, 13 * s).n_tail,
                         0);
    }
    /* Of a conversation the end goes first. */
    assert_int_equal(kv_tree_evict(tree, 1, false, 13 * s), 1);
    assert_int_equal(found(text[4], 3 * P, 12 * s), 2);
    assert_int_equal(kv_tree_evict(tree, 100, false, 14 * s), 3);
    assert_int_equal(kv_tree_stats(tree).evicted_pages, 7);
    check(NULL, 0);
    close_tree();
}

static void pins_hold_until_their_time(void **state)
{
    (void)state;
    open_tree(16);
    int32_t a[LONG];
    int32_t b[LONG];
    count_up(a, LONG, 100);
    count_up(b, LONG, 500);
    store(a, 2 * P, 1);
    store(b, 2 * P + 3, 2);
    assert_int_equal(kv_tree_pin(tree, a, 3 * P, 50), 2);
    assert_int_equal(kv_tree_pin(tree, a, P, 20), 1); /* the later end counts */
    check(NULL, 0);
    assert_int_equal(kv_tree_stats(tree).pinned_pages, 2);
    assert_int_equal(kv_tree_evict(tree, 100, false, 49), 3);
    check(NULL, 0);
    assert_int_equal(found(a, 2 * P, 49), 2);
    /* Nothing else is left. */
    assert_int_equal(kv_tree_evict(tree, 1, true, 49), 1);
    check(NULL, 0);
    assert_int_equal(found(a, 2 * P, 49), 1);
    assert_int_equal(kv_tree_evict(tree, 1, false, 50), 1);
    assert_int_equal(kv_tree_stats(tree).pinned_pages, 0);
    /* With others to take, pinned pages stay; a hold does not end a pin. */
    store(a, 2 * P, 60);
    store(b, 2 * P, 61);
    assert_int_equal(kv_tree_pin(tree, b, 2 * P, 100), 2);
    struct kv_hold h = {0};
    (void)match(&h, b, 2 * P + 1, 62);
    assert_int_equal(kv_tree_evict(tree, 100, true, 63), 2);
    check(&h, 1);
    kv_tree_release(tree, &h, 63);
    assert_int_equal(kv_tree_evict(tree, 100, false, 63), 0);
    check(NULL, 0);
    assert_int_equal(kv_tree_evict(tree, 100, false, 100), 2);
    close_tree();
}

static void says_where_texts_part(void **state)
{
    (void)state;
    open_tree(16);
    int32_t a[LONG];
    int32_t b[LONG];
    int32_t cached[4];
    int32_t index;
    int32_t n;
    count_up(a, LONG, 100);
    count_up(b, LONG, 100);
    assert_false(kv_tree_divergence(tree, a, 40, &index, cached, 4, &n));
    store(a, 2 * P + 8, 1);
    assert_false(kv_tree_divergence(tree, a, 2 * P + 8, &index, cached, 4, &n));
    assert_false(kv_tree_divergence(tree, a, LONG, &index, cached, 4, &n));
    b[P + 2] = 1;
    assert_true(kv_tree_divergence(tree, b, LONG, &index, cached, 4, &n));
    assert_int_equal(index, P + 2);
    assert_int_equal(n, 4);
    assert_memory_equal(cached, a + P + 2, sizeof cached);
    b[P + 2] = a[P + 2];
    b[2 * P + 6] = 1;
    assert_true(kv_tree_divergence(tree, b, LONG, &index, cached, 4, &n));
    assert_int_equal(index, 2 * P + 6);
    assert_int_equal(n, 2);
    b[0] = 1;
    assert_true(kv_tree_divergence(tree, b, 3, &index, cached, 4, &n));
    assert_int_equal(index, 0);
    close_tree();
}

static void check_sees_damage(void **state)
{
    (void)state;
    open_tree(16);
    int32_t t[LONG];
    count_up(t, LONG, 100);
    struct kv_hold h = {0};
    grow(&h, t, 2 * P, 1);
    store(t, 2 * P + 3, 2);
    struct kv_node *n = h.last;
    check(&h, 1);
    assert_int_equal(kv_tree_check(tree, NULL, 0, NULL), T9_STATUS_CORRUPT);
    n->refs++;
    assert_int_equal(kv_tree_check(tree, &h, 1, NULL), T9_STATUS_CORRUPT);
    n->refs--;
    int32_t page = n->page;
    n->page = n->parent->page;
    assert_int_equal(kv_tree_check(tree, &h, 1, NULL), T9_STATUS_CORRUPT);
    n->page = page;
    n->tokens[3]++;
    assert_int_equal(kv_tree_check(tree, &h, 1, NULL), T9_STATUS_CORRUPT);
    n->tokens[3]--;
    tree_gauge(&tree->n.cold_pages, 1);
    assert_int_equal(kv_tree_check(tree, &h, 1, NULL), T9_STATUS_CORRUPT);
    tree_gauge(&tree->n.cold_pages, -1);
    struct kv_node *tail = n->first_child;
    tree_unplace(tree, tail);
    assert_int_equal(kv_tree_check(tree, &h, 1, NULL), T9_STATUS_CORRUPT);
    tree_place(tree, tail);
    tree->slots[0] = tree->slots[0] ? 0 : 1;
    assert_int_equal(kv_tree_check(tree, &h, 1, NULL), T9_STATUS_CORRUPT);
    tree->slots[0] = tree->slots[0] == 1 ? 0 : tree->slots[0];
    tree->slots[0] = 0;
    tree_unindex(tree, n);
    tree_index(tree, n);
    check(&h, 1);
    kv_tree_release(tree, &h, 3);
    close_tree();
}

/* Of many texts that part at one place only those used last are looked at; whole pages are found
 * among any number. */
static void many_children(void **state)
{
    (void)state;
    enum { MANY = 300 };
    open_tree(2 * MANY);
    int32_t t[LONG];
    count_up(t, LONG, 100);
    for (int32_t i = 0; i < MANY; i++) {
        t[0] = 5000 + i;
        store(t, i % 2 ? P : 7, (uint64_t)i);
    }
    check(NULL, 0);
    for (int32_t i = 1; i < MANY; i += 2) {
        t[0] = 5000 + i;
        assert_int_equal(found(t, P, 1000), 1);
    }
    struct kv_hold h = {0};
    t[0] = 5000;
    assert_int_equal(match(&h, t, 20, 1001).n_tail, 0); /* costs time, gives no wrong text */
    store(t, 7, 1002);
    assert_int_equal(match(&h, t, 20, 1003).n_tail, 7);
    check(NULL, 0);
    assert_int_equal(kv_tree_evict(tree, 2 * MANY, false, 2000), MANY + 1);
    check(NULL, 0);
    close_tree();
}

/* Nothing is allocated and little memory is touched, whatever the budget. */
static void allocates_nothing_later(void **state)
{
    (void)state;
    open_tree(4096);
    int32_t t[LONG];
    uint64_t before = mem_thread_alloc_count();
    for (int32_t i = 0; i < 1000; i++) {
        count_up(t, LONG, i * 7);
        struct kv_hold h = {0};
        (void)match(&h, t, LONG, (uint64_t)i);
        kv_tree_promise(tree, &h, t, LONG, &h);
        while (4096 - kv_pool_stats(pool).pages_used < 8)
            assert_int_equal(kv_tree_evict(tree, 8, false, (uint64_t)i), 8);
        grow(&h, t, LONG - 1, (uint64_t)i);
        kv_tree_unpromise(tree, &h);
        kv_tree_release(tree, &h, (uint64_t)i);
    }
    assert_int_equal(mem_thread_alloc_count(), before);
    check(NULL, 0);
    close_tree();
}

/* ---- random lives against a naive model ---- */

enum { SEQS = 10, TEXT_MAX = 6 * P, MODEL_MAX = 512, MODEL_PAGES = 40 };

/* One page that must be in the tree: the text up to its end. */
struct entry {
    int32_t n;
    int32_t tokens[TEXT_MAX];
    const void *producer; /* NULL = READY */
    int32_t refs;
    uint64_t pin;
    bool seen;
};

struct life {
    bool running;
    int32_t n;
    int32_t tokens[TEXT_MAX];
    struct kv_hold hold;
};

static struct entry model[MODEL_MAX];
static int32_t n_model;
static struct life lives[SEQS];
static uint64_t rng, now_ns;

static uint32_t draw(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % n;
}

static struct entry *model_find(const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n_model; i++) {
        if (model[i].n == n && memcmp(model[i].tokens, tokens, (size_t)n * sizeof *tokens) == 0)
            return &model[i];
    }
    return NULL;
}

static struct entry *model_add(const int32_t *tokens, int32_t n, const void *producer)
{
    assert_true(n_model < MODEL_MAX);
    struct entry *e = &model[n_model++];
    memset(e, 0, sizeof *e);
    e->n = n;
    e->producer = producer;
    memcpy(e->tokens, tokens, (size_t)n * sizeof *tokens);
    return e;
}

static void model_drop(struct entry *e)
{
    *e = model[--n_model];
}

static int32_t common_of(const int32_t *a, int32_t na, const int32_t *b, int32_t nb)
{
    int32_t i = 0;
    while (i < na && i < nb && a[i] == b[i])
        i++;
    return i;
}

/* Is e a child of the whole pages tokens[0 .. at)? */
static bool is_child(const struct entry *e, const int32_t *tokens, int32_t at)
{
    return e->n > at && e->n <= at + P && common_of(e->tokens, at, tokens, at) == at;
}

static bool is_leaf(const struct entry *e)
{
    for (int32_t i = 0; i < n_model; i++) {
        if (e->n % P == 0 && is_child(&model[i], e->tokens, e->n))
            return false;
    }
    return true;
}

/* Every node of the tree is in the model and the other way round. */
static void compare_with_model(void)
{
    int32_t n_nodes = 0;
    for (int32_t i = 0; i < tree->n_ever; i++) {
        const struct kv_node *n = &tree->nodes[i];
        if (n->state == NODE_FREE)
            continue;
        int32_t text[TEXT_MAX];
        int32_t depth = 0;
        for (const struct kv_node *p = n->parent; p != &tree->root; p = p->parent)
            depth++;
        int32_t end = depth * P + n->n_tokens;
        for (const struct kv_node *p = n; p != &tree->root; p = p->parent, depth--)
            memcpy(text + depth * P, p->tokens, (size_t)p->n_tokens * sizeof *text);
        const struct entry *e = model_find(text, end);
        assert_non_null(e);
        assert_int_equal(e->producer == NULL, n->state == NODE_READY);
        assert_int_equal(e->refs, n->refs);
        assert_int_equal(e->pin, n->pin_until_ns);
        if (n->state == NODE_READY)
            expect_page(n->page, text, end - n->n_tokens, n->n_tokens);
        n_nodes++;
    }
    assert_int_equal(n_nodes, n_model);
}

/* Texts that share pages, parts of pages, and differ at many places. */
static void random_text(struct life *s)
{
    s->n = 1 + (int32_t)draw(TEXT_MAX - 1);
    uint32_t kind = 0;
    for (int32_t i = 0; i < s->n; i++) {
        if (i % 11 == 0 && draw(4) == 0)
            kind = draw(2);
        s->tokens[i] = (int32_t)kind * 100 + i % 3;
    }
}

static void do_match(struct life *s)
{
    int32_t had = s->hold.n_pages;
    int32_t whole = (s->n - 1) / P;
    int32_t at = had;
    struct entry *e;
    while (at < whole && (e = model_find(s->tokens, (at + 1) * P)) && !e->producer) {
        e->refs++;
        at++;
    }
    int32_t pending = 0;
    while (at + pending < whole && (e = model_find(s->tokens, (at + pending + 1) * P)) &&
           e->producer)
        pending++;
    int32_t tail = 0;
    for (int32_t i = 0; i < n_model; i++) {
        if (model[i].producer || !is_child(&model[i], s->tokens, at * P))
            continue;
        int32_t c = common_of(model[i].tokens, model[i].n, s->tokens, s->n - 1) - at * P;
        tail = c > tail ? c : tail;
    }
    struct kv_match m = match(&s->hold, s->tokens, s->n, now_ns);
    assert_int_equal(m.n_ready, at - had);
    assert_int_equal(m.n_pending, pending);
    assert_int_equal(m.pending, pending > 0);
    assert_int_equal(m.n_tail, tail);
}

static void do_promise(struct life *s)
{
    int32_t most = kv_pool_stats(pool).pages_total;
    int32_t promised = kv_tree_stats(tree).promised;
    kv_tree_promise(tree, &s->hold, s->tokens, s->n, s);
    for (int32_t i = s->hold.n_pages; i < s->n / P; i++) {
        const struct entry *e = model_find(s->tokens, (i + 1) * P);
        if (e && e->producer != s)
            break;
        if (e)
            continue;
        if (promised++ >= most)
            break;
        (void)model_add(s->tokens, (i + 1) * P, s);
    }
}

static void do_unpromise(struct life *s)
{
    kv_tree_unpromise(tree, s);
    for (int32_t i = 0; i < n_model;) {
        if (model[i].producer == s)
            model_drop(&model[i]);
        else
            i++;
    }
}

static void model_drop_tails(const int32_t *tokens, int32_t at, int32_t n)
{
    for (int32_t i = 0; i < n_model;) {
        struct entry *e = &model[i];
        if (!e->producer && is_child(e, tokens, at) && e->n < n &&
            common_of(e->tokens, e->n, tokens, n) == e->n)
            model_drop(e);
        else
            i++;
    }
}

/* Takes what the tree has evicted out of the model, and checks that it was right to. */
static void do_evict(int32_t n, bool pinned_too)
{
    static struct entry before[MODEL_MAX];
    for (int32_t i = 0; i < n_model; i++) {
        if (model[i].pin && model[i].pin <= now_ns)
            model[i].pin = 0;
        model[i].seen = false;
    }
    memcpy(before, model, sizeof before);
    int32_t n_before = n_model;
    int32_t freed = kv_tree_evict(tree, n, pinned_too, now_ns);
    for (int32_t i = 0; i < tree->n_ever; i++) {
        const struct kv_node *node = &tree->nodes[i];
        if (node->state == NODE_FREE)
            continue;
        int32_t text[TEXT_MAX];
        int32_t depth = 0;
        for (const struct kv_node *p = node->parent; p != &tree->root; p = p->parent)
            depth++;
        int32_t end = depth * P + node->n_tokens;
        for (const struct kv_node *p = node; p != &tree->root; p = p->parent, depth--)
            memcpy(text + depth * P, p->tokens, (size_t)p->n_tokens * sizeof *text);
        model_find(text, end)->seen = true;
    }
    bool took_pinned = false;
    for (int32_t i = 0; i < n_model;) {
        if (model[i].seen) {
            i++;
            continue;
        }
        assert_true(!model[i].producer && model[i].refs == 0);
        took_pinned |= model[i].pin != 0;
        model_drop(&model[i]);
    }
    assert_int_equal(n_before - n_model, freed);
    assert_true(freed <= n);
    assert_true(pinned_too || !took_pinned);
    for (int32_t i = 0; i < n_model; i++) {
        bool could = !model[i].producer && model[i].refs == 0 && is_leaf(&model[i]);
        /* Enough, or all that could go; nothing pinned before all that is not. */
        assert_false(could && freed < n && (pinned_too || !model[i].pin));
    }
}

/* Computes one more page, or gives up when there is none. */
static void do_add(struct life *s)
{
    int32_t at = s->hold.n_pages;
    if ((at + 1) * P > s->n)
        return;
    int32_t page = kv_page_alloc(pool);
    if (page < 0) {
        do_evict(1 + (int32_t)draw(3), draw(2) == 0);
        page = kv_page_alloc(pool);
    }
    if (page < 0)
        return;
    write_page(page, s->tokens, at * P, P);
    assert_int_equal(kv_tree_add(tree, &s->hold, s->tokens + at * P, &page, NULL, s, now_ns),
                     T9_STATUS_OK);
    expect_page(page, s->tokens, at * P, P);
    struct entry *e = model_find(s->tokens, (at + 1) * P);
    if (!e || e->producer) {
        model_drop_tails(s->tokens, at * P, (at + 1) * P);
        e = model_find(s->tokens, (at + 1) * P);
    }
    if (!e)
        e = model_add(s->tokens, (at + 1) * P, NULL);
    e->producer = NULL;
    e->refs++;
}

static void do_end(struct life *s)
{
    int32_t at = s->hold.n_pages * P;
    int32_t n = s->n - at < P ? s->n - at : (int32_t)draw(P);
    int32_t page = n > 0 ? kv_page_alloc(pool) : -1;
    if (page >= 0) {
        write_page(page, s->tokens, at, n);
        bool covered = false;
        for (int32_t i = 0; i < n_model; i++)
            covered |= !model[i].producer && is_child(&model[i], s->tokens, at) &&
                       common_of(model[i].tokens, model[i].n, s->tokens, at + n) == at + n;
        kv_tree_add_tail(tree, &s->hold, s->tokens + at, n, page, -1, now_ns);
        if (!covered) {
            model_drop_tails(s->tokens, at, at + n);
            (void)model_add(s->tokens, at + n, NULL);
        }
    }
    do_unpromise(s);
    for (int32_t i = 0; i < s->hold.n_pages; i++)
        model_find(s->tokens, (i + 1) * P)->refs--;
    kv_tree_release(tree, &s->hold, now_ns);
    s->running = false;
}

static void do_pin(void)
{
    struct life text;
    random_text(&text);
    uint64_t until = now_ns + draw(40);
    int32_t pages = kv_tree_pin(tree, text.tokens, text.n, until);
    int32_t i = 0;
    for (; i < text.n / P; i++) {
        struct entry *e = model_find(text.tokens, (i + 1) * P);
        if (!e || e->producer)
            break;
        if (until > e->pin)
            e->pin = until;
    }
    assert_int_equal(pages, i);
}

static void live(struct life *s)
{
    if (!s->running) {
        memset(s, 0, sizeof *s);
        s->running = true;
        random_text(s);
        do_match(s);
        if (draw(3))
            do_promise(s);
        return;
    }
    if (s->hold.waiting && draw(8)) {
        do_match(s);
        return;
    }
    switch (draw(8)) {
    case 0: do_end(s); break;
    case 1:
        do_unpromise(s);
        do_match(s);
        if (draw(2))
            do_promise(s);
        break;
    case 2: do_unpromise(s); break;
    default: do_add(s); break;
    }
}

static void random_lives(uint64_t seed, uint64_t hash_mask, int n_ops)
{
    open_tree(MODEL_PAGES);
    tree->hash_mask = hash_mask;
    rng = seed;
    now_ns = 1;
    n_model = 0;
    memset(lives, 0, sizeof lives);
    for (int op = 0; op < n_ops; op++) {
        now_ns += draw(4) == 0 ? 1000000 * draw(9) : draw(3);
        switch (draw(24)) {
        case 0: do_evict((int32_t)draw(6), draw(3) == 0); break;
        case 1: do_pin(); break;
        default: live(&lives[draw(SEQS)]); break;
        }
        struct kv_hold holds[SEQS];
        for (int i = 0; i < SEQS; i++)
            holds[i] = lives[i].hold;
        check(holds, SEQS);
        compare_with_model();
        assert_int_equal(kv_pool_stats(pool).pages_used, kv_tree_stats(tree).pages);
    }
    struct kv_tree_stats s = kv_tree_stats(tree);
    const uint64_t all[] = {s.hits_full, s.hits_partial,  s.hits_inflight, s.misses,
                            s.overtaken, s.evicted_pages, s.duplicates,    s.hit_tokens};
    for (size_t i = 0; i < T9_COUNT(all); i++) {
        if (all[i] == 0)
            fail_msg("counter %zu: the random lives never did that", i);
    }
    assert_int_equal(s.collisions > 0, hash_mask != UINT64_MAX);
    for (int i = 0; i < SEQS; i++)
        kv_tree_release(tree, &lives[i].hold, now_ns);
    close_tree();
}

static void random_lives_hold(void **state)
{
    (void)state;
    random_lives(1, UINT64_MAX, 12000);
}

static void random_lives_hold_with_collisions(void **state)
{
    (void)state;
    random_lives(2, 3, 12000);
    random_lives(3, 0, 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(hit_leaves_the_last_token),
        cmocka_unit_test(tail_of_a_longer_page),
        cmocka_unit_test(tails_do_not_pile_up),
        cmocka_unit_test(equal_pages_become_one),
        cmocka_unit_test(salt_separates),
        cmocka_unit_test(waits_for_promises),
        cmocka_unit_test(overtakes_a_slow_producer),
        cmocka_unit_test(promises_are_bounded),
        cmocka_unit_test(collisions_are_misses),
        cmocka_unit_test(least_benefit_goes_first),
        cmocka_unit_test(pins_hold_until_their_time),
        cmocka_unit_test(says_where_texts_part),
        cmocka_unit_test(check_sees_damage),
        cmocka_unit_test(many_children),
        cmocka_unit_test(allocates_nothing_later),
        cmocka_unit_test(random_lives_hold),
        cmocka_unit_test(random_lives_hold_with_collisions),
    };
    return cmocka_run_group_tests_name("prefix", tests, setup, teardown);
}
