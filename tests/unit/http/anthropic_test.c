/*
 * Anthropic's protocol over real sockets: what its clients see of heads, errors of the transport,
 * lines that keep a stream alive, and models.
 */
#include "lib/t9test.h"

#include "lib/http_client.h"
#include "lib/http_rig.h"
#include "lib/scripted_engine.h"

#include "base/clock.h"

#include <sys/socket.h>
#include <unistd.h>

#define HELLO   "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define POST    "POST /v1/messages?beta=true HTTP/1.1\r\nContent-Type: application/json\r\n"
#define VERSION "anthropic-version: 2023-06-01\r\nanthropic-beta: one-2026-01-01, two\r\n"

static void post(struct http_rig *r, const char *head, const char *json, struct buf *in)
{
    client_exchange(r->port, head, str_from(json), in);
}

static void expect(struct http_rig *r, const char *head, const char *json, int status,
                   const char *text)
{
    struct buf in;
    post(r, head, json, &in);
    if (client_status(&in) != status || !client_has(&in, text))
        fail_msg("%s: %.*s", head, (int)in.n, in.p);
    buf_deinit(&in);
}

static void test_head(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    http_rig_expect(r.port, "HEAD / HTTP/1.1\r\n", 200, NULL);
    http_rig_expect(r.port, "HEAD /?beta=true HTTP/1.1\r\n", 200, NULL);
    expect(&r, POST VERSION, HELLO "}", 200, "\r\nRequest-Id: req-");
    expect(&r, POST "X-Request-Id: mine\r\n", HELLO "}", 200, "\r\nRequest-Id: mine\r\n");
    expect(&r, POST, HELLO ",\"stream\":true}", 200, "\nevent: message_stop\n");
    expect(&r, "POST /v1/messages/count_tokens HTTP/1.1\r\n", HELLO "}", 200, "{\"input_tokens\":");
    http_rig_stop(&r);
}

static void test_models(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\n", 200, "{\"object\":\"list\",");
    http_rig_expect(r.port, "GET /v1/models?limit=20 HTTP/1.1\r\n" VERSION, 200,
                    "{\"data\":[{\"type\":\"model\",\"id\":\"scripted\",\"display_name\":"
                    "\"scripted\",\"created_at\":\"20");
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\n" VERSION, 200,
                    "\"has_more\":false,\"first_id\":\"scripted\",\"last_id\":");
    http_rig_expect(r.port, "GET /v1/models/scripted HTTP/1.1\r\n" VERSION, 200,
                    "\r\n\r\n{\"type\":\"model\",");
    http_rig_stop(&r);
}

