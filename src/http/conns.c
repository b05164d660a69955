/*
 * http/conns.c - see conns.h. Closing means shutting the socket down: the library sees the end and
 * closes the descriptor, after conns_close, so a descriptor in the list is always the right one.
 *
 * Whoever is told something first loses only our side of the connection: closing it while bytes of
 * the request are still on their way would make the system throw away what the client has not read
 * yet. It lingers, its bytes are received and thrown away, until the request or a short time ends.
 */
#include "http/conns.h"

#include "base/hash.h"
#include "base/mem.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

typedef enum conn_state {
    CONN_STATE_NEW,      /* nothing of a first request understood yet */
    CONN_STATE_IDLE,     /* answered; the next request may come */
    CONN_STATE_HEAD,     /* a request line was read */
    CONN_STATE_BODY,     /* a head was read */
    CONN_STATE_COMPLETE, /* ours to answer */
    CONN_STATE_GOING,    /* shut down */
} conn_state;

struct conn {
    struct conn *prev, *next;
    int fd;
    conn_state state;
    bool counted; /* among the open ones */
    bool lingers; /* state GOING: the client's side is still open */
    uint64_t address;
    /* State NEW, HEAD and BODY: of the request; IDLE: of the silence; GOING: of the end. */
    uint64_t since_ns;
    uint64_t body_bytes;
    uint64_t grace_ns;    /* for bytes that had come and were not read yet */
    struct conns_end end; /* state GOING */
};

enum { LINGERING_MAX = 64 };
#define LINGER_NS ((uint64_t)2000000000)

void conns_init(struct conns *c, const struct conns_limits *limits)
{
    memset(c, 0, sizeof *c);
    c->limits = *limits;
    (void)pthread_mutex_init(&c->lock, NULL);
}

void conns_deinit(struct conns *c)
{
    (void)pthread_mutex_destroy(&c->lock);
}

/* The first bytes that tell clients apart; 0 for loopback and for unix sockets. */
static size_t address_bytes(const struct sockaddr *from, unsigned char out[16])
{
    if (from && from->sa_family == AF_INET) {
        memcpy(out, (const char *)from + offsetof(struct sockaddr_in, sin_addr), 4);
        return out[0] == 127 ? 0 : 4;
    }
    if (from && from->sa_family == AF_INET6) {
        struct in6_addr a;
        memcpy(&a, (const char *)from + offsetof(struct sockaddr_in6, sin6_addr), sizeof a);
        memcpy(out, &a, sizeof a);
        if (IN6_IS_ADDR_LOOPBACK(&a))
            return 0;
        if (IN6_IS_ADDR_V4MAPPED(&a)) {
            memmove(out, out + 12, 4);
            return out[0] == 127 ? 0 : 4;
        }
        return 8; /* one household has all of a /64 */
    }
    return 0;
}

static uint64_t key_of(const unsigned char *bytes, size_t n)
{
    uint64_t h = n ? hash_xxh3_64(bytes, n, n) : 1;
    return h ? h : 1;
}

uint64_t conns_address_key(const struct sockaddr *from)
{
    unsigned char bytes[16];
    return key_of(bytes, address_bytes(from, bytes));
}

/* ---- closing; lock held ---- */

static void say(struct conns *c, struct conn *conn, const struct conns_reply *r)
{
    char body[512], reply[1024];
    const char *status = r->status;
    conn->end.code = r->code;
    if (!c->limits.can_speak)
        return;
    int n =
        r->body
            ? snprintf(body, sizeof body, "%s", r->body)
            : snprintf(body, sizeof body,
                       "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,"
                       "\"code\":\"%s\"}}",
                       r->message,
                       t9_status_openai_type(status[0] == '5' ? T9_STATUS_BUSY : T9_STATUS_INVALID),
                       r->code);
    if (n < 0 || (size_t)n >= sizeof body)
        return;
    n = snprintf(reply, sizeof reply,
                 "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s"
                 "Connection: close\r\n\r\n%s",
                 status, n, r->headers, body);
    /* Nobody waits for a client: what does not fit into the socket is not said. */
    if (send(conn->fd, reply, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) != n)
        return;
    conn->end.status = (unsigned)(status[0] - '0') * 100 + (unsigned)(status[1] - '0') * 10 +
                       (unsigned)(status[2] - '0');
    c->n_told[status[0] - '0']++;
}

