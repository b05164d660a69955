/* Tests of base/queue.c, base/thread.c and base/clock.c; meant to run under ThreadSanitizer too. */
#include "base/queue.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "lib/t9test.h"

#include <signal.h>
#include <stdatomic.h>

#define N_PRODUCERS 4
#define N_ITEMS     20000 /* a producer */

struct producer {
    struct ring *ring;
    uintptr_t id;
};

static void produce(void *arg)
{
    struct producer *p = arg;
    for (uintptr_t i = 1; i <= N_ITEMS; i++) {
        while (!ring_push(p->ring, (void *)(p->id << 32 | i)))
            clock_sleep_ms(1);
        if (i % 4096 == 0)
            clock_sleep_ms(1); /* lets the consumer fall asleep */
    }
}

/* Every item arrives once, in each producer's order, with a consumer that sleeps in between. */
static void test_ring_threads(void **state)
{
    (void)state;
    struct ring *r;
    struct t9_err err;
    assert_int_equal(ring_new(&r, 100, &err), T9_STATUS_OK);
    struct producer producers[N_PRODUCERS];
    struct thread threads[N_PRODUCERS];
    for (uintptr_t i = 0; i < N_PRODUCERS; i++) {
        producers[i] = (struct producer){r, i};
        assert_int_equal(thread_start(&threads[i], "producer", produce, &producers[i], &err),
                         T9_STATUS_OK);
    }
    uintptr_t last[N_PRODUCERS] = {0};
    for (size_t got = 0; got < (size_t)N_PRODUCERS * N_ITEMS;) {
        void *item = ring_pop(r);
        if (!item) {
            /* A lost wake would end this wait by time. */
            assert_true(ring_wait(r, 20000));
            continue;
        }
        uintptr_t v = (uintptr_t)item;
        uintptr_t id = v >> 32;
        uintptr_t i = v & 0xFFFFFFFF;
        assert_true(id < N_PRODUCERS);
        assert_int_equal(i, last[id] + 1);
        last[id] = i;
        got++;
    }
    for (int i = 0; i < N_PRODUCERS; i++)
        thread_join(&threads[i]);
    assert_null(ring_pop(r));
    assert_int_equal(ring_count(r), 0);
    ring_free(r);
}

static void test_ring_bounds(void **state)
{
    (void)state;
    struct ring *r;
    struct t9_err err;
    assert_int_equal(ring_new(&r, 0, &err), T9_STATUS_INVALID);
    assert_int_equal(ring_new(&r, 3, &err), T9_STATUS_OK);
    int x;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 4; i++)
            assert_true(ring_push(r, &x));
        assert_false(ring_push(r, &x));
        assert_int_equal(ring_count(r), 4);
        for (int i = 0; i < 4; i++)
            assert_ptr_equal(ring_pop(r), &x);
        assert_null(ring_pop(r));
    }
    assert_false(ring_wait(r, 0));
    assert_false(ring_wait(r, 5));
    ring_wake(r); /* before the wait: remembered */
    assert_true(ring_wait(r, 20000));
    assert_false(ring_wait(r, 0));
    ring_free(r);
    ring_free(NULL);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_test_fail_nth(nth);
        assert_int_equal(ring_new(&r, 8, &err), T9_STATUS_NOMEM);
        assert_null(r);
        mem_test_fail_nth(0);
    }
}

static void wake_soon(void *arg)
{
    clock_sleep_ms(20);
    ring_wake(arg);
}

static void test_ring_wake_ends_wait(void **state)
{
    (void)state;
    struct ring *r;
    struct t9_err err;
    struct thread t;
    assert_int_equal(ring_new(&r, 8, &err), T9_STATUS_OK);
    assert_int_equal(thread_start(&t, "waker", wake_soon, r, &err), T9_STATUS_OK);
    assert_true(ring_wait(r, -1));
    thread_join(&t);
    ring_free(r);
}

struct pool {
    struct jobq *q;
    _Atomic uint64_t sum, n;
};

static void consume(void *arg)
{
    struct pool *p = arg;
    for (void *item = jobq_pop(p->q); item; item = jobq_pop(p->q)) {
        atomic_fetch_add(&p->sum, (uint64_t)(uintptr_t)item);
        atomic_fetch_add(&p->n, 1);
    }
}

