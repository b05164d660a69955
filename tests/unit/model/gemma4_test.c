/*
 * What of gemma4 is bound where, and what is refused by name: a small file of six layers (two
 * sliding, one full, twice) with per-layer inputs, experts and shared keys, that loads, and one
 * change at a time.
 */
#include "loaded.h"

#include "lib/gguf_writer.h"
#include "lib/t9test.h"

#include "model/model_impl.h"

#include <math.h>

enum {
    LAYERS = 6,
    EMBD = 8,
    HEADS = 4,
    FULL = 8, /* head sizes */
    SLIDING = 4,
    FF = 16,
    PLE = 2,
    EXPERTS = 3,
    FF_EXPERT = 5,
    VOCAB = 10,
    SHARED = 3,
};

struct change {
    const char *without;  /* key (suffix) or tensor */
    const char *reshaped; /* tensor with one value more in its rows */
    const char *key;      /* suffix that gets `value` */
    uint32_t value;
    const char *extra;     /* tensor [8] that is added */
    bool no_values;        /* full layers have no attn_v */
    bool dense;            /* no experts */
    bool all_shared_slide; /* the first layers are full ones alone */
    bool no_scales;        /* no layer has layer_output_scale */
    bool odd_heads;        /* sliding ones, by the keys */
};

static bool slides(const struct change *c, uint32_t il)
{
    return c->all_shared_slide ? il >= LAYERS - SHARED : il % 3 != 2;
}

static bool is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static void put_key(struct gguf_writer *w, const struct change *c, const char *suffix, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof(key), "gemma4.%s", suffix);
    if (!is(c->without, suffix))
        gw_u32(w, key, is(c->key, suffix) ? c->value : v);
}

