/*
 * tokenizer_bench MODEL.gguf TEXT [ROUNDS]: load time, and MB/s of a full encode of a text and of
 * the streaming detokenizer, best of ROUNDS (default 5), one thread.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/num.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>

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

static void bench(const struct tokenizer *t, str text, uint64_t rounds)
{
    double best_encode = 1e9, best_decode = 1e9;
    size_t n_ids = 0;
    for (uint64_t r = 0; r < rounds; r++) {
        struct tok_ids ids;
        struct buf out;
        struct detok d;
        struct tok_span span = {text, true, true};
        tok_ids_init(&ids, text.n + 1);
        buf_init(&out, 4 * text.n + 64);
        uint64_t from = clock_now_ns();
        if (tokenizer_encode(t, &span, 1, false, &ids, NULL) != T9_STATUS_OK)
            (void)fprintf(stderr, "encode failed\n");
        double s = seconds_since(from);
        best_encode = s < best_encode ? s : best_encode;
        from = clock_now_ns();
        detok_init(&d, tokenizer_vocab(t));
        for (size_t i = 0; i < ids.n; i++)
            detok_push(&d, ids.p[i], &out, true);
        detok_finish(&d, &out);
        s = seconds_since(from);
        best_decode = s < best_decode ? s : best_decode;
        n_ids = ids.n;
        tok_ids_deinit(&ids);
        buf_deinit(&out);
    }
    double mb = (double)text.n / 1e6;
    (void)printf("%s %u tokens: %.2f MB, %zu ids, encode %.1f MB/s, decode %.1f MB/s\n",
                 tokenizer_pre_name(t), tokenizer_vocab(t)->n_tokens, mb, n_ids, mb / best_encode,
                 mb / best_decode);
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
    if (!ok || !read_text(argv[2], &text)) {
        (void)fprintf(stderr, "usage: tokenizer_bench MODEL.gguf TEXT [ROUNDS]: %s\n", err.msg);
    } else {
        (void)printf("tokenizer_new %.1f ms\n", load_s * 1e3);
        bench(t, buf_str(&text), rounds);
    }
    gguf_close(g);
    tokenizer_free(t);
    buf_deinit(&text);
    return ok ? 0 : 1;
}
