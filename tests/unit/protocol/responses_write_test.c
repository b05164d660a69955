/*
 * The text of a custom tool's call, which comes as JSON in pieces: wherever it is cut, it is read
 * as when it comes whole.
 */
#include "lib/t9test.h"

#include "protocol/responses_write.c"

/* Reads it whole, and with every cut; `says` is what comes out. */
static void reads(const char *args, const char *says)
{
    size_t n = strlen(args);
    for (size_t cut = 0; cut <= n; cut++) {
        struct text_arg t = {0};
        struct buf out;
        buf_init(&out, 1 << 16);
        read_text_arg(&t, (str){args, cut}, &out);
        end_text_arg(&t, (str){args, n}, &out);
        if (!str_eqz(buf_str(&out), says))
            fail_msg("%s, cut at %zu: %.*s", args, cut, (int)out.n, out.p);
        buf_deinit(&out);
    }
    /* And byte by byte. */
    struct text_arg t = {0};
    struct buf out;
    buf_init(&out, 1 << 16);
    for (size_t at = 0; at <= n; at++)
        read_text_arg(&t, (str){args, at}, &out);
    end_text_arg(&t, (str){args, n}, &out);
    assert_true(str_eqz(buf_str(&out), says));
    buf_deinit(&out);
}

static void test_text(void **state)
{
    (void)state;
    reads("{\"input\":\"\"}", "");
    reads(" { \"input\" : \"a b\" }\n", "a b");
    reads("{\"input\": \"\\\"q\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"q\"\\/\b\f\n\r\t");
    reads("{\"input\": \"\\u00e9\\ud83d\\ude00\\u65e5 \xe6\x97\xa5\"}",
          "\xc3\xa9\xf0\x9f\x98\x80\xe6\x97\xa5 \xe6\x97\xa5");
    reads("{\"input\": \"a\", \"more\": 1}", "a");
    /* Halves of a pair. */
    reads("{\"input\": \"\\ud83dabcdefgh\"}", "\xef\xbf\xbd"
                                              "abcdefgh");
    reads("{\"input\": \"\\ud83d\\nx\"}", "\xef\xbf\xbd\nx");
    reads("{\"input\": \"\\ud83d\\u0041x\"}", "\xef\xbf\xbd"
                                              "Ax");
    reads("{\"input\": \"\\ude00x\"}", "\xef\xbf\xbdx");
    /* Cut off by the end of the answer. */
    reads("{\"input\": \"abc", "abc");
    reads("{\"input\": \"abc\\u00", "abc");
    reads("{\"input\": \"abc\\", "abc");
}

static void test_other(void **state)
{
    (void)state;
    reads("{}", "");
    reads("", "");
    reads("{\"patch\": \"x\"}", "{\"patch\": \"x\"}");
    reads("{\"a\": 1, \"input\": \"x\"}", "x");
    reads("{\"input\": 7}", "{\"input\": 7}");
    reads("not JSON", "not JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
