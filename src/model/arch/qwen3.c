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
    T9_TRY(hparams_read(m, g, true, err));
    hparams_ignore_window(m, g);
    return T9_STATUS_OK;
}

const struct arch arch_qwen3 = {
    .name = "qwen3",
    .hparams = hparams,
    .blocks = {.qkv_bias = BIND_NO_BIAS, .other_bias = BIND_NO_BIAS, .qk_norm = true}};
