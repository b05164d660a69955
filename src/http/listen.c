/*
 * http/listen.c - the socket that clients connect to: an address and port, or a unix socket.
 */
#include "base/log.h"
#include "http/internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 512 };

static t9_status cannot_bind(const struct http_params *p, int error, struct t9_err *err)
{
    if (error == EADDRINUSE)
        return t9_fail(err, T9_STATUS_IO,
                       "port %u of %s is taken by another program: stop it, or choose another with "
                       "--port",
                       p->port, p->host);
    if (error == EACCES)
        return t9_fail(err, T9_STATUS_IO, "port %u of %s needs privileges: choose one above 1023",
                       p->port, p->host);
    if (error == EADDRNOTAVAIL)
        return t9_fail(err, T9_STATUS_IO, "%s is no address of this machine", p->host);
    return t9_fail_os(err, T9_STATUS_IO, error, "can't listen on port %u of %s", p->port, p->host);
}

/* Closes fd without losing errno; returns -1. */
static int give_up(int fd)
{
    int error = errno;
    (void)close(fd);
    errno = error;
    return -1;
}

static int bind_on(const struct addrinfo *ai, bool and_listen)
{
    int one = 1;
    int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && (!and_listen || listen(fd, BACKLOG) == 0))
        return fd;
    return give_up(fd);
}

static uint16_t port_of(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t n = sizeof a;
    memset(&a, 0, sizeof a);
    if (getsockname(fd, &a.any, &n) != 0)
        return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

/* By the address, not the name: what a name stands for is decided elsewhere. */
static bool all_loopback(const struct addrinfo *list)
{
    for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        if (ai->ai_family == AF_INET) {
            memcpy(&v4, ai->ai_addr, sizeof v4);
            if (ntohl(v4.sin_addr.s_addr) >> 24 != 127)
                return false;
        } else if (ai->ai_family == AF_INET6) {
            memcpy(&v6, ai->ai_addr, sizeof v6);
            if (!IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr))
                return false;
        } else {
            return false;
        }
    }
    return true;
}

static t9_status open_tcp(const struct http_params *p, bool and_listen, struct listener *out,
                          struct t9_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[8];
    (void)snprintf(port, sizeof port, "%u", p->port);
    int code = getaddrinfo(p->host, port, &hints, &list);
    if (code != 0 || !list)
        return t9_fail(err, T9_STATUS_IO, "%s is no address to listen on: %s", p->host,
                       gai_strerror(code));
    out->loopback = all_loopback(list);
    if (!out->loopback && p->n_api_keys == 0 && !p->insecure) {
        freeaddrinfo(list);
        return t9_fail(err, T9_STATUS_INVALID,
                       "%s can be reached from other machines: give --api-key, or --insecure to "
                       "serve everybody",
                       p->host);
    }
    int error = 0;
    for (const struct addrinfo *ai = list; ai && out->fd < 0; ai = ai->ai_next) {
        out->fd = bind_on(ai, and_listen);
        error = out->fd < 0 ? errno : 0;
    }
    freeaddrinfo(list);
    if (out->fd < 0)
        return cannot_bind(p, error, err);
    out->port = port_of(out->fd);
    return T9_STATUS_OK;
}

/* ---- unix sockets ---- */

/* A socket file that a server left behind goes; anything else stays and is an error. */
static t9_status clear_path(const struct sockaddr_un *a, struct t9_err *err)
{
    struct stat sb;
    if (lstat(a->sun_path, &sb) != 0)
        return errno == ENOENT
                   ? T9_STATUS_OK
                   : t9_fail_os(err, T9_STATUS_IO, errno, "%s: can't look at it", a->sun_path);
    if (!S_ISSOCK(sb.st_mode))
        return t9_fail(err, T9_STATUS_IO, "%s exists and is no socket: choose another path",
                       a->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return t9_fail_os(err, T9_STATUS_IO, errno, "no socket to be had");
    bool alive = connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 || errno != ECONNREFUSED;
    (void)close(fd);
    if (alive)
        return t9_fail(err, T9_STATUS_IO,
                       "%s: another program listens there: stop it, or choose another path",
                       a->sun_path);
    if (unlink(a->sun_path) != 0)
        return t9_fail_os(err, T9_STATUS_IO, errno,
                          "%s: left behind by a server, and can't be removed", a->sun_path);
    return T9_STATUS_OK;
}

static t9_status open_unix(const struct http_params *p, bool and_listen, struct listener *out,
                           struct t9_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(p->unix_path);
    out->loopback = true;
    if (n == 0 || n >= sizeof a.sun_path)
        return t9_fail(err, T9_STATUS_INVALID, "the path of a unix socket has 1 to %zu bytes",
                       sizeof a.sun_path - 1);
    memcpy(a.sun_path, p->unix_path, n + 1);
    T9_TRY(clear_path(&a, err));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return t9_fail_os(err, T9_STATUS_IO, errno, "no socket to be had");
    /* Nobody can connect before listen, so there is no moment with a wider mode. */
    bool ok = bind(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    struct stat sb;
    if (ok && (chmod(a.sun_path, 0600) != 0 || lstat(a.sun_path, &sb) != 0 ||
               (and_listen && listen(fd, BACKLOG) != 0))) {
        ok = false;
        int error = errno;
        (void)unlink(a.sun_path);
        errno = error;
    }
    if (!ok) {
        (void)give_up(fd);
        return t9_fail_os(err, T9_STATUS_IO, errno, "can't listen on the unix socket %s",
                          a.sun_path);
    }
    out->fd = fd;
    out->device = sb.st_dev;
    out->inode = sb.st_ino;
    return T9_STATUS_OK;
}

t9_status listen_open(const struct http_params *p, bool and_listen, struct listener *out,
                      struct t9_err *err)
{
    *out = (struct listener){.fd = -1};
    return p->unix_path ? open_unix(p, and_listen, out, err) : open_tcp(p, and_listen, out, err);
}

void listen_close(const struct http_params *p, const struct listener *l)
{
    struct stat sb;
    if (l->fd < 0)
        return;
    if (p->unix_path && lstat(p->unix_path, &sb) == 0 && sb.st_dev == l->device &&
        sb.st_ino == l->inode)
        (void)unlink(p->unix_path);
    (void)close(l->fd);
}

/* ---- descriptors ---- */

/* A connection has its socket and the watcher's copy of it; the program has files of its own. */
enum { FDS_PER_CONNECTION = 2, FDS_OTHER = 128 };

void listen_fit_files(int32_t *connection_limit)
{
    struct rlimit r;
    rlim_t need = (rlim_t)(*connection_limit + CONNS_GOING_MAX) * FDS_PER_CONNECTION + FDS_OTHER;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY || r.rlim_cur >= need)
        return;
    r.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max >= need ? need : r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur >= need)
        return;
    (void)getrlimit(RLIMIT_NOFILE, &r);
    rlim_t fits = r.rlim_cur > FDS_OTHER ? (r.rlim_cur - FDS_OTHER) / FDS_PER_CONNECTION : 0;
    int32_t limit = fits > CONNS_GOING_MAX + 16 ? (int32_t)fits - CONNS_GOING_MAX : 16;
    LOG_WARN("http",
             "this process may open %llu files (ulimit -n): %d connections instead of %d are taken",
             (unsigned long long)r.rlim_cur, limit, *connection_limit);
    *connection_limit = limit;
}
