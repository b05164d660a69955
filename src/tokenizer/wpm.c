/*
 * tokenizer/wpm.c - WordPiece (`bert`): text is cleaned, cut into words at white space, punctuation
 * and Chinese characters, and each word into the longest pieces from the left; a word that does not
 * come out even is one unknown token.
 *
 * Vocabularies without capitals were made from text in small letters and without accents, so text
 * is made such; files carry no flag for it. Linear in the text: a word has at most so many
 * characters. Any thread.
 */
#include "tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

#define WORD_CHARS_MAX 100
#define DECOMP_MAX     32

/* A word under way: a space, then its characters. A piece that begins a word begins with the space
 * in the vocabulary, too. */
struct word {
    char p[1 + 4 * WORD_CHARS_MAX];
    size_t n;
    unsigned n_chars;
    bool too_long;
};

bool wpm_is_lower(const struct tokenizer *t)
{
    for (int c = 'A'; c <= 'Z'; c++) {
        char word[2] = {' ', (char)c};
        if (strmap_get(&t->words, &t->vocab, (str){word, 2}) >= 0)
            return false;
    }
    return true;
}

static void word_reset(struct word *w)
{
    w->p[0] = ' ';
    w->n = 1;
    w->n_chars = 0;
    w->too_long = false;
}

static void word_add(struct word *w, uint32_t cp)
{
    if (w->n_chars == WORD_CHARS_MAX) {
        w->too_long = true;
        return;
    }
    w->n += utf8_encode(cp, w->p + w->n);
    w->n_chars++;
}

/* End of the longest piece that begins at `from`, and its id; `from` when there is none. */
static size_t longest_piece(const struct tokenizer *t, const struct word *w, size_t from,
                            int32_t *id)
{
    size_t left = w->n - from, most = t->vocab.longest_bytes, least = from ? 0 : 1;
    size_t end = from + (left < most ? left : most);
    for (; end > from + least; end--) {
        bool inside = end < w->n && ((unsigned char)w->p[end] & 0xC0) == 0x80;
        if (inside)
            continue;
        *id = strmap_get(&t->words, &t->vocab, (str){w->p + from, end - from});
        if (*id >= 0)
            return end;
    }
    return from;
}

static void word_flush(const struct tokenizer *t, struct word *w, struct tok_ids *out)
{
    int32_t ids[WORD_CHARS_MAX];
    size_t n = 0;
    bool known = !w->too_long;
    for (size_t at = 0; known && w->n_chars && at < w->n;) {
        size_t end = longest_piece(t, w, at, &ids[n]);
        known = end > at;
        n += known;
        at = end;
    }
    if (!known && t->unk >= 0)
        tok_ids_push(out, t->unk);
    for (size_t i = 0; known && i < n; i++)
        tok_ids_push(out, ids[i]);
    word_reset(w);
}

static bool is_chinese(uint32_t cp)
{
    return (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0x3400 && cp <= 0x4DBF) ||
           (cp >= 0x20000 && cp <= 0x2A6DF) || (cp >= 0x2A700 && cp <= 0x2B73F) ||
           (cp >= 0x2B740 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) ||
           (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

static bool is_punctuation(uint32_t cp)
{
    if (cp < 128)
        return (cp >= 33 && cp <= 47) || (cp >= 58 && cp <= 64) || (cp >= 91 && cp <= 96) ||
               (cp >= 123 && cp <= 126);
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

/* Controls and formats are dropped, but for tab and the two ends of lines, which are white space.
 */
static bool is_dropped(uint32_t cp)
{
    if (cp == '\t' || cp == '\n' || cp == '\r')
        return false;
    if (cp == 0 || cp == 0xFFFD)
        return true;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

/* A character after cleaning: it goes into the word or stands alone. */
static void add_char(const struct tokenizer *t, struct word *w, uint32_t cp, struct tok_ids *out)
{
    if (!is_punctuation(cp)) {
        word_add(w, cp);
        return;
    }
    word_flush(t, w, out);
    word_add(w, cp);
    word_flush(t, w, out);
}

static void add_folded(const struct tokenizer *t, struct word *w, uint32_t cp, struct tok_ids *out)
{
    utf8proc_int32_t seq[DECOMP_MAX];
    if (cp < 128) {
        add_char(t, w, cp >= 'A' && cp <= 'Z' ? cp + 32 : cp, out);
        return;
    }
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, seq, DECOMP_MAX,
                                                 UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, NULL);
    if (n < 1 || n > DECOMP_MAX) {
        seq[0] = (utf8proc_int32_t)cp;
        n = 1;
    }
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        if (utf8proc_category(seq[i]) != UTF8PROC_CATEGORY_MN)
            add_char(t, w, (uint32_t)utf8proc_tolower(seq[i]), out);
    }
}

void wpm_encode(const struct tokenizer *t, str text, struct tok_ids *out)
{
    struct word w;
    word_reset(&w);
    for (size_t i = 0; i < text.n && !out->failed;) {
        uint32_t cp;
        size_t len = utf8_decode(text.p + i, text.n - i, &cp);
        i += len ? len : 1;
        if (!len || is_dropped(cp))
            continue;
        bool alone = is_chinese(cp), white = unicode_is_white_space(cp);
        if (alone || white)
            word_flush(t, &w, out);
        if (white)
            continue;
        if (t->lower)
            add_folded(t, &w, cp, out);
        else
            add_char(t, &w, cp, out);
        if (alone)
            word_flush(t, &w, out);
    }
    word_flush(t, &w, out);
}
