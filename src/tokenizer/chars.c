/*
 * tokenizer/chars.c - vocabularies that merge characters: SentencePiece's (`llama`) and Gemma 4's.
 *
 * The published rule merges over a whole text at once. Here a text is first cut wherever two
 * characters meet that stand side by side in no token: no merge can reach across such a place, so
 * the result is the same, and words stay short and can be remembered. Inside, a space is a space:
 * the U+2581 of files becomes one when they are loaded, and so it does in a text.
 *
 * Immutable after load; any thread.
 */
#include "tokenizer/parts.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

#define INSIDE_BITS_LOG 21
#define NO_CHAR         UINT32_MAX /* a malformed byte */

t9_status chars_init(struct chars *c, struct t9_err *err)
{
    *c = (struct chars){.mask = 1023};
    memset(c->ascii, 0xFF, sizeof(c->ascii));
    c->slot = mem_alloc((c->mask + 1) * sizeof(*c->slot));
    c->inside = mem_calloc((size_t)1 << (INSIDE_BITS_LOG - 6), sizeof(*c->inside));
    if (!c->slot || !c->inside) {
        chars_deinit(c);
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for the characters");
    }
    memset(c->slot, 0xFF, (c->mask + 1) * sizeof(*c->slot));
    return T9_STATUS_OK;
}

void chars_deinit(struct chars *c)
{
    mem_free(c->slot);
    mem_free(c->extra);
    mem_free(c->inside);
    *c = (struct chars){0};
}

static uint32_t slot_of(const struct chars *c, uint32_t cp)
{
    uint32_t i = (cp * 0x9E3779B1U) >> 7 & c->mask;
    while (c->slot[i] != UINT64_MAX && (uint32_t)(c->slot[i] >> 32) != cp)
        i = (i + 1) & c->mask;
    return i;
}

static bool chars_grow(struct chars *c)
{
    struct chars old = *c;
    size_t n = ((size_t)c->mask + 1) * 2;
    uint64_t *slot = mem_alloc(n * sizeof(*slot));
    if (!slot)
        return false;
    memset(slot, 0xFF, n * sizeof(*slot));
    c->slot = slot;
    c->mask = (uint32_t)n - 1;
    for (size_t i = 0; i <= old.mask; i++) {
        if (old.slot[i] != UINT64_MAX)
            c->slot[slot_of(c, (uint32_t)(old.slot[i] >> 32))] = old.slot[i];
    }
    mem_free(old.slot);
    return true;
}

bool chars_add(struct chars *c, uint32_t cp, int32_t symbol)
{
    if (c->n * 2 > c->mask && !chars_grow(c))
        return false;
    uint64_t *slot = &c->slot[slot_of(c, cp)];
    if (*slot != UINT64_MAX)
        return true;
    *slot = (uint64_t)cp << 32 | (uint32_t)symbol;
    c->n++;
    if (cp < 128)
        c->ascii[cp] = symbol;
    return true;
}

int32_t chars_get(const struct chars *c, uint32_t cp)
{
    if (cp < 128)
        return c->ascii[cp];
    uint64_t slot = c->slot[slot_of(c, cp)];
    return slot == UINT64_MAX ? -1 : (int32_t)(uint32_t)slot;
}

/* The character at s.p[pos], NO_CHAR for a malformed byte, and its length. */
static inline uint32_t char_at(str s, size_t pos, size_t *len)
{
    unsigned char b = (unsigned char)s.p[pos];
    uint32_t cp = b;
    *len = 1;
    if (b >= 0x80) {
        *len = utf8_decode(s.p + pos, s.n - pos, &cp);
        if (!*len) {
            *len = 1;
            cp = NO_CHAR;
        }
    }
    return cp;
}

