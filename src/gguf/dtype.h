/*
 * gguf/dtype.h - the value types of GGUF tensors: names, block sizes, block layouts, codebooks, and
 * scalar dequantisation.
 *
 * A row of a tensor is a whole number of blocks; a block holds `block_elems` values in
 * `block_bytes` bytes, little endian. Block structs are packed: they may be read at any address.
 * "split" in a comment means that byte j holds element j in its low and element j + half in its
 * high nibble. Any thread; no state.
 */
#ifndef T9_GGUF_DTYPE_H
#define T9_GGUF_DTYPE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, id, block_elems, block_bytes). Ids are the file format's. */
#define DTYPE_LIST(X)                                                                              \
    X(F32, 0, 1, 4)                                                                                \
    X(F16, 1, 1, 2)                                                                                \
    X(Q4_0, 2, 32, 18)                                                                             \
    X(Q4_1, 3, 32, 20)                                                                             \
    X(Q5_0, 6, 32, 22)                                                                             \
    X(Q5_1, 7, 32, 24)                                                                             \
    X(Q8_0, 8, 32, 34)                                                                             \
    X(Q8_1, 9, 32, 36)                                                                             \
    X(Q2_K, 10, 256, 84)                                                                           \
    X(Q3_K, 11, 256, 110)                                                                          \
    X(Q4_K, 12, 256, 144)                                                                          \
    X(Q5_K, 13, 256, 176)                                                                          \
    X(Q6_K, 14, 256, 210)                                                                          \
    X(Q8_K, 15, 256, 292)                                                                          \
    X(IQ2_XXS, 16, 256, 66)                                                                        \
    X(IQ2_XS, 17, 256, 74)                                                                         \
    X(IQ3_XXS, 18, 256, 98)                                                                        \
    X(IQ1_S, 19, 256, 50)                                                                          \
    X(IQ4_NL, 20, 32, 18)                                                                          \
    X(IQ3_S, 21, 256, 110)                                                                         \
    X(IQ2_S, 22, 256, 82)                                                                          \
    X(IQ4_XS, 23, 256, 136)                                                                        \
    X(I8, 24, 1, 1)                                                                                \
    X(I16, 25, 1, 2)                                                                               \
    X(I32, 26, 1, 4)                                                                               \
    X(I64, 27, 1, 8)                                                                               \
    X(F64, 28, 1, 8)                                                                               \
    X(IQ1_M, 29, 256, 56)                                                                          \
    X(BF16, 30, 1, 2)                                                                              \
    X(TQ1_0, 34, 256, 54)                                                                          \
    X(TQ2_0, 35, 256, 66)                                                                          \
    X(MXFP4, 39, 32, 17)                                                                           \
    X(NVFP4, 40, 64, 36)                                                                           \
    X(Q1_0, 41, 128, 18)                                                                           \
    X(Q2_0, 42, 64, 18)

/* Ids that files once had: refused by name. */
#define DTYPE_REMOVED_LIST(X)                                                                      \
    X(Q4_2, 4)                                                                                     \
    X(Q4_3, 5)                                                                                     \
    X(Q4_0_4_4, 31)                                                                                \
    X(Q4_0_4_8, 32)                                                                                \
    X(Q4_0_8_8, 33)                                                                                \
    X(IQ4_NL_4_4, 36)                                                                              \
    X(IQ4_NL_4_8, 37)                                                                              \
    X(IQ4_NL_8_8, 38)

enum dtype {
#define X(name, id, elems, bytes) DTYPE_##name = (id),
    DTYPE_LIST(X)
#undef X
        DTYPE_ID_END = 43 /* one above the highest id */
};

struct dtype_info {
    const char *name; /* "Q4_K" */
    uint32_t id;
    uint32_t block_elems, block_bytes; /* 0 for removed types */
    bool removed;                      /* known name, no longer a valid type */
};

/* NULL for an id that never was a type. */
const struct dtype_info *gguf_dtype_get(uint32_t id);
/* Type by name, upper or lower case; NULL when unknown. */
const struct dtype_info *gguf_dtype_by_name(const char *name);
/* "Q4_K", or "?" for an unknown id. */
const char *gguf_dtype_name(uint32_t id);
/* Bytes of a row of n values; 0 when the type is unknown or removed or n is no whole number of
 * blocks or the size overflows. */
uint64_t dtype_row_bytes(uint32_t id, uint64_t n);

