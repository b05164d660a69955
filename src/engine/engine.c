/*
 * engine/engine.c - what other threads call: starting and ending the engine, submitting,
 * cancelling, waiting. Nothing here touches a sequence; requests go through the ring to loop.c.
 */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "engine/internal.h"
#include "engine/plan_log.h"

#include <limits.h>
#include <stdio.h>

#define ATTENTION_SLOWER 4.0
#define EXPERTS_SLOWER   3.0 /* to read a weight beside using it once */

enum {
    MAX_BATCH_MAX = 1024,
    STEP_TOKENS_MAX = 65536,
    QUEUE_CAP_MAX = 1 << 20,
    CACHE_IDLE_MS = 600000,
    RETRY_AFTER_MAX_S = 600,
    SLOTS_PER_SEQ = 2, /* one that runs, one that waits for a prefix */
};

void engine_params_init(struct engine_params *p)
{
    *p = (struct engine_params){.kv_type = KV_TYPE_F16,
                                .max_batch = 16,
                                .step_tokens = 256,
                                .queue_cap = 256,
                                .cache_idle_ms = CACHE_IDLE_MS};
}

static t9_status check_range(const char *name, int32_t v, int32_t max, struct t9_err *err)
{
    if (v >= 1 && v <= max)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_INVALID, "engine: %s must be within 1 and %d, got %d", name, max,
                   v);
}

static t9_status check_params(const struct engine_params *p, struct t9_err *err)
{
    T9_TRY(check_range("max_batch", p->max_batch, MAX_BATCH_MAX, err));
    T9_TRY(check_range("step_tokens", p->step_tokens, STEP_TOKENS_MAX, err));
    T9_TRY(check_range("queue_cap", p->queue_cap, QUEUE_CAP_MAX, err));
    if (p->max_running_per_key < 0 || p->cache_idle_ms < 0)
        return t9_fail(err, T9_STATUS_INVALID,
                       "engine: max_running_per_key and cache_idle_ms must not be negative");
    if (p->max_length != 0)
        T9_TRY(check_range("max_length", p->max_length, INT32_MAX - KV_PAGE_TOKENS, err));
    return T9_STATUS_OK;
}

/* The slots, what is known of them to the scheduler and to readers, and their tokens. */
static t9_status alloc_slots(struct engine *e, struct t9_err *err)
{
    size_t n = (size_t)e->n_slots;
    e->seqs = mem_calloc(n, sizeof *e->seqs);
    e->sched = mem_calloc(n, sizeof *e->sched);
    e->check_holds = mem_calloc(n, sizeof *e->check_holds);
    e->state = mem_calloc(1, sizeof *e->state);
    e->state_next = mem_calloc(1, sizeof *e->state_next);
    if (e->p.plan_log)
        e->plan_line = mem_alloc(plan_log_line_cap(e->n_slots));
    if (!e->seqs || !e->sched || !e->check_holds || !e->state || !e->state_next ||
        (e->p.plan_log && !e->plan_line))
        return t9_fail(err, T9_STATUS_NOMEM, "engine: out of memory");
    void *mem;
    size_t bytes = n * (size_t)e->max_length * sizeof *e->known;
    T9_TRY(be_reserve(e->p.be, bytes, &mem, err));
    e->known = mem;
    e->known_bytes = bytes;
    return T9_STATUS_OK;
}

static t9_status alloc_tree(struct engine *e, struct t9_err *err)
{
    char salt[160];
    if (e->p.no_prefix_cache)
        return T9_STATUS_OK;
    int n =
        snprintf(salt, sizeof salt, "%.24s %s %.*s %llu %s", be_numerics(e->p.be), e->info->arch,
                 e->info->name.n > 64 ? 64 : (int)e->info->name.n, e->info->name.p,
                 (unsigned long long)e->info->n_params, kv_type_name(e->p.kv_type));
    return kv_tree_new(&e->tree, e->pool, (str){salt, (size_t)n}, err);
}

/* What was asked for, before the memory had its say. */
static int32_t wanted_length(const struct engine *e)
{
    return e->p.max_length > 0 ? e->p.max_length : e->info->context_length;
}

/* Tokens of the longest sequence that fits the pool: of window pages it needs only so many. */
static int64_t pool_tokens(const struct engine *e)
{
    uint64_t bytes = kv_pool_stats(e->pool).free_bytes - e->state_bytes;
    uint64_t windows = (uint64_t)e->window_pages;
    uint64_t pages = bytes / kv_geom_bytes(&e->geom);
    if (pages > windows)
        pages = (bytes - windows * e->geom.window_bytes) / e->geom.page_bytes;
    return (int64_t)pages * KV_PAGE_TOKENS;
}

