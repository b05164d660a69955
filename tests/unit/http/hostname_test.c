/* Tests of http/hostname.c: every form that is one, and many that are none. */
#include "http/hostname.h"

#include "lib/t9test.h"

static void good(const char *text, const char *name, int port)
{
    struct hostname h;
    if (!hostname_parse(str_from(text), &h))
        fail_msg("\"%s\" is refused", text);
    assert_string_equal(h.name, name);
    assert_int_equal(h.has_port ? h.port : -1, port);
}

static void test_good(void **state)
{
    (void)state;
    good("localhost", "localhost", -1);
    good("LocalHost:80", "localhost", 80);
    good("127.0.0.1:11435", "127.0.0.1", 11435);
    good("a-b_c.example.", "a-b_c.example.", -1);
    good("[::1]", "::1", -1);
    good("[::1]:65535", "::1", 65535);
    good("[FE80::1]:0", "fe80::1", 0);
}

static void test_bad(void **state)
{
    static const char *const bad[] = {"",        ":",         ":80",    "a:",       "a:b",
                                      "a:99999", "a:123456",  "a:-1",   "a:+1",     "a:1 ",
                                      " a",      "a b",       "u@a",    "a/b",      "a?b",
                                      "a#b",     "[::1",      "::1",    "[]",       "[]:1",
                                      "[a]",     "[1.2.3.4]", "[::1]x", "[::1]:",   "[::1] :1",
                                      "a,b",     "a\tb",      "a\\b",   "\xC3\xA9", "a:1:2",
                                      "[[::1]]", "%31"};
    struct hostname h;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (hostname_parse(str_from(bad[i]), &h))
            fail_msg("\"%s\" is taken", bad[i]);
    assert_false(hostname_parse((str){"a\0b", 3}, &h));
    char longest[HOSTNAME_BYTES_MAX + 2];
    memset(longest, 'a', sizeof longest);
    assert_true(hostname_parse((str){longest, HOSTNAME_BYTES_MAX}, &h));
    assert_false(hostname_parse((str){longest, HOSTNAME_BYTES_MAX + 1}, &h));
}

static void test_origin(void **state)
{
    struct hostname h;
    bool https;
    (void)state;
    assert_true(origin_parse(STR("http://localhost:5173"), &https, &h));
    assert_false(https);
    assert_int_equal(h.port, 5173);
    assert_true(origin_parse(STR("https://app.example"), &https, &h));
    assert_true(https && !h.has_port);
    assert_false(origin_parse(STR("null"), &https, &h));
    assert_false(origin_parse(STR("ftp://a"), &https, &h));
    assert_false(origin_parse(STR("http://"), &https, &h));
    assert_false(origin_parse(STR("http://a/"), &https, &h));
    assert_false(origin_parse(STR("http://a@b"), &https, &h));
    assert_false(origin_parse(STR("file://"), &https, &h));
}

static void test_loopback(void **state)
{
    (void)state;
    assert_true(hostname_is_loopback("localhost") && hostname_is_loopback("LOCALHOST"));
    assert_true(hostname_is_loopback("127.0.0.1") && hostname_is_loopback("127.9.8.7"));
    assert_true(hostname_is_loopback("::1"));
    assert_false(hostname_is_loopback("127.evil.example"));
    assert_false(hostname_is_loopback("127.0.0.1.evil.example"));
    assert_false(hostname_is_loopback("localhost.evil.example"));
    assert_false(hostname_is_loopback("0.0.0.0") || hostname_is_loopback("::"));
    assert_false(hostname_is_loopback("10.0.0.1") || hostname_is_loopback("") ||
                 hostname_is_loopback("127.1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_bad),
                                       cmocka_unit_test(test_origin),
                                       cmocka_unit_test(test_loopback)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
