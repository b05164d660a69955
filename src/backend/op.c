/*
 * backend/op.c - the typed builders of op.h and the forward context's scratch stack.
 *
 * A builder fills a record, has it checked (op_check.c) and hands it to the sink. The first
 * failure, of a check, of scratch or of the sink, stays in cx->status; every later builder returns
 * at once, so a forward function needs one check at its end. Engine thread only.
 */
#include "backend/op.h"

#include "backend/be_impl.h"

enum { SCRATCH_ALIGN = 64 };

const char *op_kind_name(op_kind k)
{
    static const char *const names[] = {
#define X(NAME, name) [OP_##NAME] = #name,
        OP_LIST(X)
#undef X
    };
    return (unsigned)k < OP_COUNT ? names[k] : "?";
}

struct view view_f32(const float *p, int32_t rows, int32_t cols)
{
    return (struct view){(void *)(uintptr_t)p, rows, cols, cols, VIEW_F32, 0};
}

struct view view_i32(const int32_t *p, int32_t rows, int32_t cols)
{
    return (struct view){(void *)(uintptr_t)p, rows, cols, cols, VIEW_I32, 0};
}

struct view view_cols(struct view v, int32_t first, int32_t n)
{
    if (v.p)
        v.p = (char *)v.p + (size_t)first * sizeof(float);
    v.cols = n;
    return v;
}

