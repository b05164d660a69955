/*
 * model/model.h - loads a GGUF file's hyper-parameters and weights for a backend and runs forwards.
 *
 * Each family of architectures is one file in model/arch/: how to read their hyper-parameters, in
 * what their blocks differ, and where it must be, their own binding and forward. A model is
 * immutable after load; forwards are called by the engine thread.
 */
#ifndef T9_MODEL_MODEL_H
#define T9_MODEL_MODEL_H

#include "backend/be.h"
#include "base/err.h"
#include "gguf/gguf.h"
#include "model/batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;

struct model_info {
    const char *arch; /* one of model_known_archs() */
    str name;         /* general.name or empty */
    int32_t n_layers, n_embd, n_vocab, n_head, n_head_kv, head_dim, n_ff;
    int32_t context_length;            /* what the file declares */
    int32_t n_recurrent;               /* layers that keep a state instead of keys and values */
    int32_t n_experts, n_experts_used; /* of layers that have experts; 0: none has */
    uint64_t n_params;                 /* elements of all tensors in the file */
    uint64_t n_expert_params;          /* of these, in the experts' matrices */
    uint64_t n_table_params;           /* of these, in what is only looked up: per-layer inputs */
    uint64_t n_draft_params;           /* of these, in a draft head's blocks, which are not used */
    int64_t n_query;                   /* query heads times their size, over all layers */
    uint64_t weight_bytes;             /* as loaded */
};

struct model_load_params {
    /* Called from the loading thread with bytes done and in all; return false to cancel. May be
     * NULL. */
    bool (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
    void *ctx;
};

/* `g` and `be` must outlive the model. Refused by name: unknown architecture (with the list of
 * known ones), missing or mis-shaped tensors, tensors that no known key explains; known but unused
 * tensors are listed in the log. */
t9_status model_load(struct model **out, const struct gguf *g, struct be *be,
                     const struct model_load_params *params, struct t9_err *err);
/* Only what it says of the architecture: for those who read other things of the file first, and
 * would blame them. */
t9_status model_check_arch(const struct gguf *g, struct t9_err *err);
void model_free(struct model *m);
const struct model_info *model_info(const struct model *m);
/* Parameters that one row meets: all but those of the experts that it does not go to, of tables
 * that it is only looked up in, and of a draft head. */
static inline uint64_t model_n_params_met(const struct model_info *info)
{
    uint64_t n = info->n_params - info->n_table_params - info->n_draft_params;
    if (info->n_experts == 0)
        return n;
    uint64_t of_one = info->n_expert_params / (uint64_t)info->n_experts;
    return n - of_one * (uint64_t)(info->n_experts - info->n_experts_used);
}
/* Whether a tensor of the model's file is one that nothing reads, such as a draft head's. */
bool model_ignores_tensor(const struct model *m, str name);
/* Page geometry of this model's KV for a KV type. */
t9_status model_kv_geom(const struct model *m, kv_type type, struct kv_geom *out,
                        struct t9_err *err);
/* Geometry of the recurrent state of its sequences; no layers where the model has none. */
void model_state_geom(const struct model *m, struct state_geom *out);
/* Bytes of keys and values that a row at position `depth` reads in all layers. */
double model_kv_read_bytes(const struct model *m, const struct kv_geom *kv, double depth);
/* Submits the whole forward of `b` to the context's sink: logits (and hidden) of out_row. */
t9_status model_forward(const struct model *m, struct cx *cx, const struct batch *b,
                        struct t9_err *err);
/* Scratch bytes and tape length that any batch up to max_rows rows and max_outputs outputs needs.
 */
t9_status model_measure(const struct model *m, const struct kv_geom *kv, int32_t max_rows,
                        int32_t max_outputs, size_t *scratch_bytes, size_t *n_ops,
                        struct t9_err *err);
/* The architectures that model_load knows, separated by ", ". */
const char *model_known_archs(void);

#endif
