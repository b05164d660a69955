/*
 * The ops of a mixture of experts: ref against values worked out by hand, cpu against canon bit for
 * bit (every type of weight, instruction set and number of threads), a row alone against the same
 * row among others, and what is refused.
 */
#include "unit/backend/cpu_rig.h"
#include "unit/backend/ops.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>

static void near(const float *got, const float *want, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * fmaxf(1, fabsf(want[i]))))
            fail_msg("element %d is %.9g, %.9g wanted", i, (double)got[i], (double)want[i]);
    }
}

/* ---- routing ---- */

enum { E = 5 };

struct route_case {
    int32_t rows, n_experts, slots;
    const float *logits;
    const struct weight *scale;
    float *weights;
    int32_t *ids;
    /* By sigmoids, when `factor` is not 0. */
    float factor;
    const struct weight *bias;
};

static void route(struct cx *cx, void *arg)
{
    struct route_case *c = arg;
    struct view weights = view_f32(c->weights, c->rows, c->slots),
                ids = view_i32(c->ids, c->rows, c->slots),
                logits = view_f32(c->logits, c->rows, c->n_experts);
    if (c->factor != 0)
        op_moe_route_sigmoid(cx, weights, ids, logits, c->bias, c->factor);
    else
        op_moe_route(cx, weights, ids, logits, c->scale);
}

/* On ref and canon: the expected choice, and softmax over the chosen. */
static void route_is(const float logits[E], const int32_t want_ids[3], const float want[3])
{
    static const char *const names[] = {"ref", "canon"};
    for (size_t i = 0; i < T9_COUNT(names); i++) {
        struct bench b;
        float w[3];
        int32_t ids[3];
        assert_int_equal(bench_init(&b, names[i]), T9_STATUS_OK);
        struct route_case c = {1, E, 3, logits, NULL, w, ids, 0, NULL};
        route(&b.cx, &c);
        assert_int_equal(b.cx.status, T9_STATUS_OK);
        for (int j = 0; j < 3; j++)
            assert_int_equal(ids[j], want_ids[j]);
        if (want)
            near(w, want, 3);
        be_free(b.be);
    }
}

static void test_route(void **state)
{
    (void)state;
    /* e^0, e^-1 and e^-2 over their sum 1.50321472; a common shift changes nothing. */
    const float want[] = {0.665240956f, 0.244728471f, 0.0900305732f};
    const float third = 1 / 3.0f, thirds[] = {third, third, third};
    route_is((const float[]){1, 3, -5, 2, 0}, (const int32_t[]){1, 3, 0}, want);
    route_is((const float[]){501, 503, 0, 502, 500}, (const int32_t[]){1, 3, 0}, want);
    /* Of equal ones the lower first; NaN never before a number, and no id twice. */
    route_is((const float[]){2, 2, 2, 2, 2}, (const int32_t[]){0, 1, 2}, thirds);
    route_is((const float[]){1, 2, 2, 1, 2}, (const int32_t[]){1, 2, 4}, thirds);
    route_is((const float[]){NAN, -3, NAN, -3, -3}, (const int32_t[]){1, 3, 4}, thirds);
    route_is((const float[]){NAN, NAN, NAN, NAN, NAN}, (const int32_t[]){0, 1, 2}, NULL);
    route_is((const float[]){-INFINITY, 1, -INFINITY, -INFINITY, NAN}, (const int32_t[]){1, 0, 2},
             (const float[]){1, 0, 0});
}

static void test_route_scale(void **state)
{
    (void)state;
    struct bench b;
    float w[2];
    int32_t ids[2];
    const float scale[] = {10, 100, 1000};
    struct weight s;
    struct weight_src src = ops_src("scale", DTYPE_F32, scale, 3, 1);
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_int_equal(be_vector_load(b.be, &s, &src, NULL), T9_STATUS_OK);
    struct route_case c = {1, 3, 2, (const float[]){0, -9, 0}, &s, w, ids, 0, NULL};
    route(&b.cx, &c);
    near(w, (const float[]){5, 500}, 2);
    be_weight_free(b.be, &s);
    be_free(b.be);
}

