/*
 * sdk/model.c - a GGUF file opened for use: tokenizer, chat template, backend and weights, in this
 * order, so that what is cheap to refuse is refused before minutes go into weights. Immutable once
 * loaded: any thread.
 */
#include "model/model.h"

#include "backend/be.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "gguf/gguf.h"
#include "sample/sample.h"
#include "sdk/internal.h"
#include "sdk/recent.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <string.h>

enum { STEP_TOKENS = 256, STEP_TOKENS_MAX = 65536, THREADS_MAX = 4096 };

void t9_model_params_init(struct t9_model_params *p, size_t struct_size)
{
    sdk_params_zero(p, struct_size);
}

void sdk_model_get(t9_model *m)
{
    atomic_fetch_add(&m->refs, 1);
}

void sdk_model_put(t9_model *m)
{
    if (!m || atomic_fetch_sub(&m->refs, 1) > 1)
        return;
    jinja_free(m->own_template);
    recent_free(m->recent);
    mem_free(m->keys);
    if (!m->borrowed) {
        model_free(m->model);
        be_free(m->be);
        tokenizer_free(m->tokenizer);
        gguf_close(m->gguf);
    }
    mem_free(m);
}

void t9_model_free(t9_model *m)
{
    sdk_model_put(m);
}

static t9_status model_new(t9_model **out, struct t9_err *err)
{
    t9_model *m = mem_calloc(1, sizeof *m);
    struct recent *recent = m ? recent_new(SDK_RECENT_BYTES_MAX) : NULL;
    if (!recent) {
        mem_free(m);
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a model");
    }
    atomic_init(&m->refs, 1);
    m->recent = recent;
    *out = m;
    return T9_STATUS_OK;
}

/* The keys with a NUL each, pointers in front, in one block. */
static t9_status copy_keys(t9_model *m, struct t9_err *err)
{
    size_t n = (size_t)gguf_kv_count(m->gguf);
    size_t bytes = n * sizeof(*m->keys);
    for (size_t i = 0; i < n; i++)
        bytes += gguf_kv_at(m->gguf, i)->key.n + 1;
    m->keys = mem_alloc(bytes + 1);
    if (!m->keys)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for %zu keys", n);
    char *text = (char *)(m->keys + n);
    for (size_t i = 0; i < n; i++) {
        str key = gguf_kv_at(m->gguf, i)->key;
        if (key.n)
            memcpy(text, key.p, key.n);
        text[key.n] = 0;
        m->keys[i] = text;
        text += key.n + 1;
    }
    m->n_keys = n;
    return T9_STATUS_OK;
}

static t9_status check_params(const struct t9_model_params *p, struct t9_err *err)
{
    if (!p->path || !*p->path)
        return t9_fail(err, T9_STATUS_INVALID, "no path of a model was given");
    if (p->threads < 0 || p->threads > THREADS_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "threads must be within 0 and %d, got %d",
                       THREADS_MAX, p->threads);
    if (p->step_tokens < 0 || p->step_tokens > STEP_TOKENS_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "step_tokens must be within 0 and %d, got %d",
                       STEP_TOKENS_MAX, p->step_tokens);
    return T9_STATUS_OK;
}

static t9_status load_weights(t9_model *m, const struct t9_model_params *p, struct t9_err *err)
{
    m->step_tokens = p->step_tokens ? p->step_tokens : STEP_TOKENS;
    struct be_params bp = {.n_threads = p->threads, .isa = p->isa, .max_rows = m->step_tokens};
    T9_TRY(be_new(&m->be, p->backend ? p->backend : "cpu", &bp, err));
    struct model_load_params lp = {.progress = p->progress, .ctx = p->progress_ctx};
    return model_load(&m->model, m->gguf, m->be, &lp, err);
}

