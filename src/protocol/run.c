/*
 * protocol/run.c - see run.h.
 *
 * The answer's text is made here and nowhere else, token by token from the request's log, so a
 * stream and a whole reply can't differ. Formatting happens only when the reader asks: a slow
 * client costs its token log and nothing more.
 */
#include "protocol/run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "tokenizer/stop.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define REQUEST_ARENA_MAX ((size_t)96 << 20)
#define TEXT_PART_BYTES   ((size_t)4096) /* of one TEXT event; a reader behind gets several */

struct chat_run {
    const struct prep *prep;
    const struct chat_adapter *adapter;
    struct chat_run_hooks hooks;
    struct chat_caller caller;

    struct chat_request request;
    struct chat_reply reply;
    struct tok_ids prompt;
    struct request *engine_request; /* NULL until a start succeeded so far */
    atomic_bool is_stream;
    atomic_bool submitted;
    atomic_uint n_posted;  /* wakes made; engine thread */
    atomic_bool last_post; /* the one that was counted last is the engine's last */
    unsigned n_taken;      /* wakes answered; notifier */

    /* the reader's */
    struct event_cursor cursor;
    int32_t at, end; /* tokens of the log: turned into text, known to be there */
    struct detok detok;
    struct stop_matcher stop;
    struct buf piece, text;
    bool begun, stop_hit, flushed, over;
    struct event last; /* DONE or ERROR once seen */
};

/* ---- life ---- */

static t9_status random_bytes(void *p, size_t n, struct t9_err *err)
{
    ssize_t got;
    do {
        got = getrandom(p, n, 0);
    } while (got < 0 && errno == EINTR);
    if (got != (ssize_t)n)
        return t9_fail(err, T9_STATUS_IO, "the system gave no random numbers");
    return T9_STATUS_OK;
}

t9_status chat_run_new(struct chat_run **out, const struct prep *prep,
                       const struct chat_adapter *adapter, struct chat_run_hooks hooks,
                       const struct chat_caller *caller, struct t9_err *err)
{
    uint64_t id[2];
    *out = NULL;
    T9_TRY(random_bytes(id, sizeof id, err));
    struct chat_run *run = mem_calloc(1, sizeof *run);
    if (!run)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a request");
    run->prep = prep;
    run->adapter = adapter;
    run->hooks = hooks;
    run->caller = *caller;
    chat_request_init(&run->request, REQUEST_ARENA_MAX);
    buf_init(&run->piece, (size_t)1 << 20);
    buf_init(&run->text, (size_t)4 << 20);
    run->reply.created_s = clock_unix_s();
    run->reply.model = str_from(prep_params_of(prep)->model_name);
    run->reply.build = prep_params_of(prep)->build_id;
    run->reply.request = &run->request;
    (void)snprintf(run->reply.id, sizeof run->reply.id, "%.14s%016llx%08llx", adapter->id_prefix,
                   (unsigned long long)id[0], (unsigned long long)(id[1] & 0xffffffffu));
    *out = run;
    return T9_STATUS_OK;
}

void chat_run_free(struct chat_run *run)
{
    if (!run)
        return;
    request_free(run->engine_request);
    tok_ids_deinit(&run->prompt);
    stop_deinit(&run->stop);
    buf_deinit(&run->piece);
    buf_deinit(&run->text);
    chat_request_deinit(&run->request);
    mem_free(run);
}

/* ---- start ---- */

static void on_engine(void *ctx, struct request *r)
{
    struct chat_run *run = ctx;
    atomic_fetch_add(&run->n_posted, 1);
    if (atomic_load(&r->finish) != FINISH_REASON_NONE)
        atomic_store(&run->last_post, true);
    run->hooks.wake(run->hooks.ctx);
}

