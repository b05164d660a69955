/*
 * backend/ref/ref_state.c - the ops of recurrent layers. Sums are taken in double; a state is
 * float32, as it is stored.
 */
#include "backend/ref/ref.h"

#include <math.h>

/* One channel of one row. */
static float conv(const struct op *op, const struct state_rows *r, int32_t t, int32_t c)
{
    const float *w = op->w[0]->data;
    double sum = 0;
    for (int32_t j = 0; j < op->state->shape.taps; j++)
        sum += (double)w[(size_t)j * (size_t)op->state->shape.channels + (size_t)c] *
               (double)conv_input(op, r, r->n_accept + t + j)[c];
    float y = (float)sum;
    return op->i[1] ? y / (1.0f + expf(-y)) : y;
}

void ref_conv_state(const struct op *op, struct be_task *t)
{
    struct state_rows r = {0};
    while (state_rows_next(op, &r)) {
        for (int32_t c = t->ith; c < op->state->shape.channels; c += t->nth) {
            for (int32_t i = 0; i < r.n; i++)
                ref_row(&op->dst[0], r.first + i)[c] = conv(op, &r, i, c);
            conv_advance(op, &r, c, 1);
        }
    }
}

/* ---- the delta net ---- */

static void l2_norm(float *x, int32_t n, float eps, float scale)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    float inv = 1.0f / sqrtf((float)sum + eps);
    for (int32_t i = 0; i < n; i++)
        x[i] = x[i] * inv * scale;
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

void ref_delta_prepare(const struct op *op, struct be_task *t)
{
    const struct state_shape *s = &op->state->shape;
    const float *a = op->w[0]->data, *dt = op->w[1]->data;
    for (int32_t r = t->ith; r < op->dst[0].rows; r += t->nth) {
        float *x = ref_row(&op->dst[0], r), *decay = ref_row(&op->dst[1], r);
        const float *alpha = ref_row(&op->src[0], r), *beta = ref_row(&op->src[1], r);
        for (int32_t h = 0; h < 2 * s->n_key_heads; h++, x += s->key_dim)
            l2_norm(x, s->key_dim, op->f[0],
                    h < s->n_key_heads ? 1.0f / sqrtf((float)s->key_dim) : 1.0f);
        for (int32_t j = 0; j < s->n_heads; j++) {
            decay[j] = expf(a[j] * softplus(alpha[j] + dt[j]));
            decay[s->n_heads + j] = ref_sigmoid(beta[j]);
        }
    }
}

/* n rows by one column of a head's state; outputs o_stride apart, where there are queries. */
static void walk(const struct delta_rows *r, int32_t n, int32_t key_dim, int32_t col, float *s,
                 float *o, size_t o_stride)
{
    for (int32_t t = 0; t < n; t++) {
        const float *k = r->k + (size_t)t * r->stride, *q = r->q + (size_t)t * r->stride;
        double decay = (double)r->decay[(size_t)t * r->gate_stride];
        double beta = (double)r->beta[(size_t)t * r->gate_stride];
        double sum = 0, out = 0;
        for (int32_t i = 0; i < key_dim; i++)
            sum += (double)s[i] * (double)k[i];
        double u = beta * ((double)r->v[(size_t)t * r->stride + (size_t)col] - decay * sum);
        for (int32_t i = 0; i < key_dim; i++)
            s[i] = (float)(decay * (double)s[i] + (double)k[i] * u);
        for (int32_t i = 0; r->q && i < key_dim; i++)
            out += (double)s[i] * (double)q[i];
        if (r->q)
            o[(size_t)t * o_stride] = (float)out;
    }
}

/* One value column of a sequence. */
static void delta_column(const struct op *op, const struct state_rows *r, int32_t head, int32_t col)
{
    const struct state_shape *s = &op->state->shape;
    const struct view *dst = &op->dst[0];
    struct delta_rows rows = delta_rows_of_journal(op, r, head);
    float copy[STATE_DIM_MAX],
        *own = state_matrix(op->state, op->src[6].p, r->slot, op->i[0], head);
    int32_t n_own = r->n - r->n_guess, d = s->key_dim;
    float *o = ref_row(dst, r->first) + (size_t)head * (size_t)s->value_dim + col;
    own += (size_t)col * (size_t)d;
    walk(&rows, r->n_accept, d, col, own, NULL, 0);
    rows = delta_rows_of_batch(op, r->first, head);
    walk(&rows, n_own, d, col, own, o, (size_t)dst->stride);
    memcpy(copy, own, (size_t)d * sizeof(float));
    if (r->n_guess > 0)
        rows = delta_rows_of_batch(op, r->first + n_own, head);
    walk(&rows, r->n_guess, d, col, copy, o + (size_t)n_own * (size_t)dst->stride,
         (size_t)dst->stride);
}

void ref_delta_net(const struct op *op, struct be_task *t)
{
    const struct state_shape *s = &op->state->shape;
    struct state_rows r = {0};
    while (state_rows_next(op, &r)) {
        for (int32_t i = t->ith; i < s->n_heads * s->value_dim; i += t->nth)
            delta_column(op, &r, i / s->value_dim, i % s->value_dim);
    }
    be_barrier(t);
    delta_write_journals(op, t);
}
