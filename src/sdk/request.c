/*
 * sdk/request.c - one answer: submitted, pulled, freed.
 *
 * The engine's request is wrapped: its prompt and lists are copies of ours, its notify function
 * wakes the reader that sleeps in t9_request_next (a futex, no lock) and tells the caller's wake
 * function. Text is made here, on the reader's thread, token by token, so that stop strings do not
 * depend on how tokens came in; the engine never waits for it.
 *
 * The end: the engine's last notify call is the last time that it knows the request. `let_go` is
 * stored at the very end of that call, and t9_request_free waits for it.
 */
#include "engine/request.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "engine/signal.h"
#include "sdk/internal.h"
#include "tokenizer/stop.h"
#include "tokenizer/tokenizer.h"

#include <sched.h>
#include <string.h>

#define TEXT_PART_BYTES ((size_t)4096) /* of one event; a reader behind gets several */
#define TIMEOUT_MAX_MS  ((int64_t)1 << 40)

struct t9_request {
    t9_model *model;
    struct engine *engine;
    struct request *r;

    /* ours, for the engine's pointers */
    int32_t *prompt, *stop_ids, *shown_ids;
    size_t n_shown_ids;
    struct sample_bias *bias;
    str *stops;
    char *stop_text;

    void (*wake)(void *ctx, t9_request *r, bool last);
    void *wake_ctx;
    struct signal_word signal;
    atomic_bool let_go; /* the engine's last call has returned */

    /* the reader's */
    struct event_cursor cursor;
    int32_t at, end; /* tokens of the log: told of, known to be there */
    bool with_text, stop_hit, flushed, over;
    struct detok detok;
    struct stop_matcher stop;
    struct buf piece, text;
    uint32_t *starts;  /* [max_tokens], or NULL; of the `at` tokens told of */
    uint32_t n_chars;  /* of their text */
    struct event last; /* DONE or ERROR once seen */
};

void t9_request_params_init(struct t9_request_params *p, size_t struct_size)
{
    struct t9_request_params d = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .text = true};
    sdk_params_zero(p, struct_size);
    (void)sdk_out_give(p, &d, sizeof d);
}

const char *t9_finish_name(t9_finish f)
{
    return finish_reason_name((finish_reason)f);
}

_Static_assert((int)T9_FINISH_STOP == (int)FINISH_REASON_STOP &&
                   (int)T9_FINISH_LENGTH == (int)FINISH_REASON_LENGTH &&
                   (int)T9_FINISH_CANCELLED == (int)FINISH_REASON_CANCELLED &&
                   (int)T9_FINISH_ERROR == (int)FINISH_REASON_ERROR,
               "the header's reasons are the engine's");
_Static_assert((int)T9_BIAS_MAX == (int)SAMPLE_BIAS_MAX &&
                   (int)T9_TOP_LOGPROBS_MAX == (int)SAMPLE_TOP_MAX &&
                   (int)T9_STOP_IDS_MAX == (int)REQUEST_STOP_TOKENS_MAX &&
                   (int)T9_MARKS_MAX == (int)REQUEST_MARKS_MAX,
               "the header's limits are the engine's");
_Static_assert((int)T9_MARK_HEAD == (int)MARK_KIND_HEAD && (int)T9_MARK_TURN == (int)MARK_KIND_TURN,
               "the header's marks are the engine's");

/* ---- submit ---- */

/* Engine thread. */
static void on_engine(void *ctx, struct request *r)
{
    struct t9_request *q = ctx;
    bool last = atomic_load(&r->finish) != FINISH_REASON_NONE;
    if (q->wake)
        q->wake(q->wake_ctx, q, last);
    signal_raise(&q->signal);
    if (last)
        atomic_store(&q->let_go, true); /* nothing of q is touched from here on */
}

static t9_status check_range(const char *name, int64_t v, int64_t max, struct t9_err *err)
{
    if (v >= 0 && v <= max)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_INVALID, "%s must be within 0 and %lld, got %lld", name,
                   (long long)max, (long long)v);
}

static t9_status check_ids(const struct vocab *v, const char *name, const int32_t *ids, size_t n,
                           int max, struct t9_err *err)
{
    if (n > (size_t)max || (n && !ids))
        return t9_fail(err, T9_STATUS_INVALID, "%zu %s; at most %d are taken", n, name, max);
    for (size_t i = 0; i < n; i++) {
        if (!vocab_has(v, ids[i]))
            return t9_fail(err, T9_STATUS_INVALID, "%s[%zu] is %d; the vocabulary has 0 to %u",
                           name, i, ids[i], v->n_tokens - 1);
    }
    return T9_STATUS_OK;
}

