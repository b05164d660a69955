/*
 * backend/canon/canon_state.c - the ops of recurrent layers: the definition.
 *
 * A channel of the convolution is independent of the others, in its history and its journal too, so
 * workers share out channels and each walks the rows of every sequence. A column of a delta net's
 * state (the keys' dimensions of one value) is independent as well, but all of a head's read the
 * same keys: journals are written when no worker walks any more.
 */
#include "backend/canon/canon.h"

#include "backend/det_math.h"

enum { CHANNELS = 256 }; /* of one run: their inputs stay in the nearest cache */

static void conv_row(float *dst, const float *const *rows, const float *w, size_t stride,
                     int32_t taps, int32_t n, bool silu)
{
    for (int32_t i = 0; i < n; i++) {
        float sum = 0;
        for (int32_t j = 0; j < taps; j++)
            sum = fmaf(w[(size_t)j * stride + (size_t)i], rows[j][i], sum);
        dst[i] = silu ? det_silu(sum) : sum;
    }
}

/* Channels [lo, lo + n) of a sequence's rows, then of its state. */
static void conv_channels(const struct op *op, const struct state_rows *r, int32_t lo, int32_t n,
                          conv_row_fn fn)
{
    const float *rows[STATE_TAPS_MAX], *w = op->w[0]->data;
    int32_t taps = op->state->shape.taps;
    for (int32_t t = 0; t < r->n; t++) {
        for (int32_t j = 0; j < taps; j++)
            rows[j] = conv_input(op, r, r->n_accept + t + j) + lo;
        fn(view_row(&op->dst[0], r->first + t) + lo, rows, w + lo,
           (size_t)op->state->shape.channels, taps, n, op->i[1] != 0);
    }
    conv_advance(op, r, lo, n);
}

void canon_conv_state_by(const struct op *op, struct be_task *t, conv_row_fn fn)
{
    struct state_rows r = {0};
    int32_t n = op->state->shape.channels;
    int64_t lo, hi;
    task_slice(t, (n + CHANNELS - 1) / CHANNELS, &lo, &hi);
    while (state_rows_next(op, &r)) {
        for (int32_t c = (int32_t)lo * CHANNELS; c < (int32_t)hi * CHANNELS && c < n; c += CHANNELS)
            conv_channels(op, &r, c, n - c < CHANNELS ? n - c : CHANNELS, fn);
    }
}

void canon_conv_state(const struct op *op, struct be_task *t)
{
    canon_conv_state_by(op, t, conv_row);
}

/* ---- the delta net ---- */

static void l2_norm(float *x, int32_t n, float eps, float scale)
{
    float inv = 1.0f / sqrtf(canon_dot(x, x, n) + eps) * scale;
    for (int32_t i = 0; i < n; i++)
        x[i] *= inv;
}

static void gates(const struct op *op, int32_t row)
{
    const float *alpha = view_row(&op->src[0], row), *beta = view_row(&op->src[1], row);
    const float *a = op->w[0]->data, *dt = op->w[1]->data;
    float *decay = view_row(&op->dst[1], row);
    int32_t n = op->state->shape.n_heads;
    for (int32_t j = 0; j < n; j++) {
        decay[j] = det_exp(a[j] * det_softplus(alpha[j] + dt[j]));
        decay[n + j] = det_sigmoid(beta[j]);
    }
}

void canon_delta_prepare_by(const struct op *op, struct be_task *t, l2_norm_fn fn)
{
    const struct state_shape *s = &op->state->shape;
    const struct view *c = &op->dst[0];
    float scale = 1.0f / sqrtf((float)s->key_dim);
    int32_t n_parts = 2 * s->n_key_heads + 1; /* a row's queries, keys, gates */
    int64_t lo, hi;
    task_slice(t, (int64_t)c->rows * n_parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t row = (int32_t)(i / n_parts), h = (int32_t)(i % n_parts);
        if (h == 2 * s->n_key_heads)
            gates(op, row);
        else
            fn(view_row(c, row) + (size_t)h * (size_t)s->key_dim, s->key_dim, op->f[0],
               h < s->n_key_heads ? scale : 1.0f);
    }
}

void canon_delta_prepare(const struct op *op, struct be_task *t)
{
    canon_delta_prepare_by(op, t, l2_norm);
}

