/*
 * bench_step MODEL.gguf [SEQUENCES [STEPS [THREADS]]]: where the time of a decode step goes
 * (defaults: 64 sequences, 200 steps, 1 thread).
 *
 * All sequences decode together; a step counts from the end of the one before to its own end, as
 * the engine's step hook sees it, and so contains everything the engine's thread does: queue, plan,
 * pages, batch, recording the model's ops, running them, sampling, tree, notifications, statistics.
 * Clocks around be_run and sampler_pick say what the model and the sampling take; the rest is what
 * this is about. Times are CPU time of the engine's thread, so that a busy machine does not change
 * them much. With T threads the model's part is shorter and the rest is what it is.
 */
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/testing.h"
#include "gguf/gguf.h"
#include "sample/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SEQUENCES_MAX = 256, STEPS_MAX = 4000, PROMPT = 64, VOCAB_MAX = 1 << 18 };

struct step_time {
    uint64_t all_ns, model_ns, sampling_ns;
};

/* Engine thread, but for n_wanted. */
struct bench {
    int32_t n_seqs, n_wanted;
    _Atomic int32_t n;                      /* steps kept */
    uint64_t model_ns, sampling_ns, end_ns; /* of the step under way; end of the one before */
    struct engine_stats before;
    struct step_time steps[STEPS_MAX];
};

static struct bench bench;

t9_status __real_be_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err);
t9_status __wrap_be_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err);
int32_t __real_sampler_pick(struct sampler *s, const float *logits, const struct sample_params *p,
                            uint32_t choice, uint64_t position);
int32_t __wrap_sampler_pick(struct sampler *s, const float *logits, const struct sample_params *p,
                            uint32_t choice, uint64_t position);

static uint64_t cpu_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

t9_status __wrap_be_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err)
{
    uint64_t from_ns = cpu_ns();
    t9_status st = __real_be_run(be, ops, n, err);
    bench.model_ns += cpu_ns() - from_ns;
    return st;
}

int32_t __wrap_sampler_pick(struct sampler *s, const float *logits, const struct sample_params *p,
                            uint32_t choice, uint64_t position)
{
    uint64_t from_ns = cpu_ns();
    int32_t token = __real_sampler_pick(s, logits, p, choice, position);
    bench.sampling_ns += cpu_ns() - from_ns;
    return token;
}

/* Keeps the step if all sequences decoded in it and nothing else. */
static void on_step(void *ctx, struct engine *e)
{
    struct bench *b = ctx;
    struct engine_stats now;
    uint64_t now_ns = cpu_ns();
    engine_stats_read(e, &now);
    if (now.rows - b->before.rows == (uint64_t)b->n_seqs &&
        now.prompt_tokens == b->before.prompt_tokens && b->n < b->n_wanted) {
        b->steps[b->n] = (struct step_time){now_ns - b->end_ns, b->model_ns, b->sampling_ns};
        b->n++;
    }
    b->before = now;
    b->model_ns = b->sampling_ns = 0;
    b->end_ns = cpu_ns();
}

static void on_token(void *ctx, struct request *r)
{
    (void)ctx;
    atomic_store(&r->notified, false);
}

static t9_status run(struct engine *e, const struct model_info *info, struct t9_err *err)
{
    static int32_t prompts[SEQUENCES_MAX][PROMPT];
    static struct request *r[SEQUENCES_MAX];
    uint32_t x = 1;
    t9_status st = T9_STATUS_OK;
    int32_t n = 0;
    for (; n < bench.n_seqs && st == T9_STATUS_OK; n++) {
        for (int32_t k = 0; k < PROMPT; k++) {
            x = x * 1664525u + 1013904223u;
            prompts[n][k] = (int32_t)((x >> 8) % (uint32_t)info->n_vocab);
        }
        /* Those who start first go on until the last one has made its steps. */
        st = request_new(&r[n], bench.n_wanted + 8 * bench.n_seqs, err);
        if (st != T9_STATUS_OK)
            break;
        r[n]->prompt = prompts[n];
        r[n]->n_prompt = PROMPT;
        r[n]->ignore_eos = true;
        r[n]->notify = on_token;
        r[n]->sampling.temperature = n % 2 ? 0.8f : 0.0f;
        r[n]->sampling.seed = (uint64_t)n;
        st = engine_submit(e, r[n], err);
    }
    while (st == T9_STATUS_OK && atomic_load(&bench.n) < bench.n_wanted &&
           atomic_load(&r[0]->finish) == FINISH_REASON_NONE)
        clock_sleep_ms(5);
    for (int32_t i = 0; i < n; i++) {
        engine_cancel(e, r[i]);
        while (st == T9_STATUS_OK && atomic_load(&r[i]->finish) == FINISH_REASON_NONE)
            clock_sleep_ms(1);
    }
    return st; /* requests live until the process ends: the engine may still hold them */
}

