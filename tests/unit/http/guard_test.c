/* Tests of http/guard.c, http/auth.c and the heads that are refused, over the real server. */
#include "lib/http_rig.h"
#include "lib/t9test.h"

#define CHAT "POST /v1/chat/completions HTTP/1.1\r\n"

/* Bytes as they are, and the first status that comes back. */
static void raw_bytes(uint16_t port, str bytes, int status, const char *text)
{
    struct buf in;
    int fd = client_connect(port, 0);
    buf_init(&in, 1 << 20);
    (void)client_send(fd, bytes.p, bytes.n);
    (void)client_read_until(fd, &in, 0, NULL);
    if (client_status(&in) != status || (text && !client_has(&in, text)))
        fail_msg(STR_FMT " gave %.*s", STR_ARG(bytes), (int)in.n, in.p);
    buf_deinit(&in);
    close(fd);
}

static void raw(uint16_t port, const char *bytes, int status, const char *text)
{
    raw_bytes(port, str_from(bytes), status, text);
}

static void test_heads(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
#define CLOSE "Connection: close\r\n\r\n"
    raw(r.port, "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n" CLOSE, 400,
        "2 Host headers");
    raw(r.port, "GET /health HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n" CLOSE, 400,
        "invalid_host");
    raw(r.port, "GET /health HTTP/1.1\r\nHost: a b\r\n" CLOSE, 400, "invalid_host");
    raw(r.port, "GET /health HTTP/1.1\r\nHost: user@localhost\r\n" CLOSE, 400, "invalid_host");
    raw(r.port, "GET /health HTTP/1.1\r\nHost: localhost:99999\r\n" CLOSE, 400, "invalid_host");
    raw(r.port, "GET /health HTTP/1.1\r\nHost: localhost/x\r\n" CLOSE, 400, "invalid_host");
    raw(r.port, CHAT "Host: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n" CLOSE "{}",
        400, "invalid_length");
    raw(r.port, CHAT "Host: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n" CLOSE "{}",
        400, "invalid_length");
    raw(r.port,
        CHAT "Host: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n" CLOSE
             "0\r\n\r\n",
        400, "invalid_length");
    raw(r.port, CHAT "Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n" CLOSE "0\r\n\r\n",
        400, "Transfer-Encoding");
    raw(r.port,
        "POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n" CLOSE "0\r\n\r\n",
        400, "HTTP/1.0 has no");
    raw(r.port, CHAT "Host: localhost\r\nContent-Length: x\r\n" CLOSE, 400, NULL);
    raw(r.port, CHAT "Host: localhost\r\nContent-Length: -1\r\n" CLOSE, 400, NULL);
    raw(r.port, "GET /health HTTP/1.1\r\n" CLOSE, 400, "no Host header");
    raw(r.port, "GET /health HTTP/1.1\r\nHost : localhost\r\n" CLOSE, 400, "invalid_header");
    raw(r.port, "GET /health HTTP/1.1\r\n: x\r\nHost: localhost\r\n" CLOSE, 400, "invalid_header");
    raw(r.port, CHAT "Host: localhost\r\nContent-Length : 2\r\n" CLOSE "{}", 400, "invalid_header");
    raw(r.port, "GET /health x HTTP/1.1\r\nHost: localhost\r\n" CLOSE, 400, "invalid_request_line");
    raw(r.port, "GET /health HTTP/1.0\r\n" CLOSE, 200, "ok");
    raw(r.port, "GET /health%20x HTTP/1.1\r\nHost: localhost\r\n" CLOSE, 404, "unknown_path");
    raw(r.port, "GET /%00x HTTP/1.1\r\nHost: localhost\r\n" CLOSE, 404, "unknown_path");
    raw(r.port, "GET /health%00 HTTP/1.1\r\nHost: localhost\r\n" CLOSE, 404, "unknown_path");
    raw(r.port, "GET /%68ealth HTTP/1.1\r\nHost: localhost\r\n" CLOSE, 200, "ok");
    raw(r.port, "GET /health%zz HTTP/1.1\r\nHost: localhost\r\n" CLOSE, 404, NULL);
    raw(r.port, "GET /%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n" CLOSE, 404, NULL);
    raw(r.port, "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n" CLOSE, 404, NULL);
    http_rig_stop(&r);
}

