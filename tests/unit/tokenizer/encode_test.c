/* Tests of tokenizer/encode.c and bpe.c: ids, provenance, BOS, limits, merging against a plain one.
 */
#include "pieces.h"

#include "base/mem.h"

static struct toy y;
static struct tokenizer *t;
static int32_t im_start, im_end, think, bos;

static int setup(void **state)
{
    (void)state;
    toy_init(&y, "gpt-2");
    im_start = toy_token(&y, STR("<|im_start|>"), TOK_TYPE_CONTROL);
    im_end = toy_token(&y, STR("<|im_end|>"), TOK_TYPE_CONTROL);
    think = toy_token(&y, STR("<think>"), TOK_TYPE_USER_DEFINED);
    bos = toy_token(&y, STR("<s>"), TOK_TYPE_CONTROL);
    y.src.bos = bos;
    t = toy_build(&y);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_free(t);
    return 0;
}

static void encode(const struct tok_span *spans, size_t n, bool add_bos, struct tok_ids *ids)
{
    struct t9_err err = {0};
    tok_ids_init(ids, 1U << 24);
    if (tokenizer_encode(t, spans, n, add_bos, ids, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
}

static void expect_ids(struct tok_ids *ids, const int32_t *want, size_t n)
{
    assert_int_equal(ids->n, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids->p[i], want[i]);
    tok_ids_deinit(ids);
}
#define EXPECT(ids, ...)                                                                           \
    expect_ids(ids, (const int32_t[]){__VA_ARGS__},                                                \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static int32_t id_of(const char *text)
{
    int32_t id = tokenizer_find(t, str_from(text));
    assert_true(id >= 0);
    return id;
}

static void test_plain(void **state)
{
    (void)state;
    struct tok_ids ids;
    struct tok_span s = toy_user(STR("hello world"));
    encode(&s, 1, false, &ids);
    EXPECT(&ids, id_of("hello"), id_of(" w"), 'o', 'r', 'l', 'd');
    s = toy_user((str){0});
    encode(&s, 1, false, &ids);
    assert_int_equal(ids.n, 0);
    encode(NULL, 0, false, &ids);
    assert_int_equal(ids.n, 0);
}

static void test_provenance(void **state)
{
    (void)state;
    struct tok_ids ids;
    str text = STR("<|im_end|><think>");
    struct tok_span s = toy_raw(text);
    encode(&s, 1, false, &ids);
    EXPECT(&ids, im_end, think);
    s = (struct tok_span){text, false, true};
    encode(&s, 1, false, &ids);
    assert_int_equal(ids.p[ids.n - 1], think);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.p[i], im_end);
    tok_ids_deinit(&ids);
    s = toy_user(text);
    encode(&s, 1, false, &ids);
    for (size_t i = 0; i < ids.n; i++)
        assert_true(vocab_type(tokenizer_vocab(t), ids.p[i]) == TOK_TYPE_NORMAL);
    tok_ids_deinit(&ids);
}

/* A marker whose bytes come from two sources is one only when both may write it. */
static void test_marker_across_spans(void **state)
{
    (void)state;
    struct tok_ids ids;
    struct tok_span ok[] = {toy_raw(STR("<|im_")), toy_raw(STR("")), toy_raw(STR("end|>"))};
    encode(ok, 3, false, &ids);
    EXPECT(&ids, im_end);
    struct tok_span split[] = {toy_raw(STR("<|im_end")), toy_user(STR("|>"))};
    encode(split, 2, false, &ids);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.p[i], im_end);
    tok_ids_deinit(&ids);
    struct tok_span inside[] = {toy_raw(STR("<|im_start|>")), toy_user(STR("<|im_end|>")),
                                toy_raw(STR("<|im_end|>"))};
    encode(inside, 3, false, &ids);
    assert_int_equal(ids.p[0], im_start);
    assert_int_equal(ids.p[ids.n - 1], im_end);
    for (size_t i = 1; i + 1 < ids.n; i++)
        assert_true(ids.p[i] < 256 + 10);
    tok_ids_deinit(&ids);
}

/* A border between spans is no border between words. */
static void test_spans_are_one_text(void **state)
{
    (void)state;
    struct tok_ids ids;
    struct tok_span s[] = {toy_user(STR("hel")), toy_raw(STR("lo ")), toy_user(STR("w"))};
    encode(s, 3, false, &ids);
    EXPECT(&ids, id_of("hello"), id_of(" w"));
}

static void test_bos(void **state)
{
    (void)state;
    struct tok_ids ids;
    struct tok_span s = toy_raw(STR("aa"));
    encode(&s, 1, true, &ids);
    EXPECT(&ids, bos, id_of("aa"));
    s = toy_raw(STR("<s>aa")); /* the template wrote it */
    encode(&s, 1, true, &ids);
    EXPECT(&ids, bos, id_of("aa"));
    s = toy_user(STR("<s>")); /* a user wrote it: that is text */
    encode(&s, 1, true, &ids);
    EXPECT(&ids, bos, '<', 's', '>');
    s = toy_raw(STR(""));
    encode(&s, 1, true, &ids);
    EXPECT(&ids, bos);
}

static void test_limit(void **state)
{
    (void)state;
    struct tok_ids ids;
    struct t9_err err;
    struct tok_span s = toy_user(STR("xyz"));
    tok_ids_init(&ids, 4);
    assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, &err), T9_STATUS_OK);
    assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, &err), T9_STATUS_TOO_LARGE);
    assert_non_null(strstr(err.msg, "more than 4 tokens"));
    assert_int_equal(ids.n, 3);
    s = toy_user(STR("q"));
    assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, &err), T9_STATUS_OK);
    EXPECT(&ids, 'x', 'y', 'z', 'q');
}

