/*
 * cli/bench.h - private to `bench`: a cell, how it is run (bench_engine.c) and how the result is
 * told (bench_report.c). cmd_bench.c decides which cells there are and in which order.
 */
#ifndef T9_CLI_BENCH_H
#define T9_CLI_BENCH_H

#include "backend/limits.h"
#include "cli/runtime.h"

enum { BENCH_RUNS_MAX = 1000 };

/* A cell whose runs spread by more, (largest - smallest) / median, is marked. */
#define BENCH_SPREAD_PERCENT_MAX 8.0

typedef enum bench_kind {
    BENCH_KIND_PROMPT, /* one prompt alone: tokens per second from admission to its first token */
    BENCH_KIND_DECODE, /* `batch` sequences at `depth`: while all of them decode */
    BENCH_KIND_MIXED,  /* a prompt is read while `batch` sequences at `depth` decode */
    BENCH_KIND_COUNT,
} bench_kind;

/* What a sequence gave in the first run; every other run must give the same as far as it goes. */
struct bench_text {
    int32_t *tokens;
    int32_t n;
};

struct bench_cell {
    bench_kind kind;
    int32_t prompt, depth, batch, decode;
    double rate[BENCH_RUNS_MAX];         /* tokens per second */
    double streams_rate[BENCH_RUNS_MAX]; /* mixed: of the decoding sequences together */
    int n_runs;
    uint64_t text_hash;   /* of all sequences' tokens, as far as the cell asks for them */
    uint64_t logits_hash; /* of the first and the last of their rows of logits */
    struct bench_text *texts;
    int32_t n_texts; /* 0: no run yet */
};
const char *bench_kind_name(bench_kind k);
void bench_cell_deinit(struct bench_cell *c);

/* Before the first run: every run looks at logits. */
void bench_watch(struct engine *e);
/* One run; with `counted` its rates are kept. INTERNAL when it gave other tokens or logits than the
 * runs before, or logits that are not finite; CANCELLED after an interrupt. */
t9_status bench_cell_run(struct runtime *rt, struct bench_cell *c, bool counted,
                         struct t9_err *err);

struct bench_report {
    const struct cli_options *o;
    const struct runtime *rt;
    struct be_limits limits;
    char date[32];
    struct buf sha256; /* of the file's parts, blanks between; for CSV */
    struct buf cpu;    /* its name */
    struct buf cells;  /* JSON, while it grows */
    int n_unsteady;
    bool complete; /* no cell is missing; set by the caller before the end */
};
void bench_report_begin(struct bench_report *r, const struct cli_options *o,
                        const struct runtime *rt);
/* Measures the machine's limits again; the best so far count. While nothing runs. */
void bench_report_limits(struct bench_report *r);
/* A cell has at least one run. */
void bench_report_cell(struct bench_report *r, const struct bench_cell *c);
void bench_report_end(struct bench_report *r);
void bench_report_deinit(struct bench_report *r);

/* What a cell is called in a table and while it runs. */
void bench_cell_title(const struct bench_cell *c, char *out, size_t cap);

#endif
