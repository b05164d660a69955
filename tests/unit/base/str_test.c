/* Tests of base/str.c and base/utf8.c. */
#include "base/str.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "lib/t9test.h"

static void test_str(void **state)
{
    (void)state;
    assert_true(str_eqz(str_slice(STR("abcd"), 1, 3), "bc"));
    assert_true(str_cmp(STR("a"), STR("ab")) < 0);
    assert_true(str_cmp(STR("b"), STR("ab")) > 0);
    assert_int_equal(str_cmp(STR("ab"), STR("ab")), 0);
    assert_int_equal(str_cmp((str){NULL, 0}, STR("")), 0);
    assert_true(str_cmp(STR("\xFF"), STR("a")) > 0);
    assert_true(str_has_prefix(STR("hello"), STR("he")));
    assert_true(str_has_prefix(STR("hello"), (str){NULL, 0}));
    assert_false(str_has_prefix(STR("h"), STR("he")));
    assert_true(str_has_suffix(STR("hello"), STR("lo")));
    assert_false(str_has_suffix(STR("o"), STR("lo")));
    assert_int_equal(str_find(STR("abcabc"), STR("bc"), 0), 1);
    assert_int_equal(str_find(STR("abcabc"), STR("bc"), 2), 4);
    assert_int_equal(str_find(STR("abcabc"), STR("bc"), 5), (size_t)-1);
    assert_int_equal(str_find(STR("abc"), STR(""), 3), 3);
    assert_int_equal(str_find(STR("abc"), STR(""), 4), (size_t)-1);
    assert_int_equal(str_find(STR("a\0b"), STR("\0b"), 0), 1);
    assert_true(str_eqz(str_trim(STR(" \t\r\nx y\v\f ")), "x y"));
    assert_int_equal(str_trim(STR("   ")).n, 0);
}

/* Every scalar value goes round; every other value is refused. */
static void test_utf8_round_trip(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x110010; cp++) {
        char z[4];
        uint32_t back = 0xFFFFFFFF;
        size_t n = utf8_encode(cp, z);
        bool scalar = cp < 0xD800 || (cp > 0xDFFF && cp < 0x110000);
        if (!scalar) {
            assert_int_equal(n, 0);
            continue;
        }
        if (utf8_decode(z, n, &back) != n || back != cp)
            fail_msg("U+%04X does not go round", cp);
        for (size_t cut = 1; cut < n; cut++) {
            if (utf8_decode(z, cut, &back) != 0 || utf8_incomplete_tail((str){z, cut}) != cut)
                fail_msg("U+%04X cut at %zu", cp, cut);
        }
        assert_int_equal(utf8_incomplete_tail((str){z, n}), 0);
    }
}

static void test_utf8_malformed(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\x80",         "\xC0\xAF",         "\xC1\xBF",         "\xE0\x9F\xBF",
        "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5",
        "\xFF",         "\xE2\x82",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(utf8_valid(str_from(bad[i])));
    assert_true(utf8_valid(STR("a\0\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80")));
    assert_int_equal(utf8_count(STR("a\xC3\xA9\x80\xFFz")), 5);
    assert_int_equal(utf8_incomplete_tail(STR("ab\xF0\x9F\x98")), 3);
    assert_int_equal(utf8_incomplete_tail(STR("ab\x98")), 0);
    assert_int_equal(utf8_incomplete_tail(STR("ab\xED\xA0")), 0);
    assert_int_equal(utf8_incomplete_tail(STR("")), 0);
}

/* The examples of the Unicode standard, section 3.9, tables 3-8 to 3-11. */
static void test_utf8_sanitize(void **state)
{
    (void)state;
#define R "\xEF\xBF\xBD"
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
         "A",
         R R R R R R R R "A"},
        {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
         "A",
         R R R R R R R R "A"},
        {"\xF4\x91\x92\x93\xFF"
         "A\x80\xBF"
         "B",
         R R R R R "A" R R "B"},
        {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
         "A",
         R R R R "A"},
        {"ok \xC3\xA9", "ok \xC3\xA9"},
        {"cut \xF0\x9F\x98", "cut " R},
        {"", ""},
    };
    struct buf b;
    buf_init(&b, 1000);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf_clear(&b);
        utf8_sanitize(&b, str_from(cases[i].in));
        assert_true(str_eqz(buf_str(&b), cases[i].out));
    }
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_utf8_round_trip),
        cmocka_unit_test(test_utf8_malformed),
        cmocka_unit_test(test_utf8_sanitize),
    };
    return cmocka_run_group_tests_name("str", tests, NULL, NULL);
}