/* Everything that a step uses, sized by the step and the pool's budget. */
static t9_status alloc_step(struct engine *e, struct t9_err *err)
{
    const struct engine_params *p = &e->p;
    T9_TRY(model_kv_geom(p->model, p->kv_type, &e->geom, err));
    T9_TRY(kv_pool_new(&e->pool, p->be, &e->geom, p->kv_bytes, err));
    struct state_geom state;
    model_state_geom(p->model, &state);
    T9_TRY(kv_pool_add_states(e->pool, &state, err));
    e->state_bytes = kv_state_bytes(e->pool);
    if (e->geom.window > 0)
        e->window_pages =
            kv_window_span(&e->geom) + sched_pages((int64_t)p->step_tokens + KV_PAGE_TOKENS - 1);
    int64_t most = pool_tokens(e);
    e->max_length = wanted_length(e);
    if (e->max_length < 2)
        return t9_fail(err, T9_STATUS_INVALID,
                       "a request of %d token (the model's context_length, or --max-length) has no "
                       "room for a prompt and a reply: 2 is the least",
                       e->max_length);
    if (e->max_length > most)
        e->max_length =
            most > INT32_MAX - KV_PAGE_TOKENS ? INT32_MAX - KV_PAGE_TOKENS : (int32_t)most;
    e->n_slots = SLOTS_PER_SEQ * p->max_batch;
    T9_TRY(alloc_tree(e, err));
    int32_t outputs = p->max_batch < p->step_tokens ? p->max_batch : p->step_tokens;
    struct batch_limits limits = {.rows = p->step_tokens,
                                  .outputs = outputs,
                                  .seqs = e->n_slots,
                                  .pages = sched_pages(e->max_length),
                                  .n_vocab = e->info->n_vocab};
    T9_TRY(batch_buf_init(&e->batch, p->be, &limits, &e->geom, kv_pool_base(e->pool),
                          kv_window_base(e->pool), err));
    if (e->state_bytes > 0)
        batch_set_states(&e->batch, kv_state_geom(e->pool), kv_state_base(e->pool));
    /* An output matrix may be padded beyond the vocabulary; such rows are no tokens. */
    e->n_sampled_vocab = e->info->n_vocab;
    if ((int64_t)p->vocab->n_tokens < e->n_sampled_vocab)
        e->n_sampled_vocab = (int32_t)p->vocab->n_tokens;
    T9_TRY(sampler_new(&e->sampler, e->n_sampled_vocab, err));
    size_t scratch_bytes;
    size_t n_ops;
    T9_TRY(model_measure(p->model, &e->geom, p->step_tokens, outputs, &scratch_bytes, &n_ops, err));
    T9_TRY(tape_init(&e->tape, n_ops, err));
    void *mem;
    T9_TRY(be_reserve(p->be, scratch_bytes ? scratch_bytes : 1, &mem, err));
    be_want_huge(p->be, mem, scratch_bytes);
    e->scratch = (struct scratch){.base = mem, .cap = scratch_bytes ? scratch_bytes : 1};
    T9_TRY(alloc_slots(e, err));
    return ring_new(&e->ring, (size_t)p->queue_cap, err);
}

static void free_all(struct engine *e)
{
    ring_free(e->ring);
    if (e->known)
        be_unreserve(e->p.be, e->known, e->known_bytes);
    mem_free(e->plan_line);
    mem_free(e->state_next);
    mem_free(e->state);
    mem_free(e->check_holds);
    mem_free(e->sched);
    mem_free(e->seqs);
    if (e->scratch.base)
        be_unreserve(e->p.be, e->scratch.base, e->scratch.cap);
    tape_deinit(&e->tape);
    sampler_free(e->sampler);
    batch_buf_deinit(&e->batch);
    kv_tree_free(e->tree);
    kv_pool_free(e->pool);
    mem_free(e);
}

/* What attending to a key costs of a row: operations, and attention does fewer of them a second
 * than the products with the weights. */
static double key_ratio(const struct model_info *m)
{
    double per_key = 4.0 * (double)m->n_query;
    double per_row = 2.0 * (double)model_n_params_met(m);
    return per_row > 0.0 ? ATTENTION_SLOWER * per_key / per_row : 0.0;
}

/* What reading the weights of all experts costs of a row. */
static double experts_ratio(const struct model_info *m)
{
    double per_row = (double)model_n_params_met(m);
    return per_row > 0.0 ? EXPERTS_SLOWER * (double)m->n_expert_params / per_row : 0.0;
}

static double experts_met(const struct model_info *m)
{
    return m->n_experts > 0 ? (double)m->n_experts_used / (double)m->n_experts : 0.0;
}

static bool has_started(void *ctx)
{
    struct engine *e = ctx;
    return atomic_load(&e->started) != 0;
}

