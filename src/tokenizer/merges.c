/*
 * tokenizer/merges.c - the maps from text to ids and the table of merges, from a file's list or,
 * for SentencePiece, from the scores: a pair may merge when together it is a token, the highest
 * score first. Runs on the loading thread; odd but harmless tables get one warning each.
 */
#include "tokenizer/parts.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* All the looking up of parts of tokens reads so many bytes at most: a second's work. */
#define SPLIT_BYTES_MAX ((uint64_t)1 << 32)

static t9_status no_memory(struct t9_err *err)
{
    return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for the merges");
}

static void find_bytes(struct tokenizer *t)
{
    const struct vocab *v = &t->vocab;
    uint32_t n_absent = 0;
    for (unsigned b = 0; b < 256; b++) {
        char c = (char)b;
        t->bpe.byte_id[b] =
            t->kind == TOK_KIND_BPE ? strmap_get(&t->words, &t->vocab, (str){&c, 1}) : -1;
    }
    for (int32_t id = (int32_t)v->n_tokens; t->kind != TOK_KIND_BPE && id-- > 0;) {
        str piece = vocab_piece(v, id);
        if (v->type[id] == TOK_TYPE_BYTE && piece.n == 1)
            t->bpe.byte_id[(uint8_t)*piece.p] = id;
    }
    for (unsigned b = 0; b < 256; b++)
        n_absent += t->bpe.byte_id[b] < 0;
    t->chars.all_bytes = n_absent == 0;
    if (n_absent && t->kind == TOK_KIND_BPE)
        LOG_INFO("tokenizer",
                 "the vocabulary has no token for %u of the 256 bytes; they are left "
                 "out of a text, as this model's own tokenizer does",
                 n_absent);
    else if (n_absent && t->kind != TOK_KIND_WPM && t->unk < 0)
        LOG_WARN("tokenizer",
                 "the vocabulary has no token for %u of the 256 bytes and none for unknown text; "
                 "characters without a token are left out of a text",
                 n_absent);
}

static t9_status fill_maps(struct tokenizer *t, struct t9_err *err)
{
    uint32_t n_markers = 0, n_same = 0;
    const struct vocab *v = &t->vocab;
    for (uint32_t i = 0; i < v->n_tokens; i++)
        n_markers += tok_is_marker(v->type[i]);
    T9_TRY(strmap_init(&t->words, v->n_tokens - n_markers, err));
    T9_TRY(strmap_init(&t->markers, n_markers, err));
    for (int32_t id = 0; (uint32_t)id < v->n_tokens; id++) {
        uint8_t type = v->type[id];
        /* A byte's token stands for what no other token can spell, not for a character. */
        bool byte = type == TOK_TYPE_BYTE && t->kind != TOK_KIND_BPE;
        if (!vocab_piece(v, id).n || type == TOK_TYPE_UNUSED || byte)
            continue;
        n_same += !strmap_add(tok_is_marker(type) ? &t->markers : &t->words, v, id);
    }
    if (n_same)
        LOG_WARN("tokenizer", "%u tokens have the same text as an earlier one, which is used",
                 n_same);
    find_bytes(t);
    return T9_STATUS_OK;
}

/* ---- merges that the file lists ----------------------------------------------------------------
 */

/* Splits "left right" at the first space after the first byte and looks up both and their sum. */
static bool merge_ids(const struct tokenizer *t, const struct tok_alphabet *a, str m, int32_t id[3])
{
    char all[2 * TOK_TOKEN_BYTES_MAX];
    size_t cut = m.n > 1 ? str_find(m, STR(" "), 1) : (size_t)-1;
    if (cut == (size_t)-1 || cut > TOK_TOKEN_BYTES_MAX || m.n - cut - 1 > TOK_TOKEN_BYTES_MAX)
        return false;
    size_t n = tok_text_bytes(t->kind, a, str_slice(m, 0, cut), all);
    size_t k = tok_text_bytes(t->kind, a, str_slice(m, cut + 1, m.n), all + n);
    id[0] = strmap_get(&t->words, &t->vocab, (str){all, n});
    id[1] = strmap_get(&t->words, &t->vocab, (str){all + n, k});
    id[2] = strmap_get(&t->words, &t->vocab, (str){all, n + k});
    return id[0] >= 0 && id[1] >= 0 && id[2] >= 0;
}

static t9_status listed_merges(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    struct tok_alphabet a;
    uint32_t n_bad = 0, n_same = 0;
    tok_alphabet_init(&a);
    T9_TRY(bpe_init(&t->bpe, (uint32_t)s->n_merges, err));
    for (uint32_t rank = 0; rank < (uint32_t)s->n_merges; rank++) {
        int32_t id[3];
        if (!merge_ids(t, &a, s->merge[rank], id))
            n_bad++;
        else
            n_same += !bpe_add(&t->bpe, id[0], id[1], rank, id[2]);
    }
    if (n_bad)
        LOG_WARN("tokenizer", "%u of %u merges name no ordinary tokens and are not used", n_bad,
                 (uint32_t)s->n_merges);
    if (n_same)
        LOG_WARN("tokenizer", "%u merges repeat an earlier one, which is used", n_same);
    return T9_STATUS_OK;
}

/* ---- merges by score ----------------------------------------------------------------------------
 */

