/*
 * gguf/parse.c - one GGUF file: bounded cursor, metadata, tensor table, and all checks.
 *
 * Two passes over the metadata. The first (skim) walks the structure while it reads the file into
 * `meta` piece by piece: it proves that every length fits in the file and in the limits before
 * anything is allocated for it. The second builds keys and tensors as views into `meta`, which no
 * longer moves, and checks what they mean. Neither pass trusts the other's arithmetic: both go
 * through the cursor. The thread that opens.
 */
#include "gguf/parse.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF values are copied as they are");

#define GGUF_MAGIC       "GGUF"
#define READ_AHEAD       ((uint64_t)256 << 10)
#define KV_BYTES_MIN     14 /* 8 length, 1 key, 4 type, 1 value */
#define TENSOR_BYTES_MIN 33 /* 8 length, 1 name, 4 dims, 8 one dim, 4 type, 8 offset */

const char *gguf_show(str s, char out[GGUF_SHOW_MAX])
{
    const size_t keep = GGUF_SHOW_MAX - 4;
    size_t n = s.n < keep ? s.n : keep;
    for (size_t i = 0; i < n; i++) {
        char c = s.p[i];
        out[i] = c >= 0x20 && c < 0x7F ? c : '?';
    }
    memcpy(out + n, s.n > n ? "..." : "", s.n > n ? 4 : 1);
    return out;
}

/* ---- index of names ---- */

bool index_init(struct name_index *ix, uint64_t n_max, const void *table,
                str (*name)(const void *table, uint64_t i))
{
    uint64_t n_slots = 16;
    while (n_slots < n_max * 2)
        n_slots *= 2;
    *ix = (struct name_index){.mask = n_slots - 1, .table = table, .name = name};
    ix->seed = clock_now_ns() ^ (uint64_t)(uintptr_t)ix;
    ix->slots = mem_calloc(n_slots, sizeof *ix->slots);
    return ix->slots != NULL;
}

void index_deinit(struct name_index *ix)
{
    mem_free(ix->slots);
    *ix = (struct name_index){0};
}

/* The slot that holds `name`, or the empty one where it belongs. */
static uint32_t *index_slot(const struct name_index *ix, str name)
{
    uint64_t at = hash_xxh3_64(name.p, name.n, ix->seed) & ix->mask;
    while (ix->slots[at] && !str_eq(ix->name(ix->table, ix->slots[at] - 1), name))
        at = (at + 1) & ix->mask;
    return &ix->slots[at];
}

uint64_t index_add(struct name_index *ix, uint64_t i)
{
    uint32_t *slot = index_slot(ix, ix->name(ix->table, i));
    if (*slot)
        return *slot - 1;
    *slot = (uint32_t)(i + 1);
    return i;
}

uint64_t index_find(const struct name_index *ix, str name)
{
    if (!ix->slots)
        return UINT64_MAX;
    uint32_t *slot = index_slot(ix, name);
    return *slot ? *slot - 1 : UINT64_MAX;
}

static str kv_name(const void *table, uint64_t i)
{
    return ((const struct gguf_kv *)table)[i].key;
}

/* ---- cursor ---- */

struct cursor {
    struct gguf_part *p;
    uint64_t pos;
    t9_status st; /* sticky: after a failure every read gives zeros */
    struct t9_err *err;
};

#define FAIL(c, code, ...) cursor_fail((c), (code), __VA_ARGS__)

