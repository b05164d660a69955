/*
 * http/request.c - a request from its head to its last byte: receives it, refuses it or hands it
 * on, and writes its line of the log. On the library's threads.
 *
 * The library calls request_on_data once with the head, then for every piece of the body, then once
 * more; replies are sent in the last call only, so a connection can be kept alive. A body over the
 * limit that is announced is refused at once (and the connection closed); one that turns out to be
 * too large is received and thrown away up to another limit's worth, then refused by the library;
 * one that goes on is refused past the library (conns_refuse), which takes no reply before the end.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "http/internal.h"
#include "protocol/anthropic.h"
#include "protocol/caller.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* The client's id when it is harmless, else one of ours. */
static void choose_id(struct exchange *x)
{
    static const char ok[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    str given = head_value(x->connection, "X-Request-Id");
    bool taken = given.n > 0 && given.n <= 64;
    for (size_t i = 0; taken && i < given.n; i++)
        taken = strchr(ok, given.p[i]) != NULL;
    if (taken)
        (void)snprintf(x->request_id, sizeof x->request_id, STR_FMT, STR_ARG(given));
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

static void too_large(const struct exchange *x, struct chat_error *e)
{
    *e = (struct chat_error){0};
    (void)chat_fail(e, T9_STATUS_TOO_LARGE, NULL, "request_too_large",
                    "the body is larger than the limit of %llu bytes",
                    (unsigned long long)x->server->p.body_bytes_max);
}

static enum MHD_Result refuse_body(struct exchange *x)
{
    struct chat_error e = {0};
    if (x->over_total)
        (void)chat_fail(&e, T9_STATUS_BUSY, NULL, "server_busy",
                        "too many large requests are being received; try again later");
    else
        too_large(x, &e);
    return reply_error(x, &e);
}

static struct conn *conn_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static const struct sockaddr *address_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info ? info->client_addr : NULL;
}

/* A peer whose machine vanished without a word is noticed within two minutes, also on a stream that
 * has nothing to say. */
static void watch_peer(int fd)
{
    static const int on = 1, idle_s = 60, interval_s = 15, count = 4, silent_ms = 120000;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
#ifdef __linux__
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silent_ms, sizeof silent_ms);
#else
    (void)idle_s, (void)interval_s, (void)count, (void)silent_ms;
#endif
}

/* The notifier looks for late requests while there could be one. */
static void look_for_late(struct http_server *s)
{
    if (!atomic_exchange(&s->watches_conns, true))
        ring_wake(s->ring);
}

void request_on_connection(void *server, struct MHD_Connection *c, void **conn,
                           enum MHD_ConnectionNotificationCode what)
{
    struct http_server *s = server;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        conns_close(&s->conns, *conn);
        *conn = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info)
        return;
    if (!s->p.unix_path)
        watch_peer(info->connect_fd);
    *conn = conns_open(&s->conns, info->connect_fd, address_of(c), clock_now_ns());
    look_for_late(s);
}

/* What a request has for an exchange until its head is there, by its line; NULL for a good one. */
static head_line lines[] = {HEAD_LINE_GOOD, HEAD_LINE_BLANK, HEAD_LINE_NUL, HEAD_LINE_LONG};

static bool is_line(const void *ctx)
{
    for (size_t i = HEAD_LINE_BLANK; i < T9_COUNT(lines); i++) {
        if (ctx == &lines[i])
            return true;
    }
    return false;
}

void *request_on_line(void *server, const char *uri, struct MHD_Connection *c)
{
    struct http_server *s = server;
    conns_head(&s->conns, conn_of(c), clock_now_ns());
    look_for_late(s);
    head_line line = head_line_of(uri);
    return line == HEAD_LINE_GOOD ? NULL : &lines[line];
}

/* As the library does it, but that %00 stays as it is written: a decoded one would end the path, so
 * that /%00x were taken for /. */
