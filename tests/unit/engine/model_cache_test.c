/*
 * model_cache_test: sharing and preemption over real models (promise P1). The bits of every row of
 * logits and every token must be those of the same request alone without any cache: when its prefix
 * was cached, was being computed by another request, was copied out of a page, and after the
 * request was sent back to the queue in a pool a tenth of what all need.
 *
 *     model_cache_test          on the tiny models of the architectures
 *     model_cache_test states   turns on those that have a recurrent state, or a window
 *     model_cache_test full     on a model as people use it, prompts up to 3,000 tokens (T9_FULL)
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/testing.h"
#include "kv/checkpoint.h"
#include "models.h"

#include <math.h>

enum {
    N_REQUESTS = 64,
    N_TURNS = 40,
    PROMPT_MAX = 3000,
    REPLY_MAX = 320,
    POSITIONS = PROMPT_MAX + REPLY_MAX + 1,
    TINY_PROMPT_MAX = 900,
    WAIT_MS = 1800000,
    SHORT_WINDOWS = 16,
    LARGE_PARAMS = 300000000, /* fewer and shorter replies from there on */
};

struct job {
    int32_t prompt[PROMPT_MAX];
    int32_t n_prompt, max_tokens;
    struct sample_params sampling;
    struct request_mark marks[REQUEST_MARKS_MAX];
    int32_t n_marks;
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
static uint32_t n_jobs = N_REQUESTS;
static int32_t max_batch = 16;
static int32_t shared_step_tokens = 64;
static int64_t n_windows = INT64_MAX; /* window pages beside so many, of models that have them */
static int64_t n_states = 4; /* bytes for so many beside the pages, of models that have a state */
static struct run solo, shared;

/* A third stands alone, the others share up to 300 tokens of three texts. */
static void make_jobs(int32_t n_vocab)
{
    uint64_t rng = 99;
    n_jobs = N_REQUESTS;
    for (int i = 0; i < N_REQUESTS; i++) {
        struct job *j = &jobs[i];
        int32_t most = i % 8 == 0 ? TINY_PROMPT_MAX : 200;
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

/* n requests with prompts of 1 to prompt_max tokens: a few of the longest, the others evenly spread
 * over the orders of magnitude. Two thirds begin with one of three texts of up to 700 tokens; every
 * second one samples. */
static void make_full_jobs(int32_t n_vocab, uint32_t n, int32_t prompt_max, int32_t reply_max)
{
    uint64_t rng = 2027;
    n_jobs = n;
    max_batch = N_REQUESTS; /* the pool is what they are short of, not slots */
    for (uint32_t i = 0; i < n; i++) {
        struct job *j = &jobs[i];
        double u = (double)(test_random(&rng) % 100000) / 100000.0;
        *j = (struct job){.n_prompt = (int32_t)pow((double)prompt_max, u),
                          .max_tokens = 1 + (int32_t)(test_random(&rng) % (uint64_t)reply_max)};
        if (i < 2)
            j->n_prompt = 1;
        else if (i < 6)
            j->n_prompt = prompt_max - (int32_t)(i - 2);
        /* Replies longer than what admission sets aside, at the same time: they run out of pages.
         */
        if (i >= n / 2 && i < n / 2 + n / 3) {
            j->n_prompt =
                prompt_max / 20 + (int32_t)(test_random(&rng) % (uint64_t)(prompt_max / 8));
            j->max_tokens = (prompt_max == PROMPT_MAX ? 8 : 5) * reply_max + (int32_t)i;
        }
        int32_t n_shared = i % 3 == 0 ? 0 : 20 + (int32_t)(test_random(&rng) % 680);
        uint64_t text = (uint64_t)(i % 3) + 5;
        for (int32_t k = 0; k < j->n_prompt; k++) {
            uint64_t x = k < n_shared ? test_random(&text) : test_random(&rng);
            j->prompt[k] = (int32_t)(x % (uint64_t)n_vocab);
        }
        sample_params_init(&j->sampling);
        j->sampling.temperature = i % 2 ? 0.8f : 0.0f;
        j->sampling.top_p = i % 4 == 1 ? 0.9f : 1.0f;
        j->sampling.top_k = i % 4 == 3 ? 40 : 0;
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
    struct state_geom state;
    engine_params_init(&p);
    p.model = l->m;
    p.be = l->be;
    p.vocab = plain_vocab(model_info(l->m)->n_vocab);
    p.kv_type = type;
    assert_int_equal(model_kv_geom(l->m, type, &geom, &err), T9_STATUS_OK);
    model_state_geom(l->m, &state);
    p.kv_bytes = geom.page_bytes * (uint64_t)pages +
                 geom.window_bytes * (uint64_t)(n_windows < pages ? n_windows : pages) +
                 state.slot_bytes * (uint64_t)n_states;
    p.max_length = POSITIONS;
    p.max_batch = max_batch;
    p.no_prefix_cache = !cached;
    p.step_tokens = cached ? shared_step_tokens : 256;
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
    memcpy(r->marks, j->marks, sizeof j->marks);
    r->n_marks = j->n_marks;
    if (engine_submit(e, r, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    return r;
}

static void finish(struct engine *e, struct request *r, struct result *out)
{
    struct event_cursor c = {.admitted = true, .n_prefilled = INT32_MAX, .n_tokens = INT32_MAX};
    if (!r || !engine_wait(e, r, &c, WAIT_MS)) {
        fail_msg("a request does not end");
        return;
    }
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
    struct engine *e = start(l, type, false, 128, &solo);
    for (uint32_t i = 0; i < n_jobs; i++)
        finish(e, submit(e, i), &solo.r[i]);
    end(e, &solo);
    assert_int_equal(solo.stats.cached_tokens, 0);
}

static void run_shared(const struct loaded *l, kv_type type, int64_t pages)
{
    struct request *r[N_REQUESTS] = {0};
    struct engine *e = start(l, type, true, pages, &shared);
    for (uint32_t i = 0; i < n_jobs; i++)
        r[i] = submit(e, i);
    for (uint32_t i = 0; i < n_jobs; i++)
        finish(e, r[i], &shared.r[i]);
    end(e, &shared);
}

static void assert_same_bits(const char *what)
{
    for (uint32_t i = 0; i < n_jobs; i++) {
        for (int pos = 0; pos < POSITIONS; pos++) {
            if (solo.r[i].row[pos] != shared.r[i].row[pos])
                fail_msg("%s: request %u, position %d: logits differ", what, i, pos);
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
    for (uint32_t i = 0; i < n_jobs; i++) {
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

/* The jobs alone, then in a pool a tenth of their need, then, if wanted, with room for all, twice.
 */
static void compare_runs(const struct loaded *l, const char *name, kv_type type, bool with_room)
{
    int64_t most;
    int64_t need = pages_needed(&most);
    int64_t tenth = need / 10 > most ? need / 10 : most;
    run_solo(l, type);
    /* Everybody waits, shares, is preempted. The longest one fits since it needs only a window of
     * its window pages. */
    n_windows = SHORT_WINDOWS;
    run_shared(l, type, tenth);
    n_windows = INT64_MAX;
    report(name, tenth);
    assert_same_bits("a tenth of the pages");
    if (shared.stats.kv_window_bytes > 0)
        assert_true(shared.stats.evicted_windows > 0);
    else
        assert_true(shared.stats.preemptions > 0);
    assert_true(shared.stats.prefix_partial > 0);
    if (!with_room)
        return;
    /* Room for all, twice in one engine: the second time everything is a hit. */
    struct engine *e = start(l, type, true, 2 * need, &shared);
    for (int round = 0; round < 2; round++) {
        struct request *r[N_REQUESTS] = {0};
        memset(shared.r, 0, sizeof shared.r);
        for (uint32_t i = 0; i < n_jobs; i++)
            r[i] = submit(e, i);
        for (uint32_t i = 0; i < n_jobs; i++)
            finish(e, r[i], &shared.r[i]);
        assert_same_bits(round == 0 ? "all pages" : "all cached");
    }
    end(e, &shared);
    report(name, 2 * need);
    uint32_t n_single = 0; /* a prompt of one token has nothing to reuse */
    for (uint32_t i = 0; i < n_jobs; i++)
        n_single += jobs[i].n_prompt == 1;
    /* A state is kept at the end of a page and not at the last token but one. */
    uint64_t hits = shared.stats.prefix_full;
    if (model_info(l->m)->n_recurrent > 0)
        hits += shared.stats.prefix_partial;
    assert_true(hits >= n_jobs - n_single);
    assert_int_equal(shared.stats.preemptions, 0);
    assert_true(shared.stats.prefix_inflight > 0);
}

/* Threads change no bit (model_invariance_test) and cost much where steps are this small: one test
 * has two. */
static void same_bits(const char *name, kv_type type, int n_threads)
{
    struct loaded l = {0};
    if (!load(&l, name, "cpu", n_threads)) {
        print_message("%s: not there\n", name);
        skip();
    }
    make_jobs(model_info(l.m)->n_vocab);
    compare_runs(&l, name, type, true);
    unload(&l);
}

/* ---- models with a state ---- */

/* The text of job `from` up to `cut` tokens (cut < 0: all of it and its reply), and then n_new
 * tokens. */
static void make_turn(struct job *j, int32_t from, int32_t cut, int32_t n_new, int32_t n_vocab,
                      uint64_t *rng)
{
    const struct job *f = &jobs[from];
    const struct result *reply = &solo.r[from];
    int32_t n = cut < 0 || cut > f->n_prompt ? f->n_prompt : cut;
    memcpy(j->prompt, f->prompt, sizeof(int32_t) * (size_t)n);
    for (int32_t i = 0; cut < 0 && i < reply->n_tokens; i++)
        j->prompt[n++] = reply->tokens[i];
    j->marks[0] = (struct request_mark){n, MARK_KIND_TURN};
    j->n_marks = 1;
    while (n_new-- > 0)
        j->prompt[n++] = (int32_t)(test_random(rng) % (uint64_t)n_vocab);
    j->n_prompt = n;
}

/* Conversations that go on, begin anew somewhere in the middle or are asked again, one after the
 * other; each is computed alone first. Returns tokens that need not be computed twice. */
static int64_t make_turns(const struct loaded *l, kv_type type)
{
    int32_t n_vocab = model_info(l->m)->n_vocab;
    uint64_t rng = 31;
    int64_t common = 0;
    n_jobs = N_TURNS;
    memset(jobs, 0, sizeof jobs);
    struct engine *e = start(l, type, false, 128, &solo);
    for (uint32_t i = 0; i < n_jobs; i++) {
        struct job *j = &jobs[i];
        int32_t from = (int32_t)(i - 1 - test_random(&rng) % (i < 4 ? 1 : 4));
        int32_t n_new = 1 + (int32_t)(test_random(&rng) % 80);
        int32_t cut = -1;
        if (i % 16 == 0) {
            from = 0;
            cut = 0;
            n_new = 1100 + (int32_t)i;
        } else if (i % 3 == 0) {
            cut = (int32_t)(test_random(&rng) % (uint64_t)jobs[from].n_prompt);
        } else if (i % 7 == 0) {
            cut = INT32_MAX;
            n_new = 0;
        }
        make_turn(j, from, cut, n_new, n_vocab, &rng);
        common += j->n_prompt - (n_new ? n_new : 1);
        j->max_tokens = 1 + (int32_t)(test_random(&rng) % 60);
        sample_params_init(&j->sampling);
        j->sampling.temperature = i % 2 ? 0.9f : 0.0f;
        j->sampling.seed = i;
        finish(e, submit(e, i), &solo.r[i]);
    }
    end(e, &solo);
    return common;
}

/* A text that leaves a state of each kind, and others that take each of them up. */
static void each_kind(const struct loaded *l, const char *name)
{
    static const int32_t cuts[] = {0, 392, 1000, 1000, 1430, 1730, 2750, INT32_MAX};
    uint64_t rng = 17;
    n_jobs = T9_COUNT(cuts);
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < n_jobs; i++) {
        struct job *j = &jobs[i];
        make_turn(j, 0, cuts[i], i == 0 ? 2820 : 30, model_info(l->m)->n_vocab, &rng);
        j->n_marks = 0;
        j->max_tokens = 4;
        sample_params_init(&j->sampling);
    }
    jobs[0].marks[0] = (struct request_mark){1408, MARK_KIND_HEAD};
    jobs[0].marks[1] = (struct request_mark){1700, MARK_KIND_TURN};
    jobs[0].n_marks = 2;
    run_solo(l, KV_TYPE_F16);
    n_states = 400;
    struct engine *e = start(l, KV_TYPE_F16, true, 2000, &shared);
    for (uint32_t i = 0; i < n_jobs; i++)
        finish(e, submit(e, i), &shared.r[i]);
    end(e, &shared);
    assert_same_bits(name);
    for (int kind = 0; kind < CKPT_KINDS; kind++) {
        if (shared.stats.checkpoint_hits[kind] == 0)
            fail_msg("%s: no state of kind %d was taken up", name, kind);
    }
}

/* Every row of logits has the bits of a run without any cache, wherever a state was taken up and
 * however prompts were cut; with room for all states, and with room for very few. */
static void states(const char *name)
{
    struct loaded l = {0};
    if (!load(&l, name, "cpu", 1)) {
        print_message("%s: not there\n", name);
        skip();
    }
    assert_true(model_info(l.m)->n_recurrent > 0);
    int64_t common = make_turns(&l, KV_TYPE_F16);
    static const int32_t steps[] = {64, 7};
    for (size_t i = 0; i < T9_COUNT(steps); i++) {
        shared_step_tokens = steps[i];
        n_states = i == 1 ? 3 : 400;
        struct engine *e = start(&l, KV_TYPE_F16, true, i == 1 ? 120 : 2000, &shared);
        for (uint32_t k = 0; k < n_jobs; k++)
            finish(e, submit(e, k), &shared.r[k]);
        end(e, &shared);
        assert_same_bits(name);
        const struct engine_stats *s = &shared.stats;
        print_message(
            "%s, steps of %d: %d of %d common tokens reused; states: %d kept, %d dropped, "
            "resumed from %d intervals, %d branches, %d marks, %d ends\n",
            name, steps[i], (int)s->cached_tokens, (int)common, s->kv_states_kept,
            (int)s->evicted_states, (int)s->checkpoint_hits[CKPT_KIND_INTERVAL],
            (int)s->checkpoint_hits[CKPT_KIND_BRANCH], (int)s->checkpoint_hits[CKPT_KIND_MARK],
            (int)s->checkpoint_hits[CKPT_KIND_END]);
        assert_true(i == 1 ? s->evicted_states > 0 : (int64_t)s->cached_tokens > common * 3 / 4);
        assert_true(s->checkpoint_hits[CKPT_KIND_END] > 0);
    }
    shared_step_tokens = 64;
    each_kind(&l, name);
    n_states = 4;
    make_jobs(model_info(l.m)->n_vocab);
    compare_runs(&l, name, KV_TYPE_F16, true);
    unload(&l);
}

/* ---- models with a window ---- */

/* Long replies at once, in a pool for a few of them: preempted, and resumed where their windows are
 * still there. */
static void long_replies(const struct loaded *l, const char *name)
{
    uint64_t rng = 8;
    n_jobs = 8;
    memset(jobs, 0, sizeof jobs);
    for (uint32_t i = 0; i < n_jobs; i++) {
        struct job *j = &jobs[i];
        j->n_prompt = 90 + (int32_t)i;
        j->max_tokens = 250;
        for (int32_t k = 0; k < j->n_prompt; k++)
            j->prompt[k] =
                k < 50 ? k : (int32_t)(test_random(&rng) % (uint64_t)model_info(l->m)->n_vocab);
        sample_params_init(&j->sampling);
        j->sampling.seed = i;
    }
    run_solo(l, KV_TYPE_F16);
    n_windows = 30;
    run_shared(l, KV_TYPE_F16, 34);
    n_windows = INT64_MAX;
    report(name, 34);
    assert_same_bits("long replies");
    assert_true(shared.stats.preemptions > 0);
    assert_true(shared.stats.evicted_windows > 0);
}

/* A long prompt with a mark, in a pool that keeps few of its windows; then one that leaves it at
 * the mark goes on there, and one that asks the first again at its end. */
static void marks_are_kept(const struct loaded *l, const char *name)
{
    uint64_t rng = 5;
    n_jobs = 3;
    memset(jobs, 0, sizeof jobs);
    make_turn(&jobs[0], 0, 0, 1500, model_info(l->m)->n_vocab, &rng);
    jobs[0].marks[0] = (struct request_mark){1000, MARK_KIND_HEAD};
    make_turn(&jobs[1], 0, 1000, 40, model_info(l->m)->n_vocab, &rng);
    make_turn(&jobs[2], 0, INT32_MAX, 0, model_info(l->m)->n_vocab, &rng);
    for (uint32_t i = 0; i < n_jobs; i++) {
        jobs[i].max_tokens = 100;
        sample_params_init(&jobs[i].sampling);
    }
    run_solo(l, KV_TYPE_F16);
    n_windows = SHORT_WINDOWS / 2;
    struct engine *e = start(l, KV_TYPE_F16, true, 52, &shared);
    n_windows = INT64_MAX;
    for (uint32_t i = 0; i < n_jobs; i++)
        finish(e, submit(e, i), &shared.r[i]);
    end(e, &shared);
    assert_same_bits("marks");
    print_message("%s: %d tokens reused, %d window pages dropped\n", name,
                  (int)shared.stats.cached_tokens, (int)shared.stats.evicted_windows);
    assert_true(shared.stats.evicted_windows > 20);
    assert_int_equal(shared.stats.cached_tokens, 1000 + 1000);
}

/* Turn after turn, with room for everything and with room for few windows: the same bits, and the
 * places where conversations go on are still there. */
static void windows(const char *name)
{
    struct loaded l = {0};
    if (!load(&l, name, "cpu", 1)) {
        print_message("%s: not there\n", name);
        skip();
    }
    long_replies(&l, name);
    marks_are_kept(&l, name);
    int64_t common = make_turns(&l, KV_TYPE_F16);
    for (int i = 0; i < 2; i++) {
        n_windows = i == 0 ? INT64_MAX : 4 * SHORT_WINDOWS;
        struct engine *e = start(&l, KV_TYPE_F16, true, i == 0 ? 2000 : 215, &shared);
        for (uint32_t k = 0; k < n_jobs; k++)
            finish(e, submit(e, k), &shared.r[k]);
        end(e, &shared);
        assert_same_bits(name);
        const struct engine_stats *s = &shared.stats;
        print_message("%s: %d of %d common tokens reused; window pages: %d there, %d dropped\n",
                      name, (int)s->cached_tokens, (int)common,
                      s->kv_windows_used + s->kv_windows_cold, (int)s->evicted_windows);
        assert_true(s->kv_window_bytes > 0);
        assert_true(i == 0 ? s->evicted_windows == 0 : s->evicted_windows > 0);
        assert_true((int64_t)s->cached_tokens > common * (i == 0 ? 95 : 60) / 100);
    }
    n_windows = INT64_MAX;
    unload(&l);
}

static void gemma3_turns(void **state)
{
    (void)state;
    windows("gemma3");
}

static void gpt_oss_turns(void **state)
{
    (void)state;
    windows("gpt-oss");
}

static void lfm2(void **state)
{
    (void)state;
    states("lfm2");
}

static void lfm2moe(void **state)
{
    (void)state;
    states("lfm2moe");
}

static void qwen35(void **state)
{
    (void)state;
    states("qwen35");
}

static void qwen35moe(void **state)
{
    (void)state;
    states("qwen35moe");
}

static void qwen3next(void **state)
{
    (void)state;
    states("shape-qwen3next");
}

/* The request that computes a shared prefix is cancelled half way; the one that waited for it takes
 * over and gets the bits of its solo run. */
static void producer_cancelled(void **state)
{
    (void)state;
    struct loaded l = {0};
    if (!load(&l, "llama", "cpu", 1))
        skip();
    make_jobs(model_info(l.m)->n_vocab);
    uint64_t rng = 3;
    for (int k = 0; k < TINY_PROMPT_MAX; k++)
        jobs[0].prompt[k] = (int32_t)(test_random(&rng) % 200);
    jobs[0].n_prompt = TINY_PROMPT_MAX - 10;
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
    assert_true(first->n_prefilled < TINY_PROMPT_MAX - 10);
    request_free(first);
    end(e, &shared);
    memset(&shared.r[0], 0, sizeof shared.r[0]);
    memset(&solo.r[0], 0, sizeof solo.r[0]);
    assert_same_bits("taken over");
    assert_int_equal(shared.stats.prefix_inflight, 1);
    assert_true(shared.stats.prompt_tokens <
                TINY_PROMPT_MAX + 100); /* nothing was computed twice */
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

static void gemma3(void **state)
{
    (void)state;
    same_bits("gemma3", KV_TYPE_F16, 1);
}

static void qwen3moe(void **state)
{
    (void)state;
    same_bits("qwen3moe", KV_TYPE_F16, 1);
}

static void gpt_oss(void **state)
{
    (void)state;
    same_bits("gpt-oss", KV_TYPE_F16, 1);
}

static void qwen3(void **state)
{
    (void)state;
    same_bits("qwen3", KV_TYPE_F16, 1);
}

static void gemma4(void **state)
{
    (void)state;
    same_bits("shape-gemma4", KV_TYPE_F16, 1);
}

static void mistral3(void **state)
{
    (void)state;
    same_bits("shape-mistral3", KV_TYPE_F16, 1);
}

static void qwen3vl(void **state)
{
    (void)state;
    same_bits("qwen3vl-media", KV_TYPE_F16, 1);
}

static void qwen3vlmoe(void **state)
{
    (void)state;
    same_bits("qwen3vlmoe", KV_TYPE_F16, 1);
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

/* ---- a model as people use it ---- */

/* On one thread: no result depends on that, and this may run beside other things. */
static void full_with(kv_type type, uint32_t n, int32_t prompt_max, bool with_room)
{
    struct loaded l;
    char name[64];
    uint64_t began_ns = clock_now_ns();
    load_file(&l, full_model(), "cpu", 1);
    const struct model_info *info = model_info(l.m);
    bool is_large = info->n_params > LARGE_PARAMS;
    make_full_jobs(info->n_vocab, is_large && n < N_REQUESTS ? n / 2 : n, prompt_max,
                   is_large && with_room ? 16 : 32);
    int64_t prompts = 0;
    for (uint32_t i = 0; i < n_jobs; i++)
        prompts += jobs[i].n_prompt;
    snprintf(name, sizeof name, "%.*s, KV %s", info->name.n > 40 ? 40 : (int)info->name.n,
             info->name.p, kv_type_name(type));
    compare_runs(&l, name, type, with_room);
    print_message("%s: %u requests, %lld prompt tokens, all rows of logits equal; %.0f s\n", name,
                  n_jobs, (long long)prompts, (double)(clock_now_ns() - began_ns) * 1e-9);
    unload(&l);
}

/* Prompts of 1 to 3,000 tokens. A tenth of their need is just what the longest one takes. */
static void full_long(void **state)
{
    (void)state;
    full_with(KV_TYPE_F16, N_REQUESTS, PROMPT_MAX, false);
}

static void full_f16(void **state)
{
    (void)state;
    full_with(KV_TYPE_F16, 32, 500, true);
}

static void full_bf16(void **state)
{
    (void)state;
    full_with(KV_TYPE_BF16, 32, 500, true);
}

static void full_q8_0(void **state)
{
    (void)state;
    full_with(KV_TYPE_Q8_0, 32, 500, true);
}

static void full_f32(void **state)
{
    (void)state;
    full_with(KV_TYPE_F32, 32, 500, true);
}

static int run_full(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_long), cmocka_unit_test(full_f16), cmocka_unit_test(full_bf16),
        cmocka_unit_test(full_q8_0), cmocka_unit_test(full_f32),
    };
    return full_model() ? cmocka_run_group_tests_name("engine full model", tests, NULL, NULL) : 77;
}

static int run_states(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemma3_turns), cmocka_unit_test(gpt_oss_turns),
        cmocka_unit_test(lfm2),         cmocka_unit_test(lfm2moe),
        cmocka_unit_test(qwen35),       cmocka_unit_test(qwen35moe),
        cmocka_unit_test(qwen3next),
    };
    return cmocka_run_group_tests_name("engine model states", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(producer_cancelled),
        cmocka_unit_test(llama_f16),
        cmocka_unit_test(llama_f32),
        cmocka_unit_test(qwen2),
        cmocka_unit_test(qwen3),
        cmocka_unit_test(gemma3),
        cmocka_unit_test(gemma4),
        cmocka_unit_test(mistral3),
        cmocka_unit_test(qwen3moe),
        cmocka_unit_test(qwen3vl),
        cmocka_unit_test(qwen3vlmoe),
        cmocka_unit_test(gpt_oss),
        cmocka_unit_test(other_kv_types),
    };
    const struct log_config quiet = {.level = LOG_LEVEL_ERROR};
    log_configure(&quiet);
    if (argc > 1 && strcmp(argv[1], "full") == 0)
        return run_full();
    if (argc > 1 && strcmp(argv[1], "states") == 0)
        return run_states();
    return cmocka_run_group_tests_name("engine model cache", tests, NULL, NULL);
}
