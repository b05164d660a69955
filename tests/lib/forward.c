/* tests/lib/forward.c - see forward.h. */
#include "lib/forward.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { PAGES_PER_SEQ = 64 };

static t9_status no_memory(struct t9_err *err)
{
    return t9_fail(err, T9_STATUS_NOMEM, "no memory for a forward");
}

static int32_t *ints(size_t n)
{
    return mem_calloc(n, sizeof(int32_t));
}

static t9_status alloc_batch(struct fwd *f, struct t9_err *err)
{
    size_t rows = (size_t)f->p.max_rows, n_vocab = (size_t)model_info(f->m)->n_vocab;
    f->token = ints(rows);
    f->pos = ints(rows * 3);
    f->kv_idx = ints(rows);
    f->row_seq = ints(rows);
    f->page_table = ints(rows * PAGES_PER_SEQ);
    f->out_row = ints(rows);
    f->slot = ints(rows);
    f->accept = ints(rows);
    f->guess = ints(rows);
    f->logits = mem_calloc(rows * n_vocab, sizeof(float));
    f->free_page = ints((size_t)f->p.n_pages);
    f->media = mem_calloc((1 + FWD_DEEPSTACK_MAX) * rows, sizeof(*f->media));
    if (!f->media || !f->token || !f->pos || !f->kv_idx || !f->row_seq || !f->page_table ||
        !f->out_row || !f->slot || !f->accept || !f->guess || !f->logits || !f->free_page)
        return no_memory(err);
    return T9_STATUS_OK;
}

/* The free list ends in the page that is taken next. */
static void shuffle_pages(struct fwd *f)
{
    uint32_t x = f->p.page_seed;
    f->n_free = f->p.n_pages;
    for (int32_t i = 0; i < f->n_free; i++)
        f->free_page[i] = f->n_free - 1 - i;
    for (int32_t i = f->n_free - 1; x != 0 && i > 0; i--) {
        x = x * 1664525u + 1013904223u;
        int32_t j = (int32_t)((x >> 8) % (uint32_t)(i + 1)), t = f->free_page[i];
        f->free_page[i] = f->free_page[j];
        f->free_page[j] = t;
    }
}

static t9_status open_all(struct fwd *f, const char *path, struct t9_err *err)
{
    struct be_params bp = {.n_threads = f->p.n_threads, .isa = f->p.isa, .max_rows = f->p.max_rows};
    size_t n_ops;
    T9_TRY(gguf_open(&f->g, path, err));
    T9_TRY(be_new(&f->be, f->p.backend, &bp, err));
    T9_TRY(model_load(&f->m, f->g, f->be, NULL, err));
    T9_TRY(model_kv_geom(f->m, f->p.kv_type, &f->kv, err));
    T9_TRY(model_measure(f->m, &f->kv, f->p.max_rows, f->p.max_rows, &f->scratch.cap, &n_ops, err));
    T9_TRY(tape_init(&f->tape, n_ops, err));
    f->scratch.base = mem_alloc_aligned(64, f->scratch.cap);
    if (!f->scratch.base)
        return no_memory(err);
    T9_TRY(be_reserve(f->be, (size_t)f->p.n_pages * kv_geom_bytes(&f->kv), &f->pool, err));
    /* What a page held before must not matter, whatever it is. */
    memset(f->pool, 0xFF, (size_t)f->p.n_pages * kv_geom_bytes(&f->kv));
    model_state_geom(f->m, &f->state);
    if (f->state.slot_bytes > 0) {
        f->state_pool = mem_alloc_aligned(64, FWD_SLOTS * f->state.slot_bytes);
        if (!f->state_pool)
            return no_memory(err);
        memset(f->state_pool, 0xFF, FWD_SLOTS * f->state.slot_bytes);
    }
    return alloc_batch(f, err);
}

t9_status fwd_open(struct fwd *f, const char *path, const struct fwd_params *p, struct t9_err *err)
{
    *f = (struct fwd){.p = *p};
    if (f->p.max_rows == 0)
        f->p.max_rows = 64;
    if (f->p.n_pages == 0)
        f->p.n_pages = 64;
    t9_status st = open_all(f, path, err);
    if (st != T9_STATUS_OK)
        fwd_close(f);
    else
        shuffle_pages(f);
    return st;
}

void fwd_close(struct fwd *f)
{
    if (f->pool)
        be_unreserve(f->be, f->pool, (size_t)f->p.n_pages * kv_geom_bytes(&f->kv));
    tape_deinit(&f->tape);
    mem_free(f->scratch.base);
    mem_free(f->token);
    mem_free(f->pos);
    mem_free(f->kv_idx);
    mem_free(f->row_seq);
    mem_free(f->page_table);
    mem_free(f->out_row);
    mem_free(f->slot);
    mem_free(f->accept);
    mem_free(f->guess);
    mem_free(f->state_pool);
    mem_free(f->logits);
    mem_free(f->free_page);
    mem_free(f->media);
    model_free(f->m);
    be_free(f->be);
    gguf_close(f->g);
    *f = (struct fwd){0};
}