static uint32_t rng_state;
static uint32_t rng(uint32_t below)
{
    rng_state = rng_state * 1664525U + 1013904223U;
    return (rng_state >> 8) % below;
}

/* Rank of the pair of two tokens by looking through the list of merges. */
static size_t naive_rank(str left, str right)
{
    for (size_t r = 0; r < y.src.n_merges; r++) {
        str m = y.merge[r];
        size_t cut = str_find(m, STR(" "), 1);
        if (str_eq(str_slice(m, 0, cut), left) && str_eq(str_slice(m, cut + 1, m.n), right))
            return r;
    }
    return SIZE_MAX;
}

/* Merging by the definition: again and again the best pair, by looking at all of them. */
static size_t naive_merge(const unsigned char *p, size_t n, int32_t *id)
{
    for (size_t i = 0; i < n; i++)
        id[i] = p[i];
    for (;;) {
        size_t best = 0, best_rank = SIZE_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            size_t r = naive_rank(tokenizer_piece(t, id[i]), tokenizer_piece(t, id[i + 1]));
            best = r < best_rank ? i : best;
            best_rank = r < best_rank ? r : best_rank;
        }
        if (best_rank == SIZE_MAX)
            return n;
        str a = tokenizer_piece(t, id[best]), b = tokenizer_piece(t, id[best + 1]);
        char all[64];
        memcpy(all, a.p, a.n);
        memcpy(all + a.n, b.p, b.n);
        id[best] = tokenizer_find(t, (str){all, a.n + b.n});
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof(*id));
    }
}

/* Short and long words take different code; both must equal the definition. */
static void test_merge_equals_definition(void **state)
{
    (void)state;
    rng_state = 7;
    for (int round = 0; round < 600; round++) {
        unsigned char word[200];
        int32_t want[200];
        size_t n = 1 + rng(round % 3 ? 60 : 199);
        for (size_t i = 0; i < n; i++)
            word[i] = (unsigned char)"aahelloim"[rng(9)];
        size_t n_want = naive_merge(word, n, want);
        struct tok_ids ids;
        struct tok_span s = toy_user((str){(const char *)word, n});
        encode(&s, 1, false, &ids);
        expect_ids(&ids, want, n_want);
    }
}

/* Long texts use a cache of words; the ids must not depend on that. */
static void test_cache_changes_nothing(void **state)
{
    (void)state;
    enum { N = 40000 };
    char *text = mem_alloc(N);
    rng_state = 11;
    for (size_t i = 0; i < N; i++)
        text[i] = "ahelo im  \n1<|"[rng(14)];
    struct tok_ids whole, parts;
    struct tok_span s = toy_user((str){text, N});
    encode(&s, 1, false, &whole);
    tok_ids_init(&parts, N);
    struct uniclass *u = &t->uniclass;
    for (size_t pos = 0; pos < N;) {
        size_t end = pretok_next(t->rule, u, s.text, pos);
        struct tok_ids one;
        struct tok_span w = toy_user(str_slice(s.text, pos, end));
        encode(&w, 1, false, &one);
        for (size_t i = 0; i < one.n; i++)
            tok_ids_push(&parts, one.p[i]);
        tok_ids_deinit(&one);
        pos = end;
    }
    assert_int_equal(whole.n, parts.n);
    assert_memory_equal(whole.p, parts.p, whole.n * sizeof(*whole.p));
    tok_ids_deinit(&whole);
    tok_ids_deinit(&parts);
    mem_free(text);
}

/* Any bytes, well-formed or not, come back. */
static void test_bytes_round_trip(void **state)
{
    (void)state;
    rng_state = 3;
    for (int round = 0; round < 200; round++) {
        char text[300];
        size_t n = rng(300);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(rng(2) ? rng(256) : (uint32_t) "a \xC3\xA9\xF0\x9F\x98\x80"[rng(8)]);
        struct tok_ids ids;
        struct tok_span s = toy_user((str){text, n});
        encode(&s, 1, false, &ids);
        size_t at = 0;
        for (size_t i = 0; i < ids.n; i++) {
            str piece = tokenizer_piece(t, ids.p[i]);
            assert_true(at + piece.n <= n);
            assert_memory_equal(text + at, piece.p, piece.n);
            at += piece.n;
        }
        assert_int_equal(at, n);
        tok_ids_deinit(&ids);
    }
}

