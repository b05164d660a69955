/*
 * engine/stats.c - counters and histograms. Written by the engine thread alone, so an addition is a
 * relaxed load and a relaxed store; read by any thread.
 */
#include "engine/stats.h"

#include "engine/internal.h"

#include <string.h>

const double STATS_BUCKET_MS[15] = {1,   2,    5,    10,   20,    50,    100,  200,
                                    500, 1000, 2000, 5000, 10000, 30000, 60000};

_Static_assert((int)STATS_CHECKPOINTS == (int)CKPT_KINDS, "kinds of checkpoints");

static uint64_t get(const _Atomic uint64_t *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

void stats_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, get(counter) + n, memory_order_relaxed);
}

static void observe(_Atomic uint64_t *buckets, uint64_t ns)
{
    size_t i = 0;
    while (i < T9_COUNT(STATS_BUCKET_MS) && (double)ns > STATS_BUCKET_MS[i] * 1e6)
        i++;
    stats_count(&buckets[i], 1);
}

void stats_ttft(struct engine_counters *n, uint64_t ns)
{
    observe(n->ttft_bucket, ns);
    stats_count(&n->ttft_count, 1);
    stats_count(&n->ttft_sum_ns, ns);
}

void stats_gap(struct engine_counters *n, uint64_t ns)
{
    observe(n->gap_bucket, ns);
    stats_count(&n->gap_count, 1);
    stats_count(&n->gap_sum_ns, ns);
}

/* Adds the length of a phase that was begun and ended. */
static void phase(_Atomic uint64_t *sum, uint64_t begin_ns, uint64_t end_ns)
{
    if (begin_ns != 0 && end_ns > begin_ns)
        stats_count(sum, end_ns - begin_ns);
}

void stats_ended(struct engine_counters *n, const struct request *r, finish_reason reason)
{
    uint64_t admitted = get(&r->clocks.admitted);
    uint64_t prefilled = get(&r->clocks.prefilled);
    stats_count(&n->requests_ended[reason], 1);
    phase(&n->queue_ns, get(&r->clocks.queued), admitted);
    phase(&n->prefill_ns, admitted, prefilled);
    phase(&n->decode_ns, prefilled, get(&r->clocks.last_token));
}

static void put_double(_Atomic uint64_t *to, double v)
{
    uint64_t u;
    memcpy(&u, &v, sizeof u);
    atomic_store_explicit(to, u, memory_order_relaxed);
}

static double get_double(const _Atomic uint64_t *from)
{
    uint64_t u = get(from);
    double v;
    memcpy(&v, &u, sizeof v);
    return v;
}

void stats_cost(struct engine *e)
{
    put_double(&e->n.cost_step_ns, e->cost.stretch * e->cost.step_ns);
    put_double(&e->n.cost_row_ns, e->cost.stretch * e->cost.row_ns);
    put_double(&e->n.cost_key_ns, e->cost.stretch * e->cost.key_ns);
    put_double(&e->n.cost_experts_ns, e->cost.stretch * e->cost.experts_ns);
    put_double(&e->n.decode_step_ns, e->decode_step_ns);
    int32_t chunk = e->p.step_tokens;
    atomic_store_explicit(&e->prompt_token_ns,
                          (uint64_t)(sched_prompt_ns(&e->cost, 0, chunk, chunk) / chunk),
                          memory_order_relaxed);
    atomic_store_explicit(&e->reply_ns,
                          (uint64_t)(e->reply_tokens * e->decode_step_ns / e->p.max_batch),
                          memory_order_relaxed);
}

