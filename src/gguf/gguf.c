/*
 * gguf/gguf.c - a model of one or several files: opening, look-ups, typed access, data.
 *
 * Keys come from the first part only; tensors of all parts are one table with one hashed index.
 * Immutable after gguf_open, so any thread may read.
 */
#include "gguf/gguf.h"

#include "base/mem.h"
#include "base/num.h"
#include "gguf/parse.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct gguf {
    struct gguf_part *parts;
    uint32_t n_parts;
    struct gguf_tensor *tensors;
    uint64_t n_tensors;
    struct name_index tensor_index;
};

/* ---- opening ---- */

#define SPLIT_SUFFIX_BYTES (sizeof("-00001-of-00002.gguf") - 1)

/* Whether `path` ends in -NNNNN-of-NNNNN.gguf; gives both numbers. */
static bool split_name(const char *path, uint64_t *no, uint64_t *count)
{
    size_t n = strlen(path);
    if (n <= SPLIT_SUFFIX_BYTES)
        return false;
    str s = {path + n - SPLIT_SUFFIX_BYTES, SPLIT_SUFFIX_BYTES};
    return s.p[0] == '-' && str_eq(str_slice(s, 6, 10), STR("-of-")) &&
           str_has_suffix(s, STR(".gguf")) && num_parse_u64(str_slice(s, 1, 6), no) &&
           num_parse_u64(str_slice(s, 10, 15), count);
}

/* Path of part `no` (from 1) of the model whose part `path` is; the caller frees it. */
static char *split_path(const char *path, uint64_t no, uint64_t count)
{
    char suffix[64];
    size_t stem = strlen(path) - SPLIT_SUFFIX_BYTES;
    char *out = mem_strndup(path, stem + SPLIT_SUFFIX_BYTES);
    if (!out)
        return NULL;
    snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", (unsigned)(no % 100000),
             (unsigned)(count % 100000));
    memcpy(out + stem, suffix, SPLIT_SUFFIX_BYTES);
    return out;
}

/* A non-negative integer key of a part; false when missing or of another type. */
static bool part_uint(const struct gguf_part *p, const char *key, uint64_t *out)
{
    const struct gguf_kv *kv = part_kv_find(p, key);
    if (!kv)
        return false;
    switch (kv->type) {
    case GGUF_TYPE_U8:
    case GGUF_TYPE_U16:
    case GGUF_TYPE_U32:
    case GGUF_TYPE_U64: *out = kv->u; return true;
    case GGUF_TYPE_I8:
    case GGUF_TYPE_I16:
    case GGUF_TYPE_I32:
    case GGUF_TYPE_I64: *out = (uint64_t)kv->i; return kv->i >= 0;
    default: return false;
    }
}

/* Opens part i (from 0) of `count` and checks that it says so itself. */
static t9_status open_split_part(struct gguf *g, uint32_t i, uint64_t count, const char *any_path,
                                 struct t9_err *err)
{
    struct gguf_part *p = &g->parts[i];
    uint64_t no = 0;
    uint64_t said = 0;
    char *path = split_path(any_path, (uint64_t)i + 1, count);
    if (!path)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory", any_path);
    t9_status st = part_open(p, path, err);
    mem_free(path);
    if (st == T9_STATUS_NOT_FOUND)
        return t9_fail(err, st, "%s: part %u of %llu is missing: all parts must be in one folder",
                       p->name, i + 1, (unsigned long long)count);
    T9_TRY(st);
    if (!part_uint(p, "split.no", &no) || !part_uint(p, "split.count", &said))
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%s: named like part %u of %llu but has no split.no and split.count",
                       p->name, i + 1, (unsigned long long)count);
    if (no != i || said != count)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%s: says it is part %llu of %llu, its name says %u of %llu", p->name,
                       (unsigned long long)(no + 1), (unsigned long long)said, i + 1,
                       (unsigned long long)count);
    return T9_STATUS_OK;
}

