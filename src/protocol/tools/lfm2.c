/*
 * protocol/tools/lfm2.c - LFM2 and LFM2.5:
 *
 *   <|tool_call_start|>[NAME(key="text", other=1), NAME2()]<|tool_call_end|>
 *
 * or, when the system prompt asks for it, a list of JSON objects in the same place.
 */
#include "protocol/tools/json_list.h"
#include "protocol/tools/pycall.h"

#define CALL_BEGIN "<|tool_call_start|>"
#define CALL_END   "<|tool_call_end|>"

struct state {
    enum { PHASE_OUTSIDE, PHASE_FORM, PHASE_CALLS, PHASE_LIST } phase;
    bool ends; /* the end marker belongs to a call, it is no text */
    struct pycall calls;
    struct json_list list;
};

/* ---- phases: false when there must be more text ---- */

static bool outside(struct machine *m, struct state *s)
{
    static const char *const markers[] = {CALL_BEGIN, CALL_END, NULL};
    int which = machine_outside(m, markers);
    if (which < 0)
        return false;
    if (which == 0)
        s->phase = PHASE_FORM;
    else if (!s->ends)
        machine_text(m, STR(CALL_END));
    return true;
}

/* Python or JSON? */
static bool form(struct machine *m, struct state *s)
{
    json_list_fit fit = json_list_ahead(m, PYCALL_HEAD_BYTES_MAX);
    if (fit == JSON_LIST_MAYBE)
        return false;
    s->phase = fit == JSON_LIST_YES ? PHASE_LIST : PHASE_CALLS;
    s->calls = (struct pycall){0};
    json_list_start(&s->list, CALL_BEGIN);
    return true;
}

static bool calls(struct machine *m, struct state *s)
{
    pycall_result r = pycall_step(&s->calls, m, CALL_END);
    if (r == PYCALL_MORE)
        return false;
    if (r == PYCALL_NONE)
        machine_text(m, STR(CALL_BEGIN));
    s->ends = r == PYCALL_OVER;
    s->phase = PHASE_OUTSIDE;
    return true;
}

static void step(struct machine *m, void *state)
{
    struct state *s = state;
    bool goes_on = true;
    while (goes_on) {
        switch (s->phase) {
        case PHASE_OUTSIDE: goes_on = outside(m, s); break;
        case PHASE_FORM: goes_on = form(m, s); break;
        case PHASE_CALLS: goes_on = calls(m, s); break;
        case PHASE_LIST:
            goes_on = !json_list_goes_on(&s->list, m);
            if (goes_on) {
                s->ends = s->list.between;
                s->phase = PHASE_OUTSIDE;
            }
            break;
        }
    }
}

static bool fits(const struct dialect_model *m)
{
    return dialect_knows(m, CALL_BEGIN);
}

static const char *const shown[] = {CALL_BEGIN, CALL_END, "<think>", "</think>", NULL};

const struct dialect dialect_lfm2 = {.name = "lfm2",
                                     .fits = fits,
                                     .shown = shown,
                                     .think_open = "<think>",
                                     .think_close = "</think>",
                                     .state_bytes = sizeof(struct state),
                                     .step = step};
