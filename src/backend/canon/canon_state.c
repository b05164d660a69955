/*
 * backend/canon/canon_state.c - the ops of recurrent layers: the definition.
 *
 * A channel of the convolution is independent of the others, in its history and its journal too, so
 * workers share out channels and each walks the rows of every sequence.
 */
#include "backend/canon/canon.h"

#include "backend/det_math.h"

enum { CHANNELS = 256 }; /* of one run: their inputs stay in the nearest cache */

static void conv_row(float *dst, const float *const *rows, const float *w, size_t stride,
                     int32_t taps, int32_t n, bool silu)
{
    for (int32_t i = 0; i < n; i++) {
        float sum = 0;
        for (int32_t j = 0; j < taps; j++)
            sum = fmaf(w[(size_t)j * stride + (size_t)i], rows[j][i], sum);
        dst[i] = silu ? det_silu(sum) : sum;
    }
}

/* Channels [lo, lo + n) of a sequence's rows, then of its state. */
static void conv_channels(const struct op *op, const struct state_rows *r, int32_t lo, int32_t n,
                          conv_row_fn fn)
{
    const float *rows[STATE_TAPS_MAX], *w = op->w[0]->data;
    int32_t taps = op->state->shape.taps;
    for (int32_t t = 0; t < r->n; t++) {
        for (int32_t j = 0; j < taps; j++)
            rows[j] = conv_input(op, r, r->n_accept + t + j) + lo;
        fn(view_row(&op->dst[0], r->first + t) + lo, rows, w + lo,
           (size_t)op->state->shape.channels, taps, n, op->i[1] != 0);
    }
    conv_advance(op, r, lo, n);
}

void canon_conv_state_by(const struct op *op, struct be_task *t, conv_row_fn fn)
{
    struct state_rows r = {0};
    int32_t n = op->state->shape.channels;
    int64_t lo, hi;
    task_slice(t, (n + CHANNELS - 1) / CHANNELS, &lo, &hi);
    while (state_rows_next(op, &r)) {
        for (int32_t c = (int32_t)lo * CHANNELS; c < (int32_t)hi * CHANNELS && c < n; c += CHANNELS)
            conv_channels(op, &r, c, n - c < CHANNELS ? n - c : CHANNELS, fn);
    }
}

void canon_conv_state(const struct op *op, struct be_task *t)
{
    canon_conv_state_by(op, t, conv_row);
}