/* Values that a second reader could take for others. */
static void test_values(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
#define HEALTH "GET /health HTTP/1.1\r\nHost: localhost\r\n"
    raw_bytes(r.port, STR(HEALTH "X-A: a\0b\r\nX-B: c\r\n" CLOSE), 400, "X-A has a control");
    raw_bytes(r.port, STR(HEALTH "X-A: a\0\r\nX-B: c\r\n" CLOSE), 400, "\"param\":\"X-A\"");
    raw_bytes(r.port, STR(HEALTH "Connection: close\r\nX-A: a\0b\r\n\r\n"), 400, "invalid_header");
    raw_bytes(r.port, STR(HEALTH "Connection: close\r\nX-A: a\0\0b\r\n\r\n"), 400, "X-A");
    raw_bytes(r.port, STR(HEALTH "Connection: close\r\nX-A: a\0 \r\n\r\n"), 400, "X-A");
    raw_bytes(r.port, STR(HEALTH "Connection: close\r\nX-A: a\r\n: b\r\n\r\n"), 400, NULL);
    raw_bytes(r.port, STR("GET /health\0x HTTP/1.1\r\nHost: localhost\r\n" CLOSE), 400, "a NUL");
    raw_bytes(r.port, STR("GET /health HTTP/1.1\nHost: localhost\nConnection: close\n\n"), 200,
              NULL);
    raw(r.port, HEALTH "X-A: a\x01z\r\n" CLOSE, 400, "X-A has a control character");
    raw(r.port, HEALTH "X-A: a\x7f\r\n" CLOSE, 400, "invalid_header");
    raw(r.port, HEALTH "X-A: a\rX-B: c\r\n" CLOSE, 400, "invalid_header");
    raw(r.port, HEALTH "X-A: \t a\tb \xC3\xA9 \t\r\n" CLOSE, 200, NULL);
    raw(r.port, HEALTH "X-A:\r\nX-B: \r\n" CLOSE, 200, NULL);
    /* The first would be a second Host to the library, and "Hos" to others. */
    raw(r.port, HEALTH "Hos: a\r\n t\r\n" CLOSE, 400, "begins with a blank");
    raw(r.port, HEALTH "X-A: a\r\n\tb\r\n" CLOSE, 400, "begins with a blank");
    static const char *const once[] = {"Content-Type",    "Origin",
                                       "authorization",   "X-API-Key",
                                       "X-Request-Id",    "X-Tempo9-Priority",
                                       "X-Tempo9-Client", "X-Tempo9-Queue-Timeout-Ms"};
    for (size_t i = 0; i < T9_COUNT(once); i++) {
        char head[256];
        (void)snprintf(head, sizeof head, HEALTH "%s: 1\r\nAccept: */*\r\n%s: 1\r\n" CLOSE, once[i],
                       once[i]);
        raw(r.port, head, 400, "2 ");
        raw(r.port, head, 400, "\"code\":\"invalid_header\"");
    }
    raw(r.port, HEALTH "Accept: a\r\nAccept: b\r\nX-A: 1\r\nX-A: 2\r\n" CLOSE, 200, NULL);
    http_rig_stop(&r);
}

