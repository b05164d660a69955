/*
 * tests/lib/mkgguf.c - see the header. Weights come from a counter-based generator, so each
 * tensor's values depend only on the seed and its name.
 */
#include "lib/mkgguf.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/utf8.h"
#include "lib/gguf_writer.h"
#include "lib/quantize.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define VOCAB_MAX 65536
#define DIM_MAX   65536

/* Text that the merges are learned from. */
static const char corpus[] =
    "The quick brown fox jumps over the lazy dog. The weather in Paris is sunny and the weather in "
    "London is rainy. What is the capital of France? The capital of France is Paris. You are a "
    "helpful assistant. Please answer the question with a short answer and then explain the reason "
    "for the answer. Write a function that returns the sum of two numbers. def add(a, b): return a "
    "+ b. for i in range(10): print(i). The system sends a message to the user and the user sends "
    "a "
    "message to the assistant. Hello, how are you? I am fine, thank you. Once upon a time there "
    "was "
    "a little girl who lived in a village near the forest. When she was older she went to the city "
    "and worked in a library where there were many books. She read the books every day and every "
    "night. It is not the strongest of the species that survives but the one that is the most "
    "responsive to change. Numbers: 1 2 3 4 5 6 7 8 9 10 11 12 100 1000. The time is 12:30. Call "
    "the "
    "tool with the name and the arguments of the function. If there is an error, then say that "
    "there "
    "is an error and try again with other arguments.";

static const char chat_template[] =
    "{%- if tools %}{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}"
    "{{- '# Tools\\n<tools>' }}{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}"
    "{{- '\\n</tools>\\nFor each call answer with <tool_call>\\n{\"name\": NAME, \"arguments\": "
    "OBJECT}\\n</tool_call><|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if not (tools and loop.first and message.role == 'system') %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content %}{{- message.content }}{%- endif %}"
    "{%- if message.tool_calls %}{%- for call in message.tool_calls %}"
    "{{- '\\n<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}"
    "{%- if call.function.arguments is string %}{{- call.function.arguments }}"
    "{%- else %}{{- call.function.arguments | tojson }}{%- endif %}"
    "{{- '}\\n</tool_call>' }}{%- endfor %}{%- endif %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

struct maker {
    const struct mkgguf_params *p;
    struct gguf_writer w;
    struct arena arena;
    float *values;
    void *blocks;
    size_t values_cap;
    struct t9_err *err;
    t9_status st; /* sticky */
};

static void make_fail(struct maker *m, t9_status code, const char *what)
{
    if (m->st == T9_STATUS_OK)
        m->st = t9_fail(m->err, code, "%s", what);
}

/* ---- weights ---- */

/* Value i of the stream `seed`: the sum of four uniforms, close to a normal of deviation 1. */
static float random_normal(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    float sum = 0;
    for (int k = 0; k < 4; k++)
        sum += (float)(z >> (16 * k) & 0xFFFF) - 32767.5f;
    return sum * (1.0f / 37837.2f); /* deviation of the sum: 65536 * sqrt(4 / 12) */
}

/* The type that a row of n_in values can have. */
static uint32_t usable_dtype(uint32_t dtype, uint64_t n_in)
{
    const struct dtype_info *info = gguf_dtype_get(dtype);
    if (n_in % info->block_elems == 0)
        return dtype;
    uint32_t small;
    switch (dtype) {
    case DTYPE_Q4_K: small = DTYPE_Q5_0; break;
    case DTYPE_Q5_K: small = DTYPE_Q5_1; break;
    case DTYPE_Q6_K: small = DTYPE_Q8_0; break;
    case DTYPE_IQ1_S:
    case DTYPE_IQ1_M:
    case DTYPE_IQ2_XXS:
    case DTYPE_IQ2_XS:
    case DTYPE_IQ2_S:
    case DTYPE_IQ3_XXS:
    case DTYPE_IQ3_S:
    case DTYPE_IQ4_XS: small = DTYPE_IQ4_NL; break;
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0:
    case DTYPE_Q2_K:
    case DTYPE_Q3_K: small = DTYPE_Q4_0; break;
    default: small = DTYPE_F16; break;
    }
    return n_in % gguf_dtype_get(small)->block_elems == 0 ? small : (uint32_t)DTYPE_F16;
}

/* Adds a tensor [n_in, ...]: mean + deviation * normal. */
static void add_values(struct maker *m, const char *name, uint32_t dtype, const uint64_t ne[3],
                       uint32_t n_dims, float mean, float deviation)
{
    const uint64_t n_in = ne[0], n = n_in * (n_dims > 1 ? ne[1] : 1) * (n_dims > 2 ? ne[2] : 1);
    if (m->st != T9_STATUS_OK)
        return;
    dtype = usable_dtype(dtype, n_in);
    if (n > m->values_cap) {
        mem_free(m->values);
        mem_free(m->blocks);
        m->values = mem_calloc(n, sizeof *m->values);
        m->blocks = mem_calloc(n, sizeof *m->values);
        m->values_cap = m->values && m->blocks ? n : 0;
        if (m->values_cap == 0) {
            make_fail(m, T9_STATUS_NOMEM, "out of memory for a tensor");
            return;
        }
    }
    const uint64_t seed = hash_xxh3_64(name, strlen(name), m->p->seed);
    for (uint64_t i = 0; i < n; i++)
        m->values[i] = mean + deviation * random_normal(seed, i);
    t9_status st = quantize_row(dtype, m->values, m->blocks, n, m->err);
    if (st != T9_STATUS_OK) {
        m->st = st;
        return;
    }
    gw_tensor(&m->w, name, dtype, n_dims, ne, m->blocks, dtype_row_bytes(dtype, n_in) * (n / n_in));
}

