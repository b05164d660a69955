/*
 * http/exchange.c - the life of an exchange across threads: holding and dropping, suspending and
 * waking, the prep pool's work, and the notifier.
 *
 * Suspending is where races live: a wake-up may come between "nothing to read" and the suspension.
 * `lock` covers both, and a wake-up that finds no suspended connection leaves a mark (`wake`) that
 * the next exchange_sleep finds.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/internal.h"

#include <stdio.h>
#include <string.h>

struct exchange *exchange_new(struct http_server *s, struct MHD_Connection *c)
{
    struct exchange *x = mem_calloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->server = s;
    x->connection = c;
    x->watch_id = -1;
    x->caller.received_ns = clock_now_ns();
    atomic_store(&x->last_write_ns, x->caller.received_ns);
    atomic_store(&x->refs, 1);
    (void)pthread_mutex_init(&x->lock, NULL);
    buf_init(&x->body, (size_t)s->p.body_bytes_max);
    buf_init(&x->out, EXCHANGE_OUT_BYTES_MAX);
    atomic_fetch_add(&s->n_alive, 1);
    return x;
}

void exchange_hold(struct exchange *x)
{
    atomic_fetch_add(&x->refs, 1);
}

void exchange_free_body(struct exchange *x)
{
    atomic_fetch_sub(&x->server->bodies_bytes, x->body.n);
    buf_deinit(&x->body);
    memset(&x->body, 0, sizeof x->body);
}

void exchange_drop(struct exchange *x)
{
    if (atomic_fetch_sub(&x->refs, 1) != 1)
        return;
    struct http_server *s = x->server;
    chat_run_free(x->run);
    exchange_free_body(x);
    buf_deinit(&x->out);
    (void)pthread_mutex_destroy(&x->lock);
    mem_free(x);
    atomic_fetch_sub(&s->n_alive, 1);
}

bool exchange_sleep(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool sleep = !x->wake && !atomic_load(&x->server->closing) && x->connection;
    x->wake = false;
    if (sleep) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&x->lock);
    return sleep;
}

void exchange_wake(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    if (x->suspended && x->connection) {
        x->suspended = false;
        MHD_resume_connection(x->connection);
    } else {
        x->wake = true;
    }
    pthread_mutex_unlock(&x->lock);
}

void exchange_gone(void *exchange)
{
    struct exchange *x = exchange;
    atomic_store(&x->gone, true);
    /* A start that is under way looks at `gone` once more after it stored the phase. */
    if (atomic_load(&x->phase) == EXCHANGE_PHASE_STARTED)
        chat_run_cancel(x->run);
    exchange_wake(x);
}

/* ---- list ---- */

/* Returns how many requests of the same client are there already. */
static int32_t enlist(struct exchange *x)
{
    struct http_server *s = x->server;
    int32_t n_same = 0;
    pthread_mutex_lock(&s->list_lock);
    if (s->p.max_open_per_client > 0 && x->caller.client_key)
        for (const struct exchange *o = s->list; o; o = o->next)
            n_same += o->caller.client_key == x->caller.client_key;
    x->next = s->list;
    if (s->list)
        s->list->prev = x;
    s->list = x;
    x->listed = true;
    atomic_fetch_add(&s->n_listed, 1);
    pthread_mutex_unlock(&s->list_lock);
    ring_wake(s->ring); /* the notifier looks at the clock while the list is not empty */
    return n_same;
}

void exchange_unlist(struct exchange *x)
{
    struct http_server *s = x->server;
    pthread_mutex_lock(&s->list_lock);
    if (x->listed) {
        if (x->prev)
            x->prev->next = x->next;
        else
            s->list = x->next;
        if (x->next)
            x->next->prev = x->prev;
        x->listed = false;
        atomic_fetch_sub(&s->n_listed, 1);
    }
    pthread_mutex_unlock(&s->list_lock);
}

/* ---- prep pool ---- */

static void fail(struct exchange *x, t9_status status, const char *code, const char *msg)
{
    (void)chat_fail(&x->error, status, NULL, code, "%s", msg);
    atomic_store(&x->phase, EXCHANGE_PHASE_FAILED);
}

/* Engine thread: see struct chat_run_hooks. The ring has room for every exchange alive. */
static void on_engine(void *ctx)
{
    struct exchange *x = ctx;
    struct http_server *s = x->server;
    /* Once pushed, the exchange may be freed; and the server waits for n_posting before it goes. */
    atomic_fetch_add(&s->n_posting, 1);
    (void)ring_push(s->ring, x);
    atomic_fetch_sub(&s->n_posting, 1);
}

void exchange_start(struct exchange *x)
{
    struct http_server *s = x->server;
    struct t9_err err = {0};
    struct chat_run_hooks hooks = {on_engine, x, &x->gone};
    if (atomic_load(&s->stopping)) { /* not in the list: whoever stops waits for that to be empty */
        fail(x, T9_STATUS_BUSY, "server_stopping", "the server is stopping");
        return;
    }
    t9_status st = chat_run_new(&x->run, s->prep, x->route->adapter, hooks, &x->caller, &err);
    atomic_store(&x->phase, EXCHANGE_PHASE_PREP);
    int32_t n_same = enlist(x);
    if (st != T9_STATUS_OK) {
        fail(x, st, NULL, err.msg);
        return;
    }
    if (s->p.max_open_per_client > 0 && n_same >= s->p.max_open_per_client) {
        char msg[128];
        (void)snprintf(msg, sizeof msg,
                       "%d requests of this client are under way, and no more are taken", n_same);
        (void)chat_fail_limit(&x->error, msg);
        atomic_fetch_add(&s->n.limited, 1);
        atomic_store(&x->phase, EXCHANGE_PHASE_FAILED);
        return;
    }
    exchange_hold(x);
    atomic_fetch_add(&s->n.prep_waiting, 1);
    if (!jobq_push(s->jobs, x)) {
        atomic_fetch_sub(&s->n.prep_waiting, 1);
        fail(x, T9_STATUS_BUSY, "server_busy",
             "too many requests wait to be read; try again later");
        exchange_drop(x);
    }
}

