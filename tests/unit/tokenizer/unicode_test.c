/* Tests of tokenizer/unicode.c: classes, and NFC against utf8proc's own. */
#include "toy.h"

#include "base/mem.h"

#include <stdlib.h>
#include <utf8proc.h>

static struct uniclass u;

static int setup(void **state)
{
    (void)state;
    return uniclass_init(&u, NULL) != T9_STATUS_OK;
}

static int teardown(void **state)
{
    (void)state;
    uniclass_deinit(&u);
    return 0;
}

static void test_classes(void **state)
{
    (void)state;
    const struct {
        uint32_t cp;
        uint8_t want;
    } cases[] = {
        {'a', CLASS_L},    {'7', CLASS_N},     {' ', CLASS_S},    {'\n', CLASS_S},
        {'!', 0},          {0x85, CLASS_S},    {0x180E, 0},       {0x200B, 0},
        {0x2163, CLASS_N}, {0xBD, CLASS_N},    {0x4E2D, CLASS_L}, {0x1F600, 0},
        {0x3000, CLASS_S}, {0x20000, CLASS_L}, {0xE0100, 0},      {0x10FFFF, 0},
        {0x0E33, CLASS_L}, {0x1D7D8, CLASS_N}, {0xFEFF, 0},       {0x0903, 0},
    };
    for (size_t i = 0; i < T9_COUNT(cases); i++)
        assert_int_equal(uniclass_of(&u, cases[i].cp) & (CLASS_L | CLASS_N | CLASS_S),
                         cases[i].want);
    size_t len;
    assert_int_equal(uniclass_at(&u, "\xFF", 1, &len), 0);
    assert_int_equal(len, 1);
    assert_int_equal(uniclass_at(&u, "\xE4\xB8\xAD", 2, &len), 0); /* cut short */
    assert_int_equal(len, 1);
}

static void check_nfc(str s)
{
    utf8proc_uint8_t *want = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n, &want,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(n >= 0);
    struct buf got;
    buf_init(&got, 1U << 20);
    nfc_append(&u, s, &got);
    assert_false(got.failed);
    assert_int_equal(got.n, n);
    if (n)
        assert_memory_equal(got.p, want, n);
    /* The quick check may be wrong in one direction only. */
    if (nfc_first_suspect(&u, s, 0) == s.n)
        assert_true(str_eq(s, buf_str(&got)));
    buf_deinit(&got);
    free(want);
}

/* Every code point after a letter and a mark, and before a mark. */
static void test_nfc_every_code_point(void **state)
{
    (void)state;
    for (uint32_t cp = 1; cp < 0x30000; cp++) {
        char s[32] = "xa";
        size_t n = 2, k = utf8_encode(cp, s + n);
        if (!k)
            continue;
        n += k;
        n += utf8_encode(0x0301, s + n);
        n += utf8_encode(cp, s + n);
        n += utf8_encode(0x0323, s + n);
        check_nfc((str){s, n});
    }
}

static void test_nfc_random(void **state)
{
    (void)state;
    static const uint32_t cps[] = {'a',    'e',    0xE9,   0x301,  0x323,   0x308,  0x1100, 0x1161,
                                   0x11A8, 0xAC00, 0xAC01, 0x1EA5, 0x0F71,  0x0F72, 0x0F74, 0x09C7,
                                   0x09BE, 0x212B, 0x2126, 0xFB1D, 0x1D15E, 0x345,  0x1F82, 0x2ADC};
    uint32_t x = 9;
    for (int round = 0; round < 50000; round++) {
        char s[256];
        size_t n = 0;
        for (int i = 0; i < 1 + round % 40; i++) {
            x = x * 1664525U + 1013904223U;
            n += utf8_encode(cps[(x >> 8) % T9_COUNT(cps)], s + n);
        }
        check_nfc((str){s, n});
    }
}

static void test_nfc_malformed(void **state)
{
    (void)state;
    struct buf got;
    buf_init(&got, 1000);
    nfc_append(&u,
               STR("e\xFF\xCC\x81"
                   "e\xCC\x81\xE4\xB8 \xC3"),
               &got);
    assert_true(str_eq(buf_str(&got), STR("e\xFF\xCC\x81\xC3\xA9\xE4\xB8 \xC3")));
    buf_deinit(&got);
}

/* A long run of marks in the worst order takes no quadratic time. */
static void test_nfc_long_run(void **state)
{
    (void)state;
    const size_t n_marks = 200000;
    char *s = mem_alloc(n_marks * 4);
    size_t n = utf8_encode('a', s);
    for (size_t i = 0; i < n_marks; i++)
        n += utf8_encode(i & 1 ? 0x323 : 0x301, s + n);
    struct buf got;
    buf_init(&got, n_marks * 8);
    nfc_append(&u, (str){s, n}, &got);
    assert_false(got.failed);
    str want = STR("\xE1\xBA\xA1\xCC\xA3"); /* a with dot below, then the other dots */
    assert_true(str_has_prefix(buf_str(&got), want));
    assert_true(str_has_suffix(buf_str(&got), STR("\xCC\x81\xCC\x81")));
    buf_deinit(&got);
    mem_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),      cmocka_unit_test(test_nfc_every_code_point),
        cmocka_unit_test(test_nfc_random),   cmocka_unit_test(test_nfc_malformed),
        cmocka_unit_test(test_nfc_long_run),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
