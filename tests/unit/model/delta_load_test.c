/*
 * What model_load takes and refuses of the architectures with a gated delta net (qwen35, qwen35moe,
 * qwen3next): which layers are recurrent, rows that are found in fused matrices, blocks of a draft
 * head, and each key and tensor that must be there. See load_test.c for what all share.
 */
#include "loaded.h"

#include "lib/gguf_writer.h"
#include "lib/t9test.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/model.h"
#include "model/model_impl.h"

#include <math.h>

enum {
    EMBD = 8,
    HEADS = 2,
    HEAD = 4,
    FF = 6,
    VOCAB = 10,
    LAYERS = 2,
    DRAFT = 1,
    EXPERTS = 3,
    TAPS = 3,
    KEY_HEADS = 2,
    VALUE_HEADS = 4,
    KEY_DIM = 2,
    VALUE_DIM = 3,
    VALUES = VALUE_HEADS * VALUE_DIM,
    CHANNELS = 2 * KEY_HEADS * KEY_DIM + VALUES,
};

/* One deviation from the valid file. */
struct change {
    const char *arch;                       /* NULL = qwen35 */
    const char *without, *reshaped, *extra; /* tensors; a reshaped one has longer rows */
    const char *without_key, *u32_key;      /* suffixes */
    uint32_t u32;
    bool recurrent[LAYERS], listed, fused;
    uint64_t n_listed; /* 0: LAYERS */
    const char *odd;   /* tensor whose third value is `odd_value` */
    float odd_value;
    uint32_t kv_heads[LAYERS + DRAFT]; /* of each layer */
};

static const char *arch_of(const struct change *c)
{
    return c->arch ? c->arch : "qwen35";
}

static bool has_experts(const struct change *c)
{
    return strcmp(arch_of(c), "qwen35") != 0;
}

static bool is_next(const struct change *c)
{
    return strcmp(arch_of(c), "qwen3next") == 0;
}

static void put_key(struct gguf_writer *w, const struct change *c, const char *suffix, uint32_t v)
{
    char key[128];
    snprintf(key, sizeof(key), "%s.%s", arch_of(c), suffix);
    if (c->without_key && strcmp(c->without_key, suffix) == 0)
        return;
    gw_u32(w, key, c->u32_key && strcmp(c->u32_key, suffix) == 0 ? c->u32 : v);
}

static void put_keys(struct gguf_writer *w, const struct change *c)
{
    static const int32_t sections[] = {1, 0, 0, 0};
    char key[128];
    gw_str(w, "general.architecture", str_from(arch_of(c)));
    put_key(w, c, "block_count", LAYERS + DRAFT);
    put_key(w, c, "nextn_predict_layers", DRAFT);
    put_key(w, c, "context_length", 128);
    put_key(w, c, "embedding_length", EMBD);
    put_key(w, c, "feed_forward_length", FF);
    put_key(w, c, "attention.head_count", HEADS);
    snprintf(key, sizeof(key), "%s.attention.head_count_kv", arch_of(c));
    if (c->kv_heads[1])
        gw_arr(w, key, GGUF_TYPE_U32, c->kv_heads, LAYERS + DRAFT);
    else
        put_key(w, c, "attention.head_count_kv", 1);
    put_key(w, c, "attention.key_length", HEAD);
    put_key(w, c, "rope.dimension_count", 2);
    put_key(w, c, "ssm.conv_kernel", TAPS);
    put_key(w, c, "ssm.state_size", KEY_DIM);
    put_key(w, c, "ssm.group_count", KEY_HEADS);
    put_key(w, c, "ssm.time_step_rank", VALUE_HEADS);
    put_key(w, c, "ssm.inner_size", VALUES);
    put_key(w, c, "full_attention_interval", 2);
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", arch_of(c));
    gw_f32(w, key, 1e-6f);
    snprintf(key, sizeof(key), "%s.rope.freq_base", arch_of(c));
    if (!c->without_key || strcmp(c->without_key, "rope.freq_base") != 0)
        gw_f32(w, key, 1e6f);
    snprintf(key, sizeof(key), "%s.rope.dimension_sections", arch_of(c));
    if (!is_next(c) && !(c->without_key && strcmp(c->without_key, "rope.dimension_sections") == 0))
        gw_arr(w, key, GGUF_TYPE_I32, sections, 4);
    snprintf(key, sizeof(key), "%s.attention.recurrent_layers", arch_of(c));
    if (c->listed)
        gw_arr(w, key, GGUF_TYPE_BOOL,
               (const bool[LAYERS + DRAFT + 1]){c->recurrent[0], c->recurrent[1]},
               c->n_listed ? c->n_listed : LAYERS);
    if (!has_experts(c))
        return;
    put_key(w, c, "expert_count", EXPERTS);
    put_key(w, c, "expert_used_count", 2);
    put_key(w, c, "expert_feed_forward_length", FF);
    put_key(w, c, "expert_shared_feed_forward_length", FF + 1);
}

