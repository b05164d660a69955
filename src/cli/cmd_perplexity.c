/*
 * cli/cmd_perplexity.c - `perplexity`: how well a model predicts a text, by the kernels that serve.
 *
 * The text's tokens are cut into windows of --context tokens (one of them BOS where the model
 * begins its prompts with one); each window begins --stride tokens after the one before, and a last
 * one that the text does not fill is left out. Of each window the last --stride tokens are scored,
 * so that no token is scored twice and each has at least context - stride tokens before it; those
 * that the first window does not score are never scored. Perplexity is exp of the mean of
 * -log p(token). With --save-logits the rows are kept, with --kl they are compared with kept ones.
 */
#include "cli/runtime.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/num.h"
#include "cli/figures.h"
#include "cli/logprobs_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES_MAX ((size_t)1 << 30)
#define TOKENS_MAX     ((size_t)1 << 28)

struct plan {
    int32_t context, stride, n_windows;
    int32_t bos; /* -1: windows have none */
    const int32_t *ids;
    int32_t n_ids;
};

struct scorer {
    struct plan plan;
    const int32_t *window; /* [context] */
    int32_t n_vocab;
    double *nll, *kl; /* [scored tokens]; kl NULL without --kl */
    double base_nll;  /* sum */
    int64_t n, n_same;
    float *row, *base_row; /* log probabilities */
    struct logprobs_file *save, *base;
    t9_status status; /* of what the rows did */
    struct t9_err *err;
    uint64_t begin_ns, end_ns;
    int32_t n_done; /* windows */
};

/* log p of a row of logits, and the likeliest token; false when they are not finite. */
static bool log_softmax(const float *logits, int32_t n, float *out, int32_t *top)
{
    int32_t best = 0;
    double sum = 0;
    if (!num_all_finite(logits, (size_t)n))
        return false;
    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    float max = logits[best];
    for (int32_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - max);
    float log_sum = (float)log(sum);
    for (int32_t i = 0; i < n; i++)
        out[i] = logits[i] - max - log_sum;
    *top = best;
    return true;
}

/* The row beside the kept one: KL(kept || this) and whether both have the same likeliest token. */
static t9_status row_compare(struct scorer *s, int32_t token, int32_t top)
{
    T9_TRY(logprobs_read(s->base, s->base_row, s->err));
    int32_t base_top = 0;
    double kl = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        float b = s->base_row[i];
        base_top = b > s->base_row[base_top] ? i : base_top;
        if (b > -80) /* beyond that it weighs nothing */
            kl += (double)(expf(b) * (b - s->row[i]));
    }
    s->kl[s->n] = kl;
    s->base_nll -= (double)s->base_row[token];
    s->n_same += base_top == top;
    return T9_STATUS_OK;
}

static bool row_score(void *ctx, int32_t position, const float *logits)
{
    struct scorer *s = ctx;
    int32_t token = s->window[position + 1], top = 0;
    if (cli_interrupts() > 0)
        return false;
    if (!log_softmax(logits, s->n_vocab, s->row, &top))
        s->status = t9_fail(s->err, T9_STATUS_INTERNAL,
                            "window %d: the logits of its token %d are not finite numbers",
                            s->n_done + 1, position + 1);
    if (s->status == T9_STATUS_OK && s->save)
        s->status = logprobs_write(s->save, s->row, s->err);
    if (s->status == T9_STATUS_OK && s->base)
        s->status = row_compare(s, token, top);
    if (s->status != T9_STATUS_OK)
        return false;
    s->nll[s->n++] = -(double)s->row[token];
    return true;
}

static void progress_show(const struct scorer *s)
{
    double standard_error;
    if (isatty(STDERR_FILENO) != 1)
        return;
    double mean = s->n > 0 ? figures_mean(s->nll, (size_t)s->n, &standard_error) : 0;
    double spent_s = (double)(clock_now_ns() - s->begin_ns) / 1e9;
    double left_s = s->n_done > 0 ? spent_s / s->n_done * (s->plan.n_windows - s->n_done) : 0;
    fprintf(stderr, "\r\033[Kwindow %d of %d  perplexity %.4f  %.0f s left", s->n_done + 1,
            s->plan.n_windows, exp(mean), left_s);
    fflush(stderr);
}

