/*
 * model/model_impl.h - private to model/: what an architecture file provides, and the pieces that
 * the architectures share (reading keys, binding tensors, rotary frequencies, blocks).
 *
 * To add an architecture: one file in arch/ that defines a `struct arch`, its line in load.c's
 * table, a page in docs/models/, a fixture in the model tests, and a small model for the fuzzer of
 * the loaders: made by tests/lib/mkgguf.c, or tests/data/models/shape-ARCH.
 */
#ifndef T9_MODEL_MODEL_IMPL_H
#define T9_MODEL_MODEL_IMPL_H

#include "model/model.h"

/* Sizes beyond these are refused: no released model comes near, and products stay in int32. */
enum {
    LAYERS_MAX = KV_LAYERS_MAX,
    EMBD_MAX = 1 << 18,
    FF_MAX = 1 << 22,
    HEADS_MAX = 2048,
    VOCAB_MAX = 1 << 24,
    ROPE_MAX = KV_HEAD_DIM_MAX,
    TEMPERATURES_MAX = 4096, /* entries of a query scale */
    PLE_MAX = 4096,          /* of a layer */
    EXPERTS_MAX = OP_EXPERTS_MAX,
    EXPERTS_USED_MAX = OP_SLOTS_MAX,
};

typedef enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,
    ROPE_SCALING_YARN
} rope_scaling;

struct rope_params {
    int32_t n_rot; /* rotated dimensions, even */
    bool neox;
    rope_scaling scaling;
    float freq_base;
    float factor; /* >= 1 by sense, > 0 by check */
    float original_context;
    float beta_fast, beta_slow;
    bool yarn_exact;      /* the limits of YaRN's ramp are not rounded to whole pairs */
    float log_multiplier; /* YaRN: 0, or the divisor's multiplier */
    float attn_factor;
};

struct hparams {
    int32_t n_layers, n_embd, n_head, n_head_kv, head_dim, context_length;
    int32_t n_draft_layers;   /* "nextn_predict_layers": blocks behind the layers, not used */
    int32_t n_kv_layers;      /* layers of a KV page, set while binding */
    struct state_shape state; /* of the recurrent layers; zeros: none */
    int32_t n_ff_max;         /* over layers */
    int32_t n_experts, n_experts_used, n_ff_expert; /* 0: no layer has experts */
    int32_t n_ff_shared;                            /* of the expert that all rows meet; 0: none */
    float route_scale;                              /* of experts' weights; sigmoids only */
    int32_t n_vocab;                                /* rows of token_embd */
    float eps;
    float attn_scale;
    float embd_scale; /* a token's embedding is multiplied by it */
    act_kind act;     /* of the feed-forward part */
    /* Queries at position p are multiplied by 1 + q_temperature * ln(1 + p / q_temperature_every),
     * the quotient rounded down; every 0: by nothing. */
    float q_temperature;
    int32_t q_temperature_every;
    int32_t window; /* keys that a sliding layer's row sees, its own included; 0: none slides */
    bool sliding[LAYERS_MAX];
    bool recurrent[LAYERS_MAX]; /* keeps a state; see struct arch */
    struct rope_params rope, rope_sliding;
    int32_t rope_h, rope_w; /* pairs that turn by h and w; see op_rope_angles_3d */
    int32_t n_deepstack;    /* layers that take inputs of media rows behind them */
    float logit_cap;        /* see op_softcap; 0: none */
    /* gemma4's; head_dim is then that of full layers. */
    int32_t head_dim_sliding;
    int32_t n_shared_kv; /* so many last layers read an earlier layer's keys and values */
    int32_t n_ple;       /* values that each layer is given of a token; 0: none */
};

/* What only layers of gemma4 have; see arch/gemma4.c. */
struct gemma4_layer {
    /* A plain feed-forward part beside the experts (NULL without), and the norms of both. */
    const struct weight *gate, *up, *down, *post_norm, *router_norm, *expert_norm,
        *post_expert_norm;
    const struct weight *ple_gate, *ple_proj, *ple_norm; /* NULL without hp.n_ple */
    float out_scale;
};

/* A gated delta net. */
struct layer_delta {
    const struct weight *qkv;                   /* NULL: q, k and v of the layer are its parts */
    const struct weight *z;                     /* silu of this times the normed result */
    const struct weight *alpha, *beta, *a, *dt; /* see op_delta_prepare */
    const struct weight *conv, *norm, *out;
};