/* Values count up from 0. n_out 0: a vector. */
static void put(struct gguf_writer *w, const struct change *c, const char *name, uint64_t n_in,
                uint64_t n_out, uint64_t n_experts)
{
    static float data[2048];
    uint64_t ne[3] = {n_in, n_out, n_experts}, n = n_in * (n_out ? n_out : 1);
    if (c->without && strcmp(c->without, name) == 0)
        return;
    if (c->reshaped && strcmp(c->reshaped, name) == 0) {
        n += n / ne[0];
        ne[0]++;
    }
    for (size_t i = 0; i < T9_COUNT(data); i++)
        data[i] = (float)i;
    if (c->odd && strcmp(c->odd, name) == 0)
        data[2] = c->odd_value;
    gw_tensor(w, name, DTYPE_F32,
              n_experts ? 3
              : n_out   ? 2
                        : 1,
              ne, data, n * (n_experts ? n_experts : 1) * sizeof(float));
}

struct tensor {
    const char *name;
    uint64_t n_in, n_out, n_experts;
};

static void put_all(struct gguf_writer *w, const struct change *c, int il,
                    const struct tensor *tensors, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.%s", il, tensors[i].name);
        put(w, c, name, tensors[i].n_in, tensors[i].n_out, tensors[i].n_experts);
    }
}

static void put_delta(struct gguf_writer *w, const struct change *c, int il)
{
    static const struct tensor both[] = {
        {"ssm_conv1d.weight", TAPS, CHANNELS, 0}, {"ssm_a", VALUE_HEADS, 0, 0},
        {"ssm_dt.bias", VALUE_HEADS, 0, 0},       {"ssm_norm.weight", VALUE_DIM, 0, 0},
        {"ssm_out.weight", VALUES, EMBD, 0},
    };
    static const struct tensor parts[] = {{"attn_qkv.weight", EMBD, CHANNELS, 0},
                                          {"attn_gate.weight", EMBD, VALUES, 0}};
    static const struct tensor one[] = {{"ssm_in.weight", EMBD, CHANNELS + VALUES, 0}};
    static const struct tensor gates[] = {{"ssm_alpha.weight", EMBD, VALUE_HEADS, 0},
                                          {"ssm_beta.weight", EMBD, VALUE_HEADS, 0}};
    static const struct tensor ba[] = {{"ssm_ba.weight", EMBD, 2 * VALUE_HEADS, 0}};
    put_all(w, c, il, both, T9_COUNT(both));
    put_all(w, c, il, c->fused ? one : parts, c->fused ? 1 : 2);
    put_all(w, c, il, is_next(c) ? ba : gates, is_next(c) ? 1 : 2);
}

static void put_block(struct gguf_writer *w, const struct change *c, int il, bool recurrent)
{
    static const struct tensor norms[] = {{"attn_norm.weight", EMBD, 0, 0},
                                          {"post_attention_norm.weight", EMBD, 0, 0}};
    static const struct tensor attention[] = {
        {"attn_q.weight", EMBD, 2 * HEADS * HEAD, 0},
        {"attn_k.weight", EMBD, HEAD, 0},
        {"attn_v.weight", EMBD, HEAD, 0},
        {"attn_output.weight", HEADS * HEAD, EMBD, 0},
        {"attn_q_norm.weight", HEAD, 0, 0},
        {"attn_k_norm.weight", HEAD, 0, 0},
    };
    static const struct tensor dense[] = {{"ffn_gate.weight", EMBD, FF, 0},
                                          {"ffn_up.weight", EMBD, FF, 0},
                                          {"ffn_down.weight", FF, EMBD, 0}};
    static const struct tensor experts[] = {
        {"ffn_gate_inp.weight", EMBD, EXPERTS, 0}, {"ffn_gate_exps.weight", EMBD, FF, EXPERTS},
        {"ffn_up_exps.weight", EMBD, FF, EXPERTS}, {"ffn_down_exps.weight", FF, EMBD, EXPERTS},
        {"ffn_gate_inp_shexp.weight", EMBD, 0, 0}, {"ffn_gate_shexp.weight", EMBD, FF + 1, 0},
        {"ffn_up_shexp.weight", EMBD, FF + 1, 0},  {"ffn_down_shexp.weight", FF + 1, EMBD, 0},
    };
    put_all(w, c, il, norms, T9_COUNT(norms));
    if (recurrent)
        put_delta(w, c, il);
    else
        put_all(w, c, il, attention, T9_COUNT(attention));
    put_all(w, c, il, has_experts(c) ? experts : dense,
            has_experts(c) ? T9_COUNT(experts) : T9_COUNT(dense));
}

