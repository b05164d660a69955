/* The sinks: recording and replaying equals running, measuring counts the real peak, and comparing
 * names a planted error. */
#include "unit/backend/ops.h"

#include "backend/be_impl.h"
#include "base/mem.h"
#include "base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

enum { T = 3, W = 8, H = 2, D = 4 };

/* A block with every kind of op, written like a forward. */
struct toy {
    struct weight norm, table, q, k, v, o, inv_freq;
    struct kv_geom g;
    char pool[2 * 4096] __attribute__((aligned(64)));
    int32_t page_table[1], kv_idx[T], pos[T], seq[T], ids[T], out_row[1];
    float result[W];
};

static float noise(uint32_t *x)
{
    *x = *x * 1664525u + 1013904223u;
    return (float)(int32_t)(*x >> 8) / (float)(1 << 23) - 1.0f;
}

static void load(struct be *be, struct weight *w, uint32_t seed, int32_t n_in, int32_t n_out)
{
    float data[W * W * 2];
    for (int32_t i = 0; i < n_in * n_out; i++)
        data[i] = noise(&seed);
    struct weight_src s = ops_src("w", DTYPE_F32, data, n_in, n_out);
    struct t9_err err;
    t9_status st = n_out == 1 ? be_vector_load(be, w, &s, &err) : be_weight_load(be, w, &s, &err);
    if (st != T9_STATUS_OK)
        fail_msg("%s", err.msg);
}

static void toy_init(struct toy *t, struct be *be)
{
    memset(t, 0, sizeof(*t));
    load(be, &t->norm, 1, W, 1);
    load(be, &t->table, 2, W, 5);
    load(be, &t->q, 3, W, H * D);
    load(be, &t->k, 4, W, D);
    load(be, &t->v, 5, W, D);
    load(be, &t->o, 6, H * D, W);
    load(be, &t->inv_freq, 7, D / 2, 1);
    assert_true(kv_geom_init_same(&t->g, 1, 1, D, KV_TYPE_F32));
    t->page_table[0] = 1;
    for (int32_t i = 0; i < T; i++) {
        t->kv_idx[i] = t->pos[i] = i;
        t->ids[i] = i + 1;
    }
    t->out_row[0] = T - 1;
}

static void toy_deinit(struct toy *t, struct be *be)
{
    struct weight *all[] = {&t->norm, &t->table, &t->q, &t->k, &t->v, &t->o, &t->inv_freq};
    for (size_t i = 0; i < T9_COUNT(all); i++)
        be_weight_free(be, all[i]);
}

static void toy_forward(struct toy *t, struct cx *cx)
{
    struct view x = cx_alloc(cx, T, W), angles = cx_alloc(cx, T, D), none = {0};
    struct view pool = {t->pool, 1, 1, 1, VIEW_BYTES, 0};
    struct view kv_idx = view_i32(t->kv_idx, T, 1), seq = view_i32(t->seq, T, 1);
    struct view table = view_i32(t->page_table, 1, 1);
    op_embed_rows(cx, x, view_i32(t->ids, T, 1), none, &t->table, 1);
    op_rope_angles(cx, angles, view_i32(t->pos, T, 1), view_f32(t->inv_freq.data, 1, D / 2), 1);
    cx->layer = 0;
    size_t mark = cx_mark(cx);
    struct view h = cx_alloc(cx, T, W), q = cx_alloc(cx, T, H * D), k = cx_alloc(cx, T, D);
    struct view v = cx_alloc(cx, T, D), o = cx_alloc(cx, T, H * D);
    op_rmsnorm(cx, h, x, &t->norm, 1e-5f);
    op_matmul(cx, (struct view[]){q, k, v}, h, (const struct weight *[]){&t->q, &t->k, &t->v}, 3);
    op_qk_norm_rope_store(cx, &(struct op_rope_store){.q = q,
                                                      .k = k,
                                                      .v = v,
                                                      .angles = angles,
                                                      .kv_idx = kv_idx,
                                                      .row_seq = seq,
                                                      .page_table = table,
                                                      .pool = pool,
                                                      .kv = &t->g.layers[0],
                                                      .n_head = H,
                                                      .n_rot = D});
    op_attn_paged(cx, &(struct op_attn){.dst = o,
                                        .q = q,
                                        .kv_idx = kv_idx,
                                        .row_seq = seq,
                                        .page_table = table,
                                        .pool = pool,
                                        .kv = &t->g.layers[0],
                                        .n_head = H,
                                        .scale = 0.5f});
    op_act_mul(cx, o, o, q, ACT_SILU);
    op_matmul_add(cx, x, o, &t->o);
    cx_release(cx, mark);
    cx->layer = -1;
    op_add(cx, x, x, x);
    op_gather_rows(cx, view_f32(t->result, 1, W), x, view_i32(t->out_row, 1, 1));
}