/* One transformer block. Biases are in the weights that they belong to. */
struct layer {
    int32_t n_ff;
    int32_t n_head_kv, head_dim; /* the model's, where the architecture's `bind` says no other */
    /* Where its keys and values are in a page, its state in a slot; -1: it has none. Layers may
     * share keys and values. */
    int32_t kv_layer, state_layer;
    const struct weight *attn_norm, *q, *o;
    const struct weight *k; /* NULL: kv_layer is another layer's */
    const struct weight *v; /* NULL with k: values are its product, before norm and rotation */
    const struct weight *conv_in, *conv, *conv_out; /* in place of attention's; see arch/lfm2.c */
    const struct weight *q_gate; /* the sigmoid of this times attention's result; NULL without */
    const struct weight *q_norm, *k_norm; /* NULL without */
    const struct weight *v_norm;          /* ones, where each value head is normed; else NULL */
    const struct weight *sinks;           /* f32[n_head], NULL without */
    const struct weight *ffn_norm;
    const struct weight *router;           /* NULL: the next three are plain; else of experts */
    const struct weight *router_bias;      /* f32[n_experts], only to choose by; NULL without */
    const struct weight *gate, *up, *down; /* n_embd -> n_ff (two of them), and back */
    const struct weight *shared_router;    /* n_embd -> 1, of the shared expert; NULL without */
    const struct weight *shared_gate, *shared_up, *shared_down;
    struct layer_delta delta;          /* in place of attention's; see arch/qwen35.c */
    const struct weight *expert_scale; /* f32[n_experts] of op_moe_route; NULL without */
    const struct weight *post_attn_norm, *post_ffn_norm; /* of a branch before the add, or NULL */
    struct gemma4_layer g4;
};

/* What the rotary angles of a kind of layer are made of. */
struct rope_table {
    const struct weight *inv_freq; /* f32[n_rot / 2] */
    float magnitude;
};

struct model {
    struct model_info info;
    const struct arch *arch;
    struct be *be;
    struct hparams hp;
    char *name; /* what info.name points to */

    struct weight *weights; /* [n_weights] everything that was loaded */
    size_t n_weights, weights_cap;

    const struct weight *token_embd, *output_norm, *output; /* output == token_embd when tied */
    const struct weight *q_scale;         /* f32[n], see op_rope_store; NULL without */
    struct rope_table rope, rope_sliding; /* the second only where hp.window is not 0 */
    struct gemma4_model {
        const struct weight *ones, *ones_sliding; /* f32[head_dim] of a kind of layers */
        /* Of hp.n_ple, NULL without: a table of tokens and a product of the embedding, both
         * [n_layers][n_ple] wide, and the product's norm. */
        const struct weight *ple_embd, *ple_proj, *ple_norm;
    } g4;
    struct layer *layers; /* [n_layers] */
};

struct binder;

/* Flags of the bind functions; the last is for biases, see bind_linear. */
/* What is optional is so for the layers that ask for it together: all have it or none. */
enum { BIND_REQUIRED = 0, BIND_OPTIONAL = 1, BIND_NO_BIAS = 2 };

/* In what the blocks of the architectures differ. */
struct block_spec {
    int qkv_bias;   /* BIND_REQUIRED, BIND_OPTIONAL or BIND_NO_BIAS */
    int other_bias; /* of attn_output, the FFN, router and experts */
    bool qk_norm;
    bool post_norms;
    bool sinks;
    bool q_gate; /* attn_q has a head's query, then its gate */
    bool shared_expert;
    bool sigmoid_router;     /* see op_moe_route_sigmoid */
    bool untied;             /* "output.weight" must be there */
    const char *ffn_norm;    /* NULL: "ffn_norm.weight" */
    const char *output_norm; /* NULL: "output_norm.weight" */
};

/* How files say which layers are recurrent. */
typedef enum hybrid_kind {
    HYBRID_NONE,
    HYBRID_CONV,  /* "attention.head_count_kv" is 0 */
    HYBRID_DELTA, /* all but each "full_attention_interval"th, or "attention.recurrent_layers" */
} hybrid_kind;

struct trunk;

struct arch {
    const char *name;
    /* Keys that most architectures refuse and this one reads; NULL-terminated, NULL: none. */
    const char *const *own_keys;
    /* Reads keys into m->hp; refuses what this architecture cannot honour. */
    t9_status (*hparams)(struct model *m, const struct gguf *g, struct t9_err *err);
    struct block_spec blocks;
    hybrid_kind hybrid;
    bool old_freq_base; /* old files have no "rope.freq_base", and mean 10,000 */
    /* Tensors of a layer; NULL: bind_block. Takes layer_new_kv or another layer's kv_layer. */
    t9_status (*bind)(struct model *m, struct binder *b, int32_t il, struct t9_err *err);
    /* In place of attention in layers that keep a state; not NULL where hybrid is not NONE. */
    void (*recurrent)(struct cx *cx, const struct model *m, const struct batch *b, int32_t il,
                      const struct trunk *t);
    /* Submits the ops of a batch; NULL: blocks_forward. */
    void (*forward)(const struct model *m, struct cx *cx, const struct batch *b);
};
extern const struct arch arch_gemma3, arch_gemma4, arch_gpt_oss, arch_lfm2, arch_lfm2moe,
    arch_llama, arch_mistral3, arch_qwen2, arch_qwen3, arch_qwen35, arch_qwen35moe, arch_qwen3moe,
    arch_qwen3next, arch_qwen3vl, arch_qwen3vlmoe;

