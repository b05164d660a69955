/*
 * protocol/sealed.c - see sealed.h. The form is the prefix, then base64url without padding of an
 * XXH3 of the text, eight bytes from the lowest on, and the text.
 */
#include "protocol/sealed.h"

#include "base/hash.h"
#include "base/utf8.h"

static const char prefix[] = "t9r1_";
static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

enum { HASH_BYTES = 8, HASH_SEED = 9 };

static void hash_bytes(str text, unsigned char out[HASH_BYTES])
{
    uint64_t h = hash_xxh3_64(text.p, text.n, HASH_SEED);
    for (int i = 0; i < HASH_BYTES; i++)
        out[i] = (unsigned char)(h >> (8 * i));
}

/* Groups of six bits; what is left over when a byte was taken stays in `bits`. */
struct six {
    uint32_t bits;
    int n;
};

static void put_byte(struct six *s, unsigned char byte, struct buf *out)
{
    s->bits = s->bits << 8 | byte;
    for (s->n += 8; s->n >= 6; s->n -= 6)
        buf_putc(out, letters[s->bits >> (s->n - 6) & 63]);
    s->bits &= 63;
}

void sealed_write(str text, struct buf *out)
{
    unsigned char hash[HASH_BYTES];
    struct six s = {0};
    hash_bytes(text, hash);
    buf_puts(out, prefix);
    for (size_t i = 0; i < sizeof hash; i++)
        put_byte(&s, hash[i], out);
    for (size_t i = 0; i < text.n; i++)
        put_byte(&s, (unsigned char)text.p[i], out);
    if (s.n)
        buf_putc(out, letters[s.bits << (6 - s.n) & 63]);
}

static int six_bits(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

bool sealed_read(str sealed, struct arena *arena, str *out)
{
    unsigned char hash[HASH_BYTES];
    struct six s = {0};
    size_t n = 0;
    if (!str_has_prefix(sealed, STR("t9r1_")))
        return false;
    sealed = str_slice(sealed, sizeof prefix - 1, sealed.n);
    char *p = arena_alloc(arena, sealed.n + 1);
    for (size_t i = 0; p && i < sealed.n; i++) {
        int v = six_bits(sealed.p[i]);
        if (v < 0)
            return false;
        s.bits = (s.bits << 6 | (uint32_t)v) & 0xffff;
        s.n += 6;
        if (s.n >= 8) {
            s.n -= 8;
            p[n++] = (char)(unsigned char)(s.bits >> s.n);
        }
    }
    if (!p || n < HASH_BYTES)
        return false;
    str text = {p + HASH_BYTES, n - HASH_BYTES};
    hash_bytes(text, hash);
    if (memcmp(hash, p, HASH_BYTES) != 0 || !utf8_valid(text))
        return false;
    *out = text;
    return true;
}
