/* gguf/ints.c - see gguf/dtype.h. */
#include "gguf/dtype.h"

#include "base/num.h"

#include <string.h>

/* ---- Q2_K, Q3_K ---- */

/* The two low bits of value e: 32 bytes hold 128 values, plane by plane of 32. */
static int plane2(const uint8_t *qs, int e)
{
    return qs[e / 128 * 32 + e % 32] >> (2 * (e % 128 / 32)) & 3;
}

static void q2_k(const void *block, struct dtype_ints256 *out)
{
    const struct block_q2_k *b = block;
    out->d = num_f32_from_f16(b->d);
    out->dmin = num_f32_from_f16(b->dmin);
    for (int j = 0; j < 16; j++) {
        out->scale[j] = b->scales[j] & 15;
        out->min[j] = b->scales[j] >> 4;
    }
    for (int e = 0; e < QK_K; e++)
        out->q[e] = (int8_t)plane2(b->qs, e);
}

static void q3_k(const void *block, struct dtype_ints256 *out)
{
    const struct block_q3_k *b = block;
    uint8_t scales[16];
    dtype_q3k_scales(b->scales, scales);
    out->d = num_f32_from_f16(b->d);
    for (int j = 0; j < 16; j++)
        out->scale[j] = (int16_t)(scales[j] - 32);
    for (int e = 0; e < QK_K; e++) {
        int high = b->hmask[e % 32] >> (e / 32) & 1;
        out->q[e] = (int8_t)(plane2(b->qs, e) - (high ? 0 : 4));
    }
}

/* ---- ternary ---- */

static void scales_one(struct dtype_ints256 *out)
{
    for (int j = 0; j < 16; j++)
        out->scale[j] = 1;
}

/* Trit n of a byte that holds several, most significant first, as a fraction of 256. */
static int8_t trit(uint8_t byte, int n)
{
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    return (int8_t)(((uint8_t)(byte * pow3[n]) * 3 >> 8) - 1);
}

static void tq1_0(const void *block, struct dtype_ints256 *out)
{
    const struct block_tq1_0 *b = block;
    out->d = num_f32_from_f16(b->d);
    scales_one(out);
    for (int e = 0; e < 160; e++)
        out->q[e] = trit(b->qs[e % 32], e / 32);
    for (int e = 0; e < 80; e++)
        out->q[160 + e] = trit(b->qs[32 + e % 16], e / 16);
    for (int e = 0; e < 16; e++)
        out->q[240 + e] = trit(b->qh[e % 4], e / 4);
}

static void tq2_0(const void *block, struct dtype_ints256 *out)
{
    const struct block_tq2_0 *b = block;
    out->d = num_f32_from_f16(b->d);
    scales_one(out);
    for (int e = 0; e < QK_K; e++)
        out->q[e] = (int8_t)(plane2(b->qs, e) - 1);
}

/* ---- points of a codebook ---- */

/* Eight values of a point with eight; bit i of `signs` negates value i. */
static void point8(int8_t q[8], uint32_t point, const int8_t *values, uint32_t signs)
{
    for (int i = 0; i < 8; i++) {
        int code = point >> (8 * (i % 4) + 2 * (i / 4)) & 3;
        q[i] = (int8_t)(signs >> i & 1 ? -values[code] : values[code]);
    }
}

static void point4(int8_t q[4], uint32_t point, const int8_t *values, uint32_t signs)
{
    for (int i = 0; i < 4; i++) {
        int code = point >> (8 * i) & 7;
        q[i] = (int8_t)(signs >> i & 1 ? -values[code] : values[code]);
    }
}

static const int8_t iq2_values[] = {IQ2_VALUES};
static const int8_t iq1_values[] = {IQ1_VALUES};
static const int8_t iq3_xxs_values[] = {IQ3_XXS_VALUES};
static const int8_t iq3_s_values[] = {IQ3_S_VALUES};

static uint32_t u16_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32_at(const uint8_t *p)
{
    return u16_at(p) | u16_at(p + 2) << 16;
}

/* d * (1/2 + s) * 1/4 = (d / 8) (2 s + 1), exactly. */
static void iq2_xxs(const void *block, struct dtype_ints256 *out)
{
    const struct block_iq2_xxs *b = block;
    out->d = num_f32_from_f16(b->d) * 0.125f;
    for (int g = 0; g < 8; g++) {
        const uint8_t *grid = b->qs + 8 * g;
        uint32_t signs = u32_at(grid + 4);
        for (int k = 0; k < 4; k++)
            point8(out->q + 32 * g + 8 * k, iq2_xxs_grid[grid[k]], iq2_values,
                   iq_signs(signs >> (7 * k) & 127));
        out->scale[2 * g] = out->scale[2 * g + 1] = (int16_t)(2 * (signs >> 28) + 1);
    }
}

