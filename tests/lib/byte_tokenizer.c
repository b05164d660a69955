/*
 * tests/lib/byte_tokenizer.c - see byte_tokenizer.h.
 */
#include "lib/byte_tokenizer.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>

struct tokenizer {
    struct vocab vocab;
    uint8_t type[BYTE_TOK_COUNT], flags[BYTE_TOK_COUNT];
    uint32_t offset[BYTE_TOK_COUNT + 1];
    char bytes[512];
    int32_t eog[1];
};

static struct tokenizer both[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make(struct tokenizer *t, bool chatml)
{
    static const char *const special[2][4] = {{"<|no_start|>", "<|no_end|>", "<think>", "<s>"},
                                              {"<|im_start|>", "<|im_end|>", "<think>", "<s>"}};
    uint32_t n = 0;
    for (int i = 0; i < BYTE_TOK_COUNT; i++) {
        t->offset[i] = n;
        t->type[i] = i < 256               ? TOK_TYPE_NORMAL
                     : i == BYTE_TOK_THINK ? TOK_TYPE_USER_DEFINED
                                           : TOK_TYPE_CONTROL;
        if (i < 256) {
            t->bytes[n++] = (char)i;
        } else {
            size_t len = strlen(special[chatml][i - 256]);
            memcpy(t->bytes + n, special[chatml][i - 256], len);
            n += (uint32_t)len;
        }
    }
    t->offset[BYTE_TOK_COUNT] = n;
    t->flags[BYTE_TOK_IM_END] = VOCAB_FLAG_EOG;
    t->eog[0] = BYTE_TOK_IM_END;
    t->vocab = (struct vocab){.n_tokens = BYTE_TOK_COUNT,
                              .type = t->type,
                              .flags = t->flags,
                              .offset = t->offset,
                              .bytes = t->bytes,
                              .eog = t->eog,
                              .n_eog = 1,
                              .longest_bytes = 12,
                              .bos = BYTE_TOK_BOS,
                              .eos = BYTE_TOK_IM_END,
                              .pad = -1};
}

static void make_both(void)
{
    make(&both[0], false);
    make(&both[1], true);
}

/* For the library over it, which a test opens by sdk_model_wrap. */
t9_status tokenizer_new(struct tokenizer **out, const struct gguf *g, struct t9_err *err)
{
    (void)g;
    *out = NULL;
    return t9_fail(err, T9_STATUS_UNSUPPORTED, "a tokenizer of bytes comes from no file");
}

void tokenizer_free(struct tokenizer *t)
{
    (void)t;
}

const struct tokenizer *byte_tokenizer(bool chatml)
{
    pthread_once(&once, make_both);
    return &both[chatml];
}

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
    if (ids->n == ids->max || ids->failed) {
        ids->failed = true;
        return;
    }
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        int32_t *p = mem_realloc(ids->p, cap, sizeof *p);
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
    struct tok_cut *more = mem_realloc(c->p, c->n + n + 1, sizeof *more);
    if (!more)
        return false;
    c->p = more;
    memcpy(c->p + c->n, p, n * sizeof *p);
    c->n += n;
    return true;
}

void tok_cuts_deinit(struct tok_cuts *c)
{
    mem_free(c->p);
    *c = (struct tok_cuts){0};
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
    (void)add_bos;
    for (size_t k = 0; k < n_spans; k++) {
        str s = spans[k].text;
        for (size_t i = 0; i < s.n;) {
            int32_t id = (unsigned char)s.p[i];
            for (int32_t x = 256; x < BYTE_TOK_COUNT; x++) {
                bool user = t->type[x] == TOK_TYPE_USER_DEFINED;
                if ((user ? spans[k].parse_user_defined : spans[k].parse_control) &&
                    str_has_prefix(str_slice(s, i, s.n), vocab_piece(&t->vocab, x)))
                    id = x;
            }
            tok_ids_push(out, id);
            i += id < 256 ? 1 : vocab_piece(&t->vocab, id).n;
            struct tok_cut cut = {(uint32_t)(n_bytes + i), (uint32_t)out->n};
            if (cuts && id >= 256 && !tok_cuts_append(cuts, &cut, 1))
                return t9_fail(err, T9_STATUS_NOMEM, "no memory");
        }
        n_bytes += s.n;
    }
    return out->failed ? t9_fail(err, T9_STATUS_TOO_LARGE, "too many tokens") : T9_STATUS_OK;
}

t9_status tokenizer_end(const struct tokenizer *t, struct tok_ids *ids, struct t9_err *err)
{
    (void)t;
    (void)ids;
    (void)err;
    return T9_STATUS_OK;
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
    for (int32_t i = BYTE_TOK_COUNT - 1; i >= 0; i--)
        if (str_eq(vocab_piece(&t->vocab, i), text))
            return i;
    return -1;
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
    (void)t;
    return false;
}
