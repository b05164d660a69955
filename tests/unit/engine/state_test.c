/*
 * state_test: hybrid models in the engine, over the scripted model with a state that is the hash of
 * all tokens so far: a state of another text, or of another place in it, shows in the logits. After
 * each step the engine's own check runs.
 */
#include "base/log.h"
#include "watch.h"

enum { STATE_BYTES = 4096, PAGE_BYTES = 4096 };

static struct engine_params hybrid_params(struct be *be)
{
    struct engine_params p = params(be);
    p.model = fake_hybrid();
    return p;
}

/* Sequences of many lengths at once, without a cache; each has the text of its own. */
static void own_states(void **state)
{
    (void)state;
    enum { N = 12 };
    static int32_t prompts[N][300];
    struct be *be = fake_be_new();
    struct engine_params p = hybrid_params(be);
    struct watch w;
    uint64_t rng = 4;
    p.no_prefix_cache = true;
    p.max_batch = 4;
    p.step_tokens = 37;
    struct engine *e = start_watched(&p, &w);
    struct request *r[N];
    for (int i = 0; i < N; i++) {
        int32_t n = 1 + 27 * i;
        fill_prompt(prompts[i], n, &rng);
        r[i] = make(prompts[i], n, 5 + i);
        submit(e, r[i]);
    }
    for (int i = 0; i < N; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
        request_free(r[i]);
    }
    end_watched(e, be, &w);
}

/* A pool with room for one state and the pages of one request: one after the other. */
static void one_at_a_time(void **state)
{
    (void)state;
    enum { N = 4 };
    static int32_t prompts[N][40];
    struct be *be = fake_be_new();
    struct engine_params p = hybrid_params(be);
    struct watch w;
    uint64_t rng = 5;
    p.kv_bytes = STATE_BYTES + 3 * PAGE_BYTES;
    struct engine *e = start_watched(&p, &w);
    assert_int_equal(engine_max_length(e), 3 * KV_PAGE_TOKENS);
    struct request *r[N];
    for (int i = 0; i < N; i++) {
        fill_prompt(prompts[i], 40, &rng);
        r[i] = make(prompts[i], 40, 50);
        submit(e, r[i]);
    }
    for (int i = 0; i < N; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
        request_free(r[i]);
    }
    end_watched(e, be, &w);
}

/* ---- turns of agents ---- */

enum { TEXT_MAX = 24000, SESSIONS = 6, LONG_TOKENS = 32000 };

struct text {
    int32_t n;
    int32_t tokens[TEXT_MAX];
};

static void extend(struct text *t, int32_t n, uint64_t *rng)
{
    assert_true(t->n + n <= TEXT_MAX);
    fill_prompt(t->tokens + t->n, n, rng);
    t->n += n;
}

static struct engine_params agent_params(struct be *be)
{
    struct engine_params p = hybrid_params(be);
    p.max_length = LONG_TOKENS;
    p.kv_bytes = (uint64_t)8192 * PAGE_BYTES;
    p.step_tokens = 512;
    return p;
}

static void mark(struct request *r, int32_t at, mark_kind kind)
{
    r->marks[r->n_marks++] = (struct request_mark){at, kind};
}

/* Runs it to its end, with the text of its own, appends the reply to the text and returns how many
 * tokens of the prompt were computed. */
static int32_t finish(struct engine *e, struct request *r, struct text *t)
{
    struct event end = read_to_end(e, r);
    check(r, &end);
    int32_t computed = r->n_prompt - atomic_load(&r->n_cached);
    memcpy(t->tokens + t->n, r->tokens, sizeof(int32_t) * (size_t)r->n_tokens);
    t->n += r->n_tokens;
    request_free(r);
    return computed;
}

static int32_t run(struct engine *e, struct text *t, int32_t n_reply)
{
    struct request *r = make(t->tokens, t->n, n_reply);
    submit(e, r);
    return finish(e, r, t);
}

static int32_t farthest(int32_t n_before)
{
    return n_before / 20 > 1024 ? n_before / 20 : 1024;
}

