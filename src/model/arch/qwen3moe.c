/*
 * model/arch/qwen3moe.c - architecture "qwen3moe": the Qwen3 models with experts (30B-A3B, Coder,
 * 235B-A22B). docs/models/qwen3moe.md has tensors and quirks.
 *
 * As qwen3, with experts in every layer that has a router.
 */
#include "model/model_impl.h"

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, true, err));
    hparams_ignore_window(m, g);
    return hparams_experts(m, g, err);
}

static const char *const own_keys[] = {"expert_count", NULL};

const struct arch arch_qwen3moe = {
    .name = "qwen3moe",
    .own_keys = own_keys,
    .hparams = hparams,
    .blocks = {.qkv_bias = BIND_NO_BIAS, .other_bias = BIND_NO_BIAS, .qk_norm = true}};