/* The library has memory for some two hundred parameters, and no answer to more. */
static void test_long_lines(void **state)
{
    static const struct {
        const char *path, *piece;
        size_t n;
        int status;
        const char *text;
    } cases[] = {
        {"/health?a", "&b=1", 63, 200, "ok"},
        {"/health?a", "&b=1", 64, 414, "\"code\":\"uri_too_long\""},
        {"/health?a", "&b=1", 300, 414, "more than 64 parameters"},
        {"/health?", "&", 300, 414, "uri_too_long"},
        {"/health?", "&", 8000, 414, "uri_too_long"},
        {"/v1/messages?", "&", 300, 414, "invalid_request_error"},
        {"/health?", "&", 13000, 414, "uri_too_long"},
        {"/health x?", "&", 300, 414, "uri_too_long"},
        {"/health&&?a", "?&b", 70, 414, "uri_too_long"},
        {"/health?", "a", 8192 - 8, 200, "ok"},
        {"/health?", "a", 8193 - 8, 414, "more than 8192 bytes"},
        {"/", "&", 300, 404, "unknown_path"},
    };
    struct engine_script script;
    struct http_rig r;
    struct buf line;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        buf_init(&line, 1 << 16);
        buf_printf(&line, "GET %s", cases[i].path);
        for (size_t k = 0; k < cases[i].n; k++)
            buf_puts(&line, cases[i].piece);
        buf_puts(&line, " HTTP/1.1\r\nHost: localhost\r\n" CLOSE);
        raw_bytes(r.port, buf_str(&line), cases[i].status, cases[i].text);
        buf_deinit(&line);
    }
    http_rig_stop(&r);
}

/* What a route does not read may stand there twice. */
static void test_queries(void **state)
{
#define KEPT(rest) "GET /v1/responses/resp_x" rest " HTTP/1.1\r\nHost: localhost\r\n" CLOSE
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    raw(r.port, KEPT("?include[]=x&include[]=y&a&a"), 404, "response_not_found");
    raw(r.port, KEPT("/input_items?include[]=x&include[]=y"), 404, "response_not_found");
    raw(r.port, KEPT("/input_items?limit=5&order=asc"), 404, "response_not_found");
    raw(r.port, KEPT("/input_items?limit=5&limit=5"), 400, "limit stands twice");
    http_rig_stop(&r);
}

static void test_expectations(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    raw(r.port, HEALTH "Expect: foo\r\n" CLOSE, 417, "expectation_failed");
    raw(r.port, HEALTH "Expect: 100-continue, foo\r\n" CLOSE, 417, NULL);
    raw(r.port, HEALTH "Expect:\r\n" CLOSE, 417, NULL);
    raw(r.port, HEALTH "Expect: 100-continue\r\nExpect: foo\r\n" CLOSE, 417, NULL);
    raw(r.port, CHAT "Host: localhost\r\nExpect: foo\r\nContent-Length: 9\r\n" CLOSE, 417, NULL);
    raw(r.port, HEALTH "Expect: 100-Continue \r\n" CLOSE, 200, NULL);
    raw(r.port, CHAT "Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n" CLOSE "{}",
        100, NULL);
    http_rig_stop(&r);
}

/* Blanks around a value are none of its bytes. */
static void test_blanks(void **state)
{
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.cors_origins = (const char *const[]){"https://app.example"};
    p.n_cors_origins = 1;
    http_rig_start(&r, &script, &p);
    raw(r.port, "GET /health HTTP/1.1\r\nHost:\t localhost \t \r\n" CLOSE, 200, NULL);
    raw(r.port, HEALTH "X-Request-Id: abc \r\n" CLOSE, 200, "X-Request-Id: abc\r\n");
    raw(r.port, HEALTH "Origin: https://app.example \r\n" CLOSE, 200,
        "Access-Control-Allow-Origin: https://app.example\r\n");
#define BODY "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"
    raw(r.port,
        CHAT "Host: localhost\r\nContent-Length: 44\r\nX-Tempo9-Priority: 7 \r\n"
             "X-Tempo9-Queue-Timeout-Ms: 60000\t\r\n" CLOSE BODY,
        200, NULL);
    raw(r.port, CHAT "Host: localhost\r\nTransfer-Encoding: chunked \r\n" CLOSE "0\r\n\r\n", 400,
        "invalid_encoding");
    http_rig_stop(&r);
}

