/* Builders, checks and scratch of backend/op.c, op_check.c, kv_geom.c and be.c. */
#include "unit/backend/ops.h"

#include "base/mem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void test_names(void **state)
{
    (void)state;
    assert_string_equal(op_kind_name(OP_RMSNORM), "rmsnorm");
    assert_string_equal(op_kind_name(OP_QK_NORM_ROPE_STORE), "qk_norm_rope_store");
    assert_string_equal(op_kind_name(OP_COUNT), "?");
}

static void test_scratch_is_a_stack(void **state)
{
    (void)state;
    struct bench b;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    size_t mark = cx_mark(&b.cx);
    struct view a = cx_alloc(&b.cx, 3, 5);
    struct view c = cx_alloc(&b.cx, 1, 1);
    assert_int_equal((uintptr_t)a.p % 64, 0);
    assert_int_equal((char *)c.p - (char *)a.p, 64);
    assert_int_equal(a.stride, 5);
    cx_release(&b.cx, mark);
    struct view again = cx_alloc(&b.cx, 1, 1);
    assert_ptr_equal(again.p, a.p);
    assert_int_equal(b.scratch.peak, 128);
    be_free(b.be);
}

static void test_full_scratch_is_a_status(void **state)
{
    (void)state;
    struct bench b;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    b.scratch.cap = 128;
    b.cx.layer = 7;
    struct view v = cx_alloc(&b.cx, 8, 8);
    assert_null(v.p);
    assert_int_equal(b.cx.status, T9_STATUS_INTERNAL);
    assert_non_null(strstr(b.cx.err.msg, "layer 7"));
    /* Sticky: what follows does nothing, and the first message stays. */
    v = cx_alloc(&b.cx, 1, 1);
    assert_null(v.p);
    op_add(&b.cx, v, v, v);
    assert_non_null(strstr(b.cx.err.msg, "scratch"));
    be_free(b.be);
}

/* Each case breaks one thing of an op that is otherwise right. */
static void expect_refusal(struct bench *b, const char *part)
{
    if (b->cx.status != T9_STATUS_INVALID || !strstr(b->cx.err.msg, part))
        fail_msg("status %s, message \"%s\", \"%s\" wanted", t9_status_name(b->cx.status),
                 b->cx.err.msg, part);
    b->cx.status = T9_STATUS_OK;
}

