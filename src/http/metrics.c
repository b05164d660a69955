/*
 * http/metrics.c - GET /metrics in Prometheus' text format: one pass into one buffer, no allocation
 * per line, so a scrape every 50 ms costs nothing that matters.
 *
 * Names are tempo9_*; a few more under the names that routers in front of several servers look for,
 * with the colon that these have.
 */
#include "http/internal.h"

#include <inttypes.h>

const char *const HTTP_CHECKPOINTS[T9_STATS_CHECKPOINTS] = {"interval", "ladder", "branch", "mark",
                                                            "end"};

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

static void histogram(struct buf *b, const char *name, const char *help,
                      const double bucket_ms[T9_STATS_BUCKETS - 1],
                      const uint64_t bucket[T9_STATS_BUCKETS], uint64_t sum_ns)
{
    uint64_t below = 0;
    head(b, name, "histogram", help);
    for (size_t i = 0; i < T9_STATS_BUCKETS - 1; i++) {
        below += bucket[i];
        buf_printf(b, "%s_bucket{le=\"", name);
        json_write_f64(b, bucket_ms[i] / 1e3);
        buf_printf(b, "\"} %" PRIu64 "\n", below);
    }
    /* Read while it is written: the buckets decide, so that the series stays monotonic. */
    below += bucket[T9_STATS_BUCKETS - 1];
    buf_printf(b, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum ", name, below, name);
    json_write_f64(b, (double)sum_ns / 1e9);
    buf_printf(b, "\n%s_count %" PRIu64 "\n", name, below);
}

static void queue_part(const struct t9_stats *e, struct buf *b)
{
    one(b, "tempo9_requests_running", "gauge", "Requests that compute now.", e->running);
    one(b, "tempo9_requests_waiting", "gauge", "Requests in the queue, preempted ones too.",
        e->waiting);
    one(b, "tempo9_requests_waiting_preempted", "gauge",
        "Requests in the queue that had begun and gave their pages back.", e->waiting_preempted);
    one(b, "tempo9_requests_waiting_prefix", "gauge",
        "Requests that wait for another one to compute the same beginning.", e->waiting_prefix);
    counter(b, "tempo9_preemptions_total", "Times that a request gave its pages back.",
            e->preemptions);
    one(b, "tempo9_cost_step_seconds", "gauge", "Measured cost of a step without rows.",
        e->cost_step_ns / 1e9);
    one(b, "tempo9_cost_row_seconds", "gauge", "Measured cost of a row in a step.",
        e->cost_row_ns / 1e9);
    one(b, "tempo9_cost_key_seconds", "gauge", "Measured cost of a key that a row attends to.",
        e->cost_key_ns / 1e9);
    one(b, "tempo9_cost_experts_seconds", "gauge",
        "Measured cost of reading all experts of a model once.", e->cost_experts_ns / 1e9);
    one(b, "tempo9_decode_step_seconds", "gauge",
        "Time of a step without prompt rows, moving average.", e->decode_step_ns / 1e9);
}

static void pool_part(const struct t9_stats *e, struct buf *b)
{
    one(b, "tempo9_kv_pages", "gauge", "KV pages in the pool: used, cold and free ones.",
        e->kv_pages_total);
    one(b, "tempo9_kv_pages_used", "gauge", "KV pages that sequences use.", e->kv_pages_used);
    one(b, "tempo9_kv_pages_cold", "gauge", "KV pages of cached text that no sequence uses.",
        e->kv_pages_cold);
    one(b, "tempo9_kv_pages_free", "gauge", "KV pages that hold nothing.", e->kv_pages_free);
    one(b, "tempo9_kv_pages_pinned", "gauge", "KV pages, used or cold, that are evicted last.",
        e->kv_pages_pinned);
    one(b, "tempo9_kv_page_bytes", "gauge", "Bytes of one KV page.", (double)e->kv_page_bytes);
    counter(b, "tempo9_kv_evicted_pages_total", "Cold KV pages dropped to make room.",
            e->evicted_pages);
    one(b, "tempo9_kv_states_used", "gauge", "Recurrent states that sequences use.",
        e->kv_states_used);
    one(b, "tempo9_kv_states_kept", "gauge", "Recurrent states kept in the cache.",
        e->kv_states_kept);
    one(b, "tempo9_kv_state_bytes", "gauge", "Bytes of one recurrent state; 0: the model has none.",
        (double)e->kv_state_bytes);
    counter(b, "tempo9_kv_evicted_states_total", "Kept recurrent states dropped to make room.",
            e->evicted_states);
    one(b, "tempo9_kv_windows_used", "gauge",
        "Pages of layers that see a window of tokens only: those that sequences need.",
        e->kv_windows_used);
    one(b, "tempo9_kv_windows_cold", "gauge",
        "Pages of layers that see a window of tokens only: those that are cached and not needed.",
        e->kv_windows_cold);
    one(b, "tempo9_kv_window_bytes", "gauge",
        "Bytes of one page of such layers; 0: they have none of their own.",
        (double)e->kv_window_bytes);
    counter(b, "tempo9_kv_evicted_windows_total",
            "Pages of such layers dropped to make room, with or without the others'.",
            e->evicted_windows);
}

/* One value for each kind of checkpoint. */
static void by_checkpoint(struct buf *b, const char *name, const char *help,
                          const uint64_t v[T9_STATS_CHECKPOINTS])
{
    head(b, name, "counter", help);
    for (int i = 0; i < T9_STATS_CHECKPOINTS; i++)
        buf_printf(b, "%s{kind=\"%s\"} %" PRIu64 "\n", name, HTTP_CHECKPOINTS[i], v[i]);
}

static void prefix_part(const struct t9_stats *e, struct buf *b)
{
    head(
        b, "tempo9_prefix_requests_total", "counter",
        "Requests by what of their prompt was in the cache: all but its last token, a part, a part "
        "that another request was computing, nothing.");
    buf_printf(b,
               "tempo9_prefix_requests_total{found=\"full\"} %" PRIu64 "\n"
               "tempo9_prefix_requests_total{found=\"partial\"} %" PRIu64 "\n"
               "tempo9_prefix_requests_total{found=\"inflight\"} %" PRIu64 "\n"
               "tempo9_prefix_requests_total{found=\"nothing\"} %" PRIu64 "\n",
               e->prefix_full, e->prefix_partial, e->prefix_inflight, e->prefix_miss);
    counter(b, "tempo9_prefix_given_up_total",
            "Requests that waited too long for another one's beginning and computed it.",
            e->prefix_given_up);
    counter(b, "tempo9_prefix_diverged_total",
            "Prompts that began like a cached text and then left it.", e->prefix_diverged);
    counter(b, "tempo9_prompt_tokens_total",
            "Prompt tokens computed; again after a preemption, too.", e->prompt_tokens);
    counter(b, "tempo9_recomputed_tokens_total", "Of these, tokens lost by a preemption.",
            e->recomputed_tokens);
    counter(b, "tempo9_cached_tokens_total", "Prompt tokens taken from the cache.",
            e->cached_tokens);
    by_checkpoint(b, "tempo9_checkpoints_total", "Recurrent states copied to the cache.",
                  e->checkpoints_kept);
    by_checkpoint(b, "tempo9_checkpoint_hits_total",
                  "Prompts that went on from a kept recurrent state.", e->checkpoint_hits);
}

/* Queries and hits are tokens there. */
static void router_part(const struct t9_stats *e, struct buf *b)
{
    double page = (double)e->kv_page_bytes;
    double state = (double)e->kv_state_bytes;
    double window = (double)e->kv_window_bytes;
    double used = page * e->kv_pages_used + state * e->kv_states_used + window * e->kv_windows_used;
    double all = page * e->kv_pages_total + state * (e->kv_states_used + e->kv_states_kept) +
                 window * (e->kv_windows_used + e->kv_windows_cold);
    double usage = all > 0.0 ? used / all : 0.0;
    one(b, "vllm:num_requests_running", "gauge", "As tempo9_requests_running.", e->running);
    one(b, "vllm:num_requests_waiting", "gauge", "As tempo9_requests_waiting.", e->waiting);
    one(b, "vllm:kv_cache_usage_perc", "gauge", "Share of the KV pool that sequences use, 0 to 1.",
        usage);
    counter(b, "vllm:num_preemptions_total", "As tempo9_preemptions_total.", e->preemptions);
    counter(b, "vllm:prefix_cache_queries_total", "Prompt tokens computed or taken from the cache.",
            e->prompt_tokens + e->cached_tokens);
    counter(b, "vllm:prefix_cache_hits_total", "As tempo9_cached_tokens_total.", e->cached_tokens);
}

static void engine_part(const struct t9_stats *e, struct buf *b)
{
    queue_part(e, b);
    pool_part(e, b);
    prefix_part(e, b);
    counter(b, "tempo9_steps_total", "Engine steps.", e->steps);
    counter(b, "tempo9_rows_total", "Token rows computed in all steps.", e->rows);
    counter(b, "tempo9_generated_tokens_total", "Tokens generated.", e->generated_tokens);
    counter(b, "tempo9_requests_admitted_total", "Requests that began to compute.",
            e->requests_admitted);
    counter(b, "tempo9_requests_expired_total",
            "Requests that ended with an error because their time limit in the queue passed.",
            e->requests_expired);
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
              e->bucket_ms, e->ttft_bucket, e->ttft_sum_ns);
    histogram(b, "tempo9_token_gap_seconds", "Between two tokens of a stream.", e->bucket_ms,
              e->gap_bucket, e->gap_sum_ns);
    router_part(e, b);
}

