/*
 * http/server.c - starts and stops: threads, the HTTP library, the end of what is under way. See
 * server.h for the threads.
 */
#include "http/server.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "http/internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static void on_library_log(void *ctx, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
static void on_library_log(void *ctx, const char *fmt, va_list ap)
{
    char line[256];
    (void)ctx;
    (void)vsnprintf(line, sizeof line, fmt, ap);
    line[strcspn(line, "\r\n")] = 0;
    LOG_DEBUG("http", "%s", line);
}

/* ---- start ---- */

void http_params_init(struct http_params *p)
{
    memset(p, 0, sizeof *p);
    p->host = "127.0.0.1";
    p->port = 11435;
    p->n_prep = 2;
    p->n_io = 2;
    p->connection_limit = 4096;
    p->connections_per_address = 256;
    p->request_timeout_ms = 30000;
    p->body_bytes_per_s = 16384;
    p->idle_timeout_s = 60;
    p->body_bytes_max = (uint64_t)64 << 20;
    p->bodies_bytes_max = (uint64_t)512 << 20;
    p->keepalive_ms = 5000;
    p->header_wait_ms = 10000;
}

static t9_status check_params(const struct http_params *p, struct t9_err *err)
{
    if (p->n_prep < 1 || p->n_prep > HTTP_PREP_THREADS_MAX || p->n_io < 1 || p->n_io > 64)
        return t9_fail(err, T9_STATUS_INVALID, "1 to %d prep threads and 1 to 64 HTTP threads",
                       HTTP_PREP_THREADS_MAX);
    if (p->connection_limit < p->n_io || p->connection_limit > 100000)
        return t9_fail(err, T9_STATUS_INVALID, "the connection limit must be within %d and 100000",
                       p->n_io);
    if (p->keepalive_ms < 1 || p->header_wait_ms < 1 || p->request_timeout_ms < 1)
        return t9_fail(err, T9_STATUS_INVALID,
                       "the keep-alive, header and request times must be positive");
    if (p->requests_per_minute < 0 || p->connections_per_address < 0)
        return t9_fail(err, T9_STATUS_INVALID, "a limit of requests or connections is negative");
    T9_TRY(guard_check_params(p, err));
    return auth_check_params(p, err);
}

t9_status http_params_check(const struct http_params *p, struct t9_err *err)
{
    struct listener l;
    struct buf cert = {0}, key = {0};
    T9_TRY(check_params(p, err));
    t9_status st = tls_load(p, &cert, &key, err);
    tls_unload(&cert, &key);
    if (st != T9_STATUS_OK)
        return st;
    T9_TRY(listen_open(p, false, &l, err));
    listen_close(p, &l);
    return T9_STATUS_OK;
}

static t9_status bind_server(struct http_server *s, struct t9_err *err)
{
    T9_TRY(tls_load(&s->p, &s->tls_cert, &s->tls_key, err));
    T9_TRY(listen_open(&s->p, true, &s->listener, err));
    s->port = s->listener.port;
    s->loopback = s->listener.loopback;
    return T9_STATUS_OK;
}

static t9_status start_threads(struct http_server *s, struct t9_err *err)
{
    T9_TRY(watch_new(&s->watch, exchange_gone, err));
    T9_TRY(ring_new(&s->ring, (size_t)s->p.connection_limit * 4 + 16, err));
    T9_TRY(jobq_new(&s->jobs, (size_t)s->p.connection_limit, err));
    T9_TRY(thread_start(&s->notifier, "t9-notify", notifier_thread, s, err));
    for (int32_t i = 0; i < s->p.n_prep; i++)
        T9_TRY(thread_start(&s->prep_threads[i], "t9-prep", prep_thread, s, err));
    return T9_STATUS_OK;
}

/* Room for a head, and for what is sent. The library touches nearly all of it, so each silent
 * stream costs this much. */
#define CONNECTION_BYTES ((size_t)16384)

static t9_status start_library(struct http_server *s, struct t9_err *err)
{
    bool tls = s->tls_cert.n > 0;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     (tls ? MHD_USE_TLS : 0u);
    struct MHD_OptionItem tls_options[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, s->tls_cert.p},
                                           {MHD_OPTION_HTTPS_MEM_KEY, 0, s->tls_key.p},
                                           {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    /* A signal that one of its threads took would not wake the one that waits for it. */
    sigset_t old;
    thread_block_signals(&old);
    /* The logger first: what the others have to say goes there. Strictness is ours, with answers of
     * ours: see head_check. */
    s->mhd = MHD_start_daemon(
        flags, s->port, NULL, NULL, request_on_data, s, MHD_OPTION_EXTERNAL_LOGGER, on_library_log,
        NULL, MHD_OPTION_LISTEN_SOCKET, s->listener.fd, MHD_OPTION_NOTIFY_COMPLETED,
        request_on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, request_on_connection, s,
        MHD_OPTION_URI_LOG_CALLBACK, request_on_line, s, MHD_OPTION_UNESCAPE_CALLBACK,
        request_unescape, s, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)s->p.n_io,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)(s->p.connection_limit + CONNS_GOING_MAX),
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->p.idle_timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 0,
        MHD_OPTION_ARRAY, tls ? tls_options : none, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!s->mhd && tls)
        return t9_fail(err, T9_STATUS_INVALID,
                       "TLS did not start: are %s and %s a certificate and its key?", s->p.tls_cert,
                       s->p.tls_key);
    if (!s->mhd)
        return t9_fail(err, T9_STATUS_IO, "the HTTP library did not start on port %u", s->port);
    return T9_STATUS_OK;
}

