/*
 * protocol/adapter.h - what a chat protocol is to the rest of the server: how to read a request and
 * how to write events. Adapters only format; none knows tokens, threads or sockets. Immutable.
 */
#ifndef T9_PROTOCOL_ADAPTER_H
#define T9_PROTOCOL_ADAPTER_H

#include "protocol/policy.h"

struct prep;

struct chat_adapter {
    const char *name;    /* "openai_chat" */
    const char *path;    /* of its route */
    const char *summary; /* one sentence for people */
    /* The request's fields; see policy.h. */
    const struct policy_field *fields;
    size_t n_fields;
    const char *reply_schema; /* JSON Schema of a whole reply */

    const char *stream_type; /* Content-Type of a stream; NULL: there are none */
    const char *id_prefix;   /* of reply ids */
    const char *comment;     /* a line that keeps a silent stream alive, or NULL */
    const char *ping;        /* the same once its BEGIN was written; NULL: comment */
    const char *call_prefix; /* of the ids of all calls; NULL: "call_" of those that we make */
    /* Its requests fetch the model that they name (pull.h); `stream` tells how that goes, `answer`
     * has the whole reply of one that went well. */
    bool pulls;
    /* Body to request (initialised by the caller, who frees it whatever comes back). */
    t9_status (*parse)(str body, bool strict, struct chat_request *out, struct chat_error *err);
    /* Appends the reply's body where there is nothing to compute: always, and then the writers
     * below are NULL, or where a request says no_engine. */
    t9_status (*answer)(const struct prep *prep, struct chat_request *r, struct buf *out,
                        struct chat_error *err);
    /* Appends the body of an error, and the JSON Schema of that; NULL: as OpenAI writes it. */
    void (*error)(const struct chat_error *e, struct buf *out);
    const char *error_schema;
    /* What the writers of one run remember from event to event: so many bytes, zeroed at the start,
     * of 16-byte alignment, at reply->state. Nothing in it is freed. */
    size_t state_bytes;
    /* Whether a stream's choices are kept, too: END has them, and reply->part tells of them. */
    bool keeps_choices;
    /* Whether BEGIN waits until the engine has looked into its cache, and has the prompt's usage.
     */
    bool begin_has_usage;
    /* Whether events and parts have their tokens in any case; the usage counts those of reasoning.
     */
    bool counts_tokens;
    /* Appends the stream's bytes for one event. */
    void (*stream)(const struct chat_reply *r, const struct chat_event *ev, struct buf *out);
    /* Appends the body of a reply that is not streamed; `end` is its END event. */
    void (*whole)(const struct chat_reply *r, const struct chat_choice *choices, size_t n_choices,
                  const struct chat_event *end, struct buf *out);
};

#endif
