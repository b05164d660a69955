/*
 * sched_test: the step plan as a pure function, its cost model, its log, and a simulation that
 * checks its promises over random arrivals.
 */
#include "engine/plan_log.c"
#include "engine/sched.c"

#include "lib/t9test.h"

#include <math.h>

#define DECODE(o, l)                                                                               \
    {                                                                                              \
        .used = true, .n_pending = 1, .n_computed = 10, .decoding = true, .order = (o),            \
        .last_step = (l)                                                                           \
    }
#define PROMPT(n, o)                                                                               \
    {                                                                                              \
        .used = true, .n_pending = (n), .order = (o)                                               \
    }

/* Without a measured cost only rows count. */
static struct sched_step rows_only(int32_t step_tokens)
{
    return (struct sched_step){.step = 1, .step_tokens = step_tokens};
}

/* Rows that cost 1 ms each, keys nothing. */
static struct sched_step ms_rows(int32_t step_tokens)
{
    return (struct sched_step){
        .step = 1, .step_tokens = step_tokens, .cost = {.row_ns = 1e6, .stretch = 1.0}};
}

static int32_t plan_of(struct sched_seq *s, int32_t n, struct sched_step in)
{
    return sched_plan(s, n, &in);
}

static void decode_first_then_short_prompts(void **state)
{
    (void)state;
    struct sched_seq s[5] = {PROMPT(100, 3), DECODE(1, 0), PROMPT(20, 7), {0}, DECODE(2, 0)};
    assert_int_equal(plan_of(s, 5, ms_rows(64)), 64);
    assert_int_equal(s[1].n_rows, 1);
    assert_int_equal(s[4].n_rows, 1);
    assert_int_equal(s[2].n_rows, 20); /* the short one, whole */
    assert_int_equal(s[0].n_rows, 42); /* the older one has the rest */
    assert_int_equal(s[3].n_rows, 0);
}

static void the_oldest_keeps_its_share(void **state)
{
    (void)state;
    /* 200 ms = 200 rows: a quarter is the oldest one's, whatever comes. */
    struct sched_seq s[3] = {PROMPT(16000, 1), PROMPT(150, 8), PROMPT(150, 9)};
    assert_int_equal(plan_of(s, 3, ms_rows(4096)), 200);
    assert_int_equal(s[0].n_rows, 50);
    assert_int_equal(s[1].n_rows, 150);
    assert_int_equal(s[2].n_rows, 0);
    /* A higher priority has the rest, though it is longer. */
    s[2].priority = 1;
    s[2].n_pending = 400;
    assert_int_equal(plan_of(s, 3, ms_rows(4096)), 200);
    assert_int_equal(s[0].n_rows, 50);
    assert_int_equal(s[2].n_rows, 150);
}

/* A prompt that is to stop at some place: what it leaves goes to the others. */
static void limits(void **state)
{
    (void)state;
    struct sched_seq s[3] = {PROMPT(100, 1), PROMPT(20, 2), DECODE(3, 0)};
    s[0].n_limit = 24;
    s[1].n_limit = 7;
    assert_int_equal(plan_of(s, 3, ms_rows(64)), 24 + 7 + 1);
    assert_int_equal(s[0].n_rows, 24);
    assert_int_equal(s[1].n_rows, 7);
    s[1].n_limit = 50; /* more than it has */
    assert_int_equal(plan_of(s, 3, ms_rows(64)), 24 + 20 + 1);
    s[0].n_limit = 0;
    assert_int_equal(plan_of(s, 3, ms_rows(64)), 64);
    assert_int_equal(s[0].n_rows, 43);
}

static void nothing_to_do(void **state)
{
    (void)state;
    struct sched_seq s[2] = {{0}, {.used = true, .order = 4}};
    assert_int_equal(plan_of(s, 2, rows_only(8)), 0);
    assert_int_equal(plan_of(s, 0, rows_only(8)), 0);
}