/* n_out rows, 0: a vector. */
static void add_tensor(struct maker *m, const char *name, uint32_t dtype, uint64_t n_in,
                       uint64_t n_out, float mean, float deviation)
{
    const uint64_t ne[3] = {n_in, n_out, 1};
    add_values(m, name, dtype, ne, n_out ? 2 : 1, mean, deviation);
}

static void add_matrix(struct maker *m, uint32_t layer, const char *what, uint64_t n_in,
                       uint64_t n_out, bool better)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, what);
    const uint32_t dtype = better && m->p->mix ? (uint32_t)DTYPE_Q6_K : m->p->dtype;
    add_tensor(m, name, dtype, n_in, n_out, 0, 1 / sqrtf((float)n_in));
}

static void add_vector(struct maker *m, uint32_t layer, const char *what, uint64_t n, float mean)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.%s", layer, what);
    add_tensor(m, name, DTYPE_F32, n, 0, mean, 0.1f);
}

static bool is_gemma3(const struct mkgguf_params *p)
{
    return strcmp(p->arch, "gemma3") == 0;
}

static bool is_gemma4(const struct mkgguf_params *p)
{
    return strcmp(p->arch, "gemma4") == 0;
}

static bool is_gpt_oss(const struct mkgguf_params *p)
{
    return strcmp(p->arch, "gpt-oss") == 0;
}

static bool is_lfm2(const struct mkgguf_params *p)
{
    return strncmp(p->arch, "lfm2", 4) == 0;
}

static bool is_next(const struct mkgguf_params *p)
{
    return strcmp(p->arch, "qwen3next") == 0;
}

/* Has gated delta nets. */
static bool is_delta(const struct mkgguf_params *p)
{
    return is_next(p) || strncmp(p->arch, "qwen35", 6) == 0;
}

static uint32_t or_else(uint32_t given, uint32_t otherwise)
{
    return given ? given : otherwise;
}

/* Whether layer i keeps a state: all but one of each period, but never the last. */
static bool is_recurrent(const struct mkgguf_params *p, uint32_t i)
{
    return (is_lfm2(p) || is_delta(p)) && (i + 1) % or_else(p->period, 2) != 0 && i + 1 < p->layers;
}

/* Of those with experts, layers that have none: the first of lfm2moe. */
static bool is_dense(const struct mkgguf_params *p, uint32_t i)
{
    return is_lfm2(p) && i == 0 && p->layers > 1;
}

bool mkgguf_has_experts(const struct mkgguf_params *p)
{
    if (is_gemma4(p))
        return p->experts > 0;
    return is_gpt_oss(p) || is_next(p) || str_has_suffix(str_from(p->arch), STR("moe"));
}

static uint32_t ssm_heads(const struct mkgguf_params *p)
{
    return or_else(p->ssm_heads, 4);
}

static uint32_t n_experts(const struct mkgguf_params *p)
{
    return or_else(p->experts, 6);
}

/* A matrix of each expert, in gpt-oss with biases. */
static void add_stack(struct maker *m, uint32_t layer, const char *what, uint64_t n_in,
                      uint64_t n_out, bool better)
{
    char name[64];
    const uint64_t ne[3] = {n_in, n_out, n_experts(m->p)};
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, what);
    const uint32_t dtype = better && m->p->mix ? (uint32_t)DTYPE_Q6_K : m->p->dtype;
    add_values(m, name, dtype, ne, 3, 0, 1 / sqrtf((float)n_in));
    if (!is_gpt_oss(m->p))
        return;
    snprintf(name, sizeof name, "blk.%u.%s.bias", layer, what);
    add_tensor(m, name, DTYPE_F32, n_out, n_experts(m->p), 0, 0.1f);
}

