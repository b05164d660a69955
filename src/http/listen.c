/*
 * http/listen.c - the socket that clients connect to.
 */
#include "http/internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
    return t9_fail(err, T9_STATUS_IO, "can't listen on port %u of %s (errno %d)", p->port, p->host,
                   error);
}

static int bind_on(const struct addrinfo *ai, bool and_listen)
{
    int one = 1;
    int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && (!and_listen || listen(fd, 512) == 0))
        return fd;
    int error = errno;
    (void)close(fd);
    errno = error;
    return -1;
}

uint16_t listen_port(int fd)
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

t9_status listen_bind(const struct http_params *p, bool and_listen, int *fd, struct t9_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char port[8];
    *fd = -1;
    (void)snprintf(port, sizeof port, "%u", p->port);
    int code = getaddrinfo(p->host, port, &hints, &list);
    if (code != 0 || !list)
        return t9_fail(err, T9_STATUS_IO, "%s is no address to listen on: %s", p->host,
                       gai_strerror(code));
    int error = 0;
    for (const struct addrinfo *ai = list; ai && *fd < 0; ai = ai->ai_next) {
        *fd = bind_on(ai, and_listen);
        error = *fd < 0 ? errno : 0;
    }
    freeaddrinfo(list);
    return *fd < 0 ? cannot_bind(p, error, err) : T9_STATUS_OK;
}