/* One column. Lanes beyond the keys' dimensions are zeros that take part. */
static void walk_column(const struct delta_walk *w, int32_t col)
{
    int32_t d = w->key_dim, n = (d + CANON_LANES - 1) / CANON_LANES * CANON_LANES;
    size_t used = (size_t)d * sizeof(float);
    float s[STATE_DIM_MAX] = {0}, k[STATE_DIM_MAX] = {0}, q[STATE_DIM_MAX] = {0};
    float *own = w->s + (size_t)col * (size_t)d;
    for (int32_t t = 0; t < w->n_rows; t++) {
        const struct delta_rows *r = &w->rows;
        size_t at = (size_t)t * r->stride, gate = (size_t)t * r->gate_stride;
        float decay = r->decay[gate], beta = r->beta[gate];
        memset(s, 0, sizeof(s));
        memcpy(s, own, used);
        memcpy(k, r->k + at, used);
        float u = beta * fmaf(-decay, canon_dot(s, k, n), r->v[at + (size_t)col]);
        for (int32_t i = 0; i < n; i++)
            s[i] = fmaf(k[i], u, decay * s[i]);
        memcpy(own, s, used);
        if (!r->q)
            continue;
        memcpy(q, r->q + at, used);
        w->o[(size_t)t * w->o_stride + (size_t)col] = canon_dot(s, q, n);
    }
}

static void walk(const struct delta_walk *w)
{
    for (int32_t col = 0; col < w->n_cols; col++)
        walk_column(w, col);
}

static void delta_walk_part(struct delta_walk *w, struct delta_rows rows, int32_t col,
                            int32_t n_rows, delta_walk_fn fn)
{
    w->rows = rows;
    w->rows.v += col;
    w->n_rows = n_rows;
    if (n_rows > 0)
        fn(w);
}

/* Columns [col, col + n) of a head: what is accepted, what is committed, and on a copy of their
 * state what is guessed. */
static void delta_columns(const struct op *op, const struct state_rows *r, int32_t head,
                          int32_t col, int32_t n, delta_walk_fn fn)
{
    const struct state_shape *s = &op->state->shape;
    float copy[DELTA_COLS_MAX * STATE_DIM_MAX];
    int32_t n_own = r->n - r->n_guess, guess = r->first + n_own;
    size_t at = (size_t)head * (size_t)s->value_dim + (size_t)col;
    struct delta_walk w = {.key_dim = s->key_dim, .n_cols = n};
    w.s = state_matrix(op->state, op->src[6].p, r->slot, op->i[0], head) +
          (size_t)col * (size_t)s->key_dim;
    w.o_stride = (size_t)op->dst[0].stride;
    delta_walk_part(&w, delta_rows_of_journal(op, r, head), col, r->n_accept, fn);
    w.o = view_row(&op->dst[0], r->first) + at;
    delta_walk_part(&w, delta_rows_of_batch(op, r->first, head), col, n_own, fn);
    if (r->n_guess == 0)
        return;
    memcpy(copy, w.s, (size_t)n * (size_t)s->key_dim * sizeof(float));
    w.s = copy;
    w.o = view_row(&op->dst[0], guess) + at;
    delta_walk_part(&w, delta_rows_of_batch(op, guess, head), col, r->n_guess, fn);
}

void canon_delta_net_by(const struct op *op, struct be_task *t, delta_walk_fn fn)
{
    const struct state_shape *s = &op->state->shape;
    int32_t n_parts = (s->value_dim + DELTA_COLS_MAX - 1) / DELTA_COLS_MAX;
    struct state_rows r = {0};
    int64_t lo, hi;
    task_slice(t, (int64_t)s->n_heads * n_parts, &lo, &hi);
    while (state_rows_next(op, &r)) {
        for (int64_t i = lo; i < hi; i++) {
            int32_t col = (int32_t)(i % n_parts) * DELTA_COLS_MAX, n = s->value_dim - col;
            delta_columns(op, &r, (int32_t)(i / n_parts), col,
                          n < DELTA_COLS_MAX ? n : DELTA_COLS_MAX, fn);
        }
    }
    if (!op->src[5].p)
        return;
    be_barrier(t);
    delta_write_journals(op, t);
}

void canon_delta_net(const struct op *op, struct be_task *t)
{
    canon_delta_net_by(op, t, walk);
}
