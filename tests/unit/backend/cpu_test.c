/*
 * The cpu backend equals canon bit for bit: every op, instruction set and number of threads, odd
 * shapes, extreme blocks. An instruction set that this machine lacks is named and left out.
 */
#include "unit/backend/cpu_rig.h"
#include "unit/backend/ops.h"

#include "base/mem.h"
#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct matmul_case {
    int32_t n_in, rows, n, n_out[3];
    struct weight w[3];
    const float *x;
    float *dst[3];
    bool accumulate;
};

static void matmul(struct cx *cx, void *arg)
{
    struct matmul_case *c = arg;
    struct view dst[3], x = view_f32(c->x, c->rows, c->n_in);
    const struct weight *w[3];
    for (int k = 0; k < c->n; k++) {
        dst[k] = view_f32(c->dst[k], c->rows, c->n_out[k]);
        dst[k].stride = c->n_out[k] + 3;
        w[k] = &c->w[k];
    }
    if (c->accumulate)
        op_matmul_add(cx, dst[0], x, w[0]);
    else
        op_matmul(cx, dst, x, w, c->n);
}

/* All CPUs against canon, for c's shapes; weights of dtype[k]. */
static void matmul_compare(struct matmul_case *c, const uint32_t *dtype, bool extreme, bool bias)
{
    uint8_t *data[3];
    float *want[3], *got[3], *biases[3];
    float *x = rig_floats((size_t)c->rows * (size_t)c->n_in, 2);
    if (extreme)
        rig_extreme_rows(x, (size_t)c->rows * (size_t)c->n_in);
    c->x = x;
    for (int k = 0; k < c->n; k++) {
        size_t n = (size_t)c->rows * (size_t)(c->n_out[k] + 3);
        data[k] = rig_rnd_weight(dtype[k], c->n_in, c->n_out[k], extreme);
        biases[k] = rig_floats((size_t)c->n_out[k], 1);
        want[k] = rig_floats(n, 1);
        got[k] = rig_floats(n, 1);
        c->w[k] = rig_load(rig.canon, dtype[k], data[k], c->n_in, c->n_out[k], 0);
        c->w[k].bias = bias ? biases[k] : NULL;
        c->dst[k] = want[k];
    }
    float *start = rig_floats((size_t)c->rows * (size_t)(c->n_out[0] + 3), 1);
    size_t start_bytes = (size_t)c->rows * (size_t)(c->n_out[0] + 3) * sizeof(float);
    memcpy(want[0], start, start_bytes);
    rig_run(rig.canon, matmul, c);
    for (int k = 0; k < c->n; k++) {
        be_weight_free(rig.canon, &c->w[k]);
        c->dst[k] = got[k];
    }
    FOR_EACH_CPU(be, isa, threads)
    {
        if (isa == 0 && threads != 1 && threads != RIG_THREADS_MAX)
            continue; /* canon's own kernels, and the slowest */
        for (int k = 0; k < c->n; k++) {
            memcpy(got[k], want[k], (size_t)c->rows * (size_t)(c->n_out[k] + 3) * sizeof(float));
            for (int32_t r = 0; r < c->rows; r++)
                memset(got[k] + r * (c->n_out[k] + 3), 0x5a, (size_t)c->n_out[k] * sizeof(float));
            if (threads == 1) {
                c->w[k] = rig_load(be, dtype[k], data[k], c->n_in, c->n_out[k], 0);
                c->w[k].bias = bias ? biases[k] : NULL;
            }
        }
        if (c->accumulate)
            memcpy(got[0], start, start_bytes);
        rig_run(be, matmul, c);
        for (int k = 0; k < c->n; k++) {
            char what[96];
            snprintf(what, sizeof(what), "matmul %s %d -> %d, %d rows", gguf_dtype_name(dtype[k]),
                     c->n_in, c->n_out[k], c->rows);
            rig_same_bits(what, rig_isas[isa], threads, got[k], want[k],
                          (size_t)c->rows * (size_t)(c->n_out[k] + 3));
            if (threads == RIG_THREADS_MAX)
                be_weight_free(be, &c->w[k]);
        }
    }
    for (int k = 0; k < c->n; k++) {
        mem_free(data[k]);
        mem_free(biases[k]);
        mem_free(want[k]);
        mem_free(got[k]);
    }
    mem_free(start);
    mem_free(x);
}

