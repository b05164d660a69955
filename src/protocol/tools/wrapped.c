/*
 * protocol/tools/wrapped.c - see wrapped.h.
 */
#include "protocol/tools/wrapped.h"

#include "protocol/tools/space.h"

#include <string.h>

enum phase {
    OUTSIDE,
    FORM, /* after a marker: JSON or Python? */
    CALL,
    PYTHON,
    AFTER, /* a call */
};

bool wrapped_open(struct wrapped *w, struct machine *m, const struct wrapper *wrappers, int which)
{
    const struct wrapper *found = &wrappers[which];
    if (found->bare && !machine_on_own_line(m)) {
        machine_text(m, str_from(found->open));
        return false;
    }
    w->which = which;
    w->phase = found->python ? FORM : CALL;
    json_call_start(&w->call, found->open, strcmp(found->open, "{") == 0, found->bare);
    return true;
}

bool wrapped_is_outside(const struct wrapped *w)
{
    return w->phase == OUTSIDE;
}

/* Goes on to the next marker; false: there is none yet. */
static bool outside(struct wrapped *w, struct machine *m, const struct wrapper *wrappers, size_t n)
{
    const char *opens[WRAPPERS_MAX + 1];
    size_t i;
    for (i = 0; i < n && i < WRAPPERS_MAX; i++)
        opens[i] = wrappers[i].open;
    opens[i] = NULL;
    int which = machine_outside(m, opens);
    if (which < 0)
        return false;
    (void)wrapped_open(w, m, wrappers, which);
    return true;
}

static bool form(struct wrapped *w, struct machine *m)
{
    str text = machine_unread(m);
    size_t at = space_skip(text, 0);
    if (at < text.n && text.p[at] == '[')
        at = space_skip(text, at + 1);
    if (at == text.n && !machine_is_last(m))
        return false;
    bool is_json = at < text.n && text.p[at] == '{';
    w->phase = is_json ? CALL : PYTHON;
    w->pycall = (struct pycall){0};
    return true;
}

static bool python(struct wrapped *w, struct machine *m, const struct wrapper *wrapper)
{
    pycall_result r = pycall_step(&w->pycall, m, wrapper->close);
    if (r == PYCALL_NONE)
        machine_text(m, str_from(wrapper->open));
    if (r != PYCALL_MORE)
        w->phase = r == PYCALL_OVER ? AFTER : OUTSIDE;
    return r != PYCALL_MORE;
}

static bool json(struct wrapped *w, struct machine *m)
{
    json_call_result r = json_call_step(&w->call, m);
    if (r != JSON_CALL_MORE)
        w->phase = r == JSON_CALL_DONE ? AFTER : OUTSIDE;
    return r != JSON_CALL_MORE;
}

static bool is_between(char c)
{
    return space_is(c) || c == ',' || c == ';' || c == ']' || c == '}';
}

/* After a call: another one, the closing marker or neither. False: too little is known. */
static bool after(struct wrapped *w, struct machine *m, const struct wrapper *wrapper)
{
    str text = machine_unread(m);
    size_t at = 0;
    while (at < text.n && is_between(text.p[at]))
        at++;
    machine_take(m, at);
    str rest = str_slice(text, at, text.n), mark = str_from(wrapper->close);
    if (rest.n > 0 && rest.p[0] == '{') {
        w->phase = CALL;
        json_call_start(&w->call, "", false, wrapper->bare);
        return true;
    }
    if (rest.n < mark.n && !machine_is_last(m) && memcmp(rest.p, mark.p, rest.n) == 0)
        return false;
    if (rest.n == 0 && !machine_is_last(m))
        return false;
    if (mark.n > 0 && str_has_prefix(rest, mark))
        machine_take(m, mark.n);
    w->phase = OUTSIDE;
    return true;
}

bool wrapped_inside(struct wrapped *w, struct machine *m, const struct wrapper *wrappers)
{
    switch (w->phase) {
    case FORM: return form(w, m);
    case CALL: return json(w, m);
    case PYTHON: return python(w, m, &wrappers[w->which]);
    default: return after(w, m, &wrappers[w->which]);
    }
}

void wrapped_step(struct wrapped *w, struct machine *m, const struct wrapper *wrappers, size_t n)
{
    bool goes_on = true;
    while (goes_on)
        goes_on = w->phase == OUTSIDE ? outside(w, m, wrappers, n) : wrapped_inside(w, m, wrappers);
}
