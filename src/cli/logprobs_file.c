/*
 * cli/logprobs_file.c - see logprobs_file.h.
 */
#include "cli/logprobs_file.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "t9logp\0\1" /* the last byte is the version */

enum { MAGIC_BYTES = 8, HEAD_BYTES = MAGIC_BYTES + 4 * 4 + 8, VOCAB_MAX = 1 << 24 };

struct logprobs_file {
    FILE *f;
    const char *path;
    uint32_t n_vocab;
    bool created;
    char part[4096];
};

static void put_u32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t get_u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static t9_status file_new(struct logprobs_file **out, const char *path, bool create,
                          struct t9_err *err)
{
    struct logprobs_file *f = mem_calloc(1, sizeof *f);
    if (!f)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory", path);
    f->path = path;
    f->created = create;
    if (snprintf(f->part, sizeof f->part, "%s%s", path, create ? ".part" : "") >=
        (int)sizeof f->part) {
        mem_free(f);
        return t9_fail(err, T9_STATUS_INVALID, "%s: path too long", path);
    }
    f->f = fopen(f->part, create ? "wb" : "rb");
    if (!f->f) {
        int error = errno;
        mem_free(f);
        return t9_fail_os(err, error == ENOENT ? T9_STATUS_NOT_FOUND : T9_STATUS_IO, error,
                          "%s could not be %s", path, create ? "created" : "opened");
    }
    *out = f;
    return T9_STATUS_OK;
}

t9_status logprobs_create(struct logprobs_file **out, const char *path,
                          const struct logprobs_head *head, struct t9_err *err)
{
    unsigned char b[HEAD_BYTES];
    memcpy(b, MAGIC, MAGIC_BYTES);
    put_u32(b + 8, head->n_vocab);
    put_u32(b + 12, head->context);
    put_u32(b + 16, head->stride);
    put_u32(b + 20, head->n_windows);
    put_u32(b + 24, (uint32_t)head->text_hash);
    put_u32(b + 28, (uint32_t)(head->text_hash >> 32));
    T9_TRY(file_new(out, path, true, err));
    (*out)->n_vocab = head->n_vocab;
    if (fwrite(b, 1, sizeof b, (*out)->f) == sizeof b)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_IO, "%s: write failed; is the disk full?", path);
}

t9_status logprobs_write(struct logprobs_file *f, const float *row, struct t9_err *err)
{
    if (fwrite(row, sizeof *row, f->n_vocab, f->f) == f->n_vocab)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_IO, "%s: write failed; is the disk full?", f->part);
}

t9_status logprobs_finish(struct logprobs_file *f, struct t9_err *err)
{
    bool closed = fclose(f->f) == 0;
    f->f = NULL;
    if (!closed)
        return t9_fail(err, T9_STATUS_IO, "%s: write failed; is the disk full?", f->part);
    if (rename(f->part, f->path) != 0)
        return t9_fail(err, T9_STATUS_IO, "%s: could not take its final name", f->part);
    f->created = false;
    return T9_STATUS_OK;
}

t9_status logprobs_open(struct logprobs_file **out, const char *path, struct logprobs_head *head,
                        struct t9_err *err)
{
    unsigned char b[HEAD_BYTES];
    T9_TRY(file_new(out, path, false, err));
    if (fread(b, 1, sizeof b, (*out)->f) != sizeof b || memcmp(b, MAGIC, MAGIC_BYTES) != 0)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%s: not a file of log probabilities that --save-logits wrote", path);
    *head = (struct logprobs_head){
        .n_vocab = get_u32(b + 8),
        .context = get_u32(b + 12),
        .stride = get_u32(b + 16),
        .n_windows = get_u32(b + 20),
        .text_hash = get_u32(b + 24) | (uint64_t)get_u32(b + 28) << 32,
    };
    if (head->n_vocab < 1 || head->n_vocab > VOCAB_MAX || head->n_windows < 1)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: its header makes no sense", path);
    (*out)->n_vocab = head->n_vocab;
    return T9_STATUS_OK;
}

t9_status logprobs_read(struct logprobs_file *f, float *row, struct t9_err *err)
{
    if (fread(row, sizeof *row, f->n_vocab, f->f) != f->n_vocab)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: ends before its last row", f->path);
    bool sane = true;
    for (uint32_t i = 0; i < f->n_vocab; i++)
        sane = sane && row[i] <= 1e-3f; /* false for NaN */
    if (!sane)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: has a value that is no log probability",
                       f->path);
    return T9_STATUS_OK;
}

void logprobs_close(struct logprobs_file *f)
{
    if (!f)
        return;
    if (f->f)
        fclose(f->f);
    if (f->created)
        remove(f->part);
    mem_free(f);
}
