/*
 * Fuzz target of the tokenizer: hostile text, spans and vocabularies.
 *
 * The first bytes choose the pre-tokenizer and how the rest is cut into spans with what rights;
 * with one bit set, part of the input becomes tokens and merges as well. Checked: encoding
 * succeeds, pieces give back the bytes (but where NFC applies), CONTROL tokens come only out of
 * text that allows them, and the streaming detokenizer equals the sanitised whole.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/parts.h"

#include <stdlib.h>
#include <string.h>

#define N_EXTRA 24

struct model {
    struct tok_source src;
    str token[256 + N_EXTRA];
    int32_t type[256 + N_EXTRA];
    str merge[N_EXTRA];
    char letter[256][4];
    char pair[N_EXTRA][64];
};

static struct model m;
/* Loading takes most of the time, so the fixed vocabularies are loaded once. */
static struct tokenizer *fixed_model[4];

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void add_token(str text, int32_t type)
{
    m.token[m.src.n_tokens] = text;
    m.type[m.src.n_tokens++] = type;
}

static void base_vocabulary(unsigned choice)
{
    static const char *const pres[] = {"gpt-2", "smollm", "qwen35", "gpt-4o"};
    memset(&m, 0, sizeof(m));
    tok_source_init(&m.src);
    m.src.model = STR("gpt2");
    m.src.pre = str_from(pres[choice & 3]);
    m.src.token = m.token;
    m.src.type = m.type;
    m.src.merge = m.merge;
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; b++) {
        bool self = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        size_t n = utf8_encode(self ? b : next++, m.letter[b]);
        add_token((str){m.letter[b], n}, TOK_TYPE_NORMAL);
    }
}

/* Tokens and merges out of fuzzer bytes, or a fixed set. */
static str vocabulary(str in, bool hostile)
{
    static const char *const fixed[] = {"aa", "aaaa", "he", "in", "er", "the"};
    static const char *const merges[] = {"a a", "aa aa", "h e", "i n", "e r", "t he"};
    for (size_t i = 0; i < 6; i++) {
        add_token(str_from(fixed[i]), TOK_TYPE_NORMAL);
        m.merge[m.src.n_merges++] = str_from(merges[i]);
    }
    add_token(STR("<|a|>"), TOK_TYPE_CONTROL);
    add_token(STR("<a>"), TOK_TYPE_USER_DEFINED);
    add_token(STR("<a><a>"), TOK_TYPE_CONTROL);
    m.src.bos = (int64_t)m.src.n_tokens - 3;
    for (size_t i = 0; hostile && i < 12 && in.n > 4; i++) {
        size_t n = (unsigned char)in.p[0] % 9U, a = (unsigned char)in.p[1];
        int32_t type = in.p[2] & 7;
        in = str_slice(in, 3, in.n);
        n = n < in.n ? n : in.n;
        add_token(str_slice(in, 0, n), type > TOK_TYPE_BYTE ? TOK_TYPE_NORMAL : type);
        str left = m.token[a % m.src.n_tokens], right = m.token[m.src.n_tokens - 1];
        memcpy(m.pair[i], left.p, left.n);
        m.pair[i][left.n] = ' ';
        if (right.n)
            memcpy(m.pair[i] + left.n + 1, right.p, right.n);
        m.merge[m.src.n_merges++] = (str){m.pair[i], left.n + 1 + right.n};
        in = str_slice(in, n, in.n);
    }
    return in;
}

static size_t cut_spans(str text, unsigned cuts, struct tok_span *spans)
{
    size_t n = 1 + (cuts & 3), at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t end = i + 1 == n ? text.n : at + (text.n - at) / (2 + (cuts >> 6));
        unsigned rights = cuts >> (2 + i);
        spans[i] = (struct tok_span){{text.p + at, end - at}, rights & 1, rights & 2};
        at = end;
    }
    return n;
}

static void check_ids(const struct tokenizer *t, const struct tok_ids *ids, str text,
                      const struct tok_span *spans, size_t n_spans)
{
    const struct vocab *v = tokenizer_vocab(t);
    bool control = false, user = false;
    for (size_t i = 0; i < n_spans; i++) {
        control = control || spans[i].parse_control;
        user = user || spans[i].parse_user_defined;
    }
    struct detok d;
    struct buf all, stream, whole;
    buf_init(&all, 1U << 24);
    buf_init(&stream, 1U << 24);
    buf_init(&whole, 1U << 24);
    detok_init(&d, v);
    for (size_t i = 0; i < ids->n; i++) {
        tok_type type = vocab_type(v, ids->p[i]);
        check(vocab_has(v, ids->p[i]));
        check(control || (type != TOK_TYPE_CONTROL && type != TOK_TYPE_UNKNOWN));
        check(user || type != TOK_TYPE_USER_DEFINED || (v->flags[ids->p[i]] & VOCAB_FLAG_TEXT));
        buf_puts_str(&all, tokenizer_piece(t, ids->p[i]));
        detok_push(&d, ids->p[i], &stream, true);
        check(utf8_valid(buf_str(&stream)));
    }
    detok_finish(&d, &stream);
    utf8_sanitize(&whole, buf_str(&all));
    check(str_eq(buf_str(&stream), buf_str(&whole)));
    check(t->rule->nfc || str_eq(buf_str(&all), text));
    buf_deinit(&all);
    buf_deinit(&stream);
    buf_deinit(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tok_span spans[4];
    struct tok_ids ids;
    if (n < 2)
        return 0;
    log_configure(&(struct log_config){.level = LOG_LEVEL_ERROR});
    bool hostile = data[0] & 4;
    struct tokenizer *own = NULL;
    struct tokenizer **t = hostile ? &own : &fixed_model[data[0] & 3];
    str text = {(const char *)data + 2, n - 2};
    if (!*t) {
        base_vocabulary(data[0]);
        text = vocabulary(text, hostile);
        check(tokenizer_new_from(t, &m.src, NULL) == T9_STATUS_OK);
    }
    size_t n_spans = cut_spans(text, data[1], spans);
    tok_ids_init(&ids, text.n + 1);
    check(tokenizer_encode(*t, spans, n_spans, false, &ids, NULL) == T9_STATUS_OK);
    check_ids(*t, &ids, text, spans, n_spans);
    tok_ids_deinit(&ids);
    tokenizer_free(own);
    return 0;
}
