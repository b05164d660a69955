/*
 * backend/cpu/kernels/simd_avx512.h - lanes of AVX-512 with VNNI: 16 floats or int32.
 *
 * The names are those that the families (*.inc) use; each is one IEEE or integer operation per
 * lane, so the vector width never changes a result.
 */
#ifndef T9_BACKEND_CPU_SIMD_AVX512_H
#define T9_BACKEND_CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ISA_NAME "avx512"
#define FN       static inline __attribute__((always_inline))

#define NEAR_PAIRS 8 /* pairs that read a page without a float copy of it */
#define NEAR_HINT  2

enum {
    VL = 16,        /* lanes */
    HALVES = 1,     /* vectors in a panel of 16 outputs */
    TILE_ROWS = 16, /* rows whose accumulators fit the registers, blocks of 32 */
    TILE_ROWS_K = 8,
    CHAINS = 4, /* rows whose dot products are interleaved */
    CHAINS_K = 8,
    FLOAT_PANELS = 4, /* panels of a float type at once, at most */
    FLOAT_ACCS = 16,  /* their accumulators */
    QK_PAIRS = 8,     /* score rows at once */
    PV_PAIRS = 4,
    NEAR_ACCS = 16,
    PV_VECS = 4,
    DELTA_COLS = 4, /* columns of a delta net's state at once */
    Q8_BIAS = 128,  /* what vi_dots_q8 wants signed weights raised by */
};

typedef __m512 vf;
typedef __m512i vi;

FN __mmask16 v_mask(int32_t n)
{
    return (__mmask16)(n >= VL ? 0xffffu : (1u << n) - 1u);
}
FN vf v_zero(void)
{
    return _mm512_setzero_ps();
}
FN vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
FN vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
FN void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
/* The first n lanes; others 0 / untouched. n >= VL means all. */
FN vf v_load_n(const float *p, int32_t n)
{
    return _mm512_maskz_loadu_ps(v_mask(n), p);
}
FN void v_store_n(float *p, vf x, int32_t n)
{
    _mm512_mask_storeu_ps(p, v_mask(n), x);
}
FN vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
FN vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
FN vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
FN vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
FN vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
FN vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
FN vf v_neg(vf a)
{
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32((int)0x80000000)));
}
/* a * b - c in even lanes, a * b + c in odd ones, fused. */
FN vf v_fmaddsub(vf a, vf b, vf c)
{
    return _mm512_fmaddsub_ps(a, b, c);
}
FN vf v_dup_even(vf a)
{
    return _mm512_moveldup_ps(a);
}
FN vf v_dup_odd(vf a)
{
    return _mm512_movehdup_ps(a);
}
/* a[0], b[0], a[1], b[1], ... of the first n (<= VL / 2) of both; other lanes 0. */
FN vf v_interleave(const float *a, const float *b, int32_t n)
{
    const __m512i even_odd =
        _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(v_load_n(a, n), even_odd, v_load_n(b, n));
}
FN vf v_round(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT);
}
/* Lanes: a < b ? x : y. */
FN vf v_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
FN vf v_float(vi a)
{
    return _mm512_cvtepi32_ps(a);
}
FN vi v_int(vf a)
{
    return _mm512_cvtps_epi32(a);
}
/* p * 2^n where x >= min or is NaN, else 0; p in [0.5, 2), n whole, in [-126, 127] where x >= min.
 */
