/*
 * Tests of tokenizer/chars.c and of merges.c: vocabularies that merge characters, by score or by a
 * list; spaces at the beginning, what has no token, special tokens, and hostile tables.
 */
#include "pieces.h"

#include "base/clock.h"
#include "base/log.h"

#include <math.h>

#define SP "\xE2\x96\x81"

static struct pieces p;

/* Llama's way: 0 <unk>, 1 <s>, 2 </s>, the bytes, then pieces. */
static void llama(bool bytes)
{
    pieces_init(&p, "llama");
    p.y.src.unk = pieces_add(&p, "<unk>", TOK_TYPE_UNKNOWN, 0);
    p.y.src.bos = pieces_add(&p, "<s>", TOK_TYPE_CONTROL, 0);
    p.y.src.eos = pieces_add(&p, "</s>", TOK_TYPE_CONTROL, 0);
    if (bytes)
        pieces_bytes(&p);
    static const char *const words[] = {SP "h", "el", "lo", SP "hel", SP "hello", "ll", "s>", "<s"};
    static const char *const letters[] = {SP,  "h", "e", "l", "o", "<",
                                          ">", "s", "/", "[", "]", "é"};
    for (size_t i = 0; i < T9_COUNT(words); i++)
        (void)pieces_add(&p, words[i], TOK_TYPE_NORMAL, -(float)i);
    for (size_t i = 0; i < T9_COUNT(letters); i++)
        (void)pieces_add(&p, letters[i], TOK_TYPE_NORMAL, -100 - (float)i);
}

static void test_highest_score_first(void **state)
{
    (void)state;
    llama(true);
    struct tokenizer *t = toy_build(&p.y);
    pieces_expect(t, "hello", false, " hello");
    pieces_expect(t, "hello hello", false, " hello| hello");
    pieces_expect(t, "ello", false, " |el|lo"); /* el before ll, though ll is there, too */
    pieces_expect(t, "lll", false, " |ll|l");
    pieces_expect(t, "", false, "");
    pieces_expect(t, " ", false, " | ");
    /* The file's mark for a space in a text is one, as in the reference implementation. */
    pieces_expect(t, SP "hello", false, " | hello");
    assert_int_equal(tokenizer_find(t, STR(" hello")), 3 + 256 + 4);
    tokenizer_free(t);
}

/* Equal scores: the left pair goes first, whatever the ids. */
static void test_equal_scores(void **state)
{
    (void)state;
    pieces_init(&p, "llama");
    p.y.src.add_space_prefix = 0;
    static const char *const words[] = {"b", "a", "c", "bc", "ab"};
    for (size_t i = 0; i < T9_COUNT(words); i++)
        (void)pieces_add(&p, words[i], TOK_TYPE_NORMAL, -1);
    struct tokenizer *t = toy_build(&p.y);
    pieces_expect(t, "abc", false, "ab|c");
    /* The same in a word that is long enough for the other way of merging. */
    char text[121], want[400];
    size_t n = 0;
    for (size_t i = 0; i < 40; i++) {
        memcpy(text + 3 * i, "abc", 4);
        n += (size_t)snprintf(want + n, sizeof(want) - n, "%sab|c", i ? "|" : "");
    }
    (void)pieces_add(&p, "ca", TOK_TYPE_NORMAL, -2);
    tokenizer_free(t);
    t = toy_build(&p.y);
    pieces_expect(t, text, false, want);
    tokenizer_free(t);
}

static void test_space_prefix(void **state)
{
    (void)state;
    llama(true);
    struct tokenizer *t = toy_build(&p.y);
    assert_true(tokenizer_add_bos(t));
    assert_false(tokenizer_add_eos(t));
    struct tok_span raw = toy_raw(STR("hello<s>hello</s>"));
    pieces_expect_spans(t, &raw, 1, true, "<s>| hello|<s>| hello|</s>");
    pieces_round_trip(t, "hello<s>hello", true, "hello<s>hello");
    pieces_round_trip(t, " hello<s> hello</s> ", true, " hello<s> hello</s> ");
    pieces_round_trip(t, "hello<unk>hello", true, "hello<unk>hello");
    tokenizer_free(t);
    p.y.src.add_space_prefix = 0;
    t = toy_build(&p.y);
    pieces_expect(t, "hello hello", false, "h|el|lo| hello");
    pieces_round_trip(t, " hello", false, " hello");
    tokenizer_free(t);
}

