/*
 * What model_load takes and what it refuses: each case changes one thing of a small file that
 * loads, and names the words that the message must have.
 */
#include "loaded.h"

#include "lib/gguf_writer.h"
#include "lib/t9test.h"

#include "base/mem.h"
#include "model/model.h"
#include "model/model_impl.h"

#include <math.h>

enum { EMBD = 8, HEADS = 2, KV_HEADS = 1, HEAD = 4, FF = 16, VOCAB = 10, LAYERS = 2, EXPERTS = 3 };

/* One deviation from the valid file. */
struct change {
    const char *arch;         /* NULL = llama */
    const char *without_key;  /* suffix */
    const char *without;      /* tensor */
    const char *reshaped;     /* tensor that gets one value more in its rows */
    const char *extra, *more; /* tensors [8] that are added */
    const char *u32_key, *f32_key, *str_key, *bool_key; /* suffix of a key that is set */
    uint32_t u32;
    float f32;
    const char *str;
    bool bool_value;
    uint32_t ff_array[LAYERS]; /* feed_forward_length per layer */
    bool merged;               /* experts' gate and up in one tensor */
    bool dense_first;          /* layer 0 has no experts */
    int32_t sections[5];       /* rope.dimension_sections, where there are any */
    uint64_t n_sections;       /* 0: 4 */
    uint32_t kv_heads[LAYERS]; /* of lfm2's layers, where they are not 0 and KV_HEADS */
    const char *list_key;      /* suffix of a key that is a list of n_list ones */
    uint64_t n_list;
    uint64_t n_tokens; /* of a tokenizer, where there is one */
};

static void key_of(char out[128], const struct change *c, const char *suffix)
{
    snprintf(out, 128, "%s.%s", c->arch ? c->arch : "llama", suffix);
}

static void put_u32(struct gguf_writer *w, const struct change *c, const char *suffix, uint32_t v)
{
    char key[128];
    key_of(key, c, suffix);
    if ((c->u32_key && strcmp(c->u32_key, suffix) == 0) ||
        (c->list_key && strcmp(c->list_key, suffix) == 0))
        return;
    if (!c->without_key || strcmp(c->without_key, suffix) != 0)
        gw_u32(w, key, v);
}

static bool is_arch(const struct change *c, const char *arch)
{
    return strcmp(c->arch ? c->arch : "llama", arch) == 0;
}

static bool has_experts(const struct change *c)
{
    return is_arch(c, "qwen3moe") || is_arch(c, "qwen3vlmoe") || is_arch(c, "gpt-oss") ||
           is_arch(c, "lfm2moe");
}

static bool is_lfm2(const struct change *c)
{
    return is_arch(c, "lfm2") || is_arch(c, "lfm2moe");
}

/* The first layer is a convolution. */
static void put_lfm2_keys(struct gguf_writer *w, const struct change *c)
{
    char key[128];
    const uint32_t kv_heads[LAYERS] = {0, KV_HEADS};
    key_of(key, c, "attention.head_count_kv");
    if (!c->without_key || strcmp(c->without_key, "attention.head_count_kv") != 0)
        gw_arr(w, key, GGUF_TYPE_U32, c->kv_heads[0] ? c->kv_heads : kv_heads, LAYERS);
    put_u32(w, c, "shortconv.l_cache", 3);
}

static void put_f32(struct gguf_writer *w, const struct change *c, const char *suffix, float v)
{
    char key[128];
    key_of(key, c, suffix);
    if ((!c->without_key || strcmp(c->without_key, suffix) != 0) &&
        (!c->f32_key || strcmp(c->f32_key, suffix) != 0) &&
        (!c->str_key || strcmp(c->str_key, suffix) != 0))
        gw_f32(w, key, v);
}

/* llama and qwen2 are left without a base. */
static void put_rope_keys(struct gguf_writer *w, const struct change *c)
{
    const char *type = is_arch(c, "gpt-oss") ? "yarn" : NULL;
    if (!is_arch(c, "llama") && !is_arch(c, "qwen2"))
        put_f32(w, c, "rope.freq_base", 10000);
    if (c->without_key && strcmp(c->without_key, "rope.scaling.type") == 0)
        type = NULL;
    else if (c->str_key && strcmp(c->str_key, "rope.scaling.type") == 0)
        type = c->str;
    else if (type)
        gw_str(w, "gpt-oss.rope.scaling.type", str_from(type));
    if (!type || strcmp(type, "none") == 0)
        return;
    put_f32(w, c, "rope.scaling.factor", 4);
    if (strcmp(type, "yarn") == 0)
        put_u32(w, c, "rope.scaling.original_context_length", 4096);
}

static void put_keys(struct gguf_writer *w, const struct change *c)
{
    char key[128];
    gw_str(w, "general.architecture", str_from(c->arch ? c->arch : "llama"));
    gw_str(w, "general.name", STR("tiny"));
    put_u32(w, c, "block_count", LAYERS);
    put_u32(w, c, "context_length", 4096);
    put_u32(w, c, "embedding_length", EMBD);
    put_u32(w, c, "attention.head_count", HEADS);
    if (is_lfm2(c))
        put_lfm2_keys(w, c);
    else
        put_u32(w, c, "attention.head_count_kv", KV_HEADS);
    key_of(key, c, "feed_forward_length");
    if (c->ff_array[0])
        gw_arr(w, key, GGUF_TYPE_U32, c->ff_array, LAYERS);
    else
        put_u32(w, c, "feed_forward_length", FF);
    key_of(key, c, "attention.layer_norm_rms_epsilon");
    if (!c->f32_key || strcmp(c->f32_key, "attention.layer_norm_rms_epsilon") != 0)
        gw_f32(w, key, 1e-5f);
    key_of(key, c, "rope.dimension_sections");
    if (c->sections[0])
        gw_arr(w, key, GGUF_TYPE_I32, c->sections, c->n_sections ? c->n_sections : 4);
    if (is_arch(c, "gemma3") || is_arch(c, "gpt-oss"))
        put_u32(w, c, "attention.sliding_window", 16);
    put_rope_keys(w, c);
    if (has_experts(c)) {
        put_u32(w, c, "expert_count", EXPERTS);
        put_u32(w, c, "expert_used_count", 2);
        put_u32(w, c, "expert_feed_forward_length", FF / 2);
    }
    if (is_arch(c, "lfm2moe"))
        put_u32(w, c, "expert_gating_func", 2);
    if (c->u32_key) {
        key_of(key, c, c->u32_key);
        gw_u32(w, key, c->u32);
    }
    static const str tokens[VOCAB + 1] = {{0}};
    if (c->n_tokens)
        gw_arr_str(w, "tokenizer.ggml.tokens", tokens, c->n_tokens);
    if (c->list_key) {
        static const uint32_t ones[LAYERS + 1] = {1, 1, 1};
        key_of(key, c, c->list_key);
        gw_arr(w, key, GGUF_TYPE_U32, ones, c->n_list);
    }
    if (c->f32_key) {
        key_of(key, c, c->f32_key);
        gw_f32(w, key, c->f32);
    }
    if (c->str_key) {
        key_of(key, c, c->str_key);
        gw_str(w, key, str_from(c->str));
    }
    if (c->bool_key) {
        key_of(key, c, c->bool_key);
        gw_bool(w, key, c->bool_value);
    }
}

static void put_tensor(struct gguf_writer *w, const struct change *c, const char *name,
                       uint64_t n_in, uint64_t n_out)
{
    static float data[64 * 64];
    uint64_t ne[2] = {n_in, n_out};
    if (c->without && strcmp(c->without, name) == 0)
        return;
    if (c->reshaped && strcmp(c->reshaped, name) == 0)
        ne[0]++;
    for (size_t i = 0; i < T9_COUNT(data); i++)
        data[i] = 0.5f;
    gw_tensor(w, name, DTYPE_F32, n_out == 0 ? 1 : 2, ne, data,
              ne[0] * (n_out == 0 ? 1 : n_out) * sizeof(float));
}

