/*
 * cli/cli.h - private to cli/: the options, the commands and what they share.
 *
 * cli is the only place that knows argv, the environment, standard output and exit codes: 0 done,
 * 1 failed (one message on standard error), 2 wrong usage, 128 + the signal's number interrupted
 * (130 by SIGINT, 143 by SIGTERM). A server that a signal stops is done, also while it loads.
 */
#ifndef T9_CLI_CLI_H
#define T9_CLI_CLI_H

#include "backend/kv_geom.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "hub/hub.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_SIGNAL = 128 };

typedef enum cli_command {
    CLI_COMMAND_SERVE,
    CLI_COMMAND_RUN,
    CLI_COMMAND_INSPECT,
    CLI_COMMAND_TOKENIZE,
    CLI_COMMAND_DETOKENIZE,
    CLI_COMMAND_RENDER,
    CLI_COMMAND_EVAL,
    CLI_COMMAND_BENCH,
    CLI_COMMAND_PERPLEXITY,
    CLI_COMMAND_REPLAY,
    CLI_COMMAND_PULL,
    CLI_COMMAND_OPENAPI,
    CLI_COMMAND_HELP,
    CLI_COMMAND_COUNT,
} cli_command;

enum { CLI_LIST_MAX = 16 };
struct cli_list {
    int32_t v[CLI_LIST_MAX];
    int n;
};

struct cli_texts {
    const char *v[CLI_LIST_MAX];
    int n;
};

/* Read by `serve` when there is no --config. */
#define CLI_CONFIG_PATH "/etc/tempo9/tempo9.conf"

/* What an option said of sampling; NAN, and -1 for top_k: nothing. */
struct cli_sampling {
    float temperature, top_p, min_p, repetition_penalty;
    int32_t top_k;
    uint64_t seed;
};

struct cli_options {
    cli_command command;
    bool help, help_all, version, json;
    const char *config;      /* --config */
    const char *config_used; /* the file that was read, or NULL */

    /* help */
    cli_command topic;
    bool has_topic, man;
    const char *completion; /* shell */

    /* model and backend */
    const char *gguf, *backend, *isa, *name;
    const char *hf, *ollama; /* instead of gguf */
    bool list_ollama, offline;
    int32_t retries, stall_timeout_s;
    int32_t threads;
    kv_type kv_type;
    bool kv_type_set;

    /* serving */
    const char *host;
    int32_t port, max_length, max_batch, step_tokens, queue, drain_timeout_s;
    int32_t max_per_client; /* 0: no limit */
    bool allow_long;        /* max_length may exceed the model's limit */
    const char *plan_log;   /* file to write, or NULL */
    bool log_prompts;
    uint64_t kv_memory_bytes; /* 0: half of what is available after loading */
    bool insecure, strict, allow_pull;
    struct cli_texts api_keys;
    const char *api_key_file;
    const char *unix_path, *tls_cert, *tls_key;
    int32_t max_connections, max_connections_per_ip, request_timeout_s;
    int32_t rate_limit; /* requests a minute; 0: no limit */
    uint64_t max_body_bytes;
    const char *cors_origins; /* comma list, or NULL */
    const char *store;        /* file that responses are kept in, or NULL */
    uint64_t store_bytes;
    int32_t store_responses, store_days;

    /* parsed now, refused by name until they land */
    const char *mmproj, *image;
    int32_t speculation_k;
    bool deterministic;

    /* generation */
    struct cli_sampling sampling;
    bool seed_set;
    int32_t max_tokens;
    const char *prompt, *system;

    /* tools */
    bool ids, pieces, special;
    const char *template_path, *input, *tokens, *logits, *replay;
    int64_t now_unix_s;
    bool now_set;
    int32_t chunk;

    /* bench */
    struct cli_list bench_prompt, bench_depth, bench_batch, bench_mixed;
    int32_t bench_decode, bench_repeat;
    bool csv, markdown;

    /* perplexity */
    const char *file, *save_logits, *kl;
    int32_t context, stride, windows; /* 0: half of context; all */

    log_level log_level;
    bool log_json;
};

/* Fills `o` from the configuration file and argv. Returns EXIT_DONE; EXIT_USAGE after a message on
 * stderr; EXIT_FAILED after one about a model that is not there. */
int cli_options_parse(struct cli_options *o, int argc, char **argv);
/* Help of the program (in short, or with --help-all whole) or of one command. */
void cli_help(const struct cli_options *o);
const char *cli_command_name(cli_command c);

/* Prints "tempo9: <message>" to standard error and returns EXIT_FAILED, or what a signal makes of
 * it where the status is CANCELLED. */
