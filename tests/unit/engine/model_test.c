/*
 * model_test: the engine over real (tiny) models. The bits of every row of logits must be the same
 * alone and in any company (promise P1), so must the text; and eval must give the engine's bits.
 */
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "lib/t9test.h"
#include "models.h"
#include "wrap_malloc.h"

enum {
    N_REQUESTS = 8,
    PROMPT_MAX = 100,
    REPLY_MAX = 24,
    POSITIONS = PROMPT_MAX + REPLY_MAX + 1,
};

struct row_hashes {
    uint64_t h[N_REQUESTS][POSITIONS]; /* by request (its choice) and position; 0 = not seen */
    uint64_t allocs_first, allocs_last;
    int n_rows;
};

struct job {
    int32_t prompt[PROMPT_MAX];
    int32_t n_prompt, max_tokens, n_tokens;
    int32_t tokens[REPLY_MAX];
    struct sample_params sampling;
};

static void make_jobs(struct job *jobs, int32_t n_vocab)
{
    uint64_t rng = 2026;
    for (int i = 0; i < N_REQUESTS; i++) {
        struct job *j = &jobs[i];
        *j = (struct job){.n_prompt = i == 0 ? 1 : 1 + (int32_t)(test_random(&rng) % PROMPT_MAX),
                          .max_tokens = 1 + (int32_t)(test_random(&rng) % REPLY_MAX)};
        for (int32_t k = 0; k < j->n_prompt; k++)
            j->prompt[k] = (int32_t)(test_random(&rng) % (uint64_t)n_vocab);
        sample_params_init(&j->sampling);
        j->sampling.temperature = i % 2 ? 0.8f : 0.0f;
        j->sampling.top_p = i % 3 ? 0.9f : 1.0f;
        j->sampling.top_k = i % 4 ? 0 : 20;
        j->sampling.seed = test_random(&rng);
    }
}

static void keep_hash(void *ctx, const struct request *r, int32_t position, const float *logits,
                      int32_t n_vocab)
{
    struct row_hashes *rows = ctx;
    rows->h[r->choice][position] = hash_xxh3_64(logits, sizeof *logits * (size_t)n_vocab, 0) | 1;
    rows->allocs_last = wrap_malloc_count() + mem_thread_alloc_count();
    if (rows->n_rows++ == 0)
        rows->allocs_first = rows->allocs_last;
}

static struct request *submit_job(struct engine *e, const struct job *j, uint32_t number)
{
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

static void wait_end(struct engine *e, struct request *r)
{
    struct event_cursor c = {.admitted = true, .n_prefilled = INT32_MAX, .n_tokens = INT32_MAX};
    if (!engine_wait(e, r, &c, 120000))
        fail_msg("a request does not end");
    assert_int_equal(r->finish, FINISH_REASON_LENGTH);
}

/* Runs all jobs, one after the other or together with random arrivals. */
static void run_jobs(const struct loaded *l, struct job *jobs, int32_t step_tokens, bool together,
                     kv_type type, struct row_hashes *rows)
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
    p.kv_bytes = kv_geom_bytes(&geom) * 64;
    p.max_length = 256;
    p.step_tokens = step_tokens;
    p.max_batch = N_REQUESTS;
    if (engine_new(&e, &p, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    memset(rows, 0, sizeof *rows);
    engine_set_logits_hook(e, keep_hash, rows);
    struct request *r[N_REQUESTS];
    uint64_t rng = (uint64_t)step_tokens + 17;
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        r[i] = submit_job(e, &jobs[i], i);
        if (!together)
            wait_end(e, r[i]);
        else if (test_random(&rng) % 2)
            usleep((useconds_t)(test_random(&rng) % 4000));
    }
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        wait_end(e, r[i]);
        jobs[i].n_tokens = r[i]->n_tokens;
        memcpy(jobs[i].tokens, r[i]->tokens, sizeof(int32_t) * (size_t)r[i]->n_tokens);
        request_free(r[i]);
    }
    engine_free(e);
    assert_true(rows->n_rows > 0);
    assert_int_equal(rows->allocs_first, rows->allocs_last); /* steps allocate nothing (P5) */
}

static void assert_same(const struct job *a, const struct row_hashes *ra, const struct job *b,
                        const struct row_hashes *rb)
{
    for (int i = 0; i < N_REQUESTS; i++) {
        for (int pos = 0; pos < POSITIONS; pos++) {
            if (ra->h[i][pos] != rb->h[i][pos])
                fail_msg("request %d, position %d: logits differ", i, pos);
        }
        assert_int_equal(a[i].n_tokens, b[i].n_tokens);
        assert_memory_equal(a[i].tokens, b[i].tokens, sizeof(int32_t) * (size_t)a[i].n_tokens);
    }
}

/* Position of the first row that eval and the engine share is the end of the prompt. */
struct eval_check {
    const struct row_hashes *rows;
    int request;
    int32_t n_prompt, n_vocab;
    int compared;
};

static bool eval_row(void *ctx, int32_t position, const float *logits)
{
    struct eval_check *c = ctx;
    if (position + 1 < c->n_prompt)
        return true;
    uint64_t h = hash_xxh3_64(logits, sizeof *logits * (size_t)c->n_vocab, 0) | 1;
    if (h != c->rows->h[c->request][position + 1])
        fail_msg("request %d, position %d: eval differs", c->request, position + 1);
    c->compared++;
    return true;
}