static t9_status parts_new(struct gguf *g, uint64_t count, const char *path, struct t9_err *err)
{
    g->parts = mem_calloc(count, sizeof *g->parts);
    if (!g->parts)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory", path);
    g->n_parts = (uint32_t)count;
    return T9_STATUS_OK;
}

static t9_status open_single(struct gguf *g, const char *path, struct t9_err *err)
{
    uint64_t count = 0;
    T9_TRY(parts_new(g, 1, path, err));
    struct gguf_part *p = &g->parts[0];
    T9_TRY(part_open(p, path, err));
    if (part_uint(p, "split.count", &count) && count > 1)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%s: one of %llu parts: name them NAME-00001-of-%05llu.gguf and so on",
                       p->name, (unsigned long long)count, (unsigned long long)count);
    return T9_STATUS_OK;
}

static t9_status open_split(struct gguf *g, const char *path, uint64_t count, struct t9_err *err)
{
    uint64_t total = 0;
    if (count > GGUF_PARTS_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: %llu parts, the limit is %d", path,
                       (unsigned long long)count, GGUF_PARTS_MAX);
    T9_TRY(parts_new(g, count, path, err));
    for (uint32_t i = 0; i < g->n_parts; i++) {
        T9_TRY(open_split_part(g, i, count, path, err));
        total += g->parts[i].n_tensors;
        if (i > 0)
            part_drop_kvs(&g->parts[i]);
    }
    uint64_t said = 0;
    if (!part_uint(&g->parts[0], "split.tensors.count", &said))
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: key split.tensors.count is missing",
                       g->parts[0].name);
    if (said != total)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%s: split.tensors.count is %llu but the %u parts hold %llu tensors",
                       g->parts[0].name, (unsigned long long)said, g->n_parts,
                       (unsigned long long)total);
    return T9_STATUS_OK;
}

static str tensor_name(const void *table, uint64_t i)
{
    return ((const struct gguf_tensor *)table)[i].name;
}

/* Makes the one tensor table and its index from those of the parts. */
static t9_status join_tensors(struct gguf *g, struct t9_err *err)
{
    char shown[GGUF_SHOW_MAX];
    uint64_t total = 0;
    for (uint32_t i = 0; i < g->n_parts; i++)
        total += g->parts[i].n_tensors;
    if (total > GGUF_TENSORS_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: %llu tensors in all parts, the limit is %d",
                       g->parts[0].name, (unsigned long long)total, GGUF_TENSORS_MAX);
    g->tensors = mem_calloc(total, sizeof *g->tensors);
    if (!g->tensors || !index_init(&g->tensor_index, total, g->tensors, tensor_name))
        return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory for %llu tensors", g->parts[0].name,
                       (unsigned long long)total);
    for (uint32_t i = 0; i < g->n_parts; i++) {
        struct gguf_part *p = &g->parts[i];
        for (uint64_t k = 0; k < p->n_tensors; k++) {
            struct gguf_tensor *t = &g->tensors[g->n_tensors];
            *t = p->tensors[k];
            t->part = i;
            if (index_add(&g->tensor_index, g->n_tensors) != g->n_tensors)
                return t9_fail(err, T9_STATUS_CORRUPT, "%s: tensor %s appears twice", p->name,
                               gguf_show(t->name, shown));
            g->n_tensors++;
        }
        mem_free(p->tensors);
        p->tensors = NULL;
        p->n_tensors = 0;
    }
    return T9_STATUS_OK;
}

t9_status gguf_open(struct gguf **out, const char *path, struct t9_err *err)
{
    uint64_t no;
    uint64_t count;
    *out = NULL;
    struct gguf *g = mem_calloc(1, sizeof *g);
    if (!g)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory", path);
    t9_status st = split_name(path, &no, &count) && count > 1 ? open_split(g, path, count, err)
                                                              : open_single(g, path, err);
    if (st == T9_STATUS_OK)
        st = join_tensors(g, err);
    if (st != T9_STATUS_OK) {
        gguf_close(g);
        return st;
    }
    *out = g;
    return T9_STATUS_OK;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; i < g->n_parts; i++)
        part_close(&g->parts[i]);
    mem_free(g->parts);
    index_deinit(&g->tensor_index);
    mem_free(g->tensors);
    mem_free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->parts[0].path;
}

