/*
 * The page's files over real sockets, with a table of our own in place of the built one: what is
 * sent to whom, in which coding, and when nothing is sent again.
 */
#include "lib/t9test.h"

#include "lib/http_rig.h"

#include "http/page.c" /* with the table below instead of the archive's */

static const uint8_t plain[] = "<!doctype html>the page";
static const uint8_t packed[] = {0x1f, 0x8b, 8, 0, 'p', 'a', 'c', 'k'};
static const uint8_t code[] = "let a;";

const struct page_file page_files[] = {
    {"/", "text/html; charset=utf-8", "\"aa\"", false, plain, sizeof plain - 1, packed,
     sizeof packed},
    {"/assets/app-1.js", "text/javascript", "\"bb\"", true, code, sizeof code - 1, NULL, 0},
};
const size_t page_n_files = T9_COUNT(page_files);

static void begin(struct http_rig *r, const char *const *key)
{
    struct engine_script script;
    struct http_params p;
    engine_script_init(&script);
    http_params_init(&p);
    p.api_keys = key;
    p.n_api_keys = key ? 1 : 0;
    http_rig_start(r, &script, &p);
}

/* `yes` must be in the reply, `no` must not; either may be NULL. */
static void expect(const struct http_rig *r, const char *head, int status, const char *yes,
                   const char *no)
{
    struct buf in;
    client_exchange(r->port, head, (str){0}, &in);
    if (client_status(&in) != status)
        fail_msg("%s gave %d, not %d", head, client_status(&in), status);
    if (yes && str_find(buf_str(&in), str_from(yes), 0) == (size_t)-1)
        fail_msg("%s did not give \"%s\" but %.*s", head, yes, (int)in.n, in.p);
    if (no && str_find(buf_str(&in), str_from(no), 0) != (size_t)-1)
        fail_msg("%s gave \"%s\": %.*s", head, no, (int)in.n, in.p);
    buf_deinit(&in);
}

#define HTML "Accept: text/html\r\n"

static void test_files(void **state)
{
    struct http_rig r;
    (void)state;
    begin(&r, NULL);
    expect(&r, "GET / HTTP/1.1\r\n" HTML, 200, "<!doctype html>the page", "Content-Encoding");
    expect(&r, "GET /?x=1 HTTP/1.1\r\n" HTML, 200, "default-src 'none'", "unsafe");
    expect(&r, "GET / HTTP/1.1\r\n" HTML, 200, "Cache-Control: no-cache", "immutable");
    expect(&r, "GET / HTTP/1.1\r\n" HTML, 200, "X-Content-Type-Options: nosniff", NULL);
    expect(&r, "GET / HTTP/1.1\r\n" HTML "Accept-Encoding: br, gzip\r\n", 200,
           "Content-Encoding: gzip", "the page");
    expect(&r, "GET / HTTP/1.1\r\n" HTML "Accept-Encoding: gzip;q=0\r\n", 200, "the page",
           "Content-Encoding");
    expect(&r, "HEAD / HTTP/1.1\r\n" HTML, 200, "Content-Length: 23", "the page");
    expect(&r, "GET / HTTP/1.1\r\n" HTML "If-None-Match: \"zz\", W/\"aa\"\r\n", 304, "ETag: \"aa\"",
           "the page");
    expect(&r, "GET / HTTP/1.1\r\n" HTML "If-None-Match: \"zz\"\r\n", 200, "the page", NULL);
    expect(&r, "GET / HTTP/1.1\r\n", 200, "tempo9 is running", "<!doctype");
    expect(&r, "GET / HTTP/1.1\r\nAccept: */*\r\n", 200, "in a browser", "no page");
    expect(&r, "GET /assets/app-1.js HTTP/1.1\r\nAccept-Encoding: gzip\r\n", 200, "immutable",
           "Content-Encoding");
    expect(&r, "GET /assets/app-1.js HTTP/1.1\r\n", 200, "let a;", NULL);
    expect(&r, "GET /assets/app-2.js HTTP/1.1\r\n", 404, "unknown_path", "let a;");
    expect(&r, "GET /assets/ HTTP/1.1\r\n", 404, "unknown_path", NULL);
    expect(&r, "GET /assets/../assets/app-1.js HTTP/1.1\r\n", 404, "unknown_path", NULL);
    expect(&r, "GET /assets//etc/passwd HTTP/1.1\r\n", 404, "unknown_path", NULL);
    expect(&r, "POST / HTTP/1.1\r\nContent-Length: 0\r\n", 405, "Allow: GET, HEAD", NULL);
    expect(&r, "DELETE /assets/app-1.js HTTP/1.1\r\n", 405, "Allow: GET, HEAD", NULL);
    http_rig_stop(&r);
}

