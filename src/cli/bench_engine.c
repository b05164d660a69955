/*
 * cli/bench_engine.c - one run of a cell, timed inside the engine that serves.
 *
 * Times come from the engine's own clocks, not from a polling reader. Every run is checked: each
 * sequence must give the tokens that were asked for, and by P1 the same ones, from the same bits of
 * logits, in every run of the cell. Callbacks run on the engine thread, the rest on the caller's.
 */
#include "cli/bench.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

struct round;

/* One sequence: its request and the engine's time of each token. */
struct lane {
    struct round *round;
    struct request *req;
    int32_t *prompt;
    uint64_t *token_ns;
    int32_t n_seen;     /* tokens stamped so far */
    int32_t n_together; /* of them, those since all streams decode */
    /* Rows of logits that are looked at: those that predict these positions; -1: seen, or none. */
    int32_t check[2];
    uint64_t logits_hash;
};

/* The lanes of one run. Streams start one after another, so each may go on until all of them have
 * decoded together for as long as the cell asks; then the rest is cancelled. In a mixed cell the
 * lane after them reads its prompt once they do, and its first token ends the run. */
struct round {
    struct engine *engine;
    struct lane *lanes;
    int32_t n_streams, n, decode;
    bool mixed;
    atomic_bool together;
};

/* Engine thread: stamps what is new, ends the round when it has been long enough. */
static void on_tokens(void *ctx, struct request *req)
{
    struct lane *l = ctx;
    struct round *round = l->round;
    uint64_t now = clock_now_ns();
    int32_t n = atomic_load(&req->n_tokens);
    bool together = atomic_load(&round->together);
    l->n_together += together ? n - l->n_seen : 0;
    while (l->n_seen < n)
        l->token_ns[l->n_seen++] = now;
    atomic_store(&req->notified, false);
    int32_t n_started = 0, n_enough = 0;
    for (int32_t i = 0; i < round->n_streams; i++) {
        n_started += round->lanes[i].n_seen > 0;
        n_enough += round->lanes[i].n_together >= round->decode;
    }
    atomic_store(&round->together, n_started == round->n_streams);
    bool enough = round->mixed ? round->lanes[round->n_streams].n_seen > 0
                               : round->decode > 0 && n_enough == round->n_streams;
    for (int32_t i = 0; enough && i < round->n_streams; i++)
        engine_cancel(round->engine, round->lanes[i].req);
}

/* Engine thread: two rows of a sequence, because each depends on all that was computed before. */
static void on_logits(void *ctx, const struct request *req, int32_t position, const float *logits,
                      int32_t n_vocab)
{
    (void)ctx;
    struct lane *l = req->notify_ctx;
    for (int k = 0; k < 2; k++) {
        if (!l || l->check[k] != position)
            continue;
        l->check[k] = -1;
        l->logits_hash = hash_xxh3_64(logits, (size_t)n_vocab * sizeof *logits, l->logits_hash);
    }
}

void bench_watch(struct engine *e)
{
    engine_set_logits_hook(e, on_logits, NULL);
}

const char *bench_kind_name(bench_kind k)
{
    static const char *const names[BENCH_KIND_COUNT] = {"prompt", "decode", "mixed"};
    return names[k];
}

void bench_cell_deinit(struct bench_cell *c)
{
    for (int32_t i = 0; i < c->n_texts; i++)
        mem_free(c->texts[i].tokens);
    mem_free(c->texts);
    c->texts = NULL;
    c->n_texts = 0;
}

/* Deterministic ids spread over the vocabulary, other for each sequence so that no prefix is
 * shared. */
static void prompt_fill(int32_t *ids, int32_t n, int32_t n_vocab, int32_t lane)
{
    for (int32_t i = 0; i < n; i++) {
        uint32_t r[4], ctr[4] = {(uint32_t)i, (uint32_t)lane, 0, 0}, key[2] = {9, 9};
        philox4x32_10(ctr, key, r);
        ids[i] = (int32_t)(r[0] % (uint32_t)n_vocab);
    }
}

