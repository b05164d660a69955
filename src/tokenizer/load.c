/*
 * tokenizer/load.c - builds a tokenizer from a checked `struct tok_source`: which kind it is, the
 * checks, and the parts in their order (vocabulary.c, merges.c, special.c).
 *
 * Which tokens may come out of ordinary text is decided once: CONTROL, UNKNOWN, USER_DEFINED and
 * UNUSED tokens enter neither the word map nor the merge table, so no message text can turn into
 * one, whatever the merges of a file say. Odd but harmless vocabularies (duplicates, merges of
 * tokens that do not exist) are loaded with one warning each. Runs on the loading thread.
 */
#include "tokenizer/parts.h"

#include "base/log.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

void tok_source_init(struct tok_source *s)
{
    *s = (struct tok_source){.add_bos = -1, .add_eos = -1};
    s->add_space_prefix = s->remove_extra_spaces = -1;
    s->unk = s->sep = s->cls = -1;
    s->bos = s->eos = s->eot = s->eom = s->pad = -1;
    s->fim_pad = s->fim_rep = s->fim_sep = -1;
}

static t9_status check_source(const struct tok_source *s, struct t9_err *err)
{
    if (!s->n_tokens || s->n_tokens > TOK_TOKENS_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "tokenizer.ggml.tokens has %llu elements; 1 to %u can be used",
                       (unsigned long long)s->n_tokens, TOK_TOKENS_MAX);
    if (s->n_merges > TOK_MERGES_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "tokenizer.ggml.merges has %llu elements; at most %u can be used",
                       (unsigned long long)s->n_merges, TOK_MERGES_MAX);
    uint64_t total = 0;
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        if (s->token[i].n > TOK_TOKEN_BYTES_MAX)
            return t9_fail(err, T9_STATUS_CORRUPT,
                           "tokenizer.ggml.tokens[%llu] has %zu bytes; at most %u can be used",
                           (unsigned long long)i, s->token[i].n, TOK_TOKEN_BYTES_MAX);
        total += s->token[i].n;
    }
    if (total > TOK_VOCAB_BYTES_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "tokenizer.ggml.tokens has %llu bytes; at most %u can be used",
                       (unsigned long long)total, TOK_VOCAB_BYTES_MAX);
    return T9_STATUS_OK;
}

static t9_status check_id(const struct tok_source *s, const char *name, int64_t id,
                          struct t9_err *err)
{
    if (id < -1 || id >= (int64_t)s->n_tokens)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "tokenizer.ggml.%s is %lld, but the vocabulary has %llu tokens", name,
                       (long long)id, (unsigned long long)s->n_tokens);
    return T9_STATUS_OK;
}

static t9_status check_ids(const struct tok_source *s, struct t9_err *err)
{
    T9_TRY(check_id(s, "bos_token_id", s->bos, err));
    T9_TRY(check_id(s, "eos_token_id", s->eos, err));
    T9_TRY(check_id(s, "eot_token_id", s->eot, err));
    T9_TRY(check_id(s, "eom_token_id", s->eom, err));
    T9_TRY(check_id(s, "padding_token_id", s->pad, err));
    T9_TRY(check_id(s, "fim_pad_token_id", s->fim_pad, err));
    T9_TRY(check_id(s, "fim_rep_token_id", s->fim_rep, err));
    T9_TRY(check_id(s, "fim_sep_token_id", s->fim_sep, err));
    T9_TRY(check_id(s, "unknown_token_id", s->unk, err));
    T9_TRY(check_id(s, "seperator_token_id", s->sep, err));
    T9_TRY(check_id(s, "cls_token_id", s->cls, err));
    for (uint64_t i = 0; i < s->n_suppress; i++)
        T9_TRY(check_id(s, "suppress_tokens[]", s->suppress[i] < 0 ? -2 : s->suppress[i], err));
    return T9_STATUS_OK;
}

static t9_status pick_rule(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    if (!s->pre.n)
        LOG_WARN("tokenizer",
                 "the file names no pre-tokenizer (tokenizer.ggml.pre); using the "
                 "GPT-2 pattern, which may split words in another way than in training");
    t->rule = pretok_find(s->pre.n ? s->pre : STR("default"));
    if (t->rule)
        return T9_STATUS_OK;
    struct buf names;
    buf_init(&names, 4096);
    pretok_names(&names);
    t9_status st =
        t9_fail(err, T9_STATUS_UNSUPPORTED,
                "tokenizer.ggml.pre is '" STR_FMT "'; known pre-tokenizers: " STR_FMT,
                (int)(s->pre.n < 48 ? s->pre.n : 48), s->pre.p, STR_ARG(buf_str(&names)));
    buf_deinit(&names);
    return st;
}

