/*
 * base/queue.c - ring and jobq.
 *
 * ring: each cell carries a sequence number that says whose turn it is (producer at seq == pos,
 * consumer at seq == pos + 1). The consumer announces sleep in `sleeping` and then looks at the
 * head cell once more; a producer publishes its cell and then looks at `sleeping`. Both pairs are
 * sequentially consistent, so at least one side sees the other and no wake is lost.
 * jobq: mutex, condition variable and a circular array.
 */
#include "base/queue.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RING_CAP_MAX ((size_t)1 << 24)

struct ring_cell {
    _Atomic size_t seq;
    void *item;
};

struct ring {
    struct ring_cell *cells;
    size_t mask;
    int event_fd;
    _Alignas(64) _Atomic size_t tail; /* producers */
    _Alignas(64) _Atomic size_t head; /* written by the consumer only */
    _Alignas(64) atomic_bool sleeping;
    atomic_bool woken;
};

t9_status ring_new(struct ring **out, size_t cap, struct t9_err *err)
{
    *out = NULL;
    if (cap == 0 || cap > RING_CAP_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "ring: capacity %zu is not within 1 to %zu", cap,
                       RING_CAP_MAX);
    size_t n = 2;
    while (n < cap)
        n *= 2;
    struct ring *r = mem_alloc_aligned(64, sizeof *r);
    struct ring_cell *cells = mem_calloc(n, sizeof *cells);
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!r || !cells || fd < 0) {
        t9_status st = fd < 0 ? T9_STATUS_IO : T9_STATUS_NOMEM;
        if (fd >= 0)
            close(fd);
        mem_free(cells);
        mem_free(r);
        return t9_fail(err, st, "ring: %s", st == T9_STATUS_IO ? "no eventfd" : "out of memory");
    }
    r->cells = cells;
    r->mask = n - 1;
    r->event_fd = fd;
    atomic_init(&r->tail, 0);
    atomic_init(&r->head, 0);
    atomic_init(&r->sleeping, false);
    atomic_init(&r->woken, false);
    for (size_t i = 0; i < n; i++)
        atomic_init(&cells[i].seq, i);
    *out = r;
    return T9_STATUS_OK;
}

void ring_free(struct ring *r)
{
    if (!r)
        return;
    close(r->event_fd);
    mem_free(r->cells);
    mem_free(r);
}

/* Writes the eventfd if the consumer sleeps and nobody has woken it yet. */
static void wake_sleeper(struct ring *r)
{
    if (!atomic_load(&r->sleeping) || !atomic_exchange(&r->sleeping, false))
        return;
    uint64_t one = 1;
    while (write(r->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

bool ring_push(struct ring *r, void *item)
{
    T9_ASSERT(item != NULL);
    size_t pos = atomic_load_explicit(&r->tail, memory_order_relaxed);
    struct ring_cell *cell;
    for (;;) {
        cell = &r->cells[pos & r->mask];
        size_t seq = atomic_load_explicit(&cell->seq, memory_order_acquire);
        ptrdiff_t lag = (ptrdiff_t)(seq - pos);
        if (lag < 0)
            return false;
        if (lag > 0)
            pos = atomic_load_explicit(&r->tail, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(&r->tail, &pos, pos + 1,
                                                       memory_order_relaxed, memory_order_relaxed))
            break;
    }
    cell->item = item;
    atomic_store(&cell->seq, pos + 1); /* seq_cst: before the look at `sleeping` */
    wake_sleeper(r);
    return true;
}

static bool has_item(struct ring *r)
{
    size_t pos = atomic_load_explicit(&r->head, memory_order_relaxed);
    return atomic_load(&r->cells[pos & r->mask].seq) == pos + 1;
}

void *ring_pop(struct ring *r)
{
    size_t pos = atomic_load_explicit(&r->head, memory_order_relaxed);
    struct ring_cell *cell = &r->cells[pos & r->mask];
    if (atomic_load_explicit(&cell->seq, memory_order_acquire) != pos + 1)
        return NULL;
    void *item = cell->item;
    atomic_store_explicit(&cell->seq, pos + r->mask + 1, memory_order_release);
    atomic_store_explicit(&r->head, pos + 1, memory_order_relaxed);
    return item;
}

/* One sleep of ring_wait; true when it ended for a reason. A producer that saw `sleeping` may write
 * the eventfd only after the consumer has gone on, so a wake can come without one. */
static bool sleep_once(struct ring *r, int timeout_ms)
{
    atomic_store(&r->sleeping, true); /* seq_cst: before the second look */
    if (!has_item(r) && !atomic_load(&r->woken)) {
        struct pollfd p = {.fd = r->event_fd, .events = POLLIN};
        (void)poll(&p, 1, timeout_ms); /* a signal ends it early: the caller looks again */
    }
    atomic_store(&r->sleeping, false);
    uint64_t count;
    while (read(r->event_fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    bool woken = atomic_exchange(&r->woken, false);
    return has_item(r) || woken;
}

bool ring_wait(struct ring *r, int timeout_ms)
{
    if (has_item(r))
        return true;
    const uint64_t start_ns = timeout_ms > 0 ? clock_now_ns() : 0;
    int left_ms = timeout_ms;
    while (!sleep_once(r, left_ms)) {
        if (timeout_ms < 0)
            continue;
        uint64_t passed_ms = timeout_ms > 0 ? (clock_now_ns() - start_ns) / 1000000 : 0;
        if (passed_ms >= (uint64_t)timeout_ms)
            return false;
        left_ms = timeout_ms - (int)passed_ms;
    }
    return true;
}

void ring_wake(struct ring *r)
{
    atomic_store(&r->woken, true);
    wake_sleeper(r);
}

size_t ring_count(const struct ring *r)
{
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    return tail - head > r->mask + 1 ? 0 : tail - head;
}

struct jobq {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    void **items;
    size_t cap, n, first;
    bool closed;
};

t9_status jobq_new(struct jobq **out, size_t cap, struct t9_err *err)
{
    *out = NULL;
    if (cap == 0)
        return t9_fail(err, T9_STATUS_INVALID, "job queue: capacity is 0");
    struct jobq *q = mem_calloc(1, sizeof *q);
    void **items = mem_calloc(cap, sizeof *items);
    if (!q || !items) {
        mem_free(q);
        mem_free(items);
        return t9_fail(err, T9_STATUS_NOMEM, "job queue: out of memory for %zu entries", cap);
    }
    q->items = items;
    q->cap = cap;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->ready, NULL);
    *out = q;
    return T9_STATUS_OK;
}

void jobq_free(struct jobq *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->ready);
    pthread_mutex_destroy(&q->lock);
    mem_free(q->items);
    mem_free(q);
}

bool jobq_push(struct jobq *q, void *item)
{
    T9_ASSERT(item != NULL);
    pthread_mutex_lock(&q->lock);
    bool ok = !q->closed && q->n < q->cap;
    if (ok) {
        q->items[(q->first + q->n) % q->cap] = item;
        q->n++;
        pthread_cond_signal(&q->ready);
    }
    pthread_mutex_unlock(&q->lock);
    return ok;
}

void *jobq_pop(struct jobq *q)
{
    void *item = NULL;
    pthread_mutex_lock(&q->lock);
    while (q->n == 0 && !q->closed)
        pthread_cond_wait(&q->ready, &q->lock);
    if (q->n > 0) {
        item = q->items[q->first];
        q->first = (q->first + 1) % q->cap;
        q->n--;
    }
    pthread_mutex_unlock(&q->lock);
    return item;
}

void jobq_close(struct jobq *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->ready);
    pthread_mutex_unlock(&q->lock);
}
