/*
 * tokenizer/source.c - reads the `tokenizer.ggml.*` keys of a GGUF file into a `struct tok_source`.
 * Strings stay in the file's memory; load.c copies what it keeps. Runs on the loading thread.
 */
#include "tokenizer/parts.h"

#include "base/mem.h"
#include "gguf/gguf.h"

/* What the source points to, until the tokenizer has what it keeps. */
struct tables {
    str *token, *merge;
    int32_t *type, *suppress;
    float *score;
};

/* A missing key is no error: the default stays. */
static t9_status optional(t9_status st)
{
    return st == T9_STATUS_NOT_FOUND ? T9_STATUS_OK : st;
}

static t9_status read_array(const struct gguf *g, const char *key, struct gguf_arr *a,
                            bool of_strings, struct t9_err *err)
{
    T9_TRY(gguf_get_arr(g, key, a, err));
    bool number = a->type == GGUF_TYPE_I8 || a->type == GGUF_TYPE_U8 || a->type == GGUF_TYPE_I16 ||
                  a->type == GGUF_TYPE_U16 || a->type == GGUF_TYPE_I32 ||
                  a->type == GGUF_TYPE_U32 || a->type == GGUF_TYPE_I64 || a->type == GGUF_TYPE_U64;
    if (of_strings ? a->type != GGUF_TYPE_STR : !number)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: an array of %s, expected %s", key,
                       gguf_type_name(a->type), of_strings ? "strings" : "integers");
    return T9_STATUS_OK;
}

/* Numbers as int32, out of range ones as -1 (which every user of them refuses). */
static t9_status read_ints(const struct gguf *g, const char *key, int32_t **out, uint64_t *n,
                           struct t9_err *err)
{
    struct gguf_arr a = {0};
    t9_status st = read_array(g, key, &a, false, err);
    if (st != T9_STATUS_OK)
        return optional(st);
    if (a.n > TOK_TOKENS_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s has %llu elements; at most %u can be used", key,
                       (unsigned long long)a.n, TOK_TOKENS_MAX);
    *out = mem_calloc(a.n + 1, sizeof(**out));
    if (!*out)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: no memory for %llu numbers", key,
                       (unsigned long long)a.n);
    for (uint64_t i = 0; i < a.n; i++) {
        int64_t v = gguf_arr_i64(&a, i);
        (*out)[i] = v < 0 || v > INT32_MAX ? -1 : (int32_t)v;
    }
    *n = a.n;
    return T9_STATUS_OK;
}

/* Texts, which stay in the file's memory. */
static t9_status read_texts(const struct gguf *g, const char *key, str **out, uint64_t *n,
                            struct t9_err *err)
{
    struct gguf_arr a = {0};
    T9_TRY(read_array(g, key, &a, true, err));
    *out = mem_calloc(a.n + 1, sizeof(**out));
    if (!*out)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: no memory for %llu texts", key,
                       (unsigned long long)a.n);
    for (uint64_t i = 0; i < a.n; i++)
        (*out)[i] = gguf_arr_str(&a, i);
    *n = a.n;
    return T9_STATUS_OK;
}

static t9_status read_ids(const struct gguf *g, struct tok_source *s, struct t9_err *err)
{
    const struct {
        const char *key;
        int64_t *id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &s->bos},
        {"tokenizer.ggml.eos_token_id", &s->eos},
        {"tokenizer.ggml.eot_token_id", &s->eot},
        {"tokenizer.ggml.eom_token_id", &s->eom},
        {"tokenizer.ggml.padding_token_id", &s->pad},
        {"tokenizer.ggml.fim_pad_token_id", &s->fim_pad},
        {"tokenizer.ggml.fim_rep_token_id", &s->fim_rep},
        {"tokenizer.ggml.fim_sep_token_id", &s->fim_sep},
        {"tokenizer.ggml.unknown_token_id", &s->unk},
        {"tokenizer.ggml.seperator_token_id", &s->sep}, /* spelled so in files */
        {"tokenizer.ggml.cls_token_id", &s->cls},
    };
    for (size_t i = 0; i < T9_COUNT(ids); i++)
        T9_TRY(optional(gguf_get_i64(g, ids[i].key, ids[i].id, err)));
    return T9_STATUS_OK;
}