/*
 * n values of type `id` at src as f32 into dst. The value is computed in f32 in the order that the
 * format's reference states (d*sc)*q - dmin*mn, so results are bit-equal to it. UNSUPPORTED for
 * types that have no dequantisation here; INVALID when n is no whole number of blocks.
 */
t9_status dtype_dequantize_row(uint32_t id, const void *src, float *dst, size_t n,
                               struct t9_err *err);
/* Whether dtype_dequantize_row does this type. */
bool dtype_can_dequantize(uint32_t id);

/* ---- block layouts ---- */

#define DTYPE_PACKED __attribute__((packed))
#define QK_K         256 /* values of a K-quant superblock */

struct DTYPE_PACKED block_q4_0 {
    uint16_t d;     /* f16 */
    uint8_t qs[16]; /* split; value (q - 8) * d */
};
struct DTYPE_PACKED block_q4_1 {
    uint16_t d, m;  /* f16 */
    uint8_t qs[16]; /* split; value q * d + m */
};
struct DTYPE_PACKED block_q5_0 {
    uint16_t d;
    uint8_t qh[4];  /* u32; bit e is the fifth bit of element e */
    uint8_t qs[16]; /* split; value (q - 16) * d */
};
struct DTYPE_PACKED block_q5_1 {
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16]; /* split; value q * d + m */
};
struct DTYPE_PACKED block_q8_0 {
    uint16_t d;
    int8_t qs[32];
};
struct DTYPE_PACKED block_q8_1 { /* activations only */
    uint16_t d, s;               /* s = d * sum of qs */
    int8_t qs[32];
};
struct DTYPE_PACKED block_q2_k {
    uint8_t scales[16]; /* per 16 values: low nibble scale, high nibble min */
    uint8_t qs[64];     /* 2-bit planes: 32 bytes hold 128 values, plane by plane of 32 */
    uint16_t d, dmin;   /* value (d*scale)*q - dmin*min */
};
struct DTYPE_PACKED block_q3_k {
    uint8_t hmask[32];  /* bit p of byte l: high bit of value 32*p + l */
    uint8_t qs[64];     /* low two bits, as in q2_k */
    uint8_t scales[12]; /* 16 6-bit scales, biased by 32 */
    uint16_t d;         /* value d*(scale-32)*(q2 - (high bit ? 0 : 4)) */
};
struct DTYPE_PACKED block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12]; /* 8 pairs of 6 bits (scale, min), see dtype_k4_scale_min */
    uint8_t qs[128];    /* 32 bytes hold 64 values: low nibbles the first 32, high the next */
};
struct DTYPE_PACKED block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];  /* byte l, bit 2c / 2c+1: fifth bit of value 64c + l / 64c + 32 + l */
    uint8_t qs[128]; /* as in q4_k */
};
struct DTYPE_PACKED block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16]; /* per 16 values */
    uint16_t d;        /* value d*scale*(q - 32) */
};
struct DTYPE_PACKED block_q8_k { /* activations only */
    float d;
    int8_t qs[QK_K];
    int16_t bsums[QK_K / 16];
};
struct DTYPE_PACKED block_iq2_xxs {
    uint16_t d;
    uint8_t qs[64]; /* per 32 values: 4 points of iq2_xxs_grid, u32 of 4 x 7 bits of signs and a
                       scale on top; value d * (1/2 + scale) / 4 * point */
};
struct DTYPE_PACKED block_iq2_xs {
    uint16_t d;
    uint8_t qs[64];    /* u16 per 8 values: 9 bits of a point of iq2_xs_grid, 7 of signs */
    uint8_t scales[8]; /* a nibble per 16 values, as in iq2_xxs */
};
struct DTYPE_PACKED block_iq2_s {
    uint16_t d;
    uint8_t qs[32];    /* low bytes of points of iq2_s_grid */
    uint8_t signs[32]; /* per 8 values */
    uint8_t qh[8];     /* two high bits of 4 points */
    uint8_t scales[8]; /* as in iq2_xs */
};
struct DTYPE_PACKED block_iq3_xxs {
    uint16_t d;
    uint8_t qs[64];           /* points of iq3_xxs_grid, 4 values each */
    uint8_t scales_signs[32]; /* u32 per 32 values, as in iq2_xxs; value d * (1/2 + scale) / 2 */
};
struct DTYPE_PACKED block_iq3_s {
    uint16_t d;
    uint8_t qs[64];    /* low bytes of points of iq3_s_grid, 4 values each */
    uint8_t qh[8];     /* their ninth bits */
    uint8_t signs[32]; /* per 8 values */
    uint8_t scales[4]; /* a nibble per 32 values; value d * (1 + 2 scale) * point */
};
struct DTYPE_PACKED block_iq1_s {
    uint16_t d;
    uint8_t qs[32]; /* low bytes of points of iq1_grid */
    uint8_t qh[16]; /* u16 per 32 values: 4 x 3 high bits, a scale of 3, sign of the offset of 1/8;
                       value d * (2 scale + 1) * (point + offset) */
};
struct DTYPE_PACKED block_iq1_m {
    uint8_t qs[32];
    uint8_t qh[16];    /* a nibble per 8 values: 3 high bits, sign of the offset */
    uint8_t scales[8]; /* u16 per 64 values: 4 scales of 3 bits, a nibble of d (f16) on top */
};
struct DTYPE_PACKED block_tq1_0 {
    uint8_t qs[48]; /* 5 trits a byte: 32 bytes hold 160 values, 16 hold 80 */
    uint8_t qh[4];  /* 4 trits a byte */
    uint16_t d;     /* value (trit - 1) * d */
};
struct DTYPE_PACKED block_tq2_0 {
    uint8_t qs[64]; /* 2-bit planes, as in q2_k */
    uint16_t d;     /* value (q - 1) * d */
};
struct DTYPE_PACKED block_iq4_nl {
    uint16_t d;
    uint8_t qs[16]; /* split; indices into dtype_iq4_values */
};
struct DTYPE_PACKED block_iq4_xs {
    uint16_t d;
    uint16_t scales_h;   /* 8 x 2 high bits */
    uint8_t scales_l[4]; /* 8 x 4 low bits; scale is biased by 32 */
    uint8_t qs[128];     /* per 32 values 16 bytes, split; indices into dtype_iq4_values */
};
struct DTYPE_PACKED block_mxfp4 {
    uint8_t e;      /* scale 2^(e - 127) */
    uint8_t qs[16]; /* split; indices into dtype_mxfp4_values, which are doubled E2M1 */
};
struct DTYPE_PACKED block_nvfp4 {
    uint8_t d[4];   /* unsigned E4M3 per 16 values */
    uint8_t qs[32]; /* per 16 values 8 bytes, split; dtype_mxfp4_values */
};
struct DTYPE_PACKED block_q1_0 {
    uint16_t d;
    uint8_t qs[16]; /* bit 1: d, bit 0: -d */
};
struct DTYPE_PACKED block_q2_0 {
    uint16_t d;
    uint8_t qs[16]; /* two bits in order; value (q - 1) * d */
};

