/*
 * backend/cpu/kernels/simd_avx2.h - lanes of AVX2 with FMA and F16C: 8 floats or int32. A panel of
 * 16 outputs is two vectors. See simd_avx512.h for what the names mean.
 */
#ifndef T9_BACKEND_CPU_SIMD_AVX2_H
#define T9_BACKEND_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ISA_NAME "avx2"
#define FN       static inline __attribute__((always_inline))

#define NEAR_PAIRS 4
#define NEAR_HINT  2

enum {
    VL = 8,
    HALVES = 2,
    TILE_ROWS = 4,
    TILE_ROWS_K = 4,
    CHAINS = 2,
    CHAINS_K = 2,
    FLOAT_PANELS = 4, /* panels of a float type at once, at most */
    FLOAT_ACCS = 8,   /* their accumulators */
    QK_PAIRS = 2,
    PV_PAIRS = 4,
    NEAR_ACCS = 8,
    PV_VECS = 2,
    DELTA_COLS = 2, /* columns of a delta net's state at once */
    Q8_BIAS = 0,
};

typedef __m256 vf;
typedef __m256i vi;

FN __m256i v_mask(int32_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
FN vf v_zero(void)
{
    return _mm256_setzero_ps();
}
FN vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
FN vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
FN void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
FN vf v_load_n(const float *p, int32_t n)
{
    return _mm256_maskload_ps(p, v_mask(n));
}
FN void v_store_n(float *p, vf x, int32_t n)
{
    _mm256_maskstore_ps(p, v_mask(n), x);
}
FN vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
FN vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
FN vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
FN vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
FN vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
FN vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
FN vf v_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
FN vf v_fmaddsub(vf a, vf b, vf c)
{
    return _mm256_fmaddsub_ps(a, b, c);
}
FN vf v_dup_even(vf a)
{
    return _mm256_moveldup_ps(a);
}
FN vf v_dup_odd(vf a)
{
    return _mm256_movehdup_ps(a);
}
FN vf v_interleave(const float *a, const float *b, int32_t n)
{
    __m128 x = _mm256_castps256_ps128(v_load_n(a, n)), y = _mm256_castps256_ps128(v_load_n(b, n));
    return _mm256_set_m128(_mm_unpackhi_ps(x, y), _mm_unpacklo_ps(x, y));
}
FN vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
FN vf v_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
FN vf v_float(vi a)
{
    return _mm256_cvtepi32_ps(a);
}
FN vi v_int(vf a)
{
    return _mm256_cvtps_epi32(a);
}
/* 2^n for n in [-126, 127]. */
FN vf v_pow2_int(vi n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
FN vf v_pow2(vf n)
{
    return v_pow2_int(_mm256_cvtps_epi32(n));
}
FN vf v_scale_from(vf p, vf n, vf x, float min)
{
    return _mm256_and_ps(_mm256_mul_ps(p, v_pow2(n)), _mm256_cmp_ps(x, v_set1(min), _CMP_NLT_UQ));
}
FN vf v_load_f16(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
FN vf v_from_f16(vi x)
{
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
FN vf v_load_bf16(const void *p)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
FN void v_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
FN void v_store_bf16(uint16_t *p, vf x)
{
    const vi one = _mm256_set1_epi32(1), half = _mm256_set1_epi32(0x7fff);
    vi u = _mm256_castps_si256(x), top = _mm256_srli_epi32(u, 16);
    vi even = _mm256_add_epi32(_mm256_add_epi32(u, half), _mm256_and_si256(top, one));
    vi r = _mm256_blendv_epi8(_mm256_srli_epi32(even, 16),
                              _mm256_or_si256(top, _mm256_set1_epi32(0x40)),
                              _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
    _mm_storeu_si128((__m128i *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
}
FN vi vi_zero(void)
{
    return _mm256_setzero_si256();
}
FN vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
FN vi vi_set1_8(int x)
{
    return _mm256_set1_epi8((char)x);
}
FN vi vi_load(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
FN vi vi_load1(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof(x));
    return _mm256_set1_epi32(x);
}
FN vi vi_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
FN vi vi_sub(vi a, vi b)
{
    return _mm256_sub_epi32(a, b);
}
FN vi vi_mul(vi a, vi b)
{
    return _mm256_mullo_epi32(a, b);
}
FN vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
FN vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}
FN vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
#define vi_shl(a, n)   _mm256_slli_epi32((a), (n))
#define vi_shr(a, n)   _mm256_srli_epi32((a), (n))
#define vi_shl16(a, n) _mm256_slli_epi16((a), (n))
FN vi vi_sub16(vi a, vi b)
{
    return _mm256_sub_epi16(a, b);
}
FN vi vi_mul16(vi a, vi b)
{
    return _mm256_mullo_epi16(a, b);
}
FN vi vi_mulhi_u16(vi a, vi b)
{
    return _mm256_mulhi_epu16(a, b);
}
FN vi vi_add8(vi a, vi b)
{
    return _mm256_add_epi8(a, b);
}
FN vi vi_sub8(vi a, vi b)
{
    return _mm256_sub_epi8(a, b);
}
FN vi vi_table(const void *p)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}
FN vi vi_lookup(vi table, vi x)
{
    return _mm256_shuffle_epi8(table, x);
}
FN vi vi_gather(const uint32_t *table, vi idx)
{
    return _mm256_i32gather_epi32((const int *)table, idx, 4);
}
FN vi vi_mask4(vi bits, const int high)
{
    const vi first = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0,
                                      0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    const vi one = _mm256_set1_epi32(high ? (int)0x80402010 : 0x08040201);
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(bits, first), one), one);
}
FN vi vi_shr_by(vi a, int n)
{
    return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n));
}
/* Bits n and n + 1 of each byte to bits 4 and 5. */
FN vi vi_bit_to_4(vi a, int n)
{
    vi low = _mm256_and_si256(vi_shr_by(a, n), _mm256_set1_epi32(0x03030303));
    return _mm256_slli_epi32(low, 4);
}
FN vi vi_bit_to_2(vi a, int n)
{
    return _mm256_slli_epi32(_mm256_and_si256(vi_shr_by(a, n), _mm256_set1_epi32(0x01010101)), 2);
}
FN vi vi_or_and(vi a, vi b, vi c)
{
    return _mm256_or_si256(a, _mm256_and_si256(b, c));
}
FN vi vi_load_u8(const void *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
FN vi vi_load_s8(const void *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
FN vi vi_dot16(vi acc, vi a, vi b)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
}

/* A pair of products is at most 2 * 127 * w_max; as many of them as fit are added in int16. */
FN void vi_dots(vi s[], const vi *w, const int8_t *a, const size_t stride, const int n_rows,
                const int n_words, const int w_max)
{
    const int fit = w_max <= 15 ? 8 : w_max <= 31 ? 4 : 2;
    const vi ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++, a += stride) {
#pragma GCC unroll 8
        for (int g = 0; g < n_words; g += fit) {
            vi s16 = _mm256_maddubs_epi16(w[g], vi_load1(a + 4 * g));
#pragma GCC unroll 8
            for (int k = 1; k < (fit < n_words ? fit : n_words); k++)
                s16 = _mm256_add_epi16(s16,
                                       _mm256_maddubs_epi16(w[g + k], vi_load1(a + 4 * (g + k))));
            s[i] = _mm256_add_epi32(s[i], _mm256_madd_epi16(s16, ones));
        }
    }
}
FN vi vi_q8(vi w)
{
    return _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
}
FN vi vi_q8_start(int32_t a_sum)
{
    (void)a_sum;
    return _mm256_setzero_si256();
}
/* |w| * sign(a, w): at most 2 * 128 * 127 a pair, so maddubs never saturates. */
FN vi vi_pairs_q8(vi w, const int8_t *a)
{
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(vi_load1(a), w));
}
FN void vi_dots_q8(vi s[], const vi *w, const int8_t *a, const size_t stride, const int n_rows)
{
    const vi ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++, a += stride) {
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            vi s16 = vi_pairs_q8(w[g], a + 4 * g);
            s[i] = _mm256_add_epi32(s[i], _mm256_madd_epi16(s16, ones));
        }
    }
}