static t9_status check_lists(const struct vocab *v, const struct t9_request_params *p,
                             struct t9_err *err)
{
    T9_TRY(check_ids(v, "stop_ids", p->stop_ids, p->n_stop_ids, T9_STOP_IDS_MAX, err));
    T9_TRY(check_ids(v, "shown_ids", p->shown_ids, p->n_shown_ids, T9_SHOWN_IDS_MAX, err));
    if (p->n_bias > T9_BIAS_MAX || (p->n_bias && !p->bias))
        return t9_fail(err, T9_STATUS_INVALID, "%zu biases; at most %d are taken", p->n_bias,
                       T9_BIAS_MAX);
    for (size_t i = 0; i < p->n_bias; i++) {
        if (!vocab_has(v, p->bias[i].token))
            return t9_fail(err, T9_STATUS_INVALID,
                           "bias[%zu].token is %d; the vocabulary has 0 to %u", i, p->bias[i].token,
                           v->n_tokens - 1);
    }
    return T9_STATUS_OK;
}

static t9_status check_marks(const struct t9_request_params *p, struct t9_err *err)
{
    if (p->n_marks > T9_MARKS_MAX || (p->n_marks && !p->marks))
        return t9_fail(err, T9_STATUS_INVALID, "%zu marks; at most %d are taken", p->n_marks,
                       T9_MARKS_MAX);
    int32_t last = 0;
    for (size_t i = 0; i < p->n_marks; i++) {
        const struct t9_mark *k = &p->marks[i];
        bool known = k->kind == T9_MARK_HEAD || k->kind == T9_MARK_TURN;
        if (!known || k->n_tokens <= last || (size_t)k->n_tokens > p->n_prompt)
            return t9_fail(err, T9_STATUS_INVALID,
                           "marks[%zu] is of kind %d after %d tokens; kinds are 0 and 1, and the "
                           "places ascend from 1 to %zu",
                           i, k->kind, k->n_tokens, p->n_prompt);
        last = k->n_tokens;
    }
    return T9_STATUS_OK;
}

/* One more than is taken stands for all that is longer. */
static size_t stop_n_bytes(const struct t9_request_params *p, size_t i)
{
    if (!p->stops[i])
        return 0;
    return p->stop_bytes ? p->stop_bytes[i] : strnlen(p->stops[i], T9_STOP_BYTES_MAX + 1);
}

static t9_status check_params(const struct vocab *v, const struct t9_request_params *p,
                              struct t9_err *err)
{
    if (!p->prompt || p->n_prompt < 1 || p->n_prompt > SDK_PROMPT_TOKENS_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "the prompt has %zu tokens; 1 to %zu are taken",
                       p->n_prompt, SDK_PROMPT_TOKENS_MAX);
    T9_TRY(check_range("max_tokens", p->max_tokens, INT32_MAX, err));
    T9_TRY(check_range("min_tokens", p->min_tokens, INT32_MAX, err));
    T9_TRY(check_range("n_pin_tokens", p->n_pin_tokens, INT32_MAX, err));
    T9_TRY(check_range("queue_timeout_ms", p->queue_timeout_ms, TIMEOUT_MAX_MS, err));
    T9_TRY(check_range("pin_ms", p->pin_ms, TIMEOUT_MAX_MS, err));
    T9_TRY(check_range("n_logprobs", p->n_logprobs, T9_TOP_LOGPROBS_MAX + 1, err));
    if (p->n_stops > T9_STOPS_MAX || (p->n_stops && (!p->stops || !p->text)))
        return t9_fail(err, T9_STATUS_INVALID, "%zu stops; at most %d are taken, and need `text`",
                       p->n_stops, T9_STOPS_MAX);
    for (size_t i = 0; i < p->n_stops; i++) {
        size_t n = stop_n_bytes(p, i);
        if (n < 1 || n > T9_STOP_BYTES_MAX)
            return t9_fail(err, T9_STATUS_INVALID, "stops[%zu] must have 1 to %d bytes", i,
                           T9_STOP_BYTES_MAX);
    }
    if (p->prompt_only && (p->max_tokens > 1 || p->min_tokens > 0))
        return t9_fail(err, T9_STATUS_INVALID,
                       "prompt_only makes no token, and max_tokens is %d, min_tokens %d",
                       p->max_tokens, p->min_tokens);
    if (p->text_starts && !p->text)
        return t9_fail(err, T9_STATUS_INVALID, "text_starts needs `text`");
    T9_TRY(check_marks(p, err));
    return check_lists(v, p, err);
}

