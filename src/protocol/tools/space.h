/*
 * protocol/tools/space.h - private to this folder: the white space that models put around things.
 */
#ifndef T9_PROTOCOL_TOOLS_SPACE_H
#define T9_PROTOCOL_TOOLS_SPACE_H

#include "base/str.h"

static inline bool space_is(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Offset of the first byte at or after `from` that is no white space; text.n when there is none. */
static inline size_t space_skip(str text, size_t from)
{
    while (from < text.n && space_is(text.p[from]))
        from++;
    return from;
}

#endif
