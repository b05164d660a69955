/*
 * backend/op_check.c - is a record consistent? Called by the builders, so that a forward's mistake
 * shows at the op that makes it, and again by be_run, so that no kernel ever sees a bad record.
 *
 * Only the record is read: never the data behind a view. Any thread.
 */
#include "backend/be_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* "rmsnorm in layer 3: " before the reason. */
static t9_status fail(const struct op *op, struct t9_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static t9_status fail(const struct op *op, struct t9_err *err, const char *fmt, ...)
{
    char why[160];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    const char *name = op_kind_name((op_kind)op->kind);
    if (op->layer < 0)
        return t9_fail(err, T9_STATUS_INVALID, "%s: %s", name, why);
    return t9_fail(err, T9_STATUS_INVALID, "%s in layer %d: %s", name, op->layer, why);
}

/* Present, of type `dtype`, with exactly rows x cols. */
static t9_status want(const struct op *op, const char *what, const struct view *v, view_dtype dtype,
                      int32_t rows, int32_t cols, struct t9_err *err)
{
    if (!v->p)
        return fail(op, err, "%s is absent", what);
    if (v->dtype != dtype)
        return fail(op, err, "%s has element type %d, %d wanted", what, v->dtype, (int)dtype);
    if (v->dev != 0)
        return fail(op, err, "%s is on device %d", what, v->dev);
    if (v->rows < 1 || v->cols < 1 || v->stride < v->cols)
        return fail(op, err, "%s is [%d, %d] with stride %d", what, v->rows, v->cols, v->stride);
    if (v->rows != rows || v->cols != cols)
        return fail(op, err, "%s is [%d, %d], [%d, %d] wanted", what, v->rows, v->cols, rows, cols);
    return T9_STATUS_OK;
}

/* Like want, but rows x cols are the view's own: the one that the others are compared with. */
static t9_status want_any(const struct op *op, const char *what, const struct view *v,
                          view_dtype dtype, struct t9_err *err)
{
    return want(op, what, v, dtype, v->rows, v->cols, err);
}

static t9_status want_weight(const struct op *op, const struct weight *w, int32_t n_in,
                             int32_t n_out, struct t9_err *err)
{
    if (!w || !w->data)
        return fail(op, err, "a weight is absent");
    if (w->layout == WEIGHT_LAYOUT_VECTOR)
        return fail(op, err, "weight %s is a vector, a matrix is wanted", w->name);
    if ((w->n_experts > 0) != (op->kind == OP_MATMUL_EXPERTS))
        return fail(op, err, "weight %s has %d experts", w->name, w->n_experts);
    if (w->n_in != n_in || w->n_out != n_out)
        return fail(op, err, "weight %s is %d -> %d, %d -> %d wanted", w->name, w->n_in, w->n_out,
                    n_in, n_out);
    return T9_STATUS_OK;
}

static t9_status want_vector(const struct op *op, const struct weight *w, int32_t n,
                             struct t9_err *err)
{
    if (!w || !w->data)
        return fail(op, err, "a weight is absent");
    if (w->layout != WEIGHT_LAYOUT_VECTOR)
        return fail(op, err, "weight %s is a matrix, a vector is wanted", w->name);
    if (w->n_in != n || w->n_out != 1)
        return fail(op, err, "weight %s has %d values, %d wanted", w->name, w->n_in, n);
    return T9_STATUS_OK;
}

static t9_status check_embed_rows(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0];
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    T9_TRY(want(op, "ids", &op->src[0], VIEW_I32, dst->rows, 1, err));
    if (op->src[1].p)
        T9_TRY(want(op, "override", &op->src[1], VIEW_PTR, dst->rows, 1, err));
    if (!isfinite(op->f[0]) || op->f[0] == 0)
        return fail(op, err, "the scale is %g", (double)op->f[0]);
    return want_weight(op, op->w[0], dst->cols, op->w[0] ? op->w[0]->n_out : 0, err);
}

