/*
 * sample_test: the generator against its published vectors, the filters against a plain
 * re-implementation that sorts everything, frequencies against probabilities, and hostile logits.
 */
#include "sample/philox.c"
#include "sample/sample.c"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Known-answer vectors that the authors publish with Random123. */
static void philox_vectors(void **state)
{
    (void)state;
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < T9_COUNT(kat); i++) {
        uint32_t out[4];
        philox4x32_10(kat[i].ctr, kat[i].key, out);
        assert_memory_equal(out, kat[i].out, sizeof out);
    }
}

static void exp_is_exact_enough(void **state)
{
    (void)state;
    assert_true(exp_neg(0.0) == 1.0);
    assert_true(exp_neg(-1e9) == 0.0);
    assert_true(exp_neg(-HUGE_VAL) == 0.0);
    double worst = 0.0;
    for (double x = -700.0; x < 0.0; x += 0.00137) {
        double e = fabs(exp_neg(x) / exp(x) - 1.0);
        worst = e > worst ? e : worst;
    }
    assert_true(worst < 4e-16);
    assert_true(fabs(ln_of(0.05) - log(0.05)) < 1e-12);
}

static void key_order(void **state)
{
    (void)state;
    static const float falling[] = {3e38f, 10.5f, 1.0f, 1e-30f, 0.0f, -1e-30f, -1.0f, -3e38f};
    for (size_t i = 0; i < T9_COUNT(falling); i++) {
        assert_true(logit_of(key_of(falling[i])) == falling[i]);
        if (i > 0)
            assert_true(key_of(falling[i - 1]) < key_of(falling[i]));
    }
    assert_int_equal(key_of(0.0f), key_of(-0.0f));
}

static struct sampler *new_sampler(int32_t n)
{
    struct sampler *s = NULL;
    struct t9_err err;
    assert_int_equal(sampler_new(&s, n, &err), T9_STATUS_OK);
    return s;
}

static void greedy(void **state)
{
    (void)state;
    struct sampler *s = new_sampler(6);
    struct sample_params p;
    sample_params_init(&p);
    p.temperature = 0.0f;
    const float tie[6] = {1, 5, NAN, 5, INFINITY, -INFINITY};
    assert_int_equal(sampler_pick(s, tie, &p, 0, 0), 1);
    const float none[6] = {NAN, NAN, -INFINITY, NAN, NAN, -INFINITY};
    assert_int_equal(sampler_pick(s, none, &p, 0, 0), -1);
    p.temperature = 1.0f;
    assert_int_equal(sampler_pick(s, none, &p, 0, 0), -1);
    const float one[6] = {NAN, -INFINITY, -INFINITY, -1e30f, NAN, INFINITY};
    for (uint64_t pos = 0; pos < 50; pos++)
        assert_int_equal(sampler_pick(s, one, &p, 0, pos), 3);
    sampler_free(s);
}

static void params(void **state)
{
    (void)state;
    static const struct sample_params bad[] = {
        {.temperature = -0.1f, .top_p = 1},
        {.temperature = 101, .top_p = 1},
        {.temperature = NAN, .top_p = 1},
        {.top_p = 0},
        {.top_p = 1.01f},
        {.top_p = NAN},
        {.top_p = 1, .min_p = -0.1f},
        {.top_p = 1, .min_p = 1.5f},
        {.top_p = 1, .min_p = NAN},
        {.top_p = 1, .top_k = -1},
    };
    static const char *const names[] = {"temperature", "temperature", "temperature", "top_p",
                                        "top_p",       "top_p",       "min_p",       "min_p",
                                        "min_p",       "top_k"};
    struct t9_err err;
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        assert_int_equal(sample_params_check(&bad[i], &err), T9_STATUS_INVALID);
        assert_non_null(strstr(err.msg, names[i]));
    }
    struct sample_params p;
    sample_params_init(&p);
    assert_int_equal(sample_params_check(&p, &err), T9_STATUS_OK);
}

/* ---- against a plain implementation ---- */

static const float *ref_logits;