/* The two scales of a lane, each in both halves. */
FN vi vi_scale_low(vi scales)
{
    return _mm256_blend_epi16(scales, _mm256_slli_epi32(scales, 16), 0xaa);
}
FN vi vi_scale_high(vi scales)
{
    return _mm256_blend_epi16(scales, _mm256_srli_epi32(scales, 16), 0x55);
}
/* The scale is multiplied in where the pairs of int16 are added anyway. */
FN vi vi_scaled4(vi acc, const vi w[4], const int8_t *a, vi scale)
{
    vi s16 = _mm256_maddubs_epi16(w[0], vi_load1(a));
#pragma GCC unroll 4
    for (int g = 1; g < 4; g++)
        s16 = _mm256_add_epi16(s16, _mm256_maddubs_epi16(w[g], vi_load1(a + 4 * g)));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(s16, scale));
}
FN void vi_scaled_dots(vi isum[], const vi w[8], const int8_t *a, const size_t stride,
                       const int n_rows, const vi scales)
{
    const vi lo = vi_scale_low(scales), hi = vi_scale_high(scales);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++, a += stride) {
        isum[i] = vi_scaled4(isum[i], w, a, lo);
        isum[i] = vi_scaled4(isum[i], w + 4, a + 16, hi);
    }
}
FN void vi_scaled_dots_q8(vi isum[], const vi w[8], const int8_t *a, const size_t stride,
                          const int n_rows, const vi scales, const bool one)
{
    (void)one;
    const vi lo = vi_scale_low(scales), hi = vi_scale_high(scales);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++, a += stride) {
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            vi s16 = vi_pairs_q8(w[g], a + 4 * g);
            isum[i] = _mm256_add_epi32(isum[i], _mm256_madd_epi16(s16, g < 4 ? lo : hi));
        }
    }
}
FN vi vi_dot_signed(const vi *w, const int8_t *a, const int n_words)
{
    const vi ones = _mm256_set1_epi16(1);
    vi s = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int g = 0; g < n_words; g++) {
        vi s16 = vi_pairs_q8(w[g], a + 4 * g);
        s = _mm256_add_epi32(s, _mm256_madd_epi16(s16, ones));
    }
    return s;
}

