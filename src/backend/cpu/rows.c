/*
 * backend/cpu/rows.c - drivers of the ops that work on rows or elements alone. Elements are shared
 * out by columns too, so that one row keeps all workers busy; a row's sum is never split.
 */
#include "backend/cpu/isa.h"

#include "backend/cpu/pool.h"
#include "gguf/dtype.h"

#include <string.h>

enum { COLUMNS = 256 };

/* One row of a panel weight, bit for bit what the file's dequantised row is. */
static void embed_row(const struct panel_geom *g, const struct weight *w, int32_t id, float *out)
{
    union {
        float f;
        uint8_t bytes[256];
    } block;
    const char *panel = (const char *)w->data + (size_t)(id / PANEL) * g->panel_bytes;
    for (int32_t b = 0; b < g->n_blocks; b++, out += g->block) {
        panel_unpack(g, panel, id % PANEL, b, &block);
        (void)dtype_dequantize_row(w->dtype, &block, out, (size_t)g->block, NULL);
    }
}

void cpu_embed_rows(const struct op *op, struct be_task *t)
{
    const struct view *dst = &op->dst[0];
    const struct weight *w = op->w[0];
    struct panel_geom g;
    int64_t lo, hi;
    (void)panel_geom_init(&g, w->dtype, w->n_in, w->n_out);
    task_slice(t, dst->rows, &lo, &hi);
    for (int32_t r = (int32_t)lo; r < hi; r++) {
        float *out = view_row(dst, r);
        int32_t id;
        const float *row = op_embed_source(op, r, &id);
        if (row) {
            memcpy(out, row, (size_t)dst->cols * sizeof(float));
        } else if (id >= 0 && id < w->n_out) {
            embed_row(&g, w, id, out);
            for (int32_t i = 0; i < dst->cols; i++)
                out[i] *= op->f[0];
        } else { /* as canon: a slip must show, not read wild */
            for (int32_t i = 0; i < dst->cols; i++)
                out[i] = NAN;
        }
    }
}

void cpu_rmsnorm(const struct op *op, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    const struct view *dst = &op->dst[0];
    int64_t lo, hi;
    int32_t n = op->w[0]->n_in, parts = dst->cols / n;
    task_slice(t, (int64_t)dst->rows * parts, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t r = (int32_t)(i / parts), c = (int32_t)(i % parts) * n;
        isa->rmsnorm(view_row(dst, r) + c, view_row(&op->src[0], r) + c, op->w[0]->data, n,
                     op->f[0]);
    }
}

/* n elements of one row; b is NULL for ops of one source. */
static void part(const struct op *op, const struct cpu_isa *isa, float *out, const float *a,
                 const float *b, int32_t n)
{
    switch (op->kind) {
    case OP_ADD: isa->add(out, a, b, n); break;
    case OP_SCALE: isa->scale(out, a, op->f[0], n); break;
    case OP_SOFTCAP: isa->softcap(out, a, op->f[0], n); break;
    default: isa->act_mul(out, a, b, n, (act_kind)op->i[0]); break;
    }
}

/* This worker's runs of columns. */
void cpu_elements(const struct op *op, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    const struct view *dst = &op->dst[0];
    int32_t chunks = (dst->cols + COLUMNS - 1) / COLUMNS;
    int64_t lo, hi;
    task_slice(t, (int64_t)dst->rows * chunks, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t r = (int32_t)(i / chunks), c = (int32_t)(i % chunks) * COLUMNS;
        int32_t n = dst->cols - c < COLUMNS ? dst->cols - c : COLUMNS;
        float *out = view_row(dst, r) + c;
        const float *a = view_row(&op->src[0], r) + c, *b = NULL;
        if (op->n_src > 1) {
            b = op_second_row(op, r);
            if (!b)
                continue;
            b += c;
        }
        part(op, isa, out, a, b, n);
    }
}

void cpu_moe_combine(const struct op *op, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    const struct view *dst = &op->dst[0], *weights = &op->src[1];
    int32_t chunks = (dst->cols + COLUMNS - 1) / COLUMNS;
    int64_t lo, hi;
    task_slice(t, (int64_t)dst->rows * chunks, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t r = (int32_t)(i / chunks), c = (int32_t)(i % chunks) * COLUMNS;
        int32_t n = dst->cols - c < COLUMNS ? dst->cols - c : COLUMNS;
        float gate;
        const float *w = combine_weights(op, view_row(weights, r), &gate);
        isa->combine(view_row(dst, r) + c, view_row(&op->src[0], r) + c, (size_t)dst->cols, w,
                     weights->cols, n, (op->flags & OP_FLAG_ACCUMULATE) != 0);
    }
}

static void halves(const struct cpu_isa *isa, kv_type type, uint16_t *dst, const float *x,
                   int32_t n)
{
    if (type == KV_TYPE_F16)
        isa->f16_from_f32(dst, x, n);
    else
        isa->bf16_from_f32(dst, x, n);
}

