/*
 * sdk/params.c - structs of callers that were compiled with an older or newer header, and memory
 * that goes out. Any thread.
 */
#include "sdk/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "t9_build.h"

#include <string.h>

/* Nothing that a caller means is larger; a size beyond is memory that was never filled. */
#define STRUCT_BYTES_MAX ((size_t)1 << 20)

t9_status sdk_end(t9_status s, struct t9_err *err)
{
    if (s == T9_STATUS_OK && err) {
        err->code = T9_STATUS_OK;
        err->msg[0] = 0;
    }
    return s;
}

static size_t size_of(const void *p)
{
    size_t n;
    memcpy(&n, p, sizeof n);
    return n;
}

static bool size_is_sane(size_t n)
{
    return n > sizeof(size_t) && n <= STRUCT_BYTES_MAX;
}

void sdk_params_zero(void *p, size_t struct_size)
{
    if (!p || !size_is_sane(struct_size))
        return;
    memset(p, 0, struct_size);
    memcpy(p, &struct_size, sizeof struct_size);
}

t9_status sdk_params_take(void *dst, size_t dst_bytes, const void *src, const char *name,
                          struct t9_err *err)
{
    memset(dst, 0, dst_bytes);
    if (!src)
        return t9_fail(err, T9_STATUS_INVALID, "no struct t9_%s was given", name);
    size_t n = size_of(src);
    if (!size_is_sane(n))
        return t9_fail(err, T9_STATUS_INVALID,
                       "struct t9_%s: struct_size is %zu; fill it with t9_%s_init", name, n, name);
    const unsigned char *bytes = src;
    for (size_t i = dst_bytes; i < n; i++) {
        if (bytes[i])
            return t9_fail(err, T9_STATUS_UNSUPPORTED,
                           "struct t9_%s: a field is set that this library (%s) does not have; "
                           "the program was made for a newer one",
                           name, T9_VERSION);
    }
    memcpy(dst, src, n < dst_bytes ? n : dst_bytes);
    memcpy(dst, &dst_bytes, sizeof dst_bytes);
    return T9_STATUS_OK;
}

t9_status sdk_out_check(const void *dst)
{
    return dst && size_is_sane(size_of(dst)) ? T9_STATUS_OK : T9_STATUS_INVALID;
}

t9_status sdk_out_give(void *dst, const void *src, size_t src_bytes)
{
    T9_TRY(sdk_out_check(dst));
    size_t n = size_of(dst);
    size_t head = sizeof n;
    size_t known = n < src_bytes ? n : src_bytes;
    memcpy((char *)dst + head, (const char *)src + head, known - head);
    memset((char *)dst + known, 0, n - known);
    return T9_STATUS_OK;
}

t9_status sdk_text_give(t9_text *out, struct buf *b, struct t9_err *err)
{
    char *end = buf_reserve(b, 0);
    if (!end) {
        size_t max = b->max;
        buf_deinit(b);
        return t9_fail(err, T9_STATUS_NOMEM, "the text has more than %zu bytes, or memory ended",
                       max);
    }
    *end = 0;
    *out = (t9_text){b->p, b->n};
    *b = (struct buf){0};
    return T9_STATUS_OK;
}

void t9_text_free(t9_text *text)
{
    if (!text)
        return;
    mem_free(text->p);
    *text = (t9_text){0};
}

void t9_ids_free(t9_ids *ids)
{
    if (!ids)
        return;
    mem_free(ids->p);
    *ids = (t9_ids){0};
}

const char *t9_version(void)
{
    return T9_VERSION;
}

const char *t9_build_id(void)
{
    return T9_BUILD_ID;
}

/* The log's own callback, with the levels of the header. */
struct log_target {
    t9_log_fn fn;
    void *ctx;
};

static struct log_target target; /* the one setting of the process; see t9_log_set */

static void to_target(void *ctx, log_level level, const char *module, const char *msg)
{
    const struct log_target *t = ctx;
    t->fn(t->ctx, (t9_log_level)level, module, msg);
}

void t9_log_set(t9_log_level level, t9_log_fn fn, void *ctx)
{
    log_redirect(LOG_LEVEL_NONE, NULL, NULL); /* the old one has returned now */
    target = (struct log_target){fn, ctx};
    if (fn && level > T9_LOG_LEVEL_NONE)
        log_redirect((log_level)(level > T9_LOG_LEVEL_DEBUG ? T9_LOG_LEVEL_DEBUG : level),
                     to_target, &target);
}
