/*
 * checkpoint_test: states in the prefix tree. Where a text can be gone on with, who owns a state,
 * and which one goes first; then random lives, with the tree's own check after every operation.
 * Each state holds a hash of the text that it stands for, so one of another text shows.
 */
#include "tree_rig.h"

enum { P = KV_PAGE_TOKENS, LONG = 64 * P, PAGES_MAX = 80, STATE_PAGES = 3 };

static struct state_geom sgeom;

static int setup(void **state)
{
    (void)state;
    const struct state_shape shape = {.n_layers = 1, .taps = 2, .channels = STATE_PAGES * 1024};
    if (!kv_geom_init_same(&geom, 1, 1, 8, KV_TYPE_F16) || !state_geom_init(&sgeom, &shape))
        return 1;
    return rig_open();
}

static void open_tree(int32_t pages, int32_t states)
{
    struct t9_err err;
    uint64_t bytes = (uint64_t)(pages + STATE_PAGES * states) * geom.page_bytes;
    assert_int_equal(kv_pool_new(&pool, be, &geom, bytes, &err), T9_STATUS_OK);
    assert_int_equal(kv_pool_add_states(pool, &sgeom, &err), T9_STATUS_OK);
    rig_open_tree();
}

static uint64_t *content(int32_t state)
{
    return (uint64_t *)(void *)state_history(&sgeom, kv_state_base(pool), state, 0);
}

/* A state of the first n tokens; -1 = none is left. */
static int32_t new_state(const int32_t *tokens, int32_t n)
{
    int32_t state = kv_state_alloc(pool);
    if (state >= 0)
        *content(state) = hash_of(tokens, n);
    return state;
}

/* Adds the pages of tokens[0 .. n) after the hold, n whole pages. */
static void grow(struct kv_hold *hold, const int32_t *tokens, int32_t n)
{
    while (hold->n_pages < n / P) {
        int32_t page = kv_page_alloc(pool);
        assert_true(page >= 0);
        assert_int_equal(
            kv_tree_add(tree, hold, tokens + hold->n_pages * P, &page, NULL, hold, now),
            T9_STATUS_OK);
    }
}

/* The same with a state after the n tokens. */
static void keep(struct kv_hold *hold, const int32_t *tokens, int32_t n, ckpt_kind kind)
{
    grow(hold, tokens, n);
    assert_true(kv_tree_keep_state(tree, hold, new_state(tokens, n), kind, now));
}

static void add_tail(const struct kv_hold *hold, const int32_t *tokens, int32_t n)
{
    int32_t done = hold->n_pages * P;
    kv_tree_add_tail_state(tree, hold, tokens + done, n - done, kv_page_alloc(pool),
                           new_state(tokens, n), now);
}

/* Where the text can be gone on with. */
static int32_t resume(const int32_t *tokens, int32_t n)
{
    struct kv_hold hold = {0};
    int32_t pages[PAGES_MAX];
    struct kv_match m = kv_tree_match(tree, &hold, tokens, n, pages, now);
    int32_t at = hold.n_pages * P + m.n_tail;
    check(&hold, 1);
    assert_int_equal(m.state >= 0, at > 0);
    assert_int_equal(m.tail_page >= 0, m.n_tail > 0);
    assert_true(at < n);
    if (m.state >= 0)
        assert_int_equal(*content(m.state), hash_of(tokens, at));
    for (int32_t i = 0; i < hold.n_pages; i++)
        assert_true(kv_page_is_used(pool, pages[i]));
    kv_tree_release(tree, &hold, now);
    check(NULL, 0);
    return at;
}

