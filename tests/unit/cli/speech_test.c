/*
 * What `run` shows and keeps of an answer: words on standard output, thoughts apart from them.
 */
#include "lib/t9test.h"

#include "lib/byte_tokenizer.h"

#include "cli/cli.h"
#include "cli/speech.h"
#include "sdk/internal.h"

static struct buf shown; /* on standard output */

void cli_write(const void *p, size_t n)
{
    buf_append(&shown, p, n);
}

static void check(const char *prompt, const char *answer, const char *said, const char *thought)
{
    struct prep_params pp = {.model_name = "m"};
    struct prep *prep = NULL;
    struct speech s;
    t9_model *m = NULL;
    t9_ids ids = {0};
    struct t9_err err;
    assert_int_equal(sdk_model_wrap(&m, byte_tokenizer(true), NULL, NULL), T9_STATUS_OK);
    pp.model = m;
    assert_int_equal(prep_new(&prep, &pp, NULL), T9_STATUS_OK);
    assert_int_equal(t9_tokenize(m, prompt, strlen(prompt), T9_TOKENIZE_SPECIAL, &ids, NULL),
                     T9_STATUS_OK);
    buf_init(&shown, 4096);
    assert_int_equal(speech_init(&s, prep, &ids, &err), T9_STATUS_OK);
    s.shows_thoughts = false;
    for (; *answer; answer++)
        assert_int_equal(speech_push(&s, (str){answer, 1}, &err), T9_STATUS_OK);
    assert_int_equal(speech_end(&s, &err), T9_STATUS_OK);
    assert_true(str_eqz(buf_str(&s.said), said));
    assert_true(str_eqz(buf_str(&shown), said));
    assert_true(str_eqz(buf_str(&s.thought), thought));
    speech_deinit(&s);
    buf_deinit(&shown);
    t9_ids_free(&ids);
    prep_free(prep);
    t9_model_free(m);
}

static void test_thoughts(void **state)
{
    static const char plain[] = "<|im_start|>assistant\n",
                      open[] = "<|im_start|>assistant\n<think>\n";
    (void)state;
    check(plain, " Words, <b>alone</b>.\n", " Words, <b>alone</b>.\n", "");
    check(plain, "<think>\nHm.\n</think>\n\nWords.", "Words.", "Hm.");
    check(open, "Hm.</think>Words.", "Words.", "Hm.");
    check("<|im_start|>assistant\n<think>\n\n</think>\n\n", "Words.", "Words.", "");
    check("<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\n", "Words.", "Words.", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thoughts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