static void shut(struct conns *c, struct conn *conn, uint64_t now_ns)
{
    if (conn->counted)
        c->n_open--;
    conn->counted = false;
    conn->state = CONN_STATE_GOING;
    conn->since_ns = now_ns;
    conn->lingers = conn->end.status && c->n_lingering < LINGERING_MAX;
    c->n_lingering += conn->lingers;
    (void)shutdown(conn->fd, conn->lingers ? SHUT_WR : SHUT_RDWR);
}

static void end_lingering(struct conns *c, struct conn *conn)
{
    c->n_lingering -= conn->lingers;
    conn->lingers = false;
}

static void unlink_conn(struct conns *c, struct conn *conn)
{
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        c->list = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
}

static bool unfinished(const struct conn *conn)
{
    return conn->state < CONN_STATE_COMPLETE;
}

static uint64_t deadline_ns(const struct conns *c, const struct conn *conn)
{
    const struct conns_limits *l = &c->limits;
    uint64_t end = conn->since_ns + l->request_ns + conn->grace_ns;
    if (conn->state == CONN_STATE_IDLE)
        return end + l->idle_ns;
    if (conn->state == CONN_STATE_BODY && l->body_bytes_per_s)
        end += (uint64_t)((double)conn->body_bytes / (double)l->body_bytes_per_s * 1e9);
    return end;
}

/* Whether bytes of it wait to be read. */
static bool has_unread(const struct conn *conn)
{
    int n = 0;
    return ioctl(conn->fd, FIONREAD, &n) == 0 && n > 0;
}

/* Bytes that have come and were not read make us the late one: it is given as much time again, a
 * part at a time. */
static bool is_late(const struct conns *c, struct conn *conn, uint64_t now_ns)
{
    if (deadline_ns(c, conn) > now_ns)
        return false;
    if (conn->grace_ns >= c->limits.request_ns || !has_unread(conn))
        return true;
    conn->grace_ns += c->limits.request_ns / 4 + 1;
    return deadline_ns(c, conn) <= now_ns;
}

static bool has_begun(const struct conn *conn)
{
    return unfinished(conn) &&
           (conn->state == CONN_STATE_HEAD || conn->state == CONN_STATE_BODY || has_unread(conn));
}

/* With 408 where a request has begun. */
static void give_up(struct conns *c, struct conn *conn, const char *message, uint64_t now_ns)
{
    struct conns_reply r = {"408 Request Timeout", "", "request_timeout", message, NULL};
    conn->end.code = r.code;
    if (has_begun(conn))
        say(c, conn, &r);
    shut(c, conn, now_ns);
}

/* The one that has waited longest with a request that is not complete. */
static bool make_room(struct conns *c, uint64_t now_ns)
{
    struct conn *oldest = NULL;
    for (struct conn *i = c->list; i; i = i->next)
        if (unfinished(i) && (!oldest || i->since_ns < oldest->since_ns))
            oldest = i;
    if (!oldest)
        return false;
    c->n_gave_way++;
    give_up(c, oldest, "all connections are in use, and this request was the slowest to arrive",
            now_ns);
    return true;
}

static bool has_room(struct conns *c, uint64_t address, uint64_t now_ns)
{
    int32_t n_same = 0;
    if (c->limits.per_address > 0 && address != key_of(NULL, 0))
        for (const struct conn *i = c->list; i; i = i->next)
            n_same += i->counted && i->address == address;
    if (c->limits.per_address > 0 && n_same >= c->limits.per_address)
        return false;
    return c->n_open < c->limits.total || make_room(c, now_ns);
}

/* ---- the life of a connection ---- */

struct conn *conns_open(struct conns *c, int fd, const struct sockaddr *from, uint64_t now_ns)
{
    struct conn *conn = mem_calloc(1, sizeof *conn);
    uint64_t address = conns_address_key(from);
    if (!conn) {
        (void)shutdown(fd, SHUT_RDWR);
        return NULL;
    }
    pthread_mutex_lock(&c->lock);
    bool room = has_room(c, address, now_ns);
    *conn = (struct conn){
        .next = c->list, .fd = fd, .counted = true, .address = address, .since_ns = now_ns};
    if (c->list)
        c->list->prev = conn;
    c->list = conn;
    c->n_open++;
    if (!room) {
        c->n_refused++;
        struct conns_reply r = {"503 Service Unavailable", "Retry-After: 5\r\n",
                                "too_many_connections",
                                "too many connections are open; try again later", NULL};
        say(c, conn, &r);
        shut(c, conn, now_ns);
    }
    pthread_mutex_unlock(&c->lock);
    return conn;
}

