/*
 * model_cache_test: sharing and preemption over real (tiny) models (promise P1). The bits of every
 * row of logits and every token must be those of the same request alone without any cache: when its
 * prefix was cached, was being computed by another request, was copied out of a page, and after the
 * request was sent back to the queue in a pool a tenth of what all need.
 */
#include "base/hash.h"
#include "base/log.h"
#include "engine/testing.h"
#include "models.h"

enum {
    N_REQUESTS = 64,
    PROMPT_MAX = 900,
    REPLY_MAX = 320,
    POSITIONS = PROMPT_MAX + REPLY_MAX + 1,
    MAX_LENGTH = POSITIONS,
};

struct job {
    int32_t prompt[PROMPT_MAX];
    int32_t n_prompt, max_tokens;
    struct sample_params sampling;
};

struct result {
    uint64_t row[POSITIONS]; /* hash of the logits by position, 0 = none */
    int32_t tokens[REPLY_MAX];
    int32_t n_tokens;
};

struct run {
    struct result r[N_REQUESTS];
    int n_twice;
    int n_faults;
    struct t9_err fault;
    struct engine_stats stats;
};

static struct job jobs[N_REQUESTS];
static struct run solo, shared;

/* A third stands alone, the others share up to 300 tokens of three texts. */
static void make_jobs(int32_t n_vocab)
{
    uint64_t rng = 99;
    for (int i = 0; i < N_REQUESTS; i++) {
        struct job *j = &jobs[i];
        int32_t most = i % 8 == 0 ? PROMPT_MAX : 200;
        *j = (struct job){.n_prompt = 1 + (int32_t)(test_random(&rng) % (uint64_t)most),
                          .max_tokens = 1 + (int32_t)(test_random(&rng) % 50)};
        if (i % 4 == 1)
            j->max_tokens = REPLY_MAX - i;
        int32_t n_shared = i % 3 == 0 ? 0 : (int32_t)(test_random(&rng) % 300);
        uint64_t text = (uint64_t)(i % 2) + 5;
        for (int32_t k = 0; k < j->n_prompt; k++) {
            uint64_t x = k < n_shared ? test_random(&text) : test_random(&rng);
            j->prompt[k] = (int32_t)(x % (uint64_t)n_vocab);
        }
        sample_params_init(&j->sampling);
        j->sampling.temperature = i % 2 ? 0.8f : 0.0f;
        j->sampling.top_p = i % 4 ? 0.9f : 1.0f;
        j->sampling.seed = test_random(&rng);
    }
}

static void keep_hash(void *ctx, const struct request *r, int32_t position, const float *logits,
                      int32_t n_vocab)
{
    struct run *run = ctx;
    uint64_t *row = &run->r[r->choice].row[position];
    run->n_twice += *row != 0;
    *row = hash_xxh3_64(logits, sizeof *logits * (size_t)n_vocab, 0) | 1;
}

static void check_step(void *ctx, struct engine *e)
{
    struct run *run = ctx;
    struct t9_err err;
    if (engine_check(e, &err) != T9_STATUS_OK && run->n_faults++ == 0)
        run->fault = err;
}