/* On ref and canon, with a bias or without: sigmoids 0.5, 0.880797078, 0.268941421, 0.731058579 and
 * 0.119202922 of the logits 0, 2, -1, 1, -2. */
static void sigmoid_is(const float *bias, float factor, const int32_t want_ids[2],
                       const float want[2])
{
    static const char *const names[] = {"ref", "canon"};
    for (size_t i = 0; i < T9_COUNT(names); i++) {
        struct bench b;
        struct weight v;
        float w[2];
        int32_t ids[2];
        assert_int_equal(bench_init(&b, names[i]), T9_STATUS_OK);
        struct weight_src src = ops_src("bias", DTYPE_F32, bias, E, 1);
        if (bias)
            assert_int_equal(be_vector_load(b.be, &v, &src, NULL), T9_STATUS_OK);
        struct route_case c = {
            1, E, 2, (const float[]){0, 2, -1, 1, -2}, NULL, w, ids, factor, bias ? &v : NULL};
        route(&b.cx, &c);
        assert_int_equal(b.cx.status, T9_STATUS_OK);
        assert_int_equal(ids[0], want_ids[0]);
        assert_int_equal(ids[1], want_ids[1]);
        near(w, want, 2);
        if (bias)
            be_weight_free(b.be, &v);
        be_free(b.be);
    }
}

static void test_route_sigmoid(void **state)
{
    (void)state;
    sigmoid_is(NULL, 1, (const int32_t[]){1, 3}, (const float[]){0.546448764f, 0.453550616f});
    /* The bias chooses, and is not in the weights. */
    sigmoid_is((const float[]){0, -1, 0.5f, 0, 1}, 2.5f, (const int32_t[]){4, 2},
               (const float[]){0.767772460f, 1.732221099f});
    sigmoid_is((const float[]){1, NAN, 0, 0, 0}, 1, (const int32_t[]){0, 3},
               (const float[]){0.406154185f, 0.593845003f});
}

/* Against what c->weights and c->ids hold. */
static void same_on_all_cpus(const struct route_case *c, float *weights, int32_t *ids)
{
    struct route_case got = *c;
    size_t n = (size_t)(c->rows * c->slots);
    got.weights = weights;
    got.ids = ids;
    FOR_EACH_CPU(be, isa, threads)
    {
        memset(ids, 0x55, n * sizeof(*ids));
        rig_run(be, route, &got);
        rig_same_bits("weights", rig_isas[isa], threads, weights, c->weights, n);
        rig_same_bits("ids", rig_isas[isa], threads, ids, c->ids, n);
    }
}

/* As a sort by value, then index, would choose; weights add up to 1. */
static void test_route_large(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{8, 2}, {128, 8}, {512, 32}, {33, 32}, {1, 1}, {7, 7}};
    rig.rng = 21;
    for (size_t i = 0; i < T9_COUNT(sizes); i++) {
        enum { ROWS = 9 };
        int32_t n = sizes[i][0], k = sizes[i][1];
        float *logits = rig_floats((size_t)(ROWS * n), 3), want_w[ROWS * OP_SLOTS_MAX] = {0},
              got_w[ROWS * OP_SLOTS_MAX] = {0};
        int32_t want[ROWS * OP_SLOTS_MAX], got[ROWS * OP_SLOTS_MAX];
        for (int32_t j = 0; j < ROWS * n; j++)
            logits[j] = (float)(int)(4 * logits[j]); /* many equal ones */
        struct route_case c = {ROWS, n, k, logits, NULL, want_w, want, 0, NULL};
        rig_run(rig.canon, route, &c);
        for (int32_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (int32_t j = 0; j < k; j++) {
                const float *x = logits + r * n;
                int32_t id = want[r * k + j], n_before = 0;
                for (int32_t e = 0; e < n; e++)
                    n_before += x[e] > x[id] || (x[e] == x[id] && e < id);
                assert_int_equal(n_before, j);
                sum += (double)want_w[r * k + j];
            }
            assert_true(fabs(sum - 1) < 1e-5);
        }
        same_on_all_cpus(&c, got_w, got);
        float *bias = rig_floats((size_t)n, 1);
        struct weight v = {.name = "bias", .data = bias, .n_in = n, .n_out = 1};
        v.layout = WEIGHT_LAYOUT_VECTOR;
        c.bias = &v;
        c.factor = 1.5f;
        rig_run(rig.canon, route, &c);
        same_on_all_cpus(&c, got_w, got);
        mem_free(bias);
        mem_free(logits);
    }
}