t9_status t9_model_load(t9_model **out, const struct t9_model_params *params, struct t9_err *err)
{
    struct t9_model_params p;
    t9_model *m = NULL;
    uint64_t start = clock_now_ns();
    *out = NULL;
    T9_TRY(sdk_params_take(&p, sizeof p, params, "model_params", err));
    T9_TRY(check_params(&p, err));
    T9_TRY(model_new(&m, err));
    t9_status s = gguf_open(&m->gguf, p.path, err);
    if (s == T9_STATUS_OK && !p.vocab_only)
        s = model_check_arch(m->gguf, err);
    if (s == T9_STATUS_OK) {
        s = tokenizer_new(&m->tokenizer, m->gguf, err);
        if (s != T9_STATUS_OK)
            s = gguf_name_file(m->gguf, s, err);
    }
    if (s == T9_STATUS_OK)
        s = copy_keys(m, err);
    if (s == T9_STATUS_OK)
        s = sdk_template_open(m, err);
    if (s == T9_STATUS_OK && !p.vocab_only)
        s = load_weights(m, &p, err);
    if (s != T9_STATUS_OK) {
        sdk_model_put(m);
        return s;
    }
    m->load_ns = clock_now_ns() - start;
    *out = m;
    return sdk_end(s, err);
}

t9_status sdk_model_wrap(t9_model **out, const struct tokenizer *tokenizer,
                         const struct jinja_template *chat_template, struct t9_err *err)
{
    t9_model *m = NULL;
    *out = NULL;
    T9_TRY(model_new(&m, err));
    m->borrowed = true;
    m->tokenizer = (struct tokenizer *)(uintptr_t)tokenizer; /* immutable either way */
    m->chat_template = chat_template;
    t9_status s = sdk_template_open(m, err);
    if (s != T9_STATUS_OK) {
        sdk_model_put(m);
        return s;
    }
    *out = m;
    return T9_STATUS_OK;
}

