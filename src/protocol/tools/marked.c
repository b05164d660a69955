/*
 * protocol/tools/marked.c - see marked.h. A head is read where it stands and taken when it is
 * certain, so what turns out to be no call is content as the model wrote it.
 */
#include "protocol/tools/marked.h"

#include "protocol/tools/space.h"

enum { HEAD_BYTES_MAX = 1024 };
enum {
    PHASE_OUTSIDE,
    PHASE_HEAD,
    PHASE_FENCE, /* as PHASE_LANGUAGE: before the arguments */
    PHASE_LANGUAGE,
    PHASE_ARGS,
    PHASE_FENCE_END,
    PHASE_BARE,
};
enum { SECTION_BEGIN, CALL_BEGIN, SECTION_END, CALL_END, BARE };

/* Whether `text` has `marker` at `at`; it may when it ends within it. */
static marked_result marker_at(str text, size_t at, str marker)
{
    str rest = str_slice(text, at, text.n);
    if (str_has_prefix(rest, marker))
        return MARKED_HEAD;
    return str_has_prefix(marker, rest) ? MARKED_MORE : MARKED_NOT;
}

/* ---- phases: false when there must be more text ---- */

static bool outside(struct machine *m, struct marked *s, const struct marked_syntax *syntax)
{
    const char *opens[BARE + WRAPPERS_MAX + 1];
    size_t n = 0;
    for (; n < BARE; n++)
        opens[n] = syntax->markers[n];
    for (size_t i = 0; i < syntax->n_bare && i < WRAPPERS_MAX; i++)
        opens[n++] = syntax->bare[i].open;
    opens[n] = NULL;
    int which = machine_outside(m, opens);
    if (which < 0)
        return false;
    if (which == SECTION_BEGIN || which == CALL_BEGIN) {
        s->opening = (int8_t)which;
        s->phase = PHASE_HEAD;
    } else if (which >= BARE) {
        if (wrapped_open(&s->bare, m, syntax->bare, which - BARE))
            s->phase = PHASE_BARE;
    } else if (!s->ends) {
        machine_text(m, str_from(syntax->markers[which]));
    }
    return true;
}

static bool head(struct machine *m, struct marked *s, const struct marked_syntax *syntax)
{
    struct marked_head h = {0};
    marked_result r = MARKED_HEAD;
    str text = machine_unread(m);
    size_t at = 0;
    if (text.n > HEAD_BYTES_MAX)
        text.n = HEAD_BYTES_MAX;
    if (s->opening == SECTION_BEGIN) {
        str begin = str_from(syntax->markers[CALL_BEGIN]);
        at = space_skip(text, 0);
        r = marker_at(text, at, begin);
        if (r == MARKED_HEAD)
            at += begin.n;
    }
    if (r == MARKED_HEAD)
        r = syntax->head(m, str_slice(text, at, text.n), &h);
    if (r == MARKED_MORE && !machine_is_last(m) && text.n < HEAD_BYTES_MAX)
        return false;
    s->ends = r == MARKED_HEAD;
    if (r != MARKED_HEAD) {
        machine_text(m, str_from(syntax->markers[s->opening]));
        machine_text(m, str_slice(text, 0, at));
        machine_take(m, at);
        s->phase = PHASE_OUTSIDE;
        return true;
    }
    machine_call(m, h.tool, h.id);
    machine_take(m, at + h.n_bytes);
    s->args = (struct args){0};
    s->fenced = h.fenced;
    s->phase = h.fenced ? PHASE_FENCE : PHASE_ARGS;
    return true;
}

static bool args(struct machine *m, struct marked *s, const struct marked_syntax *syntax)
{
    args_result r = args_step(&s->args, m, syntax->markers);
    if (r == ARGS_MORE)
        return false;
    machine_call_end(m, true);
    s->phase = s->fenced && r == ARGS_WHOLE ? PHASE_FENCE_END : PHASE_OUTSIDE;
    return true;
}

static bool bare(struct machine *m, struct marked *s, const struct marked_syntax *syntax)
{
    bool goes_on = wrapped_inside(&s->bare, m, syntax->bare);
    if (wrapped_is_outside(&s->bare))
        s->phase = PHASE_OUTSIDE;
    return goes_on;
}

/* Takes white space and the mark, which may be absent. */
static bool optional(struct machine *m, struct marked *s, str mark, uint8_t then)
{
    machine_take(m, space_skip(machine_unread(m), 0));
    marked_result r = marker_at(machine_unread(m), 0, mark);
    if (r == MARKED_MORE && !machine_is_last(m))
        return false;
    if (r == MARKED_HEAD)
        machine_take(m, mark.n);
    s->phase = then;
    return true;
}

void marked_step(struct machine *m, struct marked *s, const struct marked_syntax *syntax)
{
    bool goes_on = true;
    while (goes_on) {
        switch (s->phase) {
        case PHASE_OUTSIDE: goes_on = outside(m, s, syntax); break;
        case PHASE_HEAD: goes_on = head(m, s, syntax); break;
        case PHASE_FENCE: goes_on = optional(m, s, STR("```"), PHASE_LANGUAGE); break;
        case PHASE_LANGUAGE: goes_on = optional(m, s, STR("json"), PHASE_ARGS); break;
        case PHASE_ARGS: goes_on = args(m, s, syntax); break;
        case PHASE_BARE: goes_on = bare(m, s, syntax); break;
        default: goes_on = optional(m, s, STR("```"), PHASE_OUTSIDE); break;
        }
    }
}
