/*
 * http/reply.c - from an exchange to bytes: plain replies, errors, whole answers and streams. Runs
 * on the HTTP library's threads; one at a time per exchange.
 *
 * A stream is formatted only when the library asks for bytes, that is when the socket has room: a
 * client that reads slowly costs no memory and holds nobody up.
 */
#include "base/clock.h"
#include "base/log.h"
#include "http/internal.h"
#include "protocol/anthropic.h"
#include "protocol/ollama.h"
#include "protocol/openai_chat.h"

#include <stdio.h>
#include <string.h>

#define STREAM_BLOCK_BYTES ((size_t)16384) /* formatted at once, about */
/* What the library keeps for each response; only HTTP/1.0 clients, who get no chunks, make use of
 * it. */
#define LIBRARY_BLOCK_BYTES ((size_t)1024)

static void common_headers(struct exchange *x, struct MHD_Response *r)
{
    const char *origin = guard_cors_origin(x->server, x->connection);
    (void)MHD_add_response_header(r, "X-Request-Id", x->request_id);
    if (x->anthropic)
        (void)MHD_add_response_header(r, "Request-Id", x->request_id);
    if (origin) {
        (void)MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
        (void)MHD_add_response_header(r, "Access-Control-Expose-Headers",
                                      "Request-Id, Retry-After, X-Request-Id");
        (void)MHD_add_response_header(r, "Vary", "Origin");
    }
}

/* From what waits and how fast it is worked off; while stopping, until the last answer has ended:
 * nobody else can listen on our port before. */
static void add_retry_after(const struct exchange *x, struct MHD_Response *r)
{
    const struct http_server *s = x->server;
    char text[16];
    int32_t seconds = x->retry_after_s ? x->retry_after_s : prep_retry_after_s(s->prep);
    if (atomic_load(&s->stopping)) {
        uint64_t now = clock_now_ns(), until = atomic_load(&s->stop_ns);
        seconds = until > now ? (int32_t)((until - now) / 1000000000u) + 1 : 1;
    }
    (void)snprintf(text, sizeof text, "%d", seconds);
    (void)MHD_add_response_header(r, "Retry-After", text);
}

static enum MHD_Result queue(struct exchange *x, unsigned status, struct MHD_Response *r)
{
    if (!r)
        return MHD_NO;
    common_headers(x, r);
    if (x->route && x->route->no_store)
        (void)MHD_add_response_header(r, "Cache-Control", "no-store");
    if (status == MHD_HTTP_SERVICE_UNAVAILABLE || status == MHD_HTTP_TOO_MANY_REQUESTS)
        add_retry_after(x, r);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED && x->route)
        (void)MHD_add_response_header(r, "Allow", route_allow(x->route));
    if (status == MHD_HTTP_UNAUTHORIZED)
        (void)MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (atomic_load(&x->server->stopping))
        (void)MHD_add_response_header(r, "Connection", "close");
    x->status = status;
    enum MHD_Result ok = MHD_queue_response(x->connection, status, r);
    MHD_destroy_response(r);
    return ok;
}

enum MHD_Result reply_bytes(struct exchange *x, unsigned status, const char *type, str body)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(body.n, (void *)(uintptr_t)body.p, MHD_RESPMEM_MUST_COPY);
    if (r)
        (void)MHD_add_response_header(r, "Content-Type", type);
    atomic_fetch_add(&x->server->n.bytes_out, body.n);
    x->completed_well = true;
    return queue(x, status, r);
}

enum MHD_Result reply_response(struct exchange *x, unsigned status, size_t n_bytes,
                               struct MHD_Response *r)
{
    atomic_fetch_add(&x->server->n.bytes_out, n_bytes);
    x->completed_well = true;
    return queue(x, status, r);
}

/* The code for the log, never the message, which quotes what the client sent. A parameter's name
 * may be the client's own text: it is told only where it looks like a name. */