static t9_status read_flag(const struct gguf *g, const char *key, int *flag, struct t9_err *err)
{
    bool v = false;
    t9_status st = gguf_get_bool(g, key, &v, err);
    if (st == T9_STATUS_OK)
        *flag = v;
    return optional(st);
}

static t9_status read_scores(const struct gguf *g, struct tok_source *s, float **score,
                             struct t9_err *err)
{
    static const char key[] = "tokenizer.ggml.scores";
    struct gguf_arr a = {0};
    t9_status st = gguf_get_arr(g, key, &a, err);
    if (st != T9_STATUS_OK)
        return optional(st);
    if (a.type != GGUF_TYPE_F32 && a.type != GGUF_TYPE_F64)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: an array of %s, expected floats", key,
                       gguf_type_name(a.type));
    if (a.n != s->n_tokens)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s has %llu elements, but there are %llu tokens",
                       key, (unsigned long long)a.n, (unsigned long long)s->n_tokens);
    *score = mem_calloc(a.n + 1, sizeof(**score));
    if (!*score)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: no memory for %llu numbers", key,
                       (unsigned long long)a.n);
    for (uint64_t i = 0; i < a.n; i++)
        (*score)[i] = gguf_arr_f32(&a, i);
    s->score = *score;
    return T9_STATUS_OK;
}

static t9_status read_tables(const struct gguf *g, struct tok_source *s, struct tables *x,
                             struct t9_err *err)
{
    struct gguf_arr a = {0};
    uint64_t n_types = 0;
    T9_TRY(read_texts(g, "tokenizer.ggml.tokens", &x->token, &s->n_tokens, err));
    s->token = x->token;
    T9_TRY(optional(read_texts(g, "tokenizer.ggml.merges", &x->merge, &s->n_merges, err)));
    s->merge = x->merge;
    T9_TRY(read_ints(g, "tokenizer.ggml.token_type", &x->type, &n_types, err));
    s->type = x->type;
    if (s->type && n_types != s->n_tokens)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "tokenizer.ggml.token_type has %llu elements, but there are %llu tokens",
                       (unsigned long long)n_types, (unsigned long long)s->n_tokens);
    t9_status st = gguf_get_arr(g, "tokenizer.ggml.precompiled_charsmap", &a, err);
    if (st == T9_STATUS_OK)
        s->n_charsmap = a.n;
    T9_TRY(optional(st));
    /* Only merging by score reads them; other kinds of files carry all sorts there. */
    return str_eqz(s->model, "llama") ? read_scores(g, s, &x->score, err) : T9_STATUS_OK;
}

static t9_status read_flags(const struct gguf *g, struct tok_source *s, struct t9_err *err)
{
    T9_TRY(read_flag(g, "tokenizer.ggml.add_bos_token", &s->add_bos, err));
    T9_TRY(read_flag(g, "tokenizer.ggml.add_eos_token", &s->add_eos, err));
    T9_TRY(read_flag(g, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix, err));
    return read_flag(g, "tokenizer.ggml.remove_extra_whitespaces", &s->remove_extra_spaces, err);
}

t9_status tokenizer_new(struct tokenizer **out, const struct gguf *g, struct t9_err *err)
{
    struct tables x = {0};
    struct tok_source s;
    struct t9_err ignored = {0}; /* optional keys write "missing" here when the caller gave NULL */
    struct t9_err *e = err ? err : &ignored;
    *out = NULL;
    tok_source_init(&s);
    t9_status st = gguf_get_str(g, "tokenizer.ggml.model", &s.model, e);
    if (st == T9_STATUS_OK)
        st = optional(gguf_get_str(g, "tokenizer.ggml.pre", &s.pre, e));
    if (st == T9_STATUS_OK)
        st = read_tables(g, &s, &x, e);
    if (st == T9_STATUS_OK)
        st = read_ids(g, &s, e);
    if (st == T9_STATUS_OK)
        st = read_flags(g, &s, e);
    if (st == T9_STATUS_OK)
        st = read_ints(g, "tokenizer.ggml.suppress_tokens", &x.suppress, &s.n_suppress, e);
    s.suppress = x.suppress;
    if (st == T9_STATUS_OK)
        st = tokenizer_new_from(out, &s, e);
    if (st == T9_STATUS_OK)
        *e = (struct t9_err){0}; /* a missing optional key left its message */
    mem_free(x.token);
    mem_free(x.merge);
    mem_free(x.type);
    mem_free(x.score);
    mem_free(x.suppress);
    return st;
}