static void eval_equals_engine(const struct loaded *l, const struct job *jobs, kv_type type,
                               const struct row_hashes *rows)
{
    static const int32_t chunks[] = {0, 1, 13, 64};
    for (int i = 0; i < N_REQUESTS; i++) {
        int32_t tokens[POSITIONS];
        const struct job *j = &jobs[i];
        int32_t n = j->n_prompt + j->n_tokens - 1; /* the last token was never computed */
        struct eval_params p = {l->m, l->be, type, chunks[i % 4], 0};
        struct eval_check c = {rows, i, j->n_prompt, model_info(l->m)->n_vocab, 0};
        struct t9_err err = {0};
        memcpy(tokens, j->prompt, sizeof(int32_t) * (size_t)j->n_prompt);
        memcpy(tokens + j->n_prompt, j->tokens, sizeof(int32_t) * (size_t)j->n_tokens);
        if (eval_logits(&p, tokens, n, eval_row, &c, &err) != T9_STATUS_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(c.compared, j->n_tokens);
    }
}

static void same_bits(const char *name, const char *backend, kv_type type)
{
    static const int32_t steps[] = {1, 32, 256, 7};
    static struct job solo[N_REQUESTS], jobs[N_REQUESTS];
    static struct row_hashes solo_rows, rows;
    struct loaded l;
    if (!load(&l, name, backend, 1)) {
        print_message("%s: not there\n", name);
        skip();
    }
    make_jobs(solo, model_info(l.m)->n_vocab);
    memcpy(jobs, solo, sizeof jobs);
    run_jobs(&l, solo, 256, false, type, &solo_rows);
    eval_equals_engine(&l, solo, type, &solo_rows);
    bool is_cpu = strcmp(backend, "cpu") == 0;
    for (int i = is_cpu ? 0 : 3; i < 4; i++) { /* the others are slow */
        run_jobs(&l, jobs, steps[i], true, type, &rows);
        assert_same(solo, &solo_rows, jobs, &rows);
    }
    unload(&l);
    for (int threads = 2; is_cpu && threads <= 4; threads++) {
        assert_true(load(&l, name, backend, threads));
        run_jobs(&l, jobs, 32, true, type, &rows);
        assert_same(solo, &solo_rows, jobs, &rows);
        unload(&l);
    }
}

static void ref_llama(void **state)
{
    (void)state;
    same_bits("llama", "ref", KV_TYPE_F32);
}

static void canon_llama(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    /* Scalar and on one thread: minutes there, and nothing to find. */
    skip();
#endif
    same_bits("llama", "canon", KV_TYPE_F16);
}

static void cpu_llama(void **state)
{
    (void)state;
    same_bits("llama", "cpu", KV_TYPE_F16);
}

static void cpu_qwen2(void **state)
{
    (void)state;
    same_bits("qwen2", "cpu", KV_TYPE_F16);
}

static void cpu_qwen3(void **state)
{
    (void)state;
    same_bits("qwen3", "cpu", KV_TYPE_F16);
}

static void cpu_mistral_f32(void **state)
{
    (void)state;
    same_bits("mistral", "cpu", KV_TYPE_F32);
}

static bool stop_at_two(void *ctx, int32_t position, const float *logits)
{
    (void)logits;
    *(int32_t *)ctx = position;
    return position < 2;
}

static void eval_edges(void **state)
{
    (void)state;
    struct loaded l;
    if (!load(&l, "llama", "ref", 1))
        skip();
    struct eval_params p = {l.m, l.be, KV_TYPE_F16, 2, 0};
    struct t9_err err = {0};
    int32_t last = -1;
    const int32_t tokens[5] = {1, 2, 3, 4, 5};
    assert_int_equal(eval_logits(&p, tokens, 5, stop_at_two, &last, &err), T9_STATUS_OK);
    assert_int_equal(last, 2);
    assert_int_equal(eval_logits(&p, tokens, 0, stop_at_two, &last, &err), T9_STATUS_INVALID);
    const int32_t bad[2] = {1, 1 << 30};
    assert_int_equal(eval_logits(&p, bad, 2, stop_at_two, &last, &err), T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "token 1 is 1073741824"));
    for (uint64_t nth = 1;; nth++) {
        mem_test_fail_nth(nth);
        t9_status st = eval_logits(&p, tokens, 5, stop_at_two, &last, &err);
        mem_test_fail_nth(0);
        if (st == T9_STATUS_OK)
            break;
        assert_int_equal(st, T9_STATUS_NOMEM);
        assert_true(nth < 50);
    }
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_llama),  cmocka_unit_test(canon_llama),
        cmocka_unit_test(cpu_llama),  cmocka_unit_test(cpu_qwen2),
        cmocka_unit_test(cpu_qwen3),  cmocka_unit_test(cpu_mistral_f32),
        cmocka_unit_test(eval_edges),
    };
    const struct log_config quiet = {.level = LOG_LEVEL_WARN};
    log_configure(&quiet);
    return cmocka_run_group_tests_name("engine model", tests, NULL, NULL);
}
