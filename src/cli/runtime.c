/*
 * cli/runtime.c - opens what a command computes with, in order, and closes it in reverse.
 */
#include "cli/runtime.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/memory.h"
#include "base/num.h"
#include "protocol/divergence.h"
#include "tempo9.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

kv_type session_kv_type(const struct cli_options *o)
{
    if (o->kv_type_set)
        return o->kv_type;
    return strcmp(o->backend, "ref") == 0 ? KV_TYPE_F32 : KV_TYPE_F16;
}

t9_status runtime_open_gguf(struct runtime *rt, const struct cli_options *o, struct t9_err *err)
{
    return rt->gguf ? T9_STATUS_OK : gguf_open(&rt->gguf, o->gguf, err);
}

t9_status runtime_open_tokenizer(struct runtime *rt, const struct cli_options *o,
                                 struct t9_err *err)
{
    T9_TRY(runtime_open_gguf(rt, o, err));
    t9_status s = tokenizer_new(&rt->tokenizer, rt->gguf, err);
    return s == T9_STATUS_OK ? s : gguf_name_file(rt->gguf, s, err);
}

t9_status runtime_open_known(struct runtime *rt, const struct cli_options *o, struct t9_err *err)
{
    T9_TRY(runtime_open_gguf(rt, o, err));
    T9_TRY(model_check_arch(rt->gguf, err));
    return runtime_open_tokenizer(rt, o, err);
}

struct progress {
    bool terminal;
    uint64_t last_ns;
    int last_percent;
};

/* One line that is redrawn on a terminal, nothing elsewhere. Ctrl-C stops the load. */
static bool load_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    if (cli_interrupts() > 0)
        return false;
    if (!p->terminal || total == 0)
        return true;
    int percent = (int)((double)done * 100 / (double)total);
    uint64_t now = clock_now_ns();
    if (percent == p->last_percent || (now - p->last_ns < 100000000 && done < total))
        return true;
    p->last_percent = percent;
    p->last_ns = now;
    fprintf(stderr, "\rloading %3d%%  %.0f of %.0f MB%s", percent, (double)done / 1e6,
            (double)total / 1e6, done >= total ? "\r\033[K" : "");
    fflush(stderr);
    return true;
}

t9_status runtime_open_model(struct runtime *rt, const struct cli_options *o, int32_t max_rows,
                             struct t9_err *err)
{
    uint64_t start = clock_now_ns();
    T9_TRY(runtime_open_gguf(rt, o, err));
    struct be_params bp = {.n_threads = o->threads, .isa = o->isa, .max_rows = max_rows};
    T9_TRY(be_new(&rt->be, o->backend, &bp, err));
    struct progress p = {.terminal = isatty(STDERR_FILENO) == 1, .last_percent = -1};
    struct model_load_params lp = {.progress = load_progress, .ctx = &p};
    t9_status s = model_load(&rt->model, rt->gguf, rt->be, &lp, err);
    if (s != T9_STATUS_OK && p.last_percent >= 0)
        fprintf(stderr, "\n");
    rt->load_ns = clock_now_ns() - start;
    return s;
}

t9_status runtime_output(struct file_out **out, const char *path, file_out_kind kind,
                         const struct gguf *g, const struct cli_options *o, struct t9_err *err)
{
    const char *const read[] = {o->tokens, o->file, o->kl};
    for (uint32_t i = 0; i < gguf_part_count(g); i++)
        if (file_same(path, gguf_part_path(g, i)))
            return t9_fail(err, T9_STATUS_INVALID, "%s is the model itself; give another name",
                           path);
    for (size_t i = 0; i < T9_COUNT(read); i++)
        if (read[i] && file_same(path, read[i]))
            return t9_fail(err, T9_STATUS_INVALID, "%s is what is read; give another name", path);
    return file_out_open(out, path, kind, err);
}

/* A file that takes one line a step. */
struct plan_file {
    struct file_out *f;
    bool failed;
};

/* Engine thread: one copy into the file's buffer. */
static void plan_line(void *ctx, const char *line, size_t n)
{
    struct plan_file *p = ctx;
    struct t9_err err;
    if (p->failed || (file_out_write(p->f, line, n, &err) == T9_STATUS_OK &&
                      file_out_write(p->f, "\n", 1, &err) == T9_STATUS_OK))
        return;
    p->failed = true;
    LOG_WARN("serve", "the plan log ends here: %s", err.msg);
}

