/* Tests of http/rate.c: bursts, refilling, strangers, and what a crowd does to the table. */
#include "http/rate.h"

#include "lib/t9test.h"

#define SECOND ((uint64_t)1000000000)

static void test_one_client(void **state)
{
    struct rate r;
    uint64_t now = 5 * SECOND;
    (void)state;
    assert_int_equal(rate_init(&r, 60, 1, NULL), T9_STATUS_OK);
    for (int i = 0; i < 60; i++)
        assert_int_equal(rate_take(&r, 7, now), 0);
    assert_in_range(rate_take(&r, 7, now), 1, 2);
    assert_int_equal(rate_take(&r, 8, now), 0); /* somebody else */
    now += SECOND + SECOND / 10;
    assert_int_equal(rate_take(&r, 7, now), 0);
    assert_in_range(rate_take(&r, 7, now), 1, 2);
    now += 3600 * SECOND; /* no more than a minute's worth is saved up */
    int n = 0;
    while (rate_take(&r, 7, now) == 0)
        n++;
    assert_int_equal(n, 60);
    rate_deinit(&r);
}

static void test_slow(void **state)
{
    struct rate r;
    (void)state;
    assert_int_equal(rate_init(&r, 1, 1, NULL), T9_STATUS_OK);
    assert_int_equal(rate_take(&r, 1, SECOND), 0);
    assert_in_range(rate_take(&r, 1, SECOND), 59, 61);
    assert_in_range(rate_take(&r, 1, 31 * SECOND), 29, 32);
    assert_int_equal(rate_take(&r, 1, 62 * SECOND), 0);
    rate_deinit(&r);
}

static void test_off(void **state)
{
    struct rate r;
    (void)state;
    assert_int_equal(rate_init(&r, 0, 1, NULL), T9_STATUS_OK);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(rate_take(&r, 3, 0), 0);
    rate_deinit(&r);
}

/* A client that used its allowance up is not forgotten because others come. */
static void test_crowd(void **state)
{
    struct rate r;
    (void)state;
    assert_int_equal(rate_init(&r, 10, 99, NULL), T9_STATUS_OK);
    while (rate_take(&r, 4242, SECOND) == 0) {
    }
    for (uint64_t stranger = 10000; stranger < 60000; stranger++)
        assert_int_equal(rate_take(&r, stranger, SECOND), 0);
    assert_true(rate_take(&r, 4242, SECOND) > 0);
    rate_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_client),
                                       cmocka_unit_test(test_slow), cmocka_unit_test(test_off),
                                       cmocka_unit_test(test_crowd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
