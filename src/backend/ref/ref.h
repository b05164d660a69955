/*
 * backend/ref/ref.h - private to backend/ref: the float32 kernels, one per op.
 *
 * They say what each op means, with the rounding of a float32 implementation that takes its sums in
 * double: norms, products and softmax sums differ from the exact value by a few float32 roundings.
 * Every row is computed alone and in one order, so no result depends on its neighbours, on chunking
 * or on the number of workers.
 */
#ifndef T9_BACKEND_REF_REF_H
#define T9_BACKEND_REF_REF_H

#include "backend/kernels.h"

#include <math.h>

void ref_matmul(const struct op *op, struct be_task *t);
void ref_embed_rows(const struct op *op, struct be_task *t);
void ref_qk_norm_rope_store(const struct op *op, struct be_task *t);
void ref_attn_paged(const struct op *op, struct be_task *t);
void ref_moe_route(const struct op *op, struct be_task *t);
void ref_matmul_experts(const struct op *op, struct be_task *t);
void ref_moe_combine(const struct op *op, struct be_task *t);
void ref_conv_state(const struct op *op, struct be_task *t);
void ref_delta_prepare(const struct op *op, struct be_task *t);
void ref_delta_net(const struct op *op, struct be_task *t);

/* Row `row` of a plain weight, dequantised; and a product of it. */
void ref_weight_row(const struct weight *w, int32_t row, float *dst);
float ref_dot(const float *a, const float *b, int32_t n);

/* dst = (x / sqrt(mean(x^2) + eps)) * w over n values; dst may be x. */
void ref_rmsnorm_row(float *dst, const float *x, const float *w, int32_t n, float eps);

static inline float *ref_row(const struct view *v, int32_t row)
{
    return (float *)v->p + (size_t)row * (size_t)v->stride;
}
static inline float ref_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
static inline int32_t ref_i32(const struct view *v, int32_t row)
{
    return ((const int32_t *)v->p)[(size_t)row * (size_t)v->stride];
}

#endif
