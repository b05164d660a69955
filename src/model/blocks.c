/*
 * model/blocks.c - the blocks that the architectures are made of. Each submits a few ops and gives
 * its scratch back before it returns; only the residual stream and the rotary angles live through a
 * forward. Engine thread only.
 */
#include "model/model_impl.h"

/* The views of what a batch says about rows and pages. */
static struct view row_i32(const int32_t *p, const struct batch *b)
{
    return view_i32(p, b->n_rows, 1);
}

static struct view row_ptr(const float *const *p, const struct batch *b)
{
    return (struct view){(void *)(uintptr_t)p, b->n_rows, 1, 1, VIEW_PTR, 0};
}

static struct view page_table(const struct batch *b, const struct kv_layer *kv)
{
    const int32_t *table = kv->in_window ? b->window_table : b->page_table;
    return view_i32(table, b->n_seqs, b->page_table_stride);
}

static struct view page_pool(const struct batch *b, const struct kv_layer *kv)
{
    return (struct view){kv->in_window ? b->window_pool : b->kv_pool, 1, 1, 1, VIEW_BYTES, 0};
}

/* The first n of the three positions. */
static struct view positions(const struct batch *b, int32_t n)
{
    return (struct view){(void *)(uintptr_t)b->pos, b->n_rows, n, 3, VIEW_I32, 0};
}

static struct view rope_angles(struct cx *cx, const struct model *m, const struct rope_table *r,
                               const struct batch *b)
{
    int32_t half = r->inv_freq->n_in;
    struct view angles = cx_alloc(cx, b->n_rows, 2 * half);
    struct view inv_freq = view_f32(r->inv_freq->data, 1, half);
    if (m->hp.rope_h || m->hp.rope_w)
        op_rope_angles_3d(cx, angles, positions(b, 3), inv_freq, r->magnitude, m->hp.rope_h,
                          m->hp.rope_w);
    else
        op_rope_angles(cx, angles, positions(b, 1), inv_freq, r->magnitude);
    return angles;
}

struct trunk block_begin(struct cx *cx, const struct model *m, const struct batch *b)
{
    struct trunk t = {.x = cx_alloc(cx, b->n_rows, m->hp.n_embd)};
    struct view override = {0};
    if (b->embed_override)
        override = row_ptr(b->embed_override, b);
    op_embed_rows(cx, t.x, row_i32(b->token, b), override, m->token_embd, m->hp.embd_scale);
    t.angles = rope_angles(cx, m, &m->rope, b);
    if (m->hp.window)
        t.sliding = rope_angles(cx, m, &m->rope_sliding, b);
    return t;
}

/* x += W src, by way of a norm where the branch has one. */
static void add_branch(struct cx *cx, const struct model *m, const struct trunk *t, struct view src,
                       const struct weight *w, const struct weight *post_norm)
{
    if (!post_norm) {
        op_matmul_add(cx, t->x, src, w);
        return;
    }
    struct view y = cx_alloc(cx, src.rows, m->hp.n_embd);
    op_matmul(cx, &y, src, &w, 1);
    op_rmsnorm(cx, y, y, post_norm, m->hp.eps);
    op_add(cx, t->x, t->x, y);
}

/* The queries of h to q, normed and rotated; keys and values, where the layer has its own, to their
 * pages. */
