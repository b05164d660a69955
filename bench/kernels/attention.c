/*
 * bench/kernels/attention.c - how fast attention over pages is, beside what the machine can do.
 *
 *   bench_kernels attention [threads [isa [type [head_dim]]]]
 *
 * Per case: time of one op (one layer), Gflop/s of the two products over visible keys (one fma is
 * two), GB/s of the keys and values that a decode row reads once, and each as a share of the
 * machine's own limit. Layers and sequences take turns, so that pages come from memory as they do
 * in a model. Some rows of each case are compared with canon bit for bit before anything is timed.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 32, ROWS_MAX = 256, N_HEAD_KV = 2, BATCH_MS = 2, CASE_MS = 250 };

/* `depth` keys before the first row of each sequence. */
struct shape {
    const char *name;
    int32_t group, n_seqs, rows_per_seq, depth;
};

static const struct shape shapes[] = {
    {"decode", 1, 1, 1, 512},    {"decode", 1, 1, 1, 4096},    {"decode", 3, 1, 1, 512},
    {"decode", 3, 1, 1, 4096},   {"decode", 3, 1, 1, 16000},   {"decode", 4, 1, 1, 4096},
    {"decode", 7, 1, 1, 4096},   {"decode", 7, 1, 1, 16000},   {"decode", 8, 1, 1, 4096},
    {"decode", 3, 8, 1, 4096},   {"decode", 7, 8, 1, 4096},    {"prompt", 3, 1, 64, 0},
    {"prompt", 3, 1, 256, 0},    {"prompt", 3, 1, 64, 4096},   {"prompt", 3, 1, 256, 4096},
    {"prompt", 7, 1, 256, 4096}, {"prompt", 7, 1, 256, 16000},
};

/* One geometry's pages. Sequence s of copy c has the pages from table[c * n_seqs + s]. */
struct pages {
    struct be *be;
    struct kv_geom g;
    void *pool;
    size_t pool_bytes;
    int32_t *table;
    int32_t n_copies, seq_pages;
};

static void fill_head(const struct kv_layer *g, char *head)
{
    void *p = head;
    uint16_t *h = p;
    uint32_t *w = p;
    size_t n = (size_t)g->head_dim * KV_PAGE_TOKENS;
    switch (g->type) {
    case KV_TYPE_F16: /* +-[1/16, 1) */
        for (size_t i = 0; i < n; i++) {
            uint32_t x = bench_rnd();
            h[i] = (uint16_t)(0x2c00 + (x & 0x0fff) + (x >> 15 & 0x8000));
        }
        break;
    case KV_TYPE_BF16:
        for (size_t i = 0; i < n; i++) {
            uint32_t x = bench_rnd();
            h[i] = (uint16_t)(0x3d80 + (x & 0x01ff) + (x >> 15 & 0x8000));
        }
        break;
    case KV_TYPE_F32:
        for (size_t i = 0; i < n; i++) {
            uint32_t x = bench_rnd();
            w[i] = 0x3d800000 + (x & 0x01ffffff) + (x << 1 & 0x80000000);
        }
        break;
    case KV_TYPE_Q8_0:
        for (size_t i = 0; i < n; i++)
            head[i] = (char)(int8_t)((int32_t)(bench_rnd() % 255) - 127);
        for (size_t i = g->scale_offset / 2; i < g->head_bytes / 2; i++)
            h[i] = (uint16_t)(0x1c00 + (bench_rnd() & 0x03ff)); /* 1/256 and more */
        break;
    }
}

/* Pages of a pool that is larger than a core's cache, in a shuffled order. */
static void pages_init(struct pages *p, struct be *be, const struct shape *s, int32_t head_dim,
                       kv_type type)
{
    p->be = be;
    if (!kv_geom_init_same(&p->g, LAYERS_MAX, N_HEAD_KV, head_dim, type))
        exit(1);
    p->seq_pages = (s->depth + s->rows_per_seq + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    size_t set = (size_t)s->n_seqs * (size_t)p->seq_pages * p->g.page_bytes;
    p->n_copies = (int32_t)(FROM_MEMORY_BYTES / set) + 1;
    int32_t n = p->n_copies * s->n_seqs * p->seq_pages;
    p->pool_bytes = (size_t)n * p->g.page_bytes;
    p->table = mem_alloc((size_t)n * sizeof(*p->table));
    if (!p->table || be_reserve(be, p->pool_bytes, &p->pool, NULL) != T9_STATUS_OK)
        exit(1);
    for (int32_t i = 0; i < n; i++)
        p->table[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        int32_t j = (int32_t)(bench_rnd() % (uint32_t)(i + 1)), x = p->table[i];
        p->table[i] = p->table[j];
        p->table[j] = x;
    }
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < LAYERS_MAX * 2 * N_HEAD_KV; j++)
            fill_head(&p->g.layers[0], (char *)p->pool + (size_t)i * p->g.page_bytes +
                                           (size_t)j * p->g.layers[0].head_bytes);
    }
}

