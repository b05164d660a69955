/*
 * http/conns.h - the open connections: how many there may be, of one address and in all, and how
 * long a request may take to arrive.
 *
 * The HTTP library closes a connection on which nothing moves; one on which a byte a second moves
 * it keeps. So each connection is known here with the moment at which its current request must be
 * complete; whoever is late gets 408 and is closed, two seconds later when more may be on its way.
 * So do others whose request cannot be waited for (conns_refuse).
 * Bytes that wait to be read are no lateness of the client's, for as long as the same time again.
 * When all places are taken, the connection that has waited longest without a complete request
 * gives way to the new one: a thousand half requests cannot keep anybody out.
 *
 * Any thread; one lock, held for moments.
 */
#ifndef T9_HTTP_CONNS_H
#define T9_HTTP_CONNS_H

#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct conn;

/* Connections that the library may have open beside those that are counted here: they were told to
 * go and are being closed. */
enum { CONNS_GOING_MAX = 128 };

struct conns_limits {
    int32_t total, per_address; /* per_address 0: no limit; loopback has none */
    uint64_t request_ns;        /* from the first byte to the last of a head, or of a small body */
    uint64_t idle_ns;           /* between two requests */
    uint64_t body_bytes_per_s;  /* of a larger body: the least that counts as moving */
    bool can_speak;             /* a reply may be written to the socket as it is (no TLS) */
};

struct conns {
    struct conns_limits limits;
    pthread_mutex_t lock; /* all below */
    struct conn *list;
    int32_t n_open, n_lingering;
    uint64_t n_late, n_gave_way, n_refused; /* totals */
    uint64_t n_told[6];                     /* replies of ours, by first digit of the status */
};

void conns_init(struct conns *c, const struct conns_limits *limits);
void conns_deinit(struct conns *c);

/* A connection was accepted. Where there is no room the client is told and its socket shut down:
 * the library will close it. NULL without memory, shut down as well. */
struct conn *conns_open(struct conns *c, int fd, const struct sockaddr *from, uint64_t now_ns);
/* Before its descriptor is closed. NULL allowed. */
void conns_close(struct conns *c, struct conn *conn);

/* What its current request has reached. NULL allowed. */
void conns_head(struct conns *c, struct conn *conn, uint64_t now_ns); /* request line read */
void conns_body(struct conns *c, struct conn *conn, uint64_t n_bytes);
/* All is here. false: it was too late, and its connection is gone already. */
bool conns_complete(struct conns *c, struct conn *conn);
/* What a client is told before all of its request has come. */
struct conns_reply {
    const char *status;  /* "413 Content Too Large" */
    const char *headers; /* more of them, each with its line's end */
    const char *code;
    const char *message; /* without quotes */
    const char *body;    /* all of it; NULL: made of the two before */
};
/* Ends the connection of a request that is not complete. true: the client was told, now or before,
 * and what it still sends is to be thrown away. */
bool conns_refuse(struct conns *c, struct conn *conn, const struct conns_reply *r, uint64_t now_ns);
/* The same for all whose request has begun. Returns how many may still be sending. */
int32_t conns_refuse_begun(struct conns *c, const struct conns_reply *r, uint64_t now_ns);
/* Whether we have ended its connection, and how. */
struct conns_end {
    unsigned status;  /* that the client was told; 0: nothing was said */
    const char *code; /* why, for the log */
};
bool conns_ended(struct conns *c, struct conn *conn, struct conns_end *out);
void conns_idle(struct conns *c, struct conn *conn, uint64_t now_ns); /* answered */

/* Closes who is late. Returns ms until somebody may be, or -1 when nobody can. */
int64_t conns_tick(struct conns *c, uint64_t now_ns);

/* A number that stands for the address, never 0; the same for all of an IPv6 /64. */
uint64_t conns_address_key(const struct sockaddr *from);

/* For /metrics. */
struct conns_counts {
    uint64_t n_late, n_gave_way, n_refused;
    uint64_t told[6];
};
struct conns_counts conns_counts(struct conns *c);

#endif
