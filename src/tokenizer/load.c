/*
 * tokenizer/load.c - builds a tokenizer from a checked `struct tok_source`: token bytes, kinds, the
 * set of ids that end a turn, the maps and the merge table.
 *
 * Which tokens may come out of ordinary text is decided here once: CONTROL, UNKNOWN, USER_DEFINED
 * and UNUSED tokens enter neither the word map nor the merge table, so no message text can turn
 * into one, whatever the merges of a file say. Odd but harmless vocabularies (duplicates, merges of
 * tokens that do not exist) are loaded with one warning each. Runs on the loading thread.
 */
#include "tokenizer/parts.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

/* Tokens that end a turn, by their text: files name one id at most, models use several. */
static const char *const eog_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "<|end_of_text|>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
};
/* Fill-in-the-middle separators end an answer too, but stay of the kind that the file gives them.
 */
static const char *const fim_texts[] = {"<|fim_pad|>", "<|repo_name|>", "<reponame>",
                                        "<|file_sep|>"};
/* Markers that the parsers of model output look for. */
static const char *const parser_texts[] = {
    "<|channel|>",      "<|message|>", "<|start|>",      "<|constrain|>", "<|end|>",
    "<|channel>",       "<channel|>",  "<|tool_call>",   "<tool_call|>",  "<|tool_response>",
    "<tool_response|>", "<|\"|>",      "[TOOL_CALLS]",   "[ARGS]",        "[CALL_ID]",
    "[THINK]",          "[/THINK]",    "<|python_tag|>",
};

void tok_source_init(struct tok_source *s)
{
    *s = (struct tok_source){.add_bos = -1, .add_eos = -1};
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
    for (uint64_t i = 0; i < s->n_suppress; i++)
        T9_TRY(check_id(s, "suppress_tokens[]", s->suppress[i] < 0 ? -2 : s->suppress[i], err));
    return T9_STATUS_OK;
}

static t9_status pick_rule(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    if (!str_eqz(s->model, "gpt2"))
        return t9_fail(err, T9_STATUS_UNSUPPORTED,
                       "tokenizer.ggml.model is '" STR_FMT "'; known kinds: gpt2",
                       (int)(s->model.n < 64 ? s->model.n : 64), s->model.p);
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

static bool vocab_alloc(struct tokenizer *t, const struct tok_source *s)
{
    size_t n = s->n_tokens, total = 0;
    for (size_t i = 0; i < n; i++)
        total += s->token[i].n;
    t->type = mem_alloc(n);
    t->flags = mem_calloc(n, 1);
    t->offset = mem_calloc(n + 1, sizeof(*t->offset));
    t->bytes = mem_alloc(total + 1);
    return t->type && t->flags && t->offset && t->bytes;
}

/* The byte that a character stands for in the GPT-2 alphabet, -1 for other characters: printable
 * Latin-1 stands for itself, the other 68 bytes are U+0100 up, in order. */
static void byte_alphabet(int16_t of_char[324])
{
    int16_t next = 256;
    for (int i = 0; i < 324; i++)
        of_char[i] = -1;
    for (int16_t b = 0; b < 256; b++) {
        bool self = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        of_char[self ? b : next] = b;
        next = (int16_t)(next + !self);
    }
}

/* Writes the bytes of a token's text and returns how many; text with any character outside the
 * alphabet stands for itself. `out` has room for text.n. */
static size_t decode_text(const int16_t of_char[324], str text, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        size_t len = utf8_decode(text.p + i, text.n - i, &cp);
        if (!len || cp >= 324 || of_char[cp] < 0) {
            memcpy(out, text.p, text.n);
            return text.n;
        }
        out[n++] = (char)of_char[cp];
        i += len;
    }
    return n;
}

static bool is_marker(uint8_t type)
{
    return type == TOK_TYPE_CONTROL || type == TOK_TYPE_UNKNOWN || type == TOK_TYPE_USER_DEFINED;
}

static t9_status fill_types(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        int32_t type = s->type ? s->type[i] : TOK_TYPE_NORMAL;
        if (type < 0 || type > TOK_TYPE_BYTE)
            return t9_fail(err, T9_STATUS_CORRUPT,
                           "tokenizer.ggml.token_type[%llu] is %d; known types are 1 to 6",
                           (unsigned long long)i, type);
        t->type[i] = (uint8_t)(type ? type : TOK_TYPE_NORMAL);
    }
    return T9_STATUS_OK;
}

static bool in_list(str text, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text.n && text.p[0] == list[i][0] && str_eqz(text, list[i]))
            return true;
    }
    return false;
}

static void set_eog(struct tokenizer *t, int64_t id)
{
    if (id >= 0)
        t->flags[id] |= VOCAB_FLAG_EOG;
}

/* Whether merging makes this text, which nobody does to a special token. Qwen's vocabulary has the
 * HTML tag </s> that way: an ordinary word that must not end an answer. */
