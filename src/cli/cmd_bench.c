/*
 * cli/cmd_bench.c - `bench`: prompt reading and decoding, timed inside the engine that serves.
 *
 * A cell is either a prompt length (time from admission to the first token) or a depth and batch
 * (tokens per second while all sequences of the batch decode). Every run is checked: each sequence
 * must give the tokens that were asked for, and by P1 the same ones in every run of the cell;
 * otherwise the program fails. Times come from the engine's own clocks, not from a polling reader.
 */
#include "cli/runtime.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BENCH_RUNS_MAX = 1000 };

struct cell {
    int32_t prompt, depth, batch, decode; /* decode == 0: a prompt cell */
    double rate[BENCH_RUNS_MAX];          /* tokens per second */
    int n_runs;
    uint64_t text_hash; /* of all sequences' tokens, equal in every run */
};

struct round;

/* One sequence: its request and the engine's time of each token. */
struct lane {
    struct round *round;
    struct request *req;
    int32_t *prompt;
    uint64_t *token_ns;
    int32_t n_seen;     /* tokens stamped so far */
    int32_t n_together; /* of them, those since all lanes decode */
};

/* The lanes of one run. They start one after another, so each may go on until all of them have
 * decoded together for as long as the cell asks; then the rest is cancelled. */
struct round {
    struct engine *engine;
    struct lane *lanes;
    int32_t n, decode;
    bool together;
};