/* A matrix of each expert, whose values count up from 0. */
static void put_stack(struct gguf_writer *w, const struct change *c, int il, const char *what,
                      uint64_t n_in, uint64_t n_out)
{
    static float data[1024];
    char name[64];
    uint64_t ne[3] = {n_in, n_out, EXPERTS};
    snprintf(name, sizeof(name), "blk.%d.%s.weight", il, what);
    if (c->without && strcmp(c->without, name) == 0)
        return;
    if (c->reshaped && strcmp(c->reshaped, name) == 0)
        ne[2]--;
    for (size_t i = 0; i < T9_COUNT(data); i++)
        data[i] = (float)i;
    gw_tensor(w, name, DTYPE_F32, 3, ne, data, ne[0] * ne[1] * ne[2] * sizeof(float));
    snprintf(name, sizeof(name), "blk.%d.%s.bias", il, what);
    if (is_arch(c, "gpt-oss"))
        put_tensor(w, c, name, n_out, EXPERTS);
}

static void put_experts(struct gguf_writer *w, const struct change *c, int il)
{
    char name[64];
    snprintf(name, sizeof(name), "blk.%d.ffn_gate_inp.weight", il);
    put_tensor(w, c, name, EMBD, EXPERTS);
    snprintf(name, sizeof(name), "blk.%d.ffn_gate_inp.bias", il);
    if (is_arch(c, "gpt-oss"))
        put_tensor(w, c, name, EXPERTS, 0);
    snprintf(name, sizeof(name), "blk.%d.exp_probs_b.bias", il);
    if (is_lfm2(c))
        put_tensor(w, c, name, EXPERTS, 0);
    if (c->merged) {
        put_stack(w, c, il, "ffn_gate_up_exps", EMBD, FF);
    } else {
        put_stack(w, c, il, "ffn_gate_exps", EMBD, FF / 2);
        put_stack(w, c, il, "ffn_up_exps", EMBD, FF / 2);
    }
    put_stack(w, c, il, "ffn_down_exps", FF / 2, EMBD);
}

static void put_short_conv(struct gguf_writer *w, const struct change *c)
{
    put_tensor(w, c, "blk.0.shortconv.in_proj.weight", EMBD, 3 * EMBD);
    put_tensor(w, c, "blk.0.shortconv.conv.weight", 3, EMBD);
    put_tensor(w, c, "blk.0.shortconv.out_proj.weight", EMBD, EMBD);
}

static void put_block(struct gguf_writer *w, const struct change *c, int il)
{
    bool experts = has_experts(c) && !(c->dense_first && il == 0);
    const char *arch = c->arch ? c->arch : "llama";
    const struct {
        const char *name;
        uint64_t n_in, n_out;
        const char *arch; /* only there; NULL = all */
    } tensors[] = {
        {"attn_norm.weight", EMBD, 0, NULL},
        {"attn_q.weight", EMBD, HEADS * HEAD, NULL},
        {"attn_k.weight", EMBD, KV_HEADS * HEAD, NULL},
        {"attn_v.weight", EMBD, KV_HEADS * HEAD, NULL},
        {"attn_output.weight", HEADS * HEAD, EMBD, NULL},
        {"ffn_norm.weight", EMBD, 0, NULL},
        {"ffn_gate.weight", EMBD, c->ff_array[0] ? c->ff_array[il] : FF, NULL},
        {"ffn_up.weight", EMBD, c->ff_array[0] ? c->ff_array[il] : FF, NULL},
        {"ffn_down.weight", c->ff_array[0] ? c->ff_array[il] : FF, EMBD, NULL},
        {"attn_q.bias", HEADS * HEAD, 0, "qwen2"},
        {"attn_k.bias", KV_HEADS * HEAD, 0, "qwen2"},
        {"attn_v.bias", KV_HEADS * HEAD, 0, "qwen2"},
        {"attn_q_norm.weight", HEAD, 0, "qwen3"},
        {"attn_k_norm.weight", HEAD, 0, "qwen3"},
        {"attn_q_norm.weight", HEAD, 0, "qwen3vl"},
        {"attn_k_norm.weight", HEAD, 0, "qwen3vl"},
        {"attn_q_norm.weight", HEAD, 0, "gemma3"},
        {"attn_k_norm.weight", HEAD, 0, "gemma3"},
        {"attn_q_norm.weight", HEAD, 0, "qwen3vlmoe"},
        {"attn_k_norm.weight", HEAD, 0, "qwen3vlmoe"},
        {"attn_q_norm.weight", HEAD, 0, "qwen3moe"},
        {"attn_k_norm.weight", HEAD, 0, "qwen3moe"},
        {"attn_q_norm.weight", HEAD, 0, "lfm2"},
        {"attn_k_norm.weight", HEAD, 0, "lfm2"},
        {"attn_q_norm.weight", HEAD, 0, "lfm2moe"},
        {"attn_k_norm.weight", HEAD, 0, "lfm2moe"},
        {"attn_q.bias", HEADS * HEAD, 0, "gpt-oss"},
        {"attn_k.bias", KV_HEADS * HEAD, 0, "gpt-oss"},
        {"attn_v.bias", KV_HEADS * HEAD, 0, "gpt-oss"},
        {"attn_output.bias", EMBD, 0, "gpt-oss"},
        {"attn_sinks.weight", HEADS, 0, "gpt-oss"},
        {"post_attention_norm.weight", EMBD, 0, "gpt-oss"},
        {"post_attention_norm.weight", EMBD, 0, "gemma3"},
        {"post_ffw_norm.weight", EMBD, 0, "gemma3"},
    };
    for (size_t i = 0; i < T9_COUNT(tensors); i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.%s", il, tensors[i].name);
        bool dense = strncmp(tensors[i].name, "ffn_", 4) == 0 &&
                     strcmp(tensors[i].name, "ffn_norm.weight") != 0;
        bool attention = strncmp(tensors[i].name, "attn_", 5) == 0 &&
                         strcmp(tensors[i].name, "attn_norm.weight") != 0;
        if ((dense && experts) || (attention && is_lfm2(c) && il == 0) ||
            (is_arch(c, "gpt-oss") && strcmp(tensors[i].name, "ffn_norm.weight") == 0))
            continue;
        if (!tensors[i].arch || strcmp(tensors[i].arch, arch) == 0)
            put_tensor(w, c, name, tensors[i].n_in, tensors[i].n_out);
    }
    if (is_lfm2(c) && il == 0)
        put_short_conv(w, c);
    if (experts)
        put_experts(w, c, il);
}

/* Writes the file, loads it on ref, and gives the status; *m is NULL unless it is OK. */
static t9_status load_changed(struct loaded *l, const struct change *c,
                              const struct model_load_params *params)
{
    struct gguf_writer w;
    gw_init(&w);
    put_keys(&w, c);
    put_tensor(&w, c, "token_embd.weight", EMBD, VOCAB);
    if (is_arch(c, "gpt-oss"))
        put_tensor(&w, c, "output.weight", EMBD, VOCAB);
    put_tensor(&w, c, is_lfm2(c) ? "token_embd_norm.weight" : "output_norm.weight", EMBD, 0);
    for (int il = 0; il < LAYERS; il++)
        put_block(&w, c, il);
    if (c->extra)
        put_tensor(&w, c, c->extra, EMBD, 0);
    if (c->more)
        put_tensor(&w, c, c->more, EMBD, 0);
    return loaded_from(l, &w, params);
}

static void expect_refusal(struct change c, t9_status status, const char *part)
{
    struct loaded l;
    t9_status st = load_changed(&l, &c, NULL);
    loaded_is_refused(&l, st, status, part);
}