t9_status fwd_seq_init(struct fwd *f, struct fwd_seq *s, const int32_t *tokens, int32_t n,
                       int32_t cap, struct t9_err *err)
{
    *s = (struct fwd_seq){.tokens = tokens, .n = n, .cap = cap};
    while (s->slot < FWD_SLOTS && (f->used_slots >> s->slot & 1) != 0)
        s->slot++;
    if (s->slot == FWD_SLOTS)
        return t9_fail(err, T9_STATUS_BUSY, "no free slot");
    f->used_slots |= 1u << s->slot;
    if (f->state_pool)
        memset(state_slot(&f->state, f->state_pool, s->slot), 0, f->state.state_bytes);
    s->pages = ints(PAGES_PER_SEQ);
    s->logits = mem_calloc((size_t)cap, sizeof(float) * (size_t)model_info(f->m)->n_vocab);
    return s->pages && s->logits ? T9_STATUS_OK : no_memory(err);
}

void fwd_seq_deinit(struct fwd *f, struct fwd_seq *s)
{
    if (s->cap > 0)
        f->used_slots &= ~(1u << s->slot);
    while (s->n_pages > 0)
        f->free_page[f->n_free++] = s->pages[--s->n_pages];
    mem_free(s->pages);
    mem_free(s->logits);
    *s = (struct fwd_seq){0};
}

static t9_status need_pages(struct fwd *f, struct fwd_seq *s, int32_t n_tokens, struct t9_err *err)
{
    while (s->n_pages * KV_PAGE_TOKENS < n_tokens) {
        if (f->n_free == 0 || s->n_pages == PAGES_PER_SEQ)
            return t9_fail(err, T9_STATUS_BUSY, "no free page");
        s->pages[s->n_pages++] = f->free_page[--f->n_free];
    }
    return T9_STATUS_OK;
}

/* Appends a chunk's rows to the batch arrays. */
static t9_status add_rows(struct fwd *f, struct batch *b, struct fwd_seq *s,
                          const struct fwd_chunk *c, struct t9_err *err)
{
    int32_t n = c->n, n_true = n - c->guess + c->good;
    if (n < 1 || c->guess > STATE_JOURNAL_ROWS || c->guess > n || c->good > c->guess ||
        s->done + n > s->n || s->done + n > s->cap || b->n_rows + n > f->p.max_rows)
        return t9_fail(err, T9_STATUS_INVALID, "a chunk of %d at %d of %d", n, s->done, s->n);
    T9_TRY(need_pages(f, s, s->done + n, err));
    memcpy(f->page_table + (size_t)b->n_seqs * PAGES_PER_SEQ, s->pages,
           PAGES_PER_SEQ * sizeof(int32_t));
    for (int32_t i = 0; i < n; i++) {
        int32_t row = b->n_rows++, at = s->done + i;
        f->token[row] =
            i < n_true ? s->tokens[at] : (s->tokens[at] + 1) % model_info(f->m)->n_vocab;
        for (int32_t k = 0; k < 3; k++)
            f->pos[3 * row + k] = s->media ? s->media->pos[3 * at + k] : at;
        f->kv_idx[row] = at;
        f->row_seq[row] = b->n_seqs;
        f->out_row[row] = row;
    }
    f->slot[b->n_seqs] = s->slot;
    f->accept[b->n_seqs] = s->accept;
    f->guess[b->n_seqs] = c->guess;
    if (s->accept > 0 || c->guess > 0) {
        b->state_accept = f->accept;
        b->state_guess = f->guess;
    }
    b->n_seqs++;
    return T9_STATUS_OK;
}

/* Points the batch to what is given for its rows, once they are all there. */
static void add_media(struct fwd *f, struct batch *b, const struct fwd_seq *seqs,
                      const struct fwd_chunk *chunks)
{
    size_t rows = (size_t)b->n_rows, width = (size_t)model_info(f->m)->n_embd;
    memset(f->media, 0, (1 + FWD_DEEPSTACK_MAX) * rows * sizeof(*f->media));
    for (size_t r = 0; r < rows; r++) {
        const struct fwd_media *m = seqs[chunks[b->row_seq[r]].seq].media;
        int32_t i = m ? b->kv_idx[r] - m->first : -1;
        if (i < 0 || i >= m->n_rows)
            continue;
        b->embed_override = f->media;
        b->deepstack = f->media + rows;
        b->n_deepstack = m->n_deepstack;
        for (int32_t k = 0; k <= m->n_deepstack; k++)
            f->media[(size_t)k * rows + r] =
                m->values + ((size_t)k * (size_t)m->n_rows + (size_t)i) * width;
    }
}