static void test_keys(void **state)
{
    static const char *const keys[] = {"first-key", "second-key"};
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    uint64_t client[2] = {0, 0}, deadline_ns;
    int32_t priority;
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.api_keys = keys;
    p.n_api_keys = 2;
    http_rig_start(&r, &script, &p);
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\n", 200, "ok");
#define MODELS "GET /v1/models HTTP/1.1\r\n"
    http_rig_expect(r.port, MODELS, 401, "WWW-Authenticate: Bearer");
    http_rig_expect(r.port, MODELS, 401, "an API key is needed");
    http_rig_expect(r.port, MODELS "Authorization: Bearer first-key\r\n", 200, NULL);
    http_rig_expect(r.port, MODELS "authorization: bearer second-key\r\n", 200, NULL);
    http_rig_expect(r.port, MODELS "X-Api-Key: second-key\r\n", 200, NULL);
    http_rig_expect(r.port, MODELS "X-Api-Key: second-key \t\r\n", 200, NULL);
    http_rig_expect(r.port, MODELS "Authorization: Bearer  first-key \r\n", 200, NULL);
    http_rig_expect(r.port, MODELS "Authorization: Bearer first-key2\r\n", 401, "invalid_api_key");
    http_rig_expect(r.port, MODELS "Authorization: Bearer \r\n", 401, NULL);
    http_rig_expect(r.port, MODELS "Authorization: Basic first-key\r\n", 401, NULL);
    http_rig_expect(r.port, MODELS "X-Api-Key: first-ke\r\n", 401, "that key is not one of");
    http_rig_expect(r.port, MODELS "X-Api-Key: wrong\r\nAuthorization: Bearer first-key\r\n", 200,
                    NULL);
    /* A key asks for nothing of Host and Origin: a page can't know it. */
    http_rig_expect(r.port, MODELS "Host: proxy.example\r\nX-Api-Key: first-key\r\n", 200, NULL);
    for (int i = 0; i < 2; i++) { /* each key is a client of its own */
        char head[256];
        struct buf in;
        snprintf(head, sizeof head, CHAT "X-Api-Key: %s\r\n", keys[i]);
        client_exchange(r.port, head, STR("{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"),
                        &in);
        assert_int_equal(client_status(&in), 200);
        buf_deinit(&in);
        scripted_engine_queueing(r.engine, &priority, &client[i], &deadline_ns);
    }
    assert_true(client[0] != 0 && client[1] != 0 && client[0] != client[1]);
    /* Without a key a long body is not even read. */
    raw(r.port, CHAT "Host: localhost\r\nContent-Length: 60000000\r\n\r\n", 401, "invalid_api_key");
    http_rig_stop(&r);
}

static void test_bad_keys(void **state)
{
    static const char *const bad[] = {"", "with space", "tab\t", "\xC3\xA9"};
    struct http_params p;
    struct t9_err err = {0};
    (void)state;
    http_params_init(&p);
    p.port = 0;
    p.n_api_keys = 1;
    for (int i = 0; i < 4; i++) {
        p.api_keys = &bad[i];
        assert_int_equal(http_params_check(&p, &err), T9_STATUS_INVALID);
        assert_non_null(strstr(err.msg, "API key 1 of 1"));
    }
}

