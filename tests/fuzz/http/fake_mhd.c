/* tests/fuzz/http/fake_mhd.c - see fake_mhd.h. */
#include "fake_mhd.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

struct MHD_Response {
    _Atomic int refs;
    char *bytes; /* of its own */
    size_t n;
    MHD_ContentReaderCallback read;
    MHD_ContentReaderFreeCallback end;
    void *ctx;
};

static void insist(bool holds)
{
    if (!holds)
        abort();
}

void fake_connection_init(struct MHD_Connection *c, int fd)
{
    c->fd = fd;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->resumed, NULL);
}

bool fake_connection_wait(struct MHD_Connection *c)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    int rc = 0;
    pthread_mutex_lock(&c->lock);
    while (c->suspended && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&c->resumed, &c->lock, &until);
    bool resumed = !c->suspended;
    pthread_mutex_unlock(&c->lock);
    return resumed;
}

bool fake_response_read(struct MHD_Connection *c, struct buf *out)
{
    struct MHD_Response *r = c->response;
    char block[4096];
    buf_append(out, r->bytes, r->n);
    while (r->read) {
        ssize_t n = r->read(r->ctx, out->n, block, sizeof block);
        if (n == MHD_CONTENT_READER_END_OF_STREAM || n == MHD_CONTENT_READER_END_WITH_ERROR)
            return n == MHD_CONTENT_READER_END_OF_STREAM;
        insist(n >= 0 && n <= (ssize_t)sizeof block);
        if (n == 0)
            insist(fake_connection_wait(c));
        buf_append(out, block, (size_t)n);
    }
    return true;
}

void fake_connection_deinit(struct MHD_Connection *c)
{
    if (c->response)
        MHD_destroy_response(c->response);
    (void)pthread_cond_destroy(&c->resumed);
    (void)pthread_mutex_destroy(&c->lock);
}

/* ---- the library's: connections ---- */

enum MHD_Result MHD_lookup_connection_value_n(struct MHD_Connection *c, enum MHD_ValueKind kind,
                                              const char *key, size_t n_key, const char **value,
                                              size_t *n_value)
{
    for (size_t i = 0; kind == MHD_HEADER_KIND && i < c->n_headers; i++) {
        const struct fake_header *h = &c->headers[i];
        if (strlen(h->name) != n_key || strncasecmp(h->name, key, n_key) != 0)
            continue;
        if (value)
            *value = h->value;
        if (n_value)
            *n_value = strlen(h->value);
        return MHD_YES;
    }
    return MHD_NO;
}

const char *MHD_lookup_connection_value(struct MHD_Connection *c, enum MHD_ValueKind kind,
                                        const char *key)
{
    const char *value = NULL;
    (void)MHD_lookup_connection_value_n(c, kind, key, strlen(key), &value, NULL);
    return value;
}

int MHD_get_connection_values(struct MHD_Connection *c, enum MHD_ValueKind kind,
                              MHD_KeyValueIterator each, void *ctx)
{
    int n = 0;
    for (size_t i = 0; kind == MHD_HEADER_KIND && i < c->n_headers; i++, n++)
        if (each && each(ctx, kind, c->headers[i].name, c->headers[i].value) != MHD_YES)
            break;
    return n;
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *c,
                                                        enum MHD_ConnectionInfoType what, ...)
{
    static _Thread_local union MHD_ConnectionInfo info;
    static struct sockaddr_in from = {.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    switch (what) {
    case MHD_CONNECTION_INFO_SOCKET_CONTEXT: info.socket_context = c->socket_context; break;
    case MHD_CONNECTION_INFO_CONNECTION_FD: info.connect_fd = c->fd; break;
    case MHD_CONNECTION_INFO_CLIENT_ADDRESS: info.client_addr = (struct sockaddr *)&from; break;
    default: return NULL;
    }
    return &info;
}

void MHD_suspend_connection(struct MHD_Connection *c)
{
    pthread_mutex_lock(&c->lock);
    insist(!c->suspended);
    c->suspended = true;
    pthread_mutex_unlock(&c->lock);
}

void MHD_resume_connection(struct MHD_Connection *c)
{
    pthread_mutex_lock(&c->lock);
    insist(c->suspended);
    c->suspended = false;
    pthread_cond_signal(&c->resumed);
    pthread_mutex_unlock(&c->lock);
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *c, unsigned status,
                                   struct MHD_Response *r)
{
    insist(!c->response && status >= 200 && status <= 599);
    atomic_fetch_add(&r->refs, 1);
    c->response = r;
    c->status = status;
    return MHD_YES;
}

/* ---- the library's: responses ---- */

static struct MHD_Response *response_new(void)
{
    struct MHD_Response *r = calloc(1, sizeof *r);
    if (r)
        atomic_store(&r->refs, 1);
    return r;
}

struct MHD_Response *MHD_create_response_from_buffer(size_t n, void *bytes,
                                                     enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *r = response_new();
    insist(mode != MHD_RESPMEM_MUST_FREE);
    if (!r || !(r->bytes = malloc(n + 1)))
        abort();
    if (n)
        memcpy(r->bytes, bytes, n);
    r->n = n;
    return r;
}

struct MHD_Response *MHD_create_response_from_callback(uint64_t n, size_t block,
                                                       MHD_ContentReaderCallback read, void *ctx,
                                                       MHD_ContentReaderFreeCallback end)
{
    struct MHD_Response *r = response_new();
    (void)n;
    (void)block;
    if (!r)
        abort();
    r->read = read;
    r->ctx = ctx;
    r->end = end;
    return r;
}

/* The library refuses such a line; ours must not try. */
enum MHD_Result MHD_add_response_header(struct MHD_Response *r, const char *name, const char *value)
{
    (void)r;
    insist(name[0] && value[0] && !strpbrk(name, "\r\n\t :") && !strpbrk(value, "\r\n\t"));
    return MHD_YES;
}

void MHD_destroy_response(struct MHD_Response *r)
{
    if (atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    if (r->end)
        r->end(r->ctx);
    free(r->bytes);
    free(r);
}

/* ---- the library's: the daemon ---- */

static int the_daemon; /* only its address counts */

struct MHD_Daemon *MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                    void *accept_ctx, MHD_AccessHandlerCallback handler,
                                    void *handler_ctx, ...)
{
    (void)flags, (void)port, (void)accept, (void)accept_ctx, (void)handler, (void)handler_ctx;
    return (struct MHD_Daemon *)(void *)&the_daemon;
}

MHD_socket MHD_quiesce_daemon(struct MHD_Daemon *d)
{
    (void)d;
    return -1;
}

void MHD_stop_daemon(struct MHD_Daemon *d)
{
    (void)d;
}

const union MHD_DaemonInfo *MHD_get_daemon_info(struct MHD_Daemon *d, enum MHD_DaemonInfoType what,
                                                ...)
{
    static union MHD_DaemonInfo none;
    (void)d, (void)what;
    return &none;
}
