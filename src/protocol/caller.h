/*
 * protocol/caller.h - what clients and proxies may say about a chat request in headers. One table
 * feeds the parser and /v1/capabilities. Immutable; any thread.
 */
#ifndef T9_PROTOCOL_CALLER_H
#define T9_PROTOCOL_CALLER_H

#include "protocol/chat.h"

struct caller_header {
    const char *name; /* lower case */
    t9_status (*parse)(struct chat_caller *c, const struct caller_header *h, str value,
                       struct chat_error *err);
    const char *note; /* one sentence for people */
};

extern const struct caller_header caller_headers[];
extern const size_t caller_n_headers;

/* The key under which requests with this API key are counted; NULL: 0, nobody. */
uint64_t caller_key(const char *api_key);

/* Appends [{"name":..,"note":..}, ...]. */
void caller_write(struct buf *b);

#endif
