/* The ref kernels against values worked out by hand. */
#include "unit/backend/ops.h"

#include "base/num.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void near(const float *got, const float *want, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * fmaxf(1, fabsf(want[i]))))
            fail_msg("element %d is %.9g, %.9g wanted", i, (double)got[i], (double)want[i]);
    }
}

static void setup(struct bench *b)
{
    assert_int_equal(bench_init(b, "ref"), T9_STATUS_OK);
}

static struct weight matrix(struct bench *b, const float *rows, int32_t n_in, int32_t n_out)
{
    struct weight w;
    struct weight_src s = ops_src("matrix", DTYPE_F32, rows, n_in, n_out);
    assert_int_equal(be_weight_load(b->be, &w, &s, NULL), T9_STATUS_OK);
    return w;
}

static struct weight vector(struct bench *b, const float *values, int32_t n)
{
    struct weight w;
    struct weight_src s = ops_src("vector", DTYPE_F32, values, n, 1);
    assert_int_equal(be_vector_load(b->be, &w, &s, NULL), T9_STATUS_OK);
    return w;
}

static void done(struct bench *b)
{
    if (b->cx.status != T9_STATUS_OK)
        fail_msg("%s", b->cx.err.msg);
    be_free(b->be);
}

static void test_embed_rows(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    const float table[] = {1, 2, 3, 4, 5, 6}, given[] = {7, 8};
    const float *override[] = {NULL, given, NULL};
    const int32_t ids[] = {2, 0, 9};
    float out[6];
    struct weight w = matrix(&b, table, 2, 3);
    struct view o = {override, 3, 1, 1, VIEW_PTR, 0};
    op_embed_rows(&b.cx, view_f32(out, 3, 2), view_i32(ids, 3, 1), o, &w, 0.5f);
    near(out, (const float[]){2.5f, 3, 7, 8}, 4); /* what is given is not scaled */
    assert_true(isnan(out[4]) && isnan(out[5]));  /* there is no token 9 */
    op_embed_tokens(&b.cx, view_f32(out, 3, 2), view_i32(ids, 3, 1), o, &w, 3);
    near(out, (const float[]){15, 18, 3, 6}, 4); /* the first row for what is no token */
    be_weight_free(b.be, &w);
    done(&b);
}

static void test_gather_rows(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    const float src[] = {1, 2, 9, 3, 4, 9, 5, 6, 9};
    const int32_t rows[] = {2, 2, 0};
    float out[6];
    struct view s = view_f32(src, 3, 2);
    s.stride = 3;
    op_gather_rows(&b.cx, view_f32(out, 3, 2), s, view_i32(rows, 3, 1));
    near(out, (const float[]){5, 6, 5, 6, 1, 2}, 6);
    done(&b);
}

static void test_rmsnorm(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    /* mean of squares of (1, 2, 2, 4) is 25/4; with eps 0 the scale is 2/5. */
    float x[] = {1, 2, 2, 4};
    struct weight w = vector(&b, (const float[]){1, 1, 2, -1}, 4);
    op_rmsnorm(&b.cx, view_f32(x, 1, 4), view_f32(x, 1, 4), &w, 0);
    near(x, (const float[]){0.4f, 0.8f, 1.6f, -1.6f}, 4);
    /* eps counts: (0, 0, 0, 0) with eps 1 stays 0; (1, 1, 1, 1) with eps 3 is halved. */
    float y[] = {0, 0, 0, 0, 1, 1, 1, 1};
    op_rmsnorm(&b.cx, view_f32(y, 2, 4), view_f32(y, 2, 4), &w, 3);
    near(y, (const float[]){0, 0, 0, 0, 0.5f, 0.5f, 1, -0.5f}, 8);
    /* Two heads of a row: (1, 2, 2, 4) and (2, 4, 4, 8) have the same direction. */
    float heads[] = {1, 2, 2, 4, 2, 4, 4, 8};
    op_rmsnorm(&b.cx, view_f32(heads, 1, 8), view_f32(heads, 1, 8), &w, 0);
    near(heads, (const float[]){0.4f, 0.8f, 1.6f, -1.6f, 0.4f, 0.8f, 1.6f, -1.6f}, 8);
    be_weight_free(b.be, &w);
    done(&b);
}

