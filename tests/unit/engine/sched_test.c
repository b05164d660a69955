/*
 * sched_test: the step plan as a pure function, and a simulation that checks its promises over
 * random arrivals.
 */
#include "engine/sched.c"

#include "lib/t9test.h"

#define DECODE(o, l)                                                                               \
    {                                                                                              \
        .n_pending = 1, .decoding = true, .order = (o), .last_step = (l)                           \
    }
#define PROMPT(n, o)                                                                               \
    {                                                                                              \
        .n_pending = (n), .order = (o)                                                             \
    }

static void decode_first_then_prompts_in_order(void **state)
{
    (void)state;
    struct sched_seq s[5] = {PROMPT(100, 7), DECODE(1, 0), PROMPT(20, 3), {0}, DECODE(2, 0)};
    assert_int_equal(sched_plan(s, 5, 64, 64), 64);
    assert_int_equal(s[1].n_rows, 1);
    assert_int_equal(s[4].n_rows, 1);
    assert_int_equal(s[2].n_rows, 20); /* the older prompt, whole */
    assert_int_equal(s[0].n_rows, 42); /* the rest of the step */
    assert_int_equal(s[3].n_rows, 0);
}

static void prompt_limit_leaves_decode_alone(void **state)
{
    (void)state;
    struct sched_seq s[3] = {DECODE(0, 0), PROMPT(100, 1), PROMPT(100, 2)};
    assert_int_equal(sched_plan(s, 3, 256, 10), 11);
    assert_int_equal(s[0].n_rows, 1);
    assert_int_equal(s[1].n_rows, 10);
    assert_int_equal(s[2].n_rows, 0);
}

static void nothing_to_do(void **state)
{
    (void)state;
    struct sched_seq s[2] = {{0}, {0}};
    assert_int_equal(sched_plan(s, 2, 8, 8), 0);
    assert_int_equal(sched_plan(s, 0, 8, 8), 0);
}

/* More sequences than rows: everybody in turn, prompts too. */
static void too_small_a_step_goes_round(void **state)
{
    (void)state;
    struct sched_seq s[3] = {DECODE(0, 5), PROMPT(10, 1), DECODE(2, 3)};
    s[1].last_step = 4;
    assert_int_equal(sched_plan(s, 3, 1, 1), 1);
    assert_int_equal(s[2].n_rows, 1);
    s[2].last_step = 6;
    assert_int_equal(sched_plan(s, 3, 1, 1), 1);
    assert_int_equal(s[1].n_rows, 1);
    s[1].last_step = 7;
    assert_int_equal(sched_plan(s, 3, 2, 2), 2);
    assert_int_equal(s[0].n_rows, 1);
    assert_int_equal(s[2].n_rows, 1);
}

static void cost_bounds_the_step(void **state)
{
    (void)state;
    struct sched_cost c = {0};
    assert_int_equal(sched_prompt_rows(&c, 256, false), FIRST_PROMPT_ROWS);
    assert_int_equal(sched_prompt_rows(&c, 8, false), 8);
    sched_cost_update(&c, 0, 100, 100 * 5000000ull); /* 5 ms a row */
    assert_int_equal(sched_prompt_rows(&c, 256, false), 40);
    for (int i = 0; i < 20; i++)
        sched_cost_update(&c, 4, 0, 40000000); /* decode steps of 40 ms */
    assert_int_equal(sched_prompt_rows(&c, 256, true), 20);
    for (int i = 0; i < 40; i++)
        sched_cost_update(&c, 4, 0, 400000000); /* decode steps of 400 ms: up to twice that */
    assert_in_range(sched_prompt_rows(&c, 256, true), 50, 80);
    for (int i = 0; i < 60; i++)
        sched_cost_update(&c, 0, 4, 4 * 10000000000ull); /* 10 s a row */
    assert_int_equal(sched_prompt_rows(&c, 256, false), 1);
    struct sched_cost fast = {0};
    sched_cost_update(&fast, 0, 256, 1000);
    assert_int_equal(sched_prompt_rows(&fast, 256, true), 256);
}

