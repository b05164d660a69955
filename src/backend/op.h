/*
 * backend/op.h - the op list, the op record, and the typed builders that model code calls.
 *
 * A model's forward function calls builders (`op_rmsnorm(cx, ...)`); each fills one fixed-size
 * record and hands it to the context's sink (decision D2). What the sink does (run, record,
 * measure, compare) is not the model's affair. A builder never computes, allocates or fails loudly:
 * the first failure sticks in cx->status and later builders do nothing.
 *
 * Host numbers in a record depend only on the model and the batch size. Positions, page tables and
 * token ids live in buffers that a record points to. All matrices are row-major, the last dimension
 * contiguous; one row is one token.
 *
 * If you add an op: add it to OP_LIST with its contract here, write ref/, canon/, then the CPU
 * kernels, a row in the op tests, and a line in docs/ops.md.
 */
#ifndef T9_BACKEND_OP_H
#define T9_BACKEND_OP_H

#include "backend/kv_geom.h"
#include "backend/state_geom.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(NAME, name) */
#define OP_LIST(X)                                                                                 \
    X(EMBED_ROWS, embed_rows)                                                                      \
    X(GATHER_ROWS, gather_rows)                                                                    \
    X(RMSNORM, rmsnorm)                                                                            \
    X(MATMUL, matmul)                                                                              \
    X(ROPE_ANGLES, rope_angles)                                                                    \
    X(QK_NORM_ROPE_STORE, qk_norm_rope_store)                                                      \
    X(ATTN_PAGED, attn_paged)                                                                      \
    X(ACT_MUL, act_mul)                                                                            \
    X(ADD, add)                                                                                    \
    X(SCALE, scale)                                                                                \
    X(SOFTCAP, softcap)                                                                            \
    X(MOE_ROUTE, moe_route)                                                                        \
    X(MATMUL_EXPERTS, matmul_experts)                                                              \
    X(MOE_COMBINE, moe_combine)                                                                    \
    X(CONV_STATE, conv_state)                                                                      \
    X(DELTA_PREPARE, delta_prepare)                                                                \
    X(DELTA_NET, delta_net)

typedef enum op_kind {
#define X(NAME, name) OP_##NAME,
    OP_LIST(X)
#undef X
        OP_COUNT
} op_kind;

const char *op_kind_name(op_kind k); /* "rmsnorm" */

typedef enum view_dtype { VIEW_F32, VIEW_I32, VIEW_PTR, VIEW_BYTES } view_dtype;

/* A row-major matrix in device memory. `stride` is in elements. p == NULL: absent. */
struct view {
    void *p;
    int32_t rows, cols; /* [rows, cols] */
    int32_t stride;
    uint8_t dtype; /* view_dtype */
    uint8_t dev;   /* device id; 0 until there is more than one */
};

typedef enum weight_layout {
    WEIGHT_LAYOUT_VECTOR, /* f32[n_in], n_out == 1: norms, biases, factors */
    WEIGHT_LAYOUT_GGUF,   /* rows as the file has them (ref, canon) */
    WEIGHT_LAYOUT_PANEL,  /* the CPU backend's panels of 16 outputs */
} weight_layout;

/* A loaded weight: y[o] = sum_i W[o][i] x[i] (+ bias[o]). Immutable after load.
 *
 * Experts are stacked: with n_experts > 0 there are so many matrices n_in -> n_out, one after the
 * other in equal parts of data and bias (weight_expert of backend/kernels.h). */
struct weight {
    char name[64];
    uint32_t dtype; /* gguf dtype of the values */
    uint8_t layout; /* weight_layout */
    int32_t n_in, n_out;
    int32_t n_experts; /* 0: a plain weight */
    const void *data;  /* backend memory */
    size_t size_bytes;
    const float *bias; /* f32[n_out], with experts [n_experts][n_out], or NULL */
};

enum {
    OP_DST_MAX = 3,
    OP_SRC_MAX = 8,
    OP_WEIGHT_MAX = 4,
    OP_EXPERTS_MAX = 512, /* of a stacked weight */
    OP_SLOTS_MAX = 32,    /* experts that a row goes to */
};

/* Flags of struct op. */
enum {
    OP_FLAG_ACCUMULATE = 1 << 0, /* MATMUL, MOE_COMBINE: dst[0] += instead of dst[0] = */
    OP_FLAG_ROPE_NEOX = 1 << 1,  /* pairs (i, i + n/2) instead of (2i, 2i + 1) */
    OP_FLAG_SIGMOID = 1 << 2, /* MOE_ROUTE, MOE_COMBINE: see op_moe_route_sigmoid, op_gated_add */
    OP_FLAG_ID_0 = 1 << 3,    /* EMBED_ROWS: a row with an override takes id 0 instead of it */
};

