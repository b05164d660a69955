/*
 * Tests of gguf/dtype.c and gguf/dequant.c. The golden values were computed once by the format's
 * reference implementation in numpy over 512 values of pseudo-random blocks (the high bytes of
 * test_random) whose results are all finite: an FNV-1a hash of all results and the bits of three.
 */
#include "gguf/dtype.h"

#include "base/mem.h"
#include "base/num.h"
#include "lib/quantize.h"
#include "lib/t9test.h"

#include <math.h>

#define N_VALUES 512

static const struct {
    uint32_t dtype;
    uint64_t seed, hash;
    uint32_t bits[3]; /* of values 0, 77, 511 */
} golden[] = {
    {DTYPE_F32, 4, 0xC23E55228DE60694u, {0x7DDBE46E, 0x700F0708, 0x803CD72B}},
    {DTYPE_BF16, 4, 0x4C4F58E17E37C8E0u, {0xE46E0000, 0xC0E10000, 0x4EB40000}},
    {DTYPE_Q4_0, 3, 0x1B54851C891F16CCu, {0xBF63A000, 0x3EB35800, 0x3A181000}},
    {DTYPE_Q4_1, 3, 0x52B7802EE97B3BC1u, {0xBFC71190, 0xC3768018, 0x3F92CAC0}},
    {DTYPE_Q5_0, 1, 0x3760D123E2232C89u, {0x41D22000, 0xC45BC000, 0xC737C000}},
    {DTYPE_Q5_1, 1, 0x2B995E9D097F25E8u, {0x463E5BD7, 0xC7B0B7FF, 0xC1093EC3}},
    {DTYPE_Q8_0, 1, 0xB886BB4701B39EBDu, {0x41522000, 0xBE3E6D00, 0xC7436900}},
    {DTYPE_Q2_K, 1, 0x171B8BA942646636u, {0x46059A53, 0x45CFDDF2, 0xC6EFFF80}},
    {DTYPE_Q3_K, 1, 0x4BB2A794A208D9CCu, {0xC6D54C00, 0x461B2000, 0xC0AC8600}},
    {DTYPE_Q4_K, 1, 0x55659220F6B3479Cu, {0xC7D7A919, 0xC8E8CE91, 0x448B593B}},
    {DTYPE_Q5_K, 1, 0x678E5712D6796EFDu, {0xC7DA0462, 0xC8E944C3, 0x479B92D4}},
    {DTYPE_Q6_K, 1, 0x7BB3A26E63D6FE23u, {0x49441B20, 0x495D7C00, 0xC3167800}},
    {DTYPE_IQ4_NL, 3, 0xAA78C1E05B0AF9D3u, {0xC13C8080, 0x409B0EC0, 0x3C037880}},
    {DTYPE_IQ4_XS, 1, 0x769F050071EF7400u, {0x44256430, 0x457792F4, 0x3DB7F480}},
    {DTYPE_MXFP4, 1, 0x1E85D045142698ACu, {0xC9800000, 0x20800000, 0x10400000}},
    {DTYPE_IQ1_S, 1, 0x47ECC7686ABC6A0Bu, {0x3E522000, 0x4113BE80, 0x3DD6AE80}},
    {DTYPE_IQ1_M, 1, 0xC6EA6D6CF35A4C42u, {0xBD622900, 0xBDB1B280, 0x3F3ED880}},
    {DTYPE_IQ2_XXS, 1, 0x2C63AD15B0BB778Au, {0xC35C9718, 0x40A42900, 0xBAAB3200}},
    {DTYPE_IQ2_XS, 1, 0x86DC6DA1BF6C374Au, {0xC1F98600, 0xC09D9800, 0xC9F26200}},
    {DTYPE_IQ2_S, 1, 0x58746599C945860Bu, {0xC0A42900, 0x431F07B8, 0x46B98C00}},
    {DTYPE_IQ3_XXS, 1, 0x74E2BAE3B754E9B4u, {0x4209E500, 0x43C77460, 0x46153000}},
    {DTYPE_IQ3_S, 1, 0xD47DAAA5CB56514Bu, {0xC2A0E080, 0x43A00E60, 0xBF12CE00}},
    {DTYPE_TQ1_0, 1, 0x3AE3FF2A26ABF2F5u, {0x80000000, 0xC60A6000, 0x38F46000}},
    {DTYPE_TQ2_0, 1, 0xADF8D173612C165Du, {0x00000000, 0xC0F70000, 0x80000000}},
    {DTYPE_NVFP4, 1, 0x92F53C25643F464Bu, {0x3C900000, 0xBD840000, 0xBE800000}},
};

static uint64_t fnv(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 0x100000001B3u;
    return h;
}