size_t request_unescape(void *server, struct MHD_Connection *c, char *text)
{
    size_t n = 0;
    (void)server;
    (void)c;
    for (const char *p = text; *p; n++) {
        int high = *p == '%' ? num_hex_digit(p[1]) : -1;
        int low = high >= 0 ? num_hex_digit(p[2]) : -1;
        bool decodes = low >= 0 && high * 16 + low != 0;
        text[n] = decodes ? (char)(high * 16 + low) : *p;
        p += decodes ? 3 : 1;
    }
    text[n] = 0;
    return n;
}

/* ---- the request ---- */

/* What guard_check said no to. */
static enum MHD_Result refuse_caller(struct exchange *x, struct chat_error *e)
{
    if (e->err.code != T9_STATUS_CANCELLED)
        return reply_error(x, e);
    e->err.code = T9_STATUS_INVALID;
    return reply_error_as(x, MHD_HTTP_UNAUTHORIZED, e);
}

/* What can be said without the body. A short body is still read, so that the connection can be
 * kept; a long one is not asked for. Returns true when *result has the outcome. */
static bool refuse_head(struct exchange *x, const char *method, const char *version, head_line line,
                        enum MHD_Result *result)
{
    enum { READ_ANYWAY_BYTES = 65536 };
    struct chat_error e = {0};
    str length = head_value(x->connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    uint64_t n = 0;
    if (head_check(x->connection, method, version, line, &e) != T9_STATUS_OK) {
        *result = reply_error(x, &e);
        return true;
    }
    bool known = length.p && num_parse_u64(length, &n);
    if (known && n > x->server->p.body_bytes_max) {
        *result = refuse_body(x);
        return true;
    }
    x->refused = guard_check(x, !x->route || x->route->is_public, &e) != T9_STATUS_OK;
    if (x->refused && known && n > READ_ANYWAY_BYTES) {
        *result = refuse_caller(x, &e);
        return true;
    }
    return false;
}

static enum MHD_Result begin_request(struct http_server *s, struct MHD_Connection *c,
                                     const char *url, const char *method, const char *version,
                                     void **ctx)
{
    head_line line = is_line(*ctx) ? *(head_line *)*ctx : HEAD_LINE_GOOD;
    *ctx = NULL;
    /* Exchanges that wait for the engine to let go outlive their connections; this bounds them, and
     * with them what can be in the ring. */
    if (atomic_load(&s->n_alive) >= 2 * s->p.connection_limit)
        return MHD_NO;
    struct exchange *x = exchange_new(s, c);
    if (!x)
        return MHD_NO;
    *ctx = x;
    x->route = route_find(url);
    show_path(x, url);
    (void)snprintf(x->method, sizeof x->method, "%s", method);
    choose_id(x);
    x->anthropic =
        head_value(c, "Anthropic-Version").p ||
        (x->route && x->route->adapter && x->route->adapter->error == anthropic_write_error);
    x->conn = conn_of(c);
    conns_body(&s->conns, x->conn, 0);
    enum MHD_Result result = MHD_YES;
    struct conns_end end;
    x->refused =
        conns_ended(&s->conns, x->conn, &end); /* told already; what comes is thrown away */
    if (!x->refused)
        (void)refuse_head(x, method, version, line, &result);
    return result;
}

/* Thrown away of a body that is too large, beside the limit, before it is ended. */
#define DISCARD_BYTES ((uint64_t)1 << 20)

/* What comes after it is thrown away, until conns_tick ends that. */
static enum MHD_Result end_body(struct exchange *x)
{
    struct http_server *s = x->server;
    struct conns_end end;
    struct chat_error e;
    struct buf body;
    if (conns_ended(&s->conns, x->conn, &end))
        return MHD_YES;
    too_large(x, &e);
    buf_init(&body, 1024);
    reply_write_error(x, &e, &body);
    buf_putc(&body, 0);
    struct conns_reply r = {"413 Content Too Large", "", e.code, e.err.msg, body.p};
    bool told = !body.failed && conns_refuse(&s->conns, x->conn, &r, clock_now_ns());
    buf_deinit(&body);
    if (!told)
        return MHD_NO;
    notifier_look(s);
    return MHD_YES;
}

static enum MHD_Result take_body(struct exchange *x, const char *data, size_t n)
{
    struct http_server *s = x->server;
    atomic_fetch_add(&s->n.bytes_in, n);
    conns_body(&s->conns, x->conn, n);
    bool wanted = x->route && x->route->adapter && !x->route->url_is_body && !x->over_limit &&
                  !x->over_total && !x->refused;
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
    return x->n_discarded > s->p.body_bytes_max + DISCARD_BYTES ? end_body(x) : MHD_YES;
}

static enum MHD_Result not_allowed(struct exchange *x)
{
    struct chat_error e = {0};
    (void)chat_fail(&e, T9_STATUS_INVALID, NULL, "method_not_allowed",
                    "%s is not a method of this path; allowed: %s", x->method,
                    route_allow(x->route));
    return reply_error_as(x, MHD_HTTP_METHOD_NOT_ALLOWED, &e);
}

static void watch_client(struct exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info)
        x->watch_id = watch_add(x->server->watch, info->connect_fd, x);
}