static t9_status copy_stops(struct t9_request *q, const struct t9_request_params *p)
{
    size_t bytes = 0;
    for (size_t i = 0; i < p->n_stops; i++)
        bytes += stop_n_bytes(p, i);
    q->stops = mem_calloc(p->n_stops, sizeof *q->stops);
    q->stop_text = mem_alloc(bytes);
    if (!q->stops || !q->stop_text)
        return T9_STATUS_NOMEM;
    char *to = q->stop_text;
    for (size_t i = 0; i < p->n_stops; i++) {
        size_t n = stop_n_bytes(p, i);
        memcpy(to, p->stops[i], n);
        q->stops[i] = (str){to, n};
        to += n;
    }
    return T9_STATUS_OK;
}

/* NULL where there are none, and where there is no memory. */
static int32_t *copy_ids(const int32_t *ids, size_t n)
{
    int32_t *p = n ? mem_alloc(n * sizeof *p) : NULL;
    if (p)
        memcpy(p, ids, n * sizeof *p);
    return p;
}

static t9_status copy_lists(struct t9_request *q, const struct t9_request_params *p,
                            struct t9_err *err)
{
    q->prompt = copy_ids(p->prompt, p->n_prompt);
    q->stop_ids = copy_ids(p->stop_ids, p->n_stop_ids);
    q->shown_ids = copy_ids(p->shown_ids, p->n_shown_ids);
    q->n_shown_ids = p->n_shown_ids;
    bool ok = q->prompt && (q->stop_ids || !p->n_stop_ids) && (q->shown_ids || !p->n_shown_ids);
    if (p->n_stops && ok)
        ok = copy_stops(q, p) == T9_STATUS_OK;
    if (p->n_bias && ok) {
        q->bias = mem_alloc(p->n_bias * sizeof *q->bias);
        ok = q->bias != NULL;
        for (size_t i = 0; ok && i < p->n_bias; i++)
            q->bias[i] = (struct sample_bias){p->bias[i].token, p->bias[i].bias};
    }
    return ok ? T9_STATUS_OK
              : t9_fail(err, T9_STATUS_NOMEM, "no memory for a prompt of %zu tokens", p->n_prompt);
}

static void fill(struct t9_request *q, const struct t9_request_params *p)
{
    struct request *r = q->r;
    uint64_t now = clock_now_ns();
    r->prompt = q->prompt;
    r->n_prompt = (int32_t)p->n_prompt;
    r->sampling = (struct sample_params){.temperature = p->temperature,
                                         .top_p = p->top_p,
                                         .min_p = p->min_p,
                                         .top_k = p->top_k,
                                         .seed = p->seed,
                                         .presence_penalty = p->presence_penalty,
                                         .frequency_penalty = p->frequency_penalty,
                                         .repetition_penalty = p->repetition_penalty,
                                         .bias = q->bias,
                                         .n_bias = (int32_t)p->n_bias};
    r->choice = p->choice;
    r->prompt_only = p->prompt_only;
    r->ignore_eos = p->ignore_eos;
    r->min_tokens = p->min_tokens;
    r->stop_tokens = q->stop_ids;
    r->n_stop_tokens = (int32_t)p->n_stop_ids;
    r->priority = p->priority;
    r->client_key = p->client_key;
    r->n_pin_tokens = p->n_pin_tokens;
    for (size_t i = 0; i < p->n_marks; i++)
        r->marks[i] = (struct request_mark){p->marks[i].n_tokens, (mark_kind)p->marks[i].kind};
    r->n_marks = (int32_t)p->n_marks;
    if (p->pin_ms)
        r->pin_until_ns = now + (uint64_t)p->pin_ms * 1000000;
    uint64_t received = p->received_ns ? p->received_ns : now;
    if (p->queue_timeout_ms)
        r->deadline_ns = received + (uint64_t)p->queue_timeout_ms * 1000000;
    atomic_store(&r->clocks.received, received);
    atomic_store(&r->clocks.parsed, now);
    r->notify = on_engine;
    r->notify_ctx = q;
}

