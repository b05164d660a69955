/*
 * model/arch/gemma3.c - architecture "gemma3": the text side of the Gemma 3 models.
 * docs/models/gemma3.md has tensors and quirks.
 *
 * Rotary halves after an RMS norm of each query and key head, no biases; five sliding layers to one
 * full one, each kind with its own rotary base; every branch is normed again before it is added;
 * GELU; embeddings times sqrt(width).
 */
#include "model/model_impl.h"

#include <math.h>

enum {
    PERIOD = 6,
    LAYERS_27B = 62, /* whose queries are scaled by width / heads, not by the head's size */
};

static t9_status hparams(struct model *m, const struct gguf *g, struct t9_err *err)
{
    struct hparams *hp = &m->hp;
    T9_TRY(hparams_read(m, g, true, err));
    T9_TRY(hparams_sliding(m, g, PERIOD, err));
    hp->act = ACT_GELU_TANH;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    if (hp->n_layers == LAYERS_27B && !gguf_kv_find(g, "gemma3.attention.scale"))
        hp->attn_scale = 1 / sqrtf((float)hp->n_embd / (float)hp->n_head);
    return T9_STATUS_OK;
}

const struct arch arch_gemma3 = {
    .name = "gemma3",
    .hparams = hparams,
    .blocks = {
        .qkv_bias = BIND_NO_BIAS, .other_bias = BIND_NO_BIAS, .qk_norm = true, .post_norms = true}};
