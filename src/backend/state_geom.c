/*
 * backend/state_geom.c - sizes of a recurrent state. See state_geom.h. Any thread.
 */
#include "backend/state_geom.h"

enum {
    LAYERS_MAX = 1024,
    CHANNELS_MAX = 1 << 18,
    HEADS_MAX = 1024,
    ALIGN = 64, /* of a layer: a cache line */
    SLOT_ALIGN = 4096,
};

static size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static bool in_range(int32_t v, int32_t max)
{
    return v >= 1 && v <= max;
}

static bool shape_is_good(const struct state_shape *s)
{
    if (!in_range(s->n_layers, LAYERS_MAX) || !in_range(s->taps, STATE_TAPS_MAX) || s->taps < 2 ||
        !in_range(s->channels, CHANNELS_MAX))
        return false;
    if (s->n_heads == 0)
        return s->n_key_heads == 0 && s->key_dim == 0 && s->value_dim == 0;
    return in_range(s->n_heads, HEADS_MAX) && in_range(s->n_key_heads, s->n_heads) &&
           s->n_heads % s->n_key_heads == 0 && in_range(s->key_dim, STATE_DIM_MAX) &&
           in_range(s->value_dim, STATE_DIM_MAX);
}

bool state_geom_init(struct state_geom *g, const struct state_shape *shape)
{
    *g = (struct state_geom){0};
    if (shape->n_layers == 0)
        return true;
    if (!shape_is_good(shape))
        return false;
    const struct state_shape *s = &g->shape;
    g->shape = *shape;
    /* At most 2^10 layers * (2^10 heads * 2^16 values + 2^3 * 2^18) * 4 bytes < 2^39. */
    g->matrix_bytes = (size_t)s->value_dim * (size_t)s->key_dim * sizeof(float);
    g->history_offset = align_up((size_t)s->n_heads * g->matrix_bytes, ALIGN);
    g->layer_bytes = align_up(
        g->history_offset + (size_t)(s->taps - 1) * (size_t)s->channels * sizeof(float), ALIGN);
    g->state_bytes = g->layer_bytes * (size_t)s->n_layers;
    g->conv_cols = s->channels;
    g->delta_cols = s->n_key_heads * s->key_dim + s->n_heads * (s->value_dim + 2);
    g->journal_layer_bytes = align_up(
        STATE_JOURNAL_ROWS * (size_t)(g->conv_cols + g->delta_cols) * sizeof(float), ALIGN);
    g->slot_bytes =
        align_up(g->state_bytes + g->journal_layer_bytes * (size_t)s->n_layers, SLOT_ALIGN);
    return true;
}
