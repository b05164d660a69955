/* Tests of tokenizer/detok.c: any split of the bytes gives the same text, in whole characters. */
#include "toy.h"

static struct toy y;
static struct tokenizer *t;
static int32_t im_end, think;

static int setup(void **state)
{
    (void)state;
    toy_init(&y, "gpt-2");
    im_end = toy_token(&y, STR("<|im_end|>"), TOK_TYPE_CONTROL);
    think = toy_token(&y, STR("<think>"), TOK_TYPE_USER_DEFINED);
    t = toy_build(&y);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_free(t);
    return 0;
}

static void test_whole_characters(void **state)
{
    (void)state;
    struct detok d;
    struct buf out;
    buf_init(&out, 100);
    detok_init(&d, tokenizer_vocab(t));
    detok_push(&d, 0xF0, &out, false);
    detok_push(&d, 0x9F, &out, false);
    detok_push(&d, 0x98, &out, false);
    assert_int_equal(out.n, 0);
    detok_push(&d, 0x80, &out, false);
    assert_true(str_eq(buf_str(&out), STR("\xF0\x9F\x98\x80")));
    detok_push(&d, 0xE4, &out, false); /* cut short by a letter: decided, and the letter is kept */
    detok_push(&d, 'x', &out, false);
    assert_true(str_eq(buf_str(&out), STR("\xF0\x9F\x98\x80\xEF\xBF\xBDx")));
    detok_push(&d, 0xE4, &out, false);
    detok_finish(&d, &out);
    assert_true(str_eq(buf_str(&out), STR("\xF0\x9F\x98\x80\xEF\xBF\xBDx\xEF\xBF\xBD")));
    buf_deinit(&out);
}

static void test_special(void **state)
{
    (void)state;
    struct detok d;
    struct buf out;
    buf_init(&out, 100);
    detok_init(&d, tokenizer_vocab(t));
    detok_push(&d, im_end, &out, false);
    detok_push(&d, think, &out, false);
    detok_push(&d, -1, &out, true);
    detok_push(&d, 1 << 30, &out, true);
    assert_true(str_eq(buf_str(&out), STR("<think>")));
    detok_push(&d, im_end, &out, true);
    assert_true(str_eq(buf_str(&out), STR("<think><|im_end|>")));
    buf_deinit(&out);
}

/* Random bytes, one token each: every prefix that came out is whole, all of it is the sanitised
 * text. */
static void test_stream_equals_whole(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {'a',  0x80, 0xBF, 0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 0xED,
                                          0xA0, 0xF0, 0x9F, 0x98, 0xF4, 0x90, 0xFF, 0xE0, 0xC0};
    uint32_t x = 1;
    for (int round = 0; round < 20000; round++) {
        struct detok d;
        struct buf out, want;
        char all[64];
        size_t n = 1 + (size_t)round % 60;
        buf_init(&out, 1000);
        buf_init(&want, 1000);
        detok_init(&d, tokenizer_vocab(t));
        for (size_t i = 0; i < n; i++) {
            x = x * 1664525U + 1013904223U;
            all[i] = (char)bytes[(x >> 8) % sizeof(bytes)];
            detok_push(&d, (unsigned char)all[i], &out, false);
            assert_true(utf8_valid(buf_str(&out)));
        }
        detok_finish(&d, &out);
        utf8_sanitize(&want, (str){all, n});
        assert_true(str_eq(buf_str(&out), buf_str(&want)));
        buf_deinit(&out);
        buf_deinit(&want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_characters),
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_stream_equals_whole),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
