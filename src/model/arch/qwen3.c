/*
 * model/arch/qwen3.c - architecture "qwen3": the dense Qwen3 models. docs/models/qwen3.md has
 * tensors and quirks.
 *
 * Rotary halves after an RMS norm of each query and key head, no biases. The head's size need not
 * be width / heads.
 */
#include "model/model_impl.h"

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    return hparams_read(m, g, true, err);
}

static t9_status bind(struct model *m, struct binder *b, struct t9_err *err)
{
    static const struct block_spec spec = {
        .qkv_bias = BIND_NO_BIAS, .other_bias = BIND_NO_BIAS, .qk_norm = true};
    T9_TRY(bind_ends(m, b, err));
    return bind_blocks(m, b, &spec, err);
}

static void forward(const struct model *m, struct cx *cx, const struct batch *b)
{
    struct trunk t = block_begin(cx, m, b);
    for (int32_t il = 0; il < m->hp.n_layers; il++) {
        cx->layer = (int16_t)il;
        block_attention(cx, m, b, il, &t);
        block_ffn(cx, m, b, il, &t);
    }
    cx->layer = -1;
    block_head(cx, m, b, &t);
}

const struct arch arch_qwen3 = {"qwen3", hparams, bind, forward};