/* A key's requests are counted together, else an address's: whoever guesses keys has its address's
 * allowance only. */
static bool within_rate(struct exchange *x, struct chat_error *e)
{
    uint64_t client =
        x->api_key ? caller_key(x->api_key) : conns_address_key(address_of(x->connection));
    x->retry_after_s = rate_take(&x->server->rate, client, clock_now_ns());
    if (x->retry_after_s == 0)
        return true;
    char msg[128];
    (void)snprintf(msg, sizeof msg, "more than %d requests a minute; try again in %d s",
                   x->server->p.requests_per_minute, x->retry_after_s);
    (void)chat_fail_limit(e, msg);
    atomic_fetch_add(&x->server->n.limited, 1);
    return false;
}

static enum MHD_Result write_argument(void *buf, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    struct buf *b = buf;
    (void)kind;
    buf_puts(b, b->p[b->n - 1] == '[' ? "[" : ",[");
    json_write_str(b, str_from(name));
    buf_putc(b, ',');
    json_write_str(b, str_from(value ? value : ""));
    buf_putc(b, ']');
    return MHD_YES;
}

/* What is asked for without a body, as an adapter reads it. False without memory. */
static bool make_body(struct exchange *x, const char *url)
{
    buf_puts(&x->body, "{\"method\":");
    json_write_str(&x->body, str_from(x->method));
    buf_puts(&x->body, ",\"path\":");
    json_write_str(&x->body, str_from(url + strlen(x->route->path)));
    buf_puts(&x->body, ",\"query\":[");
    (void)MHD_get_connection_values(x->connection, MHD_GET_ARGUMENT_KIND, write_argument, &x->body);
    buf_puts(&x->body, "]}");
    atomic_fetch_add(&x->server->bodies_bytes, x->body.n);
    return !x->body.failed;
}

/* Clients differ in whether their base URL has the /v1. */
static const char *base_url_hint(const char *path)
{
    static const char *const without[] = {"/chat/completions", "/completions", "/responses",
                                          "/messages",         "/models",      "/embeddings"};
    if (strncmp(path, "/v1/v1/", 7) == 0)
        return "this client adds /v1 itself: take it from the base URL";
    for (size_t i = 0; i < T9_COUNT(without); i++) {
        if (strcmp(path, without[i]) == 0)
            return "the base URL lacks /v1 at its end";
    }
    return "/ lists what there is";
}