static void nibble_scales(const uint8_t *scales, struct dtype_ints256 *out)
{
    for (int j = 0; j < 16; j++)
        out->scale[j] = (int16_t)(2 * (scales[j / 2] >> (4 * (j % 2)) & 15) + 1);
}

static void iq2_xs(const void *block, struct dtype_ints256 *out)
{
    const struct block_iq2_xs *b = block;
    out->d = num_f32_from_f16(b->d) * 0.125f;
    nibble_scales(b->scales, out);
    for (int k = 0; k < 32; k++) {
        uint32_t x = u16_at(b->qs + 2 * k);
        point8(out->q + 8 * k, iq2_xs_grid[x & 511], iq2_values, iq_signs(x >> 9));
    }
}

static void iq2_s(const void *block, struct dtype_ints256 *out)
{
    const struct block_iq2_s *b = block;
    out->d = num_f32_from_f16(b->d) * 0.125f;
    nibble_scales(b->scales, out);
    for (int k = 0; k < 32; k++) {
        uint32_t high = b->qh[k / 4] >> (2 * (k % 4)) & 3;
        point8(out->q + 8 * k, iq2_s_grid[b->qs[k] | high << 8], iq2_values, b->signs[k]);
    }
}

static void iq3_xxs(const void *block, struct dtype_ints256 *out)
{
    const struct block_iq3_xxs *b = block;
    out->d = num_f32_from_f16(b->d) * 0.25f;
    for (int k = 0; k < 64; k++) {
        uint32_t x = u32_at(b->scales_signs + k / 8 * 4);
        uint32_t signs = iq_signs(x >> (7 * (k % 8 / 2)) & 127);
        point4(out->q + 4 * k, iq3_xxs_grid[b->qs[k]], iq3_xxs_values, signs >> (4 * (k % 2)));
        out->scale[k / 4] = (int16_t)(2 * (x >> 28) + 1);
    }
}

static void iq3_s(const void *block, struct dtype_ints256 *out)
{
    const struct block_iq3_s *b = block;
    out->d = num_f32_from_f16(b->d);
    for (int k = 0; k < 64; k++) {
        uint32_t high = b->qh[k / 8] >> (k % 8) & 1;
        uint32_t signs = b->signs[k / 2] >> (4 * (k % 2));
        point4(out->q + 4 * k, iq3_s_grid[b->qs[k] | high << 8], iq3_s_values, signs);
    }
    for (int j = 0; j < 16; j++)
        out->scale[j] = (int16_t)(2 * (b->scales[j / 4] >> (4 * (j / 2 % 2)) & 15) + 1);
}

/* Values are d * (2 s + 1) * (point + or - 1/8) = (d / 8) (2 s + 1) (8 point + or - 1). */
static void point1(int8_t q[8], uint32_t idx, bool minus)
{
    point8(q, iq1_grid[idx], iq1_values, 0);
    for (int i = 0; i < 8; i++)
        q[i] = (int8_t)(q[i] + (minus ? -1 : 1));
}

static void iq1_s(const void *block, struct dtype_ints256 *out)
{
    const struct block_iq1_s *b = block;
    out->d = num_f32_from_f16(b->d) * 0.125f;
    for (int k = 0; k < 32; k++) {
        uint32_t x = u16_at(b->qh + k / 4 * 2);
        point1(out->q + 8 * k, b->qs[k] | (x >> (3 * (k % 4)) & 7) << 8, x >> 15);
        out->scale[k / 2] = (int16_t)(2 * (x >> 12 & 7) + 1);
    }
}

static void iq1_m(const void *block, struct dtype_ints256 *out)
{
    const struct block_iq1_m *b = block;
    uint32_t d = 0;
    for (int i = 0; i < 4; i++) { /* the f16 scale is spread over the top nibbles of four words */
        uint32_t x = u16_at(b->scales + 2 * i);
        d |= x >> 12 << (4 * i);
        for (int j = 0; j < 4; j++)
            out->scale[4 * i + j] = (int16_t)(2 * (x >> (3 * j) & 7) + 1);
    }
    out->d = num_f32_from_f16((uint16_t)d) * 0.125f;
    for (int k = 0; k < 32; k++) {
        uint32_t x = (uint32_t)b->qh[k / 2] >> (4 * (k % 2));
        point1(out->q + 8 * k, b->qs[k] | (x & 7) << 8, x >> 3 & 1);
    }
}

