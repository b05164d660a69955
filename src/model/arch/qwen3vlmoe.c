/*
 * model/arch/qwen3vlmoe.c - architecture "qwen3vlmoe": the Qwen3-VL models with experts, their text
 * side. docs/models/qwen3vlmoe.md has tensors and quirks.
 *
 * The blocks of qwen3moe, with the positions and the inputs behind layers of qwen3vl.
 */
#include "model/model_impl.h"

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, true, err));
    hparams_ignore_window(m, g);
    T9_TRY(hparams_experts(m, g, err));
    T9_TRY(hparams_sections(m, g, err));
    return hparams_deepstack(m, g, err);
}

static const char *const own_keys[] = {"expert_count", NULL};

const struct arch arch_qwen3vlmoe = {
    .name = "qwen3vlmoe",
    .own_keys = own_keys,
    .hparams = hparams,
    .blocks = {.qkv_bias = BIND_NO_BIAS, .other_bias = BIND_NO_BIAS, .qk_norm = true}};