static void test_shapes_are_refused_by_name(void **state)
{
    (void)state;
    struct bench b;
    static const float ones[64] = {1, 1, 1, 1, 1, 1, 1, 1};
    static float x[64], y[64];
    static const int32_t ids[8];
    struct weight vec = {0}, mat = {0};
    struct t9_err err;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    struct weight_src vs = ops_src("norm", DTYPE_F32, ones, 8, 1);
    struct weight_src ms = ops_src("proj", DTYPE_F32, ones, 8, 4);
    assert_int_equal(be_vector_load(b.be, &vec, &vs, &err), T9_STATUS_OK);
    assert_int_equal(be_weight_load(b.be, &mat, &ms, &err), T9_STATUS_OK);
    b.cx.layer = 3;

    op_rmsnorm(&b.cx, view_f32(y, 2, 8), view_f32(x, 2, 4), &vec, 1e-5f);
    expect_refusal(&b, "rmsnorm in layer 3: src is [2, 4], [2, 8] wanted");
    op_rmsnorm(&b.cx, view_f32(y, 2, 4), view_f32(x, 2, 4), &vec, 1e-5f);
    expect_refusal(&b, "weight norm has 8 values, 4 wanted");
    op_rmsnorm(&b.cx, view_f32(y, 1, 8), view_f32(x, 1, 8), &mat, 1e-5f);
    expect_refusal(&b, "weight proj is a matrix");
    op_rmsnorm(&b.cx, view_f32(y, 1, 8), view_f32(x, 1, 8), NULL, 1e-5f);
    expect_refusal(&b, "a weight is absent");
    op_rmsnorm(&b.cx, view_f32(y, 1, 8), view_f32(NULL, 1, 8), &vec, 1e-5f);
    expect_refusal(&b, "src is absent");

    struct view dst = view_f32(y, 2, 5);
    const struct weight *w = &mat;
    op_matmul(&b.cx, &dst, view_f32(x, 2, 8), &w, 1);
    expect_refusal(&b, "weight proj is 8 -> 4, 8 -> 5 wanted");
    op_matmul(&b.cx, &dst, view_f32(x, 2, 8), &w, 4);
    expect_refusal(&b, "products");
    op_matmul_add(&b.cx, view_f32(x, 2, 4), view_f32(x, 2, 8), &mat);
    expect_refusal(&b, "dst is src");
    op_matmul_add(&b.cx, view_f32(y, 2, 8), view_f32(x, 2, 8), &vec);
    expect_refusal(&b, "weight norm is a vector");

    struct view none = {0};
    op_embed_rows(&b.cx, view_f32(y, 2, 8), view_i32(ids, 3, 1), none, &mat, 1);
    expect_refusal(&b, "ids is [3, 1], [2, 1] wanted");
    op_embed_rows(&b.cx, view_f32(y, 2, 8), view_f32(x, 2, 1), none, &mat, 1);
    expect_refusal(&b, "ids has element type");
    op_gather_rows(&b.cx, view_f32(y, 2, 8), view_f32(x, 4, 4), view_i32(ids, 2, 1));
    expect_refusal(&b, "src is [4, 4]");
    op_rope_angles(&b.cx, view_f32(y, 2, 7), view_i32(ids, 2, 1), view_f32(x, 1, 3), 1);
    expect_refusal(&b, "7 rotated dimensions");
    op_rope_angles(&b.cx, view_f32(y, 2, 8), view_i32(ids, 2, 1), view_f32(x, 1, 3), 1);
    expect_refusal(&b, "inv_freq is [1, 3], [1, 4] wanted");
    op_rope_angles_3d(&b.cx, view_f32(y, 2, 8), view_i32(ids, 2, 1), view_f32(x, 1, 4), 1, 1, 1);
    expect_refusal(&b, "pos is [2, 1], [2, 3] wanted");
    op_rope_angles_3d(&b.cx, view_f32(y, 2, 8), view_i32(ids, 1, 3), view_f32(x, 1, 4), 1, 2, 1);
    expect_refusal(&b, "2 and 1 of 4 pairs for h and w");
    const float *given[2] = {NULL};
    struct view rows = {given, 2, 1, 1, VIEW_PTR, 0};
    op_add_rows(&b.cx, view_f32(y, 3, 8), rows);
    expect_refusal(&b, "the rows is [2, 1], [3, 1] wanted");
    op_add(&b.cx, view_f32(y, 2, 8), view_f32(x, 2, 8), rows);
    expect_refusal(&b, "rows are added in place");
    op_act_mul(&b.cx, view_f32(y, 2, 8), view_f32(x, 2, 8), view_f32(x, 1, 8), ACT_SILU);
    expect_refusal(&b, "second source");
    op_act_mul(&b.cx, view_f32(y, 2, 8), view_f32(x, 2, 8), view_f32(x, 2, 8), (act_kind)9);
    expect_refusal(&b, "activation 9");
    op_scale(&b.cx, view_f32(y, 2, 8), view_f32(x, 2, 8), INFINITY);
    expect_refusal(&b, "the factor is inf");
    op_softcap(&b.cx, view_f32(y, 2, 8), view_f32(x, 2, 8), 0);
    expect_refusal(&b, "softcap in layer 3: the factor is 0");
    op_softcap(&b.cx, view_f32(y, 2, 8), view_f32(x, 1, 8), 1);
    expect_refusal(&b, "src is [1, 8], [2, 8] wanted");
    struct view wide = view_f32(x, 2, 8);
    wide.stride = 4;
    op_add(&b.cx, view_f32(y, 2, 8), wide, wide);
    expect_refusal(&b, "stride 4");
    op_add(&b.cx, view_f32(y, 65, 1), view_f32(x, 65, 1), view_f32(x, 65, 1));
    expect_refusal(&b, "room for 64");

    be_weight_free(b.be, &vec);
    be_weight_free(b.be, &mat);
    be_free(b.be);
}

