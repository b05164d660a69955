/*
 * cache_test: shared prefixes, waiting for them, preemption, deadlines and keys, over the scripted
 * model whose tokens are known. Every invariant of tree, pool and slots is checked after each step.
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/plan_log.h"
#include "watch.h"
#include "wrap_malloc.h"

/* With so many tokens in a step at most. */
static struct engine *start_steps(struct be *be, int32_t step_tokens, struct watch *w)
{
    struct engine_params p = params(be);
    p.step_tokens = step_tokens;
    return start_watched(&p, w);
}

static struct engine_stats stats_of(struct engine *e)
{
    struct engine_stats st;
    engine_stats_read(e, &st);
    return st;
}

/* Runs a request to its right end; returns n_cached. */
static int32_t run_one(struct engine *e, const int32_t *prompt, int32_t n, int32_t max_tokens)
{
    struct request *r = make(prompt, n, max_tokens);
    submit(e, r);
    struct event end = read_to_end(e, r);
    check(r, &end);
    int32_t n_cached = r->n_cached;
    request_free(r);
    return n_cached;
}

/* ---- hits ---- */

static void hits(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    struct engine *e = start_watched(&p, &w);
    uint64_t rng = 3;
    int32_t prompt[400];
    int32_t other[400];
    fill_prompt(prompt, 400, &rng);
    assert_int_equal(run_one(e, prompt, 200, 40), 0);
    /* All but the last token, whole pages or not. */
    assert_int_equal(run_one(e, prompt, 200, 40), 199);
    assert_int_equal(run_one(e, prompt, 192, 40), 191);
    assert_int_equal(run_one(e, prompt, 33, 5), 32);
    assert_int_equal(run_one(e, prompt, 1, 5), 0);
    struct engine_stats st = stats_of(e);
    assert_int_equal(st.prefix_miss, 2);
    assert_int_equal(st.prefix_full, 3);
    /* Longer: what is common, to the token. */
    assert_int_equal(run_one(e, prompt, 300, 5), 200);
    /* Another text from token 150 on. */
    memcpy(other, prompt, sizeof other);
    other[150] = other[150] == 5 ? 6 : 5;
    assert_int_equal(run_one(e, other, 300, 5), 150);
    st = stats_of(e);
    assert_int_equal(st.prefix_partial, 2);
    assert_true(st.prefix_diverged >= 1);
    assert_int_equal(st.cached_tokens, 199 + 191 + 32 + 200 + 150);
    assert_int_equal(st.kv_pages_used, 0);
    assert_true(st.kv_pages_cold > 0);
    assert_int_equal(st.kv_pages_cold + st.kv_pages_free, st.kv_pages_total);
    /* A reply is cached, too: the next turn of a conversation. */
    struct request *r = make(prompt, 350, 50);
    submit(e, r);
    struct event end = read_to_end(e, r);
    check(r, &end);
    memcpy(other, prompt, 350 * sizeof *other);
    memcpy(other + 350, r->tokens, 50 * sizeof *other);
    assert_int_equal(run_one(e, other, 400, 8), 399); /* the last token is never computed twice */
    request_free(r);
    end_watched(e, be, &w);
}

static void no_cache(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    p.no_prefix_cache = true;
    struct engine *e = start_watched(&p, &w);
    uint64_t rng = 3;
    int32_t prompt[100];
    fill_prompt(prompt, 100, &rng);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_one(e, prompt, 100, 10), 0);
    assert_int_equal(stats_of(e).kv_pages_free, stats_of(e).kv_pages_total);
    end_watched(e, be, &w);
}

/* ---- in flight ---- */

static int32_t state_of(struct request *r)
{
    return atomic_load(&r->state);
}

/* Steps until a request has the state; fails after `most` steps. */
static void step_until(struct be *be, struct request *r, req_state want, int most)
{
    for (int i = 0; state_of(r) != (int32_t)want; i++) {
        if (i == most)
            fail_msg("state %s, not %s, after %d steps", req_state_name((req_state)state_of(r)),
                     req_state_name(want), most);
        one_step(be);
        clock_sleep_ms(2); /* what the engine does between two steps */
    }
}

