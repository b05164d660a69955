/*
 * cli/logprobs_file.h - log probabilities of one run in a file, so that another run is compared
 * with them: a header that says which tokens they are of, then one row of n_vocab float32 (little
 * endian) for each scored token. A base file is as untrusted as any other file.
 */
#ifndef T9_CLI_LOGPROBS_FILE_H
#define T9_CLI_LOGPROBS_FILE_H

#include "base/err.h"
#include "base/file_out.h"

#include <stdbool.h>
#include <stdint.h>

struct logprobs_head {
    uint32_t n_vocab, context, stride, n_windows;
    uint64_t text_hash; /* of all tokens of the text and of what begins a window */
};

struct logprobs_file;

/* Into an open file, which has its name when logprobs_finish is done; closes it when it fails. */
t9_status logprobs_create(struct logprobs_file **out, struct file_out *own_file,
                          const struct logprobs_head *head, struct t9_err *err);
t9_status logprobs_write(struct logprobs_file *f, const float *row, struct t9_err *err);
t9_status logprobs_finish(struct logprobs_file *f, struct t9_err *err);

/* Opens an existing one and reads its header. CORRUPT: not such a file, or not of its length. */
t9_status logprobs_open(struct logprobs_file **out, const char *path, struct logprobs_head *head,
                        struct t9_err *err);
/* The next row; CORRUPT when the file ends or a value is not a log probability, or when it goes on
 * after the last one. */
t9_status logprobs_read(struct logprobs_file *f, float *row, struct t9_err *err);

/* Closes; a created file that was not finished is removed. Accepts NULL. */
void logprobs_close(struct logprobs_file *f);

#endif