static void test_kv_ops_are_checked(void **state)
{
    (void)state;
    struct bench b;
    static float f[64];
    static const int32_t i[8];
    struct kv_geom g;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_true(kv_geom_init_same(&g, 2, 2, 4, KV_TYPE_F32));
    struct view pool = {f, 1, 1, 1, VIEW_BYTES, 0};
    struct op_attn a = {.dst = view_f32(f, 1, 16),
                        .q = view_f32(f + 32, 1, 16),
                        .kv_idx = view_i32(i, 1, 1),
                        .row_seq = view_i32(i, 1, 1),
                        .page_table = view_i32(i, 1, 1),
                        .pool = pool,
                        .kv = &g.layers[1],
                        .n_head = 3,
                        .scale = 1};
    op_attn_paged(&b.cx, &a);
    expect_refusal(&b, "3 heads over 2 KV heads");
    a.n_head = 4;
    a.q = view_f32(f, 1, 16);
    op_attn_paged(&b.cx, &a);
    expect_refusal(&b, "dst is q");
    a.q = view_f32(f, 1, 8);
    op_attn_paged(&b.cx, &a);
    expect_refusal(&b, "q is [1, 8]");
    struct weight sinks = {.name = "sinks", .data = f, .n_in = 3, .n_out = 1};
    a.q = view_f32(f + 32, 1, 16);
    a.sinks = &sinks;
    op_attn_paged(&b.cx, &a);
    expect_refusal(&b, "weight sinks has 3 values, 4 wanted");

    struct op_rope_store s = {.q = view_f32(f, 1, 16),
                              .k = view_f32(f + 16, 1, 8),
                              .v = view_f32(f + 24, 1, 8),
                              .angles = view_f32(f, 1, 6),
                              .kv_idx = view_i32(i, 1, 1),
                              .row_seq = view_i32(i, 1, 1),
                              .page_table = view_i32(i, 1, 1),
                              .pool = pool,
                              .kv = &g.layers[1],
                              .n_head = 4,
                              .n_rot = 6};
    op_qk_norm_rope_store(&b.cx, &s);
    expect_refusal(&b, "6 rotated of 4");
    s.n_rot = 4;
    op_qk_norm_rope_store(&b.cx, &s);
    expect_refusal(&b, "angles is [1, 6], [1, 4] wanted");
    s.angles = view_f32(f, 1, 4);
    const struct weight scale = {
        .name = "scale", .layout = WEIGHT_LAYOUT_VECTOR, .data = f, .n_in = 2, .n_out = 1};
    s.q_scale = &scale;
    op_qk_norm_rope_store(&b.cx, &s);
    expect_refusal(&b, "a query scale of every 0 positions");
    s.q_scale_every = 1;
    op_qk_norm_rope_store(&b.cx, &s);
    expect_refusal(&b, "pos is absent");
    s.q_scale = NULL;
    s.v.p = NULL;
    op_qk_norm_rope_store(&b.cx, &s);
    expect_refusal(&b, "v is absent");
    s.pool.p = NULL;
    op_qk_norm_rope_store(&b.cx, &s);
    expect_refusal(&b, "page pool is absent");
    be_free(b.be);
}

