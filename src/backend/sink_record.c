/*
 * backend/sink_record.c - the sink that appends ops to a fixed tape. be_run(tape->ops, tape->n)
 * runs it; the tape holds addresses, so what the views point to must stay in place. Engine thread
 * only.
 */
#include "backend/be.h"
#include "base/mem.h"

t9_status tape_init(struct tape *t, size_t cap, struct t9_err *err)
{
    *t = (struct tape){0};
    t->ops = mem_calloc(cap ? cap : 1, sizeof(*t->ops));
    if (!t->ops)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a tape of %zu ops", cap);
    t->cap = cap;
    return T9_STATUS_OK;
}

void tape_deinit(struct tape *t)
{
    if (!t)
        return;
    mem_free(t->ops);
    *t = (struct tape){0};
}

static t9_status submit(struct cx *cx, const struct op *op)
{
    struct tape *t = cx->sink;
    if (t->n == t->cap)
        return t9_fail(&cx->err, T9_STATUS_INTERNAL, "the tape of %zu ops is full at %s, layer %d",
                       t->cap, op_kind_name((op_kind)op->kind), op->layer);
    t->ops[t->n++] = *op;
    return T9_STATUS_OK;
}

void cx_init_record(struct cx *cx, struct tape *tape, struct scratch *scratch)
{
    tape->n = 0;
    *cx = (struct cx){.submit = submit, .sink = tape, .scratch = scratch, .layer = -1};
}