/* Everything but the engine's part. */
static void request_drop(struct t9_request *q)
{
    request_free(q->r);
    mem_free(q->starts);
    buf_deinit(&q->piece);
    buf_deinit(&q->text);
    stop_deinit(&q->stop);
    mem_free(q->stop_text);
    mem_free(q->stops);
    mem_free(q->bias);
    mem_free(q->stop_ids);
    mem_free(q->shown_ids);
    mem_free(q->prompt);
    sdk_model_put(q->model);
    mem_free(q);
}

static t9_status prepare(struct t9_request *q, const struct t9_request_params *p,
                         struct t9_err *err)
{
    int32_t room = engine_room(q->engine, (int32_t)p->n_prompt, p->prompt_only);
    if (room < 1)
        return t9_fail(err, T9_STATUS_INVALID,
                       "the prompt has %zu tokens, and prompt and answer together may have %d "
                       "(%s): shorten it",
                       p->n_prompt, engine_max_length(q->engine), engine_limit_reason(q->engine));
    if (p->prompt_only)
        room = 1;
    else if (p->max_tokens > 0 && p->max_tokens < room)
        room = p->max_tokens;
    if (p->min_tokens > room)
        return t9_fail(err, T9_STATUS_INVALID,
                       "min_tokens is %d, and at most %d tokens can be generated", p->min_tokens,
                       room);
    T9_TRY(copy_lists(q, p, err));
    T9_TRY(request_new(&q->r, room, err));
    fill(q, p);
    if (p->n_logprobs || p->prompt_logprobs)
        T9_TRY(request_want_logprobs(q->r, p->n_logprobs ? p->n_logprobs - 1 : 0,
                                     p->prompt_logprobs, err));
    if (p->text_starts) {
        q->starts = mem_alloc((size_t)room * sizeof *q->starts);
        if (!q->starts)
            return t9_fail(err, T9_STATUS_NOMEM, "no memory for an answer of %d tokens", room);
    }
    q->wake = p->wake;
    q->wake_ctx = p->wake_ctx;
    q->with_text = p->text;
    detok_init(&q->detok, tokenizer_vocab(q->model->tokenizer));
    detok_after(&q->detok, p->n_prompt ? p->prompt[p->n_prompt - 1] : -1);
    stop_init(&q->stop, q->stops, p->n_stops);
    buf_init(&q->piece, (size_t)1 << 20);
    buf_init(&q->text, (size_t)4 << 20);
    return T9_STATUS_OK;
}

t9_status t9_engine_submit(t9_engine *e, const struct t9_request_params *params, t9_request **out,
                           struct t9_err *err)
{
    struct t9_request_params p;
    *out = NULL;
    T9_TRY(sdk_params_take(&p, sizeof p, params, "request_params", err));
    T9_TRY(check_params(tokenizer_vocab(e->model->tokenizer), &p, err));
    struct t9_request *q = mem_calloc(1, sizeof *q);
    if (!q)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a request");
    q->model = e->model;
    q->engine = e->engine;
    sdk_model_get(q->model);
    t9_status s = prepare(q, &p, err);
    if (s == T9_STATUS_OK) {
        *out = q; /* before the first wake can be */
        s = engine_submit(q->engine, q->r, err);
    }
    if (s != T9_STATUS_OK) {
        *out = NULL;
        request_drop(q);
    }
    return sdk_end(s, err);
}

void t9_request_cancel(t9_request *r)
{
    if (atomic_load(&r->r->finish) == FINISH_REASON_NONE)
        engine_cancel(r->engine, r->r);
}

static bool has_let_go(void *ctx)
{
    const struct t9_request *q = ctx;
    return atomic_load(&q->r->finish) != FINISH_REASON_NONE;
}

void t9_request_free(t9_request *r)
{
    if (!r)
        return;
    t9_request_cancel(r);
    (void)signal_wait(&r->signal, has_let_go, r, -1);
    while (!atomic_load(&r->let_go))
        (void)sched_yield(); /* the last call is about to return */
    request_drop(r);
}

/* ---- reading ---- */

/* Text that is certain so far goes to q->text; true: a stop string is complete. One that is
 * complete within the least number of tokens does not count. */
