/* The worker pool: barriers, dynamic sharing, sleep and wake, more threads than CPUs. */
#include "backend/cpu/pool.h"

#include "base/clock.h"
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { THREADS = 6, ROUNDS = 300, ITEMS = 97 };

struct job {
    struct pool *pool;
    int taken[ITEMS];      /* each item by one worker, written without an atomic */
    int64_t part[THREADS]; /* written before a barrier, read by all after it */
    int64_t sum[THREADS];
};

static void job_run(void *ctx, int ith)
{
    struct job *j = ctx;
    int n = pool_threads(j->pool);
    for (uint32_t i = pool_next(j->pool); i < ITEMS; i = pool_next(j->pool))
        j->taken[i]++;
    pool_barrier(j->pool);
    j->part[ith] = 0;
    for (int i = ith; i < ITEMS; i += n)
        j->part[ith] += j->taken[i];
    pool_barrier(j->pool);
    j->sum[ith] = 0;
    for (int i = 0; i < n; i++)
        j->sum[ith] += j->part[i];
    pool_barrier(j->pool);
    for (uint32_t i = pool_next(j->pool); i < ITEMS; i = pool_next(j->pool))
        j->taken[i]++;
}

static void test_barriers(void **state)
{
    (void)state;
    for (int n = 1; n <= THREADS; n++) {
        struct job j = {0};
        assert_int_equal(pool_new(&j.pool, n, &j, NULL), T9_STATUS_OK);
        assert_ptr_equal(pool_user(j.pool), &j);
        for (int round = 0; round < ROUNDS; round++) {
            if (round % 100 == 50)
                clock_sleep_ms(2); /* long enough for the workers to fall asleep */
            pool_run(j.pool, job_run, &j);
            for (int i = 0; i < ITEMS; i++)
                assert_int_equal(j.taken[i], 2 * (round + 1));
            for (int i = 0; i < n; i++)
                assert_int_equal(j.sum[i], ITEMS * (2 * round + 1));
        }
        pool_free(j.pool);
    }
}

/* Idle workers use no CPU. */
static void test_idle(void **state)
{
    (void)state;
    struct job j = {0};
    struct timespec before, after;
    assert_int_equal(pool_new(&j.pool, 3, NULL, NULL), T9_STATUS_OK);
    pool_run(j.pool, job_run, &j);
    clock_sleep_ms(20);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    clock_sleep_ms(200);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t ns = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    assert_true(ns < 20 * 1000000);
    pool_run(j.pool, job_run, &j);
    pool_free(j.pool);
    pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_barriers),
                                       cmocka_unit_test(test_idle)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