static void progress_clear(void)
{
    if (isatty(STDERR_FILENO) == 1)
        fputs("\r\033[K", stderr);
}

static t9_status windows_run(struct scorer *s, const struct runtime *rt,
                             const struct cli_options *o, struct t9_err *err)
{
    const struct plan *p = &s->plan;
    int32_t n_bos = p->bos >= 0;
    int32_t *window = mem_calloc((size_t)p->context, sizeof *window);
    if (!window)
        return t9_fail(err, T9_STATUS_NOMEM, "out of memory");
    t9_status st = T9_STATUS_OK;
    s->window = window;
    s->begin_ns = clock_now_ns();
    struct eval_params ep = {.model = rt->model,
                             .be = rt->be,
                             .kv_type = session_kv_type(o),
                             .first_row = p->context - p->stride - 1};
    for (; s->n_done < p->n_windows && st == T9_STATUS_OK; s->n_done++) {
        int64_t n_before = s->n;
        progress_show(s);
        window[0] = p->bos;
        memcpy(window + n_bos, p->ids + (size_t)s->n_done * (size_t)p->stride,
               (size_t)(p->context - n_bos) * sizeof *window);
        /* The last token is only predicted, so it is not computed. */
        st = eval_logits(&ep, window, p->context - 1, row_score, s, err);
        st = st == T9_STATUS_OK ? s->status : st;
        if (st == T9_STATUS_OK && cli_interrupts() > 0) {
            s->n = n_before; /* half a window is none */
            st = t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
            break;
        }
    }
    s->end_ns = clock_now_ns();
    progress_clear();
    mem_free(window);
    s->window = NULL;
    return st;
}

/* ---- what is scored ---- */

static t9_status text_read(const struct runtime *rt, const struct cli_options *o,
                           struct tok_ids *ids, struct t9_err *err)
{
    struct buf text;
    buf_init(&text, TEXT_BYTES_MAX);
    t9_status s = file_read_all(o->file, &text, err);
    if (s == T9_STATUS_OK && text.n == 0)
        s = t9_fail(err, T9_STATUS_INVALID, "%s is empty", o->file);
    if (s == T9_STATUS_OK) {
        struct tok_span span = {buf_str(&text), false, false};
        s = tokenizer_encode(rt->tokenizer, &span, 1, false, ids, err);
    }
    buf_deinit(&text);
    return s;
}

static t9_status plan_make(struct plan *p, const struct runtime *rt, const struct cli_options *o,
                           const struct tok_ids *ids, struct t9_err *err)
{
    int32_t limit = model_info(rt->model)->context_length;
    bool bos = tokenizer_add_bos(rt->tokenizer) && tokenizer_bos(rt->tokenizer) >= 0;
    *p = (struct plan){.context = o->context,
                       .stride = o->stride ? o->stride : o->context / 2,
                       .bos = bos ? tokenizer_bos(rt->tokenizer) : -1,
                       .ids = ids->p,
                       .n_ids = (int32_t)ids->n};
    if (p->context > limit)
        return t9_fail(err, T9_STATUS_INVALID,
                       "--context %d: the model was made for %d tokens; give at most that",
                       p->context, limit);
    if (p->stride >= p->context)
        return t9_fail(err, T9_STATUS_INVALID, "--stride %d must be below --context %d", p->stride,
                       p->context);
    if (p->n_ids < p->context - bos)
        return t9_fail(err, T9_STATUS_INVALID,
                       "%s has %d tokens and a window needs %d; give a longer text or a smaller "
                       "--context",
                       o->file, p->n_ids, p->context - bos);
    p->n_windows = (p->n_ids - (p->context - bos)) / p->stride + 1;
    if (o->windows > 0 && o->windows < p->n_windows)
        p->n_windows = o->windows;
    return T9_STATUS_OK;
}