FN vf v_scale_from(vf p, vf n, vf x, float min)
{
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, v_set1(min), _CMP_NLT_UQ), p, n);
}
/* 2^n for n in [-126, 127]. */
FN vf v_pow2_int(vi n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
FN vf v_pow2(vf n)
{
    return v_pow2_int(_mm512_cvtps_epi32(n));
}
FN vf v_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
/* f16 in the low half of each lane; the high half is 0. */
FN vf v_from_f16(vi x)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
}
FN vf v_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
FN void v_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
/* Round to nearest even; a NaN stays one, quiet. */
FN void v_store_bf16(uint16_t *p, vf x)
{
    const vi one = _mm512_set1_epi32(1), half = _mm512_set1_epi32(0x7fff);
    vi u = _mm512_castps_si512(x), top = _mm512_srli_epi32(u, 16);
    vi even = _mm512_add_epi32(_mm512_add_epi32(u, half), _mm512_and_si512(top, one));
    vi r = _mm512_mask_or_epi32(_mm512_srli_epi32(even, 16), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                                top, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(r));
}
FN vi vi_zero(void)
{
    return _mm512_setzero_si512();
}
FN vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
FN vi vi_set1_8(int x)
{
    return _mm512_set1_epi8((char)x);
}
FN vi vi_load(const void *p)
{
    return _mm512_loadu_si512(p);
}
FN vi vi_load1(const void *p) /* 4 bytes to every lane */
{
    int32_t x;
    memcpy(&x, p, sizeof(x));
    return _mm512_set1_epi32(x);
}
FN vi vi_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
FN vi vi_sub(vi a, vi b)
{
    return _mm512_sub_epi32(a, b);
}
FN vi vi_mul(vi a, vi b)
{
    return _mm512_mullo_epi32(a, b);
}
FN vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
FN vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}
FN vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
#define vi_shl(a, n)   _mm512_slli_epi32((a), (n))
#define vi_shr(a, n)   _mm512_srli_epi32((a), (n))
#define vi_sra(a, n)   _mm512_srai_epi32((a), (n))
#define vi_shl16(a, n) _mm512_slli_epi16((a), (n))
FN vi vi_sub16(vi a, vi b)
{
    return _mm512_sub_epi16(a, b);
}
FN vi vi_mul16(vi a, vi b) /* low halves of the products */
{
    return _mm512_mullo_epi16(a, b);
}
FN vi vi_mulhi_u16(vi a, vi b)
{
    return _mm512_mulhi_epu16(a, b);
}
FN vi vi_add8(vi a, vi b)
{
    return _mm512_add_epi8(a, b);
}
FN vi vi_sub8(vi a, vi b)
{
    return _mm512_sub_epi8(a, b);
}
/* 16 bytes as a table, and what it has for each byte (0..15) of x. */
FN vi vi_table(const void *p)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
}
FN vi vi_lookup(vi table, vi x)
{
    return _mm512_shuffle_epi8(table, x);
}
/* table[idx] of each lane. */
FN vi vi_gather(const uint32_t *table, vi idx)
{
    return _mm512_i32gather_epi32(idx, table, 4);
}
/* Bytes of 0 or 0xff from bits 0..3 (high: 4..7) of each lane; bits from 8 on hold anything. */
FN vi vi_mask4(vi bits, const int high)
{
    const vi masks =
        _mm512_setr_epi32(0, 0xff, 0xff00, 0xffff, 0xff0000, 0xff00ff, 0xffff00, 0xffffff,
                          (int)0xff000000, (int)0xff0000ff, (int)0xff00ff00, (int)0xff00ffff,
                          (int)0xffff0000, (int)0xffff00ff, (int)0xffffff00, -1);
    return _mm512_permutexvar_epi32(high ? _mm512_srli_epi32(bits, 4) : bits, masks);
}
FN vi vi_shr_by(vi a, int n)
{
    return _mm512_srlv_epi32(a, _mm512_set1_epi32(n));
}
/* Bits n, n + 1, ... of each byte to bits 4, 5, ...; other bits hold anything. */
FN vi vi_bit_to_4(vi a, int n)
{
    return _mm512_rolv_epi32(a, _mm512_set1_epi32(4 - n));
}
/* Bit n of each byte to bit 2; other bits hold anything. */
FN vi vi_bit_to_2(vi a, int n)
{
    return _mm512_rolv_epi32(a, _mm512_set1_epi32(2 - n));
}
FN vi vi_or_and(vi a, vi b, vi c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0xf8);
} /* a | b & c */
/* VL bytes to int32 lanes. */
FN vi vi_load_u8(const void *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
FN vi vi_load_s8(const void *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}
/* acc + the two int16 products of each lane. */
FN vi vi_dot16(vi acc, vi a, vi b)
{
    return _mm512_dpwssd_epi32(acc, a, b);
}

/* acc + 4 products: w's bytes times the 4 bytes at p. By hand, because gcc 12 does not fold the
 * broadcast into the instruction, and the register it takes instead is one that the sums need. */
FN vi vi_dp(vi acc, vi w, const int8_t *p)
{
    typedef int32_t __attribute__((may_alias, aligned(1))) word;
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const word *)p));
    return acc;
}
/* s[i] += sums of 4 n_words products of unsigned weights (n_words words of each lane) and the
 * signed activations of row i, at a + i * stride. `w_max` is the largest weight. The rows' chains
 * are interleaved: one alone would wait for the latency of each step. */
FN void vi_dots(vi s[], const vi *w, const int8_t *a, const size_t stride, const int n_rows,
                const int n_words, const int w_max)
{
    (void)w_max;
#pragma GCC unroll 8
    for (int g = 0; g < n_words; g++) {
#pragma GCC unroll 8
        for (int i = 0; i < n_rows; i++)
            s[i] = vi_dp(s[i], w[g], a + (size_t)i * stride + 4 * g);
    }
}
/* Q8_0 weights as the panel has them (plus 128), in the form that vi_dots_q8 wants; what a sum
 * starts from. */
FN vi vi_q8(vi w)
{
    return w;
}
FN vi vi_q8_start(int32_t a_sum)
{
    return _mm512_set1_epi32(-128 * a_sum);
}
FN void vi_dots_q8(vi s[], const vi *w, const int8_t *a, const size_t stride, const int n_rows)
{
    vi_dots(s, w, a, stride, n_rows, 8, 255);
}
/* 8 words, 16 values with the scale in each lane's low half and 16 with that in its high half:
 * isum[i] += both scales times their sums. Weights up to 15: the sums fit in 16 bits. */