/* A user's text never becomes a control token, even where its pieces could be merged into one. */
static void test_provenance(void **state)
{
    (void)state;
    llama(true);
    struct tokenizer *t = toy_build(&p.y);
    pieces_expect(t, "<s>", false, " |<|s>");
    pieces_expect(t, "<s>", true, "<s>");
    struct tok_span spans[] = {toy_raw(STR("<s>")), toy_user(STR("hello</s>")),
                               toy_raw(STR("</s>"))};
    pieces_expect_spans(t, spans, 3, false, "<s>| hello|<|/|s>|</s>");
    tokenizer_free(t);
    /* A file that calls the token normal. */
    p.y.type[1] = TOK_TYPE_NORMAL;
    p.score[1] = 100;
    t = toy_build(&p.y);
    pieces_expect(t, "<s>", false, " |<|s>");
    assert_int_equal(vocab_type(tokenizer_vocab(t), 1), TOK_TYPE_CONTROL);
    tokenizer_free(t);
    /* A byte's token is not what its name spells. */
    pieces_init(&p, "llama");
    pieces_bytes(&p);
    (void)pieces_add(&p, "<", TOK_TYPE_NORMAL, 0);
    t = toy_build(&p.y);
    pieces_expect(t, "<0x41>", false, " |<|0|x|4|1|>");
    tokenizer_free(t);
}

static void test_unknown_characters(void **state)
{
    (void)state;
    llama(true);
    struct tokenizer *t = toy_build(&p.y);
    pieces_expect(t, "é😀l", false, " |é|\xF0|\x9F|\x98|\x80|l");
    pieces_expect(t, "\xFFl", false, " |\xFF|l"); /* malformed */
    pieces_round_trip(t, "😀 hello\n", false, "😀 hello\n");
    tokenizer_free(t);
    llama(false); /* no bytes: one token for a run of them */
    t = toy_build(&p.y);
    pieces_expect(t, "é😀😀\xFFl", false, " |é|<unk>|l");
    pieces_expect(t, "😀 😀", false, " |<unk>| |<unk>");
    pieces_round_trip(t, "é😀 hello", false, "é<unk> hello");
    tokenizer_free(t);
    p.y.src.unk = -1; /* and nothing for unknown text */
    t = toy_build(&p.y);
    pieces_expect(t, "é😀l", false, " |é|l");
    tokenizer_free(t);
    llama(true); /* one byte of four is missing */
    p.y.type[3 + 0x98] = TOK_TYPE_UNUSED;
    t = toy_build(&p.y);
    pieces_expect(t, "😀", false, " |<unk>");
    tokenizer_free(t);
}

/* A character can be part of a token without being one. */
static void test_part_that_is_no_token(void **state)
{
    (void)state;
    pieces_init(&p, "llama");
    p.y.src.add_space_prefix = 0;
    pieces_bytes(&p);
    (void)pieces_add(&p, "né", TOK_TYPE_NORMAL, -1);
    (void)pieces_add(&p, "née", TOK_TYPE_NORMAL, -2);
    struct tokenizer *t = toy_build(&p.y);
    pieces_expect(t, "née né é n", false, "née| |né| |\xC3|\xA9| |n");
    tokenizer_free(t);
}

