/*
 * gguf/dtype.h - the value types of GGUF tensors: names, block sizes, block layouts, and scalar
 * dequantisation.
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
DTYPE_ASSERT_BLOCK(block_iq4_nl, 18);
DTYPE_ASSERT_BLOCK(block_iq4_xs, 136);
DTYPE_ASSERT_BLOCK(block_mxfp4, 17);

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

#endif
