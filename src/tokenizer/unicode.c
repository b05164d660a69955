/*
 * tokenizer/unicode.c - classes of code points (letter, number, white space) and NFC.
 *
 * The tables come from utf8proc's data (Unicode 15.0 in version 2.8) once per tokenizer, in two
 * stages: 256 code points a page, equal pages shared. NFC has a quick check on the same table; only
 * the few characters around a suspect one are really normalised. utf8proc decomposes and composes;
 * the canonical reordering between the two is done here, because utf8proc's is quadratic on long
 * runs of combining marks. Any thread, immutable after uniclass_init.
 */
#include "tokenizer/parts.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

/* The planes with characters that have a class; all others are unassigned or private use. */
#define FLAT_MAX    0x40000U
#define N_PAGES_MAX (FLAT_MAX / 256 + 1)
/* The longest canonical decomposition of one code point has 4. */
#define DECOMP_MAX 8

bool unicode_is_white_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

static uint8_t class_of_category(uint32_t cp)
{
    if (unicode_is_white_space(cp))
        return CLASS_S;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return CLASS_L | CLASS_UPPER;
    case UTF8PROC_CATEGORY_LL: return CLASS_L | CLASS_LOWER;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CLASS_L | CLASS_UPPER | CLASS_LOWER;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return CLASS_M | CLASS_UPPER | CLASS_LOWER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CLASS_N;
    default: return 0;
    }
}

static size_t decompose(uint32_t cp, utf8proc_int32_t *dst)
{
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, dst, DECOMP_MAX,
                                                 UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, NULL);
    if (n < 1 || n > DECOMP_MAX) {
        dst[0] = (utf8proc_int32_t)cp;
        return 1;
    }
    return (size_t)n;
}

/* Marks what the quick check must stop at: a combining class, a form that NFC replaces, and every
 * character that can be the second half of a composition (it is the last one of a decomposition).
 */
