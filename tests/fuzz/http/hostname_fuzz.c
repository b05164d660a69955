/*
 * Fuzz target of http/hostname: what is taken for a host is one when it is written again, and no
 * byte that could end a header or a path is in it.
 */
#include "http/hostname.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check(const struct hostname *h)
{
    struct hostname again;
    char text[HOSTNAME_BYTES_MAX + 16], port[8] = "";
    if (h->has_port)
        (void)snprintf(port, sizeof port, ":%u", h->port);
    (void)snprintf(text, sizeof text, h->v6 ? "[%s]%s" : "%s%s", h->name, port);
    if (!hostname_parse(str_from(text), &again) || strcmp(again.name, h->name) != 0 ||
        again.port != h->port || again.has_port != h->has_port || again.v6 != h->v6)
        abort();
    if (h->name[0] == 0 || strpbrk(h->name, "\r\n /\\@?#%[],\t"))
        abort();
    (void)hostname_is_loopback(h->name);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct hostname h;
    bool https;
    str text = {(const char *)p, n};
    if (hostname_parse(text, &h))
        check(&h);
    if (origin_parse(text, &https, &h))
        check(&h);
    return 0;
}
