/*
 * cli/cmd_serve.c - `serve`: load, listen, wait for a signal, drain.
 *
 * The listener opens only after the model is loaded and warmed up. The first SIGINT, SIGTERM or
 * SIGHUP lets running answers end and refuses new requests; a second one ends the program at once.
 * One that comes while it loads stops that, and is no failure either.
 */
#include "cli/cli.h"

#include "base/num.h"
#include "cli/notify.h"
#include "cli/source.h"
#include "http/server.h"
#include "store/store.h"
#include "t9_build.h"
#include "tempo9.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_MAX_BYTES = 128, ORIGINS_MAX = 64, ORIGINS_MAX_BYTES = 4096 };

/* --name, else the file's name without its ending: general.name is often a training run's label. */
static void model_name(const struct cli_options *o, const struct t9_model_info *info,
                       char out[NAME_MAX_BYTES])
{
    str name = str_from(o->name ? o->name : info->file_name);
    if (!o->name && str_has_suffix(name, STR(".gguf")))
        name.n -= 5;
    if (name.n >= NAME_MAX_BYTES)
        name.n = NAME_MAX_BYTES - 1;
    snprintf(out, NAME_MAX_BYTES, STR_FMT, STR_ARG(name));
}

enum { ADDRESS_BYTES = 320 };

static void address_text(const struct cli_options *o, uint16_t port, char out[ADDRESS_BYTES])
{
    bool v6 = strchr(o->host, ':') != NULL;
    if (o->unix_path)
        snprintf(out, ADDRESS_BYTES, "unix socket %s", o->unix_path);
    else
        snprintf(out, ADDRESS_BYTES, "http%s://%s%s%s:%u", o->tls_cert ? "s" : "", v6 ? "[" : "",
                 o->host, v6 ? "]" : "", port);
}

static int64_t file_time_s(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_mtime : 0;
}

static void announce(const struct cli_options *o, const struct session *ss,
                     const struct t9_model_info *info, const char *name, uint16_t port)
{
    struct t9_stats s = {.struct_size = sizeof s};
    char where[ADDRESS_BYTES], most[NUM_BYTES_MAX];
    if (o->config_used)
        LOG_INFO("serve", "options of %s, and of the command line", o->config_used);
    (void)t9_engine_stats(ss->engine, &s);
    LOG_INFO("serve", "%s (%s, %.0f M parameters) loaded in %.1f s", name, info->arch,
             (double)info->n_params / 1e6, (double)info->load_ns / 1e9);
    LOG_INFO("serve",
             "backend %s (%s), %d threads, kv %s, up to %d tokens a request, memory for keys%s "
             "as used, at most %s",
             info->backend, info->isa, info->threads, kv_type_name(session_kv_type(o)),
             t9_engine_max_length(ss->engine),
             s.kv_state_bytes > 0 ? ", values, states and their checkpoints" : " and values",
             num_format_bytes((uint64_t)s.kv_pages_total * s.kv_page_bytes, most));
    address_text(o, port, where);
    LOG_INFO("serve", "listening on %s (OpenAI and Anthropic at /v1, Ollama at /api)", where);
    if (!o->unix_path && o->insecure && o->api_keys.n == 0)
        LOG_WARN("serve", "--insecure: whoever reaches this port may use the model");
}

/* The origins of a comma list; their text lives in `out`. */
struct origins {
    char text[ORIGINS_MAX_BYTES];
    const char *v[ORIGINS_MAX];
    size_t n;
};

static t9_status origins_split(struct origins *out, const char *list, struct t9_err *err)
{
    out->n = 0;
    if (!list)
        return T9_STATUS_OK;
    if ((size_t)snprintf(out->text, sizeof out->text, "%s", list) >= sizeof out->text)
        return t9_fail(err, T9_STATUS_INVALID, "--cors-origin: longer than %d bytes",
                       ORIGINS_MAX_BYTES - 1);
    for (char *p = out->text; p;) {
        char *comma = strchr(p, ',');
        if (comma)
            *comma = 0;
        if (!*p || out->n == ORIGINS_MAX)
            return t9_fail(err, T9_STATUS_INVALID,
                           "--cors-origin: expected 1 to %d origins with commas between",
                           ORIGINS_MAX);
        out->v[out->n++] = p;
        p = comma ? comma + 1 : NULL;
    }
    return T9_STATUS_OK;
}

static void http_params_fill(struct http_params *hp, const struct cli_options *o,
                             const struct api_keys *keys)
{
    http_params_init(hp);
    hp->host = o->host;
    hp->port = (uint16_t)o->port;
    hp->unix_path = o->unix_path;
    hp->tls_cert = o->tls_cert;
    hp->tls_key = o->tls_key;
    hp->insecure = o->insecure;
    hp->api_keys = keys->v;
    hp->n_api_keys = keys->n;
    hp->connection_limit = o->max_connections;
    hp->connections_per_address = o->max_connections_per_ip;
    hp->requests_per_minute = o->rate_limit;
    hp->request_timeout_ms = (uint32_t)o->request_timeout_s * 1000;
    hp->body_bytes_max = o->max_body_bytes;
    if (hp->bodies_bytes_max < hp->body_bytes_max)
        hp->bodies_bytes_max = hp->body_bytes_max;
}