typedef enum act_kind {
    ACT_SILU,
    ACT_GELU_TANH,
    ACT_SWIGLU_CLAMPED, /* of gpt-oss: see op_act_mul */
    ACT_NONE,           /* only the product */
    ACT_SIGMOID,
    ACT_COUNT
} act_kind;

/*
 * One op. Which fields a kind uses is said at its builder below. dst[] are written (ACCUMULATE also
 * reads dst[0]); src[] and w[] are only read; QK_NORM_ROPE_STORE also writes KV pages (kv_write)
 * and ATTN_PAGED reads them (kv_read), and the ops of recurrent layers change a state
 * (state_write): side effects are declared for the record and compare sinks.
 */
struct op {
    uint8_t kind, n_dst, n_src, n_w;
    uint8_t kv_read, kv_write, state_write;
    uint16_t flags;
    int16_t layer; /* for names in traces; -1 outside the layers */
    struct view dst[OP_DST_MAX];
    struct view src[OP_SRC_MAX];
    const struct weight *w[OP_WEIGHT_MAX];
    const struct kv_layer *kv;
    const struct state_geom *state;
    int32_t i[8];
    float f[4];
};

struct cx;
typedef t9_status (*cx_submit)(struct cx *cx, const struct op *op);

/*
 * Scratch: a stack arena in device memory. `base == NULL` while measuring: offsets are counted, no
 * memory is touched.
 */
struct scratch {
    char *base;
    size_t used, cap, peak;
};

/* The forward context. Engine thread only. */
struct cx {
    cx_submit submit;
    void *sink;
    struct scratch *scratch;
    int16_t layer;
    t9_status status;  /* sticky */
    struct t9_err err; /* of the first failure */
};

/* f32 [rows, cols] from scratch, 64-byte aligned, stride == cols. */
struct view cx_alloc(struct cx *cx, int32_t rows, int32_t cols);
struct view cx_alloc_i32(struct cx *cx, int32_t rows, int32_t cols); /* the same for i32 */
size_t cx_mark(const struct cx *cx);
void cx_release(struct cx *cx, size_t mark);
/* Views over memory that the caller keeps alive until the tape has run. */
struct view view_f32(const float *p, int32_t rows, int32_t cols);
struct view view_i32(const int32_t *p, int32_t rows, int32_t cols);
/* Columns [first, first + n) of a matrix of f32 or i32. */
struct view view_cols(struct view v, int32_t first, int32_t n);

/* dst[T, D] f32 = rows ids[T] of w (dequantised to f32) times scale. Where override (VIEW_PTR [T],
 * may be absent) holds a non-NULL `const float *`, that row [D] is copied as it is instead and the
 * id is ignored.
 *   dst0 = dst, src0 = ids, src1 = override, w0, f0 = scale */
void op_embed_rows(struct cx *cx, struct view dst, struct view ids, struct view override,
                   const struct weight *w, float scale);
/* The same, but a row whose `media` is not NULL takes id 0: what is not a token has its row. */
void op_embed_tokens(struct cx *cx, struct view dst, struct view ids, struct view media,
                     const struct weight *w, float scale);
/* dst[R, D] = src[rows[r], :].   dst0, src0 = src, src1 = rows i32[R] */
void op_gather_rows(struct cx *cx, struct view dst, struct view src, struct view rows);
/* dst[T, D] = (x * (1 / sqrt(mean(x^2) + eps))) * w. dst may alias src. With a w of fewer values,
 * of which D is a multiple, so many columns at a time, each with its own mean (heads). dst0, src0,
 * w0, f0 = eps */
void op_rmsnorm(struct cx *cx, struct view dst, struct view src, const struct weight *w, float eps);
/* dst_k[T, n_out_k] = W_k x (+ bias_k) for k < n (1..3): several products share x [T, n_in], so
 * that its int8 form is made once.   dst0..2, src0, w0..2 */
void op_matmul(struct cx *cx, const struct view *dst, struct view src,
               const struct weight *const *w, int n);
/* dst[T, n_out] += W x (+ bias): the residual add of a block. */
void op_matmul_add(struct cx *cx, struct view dst, struct view src, const struct weight *w);
/* dst[T, n_rot] = cos in the first half, sin in the second, of angle_i = pos * inv_freq[i] in f32
 * (times magnitude), i < n_rot / 2.
 *   dst0, src0 = pos i32[T] (stride may be 3), src1 = inv_freq f32[n_rot/2], f0 = magnitude */
