/* base/str.c - the functions of string views that are too long to inline. Any thread, no state. */
#include "base/str.h"

int str_cmp(str a, str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    if (c != 0)
        return c;
    return a.n < b.n ? -1 : a.n > b.n;
}

bool str_has_prefix(str s, str prefix)
{
    return s.n >= prefix.n && str_eq(str_slice(s, 0, prefix.n), prefix);
}

bool str_has_suffix(str s, str suffix)
{
    return s.n >= suffix.n && str_eq(str_slice(s, s.n - suffix.n, s.n), suffix);
}

size_t str_find(str s, str needle, size_t from)
{
    if (from > s.n || needle.n > s.n - from)
        return (size_t)-1;
    if (needle.n == 0)
        return from;
    const char *hit = memmem(s.p + from, s.n - from, needle.p, needle.n);
    return hit ? (size_t)(hit - s.p) : (size_t)-1;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

str str_trim(str s)
{
    while (s.n && is_space(s.p[0]))
        s = str_slice(s, 1, s.n);
    while (s.n && is_space(s.p[s.n - 1]))
        s.n--;
    return s;
}
