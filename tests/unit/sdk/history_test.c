/*
 * Messages: read, arranged for what a template can take, written as its arguments.
 */
#include "lib/t9test.h"

#include "base/mem.h"
#include "sdk/history.h"

static void test_written(void **state)
{
    static const char messages[] =
        "[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
        "\"arguments\":\"{\\\"x\\\":1}\"}},{\"function\":{\"name\":\"g\",\"arguments\":[5]}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"42\"}]";
    struct turn *turns = NULL;
    struct history h;
    struct arena arena;
    struct buf b;
    yyjson_doc *doc = NULL;
    size_t n = 0;
    (void)state;
    buf_init(&b, 1 << 16);
    arena_init(&arena, 1 << 16);
    assert_int_equal(json_parse(&doc, STR(messages), JSON_LIMITS_REQUEST, NULL), T9_STATUS_OK);
    assert_int_equal(turns_read(&turns, &n, yyjson_doc_get_root(doc), &arena, NULL), T9_STATUS_OK);
    assert_int_equal(n, 3);
    assert_int_equal(turns[0].role, TURN_ROLE_SYSTEM);
    assert_true(str_eqz(turns[0].content, "a\nb"));
    assert_int_equal(turns[1].content.n, 0);
    assert_int_equal(
        turns_arrange(
            &h, turns, n,
            (struct history_caps){.system = true, .later_system = true, .user_twice = true}, NULL),
        T9_STATUS_OK);
    turns_write(&h, &b);
    buf_putc(&b, 0);
    assert_string_equal(
        b.p,
        "[{\"role\":\"system\",\"content\":\"a\\nb\"},{\"role\":\"assistant\",\"content\":null,"
        "\"tool_calls\":[{\"type\":\"function\",\"id\":\"c1\",\"function\":{\"name\":\"f\","
        "\"arguments\":{\"x\":1}}},{\"type\":\"function\",\"function\":{\"name\":\"g\","
        "\"arguments\":[5]}}]},{\"role\":\"tool\",\"content\":\"42\",\"name\":\"f\",\"tool_call_"
        "id\":\"c1\"}]");
    buf_deinit(&b);
    turns_deinit(&h);
    yyjson_doc_free(doc);
    arena_deinit(&arena);
}

/* Roles and contents as letters ("s1u2") arranged for a template; the result in the same form. */
static void arrange(const char *in, struct history_caps caps, const char *want)
{
    struct turn m[16] = {0};
    size_t n = strlen(in) / 2;
    struct history h;
    char got[512];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        m[i].role = in[2 * i] == 's'   ? TURN_ROLE_SYSTEM
                    : in[2 * i] == 'u' ? TURN_ROLE_USER
                                       : TURN_ROLE_ASSISTANT;
        m[i].content = (str){in + 2 * i + 1, 1};
    }
    assert_int_equal(turns_arrange(&h, m, n, caps, NULL), T9_STATUS_OK);
    for (size_t i = 0; i < h.n_entries; i++)
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%c(" STR_FMT ")", i ? " " : "",
                               turn_role_name(h.entries[i].role)[0], STR_ARG(h.entries[i].content));
    assert_string_equal(got, want);
    turns_deinit(&h);
}

static void test_arrangement(void **state)
{
    const struct history_caps all = {.system = true, .later_system = true, .user_twice = true},
                              none = {0};
    const struct history_caps head = {.system = true, .user_twice = true},
                              strict = {.system = true};
    (void)state;
    arrange("s1s2u3", all, "s(1\n\n2) u(3)");
    arrange("u1s2u3", all, "u(1) s(2) u(3)");
    arrange("s1u2s3u4", head, "s(1) u(2) u([System message]\n3) u(4)");
    arrange("s1u2s3u4", strict, "s(1) u(2) u([System message]\n3\n\n4)");
    arrange("u1a2s3", strict, "u(1) a(2) u([System message]\n3)");
    arrange("u1s2", strict, "u(1\n\n[System message]\n2)");
    arrange("u1s2s3u4", strict, "u(1\n\n[System message]\n2) u([System message]\n3\n\n4)");
    arrange("s1u2", none, "u(1\n\n2)");
    arrange("s1a2u3", none, "a(2) u(1\n\n3)");
    arrange("s1", none, "u(1)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_written),
                                       cmocka_unit_test(test_arrangement)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
