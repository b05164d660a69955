/* canon against plain double arithmetic: the definition must also be a good approximation. Its own
 * functions (exp, sincos) against libm; the activation quantiser on corners. */
#include "backend/be.h"
#include "backend/canon/canon.h"
#include "backend/det_math.h"
#include "base/mem.h"
#include "gguf/dtype.h"
#include "lib/quantize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint64_t rng_state = 11;
static uint32_t rnd(void)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33);
}
static float rnd_f32(float scale)
{
    float s = 0;
    for (int i = 0; i < 4; i++)
        s += (float)(rnd() & 0xffff) / 65536.0f - 0.5f;
    return s * scale;
}

/* Distance in units of the last place of `want`. */
static double ulps(float got, double want)
{
    int e;
    (void)frexp(want, &e);
    double ulp = ldexp(1.0, (e < -125 ? -125 : e) - 24);
    return fabs((double)got - want) / ulp;
}

static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = -870000; i <= 883000; i++) {
        float x = (float)i * 1e-4f;
        double u = ulps(det_exp(x), exp((double)x));
        worst = u > worst ? u : worst;
    }
    if (worst > 2)
        fail_msg("exp is off by %g units in the last place", worst);
    assert_true(det_exp(0.0f) == 1.0f && det_exp(-0.0f) == 1.0f);
    assert_true(det_exp(-INFINITY) == 0.0f && det_exp(-88.0f) == 0.0f);
    assert_true(det_exp(INFINITY) == INFINITY && det_exp(100.0f) == INFINITY);
    assert_true(isnan(det_exp(NAN)));
}

static void test_sincos(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = 0; i < 2000000; i++) {
        float s, c, x = (float)(rnd() & 0xffffff) * (i % 3 ? 1e-5f : 0.0625f);
        det_sincos(i % 2 ? x : -x, &s, &c);
        double us = ulps(s, sin(i % 2 ? (double)x : -(double)x)), uc = ulps(c, cos((double)x));
        worst = us > worst ? us : worst;
        worst = uc > worst ? uc : worst;
    }
    if (worst > 0.51)
        fail_msg("sincos is off by %g units in the last place", worst);
    float s, c;
    det_sincos(INFINITY, &s, &c);
    assert_true(isnan(s) && isnan(c));
}

static void test_activations(void **state)
{
    (void)state;
    double worst = 0;
    for (int i = -200000; i <= 200000; i++) {
        float f = (float)i * 1e-4f;
        double x = (double)f;
        double u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
        double gelu = x / (1.0 + exp(-2.0 * u)), silu = x / (1.0 + exp(-x));
        worst = fmax(worst, ulps(det_silu(f), silu));
        worst = fmax(worst, ulps(det_tanh(f), tanh(x)));
        worst = fmax(worst, ulps(det_tanh(f * 1e-6f), tanh((double)(f * 1e-6f))));
        if (x > -4) /* farther out the argument's own rounding shows: exp amplifies it */
            worst = fmax(worst, ulps(det_gelu_tanh(f), gelu) / 8);
    }
    if (worst > 4)
        fail_msg("activations are off by %g units in the last place", worst);
    assert_true(det_tanh(INFINITY) == 1 && det_tanh(-1e30f) == -1 && det_tanh(0) == 0);
    assert_true(isnan(det_tanh(NAN)));
}

static void test_quant(void **state)
{
    (void)state;
    float x[256];
    struct act32 a;
    struct act256 k;
    for (int i = 0; i < 256; i++)
        x[i] = i % 32 == 0 ? 127.0f : (float)(i % 7) + 0.5f;
    canon_quant32(&a, x);
    assert_true(a.d == 1.0f);
    assert_int_equal(a.q[0], 127);
    assert_int_equal(a.q[1], 2); /* 1.5 and 2.5 both go to the even 2 */
    assert_int_equal(a.q[2], 2);
    canon_quant256(&k, x);
    int sum16 = 0, sum32 = 0;
    for (int i = 0; i < 32; i++) {
        sum32 += k.q[32 + i];
        sum16 += i < 16 ? k.q[32 + i] : 0;
    }
    assert_int_equal(k.sum16[2], sum16);
    assert_int_equal(k.sum32[1], sum32);
    x[3] = -INFINITY;
    canon_quant32(&a, x);
    assert_true(isnan(a.d));
    assert_int_equal(a.q[0], 0);
    memset(x, 0, sizeof(x));
    x[1] = 1e-38f; /* 127 / x is beyond float */
    canon_quant32(&a, x);
    assert_true(a.d == 0.0f);
    assert_int_equal(a.sum, 0);
    for (int i = 0; i < 100000; i++) { /* |q| stays within 127 whatever the rounding */
        for (int j = 0; j < 32; j++)
            x[j] = rnd_f32(1);
        canon_quant32(&a, x);
        for (int j = 0; j < 32; j++) {
            assert_true(a.q[j] >= -127);
            assert_true(fabsf((float)a.q[j] * a.d - x[j]) <= a.d * 0.5001f);
        }
    }
}

