/*
 * cli/options.c - reads the command line, after the configuration file, which it overrides.
 *
 * Every value is checked where it is read: a number that does not parse, is out of range or has
 * rest text is wrong usage (exit 2), never a default.
 */
#include "cli/opttable.h"

#include "base/num.h"
#include "cli/conffile.h"

#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Options there may be, for the tables of getopt. */
enum { OPTIONS_MAX = 160 };

const char *cli_command_name(cli_command c)
{
    return COMMANDS[c].name;
}

void sampling_init(struct cli_sampling *p)
{
    *p = (struct cli_sampling){0};
    p->temperature = p->top_p = p->min_p = p->repetition_penalty = NAN;
    p->top_k = -1;
}

void sampling_fill(struct cli_sampling *p, const struct cli_sampling *from)
{
    if (isnan(p->temperature))
        p->temperature = from->temperature;
    if (isnan(p->top_p))
        p->top_p = from->top_p;
    if (isnan(p->min_p))
        p->min_p = from->min_p;
    if (isnan(p->repetition_penalty))
        p->repetition_penalty = from->repetition_penalty;
    if (p->top_k < 0)
        p->top_k = from->top_k;
}

static void options_init(struct cli_options *o)
{
    memset(o, 0, sizeof *o);
    o->port = -1;
    o->retries = 5;
    o->stall_timeout_s = 60;
    o->max_batch = 16;
    o->step_tokens = 256;
    o->queue = 256;
    o->drain_timeout_s = 10;
    o->max_connections = 4096;
    o->max_connections_per_ip = 256;
    o->max_body_bytes = (uint64_t)64 << 20;
    o->store_bytes = (uint64_t)1 << 30;
    o->store_responses = 10000;
    o->store_days = 30;
    o->request_timeout_s = 30;
    o->backend = "cpu";
    o->log_level = LOG_LEVEL_INFO;
    o->chunk = 256;
    sampling_init(&o->sampling);
    o->bench_prompt = (struct cli_list){{512}, 1};
    o->bench_depth = (struct cli_list){{0}, 1};
    o->bench_batch = (struct cli_list){{1}, 1};
    o->context = 512;
    o->bench_decode = 128;
    o->bench_repeat = 5;
}

/* The server asks the model file first. */
static void fill_sampling(struct cli_options *o)
{
    static const struct cli_sampling chat = {
        .temperature = 0.8f, .top_p = 0.95f, .min_p = 0.05f, .repetition_penalty = 1.0f};
    if (o->command != CLI_COMMAND_SERVE)
        sampling_fill(&o->sampling, &chat);
}

static int usage_error(const struct cli_options *o, const char *what, const char *value,
                       const char *why)
{
    fprintf(stderr, "tempo9: %s%s%s: %s\nusage: tempo9 %s\nTry 'tempo9 %s --help'.\n", what,
            value && *value ? " " : "", value ? value : "", why, COMMANDS[o->command].usage,
            COMMANDS[o->command].name);
    return EXIT_USAGE;
}

static bool parse_i32(const char *text, double min, double max, int32_t *out)
{
    int64_t v;
    if (!num_parse_i64(str_from(text), &v) || (double)v < min || (double)v > max)
        return false;
    *out = (int32_t)v;
    return true;
}

static bool parse_list(const char *text, double min, double max, struct cli_list *out)
{
    out->n = 0;
    str rest = str_from(text);
    for (;;) {
        size_t comma = str_find(rest, STR(","), 0);
        str item = comma == (size_t)-1 ? rest : str_slice(rest, 0, comma);
        int64_t v;
        if (out->n == CLI_LIST_MAX || !num_parse_i64(item, &v) || (double)v < min ||
            (double)v > max)
            return false;
        out->v[out->n++] = (int32_t)v;
        if (comma == (size_t)-1)
            return true;
        rest = str_slice(rest, comma + 1, rest.n);
    }
}

static bool parse_now(const char *text, int64_t *out)
{
    static const uint8_t from[6] = {0, 5, 8, 11, 14, 17}, len[6] = {4, 2, 2, 2, 2, 2};
    static const int64_t max[6] = {9999, 12, 31, 23, 59, 60};
    static const char separator[6] = {'-', '-', 'T', ':', ':', 0};
    int64_t v[6];
    if (strlen(text) != 19)
        return false;
    for (int i = 0; i < 6; i++) {
        if (!num_parse_i64((str){text + from[i], len[i]}, &v[i]) || v[i] < 0 || v[i] > max[i])
            return false;
        if (separator[i] && text[from[i] + len[i]] != separator[i])
            return false;
    }
    if (v[1] < 1 || v[2] < 1)
        return false;
    struct tm tm = {.tm_year = (int)v[0] - 1900,
                    .tm_mon = (int)v[1] - 1,
                    .tm_mday = (int)v[2],
                    .tm_hour = (int)v[3],
                    .tm_min = (int)v[4],
                    .tm_sec = (int)v[5]};
    *out = timegm(&tm); /* UTC; a day that the month lacks becomes the next month's */
    return true;
}