/* ---- hparams.c ---- */

/* The keys that all decoder models share, into m->hp; `neox` is the architecture's pairing. Refuses
 * keys that change the computation and that these architectures do not have (experts, soft-caps,
 * embedding scale, bidirectional attention, ...). */
t9_status hparams_read(struct model *m, const struct gguf *g, bool neox, struct t9_err *err);
/* For architectures whose released models attend to everything: logs a window that is ignored. */
void hparams_ignore_window(const struct model *m, const struct gguf *g);
/* For architectures that rotate whole heads: refuses another dimension_count. */
t9_status hparams_whole_heads(const struct model *m, struct t9_err *err);
/* "rope.dimension_sections": how many pairs turn by each of three positions, interleaved. */
t9_status hparams_sections(struct model *m, const struct gguf *g, struct t9_err *err);
/* "n_deepstack_layers", where the file has it. */
t9_status hparams_deepstack(struct model *m, const struct gguf *g, struct t9_err *err);
/* The query temperature, where the file has one: "attention.temperature_scale" over
 * "rope.scaling.original_context_length". */
t9_status hparams_temperature(struct model *m, const struct gguf *g, struct t9_err *err);
/* The window, which layers slide and their rotary base. A layer is full when it is the last of each
 * `period` ones, where the file does not give another period or each layer's kind. The sliding
 * layers' frequencies are not scaled. */
t9_status hparams_sliding(struct model *m, const struct gguf *g, uint32_t period,
                          struct t9_err *err);

/* "attention.sliding_window", where the file has one, of all layers that attend. */
t9_status hparams_window(struct model *m, const struct gguf *g, struct t9_err *err);
/* "shortconv.l_cache": the state of layers that are a convolution of the residual's width. */
t9_status hparams_short_conv(struct model *m, const struct gguf *g, struct t9_err *err);
/* After hparams_sliding, what sliding layers have of their own: "attention.key_length_swa",
 * "rope.dimension_count_swa"; as full layers where the file has none. */
t9_status hparams_sliding_heads(struct model *m, const struct gguf *g, struct t9_err *err);
/* "attention.shared_kv_layers", "embedding_length_per_layer_input", "final_logit_softcapping". */
t9_status hparams_gemma4(struct model *m, const struct gguf *g, struct t9_err *err);

/* expert_count, expert_used_count, expert_feed_forward_length, which must be there; refuses other
 * ways to route than the architecture's: the softmax over the chosen (that is, over all and
 * renormalised), or sigmoids over their sum. */
t9_status hparams_experts(struct model *m, const struct gguf *g, struct t9_err *err);
/* "expert_shared_feed_forward_length". */
t9_status hparams_shared_expert(struct model *m, const struct gguf *g, struct t9_err *err);
/* The state of layers with a gated delta net. */
t9_status hparams_delta(struct model *m, const struct gguf *g, struct t9_err *err);
/* More rows of token_embd.weight than tokens are padding. A token without one would be refused in
 * every prompt that has it. A file without a tokenizer is for those who have token ids. */
t9_status hparams_check_rows(const struct gguf *g, uint64_t n_rows, struct t9_err *err);

/* ---- relatives.c ---- */

/* What sets an architecture apart that is known and not supported; NULL for other names. */
const char *relative_find(str arch);

/* ---- rope.c ---- */

/* inv_freq[n_rot / 2] and the magnitude of cos and sin. `factors` (length n_rot / 2) divide the
 * frequencies; NULL = 1. Computed in double. */
void rope_frequencies(const struct rope_params *p, const float *factors, float *inv_freq,
                      float *magnitude);

/* ---- load.c: binding ---- */

/* Loads tensor "blk.<layer>.<name>" ("<name>" for layer < 0) of exactly n_in -> n_out into *out;
 * NULL when optional and absent. */