/* Texts that only grow: what is computed of a turn is what is new, and the last token before. */
static void growing_turns(void **state)
{
    (void)state;
    static struct text t;
    struct be *be = fake_be_new();
    struct engine_params p = agent_params(be);
    struct watch w;
    uint64_t rng = 6;
    struct engine *e = start_watched(&p, &w);
    t.n = 0;
    extend(&t, 6000, &rng);
    assert_int_equal(run(e, &t, 40), 6000);
    for (int turn = 0; turn < 12; turn++) {
        int32_t n_new = 1 + (int32_t)(test_random(&rng) % 700);
        extend(&t, n_new, &rng);
        assert_int_equal(run(e, &t, 1 + turn * 3), n_new + 1);
    }
    end_watched(e, be, &w);
}

/* Texts that are changed somewhere: no more is computed again than the distance to the last
 * checkpoint, which is bounded; and where many change it at one place, nearly nothing. */
static void changed_turns(void **state)
{
    (void)state;
    static struct text base, t;
    struct be *be = fake_be_new();
    struct engine_params p = agent_params(be);
    struct watch w;
    uint64_t rng = 7;
    struct engine *e = start_watched(&p, &w);
    base.n = 0;
    extend(&base, 23000, &rng);
    t = base;
    (void)run(e, &t, 5);
    for (int i = 0; i < 25; i++) {
        int32_t at = 40 + (int32_t)(test_random(&rng) % 22900);
        for (int again = 0; again < 2; again++) {
            t = base;
            t.n = at;
            extend(&t, 1, &rng);
            t.tokens[at] = again ? 57 : 58; /* another token than the text's, most times */
            extend(&t, 30, &rng);
            int32_t computed = run(e, &t, 3);
            assert_in_range(computed, 31,
                            again ? 31 + KV_PAGE_TOKENS + 64 : 31 + farthest(at) + KV_PAGE_TOKENS);
        }
    }
    end_watched(e, be, &w);
}

/* A prompt that is asked again: only its end is computed. */
static void asked_again(void **state)
{
    (void)state;
    static struct text t;
    struct be *be = fake_be_new();
    struct engine_params p = agent_params(be);
    struct watch w;
    uint64_t rng = 13;
    struct engine *e = start_watched(&p, &w);
    t.n = 0;
    extend(&t, 5950, &rng);
    (void)run(e, &t, 100);
    t.n = 5950;
    assert_in_range(run(e, &t, 50), 1, KV_PAGE_TOKENS);
    end_watched(e, be, &w);
}

/* A list of tools that differs near its end: the ladder before it. */
static void ladder(void **state)
{
    (void)state;
    static struct text base, t;
    struct be *be = fake_be_new();
    struct engine_params p = agent_params(be);
    struct watch w;
    struct engine_stats s;
    uint64_t rng = 8;
    struct engine *e = start_watched(&p, &w);
    base.n = 0;
    extend(&base, 22000, &rng);
    t = base;
    struct request *r = make(t.tokens, t.n, 4);
    mark(r, 21000, MARK_KIND_HEAD);
    submit(e, r);
    (void)finish(e, r, &t);
    t = base;
    t.n = 21000 - 1024; /* farther from an interval than from the ladder */
    extend(&t, 500, &rng);
    assert_in_range(run(e, &t, 4), 500, 500 + KV_PAGE_TOKENS);
    t = base;
    t.n = 21010;
    extend(&t, 500, &rng);
    assert_in_range(run(e, &t, 4), 500, 500 + 10 + KV_PAGE_TOKENS);
    engine_stats_read(e, &s);
    assert_int_equal(s.checkpoint_hits[CKPT_KIND_LADDER], 1);
    assert_int_equal(s.checkpoint_hits[CKPT_KIND_MARK], 1);
    assert_int_equal(s.checkpoints_kept[CKPT_KIND_LADDER], 4);
    assert_int_equal(s.checkpoints_kept[CKPT_KIND_MARK], 1);
    assert_int_equal(s.kv_state_bytes, STATE_BYTES);
    assert_int_equal(s.kv_states_used, 0);
    assert_true(s.kv_states_kept > 20);
    assert_int_equal((uint64_t)s.kv_states_kept * STATE_BYTES +
                         (uint64_t)s.kv_pages_total * PAGE_BYTES,
                     p.kv_bytes);
    assert_int_equal(s.kv_pages_cold + s.kv_pages_free, s.kv_pages_total);
    end_watched(e, be, &w);
}

/* Sessions that begin with one text, all at once: it is computed once, and each waits for a state
 * where it leaves it. */
