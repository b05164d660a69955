/*
 * Fuzz target of the GGUF reader: the input is the file. What opens is walked to the last byte.
 */
#include "base/num.h"
#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* Reads and, where possible, dequantises one row of each tensor. */
static void walk_tensors(const struct gguf *g)
{
    static uint8_t raw[65536];
    static float values[65536];
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        uint64_t row_bytes = dtype_row_bytes(t->dtype, t->ne[0]);
        if (row_bytes == 0 || row_bytes > t->size_bytes)
            abort();
        if (row_bytes > sizeof raw || t->ne[0] > 65536)
            continue;
        if (gguf_tensor_read(g, t, t->size_bytes - row_bytes, raw, row_bytes, NULL) != T9_STATUS_OK)
            abort(); /* the reader promised that the data is there */
        (void)dtype_dequantize_row(t->dtype, raw, values, t->ne[0], NULL);
    }
}

static void walk_keys(const struct gguf *g)
{
    volatile uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (kv->type == GGUF_TYPE_STR && kv->s.n)
            sum += (uint8_t)kv->s.p[kv->s.n - 1];
        for (uint64_t k = 0; kv->type == GGUF_TYPE_ARR && k < kv->arr.n; k++) {
            str s = gguf_arr_str(&kv->arr, k);
            sum += s.n ? (uint8_t)s.p[s.n - 1] : gguf_arr_u64(&kv->arr, k);
            sum += num_bits_from_f32(gguf_arr_f32(&kv->arr, k));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char path[64];
    struct gguf *g;
    struct t9_err err = {0};
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, p, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    t9_status st = gguf_open(&g, path, &err);
    if (st == T9_STATUS_OK) {
        walk_keys(g);
        walk_tensors(g);
        gguf_close(g);
    } else if (err.code != st || err.msg[0] == 0) {
        abort(); /* a refusal says why */
    }
    close(fd);
    return 0;
}
