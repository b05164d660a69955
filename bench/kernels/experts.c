/*
 * bench/kernels/experts.c - how fast products of experts are, whose rows are ragged.
 *
 *   bench_kernels experts [threads [isa [type [n_experts used [n_in n_out]]]]]
 *
 * Per weight type and number of rows: time of one op and of one row of it, rows that an expert with
 * any meets on average, Gop/s, and GB/s of the weights of all experts that are met. Ids are drawn
 * as routing gives them, distinct in a row; ops with other ids take turns, so that weights come
 * from memory as they do in a model. Some slots of each op are compared with canon bit for bit, as
 * plain products of their expert alone, before anything is timed.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/str.h"
#include "gguf/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPS = 16, CHECKED = 8, CHECK_OUT = 48, CASE_MS = 300, ROWS_MAX = 512, USED_MAX = 32 };

struct experts {
    struct be *be;
    uint32_t dtype;
    int32_t n_experts, used, n_in, n_out, rows;
    char *data; /* [n_experts][n_out][n_in] */
    struct weight w;
    float *x, *y;
    int32_t *ids;    /* [OPS][rows][used] */
    double met[OPS]; /* experts that have any row */
};

/* `used` distinct experts for each row. */
static void draw(struct experts *e, int op)
{
    int32_t *ids = e->ids + (size_t)op * (size_t)(e->rows * e->used);
    bool *any = mem_calloc((size_t)e->n_experts, sizeof(*any));
    int32_t *order = mem_calloc((size_t)e->n_experts, sizeof(*order));
    if (!any || !order)
        exit(1);
    for (int32_t i = 0; i < e->n_experts; i++)
        order[i] = i;
    for (int32_t r = 0; r < e->rows; r++) {
        for (int32_t j = 0; j < e->used; j++) {
            int32_t k = j + (int32_t)(bench_rnd() % (uint32_t)(e->n_experts - j)), id = order[k];
            order[k] = order[j];
            order[j] = id;
            ids[r * e->used + j] = id;
            any[id] = true;
        }
    }
    e->met[op] = 0;
    for (int32_t i = 0; i < e->n_experts; i++)
        e->met[op] += any[i];
    mem_free(any);
    mem_free(order);
}

static void record(const struct experts *e, struct tape *tape, struct scratch *scratch)
{
    struct cx cx = {0};
    const struct weight *w = &e->w;
    cx_init_record(&cx, tape, scratch);
    for (int op = 0; op < OPS; op++) {
        struct view y = view_f32(e->y, e->rows, e->used * e->n_out);
        const int32_t *ids = e->ids + (size_t)op * (size_t)(e->rows * e->used);
        op_matmul_experts(&cx, &y, view_f32(e->x, e->rows, e->n_in),
                          view_i32(ids, e->rows, e->used), &w, 1);
    }
    if (cx.status != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", cx.err.msg);
        exit(1);
    }
}

/* Some slots of the first op, first outputs of each, against canon. */
static void check(const struct experts *e)
{
    struct be *canon;
    struct be_params params = {.n_threads = 1, .max_rows = 1};
    int32_t n = e->n_out < CHECK_OUT ? e->n_out : CHECK_OUT, n_slots = e->rows * e->used;
    size_t expert_bytes = (size_t)dtype_row_bytes(e->dtype, (uint64_t)e->n_in) * (size_t)e->n_out;
    float want[CHECK_OUT];
    if (be_new(&canon, "canon", &params, NULL) != T9_STATUS_OK)
        exit(1);
    for (int32_t i = 0; i < CHECKED; i++) {
        int32_t slot = (int32_t)((int64_t)(n_slots - 1) * i / (CHECKED - 1));
        struct cx cx = {0};
        struct scratch scratch = {0};
        struct weight w;
        const struct weight *pw = &w;
        struct view y = view_f32(want, 1, n);
        struct weight_src src = {.name = "w",
                                 .dtype = e->dtype,
                                 .n_in = e->n_in,
                                 .n_out = n,
                                 .read = bench_read,
                                 .ctx = e->data + (size_t)e->ids[slot] * expert_bytes};
        if (be_weight_load(canon, &w, &src, NULL) != T9_STATUS_OK)
            exit(1);
        cx_init_run(&cx, canon, &scratch);
        op_matmul(&cx, &y, view_f32(e->x + (size_t)(slot / e->used) * (size_t)e->n_in, 1, e->n_in),
                  &pw, 1);
        if (cx.status != T9_STATUS_OK ||
            memcmp(want, e->y + (size_t)slot * (size_t)e->n_out, (size_t)n * sizeof(float)) != 0) {
            fprintf(stderr, "%s: slot %d of expert %d differs from canon\n",
                    gguf_dtype_name(e->dtype), slot, e->ids[slot]);
            exit(1);
        }
        be_weight_free(canon, &w);
    }
    be_free(canon);
}

