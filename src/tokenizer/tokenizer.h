/*
 * tokenizer/tokenizer.h - text to token ids and back, from the vocabulary in a GGUF file.
 *
 * Kinds, by `tokenizer.ggml.model`: gpt2 (byte-level BPE, with the pre-tokenizers of pretok.c),
 * llama (SentencePiece), gemma4 (merges characters) and bert (WordPiece). Anything else is refused
 * by name.
 *
 * A tokenizer is immutable after tokenizer_new, so any number of threads may use one at the same
 * time. It keeps no pointer into the GGUF file. Malformed UTF-8 is legal input: each such byte
 * counts as one symbol character. It does not render chat templates and does not know what a
 * message is; it only honours the provenance that the caller gives for every span of text.
 */
#ifndef T9_TOKENIZER_TOKENIZER_H
#define T9_TOKENIZER_TOKENIZER_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "tokenizer/vocab.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;
struct tokenizer;

/* Growable list of ids that cannot be made without a maximum. Failure is sticky, as in struct buf;
 * tokenizer_encode turns it into a status. */
struct tok_ids {
    int32_t *p;
    size_t n, cap, max;
    bool failed;
};
void tok_ids_init(struct tok_ids *ids, size_t max_tokens);
void tok_ids_deinit(struct tok_ids *ids); /* accepts a zeroed list */
void tok_ids_push(struct tok_ids *ids, int32_t id);

/* A piece of text and where it came from. Text of a message that a user or a tool wrote has both
 * false; an assistant's own past content parses user-defined tokens; template text and raw prompts
 * parse both. */
struct tok_span {
    str text;
    bool parse_control;      /* CONTROL (and UNKNOWN) tokens are recognised here */
    bool parse_user_defined; /* USER_DEFINED tokens are recognised here */
};

/* Reads the tokenizer of `g`. CORRUPT (metadata contradicts itself or is over a limit), UNSUPPORTED
 * (a kind or pre-tokenizer that is not known; the message lists those that are), NOMEM. */
t9_status tokenizer_new(struct tokenizer **out, const struct gguf *g, struct t9_err *err);
void tokenizer_free(struct tokenizer *t); /* accepts NULL */

/* Appends the ids of the spans, read as ONE text: a span boundary splits no word; it only limits
 * where special tokens are recognised (a special token lies wholly in spans that allow it;
 * leftmost, then longest wins). User-defined tokens that are pieces of text (VOCAB_FLAG_TEXT) are
 * recognised everywhere. With add_bos (usually tokenizer_add_bos()), BOS goes first unless
 * the text already begins with it or the vocabulary has none. TOO_LARGE when `out` reaches its
 * maximum, NOMEM; `out` is then back at its former length. Linear in the text but for a log factor
 * in long words. */
t9_status tokenizer_encode(const struct tokenizer *t, const struct tok_span *spans, size_t n_spans,
                           bool add_bos, struct tok_ids *out, struct t9_err *err);

/* Where a text's encoding can be taken up again: the end of a special token. */
struct tok_cut {
    uint32_t n_bytes, n_tokens; /* of the text, and of the ids, up to there */
};
struct tok_cuts {
    struct tok_cut *p;
    size_t n, cap;
};
bool tok_cuts_append(struct tok_cuts *c, const struct tok_cut *p, size_t n); /* false: NOMEM */
void tok_cuts_deinit(struct tok_cuts *c); /* accepts a zeroed one */

/* The same for spans that go on from a cut: `out` has the ids up to there, and the spans begin with
 * the text's byte n_bytes (0: the whole text, with or without BOS). Appends the cuts that come
 * then. A cut of one text is good for another one that is the same (bytes and what is recognised
 * where) up to as many bytes beyond the cut as the longest token has. */
t9_status tokenizer_encode_on(const struct tokenizer *t, const struct tok_span *spans,
                              size_t n_spans, size_t n_bytes, bool add_bos, struct tok_ids *out,
                              struct tok_cuts *cuts, struct t9_err *err);

/* Appends EOS if the vocabulary has one and its prompts end with it. TOO_LARGE, NOMEM. */
t9_status tokenizer_end(const struct tokenizer *t, struct tok_ids *ids, struct t9_err *err);

const struct vocab *tokenizer_vocab(const struct tokenizer *t);
/* Bytes of a token, as vocab_piece(). */
str tokenizer_piece(const struct tokenizer *t, int32_t id);
/* Id of the token whose bytes are exactly `text` (special tokens first), or -1. */
int32_t tokenizer_find(const struct tokenizer *t, str text);
/* Names from the file: "gpt2" and for example "qwen2"; the second is "none" for kinds without
 * pre-tokenizers. NUL-terminated, live as long as `t`. */
const char *tokenizer_model_name(const struct tokenizer *t);
const char *tokenizer_pre_name(const struct tokenizer *t);
/* Ids named by the file, -1 when there is none. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
/* Whether a prompt begins with BOS / ends with EOS by the file's flags, or by the kind's default.
 */
bool tokenizer_add_bos(const struct tokenizer *t);
bool tokenizer_add_eos(const struct tokenizer *t);
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);

/* Streaming detokenizer: text comes out only in whole UTF-8 characters, and what all pushes and the
 * finish emit together equals the sanitised concatenation of the pieces, however tokens were
 * grouped. A malformed part becomes one U+FFFD as soon as no further byte could complete it. Where
 * the vocabulary puts a space before a text, the first piece (with VOCAB_PREFIX_SPECIAL also one
 * after a special token) loses it. By value, no allocation, one thread at a time; the vocabulary
 * must outlive it. */
struct detok {
    const struct vocab *vocab;
    unsigned char pending[4];
    uint8_t n_pending;
    bool at_start; /* a leading space is dropped */
};
void detok_init(struct detok *d, const struct vocab *v);
/* What follows goes on from other text, whose last token is given: unless that is a special one, a
 * leading space belongs to it. */
void detok_after(struct detok *d, int32_t last_id);
/* CONTROL and UNKNOWN tokens add their text only with render_special; ids outside the vocabulary
 * add nothing. Appends to `out` (check out->failed). */
void detok_push(struct detok *d, int32_t id, struct buf *out, bool render_special);
/* Ends the text: an unfinished character becomes U+FFFD. The detok is ready for another text. */
void detok_finish(struct detok *d, struct buf *out);

#endif
