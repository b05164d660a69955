/*
 * base/thread.h - thin names over pthreads, so that creation, naming and signal masks are in one
 * place. Threads made here block all signals: only the main thread handles them.
 */
#ifndef T9_BASE_THREAD_H
#define T9_BASE_THREAD_H

#include "base/err.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct thread {
    pthread_t id;
    bool started;
};

/* Blocks all signals of the calling thread but those that a fault of its own raises. Threads begin
 * with what their maker blocks: for around calls of libraries that make some; pthread_sigmask takes
 * *old back. */
void thread_block_signals(sigset_t *old);
/* `name` (max 15 bytes) shows in ps -L. */
t9_status thread_start(struct thread *t, const char *name, void (*fn)(void *), void *arg,
                       struct t9_err *err);
void thread_join(struct thread *t); /* no-op when not started */
int thread_cpu_count(void);         /* CPUs this process may use, >= 1 */

#endif
