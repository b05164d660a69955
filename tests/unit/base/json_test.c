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

static void refuse_twin(const char *text, const char *message)
{
    yyjson_doc *doc;
    struct t9_err err = {0};
    assert_int_equal(parse(&doc, text, &err), T9_STATUS_INVALID);
    assert_null(doc);
    assert_string_equal(err.msg, message);
}

static void test_twin_keys(void **state)
{
    (void)state;
    refuse_twin("{\"a\":1,\"b\":2,\"a\":1}", "the key \"a\" stands twice in the outermost object");
    refuse_twin("{\"a\":1,\"\\u0061\":1}", "the key \"a\" stands twice in the outermost object");
    refuse_twin("{\"\":1,\"\":1}", "the key \"\" stands twice in the outermost object");
    refuse_twin("[0,{\"a\":{}},[[],{\"x y\":{\"k\\n\":1,\"k\\n\":1}}]]",
                "the key \"k\\n\" stands twice in [2][1].\"x y\"");
    refuse_twin("{\"a\":[{\"x\":1},{\"x\":1,\"y\":{},\"x\":2}],\"c\":{\"x\":1}}",
                "the key \"x\" stands twice in a[1]");
    refuse_twin("{\"tools\":[{\"parameters\":{\"p\":{\"type\":1,\"type\":1}}}]}",
                "the key \"type\" stands twice in tools[0].parameters.p");
    yyjson_doc *doc;
    struct t9_err err;
    assert_int_equal(
        parse(&doc, "[{\"a\":{\"a\":{\"a\":1}},\"aa\":1,\"A\":1},{\"a\":\"a\"}]", &err),
        T9_STATUS_OK);
    yyjson_doc_free(doc);
}

/* An object with n different keys, and "k<twin>" once more where twin >= 0. */
static t9_status parse_large(size_t n, long twin, struct t9_err *err)
{
    struct buf b;
    yyjson_doc *doc;
    buf_init(&b, 64u << 20);
    for (size_t i = 0; i < n; i++)
        buf_printf(&b, "%s\"k%zu\":%zu", i ? "," : "{\"x\":{", i, i);
    if (twin >= 0)
        buf_printf(&b, ",\"k%ld\":0", twin);
    buf_puts(&b, "}}");
    t9_status s = json_parse(&doc, buf_str(&b), JSON_LIMITS_REQUEST, err);
    yyjson_doc_free(doc);
    buf_deinit(&b);
    return s;
}

static void test_large_objects(void **state)
{
    (void)state;
    struct t9_err err;
    for (size_t n = 14; n < 19; n++) {
        assert_int_equal(parse_large(n, -1, &err), T9_STATUS_OK);
        assert_int_equal(parse_large(n, 0, &err), T9_STATUS_INVALID);
        assert_int_equal(parse_large(n, (long)n - 1, &err), T9_STATUS_INVALID);
    }
    assert_int_equal(parse_large(1000000, -1, &err), T9_STATUS_OK);
    assert_int_equal(parse_large(1000000, 777777, &err), T9_STATUS_INVALID);
    assert_string_equal(err.msg, "the key \"k777777\" stands twice in x");
    mem_test_fail_nth(2); /* after the document itself */
    assert_int_equal(json_parse(&(yyjson_doc *){NULL},
                                STR("{\"0\":0,\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,"
                                    "\"7\":0,\"8\":0,\"9\":0,\"a\":0,\"b\":0,\"c\":0,\"d\":0,"
                                    "\"e\":0,\"f\":0,\"g\":0}"),
                                JSON_LIMITS_REQUEST, &err),
                     T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
}

/* What stands in a message is short, whole characters and without control characters. */
static void test_long_twins(void **state)
{
    (void)state;
    struct buf b;
    struct t9_err err;
    yyjson_doc *doc;
    buf_init(&b, 1 << 20);
    for (int depth = 0; depth < 100; depth++) {
        buf_puts(&b, "{\"");
        for (int i = 0; i < 100; i++)
            buf_puts(&b, "\xF0\x9F\x98\x80");
        buf_puts(&b, "\":");
    }
    buf_puts(&b, "{\"\\u0001\":1,\"\\u0001\":1}");
    for (int depth = 0; depth < 100; depth++)
        buf_putc(&b, '}');
    assert_int_equal(json_parse(&doc, buf_str(&b), JSON_LIMITS_REQUEST, &err), T9_STATUS_INVALID);
    assert_true(utf8_valid(str_from(err.msg)));
    assert_non_null(strstr(err.msg, "\\u0001"));
    assert_true(str_has_suffix(str_from(err.msg), STR("...")));
    buf_deinit(&b);
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
    assert_int_equal(parse(&doc, "{\"b\":\"x\\u0000y\",\"a\":2,\"n\":null}", &err), T9_STATUS_OK);
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
                               "\"\xC3\xA9\\n\"},\"y\":18446744073709551615}";
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
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_twin_keys),      cmocka_unit_test(test_large_objects),
        cmocka_unit_test(test_long_twins),     cmocka_unit_test(test_getters),
        cmocka_unit_test(test_writer),         cmocka_unit_test(test_write_val),
        cmocka_unit_test(test_random_strings),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