static void add_experts(struct maker *m, uint32_t i, bool better)
{
    const struct mkgguf_params *p = m->p;
    char name[64];
    /* Wide logits: experts that are nearly equal are rare. */
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", i);
    add_tensor(m, name, DTYPE_F32, p->width, n_experts(p), 0, 3 / sqrtf((float)p->width));
    if (is_gpt_oss(p))
        add_vector(m, i, "ffn_gate_inp.bias", n_experts(p), 0);
    if (is_lfm2(p))
        add_vector(m, i, "exp_probs_b.bias", n_experts(p), 0);
    if (p->merged) {
        add_stack(m, i, "ffn_gate_up_exps", p->width, 2 * (uint64_t)p->ffn, false);
    } else {
        add_stack(m, i, "ffn_gate_exps", p->width, p->ffn, false);
        add_stack(m, i, "ffn_up_exps", p->width, p->ffn, false);
    }
    add_stack(m, i, "ffn_down_exps", p->ffn, p->width, better);
    if (!is_delta(p))
        return;
    add_vector(m, i, "ffn_gate_inp_shexp.weight", p->width, 0);
    add_matrix(m, i, "ffn_gate_shexp", p->width, p->ffn, false);
    add_matrix(m, i, "ffn_up_shexp", p->width, p->ffn, false);
    add_matrix(m, i, "ffn_down_shexp", p->ffn, p->width, better);
}

/* What gpt-oss has besides: sinks, biases, the norm before the experts by another name. */
static void add_gpt_oss(struct maker *m, uint32_t i, uint64_t n_q, uint64_t n_kv)
{
    add_vector(m, i, "attn_sinks.weight", m->p->heads, 0.5f);
    add_vector(m, i, "attn_q.bias", n_q, 0);
    add_vector(m, i, "attn_k.bias", n_kv, 0);
    add_vector(m, i, "attn_v.bias", n_kv, 0);
    add_vector(m, i, "attn_output.bias", m->p->width, 0);
    add_vector(m, i, "post_attention_norm.weight", m->p->width, 1);
}

/* gemma4: the last layer is full, and each second one before it. */
static bool slides(const struct mkgguf_params *p, uint32_t i)
{
    return (p->layers - 1 - i) % 2 == 1;
}

/* Without per-layer inputs its full layers have fewer KV heads, and no matrix for values. */
static uint32_t gemma4_kv_heads(const struct mkgguf_params *p, uint32_t i)
{
    return p->ple == 0 && !slides(p, i) && p->kv_heads > 1 ? p->kv_heads / 2 : p->kv_heads;
}

static bool gemma4_shares_kv(const struct mkgguf_params *p, uint32_t i)
{
    return i >= p->layers - p->shared_kv;
}

static uint64_t gemma4_ffn(const struct mkgguf_params *p, uint32_t i)
{
    return (gemma4_shares_kv(p, i) ? 2 : 1) * (uint64_t)p->ffn;
}

static void add_gemma4_attention(struct maker *m, uint32_t i)
{
    const struct mkgguf_params *p = m->p;
    const uint64_t full = p->head_dim ? p->head_dim : p->width / p->heads;
    const uint64_t hd = slides(p, i) ? full / 2 : full;
    const uint64_t n_kv = hd * gemma4_kv_heads(p, i);
    /* Scores are not divided by anything: norms of about 1 / 8 in all keep them near 1. */
    add_vector(m, i, "attn_q_norm.weight", hd, 0.25f);
    add_matrix(m, i, "attn_q", p->width, hd * p->heads, false);
    add_matrix(m, i, "attn_output", hd * p->heads, p->width, false);
    if (gemma4_shares_kv(p, i))
        return;
    add_vector(m, i, "attn_k_norm.weight", hd, 0.5f);
    add_matrix(m, i, "attn_k", p->width, n_kv, false);
    if (p->ple > 0 || slides(p, i))
        add_matrix(m, i, "attn_v", p->width, n_kv, i % 2 == 0);
}

static void add_gemma4_experts(struct maker *m, uint32_t i)
{
    const struct mkgguf_params *p = m->p;
    add_experts(m, i, i % 2 == 0);
    add_vector(m, i, "ffn_gate_inp.scale", p->width, sqrtf((float)p->width));
    add_vector(m, i, "ffn_down_exps.scale", n_experts(p), 1);
    add_vector(m, i, "post_ffw_norm_1.weight", p->width, 1);
    add_vector(m, i, "pre_ffw_norm_2.weight", p->width, 1);
    add_vector(m, i, "post_ffw_norm_2.weight", p->width, 1);
}

static void add_gemma4_layer(struct maker *m, uint32_t i)
{
    const struct mkgguf_params *p = m->p;
    add_vector(m, i, "attn_norm.weight", p->width, 1);
    add_gemma4_attention(m, i);
    add_vector(m, i, "post_attention_norm.weight", p->width, 1);
    add_vector(m, i, "ffn_norm.weight", p->width, 1);
    add_matrix(m, i, "ffn_gate", p->width, gemma4_ffn(p, i), false);
    add_matrix(m, i, "ffn_up", p->width, gemma4_ffn(p, i), false);
    add_matrix(m, i, "ffn_down", gemma4_ffn(p, i), p->width, i % 2 == 0);
    if (p->experts > 0)
        add_gemma4_experts(m, i);
    add_vector(m, i, "post_ffw_norm.weight", p->width, 1);
    add_vector(m, i, "layer_output_scale.weight", 1, 0.8f);
    if (p->ple == 0)
        return;
    add_matrix(m, i, "inp_gate", p->width, p->ple, false);
    add_matrix(m, i, "proj", p->ple, p->width, false);
    add_vector(m, i, "post_norm.weight", p->width, 0.5f);
}