static void expect_ok(struct change c, struct loaded *l)
{
    if (load_changed(l, &c, NULL) != T9_STATUS_OK)
        fail_msg("%s", l->err.msg);
}

static void test_info(void **state)
{
    (void)state;
    struct loaded l;
    struct kv_geom g;
    struct t9_err err;
    expect_ok((struct change){0}, &l);
    const struct model_info *i = model_info(l.m);
    assert_string_equal(i->arch, "llama");
    assert_true(str_eqz(i->name, "tiny"));
    assert_int_equal(i->n_layers, LAYERS);
    assert_int_equal(i->n_embd, EMBD);
    assert_int_equal(i->n_vocab, VOCAB);
    assert_int_equal(i->n_head, HEADS);
    assert_int_equal(i->n_head_kv, KV_HEADS);
    assert_int_equal(i->head_dim, HEAD);
    assert_int_equal(i->n_ff, FF);
    assert_int_equal(i->context_length, 4096);
    uint64_t block =
        2 * EMBD + 2 * EMBD * HEADS * HEAD + 2 * EMBD * KV_HEADS * HEAD + 3 * EMBD * FF;
    assert_int_equal(i->n_params, VOCAB * EMBD + EMBD + LAYERS * block);
    assert_int_equal(i->n_query, LAYERS * HEADS * HEAD);
    assert_int_equal(i->weight_bytes, i->n_params * sizeof(float));
    assert_ptr_equal(l.m->output, l.m->token_embd); /* tied */
    assert_int_equal(model_kv_geom(l.m, KV_TYPE_F16, &g, &err), T9_STATUS_OK);
    assert_int_equal(g.n_layers, LAYERS);
    loaded_free(&l);
}

static void near(double got, double want)
{
    if (fabs(got - want) > 2e-6 * fabs(want))
        fail_msg("%.9g, %.9g wanted", got, want);
}

static void gemma3_refused(struct change c, t9_status status, const char *part)
{
    c.arch = "gemma3";
    expect_refusal(c, status, part);
}

static void test_gemma3(void **state)
{
    (void)state;
    struct loaded l;
    const char *pattern = "attention.sliding_window_pattern";
    expect_ok((struct change){.arch = "gemma3"}, &l);
    const struct hparams *hp = &l.m->hp;
    assert_int_equal(hp->window, 16);
    assert_true(hp->sliding[0] && hp->sliding[1]); /* the sixth would be full */
    near((double)hp->embd_scale, sqrt(EMBD));
    near((double)hp->attn_scale, 1 / sqrt(HEAD));
    near((double)hp->rope_sliding.freq_base, 10000);
    assert_non_null(l.m->layers[1].post_attn_norm);
    assert_non_null(l.m->layers[1].post_ffn_norm);
    assert_ptr_not_equal(l.m->rope.inv_freq, l.m->rope_sliding.inv_freq);
    loaded_free(&l);

    /* What scales full layers leaves the sliding ones alone. */
    expect_ok((struct change){.arch = "gemma3",
                              .u32_key = pattern,
                              .u32 = 2,
                              .str_key = "rope.scaling.type",
                              .str = "linear",
                              .f32_key = "rope.scaling.factor",
                              .f32 = 8},
              &l);
    assert_true(l.m->hp.sliding[0] && !l.m->hp.sliding[1]);
    const float *full = l.m->rope.inv_freq->data, *sliding = l.m->rope_sliding.inv_freq->data;
    near((double)full[0], 1.0 / 8);
    near((double)sliding[0], 1);
    loaded_free(&l);

    gemma3_refused((struct change){.without_key = "attention.sliding_window"}, T9_STATUS_CORRUPT,
                   "gemma3.attention.sliding_window");
    gemma3_refused((struct change){.u32_key = "attention.sliding_window", .u32 = 0},
                   T9_STATUS_CORRUPT, "gemma3.attention.sliding_window is 0");
    gemma3_refused((struct change){.u32_key = pattern, .u32 = 0}, T9_STATUS_CORRUPT,
                   "sliding_window_pattern is 0");
    gemma3_refused((struct change){.f32_key = "rope.freq_base_swa", .f32 = -1}, T9_STATUS_CORRUPT,
                   "rope.freq_base_swa is -1");
    gemma3_refused((struct change){.f32_key = "attention.scale", .f32 = 0}, T9_STATUS_CORRUPT,
                   "gemma3.attention.scale is 0");
    gemma3_refused((struct change){.f32_key = "final_logit_softcapping", .f32 = 30},
                   T9_STATUS_UNSUPPORTED, "final_logit_softcapping = 30 is not supported");
    gemma3_refused((struct change){.without = "blk.1.post_ffw_norm.weight"}, T9_STATUS_CORRUPT,
                   "tensor blk.1.post_ffw_norm.weight is missing");
}

/* A list has a value for each layer: a longer one is of another model. */
static void test_lists(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *suffix;
    } lists[] = {{"llama", "attention.head_count"},
                 {"llama", "attention.head_count_kv"},
                 {"llama", "feed_forward_length"},
                 {"lfm2", "attention.head_count_kv"},
                 {"gemma3", "attention.sliding_window_pattern"}};
    for (size_t i = 0; i < T9_COUNT(lists); i++) {
        char part[128];
        struct change c = {.arch = lists[i].arch, .list_key = lists[i].suffix};
        c.without_key = strcmp(c.arch, "lfm2") == 0 ? c.list_key : NULL;
        snprintf(part, sizeof(part), "%s.%s has 3 values for 2 layers", c.arch, c.list_key);
        c.n_list = LAYERS + 1;
        expect_refusal(c, T9_STATUS_CORRUPT, part);
        c.n_list = LAYERS - 1;
        expect_refusal(c, T9_STATUS_CORRUPT, c.list_key);
    }
}

/* What layers may have is missing in one of those that may. */
static void test_one_is_missing(void **state)
{
    (void)state;
    static const struct {
        struct change c;
        const char *part;
    } cases[] = {
        {{.extra = "blk.0.attn_q.bias"}, "tensor blk.1.attn_q.bias is missing; layer 0 has one"},
        {{.extra = "blk.1.attn_q.bias"}, "tensor blk.0.attn_q.bias is missing; layer 1 has one"},
        {{.arch = "lfm2moe", .without = "blk.0.exp_probs_b.bias"},
         "tensor blk.0.exp_probs_b.bias is missing; layer 1 has one"},
        {{.arch = "lfm2moe", .without = "blk.1.exp_probs_b.bias"},
         "tensor blk.1.exp_probs_b.bias is missing; layer 0 has one"},
    };
    for (size_t i = 0; i < T9_COUNT(cases); i++)
        expect_refusal(cases[i].c, T9_STATUS_CORRUPT, cases[i].part);
}

/* Those that are known and not supported are refused with what they are. */
static void test_relatives(void **state)
{
    (void)state;
    static const char *const relatives[][2] = {
        {"qwen4exp", "architecture 'qwen4exp' is not supported (Qwen3.8-Flash-Next: "
                     "hyper-connections, sparse indexer); known: gemma3, "},
        {"gemma3n", "(Gemma 3n: "},
        {"gemma4-assistant", "(Gemma 4's draft head, "},
        {"qwen2moe", "(Qwen2 with experts, "},
        {"llama4", "(Llama 4: "},
        {"deepseek2", "latent attention"},
        {"clip", "(an encoder of images or sound, "},
        {"mistral4", "(Mistral 4: "},
    };
    for (size_t i = 0; i < T9_COUNT(relatives); i++)
        expect_refusal((struct change){.arch = relatives[i][0]}, T9_STATUS_UNSUPPORTED,
                       relatives[i][1]);
}