static bool add_text(struct cli_texts *list, const char *value)
{
    if (list->n == CLI_LIST_MAX || !value[0])
        return false;
    list->v[list->n++] = value;
    return true;
}

static bool option_set(struct cli_options *o, const struct opt *opt, const char *value)
{
    char *field = (char *)o + opt->offset;
    double d;
    switch (opt->kind) {
    case OPT_FLAG: *(bool *)(void *)field = true; return true;
    case OPT_TEXT: *(const char **)(void *)field = value; return value[0] != 0;
    case OPT_TEXTS: return add_text((struct cli_texts *)(void *)field, value);
    case OPT_I32: return parse_i32(value, opt->min, opt->max, (int32_t *)(void *)field);
    case OPT_BYTES:
        return num_parse_bytes(str_from(value), (uint64_t *)(void *)field) &&
               *(uint64_t *)(void *)field > 0;
    case OPT_FLOAT:
        if (!num_parse_f64(str_from(value), &d) || !(d >= opt->min && d <= opt->max))
            return false;
        *(float *)(void *)field = (float)d;
        return true;
    case OPT_SEED:
        o->seed_set = true;
        return num_parse_u64(str_from(value), (uint64_t *)(void *)field);
    case OPT_LIST: return parse_list(value, opt->min, opt->max, (struct cli_list *)(void *)field);
    case OPT_KV: o->kv_type_set = true; return kv_type_parse(value, &o->kv_type);
    case OPT_LOG: return log_level_parse(value, &o->log_level);
    case OPT_NOW: o->now_set = true; return parse_now(value, &o->now_unix_s);
    }
    return false;
}

static void range_text(const struct opt *opt, char *out, size_t cap)
{
    if (opt->kind == OPT_I32 || opt->kind == OPT_FLOAT || opt->kind == OPT_LIST)
        snprintf(out, cap, "not a value from %.10g to %.10g", opt->min, opt->max);
    else if (opt->kind == OPT_TEXTS)
        snprintf(out, cap, "empty, or more than %d of them", CLI_LIST_MAX);
    else if (opt->kind == OPT_TEXT)
        snprintf(out, cap, "empty");
    else
        snprintf(out, cap, "not a valid %s", opt->arg);
}

static int find_command(const char *name)
{
    for (int i = 0; i < CLI_COMMAND_COUNT; i++)
        if (strcmp(name, COMMANDS[i].name) == 0)
            return i;
    return -1;
}

/* The sub-command is the first word, if it is one; "tempo9 --gguf M" and "tempo9 M.gguf" serve, and
 * so does any word that is a path. Returns the index of the first word after it; 0: unknown. */
static int command_find(struct cli_options *o, int argc, char **argv)
{
    o->command = CLI_COMMAND_SERVE;
    if (argc < 2 || argv[1][0] == '-')
        return 1;
    int found = find_command(argv[1]);
    if (found >= 0) {
        o->command = (cli_command)found;
        return 2;
    }
    bool path = strchr(argv[1], '/') || str_has_suffix(str_from(argv[1]), STR(".gguf")) ||
                access(argv[1], F_OK) == 0;
    return path ? 1 : 0;
}

static int unknown_command(const struct cli_options *o, const char *word)
{
    char with_ending[4096], known[256] = "known:";
    int n = snprintf(with_ending, sizeof with_ending, "%s.gguf", word);
    if (n > 0 && (size_t)n < sizeof with_ending && access(with_ending, F_OK) == 0)
        return usage_error(o, "no command and no file", word, "did you mean the same with .gguf?");
    for (int i = 0; i < CLI_COMMAND_COUNT; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, " %s", COMMANDS[i].name);
    }
    return usage_error(o, "unknown command", word, known);
}

