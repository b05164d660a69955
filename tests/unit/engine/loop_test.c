/*
 * loop_test: the whole engine over a scripted model whose logits are known (fake.h), so that every
 * token of every request has one right value.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/queue.h"
#include "base/thread.h"
#include "drive.h"
#include "engine/engine.h"
#include "fake.h"
#include "lib/t9test.h"
#include "wrap_malloc.h"

#include <math.h>
#include <time.h>

/* ---- one request ---- */

static void solo(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct engine *e = start(&p);
    uint64_t rng = 1;
    int32_t prompt[300];
    fill_prompt(prompt, 300, &rng);
    int stops = 0;
    for (int i = 0; i < 60; i++) {
        struct request *r = make(prompt + i, 1 + i * 4, 90);
        r->ignore_eos = i % 3 == 0;
        r->sampling.temperature = i % 2 ? 0.0f : 1.5f;
        r->sampling.top_k = i % 5 * 10;
        r->sampling.seed = (uint64_t)i;
        submit(e, r);
        struct event end = read_to_end(e, r);
        check(r, &end);
        stops += end.reason == FINISH_REASON_STOP;
        /* The clocks are in order. */
        assert_true(r->clocks.queued > 0 && r->clocks.queued <= r->clocks.admitted);
        assert_true(r->clocks.admitted <= r->clocks.prefilled);
        if (r->n_tokens > 0) {
            assert_true(r->clocks.prefilled <= r->clocks.first_token);
            assert_true(r->clocks.first_token <= r->clocks.last_token);
        }
        assert_int_equal(r->n_prefilled, r->n_prompt);
        assert_int_equal(r->state, REQ_STATE_DONE);
        request_free(r);
    }
    assert_in_range(stops, 5, 40);
    struct engine_stats st;
    engine_stats_read(e, &st);
    assert_int_equal(st.requests_admitted, 60);
    assert_int_equal(st.requests_stop, stops);
    assert_int_equal(st.requests_length, 60 - stops);
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(st.running, 0);
    assert_int_equal(st.waiting, 0);
    assert_int_equal(st.prompt_tokens + st.cached_tokens, 60 + 4 * 59 * 60 / 2);
    assert_int_equal(st.prefix_full + st.prefix_partial + st.prefix_miss, 60);
    uint64_t n = 0;
    for (int i = 0; i < 16; i++)
        n += st.ttft_bucket[i];
    assert_int_equal(n, st.ttft_count);
    assert_int_equal(st.gap_count, st.generated_tokens - st.ttft_count);
    assert_int_equal(be->broken, 0);
    engine_free(e);
    assert_int_equal(be->reserved, 0);
    fake_be_free(be);
}

/* What the limit comes from, so that the advice is the one that helps. */
static void limit_reasons(void **state)
{
    (void)state;
    static const struct {
        int32_t max_length, limit;
        uint64_t kv_bytes;
        const char *words;
    } cases[] = {
        {0, 128, 4 * 4096, "--kv-memory (kv_bytes)"},
        {1000, 128, 4 * 4096, "--kv-memory (kv_bytes)"},
        {128, 128, 4 * 4096, "--max-length (max_length)"},
        {100, 100, 1 << 20, "--max-length (max_length)"},
        {0, FAKE_CONTEXT, (FAKE_CONTEXT / KV_PAGE_TOKENS + 1) * 4096, "the model was made for"},
    };
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        struct be *be = fake_be_new();
        struct engine_params p = params(be);
        p.max_length = cases[i].max_length;
        p.kv_bytes = cases[i].kv_bytes;
        struct engine *e = start(&p);
        assert_int_equal(engine_max_length(e), cases[i].limit);
        if (!strstr(engine_limit_reason(e), cases[i].words))
            fail_msg("%d: %s", (int)i, engine_limit_reason(e));
        engine_free(e);
        fake_be_free(be);
    }
}

static void refused(struct engine *e, struct request *r, const char *word)
{
    struct t9_err err = {0};
    assert_int_equal(engine_submit(e, r, &err), T9_STATUS_INVALID);
    if (!strstr(err.msg, word))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, word);
    request_free(r);
}