static void test_architectures(void **state)
{
    (void)state;
    struct loaded l;
    expect_refusal((struct change){.arch = "foo"}, T9_STATUS_UNSUPPORTED,
                   "architecture 'foo' is not supported; known: gemma3, gemma4, gpt-oss, lfm2, "
                   "lfm2moe, llama, "
                   "mistral3, qwen2, qwen3, qwen35, qwen35moe, qwen3moe, qwen3next, qwen3vl, "
                   "qwen3vlmoe");
    expect_ok((struct change){.arch = "qwen2"}, &l);
    assert_non_null(l.m->layers[0].q->bias);
    assert_null(l.m->layers[0].o->bias);
    assert_true(l.m->hp.rope.neox);
    loaded_free(&l);
    expect_ok((struct change){.arch = "qwen3"}, &l);
    assert_non_null(l.m->layers[1].q_norm);
    loaded_free(&l);
}

/* Queries that grow with their position. */
static void test_temperature(void **state)
{
    (void)state;
    struct loaded l;
    struct change c = {.arch = "mistral3",
                       .f32_key = "attention.temperature_scale",
                       .f32 = 0.5f,
                       .str_key = "rope.scaling.type",
                       .str = "none",
                       .u32_key = "rope.scaling.original_context_length",
                       .u32 = 32};
    expect_ok(c, &l);
    const float *scale = l.m->q_scale->data;
    assert_int_equal(l.m->q_scale->n_in, (l.m->hp.context_length + 31) / 32);
    assert_true(scale[0] == 1);
    assert_true(fabsf(scale[1] - 1.3465736f) < 1e-6f); /* 1 + ln(2) / 2 */
    loaded_free(&l);
    expect_refusal((struct change){.arch = "llama", .f32_key = c.f32_key, .f32 = 0.5f},
                   T9_STATUS_UNSUPPORTED, "attention.temperature_scale = 0.5 is not supported");
    c.f32 = -1;
    expect_refusal(c, T9_STATUS_CORRUPT, "attention.temperature_scale is -1, outside");
    c.f32 = 0.5f;
    c.u32 = 0;
    expect_refusal(c, T9_STATUS_CORRUPT, "original_context_length is 0, outside");
    c.u32_key = NULL;
    expect_refusal(c, T9_STATUS_CORRUPT, "rope.scaling.original_context_length");
    expect_ok((struct change){.arch = "mistral3"}, &l);
    assert_null(l.m->q_scale);
    loaded_free(&l);
}

/* Values of expert e of a weight on ref begin with `first`. */
static void expert_is(const struct weight *w, int32_t n_out, int32_t e, float first)
{
    assert_int_equal(w->n_experts, EXPERTS);
    assert_int_equal(w->n_out, n_out);
    const float *data = w->data;
    assert_true(data[e * n_out * w->n_in] == first);
}

static void test_qwen3moe(void **state)
{
    (void)state;
    struct loaded l;
    const char *arch = "qwen3moe";
    expect_ok((struct change){.arch = arch}, &l);
    const struct layer *layer = &l.m->layers[1];
    assert_int_equal(layer->n_ff, FF / 2);
    assert_non_null(layer->router);
    assert_null(layer->gate->bias);
    expert_is(layer->gate, FF / 2, 2, 2 * FF / 2 * EMBD);
    expert_is(layer->down, EMBD, 1, FF / 2 * EMBD);
    const struct model_info *i = model_info(l.m);
    assert_int_equal(i->n_experts, EXPERTS);
    assert_int_equal(i->n_experts_used, 2);
    assert_int_equal(i->n_expert_params, LAYERS * EXPERTS * 3 * EMBD * FF / 2);
    assert_int_equal(model_n_params_met(i), i->n_params - LAYERS * 3 * EMBD * FF / 2);
    loaded_free(&l);

    /* One tensor for both: of each expert's rows the gate's come first. */
    expect_ok((struct change){.arch = arch, .merged = true}, &l);
    layer = &l.m->layers[0];
    expert_is(layer->gate, FF / 2, 0, 0);
    expert_is(layer->up, FF / 2, 0, FF / 2 * EMBD);
    expert_is(layer->gate, FF / 2, 2, 2 * FF * EMBD);
    expert_is(layer->up, FF / 2, 2, (2 * FF + FF / 2) * EMBD);
    assert_int_equal(model_info(l.m)->n_expert_params, LAYERS * EXPERTS * 3 * EMBD * FF / 2);
    loaded_free(&l);

    expect_ok((struct change){.arch = arch, .dense_first = true}, &l);
    assert_null(l.m->layers[0].router);
    assert_int_equal(l.m->layers[0].n_ff, FF);
    assert_non_null(l.m->layers[1].router);
    loaded_free(&l);
}

static void test_experts_refused(void **state)
{
    (void)state;
    static const struct {
        struct change c;
        t9_status status;
        const char *part;
    } cases[] = {
        {{.without_key = "expert_count"}, T9_STATUS_CORRUPT, "expert_count"},
        {{.without_key = "expert_used_count"}, T9_STATUS_CORRUPT, "expert_used_count"},
        {{.without_key = "expert_feed_forward_length"}, T9_STATUS_CORRUPT, "expert_feed_forward"},
        {{.u32_key = "expert_count", .u32 = 513},
         T9_STATUS_CORRUPT,
         "expert_count is 513, outside 1..512"},
        {{.u32_key = "expert_used_count", .u32 = 33},
         T9_STATUS_CORRUPT,
         "expert_used_count is 33, outside 1..32"},
        {{.u32_key = "expert_used_count", .u32 = 4},
         T9_STATUS_CORRUPT,
         "expert_used_count is 4 of 3 experts"},
        {{.u32_key = "expert_count", .u32 = 2},
         T9_STATUS_CORRUPT,
         "blk.0.ffn_gate_inp.weight is [8, 3], [8, 2] is expected"},
        {{.u32_key = "expert_shared_count", .u32 = 1},
         T9_STATUS_UNSUPPORTED,
         "expert_shared_count = 1"},
        {{.u32_key = "expert_gating_func", .u32 = 2},
         T9_STATUS_UNSUPPORTED,
         "expert_gating_func = 2"},
        {{.u32_key = "expert_group_count", .u32 = 8},
         T9_STATUS_UNSUPPORTED,
         "expert_group_count = 8"},
        {{.f32_key = "expert_weights_scale", .f32 = 2.5f},
         T9_STATUS_UNSUPPORTED,
         "expert_weights_scale = 2.5"},
        {{.bool_key = "expert_weights_norm"}, T9_STATUS_UNSUPPORTED, "expert_weights_norm = false"},
        {{.without = "blk.1.ffn_gate_inp.weight"},
         T9_STATUS_CORRUPT,
         "tensor blk.1.ffn_gate_inp.weight is missing"},
        {{.without = "blk.1.ffn_up_exps.weight"},
         T9_STATUS_CORRUPT,
         "tensor blk.1.ffn_up_exps.weight is missing"},
        {{.reshaped = "blk.1.ffn_down_exps.weight"},
         T9_STATUS_CORRUPT,
         "blk.1.ffn_down_exps.weight is [8, 8, 2, 1], [8, 8, 3] is expected"},
        {{.reshaped = "blk.0.ffn_gate_up_exps.weight", .merged = true},
         T9_STATUS_CORRUPT,
         "blk.0.ffn_gate_up_exps.weight is [8, 16, 2, 1], [8, 16, 3] is expected"},
        {{.extra = "blk.0.ffn_gate_exps.scale"}, T9_STATUS_UNSUPPORTED, "ffn_gate_exps.scale"},
    };
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        struct change c = cases[i].c;
        c.arch = "qwen3moe";
        expect_refusal(c, cases[i].status, cases[i].part);
    }
}

