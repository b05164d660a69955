/*
 * engine/signal.h - private to engine/: wakes threads that wait for the engine without a notify
 * function. Raising it costs two atomic operations while nobody waits, and no lock ever.
 */
#ifndef T9_ENGINE_SIGNAL_H
#define T9_ENGINE_SIGNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct signal_word {
    _Atomic uint32_t word;    /* changes whenever something may be new */
    _Atomic uint32_t waiters; /* threads inside signal_wait */
};

/* Any thread: something may be new. */
void signal_raise(struct signal_word *s);
/* Any thread: blocks until ready(ctx) is true or timeout_ms passed (-1 = none); returns the last
 * ready(ctx). Every change that makes it true must be followed by signal_raise. */
bool signal_wait(struct signal_word *s, bool (*ready)(void *ctx), void *ctx, int timeout_ms);

#endif
