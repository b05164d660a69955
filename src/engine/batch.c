/*
 * engine/batch.c - fills struct batch in buffers that stay in place. See batch.h.
 *
 * A batch-local sequence is the engine's slot, so a slot's page table is used where it is: nothing
 * is copied per step. Slots without rows are simply not named by any row.
 */
#include "engine/batch.h"

#include "base/num.h"

#include <string.h>

/* Adds room for n items of `item_bytes` to *total, each part on its own cache line. */
static bool part(uint64_t *total, uint64_t *off, uint64_t n, uint64_t item_bytes)
{
    uint64_t bytes;
    *off = *total;
    return num_mul(n, item_bytes, &bytes) && num_add(bytes, 63, &bytes) &&
           num_add(*total, bytes & ~(uint64_t)63, total);
}

t9_status batch_buf_init(struct batch_buf *bb, struct be *be, const struct batch_limits *l,
                         const struct kv_geom *kv, void *kv_pool, void *window_pool,
                         struct t9_err *err)
{
    *bb = (struct batch_buf){.be = be, .rows_cap = l->rows, .outputs_cap = l->outputs};
    uint64_t rows = (uint64_t)l->rows;
    uint64_t outputs = (uint64_t)l->outputs;
    uint64_t total = 0;
    uint64_t at[9];
    uint64_t table;
    uint64_t n_logits;
    bool ok = num_mul((uint64_t)l->seqs, (uint64_t)l->pages, &table) &&
              num_mul(outputs, (uint64_t)l->n_vocab, &n_logits) &&
              part(&total, &at[0], rows, sizeof(int32_t)) &&
              part(&total, &at[1], rows, 3 * sizeof(int32_t)) &&
              part(&total, &at[2], rows, sizeof(int32_t)) &&
              part(&total, &at[3], rows, sizeof(int32_t)) &&
              part(&total, &at[4], outputs, sizeof(int32_t)) &&
              part(&total, &at[5], table, sizeof(int32_t)) &&
              part(&total, &at[6], (uint64_t)l->seqs, sizeof(int32_t)) &&
              part(&total, &at[7], n_logits, sizeof(float)) &&
              part(&total, &at[8], kv->window > 0 ? table : 0, sizeof(int32_t)) &&
              total <= SIZE_MAX / 2;
    if (!ok)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "step buffers of %d rows, %d sequences and %d pages each do not fit the "
                       "address space",
                       l->rows, l->seqs, l->pages);
    T9_TRY(be_reserve(be, (size_t)total, &bb->mem, err));
    char *mem = bb->mem;
    bb->mem_bytes = (size_t)total;
    bb->token = (int32_t *)(void *)(mem + at[0]);
    bb->pos = (int32_t *)(void *)(mem + at[1]);
    bb->kv_idx = (int32_t *)(void *)(mem + at[2]);
    bb->row_seq = (int32_t *)(void *)(mem + at[3]);
    bb->out_row = (int32_t *)(void *)(mem + at[4]);
    bb->page_table = (int32_t *)(void *)(mem + at[5]);
    bb->state_slot = (int32_t *)(void *)(mem + at[6]);
    bb->logits = (float *)(void *)(mem + at[7]);
    if (kv->window > 0)
        bb->window_table = (int32_t *)(void *)(mem + at[8]);
    bb->b = (struct batch){
        .n_seqs = l->seqs,
        .token = bb->token,
        .pos = bb->pos,
        .kv_idx = bb->kv_idx,
        .row_seq = bb->row_seq,
        .page_table = bb->page_table,
        .page_table_stride = l->pages,
        .kv_pool = kv_pool,
        .window_table = bb->window_table,
        .window_pool = window_pool,
        .kv = kv,
        .out_row = bb->out_row,
        .logits = bb->logits,
    };
    return T9_STATUS_OK;
}

void batch_set_states(struct batch_buf *bb, const struct state_geom *geom, void *pool)
{
    bb->b.state = geom;
    bb->b.state_pool = pool;
    bb->b.state_slot = bb->state_slot;
}

void batch_buf_deinit(struct batch_buf *bb)
{
    if (bb->mem)
        be_unreserve(bb->be, bb->mem, bb->mem_bytes);
    *bb = (struct batch_buf){0};
}

void batch_clear(struct batch_buf *bb)
{
    bb->b.n_rows = 0;
    bb->b.n_outputs = 0;
}

bool batch_add_rows(struct batch_buf *bb, int32_t seq, const int32_t *tokens, int32_t n,
                    int32_t kv_idx)
{
    int32_t first = bb->b.n_rows;
    if (n > bb->rows_cap - first)
        return false;
    memcpy(bb->token + first, tokens, (size_t)n * sizeof *tokens);
    for (int32_t i = 0; i < n; i++) {
        int32_t row = first + i;
        bb->kv_idx[row] = kv_idx + i;
        bb->row_seq[row] = seq;
        for (int32_t axis = 0; axis < 3; axis++)
            bb->pos[3 * row + axis] = kv_idx + i;
    }
    bb->b.n_rows += n;
    return true;
}

bool batch_add_output(struct batch_buf *bb)
{
    if (bb->b.n_outputs >= bb->outputs_cap || bb->b.n_rows == 0)
        return false;
    bb->out_row[bb->b.n_outputs++] = bb->b.n_rows - 1;
    return true;
}

float *batch_logits(const struct batch_buf *bb, int32_t output, int32_t n_vocab)
{
    return bb->logits + (size_t)output * (size_t)n_vocab;
}

int32_t *batch_pages(const struct batch_buf *bb, int32_t seq)
{
    return bb->page_table + (size_t)seq * (size_t)bb->b.page_table_stride;
}

int32_t *batch_windows(const struct batch_buf *bb, int32_t seq)
{
    if (!bb->window_table)
        return NULL;
    return bb->window_table + (size_t)seq * (size_t)bb->b.page_table_stride;
}

int32_t *batch_state(const struct batch_buf *bb, int32_t seq)
{
    return bb->state_slot + seq;
}
