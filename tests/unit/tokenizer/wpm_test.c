/* Tests of tokenizer/wpm.c: cleaning, words, pieces, the two ways of writing a vocabulary. */
#include "pieces.h"

#include "base/log.h"

#define SP "\xE2\x96\x81"

static struct pieces p;

/* `mark` goes before what begins a word, `inner` before what goes on in one. */
static struct tokenizer *build(const char *mark, const char *inner, bool cased)
{
    static const char *const begin[] = {"hello", "un", "a", "é", "中", "!", "[", "cls", "]", "1"};
    static const char *const on[] = {"able", "aff", "b", "1", "e"};
    char text[64];
    pieces_init(&p, "bert");
    p.y.src.score = NULL;
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (size_t i = 0; i < T9_COUNT(special); i++)
        (void)pieces_add(&p, special[i], i == 1 ? TOK_TYPE_UNKNOWN : TOK_TYPE_CONTROL, 0);
    for (size_t i = 0; i < T9_COUNT(begin); i++) {
        (void)snprintf(text, sizeof(text), "%s%s", mark, begin[i]);
        (void)pieces_add(&p, text, TOK_TYPE_NORMAL, 0);
    }
    for (size_t i = 0; i < T9_COUNT(on); i++) {
        (void)snprintf(text, sizeof(text), "%s%s", inner, on[i]);
        (void)pieces_add(&p, text, TOK_TYPE_NORMAL, 0);
    }
    if (cased) {
        (void)snprintf(text, sizeof(text), "%sH", mark);
        (void)pieces_add(&p, text, TOK_TYPE_NORMAL, 0);
    }
    return toy_build(&p.y);
}

static void check_lower(const struct tokenizer *t)
{
    pieces_expect(t, "hello", false, " hello");
    pieces_expect(t, "HELLO héllo unaffable", false, " hello| hello| un|aff|able");
    pieces_expect(t, "hello!hello", false, " hello| !| hello");
    pieces_expect(t, "a中a", false, " a| 中| a");
    pieces_expect(t, " \t\n\r\xC2\xA0\xE3\x80\x80", false, "");
    pieces_expect(t, "he\xC2\xADllo\x07\xEF\xBF\xBD", false, " hello"); /* dropped */
    pieces_expect(t, "he\xFFllo", false, " hello");                     /* malformed, too */
    pieces_expect(t, "unxable abb11", false, "[UNK]| a|b|b|1|1");
    pieces_expect(t, "", false, "");
}

static void test_words(void **state)
{
    (void)state;
    struct tokenizer *t = build(SP, "", false);
    check_lower(t);
    tokenizer_free(t);
    t = build("", "##", false);
    check_lower(t);
    assert_string_equal(tokenizer_model_name(t), "bert");
    assert_string_equal(tokenizer_pre_name(t), "none");
    tokenizer_free(t);
}

static void test_cased(void **state)
{
    (void)state;
    struct tokenizer *t = build(SP, "", true);
    pieces_expect(t, "He é HELLO", false, " H|e| é|[UNK]");
    tokenizer_free(t);
}

static void test_special(void **state)
{
    (void)state;
    struct tokenizer *t = build(SP, "", false);
    assert_true(tokenizer_add_bos(t) && tokenizer_add_eos(t));
    assert_int_equal(tokenizer_bos(t), 2);
    assert_int_equal(tokenizer_eos(t), 3);
    struct tok_span s = toy_raw(STR("hello[SEP]hello"));
    pieces_expect_spans(t, &s, 1, true, "[CLS]| hello|[SEP]| hello");
    pieces_expect(t, "[CLS]", false, " [| cls| ]");
    pieces_round_trip(t, "hello  unable", false, "hello unable");
    pieces_round_trip(t, "qqq hello", false, "[UNK] hello");
    tokenizer_free(t);
}

static void test_cuts(void **state)
{
    static const char *const fragments[] = {"[SEP]", "[CLS]", "[", "SEP]", "hello", " ",
                                            "un",    "able",  "1", "!",    "中"};
    (void)state;
    struct tokenizer *t = build(SP, "", false);
    pieces_try_cuts(t, fragments, T9_COUNT(fragments));
    tokenizer_free(t);
}

static void test_long_words(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *text = mem_alloc(N);
    struct tok_ids ids;
    struct tokenizer *t = build(SP, "", false);
    assert_non_null(text);
    memset(text, 'b', N);
    text[0] = 'a';
    tok_ids_init(&ids, N);
    for (size_t n = 99; n <= 101; n++) {
        struct tok_span s = toy_user((str){text, n});
        ids.n = 0;
        assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, NULL), T9_STATUS_OK);
        assert_int_equal(ids.n, n > 100 ? 1 : n);
    }
    struct tok_span s = toy_user((str){text, N});
    ids.n = 0;
    assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, NULL), T9_STATUS_OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.p[0], 1);
    tok_ids_deinit(&ids);
    tokenizer_free(t);
    mem_free(text);
}

/* An unknown word without a token for it would be left out in silence. */
static void test_no_unknown(void **state)
{
    (void)state;
    tokenizer_free(build(SP, "", false));
    p.y.token[1] = STR("unk");
    pieces_refused(&p, T9_STATUS_CORRUPT, "unknown_token_id");
    p.y.src.unk = 1;
    struct tokenizer *t = toy_build(&p.y);
    pieces_expect(t, "hello qqq", false, " hello|unk");
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),      cmocka_unit_test(test_cased),
        cmocka_unit_test(test_special),    cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_long_words), cmocka_unit_test(test_no_unknown),
    };
    log_configure(&(struct log_config){.level = LOG_LEVEL_ERROR});
    return cmocka_run_group_tests(tests, NULL, NULL);
}
