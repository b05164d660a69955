/*
 * http/request.c - a request from its head to its last byte: receives it, refuses it or hands it
 * on, and writes its line of the log. On the library's threads.
 *
 * The library calls request_on_data once with the head, then for every piece of the body, then once
 * more; replies are sent in the last call only, so a connection can be kept alive. A body over the
 * limit that is announced is refused at once (and the connection closed); one that turns out to be
 * too large is received and thrown away up to another limit's worth, then refused.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "http/internal.h"
#include "protocol/openai_chat.h"

#include <stdio.h>
#include <string.h>

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
    x->route = route_find(url);
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
                    "%s is not a method of this path; allowed: %s", x->method,
                    route_allow(x->route));
    buf_init(&b, 4096);
    openai_write_error(&e, &b);
    struct MHD_Response *r = MHD_create_response_from_buffer(b.n, b.p, MHD_RESPMEM_MUST_COPY);
    buf_deinit(&b);
    if (!r)
        return MHD_NO;
    (void)MHD_add_response_header(r, "Content-Type", "application/json");
    (void)MHD_add_response_header(r, "Allow", route_allow(x->route));
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
        return reply_options(x, route_allow(x->route));
    if (!route_allows(x->route, x->method))
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

enum MHD_Result request_on_data(void *server, struct MHD_Connection *c, const char *url,
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

void request_on_completed(void *server, struct MHD_Connection *c, void **ctx,
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
