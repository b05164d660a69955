/*
 * backend/canon/canon_attn.c - attention over pages: the definition.
 *
 * Keys come in absolute blocks of 32 (a page) inside absolute splits of 512. A split has its own
 * online softmax over its blocks; splits are combined ascending by the same formula, from a sink on
 * where there is one. Keys that a
 * row may not see are never multiplied: their slots may hold anything. So a row's result depends on
 * its q and on the keys and values it sees, and on nothing else.
 */
#include "backend/canon/canon.h"

#include "backend/det_math.h"

/* An online softmax: largest score, sum of weights, weighted sum of values. */
struct soft {
    float m, l, o[KV_HEAD_DIM_MAX];
};

struct head {
    const struct op *op;
    const float *q;
    int32_t head, seq, kv_head, first, end; /* visible keys [first, end) */
};

/* Lane i with lane i + 16, then 8, 4, 2, 1. */
static float tree32(const float *p)
{
    float lane[KV_PAGE_TOKENS];
    memcpy(lane, p, sizeof(lane));
    for (int half = KV_PAGE_TOKENS / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    }
    return lane[0];
}

/* One block: keys [block, block + 32), of which [lo, hi) (relative) are visible. */
static void soft_block(struct soft *s, const struct head *a, int32_t block, int32_t lo, int32_t hi)
{
    const struct kv_layer *g = a->op->kv;
    int32_t d = g->head_dim;
    int32_t page = kv_page_at(&a->op->src[3], a->seq, block);
    const char *k = kv_page_k(g, a->op->src[4].p, page, a->kv_head);
    const char *v = kv_page_v(g, a->op->src[4].p, page, a->kv_head);
    float score[KV_PAGE_TOKENS], p[KV_PAGE_TOKENS] = {0}, m = s->m;
    for (int32_t j = lo; j < hi; j++) {
        float sum = 0;
        for (int32_t i = 0; i < d; i++)
            sum = fmaf(a->q[i], kv_load_k(g, k, j, i), sum);
        score[j] = sum * a->op->f[0];
        m = score[j] > m ? score[j] : m;
    }
    float alpha = det_exp(s->m - m);
    for (int32_t j = lo; j < hi; j++)
        p[j] = det_exp(score[j] - m);
    s->m = m;
    s->l = fmaf(s->l, alpha, tree32(p));
    for (int32_t i = 0; i < d; i++) {
        float o = s->o[i] * alpha;
        for (int32_t j = lo; j < hi; j++)
            o = fmaf(p[j], kv_load_v(g, v, j, i), o);
        s->o[i] = o;
    }
}

static void soft_combine(struct soft *all, const struct soft *s, int32_t d)
{
    float m = s->m > all->m ? s->m : all->m;
    float alpha = det_exp(all->m - m), beta = det_exp(s->m - m);
    all->m = m;
    all->l = fmaf(all->l, alpha, s->l * beta);
    for (int32_t i = 0; i < d; i++)
        all->o[i] = fmaf(beta, s->o[i], all->o[i] * alpha);
}

static void attend(const struct head *a, float *dst)
{
    int32_t d = a->op->kv->head_dim;
    struct soft all = {0};
    attn_start(a->op, a->head, &all.m, &all.l);
    for (int32_t split = a->first / ATTN_SPLIT * ATTN_SPLIT; split < a->end; split += ATTN_SPLIT) {
        struct soft s = {.m = -INFINITY};
        for (int32_t block = split; block < split + ATTN_SPLIT; block += KV_PAGE_TOKENS) {
            int32_t lo = a->first > block ? a->first - block : 0;
            int32_t hi = a->end - block < KV_PAGE_TOKENS ? a->end - block : KV_PAGE_TOKENS;
            if (lo < hi)
                soft_block(&s, a, block, lo, hi);
        }
        soft_combine(&all, &s, d);
    }
    float inv = 1.0f / all.l;
    for (int32_t i = 0; i < d; i++)
        dst[i] = all.o[i] * inv;
}

void canon_attn_paged(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    int32_t n_head = op->i[0], group = n_head / op->kv->n_head_kv, d = op->kv->head_dim;
    int64_t lo, hi;
    task_slice(t, (int64_t)dst->rows * n_head, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t r = (int32_t)(i / n_head), h = (int32_t)(i % n_head);
        float *out = view_row(dst, r) + (size_t)h * (size_t)d;
        struct head a = {.op = op, .head = h, .kv_head = h / group};
        a.seq = view_i32_at(&op->src[2], r);
        a.q = view_row(&op->src[0], r) + (size_t)h * (size_t)d;
        attn_range(op, r, &a.first, &a.end);
        if (a.end > 0)
            attend(&a, out);
        else
            memset(out, 0, (size_t)d * sizeof(float));
    }
}
