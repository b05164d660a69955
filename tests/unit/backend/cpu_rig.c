/* tests/unit/backend/cpu_rig.c - see cpu_rig.h. */
#include "unit/backend/cpu_rig.h"

#include "base/mem.h"
#include "base/num.h"
#include "lib/quantize.h"

#include <math.h>
#include <string.h>

const char *const rig_isas[RIG_ISAS] = {"scalar", "avx2", "avx512"};

struct rig rig;

/* ---- small helpers ---- */

uint32_t rig_rnd(void)
{
    rig.rng = rig.rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rig.rng >> 33);
}
float rig_rnd_f32(float scale) /* about normal */
{
    float s = 0;
    for (int i = 0; i < 4; i++)
        s += (float)(rig_rnd() & 0xffff) / 65536.0f - 0.5f;
    return s * scale;
}
float *rig_floats(size_t n, float scale)
{
    float *p = mem_alloc_aligned(64, (n + 16) * sizeof(float));
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = rig_rnd_f32(scale);
    return p;
}

void rig_same_bits(const char *what, const char *isa, int threads, const void *got,
                   const void *want, size_t n)
{
    const uint32_t *a = got, *b = want;
    const float *x = got, *y = want;
    for (size_t i = 0; i < n; i++) {
        if (a[i] != b[i] && !(isnan(x[i]) && isnan(y[i])))
            fail_msg("%s, %s with %d threads: element %zu is %.9g, canon has %.9g", what, isa,
                     threads, i, (double)x[i], (double)y[i]);
    }
}

static t9_status read_array(void *ctx, uint64_t off, void *dst, size_t n, struct t9_err *err)
{
    (void)err;
    memcpy(dst, (const char *)ctx + off, n);
    return T9_STATUS_OK;
}

