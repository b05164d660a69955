/* Tests of base/num.c: parsing, formatting under foreign locales, half precision against hardware.
 */
#include "base/num.h"

#include "base/err.h"

#include "lib/t9test.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#if defined(__x86_64__)
#    include <cpuid.h>
#    include <immintrin.h>
#endif

static void test_parse_int(void **state)
{
    (void)state;
    int64_t i = 7;
    uint64_t u = 7;
    assert_true(num_parse_u64(STR("18446744073709551615"), &u));
    assert_true(u == UINT64_MAX);
    assert_false(num_parse_u64(STR("18446744073709551616"), &u));
    assert_false(num_parse_u64(STR("-1"), &u));
    assert_false(num_parse_u64(STR(""), &u));
    assert_false(num_parse_u64(STR("1 "), &u));
    assert_false(num_parse_u64(STR("+1"), &u));
    assert_true(num_parse_i64(STR("-9223372036854775808"), &i));
    assert_true(i == INT64_MIN);
    assert_false(num_parse_i64(STR("-9223372036854775809"), &i));
    assert_true(num_parse_i64(STR("9223372036854775807"), &i));
    assert_false(num_parse_i64(STR("9223372036854775808"), &i));
    assert_false(num_parse_i64(STR("-"), &i));
    assert_false(num_parse_i64(STR("--1"), &i));
    assert_true(num_parse_bytes(STR("512M"), &u));
    assert_true(u == 512u << 20);
    assert_true(num_parse_bytes(STR("3t"), &u));
    assert_true(u == (uint64_t)3 << 40);
    assert_true(num_parse_bytes(STR("9"), &u) && u == 9);
    assert_false(num_parse_bytes(STR("K"), &u));
    assert_false(num_parse_bytes(STR("18446744073709551615K"), &u));
    assert_false(num_parse_bytes(STR("1.5G"), &u));
}

static void check_f64(const char *text, bool ok, double want)
{
    double v = 42;
    assert_int_equal(num_parse_f64(str_from(text), &v), ok);
    if (ok && v != want)
        fail_msg("%s gives %g", text, v);
}

static void test_parse_f64(void **state)
{
    (void)state;
    check_f64("0.1", true, 0.1);
    check_f64("-.5", true, -0.5);
    check_f64("5.", true, 5);
    check_f64("1e-400", true, 0);
    check_f64("4.9e-324", true, 4.9e-324);
    check_f64("1E+3", true, 1000);
    check_f64("1e999", false, 0);
    check_f64("", false, 0);
    check_f64(".", false, 0);
    check_f64("1e", false, 0);
    check_f64("0x10", false, 0);
    check_f64("nan", false, 0);
    check_f64("inf", false, 0);
    check_f64(" 1", false, 0);
    check_f64("1,5", false, 0);
    char big[1200];
    memset(big, '1', sizeof big);
    double v;
    assert_false(num_parse_f64((str){big, sizeof big}, &v));
    assert_true(num_parse_f64((str){big, 300}, &v));
}

static void check_round_trip(double v)
{
    char z[32];
    double back;
    size_t n = num_format_f64(v, z);
    assert_int_equal(n, strlen(z));
    if (!num_parse_f64((str){z, n}, &back) || back != v)
        fail_msg("%.17g became %s", v, z);
}

static void check_text(double v, const char *want)
{
    char z[32];
    assert_int_equal(num_format_f64(v, z), strlen(want));
    assert_string_equal(z, want);
}

static void test_format_f64(void **state)
{
    (void)state;
    check_text(0.1, "0.1");
    check_text(1e300, "1e+300");
    check_text(-0.0, "-0");
    check_text(1.0 / 3.0, "0.3333333333333333");
    check_text(5e-324, "5e-324");
    check_text(DBL_MAX, "1.7976931348623157e+308");
    check_text(100, "100");
    check_text(HUGE_VAL, "inf");
    check_text(-HUGE_VAL, "-inf");
    check_text((double)NAN, "nan");
    uint64_t seed = 1;
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = test_random(&seed);
        double v;
        memcpy(&v, &bits, sizeof v);
        if (isfinite(v))
            check_round_trip(v);
    }
}

/* A locale with a decimal comma changes nothing. */
static void test_foreign_locale(void **state)
{
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
    bool set = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !set; i++)
        set = setlocale(LC_ALL, names[i]) != NULL;
    if (!set)
        skip();
    check_text(0.5, "0.5");
    check_f64("0.5", true, 0.5);
    setlocale(LC_ALL, "C");
}

