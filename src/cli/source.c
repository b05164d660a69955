/*
 * cli/source.c - finds or fetches a model by name, and shows how that goes: one line that is
 * redrawn on a terminal, else a line every ten seconds. Ctrl-C stops it; what has come so far is
 * kept and the next call goes on from there.
 */
#include "cli/source.h"

#include "base/clock.h"
#include "hub/hub.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_EVERY_MS = 10000, REDRAW_EVERY_MS = 200 };

struct pull_view {
    bool terminal, drawn;
    uint64_t shown_ms, fetched_bytes;
    double bytes_per_s; /* smoothed; 0: not known yet */
};

static void format_time(double s, char *out, size_t cap)
{
    int64_t t = s < 0 ? 0 : s > 359999 ? 359999 : (int64_t)(s + 0.5);
    if (t >= 3600)
        snprintf(out, cap, "%d:%02d:%02d", (int)(t / 3600), (int)(t / 60 % 60), (int)(t % 60));
    else
        snprintf(out, cap, "%d:%02d", (int)(t / 60), (int)(t % 60));
}

static void view_clear(struct pull_view *v)
{
    if (v->drawn)
        fputs("\r\033[K", stderr);
    v->drawn = false;
}

static void view_draw(struct pull_view *v, const struct hub_progress *p)
{
    char line[128], left[16] = "", bar[24];
    double done = (double)p->done_bytes, total = (double)p->total_bytes;
    int percent = (int)(done * 100 / total);
    if (v->bytes_per_s > 0 && p->done_bytes < p->total_bytes)
        format_time((total - done) / v->bytes_per_s, left, sizeof left);
    snprintf(line, sizeof line, "%3d%%  %.1f of %.1f MB  %.1f MB/s%s%s", percent, done / 1e6,
             total / 1e6, v->bytes_per_s / 1e6, left[0] ? "  left " : "", left);
    if (!v->terminal) {
        fprintf(stderr, "tempo9: %s\n", line);
        return;
    }
    for (int i = 0; i < 20; i++)
        bar[i] = i * 5 < percent ? '#' : '.';
    bar[20] = 0;
    fprintf(stderr, "\r[%s] %s\033[K", bar, line);
    v->drawn = true;
}

/* hub_params.progress; false after Ctrl-C. */
static bool on_progress(void *ctx, const struct hub_progress *p)
{
    struct pull_view *v = ctx;
    uint64_t now_ms = clock_now_ns() / 1000000,
             every = v->terminal ? REDRAW_EVERY_MS : LINE_EVERY_MS;
    if (cli_interrupts() > 0)
        return false;
    if (p->waiting || p->total_bytes == 0)
        return true;
    if (v->shown_ms == 0) {
        v->shown_ms = now_ms;
        v->fetched_bytes = p->fetched_bytes;
    }
    uint64_t passed = now_ms - v->shown_ms;
    if (passed < every)
        return true;
    double rate = (double)(p->fetched_bytes - v->fetched_bytes) * 1000 / (double)passed;
    /* On a terminal about the last two seconds count. */
    v->bytes_per_s = v->bytes_per_s > 0 && v->terminal ? 0.9 * v->bytes_per_s + 0.1 * rate : rate;
    v->shown_ms = now_ms;
    v->fetched_bytes = p->fetched_bytes;
    view_draw(v, p);
    return true;
}

static void on_note(void *ctx, const char *text)
{
    view_clear(ctx);
    fputs("tempo9: ", stderr);
    cli_put_message(stderr, text);
    fputc('\n', stderr);
}

static int hub_fail(struct pull_view *v, const struct t9_err *err)
{
    view_clear(v);
    if (err->code != T9_STATUS_CANCELLED)
        return cli_fail(err);
    fputs("tempo9: stopped; what has come is kept, the same command goes on from there\n", stderr);
    return cli_interrupt_status();
}

static struct hub_params hub_params_of(const struct config_hub *c, const struct cli_options *o)
{
    return (struct hub_params){.cache_dir = c->cache_dir,
                               .endpoint = c->endpoint,
                               .token = c->token[0] ? c->token : NULL,
                               .user_agent = c->user_agent,
                               .offline = c->offline,
                               .retries = o->retries,
                               .stall_s = o->stall_timeout_s};
}