static bool is_merged(const struct tok_source *s, str text)
{
    for (uint64_t i = 0; i < s->n_merges; i++) {
        str m = s->merge[i];
        size_t cut = m.n == text.n + 1 ? str_find(m, STR(" "), 1) : (size_t)-1;
        if (cut != (size_t)-1 && memcmp(m.p, text.p, cut) == 0 &&
            memcmp(m.p + cut + 1, text.p + cut, text.n - cut) == 0)
            return true;
    }
    return false;
}

/* Sets the flags. A token found by text is made CONTROL: files exist that call such a token normal,
 * and then its text would be printed and could be written by a user. */
static void mark_flags(struct tokenizer *t, const struct tok_source *s)
{
    bool ret = false, call = false, gemma4 = false;
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        ret = ret || str_eqz(s->token[i], "<|return|>");
        call = call || str_eqz(s->token[i], "<|call|>");
        gemma4 = gemma4 || str_eqz(s->token[i], "<|tool_response>");
    }
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        str text = s->token[i];
        if (in_list(text, parser_texts, T9_COUNT(parser_texts)))
            t->flags[i] |= VOCAB_FLAG_PARSER;
        if (t->type[i] != TOK_TYPE_UNUSED && in_list(text, fim_texts, T9_COUNT(fim_texts)))
            set_eog(t, (int64_t)i);
        if (!in_list(text, eog_texts, T9_COUNT(eog_texts)) || t->type[i] == TOK_TYPE_UNUSED)
            continue;
        if (t->type[i] == TOK_TYPE_NORMAL && is_merged(s, text))
            continue;
        if (gemma4 && str_eqz(text, "</s>")) {
            t->type[i] = TOK_TYPE_NORMAL; /* an HTML tag there */
            continue;
        }
        t->type[i] = TOK_TYPE_CONTROL;
        /* In the harmony format <|end|> only ends a message, more of them follow. */
        if (!(ret && call && str_eqz(text, "<|end|>")))
            set_eog(t, (int64_t)i);
    }
    const int64_t ids[] = {s->eos, s->eot, s->eom, s->fim_pad, s->fim_rep, s->fim_sep};
    for (size_t i = 0; i < T9_COUNT(ids); i++)
        set_eog(t, ids[i]);
}

static void fill_bytes(struct tokenizer *t, const struct tok_source *s)
{
    int16_t of_char[324];
    uint32_t at = 0;
    byte_alphabet(of_char);
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        str text = s->token[i];
        uint32_t n = (uint32_t)text.n;
        if (is_marker(t->type[i]))
            memcpy(t->bytes + at, text.p, n);
        else
            n = (uint32_t)decode_text(of_char, text, t->bytes + at);
        at += n;
        t->offset[i + 1] = at;
        t->vocab.longest_bytes = n > t->vocab.longest_bytes ? n : t->vocab.longest_bytes;
    }
}

static t9_status fill_lists(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    uint32_t n_eog = 0, n_suppress = 0;
    for (uint64_t i = 0; i < s->n_tokens; i++)
        n_eog += t->flags[i] & VOCAB_FLAG_EOG ? 1 : 0;
    t->eog = mem_calloc(n_eog + 1U, sizeof(*t->eog));
    t->suppress = mem_calloc(s->n_suppress + 1, sizeof(*t->suppress));
    uint8_t *seen = mem_calloc(s->n_tokens, 1);
    if (!t->eog || !t->suppress || !seen) {
        mem_free(seen);
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for the lists of ids");
    }
    /* Through a bitmap: that sorts the list and drops repeated ids. */
    for (uint64_t i = 0; i < s->n_suppress; i++)
        seen[s->suppress[i]] = 1;
    n_eog = 0;
    for (uint32_t i = 0; i < (uint32_t)s->n_tokens; i++) {
        if (t->flags[i] & VOCAB_FLAG_EOG)
            t->eog[n_eog++] = (int32_t)i;
        if (seen[i])
            t->suppress[n_suppress++] = (int32_t)i;
    }
    mem_free(seen);
    t->vocab.eog = t->eog;
    t->vocab.n_eog = n_eog;
    t->vocab.suppress = t->suppress;
    t->vocab.n_suppress = n_suppress;
    return T9_STATUS_OK;
}

static t9_status fill_vocab(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    if (!vocab_alloc(t, s))
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for %llu tokens",
                       (unsigned long long)s->n_tokens);
    T9_TRY(fill_types(t, s, err));
    mark_flags(t, s);
    fill_bytes(t, s);
    t->vocab.n_tokens = (uint32_t)s->n_tokens;
    t->vocab.type = t->type;
    t->vocab.flags = t->flags;
    t->vocab.offset = t->offset;
    t->vocab.bytes = t->bytes;
    t->vocab.bos = (int32_t)s->bos;
    t->vocab.eos = (int32_t)s->eos;
    t->vocab.pad = (int32_t)s->pad;
    return fill_lists(t, s, err);
}