static t9_status read_array(void *ctx, uint64_t off, void *dst, size_t n, struct t9_err *err)
{
    (void)err;
    memcpy(dst, (const char *)ctx + off, n);
    return T9_STATUS_OK;
}

/* Random blocks with small scales. */
static void rnd_rows(uint32_t dtype, uint8_t *p, size_t n_bytes)
{
    const struct dtype_info *info = gguf_dtype_get(dtype);
    for (size_t i = 0; i < n_bytes; i++)
        p[i] = (uint8_t)rnd();
    for (size_t i = 0; i + info->block_bytes <= n_bytes; i += info->block_bytes) {
        uint16_t d = num_f16_from_f32(rnd_f32(0.05f)), b = num_bf16_from_f32(rnd_f32(0.5f));
        float f = rnd_f32(0.5f);
        switch (dtype) {
        case DTYPE_F32: memcpy(p + i, &f, 4); break;
        case DTYPE_BF16: memcpy(p + i, &b, 2); break;
        case DTYPE_MXFP4: p[i] = (uint8_t)(118 + rnd() % 8); break;
        default: (void)quantize_set_scales(dtype, p + i, d, d); break;
        }
    }
}

/* Against sum of dequantised w times x in double: the error is that of 8-bit activations, about
 * half a step of each block; with x that int8 holds exactly, it is only f32's. */
static void matmul_check(struct be *be, uint32_t dtype, bool exact)
{
    enum { N_IN = 768, N_OUT = 20, ROWS = 3 };
    static float x[ROWS * N_IN], got[ROWS * N_OUT], row[N_IN], bias[N_OUT];
    size_t row_bytes = (size_t)dtype_row_bytes(dtype, N_IN);
    uint8_t *data = mem_alloc(row_bytes * N_OUT);
    assert_non_null(data);
    rnd_rows(dtype, data, row_bytes * N_OUT);
    for (int i = 0; i < ROWS * N_IN; i++) {
        x[i] = exact ? (float)((int)(rnd() % 255) - 127) : rnd_f32(2);
        if (exact && i % 32 == 0)
            x[i] = 127;
    }
    for (int i = 0; i < N_OUT; i++)
        bias[i] = rnd_f32(1);
    struct weight_src src = {
        .name = "w", .dtype = dtype, .n_in = N_IN, .n_out = N_OUT, .read = read_array, .ctx = data};
    struct weight w;
    struct scratch scratch = {0};
    struct cx cx = {0};
    assert_int_equal(be_weight_load(be, &w, &src, NULL), T9_STATUS_OK);
    w.bias = bias;
    cx_init_run(&cx, be, &scratch);
    const struct weight *ws[] = {&w};
    struct view dst[] = {view_f32(got, ROWS, N_OUT)};
    op_matmul(&cx, dst, view_f32(x, ROWS, N_IN), ws, 1);
    assert_int_equal(cx.status, T9_STATUS_OK);
    for (int o = 0; o < N_OUT; o++) {
        dtype_dequantize_row(dtype, data + (size_t)o * row_bytes, row, N_IN, NULL);
        for (int r = 0; r < ROWS; r++) {
            double want = (double)bias[o], size = fabs(want);
            for (int i = 0; i < N_IN; i++) {
                want += (double)row[i] * (double)x[r * N_IN + i];
                size += fabs((double)row[i] * (double)x[r * N_IN + i]);
            }
            double off = fabs(want - (double)got[r * N_OUT + o]);
            if (!(off <= size * (exact ? 1e-5 : 5e-3)))
                fail_msg("%s%s: size %g, output %d is %g, %g wanted", gguf_dtype_name(dtype),
                         exact ? ", exact" : "", size, o, (double)got[r * N_OUT + o], want);
        }
    }
    be_weight_free(be, &w);
    mem_free(data);
}

static void test_matmul(void **state)
{
    (void)state;
    struct be_params p = {.n_threads = 1, .max_rows = 8};
    struct be *be;
    assert_int_equal(be_new(&be, "canon", &p, NULL), T9_STATUS_OK);
    int n_types = 0;
    for (uint32_t id = 0; id < DTYPE_ID_END; id++) {
        assert_int_equal(canon_dtype_supported(id), dtype_can_dequantize(id));
        if (!canon_dtype_supported(id))
            continue;
        n_types++;
        matmul_check(be, id, false);
        matmul_check(be, id, true);
    }
    assert_int_equal(n_types, 28);
    uint8_t data[292] = {0};
    struct weight w;
    struct t9_err err;
    struct weight_src src = {.name = "odd",
                             .dtype = DTYPE_Q8_K,
                             .n_in = 256,
                             .n_out = 1,
                             .read = read_array,
                             .ctx = data};
    assert_int_equal(be_weight_load(be, &w, &src, &err), T9_STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "odd: type Q8_K"));
    be_free(be);
}

