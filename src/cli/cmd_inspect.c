/*
 * cli/cmd_inspect.c - `inspect`: what is in a model file, for people or as JSON. Reads no tensor
 * data.
 */
#include "cli/cli.h"

#include "base/json.h"
#include "gguf/gguf.h"

#include <inttypes.h>
#include <stdio.h>

enum { ARRAY_SHOWN = 6, TEXT_SHOWN = 72 };

static void scalar_write(struct buf *b, const struct gguf_kv *kv)
{
    switch (kv->type) {
    case GGUF_TYPE_U8:
    case GGUF_TYPE_U16:
    case GGUF_TYPE_U32:
    case GGUF_TYPE_U64: buf_printf(b, "%" PRIu64, kv->u); break;
    case GGUF_TYPE_I8:
    case GGUF_TYPE_I16:
    case GGUF_TYPE_I32:
    case GGUF_TYPE_I64: json_write_i64(b, kv->i); break;
    case GGUF_TYPE_F32:
    case GGUF_TYPE_F64: json_write_f64(b, kv->f); break;
    case GGUF_TYPE_BOOL: json_write_bool(b, kv->b); break;
    case GGUF_TYPE_STR: json_write_str(b, kv->s); break;
    default: buf_puts(b, "null"); break;
    }
}

static void element_write(struct buf *b, const struct gguf_arr *a, uint64_t i)
{
    if (a->type == GGUF_TYPE_STR)
        json_write_str(b, gguf_arr_str(a, i));
    else if (a->type == GGUF_TYPE_F32 || a->type == GGUF_TYPE_F64)
        json_write_f64(b, (double)gguf_arr_f32(a, i));
    else if (a->type == GGUF_TYPE_U64)
        buf_printf(b, "%" PRIu64, gguf_arr_u64(a, i));
    else
        json_write_i64(b, gguf_arr_i64(a, i));
}

static void array_write(struct buf *b, const struct gguf_arr *a, uint64_t shown)
{
    buf_puts(b, "[");
    for (uint64_t i = 0; i < a->n && i < shown; i++) {
        buf_puts(b, i ? ", " : "");
        element_write(b, a, i);
    }
    buf_puts(b, a->n > shown ? ", ...]" : "]");
}

static void flush(struct buf *b)
{
    cli_write(b->p, b->n);
    buf_clear(b);
}

static void shape_write(struct buf *b, const struct gguf_tensor *t)
{
    buf_puts(b, "[");
    for (uint32_t d = 0; d < t->n_dims; d++)
        buf_printf(b, "%s%" PRIu64, d ? ", " : "", t->ne[d]);
    buf_puts(b, "]");
}

/* Elements and bytes by type, and the sum over all. */
struct mix {
    uint64_t tensors[64], elems[64], bytes[64];
    uint64_t all_elems, all_bytes;
};

static void mix_count(const struct gguf *g, struct mix *m)
{
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t elems = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        m->all_elems += elems;
        m->all_bytes += t->size_bytes;
        if (t->dtype >= T9_COUNT(m->tensors))
            continue;
        m->tensors[t->dtype]++;
        m->elems[t->dtype] += elems;
        m->bytes[t->dtype] += t->size_bytes;
    }
}

static void print_json(const struct gguf *g, const struct mix *m)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    buf_puts(&b, "{\"file\":");
    json_write_str(&b, str_from(gguf_path(g)));
    buf_printf(&b, ",\"version\":%u,\"parts\":%u,\"file_bytes\":%" PRIu64, gguf_version(g),
               gguf_part_count(g), gguf_file_bytes(g));
    buf_printf(&b, ",\"parameters\":%" PRIu64 ",\"tensor_bytes\":%" PRIu64 ",\"metadata\":{",
               m->all_elems, m->all_bytes);
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        buf_puts(&b, i ? "," : "");
        json_write_str(&b, kv->key);
        buf_puts(&b, ":");
        if (kv->type == GGUF_TYPE_ARR)
            array_write(&b, &kv->arr, UINT64_MAX);
        else
            scalar_write(&b, kv);
        flush(&b);
    }
    buf_puts(&b, "},\"tensors\":[");
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        buf_puts(&b, i ? ",{\"name\":" : "{\"name\":");
        json_write_str(&b, t->name);
        buf_printf(&b, ",\"type\":\"%s\",\"shape\":", gguf_dtype_get(t->dtype)->name);
        shape_write(&b, t);
        buf_printf(&b, ",\"bytes\":%" PRIu64 ",\"part\":%u,\"offset\":%" PRIu64 "}", t->size_bytes,
                   t->part, t->offset);
        flush(&b);
    }
    buf_puts(&b, "]}\n");
    flush(&b);
    buf_deinit(&b);
}

