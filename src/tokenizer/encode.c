/*
 * tokenizer/encode.c - spans of text to ids: special tokens out first, the rest normalised where
 * the vocabulary asks for it, split into words, merged. Also the list of ids. Any thread; what a
 * call needs while it runs is its own.
 */
#include "tokenizer/parts.h"

#include "base/mem.h"

#include <string.h>

void tok_ids_init(struct tok_ids *ids, size_t max_tokens)
{
    *ids = (struct tok_ids){.max = max_tokens};
}

void tok_ids_deinit(struct tok_ids *ids)
{
    mem_free(ids->p);
    *ids = (struct tok_ids){0};
}

void tok_ids_push(struct tok_ids *ids, int32_t id)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        cap = cap < ids->max ? cap : ids->max;
        int32_t *p = ids->n < cap && !ids->failed ? mem_realloc(ids->p, cap, sizeof(*p)) : NULL;
        if (!p) {
            ids->failed = true;
            return;
        }
        ids->p = p;
        ids->cap = cap;
    }
    ids->p[ids->n++] = id;
}

bool tok_cuts_append(struct tok_cuts *c, const struct tok_cut *p, size_t n)
{
    if (c->cap - c->n < n) {
        size_t cap = c->n + n + c->cap + 16;
        struct tok_cut *more = mem_realloc(c->p, cap, sizeof *more);
        if (!more)
            return false;
        c->p = more;
        c->cap = cap;
    }
    if (n)
        memcpy(c->p + c->n, p, n * sizeof *p);
    c->n += n;
    return true;
}

void tok_cuts_deinit(struct tok_cuts *c)
{
    mem_free(c->p);
    *c = (struct tok_cuts){0};
}

/* One call's working set. */
struct encoding {
    const struct tokenizer *t;
    size_t n_bytes;        /* of the text before this one; 0: it is the beginning */
    struct tok_cuts *cuts; /* or NULL */
    struct buf joined;     /* the spans as one text, when there are several */
    struct buf normalised; /* NFC of one stretch */
    struct special_matches special;
    struct bpe_scratch scratch;
    struct tok_ids *out;
    struct t9_err *err;
};

static t9_status out_failed(const struct encoding *e)
{
    if (e->out->n >= e->out->max)
        return t9_fail(e->err, T9_STATUS_TOO_LARGE, "the text has more than %zu tokens",
                       e->out->max);
    return t9_fail(e->err, T9_STATUS_NOMEM, "tokenizer: no memory after %zu tokens", e->out->n);
}

/* Encodes text between special tokens. Normalisation happens here, after special tokens were taken
 * out of the text as it was given: so composed characters may form across a span boundary, as they
 * do in the reference implementation, and yet no special token can come into being by
 * normalisation. */
static t9_status encode_words(struct encoding *e, str s)
{
    const struct tokenizer *t = e->t;
    if (t->rule->nfc && nfc_first_suspect(&t->uniclass, s, 0) < s.n) {
        buf_clear(&e->normalised);
        nfc_append(&t->uniclass, s, &e->normalised);
        if (e->normalised.failed)
            return t9_fail(e->err, T9_STATUS_NOMEM, "tokenizer: no memory to normalise %zu bytes",
                           s.n);
        s = buf_str(&e->normalised);
    }
    for (size_t pos = 0; pos < s.n;) {
        size_t end = pretok_next(t->rule, &t->uniclass, s, pos);
        if (!bpe_encode_word(t, &e->scratch, str_slice(s, pos, end), e->out))
            return t9_fail(e->err, T9_STATUS_NOMEM, "tokenizer: no memory for a word of %zu bytes",
                           end - pos);
        if (e->out->failed)
            return out_failed(e);
        pos = end;
    }
    return T9_STATUS_OK;
}

/* Where a stretch of text between special tokens stands. */
struct place {
    bool first, last;
    bool after_special; /* or first */
};

static t9_status encode_chars(struct encoding *e, str s, struct place at)
{
    const struct tokenizer *t = e->t;
    struct chars_norm how = {
        .prefix = at.after_special && t->vocab.space_prefix != VOCAB_PREFIX_NONE,
        .collapse = t->collapse_spaces,
        .first = at.first,
        .last = at.last,
    };
    if (chars_needs_norm(how, s)) {
        buf_clear(&e->normalised);
        chars_norm(how, s, &e->normalised);
        if (e->normalised.failed)
            return t9_fail(e->err, T9_STATUS_NOMEM, "tokenizer: no memory to normalise %zu bytes",
                           s.n);
        s = buf_str(&e->normalised);
    }
    if (!chars_encode(t, &e->scratch, s, e->out))
        return t9_fail(e->err, T9_STATUS_NOMEM, "tokenizer: no memory for a text of %zu bytes",
                       s.n);
    return e->out->failed ? out_failed(e) : T9_STATUS_OK;
}

