/*
 * gguf/parse.h - private to gguf/: one file of a model, parsed and checked on its own.
 *
 * part_open owns everything a file says by itself; what spans files (names, totals) is gguf.c's.
 */
#ifndef T9_GGUF_PARSE_H
#define T9_GGUF_PARSE_H

#include "base/buf.h"
#include "base/file.h"
#include "gguf/gguf.h"

/* Open-addressing index of a table of names. The seed differs between runs, so that a file cannot
 * be made to collide. */
struct name_index {
    uint32_t *slots; /* table index + 1; 0 = empty */
    uint64_t mask, seed;
    const void *table;
    str (*name)(const void *table, uint64_t i);
};
bool index_init(struct name_index *ix, uint64_t n_max, const void *table,
                str (*name)(const void *table, uint64_t i));
void index_deinit(struct name_index *ix);
/* Adds entry i; returns the index of an entry that has the name already, else i. */
uint64_t index_add(struct name_index *ix, uint64_t i);
/* UINT64_MAX when there is none. */
uint64_t index_find(const struct name_index *ix, str name);

/* One file. Views (keys, strings, names) point into `meta`. */
struct gguf_part {
    struct file file;
    char *path;
    const char *name; /* last component of path */
    struct buf meta;  /* the file from byte 0 to at least the end of the tensor table */
    uint32_t version;
    uint64_t alignment;
    uint64_t data_off; /* start of tensor data */
    struct gguf_kv *kvs;
    uint64_t n_kvs;
    struct name_index kv_index;
    struct gguf_tensor *tensors;
    uint64_t n_tensors;
};

/* Opens and checks one file; `p` is zeroed storage. On failure the caller still calls part_close.
 */
t9_status part_open(struct gguf_part *p, const char *path, struct t9_err *err);
void part_close(struct gguf_part *p);
/* Frees keys and their index, keeps tensors (for parts after the first). */
void part_drop_kvs(struct gguf_part *p);
const struct gguf_kv *part_kv_find(const struct gguf_part *p, const char *key);

/* `s` made printable and cut for a message; returns out. */
#define GGUF_SHOW_MAX 84
const char *gguf_show(str s, char out[GGUF_SHOW_MAX]);

#endif