static inline uint32_t pair_bit(uint32_t a, uint32_t b)
{
    return (uint32_t)((((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15U) >> (64 - INSIDE_BITS_LOG));
}

void chars_mark(struct chars *c, str text)
{
    uint32_t before = NO_CHAR;
    size_t len;
    for (size_t i = 0; i < text.n; i += len) {
        uint32_t cp = char_at(text, i, &len);
        uint32_t bit = pair_bit(before, cp);
        if (i)
            c->inside[bit >> 6] |= (uint64_t)1 << (bit & 63);
        before = cp;
    }
}

static bool can_join(const struct chars *c, uint32_t a, uint32_t b)
{
    uint32_t bit = pair_bit(a, b);
    return c->inside[bit >> 6] >> (bit & 63) & 1;
}

int32_t chars_next(const struct chars *c, str word, size_t *pos)
{
    size_t len, at = *pos;
    uint32_t cp = char_at(word, at, &len);
    int32_t symbol = cp == NO_CHAR ? -1 : chars_get(c, cp);
    *pos = at + len;
    return symbol >= 0 ? symbol : -2 - (int32_t)at;
}

void chars_push_unknown(const struct tokenizer *t, struct bpe_scratch *s, str word, int32_t symbol,
                        struct tok_ids *out)
{
    char buf[4];
    str bytes;
    if (symbol >= 0) {
        bytes = (str){buf, utf8_encode(t->chars.extra[(uint32_t)symbol - t->vocab.n_tokens], buf)};
    } else {
        size_t len, at = (size_t)(-2 - symbol);
        (void)char_at(word, at, &len);
        bytes = (str){word.p + at, len};
    }
    bool all = true;
    for (size_t i = 0; i < bytes.n && !t->chars.all_bytes; i++)
        all = all && t->bpe.byte_id[(uint8_t)bytes.p[i]] >= 0;
    s->saw_unknown = true;
    for (size_t i = 0; all && i < bytes.n; i++)
        tok_ids_push(out, t->bpe.byte_id[(uint8_t)bytes.p[i]]);
    /* Unknown characters in a row are one token, as in both reference implementations. */
    if (!all && t->unk >= 0 && !s->after_unknown)
        tok_ids_push(out, t->unk);
    s->after_unknown = !all;
}

bool chars_needs_norm(struct chars_norm how, str s)
{
    return how.prefix || how.collapse || str_find(s, STR(TOK_SPACE), 0) != (size_t)-1;
}

void chars_norm(struct chars_norm how, str s, struct buf *out)
{
    char *p = buf_reserve(out, s.n + 1);
    if (!p)
        return;
    size_t n = tok_spaces(s, p + 1), from = 1, to = n + 1;
    if (how.collapse) {
        size_t k = 1;
        for (size_t i = 1; i < to; i++) {
            bool drop = p[i] == ' ' && (k > 1 ? p[k - 1] == ' ' : how.first);
            p[k] = p[i];
            k += !drop;
        }
        to = k > 1 && how.last && p[k - 1] == ' ' ? k - 1 : k;
    }
    if (how.prefix && to > from)
        p[--from] = ' ';
    memmove(p, p + from, to - from);
    out->n += to - from;
}

/* Gemma 4 merges nothing across the ends of lines, and takes a run of them whole if it is a token.
 */
static bool push_newlines(const struct tokenizer *t, str text, size_t pos, size_t *end,
                          struct tok_ids *out)
{
    *end = pos;
    while (*end < text.n && text.p[*end] == '\n')
        (*end)++;
    int32_t id = *end > pos ? strmap_get(&t->words, &t->vocab, str_slice(text, pos, *end)) : -1;
    if (id >= 0)
        tok_ids_push(out, id);
    return id >= 0;
}

bool chars_encode(const struct tokenizer *t, struct bpe_scratch *s, str text, struct tok_ids *out)
{
    const struct chars *c = &t->chars;
    bool lines = t->kind == TOK_KIND_GEMMA4;
    s->after_unknown = false;
    for (size_t pos = 0; pos < text.n && !out->failed;) {
        size_t len, end;
        if (lines && text.p[pos] == '\n' && push_newlines(t, text, pos, &end, out)) {
            s->after_unknown = false;
            pos = end;
            continue;
        }
        uint32_t before = char_at(text, pos, &len);
        end = pos + len;
        while (end < text.n) {
            uint32_t cp = char_at(text, end, &len);
            if (!can_join(c, before, cp) || (lines && (before == '\n') != (cp == '\n')))
                break;
            before = cp;
            end += len;
        }
        if (!bpe_encode_word(t, s, str_slice(text, pos, end), out))
            return false;
        pos = end;
    }
    return true;
}
