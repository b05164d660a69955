/* backend/canon/canon_rows.c - ops that work on each element or row alone: embed, gather, rmsnorm,
 * act_mul, add, scale, softcap. */
#include "backend/canon/canon.h"

#include "backend/det_math.h"
#include "gguf/dtype.h"

#include <string.h>

void canon_embed_rows(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    const struct weight *w = op->w[0];
    uint64_t row_bytes = dtype_row_bytes(w->dtype, (uint64_t)w->n_in);
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        float *out = view_row(dst, r);
        int32_t id;
        const float *row = op_embed_source(op, r, &id);
        if (row) {
            memcpy(out, row, (size_t)dst->cols * sizeof(float));
        } else if (id >= 0 && id < w->n_out) {
            (void)dtype_dequantize_row(w->dtype, (const char *)w->data + (uint64_t)id * row_bytes,
                                       out, (size_t)w->n_in, NULL);
            for (int32_t i = 0; i < dst->cols; i++)
                out[i] *= op->f[0];
        } else { /* ids are checked before a batch is built; a slip must show, not read wild */
            for (int32_t i = 0; i < dst->cols; i++)
                out[i] = NAN;
        }
    }
}

void canon_gather_rows(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++)
        memcpy(view_row(dst, r), view_row(&op->src[0], view_i32_at(&op->src[1], r)),
               (size_t)dst->cols * sizeof(float));
}

float canon_dot(const float *a, const float *b, int32_t n)
{
    float lane[CANON_LANES] = {0};
    for (int32_t i = 0; i < n; i++)
        lane[i % CANON_LANES] = fmaf(a[i], b[i], lane[i % CANON_LANES]);
    for (int half = CANON_LANES / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    }
    return lane[0];
}

float canon_rms_inv(const float *x, int32_t n, float eps)
{
    return 1.0f / sqrtf(canon_dot(x, x, n) / (float)n + eps);
}

void canon_rmsnorm_row(float *dst, const float *x, const float *w, int32_t n, float eps)
{
    float inv = canon_rms_inv(x, n, eps);
    for (int32_t i = 0; i < n; i++)
        dst[i] = (x[i] * inv) * w[i];
}

void canon_rmsnorm(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        for (int32_t c = 0; c < dst->cols; c += op->w[0]->n_in)
            canon_rmsnorm_row(view_row(dst, r) + c, view_row(&op->src[0], r) + c, op->w[0]->data,
                              op->w[0]->n_in, op->f[0]);
    }
}

void canon_act_mul(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        const float *gate = view_row(&op->src[0], r), *up = view_row(&op->src[1], r);
        float *out = view_row(dst, r);
        for (int32_t i = 0; i < dst->cols; i++) {
            float g = gate[i], u = up[i];
            switch ((act_kind)op->i[0]) {
            case ACT_SILU: out[i] = det_silu(g) * u; break;
            case ACT_GELU_TANH: out[i] = det_gelu_tanh(g) * u; break;
            case ACT_NONE: out[i] = g * u; break;
            case ACT_SIGMOID: out[i] = det_sigmoid(g) * u; break;
            default: out[i] = det_swiglu_clamped(g, u); break;
            }
        }
    }
}

void canon_scale(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        const float *x = view_row(&op->src[0], r);
        float *out = view_row(dst, r);
        for (int32_t i = 0; i < dst->cols; i++)
            out[i] = op->f[0] * x[i];
    }
}

void canon_softcap(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        const float *x = view_row(&op->src[0], r);
        float *out = view_row(dst, r);
        for (int32_t i = 0; i < dst->cols; i++)
            out[i] = op->f[0] * det_tanh(x[i] / op->f[0]);
    }
}

void canon_add(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        const float *a = view_row(&op->src[0], r), *b = op_second_row(op, r);
        float *out = view_row(dst, r);
        for (int32_t i = 0; b && i < dst->cols; i++)
            out[i] = a[i] + b[i];
    }
}
