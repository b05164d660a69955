/*
 * backend/sink_compare.c - the sink that runs each op on two backends and stops at the first op
 * whose results differ.
 *
 * The other backend works on copies of what the op writes: its destinations, and the pages of
 * qk_norm_rope_store or the slots of a recurrent layer that its rows touch, in a small pool of
 * their own. It runs first, because destinations may alias sources; then the op runs in place on
 * the first backend, and the two are compared. The forward goes on with the first backend's
 * results, so an error does not travel.
 *
 * Allocates per op: a tool for tests and for looking at a model, not for serving. Engine thread
 * only.
 */
#include "backend/be.h"
#include "backend/kernels.h"
#include "base/mem.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

/* The other backend's copies for one op. */
struct copies {
    float *dst[OP_DST_MAX];
    char *pool;
    int32_t *page_table; /* the op's page table with ids into `pool` */
    int32_t *page_id;    /* [n_pages] id in the op's own pool */
    int32_t n_pages;
    int32_t *slot; /* [S] the op's slots with ids into `pool` */
};

static void copies_free(struct copies *c)
{
    for (int k = 0; k < OP_DST_MAX; k++)
        mem_free(c->dst[k]);
    mem_free(c->pool);
    mem_free(c->page_table);
    mem_free(c->page_id);
    mem_free(c->slot);
}

static float *row_of(const struct view *v, int32_t row)
{
    return (float *)v->p + (size_t)row * (size_t)v->stride;
}

static int32_t i32_of(const struct view *v, int32_t row)
{
    return ((const int32_t *)v->p)[(size_t)row * (size_t)v->stride];
}

static t9_status no_memory(struct t9_err *err)
{
    return t9_fail(err, T9_STATUS_NOMEM, "no memory to compare an op");
}

/* Destinations with the content they had before the op; sources that alias one move with it. */
static t9_status copy_dst(struct op *op, struct copies *c, struct t9_err *err)
{
    for (int k = 0; k < op->n_dst; k++) {
        struct view *dst = &op->dst[k];
        void *own = dst->p;
        size_t n = (size_t)dst->rows * (size_t)dst->stride;
        c->dst[k] = mem_calloc(n, sizeof(float));
        if (!c->dst[k])
            return no_memory(err);
        for (int32_t r = 0; r < dst->rows; r++)
            memcpy(c->dst[k] + (size_t)r * (size_t)dst->stride, row_of(dst, r),
                   (size_t)dst->cols * sizeof(float));
        dst->p = c->dst[k];
        for (int j = 0; j < op->n_src; j++) {
            if (op->src[j].p == own)
                op->src[j].p = c->dst[k];
        }
    }
    return T9_STATUS_OK;
}

static int32_t page_find_or_add(struct copies *c, int32_t id)
{
    for (int32_t i = 0; i < c->n_pages; i++) {
        if (c->page_id[i] == id)
            return i;
    }
    c->page_id[c->n_pages] = id;
    return c->n_pages++;
}

/* Copies of the pages that the op's rows fall into, and a page table that names them. */
static t9_status copy_pages(struct op *op, struct copies *c, struct t9_err *err)
{
    struct view *table = &op->src[5], *pool = &op->src[6];
    int32_t n_rows = op->dst[0].rows;
    size_t n_table = (size_t)table->rows * (size_t)table->stride;
    c->page_table = mem_calloc(n_table, sizeof(int32_t));
    c->page_id = mem_calloc((size_t)n_rows, sizeof(int32_t));
    if (!c->page_table || !c->page_id)
        return no_memory(err);
    for (int32_t r = 0; r < n_rows; r++) {
        int32_t key = i32_of(&op->src[3], r);
        if (key < 0)
            continue;
        size_t at =
            (size_t)i32_of(&op->src[4], r) * (size_t)table->stride + (size_t)(key / KV_PAGE_TOKENS);
        c->page_table[at] = page_find_or_add(c, ((const int32_t *)table->p)[at]);
    }
    c->pool = mem_alloc_aligned(64, (size_t)(c->n_pages + 1) * op->kv->page_bytes);
    if (!c->pool)
        return no_memory(err);
    for (int32_t i = 0; i < c->n_pages; i++)
        memcpy(c->pool + (size_t)i * op->kv->page_bytes,
               (char *)pool->p + (size_t)c->page_id[i] * op->kv->page_bytes, op->kv->page_bytes);
    table->p = c->page_table;
    pool->p = c->pool;
    return T9_STATUS_OK;
}