static t9_status check_gather_rows(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0], *src = &op->src[0];
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    T9_TRY(want(op, "src", src, VIEW_F32, src->rows, dst->cols, err));
    if (src->p == dst->p)
        return fail(op, err, "dst is src");
    return want(op, "rows", &op->src[1], VIEW_I32, dst->rows, 1, err);
}

static t9_status check_rmsnorm(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0];
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    T9_TRY(want(op, "src", &op->src[0], VIEW_F32, dst->rows, dst->cols, err));
    if (!(op->f[0] >= 0))
        return fail(op, err, "epsilon is %g", (double)op->f[0]);
    int32_t n = op->w[0] ? op->w[0]->n_in : 0;
    return want_vector(op, op->w[0], n > 0 && dst->cols % n == 0 ? n : dst->cols, err);
}

static t9_status check_matmul(const struct op *op, struct t9_err *err)
{
    const struct view *src = &op->src[0];
    if (op->n_dst < 1 || op->n_dst > OP_DST_MAX || op->n_w != op->n_dst)
        return fail(op, err, "1 to %d products a call", OP_DST_MAX);
    if ((op->flags & OP_FLAG_ACCUMULATE) && op->n_dst != 1)
        return fail(op, err, "only one product can be added");
    T9_TRY(want_any(op, "src", src, VIEW_F32, err));
    for (int k = 0; k < op->n_dst; k++) {
        const struct view *dst = &op->dst[k];
        T9_TRY(want(op, "dst", dst, VIEW_F32, src->rows, dst->cols, err));
        T9_TRY(want_weight(op, op->w[k], src->cols, dst->cols, err));
        if (dst->p == src->p)
            return fail(op, err, "dst is src");
    }
    return T9_STATUS_OK;
}

static t9_status check_rope_angles(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0];
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    if (dst->cols % 2 != 0)
        return fail(op, err, "%d rotated dimensions, an even number is wanted", dst->cols);
    int32_t half = dst->cols / 2, n_h = op->i[0], n_w = op->i[1];
    if (n_h < 0 || n_w < 0 || 3 * (int64_t)n_h > half + 1 || 3 * (int64_t)n_w > half + 2)
        return fail(op, err, "%d and %d of %d pairs for h and w", n_h, n_w, half);
    T9_TRY(want(op, "pos", &op->src[0], VIEW_I32, dst->rows, n_h || n_w ? 3 : 1, err));
    return want(op, "inv_freq", &op->src[1], VIEW_F32, 1, dst->cols / 2, err);
}

/* What the two ops that see KV pages have in common. */
static t9_status check_kv(const struct op *op, int32_t n_head, const struct view *page_table,
                          const struct view *pool, struct t9_err *err)
{
    const struct kv_layer *g = op->kv;
    if (!g)
        return fail(op, err, "the KV geometry is absent");
    if (n_head < 1 || n_head % g->n_head_kv != 0)
        return fail(op, err, "%d heads over %d KV heads", n_head, g->n_head_kv);
    T9_TRY(want_any(op, "page table", page_table, VIEW_I32, err));
    return want_any(op, "page pool", pool, VIEW_BYTES, err);
}

static t9_status check_qk_norm_rope_store(const struct op *op, struct t9_err *err)
{
    const struct view *q = &op->dst[0];
    int32_t n_head = op->i[0], n_rot = op->i[1];
    T9_TRY(check_kv(op, n_head, &op->src[5], &op->src[6], err));
    int32_t d = op->kv->head_dim, n_kv = op->kv->n_head_kv * d;
    T9_TRY(want(op, "q", q, VIEW_F32, q->rows, n_head * d, err));
    if (op->src[0].p || op->src[1].p) {
        T9_TRY(want(op, "k", &op->src[0], VIEW_F32, q->rows, n_kv, err));
        T9_TRY(want(op, "v", &op->src[1], VIEW_F32, q->rows, n_kv, err));
    }
    if (n_rot < 2 || n_rot > d || n_rot % 2 != 0)
        return fail(op, err, "%d rotated of %d dimensions", n_rot, d);
    T9_TRY(want(op, "angles", &op->src[2], VIEW_F32, q->rows, n_rot, err));
    T9_TRY(want(op, "kv_idx", &op->src[3], VIEW_I32, q->rows, 1, err));
    T9_TRY(want(op, "row_seq", &op->src[4], VIEW_I32, q->rows, 1, err));
    for (int k = 0; k < 2; k++) {
        if (op->w[k])
            T9_TRY(want_vector(op, op->w[k], d, err));
    }
    if (!op->w[2])
        return T9_STATUS_OK;
    T9_TRY(want_vector(op, op->w[2], op->w[2]->n_in, err));
    if (op->i[2] < 1)
        return fail(op, err, "a query scale of every %d positions", op->i[2]);
    return want(op, "pos", &op->src[7], VIEW_I32, q->rows, 1, err);
}

