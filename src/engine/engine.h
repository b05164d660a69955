/*
 * engine/engine.h - the engine: one thread that owns scheduler, KV pages, backend and sampling
 * (decisions D3, D4). Knows tokens only.
 *
 * There is no prefill phase and no decode phase: every sequence has tokens wanted and tokens
 * computed; each step hands out a time budget, one row to every decoding sequence first, then
 * chunks of prompts. What was computed once stays in a prefix tree (kv/prefix.h) and is shared;
 * when pages run out, one running request at a time goes back to the queue and is resumed later,
 * with the same text.
 */
#ifndef T9_ENGINE_ENGINE_H
#define T9_ENGINE_ENGINE_H

#include "backend/be.h"
#include "backend/kv_geom.h"
#include "base/err.h"
#include "engine/request.h"
#include "engine/stats.h"
#include "model/model.h"
#include "tokenizer/vocab.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;

/* A prompt that began like a cached text and left it at token `at`: some tokens of both from there
 * on. */
struct engine_divergence {
    uint64_t request_id;
    int32_t at;
    const int32_t *cached, *asked; /* valid during the call */
    int32_t n_cached, n_asked;
};

struct engine_params {
    struct model *model; /* all three outlive the engine */
    struct be *be;
    const struct vocab *vocab; /* end-of-generation tokens */
    kv_type kv_type;
    uint64_t kv_bytes;   /* budget of pages and recurrent states */
    int32_t max_length;  /* tokens of one request, prompt and reply; 0: the model's own limit */
    int32_t max_batch;   /* sequences running at once */
    int32_t step_tokens; /* rows of one step at most (prefill chunk + decode rows) */
    int32_t queue_cap;   /* waiting requests; beyond it engine_submit answers BUSY */
    int32_t max_running_per_key; /* of one request.client_key at once; 0 = no limit */
    bool no_prefix_cache;        /* nothing is kept or shared */
    int32_t cache_idle_ms;       /* unpinned cache is dropped after so long idle; 0 = never */
    /* Called on the engine thread with one line of JSON per step (plan_log.h), without a line feed;
     * the text lives until the call returns. NULL = off. */
    void (*plan_log)(void *ctx, const char *line, size_t n);
    void *plan_log_ctx;
    /* Called on the engine thread at log level debug. NULL = off. */
    void (*diverged)(void *ctx, const struct engine_divergence *d);
    void *diverged_ctx;
};

/* max_batch 16, step_tokens 256, queue_cap 256, cache_idle_ms 10 minutes; the rest off */
void engine_params_init(struct engine_params *p);
/* Allocates everything, runs one warm-up step, starts the thread. */
t9_status engine_new(struct engine **out, const struct engine_params *p, struct t9_err *err);
/* Cancels what runs, joins the thread, frees. Requests still submitted end with CANCELLED first. */
void engine_free(struct engine *e);

/* Any thread; never blocks. INVALID when prompt + 1 token exceed the limit (names prompt tokens,
 * limit and the ways out) or can never fit the pool; BUSY when the queue is full. max_tokens is
 * clamped by the caller with engine_max_tokens first. */
t9_status engine_submit(struct engine *e, struct request *r, struct t9_err *err);
/* Any thread: sets the flag and wakes the engine; the sequence stops within two steps. */
void engine_cancel(struct engine *e, struct request *r);
/* Largest max_tokens a prompt of n_prompt tokens can have; 0 when it does not fit. */
int32_t engine_max_tokens(const struct engine *e, int32_t n_prompt);

/* Blocks until request_next would return something, the request ended, or timeout_ms passed (-1 =
 * none). For callers without a notify function (command line, tests). */
bool engine_wait(struct engine *e, struct request *r, const struct event_cursor *c, int timeout_ms);
/* Stops admitting (BUSY), lets running requests end; true when all ended within timeout_ms. */
bool engine_drain(struct engine *e, int timeout_ms);

int32_t engine_max_length(const struct engine *e);
/* What that limit comes from and what raises it, in words for a message; static text. */
const char *engine_limit_reason(const struct engine *e);
/* What max_tokens may be at most: engine_max_tokens, and 1 beside a prompt that fills the limit
 * when it is prompt_only. */
static inline int32_t engine_room(const struct engine *e, int32_t n_prompt, bool prompt_only)
{
    return prompt_only && n_prompt == engine_max_length(e) ? 1 : engine_max_tokens(e, n_prompt);
}
/* Any thread: seconds after which a request that was refused now has a fair chance, from what waits
 * and how fast it is being worked off; 1 to 600. */
int32_t engine_retry_after_s(const struct engine *e);
/* Any thread, no lock shared with the step. */
void engine_stats_read(const struct engine *e, struct engine_stats *out);

/* For tests of P1: called on the engine thread with every row of logits before anything changes it.
 * `position` is the index of the token that the row predicts. Set before the first submit. */
typedef void (*engine_logits_hook)(void *ctx, const struct request *r, int32_t position,
                                   const float *logits, int32_t n_vocab);
void engine_set_logits_hook(struct engine *e, engine_logits_hook hook, void *ctx);

/* ---- whole-prompt evaluation for `eval`, `perplexity` and tests: no scheduler, same forward ----
 */
struct eval_params {
    struct model *model;
    struct be *be;
    kv_type kv_type;
    int32_t chunk;     /* tokens per forward; 0 = 256 */
    int32_t first_row; /* rows of positions before it are computed, but have no logits */
};
/* Calls `row` with f32 logits [n_vocab] of position first_row, ... n - 1; a false return stops it.
 */
t9_status eval_logits(const struct eval_params *p, const int32_t *tokens, int32_t n,
                      bool (*row)(void *ctx, int32_t position, const float *logits), void *ctx,
                      struct t9_err *err);

#endif
