/* tests/lib/gguf_writer.c - see the header. */
#include "lib/gguf_writer.h"

#include <stdio.h>

#define GW_BYTES_MAX ((size_t)1 << 31)

void gw_init(struct gguf_writer *w)
{
    *w = (struct gguf_writer){.version = 3, .alignment = GGUF_ALIGNMENT_DEFAULT};
    buf_init(&w->kvs, GW_BYTES_MAX);
    buf_init(&w->infos, GW_BYTES_MAX);
    buf_init(&w->data, GW_BYTES_MAX);
}

void gw_deinit(struct gguf_writer *w)
{
    buf_deinit(&w->kvs);
    buf_deinit(&w->infos);
    buf_deinit(&w->data);
}

static void put_u32(struct buf *b, uint32_t v)
{
    buf_append(b, &v, sizeof v);
}

static void put_u64(struct buf *b, uint64_t v)
{
    buf_append(b, &v, sizeof v);
}

static void put_str(struct buf *b, str s)
{
    put_u64(b, s.n);
    buf_puts_str(b, s);
}

static void pad_to(struct buf *b, uint64_t align)
{
    while (b->n % align != 0 && !b->failed)
        buf_putc(b, 0);
}

static void kv_begin(struct gguf_writer *w, const char *key, gguf_type type)
{
    w->n_kvs++;
    put_str(&w->kvs, str_from(key));
    put_u32(&w->kvs, (uint32_t)type);
}

void gw_raw(struct gguf_writer *w, const char *key, gguf_type type, const void *p, size_t n_bytes)
{
    kv_begin(w, key, type);
    buf_append(&w->kvs, p, n_bytes);
}

void gw_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    gw_raw(w, key, GGUF_TYPE_U32, &v, sizeof v);
}

void gw_f32(struct gguf_writer *w, const char *key, float v)
{
    gw_raw(w, key, GGUF_TYPE_F32, &v, sizeof v);
}

void gw_bool(struct gguf_writer *w, const char *key, bool v)
{
    uint8_t byte = v;
    gw_raw(w, key, GGUF_TYPE_BOOL, &byte, 1);
}

void gw_str(struct gguf_writer *w, const char *key, str v)
{
    kv_begin(w, key, GGUF_TYPE_STR);
    put_str(&w->kvs, v);
}

void gw_arr(struct gguf_writer *w, const char *key, gguf_type type, const void *p, uint64_t n)
{
    static const uint8_t bytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    kv_begin(w, key, GGUF_TYPE_ARR);
    put_u32(&w->kvs, (uint32_t)type);
    put_u64(&w->kvs, n);
    buf_append(&w->kvs, p, n * bytes[type]);
}

void gw_arr_str(struct gguf_writer *w, const char *key, const str *v, uint64_t n)
{
    kv_begin(w, key, GGUF_TYPE_ARR);
    put_u32(&w->kvs, GGUF_TYPE_STR);
    put_u64(&w->kvs, n);
    for (uint64_t i = 0; i < n; i++)
        put_str(&w->kvs, v[i]);
}

void gw_tensor_info(struct gguf_writer *w, const char *name, uint32_t dtype, uint32_t n_dims,
                    const uint64_t *ne, uint64_t offset)
{
    w->n_tensors++;
    put_str(&w->infos, str_from(name));
    put_u32(&w->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        put_u64(&w->infos, ne[i]);
    put_u32(&w->infos, dtype);
    put_u64(&w->infos, offset);
}

void gw_tensor(struct gguf_writer *w, const char *name, uint32_t dtype, uint32_t n_dims,
               const uint64_t *ne, const void *p, uint64_t n_bytes)
{
    pad_to(&w->data, w->alignment);
    gw_tensor_info(w, name, dtype, n_dims, ne, w->data.n);
    buf_append(&w->data, p, n_bytes);
}

t9_status gw_finish(const struct gguf_writer *w, struct buf *out, struct t9_err *err)
{
    buf_puts(out, "GGUF");
    put_u32(out, w->version);
    put_u64(out, w->n_tensors);
    put_u64(out, w->n_kvs);
    buf_puts_str(out, buf_str(&w->kvs));
    buf_puts_str(out, buf_str(&w->infos));
    pad_to(out, w->alignment);
    buf_puts_str(out, buf_str(&w->data));
    if (w->kvs.failed || w->infos.failed || w->data.failed || out->failed)
        return t9_fail(err, T9_STATUS_NOMEM, "out of memory for a GGUF file");
    return T9_STATUS_OK;
}

t9_status gw_write(const struct gguf_writer *w, const char *path, struct t9_err *err)
{
    struct buf out;
    buf_init(&out, GW_BYTES_MAX);
    t9_status st = gw_finish(w, &out, err);
    if (st == T9_STATUS_OK) {
        FILE *f = fopen(path, "wb");
        bool ok = f && fwrite(out.p, 1, out.n, f) == out.n;
        if (f && fclose(f) != 0)
            ok = false;
        if (!ok)
            st = t9_fail(err, T9_STATUS_IO, "%s: cannot write", path);
    }
    buf_deinit(&out);
    return st;
}