/* Copies of the slots of the sequences that have rows. */
static t9_status copy_slots(struct op *op, struct copies *c, struct t9_err *err)
{
    struct view *slot = &op->src[3], *pool = &op->src[6];
    size_t slot_bytes = op->state->slot_bytes;
    int32_t n = 0;
    for (struct state_rows r = {0}; state_rows_next(op, &r);)
        n++;
    c->slot = mem_calloc((size_t)slot->rows, sizeof(int32_t));
    c->pool = mem_alloc_aligned(64, (size_t)n * slot_bytes);
    if (!c->slot || !c->pool)
        return no_memory(err);
    n = 0;
    for (struct state_rows r = {0}; state_rows_next(op, &r); n++) {
        c->slot[i32_of(&op->src[2], r.first)] = n;
        memcpy(c->pool + (size_t)n * slot_bytes, state_slot(op->state, pool->p, r.slot),
               slot_bytes);
    }
    slot->p = c->slot;
    slot->stride = 1;
    pool->p = c->pool;
    return T9_STATUS_OK;
}

/* ||a - b|| / ||b|| over n values; with *col the place of the largest difference. A value that is
 * not a number on one side only counts as infinitely wrong. */
static float relative_error(const float *a, const float *b, int32_t n, int32_t *col)
{
    double diff = 0, norm = 0, worst = -1;
    for (int32_t i = 0; i < n; i++) {
        double d = isnan(a[i]) && isnan(b[i]) ? 0 : fabs((double)a[i] - (double)b[i]);
        if (a[i] == b[i])
            d = 0; /* equal infinities */
        if (isnan(d))
            d = HUGE_VAL;
        if (d > worst) {
            worst = d;
            *col = i;
        }
        diff += d * d;
        norm += isfinite(b[i]) ? (double)b[i] * (double)b[i] : 0;
    }
    if (diff == 0)
        return 0;
    return norm == 0 ? INFINITY : (float)sqrt(diff / norm);
}

static t9_status compare_row(struct cx *cx, const struct op *op, const char *what, int32_t row,
                             const float *a, const float *b, int32_t n)
{
    struct compare *c = cx->sink;
    int32_t col = 0;
    float e = relative_error(a, b, n, &col);
    if (e > c->worst)
        c->worst = e;
    if (c->tolerance > 0 ? e <= c->tolerance : memcmp(a, b, (size_t)n * sizeof(float)) == 0)
        return T9_STATUS_OK;
    return t9_fail(&cx->err, T9_STATUS_INTERNAL,
                   "layer %d, op %zu %s, %s, row %d, column %d: %s has %.9g, %s has %.9g (relative "
                   "error %.3g)",
                   op->layer, c->n_ops, op_kind_name((op_kind)op->kind), what, row, col,
                   be_name(c->be), (double)a[col], be_name(c->other), (double)b[col], (double)e);
}

/* Numbers that are choices: equal or not, whatever the tolerance. */
static t9_status compare_ids(struct cx *cx, const struct op *op, const char *what, int32_t row,
                             const void *a, const void *b, int32_t n)
{
    struct compare *c = cx->sink;
    const int32_t *x = a, *y = b;
    int32_t col = 0;
    while (col < n && x[col] == y[col])
        col++;
    if (col == n)
        return T9_STATUS_OK;
    return t9_fail(&cx->err, T9_STATUS_INTERNAL,
                   "layer %d, op %zu %s, %s, row %d, column %d: %s has %d, %s has %d", op->layer,
                   c->n_ops, op_kind_name((op_kind)op->kind), what, row, col, be_name(c->be),
                   x[col], be_name(c->other), y[col]);
}

/* The stored key or value of a slot, as floats. */
static void gather_kv(const struct kv_layer *g, const char *head, bool key, int32_t slot,
                      float *out)
{
    for (int32_t i = 0; i < g->head_dim; i++)
        out[i] = key ? kv_load_k(g, head, slot, i) : kv_load_v(g, head, slot, i);
}