static int by_logit(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a;
    int32_t j = *(const int32_t *)b;
    if (ref_logits[i] != ref_logits[j])
        return ref_logits[i] > ref_logits[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

/* Sorts everything and walks it. Sets kept[id] for what may be drawn; returns the pick. */
static int32_t plain_pick(const float *l, int32_t n, const struct sample_params *p, uint64_t pos,
                          bool *kept)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    int32_t m = 0;
    float max = l[arg_max(l, n)];
    double inv_t = 1.0 / (double)p->temperature;
    double x_min = p->min_p > 0 ? ln_of((double)p->min_p) : -HUGE_VAL;
    memset(kept, 0, (size_t)n * sizeof *kept);
    for (int32_t i = 0; i < n; i++) {
        if (isfinite(l[i]) && ((double)l[i] - (double)max) * inv_t >= x_min)
            ids[m++] = i;
    }
    bool sorted = false;
    double total = 0;
    if (p->top_k > 0 && p->top_k < m) {
        ref_logits = l;
        qsort(ids, (size_t)m, sizeof *ids, by_logit);
        m = p->top_k;
        sorted = true;
    }
    if (p->top_p < 1) {
        for (int32_t i = 0; i < m; i++)
            total += exp_neg(((double)l[ids[i]] - (double)max) * inv_t);
        ref_logits = l;
        if (!sorted)
            qsort(ids, (size_t)m, sizeof *ids, by_logit);
        double sum = 0;
        for (int32_t i = 0; i < m; i++) {
            sum += exp_neg(((double)l[ids[i]] - (double)max) * inv_t);
            if (sum >= (double)p->top_p * total) {
                m = i + 1;
                break;
            }
        }
    }
    total = 0;
    for (int32_t i = 0; i < m; i++) {
        kept[ids[i]] = true;
        total += exp_neg(((double)l[ids[i]] - (double)max) * inv_t);
    }
    double goal = uniform(p->seed, 0, pos) * total;
    double sum = 0;
    int32_t pick = ids[0];
    for (int32_t i = 0; i < m; i++) {
        double w = exp_neg(((double)l[ids[i]] - (double)max) * inv_t);
        if (w <= 0)
            continue;
        pick = ids[i];
        sum += w;
        if (sum > goal)
            break;
    }
    free(ids);
    return pick;
}

static float random_logit(uint32_t i, uint32_t salt)
{
    const uint32_t ctr[4] = {i, salt, 0, 0};
    const uint32_t key[2] = {1, 2};
    uint32_t r[4];
    philox4x32_10(ctr, key, r);
    /* Sum of uniforms: roughly normal, sigma about 3.5, quantised so that ties are common. */
    double x = ((double)r[0] + (double)r[1] + (double)r[2] + (double)r[3]) * 0x1p-32 - 2.0;
    return (float)((double)(int)(x * 96.0) / 16.0);
}

static void same_as_plain(void **state)
{
    (void)state;
    enum { N = 3000 };
    static const float temps[] = {0.05f, 0.7f, 1.0f, 8.0f};
    static const float top_ps[] = {1.0f, 0.95f, 0.5f, 1e-6f};
    static const float min_ps[] = {0.0f, 0.02f, 1.0f};
    static const int32_t top_ks[] = {0, 2, 40, 700, 5000};
    float *l = malloc(N * sizeof *l);
    bool *kept = malloc(N * sizeof *kept);
    struct sampler *s = new_sampler(N);
    uint32_t salt = 0;
    for (size_t a = 0; a < T9_COUNT(temps) * T9_COUNT(top_ps) * T9_COUNT(min_ps) * 5; a++) {
        struct sample_params p = {.temperature = temps[a % 4],
                                  .top_p = top_ps[a / 4 % 4],
                                  .min_p = min_ps[a / 16 % 3],
                                  .top_k = top_ks[a / 48 % 5],
                                  .seed = a * 77};
        salt++;
        for (uint32_t i = 0; i < N; i++)
            l[i] = random_logit(i, salt);
        l[salt % N] = NAN;
        l[(salt * 7) % N] = -INFINITY;
        for (uint64_t pos = 0; pos < 12; pos++) {
            int32_t want = plain_pick(l, N, &p, pos, kept);
            int32_t got = sampler_pick(s, l, &p, 0, pos);
            assert_int_equal(got, want);
            assert_true(kept[got]);
        }
    }
    sampler_free(s);
    free(kept);
    free(l);
}

static void frequencies(void **state)
{
    (void)state;
    static const float l[4] = {0.0f, 0.6931472f, 1.3862944f, 0.0f}; /* 1 : 2 : 4 : 1 */
    static const double want[4] = {0.125, 0.25, 0.5, 0.125};
    enum { DRAWS = 80000 };
    struct sampler *s = new_sampler(4);
    struct sample_params p;
    sample_params_init(&p);
    p.seed = 0x123456789abcdefull;
    int count[4] = {0};
    for (uint64_t pos = 0; pos < DRAWS; pos++)
        count[sampler_pick(s, l, &p, 3, pos)]++;
    for (int i = 0; i < 4; i++)
        assert_true(fabs((double)count[i] / DRAWS - want[i]) < 0.006);
    sampler_free(s);
}

/* Seed, choice and position each change the stream; nothing else does. */
static void keyed(void **state)
{
    (void)state;
    enum { N = 1000, LEN = 40 };
    static float l[N];
    struct sampler *s = new_sampler(N);
    struct sample_params p;
    sample_params_init(&p);
    p.seed = 7;
    int32_t base[LEN];
    int differ[3] = {0};
    for (uint64_t i = 0; i < LEN; i++)
        base[i] = sampler_pick(s, l, &p, 0, i);
    for (uint64_t i = LEN; i-- > 0;)
        assert_int_equal(sampler_pick(s, l, &p, 0, i), base[i]);
    for (uint64_t i = 0; i < LEN; i++) {
        struct sample_params q = p;
        q.seed = p.seed | (uint64_t)1 << 63;
        differ[0] += sampler_pick(s, l, &q, 0, i) != base[i];
        differ[1] += sampler_pick(s, l, &p, 1, i) != base[i];
        differ[2] += sampler_pick(s, l, &p, 0, i | (uint64_t)1 << 32) != base[i];
    }
    for (int i = 0; i < 3; i++)
        assert_true(differ[i] > LEN - 4);
    sampler_free(s);
}

static void allocates_nothing(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float l[N];
    struct sampler *s = new_sampler(N);
    struct sample_params p = {.temperature = 1, .top_p = 0.9f, .top_k = 1000, .min_p = 0.01f};
    for (uint32_t i = 0; i < N; i++)
        l[i] = random_logit(i, 1);
    uint64_t before = mem_thread_alloc_count();
    (void)sampler_pick(s, l, &p, 0, 0);
    assert_int_equal(mem_thread_alloc_count(), before);
    sampler_free(s);
    struct t9_err err;
    for (uint64_t nth = 1; nth <= 4; nth++) {
        mem_test_fail_nth(nth);
        assert_int_equal(sampler_new(&s, N, &err), T9_STATUS_NOMEM);
        assert_null(s);
    }
    mem_test_fail_nth(0);
    assert_int_equal(sampler_new(&s, 0, &err), T9_STATUS_INVALID);
}

/* Against libm; ties and the k-th place go to the lower id; a row without a finite value. */
static void log_probabilities(void **state)
{
    (void)state;
    enum { N = 700 };
    static float l[N];
    struct t9_logprob out[1 + SAMPLE_TOP_MAX];
    struct sampler *s = new_sampler(N);
    for (uint32_t a = 0; a < 50; a++) {
        double max = -HUGE_VAL, sum = 0;
        for (uint32_t i = 0; i < N; i++) {
            l[i] = i % 11 == 0 ? -INFINITY : floorf(random_logit(i, a) * 4) / 4;
            max = fmax(max, (double)l[i]);
        }
        l[5] = NAN;
        for (uint32_t i = 0; i < N; i++)
            sum += l[i] > -INFINITY ? exp((double)l[i] - max) : 0;
        sampler_note(s, l);
        sampler_logprobs(s, 7, SAMPLE_TOP_MAX, out);
        assert_true(fabs((double)out[0].logprob - ((double)l[7] - max - log(sum))) < 1e-5);
        for (int k = 2; k <= SAMPLE_TOP_MAX; k++) {
            float x = l[out[k - 1].token], y = l[out[k].token];
            assert_true(x > y || (x >= y && out[k - 1].token < out[k].token));
        }
        int n_above = 0;
        for (uint32_t i = 0; i < N; i++)
            n_above += l[i] > l[out[SAMPLE_TOP_MAX].token];
        assert_true(n_above < SAMPLE_TOP_MAX);
        sampler_logprobs(s, 11, 0, out);
        assert_true(isinf(out[0].logprob) && out[0].logprob < 0);
    }
    for (int i = 0; i < N; i++)
        l[i] = NAN;
    sampler_note(s, l);
    sampler_logprobs(s, 3, 2, out);
    assert_true(out[0].token == 3 && isinf(out[0].logprob));
    assert_true(out[1].token == -1 && out[2].token == -1);
    sampler_free(s);
}

static void penalties(void **state)
{
    (void)state;
    static const int32_t tokens[] = {1, 2, 2, 3, 2, 900, -1};
    static const struct sample_bias bias[] = {{0, 2}, {900, 1}, {4, -100}};
    struct sampler *s = new_sampler(8);
    for (int again = 0; again < 2; again++) { /* no state is left from the first time */
        float l[8] = {1, 1, 1, -1, 1, 1, 1, 1};
        struct sample_params p = {.presence_penalty = 0.5f,
                                  .frequency_penalty = 0.25f,
                                  .repetition_penalty = 2,
                                  .bias = bias,
                                  .n_bias = 3};
        sampler_adjust(s, l, &p, tokens, 7, 2);
        static const float want[8] = {3, 0.5f, 0.5f - 0.5f - 2 * 0.25f, -2 - 0.75f, -99, 1, 1, 1};
        for (int i = 0; i < 8; i++)
            assert_true(fabsf(l[i] - want[i]) < 1e-6f);
    }
    struct sample_params bad[] = {
        {.temperature = 1, .top_p = 1, .presence_penalty = 2.1f},
        {.temperature = 1, .top_p = 1, .frequency_penalty = -2.1f},
        {.temperature = 1, .top_p = 1, .repetition_penalty = 11},
        {.temperature = 1, .top_p = 1, .n_bias = SAMPLE_BIAS_MAX + 1, .bias = bias},
        {.temperature = 1, .top_p = 1, .n_bias = 1},
    };
    struct t9_err err;
    for (size_t i = 0; i < T9_COUNT(bad); i++)
        assert_int_equal(sample_params_check(&bad[i], &err), T9_STATUS_INVALID);
    sampler_free(s);
}

/* Printed, not asserted: a shared machine's times are no pass or fail. */
static void times(void **state)
{
    (void)state;
    enum { N = 151936, REPS = 10 };
    static const struct {
        const char *name;
        struct sample_params p;
    } cases[] = {
        {"greedy", {.temperature = 0, .top_p = 1}},
        {"temperature", {.temperature = 1, .top_p = 1}},
        {"top_k 40", {.temperature = 1, .top_p = 1, .top_k = 40}},
        {"top_p 0.95", {.temperature = 1, .top_p = 0.95f}},
        {"min_p 0.05", {.temperature = 1, .top_p = 1, .min_p = 0.05f}},
        {"top_p 0.95, flat", {.temperature = 100, .top_p = 0.95f}},
    };
    float *l = malloc(N * sizeof *l);
    struct sampler *s = new_sampler(N);
    for (uint32_t i = 0; i < N; i++)
        l[i] = random_logit(i, 9) + (float)(i % 97) * 1e-4f;
    for (size_t c = 0; c < T9_COUNT(cases); c++) {
        uint64_t best = UINT64_MAX;
        for (uint64_t r = 0; r < REPS; r++) {
            uint64_t t = clock_now_ns();
            int32_t id = sampler_pick(s, l, &cases[c].p, 0, r);
            t = clock_now_ns() - t;
            best = t < best ? t : best;
            assert_in_range(id, 0, N - 1);
        }
        print_message("%d tokens, %-18s %6.3f ms\n", N, cases[c].name, (double)best / 1e6);
    }
    sampler_free(s);
    free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_vectors),
        cmocka_unit_test(exp_is_exact_enough),
        cmocka_unit_test(key_order),
        cmocka_unit_test(greedy),
        cmocka_unit_test(params),
        cmocka_unit_test(same_as_plain),
        cmocka_unit_test(frequencies),
        cmocka_unit_test(keyed),
        cmocka_unit_test(allocates_nothing),
        cmocka_unit_test(log_probabilities),
        cmocka_unit_test(penalties),
        cmocka_unit_test(times),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
