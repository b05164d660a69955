/*
 * http/guard.c - who may ask. Any thread; reads the server's parameters only.
 *
 * A page in a browser can make the browser send requests to a server on loopback, and by DNS
 * rebinding even read the answers. So on loopback without a key, Host must name loopback, and an
 * Origin must be our own or one that was allowed. With a key, a page can't ask without having it.
 */
#include "http/internal.h"
#include "protocol/caller.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool guard_is_loopback_name(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

/* Host name of "name", "name:port", "[v6]" or "[v6]:port"; false when it is none of these. */
static bool split_host(const char *value, char name[128], const char **port)
{
    const char *end, *rest;
    if (value[0] == '[') {
        value++;
        end = strchr(value, ']');
        if (!end)
            return false;
        rest = end + 1;
    } else {
        end = value + strcspn(value, ":");
        rest = end;
    }
    size_t n = (size_t)(end - value);
    if (n == 0 || n > 127 || (*rest != 0 && *rest != ':'))
        return false;
    memcpy(name, value, n);
    name[n] = 0;
    *port = *rest ? rest + 1 : rest;
    return true;
}

static bool digits_and_dots(const char *z)
{
    return z[strspn(z, "0123456789.")] == 0;
}

static bool names_us(const struct http_server *s, const char *value, bool with_port)
{
    char name[128], port[8];
    const char *got;
    if (!split_host(value, name, &got))
        return false;
    /* "127.evil.example" is no address. */
    bool ok = strcasecmp(name, s->p.host) == 0 ||
              (guard_is_loopback_name(name) && (name[0] != '1' || digits_and_dots(name)));
    (void)snprintf(port, sizeof port, "%u", s->port);
    return ok && (!with_port || strcmp(got, port) == 0);
}

const char *guard_cors_origin(const struct http_server *s, struct MHD_Connection *c)
{
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    for (size_t i = 0; origin && i < s->p.n_cors_origins; i++)
        if (strcmp(origin, s->p.cors_origins[i]) == 0)
            return origin;
    return NULL;
}

/* The time it takes does not depend on where they differ. */
static bool equal_keys(const char *a, const char *b)
{
    size_t n = strlen(b);
    unsigned diff = strlen(a) != n;
    size_t n_a = strlen(a);
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)b[i] ^ (unsigned char)(n_a ? a[i % n_a] : 0);
    return diff == 0;
}

static bool has_key(const struct http_server *s, struct MHD_Connection *c)
{
    const char *bearer = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    const char *key = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "x-api-key");
    bool ok = key && equal_keys(key, s->p.api_key);
    if (bearer && strncasecmp(bearer, "Bearer ", 7) == 0)
        ok |= equal_keys(bearer + 7, s->p.api_key);
    return ok;
}

static bool own_origin(const struct http_server *s, const char *origin)
{
    return strncmp(origin, "http://", 7) == 0 && names_us(s, origin + 7, true);
}

t9_status guard_check(const struct http_server *s, struct MHD_Connection *c, bool public_route,
                      struct chat_error *err)
{
    if (s->p.api_key) {
        if (public_route || has_key(s, c))
            return T9_STATUS_OK;
        return chat_fail(err, T9_STATUS_CANCELLED, NULL, "invalid_api_key",
                         "an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    }
    if (!s->loopback)
        return T9_STATUS_OK;
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    if (host && !names_us(s, host, false))
        return chat_fail(err, T9_STATUS_FORBIDDEN, NULL, "foreign_host",
                         "the Host header \"%.80s\" does not name this machine's loopback: ask for "
                         "localhost or 127.0.0.1, or start the server with --api-key",
                         host);
    const char *origin = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Origin");
    if (origin && !own_origin(s, origin) && !guard_cors_origin(s, c))
        return chat_fail(err, T9_STATUS_FORBIDDEN, NULL, "foreign_origin",
                         "pages from \"%.80s\" may not use this server: allow it with "
                         "--cors-origin",
                         origin);
    return T9_STATUS_OK;
}

t9_status guard_caller(struct exchange *x, struct chat_error *err)
{
    x->caller.client_key = caller_key(x->server->p.api_key);
    for (size_t i = 0; i < caller_n_headers; i++) {
        const struct caller_header *h = &caller_headers[i];
        const char *value = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, h->name);
        if (value)
            T9_TRY(h->parse(&x->caller, h, value, err));
    }
    return T9_STATUS_OK;
}