/* Three with one long prefix at once: one computes it. */
static void shared_in_flight(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct watch w;
    struct engine *e = start_steps(be, 64, &w);
    uint64_t rng = 8;
    int32_t prompt[3][500];
    struct request *r[3];
    fill_prompt(prompt[0], 500, &rng);
    gate(be);
    for (int i = 0; i < 3; i++) {
        if (i > 0)
            memcpy(prompt[i], prompt[0], sizeof prompt[0]);
        prompt[i][450] = 10 + i;
        r[i] = make(prompt[i], 500, 20);
        submit(e, r[i]);
    }
    step_until(be, r[2], REQ_STATE_PREFIX, 4);
    assert_int_equal(state_of(r[0]), REQ_STATE_RUNNING);
    assert_int_equal(state_of(r[1]), REQ_STATE_PREFIX);
    struct engine_state s;
    engine_state_read(e, &s);
    assert_true(s.n_seqs >= 1 && s.tree_promised > 0);
    ungate(be);
    for (int i = 0; i < 3; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
    }
    struct engine_stats st = stats_of(e);
    assert_int_equal(st.prefix_inflight, 2);
    assert_int_equal(st.prefix_miss, 1);
    assert_true(r[1]->n_cached >= 448 && r[2]->n_cached >= 448);
    assert_true(r[1]->clocks.prefix_ns > 0);
    assert_true(st.prompt_tokens <= 500 + 2 * 52);
    for (int i = 0; i < 3; i++)
        request_free(r[i]);
    end_watched(e, be, &w);
}

/* The one that computes is cancelled: another takes over, the third waits for that. */
static void producer_goes_away(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct watch w;
    struct engine *e = start_steps(be, 64, &w);
    uint64_t rng = 8;
    int32_t prompt[600];
    struct request *r[3];
    fill_prompt(prompt, 600, &rng);
    gate(be);
    for (int i = 0; i < 3; i++) {
        r[i] = make(prompt, 600 - i, 20);
        submit(e, r[i]);
    }
    step_until(be, r[2], REQ_STATE_PREFIX, 4);
    one_step(be);
    engine_cancel(e, r[0]);
    step_until(be, r[1], REQ_STATE_RUNNING, 3);
    assert_int_equal(state_of(r[2]), REQ_STATE_PREFIX);
    ungate(be);
    assert_int_equal(read_to_end(e, r[0]).reason, FINISH_REASON_CANCELLED);
    for (int i = 1; i < 3; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
    }
    struct engine_stats st = stats_of(e);
    assert_true(st.prompt_tokens < 600 + 64); /* what the first had computed was of use */
    for (int i = 0; i < 3; i++)
        request_free(r[i]);
    end_watched(e, be, &w);
}

/* A producer that stands still is not waited for longer than the bound. */
static void waiting_has_an_end(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct watch w;
    struct engine *e = start_steps(be, 8, &w);
    uint64_t rng = 8;
    int32_t prompt[900];
    fill_prompt(prompt, 900, &rng);
    gate(be);
    struct request *first = make(prompt, 900, 5);
    struct request *second = make(prompt, 880, 5);
    submit(e, first);
    submit(e, second);
    step_until(be, second, REQ_STATE_PREFIX, 4);
    clock_sleep_ms(1200); /* the producer's step takes very long */
    step_until(be, second, REQ_STATE_RUNNING, 3);
    assert_int_equal(stats_of(e).prefix_given_up, 1);
    ungate(be);
    struct event end = read_to_end(e, first);
    check(first, &end);
    end = read_to_end(e, second);
    check(second, &end);
    request_free(first);
    request_free(second);
    end_watched(e, be, &w);
}

/* ---- what has failed ---- */

/* What was computed for logits that are not numbers is of no use to anybody; what was there before
 * and has given numbers stays. */