/* More sequences than rows: everybody in turn, prompts too. */
static void too_small_a_step_goes_round(void **state)
{
    (void)state;
    struct sched_seq s[3] = {DECODE(0, 5), PROMPT(10, 1), DECODE(2, 3)};
    s[1].last_step = 4;
    assert_int_equal(plan_of(s, 3, rows_only(1)), 1);
    assert_int_equal(s[2].n_rows, 1);
    s[2].last_step = 6;
    assert_int_equal(plan_of(s, 3, rows_only(1)), 1);
    assert_int_equal(s[1].n_rows, 1);
    s[1].last_step = 7;
    assert_int_equal(plan_of(s, 3, rows_only(2)), 2);
    assert_int_equal(s[0].n_rows, 1);
    assert_int_equal(s[2].n_rows, 1);
}

static void cost_bounds_the_step(void **state)
{
    (void)state;
    struct sched_seq alone[1] = {PROMPT(5000, 1)};
    assert_int_equal(plan_of(alone, 1, rows_only(256)), FIRST_PROMPT_ROWS);
    assert_int_equal(plan_of(alone, 1, rows_only(8)), 8);
    struct sched_step in = ms_rows(4096);
    assert_int_equal(sched_plan(alone, 1, &in), 200);
    in.cost.stretch = 2.0; /* steps take twice as long as the model says */
    assert_int_equal(sched_plan(alone, 1, &in), 100);
    in.cost.stretch = 1.0;
    in.cost.step_ns = 50e6;
    assert_int_equal(sched_plan(alone, 1, &in), 150);
    /* Deep in a prompt the keys cost most: m * 10000 + m (m + 1) / 2 keys of 1 us. */
    in.cost = (struct sched_cost){.row_ns = 1e5, .key_ns = 1e3, .stretch = 1.0};
    alone[0].n_computed = 10000;
    int32_t m = sched_plan(alone, 1, &in);
    assert_in_range(m, 19, 20);
    assert_true(sched_cost_ns(&in.cost, m, sched_keys(10000, m)) <= 200e6);
    /* Beside streams: 140 ms in all, or 1.7 times what they take alone. */
    struct sched_seq both[2] = {PROMPT(5000, 1), DECODE(2, 0)};
    in.cost = (struct sched_cost){.step_ns = 39e6, .row_ns = 1e6, .stretch = 1.0};
    assert_int_equal(sched_plan(both, 2, &in), 101);
    in.cost.step_ns = 399e6;
    assert_in_range(sched_plan(both, 2, &in), 280, 281);
    /* A row that does not fit the time is given all the same; to the oldest at times. */
    in.cost = (struct sched_cost){.row_ns = 10e9, .stretch = 1.0};
    struct sched_seq two[2] = {PROMPT(5000, 1), PROMPT(10, 2)};
    int32_t n[2] = {0};
    for (in.step = 1; in.step <= 8; in.step++) {
        assert_int_equal(sched_plan(two, 2, &in), 1);
        n[0] += two[0].n_rows;
        n[1] += two[1].n_rows;
    }
    assert_int_equal(n[0], 2);
    assert_int_equal(n[1], 6);
}

/* Steps of a machine with known costs and noise: the model finds them, and keeps what a prompt row
 * costs through a long time of decoding. */
static void cost_is_learnt(void **state)
{
    (void)state;
    struct sched_fit f = {0};
    struct sched_cost c = {0};
    uint64_t rng = 5;
    static const double a = 8e6;
    static const double b = 1.5e6;
    static const double k = 300;
    double worst = 0;
    for (int i = 0; i < 6000; i++) {
        bool prompts = i < 200 || i > 5900;
        int32_t rows = prompts ? 1 + (int32_t)(test_random(&rng) % 200) : 4;
        double keys = rows * (double)(test_random(&rng) % 4000);
        double ns =
            (a + b * rows + k * keys) * (0.97 + 0.06 * (double)(test_random(&rng) % 100) / 99);
        if (i % 500 == 7)
            ns *= 30; /* the machine was away */
        double error = sched_cost_ns(&c, rows, keys) / ns;
        if (i > 100 && i % 500 > 57 && 1 / error > worst)
            worst = 1 / error;
        sched_cost_update(&f, &c, rows, prompts ? rows : 0, keys, (uint64_t)ns);
    }
    print_message("cost model: step %.2f ms, row %.3f ms, key %.0f ns, stretch %.2f, worst "
                  "underestimate %.2f\n",
                  c.step_ns / 1e6, c.row_ns / 1e6, c.key_ns, c.stretch, worst);
    assert_true(worst < 1.3);
    assert_true(c.row_ns > 0.9 * b && c.row_ns < 1.1 * b);
    assert_true(c.key_ns > 0.8 * k && c.key_ns < 1.2 * k);
    /* Steps that do not tell rows from keys: the expected share decides, not chance. */
    struct sched_fit same = {.key_ratio = 1e-3};
    struct sched_cost sc = {0};
    for (int i = 0; i < 50; i++) {
        double ns = 100e6 * (0.8 + 0.4 * (double)(test_random(&rng) % 100) / 99);
        sched_cost_update(&same, &sc, 100, 100, 5050, (uint64_t)ns);
    }
    assert_true(sc.row_ns > 0.5e6 && sc.row_ns < 1.2e6);
    assert_true(sc.key_ns < 5e3);
    /* The first measurement alone is taken as the cost of its rows. */
    struct sched_fit first = {0};
    struct sched_cost fc = {0};
    sched_cost_update(&first, &fc, 8, 8, 36, 8000000);
    assert_true(fc.row_ns > 0.9e6 && fc.step_ns < 1e6);
}