static void where_states_are(void **state)
{
    (void)state;
    int32_t t[LONG];
    int32_t u[LONG];
    struct kv_hold hold = {0};
    open_tree(40, 8);
    count_up(t, LONG, 100);
    memcpy(u, t, sizeof u);
    keep(&hold, t, 4 * P, CKPT_KIND_INTERVAL);
    keep(&hold, t, 7 * P, CKPT_KIND_END);
    grow(&hold, t, 9 * P);
    add_tail(&hold, t, 9 * P + 10);
    check(&hold, 1);
    kv_tree_release(tree, &hold, now);
    assert_int_equal(resume(t, 3 * P), 0);
    assert_int_equal(resume(t, 4 * P), 0); /* the last token is always computed */
    assert_int_equal(resume(t, 4 * P + 1), 4 * P);
    assert_int_equal(resume(t, 7 * P), 4 * P);
    assert_int_equal(resume(t, 9 * P + 5), 7 * P); /* a tail is resumed as a whole */
    assert_int_equal(resume(t, 9 * P + 10), 7 * P);
    assert_int_equal(resume(t, 9 * P + 11), 9 * P + 10);
    u[9 * P + 10] = 7;
    assert_int_equal(resume(u, LONG), 9 * P + 10);
    u[9 * P + 9] = 7;
    assert_int_equal(resume(u, LONG), 7 * P);
    u[6 * P + 3] = 7;
    assert_int_equal(resume(u, LONG), 4 * P);
    u[0] = 7;
    assert_int_equal(resume(u, LONG), 0);
    struct kv_match m = kv_tree_match(tree, &hold, t, 9 * P, u, now);
    assert_int_equal(m.n_common, 8 * P); /* cached beyond the state */
    assert_int_equal(m.state_kind, CKPT_KIND_END);
    assert_false(m.pending);
    kv_tree_release(tree, &hold, now);
    close_tree();
}

/* A tail above the end of what is cached: the page that was filled later hangs beside it. */
static void tail_on_the_way(void **state)
{
    (void)state;
    int32_t t[LONG];
    struct kv_hold hold = {0};
    open_tree(40, 8);
    count_up(t, LONG, 100);
    grow(&hold, t, 2 * P);
    add_tail(&hold, t, 2 * P + 6);
    grow(&hold, t, 5 * P);
    kv_tree_release(tree, &hold, now);
    assert_int_equal(resume(t, 5 * P), 2 * P + 6);
    close_tree();
}

static void owners(void **state)
{
    (void)state;
    int32_t t[LONG];
    int32_t pages[PAGES_MAX];
    struct kv_hold hold = {0};
    open_tree(40, 8);
    count_up(t, LONG, 100);
    /* Nothing is held: it stays the caller's. */
    int32_t mine = new_state(t, 0);
    assert_false(kv_tree_keep_state(tree, &hold, mine, CKPT_KIND_END, now));
    keep(&hold, t, 2 * P, CKPT_KIND_INTERVAL);
    assert_true(kv_hold_has_state(&hold));
    /* There is one already: it stays the caller's, and the better kind counts. */
    assert_false(kv_tree_keep_state(tree, &hold, mine, CKPT_KIND_END, now));
    kv_state_free(pool, mine);
    add_tail(&hold, t, 2 * P + 5);
    add_tail(&hold, t, 2 * P + 5); /* equal: freed */
    assert_int_equal(kv_tree_stats(tree).states, 2);
    assert_int_equal(kv_pool_stats(pool).states_used, 2);
    check(&hold, 1);
    kv_tree_release(tree, &hold, now);
    struct kv_match m = kv_tree_match(tree, &hold, t, 2 * P + 1, pages, now);
    assert_int_equal(m.state_kind, CKPT_KIND_END);
    kv_tree_use_state(tree, &m, now);
    kv_tree_take_state(tree, &m); /* the page stays */
    assert_true(kv_state_is_used(pool, m.state));
    check(&hold, 1);
    kv_state_free(pool, m.state);
    m = kv_tree_match(tree, &hold, t, 3 * P, pages, now);
    assert_int_equal(m.n_tail, 5);
    kv_tree_take_state(tree, &m); /* and its page */
    assert_true(kv_page_is_used(pool, m.tail_page));
    check(&hold, 1);
    kv_page_free(pool, m.tail_page);
    kv_state_free(pool, m.state);
    kv_tree_release(tree, &hold, now);
    assert_int_equal(resume(t, LONG), 0);
    close_tree();
}

/* What nobody has proven goes with the hold that discards it, and what hangs below; but not under
 * somebody else who holds it, and nothing that was proven. */