/* A model that is not there is told before anything else happens, with what may have been meant. */
static int check_model_path(const struct cli_options *o)
{
    struct stat sb;
    struct t9_err err = {0};
    char path[4096];
    if (!o->gguf || o->help || o->help_all || o->version)
        return EXIT_DONE;
    if (stat(o->gguf, &sb) == 0) {
        if (!S_ISDIR(sb.st_mode))
            return EXIT_DONE;
        (void)t9_fail(&err, T9_STATUS_INVALID, "%s is a folder: name the .gguf file in it",
                      o->gguf);
        return cli_fail(&err);
    }
    int n = snprintf(path, sizeof path, "%s.gguf", o->gguf);
    if (n <= 0 || (size_t)n >= sizeof path || stat(path, &sb) != 0)
        return EXIT_DONE; /* opening it says what is wrong */
    (void)t9_fail(&err, T9_STATUS_NOT_FOUND, "%s: no such file; did you mean %s?", o->gguf, path);
    return cli_fail(&err);
}

/* Loose words: the model of any command that takes one. */
static int positional(struct cli_options *o, int n, char **words)
{
    if (n > 0 && o->command == CLI_COMMAND_HELP && find_command(words[0]) >= 0) {
        o->topic = (cli_command)find_command(words[0]);
        o->has_topic = true;
        n--, words++;
    }
    if (n > 0 && opt_is_of(&OPTIONS[0], o->command)) { /* --gguf */
        o->gguf = words[0];
        n--, words++;
    }
    if (n > 0 && o->command == CLI_COMMAND_REPLAY) {
        o->replay = words[0];
        n--, words++;
    }
    if (n > 0 && o->command == CLI_COMMAND_PULL && !o->hf) {
        o->hf = words[0];
        n--, words++;
    }
    if (n == 0)
        return EXIT_DONE;
    return usage_error(o, "unexpected word", words[0],
                       o->command == CLI_COMMAND_RUN ? "a prompt is given with -p"
                                                     : "nothing takes it");
}

static int required(const struct cli_options *o)
{
    if (o->help || o->help_all || o->version || o->command == CLI_COMMAND_HELP ||
        o->command == CLI_COMMAND_OPENAPI)
        return EXIT_DONE;
    if (o->command == CLI_COMMAND_RENDER) {
        if (!o->template_path || !o->input)
            return usage_error(o, "--template and --input", NULL, "both are needed");
    } else if (o->command == CLI_COMMAND_REPLAY) {
        if (!o->replay)
            return usage_error(o, "FILE", NULL, "a plan log is needed");
    } else if (o->command == CLI_COMMAND_PULL) {
        if (!o->hf)
            return usage_error(o, "OWNER/REPO", NULL, "a repository is needed");
    } else if (o->list_ollama) {
        return EXIT_DONE;
    } else if ((o->gguf != NULL) + (o->hf != NULL) + (o->ollama != NULL) > 1) {
        return usage_error(o, "--gguf, --hf and --ollama", NULL, "only one of them");
    } else if (!o->gguf && !o->hf && !o->ollama) {
        return usage_error(o, "--gguf", NULL,
                           "a model file is needed; tempo9 --help shows how to begin");
    }
    if (o->command == CLI_COMMAND_EVAL && (!o->tokens || !o->logits))
        return usage_error(o, "--tokens and --logits", NULL, "both are needed");
    if (o->command == CLI_COMMAND_PERPLEXITY && !o->file)
        return usage_error(o, "--file", NULL, "a text is needed");
    if (o->json + o->csv + o->markdown > 1)
        return usage_error(o, "--json, --csv and --markdown", NULL, "only one of them");
    if (o->mmproj || o->image)
        return usage_error(o, o->mmproj ? "--mmproj" : "--image", NULL,
                           "images are not supported yet");
    if (o->speculation_k > 0)
        return usage_error(o, "--speculation-k", NULL, "speculation is not supported yet; use 0");
    if (o->log_prompts && o->log_level != LOG_LEVEL_DEBUG)
        return usage_error(o, "--log-prompts", NULL, "does something with --log-level debug only");
    if (o->sampling.top_p <= 0)
        return usage_error(o, "--top-p", NULL, "must be greater than 0");
    if (o->json && o->command != CLI_COMMAND_INSPECT && o->command != CLI_COMMAND_BENCH &&
        o->command != CLI_COMMAND_PERPLEXITY)
        return usage_error(o, "--json", NULL,
                           "goes with inspect, bench, perplexity or --version here");
    if (o->ids && o->pieces)
        return usage_error(o, "--ids and --pieces", NULL, "only one of them");
    return EXIT_DONE;
}

/* The table as getopt wants it, reduced to one command. */
struct getopt_table {
    struct option longs[OPTIONS_MAX + 1];
    const struct opt *by_long[OPTIONS_MAX]; /* of value 256 + index */
    const struct opt *by_letter[128];
    char shorts[3 * OPTIONS_MAX + 2];
};