/* Engine thread: stamps what is new, ends the round when it has been long enough. */
static void on_tokens(void *ctx, struct request *req)
{
    struct lane *l = ctx;
    struct round *round = l->round;
    uint64_t now = clock_now_ns();
    int32_t n = atomic_load(&req->n_tokens);
    l->n_together += round->together ? n - l->n_seen : 0;
    while (l->n_seen < n)
        l->token_ns[l->n_seen++] = now;
    atomic_store(&req->notified, false);
    int32_t n_started = 0, n_enough = 0;
    for (int32_t i = 0; i < round->n; i++) {
        n_started += round->lanes[i].n_seen > 0;
        n_enough += round->lanes[i].n_together >= round->decode;
    }
    round->together = n_started == round->n;
    for (int32_t i = 0; i < round->n && round->decode > 0 && n_enough == round->n; i++)
        engine_cancel(round->engine, round->lanes[i].req);
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

/* Tokens that a lane may give: what the cell counts, and what passes until the others' prompts have
 * been read, at worst one row a step. */
static int32_t lane_tokens(const struct round *round, const struct cell *c, int32_t n_prompt)
{
    if (c->decode == 0)
        return 1;
    int64_t wait = c->batch > 1 ? (int64_t)n_prompt * c->batch + 2 * c->batch : 0;
    int32_t room = engine_max_tokens(round->engine, n_prompt);
    int64_t n = c->decode + 1 + wait;
    return n > room && c->decode + 1 <= room ? room : (int32_t)(n < INT32_MAX ? n : INT32_MAX);
}

static t9_status lane_init(struct lane *l, struct round *round, const struct cell *c,
                           int32_t n_vocab, struct t9_err *err)
{
    int32_t n_prompt = c->decode > 0 ? (c->depth > 0 ? c->depth : 1) : c->prompt;
    int32_t n_tokens = lane_tokens(round, c, n_prompt);
    l->round = round;
    l->prompt = mem_calloc((size_t)n_prompt, sizeof *l->prompt);
    l->token_ns = mem_calloc((size_t)n_tokens, sizeof *l->token_ns);
    if (!l->prompt || !l->token_ns)
        return t9_fail(err, T9_STATUS_NOMEM, "bench: out of memory");
    T9_TRY(request_new(&l->req, n_tokens, err));
    prompt_fill(l->prompt, n_prompt, n_vocab, (int32_t)(l - round->lanes));
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

static t9_status lanes_wait(struct engine *e, struct lane *lanes, int32_t n, int32_t n_wanted,
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

/* Tokens per second: of the prompt until its first token, or of the time in which all decode. */
static t9_status rate_of(const struct cell *c, const struct lane *lanes, double *out,
                         struct t9_err *err)
{
    if (c->decode == 0) {
        const struct req_clocks *k = &lanes[0].req->clocks;
        uint64_t ns = atomic_load(&k->first_token) - atomic_load(&k->admitted);
        *out = c->prompt / ((double)(ns > 0 ? ns : 1) / 1e9);
        return T9_STATUS_OK;
    }
    uint64_t begin = 0, end = UINT64_MAX;
    for (int32_t i = 0; i < c->batch; i++) {
        uint64_t first = lanes[i].token_ns[0], last = lanes[i].token_ns[lanes[i].n_seen - 1];
        begin = first > begin ? first : begin;
        end = last < end ? last : end;
    }
    int64_t n = 0;
    for (int32_t i = 0; i < c->batch; i++)
        for (int32_t k = 0; k < lanes[i].n_seen; k++)
            n += lanes[i].token_ns[k] > begin && lanes[i].token_ns[k] <= end;
    if (end <= begin || n < (int64_t)(c->decode - 1) * c->batch)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "bench: %d sequences of depth %d never decoded %d tokens together; raise "
                       "--max-length or --kv-memory",
                       c->batch, c->depth, c->decode);
    *out = (double)n / ((double)(end - begin) / 1e9);
    return T9_STATUS_OK;
}

static t9_status check_text(struct cell *c, const struct lane *lanes, struct t9_err *err)
{
    uint64_t h = 0;
    for (int32_t i = 0; i < c->batch; i++)
        h = hash_xxh3_64(lanes[i].req->tokens, (size_t)(c->decode + 1) * sizeof(int32_t), h);
    if (c->n_runs > 0 && h != c->text_hash)
        return t9_fail(err, T9_STATUS_INTERNAL,
                       "bench: two runs of one cell gave different tokens; results are void");
    c->text_hash = h;
    return T9_STATUS_OK;
}

static t9_status cell_run(struct runtime *rt, struct cell *c, bool counted, struct t9_err *err)
{
    struct lane *lanes = mem_calloc((size_t)c->batch, sizeof *lanes);
    if (!lanes)
        return t9_fail(err, T9_STATUS_NOMEM, "bench: out of memory");
    struct round round = {rt->engine, lanes, c->batch, c->decode, false};
    int32_t n_vocab = model_info(rt->model)->n_vocab;
    int32_t n = 0;
    t9_status s = T9_STATUS_OK;
    for (; n < c->batch && s == T9_STATUS_OK; n++)
        s = lane_init(&lanes[n], &round, c, n_vocab, err);
    int32_t submitted = 0;
    while (s == T9_STATUS_OK && submitted < n) {
        s = engine_submit(rt->engine, lanes[submitted].req, err);
        submitted += s == T9_STATUS_OK;
    }
    for (int32_t i = 0; i < submitted && s != T9_STATUS_OK; i++)
        engine_cancel(rt->engine, lanes[i].req);
    t9_status w =
        lanes_wait(rt->engine, lanes, submitted, c->decode + 1, s == T9_STATUS_OK ? err : NULL);
    s = s == T9_STATUS_OK ? w : s;
    if (s == T9_STATUS_OK && counted)
        s = check_text(c, lanes, err);
    if (s == T9_STATUS_OK && counted &&
        (s = rate_of(c, lanes, &c->rate[c->n_runs], err)) == T9_STATUS_OK)
        c->n_runs++;
    for (int32_t i = 0; i < n; i++)
        lane_free(&lanes[i]);
    mem_free(lanes);
    return s;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread {
    double median, min, max;
};

static struct spread spread_of(const struct cell *c)
{
    double v[BENCH_RUNS_MAX];
    memcpy(v, c->rate, (size_t)c->n_runs * sizeof *v);
    qsort(v, (size_t)c->n_runs, sizeof *v, by_value);
    int n = c->n_runs;
    double median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
    return (struct spread){median, v[0], v[n - 1]};
}

static void cell_print(const struct cell *c)
{
    char what[64];
    if (c->decode == 0)
        snprintf(what, sizeof what, "prompt %d", c->prompt);
    else
        snprintf(what, sizeof what, "decode %d, depth %d, batch %d", c->decode, c->depth, c->batch);
    struct spread s = spread_of(c);
    printf("%-36s %10.2f tok/s   (%.2f to %.2f, %d runs)\n", what, s.median, s.min, s.max,
           c->n_runs);
    fflush(stdout);
}

static void cell_write(struct buf *b, const struct cell *c)
{
    struct spread s = spread_of(c);
    buf_printf(b, "{\"kind\":\"%s\",\"prompt\":%d,\"decode\":%d,\"depth\":%d,\"batch\":%d,",
               c->decode ? "decode" : "prompt", c->prompt, c->decode, c->depth, c->batch);
    json_write_key(b, "median_tokens_per_s");
    json_write_f64(b, s.median);
    buf_puts(b, ",\"spread_percent\":");
    json_write_f64(b, s.median > 0 ? 100 * (s.max - s.min) / s.median : 0);
    buf_puts(b, ",\"runs\":[");
    for (int i = 0; i < c->n_runs; i++) {
        buf_puts(b, i ? "," : "");
        json_write_f64(b, c->rate[i]);
    }
    buf_printf(b, "],\"text_hash\":\"%016" PRIx64 "\"}", c->text_hash);
}

struct report {
    struct buf cells;
    const struct cli_options *o;
};

static t9_status cell_measure(struct runtime *rt, struct report *rep, struct cell *c,
                              struct t9_err *err)
{
    T9_TRY(cell_run(rt, c, false, err)); /* warm */
    for (int r = 0; r < rep->o->bench_repeat; r++)
        T9_TRY(cell_run(rt, c, true, err));
    if (!rep->o->json)
        cell_print(c);
    if (ferror(stdout))
        return t9_fail(err, T9_STATUS_IO, "standard output was closed");
    buf_puts(&rep->cells, rep->cells.n ? "," : "");
    cell_write(&rep->cells, c);
    return T9_STATUS_OK;
}

static t9_status bench_all(struct runtime *rt, struct report *rep, struct t9_err *err)
{
    const struct cli_options *o = rep->o;
    struct cell *c = mem_calloc(1, sizeof *c);
    if (!c)
        return t9_fail(err, T9_STATUS_NOMEM, "bench: out of memory");
    t9_status s = T9_STATUS_OK;
    for (int i = 0; i < o->bench_prompt.n && s == T9_STATUS_OK; i++) {
        memset(c, 0, sizeof *c);
        c->prompt = o->bench_prompt.v[i];
        c->batch = 1;
        if (c->prompt > 0)
            s = cell_measure(rt, rep, c, err);
    }
    for (int d = 0; d < o->bench_depth.n && o->bench_decode > 0; d++)
        for (int b = 0; b < o->bench_batch.n && s == T9_STATUS_OK; b++) {
            memset(c, 0, sizeof *c);
            c->depth = o->bench_depth.v[d];
            c->batch = o->bench_batch.v[b];
            c->decode = o->bench_decode;
            s = cell_measure(rt, rep, c, err);
        }
    mem_free(c);
    return s;
}

static void list_write(struct buf *b, const char *key, const struct cli_list *l)
{
    json_write_key(b, key);
    for (int i = 0; i < l->n; i++)
        buf_printf(b, "%s%d", i ? "," : "[", l->v[i]);
    buf_puts(b, "],");
}

/* The result as one JSON object: identity, workload and its fingerprint, cells. */
static void report_write(const struct runtime *rt, const struct report *rep)
{
    struct buf b, w;
    buf_init(&b, (size_t)64 << 20);
    buf_init(&w, 1 << 12);
    const struct cli_options *o = rep->o;
    buf_printf(&w,
               "{\"kv_type\":\"%s\",\"step_tokens\":%d,\"max_batch\":%d,\"sampling\":\"greedy\","
               "\"prefix_cache\":false,",
               kv_type_name(session_kv_type(o)), o->step_tokens, o->max_batch);
    list_write(&w, "prompt", &o->bench_prompt);
    list_write(&w, "depth", &o->bench_depth);
    list_write(&w, "batch", &o->bench_batch);
    buf_printf(&w, "\"decode\":%d,\"repeat\":%d,\"warm\":true}", o->bench_decode, o->bench_repeat);
    buf_puts(&b, "{");
    identity_write(&b, rt);
    buf_printf(&b, ",\"workload\":%.*s,\"workload_fingerprint\":\"%016" PRIx64 "\"", (int)w.n, w.p,
               hash_xxh3_64(w.p, w.n, 0));
    buf_printf(&b, ",\"load_ms\":%.1f,\"cells\":[", (double)rt->load_ns / 1e6);
    buf_puts_str(&b, buf_str(&rep->cells));
    buf_puts(&b, "]}\n");
    cli_write(b.p, b.n);
    buf_deinit(&w);
    buf_deinit(&b);
}

int cmd_bench(const struct cli_options *o)
{
    struct runtime rt = {0};
    struct t9_err err = {0};
    struct report rep = {.o = o};
    buf_init(&rep.cells, (size_t)32 << 20);
    struct cli_options eo = *o; /* every batch size must run at once */
    for (int i = 0; i < o->bench_batch.n; i++)
        eo.max_batch = eo.max_batch < o->bench_batch.v[i] ? o->bench_batch.v[i] : eo.max_batch;
    if (eo.step_tokens < eo.max_batch)
        eo.step_tokens = eo.max_batch;
    rep.o = &eo;
    t9_status s = runtime_open_tokenizer(&rt, &eo, &err);
    if (s == T9_STATUS_OK)
        s = runtime_open_model(&rt, &eo, eo.step_tokens, &err);
    if (s == T9_STATUS_OK)
        s = runtime_open_engine(&rt, &eo, &err);
    if (s == T9_STATUS_OK && !o->json)
        printf("%s: %s, backend %s (%s, %s), %d threads, kv %s\n", gguf_file_name(rt.gguf),
               model_info(rt.model)->arch, be_name(rt.be), be_isa(rt.be), be_numerics(rt.be),
               be_threads(rt.be), kv_type_name(session_kv_type(o)));
    if (s == T9_STATUS_OK)
        s = bench_all(&rt, &rep, &err);
    if (s == T9_STATUS_OK && o->json)
        report_write(&rt, &rep);
    buf_deinit(&rep.cells);
    runtime_close(&rt);
    if (s == T9_STATUS_OK || ferror(stdout))
        return cli_finish_stdout();
    (void)cli_fail(&err);
    return s == T9_STATUS_CANCELLED ? EXIT_INTERRUPTED : EXIT_FAILED;
}