static void discarded(void **state)
{
    (void)state;
    int32_t t[8 * P];
    count_up(t, 8 * P, 100);
    open_tree(24, 6);
    struct kv_hold h[3] = {{0}, {0}, {0}};
    keep(&h[0], t, 2 * P, CKPT_KIND_MARK);
    kv_tree_prove(tree, &h[0]);
    /* Its own, another one's whole pages and tail below them, and a state of a proven page. */
    keep(&h[1], t, P, CKPT_KIND_END);
    keep(&h[1], t, 4 * P, CKPT_KIND_END);
    grow(&h[2], t, 6 * P);
    add_tail(&h[2], t, 6 * P + 5);
    check(h, 3);
    assert_int_equal(kv_tree_stats(tree).states, 4);
    kv_tree_discard(tree, &h[1], now);
    check(h, 3);
    assert_int_equal(kv_tree_stats(tree).pages, 7); /* held by another */
    assert_int_equal(kv_tree_stats(tree).states, 2);
    kv_tree_release(tree, &h[2], now);
    grow(&h[1], t, 4 * P);
    kv_tree_discard(tree, &h[1], now);
    check(h, 3);
    assert_int_equal(kv_tree_stats(tree).pages, 2);
    assert_int_equal(kv_tree_stats(tree).states, 1);
    kv_tree_discard(tree, &h[0], now); /* proven: as released */
    check(h, 3);
    assert_int_equal(kv_tree_stats(tree).cold_pages, 2);
    assert_int_equal(kv_tree_stats(tree).states, 1);
    kv_tree_discard(tree, &h[0], now);
    close_tree();
}

/* Pages behind the last state go first, then the least useful state, then the pages it needed. */
static void order(void **state)
{
    (void)state;
    int32_t t[LONG];
    struct kv_hold hold = {0};
    open_tree(40, 4);
    count_up(t, LONG, 100);
    keep(&hold, t, 4 * P, CKPT_KIND_END);
    keep(&hold, t, 8 * P, CKPT_KIND_INTERVAL);
    grow(&hold, t, 10 * P);
    kv_tree_release(tree, &hold, now);
    now += 1000000000;
    uint64_t page = geom.page_bytes;
    assert_int_equal(kv_tree_free_bytes(tree, 1, false, -1, now), page);
    assert_int_equal(kv_tree_free_bytes(tree, page, false, -1, now), page);
    assert_int_equal(resume(t, LONG), 8 * P);
    assert_int_equal(kv_tree_free_bytes(tree, 1, false, -1, now), STATE_PAGES * page);
    assert_int_equal(resume(t, LONG), 4 * P);
    assert_int_equal(kv_tree_free_bytes(tree, 4 * page, false, -1, now), 4 * page);
    assert_int_equal(resume(t, LONG), 4 * P);
    check(NULL, 0);
    assert_int_equal(kv_tree_evict(tree, INT32_MAX, false, now), 5);
    assert_int_equal(kv_tree_stats(tree).nodes, 0);
    close_tree();
}

/* Of equal intervals every other one goes, so that none of the gaps becomes long. */
static void thinning(void **state)
{
    (void)state;
    int32_t t[LONG];
    struct kv_hold hold = {0};
    open_tree(64, 16);
    count_up(t, LONG, 100);
    for (int32_t i = 1; i <= 16; i++) {
        keep(&hold, t, 4 * P * i, CKPT_KIND_INTERVAL);
        now += 1000;
    }
    now += 60000000000u;
    for (int32_t left = 16; left > 8; left--)
        assert_int_equal(kv_tree_free_bytes(tree, 1, false, -1, now),
                         STATE_PAGES * geom.page_bytes);
    check(&hold, 1);
    kv_tree_release(tree, &hold, now);
    int32_t last = 0;
    int32_t longest = 0;
    for (int32_t n = 4 * P + 1; n <= LONG; n += 4 * P) {
        int32_t at = resume(t, n);
        longest = at - last > longest ? at - last : longest;
        last = at;
    }
    assert_true(longest <= 12 * P);
    close_tree();
}

