/*
 * sdk/internal.h - private to sdk/, but for the two _wrap functions: measuring commands and tests
 * have a model or an engine of their own and want the SDK over it.
 *
 * Reference counts keep a model alive while an engine, a request or a detokeniser uses it.
 */
#ifndef T9_SDK_INTERNAL_H
#define T9_SDK_INTERNAL_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "tempo9.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf;
struct be;
struct model;
struct tokenizer;
struct jinja_template;
struct recent;
struct engine;

#define SDK_TEXT_BYTES_MAX    ((size_t)256 << 20)
#define SDK_RECENT_BYTES_MAX  ((size_t)32 << 20)
#define SDK_PROMPT_TOKENS_MAX ((size_t)8 << 20)

struct t9_model {
    atomic_int refs;
    atomic_bool has_engine;
    bool borrowed; /* the parts below belong to somebody else */
    struct gguf *gguf;
    struct be *be; /* NULL with vocab_only, as the next one */
    struct model *model;
    struct tokenizer *tokenizer;
    struct jinja_template *own_template; /* the file's, or the fallback */
    const struct jinja_template *chat_template;
    struct t9_template_info template_info;
    struct t9_template_tools template_tools;
    /* What else was found out; see struct history_caps. */
    bool template_no_null, template_reasoning_alone;
    const char *template_reasoning_key;
    struct recent *recent;
    char **keys; /* [n_keys], NUL-terminated, in one block */
    size_t n_keys;
    int32_t step_tokens;
    uint64_t load_ns;
};

struct t9_engine {
    t9_model *model;
    struct engine *engine;
    bool borrowed;
    void (*diverged)(void *ctx, const struct t9_divergence *d);
    void *diverged_ctx;
};

void sdk_model_get(t9_model *m);
void sdk_model_put(t9_model *m); /* the last one frees */
/* The file's template or the fallback of ChatML, and what it can do. */
t9_status sdk_template_open(t9_model *m, struct t9_err *err);

/* SDK objects over parts that stay the caller's and outlive them; any but tokenizer and engine may
 * be NULL. Freed as usual. */
t9_status sdk_model_wrap(t9_model **out, const struct tokenizer *tokenizer,
                         const struct jinja_template *chat_template, struct t9_err *err);
t9_status sdk_engine_wrap(t9_engine **out, t9_model *m, struct engine *e, struct t9_err *err);

/* Every function that takes an `err` ends with it: after a success that says OK and nothing,
 * whatever was tried on the way. Returns s. */
t9_status sdk_end(t9_status s, struct t9_err *err);

/* Copies a caller's params struct of whatever version into ours: what it does not know becomes
 * zero; what we do not know must be zero (UNSUPPORTED). INVALID for NULL or a wrong size. */
t9_status sdk_params_take(void *dst, size_t dst_bytes, const void *src, const char *name,
                          struct t9_err *err);
/* For an _init function: zeroes as much as the caller has, or less when struct_size is nonsense. */
void sdk_params_zero(void *p, size_t struct_size);
/* Copies ours into a caller's struct of whatever version, whose struct_size stays. */
t9_status sdk_out_check(const void *dst); /* INVALID for NULL or a wrong size */
t9_status sdk_out_give(void *dst, const void *src, size_t src_bytes);

/* Turns a buf's content over to the caller, with a NUL; NOMEM or TOO_LARGE when it has failed. The
 * buf is empty afterwards, whatever comes back. */
t9_status sdk_text_give(t9_text *out, struct buf *b, struct t9_err *err);

#endif