/* One word of a megabyte: n log n, no recursion. */
static void test_one_long_word(void **state)
{
    (void)state;
    size_t n = 1U << 20;
    char *text = mem_alloc(n);
    memset(text, 'a', n);
    struct tok_ids ids;
    struct tok_span s = toy_user((str){text, n});
    encode(&s, 1, false, &ids);
    assert_int_equal(ids.n, n / 8);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(ids.p[i], id_of("aaaaaaaa"));
    tok_ids_deinit(&ids);
    mem_free(text);
}

static void test_ignore_merges(void **state)
{
    (void)state;
    static struct toy z;
    toy_init(&z, "llama-bpe");
    int32_t whole = toy_token(&z, STR("world"), TOK_TYPE_NORMAL);
    int32_t control = toy_token(&z, STR("secret"), TOK_TYPE_CONTROL);
    struct tokenizer *l = toy_build(&z);
    struct tok_ids ids;
    struct t9_err err;
    struct tok_span s = toy_user(STR("world"));
    tok_ids_init(&ids, 100);
    assert_int_equal(tokenizer_encode(l, &s, 1, false, &ids, &err), T9_STATUS_OK);
    EXPECT(&ids, whole);
    s = toy_user(STR("secret")); /* a whole word that is a CONTROL token stays text */
    tok_ids_init(&ids, 100);
    assert_int_equal(tokenizer_encode(l, &s, 1, false, &ids, &err), T9_STATUS_OK);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.p[i], control);
    tok_ids_deinit(&ids);
    tokenizer_free(l);
}

static void test_nfc(void **state)
{
    (void)state;
    static struct toy z;
    toy_init(&z, "qwen2");
    int32_t marker = toy_token(&z, STR("<\xC3\xA9>"), TOK_TYPE_CONTROL);
    struct tokenizer *q = toy_build(&z);
    struct tok_ids ids;
    struct t9_err err;
    /* The mark joins its letter across the border of two spans, and the composed text, though it
     * now spells a marker, is no marker. */
    struct tok_span s[] = {toy_raw(STR("<e")), toy_raw(STR("\xCC\x81>"))};
    tok_ids_init(&ids, 100);
    assert_int_equal(tokenizer_encode(q, s, 2, false, &ids, &err), T9_STATUS_OK);
    EXPECT(&ids, '<', 0xC3, 0xA9, '>');
    struct tok_span raw = toy_raw(STR("<\xC3\xA9>"));
    tok_ids_init(&ids, 100);
    assert_int_equal(tokenizer_encode(q, &raw, 1, false, &ids, &err), T9_STATUS_OK);
    EXPECT(&ids, marker);
    tokenizer_free(q);
}

static void test_cuts(void **state)
{
    static const char *const fragments[] = {
        "<|im_start|>", "<|im_end|>", "<think>", "<s>", "<|im_",    "end|>",  "<",          "|",
        "hello",        " ",          "\n",      "e",   "\xCC\x81", "user\n", "  the end ", "\xC3"};
    static const char *const few[] = {"<s>", "hello", "<", " "};
    static struct toy z;
    (void)state;
    pieces_try_cuts(t, fragments, T9_COUNT(fragments));
    /* One marker goes on where another one ends: what comes after it decides. */
    toy_init(&z, "gpt-2");
    (void)toy_token(&z, STR("<s>"), TOK_TYPE_CONTROL);
    (void)toy_token(&z, STR("<s>hello<"), TOK_TYPE_CONTROL);
    struct tokenizer *q = toy_build(&z);
    pieces_try_cuts(q, few, T9_COUNT(few));
    tokenizer_free(q);
}

/* Every allocation of an encode fails once: NOMEM, nothing leaked, the list as before. */
static void test_out_of_memory(void **state)
{
    (void)state;
    char text[9000];
    memset(text, 'a', sizeof(text));
    static const char middle[] = " <|im_end|> hello ";
    memcpy(text + 100, middle, sizeof(middle) - 1);
    struct tok_span s[] = {toy_user(STR("x")), toy_raw((str){text, sizeof(text)})};
    struct tok_ids ids;
    tok_ids_init(&ids, 100000);
    int n_failed = 0;
    for (uint64_t nth = 1; nth < 60; nth++) {
        mem_test_fail_nth(nth);
        t9_status st = tokenizer_encode(t, s, 2, true, &ids, NULL);
        mem_test_fail_nth(0);
        if (st != T9_STATUS_OK) {
            n_failed++;
            assert_int_equal(st, T9_STATUS_NOMEM);
            assert_int_equal(ids.n, 0);
            assert_false(ids.failed);
        }
        tok_ids_deinit(&ids);
        tok_ids_init(&ids, 100000);
    }
    /* All but the cache's, without which it only takes longer. */
    assert_true(n_failed >= 5);
    tok_ids_deinit(&ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_provenance),
        cmocka_unit_test(test_marker_across_spans),
        cmocka_unit_test(test_spans_are_one_text),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_merge_equals_definition),
        cmocka_unit_test(test_cache_changes_nothing),
        cmocka_unit_test(test_bytes_round_trip),
        cmocka_unit_test(test_one_long_word),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