/* ---- products ---- */

struct experts_case {
    int32_t rows, slots, n_in, n, n_out[2], n_experts;
    bool own; /* src has rows of slots */
    uint32_t dtype[2];
    struct weight w[2];
    const float *x;
    const int32_t *ids;
    float *dst[2];
};

static void experts(struct cx *cx, void *arg)
{
    struct experts_case *c = arg;
    struct view dst[2], x = view_f32(c->x, c->rows, c->n_in * (c->own ? c->slots : 1));
    const struct weight *w[2];
    if (!c->own)
        x.stride = c->n_in + 5;
    for (int k = 0; k < c->n; k++) {
        dst[k] = view_f32(c->dst[k], c->rows, c->slots * c->n_out[k]);
        w[k] = &c->w[k];
    }
    op_matmul_experts(cx, dst, x, view_i32(c->ids, c->rows, c->slots), w, c->n);
}

static void test_products(void **state)
{
    (void)state;
    struct bench b;
    /* Three experts of 2 -> 1: sum, difference, twice the first; biases 0.5, 0.25, 0. */
    const float rows[] = {1, 1, 1, -1, 2, 0}, bias[] = {0.5f, 0.25f, 0};
    const float x[] = {3, 1, 0, 0, 0, 0, 0, /* stride 7 */ 5, 7, 0, 0, 0, 0, 0};
    const float own[] = {3, 1, 10, 20, 5, 7, 1, 2};
    const int32_t ids[] = {2, 0, 1, 7};
    float y[4];
    struct weight w;
    struct weight_src src = ops_src("w", DTYPE_F32, rows, 2, 1);
    src.n_experts = 3;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_int_equal(be_weight_load(b.be, &w, &src, NULL), T9_STATUS_OK);
    w.bias = bias;
    struct experts_case c = {.rows = 2, .slots = 2, .n_in = 2, .n = 1, .n_out = {1}};
    c.w[0] = w;
    c.x = x;
    c.ids = ids;
    c.dst[0] = y;
    experts(&b.cx, &c);
    near(y, (const float[]){6, 4.5f, -1.75f}, 3);
    assert_true(isnan(y[3])); /* there is no expert 7 */
    c.own = true;
    c.x = own;
    experts(&b.cx, &c);
    near(y, (const float[]){6, 30.5f, -1.75f}, 3);
    assert_int_equal(b.cx.status, T9_STATUS_OK);
    be_weight_free(b.be, &w);
    be_free(b.be);
}

/* Distinct experts for each row, as routing gives them; `skewed`: few of them. */
static void rnd_ids(int32_t *ids, const struct experts_case *c, bool skewed)
{
    for (int32_t r = 0; r < c->rows; r++) {
        int32_t *row = ids + r * c->slots;
        int32_t among = skewed ? c->slots : c->n_experts, at = (int32_t)(rig_rnd() % 97);
        for (int32_t j = 0; j < c->slots; j++)
            row[j] = (at + j * (among > 2 * c->slots ? 2 : 1)) % among;
    }
}

