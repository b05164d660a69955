/*
 * protocol/tools/args.h - private to this folder: the arguments of a call that its dialect writes
 * as JSON, from the machine's unread text into the call as they come.
 */
#ifndef T9_PROTOCOL_TOOLS_ARGS_H
#define T9_PROTOCOL_TOOLS_ARGS_H

#include "protocol/tools/json_scan.h"
#include "protocol/tools/machine.h"

/* Zeroed: before the arguments. */
struct args {
    struct json_scan scan;
    bool begun, raw; /* raw: no JSON object, handed on as written */
};

typedef enum args_result {
    ARGS_MORE,  /* all was taken that is certain */
    ARGS_WHOLE, /* the object is closed */
    ARGS_ENDED, /* one of `ends` comes next; it is not taken */
} args_result;

/* Takes arguments up to the end of a JSON object or to one of `ends` (ended by NULL) outside of its
 * strings: within them any text is the caller's. The call has begun; ending it is the dialect's. */
args_result args_step(struct args *a, struct machine *m, const char *const *ends);

#endif