static void log_limits(const struct engine *e)
{
    struct kv_pool_stats kv = kv_pool_stats(e->pool);
    char bytes[NUM_BYTES_MAX];
    if (wanted_length(e) > e->max_length)
        LOG_WARN("engine",
                 "a request may have %d tokens, not %d: the KV cache budget of %s holds no more",
                 e->max_length, wanted_length(e), num_format_bytes(e->p.kv_bytes, bytes));
    LOG_INFO("engine", "%d tokens per request, %d sequences, %d rows per step, %d KV pages of %s",
             e->max_length, e->p.max_batch, e->p.step_tokens, kv.pages_total,
             num_format_bytes(kv.page_bytes, bytes));
    if (e->window_pages > 0)
        LOG_INFO("engine",
                 "layers with a window have pages of their own, of %s, out of the same budget; a "
                 "sequence needs %d of them at a time",
                 num_format_bytes(e->geom.window_bytes, bytes), e->window_pages);
    if (e->state_bytes > 0)
        LOG_INFO("engine", "a sequence has a state of %s beside its pages, out of the same budget",
                 num_format_bytes(e->state_bytes, bytes));
}

t9_status engine_new(struct engine **out, const struct engine_params *p, struct t9_err *err)
{
    *out = NULL;
    T9_TRY(check_params(p, err));
    struct engine *e = mem_calloc(1, sizeof *e);
    if (!e)
        return t9_fail(err, T9_STATUS_NOMEM, "engine: out of memory");
    e->p = *p;
    e->info = model_info(p->model);
    e->fit.key_ratio = key_ratio(e->info);
    e->fit.experts_ratio = experts_ratio(e->info);
    e->cost.experts_met = experts_met(e->info);
    t9_status st = alloc_step(e, err);
    if (st == T9_STATUS_OK)
        st = thread_start(&e->thread, "t9-engine", loop_main, e, err);
    if (st == T9_STATUS_OK) {
        (void)signal_wait(&e->signal, has_started, e, -1);
        if (atomic_load(&e->started) < 0) {
            thread_join(&e->thread);
            st = t9_fail(err, e->fail_err.code, "%s", e->fail_err.msg);
        }
    }
    if (st != T9_STATUS_OK) {
        free_all(e);
        return st;
    }
    log_limits(e);
    *out = e;
    return T9_STATUS_OK;
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    atomic_store(&e->stopping, true);
    ring_wake(e->ring);
    thread_join(&e->thread);
    /* A submit that overlapped with the thread's end. */
    for (struct request *r; (r = ring_pop(e->ring)) != NULL;) {
        atomic_fetch_sub(&e->n_waiting, 1);
        atomic_fetch_sub(&e->waiting_tokens, r->n_prompt);
        loop_end_request(e, r, FINISH_REASON_CANCELLED, NULL);
    }
    free_all(e);
}

int32_t engine_max_length(const struct engine *e)
{
    return e->max_length;
}

const char *engine_limit_reason(const struct engine *e)
{
    if (e->max_length < wanted_length(e))
        return "what the cache's memory holds; --kv-memory (kv_bytes) gives it more";
    if (e->max_length < e->info->context_length)
        return "set by --max-length (max_length), which may be raised";
    return "what the model was made for";
}

int32_t engine_max_tokens(const struct engine *e, int32_t n_prompt)
{
    return n_prompt < 1 || n_prompt >= e->max_length ? 0 : e->max_length - n_prompt;
}

static t9_status check_request(const struct engine *e, const struct request *r, struct t9_err *err)
{
    if (r->n_prompt < 1 || !r->prompt)
        return t9_fail(err, T9_STATUS_INVALID, "the prompt is empty: at least one token is needed");
    int32_t room = engine_room(e, r->n_prompt, r->prompt_only);
    if (room < 1)
        return t9_fail(err, T9_STATUS_INVALID,
                       "the prompt has %d tokens; the limit is %d for prompt and reply together "
                       "(%s). Shorten the conversation",
                       r->n_prompt, e->max_length, engine_limit_reason(e));
    if (r->max_tokens < 1 || r->max_tokens > room)
        return t9_fail(err, T9_STATUS_INVALID,
                       "max_tokens is %d; with a prompt of %d tokens and a limit of %d it must be "
                       "within 1 and %d",
                       r->max_tokens, r->n_prompt, e->max_length, room);
    for (int32_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= e->info->n_vocab)
            return t9_fail(err, T9_STATUS_INVALID,
                           "token %d of the prompt is %d; the model knows tokens 0 to %d", i,
                           r->prompt[i], e->info->n_vocab - 1);
    }
    if (r->n_stop_tokens < 0 || r->n_stop_tokens > REQUEST_STOP_TOKENS_MAX || r->min_tokens < 0)
        return t9_fail(err, T9_STATUS_INVALID,
                       "min_tokens is %d and must not be negative; %d stop tokens, and at most %d "
                       "are taken",
                       r->min_tokens, r->n_stop_tokens, REQUEST_STOP_TOKENS_MAX);
    if (r->n_marks < 0 || r->n_marks > REQUEST_MARKS_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "%d marks of the prompt; at most %d are taken",
                       r->n_marks, REQUEST_MARKS_MAX);
    return sample_params_check(&r->sampling, err);
}

