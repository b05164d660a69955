/* backend/canon/canon_rope.c - rotary angles; per-head norm, rotation and the store into KV pages.
 */
#include "backend/canon/canon.h"

#include "backend/det_math.h"

void canon_rope_angles(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    const float *inv_freq = op->src[1].p;
    int32_t half = dst->cols / 2;
    int64_t lo, hi;
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        float *out = view_row(dst, r);
        for (int32_t i = 0; i < half; i++) {
            float s, c;
            det_sincos((float)op_pair_pos(op, r, i) * inv_freq[i], &s, &c);
            out[i] = c * op->f[0];
            out[half + i] = s * op->f[0];
        }
    }
}

/* dst = x normed (when `norm` is given), then its first n_rot dims rotated. dst may be x. */
static void norm_rotate(const struct op *op, float *dst, const float *x, const struct weight *norm,
                        const float *angles)
{
    int32_t d = op->kv->head_dim, half = op->i[1] / 2;
    bool neox = (op->flags & OP_FLAG_ROPE_NEOX) != 0;
    if (norm) {
        canon_rmsnorm_row(dst, x, norm->data, d, op->f[0]);
    } else if (dst != x) {
        memcpy(dst, x, (size_t)d * sizeof(float));
    }
    for (int32_t i = 0; i < half; i++) {
        int32_t ia = neox ? i : 2 * i, ib = neox ? i + half : 2 * i + 1;
        float a = dst[ia], b = dst[ib], c = angles[i], s = angles[half + i];
        dst[ia] = fmaf(a, c, -(b * s));
        dst[ib] = fmaf(a, s, b * c);
    }
}

/* Key and value of one KV head of a row into slot `key % 32` of their page. */
static void store_head(const struct op *op, int32_t row, int32_t head)
{
    const struct kv_layer *g = op->kv;
    int32_t d = g->head_dim, key = view_i32_at(&op->src[3], row);
    if (key < 0)
        return;
    int32_t page = kv_page_at(&op->src[5], view_i32_at(&op->src[4], row), key);
    int32_t slot = key % KV_PAGE_TOKENS;
    const float *v = view_row(&op->src[1], row) + (size_t)head * (size_t)d;
    float k[KV_HEAD_DIM_MAX];
    norm_rotate(op, k, view_row(&op->src[0], row) + (size_t)head * (size_t)d, op->w[1],
                view_row(&op->src[2], row));
    kv_store_k(g, kv_page_k(g, op->src[6].p, page, head), slot, k);
    kv_store_v(g, kv_page_v(g, op->src[6].p, page, head), slot, v);
}

void canon_qk_norm_rope_store(const struct op *op, struct be_task *t)
{
    const struct view *q = &op->dst[0];
    int32_t n_head = op->i[0], n_all = n_head + op_n_stored(op), d = op->kv->head_dim;
    int64_t lo, hi;
    task_slice(t, (int64_t)q->rows * n_all, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t r = (int32_t)(i / n_all), h = (int32_t)(i % n_all);
        if (h < n_head) {
            float *x = view_row(q, r) + (size_t)h * (size_t)d;
            norm_rotate(op, x, x, op->w[0], view_row(&op->src[2], r));
            float scale = op_q_scale(op, r);
            for (int32_t k = 0; op->w[2] && k < d; k++)
                x[k] *= scale;
        } else {
            store_head(op, r, h - n_head);
        }
    }
}
