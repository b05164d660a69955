/*
 * tokenizer/detok.c - streaming detokenizer: holds back the start of an unfinished UTF-8 character,
 * replaces malformed bytes, and takes away the space that encoding puts before a text, with the
 * same result for any grouping of the bytes. By value, one thread.
 */
#include "tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

void detok_init(struct detok *d, const struct vocab *v)
{
    *d = (struct detok){.vocab = v, .at_start = v->space_prefix != VOCAB_PREFIX_NONE};
}

/* Special tokens but those that stand for text: text begins anew there. */
static bool is_marker(const struct vocab *v, int32_t id)
{
    return tok_is_marker((uint8_t)vocab_type(v, id)) && !(v->flags[id] & VOCAB_FLAG_TEXT);
}

void detok_after(struct detok *d, int32_t last_id)
{
    d->at_start = d->vocab->space_prefix == VOCAB_PREFIX_SPECIAL && is_marker(d->vocab, last_id);
}

/* Appends bytes through the decoder. What stays pending is always the proper start of a well-formed
 * character, so sanitising all but the incomplete tail equals sanitising the whole text. */
static void feed(struct detok *d, str s, struct buf *out)
{
    /* A pending start is completed byte by byte; the bulk of the piece goes through in one call. */
    while (d->n_pending && s.n) {
        char all[5];
        memcpy(all, d->pending, d->n_pending);
        all[d->n_pending] = *s.p;
        str joined = {all, d->n_pending + 1U};
        size_t tail = utf8_incomplete_tail(joined);
        utf8_sanitize(out, str_slice(joined, 0, joined.n - tail));
        memcpy(d->pending, all + joined.n - tail, tail);
        d->n_pending = (uint8_t)tail;
        s = str_slice(s, 1, s.n);
    }
    if (!s.n)
        return;
    size_t tail = utf8_incomplete_tail(s);
    utf8_sanitize(out, str_slice(s, 0, s.n - tail));
    memcpy(d->pending, s.p + s.n - tail, tail);
    d->n_pending = (uint8_t)tail;
}

void detok_push(struct detok *d, int32_t id, struct buf *out, bool render_special)
{
    tok_type type = vocab_type(d->vocab, id);
    str piece = vocab_piece(d->vocab, id);
    bool special = type == TOK_TYPE_CONTROL || type == TOK_TYPE_UNKNOWN;
    bool shown = !special || render_special, marker = is_marker(d->vocab, id);
    if (shown && !marker && d->at_start && piece.n) {
        if (piece.p[0] == ' ')
            piece = str_slice(piece, 1, piece.n);
        d->at_start = false;
    }
    if (shown)
        feed(d, piece, out);
    if (marker)
        d->at_start = d->vocab->space_prefix == VOCAB_PREFIX_SPECIAL;
}

void detok_finish(struct detok *d, struct buf *out)
{
    utf8_sanitize(out, (str){(const char *)d->pending, d->n_pending});
    d->n_pending = 0;
    d->at_start = d->vocab->space_prefix != VOCAB_PREFIX_NONE;
}