static void init_limits(struct http_server *s)
{
    struct conns_limits l = {.total = s->p.connection_limit,
                             .per_address = s->p.connections_per_address,
                             .request_ns = (uint64_t)s->p.request_timeout_ms * 1000000,
                             .idle_ns = (uint64_t)s->p.idle_timeout_s * 1000000000,
                             .body_bytes_per_s = s->p.body_bytes_per_s,
                             .can_speak = !s->p.tls_cert};
    conns_init(&s->conns, &l);
}

t9_status http_server_new(struct http_server **out, const struct http_params *p, struct t9_err *err)
{
    *out = NULL;
    T9_TRY(check_params(p, err));
    struct http_server *s = mem_calloc(1, sizeof *s);
    if (!s)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory");
    s->p = *p;
    s->listener.fd = -1;
    s->started_s = clock_unix_s();
    (void)pthread_mutex_init(&s->list_lock, NULL);
    if (getrandom(&s->id_base, sizeof s->id_base, GRND_NONBLOCK) < 0)
        s->id_base = clock_now_ns();
    listen_fit_files(&s->p.connection_limit);
    init_limits(s);
    t9_status st = rate_init(&s->rate, p->requests_per_minute, s->id_base, err);
    if (st == T9_STATUS_OK)
        st = bind_server(s, err);
    if (st == T9_STATUS_OK)
        st = prep_new(&s->prep, &p->prep, err);
    if (st == T9_STATUS_OK)
        st = start_threads(s, err);
    if (st == T9_STATUS_OK)
        st = start_library(s, err);
    if (st != T9_STATUS_OK) {
        http_server_stop(s, 0);
        return st;
    }
    *out = s;
    return T9_STATUS_OK;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

/* ---- stop ---- */

static bool wait_zero(atomic_int *n, uint32_t timeout_ms)
{
    uint64_t until = clock_now_ns() + (uint64_t)timeout_ms * 1000000;
    while (atomic_load(n) > 0) {
        if (clock_now_ns() >= until)
            return false;
        clock_sleep_ms(5);
    }
    return true;
}

/* Each run is cancelled; with `vanish`, connections are given up too. */
static void end_all(struct http_server *s, bool vanish)
{
    pthread_mutex_lock(&s->list_lock);
    for (struct exchange *x = s->list; x; x = x->next) {
        if (vanish || atomic_load(&x->phase) == EXCHANGE_PHASE_PREP)
            exchange_gone(x);
        else if (atomic_load(&x->phase) == EXCHANGE_PHASE_STARTED)
            chat_run_cancel(x->run);
        exchange_wake(x);
    }
    pthread_mutex_unlock(&s->list_lock);
}

enum { LAST_WORDS_MS = 2000 };

/* Requests that are still arriving: a moment is left to read what they are told. */
static void refuse_arriving(struct http_server *s)
{
    static const struct conns_reply r = {"503 Service Unavailable", "Retry-After: 1\r\n",
                                         "server_stopping", "the server is stopping", NULL};
    uint64_t until = clock_now_ns() + (uint64_t)LAST_WORDS_MS * 1000000;
    while (conns_refuse_begun(&s->conns, &r, clock_now_ns()) > 0 && clock_now_ns() < until)
        clock_sleep_ms(5);
}

static void stop_connections(struct http_server *s, uint32_t timeout_ms)
{
    if (!wait_zero(&s->n_listed, timeout_ms)) {
        /* Streams get an error event, so their clients know that the answer is not complete. */
        end_all(s, false);
        (void)wait_zero(&s->n_listed, LAST_WORDS_MS);
    }
    refuse_arriving(s);
    /* Until here who connected was told to come back later, which is kinder than a closed door. */
    s->listener.fd = MHD_quiesce_daemon(s->mhd);
    atomic_store(&s->closing, true);
    end_all(s, true);
    MHD_stop_daemon(s->mhd);
    /* Only now: until they end, the library's threads still name it. */
    listen_close(&s->p, &s->listener);
}

void http_server_stop(struct http_server *s, uint32_t timeout_ms)
{
    enum { ENGINE_MS = 10000 };
    if (!s)
        return;
    atomic_store(&s->stop_ns, clock_now_ns() + (uint64_t)timeout_ms * 1000000);
    atomic_store(&s->stopping, true);
    if (s->mhd)
        stop_connections(s, timeout_ms);
    else
        listen_close(&s->p, &s->listener);
    if (s->jobs)
        jobq_close(s->jobs);
    for (size_t i = 0; i < T9_COUNT(s->prep_threads); i++)
        thread_join(&s->prep_threads[i]);
    if (!wait_zero(&s->n_alive, ENGINE_MS)) {
        /* Freeing what the engine still holds would be worse than keeping it. */
        LOG_ERROR("http", "the engine did not let go of %d requests", atomic_load(&s->n_alive));
        return;
    }
    (void)wait_zero(&s->n_posting, ENGINE_MS);
    atomic_store(&s->notifier_stop, true);
    if (s->ring)
        ring_wake(s->ring);
    thread_join(&s->notifier);
    watch_free(s->watch);
    ring_free(s->ring);
    jobq_free(s->jobs);
    prep_free(s->prep);
    tls_unload(&s->tls_cert, &s->tls_key);
    rate_deinit(&s->rate);
    conns_deinit(&s->conns);
    (void)pthread_mutex_destroy(&s->list_lock);
    mem_free(s);
}