static void test_kv_geometry(void **state)
{
    (void)state;
    struct kv_geom g;
    const struct kv_layer *l = &g.layers[0];
    kv_type t;
    assert_true(kv_geom_init_same(&g, 3, 2, 64, KV_TYPE_F16));
    assert_int_equal(l->v_offset, 2 * 64 * 32 * 2);
    assert_int_equal(l->layer_bytes, 2 * l->v_offset);
    assert_int_equal(g.page_bytes, 3 * l->layer_bytes); /* a multiple of 4096 already */
    assert_int_equal(g.layers[2].layer_offset, 2 * l->layer_bytes);
    assert_int_equal(g.layers[2].page_bytes, g.page_bytes);
    assert_true(kv_geom_init_same(&g, 1, 1, 1, KV_TYPE_F32));
    assert_int_equal(g.page_bytes, 4096);
    assert_false(kv_geom_init_same(&g, 0, 2, 64, KV_TYPE_F16));
    assert_false(kv_geom_init_same(&g, 1, 2, KV_HEAD_DIM_MAX + 1, KV_TYPE_F16));
    assert_false(kv_geom_init_same(&g, 1, -2, 64, KV_TYPE_F16));
    assert_false(kv_geom_init_same(&g, 1, 2, 64, (kv_type)9));
    assert_false(kv_geom_init_same(&g, 1, 2, 64, (kv_type)-1));
    assert_true(kv_geom_init_same(&g, 1, 2, 64, KV_TYPE_BF16));
    assert_int_equal(l->v_offset, 2 * 64 * 32 * 2);
    assert_true(kv_geom_init_same(&g, 3, 2, 64, KV_TYPE_Q8_0));
    assert_int_equal(l->scale_offset, 64 * 32);
    assert_int_equal(l->v_offset, 2 * (64 * 32 + 2 * 32 * 2));
    assert_true(kv_geom_init_same(&g, 1, 1, 33, KV_TYPE_Q8_0)); /* a block of 32 and one of 1 */
    assert_int_equal(l->n_blocks, 2);
    assert_int_equal(l->head_bytes, 33 * 32 + 2 * 32 * 2);
    const struct kv_shape shapes[] = {{4, 16, 0}, {1, 512, 0}, {4, 16, 0}};
    assert_true(kv_geom_init(&g, shapes, 3, KV_TYPE_F32));
    assert_int_equal(l->layer_bytes, 2 * 4 * 16 * 32 * 4);
    assert_int_equal(g.layers[1].layer_offset, l->layer_bytes);
    assert_int_equal(g.layers[1].head_bytes, 512 * 32 * 4);
    assert_int_equal(g.layers[2].layer_offset, l->layer_bytes + g.layers[1].layer_bytes);
    assert_int_equal(g.page_bytes, 2 * l->layer_bytes + g.layers[1].layer_bytes);
    assert_false(kv_geom_init(&g, shapes, KV_LAYERS_MAX + 1, KV_TYPE_F32));
    static const kv_type all[] = {KV_TYPE_F16, KV_TYPE_F32, KV_TYPE_BF16, KV_TYPE_Q8_0};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        assert_true(kv_type_parse(kv_type_name(all[i]), &t));
        assert_int_equal(t, all[i]);
    }
    assert_false(kv_type_parse("q9", &t));
}

/* Stores x as key and value of slot 5: what is read back from each, and that at most n bytes of the
 * page changed. */
static void kv_round_trip(kv_type type, int32_t d, const float *x, float *k, float *v, size_t n)
{
    static char pool[16384] __attribute__((aligned(64)));
    struct kv_geom g;
    const struct kv_layer *l = &g.layers[0];
    size_t changed = 0;
    assert_true(kv_geom_init_same(&g, 1, 1, d, type));
    assert_true(g.page_bytes <= sizeof(pool));
    memset(pool, 0x55, sizeof(pool));
    kv_store_k(l, kv_page_k(l, pool, 0, 0), 5, x);
    kv_store_v(l, kv_page_v(l, pool, 0, 0), 5, x);
    for (int32_t i = 0; i < d; i++) {
        k[i] = kv_load_k(l, kv_page_k(l, pool, 0, 0), 5, i);
        v[i] = kv_load_v(l, kv_page_v(l, pool, 0, 0), 5, i);
    }
    for (size_t i = 0; i < sizeof(pool); i++)
        changed += pool[i] != 0x55;
    assert_true(changed <= n);
}