static void test_matmul_rows(void **state)
{
    (void)state;
    rig.rng = 1;
    for (size_t i = 0; i < RIG_TYPES; i++) {
        int32_t block = (int32_t)gguf_dtype_get(rig_dtypes[i])->block_elems;
        /* The tile of the types after MXFP4 is one loop over rows: a third of them shows it. */
        int32_t step = i < RIG_TYPES_TILED ? RIG_STEP : 3 * RIG_STEP;
        for (int32_t rows = 1 + (int32_t)i % step; rows <= 33; rows += step) {
            struct matmul_case c = {.n_in = block == 1 ? 37 : 3 * block, .rows = rows, .n = 1};
            c.n_out[0] = 33;
            c.accumulate = rows % 2 == 0;
            matmul_compare(&c, &rig_dtypes[i], rows % 4 == 3, rows % 3 == 0);
        }
    }
}

static void test_matmul_shapes(void **state)
{
    (void)state;
    static const int32_t outs[] = {1, 15, 16, 17, 33, 130, 576}, ins[] = {32, 96, 256, 768, 2048},
                         rows[] = {1, 2, 7, 18};
    rig.rng = 2;
    for (size_t i = 0; i < RIG_TYPES; i++) {
        for (size_t j = 0; j < T9_COUNT(ins); j++) {
            if (ins[j] % (int32_t)gguf_dtype_get(rig_dtypes[i])->block_elems != 0)
                continue;
            for (size_t k = (i + j) % RIG_STEP; k < T9_COUNT(outs); k += RIG_STEP) {
                struct matmul_case c = {.n_in = ins[j], .n = 1};
                c.n_out[0] = outs[k];
                c.rows = rows[(j + k) % T9_COUNT(rows)];
                matmul_compare(&c, &rig_dtypes[i], k % 2 == 1, false);
            }
        }
    }
}

/* Float types take several panels at once: all numbers of rows, and a last item of three panels. */
static void test_matmul_panels(void **state)
{
    (void)state;
    static const uint32_t types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    rig.rng = 4;
    for (size_t i = 0; i < T9_COUNT(types); i++) {
        for (int32_t rows = 1; rows <= 17; rows++) {
            struct matmul_case c = {.n_in = 37, .rows = rows, .n = 1, .n_out = {26 * 16 + 5}};
            c.accumulate = rows % 2 == 1;
            matmul_compare(&c, &types[i], rows % 3 == 0, rows % 4 == 0);
        }
    }
}

/* Several products share x, of types with different blocks. */
static void test_matmul_three(void **state)
{
    (void)state;
    static const uint32_t mixes[][3] = {
        {DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q4_K},   {DTYPE_Q5_0, DTYPE_Q8_0, DTYPE_Q4_1},
        {DTYPE_Q4_K, DTYPE_F16, DTYPE_Q8_0},    {DTYPE_BF16, DTYPE_Q5_K, DTYPE_F32},
        {DTYPE_NVFP4, DTYPE_IQ3_S, DTYPE_Q1_0}, {DTYPE_IQ2_XXS, DTYPE_IQ4_NL, DTYPE_Q2_K}};
    static const int32_t rows[] = {1, 3, 8, 40};
    rig.rng = 3;
    for (size_t i = 0; i < T9_COUNT(mixes); i++) {
        for (size_t j = 0; j < T9_COUNT(rows); j++) {
            struct matmul_case c = {.n_in = 1280, .rows = rows[j], .n = 3, .n_out = {160, 50, 48}};
            matmul_compare(&c, mixes[i], false, j % 2 == 0);
        }
    }
}

