/*
 * kv/ahead.c - takes memory ahead of a growing pool. See ahead.h.
 *
 * What is taken ahead is at most as much as is in use, 64 MB, a sixteenth of the range, and what
 * the caller has room for, so a small use stays small. The thread writes nothing: it asks the
 * system to back the range, or, where the system does not know that, adds zero atomically to one
 * byte of each page. So it does no harm that a page is handed out and written while its memory is
 * being taken.
 *
 * The engine thread calls ahead_grow and ahead_shrink; neither waits for this thread. After a
 * shrink one slice that was under way may still get memory; the next shrink gives it back.
 */
#include "kv/ahead.h"

#include "base/mem.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_BYTES ((size_t)64 << 20)

enum { POOL_PART = 16 };

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Adds zero to one byte of each page of the system. Somebody may write it plainly at the same time:
 * no store is lost by that on any machine that has atomics of a byte, but it looks like a race. */
__attribute__((no_sanitize("thread"))) static void touch(char *p, size_t n)
{
    long page = sysconf(_SC_PAGESIZE);
    size_t step = page > 0 ? (size_t)page : 4096;
    for (size_t i = 0; i < n; i += step)
        (void)__atomic_fetch_or((unsigned char *)p + i, 0, __ATOMIC_RELAXED);
}

static bool populate(char *p, size_t n)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(p, n, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return errno == EINTR || errno == EAGAIN;
#endif
    touch(p, n);
    return true;
}

/* One slice; false when there is nothing to do. */
static bool take_slice(struct ahead *a)
{
    size_t done = atomic_load(&a->done);
    size_t used = atomic_load(&a->used);
    size_t want = atomic_load(&a->want);
    size_t from = done > used ? done : used;
    if (from >= want || atomic_load(&a->stop))
        return false;
    size_t n = min_size(want - from, AHEAD_SLICE_BYTES);
    if (!populate(a->base + from, n))
        return false;
    /* Another value means that the range has shrunk meanwhile: look again. */
    (void)atomic_compare_exchange_strong(&a->done, &done, from + n);
    return true;
}

static void ahead_main(void *arg)
{
    struct ahead *a = arg;
    while (!atomic_load(&a->stop)) {
        while (sem_wait(&a->wake) != 0 && errno == EINTR)
            continue;
        while (take_slice(a))
            continue;
    }
}

t9_status ahead_init(struct ahead *a, void *base, size_t size_bytes, struct t9_err *err)
{
    a->base = base;
    a->size_bytes = size_bytes;
    a->most_bytes = min_size(MOST_BYTES, size_bytes / POOL_PART);
    a->asked_bytes = 0;
    atomic_init(&a->stop, false);
    atomic_init(&a->used, 0);
    atomic_init(&a->want, 0);
    atomic_init(&a->done, 0);
    if (sem_init(&a->wake, 0, 0) != 0)
        return t9_fail_os(err, T9_STATUS_IO, errno, "KV cache: no semaphore");
    a->has_sem = true;
    return thread_start(&a->thread, "t9-kv-ahead", ahead_main, a, err);
}

void ahead_deinit(struct ahead *a)
{
    if (a->thread.started) {
        atomic_store(&a->stop, true);
        (void)sem_post(&a->wake);
        thread_join(&a->thread);
    }
    if (a->has_sem)
        (void)sem_destroy(&a->wake);
    a->has_sem = false;
}

void ahead_grow(struct ahead *a, size_t used_bytes, size_t room_bytes)
{
    atomic_store_explicit(&a->used, used_bytes, memory_order_relaxed);
    size_t more = min_size(room_bytes, min_size(a->most_bytes, used_bytes));
    size_t want = min_size(used_bytes + more, a->size_bytes);
    if (want < a->asked_bytes + AHEAD_SLICE_BYTES / 4 + more / 4)
        return;
    a->asked_bytes = want;
    atomic_store(&a->want, want);
    (void)sem_post(&a->wake);
}

size_t ahead_beyond(const struct ahead *a, size_t used_bytes)
{
    return a->asked_bytes > used_bytes ? a->asked_bytes - used_bytes : 0;
}

size_t ahead_shrink(struct ahead *a, size_t used_bytes)
{
    atomic_store(&a->want, used_bytes);
    atomic_store(&a->used, used_bytes);
    a->asked_bytes = used_bytes;
    size_t done = atomic_exchange(&a->done, used_bytes);
    size_t end = done > used_bytes ? done : used_bytes;
    return min_size(end + AHEAD_SLICE_BYTES + MEM_HUGE_BYTES, a->size_bytes);
}