struct scored {
    float score;
    int32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Whether merging may make this token: it is ordinary, and no other one with its text goes first.
 */
static bool is_word(const struct tokenizer *t, int32_t id)
{
    const struct vocab *v = &t->vocab;
    return v->type[id] == TOK_TYPE_NORMAL && vocab_piece(v, id).n &&
           strmap_get(&t->words, v, vocab_piece(v, id)) == id;
}

struct merge_list {
    struct merge {
        int32_t left, right, id;
        uint32_t rank;
    } * p;
    uint32_t n, cap;
    uint64_t work_bytes;
};

static bool list_push(struct merge_list *l, struct merge m)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4096;
        struct merge *p = mem_realloc(l->p, cap, sizeof(*p));
        if (!p)
            return false;
        l->p = p;
        l->cap = cap;
    }
    l->p[l->n++] = m;
    return true;
}

/* Symbol of a part of a token, -1: merging never makes it. Sets *nomem when out of memory. */
static int32_t symbol_of(struct tokenizer *t, str part, bool *nomem)
{
    int32_t id = strmap_get(&t->words, &t->vocab, part);
    uint32_t cp;
    if (id >= 0 || utf8_decode(part.p, part.n, &cp) != part.n)
        return id;
    struct chars *c = &t->chars;
    id = chars_get(c, cp);
    if (id >= 0)
        return id;
    if (c->n_extra == c->extra_cap) {
        uint32_t cap = c->extra_cap ? c->extra_cap * 2 : 64;
        uint32_t *p = mem_realloc(c->extra, cap, sizeof(*p));
        *nomem = *nomem || !p;
        if (!p)
            return -1;
        c->extra = p;
        c->extra_cap = cap;
    }
    id = (int32_t)(t->vocab.n_tokens + c->n_extra);
    c->extra[c->n_extra++] = cp;
    *nomem = *nomem || !chars_add(c, cp, id);
    return id;
}

/* All ways to cut a token into two symbols. */
static t9_status split_token(struct tokenizer *t, int32_t id, uint32_t rank, struct merge_list *l,
                             struct t9_err *err)
{
    str text = vocab_piece(&t->vocab, id);
    bool nomem = false;
    l->work_bytes += (uint64_t)text.n * text.n;
    if (l->work_bytes > SPLIT_BYTES_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "tokenizer.ggml.tokens: too many long tokens to find their parts");
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        size_t len = utf8_decode(text.p + i, text.n - i, &cp);
        i += len ? len : 1;
        if (i >= text.n)
            break;
        int32_t left = symbol_of(t, str_slice(text, 0, i), &nomem);
        int32_t right = left >= 0 ? symbol_of(t, str_slice(text, i, text.n), &nomem) : -1;
        if (nomem)
            return no_memory(err);
        if (right < 0)
            continue;
        if (l->n == TOK_MERGES_MAX)
            return t9_fail(err, T9_STATUS_CORRUPT,
                           "tokenizer.ggml.tokens: more than %u pairs of tokens make a token",
                           TOK_MERGES_MAX);
        if (!list_push(l, (struct merge){left, right, id, rank}))
            return no_memory(err);
    }
    return T9_STATUS_OK;
}

static t9_status scored_merges(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    t9_status st = T9_STATUS_OK;
    struct merge_list l = {0};
    uint32_t n = 0, n_tokens = t->vocab.n_tokens;
    struct scored *order = mem_calloc(n_tokens, sizeof(*order));
    if (!order)
        return no_memory(err);
    for (int32_t id = 0; (uint32_t)id < n_tokens; id++) {
        if (is_word(t, id))
            order[n++] = (struct scored){s->score[id], id};
    }
    qsort(order, n, sizeof(*order), by_score);
    uint32_t rank = 0;
    for (uint32_t i = 0; i < n && st == T9_STATUS_OK; i++) {
        /* Equal scores are one rank, so that of two such pairs in a text the left one goes first.
         */
        rank += i && order[i].score < order[i - 1].score ? 1 : 0;
        st = split_token(t, order[i].id, rank, &l, err);
    }
    if (st == T9_STATUS_OK)
        st = bpe_init(&t->bpe, l.n, err);
    for (uint32_t i = 0; st == T9_STATUS_OK && i < l.n; i++)
        (void)bpe_add(&t->bpe, l.p[i].left, l.p[i].right, l.p[i].rank, l.p[i].id);
    mem_free(order);
    mem_free(l.p);
    return st;
}

/* ---- all ----------------------------------------------------------------------------------------
 */

static t9_status fill_chars(struct tokenizer *t, struct t9_err *err)
{
    const struct vocab *v = &t->vocab;
    for (int32_t id = 0; (uint32_t)id < v->n_tokens; id++) {
        if (!is_word(t, id))
            continue;
        str text = vocab_piece(v, id);
        uint32_t cp;
        if (utf8_decode(text.p, text.n, &cp) == text.n && !chars_add(&t->chars, cp, id))
            return no_memory(err);
        chars_mark(&t->chars, text);
    }
    return T9_STATUS_OK;
}

t9_status merges_fill(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    T9_TRY(fill_maps(t, err));
    if (t->kind == TOK_KIND_WPM)
        return T9_STATUS_OK;
    if (t->kind == TOK_KIND_BPE)
        return listed_merges(t, s, err);
    T9_TRY(fill_chars(t, err));
    return t->kind == TOK_KIND_SPM ? scored_merges(t, s, err) : listed_merges(t, s, err);
}