static void failed_leaves_nothing(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct watch w;
    struct engine *e = start_steps(be, 64, &w);
    uint64_t rng = 9;
    int32_t prompt[300];
    fill_prompt(prompt, 300, &rng);
    run_failing(e, prompt, 200);
    assert_int_equal(stats_of(e).kv_pages_cold, 0);
    assert_int_equal(run_one(e, prompt, 100, 4), 0);
    run_failing(e, prompt, 300);
    assert_int_equal(stats_of(e).kv_pages_cold, 4); /* 103 tokens */
    assert_int_equal(run_one(e, prompt, 290, 4), 100);
    run_failing(e, prompt, 288);
    assert_int_equal(run_one(e, prompt, 290, 4), 289);
    assert_int_equal(stats_of(e).kv_pages_used, 0);
    end_watched(e, be, &w);
}

/* One that waits for pages of a request that fails computes all of them itself. */
static void failed_producer(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct watch w;
    struct engine *e = start_steps(be, 64, &w);
    uint64_t rng = 8;
    int32_t prompt[2][520];
    fill_prompt(prompt[0], 520, &rng);
    memcpy(prompt[1], prompt[0], sizeof prompt[0]);
    prompt[0][499] = FAKE_POISON;
    gate(be);
    struct request *bad = make(prompt[0], 500, 20);
    struct request *good = make(prompt[1], 520, 20);
    submit(e, bad);
    submit(e, good);
    step_until(be, good, REQ_STATE_PREFIX, 4);
    one_step(be);
    ungate(be);
    assert_int_equal(read_to_end(e, bad).kind, EVENT_ERROR);
    struct event end = read_to_end(e, good);
    check(good, &end);
    assert_int_equal(good->n_cached, 0);
    request_free(bad);
    request_free(good);
    end_watched(e, be, &w);
}

/* ---- preemption ---- */

static void pool_runs_out(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    p.kv_bytes = 4096 * 24;
    struct engine *e = start_watched(&p, &w);
    uint64_t rng = 4;
    int32_t prompt[4][64];
    struct request *r[4];
    for (int i = 0; i < 4; i++) {
        fill_prompt(prompt[i], 64, &rng);
        r[i] = make(prompt[i], 64, 500);
        r[i]->sampling.temperature = i % 2 ? 0.9f : 0.0f;
        r[i]->sampling.seed = (uint64_t)i;
        r[i]->priority = i == 3 ? 1 : 0;
        submit(e, r[i]);
    }
    for (int i = 0; i < 4; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
        assert_int_equal(r[i]->n_prefilled, 64);
        assert_int_equal(r[i]->n_cached, 0);
    }
    struct engine_stats st = stats_of(e);
    assert_true(st.preemptions >= 2);
    assert_true(st.preemptions < 40);       /* no thrashing */
    assert_int_equal(r[3]->n_preempted, 0); /* the highest priority */
    for (int i = 0; i < 3; i++)
        assert_int_equal(r[i]->n_preempted > 0, r[i]->clocks.preempted_ns > 0);
    assert_true(st.evicted_pages > 0);
    assert_int_equal(st.waiting_preempted, 0);
    print_message("4 x 564 tokens in 768: %d preemptions, %d tokens computed again\n",
                  (int)st.preemptions, (int)st.recomputed_tokens);
    for (int i = 0; i < 4; i++)
        request_free(r[i]);
    end_watched(e, be, &w);
}

enum { MANY = 64, MANY_PROMPT = 1400 };

