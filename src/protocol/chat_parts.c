/*
 * protocol/chat_parts.c - see chat_parts.h.
 */
#include "protocol/chat_parts.h"

#include <string.h>

t9_status chat_join_parts(struct policy_ctx *c, const char *where, yyjson_val *parts,
                          chat_part_fn part_text, str *out)
{
    size_t n_bytes = 0, idx, max, at = 0;
    yyjson_val *part;
    str text = {0};
    yyjson_arr_foreach(parts, idx, max, part)
    {
        T9_TRY(part_text(c, where, part, &text));
        n_bytes += text.n + (idx ? 1 : 0);
    }
    if (yyjson_arr_size(parts) == 1) {
        *out = text;
        return T9_STATUS_OK;
    }
    char *p = arena_alloc(&c->request->arena, n_bytes + 1);
    if (!p)
        return chat_fail(c->err, T9_STATUS_TOO_LARGE, where, NULL,
                         "the parts of %s are too large together", where);
    yyjson_arr_foreach(parts, idx, max, part)
    {
        T9_TRY(part_text(c, where, part, &text));
        if (idx)
            p[at++] = '\n';
        if (text.n)
            memcpy(p + at, text.p, text.n);
        at += text.n;
    }
    *out = (str){p, n_bytes};
    return T9_STATUS_OK;
}

t9_status chat_part_refused(struct policy_ctx *c, const char *where, yyjson_val *part)
{
    char brief[80];
    return chat_fail(c->err, T9_STATUS_UNSUPPORTED, where, "unsupported_content",
                     "%s has a part of type %s, and this model takes text only: leave it out",
                     where, chat_brief(json_get(part, "type"), brief));
}
