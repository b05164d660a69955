/*
 * tests/lib/http_client.c - see http_client.h.
 */
#include "lib/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int client_connect(uint16_t port, int rcvbuf)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval limit = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (rcvbuf)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    close(fd);
    return -1;
}

bool client_send(int fd, const void *p, size_t n)
{
    const char *at = p;
    while (n) {
        ssize_t w = send(fd, at, n, MSG_NOSIGNAL);
        if (w <= 0)
            return false;
        at += w;
        n -= (size_t)w;
    }
    return true;
}

bool client_read_until(int fd, struct buf *in, size_t from, const char *needle)
{
    char block[16384];
    for (;;) {
        if (needle && in->n > from && str_find(buf_str(in), str_from(needle), from) != (size_t)-1)
            return true;
        ssize_t n = recv(fd, block, sizeof block, 0);
        if (n <= 0)
            return false;
        buf_append(in, block, (size_t)n);
    }
}

void client_exchange(uint16_t port, const char *head, str body, struct buf *in)
{
    struct buf out;
    int fd = client_connect(port, 0);
    buf_init(in, (size_t)256 << 20);
    if (fd < 0)
        return;
    buf_init(&out, (size_t)256 << 20);
    buf_puts(&out, head);
    if (!strstr(head, "Host:"))
        buf_puts(&out, "Host: localhost\r\n");
    if (body.p)
        buf_printf(&out, "Content-Length: %zu\r\n", body.n);
    buf_puts(&out, "Connection: close\r\n\r\n");
    buf_puts_str(&out, body);
    (void)client_send(fd, out.p, out.n);
    (void)client_read_until(fd, in, 0, NULL);
    buf_deinit(&out);
    close(fd);
}

void client_chat(uint16_t port, const char *json, struct buf *in)
{
    client_exchange(port,
                    "POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json\r\n",
                    str_from(json), in);
}

int client_status(const struct buf *in)
{
    if (in->n < 12 || memcmp(in->p, "HTTP/1.", 7) != 0)
        return 0;
    return (in->p[9] - '0') * 100 + (in->p[10] - '0') * 10 + (in->p[11] - '0');
}

void client_body(const struct buf *in, struct buf *body)
{
    str all = buf_str(in);
    size_t end = str_find(all, STR("\r\n\r\n"), 0);
    buf_init(body, (size_t)256 << 20);
    if (end == (size_t)-1)
        return;
    size_t chunked = str_find(all, STR("Transfer-Encoding: chunked"), 0);
    size_t at = end + 4;
    if (chunked == (size_t)-1 || chunked > end) {
        buf_append(body, all.p + at, all.n - at);
        return;
    }
    for (;;) {
        size_t line = str_find(all, STR("\r\n"), at);
        if (line == (size_t)-1)
            return;
        size_t n = strtoul(all.p + at, NULL, 16);
        if (n == 0 || line + 2 + n > all.n)
            return;
        buf_append(body, all.p + line + 2, n);
        at = line + 2 + n + 2;
    }
}