/* ---- embedding ---- */

struct embed_case {
    int32_t n, rows;
    bool tokens; /* op_embed_tokens */
    const int32_t *ids;
    const float *const *given;
    float *dst, scale;
    struct weight w;
};

static void embed(struct cx *cx, void *arg)
{
    struct embed_case *c = arg;
    struct view given = {(void *)(uintptr_t)c->given, c->rows, 1, 1, VIEW_PTR, 0};
    (c->tokens ? op_embed_tokens : op_embed_rows)(
        cx, view_f32(c->dst, c->rows, c->n), view_i32(c->ids, c->rows, 1), given, &c->w, c->scale);
}

/* The dequantised row exactly, out of a panel too, times the scale. */
static void test_embed(void **state)
{
    (void)state;
    rig.rng = 4;
    static const int32_t ids[] = {0, 16, 18, 3, 15, 18, -1, 19};
    enum { N = 512, OUT = 19, ROWS = T9_COUNT(ids) };
    for (size_t i = 0; i < RIG_TYPES; i++) {
        float row[N], want[ROWS * N], got[ROWS * N], scale = i % 2 ? 25.298221f : 1;
        bool tokens = i % 3 == 1; /* what is not a token has the first one's row */
        const float *given[ROWS] = {NULL};
        for (int j = 0; j < N; j++)
            row[j] = rig_rnd_f32(1);
        given[3] = row;
        uint8_t *data = rig_rnd_weight(rig_dtypes[i], N, OUT, true);
        size_t row_bytes = (size_t)dtype_row_bytes(rig_dtypes[i], N);
        for (int r = 0; r < ROWS; r++) {
            float *out = want + r * N;
            for (int j = 0; j < N; j++)
                out[j] = NAN;
            int32_t id = tokens && r == 3 ? 0 : ids[r];
            if (id >= 0 && id < OUT)
                dtype_dequantize_row(rig_dtypes[i], data + (size_t)id * row_bytes, out, N, NULL);
            for (int j = 0; j < N; j++)
                out[j] *= scale;
            if (r == 3 && !tokens)
                memcpy(out, row, sizeof(row));
        }
        struct embed_case c = {
            .n = N, .rows = ROWS, .ids = ids, .given = given, .dst = got, .scale = scale};
        c.tokens = tokens;
        FOR_EACH_CPU(be, isa, threads)
        {
            memset(got, 0, sizeof(got));
            c.w = rig_load(be, rig_dtypes[i], data, N, OUT, 0);
            rig_run(be, embed, &c);
            rig_same_bits(gguf_dtype_name(rig_dtypes[i]), rig_isas[isa], threads, got, want,
                          ROWS * N);
            be_weight_free(be, &c.w);
        }
        c.w = rig_load(rig.canon, rig_dtypes[i], data, N, OUT, 0);
        rig_run(rig.canon, embed, &c);
        rig_same_bits("embed", "canon", 1, got, want, ROWS * N);
        be_weight_free(rig.canon, &c.w);
        mem_free(data);
    }
}

/* ---- rows and elements ---- */

struct rows_case {
    int32_t rows, cols, kind; /* an act_kind, then those of rows_op */
    float *dst;
    const float *a, *b;
    struct weight norm;
};

/* In place, so that the first source goes there before. */
static void add_every_other_row(struct cx *cx, struct view dst, const struct rows_case *c)
{
    static const float *rows[17];
    assert_true(c->rows <= (int32_t)T9_COUNT(rows));
    for (int32_t r = 0; r < c->rows; r++) {
        size_t at = (size_t)r * (size_t)(c->cols + 1);
        memcpy(c->dst + at, c->a + at, (size_t)c->cols * sizeof(float));
        rows[r] = r % 2 ? NULL : c->b + at;
    }
    op_add_rows(cx, dst, (struct view){rows, c->rows, 1, 1, VIEW_PTR, 0});
}

