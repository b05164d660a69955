/*
 * bench/kernels/kernels.c - how fast the CPU backend's products are, beside what the machine can
 * do.
 *
 *   bench_kernels [threads [isa [n_in n_out [rows [type]]]]]
 *   bench_kernels attention [threads [isa [type [d]]]]          see attention.c
 *   bench_kernels experts [threads [isa [type [n_experts used [n_in n_out]]]]]    see experts.c
 *
 * Per weight type: GB/s of weights for one row (decode: memory is the limit) and Gop/s for many
 * rows (prefill: the int8 dot product units are the limit; one multiply and one add are two ops).
 * First come the limits themselves: reading memory, and a loop of nothing but dot products in
 * registers. One row is repeated over several copies of the weight, so that it comes from memory,
 * not from cache. A sample of each result is compared with canon bit for bit before anything is
 * timed.
 */
#include "bench.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "gguf/dtype.h"
#include "lib/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t rng_state = 1;
uint32_t bench_rnd(void)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33);
}

uint64_t bench_timer_ns(int n_threads)
{
    struct timespec t;
    if (n_threads > 1 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
        return clock_now_ns();
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

enum { CHECK_OUT = 48, MIN_MS = 300 };

/* ---- products ---- */

t9_status bench_read(void *ctx, uint64_t off, void *dst, size_t n, struct t9_err *err)
{
    (void)err;
    memcpy(dst, (const char *)ctx + off, n);
    return T9_STATUS_OK;
}

float bench_value(void)
{
    return (float)(int)(bench_rnd() % 2001) * 1e-3f - 1.0f;
}

char *bench_weight_data(uint32_t dtype, size_t n_bytes)
{
    const struct dtype_info *info = gguf_dtype_get(dtype);
    char *p = mem_alloc(n_bytes);
    if (!p)
        exit(1);
    for (size_t i = 0; i < n_bytes; i++)
        p[i] = (char)bench_rnd();
    for (size_t i = 0; dtype == DTYPE_F32 && i + sizeof(float) <= n_bytes; i += sizeof(float)) {
        float x = bench_value(); /* random words are no floats */
        memcpy(p + i, &x, sizeof(x));
    }
    for (size_t i = 0; dtype != DTYPE_F32 && i + info->block_bytes <= n_bytes;
         i += info->block_bytes) {
        uint16_t d = dtype == DTYPE_BF16 ? 0x3c23 : 0x1e00 + (uint16_t)(bench_rnd() & 0x1ff);
        if (dtype == DTYPE_BF16)
            memcpy(p + i, &d, 2);
        else if (dtype == DTYPE_MXFP4)
            p[i] = (char)(118 + (bench_rnd() & 7));
        else /* of NVFP4 any byte is a scale */
            (void)quantize_set_scales(dtype, p + i, d, d);
    }
    return p;
}

struct product {
    struct be *be;
    uint32_t dtype;
    int32_t n_in, n_out, rows, n_copies;
    struct weight *w;
    float *x, *y;
    struct tape tape;
    struct scratch scratch;
};

static void record(struct product *p)
{
    struct cx cx = {0};
    p->tape.n = 0;
    cx_init_record(&cx, &p->tape, &p->scratch);
    for (int32_t i = 0; i < p->n_copies; i++) {
        struct view y = view_f32(p->y, p->rows, p->n_out);
        const struct weight *w = &p->w[i];
        op_matmul(&cx, &y, view_f32(p->x, p->rows, p->n_in), &w, 1);
    }
    if (cx.status != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", cx.err.msg);
        exit(1);
    }
}

/* The first outputs of the first weight, against canon. */
static void check(const struct product *p, char *data)
{
    struct be *canon;
    struct weight w;
    struct cx cx = {0};
    struct scratch scratch = {0};
    struct be_params params = {.n_threads = 1, .max_rows = p->rows};
    int32_t n = p->n_out < CHECK_OUT ? p->n_out : CHECK_OUT;
    struct weight_src src = {.name = "w",
                             .dtype = p->dtype,
                             .n_in = p->n_in,
                             .n_out = n,
                             .read = bench_read,
                             .ctx = data};
    float *want = mem_alloc((size_t)p->rows * (size_t)n * sizeof(float));
    if (!want || be_new(&canon, "canon", &params, NULL) != T9_STATUS_OK ||
        be_weight_load(canon, &w, &src, NULL) != T9_STATUS_OK)
        exit(1);
    struct view y = view_f32(want, p->rows, n);
    const struct weight *pw = &w;
    cx_init_run(&cx, canon, &scratch);
    op_matmul(&cx, &y, view_f32(p->x, p->rows, p->n_in), &pw, 1);
    for (int32_t r = 0; r < p->rows; r++) {
        if (memcmp(want + (size_t)r * (size_t)n, p->y + (size_t)r * (size_t)p->n_out,
                   (size_t)n * sizeof(float)) != 0) {
            fprintf(stderr, "%s: row %d differs from canon\n", gguf_dtype_name(p->dtype), r);
            exit(1);
        }
    }
    be_weight_free(canon, &w);
    be_free(canon);
    mem_free(want);
}

/* Seconds of one product: the best of many. Each op is timed alone, for the reason above. */
static double product_time(struct product *p, char *data)
{
    record(p);
    double best = 1e9;
    struct t9_err err;
    if (be_run(p->be, p->tape.ops, 1, &err) != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    check(p, data);
    uint64_t start_ns = clock_now_ns();
    for (size_t i = 0; i < 3 * p->tape.n || clock_now_ns() - start_ns < MIN_MS * 1000000ull; i++) {
        uint64_t t_ns = bench_timer_ns(be_threads(p->be));
        (void)be_run(p->be, &p->tape.ops[i % p->tape.n], 1, NULL);
        double s = (double)(bench_timer_ns(be_threads(p->be)) - t_ns) * 1e-9;
        best = s < best ? s : best;
    }
    return best;
}

static void bench(struct be *be, uint32_t dtype, int32_t n_in, int32_t n_out, int32_t rows)
{
    struct product p = {.be = be, .dtype = dtype, .n_in = n_in, .n_out = n_out};
    size_t n_bytes = (size_t)dtype_row_bytes(dtype, (uint64_t)n_in) * (size_t)n_out;
    char *data = bench_weight_data(dtype, n_bytes);
    int32_t copies = (int32_t)(FROM_MEMORY_BYTES / n_bytes) + 1;
    p.w = mem_calloc((size_t)copies, sizeof(*p.w));
    p.x = mem_alloc_aligned(64, (size_t)rows * (size_t)n_in * sizeof(float));
    p.y = mem_alloc_aligned(64, (size_t)rows * (size_t)n_out * sizeof(float));
    if (!p.w || !p.x || !p.y || tape_init(&p.tape, (size_t)copies, NULL) != T9_STATUS_OK)
        exit(1);
    for (size_t i = 0; i < (size_t)rows * (size_t)n_in; i++)
        p.x[i] = bench_value();
    struct weight_src src = {
        .name = "w", .dtype = dtype, .n_in = n_in, .n_out = n_out, .read = bench_read, .ctx = data};
    for (int32_t i = 0; i < copies; i++) {
        if (be_weight_load(be, &p.w[i], &src, NULL) != T9_STATUS_OK)
            exit(1);
    }
    p.rows = 1;
    p.n_copies = copies;
    double one = product_time(&p, data);
    p.rows = rows;
    p.n_copies = 1;
    double many = product_time(&p, data);
    printf("%-7s  1 row %6.1f GB/s   %d rows %6.0f Gop/s\n", gguf_dtype_name(dtype),
           (double)n_bytes / one * 1e-9, rows, 2.0 * rows * n_in * n_out / many * 1e-9);
    for (int32_t i = 0; i < copies; i++)
        be_weight_free(be, &p.w[i]);
    tape_deinit(&p.tape);
    mem_free(p.w);
    mem_free(p.x);
    mem_free(p.y);
    mem_free(data);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "attention") == 0)
        return bench_attention(argc - 2, argv + 2);
    if (argc > 1 && strcmp(argv[1], "experts") == 0)
        return bench_experts(argc - 2, argv + 2);
    int64_t arg[5] = {0, 0, 2048, 2048, 256}; /* threads, (isa), n_in, n_out, rows */
    for (int i = 1; i < argc && i <= 5; i++) {
        struct str s = {argv[i], strlen(argv[i])};
        if (i != 2 && (!num_parse_i64(s, &arg[i - 1]) || arg[i - 1] < 0 || arg[i - 1] > 1 << 20)) {
            fprintf(stderr, "usage: %s [threads [isa [n_in n_out [rows [type]]]]]\n", argv[0]);
            return 1;
        }
    }
    struct be *be;
    struct t9_err err;
    struct be_params params = {.n_threads = (int)arg[0], .max_rows = (int32_t)arg[4]};
    params.isa = argc > 2 && strcmp(argv[2], "best") != 0 ? argv[2] : NULL;
    if (be_new(&be, "cpu", &params, &err) != T9_STATUS_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    printf("%s, %d threads, %d -> %d\n", be_isa(be), be_threads(be), (int)arg[2], (int)arg[3]);
    struct be_limits l = be_limits_measure(be_threads(be), be_isa(be));
    printf("memory read %.1f GB/s, int8 dot products %.0f Gop/s\n", l.read_gbps, l.dot_gops);
    for (uint32_t id = 0; id < DTYPE_ID_END; id++) {
        bool wanted = argc <= 6 || strcmp(argv[6], gguf_dtype_name(id)) == 0;
        if (wanted && dtype_can_dequantize(id))
            bench(be, id, (int32_t)arg[2], (int32_t)arg[3], (int32_t)arg[4]);
    }
    be_free(be);
    return 0;
}
