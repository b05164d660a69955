/*
 * engine/loop.c - the engine thread: takes requests from the ring, admits them, plans and runs
 * steps, samples, ends sequences.
 *
 * A step is: plan (sched.c), fill the batch, let the model record its forward on a tape, run the
 * tape, sample one token per sequence whose known tokens are now all computed. A sampled token goes
 * to the request's log and is the next step's input.
 *
 * Admission reserves the pages that a request can need at most, so nothing that runs can run out;
 * memory itself is taken page by page as tokens arrive. A step allocates nothing, takes no lock and
 * makes no system call but the wake-up of a sleeping reader.
 *
 * A step that fails puts the engine in the failed state: every request ends with the error, later
 * ones are refused, the process lives.
 */
#include "base/clock.h"
#include "base/log.h"
#include "engine/internal.h"

#include <math.h>

enum {
    TRIM_AFTER_MS = 2000, /* idle time before unused pages' memory is given back */
    WARM_UP_ROWS = 8,
};

static void set_clock(_Atomic uint64_t *clock, uint64_t now_ns)
{
    atomic_store_explicit(clock, now_ns, memory_order_release);
}

/* Tells the reader that something is new; at most one notification is under way per request. */
static void notify(struct request *r)
{
    if (r->notify && !atomic_exchange(&r->notified, true))
        r->notify(r->notify_ctx, r);
}

void loop_end_request(struct engine *e, struct request *r, finish_reason reason,
                      const struct t9_err *err)
{
    if (err)
        r->error = *err;
    stats_ended(&e->n, r, reason);
    void (*last_notify)(void *, struct request *) = r->notify;
    void *ctx = r->notify_ctx;
    atomic_store_explicit(&r->state, REQ_STATE_DONE, memory_order_relaxed);
    atomic_store_explicit(&r->finish, (int32_t)reason, memory_order_release);
    /* A reader without a notify function may have freed the request by now, and one with it may do
     * so once this call was made: nothing here looks into the request again. */
    if (last_notify)
        last_notify(ctx, r);
    atomic_fetch_sub(&e->n_open, 1);
    signal_raise(&e->signal);
}

/* ---- queue ---- */

/* Moves what was submitted to the waiting list: higher priority first, equal ones in their order.
 */
static void take_submitted(struct engine *e)
{
    for (struct request *r; (r = ring_pop(e->ring)) != NULL;) {
        struct request **at = &e->waiting;
        while (*at && (*at)->priority >= r->priority)
            at = &(*at)->next;
        r->next = *at;
        *at = r;
    }
}

static void unlink_waiting(struct engine *e, struct request **at)
{
    struct request *r = *at;
    *at = r->next;
    r->next = NULL;
    atomic_fetch_sub(&e->n_waiting, 1);
}

static void end_waiting(struct engine *e, bool all, finish_reason reason, const struct t9_err *err)
{
    struct request **at = &e->waiting;
    while (*at) {
        struct request *r = *at;
        if (!all && !atomic_load_explicit(&r->cancel, memory_order_relaxed)) {
            at = &r->next;
            continue;
        }
        unlink_waiting(e, at);
        loop_end_request(e, r, reason, err);
    }
}

/* ---- sequences ---- */

static void end_seq(struct engine *e, int32_t slot, finish_reason reason, const struct t9_err *err)
{
    struct seq *s = &e->seqs[slot];
    struct request *r = s->req;
    const int32_t *pages = batch_pages(&e->batch, slot);
    /* The newest first, so that the oldest lies on top of the stack and is used again first. */
    for (int32_t i = s->n_pages - 1; i >= 0; i--)
        kv_page_free(e->pool, pages[i]);
    e->n_reserved_pages -= s->n_reserved;
    *s = (struct seq){0};
    e->sched[slot] = (struct sched_seq){0};
    e->n_running_now--;
    e->trimmed = false;
    atomic_store_explicit(&e->n_running, e->n_running_now, memory_order_relaxed);
    r->engine_private = NULL;
    loop_end_request(e, r, reason, err);
}