static void rows_op(struct cx *cx, void *arg)
{
    struct rows_case *c = arg;
    struct view dst = view_f32(c->dst, c->rows, c->cols), a = view_f32(c->a, c->rows, c->cols),
                b = view_f32(c->b, c->rows, c->cols);
    dst.stride = a.stride = b.stride = c->cols + 1;
    switch (c->kind - ACT_COUNT) {
    case 0: op_add(cx, dst, a, b); break;
    case 1: op_rmsnorm(cx, dst, a, &c->norm, 1e-5f); break;
    case 2: add_every_other_row(cx, dst, c); break;
    case 3: op_scale(cx, dst, a, 0.3f); break;
    case 4: op_softcap(cx, dst, a, 1.7f); break;
    default: op_act_mul(cx, dst, a, b, (act_kind)c->kind);
    }
}

enum { KINDS = ACT_COUNT + 5 };

static void test_rows(void **state)
{
    (void)state;
    static const int32_t cols[] = {1, 7, 16, 17, 31, 64, 255, 576, 1537}, rows[] = {1, 3, 17};
    rig.rng = 5;
    for (size_t i = 0; i < T9_COUNT(cols) * T9_COUNT(rows) * KINDS; i++) {
        struct rows_case c = {.cols = cols[i / KINDS % T9_COUNT(cols)],
                              .rows = rows[i / KINDS / T9_COUNT(cols)],
                              .kind = (int32_t)(i % KINDS)};
        size_t n = (size_t)c.rows * (size_t)(c.cols + 1);
        float *a = rig_floats(n, 40), *b = rig_floats(n, 3), *want = rig_floats(n, 1),
              *got = rig_floats(n, 1);
        static const float corners[] = {0,     -0.0f,  87.1f,    -87.1f,    88.376f, -88.376f,
                                        1e30f, -1e30f, INFINITY, -INFINITY, NAN,     1e-40f};
        for (size_t j = 0; j < n && (c.kind < ACT_COUNT || c.kind > ACT_COUNT + 2); j += 5)
            a[j] = corners[rig_rnd() % T9_COUNT(corners)];
        c.a = a;
        c.b = b;
        c.norm = (struct weight){.name = "norm", .data = b, .n_in = c.cols, .n_out = 1};
        c.norm.layout = WEIGHT_LAYOUT_VECTOR;
        if (c.cols % 3 == 0 && c.rows > 1) /* heads */
            c.norm.n_in = c.cols / 3;
        memcpy(got, want, n * sizeof(float));
        c.dst = want;
        rig_run(rig.canon, rows_op, &c);
        c.dst = got;
        FOR_EACH_CPU(be, isa, threads)
        {
            char what[64];
            snprintf(what, sizeof(what), "op %d of [%d, %d]", c.kind, c.rows, c.cols);
            rig_run(be, rows_op, &c);
            rig_same_bits(what, rig_isas[isa], threads, got, want, n);
        }
        mem_free(a);
        mem_free(b);
        mem_free(want);
        mem_free(got);
    }
}

/* ---- pages ---- */

enum { SEQS = 3, SEQ_PAGES = 50, KV_LAYERS = 2 };

static const kv_type kv_types[] = {KV_TYPE_F16, KV_TYPE_F32, KV_TYPE_BF16, KV_TYPE_Q8_0};

struct pages {
    struct kv_geom g;
    const struct kv_layer *l; /* the last layer, the one that is used */
    char *pool;
    size_t pool_bytes;
    int32_t table[SEQS * SEQ_PAGES];
};