/* The stored key and value of every row and head. */
static t9_status compare_kv(struct cx *cx, const struct op *op, const struct op *other)
{
    const struct kv_layer *g = op->kv;
    float a[KV_HEAD_DIM_MAX] = {0}, b[KV_HEAD_DIM_MAX] = {0};
    for (int32_t r = 0; r < op->dst[0].rows; r++) {
        int32_t key = i32_of(&op->src[3], r);
        if (key < 0)
            continue;
        size_t at = (size_t)i32_of(&op->src[4], r) * (size_t)op->src[5].stride +
                    (size_t)(key / KV_PAGE_TOKENS);
        int32_t page_a = ((const int32_t *)op->src[5].p)[at];
        int32_t page_b = ((const int32_t *)other->src[5].p)[at];
        int32_t slot = key % KV_PAGE_TOKENS;
        for (int32_t h = 0; h < g->n_head_kv; h++) {
            gather_kv(g, kv_page_k(g, op->src[6].p, page_a, h), true, slot, a);
            gather_kv(g, kv_page_k(g, other->src[6].p, page_b, h), true, slot, b);
            T9_TRY(compare_row(cx, op, "stored key", r, a, b, g->head_dim));
            gather_kv(g, kv_page_v(g, op->src[6].p, page_a, h), false, slot, a);
            gather_kv(g, kv_page_v(g, other->src[6].p, page_b, h), false, slot, b);
            T9_TRY(compare_row(cx, op, "stored value", r, a, b, g->head_dim));
        }
    }
    return T9_STATUS_OK;
}

/* The layer's state of every sequence that has rows, and what the journal has of it. */
static t9_status compare_state(struct cx *cx, const struct op *op, const struct op *other)
{
    const struct state_geom *g = op->state;
    const struct state_shape *s = &g->shape;
    int32_t n_matrix = s->key_dim * s->value_dim, layer = op->i[0];
    void *pool = op->src[6].p, *copy = other->src[6].p;
    for (struct state_rows r = {0}, q = {0};
         state_rows_next(op, &r) && state_rows_next(other, &q);) {
        int32_t seq = i32_of(&op->src[2], r.first);
        for (int32_t h = 0; h < s->n_heads; h++)
            T9_TRY(compare_row(cx, op, "state matrix", seq, state_matrix(g, pool, r.slot, layer, h),
                               state_matrix(g, copy, q.slot, layer, h), n_matrix));
        T9_TRY(compare_row(cx, op, "history", seq, state_history(g, pool, r.slot, layer),
                           state_history(g, copy, q.slot, layer), (s->taps - 1) * s->channels));
        for (int32_t i = 0; i < r.n_guess; i++)
            T9_TRY(compare_row(
                cx, op, "journal", seq, state_journal_conv(g, pool, r.slot, layer, i),
                state_journal_conv(g, copy, q.slot, layer, i), g->conv_cols + g->delta_cols));
    }
    return T9_STATUS_OK;
}

static t9_status compare_all(struct cx *cx, const struct op *op, const struct op *other)
{
    static const char *const names[OP_DST_MAX] = {"dst 0", "dst 1", "dst 2"};
    for (int k = 0; k < op->n_dst && k < OP_DST_MAX; k++) {
        bool ids = op->dst[k].dtype == VIEW_I32;
        for (int32_t r = 0; r < op->dst[k].rows; r++) {
            const float *a = row_of(&op->dst[k], r), *b = row_of(&other->dst[k], r);
            T9_TRY(ids ? compare_ids(cx, op, names[k], r, a, b, op->dst[k].cols)
                       : compare_row(cx, op, names[k], r, a, b, op->dst[k].cols));
        }
    }
    if (op->state_write)
        return compare_state(cx, op, other);
    return op->kv_write ? compare_kv(cx, op, other) : T9_STATUS_OK;
}

static t9_status submit(struct cx *cx, const struct op *op)
{
    struct compare *c = cx->sink;
    struct copies copies = {0};
    struct op other = *op;
    t9_status st = copy_dst(&other, &copies, &cx->err);
    if (st == T9_STATUS_OK && op->kv_write)
        st = copy_pages(&other, &copies, &cx->err);
    if (st == T9_STATUS_OK && op->state_write)
        st = copy_slots(&other, &copies, &cx->err);
    if (st != T9_STATUS_OK)
        goto done;
    for (int k = 0; k < op->n_w; k++) {
        if (op->w[k] && op->w[k]->layout != WEIGHT_LAYOUT_VECTOR)
            other.w[k] = c->other_weight(c->ctx, op->w[k]);
    }
    st = be_run(c->other, &other, 1, &cx->err);
    if (st == T9_STATUS_OK)
        st = be_run(c->be, op, 1, &cx->err);
    if (st == T9_STATUS_OK)
        st = compare_all(cx, op, &other);
    c->n_ops++;
done:
    copies_free(&copies);
    return st;
}

void cx_init_compare(struct cx *cx, struct compare *c, struct scratch *scratch)
{
    c->n_ops = 0;
    c->worst = 0;
    *cx = (struct cx){.submit = submit, .sink = c, .scratch = scratch, .layer = -1};
}