static void test_origins(void **state)
{
    static const char *const good[] = {"https://app.example", "http://localhost:3000",
                                       "http://[::1]:8080",   "https://a-b.example:8443",
                                       "app://obsidian.md",   "chrome-extension://abcdef"};
    static const char *const bad[] = {"*",
                                      "null",
                                      "",
                                      "app.example",
                                      "https://",
                                      "https://app.example/",
                                      "https://app.example/x",
                                      "https://App.example",
                                      "HTTPS://app.example",
                                      "https://app.example:443",
                                      "http://app.example:80",
                                      "http://app.example:080",
                                      "http://[0:0::1]",
                                      "http://u@app.example",
                                      "https://*.example",
                                      " https://app.example"};
    struct http_params p;
    struct t9_err err = {0};
    (void)state;
    http_params_init(&p);
    p.port = 0;
    p.n_cors_origins = 1;
    for (size_t i = 0; i < T9_COUNT(good); i++) {
        p.cors_origins = &good[i];
        if (http_params_check(&p, &err) != T9_STATUS_OK)
            fail_msg("%s: %s", good[i], err.msg);
    }
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        p.cors_origins = &bad[i];
        if (http_params_check(&p, &err) != T9_STATUS_INVALID || !strstr(err.msg, "--cors-origin"))
            fail_msg("%s: %s", bad[i], err.msg);
    }
}

static void test_rate(void **state)
{
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}";
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in;
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.requests_per_minute = 3;
    http_rig_start(&r, &script, &p);
    /* What a foreign page asks and what costs nothing takes nothing of it. */
    for (int i = 0; i < 5; i++) {
        http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\nOrigin: http://evil.example\r\n", 403,
                        "foreign_origin");
        http_rig_expect(r.port, "GET /nothing HTTP/1.1\r\n", 404, "unknown_path");
        http_rig_expect(r.port, "GET /v1/v1/models HTTP/1.1\r\n", 404, "take it from the base URL");
        http_rig_expect(r.port, "GET /models HTTP/1.1\r\n", 404, "the base URL lacks /v1");
        client_exchange(r.port, CHAT "Origin: http://evil.example\r\n", STR(body), &in);
        assert_int_equal(client_status(&in), 403);
        buf_deinit(&in);
    }
    for (int i = 0; i < 5; i++) {
        client_exchange(r.port, CHAT, STR(body), &in);
        assert_int_equal(client_status(&in), i < 3 ? 200 : 429);
        if (i >= 3)
            assert_true(client_has(&in, "Retry-After: 2") &&
                        client_has(&in, "rate_limit_exceeded"));
        buf_deinit(&in);
    }
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\n", 200, NULL); /* what costs nothing */
    http_rig_stop(&r);
}

/* Whoever has no key asks at its address's expense, never at a key's. */
static void test_rate_keys(void **state)
{
    static const char *const keys[] = {"k1"};
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in;
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.requests_per_minute = 2;
    p.api_keys = keys;
    p.n_api_keys = 1;
    http_rig_start(&r, &script, &p);
    for (int i = 0; i < 6; i++)
        http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\n", 401, "invalid_api_key");
    for (int i = 0; i < 4; i++) {
        client_exchange(r.port, CHAT, STR("{}"), &in);
        assert_int_equal(client_status(&in), i < 2 ? 401 : 429);
        buf_deinit(&in);
    }
    client_exchange(r.port, CHAT "x-api-key: k1\r\n", STR("{}"), &in);
    assert_int_equal(client_status(&in), 400);
    buf_deinit(&in);
    http_rig_stop(&r);
}

/* Beyond loopback without a key, a page must come from where it asks. */
static void test_insecure(void **state)
{
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.host = "0.0.0.0";
    p.insecure = true;
    http_rig_start(&r, &script, &p);
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nHost: box.lan:80\r\n", 200, "ok");
    http_rig_expect(r.port,
                    "GET /health HTTP/1.1\r\nHost: box.lan:80\r\nOrigin: http://box.lan\r\n", 200,
                    "ok");
    http_rig_expect(r.port,
                    "GET /health HTTP/1.1\r\nHost: box.lan:80\r\nOrigin: http://evil.example\r\n",
                    403, "foreign_origin");
    http_rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),     cmocka_unit_test(test_keys),
        cmocka_unit_test(test_values),    cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_queries),   cmocka_unit_test(test_expectations),
        cmocka_unit_test(test_blanks),    cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_origins),   cmocka_unit_test(test_rate),
        cmocka_unit_test(test_rate_keys), cmocka_unit_test(test_insecure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