/* 256 experts, 8 of them used, that take 300 ms to read: while nobody decodes, steps grow until
 * their rows share most of that, and no further than the cap; streams keep their gap. */
static void experts_are_shared(void **state)
{
    (void)state;
    static const double a = 20e6;
    static const double b = 6e6;
    static const double x = 300e6;
    struct sched_fit f = {.experts_ratio = 30};
    struct sched_step in = {.step_tokens = 4096, .cost.experts_met = 8.0 / 256};
    struct sched_seq s[2] = {PROMPT(1000000, 1)};
    uint64_t rng = 9;
    double rows_left = 20000;
    double all_ns = 0;
    for (in.step = 1; rows_left > 0; in.step++) {
        int32_t rows = sched_plan(s, 1, &in);
        double met = 1.0 - pow(1.0 - in.cost.experts_met, rows);
        double ns =
            (a + b * rows + x * met) * (0.97 + 0.06 * (double)(test_random(&rng) % 100) / 99);
        assert_true(ns < 1e9);
        sched_cost_update(&f, &in.cost, rows, rows, 0, (uint64_t)ns);
        rows_left -= rows;
        all_ns += ns;
    }
    double per_row = all_ns / 20000;
    print_message("experts: %.1f ms a row, all of them %.0f ms, in steps of %d rows\n",
                  per_row / 1e6, in.cost.experts_ns / 1e6, s[0].n_rows);
    assert_true(per_row < 2.0 * b);
    assert_in_range(s[0].n_rows, 40, 160);
    s[1] = (struct sched_seq)DECODE(2, 0);
    (void)sched_plan(s, 2, &in);
    assert_true(s[0].n_rows > 0 && s[0].n_rows < 20);
    int32_t total = s[0].n_rows + s[1].n_rows;
    assert_true(sched_cost_ns(&in.cost, total, 0) <= 140e6 + 1);
    /* Few experts, or quick ones, do not lengthen a step. */
    in.cost.experts_ns = 10e6;
    (void)sched_plan(s, 1, &in);
    assert_true(sched_cost_ns(&in.cost, s[0].n_rows, 0) <= 200e6 + 1);
}