/* ---- four bits ---- */

static void nibbles16(int8_t *q, const uint8_t *qs, int half, const int8_t values[16])
{
    for (int j = 0; j < half; j++) {
        q[j] = values[qs[j] & 15];
        q[j + half] = values[qs[j] >> 4];
    }
}

static void iq4_xs(const void *block, struct dtype_ints256 *out)
{
    const struct block_iq4_xs *b = block;
    out->d = num_f32_from_f16(b->d);
    for (int s = 0; s < 8; s++) {
        int lo = b->scales_l[s / 2] >> (s % 2 * 4) & 15, hi = b->scales_h >> (2 * s) & 3;
        out->scale[2 * s] = out->scale[2 * s + 1] = (int16_t)((lo | hi << 4) - 32);
        nibbles16(out->q + 32 * s, b->qs + 16 * s, 16, dtype_iq4_values);
    }
}

static void iq4_nl(const void *block, struct dtype_ints_small *out)
{
    const struct block_iq4_nl *b = block;
    out->d[0] = out->d[1] = num_f32_from_f16(b->d);
    nibbles16(out->q, b->qs, 16, dtype_iq4_values);
}

float dtype_e8m0_half(uint8_t e)
{
    /* Subnormal for e < 2. */
    return num_f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

static void mxfp4(const void *block, struct dtype_ints_small *out)
{
    const struct block_mxfp4 *b = block;
    out->d[0] = out->d[1] = dtype_e8m0_half(b->e);
    nibbles16(out->q, b->qs, 16, dtype_mxfp4_values);
}

float dtype_ue4m3_half(uint8_t x)
{
    int exponent = x >> 3 & 15;
    if (x == 0x7f)
        return 0;
    if (exponent == 0)
        return (float)(x & 7) * 0x1p-10f;
    return (float)(8 + (x & 7)) * num_f32_from_bits((uint32_t)(exponent - 11 + 127) << 23);
}

static void nvfp4(const void *block, struct dtype_ints_small *out)
{
    const struct block_nvfp4 *b = block;
    for (int j = 0; j < 4; j++) {
        out->d[j] = dtype_ue4m3_half(b->d[j]);
        nibbles16(out->q + 16 * j, b->qs + 8 * j, 8, dtype_mxfp4_values);
    }
}

/* ---- one and two bits in order ---- */

static void q1_0(const void *block, struct dtype_ints_small *out)
{
    const struct block_q1_0 *b = block;
    for (int j = 0; j < 8; j++)
        out->d[j] = num_f32_from_f16(b->d);
    for (int e = 0; e < 128; e++)
        out->q[e] = b->qs[e / 8] >> (e % 8) & 1 ? 1 : -1;
}

static void q2_0(const void *block, struct dtype_ints_small *out)
{
    const struct block_q2_0 *b = block;
    for (int j = 0; j < 4; j++)
        out->d[j] = num_f32_from_f16(b->d);
    for (int e = 0; e < 64; e++)
        out->q[e] = (int8_t)((b->qs[e / 4] >> (2 * (e % 4)) & 3) - 1);
}

/* ---- by type ---- */

static const dtype_ints256_fn ints256[] = {
    [DTYPE_Q2_K] = q2_k,     [DTYPE_Q3_K] = q3_k,   [DTYPE_IQ2_XXS] = iq2_xxs,
    [DTYPE_IQ2_XS] = iq2_xs, [DTYPE_IQ2_S] = iq2_s, [DTYPE_IQ3_XXS] = iq3_xxs,
    [DTYPE_IQ3_S] = iq3_s,   [DTYPE_IQ1_S] = iq1_s, [DTYPE_IQ1_M] = iq1_m,
    [DTYPE_IQ4_XS] = iq4_xs, [DTYPE_TQ1_0] = tq1_0, [DTYPE_TQ2_0] = tq2_0,
};

dtype_ints256_fn dtype_ints256_get(uint32_t id)
{
    return id < T9_COUNT(ints256) ? ints256[id] : NULL;
}

dtype_ints_small_fn dtype_ints_small_get(uint32_t id)
{
    switch (id) {
    case DTYPE_IQ4_NL: return iq4_nl;
    case DTYPE_MXFP4: return mxfp4;
    case DTYPE_NVFP4: return nvfp4;
    case DTYPE_Q1_0: return q1_0;
    case DTYPE_Q2_0: return q2_0;
    default: return NULL;
    }
}
