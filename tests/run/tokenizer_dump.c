/*
 * tokenizer_dump MODEL.gguf < records > results: the seam between the tokenizer and another
 * implementation in a differential test.
 *
 * A record is u32 flags (1 = parse control tokens, 2 = parse user-defined ones, 4 = add BOS), u32
 * byte count, text. A result is u32 count, i32 ids, u32 byte count, the text that the streaming
 * detokenizer gives back with special tokens shown. Little endian.
 */
#include "base/mem.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>

#define TEXT_BYTES_MAX (64U << 20)

static bool put_u32(uint32_t v)
{
    return fwrite(&v, sizeof(v), 1, stdout) == 1;
}

static bool one_record(const struct tokenizer *t, uint32_t flags, str text)
{
    struct t9_err err = {0};
    struct tok_ids ids;
    struct buf out;
    struct detok d;
    struct tok_span span = {text, flags & 1, flags & 2};
    tok_ids_init(&ids, TEXT_BYTES_MAX);
    buf_init(&out, 4 * (size_t)TEXT_BYTES_MAX);
    bool ok = tokenizer_encode(t, &span, 1, flags & 4, &ids, &err) == T9_STATUS_OK;
    if (!ok)
        (void)fprintf(stderr, "%s\n", err.msg);
    detok_init(&d, tokenizer_vocab(t));
    for (size_t i = 0; i < ids.n; i++)
        detok_push(&d, ids.p[i], &out, true);
    detok_finish(&d, &out);
    ok = ok && !out.failed && put_u32((uint32_t)ids.n) &&
         fwrite(ids.p, sizeof(*ids.p), ids.n, stdout) == ids.n && put_u32((uint32_t)out.n) &&
         fwrite(out.p, 1, out.n, stdout) == out.n;
    buf_deinit(&out);
    tok_ids_deinit(&ids);
    return ok;
}

static bool all_records(const struct tokenizer *t)
{
    uint32_t head[2];
    char *text = mem_alloc(TEXT_BYTES_MAX);
    bool ok = text != NULL;
    while (ok && fread(head, sizeof(head), 1, stdin) == 1) {
        ok = head[1] <= TEXT_BYTES_MAX && fread(text, 1, head[1], stdin) == head[1] &&
             one_record(t, head[0], (str){text, head[1]});
    }
    mem_free(text);
    return ok;
}

int main(int argc, char **argv)
{
    struct t9_err err = {0};
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    bool ok = argc == 2 && gguf_open(&g, argv[1], &err) == T9_STATUS_OK &&
              tokenizer_new(&t, g, &err) == T9_STATUS_OK;
    if (!ok)
        (void)fprintf(stderr, "usage: tokenizer_dump MODEL.gguf: %s\n", err.msg);
    gguf_close(g); /* a tokenizer keeps nothing of the file: using it after this shows that */
    ok = ok && all_records(t);
    tokenizer_free(t);
    return ok ? 0 : 1;
}
