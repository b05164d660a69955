/*
 * engine/signal.c - a futex word with a count of waiters. See signal.h.
 *
 * The raiser changes the word and then looks at the count; a waiter counts itself, reads the word
 * and then looks at the state. All four are sequentially consistent, so either the raiser sees the
 * waiter or the waiter sees the new state.
 */
#include "engine/signal.h"

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(_Atomic uint32_t) == 4, "a futex is 32 bits");

void signal_raise(struct signal_word *s)
{
    atomic_fetch_add(&s->word, 1);
    if (atomic_load(&s->waiters) > 0)
        (void)syscall(SYS_futex, &s->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

bool signal_wait(struct signal_word *s, bool (*ready)(void *ctx), void *ctx, int timeout_ms)
{
    if (timeout_ms == 0 || ready(ctx))
        return ready(ctx);
    uint64_t end_ns = clock_now_ns() + (timeout_ms > 0 ? (uint64_t)timeout_ms * 1000000u : 0);
    bool done = false;
    atomic_fetch_add(&s->waiters, 1);
    for (;;) {
        uint32_t word = atomic_load(&s->word);
        done = ready(ctx);
        if (done)
            break;
        struct timespec left = {0};
        if (timeout_ms > 0) {
            uint64_t now = clock_now_ns();
            if (now >= end_ns)
                break;
            left.tv_sec = (time_t)((end_ns - now) / 1000000000u);
            left.tv_nsec = (long)((end_ns - now) % 1000000000u);
        }
        /* Returns at once when the word has changed; a signal or a timeout only means another look.
         */
        (void)syscall(SYS_futex, &s->word, FUTEX_WAIT_PRIVATE, word, timeout_ms > 0 ? &left : NULL,
                      NULL, 0);
    }
    atomic_fetch_sub(&s->waiters, 1);
    return done;
}
