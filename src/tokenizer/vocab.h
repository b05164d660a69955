/*
 * tokenizer/vocab.h - the read-only view of a vocabulary that sampling, grammar and the engine may
 * see: how many tokens there are, their bytes, their kind, and which of them end a turn.
 *
 * It owns nothing: a `struct vocab` lives inside a `struct tokenizer` (or a test's own arrays) and
 * is immutable, so any thread may read it. Token ids are int32_t everywhere, -1 means "none".
 */
#ifndef T9_TOKENIZER_VOCAB_H
#define T9_TOKENIZER_VOCAB_H

#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Values of `tokenizer.ggml.token_type`. */
typedef enum tok_type {
    TOK_TYPE_NORMAL = 1,
    TOK_TYPE_UNKNOWN = 2,
    TOK_TYPE_CONTROL = 3,
    TOK_TYPE_USER_DEFINED = 4,
    TOK_TYPE_UNUSED = 5,
    TOK_TYPE_BYTE = 6,
} tok_type;

enum {
    VOCAB_FLAG_EOG = 1,    /* sampling it ends the answer */
    VOCAB_FLAG_PARSER = 2, /* a CONTROL token that output parsers must see as text */
    VOCAB_FLAG_TEXT = 4,   /* a USER_DEFINED or UNKNOWN token that stands for ordinary text */
};

/* Where text is given a space before it when it is encoded, which decoding takes away again. */
enum { VOCAB_PREFIX_NONE, VOCAB_PREFIX_START, VOCAB_PREFIX_SPECIAL /* and after special tokens */ };

struct vocab {
    uint32_t n_tokens;
    const uint8_t *type;     /* [n_tokens] tok_type */
    const uint8_t *flags;    /* [n_tokens] VOCAB_FLAG_* */
    const uint32_t *offset;  /* [n_tokens + 1] into bytes */
    const char *bytes;       /* decoded raw bytes of every token, back to back */
    const int32_t *eog;      /* [n_eog] ids with VOCAB_FLAG_EOG, ascending */
    const int32_t *suppress; /* [n_suppress] ids that must never be sampled, ascending */
    uint32_t n_eog, n_suppress;
    uint32_t longest_bytes; /* of the longest token */
    int32_t bos, eos, pad;  /* -1 when the vocabulary names none */
    uint8_t space_prefix;   /* VOCAB_PREFIX_* */
};

static inline bool vocab_has(const struct vocab *v, int32_t id)
{
    return id >= 0 && (uint32_t)id < v->n_tokens;
}
/* Bytes the token stands for (may be part of a UTF-8 character); for special tokens their text.
 * Empty for an id outside the vocabulary: a model's output matrix may be padded to more rows. */
static inline str vocab_piece(const struct vocab *v, int32_t id)
{
    if (!vocab_has(v, id))
        return (str){0};
    return (str){v->bytes + v->offset[id], v->offset[id + 1] - v->offset[id]};
}
/* TOK_TYPE_UNUSED for an id outside the vocabulary. */
static inline tok_type vocab_type(const struct vocab *v, int32_t id)
{
    return vocab_has(v, id) ? (tok_type)v->type[id] : TOK_TYPE_UNUSED;
}
static inline bool vocab_is_eog(const struct vocab *v, int32_t id)
{
    return vocab_has(v, id) && (v->flags[id] & VOCAB_FLAG_EOG);
}
/* A CONTROL token such as a channel or tool-call marker that is dropped from plain text but that
 * the parser of the model's output has to see. */
static inline bool vocab_is_parser_token(const struct vocab *v, int32_t id)
{
    return vocab_has(v, id) && (v->flags[id] & VOCAB_FLAG_PARSER);
}

#endif