static void test_rmsnorm(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 5, 16, 17, 100, 576};
    float x[576], w[576], got[576];
    for (size_t k = 0; k < T9_COUNT(sizes); k++) {
        double sum = 0;
        for (int32_t i = 0; i < sizes[k]; i++) {
            x[i] = rnd_f32(5);
            w[i] = rnd_f32(1);
            sum += (double)x[i] * (double)x[i];
        }
        canon_rmsnorm_row(got, x, w, sizes[k], 1e-5f);
        for (int32_t i = 0; i < sizes[k]; i++) {
            double want = (double)x[i] / sqrt(sum / sizes[k] + 1e-5) * (double)w[i];
            assert_true(ulps(got[i], want) < 8);
        }
    }
}

/* One KV head, two query heads, every visible key; against two passes in double. */
static void attention_check(struct be *be, int32_t n_keys, int32_t window)
{
    enum { D = 16, HEADS = 2, PAGES = 40 };
    static float pool[PAGES * 2 * D * KV_PAGE_TOKENS + 4096 * PAGES], q[HEADS * D], got[HEADS * D];
    static double k[PAGES * KV_PAGE_TOKENS][D], v[PAGES * KV_PAGE_TOKENS][D];
    struct kv_geom g;
    int32_t table[PAGES], idx[] = {n_keys - 1}, seq[] = {0};
    assert_true(kv_geom_init_same(&g, 1, 1, D, KV_TYPE_F32));
    for (int32_t i = 0; i < PAGES; i++)
        table[i] = PAGES - 1 - i;
    for (int32_t j = 0; j < n_keys; j++) {
        float *pk = (float *)(void *)kv_page_k(&g.layers[0], pool, table[j / KV_PAGE_TOKENS], 0);
        float *pv = (float *)(void *)kv_page_v(&g.layers[0], pool, table[j / KV_PAGE_TOKENS], 0);
        for (int i = 0; i < D; i++) {
            float a = rnd_f32(3), b = rnd_f32(1);
            pk[i * KV_PAGE_TOKENS + j % KV_PAGE_TOKENS] = a;
            pv[j % KV_PAGE_TOKENS * D + i] = b;
            k[j][i] = (double)a;
            v[j][i] = (double)b;
        }
    }
    for (int i = 0; i < HEADS * D; i++)
        q[i] = rnd_f32(3);
    struct scratch scratch = {0};
    struct cx cx = {0};
    cx_init_run(&cx, be, &scratch);
    struct op_attn a = {.dst = view_f32(got, 1, HEADS * D),
                        .q = view_f32(q, 1, HEADS * D),
                        .kv_idx = view_i32(idx, 1, 1),
                        .row_seq = view_i32(seq, 1, 1),
                        .page_table = view_i32(table, 1, PAGES),
                        .pool = {pool, 1, 1, 1, VIEW_BYTES, 0},
                        .kv = &g.layers[0],
                        .n_head = HEADS,
                        .window = window,
                        .scale = 0.25f};
    op_attn_paged(&cx, &a);
    assert_int_equal(cx.status, T9_STATUS_OK);
    for (int h = 0; h < HEADS; h++) {
        int32_t first = window && n_keys > window ? n_keys - window : 0;
        double max = -HUGE_VAL, sum = 0, o[D] = {0};
        for (int pass = 0; pass < 2; pass++) {
            for (int32_t j = first; j < n_keys; j++) {
                double s = 0;
                for (int i = 0; i < D; i++)
                    s += (double)q[h * D + i] * k[j][i];
                s *= 0.25;
                max = pass == 0 ? fmax(max, s) : max;
                double p = pass ? exp(s - max) : 0;
                sum += p;
                for (int i = 0; i < D; i++)
                    o[i] += p * v[j][i];
            }
        }
        for (int i = 0; i < D; i++)
            assert_true(fabs((double)got[h * D + i] - o[i] / sum) < 2e-5);
    }
}

static void test_attention(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 2, 31, 32, 33, 500, 512, 513, 1100};
    struct be_params p = {.n_threads = 1, .max_rows = 8};
    struct be *be;
    assert_int_equal(be_new(&be, "canon", &p, NULL), T9_STATUS_OK);
    for (size_t i = 0; i < T9_COUNT(sizes); i++) {
        attention_check(be, sizes[i], 0);
        attention_check(be, sizes[i], 100);
    }
    be_free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),         cmocka_unit_test(test_sincos),
        cmocka_unit_test(test_activations), cmocka_unit_test(test_quant),
        cmocka_unit_test(test_matmul),      cmocka_unit_test(test_rmsnorm),
        cmocka_unit_test(test_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