static void note_error(struct exchange *x, const struct chat_error *e)
{
    static const char ok[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.[]";
    bool named = e->param[0] && strlen(e->param) <= 24 && !e->param[strspn(e->param, ok)];
    (void)snprintf(x->error_code, sizeof x->error_code, "%s%s%.24s",
                   e->code ? e->code : t9_status_name(e->err.code), named ? ":" : "",
                   named ? e->param : "");
}

void reply_write_error(const struct exchange *x, const struct chat_error *e, struct buf *out)
{
    struct chat_error told = *e;
    told.request_id = x->request_id;
    if (x->route && x->route->adapter && x->route->adapter->error)
        x->route->adapter->error(&told, out);
    else if (strncmp(x->shown_path, "/api/", 5) == 0)
        ollama_error(&told, out);
    else if (x->anthropic)
        anthropic_write_error(&told, out);
    else
        openai_write_error(&told, out);
}

enum MHD_Result reply_error_as(struct exchange *x, unsigned status, const struct chat_error *e)
{
    struct buf b;
    struct chat_error told = *e;
    buf_init(&b, 8192);
    note_error(x, e);
    told.http_status = (int)status;
    reply_write_error(x, &told, &b);
    enum MHD_Result ok =
        b.failed ? MHD_NO : reply_bytes(x, status, "application/json", buf_str(&b));
    buf_deinit(&b);
    return ok;
}

enum MHD_Result reply_error(struct exchange *x, const struct chat_error *e)
{
    return reply_error_as(x, (unsigned)chat_error_http(e), e);
}

enum MHD_Result reply_options(struct exchange *x, const char *allow)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    if (r) {
        (void)MHD_add_response_header(r, "Allow", allow);
        if (guard_cors_origin(x->server, x->connection)) {
            (void)MHD_add_response_header(r, "Access-Control-Allow-Methods", allow);
            (void)MHD_add_response_header(
                r, "Access-Control-Allow-Headers",
                "Anthropic-Beta, Anthropic-Dangerous-Direct-Browser-Access, "
                "Anthropic-Version, "
                "Authorization, Content-Type, X-Api-Key, X-Request-Id, "
                "X-Tempo9-Client, X-Tempo9-Priority, "
                "X-Tempo9-Queue-Timeout-Ms");
            (void)MHD_add_response_header(r, "Access-Control-Max-Age", "600");
        }
    }
    x->completed_well = true;
    return queue(x, MHD_HTTP_NO_CONTENT, r);
}

/* ---- streams ---- */

/* Formats what is new into x->out, up to about one block. */
static void fill(struct exchange *x)
{
    int phase = atomic_load(&x->phase);
    struct chat_event ev = {0};
    if (phase == EXCHANGE_PHASE_FAILED) {
        ev.kind = CHAT_EVENT_ERROR;
        ev.error = x->error;
        ev.error.request_id = x->request_id;
        note_error(x, &x->error);
        chat_run_write(x->run, &ev, &x->out);
        x->out_done = true;
        return;
    }
    while (phase == EXCHANGE_PHASE_STARTED && x->out.n < STREAM_BLOCK_BYTES && !x->out_done) {
        ev = chat_run_next(x->run);
        if (ev.kind == CHAT_EVENT_NONE)
            return;
        if (ev.kind == CHAT_EVENT_ERROR)
            note_error(x, &ev.error);
        ev.error.request_id = x->request_id;
        chat_run_write(x->run, &ev, &x->out);
        x->begun = true;
        x->out_done = ev.kind == CHAT_EVENT_END || ev.kind == CHAT_EVENT_ERROR;
    }
}

static ssize_t hand_over(struct exchange *x, char *to, size_t max)
{
    size_t n = x->out.n - x->out_at < max ? x->out.n - x->out_at : max;
    uint64_t now = clock_now_ns();
    memcpy(to, x->out.p + x->out_at, n);
    x->out_at += n;
    atomic_store(&x->last_write_ns, now);
    atomic_fetch_add(&x->server->n.bytes_out, n);
    if (atomic_load(&x->phase) == EXCHANGE_PHASE_STARTED)
        chat_run_mark_byte(x->run, now);
    return (ssize_t)n;
}

static const char *keep_alive(const struct exchange *x)
{
    const struct chat_adapter *a = x->route->adapter;
    return x->begun && a->ping ? a->ping : a->comment;
}