enum { TOY_OPS = 10 };

static void test_record_equals_run(void **state)
{
    (void)state;
    struct bench b;
    struct toy t;
    struct tape tape;
    struct t9_err err;
    float ran[W];
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    toy_init(&t, b.be);
    toy_forward(&t, &b.cx);
    assert_int_equal(b.cx.status, T9_STATUS_OK);
    memcpy(ran, t.result, sizeof(ran));
    assert_true(ran[0] == ran[0] && ran[0] != 0);

    memset(t.pool, 0, sizeof(t.pool));
    memset(t.result, 0, sizeof(t.result));
    memset(b.memory, 0xFF, sizeof(b.memory));
    b.scratch.used = 0;
    assert_int_equal(tape_init(&tape, TOY_OPS, &err), T9_STATUS_OK);
    cx_init_record(&b.cx, &tape, &b.scratch);
    toy_forward(&t, &b.cx);
    assert_int_equal(b.cx.status, T9_STATUS_OK);
    assert_int_equal(tape.n, TOY_OPS);
    assert_true(t.result[0] == 0); /* nothing has run yet */
    assert_int_equal(be_run(b.be, tape.ops, tape.n, &err), T9_STATUS_OK);
    assert_memory_equal(t.result, ran, sizeof(ran));

    /* The tape reads its buffers when it runs: other tokens, no new tape. */
    t.ids[2] = 0;
    assert_int_equal(be_run(b.be, tape.ops, tape.n, &err), T9_STATUS_OK);
    assert_memory_not_equal(t.result, ran, sizeof(ran));

    /* A tape that is too short says so and stays as it is. */
    tape.cap = TOY_OPS - 1;
    b.scratch.used = 0;
    cx_init_record(&b.cx, &tape, &b.scratch);
    toy_forward(&t, &b.cx);
    assert_int_equal(b.cx.status, T9_STATUS_INTERNAL);
    assert_non_null(strstr(b.cx.err.msg, "tape of 9 ops is full at gather_rows"));
    tape_deinit(&tape);
    toy_deinit(&t, b.be);
    be_free(b.be);
}

static void test_a_bad_tape_runs_nothing(void **state)
{
    (void)state;
    struct bench b;
    struct t9_err err;
    float x[2] = {1, 2}, y[2] = {0, 0};
    struct tape tape;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_int_equal(tape_init(&tape, 2, &err), T9_STATUS_OK);
    cx_init_record(&b.cx, &tape, &b.scratch);
    op_add(&b.cx, view_f32(y, 1, 2), view_f32(x, 1, 2), view_f32(x, 1, 2));
    op_add(&b.cx, view_f32(y, 1, 2), view_f32(x, 1, 2), view_f32(x, 1, 2));
    tape.ops[1].src[0].cols = 1;
    assert_int_equal(be_run(b.be, tape.ops, tape.n, &err), T9_STATUS_INVALID);
    assert_true(y[0] == 0); /* the first op was right, and did not run either */
    tape_deinit(&tape);
    be_free(b.be);
}

static void test_measure_counts_the_peak(void **state)
{
    (void)state;
    struct bench b;
    struct toy t;
    struct measure m;
    struct scratch counted;
    struct cx cx;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    toy_init(&t, b.be);
    cx_init_measure(&cx, &m, &counted);
    toy_forward(&t, &cx);
    assert_int_equal(cx.status, T9_STATUS_OK);
    assert_true(t.result[0] == 0);
    toy_forward(&t, &b.cx);
    assert_int_equal(counted.peak, b.scratch.peak);
    assert_int_equal(m.n_ops, TOY_OPS);
    assert_int_equal(m.max_rows, T);
    assert_int_equal(m.max_cols, W);
    /* Exactly that much is enough, and one byte less is not. */
    b.scratch = (struct scratch){.base = b.memory, .cap = counted.peak};
    cx_init_run(&b.cx, b.be, &b.scratch);
    toy_forward(&t, &b.cx);
    assert_int_equal(b.cx.status, T9_STATUS_OK);
    b.scratch = (struct scratch){.base = b.memory, .cap = counted.peak - 1};
    cx_init_run(&b.cx, b.be, &b.scratch);
    toy_forward(&t, &b.cx);
    assert_int_equal(b.cx.status, T9_STATUS_INTERNAL);
    toy_deinit(&t, b.be);
    be_free(b.be);
}

