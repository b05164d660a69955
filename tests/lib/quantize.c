/* tests/lib/quantize.c - see the header. */
#include "lib/quantize.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

static int clamp_round(float v, int lo, int hi)
{
    if (!(v > (float)lo))
        return lo;
    return v >= (float)hi ? hi : (int)lrintf(v);
}

static float inverse(float d)
{
    return d != 0 ? 1 / d : 0;
}

/* The value of the largest magnitude, with its sign. */
static float signed_max(const float *x, int n)
{
    float best = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(best))
            best = x[i];
    }
    return best;
}

static float min_of(const float *x, int n)
{
    float v = x[0];
    for (int i = 1; i < n; i++)
        v = x[i] < v ? x[i] : v;
    return v;
}

static float max_of(const float *x, int n)
{
    float v = x[0];
    for (int i = 1; i < n; i++)
        v = x[i] > v ? x[i] : v;
    return v;
}

static void q4_0(const float *x, void *dst)
{
    struct block_q4_0 b = {.d = num_f16_from_f32(signed_max(x, 32) / -8)};
    const float inv = inverse(num_f32_from_f16(b.d));
    for (int j = 0; j < 16; j++)
        b.qs[j] = (uint8_t)(clamp_round(x[j] * inv + 8, 0, 15) |
                            clamp_round(x[j + 16] * inv + 8, 0, 15) << 4);
    memcpy(dst, &b, sizeof b);
}

static void q4_1(const float *x, void *dst)
{
    const float lo = min_of(x, 32);
    struct block_q4_1 b = {.d = num_f16_from_f32((max_of(x, 32) - lo) / 15),
                           .m = num_f16_from_f32(lo)};
    const float inv = inverse(num_f32_from_f16(b.d));
    const float m = num_f32_from_f16(b.m);
    for (int j = 0; j < 16; j++)
        b.qs[j] = (uint8_t)(clamp_round((x[j] - m) * inv, 0, 15) |
                            clamp_round((x[j + 16] - m) * inv, 0, 15) << 4);
    memcpy(dst, &b, sizeof b);
}

/* Spreads 32 five-bit codes over qs and qh. */
static void pack5(const int *q, uint8_t *qs, uint8_t *qh)
{
    memset(qh, 0, 4);
    for (int e = 0; e < 32; e++) {
        qh[e / 8] = (uint8_t)(qh[e / 8] | (q[e] >> 4) << (e % 8));
        if (e < 16)
            qs[e] = (uint8_t)((q[e] & 15) | (q[e + 16] & 15) << 4);
    }
}

static void q5_0(const float *x, void *dst)
{
    int q[32];
    struct block_q5_0 b = {.d = num_f16_from_f32(signed_max(x, 32) / -16)};
    const float inv = inverse(num_f32_from_f16(b.d));
    for (int e = 0; e < 32; e++)
        q[e] = clamp_round(x[e] * inv + 16, 0, 31);
    pack5(q, b.qs, b.qh);
    memcpy(dst, &b, sizeof b);
}

static void q5_1(const float *x, void *dst)
{
    int q[32];
    const float lo = min_of(x, 32);
    struct block_q5_1 b = {.d = num_f16_from_f32((max_of(x, 32) - lo) / 31),
                           .m = num_f16_from_f32(lo)};
    const float inv = inverse(num_f32_from_f16(b.d));
    const float m = num_f32_from_f16(b.m);
    for (int e = 0; e < 32; e++)
        q[e] = clamp_round((x[e] - m) * inv, 0, 31);
    pack5(q, b.qs, b.qh);
    memcpy(dst, &b, sizeof b);
}

static void q8_0(const float *x, void *dst)
{
    struct block_q8_0 b = {.d = num_f16_from_f32(fabsf(signed_max(x, 32)) / 127)};
    const float inv = inverse(num_f32_from_f16(b.d));
    for (int e = 0; e < 32; e++)
        b.qs[e] = (int8_t)clamp_round(x[e] * inv, -128, 127);
    memcpy(dst, &b, sizeof b);
}

/* What q4_k and q5_k share: scales, mins and codes 0..q_max of one superblock. */
struct k_block {
    uint16_t d, dmin;
    uint8_t scales[12];
    int q[QK_K];
};

static void k4_pack_scales(const int *sc, const int *mn, uint8_t *s)
{
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(sc[j] | (sc[j + 4] >> 4) << 6);
        s[j + 4] = (uint8_t)(mn[j] | (mn[j + 4] >> 4) << 6);
        s[j + 8] = (uint8_t)((sc[j + 4] & 15) | (mn[j + 4] & 15) << 4);
    }
}

