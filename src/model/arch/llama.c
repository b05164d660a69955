/*
 * model/arch/llama.c - architecture "llama": Llama 1 to 3.x, SmolLM2, TinyLlama, Mistral 7B, Nemo
 * and Small, and many others. docs/models/llama.md has tensors and quirks.
 *
 * Adjacent rotary pairs (converters permute Q and K rows to fit), optional biases, optional
 * frequency factors in rope_freqs.weight.
 */
#include "model/model_impl.h"

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    T9_TRY(hparams_read(m, g, false, err));
    hparams_ignore_window(m, g);
    return hparams_whole_heads(m, err);
}

const struct arch arch_llama = {.name = "llama",
                                .hparams = hparams,
                                .old_freq_base = true,
                                .blocks = {.qkv_bias = BIND_OPTIONAL, .other_bias = BIND_OPTIONAL}};
