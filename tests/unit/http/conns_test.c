/*
 * Tests of http/conns.c: deadlines and places by a clock of our own over socket pairs, then slow
 * requests and too many connections over the real server.
 */
#include "http/conns.h"

#include "lib/http_rig.h"
#include "lib/t9test.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#define SECOND ((uint64_t)1000000000)

static const struct conns_limits LIMITS = {.total = 4,
                                           .per_address = 2,
                                           .request_ns = 10 * SECOND,
                                           .idle_ns = 20 * SECOND,
                                           .body_bytes_per_s = 1000,
                                           .can_speak = true};

struct peer {
    int ours, theirs;
    struct conn *conn;
};

static void open_peer(struct conns *c, struct peer *p, const char *from, uint64_t now)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    int fds[2];
    assert_int_equal(inet_pton(AF_INET, from, &a.sin_addr), 1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    p->ours = fds[0];
    p->theirs = fds[1];
    p->conn = conns_open(c, p->ours, (const struct sockaddr *)&a, now);
    assert_non_null(p->conn);
}

static void close_peer(struct conns *c, struct peer *p)
{
    conns_close(c, p->conn);
    close(p->ours);
    close(p->theirs);
}

/* What a peer was told: 0 nothing and still open, 1 closed without a word, else the status. */
static int told(const struct peer *p)
{
    char text[1024] = "";
    struct pollfd poll_fd = {.fd = p->theirs, .events = POLLIN};
    if (poll(&poll_fd, 1, 0) == 0)
        return 0;
    ssize_t n = read(p->theirs, text, sizeof text - 1);
    return n < 12 ? 1
                  : (text[9] - '0') * 100 + (text[10] - '0') * 10 +
                        (text[11] - '0'); /* HTTP/1.1 ddd */
}

static void test_deadlines(void **state)
{
    struct conns c;
    struct peer a, b, d;
    uint64_t now = 100 * SECOND;
    (void)state;
    conns_init(&c, &LIMITS);
    assert_int_equal(conns_tick(&c, now), -1);
    open_peer(&c, &a, "127.0.0.1", now);
    open_peer(&c, &b, "127.0.0.1", now);
    open_peer(&c, &d, "127.0.0.1", now);
    assert_in_range(conns_tick(&c, now), 1, 2501);
    conns_head(&c, a.conn, now + 5 * SECOND); /* the first byte came with the connection */
    conns_head(&c, b.conn, now + 5 * SECOND);
    conns_body(&c, b.conn, 0);
    conns_body(&c, b.conn, 5000); /* 5 s more at 1000 bytes a second */
    (void)conns_tick(&c, now + 9 * SECOND);
    assert_true(told(&a) == 0 && told(&b) == 0 && told(&d) == 0);
    (void)conns_tick(&c, now + 11 * SECOND);
    assert_int_equal(told(&a), 408);
    assert_int_equal(told(&d), 1); /* it never said a thing */
    assert_int_equal(told(&b), 0);
    assert_false(conns_complete(&c, a.conn));
    assert_true(conns_complete(&c, b.conn));
    assert_int_equal(conns_tick(&c, now + 1000 * SECOND), -1); /* answers may take long */
    assert_int_equal(told(&b), 0);
    conns_idle(&c, b.conn, now + 1000 * SECOND);
    (void)conns_tick(&c, now + 1029 * SECOND);
    assert_int_equal(told(&b), 0);
    conns_head(&c, b.conn, now + 1029 * SECOND); /* a second request has its own time */
    (void)conns_tick(&c, now + 1038 * SECOND);
    assert_int_equal(told(&b), 0);
    (void)conns_tick(&c, now + 1040 * SECOND);
    assert_int_equal(told(&b), 408);
    assert_int_equal(conns_counts(&c).n_late, 3);
    close_peer(&c, &a);
    close_peer(&c, &b);
    close_peer(&c, &d);
    assert_int_equal(c.n_open, 0);
    assert_null(c.list);
    conns_deinit(&c);
}

