/*
 * tests/unit/protocol/tools/typing_test.c
 */
#include "protocol/tools/typing.h"

#include "base/clock.h"
#include "lib/t9test.h"

static const struct {
    const char *schema; /* of the argument "a" */
    const char *raw, *json;
} table[] = {
    /* a declared string is one as it stands */
    {"{\"type\":\"string\"}", "02134", "\"02134\""},
    {"{\"type\":\"string\"}", "1e5", "\"1e5\""},
    {"{\"type\":\"string\"}", " null ", "\" null \""},
    {"{\"type\":\"string\"}", "{\"a\":1}", "\"{\\\"a\\\":1}\""},
    {"{\"type\":\"string\"}", "\"x\"", "\"\\\"x\\\"\""},
    {"{\"type\":\"STRING\"}", "1", "\"1\""},
    {"{\"enum\":[\"1\",\"2\"]}", "1", "\"1\""},
    {"{\"const\":\"1\"}", "1", "\"1\""},
    /* numbers */
    {"{\"type\":\"integer\"}", " 12\n", "12"},
    {"{\"type\":\"integer\"}", "-9007199254740993", "-9007199254740993"},
    {"{\"type\":\"integer\"}", "123456789012345678901234567890", "123456789012345678901234567890"},
    {"{\"type\":\"integer\"}", "5.0", "5.0"},
    {"{\"type\":\"integer\"}", "5.5", "\"5.5\""},
    {"{\"type\":\"integer\"}", "twelve", "\"twelve\""},
    {"{\"type\":\"integer\"}", "02134", "\"02134\""},
    {"{\"type\":\"integer\"}", "true", "\"true\""},
    {"{\"type\":\"integer\"}", "", "\"\""},
    {"{\"type\":\"number\"}", "1e5", "1e5"},
    {"{\"type\":\"number\"}", "12", "12"},
    {"{\"type\":\"number\"}", "NaN", "\"NaN\""},
    {"{\"enum\":[1,2]}", "2", "2"},
    {"{\"const\":3}", "3", "3"},
    /* words */
    {"{\"type\":\"boolean\"}", "TRUE", "true"},
    {"{\"type\":\"boolean\"}", " False ", "false"},
    {"{\"type\":\"boolean\"}", "yes", "\"yes\""},
    {"{\"type\":\"null\"}", "None", "null"},
    /* nested values, Python's too */
    {"{\"type\":\"array\"}", "[1, \"b\", null]", "[1, \"b\", null]"},
    {"{\"type\":\"array\"}", "['a', True, None, \"it's\"]", "[\"a\", true, null, \"it's\"]"},
    {"{\"type\":\"array\"}", "[1,", "\"[1,\""},
    {"{\"type\":\"array\"}", "{}", "\"{}\""},
    {"{\"type\":\"object\"}", "{'k': 'a \"b\" \\'c\\' True'}", "{\"k\": \"a \\\"b\\\" 'c' True\"}"},
    {"{\"type\":\"object\"}", "{'k': 'open}", "\"{'k': 'open}\""},
    {"{\"properties\":{\"x\":{}}}", "{\"x\":1}", "{\"x\":1}"},
    {"{\"items\":{}}", "[1]", "[1]"},
    /* several types: the first that is no string, else a string */
    {"{\"type\":[\"string\",\"integer\"]}", "12", "12"},
    {"{\"type\":[\"string\",\"integer\"]}", "02134", "\"02134\""},
    {"{\"type\":[\"string\",\"null\"]}", "null", "null"},
    {"{\"type\":\"string\",\"nullable\":true}", "null", "null"},
    {"{\"type\":\"string\",\"nullable\":true}", "12", "\"12\""},
    {"{\"type\":\"string\",\"default\":null}", "null", "null"},
    {"{\"type\":\"number\",\"default\":null}", "None", "null"},
    {"{\"type\":\"string\",\"default\":\"a\"}", "null", "\"null\""},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}", "None", "null"},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}", "[1]", "[1]"},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\"}]}", "12", "\"12\""},
    {"{\"allOf\":[{\"type\":[\"string\",\"integer\"]},{\"type\":\"string\"}]}", "12", "\"12\""},
    {"{\"type\":\"number\",\"enum\":[1,2]}", "1", "1"},
    /* references */
    {"{\"$ref\":\"#/$defs/text\"}", "12", "\"12\""},
    {"{\"$ref\":\"#/$defs/far\"}", "12", "\"12\""},
    {"{\"anyOf\":[{\"$ref\":\"#/$defs/far\"},{\"type\":\"null\"}]}", "12", "\"12\""},
    {"{\"$ref\":\"#/$defs/loop\"}", "12", "12"},
    {"{\"$ref\":\"#/$defs/none\"}", "12", "12"},
    {"{\"$ref\":\"https://example.org/x\"}", "12", "12"},
    /* nothing is known */
    {"{}", "12", "12"},
    {"{}", "twelve", "\"twelve\""},
    {"true", "[1]", "[1]"},
    {"{\"type\":\"string\",\"const\":1}", "12", "12"},
    {"{\"type\":7}", "12", "12"},
    {"{\"type\":\"date\"}", "12", "12"},
};