static void test_lfm2(void **state)
{
    (void)state;
    struct loaded l;
    struct state_geom geom;
    struct kv_geom kv;
    expect_ok((struct change){.arch = "lfm2"}, &l);
    const struct layer *conv = &l.m->layers[0], *attention = &l.m->layers[1];
    assert_int_equal(conv->kv_layer, -1);
    assert_int_equal(conv->state_layer, 0);
    assert_int_equal(attention->kv_layer, 0);
    assert_int_equal(attention->state_layer, -1);
    assert_null(conv->q);
    assert_int_equal(conv->conv->n_in, 3 * EMBD);
    assert_non_null(attention->q_norm);
    assert_int_equal(model_info(l.m)->n_recurrent, 1);
    assert_int_equal(model_info(l.m)->n_head_kv, KV_HEADS);
    model_state_geom(l.m, &geom);
    assert_int_equal(geom.state_bytes, 2 * EMBD * sizeof(float));
    assert_int_equal(model_kv_geom(l.m, KV_TYPE_F32, &kv, &l.err), T9_STATUS_OK);
    assert_int_equal(kv.n_layers, 1);
    assert_int_equal(l.m->hp.window, 0);
    loaded_free(&l);
    expect_ok((struct change){.arch = "lfm2", .u32_key = "attention.sliding_window", .u32 = 16},
              &l);
    assert_true(!l.m->hp.sliding[0] && l.m->hp.sliding[1]);
    assert_int_equal(l.m->hp.window, 16);
    loaded_free(&l);

    expect_ok((struct change){.arch = "lfm2moe", .dense_first = true}, &l);
    assert_null(l.m->layers[0].router);
    assert_non_null(l.m->layers[1].router_bias);
    assert_true(l.m->hp.route_scale == 1);
    loaded_free(&l);
    expect_ok((struct change){.arch = "lfm2moe",
                              .dense_first = true,
                              .without = "blk.1.exp_probs_b.bias",
                              .f32_key = "expert_weights_scale",
                              .f32 = 2.5f},
              &l);
    assert_null(l.m->layers[1].router_bias);
    assert_true(l.m->hp.route_scale == 2.5f);
    loaded_free(&l);
}

static void test_lfm2_refused(void **state)
{
    (void)state;
    static const struct {
        struct change c;
        t9_status status;
        const char *part;
    } cases[] = {
        {{.without_key = "shortconv.l_cache"}, T9_STATUS_CORRUPT, "lfm2moe.shortconv.l_cache"},
        {{.u32_key = "shortconv.l_cache", .u32 = 1},
         T9_STATUS_CORRUPT,
         "shortconv.l_cache is 1, outside 2..8"},
        {{.u32_key = "shortconv.l_cache", .u32 = 9},
         T9_STATUS_CORRUPT,
         "shortconv.l_cache is 9, outside 1..8"},
        {{.u32_key = "shortconv.l_cache", .u32 = 4},
         T9_STATUS_CORRUPT,
         "blk.0.shortconv.conv.weight is [3, 8], [4, 8] is expected"},
        {{.without = "blk.0.shortconv.out_proj.weight"},
         T9_STATUS_CORRUPT,
         "tensor blk.0.shortconv.out_proj.weight is missing"},
        {{.reshaped = "blk.0.shortconv.in_proj.weight"},
         T9_STATUS_CORRUPT,
         "blk.0.shortconv.in_proj.weight is [9, 24], [8, 24] is expected"},
        {{.without_key = "attention.head_count_kv"}, T9_STATUS_CORRUPT, "attention.head_count_kv"},
        {{.without_key = "attention.head_count_kv", .u32_key = "attention.head_count_kv", .u32 = 0},
         T9_STATUS_CORRUPT,
         "attention.head_count_kv says of all layers"},
        {{.kv_heads = {KV_HEADS, 2}},
         T9_STATUS_UNSUPPORTED,
         "attention.head_count_kv differs between layers (1 and 2)"},
        {{.kv_heads = {KV_HEADS, KV_HEADS}},
         T9_STATUS_CORRUPT,
         "tensor blk.0.attn_q.weight is missing"},
        {{.u32_key = "expert_gating_func", .u32 = 1},
         T9_STATUS_UNSUPPORTED,
         "expert_gating_func = 1"},
        {{.u32_key = "expert_gating_func", .u32 = 0},
         T9_STATUS_CORRUPT,
         "lfm2moe.expert_gating_func is 0, outside 1..4"},
        {{.without_key = "expert_gating_func"}, T9_STATUS_CORRUPT, "lfm2moe.expert_gating_func"},
        {{.u32_key = "feed_forward_length", .u32 = 0, .dense_first = true},
         T9_STATUS_CORRUPT,
         "lfm2moe.feed_forward_length is 0 in layer 0, outside 1..4194304"},
        {{.f32_key = "expert_weights_scale", .f32 = -1},
         T9_STATUS_CORRUPT,
         "expert_weights_scale is -1, outside"},
        {{.bool_key = "expert_weights_norm"}, T9_STATUS_UNSUPPORTED, "expert_weights_norm = false"},
        {{.bool_key = "attention.causal"}, T9_STATUS_UNSUPPORTED, "attention.causal = false"},
        {{.reshaped = "blk.1.exp_probs_b.bias"},
         T9_STATUS_CORRUPT,
         "blk.1.exp_probs_b.bias is [4], [3] is expected"},
    };
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        struct change c = cases[i].c;
        c.arch = "lfm2moe";
        expect_refusal(c, cases[i].status, cases[i].part);
    }
}

static void test_gpt_oss(void **state)
{
    (void)state;
    struct loaded l;
    const char *arch = "gpt-oss";
    expect_ok((struct change){.arch = arch, .f32_key = "rope.scaling.factor", .f32 = 32}, &l);
    const struct hparams *hp = &l.m->hp;
    assert_int_equal(hp->window, 16);
    assert_true(hp->sliding[0] && !hp->sliding[1]);
    assert_int_equal(hp->act, ACT_SWIGLU_CLAMPED);
    const struct layer *layer = &l.m->layers[1];
    assert_int_equal(layer->sinks->n_in, HEADS);
    assert_non_null(layer->router->bias);
    assert_true(layer->down->bias[EXPERTS * EMBD - 1] == 0.5f);
    /* Both kinds of layers scale their angles. */
    near((double)l.m->rope.magnitude, 1.3465736);
    near((double)l.m->rope_sliding.magnitude, 1.3465736);
    const float *full = l.m->rope.inv_freq->data, *sliding = l.m->rope_sliding.inv_freq->data;
    assert_true(full[1] == sliding[1] && full[0] == 1);
    loaded_free(&l);
    expect_ok((struct change){.arch = arch, .f32_key = "rope.freq_base_swa", .f32 = 100}, &l);
    near((double)l.m->hp.rope_sliding.freq_base, 100);
    near((double)l.m->hp.rope.freq_base, 10000);
    loaded_free(&l);

    expect_refusal((struct change){.arch = arch, .without = "blk.1.attn_sinks.weight"},
                   T9_STATUS_CORRUPT, "tensor blk.1.attn_sinks.weight is missing");
    expect_refusal((struct change){.arch = arch, .without = "output.weight"}, T9_STATUS_CORRUPT,
                   "tensor output.weight is missing");
    expect_refusal((struct change){.arch = arch, .without = "blk.0.ffn_down_exps.bias"},
                   T9_STATUS_CORRUPT, "tensor blk.0.ffn_down_exps.bias is missing");
    expect_refusal((struct change){.arch = arch, .reshaped = "blk.0.ffn_up_exps.bias"},
                   T9_STATUS_CORRUPT, "blk.0.ffn_up_exps.bias is [9, 3], [8, 3] is expected");
    expect_refusal((struct change){.arch = arch, .str_key = "rope.scaling.type", .str = "none"},
                   T9_STATUS_CORRUPT, "gpt-oss.rope.scaling.type is not yarn");
    expect_refusal((struct change){.arch = arch, .without_key = "attention.sliding_window"},
                   T9_STATUS_CORRUPT, "gpt-oss.attention.sliding_window");
}

