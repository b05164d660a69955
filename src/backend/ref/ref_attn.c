/*
 * backend/ref/ref_attn.c - rotary embedding with the KV store, and attention over pages.
 *
 * Attention walks a row's keys twice, block by block of a page: once for the largest score, once
 * for the weighted sum of values. Nothing is sized by the length of the context.
 */
#include "backend/ref/ref.h"

#include "base/num.h"

#include <math.h>

static int32_t page_of(const struct view *page_table, int32_t seq, int32_t key)
{
    const int32_t *ids = page_table->p;
    return ids[(size_t)seq * (size_t)page_table->stride + (size_t)(key / KV_PAGE_TOKENS)];
}

/* Norm (when given), then rotation of the first n_rot dims; cs holds n_rot/2 cosines, then sines.
 */
static void norm_rotate(const struct op *op, float *x, const struct weight *norm, const float *cs)
{
    int32_t d = op->kv->head_dim, half = op->i[1] / 2;
    bool neox = (op->flags & OP_FLAG_ROPE_NEOX) != 0;
    if (norm)
        ref_rmsnorm_row(x, x, norm->data, d, op->f[0]);
    for (int32_t i = 0; i < half; i++) {
        int32_t ia = neox ? i : 2 * i, ib = neox ? i + half : 2 * i + 1;
        float a = x[ia], b = x[ib], c = cs[i], s = cs[half + i];
        x[ia] = a * c - b * s;
        x[ib] = a * s + b * c;
    }
}

void ref_qk_norm_rope_store(const struct op *op, struct be_task *t)
{
    const struct kv_layer *g = op->kv;
    const struct view *q = &op->dst[0];
    int32_t d = g->head_dim;
    for (int32_t r = t->ith; r < q->rows; r += t->nth) {
        const float *cs = ref_row(&op->src[2], r);
        float scale = op_q_scale(op, r);
        for (int32_t h = 0; h < op->i[0]; h++) {
            float *x = ref_row(q, r) + (size_t)h * d;
            norm_rotate(op, x, op->w[0], cs);
            for (int32_t i = 0; op->w[2] && i < d; i++)
                x[i] *= scale;
        }
        int32_t key = ref_i32(&op->src[3], r);
        if (key < 0 || op_n_stored(op) == 0)
            continue;
        int32_t page = page_of(&op->src[5], ref_i32(&op->src[4], r), key);
        int32_t slot = key % KV_PAGE_TOKENS;
        for (int32_t h = 0; h < g->n_head_kv; h++) {
            const float *k_src = ref_row(&op->src[0], r) + (size_t)h * d;
            const float *v_src = ref_row(&op->src[1], r) + (size_t)h * d;
            float k[KV_HEAD_DIM_MAX] = {0};
            for (int32_t i = 0; i < d; i++)
                k[i] = k_src[i];
            norm_rotate(op, k, op->w[1], cs);
            kv_store_k(g, kv_page_k(g, op->src[6].p, page, h), slot, k);
            kv_store_v(g, kv_page_v(g, op->src[6].p, page, h), slot, v_src);
        }
    }
}

/* One (row, head): where its keys are. */
struct head_keys {
    const struct op *op;
    const float *q;
    int32_t seq, head_kv, first, end; /* keys [first, end) */
    float sink;                       /* one more score, -inf: none */
};

/* Scores of the keys of one page; out[j] is set for keys in [first, end). */
static void page_scores(const struct head_keys *a, int32_t block, float out[KV_PAGE_TOKENS])
{
    const struct kv_layer *g = a->op->kv;
    int32_t page = page_of(&a->op->src[3], a->seq, block);
    const char *k = kv_page_k(g, a->op->src[4].p, page, a->head_kv);
    for (int32_t j = 0; j < KV_PAGE_TOKENS; j++) {
        if (block + j < a->first || block + j >= a->end)
            continue;
        double s = 0;
        for (int32_t i = 0; i < g->head_dim; i++)
            s += (double)a->q[i] * (double)kv_load_k(g, k, j, i);
        out[j] = (float)s * a->op->f[0];
    }
}

static void attend(const struct head_keys *a, float *dst)
{
    const struct kv_layer *g = a->op->kv;
    int32_t d = g->head_dim, start = a->first / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
    float s[KV_PAGE_TOKENS], max = a->sink;
    for (int32_t block = start; block < a->end; block += KV_PAGE_TOKENS) {
        page_scores(a, block, s);
        for (int32_t j = 0; j < KV_PAGE_TOKENS; j++) {
            if (block + j >= a->first && block + j < a->end)
                max = fmaxf(max, s[j]);
        }
    }
    double sum = (double)expf(a->sink - max), acc[KV_HEAD_DIM_MAX] = {0};
    for (int32_t block = start; block < a->end; block += KV_PAGE_TOKENS) {
        page_scores(a, block, s);
        int32_t page = page_of(&a->op->src[3], a->seq, block);
        const char *v = kv_page_v(g, a->op->src[4].p, page, a->head_kv);
        for (int32_t j = 0; j < KV_PAGE_TOKENS; j++) {
            if (block + j < a->first || block + j >= a->end)
                continue;
            double p = (double)expf(s[j] - max);
            sum += p;
            for (int32_t i = 0; i < d; i++)
                acc[i] += p * (double)kv_load_v(g, v, j, i);
        }
    }
    for (int32_t i = 0; i < d; i++)
        dst[i] = (float)(acc[i] / sum);
}

void ref_attn_paged(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    int32_t d = op->kv->head_dim, group = op->i[0] / op->kv->n_head_kv, window = op->i[1];
    for (int32_t r = t->ith; r < dst->rows; r += t->nth) {
        int32_t self = ref_i32(&op->src[1], r);
        float *out = ref_row(dst, r);
        if (self < 0) { /* padding sees nothing */
            for (int32_t i = 0; i < dst->cols; i++)
                out[i] = 0;
            continue;
        }
        int32_t last = op->src[5].p ? ref_i32(&op->src[5], r) : self;
        struct head_keys a = {.op = op, .seq = ref_i32(&op->src[2], r), .end = last + 1};
        a.first = window > 0 && self - window + 1 > 0 ? self - window + 1 : 0;
        for (int32_t h = 0; h < op->i[0]; h++) {
            a.q = ref_row(&op->src[0], r) + (size_t)h * d;
            a.head_kv = h / group;
            a.sink = op->w[0] ? ((const float *)op->w[0]->data)[h] : -INFINITY;
            attend(&a, out + (size_t)h * d);
        }
    }
}
