/*
 * protocol/tools/typing.h - private to this folder: which types of JSON a tool's schema permits for
 * an argument, and the argument's raw text, as a model wrote it, as JSON of one of them.
 *
 * Schemas are what clients send: each question looks at a bounded part of one. Immutable; any
 * thread.
 */
#ifndef T9_PROTOCOL_TOOLS_TYPING_H
#define T9_PROTOCOL_TOOLS_TYPING_H

#include "base/buf.h"
#include "base/json.h"

enum {
    TYPING_STRING = 1,
    TYPING_INTEGER = 2, /* numbers without a fraction; a schema's "number" has both bits */
    TYPING_NUMBER = 4,
    TYPING_BOOLEAN = 8,
    TYPING_NULL = 16,
    TYPING_ARRAY = 32,
    TYPING_OBJECT = 64,
    TYPING_ANY = 127,
};

/* The types that `schema`, of all arguments, permits for the one called `key`; TYPING_ANY where it
 * says nothing or contradicts itself. Reads type, enum, const, anyOf, oneOf, allOf, $ref within the
 * schema, nullable, properties, additionalProperties. `schema` may be NULL. */
unsigned typing_of(yyjson_val *schema, str key);
/* Whether properties of `schema` itself name it. */
bool typing_declares(yyjson_val *schema, str key);

/* Appends the raw text as JSON: what permits strings alone is one as it stands; else the text is
 * read as one of the other types, Python's True, False, None and its quotes included. What can't be
 * read so is a string. */
void typing_write(struct buf *out, unsigned types, str raw);
/* The same for text in Python's spelling, which becomes JSON. False, with nothing written: it is
 * neither. */
bool typing_from_python(struct buf *out, str text);

#endif
