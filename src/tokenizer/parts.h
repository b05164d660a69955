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
#define TOK_SPECIAL_BYTES_MAX ((1U << 24) - 2) /* a trie state takes 24 bits of an edge key */
#define TOK_TEXT_BYTES_MAX    (1U << 31)       /* positions inside a word are 32 bit */

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

enum { SPECIAL_CONTROL, SPECIAL_USER, SPECIAL_KINDS };

struct special_set;
struct special_entry {
    str text;
    int32_t id;
    int kind; /* SPECIAL_CONTROL or SPECIAL_USER */
};
struct special_match {
    size_t from;
    size_t n_bytes;
    int32_t id;
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
    int32_t *slot; /* -1 = empty */
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

struct bpe_sym;
struct bpe_cached;
struct bpe_scratch {
    struct bpe_sym *sym; /* [sym_cap] */
    uint64_t *heap;      /* [2 * sym_cap] */
    size_t sym_cap;
    struct bpe_cached *cache; /* recent short words, or NULL */
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

/* What load.c needs from a file; tests fill it by hand. Ids are -1 when not stated, flags likewise.
 */
struct tok_source {
    str model, pre;      /* empty pre: the key is missing */
    const str *token;    /* [n_tokens] */
    const int32_t *type; /* [n_tokens] or NULL: all normal */
    const str *merge;    /* [n_merges] "left right" */
    uint64_t n_tokens, n_merges;
    int64_t bos, eos, eot, eom, pad, fim_pad, fim_rep, fim_sep;
    int add_bos, add_eos;
    const int32_t *suppress;
    uint64_t n_suppress;
};
void tok_source_init(struct tok_source *s);
t9_status tokenizer_new_from(struct tokenizer **out, const struct tok_source *s,
                             struct t9_err *err);

struct tokenizer {
    struct vocab vocab; /* points into the arrays below */
    uint8_t *type, *flags;
    uint32_t *offset;
    char *bytes;
    int32_t *eog, *suppress;
    const struct pretok_rule *rule;
    struct strmap words;   /* tokens that merging may produce */
    struct strmap markers; /* CONTROL, UNKNOWN and USER_DEFINED tokens */
    struct special_set *special;
    struct bpe bpe;
    struct uniclass uniclass;
    bool add_bos, add_eos;
};

#endif
