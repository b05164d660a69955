/*
 * base/file_out.c - see file_out.h.
 */
#include "base/file_out.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    BUFFER_BYTES = 256 << 10,
    LINKS_MAX = 40,
    NAMES_MAX = 100,
    LOG_WAIT_MS = 1000
};

struct file_out {
    int fd;
    bool synced;             /* a regular file: its bytes can be waited for */
    char target[PATH_BYTES]; /* no link where it is replaced */
    char part[PATH_BYTES];   /* what is being written; "": the target itself */
    size_t n;
    char buffer[BUFFER_BYTES];
};

/* Follows the links that the last part of f->target is, also where the last one leads to nothing.
 */
static t9_status follow_links(struct file_out *f, struct t9_err *err)
{
    char link[PATH_BYTES];
    for (int i = 0; i < LINKS_MAX; i++) {
        ssize_t n = readlink(f->target, link, sizeof link);
        if (n < 0)
            return T9_STATUS_OK;
        const char *slash = link[0] == '/' ? NULL : strrchr(f->target, '/');
        size_t n_folder = slash ? (size_t)(slash - f->target) + 1 : 0;
        if (n_folder + (size_t)n >= PATH_BYTES)
            break;
        memcpy(f->target + n_folder, link, (size_t)n);
        f->target[n_folder + (size_t)n] = 0;
    }
    return t9_fail(err, T9_STATUS_INVALID, "%s: a link that leads nowhere", f->target);
}

/* Says what the system said of it. */
static t9_status refuse(const char *path, int error, struct t9_err *err)
{
    if (error == EINTR)
        return t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
    return t9_fail_os(err, error == ENOENT ? T9_STATUS_NOT_FOUND : T9_STATUS_IO, error,
                      "%s cannot be written", path);
}

/* A new file beside the target, with the permissions of the one that it will replace. */
static t9_status part_open(struct file_out *f, const struct stat *old, struct t9_err *err)
{
    char part[PATH_BYTES] = "";
    if (old && faccessat(AT_FDCWD, f->target, W_OK, AT_EACCESS) != 0)
        return refuse(f->target, errno, err);
    /* A name that is taken was left by a process that was killed, or is of one elsewhere. */
    for (int i = 0; f->fd < 0 && i < NAMES_MAX && (i == 0 || errno == EEXIST); i++) {
        int n = snprintf(part, sizeof part, "%s.%ld.part", f->target, (long)getpid() + i);
        if (n >= (int)sizeof part)
            return t9_fail(err, T9_STATUS_INVALID, "%s: the path is too long", f->target);
        f->fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    }
    if (f->fd < 0)
        return refuse(f->target, errno, err);
    memcpy(f->part, part, sizeof part);
    if (old && fchmod(f->fd, old->st_mode & 0777) != 0)
        return refuse(f->target, errno, err);
    return T9_STATUS_OK;
}

/* What a shell made of > or >>, by the name that the system has for it (/dev/stdout) or its own. */
static bool is_standard_output(const struct stat *st)
{
    struct stat out;
    return fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == st->st_dev && out.st_ino == st->st_ino;
}

static t9_status open_kind(struct file_out *f, const char *path, file_out_kind kind,
                           struct t9_err *err)
{
    struct stat st;
    bool there = stat(path, &st) == 0;
    if (!there && errno != ENOENT)
        return refuse(path, errno, err);
    if (there && S_ISDIR(st.st_mode))
        return t9_fail(err, T9_STATUS_INVALID, "%s is a folder; give the name of a file", path);
    if (there && (S_ISSOCK(st.st_mode) || S_ISBLK(st.st_mode)))
        return t9_fail(err, T9_STATUS_INVALID,
                       "%s is a %s; give the name of a file, a FIFO or a character device", path,
                       S_ISSOCK(st.st_mode) ? "socket" : "block device");
    f->synced = !there || S_ISREG(st.st_mode);
    if (there && f->synced && is_standard_output(&st)) {
        f->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
        return f->fd < 0 ? refuse(path, errno, err) : T9_STATUS_OK;
    }
    if (f->synced && kind == FILE_OUT_WHOLE) {
        T9_TRY(follow_links(f, err));
        return part_open(f, there ? &st : NULL, err);
    }
    f->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | (f->synced ? O_CREAT | O_TRUNC : 0), 0666);
    if (f->fd < 0)
        return refuse(path, errno, err);
    /* The file description is ours alone. */
    if (kind == FILE_OUT_LOG && !f->synced && fcntl(f->fd, F_SETFL, O_NONBLOCK) != 0)
        return refuse(path, errno, err);
    return T9_STATUS_OK;
}

t9_status file_out_open(struct file_out **out, const char *path, file_out_kind kind,
                        struct t9_err *err)
{
    struct file_out *f = mem_alloc(sizeof *f);
    if (!f)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory", path);
    f->fd = -1;
    f->n = 0;
    f->part[0] = 0;
    t9_status s = T9_STATUS_OK;
    if (snprintf(f->target, sizeof f->target, "%s", path) >= (int)sizeof f->target)
        s = t9_fail(err, T9_STATUS_INVALID, "%s: the path is too long", path);
    else
        s = open_kind(f, path, kind, err);
    if (s == T9_STATUS_OK)
        *out = f;
    else
        file_out_close(f);
    return s;
}

/* Until a log's reader makes room. */
static t9_status wait_for_room(struct file_out *f, struct t9_err *err)
{
    struct pollfd p = {.fd = f->fd, .events = POLLOUT};
    int n = poll(&p, 1, LOG_WAIT_MS);
    if (n < 0)
        return refuse(f->target, errno, err);
    return n > 0 ? T9_STATUS_OK
                 : t9_fail(err, T9_STATUS_IO, "%s: who reads it does not keep up", f->target);
}

static t9_status write_all(struct file_out *f, const char *p, size_t n, struct t9_err *err)
{
    while (n > 0) {
        ssize_t put = write(f->fd, p, n);
        if (put < 0 && errno != EAGAIN)
            return refuse(f->target, errno, err);
        if (put < 0) {
            T9_TRY(wait_for_room(f, err));
            continue;
        }
        p += put;
        n -= (size_t)put;
    }
    return T9_STATUS_OK;
}

static t9_status flush(struct file_out *f, struct t9_err *err)
{
    size_t n = f->n;
    f->n = 0;
    return write_all(f, f->buffer, n, err);
}

t9_status file_out_write(struct file_out *f, const void *p, size_t n, struct t9_err *err)
{
    if (n > BUFFER_BYTES - f->n)
        T9_TRY(flush(f, err));
    if (n > BUFFER_BYTES)
        return write_all(f, p, n, err);
    memcpy(f->buffer + f->n, p, n);
    f->n += n;
    return T9_STATUS_OK;
}

t9_status file_out_finish(struct file_out *f, struct t9_err *err)
{
    T9_TRY(flush(f, err));
    if (f->synced && fsync(f->fd) != 0 && errno != EINVAL)
        return refuse(f->target, errno, err);
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) != 0)
        return refuse(f->target, errno, err);
    if (f->part[0] && rename(f->part, f->target) != 0)
        return t9_fail_os(err, T9_STATUS_IO, errno, "%s cannot take its final name", f->part);
    f->part[0] = 0;
    return T9_STATUS_OK;
}

void file_out_close(struct file_out *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        (void)close(f->fd);
    if (f->part[0])
        (void)unlink(f->part);
    mem_free(f);
}

bool file_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
