/*
 * Fuzz target of the tokenizers that merge characters or take pieces (llama, gemma4, bert): hostile
 * vocabularies and text.
 *
 * The first bytes choose the kind, its options and the rights of the spans; then come tokens (and
 * with gemma4 merges), then the text. Checked: a vocabulary loads or is refused; encoding succeeds;
 * only tokens that the rights allow come out; the pieces give back the text where the kind is
 * lossless; the streaming detokenizer emits whole characters; and for llama the ids are those of
 * the plain rule: join the two neighbours that make the token with the highest score, until none
 * do.
 */
#include "base/log.h"
#include "base/utf8.h"
#include "tokenizer/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_TOKENS_MAX 320
#define N_MERGES_MAX 32
#define PLAIN_BYTES  96
#define SP           "\xE2\x96\x81"

static struct model {
    struct tok_source src;
    str token[N_TOKENS_MAX];
    int32_t type[N_TOKENS_MAX];
    float score[N_TOKENS_MAX];
    str merge[N_MERGES_MAX];
    char byte[256][8];
    char text[N_TOKENS_MAX][32];
    char pair[N_MERGES_MAX][72];
} m;

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void add_token(str text, int32_t type, float score)
{
    m.token[m.src.n_tokens] = text;
    m.type[m.src.n_tokens] = type;
    m.score[m.src.n_tokens++] = score;
}

static void options(uint8_t a, uint8_t b)
{
    static const char *const kinds[] = {"llama", "llama", "gemma4", "bert"};
    static const char hex[] = "0123456789ABCDEF";
    memset(&m, 0, sizeof(m));
    tok_source_init(&m.src);
    m.src.model = str_from(kinds[a & 3]);
    m.src.token = m.token;
    m.src.type = m.type;
    m.src.score = m.score;
    m.src.merge = m.merge;
    m.src.add_space_prefix = (a & 4) != 0;
    m.src.remove_extra_spaces = (a & 8) != 0;
    m.src.n_charsmap = b == 0xFF;
    for (unsigned i = 0; (a & 16) && i < 256; i++) {
        memcpy(m.byte[i], "<0x00>", 6);
        m.byte[i][3] = hex[i >> 4];
        m.byte[i][4] = hex[i & 15];
        add_token((str){m.byte[i], 6}, TOK_TYPE_BYTE, 0);
    }
    add_token(STR("[UNK]"), TOK_TYPE_UNKNOWN, 0);
    m.src.unk = (a & 32) ? (int64_t)m.src.n_tokens - 1 : -1;
    add_token(STR("<s>"), TOK_TYPE_CONTROL, 0);
    m.src.bos = (int64_t)m.src.n_tokens - 1;
}

/* Tokens of up to 8 bytes out of the input; '_' stands for the mark of a space. */
static str tokens(str in)
{
    for (int i = 0; i < 24 && in.n > 4; i++) {
        size_t n = (unsigned char)in.p[0] & 7, k = 0;
        int32_t type = (unsigned char)in.p[0] >> 3 & 7;
        float score = (float)(signed char)in.p[1];
        score = in.p[1] == 127 ? INFINITY : score;
        in = str_slice(in, 2, in.n);
        n = n < in.n ? n : in.n;
        char *p = m.text[m.src.n_tokens];
        for (size_t j = 0; j < n; j++) {
            memcpy(p + k, in.p[j] == '_' ? SP : &in.p[j], in.p[j] == '_' ? 3 : 1);
            k += in.p[j] == '_' ? 3 : 1;
        }
        add_token((str){p, k}, type > TOK_TYPE_BYTE ? TOK_TYPE_NORMAL : type, score);
        in = str_slice(in, n, in.n);
    }
    return in;
}

static str merges(str in)
{
    while (m.src.n_merges < N_MERGES_MAX && in.n > 2 && (unsigned char)in.p[0] >= 0x80) {
        str a = m.token[(unsigned char)in.p[1] % m.src.n_tokens];
        str b = m.token[(unsigned char)in.p[0] % m.src.n_tokens];
        char *p = m.pair[m.src.n_merges];
        memcpy(p, a.p, a.n);
        p[a.n] = ' ';
        memcpy(p + a.n + 1, b.p, b.n);
        m.merge[m.src.n_merges++] = (str){p, a.n + 1 + b.n};
        in = str_slice(in, 2, in.n);
    }
    return in;
}

/* ---- the plain rule ---- */

struct piece {
    size_t from, n;
    bool bad; /* a malformed byte, which merges with nothing */
};

static int32_t word_id(const struct tokenizer *t, str text)
{
    const struct vocab *v = tokenizer_vocab(t);
    for (int32_t id = 0; (uint32_t)id < v->n_tokens; id++) {
        if (vocab_type(v, id) == TOK_TYPE_NORMAL && str_eq(vocab_piece(v, id), text))
            return id;
    }
    return -1;
}