#define DTYPE_ASSERT_BLOCK(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "block size")
DTYPE_ASSERT_BLOCK(block_q4_0, 18);
DTYPE_ASSERT_BLOCK(block_q4_1, 20);
DTYPE_ASSERT_BLOCK(block_q5_0, 22);
DTYPE_ASSERT_BLOCK(block_q5_1, 24);
DTYPE_ASSERT_BLOCK(block_q8_0, 34);
DTYPE_ASSERT_BLOCK(block_q8_1, 36);
DTYPE_ASSERT_BLOCK(block_q2_k, 84);
DTYPE_ASSERT_BLOCK(block_q3_k, 110);
DTYPE_ASSERT_BLOCK(block_q4_k, 144);
DTYPE_ASSERT_BLOCK(block_q5_k, 176);
DTYPE_ASSERT_BLOCK(block_q6_k, 210);
DTYPE_ASSERT_BLOCK(block_q8_k, 292);
DTYPE_ASSERT_BLOCK(block_iq2_xxs, 66);
DTYPE_ASSERT_BLOCK(block_iq2_xs, 74);
DTYPE_ASSERT_BLOCK(block_iq2_s, 82);
DTYPE_ASSERT_BLOCK(block_iq3_xxs, 98);
DTYPE_ASSERT_BLOCK(block_iq3_s, 110);
DTYPE_ASSERT_BLOCK(block_iq1_s, 50);
DTYPE_ASSERT_BLOCK(block_iq1_m, 56);
DTYPE_ASSERT_BLOCK(block_tq1_0, 54);
DTYPE_ASSERT_BLOCK(block_tq2_0, 66);
DTYPE_ASSERT_BLOCK(block_iq4_nl, 18);
DTYPE_ASSERT_BLOCK(block_iq4_xs, 136);
DTYPE_ASSERT_BLOCK(block_mxfp4, 17);
DTYPE_ASSERT_BLOCK(block_nvfp4, 36);
DTYPE_ASSERT_BLOCK(block_q1_0, 18);
DTYPE_ASSERT_BLOCK(block_q2_0, 18);