static const char *const kind_names[] = {[TOK_KIND_BPE] = "gpt2",
                                         [TOK_KIND_SPM] = "llama",
                                         [TOK_KIND_GEMMA4] = "gemma4",
                                         [TOK_KIND_WPM] = "bert"};

static t9_status pick_kind(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    size_t k = 0;
    while (k < T9_COUNT(kind_names) && !str_eqz(s->model, kind_names[k]))
        k++;
    if (k == T9_COUNT(kind_names))
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "tokenizer.ggml.model is '" STR_FMT
                       "'; known kinds: gpt2, llama, gemma4, bert",
                       (int)(s->model.n < 64 ? s->model.n : 64), s->model.p);
    t->kind = (enum tok_kind)k;
    if (t->kind == TOK_KIND_BPE)
        return pick_rule(t, s, err);
    if (t->kind == TOK_KIND_GEMMA4 && s->pre.n && !str_eqz(s->pre, "gemma4") &&
        !str_eqz(s->pre, "default"))
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "tokenizer.ggml.pre is '" STR_FMT "'; known for this kind: gemma4, default",
                       (int)(s->pre.n < 48 ? s->pre.n : 48), s->pre.p);
    if (s->n_charsmap)
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "tokenizer.ggml.precompiled_charsmap: normalising by a table of the file is "
                       "not supported; known are vocabularies that take text as it is");
    return T9_STATUS_OK;
}

/* What SentencePiece's merging needs and a list of merges does not. */
static t9_status check_scores(const struct tokenizer *t, const struct tok_source *s,
                              struct t9_err *err)
{
    if (t->kind != TOK_KIND_SPM)
        return T9_STATUS_OK;
    if (!s->score)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "tokenizer.ggml.scores is missing, and a tokenizer of the kind llama merges "
                       "by them");
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        if (isnan(s->score[i]))
            return t9_fail(err, T9_STATUS_CORRUPT, "tokenizer.ggml.scores[%llu] is no number",
                           (unsigned long long)i);
    }
    return T9_STATUS_OK;
}

/* The id that a file names, else that of a special token with this text. */
static int64_t id_or_text(const struct tokenizer *t, int64_t id, const char *text)
{
    return id >= 0 ? id : strmap_get(&t->markers, &t->vocab, str_from(text));
}

static void set_flags(struct tokenizer *t, const struct tok_source *s)
{
    bool bos = false, eos = false;
    switch (t->kind) {
    case TOK_KIND_BPE: bos = t->rule->add_bos; break;
    case TOK_KIND_SPM:
        bos = true;
        t->vocab.space_prefix = s->add_space_prefix ? VOCAB_PREFIX_SPECIAL : VOCAB_PREFIX_NONE;
        t->collapse_spaces = s->remove_extra_spaces > 0;
        break;
    case TOK_KIND_GEMMA4: bos = true; break;
    case TOK_KIND_WPM:
        bos = eos = true;
        t->vocab.bos = (int32_t)id_or_text(t, s->cls >= 0 ? s->cls : s->bos, "[CLS]");
        t->vocab.eos = (int32_t)id_or_text(t, s->sep >= 0 ? s->sep : s->eos, "[SEP]");
        t->vocab.space_prefix = VOCAB_PREFIX_START;
        t->unk = (int32_t)id_or_text(t, s->unk, "[UNK]");
        t->lower = wpm_is_lower(t);
        break;
    }
    bool from_text = t->kind != TOK_KIND_BPE && !t->chars.all_bytes;
    if (t->unk >= 0 && t->type[t->unk] == TOK_TYPE_UNKNOWN && from_text)
        t->flags[t->unk] |= VOCAB_FLAG_TEXT; /* encoding makes it out of text */
    /* Gemma 4 begins with BOS whatever a file says: early ones had the flag wrong. */
    t->add_bos = s->add_bos < 0 || t->kind == TOK_KIND_GEMMA4 ? bos : s->add_bos > 0;
    t->add_eos = s->add_eos < 0 ? eos : s->add_eos > 0;
    if (t->add_bos && t->vocab.bos < 0) {
        LOG_WARN("tokenizer", "prompts should begin with BOS, but the file names no bos_token_id");
        t->add_bos = false;
    }
}