static const struct weight *other_weight(void *ctx, const struct weight *w)
{
    struct toy **pair = ctx;
    struct weight *ours[] = {&pair[0]->table, &pair[0]->q, &pair[0]->k, &pair[0]->v, &pair[0]->o};
    struct weight *theirs[] = {&pair[1]->table, &pair[1]->q, &pair[1]->k, &pair[1]->v, &pair[1]->o};
    for (size_t i = 0; i < T9_COUNT(ours); i++) {
        if (ours[i] == w)
            return theirs[i];
    }
    return NULL;
}

/* Runs the toy on two backends of the same kind; `plant` changes one element of one weight. */
static struct cx compare(struct weight *(*plant)(struct toy *t), int32_t at, float tolerance,
                         struct compare *c)
{
    struct bench a, b;
    struct toy ta, tb;
    struct toy *pair[] = {&ta, &tb};
    float alone[W];
    assert_int_equal(bench_init(&a, "ref"), T9_STATUS_OK);
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    toy_init(&ta, a.be);
    toy_init(&tb, b.be);
    toy_forward(&ta, &a.cx);
    memcpy(alone, ta.result, sizeof(alone));
    if (plant)
        ((float *)(uintptr_t)plant(&tb)->data)[at] *= 1.25f;
    *c = (struct compare){.be = a.be,
                          .other = b.be,
                          .other_weight = other_weight,
                          .ctx = pair,
                          .tolerance = tolerance};
    a.scratch.used = 0;
    cx_init_compare(&a.cx, c, &a.scratch);
    toy_forward(&ta, &a.cx);
    if (a.cx.status == T9_STATUS_OK)
        assert_memory_equal(ta.result, alone, sizeof(alone)); /* our own numbers went on */
    struct cx cx = a.cx;
    toy_deinit(&ta, a.be);
    toy_deinit(&tb, b.be);
    be_free(a.be);
    be_free(b.be);
    return cx;
}

static struct weight *plant_v(struct toy *t)
{
    return &t->v;
}

static struct weight *plant_o(struct toy *t)
{
    return &t->o;
}

static void test_compare(void **state)
{
    (void)state;
    struct compare c;
    struct cx cx = compare(NULL, 0, 0, &c);
    if (cx.status != T9_STATUS_OK)
        fail_msg("%s", cx.err.msg);
    assert_int_equal(c.n_ops, TOY_OPS);
    assert_true(c.worst == 0);

    /* Output 2 of Wv: op 3, the third destination, column 2. */
    cx = compare(plant_v, 2 * W + 1, 0, &c);
    assert_int_equal(cx.status, T9_STATUS_INTERNAL);
    assert_non_null(strstr(cx.err.msg, "layer 0, op 3 matmul, dst 2, row 0, column 2"));
    assert_true(c.worst > 0);
    /* Output 5 of Wo, the product that is added to the residual stream. */
    cx = compare(plant_o, 5 * H * D, 0, &c);
    assert_non_null(strstr(cx.err.msg, "op 7 matmul, dst 0, row 0, column 5"));
    /* Within a wide tolerance it passes, and the worst error is still told. */
    cx = compare(plant_o, 5 * H * D, 1, &c);
    assert_int_equal(cx.status, T9_STATUS_OK);
    assert_true(c.worst > 1e-4f && c.worst < 1);
}

/* Stores one value wrong. */
struct faulty {
    struct be be;
    struct be *inner;
};

static t9_status faulty_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err)
{
    struct faulty *f = (struct faulty *)be;
    t9_status st = be_run(f->inner, ops, n, err);
    const int32_t *page = ops[0].src[5].p, *key = ops[0].src[3].p;
    uint16_t *v = (uint16_t *)(void *)kv_page_v(ops[0].kv, ops[0].src[6].p, page[0], 0);
    v[key[0] * D + 2] = num_f16_from_f32(5);
    return st;
}