/* A client's download: figures for it, lines for the log. */
struct client_pull {
    bool (*progress)(void *to, const struct pull_progress *p);
    void *to;
};

static bool on_client_progress(void *ctx, const struct hub_progress *p)
{
    struct client_pull *c = ctx;
    struct pull_progress told = {p->file, p->total_bytes, p->done_bytes};
    return c->progress(c->to, &told);
}

static void on_client_note(void *ctx, const char *text)
{
    (void)ctx;
    LOG_INFO("pull", "%s", text);
}

t9_status source_pull(void *options, const char *name,
                      bool (*progress)(void *to, const struct pull_progress *p), void *to,
                      struct t9_err *err)
{
    const struct cli_options *o = options;
    struct client_pull client = {progress, to};
    struct config_hub c;
    struct hub_model m;
    t9_status s = config_hub_read(&c, o, err);
    struct hub_params p = hub_params_of(&c, o);
    p.progress = on_client_progress;
    p.note = on_client_note;
    p.ctx = &client;
    LOG_INFO("pull", "a client wants %s", name);
    if (s == T9_STATUS_OK)
        s = hub_get(&m, &p, name, err);
    explicit_bzero(c.token, sizeof c.token);
    if (s == T9_STATUS_OK)
        LOG_INFO("pull", "%s is at %s", name, m.path);
    return s;
}

static int resolve_hf(struct cli_options *o, struct hub_model *m)
{
    struct config_hub c;
    struct t9_err err = {0};
    struct pull_view v = {.terminal = isatty(STDERR_FILENO) == 1};
    t9_status s = config_hub_read(&c, o, &err);
    struct hub_params p = hub_params_of(&c, o);
    /* To serve is what is wanted; to pull asks for what is newest. */
    p.cache_will_do = o->command != CLI_COMMAND_PULL;
    p.progress = on_progress;
    p.note = on_note;
    p.ctx = &v;
    if (s == T9_STATUS_OK)
        s = hub_get(m, &p, o->hf, &err);
    explicit_bzero(c.token, sizeof c.token);
    if (s != T9_STATUS_OK)
        return hub_fail(&v, &err);
    view_clear(&v);
    return EXIT_DONE;
}

int source_resolve(struct cli_options *o)
{
    static struct hub_model found; /* the options point into it */
    struct t9_err err = {0};
    struct pull_view v = {0};
    int rc = EXIT_DONE;
    if (!o->hf && !o->ollama)
        return EXIT_DONE;
    if (o->hf) {
        rc = resolve_hf(o, &found);
    } else {
        char dir[HUB_FILE_PATH_MAX];
        t9_status s = config_ollama_dir(dir, sizeof dir, &err);
        if (s == T9_STATUS_OK)
            s = hub_ollama_find(&found, dir, o->ollama, on_note, &v, &err);
        if (s != T9_STATUS_OK)
            return cli_fail(&err);
        if (!o->name)
            o->name = found.name;
    }
    o->gguf = found.path;
    return rc;
}

struct table {
    size_t n;
};

static void on_model(void *ctx, const char *name, uint64_t size_bytes, const char *problem)
{
    struct table *t = ctx;
    if (t->n++ == 0)
        printf("%-40s %10s\n", "NAME", "SIZE");
    if (problem) {
        printf("%-40s %10s  ", name, "-");
        cli_put_message(stdout, problem);
        printf("\n");
    } else {
        printf("%-40s %7.2f GB\n", name, (double)size_bytes / 1e9);
    }
}

int source_list_ollama(const struct cli_options *o)
{
    char dir[HUB_FILE_PATH_MAX];
    struct t9_err err = {0};
    struct table t = {0};
    (void)o;
    t9_status s = config_ollama_dir(dir, sizeof dir, &err);
    if (s == T9_STATUS_OK)
        s = hub_ollama_list(dir, on_model, &t, &err);
    if (s != T9_STATUS_OK)
        return cli_fail(&err);
    if (t.n == 0)
        fprintf(stderr, "tempo9: the store at %s has no models\n", dir);
    return cli_finish_stdout();
}