/* What is not of one layer: a quarter of the pairs of full layers turns; per-layer inputs. */
static void add_gemma4(struct maker *m, uint32_t embd)
{
    const struct mkgguf_params *p = m->p;
    const uint64_t half = (p->head_dim ? p->head_dim : p->width / p->heads) / 2;
    const uint64_t ne[1] = {half};
    float *freqs = arena_calloc(&m->arena, half, sizeof *freqs);
    if (!freqs) {
        make_fail(m, T9_STATUS_NOMEM, "out of memory for a tensor");
        return;
    }
    for (uint64_t i = 0; i < half; i++)
        freqs[i] = i < half / 4 ? 1 : 1e30f;
    gw_tensor(&m->w, "rope_freqs.weight", DTYPE_F32, 1, ne, freqs, half * sizeof *freqs);
    if (p->ple == 0)
        return;
    const uint64_t n = (uint64_t)p->ple * p->layers;
    add_tensor(m, "per_layer_token_embd.weight", embd, n, p->vocab, 0, 1 / sqrtf((float)p->ple));
    add_tensor(m, "per_layer_model_proj.weight", p->dtype, p->width, n, 0,
               1 / sqrtf((float)p->width));
    add_tensor(m, "per_layer_proj_norm.weight", DTYPE_F32, p->ple, 0, 1, 0.1f);
}

static void add_short_conv(struct maker *m, uint32_t i)
{
    const uint64_t width = m->p->width;
    char name[64];
    add_matrix(m, i, "shortconv.in_proj", width, 3 * width, false);
    snprintf(name, sizeof name, "blk.%u.shortconv.conv.weight", i);
    add_tensor(m, name, DTYPE_F32, MKGGUF_TAPS, width, 0, 0.6f);
    add_matrix(m, i, "shortconv.out_proj", width, width, false);
}

static void add_delta(struct maker *m, uint32_t i)
{
    const struct mkgguf_params *p = m->p;
    const uint64_t dim = or_else(p->ssm_dim, MKGGUF_SSM_DIM), heads = ssm_heads(p);
    const uint64_t keys = or_else(p->ssm_key_heads, 2) * dim, values = heads * dim;
    char name[64];
    if (is_next(p) && p->merged) {
        add_matrix(m, i, "ssm_in", p->width, 2 * (keys + values), false);
    } else {
        add_matrix(m, i, "attn_qkv", p->width, 2 * keys + values, false);
        add_matrix(m, i, "attn_gate", p->width, values, false);
    }
    if (is_next(p)) {
        add_matrix(m, i, "ssm_ba", p->width, 2 * heads, false);
    } else {
        add_matrix(m, i, "ssm_alpha", p->width, heads, false);
        add_matrix(m, i, "ssm_beta", p->width, heads, false);
    }
    snprintf(name, sizeof name, "blk.%u.ssm_conv1d.weight", i);
    add_tensor(m, name, DTYPE_F32, MKGGUF_SSM_TAPS, 2 * keys + values, 0, 0.6f);
    add_vector(m, i, "ssm_a", heads, -0.6f);
    add_vector(m, i, "ssm_dt.bias", heads, 0);
    add_vector(m, i, "ssm_norm.weight", dim, 1);
    add_matrix(m, i, "ssm_out", values, p->width, false);
}

static void add_attention(struct maker *m, uint32_t i)
{
    const struct mkgguf_params *p = m->p;
    const uint64_t hd = p->head_dim ? p->head_dim : p->width / p->heads;
    const uint64_t n_q = hd * p->heads;
    const uint64_t n_kv = hd * p->kv_heads;
    const bool better = i % 2 == 0;
    add_matrix(m, i, "attn_q", p->width, is_delta(p) ? 2 * n_q : n_q, false);
    add_matrix(m, i, "attn_k", p->width, n_kv, false);
    add_matrix(m, i, "attn_v", p->width, n_kv, better);
    add_matrix(m, i, "attn_output", n_q, p->width, false);
    if (strcmp(p->arch, "qwen2") == 0) {
        add_vector(m, i, "attn_q.bias", n_q, 0);
        add_vector(m, i, "attn_k.bias", n_kv, 0);
        add_vector(m, i, "attn_v.bias", n_kv, 0);
    }
    if (strncmp(p->arch, "qwen3", 5) == 0 || is_gemma3(p) || is_lfm2(p)) {
        add_vector(m, i, "attn_q_norm.weight", hd, 1);
        add_vector(m, i, "attn_k_norm.weight", hd, 1);
    }
    if (is_gemma3(p)) {
        add_vector(m, i, "post_attention_norm.weight", p->width, 1);
        add_vector(m, i, "post_ffw_norm.weight", p->width, 1);
    }
    if (is_gpt_oss(p))
        add_gpt_oss(m, i, n_q, n_kv);
}

