/*
 * backend/canon/canon_matmul.c - products: one f32 accumulator per (row, output), blocks of K
 * ascending. Weights lie as the file has them.
 *
 * A worker takes a slice of the outputs, in chunks; a row's block is quantised once per chunk, so
 * no work buffer is needed.
 */
#include "backend/canon/canon.h"

#include "base/num.h"
#include "gguf/dtype.h"

enum { OUT_CHUNK = 64 };

/* Integer sums are exact, so their order is free; the f32 steps are the definition. */
static float term(float acc, int32_t sum, float scale_w, float scale_a)
{
    return fmaf((float)sum * scale_w, scale_a, acc);
}

static float block_q4_0(const void *w, const void *act, float acc)
{
    const struct block_q4_0 *b = w;
    const struct act32 *a = act;
    int32_t isum = 0;
    for (int i = 0; i < 16; i++)
        isum += ((b->qs[i] & 15) - 8) * a->q[i] + ((b->qs[i] >> 4) - 8) * a->q[i + 16];
    return term(acc, isum, num_f32_from_f16(b->d), a->d);
}

static float block_q4_1(const void *w, const void *act, float acc)
{
    const struct block_q4_1 *b = w;
    const struct act32 *a = act;
    int32_t isum = 0;
    for (int i = 0; i < 16; i++)
        isum += (b->qs[i] & 15) * a->q[i] + (b->qs[i] >> 4) * a->q[i + 16];
    acc = term(acc, isum, num_f32_from_f16(b->d), a->d);
    return term(acc, a->sum, num_f32_from_f16(b->m), a->d);
}

/* Sum of the 5-bit values times a. */
static int32_t dot_q5(const uint8_t qh[4], const uint8_t qs[16], const int8_t *a)
{
    int32_t isum = 0;
    for (int i = 0; i < 16; i++) {
        int lo = (qs[i] & 15) | (qh[i / 8] >> (i % 8) & 1) << 4;
        int hi = qs[i] >> 4 | (qh[2 + i / 8] >> (i % 8) & 1) << 4;
        isum += lo * a[i] + hi * a[i + 16];
    }
    return isum;
}

static float block_q5_0(const void *w, const void *act, float acc)
{
    const struct block_q5_0 *b = w;
    const struct act32 *a = act;
    int32_t isum = dot_q5(b->qh, b->qs, a->q) - 16 * a->sum;
    return term(acc, isum, num_f32_from_f16(b->d), a->d);
}

static float block_q5_1(const void *w, const void *act, float acc)
{
    const struct block_q5_1 *b = w;
    const struct act32 *a = act;
    acc = term(acc, dot_q5(b->qh, b->qs, a->q), num_f32_from_f16(b->d), a->d);
    return term(acc, a->sum, num_f32_from_f16(b->m), a->d);
}

static float block_q8_0(const void *w, const void *act, float acc)
{
    const struct block_q8_0 *b = w;
    const struct act32 *a = act;
    int32_t isum = 0;
    for (int i = 0; i < 32; i++)
        isum += b->qs[i] * a->q[i];
    return term(acc, isum, num_f32_from_f16(b->d), a->d);
}

/* Q4_K, and with the fifth bits in qh Q5_K: the block's two sums are scales times products, and
 * minimums times sums of a. */
static float block_k45(float acc, const uint16_t d[2], const uint8_t scales[12], const uint8_t *qs,
                       const uint8_t *qh, const struct act256 *a)
{
    int32_t isum = 0, msum = 0;
    for (int j = 0; j < 8; j++) {
        const uint8_t *q4 = qs + j / 2 * 32;
        uint8_t sc, mn;
        dtype_k4_scale_min(scales, j, &sc, &mn);
        int32_t dot = 0;
        for (int i = 0; i < 32; i++) {
            int q = j % 2 ? q4[i] >> 4 : q4[i] & 15;
            if (qh)
                q |= (qh[i] >> j & 1) << 4;
            dot += q * a->q[32 * j + i];
        }
        isum += sc * dot;
        msum += mn * a->sum32[j];
    }
    acc = term(acc, isum, num_f32_from_f16(d[0]), a->d);
    return term(acc, msum, -num_f32_from_f16(d[1]), a->d);
}

static float block_q4_k(const void *w, const void *act, float acc)
{
    const struct block_q4_k *b = w;
    return block_k45(acc, (const uint16_t[]){b->d, b->dmin}, b->scales, b->qs, NULL, act);
}

static float block_q5_k(const void *w, const void *act, float acc)
{
    const struct block_q5_k *b = w;
    return block_k45(acc, (const uint16_t[]){b->d, b->dmin}, b->scales, b->qs, b->qh, act);
}