/* A string that fits a line; control characters as JSON escapes, so a hostile file cannot steer the
 * terminal. */
static void text_value_write(struct buf *b, str s)
{
    if (s.n <= TEXT_SHOWN) {
        json_write_str(b, s);
        return;
    }
    json_write_str(b, str_slice(s, 0, TEXT_SHOWN));
    buf_printf(b, "... (%zu bytes)", s.n);
}

static void print_metadata(const struct gguf *g, struct buf *b)
{
    printf("\nMetadata (%" PRIu64 " keys)\n", gguf_kv_count(g));
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        struct buf key;
        buf_init(&key, 1 << 20);
        json_write_str(&key, kv->key);
        buf_printf(b, "  %-44.*s ", key.n > 2 ? (int)key.n - 2 : 0, key.p + 1);
        buf_deinit(&key);
        if (kv->type == GGUF_TYPE_ARR) {
            buf_printf(b, "%s[%" PRIu64 "] ", gguf_type_name(kv->arr.type), kv->arr.n);
            array_write(b, &kv->arr, ARRAY_SHOWN);
        } else if (kv->type == GGUF_TYPE_STR) {
            text_value_write(b, kv->s);
        } else {
            scalar_write(b, kv);
        }
        buf_puts(b, "\n");
        flush(b);
    }
}

static void print_text(const struct gguf *g, const struct mix *m)
{
    struct buf b;
    buf_init(&b, SIZE_MAX / 2);
    cli_put_message(stdout, gguf_path(g));
    printf(": GGUF v%u, %u part%s, %.1f MB\n", gguf_version(g), gguf_part_count(g),
           gguf_part_count(g) == 1 ? "" : "s", (double)gguf_file_bytes(g) / 1e6);
    printf("%.1f M parameters in %" PRIu64 " tensors, %.2f bits per weight\n",
           (double)m->all_elems / 1e6, gguf_tensor_count(g),
           m->all_elems ? 8.0 * (double)m->all_bytes / (double)m->all_elems : 0.0);
    printf("\nQuantisation mix\n");
    for (uint32_t id = 0; id < T9_COUNT(m->tensors); id++)
        if (m->tensors[id])
            printf("  %-8s %5" PRIu64 " tensors  %10.1f M values  %10.1f MB\n",
                   gguf_dtype_get(id)->name, m->tensors[id], (double)m->elems[id] / 1e6,
                   (double)m->bytes[id] / 1e6);
    print_metadata(g, &b);
    printf("\nTensors\n");
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct buf name;
        buf_init(&name, 1 << 12);
        json_write_str(&name, t->name);
        buf_printf(&b, "  %-44.*s %-8s ", name.n > 2 ? (int)name.n - 2 : 0, name.p + 1,
                   gguf_dtype_get(t->dtype)->name);
        buf_deinit(&name);
        shape_write(&b, t);
        buf_puts(&b, "\n");
        flush(&b);
    }
    str chat;
    if (gguf_get_str(g, "tokenizer.chat_template", &chat, NULL) == T9_STATUS_OK) {
        printf("\nChat template\n");
        for (size_t i = 0; i < chat.n; i++) {
            unsigned char c = (unsigned char)chat.p[i];
            buf_putc(&b, (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : (char)c);
        }
        buf_puts(&b, "\n");
        flush(&b);
    }
    buf_deinit(&b);
}

int cmd_inspect(const struct cli_options *o)
{
    struct gguf *g = NULL;
    struct t9_err err = {0};
    struct mix m = {0};
    if (gguf_open(&g, o->gguf, &err) != T9_STATUS_OK)
        return cli_fail(&err);
    mix_count(g, &m);
    if (o->json)
        print_json(g, &m);
    else
        print_text(g, &m);
    gguf_close(g);
    return cli_finish_stdout();
}