static void add_layer(struct maker *m, uint32_t i)
{
    const struct mkgguf_params *p = m->p;
    const bool better = i % 2 == 0;
    add_vector(m, i, "attn_norm.weight", p->width, 1);
    if (!is_recurrent(p, i))
        add_attention(m, i);
    else if (is_lfm2(p))
        add_short_conv(m, i);
    else
        add_delta(m, i);
    if (!is_gpt_oss(p))
        add_vector(m, i, is_delta(p) ? "post_attention_norm.weight" : "ffn_norm.weight", p->width,
                   1);
    if (mkgguf_has_experts(p) && !is_dense(p, i)) {
        add_experts(m, i, better);
        return;
    }
    add_matrix(m, i, "ffn_gate", p->width, p->ffn, false);
    add_matrix(m, i, "ffn_up", p->width, p->ffn, false);
    add_matrix(m, i, "ffn_down", p->ffn, p->width, better);
}

static void add_tensors(struct maker *m)
{
    const struct mkgguf_params *p = m->p;
    const uint32_t embd = p->mix ? (uint32_t)DTYPE_Q6_K : p->dtype;
    /* Logits then have a deviation of about 3: greedy choices stand clear of rounding. */
    const float deviation = 3 / sqrtf((float)p->width);
    add_tensor(m, "token_embd.weight", embd, p->width, or_else(p->rows, p->vocab), 0, deviation);
    if (is_gemma4(p))
        add_gemma4(m, embd);
    for (uint32_t i = 0; i < p->layers; i++) {
        if (is_gemma4(p))
            add_gemma4_layer(m, i);
        else
            add_layer(m, i);
    }
    if (p->draft) {
        add_layer(m, p->layers);
        add_matrix(m, p->layers, "nextn.eh_proj", 2 * (uint64_t)p->width, p->width, false);
    }
    add_tensor(m, is_lfm2(p) ? "token_embd_norm.weight" : "output_norm.weight", DTYPE_F32, p->width,
               0, 1, 0.1f);
    if (p->untied || is_gpt_oss(p))
        add_tensor(m, "output.weight", embd, p->width, or_else(p->rows, p->vocab), 0, deviation);
}

/* ---- tokenizer ---- */

/* The byte-level alphabet: printable bytes stand for themselves, others for U+0100 and up. */
static str byte_piece(struct arena *a, int byte)
{
    char z[4];
    uint32_t n_before = 0;
    for (int b = 0; b <= byte; b++) {
        bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte)
            return arena_str(a, (str){z, utf8_encode(plain ? (uint32_t)b : 256 + n_before, z)});
        n_before += !plain;
    }
    return (str){NULL, 0};
}

static str joined(struct arena *a, str x, const char *between, str y)
{
    size_t n_mid = strlen(between);
    char *p = arena_alloc(a, x.n + n_mid + y.n + 1);
    if (!p)
        return (str){NULL, 0};
    memcpy(p, x.p, x.n);
    memcpy(p + x.n, between, n_mid);
    memcpy(p + x.n + n_mid, y.p, y.n);
    return (str){p, x.n + n_mid + y.n};
}

/* The most frequent neighbouring pair in ids (words are separated by -1); its count. */
static uint32_t best_pair(const int *ids, size_t n, int *left, int *right)
{
    uint32_t best = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (ids[i] < 0 || ids[i + 1] < 0)
            continue;
        uint32_t count = 0;
        for (size_t k = i; k + 1 < n; k++)
            count += ids[k] == ids[i] && ids[k + 1] == ids[i + 1];
        if (count > best) {
            best = count;
            *left = ids[i];
            *right = ids[i + 1];
        }
    }
    return best;
}

static size_t replace_pair(int *ids, size_t n, int left, int right, int merged)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && ids[i] == left && ids[i + 1] == right) {
            ids[out++] = merged;
            i++;
        } else {
            ids[out++] = ids[i];
        }
    }
    return out;
}

/* The corpus as byte ids, with -1 before each word; a word takes the space before it. */
static size_t corpus_ids(int *ids)
{
    size_t n = 0;
    for (size_t i = 0; i + 1 < sizeof corpus; i++) {
        char c = corpus[i];
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z';
        char before = i ? corpus[i - 1] : ' ';
        bool after_letter = (before | 32) >= 'a' && (before | 32) <= 'z';
        if (!letter || (!after_letter && before != ' '))
            ids[n++] = -1;
        ids[n++] = (unsigned char)c;
    }
    return n;
}

/* Learns merges until `end` tokens exist; returns how many tokens there are. */
static uint32_t learn_merges(struct maker *m, str *tokens, str *merges, uint32_t end)
{
    uint32_t n_tokens = 256;
    int *ids = mem_calloc(2 * sizeof corpus, sizeof *ids);
    if (!ids) {
        make_fail(m, T9_STATUS_NOMEM, "out of memory for the vocabulary");
        return n_tokens;
    }
    size_t n = corpus_ids(ids);
    int left = 0;
    int right = 0;
    while (n_tokens < end && best_pair(ids, n, &left, &right) > 1) {
        merges[n_tokens - 256] = joined(&m->arena, tokens[left], " ", tokens[right]);
        tokens[n_tokens] = joined(&m->arena, tokens[left], "", tokens[right]);
        n = replace_pair(ids, n, left, right, (int)n_tokens);
        n_tokens++;
    }
    mem_free(ids);
    return n_tokens;
}

