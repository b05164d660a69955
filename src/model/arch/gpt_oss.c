/*
 * model/arch/gpt_oss.c - architecture "gpt-oss": gpt-oss 20B and 120B. docs/models/gpt-oss.md has
 * tensors and quirks.
 *
 * Rotary halves with YaRN in every layer, biases everywhere, a sink of each head, a window in every
 * other layer, experts with a clamped gate.
 */
#include "model/model_impl.h"

enum { PERIOD = 2 };

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct hparams *hp = &m->hp;
    T9_TRY(hparams_read(m, g, true, err));
    T9_TRY(hparams_experts(m, g, err));
    T9_TRY(hparams_sliding(m, g, PERIOD, err));
    if (hp->rope.scaling != ROPE_SCALING_YARN)
        return t9_fail(err, T9_STATUS_CORRUPT, "gpt-oss.rope.scaling.type is not yarn");
    float base = hp->rope_sliding.freq_base;
    hp->rope.yarn_exact = true; /* the models were made so, and no file says it */
    hp->rope_sliding = hp->rope;
    if (gguf_kv_find(g, "gpt-oss.rope.freq_base_swa"))
        hp->rope_sliding.freq_base = base;
    hp->act = ACT_SWIGLU_CLAMPED;
    return T9_STATUS_OK;
}

static const char *const own_keys[] = {"expert_count", NULL};

const struct arch arch_gpt_oss = {.name = "gpt-oss",
                                  .own_keys = own_keys,
                                  .hparams = hparams,
                                  .blocks = {.qkv_bias = BIND_REQUIRED,
                                             .other_bias = BIND_REQUIRED,
                                             .sinks = true,
                                             .untied = true,
                                             .ffn_norm = "post_attention_norm.weight"}};