static t9_status encode_plain(struct encoding *e, str s, struct place at)
{
    if (!s.n)
        return T9_STATUS_OK;
    if (e->t->kind == TOK_KIND_BPE)
        return encode_words(e, s);
    if (e->t->kind != TOK_KIND_WPM)
        return encode_chars(e, s, at);
    wpm_encode(e->t, s, e->out);
    return e->out->failed ? out_failed(e) : T9_STATUS_OK;
}

static t9_status join_spans(struct encoding *e, const struct tok_span *spans, size_t n_spans,
                            str *text)
{
    size_t total = 0;
    for (size_t i = 0; i < n_spans; i++) {
        if (spans[i].text.n > TOK_TEXT_BYTES_MAX - total)
            return t9_fail(e->err, T9_STATUS_TOO_LARGE,
                           "the text has more than %u bytes, the most one call can tokenize",
                           TOK_TEXT_BYTES_MAX);
        total += spans[i].text.n;
    }
    if (!total) /* the pointers may be NULL then */
        return T9_STATUS_OK;
    if (n_spans == 1) {
        *text = spans[0].text;
        return T9_STATUS_OK;
    }
    buf_init(&e->joined, total + 1);
    for (size_t i = 0; i < n_spans; i++)
        buf_append(&e->joined, spans[i].text.p, spans[i].text.n);
    if (e->joined.failed)
        return t9_fail(e->err, T9_STATUS_NOMEM, "tokenizer: no memory to join %zu bytes of text",
                       total);
    *text = buf_str(&e->joined);
    return T9_STATUS_OK;
}

static t9_status encode_text(struct encoding *e, str text)
{
    size_t done = 0;
    struct place at = {.first = e->n_bytes == 0, .after_special = true};
    for (size_t i = 0; i < e->special.n; i++) {
        const struct special_match *m = &e->special.p[i];
        T9_TRY(encode_plain(e, str_slice(text, done, m->from), at));
        at = (struct place){.after_special = m->kind != SPECIAL_TEXT};
        tok_ids_push(e->out, m->id);
        if (e->out->failed)
            return out_failed(e);
        done = m->from + m->n_bytes;
        struct tok_cut cut = {(uint32_t)(e->n_bytes + done), (uint32_t)e->out->n};
        if (e->cuts && at.after_special && !tok_cuts_append(e->cuts, &cut, 1))
            return t9_fail(e->err, T9_STATUS_NOMEM, "tokenizer: no memory after %zu tokens",
                           e->out->n);
    }
    at.last = true;
    return encode_plain(e, str_slice(text, done, text.n), at);
}

t9_status tokenizer_end(const struct tokenizer *t, struct tok_ids *ids, struct t9_err *err)
{
    if (!t->add_eos || t->vocab.eos < 0)
        return T9_STATUS_OK;
    struct encoding e = {.t = t, .out = ids, .err = err};
    tok_ids_push(ids, t->vocab.eos);
    t9_status st = ids->failed ? out_failed(&e) : T9_STATUS_OK;
    ids->failed = false;
    return st;
}

t9_status tokenizer_encode(const struct tokenizer *t, const struct tok_span *spans, size_t n_spans,
                           bool add_bos, struct tok_ids *out, struct t9_err *err)
{
    return tokenizer_encode_on(t, spans, n_spans, 0, add_bos, out, NULL, err);
}

t9_status tokenizer_encode_on(const struct tokenizer *t, const struct tok_span *spans,
                              size_t n_spans, size_t n_bytes, bool add_bos, struct tok_ids *out,
                              struct tok_cuts *cuts, struct t9_err *err)
{
    str text = STR("");
    size_t base = out->n;
    struct encoding e = {.t = t, .n_bytes = n_bytes, .cuts = cuts, .out = out, .err = err};
    t9_status st = join_spans(&e, spans, n_spans, &text);
    if (st != T9_STATUS_OK)
        goto done;
    bpe_scratch_init(&e.scratch, text.n);
    /* NFC makes text at most three times as long. */
    buf_init(&e.normalised, 3 * text.n + 64);
    st = special_find(t->special, text, spans, n_spans, &e.special, err);
    if (st != T9_STATUS_OK)
        goto done;
    int32_t bos = add_bos && n_bytes == 0 ? t->vocab.bos : -1;
    bool has_bos = e.special.n && e.special.p[0].from == 0 && e.special.p[0].id == bos;
    if (bos >= 0 && !has_bos) {
        tok_ids_push(out, bos);
        st = out->failed ? out_failed(&e) : T9_STATUS_OK;
    }
    if (st == T9_STATUS_OK)
        st = encode_text(&e, text);
done:
    if (st != T9_STATUS_OK) {
        out->n = base;
        out->failed = false;
    }
    buf_deinit(&e.joined);
    buf_deinit(&e.normalised);
    mem_free(e.special.p);
    bpe_scratch_deinit(&e.scratch);
    return st;
}