static void test_jobq_threads(void **state)
{
    (void)state;
    struct pool pool = {0};
    struct t9_err err;
    struct thread threads[3];
    assert_int_equal(jobq_new(&pool.q, 16, &err), T9_STATUS_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(thread_start(&threads[i], "a-long-thread-name", consume, &pool, &err),
                         T9_STATUS_OK);
    uint64_t want = 0;
    for (uintptr_t i = 1; i <= 5000; i++) {
        while (!jobq_push(pool.q, (void *)i))
            clock_sleep_ms(1);
        want += i;
    }
    jobq_close(pool.q); /* what is queued is still handed out */
    for (int i = 0; i < 3; i++)
        thread_join(&threads[i]);
    assert_true(atomic_load(&pool.sum) == want);
    assert_true(atomic_load(&pool.n) == 5000);
    assert_false(jobq_push(pool.q, &pool));
    assert_null(jobq_pop(pool.q));
    jobq_free(pool.q);
    jobq_free(NULL);
}

static void test_jobq_bounds(void **state)
{
    (void)state;
    struct jobq *q;
    struct t9_err err;
    int x[3];
    assert_int_equal(jobq_new(&q, 0, &err), T9_STATUS_INVALID);
    assert_int_equal(jobq_new(&q, 2, &err), T9_STATUS_OK);
    for (int round = 0; round < 3; round++) {
        assert_true(jobq_push(q, &x[0]));
        assert_true(jobq_push(q, &x[1]));
        assert_false(jobq_push(q, &x[2]));
        assert_ptr_equal(jobq_pop(q), &x[0]);
        assert_true(jobq_push(q, &x[2]));
        assert_ptr_equal(jobq_pop(q), &x[1]);
        assert_ptr_equal(jobq_pop(q), &x[2]);
    }
    jobq_free(q);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_test_fail_nth(nth);
        assert_int_equal(jobq_new(&q, 8, &err), T9_STATUS_NOMEM);
        mem_test_fail_nth(0);
    }
}

static void read_mask(void *arg)
{
    pthread_sigmask(SIG_SETMASK, NULL, arg);
}

static void test_thread_masks_signals(void **state)
{
    (void)state;
    struct thread t;
    struct t9_err err;
    sigset_t mask;
    sigset_t own;
    sigemptyset(&mask);
    assert_int_equal(thread_start(&t, "masked", read_mask, &mask, &err), T9_STATUS_OK);
    thread_join(&t);
    thread_join(&t);
    assert_true(sigismember(&mask, SIGINT));
    assert_true(sigismember(&mask, SIGTERM));
    assert_false(sigismember(&mask, SIGSEGV));
    pthread_sigmask(SIG_SETMASK, NULL, &own);
    assert_false(sigismember(&own, SIGINT));
    assert_true(thread_cpu_count() >= 1);
    mem_test_fail_nth(1);
    assert_int_equal(thread_start(&t, "x", read_mask, &mask, &err), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
    assert_false(t.started);
}

static void test_clock(void **state)
{
    (void)state;
    uint64_t a = clock_now_ns();
    clock_sleep_ms(12);
    assert_true(clock_now_ns() - a >= 12000000);
    assert_true(clock_unix_s() > 1600000000);
    char z[32];
    clock_iso8601(z);
    assert_int_equal(strlen(z), 24);
    assert_true(z[4] == '-' && z[10] == 'T' && z[19] == '.' && z[23] == 'Z');
    clock_format_utc(1796043075, z);
    assert_string_equal(z, "2026-11-30T12:51:15Z");
    clock_format_utc(-1, z);
    assert_string_equal(z, "");
    clock_format_utc(INT64_MAX, z);
    assert_string_equal(z, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_threads),
        cmocka_unit_test(test_ring_bounds),
        cmocka_unit_test(test_ring_wake_ends_wait),
        cmocka_unit_test(test_jobq_threads),
        cmocka_unit_test(test_jobq_bounds),
        cmocka_unit_test(test_thread_masks_signals),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests_name("queue", tests, NULL, NULL);
}
