/*
 * sdk/text.c - tokens of text and text of tokens, without conversations. Any thread; a t9_detok
 * one at a time.
 */
#include "sdk/internal.h"

#include "base/mem.h"
#include "tokenizer/tokenizer.h"

struct t9_detok {
    t9_model *model;
    struct detok detok;
    struct buf text;
    bool special;
};

t9_status t9_tokenize(const t9_model *m, const char *text, size_t n_bytes, uint32_t flags,
                      t9_ids *out, struct t9_err *err)
{
    return t9_tokenize_upto(m, text, n_bytes, flags, 0, out, err);
}

t9_status t9_tokenize_upto(const t9_model *m, const char *text, size_t n_bytes, uint32_t flags,
                           size_t max_tokens, t9_ids *out, struct t9_err *err)
{
    struct tok_ids ids;
    size_t max =
        max_tokens && max_tokens < SDK_PROMPT_TOKENS_MAX ? max_tokens : SDK_PROMPT_TOKENS_MAX;
    bool special = (flags & T9_TOKENIZE_SPECIAL) != 0;
    struct tok_span span = {{text, n_bytes}, special, special};
    bool bos = (flags & T9_TOKENIZE_BOS) != 0 && tokenizer_add_bos(m->tokenizer);
    *out = (t9_ids){0};
    tok_ids_init(&ids, max);
    t9_status s = tokenizer_encode(m->tokenizer, &span, n_bytes ? 1 : 0, bos, &ids, err);
    if (s == T9_STATUS_OK && (flags & T9_TOKENIZE_EOS))
        s = tokenizer_end(m->tokenizer, &ids, err);
    if (s == T9_STATUS_OK)
        *out = (t9_ids){ids.p, ids.n};
    else
        tok_ids_deinit(&ids);
    return sdk_end(s, err);
}

static t9_status check_ids(const t9_model *m, const int32_t *ids, size_t n, struct t9_err *err)
{
    const struct vocab *v = tokenizer_vocab(m->tokenizer);
    for (size_t i = 0; i < n; i++) {
        if (!vocab_has(v, ids[i]))
            return t9_fail(err, T9_STATUS_INVALID, "token %zu is %d; the vocabulary has 0 to %u", i,
                           ids[i], v->n_tokens - 1);
    }
    return T9_STATUS_OK;
}

t9_status t9_detokenize(const t9_model *m, const int32_t *ids, size_t n, uint32_t flags,
                        t9_text *out, struct t9_err *err)
{
    struct detok d;
    struct buf text;
    *out = (t9_text){0};
    T9_TRY(check_ids(m, ids, n, err));
    detok_init(&d, tokenizer_vocab(m->tokenizer));
    buf_init(&text, SDK_TEXT_BYTES_MAX);
    for (size_t i = 0; i < n && !text.failed; i++)
        detok_push(&d, ids[i], &text, (flags & T9_DETOKENIZE_SPECIAL) != 0);
    detok_finish(&d, &text);
    return sdk_end(sdk_text_give(out, &text, err), err);
}

const char *t9_token_bytes(const t9_model *m, int32_t id, size_t *n_bytes)
{
    str s = tokenizer_piece(m->tokenizer, id);
    if (n_bytes)
        *n_bytes = s.n;
    return s.p;
}

int32_t t9_token_find(const t9_model *m, const char *bytes, size_t n_bytes)
{
    return tokenizer_find(m->tokenizer, (str){bytes, n_bytes});
}

uint32_t t9_token_flags(const t9_model *m, int32_t id)
{
    const struct vocab *v = tokenizer_vocab(m->tokenizer);
    uint32_t flags = 0;
    if (vocab_type(v, id) == TOK_TYPE_CONTROL)
        flags |= T9_TOKEN_CONTROL;
    if (vocab_type(v, id) == TOK_TYPE_USER_DEFINED)
        flags |= T9_TOKEN_USER_DEFINED;
    if (vocab_is_eog(v, id))
        flags |= T9_TOKEN_ENDS;
    return flags;
}

t9_status t9_detok_new(t9_detok **out, const t9_model *m, uint32_t flags, struct t9_err *err)
{
    *out = NULL;
    struct t9_detok *d = mem_calloc(1, sizeof *d);
    if (!d)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a detokenizer");
    d->model = (t9_model *)(uintptr_t)m; /* counted, not changed */
    sdk_model_get(d->model);
    d->special = (flags & T9_DETOKENIZE_SPECIAL) != 0;
    detok_init(&d->detok, tokenizer_vocab(m->tokenizer));
    buf_init(&d->text, SDK_TEXT_BYTES_MAX);
    *out = d;
    return sdk_end(T9_STATUS_OK, err);
}

void t9_detok_free(t9_detok *d)
{
    if (!d)
        return;
    buf_deinit(&d->text);
    sdk_model_put(d->model);
    mem_free(d);
}

t9_status t9_detok_push(t9_detok *d, const int32_t *ids, size_t n, const char **text,
                        size_t *n_bytes)
{
    buf_clear(&d->text);
    for (size_t i = 0; ids && i < n && !d->text.failed; i++)
        detok_push(&d->detok, ids[i], &d->text, d->special);
    if (!ids)
        detok_finish(&d->detok, &d->text);
    char *end = buf_reserve(&d->text, 0);
    if (!end) {
        *text = "";
        *n_bytes = 0;
        return T9_STATUS_NOMEM;
    }
    *end = 0;
    *text = d->text.p;
    *n_bytes = d->text.n;
    return T9_STATUS_OK;
}