int cli_fail(const struct t9_err *err);
/* A text from elsewhere, with control characters escaped. */
void cli_put_message(FILE *out, const char *msg);
void cli_put_text(FILE *out, str text);
/* To standard output; what fails shows in cli_finish_stdout. p may be NULL when n is 0. A terminal
 * is given control characters as \x1b and the like (see visible.h), anything else every byte. */
void cli_write(const void *p, size_t n);
/* A text has ended: on a terminal an unfinished character shows as U+FFFD. */
void cli_write_end(void);
/* Flushes standard output; EXIT_FAILED with a message when that failed (disk full, closed pipe). */
int cli_finish_stdout(void);

/* What a command that answers needs, through the library: model and engine, with a progress line on
 * a terminal. Only tempo9.h is needed for what comes after. Commands that look below it have
 * cli/runtime.h. */
struct session {
    struct t9_model *model;
    struct t9_engine *engine;
    struct plan_file *plan_file; /* NULL: no plan log */
};
t9_status session_open(struct session *s, const struct cli_options *o, struct t9_err *err);
void session_close(struct session *s);
/* KV type to use: --kv-type, else f32 for ref and f16 for the others. */
kv_type session_kv_type(const struct cli_options *o);

/* Set by SIGINT, SIGTERM and, after cli_hangup_watch, SIGHUP; counts. */
int cli_interrupts(void);
void cli_interrupts_clear(void);
/* The exit code of a command that was interrupted: EXIT_SIGNAL + the last signal. */
int cli_interrupt_status(void);
/* Sleeps until the first interrupt; from then on another one ends the program at once. */
void cli_interrupt_wait(void);
/* The same for at most timeout_ms (-1: no limit); whether one came. */
bool cli_interrupt_wait_for(int64_t timeout_ms);
/* Ignores SIGPIPE; with `watch_interrupts`, SIGINT and SIGTERM count (no SA_RESTART: a blocked read
 * returns), else they end the program. */
void cli_signals_init(bool watch_interrupts);
/* SIGHUP counts like the others, unless it is ignored (nohup). */
void cli_hangup_watch(void);

/* Machine and build, for --version --json and every benchmark (decision D16). Writes the members
 * "version", "build", "machine" of a JSON object without braces. */
struct runtime;
void identity_write(struct buf *out, const struct runtime *rt);
/* The members "architectures" and "types": names of what can be loaded. */
void identity_known_write(struct buf *out);
void identity_cpu_write(struct buf *out); /* the processor's name, as it is */

/* The keys that clients may send: --api-key and the lines of --api-key-file, else TEMPO9_API_KEY.
 */
struct api_keys {
    struct buf text; /* of the file */
    const char **v;
    size_t n;
};
t9_status config_api_keys(const struct cli_options *o, struct api_keys *out, struct t9_err *err);
void config_api_keys_free(struct api_keys *k); /* accepts a zeroed one */

/* Where the hub is and what it may know, from HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HOME,
 * HF_HUB_OFFLINE and --offline. */
struct config_hub {
    char cache_dir[HUB_FILE_PATH_MAX];
    const char *endpoint, *user_agent;
    char token[512]; /* "": none */
    bool offline;
};
t9_status config_hub_read(struct config_hub *c, const struct cli_options *o, struct t9_err *err);
/* Ollama's store: OLLAMA_MODELS, else ~/.ollama/models. */
t9_status config_ollama_dir(char *out, size_t cap, struct t9_err *err);

/* What systemd gave: where to tell of our state (NULL: nobody listens), and the time within which
 * it wants to hear of us (0: it does not). */
const char *config_notify_socket(void);
/* Whether standard error leads to its journal, and not to a file or pipe that was put there since.
 */
bool config_stderr_is_journal(void);
uint64_t config_watchdog_us(void);

/* Sampling: marks everything as not said; takes what `p` does not say from `from`; and what the
 * server uses where a request says nothing: options, else the file's recommendation, else plain. */
void sampling_init(struct cli_sampling *p);
void sampling_fill(struct cli_sampling *p, const struct cli_sampling *from);
struct t9_model;
struct t9_request_params;
void sampling_resolve(const struct cli_options *o, const struct t9_model *m,
                      struct t9_request_params *out);

int cmd_serve(const struct cli_options *o);
int cmd_run(const struct cli_options *o);
int cmd_inspect(const struct cli_options *o);
int cmd_tokenize(const struct cli_options *o);
int cmd_detokenize(const struct cli_options *o);
int cmd_render(const struct cli_options *o);
int cmd_eval(const struct cli_options *o);
int cmd_bench(const struct cli_options *o);
int cmd_perplexity(const struct cli_options *o);
int cmd_replay(const struct cli_options *o);
int cmd_openapi(const struct cli_options *o);
int cmd_pull(const struct cli_options *o);
int cmd_help(const struct cli_options *o);

#endif
