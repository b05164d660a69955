/*
 * protocol/run_read.c - reads a run's choices: what the library's events bring becomes the events
 * of a reply.
 *
 * The answer's text is made in one place, the library, so a stream and a whole reply can't differ.
 * Formatting happens only when the reader asks: a slow client costs its token logs and nothing
 * more. One thread at a time.
 */
#include "base/mem.h"
#include "base/utf8.h"
#include "protocol/run_impl.h"

#include <math.h>

bool chat_run_wants_tokens(const struct chat_run *run)
{
    return run->request.n_stops > 0;
}

/* Zeroes, finish NONE among them, before the engine took it. */
static struct t9_request_info info_of(const struct run_choice *c)
{
    struct t9_request_info info = {.struct_size = sizeof info};
    t9_request *r = atomic_load(&c->request);
    if (r)
        (void)t9_request_info(r, &info);
    return info;
}

bool chat_run_is_over(const struct chat_run *run)
{
    for (size_t i = 0; i < run->n_choices; i++) {
        if (info_of(&run->choices[i]).finish == T9_FINISH_NONE)
            return atomic_load(&run->submit_failed);
    }
    return true;
}

bool chat_run_in_timed_queue(const struct chat_run *run)
{
    if (run->n_choices == 0 || run->queue_timeout_ms == 0 || atomic_load(&run->submit_failed))
        return false;
    struct t9_request_info info = info_of(&run->choices[0]);
    return info.first_row_ns == 0 && info.finish == T9_FINISH_NONE;
}

bool chat_run_failed_early(const struct chat_run *run)
{
    bool failed = atomic_load(&run->submit_failed);
    for (size_t i = 0; i < run->n_choices; i++) {
        struct t9_request_info info = info_of(&run->choices[i]);
        failed |= info.finish == T9_FINISH_ERROR;
        if (info.n_tokens > 0)
            return atomic_load(&run->submit_failed);
    }
    return failed;
}

/* ---- usage and times ---- */

static double span_ms(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns && to_ns > from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
}

static struct chat_timings timings_of(const struct chat_run *run)
{
    const struct run_choice *first = &run->choices[0];
    struct t9_request_info info = info_of(first);
    struct chat_timings t = {.n_preempted = info.n_preempted};
    uint64_t received = run->caller.received_ns;
    int32_t computed = (int32_t)run->prompts[0].n - info.n_cached;
    t.parse_ms = span_ms(received, run->parsed_ns);
    t.prefix_wait_ms = (double)info.prefix_wait_ns / 1e6;
    t.queue_ms = fmax(0, span_ms(info.queued_ns, info.first_row_ns) - t.prefix_wait_ms);
    t.preempted_ms = (double)info.preempted_ns / 1e6;
    t.first_token_ms = span_ms(received, info.first_token_ns);
    t.first_byte_ms = span_ms(received, atomic_load(&run->first_byte_ns));
    t.last_token_ms = span_ms(received, info.last_token_ns);
    t.prefill_ms = span_ms(info.first_row_ns, info.first_token_ns);
    t.decode_ms = span_ms(info.first_token_ns, info.last_token_ns);
    if (t.prefill_ms > 0)
        t.prompt_per_s = computed * 1e3 / t.prefill_ms;
    /* The first token belongs to the prefill. */
    if (t.decode_ms > 0 && first->at > 1)
        t.decode_per_s = (first->at - 1) * 1e3 / t.decode_ms;
    return t;
}

/* A prompt counts once, however many answers it has. */
static struct chat_usage usage_of(const struct chat_run *run)
{
    struct chat_usage u = {0};
    for (size_t i = 0; i < run->n_choices; i++) {
        const struct run_choice *c = &run->choices[i];
        if (i == 0 || c->prompt != run->choices[i - 1].prompt) {
            u.n_prompt += (int32_t)run->prompts[c->prompt].n;
            u.n_cached += info_of(c).n_cached;
        }
        u.n_completion += run->request.no_reply ? 0 : c->at;
    }
    return u;
}

struct chat_run_times chat_run_times(const struct chat_run *run)
{
    struct chat_run_times t = {.finish = "none"};
    if (!atomic_load(&run->submitted))
        return t;
    struct chat_usage u = usage_of(run);
    const struct run_choice *c = &run->choices[0];
    t.n_prompt = u.n_prompt;
    t.n_cached = u.n_cached;
    t.n_completion = u.n_completion;
    t.timings = timings_of(run);
    t.finish = t9_finish_name(c->stopped ? T9_FINISH_STOP : info_of(c).finish);
    return t;
}

void chat_run_mark_byte(struct chat_run *run, uint64_t now_ns)
{
    uint64_t none = 0;
    (void)atomic_compare_exchange_strong(&run->first_byte_ns, &none, now_ns);
}

/* ---- details of tokens ---- */

static int32_t n_top_of(const struct chat_run *run)
{
    return run->request.logprobs ? run->request.n_top : 0;
}

