/* Tests of base/err.c: the status table, messages and their cutting. */
#include "base/err.h"

#include "base/utf8.h"
#include "lib/t9test.h"

#include <errno.h>

static void test_table(void **state)
{
    (void)state;
    assert_string_equal(t9_status_name(T9_STATUS_OK), "OK");
    assert_string_equal(t9_status_name(T9_STATUS_TOO_LARGE), "TOO_LARGE");
    assert_string_equal(t9_status_name((t9_status)999), "?");
    assert_int_equal(t9_status_http(T9_STATUS_NOT_FOUND), 404);
    assert_int_equal(t9_status_http((t9_status)-1), 500);
    assert_string_equal(t9_status_openai_type(T9_STATUS_INVALID), "invalid_request_error");
    assert_string_equal(t9_status_openai_type(T9_STATUS_BUSY), "server_error");
}

static void test_fail_writes_message(void **state)
{
    (void)state;
    struct t9_err err = {0};
    assert_int_equal(t9_fail(&err, T9_STATUS_INVALID, "n is %d", 7), T9_STATUS_INVALID);
    assert_int_equal(err.code, T9_STATUS_INVALID);
    assert_string_equal(err.msg, "n is 7");
    assert_int_equal(t9_fail(NULL, T9_STATUS_IO, "nobody reads %s", "this"), T9_STATUS_IO);
    assert_int_equal(t9_err_prefix(&err, "file %s", "a"), T9_STATUS_INVALID);
    assert_string_equal(err.msg, "file a: n is 7");
    t9_err_prefix(NULL, "x");
    assert_int_equal(t9_fail_os(&err, T9_STATUS_IO, ENOENT, "file %s", "b"), T9_STATUS_IO);
    assert_int_equal(err.code, T9_STATUS_IO);
    assert_string_equal(err.msg, "file b: No such file or directory");
    assert_int_equal(t9_fail_os(NULL, T9_STATUS_IO, ENOENT, "x"), T9_STATUS_IO);
}

/* A cut never leaves half of a character, at any alignment of the cut. */
static void test_cut_keeps_utf8(void **state)
{
    (void)state;
    char text[600];
    for (size_t pad = 0; pad < 8; pad++) {
        size_t n = 0;
        memset(text, 'x', pad);
        n = pad;
        while (n + 4 < sizeof text) {
            memcpy(text + n, "\xF0\x9F\x98\x80", 4);
            n += 4;
        }
        text[n] = 0;
        struct t9_err err = {0};
        t9_fail(&err, T9_STATUS_INVALID, "%s", text);
        assert_true(strlen(err.msg) >= sizeof err.msg - 4);
        assert_true(utf8_valid(str_from(err.msg)));
        t9_fail_os(&err, T9_STATUS_IO, EIO, "%s", text);
        assert_true(utf8_valid(str_from(err.msg)));
        t9_err_prefix(&err, "%.*s", (int)(pad + 1), "prefix-prefix");
        assert_true(utf8_valid(str_from(err.msg)));
        assert_true(strlen(err.msg) < sizeof err.msg);
        t9_err_prefix(&err, "%s", text);
        assert_true(utf8_valid(str_from(err.msg)));
        assert_true(strlen(err.msg) < sizeof err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_fail_writes_message),
        cmocka_unit_test(test_cut_keeps_utf8),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
