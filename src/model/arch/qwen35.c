/*
 * model/arch/qwen35.c - architectures "qwen35", "qwen35moe" (Qwen3.5, 3.6, 3.8; their text side)
 * and "qwen3next" (Qwen3-Next). docs/models/qwen35.md, qwen35moe.md and qwen3next.md have tensors
 * and quirks.
 *
 * Three of four layers have a gated delta net in place of attention, the fourth attends with a gate
 * on its result. Rotary halves of a part of each head after its RMS norm. Where there are experts,
 * all rows meet one more, by a gate of its own. Blocks of a draft head are known and not used.
 */
#include "model/model_impl.h"

#define DELTA_EPS 1e-6f /* of the length of queries and keys; files do not say it */

/* Converters put the value heads of a key head side by side for qwen3next, and for the others one
 * of each key head after the other. */
static bool is_tiled(const struct model *m)
{
    return m->arch != &arch_qwen3next;
}

static t9_status hparams_dense(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, true, err));
    T9_TRY(hparams_delta(m, g, err));
    return hparams_sections(m, g, err);
}

static t9_status hparams_next(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, true, err));
    T9_TRY(hparams_delta(m, g, err));
    T9_TRY(hparams_experts(m, g, err));
    return hparams_shared_expert(m, g, err);
}

static t9_status hparams_moe(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_next(m, g, err));
    return hparams_sections(m, g, err);
}

/* q, k, v and z, which old files of qwen3next have as one matrix: a key head's q and k, then v and
 * z of its value heads, and then the next key head's. */
static t9_status bind_qkvz(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    static const char fused[] = "ssm_in.weight";
    const struct state_shape *s = &m->hp.state;
    struct layer *l = &m->layers[il];
    int32_t n_embd = m->hp.n_embd, n_values = s->n_heads * s->value_dim;
    if (is_tiled(m) || binder_has(b, il, "attn_qkv.weight")) {
        T9_TRY(bind_matrix(b, &l->delta.qkv, il, "attn_qkv.weight", n_embd, s->channels,
                           BIND_REQUIRED, err));
        return bind_matrix(b, &l->delta.z, il, "attn_gate.weight", n_embd, n_values, BIND_REQUIRED,
                           err);
    }
    int32_t k = s->key_dim, v = n_values / s->n_key_heads;
    struct row_groups rows = {s->n_key_heads, 2 * (k + v), 0, k};
    T9_TRY(bind_rows(b, &l->q, il, fused, n_embd, rows, err));
    rows.first = k;
    T9_TRY(bind_rows(b, &l->k, il, fused, n_embd, rows, err));
    rows.first = 2 * k;
    rows.run = v;
    T9_TRY(bind_rows(b, &l->v, il, fused, n_embd, rows, err));
    rows.first += v;
    return bind_rows(b, &l->delta.z, il, fused, n_embd, rows, err);
}

/* alpha and beta; in one matrix for qwen3next, of a key head first the betas of its value heads. */
static t9_status bind_gates(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    static const char fused[] = "ssm_ba.weight";
    const struct state_shape *s = &m->hp.state;
    struct layer_delta *d = &m->layers[il].delta;
    int32_t n_embd = m->hp.n_embd, n = s->n_heads / s->n_key_heads;
    if (is_tiled(m)) {
        T9_TRY(bind_matrix(b, &d->beta, il, "ssm_beta.weight", n_embd, s->n_heads, BIND_REQUIRED,
                           err));
        return bind_matrix(b, &d->alpha, il, "ssm_alpha.weight", n_embd, s->n_heads, BIND_REQUIRED,
                           err);
    }
    struct row_groups rows = {s->n_key_heads, 2 * n, 0, n};
    T9_TRY(bind_rows(b, &d->beta, il, fused, n_embd, rows, err));
    rows.first = n;
    return bind_rows(b, &d->alpha, il, fused, n_embd, rows, err);
}

static t9_status bind_delta(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    const struct state_shape *s = &m->hp.state;
    struct layer *l = &m->layers[il];
    struct layer_delta *d = &l->delta;
    int32_t n_embd = m->hp.n_embd;
    layer_new_state(m, il);
    T9_TRY(bind_vector(b, &l->attn_norm, il, "attn_norm.weight", n_embd, BIND_REQUIRED, err));
    T9_TRY(bind_qkvz(m, b, il, err));
    T9_TRY(bind_gates(m, b, il, err));
    T9_TRY(bind_conv(b, &d->conv, il, "ssm_conv1d.weight", s->taps, s->channels, err));
    /* Below 0 in trained models. Others are computed as they are: files of random weights that say
     * what other programs compute have values above 0, and nothing hangs on the sign. */
    T9_TRY(bind_vector(b, &d->a, il, "ssm_a", s->n_heads, BIND_REQUIRED, err));
    T9_TRY(bind_vector(b, &d->dt, il, "ssm_dt.bias", s->n_heads, BIND_REQUIRED, err));
    T9_TRY(bind_vector(b, &d->norm, il, "ssm_norm.weight", s->value_dim, BIND_REQUIRED, err));
    return bind_matrix(b, &d->out, il, "ssm_out.weight", s->n_heads * s->value_dim, n_embd,
                       BIND_REQUIRED, err);
}

