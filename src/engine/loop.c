/*
 * engine/loop.c - the engine thread: plans and runs steps, samples, keeps what was computed, and
 * between two steps lets requests in and out (queue.c, seq.c).
 *
 * A step is: plan (sched.c), find pages, fill the batch, let the model record its forward on a
 * tape, run the tape, sample one token per sequence whose known tokens are now all computed. A
 * sampled token goes to the request's log and is the next step's input. A step allocates nothing,
 * takes no lock and makes no system call but the wake-up of a sleeping reader.
 *
 * A step that fails puts the engine in the failed state: every request ends with the error, later
 * ones are refused, the process lives.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "engine/internal.h"
#include "engine/plan_log.h"

#include <math.h>

enum {
    TRIM_AFTER_MS = 2000, /* idle time before unused pages' memory is given back */
    WARM_UP_ROWS = 8,
};

void loop_set_clock(_Atomic uint64_t *clock, uint64_t now_ns)
{
    atomic_store_explicit(clock, now_ns, memory_order_release);
}

void loop_notify(struct request *r)
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
    if (reason == FINISH_REASON_STOP || reason == FINISH_REASON_LENGTH) {
        double n = (double)atomic_load_explicit(&r->n_tokens, memory_order_relaxed);
        e->reply_tokens += (e->reply_tokens > 0.0 ? 0.1 : 1.0) * (n - e->reply_tokens);
    }
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

/* ---- a step ---- */

static void fail(struct engine *e, const struct t9_err *err)
{
    LOG_ERROR("engine", "a step failed, no further requests are served: %s", err->msg);
    e->fail_err = *err;
    atomic_store_explicit(&e->failed, true, memory_order_release);
    seq_end_all(e, FINISH_REASON_ERROR, err);
}

/* Whether the logits of each of its rows are wanted, not only those of the last. */
static bool wants_outputs(const struct seq *s)
{
    return seq_wants_all_rows(s->req) && s->n_computed < s->req->n_prompt - 1;
}

