/*
 * backend/sink_measure.c - the sink that runs nothing: it counts ops and the largest sizes, while
 * the context's scratch counts bytes. Any thread.
 */
#include "backend/be.h"

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static t9_status submit(struct cx *cx, const struct op *op)
{
    struct measure *m = cx->sink;
    m->n_ops++;
    for (int k = 0; k < op->n_dst; k++)
        m->max_rows = larger(m->max_rows, op->dst[k].rows);
    for (int k = 0; k < op->n_w; k++) {
        if (op->w[k] && op->w[k]->layout != WEIGHT_LAYOUT_VECTOR)
            m->max_cols = larger(m->max_cols, op->w[k]->n_in);
    }
    return T9_STATUS_OK;
}

void cx_init_measure(struct cx *cx, struct measure *m, struct scratch *scratch)
{
    *m = (struct measure){0};
    *scratch = (struct scratch){0};
    *cx = (struct cx){.submit = submit, .sink = m, .scratch = scratch, .layer = -1};
}