static void test_golden(void **state)
{
    (void)state;
    static uint8_t raw[N_VALUES * 4 + 1];
    float y[N_VALUES];
    for (size_t i = 0; i < T9_COUNT(golden); i++) {
        uint64_t seed = golden[i].seed;
        /* One byte off alignment: blocks may lie anywhere. */
        uint64_t n_bytes = dtype_row_bytes(golden[i].dtype, N_VALUES);
        for (uint64_t k = 0; k < n_bytes; k++)
            raw[1 + k] = (uint8_t)(test_random(&seed) >> 56);
        assert_int_equal(dtype_dequantize_row(golden[i].dtype, raw + 1, y, N_VALUES, NULL),
                         T9_STATUS_OK);
        const size_t at[3] = {0, 77, 511};
        for (int k = 0; k < 3; k++) {
            if (num_bits_from_f32(y[at[k]]) != golden[i].bits[k])
                fail_msg("%s: value %zu is %08x", gguf_dtype_name(golden[i].dtype), at[k],
                         num_bits_from_f32(y[at[k]]));
        }
        if (fnv(y, sizeof y) != golden[i].hash)
            fail_msg("%s: other values", gguf_dtype_name(golden[i].dtype));
    }
}

static void test_table(void **state)
{
    (void)state;
    assert_string_equal(gguf_dtype_name(DTYPE_Q4_K), "Q4_K");
    assert_string_equal(gguf_dtype_name(9999), "?");
    assert_null(gguf_dtype_get(43));
    assert_null(gguf_dtype_get(UINT32_MAX));
    assert_true(gguf_dtype_get(4)->removed);
    assert_int_equal(gguf_dtype_by_name("q6_k")->id, 14);
    assert_null(gguf_dtype_by_name("Q9"));
    assert_int_equal(dtype_row_bytes(DTYPE_Q4_K, 512), 288);
    assert_int_equal(dtype_row_bytes(DTYPE_Q4_K, 511), 0);
    assert_int_equal(dtype_row_bytes(31, 32), 0);
    assert_true(dtype_row_bytes(DTYPE_F64, UINT64_MAX) == 0);
    struct t9_err err;
    float y[256];
    uint8_t raw[256] = {0};
    assert_int_equal(dtype_dequantize_row(DTYPE_Q8_K, raw, y, 256, &err), T9_STATUS_UNSUPPORTED);
    assert_string_equal(err.msg, "type Q8_K (15) cannot be dequantised");
    assert_int_equal(dtype_dequantize_row(4, raw, y, 256, &err), T9_STATUS_UNSUPPORTED);
    assert_int_equal(dtype_dequantize_row(77, raw, y, 256, &err), T9_STATUS_UNSUPPORTED);
    assert_int_equal(dtype_dequantize_row(DTYPE_Q4_0, raw, y, 33, &err), T9_STATUS_INVALID);
}

static void test_half(void **state)
{
    (void)state;
    const uint16_t h[4] = {0x3C00, 0xC000, 0x0001, 0x7BFF};
    float y[4];
    assert_int_equal(dtype_dequantize_row(DTYPE_F16, h, y, 4, NULL), T9_STATUS_OK);
    assert_true(y[0] == 1 && y[1] == -2 && y[2] == 0x1p-24f && y[3] == 65504);
}

/* One and two bits in order, by hand: the differential test has nothing to compare them with. */
static void test_few_bits(void **state)
{
    (void)state;
    struct block_q1_0 b1 = {.d = 0x4000, .qs = {0x05, [15] = 0x80}}; /* d = 2 */
    struct block_q2_0 b2 = {.d = 0xB800, .qs = {0xE4, [15] = 0xC0}}; /* d = -1/2 */
    float y[128];
    assert_int_equal(dtype_dequantize_row(DTYPE_Q1_0, &b1, y, 128, NULL), T9_STATUS_OK);
    for (int e = 0; e < 128; e++)
        assert_true(y[e] == (e == 0 || e == 2 || e == 127 ? 2.0f : -2.0f));
    assert_int_equal(dtype_dequantize_row(DTYPE_Q2_0, &b2, y, 64, NULL), T9_STATUS_OK);
    const float first[4] = {0.5f, 0, -0.5f, -1};
    for (int e = 0; e < 64; e++)
        assert_true(y[e] == (e < 4 ? first[e] : e == 63 ? -1.0f : 0.5f));
}