/* Before the model is loaded. */
static t9_status plan_file_open(struct plan_file **out, const struct cli_options *o,
                                struct t9_err *err)
{
    struct gguf *g = NULL;
    struct plan_file *p = mem_calloc(1, sizeof *p);
    if (!p)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for the plan log");
    t9_status s = gguf_open(&g, o->gguf, err);
    if (s == T9_STATUS_OK) {
        s = runtime_output(&p->f, o->plan_log, FILE_OUT_LOG, g, o, err);
        gguf_close(g);
        if (s != T9_STATUS_OK)
            s = t9_err_prefix(err, "--plan-log");
    }
    if (s == T9_STATUS_OK)
        *out = p;
    else
        mem_free(p);
    return s;
}

static void plan_file_close(struct plan_file *p)
{
    struct t9_err err;
    if (!p)
        return;
    if (file_out_finish(p->f, &err) != T9_STATUS_OK && !p->failed)
        LOG_WARN("serve", "the plan log lacks its end: %s", err.msg);
    file_out_close(p->f);
    mem_free(p);
}

static t9_status check_length(int32_t limit, const struct cli_options *o, struct t9_err *err)
{
    if (o->max_length <= limit || o->allow_long)
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_INVALID,
                   "--max-length %d: the model was made for %d tokens; beyond that its answers are "
                   "of no use (--allow-long lets it, for tests)",
                   o->max_length, limit);
}

static void warn_memory(const struct cli_options *o)
{
    uint64_t available = memory_available_bytes("");
    char allowed[NUM_BYTES_MAX], is_free[NUM_BYTES_MAX];
    if (o->kv_memory_bytes > available)
        LOG_WARN("serve",
                 "--kv-memory allows %s and %s are free: when they are used up, the "
                 "system ends a process, perhaps this one",
                 num_format_bytes(o->kv_memory_bytes, allowed),
                 num_format_bytes(available, is_free));
}

t9_status runtime_open_engine(struct runtime *rt, const struct cli_options *o, struct t9_err *err)
{
    struct engine_params p;
    T9_TRY(check_length(model_info(rt->model)->context_length, o, err));
    engine_params_init(&p);
    p.no_prefix_cache = true; /* every run of a benchmark computes what it times */
    p.model = rt->model;
    p.be = rt->be;
    p.vocab = tokenizer_vocab(rt->tokenizer);
    p.kv_type = session_kv_type(o);
    p.kv_bytes = o->kv_memory_bytes ? o->kv_memory_bytes : memory_kv_default_bytes("");
    warn_memory(o);
    p.max_length = o->max_length;
    p.max_batch = o->max_batch;
    p.step_tokens = o->step_tokens;
    p.queue_cap = o->queue;
    return engine_new(&rt->engine, &p, err);
}

void runtime_close(struct runtime *rt)
{
    engine_free(rt->engine);
    tokenizer_free(rt->tokenizer);
    model_free(rt->model);
    be_free(rt->be);
    gguf_close(rt->gguf);
    memset(rt, 0, sizeof *rt);
}

/* ---- through the SDK ---- */

static t9_status session_load(struct session *s, const struct cli_options *o, struct t9_err *err)
{
    struct progress progress = {.terminal = isatty(STDERR_FILENO) == 1, .last_percent = -1};
    struct t9_model_params p;
    t9_model_params_init(&p, sizeof p);
    p.path = o->gguf;
    p.backend = o->backend;
    p.isa = o->isa;
    p.threads = o->threads;
    p.step_tokens = o->step_tokens;
    p.progress = load_progress;
    p.progress_ctx = &progress;
    t9_status st = t9_model_load(&s->model, &p, err);
    if (st != T9_STATUS_OK && progress.last_percent >= 0)
        fprintf(stderr, "\n");
    return st;
}

t9_status session_open(struct session *s, const struct cli_options *o, struct t9_err *err)
{
    struct t9_model_info info = {.struct_size = sizeof info};
    struct t9_engine_params p;
    if (o->plan_log)
        T9_TRY(plan_file_open(&s->plan_file, o, err));
    T9_TRY(session_load(s, o, err));
    T9_TRY(t9_model_info(s->model, &info));
    T9_TRY(check_length(info.context_length, o, err));
    t9_engine_params_init(&p, sizeof p);
    if (s->plan_file) {
        p.plan_log = plan_line;
        p.plan_log_ctx = s->plan_file;
    }
    if (o->log_prompts) {
        p.diverged = divergence_log;
        p.diverged_ctx = s->model;
    }
    warn_memory(o);
    p.model = s->model;
    p.kv_type = kv_type_name(session_kv_type(o));
    p.kv_bytes = o->kv_memory_bytes;
    p.max_length = o->max_length;
    p.allow_long = o->allow_long;
    p.max_batch = o->max_batch;
    p.queue = o->queue;
    p.max_per_client = o->max_per_client;
    return t9_engine_new(&s->engine, &p, err);
}

void session_close(struct session *s)
{
    t9_engine_free(s->engine);
    plan_file_close(s->plan_file);
    t9_model_free(s->model);
    memset(s, 0, sizeof *s);
}