/* The tokens around the parts of a text with a hole, by the names that vocabularies give them. */
static void find_fim(const struct tokenizer *t, struct t9_model_info *out)
{
    static const char *const names[][3] = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
        {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
        {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
        {"<PRE>", "<SUF>", "<MID>"},
    };
    out->fim_prefix = out->fim_suffix = out->fim_middle = -1;
    for (size_t i = 0; i < T9_COUNT(names); i++) {
        int32_t id[3];
        bool all = true;
        for (size_t k = 0; k < 3; k++) {
            id[k] = tokenizer_find(t, str_from(names[i][k]));
            tok_type type = vocab_type(tokenizer_vocab(t), id[k]);
            all &= type == TOK_TYPE_CONTROL || type == TOK_TYPE_USER_DEFINED;
        }
        if (all) {
            out->fim_prefix = id[0];
            out->fim_suffix = id[1];
            out->fim_middle = id[2];
            return;
        }
    }
}

t9_status t9_model_info(const t9_model *m, struct t9_model_info *out)
{
    const struct tokenizer *t = m->tokenizer;
    struct t9_model_info info = {.file_name = m->gguf ? gguf_file_name(m->gguf) : "",
                                 .arch = "",
                                 .backend = "",
                                 .isa = "",
                                 .numerics = "",
                                 .n_vocab = (int32_t)tokenizer_vocab(t)->n_tokens,
                                 .file_bytes = m->gguf ? gguf_file_bytes(m->gguf) : 0,
                                 .load_ns = m->load_ns,
                                 .bos = tokenizer_bos(t),
                                 .eos = tokenizer_eos(t),
                                 .add_bos = tokenizer_add_bos(t),
                                 .chat_template = m->template_info,
                                 .token_bytes_max = (int32_t)tokenizer_vocab(t)->longest_bytes,
                                 .template_tools = m->template_tools};
    find_fim(t, &info);
    if (m->model) {
        const struct model_info *mi = model_info(m->model);
        info.arch = mi->arch;
        info.backend = be_name(m->be);
        info.isa = be_isa(m->be);
        info.numerics = be_numerics(m->be);
        info.threads = be_threads(m->be);
        info.n_layers = mi->n_layers;
        info.n_embd = mi->n_embd;
        info.context_length = mi->context_length;
        info.n_params = mi->n_params;
        info.weight_bytes = mi->weight_bytes;
    }
    return sdk_out_give(out, &info, sizeof info);
}

/* ---- sampling ---- */

/* A number of the file; false when there is none. */
static bool file_number(const struct gguf *g, const char *key, double *out)
{
    struct t9_err err;
    float f = 0;
    int64_t i = 0;
    t9_status s = gguf_get_f32(g, key, &f, &err);
    *out = (double)f;
    if (s != T9_STATUS_OK && s != T9_STATUS_NOT_FOUND) {
        s = gguf_get_i64(g, key, &i, &err);
        *out = (double)i;
    }
    if (s != T9_STATUS_OK && s != T9_STATUS_NOT_FOUND)
        LOG_WARN("model", "%s: %s is no number and is not used", gguf_file_name(g), key);
    return s == T9_STATUS_OK;
}

t9_status t9_model_sampling(const t9_model *m, struct t9_request_params *params, struct t9_err *err)
{
    struct t9_request_params p;
    struct sample_params check;
    double v = 0;
    T9_TRY(sdk_params_take(&p, sizeof p, params, "request_params", err));
    if (!m->gguf)
        return sdk_end(T9_STATUS_OK, err);
    if (file_number(m->gguf, "general.sampling.temp", &v))
        p.temperature = (float)v;
    if (file_number(m->gguf, "general.sampling.top_p", &v))
        p.top_p = (float)v;
    if (file_number(m->gguf, "general.sampling.min_p", &v))
        p.min_p = (float)v;
    if (file_number(m->gguf, "general.sampling.penalty_repeat", &v))
        p.repetition_penalty = (float)v;
    if (file_number(m->gguf, "general.sampling.top_k", &v) && fabs(v) <= INT32_MAX)
        p.top_k = v > 0 ? (int32_t)v : 0;
    sample_params_init(&check);
    check.temperature = p.temperature;
    check.top_p = p.top_p;
    check.min_p = p.min_p;
    check.repetition_penalty = p.repetition_penalty;
    check.top_k = p.top_k;
    T9_TRY(sample_params_check(&check, err));
    return sdk_end(sdk_out_give(params, &p, sizeof p), err);
}

/* ---- metadata ---- */

size_t t9_model_n_keys(const t9_model *m)
{
    return m->n_keys;
}

const char *t9_model_key(const t9_model *m, size_t i)
{
    return i < m->n_keys ? m->keys[i] : NULL;
}

static void write_u64(struct buf *b, uint64_t v)
{
    buf_printf(b, "%llu", (unsigned long long)v);
}

static void write_elem(struct buf *b, const struct gguf_arr *a, uint64_t i)
{
    switch (a->type) {
    case GGUF_TYPE_STR: json_write_str(b, gguf_arr_str(a, i)); break;
    case GGUF_TYPE_F32:
    case GGUF_TYPE_F64: json_write_f64(b, (double)gguf_arr_f32(a, i)); break;
    case GGUF_TYPE_BOOL: json_write_bool(b, gguf_arr_u64(a, i) != 0); break;
    case GGUF_TYPE_U64: write_u64(b, gguf_arr_u64(a, i)); break;
    default: json_write_i64(b, gguf_arr_i64(a, i)); break;
    }
}

static void write_value(struct buf *b, const struct gguf_kv *kv)
{
    switch (kv->type) {
    case GGUF_TYPE_STR: json_write_str(b, kv->s); break;
    case GGUF_TYPE_F32:
    case GGUF_TYPE_F64: json_write_f64(b, kv->f); break;
    case GGUF_TYPE_BOOL: json_write_bool(b, kv->b); break;
    case GGUF_TYPE_ARR:
        buf_putc(b, '[');
        for (uint64_t i = 0; i < kv->arr.n && !b->failed; i++) {
            if (i)
                buf_putc(b, ',');
            write_elem(b, &kv->arr, i);
        }
        buf_putc(b, ']');
        break;
    case GGUF_TYPE_I8:
    case GGUF_TYPE_I16:
    case GGUF_TYPE_I32:
    case GGUF_TYPE_I64: json_write_i64(b, kv->i); break;
    default: write_u64(b, kv->u); break;
    }
}

t9_status t9_model_metadata(const t9_model *m, const char *key, size_t max_bytes, t9_text *out,
                            struct t9_err *err)
{
    *out = (t9_text){0};
    const struct gguf_kv *kv = m->gguf ? gguf_kv_find(m->gguf, key) : NULL;
    if (!kv)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "the file has no key \"%.100s\"", key);
    struct buf b;
    buf_init(&b, max_bytes < SDK_TEXT_BYTES_MAX ? max_bytes : SDK_TEXT_BYTES_MAX);
    write_value(&b, kv);
    if (b.failed && b.cap > b.max / 2) {
        buf_deinit(&b);
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%.100s has more than %zu bytes as JSON", key,
                       max_bytes);
    }
    return sdk_end(sdk_text_give(out, &b, err), err);
}