/* The answer's tokens from .. to. */
static struct chat_tokens answer_tokens(const struct run_choice *c, int32_t from, int32_t to)
{
    t9_request *r = atomic_load(&c->request);
    const struct t9_logprob *rows = t9_request_logprobs(r, false);
    int32_t n_top = n_top_of(c->run);
    struct chat_tokens t = {
        .ids = t9_request_tokens(r) + from, .n = to - from, .n_top = n_top, .starts_at = c->n_echo};
    if (to > from)
        t.starts = c->starts + from;
    if (rows)
        t.logprobs = rows + (size_t)from * (size_t)(1 + n_top);
    return t;
}

static struct chat_tokens prompt_tokens(const struct run_choice *c)
{
    const struct prep_ids *ids = &c->run->prompts[c->prompt];
    return (struct chat_tokens){.ids = ids->p,
                                .n = (int32_t)ids->n,
                                .logprobs = t9_request_logprobs(atomic_load(&c->request), true),
                                .n_top = n_top_of(c->run),
                                .starts = (const uint32_t *)(const void *)c->echo_starts.p,
                                .is_prompt = true};
}

/* The tokens that belong to the text of this event: those that begin before its end; with the last
 * text all that are left, but for those that a stop string cut off. */
static void tell_tokens(struct run_choice *c, bool last, struct chat_event *ev)
{
    int32_t from = c->n_told, to = from;
    while (to < c->at && (last || c->starts[to] < c->n_told_text))
        to++;
    c->n_told = to;
    ev->tokens = answer_tokens(c, from, to);
}

/* ---- events ---- */

static struct chat_event error_event(struct run_choice *c, t9_status status, const char *code,
                                     const char *msg)
{
    struct chat_event ev = {.kind = CHAT_EVENT_ERROR, .choice = c->index};
    (void)chat_fail(&ev.error, status, NULL, code, "%s", msg);
    return ev;
}

static struct chat_event no_memory(struct run_choice *c)
{
    return error_event(c, T9_STATUS_NOMEM, NULL, "no memory for the text of the answer");
}

/* The prompt as text, and where its tokens begin in it. */
static t9_status make_echo(struct run_choice *c)
{
    const struct prep_ids *ids = &c->run->prompts[c->prompt];
    t9_detok *d = NULL;
    str text = {0};
    t9_status s =
        t9_detok_new(&d, prep_params_of(c->run->prep)->model, T9_DETOKENIZE_SPECIAL, NULL);
    for (size_t i = 0; i <= ids->n && s == T9_STATUS_OK; i++) {
        if (i < ids->n)
            buf_append(&c->echo_starts, &c->n_echo, sizeof c->n_echo);
        s = t9_detok_push(d, i < ids->n ? &ids->p[i] : NULL, 1, &text.p, &text.n);
        buf_puts_str(&c->echo, text);
        c->n_echo += (uint32_t)utf8_count(text);
    }
    t9_detok_free(d);
    return s == T9_STATUS_OK && (c->echo.failed || c->echo_starts.failed) ? T9_STATUS_NOMEM : s;
}

static struct chat_event echo_event(struct run_choice *c)
{
    struct chat_event ev = {.kind = CHAT_EVENT_TEXT, .choice = c->index};
    c->echoed = true;
    if (make_echo(c) != T9_STATUS_OK)
        return no_memory(c);
    ev.text = buf_str(&c->echo);
    if (run_wants_details(c->run))
        ev.tokens = prompt_tokens(c);
    return ev;
}

/* Text and tokens that the library's event brought; false when there is nothing to tell of yet. */
static bool text_event(struct run_choice *c, struct chat_event *out)
{
    const struct t9_event *ev = &c->ev;
    if (!c->starts)
        c->starts = ev->text_starts;
    c->at += ev->n_tokens;
    c->stopped = ev->stopped;
    if (ev->text_bytes == 0)
        return false;
    *out = (struct chat_event){
        .kind = CHAT_EVENT_TEXT, .choice = c->index, .text = {ev->text, ev->text_bytes}};
    c->n_told_text += (uint32_t)utf8_count(out->text);
    /* Text without a token was held back to the end. */
    if (run_wants_details(c->run))
        tell_tokens(c, ev->n_tokens == 0 && !ev->stopped, out);
    return true;
}

/* Tokens at the end whose text, if they have any, was told; false when there are none. */
static bool rest_event(struct run_choice *c, struct chat_event *out)
{
    if (!run_wants_details(c->run) || c->ev.stopped || c->n_told == c->at)
        return false;
    *out = (struct chat_event){.kind = CHAT_EVENT_TEXT, .choice = c->index, .text = STR("")};
    tell_tokens(c, true, out);
    return true;
}

/* The client's own stop token that ended it, else -1. */
static int32_t asked_stop_token(const struct run_choice *c, int32_t token)
{
    const struct chat_request *q = &c->run->request;
    for (int32_t i = 0; i < q->n_stop_tokens && !c->stopped; i++) {
        if (q->stop_tokens[i] == token)
            return token;
    }
    return -1;
}