/* Distance between the k-th largest of n values and the next, in their deviations. */
static float margin_of(const float *x, int32_t n, int32_t k)
{
    float mean = 0, var = 0, kth = INFINITY, next;
    for (int32_t i = 0; i < n; i++)
        mean += x[i] / (float)n;
    for (int32_t i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / (float)n;
    for (;;) { /* downwards, one value at a time */
        next = -INFINITY;
        for (int32_t i = 0; i < n; i++)
            next = x[i] < kth && x[i] > next ? x[i] : next;
        if (k-- == 0)
            return (kth - next) / sqrtf(var);
        kth = next;
    }
}

/* What the experts of a row are chosen by: logits, or their sigmoids with a bias. */
static void chosen_by(const struct op *op, int32_t row, float *out)
{
    const float *logits = (const float *)op->src[0].p + (size_t)row * (size_t)op->src[0].stride;
    const float *bias = op->w[1] ? op->w[1]->data : NULL;
    for (int32_t e = 0; e < op->src[0].cols; e++) {
        bool sigmoid = (op->flags & OP_FLAG_SIGMOID) != 0;
        out[e] = sigmoid ? 1 / (1 + expf(-logits[e])) + (bias ? bias[e] : 0) : logits[e];
    }
}

/* Runs each op, and looks at what experts are chosen by. */
static t9_status spy(struct cx *cx, const struct op *op)
{
    struct fwd *f = cx->sink;
    T9_TRY(be_run(f->be, op, 1, &cx->err));
    for (int32_t r = 0; op->kind == OP_MOE_ROUTE && r < op->src[0].rows; r++) {
        float by[OP_EXPERTS_MAX];
        chosen_by(op, r, by);
        float m = op->dst[1].cols < op->src[0].cols
                      ? margin_of(by, op->src[0].cols, op->dst[1].cols)
                      : INFINITY;
        float *least = &f->margin[f->kv_idx[r]];
        *least = m < *least ? m : *least;
    }
    return T9_STATUS_OK;
}

t9_status fwd_step(struct fwd *f, struct fwd_seq *seqs, const struct fwd_chunk *chunks,
                   int32_t n_chunks, struct t9_err *err)
{
    size_t n_vocab = (size_t)model_info(f->m)->n_vocab;
    struct cx cx;
    struct batch b = {.token = f->token,
                      .pos = f->pos,
                      .kv_idx = f->kv_idx,
                      .row_seq = f->row_seq,
                      .page_table = f->page_table,
                      .page_table_stride = PAGES_PER_SEQ,
                      .kv_pool = f->pool,
                      .window_table = f->page_table,
                      .window_pool = (char *)f->pool + (size_t)f->p.n_pages * f->kv.page_bytes,
                      .kv = &f->kv,
                      .state_pool = f->state_pool,
                      .state = &f->state,
                      .state_slot = f->slot,
                      .out_row = f->out_row,
                      .logits = f->logits};
    for (int32_t i = 0; i < n_chunks; i++)
        T9_TRY(add_rows(f, &b, &seqs[chunks[i].seq], &chunks[i], err));
    b.n_outputs = b.n_rows;
    add_media(f, &b, seqs, chunks);
    if (f->compare)
        cx_init_compare(&cx, f->compare, &f->scratch);
    else if (f->margin)
        cx = (struct cx){.submit = spy, .sink = f, .scratch = &f->scratch, .layer = -1};
    else
        cx_init_record(&cx, &f->tape, &f->scratch);
    T9_TRY(model_forward(f->m, &cx, &b, err));
    if (!f->compare && !f->margin)
        T9_TRY(be_run(f->be, f->tape.ops, f->tape.n, err));
    const float *from = f->logits;
    for (int32_t i = 0; i < n_chunks; i++) {
        struct fwd_seq *s = &seqs[chunks[i].seq];
        int32_t n_true = chunks[i].n - chunks[i].guess + chunks[i].good;
        memcpy(s->logits + (size_t)s->done * n_vocab, from,
               (size_t)n_true * n_vocab * sizeof(float));
        s->done += n_true;
        s->accept = chunks[i].good;
        from += (size_t)chunks[i].n * n_vocab;
    }
    return T9_STATUS_OK;
}

t9_status fwd_run(struct fwd *f, struct fwd_seq *s, int32_t chunk, struct t9_err *err)
{
    while (s->done < s->n) {
        int32_t left = s->n - s->done;
        struct fwd_chunk c = {.seq = 0, .n = left < chunk ? left : chunk};
        T9_TRY(fwd_step(f, s, &c, 1, err));
    }
    return T9_STATUS_OK;
}

const float *fwd_logits(const struct fwd *f, const struct fwd_seq *s, int32_t pos)
{
    return s->logits + (size_t)pos * (size_t)model_info(f->m)->n_vocab;
}

int32_t fwd_argmax(const float *logits, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best])
            best = i;
    }
    return best;
}