static void refusals(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.kv_bytes = 4096 * 4; /* 128 tokens */
    struct engine *e = start(&p);
    static int32_t prompt[200];
    assert_int_equal(engine_max_length(e), 128);
    assert_int_equal(engine_max_tokens(e, 100), 28);
    assert_int_equal(engine_max_tokens(e, 128), 0);
    assert_int_equal(engine_max_tokens(e, 0), 0);
    refused(e, make(prompt, 0, 1), "empty");
    refused(e, make(prompt, 128, 1), "128 tokens");
    refused(e, make(prompt, 150, 1), "--kv-memory");
    refused(e, make(prompt, 100, 29), "28");
    int32_t bad[2] = {5, FAKE_VOCAB};
    refused(e, make(bad, 2, 1), "token 1 of the prompt is 64");
    bad[1] = -1;
    refused(e, make(bad, 2, 1), "-1");
    struct request *r = make(prompt, 1, 1);
    r->sampling.top_p = 7;
    refused(e, r, "top_p");
    /* The largest that fits does fit. */
    r = make(prompt, 100, 28);
    submit(e, r);
    assert_int_equal(read_to_end(e, r).reason, FINISH_REASON_LENGTH);
    request_free(r);
    struct engine_stats st;
    engine_stats_read(e, &st);
    assert_int_equal(st.waiting, 0);
    assert_true(engine_drain(e, 0));
    engine_free(e);
    struct t9_err err;
    p.kv_bytes = 4095;
    assert_int_equal(engine_new(&e, &p, &err), T9_STATUS_INVALID);
    p.kv_bytes = 1 << 20;
    p.max_batch = 0;
    assert_int_equal(engine_new(&e, &p, &err), T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "max_batch"));
    /* A length that holds no reply is no wish for "as much as there is". */
    p = params(be);
    p.max_length = 1;
    assert_int_equal(engine_new(&e, &p, &err), T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "2 is the least"));
    fake_be_free(be);
}

static void unusable_logits(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct engine *e = start(&p);
    static const int32_t prompt[3] = {5, 6, FAKE_POISON};
    struct request *bad = make(prompt, 3, 5);
    struct request *good = make(prompt, 2, 5);
    submit(e, bad);
    submit(e, good);
    struct event end = read_to_end(e, bad);
    assert_int_equal(end.kind, EVENT_ERROR);
    assert_non_null(strstr(end.error.msg, "for token 3 are not finite numbers"));
    end = read_to_end(e, good);
    check(good, &end);
    request_free(bad);
    request_free(good);
    engine_free(e);
    fake_be_free(be);
}

/* ---- many ---- */

struct client {
    struct engine *e;
    uint64_t seed;
    int n_requests;
    struct thread thread;
    int failures;
};

static void client_main(void *arg)
{
    struct client *c = arg;
    uint64_t rng = c->seed;
    static _Thread_local int32_t prompt[200];
    static _Thread_local struct oracle o;
    for (int i = 0; i < c->n_requests; i++) {
        struct t9_err err;
        struct request *r = NULL;
        fill_prompt(prompt, 200, &rng);
        if (request_new(&r, 1 + (int32_t)(test_random(&rng) % 60), &err) != T9_STATUS_OK) {
            c->failures++;
            return;
        }
        r->prompt = prompt;
        r->n_prompt = 1 + (int32_t)(test_random(&rng) % 200);
        r->ignore_eos = test_random(&rng) % 2;
        r->priority = (int32_t)(test_random(&rng) % 3);
        r->choice = (uint32_t)(test_random(&rng) % 3);
        r->sampling.temperature = test_random(&rng) % 2 ? 0.0f : 0.9f;
        r->sampling.top_p = test_random(&rng) % 2 ? 1.0f : 0.8f;
        r->sampling.seed = test_random(&rng);
        if (test_random(&rng) % 3 == 0)
            usleep((useconds_t)(test_random(&rng) % 300));
        bool cancels = test_random(&rng) % 8 == 0;
        if (engine_submit(c->e, r, &err) != T9_STATUS_OK) {
            c->failures++;
            request_free(r);
            continue;
        }
        struct event_cursor cur = {0};
        struct event ev = {.kind = EVENT_NONE};
        while (ev.kind != EVENT_DONE && ev.kind != EVENT_ERROR) {
            ev = request_next(r, &cur);
            if (ev.kind == EVENT_TOKENS && cancels)
                engine_cancel(c->e, r);
            if (ev.kind == EVENT_NONE)
                (void)engine_wait(c->e, r, &cur, 20000);
        }
        oracle_run(&o, r);
        int32_t n = atomic_load(&r->n_tokens);
        bool ok = ev.reason == FINISH_REASON_CANCELLED ? cancels && n <= o.n
                                                       : ev.reason == o.reason && n == o.n;
        if (!ok || memcmp(r->tokens, o.tokens, sizeof(int32_t) * (size_t)n) != 0)
            c->failures++;
        request_free(r);
    }
}