/* Three positions a row, and layers with inputs behind them. */
static void test_sections(void **state)
{
    (void)state;
    struct loaded l;
    struct change c = {.arch = "qwen3vl",
                       .sections = {1, 1, 0, 0},
                       .u32_key = "n_deepstack_layers",
                       .u32 = LAYERS};
    expect_ok(c, &l);
    assert_int_equal(l.m->hp.rope_h, 1);
    assert_int_equal(l.m->hp.rope_w, 0);
    assert_int_equal(l.m->hp.n_deepstack, LAYERS);
    loaded_free(&l);
    c.u32 = LAYERS + 1;
    expect_refusal(c, T9_STATUS_CORRUPT, "n_deepstack_layers is 3, outside 0..2");
    c.u32_key = NULL;
    c.sections[0] = 2;
    expect_refusal(c, T9_STATUS_CORRUPT, "rope.dimension_sections is 2, 1 and 0 of 2 pairs");
    c.sections[0] = -1;
    expect_refusal(c, T9_STATUS_CORRUPT, "rope.dimension_sections");
    expect_refusal((struct change){.arch = "qwen3vl", .sections = {-2, 4, 0, 0}}, T9_STATUS_CORRUPT,
                   "rope.dimension_sections");
    expect_refusal((struct change){.arch = "qwen3vl"}, T9_STATUS_CORRUPT,
                   "rope.dimension_sections");
    c = (struct change){.arch = "qwen3vlmoe", .sections = {1, 1, 0, 0}};
    expect_ok(c, &l);
    assert_non_null(l.m->layers[0].router);
    assert_int_equal(l.m->hp.rope_h, 1);
    loaded_free(&l);
    c.without_key = "expert_count";
    expect_refusal(c, T9_STATUS_CORRUPT, "qwen3vlmoe.expert_count");
    expect_refusal((struct change){.arch = "qwen3vl", .sections = {1, 1, 0, 2}},
                   T9_STATUS_UNSUPPORTED, "2 pairs for a fourth position");
    expect_refusal((struct change){.arch = "qwen3vl", .sections = {1, 1, 0, 0, 0}, .n_sections = 5},
                   T9_STATUS_CORRUPT,
                   "qwen3vl.rope.dimension_sections has 5 values for 4 positions");
    /* All pairs by height is no interleaving. */
    int32_t half = HEAD / 2;
    expect_refusal((struct change){.arch = "qwen3vl", .sections = {half - 2, 2, 0, 0}},
                   half == 2 ? T9_STATUS_CORRUPT : T9_STATUS_UNSUPPORTED, "dimension_sections");
}

static void test_tensors(void **state)
{
    (void)state;
    struct loaded l;
    expect_refusal((struct change){.without = "blk.1.ffn_up.weight"}, T9_STATUS_CORRUPT,
                   "tensor blk.1.ffn_up.weight is missing");
    expect_refusal((struct change){.without = "token_embd.weight"}, T9_STATUS_CORRUPT,
                   "tensor token_embd.weight is missing");
    expect_refusal((struct change){.n_tokens = VOCAB + 1}, T9_STATUS_CORRUPT,
                   "token_embd.weight has 10 rows, and the tokenizer 11 tokens");
    expect_ok((struct change){.n_tokens = VOCAB}, &l);
    loaded_free(&l);
    expect_refusal((struct change){.arch = "qwen2", .without = "blk.0.attn_k.bias"},
                   T9_STATUS_CORRUPT, "tensor blk.0.attn_k.bias is missing");
    expect_refusal((struct change){.arch = "qwen3", .without = "blk.0.attn_q_norm.weight"},
                   T9_STATUS_CORRUPT, "tensor blk.0.attn_q_norm.weight is missing");
    expect_refusal((struct change){.reshaped = "blk.0.attn_q.weight"}, T9_STATUS_CORRUPT,
                   "blk.0.attn_q.weight is [9, 8], [8, 8] is expected");
    expect_refusal((struct change){.reshaped = "output_norm.weight"}, T9_STATUS_CORRUPT,
                   "output_norm.weight is [9], [8] is expected");
    expect_refusal((struct change){.extra = "blk.0.attn_q.scale"}, T9_STATUS_UNSUPPORTED,
                   "tensor blk.0.attn_q.scale is not one");
    expect_refusal((struct change){.arch = "qwen3", .extra = "blk.0.attn_q.bias"},
                   T9_STATUS_UNSUPPORTED, "tensor blk.0.attn_q.bias is not one");
    expect_refusal((struct change){.extra = "blk.2.attn_norm.weight"}, T9_STATUS_UNSUPPORTED,
                   "blk.2.attn_norm.weight");
    /* Optional and known but unused ones load. */
    expect_ok((struct change){.extra = "blk.0.attn_q.bias", .more = "blk.1.attn_q.bias"}, &l);
    assert_non_null(l.m->layers[0].q->bias);
    loaded_free(&l);
    expect_ok((struct change){.extra = "blk.0.attn_rot_embd.weight"}, &l);
    loaded_free(&l);
}

/* Those that a forward would make infinities or NaN of. */
static void refuse_numbers(void)
{
    static const struct {
        const char *key, *type; /* the latter: how the file scales */
        float v;
        const char *part;
    } cases[] = {
        {"rope.freq_base", NULL, 1e-35f, "rope.freq_base is 1e-35, outside 1..1e+12"},
        {"rope.freq_base", NULL, 0.5f, "rope.freq_base is 0.5"},
        {"rope.freq_base", NULL, 1e30f, "rope.freq_base is 1e+30"},
        {"rope.scaling.factor", "linear", 1e-35f, "rope.scaling.factor is 1e-35"},
        {"rope.scaling.factor", "linear", -2, "rope.scaling.factor is -2"},
        {"rope.scaling.factor", "yarn", 0, "rope.scaling.factor is 0, outside 1..1000"},
        {"rope.scaling.factor", "yarn", 0.5f, "rope.scaling.factor is 0.5"},
        {"rope.scaling.factor", "yarn", 1e5f, "rope.scaling.factor is 100000"},
        {"rope.scaling.factor", "yarn", NAN, "rope.scaling.factor is nan"},
        {"rope.scaling.yarn_beta_fast", "yarn", 0, "yarn_beta_fast is 0, outside 0.001..10000"},
        {"rope.scaling.yarn_beta_fast", "yarn", INFINITY, "yarn_beta_fast is not a finite"},
        {"rope.scaling.yarn_beta_fast", "yarn", 1e6f, "yarn_beta_fast is 1e+06"},
        {"rope.scaling.yarn_beta_fast", "yarn", 0.5f, "beta_slow is 1, more than the fast one's"},
        {"rope.scaling.yarn_beta_slow", "yarn", -1, "yarn_beta_slow is -1"},
        {"rope.scaling.yarn_beta_slow", "yarn", NAN, "yarn_beta_slow is not a finite"},
        {"attention.scale", NULL, 0, "attention.scale is 0, outside"},
        {"attention.scale", NULL, -1, "attention.scale is -1"},
        {"attention.scale", NULL, 1e30f, "attention.scale is 1e+30"},
        {"attention.scale", NULL, INFINITY, "attention.scale is not a finite number"},
        {"attention.layer_norm_rms_epsilon", NULL, 1e-35f, "epsilon is 1e-35"},
        {"attention.layer_norm_rms_epsilon", NULL, NAN, "epsilon is nan"},
        {"rope.scaling.attn_factor", "yarn", 1e30f, "makes them useless"},
        {"rope.scaling.attn_factor", "yarn", 0, "makes them useless"},
    };
    for (size_t i = 0; i < T9_COUNT(cases); i++)
        expect_refusal((struct change){.f32_key = cases[i].key,
                                       .f32 = cases[i].v,
                                       .str_key = cases[i].type ? "rope.scaling.type" : NULL,
                                       .str = cases[i].type},
                       T9_STATUS_CORRUPT, cases[i].part);
}

