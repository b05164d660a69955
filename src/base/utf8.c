/*
 * base/utf8.c - strict UTF-8 by the table of well-formed sequences (Unicode, table 3-7).
 *
 * One scanner serves all functions: it returns how many bytes form either a character or the
 * maximal malformed part, and which of the two. Any thread, no state.
 */
#include "base/utf8.h"

#include "base/buf.h"

typedef enum scan_kind {
    SCAN_KIND_OK,
    SCAN_KIND_BAD, /* these bytes can never become a character */
    SCAN_KIND_CUT, /* a good start that ends with the input */
} scan_kind;

/* Length of the sequence a lead byte announces and the allowed range of its second byte; 0 = none.
 */
static size_t lead_length(unsigned char b, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (b < 0x80)
        return 1;
    if (b < 0xC2 || b > 0xF4)
        return 0;
    if (b < 0xE0)
        return 2;
    if (b < 0xF0) {
        if (b == 0xE0)
            *lo = 0xA0; /* overlong */
        if (b == 0xED)
            *hi = 0x9F; /* surrogates */
        return 3;
    }
    if (b == 0xF0)
        *lo = 0x90; /* overlong */
    if (b == 0xF4)
        *hi = 0x8F; /* beyond U+10FFFF */
    return 4;
}

static size_t scan(const char *p, size_t n, uint32_t *cp, scan_kind *kind)
{
    unsigned char lo;
    unsigned char hi;
    const unsigned char lead = (unsigned char)p[0];
    const size_t len = lead_length(lead, &lo, &hi);
    *kind = SCAN_KIND_BAD;
    if (len == 0)
        return 1;
    uint32_t v = len == 1 ? lead : lead & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (i == n) {
            *kind = SCAN_KIND_CUT;
            return i;
        }
        unsigned char b = (unsigned char)p[i];
        if (b < lo || b > hi)
            return i;
        lo = 0x80;
        hi = 0xBF;
        v = v << 6 | (b & 0x3Fu);
    }
    *cp = v;
    *kind = SCAN_KIND_OK;
    return len;
}

size_t utf8_decode(const char *p, size_t n, uint32_t *cp)
{
    scan_kind kind;
    size_t len = scan(p, n, cp, &kind);
    return kind == SCAN_KIND_OK ? len : 0;
}

size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xD800 && cp < 0xE000)
            return 0;
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    if (cp > 0x10FFFF)
        return 0;
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_valid(str s)
{
    uint32_t cp;
    for (size_t i = 0; i < s.n;) {
        size_t len = utf8_decode(s.p + i, s.n - i, &cp);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

size_t utf8_incomplete_tail(str s)
{
    for (size_t k = 1; k <= 3 && k <= s.n; k++) {
        unsigned char b = (unsigned char)s.p[s.n - k];
        if ((b & 0xC0) == 0x80)
            continue;
        uint32_t cp;
        scan_kind kind;
        size_t len = scan(s.p + s.n - k, k, &cp, &kind);
        return kind == SCAN_KIND_CUT && len == k ? k : 0;
    }
    return 0;
}

size_t utf8_count(str s)
{
    size_t n = 0;
    uint32_t cp;
    for (size_t i = 0; i < s.n; n++) {
        size_t len = utf8_decode(s.p + i, s.n - i, &cp);
        i += len ? len : 1;
    }
    return n;
}

void utf8_sanitize(struct buf *out, str s)
{
    size_t good_from = 0;
    uint32_t cp;
    scan_kind kind;
    for (size_t i = 0; i < s.n;) {
        size_t len = scan(s.p + i, s.n - i, &cp, &kind);
        if (kind != SCAN_KIND_OK) {
            buf_append(out, s.p + good_from, i - good_from);
            buf_append(out, "\xEF\xBF\xBD", 3);
            good_from = i + len;
        }
        i += len;
    }
    if (s.n > good_from)
        buf_append(out, s.p + good_from, s.n - good_from);
}
