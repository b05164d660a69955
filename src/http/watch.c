/*
 * http/watch.c - see watch.h. An epoll event carries slot and generation, so an event that was
 * under way while its slot was given to somebody else finds a wrong generation and is dropped.
 */
#include "http/watch.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STOP_EVENT UINT64_MAX

struct slot {
    void *item; /* NULL: free */
    int fd;
    uint32_t generation;
    int32_t next_free;
};

struct watch {
    void (*gone)(void *item);
    int epoll_fd, stop_fd;
    struct thread thread;
    pthread_mutex_t lock; /* all below */
    struct slot *slots;
    int32_t n_slots, first_free;
};

static void handle(struct watch *w, uint64_t id)
{
    uint32_t idx = (uint32_t)id, generation = (uint32_t)(id >> 32);
    pthread_mutex_lock(&w->lock);
    if (idx < (uint32_t)w->n_slots && w->slots[idx].item && w->slots[idx].generation == generation)
        w->gone(w->slots[idx].item);
    pthread_mutex_unlock(&w->lock);
}

static void run(void *arg)
{
    struct watch *w = arg;
    struct epoll_event events[64];
    for (;;) {
        int n = epoll_wait(w->epoll_fd, events, (int)T9_COUNT(events), -1);
        if (n < 0 && errno != EINTR) {
            char why[96];
            LOG_ERROR("http", "the watcher for vanished clients stopped: %s",
                      t9_errno_text(errno, why, sizeof why));
            return;
        }
        for (int i = 0; i < n; i++) {
            if (events[i].data.u64 == STOP_EVENT)
                return;
            handle(w, events[i].data.u64);
        }
    }
}

t9_status watch_new(struct watch **out, void (*gone)(void *item), struct t9_err *err)
{
    struct watch *w = mem_calloc(1, sizeof *w);
    *out = NULL;
    if (!w)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory");
    w->gone = gone;
    w->first_free = -1;
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->stop_fd = eventfd(0, EFD_CLOEXEC);
    (void)pthread_mutex_init(&w->lock, NULL);
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = STOP_EVENT};
    t9_status s = T9_STATUS_OK;
    if (w->epoll_fd < 0 || w->stop_fd < 0 ||
        epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->stop_fd, &ev) != 0)
        s = t9_fail_os(err, T9_STATUS_IO, errno, "epoll is not available");
    else
        s = thread_start(&w->thread, "t9-watch", run, w, err);
    if (s != T9_STATUS_OK) {
        watch_free(w);
        return s;
    }
    *out = w;
    return T9_STATUS_OK;
}

void watch_free(struct watch *w)
{
    if (!w)
        return;
    uint64_t one = 1;
    if (w->thread.started && write(w->stop_fd, &one, sizeof one) == (ssize_t)sizeof one)
        thread_join(&w->thread);
    if (w->epoll_fd >= 0)
        (void)close(w->epoll_fd);
    if (w->stop_fd >= 0)
        (void)close(w->stop_fd);
    (void)pthread_mutex_destroy(&w->lock);
    mem_free(w->slots);
    mem_free(w);
}

/* A free slot, made when there is none; -1 without memory. Lock held. */
static int32_t take_slot(struct watch *w)
{
    if (w->first_free < 0) {
        int32_t n = w->n_slots ? w->n_slots * 2 : 64;
        struct slot *slots = mem_realloc(w->slots, (size_t)n, sizeof *slots);
        if (!slots)
            return -1;
        for (int32_t i = n - 1; i >= w->n_slots; i--) {
            slots[i] = (struct slot){.fd = -1, .next_free = w->first_free};
            w->first_free = i;
        }
        w->slots = slots;
        w->n_slots = n;
    }
    int32_t idx = w->first_free;
    w->first_free = w->slots[idx].next_free;
    return idx;
}

/* Lock held. */
static void drop_slot(struct watch *w, int32_t idx)
{
    struct slot *s = &w->slots[idx];
    if (s->fd >= 0)
        (void)close(s->fd);
    s->fd = -1;
    s->item = NULL;
    s->generation++;
    s->next_free = w->first_free;
    w->first_free = idx;
}

int64_t watch_add(struct watch *w, int fd, void *item)
{
    int64_t id = -1;
    pthread_mutex_lock(&w->lock);
    int32_t idx = take_slot(w);
    if (idx >= 0) {
        struct slot *s = &w->slots[idx];
        /* The generation's top bit stays clear, so that ids are never negative nor STOP_EVENT. */
        s->generation &= 0x7fffffffu;
        s->item = item;
        s->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        id = (int64_t)((uint64_t)s->generation << 32 | (uint32_t)idx);
        struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = (uint64_t)id};
        if (s->fd < 0 || epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, s->fd, &ev) != 0) {
            drop_slot(w, idx);
            id = -1;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return id;
}

void watch_remove(struct watch *w, int64_t id)
{
    if (id < 0)
        return;
    pthread_mutex_lock(&w->lock);
    int32_t idx = (int32_t)(uint32_t)id;
    /* Taken out by hand: the library's own descriptor keeps the socket open. */
    (void)epoll_ctl(w->epoll_fd, EPOLL_CTL_DEL, w->slots[idx].fd, NULL);
    drop_slot(w, idx);
    pthread_mutex_unlock(&w->lock);
}