static struct chat_event finish_event(struct run_choice *c)
{
    const struct t9_event *end = &c->ev;
    if (end->kind == T9_EVENT_ERROR)
        return error_event(c, end->error.code,
                           end->error.code == T9_STATUS_AGAIN ? "queue_timeout" : NULL,
                           end->error.msg);
    if (end->finish == T9_FINISH_CANCELLED)
        return error_event(c, T9_STATUS_BUSY, "server_stopping",
                           "the answer broke off: the server is stopping");
    c->over = true;
    c->stopped = end->stopped;
    c->finish = c->run->request.no_reply ? T9_FINISH_LENGTH : end->finish;
    c->stop_token = asked_stop_token(c, end->stop_token);
    struct chat_event ev = {.kind = CHAT_EVENT_FINISH,
                            .choice = c->index,
                            .finish = c->finish,
                            .stop_token = c->stop_token,
                            .is_last = true};
    for (size_t i = 0; i < c->run->n_choices; i++)
        ev.is_last &= c->run->choices[i].over;
    if (ev.is_last) {
        ev.usage = usage_of(c->run);
        ev.timings = timings_of(c->run);
    }
    return ev;
}

static struct chat_event choice_next(struct run_choice *c)
{
    struct chat_event none = {0}, ev;
    if (c->over)
        return none;
    if (!c->begun) {
        c->begun = true;
        return (struct chat_event){.kind = CHAT_EVENT_BEGIN, .choice = c->index};
    }
    for (;;) {
        if (!c->has_ev) {
            c->ev.struct_size = sizeof c->ev;
            if (t9_request_next(atomic_load(&c->request), 0, &c->ev) != T9_STATUS_OK)
                return no_memory(c);
        }
        t9_event_kind kind = c->ev.kind;
        c->has_ev = kind != T9_EVENT_NONE;
        if (kind == T9_EVENT_NONE)
            return none;
        bool tokens = kind == T9_EVENT_TOKENS;
        if (c->run->request.echo && !c->echoed && (tokens || kind == T9_EVENT_DONE))
            return echo_event(c);
        if (kind == T9_EVENT_DONE || kind == T9_EVENT_ERROR)
            return rest_event(c, &ev) ? ev : finish_event(c);
        c->has_ev = false;
        if (tokens && text_event(c, &ev))
            return ev;
    }
}

/* Keeps the text for a reply that is sent in one piece. */
static void keep_whole(struct chat_run *run, struct chat_event *ev)
{
    struct run_choice *c = &run->choices[ev->choice];
    if (run->request.stream || ev->kind != CHAT_EVENT_TEXT)
        return;
    buf_puts_str(&c->whole, ev->text);
    if (c->whole.failed)
        *ev = no_memory(c);
}

static struct chat_event end_event(struct chat_run *run)
{
    struct chat_event ev = {.kind = CHAT_EVENT_END};
    run->over = true;
    if (run->n_choices > 0) {
        ev.usage = usage_of(run);
        ev.timings = timings_of(run);
    }
    return ev;
}

struct chat_event chat_run_next(struct chat_run *run)
{
    struct chat_event none = {0};
    bool all_over = true;
    if (run->over)
        return none;
    if (atomic_load(&run->submit_failed)) {
        run->over = true;
        return (struct chat_event){.kind = CHAT_EVENT_ERROR, .error = run->submit_error};
    }
    for (size_t i = 0; i < run->n_choices; i++) {
        size_t at = (run->turn + i) % run->n_choices;
        struct run_choice *c = &run->choices[at];
        struct chat_event ev = choice_next(c);
        all_over &= c->over;
        if (ev.kind == CHAT_EVENT_NONE)
            continue;
        keep_whole(run, &ev);
        if (ev.kind == CHAT_EVENT_ERROR) {
            run->over = true;
            chat_run_cancel(run);
        }
        run->turn = (at + 1) % run->n_choices;
        return ev;
    }
    return all_over ? end_event(run) : none;
}

/* ---- writing ---- */

void chat_run_write(const struct chat_run *run, const struct chat_event *ev, struct buf *out)
{
    run->adapter->stream(&run->reply, ev, out);
}

static struct chat_choice whole_choice(const struct chat_run *run, const struct run_choice *c)
{
    struct chat_choice w = {
        .text = buf_str(&c->whole), .finish = c->finish, .stop_token = c->stop_token};
    if (!run_wants_details(run))
        return w;
    w.answer = answer_tokens(c, 0, run->request.no_reply ? 0 : c->n_told);
    if (c->echoed)
        w.prompt = prompt_tokens(c);
    return w;
}

void chat_run_write_whole(const struct chat_run *run, const struct chat_event *end, struct buf *out)
{
    if (run->adapter->answer) {
        buf_puts_str(out, buf_str(&run->answer));
        return;
    }
    struct chat_choice *choices = mem_calloc(run->n_choices, sizeof *choices);
    if (!choices) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < run->n_choices; i++)
        choices[i] = whole_choice(run, &run->choices[i]);
    run->adapter->whole(&run->reply, choices, run->n_choices, end, out);
    mem_free(choices);
}