static t9_status load_changed(struct loaded *l, const struct change *c)
{
    struct gguf_writer w;
    gw_init(&w);
    put_keys(&w, c);
    put(&w, c, "token_embd.weight", EMBD, VOCAB, 0);
    put(&w, c, "output_norm.weight", EMBD, 0, 0);
    for (int il = 0; il < LAYERS; il++)
        put_block(&w, c, il, c->listed ? c->recurrent[il] : il % 2 == 0);
    put_block(&w, c, LAYERS, false);
    put(&w, c, "blk.2.nextn.eh_proj.weight", 2 * EMBD, EMBD, 0);
    put(&w, c, "blk.2.nextn.enorm.weight", EMBD, 0, 0);
    if (c->extra)
        put(&w, c, c->extra, EMBD, 0, 0);
    return loaded_from(l, &w, NULL);
}

static void expect_ok(struct change c, struct loaded *l)
{
    if (load_changed(l, &c) != T9_STATUS_OK)
        fail_msg("%s", l->err.msg);
}

static void expect_refusal(struct change c, t9_status status, const char *part)
{
    struct loaded l;
    t9_status st = load_changed(&l, &c);
    loaded_is_refused(&l, st, status, part);
}

/* Row r of a weight is row `want` of a tensor whose values count up. */
static void row_is(const struct weight *w, int32_t r, int32_t want)
{
    const float *row = (const float *)w->data + r * w->n_in;
    assert_int_equal((int32_t)row[0], want * w->n_in);
    assert_int_equal((int32_t)row[w->n_in - 1], (want + 1) * w->n_in - 1);
}

static void test_layers(void **state)
{
    (void)state;
    struct loaded l;
    struct kv_geom kv;
    struct state_geom g;
    struct t9_err err;
    expect_ok((struct change){0}, &l);
    assert_int_equal(model_info(l.m)->n_layers, LAYERS);
    assert_int_equal(model_info(l.m)->n_recurrent, 1);
    assert_int_equal(l.m->layers[0].state_layer, 0);
    assert_int_equal(l.m->layers[0].kv_layer, -1);
    assert_int_equal(l.m->layers[1].state_layer, -1);
    assert_int_equal(l.m->layers[1].kv_layer, 0);
    assert_int_equal(model_kv_geom(l.m, KV_TYPE_F32, &kv, &err), T9_STATUS_OK);
    assert_int_equal(kv.n_layers, 1);
    model_state_geom(l.m, &g);
    const struct state_shape want = {1, TAPS, CHANNELS, VALUE_HEADS, KEY_HEADS, KEY_DIM, VALUE_DIM};
    assert_memory_equal(&g.shape, &want, sizeof(want));

    /* A head's query, then its gate. */
    for (int32_t i = 0; i < HEADS * HEAD; i++) {
        row_is(l.m->layers[1].q, i, i / HEAD * 2 * HEAD + i % HEAD);
        row_is(l.m->layers[1].q_gate, i, i / HEAD * 2 * HEAD + HEAD + i % HEAD);
    }
    /* Taps, oldest first, each of all channels. */
    const float *conv = l.m->layers[0].delta.conv->data;
    for (int i = 0; i < TAPS * CHANNELS; i++)
        assert_int_equal((int)conv[i], i % CHANNELS * TAPS + i / CHANNELS);
    loaded_free(&l);

    expect_ok((struct change){.listed = true, .recurrent = {false, true}}, &l);
    assert_int_equal(l.m->layers[0].state_layer, -1);
    assert_int_equal(l.m->layers[1].state_layer, 0);
    loaded_free(&l);
    /* The draft head's block may be counted. */
    expect_ok((struct change){.listed = true, .n_listed = LAYERS + DRAFT}, &l);
    loaded_free(&l);
    expect_refusal((struct change){.listed = true, .n_listed = LAYERS + DRAFT + 1},
                   T9_STATUS_CORRUPT, "recurrent_layers has 4 values for 2 layers");
    expect_ok((struct change){.listed = true}, &l);
    assert_int_equal(model_info(l.m)->n_recurrent, 0);
    loaded_free(&l);
    expect_refusal((struct change){.listed = true, .recurrent = {true, true}}, T9_STATUS_CORRUPT,
                   "recurrent_layers says of all layers that they do not attend");
    expect_refusal((struct change){.u32_key = "full_attention_interval", .u32 = 3},
                   T9_STATUS_CORRUPT, "full_attention_interval says of all layers");

    /* Heads of layers that have none count for nothing. */
    expect_ok((struct change){.kv_heads = {0, 1, 1}}, &l);
    assert_int_equal(model_info(l.m)->n_head_kv, 1);
    loaded_free(&l);
}

