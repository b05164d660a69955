/*
 * The HTTP server over real sockets, with a scripted engine behind it: routes, limits, whole and
 * streamed answers against golden transcripts, and what clients do wrong or suddenly.
 */
#include "lib/t9test.h"

#include "lib/byte_tokenizer.h"
#include "lib/http_client.h"
#include "lib/http_rig.h"
#include "lib/scripted_engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "http/internal.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Tokens of a text: with byte_tokenizer, its bytes. */
static int32_t *tokens_of(const char *text, int32_t *n)
{
    *n = (int32_t)strlen(text);
    int32_t *t = calloc((size_t)*n + 1, sizeof *t);
    for (int32_t i = 0; i < *n; i++)
        t[i] = (unsigned char)text[i];
    return t;
}

/* ---- golden transcripts ---- */

static size_t skip_until(str s, size_t i, const char *stops)
{
    while (i < s.n && !strchr(stops, s.p[i]))
        i++;
    return i;
}

/* Ids, times and dates become fixed words. */
static void normalise(const struct buf *in, struct buf *out)
{
    static const struct {
        const char *before, *stops, *word;
    } rules[] = {{"\"id\":\"chatcmpl-", "\"", "ID"}, {"\"created\":", ",}", "TIME"},
                 {"\"timings\":{", "}", "..."},      {"Date: ", "\r", "DATE"},
                 {"Content-Length: ", "\r", "N"},    {"X-Request-Id: req-", "\r", "ID"}};
    str s = buf_str(in);
    buf_init(out, 1 << 20);
    for (size_t i = 0; i < s.n;) {
        size_t k = 0;
        while (k < T9_COUNT(rules) &&
               !str_has_prefix(str_slice(s, i, s.n), str_from(rules[k].before)))
            k++;
        if (k == T9_COUNT(rules)) {
            if (s.p[i] != '\r')
                buf_putc(out, s.p[i]);
            i++;
            continue;
        }
        buf_puts(out, rules[k].before);
        buf_puts(out, rules[k].word);
        i = skip_until(s, i + strlen(rules[k].before), rules[k].stops);
    }
}

static void check_golden(const char *name, const struct buf *response)
{
    char path[512];
    struct buf got, want;
    normalise(response, &got);
    snprintf(path, sizeof path, "%s/../golden/%s", T9_TEST_DATA_DIR, name);
    if (getenv("T9_GOLDEN_UPDATE")) /* rewrites them; look at the difference before you commit */
        test_write_file(path, got.p, got.n);
    buf_init(&want, 1 << 20);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("no golden file %s", path);
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        buf_append(&want, block, n);
    fclose(f);
    buf_putc(&got, 0);
    buf_putc(&want, 0);
    assert_string_equal(got.p, want.p);
    buf_deinit(&got);
    buf_deinit(&want);
}

/* ---- routes ---- */

static void test_routes(void **state)
{
    struct engine_script script;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\n", 200, "\"id\":\"scripted\"");
    http_rig_expect(r.port, "GET /v1/models?x=1 HTTP/1.1\r\n", 200, "\"object\":\"list\"");
    http_rig_expect(r.port, "GET /v1/models/scripted HTTP/1.1\r\n", 200, "\"object\":\"model\"");
    http_rig_expect(r.port, "GET /v1/models/other HTTP/1.1\r\n", 404, "model_not_found");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\n", 200, "{\"status\":\"ok\"}");
    http_rig_expect(r.port, "GET / HTTP/1.1\r\n", 200, "tempo9 is running");
    http_rig_expect(r.port, "HEAD / HTTP/1.1\r\n", 200, "Content-Length:");
    http_rig_expect(r.port, "GET /v1/capabilities HTTP/1.1\r\n", 200, "\"invariant\":true");
    http_rig_expect(r.port, "GET /metrics HTTP/1.1\r\n", 200, "vllm:kv_cache_usage_perc 0.425");
    http_rig_expect(r.port, "GET /metrics HTTP/1.1\r\n", 200, "tempo9_kv_states_kept 3\n");
    http_rig_expect(r.port, "GET /metrics HTTP/1.1\r\n", 200,
                    "tempo9_checkpoint_hits_total{kind=\"branch\"} 5\n");
    http_rig_expect(r.port, "GET /v1/state HTTP/1.1\r\n", 200,
                    "\"checkpoint_hits\":{\"interval\":0,\"ladder\":0,\"branch\":5");
    http_rig_expect(r.port, "GET /metrics HTTP/1.1\r\n", 200,
                    "tempo9_http_requests_total{status=\"4xx\"} 1");
    http_rig_expect(r.port, "GET /nothing HTTP/1.1\r\n", 404, "unknown_path");
    http_rig_expect(r.port, "GET /v1/models/ HTTP/1.1\r\n", 404, "unknown_path");
    http_rig_expect(r.port, "GET /v1/chat/completions HTTP/1.1\r\n", 405, "Allow: POST, OPTIONS");
    http_rig_expect(r.port, "DELETE /v1/models HTTP/1.1\r\n", 405, "Allow: GET, HEAD, OPTIONS");
    http_rig_expect(r.port, "OPTIONS /v1/chat/completions HTTP/1.1\r\n", 204,
                    "Allow: POST, OPTIONS");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nX-Request-Id: abc-1\r\n", 200,
                    "X-Request-Id: abc-1");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nX-Request-Id: a b\r\n", 200,
                    "X-Request-Id: req-");
    http_rig_expect(r.port, "GET /health HTTP/1.0\r\n", 200, "ok");
    http_rig_stop(&r);
}

