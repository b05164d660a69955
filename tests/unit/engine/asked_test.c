/*
 * asked_test: what a request can ask for beside plain sampling - penalties, bias, stop tokens,
 * least tokens, log probabilities of answer and prompt - alone and among others, under a pool that
 * is too small, over the scripted model whose logits are known. The log probabilities are held to a
 * plain log-softmax by libm.
 */
#include "base/thread.h"
#include "drive.h"
#include "engine/testing.h"

enum { N_CLIENTS = 6, N_ASKED = 20, PROMPT_MAX = 200 };

struct client {
    struct engine *e;
    struct thread thread;
    uint64_t seed;
    bool is_long; /* its answers are, so that pages run out */
    int n_wrong, n_stopped, n_preempted;
};

/* What must come out: a plain walk with the logits that fake_logits tells. */
struct expected {
    int32_t tokens[600], n, stop_token;
    double logprob[600];
    int32_t top[600];
    finish_reason reason;
};

static double log_softmax(const float *logits, int32_t id)
{
    double max = -HUGE_VAL, sum = 0;
    for (int32_t i = 0; i < FAKE_TOKENS; i++)
        max = fmax(max, (double)logits[i]);
    for (int32_t i = 0; i < FAKE_TOKENS; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

static int32_t likeliest(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < FAKE_TOKENS; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static bool is_stop(const struct request *r, int32_t t)
{
    for (int32_t i = 0; i < r->n_stop_tokens; i++) {
        if (r->stop_tokens[i] == t)
            return true;
    }
    return !r->ignore_eos && t == FAKE_EOG;
}

static void adjust(const struct request *r, const int32_t *known, int32_t n, float *logits)
{
    const struct sample_params *p = &r->sampling;
    for (int32_t i = 0; i < p->n_bias; i++)
        logits[p->bias[i].id] += p->bias[i].bias;
    for (int32_t t = 0; t < FAKE_TOKENS; t++) {
        int32_t all = 0, made = 0;
        for (int32_t i = 0; i < n; i++) {
            all += known[i] == t;
            made += known[i] == t && i >= r->n_prompt;
        }
        if (all > 0 && (p->repetition_penalty < 1 || p->repetition_penalty > 1))
            logits[t] = logits[t] > 0 ? logits[t] / p->repetition_penalty
                                      : logits[t] * p->repetition_penalty;
        if (made > 0)
            logits[t] -= p->presence_penalty + p->frequency_penalty * (float)made;
    }
    for (int32_t t = 0; t < FAKE_TOKENS && n - r->n_prompt < r->min_tokens; t++) {
        if (is_stop(r, t))
            logits[t] = -INFINITY;
    }
    logits[FAKE_SUPPRESSED] = -INFINITY;
}

static void expect(struct expected *x, const struct request *r)
{
    static _Thread_local int32_t known[PROMPT_MAX + 600];
    struct sampler *s = NULL;
    struct t9_err err;
    float logits[FAKE_VOCAB];
    *x = (struct expected){.reason = FINISH_REASON_LENGTH, .stop_token = -1};
    if (sampler_new(&s, FAKE_TOKENS, &err) != T9_STATUS_OK)
        return;
    memcpy(known, r->prompt, sizeof *known * (size_t)r->n_prompt);
    while (x->n < r->max_tokens) {
        int32_t n = r->n_prompt + x->n;
        fake_logits(known, n, logits);
        float raw[FAKE_VOCAB];
        memcpy(raw, logits, sizeof raw);
        adjust(r, known, n, logits);
        int32_t t = sampler_pick(s, logits, &r->sampling, r->choice, (uint64_t)n);
        if (t >= 0 && is_stop(r, t)) {
            x->reason = FINISH_REASON_STOP;
            x->stop_token = t;
            break;
        }
        x->logprob[x->n] = log_softmax(raw, t);
        x->top[x->n] = likeliest(raw);
        known[n] = x->tokens[x->n++] = t;
    }
    sampler_free(s);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fmax(1, fabs(b));
}

static bool prompt_is_right(const struct request *r)
{
    float logits[FAKE_VOCAB];
    size_t row = (size_t)(1 + r->n_top);
    for (int32_t i = 1; i < r->n_prompt; i++) {
        const struct t9_logprob *l = r->prompt_logprobs + (size_t)i * row;
        fake_logits(r->prompt, i, logits);
        if (l[0].token != r->prompt[i] ||
            !near((double)l[0].logprob, log_softmax(logits, r->prompt[i])))
            return false;
        if (r->n_top > 0 && l[1].token != likeliest(logits))
            return false;
    }
    return true;
}

static bool answer_is_right(const struct request *r, const struct expected *x)
{
    if (atomic_load(&r->n_tokens) != x->n || r->stop_token != x->stop_token ||
        memcmp(r->tokens, x->tokens, sizeof(int32_t) * (size_t)x->n) != 0)
        return false;
    for (int32_t i = 0; r->logprobs && i < x->n; i++) {
        const struct t9_logprob *l = r->logprobs + (size_t)i * (size_t)(1 + r->n_top);
        if (l[0].token != x->tokens[i] || !near((double)l[0].logprob, (double)x->logprob[i]))
            return false;
        for (int32_t k = 1; k <= r->n_top; k++) {
            if ((k == 1 && l[k].token != x->top[i]) || (k > 1 && l[k].logprob > l[k - 1].logprob))
                return false;
        }
    }
    return true;
}

struct asked {
    int32_t prompt[PROMPT_MAX], stops[3];
    struct sample_bias bias[4];
};

static struct request *ask(struct asked *a, bool is_long, uint64_t *rng)
{
    struct request *r = NULL;
    struct t9_err err;
    uint64_t family = test_random(rng) % 2;
    fill_prompt(a->prompt, PROMPT_MAX, &family);
    uint64_t longest = is_long || test_random(rng) % 2 ? 200 : 40;
    int32_t n_max = is_long ? 150 : 1 + (int32_t)(test_random(rng) % longest);
    if (request_new(&r, n_max, &err) != T9_STATUS_OK)
        return NULL;
    r->prompt = a->prompt;
    r->n_prompt = 1 + (int32_t)(test_random(rng) % PROMPT_MAX);
    r->ignore_eos = is_long || test_random(rng) % 2;
    r->min_tokens = (int32_t)(test_random(rng) % 90);
    for (int i = 0; i < 3; i++)
        a->stops[i] = (int32_t)(test_random(rng) % FAKE_TOKENS);
    r->stop_tokens = a->stops;
    r->n_stop_tokens = !is_long && test_random(rng) % 2 ? (int32_t)(test_random(rng) % 4) : 0;
    struct sample_params *p = &r->sampling;
    p->temperature = test_random(rng) % 2 ? 0.0f : 1.2f;
    p->seed = test_random(rng);
    r->choice = (uint32_t)(test_random(rng) % 3);
    static const float penalties[] = {0, -0.5f, 0.7f, 2};
    static const float repetitions[] = {1, 0.8f, 1.3f, 5};
    p->presence_penalty = penalties[test_random(rng) % 4];
    p->frequency_penalty = penalties[test_random(rng) % 4];
    p->repetition_penalty = repetitions[test_random(rng) % 4];
    for (int i = 0; i < 4; i++)
        a->bias[i] = (struct sample_bias){3 + i * 7, (float)(int)(test_random(rng) % 9) - 4};
    p->bias = a->bias;
    p->n_bias = (int32_t)(test_random(rng) % 5);
    if (test_random(rng) % 2 && request_want_logprobs(r, (int32_t)(test_random(rng) % 6),
                                                      test_random(rng) % 2, &err) != T9_STATUS_OK)
        return NULL;
    return r;
}

static void client_main(void *arg)
{
    struct client *c = arg;
    static _Thread_local struct asked a;
    static _Thread_local struct expected x;
    uint64_t rng = c->seed;
    for (int i = 0; i < N_ASKED; i++) {
        struct t9_err err;
        struct request *r = ask(&a, c->is_long, &rng);
        if (!r || engine_submit(c->e, r, &err) != T9_STATUS_OK) {
            c->n_wrong++;
            continue;
        }
        struct event_cursor cur = {0};
        struct event ev = {.kind = EVENT_NONE};
        while (ev.kind != EVENT_DONE && ev.kind != EVENT_ERROR) {
            ev = request_next(r, &cur);
            if (ev.kind == EVENT_NONE)
                (void)engine_wait(c->e, r, &cur, 20000);
        }
        expect(&x, r);
        c->n_wrong += ev.reason != x.reason || !answer_is_right(r, &x) ||
                      (r->prompt_logprobs && !prompt_is_right(r));
        c->n_stopped += ev.reason == FINISH_REASON_STOP;
        c->n_preempted += atomic_load(&r->n_preempted);
        request_free(r);
    }
}

static void checked_step(void *ctx, struct engine *e)
{
    struct t9_err err;
    if (engine_check(e, &err) != T9_STATUS_OK)
        ++*(int *)ctx;
}

static void same_among_others(void **state)
{
    (void)state;
    static const int32_t pages[] = {14, 30, 600};
    static const int32_t batches[] = {4, 2, 6};
    static int n_stopped, n_preempted;
    for (int k = 0; k < 3; k++) {
        struct be *be = fake_be_new();
        struct engine_params p = params(be);
        struct client c[N_CLIENTS];
        struct t9_err err;
        int n_broken = 0;
        p.kv_bytes = 4096 * (uint64_t)pages[k];
        p.max_length = 400;
        p.max_batch = batches[k];
        p.step_tokens = 48;
        /* Steps slow enough for the clients to meet, where they are to take pages from each other.
         */
        atomic_store(&be->delay_us, k == 0 ? 300 : 0);
        struct engine *e = start(&p);
        engine_set_step_hook(e, checked_step, &n_broken);
        for (int i = 0; i < N_CLIENTS; i++) {
            c[i] = (struct client){.e = e, .seed = (uint64_t)(1 + i + 10 * k), .is_long = k == 0};
            assert_int_equal(thread_start(&c[i].thread, "client", client_main, &c[i], &err),
                             T9_STATUS_OK);
        }
        for (int i = 0; i < N_CLIENTS; i++) {
            thread_join(&c[i].thread);
            assert_int_equal(c[i].n_wrong, 0);
            n_stopped += c[i].n_stopped;
            n_preempted += c[i].n_preempted;
        }
        engine_free(e);
        assert_int_equal(n_broken, 0);
        assert_int_equal(be->broken, 0);
        assert_int_equal(be->reserved, 0);
        fake_be_free(be);
    }
    assert_true(n_stopped > 10 && n_preempted > 0);
}

/* A prompt that fills the limit, and the pool with it, is scored; one that is longer is not. */
static void prompt_only(void **state)
{
    (void)state;
    static int32_t prompt[4096];
    uint64_t family = 1;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct t9_err err;
    int n_broken = 0;
    p.kv_bytes = 4096 * 6;
    struct engine *e = start(&p);
    engine_set_step_hook(e, checked_step, &n_broken);
    int32_t n = engine_max_length(e);
    fill_prompt(prompt, n + 1, &family);
    for (int32_t less = 0; less < 3; less++) {
        struct request *r = make(prompt, n - less, 1);
        r->prompt_only = true;
        assert_int_equal(request_want_logprobs(r, 2, true, &err), T9_STATUS_OK);
        submit(e, r);
        assert_int_equal(read_to_end(e, r).reason, FINISH_REASON_LENGTH);
        assert_int_equal(atomic_load(&r->n_tokens), 0);
        assert_true(prompt_is_right(r));
        assert_true(atomic_load(&r->clocks.first_token) > 0);
        request_free(r);
    }
    struct request *longer = make(prompt, n + 1, 1);
    longer->prompt_only = true;
    assert_int_equal(engine_submit(e, longer, &err), T9_STATUS_INVALID);
    longer->n_prompt = n;
    longer->prompt_only = false;
    assert_int_equal(engine_submit(e, longer, &err), T9_STATUS_INVALID);
    request_free(longer);
    engine_free(e);
    assert_int_equal(n_broken, 0);
    fake_be_free(be);
}

static void refusals(void **state)
{
    (void)state;
    struct be *be = fake_be_new();
    struct engine_params p = params(be);
    struct engine *e = start(&p);
    struct t9_err err;
    static const int32_t prompt[4] = {3, 4, 5, 6};
    struct request *r = make(prompt, 4, 4);
    assert_int_equal(request_want_logprobs(r, SAMPLE_TOP_MAX + 1, false, &err), T9_STATUS_INVALID);
    assert_int_equal(request_want_logprobs(r, -1, false, &err), T9_STATUS_INVALID);
    r->n_stop_tokens = REQUEST_STOP_TOKENS_MAX + 1;
    assert_int_equal(engine_submit(e, r, &err), T9_STATUS_INVALID);
    r->n_stop_tokens = 0;
    r->min_tokens = -1;
    assert_int_equal(engine_submit(e, r, &err), T9_STATUS_INVALID);
    r->min_tokens = 0;
    r->sampling.presence_penalty = NAN;
    assert_int_equal(engine_submit(e, r, &err), T9_STATUS_INVALID);
    request_free(r);
    engine_free(e);
    fake_be_free(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_among_others),
        cmocka_unit_test(prompt_only),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