static void test_text_tokens(void **state)
{
    (void)state;
    pieces_init(&p, "llama");
    p.y.src.add_space_prefix = 0;
    p.y.src.bos = pieces_add(&p, "<bos>", TOK_TYPE_CONTROL, 0);
    p.y.src.eos = pieces_add(&p, "<eos>", TOK_TYPE_CONTROL, 0);
    pieces_bytes(&p);
    static const char *const user[] = {"\n\n",          "  ",     "   ", "</s>", "<b>",
                                       "</blockquote>", "<think>"};
    for (size_t i = 0; i < T9_COUNT(user); i++)
        (void)pieces_add(&p, user[i], TOK_TYPE_USER_DEFINED, -1000);
    struct tokenizer *t = toy_build(&p.y);
    /* White space and HTML are text, so a user's is cut there too; a marker is not. */
    pieces_expect(t, "\n\n\n     <b></s>", false, "\n\n|\n|   |  |<b>|</s>");
    pieces_expect(t, "<think>", false, "<|t|h|i|n|k|>");
    pieces_expect(t, "<think>", true, "<think>");
    assert_false(tokenizer_is_eog(t, tokenizer_find(t, STR("</s>"))));
    assert_int_equal(vocab_type(tokenizer_vocab(t), tokenizer_find(t, STR("</s>"))),
                     TOK_TYPE_USER_DEFINED);
    /* A text token that lies across two spans. */
    struct tok_span spans[] = {toy_user(STR("a\n")), toy_raw(STR("\nb"))};
    pieces_expect_spans(t, spans, 2, false, "a|\n\n|b");
    tokenizer_free(t);
    /* Where there is no HTML, </s> ends a turn. */
    p.y.type[2 + 256 + 5] = TOK_TYPE_UNUSED;
    t = toy_build(&p.y);
    assert_true(tokenizer_is_eog(t, tokenizer_find(t, STR("</s>"))));
    tokenizer_free(t);
}

static void test_collapsed_spaces(void **state)
{
    (void)state;
    llama(true);
    p.y.src.remove_extra_spaces = 1;
    struct tokenizer *t = toy_build(&p.y);
    pieces_expect(t, "  hello   hello  ", false, " hello| hello");
    pieces_expect(t, "   ", false, "");
    pieces_expect(t, "hello  <s>  hello ", true, " hello| |<s>| | hello");
    tokenizer_free(t);
}

static void test_streaming(void **state)
{
    (void)state;
    llama(true);
    struct tokenizer *t = toy_build(&p.y);
    int32_t hello = tokenizer_find(t, STR(" hello")), space = tokenizer_find(t, STR(" "));
    struct detok d;
    struct buf out;
    buf_init(&out, 1000);
    detok_init(&d, tokenizer_vocab(t));
    detok_push(&d, hello, &out, false);
    detok_push(&d, hello, &out, false);
    detok_push(&d, 3 + 0xC3, &out, false);
    assert_true(str_eq(buf_str(&out), STR("hello hello")));
    detok_push(&d, 3 + 0xA9, &out, false);
    detok_push(&d, 1, &out, false); /* a control token: not shown, and text begins anew */
    detok_push(&d, space, &out, false);
    detok_push(&d, hello, &out, false);
    detok_push(&d, 0, &out, false);
    detok_finish(&d, &out);
    assert_true(str_eq(buf_str(&out), STR("hello helloé hello")));
    /* After other text a space is text; after a control token it is not. */
    buf_clear(&out);
    detok_after(&d, hello);
    detok_push(&d, hello, &out, false);
    detok_after(&d, 1);
    detok_push(&d, hello, &out, false);
    assert_true(str_eq(buf_str(&out), STR(" hellohello")));
    buf_deinit(&out);
    tokenizer_free(t);
}

static void test_end(void **state)
{
    (void)state;
    llama(true);
    struct tok_ids ids;
    tok_ids_init(&ids, 1);
    struct tokenizer *t = toy_build(&p.y);
    assert_int_equal(tokenizer_end(t, &ids, NULL), T9_STATUS_OK);
    assert_int_equal(ids.n, 0);
    tokenizer_free(t);
    p.y.src.add_eos = 1;
    t = toy_build(&p.y);
    assert_int_equal(tokenizer_end(t, &ids, NULL), T9_STATUS_OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.p[0], 2);
    assert_int_equal(tokenizer_end(t, &ids, NULL), T9_STATUS_TOO_LARGE);
    tokenizer_free(t);
    tok_ids_deinit(&ids);
}