/* Pages of all sequences in a shuffled order; every byte 0xff: NaN in every type. */
static void pages_init(struct pages *p, int32_t n_head_kv, int32_t head_dim, kv_type type)
{
    const struct kv_shape shapes[KV_LAYERS] = {{3, 40, 0}, {n_head_kv, head_dim, 0}};
    assert_true(kv_geom_init(&p->g, shapes, KV_LAYERS, type));
    p->l = &p->g.layers[KV_LAYERS - 1];
    p->pool_bytes = p->g.page_bytes * SEQS * SEQ_PAGES;
    p->pool = mem_alloc_aligned(64, p->pool_bytes);
    assert_non_null(p->pool);
    memset(p->pool, 0xff, p->pool_bytes);
    for (int32_t i = 0; i < SEQS * SEQ_PAGES; i++)
        p->table[i] = i;
    for (int32_t i = SEQS * SEQ_PAGES - 1; i > 0; i--) {
        int32_t j = (int32_t)(rig_rnd() % (uint32_t)(i + 1)), x = p->table[i];
        p->table[i] = p->table[j];
        p->table[j] = x;
    }
}

/* Random keys and values for keys [0, n) of a sequence; later slots keep their NaN. */
static void pages_fill(struct pages *p, int32_t seq, int32_t n, float scale)
{
    const struct kv_layer *g = p->l;
    float k[KV_HEAD_DIM_MAX], v[KV_HEAD_DIM_MAX];
    for (int32_t j = 0; j < n; j++) {
        int32_t page = p->table[seq * SEQ_PAGES + j / KV_PAGE_TOKENS], slot = j % KV_PAGE_TOKENS;
        for (int32_t h = 0; h < g->n_head_kv; h++) {
            for (int32_t i = 0; i < g->head_dim; i++) {
                k[i] = rig_rnd_f32(scale);
                v[i] = rig_rnd_f32(1);
            }
            kv_store_k(g, kv_page_k(g, p->pool, page, h), slot, k);
            kv_store_v(g, kv_page_v(g, p->pool, page, h), slot, v);
        }
    }
}

static struct view pool_view(const struct pages *p)
{
    return (struct view){p->pool, 1, 1, 1, VIEW_BYTES, 0};
}

struct attn_case {
    struct pages *pages;
    int32_t rows, n_head, window;
    float *dst, *q;
    int32_t kv_idx[RIG_ROWS_MAX], row_seq[RIG_ROWS_MAX], span_end[RIG_ROWS_MAX];
    bool spans;
    const struct weight *sinks;
};

static void attn(struct cx *cx, void *arg)
{
    struct attn_case *c = arg;
    int32_t cols = c->n_head * c->pages->l->head_dim;
    struct op_attn a = {.dst = view_f32(c->dst, c->rows, cols),
                        .q = view_f32(c->q, c->rows, cols),
                        .kv_idx = view_i32(c->kv_idx, c->rows, 1),
                        .row_seq = view_i32(c->row_seq, c->rows, 1),
                        .page_table = view_i32(c->pages->table, SEQS, SEQ_PAGES),
                        .pool = pool_view(c->pages),
                        .kv = c->pages->l,
                        .n_head = c->n_head,
                        .window = c->window,
                        .sinks = c->sinks,
                        .scale = 1.0f / sqrtf((float)c->pages->l->head_dim)};
    if (c->spans)
        a.span_end = view_i32(c->span_end, c->rows, 1);
    op_attn_paged(cx, &a);
}

static void attn_compare(struct attn_case *c, const char *what)
{
    size_t n = (size_t)c->rows * (size_t)c->n_head * (size_t)c->pages->l->head_dim;
    float *want = rig_floats(n, 1), *got = rig_floats(n, 1);
    c->q = rig_floats(n, 2);
    c->dst = want;
    rig_run(rig.canon, attn, c);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(want[i]))
            fail_msg("%s: a hidden key shows in element %zu: %g", what, i, (double)want[i]);
    }
    c->dst = got;
    FOR_EACH_CPU(be, isa, threads)
    {
        memset(got, 0x5a, n * sizeof(float));
        rig_run(be, attn, c);
        rig_same_bits(what, rig_isas[isa], threads, got, want, n);
    }
    mem_free(want);
    mem_free(got);
    mem_free(c->q);
}

