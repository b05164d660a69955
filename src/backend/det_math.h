/*
 * backend/det_math.h - exp, tanh, silu, gelu and sincos with the same bits on every machine.
 *
 * Only IEEE operations whose result is fixed are used: add, multiply, divide, fused multiply-add,
 * round to nearest even. So the SIMD kernels repeat these functions lane by lane, with the
 * constants below, and get equal bits; libm's functions differ between versions and CPUs. Within 2
 * units in the last place of the exact value where docs/numerics.md says so. NaN in, NaN out. Any
 * thread.
 */
#ifndef T9_BACKEND_DET_MATH_H
#define T9_BACKEND_DET_MATH_H

#include "base/num.h"

#include <math.h>
#include <stdint.h>

/* exp: below MIN the result is 0, above MAX it is +inf (2^128 would not be a finite scale). */
#define DET_EXP_MIN    (-87.0f)
#define DET_EXP_MAX    88.375f
#define DET_EXP_LOG2E  1.44269504f
#define DET_EXP_LN2_HI 0.693145751953125f /* 16 bits: n * LN2_HI is exact */
#define DET_EXP_LN2_LO 1.42860682e-06f
/* exp(r) = 1 + r + r^2 * (C2 + C3 r + C4 r^2 + C5 r^3 + C6 r^4) for |r| <= ln2/2, interpolated at
 * Chebyshev nodes; relative error 1e-8. */
#define DET_EXP_C2 0.5f
#define DET_EXP_C3 0.166665768f
#define DET_EXP_C4 0.0416665544f
#define DET_EXP_C5 0.00836320297f
#define DET_EXP_C6 0.00139262135f

/* gelu(x) = x / (1 + exp(-2u)), 2u = x * (A + B x^2): the tanh form without a tanh. */
#define DET_GELU_A 1.59576912f   /* 2 sqrt(2/pi) */
#define DET_GELU_B 0.0713548163f /* A * 0.044715 */

/* tanh(u) = m / (m + 2), m = exp(2u) - 1; beyond MAX = 2u it is 1 to the last bit. */
#define DET_TANH_MAX 40.0f

/* gpt-oss: g * sigmoid(ALPHA g) * (u + 1) with g <= LIMIT, |u| <= LIMIT. */
#define DET_SWIGLU_ALPHA 1.702f
#define DET_SWIGLU_LIMIT 7.0f

/* exp(x) = (1 + result) * *scale, for finite x between MIN and MAX. */
static inline float det_exp_part(float x, float *scale)
{
    float n = rintf(x * DET_EXP_LOG2E);
    float r = fmaf(n, -DET_EXP_LN2_HI, x);
    r = fmaf(n, -DET_EXP_LN2_LO, r);
    float p = fmaf(DET_EXP_C6, r, DET_EXP_C5);
    p = fmaf(p, r, DET_EXP_C4);
    p = fmaf(p, r, DET_EXP_C3);
    p = fmaf(p, r, DET_EXP_C2);
    *scale = num_f32_from_bits((uint32_t)((int32_t)n + 127) << 23);
    return fmaf(p, r * r, r);
}

static inline float det_exp(float x)
{
    if (x < DET_EXP_MIN)
        return 0.0f;
    if (x > DET_EXP_MAX)
        return INFINITY;
    if (x != x)
        return x;
    float scale, p = det_exp_part(x, &scale) + 1.0f;
    return p * scale;
}

static inline float det_tanh(float u)
{
    if (u != u)
        return u;
    float scale, two_u = u + u;
    two_u = two_u > DET_TANH_MAX ? DET_TANH_MAX : two_u < -DET_TANH_MAX ? -DET_TANH_MAX : two_u;
    float p = det_exp_part(two_u, &scale);
    float m = fmaf(p, scale, scale - 1.0f);
    return m / (m + 2.0f);
}

static inline float det_sigmoid(float x)
{
    return 1.0f / (1.0f + det_exp(-x));
}

static inline float det_silu(float x)
{
    return x / (1.0f + det_exp(-x));
}

static inline float det_gelu_tanh(float x)
{
    float two_u = x * fmaf(DET_GELU_B, x * x, DET_GELU_A);
    return x / (1.0f + det_exp(-two_u));
}

static inline float det_swiglu_clamped(float gate, float up)
{
    float g = gate > DET_SWIGLU_LIMIT ? DET_SWIGLU_LIMIT : gate; /* NaN stays */
    float u = up > DET_SWIGLU_LIMIT ? DET_SWIGLU_LIMIT : up;
    u = u < -DET_SWIGLU_LIMIT ? -DET_SWIGLU_LIMIT : u;
    return g / (1.0f + det_exp(-(DET_SWIGLU_ALPHA * g))) * (u + 1.0f);
}

/* ln(1 + e^x), and x above 20: max(x, 0) + ln(1 + t), t = e^-|x|. With z = t / (2 + t) <= 1/3,
 * ln(1 + t) = 2 (z + z^3 / 3 + z^5 / 5 + ...), in double. */
static inline float det_softplus(float x)
{
    if (x > 20.0f)
        return x;
    double t = (double)det_exp(x > 0 ? -x : x), z = t / (2.0 + t), zz = z * z, p = 1.0 / 21.0;
    p = p * zz + 1.0 / 19.0;
    p = p * zz + 1.0 / 17.0;
    p = p * zz + 1.0 / 15.0;
    p = p * zz + 1.0 / 13.0;
    p = p * zz + 1.0 / 11.0;
    p = p * zz + 1.0 / 9.0;
    p = p * zz + 1.0 / 7.0;
    p = p * zz + 1.0 / 5.0;
    p = p * zz + 1.0 / 3.0;
    p = p * zz + 1.0;
    return (float)((x > 0 ? (double)x : 0.0) + 2.0 * (z * p));
}

/* Sine and cosine of `angle` (radians), computed in double and rounded to float: exact to half a
 * unit in the last place for |angle| up to about 10^7, the same bits everywhere for all finite
 * ones. */
void det_sincos(float angle, float *sin_out, float *cos_out);

#endif