static void test_matmul(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    const float x[] = {1, 2, 3, -1, 0, 1}, bias[] = {10, 20};
    struct weight w1 = matrix(&b, (const float[]){1, 0, 0, 0, 1, 1}, 3, 2);
    struct weight w2 = matrix(&b, (const float[]){2, 2, 2}, 3, 1);
    w1.bias = bias;
    float y1[4], y2[2];
    struct view dst[] = {view_f32(y1, 2, 2), view_f32(y2, 2, 1)};
    op_matmul(&b.cx, dst, view_f32(x, 2, 3), (const struct weight *[]){&w1, &w2}, 2);
    near(y1, (const float[]){11, 25, 9, 21}, 4);
    near(y2, (const float[]){12, 0}, 2);
    op_matmul_add(&b.cx, dst[0], view_f32(x, 2, 3), &w1);
    near(y1, (const float[]){22, 50, 18, 42}, 4);
    be_weight_free(b.be, &w1);
    be_weight_free(b.be, &w2);
    done(&b);
}

static void test_matmul_long_rows(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    /* 37 values: no multiple of the partial sums. 1 + 2 + ... + 37 = 703. */
    float ones[37], x[37], y[1];
    for (int i = 0; i < 37; i++) {
        ones[i] = 1;
        x[i] = (float)(i + 1);
    }
    struct weight w = matrix(&b, ones, 37, 1);
    struct view dst = view_f32(y, 1, 1);
    const struct weight *pw = &w;
    op_matmul(&b.cx, &dst, view_f32(x, 1, 37), &pw, 1);
    near(y, (const float[]){703}, 1);
    be_weight_free(b.be, &w);
    done(&b);
}

static void test_rope_angles(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    const int32_t pos[] = {0, 9, 9, 3, 9, 9}; /* stride 3 */
    const float inv_freq[] = {1, 0.5f};
    float out[8];
    struct view p = {(void *)(uintptr_t)pos, 2, 1, 3, VIEW_I32, 0};
    op_rope_angles(&b.cx, view_f32(out, 2, 4), p, view_f32(inv_freq, 1, 2), 2);
    near(out, (const float[]){2, 2, 0, 0, 2 * cosf(3), 2 * cosf(1.5f), 2 * sinf(3), 2 * sinf(1.5f)},
         8);

    /* Three positions: pair 1 turns by h, 2 by w, the others by t, for the sections end. */
    const float ones[] = {1, 1, 1, 1, 1, 1};
    float out3[24];
    p.cols = 3;
    op_rope_angles_3d(&b.cx, view_f32(out3, 2, 12), p, view_f32(ones, 1, 6), 1, 1, 1);
    near(out3, (const float[]){1, cosf(9), cosf(9), 1, 1, 1, 0, sinf(9), sinf(9), 0, 0, 0}, 12);
    done(&b);
}

static void test_activations(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    float gate[] = {0, 1, -1, 3}, up[] = {5, 2, 2, 1}, out[4];
    op_act_mul(&b.cx, view_f32(out, 1, 4), view_f32(gate, 1, 4), view_f32(up, 1, 4), ACT_SILU);
    near(out, (const float[]){0, 1.46211716f, -0.53788284f, 2.85772238f}, 4);
    op_act_mul(&b.cx, view_f32(gate, 1, 4), view_f32(gate, 1, 4), view_f32(up, 1, 4),
               ACT_GELU_TANH);
    near(gate, (const float[]){0, 1.68238401f, -0.31761599f, 2.99636269f}, 4);
    float x[] = {1, 2, 3, 4}, y[] = {5, 7};
    const float *rows[] = {NULL, y};
    op_add_rows(&b.cx, view_f32(x, 2, 2), (struct view){rows, 2, 1, 1, VIEW_PTR, 0});
    near(x, (const float[]){1, 2, 8, 11}, 4);
    op_add(&b.cx, view_f32(up, 1, 4), view_f32(up, 1, 4), view_f32(up, 1, 4));
    near(up, (const float[]){10, 4, 4, 2}, 4);
    op_scale(&b.cx, view_f32(up, 1, 4), view_f32(up, 1, 4), -0.25f);
    near(up, (const float[]){-2.5f, -1, -1, -0.5f}, 4);
    float high[] = {0, 30, -3, 3000};
    op_softcap(&b.cx, view_f32(high, 1, 4), view_f32(high, 1, 4), 30);
    near(high, (const float[]){0, 22.8478247f, -2.99003984f, 30}, 4);
    /* Gate is cut above only, up on both sides: (7, -7) and (-10, 7) of the second and third. */
    const float g[] = {1, 10, -10, 0.5f}, u[] = {1, -9, 9, 0};
    op_act_mul(&b.cx, view_f32(out, 1, 4), view_f32(g, 1, 4), view_f32(u, 1, 4),
               ACT_SWIGLU_CLAMPED);
    near(out, (const float[]){1.6915922f, -41.999719f, -3.2464e-6f, 0.350388f}, 4);
    op_act_mul(&b.cx, view_f32(out, 1, 4), view_f32(g, 1, 4), view_f32(u, 1, 4), ACT_NONE);
    near(out, (const float[]){1, -90, -90, 0}, 4);
    op_act_mul(&b.cx, view_f32(out, 1, 4), view_f32(g, 1, 4), view_f32(u, 1, 4), ACT_SIGMOID);
    near(out, (const float[]){0.731058579f, -8.99959141f, 4.08580815e-4f, 0}, 4);
    done(&b);
}

