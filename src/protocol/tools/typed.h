/*
 * protocol/tools/typed.h - private to this folder: arguments that a dialect writes one by one, as
 * the JSON object that they are.
 */
#ifndef T9_PROTOCOL_TOOLS_TYPED_H
#define T9_PROTOCOL_TOOLS_TYPED_H

#include "protocol/tools/machine.h"
#include "protocol/tools/typing.h"

/* Zeroed: before the first. */
struct typed {
    bool open; /* the object has begun */
};

/* Before each value: its key. */
void typed_key(struct typed *a, struct machine *m, str key);
/* A value from its raw text; see typing_write. */
void typed_value(struct machine *m, unsigned types, str raw);
/* A string that comes in pieces of whole characters: typed_quote, any number of typed_text,
 * typed_quote. */
void typed_quote(struct machine *m);
void typed_text(struct machine *m, str piece);
/* After the last. */
void typed_end(struct typed *a, struct machine *m);

#endif
