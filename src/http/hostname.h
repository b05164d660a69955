/*
 * http/hostname.h - the value of a Host header and the authority of an Origin, read strictly. Pure;
 * any thread.
 */
#ifndef T9_HTTP_HOSTNAME_H
#define T9_HTTP_HOSTNAME_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

enum { HOSTNAME_BYTES_MAX = 255 };

struct hostname {
    char name[HOSTNAME_BYTES_MAX + 1]; /* lower case, an IPv6 address without its brackets */
    bool v6, has_port;
    uint16_t port;
};

/* "name", "name:port", "[v6]" or "[v6]:port". false for anything else: an empty name, user@, white
 * space, a path, a port that is none, brackets around what is no address. */
bool hostname_parse(str value, struct hostname *out);
/* "scheme://authority" of a browser's Origin header. `scheme` is "http" or "https"; false for
 * others, for "null", and where the authority does not parse. */
bool origin_parse(str value, bool *https, struct hostname *out);
/* Whether a name or numeric address is this machine's loopback by its form alone. */
bool hostname_is_loopback(const char *name);

#endif
