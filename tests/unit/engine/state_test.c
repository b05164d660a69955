/*
 * state_test: hybrid models in the engine, over the scripted model with a state that is the hash of
 * all tokens so far: a state of another text, or of another place in it, shows in the logits. After
 * each step the engine's own check runs.
 */
#include "base/log.h"
#include "drive.h"
#include "engine/testing.h"

enum { STATE_BYTES = 4096, PAGE_BYTES = 4096 };

struct watch {
    int32_t n_faults;
    struct t9_err fault;
};

static void check_step(void *ctx, struct engine *e)
{
    struct watch *w = ctx;
    struct t9_err err;
    if (engine_check(e, &err) != T9_STATUS_OK && w->n_faults++ == 0)
        w->fault = err;
}

static struct engine_params hybrid_params(struct be *be)
{
    struct engine_params p = params(be);
    p.model = fake_hybrid();
    return p;
}

static struct engine *start_watched(const struct engine_params *p, struct watch *w)
{
    struct engine *e = start(p);
    *w = (struct watch){0};
    engine_set_step_hook(e, check_step, w);
    return e;
}

static void stop(struct engine *e, struct be *be, const struct watch *w)
{
    engine_free(e);
    if (w->n_faults > 0)
        fail_msg("%s", w->fault.msg);
    assert_int_equal(atomic_load(&be->broken), 0);
    assert_int_equal(atomic_load(&be->reserved), 0);
    fake_be_free(be);
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
    stop(e, be, &w);
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
    stop(e, be, &w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_states),
        cmocka_unit_test(one_at_a_time),
    };
    const struct log_config quiet = {.level = LOG_LEVEL_ERROR};
    log_configure(&quiet);
    return cmocka_run_group_tests_name("engine state", tests, NULL, NULL);
}
