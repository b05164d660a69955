/*
 * protocol/run_read.c - reads a run's choices: tokens of the engine's logs become text, text is
 * held back where a character or a stop string may go on, and what is certain becomes events.
 *
 * The answer's text is made here and nowhere else, so a stream and a whole reply can't differ.
 * Formatting happens only when the reader asks: a slow client costs its token logs and nothing
 * more. One thread at a time.
 */
#include "base/mem.h"
#include "base/utf8.h"
#include "engine/engine.h"
#include "protocol/run_impl.h"

#include <math.h>

#define TEXT_PART_BYTES ((size_t)4096) /* of one TEXT event; a reader behind gets several */

bool chat_run_wants_tokens(const struct chat_run *run)
{
    return run->request.n_stops > 0;
}

bool chat_run_is_over(const struct chat_run *run)
{
    for (size_t i = 0; i < run->n_choices; i++) {
        if (atomic_load(&run->choices[i].request->finish) == FINISH_REASON_NONE)
            return atomic_load(&run->submit_failed);
    }
    return true;
}

bool chat_run_in_timed_queue(const struct chat_run *run)
{
    if (run->n_choices == 0 || atomic_load(&run->submit_failed))
        return false;
    const struct request *r = run->choices[0].request;
    return r->deadline_ns && atomic_load(&r->clocks.admitted) == 0 &&
           atomic_load(&r->finish) == FINISH_REASON_NONE;
}