static bool push_text(struct t9_request *q)
{
    if (q->at <= q->r->min_tokens) {
        stop_pass(&q->stop, buf_str(&q->piece), &q->text);
        return false;
    }
    return stop_push(&q->stop, buf_str(&q->piece), &q->text);
}

static bool is_shown(const struct t9_request *q, int32_t id)
{
    for (size_t i = 0; i < q->n_shown_ids; i++) {
        if (q->shown_ids[i] == id)
            return true;
    }
    return false;
}

/* Makes text of tokens until a part is full, the log is used up, or a stop string ended it. Without
 * text all tokens are taken. */
static void take_tokens(struct t9_request *q)
{
    if (!q->with_text) {
        q->at = q->end;
        return;
    }
    while (q->at < q->end && q->text.n < TEXT_PART_BYTES && !q->stop_hit) {
        buf_clear(&q->piece);
        if (q->starts)
            q->starts[q->at] = q->n_chars;
        int32_t id = q->r->tokens[q->at++];
        detok_push(&q->detok, id, &q->piece, is_shown(q, id));
        if (q->starts)
            q->n_chars += (uint32_t)utf8_count(buf_str(&q->piece));
        q->stop_hit = push_text(q);
        q->text.failed |= q->piece.failed || q->stop.held.failed;
    }
}

/* The text that was held back for a whole character or a possible stop string. */
static void flush_text(struct t9_request *q)
{
    q->flushed = true;
    if (q->stop_hit || !q->with_text)
        return;
    buf_clear(&q->piece);
    detok_finish(&q->detok, &q->piece);
    q->stop_hit = push_text(q);
    if (!q->stop_hit)
        stop_finish(&q->stop, &q->text);
    q->text.failed |= q->piece.failed || q->stop.held.failed;
}

static void tokens_event(struct t9_request *q, int32_t from, struct t9_event *ev)
{
    ev->kind = T9_EVENT_TOKENS;
    ev->tokens = q->r->tokens + from;
    ev->n_tokens = q->at - from;
    ev->stopped = q->stop_hit;
    ev->stop = q->stop_hit ? (int32_t)q->stop.hit : -1;
    if (q->r->logprobs) {
        ev->n_logprobs = 1 + q->r->n_top;
        ev->logprobs = q->r->logprobs + (size_t)from * (size_t)ev->n_logprobs;
    }
    if (q->starts)
        ev->text_starts = q->starts + from;
    char *end = q->text.n ? buf_reserve(&q->text, 0) : NULL;
    if (end) {
        *end = 0;
        ev->text = q->text.p;
        ev->text_bytes = q->text.n;
    }
}

static void last_event(struct t9_request *q, struct t9_event *ev)
{
    q->over = true;
    if (q->last.kind == EVENT_ERROR && !q->stop_hit) {
        ev->kind = T9_EVENT_ERROR;
        ev->finish = T9_FINISH_ERROR;
        ev->error = q->last.error;
        return;
    }
    ev->kind = T9_EVENT_DONE;
    ev->stopped = q->stop_hit;
    ev->stop = q->stop_hit ? (int32_t)q->stop.hit : -1;
    ev->finish = q->stop_hit ? T9_FINISH_STOP : (t9_finish)q->last.reason;
    ev->stop_token = q->stop_hit ? -1 : q->r->stop_token;
}

/* One look at the request. NONE when there is nothing new. */
static t9_status look(struct t9_request *q, struct t9_event *ev)
{
    if (q->over)
        return T9_STATUS_OK;
    buf_clear(&q->text);
    int32_t from = q->at;
    for (;;) {
        take_tokens(q);
        bool used_up = q->at == q->end || q->stop_hit;
        if (used_up && !q->flushed && (q->stop_hit || q->last.kind != EVENT_NONE)) {
            if (q->stop_hit)
                t9_request_cancel(q);
            flush_text(q);
        }
        if (q->text.failed)
            return T9_STATUS_NOMEM;
        if (q->at > from || q->text.n) {
            tokens_event(q, from, ev);
            return T9_STATUS_OK;
        }
        if (q->flushed) {
            last_event(q, ev);
            return T9_STATUS_OK;
        }
        struct event e = request_next(q->r, &q->cursor);
        switch (e.kind) {
        case EVENT_NONE: return T9_STATUS_OK;
        case EVENT_TOKENS: q->end = e.to; break;
        case EVENT_DONE:
        case EVENT_ERROR: q->last = e; break;
        case EVENT_ADMITTED:
            ev->kind = T9_EVENT_ADMITTED;
            ev->n_cached = e.n_cached;
            return T9_STATUS_OK;
        case EVENT_PROGRESS:
            ev->kind = T9_EVENT_PROGRESS;
            ev->n_prefilled = e.n_prefilled;
            return T9_STATUS_OK;
        }
    }
}

