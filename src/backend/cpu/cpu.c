/*
 * backend/cpu/cpu.c - the `cpu` backend: chooses an instruction set, holds the pool and its work
 * buffers, loads weights as panels, and walks tapes.
 *
 * All workers walk the same tape, op by op, with a barrier between two ops. With isa "scalar"
 * weights stay as the file has them and canon's kernels run on the pool. Created, loaded and run by
 * one thread at a time.
 */
#include "backend/be_impl.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/product.h"
#include "backend/cpu/slab.h"
#include "base/mem.h"
#include "base/thread.h"
#include "gguf/dtype.h"

#ifdef T9_CPU_X86
#    include <cpuid.h>
#endif
#include <string.h>

enum {
    ALIGN = 64,
    THREADS_MAX = 512,
    READ_SLICE_BYTES = 4 << 20,
    PARTIAL_BYTES = 8 << 20, /* attention's split states; touched only by long contexts */
    COLS_MIN = 4096,
};

struct cpu {
    struct be be; /* first: the two are cast into each other */
    struct be_kernels kernels;
    const struct cpu_isa *isa; /* NULL: scalar */
    struct pool *pool;
    struct slabs weights;
    char *shared;
    size_t shared_bytes, local_bytes;
    char *local;          /* n_threads buffers, one after the other */
    const struct op *ops; /* the tape being run */
    size_t n_ops;
};

/* Best first. */
static const struct cpu_isa *const *isa_list(void)
{
    static const struct cpu_isa *const list[] = {
#ifdef T9_CPU_X86
        &cpu_isa_avx512, &cpu_isa_avx2,
#endif
        NULL};
    return list;
}

static bool isa_runs(const struct cpu_isa *isa)
{
#ifdef T9_CPU_X86
    /* clang 14 has no name for F16C: leaf 1, ECX bit 29. */
    unsigned a, b, c = 0, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
    bool avx2 = f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (isa == &cpu_isa_avx2)
        return avx2;
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
#else
    (void)isa;
    return false;
#endif
}

/* `name` NULL: the best that runs here. *out NULL means scalar. */
static t9_status isa_choose(const struct cpu_isa **out, const char *name, struct t9_err *err)
{
    *out = NULL;
    if (name && strcmp(name, "scalar") == 0)
        return T9_STATUS_OK;
    for (const struct cpu_isa *const *i = isa_list(); *i; i++) {
        if (name && strcmp(name, (*i)->name) != 0)
            continue;
        if (isa_runs(*i)) {
            *out = *i;
            return T9_STATUS_OK;
        }
        if (name)
            return t9_fail(err, T9_STATUS_UNSUPPORTED, "this CPU has no %s", name);
    }
    if (name)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "instruction set '%s' is not known here; known: avx512, avx2, scalar", name);
    return T9_STATUS_OK;
}

static void kernels_init(struct be_kernels *k, const struct cpu_isa *isa)
{
    canon_kernels(k);
    if (!isa)
        return;
    k->fn[OP_EMBED_ROWS] = cpu_embed_rows;
    k->fn[OP_RMSNORM] = cpu_rmsnorm;
    k->fn[OP_MATMUL] = cpu_matmul;
    k->fn[OP_QK_NORM_ROPE_STORE] = cpu_qk_norm_rope_store;
    k->fn[OP_ATTN_PAGED] = cpu_attn_paged;
    k->fn[OP_ACT_MUL] = cpu_elements;
    k->fn[OP_ADD] = cpu_elements;
    k->fn[OP_SCALE] = cpu_elements;
    k->fn[OP_SOFTCAP] = cpu_elements;
    k->fn[OP_MATMUL_EXPERTS] = cpu_matmul_experts;
    k->fn[OP_MOE_COMBINE] = cpu_moe_combine;
    k->fn[OP_CONV_STATE] = cpu_conv_state;
    k->fn[OP_DELTA_PREPARE] = cpu_delta_prepare;
    k->fn[OP_DELTA_NET] = cpu_delta_net;
}