const char *gguf_file_name(const struct gguf *g)
{
    return g->parts[0].name;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->parts[0].version;
}

uint32_t gguf_part_count(const struct gguf *g)
{
    return g->n_parts;
}

const char *gguf_part_path(const struct gguf *g, uint32_t part)
{
    return part < g->n_parts ? g->parts[part].path : NULL;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < g->n_parts; i++)
        total += g->parts[i].file.size_bytes;
    return total;
}

/* ---- metadata ---- */

uint64_t gguf_kv_count(const struct gguf *g)
{
    return g->parts[0].n_kvs;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, uint64_t i)
{
    return i < g->parts[0].n_kvs ? &g->parts[0].kvs[i] : NULL;
}

const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key)
{
    return part_kv_find(&g->parts[0], key);
}

const char *gguf_type_name(gguf_type t)
{
    static const char *const names[GGUF_TYPE_COUNT] = {
        "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", "arr", "u64", "i64", "f64"};
    return (unsigned)t < GGUF_TYPE_COUNT ? names[t] : "?";
}

t9_status gguf_name_file(const struct gguf *g, t9_status st, struct t9_err *err)
{
    if (st == T9_STATUS_NOT_FOUND)
        st = T9_STATUS_CORRUPT;
    if (!err)
        return st;
    err->code = st;
    const char *file = gguf_file_name(g);
    if (st != T9_STATUS_IO && strncmp(err->msg, file, strlen(file)) != 0)
        (void)t9_err_prefix(err, "%s", file);
    return st;
}

static t9_status fail_missing(const struct gguf *g, const char *key, struct t9_err *err)
{
    return t9_fail(err, T9_STATUS_NOT_FOUND, "%s: key %s is missing", gguf_file_name(g), key);
}

static t9_status fail_type(const struct gguf *g, const char *key, gguf_type found,
                           const char *expected, struct t9_err *err)
{
    return t9_fail(err, T9_STATUS_CORRUPT, "%s: key %s: type %s, expected %s", gguf_file_name(g),
                   key, gguf_type_name(found), expected);
}

static bool is_unsigned(gguf_type t)
{
    return t == GGUF_TYPE_U8 || t == GGUF_TYPE_U16 || t == GGUF_TYPE_U32 || t == GGUF_TYPE_U64;
}

static bool is_signed(gguf_type t)
{
    return t == GGUF_TYPE_I8 || t == GGUF_TYPE_I16 || t == GGUF_TYPE_I32 || t == GGUF_TYPE_I64;
}

/* Out-of-range doubles become infinities instead of undefined behaviour. */
static float f32_from_f64(double f)
{
    if (f > (double)FLT_MAX)
        return INFINITY;
    return f < -(double)FLT_MAX ? -INFINITY : (float)f;
}

t9_status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *v, struct t9_err *err)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv)
        return fail_missing(g, key, err);
    if (!is_unsigned(kv->type) && !is_signed(kv->type))
        return fail_type(g, key, kv->type, "an integer", err);
    if (is_signed(kv->type) && kv->i < 0)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: key %s: %lld is negative", gguf_file_name(g),
                       key, (long long)kv->i);
    uint64_t u = is_signed(kv->type) ? (uint64_t)kv->i : kv->u;
    if (u > UINT32_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: key %s: %llu does not fit 32 bits",
                       gguf_file_name(g), key, (unsigned long long)u);
    *v = (uint32_t)u;
    return T9_STATUS_OK;
}

