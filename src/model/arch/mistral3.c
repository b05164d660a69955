/*
 * model/arch/mistral3.c - architecture "mistral3": Ministral 3 and its relatives, their text side.
 * docs/models/mistral3.md has tensors and quirks.
 *
 * The block of llama, with YaRN whose magnitude the file's log multiplier brings to 1, and queries
 * that grow with the logarithm of their position.
 */
#include "model/model_impl.h"

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, false, err));
    hparams_ignore_window(m, g);
    T9_TRY(hparams_whole_heads(m, err));
    return hparams_temperature(m, g, err);
}

static const char *const own_keys[] = {"attention.temperature_scale", NULL};

const struct arch arch_mistral3 = {
    .name = "mistral3",
    .own_keys = own_keys,
    .hparams = hparams,
    .blocks = {.qkv_bias = BIND_OPTIONAL, .other_bias = BIND_OPTIONAL}};