/* What is lost of a scaling does not make another one. */
static void test_scaling_is_whole(void **state)
{
    (void)state;
    struct loaded l;
    static const char *const archs[] = {"llama",    "qwen2",    "qwen3",   "qwen3vl",
                                        "qwen3moe", "mistral3", "gpt-oss", "lfm2"};
    static const char *const left[] = {
        "factor",         "attn_factor",     "yarn_attn_factor",   "yarn_beta_fast",
        "yarn_beta_slow", "yarn_ext_factor", "yarn_log_multiplier"};
    static const char *const lost[] = {"rope.scaling.factor",
                                       "rope.scaling.original_context_length"};
    char part[192], key[64];
    for (size_t i = 0; i < T9_COUNT(archs); i++) {
        struct change c = {.arch = archs[i], .sections = {strcmp(archs[i], "qwen3vl") == 0, 1}};
        for (size_t k = 0; k < T9_COUNT(lost); k++) {
            c.str_key = "rope.scaling.type";
            c.str = "yarn";
            c.without_key = lost[k];
            snprintf(part, sizeof(part), "%s.%s", archs[i], lost[k]);
            expect_refusal(c, T9_STATUS_CORRUPT, part);
        }
        c.without_key = NULL;
        expect_ok(c, &l);
        assert_true(l.m->hp.rope.factor == 4);
        loaded_free(&l);
        c.str_key = NULL;
        c.without_key = "rope.scaling.type";
        for (size_t k = 0; k < T9_COUNT(left); k++) {
            snprintf(key, sizeof(key), "rope.scaling.%s", left[k]);
            snprintf(part, sizeof(part), "%s.rope.scaling.type is missing, and %s.%s is there",
                     archs[i], archs[i], key);
            c.f32_key = key;
            c.f32 = 1;
            expect_refusal(c, T9_STATUS_CORRUPT, part);
        }
    }
    expect_refusal((struct change){.u32_key = "rope.scaling.original_context_length", .u32 = 64},
                   T9_STATUS_CORRUPT, "llama.rope.scaling.type is missing");
    expect_refusal((struct change){.str_key = "rope.scaling.type",
                                   .str = "linear",
                                   .without_key = "rope.scaling.factor"},
                   T9_STATUS_CORRUPT, "llama.rope.scaling.factor");
    expect_ok((struct change){.f32_key = "rope.scale_linear", .f32 = 4}, &l); /* old files */
    assert_true(l.m->hp.rope.factor == 4);
    loaded_free(&l);
}

/* YaRN's magnitude, of factor 4: its divisor is there only where a file says so; absent is 0. */
static void test_log_multiplier(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        float v;
        double magnitude;
    } cases[] = {{NULL, 0, 1.1386294},
                 {"rope.scaling.yarn_log_multiplier", 0, 1.1386294},
                 {"rope.scaling.yarn_log_multiplier", 1, 1},
                 {"rope.scaling.yarn_log_multiplier", 0.5f, 1.1386294 / 1.0693147},
                 {"rope.scaling.attn_factor", 0.5f, 1.1386294 / 2}};
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        struct loaded l;
        float f[EMBD], magnitude;
        expect_ok((struct change){.arch = "mistral3",
                                  .str_key = "rope.scaling.type",
                                  .str = "yarn",
                                  .f32_key = cases[i].key,
                                  .f32 = cases[i].v},
                  &l);
        rope_frequencies(&l.m->hp.rope, NULL, f, &magnitude);
        near((double)magnitude, cases[i].magnitude);
        loaded_free(&l);
    }
}

/* Only files of old architectures may have no base. */
static void test_freq_base(void **state)
{
    (void)state;
    struct loaded l;
    static const char *const needed[] = {"gemma3",   "gpt-oss", "lfm2",    "lfm2moe",   "mistral3",
                                         "qwen3moe", "qwen3",   "qwen3vl", "qwen3vlmoe"};
    for (size_t i = 0; i < T9_COUNT(needed); i++) {
        char part[64];
        snprintf(part, sizeof(part), "%s.rope.freq_base", needed[i]);
        expect_refusal((struct change){.arch = needed[i], .without_key = "rope.freq_base"},
                       T9_STATUS_CORRUPT, part);
    }
    static const char *const old[] = {"llama", "qwen2"};
    for (size_t i = 0; i < T9_COUNT(old); i++) {
        expect_ok((struct change){.arch = old[i]}, &l);
        assert_true(l.m->hp.rope.freq_base == 10000);
        loaded_free(&l);
    }
}

static void test_keys(void **state)
{
    (void)state;
    struct loaded l;
    static const char *const required[] = {"block_count", "context_length", "embedding_length",
                                           "feed_forward_length", "attention.head_count"};
    for (size_t i = 0; i < T9_COUNT(required); i++)
        expect_refusal((struct change){.without_key = required[i]}, T9_STATUS_CORRUPT, required[i]);
    static const char *const foreign[] = {"expert_count", "nextn_predict_layers"};
    for (size_t i = 0; i < T9_COUNT(foreign); i++)
        expect_refusal((struct change){.u32_key = foreign[i], .u32 = 8}, T9_STATUS_UNSUPPORTED,
                       foreign[i]);
    expect_refusal((struct change){.f32_key = "final_logit_softcapping", .f32 = 30},
                   T9_STATUS_UNSUPPORTED, "final_logit_softcapping = 30");
    expect_refusal((struct change){.bool_key = "attention.causal"}, T9_STATUS_UNSUPPORTED,
                   "attention.causal = false");
    expect_refusal((struct change){.u32_key = "attention.value_length", .u32 = 2},
                   T9_STATUS_UNSUPPORTED, "attention.value_length = 2 differs");
    expect_refusal((struct change){.str_key = "rope.scaling.type", .str = "longrope"},
                   T9_STATUS_UNSUPPORTED, "'longrope' is not supported; known: none, linear, yarn");
    static const char *const scalings[] = {"none", "linear"};
    for (size_t i = 0; i < T9_COUNT(scalings); i++)
        expect_refusal((struct change){.f32_key = "rope.scaling.attn_factor",
                                       .f32 = 5,
                                       .str_key = "rope.scaling.type",
                                       .str = scalings[i]},
                       T9_STATUS_UNSUPPORTED,
                       "rope.scaling.attn_factor = 5 is not supported without YaRN");
    expect_ok((struct change){.f32_key = "rope.scaling.attn_factor",
                              .f32 = 1,
                              .str_key = "rope.scaling.type",
                              .str = "none"},
              &l);
    loaded_free(&l);
    expect_refusal((struct change){.u32_key = "rope.dimension_count", .u32 = 2},
                   T9_STATUS_UNSUPPORTED, "rope.dimension_count is 2");
    expect_refusal((struct change){.u32_key = "block_count", .u32 = 4000000000u}, T9_STATUS_CORRUPT,
                   "llama.block_count is 4000000000, outside");
    expect_refusal((struct change){.u32_key = "attention.head_count", .u32 = 0}, T9_STATUS_CORRUPT,
                   "attention.head_count is 0");
    expect_refusal((struct change){.u32_key = "attention.head_count_kv", .u32 = 3},
                   T9_STATUS_CORRUPT, "no multiple of 3 KV heads");
    expect_refusal((struct change){.f32_key = "rope.freq_base", .f32 = NAN}, T9_STATUS_CORRUPT,
                   "rope.freq_base is not a finite number");
    expect_refusal((struct change){.f32_key = "attention.layer_norm_rms_epsilon", .f32 = -1},
                   T9_STATUS_CORRUPT, "layer_norm_rms_epsilon is -1");
    expect_refusal((struct change){.str_key = "rope.freq_base", .str = "big"}, T9_STATUS_CORRUPT,
                   "rope.freq_base");
    refuse_numbers();
    /* Read and honoured, or harmless. */
    expect_ok((struct change){.f32_key = "attention.scale", .f32 = 0.25f}, &l);
    assert_true(l.m->hp.attn_scale == 0.25f);
    loaded_free(&l);
    expect_ok((struct change){.u32_key = "attention.sliding_window", .u32 = 4096}, &l);
    loaded_free(&l);
    expect_ok((struct change){.arch = "qwen2", .u32_key = "rope.dimension_count", .u32 = 2}, &l);
    assert_int_equal(l.m->hp.rope.n_rot, 2);
    loaded_free(&l);
    expect_ok((struct change){.ff_array = {16, 24}}, &l);
    assert_int_equal(model_info(l.m)->n_ff, 24);
    assert_int_equal(l.m->layers[0].n_ff, 16);
    loaded_free(&l);
}

