/* state_test: recurrent states beside the pages of a pool: one budget for both, buffers that are
 * reused and cleared, memory that is not held twice. */
#include "kv/state.h"

#include "kv/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct be *be;
static struct kv_geom geom;
static struct state_geom sgeom;
static struct kv_pool *pool;

static int setup(void **state)
{
    (void)state;
    struct be_params bp = {.n_threads = 1, .max_rows = 1};
    struct t9_err err;
    /* 40,960 bytes of history, ten pages' worth. */
    const struct state_shape shape = {.n_layers = 1, .taps = 2, .channels = 10240};
    if (!kv_geom_init_same(&geom, 1, 1, 8, KV_TYPE_F16) || !state_geom_init(&sgeom, &shape))
        return 1;
    return be_new(&be, "ref", &bp, &err) == T9_STATUS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    be_free(be);
    return 0;
}

static void open_pool(uint64_t budget_bytes)
{
    struct t9_err err = {0};
    assert_int_equal(kv_pool_new(&pool, be, &geom, budget_bytes, &err), T9_STATUS_OK);
    if (kv_pool_add_states(pool, &sgeom, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
}

static unsigned char *memory(int32_t state)
{
    return (unsigned char *)state_slot(&sgeom, kv_state_base(pool), state);
}

static bool is_all(int32_t state, unsigned char byte)
{
    const unsigned char *p = memory(state);
    for (size_t i = 0; i < sgeom.state_bytes; i++) {
        if (p[i] != byte)
            return false;
    }
    return true;
}

static void one_budget(void **state)
{
    (void)state;
    assert_int_equal(geom.page_bytes, 4096);
    open_pool(25 * 4096);
    assert_int_equal(kv_state_bytes(pool), 10 * 4096);
    assert_int_equal(kv_state_alloc(pool), 0);
    assert_int_equal(kv_state_alloc(pool), 1);
    assert_int_equal(kv_state_alloc(pool), -1);
    for (int32_t i = 0; i < 5; i++)
        assert_int_equal(kv_page_alloc(pool), i);
    assert_int_equal(kv_page_alloc(pool), -1);
    assert_int_equal(kv_pool_stats(pool).free_bytes, 0);
    kv_state_free(pool, 0);
    assert_false(kv_state_is_used(pool, 0));
    for (int32_t i = 5; i < 15; i++)
        assert_int_equal(kv_page_alloc(pool), i);
    assert_int_equal(kv_page_alloc(pool), -1);
    assert_int_equal(kv_state_alloc(pool), -1);
    for (int32_t i = 0; i < 9; i++)
        kv_page_free(pool, i);
    assert_int_equal(kv_state_alloc(pool), -1);
    kv_page_free(pool, 9);
    assert_int_equal(kv_state_alloc(pool), 0);
    assert_int_equal(kv_pool_stats(pool).states_used, 2);
    kv_pool_free(pool);
}

static void too_small(void **state)
{
    (void)state;
    struct t9_err err = {0};
    assert_int_equal(kv_pool_new(&pool, be, &geom, 11 * 4096 - 1, &err), T9_STATUS_OK);
    assert_int_equal(kv_pool_add_states(pool, &sgeom, &err), T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "40960 bytes"));
    kv_pool_free(pool);
}

static void no_states(void **state)
{
    (void)state;
    struct t9_err err = {0};
    const struct state_geom none = {0};
    assert_int_equal(kv_pool_new(&pool, be, &geom, 4096, &err), T9_STATUS_OK);
    assert_int_equal(kv_pool_add_states(pool, &none, &err), T9_STATUS_OK);
    assert_null(kv_state_geom(pool));
    assert_int_equal(kv_state_bytes(pool), 0);
    assert_int_equal(kv_state_alloc(pool), -1);
    assert_int_equal(kv_page_alloc(pool), 0);
    kv_pool_free(pool);
}

static void cleared_and_copied(void **state)
{
    (void)state;
    open_pool(40 * 4096);
    int32_t a = kv_state_alloc(pool);
    int32_t b = kv_state_alloc(pool);
    kv_state_clear(pool, a);
    assert_true(is_all(a, 0));
    memset(memory(a), 7, sgeom.state_bytes);
    kv_state_copy(pool, b, a);
    assert_true(is_all(b, 7));
    kv_state_free(pool, a);
    assert_int_equal(kv_state_alloc(pool), a);
    kv_state_clear(pool, a);
    assert_true(is_all(a, 0));
    kv_state_free(pool, b);
    kv_pool_trim(pool); /* its memory is gone, and with it what was in it */
    assert_int_equal(kv_state_alloc(pool), b);
    kv_state_clear(pool, b);
    assert_true(is_all(b, 0));
    kv_pool_free(pool);
}

/* Unused memory of pages and states together is never more than the budget. */
static void memory_within_budget(void **state)
{
    (void)state;
    open_pool(30 * 4096);
    int32_t ids[31];
    for (int round = 0; round < 3; round++) {
        int32_t n = 0;
        while ((ids[n] = kv_page_alloc(pool)) >= 0) {
            memset((char *)kv_pool_base(pool) + (size_t)ids[n] * geom.page_bytes, 1, 64);
            n++;
        }
        assert_int_equal(n, 30);
        while (n > 0)
            kv_page_free(pool, ids[--n]);
        for (; (ids[n] = kv_state_alloc(pool)) >= 0; n++) {
            kv_state_clear(pool, ids[n]);
            assert_true(is_all(ids[n], 0));
            memset(memory(ids[n]), 1, sgeom.state_bytes);
            const struct pieces *x = &pool->pages;
            const struct pieces *y = &pool->states;
            assert_true((x->n_ever - x->n_trimmed) * 4096 + (y->n_ever - y->n_trimmed) * 40960 <=
                        30 * 4096);
        }
        assert_int_equal(n, 3);
        while (n > 0)
            kv_state_free(pool, ids[--n]);
    }
    kv_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_budget),
        cmocka_unit_test(too_small),
        cmocka_unit_test(no_states),
        cmocka_unit_test(cleared_and_copied),
        cmocka_unit_test(memory_within_budget),
    };
    return cmocka_run_group_tests_name("kv state", tests, setup, teardown);
}
