/*
 * http/server.h - the HTTP server: sockets, routes, threads that move bytes.
 *
 * Threads: libmicrohttpd's (2) move bytes and format what a connection may take; the prep pool (2)
 * parses, renders and tokenises; one notifier takes what the engine posts and resumes connections;
 * one watcher sees hang-ups. None of them ever waits for a client, and none computes.
 */
#ifndef T9_HTTP_SERVER_H
#define T9_HTTP_SERVER_H

#include "base/err.h"
#include "protocol/models.h"
#include "protocol/prep.h"

#include <stdbool.h>
#include <stdint.h>

struct http_server;

struct http_params {
    const char *host; /* numeric address or name to bind */
    uint16_t port;    /* 0: any free one */
    struct prep_params prep;
    struct capabilities about;
    const char *unix_path;           /* listen on this unix socket instead of host and port */
    const char *tls_cert, *tls_key;  /* PEM files, both or none */
    const char *const *api_keys;     /* any of them lets a client in */
    size_t n_api_keys;               /* 0: none asked */
    bool insecure;                   /* beyond loopback without a key */
    const char *const *cors_origins; /* allowed browser origins beside our own */
    size_t n_cors_origins;

    int32_t n_prep, n_io;            /* threads */
    int32_t connection_limit;        /* open connections */
    int32_t connections_per_address; /* of one address beyond loopback; 0: no limit */
    int32_t requests_per_minute;     /* of one client, by key, else by address; 0: no limit */
    uint32_t request_timeout_ms;     /* for a request to arrive, beside the next line */
    uint32_t body_bytes_per_s;       /* a larger body may take longer, at this rate */
    /* Chat requests of one client (struct request's client_key) that may be open at once, in the
     * queue or running; 429 beyond. 0: no limit. */
    int32_t max_open_per_client;
    int32_t idle_timeout_s;    /* of a connection that neither waits for us nor moves */
    uint64_t body_bytes_max;   /* of one request: 413 beyond */
    uint64_t bodies_bytes_max; /* of all requests that are being received: 503 beyond */
    uint32_t keepalive_ms;     /* a silent stream gets a comment this often */
    uint32_t header_wait_ms;   /* a stream's headers go out at the latest after this */
};

/* 127.0.0.1:11435, 2 + 2 threads, 4096 connections (256 of an address), 30 s and 16 KiB/s to
 * arrive, 60 s idle, 64 MiB, 512 MiB, 5 s, 10 s. */
void http_params_init(struct http_params *p);
/* Whether the address may and can be had, asked before minutes go into loading a model: binds it
 * for a moment without listening. Errors as of http_server_new. */
t9_status http_params_check(const struct http_params *p, struct t9_err *err);
/* Binds, probes the template, starts all threads. What `p` points to outlives the server. INVALID
 * for a refused configuration; IO for an address that can't be had, with a message for people. */
t9_status http_server_new(struct http_server **out, const struct http_params *p,
                          struct t9_err *err);
uint16_t http_server_port(const struct http_server *s);
/* Refuses new work with 503, lets what was taken end for up to timeout_ms, cancels the rest, closes
 * the port, joins all threads, frees. The engine must still run. NULL allowed. */
void http_server_stop(struct http_server *s, uint32_t timeout_ms);

#endif