/* An error in what is stored is found at the store, not when it is read. */
static void test_compare_sees_pages(void **state)
{
    (void)state;
    struct bench a, b;
    struct compare c;
    float q[2 * D] = {0}, k[D] = {1, 2, 3, 4}, v[D] = {1, 2, 3, 4};
    const float still[] = {1, 1, 0, 0};
    const int32_t kv_idx[] = {3}, seq[] = {0}, table[] = {1};
    char pool[2 * 4096] __attribute__((aligned(64))) = {0};
    struct kv_geom g;
    assert_int_equal(bench_init(&a, "ref"), T9_STATUS_OK);
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_true(kv_geom_init_same(&g, 1, 1, D, KV_TYPE_F16));
    struct op_rope_store s = {.q = view_f32(q, 1, 2 * D),
                              .k = view_f32(k, 1, D),
                              .v = view_f32(v, 1, D),
                              .angles = view_f32(still, 1, 4),
                              .kv_idx = view_i32(kv_idx, 1, 1),
                              .row_seq = view_i32(seq, 1, 1),
                              .page_table = view_i32(table, 1, 1),
                              .pool = {pool, 1, 1, 1, VIEW_BYTES, 0},
                              .kv = &g.layers[0],
                              .n_head = 2,
                              .n_rot = 4};
    c = (struct compare){.be = a.be, .other = b.be};
    cx_init_compare(&a.cx, &c, &a.scratch);
    op_qk_norm_rope_store(&a.cx, &s);
    if (a.cx.status != T9_STATUS_OK)
        fail_msg("%s", a.cx.err.msg);
    const uint16_t *vp = (const uint16_t *)(const void *)kv_page_v(&g.layers[0], pool, 1, 0);
    assert_true(num_f32_from_f16(vp[3 * D + 3]) == 4.0f); /* the first backend's store is real */
    for (int i = 0; i < 4096; i++)
        assert_int_equal(pool[i], 0); /* the other page was left alone */

    struct faulty faulty = {.be = *b.be, .inner = b.be};
    static const struct be_vtbl vtbl = {.run = faulty_run};
    faulty.be.v = &vtbl;
    c.other = &faulty.be;
    cx_init_compare(&a.cx, &c, &a.scratch);
    op_qk_norm_rope_store(&a.cx, &s);
    assert_int_equal(a.cx.status, T9_STATUS_INTERNAL);
    assert_non_null(strstr(a.cx.err.msg, "qk_norm_rope_store, stored value, row 0, column 2"));
    assert_true(num_f32_from_f16(vp[3 * D + 2]) == 3.0f); /* ours is as it was */
    be_free(a.be);
    be_free(b.be);
}

static t9_status faulty_state_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err)
{
    struct faulty *f = (struct faulty *)be;
    t9_status st = be_run(f->inner, ops, n, err);
    const int32_t *slot = ops[0].src[3].p;
    state_history(ops[0].state, ops[0].src[6].p, slot[2], 0)[1] = 9;
    return st;
}

/* States of the sequences that have rows are compared; what others have is not looked at. */
static void test_compare_sees_states(void **state)
{
    (void)state;
    enum { C = 4, TAPS = 3, ROWS = 3 };
    struct bench a, b;
    struct compare c;
    float x[ROWS * C] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, y[ROWS * C], taps[TAPS * C] = {1};
    const int32_t seq[ROWS] = {0, 2, 2}, slot[] = {1, 1 << 30, 0}; /* the second one's is nowhere */
    struct state_geom g;
    struct weight w = {
        .name = "taps", .layout = WEIGHT_LAYOUT_VECTOR, .n_in = TAPS * C, .n_out = 1, .data = taps};
    assert_int_equal(bench_init(&a, "ref"), T9_STATUS_OK);
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_true(
        state_geom_init(&g, &(struct state_shape){.n_layers = 1, .taps = TAPS, .channels = C}));
    char *pool = mem_alloc_aligned(64, 2 * g.slot_bytes);
    assert_non_null(pool);
    memset(pool, 0, 2 * g.slot_bytes);
    struct op_state s = {.row_seq = view_i32(seq, ROWS, 1),
                         .slot = view_i32(slot, 3, 1),
                         .pool = {pool, 1, 1, 1, VIEW_BYTES, 0},
                         .geom = &g};
    c = (struct compare){.be = a.be, .other = b.be};
    cx_init_compare(&a.cx, &c, &a.scratch);
    op_conv_state(&a.cx, view_f32(y, ROWS, C), view_f32(x, ROWS, C), &w, false, &s);
    if (a.cx.status != T9_STATUS_OK)
        fail_msg("%s", a.cx.err.msg);
    assert_true(state_history(&g, pool, 1, 0)[C] == 1 && state_history(&g, pool, 0, 0)[C] == 9);

    struct faulty faulty = {.be = *b.be, .inner = b.be};
    static const struct be_vtbl vtbl = {.run = faulty_state_run};
    faulty.be.v = &vtbl;
    c.other = &faulty.be;
    cx_init_compare(&a.cx, &c, &a.scratch);
    op_conv_state(&a.cx, view_f32(y, ROWS, C), view_f32(x, ROWS, C), &w, false, &s);
    assert_int_equal(a.cx.status, T9_STATUS_INTERNAL);
    assert_non_null(strstr(a.cx.err.msg, "conv_state, history, row 2, column 1"));
    mem_free(pool);
    be_free(a.be);
    be_free(b.be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_equals_run),
        cmocka_unit_test(test_a_bad_tape_runs_nothing),
        cmocka_unit_test(test_measure_counts_the_peak),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_compare_sees_pages),
        cmocka_unit_test(test_compare_sees_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
