/*
 * protocol/adapter.h - what a chat protocol is to the rest of the server: how to read a request and
 * how to write events. Adapters only format; none knows tokens, threads or sockets. Immutable.
 */
#ifndef T9_PROTOCOL_ADAPTER_H
#define T9_PROTOCOL_ADAPTER_H

#include "protocol/chat.h"

struct chat_adapter {
    const char *name;
    const char *stream_type; /* Content-Type of a stream */
    const char *id_prefix;   /* of reply ids */
    const char *comment;     /* a line that keeps a silent stream alive, or NULL */
    /* Body to request (initialised by the caller, who frees it whatever comes back). */
    t9_status (*parse)(str body, bool strict, struct chat_request *out, struct chat_error *err);
    /* Appends the stream's bytes for one event. */
    void (*stream)(const struct chat_reply *r, const struct chat_event *ev, struct buf *out);
    /* Appends the body of a reply that is not streamed; `end` is its END event. */
    void (*whole)(const struct chat_reply *r, str text, const struct chat_event *end,
                  struct buf *out);
};

#endif
