/*
 * kv/ahead.h - private to kv/: memory behind the next pages before they are needed, taken by a
 * thread of its own, so that the engine thread does not pay for page faults while a pool grows.
 */
#ifndef T9_KV_AHEAD_H
#define T9_KV_AHEAD_H

#include "base/err.h"
#include "base/thread.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AHEAD_SLICE_BYTES = 1 << 20 }; /* taken at once; an order to stop is seen in between */

struct ahead {
    char *base;
    size_t size_bytes;  /* of the whole range */
    size_t most_bytes;  /* beyond what is used, at most */
    size_t asked_bytes; /* engine thread: `want` when the thread was woken last */
    bool has_sem;
    sem_t wake;
    struct thread thread;
    atomic_bool stop;
    _Atomic size_t used; /* [0, used) is in use: not the thread's business any more */
    _Atomic size_t want; /* [0, want) is to have memory */
    _Atomic size_t done; /* [0, done) has been given memory, by the thread or by use */
};

/* Starts the thread. The range stays reserved until ahead_deinit has returned. */
t9_status ahead_init(struct ahead *a, void *base, size_t size_bytes, struct t9_err *err);
void ahead_deinit(struct ahead *a); /* accepts a zeroed one */
/* The first used_bytes of the range are in use from now on, more than before, and no more than
 * room_bytes are taken ahead of them. Never blocks; wakes the thread once in many calls. */
void ahead_grow(struct ahead *a, size_t used_bytes, size_t room_bytes);
/* Bytes behind the first used_bytes that have been asked for since the range shrank last. */
size_t ahead_beyond(const struct ahead *a, size_t used_bytes);
/* Only the first used_bytes are in use. Returns up to where memory may lie behind the range: the
 * caller gives back what it wants to. */
size_t ahead_shrink(struct ahead *a, size_t used_bytes);

#endif