static void test_gemma4(void **state)
{
    (void)state;
    pieces_init(&p, "gemma4");
    p.y.src.score = NULL;
    p.y.src.bos = pieces_add(&p, "<bos>", TOK_TYPE_CONTROL, 0);
    p.y.src.add_bos = 0; /* begins with it all the same */
    pieces_bytes(&p);
    static const char *const words[] = {"a",     "b",  SP,     SP "a",  "ab",
                                        SP "ab", "\n", "\n\n", "\n\n\n"};
    static const char *const merges[] = {SP " a", "a b",     SP " ab", SP "a b",
                                         "\n \n", "no such", "x"};
    for (size_t i = 0; i < T9_COUNT(words); i++)
        (void)pieces_add(&p, words[i], TOK_TYPE_NORMAL, 0);
    for (size_t i = 0; i < T9_COUNT(merges); i++)
        p.y.merge[p.y.src.n_merges++] = str_from(merges[i]);
    struct tokenizer *t = toy_build(&p.y);
    assert_true(tokenizer_add_bos(t));
    struct tok_span s = toy_user(STR("ab ab\n\n\nab"));
    /* No space goes before the text; the run of three is taken whole, though no merge makes it. */
    pieces_expect_spans(t, &s, 1, true, "<bos>|ab| ab|\n\n\n|ab");
    pieces_expect(t, "\n\n\n\n é", false, "\n\n|\n\n| |\xC3|\xA9");
    pieces_round_trip(t, " a  b", false, " a  b");
    tokenizer_free(t);
}

static void test_cuts(void **state)
{
    static const char *const fragments[] = {"</s>", "<s>", "</", "s>", "hello", " ", "  ",
                                            "l",    "é",   "[",  "\n", "x",     SP};
    (void)state;
    llama(true);
    struct tokenizer *t = toy_build(&p.y);
    pieces_try_cuts(t, fragments, T9_COUNT(fragments));
    tokenizer_free(t);
}

static void test_refused(void **state)
{
    (void)state;
    llama(true);
    p.y.src.score = NULL;
    pieces_refused(&p, T9_STATUS_CORRUPT, "tokenizer.ggml.scores is missing");
    llama(true);
    p.score[7] = NAN;
    pieces_refused(&p, T9_STATUS_CORRUPT, "tokenizer.ggml.scores[7] is no number");
    llama(true);
    p.y.src.unk = 1 << 20;
    pieces_refused(&p, T9_STATUS_CORRUPT, "unknown_token_id");
    llama(true);
    p.y.src.n_charsmap = 100;
    pieces_refused(&p, T9_STATUS_UNSUPPORTED, "precompiled_charsmap");
}

/* Odd tables load: empty, repeated and huge pieces, scores without bounds, malformed text, no
 * types.
 */
static void test_odd_tables(void **state)
{
    (void)state;
    llama(true);
    static char huge[TOK_TOKEN_BYTES_MAX + 1];
    memset(huge, 'h', TOK_TOKEN_BYTES_MAX);
    (void)pieces_add(&p, "", TOK_TYPE_NORMAL, INFINITY);
    (void)pieces_add(&p, SP "hello", TOK_TYPE_NORMAL, INFINITY);
    (void)pieces_add(&p, huge, TOK_TYPE_NORMAL, -INFINITY);
    (void)pieces_add(&p, "\xFF", TOK_TYPE_NORMAL, 5);
    (void)pieces_add(&p, "l\xFF", TOK_TYPE_NORMAL, 5);
    (void)pieces_add(&p, "<0xZZ>", TOK_TYPE_BYTE, 5);
    struct tokenizer *t = toy_build(&p.y);
    pieces_expect(t, "hello l\xFF", false, " hello| |l|\xFF");
    tokenizer_free(t);
    p.y.src.type = NULL;
    t = toy_build(&p.y);
    pieces_expect(t, "😀", false, " |\xF0|\x9F|\x98|\x80");
    tokenizer_free(t);
    /* More long pieces than their parts can be looked for. */
    pieces_init(&p, "llama");
    enum { N_LONG = 300 };
    static char text[N_LONG][TOK_TOKEN_BYTES_MAX];
    for (int i = 0; i < N_LONG; i++) {
        memset(text[i], 'h', sizeof(text[i]));
        memcpy(text[i],
               &(char[3]){(char)('0' + i / 100), (char)('0' + i / 10 % 10), (char)('0' + i % 10)},
               3);
        p.y.token[i] = (str){text[i], sizeof(text[i])};
        p.y.type[i] = TOK_TYPE_NORMAL;
    }
    p.y.src.n_tokens = N_LONG;
    pieces_refused(&p, T9_STATUS_CORRUPT, "too many long tokens");
}

