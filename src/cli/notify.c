/*
 * cli/notify.c - see notify.h.
 */
#include "cli/notify.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool notify_send(const char *socket_path, const char *lines)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = socket_path ? strlen(socket_path) : 0;
    if (n < 2 || n >= sizeof a.sun_path || (socket_path[0] != '/' && socket_path[0] != '@'))
        return false;
    memcpy(a.sun_path, socket_path, n);
    if (a.sun_path[0] == '@')
        a.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    socklen_t a_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    ssize_t sent = sendto(fd, lines, strlen(lines), MSG_NOSIGNAL | MSG_DONTWAIT,
                          (const struct sockaddr *)&a, a_bytes);
    (void)close(fd);
    return sent == (ssize_t)strlen(lines);
}
