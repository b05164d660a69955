/*
 * tokenizer/parts.h - what the files of this module share; nothing outside the module (but its
 * tests) includes it. Everything reachable from a `struct tokenizer` is immutable after load; what
 * an encode call changes lives in its own `struct bpe_scratch`.
 */
#ifndef T9_TOKENIZER_PARTS_H
#define T9_TOKENIZER_PARTS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits of a vocabulary; the largest published ones have 262,144 tokens and 514,906 merges. */
#define TOK_TOKENS_MAX        (1U << 21)
#define TOK_MERGES_MAX        (1U << 22)
#define TOK_TOKEN_BYTES_MAX   4096U
#define TOK_VOCAB_BYTES_MAX   (256U << 20)
#define TOK_SPECIAL_BYTES_MAX ((1U << 24) - 2)  /* a trie state takes 24 bits of an edge key */
#define TOK_TEXT_BYTES_MAX    ((1U << 31) - 16) /* positions inside a word are 31 bit */

/* How vocabularies of characters write a space. */
#define TOK_SPACE "\xE2\x96\x81"

enum tok_kind {
    TOK_KIND_BPE,    /* gpt2: merges bytes, words cut by a pre-tokenizer */
    TOK_KIND_SPM,    /* llama: SentencePiece, merges characters by the score of what comes out */
    TOK_KIND_GEMMA4, /* gemma4: merges characters by a list */
    TOK_KIND_WPM,    /* bert: WordPiece, takes the longest piece from the left */
};

/* ---- unicode.c: classes of code points and NFC ------------------------------------------------
 */

enum {
    CLASS_L = 1,       /* letter */
    CLASS_N = 2,       /* number: Nd, Nl, No */
    CLASS_S = 4,       /* White_Space */
    CLASS_NOT_NFC = 8, /* may change under NFC, alone or with what stands before it */
    CLASS_M = 16,      /* mark: Mn, Mc, Me */
    CLASS_UPPER = 32,  /* may begin a capitalised word: Lu, Lt, Lm, Lo and marks */
    CLASS_LOWER = 64,  /* may go on in small letters: Ll, Lm, Lo and marks */
};
struct uniclass {
    uint16_t page[0x1100]; /* code point / 256 -> index of a page */
    uint8_t *pages;        /* [n_pages][256] CLASS_* */
    uint8_t ascii[128];
    uint32_t n_pages;
};
bool unicode_is_white_space(uint32_t cp);
t9_status uniclass_init(struct uniclass *u, struct t9_err *err);
void uniclass_deinit(struct uniclass *u);
static inline uint8_t uniclass_of(const struct uniclass *u, uint32_t cp)
{
    return u->pages[(uint32_t)u->page[cp >> 8] * 256 + (cp & 255)];
}
/* Class of the character at p (n > 0) and its length; a malformed byte is one character of class 0.
 */
uint8_t uniclass_at(const struct uniclass *u, const char *p, size_t n, size_t *len);
/* Offset of the first character of s, at or after `from`, that NFC might change; s.n when none. */
size_t nfc_first_suspect(const struct uniclass *u, str s, size_t from);
/* Appends NFC of s; malformed bytes are kept and separate what they stand between. */
void nfc_append(const struct uniclass *u, str s, struct buf *out);

/* ---- special.c: recognition of special tokens in text -----------------------------------------
 */

/* SPECIAL_TEXT: user-defined, but pieces of ordinary text, which are recognised everywhere. */
enum { SPECIAL_CONTROL, SPECIAL_USER, SPECIAL_TEXT, SPECIAL_KINDS };

struct special_set;
struct special_entry {
    str text;
    int32_t id;
    int kind; /* SPECIAL_* */
};
struct special_match {
    size_t from;
    size_t n_bytes;
    int32_t id;
    int kind;
};
struct special_matches {
    struct special_match *p;
    size_t n, cap;
};
/* *out is NULL when there are no entries. Of two entries with the same text and kind the first
 * wins. */
t9_status special_new(struct special_set **out, const struct special_entry *e, size_t n,
                      struct t9_err *err);
void special_free(struct special_set *s);
/* Leftmost-longest, not overlapping, in order of position. `text` is the concatenation of the
 * spans. Time is linear in the text, whatever the entries are. */
t9_status special_find(const struct special_set *s, str text, const struct tok_span *spans,
                       size_t n_spans, struct special_matches *out, struct t9_err *err);

/* ---- pretok.c: splitting text into words -------------------------------------------------------
 */

