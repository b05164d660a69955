/*
 * http/hostname.c - see hostname.h.
 */
#include "http/hostname.h"

#include "base/num.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static char lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

static bool parse_port(str text, struct hostname *out)
{
    uint64_t v = 0;
    if (text.n == 0 || text.n > 5 || !num_parse_u64(text, &v) || v > 65535)
        return false;
    out->has_port = true;
    out->port = (uint16_t)v;
    return true;
}

/* Copies n bytes, all of which `ok` must accept when it is given. */
static bool copy_name(struct hostname *out, const char *p, size_t n, bool v6)
{
    if (n == 0 || n > HOSTNAME_BYTES_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        out->name[i] = lower(p[i]);
        if (!v6 && !name_byte(out->name[i]))
            return false;
    }
    out->name[n] = 0;
    struct in6_addr address;
    return memchr(out->name, 0, n) == NULL &&
           (!v6 || inet_pton(AF_INET6, out->name, &address) == 1);
}

bool hostname_parse(str value, struct hostname *out)
{
    memset(out, 0, sizeof *out);
    if (value.n == 0)
        return false;
    size_t end, name_at = 0, rest;
    if (value.p[0] == '[') {
        out->v6 = true;
        name_at = 1;
        end = str_find(value, STR("]"), 0);
        if (end == (size_t)-1)
            return false;
        rest = end + 1;
    } else {
        end = str_find(value, STR(":"), 0);
        if (end == (size_t)-1)
            end = value.n;
        rest = end;
    }
    if (!copy_name(out, value.p + name_at, end - name_at, out->v6))
        return false;
    if (rest == value.n)
        return true;
    return value.p[rest] == ':' && parse_port(str_slice(value, rest + 1, value.n), out);
}

bool origin_parse(str value, bool *https, struct hostname *out)
{
    *https = str_has_prefix(value, STR("https://"));
    if (!*https && !str_has_prefix(value, STR("http://")))
        return false;
    return hostname_parse(str_slice(value, *https ? 8 : 7, value.n), out);
}

bool hostname_is_loopback(const char *name)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, name, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, name, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    static const char localhost[] = "localhost";
    size_t n = strlen(name);
    if (n != sizeof localhost - 1)
        return false;
    for (size_t i = 0; i < n; i++)
        if (lower(name[i]) != localhost[i])
            return false;
    return true;
}