static void add_tokenizer(struct maker *m)
{
    const char *special[MKGGUF_N_SPECIAL] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>",
                                             "<think>",       "</think>",     "<tool_call>",
                                             "</tool_call>"};
    if (m->p->fim) {
        special[3] = "<|fim_suffix|>";
        special[4] = "<|fim_middle|>";
        special[5] = "<|fim_prefix|>";
    }
    const uint32_t n = m->p->vocab;
    const uint32_t first_special = n - MKGGUF_N_SPECIAL;
    str *tokens = arena_calloc(&m->arena, n, sizeof *tokens);
    str *merges = arena_calloc(&m->arena, n, sizeof *merges);
    int32_t *types = arena_calloc(&m->arena, n, sizeof *types);
    if (!tokens || !merges || !types) {
        make_fail(m, T9_STATUS_NOMEM, "out of memory for the vocabulary");
        return;
    }
    for (int b = 0; b < 256; b++)
        tokens[b] = byte_piece(&m->arena, b);
    uint32_t n_learned = learn_merges(m, tokens, merges, first_special);
    for (uint32_t i = 0; i < n; i++) {
        char z[32];
        types[i] = 1;
        if (i >= first_special) {
            tokens[i] = str_from(special[i - first_special]);
            types[i] = i - first_special < 3 ? 3 : 4; /* control, user-defined */
        } else if (i >= n_learned) {
            snprintf(z, sizeof z, "<unused_%u>", i);
            tokens[i] = arena_str(&m->arena, str_from(z));
            types[i] = 5;
        }
        if (!tokens[i].p)
            make_fail(m, T9_STATUS_NOMEM, "out of memory for the vocabulary");
    }
    bool llama = strcmp(m->p->arch, "llama") == 0;
    gw_str(&m->w, "tokenizer.ggml.model", STR("gpt2"));
    gw_str(&m->w, "tokenizer.ggml.pre", llama ? STR("smollm") : STR("qwen2"));
    gw_arr_str(&m->w, "tokenizer.ggml.tokens", tokens, n);
    gw_arr(&m->w, "tokenizer.ggml.token_type", GGUF_TYPE_I32, types, n);
    gw_arr_str(&m->w, "tokenizer.ggml.merges", merges, n_learned - 256);
    gw_u32(&m->w, "tokenizer.ggml.bos_token_id", first_special);
    gw_u32(&m->w, "tokenizer.ggml.eos_token_id", first_special + 2);
    gw_u32(&m->w, "tokenizer.ggml.padding_token_id", first_special);
    gw_bool(&m->w, "tokenizer.ggml.add_bos_token", false);
    gw_str(&m->w, "tokenizer.chat_template", STR(chat_template));
}

/* ---- the model ---- */

static void arch_u32(struct maker *m, const char *what, uint32_t v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->p->arch, what);
    gw_u32(&m->w, key, v);
}

static void arch_f32(struct maker *m, const char *what, float v)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->p->arch, what);
    gw_f32(&m->w, key, v);
}

/* A layer without KV heads is a convolution. */
static void add_lfm2_keys(struct maker *m)
{
    const struct mkgguf_params *p = m->p;
    char key[96];
    uint32_t *n = arena_calloc(&m->arena, p->layers, sizeof *n);
    if (!n) {
        make_fail(m, T9_STATUS_NOMEM, "out of memory for the keys");
        return;
    }
    for (uint32_t i = 0; i < p->layers; i++)
        n[i] = is_recurrent(p, i) ? 0 : p->kv_heads;
    snprintf(key, sizeof key, "%s.attention.head_count_kv", p->arch);
    gw_arr(&m->w, key, GGUF_TYPE_U32, n, p->layers);
    arch_u32(m, "shortconv.l_cache", MKGGUF_TAPS);
    if (mkgguf_has_experts(p)) {
        arch_u32(m, "leading_dense_block_count", is_dense(p, 0));
        arch_u32(m, "expert_gating_func", 2);
    }
}

/* Key "gemma4.<what>", a number for each layer. */
static void gemma4_array(struct maker *m, const char *what, gguf_type type, const void *values)
{
    char key[96];
    snprintf(key, sizeof key, "gemma4.%s", what);
    gw_arr(&m->w, key, type, values, m->p->layers);
}