enum pretok_family {
    PRETOK_GPT2,   /* the pattern of GPT-2 */
    PRETOK_LLAMA3, /* that of Llama 3 and Qwen 2 */
    PRETOK_CASED,  /* that of o200k and Tekken: words begin anew at capital letters */
};
struct pretok_rule {
    const char *name; /* value of tokenizer.ggml.pre */
    enum pretok_family family;
    uint8_t numbers_max;  /* most number characters in a word, 255 = no limit */
    bool isolate_numbers; /* numbers are cut out first, so the rest ends at them */
    bool marks;           /* LLAMA3: marks belong to words, not to symbols */
    bool contractions;    /* CASED: 's, 't and so on go with the word before them */
    bool ignore_merges;   /* a word that is a token is not merged */
    bool nfc;             /* text is NFC-normalised */
    bool add_bos;         /* default of add_bos_token */
};
/* NULL when the name is not known. */
const struct pretok_rule *pretok_find(str name);
/* Appends the known names, separated by ", ". */
void pretok_names(struct buf *out);
/* End of the word that begins at `pos` (< s.n); always > pos. */
size_t pretok_next(const struct pretok_rule *r, const struct uniclass *u, str s, size_t pos);

/* ---- strmap.c: bytes -> token id ---------------------------------------------------------------
 */

/* Open addressing over ids; the keys are the vocabulary's own pieces. */
struct strmap {
    uint64_t *slot; /* high half of the hash, id; all ones = empty */
    uint32_t mask;
};
t9_status strmap_init(struct strmap *m, uint32_t n_max, struct t9_err *err);
void strmap_deinit(struct strmap *m);
/* False when another id with the same bytes is there already (it stays). */
bool strmap_add(struct strmap *m, const struct vocab *v, int32_t id);
int32_t strmap_get(const struct strmap *m, const struct vocab *v, str key);

/* ---- bpe.c: merging ----------------------------------------------------------------------------
 */

struct bpe_pair {
    uint64_t key; /* left id << 32 | right id; UINT64_MAX = empty */
    uint64_t val; /* rank << 32 | merged id */
};
struct bpe {
    struct bpe_pair *pair;
    uint32_t mask;
    int32_t byte_id[256]; /* -1: the vocabulary lacks that byte */
};
t9_status bpe_init(struct bpe *b, uint32_t n_merges, struct t9_err *err);
void bpe_deinit(struct bpe *b);
/* False when the pair is there already (it stays). */
bool bpe_add(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t merged);

/* ---- chars.c: vocabularies whose merging begins with characters -------------------------------
 */

/* Characters that can be merged, and where merging can not reach across. A character that is part
 * of tokens but none itself has a symbol of its own, n_tokens and up. */
struct chars {
    int32_t ascii[128]; /* symbol, -1: none */
    uint64_t *slot;     /* character << 32 | symbol; UINT64_MAX = empty */
    uint32_t mask, n;
    uint32_t *extra; /* [n_extra] characters of the symbols from n_tokens on */
    uint32_t n_extra, extra_cap;
    uint64_t *inside; /* bit by hash: two characters that stand side by side in some token */
    bool all_bytes;   /* each byte has a token */
};
t9_status chars_init(struct chars *c, struct t9_err *err);
void chars_deinit(struct chars *c);
/* False when out of memory. The first symbol of a character stays. */
bool chars_add(struct chars *c, uint32_t cp, int32_t symbol);
int32_t chars_get(const struct chars *c, uint32_t cp);
/* Marks the pairs of neighbours in `text`. */
void chars_mark(struct chars *c, str text);
/* Symbol of the character at *pos of a word, and moves *pos behind it: -2 - *pos for one that takes
 * no part in merging. */
int32_t chars_next(const struct chars *c, str word, size_t *pos);
/* Text as the vocabulary spells it, in `out`: with `prefix` a space goes before it (unless it is
 * empty); with `collapse` runs of spaces become one, and with `first` and `last` none stays at that
 * end. Spaces stand for themselves, and so does U+2581 for one. */
struct chars_norm {
    bool prefix, collapse, first, last;
};
bool chars_needs_norm(struct chars_norm how, str s);
void chars_norm(struct chars_norm how, str s, struct buf *out);
struct bpe_scratch;
/* Appends the ids of normalised text, false when out of memory. */
bool chars_encode(const struct tokenizer *t, struct bpe_scratch *s, str text, struct tok_ids *out);
/* What is written for symbol `symbol` of `word` when it is no token. */
void chars_push_unknown(const struct tokenizer *t, struct bpe_scratch *s, str word, int32_t symbol,
                        struct tok_ids *out);

/* ---- wpm.c: WordPiece --------------------------------------------------------------------------
 */

