/*
 * model/arch/lfm2.c - architectures "lfm2" and "lfm2moe": LFM2 and LFM2.5, dense and with experts.
 * docs/models/lfm2.md and lfm2moe.md have tensors and quirks.
 *
 * Most layers have a short convolution in place of attention; a layer without KV heads is one. What
 * they remember of a sequence are the last inputs of their convolution.
 */
#include "model/model_impl.h"

static t9_status hparams_dense(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, true, err));
    T9_TRY(hparams_window(m, g, err));
    return hparams_short_conv(m, g, err);
}

static t9_status hparams_moe(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, true, err));
    hparams_ignore_window(m, g);
    T9_TRY(hparams_short_conv(m, g, err));
    return hparams_experts(m, g, err);
}

static t9_status bind(struct model *m, struct binder *b, int32_t il, struct t9_err *err)
{
    struct layer *l = &m->layers[il];
    int32_t n_embd = m->hp.n_embd;
    if (m->hp.recurrent[il]) {
        layer_new_state(m, il);
        T9_TRY(bind_vector(b, &l->attn_norm, il, "attn_norm.weight", n_embd, BIND_REQUIRED, err));
        T9_TRY(bind_matrix(b, &l->conv_in, il, "shortconv.in_proj.weight", n_embd, 3 * n_embd,
                           BIND_REQUIRED, err));
        T9_TRY(bind_conv(b, &l->conv, il, "shortconv.conv.weight", m->hp.state.taps, n_embd, err));
        T9_TRY(bind_matrix(b, &l->conv_out, il, "shortconv.out_proj.weight", n_embd, n_embd,
                           BIND_REQUIRED, err));
    } else {
        T9_TRY(bind_attention(m, b, il, err));
    }
    T9_TRY(bind_vector(b, &l->ffn_norm, il, "ffn_norm.weight", n_embd, BIND_REQUIRED, err));
    return bind_ffn(m, b, il, err);
}

/* x += W_out (C * conv(B * x')), where B, C and x' are the thirds of W_in norm(x). */
static void short_conv(struct cx *cx, const struct model *m, const struct batch *b, int32_t il,
                       const struct trunk *t)
{
    const struct layer *l = &m->layers[il];
    int32_t n = m->hp.n_embd;
    size_t mark = cx_mark(cx);
    struct view h = cx_alloc(cx, b->n_rows, n);
    struct view all = cx_alloc(cx, b->n_rows, 3 * n);
    struct view y = cx_alloc(cx, b->n_rows, n);
    struct view in = view_cols(all, 0, n), gate = view_cols(all, n, n),
                x = view_cols(all, 2 * n, n);

    op_rmsnorm(cx, h, t->x, l->attn_norm, m->hp.eps);
    op_matmul(cx, &all, h, &l->conv_in, 1);
    op_act_mul(cx, x, in, x, ACT_NONE);
    struct op_state state = block_state(m, b, il);
    op_conv_state(cx, y, x, l->conv, false, &state);
    op_act_mul(cx, y, gate, y, ACT_NONE);
    op_matmul_add(cx, t->x, y, l->conv_out);
    cx_release(cx, mark);
}

static const char *const moe_keys[] = {"expert_count", NULL};

#define SPEC                                                                                       \
    .blocks = {.qkv_bias = BIND_OPTIONAL,                                                          \
               .other_bias = BIND_NO_BIAS,                                                         \
               .qk_norm = true,                                                                    \
               .sigmoid_router = true,                                                             \
               .output_norm = "token_embd_norm.weight"},                                           \
    .hybrid = HYBRID_CONV, .bind = bind, .recurrent = short_conv

const struct arch arch_lfm2 = {.name = "lfm2", .hparams = hparams_dense, SPEC};
const struct arch arch_lfm2moe = {
    .name = "lfm2moe", .own_keys = moe_keys, .hparams = hparams_moe, SPEC};
