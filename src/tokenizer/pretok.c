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

#define LLAMA3 .family = PRETOK_LLAMA3, .numbers_max = 3, .ignore_merges = true, .add_bos = true
static const struct pretok_rule rules[] = {
    {.name = "gpt-2", .family = PRETOK_GPT2, .numbers_max = 255},
    {.name = "default", .family = PRETOK_GPT2, .numbers_max = 255},
    {.name = "smollm", .family = PRETOK_GPT2, .numbers_max = 1, .isolate_numbers = true},
    {.name = "qwen2", .family = PRETOK_LLAMA3, .numbers_max = 1, .nfc = true},
    {.name = "qwen35", .family = PRETOK_LLAMA3, .numbers_max = 1, .marks = true, .nfc = true},
    {.name = "deepseek-r1-qwen", .family = PRETOK_LLAMA3, .numbers_max = 1, .nfc = true},
    {.name = "llama-bpe", LLAMA3},
    {.name = "llama3", LLAMA3},
    {.name = "llama-v3", LLAMA3},
    {.name = "lfm2", LLAMA3},
    {.name = "tekken",
     .family = PRETOK_CASED,
     .numbers_max = 1,
     .ignore_merges = true,
     .add_bos = true},
    {.name = "gpt-4o",
     .family = PRETOK_CASED,
     .numbers_max = 3,
     .contractions = true,
     .ignore_merges = true},
};
#undef LLAMA3

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

/* End of the run, from i, of characters that are of a class in `mask`; without `of`, of none. */
static inline size_t run_end(const struct scan *s, size_t i, uint8_t mask, bool of)
{
    while (i < s->n) {
        size_t len;
        if (((class_at(s, i, &len) & mask) != 0) != of)
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
        return run_end(s, pos + skip, CLASS_L, true);
    if (c & CLASS_N) {
        if (r->isolate_numbers)
            return pos + len;
        return run_end(s, pos + skip, CLASS_N, true);
    }
    if (!(c & CLASS_S))
        return run_end(s, pos + skip, CLASS_WORD, false);
    return space_end(s, pos, false, r->isolate_numbers);
}

/* Symbols from i and the line ends after them, with `slash` slashes too. */
static size_t symbols_end(const struct scan *s, size_t i, uint8_t not_symbol, bool slash)
{
    i = run_end(s, i, not_symbol, false);
    while (i < s->n && (s->p[i] == '\r' || s->p[i] == '\n' || (slash && s->p[i] == '/')))
        i++;
    return i;
}

static size_t next_llama3(const struct pretok_rule *r, const struct scan *s, size_t pos)
{
    const uint8_t word = r->marks ? CLASS_L | CLASS_M : CLASS_L;
    const uint8_t not_symbol = word | CLASS_N | CLASS_S;
    size_t len, len_after;
    char ch = s->p[pos];
    uint8_t c = class_at(s, pos, &len);
    if (ch == '\'') {
        size_t k = contraction(s, pos + 1, true);
        if (k)
            return pos + 1 + k;
    }
    if (c & word)
        return run_end(s, pos + len, word, true);
    if (c & CLASS_N)
        return numbers_end(s, pos, r->numbers_max);
    uint8_t after = class_at(s, pos + len, &len_after);
    if ((after & word) && ch != '\r' && ch != '\n')
        return run_end(s, pos + len, word, true);
    if (!(c & CLASS_S) || (ch == ' ' && len_after && !(after & not_symbol)))
        return symbols_end(s, pos + len, not_symbol, false);
    return space_end(s, pos, true, false);
}

/* A word of the cased patterns from i: UPPER* LOWER+, else UPPER+; i when there is neither. The
 * first of the two backs off: in "ABcD" the capitals go with the small letter, and of a run without
 * one after it, letters that are both (as in scripts without case) can still be the LOWER+. */
static size_t cased_end(const struct scan *s, size_t i, bool *has_lower)
{
    size_t end = i, last = i, len;
    uint8_t c = 0;
    for (; end < s->n; end += len) {
        c = class_at(s, end, &len);
        if (!(c & CLASS_UPPER))
            break;
        if (c & CLASS_LOWER)
            last = end + len;
    }
    *has_lower = true;
    if (end < s->n && (c & CLASS_LOWER))
        return run_end(s, end, CLASS_LOWER, true);
    if (last > i)
        return last;
    *has_lower = false;
    return end;
}

static size_t next_cased(const struct pretok_rule *r, const struct scan *s, size_t pos)
{
    size_t len, len_after, end = pos;
    bool lower = false;
    char ch = s->p[pos];
    uint8_t c = class_at(s, pos, &len);
    bool may_lead = !(c & (CLASS_L | CLASS_N)) && ch != '\r' && ch != '\n';
    /* One leading character that is no letter may belong to the word: with it first, then without;
     * and words with a small letter before those without. */
    if (may_lead) {
        end = cased_end(s, pos + len, &lower);
        end = end == pos + len ? pos : end;
    }
    if (!lower && (c & (CLASS_UPPER | CLASS_LOWER))) {
        size_t alone = cased_end(s, pos, &lower);
        end = lower || end == pos ? alone : end;
    }
    if (end > pos) {
        if (r->contractions && end < s->n && s->p[end] == '\'') {
            size_t k = contraction(s, end + 1, true);
            end += k ? 1 + k : 0;
        }
        return end;
    }
    if (c & CLASS_N)
        return numbers_end(s, pos, r->numbers_max);
    uint8_t after = class_at(s, pos + len, &len_after);
    if (!(c & CLASS_S) || (ch == ' ' && len_after && !(after & CLASS_WORD)))
        return symbols_end(s, pos + len, CLASS_WORD, true);
    return space_end(s, pos, true, false);
}

size_t pretok_next(const struct pretok_rule *r, const struct uniclass *u, str text, size_t pos)
{
    struct scan s = {u, text.p, text.n};
    switch (r->family) {
    case PRETOK_GPT2: return next_gpt2(r, &s, pos);
    case PRETOK_LLAMA3: return next_llama3(r, &s, pos);
    default: return next_cased(r, &s, pos);
    }
}