static void prepare(struct exchange *x)
{
    exchange_hold(x); /* the engine's share: it may post before start returns */
    t9_status st = chat_run_start(x->run, buf_str(&x->body), &x->error);
    exchange_free_body(x);
    atomic_store(&x->phase, st == T9_STATUS_OK ? EXCHANGE_PHASE_STARTED : EXCHANGE_PHASE_FAILED);
    if (st != T9_STATUS_OK)
        exchange_drop(x);
    else if (atomic_load(&x->gone))
        chat_run_cancel(x->run);
    exchange_wake(x);
}

void prep_thread(void *server)
{
    struct http_server *s = server;
    struct exchange *x;
    while ((x = jobq_pop(s->jobs)) != NULL) {
        atomic_fetch_sub(&s->n.prep_waiting, 1);
        prepare(x);
        exchange_drop(x);
    }
}

/* ---- notifier ---- */

static void on_posted(struct exchange *x)
{
    bool let_go = chat_run_notified(x->run);
    /* A whole reply needs no look at every token. */
    if (chat_run_is_stream(x->run) || chat_run_wants_tokens(x->run) || chat_run_is_over(x->run))
        exchange_wake(x);
    if (let_go)
        exchange_drop(x);
}

/* A stream whose status is not known yet: in preparation, or in the queue with a time limit. */
static bool awaits_status(const struct exchange *x)
{
    int phase = atomic_load(&x->phase);
    return (phase == EXCHANGE_PHASE_PREP && x->run && chat_run_is_stream(x->run)) ||
           (phase == EXCHANGE_PHASE_STARTED && chat_run_is_stream(x->run) &&
            chat_run_in_timed_queue(x->run));
}

/* What is due by the clock: comments on silent streams, headers of streams that wait for prep. */
static void tick(struct http_server *s)
{
    uint64_t now = clock_now_ns();
    uint64_t silent_ns = (uint64_t)s->p.keepalive_ms * 1000000;
    uint64_t header_ns = (uint64_t)s->p.header_wait_ms * 1000000;
    pthread_mutex_lock(&s->list_lock);
    for (struct exchange *x = s->list; x; x = x->next) {
        bool wake = false;
        uint64_t last = atomic_load(&x->last_write_ns);
        if (atomic_load(&x->streaming)) {
            if (now > last && now - last >= silent_ns)
                wake = !atomic_exchange(&x->comment_due, true);
        } else if (awaits_status(x) && now - x->caller.received_ns >= header_ns) {
            wake = !atomic_exchange(&x->headers_due, true);
        }
        if (wake)
            exchange_wake(x);
    }
    pthread_mutex_unlock(&s->list_lock);
}

/* Looks for late requests when it is time to. Returns ms until the next look, or -1. */
static int64_t look_at_conns(struct http_server *s, uint64_t *next_ns)
{
    uint64_t now = clock_now_ns();
    bool asked = atomic_exchange(&s->look_now, false);
    if (!asked && !atomic_load(&s->watches_conns))
        return -1;
    if (asked || now >= *next_ns) {
        /* Whoever begins a request from here on asks for the next look. */
        atomic_store(&s->watches_conns, false);
        int64_t ms = conns_tick(&s->conns, now);
        *next_ns = now + (uint64_t)(ms < 0 ? 0 : ms) * 1000000;
        if (ms >= 0)
            atomic_store(&s->watches_conns, true);
        return ms;
    }
    return (int64_t)((*next_ns - now) / 1000000) + 1;
}

void notifier_look(struct http_server *s)
{
    atomic_store(&s->look_now, true);
    ring_wake(s->ring);
}

void notifier_thread(void *server)
{
    struct http_server *s = server;
    uint32_t step_ms =
        s->p.keepalive_ms < s->p.header_wait_ms ? s->p.keepalive_ms : s->p.header_wait_ms;
    step_ms = step_ms / 8 < 1 ? 1 : step_ms / 8 > 250 ? 250 : step_ms / 8;
    uint64_t next_tick = clock_now_ns(), next_look = 0;
    while (!atomic_load(&s->notifier_stop)) {
        int64_t wait_ms = look_at_conns(s, &next_look);
        if (atomic_load(&s->n_listed) > 0 && (wait_ms < 0 || wait_ms > step_ms))
            wait_ms = step_ms;
        (void)ring_wait(s->ring, (int)wait_ms);
        struct exchange *x;
        while ((x = ring_pop(s->ring)) != NULL)
            on_posted(x);
        if (atomic_load(&s->n_listed) > 0 && clock_now_ns() >= next_tick) {
            next_tick = clock_now_ns() + (uint64_t)step_ms * 1000000;
            tick(s);
        }
    }
}