/* Bytes that we have not read yet are not held against the client; not for ever. */
static void test_unread(void **state)
{
    struct conns c;
    struct peer a;
    uint64_t now = 100 * SECOND;
    char byte;
    (void)state;
    conns_init(&c, &LIMITS);
    open_peer(&c, &a, "127.0.0.1", now);
    assert_int_equal(write(a.theirs, "G", 1), 1);
    (void)conns_tick(&c, now + 11 * SECOND);
    assert_int_equal(told(&a), 0);
    assert_int_equal(read(a.ours, &byte, 1), 1);
    conns_head(&c, a.conn, now + 12 * SECOND);
    assert_true(conns_complete(&c, a.conn));
    conns_idle(&c, a.conn, now + 12 * SECOND);
    conns_head(&c, a.conn, now + 13 * SECOND); /* the next request has a time of its own */
    assert_int_equal(write(a.theirs, "G", 1), 1);
    (void)conns_tick(&c, now + 24 * SECOND);
    assert_int_equal(told(&a), 0);
    for (uint64_t s = 24; s < 45; s++)
        (void)conns_tick(&c, now + s * SECOND);
    assert_int_equal(told(&a), 408);
    close_peer(&c, &a);
    conns_deinit(&c);
}

/* Who was told something can still send for a moment: a reset would take the words away. */
static void test_lingers(void **state)
{
    struct conns c;
    struct peer a, b;
    struct conns_end end;
    uint64_t now = 100 * SECOND;
    (void)state;
    conns_init(&c, &LIMITS);
    open_peer(&c, &a, "127.0.0.1", now);
    open_peer(&c, &b, "127.0.0.1", now);
    conns_head(&c, a.conn, now);
    assert_false(conns_ended(&c, a.conn, &end));
    assert_in_range(conns_tick(&c, now + 11 * SECOND), 1, 2001);
    assert_true(conns_ended(&c, a.conn, &end));
    assert_true(end.status == 408 && strcmp(end.code, "request_timeout") == 0);
    assert_true(conns_ended(&c, b.conn, &end) && end.status == 0);
    assert_int_equal(c.n_open, 0);
    assert_int_equal(conns_counts(&c).told[4], 1);
    assert_int_equal(told(&a), 408);
    assert_int_equal(send(a.theirs, "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(send(b.theirs, "x", 1, MSG_NOSIGNAL), -1); /* nothing was said: it is gone */
    (void)conns_tick(&c, now + 14 * SECOND);
    assert_int_equal(send(a.theirs, "x", 1, MSG_NOSIGNAL), -1);
    assert_int_equal(conns_tick(&c, now + 14 * SECOND), -1);
    assert_int_equal(c.n_lingering, 0);
    close_peer(&c, &a);
    close_peer(&c, &b);
    conns_deinit(&c);
}

static void test_places(void **state)
{
    struct conns c;
    struct peer p[6], one[3];
    uint64_t now = 100 * SECOND;
    (void)state;
    conns_init(&c, &LIMITS);
    for (int i = 0; i < 4; i++)
        open_peer(&c, &p[i], "127.0.0.1", now + (uint64_t)i);
    assert_true(conns_complete(&c, p[0].conn)); /* it waits for an answer */
    conns_head(&c, p[1].conn, now);
    open_peer(&c, &p[4], "127.0.0.1", now + 10);
    assert_int_equal(told(&p[0]), 0);
    assert_int_equal(told(&p[1]), 408); /* the oldest without a whole request gives way */
    assert_int_equal(told(&p[2]), 0);
    for (int i = 2; i < 5; i++)
        assert_true(conns_complete(&c, p[i].conn));
    open_peer(&c, &p[5], "127.0.0.1", now + 20); /* nobody gives way */
    assert_int_equal(told(&p[5]), 503);
    assert_false(conns_complete(&c, p[5].conn));
    assert_int_equal(conns_counts(&c).n_gave_way, 1);
    assert_int_equal(conns_counts(&c).n_refused, 1);
    for (int i = 0; i < 6; i++)
        close_peer(&c, &p[i]);
    /* Of one address beyond loopback, two. */
    for (int i = 0; i < 3; i++)
        open_peer(&c, &one[i], "192.0.2.1", now);
    assert_int_equal(told(&one[1]), 0);
    assert_int_equal(told(&one[2]), 503);
    close_peer(&c, &one[0]);
    open_peer(&c, &p[0], "192.0.2.1", now);
    assert_int_equal(told(&p[0]), 0);
    close_peer(&c, &p[0]);
    close_peer(&c, &one[1]);
    close_peer(&c, &one[2]);
    conns_deinit(&c);
}

static void test_address_key(void **state)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6}, mapped = {.sin6_family = AF_INET6};
    (void)state;
    inet_pton(AF_INET, "192.0.2.1", &v4.sin_addr);
    inet_pton(AF_INET6, "::ffff:192.0.2.1", &mapped.sin6_addr);
    uint64_t key = conns_address_key((const struct sockaddr *)&v4);
    assert_true(key == conns_address_key((const struct sockaddr *)&mapped));
    inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr);
    uint64_t one = conns_address_key((const struct sockaddr *)&v6);
    inet_pton(AF_INET6, "2001:db8::ffff:2", &v6.sin6_addr);
    assert_true(one == conns_address_key((const struct sockaddr *)&v6));
    inet_pton(AF_INET6, "2001:db8:0:1::1", &v6.sin6_addr);
    assert_true(one != conns_address_key((const struct sockaddr *)&v6));
    assert_true(conns_address_key(NULL) != 0);
}

