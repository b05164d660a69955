/*
 * http/server.c - binds, routes, receives bodies, starts and stops. See server.h for the threads.
 *
 * The library calls on_request once with the head, then for every piece of the body, then once
 * more; replies are sent in the last call only, so a connection can be kept alive. A body over the
 * limit that is announced is refused at once (and the connection closed); one that turns out to be
 * too large is received and thrown away up to another limit's worth, then refused.
 */
#include "http/server.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "http/internal.h"
#include "protocol/openai_chat.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- routes ---- */

static enum MHD_Result get_root(struct exchange *x, const char *url)
{
    (void)url;
    return reply_bytes(
        x, MHD_HTTP_OK, "text/plain; charset=utf-8",
        STR("tempo9 is running.\n\n"
            "POST /v1/chat/completions   chat, streamed or not (OpenAI's form)\n"
            "GET  /v1/models             the model served here\n"
            "GET  /v1/capabilities       every request field and what is done with it\n"
            "GET  /health                whether requests are taken\n"
            "GET  /v1/state              what the server is doing now\n"
            "GET  /metrics               counters for Prometheus\n"));
}

static enum MHD_Result get_health(struct exchange *x, const char *url)
{
    bool stopping = atomic_load(&x->server->stopping);
    (void)url;
    return reply_bytes(x, stopping ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK, "application/json",
                       stopping ? STR("{\"status\":\"stopping\"}") : STR("{\"status\":\"ok\"}"));
}

static enum MHD_Result send_buf(struct exchange *x, const char *type, struct buf *b)
{
    enum MHD_Result ok = b->failed ? MHD_NO : reply_bytes(x, MHD_HTTP_OK, type, buf_str(b));
    buf_deinit(b);
    return ok;
}

static enum MHD_Result get_metrics(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    metrics_write(x->server, &b);
    return send_buf(x, "text/plain; version=0.0.4; charset=utf-8", &b);
}

