/*
 * protocol/tools/wrapped.h - private to this folder: the step of all dialects whose calls are JSON
 * objects (json_call.h), one or a list, after some marker.
 */
#ifndef T9_PROTOCOL_TOOLS_WRAPPED_H
#define T9_PROTOCOL_TOOLS_WRAPPED_H

#include "protocol/tools/json_call.h"
#include "protocol/tools/pycall.h"

enum { WRAPPERS_MAX = 8 };

struct wrapper {
    const char *open;  /* "{": bare objects, at the beginning of the content or of a line */
    const char *close; /* NULL: nothing comes after the last call */
    bool bare;         /* as of json_call_start */
    bool python;       /* calls may be written as pycall.h says */
};

/* Zeroed at the start. */
struct wrapped {
    struct json_call call;
    struct pycall pycall;
    int phase, which;
};

/* [n]; the opening markers are told apart by their text. */
void wrapped_step(struct wrapped *w, struct machine *m, const struct wrapper *wrappers, size_t n);

#endif
