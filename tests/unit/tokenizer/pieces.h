/*
 * pieces.h - small vocabularies of the kinds that merge characters or take pieces, for the
 * tokenizer's tests: tokens are added one by one, with their scores.
 */
#ifndef T9_TESTS_TOKENIZER_PIECES_H
#define T9_TESTS_TOKENIZER_PIECES_H

#include "lib/t9test.h"

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

struct random_text {
    char text[512];
    struct tok_span spans[24];
    size_t n;
};

/* Fragments in any order, by any writer. */
static inline void random_text_make(struct random_text *r, const char *const *fragments,
                                    size_t n_fragments, uint64_t *seed)
{
    char *at = r->text;
    r->n = 1 + test_random(seed) % T9_COUNT(r->spans);
    for (size_t i = 0; i < r->n; i++) {
        const char *f = fragments[test_random(seed) % n_fragments];
        uint64_t who = test_random(seed) % 3;
        r->spans[i] = (struct tok_span){{at, strlen(f)}, who == 2, who > 0};
        memcpy(at, f, strlen(f));
        at += strlen(f);
    }
}

static inline void pieces_same_ids(const struct tok_ids *a, const struct tok_ids *b)
{
    assert_int_equal(a->n, b->n);
    if (a->n)
        assert_memory_equal(a->p, b->p, a->n * sizeof *a->p);
}

/* The first `n_same` spans of `a` and `b` are the same: what a cut of `a` within them stands for is
 * right for `b`, too. */
static inline int pieces_check_cuts(const struct tokenizer *t, const struct random_text *a,
                                    const struct random_text *b, size_t n_same)
{
    struct tok_ids of_a, of_b, on;
    struct tok_cuts cuts = {0};
    size_t same = 0, longest = tokenizer_vocab(t)->longest_bytes;
    int n_used = 0;
    for (size_t i = 0; i < n_same; i++)
        same += a->spans[i].text.n;
    tok_ids_init(&of_a, 4096);
    tok_ids_init(&of_b, 4096);
    assert_int_equal(tokenizer_encode_on(t, a->spans, a->n, 0, true, &of_a, &cuts, NULL),
                     T9_STATUS_OK);
    assert_int_equal(tokenizer_encode(t, b->spans, b->n, true, &of_b, NULL), T9_STATUS_OK);
    for (size_t i = 0; i < cuts.n && cuts.p[i].n_bytes + longest <= same; i++) {
        struct tok_span rest[T9_COUNT(b->spans)];
        size_t n_rest = 0, at = 0;
        for (size_t k = 0; k < b->n; at += b->spans[k++].text.n) {
            size_t cut = cuts.p[i].n_bytes > at ? cuts.p[i].n_bytes - at : 0;
            if (cut >= b->spans[k].text.n)
                continue;
            rest[n_rest] = b->spans[k];
            rest[n_rest].text = str_slice(b->spans[k].text, cut, b->spans[k].text.n);
            n_rest++;
        }
        tok_ids_init(&on, 4096);
        for (uint32_t k = 0; k < cuts.p[i].n_tokens; k++)
            tok_ids_push(&on, of_a.p[k]);
        assert_int_equal(
            tokenizer_encode_on(t, rest, n_rest, cuts.p[i].n_bytes, true, &on, NULL, NULL),
            T9_STATUS_OK);
        pieces_same_ids(&on, &of_b);
        tok_ids_deinit(&on);
        n_used++;
    }
    tok_ids_deinit(&of_a);
    tok_ids_deinit(&of_b);
    tok_cuts_deinit(&cuts);
    return n_used;
}

/* Encodings of random texts, taken up again at each cut, in texts that go on otherwise. */
static inline void pieces_try_cuts(const struct tokenizer *t, const char *const *fragments,
                                   size_t n_fragments)
{
    uint64_t seed = 11;
    int n_used = 0;
    for (int round = 0; round < (test_is_full() ? 20000 : 2000); round++) {
        static struct random_text a, b;
        random_text_make(&a, fragments, n_fragments, &seed);
        random_text_make(&b, fragments, n_fragments, &seed);
        size_t n_same = test_random(&seed) % (a.n + 1);
        size_t n_tail = b.n < T9_COUNT(b.spans) - n_same ? b.n : T9_COUNT(b.spans) - n_same;
        struct random_text c = a;
        char *at = c.text;
        for (size_t i = 0; i < n_same + n_tail; i++) {
            const struct tok_span *from = i < n_same ? &a.spans[i] : &b.spans[i - n_same];
            c.spans[i] = *from;
            memcpy(at, from->text.p, from->text.n);
            c.spans[i].text.p = at;
            at += from->text.n;
        }
        c.n = n_same + n_tail;
        n_used += pieces_check_cuts(t, &a, &c, n_same);
    }
    assert_true(n_used > 100);
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
