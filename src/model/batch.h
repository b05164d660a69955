/*
 * model/batch.h - one engine step, as a model sees it (decision D14). Filled by the engine, read by
 * forward functions. All pointers are to device memory that stays in place for the engine's life.
 *
 * Rows of one sequence are contiguous and in order; a batch mixes prefill chunks and decode rows,
 * and nothing in it says which is which (P1).
 */
#ifndef T9_MODEL_BATCH_H
#define T9_MODEL_BATCH_H

#include "backend/kv_geom.h"
#include "backend/state_geom.h"

#include <stdint.h>

struct batch {
    int32_t n_rows, n_seqs, n_outputs;

    const int32_t *token;   /* [n_rows] token id; ignored where embed_override is set */
    const int32_t *pos;     /* [n_rows][3] rotary position t, h, w; equal for text */
    const int32_t *kv_idx;  /* [n_rows] index of the row in its sequence's KV */
    const int32_t *row_seq; /* [n_rows] batch-local sequence, ascending */

    const int32_t *page_table; /* [n_seqs][page_table_stride] page ids up to every row's kv_idx */
    int32_t page_table_stride;
    void *kv_pool; /* base of the page pool */
    /* The same for window pages, where the geometry has them; NULL for other models. A page that
     * lies before all rows' windows need not be there. */
    const int32_t *window_table;
    void *window_pool;
    const struct kv_geom *kv;

    /* Of models that have a recurrent state (model_state_geom); NULL for the others. A sequence's
     * state is what it was after the last row of the step before, zeros before its first. */
    void *state_pool;
    const struct state_geom *state;
    const int32_t *state_slot; /* [n_seqs] where in the pool a sequence's state is */
    /* Rows that may be taken back (state_geom.h); NULL = none in the whole batch. Per sequence that
     * has rows: the last `state_guess` of them go to the journal and not into the state; before its
     * first row the first `state_accept` rows of the journal are taken into the state, those of the
     * step before that hold. 0 .. STATE_JOURNAL_ROWS. What is not accepted is forgotten. */
    const int32_t *state_accept, *state_guess; /* [n_seqs], both or neither */

    const int32_t *out_row; /* [n_outputs] rows whose logits are wanted, ascending */

    /* Optional, NULL when unused. A model that cannot honour one that is set refuses the batch. */
    const float *const *embed_override; /* [n_rows] pointer to f32[n_embd] (media rows) or NULL */
    int32_t n_deepstack;
    const float *const *deepstack; /* [n_deepstack][n_rows] pointers, added after layer k */
    const int32_t *span_end;       /* [n_rows] last KV index the row may see (spans that attend
                                      both ways and are never split); NULL = causal */

    float *logits; /* out [n_outputs][n_vocab] f32 */
    float *hidden; /* out [n_outputs][n_embd] post-norm hidden state; NULL when not wanted */
};

#endif
