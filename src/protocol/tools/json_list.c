/*
 * protocol/tools/json_list.c - see json_list.h.
 */
#include "protocol/tools/json_list.h"

#include "protocol/tools/space.h"

json_list_fit json_list_ahead(const struct machine *m, size_t max_bytes)
{
    str text = machine_unread(m);
    if (text.n > max_bytes)
        text.n = max_bytes;
    size_t at = space_skip(text, 0);
    if (at < text.n && text.p[at] == '[')
        at = space_skip(text, at + 1);
    if (at < text.n)
        return text.p[at] == '{' ? JSON_LIST_YES : JSON_LIST_NO;
    return at < max_bytes && !machine_is_last(m) ? JSON_LIST_MAYBE : JSON_LIST_NO;
}

void json_list_start(struct json_list *l, const char *prefix)
{
    l->between = false;
    json_call_start(&l->call, prefix, false, false);
}

bool json_list_goes_on(struct json_list *l, struct machine *m)
{
    for (;;) {
        if (!l->between) {
            json_call_result r = json_call_step(&l->call, m);
            if (r != JSON_CALL_DONE)
                return r == JSON_CALL_MORE;
            l->between = true;
        }
        str text = machine_unread(m);
        size_t at = 0;
        while (at < text.n && (space_is(text.p[at]) || memchr(",;]}", text.p[at], 4)))
            at++;
        machine_take(m, at);
        if (at == text.n)
            return !machine_is_last(m);
        if (text.p[at] != '{')
            return false;
        json_list_start(l, "");
    }
}