/* How many tokens may be generated: what was asked, clamped to what fits. */
static t9_status choose_max_tokens(struct chat_run *run, int32_t *out, struct chat_error *err)
{
    struct engine *engine = prep_params_of(run->prep)->engine;
    struct chat_request *q = &run->request;
    int32_t room = engine_max_tokens(engine, (int32_t)run->prompt.n);
    if (room <= 0)
        return chat_fail(err, T9_STATUS_INVALID, "messages", "context_length_exceeded",
                         "the prompt has %zu tokens, and prompt and reply together may have %d: "
                         "shorten the conversation, or raise --max-length where the model's own "
                         "limit allows it",
                         run->prompt.n, engine_max_length(engine));
    if (q->max_tokens > room)
        chat_warn(q,
                  "max_tokens %lld was lowered to %d, which is what fits beside a prompt of %zu "
                  "tokens",
                  (long long)q->max_tokens, room, run->prompt.n);
    /* Nobody reserves memory for what may never be written, so that all the rest is a fair default.
     */
    *out = q->max_tokens == 0 || q->max_tokens > room ? room : (int32_t)q->max_tokens;
    return T9_STATUS_OK;
}

static t9_status choose_seed(struct chat_run *run, struct t9_err *err)
{
    struct chat_request *q = &run->request;
    if (!q->has_seed) {
        T9_TRY(random_bytes(&q->sampling.seed, sizeof q->sampling.seed, err));
        /* A client's JSON parser may keep numbers as doubles: 53 bits come through unharmed. */
        q->sampling.seed >>= 11;
    }
    run->reply.seed = q->sampling.seed;
    return T9_STATUS_OK;
}

/* What was said outside of the body wins: a proxy in front can lower what clients ask for. */
static void set_queueing(const struct chat_run *run, struct request *r)
{
    const struct chat_caller *c = &run->caller;
    const struct chat_request *q = &run->request;
    int64_t timeout_ms = c->queue_timeout_ms ? c->queue_timeout_ms : q->queue_timeout_ms;
    r->priority = c->has_priority ? c->priority : q->priority;
    r->client_key = c->client_key;
    if (timeout_ms)
        r->deadline_ns = c->received_ns + (uint64_t)timeout_ms * 1000000;
}

static t9_status refused(t9_status s, const char *msg, struct chat_error *err)
{
    if (s == T9_STATUS_AGAIN)
        return chat_fail_limit(err, msg);
    return chat_fail(err, s, s == T9_STATUS_INVALID ? "messages" : NULL,
                     s == T9_STATUS_INVALID ? "context_length_exceeded"
                     : s == T9_STATUS_BUSY  ? "server_busy"
                                            : NULL,
                     "%s", msg);
}

static t9_status submit(struct chat_run *run, struct chat_error *err)
{
    struct t9_err e = {0};
    int32_t max_tokens = 0;
    T9_TRY(choose_max_tokens(run, &max_tokens, err));
    t9_status s = choose_seed(run, &e);
    if (s == T9_STATUS_OK)
        s = sample_params_check(&run->request.sampling, &e);
    if (s == T9_STATUS_OK)
        s = request_new(&run->engine_request, max_tokens, &e);
    if (s != T9_STATUS_OK)
        return chat_fail(err, s, NULL, NULL, "%s", e.msg);

    struct request *r = run->engine_request;
    r->prompt = run->prompt.p;
    r->n_prompt = (int32_t)run->prompt.n;
    r->sampling = run->request.sampling;
    r->ignore_eos = run->request.ignore_eos;
    r->notify = on_engine;
    r->notify_ctx = run;
    set_queueing(run, r);
    atomic_store(&r->clocks.received, run->caller.received_ns);
    atomic_store(&r->clocks.parsed, clock_now_ns());
    s = engine_submit(prep_params_of(run->prep)->engine, r, &e);
    if (s != T9_STATUS_OK)
        return refused(s, e.msg, err);
    atomic_store(&run->submitted, true);
    return T9_STATUS_OK;
}

static bool is_gone(const struct chat_run *run)
{
    return run->hooks.gone && atomic_load(run->hooks.gone);
}

t9_status chat_run_start(struct chat_run *run, str body, struct chat_error *err)
{
    struct chat_request *q = &run->request;
    if (is_gone(run))
        goto gone;
    T9_TRY(run->adapter->parse(body, prep_params_of(run->prep)->strict, q, err));
    atomic_store(&run->is_stream, q->stream);
    T9_TRY(prep_check_model(run->prep, q, err));
    if (is_gone(run))
        goto gone;
    T9_TRY(prep_tokens(run->prep, q, &run->prompt, err));
    detok_init(&run->detok, tokenizer_vocab(prep_params_of(run->prep)->tokenizer));
    stop_init(&run->stop, q->stops, q->n_stops);
    if (is_gone(run))
        goto gone;
    return submit(run, err);
gone:
    return chat_fail(err, T9_STATUS_CANCELLED, NULL, NULL, "the client has gone");
}