static void add_gemma4_keys(struct maker *m, uint32_t hd)
{
    const struct mkgguf_params *p = m->p;
    uint32_t *ffn = arena_calloc(&m->arena, 2 * (size_t)p->layers, sizeof *ffn);
    uint8_t *pattern = arena_calloc(&m->arena, p->layers, 1);
    if (!ffn || !pattern) {
        make_fail(m, T9_STATUS_NOMEM, "out of memory for keys");
        return;
    }
    for (uint32_t i = 0; i < p->layers; i++) {
        ffn[i] = (uint32_t)gemma4_ffn(p, i);
        ffn[p->layers + i] = gemma4_kv_heads(p, i);
        pattern[i] = slides(p, i);
    }
    gemma4_array(m, "feed_forward_length", GGUF_TYPE_U32, ffn);
    gemma4_array(m, "attention.head_count_kv", GGUF_TYPE_U32, ffn + p->layers);
    gemma4_array(m, "attention.sliding_window_pattern", GGUF_TYPE_BOOL, pattern);
    arch_u32(m, "attention.sliding_window", MKGGUF_WINDOW);
    arch_u32(m, "attention.shared_kv_layers", p->shared_kv);
    arch_u32(m, "attention.key_length_swa", hd / 2);
    arch_u32(m, "attention.value_length_swa", hd / 2);
    arch_u32(m, "rope.dimension_count_swa", hd / 2);
    arch_f32(m, "rope.freq_base_swa", 1000);
    arch_u32(m, "embedding_length_per_layer_input", p->ple);
    arch_f32(m, "final_logit_softcapping", 30);
}

/* How many pairs turn by each of three positions, of so many dimensions. */
static void add_sections(struct maker *m, uint32_t n_rot)
{
    int32_t half = (int32_t)n_rot / 2, third = half / 3;
    int32_t sections[] = {half - 2 * third, third, third, 0};
    char key[96];
    snprintf(key, sizeof key, "%s.rope.dimension_sections", m->p->arch);
    gw_arr(&m->w, key, GGUF_TYPE_I32, sections, 4);
}

static void add_delta_keys(struct maker *m, uint32_t n_rot)
{
    const struct mkgguf_params *p = m->p;
    const uint32_t dim = or_else(p->ssm_dim, MKGGUF_SSM_DIM), heads = ssm_heads(p);
    char key[96];
    bool *recurrent = arena_calloc(&m->arena, p->layers, sizeof *recurrent);
    if (!recurrent) {
        make_fail(m, T9_STATUS_NOMEM, "out of memory for the keys");
        return;
    }
    for (uint32_t i = 0; i < p->layers; i++)
        recurrent[i] = is_recurrent(p, i);
    arch_u32(m, "ssm.conv_kernel", MKGGUF_SSM_TAPS);
    arch_u32(m, "ssm.state_size", dim);
    arch_u32(m, "ssm.group_count", or_else(p->ssm_key_heads, 2));
    arch_u32(m, "ssm.time_step_rank", heads);
    arch_u32(m, "ssm.inner_size", heads * dim);
    arch_u32(m, "full_attention_interval", or_else(p->period, 2));
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", p->arch);
    if (p->layers % or_else(p->period, 2) != 0)
        gw_arr(&m->w, key, GGUF_TYPE_BOOL, recurrent, p->layers);
    if (!is_next(p))
        add_sections(m, n_rot);
    if (mkgguf_has_experts(p))
        arch_u32(m, "expert_shared_feed_forward_length", p->ffn);
}

static void add_keys(struct maker *m)
{
    const struct mkgguf_params *p = m->p;
    const uint32_t hd = p->head_dim ? p->head_dim : p->width / p->heads;
    gw_str(&m->w, "general.architecture", str_from(p->arch));
    gw_str(&m->w, "general.type", STR("model"));
    gw_str(&m->w, "general.name", STR("tempo9 test model"));
    gw_u32(&m->w, "general.quantization_version", 2);
    if (p->min_p != 0) {
        gw_f32(&m->w, "general.sampling.temp", 0.25f);
        gw_u32(&m->w, "general.sampling.top_k", 20);
        gw_f32(&m->w, "general.sampling.min_p", p->min_p);
    }
    arch_u32(m, "block_count", p->layers + p->draft);
    if (p->draft)
        arch_u32(m, "nextn_predict_layers", 1);
    arch_u32(m, "context_length", p->context);
    arch_u32(m, "embedding_length", p->width);
    if (is_gemma4(p))
        add_gemma4_keys(m, hd);
    else
        arch_u32(m, "feed_forward_length", p->ffn);
    arch_u32(m, "attention.head_count", p->heads);
    if (is_lfm2(p))
        add_lfm2_keys(m);
    else if (!is_gemma4(p))
        arch_u32(m, "attention.head_count_kv", p->kv_heads);
    arch_u32(m, "attention.key_length", hd);
    arch_u32(m, "attention.value_length", hd);
    const uint32_t n_rot = is_delta(p) ? hd / 4 * 2 : hd;
    arch_u32(m, "rope.dimension_count", n_rot);
    arch_u32(m, "vocab_size", p->vocab);
    arch_f32(m, "rope.freq_base", 10000);
    arch_f32(m, "attention.layer_norm_rms_epsilon", 1e-5f);
    if (is_gemma3(p)) {
        arch_u32(m, "attention.sliding_window", MKGGUF_WINDOW);
        arch_u32(m, "attention.sliding_window_pattern", 2);
        arch_f32(m, "rope.freq_base_swa", 1000);
    }
    if (mkgguf_has_experts(p)) {
        arch_u32(m, "expert_count", n_experts(p));
        arch_u32(m, "expert_used_count", or_else(p->experts_used, 2));
        arch_u32(m, "expert_feed_forward_length", p->ffn);
    }
    if (is_gpt_oss(p)) {
        arch_u32(m, "attention.sliding_window", MKGGUF_WINDOW);
        gw_str(&m->w, "gpt-oss.rope.scaling.type", STR("yarn"));
        arch_f32(m, "rope.scaling.factor", 8);
        arch_u32(m, "rope.scaling.original_context_length", 256);
    }
    if (is_delta(p))
        add_delta_keys(m, n_rot);
    if (strncmp(p->arch, "qwen3vl", 7) == 0) {
        add_sections(m, hd);
        arch_u32(m, "n_deepstack_layers", 1);
    }
    if (strcmp(p->arch, "mistral3") == 0) {
        arch_f32(m, "attention.temperature_scale", 0.1f);
        gw_str(&m->w, "mistral3.rope.scaling.type", STR("none"));
        arch_u32(m, "rope.scaling.original_context_length", MKGGUF_TEMPERATURE_EVERY);
    }
}