static void test_fused(void **state)
{
    (void)state;
    struct loaded l;
    enum { R = VALUE_HEADS / KEY_HEADS, STEP = 2 * KEY_DIM + 2 * R * VALUE_DIM };
    expect_ok((struct change){.arch = "qwen3next"}, &l);
    assert_non_null(l.m->layers[0].delta.qkv);
    for (int32_t j = 0; j < VALUE_HEADS; j++) {
        row_is(l.m->layers[0].delta.beta, j, j / R * 2 * R + j % R);
        row_is(l.m->layers[0].delta.alpha, j, j / R * 2 * R + R + j % R);
    }
    loaded_free(&l);

    expect_ok((struct change){.arch = "qwen3next", .fused = true}, &l);
    const struct layer *layer = &l.m->layers[0];
    assert_null(layer->delta.qkv);
    for (int32_t i = 0; i < KEY_HEADS * KEY_DIM; i++) {
        row_is(layer->q, i, i / KEY_DIM * STEP + i % KEY_DIM);
        row_is(layer->k, i, i / KEY_DIM * STEP + KEY_DIM + i % KEY_DIM);
    }
    for (int32_t i = 0; i < VALUES; i++) {
        int32_t v = i / (R * VALUE_DIM) * STEP + 2 * KEY_DIM + i % (R * VALUE_DIM);
        row_is(layer->v, i, v);
        row_is(layer->delta.z, i, v + R * VALUE_DIM);
    }
    loaded_free(&l);
    /* No other family has it, and not beside its parts. */
    expect_refusal((struct change){.fused = true}, T9_STATUS_CORRUPT, "blk.0.attn_qkv.weight");
    expect_refusal((struct change){.arch = "qwen3next", .extra = "blk.0.ssm_in.weight"},
                   T9_STATUS_UNSUPPORTED, "blk.0.ssm_in.weight");
}

static void test_experts(void **state)
{
    (void)state;
    struct loaded l;
    expect_ok((struct change){.arch = "qwen35moe"}, &l);
    for (int il = 0; il < LAYERS; il++) {
        assert_int_equal(l.m->layers[il].router->n_out, EXPERTS);
        assert_int_equal(l.m->layers[il].shared_router->n_out, 1);
        assert_int_equal(l.m->layers[il].shared_up->n_out, FF + 1);
    }
    loaded_free(&l);
    expect_ok((struct change){0}, &l);
    assert_null(l.m->layers[0].shared_router);
    loaded_free(&l);
}

struct told {
    int n;
    char last[128];
};

static void on_log(void *ctx, log_level level, const char *module, const char *msg)
{
    struct told *told = ctx;
    (void)level;
    (void)module;
    told->n++;
    snprintf(told->last, sizeof(told->last), "%s", msg);
}