static void victims_and_margins(void **state)
{
    (void)state;
    struct sched_seq s[4] = {DECODE(5, 0), PROMPT(9, 9), {.order = 99}, DECODE(7, 0)};
    assert_int_equal(sched_victim(s, 4), 1);
    s[0].priority = -1;
    assert_int_equal(sched_victim(s, 4), 0);
    s[0].used = false;
    s[1].priority = 3;
    assert_int_equal(sched_victim(s, 4), 3);
    assert_int_equal(sched_victim(s + 2, 1), -1);
    assert_int_equal(sched_margin_tokens(10, 0), 10);
    assert_int_equal(sched_margin_tokens(1000, 0), MARGIN_TOKENS);
    assert_int_equal(sched_margin_tokens(1000, 3), 8 * MARGIN_TOKENS);
    assert_int_equal(sched_margin_tokens(2000000, 1000), MARGIN_TOKENS << MARGIN_DOUBLINGS);
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

/* ---- simulation ---- */

enum { SIM_SEQS = 12 };

struct sim {
    struct sched_seq s[SIM_SEQS];
    int32_t left[SIM_SEQS];     /* tokens to generate */
    int32_t unserved[SIM_SEQS]; /* steps without rows while rows are short */
    int32_t oldest_waits;       /* steps in which the oldest prompt got nothing */
    uint64_t order, rng;
    struct plan_replay replay;
};

static void sim_arrive(struct sim *m, uint64_t step)
{
    for (int i = 0; i < SIM_SEQS; i++) {
        if (m->s[i].n_pending > 0 || test_random(&m->rng) % 8 != 0)
            continue;
        m->s[i] = (struct sched_seq){.used = true,
                                     .priority = (int32_t)(test_random(&m->rng) % 3) - 1,
                                     .n_pending = 1 + (int32_t)(test_random(&m->rng) % 90),
                                     .order = m->order++,
                                     .last_step = step};
        m->left[i] = 1 + (int32_t)(test_random(&m->rng) % 30);
    }
}

static void sim_check(struct sim *m, int32_t total, const struct sched_step *in)
{
    int32_t sum = 0;
    int32_t n_wanting = 0;
    int32_t n_decoding = 0;
    int32_t prompt_rows = 0;
    int32_t oldest = -1;
    double keys = 0;
    double decode_keys = 0;
    for (int i = 0; i < SIM_SEQS; i++) {
        const struct sched_seq *s = &m->s[i];
        assert_in_range(s->n_rows, 0, s->n_limit > 0 ? s->n_limit : s->n_pending);
        assert_true(s->n_rows <= s->n_pending);
        sum += s->n_rows;
        prompt_rows += s->decoding ? 0 : s->n_rows;
        keys += sched_keys(s->n_computed, s->n_rows);
        decode_keys += s->decoding ? sched_keys(s->n_computed, 1) : 0;
        n_wanting += s->n_pending > 0;
        n_decoding += s->n_pending > 0 && s->decoding;
        if (is_prompt(s) && (oldest < 0 || s->order < m->s[oldest].order))
            oldest = i;
    }
    assert_int_equal(sum, total);
    assert_true(total <= in->step_tokens);
    assert_int_equal(total > 0, n_wanting > 0);
    bool is_short = n_decoding + (n_wanting > n_decoding) > in->step_tokens;
    double alone = sched_cost_ns(&in->cost, n_decoding, decode_keys);
    double most = 1.7 * alone > 140e6 ? 1.7 * alone : 140e6;
    double read = 4 * in->cost.stretch * in->cost.experts_ns;
    if (n_decoding == 0)
        most = read < 200e6 ? 200e6 : read > 800e6 ? 800e6 : read;
    if (!is_short && prompt_rows > 1)
        assert_true(sched_cost_ns(&in->cost, total, keys) <= most + 1);
    m->oldest_waits = oldest >= 0 && m->s[oldest].n_rows == 0 ? m->oldest_waits + 1 : 0;
    assert_true(m->oldest_waits <= 2 * SIM_SEQS + OLDEST_TURN);
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
        s->n_computed += s->n_rows;
        if (s->n_pending > 0)
            continue;
        s->decoding = true;
        s->n_pending = 1;
        if (--m->left[i] <= 0)
            *s = (struct sched_seq){0};
    }
}

/* Logs the plan and replays it. */
static void sim_replay(struct sim *m, const struct sched_step *in, int32_t rows)
{
    char line[4096];
    struct t9_err err;
    assert_true(plan_log_line_cap(SIM_SEQS) <= sizeof line);
    size_t n = plan_log_encode(line, sizeof line, in, m->s, SIM_SEQS, rows);
    if (plan_replay_line(&m->replay, (str){line, n}, &err) != T9_STATUS_OK)
        fail_msg("%s: %.*s", err.msg, (int)n, line);
}

/* Random sequences come and go; every plan obeys the limits, nobody waits for ever, and the log of
 * each plan gives the same plan again. */
