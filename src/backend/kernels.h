/*
 * backend/kernels.h - private to backend/: the kernel table that ref, canon and cpu fill, and the
 * task that a kernel gets.
 *
 * A kernel runs on every worker of a pool at once: worker `ith` of `nth` does its slice of rows or
 * outputs, so that no output element is computed by two workers and none depends on nth. A kernel
 * with two phases calls be_barrier between them. canon and ref kernels are written the same way and
 * normally run with nth == 1.
 */
#ifndef T9_BACKEND_KERNELS_H
#define T9_BACKEND_KERNELS_H

#include "backend/op.h"

#include <string.h>

struct be_task {
    int ith, nth;
    void *shared; /* work buffer all workers see (int8 activations, attention partials) */
    size_t shared_bytes;
    void *local; /* work buffer of this worker */
    size_t local_bytes;
    void *pool; /* for be_barrier */
};
void be_barrier(struct be_task *t); /* returns at once when nth == 1 */

/* Of ROPE_ANGLES: the position of row `row` that pair i turns by. */
static inline int32_t op_pair_pos(const struct op *op, int32_t row, int32_t i)
{
    const struct view *v = &op->src[0];
    const int32_t *pos = (const int32_t *)v->p + (size_t)row * (size_t)v->stride;
    if (i % 3 == 1 && i < 3 * op->i[0])
        return pos[1];
    return i % 3 == 2 && i < 3 * op->i[1] ? pos[2] : pos[0];
}

/* Of EMBED_ROWS: what row `row` is copied from; NULL: it is looked up, and *id says where. */
static inline const float *op_embed_source(const struct op *op, int32_t row, int32_t *id)
{
    const struct view *ids = &op->src[0], *given = &op->src[1];
    *id = ((const int32_t *)ids->p)[(size_t)row * (size_t)ids->stride];
    if (!given->p)
        return NULL;
    const float *p = ((const float *const *)given->p)[(size_t)row * (size_t)given->stride];
    if (!p || !(op->flags & OP_FLAG_ID_0))
        return p;
    *id = 0;
    return NULL;
}

/* Of ADD and ACT_MUL: row `row` of the second source; NULL: nothing is added to it. */
static inline const float *op_second_row(const struct op *op, int32_t row)
{
    const struct view *v = &op->src[1];
    size_t at = (size_t)row * (size_t)v->stride;
    return v->dtype == VIEW_PTR ? ((const float *const *)v->p)[at] : (const float *)v->p + at;
}

/* Of QK_NORM_ROPE_STORE: heads of a row's keys and values. */
static inline int32_t op_n_stored(const struct op *op)
{
    return op->src[0].p ? op->kv->n_head_kv : 0;
}

/* Of QK_NORM_ROPE_STORE: what a row's query is multiplied by. A position before the first counts as
 * it. */
static inline float op_q_scale(const struct op *op, int32_t row)
{
    const struct weight *w = op->w[2];
    if (!w)
        return 1;
    int32_t pos = ((const int32_t *)op->src[7].p)[(size_t)row * (size_t)op->src[7].stride];
    int32_t i = pos < 0 ? 0 : pos / op->i[2];
    return ((const float *)w->data)[i < w->n_in ? i : w->n_in - 1];
}

/* Of the ops with a state: the rows of one sequence. */
struct state_rows {
    int32_t first, n; /* rows of the batch */
    int32_t slot;
    int32_t n_accept, n_guess; /* rows of the journal before them; how many of theirs go there */
};

/* To the next sequence that has rows; *r zeroed is before the first. */
static inline bool state_rows_next(const struct op *op, struct state_rows *r)
{
    const struct view *v = &op->src[2];
    const int32_t *seq = (const int32_t *)v->p;
    size_t first = (size_t)(r->first + r->n), end = first, stride = (size_t)v->stride;
    if (first >= (size_t)v->rows)
        return false;
    while (end < (size_t)v->rows && seq[end * stride] == seq[first * stride])
        end++;
    int32_t of[3] = {0}, s = seq[first * stride];
    for (int k = 0; k < 3; k++) {
        v = &op->src[3 + k];
        of[k] = v->p ? ((const int32_t *)v->p)[(size_t)s * (size_t)v->stride] : 0;
    }
    *r = (struct state_rows){(int32_t)first, (int32_t)(end - first), of[0], of[1], of[2]};
    return true;
}

/* Of CONV_STATE: input i of a sequence, counted from the oldest row of its history. */
static inline const float *conv_input(const struct op *op, const struct state_rows *r, int32_t i)
{
    const struct state_geom *g = op->state;
    const struct view *x = &op->src[0];
    int32_t n_history = g->shape.taps - 1;
    if (i < n_history)
        return state_history(g, op->src[6].p, r->slot, op->i[0]) +
               (size_t)i * (size_t)g->shape.channels;
    i -= n_history;
    if (i < r->n_accept)
        return state_journal_conv(g, op->src[6].p, r->slot, op->i[0], i);
    i += r->first - r->n_accept;
    return (const float *)x->p + (size_t)i * (size_t)x->stride;
}

