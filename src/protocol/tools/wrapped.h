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

/* For dialects that look for their markers themselves. After that of wrappers[which]: true when a
 * call may begin, else the marker was text. */
bool wrapped_open(struct wrapped *w, struct machine *m, const struct wrapper *wrappers, int which);
/* From there on: false when there must be more text. */
bool wrapped_inside(struct wrapped *w, struct machine *m, const struct wrapper *wrappers);
bool wrapped_is_outside(const struct wrapped *w);
/* A JSON object with name and arguments, bare at the beginning of a line or in a fenced block. */
#define WRAPPERS_BARE                                                                              \
    {.open = "```json", .close = "```", .bare = true},                                             \
    {                                                                                              \
        .open = "{", .bare = true                                                                  \
    }

#endif