static void project(struct cx *cx, const struct model *m, const struct batch *b, int32_t il,
                    const struct trunk *t, struct view h, struct view q)
{
    const struct hparams *hp = &m->hp;
    const struct layer *l = &m->layers[il];
    const struct kv_layer *kv = &b->kv->layers[l->kv_layer];
    bool slides = hp->sliding[il];
    int32_t n_kv = l->n_head_kv * l->head_dim;
    struct view k = {0}, v = {0};
    if (l->k) {
        k = cx_alloc(cx, b->n_rows, n_kv);
        v = cx_alloc(cx, b->n_rows, n_kv);
    }
    op_matmul(cx, (struct view[]){q, k, v}, h, (const struct weight *[]){l->q, l->k, l->v},
              l->v   ? 3
              : l->k ? 2
                     : 1);
    if (l->k && l->v_norm)
        op_rmsnorm(cx, v, l->v ? v : k, l->v_norm, hp->eps);
    op_qk_norm_rope_store(
        cx, &(struct op_rope_store){.q = q,
                                    .k = k,
                                    .v = v,
                                    .angles = slides ? t->sliding : t->angles,
                                    .kv_idx = row_i32(b->kv_idx, b),
                                    .row_seq = row_i32(b->row_seq, b),
                                    .page_table = page_table(b, kv),
                                    .pool = page_pool(b, kv),
                                    .q_norm = l->q_norm,
                                    .k_norm = l->k_norm,
                                    .q_scale = m->q_scale,
                                    .pos = positions(b, 1),
                                    .q_scale_every = hp->q_temperature_every,
                                    .kv = kv,
                                    .n_head = hp->n_head,
                                    .n_rot = slides ? hp->rope_sliding.n_rot : hp->rope.n_rot,
                                    .neox = hp->rope.neox,
                                    .eps = hp->eps});
}

void block_attention(struct cx *cx, const struct model *m, const struct batch *b, int32_t il,
                     const struct trunk *t)
{
    const struct hparams *hp = &m->hp;
    const struct layer *l = &m->layers[il];
    const struct kv_layer *kv = &b->kv->layers[l->kv_layer];
    int32_t n_q = hp->n_head * l->head_dim;
    size_t mark = cx_mark(cx);
    struct view h = cx_alloc(cx, b->n_rows, hp->n_embd);
    struct view q = cx_alloc(cx, b->n_rows, n_q);
    struct view o = cx_alloc(cx, b->n_rows, n_q);

    op_rmsnorm(cx, h, t->x, l->attn_norm, hp->eps);
    project(cx, m, b, il, t, h, q);
    struct view span_end = {0};
    if (b->span_end)
        span_end = row_i32(b->span_end, b);
    op_attn_paged(cx, &(struct op_attn){.dst = o,
                                        .q = q,
                                        .kv_idx = row_i32(b->kv_idx, b),
                                        .row_seq = row_i32(b->row_seq, b),
                                        .page_table = page_table(b, kv),
                                        .pool = page_pool(b, kv),
                                        .span_end = span_end,
                                        .kv = kv,
                                        .n_head = hp->n_head,
                                        .window = hp->sliding[il] ? hp->window : 0,
                                        .sinks = l->sinks,
                                        .scale = hp->attn_scale});
    if (l->q_gate) { /* into q, which has been read */
        op_matmul(cx, &q, h, &l->q_gate, 1);
        op_act_mul(cx, o, q, o, ACT_SIGMOID);
    }
    add_branch(cx, m, t, o, l->o, l->post_attn_norm);
    cx_release(cx, mark);
}

/* x += sigmoid(router h) * down(act(gate h) * up h) */
static void shared_expert(struct cx *cx, const struct model *m, const struct trunk *t,
                          const struct layer *l, struct view h)
{
    struct view gate = cx_alloc(cx, h.rows, m->hp.n_ff_shared);
    struct view up = cx_alloc(cx, h.rows, m->hp.n_ff_shared);
    struct view y = cx_alloc(cx, h.rows, m->hp.n_embd);
    struct view router = cx_alloc(cx, h.rows, 1);

    op_matmul(cx, (struct view[]){gate, up, router}, h,
              (const struct weight *[]){l->shared_gate, l->shared_up, l->shared_router}, 3);
    op_act_mul(cx, gate, gate, up, m->hp.act);
    op_matmul(cx, &y, gate, &l->shared_down, 1);
    op_gated_add(cx, t->x, y, router);
}

struct view block_gated(struct cx *cx, const struct model *m, struct view h,
                        const struct weight *gate, const struct weight *up)
{
    struct view g = cx_alloc(cx, h.rows, gate->n_out);
    struct view u = cx_alloc(cx, h.rows, up->n_out);
    op_matmul(cx, (struct view[]){g, u}, h, (const struct weight *[]){gate, up}, 2);
    op_act_mul(cx, g, g, u, m->hp.act);
    return g;
}