static void test_kv_formats(void **state)
{
    (void)state;
    enum { D = 33 };
    float x[D] = {127, -63.5f, 0.4f, 0.6f, 62.5f}, k[D], v[D];
    const float want[] = {127, -64, 0, 1, 62};
    x[32] = 2.54f; /* the scale 0.02 is 0.0200042725 in f16 */
    kv_round_trip(KV_TYPE_Q8_0, D, x, k, v, 2 * (D + 4));
    for (int32_t i = 0; i < D; i++) {
        float w = i < 5 ? want[i] : i < 32 ? 0 : 127 * 0.0200042724609375f;
        assert_true(k[i] == w && v[i] == w);
    }
    /* Too small for a scale: zeros. The smallest scale: codes stop at 127. */
    for (int32_t i = 0; i < D; i++)
        x[i] = 3e-6f;
    x[32] = 1.4f * 127 * 0x1p-24f;
    kv_round_trip(KV_TYPE_Q8_0, D, x, k, v, 2 * (D + 4));
    assert_true(k[0] == 0 && v[31] == 0);
    assert_true(k[32] == 127 * 0x1p-24f && v[32] == k[32]);
    /* Too large: NaN, in its own block only. */
    x[3] = 1e9f;
    x[32] = 1;
    kv_round_trip(KV_TYPE_Q8_0, D, x, k, v, 2 * (D + 4));
    assert_true(isnan(k[0]) && isnan(v[31]));
    assert_true(fabsf(k[32] - 1) < 1e-3f && v[32] == k[32]);

    /* bf16: 8 bits, to nearest even; beyond the largest, infinity. */
    const float from[] = {1 + 0x1p-8f, 1 + 0x1.8p-7f, -1 - 0x1.01p-8f, 3.4e38f};
    const float to[] = {1, 1 + 0x1p-6f, -1 - 0x1p-7f, INFINITY};
    kv_round_trip(KV_TYPE_BF16, 4, from, k, v, 16);
    for (int i = 0; i < 4; i++)
        assert_true(k[i] == to[i] && v[i] == to[i]);
    kv_round_trip(KV_TYPE_F16, 2, (const float[]){1 + 0x1p-11f, 70000}, k, v, 8);
    assert_true(k[0] == 1 && v[0] == 1 && isinf(k[1]) && isinf(v[1]));
    kv_round_trip(KV_TYPE_F32, 1, (const float[]){0.1f}, k, v, 8);
    assert_true(k[0] == 0.1f && v[0] == 0.1f);
}

static void test_backends_by_name(void **state)
{
    (void)state;
    struct be *be;
    struct t9_err err;
    struct be_params p = {.max_rows = 1};
    assert_int_equal(be_new(&be, "gpu", &p, &err), T9_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "known: cpu, canon, ref"));
    p.isa = "avx2";
    assert_int_equal(be_new(&be, "ref", &p, &err), T9_STATUS_UNSUPPORTED);
    p.isa = NULL;
    p.max_rows = 0;
    assert_int_equal(be_new(&be, "ref", &p, &err), T9_STATUS_INVALID);
    p.max_rows = 1;
    assert_int_equal(be_new(&be, "ref", &p, &err), T9_STATUS_OK);
    assert_string_equal(be_name(be), "ref");
    assert_string_equal(be_numerics(be), "ref-1");
    assert_int_equal(be_threads(be), 1);
    be_free(be);
    be_free(NULL);
}

