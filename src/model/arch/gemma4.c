/*
 * model/arch/gemma4.c - architecture "gemma4": the text side of the Gemma 4 models, dense, with
 * experts, and with per-layer embeddings. docs/models/gemma4.md has tensors and quirks.
 *
 * As gemma3, but sliding and full layers have heads of their own sizes, values are normed, keys may
 * be taken for values too, and the last layers may read an earlier layer's keys and values. Each
 * layer may have experts beside its plain feed-forward part, and may be given a few values of the
 * row's token; at its end the residual stream is scaled.
 */
#include "model/model_impl.h"

#include <math.h>

/* Layers whose attention has no keys of its own come last. */
static bool has_kv(const struct hparams *hp, int32_t il)
{
    return il < hp->n_layers - hp->n_shared_kv;
}

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct hparams *hp = &m->hp;
    uint32_t n_experts = 0;
    T9_TRY(hparams_read(m, g, true, err));
    if (!gguf_kv_find(g, "gemma4.attention.sliding_window_pattern"))
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "gemma4.attention.sliding_window_pattern is missing");
    if (!gguf_tensor_find(g, "rope_freqs.weight"))
        return t9_fail(err, T9_STATUS_CORRUPT, "tensor rope_freqs.weight is missing");
    T9_TRY(hparams_whole_heads(m, err));
    T9_TRY(hparams_sliding(m, g, 1, err));
    T9_TRY(hparams_sliding_heads(m, g, err));
    T9_TRY(hparams_gemma4(m, g, err));
    t9_status st = gguf_get_u32(g, "gemma4.expert_count", &n_experts, err);
    if (st != T9_STATUS_OK && st != T9_STATUS_NOT_FOUND)
        return st;
    if (n_experts > 0)
        T9_TRY(hparams_experts(m, g, err));
    hp->act = ACT_GELU_TANH;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->n_head_kv = 0; /* the most of any layer: bind */
    if (!gguf_kv_find(g, "gemma4.attention.scale"))
        hp->attn_scale = 1;
    return T9_STATUS_OK;
}

/* Once: what is not of one layer. */
static t9_status bind_shared(struct model *m, struct binder *b, struct t9_err *err)
{
    const struct hparams *hp = &m->hp;
    struct gemma4_model *g = &m->g4;
    int32_t width = hp->n_ple * hp->n_layers;
    T9_TRY(bind_ones(b, &g->ones, hp->head_dim, err));
    T9_TRY(bind_ones(b, &g->ones_sliding, hp->head_dim_sliding, err));
    if (hp->n_ple == 0)
        return T9_STATUS_OK;
    T9_TRY(bind_matrix(b, &g->ple_embd, -1, "per_layer_token_embd.weight", width, hp->n_vocab,
                       BIND_REQUIRED, err));
    T9_TRY(bind_matrix(b, &g->ple_proj, -1, "per_layer_model_proj.weight", hp->n_embd, width,
                       BIND_REQUIRED, err));
    return bind_scaled(b, &g->ple_norm, -1, "per_layer_proj_norm.weight", hp->n_ple, sqrtf(0.5f),
                       BIND_REQUIRED, err);
}

/* The last layer of the same kind that has keys of its own. */
static t9_status share_kv(struct model *m, int32_t il, struct t9_err *err)
{
    struct layer *l = &m->layers[il];
    int32_t from = m->hp.n_layers - m->hp.n_shared_kv - 1;
    while (from >= 0 && m->hp.sliding[from] != m->hp.sliding[il])
        from--;
    if (from < 0)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "layer %d has no layer of its kind before it to take keys and values from: "
                       "gemma4.attention.shared_kv_layers is %d of %d",
                       il, m->hp.n_shared_kv, m->hp.n_layers);
    l->kv_layer = m->layers[from].kv_layer;
    l->n_head_kv = m->layers[from].n_head_kv;
    return T9_STATUS_OK;
}

static t9_status bind_kv(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    struct layer *l = &m->layers[il];
    if (!has_kv(&m->hp, il)) {
        bind_unused(b, il, "attn_k.weight");
        bind_unused(b, il, "attn_v.weight");
        bind_unused(b, il, "attn_k_norm.weight");
        return share_kv(m, il, err);
    }
    T9_TRY(bind_layer_key(b, &l->n_head_kv, il, "attention.head_count_kv", m->hp.n_head, err));
    if (m->hp.n_head % l->n_head_kv != 0)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%d heads are no multiple of %d KV heads in layer %d", m->hp.n_head,
                       l->n_head_kv, il);
    int32_t n_embd = m->hp.n_embd, n_kv = l->n_head_kv * l->head_dim;
    layer_new_kv(m, il);
    if (l->n_head_kv > m->hp.n_head_kv)
        m->hp.n_head_kv = l->n_head_kv;
    l->v_norm = m->hp.sliding[il] ? m->g4.ones_sliding : m->g4.ones;
    T9_TRY(bind_matrix(b, &l->k, il, "attn_k.weight", n_embd, n_kv, BIND_REQUIRED, err));
    T9_TRY(bind_matrix(b, &l->v, il, "attn_v.weight", n_embd, n_kv,
                       m->hp.sliding[il] ? BIND_REQUIRED : BIND_OPTIONAL, err));
    return bind_vector(b, &l->k_norm, il, "attn_k_norm.weight", l->head_dim, BIND_REQUIRED, err);
}

