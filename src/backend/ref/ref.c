/*
 * backend/ref/ref.c - the kernel table of `ref` and its row-wise ops. libm's expf, tanhf, cosf and
 * sinf, as the reference library does; see ref.h for the arithmetic.
 */
#include "backend/ref/ref.h"

#include "backend/be_impl.h"

#include <math.h>
#include <string.h>

static void gather_rows(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        const float *src = ref_row(&op->src[0], ref_i32(&op->src[1], r));
        memcpy(ref_row(dst, r), src, (size_t)dst->cols * sizeof(float));
    }
}

void ref_rmsnorm_row(float *dst, const float *x, const float *w, int32_t n, float eps)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    float scale = 1.0f / sqrtf((float)(sum / n) + eps);
    for (int32_t i = 0; i < n; i++)
        dst[i] = x[i] * scale * w[i];
}

static void rmsnorm(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        for (int32_t c = 0; c < dst->cols; c += op->w[0]->n_in)
            ref_rmsnorm_row(ref_row(dst, r) + c, ref_row(&op->src[0], r) + c, op->w[0]->data,
                            op->w[0]->n_in, op->f[0]);
    }
}

static void rope_angles(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    const float *inv_freq = op->src[1].p;
    int32_t half = dst->cols / 2;
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        float *out = ref_row(dst, r);
        for (int32_t i = 0; i < half; i++) {
            float angle = (float)op_pair_pos(op, r, i) * inv_freq[i];
            out[i] = cosf(angle) * op->f[0];
            out[half + i] = sinf(angle) * op->f[0];
        }
    }
}

static float act(act_kind kind, float x)
{
    if (kind == ACT_NONE)
        return x;
    if (kind == ACT_SIGMOID)
        return ref_sigmoid(x);
    if (kind == ACT_SILU)
        return x / (1.0f + expf(-x));
    float inner = 0.79788456080286536f * (x + 0.044715f * x * x * x); /* sqrt(2 / pi) */
    return 0.5f * x * (1.0f + tanhf(inner));
}

/* NaN stays NaN. */
static float swiglu_clamped(float gate, float up)
{
    float g = gate > 7 ? 7 : gate, u = up > 7 ? 7 : up < -7 ? -7 : up;
    return g * ref_sigmoid(1.702f * g) * (u + 1);
}

static void act_mul(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        const float *gate = ref_row(&op->src[0], r), *up = ref_row(&op->src[1], r);
        float *out = ref_row(dst, r);
        for (int32_t i = 0; i < dst->cols; i++)
            out[i] = op->i[0] == ACT_SWIGLU_CLAMPED ? swiglu_clamped(gate[i], up[i])
                                                    : act((act_kind)op->i[0], gate[i]) * up[i];
    }
}

static void add(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        const float *a = ref_row(&op->src[0], r), *b = op_second_row(op, r);
        float *out = ref_row(dst, r);
        for (int32_t i = 0; b && i < dst->cols; i++)
            out[i] = a[i] + b[i];
    }
}

static void scale(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        for (int32_t i = 0; i < dst->cols; i++)
            ref_row(dst, r)[i] = op->f[0] * ref_row(&op->src[0], r)[i];
    }
}

static void softcap(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        for (int32_t i = 0; i < dst->cols; i++)
            ref_row(dst, r)[i] = op->f[0] * tanhf(ref_row(&op->src[0], r)[i] / op->f[0]);
    }
}

void ref_kernels(struct be_kernels *k)
{
    k->fn[OP_EMBED_ROWS] = ref_embed_rows;
    k->fn[OP_GATHER_ROWS] = gather_rows;
    k->fn[OP_RMSNORM] = rmsnorm;
    k->fn[OP_MATMUL] = ref_matmul;
    k->fn[OP_ROPE_ANGLES] = rope_angles;
    k->fn[OP_QK_NORM_ROPE_STORE] = ref_qk_norm_rope_store;
    k->fn[OP_ATTN_PAGED] = ref_attn_paged;
    k->fn[OP_ACT_MUL] = act_mul;
    k->fn[OP_ADD] = add;
    k->fn[OP_SCALE] = scale;
    k->fn[OP_SOFTCAP] = softcap;
    k->fn[OP_MOE_ROUTE] = ref_moe_route;
    k->fn[OP_MATMUL_EXPERTS] = ref_matmul_experts;
    k->fn[OP_MOE_COMBINE] = ref_moe_combine;
    k->fn[OP_CONV_STATE] = ref_conv_state;
    k->fn[OP_DELTA_PREPARE] = ref_delta_prepare;
    k->fn[OP_DELTA_NET] = ref_delta_net;
}

void ref_work_bytes(int32_t max_rows, int32_t max_cols, size_t *shared_bytes, size_t *local_bytes)
{
    (void)max_rows;
    *shared_bytes = 0;
    *local_bytes = (size_t)max_cols * sizeof(float); /* one dequantised row of a weight */
}