static void test_foreign_pages(void **state)
{
    static const char *const allowed[] = {"https://app.example"};
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    char head[256];
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.cors_origins = allowed;
    p.n_cors_origins = 1;
    http_rig_start(&r, &script, &p);
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nHost: evil.example\r\n", 403, "foreign_host");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nHost: 127.evil.example\r\n", 403,
                    "foreign_host");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nHost: [::1]:80\r\n", 200, "ok");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nHost: LOCALHOST:1\r\n", 200, "ok");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nOrigin: http://evil.example\r\n", 403,
                    "foreign_origin");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nOrigin: null\r\n", 403, "foreign_origin");
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\nOrigin: http://localhost:1\r\n", 403,
                    "foreign_origin");
    snprintf(head, sizeof head, "GET /health HTTP/1.1\r\nOrigin: http://localhost:%u\r\n", r.port);
    http_rig_expect(r.port, head, 200, "ok");
    http_rig_expect(r.port, "OPTIONS /v1/models HTTP/1.1\r\nOrigin: https://app.example\r\n", 204,
                    "Access-Control-Allow-Origin: https://app.example");
    http_rig_stop(&r);
}

static void test_key(void **state)
{
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    static const char *const keys[] = {"other-key", "secret"};
    p.api_keys = keys;
    p.n_api_keys = T9_COUNT(keys);
    http_rig_start(&r, &script, &p);
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\n", 200, "ok");
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\n", 401, "invalid_api_key");
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\nAuthorization: Bearer secre\r\n", 401,
                    NULL);
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\nAuthorization: Bearer secretsecret\r\n",
                    401, NULL);
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\nAuthorization: Bearer secret\r\n", 200,
                    NULL);
    http_rig_expect(r.port, "GET /v1/models HTTP/1.1\r\nX-Api-Key: secret\r\n", 200, NULL);
    http_rig_stop(&r);
}

static void test_configuration(void **state)
{
    struct engine_script script;
    struct http_params p;
    struct http_server *s = NULL;
    struct t9_err err = {0};
    struct http_rig r;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    http_params_init(&p);
    p.prep = (struct prep_params){.model = r.model, .model_name = "x"};
    p.port = r.port;
    assert_int_equal(http_server_new(&s, &p, &err), T9_STATUS_IO);
    assert_non_null(strstr(err.msg, "is taken by another program"));
    p.host = "0.0.0.0";
    assert_int_equal(http_server_new(&s, &p, &err), T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "--insecure"));
    p.host = "not an address";
    p.insecure = true;
    assert_int_equal(http_server_new(&s, &p, &err), T9_STATUS_IO);
    assert_null(s);
    http_rig_stop(&r);
}

/* ---- answers ---- */

#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"seed\":7,"

static double timing(const struct buf *response, const char *name)
{
    struct buf body;
    yyjson_doc *doc = NULL;
    client_body(response, &body);
    assert_int_equal(json_parse(&doc, buf_str(&body), JSON_LIMITS_REQUEST, NULL), T9_STATUS_OK);
    yyjson_val *v = json_get(json_get(yyjson_doc_get_root(doc), "timings"), name);
    assert_true(yyjson_is_num(v));
    double d = yyjson_get_num(v);
    yyjson_doc_free(doc);
    buf_deinit(&body);
    return d;
}

static void check_timings(const struct buf *response)
{
    assert_true(timing(response, "parse_ms") > 0);
    assert_true(timing(response, "queue_ms") >= 25 && timing(response, "queue_ms") < 5000);
    assert_true(timing(response, "prefix_wait_ms") == 15);
    assert_true(timing(response, "preempted_ms") == 2);
    assert_true(timing(response, "preemptions") == 2);
    assert_true(timing(response, "first_token_ms") >= 40);
    assert_true(timing(response, "last_token_ms") >= timing(response, "first_token_ms"));
    assert_true(timing(response, "prompt_n") == 1 && timing(response, "cache_n") == 20);
    assert_true(timing(response, "predicted_n") == 17);
}

static void test_golden(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in;
    int32_t n;
    (void)state;
    engine_script_init(&script);
    int32_t *reply = tokens_of("Hej \xF0\x9F\x98\x80 \xE6\x97\xA5 \"q\"\n", &n);
    script.reply = reply;
    script.n_reply = n;
    http_rig_start(&r, &script, NULL);
    client_chat(r.port, HELLO "\"model\":\"scripted\"}", &in);
    check_golden("chat_whole.txt", &in);
    buf_deinit(&in);
    client_chat(r.port, HELLO "\"max_tokens\":3,\"unheard_of\":1}", &in);
    check_golden("chat_length_warning.txt", &in);
    buf_deinit(&in);
    client_chat(r.port, HELLO "\"stop\":[\" \\\"q\",\"zzz\"]}", &in);
    check_golden("chat_stop.txt", &in);
    buf_deinit(&in);
    client_chat(r.port, HELLO "\"audio\":true}", &in);
    check_golden("chat_refused.txt", &in);
    buf_deinit(&in);
    client_chat(r.port, HELLO "\"model\":\"other\"}", &in);
    check_golden("chat_model.txt", &in);
    buf_deinit(&in);
    http_rig_stop(&r);
    script.n_cached = 20;
    script.n_preempted = 2;
    script.queue_ms = 40;
    script.prefix_ms = 15;
    http_rig_start(&r, &script, NULL);
    client_chat(r.port, HELLO "\"timings\":true}", &in);
    check_golden("chat_timings.txt", &in);
    check_timings(&in);
    buf_deinit(&in);
    http_rig_stop(&r);
    free(reply);
}

/* Text of all content deltas of a stream. */
static void stream_text(const struct buf *body, struct buf *text)
{
    str s = buf_str(body);
    buf_init(text, (size_t)64 << 20);
    for (size_t at = 0; (at = str_find(s, STR("data: {"), at)) != (size_t)-1;) {
        size_t end = str_find(s, STR("\n\n"), at);
        if (end == (size_t)-1)
            return;
        yyjson_doc *doc = NULL;
        assert_int_equal(json_parse(&doc, str_slice(s, at + 6, end), JSON_LIMITS_REQUEST, NULL),
                         T9_STATUS_OK);
        yyjson_val *choices = json_get(yyjson_doc_get_root(doc), "choices");
        yyjson_val *delta = json_get(yyjson_arr_get_first(choices), "delta");
        buf_puts_str(text, json_str(json_get(delta, "content")));
        yyjson_doc_free(doc);
        at = end;
    }
}

