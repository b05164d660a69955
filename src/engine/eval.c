/*
 * engine/eval.c - logits of every position of one token list, in chunks, for `eval`, `perplexity`
 * and tests. The same batches and forwards as the engine's steps, without scheduler, queue or
 * sampling. Runs on the calling thread, which must be the one that uses the backend.
 */
#include "base/mem.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/sched.h"
#include "kv/state.h"

enum { CHUNK_DEFAULT = 256 };

/* Logits of one default chunk take at most this; a chunk that the caller asked for is kept. */
#define LOGITS_BYTES_MAX ((size_t)64 << 20)

struct eval {
    const struct eval_params *p;
    const struct model_info *info;
    struct kv_geom geom;
    struct kv_pool *pool;
    struct batch_buf batch;
    struct tape tape;
    struct scratch scratch;
    int32_t chunk;
};

static t9_status eval_init(struct eval *ev, int32_t n, struct t9_err *err)
{
    const struct eval_params *p = ev->p;
    int32_t n_pages = sched_pages(n);
    struct state_geom state;
    model_state_geom(p->model, &state);
    T9_TRY(model_kv_geom(p->model, p->kv_type, &ev->geom, err));
    T9_TRY(kv_pool_new(&ev->pool, p->be, &ev->geom,
                       (uint64_t)n_pages * kv_geom_bytes(&ev->geom) + (uint64_t)state.slot_bytes,
                       err));
    T9_TRY(kv_pool_add_states(ev->pool, &state, err));
    struct batch_limits limits = {.rows = ev->chunk,
                                  .outputs = ev->chunk,
                                  .seqs = 1,
                                  .pages = n_pages,
                                  .n_vocab = ev->info->n_vocab};
    T9_TRY(batch_buf_init(&ev->batch, p->be, &limits, &ev->geom, kv_pool_base(ev->pool),
                          kv_window_base(ev->pool), err));
    size_t scratch_bytes;
    size_t n_ops;
    T9_TRY(model_measure(p->model, &ev->geom, ev->chunk, ev->chunk, &scratch_bytes, &n_ops, err));
    T9_TRY(tape_init(&ev->tape, n_ops, err));
    void *mem;
    scratch_bytes = scratch_bytes ? scratch_bytes : 1;
    T9_TRY(be_reserve(p->be, scratch_bytes, &mem, err));
    be_want_huge(p->be, mem, scratch_bytes);
    ev->scratch = (struct scratch){.base = mem, .cap = scratch_bytes};
    for (int32_t i = 0; i < n_pages; i++) {
        batch_pages(&ev->batch, 0)[i] = kv_page_alloc(ev->pool);
        if (ev->geom.window > 0)
            batch_windows(&ev->batch, 0)[i] = kv_window_alloc(ev->pool);
    }
    if (state.shape.n_layers > 0) {
        batch_set_states(&ev->batch, kv_state_geom(ev->pool), kv_state_base(ev->pool));
        *batch_state(&ev->batch, 0) = kv_state_alloc(ev->pool);
        kv_state_clear(ev->pool, *batch_state(&ev->batch, 0));
    }
    return T9_STATUS_OK;
}

static void eval_deinit(struct eval *ev)
{
    if (ev->scratch.base)
        be_unreserve(ev->p->be, ev->scratch.base, ev->scratch.cap);
    tape_deinit(&ev->tape);
    batch_buf_deinit(&ev->batch);
    kv_pool_free(ev->pool);
}

static t9_status eval_chunk(struct eval *ev, const int32_t *tokens, int32_t n, int32_t first,
                            struct t9_err *err)
{
    struct cx cx;
    batch_clear(&ev->batch);
    for (int32_t i = 0; i < n; i++) {
        if (!batch_add_rows(&ev->batch, 0, tokens + i, 1, first + i) ||
            (first + i >= ev->p->first_row && !batch_add_output(&ev->batch)))
            return t9_fail(err, T9_STATUS_INTERNAL,
                           "eval: a chunk of %d tokens exceeds its buffers", n);
    }
    ev->scratch.used = 0;
    cx_init_record(&cx, &ev->tape, &ev->scratch);
    T9_TRY(model_forward(ev->p->model, &cx, &ev->batch.b, err));
    if (cx.status != T9_STATUS_OK)
        return t9_fail(err, cx.status, "%s", cx.err.msg);
    return be_run(ev->p->be, ev->tape.ops, ev->tape.n, err);
}

static t9_status check_tokens(const struct model_info *info, const int32_t *tokens, int32_t n,
                              struct t9_err *err)
{
    if (n < 1)
        return t9_fail(err, T9_STATUS_INVALID, "eval: no tokens");
    for (int32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= info->n_vocab)
            return t9_fail(err, T9_STATUS_INVALID,
                           "eval: token %d is %d; the model knows tokens 0 to %d", i, tokens[i],
                           info->n_vocab - 1);
    }
    return T9_STATUS_OK;
}

t9_status eval_logits(const struct eval_params *p, const int32_t *tokens, int32_t n,
                      bool (*row)(void *ctx, int32_t position, const float *logits), void *ctx,
                      struct t9_err *err)
{
    struct eval ev = {.p = p, .info = model_info(p->model), .chunk = p->chunk};
    T9_TRY(check_tokens(ev.info, tokens, n, err));
    if (ev.chunk < 1) {
        size_t row_bytes = (size_t)ev.info->n_vocab * sizeof(float);
        ev.chunk = CHUNK_DEFAULT;
        while (ev.chunk > 1 && (size_t)ev.chunk * row_bytes > LOGITS_BYTES_MAX)
            ev.chunk /= 2;
    }
    if (ev.chunk > n)
        ev.chunk = n;
    t9_status st = eval_init(&ev, n, err);
    bool more = true;
    for (int32_t first = 0; st == T9_STATUS_OK && more && first < n; first += ev.chunk) {
        int32_t n_now = n - first < ev.chunk ? n - first : ev.chunk;
        st = eval_chunk(&ev, tokens + first, n_now, first, err);
        int32_t skipped = p->first_row > first ? p->first_row - first : 0;
        for (int32_t i = skipped; st == T9_STATUS_OK && more && i < n_now; i++)
            more = row(ctx, first + i, batch_logits(&ev.batch, i - skipped, ev.info->n_vocab));
    }
    eval_deinit(&ev);
    return st;
}
