/*
 * drive.h - what tests of the engine over the scripted model share: requests, their right answers,
 * and steps one at a time.
 */
#ifndef T9_TESTS_ENGINE_DRIVE_H
#define T9_TESTS_ENGINE_DRIVE_H

#include "base/clock.h"
#include "engine/engine.h"
#include "fake.h"
#include "lib/t9test.h"

#include <math.h>
#include <time.h>

static inline struct engine_params params(struct be *be)
{
    struct engine_params p;
    engine_params_init(&p);
    p.model = fake_model();
    p.be = be;
    p.vocab = fake_vocab();
    p.kv_bytes = 4096 * 256;
    p.max_length = 2048;
    return p;
}

static inline struct engine *start(const struct engine_params *p)
{
    struct engine *e = NULL;
    struct t9_err err = {0};
    if (engine_new(&e, p, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    return e;
}

static inline struct request *make(const int32_t *prompt, int32_t n, int32_t max_tokens)
{
    struct request *r = NULL;
    struct t9_err err;
    assert_int_equal(request_new(&r, max_tokens, &err), T9_STATUS_OK);
    r->prompt = prompt;
    r->n_prompt = n;
    r->sampling.temperature = 0;
    r->ignore_eos = true;
    return r;
}

static inline void submit(struct engine *e, struct request *r)
{
    struct t9_err err = {0};
    if (engine_submit(e, r, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
}

/* Reads all events up to the end; returns the last one. */
static inline struct event read_to_end(struct engine *e, struct request *r)
{
    struct event_cursor c = {0};
    int32_t n = 0;
    for (;;) {
        struct event ev = request_next(r, &c);
        if (ev.kind == EVENT_NONE) {
            if (!engine_wait(e, r, &c, 20000))
                fail_msg("a request stands still after %d tokens", n);
            continue;
        }
        if (ev.kind == EVENT_TOKENS) {
            assert_int_equal(ev.from, n);
            n = ev.to;
        }
        if (ev.kind == EVENT_DONE || ev.kind == EVENT_ERROR) {
            assert_int_equal(n, atomic_load(&r->n_tokens));
            return ev;
        }
    }
}

/* What the request must produce: the same sampler over the known logits, without the engine. */
struct oracle {
    int32_t tokens[600];
    int32_t n;
    finish_reason reason;
};

static inline void oracle_run(struct oracle *o, const struct request *r)
{
    struct sampler *s = NULL;
    struct t9_err err;
    float logits[FAKE_VOCAB];
    int32_t *known = malloc(sizeof *known * (size_t)(r->n_prompt + r->max_tokens));
    assert_int_equal(sampler_new(&s, FAKE_TOKENS, &err), T9_STATUS_OK);
    memcpy(known, r->prompt, sizeof *known * (size_t)r->n_prompt);
    o->n = 0;
    o->reason = FINISH_REASON_LENGTH;
    while (o->n < r->max_tokens) {
        int32_t n = r->n_prompt + o->n;
        fake_logits(known, n, logits);
        logits[FAKE_SUPPRESSED] = -INFINITY;
        int32_t t = sampler_pick(s, logits, &r->sampling, r->choice, (uint64_t)n);
        if (t < 0 || (!r->ignore_eos && t == FAKE_EOG)) {
            o->reason = t < 0 ? FINISH_REASON_ERROR : FINISH_REASON_STOP;
            break;
        }
        known[n] = o->tokens[o->n++] = t;
    }
    sampler_free(s);
    free(known);
}

static inline void check(const struct request *r, const struct event *end)
{
    static _Thread_local struct oracle o;
    oracle_run(&o, r);
    assert_int_equal(end->reason, o.reason);
    assert_int_equal(atomic_load(&r->n_tokens), o.n);
    assert_memory_equal(r->tokens, o.tokens, sizeof(int32_t) * (size_t)o.n);
}

static inline void fill_prompt(int32_t *p, int32_t n, uint64_t *rng)
{
    for (int32_t i = 0; i < n; i++)
        p[i] = 3 + (int32_t)(test_random(rng) % (FAKE_POISON - 3));
}

static inline void one_step(struct be *be)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    sem_post(&be->permit);
    assert_int_equal(sem_timedwait(&be->done, &end), 0);
}

static inline void gate(struct be *be)
{
    atomic_store(&be->gated, true);
}

static inline void ungate(struct be *be)
{
    atomic_store(&be->gated, false);
    for (int i = 0; i < 100; i++)
        sem_post(&be->permit);
}

static inline bool ended(struct engine *e, struct request *r, int timeout_ms)
{
    struct event_cursor c = {.admitted = true, .n_prefilled = INT32_MAX, .n_tokens = INT32_MAX};
    return engine_wait(e, r, &c, timeout_ms);
}

#endif
