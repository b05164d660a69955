/*
 * backend/be_impl.h - private to backend/: what a backend implementation provides.
 *
 * be.c checks every op before it hands a tape to the implementation, and does what is the same for
 * all of them (address space, f32 vectors). `ref` and `canon` share one implementation
 * (backend/serial.c: weights as the file has them, kernels called one after the other on the
 * calling thread); `cpu` has its own (backend/cpu/cpu.c). An implementation puts `struct be` first
 * in its own struct.
 */
#ifndef T9_BACKEND_BE_IMPL_H
#define T9_BACKEND_BE_IMPL_H

#include "backend/be.h"
#include "backend/kernels.h"

struct be_vtbl {
    void (*free)(struct be *be); /* frees the whole object */
    t9_status (*weight_load)(struct be *be, struct weight *out, const struct weight_src *src,
                             struct t9_err *err);
    void (*weight_free)(struct be *be, struct weight *w); /* not called for vectors */
    /* Ops are already checked by op_check. No allocation. */
    t9_status (*run)(struct be *be, const struct op *ops, size_t n, struct t9_err *err);
};

struct be {
    const struct be_vtbl *v;
    const char *name;     /* "ref", "canon", "cpu" */
    const char *isa;      /* "scalar", "avx2", "avx512" */
    const char *numerics; /* "ref-1", "canon-1" */
    int n_threads;
    int32_t max_rows; /* from be_params */
    int32_t max_cols; /* largest n_in so far; an implementation grows its work buffers in
                         weight_load, never in run */
};

/* Constructors. be_serial_new covers "ref" and "canon". */
t9_status be_serial_new(struct be **out, const char *name, const struct be_params *params,
                        struct t9_err *err);
t9_status be_cpu_new(struct be **out, const struct be_params *params, struct t9_err *err);

/* be_barrier (kernels.h) is cpu/pool.c's; be.c has it only in a build without the CPU backend. */

/* Work buffers that a kernel table needs for ops of up to max_rows rows and max_cols inputs: one
 * shared, one per worker. Sizes may be 0. */
void ref_work_bytes(int32_t max_rows, int32_t max_cols, size_t *shared_bytes, size_t *local_bytes);
void canon_work_bytes(int32_t max_rows, int32_t max_cols, size_t *shared_bytes,
                      size_t *local_bytes);

/* INVALID with op name, layer and what is inconsistent; nothing is read but the record itself. Also
 * called by the builders, so that a model's mistake shows where it is made. */
t9_status op_check(const struct op *op, struct t9_err *err);

/* Helpers for implementations (be.c). */
/* Fills name, dtype, n_in, n_out of *w from src and checks them (n_in a multiple of the type's
 * block, sizes positive and without overflow); *row_bytes is the size of one row in the file's
 * layout. */
t9_status be_weight_init(struct weight *w, const struct weight_src *src, size_t *row_bytes,
                         struct t9_err *err);

#endif