/* Why nothing is taken at the moment, if so. */
static t9_status check_open(const struct engine *e, struct t9_err *err)
{
    if (atomic_load_explicit(&e->failed, memory_order_acquire))
        return t9_fail(err, T9_STATUS_INTERNAL, "the engine has failed: %s", e->fail_err.msg);
    if (atomic_load(&e->draining) || atomic_load(&e->stopping))
        return t9_fail(err, T9_STATUS_BUSY, "the server is shutting down and takes no requests");
    return T9_STATUS_OK;
}

t9_status engine_submit(struct engine *e, struct request *r, struct t9_err *err)
{
    T9_TRY(check_request(e, r, err));
    /* Counted before the look at `draining`: a drain that does not see the count is seen here. */
    atomic_fetch_add(&e->n_open, 1);
    int32_t n_waiting = atomic_fetch_add(&e->n_waiting, 1);
    t9_status st = check_open(e, err);
    if (st == T9_STATUS_OK && n_waiting >= e->p.queue_cap)
        st = t9_fail(err, T9_STATUS_BUSY, "%d requests are waiting already; try again in %d s",
                     n_waiting, engine_retry_after_s(e));
    if (st == T9_STATUS_OK) {
        r->id = atomic_fetch_add(&e->n_submitted, 1) + 1;
        atomic_fetch_add(&e->waiting_tokens, r->n_prompt);
        atomic_store_explicit(&r->state, REQ_STATE_WAITING, memory_order_relaxed);
        atomic_store_explicit(&r->clocks.queued, clock_now_ns(), memory_order_relaxed);
        if (ring_push(e->ring, r))
            return T9_STATUS_OK;
        atomic_fetch_sub(&e->waiting_tokens, r->n_prompt);
        st = t9_fail(err, T9_STATUS_BUSY, "the queue is full; try again in %d s",
                     engine_retry_after_s(e));
    }
    atomic_fetch_sub(&e->n_waiting, 1);
    atomic_fetch_sub(&e->n_open, 1);
    signal_raise(&e->signal);
    return st;
}

void engine_cancel(struct engine *e, struct request *r)
{
    atomic_store(&r->cancel, true);
    ring_wake(e->ring);
}

void engine_set_logits_hook(struct engine *e, engine_logits_hook hook, void *ctx)
{
    e->hook_ctx = ctx;
    e->hook = hook;
}

void engine_set_step_hook(struct engine *e, engine_step_hook hook, void *ctx)
{
    e->step_hook_ctx = ctx;
    e->step_hook = hook;
}

int32_t engine_retry_after_s(const struct engine *e)
{
    double tokens = (double)atomic_load_explicit(&e->waiting_tokens, memory_order_relaxed);
    double n = (double)atomic_load_explicit(&e->n_waiting, memory_order_relaxed);
    double ns = tokens * (double)atomic_load_explicit(&e->prompt_token_ns, memory_order_relaxed) +
                n * (double)atomic_load_explicit(&e->reply_ns, memory_order_relaxed);
    double s = ns * 1e-9 + 1.0;
    return s < RETRY_AFTER_MAX_S ? (int32_t)s : RETRY_AFTER_MAX_S;
}

struct wait_ctx {
    struct request *r;
    const struct event_cursor *c;
};

static bool has_event(void *ctx)
{
    const struct wait_ctx *w = ctx;
    const struct request *r = w->r;
    if (w->c->ended || atomic_load_explicit(&r->finish, memory_order_acquire) != FINISH_REASON_NONE)
        return true;
    return (!w->c->admitted &&
            atomic_load_explicit(&r->clocks.admitted, memory_order_acquire) != 0) ||
           atomic_load_explicit(&r->n_prefilled, memory_order_relaxed) > w->c->n_prefilled ||
           atomic_load_explicit(&r->n_tokens, memory_order_acquire) > w->c->n_tokens;
}

bool engine_wait(struct engine *e, struct request *r, const struct event_cursor *c, int timeout_ms)
{
    struct wait_ctx w = {r, c};
    return signal_wait(&e->signal, has_event, &w, timeout_ms);
}

static bool all_ended(void *ctx)
{
    struct engine *e = ctx;
    return atomic_load(&e->n_open) == 0;
}

bool engine_drain(struct engine *e, int timeout_ms)
{
    atomic_store(&e->draining, true);
    return signal_wait(&e->signal, all_ended, e, timeout_ms);
}
