/*
 * backend/ref/ref_matmul.c - products and embedding rows from dequantised weights.
 *
 * A worker takes every nth output, dequantises that output's row once into its local buffer, and
 * walks all rows of x. The sum is taken in double over eight partial sums in a fixed order, so it
 * does not depend on how many rows there are.
 */
#include "backend/ref/ref.h"

#include "gguf/dtype.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

float ref_dot(const float *a, const float *b, int32_t n)
{
    double lane[LANES] = {0};
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int32_t j = 0; j < LANES; j++)
            lane[j] += (double)a[i + j] * (double)b[i + j];
    }
    for (int32_t j = 0; i < n; i++, j++)
        lane[j] += (double)a[i] * (double)b[i];
    double sum = 0;
    for (int32_t j = 0; j < LANES; j++)
        sum += lane[j];
    return (float)sum;
}

void ref_weight_row(const struct weight *w, int32_t row, float *dst)
{
    size_t row_bytes = w->size_bytes / (size_t)w->n_out;
    /* Cannot fail: the type and the row length were checked when the weight was loaded. */
    (void)dtype_dequantize_row(w->dtype, (const char *)w->data + (size_t)row * row_bytes, dst,
                               (size_t)w->n_in, NULL);
}

void ref_matmul(const struct op *op, struct be_task *t)
{
    const struct view *src = &op->src[0];
    float *row = t->local;
    for (int k = 0; k < op->n_dst; k++) {
        const struct weight *w = op->w[k];
        const struct view *dst = &op->dst[k];
        for (int32_t o = t->ith; o < w->n_out; o += t->nth) {
            ref_weight_row(w, o, row);
            float bias = w->bias ? w->bias[o] : 0.0f;
            for (int32_t r = 0; r < src->rows; r++) {
                float y = ref_dot(row, ref_row(src, r), w->n_in) + bias;
                float *out = ref_row(dst, r) + o;
                *out = op->flags & OP_FLAG_ACCUMULATE ? *out + y : y;
            }
        }
    }
}

void ref_embed_rows(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    const struct weight *w = op->w[0];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        float *out = ref_row(dst, r);
        int32_t id;
        const float *given = op_embed_source(op, r, &id);
        if (given) {
            memcpy(out, given, (size_t)dst->cols * sizeof(float));
        } else if (id >= 0 && id < w->n_out) {
            ref_weight_row(w, id, out);
            for (int32_t i = 0; i < dst->cols; i++)
                out[i] *= op->f[0];
        } else { /* the caller checks ids; if it did not, say so in every number */
            for (int32_t i = 0; i < dst->cols; i++)
                out[i] = NAN;
        }
    }
}
