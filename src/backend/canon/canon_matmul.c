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

/* Types in blocks of 256 that are given by their integers. */
static float block_ints256(dtype_ints256_fn ints, bool has_min, const void *w,
                           const struct act256 *a, float acc)
{
    struct dtype_ints256 b;
    int32_t isum = 0, msum = 0;
    ints(w, &b);
    for (int j = 0; j < 16; j++) {
        int32_t dot = 0;
        for (int i = 0; i < 16; i++)
            dot += b.q[16 * j + i] * a->q[16 * j + i];
        isum += b.scale[j] * dot;
        if (has_min)
            msum += b.min[j] * a->sum16[j];
    }
    acc = term(acc, isum, b.d, a->d);
    return has_min ? term(acc, msum, -b.dmin, a->d) : acc;
}

/* The same for blocks of n (32 to 128) values, which have one scale per `run` of them. */
static float block_ints_small(dtype_ints_small_fn ints, int n, int run, const void *w,
                              const struct act32 *a, float acc)
{
    struct dtype_ints_small b;
    ints(w, &b);
    for (int e = 0; e < n; e += run) {
        const struct act32 *part = a + e / ACT_BLOCK;
        int32_t isum = 0;
        for (int i = 0; i < run; i++)
            isum += b.q[e + i] * part->q[e % ACT_BLOCK + i];
        acc = term(acc, isum, b.d[e / 16], part->d);
    }
    return acc;
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

/* NULL: the type is given by its integers, or there is no path. */
static block_fn own_block(uint32_t dtype)
{
    switch (dtype) {
    case DTYPE_F32: return one_f32;
    case DTYPE_F16: return one_f16;
    case DTYPE_BF16: return one_bf16;
    case DTYPE_Q4_0: return block_q4_0;
    case DTYPE_Q4_1: return block_q4_1;
    case DTYPE_Q5_0: return block_q5_0;
    case DTYPE_Q5_1: return block_q5_1;
    case DTYPE_Q8_0: return block_q8_0;
    case DTYPE_Q4_K: return block_q4_k;
    case DTYPE_Q5_K: return block_q5_k;
    case DTYPE_Q6_K: return block_q6_k;
    default: return NULL;
    }
}

bool canon_dtype_supported(uint32_t dtype)
{
    return own_block(dtype) || dtype_ints256_get(dtype) || dtype_ints_small_get(dtype);
}

/* The int8 form of the block of x that a block of weights meets. */
union act_block {
    struct act32 a32[128 / ACT_BLOCK];
    struct act256 a256;
};

static float block_ints(const struct dtype_info *type, const void *w, const union act_block *act,
                        float acc)
{
    if (type->block_elems == ACT_BLOCK_K)
        return block_ints256(dtype_ints256_get(type->id), type->id == DTYPE_Q2_K, w, &act->a256,
                             acc);
    return block_ints_small(dtype_ints_small_get(type->id), (int)type->block_elems,
                            type->id == DTYPE_NVFP4 ? 16 : ACT_BLOCK, w, act->a32, acc);
}

/* acc[o - lo], zero before, for outputs [lo, hi), at most OUT_CHUNK of them. */
static void row_chunk(const struct weight *w, const float *x, int32_t lo, int32_t hi, float *acc)
{
    const struct dtype_info *type = gguf_dtype_get(w->dtype);
    const block_fn own = own_block(w->dtype);
    const int32_t size = (int32_t)type->block_elems;
    size_t n_blocks = (size_t)(w->n_in / size), row_bytes = n_blocks * type->block_bytes;
    const char *base = (const char *)w->data + (size_t)lo * row_bytes;
    const int32_t n = hi - lo;
    union act_block block = {0};
    for (size_t b = 0; b < n_blocks; b++) {
        const float *from = x + b * (size_t)size;
        const void *act = size == 1 ? (const void *)from : &block;
        if (size == ACT_BLOCK_K)
            canon_quant256(&block.a256, from);
        else
            for (int32_t i = 0; i < size / ACT_BLOCK; i++)
                canon_quant32(&block.a32[i], from + i * ACT_BLOCK);
        for (int32_t o = 0; o < n; o++) {
            const char *at = base + (size_t)o * row_bytes + b * type->block_bytes;
            acc[o] = own ? own(at, act, acc[o]) : block_ints(type, at, &block, acc[o]);
        }
    }
}

void canon_product_row(const struct weight *w, const float *x, int32_t lo, int32_t hi, float *dst,
                       bool accumulate)
{
    for (int32_t o = lo; o < hi; o += OUT_CHUNK) {
        int32_t end = o + OUT_CHUNK < hi ? o + OUT_CHUNK : hi;
        float acc[OUT_CHUNK] = {0};
        row_chunk(w, x, o, end, acc);
        for (int32_t i = o; i < end; i++) {
            float y = w->bias ? acc[i - o] + w->bias[i] : acc[i - o];
            dst[i] = accumulate ? dst[i] + y : y;
        }
    }
}

static void product(const struct weight *w, const struct view *dst, const struct view *src,
                    bool accumulate, const struct be_task *t)
{
    int64_t lo, hi;
    task_slice(t, w->n_out, &lo, &hi);
    for (int32_t o = (int32_t)lo; o < hi; o += OUT_CHUNK) {
        int32_t end = o + OUT_CHUNK < hi ? o + OUT_CHUNK : (int32_t)hi;
        for (int32_t r = 0; r < src->rows; r++)
            canon_product_row(w, view_row(src, r), o, end, view_row(dst, r), accumulate);
    }
}

void canon_matmul(const struct op *op, struct be_task *t)
{
    for (int k = 0; k < op->n_dst; k++)
        product(op->w[k], &op->dst[k], &op->src[0], (op->flags & OP_FLAG_ACCUMULATE) != 0, t);
}
