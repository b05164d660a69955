/*
 * cli/bench_report.c - what `bench` prints: a table that grows, JSON, CSV or Markdown, each with
 * the run's identity. JSON is written once, at the end.
 *
 * Beside the rates stands how near they are to what the machine can do:
 * - bytes of a token: of decoding, the weights as the file has them, divided by the sequences that
 *   share a step, the keys and values that its attention reads at the cell's mean depth, and a
 *   recurrent state twice, as it is read and written. Bytes times rate over the measured read
 *   bandwidth is the memory share. Reading a prompt is not bound by memory, so it has none.
 * - operations of a token: two for each weight that it is multiplied with; the output layer counts
 *   for tokens that have logits, so once in a prompt. Times rate over the measured rate of int8 dot
 *   products is the share of that. Attention is not in it.
 */
#include "cli/bench.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "cli/figures.h"
#include "t9_build.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- figures ---- */

struct bench_figures {
    double median, min, max, spread_percent, streams_median;
    bool steady;                        /* the spread is within the bound */
    double bytes_per_token;             /* 0: not told for this cell */
    double ops_per_token;               /* of products with weights */
    double memory_percent, ops_percent; /* of the machine's limits; 0: not known */
};

struct work {
    double body_params, head_params;
    double weight_bytes, expert_bytes; /* the experts' are not among the first */
    double expert_share;               /* of the experts, that a token goes to */
};

/* What a token is multiplied with: of experts, its share. An embedding that is not the output
 * layer, too, is a table of which a token reads one row; so is that of per-layer inputs. */