static struct engine *start(const struct loaded *l, kv_type type, bool cached, int64_t pages,
                            struct run *run)
{
    struct engine_params p;
    struct engine *e = NULL;
    struct t9_err err = {0};
    struct kv_geom geom;
    engine_params_init(&p);
    p.model = l->m;
    p.be = l->be;
    p.vocab = plain_vocab(model_info(l->m)->n_vocab);
    p.kv_type = type;
    assert_int_equal(model_kv_geom(l->m, type, &geom, &err), T9_STATUS_OK);
    p.kv_bytes = geom.page_bytes * (uint64_t)pages;
    p.max_length = MAX_LENGTH;
    p.no_prefix_cache = !cached;
    p.step_tokens = cached ? 64 : 256;
    if (engine_new(&e, &p, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    memset(run, 0, sizeof *run);
    engine_set_logits_hook(e, keep_hash, run);
    engine_set_step_hook(e, check_step, run);
    return e;
}

static struct request *submit(struct engine *e, uint32_t number)
{
    const struct job *j = &jobs[number];
    struct request *r = NULL;
    struct t9_err err = {0};
    assert_int_equal(request_new(&r, j->max_tokens, &err), T9_STATUS_OK);
    r->prompt = j->prompt;
    r->n_prompt = j->n_prompt;
    r->sampling = j->sampling;
    r->choice = number;
    if (engine_submit(e, r, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    return r;
}

static void finish(struct engine *e, struct request *r, struct result *out)
{
    struct event_cursor c = {.admitted = true, .n_prefilled = INT32_MAX, .n_tokens = INT32_MAX};
    if (!engine_wait(e, r, &c, 240000))
        fail_msg("a request does not end");
    assert_int_equal(r->finish, FINISH_REASON_LENGTH);
    out->n_tokens = r->n_tokens;
    memcpy(out->tokens, r->tokens, sizeof(int32_t) * (size_t)r->n_tokens);
    request_free(r);
}

static void end(struct engine *e, struct run *run)
{
    engine_stats_read(e, &run->stats);
    engine_free(e);
    if (run->n_faults > 0)
        fail_msg("%s", run->fault.msg);
    assert_int_equal(run->n_twice, 0); /* no position is sampled twice, preempted or not */
}

static void run_solo(const struct loaded *l, kv_type type)
{
    struct engine *e = start(l, type, false, 64, &solo);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        finish(e, submit(e, i), &solo.r[i]);
    end(e, &solo);
    assert_int_equal(solo.stats.cached_tokens, 0);
}

static void run_shared(const struct loaded *l, kv_type type, int64_t pages)
{
    struct request *r[N_REQUESTS];
    struct engine *e = start(l, type, true, pages, &shared);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        r[i] = submit(e, i);
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        finish(e, r[i], &shared.r[i]);
    end(e, &shared);
}

static void assert_same_bits(const char *what)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        for (int pos = 0; pos < POSITIONS; pos++) {
            if (solo.r[i].row[pos] != shared.r[i].row[pos])
                fail_msg("%s: request %d, position %d: logits differ", what, i, pos);
        }
        assert_int_equal(solo.r[i].n_tokens, shared.r[i].n_tokens);
        assert_memory_equal(solo.r[i].tokens, shared.r[i].tokens,
                            sizeof(int32_t) * (size_t)solo.r[i].n_tokens);
    }
}

static int64_t pages_needed(int64_t *most)
{
    int64_t n = 0;
    *most = 0;
    for (int i = 0; i < N_REQUESTS; i++) {
        int64_t pages =
            (jobs[i].n_prompt + jobs[i].max_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
        n += pages;
        *most = pages > *most ? pages : *most;
    }
    return n;
}

static void report(const char *what, int64_t pages)
{
    const struct engine_stats *s = &shared.stats;
    print_message("%s, %d pages: %d tokens reused, %d computed; hits %d full %d partial %d in "
                  "flight, %d missed; %d preemptions, %d tokens computed again\n",
                  what, (int)pages, (int)s->cached_tokens, (int)s->prompt_tokens,
                  (int)s->prefix_full, (int)s->prefix_partial, (int)s->prefix_inflight,
                  (int)s->prefix_miss, (int)s->preemptions, (int)s->recomputed_tokens);
}

static void same_bits(const char *name, kv_type type, int n_threads)
{
    struct loaded l;
    int64_t most;
    if (!load(&l, name, "cpu", n_threads)) {
        print_message("%s: not there\n", name);
        skip();
    }
    make_jobs(model_info(l.m)->n_vocab);
    int64_t need = pages_needed(&most);
    int64_t tenth = need / 10 > most ? need / 10 : most;
    run_solo(&l, type);
    /* A pool a tenth of the need: everybody waits, shares, is preempted. */
    run_shared(&l, type, tenth);
    report(name, tenth);
    assert_same_bits("a tenth of the pages");
    assert_true(shared.stats.preemptions > 0);
    assert_true(shared.stats.prefix_partial > 0);
    /* Room for all, twice in one engine: the second time everything is a hit. */
    struct engine *e = start(&l, type, true, 2 * need, &shared);
    for (int round = 0; round < 2; round++) {
        struct request *r[N_REQUESTS];
        memset(shared.r, 0, sizeof shared.r);
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            r[i] = submit(e, i);
        for (uint32_t i = 0; i < N_REQUESTS; i++)
            finish(e, r[i], &shared.r[i]);
        assert_same_bits(round == 0 ? "all pages" : "all cached");
    }
    end(e, &shared);
    report(name, 2 * need);
    assert_true(shared.stats.prefix_full >= N_REQUESTS - 3); /* one-token prompts have nothing */
    assert_int_equal(shared.stats.preemptions, 0);
    assert_true(shared.stats.prefix_inflight > 0);
    unload(&l);
}

/* The request that computes a shared prefix is cancelled half way; the one that waited for it takes
 * over and gets the bits of its solo run. */
static void producer_cancelled(void **state)
{
    (void)state;
    struct loaded l;
    if (!load(&l, "llama", "cpu", 1))
        skip();
    make_jobs(model_info(l.m)->n_vocab);
    uint64_t rng = 3;
    for (int k = 0; k < PROMPT_MAX; k++)
        jobs[0].prompt[k] = (int32_t)(test_random(&rng) % 200);
    jobs[0].n_prompt = PROMPT_MAX - 10;
    jobs[1] = jobs[0];
    struct engine *e = start(&l, KV_TYPE_F16, false, 64, &solo);
    finish(e, submit(e, 1), &solo.r[1]);
    end(e, &solo);
    e = start(&l, KV_TYPE_F16, true, 128, &shared);
    struct request *first = submit(e, 0);
    struct request *second = submit(e, 1);
    struct event_cursor c = {.admitted = true, .n_prefilled = 200};
    assert_true(engine_wait(e, first, &c, 60000));
    engine_cancel(e, first);
    finish(e, second, &shared.r[1]);
    assert_int_equal(first->finish, FINISH_REASON_CANCELLED);
    assert_true(first->n_prefilled < PROMPT_MAX - 10);
    request_free(first);
    end(e, &shared);
    memset(&shared.r[0], 0, sizeof shared.r[0]);
    memset(&solo.r[0], 0, sizeof solo.r[0]);
    assert_same_bits("taken over");
    assert_int_equal(shared.stats.prefix_inflight, 1);
    assert_true(shared.stats.prompt_tokens < PROMPT_MAX + 100); /* nothing was computed twice */
    unload(&l);
}

static void llama_f16(void **state)
{
    (void)state;
    same_bits("llama", KV_TYPE_F16, 1);
}

static void llama_f32(void **state)
{
    (void)state;
    same_bits("llama", KV_TYPE_F32, 2);
}

static void qwen2(void **state)
{
    (void)state;
    same_bits("qwen2", KV_TYPE_F16, 1);
}

static void qwen3(void **state)
{
    (void)state;
    same_bits("qwen3", KV_TYPE_F16, 2);
}

static void other_kv_types(void **state)
{
    (void)state;
    static const char *const names[] = {"bf16", "q8_0"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        kv_type type;
        if (kv_type_parse(names[i], &type))
            same_bits("llama", type, 1);
        else
            print_message("no KV type %s in this build\n", names[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(producer_cancelled),
        cmocka_unit_test(llama_f16),
        cmocka_unit_test(llama_f32),
        cmocka_unit_test(qwen2),
        cmocka_unit_test(qwen3),
        cmocka_unit_test(other_kv_types),
    };
    const struct log_config quiet = {.level = LOG_LEVEL_ERROR};
    log_configure(&quiet);
    return cmocka_run_group_tests_name("engine model cache", tests, NULL, NULL);
}