static void getopt_table_init(struct getopt_table *t, cli_command command)
{
    memset(t, 0, sizeof *t);
    size_t n_shorts = 0;
    int n = 0;
    t->shorts[n_shorts++] = ':'; /* tells a missing value from an unknown option */
    for (size_t i = 0; i < N_OPTIONS && n < OPTIONS_MAX; i++) {
        const struct opt *opt = &OPTIONS[i];
        bool of_version = strcmp(opt->name, "json") == 0; /* --version takes it everywhere */
        if (!(opt->commands & (1u << command)) && !of_version)
            continue;
        int has_arg = opt->kind == OPT_FLAG ? no_argument : required_argument;
        t->by_long[n] = opt;
        t->longs[n] = (struct option){opt->name, has_arg, NULL, 256 + n};
        n++;
        if (!opt->letter)
            continue;
        t->by_letter[(unsigned char)opt->letter] = opt;
        t->shorts[n_shorts++] = opt->letter;
        if (has_arg)
            t->shorts[n_shorts++] = ':';
    }
}

/* Says what getopt did not take: `word` is the option at fault. */
static int refuse(const struct cli_options *o, int c, const char *word)
{
    if (c == ':')
        return usage_error(o, "option", word, "its value is missing");
    for (size_t i = 0; i < N_OPTIONS; i++) {
        size_t n = strlen(OPTIONS[i].name);
        if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, OPTIONS[i].name, n) != 0)
            continue;
        if (word[n + 2] == '=' && OPTIONS[i].kind == OPT_FLAG)
            return usage_error(o, "option", word, "it takes no value");
        if (word[n + 2] == 0 && !(OPTIONS[i].commands & (1u << o->command)))
            return usage_error(o, "option", word, "this command does not have it");
    }
    return usage_error(o, "option", word, "unknown or ambiguous");
}

/* ---- where the server listens ---- */

/* Whether one place alone names a unix socket and an address, of which one would do nothing. */
static bool listens_twice(const struct cli_options *o)
{
    return o->unix_path && (o->host || o->port >= 0);
}

/* What the command line says about it replaces what the file says; then what holds without both. */
static void fill_address(struct cli_options *o, const struct cli_options *file)
{
    if (!o->unix_path && !o->host && o->port < 0)
        o->unix_path = file->unix_path;
    if (!o->unix_path && !o->host)
        o->host = file->host;
    if (!o->unix_path && o->port < 0)
        o->port = file->port;
    if (!o->host)
        o->host = "127.0.0.1";
    if (o->port < 0)
        o->port = 11435;
}

/* ---- the configuration file ---- */

struct config_reader {
    struct cli_options *o;
    const char *path;
    int lines[OPTIONS_MAX]; /* where each option was set; 0: not yet */
};

/* Which of two lines was meant is not for us to guess. */
static t9_status note_line(struct config_reader *r, const struct opt *opt, int line,
                           struct t9_err *err)
{
    int *first = &r->lines[opt - OPTIONS];
    if (*first && opt->kind != OPT_TEXTS)
        return t9_fail(err, T9_STATUS_INVALID, "%s:%d: %s is on line %d already", r->path, line,
                       opt->name, *first);
    *first = line;
    return T9_STATUS_OK;
}

/* One line of it. */
static t9_status take_line(void *reader, int line, char *name, char *value, struct t9_err *err)
{
    struct config_reader *r = reader;
    const struct opt *opt = NULL;
    char why[96];
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (opt_is_of(&OPTIONS[i], CLI_COMMAND_SERVE) && strcmp(OPTIONS[i].name, name) == 0)
            opt = &OPTIONS[i];
    bool told_only = opt && (opt->offset == offsetof(struct cli_options, help) ||
                             opt->offset == offsetof(struct cli_options, help_all) ||
                             opt->offset == offsetof(struct cli_options, version) ||
                             opt->offset == offsetof(struct cli_options, list_ollama) ||
                             opt->offset == offsetof(struct cli_options, config));
    if (!opt || told_only)
        return t9_fail(err, T9_STATUS_INVALID, "%s:%d: there is no option \"%.64s\" for this file",
                       r->path, line, name);
    T9_TRY(note_line(r, opt, line, err));
    if (opt->kind == OPT_FLAG) {
        bool *field = (bool *)(void *)((char *)r->o + opt->offset);
        if (!value || conffile_bool(value, field)) {
            *field = value ? *field : true;
            return T9_STATUS_OK;
        }
        return t9_fail(err, T9_STATUS_INVALID, "%s:%d: %s is yes or no, not \"%.64s\"", r->path,
                       line, name, value);
    }
    if (!value)
        return t9_fail(err, T9_STATUS_INVALID, "%s:%d: %s needs a value: %s = %s", r->path, line,
                       name, name, opt->arg);
    if (option_set(r->o, opt, value))
        return T9_STATUS_OK;
    range_text(opt, why, sizeof why);
    return t9_fail(err, T9_STATUS_INVALID, "%s:%d: %s = %.64s: %s", r->path, line, name, value,
                   why);
}

