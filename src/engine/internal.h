/*
 * engine/internal.h - private to engine/: what the engine's own files share.
 *
 * engine.c is what other threads call; loop.c is the engine thread and its steps, queue.c who
 * waits and who starts, seq.c the slots and their pages, checkpoint.c where states of hybrid models
 * are kept, state.c the snapshot. Each field of struct engine says who writes it.
 */
#ifndef T9_ENGINE_INTERNAL_H
#define T9_ENGINE_INTERNAL_H

#include "base/queue.h"
#include "base/thread.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/sched.h"
#include "engine/signal.h"
#include "engine/testing.h"
#include "kv/checkpoint.h"
#include "kv/prefix.h"
#include "kv/state.h"
#include "sample/sample.h"

#include <stdatomic.h>

/* Counters of struct engine_stats: one writer, the engine thread; any reader. */
struct engine_counters {
    _Atomic uint64_t steps, rows;
    _Atomic uint64_t prompt_tokens, cached_tokens, generated_tokens, recomputed_tokens;
    _Atomic uint64_t requests_admitted, requests_expired;
    _Atomic uint64_t requests_ended[FINISH_REASON_ERROR + 1]; /* by finish_reason */
    _Atomic uint64_t prefix_full, prefix_partial, prefix_inflight, prefix_miss;
    _Atomic uint64_t prefix_given_up, prefix_diverged, preemptions;
    _Atomic uint64_t checkpoints_kept[CKPT_KINDS], checkpoint_hits[CKPT_KINDS];
    _Atomic uint64_t queue_ns, prefill_ns, decode_ns, step_ns;
    _Atomic uint64_t ttft_bucket[16], gap_bucket[16];
    _Atomic uint64_t ttft_count, gap_count, ttft_sum_ns, gap_sum_ns;
    /* Gauges, doubles as their bits. */
    _Atomic uint64_t cost_step_ns, cost_row_ns, cost_key_ns, cost_experts_ns, decode_step_ns;
};

/* A sequence slot. Engine thread only. Its first hold.n_pages pages are the tree's, shared; the
 * ones after them are its own. */
struct seq {
    struct request *req; /* NULL = free */
    bool waits;          /* REQ_STATE_PREFIX: gets no rows yet */
    bool was_shared;     /* pages came while it waited */
    bool spoilt;         /* what it has computed is not numbers */
    int32_t n_known;     /* tokens known: prompt and log */
    int32_t n_computed;  /* tokens whose keys and values are in the pages */
    int32_t n_pages;     /* in its page table */
    int32_t window_from; /* of these, from this one on its window pages are there */
    int32_t output;      /* index of its last row's logits in this step, -1 = none */
    int32_t branch_at; /* up to there its text is cached, but cannot be resumed; 0 = not further */
    /* Of hybrid models: */
    int32_t state;       /* its recurrent state while it runs, after n_computed tokens; -1 = none */
    int32_t ckpt_at;     /* tokens up to the last checkpoint on its way */
    int32_t ckpt_next;   /* ... and to the next one; ends a step */
    ckpt_kind ckpt_kind; /* of the next one */
    int32_t wait_slot;   /* who computes what it waits for, -1 = nobody */
    int32_t wait_at;     /* where that one leaves a state for it */
    int32_t wait_seen;   /* how far that one was when it was looked at last */
    uint64_t wait_id;    /* that one's request */
    struct kv_match match;  /* the last one, while it waits, and ... */
    uint64_t match_changes; /* ... kv_tree_state_changes then */
    struct kv_hold hold;
    uint64_t give_up_ns; /* waits no longer than until then ... */
    uint64_t moved_step; /* ... nor PREFIX_PATIENCE_STEPS after the last page that came */
};

/* The snapshot for engine_state_read: a version, odd while it is written, and words that are
 * stored and loaded one by one, so that a torn copy is noticed and taken again. */
struct state_box {
    _Atomic uint64_t version;
    _Atomic uint64_t word[(sizeof(struct engine_state) + 7) / 8];
};

struct engine {
    struct engine_params p; /* constant */
    const struct model_info *info;
    struct kv_geom geom;
    uint64_t state_bytes; /* of the budget, of one state; 0: the model has none */
    int32_t window_pages; /* of one sequence at one time, at most; 0: the model has none */
    int32_t max_length, n_sampled_vocab;
    int32_t n_slots; /* max_batch that run and as many that wait for a prefix */
    engine_logits_hook hook;
    void *hook_ctx;
    engine_step_hook step_hook;
    void *step_hook_ctx;

    /* ---- engine thread ---- */
    struct kv_pool *pool;
    struct kv_tree *tree; /* NULL = no cache */
    struct batch_buf batch;
    struct sampler *sampler;
    struct tape tape;
    struct scratch scratch;
    struct seq *seqs;        /* [n_slots] */
    struct sched_seq *sched; /* [n_slots], parallel to seqs */
    int32_t *known; /* [n_slots][max_length] prompt and log of each slot, one after another */
    size_t known_bytes;
    struct sched_cost cost;
    struct sched_fit fit;
    double decode_step_ns, reply_tokens; /* moving averages; tokens of a finished reply */
    int32_t n_running_now, n_prefix_now, n_preempted_now;
    uint64_t step;
    struct request *waiting; /* by priority, then by id */
    uint64_t blocked_id;     /* this request had no room when there was room for ... */
    int64_t blocked_room;    /* ... so many bytes; 0 = none */
    bool trimmed;            /* since something used pages */
    char *plan_line;         /* NULL without plan log */
    struct state_box *state;
    struct engine_state *state_next;
    struct kv_hold *check_holds; /* [n_slots], for engine_check */

