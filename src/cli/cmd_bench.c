/*
 * cli/cmd_bench.c - `bench`: prompt reading and decoding, timed inside the engine that serves.
 *
 * Cells are prompt lengths, then depths and batches, and for each of those the prompts that are
 * read beside it. Every cell has one run that is not counted and --repeat that are. An interrupt
 * ends the program after what is done was told.
 */
#include "cli/bench.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One line that is redrawn on a terminal, nothing elsewhere. */
static void progress_show(const struct bench_cell *c, int run, int n_runs)
{
    char title[80];
    if (isatty(STDERR_FILENO) != 1)
        return;
    bench_cell_title(c, title, sizeof title);
    if (run == 0)
        fprintf(stderr, "\r\033[K%s: warming up", title);
    else
        fprintf(stderr, "\r\033[K%s: run %d of %d", title, run, n_runs);
    fflush(stderr);
}

static void progress_clear(void)
{
    if (isatty(STDERR_FILENO) == 1)
        fputs("\r\033[K", stderr);
}

/* Runs a cell and tells it, also when it was interrupted after some runs. */
static t9_status cell_measure(struct runtime *rt, struct bench_report *r, struct bench_cell *c,
                              struct t9_err *err)
{
    t9_status s = T9_STATUS_OK;
    bench_report_limits(r); /* a busy moment shows too little of what the machine can do */
    for (int run = 0; run <= r->o->bench_repeat && s == T9_STATUS_OK; run++) {
        progress_show(c, run, r->o->bench_repeat);
        s = bench_cell_run(rt, c, run > 0, err);
    }
    progress_clear();
    if (c->n_runs > 0 && (s == T9_STATUS_OK || s == T9_STATUS_CANCELLED))
        bench_report_cell(r, c);
    bench_cell_deinit(c);
    if (ferror(stdout))
        return t9_fail(err, T9_STATUS_IO, "standard output was closed");
    return s;
}

/* The cells of one depth and batch. */
static t9_status streams_measure(struct runtime *rt, struct bench_report *r, struct bench_cell *c,
                                 int32_t depth, int32_t batch, struct t9_err *err)
{
    const struct cli_options *o = r->o;
    if (o->bench_decode > 0) {
        *c = (struct bench_cell){
            .kind = BENCH_KIND_DECODE, .depth = depth, .batch = batch, .decode = o->bench_decode};
        T9_TRY(cell_measure(rt, r, c, err));
    }
    for (int i = 0; i < o->bench_mixed.n; i++) {
        *c = (struct bench_cell){.kind = BENCH_KIND_MIXED,
                                 .depth = depth,
                                 .batch = batch,
                                 .prompt = o->bench_mixed.v[i]};
        T9_TRY(cell_measure(rt, r, c, err));
    }
    return T9_STATUS_OK;
}

static t9_status bench_all(struct runtime *rt, struct bench_report *r, struct t9_err *err)
{
    const struct cli_options *o = r->o;
    struct bench_cell *c = mem_calloc(1, sizeof *c);
    if (!c)
        return t9_fail(err, T9_STATUS_NOMEM, "bench: out of memory");
    t9_status s = T9_STATUS_OK;
    for (int i = 0; i < o->bench_prompt.n && s == T9_STATUS_OK; i++) {
        *c = (struct bench_cell){
            .kind = BENCH_KIND_PROMPT, .prompt = o->bench_prompt.v[i], .batch = 1};
        if (c->prompt > 0)
            s = cell_measure(rt, r, c, err);
    }
    for (int d = 0; d < o->bench_depth.n; d++)
        for (int b = 0; b < o->bench_batch.n && s == T9_STATUS_OK; b++)
            s = streams_measure(rt, r, c, o->bench_depth.v[d], o->bench_batch.v[b], err);
    mem_free(c);
    return s;
}

/* Every sequence of a cell must run at once, and may wait before. */
static void make_room(struct cli_options *o)
{
    for (int i = 0; i < o->bench_batch.n; i++) {
        int32_t n = o->bench_batch.v[i] + (o->bench_mixed.n > 0);
        o->max_batch = o->max_batch < n ? n : o->max_batch;
    }
    o->queue = o->queue < o->max_batch ? o->max_batch : o->queue;
    o->step_tokens = o->step_tokens < o->max_batch ? o->max_batch : o->step_tokens;
}

/* Whether n tokens and `more` that follow fit into the context. */
static t9_status check_length(const struct engine *e, const char *option, int32_t n, int32_t more,
                              struct t9_err *err)
{
    if (engine_max_tokens(e, n > 0 ? n : 1) >= more)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_INVALID,
                   "%s %d: the tokens of the context and %d that are decoded are more than the "
                   "limit of %d (%s)",
                   option, n, more, engine_max_length(e), engine_limit_reason(e));
}

/* No cell shows only after the others that it cannot be run. */
static t9_status check_cells(const struct engine *e, const struct cli_options *o,
                             struct t9_err *err)
{
    bool streams = o->bench_decode > 0 || o->bench_mixed.n > 0;
    for (int i = 0; i < o->bench_prompt.n; i++)
        T9_TRY(check_length(e, "--prompt-tokens", o->bench_prompt.v[i], 1, err));
    for (int i = 0; i < o->bench_mixed.n; i++)
        T9_TRY(check_length(e, "--mixed", o->bench_mixed.v[i], 1, err));
    for (int i = 0; i < o->bench_depth.n && streams; i++)
        T9_TRY(check_length(e, "--depth", o->bench_depth.v[i], o->bench_decode + 1, err));
    return T9_STATUS_OK;
}

int cmd_bench(const struct cli_options *options)
{
    struct runtime rt = {0};
    struct t9_err err = {0};
    struct bench_report r = {0};
    struct cli_options o = *options;
    make_room(&o);
    t9_status s = runtime_open_known(&rt, &o, &err);
    if (s == T9_STATUS_OK)
        s = runtime_open_model(&rt, &o, o.step_tokens, &err);
    if (s == T9_STATUS_OK)
        s = runtime_open_engine(&rt, &o, &err);
    if (s == T9_STATUS_OK)
        s = check_cells(rt.engine, &o, &err);
    bool begun = s == T9_STATUS_OK;
    if (begun) {
        bench_report_begin(&r, &o, &rt);
        bench_watch(rt.engine);
        s = bench_all(&rt, &r, &err);
    }
    r.complete = s == T9_STATUS_OK;
    if (begun && (r.complete || s == T9_STATUS_CANCELLED))
        bench_report_end(&r);
    bench_report_deinit(&r);
    runtime_close(&rt);
    if (r.complete || ferror(stdout))
        return cli_finish_stdout();
    int rc = cli_fail(&err);
    (void)cli_finish_stdout();
    return rc;
}