static void sessions_share(void **state)
{
    (void)state;
    static struct text t[SESSIONS];
    struct be *be = fake_be_new();
    struct engine_params p = agent_params(be);
    struct watch w;
    struct engine_stats s;
    uint64_t rng = 9;
    struct engine *e = start_watched(&p, &w);
    struct request *r[SESSIONS];
    int32_t computed = 0;
    t[0].n = 0;
    extend(&t[0], 9000, &rng);
    for (int i = 1; i < SESSIONS; i++)
        t[i] = t[0];
    for (int turn = 0; turn < 4; turn++) {
        if (turn == 0)
            gate(be); /* all are there before the first one is far */
        for (int i = 0; i < SESSIONS; i++) {
            extend(&t[i], 100 + 30 * i, &rng);
            r[i] = make(t[i].tokens, t[i].n, 10);
            submit(e, r[i]);
        }
        ungate(be);
        for (int i = 0; i < SESSIONS; i++)
            computed += finish(e, r[i], &t[i]);
    }
    engine_stats_read(e, &s);
    int32_t is_new = 4 * SESSIONS * 100 + 4 * 30 * (SESSIONS * (SESSIONS - 1) / 2);
    assert_in_range(computed, 9000 + is_new, 9000 + is_new + 4 * SESSIONS + SESSIONS * 40);
    assert_int_equal(s.prompt_tokens, computed);
    assert_int_equal(s.prefix_given_up, 0);
    assert_int_equal(s.prefix_inflight, SESSIONS - 1);
    end_watched(e, be, &w);
}

/* Linked with --wrap: walks along a text that the engine asks for. Engine thread only. */
static uint64_t n_matches;

struct kv_match __real_kv_tree_match(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens,
                                     int32_t n, int32_t *pages, uint64_t now_ns);
struct kv_match __wrap_kv_tree_match(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens,
                                     int32_t n, int32_t *pages, uint64_t now_ns);

struct kv_match __wrap_kv_tree_match(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens,
                                     int32_t n, int32_t *pages, uint64_t now_ns)
{
    n_matches++;
    return __real_kv_tree_match(t, hold, tokens, n, pages, now_ns);
}

/* Who waits for a long text looks where it can go on when states come and go, not each step. */
static void waiting_is_cheap(void **state)
{
    (void)state;
    enum { WAITING = 3, LENGTH = 9000, STEP = 32 };
    static struct text t[1 + WAITING];
    struct be *be = fake_be_new();
    struct engine_params p = agent_params(be);
    struct watch w;
    struct engine_stats s;
    uint64_t rng = 13;
    p.step_tokens = STEP;
    struct engine *e = start_watched(&p, &w);
    struct request *r[1 + WAITING];
    t[0].n = 0;
    extend(&t[0], LENGTH, &rng);
    for (int i = 1; i <= WAITING; i++)
        t[i] = t[0];
    n_matches = 0;
    gate(be);
    for (int i = 0; i <= WAITING; i++) {
        extend(&t[i], 50, &rng);
        r[i] = make(t[i].tokens, t[i].n, 6);
        submit(e, r[i]);
    }
    ungate(be);
    for (int i = 0; i <= WAITING; i++)
        (void)finish(e, r[i], &t[i]);
    engine_stats_read(e, &s);
    uint64_t kept = 0;
    for (int i = 0; i < CKPT_KINDS; i++)
        kept += s.checkpoints_kept[i];
    assert_true(s.steps > LENGTH / STEP);
    assert_int_equal(s.prefix_inflight, WAITING);
    /* One at the start, one for each state on the way or at an end, one when the wait is over. */
    assert_in_range(n_matches, 1 + 3 * WAITING, 1 + WAITING * (kept + 2 + 1 + WAITING));
    end_watched(e, be, &w);
}