struct waiting {
    struct t9_request *q;
    struct t9_event *ev;
    t9_status status;
};

static bool has_event(void *ctx)
{
    struct waiting *w = ctx;
    if (w->ev->kind != T9_EVENT_NONE || w->status != T9_STATUS_OK)
        return true;
    /* Before the look: what the engine adds from now on makes a new call. */
    atomic_store(&w->q->r->notified, false);
    w->status = look(w->q, w->ev);
    return w->ev->kind != T9_EVENT_NONE || w->status != T9_STATUS_OK || w->q->over;
}

t9_status t9_request_next(t9_request *r, int32_t timeout_ms, struct t9_event *out)
{
    struct t9_event ev = {.n_prompt = r->r->n_prompt, .stop_token = -1, .stop = -1};
    struct waiting w = {.q = r, .ev = &ev};
    T9_TRY(sdk_out_check(out)); /* before an event is taken that could not be handed over */
    (void)signal_wait(&r->signal, has_event, &w, timeout_ms);
    if (w.status != T9_STATUS_OK) {
        /* Without its text the answer is of no use: it ends here. */
        r->over = true;
        t9_request_cancel(r);
        return w.status;
    }
    return sdk_out_give(out, &ev, sizeof ev);
}

t9_status t9_request_info(const t9_request *q, struct t9_request_info *out)
{
    const struct request *r = q->r;
    const struct req_clocks *c = &r->clocks;
    /* Before all else: once it is set, what is read below is final. */
    t9_finish finish = (t9_finish)atomic_load_explicit(&r->finish, memory_order_acquire);
    struct t9_request_info info = {.id = r->id,
                                   .finish = finish,
                                   .state = req_state_name((req_state)atomic_load(&r->state)),
                                   .n_prompt = r->n_prompt,
                                   .n_cached = atomic_load(&r->n_cached),
                                   .n_prefilled = atomic_load(&r->n_prefilled),
                                   .n_tokens =
                                       atomic_load_explicit(&r->n_tokens, memory_order_acquire),
                                   .max_tokens = r->max_tokens,
                                   .n_preempted = atomic_load(&r->n_preempted),
                                   .received_ns = atomic_load(&c->received),
                                   .queued_ns = atomic_load(&c->queued),
                                   .first_row_ns = atomic_load(&c->admitted),
                                   .prefilled_ns = atomic_load(&c->prefilled),
                                   .first_token_ns = atomic_load(&c->first_token),
                                   .last_token_ns = atomic_load(&c->last_token),
                                   .prefix_wait_ns = atomic_load(&c->prefix_ns),
                                   .preempted_ns = atomic_load(&c->preempted_ns)};
    return sdk_out_give(out, &info, sizeof info);
}

const int32_t *t9_request_tokens(const t9_request *r)
{
    return r->r->tokens;
}

t9_status t9_request_prompt_logprobs(const t9_request *q, int32_t i, struct t9_logprob *out)
{
    const struct request *r = q->r;
    if (i < 1 || i >= r->n_prompt)
        return T9_STATUS_INVALID;
    bool ended = atomic_load_explicit(&r->finish, memory_order_acquire) != FINISH_REASON_NONE;
    bool begun = atomic_load_explicit(&r->n_tokens, memory_order_acquire) > 0;
    if (!r->prompt_logprobs || (ended ? i > r->n_scored : !begun))
        return T9_STATUS_NOT_FOUND;
    size_t width = (size_t)(1 + r->n_top);
    memcpy(out, r->prompt_logprobs + (size_t)i * width, width * sizeof *out);
    return T9_STATUS_OK;
}

const struct t9_logprob *t9_request_logprobs(const t9_request *q, bool prompt)
{
    const struct request *r = q->r;
    if (!prompt)
        return r->logprobs;
    bool there = atomic_load_explicit(&r->n_tokens, memory_order_acquire) > 0 ||
                 atomic_load_explicit(&r->finish, memory_order_acquire) != FINISH_REASON_NONE;
    return there ? r->prompt_logprobs : NULL;
}
