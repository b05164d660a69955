/*
 * cli/runtime.c - opens what a command computes with, in order, and closes it in reverse.
 */
#include "cli/cli.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KV_MEMORY_MIN_BYTES      ((uint64_t)64 << 20)
#define KV_MEMORY_FALLBACK_BYTES ((uint64_t)1 << 30)

kv_type runtime_kv_type(const struct cli_options *o)
{
    if (o->kv_type_set)
        return o->kv_type;
    return strcmp(o->backend, "ref") == 0 ? KV_TYPE_F32 : KV_TYPE_F16;
}

static t9_status open_gguf(struct runtime *rt, const struct cli_options *o, struct t9_err *err)
{
    return rt->gguf ? T9_STATUS_OK : gguf_open(&rt->gguf, o->gguf, err);
}

t9_status runtime_open_tokenizer(struct runtime *rt, const struct cli_options *o,
                                 struct t9_err *err)
{
    T9_TRY(open_gguf(rt, o, err));
    t9_status s = tokenizer_new(&rt->tokenizer, rt->gguf, err);
    return s == T9_STATUS_OK ? s : t9_err_prefix(err, "%s", gguf_file_name(rt->gguf));
}

t9_status runtime_open_template(struct runtime *rt, struct t9_err *err)
{
    str source;
    if (gguf_get_str(rt->gguf, "tokenizer.chat_template", &source, NULL) != T9_STATUS_OK)
        return T9_STATUS_OK;
    t9_status s = jinja_parse(&rt->chat_template, source, err);
    return s == T9_STATUS_OK ? s
                             : t9_err_prefix(err, "%s: chat template", gguf_file_name(rt->gguf));
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
    T9_TRY(open_gguf(rt, o, err));
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

/* Half of what the system says it can still give, so that the rest of the machine keeps working. */
static uint64_t kv_memory_default(void)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    uint64_t kib = 0;
    if (file_read_all("/proc/meminfo", &b, NULL) == T9_STATUS_OK) {
        size_t at = str_find(buf_str(&b), STR("MemAvailable:"), 0);
        if (at != (size_t)-1) {
            str line = str_slice(buf_str(&b), at + 13, b.n);
            size_t end = str_find(line, STR("kB"), 0);
            if (end != (size_t)-1 && !num_parse_u64(str_trim(str_slice(line, 0, end)), &kib))
                kib = 0;
        }
    }
    buf_deinit(&b);
    uint64_t half = kib * 1024 / 2;
    if (half == 0)
        half = KV_MEMORY_FALLBACK_BYTES;
    return half < KV_MEMORY_MIN_BYTES ? KV_MEMORY_MIN_BYTES : half;
}

t9_status runtime_open_engine(struct runtime *rt, const struct cli_options *o, struct t9_err *err)
{
    struct engine_params p;
    engine_params_init(&p);
    p.model = rt->model;
    p.be = rt->be;
    p.vocab = tokenizer_vocab(rt->tokenizer);
    p.kv_type = runtime_kv_type(o);
    p.kv_bytes = o->kv_memory_bytes ? o->kv_memory_bytes : kv_memory_default();
    p.max_length = o->max_length;
    p.max_batch = o->max_batch;
    p.step_tokens = o->step_tokens;
    p.queue_cap = o->queue;
    return engine_new(&rt->engine, &p, err);
}

void runtime_close(struct runtime *rt)
{
    engine_free(rt->engine);
    jinja_free(rt->chat_template);
    tokenizer_free(rt->tokenizer);
    model_free(rt->model);
    be_free(rt->be);
    gguf_close(rt->gguf);
    memset(rt, 0, sizeof *rt);
}