/* ---- over the server ---- */

/* Half a request of each kind; whoever is slow gets 408 or the end, and others are served. */
static void test_slow_requests(void **state)
{
    static const char *const halves[] = {
        "", "GET /hea", "GET /health HTTP/1.1\r\nHost: local",
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{",
        "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHo"};
    enum { N = sizeof halves / sizeof halves[0] };
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    int fds[N];
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.request_timeout_ms = 300;
    http_rig_start(&r, &script, &p);
    for (int i = 0; i < N; i++) {
        fds[i] = client_connect(r.port, 0);
        assert_true(client_send(fds[i], halves[i], strlen(halves[i])));
    }
    uint64_t begin = clock_now_ns();
    for (int i = 0; i < N; i++) {
        struct buf in;
        buf_init(&in, 1 << 20);
        (void)client_read_until(fds[i], &in, 0, NULL);
        if (i == 2 || i == 3)
            assert_int_equal(client_status(&in), 408);
        if (i == 4)
            assert_true(client_has(&in, "408 Request Timeout"));
        buf_deinit(&in);
        close(fds[i]);
    }
    assert_in_range((clock_now_ns() - begin) / 1000000, 100, 8000);
    http_rig_expect(r.port, "GET /metrics HTTP/1.1\r\n", 200, "tempo9_http_late_total 5");
    /* They were answered, and did not leave. */
    http_rig_expect(r.port, "GET /metrics HTTP/1.1\r\n", 200,
                    "tempo9_http_requests_total{status=\"4xx\"} 3");
    http_rig_expect(r.port, "GET /metrics HTTP/1.1\r\n", 200, "tempo9_http_hangups_total 0");
    http_rig_stop(&r);
}

/* All places held by requests that never end: the next client is served at once. */
static void test_no_place_left(void **state)
{
    enum { N = 40 };
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    int fds[N];
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.connection_limit = 16;
    http_rig_start(&r, &script, &p);
    for (int i = 0; i < N; i++) {
        fds[i] = client_connect(r.port, 0);
        assert_true(fds[i] >= 0);
        (void)client_send(fds[i], "GET / HTTP/1.1\r\nX: ", 19);
    }
    uint64_t begin = clock_now_ns();
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\n", 200, "ok");
    assert_true(clock_now_ns() - begin < 5 * SECOND);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    http_rig_stop(&r);
}

/* Every place taken by a client that waits for its answer: the next one is told so. */
static void test_all_busy(void **state)
{
    static const char chat[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
    enum { N = 4 };
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in;
    char head[256];
    int fds[N];
    (void)state;
    engine_script_init(&script);
    script.prefill_ms = 60000;
    http_params_init(&p);
    p.connection_limit = N;
    http_rig_start(&r, &script, &p);
    snprintf(
        head, sizeof head,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
        strlen(chat), chat);
    for (int i = 0; i < N; i++) {
        fds[i] = client_connect(r.port, 0);
        assert_true(client_send(fds[i], head, strlen(head)));
    }
    assert_true(http_rig_wait_live(&r, N, 10000));
    int fd = client_connect(r.port, 0);
    buf_init(&in, 1 << 20);
    (void)client_read_until(fd, &in, 0, NULL);
    assert_int_equal(client_status(&in), 503);
    assert_true(client_has(&in, "Retry-After") && client_has(&in, "too_many_connections"));
    buf_deinit(&in);
    close(fd);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    assert_true(http_rig_wait_live(&r, 0, 10000));
    http_rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deadlines),     cmocka_unit_test(test_places),
        cmocka_unit_test(test_unread),        cmocka_unit_test(test_lingers),
        cmocka_unit_test(test_address_key),   cmocka_unit_test(test_slow_requests),
        cmocka_unit_test(test_no_place_left), cmocka_unit_test(test_all_busy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
