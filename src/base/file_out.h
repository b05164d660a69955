/*
 * base/file_out.h - files that are written, in order. A regular file is made beside its target
 * under a name of its own and takes the target's name when it is whole, so that nobody ever sees
 * half of one and a failure leaves what was there. Where the path is a symbolic link, what it
 * points to is replaced and the link stays. A FIFO, a character device or the file that is our
 * standard output is written to as it is. Folders, sockets and block devices are refused when the
 * file is opened. One thread at a time.
 */
#ifndef T9_BASE_FILE_OUT_H
#define T9_BASE_FILE_OUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct file_out;

typedef enum file_out_kind {
    FILE_OUT_WHOLE, /* as said above */
    FILE_OUT_LOG,   /* grows under its own name, from nothing; its writer has work to do, so that
                     * a reader that makes no room for a second fails it with IO */
} file_out_kind;

/* Opens, and refuses what could not be written in the end. A FIFO waits for its reader. CANCELLED:
 * a signal came meanwhile; INVALID, NOT_FOUND, IO: the message names the path. */
t9_status file_out_open(struct file_out **out, const char *path, file_out_kind kind,
                        struct t9_err *err);
/* Buffered. CANCELLED: a signal came while a reader let us wait. */
t9_status file_out_write(struct file_out *f, const void *p, size_t n, struct t9_err *err);
/* All of it was written: it is on the disk, and under its name, when this returns OK. */
t9_status file_out_finish(struct file_out *f, struct t9_err *err);
/* Closes; what was not finished is removed, except a log. Accepts NULL. */
void file_out_close(struct file_out *f);

/* Whether both paths are there and lead to one file. */
bool file_same(const char *a, const char *b);

#endif