void engine_stats_read(const struct engine *e, struct engine_stats *out)
{
    const struct engine_counters *n = &e->n;
    struct kv_pool_stats kv = kv_pool_stats(e->pool);
    struct kv_tree_stats tree = {0};
    if (e->tree)
        tree = kv_tree_stats(e->tree);
    int32_t cold = tree.cold_pages < kv.pages_used ? tree.cold_pages : kv.pages_used;
    int32_t kept = tree.states < kv.states_used ? tree.states : kv.states_used;
    int32_t cold_windows =
        tree.cold_windows < kv.windows_used ? tree.cold_windows : kv.windows_used;
    int32_t pages_free = (int32_t)(kv.free_bytes / kv.page_bytes);
    *out = (struct engine_stats){
        .running = atomic_load_explicit(&e->n_running, memory_order_relaxed),
        .waiting = atomic_load_explicit(&e->n_waiting, memory_order_relaxed),
        .waiting_prefix = atomic_load_explicit(&e->n_prefix, memory_order_relaxed),
        .waiting_preempted = atomic_load_explicit(&e->n_preempted, memory_order_relaxed),
        .kv_pages_total = kv.pages_used + pages_free,
        .kv_pages_used = kv.pages_used - cold,
        .kv_pages_cold = cold,
        .kv_pages_pinned = tree.pinned_pages,
        .kv_pages_free = pages_free,
        .kv_page_bytes = kv.page_bytes,
        .kv_states_used = kv.states_used - kept,
        .kv_states_kept = kept,
        .kv_state_bytes = kv.state_bytes,
        .kv_windows_used = kv.windows_used - cold_windows,
        .kv_windows_cold = cold_windows,
        .kv_window_bytes = kv.window_bytes,
        .cost_step_ns = get_double(&n->cost_step_ns),
        .cost_row_ns = get_double(&n->cost_row_ns),
        .cost_key_ns = get_double(&n->cost_key_ns),
        .cost_experts_ns = get_double(&n->cost_experts_ns),
        .decode_step_ns = get_double(&n->decode_step_ns),
        .recomputed_tokens = get(&n->recomputed_tokens),
        .requests_expired = get(&n->requests_expired),
        .prefix_full = get(&n->prefix_full),
        .prefix_partial = get(&n->prefix_partial),
        .prefix_inflight = get(&n->prefix_inflight),
        .prefix_miss = get(&n->prefix_miss),
        .prefix_given_up = get(&n->prefix_given_up),
        .prefix_diverged = get(&n->prefix_diverged),
        .preemptions = get(&n->preemptions),
        .evicted_pages = tree.evicted_pages,
        .evicted_states = tree.evicted_states,
        .evicted_windows = tree.evicted_windows,
        .steps = get(&n->steps),
        .rows = get(&n->rows),
        .prompt_tokens = get(&n->prompt_tokens),
        .cached_tokens = get(&n->cached_tokens),
        .generated_tokens = get(&n->generated_tokens),
        .requests_admitted = get(&n->requests_admitted),
        .requests_stop = get(&n->requests_ended[FINISH_REASON_STOP]),
        .requests_length = get(&n->requests_ended[FINISH_REASON_LENGTH]),
        .requests_cancelled = get(&n->requests_ended[FINISH_REASON_CANCELLED]),
        .requests_error = get(&n->requests_ended[FINISH_REASON_ERROR]),
        .queue_ns = get(&n->queue_ns),
        .prefill_ns = get(&n->prefill_ns),
        .decode_ns = get(&n->decode_ns),
        .step_ns = get(&n->step_ns),
        .ttft_count = get(&n->ttft_count),
        .gap_count = get(&n->gap_count),
        .ttft_sum_ns = get(&n->ttft_sum_ns),
        .gap_sum_ns = get(&n->gap_sum_ns),
    };
    for (int i = 0; i < STATS_CHECKPOINTS; i++) {
        out->checkpoints_kept[i] = get(&n->checkpoints_kept[i]);
        out->checkpoint_hits[i] = get(&n->checkpoint_hits[i]);
    }
    for (size_t i = 0; i < T9_COUNT(out->ttft_bucket); i++) {
        out->ttft_bucket[i] = get(&n->ttft_bucket[i]);
        out->gap_bucket[i] = get(&n->gap_bucket[i]);
    }
}
