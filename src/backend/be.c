/*
 * backend/be.c - what is the same for every backend: choosing one by name, f32 vectors, address
 * space, and checking a tape before it runs. See be_impl.h for what an implementation adds.
 *
 * Memory of weights comes from base/mem; be_reserve takes address space from the OS that costs
 * nothing until it is touched.
 */
#include "backend/be_impl.h"

#include "base/mem.h"
#include "base/num.h"
#include "gguf/dtype.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_NORESERVE
#    define MAP_NORESERVE 0
#endif

enum {
    WEIGHT_ALIGN = 64,
    RESERVE_ALIGN = MEM_HUGE_BYTES,
    READ_SLICE_BYTES = 1 << 20,
};

t9_status be_new(struct be **out, const char *name, const struct be_params *params,
                 struct t9_err *err)
{
    *out = NULL;
    if (params->max_rows < 1)
        return t9_fail(err, T9_STATUS_INVALID, "max_rows is %d, at least 1 is wanted",
                       params->max_rows);
    if (strcmp(name, "cpu") == 0) {
#ifdef T9_HAVE_CPU
        return be_cpu_new(out, params, err);
#else
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "this build has no cpu backend");
#endif
    }
    if (strcmp(name, "ref") != 0 && strcmp(name, "canon") != 0)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "backend '%s' is not known; known: cpu, canon, ref", name);
    if (params->isa && strcmp(params->isa, "scalar") != 0)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "backend %s is scalar: no '%s' path", name,
                       params->isa);
    return be_serial_new(out, name, params, err);
}

void be_free(struct be *be)
{
    if (be)
        be->v->free(be);
}

const char *be_name(const struct be *be)
{
    return be->name;
}

const char *be_isa(const struct be *be)
{
    return be->isa;
}

int be_threads(const struct be *be)
{
    return be->n_threads;
}

const char *be_numerics(const struct be *be)
{
    return be->numerics;
}

/* ---- weights ---- */

t9_status be_weight_init(struct weight *w, const struct weight_src *src, size_t *row_bytes,
                         struct t9_err *err)
{
    *w = (struct weight){0};
    if (src->n_in < 1 || src->n_out < 1 || src->n_experts < 0)
        return t9_fail(err, T9_STATUS_INVALID, "%s: a shape of %d -> %d", src->name, src->n_in,
                       src->n_out);
    if (src->n_experts > OP_EXPERTS_MAX)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s: %d experts; at most %d are known",
                       src->name, src->n_experts, OP_EXPERTS_MAX);
    if (strlen(src->name) >= sizeof(w->name))
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: the name has more than %zu bytes", src->name,
                       sizeof(w->name) - 1);
    uint64_t one = dtype_row_bytes(src->dtype, (uint64_t)src->n_in), all;
    if (one == 0)
        return t9_fail(err, T9_STATUS_INVALID,
                       "%s: rows of %d values are no whole number of blocks of type %s", src->name,
                       src->n_in, gguf_dtype_name(src->dtype));
    uint64_t n_rows = (uint64_t)src->n_out * (uint64_t)(src->n_experts > 0 ? src->n_experts : 1);
    if (!num_mul(one, n_rows, &all) || all > SIZE_MAX / 2)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: %llu rows of %llu bytes", src->name,
                       (unsigned long long)n_rows, (unsigned long long)one);
    (void)snprintf(w->name, sizeof(w->name), "%s", src->name);
    w->dtype = src->dtype;
    w->n_in = src->n_in;
    w->n_out = src->n_out;
    w->n_experts = src->n_experts;
    w->size_bytes = (size_t)all;
    *row_bytes = (size_t)one;
    return T9_STATUS_OK;
}

t9_status be_weight_load(struct be *be, struct weight *out, const struct weight_src *src,
                         struct t9_err *err)
{
    *out = (struct weight){0};
    return be->v->weight_load(be, out, src, err);
}

/* Reads all of src as f32, slice by slice. */
static t9_status vector_read(const struct weight_src *src, size_t n, float *dst, char *slice,
                             struct t9_err *err)
{
    size_t elt_bytes = src->dtype == DTYPE_F32 ? 4 : 2;
    for (size_t done = 0; done < n;) {
        size_t part = n - done;
        if (part > READ_SLICE_BYTES / elt_bytes)
            part = READ_SLICE_BYTES / elt_bytes;
        T9_TRY(src->read(src->ctx, (uint64_t)done * elt_bytes, slice, part * elt_bytes, err));
        T9_TRY(dtype_dequantize_row(src->dtype, slice, dst + done, part, err));
        done += part;
    }
    return T9_STATUS_OK;
}

