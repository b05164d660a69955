/*
 * cli/logprobs_file.c - see logprobs_file.h.
 */
#include "cli/logprobs_file.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC "t9logp\0\1" /* the last byte is the version */

enum { MAGIC_BYTES = 8, HEAD_BYTES = MAGIC_BYTES + 4 * 4 + 8, VOCAB_MAX = 1 << 24 };

struct logprobs_file {
    FILE *in; /* one of the two */
    struct file_out *out;
    const char *path;
    uint32_t n_vocab;
    uint64_t n_rows; /* that are still to be read */
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

static t9_status file_new(struct logprobs_file **out, const char *path, struct t9_err *err)
{
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory", path);
    (*out)->path = path;
    return T9_STATUS_OK;
}

t9_status logprobs_create(struct logprobs_file **out, struct file_out *own_file,
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
    t9_status s = file_new(out, "", err);
    if (s != T9_STATUS_OK) {
        file_out_close(own_file);
        return s;
    }
    (*out)->out = own_file;
    (*out)->n_vocab = head->n_vocab;
    return file_out_write(own_file, b, sizeof b, err);
}

t9_status logprobs_write(struct logprobs_file *f, const float *row, struct t9_err *err)
{
    return file_out_write(f->out, row, f->n_vocab * sizeof *row, err);
}

t9_status logprobs_finish(struct logprobs_file *f, struct t9_err *err)
{
    return file_out_finish(f->out, err);
}

/* What a regular file must have; a stream shows it at its end. */
static t9_status check_size(const struct logprobs_file *f, struct t9_err *err)
{
    struct stat st;
    uint64_t row_bytes = (uint64_t)f->n_vocab * sizeof(float), want;
    if (fstat(fileno(f->in), &st) != 0 || !S_ISREG(st.st_mode))
        return T9_STATUS_OK;
    if (!__builtin_mul_overflow(f->n_rows, row_bytes, &want) && want <= INT64_MAX - HEAD_BYTES &&
        (uint64_t)st.st_size == HEAD_BYTES + want)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_CORRUPT,
                   "%s: %lld bytes are not a header and %llu rows of %u log probabilities; it was "
                   "cut off or something was added",
                   f->path, (long long)st.st_size, (unsigned long long)f->n_rows,
                   (unsigned)f->n_vocab);
}

t9_status logprobs_open(struct logprobs_file **out, const char *path, struct logprobs_head *head,
                        struct t9_err *err)
{
    unsigned char b[HEAD_BYTES];
    T9_TRY(file_new(out, path, err));
    (*out)->in = fopen(path, "rb");
    if (!(*out)->in) {
        int error = errno;
        if (error == EINTR)
            return t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
        return t9_fail_os(err, error == ENOENT ? T9_STATUS_NOT_FOUND : T9_STATUS_IO, error,
                          "%s could not be opened", path);
    }
    if (fread(b, 1, sizeof b, (*out)->in) != sizeof b || memcmp(b, MAGIC, MAGIC_BYTES) != 0)
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
    (*out)->n_rows = (uint64_t)head->n_windows * head->stride;
    return check_size(*out, err);
}

t9_status logprobs_read(struct logprobs_file *f, float *row, struct t9_err *err)
{
    if (f->n_rows == 0 || fread(row, sizeof *row, f->n_vocab, f->in) != f->n_vocab)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: ends before its last row", f->path);
    if (--f->n_rows == 0 && getc(f->in) != EOF)
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: goes on after its last row", f->path);
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
    if (f->in)
        (void)fclose(f->in);
    file_out_close(f->out);
    mem_free(f);
}
