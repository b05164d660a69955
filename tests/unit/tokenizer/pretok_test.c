/*
 * Tests of tokenizer/pretok.c: the hand-written scanners against the regular expressions
 * themselves, run by PCRE2 over random text, and long runs.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "toy.h"

#include "base/mem.h"

#include <pcre2.h>

/* PCRE2's \s and \S differ from White_Space at U+180E, so the class is written out. */
#define WS                                                                                         \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define TAIL   "[" WS "]+(?![^" WS "])|[" WS "]+"
#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" TAIL
#define UPPER  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NO_CUT "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED(suffix, numbers)                                                                     \
    NO_CUT UPPER "*" LOWER "+" suffix "|" NO_CUT UPPER "+" LOWER "*" suffix "|" numbers "| ?[^" WS \
                 "\\p{L}\\p{N}]+[\\r\\n/]*|[" WS "]*[\\r\\n]+|" TAIL
#define QWEN35                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS            \
    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" TAIL
#define LLAMA3(numbers)                                                                            \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers "| ?[^" WS               \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|" TAIL

static uint32_t rng_state = 5;
static uint32_t rng(uint32_t below)
{
    rng_state = rng_state * 1664525U + 1013904223U;
    return (rng_state >> 8) % below;
}

static const char *const letters[] = {
    "a",
    "S",
    "t",
    "'",
    "'",
    "s",
    "re",
    "VE",
    "ll",
    "d",
    "1",
    "2",
    " ",
    " ",
    " ",
    "\n",
    "\r",
    "\t",
    "!",
    "-",
    "é",
    "ß",
    "ſ",
    "中",
    "あ",
    "ा",
    "٣",
    "Ⅷ",
    "½",
    "😀",
    "\xC2\xA0",
    "\xE3\x80\x80",
    "\xE1\xA0\x8E",
    "\xC2\x85",
    "\xCC\x81",
    "_",
    "''",
    "  ",
    "\n\n",
    "\xEF\xBB\xBF",
    "A",
    "B",
    "É",
    "ǅ",
    "ʰ",
    "\xE0\xA4\xBE",
    "/",
    "'S",
};

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

static pcre2_code *compile(const char *pattern)
{
    int code;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, NULL);
    assert_non_null(re);
    return re;
}

struct patterns {
    pcre2_code *word, *number;
    pcre2_match_data *md;
};

/* End of what the pattern may see from pos: with isolated numbers, only the stretch up to the next.
 */
static size_t visible_end(struct patterns *p, str text, size_t pos)
{
    for (size_t at = pos; at < text.n; at++) {
        if (((unsigned char)text.p[at] & 0xC0) == 0x80)
            continue;
        if (pcre2_match(p->number, (PCRE2_SPTR)text.p, text.n, at, 0, p->md, NULL) > 0)
            return at > pos ? at : pcre2_get_ovector_pointer(p->md)[1];
    }
    return text.n;
}

static void compare_text(const struct pretok_rule *r, struct patterns *p, str text)
{
    for (size_t pos = 0; pos < text.n;) {
        size_t end = r->isolate_numbers ? visible_end(p, text, pos) : text.n;
        assert_true(pcre2_match(p->word, (PCRE2_SPTR)text.p, end, pos, 0, p->md, NULL) > 0);
        size_t want = pcre2_get_ovector_pointer(p->md)[1];
        size_t got = pretok_next(r, &u, text, pos);
        if (got != want)
            fail_msg("%s: at %zu of \"" STR_FMT "\": %zu, not %zu", r->name, pos, STR_ARG(text),
                     got, want);
        pos = got;
    }
}

static void compare(const char *name, const char *pattern)
{
    const struct pretok_rule *r = pretok_find(str_from(name));
    assert_non_null(r);
    struct patterns p = {compile(pattern), compile("\\p{N}"), pcre2_match_data_create(8, NULL)};
    for (int round = 0; round < 20000; round++) {
        struct buf text;
        buf_init(&text, 1000);
        for (uint32_t k = 1 + rng(24); k; k--)
            buf_puts(&text, letters[rng((uint32_t)T9_COUNT(letters))]);
        compare_text(r, &p, buf_str(&text));
        buf_deinit(&text);
    }
    pcre2_match_data_free(p.md);
    pcre2_code_free(p.word);
    pcre2_code_free(p.number);
}

static void test_gpt2(void **state)
{
    (void)state;
    compare("gpt-2", GPT2);
    compare("default", GPT2);
}

static void test_smollm(void **state)
{
    (void)state;
    compare("smollm", GPT2);
}

static void test_qwen2(void **state)
{
    (void)state;
    compare("qwen2", LLAMA3("\\p{N}"));
    compare("deepseek-r1-qwen", LLAMA3("\\p{N}"));
}

static void test_llama3(void **state)
{
    (void)state;
    compare("llama-bpe", LLAMA3("\\p{N}{1,3}"));
    compare("llama3", LLAMA3("\\p{N}{1,3}"));
    compare("llama-v3", LLAMA3("\\p{N}{1,3}"));
    compare("lfm2", LLAMA3("\\p{N}{1,3}"));
}

static void test_qwen35(void **state)
{
    (void)state;
    compare("qwen35", QWEN35);
}

static void test_cased(void **state)
{
    (void)state;
    compare("tekken", CASED("", "\\p{N}"));
    compare("gpt-4o", CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}"));
}

/* A million characters of one class are one forward scan; malformed bytes are symbols. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2",  "smollm", "qwen2", "llama-bpe",
                                        "qwen35", "tekken", "gpt-4o"};
    enum { N = 1 << 20 };
    char *text = mem_alloc(N);
    for (size_t k = 0; k < T9_COUNT(names); k++) {
        const struct pretok_rule *r = pretok_find(str_from(names[k]));
        memset(text, 'x', N);
        assert_int_equal(pretok_next(r, &u, (str){text, N}, 0), N);
        memset(text, ' ', N);
        assert_int_equal(pretok_next(r, &u, (str){text, N}, 0), N);
        text[N - 1] = 'x';
        assert_int_equal(pretok_next(r, &u, (str){text, N}, 0), N - 2);
        memset(text, 0xFF, N);
        assert_int_equal(pretok_next(r, &u, (str){text, N}, 0), N);
        memset(text, '\n', N);
        assert_int_equal(pretok_next(r, &u, (str){text, N}, 0), N);
        memset(text, 'X', N);
        assert_int_equal(pretok_next(r, &u, (str){text, N}, 0), N);
    }
    mem_free(text);
}

static void test_names(void **state)
{
    (void)state;
    assert_null(pretok_find(STR("no-such")));
    assert_null(pretok_find(STR("")));
    struct buf b;
    buf_init(&b, 1000);
    pretok_names(&b);
    assert_true(str_find(buf_str(&b), STR("llama-bpe, llama3"), 0) != (size_t)-1);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),      cmocka_unit_test(test_smollm),
        cmocka_unit_test(test_qwen2),     cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_qwen35),    cmocka_unit_test(test_cased),
        cmocka_unit_test(test_long_runs), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