static void k_quantize(const float *x, int q_max, struct k_block *b)
{
    float scale[8];
    float min[8];
    int sc[8];
    int mn[8];
    /* A block whose largest value is negative is stored negated, with negative d and dmin. */
    const float sign = signed_max(x, QK_K) < 0 ? -1.0f : 1.0f;
    float y[QK_K];
    for (int e = 0; e < QK_K; e++)
        y[e] = sign * x[e];
    for (int j = 0; j < 8; j++) {
        float lo = min_of(y + 32 * j, 32);
        min[j] = lo < 0 ? -lo : 0;
        scale[j] = (max_of(y + 32 * j, 32) + min[j]) / (float)q_max;
        scale[j] = scale[j] > 0 ? scale[j] : 0;
    }
    b->d = num_f16_from_f32(sign * max_of(scale, 8) / 63);
    b->dmin = num_f16_from_f32(sign * max_of(min, 8) / 63);
    const float d = fabsf(num_f32_from_f16(b->d));
    const float dmin = fabsf(num_f32_from_f16(b->dmin));
    for (int j = 0; j < 8; j++) {
        sc[j] = clamp_round(scale[j] * inverse(d), 0, 63);
        mn[j] = clamp_round(min[j] * inverse(dmin), 0, 63);
        const float inv = inverse(d * (float)sc[j]);
        for (int l = 32 * j; l < 32 * j + 32; l++)
            b->q[l] = clamp_round((y[l] + dmin * (float)mn[j]) * inv, 0, q_max);
    }
    k4_pack_scales(sc, mn, b->scales);
}

static void q4_k(const float *x, void *dst)
{
    struct k_block k;
    struct block_q4_k b;
    k_quantize(x, 15, &k);
    b.d = k.d;
    b.dmin = k.dmin;
    memcpy(b.scales, k.scales, sizeof b.scales);
    for (int i = 0; i < 128; i++) {
        const int first = i / 32 * 64 + i % 32;
        b.qs[i] = (uint8_t)(k.q[first] | k.q[first + 32] << 4);
    }
    memcpy(dst, &b, sizeof b);
}

static void q5_k(const float *x, void *dst)
{
    struct k_block k;
    struct block_q5_k b = {0};
    k_quantize(x, 31, &k);
    b.d = k.d;
    b.dmin = k.dmin;
    memcpy(b.scales, k.scales, sizeof b.scales);
    for (int i = 0; i < 128; i++) {
        const int first = i / 32 * 64 + i % 32;
        b.qs[i] = (uint8_t)((k.q[first] & 15) | (k.q[first + 32] & 15) << 4);
    }
    for (int e = 0; e < QK_K; e++)
        b.qh[e % 32] = (uint8_t)(b.qh[e % 32] | (k.q[e] >> 4) << (e / 32));
    memcpy(dst, &b, sizeof b);
}

static void q6_k(const float *x, void *dst)
{
    struct block_q6_k b = {0};
    float scale[16];
    for (int j = 0; j < 16; j++)
        scale[j] = signed_max(x + 16 * j, 16) / -32;
    b.d = num_f16_from_f32(signed_max(scale, 16) / -128);
    const float d = num_f32_from_f16(b.d);
    for (int j = 0; j < 16; j++)
        b.scales[j] = (int8_t)clamp_round(scale[j] * inverse(d), -128, 127);
    for (int e = 0; e < QK_K; e++) {
        const int q = clamp_round(x[e] * inverse(d * (float)b.scales[e / 16]) + 32, 0, 63);
        const int half = e / 128;
        const int row = e % 128 / 32;
        uint8_t *lo = &b.ql[half * 64 + row % 2 * 32 + e % 32];
        uint8_t *hi = &b.qh[half * 32 + e % 32];
        *lo = (uint8_t)(*lo | (q & 15) << (row / 2 * 4));
        *hi = (uint8_t)(*hi | (q >> 4) << (row * 2));
    }
    memcpy(dst, &b, sizeof b);
}

bool quantize_set_scales(uint32_t dtype, void *block, uint16_t d, uint16_t m)
{
    uint8_t *p = block, *end = p + gguf_dtype_get(dtype)->block_bytes;
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_BF16:
    case DTYPE_MXFP4:
    case DTYPE_NVFP4: return false;
    case DTYPE_IQ1_M: /* spread over the top nibbles of the last four words */
        for (int i = 0; i < 4; i++)
            end[2 * i - 7] = (uint8_t)((end[2 * i - 7] & 15) | (d >> (4 * i) & 15) << 4);
        return true;
    case DTYPE_Q2_K:
        memcpy(end - 4, &d, 2);
        memcpy(end - 2, &m, 2);
        return true;
    case DTYPE_Q3_K:
    case DTYPE_Q6_K:
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0: memcpy(end - 2, &d, 2); return true;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: memcpy(p + 2, &m, 2); break;
    default: break;
    }
    memcpy(p, &d, 2);
    return true;
}

