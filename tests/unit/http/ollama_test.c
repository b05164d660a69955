/*
 * The API of Ollama's clients over real sockets, with a scripted engine behind it: routes, streams
 * as lines of JSON, and its form of errors whoever refuses.
 */
#include "lib/t9test.h"

#include "lib/http_client.h"
#include "lib/http_rig.h"
#include "lib/scripted_engine.h"

#include "base/clock.h"
#include "base/json.h"
#include "protocol/pull.h"

#include <unistd.h>

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]"

static void post(uint16_t port, const char *path, const char *json, struct buf *in)
{
    char head[128];
    snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nContent-Type: application/json\r\n", path);
    buf_init(in, 1 << 20);
    client_exchange(port, head, str_from(json), in);
}

static void expect_post(uint16_t port, const char *path, const char *json, int status,
                        const char *text)
{
    struct buf in;
    post(port, path, json, &in);
    if (client_status(&in) != status || !client_has(&in, text))
        fail_msg("%s %s: %.*s", path, json, (int)in.n, in.p);
    buf_deinit(&in);
}

static void test_routes(void **state)
{
    static const char *const refused[] = {"create", "copy",       "delete",         "push",
                                          "embed",  "embeddings", "blobs/sha256:00"};
    struct engine_script script;
    struct http_rig r;
    char head[96];
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    http_rig_expect(r.port, "GET /api/tags HTTP/1.1\r\n", 200, "\"name\":\"scripted:latest\"");
    http_rig_expect(r.port, "GET /api/ps HTTP/1.1\r\n", 200, "\"context_length\":");
    http_rig_expect(r.port, "GET /api/version HTTP/1.1\r\n", 200, "{\"version\":\"0.");
    http_rig_expect(r.port, "HEAD /api/version HTTP/1.1\r\n", 200, "application/json");
    http_rig_expect(r.port, "HEAD /api/tags HTTP/1.1\r\n", 200, "application/json");
    expect_post(r.port, "/api/show", "{\"model\":\"scripted:latest\"}", 200, "\"model_info\":{");
    expect_post(r.port, "/api/show", "{\"name\":\"other\"}", 404, "{\"error\":\"there is no model");
    for (size_t i = 0; i < T9_COUNT(refused); i++) {
        snprintf(head, sizeof head, "/api/%s", refused[i]);
        expect_post(r.port, head, "{\"model\":\"a\"}", 400, "{\"error\":\"/api/");
        snprintf(head, sizeof head, "DELETE /api/%s HTTP/1.1\r\n", refused[i]);
        http_rig_expect(r.port, head, 400, " is not supported: ");
    }
    http_rig_stop(&r);
}

static void test_answers(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in, body;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    /* Nothing asked for a stream: it is what holds. */
    post(r.port, "/api/chat", "{" HELLO "}", &in);
    assert_true(client_status(&in) == 200 && client_has(&in, "application/x-ndjson"));
    client_body(&in, &body);
    size_t n_lines = 0;
    for (str rest = buf_str(&body); rest.n;) {
        size_t end = str_find(rest, STR("\n"), 0);
        yyjson_doc *doc = NULL;
        assert_true(end < rest.n);
        assert_int_equal(json_parse(&doc, str_slice(rest, 0, end), JSON_LIMITS_REQUEST, NULL),
                         T9_STATUS_OK);
        rest = str_slice(rest, end + 1, rest.n);
        assert_int_equal(yyjson_is_true(json_get(yyjson_doc_get_root(doc), "done")), rest.n == 0);
        yyjson_doc_free(doc);
        n_lines++;
    }
    assert_true(n_lines >= 2);
    buf_deinit(&body);
    buf_deinit(&in);
    expect_post(r.port, "/api/chat", "{" HELLO ",\"stream\":false}", 200, "application/json");
    expect_post(r.port, "/api/generate", "{\"prompt\":\"a\",\"stream\":false}", 200,
                "\"context\":[");
    expect_post(r.port, "/api/generate", "{\"model\":\"scripted\"}", 200,
                "\"done\":true,\"done_reason\":\"load\"}");
    expect_post(r.port, "/api/chat", "{\"messages\":[]}", 200,
                "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true");
    http_rig_stop(&r);
}