static t9_status base_open(struct scorer *s, const char *path, const struct logprobs_head *ours,
                           struct t9_err *err)
{
    struct logprobs_head kept;
    T9_TRY(logprobs_open(&s->base, path, &kept, err));
    if (kept.n_vocab != ours->n_vocab || kept.context != ours->context ||
        kept.stride != ours->stride || kept.text_hash != ours->text_hash)
        return t9_fail(err, T9_STATUS_INVALID,
                       "%s was made of other tokens: %" PRIu32 " in the vocabulary (here %" PRIu32
                       "), --context %" PRIu32 " (%" PRIu32 "), --stride %" PRIu32 " (%" PRIu32
                       "), the text %s",
                       path, kept.n_vocab, ours->n_vocab, kept.context, ours->context, kept.stride,
                       ours->stride, kept.text_hash == ours->text_hash ? "the same" : "another");
    if (kept.n_windows < (uint32_t)s->plan.n_windows)
        s->plan.n_windows = (int32_t)kept.n_windows;
    return T9_STATUS_OK;
}

/* Takes `out`, where the rows are kept; NULL: they are not. */
static t9_status scorer_init(struct scorer *s, const struct cli_options *o, struct file_out **out,
                             struct t9_err *err)
{
    const struct plan *p = &s->plan;
    uint64_t text_hash =
        hash_xxh3_64(p->ids, (size_t)p->n_ids * sizeof *p->ids, (uint64_t)(p->bos + 1));
    struct logprobs_head head = {(uint32_t)s->n_vocab, (uint32_t)p->context, (uint32_t)p->stride,
                                 (uint32_t)p->n_windows, text_hash};
    if (o->kl)
        T9_TRY(base_open(s, o->kl, &head, err));
    head.n_windows = (uint32_t)p->n_windows;
    if (*out) {
        struct file_out *own_file = *out;
        *out = NULL;
        T9_TRY(logprobs_create(&s->save, own_file, &head, err));
    }
    size_t n = (size_t)p->n_windows * (size_t)p->stride, n_row = (size_t)s->n_vocab;
    s->nll = mem_calloc(n, sizeof *s->nll);
    s->kl = o->kl ? mem_calloc(n, sizeof *s->kl) : NULL;
    s->row = mem_calloc(n_row, sizeof *s->row);
    s->base_row = mem_calloc(n_row, sizeof *s->base_row);
    if (!s->nll || !s->row || !s->base_row || (o->kl && !s->kl))
        return t9_fail(err, T9_STATUS_NOMEM, "out of memory for %zu scored tokens", n);
    return T9_STATUS_OK;
}

static void scorer_deinit(struct scorer *s)
{
    logprobs_close(s->save);
    logprobs_close(s->base);
    mem_free(s->nll);
    mem_free(s->kl);
    mem_free(s->row);
    mem_free(s->base_row);
}

/* ---- what is printed ---- */

struct result {
    double mean, mean_error, perplexity, perplexity_error;
    double base_perplexity, same_top, kl_mean, kl_error, kl_median, kl_p99, kl_max;
};

/* Sorts s->kl. */
static struct result result_of(struct scorer *s)
{
    struct result r = {0};
    size_t n = (size_t)s->n;
    r.mean = figures_mean(s->nll, n, &r.mean_error);
    r.perplexity = exp(r.mean);
    r.perplexity_error = r.perplexity * r.mean_error; /* first order */
    if (!s->kl)
        return r;
    r.base_perplexity = exp(s->base_nll / (double)n);
    r.same_top = (double)s->n_same / (double)n;
    r.kl_mean = figures_mean(s->kl, n, &r.kl_error);
    figures_sort(s->kl, n);
    r.kl_median = figures_median(s->kl, n);
    r.kl_p99 = figures_percentile(s->kl, n, 99);
    r.kl_max = s->kl[n - 1];
    return r;
}

static void result_print(const struct scorer *s, const struct runtime *rt, const struct result *r)
{
    const struct plan *p = &s->plan;
    cli_put_message(stdout, gguf_file_name(rt->gguf));
    printf(": perplexity %.4f +- %.4f\n", r->perplexity, r->perplexity_error);
    printf("%lld tokens scored: the last %d of each of %d windows of %d%s; %.1f s\n",
           (long long)s->n, p->stride, s->n_done, p->context,
           p->bos >= 0 ? " that begin with BOS" : "", (double)(s->end_ns - s->begin_ns) / 1e9);
    if (s->kl) {
        printf("kept run: perplexity %.4f\n", r->base_perplexity);
        printf("KL(kept || this): mean %.6f +- %.6f, median %.6f, p99 %.6f, largest %.6f\n",
               r->kl_mean, r->kl_error, r->kl_median, r->kl_p99, r->kl_max);
        printf("same likeliest token: %.3f%%\n", 100 * r->same_top);
    }
}