static void cursor_fail(struct cursor *c, t9_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Records the first failure, with the file's name before the message. */
static void cursor_fail(struct cursor *c, t9_status code, const char *fmt, ...)
{
    char msg[200];
    va_list ap;
    if (c->st != T9_STATUS_OK)
        return;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    c->st = t9_fail(c->err, code, "%s: %s", c->p->name, msg);
}

/* Reads more of the file into meta so that it holds at least `end` bytes. */
static void cursor_fill(struct cursor *c, uint64_t end)
{
    struct buf *meta = &c->p->meta;
    uint64_t want = end - meta->n;
    if (want < READ_AHEAD)
        want = READ_AHEAD;
    if (want > meta->max - meta->n)
        want = meta->max - meta->n;
    char *dst = buf_reserve(meta, want);
    if (!dst) {
        FAIL(c, T9_STATUS_NOMEM, "out of memory for %llu bytes of metadata",
             (unsigned long long)end);
        return;
    }
    if (file_read_at(&c->p->file, meta->n, dst, want, c->err) != T9_STATUS_OK) {
        t9_err_prefix(c->err, "%s", c->p->name);
        c->st = T9_STATUS_IO;
        return;
    }
    meta->n += want;
}

/* n bytes at the cursor, which moves past them; NULL after a failure. The pointer is valid until
 * the next take of the first pass. */
static const char *take(struct cursor *c, uint64_t n)
{
    uint64_t end;
    if (c->st != T9_STATUS_OK)
        return NULL;
    if (!num_add(c->pos, n, &end) || end > c->p->file.size_bytes) {
        FAIL(c, T9_STATUS_CORRUPT,
             "truncated: %llu bytes of metadata at byte %llu, but the file has %llu bytes",
             (unsigned long long)n, (unsigned long long)c->pos,
             (unsigned long long)c->p->file.size_bytes);
        return NULL;
    }
    if (end > GGUF_METADATA_BYTES_MAX) {
        FAIL(c, T9_STATUS_TOO_LARGE, "metadata is over the limit of %llu bytes",
             (unsigned long long)GGUF_METADATA_BYTES_MAX);
        return NULL;
    }
    if (end > c->p->meta.n)
        cursor_fill(c, end);
    if (c->st != T9_STATUS_OK)
        return NULL;
    const char *at = c->p->meta.p + c->pos;
    c->pos = end;
    return at;
}

static uint32_t take_u32(struct cursor *c)
{
    uint32_t v = 0;
    const char *p = take(c, sizeof v);
    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t take_u64(struct cursor *c)
{
    uint64_t v = 0;
    const char *p = take(c, sizeof v);
    if (p)
        memcpy(&v, p, sizeof v);
    return v;
}

static str take_str(struct cursor *c, const char *what, uint64_t max)
{
    uint64_t at = c->pos;
    uint64_t n = take_u64(c);
    if (n > max)
        FAIL(c, n > c->p->file.size_bytes ? T9_STATUS_CORRUPT : T9_STATUS_TOO_LARGE,
             "%s at byte %llu says it has %llu bytes, the limit is %llu", what,
             (unsigned long long)at, (unsigned long long)n, (unsigned long long)max);
    const char *p = take(c, n);
    return p ? (str){p, (size_t)n} : (str){NULL, 0};
}

/* ---- first pass ---- */

static uint64_t type_bytes(uint32_t type)
{
    switch (type) {
#define X(name, id, bytes)                                                                         \
    case id: return bytes;
        GGUF_TYPE_LIST(X)
#undef X
    default: return 0;
    }
}

/* Walks an array value and checks its type and count. */
static void skim_array(struct cursor *c, str key, uint64_t *n_strs)
{
    char shown[GGUF_SHOW_MAX];
    gguf_show(key, shown); /* now: the key's bytes may move with the next take */
    uint32_t type = take_u32(c);
    uint64_t n = take_u64(c);
    if (c->st != T9_STATUS_OK)
        return;
    if (type == GGUF_TYPE_ARR) {
        FAIL(c, T9_STATUS_UNSUPPORTED, "key %s: arrays of arrays are not supported", shown);
    } else if (type >= GGUF_TYPE_COUNT) {
        FAIL(c, T9_STATUS_CORRUPT, "key %s: unknown element type %u", shown, type);
    } else if (n > GGUF_ARRAY_ELEMS_MAX || (type == GGUF_TYPE_STR && n > GGUF_ARRAY_STRS_MAX)) {
        FAIL(c, T9_STATUS_TOO_LARGE, "key %s: array of %llu elements is over the limit", shown,
             (unsigned long long)n);
    } else if (type == GGUF_TYPE_STR) {
        *n_strs += n;
        if (*n_strs > GGUF_ARRAY_STRS_MAX)
            FAIL(c, T9_STATUS_TOO_LARGE, "key %s: more than %llu strings in all arrays", shown,
                 (unsigned long long)GGUF_ARRAY_STRS_MAX);
        for (uint64_t i = 0; i < n && c->st == T9_STATUS_OK; i++)
            take_str(c, "array string", GGUF_STR_BYTES_MAX);
    } else {
        take(c, n * type_bytes(type)); /* both factors are bounded */
    }
}

static void skim_kv(struct cursor *c, uint64_t *n_strs)
{
    uint64_t key_at = c->pos + 8;
    str key = take_str(c, "key", GGUF_KEY_BYTES_MAX);
    uint32_t type = take_u32(c);
    if (c->st != T9_STATUS_OK)
        return;
    key.p = c->p->meta.p + key_at;
    char shown[GGUF_SHOW_MAX];
    if (key.n == 0)
        FAIL(c, T9_STATUS_CORRUPT, "empty key at byte %llu", (unsigned long long)key_at);
    else if (type >= GGUF_TYPE_COUNT)
        FAIL(c, T9_STATUS_CORRUPT, "key %s: unknown value type %u", gguf_show(key, shown), type);
    else if (type == GGUF_TYPE_STR)
        take_str(c, "string value", GGUF_STR_BYTES_MAX);
    else if (type == GGUF_TYPE_ARR)
        skim_array(c, key, n_strs);
    else
        take(c, type_bytes(type));
}

static void skim_tensor(struct cursor *c)
{
    uint64_t name_at = c->pos + 8;
    str name = take_str(c, "tensor name", GGUF_TENSOR_NAME_MAX);
    uint32_t n_dims = take_u32(c);
    if (c->st != T9_STATUS_OK)
        return;
    name.p = c->p->meta.p + name_at;
    char shown[GGUF_SHOW_MAX];
    if (name.n == 0)
        FAIL(c, T9_STATUS_CORRUPT, "tensor with an empty name at byte %llu",
             (unsigned long long)name_at);
    if (n_dims == 0 || n_dims > GGUF_DIMS_MAX)
        FAIL(c, T9_STATUS_CORRUPT, "tensor %s: %u dimensions, not 1 to %d", gguf_show(name, shown),
             n_dims, GGUF_DIMS_MAX);
    take(c, (uint64_t)n_dims * 8 + 4 + 8);
}

/* ---- header ---- */

/* Says what a file without the magic may be. */
static void refuse_magic(struct cursor *c, const char *magic)
{
    char shown[GGUF_SHOW_MAX];
    if (memcmp(magic, "vers", 4) == 0)
        FAIL(c, T9_STATUS_CORRUPT,
             "not a GGUF file but perhaps a Git LFS pointer: fetch the model itself");
    else if (memcmp(magic, "tjgg", 4) == 0 || memcmp(magic, "fmgg", 4) == 0 ||
             memcmp(magic, "lmgg", 4) == 0)
        FAIL(c, T9_STATUS_UNSUPPORTED, "a GGML file from before GGUF: convert the model again");
    else if (memcmp(magic, "FUGG", 4) == 0)
        FAIL(c, T9_STATUS_UNSUPPORTED, "big-endian GGUF: convert it to little endian");
    else
        FAIL(c, T9_STATUS_CORRUPT, "not a GGUF file (it begins with \"%s\")",
             gguf_show((str){magic, 4}, shown));
}

static void read_header(struct cursor *c, uint64_t *n_tensors, uint64_t *n_kvs)
{
    const char *magic = take(c, 4);
    if (!magic)
        return;
    if (memcmp(magic, GGUF_MAGIC, 4) != 0) {
        refuse_magic(c, magic);
        return;
    }
    uint32_t version = take_u32(c);
    if (c->st != T9_STATUS_OK)
        return;
    c->p->version = version;
    if (version == 1)
        FAIL(c, T9_STATUS_UNSUPPORTED, "GGUF version 1 is too old: convert the model again");
    else if (version != 0 && (version & 0xFFFF) == 0)
        FAIL(c, T9_STATUS_UNSUPPORTED, "big-endian GGUF: convert it to little endian");
    else if (version != 2 && version != 3)
        FAIL(c, T9_STATUS_UNSUPPORTED, "GGUF version %u: only 2 and 3 are known", version);
    *n_tensors = take_u64(c);
    *n_kvs = take_u64(c);
    if (c->st != T9_STATUS_OK)
        return;
    uint64_t left = c->p->file.size_bytes - c->pos;
    if (*n_kvs > left / KV_BYTES_MIN || *n_tensors > left / TENSOR_BYTES_MIN)
        FAIL(c, T9_STATUS_CORRUPT,
             "header counts %llu keys and %llu tensors, more than a file of %llu bytes can hold",
             (unsigned long long)*n_kvs, (unsigned long long)*n_tensors,
             (unsigned long long)c->p->file.size_bytes);
    else if (*n_kvs > GGUF_KV_MAX)
        FAIL(c, T9_STATUS_TOO_LARGE, "%llu keys, the limit is %d", (unsigned long long)*n_kvs,
             GGUF_KV_MAX);
    else if (*n_tensors > GGUF_TENSORS_MAX)
        FAIL(c, T9_STATUS_TOO_LARGE, "%llu tensors, the limit is %d",
             (unsigned long long)*n_tensors, GGUF_TENSORS_MAX);
}

/* ---- second pass: keys ---- */

static void parse_scalar(struct cursor *c, struct gguf_kv *kv)
{
    const char *p = take(c, type_bytes(kv->type));
    if (!p)
        return;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
    float f32;
    memcpy(&u8, p, 1);
    switch (kv->type) {
    case GGUF_TYPE_U8: kv->u = u8; break;
    case GGUF_TYPE_I8: kv->i = (int8_t)u8; break;
    case GGUF_TYPE_BOOL: kv->b = u8 != 0; break;
    case GGUF_TYPE_U16:
    case GGUF_TYPE_I16:
        memcpy(&u16, p, 2);
        if (kv->type == GGUF_TYPE_U16)
            kv->u = u16;
        else
            kv->i = (int16_t)u16;
        break;
    case GGUF_TYPE_U32:
    case GGUF_TYPE_I32:
        memcpy(&u32, p, 4);
        if (kv->type == GGUF_TYPE_U32)
            kv->u = u32;
        else
            kv->i = (int32_t)u32;
        break;
    case GGUF_TYPE_F32:
        memcpy(&f32, p, 4);
        kv->f = (double)f32;
        break;
    case GGUF_TYPE_U64: memcpy(&kv->u, p, 8); break;
    case GGUF_TYPE_I64: memcpy(&kv->i, p, 8); break;
    case GGUF_TYPE_F64: memcpy(&kv->f, p, 8); break;
    default: break;
    }
    if (kv->type == GGUF_TYPE_BOOL && u8 > 1) {
        char shown[GGUF_SHOW_MAX];
        FAIL(c, T9_STATUS_CORRUPT, "key %s: bool has value %u", gguf_show(kv->key, shown), u8);
    }
}

static void parse_array(struct cursor *c, struct gguf_kv *kv)
{
    char shown[GGUF_SHOW_MAX];
    kv->arr = (struct gguf_arr){.type = (gguf_type)take_u32(c)};
    uint64_t n = take_u64(c);
    if (c->st != T9_STATUS_OK)
        return;
    if (kv->arr.type != GGUF_TYPE_STR) {
        kv->arr.data = take(c, n * type_bytes(kv->arr.type));
        kv->arr.n = c->st == T9_STATUS_OK ? n : 0;
        const uint8_t *bytes = kv->arr.data;
        for (uint64_t i = 0; kv->arr.type == GGUF_TYPE_BOOL && i < kv->arr.n; i++) {
            if (bytes[i] > 1)
                FAIL(c, T9_STATUS_CORRUPT, "key %s: bool at index %llu has value %u",
                     gguf_show(kv->key, shown), (unsigned long long)i, bytes[i]);
        }
        return;
    }
    uint32_t *at = mem_calloc(n, sizeof *at); /* metadata is far from 4 GiB */
    if (!at) {
        FAIL(c, T9_STATUS_NOMEM, "key %s: out of memory for %llu strings",
             gguf_show(kv->key, shown), (unsigned long long)n);
        return;
    }
    const uint64_t start = c->pos;
    kv->arr.data = take(c, 0);
    kv->arr.at = at;
    kv->arr.n = n;
    for (uint64_t i = 0; i < n && c->st == T9_STATUS_OK; i++) {
        at[i] = (uint32_t)(c->pos - start);
        take_str(c, "array string", GGUF_STR_BYTES_MAX);
    }
}

static void parse_kvs(struct cursor *c, uint64_t n)
{
    struct gguf_part *p = c->p;
    char shown[GGUF_SHOW_MAX];
    p->kvs = mem_calloc(n, sizeof *p->kvs);
    if (!p->kvs || !index_init(&p->kv_index, n, p->kvs, kv_name)) {
        FAIL(c, T9_STATUS_NOMEM, "out of memory for %llu keys", (unsigned long long)n);
        return;
    }
    for (uint64_t i = 0; i < n && c->st == T9_STATUS_OK; i++) {
        struct gguf_kv *kv = &p->kvs[i];
        kv->key = take_str(c, "key", GGUF_KEY_BYTES_MAX);
        kv->type = (gguf_type)take_u32(c);
        if (c->st != T9_STATUS_OK)
            return;
        p->n_kvs = i + 1;
        if (kv->type == GGUF_TYPE_STR)
            kv->s = take_str(c, "string value", GGUF_STR_BYTES_MAX);
        else if (kv->type == GGUF_TYPE_ARR)
            parse_array(c, kv);
        else
            parse_scalar(c, kv);
        if (c->st == T9_STATUS_OK && index_add(&p->kv_index, i) != i)
            FAIL(c, T9_STATUS_CORRUPT, "key %s appears twice", gguf_show(kv->key, shown));
    }
}

static void check_alignment(struct cursor *c)
{
    c->p->alignment = GGUF_ALIGNMENT_DEFAULT;
    const struct gguf_kv *kv = part_kv_find(c->p, "general.alignment");
    if (c->st != T9_STATUS_OK || !kv)
        return;
    if (kv->type != GGUF_TYPE_U32) {
        FAIL(c, T9_STATUS_CORRUPT, "key general.alignment: type %s, expected u32",
             gguf_type_name(kv->type));
        return;
    }
    if (kv->u < GGUF_ALIGNMENT_MIN || kv->u > GGUF_ALIGNMENT_MAX_BYTES || (kv->u & (kv->u - 1)))
        FAIL(c, T9_STATUS_CORRUPT,
             "key general.alignment: %llu is not a power of two from %d to %d",
             (unsigned long long)kv->u, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX_BYTES);
    else
        c->p->alignment = kv->u;
}

/* ---- second pass: tensors ---- */

/* Type, whole blocks and size of t, whose name and ne are set. */
static void check_tensor_type(struct cursor *c, struct gguf_tensor *t, const char *shown)
{
    const struct dtype_info *info = gguf_dtype_get(t->dtype);
    if (!info) {
        FAIL(c, T9_STATUS_UNSUPPORTED, "tensor %s: unknown type %u: a newer format?", shown,
             t->dtype);
        return;
    }
    if (info->removed) {
        FAIL(c, T9_STATUS_UNSUPPORTED,
             "tensor %s: type %s was removed from the format: quantise the model again", shown,
             info->name);
        return;
    }
    uint64_t n_rows = 1;
    bool fits = true;
    for (uint32_t i = 1; i < GGUF_DIMS_MAX; i++)
        fits = fits && num_mul(n_rows, t->ne[i], &n_rows);
    if (t->ne[0] % info->block_elems != 0) {
        FAIL(c, T9_STATUS_CORRUPT, "tensor %s: type %s has %llu columns, not a multiple of %u",
             shown, info->name, (unsigned long long)t->ne[0], info->block_elems);
        return;
    }
    uint64_t row_bytes = dtype_row_bytes(t->dtype, t->ne[0]);
    if (!fits || row_bytes == 0 || !num_mul(n_rows, row_bytes, &t->size_bytes) ||
        t->size_bytes > INT64_MAX)
        FAIL(c, T9_STATUS_CORRUPT, "tensor %s: its size overflows 64 bits", shown);
}

static void parse_tensor(struct cursor *c, struct gguf_tensor *t)
{
    char shown[GGUF_SHOW_MAX];
    t->name = take_str(c, "tensor name", GGUF_TENSOR_NAME_MAX);
    t->n_dims = take_u32(c);
    gguf_show(t->name, shown);
    for (uint32_t i = 0; i < GGUF_DIMS_MAX; i++) {
        t->ne[i] = i < t->n_dims ? take_u64(c) : 1;
        if (t->ne[i] == 0)
            FAIL(c, T9_STATUS_CORRUPT, "tensor %s: dimension %u is 0", shown, i);
    }
    t->dtype = take_u32(c);
    t->offset = take_u64(c);
    if (c->st != T9_STATUS_OK)
        return;
    check_tensor_type(c, t, shown);
    if (t->offset % c->p->alignment != 0)
        FAIL(c, T9_STATUS_CORRUPT, "tensor %s: offset %llu is not a multiple of %llu", shown,
             (unsigned long long)t->offset, (unsigned long long)c->p->alignment);
}

/* Turns offsets into file positions and checks them against the file's end. */
static void place_tensors(struct cursor *c)
{
    struct gguf_part *p = c->p;
    const uint64_t mask = p->alignment - 1;
    char shown[GGUF_SHOW_MAX];
    p->data_off = (c->pos + mask) & ~mask;
    for (uint64_t i = 0; i < p->n_tensors && c->st == T9_STATUS_OK; i++) {
        struct gguf_tensor *t = &p->tensors[i];
        uint64_t from;
        uint64_t end;
        bool fits = num_add(p->data_off, t->offset, &from) && num_add(from, t->size_bytes, &end);
        if (!fits)
            FAIL(c, T9_STATUS_CORRUPT, "tensor %s: offset %llu overflows 64 bits",
                 gguf_show(t->name, shown), (unsigned long long)t->offset);
        else if (end > p->file.size_bytes)
            FAIL(c, T9_STATUS_CORRUPT,
                 "tensor %s: data ends at byte %llu but the file has %llu: cut short?",
                 gguf_show(t->name, shown), (unsigned long long)end,
                 (unsigned long long)p->file.size_bytes);
        else
            t->offset = from;
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a;
    const struct gguf_tensor *y = *(const struct gguf_tensor *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void check_overlap(struct cursor *c)
{
    struct gguf_part *p = c->p;
    char shown[GGUF_SHOW_MAX];
    char shown_before[GGUF_SHOW_MAX];
    if (p->n_tensors < 2 || c->st != T9_STATUS_OK)
        return;
    const struct gguf_tensor **sorted = mem_calloc(p->n_tensors, sizeof *sorted);
    if (!sorted) {
        FAIL(c, T9_STATUS_NOMEM, "out of memory for %llu tensors",
             (unsigned long long)p->n_tensors);
        return;
    }
    for (uint64_t i = 0; i < p->n_tensors; i++)
        sorted[i] = &p->tensors[i];
    qsort(sorted, p->n_tensors, sizeof *sorted, by_offset);
    for (uint64_t i = 1; i < p->n_tensors; i++) {
        const struct gguf_tensor *before = sorted[i - 1];
        if (before->offset + before->size_bytes > sorted[i]->offset)
            FAIL(c, T9_STATUS_CORRUPT, "tensor %s: data overlaps that of %s",
                 gguf_show(sorted[i]->name, shown), gguf_show(before->name, shown_before));
    }
    mem_free(sorted);
}

static void parse_tensors(struct cursor *c, uint64_t n)
{
    struct gguf_part *p = c->p;
    if (c->st != T9_STATUS_OK)
        return;
    p->tensors = mem_calloc(n, sizeof *p->tensors);
    if (!p->tensors) {
        FAIL(c, T9_STATUS_NOMEM, "out of memory for %llu tensors", (unsigned long long)n);
        return;
    }
    for (uint64_t i = 0; i < n && c->st == T9_STATUS_OK; i++) {
        p->n_tensors = i + 1;
        parse_tensor(c, &p->tensors[i]);
    }
    if (c->st == T9_STATUS_OK)
        place_tensors(c);
    check_overlap(c);
}

/* ---- one file ---- */

t9_status part_open(struct gguf_part *p, const char *path, struct t9_err *err)
{
    struct t9_err scratch;
    struct cursor c = {.p = p, .err = err ? err : &scratch};
    uint64_t n_tensors = 0;
    uint64_t n_kvs = 0;
    uint64_t n_strs = 0;
    p->file.fd = -1;
    p->path = mem_strndup(path, strlen(path));
    if (!p->path)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory", path);
    const char *slash = strrchr(p->path, '/');
    p->name = slash ? slash + 1 : p->path;
    T9_TRY(file_open(&p->file, path, err));
    buf_init(&p->meta, p->file.size_bytes < GGUF_METADATA_BYTES_MAX ? p->file.size_bytes
                                                                    : GGUF_METADATA_BYTES_MAX);
    read_header(&c, &n_tensors, &n_kvs);
    const uint64_t body = c.pos;
    for (uint64_t i = 0; i < n_kvs && c.st == T9_STATUS_OK; i++)
        skim_kv(&c, &n_strs);
    for (uint64_t i = 0; i < n_tensors && c.st == T9_STATUS_OK; i++)
        skim_tensor(&c);
    if (c.st != T9_STATUS_OK)
        return c.st;
    c.pos = body;
    parse_kvs(&c, n_kvs);
    check_alignment(&c);
    parse_tensors(&c, n_tensors);
    return c.st;
}

void part_drop_kvs(struct gguf_part *p)
{
    for (uint64_t i = 0; i < p->n_kvs; i++) {
        struct gguf_kv *kv = &p->kvs[i];
        if (kv->type == GGUF_TYPE_ARR && kv->arr.type == GGUF_TYPE_STR) {
            union {
                const uint32_t *in;
                void *out;
            } at = {.in = kv->arr.at};
            mem_free(at.out);
        }
    }
    index_deinit(&p->kv_index);
    mem_free(p->kvs);
    p->kvs = NULL;
    p->n_kvs = 0;
}

void part_close(struct gguf_part *p)
{
    if (p->path) /* else the descriptor was never set */
        file_close(&p->file);
    part_drop_kvs(p);
    mem_free(p->tensors);
    buf_deinit(&p->meta);
    mem_free(p->path);
    *p = (struct gguf_part){.file.fd = -1};
}

const struct gguf_kv *part_kv_find(const struct gguf_part *p, const char *key)
{
    uint64_t i = index_find(&p->kv_index, str_from(key));
    return i == UINT64_MAX ? NULL : &p->kvs[i];
}