/* Codebooks. The MXFP4 values are twice E2M1's, to be multiplied with half of the block's scale. */
extern const int8_t dtype_iq4_values[16];
extern const int8_t dtype_mxfp4_values[16];

/* Scale and min (6 bits each) of sub-block j (0..7) of the 12 scale bytes of q4_k and q5_k. */
static inline void dtype_k4_scale_min(const uint8_t *s, int j, uint8_t *sc, uint8_t *mn)
{
    if (j < 4) {
        *sc = s[j] & 63;
        *mn = s[j + 4] & 63;
    } else {
        *sc = (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *mn = (uint8_t)(s[j + 4] >> 4 | (s[j] >> 6) << 4);
    }
}

/* The 16 biased 6-bit scales (0..63) of the 12 scale bytes of q3_k. */
static inline void dtype_q3k_scales(const uint8_t *s, uint8_t out[16])
{
    for (int j = 0; j < 16; j++) {
        int lo = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        int hi = s[8 + j % 4] >> (2 * (j / 4)) & 3;
        out[j] = (uint8_t)(lo | hi << 4);
    }
}

/* ---- blocks as integers ---- */

/*
 * A block as the integers and scales that it stands for, one scalar function a type: for the types
 * whose values are looked up, or lie in a way that only their own kernels should know. These are
 * the integers that the integer path of a backend multiplies.
 */

/* A block of 256: value e is d * scale[e / 16] * q[e] - dmin * min[e / 16]. */
struct dtype_ints256 {
    float d, dmin;
    int16_t scale[16];
    uint8_t min[16]; /* 0 for all types but Q2_K */
    int8_t q[QK_K];
};

/* A block of 32, 64 or 128: value e is d[e / 16] * q[e]. */
struct dtype_ints_small {
    float d[8];
    int8_t q[128];
};

typedef void (*dtype_ints256_fn)(const void *block, struct dtype_ints256 *out);
typedef void (*dtype_ints_small_fn)(const void *block, struct dtype_ints_small *out);

/* Q2_K, Q3_K, IQ1_*, IQ2_*, IQ3_*, IQ4_XS, TQ1_0, TQ2_0; NULL for other types. */
dtype_ints256_fn dtype_ints256_get(uint32_t id);
/* IQ4_NL, MXFP4, NVFP4, Q1_0, Q2_0; NULL for other types. */
dtype_ints_small_fn dtype_ints_small_get(uint32_t id);

/* The scale of MXFP4: half of 2^(e-127), because its table holds doubled values. */
float dtype_e8m0_half(uint8_t e);
/* The scale of NVFP4: half of the unsigned E4M3 number; 0 for 0x7f. The sign bit is not looked at.
 */
float dtype_ue4m3_half(uint8_t x);

/*
 * The codebooks of the IQ types. An entry is a word of four bytes. Where a point has 8 values, byte
 * k holds the code (0..3) of value k in its low two bits and of value k + 4 in the next two; where
 * it has 4, byte k is the code (0..7) of value k. So one gathered word gives a vector lane its
 * values by one table look-up for every four.
 */
extern const uint32_t iq2_xxs_grid[256], iq2_xs_grid[512], iq2_s_grid[1024];
extern const uint32_t iq1_grid[2048];
extern const uint32_t iq3_xxs_grid[256], iq3_s_grid[512];

/* Values of the codes. IQ1's are eight times -1, 0, 1, so that the type's offset of 1/8 is 1. */
#define IQ2_VALUES     8, 25, 43
#define IQ1_VALUES     -8, 0, 8
#define IQ3_XXS_VALUES 4, 12, 20, 28, 36, 44, 52, 62
#define IQ3_S_VALUES   1, 3, 5, 7, 9, 11, 13, 15

/* The eight signs (bit i set: value i is negative) that a 7-bit code stands for: bit 7 makes their
 * number even. */
static inline uint32_t iq_signs(uint32_t code)
{
    uint32_t x = code ^ code >> 4;
    return code | (0x6996u >> (x & 15) & 1) << 7;
}

#endif