/* Puts the slot's planned rows into the batch. */
static t9_status add_rows(struct engine *e, int32_t slot, struct t9_err *err)
{
    struct seq *s = &e->seqs[slot];
    int32_t n = e->sched[slot].n_rows;
    const int32_t *tokens = seq_known(e, slot) + s->n_computed;
    bool all = wants_outputs(s);
    bool ok = true;
    for (int32_t i = 0; i < n && ok && all; i++)
        ok = batch_add_rows(&e->batch, slot, tokens + i, 1, s->n_computed + i) &&
             batch_add_output(&e->batch);
    if (!all)
        ok = batch_add_rows(&e->batch, slot, tokens, n, s->n_computed);
    s->output = -1;
    if (ok && !all && s->n_computed + n == s->n_known)
        ok = batch_add_output(&e->batch);
    if (ok && (all || s->n_computed + n == s->n_known))
        s->output = e->batch.b.n_outputs - 1;
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

/* What the model gives may be picked from and summed up only when all of it is numbers: the others
 * would be left out in silence, and the answer be made of a part of the vocabulary. */
static bool row_is_good(struct engine *e, int32_t slot, const float *logits, int32_t at)
{
    struct t9_err err;
    if (num_all_finite(logits, (size_t)e->info->n_vocab)) {
        if (e->tree)
            kv_tree_prove(e->tree, &e->seqs[slot].hold);
        return true;
    }
    (void)t9_fail(&err, T9_STATUS_INTERNAL,
                  "the model's logits for token %d are not finite numbers: its file is damaged, or "
                  "not made for these numerics",
                  at);
    seq_spoil(e, slot);
    seq_end(e, slot, FINISH_REASON_ERROR, &err);
    return false;
}

/* Notes the log probability of each token of the prompt that a row of this step predicts. False: it
 * has ended the request. */
static bool score_prompt(struct engine *e, int32_t slot, int32_t n_rows)
{
    const struct seq *s = &e->seqs[slot];
    struct request *r = s->req;
    int32_t first = s->output - n_rows + 1;
    for (int32_t i = 0; i < n_rows; i++) {
        int32_t at = s->n_computed - n_rows + i + 1; /* the token that the row predicts */
        if (at >= r->n_prompt)
            break;
        const float *logits = batch_logits(&e->batch, first + i, e->info->n_vocab);
        if (!row_is_good(e, slot, logits, at))
            return false;
        sampler_note(e->sampler, logits);
        sampler_logprobs(e->sampler, r->prompt[at], r->n_top,
                         r->prompt_logprobs + (size_t)at * (size_t)(1 + r->n_top));
        if (r->n_scored < at)
            r->n_scored = at;
    }
    return true;
}

/* No token may end the answer yet. */
static void forbid_end(const struct engine *e, const struct request *r, float *logits)
{
    const struct vocab *v = e->p.vocab;
    for (uint32_t i = 0; i < v->n_eog && !r->ignore_eos; i++) {
        if (v->eog[i] < e->n_sampled_vocab)
            logits[v->eog[i]] = -INFINITY;
    }
    for (int32_t i = 0; i < r->n_stop_tokens; i++) {
        if (r->stop_tokens[i] >= 0 && r->stop_tokens[i] < e->n_sampled_vocab)
            logits[r->stop_tokens[i]] = -INFINITY;
    }
}

static int32_t sample(struct engine *e, int32_t slot, float *logits)
{
    const struct vocab *v = e->p.vocab;
    const struct seq *s = &e->seqs[slot];
    const struct request *r = s->req;
    int32_t n = s->n_known - r->n_prompt;
    if (e->hook)
        e->hook(e->hook_ctx, r, s->n_known, logits, e->info->n_vocab);
    if (r->logprobs)
        sampler_note(e->sampler, logits);
    sampler_adjust(e->sampler, logits, &r->sampling, seq_known(e, slot), s->n_known, r->n_prompt);
    if (n < r->min_tokens)
        forbid_end(e, r, logits);
    for (uint32_t i = 0; i < v->n_suppress; i++) {
        if (v->suppress[i] < e->n_sampled_vocab)
            logits[v->suppress[i]] = -INFINITY;
    }
    int32_t token = sampler_pick(e->sampler, logits, &r->sampling, r->choice, (uint64_t)s->n_known);
    if (r->logprobs && token >= 0)
        sampler_logprobs(e->sampler, token, r->n_top,
                         r->logprobs + (size_t)n * (size_t)(1 + r->n_top));
    return token;
}

static bool ends_answer(const struct engine *e, const struct request *r, int32_t token)
{
    for (int32_t i = 0; i < r->n_stop_tokens; i++) {
        if (r->stop_tokens[i] == token)
            return true;
    }
    return !r->ignore_eos && vocab_is_eog(e->p.vocab, token);
}

static void count_token(struct engine *e, struct request *r, uint64_t now_ns)
{
    if (atomic_load_explicit(&r->n_tokens, memory_order_relaxed) == 0) {
        uint64_t from = atomic_load_explicit(&r->clocks.received, memory_order_relaxed);
        if (from == 0)
            from = atomic_load_explicit(&r->clocks.queued, memory_order_relaxed);
        loop_set_clock(&r->clocks.first_token, now_ns);
        stats_ttft(&e->n, now_ns > from ? now_ns - from : 0);
    } else {
        uint64_t last = atomic_load_explicit(&r->clocks.last_token, memory_order_relaxed);
        stats_gap(&e->n, now_ns > last ? now_ns - last : 0);
    }
    loop_set_clock(&r->clocks.last_token, now_ns);
    stats_count(&e->n.generated_tokens, 1);
}

/* Takes the sampled token of a slot: log, or end of the sequence. */
static void take_token(struct engine *e, int32_t slot, int32_t token, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    struct request *r = s->req;
    if (token < 0) {
        struct t9_err err;
        (void)t9_fail(&err, T9_STATUS_INTERNAL, "nothing is left to pick token %d from",
                      s->n_known);
        seq_end(e, slot, FINISH_REASON_ERROR, &err);
        return;
    }
    if (ends_answer(e, r, token)) {
        r->stop_token = token;
        seq_end(e, slot, FINISH_REASON_STOP, NULL);
        return;
    }
    count_token(e, r, now_ns);
    int32_t n = atomic_load_explicit(&r->n_tokens, memory_order_relaxed);
    r->tokens[n] = token;
    atomic_store_explicit(&r->n_tokens, n + 1, memory_order_release);
    seq_known(e, slot)[s->n_known++] = token;
    e->sched[slot].n_pending = 1;
    if (n + 1 >= r->max_tokens)
        seq_end(e, slot, FINISH_REASON_LENGTH, NULL);
    else
        loop_notify(r);
}

/* A prompt has moved on by n tokens, or a preempted sequence has got some of its tokens back. */
static void count_prompt(struct engine *e, int32_t slot, int32_t n, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    struct request *r = s->req;
    stats_count(&e->n.prompt_tokens, (uint64_t)n);
    int32_t done = s->n_computed < r->n_prompt ? s->n_computed : r->n_prompt;
    if (done > atomic_load_explicit(&r->n_prefilled, memory_order_relaxed))
        atomic_store_explicit(&r->n_prefilled, done, memory_order_release);
    if (done < r->n_prompt || atomic_load_explicit(&r->clocks.prefilled, memory_order_relaxed) != 0)
        return;
    loop_set_clock(&r->clocks.prefilled, now_ns);
    int32_t n_pin = r->n_pin_tokens < r->n_prompt ? r->n_pin_tokens : r->n_prompt;
    if (e->tree && n_pin > 0 && r->pin_until_ns > now_ns)
        (void)kv_tree_pin(e->tree, r->prompt, n_pin, r->pin_until_ns);
}

/* What a slot's rows have brought. */
static t9_status finish_rows(struct engine *e, int32_t slot, uint64_t now_ns, struct t9_err *err)
{
    struct seq *s = &e->seqs[slot];
    struct sched_seq *plan = &e->sched[slot];
    int32_t n = plan->n_rows;
    bool was_prompt = !plan->decoding;
    bool all_outputs = wants_outputs(s);
    s->n_computed += n;
    plan->n_computed = s->n_computed;
    plan->n_pending -= n;
    plan->last_step = e->step;
    plan->decoding = plan->n_pending <= 1 && s->n_computed >= s->req->n_prompt;
    T9_TRY(seq_keep_pages(e, slot, now_ns, err));
    checkpoint_keep(e, slot, now_ns);
    if (was_prompt)
        count_prompt(e, slot, n, now_ns);
    if (all_outputs && !score_prompt(e, slot, n))
        return T9_STATUS_OK;
    if (s->output < 0 || s->n_computed < s->n_known) {
        loop_notify(s->req);
        return T9_STATUS_OK;
    }
    if (s->req->prompt_only) {
        loop_set_clock(&s->req->clocks.first_token, now_ns);
        loop_set_clock(&s->req->clocks.last_token, now_ns);
        seq_end(e, slot, FINISH_REASON_LENGTH, NULL);
        return T9_STATUS_OK;
    }
    float *logits = batch_logits(&e->batch, s->output, e->info->n_vocab);
    if (row_is_good(e, slot, logits, s->n_known))
        take_token(e, slot, sample(e, slot, logits), now_ns);
    return T9_STATUS_OK;
}

/* The rows of one step. */
struct load {
    int32_t rows, prompt_rows;
    double keys;
};

static t9_status fill_batch(struct engine *e, struct load *load, struct t9_err *err)
{
    batch_clear(&e->batch);
    for (int32_t i = 0; i < e->n_slots; i++) {
        const struct sched_seq *s = &e->sched[i];
        if (s->n_rows == 0)
            continue;
        T9_TRY(add_rows(e, i, err));
        load->rows += s->n_rows;
        load->prompt_rows += s->decoding ? 0 : s->n_rows;
        load->keys += sched_keys(s->n_computed, s->n_rows);
    }
    return T9_STATUS_OK;
}

static void count_step(struct engine *e, const struct load *load, uint64_t ns)
{
    sched_cost_update(&e->fit, &e->cost, load->rows, load->prompt_rows, load->keys, ns);
    if (load->prompt_rows == 0)
        e->decode_step_ns +=
            (e->decode_step_ns > 0.0 ? 0.1 : 1.0) * ((double)ns - e->decode_step_ns);
    stats_cost(e);
    stats_count(&e->n.steps, 1);
    stats_count(&e->n.rows, (uint64_t)load->rows);
    stats_count(&e->n.step_ns, ns);
}

/* There is room for the logits of max_batch rows: prompts whose every row is wanted get what the
 * others leave, at least one row each. */
static void limit_outputs(struct engine *e)
{
    int32_t room = e->batch.outputs_cap;
    for (int32_t i = 0; i < e->n_slots; i++)
        room -= e->sched[i].n_rows > 0;
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct sched_seq *s = &e->sched[i];
        if (s->n_rows < 2 || !wants_outputs(&e->seqs[i]))
            continue;
        int32_t more = s->n_rows - 1 < room ? s->n_rows - 1 : room;
        s->n_rows = 1 + more;
        room -= more;
    }
}

