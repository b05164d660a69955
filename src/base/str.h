/*
 * base/str.h - string views. A `str` is bytes [p, p + n), not NUL-terminated, owned by somebody
 * else. NUL appears only at OS calls.
 */
#ifndef T9_BASE_STR_H
#define T9_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct str {
    const char *p;
    size_t n;
} str;

#define STR(literal) ((str){(literal), sizeof(literal) - 1})
#define STR_FMT      "%.*s"
#define STR_ARG(s)   (int)(s).n, (s).p

static inline str str_from(const char *z)
{
    return (str){z, z ? strlen(z) : 0};
}
static inline bool str_eq(str a, str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool str_eqz(str a, const char *z)
{
    return str_eq(a, str_from(z));
}
/* Of a text that is there: NULL + 0 is undefined in C. */
static inline str str_slice(str s, size_t from, size_t to)
{
    return (str){s.p + from, to - from};
}
/* memcmp order, shorter first on a tie. */
int str_cmp(str a, str b);
bool str_has_prefix(str s, str prefix);
bool str_has_suffix(str s, str suffix);
/* Offset of the first `needle` in `s` at or after `from`, or (size_t)-1. An empty needle is found.
 */
size_t str_find(str s, str needle, size_t from);
/* Without ASCII white space at both ends. */
str str_trim(str s);

#endif
