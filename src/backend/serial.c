/*
 * backend/serial.c - the implementation behind `ref` and `canon`: weights lie as the file has them,
 * and a tape's kernels run one after the other on the calling thread. The two differ in their
 * kernel tables only. One thread at a time.
 */
#include "backend/be_impl.h"

#ifdef T9_HAVE_CANON
#    include "backend/canon/canon.h"
#endif
#include "base/mem.h"
#include "gguf/dtype.h"

#include <string.h>

enum {
    ALIGN = 64,
    READ_SLICE_BYTES = 4 << 20,
};

struct serial {
    struct be be; /* first: the two are cast into each other */
    struct be_kernels kernels;
    void (*work_bytes)(int32_t max_rows, int32_t max_cols, size_t *shared_bytes,
                       size_t *local_bytes);
    bool (*dtype_supported)(uint32_t dtype);
    struct be_task task;
};

/* Makes the work buffers large enough for rows of n_in values. */
static t9_status work_grow(struct serial *s, int32_t n_in, struct t9_err *err)
{
    size_t shared_bytes, local_bytes;
    if (n_in <= s->be.max_cols)
        return T9_STATUS_OK;
    s->work_bytes(s->be.max_rows, n_in, &shared_bytes, &local_bytes);
    void *shared = mem_alloc_aligned(ALIGN, shared_bytes + ALIGN);
    void *local = mem_alloc_aligned(ALIGN, local_bytes + ALIGN);
    if (!shared || !local) {
        mem_free(shared);
        mem_free(local);
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for work buffers of %zu and %zu bytes",
                       shared_bytes, local_bytes);
    }
    mem_free(s->task.shared);
    mem_free(s->task.local);
    s->task = (struct be_task){.nth = 1,
                               .shared = shared,
                               .shared_bytes = shared_bytes,
                               .local = local,
                               .local_bytes = local_bytes};
    s->be.max_cols = n_in;
    return T9_STATUS_OK;
}

static t9_status weight_load(struct be *be, struct weight *out, const struct weight_src *src,
                             struct t9_err *err)
{
    struct serial *s = (struct serial *)be;
    struct weight w;
    size_t row_bytes;
    T9_TRY(be_weight_init(&w, src, &row_bytes, err));
    if (!s->dtype_supported(src->dtype))
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s: type %s is not supported by backend %s",
                       src->name, gguf_dtype_name(src->dtype), be->name);
    T9_TRY(work_grow(s, src->n_in, err));
    char *data = mem_alloc_aligned(ALIGN, w.size_bytes);
    if (!data)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: no memory for %zu bytes", src->name,
                       w.size_bytes);
    for (size_t done = 0; done < w.size_bytes;) {
        size_t n = w.size_bytes - done;
        if (n > READ_SLICE_BYTES)
            n = READ_SLICE_BYTES;
        t9_status st = src->read(src->ctx, done, data + done, n, err);
        if (st != T9_STATUS_OK) {
            mem_free(data);
            return st;
        }
        done += n;
    }
    w.layout = WEIGHT_LAYOUT_GGUF;
    w.data = data;
    *out = w;
    return T9_STATUS_OK;
}

static void weight_free(struct be *be, struct weight *w)
{
    (void)be;
    mem_free((void *)(uintptr_t)w->data);
}

static t9_status run(struct be *be, const struct op *ops, size_t n, struct t9_err *err)
{
    struct serial *s = (struct serial *)be;
    (void)err;
    for (size_t i = 0; i < n; i++)
        s->kernels.fn[ops[i].kind](&ops[i], &s->task);
    return T9_STATUS_OK;
}

static void serial_free(struct be *be)
{
    struct serial *s = (struct serial *)be;
    mem_free(s->task.shared);
    mem_free(s->task.local);
    mem_free(s);
}

t9_status be_serial_new(struct be **out, const char *name, const struct be_params *params,
                        struct t9_err *err)
{
    static const struct be_vtbl vtbl = {
        .free = serial_free, .weight_load = weight_load, .weight_free = weight_free, .run = run};
    bool canon = strcmp(name, "canon") == 0;
    *out = NULL;
#ifndef T9_HAVE_CANON
    if (canon)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "this build has no canon backend");
#endif
    struct serial *s = mem_calloc(1, sizeof(*s));
    if (!s)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a backend");
    s->be = (struct be){.v = &vtbl,
                        .name = canon ? "canon" : "ref",
                        .isa = "scalar",
                        .numerics = canon ? "canon-1" : "ref-1",
                        .n_threads = 1,
                        .max_rows = params->max_rows};
#ifdef T9_HAVE_CANON
    if (canon) {
        canon_kernels(&s->kernels);
        s->work_bytes = canon_work_bytes;
        s->dtype_supported = canon_dtype_supported;
    }
#endif
    if (!canon) {
        ref_kernels(&s->kernels);
        s->work_bytes = ref_work_bytes;
        s->dtype_supported = dtype_can_dequantize;
    }
    t9_status st = work_grow(s, params->max_cols > 0 ? params->max_cols : 1, err);
    if (st != T9_STATUS_OK) {
        serial_free(&s->be);
        return st;
    }
    *out = &s->be;
    return T9_STATUS_OK;
}