/* Of the blocks behind the layers nothing is read, and nothing is refused. */
static void test_draft(void **state)
{
    (void)state;
    struct loaded l;
    struct told told = {0};
    log_redirect(LOG_LEVEL_INFO, on_log, &told);
    expect_ok((struct change){.reshaped = "blk.2.attn_q.weight", .extra = "blk.2.more.weight"}, &l);
    log_redirect(LOG_LEVEL_INFO, NULL, NULL);
    loaded_free(&l);
    assert_int_equal(told.n, 1);
    assert_string_equal(told.last, "draft head: 14 tensors of block 2 are not used");
    expect_refusal((struct change){.extra = "blk.3.attn_q.weight"}, T9_STATUS_UNSUPPORTED,
                   "tensor blk.3.attn_q.weight is not one");
    expect_refusal((struct change){.without = "blk.2.nextn.eh_proj.weight"}, T9_STATUS_CORRUPT,
                   "blk.2.nextn.eh_proj.weight is missing");
    expect_refusal((struct change){.u32_key = "nextn_predict_layers", .u32 = 0}, T9_STATUS_CORRUPT,
                   "blk.2.attn_qkv.weight");
    expect_refusal((struct change){.u32_key = "nextn_predict_layers", .u32 = 3}, T9_STATUS_CORRUPT,
                   "nextn_predict_layers is 3, outside 0..2");
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        struct change c;
        t9_status status;
        const char *part;
    } cases[] = {
        {{.without_key = "ssm.conv_kernel"}, T9_STATUS_CORRUPT, "qwen35.ssm.conv_kernel"},
        {{.without_key = "ssm.state_size"}, T9_STATUS_CORRUPT, "qwen35.ssm.state_size"},
        {{.without_key = "ssm.group_count"}, T9_STATUS_CORRUPT, "qwen35.ssm.group_count"},
        {{.without_key = "ssm.time_step_rank"}, T9_STATUS_CORRUPT, "qwen35.ssm.time_step_rank"},
        {{.without_key = "ssm.inner_size"}, T9_STATUS_CORRUPT, "qwen35.ssm.inner_size"},
        {{.without_key = "rope.freq_base"}, T9_STATUS_CORRUPT, "qwen35.rope.freq_base"},
        {{.arch = "qwen35moe", .without_key = "rope.freq_base"},
         T9_STATUS_CORRUPT,
         "qwen35moe.rope.freq_base"},
        {{.arch = "qwen3next", .without_key = "rope.freq_base"},
         T9_STATUS_CORRUPT,
         "qwen3next.rope.freq_base"},
        {{.without_key = "rope.dimension_sections"},
         T9_STATUS_CORRUPT,
         "qwen35.rope.dimension_sections"},
        {{.u32_key = "ssm.conv_kernel", .u32 = 1}, T9_STATUS_CORRUPT, "ssm.conv_kernel is 1"},
        {{.u32_key = "ssm.conv_kernel", .u32 = 9}, T9_STATUS_CORRUPT, "ssm.conv_kernel is 9"},
        {{.u32_key = "ssm.state_size", .u32 = 257}, T9_STATUS_CORRUPT, "ssm.state_size is 257"},
        {{.u32_key = "ssm.group_count", .u32 = 3},
         T9_STATUS_CORRUPT,
         "ssm.time_step_rank is 4, no multiple of 3"},
        {{.u32_key = "ssm.inner_size", .u32 = 13},
         T9_STATUS_CORRUPT,
         "ssm.inner_size is 13, no multiple of 4"},
        {{.u32_key = "ssm.inner_size", .u32 = 4 * 257},
         T9_STATUS_CORRUPT,
         "blk.0.attn_qkv.weight is [8, 20]"},
        {{.u32_key = "full_attention_interval", .u32 = 0},
         T9_STATUS_CORRUPT,
         "full_attention_interval is 0"},
        {{.arch = "qwen35moe", .without_key = "expert_shared_feed_forward_length"},
         T9_STATUS_CORRUPT,
         "qwen35moe.expert_shared_feed_forward_length"},
        {{.without = "blk.0.attn_qkv.weight"}, T9_STATUS_CORRUPT, "blk.0.attn_qkv.weight"},
        {{.without = "blk.0.attn_gate.weight"}, T9_STATUS_CORRUPT, "blk.0.attn_gate.weight"},
        {{.without = "blk.0.ssm_alpha.weight"}, T9_STATUS_CORRUPT, "blk.0.ssm_alpha.weight"},
        {{.without = "blk.0.ssm_beta.weight"}, T9_STATUS_CORRUPT, "blk.0.ssm_beta.weight"},
        {{.without = "blk.0.ssm_a"}, T9_STATUS_CORRUPT, "blk.0.ssm_a"},
        {{.without = "blk.0.ssm_dt.bias"}, T9_STATUS_CORRUPT, "blk.0.ssm_dt.bias"},
        {{.without = "blk.0.ssm_norm.weight"}, T9_STATUS_CORRUPT, "blk.0.ssm_norm.weight"},
        {{.without = "blk.0.ssm_conv1d.weight"}, T9_STATUS_CORRUPT, "blk.0.ssm_conv1d.weight"},
        {{.without = "blk.0.ssm_out.weight"}, T9_STATUS_CORRUPT, "blk.0.ssm_out.weight"},
        {{.without = "blk.1.post_attention_norm.weight"},
         T9_STATUS_CORRUPT,
         "blk.1.post_attention_norm.weight"},
        {{.arch = "qwen3next", .without = "blk.0.ssm_ba.weight"},
         T9_STATUS_CORRUPT,
         "blk.0.ssm_ba.weight"},
        {{.arch = "qwen3next", .without = "blk.0.ssm_in.weight", .fused = true},
         T9_STATUS_CORRUPT,
         "blk.0.ssm_in.weight"},
        {{.arch = "qwen35moe", .without = "blk.1.ffn_gate_inp_shexp.weight"},
         T9_STATUS_CORRUPT,
         "blk.1.ffn_gate_inp_shexp.weight"},
        {{.reshaped = "blk.0.ssm_conv1d.weight"}, T9_STATUS_CORRUPT, "[3, 20] is expected"},
        {{.reshaped = "blk.0.ssm_a"}, T9_STATUS_CORRUPT, "blk.0.ssm_a is [5], [4] is expected"},
        {{.reshaped = "blk.1.attn_q.weight"}, T9_STATUS_CORRUPT, "[8, 16] is expected"},
        {{.odd = "blk.0.ssm_dt.bias", .odd_value = INFINITY},
         T9_STATUS_CORRUPT,
         "blk.0.ssm_dt.bias has a value that is no finite number"},
        {{.arch = "qwen35moe", .odd = "blk.1.ffn_gate_inp.weight", .odd_value = NAN},
         T9_STATUS_CORRUPT,
         "blk.1.ffn_gate_inp.weight has a value that is no finite number"},
        {{.extra = "blk.0.attn_q.weight"}, T9_STATUS_UNSUPPORTED, "blk.0.attn_q.weight"},
        {{.extra = "blk.0.attn_qkv.scale"}, T9_STATUS_UNSUPPORTED, "blk.0.attn_qkv.scale"},
        {{.extra = "blk.1.attn_q.bias"}, T9_STATUS_UNSUPPORTED, "blk.1.attn_q.bias"},
    };
    for (size_t i = 0; i < T9_COUNT(cases); i++)
        expect_refusal(cases[i].c, cases[i].status, cases[i].part);
}