/* The one whose prefix others wait for goes away: one of them takes over. */
static void producer_goes(void **state)
{
    (void)state;
    static struct text t[3];
    struct be *be = fake_be_new();
    struct engine_params p = agent_params(be);
    struct watch w;
    struct engine_stats s;
    uint64_t rng = 10;
    p.step_tokens = 64;
    struct engine *e = start_watched(&p, &w);
    struct request *r[3];
    t[0].n = 0;
    extend(&t[0], 3000, &rng);
    t[1] = t[2] = t[0];
    gate(be);
    for (int i = 0; i < 3; i++) {
        extend(&t[i], 50, &rng);
        r[i] = make(t[i].tokens, t[i].n, 6);
        submit(e, r[i]);
    }
    for (int i = 0; i < 10; i++)
        one_step(be);
    engine_cancel(e, r[0]);
    ungate(be);
    (void)read_to_end(e, r[0]);
    request_free(r[0]);
    (void)finish(e, r[1], &t[1]);
    (void)finish(e, r[2], &t[2]);
    engine_stats_read(e, &s);
    assert_in_range(s.prompt_tokens, 3100, 3100 + 3 * KV_PAGE_TOKENS + 64);
    end_watched(e, be, &w);
}

/* Room for one state: the next turn takes over the one that the last turn left. */
static void only_one_state(void **state)
{
    (void)state;
    static struct text t;
    struct be *be = fake_be_new();
    struct engine_params p = hybrid_params(be);
    struct watch w;
    uint64_t rng = 11;
    p.kv_bytes = STATE_BYTES + 16 * PAGE_BYTES;
    struct engine *e = start_watched(&p, &w);
    t.n = 0;
    extend(&t, 300, &rng);
    (void)run(e, &t, 150); /* fills 15 of 16 pages; states of the prompt had to go */
    extend(&t, 20, &rng);
    assert_int_equal(run(e, &t, 30), 21);
    end_watched(e, be, &w);
}

/* Preempted ones go on where they were, as long as there is room for what they had. */
static void preempted(void **state)
{
    (void)state;
    enum { N = 10 };
    static int32_t prompts[N][200];
    for (int32_t states = 1; states < 20; states += 3) {
        struct be *be = fake_be_new();
        struct engine_params p = hybrid_params(be);
        struct watch w;
        struct engine_stats s;
        uint64_t rng = 12;
        p.kv_bytes = (uint64_t)(20 * PAGE_BYTES + states * STATE_BYTES);
        p.step_tokens = 48;
        struct engine *e = start_watched(&p, &w);
        struct request *r[N];
        for (int i = 0; i < N; i++) {
            fill_prompt(prompts[i], 60 + 10 * i, &rng);
            r[i] = make(prompts[i], 60 + 10 * i, 300 - 7 * i);
            submit(e, r[i]);
        }
        for (int i = 0; i < N; i++) {
            struct event end = read_to_end(e, r[i]);
            check(r[i], &end);
            request_free(r[i]);
        }
        engine_stats_read(e, &s);
        assert_true(s.preemptions > 0);
        end_watched(e, be, &w);
    }
}

/* Neither pages nor states stay of what has given no numbers; what others resume from does. */
static void failed(void **state)
{
    (void)state;
    static struct text t;
    struct be *be = fake_be_new();
    struct engine_params p = agent_params(be);
    struct watch w;
    uint64_t rng = 19;
    struct engine_stats s;
    t.n = 0;
    extend(&t, 9000, &rng);
    struct engine *e = start_watched(&p, &w);
    for (int i = 0; i < 2; i++) {
        run_failing(e, t.tokens, i == 0 ? 4000 : 9000);
        engine_stats_read(e, &s);
        assert_int_equal(s.kv_pages_used, 0);
        assert_int_equal(s.kv_pages_cold, i == 0 ? 0 : 2003 / KV_PAGE_TOKENS + 1);
        assert_int_equal(s.kv_states_kept == 0, i == 0);
        struct request *good = make(t.tokens, i == 0 ? 2000 : 9000, 4);
        submit(e, good);
        struct event end = read_to_end(e, good);
        check(good, &end);
        assert_int_equal(good->n_cached, i == 0 ? 0 : 1984);
        request_free(good);
    }
    end_watched(e, be, &w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_states),       cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(growing_turns),    cmocka_unit_test(changed_turns),
        cmocka_unit_test(asked_again),      cmocka_unit_test(ladder),
        cmocka_unit_test(sessions_share),   cmocka_unit_test(producer_goes),
        cmocka_unit_test(only_one_state),   cmocka_unit_test(preempted),
        cmocka_unit_test(waiting_is_cheap), cmocka_unit_test(failed),
    };
    const struct log_config quiet = {.level = LOG_LEVEL_ERROR};
    log_configure(&quiet);
    return cmocka_run_group_tests_name("engine state", tests, NULL, NULL);
}