static void test_weights_are_checked(void **state)
{
    (void)state;
    struct bench b;
    struct weight w;
    struct t9_err err;
    static const char bytes[1024];
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    struct weight_src s = ops_src("odd", DTYPE_Q4_0, bytes, 33, 1);
    assert_int_equal(be_weight_load(b.be, &w, &s, &err), T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "odd: rows of 33 values"));
    assert_null(w.data);
    s = ops_src("ints", DTYPE_I32, bytes, 32, 1);
    assert_int_equal(be_weight_load(b.be, &w, &s, &err), T9_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "ints: type I32"));
    s = ops_src("vec", DTYPE_Q8_0, bytes, 32, 1);
    assert_int_equal(be_vector_load(b.be, &w, &s, &err), T9_STATUS_UNSUPPORTED);
    s = ops_src("none", DTYPE_F32, bytes, 0, 1);
    assert_int_equal(be_vector_load(b.be, &w, &s, &err), T9_STATUS_INVALID);
    be_weight_free(b.be, &w);

    /* F16 and BF16 vectors become f32: 1.5 in each. */
    const uint16_t f16[2] = {0x3E00, 0xBE00}, bf16[2] = {0x3FC0, 0xBFC0};
    s = ops_src("h", DTYPE_F16, f16, 2, 1);
    assert_int_equal(be_vector_load(b.be, &w, &s, &err), T9_STATUS_OK);
    assert_true(((const float *)w.data)[0] == 1.5f && ((const float *)w.data)[1] == -1.5f);
    be_weight_free(b.be, &w);
    s = ops_src("b", DTYPE_BF16, bf16, 1, 2);
    assert_int_equal(be_vector_load(b.be, &w, &s, &err), T9_STATUS_OK);
    assert_int_equal(w.n_in, 2);
    assert_int_equal(w.n_out, 1);
    assert_true(((const float *)w.data)[0] == 1.5f && ((const float *)w.data)[1] == -1.5f);
    be_weight_free(b.be, &w);
    assert_null(w.data);
    be_free(b.be);
}

static void test_no_memory_is_a_status(void **state)
{
    (void)state;
    static const float data[32];
    struct bench b;
    struct weight w;
    struct t9_err err;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    struct weight_src s = ops_src("w", DTYPE_F32, data, 8, 4);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_test_fail_nth(nth);
        assert_int_equal(be_vector_load(b.be, &w, &s, &err), T9_STATUS_NOMEM);
        mem_test_fail_nth(nth);
        assert_int_equal(be_weight_load(b.be, &w, &s, &err), T9_STATUS_NOMEM);
    }
    mem_test_fail_nth(0);
    be_free(b.be);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        mem_test_fail_nth(nth);
        assert_int_equal(bench_init(&b, "ref"), T9_STATUS_NOMEM);
    }
    mem_test_fail_nth(0);
}

static void test_reserved_memory(void **state)
{
    (void)state;
    struct bench b;
    struct t9_err err;
    void *p = NULL;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    /* Far more than there is: only address space. */
    size_t size_bytes = (size_t)64 << 30;
    assert_int_equal(be_reserve(b.be, size_bytes, &p, &err), T9_STATUS_OK);
    assert_int_equal((uintptr_t)p % (2 << 20), 0);
    char *c = p;
    c[0] = 1;
    c[size_bytes - 1] = 2;
    be_decommit(b.be, p, 4096);
    assert_int_equal(c[0], 0);
    assert_int_equal(c[size_bytes - 1], 2);
    be_unreserve(b.be, p, size_bytes);
    assert_int_equal(be_reserve(b.be, 0, &p, &err), T9_STATUS_TOO_LARGE);
    be_free(b.be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_scratch_is_a_stack),
        cmocka_unit_test(test_full_scratch_is_a_status),
        cmocka_unit_test(test_shapes_are_refused_by_name),
        cmocka_unit_test(test_kv_ops_are_checked),
        cmocka_unit_test(test_kv_geometry),
        cmocka_unit_test(test_kv_formats),
        cmocka_unit_test(test_backends_by_name),
        cmocka_unit_test(test_weights_are_checked),
        cmocka_unit_test(test_no_memory_is_a_status),
        cmocka_unit_test(test_reserved_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
