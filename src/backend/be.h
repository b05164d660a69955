/*
 * backend/be.h - a backend: memory, weights, and a table of kernels that run a tape of ops.
 *
 * `ref`   float32 from dequantised weights: the model's numbers, checked against the reference
 *         library. Slow.
 * `canon` the scalar definition of the integer path (docs/numerics.md). Slow.
 * `cpu`   equals canon bit for bit with AVX2, AVX-512 VNNI (NEON later) and any number of threads;
 *         where no SIMD path exists it runs canon's own kernels on its pool.
 *
 * Threads: created and freed by one thread; be_run is called by the engine thread only, which is
 * worker 0 of the CPU pool. Weights are immutable after load.
 */
#ifndef T9_BACKEND_BE_H
#define T9_BACKEND_BE_H

#include "backend/op.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct be;

struct be_params {
    int n_threads;    /* 0: all CPUs this process may use */
    const char *isa;  /* cpu only: NULL = best available, else "avx512", "avx2" or "scalar"; refused
                         when this machine lacks it */
    int32_t max_rows; /* largest number of rows in one op (sizes shared work buffers); >= 1 */
    int32_t max_cols; /* largest n_in of any weight; 0: set by weights as they load */
};

/* name: "ref", "canon", "cpu". UNSUPPORTED names the known ones. */
t9_status be_new(struct be **out, const char *name, const struct be_params *params,
                 struct t9_err *err);
void be_free(struct be *be);
const char *be_name(const struct be *be); /* "ref", "canon", "cpu" */
const char *be_isa(const struct be *be);  /* "scalar", "avx2", "avx512" */
int be_threads(const struct be *be);
/* Names the definition of the numbers (not the ISA): part of every cache key. */
const char *be_numerics(const struct be *be); /* "canon-1", "ref-1" */

/* Where a weight's bytes come from: rows as the file has them. */
struct weight_src {
    const char *name;
    uint32_t dtype; /* gguf dtype */
    int32_t n_in, n_out;
    int32_t n_experts; /* matrices of n_out rows, one after the other; 0: one, for op_matmul */
    /* Reads n bytes at byte `off` of the tensor. */
    t9_status (*read)(void *ctx, uint64_t off, void *dst, size_t n, struct t9_err *err);
    void *ctx;
};
/* Matrix for op_matmul and op_embed_rows, or with n_experts > 0 a stack of them for
 * op_matmul_experts, in the backend's own layout; bits per weight stay what
 * they were. UNSUPPORTED names tensor and type when the backend has no path for it. Reads in
 * slices, so peak memory is the weight plus a few MB. */
t9_status be_weight_load(struct be *be, struct weight *out, const struct weight_src *src,
                         struct t9_err *err);
/* f32 vector of n_in * n_out values; accepts F32, F16 and BF16. */
t9_status be_vector_load(struct be *be, struct weight *out, const struct weight_src *src,
                         struct t9_err *err);
void be_weight_free(struct be *be, struct weight *w); /* accepts a zeroed weight */

/* Address space without memory behind it until it is touched (page pool, scratch); 2 MiB aligned.
 */
t9_status be_reserve(struct be *be, size_t size_bytes, void **out, struct t9_err *err);
/* A hint: memory that be_reserve gave, and that kernels stream through, is to come in huge pages.
 * Up to one of them (mostly 2 MiB) more than what is touched is then backed. */
void be_want_huge(struct be *be, void *p, size_t size_bytes);
/* Gives the memory behind [p, p + n) back; reading it again gives zeros. */
void be_decommit(struct be *be, void *p, size_t size_bytes);
void be_unreserve(struct be *be, void *p, size_t size_bytes);

/* Runs n ops in order and returns when all are done. No allocation, no lock, no I/O (P5). Fails
 * only when an op's shapes are inconsistent (a programmer error, found before anything is written).
 */
t9_status be_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err);

/* ---- sinks (backend/sink_*.c) ---- */

/* run: be_run of each op as it is submitted. */
void cx_init_run(struct cx *cx, struct be *be, struct scratch *scratch);

/* record: append to a fixed tape, run later. Submitting beyond `cap` fails. */
struct tape {
    struct op *ops;
    size_t n, cap;
};
t9_status tape_init(struct tape *t, size_t cap, struct t9_err *err);
void tape_deinit(struct tape *t);
void cx_init_record(struct cx *cx, struct tape *tape, struct scratch *scratch);

/* measure: nothing runs; scratch->peak and n_ops say what a forward needs. */
struct measure {
    size_t n_ops;
    int32_t max_rows, max_cols;
};
void cx_init_measure(struct cx *cx, struct measure *m, struct scratch *scratch);

/* compare: runs each op on `be`, then on `other` with copies of what it writes (KV pages too), and
 * stops at the first op whose relative error exceeds `tolerance` (0 = bit for bit). The message
 * names layer, op, row and column. The weights of `be` are translated by `other_weight`. */
struct compare {
    struct be *be, *other;
    const struct weight *(*other_weight)(void *ctx, const struct weight *w);
    void *ctx;
    float tolerance;
    size_t n_ops;
    float worst;
};
void cx_init_compare(struct cx *cx, struct compare *c, struct scratch *scratch);

#endif