/* Whether text loses capitals and accents, as the vocabulary has none. */
bool wpm_is_lower(const struct tokenizer *t);
/* Appends the ids of one stretch of text. */
void wpm_encode(const struct tokenizer *t, str text, struct tok_ids *out);

/* ---- bpe.c, what a call needs ------------------------------------------------------------------
 */

struct bpe_sym;
struct bpe_cached;
struct bpe_scratch {
    struct bpe_sym *sym; /* [sym_cap] */
    uint64_t *heap;      /* [2 * sym_cap] */
    size_t sym_cap;
    struct bpe_cached *cache; /* recent short words, or NULL */
    bool after_unknown;       /* the last thing written was unk */
    bool saw_unknown;         /* the word holds something that is no token */
};
/* `text_bytes` is the size of what will be encoded; a small one gets no cache. Never fails: without
 * memory there is no cache. */
void bpe_scratch_init(struct bpe_scratch *s, size_t text_bytes);
void bpe_scratch_deinit(struct bpe_scratch *s);
/* Appends the ids of one word, false when out of memory. Bytes that the vocabulary lacks are left
 * out, as in the reference implementation. */
bool bpe_encode_word(const struct tokenizer *t, struct bpe_scratch *s, str word,
                     struct tok_ids *out);

/* ---- the whole ----------------------------------------------------------------------------------
 */

/* What load.c needs from a file; tests fill it by hand. Ids and flags are -1 when not stated. */
struct tok_source {
    str model, pre;      /* empty pre: the key is missing */
    const str *token;    /* [n_tokens] */
    const int32_t *type; /* [n_tokens] or NULL: all normal */
    const float *score;  /* [n_tokens] or NULL: the file has none */
    const str *merge;    /* [n_merges] "left right" */
    uint64_t n_tokens, n_merges;
    int64_t bos, eos, eot, eom, pad, fim_pad, fim_rep, fim_sep, unk, sep, cls;
    int add_bos, add_eos, add_space_prefix, remove_extra_spaces;
    uint64_t n_charsmap; /* elements of a table of replacements, which nothing here can apply */
    const int32_t *suppress;
    uint64_t n_suppress;
};
void tok_source_init(struct tok_source *s);
t9_status tokenizer_new_from(struct tokenizer **out, const struct tok_source *s,
                             struct t9_err *err);

struct tokenizer {
    enum tok_kind kind;
    struct vocab vocab; /* points into the arrays below */
    uint8_t *type, *flags;
    uint32_t *offset;
    char *bytes;
    int32_t *eog, *suppress;
    const struct pretok_rule *rule; /* NULL but for TOK_KIND_BPE */
    struct strmap words;            /* tokens that merging may produce */
    struct strmap markers;          /* CONTROL, UNKNOWN and USER_DEFINED tokens */
    struct special_set *special;
    struct bpe bpe;
    struct chars chars; /* SPM, GEMMA4 */
    struct uniclass uniclass;
    int32_t unk; /* stands for text without a token, -1: it is left out; WPM has one */
    bool add_bos, add_eos;
    bool collapse_spaces; /* SPM: runs of spaces count as one */
    bool hash_marks;      /* WPM: the file marks what goes on in a word, by ## */
    bool lower;           /* WPM: wpm_is_lower */
};

/* ---- vocabulary.c, merges.c: parts of loading ---------------------------------------------------
 */

static inline bool tok_merges_chars(const struct tokenizer *t)
{
    return t->kind == TOK_KIND_SPM || t->kind == TOK_KIND_GEMMA4;
}
static inline bool tok_is_marker(uint8_t type)
{
    return type == TOK_TYPE_CONTROL || type == TOK_TYPE_UNKNOWN || type == TOK_TYPE_USER_DEFINED;
}
/* The byte that a character stands for in the GPT-2 alphabet, -1 for other characters: printable
 * Latin-1 stands for itself, the other 68 bytes are U+0100 up, in order. */
struct tok_alphabet {
    int16_t byte[324];
};
void tok_alphabet_init(struct tok_alphabet *a);
/* Writes the bytes that a file's text of an ordinary token stands for and returns how many. `out`
 * has room for text.n. */
size_t tok_text_bytes(enum tok_kind kind, const struct tok_alphabet *a, str text, char *out);
/* The same with U+2581 as a space. */
size_t tok_spaces(str text, char *out);
/* Fills the vocabulary: bytes, types, flags, lists of ids. */
t9_status vocabulary_fill(struct tokenizer *t, const struct tok_source *s, struct t9_err *err);
/* Fills the maps from text to ids and the table of merges. */
t9_status merges_fill(struct tokenizer *t, const struct tok_source *s, struct t9_err *err);

#endif
