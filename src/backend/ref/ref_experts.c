/*
 * backend/ref/ref_experts.c - a mixture of experts: which experts a row meets, their products, and
 * the weighted sum of what they give.
 *
 * An expert's output row is dequantised once for all slots that chose the expert. Softmax and sums
 * are taken in double.
 */
#include "backend/ref/ref.h"

#include <math.h>

/* Whether score a goes before score b of a higher index; NaN counts as -inf. */
static bool before(float a, float b)
{
    float x = isnan(a) ? -INFINITY : a, y = isnan(b) ? -INFINITY : b;
    return x >= y;
}

/* The n_slots best of n_experts, best first. */
static void choose(const float *score, int32_t n_experts, int32_t *ids, int32_t n_slots)
{
    int32_t n = 0;
    for (int32_t e = 0; e < n_experts; e++) {
        int32_t at = n;
        while (at > 0 && !before(score[ids[at - 1]], score[e]))
            at--;
        if (at >= n_slots)
            continue;
        n += n < n_slots;
        for (int32_t j = n - 1; j > at; j--)
            ids[j] = ids[j - 1];
        ids[at] = e;
    }
}

static void route_softmax(const struct op *op, const float *x, int32_t *ids, float *w)
{
    const float *scale = op->w[0] ? op->w[0]->data : NULL;
    int32_t n = op->dst[0].cols;
    double sum = 0;
    choose(x, op->src[0].cols, ids, n);
    for (int32_t j = 0; j < n; j++)
        sum += exp((double)x[ids[j]] - (double)x[ids[0]]);
    for (int32_t j = 0; j < n; j++) {
        w[j] = (float)(exp((double)x[ids[j]] - (double)x[ids[0]]) / sum);
        w[j] *= scale ? scale[ids[j]] : 1.0f;
    }
}

static double sigmoid(float x)
{
    return 1 / (1 + exp(-(double)x));
}

static void route_sigmoid(const struct op *op, const float *x, int32_t *ids, float *w)
{
    const float *bias = op->w[1] ? op->w[1]->data : NULL;
    int32_t n = op->dst[0].cols, n_experts = op->src[0].cols;
    float chosen_by[OP_EXPERTS_MAX];
    double sum = 0;
    for (int32_t e = 0; e < n_experts; e++)
        chosen_by[e] = (float)sigmoid(x[e]) + (bias ? bias[e] : 0.0f);
    choose(chosen_by, n_experts, ids, n);
    for (int32_t j = 0; j < n; j++)
        sum += sigmoid(x[ids[j]]);
    for (int32_t j = 0; j < n; j++)
        w[j] = (float)(sigmoid(x[ids[j]]) / (sum + 1e-6) * (double)op->f[0]);
}

void ref_moe_route(const struct op *op, struct be_task *t)
{
    const struct view *weights = &op->dst[0], *logits = &op->src[0];
    for (int32_t r = t->ith; r < weights->rows; r += t->nth) {
        int32_t *ids = (int32_t *)op->dst[1].p + (size_t)r * (size_t)op->dst[1].stride;
        if (op->flags & OP_FLAG_SIGMOID)
            route_sigmoid(op, ref_row(logits, r), ids, ref_row(weights, r));
        else
            route_softmax(op, ref_row(logits, r), ids, ref_row(weights, r));
    }
}

/* One output of an expert, for the slots that chose it. */
static void output(const struct op *op, int k, const struct weight *w, int32_t expert, int32_t o,
                   float *row)
{
    const struct view *src = &op->src[0], *ids = &op->src[1];
    bool own = src->cols != w->n_in;
    ref_weight_row(w, o, row);
    for (int32_t r = 0; r < ids->rows; r++) {
        for (int32_t j = 0; j < ids->cols; j++) {
            const int32_t *id = (const int32_t *)ids->p + (size_t)r * (size_t)ids->stride;
            const float *x = ref_row(src, r) + (own ? (size_t)j * (size_t)w->n_in : 0);
            if (id[j] == expert)
                ref_row(&op->dst[k], r)[(size_t)j * (size_t)w->n_out + (size_t)o] =
                    ref_dot(row, x, w->n_in) + (w->bias ? w->bias[o] : 0.0f);
        }
    }
}

static bool is_chosen(const struct view *ids, int32_t expert)
{
    for (int32_t r = 0; r < ids->rows; r++) {
        for (int32_t j = 0; j < ids->cols; j++) {
            if (((const int32_t *)ids->p)[(size_t)r * (size_t)ids->stride + (size_t)j] == expert)
                return true;
        }
    }
    return false;
}

void ref_matmul_experts(const struct op *op, struct be_task *t)
{
    for (int k = 0; k < op->n_dst; k++) {
        const struct weight *all = op->w[k];
        const struct view *dst = &op->dst[k];
        for (int32_t r = t->ith; r < dst->rows; r += t->nth) { /* what no expert gives */
            for (int32_t i = 0; i < dst->cols; i++)
                ref_row(dst, r)[i] = NAN;
        }
        be_barrier(t);
        for (int32_t e = 0; e < all->n_experts; e++) {
            if (!is_chosen(&op->src[1], e))
                continue;
            struct weight w = weight_expert(all, e);
            for (int32_t o = t->ith; o < w.n_out; o += t->nth)
                output(op, k, &w, e, o, t->local);
        }
    }
}

void ref_moe_combine(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0], *src = &op->src[0], *weights = &op->src[1];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        const float *w = ref_row(weights, r), *y = ref_row(src, r);
        float *out = ref_row(dst, r), gate = ref_sigmoid(w[0]);
        if (op->flags & OP_FLAG_SIGMOID)
            w = &gate;
        for (int32_t i = 0; i < dst->cols; i++) {
            double sum = 0;
            for (int32_t j = 0; j < weights->cols; j++)
                sum += (double)w[j] * (double)y[(size_t)j * (size_t)dst->cols + (size_t)i];
            out[i] = op->flags & OP_FLAG_ACCUMULATE ? out[i] + (float)sum : (float)sum;
        }
    }
}
