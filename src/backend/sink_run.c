/*
 * backend/sink_run.c - the sink that runs each op as it is submitted. Engine thread only.
 */
#include "backend/be.h"

static t9_status submit(struct cx *cx, const struct op *op)
{
    return be_run(cx->sink, op, 1, &cx->err);
}

void cx_init_run(struct cx *cx, struct be *be, struct scratch *scratch)
{
    *cx = (struct cx){.submit = submit, .sink = be, .scratch = scratch, .layer = -1};
}