void op_rope_angles(struct cx *cx, struct view dst, struct view pos, struct view inv_freq,
                    float magnitude);
/* The same with three positions a row, t h w, interleaved: pair i takes h where i % 3 == 1 and
 * i < 3 n_h, w where i % 3 == 2 and i < 3 n_w, else t.
 *   dst0, src0 = pos i32[T, 3], src1, f0, i0 = n_h, i1 = n_w */
void op_rope_angles_3d(struct cx *cx, struct view dst, struct view pos, struct view inv_freq,
                       float magnitude, int32_t n_h, int32_t n_w);

struct op_rope_store {
    struct view q;          /* [T, H * d], rotated in place (dst0) */
    struct view k, v;       /* [T, Hk * d] (src0, src1); both absent: only q is done */
    struct view angles;     /* [T, n_rot] from op_rope_angles (src2) */
    struct view kv_idx;     /* i32[T]: index of the row in its sequence's KV (src3) */
    struct view row_seq;    /* i32[T]: batch-local sequence (src4) */
    struct view page_table; /* i32[S, stride] page ids (src5) */
    struct view pool;       /* base of the page pool (src6) */
    const struct weight *q_norm,
        *k_norm; /* f32[d] per-head RMS norm before RoPE, or NULL (w0, w1) */
    /* What a query is multiplied by, last of all, or absent: entry pos / q_scale_every of f32[n],
     * the last one from there on (w2, src7, i2). */
    const struct weight *q_scale;
    struct view pos; /* i32[T], with q_scale */
    int32_t q_scale_every;
    const struct kv_layer *kv; /* of the layer that is written */
    int32_t n_head, n_rot;     /* i0, i1 */
    bool neox;
    float eps; /* f0 */
};
/* Per head: q, k = norm (when given) then rotate the first n_rot dims, and q times its scale; k and
 * v go to their page as kv->type. A row with kv_idx < 0 is padding and stores nothing. */
void op_qk_norm_rope_store(struct cx *cx, const struct op_rope_store *a);

struct op_attn {
    struct view dst, q;     /* [T, H * d] (dst0, src0) */
    struct view kv_idx;     /* i32[T] (src1): row attends to keys 0..kv_idx (or to span_end) */
    struct view row_seq;    /* i32[T] (src2) */
    struct view page_table; /* (src3) */
    struct view pool;       /* (src4) */
    struct view span_end;   /* i32[T] or absent (src5): last key index the row may see, >= kv_idx */
    const struct kv_layer *kv;  /* of the layer that is read */
    int32_t n_head;             /* i0 */
    int32_t window;             /* i1; 0 = none, else keys with kv_idx - j < window */
    const struct weight *sinks; /* f32[H] or NULL (w0) */
    float scale;                /* f0 */
};
/* Softmax attention of each row over its sequence's pages; GQA head h reads KV head h / (H / Hk).
 * With sinks the softmax of head h has one more score, sinks[h] (not scaled), that has no value. */
void op_attn_paged(struct cx *cx, const struct op_attn *a);
/* dst[T, F] = act(gate) * up. dst may alias gate or up.   dst0, src0 = gate, src1 = up, i0 = act
 * ACT_SWIGLU_CLAMPED: g = min(gate, 7), u = min(max(up, -7), 7);
 * dst = g * sigmoid(1.702 g) * (u + 1). */
void op_act_mul(struct cx *cx, struct view dst, struct view gate, struct view up, act_kind act);
/* dst = a + b, same shape. dst may alias either.   dst0, src0, src1 */
void op_add(struct cx *cx, struct view dst, struct view a, struct view b);
/* dst = factor * src. dst may be src.   dst0, src0, f0 = factor */
void op_scale(struct cx *cx, struct view dst, struct view src, float factor);
/* dst = cap * tanh(src / cap), cap > 0. dst may be src.   dst0, src0, f0 = cap */
void op_softcap(struct cx *cx, struct view dst, struct view src, float cap);
/* x[t] += rows[t], a `const float *` [D], where that is not NULL (VIEW_PTR [T]).
 *   dst0 = src0 = x, src1 = rows */
void op_add_rows(struct cx *cx, struct view x, struct view rows);

/* The experts of each row: ids[T, K] i32 are the K largest of its logits [T, E], largest first (of
 * equal ones the lower index first; NaN counts as -inf), weights[T, K] the softmax over these K
 * logits, times scale[id] where there is a scale (f32[E] or NULL).
 *   dst0 = weights, dst1 = ids, src0 = logits, w0 = scale */
