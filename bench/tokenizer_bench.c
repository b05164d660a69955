/*
 * tokenizer_bench MODEL.gguf TEXT [ROUNDS]: load time, and MB/s of a full encode of a text and of
 * the streaming detokenizer, best of ROUNDS (default 5), one thread. The text must be UTF-8. Every
 * round's decoded text must be the text again (its normalised form, where the model normalises:
 * then the one that encodes to the same ids); anything else is an error, and no speed is printed.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX (256U << 20)

static bool read_text(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    for (;;) {
        char *p = buf_reserve(out, 1U << 20);
        size_t n = p ? fread(p, 1, 1U << 20, f) : 0;
        if (!n)
            break;
        out->n += n;
    }
    (void)fclose(f);
    return !out->failed;
}

static double seconds_since(uint64_t from_ns)
{
    return (double)(clock_now_ns() - from_ns) / 1e9;
}

struct speed {
    double encode_s, decode_s; /* best of all rounds */
    size_t n_ids;
};

static bool encode(const struct tokenizer *t, str text, struct tok_ids *out)
{
    struct tok_span span = {text, true, true};
    tok_ids_init(out, text.n + 1);
    return tokenizer_encode(t, &span, 1, false, out, NULL) == T9_STATUS_OK;
}

/* Whether `decoded` stands for the text that gave `ids`. */
static bool is_same(const struct tokenizer *t, str text, str decoded, const struct tok_ids *ids)
{
    if (decoded.n == text.n && memcmp(decoded.p, text.p, text.n) == 0)
        return true;
    bool exact = strcmp(tokenizer_model_name(t), "gpt2") == 0 &&
                 strncmp(tokenizer_pre_name(t), "qwen", 4) != 0;
    if (exact)
        return false; /* only the others change a text */
    struct tok_ids again;
    bool same = encode(t, decoded, &again) && again.n == ids->n &&
                memcmp(again.p, ids->p, ids->n * sizeof ids->p[0]) == 0;
    tok_ids_deinit(&again);
    return same;
}

/* One round; false with a message when the result is wrong. */
static bool one_round(const struct tokenizer *t, str text, struct speed *best)
{
    struct tok_ids ids;
    struct buf out;
    struct detok d;
    uint64_t from = clock_now_ns();
    bool good = encode(t, text, &ids);
    double s = seconds_since(from);
    best->encode_s = s < best->encode_s ? s : best->encode_s;
    best->n_ids = ids.n;
    buf_init(&out, 4 * text.n + 64);
    from = clock_now_ns();
    detok_init(&d, tokenizer_vocab(t));
    for (size_t i = 0; i < ids.n; i++)
        detok_push(&d, ids.p[i], &out, true);
    detok_finish(&d, &out);
    s = seconds_since(from);
    best->decode_s = s < best->decode_s ? s : best->decode_s;
    if (!good || out.failed)
        (void)fprintf(stderr, "tokenizer_bench: out of memory\n");
    else if (!(good = is_same(t, text, buf_str(&out), &ids)))
        (void)fprintf(stderr, "tokenizer_bench: the decoded text is another one\n");
    good = good && !out.failed;
    tok_ids_deinit(&ids);
    buf_deinit(&out);
    return good;
}

static bool bench(const struct tokenizer *t, str text, uint64_t rounds)
{
    struct speed best = {1e9, 1e9, 0};
    for (uint64_t r = 0; r < rounds; r++) {
        if (!one_round(t, text, &best))
            return false;
    }
    double mb = (double)text.n / 1e6;
    (void)printf("%s/%s %u tokens: %.2f MB, %zu ids, encode %.1f MB/s, decode %.1f MB/s\n",
                 tokenizer_model_name(t), tokenizer_pre_name(t), tokenizer_vocab(t)->n_tokens, mb,
                 best.n_ids, mb / best.encode_s, mb / best.decode_s);
    return true;
}

int main(int argc, char **argv)
{
    struct t9_err err = {0};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct buf text;
    uint64_t rounds = 5;
    buf_init(&text, TEXT_BYTES_MAX);
    bool ok = argc >= 3 && gguf_open(&g, argv[1], &err) == T9_STATUS_OK;
    uint64_t from = clock_now_ns();
    ok = ok && tokenizer_new(&t, g, &err) == T9_STATUS_OK;
    double load_s = seconds_since(from);
    if (argc > 3)
        ok = ok && num_parse_u64(str_from(argv[3]), &rounds);
    ok = ok && read_text(argv[2], &text);
    if (!ok) {
        (void)fprintf(stderr, "usage: tokenizer_bench MODEL.gguf TEXT [ROUNDS]: %s\n", err.msg);
    } else {
        (void)printf("tokenizer_new %.1f ms\n", load_s * 1e3);
        ok = bench(t, buf_str(&text), rounds);
    }
    gguf_close(g);
    tokenizer_free(t);
    buf_deinit(&text);
    return ok ? 0 : 1;
}
