/*
 * cli/cmd_tokenize.c - `tokenize` and `detokenize`: standard input to standard output.
 */
#include "cli/runtime.h"

#include "base/file.h"
#include "base/json.h"

#include <stdio.h>

#define TEXT_BYTES_MAX ((size_t)1 << 30)
#define TOKENS_MAX     ((size_t)1 << 28)

static void ids_print(const struct tokenizer *t, const struct tok_ids *ids, bool pieces)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    buf_puts(&b, "[");
    for (size_t i = 0; i < ids->n; i++) {
        buf_puts(&b, i ? ", " : "");
        if (pieces)
            json_write_str(&b, tokenizer_piece(t, ids->p[i]));
        else
            json_write_i64(&b, ids->p[i]);
        if (b.n > 1 << 16) {
            cli_write(b.p, b.n);
            buf_clear(&b);
        }
    }
    buf_puts(&b, "]\n");
    cli_write(b.p, b.n);
    buf_deinit(&b);
}

int cmd_tokenize(const struct cli_options *o)
{
    struct runtime rt = {0};
    struct t9_err err = {0};
    struct buf text;
    struct tok_ids ids;
    buf_init(&text, TEXT_BYTES_MAX);
    tok_ids_init(&ids, TOKENS_MAX);
    t9_status s = runtime_open_tokenizer(&rt, o, &err);
    if (s == T9_STATUS_OK)
        s = file_read_all("-", &text, &err);
    if (s == T9_STATUS_OK) {
        struct tok_span span = {buf_str(&text), o->special, o->special};
        bool bos = o->special && tokenizer_add_bos(rt.tokenizer);
        s = tokenizer_encode(rt.tokenizer, &span, 1, bos, &ids, &err);
    }
    if (s == T9_STATUS_OK && o->special)
        s = tokenizer_end(rt.tokenizer, &ids, &err);
    if (s == T9_STATUS_OK)
        ids_print(rt.tokenizer, &ids, o->pieces);
    tok_ids_deinit(&ids);
    buf_deinit(&text);
    runtime_close(&rt);
    return s == T9_STATUS_OK ? cli_finish_stdout() : cli_fail(&err);
}

static t9_status detokenize(const struct runtime *rt, yyjson_val *arr, bool special,
                            struct t9_err *err)
{
    if (!yyjson_is_arr(arr))
        return t9_fail(err, T9_STATUS_INVALID, "standard input: expected a JSON array of ids");
    const struct vocab *v = tokenizer_vocab(rt->tokenizer);
    struct detok d;
    detok_init(&d, v);
    struct buf out;
    buf_init(&out, SIZE_MAX / 2);
    t9_status s = T9_STATUS_OK;
    size_t i, n;
    yyjson_val *item;
    yyjson_arr_foreach(arr, i, n, item)
    {
        if (!yyjson_is_int(item) || yyjson_get_sint(item) < 0 ||
            yyjson_get_sint(item) >= (int64_t)v->n_tokens) {
            s = t9_fail(err, T9_STATUS_INVALID,
                        "standard input: element %zu is not a token id from 0 to %u", i,
                        v->n_tokens - 1);
            break;
        }
        detok_push(&d, (int32_t)yyjson_get_sint(item), &out, special);
        if (out.n > 1 << 16) {
            cli_write(out.p, out.n);
            buf_clear(&out);
        }
    }
    if (s == T9_STATUS_OK) {
        detok_finish(&d, &out);
        cli_write(out.p, out.n);
    }
    buf_deinit(&out);
    return s;
}

int cmd_detokenize(const struct cli_options *o)
{
    struct runtime rt = {0};
    struct t9_err err = {0};
    struct buf text;
    yyjson_doc *doc = NULL;
    struct json_limits limits = {TEXT_BYTES_MAX, 4, TOKENS_MAX};
    buf_init(&text, TEXT_BYTES_MAX);
    t9_status s = runtime_open_tokenizer(&rt, o, &err);
    if (s == T9_STATUS_OK)
        s = file_read_all("-", &text, &err);
    if (s == T9_STATUS_OK && (s = json_parse(&doc, buf_str(&text), limits, &err)) != T9_STATUS_OK)
        t9_err_prefix(&err, "standard input");
    if (s == T9_STATUS_OK)
        s = detokenize(&rt, yyjson_doc_get_root(doc), o->special, &err);
    yyjson_doc_free(doc);
    buf_deinit(&text);
    runtime_close(&rt);
    return s == T9_STATUS_OK ? cli_finish_stdout() : cli_fail(&err);
}