/* With sinks; with sinks that weigh nothing, which must be as none at all. */
static void sinks_compare(struct attn_case *c, const char *what)
{
    float *values = rig_floats((size_t)c->n_head, 2);
    struct weight w = {.name = "sinks", .data = values, .n_in = c->n_head, .n_out = 1};
    size_t n = (size_t)c->rows * (size_t)c->n_head * (size_t)c->pages->l->head_dim;
    float *none = rig_floats(n, 1), *nothing = rig_floats(n, 1);
    c->sinks = &w;
    attn_compare(c, what);
    for (int32_t h = 0; h < c->n_head; h++)
        values[h] = -INFINITY;
    c->q = rig_floats(n, 2);
    c->dst = nothing;
    rig_run(rig.canon, attn, c);
    c->sinks = NULL;
    c->dst = none;
    rig_run(rig.canon, attn, c);
    rig_same_bits("sinks of -inf", "canon", 1, nothing, none, n);
    mem_free(c->q);
    mem_free(values);
    mem_free(none);
    mem_free(nothing);
}

/* Decode of several sequences, prompts, padding, a window, spans; lengths about block and split
 * borders. */
static void attn_all(struct pages *p, int32_t n_head, const int32_t *lens, float scale)
{
    struct attn_case c = {.pages = p, .n_head = n_head};
    char what[96];
    snprintf(what, sizeof(what), "attention %s, %d heads over %d of %d, lengths %d %d %d",
             kv_type_name(p->l->type), n_head, p->l->n_head_kv, p->l->head_dim, lens[0], lens[1],
             lens[2]);
    for (int32_t s = 0; s < SEQS; s++)
        pages_fill(p, s, lens[s], scale);
    for (int32_t s = 0; s < SEQS; s++) { /* one row each, and padding between them */
        c.kv_idx[c.rows] = lens[s] - 1;
        c.row_seq[c.rows++] = s;
        c.kv_idx[c.rows] = -1;
        c.row_seq[c.rows++] = s;
    }
    attn_compare(&c, what);
    c.window = 40;
    attn_compare(&c, what);
    sinks_compare(&c, what);
    c.rows = 1;
    c.window = 0;
    attn_compare(&c, what);
    sinks_compare(&c, what);

    /* A prompt's last rows, then a decode row of another sequence. */
    c.rows = 0;
    for (int32_t j = lens[0] > 33 ? lens[0] - 33 : 0; j < lens[0]; j++) {
        c.kv_idx[c.rows] = j;
        c.row_seq[c.rows++] = 0;
    }
    c.kv_idx[c.rows] = lens[1] - 1;
    c.row_seq[c.rows++] = 1;
    attn_compare(&c, what);
    c.window = 17;
    attn_compare(&c, what);
    sinks_compare(&c, what);
    c.window = 0;
    c.spans = true;
    for (int32_t r = 0; r < c.rows; r++) {
        c.span_end[r] = c.kv_idx[r] + 5;
        if (c.span_end[r] >= lens[c.row_seq[r]])
            c.span_end[r] = lens[c.row_seq[r]] - 1;
    }
    attn_compare(&c, what);
}

static void test_attention(void **state)
{
    (void)state;
    static const struct {
        int32_t n_head_kv, n_head, head_dim;
    } shapes[] = {{3, 9, 64}, {1, 1, 128}, {2, 8, 80}, {1, 40, 16},
                  {2, 2, 24}, {1, 5, 257}, {1, 3, 512}};
    static const int32_t lens[][SEQS] = {
        {1, 31, 32}, {33, 511, 512}, {513, 1, 1025}, {70, 1500, 1024}};
    rig.rng = 6;
    for (size_t i = 0; i < T9_COUNT(shapes); i++) {
        for (size_t x = 0; x < T9_COUNT(lens) * T9_COUNT(kv_types); x++) {
            struct pages p;
            size_t j = x / T9_COUNT(kv_types), type = x % T9_COUNT(kv_types);
            if ((i + j + type) % RIG_STEP != 0)
                continue;
            pages_init(&p, shapes[i].n_head_kv, shapes[i].head_dim, kv_types[type]);
            attn_all(&p, shapes[i].n_head, lens[j], j == 3 ? 30.0f : 1.0f);
            mem_free(p.pool);
        }
    }
}

