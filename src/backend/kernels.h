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

/* Of ADD and ACT_MUL: row `row` of the second source; NULL: nothing is added to it. */
static inline const float *op_second_row(const struct op *op, int32_t row)
{
    const struct view *v = &op->src[1];
    size_t at = (size_t)row * (size_t)v->stride;
    return v->dtype == VIEW_PTR ? ((const float *const *)v->p)[at] : (const float *)v->p + at;
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