static void test_stream(void **state)
{
    const char *answer = "Hej \xF0\x9F\x98\x80 \xE6\x97\xA5";
    struct engine_script script;
    struct http_rig r;
    struct buf in, body, text;
    int32_t n;
    bool one_by_one = false;
    (void)state;
    engine_script_init(&script);
    int32_t *reply = tokens_of(answer, &n);
    script.reply = reply;
    script.n_reply = n;
    script.gap_ms = 15; /* so that each byte comes alone, and characters must be held back */
    http_rig_start(&r, &script, NULL);
    /* On a busy machine two tokens may share a chunk, which is right but not the transcript. */
    for (int attempt = 0; attempt < 10 && !one_by_one; attempt++) {
        client_chat(r.port, HELLO "\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
                    &in);
        assert_int_equal(client_status(&in), 200);
        assert_true(client_has(&in, "Content-Type: text/event-stream"));
        client_body(&in, &body);
        stream_text(&body, &text);
        buf_putc(&text, 0);
        assert_string_equal(text.p, answer);
        size_t n_events = 0;
        for (size_t at = 0; (at = str_find(buf_str(&body), STR("data: "), at)) != (size_t)-1; at++)
            n_events++;
        one_by_one = n_events == 11;
        if (one_by_one)
            check_golden("chat_stream.txt", &body);
        buf_deinit(&in);
        buf_deinit(&body);
        buf_deinit(&text);
    }
    assert_true(one_by_one);
    http_rig_stop(&r);
    free(reply);
}

static void test_errors(void **state)
{
    static const struct {
        const char *json;
        int status;
        const char *text;
    } cases[] = {
        {"", 400, "invalid_json"},
        {"{", 400, "invalid_json"},
        {"[]", 400, "must be a JSON object"},
        {"{}", 400, "missing_required_parameter"},
        {"{\"messages\":\"x\"}", 400, "\"param\":\"messages\""},
        {"{\"messages\":[]}", 400, "messages is empty"},
        {"{\"messages\":{}}", 400, "an array of messages, not an empty object"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", 400, "not an empty array"},
        {"{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", 400, "messages[0].role"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":3}]}", 400, "messages[0].content"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\"}]}", 400, "invalid_json"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
         "image_url"},
        {HELLO "\"seed\":1,\"seed\":1}", 400,
         "the key \\\"seed\\\" stands twice in the outermost object"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"content\":\"y\"}]}", 400,
         "the key \\\"content\\\" stands twice in messages[0]"},
        {HELLO "\"metadata\":{\"a\":{\"b\":1,\"b\":2}}}", 400, "stands twice in metadata.a"},
        {HELLO "\"temperature\":-1}", 400, "\"param\":\"temperature\""},
        {HELLO "\"temperature\":\"hot\"}", 400, "\\\"hot\\\""},
        {HELLO "\"top_p\":0}", 400, "top_p"},
        {HELLO "\"max_tokens\":0}", 400, "max_tokens"},
        {HELLO "\"stream\":1}", 400, "true or false"},
        {HELLO "\"audio\":true}", 400, "unsupported_parameter"},
        {HELLO
         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":5}}]}",
         400, "\"param\":\"tools[0].function.description\""},
        {HELLO "\"tools\":[{\"type\":\"function\"}]}", 400, "\"param\":\"tools[0].function\""},
        {HELLO "\"response_format\":{\"type\":\"json_object\"}}", 400, "response_format"},
        {HELLO "\"stop\":\"\"}", 400, "stop"},
        {HELLO "\"priority\":101}", 400, "from -100 to 100"},
        {HELLO "\"priority\":\"high\"}", 400, "\"param\":\"priority\""},
        {HELLO "\"queue_timeout_ms\":0}", 400, "\"param\":\"queue_timeout_ms\""},
        {HELLO "\"timings\":1}", 400, "true or false"},
    };
    struct engine_script script;
    struct http_rig r;
    struct buf in;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        client_chat(r.port, cases[i].json, &in);
        if (client_status(&in) != cases[i].status || !client_has(&in, cases[i].text))
            fail_msg("%s gave %.*s", cases[i].json, (int)in.n, in.p);
        buf_deinit(&in);
    }
    struct buf deep;
    buf_init(&deep, 1 << 20);
    for (int i = 0; i < 100000; i++)
        buf_putc(&deep, '[');
    buf_putc(&deep, 0);
    client_chat(r.port, deep.p, &in);
    assert_int_equal(client_status(&in), 400);
    buf_deinit(&in);
    buf_deinit(&deep);
    http_rig_stop(&r);
}