/* Times e->rows rows: the median of ops with other ids, each at its best. */
static void bench(struct experts *e)
{
    struct tape tape;
    struct scratch scratch = {0};
    struct t9_err err;
    double best[OPS], all = 0, met = 0;
    int n_threads = be_threads(e->be);
    if (tape_init(&tape, OPS, NULL) != T9_STATUS_OK)
        exit(1);
    for (int op = 0; op < OPS; op++) {
        best[op] = 1e9;
        draw(e, op);
    }
    record(e, &tape, &scratch);
    if (be_run(e->be, tape.ops, 1, &err) != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    check(e);
    uint64_t start_ns = clock_now_ns();
    for (int i = 0; i < 3 * OPS || clock_now_ns() - start_ns < CASE_MS * 1000000ull; i++) {
        uint64_t t_ns = bench_timer_ns(n_threads);
        (void)be_run(e->be, &tape.ops[i % OPS], 1, NULL);
        double s = (double)(bench_timer_ns(n_threads) - t_ns) * 1e-9;
        best[i % OPS] = s < best[i % OPS] ? s : best[i % OPS];
    }
    for (int op = 0; op < OPS; op++) {
        all += best[op] / OPS;
        met += e->met[op] / OPS;
    }
    double slots = (double)e->rows * e->used;
    printf("%-7s %3d rows, %5.1f an expert  %9.1f us  %7.1f us a row  %6.0f Gop/s  %6.1f GB/s\n",
           gguf_dtype_name(e->dtype), e->rows, slots / met, all * 1e6, all * 1e6 / e->rows,
           2 * slots * e->n_in * e->n_out / all * 1e-9,
           met * (double)dtype_row_bytes(e->dtype, (uint64_t)e->n_in) * e->n_out / all * 1e-9);
    (void)fflush(stdout);
    tape_deinit(&tape);
}

static void bench_type(struct experts *e)
{
    static const int32_t rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
    size_t n = (size_t)dtype_row_bytes(e->dtype, (uint64_t)e->n_in) * (size_t)e->n_out *
               (size_t)e->n_experts;
    e->data = bench_weight_data(e->dtype, n);
    struct weight_src src = {.name = "w",
                             .dtype = e->dtype,
                             .n_in = e->n_in,
                             .n_out = e->n_out,
                             .n_experts = e->n_experts,
                             .read = bench_read,
                             .ctx = e->data};
    struct t9_err err;
    if (be_weight_load(e->be, &e->w, &src, &err) != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    for (size_t i = 0; i < T9_COUNT(rows); i++) {
        e->rows = rows[i];
        bench(e);
    }
    be_weight_free(e->be, &e->w);
    mem_free(e->data);
}

int bench_experts(int argc, char **argv)
{
    static const int32_t most[] = {64, 0, 0, 512, USED_MAX, 1 << 16, 1 << 16};
    static const uint32_t types[] = {DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_MXFP4};
    int64_t arg[] = {1, 0, 0, 256, 8, 2048, 512};
    bool ok = true;
    for (int i = 0; i < argc && i < (int)T9_COUNT(arg); i++) {
        if (i == 1 || i == 2)
            continue;
        ok = ok && num_parse_i64(str_from(argv[i]), &arg[i]) && arg[i] >= (i > 0) &&
             arg[i] <= most[i];
    }
    if (!ok || arg[4] > arg[3]) {
        fprintf(stderr, "usage: bench_kernels experts [threads [isa [type [n_experts used "
                        "[n_in n_out]]]]]\n");
        return 1;
    }
    struct experts e = {.n_experts = (int32_t)arg[3], .used = (int32_t)arg[4]};
    struct t9_err err;
    struct be_params params = {.n_threads = (int)arg[0], .max_rows = ROWS_MAX};
    params.isa = argc > 1 && strcmp(argv[1], "best") != 0 ? argv[1] : NULL;
    if (be_new(&e.be, "cpu", &params, &err) != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    e.n_in = (int32_t)arg[5];
    e.n_out = (int32_t)arg[6];
    e.x = mem_calloc((size_t)ROWS_MAX * (size_t)e.n_in, sizeof(float));
    e.y = mem_calloc((size_t)ROWS_MAX * (size_t)e.used * (size_t)e.n_out, sizeof(float));
    e.ids = mem_calloc((size_t)OPS * ROWS_MAX * (size_t)e.used, sizeof(*e.ids));
    if (!e.x || !e.y || !e.ids)
        exit(1);
    for (size_t i = 0; i < (size_t)ROWS_MAX * (size_t)e.n_in; i++)
        e.x[i] = bench_value();
    struct be_limits l = be_limits_measure(be_threads(e.be), be_isa(e.be));
    printf("%s, %d threads, %d of %d experts, %d -> %d; memory read %.1f GB/s, int8 dot products "
           "%.0f Gop/s\n",
           be_isa(e.be), be_threads(e.be), e.used, e.n_experts, e.n_in, e.n_out, l.read_gbps,
           l.dot_gops);
    for (size_t i = 0; i < T9_COUNT(types); i++) {
        e.dtype = types[i];
        if (argc <= 2 || strcmp(argv[2], gguf_dtype_name(e.dtype)) == 0)
            bench_type(&e);
    }
    mem_free(e.x);
    mem_free(e.y);
    mem_free(e.ids);
    be_free(e.be);
    return 0;
}