bool chat_run_is_stream(const struct chat_run *run)
{
    return atomic_load(&run->is_stream);
}

bool chat_run_notified(struct chat_run *run)
{
    /* Cleared before anything is read: what the engine adds from now on makes a new wake. */
    atomic_store(&run->engine_request->notified, false);
    run->n_taken++;
    /* Wakes arrive in the order in which they were made, so the last one is the n_posted-th. */
    return atomic_load(&run->last_post) && run->n_taken == atomic_load(&run->n_posted);
}

void chat_run_cancel(struct chat_run *run)
{
    if (atomic_load(&run->submitted) &&
        atomic_load(&run->engine_request->finish) == FINISH_REASON_NONE)
        engine_cancel(prep_params_of(run->prep)->engine, run->engine_request);
}

/* ---- reading ---- */

bool chat_run_wants_tokens(const struct chat_run *run)
{
    return run->request.n_stops > 0;
}

bool chat_run_is_over(const struct chat_run *run)
{
    return atomic_load(&run->engine_request->finish) != FINISH_REASON_NONE;
}

bool chat_run_in_timed_queue(const struct chat_run *run)
{
    const struct request *r = run->engine_request;
    return r->deadline_ns && atomic_load(&r->clocks.admitted) == 0 &&
           atomic_load(&r->finish) == FINISH_REASON_NONE;
}

bool chat_run_failed_early(const struct chat_run *run)
{
    const struct request *r = run->engine_request;
    return atomic_load(&r->finish) == FINISH_REASON_ERROR && atomic_load(&r->n_tokens) == 0;
}

static double span_ms(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns && to_ns > from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
}

static struct chat_timings timings_of(struct chat_run *run)
{
    struct req_clocks *c = &run->engine_request->clocks;
    struct chat_timings t = {0};
    uint64_t admitted = atomic_load(&c->admitted), first = atomic_load(&c->first_token);
    uint64_t queued = atomic_load(&c->queued), last = atomic_load(&c->last_token);
    uint64_t received = run->caller.received_ns;
    int32_t computed = run->engine_request->n_prompt - atomic_load(&run->engine_request->n_cached);
    t.parse_ms = span_ms(received, atomic_load(&c->parsed));
    t.prefix_wait_ms = (double)atomic_load(&c->prefix_ns) / 1e6;
    t.queue_ms = fmax(0, span_ms(queued, admitted) - t.prefix_wait_ms);
    t.preempted_ms = (double)atomic_load(&c->preempted_ns) / 1e6;
    t.n_preempted = atomic_load(&run->engine_request->n_preempted);
    t.first_token_ms = span_ms(received, first);
    t.first_byte_ms = span_ms(received, atomic_load(&c->first_byte));
    t.last_token_ms = span_ms(received, last);
    t.prefill_ms = span_ms(admitted, first);
    t.decode_ms = span_ms(first, last);
    if (t.prefill_ms > 0)
        t.prompt_per_s = computed * 1e3 / t.prefill_ms;
    /* The first token belongs to the prefill. */
    if (t.decode_ms > 0 && run->at > 1)
        t.decode_per_s = (run->at - 1) * 1e3 / t.decode_ms;
    return t;
}

static struct chat_event end_event(struct chat_run *run, finish_reason reason)
{
    struct chat_event ev = {.kind = CHAT_EVENT_END, .finish = reason};
    ev.usage = (struct chat_usage){run->engine_request->n_prompt,
                                   atomic_load(&run->engine_request->n_cached), run->at};
    ev.timings = timings_of(run);
    run->over = true;
    return ev;
}

static struct chat_event error_event(struct chat_run *run, t9_status status, const char *msg)
{
    struct chat_event ev = {.kind = CHAT_EVENT_ERROR};
    (void)chat_fail(&ev.error, status, NULL, status == T9_STATUS_AGAIN ? "queue_timeout" : NULL,
                    "%s", msg);
    run->over = true;
    return ev;
}