static void test_context(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in, json;
    int32_t max_tokens;
    (void)state;
    engine_script_init(&script);
    script.max_length = 60;
    http_rig_start(&r, &script, NULL);
    client_chat(r.port, HELLO "\"max_tokens\":32000}", &in);
    assert_int_equal(client_status(&in), 200);
    assert_true(client_has(&in, "max_tokens 32000 was lowered to"));
    struct sample_params p = scripted_engine_sampling(r.engine, &max_tokens);
    assert_int_equal(p.seed, 7);
    assert_true(max_tokens > 0 && max_tokens < 60);
    buf_deinit(&in);
    /* Named by nobody: all that is left. */
    client_chat(r.port, HELLO "\"stream\":false}", &in);
    assert_int_equal(client_status(&in), 200);
    (void)scripted_engine_sampling(r.engine, &max_tokens);
    assert_int_equal(max_tokens, 60 - scripted_engine_prompt(r.engine, NULL, 60));
    buf_deinit(&in);
    buf_init(&json, 1 << 16);
    buf_puts(&json, "{\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 100; i++)
        buf_putc(&json, 'a');
    buf_puts(&json, "\"}]}");
    buf_putc(&json, 0);
    client_chat(r.port, json.p, &in);
    assert_int_equal(client_status(&in), 400);
    assert_true(client_has(&in, "context_length_exceeded") &&
                client_has(&in, "set by the script") && client_has(&in, "60"));
    /* So much text that it is not even tokenized. */
    buf_deinit(&in);
    buf_deinit(&json);
    buf_init(&json, 1 << 20);
    buf_puts(&json, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (int i = 0; i < 500000; i++)
        buf_putc(&json, 'a');
    buf_puts(&json, "\"}]}");
    buf_putc(&json, 0);
    client_chat(r.port, json.p, &in);
    assert_int_equal(client_status(&in), 400);
    assert_true(client_has(&in, "context_length_exceeded") && client_has(&in, "bytes of text"));
    buf_deinit(&in);
    buf_deinit(&json);
    http_rig_stop(&r);
}

static void test_engine_trouble(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in;
    (void)state;
    engine_script_init(&script);
    script.fail_at = 3;
    script.gap_ms = 2;
    http_rig_start(&r, &script, NULL);
    client_chat(r.port, HELLO "\"stream\":false}", &in);
    assert_int_equal(client_status(&in), 500);
    assert_true(client_has(&in, "the script says so"));
    buf_deinit(&in);
    client_chat(r.port, HELLO "\"stream\":true}", &in);
    assert_int_equal(client_status(&in), 200);
    assert_true(client_has(&in, "data: {\"error\":{\"message\":\"the script says so\""));
    assert_false(client_has(&in, "[DONE]"));
    buf_deinit(&in);
    http_rig_stop(&r);

    engine_script_init(&script);
    script.queue_cap = 0;
    script.retry_after_s = 17;
    http_rig_start(&r, &script, NULL);
    client_chat(r.port, HELLO "\"stream\":true}", &in);
    assert_int_equal(client_status(&in), 503);
    assert_true(client_has(&in, "Retry-After: 17\r\n") && client_has(&in, "server_busy"));
    buf_deinit(&in);
    http_rig_stop(&r);
}

/* ---- queueing ---- */

static void chat_as(uint16_t port, const char *headers, const char *json, struct buf *in)
{
    char head[512];
    snprintf(head, sizeof head, "POST /v1/chat/completions HTTP/1.1\r\n%s", headers);
    client_exchange(port, head, str_from(json), in);
}

static void test_priority(void **state)
{
    static const struct {
        const char *headers, *json;
        int32_t priority;
    } cases[] = {
        {"", HELLO "\"stream\":false}", 0},
        {"", HELLO "\"priority\":7}", 7},
        {"X-Tempo9-Priority: -4\r\n", HELLO "\"stream\":true}", -4},
        {"X-Tempo9-Priority: 0\r\n", HELLO "\"priority\":7}", 0},
    };
    struct engine_script script;
    struct http_rig r;
    struct buf in;
    int32_t priority;
    uint64_t key, deadline;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        chat_as(r.port, cases[i].headers, cases[i].json, &in);
        assert_int_equal(client_status(&in), 200);
        scripted_engine_queueing(r.engine, &priority, &key, &deadline);
        assert_int_equal(priority, cases[i].priority);
        assert_true(key == 0 && deadline == 0);
        buf_deinit(&in);
    }
    chat_as(r.port, "X-Tempo9-Priority: high\r\n", HELLO "\"stream\":true}", &in);
    assert_int_equal(client_status(&in), 400);
    assert_true(client_has(&in, "\"param\":\"x-tempo9-priority\""));
    buf_deinit(&in);
    http_rig_stop(&r);
}

static void test_queue_timeout(void **state)
{
    static const char *const jsons[] = {HELLO "\"queue_timeout_ms\":40}",
                                        HELLO "\"queue_timeout_ms\":40,\"stream\":true}"};
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in;
    (void)state;
    engine_script_init(&script);
    script.queue_ms = 60000;
    script.retry_after_s = 9;
    http_rig_start(&r, &script, NULL);
    for (size_t i = 0; i < T9_COUNT(jsons); i++) {
        client_chat(r.port, jsons[i], &in);
        assert_int_equal(client_status(&in), 503);
        assert_true(client_has(&in, "queue_timeout") && client_has(&in, "Retry-After: 9\r\n"));
        buf_deinit(&in);
    }
    chat_as(r.port, "X-Tempo9-Queue-Timeout-Ms: 30\r\n", HELLO "\"queue_timeout_ms\":50000}", &in);
    assert_int_equal(client_status(&in), 503);
    buf_deinit(&in);
    http_rig_stop(&r);
    /* The status of a stream can't be waited for any longer: then it is an event. */
    http_params_init(&p);
    p.header_wait_ms = 50;
    http_rig_start(&r, &script, &p);
    client_chat(r.port, HELLO "\"queue_timeout_ms\":2500,\"stream\":true}", &in);
    assert_int_equal(client_status(&in), 200);
    assert_true(client_has(&in, "data: {\"error\"") && client_has(&in, "queue_timeout"));
    assert_false(client_has(&in, "[DONE]"));
    buf_deinit(&in);
    http_rig_stop(&r);
    /* In time. */
    script.queue_ms = 30;
    http_rig_start(&r, &script, NULL);
    client_chat(r.port, HELLO "\"queue_timeout_ms\":30000,\"stream\":true}", &in);
    assert_int_equal(client_status(&in), 200);
    assert_true(client_has(&in, "[DONE]"));
    buf_deinit(&in);
    http_rig_stop(&r);
}

static int open_chat(uint16_t port, const char *headers)
{
    const char *json = HELLO "\"stream\":true}";
    char text[512];
    int fd = client_connect(port, 0);
    int n = snprintf(text, sizeof text,
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n%s"
                     "Content-Length: %zu\r\n\r\n%s",
                     headers, strlen(json), json);
    assert_true(client_send(fd, text, (size_t)n));
    return fd;
}

static void test_client_limit(void **state)
{
    const char *alice = "X-Tempo9-Client: alice\r\n", *bob = "X-Tempo9-Client: bob\r\n";
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in;
    int fd[4];
    (void)state;
    engine_script_init(&script);
    script.prefill_ms = 60000;
    script.retry_after_s = 5;
    http_params_init(&p);
    p.max_open_per_client = 2;
    http_rig_start(&r, &script, &p);
    fd[0] = open_chat(r.port, alice);
    fd[1] = open_chat(r.port, alice);
    assert_true(http_rig_wait_live(&r, 2, 2000));
    chat_as(r.port, alice, HELLO "\"stream\":true}", &in);
    assert_int_equal(client_status(&in), 429);
    assert_true(client_has(&in, "Retry-After: 5\r\n") && client_has(&in, "rate_limit_error") &&
                client_has(&in, "rate_limit_exceeded"));
    buf_deinit(&in);
    http_rig_expect(r.port, "GET /metrics HTTP/1.1\r\n", 200, "tempo9_http_limited_total 1");
    /* Others are not held up, and neither is who gives no name. */
    fd[2] = open_chat(r.port, bob);
    fd[3] = open_chat(r.port, "");
    assert_true(http_rig_wait_live(&r, 4, 2000));
    /* Once one has gone, there is room again. */
    close(fd[0]);
    assert_true(http_rig_wait_live(&r, 3, 2000));
    clock_sleep_ms(20);
    fd[0] = open_chat(r.port, alice);
    assert_true(http_rig_wait_live(&r, 4, 2000));
    for (size_t i = 0; i < T9_COUNT(fd); i++)
        close(fd[i]);
    http_rig_stop(&r);
}

/* ---- what can be seen ---- */

static void test_state(void **state)
{
    static struct engine_state st = {.step = 77,
                                     .pages_total = 100,
                                     .pages_free = 60,
                                     .pages_cold = 15,
                                     .pages_pinned = 3,
                                     .tree_nodes = 20,
                                     .tree_promised = 2,
                                     .n_running = 1,
                                     .n_waiting = 2,
                                     .cost_row_ns = 1234,
                                     .cost_experts_ns = 5678,
                                     .n_seqs = 1,
                                     .n_queue = 1};
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in, body;
    yyjson_doc *doc = NULL;
    (void)state;
    st.at_ns = clock_now_ns();
    st.seqs[0] = (struct engine_state_seq){.id = UINT64_MAX,
                                           .state = "running",
                                           .age_ns = 5500000,
                                           .priority = -1,
                                           .n_prompt = 40,
                                           .n_cached = 32,
                                           .n_pages = 2};
    st.queue[0] = (struct engine_state_seq){.id = 9, .state = "waiting"};
    engine_script_init(&script);
    script.state = &st;
    http_params_init(&p);
    static const char *const keys[] = {"other-key", "secret"};
    p.api_keys = keys;
    p.n_api_keys = T9_COUNT(keys);
    http_rig_start(&r, &script, &p);
    http_rig_expect(r.port, "GET /v1/state HTTP/1.1\r\n", 401, "invalid_api_key");
    client_exchange(r.port, "GET /v1/state HTTP/1.1\r\nX-Api-Key: secret\r\n", (str){0}, &in);
    assert_int_equal(client_status(&in), 200);
    assert_true(client_has(&in, "Cache-Control: no-store"));
    client_body(&in, &body);
    assert_int_equal(json_parse(&doc, buf_str(&body), JSON_LIMITS_REQUEST, NULL), T9_STATUS_OK);
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *pool = json_get(root, "pool");
    assert_int_equal(yyjson_get_num(json_get(pool, "pages")), 100);
    assert_int_equal(yyjson_get_num(json_get(pool, "used")), 25);
    assert_int_equal(yyjson_get_num(json_get(json_get(root, "tree"), "nodes")), 20);
    assert_int_equal(yyjson_get_num(json_get(json_get(root, "engine"), "step")), 77);
    assert_true(yyjson_get_num(json_get(json_get(root, "cost"), "row_us")) == 1.234);
    assert_true(yyjson_get_num(json_get(json_get(root, "cost"), "experts_us")) == 5.678);
    assert_true(yyjson_is_obj(json_get(root, "totals")));
    assert_true(yyjson_is_false(json_get(json_get(root, "http"), "stopping")));
    yyjson_val *seq = yyjson_arr_get_first(json_get(root, "running"));
    assert_true(yyjson_get_uint(json_get(seq, "id")) == UINT64_MAX);
    assert_true(str_eqz(json_str(json_get(seq, "state")), "running"));
    assert_true(yyjson_get_num(json_get(seq, "age_ms")) == 5.5);
    assert_int_equal(yyjson_get_num(json_get(seq, "priority")), -1);
    assert_int_equal(yyjson_get_num(json_get(seq, "cached_tokens")), 32);
    assert_int_equal(yyjson_arr_size(json_get(root, "queue")), 1);
    yyjson_doc_free(doc);
    buf_deinit(&in);
    buf_deinit(&body);
    http_rig_stop(&r);
}

/* Every sample follows the HELP and TYPE of its own name, no name comes twice, counters and only
 * they end in _total, and there is nothing after a line's number. */
static void test_metrics_format(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in, body;
    char name[128] = "", type[32] = "", seen[128][128];
    size_t n_seen = 0;
    bool helped = false;
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    client_exchange(r.port, "GET /metrics HTTP/1.1\r\n", (str){0}, &in);
    client_body(&in, &body);
    if (getenv("T9_METRICS_OUT")) /* for other programs that check the format */
        test_write_file(getenv("T9_METRICS_OUT"), body.p, body.n);
    buf_putc(&body, 0);
    for (char *line = body.p, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        if (strncmp(line, "# HELP ", 7) == 0) {
            assert_int_equal(sscanf(line, "# HELP %127s", name), 1);
            for (size_t i = 0; i < n_seen; i++)
                assert_string_not_equal(seen[i], name);
            assert_true(n_seen < T9_COUNT(seen));
            snprintf(seen[n_seen++], sizeof seen[0], "%s", name);
            helped = line[strlen(line) - 1] == '.';
            continue;
        }
        if (strncmp(line, "# TYPE ", 7) == 0) {
            char typed[128];
            assert_int_equal(sscanf(line, "# TYPE %127s %31s", typed, type), 2);
            assert_string_equal(typed, name);
            size_t n = strlen(name);
            bool total = n > 6 && strcmp(name + n - 6, "_total") == 0;
            assert_int_equal(total, strcmp(type, "counter") == 0);
            continue;
        }
        char *value = strrchr(line, ' '), *rest = NULL;
        assert_true(helped && value && strncmp(line, name, strlen(name)) == 0);
        (void)strtod(value + 1, &rest);
        if (rest == value + 1 || *rest)
            fail_msg("no number: %s", line);
    }
    assert_true(n_seen > 40);
    buf_deinit(&in);
    buf_deinit(&body);
    http_rig_stop(&r);
}

/* ---- bodies and connections ---- */

static void test_bodies(void **state)
{
    const char *json = HELLO "\"stream\":false}";
    struct engine_script script;
    struct http_params p;
    struct http_rig r;
    struct buf in;
    char head[512];
    (void)state;
    engine_script_init(&script);
    http_params_init(&p);
    p.body_bytes_max = 1000;
    http_rig_start(&r, &script, &p);
    /* Announced too large: refused before a byte of it is read. */
    int fd = client_connect(r.port, 0);
    snprintf(
        head, sizeof head,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n");
    client_send(fd, head, strlen(head));
    buf_init(&in, 1 << 20);
    assert_true(client_read_until(fd, &in, 0, "request_too_large"));
    assert_int_equal(client_status(&in), 413);
    close(fd);
    buf_deinit(&in);
    /* Chunked, and too large in the end. */
    fd = client_connect(r.port, 0);
    snprintf(head, sizeof head,
             "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
             "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n4b0\r\n");
    client_send(fd, head, strlen(head));
    for (int i = 0; i < 1200; i++)
        client_send(fd, "x", 1);
    client_send(fd, "\r\n0\r\n\r\n", 7);
    buf_init(&in, 1 << 20);
    (void)client_read_until(fd, &in, 0, NULL);
    assert_int_equal(client_status(&in), 413);
    close(fd);
    buf_deinit(&in);
    /* Chunked and on and on: told while it sends. */
    fd = client_connect(r.port, 0);
    snprintf(head, sizeof head,
             "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
             "Transfer-Encoding: chunked\r\n\r\n");
    client_send(fd, head, strlen(head));
    for (int i = 0; i < 128; i++) {
        static const char block[32768];
        if (!client_send(fd, "8000\r\n", 6) || !client_send(fd, block, sizeof block) ||
            !client_send(fd, "\r\n", 2))
            fail_msg("the connection was closed at chunk %d", i);
    }
    buf_init(&in, 1 << 20);
    (void)client_read_until(fd, &in, 0, NULL);
    assert_int_equal(client_status(&in), 413);
    assert_true(client_has(&in, "request_too_large"));
    close(fd);
    buf_deinit(&in);
    /* Chunked and fine, byte by byte. */
    fd = client_connect(r.port, 0);
    snprintf(head, sizeof head,
             "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
             "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    client_send(fd, head, strlen(head));
    for (size_t i = 0; json[i]; i++) {
        snprintf(head, sizeof head, "1\r\n%c\r\n", json[i]);
        client_send(fd, head, strlen(head));
    }
    client_send(fd, "0\r\n\r\n", 5);
    buf_init(&in, 1 << 20);
    (void)client_read_until(fd, &in, 0, NULL);
    assert_int_equal(client_status(&in), 200);
    close(fd);
    buf_deinit(&in);
    /* Expect. */
    fd = client_connect(r.port, 0);
    snprintf(head, sizeof head,
             "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
             "Connection: close\r\nContent-Length: %zu\r\n\r\n",
             strlen(json));
    client_send(fd, head, strlen(head));
    buf_init(&in, 1 << 20);
    assert_true(client_read_until(fd, &in, 0, "100 Continue\r\n\r\n"));
    size_t from = in.n;
    client_send(fd, json, strlen(json));
    (void)client_read_until(fd, &in, 0, NULL);
    assert_true(str_find(buf_str(&in), STR("HTTP/1.1 200"), from) != (size_t)-1);
    close(fd);
    buf_deinit(&in);
    http_rig_stop(&r);
}

static void test_pipelining(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in, out;
    (void)state;
    engine_script_init(&script);
    script.prefill_ms = 5;
    http_rig_start(&r, &script, NULL);
    buf_init(&in, 1 << 20);
    buf_init(&out, 1 << 20);
    for (int i = 0; i < 3; i++) {
        char json[128];
        snprintf(json, sizeof json,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"number %d\"}],\"stream\":%s}", i,
                 i == 1 ? "true" : "false");
        buf_printf(&out,
                   "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                   "X-Request-Id: r%d\r\nContent-Length: %zu\r\n\r\n%s",
                   i, strlen(json), json);
    }
    buf_puts(&out, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    int fd = client_connect(r.port, 0);
    assert_true(client_send(fd, out.p, out.n));
    (void)client_read_until(fd, &in, 0, NULL);
    close(fd);
    size_t at = 0;
    static const char *const order[] = {"r0",     "number 0", "r1",       "\"role\"",
                                        "[DONE]", "r2",       "number 2", "{\"status\":\"ok\"}"};
    for (size_t i = 0; i < T9_COUNT(order); i++) {
        at = str_find(buf_str(&in), str_from(order[i]), at);
        if (at == (size_t)-1)
            fail_msg("no %s in its place: %.*s", order[i], (int)in.n, in.p);
    }
    buf_deinit(&in);
    buf_deinit(&out);
    http_rig_stop(&r);
}

/* Only the main thread takes signals, so that they wake whoever waits there; the library's threads
 * don't either. */
static void test_threads_block_signals(void **state)
{
    (void)state;
    struct engine_script script;
    struct http_rig r;
    struct dirent *entry;
    int n_threads = 0;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) {
        http_rig_stop(&r);
        skip();
    }
    while ((entry = readdir(tasks)) != NULL) {
        char path[64], line[256];
        uint64_t tid, blocked = 0;
        if (!num_parse_u64(str_from(entry->d_name), &tid) || tid == (uint64_t)getpid())
            continue;
        (void)snprintf(path, sizeof path, "/proc/self/task/%llu/status", (unsigned long long)tid);
        FILE *f = fopen(path, "r");
        if (!f)
            continue;
        while (fgets(line, sizeof line, f))
            if (strncmp(line, "SigBlk:", 7) == 0)
                blocked = strtoull(line + 7, NULL, 16);
        (void)fclose(f);
        assert_true(blocked >> (SIGTERM - 1) & 1);
        assert_true(blocked >> (SIGINT - 1) & 1);
        n_threads++;
    }
    (void)closedir(tasks);
    assert_true(n_threads > 4); /* the engine's, ours and the library's */
    http_rig_stop(&r);
}

static size_t chat_request_text(char *out, size_t cap, const char *json)
{
    return (size_t)snprintf(out, cap,
                            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                            "Content-Length: %zu\r\n\r\n%s",
                            strlen(json), json);
}

/* A client that vanishes in the queue, in prefill and in mid-answer, streaming or not. */
static uint64_t hang_up_ns(int queue_ms, int prefill_ms, const char *json, const char *seen_first)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in;
    char text[512];
    engine_script_init(&script);
    script.queue_ms = queue_ms;
    script.prefill_ms = prefill_ms;
    script.gap_ms = 300;
    http_rig_start(&r, &script, NULL);
    size_t n = chat_request_text(text, sizeof text, json);
    int fd = client_connect(r.port, 0);
    assert_true(client_send(fd, text, n));
    buf_init(&in, 1 << 20);
    assert_true(http_rig_wait_live(&r, 1, 2000));
    if (seen_first)
        assert_true(client_read_until(fd, &in, 0, seen_first));
    else
        clock_sleep_ms(50);
    uint64_t left_ns = clock_now_ns();
    close(fd);
    assert_true(http_rig_wait_live(&r, 0, 10000));
    assert_true(scripted_engine_cancels(r.engine) > 0);
    uint64_t took_ns = scripted_engine_cancel_ns(r.engine) - left_ns;
    buf_deinit(&in);
    http_rig_stop(&r);
    return took_ns;
}

/* A machine that does other things may hold a thread back, but not each time. */
static void hang_up(int queue_ms, int prefill_ms, const char *json, const char *seen_first)
{
    uint64_t took_ns = 0;
    for (int attempt = 0; attempt < 5; attempt++) {
        took_ns = hang_up_ns(queue_ms, prefill_ms, json, seen_first);
        if (took_ns <= 100000000u)
            return;
    }
    fail_msg("the hang-up was seen after %.1f ms", (double)took_ns / 1e6);
}

static void test_hang_up(void **state)
{
    const char *stream = HELLO "\"stream\":true}", *whole = HELLO "\"stream\":false}";
    (void)state;
    hang_up(60000, 0, stream, NULL);
    hang_up(60000, 0, whole, NULL);
    hang_up(0, 60000, stream, NULL);
    hang_up(0, 60000, whole, NULL);
    hang_up(0, 0, stream, "\"content\":\"i\"");
    hang_up(0, 0, whole, NULL);
}

static void test_close_at_any_byte(void **state)
{
    struct engine_script script;
    struct http_rig r;
    char text[512];
    (void)state;
    engine_script_init(&script);
    script.gap_ms = 1;
    http_rig_start(&r, &script, NULL);
    size_t n = chat_request_text(text, sizeof text, HELLO "\"stream\":true}");
    for (size_t i = 0; i <= n; i++) {
        int fd = client_connect(r.port, 0);
        assert_true(client_send(fd, text, i));
        if (i % 3 == 0) { /* with a reset instead of a goodbye */
            struct linger hard = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        }
        close(fd);
    }
    /* And after any number of bytes of the answer. */
    for (size_t i = 0; i < 60; i++) {
        char skip[64];
        int fd = client_connect(r.port, 0);
        assert_true(client_send(fd, text, n));
        assert_true(recv(fd, skip, i % sizeof skip + 1, MSG_WAITALL) > 0);
        close(fd);
    }
    assert_true(http_rig_wait_live(&r, 0, 2000));
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\n", 200, "ok");
    http_rig_stop(&r);
}

/* ---- many at once ---- */

struct one_client {
    uint16_t port;
    int idx, n_requests;
    bool ok;
};

static void *client_main(void *arg)
{
    struct one_client *c = arg;
    c->ok = true;
    for (int i = 0; i < c->n_requests && c->ok; i++) {
        char json[256], want[64];
        struct buf in, body, text;
        snprintf(want, sizeof want, "client %d says %d \xE6\x97\xA5", c->idx, i);
        snprintf(json, sizeof json,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"stream\":true}", want);
        client_chat(c->port, json, &in);
        client_body(&in, &body);
        stream_text(&body, &text);
        c->ok = client_status(&in) == 200 && client_has(&body, "[DONE]") && client_has(&text, want);
        buf_deinit(&in);
        buf_deinit(&body);
        buf_deinit(&text);
    }
    return NULL;
}

static void test_64_clients(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct one_client c[64];
    pthread_t t[64];
    (void)state;
    engine_script_init(&script);
    script.prefill_ms = 5;
    script.gap_ms = 1;
    http_rig_start(&r, &script, NULL);
    for (int i = 0; i < 64; i++) {
        c[i] = (struct one_client){r.port, i, 3, false};
        assert_int_equal(pthread_create(&t[i], NULL, client_main, &c[i]), 0);
    }
    for (int i = 0; i < 64; i++) {
        pthread_join(t[i], NULL);
        assert_true(c[i].ok);
    }
    http_rig_stop(&r);
}

/* A client that does not read delays nobody, and gets its whole answer when it does. */
static void test_slow_reader(void **state)
{
    enum { REPLY = 200000 };
    struct engine_script script;
    struct http_rig r;
    struct buf in, body, text;
    char request[512];
    (void)state;
    engine_script_init(&script);
    int32_t *reply = calloc(REPLY, sizeof *reply);
    for (int i = 0; i < REPLY; i++)
        reply[i] = 'a' + i % 26;
    script.reply = reply;
    script.n_reply = REPLY;
    script.max_length = REPLY * 2;
    http_rig_start(&r, &script, NULL);
    size_t n = chat_request_text(request, sizeof request, HELLO "\"stream\":true}");
    int fd = client_connect(r.port, 2048);
    assert_true(client_send(fd, request, n));
    assert_true(http_rig_wait_live(&r, 1, 2000));
    assert_true(
        http_rig_wait_live(&r, 0, 10000)); /* the engine ended long before the client read */
    uint64_t begin = clock_now_ns();
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\n", 200, "ok");
    assert_true(clock_now_ns() - begin < 1000000000u);
    buf_init(&in, (size_t)64 << 20);
    assert_true(client_read_until(fd, &in, 0, "[DONE]\n\n\r\n0\r\n\r\n"));
    close(fd);
    client_body(&in, &body);
    stream_text(&body, &text);
    assert_int_equal(text.n, REPLY);
    for (size_t i = 0; i < text.n; i++)
        assert_int_equal(text.p[i], 'a' + (int)(i % 26));
    buf_deinit(&in);
    buf_deinit(&body);
    buf_deinit(&text);
    http_rig_stop(&r);
    free(reply);
}

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
    client_chat(r.port, HELLO "\"stream\":true}", &in);
    size_t n = 0;
    for (size_t at = 0; (at = str_find(buf_str(&in), STR(": keep-alive\n\n"), at)) != (size_t)-1;
         at++)
        n++;
    assert_true(n >= 3 && n <= 9);
    assert_true(client_has(&in, "[DONE]"));
    buf_deinit(&in);
    http_rig_stop(&r);
}

static void *stop_main(void *arg)
{
    struct http_rig *r = arg;
    clock_sleep_ms(50);
    http_server_stop(r->server, 5000);
    return NULL;
}

static void test_drain(void **state)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in;
    pthread_t t;
    (void)state;
    engine_script_init(&script);
    script.prefill_ms = 1500;
    http_rig_start(&r, &script, NULL);
    int fd = open_chat(r.port, "");
    assert_true(http_rig_wait_live(&r, 1, 2000));
    assert_int_equal(pthread_create(&t, NULL, stop_main, &r), 0);
    while (!atomic_load(&r.server->stopping))
        clock_sleep_ms(1);
    /* Who comes now is told when to come back. */
    client_chat(r.port, HELLO "\"stream\":true}", &in);
    assert_int_equal(client_status(&in), 503);
    assert_true(client_has(&in, "server_stopping") && client_has(&in, "Retry-After: "));
    buf_deinit(&in);
    http_rig_expect(r.port, "GET /health HTTP/1.1\r\n", 503, "Retry-After: ");
    http_rig_expect(r.port, "GET /v1/state HTTP/1.1\r\n", 200, "\"stopping\":true");
    buf_init(&in, 1 << 20);
    assert_true(client_read_until(fd, &in, 0, "[DONE]"));
    close(fd);
    buf_deinit(&in);
    pthread_join(t, NULL);
    fd = client_connect(r.port, 0);
    assert_true(fd < 0);
    r.server = NULL; /* it has stopped */
    http_rig_stop(&r);
}