static void put_keys(struct gguf_writer *w, const struct change *c)
{
    uint32_t ff[LAYERS], kv[LAYERS];
    uint8_t pattern[LAYERS];
    for (uint32_t i = 0; i < LAYERS; i++) {
        ff[i] = i < LAYERS - SHARED ? FF : 2 * FF;
        pattern[i] = slides(c, i);
        kv[i] = pattern[i] ? 2 : 1;
    }
    gw_str(w, "general.architecture", STR("gemma4"));
    put_key(w, c, "block_count", LAYERS);
    put_key(w, c, "context_length", 4096);
    put_key(w, c, "embedding_length", EMBD);
    gw_arr(w, "gemma4.feed_forward_length", GGUF_TYPE_U32, ff, LAYERS);
    put_key(w, c, "attention.head_count", HEADS);
    if (is(c->key, "attention.head_count_kv"))
        put_key(w, c, "attention.head_count_kv", 0);
    else
        gw_arr(w, "gemma4.attention.head_count_kv", GGUF_TYPE_U32, kv, LAYERS);
    if (!is(c->without, "attention.sliding_window_pattern"))
        gw_arr(w, "gemma4.attention.sliding_window_pattern", GGUF_TYPE_BOOL, pattern, LAYERS);
    put_key(w, c, "attention.sliding_window", 16);
    put_key(w, c, "attention.key_length", FULL);
    put_key(w, c, "attention.value_length", FULL);
    put_key(w, c, "attention.key_length_swa", SLIDING + c->odd_heads);
    put_key(w, c, "attention.value_length_swa", SLIDING + c->odd_heads);
    put_key(w, c, "rope.dimension_count", FULL);
    put_key(w, c, "rope.dimension_count_swa", SLIDING + c->odd_heads);
    put_key(w, c, "attention.shared_kv_layers", SHARED);
    put_key(w, c, "embedding_length_per_layer_input", PLE);
    gw_f32(w, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
    if (!is(c->without, "rope.freq_base"))
        gw_f32(w, "gemma4.rope.freq_base", 10000);
    gw_f32(w, "gemma4.final_logit_softcapping", is(c->key, "cap") ? -(float)c->value : 30);
    if (c->dense)
        return;
    put_key(w, c, "expert_count", EXPERTS);
    put_key(w, c, "expert_used_count", 2);
    put_key(w, c, "expert_feed_forward_length", FF_EXPERT);
}

/* Values count up from 1, so that what is read can be told. n_out 0: a vector. */
static void put(struct gguf_writer *w, const struct change *c, const char *name, uint64_t n_in,
                uint64_t n_out, uint64_t n_stacked)
{
    static float data[4096];
    uint64_t ne[3] = {n_in + is(c->reshaped, name), n_out, n_stacked};
    uint64_t n = ne[0] * (n_out ? n_out : 1) * (n_stacked ? n_stacked : 1);
    if (is(c->without, name))
        return;
    for (size_t i = 0; i < n; i++)
        data[i] = (float)(i + 1);
    gw_tensor(w, name, DTYPE_F32, n_stacked ? 3 : n_out ? 2 : 1, ne, data, n * sizeof(float));
}

static void put_layer(struct gguf_writer *w, const struct change *c, uint32_t il)
{
    bool slide = slides(c, il), shares = il >= LAYERS - SHARED;
    uint64_t d = slide ? SLIDING : FULL, n_kv = (slide ? 2 : 1) * d, ff = shares ? 2 * FF : FF;
    bool values = !shares && (slide || !c->no_values);
    const struct {
        const char *name;
        uint64_t n_in, n_out, n_stacked;
        bool there;
    } tensors[] = {
        {"attn_norm.weight", EMBD, 0, 0, true},
        {"attn_q.weight", EMBD, HEADS * d, 0, true},
        {"attn_q_norm.weight", d, 0, 0, true},
        {"attn_k.weight", EMBD, n_kv, 0, !shares},
        {"attn_k_norm.weight", d, 0, 0, !shares},
        {"attn_v.weight", EMBD, n_kv, 0, values},
        {"attn_output.weight", HEADS * d, EMBD, 0, true},
        {"post_attention_norm.weight", EMBD, 0, 0, true},
        {"ffn_norm.weight", EMBD, 0, 0, true},
        {"ffn_gate.weight", EMBD, ff, 0, true},
        {"ffn_up.weight", EMBD, ff, 0, true},
        {"ffn_down.weight", ff, EMBD, 0, true},
        {"post_ffw_norm.weight", EMBD, 0, 0, true},
        {"layer_output_scale.weight", 1, 0, 0, !c->no_scales},
        {"inp_gate.weight", EMBD, PLE, 0, true},
        {"proj.weight", PLE, EMBD, 0, true},
        {"post_norm.weight", EMBD, 0, 0, true},
        {"ffn_gate_inp.weight", EMBD, EXPERTS, 0, !c->dense},
        {"ffn_gate_inp.scale", EMBD, 0, 0, !c->dense},
        {"ffn_down_exps.scale", EXPERTS, 0, 0, !c->dense},
        {"post_ffw_norm_1.weight", EMBD, 0, 0, !c->dense},
        {"pre_ffw_norm_2.weight", EMBD, 0, 0, !c->dense},
        {"post_ffw_norm_2.weight", EMBD, 0, 0, !c->dense},
        {"ffn_gate_up_exps.weight", EMBD, 2 * FF_EXPERT, EXPERTS, !c->dense},
        {"ffn_down_exps.weight", FF_EXPERT, EMBD, EXPERTS, !c->dense},
    };
    for (size_t i = 0; i < T9_COUNT(tensors); i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%u.%s", il, tensors[i].name);
        if (tensors[i].there)
            put(w, c, name, tensors[i].n_in, tensors[i].n_out, tensors[i].n_stacked);
    }
}

static t9_status load(struct loaded *l, const struct change *c)
{
    struct gguf_writer w;
    gw_init(&w);
    put_keys(&w, c);
    put(&w, c, "rope_freqs.weight", FULL / 2, 0, 0);
    put(&w, c, "token_embd.weight", EMBD, VOCAB, 0);
    put(&w, c, "per_layer_token_embd.weight", PLE * LAYERS, VOCAB, 0);
    put(&w, c, "per_layer_model_proj.weight", EMBD, PLE * LAYERS, 0);
    put(&w, c, "per_layer_proj_norm.weight", PLE, 0, 0);
    put(&w, c, "output_norm.weight", EMBD, 0, 0);
    for (uint32_t il = 0; il < LAYERS; il++)
        put_layer(&w, c, il);
    if (c->extra)
        put(&w, c, c->extra, 8, 0, 0);
    return loaded_from(l, &w, NULL);
}

static void expect_ok(struct loaded *l, struct change c)
{
    if (load(l, &c) != T9_STATUS_OK)
        fail_msg("%s", l->err.msg);
}

static void refused(t9_status status, const char *part, struct change c)
{
    struct loaded l;
    t9_status st = load(&l, &c);
    loaded_is_refused(&l, st, status, part);
}

static void is_near(const struct weight *w, int32_t i, double want)
{
    double got = (double)((const float *)w->data)[i];
    if (fabs(got - want) > 1e-6 * fabs(want))
        fail_msg("%s has %g at %d, %g wanted", w->name, got, i, want);
}

static void test_layers(void **state)
{
    (void)state;
    struct loaded l;
    struct kv_geom g;
    expect_ok(&l, (struct change){0});
    const struct model *m = l.m;
    const struct layer *a = m->layers;
    const struct hparams *hp = &m->hp;
    assert_true(hp->attn_scale == 1 && hp->logit_cap == 30 && hp->n_kv_layers == 3);
    for (int32_t il = 0; il < LAYERS; il++) {
        static const int32_t kv[LAYERS] = {0, 1, 2,
                                           1, 1, 2}; /* the last of its kind that has one */
        bool shares = il >= LAYERS - SHARED;
        assert_int_equal(a[il].kv_layer, kv[il]);
        assert_int_equal(a[il].head_dim, il % 3 == 2 ? FULL : SLIDING);
        assert_int_equal(a[il].n_head_kv, il % 3 == 2 ? 1 : 2);
        assert_true((a[il].k == NULL) == shares && (a[il].v_norm == NULL) == shares);
        assert_int_equal(a[il].g4.gate->n_out, shares ? 2 * FF : FF);
        assert_true(a[il].g4.out_scale == 1);
    }
    assert_int_equal(model_kv_geom(m, KV_TYPE_F16, &g, &l.err), T9_STATUS_OK);
    assert_int_equal(g.n_layers, 3);
    assert_int_equal(g.layers[1].head_dim, SLIDING);
    assert_int_equal(g.layers[2].head_dim, FULL);
    assert_int_equal(g.layers[2].n_head_kv, 1);
    /* Three keys of 16 of the window in four layers of 2 x 4 values, all in two of 1 x 8. */
    assert_true(model_kv_read_bytes(m, &g, 100) == (16 * 4 + 100 * 2) * 2 * 8 * 2.0);
    assert_int_equal(m->hp.n_ff_max, 2 * FF);
    assert_int_equal(model_info(m)->n_head_kv, 2);
    assert_int_equal(model_info(m)->n_experts, EXPERTS);
    assert_int_equal(model_info(m)->n_table_params, PLE * LAYERS * VOCAB);
    assert_int_equal(model_info(m)->n_query, HEADS * (4 * SLIDING + 2 * FULL));
    assert_ptr_equal(m->output, m->token_embd);
    assert_int_equal(m->rope.inv_freq->n_in, FULL / 2);
    assert_int_equal(m->rope_sliding.inv_freq->n_in, SLIDING / 2);
    is_near(m->rope.inv_freq, 1, pow(10000, -2.0 / FULL) / 2);        /* divided by the second */
    is_near(m->rope_sliding.inv_freq, 1, pow(10000, -2.0 / SLIDING)); /* not divided */
    is_near(m->g4.ple_norm, 1, 2 / sqrt(2));
    is_near(a[1].g4.router_norm, 2, 3 / sqrt(EMBD));
    is_near(a[1].expert_scale, 2, 3);
    is_near(a[0].v_norm, SLIDING - 1, 1);
    loaded_free(&l);
}

static void test_forms(void **state)
{
    (void)state;
    struct loaded l;
    expect_ok(&l, (struct change){.no_values = true, .dense = true});
    assert_null(l.m->layers[2].v);
    assert_non_null(l.m->layers[1].v);
    assert_null(l.m->layers[0].router);
    loaded_free(&l);
    /* Files may have what layers that share do not read; scales are optional. */
    expect_ok(&l, (struct change){.extra = "blk.4.attn_k_norm.weight"});
    assert_null(l.m->layers[4].k_norm);
    loaded_free(&l);
    expect_ok(&l, (struct change){.no_scales = true});
    assert_true(l.m->layers[1].g4.out_scale == 1);
    loaded_free(&l);
    expect_ok(&l, (struct change){.without = "expert_count", .dense = true});
    loaded_free(&l);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        t9_status status;
        const char *part;
        struct change c;
    } cases[] = {
        {T9_STATUS_CORRUPT,
         "tensor rope_freqs.weight is missing",
         {.without = "rope_freqs.weight"}},
        {T9_STATUS_CORRUPT,
         "gemma4.attention.sliding_window_pattern is missing",
         {.without = "attention.sliding_window_pattern"}},
        {T9_STATUS_CORRUPT, "gemma4.rope.freq_base", {.without = "rope.freq_base"}},
        {T9_STATUS_CORRUPT, "rope.dimension_count_swa of 5 rotated", {.odd_heads = true}},
        {T9_STATUS_CORRUPT,
         "tensor blk.1.layer_output_scale.weight is missing; layer 0 has one",
         {.without = "blk.1.layer_output_scale.weight"}},
        {T9_STATUS_CORRUPT,
         "tensor blk.1.attn_k.weight is missing",
         {.without = "blk.1.attn_k.weight"}},
        {T9_STATUS_CORRUPT,
         "tensor blk.5.post_norm.weight is missing",
         {.without = "blk.5.post_norm.weight"}},
        {T9_STATUS_CORRUPT,
         "tensor per_layer_token_embd.weight is missing",
         {.without = "per_layer_token_embd.weight"}},
        {T9_STATUS_CORRUPT,
         "tensor blk.0.ffn_down_exps.scale is missing",
         {.without = "blk.0.ffn_down_exps.scale"}},
        {T9_STATUS_CORRUPT,
         "per_layer_proj_norm.weight is [3], [2] is expected",
         {.reshaped = "per_layer_proj_norm.weight"}},
        {T9_STATUS_CORRUPT,
         "blk.2.attn_q_norm.weight is [9], [8] is expected",
         {.reshaped = "blk.2.attn_q_norm.weight"}},
        {T9_STATUS_CORRUPT,
         "blk.0.layer_output_scale.weight is [2], [1] is expected",
         {.reshaped = "blk.0.layer_output_scale.weight"}},
        {T9_STATUS_UNSUPPORTED,
         "tensor blk.0.attn_sinks.weight is not one",
         {.extra = "blk.0.attn_sinks.weight"}},
        {T9_STATUS_UNSUPPORTED,
         "value_length_swa = 8 differs from the key length 4",
         {.key = "attention.value_length_swa", .value = 8}},
        {T9_STATUS_UNSUPPORTED,
         "rope.dimension_count_swa is 2, the head's 4 is wanted",
         {.key = "rope.dimension_count_swa", .value = 2}},
        {T9_STATUS_UNSUPPORTED,
         "gemma4.rope.dimension_count is 4, the head's 8 is wanted",
         {.key = "rope.dimension_count", .value = 4}},
        {T9_STATUS_CORRUPT,
         "gemma4.attention.shared_kv_layers is 6",
         {.key = "attention.shared_kv_layers", .value = LAYERS}},
        {T9_STATUS_CORRUPT,
         "layer 3 has no layer of its kind before it",
         {.all_shared_slide = true}},
        {T9_STATUS_CORRUPT,
         "gemma4.attention.head_count_kv is 5 in layer 0",
         {.key = "attention.head_count_kv", .value = 5}},
        {T9_STATUS_CORRUPT,
         "4 heads are no multiple of 3 KV heads in layer 0",
         {.key = "attention.head_count_kv", .value = 3}},
        {T9_STATUS_CORRUPT,
         "embedding_length_per_layer_input is 4097",
         {.key = "embedding_length_per_layer_input", .value = PLE_MAX + 1}},
        {T9_STATUS_CORRUPT, "final_logit_softcapping is -1", {.key = "cap", .value = 1}},
        {T9_STATUS_CORRUPT, "expert_used_count", {.without = "expert_used_count"}},
    };
    for (size_t i = 0; i < T9_COUNT(cases); i++)
        refused(cases[i].status, cases[i].part, cases[i].c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