void block_experts(struct cx *cx, const struct model *m, const struct layer *l,
                   struct view router_in, struct view h, struct view dst, bool accumulate)
{
    const struct hparams *hp = &m->hp;
    int32_t rows = h.rows, n_used = hp->n_experts_used;
    struct view logits = cx_alloc(cx, rows, hp->n_experts);
    struct view weights = cx_alloc(cx, rows, n_used);
    struct view ids = cx_alloc_i32(cx, rows, n_used);
    struct view gate = cx_alloc(cx, rows, n_used * l->n_ff);
    struct view up = cx_alloc(cx, rows, n_used * l->n_ff);
    struct view y = cx_alloc(cx, rows, n_used * hp->n_embd);

    op_matmul(cx, &logits, router_in, &l->router, 1);
    if (m->arch->blocks.sigmoid_router)
        op_moe_route_sigmoid(cx, weights, ids, logits, l->router_bias, hp->route_scale);
    else
        op_moe_route(cx, weights, ids, logits, l->expert_scale);
    op_matmul_experts(cx, (struct view[]){gate, up}, h, ids,
                      (const struct weight *[]){l->gate, l->up}, 2);
    op_act_mul(cx, gate, gate, up, hp->act);
    op_matmul_experts(cx, &y, gate, ids, &l->down, 1);
    op_moe_combine(cx, dst, y, weights, accumulate);
}

void block_ffn(struct cx *cx, const struct model *m, const struct batch *b, int32_t il,
               const struct trunk *t)
{
    const struct layer *l = &m->layers[il];
    size_t mark = cx_mark(cx);
    struct view h = cx_alloc(cx, b->n_rows, m->hp.n_embd);
    op_rmsnorm(cx, h, t->x, l->ffn_norm, m->hp.eps);
    if (l->router)
        block_experts(cx, m, l, h, h, t->x, true);
    if (l->router && l->shared_router)
        shared_expert(cx, m, t, l, h);
    if (!l->router)
        add_branch(cx, m, t, block_gated(cx, m, h, l->gate, l->up), l->down, l->post_ffn_norm);
    cx_release(cx, mark);
}

struct op_state block_state(const struct model *m, const struct batch *b, int32_t il)
{
    struct op_state s = {.row_seq = row_i32(b->row_seq, b),
                         .slot = view_i32(b->state_slot, b->n_seqs, 1),
                         .pool = {b->state_pool, 1, 1, 1, VIEW_BYTES, 0},
                         .geom = b->state,
                         .layer = m->layers[il].state_layer};
    if (b->state_accept) {
        s.accept = view_i32(b->state_accept, b->n_seqs, 1);
        s.guess = view_i32(b->state_guess, b->n_seqs, 1);
    }
    return s;
}

void block_head(struct cx *cx, const struct model *m, const struct batch *b, const struct trunk *t)
{
    if (b->n_outputs == 0)
        return;
    size_t mark = cx_mark(cx);
    struct view h = cx_alloc(cx, b->n_outputs, m->hp.n_embd);
    struct view normed = h;
    if (b->hidden)
        normed = view_f32(b->hidden, b->n_outputs, m->hp.n_embd);
    op_gather_rows(cx, h, t->x, view_i32(b->out_row, b->n_outputs, 1));
    op_rmsnorm(cx, normed, h, m->output_norm, m->hp.eps);
    struct view logits = view_f32(b->logits, b->n_outputs, m->hp.n_vocab);
    op_matmul(cx, &logits, normed, &m->output, 1);
    if (m->hp.logit_cap != 0)
        op_softcap(cx, logits, logits, m->hp.logit_cap);
    cx_release(cx, mark);
}

void blocks_forward(const struct model *m, struct cx *cx, const struct batch *b)
{
    struct trunk t = block_begin(cx, m, b);
    for (int32_t il = 0; il < m->hp.n_layers; il++) {
        cx->layer = (int16_t)il;
        if (m->hp.recurrent[il])
            m->arch->recurrent(cx, m, b, il, &t);
        else
            block_attention(cx, m, b, il, &t);
        block_ffn(cx, m, b, il, &t);
        if (il < b->n_deepstack)
            op_add_rows(cx, t.x, row_ptr(b->deepstack + (size_t)il * (size_t)b->n_rows, b));
    }
    cx->layer = -1;
    block_head(cx, m, b, &t);
}
