/*
 * pieces.h - small vocabularies of the kinds that merge characters or take pieces, for the
 * tokenizer's tests: tokens are added one by one, with their scores.
 */
#ifndef T9_TESTS_TOKENIZER_PIECES_H
#define T9_TESTS_TOKENIZER_PIECES_H

#include "toy.h"

#include "base/mem.h"

struct pieces {
    struct toy y;
    float score[TOY_TOKENS_MAX];
};

static inline void pieces_init(struct pieces *p, const char *model)
{
    memset(p, 0, sizeof(*p));
    tok_source_init(&p->y.src);
    p->y.src.model = str_from(model);
    p->y.src.token = p->y.token;
    p->y.src.type = p->y.type;
    p->y.src.score = p->score;
    p->y.src.merge = p->y.merge;
}

static inline int32_t pieces_add(struct pieces *p, const char *text, tok_type type, float score)
{
    int32_t id = toy_token(&p->y, str_from(text), type);
    p->score[id] = score;
    return id;
}

static inline void pieces_bytes(struct pieces *p)
{
    for (int b = 0; b < 256; b++) {
        char text[8];
        (void)snprintf(text, sizeof(text), "<0x%02X>", (unsigned)b);
        (void)pieces_add(p, text, TOK_TYPE_BYTE, 0);
    }
}

/* Encodes the spans and compares with a text such as "a|b|<s>": the pieces with a bar between. */
static inline void pieces_expect_spans(const struct tokenizer *t, const struct tok_span *s,
                                       size_t n, bool bos, const char *want)
{
    struct tok_ids ids;
    struct buf got;
    tok_ids_init(&ids, 1U << 20);
    buf_init(&got, 1U << 20);
    assert_int_equal(tokenizer_encode(t, s, n, bos, &ids, NULL), T9_STATUS_OK);
    for (size_t i = 0; i < ids.n; i++) {
        buf_puts(&got, i ? "|" : "");
        buf_puts_str(&got, tokenizer_piece(t, ids.p[i]));
    }
    if (!str_eqz(buf_str(&got), want))
        fail_msg("\"" STR_FMT "\", not \"%s\"", STR_ARG(buf_str(&got)), want);
    buf_deinit(&got);
    tok_ids_deinit(&ids);
}

static inline void pieces_expect(const struct tokenizer *t, const char *text, bool raw,
                                 const char *want)
{
    struct tok_span s = {str_from(text), raw, raw};
    pieces_expect_spans(t, &s, 1, false, want);
}

/* Text to ids to text. */
static inline void pieces_round_trip(const struct tokenizer *t, const char *text, bool raw,
                                     const char *want)
{
    struct tok_span s = {str_from(text), raw, raw};
    struct tok_ids ids;
    struct detok d;
    struct buf out;
    tok_ids_init(&ids, 1U << 20);
    buf_init(&out, 1U << 20);
    assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, NULL), T9_STATUS_OK);
    detok_init(&d, tokenizer_vocab(t));
    for (size_t i = 0; i < ids.n; i++)
        detok_push(&d, ids.p[i], &out, true);
    detok_finish(&d, &out);
    if (!str_eqz(buf_str(&out), want))
        fail_msg("\"" STR_FMT "\", not \"%s\"", STR_ARG(buf_str(&out)), want);
    tok_ids_deinit(&ids);
    buf_deinit(&out);
}

static inline void pieces_refused(struct pieces *p, t9_status code, const char *part)
{
    struct tokenizer *t = NULL;
    struct t9_err err = {0};
    assert_int_equal(tokenizer_new_from(&t, &p->y.src, &err), code);
    assert_null(t);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

#endif