t9_status gguf_get_i64(const struct gguf *g, const char *key, int64_t *v, struct t9_err *err)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv)
        return fail_missing(g, key, err);
    if (is_signed(kv->type)) {
        *v = kv->i;
        return T9_STATUS_OK;
    }
    if (!is_unsigned(kv->type))
        return fail_type(g, key, kv->type, "an integer", err);
    if (kv->u > INT64_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: key %s: %llu does not fit 63 bits",
                       gguf_file_name(g), key, (unsigned long long)kv->u);
    *v = (int64_t)kv->u;
    return T9_STATUS_OK;
}

t9_status gguf_get_f32(const struct gguf *g, const char *key, float *v, struct t9_err *err)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv)
        return fail_missing(g, key, err);
    if (kv->type != GGUF_TYPE_F32 && kv->type != GGUF_TYPE_F64)
        return fail_type(g, key, kv->type, "f32", err);
    *v = f32_from_f64(kv->f);
    return T9_STATUS_OK;
}

t9_status gguf_get_bool(const struct gguf *g, const char *key, bool *v, struct t9_err *err)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv)
        return fail_missing(g, key, err);
    if (kv->type != GGUF_TYPE_BOOL)
        return fail_type(g, key, kv->type, "bool", err);
    *v = kv->b;
    return T9_STATUS_OK;
}

t9_status gguf_get_str(const struct gguf *g, const char *key, str *v, struct t9_err *err)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv)
        return fail_missing(g, key, err);
    if (kv->type != GGUF_TYPE_STR)
        return fail_type(g, key, kv->type, "str", err);
    *v = kv->s;
    return T9_STATUS_OK;
}

t9_status gguf_get_arr(const struct gguf *g, const char *key, struct gguf_arr *v,
                       struct t9_err *err)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv)
        return fail_missing(g, key, err);
    if (kv->type != GGUF_TYPE_ARR)
        return fail_type(g, key, kv->type, "arr", err);
    *v = kv->arr;
    return T9_STATUS_OK;
}

t9_status gguf_get_u32_at(const struct gguf *g, const char *key, uint64_t idx, uint32_t *v,
                          struct t9_err *err)
{
    const struct gguf_kv *kv = gguf_kv_find(g, key);
    if (!kv || kv->type != GGUF_TYPE_ARR)
        return gguf_get_u32(g, key, v, err);
    const struct gguf_arr *a = &kv->arr;
    if (!is_unsigned(a->type) && !is_signed(a->type) && a->type != GGUF_TYPE_BOOL)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: key %s: array of %s, expected integers",
                       gguf_file_name(g), key, gguf_type_name(a->type));
    if (idx >= a->n)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: key %s: %llu elements, number %llu needed",
                       gguf_file_name(g), key, (unsigned long long)a->n,
                       (unsigned long long)idx + 1);
    if ((is_signed(a->type) && gguf_arr_i64(a, idx) < 0) || gguf_arr_u64(a, idx) > UINT32_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: key %s: element %llu does not fit 32 bits",
                       gguf_file_name(g), key, (unsigned long long)idx);
    *v = (uint32_t)gguf_arr_u64(a, idx);
    return T9_STATUS_OK;
}

/* ---- array elements ---- */

/* An element as the widest value of its kind. */
struct number {
    enum { NUMBER_NONE, NUMBER_UINT, NUMBER_INT, NUMBER_FLOAT } kind;
    union {
        uint64_t u;
        int64_t i;
        double f;
    };
};