t9_status bind_matrix(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                      int32_t n_in, int32_t n_out, int flags, struct t9_err *err);
t9_status bind_vector(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                      int32_t n, int flags, struct t9_err *err);
/* The taps [taps, channels] of a convolution, in the order that op_conv_state wants. */
t9_status bind_conv(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                    int32_t taps, int32_t channels, struct t9_err *err);
/* Rows of a matrix of n_groups * step rows: of each group `run` from `first` on, as one weight. */
struct row_groups {
    int32_t n_groups, step, first, run;
};
t9_status bind_rows(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                    int32_t n_in, struct row_groups rows, struct t9_err *err);
/* Whether the file has tensor "blk.<layer>.<name>". */
bool binder_has(const struct binder *b, int32_t layer, const char *name);
/* Matrix "<stem>.weight" with bias "<stem>.bias" as bias_flags says; BIND_NO_BIAS leaves a bias to
 * be reported as unknown. */
t9_status bind_linear(struct binder *b, const struct weight **out, int32_t layer, const char *stem,
                      int32_t n_in, int32_t n_out, int bias_flags, struct t9_err *err);
/* f32[n] times a factor, NULL when optional and absent. */
t9_status bind_scaled(struct binder *b, const struct weight **out, int32_t layer, const char *name,
                      int32_t n, float factor, int flags, struct t9_err *err);
/* A vector of n ones. */
t9_status bind_ones(struct binder *b, const struct weight **out, int32_t n, struct t9_err *err);
/* A tensor of one value; *out stays when it is absent. */
t9_status bind_number(struct binder *b, float *out, int32_t layer, const char *name,
                      struct t9_err *err);
/* Key "<arch>.<suffix>" for a layer, where it is one number or one for each: 1 .. max. */
t9_status bind_layer_key(struct binder *b, int32_t *out, int32_t layer, const char *suffix,
                         int32_t max, struct t9_err *err);
/* A tensor that files may have for this layer and that nothing reads. */
void bind_unused(struct binder *b, int32_t layer, const char *name);
/* token_embd, output_norm, output (tied when absent, where blocks.untied is not set), rotary
 * frequencies (those of full layers with rope_freqs.weight). */
t9_status bind_ends(struct model *m, struct binder *b, struct t9_err *err);
/* The tensors of a layer as m->arch->blocks says: attention and bind_ffn. */
t9_status bind_block(struct model *m, struct binder *b, int32_t il, struct t9_err *err);
/* Attention's part of it: the layer gets keys and values of its own. */
t9_status bind_attention(struct model *m, struct binder *b, int32_t il, struct t9_err *err);
/* The feed-forward part. With experts (hp->n_experts) it is theirs, but in a layer that has
 * ffn_gate.weight. */
t9_status bind_ffn(struct model *m, struct binder *b, int32_t il, struct t9_err *err);
/* Gives the layer keys and values, or a state, of its own. */
void layer_new_kv(struct model *m, int32_t il);
void layer_new_state(struct model *m, int32_t il);

/* ---- blocks.c ---- */

/* x = embedding rows of the batch, angles = its rotary angles. */
struct trunk {
    struct view x;       /* [T, n_embd], the residual stream */
    struct view angles;  /* [T, n_rot] */
    struct view sliding; /* the same for sliding layers, where there are any */
};
struct trunk block_begin(struct cx *cx, const struct model *m, const struct batch *b);
/* x += Wo attention(norm(x)) for layer il */
void block_attention(struct cx *cx, const struct model *m, const struct batch *b, int32_t il,
                     const struct trunk *t);
/* x += down(act(gate norm(x)) * up norm(x)), or the weighted sum of that over a row's experts */
void block_ffn(struct cx *cx, const struct model *m, const struct batch *b, int32_t il,
               const struct trunk *t);
/* Where layer il keeps its state. */
struct op_state block_state(const struct model *m, const struct batch *b, int32_t il);
/* act(gate h) * (up h), [T, n_ff] from scratch. */
struct view block_gated(struct cx *cx, const struct model *m, struct view h,
                        const struct weight *gate, const struct weight *up);
/* dst = the weighted sum over a row's experts, chosen by `router_in`, of what they make of h; added
 * to dst with `accumulate`. */
void block_experts(struct cx *cx, const struct model *m, const struct layer *l,
                   struct view router_in, struct view h, struct view dst, bool accumulate);
/* Final norm and head of the rows in b->out_row. */
void block_head(struct cx *cx, const struct model *m, const struct batch *b, const struct trunk *t);
/* All of it: begin, attention (or arch->recurrent), feed-forward and deep-stack inputs of each
 * layer, head. Submits the ops of a batch; failures stick in cx. */
void blocks_forward(const struct model *m, struct cx *cx, const struct batch *b);

#endif