static int by_rest(const void *a, const void *b)
{
    const struct step_time *s = a;
    const struct step_time *t = b;
    double x = (double)(s->all_ns - s->model_ns - s->sampling_ns) / (double)s->all_ns;
    double y = (double)(t->all_ns - t->model_ns - t->sampling_ns) / (double)t->all_ns;
    return (x > y) - (x < y);
}

static void report(void)
{
    double all = 0.0;
    double model = 0.0;
    double sampling = 0.0;
    for (int32_t i = 0; i < bench.n; i++) {
        all += (double)bench.steps[i].all_ns;
        model += (double)bench.steps[i].model_ns;
        sampling += (double)bench.steps[i].sampling_ns;
    }
    qsort(bench.steps, (size_t)bench.n, sizeof bench.steps[0], by_rest);
    const struct step_time *mid = &bench.steps[bench.n / 2];
    double rest = all - model - sampling;
    double n = (double)bench.n * 1000.0;
    printf("%d steps of %d sequences: %.0f us a step; model %.0f us, sampling %.0f us, "
           "everything else %.1f us = %.2f%% (median step: %.2f%%)\n",
           bench.n, bench.n_seqs, all / n, model / n, sampling / n, rest / n, 100.0 * rest / all,
           100.0 * (double)(mid->all_ns - mid->model_ns - mid->sampling_ns) / (double)mid->all_ns);
}

static t9_status measure(const char *path, int32_t n_threads, struct t9_err *err)
{
    static const uint8_t flags[VOCAB_MAX];
    struct gguf *g = NULL;
    struct be *be = NULL;
    struct model *m = NULL;
    struct engine *e = NULL;
    struct engine_params p;
    struct kv_geom geom;
    struct be_params bp = {.n_threads = n_threads, .max_rows = 256};
    T9_TRY(gguf_open(&g, path, err));
    T9_TRY(be_new(&be, "cpu", &bp, err));
    T9_TRY(model_load(&m, g, be, NULL, err));
    T9_TRY(model_kv_geom(m, KV_TYPE_F16, &geom, err));
    const struct model_info *info = model_info(m);
    struct vocab v = {
        .n_tokens = (uint32_t)info->n_vocab, .flags = flags, .bos = -1, .eos = -1, .pad = -1};
    if (info->n_vocab > VOCAB_MAX)
        return t9_fail(err, T9_STATUS_UNSUPPORTED, "a vocabulary of %d tokens", info->n_vocab);
    engine_params_init(&p);
    p.model = m;
    p.be = be;
    p.vocab = &v;
    p.max_batch = bench.n_seqs;
    p.max_length = PROMPT + bench.n_wanted + 8 * bench.n_seqs;
    p.kv_bytes =
        kv_geom_bytes(&geom) * (uint64_t)(bench.n_seqs * (p.max_length / KV_PAGE_TOKENS + 2));
    T9_TRY(engine_new(&e, &p, err));
    engine_set_step_hook(e, on_step, &bench);
    t9_status st = run(e, info, err);
    engine_free(e);
    if (st == T9_STATUS_OK && bench.n > 0)
        report();
    model_free(m);
    be_free(be);
    gguf_close(g);
    return st;
}

static int32_t number(const char *text, long most)
{
    long n = strtol(text, NULL, 10);
    return n < 1 || n > most ? 0 : (int32_t)n;
}

int main(int argc, char **argv)
{
    struct t9_err err = {0};
    bench.n_seqs = argc > 2 ? number(argv[2], SEQUENCES_MAX) : 64;
    bench.n_wanted = argc > 3 ? number(argv[3], STEPS_MAX) : 200;
    int32_t n_threads = argc > 4 ? number(argv[4], 1024) : 1;
    if (argc < 2 || argc > 5 || bench.n_seqs == 0 || bench.n_wanted == 0 || n_threads == 0) {
        fprintf(stderr, "usage: bench_step MODEL.gguf [SEQUENCES [STEPS [THREADS]]]\n");
        return 2;
    }
    if (measure(argv[1], n_threads, &err) != T9_STATUS_OK) {
        fprintf(stderr, "bench_step: %s\n", err.msg);
        return 1;
    }
    return 0;
}