static void simulation(void **state)
{
    (void)state;
    static const int32_t step_sizes[] = {1, 3, 16, 256};
    struct t9_err err;
    for (size_t k = 0; k < sizeof step_sizes / sizeof step_sizes[0]; k++) {
        struct sim m = {.rng = 42 + k};
        assert_int_equal(plan_replay_init(&m.replay, &err), T9_STATUS_OK);
        for (uint64_t step = 1; step < 4000; step++) {
            struct sched_step in = {.step = step, .step_tokens = step_sizes[k]};
            in.cost =
                (struct sched_cost){.step_ns = (double)(test_random(&m.rng) % 100000000),
                                    .row_ns = (double)(test_random(&m.rng) % 20000000),
                                    .key_ns = (double)(test_random(&m.rng) % 30000),
                                    .experts_ns = (double)(test_random(&m.rng) % 300000000),
                                    .experts_met = k % 2 ? 0.0 : 0.03,
                                    .stretch = 1.0 + (double)(test_random(&m.rng) % 100) / 99};
            sim_arrive(&m, step);
            for (int i = 0; i < SIM_SEQS; i++)
                m.s[i].n_limit =
                    test_random(&m.rng) % 4 ? 0 : 1 + (int32_t)(test_random(&m.rng) % 40);
            int32_t total = sched_plan(m.s, SIM_SEQS, &in);
            sim_check(&m, total, &in);
            sim_replay(&m, &in, total);
            sim_run(&m, step);
        }
        assert_true(m.order > 50);
        assert_int_equal(m.replay.n_steps, 3999);
        plan_replay_deinit(&m.replay);
    }
}

/* Short prompts keep coming for ever; a long one beside them still ends, and none of them waits
 * longer than a few steps. */
static void long_and_short_prompts(void **state)
{
    (void)state;
    struct sched_seq s[4] = {PROMPT(16000, 1)};
    uint64_t born[4] = {0};
    uint64_t order = 2;
    uint64_t worst = 0;
    struct sched_step in = ms_rows(256);
    for (in.step = 1; s[0].n_pending > 0; in.step++) {
        assert_true(in.step < 400); /* 50 of 200 rows a step: 320 steps */
        for (int i = 1; i < 4; i++) {
            if (s[i].n_pending > 0)
                continue;
            s[i] = (struct sched_seq){.used = true, .n_pending = 100, .order = order++};
            born[i] = in.step;
        }
        (void)sched_plan(s, 4, &in);
        for (int i = 0; i < 4; i++) {
            s[i].n_pending -= s[i].n_rows;
            s[i].n_computed += s[i].n_rows;
            if (i > 0 && s[i].n_pending == 0 && in.step - born[i] > worst)
                worst = in.step - born[i];
        }
    }
    assert_true(worst <= 4);
}

/* ---- the log ---- */

