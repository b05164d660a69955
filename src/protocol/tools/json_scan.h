/*
 * protocol/tools/json_scan.h - private to this folder: finds the end of one JSON value that comes
 * in pieces, and hands its text on. It does not judge: what is no JSON comes out as written, but
 * for raw control characters in strings, which models write and JSON forbids: they are escaped.
 */
#ifndef T9_PROTOCOL_TOOLS_JSON_SCAN_H
#define T9_PROTOCOL_TOOLS_JSON_SCAN_H

#include "base/buf.h"

#include <stdint.h>

/* Zeroed: before the value. */
struct json_scan {
    uint32_t depth;
    bool begun, done;
    bool in_string, escaped, scalar;
};

/* Takes bytes of `text` up to the value's end and appends them to `out` (NULL: nowhere) without the
 * white space before it; returns how many. A scalar outside of any bracket ends before the byte
 * that can't belong to it. Once done it takes nothing. */
size_t json_scan_push(struct json_scan *s, str text, struct buf *out);

#endif