enum { D = 4, PAGES = 3 };

/* One KV head of four values, two query heads, one layer. */
struct kv_case {
    struct kv_geom g;
    char pool[PAGES * 4096] __attribute__((aligned(64)));
    int32_t page_table[2 * 2]; /* two sequences of up to two pages */
};

static void kv_init(struct kv_case *c, kv_type type)
{
    assert_true(kv_geom_init_same(&c->g, 1, 1, D, type));
    assert_int_equal(c->g.page_bytes, 4096);
    memset(c->pool, 0xFF, sizeof(c->pool)); /* NaN: what was not stored must not be read */
    const int32_t table[] = {2, 0, 1, 1};
    memcpy(c->page_table, table, sizeof(table));
}

static struct op_rope_store store_of(struct kv_case *c, int32_t n_rows, float *q, float *k,
                                     float *v, const float *angles, const int32_t *kv_idx,
                                     const int32_t *row_seq)
{
    return (struct op_rope_store){.q = view_f32(q, n_rows, 2 * D),
                                  .k = view_f32(k, n_rows, D),
                                  .v = view_f32(v, n_rows, D),
                                  .angles = view_f32(angles, n_rows, 4),
                                  .kv_idx = view_i32(kv_idx, n_rows, 1),
                                  .row_seq = view_i32(row_seq, n_rows, 1),
                                  .page_table = view_i32(c->page_table, 2, 2),
                                  .pool = {c->pool, 1, 1, 1, VIEW_BYTES, 0},
                                  .kv = &c->g.layers[0],
                                  .n_head = 2,
                                  .n_rot = 4};
}