static void log_is_checked(void **state)
{
    (void)state;
    struct plan_replay r;
    struct t9_err err;
    char line[1024];
    struct sched_seq s[3] = {DECODE(3, 1), {0}, PROMPT(70, UINT64_MAX)};
    s[0].priority = INT32_MIN;
    s[2].n_limit = INT32_MAX;
    struct sched_step in = ms_rows(64);
    in.step = UINT64_MAX;
    assert_int_equal(plan_replay_init(&r, &err), T9_STATUS_OK);
    int32_t rows = sched_plan(s, 3, &in);
    size_t n = plan_log_encode(line, sizeof line, &in, s, 3, rows);
    assert_int_equal(plan_replay_line(&r, (str){line, n}, &err), T9_STATUS_OK);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.seqs[0].priority, INT32_MIN);
    assert_int_equal(r.seqs[0].n_limit, 0);
    assert_int_equal(r.seqs[1].n_limit, INT32_MAX);
    assert_true(r.seqs[1].order == UINT64_MAX && r.in.step == UINT64_MAX);
    /* Every cut, and every changed byte, is either refused or another plan that was checked. */
    for (size_t i = 0; i < n; i++)
        assert_int_equal(plan_replay_line(&r, (str){line, i}, &err), T9_STATUS_INVALID);
    uint64_t rng = 9;
    for (int i = 0; i < 20000; i++) {
        char bad[1024];
        memcpy(bad, line, n);
        bad[test_random(&rng) % n] = (char)test_random(&rng);
        bad[test_random(&rng) % n] = (char)('0' + test_random(&rng) % 10);
        (void)plan_replay_line(&r, (str){bad, n}, &err);
    }
    /* The longest line. */
    struct sched_seq wide = {.used = true,
                             .priority = INT32_MIN,
                             .n_pending = INT32_MAX,
                             .n_computed = INT32_MAX,
                             .order = UINT64_MAX,
                             .last_step = UINT64_MAX,
                             .n_rows = INT32_MAX,
                             .n_limit = INT32_MAX};
    struct sched_step wide_in = {.step = UINT64_MAX, .step_tokens = INT32_MAX};
    memset(&wide_in.cost, 0xff, sizeof wide_in.cost);
    char wide_line[1024];
    assert_true(plan_log_encode(wide_line, sizeof wide_line, &wide_in, &wide, 1, INT32_MAX) <
                plan_log_line_cap(1));
    assert_true(plan_log_line_cap(1) - plan_log_line_cap(0) > 102);
    /* A plan that this scheduler would not make. */
    s[2].n_rows -= 1;
    n = plan_log_encode(line, sizeof line, &in, s, 3, rows);
    assert_int_equal(plan_replay_line(&r, (str){line, n}, &err), T9_STATUS_CORRUPT);
    assert_non_null(strstr(err.msg, "63 rows now, 62 in the log"));
    static const char *const bad[] = {
        "",
        "{}",
        "{\"t9_plan\":1,\"step\":1}",
        "{\"t9_plan\":2,\"step\":99999999999999999999,\"step_tokens\":1,\"cost\":[0,0,0,0,0,0],"
        "\"seqs\":[],"
        "\"rows\":0}",
        "{\"t9_plan\":2,\"step\":1,\"step_tokens\":0,\"cost\":[0,0,0,0,0,0],\"seqs\":[],\"rows\":"
        "0}",
        "{\"t9_plan\":2,\"step\":1,\"step_tokens\":2147483648,\"cost\":[0,0,0,0,0,0],\"seqs\":[],"
        "\"rows\":0}",
        "{\"t9_plan\":2,\"step\":1,\"step_tokens\":1,\"cost\":[0,0,0,18446744073709551615,0,0],"
        "\"seqs\":[],\"rows\":0}",
        /* The bits of 1.5: more than all experts. */
        "{\"t9_plan\":2,\"step\":1,\"step_tokens\":1,\"cost\":[0,0,0,0,0,4609434218613702656],"
        "\"seqs\":[],\"rows\":0}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(plan_replay_line(&r, str_from(bad[i]), &err), T9_STATUS_INVALID);
    plan_replay_deinit(&r);
}

/* Steps follow one another; those that do not are told, and which are missing between. */
static void log_has_all_steps(void **state)
{
    (void)state;
    static const struct {
        uint64_t step;
        const char *words;
    } steps[] = {{7, NULL},
                 {8, NULL},
                 {10, "step 9 is missing"},
                 {9, NULL},
                 {9, "step 9 after step 9"},
                 {12, "steps 10 to 11 are missing"},
                 {UINT64_MAX, "steps 10 to 18446744073709551614 are"},
                 {10, NULL}};
    struct plan_replay r;
    struct t9_err err;
    char line[1024];
    struct sched_step in = ms_rows(64);
    assert_int_equal(plan_replay_init(&r, &err), T9_STATUS_OK);
    for (size_t i = 0; i < T9_COUNT(steps); i++) {
        in.step = steps[i].step;
        size_t n = plan_log_encode(line, sizeof line, &in, NULL, 0, 0);
        t9_status st = plan_replay_line(&r, (str){line, n}, &err);
        assert_int_equal(st, steps[i].words ? T9_STATUS_CORRUPT : T9_STATUS_OK);
        if (steps[i].words && !strstr(err.msg, steps[i].words))
            fail_msg("%s: %s", steps[i].words, err.msg);
    }
    assert_true(r.n_steps == 4 && r.first_step == 7);
    plan_replay_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_first_then_short_prompts),
        cmocka_unit_test(the_oldest_keeps_its_share),
        cmocka_unit_test(limits),
        cmocka_unit_test(nothing_to_do),
        cmocka_unit_test(too_small_a_step_goes_round),
        cmocka_unit_test(cost_bounds_the_step),
        cmocka_unit_test(cost_is_learnt),
        cmocka_unit_test(experts_are_shared),
        cmocka_unit_test(victims_and_margins),
        cmocka_unit_test(pages),
        cmocka_unit_test(simulation),
        cmocka_unit_test(long_and_short_prompts),
        cmocka_unit_test(log_is_checked),
        cmocka_unit_test(log_has_all_steps),
    };
    return cmocka_run_group_tests_name("engine sched", tests, NULL, NULL);
}