static struct number element(const struct gguf_arr *a, uint64_t i)
{
    struct number v = {.kind = NUMBER_NONE};
    int8_t i8;
    int16_t i16;
    int32_t i32;
    float f32;
    if (i >= a->n)
        return v;
    const char *base = a->data;
    v.kind = is_signed(a->type) ? NUMBER_INT : NUMBER_UINT;
    v.u = 0;
    switch (a->type) {
    case GGUF_TYPE_U8:
    case GGUF_TYPE_BOOL: memcpy(&v.u, base + i, 1); break; /* the host is little endian */
    case GGUF_TYPE_U16: memcpy(&v.u, base + 2 * i, 2); break;
    case GGUF_TYPE_U32: memcpy(&v.u, base + 4 * i, 4); break;
    case GGUF_TYPE_U64:
    case GGUF_TYPE_I64: memcpy(&v.u, base + 8 * i, 8); break;
    case GGUF_TYPE_I8:
        memcpy(&i8, base + i, 1);
        v.i = i8;
        break;
    case GGUF_TYPE_I16:
        memcpy(&i16, base + 2 * i, 2);
        v.i = i16;
        break;
    case GGUF_TYPE_I32:
        memcpy(&i32, base + 4 * i, 4);
        v.i = i32;
        break;
    case GGUF_TYPE_F32:
        memcpy(&f32, base + 4 * i, 4);
        v.kind = NUMBER_FLOAT;
        v.f = (double)f32;
        break;
    case GGUF_TYPE_F64:
        v.kind = NUMBER_FLOAT;
        memcpy(&v.f, base + 8 * i, 8);
        break;
    default: v.kind = NUMBER_NONE; break;
    }
    return v;
}

str gguf_arr_str(const struct gguf_arr *a, uint64_t i)
{
    if (a->type != GGUF_TYPE_STR || i >= a->n)
        return (str){NULL, 0};
    const char *p = (const char *)a->data + a->at[i];
    uint64_t n; /* checked when the file was opened */
    memcpy(&n, p, sizeof n);
    return (str){p + sizeof n, (size_t)n};
}

uint64_t gguf_arr_u64(const struct gguf_arr *a, uint64_t i)
{
    struct number v = element(a, i);
    switch (v.kind) {
    case NUMBER_UINT: return v.u;
    case NUMBER_INT: return v.i < 0 ? 0 : (uint64_t)v.i;
    case NUMBER_FLOAT:
        if (!(v.f > 0))
            return 0;
        return v.f >= 0x1p64 ? UINT64_MAX : (uint64_t)v.f;
    default: return 0;
    }
}

int64_t gguf_arr_i64(const struct gguf_arr *a, uint64_t i)
{
    struct number v = element(a, i);
    switch (v.kind) {
    case NUMBER_UINT: return v.u > INT64_MAX ? INT64_MAX : (int64_t)v.u;
    case NUMBER_INT: return v.i;
    case NUMBER_FLOAT:
        if (v.f != v.f)
            return 0;
        if (v.f <= -0x1p63)
            return INT64_MIN;
        return v.f >= 0x1p63 ? INT64_MAX : (int64_t)v.f;
    default: return 0;
    }
}

float gguf_arr_f32(const struct gguf_arr *a, uint64_t i)
{
    struct number v = element(a, i);
    switch (v.kind) {
    case NUMBER_UINT: return (float)v.u;
    case NUMBER_INT: return (float)v.i;
    case NUMBER_FLOAT: return f32_from_f64(v.f);
    default: return 0.0f;
    }
}

/* ---- tensors ---- */

uint64_t gguf_tensor_count(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    uint64_t i = index_find(&g->tensor_index, str_from(name));
    return i == UINT64_MAX ? NULL : &g->tensors[i];
}

t9_status gguf_tensor_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset_bytes,
                           void *dst, size_t n_bytes, struct t9_err *err)
{
    char shown[GGUF_SHOW_MAX];
    const struct gguf_part *p = &g->parts[t->part];
    if (offset_bytes > t->size_bytes || n_bytes > t->size_bytes - offset_bytes)
        return t9_fail(err, T9_STATUS_INVALID,
                       "%s: tensor %s: bytes %llu + %zu are outside its %llu", p->name,
                       gguf_show(t->name, shown), (unsigned long long)offset_bytes, n_bytes,
                       (unsigned long long)t->size_bytes);
    t9_status st = file_read_at(&p->file, t->offset + offset_bytes, dst, n_bytes, err);
    if (st != T9_STATUS_OK)
        t9_err_prefix(err, "%s: tensor %s", p->name, gguf_show(t->name, shown));
    return st;
}
