/*
 * backend/state_geom.h - how the recurrent state of a sequence lies in its slot (decision D6).
 *
 * A recurrent layer keeps a short history of rows for its causal convolution and, where it is a
 * gated delta net, a matrix for each of its value heads:
 *     slot    = state | journal
 *     state   = layer 0 | layer 1 | ...          what a snapshot copies
 *     layer   = S f32[n_heads][value_dim][key_dim] | history f32[taps - 1][channels], oldest first
 *     journal = layer 0 | layer 1 | ...
 *     layer   = rows f32[STATE_JOURNAL_ROWS][journal_cols]
 * S is transposed: the keys' dimensions of one value column are contiguous.
 *
 * The journal is for rows that may have to be taken back, such as guessed tokens. A step leaves
 * them out of the state and writes what they would change it by, their inputs, into the journal;
 * the next step says how many of them hold and takes those into the state before its own rows. So
 * nothing is copied and nothing is undone.
 */
#ifndef T9_BACKEND_STATE_GEOM_H
#define T9_BACKEND_STATE_GEOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STATE_JOURNAL_ROWS = 8,
    STATE_TAPS_MAX = 8,
    STATE_DIM_MAX = 256, /* key_dim and value_dim; kernels keep a column on the stack */
};

/* What the recurrent layers of a model are like; all of a model are alike. */
struct state_shape {
    int32_t n_layers;           /* 0: the model has no state, and all else is 0 */
    int32_t taps, channels;     /* convolution: inputs of an output; width of a row */
    int32_t n_heads;            /* value heads of the delta net; 0: only a convolution */
    int32_t n_key_heads;        /* 1 .. n_heads, divides it */
    int32_t key_dim, value_dim; /* of a head */
};

struct state_geom {
    struct state_shape shape;
    size_t matrix_bytes;   /* S of one head */
    size_t history_offset; /* bytes from a layer's S to its history */
    size_t layer_bytes;    /* of the state */
    size_t state_bytes;    /* of all layers: what a snapshot holds */
    int32_t conv_cols;     /* of a journal row: the convolution's input, then ... */
    int32_t delta_cols;    /* ... k, v of all heads, decay and beta: see op_delta_net */
    size_t journal_layer_bytes;
    size_t slot_bytes; /* state and journal, a multiple of 4096 */
};

/* Fills *g; false when a size is out of range. n_layers 0 gives all zeros and true. */
bool state_geom_init(struct state_geom *g, const struct state_shape *shape);

static inline char *state_slot(const struct state_geom *g, void *pool, int32_t slot)
{
    return (char *)pool + (size_t)slot * g->slot_bytes;
}
/* S of a head. */
static inline float *state_matrix(const struct state_geom *g, void *pool, int32_t slot,
                                  int32_t layer, int32_t head)
{
    return (float *)(void *)(state_slot(g, pool, slot) + (size_t)layer * g->layer_bytes +
                             (size_t)head * g->matrix_bytes);
}
/* Row 0 of a layer's history, the oldest. */
static inline float *state_history(const struct state_geom *g, void *pool, int32_t slot,
                                   int32_t layer)
{
    return (float *)(void *)(state_slot(g, pool, slot) + (size_t)layer * g->layer_bytes +
                             g->history_offset);
}
/* The convolution's part of a journal row: f32[conv_cols]. */
static inline float *state_journal_conv(const struct state_geom *g, void *pool, int32_t slot,
                                        int32_t layer, int32_t row)
{
    return (float *)(void *)(state_slot(g, pool, slot) + g->state_bytes +
                             (size_t)layer * g->journal_layer_bytes) +
           (size_t)row * (size_t)(g->conv_cols + g->delta_cols);
}
/* The delta net's part: f32[delta_cols]. */
static inline float *state_journal_delta(const struct state_geom *g, void *pool, int32_t slot,
                                         int32_t layer, int32_t row)
{
    return state_journal_conv(g, pool, slot, layer, row) + g->conv_cols;
}

#endif