static void lane_free(struct lane *l)
{
    request_free(l->req);
    mem_free(l->prompt);
    mem_free(l->token_ns);
}

/* Tokens that may pass while this thread, which submits, is not run. */
enum { LATE_TOKENS = 1000 };

/* Tokens that a stream may give: what the cell counts, and what passes until the others are there
 * and their prompts have been read, at worst one row a step; in a mixed cell also what passes until
 * the prompt's first token. */
static int32_t stream_tokens(const struct round *round, const struct bench_cell *c,
                             int32_t n_prompt)
{
    bool mixed = c->kind == BENCH_KIND_MIXED;
    int64_t wait = c->batch > 1 ? (int64_t)n_prompt * c->batch + 2 * c->batch : 0;
    int64_t late = c->batch > 1 || mixed ? LATE_TOKENS : 0;
    int64_t counted = (mixed ? c->prompt : c->decode) + late;
    int32_t room = engine_max_tokens(round->engine, n_prompt);
    int64_t n = counted + 1 + wait;
    return n > room && c->decode + 1 <= room ? room : (int32_t)(n < INT32_MAX ? n : INT32_MAX);
}

static t9_status lane_init(struct lane *l, struct round *round, const struct bench_cell *c,
                           int32_t n_vocab, struct t9_err *err)
{
    int32_t at = (int32_t)(l - round->lanes);
    bool reads = c->kind == BENCH_KIND_PROMPT || at == round->n_streams;
    int32_t n_prompt = reads ? c->prompt : c->depth > 0 ? c->depth : 1;
    int32_t n_tokens = reads ? 1 : stream_tokens(round, c, n_prompt);
    l->round = round;
    l->check[0] = n_prompt;
    l->check[1] = c->decode > 0 ? n_prompt + c->decode : -1;
    l->prompt = mem_calloc((size_t)n_prompt, sizeof *l->prompt);
    l->token_ns = mem_calloc((size_t)n_tokens, sizeof *l->token_ns);
    if (!l->prompt || !l->token_ns)
        return t9_fail(err, T9_STATUS_NOMEM, "bench: out of memory");
    T9_TRY(request_new(&l->req, n_tokens, err));
    prompt_fill(l->prompt, n_prompt, n_vocab, at);
    l->req->prompt = l->prompt;
    l->req->n_prompt = n_prompt;
    l->req->max_tokens = n_tokens;
    l->req->sampling.temperature = 0;
    l->req->ignore_eos = true;
    l->req->notify = on_tokens;
    l->req->notify_ctx = l;
    return T9_STATUS_OK;
}

static bool ended(const struct lane *l)
{
    return atomic_load(&l->req->finish) != FINISH_REASON_NONE;
}

static t9_status lanes_wait(struct engine *e, const struct lane *lanes, int32_t n, int32_t n_wanted,
                            struct t9_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        while (!ended(&lanes[i])) {
            struct event_cursor at_end = {
                .admitted = true, .n_prefilled = INT32_MAX, .n_tokens = INT32_MAX};
            engine_wait(e, lanes[i].req, &at_end, 100);
            if (cli_interrupts() > 0)
                for (int32_t k = 0; k < n; k++)
                    engine_cancel(e, lanes[k].req);
        }
        if (cli_interrupts() > 0)
            continue;
        const struct request *r = lanes[i].req;
        if (atomic_load(&r->finish) == FINISH_REASON_ERROR)
            return t9_fail(err, r->error.code, "bench: %s", r->error.msg);
        if (atomic_load(&r->n_tokens) < n_wanted)
            return t9_fail(err, T9_STATUS_INTERNAL, "bench: sequence %d gave %d of %d tokens", i,
                           atomic_load(&r->n_tokens), n_wanted);
    }
    return cli_interrupts() > 0 ? t9_fail(err, T9_STATUS_CANCELLED, "interrupted") : T9_STATUS_OK;
}

/* Mixed: once all streams decode, the prompt comes. Not *submitted: one ended before, or an
 * interrupt came. */
