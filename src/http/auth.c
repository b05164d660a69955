/*
 * http/auth.c - API keys. Any thread; reads the server's parameters only.
 */
#include "http/internal.h"

#include <string.h>
#include <strings.h>

enum { KEY_BYTES_MAX = 512 };

t9_status auth_check_params(const struct http_params *p, struct t9_err *err)
{
    for (size_t i = 0; i < p->n_api_keys; i++) {
        const char *key = p->api_keys[i];
        size_t n = strlen(key);
        if (n == 0 || n > KEY_BYTES_MAX)
            return t9_fail(err, T9_STATUS_INVALID, "API key %zu of %zu has %zu bytes: 1 to %d",
                           i + 1, p->n_api_keys, n, KEY_BYTES_MAX);
        for (size_t at = 0; at < n; at++)
            if (key[at] <= ' ' || key[at] > '~')
                return t9_fail(err, T9_STATUS_INVALID,
                               "API key %zu of %zu: byte %zu is %s, so no client could send it",
                               i + 1, p->n_api_keys, at + 1,
                               key[at] == ' ' || key[at] == '\t' ? "a blank"
                                                                 : "no printable ASCII");
    }
    return T9_STATUS_OK;
}

/* The time it takes depends on the lengths, and not on where the two differ. */
static bool equal_keys(str given, const char *ours)
{
    size_t n = strlen(ours);
    unsigned diff = given.n != n;
    for (size_t i = 0; i < n; i++)
        diff |= (unsigned char)ours[i] ^ (unsigned char)(given.n ? given.p[i % given.n] : 0);
    return diff == 0;
}

/* Compares with every key, also after one matched. */
static const char *match(const struct http_params *p, str given)
{
    const char *found = NULL;
    for (size_t i = 0; i < p->n_api_keys; i++) {
        bool same = equal_keys(given, p->api_keys[i]);
        found = same ? p->api_keys[i] : found;
    }
    return found;
}

const char *auth_key(const struct http_server *s, struct MHD_Connection *c)
{
    str bearer = head_value(c, "Authorization"), key = head_value(c, "X-Api-Key");
    const char *found = key.p ? match(&s->p, key) : NULL;
    if (!found && bearer.n > 7 && strncasecmp(bearer.p, "Bearer ", 7) == 0)
        found = match(&s->p, str_trim(str_slice(bearer, 7, bearer.n)));
    return found;
}