/* Leaves channels [lo, lo + n) of the history and of the journal as they must be after a step. The
 * outputs of these channels have been computed: both are what they were computed from. */
static inline void conv_advance(const struct op *op, const struct state_rows *r, int32_t lo,
                                int32_t n)
{
    const struct state_geom *g = op->state;
    int32_t n_history = g->shape.taps - 1, n_kept = r->n_accept + r->n - r->n_guess;
    float *history = state_history(g, op->src[6].p, r->slot, op->i[0]) + lo;
    for (int32_t i = 0; n_kept > 0 && i < n_history; i++)
        memcpy(history + (size_t)i * (size_t)g->shape.channels, conv_input(op, r, n_kept + i) + lo,
               (size_t)n * sizeof(float));
    for (int32_t i = 0; i < r->n_guess; i++)
        memcpy(state_journal_conv(g, op->src[6].p, r->slot, op->i[0], i) + lo,
               conv_input(op, r, n_history + n_kept + i) + lo, (size_t)n * sizeof(float));
}

/* Of DELTA_NET: the key head of a value head. */
static inline int32_t delta_key_head(const struct op *op, int32_t head)
{
    const struct state_shape *s = &op->state->shape;
    return op->i[1] ? head % s->n_key_heads : head / (s->n_heads / s->n_key_heads);
}

/* Rows of a value head, as they are in a batch or in a journal. */
struct delta_rows {
    const float *q, *k, *v;     /* of the first; q NULL: there are none */
    const float *decay, *beta;  /* the same */
    size_t stride, gate_stride; /* floats to the next row */
};

static inline struct delta_rows delta_rows_of_batch(const struct op *op, int32_t row, int32_t head)
{
    const struct state_shape *s = &op->state->shape;
    const struct view *c = &op->src[0], *gates = &op->src[1];
    size_t n_keys = (size_t)s->n_key_heads * (size_t)s->key_dim;
    const float *q = (const float *)c->p + (size_t)row * (size_t)c->stride;
    const float *gate = (const float *)gates->p + (size_t)row * (size_t)gates->stride + head;
    size_t at = (size_t)delta_key_head(op, head) * (size_t)s->key_dim;
    return (struct delta_rows){.q = q + at,
                               .k = q + n_keys + at,
                               .v = q + 2 * n_keys + (size_t)head * (size_t)s->value_dim,
                               .decay = gate,
                               .beta = gate + s->n_heads,
                               .stride = (size_t)c->stride,
                               .gate_stride = (size_t)gates->stride};
}

static inline struct delta_rows delta_rows_of_journal(const struct op *op,
                                                      const struct state_rows *r, int32_t head)
{
    const struct state_geom *g = op->state;
    const struct state_shape *s = &g->shape;
    const float *k = state_journal_delta(g, op->src[6].p, r->slot, op->i[0], 0);
    const float *v = k + (size_t)s->n_key_heads * (size_t)s->key_dim;
    const float *gate = v + (size_t)s->n_heads * (size_t)s->value_dim + head;
    size_t stride = (size_t)(g->conv_cols + g->delta_cols);
    return (struct delta_rows){.k = k + (size_t)delta_key_head(op, head) * (size_t)s->key_dim,
                               .v = v + (size_t)head * (size_t)s->value_dim,
                               .decay = gate,
                               .beta = gate + s->n_heads,
                               .stride = stride,
                               .gate_stride = stride};
}

/* Writes this worker's share of what is guessed to the journals. Only when no worker reads them any
 * more. */
static inline void delta_write_journals(const struct op *op, const struct be_task *t)
{
    const struct state_geom *g = op->state;
    const struct view *c = &op->src[0], *gates = &op->src[1];
    size_t n_gates = 2 * (size_t)g->shape.n_heads, n_kv = (size_t)g->delta_cols - n_gates;
    struct state_rows r = {0};
    while (state_rows_next(op, &r)) {
        for (int32_t i = t->ith; i < r.n_guess; i += t->nth) {
            float *to = state_journal_delta(g, op->src[6].p, r.slot, op->i[0], i);
            size_t row = (size_t)(r.first + r.n - r.n_guess + i);
            const float *k = (const float *)c->p + row * (size_t)c->stride + c->cols - n_kv;
            memcpy(to, k, n_kv * sizeof(float));
            memcpy(to + n_kv, (const float *)gates->p + row * (size_t)gates->stride,
                   n_gates * sizeof(float));
        }
    }
}

typedef void (*be_kernel)(const struct op *op, struct be_task *t);
struct be_kernels {
    be_kernel fn[OP_COUNT];
};

/* Expert e of a stacked weight, as a plain one. */
static inline struct weight weight_expert(const struct weight *w, int32_t e)
{
    struct weight one = *w;
    one.n_experts = 0;
    one.size_bytes = w->size_bytes / (size_t)w->n_experts;
    one.data = (const char *)w->data + (size_t)e * one.size_bytes;
    one.bias = w->bias ? w->bias + (size_t)e * (size_t)w->n_out : NULL;
    return one;
}

/* Fill the whole table. The CPU backend starts from canon's and overrides per ISA. */
void ref_kernels(struct be_kernels *k);
void canon_kernels(struct be_kernels *k);

#endif