static ssize_t read_stream(void *exchange, uint64_t pos, char *to, size_t max)
{
    struct exchange *x = exchange;
    (void)pos;
    do {
        if (x->out_at < x->out.n)
            return hand_over(x, to, max);
        if (x->out_done) {
            x->completed_well = true;
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        if (atomic_load(&x->gone))
            return MHD_CONTENT_READER_END_WITH_ERROR;
        buf_clear(&x->out);
        x->out_at = 0;
        fill(x);
        if (x->out.n == 0 && atomic_exchange(&x->comment_due, false))
            buf_puts(&x->out, keep_alive(x));
        if (x->out.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (x->out.n == 0 && !x->out_done) {
            buf_deinit(&x->out); /* a stream may be silent for long */
            buf_init(&x->out, EXCHANGE_OUT_BYTES_MAX);
            if (exchange_sleep(x))
                return 0;
        }
    } while (x->out.n > 0 || x->out_done || !atomic_load(&x->server->closing));
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

static void end_stream(void *exchange)
{
    struct exchange *x = exchange;
    atomic_store(&x->streaming, false);
    atomic_fetch_sub(&x->server->n.streams, 1);
    exchange_drop(x);
}

static enum MHD_Result begin_stream(struct exchange *x)
{
    exchange_hold(x);
    atomic_fetch_add(&x->server->n.streams, 1);
    struct MHD_Response *r = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, LIBRARY_BLOCK_BYTES, read_stream, x, end_stream);
    if (!r) {
        end_stream(x);
        return MHD_NO;
    }
    atomic_store(&x->last_write_ns, clock_now_ns());
    atomic_store(&x->streaming, true);
    (void)MHD_add_response_header(r, "Content-Type", x->route->adapter->stream_type);
    (void)MHD_add_response_header(r, "Cache-Control", "no-cache");
    (void)MHD_add_response_header(r, "X-Accel-Buffering", "no");
    return queue(x, MHD_HTTP_OK, r);
}

/* ---- whole answers ---- */

/* Gathers text; true when the reply was queued (or failed to be) into *result. */
static bool read_whole(struct exchange *x, enum MHD_Result *result)
{
    for (;;) {
        struct chat_event ev = chat_run_next(x->run);
        switch (ev.kind) {
        case CHAT_EVENT_NONE: return false;
        case CHAT_EVENT_BEGIN:
        case CHAT_EVENT_PROGRESS:
        case CHAT_EVENT_TEXT:
        case CHAT_EVENT_REASONING:
        case CHAT_EVENT_CALL:
        case CHAT_EVENT_ARGS:
        case CHAT_EVENT_CALL_END:
        case CHAT_EVENT_FINISH: break;
        case CHAT_EVENT_ERROR: *result = reply_error(x, &ev.error); return true;
        case CHAT_EVENT_END: {
            struct buf b;
            buf_init(&b, (size_t)512 << 20);
            chat_run_write_whole(x->run, &ev, &b);
            chat_run_mark_byte(x->run, clock_now_ns());
            *result =
                b.failed ? MHD_NO : reply_bytes(x, MHD_HTTP_OK, "application/json", buf_str(&b));
            buf_deinit(&b);
            return true;
        }
        }
    }
}

enum MHD_Result reply_chat(struct exchange *x)
{
    enum MHD_Result result = MHD_NO;
    for (;;) {
        if (atomic_load(&x->gone))
            return MHD_NO;
        if (atomic_load(&x->phase) == EXCHANGE_PHASE_BODY)
            exchange_start(x);
        switch (atomic_load(&x->phase)) {
        case EXCHANGE_PHASE_FAILED: return reply_error(x, &x->error);
        case EXCHANGE_PHASE_STARTED:
            if (chat_run_is_stream(x->run) && !chat_run_failed_early(x->run)) {
                if (!chat_run_in_timed_queue(x->run) || atomic_load(&x->headers_due))
                    return begin_stream(x);
                break;
            }
            if (read_whole(x, &result))
                return result;
            break;
        default:
            if (atomic_load(&x->headers_due))
                return begin_stream(x);
            break;
        }
        if (exchange_sleep(x))
            return MHD_YES;
        if (atomic_load(&x->server->closing))
            return MHD_NO;
    }
}
