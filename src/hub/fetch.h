/*
 * hub/fetch.h - one HTTP GET at a time, by libcurl: redirects without the token, bounded answers,
 * and a way to stop. The only file of tempo9 that opens outgoing connections.
 */
#ifndef T9_HUB_FETCH_H
#define T9_HUB_FETCH_H

#include "hub/hub.h"

struct hub_reply {
    long status;
    char etag[160];                   /* of the body, as sent */
    char linked_etag[160];            /* of the file, as the hub itself names it; "" unknown */
    char error_code[64];              /* the hub's own word for what is wrong, or "" */
    int64_t length;                   /* of the body; -1 unknown */
    int64_t range_first, range_total; /* of a 206; -1 unknown */
    int64_t retry_after_s;            /* -1 unknown */
    char host[128];                   /* that answered at last */
};

struct hub_request {
    const char *url;      /* at the endpoint */
    uint64_t from_bytes;  /* > 0: only what follows */
    const char *if_range; /* an ETag: the rest of this or else the whole; NULL: none */
    int32_t time_limit_s; /* 0: none */
    /* Before the first byte of a 2xx body. False stops: the caller knows why. */
    bool (*begin)(void *ctx, const struct hub_reply *r);
    bool (*data)(void *ctx, const void *p, size_t n);
    bool (*go_on)(void *ctx); /* at least once a second; false: CANCELLED */
    void *ctx;
};

struct hub_fetch;
/* INVALID when the endpoint is not https (or http of this machine). UNSUPPORTED without libcurl.
 * The strings must outlive it. */
t9_status hub_fetch_new(struct hub_fetch **out, const struct hub_params *p, struct t9_err *err);
void hub_fetch_free(struct hub_fetch *f); /* accepts NULL */

/*
 * OK: there is a complete answer, of whatever status. AGAIN: the network failed in a way that may
 * pass. CANCELLED: begin, data or go_on said no. Else it is of no use to try again.
 */
t9_status hub_fetch_get(struct hub_fetch *f, const struct hub_request *req, struct hub_reply *r,
                        struct t9_err *err);

#endif