static void end_running(struct engine *e, bool all, finish_reason reason, const struct t9_err *err)
{
    for (int32_t i = 0; i < e->p.max_batch; i++) {
        struct request *r = e->seqs[i].req;
        if (r && (all || atomic_load_explicit(&r->cancel, memory_order_relaxed)))
            end_seq(e, i, reason, err);
    }
}

static void start_seq(struct engine *e, int32_t slot, struct request *r, int32_t n_reserved)
{
    e->seqs[slot] =
        (struct seq){.req = r, .n_known = r->n_prompt, .n_reserved = n_reserved, .output = -1};
    e->sched[slot] = (struct sched_seq){
        .n_pending = r->n_prompt, .order = e->n_admitted++, .last_step = e->step};
    e->n_reserved_pages += n_reserved;
    e->n_running_now++;
    atomic_store_explicit(&e->n_running, e->n_running_now, memory_order_relaxed);
    r->engine_private = &e->seqs[slot];
    atomic_store_explicit(&r->state, REQ_STATE_RUNNING, memory_order_relaxed);
    set_clock(&r->clocks.admitted, clock_now_ns());
    stats_count(&e->n.requests_admitted, 1);
    notify(r);
}

/* Starts waiting requests while a slot is free and the first one's worst case fits the pool. The
 * first never waits for a later, smaller one: nobody is overtaken for ever. */
static void admit(struct engine *e)
{
    int32_t total = kv_pool_stats(e->pool).pages_total;
    bool any = false;
    while (e->waiting && e->n_running_now < e->p.max_batch) {
        struct request *r = e->waiting;
        int32_t need = sched_pages((int64_t)r->n_prompt + r->max_tokens);
        if (need > total - e->n_reserved_pages)
            break;
        int32_t slot = 0;
        while (e->seqs[slot].req)
            slot++;
        unlink_waiting(e, &e->waiting);
        start_seq(e, slot, r, need);
        any = true;
    }
    if (any)
        signal_raise(&e->signal);
}

/* ---- a step ---- */

static void fail(struct engine *e, const struct t9_err *err)
{
    LOG_ERROR("engine", "a step failed, no further requests are served: %s", err->msg);
    e->fail_err = *err;
    atomic_store_explicit(&e->failed, true, memory_order_release);
    end_running(e, true, FINISH_REASON_ERROR, err);
}

/* Gives the sequence pages for n_tokens tokens. */
static t9_status grow(struct engine *e, int32_t slot, int32_t n_tokens, struct t9_err *err)
{
    struct seq *s = &e->seqs[slot];
    int32_t *pages = batch_pages(&e->batch, slot);
    int32_t need = sched_pages(n_tokens);
    while (s->n_pages < need) {
        int32_t page = s->n_pages < s->n_reserved ? kv_page_alloc(e->pool) : -1;
        if (page < 0)
            return t9_fail(err, T9_STATUS_INTERNAL,
                           "no KV page for token %d of a sequence that reserved %d pages", n_tokens,
                           s->n_reserved);
        pages[s->n_pages++] = page;
    }
    return T9_STATUS_OK;
}

/* Puts the slot's planned rows into the batch. */
static t9_status add_rows(struct engine *e, int32_t slot, struct t9_err *err)
{
    struct seq *s = &e->seqs[slot];
    const struct request *r = s->req;
    int32_t n = e->sched[slot].n_rows;
    T9_TRY(grow(e, slot, s->n_computed + n, err));
    const int32_t *tokens = s->n_computed < r->n_prompt ? r->prompt + s->n_computed
                                                        : r->tokens + (s->n_computed - r->n_prompt);
    bool ok = batch_add_rows(&e->batch, slot, tokens, n, s->n_computed);
    s->output = -1;
    if (ok && s->n_computed + n == s->n_known) {
        ok = batch_add_output(&e->batch);
        s->output = e->batch.b.n_outputs - 1;
    }
    return ok ? T9_STATUS_OK
              : t9_fail(err, T9_STATUS_INTERNAL, "the plan of a step exceeds its buffers");
}