static void run_clients(struct engine *e, int n_clients, int n_requests, uint64_t seed)
{
    struct client c[8];
    struct t9_err err;
    for (int i = 0; i < n_clients; i++) {
        c[i] = (struct client){.e = e, .seed = seed + (uint64_t)i, .n_requests = n_requests};
        assert_int_equal(thread_start(&c[i].thread, "client", client_main, &c[i], &err),
                         T9_STATUS_OK);
    }
    for (int i = 0; i < n_clients; i++) {
        thread_join(&c[i].thread);
        assert_int_equal(c[i].failures, 0);
    }
}

static void eight_clients(void **state)
{
    (void)state;
    static const int32_t steps[] = {1, 7, 32, 256};
    static const int32_t batches[] = {8, 3, 5, 16};
    static const uint64_t pages[] = {256, 9, 20, 64}; /* nine: one request at a time, at worst */
    for (int i = 0; i < 4; i++) {
        struct be *be = fake_be_new();
        struct engine_params p = params(be);
        p.step_tokens = steps[i];
        p.max_batch = batches[i];
        p.kv_bytes = 4096 * pages[i];
        struct engine *e = start(&p);
        run_clients(e, 8, 25, 100 * (uint64_t)i);
        struct engine_stats st;
        engine_stats_read(e, &st);
        assert_int_equal(st.kv_pages_used, 0);
        assert_int_equal(st.running + st.waiting, 0);
        assert_int_equal(be->broken, 0);
        for (uint64_t k = 1; k < FAKE_LOG_CAP; k++)
            assert_true(be->rows[k] <= steps[i]);
        engine_free(e);
        assert_int_equal(be->reserved, 0);
        fake_be_free(be);
    }
}

static void two_engines(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct be *be2 = fake_be_new();
    struct engine_params p = params(be);
    struct engine *e = start(&p);
    p.be = be2;
    p.step_tokens = 5;
    struct engine *e2 = start(&p);
    struct client a = {.e = e, .seed = 5, .n_requests = 20};
    struct client b = {.e = e2, .seed = 6, .n_requests = 20};
    struct t9_err err;
    assert_int_equal(thread_start(&a.thread, "a", client_main, &a, &err), T9_STATUS_OK);
    assert_int_equal(thread_start(&b.thread, "b", client_main, &b, &err), T9_STATUS_OK);
    thread_join(&a.thread);
    engine_free(e);
    thread_join(&b.thread);
    engine_free(e2);
    assert_int_equal(a.failures + b.failures, 0);
    fake_be_free(be);
    fake_be_free(be2);
}

/* ---- step by step ---- */

/* Cancels after `steps` steps of a request; at most two more may run before it ends. */
static void cancel_after(int steps, int32_t n_prompt)
{
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.step_tokens = 8;
    struct engine *e = start(&p);
    static int32_t prompt[500];
    gate(be);
    struct request *other = make(prompt, 1, 400);
    struct request *r = make(prompt, n_prompt, 300);
    submit(e, other);
    submit(e, r);
    for (int i = 0; i < steps; i++)
        one_step(be);
    uint64_t before = be->runs;
    engine_cancel(e, r);
    for (int i = 0; i < 2 && !ended(e, r, 50); i++)
        one_step(be);
    assert_true(ended(e, r, 1000));
    assert_true(be->runs - before <= 2);
    assert_int_equal(r->finish, FINISH_REASON_CANCELLED);
    one_step(be);
    one_step(be);
    struct engine_stats st;
    engine_stats_read(e, &st);
    assert_int_equal(st.running, 1);
    assert_int_equal(st.kv_pages_used, 1); /* the other one's */
    assert_int_equal(st.requests_cancelled, 1);
    ungate(be);
    struct event end = read_to_end(e, other);
    check(other, &end);
    request_free(r);
    request_free(other);
    engine_free(e);
    fake_be_free(be);
}

