/*
 * model/arch/qwen3vl.c - architecture "qwen3vl": the dense Qwen3-VL models, their text side.
 * docs/models/qwen3vl.md has tensors and quirks.
 *
 * The block of qwen3; media rows have three positions (time, height, width), whose pairs are
 * interleaved, and inputs of their own behind the first layers. Rows of text have the same position
 * three times and are computed as in qwen3.
 */
#include "model/model_impl.h"

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, true, err));
    hparams_ignore_window(m, g);
    T9_TRY(hparams_sections(m, g, err));
    return hparams_deepstack(m, g, err);
}

const struct arch arch_qwen3vl = {
    .name = "qwen3vl",
    .hparams = hparams,
    .blocks = {.qkv_bias = BIND_NO_BIAS, .other_bias = BIND_NO_BIAS, .qk_norm = true}};
