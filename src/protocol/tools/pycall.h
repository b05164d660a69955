/*
 * protocol/tools/pycall.h - private to this folder: calls written as Python writes them, which come
 * in pieces,
 *
 *     [NAME(key="text", other=[1, 2.5, None], flag=True), NAME2()]
 *
 * in a list or one after another. A call of NAME.call is one of NAME.
 */
#ifndef T9_PROTOCOL_TOOLS_PYCALL_H
#define T9_PROTOCOL_TOOLS_PYCALL_H

#include "protocol/tools/loose.h"

/* From the marker before a call, or the end of another one, to the call's bracket. */
enum { PYCALL_HEAD_BYTES_MAX = 512 };

/* Zeroed: before the first one. */
struct pycall {
    uint8_t phase;
    bool any; /* a call was read */
    const struct answer_tool *tool;
    struct loose loose;
};

typedef enum pycall_result {
    PYCALL_MORE,
    PYCALL_NONE, /* it is no call of a tool that was offered; nothing was taken */
    PYCALL_OVER, /* there were calls; what follows them is unread */
} pycall_result;

/* Takes calls up to `end`, the marker after them, which is not taken; NULL: there is none. */
pycall_result pycall_step(struct pycall *p, struct machine *m, const char *end);

#endif
