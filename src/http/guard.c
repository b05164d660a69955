/*
 * http/guard.c - who may ask. Any thread; reads the server's parameters only.
 *
 * A page in a browser can make the browser send requests to a server on loopback, and by DNS
 * rebinding even read the answers. So on loopback without a key, Host must name loopback, and an
 * Origin must be our own or one that was allowed. Beyond loopback without a key (--insecure), an
 * Origin must be that of the Host asked for. With a key, a page can't ask without having it. A unix
 * socket is out of a browser's reach.
 */
#include "http/hostname.h"
#include "http/internal.h"
#include "protocol/caller.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- pages in browsers ---- */

/* Whether a browser would write the origin so: it lowers what is upper case and leaves out a path
 * and the scheme's own port. Other schemes than the web's are those of programs and extensions. */
static bool as_browsers_write(str origin)
{
    struct hostname h;
    bool https;
    size_t colon = str_find(origin, STR("://"), 0);
    if (colon == (size_t)-1 || colon == 0 || colon + 3 == origin.n)
        return false;
    for (size_t i = 0; i < origin.n; i++) {
        char c = origin.p[i];
        if (c <= ' ' || c > '~' || (c >= 'A' && c <= 'Z') || strchr("/?#@\\\"*,", c))
            if (!(c == '/' && i > colon && i < colon + 3))
                return false;
    }
    if (!str_has_prefix(origin, STR("http")) || (colon != 4 && colon != 5) ||
        (colon == 5 && origin.p[4] != 's'))
        return true;
    if (!origin_parse(origin, &https, &h))
        return false;
    char canon[HOSTNAME_BYTES_MAX + 32];
    struct in6_addr address;
    if (h.v6 && (inet_pton(AF_INET6, h.name, &address) != 1 ||
                 !inet_ntop(AF_INET6, &address, h.name, sizeof h.name)))
        return false;
    int n = snprintf(canon, sizeof canon, "%s://%s%s%s", https ? "https" : "http", h.v6 ? "[" : "",
                     h.name, h.v6 ? "]" : "");
    if (h.has_port && h.port != (https ? 443 : 80))
        (void)snprintf(canon + n, sizeof canon - (size_t)n, ":%u", h.port);
    return str_eqz(origin, canon);
}

t9_status guard_check_params(const struct http_params *p, struct t9_err *err)
{
    for (size_t i = 0; i < p->n_cors_origins; i++) {
        const char *origin = p->cors_origins[i];
        if (strcmp(origin, "*") == 0)
            return t9_fail(err, T9_STATUS_INVALID,
                           "--cors-origin *: every page on the web could use this server; name the "
                           "origins that may");
        if (strcmp(origin, "null") == 0)
            return t9_fail(err, T9_STATUS_INVALID,
                           "--cors-origin null: any page can make itself one without an origin, so "
                           "this would allow them all; serve yours from a place with a name");
        if (!as_browsers_write(str_from(origin)))
            return t9_fail(err, T9_STATUS_INVALID,
                           "--cors-origin %.100s: no browser sends that: an origin is "
                           "SCHEME://HOST or SCHEME://HOST:PORT in lower case, without a path, a / "
                           "at the end or the scheme's own port",
                           origin);
    }
    return T9_STATUS_OK;
}

const char *guard_cors_origin(const struct http_server *s, struct MHD_Connection *c)
{
    str origin = head_value(c, "Origin");
    for (size_t i = 0; i < s->p.n_cors_origins; i++) {
        if (str_eqz(origin, s->p.cors_origins[i]))
            return s->p.cors_origins[i];
    }
    return NULL;
}

static bool names_us(const struct http_server *s, const struct hostname *h)
{
    return strcasecmp(h->name, s->p.host) == 0 || hostname_is_loopback(h->name);
}

static bool own_origin(const struct http_server *s, struct MHD_Connection *c, str origin)
{
    struct hostname from, host;
    bool https;
    if (!origin_parse(origin, &https, &from))
        return false;
    unsigned port = from.has_port ? from.port : https ? 443 : 80;
    if (s->loopback)
        return https == (s->tls_cert.n > 0) && port == s->port && names_us(s, &from);
    return hostname_parse(head_value(c, "Host"), &host) && strcmp(host.name, from.name) == 0 &&
           (host.has_port ? host.port
            : https       ? 443u
                          : 80u) == port;
}

/* Bytes of a header's value that a message shows. */
static int shown(str value)
{
    return (int)(value.n < 80 ? value.n : 80);
}

static t9_status check_page(const struct http_server *s, struct MHD_Connection *c,
                            struct chat_error *err)
{
    struct hostname host;
    str value = head_value(c, "Host");
    if (s->loopback && value.p && (!hostname_parse(value, &host) || !names_us(s, &host)))
        return chat_fail(err, T9_STATUS_FORBIDDEN, NULL, "foreign_host",
                         "the Host header \"%.*s\" does not name this machine's loopback: ask for "
                         "localhost or 127.0.0.1, or start the server with --api-key",
                         shown(value), value.p);
    str origin = head_value(c, "Origin");
    if (origin.p && !own_origin(s, c, origin) && !guard_cors_origin(s, c))
        return chat_fail(err, T9_STATUS_FORBIDDEN, NULL, "foreign_origin",
                         "pages from \"%.*s\" may not use this server: allow it with "
                         "--cors-origin",
                         shown(origin), origin.p);
    return T9_STATUS_OK;
}

t9_status guard_check(struct exchange *x, bool public_route, struct chat_error *err)
{
    const struct http_server *s = x->server;
    if (s->p.n_api_keys) {
        bool given = head_value(x->connection, "Authorization").n > 0 ||
                     head_value(x->connection, "X-Api-Key").n > 0;
        x->api_key = auth_key(s, x->connection);
        if (public_route || x->api_key)
            return T9_STATUS_OK;
        return chat_fail(err, T9_STATUS_CANCELLED, NULL, "invalid_api_key",
                         given ? "that key is not one of this server's"
                               : "an API key is needed: Authorization: Bearer KEY, or x-api-key: "
                                 "KEY");
    }
    return s->p.unix_path ? T9_STATUS_OK : check_page(s, x->connection, err);
}

t9_status guard_caller(struct exchange *x, struct chat_error *err)
{
    x->caller.client_key = caller_key(x->api_key);
    for (size_t i = 0; i < caller_n_headers; i++) {
        const struct caller_header *h = &caller_headers[i];
        str value = head_value(x->connection, h->name);
        if (value.p)
            T9_TRY(h->parse(&x->caller, h, value, err));
    }
    return T9_STATUS_OK;
}