/* Kinds, use and pins. */
static void worth(void **state)
{
    (void)state;
    enum { N = 5 };
    static int32_t t[N][4 * P];
    static const ckpt_kind kinds[N] = {CKPT_KIND_MARK, CKPT_KIND_INTERVAL, CKPT_KIND_BRANCH,
                                       CKPT_KIND_INTERVAL, CKPT_KIND_INTERVAL};
    int32_t pages[PAGES_MAX];
    open_tree(40, N);
    for (int i = 0; i < N; i++) {
        struct kv_hold hold = {0};
        count_up(t[i], 4 * P, 1000 * (i + 1));
        keep(&hold, t[i], 4 * P - P, kinds[i]);
        kv_tree_release(tree, &hold, now);
    }
    struct kv_hold hold = {0};
    struct kv_match m = kv_tree_match(tree, &hold, t[3], 4 * P, pages, now);
    kv_tree_use_state(tree, &m, now);
    kv_tree_release(tree, &hold, now);
    assert_int_equal(kv_tree_pin(tree, t[4], 3 * P, now + 3600000000000u), 3);
    check(NULL, 0);
    now += 1000000000;
    static const int first[] = {1, 3, 2, 0};
    for (int k = 0; k < 4; k++) {
        assert_int_equal(resume(t[first[k]], 4 * P), 3 * P);
        assert_int_equal(kv_tree_free_bytes(tree, 1, false, -1, now),
                         STATE_PAGES * geom.page_bytes);
        assert_int_equal(resume(t[first[k]], 4 * P), 0);
        assert_int_equal(kv_tree_free_bytes(tree, 3 * geom.page_bytes, false, -1, now),
                         3 * geom.page_bytes);
    }
    assert_int_equal(kv_tree_free_bytes(tree, 1, false, -1, now), 0);
    assert_int_equal(resume(t[4], 4 * P), 3 * P);
    int32_t pinned = tree->nodes[0].state_id;
    for (int32_t i = 0; i < tree->n_ever; i++)
        pinned = tree->nodes[i].state_id >= 0 ? tree->nodes[i].state_id : pinned;
    assert_int_equal(kv_tree_free_bytes(tree, 1, true, pinned, now), 0);
    now += 3600000000000u; /* the pin is over */
    assert_true(kv_tree_free_bytes(tree, 1, false, -1, now) > 0);
    check(NULL, 0);
    close_tree();
}

/* A pin of pages that lead to no state does not hold them. */
static void pins_without_a_state(void **state)
{
    (void)state;
    int32_t t[4 * P];
    struct kv_hold hold = {0};
    open_tree(8, 1);
    count_up(t, 4 * P, 100);
    keep(&hold, t, 2 * P, CKPT_KIND_MARK);
    grow(&hold, t, 4 * P);
    kv_tree_release(tree, &hold, now);
    assert_int_equal(kv_tree_pin(tree, t, 4 * P, now + 3600000000000u), 4);
    check(NULL, 0);
    assert_int_equal(kv_tree_free_bytes(tree, geom.page_bytes * 40, false, -1, now),
                     2 * geom.page_bytes);
    assert_int_equal(resume(t, 4 * P), 2 * P);
    check(NULL, 0);
    close_tree();
}

/* A new interval does not displace what is worth more and young; a mark does. */
static void room(void **state)
{
    (void)state;
    int32_t t[LONG];
    struct kv_hold hold = {0};
    open_tree(LONG / P, 2);
    count_up(t, LONG, 100);
    keep(&hold, t, 40 * P, CKPT_KIND_END);
    keep(&hold, t, 60 * P, CKPT_KIND_END);
    grow(&hold, t, 64 * P);
    assert_int_equal(kv_pool_stats(pool).free_bytes, 0);
    now += 10000000000u;
    assert_false(kv_tree_room_for_state(tree, CKPT_KIND_INTERVAL, now));
    assert_int_equal(kv_tree_stats(tree).states, 2);
    assert_true(kv_tree_room_for_state(tree, CKPT_KIND_MARK, now));
    assert_int_equal(kv_tree_stats(tree).states, 1);
    int32_t filler = kv_state_alloc(pool);
    assert_true(filler >= 0);
    now += 3600000000000u;
    assert_true(kv_tree_room_for_state(tree, CKPT_KIND_INTERVAL, now));
    kv_state_free(pool, filler);
    kv_tree_release(tree, &hold, now);
    close_tree();
}

static uint32_t rng_next(uint64_t *rng, uint32_t n)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*rng >> 33) % n;
}