/* Whoever says no: the parser, the router, the guard, the limits. */
static void test_errors(void **state)
{
    static const char *const keys[] = {"secret"};
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.body_bytes_max = 400;
    http_rig_start(&r, &script, &p);
    expect_post(r.port, "/api/chat", "{", 400, "{\"error\":\"the body is not acceptable JSON");
    http_rig_expect(r.port, "GET /api/chat HTTP/1.1\r\n", 405, "{\"error\":\"GET is not a method");
    http_rig_expect(r.port, "POST /api/tags HTTP/1.1\r\nContent-Length: 0\r\n", 405,
                    "{\"error\":\"POST is not a method");
    http_rig_expect(r.port, "GET /api/nothing HTTP/1.1\r\n", 404, "{\"error\":\"there is no GET");
    http_rig_expect(r.port, "GET /api/tags HTTP/1.1\r\nOrigin: http://evil.example\r\n", 403,
                    "{\"error\":\"pages from");
    http_rig_expect(r.port, "POST /api/chat HTTP/1.1\r\nContent-Length: 401\r\n", 413,
                    "{\"error\":\"the body is larger");
    /* One that goes on is refused past the HTTP library. */
    int fd = client_connect(r.port, 0);
    static const char head[] = "POST /api/chat HTTP/1.1\r\nHost: localhost\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    static char chunk[65536 + 16];
    struct buf in;
    memcpy(chunk, "10000\r\n", 7);
    memset(chunk + 7, ' ', 65536);
    memcpy(chunk + 7 + 65536, "\r\n", 2);
    (void)client_send(fd, head, sizeof head - 1);
    for (int i = 0; i < 40 && client_send(fd, chunk, 7 + 65536 + 2); i++)
        continue;
    buf_init(&in, 1 << 20);
    (void)client_read_until(fd, &in, 0, "{\"error\":\"the body is larger");
    assert_int_equal(client_status(&in), 413);
    assert_true(client_has(&in, "{\"error\":\"the body is larger"));
    buf_deinit(&in);
    close(fd);
    http_rig_stop(&r);
    http_params_init(&p);
    p.api_keys = keys;
    p.n_api_keys = 1;
    p.requests_per_minute = 1;
    http_rig_start(&r, &script, &p);
    http_rig_expect(r.port, "GET /api/tags HTTP/1.1\r\n", 401, "{\"error\":\"an API key");
    http_rig_expect(r.port, "GET /api/tags HTTP/1.1\r\nAuthorization: Bearer secret\r\n", 200,
                    "scripted");
    expect_post(r.port, "/api/chat", "{" HELLO "}", 401, "{\"error\":\"an API key");
    expect_post(r.port, "/api/chat", "{" HELLO "}", 429, "{\"error\":\"more than 1 requests");
    http_rig_stop(&r);
}

/* ---- downloads ---- */

struct fetcher {
    struct pull_hook hook;
    int n_steps;
    const char *fails;
    atomic_int n_stopped;
};

static t9_status fetch(void *ctx, const char *name,
                       bool (*progress)(void *to, const struct pull_progress *p), void *to,
                       struct t9_err *err)
{
    struct fetcher *f = ctx;
    for (int i = 1; i <= f->n_steps; i++) {
        struct pull_progress p = {"weights.gguf", (uint64_t)f->n_steps * 10, (uint64_t)i * 10};
        if (!progress(to, &p)) {
            atomic_fetch_add(&f->n_stopped, 1);
            return t9_fail(err, T9_STATUS_CANCELLED, "stopped");
        }
        clock_sleep_ms(20);
    }
    return f->fails ? t9_fail(err, T9_STATUS_NOT_FOUND, "%s: %s", name, f->fails) : T9_STATUS_OK;
}

static void start_fetcher(struct http_rig *r, struct fetcher *f)
{
    struct engine_script script;
    struct http_params p;
    engine_script_init(&script);
    http_params_init(&p);
    f->hook = (struct pull_hook){.get = fetch, .ctx = f};
    p.prep.pull = &f->hook;
    http_rig_start(r, &script, &p);
}