static t9_status bind_attn(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    struct layer *l = &m->layers[il];
    int32_t n_embd = m->hp.n_embd;
    if (m->hp.sliding[il])
        l->head_dim = m->hp.head_dim_sliding;
    int32_t n_q = m->hp.n_head * l->head_dim;
    T9_TRY(bind_vector(b, &l->attn_norm, il, "attn_norm.weight", n_embd, BIND_REQUIRED, err));
    T9_TRY(bind_matrix(b, &l->q, il, "attn_q.weight", n_embd, n_q, BIND_REQUIRED, err));
    T9_TRY(bind_vector(b, &l->q_norm, il, "attn_q_norm.weight", l->head_dim, BIND_REQUIRED, err));
    T9_TRY(bind_kv(m, b, il, err));
    T9_TRY(bind_matrix(b, &l->o, il, "attn_output.weight", n_q, n_embd, BIND_REQUIRED, err));
    return bind_vector(b, &l->post_attn_norm, il, "post_attention_norm.weight", n_embd,
                       BIND_REQUIRED, err);
}

/* What a layer with experts has besides them. */
static t9_status bind_beside_experts(struct model *m, struct binder *b, int32_t il,
                                     struct t9_err *err)
{
    struct layer *l = &m->layers[il];
    struct gemma4_layer *g = &l->g4;
    int32_t n_embd = m->hp.n_embd, n_ff;
    T9_TRY(bind_layer_key(b, &n_ff, il, "feed_forward_length", FF_MAX, err));
    if (n_ff > m->hp.n_ff_max)
        m->hp.n_ff_max = n_ff;
    T9_TRY(bind_matrix(b, &g->gate, il, "ffn_gate.weight", n_embd, n_ff, BIND_REQUIRED, err));
    T9_TRY(bind_matrix(b, &g->up, il, "ffn_up.weight", n_embd, n_ff, BIND_REQUIRED, err));
    T9_TRY(bind_matrix(b, &g->down, il, "ffn_down.weight", n_ff, n_embd, BIND_REQUIRED, err));
    T9_TRY(bind_vector(b, &g->post_norm, il, "post_ffw_norm_1.weight", n_embd, BIND_REQUIRED, err));
    T9_TRY(
        bind_vector(b, &g->expert_norm, il, "pre_ffw_norm_2.weight", n_embd, BIND_REQUIRED, err));
    T9_TRY(bind_vector(b, &g->post_expert_norm, il, "post_ffw_norm_2.weight", n_embd, BIND_REQUIRED,
                       err));
    T9_TRY(bind_scaled(b, &g->router_norm, il, "ffn_gate_inp.scale", n_embd,
                       1 / sqrtf((float)n_embd), BIND_REQUIRED, err));
    return bind_vector(b, &l->expert_scale, il, "ffn_down_exps.scale", m->hp.n_experts,
                       BIND_REQUIRED, err);
}

static t9_status bind(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    struct layer *l = &m->layers[il];
    int32_t n_embd = m->hp.n_embd, n_ple = m->hp.n_ple;
    if (il == 0)
        T9_TRY(bind_shared(m, b, err));
    T9_TRY(bind_attn(m, b, il, err));
    T9_TRY(bind_vector(b, &l->ffn_norm, il, "ffn_norm.weight", n_embd, BIND_REQUIRED, err));
    T9_TRY(bind_ffn(m, b, il, err));
    if (l->router)
        T9_TRY(bind_beside_experts(m, b, il, err));
    T9_TRY(
        bind_vector(b, &l->post_ffn_norm, il, "post_ffw_norm.weight", n_embd, BIND_REQUIRED, err));
    l->g4.out_scale = 1;
    T9_TRY(bind_number(b, &l->g4.out_scale, il, "layer_output_scale.weight", err));
    if (n_ple == 0)
        return T9_STATUS_OK;
    T9_TRY(
        bind_matrix(b, &l->g4.ple_gate, il, "inp_gate.weight", n_embd, n_ple, BIND_REQUIRED, err));
    T9_TRY(bind_matrix(b, &l->g4.ple_proj, il, "proj.weight", n_ple, n_embd, BIND_REQUIRED, err));
    return bind_vector(b, &l->g4.ple_norm, il, "post_norm.weight", n_embd, BIND_REQUIRED, err);
}

/* What all layers are given of the rows' tokens, [T, n_layers * n_ple]: the sum of what a table has
 * of the token and of a normed product of its embedding, over sqrt(2), which is in the table's
 * factor and in the norm. The product's factor 1 / sqrt(n_embd) is in the norm's epsilon. */
