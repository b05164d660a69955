/*
 * protocol/tools/args.c - see args.h.
 */
#include "protocol/tools/args.h"

#include "protocol/tools/space.h"

/* As control characters in strings become longest. */
enum { ESCAPED_BYTES_MAX = 6 };

/* Hands on the first n bytes of the unread text; tells whether the object is closed. */
static bool hand_on(struct args *a, struct machine *m, size_t n)
{
    str text = str_slice(machine_unread(m), 0, n);
    size_t at = a->begun ? 0 : space_skip(text, 0);
    if (!a->begun && at < n) {
        a->begun = true;
        a->raw = text.p[at] != '{';
    }
    if (a->raw) {
        machine_args(m, str_slice(text, at, n));
        machine_take(m, n);
        return false;
    }
    struct buf out;
    buf_init(&out, (n + 1) * ESCAPED_BYTES_MAX);
    at += json_scan_push(&a->scan, str_slice(text, at, n), &out);
    if (out.failed)
        machine_fail(m, T9_STATUS_NOMEM);
    else
        machine_args(m, buf_str(&out));
    buf_deinit(&out);
    machine_take(m, at);
    return a->scan.done;
}

args_result args_step(struct args *a, struct machine *m, const char *const *ends)
{
    for (;;) {
        int which;
        str text = machine_unread(m);
        size_t at = machine_find(text, 0, ends, &which);
        if (which < 0 && machine_is_last(m))
            at = text.n;
        if (hand_on(a, m, at))
            return ARGS_WHOLE;
        if (which < 0)
            return ARGS_MORE;
        if (!a->scan.in_string)
            return ARGS_ENDED;
        (void)hand_on(a, m, str_from(ends[which]).n);
    }
}
