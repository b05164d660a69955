/*
 * tests/unit/backend/ops.h - helpers of the backend tests: a backend with a run context, weights
 * from arrays, and KV pages.
 */
#ifndef T9_TESTS_UNIT_BACKEND_OPS_H
#define T9_TESTS_UNIT_BACKEND_OPS_H

#include "backend/be.h"
#include "gguf/dtype.h"

#include <string.h>

struct bench {
    struct be *be;
    struct cx cx;
    struct scratch scratch;
    char memory[1 << 16] __attribute__((aligned(64)));
};

static inline t9_status ops_read(void *ctx, uint64_t off, void *dst, size_t n, struct t9_err *err)
{
    (void)err;
    memcpy(dst, (const char *)ctx + off, n);
    return T9_STATUS_OK;
}

/* Rows of `data` in the layout of `dtype`. */
static inline struct weight_src ops_src(const char *name, uint32_t dtype, const void *data,
                                        int32_t n_in, int32_t n_out)
{
    return (struct weight_src){.name = name,
                               .dtype = dtype,
                               .n_in = n_in,
                               .n_out = n_out,
                               .read = ops_read,
                               .ctx = (void *)(uintptr_t)data};
}

static inline t9_status bench_init(struct bench *b, const char *backend)
{
    struct be_params p = {.n_threads = 1, .max_rows = 64};
    struct t9_err err;
    t9_status st = be_new(&b->be, backend, &p, &err);
    b->scratch = (struct scratch){.base = b->memory, .cap = sizeof(b->memory)};
    if (st == T9_STATUS_OK)
        cx_init_run(&b->cx, b->be, &b->scratch);
    return st;
}

#endif
