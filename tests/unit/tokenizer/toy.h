/*
 * toy.h - a small byte-level BPE vocabulary for the tokenizer's tests: the 256 bytes, some merges
 * and a few special tokens. Byte b is token b.
 */
#ifndef T9_TESTS_TOKENIZER_TOY_H
#define T9_TESTS_TOKENIZER_TOY_H

#include "tokenizer/parts.h"

#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TOY_TOKENS_MAX 20000
#define TOY_MERGES_MAX 512

struct toy {
    struct tok_source src;
    str token[TOY_TOKENS_MAX];
    int32_t type[TOY_TOKENS_MAX];
    str merge[TOY_MERGES_MAX];
    char text[1 << 20];
    size_t n_text;
};

static inline str toy_keep(struct toy *y, const char *p, size_t n)
{
    assert_true(y->n_text + n <= sizeof(y->text));
    memcpy(y->text + y->n_text, p, n);
    y->n_text += n;
    return (str){y->text + y->n_text - n, n};
}

static inline int32_t toy_token(struct toy *y, str text, tok_type type)
{
    assert_true(y->src.n_tokens < TOY_TOKENS_MAX);
    y->token[y->src.n_tokens] = toy_keep(y, text.p, text.n);
    y->type[y->src.n_tokens] = (int32_t)type;
    return (int32_t)y->src.n_tokens++;
}

/* The character of the GPT-2 alphabet for a byte, written out independently of the implementation.
 */
static inline size_t toy_char(unsigned b, char out[4])
{
    static const unsigned shifted_from[][3] = {
        {0, 0x20, 0x100}, {0x7F, 0xA0, 0x121}, {0xAD, 0xAD, 0x143}};
    for (size_t i = 0; i < 3; i++) {
        if (b >= shifted_from[i][0] && b <= shifted_from[i][1])
            return utf8_encode(shifted_from[i][2] + b - shifted_from[i][0], out);
    }
    return utf8_encode(b, out);
}

/* Bytes to the alphabet, NUL-terminated result in `out`. */
static inline str toy_mapped(const char *bytes, size_t n, char *out)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += toy_char((unsigned char)bytes[i], out + k);
    return (str){out, k};
}

/* Adds the merge of two byte strings and the token it makes, when that is new. */
static inline int32_t toy_merge(struct toy *y, const char *left, const char *right)
{
    char buf[256], all[64];
    size_t n = 0;
    n += toy_mapped(left, strlen(left), buf).n;
    buf[n++] = ' ';
    n += toy_mapped(right, strlen(right), buf + n).n;
    y->merge[y->src.n_merges++] = toy_keep(y, buf, n);
    int k = snprintf(all, sizeof(all), "%s%s", left, right);
    str text = toy_mapped(all, (size_t)k, buf);
    for (uint64_t i = 0; i < y->src.n_tokens; i++) {
        if (str_eq(y->token[i], text))
            return (int32_t)i;
    }
    return toy_token(y, text, TOK_TYPE_NORMAL);
}

static inline void toy_init(struct toy *y, const char *pre)
{
    memset(y, 0, sizeof(*y));
    tok_source_init(&y->src);
    y->src.model = STR("gpt2");
    y->src.pre = str_from(pre);
    y->src.token = y->token;
    y->src.type = y->type;
    y->src.merge = y->merge;
    for (unsigned b = 0; b < 256; b++) {
        char c[4];
        toy_token(y, (str){c, toy_char(b, c)}, TOK_TYPE_NORMAL);
    }
    toy_merge(y, "h", "e");
    toy_merge(y, "l", "l");
    toy_merge(y, "he", "ll");
    toy_merge(y, "hell", "o");
    toy_merge(y, " ", "w");
    toy_merge(y, "a", "a");
    toy_merge(y, "aa", "aa");
    toy_merge(y, "aaaa", "aaaa");
    toy_merge(y, "i", "m");
    toy_merge(y, "<", "|");
}

static inline struct tokenizer *toy_build(struct toy *y)
{
    struct tokenizer *t = NULL;
    struct t9_err err = {0};
    if (tokenizer_new_from(&t, &y->src, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    return t;
}

static inline struct tok_span toy_raw(str s)
{
    return (struct tok_span){s, true, true};
}
static inline struct tok_span toy_user(str s)
{
    return (struct tok_span){s, false, false};
}

#endif