/* Whether the engine moved since it was last asked, or has nothing to do. */
static bool engine_lives(const t9_engine *e, uint64_t *step)
{
    struct t9_stats s = {.struct_size = sizeof s};
    (void)t9_engine_stats(e, &s);
    bool lives = s.steps != *step || s.running == 0;
    *step = s.steps;
    return lives;
}

/* Until somebody ends the program. The service manager hears at half its time that the engine
 * moves; when it does not, it hears nothing, and starts us anew. */
static void wait_for_end(const t9_engine *e)
{
    const char *manager = config_notify_socket();
    uint64_t us = config_watchdog_us(), step = UINT64_MAX;
    int64_t step_ms = manager && us ? (int64_t)(us / 2000) : -1;
    while (!cli_interrupt_wait_for(step_ms))
        if (engine_lives(e, &step))
            (void)notify_send(manager, "WATCHDOG=1");
}

/* *out stays NULL where nothing is to be kept. */
static t9_status open_store(const struct cli_options *o, struct store **out, struct t9_err *err)
{
    struct store_params p = {.path = o->store,
                             .max_bytes = o->store_bytes,
                             .max_responses = o->store_responses,
                             .ttl_s = (int64_t)o->store_days * 86400};
    if (!o->store)
        return T9_STATUS_OK;
    t9_status s = store_open(out, &p, err);
    return s == T9_STATUS_OK ? s : t9_err_prefix(err, "--store");
}

static t9_status serve(const struct cli_options *o, struct session *ss, struct api_keys *keys,
                       struct store **store, struct t9_err *err)
{
    const char *manager = config_notify_socket();
    struct origins origins;
    struct http_params hp;
    struct t9_model_info info = {.struct_size = sizeof info};
    T9_TRY(origins_split(&origins, o->cors_origins, err));
    T9_TRY(config_api_keys(o, keys, err));
    http_params_fill(&hp, o, keys);
    hp.cors_origins = origins.v;
    hp.n_cors_origins = origins.n;
    T9_TRY(http_params_check(&hp, err));
    T9_TRY(open_store(o, store, err));
    (void)notify_send(manager, "STATUS=Loading the model");
    T9_TRY(session_open(ss, o, err));
    T9_TRY(t9_model_info(ss->model, &info));
    char name[NAME_MAX_BYTES];
    model_name(o, &info, name);
    static const char *const aliases[] = {"default"};
    struct cli_options options = *o;
    struct pull_hook pull = {.get = source_pull, .ctx = &options};
    /* One client can fill half of the queue at most, so that the others get a place. */
    hp.max_open_per_client = o->max_per_client ? o->max_per_client + (o->queue + 1) / 2 : 0;
    hp.prep = (struct prep_params){.model = ss->model,
                                   .engine = ss->engine,
                                   .model_name = name,
                                   .aliases = aliases,
                                   .n_aliases = T9_COUNT(aliases),
                                   .strict = o->strict,
                                   .store = *store,
                                   .queue_cap = o->queue,
                                   .pull = o->allow_pull ? &pull : NULL,
                                   .model_time_s = file_time_s(o->gguf),
                                   .build_id = T9_VERSION "-" T9_BUILD_ID};
    sampling_resolve(o, ss->model, &hp.prep.sampling);
    hp.about = (struct capabilities){.version = T9_VERSION,
                                     .build_id = T9_BUILD_ID,
                                     .numerics_id = info.numerics,
                                     .invariant = true};
    struct http_server *server = NULL;
    T9_TRY(http_server_new(&server, &hp, err));
    announce(o, ss, &info, name, http_server_port(server));
    char where[ADDRESS_BYTES], ready[ADDRESS_BYTES + NAME_MAX_BYTES + 64];
    address_text(o, http_server_port(server), where);
    snprintf(ready, sizeof ready, "READY=1\nSTATUS=Serving %s on %s", name, where);
    (void)notify_send(manager, ready);
    wait_for_end(ss->engine);
    (void)notify_send(manager, "STOPPING=1\nSTATUS=Running answers are given time to end");
    LOG_INFO("serve", "stopping: running answers have %d s to end", o->drain_timeout_s);
    http_server_stop(server, (uint32_t)o->drain_timeout_s * 1000);
    return T9_STATUS_OK;
}

int cmd_serve(const struct cli_options *o)
{
    struct session ss = {0};
    struct t9_err err = {0};
    struct api_keys keys = {0};
    struct store *store = NULL;
    t9_status s = serve(o, &ss, &keys, &store, &err);
    store_close(store);
    session_close(&ss);
    config_api_keys_free(&keys);
    if (s == T9_STATUS_CANCELLED && cli_interrupts() > 0) {
        LOG_INFO("serve", "stopped before it listened");
        return EXIT_DONE;
    }
    return s == T9_STATUS_OK ? EXIT_DONE : cli_fail(&err);
}
