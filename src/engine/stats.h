/*
 * engine/stats.h - what the engine counts. The only engine header that http may include. Counters
 * are written by the engine thread with relaxed atomics and read by any thread.
 */
#ifndef T9_ENGINE_STATS_H
#define T9_ENGINE_STATS_H

#include <stdint.h>

struct engine_stats {
    /* gauges */
    int32_t running, waiting;
    int32_t kv_pages_total, kv_pages_used;
    uint64_t kv_page_bytes;
    /* counters */
    uint64_t steps, rows;
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t requests_admitted, requests_stop, requests_length, requests_cancelled, requests_error;
    /* sums of phases in ns, over finished requests: divide by the counters above */
    uint64_t queue_ns, prefill_ns, decode_ns, step_ns;
    /* histogram of the time to the first token (from `received` when set, else `queued`) and of the
     * gap between two tokens of a stream; bucket i counts values <= STATS_BUCKET_MS[i] */
    uint64_t ttft_bucket[16], gap_bucket[16];
    uint64_t ttft_count, gap_count, ttft_sum_ns, gap_sum_ns;
};

/* Upper bounds in ms; the last bucket has none. */
extern const double STATS_BUCKET_MS[15];

#endif
