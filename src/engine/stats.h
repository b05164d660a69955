/*
 * engine/stats.h - what the engine counts. The only engine header that http may include. Counters
 * are written by the engine thread with relaxed atomics and read by any thread.
 */
#ifndef T9_ENGINE_STATS_H
#define T9_ENGINE_STATS_H

#include <stdint.h>

struct engine;

enum { STATS_CHECKPOINTS = 5 };

struct engine_stats {
    /* gauges. `waiting` is all that is in the queue, `waiting_preempted` of them were running
     * before; `waiting_prefix` are beside it and wait for another request to compute their prefix.
     */
    int32_t running, waiting, waiting_prefix, waiting_preempted;
    /* total = used (by sequences) + cold (cache that nobody uses) + free; pinned is part of cold
     * and used. What states and window pages take is not part of total. */
    int32_t kv_pages_total, kv_pages_used, kv_pages_cold, kv_pages_pinned, kv_pages_free;
    uint64_t kv_page_bytes;
    /* Recurrent states of hybrid models, of sequences and kept in the cache; bytes of one. */
    int32_t kv_states_used, kv_states_kept;
    uint64_t kv_state_bytes;
    /* Window pages (kv/kv.h) that sequences need, others in the cache; bytes of one. */
    int32_t kv_windows_used, kv_windows_cold;
    uint64_t kv_window_bytes;
    /* The scheduler's cost model: a step takes step + rows * row + attended keys * key. */
    double cost_step_ns, cost_row_ns, cost_key_ns, cost_experts_ns;
    double decode_step_ns; /* a step without prompt rows, moving average */
    /* counters */
    uint64_t steps, rows;
    /* Prompt tokens computed (again after a preemption, too), taken from the cache, and sampled. */
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t recomputed_tokens; /* of prompt_tokens: lost by a preemption */
    uint64_t requests_admitted, requests_stop, requests_length, requests_cancelled, requests_error;
    uint64_t requests_expired; /* of requests_error: their deadline passed in the queue */
    /* Each admitted request counts once: all but the last token of its prompt from the cache; a
     * part of it; a part that another request computed while it waited; nothing. */
    uint64_t prefix_full, prefix_partial, prefix_inflight, prefix_miss;
    uint64_t prefix_given_up; /* waited too long for another request and computed itself */
    uint64_t prefix_diverged; /* prompts that left a cached text at some token */
    uint64_t preemptions, evicted_pages, evicted_states, evicted_windows;
    /* By ckpt_kind: states copied to the cache; prompts that went on from one. */
    uint64_t checkpoints_kept[STATS_CHECKPOINTS], checkpoint_hits[STATS_CHECKPOINTS];
    /* sums of phases in ns, over finished requests: divide by the counters above */
    uint64_t queue_ns, prefill_ns, decode_ns, step_ns;
    /* histogram of the time to the first token (from `received` when set, else `queued`) and of the
     * gap between two tokens of a stream; bucket i counts values <= STATS_BUCKET_MS[i] */
    uint64_t ttft_bucket[16], gap_bucket[16];
    uint64_t ttft_count, gap_count, ttft_sum_ns, gap_sum_ns;
};

/* Upper bounds in ms; the last bucket has none. */
extern const double STATS_BUCKET_MS[15];

/* ---- what the engine is doing, for people ---- */

enum { ENGINE_STATE_SEQS_MAX = 64 };

struct engine_state_seq {
    uint64_t id;       /* request.id */
    const char *state; /* req_state_name */
    uint64_t age_ns;   /* since it was submitted */
    int32_t priority;
    int32_t n_prompt, n_prefilled, n_cached, n_tokens, max_tokens;
    int32_t n_pages;     /* held, shared ones too */
    int32_t n_preempted; /* times */
};

/* As of the end of a step, or of the moment before the engine went to sleep. */
struct engine_state {
    uint64_t step, at_ns;
    int32_t pages_total, pages_free, pages_cold, pages_pinned;
    int32_t states_used, states_kept; /* of sequences, in the cache */
    int32_t tree_nodes, tree_tails, tree_promised;
    int32_t n_running, n_prefix, n_waiting, n_preempted; /* waiting includes preempted */
    double cost_step_ns, cost_row_ns, cost_key_ns, cost_experts_ns, decode_step_ns;
    /* Running and PREFIX ones, and the head of the queue in its order; both cut at the maximum. */
    int32_t n_seqs, n_queue;
    struct engine_state_seq seqs[ENGINE_STATE_SEQS_MAX];
    struct engine_state_seq queue[ENGINE_STATE_SEQS_MAX];
};

/* Any thread, no lock shared with the step: copies the newest snapshot. */
void engine_state_read(const struct engine *e, struct engine_state *out);

#endif