static void cancel_in_prefill(void **state)
{
    (void)state;
    cancel_after(5, 300);
}

static void cancel_in_decode(void **state)
{
    (void)state;
    cancel_after(20, 8);
}

static void cancel_in_queue(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.max_batch = 1;
    struct engine *e = start(&p);
    static int32_t prompt[10];
    gate(be);
    struct request *first = make(prompt, 2, 50);
    struct request *second = make(prompt, 2, 50);
    struct request *third = make(prompt, 2, 50);
    submit(e, first);
    submit(e, second);
    submit(e, third);
    one_step(be);
    struct engine_stats st;
    engine_stats_read(e, &st);
    assert_int_equal(st.waiting, 2);
    uint64_t before = be->runs;
    atomic_store(&second->cancel, true); /* the flag alone, as a vanished client sets it */
    for (int i = 0; i < 2 && !ended(e, second, 50); i++)
        one_step(be);
    assert_true(ended(e, second, 1000));
    assert_true(be->runs - before <= 2);
    struct event_cursor c = {0};
    assert_int_equal(request_next(second, &c).kind, EVENT_DONE);
    assert_int_equal(second->finish, FINISH_REASON_CANCELLED);
    ungate(be);
    struct event end = read_to_end(e, third);
    check(third, &end);
    assert_int_equal(first->finish, FINISH_REASON_LENGTH);
    request_free(first);
    request_free(second);
    request_free(third);
    engine_free(e);
    fake_be_free(be);
}

static void queue_full(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.max_batch = 1;
    p.queue_cap = 3;
    struct engine *e = start(&p);
    static int32_t prompt[4];
    struct request *r[5];
    struct t9_err err;
    gate(be);
    for (int i = 0; i < 5; i++)
        r[i] = make(prompt, 1, 3);
    submit(e, r[0]);
    one_step(be); /* the first one runs */
    for (int i = 1; i < 4; i++)
        submit(e, r[i]);
    assert_int_equal(engine_submit(e, r[4], &err), T9_STATUS_BUSY);
    assert_non_null(strstr(err.msg, "3 requests are waiting"));
    ungate(be);
    for (int i = 0; i < 4; i++) {
        struct event end = read_to_end(e, r[i]);
        check(r[i], &end);
    }
    submit(e, r[4]); /* room again */
    (void)read_to_end(e, r[4]);
    for (int i = 0; i < 5; i++)
        request_free(r[i]);
    engine_free(e);
    fake_be_free(be);
}

static void priority_goes_first(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.max_batch = 1;
    struct engine *e = start(&p);
    static int32_t prompt[4];
    struct request *r[5];
    static const int32_t priority[5] = {0, 0, 5, 0, 5};
    static const int order[5] = {0, 2, 4, 1, 3};
    gate(be);
    for (int i = 0; i < 5; i++) {
        r[i] = make(prompt, 1, 2);
        r[i]->priority = priority[i];
        submit(e, r[i]);
        if (i == 0)
            one_step(be);
    }
    ungate(be);
    for (int i = 0; i < 5; i++)
        (void)read_to_end(e, r[i]);
    for (int i = 1; i < 5; i++)
        assert_true(r[order[i - 1]]->clocks.last_token <= r[order[i]]->clocks.admitted);
    for (int i = 0; i < 5; i++)
        request_free(r[i]);
    engine_free(e);
    fake_be_free(be);
}

/* A running stream gets a token in every step while a long prompt is read. */
static void prompts_do_not_stop_streams(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.step_tokens = 16;
    struct engine *e = start(&p);
    static int32_t prompt[400];
    gate(be);
    struct request *stream = make(prompt, 1, 100);
    struct request *big = make(prompt, 400, 2);
    submit(e, stream);
    one_step(be);
    submit(e, big);
    one_step(be); /* the step that was planned before the prompt came */
    for (int i = 0; i < 20; i++) {
        one_step(be);
        struct event_cursor c = {.admitted = true, .n_prefilled = 1, .n_tokens = 2 + i};
        assert_true(engine_wait(e, stream, &c, 1000));
        assert_true(stream->n_tokens >= 3 + i);
    }
    assert_true(big->n_prefilled >= 19 * 15);
    assert_true(big->n_prefilled < 400);
    ungate(be);
    struct event end = read_to_end(e, big);
    check(big, &end);
    end = read_to_end(e, stream);
    check(stream, &end);
    request_free(big);
    request_free(stream);
    engine_free(e);
    fake_be_free(be);
}