static t9_status check_attn_paged(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0];
    int32_t n_head = op->i[0];
    T9_TRY(check_kv(op, n_head, &op->src[3], &op->src[4], err));
    T9_TRY(want(op, "dst", dst, VIEW_F32, dst->rows, n_head * op->kv->head_dim, err));
    T9_TRY(want(op, "q", &op->src[0], VIEW_F32, dst->rows, dst->cols, err));
    if (dst->p == op->src[0].p)
        return fail(op, err, "dst is q");
    T9_TRY(want(op, "kv_idx", &op->src[1], VIEW_I32, dst->rows, 1, err));
    T9_TRY(want(op, "row_seq", &op->src[2], VIEW_I32, dst->rows, 1, err));
    if (op->src[5].p)
        T9_TRY(want(op, "span_end", &op->src[5], VIEW_I32, dst->rows, 1, err));
    if (op->i[1] < 0)
        return fail(op, err, "a window of %d", op->i[1]);
    return op->w[0] ? want_vector(op, op->w[0], n_head, err) : T9_STATUS_OK;
}

static t9_status check_two(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0];
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    T9_TRY(want(op, "the first source", &op->src[0], VIEW_F32, dst->rows, dst->cols, err));
    if (op->kind == OP_ADD && op->src[1].dtype == VIEW_PTR) {
        if (dst->p != op->src[0].p)
            return fail(op, err, "rows are added in place");
        return want(op, "the rows", &op->src[1], VIEW_PTR, dst->rows, 1, err);
    }
    T9_TRY(want(op, "the second source", &op->src[1], VIEW_F32, dst->rows, dst->cols, err));
    if (op->kind == OP_ACT_MUL && (op->i[0] < 0 || op->i[0] >= ACT_COUNT))
        return fail(op, err, "activation %d", op->i[0]);
    return T9_STATUS_OK;
}

static t9_status check_map(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0];
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    T9_TRY(want(op, "src", &op->src[0], VIEW_F32, dst->rows, dst->cols, err));
    if (!isfinite(op->f[0]) || (op->kind == OP_SOFTCAP && !(op->f[0] > 0)))
        return fail(op, err, "the factor is %g", (double)op->f[0]);
    return T9_STATUS_OK;
}

/* Slots of a row, as a view [T, K] says them. */
static t9_status want_slots(const struct op *op, const char *what, const struct view *v,
                            view_dtype dtype, int32_t rows, struct t9_err *err)
{
    if (v->cols > OP_SLOTS_MAX)
        return fail(op, err, "%d experts a row; at most %d are used", v->cols, OP_SLOTS_MAX);
    return want(op, what, v, dtype, rows, v->cols, err);
}

static t9_status check_moe_route(const struct op *op, struct t9_err *err)
{
    const struct view *logits = &op->src[0], *weights = &op->dst[0];
    T9_TRY(want_any(op, "logits", logits, VIEW_F32, err));
    T9_TRY(want_slots(op, "weights", weights, VIEW_F32, logits->rows, err));
    T9_TRY(want(op, "ids", &op->dst[1], VIEW_I32, logits->rows, weights->cols, err));
    if (logits->cols > OP_EXPERTS_MAX || weights->cols > logits->cols)
        return fail(op, err, "%d of %d experts; at most %d are known", weights->cols, logits->cols,
                    OP_EXPERTS_MAX);
    if ((op->flags & OP_FLAG_SIGMOID) && (!isfinite(op->f[0]) || op->f[0] == 0))
        return fail(op, err, "the scale is %g", (double)op->f[0]);
    for (int k = 0; k < op->n_w; k++) {
        if (op->w[k])
            T9_TRY(want_vector(op, op->w[k], logits->cols, err));
    }
    return T9_STATUS_OK;
}