/* 64 mixed requests with shared parts in a pool a tenth of their need: all right, all end. */
static void many_in_little(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    static int32_t prompt[MANY][MANY_PROMPT];
    struct request *r[MANY];
    uint64_t rng = 77;
    int64_t need = 0;
    int32_t most = 0;
    for (int i = 0; i < MANY; i++) {
        int32_t n = 1 + (int32_t)(test_random(&rng) % (i % 4 == 0 ? MANY_PROMPT : 200));
        int32_t shared = i % 3 == 0 ? 0 : (int32_t)(test_random(&rng) % 150);
        fill_prompt(prompt[i], n, &rng);
        memcpy(prompt[i], prompt[0], (size_t)(shared < n ? shared : n) * sizeof(int32_t));
        r[i] = make(prompt[i], n, 1 + (int32_t)(test_random(&rng) % 590));
        r[i]->sampling.temperature = i % 2 ? 0.8f : 0.0f;
        r[i]->sampling.seed = test_random(&rng);
        r[i]->priority = (int32_t)(test_random(&rng) % 2);
        r[i]->choice = (uint32_t)i;
        int32_t pages = (n + r[i]->max_tokens + 31) / 32;
        need += pages;
        most = pages > most ? pages : most;
    }
    p.kv_bytes = 4096 * (uint64_t)(need / 10 > most ? need / 10 : most);
    struct engine *e = start_watched(&p, &w);
    for (int i = 0; i < MANY; i++)
        submit(e, r[i]);
    for (int i = 0; i < MANY; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
    }
    struct engine_stats st = stats_of(e);
    print_message("%d requests of %d pages in %d: %d steps, %d preemptions, %d tokens reused, %d "
                  "computed again\n",
                  MANY, (int)need, st.kv_pages_total, (int)st.steps, (int)st.preemptions,
                  (int)st.cached_tokens, (int)st.recomputed_tokens);
    assert_int_equal(st.prefix_full + st.prefix_partial + st.prefix_inflight + st.prefix_miss,
                     MANY);
    for (int i = 0; i < MANY; i++)
        request_free(r[i]);
    end_watched(e, be, &w);
}

/* Clients on eight threads, prompts with shared parts, cancels, a reader of the state beside. */
struct sharer {
    struct engine *e;
    uint64_t seed;
    struct thread thread;
    int n_wrong;
};

static void sharer_main(void *arg)
{
    struct sharer *c = arg;
    uint64_t rng = c->seed;
    static _Thread_local int32_t prompt[300];
    static _Thread_local struct oracle o;
    for (int i = 0; i < 25; i++) {
        uint64_t family = test_random(&rng) % 3;
        int32_t n = 1 + (int32_t)(test_random(&rng) % 300);
        int32_t shared = (int32_t)(test_random(&rng) % 300);
        struct request *r = NULL;
        struct t9_err err;
        fill_prompt(prompt, 300, &family);
        if (shared < n)
            fill_prompt(prompt + shared, n - shared, &rng);
        if (request_new(&r, 1 + (int32_t)(test_random(&rng) % (i % 2 ? 80 : 500)), &err) !=
            T9_STATUS_OK)
            return;
        r->prompt = prompt;
        r->n_prompt = n;
        r->ignore_eos = i % 2 == 0;
        r->sampling.seed = test_random(&rng);
        r->priority = (int32_t)(test_random(&rng) % 2);
        r->client_key = c->seed;
        bool cancels = test_random(&rng) % 6 == 0;
        c->n_wrong += engine_submit(c->e, r, &err) != T9_STATUS_OK;
        struct event_cursor cur = {0};
        struct event ev = {.kind = EVENT_NONE};
        while (ev.kind != EVENT_DONE && ev.kind != EVENT_ERROR) {
            ev = request_next(r, &cur);
            if (ev.kind == EVENT_NONE)
                (void)engine_wait(c->e, r, &cur, 20000);
            else if (cancels && test_random(&rng) % 4 == 0)
                engine_cancel(c->e, r);
            struct engine_state s;
            if (test_random(&rng) % 8 == 0) {
                engine_state_read(c->e, &s);
                c->n_wrong +=
                    s.pages_free + s.pages_cold > s.pages_total || s.n_seqs > ENGINE_STATE_SEQS_MAX;
            }
        }
        oracle_run(&o, r);
        int32_t n_tokens = atomic_load(&r->n_tokens);
        bool ok = ev.reason == FINISH_REASON_CANCELLED ? cancels && n_tokens <= o.n
                                                       : ev.reason == o.reason && n_tokens == o.n;
        c->n_wrong += !ok || memcmp(r->tokens, o.tokens, sizeof(int32_t) * (size_t)n_tokens) != 0;
        request_free(r);
    }
}

