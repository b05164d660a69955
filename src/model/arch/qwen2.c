/*
 * model/arch/qwen2.c - architecture "qwen2": Qwen2 and Qwen2.5 with Coder and Math, DeepSeek-R1
 * distillations on Qwen. docs/models/qwen2.md has tensors and quirks.
 *
 * Rotary halves, biases on Q, K and V and on nothing else.
 */
#include "model/model_impl.h"

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, true, err));
    hparams_ignore_window(m, g);
    return T9_STATUS_OK;
}

const struct arch arch_qwen2 = {.name = "qwen2",
                                .hparams = hparams,
                                .old_freq_base = true,
                                .blocks = {.qkv_bias = BIND_REQUIRED, .other_bias = BIND_NO_BIAS}};