static t9_status prompt_submit(struct round *round, bool *submitted, struct t9_err *err)
{
    while (!atomic_load(&round->together)) {
        for (int32_t i = 0; i < round->n_streams; i++)
            if (cli_interrupts() > 0 || ended(&round->lanes[i]))
                return T9_STATUS_OK;
        clock_sleep_ms(1);
    }
    T9_TRY(engine_submit(round->engine, round->lanes[round->n_streams].req, err));
    *submitted = true;
    return T9_STATUS_OK;
}

static double per_s(int64_t n, uint64_t begin, uint64_t end)
{
    return (double)n / ((double)(end > begin ? end - begin : 1) / 1e9);
}

/* Tokens of all streams after `begin`, until `end`. */
static int64_t tokens_between(const struct round *round, uint64_t begin, uint64_t end)
{
    int64_t n = 0;
    for (int32_t i = 0; i < round->n_streams; i++) {
        const struct lane *l = &round->lanes[i];
        for (int32_t k = 0; k < l->n_seen; k++)
            n += l->token_ns[k] > begin && l->token_ns[k] <= end;
    }
    return n;
}

/* While all streams decode. False: not for long enough. */
static bool decode_rate(const struct round *round, double *rate)
{
    uint64_t begin = 0, end = UINT64_MAX;
    for (int32_t i = 0; i < round->n_streams; i++) {
        const struct lane *l = &round->lanes[i];
        uint64_t first = l->token_ns[0], last = l->token_ns[l->n_seen - 1];
        begin = first > begin ? first : begin;
        end = last < end ? last : end;
    }
    int64_t n = tokens_between(round, begin, end);
    *rate = per_s(n, begin, end);
    return end > begin && n >= (int64_t)(round->decode - 1) * round->n_streams;
}

/* Of the streams beside the prompt, which came at `begin`. They get their tokens of the step that
 * ends the prompt before it gets its own. False: one ended of itself and left the mix. */
static bool beside_rate(const struct round *round, uint64_t begin, double *rate)
{
    uint64_t end = round->lanes[round->n_streams].token_ns[0];
    *rate = per_s(tokens_between(round, begin, end), begin, end);
    for (int32_t i = 0; i < round->n_streams; i++)
        if (atomic_load(&round->lanes[i].req->finish) != FINISH_REASON_CANCELLED)
            return false;
    return true;
}

/* The rates of one run: of a prompt until its first token, of the streams. */
static t9_status rate_of(const struct bench_cell *c, const struct round *round, double *rate,
                         double *streams_rate, struct t9_err *err)
{
    const struct req_clocks *last = &round->lanes[round->n - 1].req->clocks;
    uint64_t admitted = atomic_load(&last->admitted);
    bool together = true;
    *streams_rate = 0;
    if (c->kind == BENCH_KIND_DECODE)
        together = decode_rate(round, rate);
    else
        *rate = per_s(c->prompt, admitted, atomic_load(&last->first_token));
    if (c->kind == BENCH_KIND_MIXED)
        together = beside_rate(round, admitted, streams_rate);
    if (together)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_TOO_LARGE,
                   "bench: %d sequences of depth %d never decoded together for long enough; raise "
                   "--max-length or --kv-memory",
                   c->batch, c->depth);
}

/* Keeps what the first run gave. */
static t9_status texts_keep(struct bench_cell *c, const struct round *round, struct t9_err *err)
{
    c->texts = mem_calloc((size_t)round->n, sizeof *c->texts);
    if (!c->texts)
        return t9_fail(err, T9_STATUS_NOMEM, "bench: out of memory");
    for (c->n_texts = 0; c->n_texts < round->n; c->n_texts++) {
        struct bench_text *t = &c->texts[c->n_texts];
        t->n = round->lanes[c->n_texts].n_seen;
        t->tokens = mem_calloc((size_t)t->n + 1, sizeof *t->tokens);
        if (!t->tokens)
            return t9_fail(err, T9_STATUS_NOMEM, "bench: out of memory");
        memcpy(t->tokens, round->lanes[c->n_texts].req->tokens, (size_t)t->n * sizeof *t->tokens);
    }
    return T9_STATUS_OK;
}