/* What to divide the largest value by for a scale of types without a quantiser; 0: no such type. */
static float scale_divisor(uint32_t dtype)
{
    switch (dtype) {
    case DTYPE_Q1_0:
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0: return 3;
    case DTYPE_Q2_0: return 4;
    case DTYPE_IQ1_S:
    case DTYPE_IQ1_M: return 16;
    case DTYPE_Q2_K: return 45;
    case DTYPE_IQ4_NL: return 127;
    case DTYPE_Q3_K:
    case DTYPE_IQ2_XXS:
    case DTYPE_IQ2_XS:
    case DTYPE_IQ2_S: return 128;
    case DTYPE_IQ3_XXS:
    case DTYPE_IQ3_S: return 400;
    case DTYPE_IQ4_XS: return 127 * 32;
    default: return 0;
    }
}

/* Exponents of a power of two near |x| / 4, as MXFP4 and NVFP4 store them, with their bias. */
static int exponent_near(float x, int bias, int max)
{
    return clamp_round((float)bias + floorf(log2f(fabsf(x) + 1e-30f)) - 2, 0, max);
}

static bool random_scale(uint32_t dtype, float top, uint8_t *p)
{
    if (dtype == DTYPE_MXFP4) {
        p[0] = (uint8_t)exponent_near(top, 127, 254);
        return true;
    }
    if (dtype == DTYPE_NVFP4) {
        for (int j = 0; j < 4; j++)
            p[j] = (uint8_t)(exponent_near(top, 7, 14) << 3 | (p[j] & 7));
        return true;
    }
    const float divisor = scale_divisor(dtype);
    if (divisor == 0)
        return false;
    const uint16_t d = num_f16_from_f32(top / divisor);
    return quantize_set_scales(dtype, p, d, d);
}

/* Random codes, seeded by the values, with the scale fields set for a magnitude like theirs. */
static bool random_block(uint32_t dtype, const float *x, void *dst, const struct dtype_info *info)
{
    uint64_t s = 0x9E3779B97F4A7C15u;
    for (uint32_t i = 0; i < info->block_elems; i++)
        s = (s ^ num_bits_from_f32(x[i])) * 0xD6E8FEB86659FD93u + (s >> 29);
    uint8_t *p = dst;
    for (uint32_t i = 0; i < info->block_bytes; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        p[i] = (uint8_t)(s >> 56);
    }
    return random_scale(dtype, signed_max(x, (int)info->block_elems), p);
}

typedef void (*quantize_fn)(const float *x, void *dst);

static quantize_fn quantize_function(uint32_t dtype)
{
    switch (dtype) {
    case DTYPE_Q4_0: return q4_0;
    case DTYPE_Q4_1: return q4_1;
    case DTYPE_Q5_0: return q5_0;
    case DTYPE_Q5_1: return q5_1;
    case DTYPE_Q8_0: return q8_0;
    case DTYPE_Q4_K: return q4_k;
    case DTYPE_Q5_K: return q5_k;
    case DTYPE_Q6_K: return q6_k;
    default: return NULL;
    }
}

static bool is_float(uint32_t dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

bool quantize_is_exact(uint32_t dtype)
{
    return is_float(dtype) || quantize_function(dtype) != NULL;
}

t9_status quantize_row(uint32_t dtype, const float *x, void *dst, size_t n, struct t9_err *err)
{
    const struct dtype_info *info = gguf_dtype_get(dtype);
    quantize_fn fn = quantize_function(dtype);
    if (!info || info->removed || n % info->block_elems != 0)
        return t9_fail(err, T9_STATUS_INVALID, "cannot make %zu values of type %s", n,
                       gguf_dtype_name(dtype));
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i += info->block_elems, p += info->block_bytes) {
        uint16_t h = dtype == DTYPE_F16 ? num_f16_from_f32(x[i]) : num_bf16_from_f32(x[i]);
        if (fn)
            fn(x + i, p);
        else if (is_float(dtype))
            memcpy(p, dtype == DTYPE_F32 ? (const void *)&x[i] : &h, info->block_bytes);
        else if (!random_block(dtype, x + i, p, info))
            return t9_fail(err, T9_STATUS_INVALID, "no quantiser for type %s", info->name);
    }
    return T9_STATUS_OK;
}
