/*
 * tokenizer/vocabulary.c - the tokens themselves: the bytes that each one stands for, its kind, and
 * the set of ids that end a turn. Runs on the loading thread.
 *
 * What a file's text of a token means depends on the kind of tokenizer: letters of the GPT-2
 * alphabet, text with U+2581 for a space, `<0x0A>` for a byte, words with or without `##`. Here all
 * become plain bytes, so that nobody after this file has to know.
 */
#include "tokenizer/parts.h"

#include "base/mem.h"
#include "base/num.h"
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

/* Elements that vocabularies of Gemma have as user-defined tokens, for text and not for turns. */
static const char *const html_names[] = {
    "table", "caption", "thead", "tbody",      "tfoot",  "tr",   "th",   "td",
    "h1",    "h2",      "h3",    "h4",         "h5",     "h6",   "em",   "b",
    "i",     "u",       "s",     "blockquote", "sub",    "sup",  "code", "a",
    "html",  "body",    "img",   "strong",     "span",   "bbox", "ul",   "ol",
    "li",    "p",       "div",   "iframe",     "footer",
};

static bool vocab_alloc(struct tokenizer *t, const struct tok_source *s)
{
    size_t n = s->n_tokens, total = 0;
    for (size_t i = 0; i < n; i++)
        total += s->token[i].n + 1;
    t->type = mem_alloc(n);
    t->flags = mem_calloc(n, 1);
    t->offset = mem_calloc(n + 1, sizeof(*t->offset));
    t->bytes = mem_alloc(total + 1);
    return t->type && t->flags && t->offset && t->bytes;
}

void tok_alphabet_init(struct tok_alphabet *a)
{
    int16_t next = 256;
    for (int i = 0; i < 324; i++)
        a->byte[i] = -1;
    for (int16_t b = 0; b < 256; b++) {
        bool self = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        a->byte[self ? b : next] = b;
        next = (int16_t)(next + !self);
    }
}

/* Text in the GPT-2 alphabet to bytes; text with any character outside it stands for itself. */
static size_t alphabet_bytes(const struct tok_alphabet *a, str text, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        size_t len = utf8_decode(text.p + i, text.n - i, &cp);
        if (!len || cp >= 324 || a->byte[cp] < 0) {
            memcpy(out, text.p, text.n);
            return text.n;
        }
        out[n++] = (char)a->byte[cp];
        i += len;
    }
    return n;
}

size_t tok_spaces(str text, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        if (text.n - i >= 3 && memcmp(text.p + i, TOK_SPACE, 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = text.p[i++];
        }
    }
    return n;
}

size_t tok_text_bytes(enum tok_kind kind, const struct tok_alphabet *a, str text, char *out)
{
    if (kind == TOK_KIND_BPE)
        return alphabet_bytes(a, text, out);
    return tok_spaces(text, out);
}

