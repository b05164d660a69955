/*
 * http/metrics.c - GET /metrics in Prometheus' text format: one pass into one buffer, no allocation
 * per line, so a scrape every 50 ms costs nothing that matters.
 *
 * Names are tempo9_*; three more under the names that routers in front of several servers look for.
 */
#include "engine/stats.h"
#include "http/internal.h"

#include <inttypes.h>

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct buf *b, const char *name, const char *type, const char *help, double v)
{
    head(b, name, type, help);
    buf_printf(b, "%s ", name);
    json_write_f64(b, v);
    buf_putc(b, '\n');
}

static void counter(struct buf *b, const char *name, const char *help, uint64_t v)
{
    head(b, name, "counter", help);
    buf_printf(b, "%s %" PRIu64 "\n", name, v);
}

static void seconds(struct buf *b, const char *name, const char *help, uint64_t ns)
{
    one(b, name, "counter", help, (double)ns / 1e9);
}

static void histogram(struct buf *b, const char *name, const char *help, const uint64_t bucket[16],
                      uint64_t count, uint64_t sum_ns)
{
    uint64_t below = 0;
    head(b, name, "histogram", help);
    for (size_t i = 0; i < 15; i++) {
        below += bucket[i];
        buf_printf(b, "%s_bucket{le=\"", name);
        json_write_f64(b, STATS_BUCKET_MS[i] / 1e3);
        buf_printf(b, "\"} %" PRIu64 "\n", below);
    }
    /* Read while it is written: the buckets decide, so that the series stays monotonic. */
    below += bucket[15];
    buf_printf(b, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum ", name, below, name);
    json_write_f64(b, (double)sum_ns / 1e9);
    buf_printf(b, "\n%s_count %" PRIu64 "\n", name, below);
    (void)count;
}

static void engine_part(const struct engine_stats *e, struct buf *b)
{
    double usage = e->kv_pages_total > 0 ? (double)e->kv_pages_used / e->kv_pages_total : 0;
    one(b, "tempo9_requests_running", "gauge", "Requests that compute now.", e->running);
    one(b, "tempo9_requests_waiting", "gauge", "Requests in the queue.", e->waiting);
    one(b, "tempo9_kv_pages_total", "gauge", "KV pages in the pool.", e->kv_pages_total);
    one(b, "tempo9_kv_pages_used", "gauge", "KV pages in use.", e->kv_pages_used);
    one(b, "tempo9_kv_page_bytes", "gauge", "Bytes of one KV page.", (double)e->kv_page_bytes);
    counter(b, "tempo9_steps_total", "Engine steps.", e->steps);
    counter(b, "tempo9_rows_total", "Token rows computed in all steps.", e->rows);
    counter(b, "tempo9_prompt_tokens_total", "Prompt tokens, computed or reused.",
            e->prompt_tokens);
    counter(b, "tempo9_cached_tokens_total", "Prompt tokens taken from the cache.",
            e->cached_tokens);
    counter(b, "tempo9_generated_tokens_total", "Tokens generated.", e->generated_tokens);
    counter(b, "tempo9_requests_admitted_total", "Requests that began to compute.",
            e->requests_admitted);
    head(b, "tempo9_requests_finished_total", "counter", "Requests that ended, by reason.");
    buf_printf(b,
               "tempo9_requests_finished_total{reason=\"stop\"} %" PRIu64 "\n"
               "tempo9_requests_finished_total{reason=\"length\"} %" PRIu64 "\n"
               "tempo9_requests_finished_total{reason=\"cancelled\"} %" PRIu64 "\n"
               "tempo9_requests_finished_total{reason=\"error\"} %" PRIu64 "\n",
               e->requests_stop, e->requests_length, e->requests_cancelled, e->requests_error);
    seconds(b, "tempo9_queue_seconds_total", "Time in the queue, over ended requests.",
            e->queue_ns);
    seconds(b, "tempo9_prefill_seconds_total", "Time in prefill, over ended requests.",
            e->prefill_ns);
    seconds(b, "tempo9_decode_seconds_total", "Time in decode, over ended requests.", e->decode_ns);
    seconds(b, "tempo9_step_seconds_total", "Time in engine steps.", e->step_ns);
    histogram(b, "tempo9_time_to_first_token_seconds", "From the request to its first token.",
              e->ttft_bucket, e->ttft_count, e->ttft_sum_ns);
    histogram(b, "tempo9_token_gap_seconds", "Between two tokens of a stream.", e->gap_bucket,
              e->gap_count, e->gap_sum_ns);
    one(b, "vllm:num_requests_running", "gauge", "As tempo9_requests_running.", e->running);
    one(b, "vllm:num_requests_waiting", "gauge", "As tempo9_requests_waiting.", e->waiting);
    one(b, "vllm:kv_cache_usage_perc", "gauge", "Share of the KV pages in use, 0 to 1.", usage);
}

static void http_part(struct http_server *s, struct buf *b)
{
    struct http_counters *n = &s->n;
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    head(b, "tempo9_http_requests_total", "counter", "HTTP requests answered, by status class.");
    for (unsigned i = 1; i < T9_COUNT(n->requests); i++)
        buf_printf(b, "tempo9_http_requests_total{status=\"%uxx\"} %" PRIu64 "\n", i,
                   atomic_load(&n->requests[i]));
    counter(b, "tempo9_http_hangups_total", "Clients that left before their answer was complete.",
            atomic_load(&n->hangups));
    counter(b, "tempo9_http_received_bytes_total", "Bytes of request bodies.",
            atomic_load(&n->bytes_in));
    counter(b, "tempo9_http_sent_bytes_total", "Bytes of reply bodies.",
            atomic_load(&n->bytes_out));
    one(b, "tempo9_http_connections", "gauge", "Open connections.",
        info ? info->num_connections : 0);
    one(b, "tempo9_http_streams", "gauge", "Streams open now.", (double)atomic_load(&n->streams));
    one(b, "tempo9_http_prep_waiting", "gauge", "Requests that wait to be parsed.",
        (double)atomic_load(&n->prep_waiting));
}

void metrics_write(struct http_server *s, struct buf *out)
{
    struct engine_stats e;
    prep_engine_stats(s->prep, &e);
    engine_part(&e, out);
    http_part(s, out);
}