static t9_status run_batch(struct engine *e, struct t9_err *err)
{
    struct cx cx;
    e->scratch.used = 0;
    cx_init_record(&cx, &e->tape, &e->scratch);
    T9_TRY(model_forward(e->p.model, &cx, &e->batch.b, err));
    if (cx.status != T9_STATUS_OK)
        return t9_fail(err, cx.status, "%s", cx.err.msg);
    return be_run(e->p.be, e->tape.ops, e->tape.n, err);
}

static int32_t sample(struct engine *e, const struct seq *s, float *logits)
{
    const struct vocab *v = e->p.vocab;
    const struct request *r = s->req;
    if (e->hook)
        e->hook(e->hook_ctx, r, s->n_known, logits, e->info->n_vocab);
    for (uint32_t i = 0; i < v->n_suppress; i++) {
        if (v->suppress[i] < e->n_sampled_vocab)
            logits[v->suppress[i]] = -INFINITY;
    }
    return sampler_pick(e->sampler, logits, &r->sampling, r->choice, (uint64_t)s->n_known);
}

static void count_token(struct engine *e, struct request *r, uint64_t now_ns)
{
    if (atomic_load_explicit(&r->n_tokens, memory_order_relaxed) == 0) {
        uint64_t from = atomic_load_explicit(&r->clocks.received, memory_order_relaxed);
        if (from == 0)
            from = atomic_load_explicit(&r->clocks.queued, memory_order_relaxed);
        set_clock(&r->clocks.first_token, now_ns);
        stats_ttft(&e->n, now_ns > from ? now_ns - from : 0);
    } else {
        uint64_t last = atomic_load_explicit(&r->clocks.last_token, memory_order_relaxed);
        stats_gap(&e->n, now_ns > last ? now_ns - last : 0);
    }
    set_clock(&r->clocks.last_token, now_ns);
    stats_count(&e->n.generated_tokens, 1);
}

/* Takes the sampled token of a slot: log, or end of the sequence. */
static void take_token(struct engine *e, int32_t slot, int32_t token, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    struct request *r = s->req;
    if (token < 0) {
        struct t9_err err;
        (void)t9_fail(&err, T9_STATUS_INTERNAL,
                      "the model gave no usable logits for token %d (no finite value)", s->n_known);
        end_seq(e, slot, FINISH_REASON_ERROR, &err);
        return;
    }
    if (!r->ignore_eos && vocab_is_eog(e->p.vocab, token)) {
        end_seq(e, slot, FINISH_REASON_STOP, NULL);
        return;
    }
    count_token(e, r, now_ns);
    int32_t n = atomic_load_explicit(&r->n_tokens, memory_order_relaxed);
    r->tokens[n] = token;
    atomic_store_explicit(&r->n_tokens, n + 1, memory_order_release);
    s->n_known++;
    e->sched[slot].n_pending = 1;
    if (n + 1 >= r->max_tokens)
        end_seq(e, slot, FINISH_REASON_LENGTH, NULL);
    else
        notify(r);
}

/* What a slot's rows have brought. */
static void finish_rows(struct engine *e, int32_t slot, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    struct sched_seq *plan = &e->sched[slot];
    struct request *r = s->req;
    int32_t n = plan->n_rows;
    bool was_prompt = !plan->decoding;
    s->n_computed += n;
    plan->n_pending -= n;
    plan->last_step = e->step;
    plan->decoding = s->n_computed >= r->n_prompt;
    if (was_prompt) {
        stats_count(&e->n.prompt_tokens, (uint64_t)n);
        if (plan->decoding)
            set_clock(&r->clocks.prefilled, now_ns);
        atomic_store_explicit(&r->n_prefilled, s->n_computed, memory_order_release);
    }
    if (s->output < 0) {
        notify(r);
        return;
    }
    int32_t token = sample(e, s, batch_logits(&e->batch, s->output, e->info->n_vocab));
    take_token(e, slot, token, now_ns);
}