/* Turns tokens into text until a part is full, the log is used up, or a stop string ended it. */
static void take_tokens(struct chat_run *run)
{
    const int32_t *tokens = run->engine_request->tokens;
    while (run->at < run->end && run->text.n < TEXT_PART_BYTES && !run->stop_hit) {
        buf_clear(&run->piece);
        detok_push(&run->detok, tokens[run->at++], &run->piece, false);
        run->stop_hit = stop_push(&run->stop, buf_str(&run->piece), &run->text);
        run->text.failed |= run->piece.failed || run->stop.held.failed;
    }
}

/* The text that was held back for a whole character or a possible stop string. */
static void flush_text(struct chat_run *run)
{
    run->flushed = true;
    if (run->stop_hit)
        return;
    buf_clear(&run->piece);
    detok_finish(&run->detok, &run->piece);
    run->stop_hit = stop_push(&run->stop, buf_str(&run->piece), &run->text);
    if (!run->stop_hit)
        stop_finish(&run->stop, &run->text);
}

static struct chat_event last_event(struct chat_run *run)
{
    if (run->stop_hit)
        return end_event(run, FINISH_REASON_STOP);
    if (run->last.kind == EVENT_ERROR)
        return error_event(run, run->last.error.code, run->last.error.msg);
    if (run->last.reason == FINISH_REASON_CANCELLED)
        return error_event(run, T9_STATUS_BUSY, "the answer broke off: the server is stopping");
    return end_event(run, run->last.reason);
}

struct chat_event chat_run_next(struct chat_run *run)
{
    struct chat_event none = {0};
    if (run->over)
        return none;
    if (!run->begun) {
        run->begun = true;
        return (struct chat_event){.kind = CHAT_EVENT_BEGIN};
    }
    buf_clear(&run->text);
    for (;;) {
        take_tokens(run);
        bool used_up = run->at == run->end || run->stop_hit;
        if (used_up && !run->flushed && (run->stop_hit || run->last.kind != EVENT_NONE)) {
            if (run->stop_hit)
                chat_run_cancel(run);
            flush_text(run);
        }
        if (run->text.failed)
            return error_event(run, T9_STATUS_NOMEM, "no memory for the text of the answer");
        if (run->text.n)
            return (struct chat_event){.kind = CHAT_EVENT_TEXT, .text = buf_str(&run->text)};
        if (run->flushed)
            return last_event(run);
        struct event ev = request_next(run->engine_request, &run->cursor);
        if (ev.kind == EVENT_NONE)
            return none;
        if (ev.kind == EVENT_TOKENS)
            run->end = ev.to;
        if (ev.kind == EVENT_DONE || ev.kind == EVENT_ERROR)
            run->last = ev;
    }
}

void chat_run_write(const struct chat_run *run, const struct chat_event *ev, struct buf *out)
{
    run->adapter->stream(&run->reply, ev, out);
}

void chat_run_write_whole(const struct chat_run *run, str text, const struct chat_event *end,
                          struct buf *out)
{
    run->adapter->whole(&run->reply, text, end, out);
}

struct chat_run_times chat_run_times(const struct chat_run *run)
{
    struct chat_run_times t = {.finish = "none"};
    if (!atomic_load(&run->submitted))
        return t;
    t.n_prompt = run->engine_request->n_prompt;
    t.n_cached = atomic_load(&run->engine_request->n_cached);
    t.n_completion = run->at;
    t.timings = timings_of((struct chat_run *)(uintptr_t)run);
    t.finish = run->stop_hit
                   ? "stop"
                   : finish_reason_name((finish_reason)atomic_load(&run->engine_request->finish));
    return t;
}

void chat_run_mark_byte(struct chat_run *run, uint64_t now_ns)
{
    if (!atomic_load(&run->submitted))
        return;
    struct req_clocks *c = &run->engine_request->clocks;
    if (atomic_load(&c->first_byte) == 0)
        atomic_store(&c->first_byte, now_ns);
    atomic_store(&c->last_byte, now_ns);
}