static void sharers(void **state)
{
    (void)state;
    static const int32_t pages[] = {26, 30, 60, 600};
    static const int32_t steps[] = {5, 40, 256, 64};
    static const int32_t keys[] = {0, 1, 2, 1};
    for (int k = 0; k < 4; k++) {
        struct be *be = fake_be_new();
        struct engine_params p = params(be);
        struct watch w;
        struct sharer c[8];
        struct t9_err err;
        p.kv_bytes = 4096 * (uint64_t)pages[k];
        p.step_tokens = steps[k];
        p.max_batch = 6;
        p.max_running_per_key = keys[k];
        struct engine *e = start_watched(&p, &w);
        for (int i = 0; i < 8; i++) {
            c[i] = (struct sharer){.e = e, .seed = (uint64_t)(1 + i + 10 * k)};
            assert_int_equal(thread_start(&c[i].thread, "sharer", sharer_main, &c[i], &err),
                             T9_STATUS_OK);
        }
        for (int i = 0; i < 8; i++) {
            thread_join(&c[i].thread);
            assert_int_equal(c[i].n_wrong, 0);
        }
        struct engine_stats st = stats_of(e);
        assert_int_equal(st.kv_pages_used, 0);
        assert_int_equal(st.running + st.waiting + st.waiting_prefix, 0);
        print_message("%d pages: %d preemptions, hits %d full %d partial %d in flight, %d missed\n",
                      pages[k], (int)st.preemptions, (int)st.prefix_full, (int)st.prefix_partial,
                      (int)st.prefix_inflight, (int)st.prefix_miss);
        end_watched(e, be, &w);
    }
}

/* ---- queue ---- */

static void deadlines(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    p.max_batch = 1;
    struct engine *e = start_watched(&p, &w);
    static int32_t prompt[10];
    gate(be);
    struct request *first = make(prompt, 2, 50);
    struct request *late = make(prompt, 2, 50);
    first->deadline_ns = clock_now_ns() + 60000000000u;
    submit(e, first);
    one_step(be);
    late->deadline_ns = clock_now_ns() + 20000000;
    submit(e, late);
    clock_sleep_ms(30);
    one_step(be);
    one_step(be);
    struct event end = read_to_end(e, late);
    assert_int_equal(end.kind, EVENT_ERROR);
    assert_int_equal(end.error.code, T9_STATUS_AGAIN);
    assert_non_null(strstr(end.error.msg, "deadline"));
    assert_int_equal(stats_of(e).requests_expired, 1);
    ungate(be);
    end = read_to_end(e, first);
    check(first, &end);
    request_free(first);
    request_free(late);
    end_watched(e, be, &w);
}

/* One key may run one at a time; others pass. */
static void keys(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    p.max_running_per_key = 1;
    struct engine *e = start_watched(&p, &w);
    static int32_t prompt[10];
    struct request *r[5];
    static const uint64_t key[5] = {7, 7, 9, 0, 0};
    gate(be);
    for (int i = 0; i < 5; i++) {
        r[i] = make(prompt, 1, 30);
        r[i]->client_key = key[i];
        submit(e, r[i]);
    }
    for (int i = 0; i < 3; i++)
        one_step(be);
    assert_int_equal(state_of(r[1]), REQ_STATE_WAITING);
    for (int i = 0; i < 5; i++)
        assert_true(i == 1 || state_of(r[i]) == REQ_STATE_RUNNING);
    assert_int_equal(stats_of(e).waiting, 1);
    ungate(be);
    for (int i = 0; i < 5; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
    }
    assert_true(r[1]->clocks.admitted >= r[0]->clocks.last_token);
    for (int i = 0; i < 5; i++)
        request_free(r[i]);
    end_watched(e, be, &w);
}