static enum MHD_Result get_state(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    state_write(x->server, &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result get_capabilities(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    capabilities_write(x->server->prep, &x->server->p.about, &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result get_models(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    models_write_list(x->server->prep, x->server->started_s, &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result get_model(struct exchange *x, const char *url)
{
    struct buf b;
    struct chat_error e = {0};
    str id = str_from(url + strlen(x->route->path));
    buf_init(&b, 1 << 20);
    if (models_write_one(x->server->prep, id, x->server->started_s, &b))
        return send_buf(x, "application/json", &b);
    buf_deinit(&b);
    (void)chat_fail(&e, T9_STATUS_NOT_FOUND, "model", "model_not_found",
                    "there is no model \"%.80s\" here; /v1/models lists what there is", id.p);
    return reply_error(x, &e);
}

static const struct route routes[] = {
    {.path = "/v1/chat/completions", .methods = ROUTE_POST, .adapter = &openai_chat_adapter},
    {.path = "/v1/models", .methods = ROUTE_GET, .get = get_models},
    {.path = "/v1/models/", .methods = ROUTE_GET, .is_prefix = true, .get = get_model},
    {.path = "/v1/capabilities", .methods = ROUTE_GET, .get = get_capabilities},
    {.path = "/v1/state", .methods = ROUTE_GET, .no_store = true, .get = get_state},
    {.path = "/metrics", .methods = ROUTE_GET, .no_store = true, .get = get_metrics},
    {.path = "/health",
     .methods = ROUTE_GET,
     .is_public = true,
     .no_store = true,
     .get = get_health},
    {.path = "/", .methods = ROUTE_GET, .is_public = true, .get = get_root},
};

static const struct route *find_route(const char *url)
{
    for (size_t i = 0; i < T9_COUNT(routes); i++) {
        size_t n = strlen(routes[i].path);
        if (routes[i].is_prefix ? strncmp(url, routes[i].path, n) == 0 && url[n]
                                : strcmp(url, routes[i].path) == 0)
            return &routes[i];
    }
    return NULL;
}

static const char *allow_of(const struct route *r)
{
    return r->methods == ROUTE_POST ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

static bool allows(const struct route *r, const char *method)
{
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        return r->methods & ROUTE_GET;
    return strcmp(method, "POST") == 0 && (r->methods & ROUTE_POST);
}

/* ---- requests ---- */

/* The client's id when it is harmless, else one of ours. */
static void choose_id(struct exchange *x)
{
    static const char ok[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    const char *given = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "X-Request-Id");
    size_t n = given ? strspn(given, ok) : 0;
    if (n > 0 && n <= 64 && given[n] == 0)
        (void)snprintf(x->request_id, sizeof x->request_id, "%s", given);
    else
        (void)snprintf(x->request_id, sizeof x->request_id, "req-%08llx%08llx",
                       (unsigned long long)(x->server->id_base & 0xffffffffu),
                       (unsigned long long)atomic_fetch_add(&x->server->id_next, 1));
}

/* Paths come from strangers and go to a terminal. */
static void show_path(struct exchange *x, const char *url)
{
    size_t n = 0;
    for (; url[n] && n + 1 < sizeof x->shown_path; n++)
        x->shown_path[n] = (char)(url[n] > ' ' && url[n] < 127 ? url[n] : '?');
    x->shown_path[n] = 0;
}

static enum MHD_Result refuse_body(struct exchange *x)
{
    struct chat_error e = {0};
    if (x->over_total)
        (void)chat_fail(&e, T9_STATUS_BUSY, NULL, "server_busy",
                        "too many large requests are being received; try again later");
    else
        (void)chat_fail(&e, T9_STATUS_TOO_LARGE, NULL, "request_too_large",
                        "the body is larger than the limit of %llu bytes",
                        (unsigned long long)x->server->p.body_bytes_max);
    return reply_error(x, &e);
}

static enum MHD_Result begin_request(struct http_server *s, struct MHD_Connection *c,
                                     const char *url, const char *method, void **ctx)
{
    /* Exchanges that wait for the engine to let go outlive their connections; this bounds them, and
     * with them what can be in the ring. */
    if (atomic_load(&s->n_alive) >= 2 * s->p.connection_limit)
        return MHD_NO;
    struct exchange *x = exchange_new(s, c);
    if (!x)
        return MHD_NO;
    *ctx = x;
    x->route = find_route(url);
    show_path(x, url);
    (void)snprintf(x->method, sizeof x->method, "%s", method);
    choose_id(x);
    const char *length =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    uint64_t n = 0;
    if (length && num_parse_u64(str_from(length), &n) && n > s->p.body_bytes_max)
        return refuse_body(x);
    return MHD_YES;
}

/* Thrown away of a body that is too large, beside the limit, before the connection is given up. */
#define DISCARD_BYTES ((uint64_t)1 << 20)

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t n)
{
    struct http_server *s = x->server;
    atomic_fetch_add(&s->n.bytes_in, n);
    bool wanted = x->route && x->route->adapter && !x->over_limit && !x->over_total;
    if (wanted && x->body.n + n > s->p.body_bytes_max)
        x->over_limit = true;
    else if (wanted && atomic_load(&s->bodies_bytes) + n > s->p.bodies_bytes_max)
        x->over_total = true;
    else if (wanted) {
        size_t before = x->body.n;
        buf_append(&x->body, data, n);
        atomic_fetch_add(&s->bodies_bytes, x->body.n - before);
        return x->body.failed ? MHD_NO : MHD_YES;
    }
    if (x->body.n)
        exchange_free_body(x);
    x->n_discarded += n;
    return x->n_discarded > s->p.body_bytes_max + DISCARD_BYTES ? MHD_NO : MHD_YES;
}

static enum MHD_Result not_allowed(struct exchange *x)
{
    struct chat_error e = {0};
    struct buf b;
    (void)chat_fail(&e, T9_STATUS_INVALID, NULL, "method_not_allowed",
                    "%s is not a method of this path; allowed: %s", x->method, allow_of(x->route));
    buf_init(&b, 4096);
    openai_write_error(&e, &b);
    struct MHD_Response *r = MHD_create_response_from_buffer(b.n, b.p, MHD_RESPMEM_MUST_COPY);
    buf_deinit(&b);
    if (!r)
        return MHD_NO;
    (void)MHD_add_response_header(r, "Content-Type", "application/json");
    (void)MHD_add_response_header(r, "Allow", allow_of(x->route));
    (void)MHD_add_response_header(r, "X-Request-Id", x->request_id);
    x->status = MHD_HTTP_METHOD_NOT_ALLOWED;
    x->completed_well = true;
    enum MHD_Result ok = MHD_queue_response(x->connection, x->status, r);
    MHD_destroy_response(r);
    return ok;
}

static void watch_client(struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info)
        x->watch_id = watch_add(x->server->watch, info->connect_fd, x);
}

/* The body is complete: answers, or starts what will. */
static enum MHD_Result end_request(struct exchange *x, const char *url)
{
    struct chat_error e = {0};
    t9_status s = guard_check(x->server, x->connection, !x->route || x->route->is_public, &e);
    bool preflight = strcmp(x->method, "OPTIONS") == 0;
    if (s == T9_STATUS_CANCELLED && !preflight) {
        e.err.code = T9_STATUS_INVALID;
        return reply_error_as(x, MHD_HTTP_UNAUTHORIZED, &e);
    }
    if (s == T9_STATUS_FORBIDDEN)
        return reply_error(x, &e);
    if (!x->route) {
        (void)chat_fail(&e, T9_STATUS_NOT_FOUND, NULL, "unknown_path",
                        "there is no %s %s here; / lists what there is", x->method, x->shown_path);
        return reply_error(x, &e);
    }
    if (preflight)
        return reply_options(x, allow_of(x->route));
    if (!allows(x->route, x->method))
        return not_allowed(x);
    if (x->over_limit || x->over_total)
        return refuse_body(x);
    if (!x->route->adapter)
        return x->route->get(x, url);
    if (guard_caller(x, &e) != T9_STATUS_OK)
        return reply_error(x, &e);
    watch_client(x);
    return reply_chat(x);
}

static enum MHD_Result on_request(void *server, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n_data, void **ctx)
{
    struct exchange *x = *ctx;
    (void)version;
    if (!x)
        return begin_request(server, c, url, method, ctx);
    if (*n_data) {
        enum MHD_Result ok = take_body(x, data, *n_data);
        *n_data = 0;
        return ok;
    }
    return atomic_load(&x->phase) == EXCHANGE_PHASE_BODY ? end_request(x, url) : reply_chat(x);
}

static void write_access_log(const struct exchange *x)
{
    double total_ms = (double)(clock_now_ns() - x->caller.received_ns) / 1e6;
    if (!x->run || atomic_load(&x->phase) != EXCHANGE_PHASE_STARTED) {
        LOG_INFO("http", "%s %s %u %.1f ms id=%s", x->method, x->shown_path, x->status, total_ms,
                 x->request_id);
        return;
    }
    struct chat_run_times t = chat_run_times(x->run);
    LOG_INFO("http",
             "%s %s %u %.1f ms id=%s prompt=%d cached=%d completion=%d finish=%s queue=%.1f ms "
             "prefix=%.1f ms prefill=%.1f ms decode=%.1f ms preempted=%d/%.1f ms%s",
             x->method, x->shown_path, x->status, total_ms, x->request_id, t.n_prompt, t.n_cached,
             t.n_completion, t.finish, t.timings.queue_ms, t.timings.prefix_wait_ms,
             t.timings.prefill_ms, t.timings.decode_ms, t.timings.n_preempted,
             t.timings.preempted_ms, x->completed_well ? "" : " client gone");
}

static void on_completed(void *server, struct MHD_Connection *c, void **ctx,
                         enum MHD_RequestTerminationCode how)
{
    struct http_server *s = server;
    struct exchange *x = *ctx;
    (void)c;
    if (!x)
        return;
    *ctx = NULL;
    watch_remove(s->watch, x->watch_id);
    exchange_unlist(x);
    pthread_mutex_lock(&x->lock);
    x->connection = NULL;
    pthread_mutex_unlock(&x->lock);
    atomic_store(&x->gone, true);
    if (atomic_load(&x->phase) == EXCHANGE_PHASE_STARTED)
        chat_run_cancel(x->run);
    unsigned digit = x->status / 100;
    if (digit < T9_COUNT(s->n.requests))
        atomic_fetch_add(&s->n.requests[digit], 1);
    if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        x->completed_well = false;
    if (!x->completed_well)
        atomic_fetch_add(&s->n.hangups, 1);
    write_access_log(x);
    exchange_drop(x);
}

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
    p->connection_limit = 1000;
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
    if (p->keepalive_ms < 1 || p->header_wait_ms < 1)
        return t9_fail(err, T9_STATUS_INVALID, "the keep-alive and header times must be positive");
    if (p->api_key && !p->api_key[0])
        return t9_fail(err, T9_STATUS_INVALID, "the API key is empty");
    if (!guard_is_loopback_name(p->host) && !p->api_key && !p->insecure)
        return t9_fail(err, T9_STATUS_INVALID,
                       "%s can be reached from other machines: give --api-key, or --insecure to "
                       "serve everybody",
                       p->host);
    return T9_STATUS_OK;
}

static t9_status cannot_bind(const struct http_params *p, int error, struct t9_err *err)
{
    if (error == EADDRINUSE)
        return t9_fail(err, T9_STATUS_IO,
                       "port %u of %s is taken by another program: stop it, or choose another with "
                       "--port",
                       p->port, p->host);
    if (error == EACCES)
        return t9_fail(err, T9_STATUS_IO, "port %u of %s needs privileges: choose one above 1023",
                       p->port, p->host);
    if (error == EADDRNOTAVAIL)
        return t9_fail(err, T9_STATUS_IO, "%s is no address of this machine", p->host);
    return t9_fail(err, T9_STATUS_IO, "can't listen on port %u of %s (errno %d)", p->port, p->host,
                   error);
}

static int bind_on(const struct addrinfo *ai, bool and_listen)
{
    int one = 1;
    int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && (!and_listen || listen(fd, 512) == 0))
        return fd;
    int error = errno;
    (void)close(fd);
    errno = error;
    return -1;
}

static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t n = sizeof a;
    memset(&a, 0, sizeof a);
    if (getsockname(fd, &a.any, &n) != 0)
        return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

/* A socket with the address of `p`, the caller's. */
static t9_status bind_address(const struct http_params *p, bool and_listen, int *fd,
                              struct t9_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[8];
    *fd = -1;
    (void)snprintf(port, sizeof port, "%u", p->port);
    int code = getaddrinfo(p->host, port, &hints, &list);
    if (code != 0 || !list)
        return t9_fail(err, T9_STATUS_IO, "%s is no address to listen on: %s", p->host,
                       gai_strerror(code));
    int error = 0;
    for (const struct addrinfo *ai = list; ai && *fd < 0; ai = ai->ai_next) {
        *fd = bind_on(ai, and_listen);
        error = *fd < 0 ? errno : 0;
    }
    freeaddrinfo(list);
    return *fd < 0 ? cannot_bind(p, error, err) : T9_STATUS_OK;
}

t9_status http_params_check(const struct http_params *p, struct t9_err *err)
{
    int fd = -1;
    T9_TRY(check_params(p, err));
    T9_TRY(bind_address(p, false, &fd, err));
    (void)close(fd);
    return T9_STATUS_OK;
}

static t9_status bind_server(struct http_server *s, struct t9_err *err)
{
    T9_TRY(bind_address(&s->p, true, &s->listen_fd, err));
    s->port = port_of(s->listen_fd);
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

static t9_status start_library(struct http_server *s, struct t9_err *err)
{
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    s->mhd = MHD_start_daemon(
        flags, s->port, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
        MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        s, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)s->p.n_io, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)s->p.connection_limit, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)s->p.idle_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)32768,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (!s->mhd)
        return t9_fail(err, T9_STATUS_IO, "the HTTP library did not start on port %u", s->port);
    return T9_STATUS_OK;
}

t9_status http_server_new(struct http_server **out, const struct http_params *p, struct t9_err *err)
{
    *out = NULL;
    T9_TRY(check_params(p, err));
    struct http_server *s = mem_calloc(1, sizeof *s);
    if (!s)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory");
    s->p = *p;
    s->listen_fd = -1;
    s->started_s = clock_unix_s();
    s->loopback = guard_is_loopback_name(p->host);
    (void)pthread_mutex_init(&s->list_lock, NULL);
    if (getrandom(&s->id_base, sizeof s->id_base, GRND_NONBLOCK) < 0)
        s->id_base = clock_now_ns();
    t9_status st = bind_server(s, err);
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

static void stop_connections(struct http_server *s, uint32_t timeout_ms)
{
    enum { LAST_WORDS_MS = 2000 };
    if (!wait_zero(&s->n_listed, timeout_ms)) {
        /* Streams get an error event, so their clients know that the answer is not complete. */
        end_all(s, false);
        (void)wait_zero(&s->n_listed, LAST_WORDS_MS);
    }
    /* Until here who connected was told to come back later, which is kinder than a closed door. */
    MHD_socket fd = MHD_quiesce_daemon(s->mhd);
    s->listen_fd = -1;
    atomic_store(&s->closing, true);
    end_all(s, true);
    MHD_stop_daemon(s->mhd);
    if (fd >= 0)
        (void)close(fd); /* only now: until they end, the library's threads still name it */
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
    else if (s->listen_fd >= 0)
        (void)close(s->listen_fd);
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
    (void)pthread_mutex_destroy(&s->list_lock);
    mem_free(s);
}