/* One life: go on where the text can be, grow it, keep states, end with a tail. */
static void live(const int32_t *t, int32_t n, uint64_t *rng)
{
    struct kv_hold hold = {0};
    int32_t pages[PAGES_MAX];
    struct kv_match m = kv_tree_match(tree, &hold, t, n, pages, now);
    int32_t at = hold.n_pages * P;
    check(&hold, 1);
    if (m.state >= 0) {
        assert_int_equal(*content(m.state), hash_of(t, at + m.n_tail));
        kv_tree_use_state(tree, &m, now);
    }
    if (m.state >= 0 && rng_next(rng, 8) == 0) {
        kv_tree_take_state(tree, &m);
        kv_state_free(pool, m.state);
        if (m.tail_page >= 0)
            kv_page_free(pool, m.tail_page);
        check(&hold, 1);
    }
    while (hold.n_pages < n / P) {
        if (kv_pool_stats(pool).free_bytes < geom.page_bytes &&
            kv_tree_free_bytes(tree, geom.page_bytes, rng_next(rng, 2), -1, now) == 0)
            break;
        int32_t page = kv_page_alloc(pool);
        assert_int_equal(kv_tree_add(tree, &hold, t + hold.n_pages * P, &page, NULL, &hold, now),
                         T9_STATUS_OK);
        ckpt_kind kind = (ckpt_kind)rng_next(rng, CKPT_KINDS);
        if (rng_next(rng, 3) || !kv_tree_room_for_state(tree, kind, now))
            continue;
        int32_t state = new_state(t, hold.n_pages * P);
        if (state >= 0 && !kv_tree_keep_state(tree, &hold, state, kind, now))
            kv_state_free(pool, state);
        check(&hold, 1);
    }
    if (n % P && hold.n_pages == n / P && kv_tree_room_for_state(tree, CKPT_KIND_END, now + 1) &&
        kv_pool_stats(pool).free_bytes >= (STATE_PAGES + 1) * geom.page_bytes)
        add_tail(&hold, t, n);
    if (rng_next(rng, 2))
        kv_tree_prove(tree, &hold);
    check(&hold, 1);
    if (rng_next(rng, 8) == 0)
        kv_tree_discard(tree, &hold, now);
    else
        kv_tree_release(tree, &hold, now);
    check(NULL, 0);
}

static void random_lives(void **state)
{
    (void)state;
    enum { TEXTS = 6 };
    static int32_t t[TEXTS][LONG];
    uint64_t rng = 5;
    for (int round = 0; round < 6; round++) {
        open_tree(12 + (int32_t)rng_next(&rng, 60), 1 + (int32_t)rng_next(&rng, 12));
        if (round % 2)
            tree->hash_mask = 1;
        for (int i = 0; i < TEXTS; i++)
            count_up(t[i], LONG, 50);
        for (int i = 0; i < 400; i++) {
            int32_t *text = t[rng_next(&rng, TEXTS)];
            int32_t n = 1 + (int32_t)rng_next(&rng, rng_next(&rng, 4) ? 12 * P : LONG - 1);
            now += rng_next(&rng, 4) * 7000000000u;
            if (rng_next(&rng, 3) == 0)
                text[rng_next(&rng, (uint32_t)n)] = (int32_t)rng_next(&rng, 9);
            if (rng_next(&rng, 20) == 0)
                (void)kv_tree_pin(tree, text, n, now + rng_next(&rng, 5) * 9000000000u);
            (void)resume(text, n);
            live(text, n, &rng);
        }
        (void)kv_tree_evict(tree, INT32_MAX, true, now);
        assert_int_equal(kv_tree_stats(tree).nodes, 0);
        assert_int_equal(kv_tree_stats(tree).states, 0);
        close_tree();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_states_are),
        cmocka_unit_test(tail_on_the_way),
        cmocka_unit_test(owners),
        cmocka_unit_test(discarded),
        cmocka_unit_test(order),
        cmocka_unit_test(thinning),
        cmocka_unit_test(worth),
        cmocka_unit_test(pins_without_a_state),
        cmocka_unit_test(room),
        cmocka_unit_test(random_lives),
    };
    return cmocka_run_group_tests_name("kv checkpoints", tests, setup, teardown);
}