/* Codes and scales of a head, padded to whole blocks. */
static void quantise(const struct cpu_isa *isa, const struct kv_layer *g, int8_t *codes,
                     uint16_t *scales, const float *x)
{
    float padded[KV_HEAD_DIM_MAX];
    memcpy(padded, x, (size_t)g->head_dim * sizeof(float));
    for (int32_t i = g->head_dim; i < g->n_blocks * KV_Q8_BLOCK; i++)
        padded[i] = 0;
    isa->kv_q8_from_f32(codes, scales, padded, g->n_blocks);
}

/* As kv_store_k and kv_store_v of kv_geom.h, which say what the bytes are. */
static void store_k(const struct cpu_isa *isa, const struct kv_layer *g, char *head, size_t slot,
                    const float *x)
{
    void *p = head, *q = head + g->scale_offset;
    int32_t d = g->head_dim, at = (int32_t)slot;
    if (g->type == KV_TYPE_F32) {
        for (int32_t i = 0; i < d; i++)
            ((float *)p)[i * KV_PAGE_TOKENS + at] = x[i];
    } else if (g->type == KV_TYPE_Q8_0) {
        int8_t codes[KV_HEAD_DIM_MAX];
        uint16_t scales[KV_HEAD_DIM_MAX / KV_Q8_BLOCK];
        quantise(isa, g, codes, scales, x);
        for (int32_t i = 0; i < d; i++)
            ((int8_t *)p)[i * KV_PAGE_TOKENS + at] = codes[i];
        for (int32_t i = 0; i < g->n_blocks; i++)
            ((uint16_t *)q)[i * KV_PAGE_TOKENS + at] = scales[i];
    } else {
        uint16_t half[KV_HEAD_DIM_MAX];
        halves(isa, g->type, half, x, d);
        for (int32_t i = 0; i < d; i++)
            ((uint16_t *)p)[i * KV_PAGE_TOKENS + at] = half[i];
    }
}

static void store_v(const struct cpu_isa *isa, const struct kv_layer *g, char *head, size_t slot,
                    const float *x)
{
    void *p = head, *q = head + g->scale_offset;
    size_t d = (size_t)g->head_dim, at = slot * d;
    if (g->type == KV_TYPE_F32) {
        memcpy((float *)p + at, x, d * sizeof(float));
    } else if (g->type == KV_TYPE_Q8_0) {
        int8_t codes[KV_HEAD_DIM_MAX];
        quantise(isa, g, codes, (uint16_t *)q + slot * (size_t)g->n_blocks, x);
        memcpy((int8_t *)p + at, codes, d);
    } else {
        halves(isa, g->type, (uint16_t *)p + at, x, g->head_dim);
    }
}

/* Key and value of one KV head of a row, to slot `key % 32` of its page. */
static void store_head(const struct cpu_isa *isa, const struct op *op, int32_t row, int32_t head)
{
    const struct kv_layer *g = op->kv;
    int32_t d = g->head_dim, key = view_i32_at(&op->src[3], row);
    if (key < 0)
        return;
    int32_t page = kv_page_at(&op->src[5], view_i32_at(&op->src[4], row), key);
    size_t slot = (size_t)(key % KV_PAGE_TOKENS), at = (size_t)head * (size_t)d;
    const float *v = view_row(&op->src[1], row) + at, *k_src = view_row(&op->src[0], row) + at;
    char *k_page = kv_page_k(g, op->src[6].p, page, head);
    char *v_page = kv_page_v(g, op->src[6].p, page, head);
    float k[KV_HEAD_DIM_MAX];
    if (op->w[1])
        isa->rmsnorm(k, k_src, op->w[1]->data, d, op->f[0]);
    else
        memcpy(k, k_src, (size_t)d * sizeof(float));
    isa->rope(k, view_row(&op->src[2], row), op->i[1], (op->flags & OP_FLAG_ROPE_NEOX) != 0);
    store_k(isa, g, k_page, slot, k);
    store_v(isa, g, v_page, slot, v);
}

void cpu_qk_norm_rope_store(const struct op *op, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    const struct view *q = &op->dst[0];
    int32_t n_head = op->i[0], n_all = n_head + op_n_stored(op), d = op->kv->head_dim;
    bool neox = (op->flags & OP_FLAG_ROPE_NEOX) != 0;
    int64_t lo, hi;
    task_slice(t, (int64_t)q->rows * n_all, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t r = (int32_t)(i / n_all), h = (int32_t)(i % n_all);
        if (h >= n_head) {
            store_head(isa, op, r, h - n_head);
            continue;
        }
        float *x = view_row(q, r) + (size_t)h * (size_t)d;
        if (op->w[0])
            isa->rmsnorm(x, x, op->w[0]->data, d, op->f[0]);
        isa->rope(x, view_row(&op->src[2], r), op->i[1], neox);
        float scale = op_q_scale(op, r);
        for (int32_t k = 0; op->w[2] && k < d; k++)
            x[k] *= scale;
    }
}