static struct work work_of(const struct bench_report *r)
{
    const struct model_info *info = model_info(r->rt->model);
    const struct gguf_tensor *embd = gguf_tensor_find(r->rt->gguf, "token_embd.weight");
    const struct gguf_tensor *table = gguf_tensor_find(r->rt->gguf, "per_layer_token_embd.weight");
    bool tied = !gguf_tensor_find(r->rt->gguf, "output.weight");
    struct work w = {.body_params = (double)model_n_params_met(info),
                     .head_params = (double)info->n_embd * info->n_vocab};
    w.expert_share = info->n_experts ? (double)info->n_experts_used / info->n_experts : 0;
    for (uint64_t i = 0; i < gguf_tensor_count(r->rt->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(r->rt->gguf, i);
        if (model_ignores_tensor(r->rt->model, t->name))
            continue;
        *(t->ne[2] > 1 ? &w.expert_bytes : &w.weight_bytes) += (double)t->size_bytes;
    }
    if (table)
        w.weight_bytes -= (double)table->size_bytes;
    if (embd && !tied) {
        w.weight_bytes -= (double)embd->size_bytes;
        w.body_params -= w.head_params;
    }
    w.body_params -= w.head_params;
    return w;
}

/* What of its own sequence one row at position `depth` reads and writes. */
static double sequence_bytes(const struct bench_report *r, double depth)
{
    struct kv_geom g;
    struct state_geom state;
    if (model_kv_geom(r->rt->model, session_kv_type(r->o), &g, NULL) != T9_STATUS_OK)
        return 0;
    model_state_geom(r->rt->model, &state);
    return model_kv_read_bytes(r->rt->model, &g, depth) + 2.0 * (double)state.state_bytes;
}

static struct bench_figures figures_of(const struct bench_report *r, const struct bench_cell *c)
{
    struct bench_figures f = {0};
    double v[BENCH_RUNS_MAX];
    size_t n = (size_t)c->n_runs;
    memcpy(v, c->streams_rate, n * sizeof *v);
    figures_sort(v, n);
    f.streams_median = figures_median(v, n);
    memcpy(v, c->rate, n * sizeof *v);
    figures_sort(v, n);
    f.median = figures_median(v, n);
    f.min = v[0];
    f.max = v[n - 1];
    f.spread_percent = f.median > 0 ? 100 * (f.max - f.min) / f.median : 0;
    f.steady = f.spread_percent <= BENCH_SPREAD_PERCENT_MAX;
    struct work w = work_of(r);
    double decode_ops = 2 * (w.body_params + w.head_params), ops_per_s;
    if (c->kind == BENCH_KIND_DECODE) {
        double depth = (c->depth > 0 ? c->depth : 1) + c->decode / 2.0;
        /* As if each token's experts were drawn: then so many of them are met by any. */
        double met = 1 - pow(1 - w.expert_share, c->batch);
        f.bytes_per_token =
            (w.weight_bytes + met * w.expert_bytes) / c->batch + sequence_bytes(r, depth);
        f.ops_per_token = decode_ops;
        ops_per_s = f.median * decode_ops;
    } else {
        f.ops_per_token = 2 * (w.body_params + w.head_params / c->prompt);
        ops_per_s = f.median * f.ops_per_token + f.streams_median * decode_ops;
    }
    if (r->limits.read_gbps > 0)
        f.memory_percent = f.median * f.bytes_per_token / r->limits.read_gbps / 1e7;
    if (r->limits.dot_gops > 0)
        f.ops_percent = ops_per_s / r->limits.dot_gops / 1e7;
    return f;
}

void bench_cell_title(const struct bench_cell *c, char *out, size_t cap)
{
    switch (c->kind) {
    case BENCH_KIND_PROMPT: snprintf(out, cap, "prompt %d", c->prompt); return;
    case BENCH_KIND_DECODE:
        snprintf(out, cap, "decode %d, depth %d, batch %d", c->decode, c->depth, c->batch);
        return;
    case BENCH_KIND_MIXED:
        snprintf(out, cap, "prompt %d beside %d at depth %d", c->prompt, c->batch, c->depth);
        return;
    case BENCH_KIND_COUNT: break;
    }
    snprintf(out, cap, "?");
}

/* A figure, or `none` where there is none. */
static const char *shown_or(char out[32], double v, int decimals, const char *none)
{
    if (v > 0)
        snprintf(out, 32, "%.*f", decimals, v);
    return v > 0 ? out : none;
}

static const char *shown(char out[32], double v, int decimals)
{
    return shown_or(out, v, decimals, "-");
}

/* ---- table and Markdown ---- */

static void head_lines(const struct bench_report *r, const char *prefix)
{
    const struct runtime *rt = r->rt;
    printf("%stempo9 %s (%s), %s, %s, %s\n", prefix, T9_VERSION, T9_BUILD_ID, T9_BUILD_COMPILER,
           T9_BUILD_TYPE, r->date);
    printf("%sflags: %s\n", prefix, T9_BUILD_FLAGS);
    fputs(prefix, stdout);
    cli_put_text(stdout, buf_str(&r->cpu));
    printf("; backend %s (%s, %s), %d threads\n%s", be_name(rt->be), be_isa(rt->be),
           be_numerics(rt->be), be_threads(rt->be), prefix);
    cli_put_message(stdout, gguf_file_name(rt->gguf));
    printf(": %s, %.1f MB; kv %s\n", model_info(rt->model)->arch,
           (double)gguf_file_bytes(rt->gguf) / 1e6, kv_type_name(session_kv_type(r->o)));
    printf("%smeasured at first: memory read %.1f GB/s, int8 dot products %.0f Gop/s\n", prefix,
           r->limits.read_gbps, r->limits.dot_gops);
}

static void table_row(const struct bench_report *r, const struct bench_cell *c,
                      const struct bench_figures *f)
{
    char title[80], streams[32], mb[32], memory[32], gops[32], ops[32];
    bench_cell_title(c, title, sizeof title);
    printf(r->o->markdown ? "| %s | %.2f | %.2f..%.2f | %.1f%%%s | %s | %s | %s | %s | %s |\n"
                          : "%-36s %9.2f  (%.2f..%.2f) %5.1f%%%s  %7s  %8s %5s  %8s %5s\n",
           title, f->median, f->min, f->max, f->spread_percent, f->steady ? "" : " !",
           shown(streams, f->streams_median, 2), shown(mb, f->bytes_per_token / 1e6, 2),
           shown(memory, f->memory_percent, 0), shown(gops, f->ops_per_token / 1e9, 3),
           shown(ops, f->ops_percent, 0));
    fflush(stdout);
}

static void table_begin(const struct bench_report *r)
{
    if (r->o->markdown) {
        head_lines(r, "- ");
        printf("\n| cell | tok/s | range | spread | streams tok/s | MB/token | memory %% | "
               "Gop/token | int8 %% |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    } else {
        head_lines(r, "");
        printf("%-36s %9s  (range) spread  streams  MB/token mem%%   Gop/token int8%%\n", "",
               "tok/s");
    }
}

static void table_end(const struct bench_report *r)
{
    if (r->n_unsteady > 0)
        printf("%s! runs of the cell spread by more than %.0f%%: no figure to rely on\n",
               r->o->markdown ? "\n" : "", BENCH_SPREAD_PERCENT_MAX);
    if (!r->complete)
        printf("%sended early: not all cells are here\n", r->o->markdown ? "\n" : "");
}

/* ---- CSV ---- */

static void csv_text(struct buf *b, str text)
{
    buf_putc(b, '"');
    for (size_t i = 0; i < text.n; i++) {
        buf_puts(b, text.p[i] == '"' ? "\"" : "");
        buf_putc(b, text.p[i]);
    }
    buf_puts(b, "\",");
}

static void csv_begin(struct bench_report *r)
{
    char hex[65];
    for (uint32_t i = 0; i < gguf_part_count(r->rt->gguf); i++)
        if (hash_sha256_file(gguf_part_path(r->rt->gguf, i), hex, NULL) == T9_STATUS_OK)
            buf_printf(&r->sha256, "%s%s", i ? " " : "", hex);
    printf("kind,prompt,decode,depth,batch,runs,median_tokens_per_s,min_tokens_per_s,"
           "max_tokens_per_s,spread_percent,steady,streams_tokens_per_s,bytes_per_token,"
           "memory_percent,ops_per_token,int8_percent,text_hash,logits_hash,version,build,compiler,"
           "flags,cpu,backend,isa,numerics,threads,kv_type,model,model_bytes,model_sha256,"
           "read_gb_per_s,int8_gop_per_s,date\n");
}

static void csv_row(const struct bench_report *r, const struct bench_cell *c,
                    const struct bench_figures *f)
{
    const struct runtime *rt = r->rt;
    struct buf b;
    char streams[32], bytes[32], memory[32], ops[32];
    buf_init(&b, 1 << 20);
    buf_printf(
        &b,
        "%s,%d,%d,%d,%d,%d,%.4f,%.4f,%.4f,%.3f,%s,%s,%s,%s,%.0f,%s,%016" PRIx64 ",%016" PRIx64 ",",
        bench_kind_name(c->kind), c->prompt, c->decode, c->depth, c->batch, c->n_runs, f->median,
        f->min, f->max, f->spread_percent, f->steady ? "true" : "false",
        shown_or(streams, f->streams_median, 4, ""), shown_or(bytes, f->bytes_per_token, 0, ""),
        shown_or(memory, f->memory_percent, 2, ""), f->ops_per_token,
        shown_or(ops, f->ops_percent, 2, ""), c->text_hash, c->logits_hash);
    csv_text(&b, STR(T9_VERSION));
    csv_text(&b, STR(T9_BUILD_ID));
    csv_text(&b, STR(T9_BUILD_COMPILER));
    csv_text(&b, STR(T9_BUILD_FLAGS));
    csv_text(&b, buf_str(&r->cpu));
    buf_printf(&b, "%s,%s,%s,%d,%s,", be_name(rt->be), be_isa(rt->be), be_numerics(rt->be),
               be_threads(rt->be), kv_type_name(session_kv_type(r->o)));
    csv_text(&b, str_from(gguf_file_name(rt->gguf)));
    buf_printf(&b, "%llu,%.*s,%.2f,%.1f,%s\n", (unsigned long long)gguf_file_bytes(rt->gguf),
               (int)r->sha256.n, r->sha256.p ? r->sha256.p : "", r->limits.read_gbps,
               r->limits.dot_gops, r->date);
    cli_write(b.p, b.n);
    fflush(stdout);
    buf_deinit(&b);
}

/* ---- JSON ---- */

static void rates(struct buf *b, const char *key, const double *v, int n)
{
    buf_puts(b, ",");
    json_write_key(b, key);
    buf_puts(b, "[");
    for (int i = 0; i < n; i++) {
        buf_puts(b, i ? "," : "");
        json_write_f64(b, v[i]);
    }
    buf_puts(b, "]");
}

static void json_cell(struct buf *b, const struct bench_cell *c, const struct bench_figures *f)
{
    buf_puts(b, b->n ? "," : "");
    buf_printf(b, "{\"kind\":\"%s\",\"prompt\":%d,\"decode\":%d,\"depth\":%d,\"batch\":%d",
               bench_kind_name(c->kind), c->prompt, c->decode, c->depth, c->batch);
    figures_write(b, "median_tokens_per_s", f->median);
    figures_write(b, "min_tokens_per_s", f->min);
    figures_write(b, "max_tokens_per_s", f->max);
    figures_write(b, "spread_percent", f->spread_percent);
    buf_printf(b, ",\"steady\":%s", f->steady ? "true" : "false");
    figures_write(b, "bytes_per_token", f->bytes_per_token > 0 ? f->bytes_per_token : (double)NAN);
    figures_write(b, "memory_percent", f->memory_percent > 0 ? f->memory_percent : (double)NAN);
    figures_write(b, "ops_per_token", f->ops_per_token);
    figures_write(b, "int8_percent", f->ops_percent > 0 ? f->ops_percent : (double)NAN);
    if (c->kind == BENCH_KIND_MIXED) {
        figures_write(b, "streams_tokens_per_s", f->streams_median);
        rates(b, "streams_runs", c->streams_rate, c->n_runs);
    }
    rates(b, "runs", c->rate, c->n_runs);
    buf_printf(b, ",\"text_hash\":\"%016" PRIx64 "\",\"logits_hash\":\"%016" PRIx64 "\"}",
               c->text_hash, c->logits_hash);
}

static void list_write(struct buf *b, const char *key, const struct cli_list *l)
{
    json_write_key(b, key);
    buf_puts(b, "[");
    for (int i = 0; i < l->n; i++)
        buf_printf(b, "%s%d", i ? "," : "", l->v[i]);
    buf_puts(b, "],");
}

/* Identity, workload and its fingerprint, cells. */
static void json_all(const struct bench_report *r)
{
    struct buf b, w;
    const struct cli_options *o = r->o;
    buf_init(&b, (size_t)64 << 20);
    buf_init(&w, 1 << 12);
    buf_printf(&w,
               "{\"kv_type\":\"%s\",\"step_tokens\":%d,\"max_batch\":%d,\"sampling\":\"greedy\","
               "\"prefix_cache\":false,",
               kv_type_name(session_kv_type(o)), o->step_tokens, o->max_batch);
    list_write(&w, "prompt", &o->bench_prompt);
    list_write(&w, "depth", &o->bench_depth);
    list_write(&w, "batch", &o->bench_batch);
    list_write(&w, "mixed", &o->bench_mixed);
    buf_printf(&w, "\"decode\":%d,\"repeat\":%d,\"warm\":true}", o->bench_decode, o->bench_repeat);
    buf_puts(&b, "{");
    identity_write(&b, r->rt);
    buf_printf(&b, ",\"date\":\"%s\",\"workload\":%.*s,\"workload_fingerprint\":\"%016" PRIx64 "\"",
               r->date, (int)w.n, w.p, hash_xxh3_64(w.p, w.n, 0));
    buf_printf(&b, ",\"load_ms\":%.1f", (double)r->rt->load_ns / 1e6);
    figures_write(&b, "read_gb_per_s", r->limits.read_gbps);
    figures_write(&b, "int8_gop_per_s", r->limits.dot_gops);
    figures_write(&b, "spread_percent_max", BENCH_SPREAD_PERCENT_MAX);
    buf_printf(&b, ",\"complete\":%s,\"cells\":[", r->complete ? "true" : "false");
    buf_puts_str(&b, buf_str(&r->cells));
    buf_puts(&b, "]}\n");
    cli_write(b.p, b.n);
    buf_deinit(&w);
    buf_deinit(&b);
}

/* ---- the report ---- */

void bench_report_limits(struct bench_report *r)
{
    struct be_limits l = be_limits_measure(be_threads(r->rt->be), be_isa(r->rt->be));
    if (l.read_gbps > r->limits.read_gbps)
        r->limits.read_gbps = l.read_gbps;
    if (l.dot_gops > r->limits.dot_gops)
        r->limits.dot_gops = l.dot_gops;
}

void bench_report_begin(struct bench_report *r, const struct cli_options *o,
                        const struct runtime *rt)
{
    *r = (struct bench_report){.o = o, .rt = rt};
    buf_init(&r->cells, (size_t)32 << 20);
    buf_init(&r->cpu, 4096);
    buf_init(&r->sha256, 1 << 16);
    identity_cpu_write(&r->cpu);
    clock_iso8601(r->date);
    bench_report_limits(r);
    if (o->csv)
        csv_begin(r);
    else if (!o->json)
        table_begin(r);
}

void bench_report_cell(struct bench_report *r, const struct bench_cell *c)
{
    struct bench_figures f = figures_of(r, c);
    r->n_unsteady += !f.steady;
    if (r->o->json)
        json_cell(&r->cells, c, &f);
    else if (r->o->csv)
        csv_row(r, c, &f);
    else
        table_row(r, c, &f);
}

void bench_report_end(struct bench_report *r)
{
    if (r->o->json)
        json_all(r);
    else if (!r->o->csv)
        table_end(r);
}

void bench_report_deinit(struct bench_report *r)
{
    buf_deinit(&r->cells);
    buf_deinit(&r->cpu);
    buf_deinit(&r->sha256);
}
