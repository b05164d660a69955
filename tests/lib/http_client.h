/*
 * tests/lib/http_client.h - raw bytes to a server on loopback and back, for tests that look at the
 * wire. Blocking; any thread.
 */
#ifndef T9_TESTS_LIB_HTTP_CLIENT_H
#define T9_TESTS_LIB_HTTP_CLIENT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* Connected socket with a receive time limit of 20 s, or -1. rcvbuf 0: the system's choice. */
int client_connect(uint16_t port, int rcvbuf);
/* false when the server closed. */
bool client_send(int fd, const void *p, size_t n);
/* Appends until `needle` was seen after position `from` (or the end when NULL); false on end. */
bool client_read_until(int fd, struct buf *in, size_t from, const char *needle);
/* One request with "Connection: close" added; everything that comes back. */
void client_exchange(uint16_t port, const char *head, str body, struct buf *in);
/* A chat request: POST with the JSON body. */
void client_chat(uint16_t port, const char *json, struct buf *in);
/* Status code of the first response, 0 when there is none. */
int client_status(const struct buf *in);
/* The body of the only response, chunks put together. */
void client_body(const struct buf *in, struct buf *body);

#endif