struct weight rig_load(struct be *be, uint32_t dtype, void *data, int32_t n_in, int32_t n_out,
                       int32_t n_experts)
{
    struct weight_src src = {.name = "w",
                             .dtype = dtype,
                             .n_in = n_in,
                             .n_out = n_out,
                             .n_experts = n_experts,
                             .read = read_array,
                             .ctx = data};
    struct weight w;
    struct t9_err err;
    if (be_weight_load(be, &w, &src, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    return w;
}

void rig_run(struct be *be, void (*fn)(struct cx *cx, void *arg), void *arg)
{
    struct scratch scratch = {0};
    struct cx cx = {0};
    cx_init_run(&cx, be, &scratch);
    fn(&cx, arg);
    if (cx.status != T9_STATUS_OK)
        fail_msg("%s", cx.err.msg);
}

int rig_setup(void **state)
{
    (void)state;
    struct be_params p = {.n_threads = 1, .max_rows = RIG_ROWS_MAX};
    assert_int_equal(be_new(&rig.canon, "canon", &p, NULL), T9_STATUS_OK);
    for (int isa = 0; isa < RIG_ISAS; isa++) {
        for (int n = 1; n <= RIG_THREADS_MAX; n++) {
            struct t9_err err;
            p.n_threads = n;
            p.isa = rig_isas[isa];
            t9_status st = be_new(&rig.cpu[isa][n - 1], "cpu", &p, &err);
            if (st == T9_STATUS_UNSUPPORTED && isa > 0) {
                print_message("left out: %s\n", err.msg);
                break;
            }
            assert_int_equal(st, T9_STATUS_OK);
            assert_string_equal(be_isa(rig.cpu[isa][n - 1]), rig_isas[isa]);
            assert_int_equal(be_threads(rig.cpu[isa][n - 1]), n);
        }
    }
    return 0;
}

int rig_teardown(void **state)
{
    (void)state;
    FOR_EACH_CPU(be, isa, threads)
    be_free(be);
    be_free(rig.canon);
    return 0;
}

/* ---- weights ---- */

const uint32_t rig_dtypes[RIG_TYPES] = {
    DTYPE_F32,     DTYPE_F16,   DTYPE_BF16,  DTYPE_Q4_0,  DTYPE_Q4_1,    DTYPE_Q5_0,   DTYPE_Q5_1,
    DTYPE_Q8_0,    DTYPE_Q4_K,  DTYPE_Q5_K,  DTYPE_Q6_K,  DTYPE_Q2_K,    DTYPE_Q3_K,   DTYPE_IQ4_NL,
    DTYPE_IQ4_XS,  DTYPE_MXFP4, DTYPE_IQ1_S, DTYPE_IQ1_M, DTYPE_IQ2_XXS, DTYPE_IQ2_XS, DTYPE_IQ2_S,
    DTYPE_IQ3_XXS, DTYPE_IQ3_S, DTYPE_TQ1_0, DTYPE_TQ2_0, DTYPE_NVFP4,   DTYPE_Q1_0,   DTYPE_Q2_0};

/* A scale: ordinary, or one of the corners that f16 has. */
static uint16_t rnd_scale(bool extreme)
{
    static const uint16_t corners[] = {0x0000, 0x8000, 0x0001, 0x83ff,
                                       0x7bff, 0xfbff, 0x0400, 0x3c00};
    if (extreme && rig_rnd() % 2)
        return corners[rig_rnd() % T9_COUNT(corners)];
    return num_f16_from_f32(rig_rnd_f32(0.1f));
}

static void rnd_block(uint32_t dtype, uint8_t *b, size_t block_bytes, bool extreme)
{
    for (size_t i = 0; i < block_bytes; i++)
        b[i] = extreme && rig_rnd() % 8 == 0 ? (rig_rnd() % 2 ? 0xff : 0x80) : (uint8_t)rig_rnd();
    if (extreme && rig_rnd() % 4 == 0)
        memset(b, rig_rnd() % 2 ? 0xff : 0, block_bytes);
    uint16_t d = rnd_scale(extreme), m = rnd_scale(extreme);
    switch (dtype) {
    case DTYPE_F32: {
        float f = rig_rnd_f32(1);
        memcpy(b, &f, 4);
        return;
    }
    case DTYPE_BF16:
        d = num_bf16_from_f32(rig_rnd_f32(1));
        memcpy(b, &d, 2);
        return;
    case DTYPE_MXFP4: /* any byte is a scale; ordinary ones are near 1 */
        b[0] = (uint8_t)(extreme ? b[0] : 118 + rig_rnd() % 8);
        return;
    default: (void)quantize_set_scales(dtype, b, d, m); return; /* of NVFP4 any byte is one */
    }
}

uint8_t *rig_rnd_weight(uint32_t dtype, int32_t n_in, int32_t n_out, bool extreme)
{
    const struct dtype_info *info = gguf_dtype_get(dtype);
    size_t n_blocks = (size_t)n_in / info->block_elems * (size_t)n_out;
    uint8_t *p = mem_alloc(n_blocks * info->block_bytes);
    assert_non_null(p);
    for (size_t i = 0; i < n_blocks; i++)
        rnd_block(dtype, p + i * info->block_bytes, info->block_bytes, extreme);
    return p;
}

/* Some blocks of x: zeros, huge, tiny, one outlier, NaN, inf. */
void rig_extreme_rows(float *x, size_t n)
{
    for (size_t i = 0; i + 32 <= n; i += 32) {
        switch (rig_rnd() % 16) {
        case 0: memset(x + i, 0, 32 * sizeof(float)); break;
        case 1: x[i + rig_rnd() % 32] = 3e38f; break;
        case 2:
            for (size_t j = 0; j < 32; j++)
                x[i + j] *= 1e-37f;
            break;
        case 3: x[i + rig_rnd() % 32] = 1e4f; break;
        case 4:
            for (size_t j = 0; j < 32; j++)
                x[i + j] = rig_rnd() % 2 ? 2.5f : -2.5f;
            break;
        case 5:
            if (rig_rnd() % 64 == 0)
                x[i + rig_rnd() % 32] = rig_rnd() % 2 ? NAN : INFINITY;
            break;
        default: break;
        }
    }
}