/* The body is complete: answers, or starts what will. */
static enum MHD_Result end_request(struct exchange *x, const char *url)
{
    struct chat_error e = {0}, rate = {0};
    if (!conns_complete(&x->server->conns, x->conn))
        return MHD_NO;
    t9_status s = guard_check(x, !x->route || x->route->is_public, &e);
    bool preflight = strcmp(x->method, "OPTIONS") == 0;
    /* A foreign page's requests must not use up what the people at this address have. */
    bool counts = strcmp(x->method, "POST") == 0 && s != T9_STATUS_FORBIDDEN;
    if (counts && !within_rate(x, &rate))
        return reply_error(x, &rate);
    if (s == T9_STATUS_FORBIDDEN || (s != T9_STATUS_OK && !preflight))
        return refuse_caller(x, &e);
    if (!x->route) {
        (void)chat_fail(&e, T9_STATUS_NOT_FOUND, NULL, "unknown_path", "there is no %s %s here; %s",
                        x->method, x->shown_path, base_url_hint(x->shown_path));
        return reply_error(x, &e);
    }
    if (preflight)
        return reply_options(x, route_allow(x->route));
    if (!route_allows(x->route, x->method))
        return not_allowed(x);
    if (x->over_limit || x->over_total)
        return refuse_body(x);
    if (!x->route->adapter)
        return x->route->get(x, url);
    if (guard_caller(x, &e) != T9_STATUS_OK)
        return reply_error(x, &e);
    if (x->route->url_is_body && !make_body(x, url))
        return MHD_NO;
    watch_client(x);
    return reply_chat(x);
}

enum MHD_Result request_on_data(void *server, struct MHD_Connection *c, const char *url,
                                const char *method, const char *version, const char *data,
                                size_t *n_data, void **ctx)
{
    if (!*ctx || is_line(*ctx))
        return begin_request(server, c, url, method, version, ctx);
    struct exchange *x = *ctx;
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
        /* What is polled would bury the rest. */
        bool quiet = x->route && x->route->no_store && x->status == MHD_HTTP_OK;
        log_write(quiet ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "http", "%s %s %u %.1f ms id=%s%s%s%s",
                  x->method, x->shown_path, x->status, total_ms, x->request_id,
                  x->error_code[0] ? " error=" : "", x->error_code,
                  x->completed_well ? "" : " client gone");
        return;
    }
    struct chat_run_times t = chat_run_times(x->run);
    LOG_INFO("http",
             "%s %s %u %.1f ms id=%s prompt=%d cached=%d completion=%d finish=%s queue=%.1f ms "
             "prefix=%.1f ms prefill=%.1f ms decode=%.1f ms preempted=%d/%.1f ms%s%s%s",
             x->method, x->shown_path, x->status, total_ms, x->request_id, t.n_prompt, t.n_cached,
             t.n_completion, t.finish, t.timings.queue_ms, t.timings.prefix_wait_ms,
             t.timings.prefill_ms, t.timings.decode_ms, t.timings.n_preempted,
             t.timings.preempted_ms, x->error_code[0] ? " error=" : "", x->error_code,
             x->completed_well ? "" : " client gone");
}

void request_on_completed(void *server, struct MHD_Connection *c, void **ctx,
                          enum MHD_RequestTerminationCode how)
{
    struct http_server *s = server;
    struct exchange *x = is_line(*ctx) ? NULL : *ctx;
    (void)c;
    *ctx = NULL;
    if (!x)
        return;
    watch_remove(s->watch, x->watch_id);
    exchange_unlist(x);
    pthread_mutex_lock(&x->lock);
    x->connection = NULL;
    pthread_mutex_unlock(&x->lock);
    atomic_store(&x->gone, true);
    if (atomic_load(&x->phase) == EXCHANGE_PHASE_STARTED)
        chat_run_cancel(x->run);
    struct conns_end end;
    bool ours = x->status == 0 && conns_ended(&s->conns, x->conn, &end);
    unsigned digit = x->status / 100;
    if (ours) {
        x->status = end.status; /* counted when it was said */
        (void)snprintf(x->error_code, sizeof x->error_code, "%s", end.code);
    } else if (digit < T9_COUNT(s->n.requests)) {
        atomic_fetch_add(&s->n.requests[digit], 1);
    }
    if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        x->completed_well = ours;
    if (!x->completed_well)
        atomic_fetch_add(&s->n.hangups, 1);
    write_access_log(x);
    conns_idle(&s->conns, x->conn, clock_now_ns());
    look_for_late(s);
    exchange_drop(x);
}