/* No vocabulary has every word: without a token for the others they would be left out of a text. */
static t9_status check_unknown(const struct tokenizer *t, struct t9_err *err)
{
    if (t->kind != TOK_KIND_WPM || t->unk >= 0)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_CORRUPT,
                   "the file names no tokenizer.ggml.unknown_token_id and has no token [UNK]; a "
                   "tokenizer of the kind bert needs one for words that the vocabulary lacks: "
                   "convert the model again");
}

static t9_status fill_special(struct tokenizer *t, struct t9_err *err)
{
    const struct vocab *v = &t->vocab;
    size_t n = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++)
        n += tok_is_marker(v->type[i]);
    struct special_entry *e = mem_calloc(n + 1, sizeof(*e));
    if (!e)
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for %zu special tokens", n);
    n = 0;
    for (int32_t id = 0; (uint32_t)id < v->n_tokens; id++) {
        if (!tok_is_marker(v->type[id]))
            continue;
        e[n].text = vocab_piece(v, id);
        e[n].id = id;
        e[n].kind = v->type[id] == TOK_TYPE_USER_DEFINED ? SPECIAL_USER : SPECIAL_CONTROL;
        if (v->type[id] == TOK_TYPE_USER_DEFINED && (v->flags[id] & VOCAB_FLAG_TEXT))
            e[n].kind = SPECIAL_TEXT;
        n++;
    }
    t9_status st = special_new(&t->special, e, n, err);
    mem_free(e);
    return st;
}

static t9_status fill(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    T9_TRY(pick_kind(t, s, err));
    T9_TRY(check_source(s, err));
    T9_TRY(check_ids(s, err));
    T9_TRY(check_scores(t, s, err));
    T9_TRY(vocabulary_fill(t, s, err));
    if (tok_merges_chars(t))
        T9_TRY(chars_init(&t->chars, err));
    t->unk = (int32_t)s->unk;
    T9_TRY(merges_fill(t, s, err));
    T9_TRY(fill_special(t, err));
    if (t->kind == TOK_KIND_BPE)
        T9_TRY(uniclass_init(&t->uniclass, err));
    set_flags(t, s);
    return check_unknown(t, err);
}

t9_status tokenizer_new_from(struct tokenizer **out, const struct tok_source *s, struct t9_err *err)
{
    *out = NULL;
    struct tokenizer *t = mem_calloc(1, sizeof(*t));
    if (!t)
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory");
    t9_status st = fill(t, s, err);
    if (st != T9_STATUS_OK)
        tokenizer_free(t);
    else
        *out = t;
    return st;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    mem_free(t->type);
    mem_free(t->flags);
    mem_free(t->offset);
    mem_free(t->bytes);
    mem_free(t->eog);
    mem_free(t->suppress);
    strmap_deinit(&t->words);
    strmap_deinit(&t->markers);
    special_free(t->special);
    bpe_deinit(&t->bpe);
    chars_deinit(&t->chars);
    uniclass_deinit(&t->uniclass);
    mem_free(t);
}

const struct vocab *tokenizer_vocab(const struct tokenizer *t)
{
    return &t->vocab;
}

str tokenizer_piece(const struct tokenizer *t, int32_t id)
{
    return vocab_piece(&t->vocab, id);
}

int32_t tokenizer_find(const struct tokenizer *t, str text)
{
    int32_t id = strmap_get(&t->markers, &t->vocab, text);
    return id >= 0 ? id : strmap_get(&t->words, &t->vocab, text);
}

const char *tokenizer_model_name(const struct tokenizer *t)
{
    return kind_names[t->kind];
}

const char *tokenizer_pre_name(const struct tokenizer *t)
{
    return t->rule ? t->rule->name : "none";
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->vocab.bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->vocab.eos;
}

bool tokenizer_add_bos(const struct tokenizer *t)
{
    return t->add_bos;
}

bool tokenizer_add_eos(const struct tokenizer *t)
{
    return t->add_eos;
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    return vocab_is_eog(&t->vocab, id);
}