static t9_status check_matmul_experts(const struct op *op, struct t9_err *err)
{
    const struct view *src = &op->src[0], *ids = &op->src[1];
    if (op->n_dst < 1 || op->n_dst > 2 || op->n_w != op->n_dst || !op->w[0])
        return fail(op, err, "1 or 2 products a call");
    T9_TRY(want_any(op, "src", src, VIEW_F32, err));
    T9_TRY(want_slots(op, "ids", ids, VIEW_I32, src->rows, err));
    int32_t n_in = op->w[0]->n_in;
    bool own = src->cols != n_in; /* each slot has its own input */
    if (own && (src->cols % ids->cols != 0 || src->cols / ids->cols != n_in))
        return fail(op, err, "src has %d columns, %d or %d times as many are wanted", src->cols,
                    n_in, ids->cols);
    if (own && src->stride != src->cols)
        return fail(op, err, "src has gaps between rows");
    for (int k = 0; k < op->n_dst; k++) {
        const struct view *dst = &op->dst[k];
        T9_TRY(want(op, "dst", dst, VIEW_F32, src->rows, dst->cols, err));
        if (dst->cols % ids->cols != 0)
            return fail(op, err, "dst has %d columns for %d slots", dst->cols, ids->cols);
        T9_TRY(want_weight(op, op->w[k], n_in, dst->cols / ids->cols, err));
        if (op->w[k]->n_experts != op->w[0]->n_experts || op->w[k]->n_experts > OP_EXPERTS_MAX)
            return fail(op, err, "weight %s has %d experts", op->w[k]->name, op->w[k]->n_experts);
        if (dst->p == src->p || dst->stride != dst->cols)
            return fail(op, err, dst->p == src->p ? "dst is src" : "dst has gaps between rows");
    }
    return T9_STATUS_OK;
}

static t9_status check_moe_combine(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0], *src = &op->src[0], *weights = &op->src[1];
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    T9_TRY(want_slots(op, "weights", weights, VIEW_F32, dst->rows, err));
    if ((op->flags & OP_FLAG_SIGMOID) && weights->cols != 1)
        return fail(op, err, "%d gates a row, 1 is wanted", weights->cols);
    if (src->cols % weights->cols != 0 || src->cols / weights->cols != dst->cols)
        return fail(op, err, "src has %d columns, %d times %d are wanted", src->cols, weights->cols,
                    dst->cols);
    T9_TRY(want(op, "src", src, VIEW_F32, dst->rows, src->cols, err));
    if (src->p == dst->p)
        return fail(op, err, "dst is src");
    return T9_STATUS_OK;
}

/* What the ops of recurrent layers have in common. */
static t9_status check_state(const struct op *op, int32_t rows, struct t9_err *err)
{
    const struct view *slot = &op->src[3], *accept = &op->src[4], *guess = &op->src[5];
    if (!op->state || op->state->shape.n_layers < 1)
        return fail(op, err, "the geometry of the state is absent");
    if (op->i[0] < 0 || op->i[0] >= op->state->shape.n_layers)
        return fail(op, err, "state layer %d of %d", op->i[0], op->state->shape.n_layers);
    T9_TRY(want(op, "row_seq", &op->src[2], VIEW_I32, rows, 1, err));
    T9_TRY(want(op, "slot", slot, VIEW_I32, slot->rows, 1, err));
    if (accept->p || guess->p) {
        T9_TRY(want(op, "accept", accept, VIEW_I32, slot->rows, 1, err));
        T9_TRY(want(op, "guess", guess, VIEW_I32, slot->rows, 1, err));
    }
    return want_any(op, "state pool", &op->src[6], VIEW_BYTES, err);
}

