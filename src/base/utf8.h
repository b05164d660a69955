/*
 * base/utf8.h - strict UTF-8 (no surrogates, no overlong forms, max U+10FFFF). Any thread.
 */
#ifndef T9_BASE_UTF8_H
#define T9_BASE_UTF8_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one code point at p (n > 0 bytes left): returns its length 1..4 and sets *cp; 0 when the
 * bytes are malformed or cut short. */
size_t utf8_decode(const char *p, size_t n, uint32_t *cp);
/* Writes 1..4 bytes; 0 when cp is not a scalar value. */
size_t utf8_encode(uint32_t cp, char out[4]);
bool utf8_valid(str s);
/* How many bytes at the end of `s` are the start of a character that more bytes could complete. */
size_t utf8_incomplete_tail(str s);
/* Code points in s; malformed bytes count as one each. */
size_t utf8_count(str s);
/* Appends s to out with every maximal malformed part replaced by U+FFFD (Unicode 3.9 practice). */
struct buf;
void utf8_sanitize(struct buf *out, str s);

#endif