static t9_status fill_maps(struct tokenizer *t, struct t9_err *err)
{
    uint32_t n_markers = 0, n_same = 0;
    const struct vocab *v = &t->vocab;
    for (uint32_t i = 0; i < v->n_tokens; i++)
        n_markers += is_marker(v->type[i]);
    T9_TRY(strmap_init(&t->words, v->n_tokens - n_markers, err));
    T9_TRY(strmap_init(&t->markers, n_markers, err));
    for (int32_t id = 0; (uint32_t)id < v->n_tokens; id++) {
        if (!vocab_piece(v, id).n || v->type[id] == TOK_TYPE_UNUSED)
            continue;
        n_same += !strmap_add(is_marker(v->type[id]) ? &t->markers : &t->words, v, id);
    }
    if (n_same)
        LOG_WARN("tokenizer", "%u tokens have the same text as an earlier one, which is used",
                 n_same);
    uint32_t n_absent = 0;
    for (unsigned b = 0; b < 256; b++) {
        char c = (char)b;
        t->bpe.byte_id[b] = strmap_get(&t->words, v, (str){&c, 1});
        n_absent += t->bpe.byte_id[b] < 0;
    }
    if (n_absent)
        LOG_INFO("tokenizer",
                 "the vocabulary has no token for %u of the 256 bytes; they are left "
                 "out of a text, as this model's own tokenizer does",
                 n_absent);
    return T9_STATUS_OK;
}

/* Splits "left right" at the first space after the first byte and looks up both and their sum. */
static bool merge_ids(const struct tokenizer *t, const int16_t of_char[324], str m, int32_t id[3])
{
    char all[2 * TOK_TOKEN_BYTES_MAX];
    size_t cut = m.n > 1 ? str_find(m, STR(" "), 1) : (size_t)-1;
    if (cut == (size_t)-1 || cut > TOK_TOKEN_BYTES_MAX || m.n - cut - 1 > TOK_TOKEN_BYTES_MAX)
        return false;
    size_t a = decode_text(of_char, str_slice(m, 0, cut), all);
    size_t b = decode_text(of_char, str_slice(m, cut + 1, m.n), all + a);
    id[0] = strmap_get(&t->words, &t->vocab, (str){all, a});
    id[1] = strmap_get(&t->words, &t->vocab, (str){all + a, b});
    id[2] = strmap_get(&t->words, &t->vocab, (str){all, a + b});
    return id[0] >= 0 && id[1] >= 0 && id[2] >= 0;
}

static t9_status fill_merges(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    int16_t of_char[324];
    uint32_t n_bad = 0, n_same = 0;
    byte_alphabet(of_char);
    T9_TRY(bpe_init(&t->bpe, (uint32_t)s->n_merges, err));
    for (uint32_t rank = 0; rank < (uint32_t)s->n_merges; rank++) {
        int32_t id[3];
        if (!merge_ids(t, of_char, s->merge[rank], id))
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

static t9_status fill_special(struct tokenizer *t, struct t9_err *err)
{
    const struct vocab *v = &t->vocab;
    size_t n = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++)
        n += is_marker(v->type[i]);
    struct special_entry *e = mem_calloc(n + 1, sizeof(*e));
    if (!e)
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for %zu special tokens", n);
    n = 0;
    for (int32_t id = 0; (uint32_t)id < v->n_tokens; id++) {
        if (!is_marker(v->type[id]))
            continue;
        e[n].text = vocab_piece(v, id);
        e[n].id = id;
        e[n++].kind = v->type[id] == TOK_TYPE_USER_DEFINED ? SPECIAL_USER : SPECIAL_CONTROL;
    }
    t9_status st = special_new(&t->special, e, n, err);
    mem_free(e);
    return st;
}

static t9_status fill(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    T9_TRY(pick_rule(t, s, err));
    T9_TRY(check_source(s, err));
    T9_TRY(check_ids(s, err));
    T9_TRY(fill_vocab(t, s, err));
    T9_TRY(fill_maps(t, err));
    T9_TRY(fill_merges(t, s, err));
    T9_TRY(fill_special(t, err));
    T9_TRY(uniclass_init(&t->uniclass, err));
    t->add_bos = s->add_bos < 0 ? t->rule->add_bos : s->add_bos > 0;
    t->add_eos = s->add_eos > 0;
    if (t->add_bos && s->bos < 0) {
        LOG_WARN("tokenizer", "prompts should begin with BOS, but the file names no bos_token_id");
        t->add_bos = false;
    }
    return T9_STATUS_OK;
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
    (void)t; /* one kind so far */
    return "gpt2";
}

const char *tokenizer_pre_name(const struct tokenizer *t)
{
    return t->rule->name;
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
