/*
 * cli/cmd_eval.c - `eval`: logits of every position of a token list, by the kernels that serve.
 */
#include "cli/runtime.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"

#include <stdio.h>

#define IDS_BYTES_MAX ((size_t)64 << 20)

static t9_status ids_read(const char *path, int32_t n_vocab, int32_t **out, int32_t *n_out,
                          struct t9_err *err)
{
    struct buf text;
    yyjson_doc *doc = NULL;
    int32_t *ids = NULL;
    struct json_limits limits = {IDS_BYTES_MAX, 4, (size_t)1 << 24};
    buf_init(&text, IDS_BYTES_MAX);
    t9_status s = file_read_all(path, &text, err);
    if (s != T9_STATUS_OK)
        goto done;
    if ((s = json_parse(&doc, buf_str(&text), limits, err)) != T9_STATUS_OK) {
        t9_err_prefix(err, "%s", path);
        goto done;
    }
    yyjson_val *arr = yyjson_doc_get_root(doc);
    size_t n = yyjson_arr_size(arr);
    if (n == 0) {
        s = t9_fail(err, T9_STATUS_INVALID, "%s: expected a JSON array of token ids", path);
        goto done;
    }
    ids = mem_calloc(n, sizeof *ids);
    if (!ids) {
        s = t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory for %zu ids", path, n);
        goto done;
    }
    size_t i, max;
    yyjson_val *item;
    yyjson_arr_foreach(arr, i, max, item)
    {
        int64_t id = yyjson_is_int(item) ? yyjson_get_sint(item) : -1;
        if (id < 0 || id >= n_vocab) {
            s = t9_fail(err, T9_STATUS_INVALID, "%s: element %zu is not a token id from 0 to %d",
                        path, i, n_vocab - 1);
            goto done;
        }
        ids[i] = (int32_t)id;
    }
    *out = ids;
    *n_out = (int32_t)n;
    ids = NULL;
done:
    mem_free(ids);
    yyjson_doc_free(doc);
    buf_deinit(&text);
    return s;
}

struct row_writer {
    struct file_out *out;
    int32_t n_vocab;
    t9_status status;
    struct t9_err *err;
};

static bool row_write(void *ctx, int32_t position, const float *logits)
{
    struct row_writer *w = ctx;
    if (num_all_finite(logits, (size_t)w->n_vocab))
        w->status = file_out_write(w->out, logits, (size_t)w->n_vocab * sizeof *logits, w->err);
    else
        w->status = t9_fail(w->err, T9_STATUS_INTERNAL,
                            "the logits of position %d are not finite numbers; nothing was written",
                            position);
    if (w->status == T9_STATUS_OK && cli_interrupts() > 0)
        w->status = t9_fail(w->err, T9_STATUS_CANCELLED, "interrupted");
    return w->status == T9_STATUS_OK;
}

static t9_status logits_write(const struct cli_options *o, struct runtime *rt, struct file_out *out,
                              const int32_t *ids, int32_t n, struct t9_err *err)
{
    struct row_writer w = {.out = out, .n_vocab = model_info(rt->model)->n_vocab, .err = err};
    struct eval_params p = {
        .model = rt->model, .be = rt->be, .kv_type = session_kv_type(o), .chunk = o->chunk};
    T9_TRY(eval_logits(&p, ids, n, row_write, &w, err));
    T9_TRY(w.status);
    return file_out_finish(out, err);
}

int cmd_eval(const struct cli_options *o)
{
    struct runtime rt = {0};
    struct t9_err err = {0};
    struct file_out *out = NULL;
    int32_t *ids = NULL, n = 0;
    t9_status s = runtime_open_gguf(&rt, o, &err);
    if (s == T9_STATUS_OK)
        s = runtime_output(&out, o->logits, FILE_OUT_WHOLE, rt.gguf, o, &err);
    if (s == T9_STATUS_OK)
        s = runtime_open_model(&rt, o, o->chunk, &err);
    if (s == T9_STATUS_OK)
        s = ids_read(o->tokens, model_info(rt.model)->n_vocab, &ids, &n, &err);
    if (s == T9_STATUS_OK && n > model_info(rt.model)->context_length)
        LOG_WARN("eval",
                 "%s has %d tokens and the model was made for %d: the logits after those "
                 "are of no use",
                 o->tokens, n, model_info(rt.model)->context_length);
    if (s == T9_STATUS_OK)
        s = logits_write(o, &rt, out, ids, n, &err);
    if (s == T9_STATUS_OK)
        fprintf(stderr, "%s: %d positions x %d logits, backend %s (%s, %s), %d threads, kv %s\n",
                o->logits, n, model_info(rt.model)->n_vocab, be_name(rt.be), be_isa(rt.be),
                be_numerics(rt.be), be_threads(rt.be), kv_type_name(session_kv_type(o)));
    file_out_close(out);
    mem_free(ids);
    runtime_close(&rt);
    return s == T9_STATUS_OK ? EXIT_DONE : cli_fail(&err);
}
