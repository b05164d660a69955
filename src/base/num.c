/*
 * base/num.c - locale-free number text and half-precision conversions.
 *
 * Decimal text goes through the C locale's strtod and snprintf whatever locale the embedding
 * program has set: the C locale object is made once. Any thread.
 */
#include "base/num.h"

#include "base/err.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Longest decimal number text taken; an exact double never needs more than 770 digits. */
#define NUM_TEXT_MAX 1088

static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void c_locale_make(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool num_parse_u64(str s, uint64_t *out)
{
    uint64_t v = 0;
    if (s.n == 0)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (!num_mul(v, 10, &v) || !num_add(v, (uint64_t)(s.p[i] - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

bool num_parse_i64(str s, int64_t *out)
{
    uint64_t v;
    bool negative = s.n > 0 && s.p[0] == '-';
    if (!num_parse_u64(negative ? str_slice(s, 1, s.n) : s, &v))
        return false;
    if (v > (uint64_t)INT64_MAX + (negative ? 1 : 0))
        return false;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

static size_t skip_digits(str s, size_t i)
{
    while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
        i++;
    return i;
}

/* -?(digits[.digits] | .digits)([eE][+-]?digits)? over the whole string. */
static bool is_decimal(str s)
{
    size_t i = s.n > 0 && s.p[0] == '-' ? 1 : 0;
    size_t from = i;
    i = skip_digits(s, i);
    size_t n_digits = i - from;
    if (i < s.n && s.p[i] == '.') {
        from = ++i;
        i = skip_digits(s, i);
        n_digits += i - from;
    }
    if (n_digits == 0)
        return false;
    if (i < s.n && (s.p[i] == 'e' || s.p[i] == 'E')) {
        i++;
        if (i < s.n && (s.p[i] == '+' || s.p[i] == '-'))
            i++;
        from = i;
        i = skip_digits(s, i);
        if (i == from)
            return false;
    }
    return i == s.n;
}

bool num_parse_f64(str s, double *out)
{
    char z[NUM_TEXT_MAX];
    if (s.n >= sizeof z || !is_decimal(s))
        return false;
    pthread_once(&c_locale_once, c_locale_make);
    if (!c_locale)
        return false;
    memcpy(z, s.p, s.n);
    z[s.n] = 0;
    double v = strtod_l(z, NULL, c_locale);
    if (!isfinite(v))
        return false;
    *out = v;
    return true;
}

bool num_parse_bytes(str s, uint64_t *out)
{
    unsigned shift = 0;
    if (s.n > 1) {
        switch (s.p[s.n - 1]) {
        case 'k':
        case 'K': shift = 10; break;
        case 'm':
        case 'M': shift = 20; break;
        case 'g':
        case 'G': shift = 30; break;
        case 't':
        case 'T': shift = 40; break;
        default: break;
        }
    }
    uint64_t v;
    if (!num_parse_u64(shift ? str_slice(s, 0, s.n - 1) : s, &v))
        return false;
    return num_mul(v, (uint64_t)1 << shift, out);
}

size_t num_format_f64(double v, char out[32])
{
    if (isnan(v)) {
        memcpy(out, "nan", 4);
        return 3;
    }
    if (isinf(v)) {
        memcpy(out, v < 0 ? "-inf" : "inf", v < 0 ? 5 : 4);
        return v < 0 ? 4 : 3;
    }
    pthread_once(&c_locale_once, c_locale_make);
    locale_t old = c_locale ? uselocale(c_locale) : (locale_t)0;
    /* 15 digits always survive text -> double -> text, so a shorter text is among them after %g
     * drops the zeros; subnormals have fewer digits and are tried from one. */
    int digits = fabs(v) < DBL_MIN ? 1 : 15;
    int n = 0;
    for (; digits <= 17; digits++) {
        n = snprintf(out, 32, "%.*g", digits, v);
        if (strtod(out, NULL) == v)
            break;
    }
    if (old)
        uselocale(old);
    return (size_t)n;
}

const char *num_format_bytes(uint64_t n, char out[NUM_BYTES_MAX])
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    if (n < 1000) {
        (void)snprintf(out, NUM_BYTES_MAX, "%u bytes", (unsigned)n);
        return out;
    }
    double v = (double)n / 1e3;
    size_t i = 0;
    /* From where it would be shown as 1000. */
    for (; v >= (i == 0 ? 999.5 : 999.95) && i + 1 < T9_COUNT(units); i++)
        v /= 1e3;
    (void)snprintf(out, NUM_BYTES_MAX, "%.*f %s", i == 0 ? 0 : 1, v, units[i]);
    return out;
}

float num_f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exp = h >> 10 & 0x1F;
    uint32_t frac = h & 0x3FF;
    if (exp == 0) {
        /* Zero or subnormal: frac * 2^-24 is exact in single precision. */
        float f = (float)frac * 0x1p-24f;
        return num_f32_from_bits(sign | num_bits_from_f32(f));
    }
    if (exp == 0x1F)
        return num_f32_from_bits(sign | 0x7F800000u | frac << 13);
    return num_f32_from_bits(sign | (exp + 112) << 23 | frac << 13);
}

uint16_t num_f16_from_f32(float f)
{
    uint32_t x = num_bits_from_f32(f);
    uint32_t sign = x >> 16 & 0x8000;
    x &= 0x7FFFFFFF;
    if (x > 0x7F800000) {
        uint32_t payload = x >> 13 & 0x3FF;
        return (uint16_t)(sign | 0x7C00 | (payload ? payload : 0x200));
    }
    if (x >= 0x47800000) /* 65536 and up, infinity */
        return (uint16_t)(sign | 0x7C00);
    if (x < 0x38800000) {
        /* Below 2^-14 the result is subnormal with a step of 2^-24, which is the step of single
         * precision at 0.5: the addition rounds to nearest even at the right bit. */
        float shifted = num_f32_from_bits(x) + 0.5f;
        return (uint16_t)(sign | (num_bits_from_f32(shifted) - 0x3F000000u));
    }
    /* Round to nearest even at bit 13; a carry into the exponent is right, up to infinity. */
    x += 0xFFF + (x >> 13 & 1);
    return (uint16_t)(sign | (x - 0x38000000u) >> 13);
}

uint16_t num_bf16_from_f32(float f)
{
    uint32_t x = num_bits_from_f32(f);
    if ((x & 0x7FFFFFFF) > 0x7F800000)
        return (uint16_t)(x >> 16 | 0x40);
    x += 0x7FFF + (x >> 16 & 1);
    return (uint16_t)(x >> 16);
}

bool num_all_finite(const float *v, size_t n)
{
    /* One added to an exponent of all ones runs into the sign's place, and no further: two numbers
     * at a time fit a word, which matters for rows of 200,000 of them. */
    const uint64_t exponents = 0x7F8000007F800000u, ones = 0x0080000000800000u;
    uint64_t carried = 0, two;
    for (; n >= 2; v += 2, n -= 2) {
        memcpy(&two, v, sizeof two);
        carried |= (two & exponents) + ones;
    }
    two = n > 0 ? num_bits_from_f32(*v) : 0;
    carried |= (two & exponents) + ones;
    return (carried & 0x8000000080000000u) == 0;
}