static void test_f16_identity(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        if (num_f16_from_f32(num_f32_from_f16((uint16_t)h)) != h)
            fail_msg("half %04x does not go round", h);
    }
    assert_true(num_f32_from_f16(0x3C00) == 1.0f);
    assert_true(num_f32_from_f16(0x0001) == 0x1p-24f);
    assert_true(num_f32_from_f16(0xFBFF) == -65504.0f);
    assert_true(isinf(num_f32_from_f16(0x7C00)));
    assert_true(isnan(num_f32_from_f16(0x7E00)));
    assert_int_equal(num_f16_from_f32(65519.996f), 0x7BFF);
    assert_int_equal(num_f16_from_f32(65520.0f), 0x7C00);
    assert_int_equal(num_f16_from_f32(0x1p-25f), 0);
    assert_int_equal(num_f16_from_f32(0x1.000002p-25f), 1);
    assert_int_equal(num_f16_from_f32(-0x3p-25f), 0x8002);
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) static uint16_t f16_by_hardware(float f)
{
    return (uint16_t)_mm_extract_epi16(
        _mm_cvtps_ph(_mm_set_ss(f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 0);
}

/* All finite singles at a stride that is coprime to every power of two, and all rounding borders.
 */
static void test_f16_equals_hardware(void **state)
{
    (void)state;
    /* Leaf 1, ECX bit 29 is F16C; clang 14's builtin has no name for it. */
    unsigned a, b, c = 0, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 29 & 1))
        skip();
    for (uint64_t u = 0; u < (uint64_t)1 << 32; u += 211) {
        float f = num_f32_from_bits((uint32_t)u);
        if (isnan(f))
            continue;
        if (num_f16_from_f32(f) != f16_by_hardware(f))
            fail_msg("%08x", (unsigned)u);
    }
    for (uint32_t h = 0; h < 0x7C00; h++) {
        uint32_t mid = num_bits_from_f32(
            (num_f32_from_f16((uint16_t)h) + num_f32_from_f16((uint16_t)(h + (h < 0x7BFF)))) / 2);
        for (uint32_t u = mid - (mid > 2 ? 2 : 0); u <= mid + 2; u++) {
            float f = num_f32_from_bits(u);
            if (num_f16_from_f32(f) != f16_by_hardware(f))
                fail_msg("%08x", (unsigned)u);
        }
    }
}
#else
static void test_f16_equals_hardware(void **state)
{
    (void)state;
    skip();
}
#endif

static void test_bf16(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = num_f32_from_bf16((uint16_t)h);
        uint16_t back = num_bf16_from_f32(f);
        if (isnan(f) ? !isnan(num_f32_from_bf16(back)) : back != h)
            fail_msg("bf16 %04x does not go round", h);
    }
    assert_int_equal(num_bf16_from_f32(num_f32_from_bits(0x3F808000)), 0x3F80); /* tie, even */
    assert_int_equal(num_bf16_from_f32(num_f32_from_bits(0x3F818000)), 0x3F82);
    assert_int_equal(num_bf16_from_f32(num_f32_from_bits(0x3F808001)), 0x3F81);
    assert_int_equal(num_bf16_from_f32(FLT_MAX), 0x7F80);
    assert_true(isnan(num_f32_from_bf16(num_bf16_from_f32(num_f32_from_bits(0x7F800001)))));
}

static void test_hex_digit(void **state)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    (void)state;
    for (int c = 0; c < 256; c++) {
        const char *at = c ? strchr(digits, c) : NULL;
        int place = at ? (int)(at - digits) : -1;
        assert_int_equal(num_hex_digit((char)c), place > 15 ? place - 6 : place);
    }
}

static void test_format_bytes(void **state)
{
    static const struct {
        uint64_t n;
        const char *text;
    } cases[] = {
        {0, "0 bytes"},         {999, "999 bytes"},        {1000, "1 kB"},
        {737280, "737 kB"},     {999499, "999 kB"},        {999500, "1.0 MB"},
        {5242880, "5.2 MB"},    {999949999, "999.9 MB"},   {999950000, "1.0 GB"},
        {1400000000, "1.4 GB"}, {3500000000000, "3.5 TB"}, {UINT64_MAX, "18446744.1 TB"},
    };
    char out[NUM_BYTES_MAX];
    (void)state;
    for (size_t i = 0; i < T9_COUNT(cases); i++)
        assert_string_equal(num_format_bytes(cases[i].n, out), cases[i].text);
}

static void test_all_finite(void **state)
{
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float v[37];
    (void)state;
    for (size_t i = 0; i < T9_COUNT(v); i++)
        v[i] = i % 2 ? -FLT_MAX : 1e-45f;
    assert_true(num_all_finite(v, 0));
    for (size_t i = 0; i < T9_COUNT(v); i++) {
        assert_true(num_all_finite(v, T9_COUNT(v)));
        for (size_t k = 0; k < T9_COUNT(bad); k++) {
            float was = v[i];
            v[i] = bad[k];
            assert_false(num_all_finite(v, T9_COUNT(v)));
            assert_true(num_all_finite(v, i));
            v[i] = was;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_int),    cmocka_unit_test(test_parse_f64),
        cmocka_unit_test(test_format_f64),   cmocka_unit_test(test_foreign_locale),
        cmocka_unit_test(test_f16_identity), cmocka_unit_test(test_f16_equals_hardware),
        cmocka_unit_test(test_bf16),         cmocka_unit_test(test_hex_digit),
        cmocka_unit_test(test_all_finite),   cmocka_unit_test(test_format_bytes),
    };
    return cmocka_run_group_tests_name("num", tests, NULL, NULL);
}