/* --config FILE, else the system's file if it is there and may be read. */
static int read_config(struct cli_options *o)
{
    struct config_reader reader = {.o = o, .path = o->config};
    struct t9_err err = {0};
    if (o->command != CLI_COMMAND_SERVE || o->help || o->help_all || o->version)
        return EXIT_DONE;
    if (!o->config) {
        reader.path = CLI_CONFIG_PATH;
        if (access(reader.path, R_OK) != 0)
            return EXIT_DONE;
    }
    t9_status s = conffile_read(reader.path, take_line, &reader, &err);
    if (s == T9_STATUS_OK && listens_twice(o))
        s = t9_fail(&err, T9_STATUS_INVALID,
                    "%s: unix is there instead of host and port, not beside them", reader.path);
    if (s != T9_STATUS_OK) {
        (void)cli_fail(&err);
        return EXIT_USAGE;
    }
    o->config_used = reader.path;
    return EXIT_DONE;
}

/* ---- the command line ---- */

/* Reads the options from the words; with `early` only those that decide how the rest is read. */
static int read_words(struct cli_options *o, int argc, char **argv, bool early)
{
    struct getopt_table table;
    bool begun[OPTIONS_MAX] = {false}; /* lists that this pass has emptied */
    getopt_table_init(&table, o->command);
    opterr = 0;
#ifdef __APPLE__
    optreset = 1;
    optind = 1;
#else
    optind = 0; /* begin anew */
#endif
    for (;;) {
        int c = getopt_long(argc, argv, table.shorts, table.longs, NULL);
        if (c == -1)
            return EXIT_DONE;
        if (c == '?' || c == ':') {
            char letter[3] = {'-', (char)optopt, 0};
            return refuse(o, c, optopt > 0 && optopt < 128 ? letter : argv[optind - 1]);
        }
        const struct opt *opt = c >= 256 ? table.by_long[c - 256] : table.by_letter[c & 127];
        bool decides = opt->offset == offsetof(struct cli_options, config) ||
                       (opt->group == OPT_GROUP_GENERAL && opt->kind == OPT_FLAG);
        if (early && !decides)
            continue;
        if (opt->kind == OPT_TEXTS && !begun[opt - OPTIONS]) { /* the file's are replaced */
            ((struct cli_texts *)(void *)((char *)o + opt->offset))->n = 0;
            begun[opt - OPTIONS] = true;
        }
        if (!option_set(o, opt, optarg)) {
            char why[96];
            range_text(opt, why, sizeof why);
            char what[40];
            snprintf(what, sizeof what, "--%s", opt->name);
            return usage_error(o, what, optarg, why);
        }
    }
}

int cli_options_parse(struct cli_options *o, int argc, char **argv)
{
    options_init(o);
    int first = command_find(o, argc, argv);
    if (o->command != CLI_COMMAND_SERVE) /* the others print an answer, not their progress */
        o->log_level = LOG_LEVEL_WARN;
    if (first == 0)
        return unknown_command(o, argv[1]);
    argc -= first - 1; /* the command's own name is where getopt wants the program's */
    argv += first - 1;
    int rc = read_words(o, argc, argv, true);
    if (rc == EXIT_DONE)
        rc = read_config(o);
    const struct cli_options file = *o;
    o->gguf = o->hf = o->ollama = o->unix_path = o->host = NULL;
    o->port = -1;
    if (rc == EXIT_DONE)
        rc = read_words(o, argc, argv, false);
    if (rc == EXIT_DONE)
        rc = positional(o, argc - optind, argv + optind);
    if (!o->gguf && !o->hf && !o->ollama) { /* a model named in any way replaces the file's */
        o->gguf = file.gguf;
        o->hf = file.hf;
        o->ollama = file.ollama;
    }
    if (rc == EXIT_DONE && listens_twice(o))
        rc = usage_error(o, "--unix", NULL, "instead of --host and --port, not beside them");
    fill_address(o, &file);
    fill_sampling(o);
    if (rc == EXIT_DONE)
        rc = required(o);
    return rc == EXIT_DONE ? check_model_path(o) : rc;
}
