/*
 * tests/lib/http_rig.h - the HTTP server with a scripted engine behind it, for tests over sockets.
 */
#ifndef T9_TESTS_LIB_HTTP_RIG_H
#define T9_TESTS_LIB_HTTP_RIG_H

#include "http/server.h"
#include "lib/http_client.h"
#include "lib/scripted_engine.h"

struct http_rig {
    struct engine *engine;
    t9_model *model; /* of bytes */
    t9_engine *wrapped;
    struct http_server *server;
    uint16_t port; /* 0: a unix socket */
};

/* Starts it on a free port of loopback, or as `p` says (whose port, prep and about are filled in);
 * fails the test when it does not start. */
void http_rig_start(struct http_rig *r, const struct engine_script *script, struct http_params *p);
/* Fails the test when the engine still has a request. */
void http_rig_stop(struct http_rig *r);
/* Whether the engine has n requests within ms. */
bool http_rig_wait_live(struct http_rig *r, int n, int ms);
/* One request without a body; fails the test on another status or when `text` is not in the reply.
 */
void http_rig_expect(uint16_t port, const char *head, int status, const char *text);
bool client_has(const struct buf *in, const char *text);

#endif
