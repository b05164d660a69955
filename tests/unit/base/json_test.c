/* Tests of base/json.c: limits, refusals, getters and the writer. */
#include "base/json.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "lib/t9test.h"

#include <math.h>

static t9_status parse(yyjson_doc **doc, const char *text, struct t9_err *err)
{
    return json_parse(doc, str_from(text), JSON_LIMITS_REQUEST, err);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",          "{",    "[1,]",     "{\"a\":1,}", "1 2", "// c\n1",
        "NaN",       "\x01", "\"\x80\"", "\"\n\"",     "01",  "\"\\ud800\"",
        "{\"a\" 1}", "'a'",  "[1]]",     "nul",        "+1",  "\357\273\2771",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        yyjson_doc *doc;
        struct t9_err err = {0};
        assert_int_equal(parse(&doc, bad[i], &err), T9_STATUS_INVALID);
        assert_null(doc);
        assert_non_null(strstr(err.msg, "at byte"));
    }
}

static void test_limits(void **state)
{
    (void)state;
    yyjson_doc *doc;
    struct t9_err err;
    struct json_limits lim = {.max_bytes = 100, .max_depth = 3, .max_values = 5};
    assert_int_equal(json_parse(&doc, STR("[[[1]]]"), lim, &err), T9_STATUS_OK);
    yyjson_doc_free(doc);
    assert_int_equal(json_parse(&doc, STR("[[[[1]]]]"), lim, &err), T9_STATUS_TOO_LARGE);
    assert_string_equal(err.msg, "JSON nests deeper than 3 levels at byte 3");
    assert_int_equal(json_parse(&doc, STR("[[],[],[],[]]"), lim, &err), T9_STATUS_OK);
    assert_int_equal(yyjson_doc_get_val_count(doc), 5);
    yyjson_doc_free(doc);
    assert_int_equal(json_parse(&doc, STR("[1,\"\\\"[[[[,\",null,{}]"), lim, &err), T9_STATUS_OK);
    assert_int_equal(yyjson_doc_get_val_count(doc), 5);
    yyjson_doc_free(doc);
    assert_int_equal(json_parse(&doc, STR("{\"a\":1,\"b\":[1]}"), lim, &err), T9_STATUS_TOO_LARGE);
    char big[101];
    memset(big, ' ', sizeof big);
    big[0] = '1';
    assert_int_equal(json_parse(&doc, (str){big, 101}, lim, &err), T9_STATUS_TOO_LARGE);
    assert_int_equal(json_parse(&doc, (str){big, 100}, lim, &err), T9_STATUS_OK);
    yyjson_doc_free(doc);
    mem_test_fail_nth(1);
    assert_int_equal(json_parse(&doc, STR("[1]"), lim, &err), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
}

static void test_getters(void **state)
{
    (void)state;
    yyjson_doc *doc;
    struct t9_err err;
    assert_int_equal(parse(&doc, "{\"a\":1,\"b\":\"x\\u0000y\",\"a\":2,\"n\":null}", &err),
                     T9_STATUS_OK);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_int_equal(yyjson_get_int(json_get(root, "a")), 2);
    assert_true(str_eq(json_str(json_get(root, "b")), STR("x\0y")));
    assert_null(json_get(root, "c"));
    assert_null(json_get(NULL, "c"));
    assert_null(json_get(json_get(root, "a"), "c"));
    assert_null(json_str(json_get(root, "a")).p);
    assert_null(json_str(NULL).p);
    assert_true(yyjson_is_null(json_get(root, "n")));
    yyjson_doc_free(doc);
}

static void check_str(str in, const char *want)
{
    struct buf b;
    buf_init(&b, 1000);
    json_write_str(&b, in);
    assert_true(str_eqz(buf_str(&b), want));
    buf_deinit(&b);
}

static void test_writer(void **state)
{
    (void)state;
    check_str(STR("a\"b\\c/\n\r\t\b\f\x01\x1f\x7f"),
              "\"a\\\"b\\\\c/\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\"");
    check_str(STR("\0"), "\"\\u0000\"");
    check_str(STR("\xC3\xA9\xF0\x9F\x98\x80"), "\"\xC3\xA9\xF0\x9F\x98\x80\"");
    check_str(STR("\xFFx\xE2\x82\"\xF0\x9F\x98"), "\"\xEF\xBF\xBDx\xEF\xBF\xBD\\\"\xEF\xBF\xBD\"");
    check_str((str){NULL, 0}, "\"\"");
    struct buf b;
    buf_init(&b, 1000);
    json_write_key(&b, "k\n");
    json_write_i64(&b, INT64_MIN);
    json_write_f64(&b, 0.1);
    json_write_f64(&b, (double)NAN);
    json_write_f64(&b, HUGE_VAL);
    json_write_bool(&b, true);
    assert_true(str_eqz(buf_str(&b), "\"k\\n\":-92233720368547758080.1nullnulltrue"));
    buf_deinit(&b);
}

static void test_write_val(void **state)
{
    (void)state;
    static const char text[] = "{\"z\":[1,-2,0.5,1e+30,true,false,null],\"a\":{\"\":"
                               "\"\xC3\xA9\\n\"},\"z\":18446744073709551615}";
    yyjson_doc *doc;
    struct t9_err err;
    struct buf b;
    buf_init(&b, 1000);
    assert_int_equal(parse(&doc, text, &err), T9_STATUS_OK);
    json_write_val(&b, yyjson_doc_get_root(doc));
    assert_false(b.failed);
    yyjson_doc *again;
    assert_int_equal(json_parse(&again, buf_str(&b), JSON_LIMITS_REQUEST, &err), T9_STATUS_OK);
    assert_true(yyjson_equals(yyjson_doc_get_root(doc), yyjson_doc_get_root(again)));
    assert_true(str_has_prefix(buf_str(&b), STR("{\"z\":[1,-2,0.5,")));
    yyjson_doc_free(again);
    buf_clear(&b);
    mem_test_fail_nth(1);
    json_write_val(&b, yyjson_doc_get_root(doc));
    mem_test_fail_nth(0);
    assert_true(b.failed);
    yyjson_doc_free(doc);
    buf_deinit(&b);
}

/* Whatever bytes come in, a written string parses back to their sanitised form. */
static void test_random_strings(void **state)
{
    (void)state;
    uint64_t seed = 5;
    struct buf b;
    struct buf clean;
    buf_init(&b, 10000);
    buf_init(&clean, 10000);
    for (int i = 0; i < 3000; i++) {
        char in[40];
        size_t n = test_random(&seed) % sizeof in;
        for (size_t k = 0; k < n; k++) {
            uint64_t r = test_random(&seed);
            in[k] = (char)(r & 1 ? 0x80 | (r >> 8 & 0x7F) : r >> 8);
        }
        buf_clear(&b);
        buf_clear(&clean);
        json_write_str(&b, (str){in, n});
        utf8_sanitize(&clean, (str){in, n});
        yyjson_doc *doc;
        struct t9_err err;
        assert_int_equal(json_parse(&doc, buf_str(&b), JSON_LIMITS_REQUEST, &err), T9_STATUS_OK);
        assert_true(str_eq(json_str(yyjson_doc_get_root(doc)), buf_str(&clean)));
        yyjson_doc_free(doc);
    }
    buf_deinit(&b);
    buf_deinit(&clean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),  cmocka_unit_test(test_limits),
        cmocka_unit_test(test_getters),   cmocka_unit_test(test_writer),
        cmocka_unit_test(test_write_val), cmocka_unit_test(test_random_strings),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