static void test_batches(void **state)
{
    (void)state;
    struct loaded l;
    struct kv_geom kv;
    struct state_geom g;
    struct measure measure;
    struct scratch scratch;
    struct cx cx;
    int32_t zero[1] = {0};
    float any[1];
    expect_ok((struct change){0}, &l);
    assert_int_equal(model_kv_geom(l.m, KV_TYPE_F32, &kv, NULL), T9_STATUS_OK);
    model_state_geom(l.m, &g);
    struct batch b = {.n_rows = 1,
                      .n_seqs = 1,
                      .token = zero,
                      .pos = zero,
                      .kv_idx = zero,
                      .row_seq = zero,
                      .page_table = zero,
                      .page_table_stride = 1,
                      .kv_pool = any,
                      .kv = &kv,
                      .state_pool = any,
                      .state = &g,
                      .state_slot = zero};
    cx_init_measure(&cx, &measure, &scratch);
    assert_int_equal(model_forward(l.m, &cx, &b, &l.err), T9_STATUS_OK);
    struct batch bad = b;
    bad.state_pool = NULL;
    assert_int_equal(model_forward(l.m, &cx, &bad, &l.err), T9_STATUS_INVALID);
    assert_non_null(strstr(l.err.msg, "no recurrent state of this model"));
    bad = b;
    bad.state_guess = zero;
    assert_int_equal(model_forward(l.m, &cx, &bad, &l.err), T9_STATUS_INVALID);
    assert_non_null(strstr(l.err.msg, "accepted or guessed"));
    loaded_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),   cmocka_unit_test(test_fused),
        cmocka_unit_test(test_experts),  cmocka_unit_test(test_draft),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