static void pages_deinit(struct pages *p)
{
    be_unreserve(p->be, p->pool, p->pool_bytes);
    mem_free(p->table);
}

struct run {
    const struct shape *s;
    struct pages *p;
    int32_t rows, n_head, cols;
    float *q, *dst;
    int32_t kv_idx[ROWS_MAX], row_seq[ROWS_MAX];
};

/* Rows [row, row + n) on layer `layer` of copy `copy`. */
static void submit(struct cx *cx, const struct run *r, float *dst, int32_t row, int32_t n,
                   int32_t copy, int32_t layer)
{
    const struct pages *p = r->p;
    const int32_t *table = p->table + (size_t)copy * (size_t)r->s->n_seqs * (size_t)p->seq_pages;
    struct op_attn a = {.dst = view_f32(dst, n, r->cols),
                        .q = view_f32(r->q + (size_t)row * (size_t)r->cols, n, r->cols),
                        .kv_idx = view_i32(r->kv_idx + row, n, 1),
                        .row_seq = view_i32(r->row_seq + row, n, 1),
                        .page_table = view_i32(table, r->s->n_seqs, p->seq_pages),
                        .pool = {p->pool, 1, 1, 1, VIEW_BYTES, 0},
                        .kv = &p->g.layers[layer],
                        .n_head = r->n_head,
                        .scale = 1.0f / sqrtf((float)p->g.layers[layer].head_dim)};
    op_attn_paged(cx, &a);
    if (cx->status != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", cx->err.msg);
        exit(1);
    }
}

/* First, last and a middle row of the first op, against canon. */
static void check(const struct run *r, const struct tape *tape)
{
    struct be *canon;
    struct cx cx = {0};
    struct scratch scratch = {0};
    struct be_params params = {.n_threads = 1, .max_rows = 1};
    size_t bytes = (size_t)r->cols * sizeof(float);
    float *want = mem_alloc_aligned(64, bytes);
    if (!want || be_new(&canon, "canon", &params, NULL) != T9_STATUS_OK ||
        be_run(r->p->be, tape->ops, 1, NULL) != T9_STATUS_OK)
        exit(1);
    cx_init_run(&cx, canon, &scratch);
    const int32_t sample[] = {0, r->rows / 2, r->rows - 1};
    for (size_t i = 0; i < T9_COUNT(sample); i++) {
        submit(&cx, r, want, sample[i], 1, 0, 0);
        if (memcmp(want, r->dst + (size_t)sample[i] * (size_t)r->cols, bytes) != 0) {
            fprintf(stderr, "%s %s: row %d differs from canon\n", r->s->name,
                    kv_type_name(r->p->g.type), sample[i]);
            exit(1);
        }
    }
    be_free(canon);
    mem_free(want);
}

/* Seconds of one op: the best of batches of some milliseconds. */
static double op_time(const struct run *r, const struct tape *tape)
{
    int n_threads = be_threads(r->p->be);
    double best = 1e9;
    uint64_t start_ns = clock_now_ns();
    size_t at = 0;
    for (int batch = 0; batch < 3 || clock_now_ns() - start_ns < CASE_MS * 1000000ull; batch++) {
        uint64_t t_ns = bench_timer_ns(n_threads), ns = 0;
        int n = 0;
        for (; ns < BATCH_MS * 1000000ull; n++) {
            (void)be_run(r->p->be, &tape->ops[at++ % tape->n], 1, NULL);
            ns = bench_timer_ns(n_threads) - t_ns;
        }
        double s = (double)ns * 1e-9 / n;
        best = s < best ? s : best;
    }
    return best;
}