/* With nothing else to wait for. */
static void test_stop_tells_arriving(void **state)
{
    static const char *const halves[] = {
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{",
        "GET /health HTTP/1.1\r\nHost: local"};
    struct engine_script script;
    struct http_rig r;
    pthread_t t;
    int fds[2];
    (void)state;
    engine_script_init(&script);
    http_rig_start(&r, &script, NULL);
    for (size_t i = 0; i < T9_COUNT(halves); i++) {
        fds[i] = client_connect(r.port, 0);
        assert_true(client_send(fds[i], halves[i], strlen(halves[i])));
    }
    uint64_t begin = clock_now_ns();
    assert_int_equal(pthread_create(&t, NULL, stop_main, &r), 0);
    for (size_t i = 0; i < T9_COUNT(halves); i++) {
        struct buf in;
        buf_init(&in, 1 << 20);
        (void)client_read_until(fds[i], &in, 0, NULL);
        assert_int_equal(client_status(&in), 503);
        assert_true(client_has(&in, "server_stopping") && client_has(&in, "Retry-After: 1\r\n"));
        assert_true(client_has(&in, "Connection: close") && client_has(&in, "server_error"));
        close(fds[i]);
        buf_deinit(&in);
    }
    pthread_join(t, NULL);
    assert_true(clock_now_ns() - begin < 1500000000u); /* they left: it waits no longer */
    r.server = NULL;                                   /* it has stopped */
    http_rig_stop(&r);
}

static void *impatient_stop_main(void *arg)
{
    struct http_rig *r = arg;
    assert_true(http_rig_wait_live(r, 1, 2000));
    clock_sleep_ms(20);
    http_server_stop(r->server, 0);
    return NULL;
}

/* What the drain cut short says so, in a stream and in place of a whole answer. */
static void check_stop_ends(const char *fields, int status)
{
    struct engine_script script;
    struct http_rig r;
    struct buf in;
    pthread_t t;
    engine_script_init(&script);
    script.prefill_ms = 60000;
    http_rig_start(&r, &script, NULL);
    assert_int_equal(pthread_create(&t, NULL, impatient_stop_main, &r), 0);
    client_chat(r.port, fields, &in);
    assert_int_equal(client_status(&in), status);
    assert_true(client_has(&in, "the answer broke off: the server is stopping"));
    assert_true(client_has(&in, "\"code\":\"server_stopping\""));
    assert_false(client_has(&in, "[DONE]"));
    buf_deinit(&in);
    pthread_join(t, NULL);
    r.server = NULL; /* it has stopped */
    http_rig_stop(&r);
}

static void test_stop_ends_answers(void **state)
{
    (void)state;
    check_stop_ends(HELLO "\"stream\":true}", 200);
    check_stop_ends(HELLO "\"stream\":false}", 503);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_foreign_pages),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_configuration),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_context),
        cmocka_unit_test(test_engine_trouble),
        cmocka_unit_test(test_priority),
        cmocka_unit_test(test_queue_timeout),
        cmocka_unit_test(test_client_limit),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_metrics_format),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_pipelining),
        cmocka_unit_test(test_threads_block_signals),
        cmocka_unit_test(test_hang_up),
        cmocka_unit_test(test_close_at_any_byte),
        cmocka_unit_test(test_64_clients),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_keepalive),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_stop_ends_answers),
        cmocka_unit_test(test_stop_tells_arriving),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
