/*
 * backend/cpu/pool.c - see pool.h.
 *
 * Two words are waited on: `run_seq` (a new job) and `phase` (a barrier). Both are changed with a
 * sequentially consistent store before the count of sleepers is read, and a sleeper counts itself
 * before the kernel compares the word, so that no wake-up is lost. The barrier's last arriver
 * resets the counters before it opens the next phase, so that they need no sense bit.
 */
#include "backend/cpu/pool.h"

#include "backend/kernels.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#include <fenv.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#ifdef __linux__
#    include <linux/futex.h>
#    include <sys/syscall.h>
#    include <unistd.h>
#endif

enum {
    SPIN_NS = 60 * 1000,
    SPINS_PER_LOOK = 16, /* pauses between two looks at the clock */
    LINE = 64,
};

/* A word to wait on. Each in a cache line of its own. */
struct gate {
    _Alignas(LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct worker {
    struct thread thread;
    struct pool *pool;
    int ith;
};

struct pool {
    struct gate run, phase;
    _Alignas(LINE) _Atomic uint32_t arrived;
    _Alignas(LINE) _Atomic uint32_t next;
    _Alignas(LINE) void (*fn)(void *ctx, int ith); /* written before run.value changes */
    void *ctx;
    const void *user;
    int n_threads;
    uint64_t spin_ns; /* 0 when there are more threads than CPUs: spinning would keep one waiting */
    _Atomic uint32_t stop;
    struct worker workers[];
};

#ifdef __linux__
static void gate_sleep(struct gate *g, uint32_t seen)
{
    (void)syscall(SYS_futex, &g->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void gate_wake(struct gate *g)
{
    (void)syscall(SYS_futex, &g->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
#else
/* No futex: look again every millisecond. */
static void gate_sleep(struct gate *g, uint32_t seen)
{
    if (atomic_load(&g->value) == seen)
        clock_sleep_ms(1);
}
static void gate_wake(struct gate *g)
{
    (void)g;
}
#endif

static void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void gate_open(struct gate *g)
{
    atomic_fetch_add(&g->value, 1);
    if (atomic_load(&g->sleepers) > 0)
        gate_wake(g);
}

static void gate_wait(struct gate *g, uint32_t seen, uint64_t spin_ns)
{
    uint64_t end_ns = spin_ns ? clock_now_ns() + spin_ns : 0;
    do {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (atomic_load_explicit(&g->value, memory_order_acquire) != seen)
                return;
            cpu_pause();
        }
    } while (spin_ns && clock_now_ns() < end_ns);
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->value) == seen)
        gate_sleep(g, seen);
    atomic_fetch_sub(&g->sleepers, 1);
}

void pool_barrier(struct pool *p)
{
    uint32_t seen = atomic_load_explicit(&p->phase.value, memory_order_acquire);
    uint32_t n = (uint32_t)p->n_threads;
    if (atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel) == n - 1) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&p->next, 0, memory_order_relaxed);
        if (n > 1)
            gate_open(&p->phase);
    } else {
        gate_wait(&p->phase, seen, p->spin_ns);
    }
}

uint32_t pool_next(struct pool *p)
{
    return atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
}

void be_barrier(struct be_task *t)
{
    if (t->nth > 1)
        pool_barrier(t->pool);
}

static void worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    uint32_t seen = 0;
    (void)fesetenv(FE_DFL_ENV); /* the numbers assume round-to-even and real denormals */
    for (;;) {
        gate_wait(&p->run, seen, p->spin_ns);
        seen++;
        if (atomic_load(&p->stop))
            return;
        p->fn(p->ctx, w->ith);
        pool_barrier(p);
    }
}

void pool_run(struct pool *p, void (*fn)(void *ctx, int ith), void *ctx)
{
    fenv_t env; /* the caller may be an embedding program's thread with its own rounding */
    (void)fegetenv(&env);
    (void)fesetenv(FE_DFL_ENV);
    p->fn = fn;
    p->ctx = ctx;
    if (p->n_threads > 1)
        gate_open(&p->run);
    fn(ctx, 0);
    pool_barrier(p);
    (void)fesetenv(&env);
}

int pool_threads(const struct pool *p)
{
    return p->n_threads;
}

const void *pool_user(const struct pool *p)
{
    return p->user;
}

t9_status pool_new(struct pool **out, int n_threads, const void *user, struct t9_err *err)
{
    *out = NULL;
    size_t bytes = sizeof(struct pool) + (size_t)n_threads * sizeof(struct worker);
    struct pool *p = mem_alloc_aligned(LINE, bytes);
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a pool of %d threads", n_threads);
    memset(p, 0, bytes);
    p->n_threads = n_threads;
    p->user = user;
    p->spin_ns = n_threads <= thread_cpu_count() ? SPIN_NS : 0;
    for (int i = 1; i < n_threads; i++) {
        struct worker *w = &p->workers[i];
        char name[24]; /* the OS keeps 15 */
        w->pool = p;
        w->ith = i;
        (void)snprintf(name, sizeof(name), "t9-cpu-%d", i);
        t9_status st = thread_start(&w->thread, name, worker_main, w, err);
        if (st != T9_STATUS_OK) {
            pool_free(p);
            return st;
        }
    }
    *out = p;
    return T9_STATUS_OK;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, 1);
    gate_open(&p->run);
    for (int i = 1; i < p->n_threads; i++)
        thread_join(&p->workers[i].thread);
    mem_free(p);
}
