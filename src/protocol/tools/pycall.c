/*
 * protocol/tools/pycall.c - see pycall.h. The arguments are loose.h's.
 */
#include "protocol/tools/pycall.h"

#include "protocol/tools/space.h"

enum { PHASE_NAME, PHASE_ARGS };

static const struct answer_tool *tool_of(const struct machine *m, str name)
{
    const struct answer_tool *tool = machine_tool(m, name);
    str call = STR(".call");
    if (!tool && str_has_suffix(name, call))
        tool = machine_tool(m, str_slice(name, 0, name.n - call.n));
    return tool;
}

/* Before a call, or after the last one. */
static pycall_result name(struct pycall *p, struct machine *m)
{
    str text = machine_unread(m);
    if (text.n > PYCALL_HEAD_BYTES_MAX)
        text.n = PYCALL_HEAD_BYTES_MAX;
    const char *between = p->any ? ",;" : "[";
    size_t at = space_skip(text, 0);
    while (at < text.n && memchr(between, text.p[at], strlen(between)))
        at = space_skip(text, at + 1);
    if (p->any && at < text.n && text.p[at] == ']') {
        machine_take(m, at + 1);
        return PYCALL_OVER;
    }
    size_t to = at;
    while (to < text.n && !space_is(text.p[to]) && !memchr("(<[]{}'\",;", text.p[to], 9))
        to++;
    size_t open = space_skip(text, to);
    if (open == text.n && text.n < PYCALL_HEAD_BYTES_MAX && !machine_is_last(m))
        return PYCALL_MORE;
    bool is_call = open < text.n && text.p[open] == '(';
    p->tool = is_call ? tool_of(m, str_slice(text, at, to)) : NULL;
    if (!p->tool)
        return p->any ? PYCALL_OVER : PYCALL_NONE;
    machine_call(m, p->tool, (str){0});
    machine_take(m, open + 1);
    loose_begin(&p->loose, m);
    p->any = true;
    p->phase = PHASE_ARGS;
    return PYCALL_MORE;
}

pycall_result pycall_step(struct pycall *p, struct machine *m, const char *end)
{
    const struct loose_syntax syntax = {.close = ')', .assign = '=', .is_python = true, .end = end};
    for (;;) {
        if (p->phase == PHASE_NAME) {
            pycall_result r = name(p, m);
            if (r != PYCALL_MORE || p->phase == PHASE_NAME)
                return r;
        }
        loose_result r = loose_step(&p->loose, m, &syntax, p->tool);
        if (r == LOOSE_MORE)
            return PYCALL_MORE;
        machine_call_end(m, r != LOOSE_DEEP);
        p->phase = PHASE_NAME;
        if (r != LOOSE_CLOSED)
            return PYCALL_OVER;
    }
}