FN void vi_scaled_dots(vi isum[], const vi w[8], const int8_t *a, const size_t stride,
                       const int n_rows, const vi scales)
{
    vi lo[8], hi[8];
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++)
        lo[i] = hi[i] = _mm512_setzero_si512();
    vi_dots(lo, w, a, stride, n_rows, 4, 15);
    vi_dots(hi, w + 4, a + 16, stride, n_rows, 4, 15);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        vi both = _mm512_ternarylogic_epi32(lo[i], _mm512_set1_epi32(0xffff),
                                            _mm512_slli_epi32(hi[i], 16), 0xea); /* a & b | c */
        isum[i] = _mm512_dpwssd_epi32(isum[i], both, scales);
    }
}
/* The same for weights in the form of vi_dots_q8; the caller subtracts Q8_BIAS times the scaled
 * sums of a. `one`: both scales of a lane are the same. */
FN void vi_scaled_dots_q8(vi isum[], const vi w[8], const int8_t *a, const size_t stride,
                          const int n_rows, const vi scales, const bool one)
{
    const vi first = vi_sra(vi_shl(scales, 16), 16), second = vi_sra(scales, 16);
    vi lo[8], hi[8];
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++)
        lo[i] = hi[i] = _mm512_setzero_si512();
    vi_dots(lo, w, a, stride, n_rows, one ? 8 : 4, 255);
    if (!one)
        vi_dots(hi, w + 4, a + 16, stride, n_rows, 4, 255);
#pragma GCC unroll 8
    for (int i = 0; i < n_rows; i++) {
        isum[i] = _mm512_add_epi32(isum[i], _mm512_mullo_epi32(lo[i], first));
        if (!one)
            isum[i] = _mm512_add_epi32(isum[i], _mm512_mullo_epi32(hi[i], second));
    }
}
/* Sum of n_words words in the form of vi_dots_q8 times a: the signed sum itself. */
FN vi vi_dot_signed(const vi *w, const int8_t *a, const int n_words)
{
    const vi bias = _mm512_set1_epi8((char)Q8_BIAS);
    vi s = _mm512_setzero_si512(), extra = s;
#pragma GCC unroll 8
    for (int g = 0; g < n_words; g++) {
        s = vi_dp(s, w[g], a + 4 * g);
        extra = vi_dp(extra, bias, a + 4 * g);
    }
    return _mm512_sub_epi32(s, extra);
}

/* Lane i with lane i + 8, then 4, 2, 1: the tree of 16 lanes. */
FN float v_tree16(const vf x[HALVES])
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x[0]), _mm512_extractf32x8_ps(x[0], 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    b = _mm_add_ss(b, _mm_movehdup_ps(b));
    return _mm_cvtss_f32(b);
}
/* out[i] = v_tree16 or the largest lane of x[i], for n (1 .. 8) vectors together: each shuffle
 * serves two of them. `op` is v_add or v_max. */
#define V_FOLD(name, op)                                                                           \
    FN void name(float *out, const vf *x, const int n)                                             \
    {                                                                                              \
        vf a[8], b[4], c[2];                                                                       \
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) a[i] = x[i < n ? i : 0];               \
        _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) b[i] =                                 \
            op(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x44),                                 \
               _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xee));                                \
        _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) c[i] =                                 \
            op(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),                                 \
               _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));                                \
        c[1] = n > 4 ? c[1] : c[0];                                                                \
        c[0] = op(_mm512_shuffle_ps(c[0], c[1], 0x44), _mm512_shuffle_ps(c[0], c[1], 0xee));       \
        c[0] = op(c[0], _mm512_movehdup_ps(c[0]));                                                 \
        float lane[VL];                                                                            \
        v_store(lane, c[0]);                                                                       \
        _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) out[i] = lane[i % 4 * 4 + i / 4 * 2];  \
    }
V_FOLD(v_trees, v_add)
V_FOLD(v_max_lanes, v_max)
/* Largest |x| of n floats (a multiple of 16), as bits. */
FN uint32_t v_amax_bits(const float *x, int n)
{
    vi m = _mm512_setzero_si512();
    for (int i = 0; i < n; i += 16)
        m = _mm512_max_epu32(
            m, _mm512_and_si512(_mm512_loadu_si512(x + i), _mm512_set1_epi32(0x7fffffff)));
    return _mm512_reduce_max_epu32(m);
}
/* 16 values to int8; returns their sum. */
FN int32_t v_quant16(int8_t *q, const float *x, float inv)
{
    __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inv)));
    _mm_storeu_si128((__m128i *)q, _mm512_cvtepi32_epi8(i));
    return _mm512_reduce_add_epi32(i);
}

#endif