static yyjson_doc *parse(const char *text)
{
    yyjson_doc *doc = NULL;
    struct t9_err err = {0};
    if (json_parse(&doc, str_from(text), JSON_LIMITS_REQUEST, &err) != T9_STATUS_OK)
        fail_msg("%s: %s", text, err.msg);
    return doc;
}

static void check(yyjson_val *schema, const char *what, const char *raw, const char *json)
{
    struct buf out;
    buf_init(&out, 1 << 16);
    typing_write(&out, typing_of(schema, STR("a")), str_from(raw));
    if (!str_eqz(buf_str(&out), json))
        fail_msg("%s: %s is " STR_FMT ", not %s", what, raw, STR_ARG(buf_str(&out)), json);
    buf_deinit(&out);
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"type\":\"object\",\"properties\":{\"a\":%s},\"$defs\":{\"text\":{\"type\":"
                 "\"string\"},\"far\":{\"$ref\":\"#/$defs/text\"},\"loop\":{\"$ref\":"
                 "\"#/$defs/loop\"}}}",
                 table[i].schema);
        yyjson_doc *doc = parse(text);
        check(yyjson_doc_get_root(doc), table[i].schema, table[i].raw, table[i].json);
        yyjson_doc_free(doc);
    }
}

/* The argument is found wherever a schema of objects may name it. */
static void test_members(void **state)
{
    static const char *const texts[] = {
        "{\"additionalProperties\":{\"type\":\"string\"}}",
        "{\"allOf\":[{\"properties\":{\"b\":{}}},{\"properties\":{\"a\":{\"type\":\"string\"}}}]}",
        "{\"anyOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}}}]}",
        "{\"$ref\":\"#/$defs/o\",\"$defs\":{\"o\":{\"properties\":{\"a\":{\"type\":\"string\"}}}}}",
        "{\"properties\":{\"a\":{\"$ref\":\"#/properties/b~1c\"},\"b/c\":{\"type\":\"string\"}}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        yyjson_doc *doc = parse(texts[i]);
        check(yyjson_doc_get_root(doc), texts[i], "12", "\"12\"");
        yyjson_doc_free(doc);
    }
    check(NULL, "no schema", "12", "12");
}

static void test_declares(void **state)
{
    yyjson_doc *doc = parse("{\"properties\":{\"a\":{}}}");
    (void)state;
    assert_true(typing_declares(yyjson_doc_get_root(doc), STR("a")));
    assert_false(typing_declares(yyjson_doc_get_root(doc), STR("b")));
    assert_false(typing_declares(NULL, STR("a")));
    yyjson_doc_free(doc);
}

/* Schemas that refer to themselves many times over take no long time. */
static void test_hostile(void **state)
{
    struct buf text;
    (void)state;
    buf_init(&text, 1 << 24);
    buf_puts(&text, "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/d0\"}},\"$defs\":{");
    for (int i = 0; i < 200; i++) {
        buf_printf(&text, "%s\"d%d\":{\"anyOf\":[", i ? "," : "", i);
        for (int k = 0; k < 50; k++)
            buf_printf(&text, "%s{\"$ref\":\"#/$defs/d%d\"}", k ? "," : "", (i + 1 + k) % 200);
        buf_puts(&text, "]}");
    }
    buf_puts(&text, "}}");
    buf_putc(&text, '\0');
    assert_false(text.failed);
    yyjson_doc *doc = parse(text.p);
    uint64_t start = clock_now_ns();
    for (int i = 0; i < 20; i++)
        assert_int_equal(typing_of(yyjson_doc_get_root(doc), STR("a")), TYPING_ANY);
    assert_true(clock_now_ns() - start < 2000000000u);
    yyjson_doc_free(doc);
    buf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_declares),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
