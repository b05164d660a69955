/*
 * Stop strings against the definition in stop.h, for every way of splitting random texts.
 */
#include "lib/t9test.h"

#include "tokenizer/stop.h"

/* The definition, byte by byte over the whole text: where the answer is cut, or its length. */
static size_t cut_at(str text, const str *stops, size_t n_stops, bool *hit)
{
    for (size_t end = 1; end <= text.n; end++) {
        size_t best = 0;
        for (size_t i = 0; i < n_stops; i++)
            if (stops[i].n > best && str_has_suffix(str_slice(text, 0, end), stops[i]))
                best = stops[i].n;
        if (best) {
            *hit = true;
            return end - best;
        }
    }
    *hit = false;
    return text.n;
}

static void check(str text, const str *stops, size_t n_stops, uint64_t *seed)
{
    struct stop_matcher m;
    struct buf out;
    bool want_hit, hit = false;
    size_t want = cut_at(text, stops, n_stops, &want_hit);
    stop_init(&m, stops, n_stops);
    buf_init(&out, 1 << 16);
    for (size_t at = 0; at < text.n && !hit;) {
        size_t n = 1 + test_random(seed) % 4;
        n = n > text.n - at ? text.n - at : n;
        hit = stop_push(&m, str_slice(text, at, at + n), &out);
        at += n;
        /* Never ahead of the cut: what went out can't be taken back. */
        assert_true(out.n <= want);
        /* Nor held without need: at most what may still become a stop string. */
        assert_true(hit || at - out.n < m.longest_bytes || n_stops == 0);
    }
    if (!hit)
        stop_finish(&m, &out);
    assert_int_equal(hit, want_hit);
    assert_int_equal(out.n, want);
    assert_true(want == 0 || memcmp(out.p, text.p, want) == 0);
    buf_deinit(&out);
    stop_deinit(&m);
}

static void test_random_texts(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[32], stop[4][6];
        str stops[4];
        size_t n = test_random(&seed) % sizeof text, n_stops = test_random(&seed) % 5;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + test_random(&seed) % 2);
        for (size_t i = 0; i < n_stops; i++) {
            stops[i] = (str){stop[i], 1 + test_random(&seed) % 6};
            for (size_t k = 0; k < stops[i].n; k++)
                stop[i][k] = (char)('a' + test_random(&seed) % 2);
        }
        check((str){text, n}, stops, n_stops, &seed);
    }
}

static void test_cases(void **state)
{
    uint64_t seed = 2;
    const str overlapping[] = {STR("aab"), STR("ab"), STR("b")};
    (void)state;
    check(STR("xxaab"), overlapping, 3, &seed);
    check(STR("aaa"), overlapping, 3, &seed);
    check(STR(""), overlapping, 3, &seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_texts),
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