void conns_close(struct conns *c, struct conn *conn)
{
    if (!conn)
        return;
    pthread_mutex_lock(&c->lock);
    if (conn->counted)
        c->n_open--;
    end_lingering(c, conn);
    unlink_conn(c, conn);
    pthread_mutex_unlock(&c->lock);
    mem_free(conn);
}

void conns_head(struct conns *c, struct conn *conn, uint64_t now_ns)
{
    if (!conn)
        return;
    pthread_mutex_lock(&c->lock);
    if (conn->state == CONN_STATE_IDLE) {
        conn->since_ns = now_ns;
        conn->grace_ns = 0;
    }
    if (unfinished(conn))
        conn->state = CONN_STATE_HEAD;
    pthread_mutex_unlock(&c->lock);
}

void conns_body(struct conns *c, struct conn *conn, uint64_t n_bytes)
{
    if (!conn)
        return;
    pthread_mutex_lock(&c->lock);
    if (conn->state == CONN_STATE_HEAD) {
        conn->state = CONN_STATE_BODY;
        conn->body_bytes = 0;
    }
    conn->body_bytes += n_bytes;
    pthread_mutex_unlock(&c->lock);
}

bool conns_complete(struct conns *c, struct conn *conn)
{
    if (!conn)
        return true;
    pthread_mutex_lock(&c->lock);
    bool in_time = conn->state != CONN_STATE_GOING;
    if (in_time)
        conn->state = CONN_STATE_COMPLETE;
    pthread_mutex_unlock(&c->lock);
    return in_time;
}

bool conns_refuse(struct conns *c, struct conn *conn, const struct conns_reply *r, uint64_t now_ns)
{
    if (!conn)
        return false;
    pthread_mutex_lock(&c->lock);
    if (unfinished(conn)) {
        say(c, conn, r);
        shut(c, conn, now_ns);
    }
    bool lingers = conn->lingers;
    pthread_mutex_unlock(&c->lock);
    return lingers;
}

int32_t conns_refuse_begun(struct conns *c, const struct conns_reply *r, uint64_t now_ns)
{
    pthread_mutex_lock(&c->lock);
    for (struct conn *i = c->list; i; i = i->next) {
        if (!has_begun(i))
            continue;
        say(c, i, r);
        shut(c, i, now_ns);
    }
    int32_t n = c->n_lingering;
    pthread_mutex_unlock(&c->lock);
    return n;
}

bool conns_ended(struct conns *c, struct conn *conn, struct conns_end *out)
{
    memset(out, 0, sizeof *out);
    if (!conn)
        return false;
    pthread_mutex_lock(&c->lock);
    bool ended = conn->state == CONN_STATE_GOING;
    *out = conn->end;
    pthread_mutex_unlock(&c->lock);
    return ended;
}

void conns_idle(struct conns *c, struct conn *conn, uint64_t now_ns)
{
    if (!conn)
        return;
    pthread_mutex_lock(&c->lock);
    if (conn->state != CONN_STATE_GOING) {
        conn->state = CONN_STATE_IDLE;
        conn->since_ns = now_ns;
    }
    pthread_mutex_unlock(&c->lock);
}

int64_t conns_tick(struct conns *c, uint64_t now_ns)
{
    bool any = false;
    uint64_t next = now_ns + c->limits.request_ns / 4; /* a request may begin right now */
    pthread_mutex_lock(&c->lock);
    for (struct conn *i = c->list; i; i = i->next) {
        if (!unfinished(i) && !i->lingers)
            continue;
        if (i->lingers && i->since_ns + LINGER_NS <= now_ns) {
            end_lingering(c, i);
            (void)shutdown(i->fd, SHUT_RDWR);
            continue;
        }
        if (!i->lingers && is_late(c, i, now_ns)) {
            c->n_late++;
            give_up(c, i, "the request took too long to arrive", now_ns);
            if (!i->lingers)
                continue;
        }
        uint64_t end = i->lingers ? i->since_ns + LINGER_NS : deadline_ns(c, i);
        any = true;
        next = end < next ? end : next;
    }
    pthread_mutex_unlock(&c->lock);
    return any ? (int64_t)((next - now_ns) / 1000000) + 1 : -1;
}

struct conns_counts conns_counts(struct conns *c)
{
    pthread_mutex_lock(&c->lock);
    struct conns_counts n = {c->n_late, c->n_gave_way, c->n_refused, {0}};
    memcpy(n.told, c->n_told, sizeof n.told);
    pthread_mutex_unlock(&c->lock);
    return n;
}