static size_t plain_merge(const struct tokenizer *t, str text, struct piece *p)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i += p[n++].n) {
        uint32_t cp;
        size_t len = utf8_decode(text.p + i, text.n - i, &cp);
        p[n] = (struct piece){i, len ? len : 1, len == 0};
    }
    for (;;) {
        size_t best = n;
        float score = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            str both = {text.p + p[i].from, p[i].n + p[i + 1].n};
            int32_t id = p[i].bad || p[i + 1].bad ? -1 : word_id(t, both);
            if (id >= 0 && (best == n || m.score[id] > score)) {
                best = i;
                score = m.score[id];
            }
        }
        if (best == n)
            return n;
        p[best].n += p[best + 1].n;
        n--;
        memmove(p + best + 1, p + best + 2, (n - best - 1) * sizeof(*p));
    }
}

static void check_plain(const struct tokenizer *t, str text, const struct tok_ids *ids)
{
    struct piece p[PLAIN_BYTES];
    size_t n = plain_merge(t, text, p), at = 0;
    bool unknown = false;
    for (size_t i = 0; i < n; i++) {
        str piece = {text.p + p[i].from, p[i].n};
        int32_t id = p[i].bad ? -1 : word_id(t, piece);
        bool bytes = id < 0;
        for (size_t k = 0; k < piece.n && bytes; k++)
            bytes = t->bpe.byte_id[(uint8_t)piece.p[k]] >= 0;
        if (id >= 0) {
            check(at < ids->n && ids->p[at++] == id);
        } else if (bytes) {
            for (size_t k = 0; k < piece.n; k++)
                check(at < ids->n && ids->p[at++] == t->bpe.byte_id[(uint8_t)piece.p[k]]);
        } else if (m.src.unk >= 0 && !unknown) {
            check(at < ids->n && ids->p[at++] == m.src.unk);
        }
        unknown = id < 0 && !bytes;
    }
    check(at == ids->n);
}

/* ---- checks of every result ---- */

static void check_ids(const struct tokenizer *t, const struct tok_ids *ids,
                      const struct tok_span *span, bool lossless)
{
    const struct vocab *v = tokenizer_vocab(t);
    struct detok d;
    struct buf all, stream;
    buf_init(&all, 1U << 24);
    buf_init(&stream, 1U << 24);
    detok_init(&d, v);
    for (size_t i = 0; i < ids->n; i++) {
        int32_t id = ids->p[i];
        tok_type type = vocab_type(v, id);
        check(vocab_has(v, id) && type != TOK_TYPE_UNUSED);
        check(span->parse_control || type != TOK_TYPE_CONTROL);
        check(span->parse_user_defined || type != TOK_TYPE_USER_DEFINED ||
              (v->flags[id] & VOCAB_FLAG_TEXT));
        buf_puts_str(&all, vocab_piece(v, id));
        detok_push(&d, id, &stream, true);
        check(utf8_valid(buf_str(&stream)));
    }
    detok_finish(&d, &stream);
    check(utf8_valid(buf_str(&stream)));
    if (lossless)
        check(str_eq(buf_str(&all), span->text));
    buf_deinit(&all);
    buf_deinit(&stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tok_ids ids;
    struct tokenizer *t = NULL;
    if (n < 3)
        return 0;
    log_configure(&(struct log_config){.level = LOG_LEVEL_ERROR});
    options(data[0], data[1]);
    str text = merges(tokens((str){(const char *)data + 2, n - 2}));
    t9_status st = tokenizer_new_from(&t, &m.src, NULL);
    check(st == T9_STATUS_OK || st == T9_STATUS_UNSUPPORTED || st == T9_STATUS_CORRUPT);
    if (st != T9_STATUS_OK)
        return 0;
    struct tok_span span = {text, data[1] & 1, data[1] & 2};
    tok_ids_init(&ids, 4 * text.n + 8);
    check(tokenizer_encode(t, &span, 1, false, &ids, NULL) == T9_STATUS_OK);
    bool same = t->kind != TOK_KIND_WPM && t->vocab.space_prefix == VOCAB_PREFIX_NONE &&
                !t->collapse_spaces && str_find(text, STR(SP), 0) == (size_t)-1;
    check_ids(t, &ids, &span, same && t->chars.all_bytes);
    bool text_tokens = false;
    for (uint32_t i = 0; i < t->vocab.n_tokens; i++)
        text_tokens = text_tokens || (t->vocab.type[i] == TOK_TYPE_USER_DEFINED &&
                                      (t->vocab.flags[i] & VOCAB_FLAG_TEXT));
    if (same && t->kind == TOK_KIND_SPM && !text_tokens && !(data[1] & 3) && text.n <= PLAIN_BYTES)
        check_plain(t, text, &ids);
    tok_ids_deinit(&ids);
    tokenizer_free(t);
    return 0;
}