/* ---- rotation and store ---- */

struct store_case {
    struct pages *pages;
    int32_t rows, n_head, n_rot;
    bool neox;
    float *q, *angles;
    const float *k, *v; /* NULL: only q */
    int32_t pos[RIG_ROWS_MAX], kv_idx[RIG_ROWS_MAX], row_seq[RIG_ROWS_MAX];
    float inv_freq[256];
    struct weight q_norm, k_norm;
    bool norm, queries_only;
};

static void store(struct cx *cx, void *arg)
{
    struct store_case *c = arg;
    int32_t d = c->pages->l->head_dim, cols_kv = c->pages->l->n_head_kv * d;
    struct view angles = view_f32(c->angles, c->rows, c->n_rot);
    op_rope_angles(cx, angles, view_i32(c->pos, c->rows, 1), view_f32(c->inv_freq, 1, c->n_rot / 2),
                   1.0f);
    struct op_rope_store a = {.q = view_f32(c->q, c->rows, c->n_head * d),
                              .k = view_f32(c->k, c->rows, cols_kv),
                              .v = view_f32(c->v, c->rows, cols_kv),
                              .angles = angles,
                              .kv_idx = view_i32(c->kv_idx, c->rows, 1),
                              .row_seq = view_i32(c->row_seq, c->rows, 1),
                              .page_table = view_i32(c->pages->table, SEQS, SEQ_PAGES),
                              .pool = pool_view(c->pages),
                              .q_norm = c->norm ? &c->q_norm : NULL,
                              .k_norm = c->norm ? &c->k_norm : NULL,
                              .q_scale = c->norm ? NULL : &c->q_norm,
                              .pos = view_i32(c->pos, c->rows, 1),
                              .q_scale_every = 3,
                              .kv = c->pages->l,
                              .n_head = c->n_head,
                              .n_rot = c->n_rot,
                              .neox = c->neox,
                              .eps = 1e-6f};
    op_qk_norm_rope_store(cx, &a);
}

/* Rows that a number format finds hard: zeros, too small and too large for a scale, inf, NaN. */
static void hard_rows(const struct store_case *c, float *v)
{
    int32_t n = c->pages->l->n_head_kv * c->pages->l->head_dim;
    const float factor[] = {0, 1e-9f, 3e-6f, 2e-4f, 6e4f, 1e7f, 1e30f};
    if (c->rows < 20)
        return;
    for (int32_t r = 0; r < (int32_t)T9_COUNT(factor); r++) {
        for (int32_t i = 0; i < n; i++)
            v[(10 + r) * n + i] *= factor[r];
    }
    v[18 * n + 3] = -INFINITY;
    if (c->pages->l->type != KV_TYPE_F16) /* whose NaN has no defined payload */
        v[19 * n + 2] = NAN;
}