static void pages(void **state)
{
    (void)state;
    assert_int_equal(sched_pages(0), 0);
    assert_int_equal(sched_pages(1), 1);
    assert_int_equal(sched_pages(32), 1);
    assert_int_equal(sched_pages(33), 2);
    assert_int_equal(sched_pages((int64_t)INT32_MAX + 32), (1 << 26) + 1);
}

enum { SIM_SEQS = 12 };

struct sim {
    struct sched_seq s[SIM_SEQS];
    int32_t left[SIM_SEQS];     /* tokens to generate */
    int32_t unserved[SIM_SEQS]; /* steps without rows while rows are short */
    uint64_t order, rng;
};

static void sim_arrive(struct sim *m, uint64_t step)
{
    for (int i = 0; i < SIM_SEQS; i++) {
        if (m->s[i].n_pending > 0 || test_random(&m->rng) % 8 != 0)
            continue;
        m->s[i] = (struct sched_seq){.n_pending = 1 + (int32_t)(test_random(&m->rng) % 90),
                                     .order = m->order++,
                                     .last_step = step};
        m->left[i] = 1 + (int32_t)(test_random(&m->rng) % 30);
    }
}

static void sim_check(struct sim *m, int32_t total, int32_t step_tokens, int32_t limit)
{
    int32_t sum = 0;
    int32_t prompt_sum = 0;
    int32_t n_wanting = 0;
    int32_t n_decoding = 0;
    for (int i = 0; i < SIM_SEQS; i++) {
        const struct sched_seq *s = &m->s[i];
        assert_in_range(s->n_rows, 0, s->n_pending);
        sum += s->n_rows;
        prompt_sum += s->decoding ? 0 : s->n_rows;
        n_wanting += s->n_pending > 0;
        n_decoding += s->n_pending > 0 && s->decoding;
    }
    assert_int_equal(sum, total);
    assert_true(total <= step_tokens);
    assert_int_equal(total > 0, n_wanting > 0);
    bool is_short = n_decoding + (n_wanting > n_decoding) > step_tokens;
    assert_true(is_short || prompt_sum <= limit);
    for (int i = 0; i < SIM_SEQS; i++) {
        const struct sched_seq *s = &m->s[i];
        bool waits = s->n_pending > 0 && s->n_rows == 0;
        assert_false(!is_short && waits && s->decoding);
        if (is_short)
            m->unserved[i] = waits ? m->unserved[i] + 1 : 0;
        assert_true(m->unserved[i] <= 2 * SIM_SEQS);
    }
}

static void sim_run(struct sim *m, uint64_t step)
{
    for (int i = 0; i < SIM_SEQS; i++) {
        struct sched_seq *s = &m->s[i];
        if (s->n_rows == 0)
            continue;
        s->last_step = step;
        s->n_pending -= s->n_rows;
        if (s->n_pending > 0)
            continue;
        s->decoding = true;
        s->n_pending = 1;
        if (--m->left[i] <= 0)
            *s = (struct sched_seq){0};
    }
}

/* Random sequences come and go; every plan obeys the limits and nobody waits for ever. */
static void simulation(void **state)
{
    (void)state;
    static const int32_t step_sizes[] = {1, 3, 16, 256};
    for (size_t k = 0; k < sizeof step_sizes / sizeof step_sizes[0]; k++) {
        struct sim m = {.rng = 42 + k};
        for (uint64_t step = 1; step < 4000; step++) {
            sim_arrive(&m, step);
            int32_t limit = 1 + (int32_t)(test_random(&m.rng) % (uint64_t)step_sizes[k]);
            int32_t total = sched_plan(m.s, SIM_SEQS, step_sizes[k], limit);
            sim_check(&m, total, step_sizes[k], limit);
            sim_run(&m, step);
        }
        assert_true(m.order > 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_first_then_prompts_in_order),
        cmocka_unit_test(prompt_limit_leaves_decode_alone),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(too_small_a_step_goes_round),
        cmocka_unit_test(cost_bounds_the_step),
        cmocka_unit_test(pages),
        cmocka_unit_test(simulation),
    };
    return cmocka_run_group_tests_name("engine sched", tests, NULL, NULL);
}