FN float v_tree16(const vf x[HALVES])
{
    __m256 a = _mm256_add_ps(x[0], x[1]);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    b = _mm_add_ss(b, _mm_movehdup_ps(b));
    return _mm_cvtss_f32(b);
}
#define V_FOLD(name, op)                                                                           \
    FN void name(float *out, const vf *x, const int n)                                             \
    {                                                                                              \
        vf a[4], b[2];                                                                             \
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) a[i] =                                 \
            op(x[i < n ? 2 * i : 0], x[i < n ? 2 * i + 1 : 1]);                                    \
        _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) b[i] =                                 \
            op(_mm256_permute2f128_ps(a[2 * i], a[2 * i + 1], 0x20),                               \
               _mm256_permute2f128_ps(a[2 * i], a[2 * i + 1], 0x31));                              \
        b[1] = n > 2 ? b[1] : b[0];                                                                \
        b[0] = op(_mm256_shuffle_ps(b[0], b[1], 0x44), _mm256_shuffle_ps(b[0], b[1], 0xee));       \
        b[0] = op(b[0], _mm256_movehdup_ps(b[0]));                                                 \
        float lane[VL];                                                                            \
        v_store(lane, b[0]);                                                                       \
        _Pragma("GCC unroll 4") for (int i = 0; i < n; i++) out[i] = lane[i % 2 * 4 + i / 2 * 2];  \
    }
V_FOLD(v_trees, v_add)
V_FOLD(v_max_lanes, v_max)
FN int32_t vi_sum_lane(__m256i x)
{
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0xb1));
    return _mm_cvtsi128_si32(b);
}
FN uint32_t v_amax_bits(const float *x, int n)
{
    vi m = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8)
        m = _mm256_max_epu32(m, _mm256_and_si256(vi_load(x + i), _mm256_set1_epi32(0x7fffffff)));
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(b);
}
FN int32_t v_quant16(int8_t *q, const float *x, float inv)
{
    __m256i lo = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), _mm256_set1_ps(inv)));
    __m256i hi = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), _mm256_set1_ps(inv)));
    __m256i h = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8);
    _mm_storeu_si128((__m128i *)q,
                     _mm_packs_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
    return vi_sum_lane(_mm256_add_epi32(lo, hi));
}

#endif
