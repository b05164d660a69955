/*
 * backend/ref/ref_state.c - the ops of recurrent layers. Sums are taken in double; a state is
 * float32, as it is stored.
 */
#include "backend/ref/ref.h"

#include <math.h>

/* One channel of one row. */
static float conv(const struct op *op, const struct state_rows *r, int32_t t, int32_t c)
{
    const float *w = op->w[0]->data;
    double sum = 0;
    for (int32_t j = 0; j < op->state->shape.taps; j++)
        sum += (double)w[(size_t)j * (size_t)op->state->shape.channels + (size_t)c] *
               (double)conv_input(op, r, r->n_accept + t + j)[c];
    float y = (float)sum;
    return op->i[1] ? y / (1.0f + expf(-y)) : y;
}

void ref_conv_state(const struct op *op, struct be_task *t)
{
    struct state_rows r = {0};
    while (state_rows_next(op, &r)) {
        for (int32_t c = t->ith; c < op->state->shape.channels; c += t->nth) {
            for (int32_t i = 0; i < r.n; i++)
                ref_row(&op->dst[0], r.first + i)[c] = conv(op, &r, i, c);
            conv_advance(op, &r, c, 1);
        }
    }
}
