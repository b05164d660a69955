/*
 * gguf/dequant.c - scalar dequantisation, one function a block type.
 *
 * These functions are what a quantised weight means: fast paths are compared with them. All
 * arithmetic is f32 in the format's own order: the scale product first, then times the integer,
 * then minus the min product. The types that ints.c gives as integers are not written again here.
 * Any thread, no state.
 */
#include "gguf/dtype.h"

#include "base/num.h"

#include <string.h>

const int8_t dtype_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
const int8_t dtype_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void f32_block(const void *src, float *y)
{
    memcpy(y, src, 4);
}

static void f16_block(const void *src, float *y)
{
    uint16_t h;
    memcpy(&h, src, 2);
    *y = num_f32_from_f16(h);
}

static void bf16_block(const void *src, float *y)
{
    uint16_t h;
    memcpy(&h, src, 2);
    *y = num_f32_from_bf16(h);
}

static void q4_0_block(const void *src, float *y)
{
    const struct block_q4_0 *b = src;
    const float d = num_f32_from_f16(b->d);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)((b->qs[j] & 15) - 8);
        y[j + 16] = d * (float)((b->qs[j] >> 4) - 8);
    }
}

static void q4_1_block(const void *src, float *y)
{
    const struct block_q4_1 *b = src;
    const float d = num_f32_from_f16(b->d);
    const float m = num_f32_from_f16(b->m);
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)(b->qs[j] & 15) + m;
        y[j + 16] = d * (float)(b->qs[j] >> 4) + m;
    }
}

/* Element e (0..31) of the 5-bit types: low nibble or high nibble plus its bit of qh. */
static int q5_value(const uint8_t *qh, const uint8_t *qs, int e)
{
    int lo = e < 16 ? qs[e] & 15 : qs[e - 16] >> 4;
    return lo | (qh[e / 8] >> (e % 8) & 1) << 4;
}

static void q5_0_block(const void *src, float *y)
{
    const struct block_q5_0 *b = src;
    const float d = num_f32_from_f16(b->d);
    for (int e = 0; e < 32; e++)
        y[e] = d * (float)(q5_value(b->qh, b->qs, e) - 16);
}

static void q5_1_block(const void *src, float *y)
{
    const struct block_q5_1 *b = src;
    const float d = num_f32_from_f16(b->d);
    const float m = num_f32_from_f16(b->m);
    for (int e = 0; e < 32; e++)
        y[e] = d * (float)q5_value(b->qh, b->qs, e) + m;
}

static void q8_0_block(const void *src, float *y)
{
    const struct block_q8_0 *b = src;
    const float d = num_f32_from_f16(b->d);
    for (int e = 0; e < 32; e++)
        y[e] = d * (float)b->qs[e];
}

/* Q4_K, and with the fifth bits in qh Q5_K. */
static void k45_block(const uint16_t d[2], const uint8_t scales[12], const uint8_t *qs,
                      const uint8_t *qh, float *y)
{
    const float scale_d = num_f32_from_f16(d[0]);
    const float min_d = num_f32_from_f16(d[1]);
    for (int j = 0; j < 8; j++) {
        uint8_t sc;
        uint8_t mn;
        dtype_k4_scale_min(scales, j, &sc, &mn);
        const float scale = scale_d * (float)sc;
        const float min = min_d * (float)mn;
        for (int l = 0; l < 32; l++) {
            const int lo = qs[j / 2 * 32 + l] >> (j % 2 * 4) & 15;
            const int q = qh ? lo | (qh[l] >> j & 1) << 4 : lo;
            y[j * 32 + l] = scale * (float)q - min;
        }
    }
}

static void q4_k_block(const void *src, float *y)
{
    const struct block_q4_k *b = src;
    k45_block((const uint16_t[]){b->d, b->dmin}, b->scales, b->qs, NULL, y);
}

static void q5_k_block(const void *src, float *y)
{
    const struct block_q5_k *b = src;
    k45_block((const uint16_t[]){b->d, b->dmin}, b->scales, b->qs, b->qh, y);
}

static void q6_k_block(const void *src, float *y)
{
    const struct block_q6_k *b = src;
    const float d = num_f32_from_f16(b->d);
    for (int e = 0; e < QK_K; e++) {
        const int half = e / 128;
        const int row = e % 128 / 32; /* which of the four values a (ql, qh) position holds */
        const int l = e % 32;
        const int lo = b->ql[half * 64 + row % 2 * 32 + l] >> (row / 2 * 4) & 15;
        const int hi = b->qh[half * 32 + l] >> (row * 2) & 3;
        const int scale = b->scales[e / 16];
        y[e] = d * (float)scale * (float)((lo | hi << 4) - 32);
    }
}

/* Types that ints.c gives; without minimums 0 is subtracted, which changes no bit. */
static void ints256_block(uint32_t id, const void *src, float *y)
{
    struct dtype_ints256 b = {0};
    dtype_ints256_get(id)(src, &b);
    for (int j = 0; j < 16; j++) {
        const float scale = b.d * (float)b.scale[j];
        const float min = b.dmin * (float)b.min[j];
        for (int e = 16 * j; e < 16 * j + 16; e++)
            y[e] = scale * (float)b.q[e] - min;
    }
}

static void ints_small_block(uint32_t id, const void *src, float *y)
{
    struct dtype_ints_small b;
    dtype_ints_small_get(id)(src, &b);
    const uint32_t n = gguf_dtype_get(id)->block_elems;
    for (uint32_t e = 0; e < n; e++)
        y[e] = b.d[e / 16] * (float)b.q[e];
}

typedef void (*block_fn)(const void *src, float *y);

static block_fn block_function(uint32_t id)
{
    switch (id) {
    case DTYPE_F32: return f32_block;
    case DTYPE_F16: return f16_block;
    case DTYPE_BF16: return bf16_block;
    case DTYPE_Q4_0: return q4_0_block;
    case DTYPE_Q4_1: return q4_1_block;
    case DTYPE_Q5_0: return q5_0_block;
    case DTYPE_Q5_1: return q5_1_block;
    case DTYPE_Q8_0: return q8_0_block;
    case DTYPE_Q4_K: return q4_k_block;
    case DTYPE_Q5_K: return q5_k_block;
    case DTYPE_Q6_K: return q6_k_block;
    default: return NULL;
    }
}

bool dtype_can_dequantize(uint32_t id)
{
    return block_function(id) || dtype_ints256_get(id) || dtype_ints_small_get(id);
}

t9_status dtype_dequantize_row(uint32_t id, const void *src, float *dst, size_t n,
                               struct t9_err *err)
{
    const struct dtype_info *info = gguf_dtype_get(id);
    block_fn fn = block_function(id);
    if (!info || !dtype_can_dequantize(id))
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "type %s (%u) cannot be dequantised",
                       info ? info->name : "?", id);
    if (n % info->block_elems != 0)
        return t9_fail(err, T9_STATUS_INVALID, "%zu values of type %s are not a multiple of %u", n,
                       info->name, info->block_elems);
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i += info->block_elems, p += info->block_bytes) {
        if (fn)
            fn(p, dst + i);
        else if (info->block_elems == QK_K)
            ints256_block(id, p, dst + i);
        else
            ints_small_block(id, p, dst + i);
    }
    return T9_STATUS_OK;
}
