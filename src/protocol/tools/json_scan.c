/*
 * protocol/tools/json_scan.c - see json_scan.h.
 */
#include "protocol/tools/json_scan.h"

#include "protocol/tools/space.h"

static void put(struct buf *out, char c, bool in_string)
{
    if (!out)
        return;
    if (!in_string || (unsigned char)c >= 0x20)
        buf_putc(out, c);
    else if (c == '\n')
        buf_puts(out, "\\n");
    else if (c == '\t')
        buf_puts(out, "\\t");
    else
        buf_printf(out, "\\u%04x", (unsigned)(unsigned char)c);
}

/* A byte of a string; tells when it ends. */
static void in_string(struct json_scan *s, char c)
{
    if (s->escaped)
        s->escaped = false;
    else if (c == '\\')
        s->escaped = true;
    else if (c == '"') {
        s->in_string = false;
        s->done = s->depth == 0;
    }
}

/* A byte outside of strings; false: it does not belong to the value. */
static bool outside(struct json_scan *s, char c)
{
    if (s->scalar && s->depth == 0 &&
        (space_is(c) || c == ',' || c == ']' || c == '}' || c == '<')) {
        s->done = true;
        return false;
    }
    s->begun = true;
    if (c == '"') {
        s->in_string = true;
    } else if (c == '{' || c == '[') {
        s->depth++;
    } else if (c == '}' || c == ']') {
        if (s->depth > 0)
            s->depth--;
        s->done = s->depth == 0;
    } else if (s->depth == 0) {
        s->scalar = true;
    }
    return true;
}

size_t json_scan_push(struct json_scan *s, str text, struct buf *out)
{
    size_t i = 0;
    for (; i < text.n && !s->done; i++) {
        char c = text.p[i];
        if (!s->begun && space_is(c))
            continue;
        bool quoted = s->in_string;
        if (quoted)
            in_string(s, c);
        else if (!outside(s, c))
            break;
        put(out, c, quoted);
    }
    return i;
}
