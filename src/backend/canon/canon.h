/*
 * backend/canon/canon.h - private to backend/: the scalar definition of the integer path, `canon-1`
 * (docs/numerics.md). The CPU kernels must equal these functions bit for bit.
 *
 * No kernel here needs a work buffer or a barrier. Each output element is computed by one worker,
 * in one order, whatever nth is. Any thread.
 */
#ifndef T9_BACKEND_CANON_CANON_H
#define T9_BACKEND_CANON_CANON_H

#include "backend/det_math.h"
#include "backend/kernels.h"
#include "base/num.h"

#include <math.h>

enum {
    ACT_BLOCK = 32,    /* activations beside weights with blocks of 32, 64 or 128 */
    ACT_BLOCK_K = 256, /* activations beside weights with blocks of 256 */
    CANON_LANES = 16,  /* virtual lanes of sums over a row */
    ATTN_SPLIT = 512,  /* keys of one split, counted from position 0 */
};

/* A block of a row, quantised: x = d * q. A block with inf or NaN has d = NaN and q = 0. */
struct act32 {
    float d;
    int32_t sum; /* of q */
    float fsum;  /* the same */
    int8_t q[ACT_BLOCK];
};
struct act256 {
    float d;
    int16_t sum16[16]; /* of each 16 values */
    int16_t sum32[8];
    int8_t q[ACT_BLOCK_K];
};
void canon_quant32(struct act32 *out, const float *x);
void canon_quant256(struct act256 *out, const float *x);

/* Scale and inverse scale of a block from the largest |x| as bits (without sign). Below 2^-100 a
 * block counts as zero, because 127 / amax would leave the range of float. */
static inline void canon_act_scale(uint32_t amax_bits, float *d, float *inv)
{
    float amax = num_f32_from_bits(amax_bits);
    *d = 0;
    *inv = 0;
    if (amax_bits >= 0x7f800000u) { /* inf or NaN */
        *d = NAN;
    } else if (amax_bits >= 0x0d800000u) {
        *d = amax / 127.0f;
        *inv = 127.0f / amax;
    }
}

/* Whether op_matmul and op_embed_rows have a path for weights of this gguf dtype. */
bool canon_dtype_supported(uint32_t dtype);

/* sum of a * b over n values in 16 virtual lanes and the fixed tree. */
float canon_dot(const float *a, const float *b, int32_t n);
/* 1 / sqrt(mean of x^2 + eps) by that sum. */
float canon_rms_inv(const float *x, int32_t n, float eps);
void canon_rmsnorm_row(float *dst, const float *x, const float *w, int32_t n, float eps);

void canon_embed_rows(const struct op *op, struct be_task *t);
void canon_gather_rows(const struct op *op, struct be_task *t);
void canon_rmsnorm(const struct op *op, struct be_task *t);
void canon_matmul(const struct op *op, struct be_task *t);
void canon_rope_angles(const struct op *op, struct be_task *t);
void canon_qk_norm_rope_store(const struct op *op, struct be_task *t);
void canon_attn_paged(const struct op *op, struct be_task *t);
void canon_act_mul(const struct op *op, struct be_task *t);
void canon_add(const struct op *op, struct be_task *t);
void canon_scale(const struct op *op, struct be_task *t);
void canon_softcap(const struct op *op, struct be_task *t);
void canon_moe_route(const struct op *op, struct be_task *t);
void canon_matmul_experts(const struct op *op, struct be_task *t);
void canon_moe_combine(const struct op *op, struct be_task *t);
void canon_conv_state(const struct op *op, struct be_task *t);

/* dst[i] = act(sum of w[j * stride + i] * rows[j][i], j ascending), i < n. */
typedef void (*conv_row_fn)(float *dst, const float *const *rows, const float *w, size_t stride,
                            int32_t taps, int32_t n, bool silu);
/* The whole op with another way to compute a run of channels. */
void canon_conv_state_by(const struct op *op, struct be_task *t, conv_row_fn conv_row);

/* x[i] = x[i] * (scale / sqrt(sum of x^2 + eps)), i < n. */
typedef void (*l2_norm_fn)(float *x, int32_t n, float eps, float scale);
void canon_delta_prepare(const struct op *op, struct be_task *t);
void canon_delta_prepare_by(const struct op *op, struct be_task *t, l2_norm_fn l2_norm);

/* n_rows rows of a head, walked by n_cols columns of its state, s[n_cols][key_dim], which is then
 * that after the last row. Values and outputs are those of the columns; o is written where
 * rows.q is. */
enum { DELTA_COLS_MAX = 32 };
struct delta_walk {
    struct delta_rows rows;
    int32_t n_rows, key_dim, n_cols;
    float *s;
    float *o;
    size_t o_stride;
};
typedef void (*delta_walk_fn)(const struct delta_walk *w);
void canon_delta_net(const struct op *op, struct be_task *t);
void canon_delta_net_by(const struct op *op, struct be_task *t, delta_walk_fn walk);

/* Outputs [lo, hi) of one row: dst[o] = w x (+ bias), of a plain weight. */
void canon_product_row(const struct weight *w, const float *x, int32_t lo, int32_t hi, float *dst,
                       bool accumulate);

/* ---- shared with the CPU kernels ---- */

static inline float *view_row(const struct view *v, int32_t row)
{
    return (float *)v->p + (size_t)row * (size_t)v->stride;
}
static inline int32_t view_i32_at(const struct view *v, int32_t row)
{
    return ((const int32_t *)v->p)[(size_t)row * (size_t)v->stride];
}
/* Of MOE_COMBINE: the weights of a row, where they are a gate after its sigmoid. */
static inline const float *combine_weights(const struct op *op, const float *w, float *gate)
{
    if (!(op->flags & OP_FLAG_SIGMOID))
        return w;
    *gate = det_sigmoid(w[0]);
    return gate;
}
/* Worker ith's contiguous part [*lo, *hi) of n things. */
static inline void task_slice(const struct be_task *t, int64_t n, int64_t *lo, int64_t *hi)
{
    *lo = n * t->ith / t->nth;
    *hi = n * (t->ith + 1) / t->nth;
}

/* The state before the first split of a row of head h: a sink has the weight 1 and no value. */
static inline void attn_start(const struct op *op, int32_t h, float *m, float *l)
{
    *m = op->w[0] ? ((const float *)op->w[0]->data)[h] : -INFINITY;
    *l = op->w[0] ? 1 : 0;
}

/* The keys that a row may see: [first, end); empty for padding. */
static inline void attn_range(const struct op *op, int32_t row, int32_t *first, int32_t *end)
{
    int32_t self = view_i32_at(&op->src[1], row), window = op->i[1];
    *first = 0;
    *end = 0;
    if (self < 0)
        return;
    *end = (op->src[5].p ? view_i32_at(&op->src[5], row) : self) + 1;
    if (window > 0 && self - window + 1 > 0)
        *first = self - window + 1;
}
static inline int32_t kv_page_at(const struct view *page_table, int32_t seq, int32_t key)
{
    const int32_t *ids = page_table->p;
    return ids[(size_t)seq * (size_t)page_table->stride + (size_t)(key / KV_PAGE_TOKENS)];
}

#endif