static void store_compare(struct store_case *c)
{
    size_t d = (size_t)c->pages->l->head_dim, rows = (size_t)c->rows;
    size_t n_q = rows * (size_t)c->n_head * d, n_kv = rows * (size_t)c->pages->l->n_head_kv * d;
    float *q = rig_floats(n_q, 2), *want = rig_floats(n_q, 1), *got = rig_floats(n_q, 1),
          *norm = rig_floats(d, 1);
    float *k = rig_floats(n_kv, 2), *v = rig_floats(n_kv, 2), *angles = rig_floats(rows * d, 1);
    char *pool = mem_alloc(c->pages->pool_bytes);
    assert_non_null(pool);
    hard_rows(c, v);
    c->k = c->queries_only ? NULL : k;
    c->v = c->queries_only ? NULL : v;
    c->angles = angles;
    c->q_norm = c->k_norm = (struct weight){.name = "norm",
                                            .layout = WEIGHT_LAYOUT_VECTOR,
                                            .data = norm,
                                            .n_in = (int32_t)d,
                                            .n_out = 1};
    memcpy(want, q, n_q * sizeof(float));
    memset(c->pages->pool, 0, c->pages->pool_bytes);
    c->q = want;
    rig_run(rig.canon, store, c);
    memcpy(pool, c->pages->pool, c->pages->pool_bytes);
    for (size_t i = 0; c->queries_only && i < c->pages->pool_bytes; i++)
        assert_int_equal(pool[i], 0);
    c->q = got;
    FOR_EACH_CPU(be, isa, threads)
    {
        memcpy(got, q, n_q * sizeof(float));
        memset(c->pages->pool, 0, c->pages->pool_bytes);
        rig_run(be, store, c);
        rig_same_bits("rotated q", rig_isas[isa], threads, got, want, n_q);
        if (memcmp(pool, c->pages->pool, c->pages->pool_bytes) != 0)
            fail_msg("pages differ: %s with %d threads", rig_isas[isa], threads);
    }
    mem_free(q);
    mem_free(want);
    mem_free(got);
    mem_free(norm);
    mem_free(k);
    mem_free(v);
    mem_free(angles);
    mem_free(pool);
}

static void test_rope_store(void **state)
{
    (void)state;
    static const struct {
        int32_t n_head_kv, n_head, head_dim, n_rot;
    } shapes[] = {{3, 9, 64, 64}, {2, 2, 128, 128}, {1, 4, 80, 32},
                  {2, 4, 24, 22}, {1, 1, 7, 6},     {1, 2, 512, 512}};
    rig.rng = 7;
    for (size_t i = 0; i < T9_COUNT(shapes) * 16; i++) {
        struct pages p;
        size_t s = i / 16;
        pages_init(&p, shapes[s].n_head_kv, shapes[s].head_dim, kv_types[i % 4]);
        struct store_case c = {.pages = &p, .n_head = shapes[s].n_head, .n_rot = shapes[s].n_rot};
        c.neox = i / 4 % 2;
        c.norm = i / 8 % 2;
        c.queries_only = i % 5 == 4;
        c.rows = i % 3 == 0 ? 1 : 35;
        for (int32_t r = 0; r < c.rows; r++) {
            c.kv_idx[r] = r == 5 ? -1 : r < 20 ? 40 + r : 90 + r;
            c.row_seq[r] = r < 20 ? 0 : 2;
            c.pos[r] = r == 7 ? 1000000 : c.kv_idx[r];
        }
        for (int32_t j = 0; j < c.n_rot / 2; j++)
            c.inv_freq[j] = powf(10000.0f, -2.0f * (float)j / (float)c.n_rot);
        store_compare(&c);
        mem_free(p.pool);
    }
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    struct be *be;
    struct t9_err err;
    struct be_params p = {.n_threads = 1, .max_rows = 1, .isa = "sse9"};
    assert_int_equal(be_new(&be, "cpu", &p, &err), T9_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "sse9"));
    assert_null(be);
    p.isa = NULL;
    p.n_threads = 100000;
    assert_int_equal(be_new(&be, "cpu", &p, &err), T9_STATUS_INVALID);
    uint8_t data[292] = {0};
    struct weight w;
    struct weight_src src = ops_src("blk.0.odd", DTYPE_Q8_K, data, 256, 1);
    assert_int_equal(be_weight_load(rig.cpu[0][0], &w, &src, &err), T9_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "blk.0.odd"));
    assert_non_null(strstr(err.msg, "Q8_K"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul_rows),   cmocka_unit_test(test_matmul_shapes),
        cmocka_unit_test(test_matmul_panels), cmocka_unit_test(test_matmul_three),
        cmocka_unit_test(test_embed),         cmocka_unit_test(test_rows),
        cmocka_unit_test(test_attention),     cmocka_unit_test(test_rope_store),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
