/*
 * backend/canon/canon_experts.c - a mixture of experts: the definition. Each row is routed, each
 * slot multiplied and each sum taken alone, so nothing depends on which rows chose the same expert.
 */
#include "backend/canon/canon.h"

#include "backend/det_math.h"

/* The n_slots largest scores, largest first; of equal ones the lower index first. NaN counts as
 * -inf here. */
static void choose(const float *score, int32_t n_experts, int32_t *ids, int32_t n_slots)
{
    float best[OP_SLOTS_MAX];
    int32_t n = 0;
    for (int32_t e = 0; e < n_experts; e++) {
        float x = isnan(score[e]) ? -INFINITY : score[e];
        int32_t at = n;
        while (at > 0 && best[at - 1] < x)
            at--;
        if (at == n_slots)
            continue;
        n += n < n_slots;
        for (int32_t j = n - 1; j > at; j--) {
            best[j] = best[j - 1];
            ids[j] = ids[j - 1];
        }
        best[at] = x;
        ids[at] = e;
    }
}

static void route_softmax(const struct op *op, const float *x, int32_t *ids, float *w)
{
    const float *scale = op->w[0] ? op->w[0]->data : NULL;
    int32_t n = op->dst[0].cols;
    float sum = 0;
    choose(x, op->src[0].cols, ids, n);
    for (int32_t j = 0; j < n; j++) {
        w[j] = det_exp(x[ids[j]] - x[ids[0]]);
        sum += w[j];
    }
    for (int32_t j = 0; j < n; j++) {
        w[j] = w[j] / sum;
        w[j] = scale ? w[j] * scale[ids[j]] : w[j];
    }
}

static void route_sigmoid(const struct op *op, const float *x, int32_t *ids, float *w)
{
    const float *bias = op->w[1] ? op->w[1]->data : NULL;
    int32_t n = op->dst[0].cols, n_experts = op->src[0].cols;
    float score[OP_EXPERTS_MAX], chosen_by[OP_EXPERTS_MAX], sum = 0;
    for (int32_t e = 0; e < n_experts; e++) {
        score[e] = det_sigmoid(x[e]);
        chosen_by[e] = bias ? score[e] + bias[e] : score[e];
    }
    choose(chosen_by, n_experts, ids, n);
    for (int32_t j = 0; j < n; j++)
        sum += score[ids[j]];
    for (int32_t j = 0; j < n; j++)
        w[j] = score[ids[j]] / (sum + 1e-6f) * op->f[0];
}

void canon_moe_route(const struct op *op, struct be_task *t)
{
    const struct view *weights = &op->dst[0];
    int64_t lo, hi;
    task_slice(t, weights->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        int32_t *ids = (int32_t *)op->dst[1].p + (size_t)r * (size_t)op->dst[1].stride;
        if (op->flags & OP_FLAG_SIGMOID)
            route_sigmoid(op, view_row(&op->src[0], r), ids, view_row(weights, r));
        else
            route_softmax(op, view_row(&op->src[0], r), ids, view_row(weights, r));
    }
}

void canon_matmul_experts(const struct op *op, struct be_task *t)
{
    const struct view *src = &op->src[0], *ids = &op->src[1];
    for (int k = 0; k < op->n_dst; k++) {
        const struct weight *all = op->w[k];
        int32_t n_out = all->n_out, step = src->cols == all->n_in ? 0 : all->n_in;
        int64_t lo, hi;
        task_slice(t, n_out, &lo, &hi);
        for (int32_t i = 0; i < ids->rows * ids->cols; i++) {
            int32_t r = i / ids->cols, j = i % ids->cols;
            int32_t e = ((const int32_t *)ids->p)[(size_t)r * (size_t)ids->stride + (size_t)j];
            float *out = view_row(&op->dst[k], r) + (size_t)j * (size_t)n_out;
            if (e < 0 || e >= all->n_experts) { /* a slip must show, not read wild */
                for (int64_t o = lo; o < hi; o++)
                    out[o] = NAN;
                continue;
            }
            struct weight w = weight_expert(all, e);
            canon_product_row(&w, view_row(src, r) + (size_t)j * (size_t)step, (int32_t)lo,
                              (int32_t)hi, out, false);
        }
    }
}

void canon_moe_combine(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0], *weights = &op->src[1];
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        const float *w = view_row(weights, r), *y = view_row(&op->src[0], r);
        float *out = view_row(dst, r), gate;
        w = combine_weights(op, w, &gate);
        for (int32_t i = 0; i < dst->cols; i++) {
            float sum = 0;
            for (int32_t j = 0; j < weights->cols; j++)
                sum = fmaf(w[j], y[(size_t)j * (size_t)dst->cols + (size_t)i], sum);
            out[i] = op->flags & OP_FLAG_ACCUMULATE ? out[i] + sum : sum;
        }
    }
}
