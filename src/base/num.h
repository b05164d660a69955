/*
 * base/num.h - checked size arithmetic, locale-free number parsing, half-precision conversions.
 */
#ifndef T9_BASE_NUM_H
#define T9_BASE_NUM_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline bool num_add(uint64_t a, uint64_t b, uint64_t *out) /* false on overflow */
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool num_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
/* Whole string must be the number; false otherwise. Decimal only, no locale. */
bool num_parse_i64(str s, int64_t *out);
bool num_parse_u64(str s, uint64_t *out);
bool num_parse_f64(str s, double *out);
/* Bytes with an optional suffix K, M, G, T (powers of 1024): "512M". */
bool num_parse_bytes(str s, uint64_t *out);
enum { NUM_BYTES_MAX = 16 };
/* For people, in powers of 1000: "999 bytes", "737 kB", "5.2 MB", "1.4 GB". Returns out. */
const char *num_format_bytes(uint64_t n, char out[NUM_BYTES_MAX]);
/* Shortest text that reads back as the same double ("0.1", "1e+300"); never uses the locale. */
size_t num_format_f64(double v, char out[32]);

static inline int num_hex_digit(char c) /* its value; -1 when it is none */
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static inline float num_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t num_bits_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
/* IEEE half <-> single, exact one way, round-to-nearest-even the other (what F16C and NEON do). */
float num_f32_from_f16(uint16_t h);
uint16_t num_f16_from_f32(float f);
static inline float num_f32_from_bf16(uint16_t h)
{
    return num_f32_from_bits((uint32_t)h << 16);
}
uint16_t num_bf16_from_f32(float f); /* round to nearest even, NaN stays NaN */
/* Whether none of v[n] is an infinity or NaN. */
bool num_all_finite(const float *v, size_t n);

#endif
