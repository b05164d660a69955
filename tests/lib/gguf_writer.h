/*
 * tests/lib/gguf_writer.h - builds GGUF files in memory, for tests and for tools/mkgguf.
 *
 * It writes what it is told, so that tests can also build files that the reader must refuse.
 * One thread at a time.
 */
#ifndef T9_TESTS_LIB_GGUF_WRITER_H
#define T9_TESTS_LIB_GGUF_WRITER_H

#include "base/buf.h"
#include "gguf/gguf.h"

struct gguf_writer {
    struct buf kvs, infos, data;
    uint64_t n_kvs, n_tensors;
    uint32_t version, alignment; /* set by gw_init to 3 and 32; change before the first tensor */
};

void gw_init(struct gguf_writer *w);
void gw_deinit(struct gguf_writer *w);
void gw_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gw_f32(struct gguf_writer *w, const char *key, float v);
void gw_bool(struct gguf_writer *w, const char *key, bool v);
void gw_str(struct gguf_writer *w, const char *key, str v);
/* A scalar of `type` from its little-endian bytes. */
void gw_raw(struct gguf_writer *w, const char *key, gguf_type type, const void *p, size_t n_bytes);
/* An array of n numbers of `type` that lie at p. */
void gw_arr(struct gguf_writer *w, const char *key, gguf_type type, const void *p, uint64_t n);
void gw_arr_str(struct gguf_writer *w, const char *key, const str *v, uint64_t n);
/* Adds a tensor and its data at the next aligned offset. */
void gw_tensor(struct gguf_writer *w, const char *name, uint32_t dtype, uint32_t n_dims,
               const uint64_t *ne, const void *p, uint64_t n_bytes);
/* Adds only the table entry, with an offset of the caller's choice. */
void gw_tensor_info(struct gguf_writer *w, const char *name, uint32_t dtype, uint32_t n_dims,
                    const uint64_t *ne, uint64_t offset);
/* The whole file. NOMEM when any buffer failed. */
t9_status gw_finish(const struct gguf_writer *w, struct buf *out, struct t9_err *err);
/* gw_finish and write to path. */
t9_status gw_write(const struct gguf_writer *w, const char *path, struct t9_err *err);

#endif
