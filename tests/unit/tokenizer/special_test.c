/* Tests of tokenizer/special.c against a plain search, and with very many markers. */
#include "toy.h"

#include "base/mem.h"

static uint32_t rng_state = 1;
static uint32_t rng(uint32_t below)
{
    rng_state = rng_state * 1664525U + 1013904223U;
    return (rng_state >> 8) % below;
}

static bool allowed(const bool *flag, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!flag[from + i])
            return false;
    }
    return true;
}

/* Leftmost, then longest, by trying every entry at every position. */
static size_t naive(const struct special_entry *e, size_t n_entries, str text,
                    const bool *allow[SPECIAL_KINDS], struct special_match *out)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        struct special_match best = {0};
        for (size_t k = 0; k < n_entries; k++) {
            str m = e[k].text;
            if (m.n > best.n_bytes && i + m.n <= text.n && memcmp(text.p + i, m.p, m.n) == 0 &&
                allowed(allow[e[k].kind], i, m.n))
                best = (struct special_match){i, m.n, e[k].id, e[k].kind};
        }
        if (best.n_bytes)
            out[n++] = best;
        i += best.n_bytes ? best.n_bytes : 1;
    }
    return n;
}

static void test_equals_plain_search(void **state)
{
    (void)state;
    enum { N_TEXT = 120, N_ENTRIES = 14 };
    for (int round = 0; round < 3000; round++) {
        char pool[N_ENTRIES][8], text[N_TEXT];
        struct special_entry e[N_ENTRIES];
        for (size_t k = 0; k < N_ENTRIES; k++) {
            size_t n = 1 + rng(7);
            for (size_t i = 0; i < n; i++)
                pool[k][i] = "ab<"[rng(3)];
            e[k] = (struct special_entry){{pool[k], n}, (int32_t)k, (int)rng(2)};
        }
        for (size_t i = 0; i < N_TEXT; i++)
            text[i] = "ab<"[rng(3)];
        struct tok_span spans[6];
        bool ctrl[N_TEXT], user[N_TEXT];
        size_t at = 0;
        for (size_t i = 0; i < 6; i++) {
            size_t n = i == 5 ? N_TEXT - at : rng(40);
            n = n > N_TEXT - at ? N_TEXT - at : n;
            spans[i] = (struct tok_span){{text + at, n}, rng(3) > 0, rng(3) > 0};
            for (size_t j = 0; j < n; j++) {
                ctrl[at + j] = spans[i].parse_control;
                user[at + j] = spans[i].parse_user_defined;
            }
            at += n;
        }
        const bool *allow[SPECIAL_KINDS] = {[SPECIAL_CONTROL] = ctrl, [SPECIAL_USER] = user};
        struct special_match want[N_TEXT];
        size_t n_want = naive(e, N_ENTRIES, (str){text, N_TEXT}, allow, want);
        struct special_set *s = NULL;
        struct special_matches got = {0};
        assert_int_equal(special_new(&s, e, N_ENTRIES, NULL), T9_STATUS_OK);
        assert_int_equal(special_find(s, (str){text, N_TEXT}, spans, 6, &got, NULL), T9_STATUS_OK);
        assert_int_equal(got.n, n_want);
        for (size_t i = 0; i < n_want; i++) {
            assert_int_equal(got.p[i].from, want[i].from);
            assert_int_equal(got.p[i].n_bytes, want[i].n_bytes);
            /* The same text in both kinds: either id is right. */
            assert_true(str_eq(e[got.p[i].id].text, e[want[i].id].text));
        }
        mem_free(got.p);
        special_free(s);
    }
}

/* 10,000 markers with a common start, and a megabyte in which each position begins most of one. */
static void test_many_markers(void **state)
{
    (void)state;
    enum { N = 10000, N_TEXT = 1 << 20 };
    static char names[N][32];
    static struct special_entry e[N];
    for (int i = 0; i < N; i++) {
        int n = snprintf(names[i], sizeof(names[i]), "<|reserved_%05d|>", i);
        e[i] = (struct special_entry){{names[i], (size_t)n}, i, i & 1};
    }
    struct special_set *s = NULL;
    assert_int_equal(special_new(&s, e, N, NULL), T9_STATUS_OK);
    char *text = mem_alloc(N_TEXT);
    for (size_t i = 0; i < N_TEXT; i++)
        text[i] = names[i / 16 % N][i % 16];
    memcpy(text + 500, names[77], 18);
    memcpy(text + N_TEXT - 18, names[9999], 18);
    struct tok_span span = toy_raw((str){text, N_TEXT});
    struct special_matches got = {0};
    assert_int_equal(special_find(s, span.text, &span, 1, &got, NULL), T9_STATUS_OK);
    assert_int_equal(got.n, 2);
    assert_int_equal(got.p[0].id, 77);
    assert_int_equal(got.p[0].from, 500);
    assert_int_equal(got.p[1].id, 9999);
    mem_free(got.p);
    mem_free(text);
    special_free(s);
}

/* Markers that are each other's prefixes: a text of one character must stay linear. */
static void test_nested_markers(void **state)
{
    (void)state;
    enum { N = 1000, N_TEXT = 1 << 20 };
    char *text = mem_alloc(N_TEXT);
    memset(text, '<', N_TEXT);
    static struct special_entry e[N];
    for (int i = 0; i < N; i++)
        e[i] = (struct special_entry){{text, (size_t)i + 1}, i, SPECIAL_CONTROL};
    struct special_set *s = NULL;
    assert_int_equal(special_new(&s, e, N, NULL), T9_STATUS_OK);
    struct tok_span span = toy_raw((str){text, N_TEXT});
    struct special_matches got = {0};
    assert_int_equal(special_find(s, span.text, &span, 1, &got, NULL), T9_STATUS_OK);
    assert_int_equal(got.n, (N_TEXT + N - 1) / N);
    assert_int_equal(got.p[0].id, N - 1);
    assert_int_equal(got.p[got.n - 1].n_bytes, N_TEXT % N);
    mem_free(got.p);
    mem_free(text);
    special_free(s);
}

static void test_none(void **state)
{
    (void)state;
    struct special_set *s = NULL;
    struct special_matches got = {0};
    struct tok_span span = toy_raw(STR("abc"));
    assert_int_equal(special_new(&s, NULL, 0, NULL), T9_STATUS_OK);
    assert_int_equal(special_find(s, span.text, &span, 1, &got, NULL), T9_STATUS_OK);
    assert_int_equal(got.n, 0);
    special_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_plain_search),
        cmocka_unit_test(test_many_markers),
        cmocka_unit_test(test_nested_markers),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