static void test_rope_store(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    struct kv_case c;
    kv_init(&c, KV_TYPE_F32);
    /* A quarter turn for the first pair, none for the second. */
    const float angles[] = {0, 1, 1, 0};
    float q[] = {1, 2, 3, 4, 5, 6, 7, 8}, k[] = {1, 2, 3, 4}, v[] = {9, 8, 7, 6};
    const int32_t kv_idx[] = {33}, row_seq[] = {0};
    struct op_rope_store s = store_of(&c, 1, q, k, v, angles, kv_idx, row_seq);
    op_qk_norm_rope_store(&b.cx, &s);
    near(q, (const float[]){-2, 1, 3, 4, -6, 5, 7, 8}, 8); /* adjacent pairs */
    near(k, (const float[]){1, 2, 3, 4}, 4);               /* only read */
    /* Key 33 of sequence 0 is slot 1 of its second page, which is page 0. */
    const float *kp = (const float *)(const void *)kv_page_k(&c.g.layers[0], c.pool, 0, 0);
    const float *vp = (const float *)(const void *)kv_page_v(&c.g.layers[0], c.pool, 0, 0);
    near((const float[]){kp[1], kp[33], kp[65], kp[97]}, (const float[]){-2, 1, 3, 4}, 4);
    near(vp + D, v, 4);
    assert_true(isnan(kp[0]) && isnan(vp[0]));

    /* Halves: pairs (0, 2) and (1, 3). A padding row is rotated and stores nothing. */
    float q2[] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int32_t padding[] = {-1};
    s = store_of(&c, 1, q2, k, v, angles, padding, row_seq);
    s.neox = true;
    memset(c.pool, 0xFF, sizeof(c.pool));
    op_qk_norm_rope_store(&b.cx, &s);
    near(q2, (const float[]){-3, 2, 1, 4, -7, 6, 5, 8}, 8);
    for (size_t i = 0; i < sizeof(c.pool); i++)
        assert_int_equal(c.pool[i], -1);

    /* A query at position 25 of a scale of every 10 takes the third factor, at 99 the last one;
     * keys take none. */
    const float factors[] = {1, 2, 3};
    const struct weight scale = {
        .layout = WEIGHT_LAYOUT_VECTOR, .data = factors, .n_in = 3, .n_out = 1};
    const int32_t positions[] = {25, 99, 0};
    for (size_t i = 0; i < T9_COUNT(positions); i++) {
        float q3[] = {1, 2, 3, 4, 5, 6, 7, 8};
        s = store_of(&c, 1, q3, k, v, angles, kv_idx, row_seq);
        s.q_scale = &scale;
        s.q_scale_every = 10;
        s.pos = view_i32(&positions[i], 1, 1);
        op_qk_norm_rope_store(&b.cx, &s);
        float f = positions[i] ? 3 : 1;
        near(q3, (const float[]){-2 * f, f, 3 * f, 4 * f, -6 * f, 5 * f, 7 * f, 8 * f}, 8);
        near((const float[]){kp[1], kp[33], kp[65], kp[97]}, (const float[]){-2, 1, 3, 4}, 4);
    }
    done(&b);
}

static void test_rope_partial_with_norm(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    struct kv_case c;
    kv_init(&c, KV_TYPE_F16);
    /* Norm first: (1, 2, 2, 4) has the scale 2/5. Then only the first two values turn. */
    const float angles[] = {0, 1};
    float q[] = {1, 2, 2, 4, 2, 4, 4, 8}, k[] = {1, 2, 2, 4}, v[] = {1, 2, 3, 4};
    const int32_t kv_idx[] = {0}, row_seq[] = {1};
    struct weight qn = vector(&b, (const float[]){1, 1, 1, 1}, D);
    struct weight kn = vector(&b, (const float[]){2.5f, 5, 2.5f, 2.5f}, D);
    struct op_rope_store s = store_of(&c, 1, q, k, v, angles, kv_idx, row_seq);
    s.angles = view_f32(angles, 1, 2);
    s.n_rot = 2;
    s.q_norm = &qn;
    s.k_norm = &kn;
    op_qk_norm_rope_store(&b.cx, &s);
    near(q, (const float[]){-0.8f, 0.4f, 0.8f, 1.6f, -0.8f, 0.4f, 0.8f, 1.6f}, 8);
    const uint16_t *kp = (const uint16_t *)(const void *)kv_page_k(&c.g.layers[0], c.pool, 1, 0);
    const float stored[] = {num_f32_from_f16(kp[0]), num_f32_from_f16(kp[32]),
                            num_f32_from_f16(kp[64]), num_f32_from_f16(kp[96])};
    near(stored, (const float[]){-4, 1, 2, 4}, 4);
    be_weight_free(b.be, &qn);
    be_weight_free(b.be, &kn);
    done(&b);
}

/* Stores n keys (k of all zero, so all weigh the same) with the value (j, 1, 0, -j) each. */
static void fill(struct bench *b, struct kv_case *c, int32_t seq, int32_t n)
{
    const float angles[] = {1, 1, 0, 0};
    for (int32_t j = 0; j < n; j++) {
        float q[2 * D] = {0}, k[D] = {0}, v[] = {(float)j, 1, 0, (float)-j};
        struct op_rope_store s = store_of(c, 1, q, k, v, angles, &j, &seq);
        op_qk_norm_rope_store(&b->cx, &s);
    }
}

static struct op_attn attn_of(struct kv_case *c, int32_t n_rows, float *dst, const float *q,
                              const int32_t *kv_idx, const int32_t *row_seq)
{
    return (struct op_attn){.dst = view_f32(dst, n_rows, 2 * D),
                            .q = view_f32(q, n_rows, 2 * D),
                            .kv_idx = view_i32(kv_idx, n_rows, 1),
                            .row_seq = view_i32(row_seq, n_rows, 1),
                            .page_table = view_i32(c->page_table, 2, 2),
                            .pool = {c->pool, 1, 1, 1, VIEW_BYTES, 0},
                            .kv = &c->g.layers[0],
                            .n_head = 2,
                            .scale = 0.5f};
}