static void retry_after(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    p.max_batch = 1;
    struct engine *e = start_watched(&p, &w);
    static int32_t prompt[1000];
    struct request *r[20];
    assert_int_equal(engine_retry_after_s(e), 1);
    atomic_store(&be->delay_us, 20000);
    (void)run_one(e, prompt, 1, 40); /* 40 tokens take 0.8 s */
    gate(be);
    for (int i = 0; i < 20; i++) {
        r[i] = make(prompt, 1, 40);
        submit(e, r[i]);
    }
    one_step(be);
    assert_in_range(engine_retry_after_s(e), 8, 40);
    atomic_store(&be->delay_us, 0);
    for (int i = 1; i < 20; i++)
        engine_cancel(e, r[i]);
    ungate(be);
    for (int i = 0; i < 20; i++) {
        (void)read_to_end(e, r[i]);
        request_free(r[i]);
    }
    assert_int_equal(engine_retry_after_s(e), 1);
    end_watched(e, be, &w);
}

static void state_is_seen(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    p.max_batch = 1;
    struct engine *e = start_watched(&p, &w);
    static int32_t prompt[70];
    struct request *r[70];
    struct engine_state s;
    engine_state_read(e, &s);
    assert_int_equal(s.pages_free, s.pages_total);
    gate(be);
    for (int i = 0; i < 70; i++) {
        r[i] = make(prompt, 1 + i, 4);
        r[i]->priority = i == 69;
        submit(e, r[i]);
        if (i == 0)
            one_step(be);
    }
    one_step(be);
    one_step(be);
    clock_sleep_ms(20);
    engine_state_read(e, &s);
    assert_true(s.step >= 2 && s.n_running == 1 && s.n_waiting == 69);
    assert_int_equal(s.n_seqs, 1);
    assert_string_equal(s.seqs[0].state, "running");
    assert_int_equal(s.seqs[0].id, r[0]->id);
    assert_true(s.seqs[0].n_tokens >= 1 && s.seqs[0].n_pages == 1);
    assert_int_equal(s.n_queue, ENGINE_STATE_SEQS_MAX);
    assert_int_equal(s.queue[0].id, r[69]->id);
    assert_string_equal(s.queue[1].state, "waiting");
    ungate(be);
    for (int i = 0; i < 70; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
        request_free(r[i]);
    }
    end_watched(e, be, &w);
}

static void pins(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    p.kv_bytes = 4096 * 20;
    struct engine *e = start_watched(&p, &w);
    uint64_t rng = 2;
    int32_t prompt[100];
    int32_t other[500];
    fill_prompt(prompt, 100, &rng);
    struct request *r = make(prompt, 100, 2);
    r->n_pin_tokens = 96;
    r->pin_until_ns = clock_now_ns() + 60000000000u;
    submit(e, r);
    (void)read_to_end(e, r);
    request_free(r);
    assert_int_equal(stats_of(e).kv_pages_pinned, 3);
    for (int i = 0; i < 10; i++) {
        fill_prompt(other, 500, &rng);
        (void)run_one(e, other, 500, 3);
    }
    assert_true(stats_of(e).evicted_pages > 0);
    assert_true(run_one(e, prompt, 100, 2) >= 96); /* still there */
    end_watched(e, be, &w);
}

static void idle_gives_back(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct watch w;
    p.cache_idle_ms = 50;
    struct engine *e = start_watched(&p, &w);
    static int32_t prompt[100];
    (void)run_one(e, prompt, 100, 2);
    assert_true(stats_of(e).kv_pages_cold > 0);
    for (int i = 0; i < 100 && stats_of(e).kv_pages_cold > 0; i++)
        clock_sleep_ms(50);
    assert_int_equal(stats_of(e).kv_pages_free, stats_of(e).kv_pages_total);
    (void)run_one(e, prompt, 100, 2);
    end_watched(e, be, &w);
}

/* ---- plan log, cost ---- */

struct logged {
    struct plan_replay replay;
    int n_lines, n_wrong;
};