static void http_part(struct http_server *s, struct buf *b)
{
    struct http_counters *n = &s->n;
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    struct conns_counts c = conns_counts(&s->conns);
    head(b, "tempo9_http_requests_total", "counter", "HTTP requests answered, by status class.");
    for (unsigned i = 1; i < T9_COUNT(n->requests); i++)
        buf_printf(b, "tempo9_http_requests_total{status=\"%uxx\"} %" PRIu64 "\n", i,
                   atomic_load(&n->requests[i]) + c.told[i]);
    counter(b, "tempo9_http_hangups_total", "Clients that left before their answer was complete.",
            atomic_load(&n->hangups));
    counter(b, "tempo9_http_limited_total", "Requests refused with 429: too many of one client.",
            atomic_load(&n->limited));
    counter(b, "tempo9_http_received_bytes_total", "Bytes of request bodies.",
            atomic_load(&n->bytes_in));
    counter(b, "tempo9_http_sent_bytes_total", "Bytes of reply bodies.",
            atomic_load(&n->bytes_out));
    counter(b, "tempo9_http_late_total",
            "Connections closed because a request did not arrive in time.", c.n_late);
    counter(b, "tempo9_http_gave_way_total",
            "Connections closed without a complete request to make room for others.", c.n_gave_way);
    counter(b, "tempo9_http_connections_refused_total", "Connections for which there was no room.",
            c.n_refused);
    one(b, "tempo9_http_connections", "gauge", "Open connections.",
        info ? info->num_connections : 0);
    one(b, "tempo9_http_streams", "gauge", "Streams open now.", (double)atomic_load(&n->streams));
    one(b, "tempo9_http_prep_waiting", "gauge", "Requests that wait to be parsed.",
        (double)atomic_load(&n->prep_waiting));
}

void metrics_write(struct http_server *s, struct buf *out)
{
    struct t9_stats e;
    prep_engine_stats(s->prep, &e);
    engine_part(&e, out);
    http_part(s, out);
}