static void mark_not_nfc(uint8_t *flat)
{
    for (uint32_t cp = 0xC0; cp < FLAT_MAX; cp++) {
        const utf8proc_property_t *prop = utf8proc_get_property((utf8proc_int32_t)cp);
        if (prop->combining_class)
            flat[cp] |= CLASS_NOT_NFC;
        if (prop->decomp_type || prop->decomp_seqindex == UINT16_MAX)
            continue;
        utf8proc_int32_t seq[DECOMP_MAX];
        size_t n = decompose(cp, seq);
        if ((uint32_t)seq[n - 1] < FLAT_MAX)
            flat[seq[n - 1]] |= CLASS_NOT_NFC;
        utf8proc_ssize_t back =
            utf8proc_normalize_utf32(seq, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (back != 1 || (uint32_t)seq[0] != cp)
            flat[cp] |= CLASS_NOT_NFC;
    }
    for (uint32_t cp = 0x1161; cp <= 0x1175; cp++) /* Hangul vowels and finals compose by rule */
        flat[cp] |= CLASS_NOT_NFC;
    for (uint32_t cp = 0x11A8; cp <= 0x11C2; cp++)
        flat[cp] |= CLASS_NOT_NFC;
}

/* Index of the page with these bytes, added when new. */
static uint16_t page_intern(struct uniclass *u, const uint8_t *bytes)
{
    for (uint32_t i = 0; i < u->n_pages; i++) {
        if (memcmp(u->pages + (size_t)i * 256, bytes, 256) == 0)
            return (uint16_t)i;
    }
    memcpy(u->pages + (size_t)u->n_pages * 256, bytes, 256);
    return (uint16_t)u->n_pages++;
}

t9_status uniclass_init(struct uniclass *u, struct t9_err *err)
{
    static const uint8_t empty[256];
    t9_status st = T9_STATUS_OK;
    uint8_t *flat = mem_calloc(FLAT_MAX, 1);
    u->n_pages = 0;
    u->pages = mem_alloc((size_t)N_PAGES_MAX * 256);
    if (!flat || !u->pages) {
        st = t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for the Unicode tables");
        goto done;
    }
    for (uint32_t cp = 0; cp < FLAT_MAX; cp++)
        flat[cp] = class_of_category(cp);
    mark_not_nfc(flat);
    uint16_t none = page_intern(u, empty);
    for (uint32_t i = 0; i < 0x1100; i++)
        u->page[i] = i < FLAT_MAX / 256 ? page_intern(u, flat + (size_t)i * 256) : none;
    memcpy(u->ascii, flat, sizeof(u->ascii));
    uint8_t *fit = mem_realloc(u->pages, u->n_pages, 256);
    if (fit)
        u->pages = fit;
done:
    mem_free(flat);
    if (st != T9_STATUS_OK)
        uniclass_deinit(u);
    return st;
}

void uniclass_deinit(struct uniclass *u)
{
    mem_free(u->pages);
    u->pages = NULL;
}

uint8_t uniclass_at(const struct uniclass *u, const char *p, size_t n, size_t *len)
{
    unsigned char b = (unsigned char)*p;
    if (b < 0x80) {
        *len = 1;
        return u->ascii[b];
    }
    uint32_t cp;
    size_t k = utf8_decode(p, n, &cp);
    if (!k) {
        *len = 1;
        return 0;
    }
    *len = k;
    return uniclass_of(u, cp);
}

size_t nfc_first_suspect(const struct uniclass *u, str s, size_t from)
{
    size_t i = from;
    while (i < s.n) {
        uint64_t w;
        if (i + 8 <= s.n && (memcpy(&w, s.p + i, 8), (w & 0x8080808080808080U) == 0)) {
            i += 8;
            continue;
        }
        size_t len;
        if (uniclass_at(u, s.p + i, s.n - i, &len) & CLASS_NOT_NFC)
            return i;
        i += len;
    }
    return s.n;
}

/* Start of the character that ends at `end` (> lo), or `end` when those bytes are malformed. */
static size_t char_before(str s, size_t lo, size_t end)
{
    for (size_t k = 1; k <= 4 && k <= end - lo; k++) {
        uint32_t cp;
        if (((unsigned char)s.p[end - k] & 0xC0) != 0x80)
            return utf8_decode(s.p + end - k, k, &cp) == k ? end - k : end;
    }
    return end;
}

static uint8_t combining_class(utf8proc_int32_t cp)
{
    return (uint8_t)utf8proc_get_property(cp)->combining_class;
}

/* Stable sort of c[0..n) by combining class, none of which is 0. */
static void sort_marks(utf8proc_int32_t *c, utf8proc_int32_t *tmp, size_t n)
{
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t x = c[i];
            uint8_t ccc = combining_class(x);
            size_t j = i;
            for (; j > 0 && combining_class(c[j - 1]) > ccc; j--)
                c[j] = c[j - 1];
            c[j] = x;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[combining_class(c[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++)
        tmp[start[combining_class(c[i])]++] = c[i];
    memcpy(c, tmp, n * sizeof(*c));
}

static void canonical_order(utf8proc_int32_t *c, utf8proc_int32_t *tmp, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (!combining_class(c[i])) {
            i++;
            continue;
        }
        size_t j = i + 1;
        while (j < n && combining_class(c[j]))
            j++;
        sort_marks(c + i, tmp, j - i);
        i = j;
    }
}

/* Appends NFC of a well-formed region of n_chars characters. */
static void nfc_region(str s, size_t n_chars, struct buf *out)
{
    utf8proc_int32_t small[64];
    utf8proc_int32_t *c = small;
    /* One character decomposes into at most DECOMP_MAX / 2; the second half is sorting space. */
    size_t half = n_chars * (DECOMP_MAX / 2) + DECOMP_MAX;
    if (half * 2 > T9_COUNT(small)) {
        c = mem_calloc(half * 2, sizeof(*c));
        if (!c) {
            out->failed = true;
            return;
        }
    }
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        uint32_t cp;
        size_t len = utf8_decode(s.p + i, s.n - i, &cp);
        n += decompose(cp, c + n);
        i += len ? len : 1;
    }
    canonical_order(c, c + half, n);
    utf8proc_ssize_t m =
        utf8proc_normalize_utf32(c, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < m; i++) {
        char u[4];
        buf_append(out, u, utf8_encode((uint32_t)c[i], u));
    }
    if (c != small)
        mem_free(c);
}

void nfc_append(const struct uniclass *u, str s, struct buf *out)
{
    size_t done = 0;
    while (done < s.n) {
        size_t hit = nfc_first_suspect(u, s, done);
        if (hit == s.n)
            break;
        /* A character that passed the quick check is a starter and joins nothing before it, so a
         * region from it up to the next such character is closed under normalisation. */
        size_t from = hit > done ? char_before(s, done, hit) : hit;
        size_t end = hit, n_chars = from < hit ? 1 : 0;
        while (end < s.n) {
            size_t len;
            if (!(uniclass_at(u, s.p + end, s.n - end, &len) & CLASS_NOT_NFC))
                break;
            end += len;
            n_chars++;
        }
        buf_append(out, s.p + done, from - done);
        nfc_region(str_slice(s, from, end), n_chars, out);
        done = end;
    }
    buf_append(out, s.p + done, s.n - done);
}