/* The scales that are no f16, at their corners; the codebooks' codes stay within their tables. */
static void test_scale_formats(void **state)
{
    (void)state;
    assert_true(dtype_e8m0_half(0) == 0x1p-128f);
    assert_true(dtype_e8m0_half(1) == 0x1p-127f);
    assert_true(dtype_e8m0_half(128) == 1);
    assert_true(dtype_e8m0_half(255) == 0x1p127f);
    assert_true(dtype_ue4m3_half(0) == 0);
    assert_true(dtype_ue4m3_half(1) == 0x1p-10f);
    assert_true(dtype_ue4m3_half(7) == 0x7p-10f);
    assert_true(dtype_ue4m3_half(8) == 0x1p-7f);
    assert_true(dtype_ue4m3_half(0x38) == 0.5f);
    assert_true(dtype_ue4m3_half(0x7e) == 224);
    assert_true(dtype_ue4m3_half(0x7f) == 0); /* NaN of the format: such a block is zeros */
    assert_true(dtype_ue4m3_half(0xff) == 240 && dtype_ue4m3_half(0xb8) == 0.5f);
    assert_int_equal(iq_signs(0), 0);
    assert_int_equal(iq_signs(1), 0x81);
    assert_int_equal(iq_signs(0x7f), 0xff);
    assert_int_equal(iq_signs(0x55), 0x55);
    const struct {
        const uint32_t *grid;
        int n;
        bool eight;
    } grids[] = {{iq2_xxs_grid, 256, true}, {iq2_xs_grid, 512, true},   {iq2_s_grid, 1024, true},
                 {iq1_grid, 2048, true},    {iq3_xxs_grid, 256, false}, {iq3_s_grid, 512, false}};
    for (size_t g = 0; g < T9_COUNT(grids); g++) {
        for (int i = 0; i < grids[g].n; i++) {
            uint32_t x = grids[g].grid[i];
            if (grids[g].eight) /* no code 3 */
                assert_int_equal((x & x >> 1 & 0x05050505u) | (x & 0xf0f0f0f0u), 0);
            else
                assert_int_equal(x & 0xf8f8f8f8u, 0);
            for (int k = 0; k < i; k++)
                assert_true(grids[g].grid[k] != x);
        }
    }
}

/* Packed scales come back: every pair of 6-bit values in every place. */
static void test_scales(void **state)
{
    (void)state;
    for (int j = 0; j < 8; j++) {
        for (int v = 0; v < 64; v++) {
            uint8_t s[12] = {0};
            uint8_t sc;
            uint8_t mn;
            if (j < 4) {
                s[j] = (uint8_t)v;
                s[j + 4] = (uint8_t)(63 - v);
            } else {
                s[j + 4] = (uint8_t)((v & 15) | ((63 - v) & 15) << 4);
                s[j - 4] = (uint8_t)(v >> 4 << 6);
                s[j] = (uint8_t)((63 - v) >> 4 << 6);
            }
            dtype_k4_scale_min(s, j, &sc, &mn);
            assert_int_equal(sc, v);
            assert_int_equal(mn, 63 - v);
        }
    }
}

/* The tests' quantisers and the dequantisation agree to the width of the codes. */
static void test_round_trip(void **state)
{
    (void)state;
    static const struct {
        uint32_t dtype;
        double bound;
    } cases[] = {
        {DTYPE_F32, 0},      {DTYPE_F16, 3e-4},  {DTYPE_BF16, 2e-3},  {DTYPE_Q4_0, 0.09},
        {DTYPE_Q4_1, 0.09},  {DTYPE_Q5_0, 0.05}, {DTYPE_Q5_1, 0.05},  {DTYPE_Q8_0, 6e-3},
        {DTYPE_Q4_K, 0.085}, {DTYPE_Q5_K, 0.05}, {DTYPE_Q6_K, 0.022},
    };
    enum { N = 256 * 64 };
    float *x = mem_calloc(N, sizeof *x);
    float *y = mem_calloc(N, sizeof *y);
    uint8_t *blocks = mem_calloc(N, sizeof *x);
    uint64_t seed = 3;
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (float)(test_random(&seed) >> 48) / 32768 - 1;
        x[i] = sum;
    }
    for (size_t c = 0; c < T9_COUNT(cases); c++) {
        assert_true(quantize_is_exact(cases[c].dtype));
        assert_int_equal(quantize_row(cases[c].dtype, x, blocks, N, NULL), T9_STATUS_OK);
        assert_int_equal(dtype_dequantize_row(cases[c].dtype, blocks, y, N, NULL), T9_STATUS_OK);
        double err = 0;
        double norm = 0;
        for (int i = 0; i < N; i++) {
            err += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
            norm += (double)x[i] * (double)x[i];
        }
        if (sqrt(err / norm) > cases[c].bound)
            fail_msg("%s: relative error %g", gguf_dtype_name(cases[c].dtype), sqrt(err / norm));
    }
    /* The corners of the format occur: largest scale, negative d. */
    assert_int_equal(quantize_row(DTYPE_Q4_K, x, blocks, N, NULL), T9_STATUS_OK);
    const struct block_q4_k *b = (const struct block_q4_k *)blocks;
    int n_negative = 0;
    int n_63 = 0;
    for (int i = 0; i < N / 256; i++) {
        n_negative += b[i].d >> 15;
        for (int j = 0; j < 8; j++) {
            uint8_t sc;
            uint8_t mn;
            dtype_k4_scale_min(b[i].scales, j, &sc, &mn);
            n_63 += sc == 63;
        }
    }
    assert_true(n_negative > 8 && n_negative < N / 256 - 8);
    assert_true(n_63 >= N / 256);
    mem_free(x);
    mem_free(y);
    mem_free(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_table),
        cmocka_unit_test(test_half),          cmocka_unit_test(test_scales),
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_few_bits),
        cmocka_unit_test(test_scale_formats),
    };
    return cmocka_run_group_tests_name("dequant", tests, NULL, NULL);
}