static void result_write(const struct scorer *s, const struct runtime *rt,
                         const struct cli_options *o, const struct result *r)
{
    struct buf b;
    char now[32], sha[65];
    const struct plan *p = &s->plan;
    buf_init(&b, 1 << 20);
    clock_iso8601(now);
    buf_puts(&b, "{");
    identity_write(&b, rt);
    buf_printf(&b, ",\"date\":\"%s\",\"kv_type\":\"%s\",\"text\":{\"sha256\":", now,
               kv_type_name(session_kv_type(o)));
    if (hash_sha256_file(o->file, sha, NULL) == T9_STATUS_OK)
        json_write_str(&b, str_from(sha));
    else
        buf_puts(&b, "null");
    buf_printf(&b,
               ",\"tokens\":%d},\"context\":%d,\"stride\":%d,\"bos\":%s,\"windows\":%d,"
               "\"windows_planned\":%d,\"complete\":%s,\"tokens_scored\":%lld",
               p->n_ids, p->context, p->stride, p->bos >= 0 ? "true" : "false", s->n_done,
               p->n_windows, s->n_done == p->n_windows ? "true" : "false", (long long)s->n);
    figures_write(&b, "perplexity", r->perplexity);
    figures_write(&b, "perplexity_standard_error", r->perplexity_error);
    figures_write(&b, "mean_nll", r->mean);
    figures_write(&b, "mean_nll_standard_error", r->mean_error);
    figures_write(&b, "seconds", (double)(s->end_ns - s->begin_ns) / 1e9);
    if (s->kl) {
        buf_puts(&b, ",\"kl\":{\"direction\":\"kept || this\"");
        figures_write(&b, "kept_perplexity", r->base_perplexity);
        figures_write(&b, "mean", r->kl_mean);
        figures_write(&b, "standard_error", r->kl_error);
        figures_write(&b, "median", r->kl_median);
        figures_write(&b, "p99", r->kl_p99);
        figures_write(&b, "max", r->kl_max);
        figures_write(&b, "same_top", r->same_top);
        buf_puts(&b, "}");
    }
    buf_puts(&b, "}\n");
    cli_write(b.p, b.n);
    buf_deinit(&b);
}

int cmd_perplexity(const struct cli_options *o)
{
    struct runtime rt = {0};
    struct t9_err err = {0};
    struct scorer s = {.err = &err};
    struct file_out *out = NULL;
    struct tok_ids ids;
    tok_ids_init(&ids, TOKENS_MAX);
    t9_status st = runtime_open_known(&rt, o, &err);
    if (st == T9_STATUS_OK && o->save_logits)
        st = runtime_output(&out, o->save_logits, FILE_OUT_WHOLE, rt.gguf, o, &err);
    if (st == T9_STATUS_OK) /* before the weights, which take longer to read */
        st = text_read(&rt, o, &ids, &err);
    if (st == T9_STATUS_OK)
        st = runtime_open_model(&rt, o, o->chunk, &err);
    if (st == T9_STATUS_OK)
        st = plan_make(&s.plan, &rt, o, &ids, &err);
    if (st == T9_STATUS_OK) {
        s.n_vocab = model_info(rt.model)->n_vocab;
        st = scorer_init(&s, o, &out, &err);
    }
    if (st == T9_STATUS_OK)
        st = windows_run(&s, &rt, o, &err);
    if (st == T9_STATUS_OK && s.save)
        st = logprobs_finish(s.save, &err);
    if ((st == T9_STATUS_OK || st == T9_STATUS_CANCELLED) && s.n > 0) {
        struct result r = result_of(&s);
        if (o->json)
            result_write(&s, &rt, o, &r);
        else
            result_print(&s, &rt, &r);
    }
    scorer_deinit(&s);
    file_out_close(out);
    tok_ids_deinit(&ids);
    runtime_close(&rt);
    int rc = st == T9_STATUS_OK ? EXIT_DONE : cli_fail(&err), told = cli_finish_stdout();
    return rc == EXIT_DONE ? told : rc;
}