/* Row r of slot j from a plain product of the expert alone, on canon. */
static void expect_plain(const struct experts_case *c, int k, int32_t slot, const float *got)
{
    struct view dst = view_f32(rig_floats((size_t)c->n_out[k], 1), 1, c->n_out[k]);
    int32_t r = slot / c->slots, e = c->ids[slot];
    const float *x =
        c->own ? c->x + (size_t)slot * (size_t)c->n_in : c->x + (size_t)r * (size_t)(c->n_in + 5);
    struct weight one = c->w[k];
    const struct weight *w = &one;
    struct scratch scratch = {0};
    struct cx cx = {0};
    one.n_experts = 0;
    one.size_bytes /= (size_t)c->n_experts;
    one.data = (const char *)one.data + (size_t)e * one.size_bytes;
    one.bias = one.bias ? one.bias + e * c->n_out[k] : NULL;
    cx_init_run(&cx, rig.canon, &scratch);
    op_matmul(&cx, &dst, view_f32(x, 1, c->n_in), &w, 1);
    assert_int_equal(cx.status, T9_STATUS_OK);
    rig_same_bits("a slot alone", "canon", 1, got, dst.p, (size_t)c->n_out[k]);
    mem_free(dst.p);
}

static void experts_compare(struct experts_case *c, bool extreme, bool bias, bool skewed)
{
    size_t n_x = (size_t)c->rows * (size_t)(c->own ? c->slots * c->n_in : c->n_in + 5), n_y[2];
    float *x = rig_floats(n_x, 2), *biases[2], *want[2], *got[2];
    int32_t *ids = mem_calloc((size_t)(c->rows * c->slots), sizeof(*ids));
    uint8_t *data[2];
    assert_non_null(ids);
    rnd_ids(ids, c, skewed);
    if (extreme)
        rig_extreme_rows(x, n_x);
    c->x = x;
    c->ids = ids;
    for (int k = 0; k < c->n; k++) {
        size_t n_all = (size_t)c->n_experts * (size_t)c->n_out[k];
        n_y[k] = (size_t)c->rows * (size_t)c->slots * (size_t)c->n_out[k];
        data[k] = rig_rnd_weight(c->dtype[k], c->n_in, (int32_t)n_all, extreme);
        biases[k] = rig_floats(n_all, 1);
        want[k] = c->dst[k] = rig_floats(n_y[k], 1);
        got[k] = rig_floats(n_y[k], 1);
        c->w[k] = rig_load(rig.canon, c->dtype[k], data[k], c->n_in, c->n_out[k], c->n_experts);
        c->w[k].bias = bias ? biases[k] : NULL;
    }
    rig_run(rig.canon, experts, c);
    for (int k = 0; k < c->n; k++) {
        expect_plain(c, k, 0, want[k]);
        expect_plain(c, k, c->rows * c->slots - 1, want[k] + n_y[k] - (size_t)c->n_out[k]);
        be_weight_free(rig.canon, &c->w[k]);
        c->dst[k] = got[k];
    }
    FOR_EACH_CPU(be, isa, threads)
    {
        for (int k = 0; k < c->n; k++) {
            memset(got[k], 0x5a, n_y[k] * sizeof(float));
            if (threads == 1) {
                c->w[k] = rig_load(be, c->dtype[k], data[k], c->n_in, c->n_out[k], c->n_experts);
                c->w[k].bias = bias ? biases[k] : NULL;
            }
        }
        rig_run(be, experts, c);
        for (int k = 0; k < c->n; k++) {
            char what[128];
            snprintf(what, sizeof(what), "%d rows to %d of %d experts %s %d -> %d", c->rows,
                     c->slots, c->n_experts, gguf_dtype_name(c->dtype[k]), c->n_in, c->n_out[k]);
            rig_same_bits(what, rig_isas[isa], threads, got[k], want[k], n_y[k]);
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
    mem_free(ids);
    mem_free(x);
}

static void test_types(void **state)
{
    (void)state;
    static const int32_t rows[] = {1, 2, 7, 40};
    rig.rng = 22;
    for (size_t i = 0; i < RIG_TYPES; i++) {
        int32_t block = (int32_t)gguf_dtype_get(rig_dtypes[i])->block_elems;
        for (size_t j = i % RIG_STEP; j < T9_COUNT(rows); j += RIG_STEP) {
            struct experts_case c = {.rows = rows[j],
                                     .slots = 1 + (int32_t)(i + j) % 4,
                                     .n_in = block == 1 ? 37 : 2 * block,
                                     .n = 1 + (int32_t)(i + j) % 2,
                                     .n_out = {33, 17},
                                     .n_experts = 9,
                                     .own = (i + j) % 3 == 0};
            c.dtype[0] = c.dtype[1] = rig_dtypes[i];
            experts_compare(&c, j == 1, i % 2 == 0, j == 2);
        }
    }
}

/* Shapes of models, two types at once, many experts, one expert, blocks of rows. */
static void test_shapes(void **state)
{
    (void)state;
    static const struct experts_case cases[] = {
        {.rows = 3, .slots = 8, .n_in = 512, .n = 2, .n_out = {96, 96}, .n_experts = 128},
        {.rows = 40, .slots = 4, .n_in = 1280, .n = 2, .n_out = {40, 24}, .n_experts = 6},
        {.rows = 40, .slots = 2, .n_in = 768, .n = 1, .n_out = {130}, .n_experts = 2, .own = true},
        {.rows = 5, .slots = 32, .n_in = 256, .n = 1, .n_out = {16}, .n_experts = 512},
        {.rows = 2, .slots = 1, .n_in = 256, .n = 2, .n_out = {1, 3}, .n_experts = 1},
    };
    static const uint32_t types[][2] = {{DTYPE_Q4_K, DTYPE_Q6_K},
                                        {DTYPE_MXFP4, DTYPE_F16},
                                        {DTYPE_F32, DTYPE_Q4_K},
                                        {DTYPE_IQ3_XXS, DTYPE_Q8_0}};
    rig.rng = 23;
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        for (size_t j = i % RIG_STEP; j < T9_COUNT(types); j += RIG_STEP) {
            struct experts_case c = cases[i];
            c.dtype[0] = types[j][0];
            c.dtype[1] = types[j][1];
            experts_compare(&c, false, j % 2 == 0, i == 1);
        }
    }
}

/* More rows of slots than the shared buffer holds: they are taken in passes. */
static void test_passes(void **state)
{
    (void)state;
    /* 40 * 32 rows of 4096 values in all three forms are some 34 MB. */
    struct experts_case c = {.rows = 40,
                             .slots = 32,
                             .n_in = 4096,
                             .n = 2,
                             .n_out = {2, 1},
                             .n_experts = 40,
                             .dtype = {DTYPE_Q8_0, DTYPE_F16}};
    rig.rng = 24;
    experts_compare(&c, false, false, false);
}

static void test_bad_ids(void **state)
{
    (void)state;
    static const int32_t ids[] = {0, 3, -1, 1, INT32_MAX, INT32_MIN};
    float x[4 * 37], want[6 * 2], got[6 * 2];
    rig.rng = 25;
    uint8_t *data = rig_rnd_weight(DTYPE_F32, 32, 6, false);
    for (size_t i = 0; i < T9_COUNT(x); i++)
        x[i] = rig_rnd_f32(1);
    struct experts_case c = {.rows = 3, .slots = 2, .n_in = 32, .n = 1, .n_out = {2}};
    c.x = x;
    c.ids = ids;
    c.dst[0] = want;
    c.w[0] = rig_load(rig.canon, DTYPE_F32, data, 32, 2, 3);
    rig_run(rig.canon, experts, &c);
    be_weight_free(rig.canon, &c.w[0]);
    for (int i = 0; i < 12; i++)
        assert_int_equal(isnan(want[i]) != 0, i / 2 != 0 && i / 2 != 3);
    c.dst[0] = got;
    FOR_EACH_CPU(be, isa, threads)
    {
        c.w[0] = rig_load(be, DTYPE_F32, data, 32, 2, 3);
        rig_run(be, experts, &c);
        rig_same_bits("bad ids", rig_isas[isa], threads, got, want, T9_COUNT(want));
        be_weight_free(be, &c.w[0]);
    }
    mem_free(data);
}

/* ---- sums ---- */

struct combine_case {
    int32_t rows, slots, n;
    bool accumulate, gated;
    const float *y, *weights;
    float *dst;
};

static void combine(struct cx *cx, void *arg)
{
    struct combine_case *c = arg;
    struct view dst = view_f32(c->dst, c->rows, c->n);
    dst.stride = c->n + 3;
    if (c->gated) {
        op_gated_add(cx, dst, view_f32(c->y, c->rows, c->n), view_f32(c->weights, c->rows, 1));
        return;
    }
    op_moe_combine(cx, dst, view_f32(c->y, c->rows, c->slots * c->n),
                   view_f32(c->weights, c->rows, c->slots), c->accumulate);
}

static void test_combine(void **state)
{
    (void)state;
    static const int32_t cols[] = {1, 7, 16, 33, 300, 1025}, slots[] = {1, 2, 8, 32};
    struct bench b;
    float out[] = {100, 200, 0, 0, 0};
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    struct combine_case hand = {
        1, 2, 2, true, false, (const float[]){1, 2, 3, 4}, (const float[]){0.5f, 2}, out};
    combine(&b.cx, &hand);
    near(out, (const float[]){106.5f, 209}, 2);
    hand.accumulate = false;
    combine(&b.cx, &hand);
    near(out, (const float[]){6.5f, 9}, 2);
    hand.gated = true;
    hand.weights = (const float[]){-2};
    combine(&b.cx, &hand);
    near(out, (const float[]){6.61920292f, 9.23840584f}, 2);
    be_free(b.be);

    rig.rng = 26;
    for (size_t i = 0; i < T9_COUNT(cols) * T9_COUNT(slots) * 2; i++) {
        struct combine_case c = {.rows = i % 3 == 0 ? 1 : 11,
                                 .n = cols[i / 2 % T9_COUNT(cols)],
                                 .slots = slots[i / 2 / T9_COUNT(cols)],
                                 .accumulate = i % 2 == 0};
        c.gated = c.slots == 1 && c.accumulate;
        size_t n = (size_t)c.rows * (size_t)(c.n + 3);
        float *y = rig_floats((size_t)c.rows * (size_t)(c.slots * c.n), 3);
        float *w = rig_floats((size_t)(c.rows * c.slots), 1), *start = rig_floats(n, 1);
        float *want = rig_floats(n, 1), *got = rig_floats(n, 1);
        y[0] = i % 5 == 0 ? INFINITY : 1;
        c.y = y;
        c.weights = w;
        memcpy(want, start, n * sizeof(float));
        c.dst = want;
        rig_run(rig.canon, combine, &c);
        c.dst = got;
        FOR_EACH_CPU(be, isa, threads)
        {
            memcpy(got, start, n * sizeof(float));
            rig_run(be, combine, &c);
            rig_same_bits("combine", rig_isas[isa], threads, got, want, n);
        }
        mem_free(y);
        mem_free(w);
        mem_free(start);
        mem_free(want);
        mem_free(got);
    }
}

/* ---- refusals ---- */

static void refused(struct bench *b, const char *part)
{
    if (b->cx.status != T9_STATUS_INVALID || !strstr(b->cx.err.msg, part))
        fail_msg("status %s, message \"%s\", \"%s\" wanted", t9_status_name(b->cx.status),
                 b->cx.err.msg, part);
    b->cx.status = T9_STATUS_OK;
}

static void test_refusals(void **state)
{
    (void)state;
    struct bench b;
    static float f[4096], g[4096];
    static int32_t ids[256];
    struct t9_err err;
    struct weight w, plain, vec;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    struct weight_src src = ops_src("exps", DTYPE_F32, f, 8, 4);
    assert_int_equal(be_weight_load(b.be, &plain, &src, &err), T9_STATUS_OK);
    assert_int_equal(be_vector_load(b.be, &vec, &src, &err), T9_STATUS_OK);
    src.n_experts = 6;
    assert_int_equal(be_weight_load(b.be, &w, &src, &err), T9_STATUS_OK);
    const struct weight *pw = &w, *pp = &plain;
    struct view id = view_i32(ids, 2, 3), dst = view_f32(g, 2, 12), x = view_f32(f, 2, 8);

    op_matmul(&b.cx, &dst, x, &pw, 1);
    refused(&b, "weight exps has 6 experts");
    op_matmul_experts(&b.cx, &dst, x, id, &pp, 1);
    refused(&b, "weight exps has 0 experts");
    op_matmul_experts(&b.cx, &dst, x, id, &pw, 0);
    refused(&b, "1 or 2 products");
    struct view short_dst = view_f32(g, 2, 11);
    op_matmul_experts(&b.cx, &short_dst, x, id, &pw, 1);
    refused(&b, "dst has 11 columns for 3 slots");
    op_matmul_experts(&b.cx, &dst, view_f32(f, 2, 16), id, &pw, 1);
    refused(&b, "src has 16 columns, 8 or 3 times");
    op_matmul_experts(&b.cx, &dst, x, view_i32(ids, 3, 3), &pw, 1);
    refused(&b, "ids is [3, 3], [2, 3] wanted");
    op_matmul_experts(&b.cx, &dst, x, view_f32(f, 2, 3), &pw, 1);
    refused(&b, "ids has element type");
    op_matmul_experts(&b.cx, &dst, x, view_i32(ids, 2, 33), &pw, 1);
    refused(&b, "33 experts a row");
    struct view gaps = view_f32(f, 2, 24);
    gaps.stride = 25;
    op_matmul_experts(&b.cx, &dst, gaps, id, &pw, 1);
    refused(&b, "src has gaps");
    gaps = dst;
    gaps.stride = 13;
    op_matmul_experts(&b.cx, &gaps, x, id, &pw, 1);
    refused(&b, "dst has gaps");

    op_moe_route(&b.cx, view_f32(g, 2, 7), view_i32(ids, 2, 7), view_f32(f, 2, 6), NULL);
    refused(&b, "7 of 6 experts");
    op_moe_route(&b.cx, view_f32(g, 2, 2), view_i32(ids, 2, 2), view_f32(f, 2, 513), NULL);
    refused(&b, "at most 512 are known");
    op_moe_route(&b.cx, view_f32(g, 2, 2), view_i32(ids, 2, 3), view_f32(f, 2, 6), NULL);
    refused(&b, "ids is [2, 3], [2, 2] wanted");
    op_moe_route(&b.cx, view_f32(g, 2, 2), view_i32(ids, 2, 2), view_f32(f, 2, 6), &vec);
    refused(&b, "has 32 values, 6 wanted");
    op_moe_route_sigmoid(&b.cx, view_f32(g, 2, 2), view_i32(ids, 2, 2), view_f32(f, 2, 6), &vec, 1);
    refused(&b, "has 32 values, 6 wanted");
    op_moe_route_sigmoid(&b.cx, view_f32(g, 2, 2), view_i32(ids, 2, 2), view_f32(f, 2, 6), NULL, 0);
    refused(&b, "the scale is 0");
    op_moe_combine(&b.cx, view_f32(g, 2, 5), view_f32(f, 2, 12), view_f32(f, 2, 3), true);
    refused(&b, "src has 12 columns, 3 times 5 are wanted");
    op_gated_add(&b.cx, view_f32(g, 2, 4), view_f32(f, 2, 12), view_f32(f, 2, 3));
    refused(&b, "3 gates a row");
    op_moe_combine(&b.cx, view_f32(f, 2, 4), view_f32(f, 2, 12), view_f32(f, 2, 3), true);
    refused(&b, "dst is src");

    be_weight_free(b.be, &w);
    src.n_experts = 513;
    assert_int_equal(be_weight_load(b.be, &w, &src, &err), T9_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "exps: 513 experts; at most 512"));
    be_weight_free(b.be, &plain);
    be_weight_free(b.be, &vec);
    be_free(b.be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route),         cmocka_unit_test(test_route_scale),
        cmocka_unit_test(test_route_sigmoid), cmocka_unit_test(test_route_large),
        cmocka_unit_test(test_products),      cmocka_unit_test(test_types),
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_bad_ids),       cmocka_unit_test(test_combine),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