    /* ---- shared ---- */
    struct ring *ring; /* submitted requests */
    struct thread thread;
    _Atomic uint64_t n_submitted; /* the newest request's id */
    _Atomic int32_t n_waiting;    /* submitted or preempted, in no slot, not ended */
    _Atomic int32_t n_running, n_prefix, n_preempted;
    _Atomic int32_t n_open;                     /* submitted, not ended */
    _Atomic int64_t waiting_tokens;             /* prompts of what waits */
    _Atomic uint64_t prompt_token_ns, reply_ns; /* estimates for engine_retry_after_s */
    atomic_bool draining, stopping;
    atomic_bool failed;      /* release-stored after fail_err */
    _Atomic int32_t started; /* 0 = not yet, 1 = ready, -1 = the first step failed */
    struct t9_err fail_err;
    struct signal_word signal;
    struct engine_counters n;
};

/* ---- loop.c ---- */

/* The engine thread's function; `arg` is the engine. */
void loop_main(void *arg);
/* Ends a request that is in no slot and no list, and gives it back to its caller. */
void loop_end_request(struct engine *e, struct request *r, finish_reason reason,
                      const struct t9_err *err);
/* Tells the reader that something is new; at most one notification is under way per request. */
void loop_notify(struct request *r);
void loop_set_clock(_Atomic uint64_t *clock, uint64_t now_ns);

/* ---- queue.c ---- */

/* Moves what was submitted to the waiting list. */
void queue_take_submitted(struct engine *e);
/* Puts a request that comes back to its place in the list. */
void queue_insert(struct engine *e, struct request *r);
/* Ends waiting requests: all, or those that are cancelled or past their deadline. */
void queue_end_all(struct engine *e, finish_reason reason, const struct t9_err *err);
void queue_end_some(struct engine *e, uint64_t now_ns);
/* Starts what can start. Afterwards something runs if anything is there at all. */
void queue_admit(struct engine *e);

/* ---- checkpoint.c: of hybrid models ---- */

/* Before a plan: limits the rows of sequences so that the step ends where a state is to be kept. */
void checkpoint_plan(struct engine *e);
/* After a step: keeps the slot's state if it has come to such a place and there is room. */
void checkpoint_keep(struct engine *e, int32_t slot, uint64_t now_ns);
/* Whether the last match of a slot that waits is what another one would find: no state has come or
 * gone, nor the one that it waits for. */
bool checkpoint_match_holds(const struct engine *e, int32_t slot);
/* After a match: `pending` when somebody who runs will leave a state further on. */
void checkpoint_look(struct engine *e, int32_t slot, struct kv_match *m);

/* ---- checkpoint.c: of models with window pages ---- */

/* The slot's hold has grown by a page: keeps the windows there if prompts may go on from it. */
void checkpoint_keep_windows(struct engine *e, int32_t slot, uint64_t now_ns);

/* ---- seq.c ---- */

int32_t *seq_known(const struct engine *e, int32_t slot);
/* Whether the logits of each token of the prompt are still wanted: then the cache is of no use, as
 * it brings no logits. */
bool seq_wants_all_rows(const struct request *r);
/* Puts a request into a free slot: known tokens, nothing computed, no pages. */
void seq_place(struct engine *e, int32_t slot, struct request *r);
/* Extends the slot's hold along its known tokens. */
struct kv_match seq_match(struct engine *e, int32_t slot, uint64_t now_ns);
/* From now on it gets rows; m is its last match, and nothing was taken from the pool since. False
 * when no state can be had: then nothing has changed. */
bool seq_start(struct engine *e, int32_t slot, const struct kv_match *m, uint64_t now_ns);
/* Empties a slot; what was computed stays as cache. The request is the caller's. */
void seq_leave(struct engine *e, int32_t slot);
/* What the slot has computed is not numbers: when it ends, nothing of it stays but what others have
 * proven. Those that wait for a prefix look for it anew. */
void seq_spoil(struct engine *e, int32_t slot);
void seq_end(struct engine *e, int32_t slot, finish_reason reason, const struct t9_err *err);
/* Ends sequences: all, or those that are cancelled or wait past their deadline. */
void seq_end_all(struct engine *e, finish_reason reason, const struct t9_err *err);
void seq_end_some(struct engine *e, uint64_t now_ns);
/* Makes the pages of all planned rows present; drops cache and preempts for it. Slots that were
 * preempted have no rows any more. */
t9_status seq_grow_all(struct engine *e, struct t9_err *err);
/* Gives pages that were filled by now to the tree. */
t9_status seq_keep_pages(struct engine *e, int32_t slot, uint64_t now_ns, struct t9_err *err);
/* Bytes of the pool that are free or hold cache that nobody uses. */
int64_t seq_bytes_to_be_had(const struct engine *e);
/* The error of a request whose deadline has passed. */
void seq_expired_error(const struct engine *e, const struct request *r, uint64_t now_ns,
                       struct t9_err *err);

/* ---- state.c, stats.c ---- */

/* Writes the snapshot. */
void state_publish(struct engine *e, uint64_t now_ns);
void stats_count(_Atomic uint64_t *counter, uint64_t n);
/* A first token, or the next one `ns` after the one before. */
void stats_ttft(struct engine_counters *n, uint64_t ns);
void stats_gap(struct engine_counters *n, uint64_t ns);
void stats_ended(struct engine_counters *n, const struct request *r, finish_reason reason);
/* Publishes the cost model and what engine_retry_after_s needs. */
void stats_cost(struct engine *e);

#endif
