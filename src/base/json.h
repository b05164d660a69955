/*
 * base/json.h - the thin view of yyjson that the rest of the program uses: bounded parsing with an
 * arena-free document, typed getters that never coerce, and a streaming writer into a buf.
 *
 * yyjson keeps member order, is iterative (no depth bomb in the reader) and checks UTF-8. Modules
 * include this header, never <yyjson.h> (the inline API below is re-exported from it:
 * yyjson_obj_iter and friends may be used by includers of this header).
 */
#ifndef T9_BASE_JSON_H
#define T9_BASE_JSON_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <yyjson.h>

/* Parses one RFC 8259 value (no comments, no trailing bytes). Refuses more than max_bytes input,
 * nesting deeper than max_depth, more than max_values values, and an object that has a key
 * twice. The message names the byte offset, or the key and the object's path. Free with
 * yyjson_doc_free. */
struct json_limits {
    size_t max_bytes;
    uint32_t max_depth;
    size_t max_values;
};
#define JSON_LIMITS_REQUEST ((struct json_limits){64u << 20, 128, 4u << 20})
t9_status json_parse(yyjson_doc **out, str text, struct json_limits limits, struct t9_err *err);

/* View of a string value; {NULL, 0} when v is NULL or no string. */
str json_str(yyjson_val *v);
/* Member of an object by key, NULL when absent or when `obj` is no object. */
yyjson_val *json_get(yyjson_val *obj, const char *key);

/* ---- writer: appends compact JSON text to a buf ---- */
/* A quoted string; control characters and quotes escaped, other bytes as they are. Malformed UTF-8
 * is replaced by U+FFFD. */
void json_write_str(struct buf *b, str s);
void json_write_key(struct buf *b, const char *key); /* "key": without a leading comma */
void json_write_i64(struct buf *b, int64_t v);
void json_write_f64(struct buf *b, double v); /* NaN and infinities become null */
void json_write_bool(struct buf *b, bool v);
void json_write_val(struct buf *b, yyjson_val *v); /* any value, compact, order kept */

#endif