static void test_paths_are_whole(void **state)
{
    struct http_rig r;
    (void)state;
    begin(&r, NULL);
    expect(&r, "GET /%00 HTTP/1.1\r\n" HTML, 404, "unknown_path", "the page");
    expect(&r, "GET /%00x HTTP/1.1\r\n" HTML, 404, "unknown_path", "the page");
    expect(&r, "GET /health%00 HTTP/1.1\r\n", 404, "unknown_path", NULL);
    expect(&r, "GET /%68ealth HTTP/1.1\r\n", 200, "ok", NULL);
    expect(&r, "GET /health%2 HTTP/1.1\r\n", 404, "unknown_path", NULL);
    expect(&r, "GET /health%zz HTTP/1.1\r\n", 404, "unknown_path", NULL);
    http_rig_stop(&r);
}

/* The page itself is public, so that it can ask for the key; what it shows is not. */
static void test_key(void **state)
{
    static const char *const key = "secret";
    struct http_rig r;
    (void)state;
    begin(&r, &key);
    expect(&r, "GET / HTTP/1.1\r\n" HTML, 200, "the page", NULL);
    expect(&r, "GET /assets/app-1.js HTTP/1.1\r\n", 200, "let a;", NULL);
    expect(&r, "GET /v1/state HTTP/1.1\r\n", 401, "invalid_api_key", NULL);
    http_rig_stop(&r);
}

static void test_headers(void **state)
{
    (void)state;
    static const char *const yes[] = {
        "gzip", "br, gzip",          "GZIP ; q=0.5", "x-gzip",     "deflate,,gzip",
        "*",    "br;q=1.0, *;q=0.1", "gzip;q=0.001", "gzip;foo=1", "gzip;q="};
    static const char *const no[] = {"",      "br",    "gzip;q=0",  "gzip; q=0.000", "*;q=0",
                                     "gzipx", "xgzip", "gzip;Q=0.", "*, gzip;q=0",   "identity",
                                     ",;,",   ";q=1"};
    for (size_t i = 0; i < T9_COUNT(yes); i++)
        if (!page_takes_gzip(yes[i]))
            fail_msg("\"%s\" takes gzip", yes[i]);
    for (size_t i = 0; i < T9_COUNT(no); i++)
        if (page_takes_gzip(no[i]))
            fail_msg("\"%s\" does not take gzip", no[i]);
    assert_false(page_takes_gzip(NULL));
    assert_true(page_takes_html("application/xml, Text/HTML;q=0.9"));
    assert_false(page_takes_html("*/*"));
    assert_false(page_takes_html("text/html;q=0"));
    assert_false(page_takes_html(NULL));
    assert_true(page_has_etag("*", "\"a\""));
    assert_true(page_has_etag("\"b\", \"a\"", "\"a\""));
    assert_true(page_has_etag("W/\"a\"", "\"a\""));
    assert_false(page_has_etag("a", "\"a\""));
    assert_false(page_has_etag("\"ab\"", "\"a\""));
    assert_false(page_has_etag("", "\"a\""));
    assert_false(page_has_etag(NULL, "\"a\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_paths_are_whole),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
