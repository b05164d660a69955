/*
 * A library to preload into the program under test. It writes a line to the file HUB_SHIM_LOG for
 * each connection over the internet's protocols and each name that is looked up, and with
 * HUB_SHIM_FULL_AFTER=N lets no more than N bytes be written with pwrite, as a full disk does.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int connect(int fd, const struct sockaddr *to, socklen_t n);
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out);
ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to,
               socklen_t to_n);
ssize_t pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at);

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void note(const char *what, const char *text)
{
    char line[300];
    const char *path = getenv("HUB_SHIM_LOG");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd < 0)
        return;
    int len = snprintf(line, sizeof line, "%s %s\n", what, text);
    if (write(fd, line, (size_t)len) != len)
        abort();
    close(fd);
}

static void note_address(const char *what, const struct sockaddr *to)
{
    char text[64] = "";
    if (to->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)to;
        inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    } else if (to->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)to;
        inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    } else {
        return;
    }
    note(what, text);
}

int connect(int fd, const struct sockaddr *to, socklen_t n)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = next("connect");
    note_address("connect", to);
    return real(fd, to, n);
}

ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to,
               socklen_t to_n)
{
    ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) =
        next("sendto");
    if (to)
        note_address("sendto", to);
    return real(fd, p, n, flags, to, to_n);
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        next("getaddrinfo");
    unsigned char address[16];
    /* Reading a number's text as an address asks nobody. */
    if (node && inet_pton(AF_INET, node, address) != 1 && inet_pton(AF_INET6, node, address) != 1)
        note("getaddrinfo", node);
    return real(node, service, hints, out);
}

static ssize_t limited(int fd, const void *p, size_t n, off64_t at)
{
    static size_t written;
    ssize_t (*real)(int, const void *, size_t, off64_t) = next("pwrite64");
    const char *limit = getenv("HUB_SHIM_FULL_AFTER");
    if (limit) {
        size_t max = (size_t)strtoull(limit, NULL, 10);
        if (written >= max) {
            errno = ENOSPC;
            return -1;
        }
        n = n < max - written ? n : max - written; /* the last write of a full disk is short */
    }
    ssize_t put = real(fd, p, n, at);
    written += put > 0 ? (size_t)put : 0;
    return put;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    return limited(fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
    return limited(fd, p, n, at);
}