/* ---- ends ---- */

static void free_while_running(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.max_batch = 2;
    struct engine *e = start(&p);
    static int32_t prompt[50];
    struct request *r[6];
    atomic_store(&be->delay_us, 2000);
    for (int i = 0; i < 6; i++) {
        r[i] = make(prompt, 50, 1000);
        submit(e, r[i]);
    }
    struct event_cursor c = {.admitted = true, .n_prefilled = 50};
    assert_true(engine_wait(e, r[0], &c, 5000));
    engine_free(e);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(r[i]->finish, FINISH_REASON_CANCELLED);
        request_free(r[i]);
    }
    assert_int_equal(be->reserved, 0);
    fake_be_free(be);
}

static void drain(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct engine *e = start(&p);
    static int32_t prompt[5];
    struct t9_err err;
    atomic_store(&be->delay_us, 1000);
    struct request *r = make(prompt, 5, 60);
    submit(e, r);
    assert_false(engine_drain(e, 5));
    struct request *late = make(prompt, 5, 5);
    assert_int_equal(engine_submit(e, late, &err), T9_STATUS_BUSY);
    assert_true(engine_drain(e, 20000));
    assert_int_equal(r->finish, FINISH_REASON_LENGTH);
    request_free(late);
    request_free(r);
    engine_free(e);
    fake_be_free(be);
}

static void backend_failure(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.max_batch = 2;
    struct engine *e = start(&p);
    static int32_t prompt[5];
    struct request *r[4];
    struct t9_err err;
    atomic_store(&be->fail_at, be->runs + 10);
    gate(be); /* all four are in before it fails */
    for (int i = 0; i < 4; i++) {
        r[i] = make(prompt, 5, 100);
        submit(e, r[i]);
    }
    ungate(be);
    for (int i = 0; i < 4; i++) {
        struct event end = read_to_end(e, r[i]);
        assert_int_equal(end.kind, EVENT_ERROR);
        assert_non_null(strstr(end.error.msg, "device lost"));
    }
    assert_true(r[0]->n_tokens > 0); /* what was there stays readable */
    assert_int_equal(engine_submit(e, r[0], &err), T9_STATUS_INTERNAL);
    assert_non_null(strstr(err.msg, "device lost"));
    struct engine_stats st;
    engine_stats_read(e, &st);
    assert_int_equal(st.requests_error, 4);
    assert_int_equal(st.kv_pages_used, 0);
    assert_true(engine_drain(e, 1000));
    for (int i = 0; i < 4; i++)
        request_free(r[i]);
    engine_free(e);
    /* Already the first step. */
    atomic_store(&be->fail_at, be->runs + 1);
    assert_int_equal(engine_new(&e, &p, &err), T9_STATUS_INTERNAL);
    assert_non_null(strstr(err.msg, "device lost"));
    assert_int_equal(be->reserved, 0);
    fake_be_free(be);
}

static void start_without_memory(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct engine *e = NULL;
    int n = 0;
    for (;; n++) {
        struct t9_err err = {0};
        mem_test_fail_nth((uint64_t)n + 1);
        t9_status st = engine_new(&e, &p, &err);
        mem_test_fail_nth(0);
        assert_int_equal(be->reserved > 0, st == T9_STATUS_OK);
        if (st == T9_STATUS_OK)
            break;
        assert_int_equal(st, T9_STATUS_NOMEM);
        assert_true(err.msg[0] != 0);
    }
    assert_true(n >= 8);
    engine_free(e);
    fake_be_free(be);
}

/* ---- promises about cost ---- */

struct alloc_probe {
    uint64_t at_first, at_last;
    int n;
};

static void probe_hook(void *ctx, const struct request *r, int32_t position, const float *logits,
                       int32_t n_vocab)
{
    struct alloc_probe *a = ctx;
    (void)r, (void)position, (void)logits;
    assert_int_equal(n_vocab, FAKE_VOCAB);
    a->at_last = wrap_malloc_count() + mem_thread_alloc_count();
    if (a->n++ == 0)
        a->at_first = a->at_last;
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    p.step_tokens = 16;
    p.max_batch = 3;
    struct engine *e = start(&p);
    struct alloc_probe probe = {0};
    engine_set_logits_hook(e, probe_hook, &probe);
    run_clients(e, 8, 10, 900);
    engine_free(e);
    assert_true(probe.n > 500);
    assert_int_equal(probe.at_first, probe.at_last);
    assert_true(wrap_malloc_count_all() > 0); /* the counter works */
    fake_be_free(be);
}