static void count_step(struct engine *e, int32_t decode_rows, int32_t rows, uint64_t ns)
{
    sched_cost_update(&e->cost, decode_rows, rows - decode_rows, ns);
    stats_count(&e->n.steps, 1);
    stats_count(&e->n.rows, (uint64_t)rows);
    stats_count(&e->n.step_ns, ns);
}

static void step(struct engine *e)
{
    struct t9_err err = {0};
    uint64_t begin_ns = clock_now_ns();
    int32_t decode_rows = 0;
    e->step++;
    for (int32_t i = 0; i < e->p.max_batch; i++)
        decode_rows += e->seqs[i].req && e->sched[i].decoding;
    int32_t prompt_rows = sched_prompt_rows(&e->cost, e->p.step_tokens, decode_rows > 0);
    int32_t rows = sched_plan(e->sched, e->p.max_batch, e->p.step_tokens, prompt_rows);
    t9_status st = T9_STATUS_OK;
    batch_clear(&e->batch);
    decode_rows = 0;
    for (int32_t i = 0; i < e->p.max_batch && st == T9_STATUS_OK; i++) {
        if (e->sched[i].n_rows == 0)
            continue;
        decode_rows += e->sched[i].decoding;
        st = add_rows(e, i, &err);
    }
    if (st == T9_STATUS_OK)
        st = run_batch(e, &err);
    if (st != T9_STATUS_OK) {
        fail(e, &err);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    for (int32_t i = 0; i < e->p.max_batch; i++) {
        if (e->seqs[i].req && e->sched[i].n_rows > 0)
            finish_rows(e, i, now_ns);
    }
    count_step(e, decode_rows, rows, clock_now_ns() - begin_ns);
    signal_raise(&e->signal);
}

/* ---- the thread ---- */

/* One forward of a few rows before the first request: pages of the weights are read, the workers
 * are up, and what this backend cannot run shows now. */
static t9_status warm_up(struct engine *e, struct t9_err *err)
{
    static const int32_t tokens[WARM_UP_ROWS];
    int32_t n = e->p.step_tokens < WARM_UP_ROWS ? e->p.step_tokens : WARM_UP_ROWS;
    int32_t page = kv_page_alloc(e->pool);
    batch_pages(&e->batch, 0)[0] = page;
    batch_clear(&e->batch);
    (void)batch_add_rows(&e->batch, 0, tokens, n, 0);
    (void)batch_add_output(&e->batch);
    uint64_t begin_ns = clock_now_ns();
    t9_status st = run_batch(e, err);
    if (st == T9_STATUS_OK)
        sched_cost_update(&e->cost, 0, n, clock_now_ns() - begin_ns);
    kv_page_free(e->pool, page);
    kv_pool_trim(e->pool);
    e->trimmed = true;
    return st;
}

/* Sleeps until something is submitted, cancelled or stopped. */
static void idle(struct engine *e)
{
    if (!e->trimmed) {
        if (ring_wait(e->ring, TRIM_AFTER_MS))
            return;
        kv_pool_trim(e->pool);
        e->trimmed = true;
    }
    (void)ring_wait(e->ring, -1);
}

void loop_main(void *arg)
{
    struct engine *e = arg;
    t9_status st = warm_up(e, &e->fail_err);
    atomic_store(&e->started, st == T9_STATUS_OK ? 1 : -1);
    signal_raise(&e->signal);
    if (st != T9_STATUS_OK)
        return;
    for (;;) {
        take_submitted(e);
        if (atomic_load(&e->stopping))
            break;
        if (atomic_load_explicit(&e->failed, memory_order_relaxed))
            end_waiting(e, true, FINISH_REASON_ERROR, &e->fail_err);
        end_waiting(e, false, FINISH_REASON_CANCELLED, NULL);
        end_running(e, false, FINISH_REASON_CANCELLED, NULL);
        admit(e);
        if (e->n_running_now > 0)
            step(e);
        else
            idle(e);
    }
    end_running(e, true, FINISH_REASON_CANCELLED, NULL);
    end_waiting(e, true, FINISH_REASON_CANCELLED, NULL);
}
