/*
 * base/queue.h - the two hand-over structures between threads.
 *
 * ring:  bounded multi-producer, single-consumer ring of pointers, lock-free, with an optional
 *        eventfd that is written only when the consumer said that it sleeps (no system call on the
 *        hot path otherwise).
 * jobq:  bounded multi-producer, multi-consumer blocking queue (mutex and condition variable), for
 *        the prep pool. Never used by the engine thread.
 */
#ifndef T9_BASE_QUEUE_H
#define T9_BASE_QUEUE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring;
/* `cap` is rounded up to a power of two. */
t9_status ring_new(struct ring **out, size_t cap, struct t9_err *err);
void ring_free(struct ring *r);
/* Any thread. false when full. Wakes a sleeping consumer. */
bool ring_push(struct ring *r, void *item);
/* Consumer only. NULL when empty. */
void *ring_pop(struct ring *r);
/* Consumer only: sleeps until an item is there, ring_wake is called, or timeout_ms passed
 * (-1 = no limit). Returns true when an item may be there. */
bool ring_wait(struct ring *r, int timeout_ms);
/* Any thread: ends a ring_wait early. */
void ring_wake(struct ring *r);
size_t ring_count(const struct ring *r); /* approximate from other threads */

struct jobq;
t9_status jobq_new(struct jobq **out, size_t cap, struct t9_err *err);
void jobq_free(struct jobq *q);
bool jobq_push(struct jobq *q, void *item); /* false when full or closed */
void *jobq_pop(struct jobq *q);             /* blocks; NULL once closed and empty */
void jobq_close(struct jobq *q);

#endif