struct progress {
    uint64_t last, stop_at;
};

static bool on_progress(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    struct progress *p = ctx;
    assert_true(done_bytes > p->last && done_bytes <= total_bytes);
    p->last = done_bytes;
    return done_bytes < p->stop_at;
}

static void test_progress_and_cancel(void **state)
{
    (void)state;
    struct loaded l;
    struct progress p = {.stop_at = UINT64_MAX};
    struct model_load_params params = {.progress = on_progress, .ctx = &p};
    assert_int_equal(load_changed(&l, &(struct change){0}, &params), T9_STATUS_OK);
    assert_int_equal(p.last, model_info(l.m)->weight_bytes);
    loaded_free(&l);
    p = (struct progress){.stop_at = 500};
    assert_int_equal(load_changed(&l, &(struct change){0}, &params), T9_STATUS_CANCELLED);
    assert_null(l.m);
    loaded_free(&l);
}

/* Whichever allocation fails, loading gives NOMEM and leaks nothing (the sanitizer looks). */
static void allocations_fail(const char *arch)
{
    struct loaded l;
    expect_ok((struct change){.arch = arch}, &l);
    model_free(l.m);
    l.m = NULL;
    int n_failed = 0;
    for (uint64_t nth = 1; nth < 500; nth++) {
        mem_test_fail_nth(nth);
        t9_status st = model_load(&l.m, l.g, l.be, NULL, &l.err);
        mem_test_fail_nth(0);
        if (st == T9_STATUS_OK)
            break;
        assert_int_equal(st, T9_STATUS_NOMEM);
        n_failed++;
    }
    assert_non_null(l.m);
    assert_true(n_failed > 30);
    loaded_free(&l);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    allocations_fail("qwen2");
    allocations_fail("gpt-oss");
    allocations_fail("lfm2");
}

static void test_batches_are_checked(void **state)
{
    (void)state;
    struct loaded l;
    struct kv_geom g;
    struct t9_err err;
    struct measure measure;
    struct scratch scratch;
    struct cx cx;
    size_t scratch_bytes, n_ops, again;
    const float *none[1] = {NULL};
    expect_ok((struct change){0}, &l);
    assert_int_equal(model_kv_geom(l.m, KV_TYPE_F32, &g, &err), T9_STATUS_OK);
    assert_int_equal(model_measure(l.m, &g, 8, 8, &scratch_bytes, &n_ops, &err), T9_STATUS_OK);
    assert_int_equal(n_ops, 2 + LAYERS * 9 + 3);
    /* Not a function of the declared context, and it grows with the rows. */
    assert_int_equal(model_measure(l.m, &g, 16, 8, &again, &n_ops, &err), T9_STATUS_OK);
    assert_true(again > scratch_bytes && again < 3 * scratch_bytes);

    cx_init_measure(&cx, &measure, &scratch);
    struct batch b = {.n_rows = 1, .n_seqs = 1, .kv = &g, .n_deepstack = 1, .deepstack = none};
    assert_int_equal(model_forward(l.m, &cx, &b, &err), T9_STATUS_UNSUPPORTED);
    b.n_deepstack = 0;
    b.n_rows = 0;
    assert_int_equal(model_forward(l.m, &cx, &b, &err), T9_STATUS_INVALID);
    b.n_rows = 1;
    assert_true(kv_geom_init_same(&g, LAYERS + 1, KV_HEADS, HEAD, KV_TYPE_F32));
    assert_int_equal(model_forward(l.m, &cx, &b, &err), T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "KV pages"));
    loaded_free(&l);
}

static void test_rope_frequencies(void **state)
{
    (void)state;
    float f[64], ff[2] = {1, 4}, magnitude;
    struct rope_params p = {.n_rot = 4, .freq_base = 10000, .factor = 1};
    rope_frequencies(&p, NULL, f, &magnitude);
    near((double)f[0], 1);
    near((double)f[1], 0.01);
    assert_true(magnitude == 1);
    p.scaling = ROPE_SCALING_LINEAR;
    p.factor = 2;
    rope_frequencies(&p, ff, f, &magnitude);
    near((double)f[0], 0.5);
    near((double)f[1], 0.01 / 8);
    assert_true(magnitude == 1);

    /* YaRN of Qwen3, factor 4: limits 23 and 40. */
    p = (struct rope_params){.n_rot = 128,
                             .freq_base = 1e6f,
                             .factor = 4,
                             .scaling = ROPE_SCALING_YARN,
                             .original_context = 32768,
                             .beta_fast = 32,
                             .beta_slow = 1,
                             .attn_factor = 1};
    rope_frequencies(&p, NULL, f, &magnitude);
    near((double)f[30], 1.0643606e-3);
    near((double)f[23], pow(1e6, -46.0 / 128));
    near((double)f[40], pow(1e6, -80.0 / 128) / 4);
    near((double)magnitude, 1.1386294);
    /* Ministral 3, factor 16: a multiplier of 1 makes the magnitude 1. */
    p.factor = 16;
    p.original_context = 16384;
    p.log_multiplier = 1;
    rope_frequencies(&p, NULL, f, &magnitude);
    near((double)f[20], 1.333521e-2);
    near((double)f[26], 2.443445e-3);
    near((double)f[32], 3.382353e-4);
    near((double)f[40], 1.111425e-5);
    near((double)magnitude, 1);
    /* gpt-oss: limits of 8.092779 and 17.398025 as they are; rounded they would be 8 and 18. */
    p = (struct rope_params){.n_rot = 64,
                             .freq_base = 150000,
                             .factor = 32,
                             .scaling = ROPE_SCALING_YARN,
                             .original_context = 4096,
                             .beta_fast = 32,
                             .beta_slow = 1,
                             .attn_factor = 1,
                             .yarn_exact = true};
    rope_frequencies(&p, NULL, f, &magnitude);
    near((double)magnitude, 1.346574);
    near((double)f[8], 5.081327e-2);
    near((double)f[9], 3.170570e-2);
    near((double)f[12], 6.794959e-3);
    near((double)f[16], 4.564839e-4);
    near((double)f[17], 1.293187e-4);
    near((double)f[31], 3.023511e-7);
    p.yarn_exact = false;
    rope_frequencies(&p, NULL, f, &magnitude);
    near((double)f[9], 3.162075e-2);
    near((double)f[17], 2.279478e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_architectures),
        cmocka_unit_test(test_relatives),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_one_is_missing),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_lfm2),
        cmocka_unit_test(test_lfm2_refused),
        cmocka_unit_test(test_qwen3moe),
        cmocka_unit_test(test_experts_refused),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_scaling_is_whole),
        cmocka_unit_test(test_log_multiplier),
        cmocka_unit_test(test_freq_base),
        cmocka_unit_test(test_progress_and_cancel),
        cmocka_unit_test(test_every_allocation_may_fail),
        cmocka_unit_test(test_batches_are_checked),
        cmocka_unit_test(test_rope_frequencies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
