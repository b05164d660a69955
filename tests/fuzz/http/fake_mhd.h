/*
 * tests/fuzz/http/fake_mhd.h - libmicrohttpd's functions without its sockets: a connection is a
 * list of headers, a response is kept until it is looked at. It insists on what the library asks
 * for: one response for each request, header lines that are lines, a resume for each suspension.
 */
#ifndef T9_TESTS_FUZZ_HTTP_FAKE_MHD_H
#define T9_TESTS_FUZZ_HTTP_FAKE_MHD_H

#include "base/buf.h"

#include <microhttpd.h>
#include <pthread.h>

enum { FAKE_HEADERS_MAX = 64 };

struct fake_header {
    char *name, *value; /* the caller's */
};

/* Zeroed by the caller, who owns all but the response. */
struct MHD_Connection {
    struct fake_header headers[FAKE_HEADERS_MAX];
    size_t n_headers;
    int fd;
    void *socket_context;
    pthread_mutex_t lock; /* `suspended` */
    pthread_cond_t resumed;
    bool suspended;
    unsigned status; /* 0: no response yet */
    struct MHD_Response *response;
};

void fake_connection_init(struct MHD_Connection *c, int fd);
/* Waits until nobody suspends it; false when nobody resumed it within ten seconds. */
bool fake_connection_wait(struct MHD_Connection *c);
/* All of the response's body into `out`; false when its reader gave an error. */
bool fake_response_read(struct MHD_Connection *c, struct buf *out);
void fake_connection_deinit(struct MHD_Connection *c);

#endif
