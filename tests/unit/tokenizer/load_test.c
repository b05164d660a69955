/* Tests of tokenizer/load.c: what is refused and why, odd vocabularies, which tokens end a turn. */
#include "toy.h"

#include "base/log.h"
#include "base/mem.h"

static struct toy y;

static void expect_refused(t9_status code, const char *part)
{
    struct tokenizer *t = NULL;
    struct t9_err err = {0};
    assert_int_equal(tokenizer_new_from(&t, &y.src, &err), code);
    assert_null(t);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

static void test_unknown_kinds(void **state)
{
    (void)state;
    toy_init(&y, "gpt-2");
    y.src.model = STR("rwkv");
    expect_refused(T9_STATUS_UNSUPPORTED, "'rwkv'; known kinds: gpt2, llama, gemma4, bert");
    toy_init(&y, "klingon");
    expect_refused(T9_STATUS_UNSUPPORTED,
                   "'klingon'; known pre-tokenizers: gpt-2, default, smollm");
}

static void test_limits(void **state)
{
    (void)state;
    static char big[TOK_TOKEN_BYTES_MAX + 1];
    toy_init(&y, "gpt-2");
    y.token[5] = (str){big, sizeof(big)};
    expect_refused(T9_STATUS_CORRUPT, "tokens[5] has 4097 bytes");
    toy_init(&y, "gpt-2");
    y.src.n_tokens = 0;
    expect_refused(T9_STATUS_CORRUPT, "tokens has 0 elements");
    y.src.n_tokens = (uint64_t)TOK_TOKENS_MAX + 1;
    expect_refused(T9_STATUS_CORRUPT, "tokens has 2097153 elements");
    toy_init(&y, "gpt-2");
    y.src.n_merges = (uint64_t)TOK_MERGES_MAX + 1;
    expect_refused(T9_STATUS_CORRUPT, "merges has 4194305 elements");
    toy_init(&y, "gpt-2");
    y.type[3] = 9;
    expect_refused(T9_STATUS_CORRUPT, "token_type[3] is 9");
}

static void test_ids_out_of_range(void **state)
{
    (void)state;
    static const int32_t suppress[] = {1, 100000};
    toy_init(&y, "gpt-2");
    y.src.bos = 1 << 20;
    expect_refused(T9_STATUS_CORRUPT, "bos_token_id is 1048576, but the vocabulary has 266 tokens");
    toy_init(&y, "gpt-2");
    y.src.eos = -7;
    expect_refused(T9_STATUS_CORRUPT, "eos_token_id is -7");
    toy_init(&y, "gpt-2");
    y.src.suppress = suppress;
    y.src.n_suppress = 2;
    expect_refused(T9_STATUS_CORRUPT, "suppress_tokens");
}

static void test_odd_but_loaded(void **state)
{
    (void)state;
    toy_init(&y, "");
    uint64_t n = y.src.n_tokens;
    toy_token(&y, STR("he"), TOK_TYPE_NORMAL);           /* there already */
    toy_token(&y, STR(""), TOK_TYPE_NORMAL);             /* no bytes */
    toy_token(&y, STR("\xE4\xB8\xAD"), TOK_TYPE_NORMAL); /* not in the byte alphabet: itself */
    toy_token(&y, STR("\xFF"), TOK_TYPE_UNUSED);         /* not even UTF-8 */
    toy_token(&y, STR("zz"), TOK_TYPE_CONTROL);
    y.merge[y.src.n_merges++] = STR("nospace");
    y.merge[y.src.n_merges++] = STR("");
    y.merge[y.src.n_merges++] = STR("q q"); /* the sum is no token */
    y.merge[y.src.n_merges++] = STR("h e"); /* repeated */
    y.merge[y.src.n_merges++] = STR("z z"); /* would make a CONTROL token from text */
    struct tokenizer *t = toy_build(&y);
    assert_string_equal(tokenizer_pre_name(t), "default");
    assert_int_equal(tokenizer_find(t, STR("he")), 256);
    assert_true(str_eq(tokenizer_piece(t, (int32_t)n + 2), STR("\xE4\xB8\xAD")));
    assert_int_equal(tokenizer_piece(t, 1 << 28).n, 0);
    assert_int_equal(tokenizer_piece(t, -1).n, 0);
    struct tok_ids ids;
    struct tok_span s = toy_user(STR("zz"));
    tok_ids_init(&ids, 10);
    assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, NULL), T9_STATUS_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.p[0], 'z');
    tok_ids_deinit(&ids);
    tokenizer_free(t);
}

/* A byte without a token is left out and its neighbours meet, as in the reference implementation;
 * the unknown token, if there is one, stands for no text. */
static void test_absent_byte(void **state)
{
    (void)state;
    toy_init(&y, "gpt-2");
    y.type['x'] = TOK_TYPE_UNUSED;
    y.src.unk = toy_token(&y, STR("<unk>"), TOK_TYPE_UNKNOWN);
    struct tokenizer *t = toy_build(&y);
    assert_int_equal(tokenizer_vocab(t)->flags[y.src.unk] & VOCAB_FLAG_TEXT, 0);
    struct tok_ids ids;
    struct tok_span s = toy_user(STR("hxe"));
    tok_ids_init(&ids, 10);
    assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, NULL), T9_STATUS_OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.p[0], tokenizer_find(t, STR("he")));
    tok_ids_deinit(&ids);
    tokenizer_free(t);
}

