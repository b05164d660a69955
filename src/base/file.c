/*
 * base/file.c - bounded reading of files by pread and of streams by read. Any thread.
 */
#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One read call moves at most this much, below the kernel's own limit of 2 GiB. */
#define FILE_READ_MAX  ((size_t)1 << 30)
#define FILE_CHUNK_MIN ((size_t)64 << 10)

t9_status file_open(struct file *f, const char *path, struct t9_err *err)
{
    struct stat sb;
    *f = (struct file){.fd = -1};
    /* Non-blocking, so that a FIFO without a writer is refused instead of waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int e = errno;
        return t9_fail_os(err, e == ENOENT ? T9_STATUS_NOT_FOUND : T9_STATUS_IO, e,
                          "%s: cannot open", path);
    }
    if (fstat(fd, &sb) != 0) {
        int e = errno;
        close(fd);
        return t9_fail_os(err, T9_STATUS_IO, e, "%s: cannot stat", path);
    }
    if (!S_ISREG(sb.st_mode)) {
        close(fd);
        return t9_fail(err, T9_STATUS_INVALID, "%s: not a regular file", path);
    }
    f->fd = fd;
    f->size_bytes = (uint64_t)sb.st_size;
    return T9_STATUS_OK;
}

void file_close(struct file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

t9_status file_read_at(const struct file *f, uint64_t off, void *dst, size_t n, struct t9_err *err)
{
    char *p = dst;
    if (off > INT64_MAX || n > (uint64_t)INT64_MAX - off)
        return t9_fail(err, T9_STATUS_INVALID, "read of %zu bytes at %llu is out of range", n,
                       (unsigned long long)off);
    uint64_t end = off + n;
    while (off < end) {
        size_t want = end - off < FILE_READ_MAX ? (size_t)(end - off) : FILE_READ_MAX;
        ssize_t got = pread(f->fd, p, want, (off_t)off);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return t9_fail_os(err, T9_STATUS_IO, errno, "cannot read at byte %llu",
                              (unsigned long long)off);
        if (got == 0)
            return t9_fail(err, T9_STATUS_IO, "file ended at byte %llu, %llu expected",
                           (unsigned long long)off, (unsigned long long)end);
        p += got;
        off += (uint64_t)got;
    }
    return T9_STATUS_OK;
}

/* Reads fd to its end into `out`. */
static t9_status read_stream(int fd, const char *path, struct buf *out, struct t9_err *err)
{
    char probe;
    for (;;) {
        size_t left = out->max - out->n;
        size_t want = out->cap > out->n + FILE_CHUNK_MIN ? out->cap - out->n - 1 : FILE_CHUNK_MIN;
        if (want > left)
            want = left;
        /* At the maximum one more byte tells "exactly full" from "too large". */
        char *p = want ? buf_reserve(out, want) : &probe;
        if (!p)
            return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory after %zu bytes", path, out->n);
        ssize_t got = read(fd, p, want ? want : 1);
        if (got < 0 && errno == EINTR)
            return t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
        if (got < 0)
            return t9_fail_os(err, T9_STATUS_IO, errno, "%s: cannot read", path);
        if (got == 0)
            return T9_STATUS_OK;
        if (want == 0)
            return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: larger than the limit of %zu bytes", path,
                           out->max);
        out->n += (size_t)got;
    }
}

t9_status file_read_all(const char *path, struct buf *out, struct t9_err *err)
{
    if (strcmp(path, "-") == 0)
        return read_stream(STDIN_FILENO, "standard input", out, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int e = errno;
        if (e == EINTR)
            return t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
        return t9_fail_os(err, e == ENOENT ? T9_STATUS_NOT_FOUND : T9_STATUS_IO, e,
                          "%s: cannot open", path);
    }
    t9_status st = read_stream(fd, path, out, err);
    close(fd);
    return st;
}