static void bench(struct be *be, const struct be_limits *l, const struct shape *s, int32_t head_dim,
                  kv_type type)
{
    struct pages p;
    struct tape tape;
    struct cx cx = {0};
    struct scratch scratch = {0};
    pages_init(&p, be, s, head_dim, type);
    struct run r = {.s = s, .p = &p, .rows = s->n_seqs * s->rows_per_seq};
    r.n_head = s->group * N_HEAD_KV;
    r.cols = r.n_head * head_dim;
    size_t n = (size_t)r.rows * (size_t)r.cols;
    r.q = mem_alloc_aligned(64, n * sizeof(float));
    r.dst = mem_alloc_aligned(64, n * sizeof(float));
    if (!r.q || !r.dst ||
        tape_init(&tape, (size_t)LAYERS_MAX * (size_t)p.n_copies, NULL) != T9_STATUS_OK)
        exit(1);
    for (size_t i = 0; i < n; i++)
        r.q[i] = (float)(int)(bench_rnd() % 2001) * 2e-3f - 2.0f;
    double keys = 0, read_keys = 0;
    for (int32_t i = 0; i < r.rows; i++) {
        r.row_seq[i] = i / s->rows_per_seq;
        r.kv_idx[i] = s->depth + i % s->rows_per_seq;
        keys += r.kv_idx[i] + 1;
        read_keys += (i + 1) % s->rows_per_seq == 0 ? r.kv_idx[i] + 1 : 0;
    }
    cx_init_record(&cx, &tape, &scratch);
    for (int32_t layer = 0; layer < LAYERS_MAX; layer++) {
        for (int32_t copy = 0; copy < p.n_copies; copy++)
            submit(&cx, &r, r.dst, 0, r.rows, copy, layer);
    }
    check(&r, &tape);
    double sec = op_time(&r, &tape), gflops = keys * 4 * r.cols / sec * 1e-9;
    double gbps =
        read_keys * 2 * N_HEAD_KV * (double)p.g.layers[0].head_bytes / KV_PAGE_TOKENS / sec * 1e-9;
    printf("%-4s d %3d  %s %d x %3d rows, group %d, depth %5d  %9.1f us  %6.1f Gflop/s %3.0f%%",
           kv_type_name(type), head_dim, s->name, s->n_seqs, s->rows_per_seq, s->group, s->depth,
           sec * 1e6, gflops, l->fma_gflops > 0 ? 100 * gflops / l->fma_gflops : 0);
    if (s->rows_per_seq == 1)
        printf("  %5.1f GB/s %3.0f%%", gbps, 100 * gbps / l->read_gbps);
    printf("\n");
    (void)fflush(stdout);
    tape_deinit(&tape);
    mem_free(r.q);
    mem_free(r.dst);
    pages_deinit(&p);
}

int bench_attention(int argc, char **argv)
{
    static const kv_type types[] = {KV_TYPE_F16, KV_TYPE_BF16, KV_TYPE_Q8_0, KV_TYPE_F32};
    static const int32_t dims[] = {64, 128};
    int64_t threads = 1, only_dim = 0;
    struct be *be;
    struct t9_err err;
    if ((argc > 0 && !num_parse_i64((struct str){argv[0], strlen(argv[0])}, &threads)) ||
        (argc > 3 && !num_parse_i64((struct str){argv[3], strlen(argv[3])}, &only_dim)) ||
        threads < 0 || threads > 64) {
        fprintf(stderr, "usage: bench_kernels attention [threads [isa [type [head_dim]]]]\n");
        return 1;
    }
    struct be_params params = {.n_threads = (int)threads, .max_rows = ROWS_MAX};
    params.isa = argc > 1 && strcmp(argv[1], "best") != 0 ? argv[1] : NULL;
    if (be_new(&be, "cpu", &params, &err) != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    struct be_limits l = be_limits_measure(be_threads(be), be_isa(be));
    printf("%s, %d threads, %d KV heads; memory read %.1f GB/s, float fma %.0f Gflop/s\n",
           be_isa(be), be_threads(be), N_HEAD_KV, l.read_gbps, l.fma_gflops);
    for (size_t t = 0; t < T9_COUNT(types); t++) {
        if (argc > 2 && strcmp(argv[2], kv_type_name(types[t])) != 0 && strcmp(argv[2], "all") != 0)
            continue;
        for (size_t d = 0; d < T9_COUNT(dims); d++) {
            for (size_t s = 0; s < T9_COUNT(shapes) && (!only_dim || only_dim == dims[d]); s++)
                bench(be, &l, &shapes[s], dims[d], types[t]);
        }
    }
    be_free(be);
    return 0;
}