struct view cx_alloc(struct cx *cx, int32_t rows, int32_t cols)
{
    struct view none = {0};
    struct scratch *s = cx->scratch;
    if (cx->status != T9_STATUS_OK)
        return none;
    if (rows < 1 || cols < 1) {
        cx->status = t9_fail(&cx->err, T9_STATUS_INVALID, "scratch of [%d, %d] in layer %d", rows,
                             cols, cx->layer);
        return none;
    }
    size_t size_bytes = (size_t)rows * (size_t)cols * sizeof(float);
    size_bytes = (size_bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
    size_t at = s->used;
    if (s->base && size_bytes > s->cap - at) {
        cx->status = t9_fail(&cx->err, T9_STATUS_INTERNAL,
                             "scratch of %zu bytes is full: [%d, %d] in layer %d", s->cap, rows,
                             cols, cx->layer);
        return none;
    }
    s->used = at + size_bytes;
    if (s->used > s->peak)
        s->peak = s->used;
    /* While measuring, the address only has to differ from NULL and from other allocations. */
    void *p = s->base ? (void *)(s->base + at) : (void *)(uintptr_t)(SCRATCH_ALIGN + at);
    return (struct view){p, rows, cols, cols, VIEW_F32, 0};
}

struct view cx_alloc_i32(struct cx *cx, int32_t rows, int32_t cols)
{
    _Static_assert(sizeof(int32_t) == sizeof(float), "scratch counts in floats");
    struct view v = cx_alloc(cx, rows, cols);
    v.dtype = VIEW_I32;
    return v;
}

size_t cx_mark(const struct cx *cx)
{
    return cx->scratch->used;
}

void cx_release(struct cx *cx, size_t mark)
{
    cx->scratch->used = mark;
}

static void submit(struct cx *cx, struct op *op)
{
    if (cx->status != T9_STATUS_OK)
        return;
    op->layer = cx->layer;
    cx->status = op_check(op, &cx->err);
    if (cx->status == T9_STATUS_OK)
        cx->status = cx->submit(cx, op);
}

static void embed(struct cx *cx, struct view dst, struct view ids, struct view override,
                  const struct weight *w, float scale, uint16_t flags)
{
    struct op op = {.kind = OP_EMBED_ROWS, .n_dst = 1, .n_src = 2, .n_w = 1, .flags = flags};
    op.dst[0] = dst;
    op.src[0] = ids;
    op.src[1] = override;
    op.w[0] = w;
    op.f[0] = scale;
    submit(cx, &op);
}

void op_embed_rows(struct cx *cx, struct view dst, struct view ids, struct view override,
                   const struct weight *w, float scale)
{
    embed(cx, dst, ids, override, w, scale, 0);
}

void op_embed_tokens(struct cx *cx, struct view dst, struct view ids, struct view media,
                     const struct weight *w, float scale)
{
    embed(cx, dst, ids, media, w, scale, OP_FLAG_ID_0);
}

void op_gather_rows(struct cx *cx, struct view dst, struct view src, struct view rows)
{
    struct op op = {.kind = OP_GATHER_ROWS, .n_dst = 1, .n_src = 2};
    op.dst[0] = dst;
    op.src[0] = src;
    op.src[1] = rows;
    submit(cx, &op);
}

void op_rmsnorm(struct cx *cx, struct view dst, struct view src, const struct weight *w, float eps)
{
    struct op op = {.kind = OP_RMSNORM, .n_dst = 1, .n_src = 1, .n_w = 1};
    op.dst[0] = dst;
    op.src[0] = src;
    op.w[0] = w;
    op.f[0] = eps;
    submit(cx, &op);
}

static void set_products(struct op *op, const struct view *dst, const struct weight *const *w,
                         int n)
{
    int n_used = n > 0 && n <= OP_DST_MAX ? n : 0; /* 0 fails the check */
    op->n_dst = op->n_w = (uint8_t)n_used;
    for (int k = 0; k < n_used; k++) {
        op->dst[k] = dst[k];
        op->w[k] = w[k];
    }
}

void op_matmul(struct cx *cx, const struct view *dst, struct view src,
               const struct weight *const *w, int n)
{
    struct op op = {.kind = OP_MATMUL, .n_src = 1};
    set_products(&op, dst, w, n);
    op.src[0] = src;
    submit(cx, &op);
}

void op_matmul_add(struct cx *cx, struct view dst, struct view src, const struct weight *w)
{
    struct op op = {.kind = OP_MATMUL, .n_dst = 1, .n_src = 1, .n_w = 1};
    op.flags = OP_FLAG_ACCUMULATE;
    op.dst[0] = dst;
    op.src[0] = src;
    op.w[0] = w;
    submit(cx, &op);
}

void op_rope_angles(struct cx *cx, struct view dst, struct view pos, struct view inv_freq,
                    float magnitude)
{
    op_rope_angles_3d(cx, dst, pos, inv_freq, magnitude, 0, 0);
}

void op_rope_angles_3d(struct cx *cx, struct view dst, struct view pos, struct view inv_freq,
                       float magnitude, int32_t n_h, int32_t n_w)
{
    struct op op = {.kind = OP_ROPE_ANGLES, .n_dst = 1, .n_src = 2};
    op.dst[0] = dst;
    op.src[0] = pos;
    op.src[1] = inv_freq;
    op.i[0] = n_h;
    op.i[1] = n_w;
    op.f[0] = magnitude;
    submit(cx, &op);
}

void op_qk_norm_rope_store(struct cx *cx, const struct op_rope_store *a)
{
    struct op op = {.kind = OP_QK_NORM_ROPE_STORE, .n_dst = 1, .n_src = 8, .n_w = 3};
    op.kv_write = a->k.p != NULL;
    op.flags = a->neox ? OP_FLAG_ROPE_NEOX : 0;
    op.dst[0] = a->q;
    op.src[0] = a->k;
    op.src[1] = a->v;
    op.src[2] = a->angles;
    op.src[3] = a->kv_idx;
    op.src[4] = a->row_seq;
    op.src[5] = a->page_table;
    op.src[6] = a->pool;
    op.src[7] = a->pos;
    op.w[0] = a->q_norm;
    op.w[1] = a->k_norm;
    op.w[2] = a->q_scale;
    op.kv = a->kv;
    op.i[0] = a->n_head;
    op.i[1] = a->n_rot;
    op.i[2] = a->q_scale_every;
    op.f[0] = a->eps;
    submit(cx, &op);
}

void op_attn_paged(struct cx *cx, const struct op_attn *a)
{
    struct op op = {.kind = OP_ATTN_PAGED, .n_dst = 1, .n_src = 6, .n_w = 1, .kv_read = 1};
    op.dst[0] = a->dst;
    op.src[0] = a->q;
    op.src[1] = a->kv_idx;
    op.src[2] = a->row_seq;
    op.src[3] = a->page_table;
    op.src[4] = a->pool;
    op.src[5] = a->span_end;
    op.w[0] = a->sinks;
    op.kv = a->kv;
    op.i[0] = a->n_head;
    op.i[1] = a->window;
    op.f[0] = a->scale;
    submit(cx, &op);
}

void op_act_mul(struct cx *cx, struct view dst, struct view gate, struct view up, act_kind act)
{
    struct op op = {.kind = OP_ACT_MUL, .n_dst = 1, .n_src = 2};
    op.dst[0] = dst;
    op.src[0] = gate;
    op.src[1] = up;
    op.i[0] = (int32_t)act;
    submit(cx, &op);
}

void op_add(struct cx *cx, struct view dst, struct view a, struct view b)
{
    struct op op = {.kind = OP_ADD, .n_dst = 1, .n_src = 2};
    op.dst[0] = dst;
    op.src[0] = a;
    op.src[1] = b;
    submit(cx, &op);
}

static void map(struct cx *cx, op_kind kind, struct view dst, struct view src, float f)
{
    struct op op = {.kind = (uint8_t)kind, .n_dst = 1, .n_src = 1};
    op.dst[0] = dst;
    op.src[0] = src;
    op.f[0] = f;
    submit(cx, &op);
}

void op_scale(struct cx *cx, struct view dst, struct view src, float factor)
{
    map(cx, OP_SCALE, dst, src, factor);
}

void op_softcap(struct cx *cx, struct view dst, struct view src, float cap)
{
    map(cx, OP_SOFTCAP, dst, src, cap);
}

void op_moe_route(struct cx *cx, struct view weights, struct view ids, struct view logits,
                  const struct weight *scale)
{
    struct op op = {.kind = OP_MOE_ROUTE, .n_dst = 2, .n_src = 1, .n_w = 1};
    op.dst[0] = weights;
    op.dst[1] = ids;
    op.src[0] = logits;
    op.w[0] = scale;
    submit(cx, &op);
}

void op_moe_route_sigmoid(struct cx *cx, struct view weights, struct view ids, struct view logits,
                          const struct weight *bias, float scale)
{
    struct op op = {.kind = OP_MOE_ROUTE, .n_dst = 2, .n_src = 1, .n_w = 2};
    op.flags = OP_FLAG_SIGMOID;
    op.dst[0] = weights;
    op.dst[1] = ids;
    op.src[0] = logits;
    op.w[1] = bias;
    op.f[0] = scale;
    submit(cx, &op);
}

void op_matmul_experts(struct cx *cx, const struct view *dst, struct view src, struct view ids,
                       const struct weight *const *w, int n)
{
    struct op op = {.kind = OP_MATMUL_EXPERTS, .n_src = 2};
    set_products(&op, dst, w, n);
    op.src[0] = src;
    op.src[1] = ids;
    submit(cx, &op);
}

void op_moe_combine(struct cx *cx, struct view dst, struct view src, struct view weights,
                    bool accumulate)
{
    struct op op = {.kind = OP_MOE_COMBINE, .n_dst = 1, .n_src = 2};
    op.flags = accumulate ? OP_FLAG_ACCUMULATE : 0;
    op.dst[0] = dst;
    op.src[0] = src;
    op.src[1] = weights;
    submit(cx, &op);
}

void op_gated_add(struct cx *cx, struct view dst, struct view src, struct view gate)
{
    struct op op = {.kind = OP_MOE_COMBINE, .n_dst = 1, .n_src = 2};
    op.flags = OP_FLAG_ACCUMULATE | OP_FLAG_SIGMOID;
    op.dst[0] = dst;
    op.src[0] = src;
    op.src[1] = gate;
    submit(cx, &op);
}

static void set_state(struct op *op, const struct op_state *s)
{
    op->n_src = 7;
    op->state_write = 1;
    op->src[2] = s->row_seq;
    op->src[3] = s->slot;
    op->src[4] = s->accept;
    op->src[5] = s->guess;
    op->src[6] = s->pool;
    op->state = s->geom;
    op->i[0] = s->layer;
}

void op_conv_state(struct cx *cx, struct view dst, struct view x, const struct weight *w, bool silu,
                   const struct op_state *s)
{
    struct op op = {.kind = OP_CONV_STATE, .n_dst = 1, .n_w = 1};
    set_state(&op, s);
    op.dst[0] = dst;
    op.src[0] = x;
    op.w[0] = w;
    op.i[1] = silu;
    submit(cx, &op);
}

void op_delta_prepare(struct cx *cx, const struct op_delta_prepare *p)
{
    struct op op = {.kind = OP_DELTA_PREPARE, .n_dst = 2, .n_src = 2, .n_w = 2, .state = p->geom};
    op.dst[0] = p->c;
    op.dst[1] = p->gates;
    op.src[0] = p->alpha;
    op.src[1] = p->beta;
    op.w[0] = p->a;
    op.w[1] = p->dt;
    op.f[0] = p->eps;
    submit(cx, &op);
}

void op_delta_net(struct cx *cx, struct view dst, struct view c, struct view gates, bool tiled,
                  const struct op_state *s)
{
    struct op op = {.kind = OP_DELTA_NET, .n_dst = 1};
    set_state(&op, s);
    op.dst[0] = dst;
    op.src[0] = c;
    op.src[1] = gates;
    op.i[1] = tiled;
    submit(cx, &op);
}

void op_add_rows(struct cx *cx, struct view x, struct view rows)
{
    op_add(cx, x, x, rows);
}
