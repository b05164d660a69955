/*
 * backend/cpu/pool.h - private to backend/: the CPU backend's worker threads.
 *
 * pool_run calls a function on every worker at once, the caller being worker 0, and returns when
 * all have come back. Workers wait by spinning for some ten microseconds and then asleep on a
 * futex: an idle pool costs no CPU, and a busy one makes no system call. pool_run may be called by
 * one thread at a time.
 */
#ifndef T9_BACKEND_CPU_POOL_H
#define T9_BACKEND_CPU_POOL_H

#include "base/err.h"

#include <stdint.h>

struct pool;

/* n_threads >= 1, the caller included. `user` is what pool_user gives back. */
t9_status pool_new(struct pool **out, int n_threads, const void *user, struct t9_err *err);
const void *pool_user(const struct pool *p);
void pool_free(struct pool *p); /* accepts NULL */
int pool_threads(const struct pool *p);

void pool_run(struct pool *p, void (*fn)(void *ctx, int ith), void *ctx);

/* Inside fn: returns when every worker has called it; also resets pool_next. */
void pool_barrier(struct pool *p);
/* Inside fn, between two barriers: 0, 1, 2, ... each value to one worker only: dynamic sharing of
 * work, so that a worker that the OS has put aside does not hold up the others. Call it until the
 * value is beyond the work; a phase that uses it must end with a barrier. */
uint32_t pool_next(struct pool *p);

#endif