static void keep_line(void *ctx, const char *line, size_t n)
{
    struct logged *l = ctx;
    struct t9_err err;
    l->n_lines++;
    l->n_wrong += plan_replay_line(&l->replay, (str){line, n}, &err) != T9_STATUS_OK;
}

static void plans_are_logged(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct logged l = {0};
    struct watch w;
    struct t9_err err;
    assert_int_equal(plan_replay_init(&l.replay, &err), T9_STATUS_OK);
    p.plan_log = keep_line;
    p.plan_log_ctx = &l;
    p.kv_bytes = 4096 * 30;
    struct engine *e = start_watched(&p, &w);
    struct request *r[12];
    static int32_t prompt[12][100];
    uint64_t rng = 4;
    for (int i = 0; i < 12; i++) {
        fill_prompt(prompt[i], 100, &rng);
        r[i] = make(prompt[i], 8 * (i + 1), 200);
        submit(e, r[i]);
    }
    for (int i = 0; i < 12; i++) {
        (void)read_to_end(e, r[i]);
        request_free(r[i]);
    }
    uint64_t steps = stats_of(e).steps;
    end_watched(e, be, &w);
    assert_true((uint64_t)l.n_lines >= steps && steps > 100);
    assert_int_equal(l.n_wrong, 0);
    plan_replay_deinit(&l.replay);
}

struct cost_probe {
    uint64_t allocs;
    int n;
};

static void count_allocs(void *ctx, struct engine *e)
{
    struct cost_probe *c = ctx;
    (void)e;
    uint64_t now = wrap_malloc_count() + mem_thread_alloc_count();
    if (c->n++ == 0)
        c->allocs = now;
    else if (c->allocs != now)
        c->n = -1000000;
}

/* What scheduler, tree and bookkeeping of 64 decoding sequences cost: the scripted backend's own
 * time is taken away. Nothing is allocated meanwhile, tree included. */
static void overhead(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct cost_probe probe = {0};
    static int32_t prompt[64][64];
    struct request *r[64];
    uint64_t rng = 6;
    p.max_batch = 64;
    p.kv_bytes = 4096 * 4096;
    struct engine *e = start(&p);
    engine_set_step_hook(e, count_allocs, &probe);
    for (int i = 0; i < 64; i++) {
        fill_prompt(prompt[i], 64, &rng);
        r[i] = make(prompt[i], 64, 400);
        submit(e, r[i]);
    }
    for (int i = 0; i < 64; i++) {
        struct event end = read_to_end(e, r[i]);
        assert_int_equal(end.reason, FINISH_REASON_LENGTH);
        request_free(r[i]);
    }
    struct engine_stats st = stats_of(e);
    double all_us = (double)st.step_ns / 1e3 / (double)st.steps;
    double be_us = (double)atomic_load(&be->run_ns) / 1e3 / (double)st.steps;
    print_message("a step of 64 sequences: %.1f us beside the backend's %.1f us (sampling "
                  "included)\n",
                  all_us - be_us, be_us);
    engine_free(e); /* its thread looks once more when it has nothing to do */
    assert_true(probe.n > 300);
    fake_be_free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits),
        cmocka_unit_test(no_cache),
        cmocka_unit_test(shared_in_flight),
        cmocka_unit_test(producer_goes_away),
        cmocka_unit_test(waiting_has_an_end),
        cmocka_unit_test(failed_leaves_nothing),
        cmocka_unit_test(failed_producer),
        cmocka_unit_test(pool_runs_out),
        cmocka_unit_test(many_in_little),
        cmocka_unit_test(sharers),
        cmocka_unit_test(deadlines),
        cmocka_unit_test(keys),
        cmocka_unit_test(retry_after),
        cmocka_unit_test(state_is_seen),
        cmocka_unit_test(pins),
        cmocka_unit_test(idle_gives_back),
        cmocka_unit_test(plans_are_logged),
        cmocka_unit_test(overhead),
    };
    const struct log_config quiet = {.level = LOG_LEVEL_ERROR};
    log_configure(&quiet);
    return cmocka_run_group_tests_name("engine cache", tests, NULL, NULL);
}
