/*
 * protocol/pull.c - see pull.h.
 */
#include "protocol/pull.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define TELL_EVERY_NS ((uint64_t)200000000)

struct pull {
    struct pull_hook *hook;
    void (*wake)(void *ctx, bool last);
    void *ctx;
    struct thread thread;
    char name[PULL_NAME_BYTES_MAX];
    atomic_bool stop;
    uint64_t told_ns; /* the thread's */

    pthread_mutex_t lock; /* the rest but for `shown` */
    struct pull_progress now;
    char file[PULL_FILE_BYTES_MAX];
    bool moved, over;
    struct t9_err err;
    char shown[PULL_FILE_BYTES_MAX]; /* the reader's */
};

/* Some figures a second are enough for people. */
static bool on_progress(void *to, const struct pull_progress *p)
{
    struct pull *pull = to;
    uint64_t now_ns = clock_now_ns();
    bool tell = false;
    pthread_mutex_lock(&pull->lock);
    if (pull->told_ns == 0 || now_ns - pull->told_ns >= TELL_EVERY_NS ||
        p->done_bytes == p->total_bytes) {
        tell = !pull->moved;
        pull->moved = true;
        pull->told_ns = now_ns;
        pull->now = *p;
        (void)snprintf(pull->file, sizeof pull->file, "%s", p->file ? p->file : "");
    }
    pthread_mutex_unlock(&pull->lock);
    if (tell)
        pull->wake(pull->ctx, false);
    return !atomic_load(&pull->stop);
}

static void run(void *arg)
{
    struct pull *p = arg;
    struct t9_err err = {0};
    t9_status s = p->hook->get(p->hook->ctx, p->name, on_progress, p, &err);
    pthread_mutex_lock(&p->lock);
    p->err = err;
    p->err.code = s;
    p->over = true;
    pthread_mutex_unlock(&p->lock);
    atomic_store(&p->hook->busy, false);
    p->wake(p->ctx, true);
}

t9_status pull_start(struct pull **out, struct pull_hook *hook, const char *name,
                     void (*wake)(void *ctx, bool last), void *ctx, struct t9_err *err)
{
    *out = NULL;
    struct pull *p = mem_calloc(1, sizeof *p);
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a download");
    if (atomic_exchange(&hook->busy, true)) {
        mem_free(p);
        return t9_fail(err, T9_STATUS_BUSY,
                       "another model is being fetched; try again when it is there");
    }
    p->hook = hook;
    p->wake = wake;
    p->ctx = ctx;
    (void)snprintf(p->name, sizeof p->name, "%s", name);
    (void)pthread_mutex_init(&p->lock, NULL);
    *out = p;
    t9_status s = thread_start(&p->thread, "t9-pull", run, p, err);
    if (s != T9_STATUS_OK) {
        atomic_store(&hook->busy, false);
        pull_free(p);
        *out = NULL;
    }
    return s;
}

void pull_stop(struct pull *p)
{
    atomic_store(&p->stop, true);
}

void pull_free(struct pull *p)
{
    if (!p)
        return;
    thread_join(&p->thread);
    (void)pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

pull_state pull_next(struct pull *p, struct pull_progress *out, struct t9_err *err)
{
    pull_state state = PULL_SAME;
    pthread_mutex_lock(&p->lock);
    if (p->moved) {
        state = PULL_MOVED;
        p->moved = false;
        memcpy(p->shown, p->file, sizeof p->shown);
        *out = p->now;
        out->file = p->shown;
    } else if (p->over) {
        state = PULL_OVER;
        *err = p->err;
    }
    pthread_mutex_unlock(&p->lock);
    return state;
}