/* Every error that such a client can meet has its form, wherever it comes from. */
static void test_errors(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    expect(&r, POST "X-Request-Id: mine\r\n", "{", 400,
           "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"the "
           "body is not acceptable JSON");
    expect(&r, POST "X-Request-Id: mine\r\n", "{", 400, "},\"request_id\":\"mine\"}");
    expect(&r, POST, HELLO ",\"model\":\"other\"}", 404, "\"type\":\"not_found_error\"");
    expect(&r, POST "Host: example.com\r\n", HELLO "}", 403, "\"type\":\"permission_error\"");
    expect(&r, POST "Origin: http://example.com\r\n", HELLO "}", 403,
           "\"type\":\"permission_error\"");
    http_rig_expect(r.port, "GET /v1/messages HTTP/1.1\r\n", 405,
                    "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"");
    http_rig_expect(r.port, "GET /v1/files HTTP/1.1\r\n" VERSION, 404,
                    "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\"");
    http_rig_expect(r.port, "GET /v1/files HTTP/1.1\r\n", 404, "{\"error\":{\"message\":");
    http_rig_expect(r.port, "GET /v1/models/other HTTP/1.1\r\n" VERSION, 404,
                    "\"type\":\"not_found_error\"");
    http_rig_stop(&r);
}

static void test_keys_and_limits(void **state)
{
    static const char *const keys[] = {"secret"};
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.api_keys = keys;
    p.n_api_keys = 1;
    p.requests_per_minute = 2;
    http_rig_start(&r, &script, &p);
    expect(&r, POST, HELLO "}", 401, "\"type\":\"authentication_error\"");
    expect(&r, POST "x-api-key: secret\r\n", HELLO "}", 200, "\"type\":\"message\"");
    expect(&r, POST "Authorization: Bearer secret\r\n", HELLO "}", 200, "\"type\":\"message\"");
    expect(&r, POST "x-api-key: secret\r\n", HELLO "}", 429, "\"type\":\"rate_limit_error\"");
    http_rig_stop(&r);
}

/* Announced, chunked, and chunked without an end: all are told in the same form. */
static void test_large_bodies(void **state)
{
    static const char *const heads[] = {"Content-Length: 1001\r\n\r\n",
                                        "Transfer-Encoding: chunked\r\n\r\n"};
    static const char block[32768];
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    char head[256];
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.body_bytes_max = 1000;
    http_rig_start(&r, &script, &p);
    for (int i = 0; i < 3; i++) {
        struct buf in;
        int fd = client_connect(r.port, 0);
        snprintf(head, sizeof head, POST "Host: localhost\r\nX-Request-Id: mine\r\n%s",
                 heads[i > 0]);
        client_send(fd, head, strlen(head));
        for (int k = 0; k < (i == 0 ? 0 : i == 1 ? 1 : 128); k++) {
            assert_true(client_send(fd, "8000\r\n", 6) && client_send(fd, block, sizeof block) &&
                        client_send(fd, "\r\n", 2));
        }
        if (i == 1)
            client_send(fd, "0\r\n\r\n", 5);
        buf_init(&in, 1 << 20);
        assert_true(client_read_until(fd, &in, 0, "\"request_id\":\"mine\"}"));
        assert_int_equal(client_status(&in), 413);
        assert_true(
            client_has(&in, "{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\""));
        close(fd);
        buf_deinit(&in);
    }
    http_rig_stop(&r);
}

static void test_busy(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in;
    (void)state;
    engine_script_init(&script);
    script.queue_cap = 1;
    script.prefill_ms = 60000;
    http_rig_start(&r, &script, NULL);
    int fd = client_connect(r.port, 0);
    const char *json = HELLO "}";
    char head[256];
    snprintf(head, sizeof head, POST "Host: localhost\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(json), json);
    client_send(fd, head, strlen(head));
    assert_true(http_rig_wait_live(&r, 1, 5000));
    post(&r, POST, HELLO ",\"stream\":true}", &in);
    assert_int_equal(client_status(&in), 503);
    assert_true(client_has(&in, "\"type\":\"overloaded_error\"") &&
                client_has(&in, "Retry-After: "));
    close(fd);
    buf_deinit(&in);
    http_rig_stop(&r);
}

/* Comments before the message has begun, which waits for the engine; pings from then on. */
static void test_keepalive(void **state)
{
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in, body;
    (void)state;
    engine_script_init(&script);
    script.queue_ms = 400;
    script.prefill_ms = 400;
    http_params_init(&p);
    p.keepalive_ms = 50;
    http_rig_start(&r, &script, &p);
    post(&r, POST, HELLO ",\"stream\":true}", &in);
    client_body(&in, &body);
    str s = buf_str(&body);
    size_t start = str_find(s, STR("event: message_start\n"), 0), n_pings = 0, last = 0;
    assert_true(start != (size_t)-1);
    for (size_t at = 0; (at = str_find(s, STR(": keep-alive\n\n"), at)) != (size_t)-1; at++)
        last = at + 1;
    assert_true(last > 0 && last < start);
    for (size_t at = start; (at = str_find(s, STR("event: ping\n"), at)) != (size_t)-1; at++)
        n_pings++;
    assert_true(n_pings >= 3 && n_pings <= 10);
    buf_deinit(&in);
    buf_deinit(&body);
    http_rig_stop(&r);
}

/* The engine fails after the first byte: an event tells, in the stream's own form. */
static void test_error_event(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    script.fail_at = 3;
    script.gap_ms = 5;
    http_rig_start(&r, &script, NULL);
    expect(&r, POST "X-Request-Id: mine\r\n", HELLO ",\"stream\":true}", 200,
           "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":"
           "\"the script says so\"},\"request_id\":\"mine\"}\n\n");
    http_rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head),         cmocka_unit_test(test_models),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_keys_and_limits),
        cmocka_unit_test(test_large_bodies), cmocka_unit_test(test_busy),
        cmocka_unit_test(test_keepalive),    cmocka_unit_test(test_error_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