/* Same tokens, same logits; else the figures say nothing. The engine refuses what is no number. */
static t9_status check_results(struct bench_cell *c, const struct round *round, struct t9_err *err)
{
    uint64_t text_hash = 0, logits_hash = 0;
    for (int32_t i = 0; i < round->n; i++) {
        const struct lane *l = &round->lanes[i];
        text_hash =
            hash_xxh3_64(l->req->tokens, (size_t)(c->decode + 1) * sizeof(int32_t), text_hash);
        logits_hash = hash_xxh3_64(&l->logits_hash, sizeof l->logits_hash, logits_hash);
    }
    if (c->n_texts == 0) {
        c->text_hash = text_hash;
        c->logits_hash = logits_hash;
        return texts_keep(c, round, err);
    }
    bool same = text_hash == c->text_hash;
    for (int32_t i = 0; i < round->n; i++) {
        const struct bench_text *t = &c->texts[i];
        int32_t n = t->n < round->lanes[i].n_seen ? t->n : round->lanes[i].n_seen;
        same = same &&
               memcmp(t->tokens, round->lanes[i].req->tokens, (size_t)n * sizeof(int32_t)) == 0;
    }
    if (!same || logits_hash != c->logits_hash)
        return t9_fail(err, T9_STATUS_INTERNAL,
                       "bench: two runs of one cell gave different %s; results are void",
                       same ? "logits" : "tokens");
    return T9_STATUS_OK;
}

/* Submits, waits until all lanes have ended, whatever happened. */
static t9_status round_run(struct round *round, struct t9_err *err)
{
    struct t9_err late = {0};
    int32_t submitted = 0;
    t9_status s = T9_STATUS_OK;
    while (s == T9_STATUS_OK && submitted < round->n_streams) {
        s = engine_submit(round->engine, round->lanes[submitted].req, err);
        submitted += s == T9_STATUS_OK;
    }
    bool went = !round->mixed;
    if (s == T9_STATUS_OK && round->mixed) {
        s = prompt_submit(round, &went, err);
        submitted += went;
    }
    for (int32_t i = 0; i < submitted && (s != T9_STATUS_OK || !went); i++)
        engine_cancel(round->engine, round->lanes[i].req);
    t9_status w = lanes_wait(round->engine, round->lanes, submitted, round->decode + 1, &late);
    if (s == T9_STATUS_OK && w == T9_STATUS_OK && !went)
        return t9_fail(err, T9_STATUS_INTERNAL, "bench: a sequence ended before all had begun");
    if (s != T9_STATUS_OK || w == T9_STATUS_OK)
        return s;
    *err = late;
    return w;
}

t9_status bench_cell_run(struct runtime *rt, struct bench_cell *c, bool counted, struct t9_err *err)
{
    bool mixed = c->kind == BENCH_KIND_MIXED;
    struct round round = {.engine = rt->engine,
                          .n_streams = c->batch,
                          .n = c->batch + mixed,
                          .decode = c->decode,
                          .mixed = mixed};
    round.lanes = mem_calloc((size_t)round.n, sizeof *round.lanes);
    if (!round.lanes)
        return t9_fail(err, T9_STATUS_NOMEM, "bench: out of memory");
    t9_status s = T9_STATUS_OK;
    for (int32_t i = 0; i < round.n && s == T9_STATUS_OK; i++)
        s = lane_init(&round.lanes[i], &round, c, model_info(rt->model)->n_vocab, err);
    if (s == T9_STATUS_OK)
        s = round_run(&round, err);
    if (s == T9_STATUS_OK)
        s = check_results(c, &round, err);
    if (s == T9_STATUS_OK && counted) {
        s = rate_of(c, &round, &c->rate[c->n_runs], &c->streams_rate[c->n_runs], err);
        c->n_runs += s == T9_STATUS_OK;
    }
    for (int32_t i = 0; i < round.n; i++)
        lane_free(&round.lanes[i]);
    mem_free(round.lanes);
    return s;
}