static void test_attention_means(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    struct kv_case c;
    kv_init(&c, KV_TYPE_F32);
    fill(&b, &c, 0, 41);
    fill(&b, &c, 1, 3);
    float q[3 * 2 * D] = {0}, out[3 * 2 * D];
    const int32_t kv_idx[] = {40, 0, 2}, row_seq[] = {0, 0, 1}, span_end[] = {40, 4, 2};
    struct op_attn a = attn_of(&c, 3, out, q, kv_idx, row_seq);
    op_attn_paged(&b.cx, &a);
    near(out, (const float[]){20, 1, 0, -20, 20, 1, 0, -20}, 8); /* mean of 0..40, two pages */
    near(out + 8, (const float[]){0, 1, 0, 0}, 4);
    near(out + 16, (const float[]){1, 1, 0, -1}, 4);
    /* A window of 5 sees keys 36..40. */
    a.window = 5;
    op_attn_paged(&b.cx, &a);
    near(out, (const float[]){38, 1, 0, -38}, 4);
    near(out + 16, (const float[]){1, 1, 0, -1}, 4);
    /* A span that attends both ways: row 0 sees up to key 4. */
    a.window = 0;
    a.span_end = view_i32(span_end, 3, 1);
    op_attn_paged(&b.cx, &a);
    near(out + 8, (const float[]){2, 1, 0, -2}, 4);
    /* Padding gives zeros. */
    const int32_t padding[] = {-1, -1, -1};
    a = attn_of(&c, 3, out, q, padding, row_seq);
    op_attn_paged(&b.cx, &a);
    near(out, (const float[24]){0}, 24);
    done(&b);
}

static void test_attention_softmax(void **state)
{
    (void)state;
    struct bench b;
    setup(&b);
    struct kv_case c;
    kv_init(&c, KV_TYPE_F32);
    const float still[] = {1, 1, 0, 0};
    /* Scores of the first head: 0.5 * (2, 4, 1) = (1, 2, 0.5); of the second: zeros. */
    const float keys[] = {2, 4, 1};
    for (int32_t j = 0; j < 3; j++) {
        float q[2 * D] = {0}, k[D] = {keys[j]}, v[D] = {0};
        v[j] = 1;
        const int32_t seq = 0;
        struct op_rope_store s = store_of(&c, 1, q, k, v, still, &j, &seq);
        op_qk_norm_rope_store(&b.cx, &s);
    }
    float q[2 * D] = {1}, out[2 * D];
    const int32_t kv_idx[] = {2}, row_seq[] = {0};
    struct op_attn a = attn_of(&c, 1, out, q, kv_idx, row_seq);
    op_attn_paged(&b.cx, &a);
    /* e^1, e^2 and e^0.5 over their sum 11.7560591 */
    near(out, (const float[]){0.231223855f, 0.628531607f, 0.140244362f, 0}, 4);
    near(out + D, (const float[]){1 / 3.0f, 1 / 3.0f, 1 / 3.0f, 0}, 4);
    /* Sinks of 1.5 and 0: not scaled, without a value. e^1.5 joins the first sum, e^0 the second.
     */
    struct weight sinks = vector(&b, (const float[]){1.5f, 0}, 2);
    a.sinks = &sinks;
    op_attn_paged(&b.cx, &a);
    near(out, (const float[]){0.167405f, 0.455054f, 0.101536f, 0}, 4);
    near(out + D, (const float[]){0.25f, 0.25f, 0.25f, 0}, 4);
    /* A window of one key: the sink counts as before. */
    a.window = 1;
    op_attn_paged(&b.cx, &a);
    near(out, (const float[]){0, 0, 0.268941421f, 0, 0, 0, 0.5f, 0}, 8);
    be_weight_free(b.be, &sinks);
    done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embed_rows),
        cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_matmul_long_rows),
        cmocka_unit_test(test_rope_angles),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_rope_store),
        cmocka_unit_test(test_rope_partial_with_norm),
        cmocka_unit_test(test_attention_means),
        cmocka_unit_test(test_attention_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