/* A megabyte of one character, where merging by looking at the whole text would take hours. */
static void test_long_runs(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    char *text = mem_alloc(N), piece[70] = "";
    struct tok_ids ids;
    assert_non_null(text);
    memset(text, 'h', N);
    llama(true);
    for (size_t n = 2; n <= 64; n++) {
        memset(piece, 'h', n);
        (void)pieces_add(&p, piece, TOK_TYPE_NORMAL, -(float)n);
    }
    struct tokenizer *t = toy_build(&p.y);
    for (int k = 0; k < 3; k++) {
        memset(text, "h q"[k], N); /* merges, only a space's token, only a byte's */
        struct tok_span s = toy_user((str){text, N});
        tok_ids_init(&ids, N + 1);
        uint64_t from = clock_now_ns();
        assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, NULL), T9_STATUS_OK);
        assert_true((clock_now_ns() - from) / 1000000 < 20000);
        assert_true(k ? ids.n >= N : ids.n < N / 16);
        tok_ids_deinit(&ids);
    }
    tokenizer_free(t);
    mem_free(text);
}

static void test_no_memory(void **state)
{
    (void)state;
    llama(true);
    (void)pieces_add(&p, "né", TOK_TYPE_NORMAL, -1);
    struct tokenizer *t = NULL;
    t9_status st = T9_STATUS_NOMEM;
    for (uint64_t n = 1; st != T9_STATUS_OK && n < 200; n++) {
        mem_test_fail_nth(n);
        st = tokenizer_new_from(&t, &p.y.src, NULL);
        mem_test_fail_nth(0);
        assert_true(st == T9_STATUS_OK || st == T9_STATUS_NOMEM);
    }
    assert_int_equal(st, T9_STATUS_OK);
    struct tok_span s = toy_user(STR("hello hello hello hello hello hello hello "
                                     "hellohellohellohellohellohellohellohellohello"));
    st = T9_STATUS_NOMEM;
    for (uint64_t n = 1; st != T9_STATUS_OK && n < 50; n++) {
        struct tok_ids ids;
        tok_ids_init(&ids, 1000);
        mem_test_fail_nth(n);
        st = tokenizer_encode(t, &s, 1, false, &ids, NULL);
        mem_test_fail_nth(0);
        assert_true(st == T9_STATUS_OK || (st == T9_STATUS_NOMEM && ids.n == 0));
        tok_ids_deinit(&ids);
    }
    assert_int_equal(st, T9_STATUS_OK);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_highest_score_first),
        cmocka_unit_test(test_equal_scores),
        cmocka_unit_test(test_space_prefix),
        cmocka_unit_test(test_provenance),
        cmocka_unit_test(test_unknown_characters),
        cmocka_unit_test(test_part_that_is_no_token),
        cmocka_unit_test(test_text_tokens),
        cmocka_unit_test(test_collapsed_spaces),
        cmocka_unit_test(test_streaming),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_odd_tables),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_no_memory),
    };
    log_configure(&(struct log_config){.level = LOG_LEVEL_ERROR});
    return cmocka_run_group_tests(tests, NULL, NULL);
}
