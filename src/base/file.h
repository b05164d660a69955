/*
 * base/file.h - bounded file reading by pread, so that a file that shrinks under us is a status and
 * never a SIGBUS.
 */
#ifndef T9_BASE_FILE_H
#define T9_BASE_FILE_H

#include "base/buf.h"
#include "base/err.h"

#include <stdint.h>

struct file {
    int fd;
    uint64_t size_bytes; /* when it was opened */
};

/* Regular files only; the message names the path. */
t9_status file_open(struct file *f, const char *path, struct t9_err *err);
void file_close(struct file *f); /* accepts {.fd = -1} */
/* Reads exactly n bytes at off, or fails with IO ("... ended at byte X, Y expected"). */
t9_status file_read_at(const struct file *f, uint64_t off, void *dst, size_t n, struct t9_err *err);
/* Whole file or stream ("-" = standard input) into `out`; TOO_LARGE over out->max.
 * CANCELLED: a signal came while a writer let us wait. */
t9_status file_read_all(const char *path, struct buf *out, struct t9_err *err);

#endif