static void test_pull(void **state)
{
    struct fetcher f = {.n_steps = 3};
    struct http_rig r;
    (void)state;
    start_fetcher(&r, &f);
    expect_post(r.port, "/api/pull", "{\"model\":\"hf.co/a/b\"}", 200,
                "{\"status\":\"pulling weights.gguf\",\"digest\":\"weights.gguf\",\"total\":30,"
                "\"completed\":30}\n");
    expect_post(r.port, "/api/pull", "{\"model\":\"a/b\"}", 200, "{\"status\":\"success\"}\n");
    expect_post(r.port, "/api/pull", "{\"name\":\"a/b\",\"stream\":false}", 200,
                "\r\n\r\n{\"status\":\"success\"}");
    expect_post(r.port, "/api/pull", "{\"model\":\"scripted\"}", 200, "{\"status\":\"success\"}\n");
    expect_post(r.port, "/api/pull", "{\"model\":\"b\"}", 400, "{\"error\":\"model must be");
    expect_post(r.port, "/api/pull", "{}", 400, "{\"error\":\"model is missing");
    f.fails = "not there";
    expect_post(r.port, "/api/pull", "{\"model\":\"a/b\"}", 200,
                "{\"error\":\"a/b: not there\"}\n");
    expect_post(r.port, "/api/pull", "{\"model\":\"a/b\",\"stream\":false}", 404, "not there");
    http_rig_stop(&r);
}

static void test_pull_off(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    expect_post(r.port, "/api/pull", "{\"model\":\"a/b\"}", 403, "--allow-pull");
    expect_post(r.port, "/api/pull", "{\"model\":\"scripted:latest\"}", 200, "success");
    http_rig_stop(&r);
}

/* Whoever leaves stops it; so does the server's end. One goes at a time. */
static void test_pull_stops(void **state)
{
    static const char request[] = "POST /api/pull HTTP/1.1\r\nHost: localhost\r\n"
                                  "Content-Length: 15\r\n\r\n{\"model\":\"a/b\"}";
    struct fetcher f = {.n_steps = 100000};
    struct http_rig r;
    struct buf in;
    (void)state;
    start_fetcher(&r, &f);
    for (int round = 0; round < 2; round++) {
        int fd = client_connect(r.port, 0);
        assert_true(client_send(fd, request, sizeof request - 1));
        buf_init(&in, 1 << 20);
        assert_true(client_read_until(fd, &in, 0, "\"completed\":"));
        buf_deinit(&in);
        expect_post(r.port, "/api/pull", "{\"model\":\"a/c\"}", 503, "{\"error\":\"another model");
        if (round == 1)
            http_server_stop(r.server, 0);
        close(fd);
        for (int i = 0; i < 500 && atomic_load(&f.n_stopped) == round; i++)
            clock_sleep_ms(10);
        assert_int_equal(atomic_load(&f.n_stopped), round + 1);
        for (int i = 0; i < 500 && atomic_load(&f.hook.busy); i++)
            clock_sleep_ms(10);
    }
    r.server = NULL;
    http_rig_stop(&r);
}

/* A silent stream is kept alive by lines that clients read as pieces without text. */
static void test_keepalive(void **state)
{
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in;
    (void)state;
    engine_script_init(&script);
    script.prefill_ms = 400;
    http_params_init(&p);
    p.keepalive_ms = 50;
    http_rig_start(&r, &script, &p);
    post(r.port, "/api/chat", "{" HELLO "}", &in);
    assert_true(client_has(
        &in, "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n"));
    assert_true(client_has(&in, "\"done\":true"));
    buf_deinit(&in);
    post(r.port, "/api/generate", "{\"prompt\":\"hello there\"}", &in);
    assert_true(client_has(&in, "{\"response\":\"\",\"done\":false}\n"));
    buf_deinit(&in);
    http_rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),    cmocka_unit_test(test_answers),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_pull),
        cmocka_unit_test(test_pull_off),  cmocka_unit_test(test_pull_stops),
        cmocka_unit_test(test_keepalive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