/* The byte of a text such as <0x0A>, else -1. */
static int byte_of_text(str s)
{
    if (s.n != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>')
        return -1;
    int hi = num_hex_digit(s.p[3]), lo = num_hex_digit(s.p[4]);
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
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
        if (!s->type && tok_merges_chars(t) && byte_of_text(s->token[i]) >= 0)
            t->type[i] = TOK_TYPE_BYTE;
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

static bool is_blank(str text)
{
    for (size_t i = 0; i < text.n; i++) {
        bool mark = text.n - i >= 3 && memcmp(text.p + i, TOK_SPACE, 3) == 0;
        if (!mark && text.p[i] != ' ' && (text.p[i] < '\t' || text.p[i] > '\r'))
            return false;
        i += mark ? 2 : 0;
    }
    return text.n > 0;
}

static bool is_html_tag(str text)
{
    if (text.n < 3 || text.p[0] != '<' || text.p[text.n - 1] != '>')
        return false;
    return in_list(str_slice(text, text.p[1] == '/' ? 2 : 1, text.n - 1), html_names,
                   T9_COUNT(html_names));
}

/* User-defined tokens that are pieces of ordinary text (runs of white space, HTML tags), which a
 * user's text has to be cut into as well. HTML only where the vocabulary has it as such: elsewhere
 * <s> and </s> are no tags. */
static void mark_text(struct tokenizer *t, const struct tok_source *s)
{
    bool html = false;
    for (uint64_t i = 0; i < s->n_tokens && tok_merges_chars(t); i++)
        html =
            html || (t->type[i] == TOK_TYPE_USER_DEFINED && str_eqz(s->token[i], "</blockquote>"));
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        bool named = (int64_t)i == s->eos || (int64_t)i == s->eot || (int64_t)i == s->bos;
        if (t->type[i] == TOK_TYPE_USER_DEFINED && !named &&
            (is_blank(s->token[i]) || (html && is_html_tag(s->token[i]))))
            t->flags[i] |= VOCAB_FLAG_TEXT;
    }
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
        if (!in_list(text, eog_texts, T9_COUNT(eog_texts)) || t->type[i] == TOK_TYPE_UNUSED ||
            (t->flags[i] & VOCAB_FLAG_TEXT))
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
    /* Merging must not make what a file names as special, whatever it calls its type. */
    const int64_t named[] = {s->bos, s->eos, s->eot, s->eom, s->pad, s->unk, s->sep, s->cls};
    for (size_t i = 0; t->kind != TOK_KIND_BPE && i < T9_COUNT(named); i++) {
        if (named[i] >= 0 && t->type[named[i]] == TOK_TYPE_NORMAL)
            t->type[named[i]] = TOK_TYPE_CONTROL;
    }
    const int64_t ids[] = {s->eos, s->eot, s->eom, s->fim_pad, s->fim_rep, s->fim_sep};
    for (size_t i = 0; i < T9_COUNT(ids); i++)
        set_eog(t, ids[i]);
}

/* Bytes of token i at `out`, which has room for its text and a byte more. */
static size_t token_bytes(const struct tokenizer *t, const struct tok_source *s,
                          const struct tok_alphabet *a, uint64_t i, char *out)
{
    str text = s->token[i];
    uint8_t type = t->type[i];
    int byte = tok_merges_chars(t) && type == TOK_TYPE_BYTE ? byte_of_text(text) : -1;
    if (byte >= 0) {
        *out = (char)byte;
        return 1;
    }
    bool spaces = type == TOK_TYPE_USER_DEFINED && tok_merges_chars(t);
    if (tok_is_marker(type) && !spaces) {
        memcpy(out, text.p, text.n);
        return text.n;
    }
    if (t->kind == TOK_KIND_WPM && t->hash_marks && type == TOK_TYPE_NORMAL) {
        bool inner = text.n > 2 && memcmp(text.p, "##", 2) == 0;
        *out = ' ';
        memcpy(out + !inner, text.p + 2 * inner, text.n - 2 * inner);
        return text.n - 2 * inner + !inner;
    }
    return tok_text_bytes(t->kind, a, text, out);
}

static void fill_bytes(struct tokenizer *t, const struct tok_source *s)
{
    struct tok_alphabet a;
    uint32_t at = 0;
    tok_alphabet_init(&a);
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        uint32_t n = (uint32_t)token_bytes(t, s, &a, i, t->bytes + at);
        at += n;
        t->offset[i + 1] = at;
        t->vocab.longest_bytes = n > t->vocab.longest_bytes ? n : t->vocab.longest_bytes;
    }
}

/* WordPiece vocabularies mark either what begins a word (U+2581) or what goes on in one (##). */
static bool has_hash_marks(const struct tok_source *s)
{
    bool hash = false;
    for (uint64_t i = 0; i < s->n_tokens; i++) {
        if (str_has_prefix(s->token[i], STR(TOK_SPACE)))
            return false;
        hash = hash || (s->token[i].n > 2 && str_has_prefix(s->token[i], STR("##")));
    }
    return hash;
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

t9_status vocabulary_fill(struct tokenizer *t, const struct tok_source *s, struct t9_err *err)
{
    if (!vocab_alloc(t, s))
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for %llu tokens",
                       (unsigned long long)s->n_tokens);
    T9_TRY(fill_types(t, s, err));
    t->hash_marks = t->kind == TOK_KIND_WPM && has_hash_marks(s);
    mark_text(t, s);
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
