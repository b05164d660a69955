/*
 * protocol/run_read.c - reads a run's choices: what the library's events bring becomes the events
 * of a reply.
 *
 * The answer's text is made in one place, the library, so a stream and a whole reply can't differ.
 * Formatting happens only when the reader asks: a slow client costs its token logs and nothing
 * more. One thread at a time.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "protocol/run_impl.h"

#include <math.h>
#include <string.h>

/* What a parser may hold back, and what one answer may have of a kind. */
#define PARSER_BYTES_MAX ((size_t)64 << 20)
#define TEXT_BYTES_MAX   ((size_t)256 << 20)

bool chat_run_wants_tokens(const struct chat_run *run)
{
    return run->request.n_stops > 0 || (run->n_tools > 0 && run->request.one_call);
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
    t.total_ms = span_ms(received, clock_now_ns());
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
        u.n_reasoning += c->n_reasoning;
    }
    return u;
}

struct chat_run_times chat_run_times(const struct chat_run *run)
{
    struct chat_run_times t = {.finish = "none"};
    if (!atomic_load(&run->submitted) || run->pull)
        return t;
    struct chat_usage u = usage_of(run);
    const struct run_choice *c = &run->choices[0];
    t.n_prompt = u.n_prompt;
    t.n_cached = u.n_cached;
    t.n_completion = u.n_completion;
    t.timings = timings_of(run);
    /* Of an answer that nobody waited for: what was computed until then. */
    for (size_t i = 0; i < run->n_choices; i++) {
        struct t9_request_info info = info_of(&run->choices[i]);
        if (!run->choices[i].over && !run->request.no_reply)
            t.n_completion += info.n_tokens - run->choices[i].at;
        if (i == 0 && info.first_row_ns && !info.first_token_ns)
            t.timings.prefill_ms = span_ms(info.first_row_ns, clock_now_ns());
    }
    bool ended = c->stopped || c->satisfied; /* the engine may call that cancelled */
    t.finish = t9_finish_name(ended ? T9_FINISH_STOP : info_of(c).finish);
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
static void tell_tokens(struct run_choice *c, bool last, uint32_t end, struct chat_event *ev)
{
    int32_t from = c->n_told, to = from;
    while (to < c->at && (last || c->starts[to] < end))
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

/* ---- reasoning and calls ---- */

static t9_status make_parser(struct run_choice *c)
{
    struct chat_run *run = c->run;
    struct answer_params p = {.dialect = run->dialect,
                              .tools = run->tools,
                              .n_tools = run->n_tools,
                              .reasoning_open = run->prompts[c->prompt].reasoning_open,
                              .one_call = run->request.one_call,
                              .max_bytes = PARSER_BYTES_MAX};
    return answer_parser_new(&c->parser, &p, NULL);
}

/* More text for the parser. A call that is all that is wanted ends the answer. */
static t9_status parse_text(struct run_choice *c, str text)
{
    if (!c->parser)
        T9_TRY(make_parser(c));
    T9_TRY(answer_parser_push(c->parser, text));
    if (answer_parser_is_satisfied(c->parser) && !c->satisfied) {
        c->satisfied = true;
        t9_request_cancel(atomic_load(&c->request));
    }
    return T9_STATUS_OK;
}

/* The text is over. A control token that ended it may be what ends a call. */
static t9_status parse_end(struct run_choice *c)
{
    const struct prep_info *info = prep_info(c->run->prep);
    t9_status s = T9_STATUS_OK;
    c->parsed = true;
    if (!c->parser)
        return s;
    for (size_t i = 0; i < info->n_shown_ids && s == T9_STATUS_OK && !c->satisfied; i++) {
        if (info->shown_ids[i] == c->ev.stop_token)
            s = answer_parser_push(c->parser, prep_piece(c->run->prep, c->ev.stop_token));
    }
    return s == T9_STATUS_OK ? answer_parser_end(c->parser) : s;
}

enum { CALL_ID_BYTES_MAX = 64 };

/* Whether a client can take it as it is. */
static bool id_is_fine(str id)
{
    for (size_t i = 0; i < id.n; i++) {
        if (id.p[i] <= ' ' || id.p[i] > '~' || id.p[i] == '"' || id.p[i] == '\\')
            return false;
    }
    return id.n > 0 && id.n <= CALL_ID_BYTES_MAX;
}

/* The model's own, or one that follows from the reply's: the same for the same call. */
static str make_call_id(struct run_choice *c, const struct answer_part *part)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    enum { LETTERS = 24, PREFIX_MAX = 8 };
    struct chat_run *run = c->run;
    char id[PREFIX_MAX + CALL_ID_BYTES_MAX];
    const char *always = run->adapter->call_prefix;
    int32_t letters = prep_info(run->prep)->dialect->id_letters;
    const char *prefix = always ? always : letters || id_is_fine(part->id) ? "" : "call_";
    size_t n = strlen(prefix), end = n + (letters ? (size_t)letters : LETTERS);
    memcpy(id, prefix, n);
    if (id_is_fine(part->id)) {
        memcpy(id + n, part->id.p, part->id.n);
        return arena_str(&run->request.arena, (str){id, n + part->id.n});
    }
    if (end > sizeof id)
        end = sizeof id;
    struct {
        int32_t choice, call;
    } key = {c->index, part->call};
    uint64_t seed = hash_xxh3_64(run->reply.id, strlen(run->reply.id), 0), h = 0;
    for (size_t i = 0; n < end; i++, h /= 62) {
        if (i % 10 == 0)
            h = hash_xxh3_64(&key, sizeof key, seed + i);
        id[n++] = digits[h % 62];
    }
    return arena_str(&run->request.arena, (str){id, end});
}

static struct chat_event part_as_event(struct run_choice *c, const struct answer_part *part)
{
    static const chat_event_kind kinds[] = {
        [ANSWER_TEXT] = CHAT_EVENT_TEXT,         [ANSWER_REASONING] = CHAT_EVENT_REASONING,
        [ANSWER_CALL] = CHAT_EVENT_CALL,         [ANSWER_ARGS] = CHAT_EVENT_ARGS,
        [ANSWER_CALL_END] = CHAT_EVENT_CALL_END,
    };
    struct chat_event ev = {.kind = kinds[part->kind], .choice = c->index, .text = part->text};
    bool of_call =
        ev.kind == CHAT_EVENT_CALL || ev.kind == CHAT_EVENT_ARGS || ev.kind == CHAT_EVENT_CALL_END;
    if (ev.kind == CHAT_EVENT_CALL) {
        c->call_id = make_call_id(c, part);
        if (!c->call_id.p)
            return no_memory(c);
    }
    if (of_call) {
        ev.call = part->call;
        ev.call_id = c->call_id;
        ev.call_complete = part->complete;
    }
    if (run_wants_details(c->run) && ev.kind != CHAT_EVENT_CALL_END)
        tell_tokens(c, false, part->end, &ev);
    if (ev.kind == CHAT_EVENT_REASONING)
        c->n_reasoning += ev.tokens.n;
    return ev;
}

/* The next part of what was parsed; false when there is none. */
static bool part_event(struct run_choice *c, struct chat_event *out)
{
    struct answer_part part;
    if (!c->parser || !answer_parser_next(c->parser, &part))
        return false;
    *out = part_as_event(c, &part);
    return true;
}

/* ---- text ---- */

/* Text and tokens that the library's event brought; false when there is nothing to tell of yet. */
static bool text_event(struct run_choice *c, struct chat_event *out)
{
    const struct t9_event *ev = &c->ev;
    str text = {ev->text, ev->text_bytes};
    if (!c->starts)
        c->starts = ev->text_starts;
    c->at += ev->n_tokens;
    c->stopped = ev->stopped;
    if (text.n == 0)
        return false;
    c->n_told_text += (uint32_t)utf8_count(text);
    if (c->run->dialect) {
        if (parse_text(c, text) == T9_STATUS_OK)
            return part_event(c, out);
        *out = no_memory(c);
        return true;
    }
    *out = (struct chat_event){.kind = CHAT_EVENT_TEXT, .choice = c->index, .text = text};
    /* Text without a token was held back to the end. */
    if (run_wants_details(c->run))
        tell_tokens(c, ev->n_tokens == 0 && !ev->stopped, c->n_told_text, out);
    return true;
}

/* Tokens at the end whose text, if they have any, was told; false when there are none. */
static bool rest_event(struct run_choice *c, struct chat_event *out)
{
    if (!run_wants_details(c->run) || c->n_told == c->at)
        return false;
    *out = (struct chat_event){.kind = CHAT_EVENT_TEXT, .choice = c->index, .text = STR("")};
    tell_tokens(c, !c->ev.stopped, c->n_told_text, out);
    return out->tokens.n > 0;
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

static bool has_calls(const struct run_choice *c)
{
    return c->parser && answer_parser_n_calls(c->parser) > 0;
}

static struct chat_event finish_event(struct run_choice *c)
{
    const struct t9_event *end = &c->ev;
    if (end->kind == T9_EVENT_ERROR)
        return error_event(c, end->error.code,
                           end->error.code == T9_STATUS_AGAIN ? "queue_timeout" : NULL,
                           end->error.msg);
    if (end->finish == T9_FINISH_CANCELLED && !c->satisfied)
        return error_event(c, T9_STATUS_BUSY, "server_stopping",
                           "the answer broke off: the server is stopping");
    c->over = true;
    c->stopped = end->stopped;
    c->finish = c->run->request.no_reply ? T9_FINISH_LENGTH
                : c->satisfied           ? T9_FINISH_STOP
                                         : end->finish;
    c->stop_token = asked_stop_token(c, end->stop_token);
    c->stop = end->stop;
    struct chat_event ev = {.kind = CHAT_EVENT_FINISH,
                            .choice = c->index,
                            .finish = c->finish,
                            .stop_token = c->stop_token,
                            .stop = c->stop,
                            .has_calls = has_calls(c),
                            .is_last = true};
    for (size_t i = 0; i < c->run->n_choices; i++)
        ev.is_last &= c->run->choices[i].over;
    if (ev.is_last) {
        ev.usage = usage_of(c->run);
        ev.timings = timings_of(c->run);
    }
    return ev;
}

static struct chat_event begin_event(struct run_choice *c)
{
    struct chat_event ev = {.kind = CHAT_EVENT_BEGIN, .choice = c->index};
    c->begun = true;
    if (c->run->adapter->begin_has_usage)
        ev.usage = usage_of(c->run);
    return ev;
}

static struct chat_event choice_next(struct run_choice *c)
{
    struct chat_event none = {0}, ev;
    if (c->over)
        return none;
    if (!c->begun && !c->run->adapter->begin_has_usage)
        return begin_event(c);
    for (;;) {
        if (part_event(c, &ev))
            return ev;
        if (!c->has_ev) {
            c->ev.struct_size = sizeof c->ev;
            if (t9_request_next(atomic_load(&c->request), 0, &c->ev) != T9_STATUS_OK)
                return no_memory(c);
        }
        t9_event_kind kind = c->ev.kind;
        c->has_ev = kind != T9_EVENT_NONE;
        if (kind == T9_EVENT_NONE)
            return none;
        /* Whatever comes first, it was admitted; the event is looked at after this one. */
        if (!c->begun && kind != T9_EVENT_ERROR)
            return begin_event(c);
        bool tokens = kind == T9_EVENT_TOKENS;
        if (c->run->request.echo && !c->echoed && (tokens || kind == T9_EVENT_DONE))
            return echo_event(c);
        if (kind == T9_EVENT_DONE && !c->parsed) {
            if (parse_end(c) != T9_STATUS_OK)
                return no_memory(c);
            continue;
        }
        if (kind == T9_EVENT_DONE || kind == T9_EVENT_ERROR)
            return rest_event(c, &ev) ? ev : finish_event(c);
        c->has_ev = false;
        if (tokens && !c->satisfied && text_event(c, &ev))
            return ev;
    }
}

void run_whole_free(struct run_whole *w)
{
    if (!w)
        return;
    buf_deinit(&w->text);
    buf_deinit(&w->reasoning);
    buf_deinit(&w->args);
    buf_deinit(&w->parts);
    mem_free(w);
}

static struct run_whole *new_whole(void)
{
    struct run_whole *w = mem_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    buf_init(&w->text, TEXT_BYTES_MAX);
    buf_init(&w->reasoning, TEXT_BYTES_MAX);
    buf_init(&w->args, TEXT_BYTES_MAX);
    buf_init(&w->parts, TEXT_BYTES_MAX);
    return w;
}

static struct run_part *last_part(const struct run_whole *w)
{
    size_t n = w->parts.n / sizeof(struct run_part);
    return n ? (struct run_part *)(void *)w->parts.p + n - 1 : NULL;
}

/* The offered tool's own text, which lives as long as the run. */
static str tool_name(const struct chat_run *run, str name)
{
    for (size_t i = 0; i < run->n_tools; i++) {
        if (str_eq(run->tools[i].name, name))
            return run->tools[i].name;
    }
    return (str){0};
}

/* Tells the end of a call what the call is. */
static void tell_call(struct run_choice *c, const struct run_part *part, struct chat_event *ev)
{
    str args = buf_str(&c->whole->args);
    c->call = (struct chat_part){
        .kind = CHAT_EVENT_CALL,
        .text = part->n_bytes ? str_slice(args, args.n - part->n_bytes, args.n) : STR(""),
        .name = part->name,
        .call_id = part->call_id,
        .complete = part->complete};
    ev->whole_call = &c->call;
}

static void add_part(struct run_choice *c, struct chat_event *ev)
{
    struct run_whole *w = c->whole;
    struct run_part *last = last_part(w);
    struct run_part part = {.kind = ev->kind, .n_tokens = ev->tokens.n};
    bool is_args = ev->kind == CHAT_EVENT_ARGS;
    struct buf *to = ev->kind == CHAT_EVENT_TEXT        ? &w->text
                     : ev->kind == CHAT_EVENT_REASONING ? &w->reasoning
                                                        : &w->args;
    if (ev->kind == CHAT_EVENT_CALL) {
        part.name = tool_name(c->run, ev->text);
        part.call_id = ev->call_id;
        buf_append(&w->parts, &part, sizeof part);
        return;
    }
    if (ev->kind == CHAT_EVENT_CALL_END) {
        last->complete = ev->call_complete;
        tell_call(c, last, ev);
        return;
    }
    buf_puts_str(to, ev->text);
    if (!is_args && ev->text.n && (!last || last->kind != ev->kind)) {
        buf_append(&w->parts, &part, sizeof part);
        last = last_part(w);
    } else if (last) {
        last->n_tokens += ev->tokens.n;
    } else {
        w->n_lead_tokens += ev->tokens.n;
    }
    if (last)
        last->n_bytes += ev->text.n;
}

static bool keeps_choices(const struct chat_run *run)
{
    return !run->request.stream || run->adapter->keeps_choices;
}

/* Keeps what a reply that is sent in one piece is made of. */
static void keep_whole(struct chat_run *run, struct chat_event *ev)
{
    struct run_choice *c = &run->choices[ev->choice];
    if (!keeps_choices(run) || ev->kind < CHAT_EVENT_TEXT || ev->kind > CHAT_EVENT_CALL_END)
        return;
    if (!c->whole)
        c->whole = new_whole();
    if (c->whole)
        add_part(c, ev);
    if (!c->whole || c->whole->text.failed || c->whole->reasoning.failed || c->whole->args.failed ||
        c->whole->parts.failed)
        *ev = no_memory(c);
}

/* Where the next part's text and tokens begin: texts of one kind follow each other, and so do
 * tokens.
 */
struct part_walk {
    str rest[3];
    int32_t at;
};

static struct part_walk walk_parts(const struct run_whole *w)
{
    return (struct part_walk){{buf_str(&w->text), buf_str(&w->reasoning), buf_str(&w->args)},
                              w->n_lead_tokens};
}

static struct chat_part walk_on(const struct run_choice *c, struct part_walk *at,
                                const struct run_part *p)
{
    str *text = &at->rest[p->kind == CHAT_EVENT_TEXT ? 0 : p->kind == CHAT_EVENT_REASONING ? 1 : 2];
    struct chat_part part = {.kind = p->kind,
                             .text = {text->p, p->n_bytes},
                             .name = p->name,
                             .call_id = p->call_id,
                             .complete = p->complete};
    if (run_wants_details(c->run))
        part.tokens = answer_tokens(c, at->at, at->at + p->n_tokens);
    if (p->n_bytes) /* where there is none of a kind, there is no place to go on from */
        *text = str_slice(*text, p->n_bytes, text->n);
    at->at += p->n_tokens;
    return part;
}

static struct chat_part *whole_parts(const struct run_choice *c, size_t n)
{
    const struct run_part *from = (const struct run_part *)(const void *)c->whole->parts.p;
    struct part_walk at = walk_parts(c->whole);
    struct chat_part *parts = mem_calloc(n, sizeof *parts);
    for (size_t i = 0; parts && i < n; i++)
        parts[i] = walk_on(c, &at, &from[i]);
    return parts;
}

bool run_part_at(const void *ctx, size_t i, struct chat_part *out)
{
    const struct chat_run *run = ctx;
    const struct run_whole *w = run->n_choices ? run->choices[0].whole : NULL;
    if (!w || i >= w->parts.n / sizeof(struct run_part))
        return false;
    const struct run_part *from = (const struct run_part *)(const void *)w->parts.p;
    struct part_walk at = walk_parts(w);
    for (size_t k = 0; k <= i; k++)
        *out = walk_on(&run->choices[0], &at, &from[k]);
    return true;
}

/* False without memory. */
static bool whole_choice(const struct chat_run *run, const struct run_choice *c,
                         struct chat_choice *out)
{
    const struct run_whole *w = c->whole;
    *out = (struct chat_choice){.finish = c->finish,
                                .stop_token = c->stop_token,
                                .stop = c->stop,
                                .has_calls = has_calls(c),
                                .end_token = c->stopped ? -1 : c->ev.stop_token};
    if (w) {
        out->text = buf_str(&w->text);
        out->reasoning = buf_str(&w->reasoning);
        out->n_parts = w->parts.n / sizeof(struct run_part);
        out->parts = whole_parts(c, out->n_parts);
    }
    if (out->n_parts && !out->parts)
        return false;
    if (!run_wants_details(run))
        return true;
    out->answer = answer_tokens(c, 0, run->request.no_reply ? 0 : c->n_told);
    if (c->echoed)
        out->prompt = prompt_tokens(c);
    return true;
}

void run_done_free(struct chat_run *run)
{
    for (size_t i = 0; run->done && i < run->n_choices; i++)
        mem_free((void *)(uintptr_t)run->done[i].parts);
    mem_free(run->done);
}

/* The complete choices; false without memory. */
static bool make_done(struct chat_run *run)
{
    run->done = mem_calloc(run->n_choices, sizeof *run->done);
    bool ok = run->done != NULL;
    for (size_t i = 0; i < run->n_choices && ok; i++)
        ok = whole_choice(run, &run->choices[i], &run->done[i]);
    return ok;
}

static struct chat_event end_event(struct chat_run *run)
{
    struct chat_event ev = {.kind = CHAT_EVENT_END};
    run->over = true;
    if (run->n_choices == 0)
        return ev;
    ev.usage = usage_of(run);
    ev.timings = timings_of(run);
    if (keeps_choices(run) && !make_done(run))
        return no_memory(&run->choices[0]);
    ev.choices = run->done;
    ev.n_choices = run->done ? run->n_choices : 0;
    return ev;
}

static struct chat_event pull_event(struct chat_run *run)
{
    struct chat_event ev = {0};
    struct pull_progress p;
    struct t9_err err = {0};
    switch (pull_next(run->pull, &p, &err)) {
    case PULL_SAME: break;
    case PULL_MOVED:
        ev.kind = CHAT_EVENT_PROGRESS;
        ev.text = str_from(p.file);
        ev.total_bytes = p.total_bytes;
        ev.done_bytes = p.done_bytes;
        break;
    case PULL_OVER:
        run->over = true;
        ev.kind = err.code == T9_STATUS_OK ? CHAT_EVENT_END : CHAT_EVENT_ERROR;
        if (err.code != T9_STATUS_OK)
            (void)chat_fail(&ev.error, err.code, NULL, NULL, "%s", err.msg);
        break;
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
    if (run->pull)
        return pull_event(run);
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

void chat_run_write_whole(const struct chat_run *run, const struct chat_event *end, struct buf *out)
{
    if (run->n_choices == 0)
        buf_puts_str(out, buf_str(&run->answer));
    else
        run->adapter->whole(&run->reply, end->choices, end->n_choices, end, out);
}
