/*
 * gguf/gguf.h - reader of GGUF model files, versions 2 and 3, little endian, single or split
 * (NAME-00001-of-0000N.gguf: any part's path opens all of them).
 *
 * Everything a file says is checked before it is used: counts and sizes against the file and
 * against the limits below, names for duplicates, tensors for type, whole blocks, alignment,
 * overlap and the end of the file. Nothing is mapped: data is read by pread, so that a file which
 * shrinks is a status. A `struct gguf` is immutable after gguf_open; any thread may use it.
 */
#ifndef T9_GGUF_GGUF_H
#define T9_GGUF_GGUF_H

#include "base/err.h"
#include "base/str.h"
#include "gguf/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limits; beyond them a file is refused with TOO_LARGE. */
#define GGUF_METADATA_BYTES_MAX                                                                    \
    ((uint64_t)512 << 20) /* header, keys and tensor table of a part                               \
                           */
#define GGUF_KV_MAX              65536
#define GGUF_TENSORS_MAX         1048576 /* over all parts */
#define GGUF_KEY_BYTES_MAX       65535
#define GGUF_TENSOR_NAME_MAX     255
#define GGUF_STR_BYTES_MAX       ((uint64_t)64 << 20)
#define GGUF_ARRAY_ELEMS_MAX     ((uint64_t)64 << 20)
#define GGUF_ARRAY_STRS_MAX      ((uint64_t)16 << 20)
#define GGUF_DIMS_MAX            4
#define GGUF_PARTS_MAX           512
#define GGUF_ALIGNMENT_DEFAULT   32
#define GGUF_ALIGNMENT_MIN       8
#define GGUF_ALIGNMENT_MAX_BYTES 1048576

/* X(name, id, bytes of one value; 0 = variable) */
#define GGUF_TYPE_LIST(X)                                                                          \
    X(U8, 0, 1)                                                                                    \
    X(I8, 1, 1)                                                                                    \
    X(U16, 2, 2)                                                                                   \
    X(I16, 3, 2)                                                                                   \
    X(U32, 4, 4)                                                                                   \
    X(I32, 5, 4)                                                                                   \
    X(F32, 6, 4)                                                                                   \
    X(BOOL, 7, 1)                                                                                  \
    X(STR, 8, 0)                                                                                   \
    X(ARR, 9, 0)                                                                                   \
    X(U64, 10, 8)                                                                                  \
    X(I64, 11, 8)                                                                                  \
    X(F64, 12, 8)

typedef enum gguf_type {
#define X(name, id, bytes) GGUF_TYPE_##name = (id),
    GGUF_TYPE_LIST(X)
#undef X
        GGUF_TYPE_COUNT = 13
} gguf_type;

/* Elements of an array value. Use the accessors; `data` is the file's bytes, unaligned and little
 * endian, and at[] says where in them each string begins when type is STR. */
struct gguf_arr {
    gguf_type type;
    uint64_t n;
    const void *data;
    const uint32_t *at;
};

struct gguf_kv {
    str key;
    gguf_type type;
    union {
        uint64_t u; /* U8 U16 U32 U64 */
        int64_t i;  /* I8 I16 I32 I64 */
        double f;   /* F32 F64 */
        bool b;     /* BOOL */
        str s;      /* STR */
        struct gguf_arr arr;
    };
};

struct gguf_tensor {
    str name;
    uint32_t dtype; /* enum dtype; always known and not removed */
    uint32_t n_dims;
    uint64_t ne[GGUF_DIMS_MAX]; /* ne[0] is the row length (innermost); 1 beyond n_dims */
    uint64_t offset;            /* of the data, from the start of its part's file */
    uint64_t size_bytes;
    uint32_t part;
};

struct gguf;

/*
 * Opens and checks a model. On failure *out is NULL and the message names the file, the key or
 * tensor, and the reason. NOT_FOUND: no such file; IO: the OS refused; CORRUPT: not what it claims;
 * UNSUPPORTED: version, byte order or type; TOO_LARGE: over a limit above.
 */
t9_status gguf_open(struct gguf **out, const char *path, struct t9_err *err);
void gguf_close(struct gguf *g); /* accepts NULL */

/* Path of the file that holds the metadata (the first part). */
const char *gguf_path(const struct gguf *g);
/* The last component of gguf_path, for messages. */
const char *gguf_file_name(const struct gguf *g);
/* What a reader of a file's contents fails with: puts the file's name before a message that has
 * none yet (this module's own do). Returns the status, CORRUPT for a key or tensor that was not
 * found: the file is not a whole model. */
t9_status gguf_name_file(const struct gguf *g, t9_status st, struct t9_err *err);
uint32_t gguf_version(const struct gguf *g);
uint32_t gguf_part_count(const struct gguf *g);
const char *gguf_part_path(const struct gguf *g, uint32_t part);
uint64_t gguf_file_bytes(const struct gguf *g); /* all parts */

/* ---- metadata (of the first part) ---- */

uint64_t gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, uint64_t i); /* file order */
const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key);
const char *gguf_type_name(gguf_type t); /* "u32", "str", "?" */

/*
 * Typed getters. NOT_FOUND when the key is missing and CORRUPT when its type or range is another;
 * then *v is untouched (so a default set before the call stays) and the message names the key, the
 * type found and the type expected. Integer getters take any integer type whose value fits;
 * gguf_get_f32 takes f32 and f64.
 */
t9_status gguf_get_u32(const struct gguf *g, const char *key, uint32_t *v, struct t9_err *err);
t9_status gguf_get_i64(const struct gguf *g, const char *key, int64_t *v, struct t9_err *err);
t9_status gguf_get_f32(const struct gguf *g, const char *key, float *v, struct t9_err *err);
t9_status gguf_get_bool(const struct gguf *g, const char *key, bool *v, struct t9_err *err);
t9_status gguf_get_str(const struct gguf *g, const char *key, str *v, struct t9_err *err);
t9_status gguf_get_arr(const struct gguf *g, const char *key, struct gguf_arr *v,
                       struct t9_err *err);
/* A number that may be given once or per layer: a scalar answers for every idx, an array by its
 * idx-th element (integers, or booleans as 0 and 1). CORRUPT when the array is too short. */
t9_status gguf_get_u32_at(const struct gguf *g, const char *key, uint64_t idx, uint32_t *v,
                          struct t9_err *err);

/* Element i, O(1). {NULL, 0} or 0 when i is out of range or the elements are of another kind.
 * Numeric accessors convert between all number types and bool; an i64 below 0 gives u64 0, a float
 * is cut towards zero and clamped to the range. */
str gguf_arr_str(const struct gguf_arr *a, uint64_t i);
uint64_t gguf_arr_u64(const struct gguf_arr *a, uint64_t i);
int64_t gguf_arr_i64(const struct gguf_arr *a, uint64_t i);
float gguf_arr_f32(const struct gguf_arr *a, uint64_t i);

/* ---- tensors (of all parts) ---- */

uint64_t gguf_tensor_count(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i);         /* file order */
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name); /* hashed */
/* Reads exactly n_bytes of t's data from offset_bytes (relative to the tensor) into dst. INVALID
 * when the range is not inside the tensor, IO when the file is no longer as it was. */
t9_status gguf_tensor_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset_bytes,
                           void *dst, size_t n_bytes, struct t9_err *err);

#endif