void op_moe_route(struct cx *cx, struct view weights, struct view ids, struct view logits,
                  const struct weight *scale);
/* The same by scores that do not compete, s[e] = sigmoid(logits[t, e]): ids[T, K] are the K largest
 * of s + bias (f32[E] or NULL), in the order above, weights[T, K] their s divided by the sum of
 * these plus 1e-6 (so that it is never 0), times scale.
 *   dst0 = weights, dst1 = ids, src0 = logits, w1 = bias, f0 = scale */
void op_moe_route_sigmoid(struct cx *cx, struct view weights, struct view ids, struct view logits,
                          const struct weight *bias, float scale);
/* Slot j of row t meets expert e = ids[t, j]: dst_k[t, j n_out_k ...] = W_k[e] x (+ bias_k[e]) for
 * k < n (1..2). x is src[t] where src is [T, n_in], and src[t, j n_in ...] where it is
 * [T, K n_in]. An id that is no expert's gives NaN. No gaps between rows of dst and of a src of
 * slots (stride == cols).   dst0..1, src0, src1 = ids i32[T, K], w0..1 */
void op_matmul_experts(struct cx *cx, const struct view *dst, struct view src, struct view ids,
                       const struct weight *const *w, int n);
/* dst[T, D] = sum over slots j, ascending, of weights[t, j] * src[t, j D ...]; added to dst with
 * `accumulate`.   dst0, src0 = src [T, K D], src1 = weights [T, K] */
void op_moe_combine(struct cx *cx, struct view dst, struct view src, struct view weights,
                    bool accumulate);
/* dst[t] += sigmoid(gate[t]) * src[t], one gate a row: a shared expert's. A combination of one
 * slot. dst0, src0, src1 = gate [T, 1] */
void op_gated_add(struct cx *cx, struct view dst, struct view src, struct view gate);

/* Where the state is that an op of a recurrent layer reads and changes. Rows are those of struct
 * batch: a sequence's are contiguous and in order, and its state is taken on from the step before,
 * by the journal's first `accept` rows and by its own without the last `guess`, which are left in
 * the journal (state_geom.h). A sequence's rows are computed in order, each from the state that the
 * rows before it give, guessed ones included: how they are cut into steps shows in no bit. */
struct op_state {
    struct view row_seq;       /* i32[T]: batch-local sequence, ascending (src2) */
    struct view slot;          /* i32[S] (src3) */
    struct view accept, guess; /* i32[S], or both absent: nothing is guessed (src4, src5) */
    struct view pool;          /* base of the slots (src6) */
    const struct state_geom *geom;
    int32_t layer; /* i0 */
};

/* dst[T, C] = act(sum over taps j, ascending, of w[j, c] * x_{t - taps + 1 + j}[c]): a causal
 * convolution of each channel. Rows before a sequence's first of this step are the state's history;
 * the slot's zeros at its start. w is f32[taps * C], rows of taps, the oldest first; act is silu or
 * none.   dst0, src0 = x, w0, i1 = silu */
void op_conv_state(struct cx *cx, struct view dst, struct view x, const struct weight *w, bool silu,
                   const struct op_state *s);

struct op_delta_prepare {
    struct view c;                 /* [T, C]: q [Nk][dk] | k [Nk][dk] | v [Nv][dv] (dst0) */
    struct view gates;             /* [T, 2 Nv] (dst1) */
    struct view alpha, beta;       /* [T, Nv] (src0, src1) */
    const struct weight *a, *dt;   /* f32[Nv] (w0, w1) */
    const struct state_geom *geom; /* says the sizes */
    float eps;                     /* f0 */
};
/* What op_delta_net takes. In place, q and k of each key head become x / sqrt(sum of x^2 + eps),
 * and q is divided by sqrt(dk). Gates of a value head are its decay exp(a * softplus(alpha + dt)),
 * of all heads first, and its strength sigmoid(beta). */
void op_delta_prepare(struct cx *cx, const struct op_delta_prepare *p);
/* dst[T, Nv * dv]: the gated delta rule. Row after row, for each value head with its key head's q
 * and k: S = decay * S, u = beta * (v - S k), S = S + u k^T, o = S q, where S is [dv][dk]. Value
 * head j has key head j % Nk where `tiled`, else j / (Nv / Nk). A journal row of the op is k | v |
 * gates.   dst0, src0 = c, src1 = gates, i1 = tiled */
void op_delta_net(struct cx *cx, struct view dst, struct view c, struct view gates, bool tiled,
                  const struct op_state *s);

#endif
