/*
 * tokenizer/pretok.c - pre-tokenizers: where one word ends and the next begins.
 *
 * GGUF names a pattern; each known one is a hand-written scanner over the classes of unicode.c,
 * with the meaning of the regular expression that the vocabulary was trained with (alternatives in
 * order, leftmost). Scanners go forward only, so a run of a million characters costs a million
 * steps and no stack. It does not see special tokens: they are cut out before. Any thread.
 */
#include "tokenizer/parts.h"

#include <string.h>

static const struct pretok_rule rules[] = {
    /* name, numbers_max, gpt2, isolate_numbers, ignore_merges, nfc, add_bos */
    {"gpt-2", 255, true, false, false, false, false},
    {"default", 255, true, false, false, false, false},
    {"smollm", 1, true, true, false, false, false},
    {"qwen2", 1, false, false, false, true, false},
    {"deepseek-r1-qwen", 1, false, false, false, true, false},
    {"llama-bpe", 3, false, false, true, false, true},
    {"llama3", 3, false, false, true, false, true},
    {"llama-v3", 3, false, false, true, false, true},
};

const struct pretok_rule *pretok_find(str name)
{
    for (size_t i = 0; i < T9_COUNT(rules); i++) {
        if (str_eqz(name, rules[i].name))
            return &rules[i];
    }
    return NULL;
}

void pretok_names(struct buf *out)
{
    for (size_t i = 0; i < T9_COUNT(rules); i++) {
        buf_puts(out, i ? ", " : "");
        buf_puts(out, rules[i].name);
    }
}

/* What the scanners need at hand: the text, its end and the classes. */
struct scan {
    const struct uniclass *u;
    const char *p;
    size_t n;
};

/* Class of the character at i and its length; at the end of the text class 0, length 0. */
static inline uint8_t class_at(const struct scan *s, size_t i, size_t *len)
{
    if (i >= s->n) {
        *len = 0;
        return 0;
    }
    unsigned char b = (unsigned char)s->p[i];
    if (b < 0x80) {
        *len = 1;
        return s->u->ascii[b];
    }
    return uniclass_at(s->u, s->p + i, s->n - i, len);
}

#define CLASS_WORD (CLASS_L | CLASS_N | CLASS_S)

/* End of the run, from i, of characters whose class, masked by `mask`, is `want`. */
static inline size_t run_end(const struct scan *s, size_t i, uint8_t mask, uint8_t want)
{
    while (i < s->n) {
        size_t len;
        if ((class_at(s, i, &len) & mask) != want)
            break;
        i += len;
    }
    return i;
}

static size_t numbers_end(const struct scan *s, size_t i, unsigned max)
{
    for (unsigned k = 0; k < max; k++) {
        size_t len;
        if (!(class_at(s, i, &len) & CLASS_N))
            break;
        i += len;
    }
    return i;
}

/* Length after an apostrophe of the ending of an English contraction: s t re ve m ll d. Without
 * case U+017F (long s) is an s too, by Unicode case folding. */
static size_t contraction(const struct scan *s, size_t i, bool any_case)
{
    size_t left = s->n - i;
    if (!left)
        return 0;
    char fold = any_case ? 0x20 : 0;
    char a = (char)(s->p[i] | fold);
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 1;
    if (left < 2)
        return 0;
    char b = (char)(s->p[i + 1] | fold);
    if (((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l'))
        return 2;
    return any_case && memcmp(s->p + i, "\xC5\xBF", 2) == 0 ? 2 : 0;
}

/* White space at i: with `newlines`, up to the last CR or LF of the run when there is one; else the
 * whole run when nothing follows, else all but its last character, which goes to the next word. */
static size_t space_end(const struct scan *s, size_t i, bool newlines, bool end_at_number)
{
    size_t end = i, last = i, after_newline = 0, len;
    uint8_t c = 0;
    for (; end < s->n; end += len) {
        c = class_at(s, end, &len);
        if (!(c & CLASS_S))
            break;
        last = end;
        if (s->p[end] == '\n' || s->p[end] == '\r')
            after_newline = end + 1;
    }
    if (newlines && after_newline)
        return after_newline;
    if (end == s->n || last == i || (end_at_number && (c & CLASS_N)))
        return end;
    return last;
}

static size_t next_gpt2(const struct pretok_rule *r, const struct scan *s, size_t pos)
{
    size_t len, skip = 0;
    uint8_t c = class_at(s, pos, &len);
    if (s->p[pos] == '\'') {
        size_t k = contraction(s, pos + 1, false);
        if (k)
            return pos + 1 + k;
    }
    if (s->p[pos] == ' ' && pos + 1 < s->n) {
        uint8_t after = class_at(s, pos + 1, &len);
        if (!(after & CLASS_S) && !(r->isolate_numbers && (after & CLASS_N))) {
            c = after;
            skip = 1;
        }
    }
    if (c & CLASS_L)
        return run_end(s, pos + skip, CLASS_L, CLASS_L);
    if (c & CLASS_N) {
        if (r->isolate_numbers)
            return pos + len;
        return run_end(s, pos + skip, CLASS_N, CLASS_N);
    }
    if (!(c & CLASS_S))
        return run_end(s, pos + skip, CLASS_WORD, 0);
    return space_end(s, pos, false, r->isolate_numbers);
}

static size_t next_llama3(const struct pretok_rule *r, const struct scan *s, size_t pos)
{
    size_t len, len_after;
    char ch = s->p[pos];
    uint8_t c = class_at(s, pos, &len);
    if (ch == '\'') {
        size_t k = contraction(s, pos + 1, true);
        if (k)
            return pos + 1 + k;
    }
    if (c & CLASS_L)
        return run_end(s, pos + len, CLASS_L, CLASS_L);
    if (c & CLASS_N)
        return numbers_end(s, pos, r->numbers_max);
    uint8_t after = class_at(s, pos + len, &len_after);
    if ((after & CLASS_L) && ch != '\r' && ch != '\n')
        return run_end(s, pos + len, CLASS_L, CLASS_L);
    if (!(c & CLASS_S) || (ch == ' ' && len_after && !(after & CLASS_WORD))) {
        size_t end = run_end(s, pos + len, CLASS_WORD, 0);
        while (end < s->n && (s->p[end] == '\r' || s->p[end] == '\n'))
            end++;
        return end;
    }
    return space_end(s, pos, true, false);
}

size_t pretok_next(const struct pretok_rule *r, const struct uniclass *u, str text, size_t pos)
{
    struct scan s = {u, text.p, text.n};
    return r->gpt2 ? next_gpt2(r, &s, pos) : next_llama3(r, &s, pos);
}
