/*
 * protocol/tools/typed.c - see typed.h.
 */
#include "protocol/tools/typed.h"

/* Six bytes for one are the most that escaping makes. */
static void out_init(struct buf *out, const struct machine *m)
{
    buf_init(out, machine_params(m)->max_bytes * 6 + 64);
}

static void out_done(struct buf *out, struct machine *m, size_t from, size_t to)
{
    if (out->failed)
        machine_fail(m, T9_STATUS_NOMEM);
    else
        machine_args(m, str_slice(buf_str(out), from, to));
    buf_deinit(out);
}

void typed_key(struct typed *a, struct machine *m, str key)
{
    struct buf out;
    out_init(&out, m);
    buf_putc(&out, a->open ? ',' : '{');
    json_write_str(&out, key);
    buf_putc(&out, ':');
    a->open = true;
    out_done(&out, m, 0, out.n);
}

void typed_value(struct machine *m, unsigned types, str raw)
{
    struct buf out;
    out_init(&out, m);
    typing_write(&out, types, raw);
    out_done(&out, m, 0, out.n);
}

void typed_quote(struct machine *m)
{
    machine_args(m, STR("\""));
}

void typed_text(struct machine *m, str piece)
{
    struct buf out;
    if (piece.n == 0)
        return;
    out_init(&out, m);
    json_write_str(&out, piece);
    out_done(&out, m, 1, out.n ? out.n - 1 : 0);
}

void typed_end(struct typed *a, struct machine *m)
{
    if (a->open)
        machine_args(m, STR("}"));
    *a = (struct typed){0};
}