static t9_status check_conv_state(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0];
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    T9_TRY(check_state(op, dst->rows, err));
    const struct state_shape *s = &op->state->shape;
    T9_TRY(want(op, "dst", dst, VIEW_F32, dst->rows, s->channels, err));
    T9_TRY(want(op, "x", &op->src[0], VIEW_F32, dst->rows, s->channels, err));
    if (dst->p == op->src[0].p)
        return fail(op, err, "dst is x");
    return want_vector(op, op->w[0], s->taps * s->channels, err);
}

/* A delta net whose rows are what the convolution gives. */
static t9_status check_delta_shape(const struct op *op, struct t9_err *err)
{
    const struct state_geom *g = op->state;
    if (!g || g->shape.n_heads < 1)
        return fail(op, err, "the geometry has no delta net");
    const struct state_shape *s = &g->shape;
    int32_t cols = 2 * s->n_key_heads * s->key_dim + s->n_heads * s->value_dim;
    if (cols != s->channels)
        return fail(op, err, "q, k and v are %d of %d channels", cols, s->channels);
    return T9_STATUS_OK;
}

static t9_status check_delta_prepare(const struct op *op, struct t9_err *err)
{
    const struct view *c = &op->dst[0];
    T9_TRY(check_delta_shape(op, err));
    const struct state_shape *s = &op->state->shape;
    T9_TRY(want(op, "c", c, VIEW_F32, c->rows, s->channels, err));
    T9_TRY(want(op, "gates", &op->dst[1], VIEW_F32, c->rows, 2 * s->n_heads, err));
    T9_TRY(want(op, "alpha", &op->src[0], VIEW_F32, c->rows, s->n_heads, err));
    T9_TRY(want(op, "beta", &op->src[1], VIEW_F32, c->rows, s->n_heads, err));
    if (!(op->f[0] >= 0))
        return fail(op, err, "epsilon is %g", (double)op->f[0]);
    T9_TRY(want_vector(op, op->w[0], s->n_heads, err));
    return want_vector(op, op->w[1], s->n_heads, err);
}

static t9_status check_delta_net(const struct op *op, struct t9_err *err)
{
    const struct view *dst = &op->dst[0];
    T9_TRY(check_delta_shape(op, err));
    T9_TRY(want_any(op, "dst", dst, VIEW_F32, err));
    T9_TRY(check_state(op, dst->rows, err));
    const struct state_shape *s = &op->state->shape;
    T9_TRY(want(op, "dst", dst, VIEW_F32, dst->rows, s->n_heads * s->value_dim, err));
    T9_TRY(want(op, "c", &op->src[0], VIEW_F32, dst->rows, s->channels, err));
    if (dst->p == op->src[0].p)
        return fail(op, err, "dst is c");
    return want(op, "gates", &op->src[1], VIEW_F32, dst->rows, 2 * s->n_heads, err);
}

t9_status op_check(const struct op *op, struct t9_err *err)
{
    switch (op->kind) {
    case OP_EMBED_ROWS: return check_embed_rows(op, err);
    case OP_GATHER_ROWS: return check_gather_rows(op, err);
    case OP_RMSNORM: return check_rmsnorm(op, err);
    case OP_MATMUL: return check_matmul(op, err);
    case OP_ROPE_ANGLES: return check_rope_angles(op, err);
    case OP_QK_NORM_ROPE_STORE: return check_qk_norm_rope_store(op, err);
    case OP_ATTN_PAGED: return check_attn_paged(op, err);
    case OP_ACT_MUL:
    case OP_ADD: return check_two(op, err);
    case OP_SCALE:
    case OP_SOFTCAP: return check_map(op, err);
    case OP_MOE_ROUTE: return check_moe_route(op, err);
    case OP_MATMUL_EXPERTS: return check_matmul_experts(op, err);
    case OP_MOE_COMBINE: return check_moe_combine(op, err);
    case OP_CONV_STATE: return check_conv_state(op, err);
    case OP_DELTA_PREPARE: return check_delta_prepare(op, err);
    case OP_DELTA_NET: return check_delta_net(op, err);
    default: return t9_fail(err, T9_STATUS_INVALID, "op kind %d is unknown", op->kind);
    }
}