bool chat_run_failed_early(const struct chat_run *run)
{
    bool failed = atomic_load(&run->submit_failed);
    for (size_t i = 0; i < run->n_choices; i++) {
        const struct request *r = run->choices[i].request;
        failed |= atomic_load(&r->finish) == FINISH_REASON_ERROR;
        if (atomic_load(&r->n_tokens) > 0)
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
    struct chat_timings t = {0};
    const struct run_choice *first_choice = &run->choices[0];
    const struct request *r = first_choice->request;
    const struct req_clocks *c = &r->clocks;
    uint64_t admitted = atomic_load(&c->admitted), first = atomic_load(&c->first_token);
    uint64_t queued = atomic_load(&c->queued), last = atomic_load(&c->last_token);
    uint64_t received = run->caller.received_ns;
    int32_t computed = r->n_prompt - atomic_load(&r->n_cached);
    t.parse_ms = span_ms(received, atomic_load(&c->parsed));
    t.prefix_wait_ms = (double)atomic_load(&c->prefix_ns) / 1e6;
    t.queue_ms = fmax(0, span_ms(queued, admitted) - t.prefix_wait_ms);
    t.preempted_ms = (double)atomic_load(&c->preempted_ns) / 1e6;
    t.n_preempted = atomic_load(&r->n_preempted);
    t.first_token_ms = span_ms(received, first);
    t.first_byte_ms = span_ms(received, atomic_load(&c->first_byte));
    t.last_token_ms = span_ms(received, last);
    t.prefill_ms = span_ms(admitted, first);
    t.decode_ms = span_ms(first, last);
    if (t.prefill_ms > 0)
        t.prompt_per_s = computed * 1e3 / t.prefill_ms;
    /* The first token belongs to the prefill. */
    if (t.decode_ms > 0 && first_choice->at > 1)
        t.decode_per_s = (first_choice->at - 1) * 1e3 / t.decode_ms;
    return t;
}

/* A prompt counts once, however many answers it has. */
static struct chat_usage usage_of(const struct chat_run *run)
{
    struct chat_usage u = {0};
    for (size_t i = 0; i < run->n_choices; i++) {
        const struct run_choice *c = &run->choices[i];
        if (i == 0 || c->prompt != run->choices[i - 1].prompt) {
            u.n_prompt += c->request->n_prompt;
            u.n_cached += atomic_load(&c->request->n_cached);
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
    t.finish =
        c->stop_hit ? "stop" : finish_reason_name((finish_reason)atomic_load(&c->request->finish));
    return t;
}

void chat_run_mark_byte(struct chat_run *run, uint64_t now_ns)
{
    if (!atomic_load(&run->submitted))
        return;
    for (size_t i = 0; i < run->n_choices; i++) {
        struct req_clocks *c = &run->choices[i].request->clocks;
        if (atomic_load(&c->first_byte) == 0)
            atomic_store(&c->first_byte, now_ns);
        atomic_store(&c->last_byte, now_ns);
    }
}

/* ---- tokens to text ---- */

static void push_start(struct buf *starts, uint32_t at)
{
    buf_append(starts, &at, sizeof at);
}

/* Text that is certain so far goes to c->text; true: a stop string is complete. One that is
 * complete within the least number of tokens does not count. */
static bool push_text(struct run_choice *c, str text)
{
    if (c->at <= c->run->request.min_tokens) {
        stop_pass(&c->stop, text, &c->text);
        return false;
    }
    return stop_push(&c->stop, text, &c->text);
}

/* Turns tokens into text until a part is full, the log is used up, or a stop string ended it. */
static void take_tokens(struct run_choice *c)
{
    struct chat_run *run = c->run;
    bool details = run_wants_details(run);
    while (c->at < c->end && c->text.n < TEXT_PART_BYTES && !c->stop_hit) {
        buf_clear(&run->piece);
        if (details)
            push_start(&c->starts, c->n_echo + c->n_pushed);
        detok_push(&c->detok, c->request->tokens[c->at++], &run->piece, false);
        c->n_pushed += (uint32_t)utf8_count(buf_str(&run->piece));
        c->stop_hit = push_text(c, buf_str(&run->piece));
        c->text.failed |= run->piece.failed || c->stop.held.failed || c->starts.failed;
    }
}

/* The text that was held back for a whole character or a possible stop string. */
static void flush_text(struct run_choice *c)
{
    struct chat_run *run = c->run;
    c->flushed = true;
    if (c->stop_hit)
        return;
    buf_clear(&run->piece);
    detok_finish(&c->detok, &run->piece);
    c->stop_hit = push_text(c, buf_str(&run->piece));
    if (!c->stop_hit)
        stop_finish(&c->stop, &c->text);
}

/* The tokens that belong to the text of this event: those that begin before its end; with the last
 * text all that are left, but for those that a stop string cut off. */
static void tell_tokens(struct run_choice *c, struct chat_event *ev)
{
    const uint32_t *starts = (const uint32_t *)(const void *)c->starts.p;
    uint32_t text_end = c->n_echo + c->n_told_text;
    int32_t from = c->n_told, to = from;
    while (to < c->at && (starts[to] < text_end || (c->flushed && !c->stop_hit)))
        to++;
    c->n_told = to;
    ev->tokens = (struct chat_tokens){
        .ids = c->request->tokens + from, .n = to - from, .n_top = c->request->n_top};
    if (to > from)
        ev->tokens.starts = starts + from;
    if (c->request->logprobs)
        ev->tokens.logprobs = c->request->logprobs + (size_t)from * (size_t)(1 + c->request->n_top);
}

/* ---- echo ---- */

/* The prompt as text, and where its tokens begin in it. */
static void make_echo(struct run_choice *c)
{
    struct chat_run *run = c->run;
    const struct tok_ids *ids = &run->prompts[c->prompt];
    struct detok d;
    uint32_t n = 0;
    detok_init(&d, tokenizer_vocab(prep_params_of(run->prep)->tokenizer));
    for (size_t i = 0; i < ids->n; i++) {
        size_t before = c->echo.n;
        push_start(&c->echo_starts, n);
        detok_push(&d, ids->p[i], &c->echo, true);
        n += (uint32_t)utf8_count((str){c->echo.p + before, c->echo.n - before});
    }
    detok_finish(&d, &c->echo);
    c->n_echo = (uint32_t)utf8_count(buf_str(&c->echo));
    c->text.failed |= c->echo.failed || c->echo_starts.failed;
}

static struct chat_event echo_event(struct run_choice *c)
{
    struct chat_event ev = {.kind = CHAT_EVENT_TEXT, .choice = c->index};
    const struct request *r = c->request;
    make_echo(c);
    c->echoed = true;
    ev.text = buf_str(&c->echo);
    if (run_wants_details(c->run))
        ev.tokens = (struct chat_tokens){
            .ids = r->prompt,
            .n = r->n_prompt,
            .logprobs = r->prompt_logprobs,
            .n_top = r->n_top,
            .starts = (const uint32_t *)(const void *)c->echo_starts.p,
            .is_prompt = true,
        };
    return ev;
}

/* ---- events ---- */

static struct chat_event error_event(struct run_choice *c, t9_status status, const char *msg)
{
    struct chat_event ev = {.kind = CHAT_EVENT_ERROR, .choice = c->index};
    (void)chat_fail(&ev.error, status, NULL, status == T9_STATUS_AGAIN ? "queue_timeout" : NULL,
                    "%s", msg);
    return ev;
}

static finish_reason finish_of(const struct run_choice *c)
{
    if (c->run->request.no_reply)
        return FINISH_REASON_LENGTH;
    return c->stop_hit ? FINISH_REASON_STOP : c->last.reason;
}

/* The client's own stop token that ended it, else -1. */
static int32_t stop_token_of(const struct run_choice *c)
{
    const struct chat_request *q = &c->run->request;
    for (int32_t i = 0; i < q->n_stop_tokens && !c->stop_hit; i++) {
        if (q->stop_tokens[i] == c->request->stop_token)
            return q->stop_tokens[i];
    }
    return -1;
}

static struct chat_event finish_event(struct run_choice *c)
{
    if (!c->stop_hit && c->last.kind == EVENT_ERROR)
        return error_event(c, c->last.error.code, c->last.error.msg);
    if (!c->stop_hit && c->last.reason == FINISH_REASON_CANCELLED)
        return error_event(c, T9_STATUS_BUSY, "the answer broke off: the server is stopping");
    struct chat_event ev = {.kind = CHAT_EVENT_FINISH,
                            .choice = c->index,
                            .finish = finish_of(c),
                            .stop_token = stop_token_of(c),
                            .is_last = true};
    c->over = true;
    for (size_t i = 0; i < c->run->n_choices; i++)
        ev.is_last &= c->run->choices[i].over;
    if (ev.is_last) {
        ev.usage = usage_of(c->run);
        ev.timings = timings_of(c->run);
    }
    return ev;
}

static struct chat_event text_event(struct run_choice *c)
{
    struct chat_event ev = {.kind = CHAT_EVENT_TEXT, .choice = c->index, .text = buf_str(&c->text)};
    c->n_told_text += (uint32_t)utf8_count(ev.text);
    if (run_wants_details(c->run))
        tell_tokens(c, &ev);
    return ev;
}

/* Takes the engine's next news; false when there is none. */
static bool read_engine(struct run_choice *c)
{
    struct event ev = request_next(c->request, &c->cursor);
    if (ev.kind == EVENT_NONE)
        return false;
    if (ev.kind == EVENT_TOKENS)
        c->end = ev.to;
    if (ev.kind == EVENT_DONE || ev.kind == EVENT_ERROR)
        c->last = ev;
    return true;
}

/* Whether the tokens that were not told yet are of use although there is no text to them. */
static bool tokens_are_left(const struct run_choice *c)
{
    return run_wants_details(c->run) && c->flushed && !c->stop_hit && c->n_told < c->at;
}

static const char no_text[] = "no memory for the text of the answer";

static struct chat_event choice_next(struct run_choice *c)
{
    struct chat_event none = {0};
    struct chat_run *run = c->run;
    if (c->over)
        return none;
    if (!c->begun) {
        c->begun = true;
        return (struct chat_event){.kind = CHAT_EVENT_BEGIN, .choice = c->index};
    }
    buf_clear(&c->text);
    for (;;) {
        bool ended = c->last.kind != EVENT_NONE;
        if (run->request.echo && !c->echoed && (c->end > 0 || ended) &&
            c->last.kind != EVENT_ERROR) {
            struct chat_event ev = echo_event(c);
            return c->text.failed ? error_event(c, T9_STATUS_NOMEM, no_text) : ev;
        }
        if (run->request.no_reply)
            c->at = c->end;
        take_tokens(c);
        bool used_up = c->at == c->end || c->stop_hit;
        if (used_up && !c->flushed && (c->stop_hit || ended)) {
            if (c->stop_hit)
                engine_cancel(prep_params_of(run->prep)->engine, c->request);
            flush_text(c);
        }
        if (c->text.failed)
            return error_event(c, T9_STATUS_NOMEM, no_text);
        if (c->text.n || (!run->request.no_reply && tokens_are_left(c)))
            return text_event(c);
        if (c->flushed)
            return finish_event(c);
        if (!read_engine(c))
            return none;
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
        *ev = error_event(c, T9_STATUS_NOMEM, no_text);
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
    const struct request *r = c->request;
    struct chat_choice w = {
        .text = buf_str(&c->whole), .finish = finish_of(c), .stop_token = stop_token_of(c)};
    if (!run_wants_details(run))
        return w;
    w.answer = (struct chat_tokens){.ids = r->tokens,
                                    .n = run->request.no_reply ? 0 : c->n_told,
                                    .logprobs = r->logprobs,
                                    .n_top = r->n_top,
                                    .starts = (const uint32_t *)(const void *)c->starts.p};
    if (c->echoed)
        w.prompt = (struct chat_tokens){.ids = r->prompt,
                                        .n = r->n_prompt,
                                        .logprobs = r->prompt_logprobs,
                                        .n_top = r->n_top,
                                        .starts = (const uint32_t *)(const void *)c->echo_starts.p,
                                        .is_prompt = true};
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
