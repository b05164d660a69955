/*
 * engine/batch.h - private to engine/: the buffers behind `struct batch`, filled row by row.
 *
 * They are reserved address space, touched only where used, so neither a large step nor a large
 * declared length costs memory before it is used. One thread.
 */
#ifndef T9_ENGINE_BATCH_H
#define T9_ENGINE_BATCH_H

#include "backend/be.h"
#include "base/err.h"
#include "model/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct batch_buf {
    struct be *be;
    void *mem;
    size_t mem_bytes;
    int32_t rows_cap, outputs_cap;
    int32_t *token, *pos, *kv_idx, *row_seq, *out_row;
    int32_t *page_table;
    int32_t *window_table; /* NULL: there are no window pages */
    int32_t *state_slot;
    float *logits;
    struct batch b; /* points into the buffers */
};

struct batch_limits {
    int32_t rows, outputs, seqs;
    int32_t pages; /* of one sequence: the page table's stride */
    int32_t n_vocab;
};

/* window_pool: where window pages lie, if the geometry has them. */
t9_status batch_buf_init(struct batch_buf *bb, struct be *be, const struct batch_limits *l,
                         const struct kv_geom *kv, void *kv_pool, void *window_pool,
                         struct t9_err *err);
/* The model has states: they lie at `pool`. Rows are never marked as ones to be taken back. */
void batch_set_states(struct batch_buf *bb, const struct state_geom *geom, void *pool);
void batch_buf_deinit(struct batch_buf *bb); /* accepts a zeroed one */
/* Empties the batch; page tables stay. */
void batch_clear(struct batch_buf *bb);
/* Appends n rows of sequence `seq`: tokens at indices kv_idx .. kv_idx + n - 1 of it. Sequences
 * come in ascending order. False when the rows do not fit. */
bool batch_add_rows(struct batch_buf *bb, int32_t seq, const int32_t *tokens, int32_t n,
                    int32_t kv_idx);
/* Asks for the logits of the row added last; they will be at batch_logits(bb, n_outputs - 1). */
bool batch_add_output(struct batch_buf *bb);
float *batch_logits(const struct batch_buf *bb, int32_t output, int32_t n_vocab);
/* The page table of one sequence, [pages]. */
int32_t *batch_pages(const struct batch_buf *bb, int32_t seq);
/* The same of window pages; NULL without them. */
int32_t *batch_windows(const struct batch_buf *bb, int32_t seq);
/* Where the state of one sequence is. */
int32_t *batch_state(const struct batch_buf *bb, int32_t seq);

#endif