static float block_q6_k(const void *w, const void *act, float acc)
{
    const struct block_q6_k *b = w;
    const struct act256 *a = act;
    int32_t isum = 0;
    for (int j = 0; j < 16; j++) {
        int half = j / 8, chunk = j % 8 / 2; /* 128 values; 32 of them with the same bits */
        const uint8_t *ql = b->ql + 64 * half + 32 * (chunk % 2) + 16 * (j % 2);
        const uint8_t *qh = b->qh + 32 * half + 16 * (j % 2);
        int32_t dot = 0;
        for (int i = 0; i < 16; i++) {
            int lo = chunk < 2 ? ql[i] & 15 : ql[i] >> 4;
            dot += ((lo | (qh[i] >> (2 * chunk) & 3) << 4) - 32) * a->q[16 * j + i];
        }
        isum += b->scales[j] * dot;
    }
    return term(acc, isum, num_f32_from_f16(b->d), a->d);
}

/* f32 activations: K ascending, one chain. `act` is the float itself. */
static float one_f32(const void *w, const void *act, float acc)
{
    float v;
    memcpy(&v, w, sizeof(v));
    return fmaf(v, *(const float *)act, acc);
}
static float one_f16(const void *w, const void *act, float acc)
{
    uint16_t h;
    memcpy(&h, w, sizeof(h));
    return fmaf(num_f32_from_f16(h), *(const float *)act, acc);
}
static float one_bf16(const void *w, const void *act, float acc)
{
    uint16_t h;
    memcpy(&h, w, sizeof(h));
    return fmaf(num_f32_from_bf16(h), *(const float *)act, acc);
}

/* acc after one more block. */
typedef float (*block_fn)(const void *w, const void *act, float acc);

static const struct kind {
    uint32_t dtype;
    int32_t block;     /* values */
    size_t block_size; /* bytes */
    block_fn fn;
} kinds[] = {
    {DTYPE_F32, 1, 4, one_f32},
    {DTYPE_F16, 1, 2, one_f16},
    {DTYPE_BF16, 1, 2, one_bf16},
    {DTYPE_Q4_0, 32, sizeof(struct block_q4_0), block_q4_0},
    {DTYPE_Q4_1, 32, sizeof(struct block_q4_1), block_q4_1},
    {DTYPE_Q5_0, 32, sizeof(struct block_q5_0), block_q5_0},
    {DTYPE_Q5_1, 32, sizeof(struct block_q5_1), block_q5_1},
    {DTYPE_Q8_0, 32, sizeof(struct block_q8_0), block_q8_0},
    {DTYPE_Q4_K, 256, sizeof(struct block_q4_k), block_q4_k},
    {DTYPE_Q5_K, 256, sizeof(struct block_q5_k), block_q5_k},
    {DTYPE_Q6_K, 256, sizeof(struct block_q6_k), block_q6_k},
};

static const struct kind *kind_of(uint32_t dtype)
{
    for (size_t i = 0; i < T9_COUNT(kinds); i++) {
        if (kinds[i].dtype == dtype)
            return &kinds[i];
    }
    return NULL;
}

bool canon_dtype_supported(uint32_t dtype)
{
    return kind_of(dtype) != NULL;
}

/* acc[o - lo], zero before, for outputs [lo, hi), at most OUT_CHUNK of them. */
static void row_chunk(const struct kind *k, const struct weight *w, const float *x, int32_t lo,
                      int32_t hi, float *acc)
{
    size_t n_blocks = (size_t)(w->n_in / k->block), row_bytes = n_blocks * k->block_size;
    const char *base = (const char *)w->data + (size_t)lo * row_bytes;
    const int32_t n = hi - lo;
    for (size_t b = 0; b < n_blocks; b++) {
        union {
            struct act32 a32;
            struct act256 a256;
        } block;
        const void *act = x + b;
        if (k->block == ACT_BLOCK) {
            canon_quant32(&block.a32, x + b * ACT_BLOCK);
            act = &block.a32;
        } else if (k->block == ACT_BLOCK_K) {
            canon_quant256(&block.a256, x + b * ACT_BLOCK_K);
            act = &block.a256;
        }
        for (int32_t o = 0; o < n; o++)
            acc[o] = k->fn(base + (size_t)o * row_bytes + b * k->block_size, act, acc[o]);
    }
}

static void product(const struct weight *w, const struct view *dst, const struct view *src,
                    bool accumulate, const struct be_task *t)
{
    const struct kind *k = kind_of(w->dtype);
    int64_t lo, hi;
    task_slice(t, w->n_out, &lo, &hi);
    for (int32_t o = (int32_t)lo; o < hi; o += OUT_CHUNK) {
        int32_t end = o + OUT_CHUNK < hi ? o + OUT_CHUNK : (int32_t)hi;
        for (int32_t r = 0; r < src->rows; r++) {
            float acc[OUT_CHUNK] = {0}, *out = view_row(dst, r);
            row_chunk(k, w, view_row(src, r), o, end, acc);
            for (int32_t i = o; i < end; i++) {
                float y = w->bias ? acc[i - o] + w->bias[i] : acc[i - o];
                out[i] = accumulate ? out[i] + y : y;
            }
        }
    }
}

void canon_matmul(const struct op *op, struct be_task *t)
{
    for (int k = 0; k < op->n_dst; k++)
        product(op->w[k], &op->dst[k], &op->src[0], (op->flags & OP_FLAG_ACCUMULATE) != 0, t);
}