static t9_status check_params(const struct mkgguf_params *p, struct t9_err *err)
{
    const uint32_t hd = p->head_dim || p->heads < 1 ? p->head_dim : p->width / p->heads;
    static const char *const archs[] = {
        "gemma3", "gemma4", "gpt-oss",   "lfm2",     "lfm2moe",   "llama",   "mistral3",  "qwen2",
        "qwen3",  "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen3vl", "qwen3vlmoe"};
    bool known = false;
    for (size_t i = 0; i < T9_COUNT(archs); i++)
        known = known || strcmp(p->arch, archs[i]) == 0;
    if (!known)
        return t9_fail(err, T9_STATUS_INVALID,
                       "arch %s is not gemma3, gemma4, gpt-oss, lfm2, lfm2moe, llama, mistral3, "
                       "qwen2, qwen3, qwen35, qwen35moe, qwen3moe, qwen3next, qwen3vl or "
                       "qwen3vlmoe",
                       p->arch);
    if (p->vocab < 256 + MKGGUF_N_SPECIAL || p->vocab > VOCAB_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "vocab %u is not within %d to %d", p->vocab,
                       256 + MKGGUF_N_SPECIAL, VOCAB_MAX);
    if (p->width < 1 || p->width > DIM_MAX || p->ffn < 1 || p->ffn > DIM_MAX || p->layers < 1 ||
        p->layers > 1024 || p->head_dim > 1024)
        return t9_fail(err, T9_STATUS_INVALID, "width, ffn, layers or head size out of range");
    if (p->heads < 1 || p->heads > 1024 || p->kv_heads < 1 || p->heads % p->kv_heads != 0)
        return t9_fail(err, T9_STATUS_INVALID, "heads must be a multiple of kv_heads");
    if (p->head_dim == 0 && p->width % p->heads != 0)
        return t9_fail(err, T9_STATUS_INVALID, "width must be a multiple of heads");
    if (p->experts > 512 || p->experts_used > n_experts(p) || (p->merged && is_gpt_oss(p)))
        return t9_fail(err, T9_STATUS_INVALID, "experts out of range, or merged in gpt-oss");
    if (p->draft && !is_delta(p))
        return t9_fail(err, T9_STATUS_INVALID, "no draft head in architecture %s", p->arch);
    if (is_gemma4(p) && (hd % 4 != 0 || p->shared_kv + 2 > p->layers + (p->shared_kv == 0)))
        return t9_fail(err, T9_STATUS_INVALID, "head size no multiple of 4, or all layers share");
    if (p->period > 1024 || p->ssm_dim > 256 || p->ssm_heads > 1024 || p->ssm_key_heads > 1024 ||
        ssm_heads(p) % or_else(p->ssm_key_heads, 2) != 0)
        return t9_fail(err, T9_STATUS_INVALID, "a period or heads of the delta net out of range");
    const struct dtype_info *info = gguf_dtype_get(p->dtype);
    if (!info || info->removed)
        return t9_fail(err, T9_STATUS_INVALID, "type %u is unknown", p->dtype);
    return T9_STATUS_OK;
}

t9_status mkgguf_write(const char *path, const struct mkgguf_params *params, struct t9_err *err)
{
    struct maker m = {.p = params, .err = err};
    T9_TRY(check_params(params, err));
    gw_init(&m.w);
    arena_init(&m.arena, (size_t)64 << 20);
    add_keys(&m);
    add_tokenizer(&m);
    add_tensors(&m);
    if (m.st == T9_STATUS_OK)
        m.st = gw_write(&m.w, path, err);
    mem_free(m.values);
    mem_free(m.blocks);
    arena_deinit(&m.arena);
    gw_deinit(&m.w);
    return m.st;
}