void cpu_work_bytes(int32_t max_rows, int32_t max_cols, size_t *shared_bytes, size_t *local_bytes)
{
    size_t row = cpu_act_row_bytes(max_cols), act = (size_t)max_rows * row;
    /* Experts take as many rows at a time as there is room for: at least one, in all its forms. */
    size_t expert_row = row + (size_t)max_cols * sizeof(float);
    *shared_bytes = PARTIAL_BYTES;
    *shared_bytes = act > *shared_bytes ? act : *shared_bytes;
    *shared_bytes = expert_row > *shared_bytes ? expert_row : *shared_bytes;
    /* An attention tile: q, K and V of a page, scores, two states a pair. */
    size_t state = ATTN_STATE_PAD + KV_HEAD_DIM_MAX;
    size_t attn = (2 * KV_PAGE_TOKENS * (size_t)KV_HEAD_DIM_MAX +
                   ATTN_PAIRS * ((size_t)KV_HEAD_DIM_MAX + KV_PAGE_TOKENS + 2 * state)) *
                  sizeof(float);
    /* Rows that a worker quantises for itself, then the slots of experts in order. */
    size_t slots = (size_t)max_rows * OP_SLOTS_MAX + OP_EXPERTS_MAX + 2;
    size_t experts = PRODUCT_OWN_BYTES + slots * sizeof(int32_t);
    *local_bytes = attn > experts ? attn : experts;
    *local_bytes = (*local_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Makes the work buffers large enough for rows of n_in values. */
static t9_status work_grow(struct cpu *c, int32_t n_in, struct t9_err *err)
{
    if (n_in <= c->be.max_cols)
        return T9_STATUS_OK;
    size_t shared_bytes, local_bytes;
    cpu_work_bytes(c->be.max_rows, n_in, &shared_bytes, &local_bytes);
    if (!c->local) {
        c->local = mem_alloc_aligned(ALIGN, local_bytes * (size_t)c->be.n_threads);
        c->local_bytes = local_bytes;
    }
    if (shared_bytes > c->shared_bytes) {
        char *shared = mem_alloc_aligned(ALIGN, shared_bytes);
        if (shared) {
            mem_free(c->shared);
            c->shared = shared;
            c->shared_bytes = shared_bytes;
        }
    }
    if (!c->local || c->shared_bytes < shared_bytes)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for work buffers of %zu and %zu bytes",
                       shared_bytes, local_bytes * (size_t)c->be.n_threads);
    c->be.max_cols = n_in;
    return T9_STATUS_OK;
}

/* Rows as the file has them. */
static t9_status rows_load(const struct weight_src *src, size_t size_bytes, char *p,
                           struct t9_err *err)
{
    for (size_t done = 0; done < size_bytes;) {
        size_t n = size_bytes - done;
        n = n > READ_SLICE_BYTES ? READ_SLICE_BYTES : n;
        T9_TRY(src->read(src->ctx, done, p + done, n, err));
        done += n;
    }
    return T9_STATUS_OK;
}

static t9_status weight_load(struct be *be, struct weight *out, const struct weight_src *src,
                             struct t9_err *err)
{
    struct cpu *c = (struct cpu *)be;
    struct weight w;
    struct panel_geom g;
    size_t row_bytes;
    T9_TRY(be_weight_init(&w, src, &row_bytes, err));
    if (!canon_dtype_supported(src->dtype) || !panel_geom_init(&g, src->dtype, w.n_in, w.n_out))
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "%s: type %s is no type of a weight matrix; `tempo9 inspect` lists what a "
                       "file has",
                       src->name, gguf_dtype_name(src->dtype));
    T9_TRY(work_grow(c, src->n_in, err));
    w.layout = c->isa ? WEIGHT_LAYOUT_PANEL : WEIGHT_LAYOUT_GGUF;
    if (c->isa)
        w.size_bytes = (size_t)g.n_panels * g.panel_bytes * (size_t)(w.n_experts ? w.n_experts : 1);
    void *data = slabs_alloc(&c->weights, w.size_bytes);
    if (!data)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: no memory for %zu bytes", src->name,
                       w.size_bytes);
    t9_status st = c->isa ? panel_load(&g, src, row_bytes, data, err)
                          : rows_load(src, w.size_bytes, data, err);
    if (st != T9_STATUS_OK) {
        slabs_free(&c->weights, data);
        return st;
    }
    w.data = data;
    *out = w;
    return T9_STATUS_OK;
}

static void weight_free(struct be *be, struct weight *w)
{
    slabs_free(&((struct cpu *)be)->weights, (void *)(uintptr_t)w->data);
}

static void walk(void *ctx, int ith)
{
    struct cpu *c = ctx;
    struct be_task task = {.ith = ith,
                           .nth = c->be.n_threads,
                           .shared = c->shared,
                           .shared_bytes = c->shared_bytes,
                           .local = c->local + (size_t)ith * c->local_bytes,
                           .local_bytes = c->local_bytes,
                           .pool = c->pool};
    for (size_t i = 0; i < c->n_ops; i++) {
        if (i > 0) /* the pool's own barrier ends the last op */
            pool_barrier(c->pool);
        c->kernels.fn[c->ops[i].kind](&c->ops[i], &task);
    }
}

static t9_status run(struct be *be, const struct op *ops, size_t n, struct t9_err *err)
{
    struct cpu *c = (struct cpu *)be;
    (void)err;
    c->ops = ops;
    c->n_ops = n;
    pool_run(c->pool, walk, c);
    return T9_STATUS_OK;
}

static void cpu_free(struct be *be)
{
    struct cpu *c = (struct cpu *)be;
    pool_free(c->pool);
    slabs_deinit(&c->weights);
    mem_free(c->shared);
    mem_free(c->local);
    mem_free(c);
}

t9_status be_cpu_new(struct be **out, const struct be_params *params, struct t9_err *err)
{
    static const struct be_vtbl vtbl = {
        .free = cpu_free, .weight_load = weight_load, .weight_free = weight_free, .run = run};
    const struct cpu_isa *isa;
    *out = NULL;
    T9_TRY(isa_choose(&isa, params->isa, err));
    int n_threads = params->n_threads > 0 ? params->n_threads : thread_cpu_count();
    if (n_threads > THREADS_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "%d threads; at most %d are used", n_threads,
                       THREADS_MAX);
    struct cpu *c = mem_calloc(1, sizeof(*c));
    if (!c)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a backend");
    c->isa = isa;
    c->be = (struct be){.v = &vtbl,
                        .name = "cpu",
                        .isa = isa ? isa->name : "scalar",
                        .numerics = "canon-1",
                        .n_threads = n_threads,
                        .max_rows = params->max_rows};
    kernels_init(&c->kernels, isa);
    t9_status st = work_grow(c, params->max_cols > COLS_MIN ? params->max_cols : COLS_MIN, err);
    if (st == T9_STATUS_OK)
        st = pool_new(&c->pool, n_threads, isa, err);
    if (st != T9_STATUS_OK) {
        cpu_free(&c->be);
        return st;
    }
    *out = &c->be;
    return T9_STATUS_OK;
}