t9_status be_vector_load(struct be *be, struct weight *out, const struct weight_src *src,
                         struct t9_err *err)
{
    (void)be;
    size_t row_bytes;
    struct weight w;
    t9_status st;
    char *slice = NULL;
    float *data = NULL;
    *out = (struct weight){0};
    T9_TRY(be_weight_init(&w, src, &row_bytes, err));
    if (src->dtype != DTYPE_F32 && src->dtype != DTYPE_F16 && src->dtype != DTYPE_BF16)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "%s: a vector of type %s; F32, F16 or BF16 is wanted", src->name,
                       gguf_dtype_name(src->dtype));
    uint64_t n = (uint64_t)src->n_in * (uint64_t)src->n_out;
    if (n > INT32_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: a vector of %llu values", src->name,
                       (unsigned long long)n);
    data = mem_alloc_aligned(WEIGHT_ALIGN, (size_t)n * sizeof(float));
    slice = mem_alloc(READ_SLICE_BYTES);
    if (!data || !slice) {
        st = t9_fail(err, T9_STATUS_NOMEM, "%s: no memory for %llu values", src->name,
                     (unsigned long long)n);
        goto done;
    }
    st = vector_read(src, (size_t)n, data, slice, err);
    if (st != T9_STATUS_OK)
        goto done;
    w.dtype = DTYPE_F32;
    w.layout = WEIGHT_LAYOUT_VECTOR;
    w.n_in = (int32_t)n;
    w.n_out = 1;
    w.size_bytes = (size_t)n * sizeof(float);
    w.data = data;
    data = NULL;
    *out = w;
done:
    mem_free(slice);
    mem_free(data);
    return st;
}

void be_weight_free(struct be *be, struct weight *w)
{
    if (!w || !w->data)
        return;
    if (w->layout == WEIGHT_LAYOUT_VECTOR)
        mem_free((void *)(uintptr_t)w->data);
    else
        be->v->weight_free(be, w);
    *w = (struct weight){0};
}

/* ---- address space ---- */

static size_t reserve_round(size_t size_bytes)
{
    return (size_bytes + RESERVE_ALIGN - 1) / RESERVE_ALIGN * RESERVE_ALIGN;
}

t9_status be_reserve(struct be *be, size_t size_bytes, void **out, struct t9_err *err)
{
    (void)be;
    *out = NULL;
    if (size_bytes == 0 || size_bytes > SIZE_MAX / 2)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "cannot reserve %zu bytes of address space: a smaller --kv-memory or "
                       "--max-length needs less",
                       size_bytes);
    size_t want = reserve_round(size_bytes);
    char *p = mmap(NULL, want + RESERVE_ALIGN, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return t9_fail_os(err, T9_STATUS_NOMEM, errno,
                          "the OS refused %zu bytes of address space: is there a limit (ulimit "
                          "-v)? A smaller --kv-memory or --max-length needs less",
                          want);
    size_t head = (RESERVE_ALIGN - (uintptr_t)p % RESERVE_ALIGN) % RESERVE_ALIGN;
    if (head > 0)
        (void)munmap(p, head);
    (void)munmap(p + head + want, RESERVE_ALIGN - head);
    *out = p + head;
    return T9_STATUS_OK;
}

void be_want_huge(struct be *be, void *p, size_t size_bytes)
{
    (void)be;
    mem_want_huge(p, size_bytes);
}

void be_decommit(struct be *be, void *p, size_t size_bytes)
{
    (void)be;
    if (size_bytes == 0)
        return;
#ifdef __linux__
    (void)madvise(p, size_bytes, MADV_DONTNEED);
#else
    (void)mmap(p, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0);
#endif
}

void be_unreserve(struct be *be, void *p, size_t size_bytes)
{
    (void)be;
    if (p)
        (void)munmap(p, reserve_round(size_bytes));
}

/* ---- running ---- */

static t9_status check_limits(const struct be *be, const struct op *op, struct t9_err *err)
{
    for (int k = 0; k < op->n_dst; k++) {
        if (op->dst[k].rows > be->max_rows)
            return t9_fail(
                err, T9_STATUS_INVALID, "%s in layer %d: %d rows, the backend has room for %d",
                op_kind_name((op_kind)op->kind), op->layer, op->dst[k].rows, be->max_rows);
    }
    return T9_STATUS_OK;
}

t9_status be_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err)
{
    for (size_t i = 0; i < n; i++) {
        T9_TRY(op_check(&ops[i], err));
        T9_TRY(check_limits(be, &ops[i], err));
    }
    return be->v->run(be, ops, n, err);
}

#ifndef T9_HAVE_CPU
void be_barrier(struct be_task *t)
{
    (void)t; /* serial backends only: there is nobody to wait for */
}
#endif
