/*
 * tests/lib/changed_model.h - whole made models, one or more for each architecture that model_load
 * knows, and changes to their keys and tensors that a script of bytes describes: for the fuzzer of
 * the loader. What is written is always a file that says what it was told to; whether it makes
 * sense is the reader's and the loader's to find out.
 *
 * A script: which model, then changes. Each is a kind, what it is done to, and its values; a script
 * that ends early reads as zeros. One thread.
 */
#ifndef T9_TESTS_LIB_CHANGED_MODEL_H
#define T9_TESTS_LIB_CHANGED_MODEL_H

#include "gguf/gguf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CM_KEYS_MAX = 96,
    CM_TENSORS_MAX = 128,
    CM_VALUE_BYTES_MAX = 1024,
    CM_CHANGES_MAX = 12,
    CM_MODELS_MAX = 64,
};

struct cm_key {
    char key[80];
    gguf_type type;
    uint8_t value[CM_VALUE_BYTES_MAX]; /* as the file has it */
    size_t n_bytes;
};

struct cm_tensor {
    char name[80];
    uint32_t dtype, n_dims;
    uint64_t ne[GGUF_DIMS_MAX];
    const uint8_t *data; /* [n_bytes], repeated where the tensor is larger */
    size_t n_bytes;
    bool placed; /* its data are at `offset` of another's, and not written */
    uint64_t offset;
    int fill; /* 0: data; else each byte is fill - 1 */
};

struct cm_model {
    char arch[32];
    struct cm_key keys[CM_KEYS_MAX];
    struct cm_tensor tensors[CM_TENSORS_MAX];
    size_t n_keys, n_tensors;
};

struct cm_script {
    const uint8_t *p;
    size_t n;
};

/* The next byte, 0 at the end. */
uint8_t cm_byte(struct cm_script *s);

/* Makes the models: for each name of `known`, separated by ", ", one, and some of other shapes and
 * types. They live as long as the program. */
t9_status cm_init(const char *known, struct t9_err *err);
size_t cm_count(void);
/* Copies model `i`, changes it by the script, and writes the file to `path`. */
t9_status cm_write(const char *path, size_t i, struct cm_script *s, struct t9_err *err);

#endif
