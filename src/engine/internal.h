/*
 * engine/internal.h - private to engine/: what the engine's own files share.
 *
 * engine.c is what other threads call, loop.c is the engine thread. Each field of struct engine
 * says who writes it.
 */
#ifndef T9_ENGINE_INTERNAL_H
#define T9_ENGINE_INTERNAL_H

#include "base/queue.h"
#include "base/thread.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/sched.h"
#include "engine/signal.h"
#include "kv/kv.h"
#include "sample/sample.h"

#include <stdatomic.h>

/* Counters of struct engine_stats: one writer, the engine thread; any reader. */
struct engine_counters {
    _Atomic uint64_t steps, rows;
    _Atomic uint64_t prompt_tokens, cached_tokens, generated_tokens;
    _Atomic uint64_t requests_admitted;
    _Atomic uint64_t requests_ended[FINISH_REASON_ERROR + 1]; /* by finish_reason */
    _Atomic uint64_t queue_ns, prefill_ns, decode_ns, step_ns;
    _Atomic uint64_t ttft_bucket[16], gap_bucket[16];
    _Atomic uint64_t ttft_count, gap_count, ttft_sum_ns, gap_sum_ns;
};

/* A sequence slot. Engine thread only. */
struct seq {
    struct request *req; /* NULL = free */
    int32_t n_known;     /* tokens known: prompt and log */
    int32_t n_computed;  /* tokens whose keys and values are in the pages */
    int32_t n_pages;     /* in use */
    int32_t n_reserved;  /* pages that it may need at most */
    int32_t output;      /* index of its logits in this step, -1 = none */
};

struct engine {
    struct engine_params p; /* constant */
    const struct model_info *info;
    struct kv_geom geom;
    int32_t max_length, n_sampled_vocab;
    engine_logits_hook hook;
    void *hook_ctx;

    /* ---- engine thread ---- */
    struct kv_pool *pool;
    struct batch_buf batch;
    struct sampler *sampler;
    struct tape tape;
    struct scratch scratch;
    struct seq *seqs;        /* [max_batch] */
    struct sched_seq *sched; /* [max_batch], parallel to seqs */
    struct sched_cost cost;
    int32_t n_running_now, n_reserved_pages;
    uint64_t n_admitted, step;
    struct request *waiting; /* by priority, then first come first served */
    bool trimmed;

    /* ---- shared ---- */
    struct ring *ring; /* submitted requests */
    struct thread thread;
    _Atomic int32_t n_waiting; /* submitted, not admitted, not ended */
    _Atomic int32_t n_running;
    _Atomic int32_t n_open; /* submitted, not ended */
    atomic_bool draining, stopping;
    atomic_bool failed;      /* release-stored after fail_err */
    _Atomic int32_t started; /* 0 = not yet, 1 = ready, -1 = the first step failed */
    struct t9_err fail_err;
    struct signal_word signal;
    struct engine_counters n;
};

/* The engine thread's function; `arg` is the engine. */
void loop_main(void *arg);
/* Ends a request that is in no slot and no list, and gives it back to its caller. */
void loop_end_request(struct engine *e, struct request *r, finish_reason reason,
                      const struct t9_err *err);

void stats_count(_Atomic uint64_t *counter, uint64_t n);
/* A first token, or the next one `ns` after the one before. */
void stats_ttft(struct engine_counters *n, uint64_t ns);
void stats_gap(struct engine_counters *n, uint64_t ns);
void stats_ended(struct engine_counters *n, const struct request *r, finish_reason reason);

#endif
