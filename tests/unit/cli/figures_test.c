/* Tests of cli/figures.c. */
#include "cli/figures.h"

#include "lib/t9test.h"

static void test_median(void **state)
{
    (void)state;
    double v[] = {3, 1, 10, 2};
    figures_sort(v, 4);
    assert_float_equal(v[0], 1, 0);
    assert_float_equal(v[3], 10, 0);
    assert_float_equal(figures_median(v, 4), 2.5, 0);
    assert_float_equal(figures_median(v, 3), 2, 0);
    assert_float_equal(figures_median(v, 1), 1, 0);
}

static void test_percentile(void **state)
{
    (void)state;
    double v[1000];
    for (int i = 0; i < 1000; i++)
        v[i] = i + 1;
    assert_float_equal(figures_percentile(v, 1000, 99), 990, 0);
    assert_float_equal(figures_percentile(v, 1000, 50), 500, 0);
    assert_float_equal(figures_percentile(v, 1000, 0), 1, 0);
    assert_float_equal(figures_percentile(v, 1000, 100), 1000, 0);
    assert_float_equal(figures_percentile(v, 1, 99), 1, 0);
}

static void test_mean(void **state)
{
    (void)state;
    double v[] = {1, 2, 3, 4}, error = -1;
    assert_float_equal(figures_mean(v, 4, &error), 2.5, 1e-12);
    assert_float_equal(error, 0.6454972243679028, 1e-12); /* sqrt(5 / 3 / 4) */
    assert_float_equal(figures_mean(v, 1, &error), 1, 0);
    assert_float_equal(error, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_percentile),
        cmocka_unit_test(test_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