static t9_status bind(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    if (!m->hp.recurrent[il])
        return bind_block(m, b, il, err);
    T9_TRY(bind_delta(m, b, il, err));
    T9_TRY(bind_vector(b, &m->layers[il].ffn_norm, il, m->arch->blocks.ffn_norm, m->hp.n_embd,
                       BIND_REQUIRED, err));
    return bind_ffn(m, b, il, err);
}

/* qkv = W h and z = W_z h. */
static void qkvz(struct cx *cx, const struct layer *l, const struct state_shape *s, struct view h,
                 struct view qkv, struct view z)
{
    int32_t n_keys = s->n_key_heads * s->key_dim;
    if (l->delta.qkv) {
        op_matmul(cx, (struct view[]){qkv, z}, h,
                  (const struct weight *[]){l->delta.qkv, l->delta.z}, 2);
        return;
    }
    op_matmul(cx,
              (struct view[]){view_cols(qkv, 0, n_keys), view_cols(qkv, n_keys, n_keys),
                              view_cols(qkv, 2 * n_keys, s->channels - 2 * n_keys)},
              h, (const struct weight *[]){l->q, l->k, l->v}, 3);
    op_matmul(cx, &z, h, &l->delta.z, 1);
}

/* x += W_out (norm(delta net) * silu(z)) */
static void delta(struct cx *cx, const struct model *m, const struct batch *b, int32_t il,
                  const struct trunk *t)
{
    const struct state_shape *s = &m->hp.state;
    const struct layer *l = &m->layers[il];
    const struct layer_delta *d = &l->delta;
    struct op_state state = block_state(m, b, il);
    size_t mark = cx_mark(cx);
    struct view h = cx_alloc(cx, b->n_rows, m->hp.n_embd);
    struct view qkv = cx_alloc(cx, b->n_rows, s->channels);
    struct view c = cx_alloc(cx, b->n_rows, s->channels);
    struct view z = cx_alloc(cx, b->n_rows, s->n_heads * s->value_dim);
    struct view alpha = cx_alloc(cx, b->n_rows, s->n_heads);
    struct view beta = cx_alloc(cx, b->n_rows, s->n_heads);
    struct view gates = cx_alloc(cx, b->n_rows, 2 * s->n_heads);
    struct view o = cx_alloc(cx, b->n_rows, s->n_heads * s->value_dim);

    op_rmsnorm(cx, h, t->x, l->attn_norm, m->hp.eps);
    qkvz(cx, l, s, h, qkv, z);
    op_matmul(cx, (struct view[]){alpha, beta}, h, (const struct weight *[]){d->alpha, d->beta}, 2);
    op_conv_state(cx, c, qkv, d->conv, true, &state);
    op_delta_prepare(
        cx, &(struct op_delta_prepare){c, gates, alpha, beta, d->a, d->dt, b->state, DELTA_EPS});
    op_delta_net(cx, o, c, gates, is_tiled(m), &state);
    op_rmsnorm(cx, o, o, d->norm, m->hp.eps);
    op_act_mul(cx, o, z, o, ACT_SILU);
    op_matmul_add(cx, t->x, o, d->out);
    cx_release(cx, mark);
}

static const char *const dense_keys[] = {"nextn_predict_layers", NULL};
static const char *const moe_keys[] = {"expert_count", "nextn_predict_layers", NULL};

#define SPEC(with_experts)                                                                         \
    .hybrid = HYBRID_DELTA, .bind = bind, .recurrent = delta,                                      \
    .blocks = {.qkv_bias = BIND_NO_BIAS,                                                           \
               .other_bias = BIND_NO_BIAS,                                                         \
               .qk_norm = true,                                                                    \
               .q_gate = true,                                                                     \
               .shared_expert = (with_experts),                                                    \
               .ffn_norm = "post_attention_norm.weight"}

const struct arch arch_qwen35 = {
    .name = "qwen35", .own_keys = dense_keys, .hparams = hparams_dense, SPEC(false)};
const struct arch arch_qwen35moe = {
    .name = "qwen35moe", .own_keys = moe_keys, .hparams = hparams_moe, SPEC(true)};
const struct arch arch_qwen3next = {
    .name = "qwen3next", .own_keys = moe_keys, .hparams = hparams_next, SPEC(true)};