struct posted {
    struct ring *ring;
    int calls;
};

static void post(void *ctx, struct request *r)
{
    struct posted *p = ctx;
    p->calls++;
    assert_true(ring_push(p->ring, r));
}

static void notifications(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct engine *e = start(&p);
    struct posted posted = {0};
    struct t9_err err;
    static int32_t prompt[40];
    assert_int_equal(ring_new(&posted.ring, 8, &err), T9_STATUS_OK);
    struct request *r = make(prompt, 40, 300);
    r->notify = post;
    r->notify_ctx = &posted;
    submit(e, r);
    /* Nobody reads: one call at the first news, one for the end. */
    assert_true(engine_drain(e, 20000));
    assert_int_equal(posted.calls, 2);
    assert_ptr_equal(ring_pop(posted.ring), r);
    assert_ptr_equal(ring_pop(posted.ring), r);
    struct event_cursor c = {0};
    static const event_kind want[] = {EVENT_ADMITTED, EVENT_PROGRESS, EVENT_TOKENS, EVENT_DONE};
    for (int i = 0; i < 4; i++)
        assert_int_equal(request_next(r, &c).kind, want[i]);
    request_free(r);
    engine_free(e);
    ring_free(posted.ring);
    fake_be_free(be);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void idle_costs_nothing(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct engine *e = start(&p);
    clock_sleep_ms(20);
    uint64_t before = cpu_ns();
    clock_sleep_ms(300);
    assert_true(cpu_ns() - before < 5000000);
    engine_free(e);
    fake_be_free(be);
}

/* Touched anonymous memory of this process. */
static size_t anonymous_bytes(void)
{
    char line[256];
    size_t kb = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "Anonymous: %zu kB", &kb) == 1)
            break;
    }
    fclose(f);
    return kb * 1024;
}

static void memory_does_not_follow_the_declared_length(void **state)
{
    (void)state;
    static const int32_t lengths[] = {2048, 8192, 1 << 20};
    size_t used[3];
    for (int i = 0; i < 3; i++) {
        struct be *be = fake_be_new();
        struct engine_params p = params(be);
        p.max_length = lengths[i];
        p.kv_bytes = (uint64_t)4096 * 65536;
        size_t before = anonymous_bytes();
        struct engine *e = start(&p);
        assert_int_equal(engine_max_length(e), lengths[i]);
        size_t after = anonymous_bytes();
        used[i] = after > before ? after - before : 0;
        engine_free(e);
        fake_be_free(be);
    }
    print_message("anonymous memory of an engine: %zu, %zu, %zu kB for %d, %d, %d tokens\n",
                  used[0] / 1024, used[1] / 1024, used[2] / 1024, lengths[0], lengths[1],
                  lengths[2]);
    for (int i = 0; i < 3; i++)
        assert_true(used[i] < (size_t)1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(solo),
        cmocka_unit_test(refusals),
        cmocka_unit_test(unusable_logits),
        cmocka_unit_test(eight_clients),
        cmocka_unit_test(two_engines),
        cmocka_unit_test(cancel_in_prefill),
        cmocka_unit_test(cancel_in_decode),
        cmocka_unit_test(cancel_in_queue),
        cmocka_unit_test(queue_full),
        cmocka_unit_test(priority_goes_first),
        cmocka_unit_test(prompts_do_not_stop_streams),
        cmocka_unit_test(free_while_running),
        cmocka_unit_test(drain),
        cmocka_unit_test(backend_failure),
        cmocka_unit_test(start_without_memory),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(notifications),
        cmocka_unit_test(idle_costs_nothing),
        cmocka_unit_test(limit_reasons),
        cmocka_unit_test(memory_does_not_follow_the_declared_length),
    };
    const struct log_config quiet = {.level = LOG_LEVEL_WARN};
    log_configure(&quiet);
    return cmocka_run_group_tests_name("engine loop", tests, NULL, NULL);
}