static struct view layer_inputs(struct cx *cx, const struct model *m, const struct batch *b,
                                const struct trunk *t)
{
    const struct hparams *hp = &m->hp;
    struct view all = cx_alloc(cx, b->n_rows, m->g4.ple_proj->n_out), media = {0};
    size_t mark = cx_mark(cx);
    struct view of_token = cx_alloc(cx, b->n_rows, all.cols);
    if (b->embed_override)
        media = (struct view){(void *)(uintptr_t)b->embed_override, b->n_rows, 1, 1, VIEW_PTR, 0};
    op_matmul(cx, &all, t->x, &m->g4.ple_proj, 1);
    op_rmsnorm(cx, all, all, m->g4.ple_norm, hp->eps * (float)hp->n_embd);
    op_embed_tokens(cx, of_token, view_i32(b->token, b->n_rows, 1), media, m->g4.ple_embd,
                    sqrtf((float)hp->n_ple / 2));
    op_add(cx, all, all, of_token);
    cx_release(cx, mark);
    return all;
}

/* x += norm(W_proj (act(W_gate x) * inputs)) */
static void add_inputs(struct cx *cx, const struct model *m, int32_t il, const struct trunk *t,
                       struct view inputs)
{
    const struct layer *l = &m->layers[il];
    int32_t n = m->hp.n_ple;
    size_t mark = cx_mark(cx);
    struct view gate = cx_alloc(cx, t->x.rows, n);
    struct view y = cx_alloc(cx, t->x.rows, m->hp.n_embd);
    struct view own = inputs;
    own.p = (float *)inputs.p + (size_t)il * (size_t)n;
    own.cols = n;
    op_matmul(cx, &gate, t->x, &l->g4.ple_gate, 1);
    op_act_mul(cx, gate, gate, own, m->hp.act);
    op_matmul(cx, &y, gate, &l->g4.ple_proj, 1);
    op_rmsnorm(cx, y, y, l->g4.ple_norm, m->hp.eps);
    op_add(cx, t->x, t->x, y);
    cx_release(cx, mark);
}

/* x += norm(norm(plain part) + norm(experts)). The router sees x, normed in its own way. */
static void ffn_and_experts(struct cx *cx, const struct model *m, int32_t il, const struct trunk *t)
{
    const struct layer *l = &m->layers[il];
    const struct gemma4_layer *g = &l->g4;
    float eps = m->hp.eps;
    int32_t rows = t->x.rows, n_embd = m->hp.n_embd;
    size_t mark = cx_mark(cx);
    struct view h = cx_alloc(cx, rows, n_embd);
    struct view router_in = cx_alloc(cx, rows, n_embd);
    struct view plain = cx_alloc(cx, rows, n_embd);
    struct view routed = cx_alloc(cx, rows, n_embd);
    size_t inner = cx_mark(cx);

    op_rmsnorm(cx, h, t->x, l->ffn_norm, eps);
    struct view gated = block_gated(cx, m, h, g->gate, g->up);
    op_matmul(cx, &plain, gated, &g->down, 1);
    op_rmsnorm(cx, plain, plain, g->post_norm, eps);
    cx_release(cx, inner);

    op_rmsnorm(cx, router_in, t->x, g->router_norm, eps);
    op_rmsnorm(cx, h, t->x, g->expert_norm, eps);
    block_experts(cx, m, l, router_in, h, routed, false);
    op_rmsnorm(cx, routed, routed, g->post_expert_norm, eps);

    op_add(cx, plain, plain, routed);
    op_rmsnorm(cx, plain, plain, l->post_ffn_norm, eps);
    op_add(cx, t->x, t->x, plain);
    cx_release(cx, mark);
}

static void forward(const struct model *m, struct cx *cx, const struct batch *b)
{
    struct trunk t = block_begin(cx, m, b);
    struct view inputs = {0};
    if (m->hp.n_ple > 0)
        inputs = layer_inputs(cx, m, b, &t);
    for (int32_t il = 0; il < m->hp.n_layers; il++) {
        const struct layer *l = &m->layers[il];
        cx->layer = (int16_t)il;
        block_attention(cx, m, b, il, &t);
        if (l->router)
            ffn_and_experts(cx, m, il, &t);
        else
            block_ffn(cx, m, b, il, &t);
        if (m->hp.n_ple > 0)
            add_inputs(cx, m, il, &t, inputs);
        if (l->g4.out_scale != 1)
            op_scale(cx, t.x, t.x, l->g4.out_scale);
    }
    cx->layer = -1;
    block_head(cx, m, b, &t);
}

static const char *const own_keys[] = {
    "final_logit_softcapping",    "expert_count",
    "attention.shared_kv_layers", "embedding_length_per_layer_input",
    "attention.head_count_kv",    NULL};

const struct arch arch_gemma4 = {.name = "gemma4",
                                 .own_keys = own_keys,
                                 .hparams = hparams,
                                 .blocks = {.qkv_bias = BIND_NO_BIAS, .other_bias = BIND_NO_BIAS},
                                 .bind = bind,
                                 .forward = forward};