static void test_eog_by_text_and_id(void **state)
{
    (void)state;
    toy_init(&y, "qwen2");
    int32_t im_end = toy_token(&y, STR("<|im_end|>"), TOK_TYPE_NORMAL);
    int32_t text_end = toy_token(&y, STR("<|endoftext|>"), TOK_TYPE_CONTROL);
    int32_t start = toy_token(&y, STR("<|im_start|>"), TOK_TYPE_CONTROL);
    int32_t end = toy_token(&y, STR("<|end|>"), TOK_TYPE_CONTROL);
    int32_t ds = toy_token(&y, STR("<｜end▁of▁sentence｜>"), TOK_TYPE_CONTROL);
    int32_t tool = toy_token(&y, STR("<|python_tag|>"), TOK_TYPE_CONTROL);
    y.src.eom = 'e';
    struct tokenizer *t = toy_build(&y);
    const struct vocab *v = tokenizer_vocab(t);
    assert_true(vocab_is_eog(v, im_end));
    assert_true(vocab_type(v, im_end) == TOK_TYPE_CONTROL); /* though the file says normal */
    assert_true(tokenizer_is_eog(t, text_end) && tokenizer_is_eog(t, end) &&
                tokenizer_is_eog(t, ds));
    assert_true(tokenizer_is_eog(t, 'e'));
    assert_false(tokenizer_is_eog(t, start) || tokenizer_is_eog(t, 'f') || tokenizer_is_eog(t, -1));
    assert_int_equal(v->n_eog, 5);
    assert_int_equal(v->eog[0], 'e');
    assert_true(vocab_is_parser_token(v, tool) && vocab_is_parser_token(v, end));
    assert_false(vocab_is_parser_token(v, start));
    tokenizer_free(t);
}

static void test_eog_corrections(void **state)
{
    (void)state;
    toy_init(&y, "gpt-2");
    int32_t end = toy_token(&y, STR("<|end|>"), TOK_TYPE_CONTROL);
    int32_t ret = toy_token(&y, STR("<|return|>"), TOK_TYPE_CONTROL);
    int32_t call = toy_token(&y, STR("<|call|>"), TOK_TYPE_CONTROL);
    struct tokenizer *t = toy_build(&y);
    assert_false(tokenizer_is_eog(t, end));
    assert_true(tokenizer_is_eog(t, ret) && tokenizer_is_eog(t, call));
    tokenizer_free(t);
    toy_init(&y, "gpt-2");
    int32_t html = toy_token(&y, STR("</s>"), TOK_TYPE_CONTROL);
    int32_t resp = toy_token(&y, STR("<|tool_response>"), TOK_TYPE_CONTROL);
    t = toy_build(&y);
    assert_false(tokenizer_is_eog(t, html));
    assert_true(vocab_type(tokenizer_vocab(t), html) == TOK_TYPE_NORMAL);
    assert_true(tokenizer_is_eog(t, resp));
    tokenizer_free(t);
    toy_init(&y, "gpt-2"); /* made by merging: an HTML tag in a Qwen vocabulary */
    toy_merge(&y, "<", "/");
    toy_merge(&y, "s", ">");
    html = toy_merge(&y, "</", "s>");
    t = toy_build(&y);
    assert_false(tokenizer_is_eog(t, html));
    assert_true(vocab_type(tokenizer_vocab(t), html) == TOK_TYPE_NORMAL);
    assert_int_equal(tokenizer_find(t, STR("</s>")), html);
    tokenizer_free(t);
}

static void test_flags(void **state)
{
    (void)state;
    static const int32_t suppress[] = {9, 3, 9};
    toy_init(&y, "llama-bpe");
    struct tokenizer *t = toy_build(&y);
    assert_false(tokenizer_add_bos(t)); /* the default says yes, but there is no BOS */
    assert_int_equal(tokenizer_bos(t), -1);
    tokenizer_free(t);
    y.src.bos = 1;
    y.src.suppress = suppress;
    y.src.n_suppress = 3;
    t = toy_build(&y);
    assert_true(tokenizer_add_bos(t));
    assert_int_equal(tokenizer_vocab(t)->n_suppress, 2);
    assert_int_equal(tokenizer_vocab(t)->suppress[0], 3);
    tokenizer_free(t);
    y.src.add_bos = 0;
    y.src.add_eos = 1;
    t = toy_build(&y);
    assert_false(tokenizer_add_bos(t));
    assert_true(tokenizer_add_eos(t));
    tokenizer_free(t);
}

/* Each allocation of the load fails once: NOMEM and nothing leaked. */
static void test_out_of_memory(void **state)
{
    (void)state;
    toy_init(&y, "qwen2");
    toy_token(&y, STR("<|im_end|>"), TOK_TYPE_CONTROL);
    struct tokenizer *t = NULL;
    t9_status st = T9_STATUS_NOMEM;
    int n_failed = 0;
    for (uint64_t nth = 1; nth < 200; nth++) {
        mem_test_fail_nth(nth);
        st = tokenizer_new_from(&t, &y.src, NULL);
        mem_test_fail_nth(0);
        if (st == T9_STATUS_OK)
            break;
        assert_int_equal(st, T9_STATUS_NOMEM);
        assert_null(t);
        n_failed++;
    }
    assert_int_equal(st, T9_STATUS_OK);
    assert_true(n_failed > 15);
    tokenizer_free(t);
    tokenizer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_kinds),    cmocka_unit_test(test_limits),
        cmocka_unit_test(test_ids_out_of_range), cmocka_unit_test(test_odd_but_loaded),
        cmocka_unit_test(test_absent_byte),      cmocka_unit_test(test_eog_by_text_and_id),
        cmocka_unit_test(test_eog_corrections),  cmocka_unit_test(test_flags),
        cmocka_unit_test(test_out_of_memory),
    };
    log_configure(&(struct log_config){.level = LOG_LEVEL_ERROR});
    return cmocka_run_group_tests(tests, NULL, NULL);
}