static void plan(struct engine *e)
{
    const struct sched_step in = {
        .step = e->step, .step_tokens = e->p.step_tokens, .cost = e->cost};
    checkpoint_plan(e);
    int32_t rows = sched_plan(e->sched, e->n_slots, &in);
    if (!e->plan_line)
        return;
    size_t n = plan_log_encode(e->plan_line, plan_log_line_cap(e->n_slots), &in, e->sched,
                               e->n_slots, rows);
    e->p.plan_log(e->p.plan_log_ctx, e->plan_line, n);
}

static t9_status finish_all(struct engine *e, uint64_t now_ns, struct t9_err *err)
{
    for (int32_t i = 0; i < e->n_slots; i++) {
        if (e->seqs[i].req && e->sched[i].n_rows > 0)
            T9_TRY(finish_rows(e, i, now_ns, err));
    }
    return T9_STATUS_OK;
}

static void step(struct engine *e)
{
    struct t9_err err = {0};
    struct load load = {0};
    uint64_t begin_ns = clock_now_ns();
    e->step++;
    plan(e);
    limit_outputs(e);
    t9_status st = seq_grow_all(e, &err);
    if (st == T9_STATUS_OK)
        st = fill_batch(e, &load, &err);
    if (st == T9_STATUS_OK && load.rows > 0)
        st = run_batch(e, &err);
    if (st == T9_STATUS_OK)
        st = finish_all(e, clock_now_ns(), &err);
    if (st != T9_STATUS_OK) {
        fail(e, &err);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    if (load.rows > 0)
        count_step(e, &load, now_ns - begin_ns);
    state_publish(e, now_ns);
    if (e->step_hook)
        e->step_hook(e->step_hook_ctx, e);
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
    int32_t own_state = kv_state_alloc(e->pool);
    int32_t window = kv_window_alloc(e->pool);
    batch_pages(&e->batch, 0)[0] = page;
    if (window >= 0)
        batch_windows(&e->batch, 0)[0] = window;
    if (own_state >= 0) {
        *batch_state(&e->batch, 0) = own_state;
        kv_state_clear(e->pool, own_state);
    }
    batch_clear(&e->batch);
    (void)batch_add_rows(&e->batch, 0, tokens, n, 0);
    (void)batch_add_output(&e->batch);
    uint64_t begin_ns = clock_now_ns();
    t9_status st = run_batch(e, err);
    if (st == T9_STATUS_OK)
        sched_cost_update(&e->fit, &e->cost, n, n, sched_keys(0, n), clock_now_ns() - begin_ns);
    kv_page_free(e->pool, page);
    if (window >= 0)
        kv_window_free(e->pool, window);
    if (own_state >= 0)
        kv_state_free(e->pool, own_state);
    kv_pool_trim(e->pool);
    e->trimmed = true;
    return st;
}

/* Gives the memory of what is not used back. */
static void trim(struct engine *e)
{
    be_decommit(e->p.be, e->known, e->known_bytes);
    kv_pool_trim(e->pool);
    e->trimmed = true;
}

/* Sleeps until something is submitted, cancelled or stopped. Memory goes back after a while, the
 * cache after a longer one. */
static void idle(struct engine *e)
{
    state_publish(e, clock_now_ns());
    if (e->step > 0 && e->step_hook)
        e->step_hook(e->step_hook_ctx, e);
    if (!e->trimmed) {
        if (ring_wait(e->ring, TRIM_AFTER_MS))
            return;
        trim(e);
    }
    bool has_cache = e->tree && kv_tree_stats(e->tree).cold_pages > 0;
    if (has_cache && e->p.cache_idle_ms > 0) {
        if (ring_wait(e->ring, e->p.cache_idle_ms))
            return;
        if (kv_tree_evict(e->tree, INT32_MAX, false, clock_now_ns()) > 0) {
            trim(e);
            state_publish(e, clock_now_ns());
        }
    }
    (void)ring_wait(e->ring, -1);
}

void loop_main(void *arg)
{
    struct engine *e = arg;
    t9_status st = warm_up(e, &e->fail_err);
    state_publish(e, clock_now_ns());
    atomic_store(&e->started, st == T9_STATUS_OK ? 1 : -1);
    signal_raise(&e->signal);
    if (st != T9_STATUS_OK)
        return;
    for (;;) {
        queue_take_submitted(e);
        if (atomic_load(&e->stopping))
            break;
        if (atomic_load_explicit(&e->failed, memory_order_relaxed))
            queue_end_all(e, FINISH_REASON_ERROR, &e->fail_err);
        uint64_t now_ns = clock_now_ns();
        queue_end_some(e, now_ns);
        seq_end_some(e, now_ns);
        queue_admit(e);
        if (e->n_running_now > 0)
            step(e);
        else
            idle(e);
    }
    seq_end_all(e, FINISH_REASON_CANCELLED, NULL);
    queue_end_all(e, FINISH_REASON_CANCELLED, NULL);
}
