/*
 * cli/options.c - one table makes the flags, their parsing and --help.
 *
 * Every value is checked where it is read: a number that does not parse, is out of range or has
 * rest text is wrong usage (exit 2), never a default.
 */
#include "cli/cli.h"

#include "base/num.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define C(cmd)   (1u << CLI_COMMAND_##cmd)
#define C_ALL    ((1u << CLI_COMMAND_COUNT) - 1)
#define C_MODEL  (C(SERVE) | C(RUN) | C(EVAL) | C(BENCH))
#define C_GGUF   (C_MODEL | C(INSPECT) | C(TOKENIZE) | C(DETOKENIZE))
#define C_ENGINE (C(SERVE) | C(RUN) | C(BENCH))

typedef enum opt_kind {
    OPT_FLAG,  /* bool */
    OPT_TEXT,  /* const char * */
    OPT_I32,   /* int32_t in [min, max] */
    OPT_BYTES, /* uint64_t with K, M, G, T */
    OPT_FLOAT, /* float in [min, max] */
    OPT_SEED,  /* uint64_t and seed_set */
    OPT_LIST,  /* struct cli_list of numbers in [min, max] */
    OPT_KV,
    OPT_LOG,
    OPT_NOW,
} opt_kind;

struct opt {
    const char *name;
    char letter; /* 0: none */
    opt_kind kind;
    uint32_t commands;
    size_t offset;
    double min, max;
    const char *arg, *help;
};

#define AT(field) offsetof(struct cli_options, field)
static const struct opt OPTIONS[] = {
    {"gguf", 'm', OPT_TEXT, C_GGUF, AT(gguf), 0, 0, "FILE",
     "model to load; of a split model, any part"},
    {"host", 0, OPT_TEXT, C(SERVE), AT(host), 0, 0, "ADDR", "address to listen on (127.0.0.1)"},
    {"port", 0, OPT_I32, C(SERVE), AT(port), 0, 65535, "N",
     "port to listen on (11435); 0 takes a free one"},
    {"name", 0, OPT_TEXT, C(SERVE), AT(name), 0, 0, "NAME",
     "model name that clients see (the file's name)"},
    {"max-length", 0, OPT_I32, C_ENGINE, AT(max_length), 2, INT32_MAX, "N",
     "tokens of one request, prompt and reply (the model's limit)"},
    {"allow-long", 0, OPT_FLAG, C_ENGINE, AT(allow_long), 0, 0, NULL,
     "let --max-length exceed the model's limit, for tests: what comes out beyond it is of no use"},
    {"max-batch", 0, OPT_I32, C_ENGINE, AT(max_batch), 1, 1024, "N",
     "sequences that run at once (16)"},
    {"step-tokens", 0, OPT_I32, C_ENGINE, AT(step_tokens), 1, 65536, "N",
     "rows of one engine step at most (256)"},
    {"queue", 0, OPT_I32, C(SERVE), AT(queue), 1, 65536, "N",
     "requests that may wait before 503 is answered (256)"},
    {"max-per-client", 0, OPT_I32, C(SERVE), AT(max_per_client), 1, 65536, "N",
     "sequences of one client that run at once; others of it wait, and half of the queue is the "
     "most that it gets (no limit)"},
    {"drain-timeout", 0, OPT_I32, C(SERVE), AT(drain_timeout_s), 0, 86400, "SECONDS",
     "time that running answers have to end when the server is stopped (10)"},
    {"kv-memory", 0, OPT_BYTES, C_ENGINE, AT(kv_memory_bytes), 0, 0, "SIZE",
     "memory for keys and values, such as 512M or 4G (half of what is free)"},
    {"api-key", 0, OPT_TEXT, C(SERVE), AT(api_key), 0, 0, "KEY",
     "clients must send this key (TEMPO9_API_KEY of the environment, which ps does not show)"},
    {"cors-origin", 0, OPT_TEXT, C(SERVE), AT(cors_origins), 0, 0, "ORIGIN,..",
     "web pages of these origins may ask, such as https://app.example (none but our own)"},
    {"insecure", 0, OPT_FLAG, C(SERVE), AT(insecure), 0, 0, NULL,
     "allow --host beyond loopback without a key"},
    {"strict", 0, OPT_FLAG, C(SERVE), AT(strict), 0, 0, NULL,
     "refuse unknown request fields instead of warning"},
    {"plan-log", 0, OPT_TEXT, C(SERVE), AT(plan_log), 0, 0, "FILE",
     "write what the scheduler decided in each step; tempo9 replay checks it"},
    {"log-prompts", 0, OPT_FLAG, C(SERVE), AT(log_prompts), 0, 0, NULL,
     "with --log-level debug: log some words of prompts where they leave a cached text"},
    {"backend", 0, OPT_TEXT, C_MODEL, AT(backend), 0, 0, "NAME",
     "cpu (default), canon (scalar definition of its numbers) or ref (float32)"},
    {"isa", 0, OPT_TEXT, C_MODEL, AT(isa), 0, 0, "NAME",
     "instruction set of the cpu backend: avx512, avx2, scalar (the best there is)"},
    {"threads", 't', OPT_I32, C_MODEL, AT(threads), 1, 512, "N", "compute threads (all CPUs)"},
    {"kv-type", 0, OPT_KV, C_MODEL, AT(kv_type), 0, 0, "TYPE",
     "format of keys and values: f16, bf16, q8_0, f32 (f16; f32 with --backend ref)"},
    {"deterministic", 0, OPT_FLAG, C_MODEL, AT(deterministic), 0, 0, NULL,
     "same bits in any batch; always so on the CPU"},
    {"mmproj", 0, OPT_TEXT, C_MODEL, AT(mmproj), 0, 0, "FILE", "image encoder (not yet supported)"},
    {"image", 0, OPT_TEXT, C(EVAL), AT(image), 0, 0, "FILE", "image (not yet supported)"},
    {"speculation-k", 0, OPT_I32, C_ENGINE, AT(speculation_k), 0, 64, "N",
     "tokens to draft ahead (0; more is not yet supported)"},
    {"prompt", 'p', OPT_TEXT, C(RUN), AT(prompt), 0, 0, "TEXT",
     "answer this one message and leave"},
    {"system", 0, OPT_TEXT, C(RUN), AT(system), 0, 0, "TEXT", "system message"},
    {"max-tokens", 'n', OPT_I32, C(RUN), AT(max_tokens), 1, INT32_MAX, "N",
     "tokens of one answer (what the context allows)"},
    {"temperature", 0, OPT_FLOAT, C(RUN), AT(sampling.temperature), 0, 100, "X",
     "0 always takes the likeliest token (0.8)"},
    {"top-k", 0, OPT_I32, C(RUN), AT(sampling.top_k), 0, INT32_MAX, "N",
     "choose among the N likeliest tokens only; 0 is off (0)"},
    {"top-p", 0, OPT_FLOAT, C(RUN), AT(sampling.top_p), 0, 1, "X",
     "choose among the likeliest tokens that have this much probability together; 1 is off (0.95)"},
    {"min-p", 0, OPT_FLOAT, C(RUN), AT(sampling.min_p), 0, 1, "X",
     "leave out tokens below this share of the likeliest one's probability; 0 is off (0.05)"},
    {"seed", 0, OPT_SEED, C(RUN), AT(sampling.seed), 0, 0, "N",
     "the same seed gives the same text (random)"},
    {"ids", 0, OPT_FLAG, C(TOKENIZE), AT(ids), 0, 0, NULL, "print token ids (default)"},
    {"pieces", 0, OPT_FLAG, C(TOKENIZE), AT(pieces), 0, 0, NULL,
     "print the text of each token instead"},
    {"special", 0, OPT_FLAG, C(TOKENIZE) | C(DETOKENIZE), AT(special), 0, 0, NULL,
     "special tokens are read from the text (and BOS added) / written to it"},
    {"template", 0, OPT_TEXT, C(RENDER), AT(template_path), 0, 0, "FILE", "Jinja template"},
    {"input", 0, OPT_TEXT, C(RENDER), AT(input), 0, 0, "FILE",
     "JSON object of keyword arguments; - is standard input"},
    {"now", 0, OPT_NOW, C(RENDER), AT(now_unix_s), 0, 0, "TIME",
     "what strftime_now() shows, as 2026-01-31T23:59:59 (the clock)"},
    {"tokens", 0, OPT_TEXT, C(EVAL), AT(tokens), 0, 0, "FILE", "JSON array of token ids"},
    {"logits", 0, OPT_TEXT, C(EVAL), AT(logits), 0, 0, "FILE",
     "output: float32 little-endian [n_tokens, n_vocab]"},
    {"chunk", 0, OPT_I32, C(EVAL), AT(chunk), 1, 65536, "N", "tokens in one forward (256)"},
    {"prompt-tokens", 'p', OPT_LIST, C(BENCH), AT(bench_prompt), 0, 1 << 20, "N,..",
     "prompt lengths to time (512)"},
    {"decode-tokens", 'n', OPT_I32, C(BENCH), AT(bench_decode), 0, 1 << 20, "N",
     "tokens to decode (128)"},
    {"depth", 'd', OPT_LIST, C(BENCH), AT(bench_depth), 0, 1 << 20, "N,..",
     "tokens already in the context when decoding (0)"},
    {"batch", 'b', OPT_LIST, C(BENCH), AT(bench_batch), 1, 1024, "N,..",
     "sequences that decode at once (1)"},
    {"repeat", 'r', OPT_I32, C(BENCH), AT(bench_repeat), 1, 1000, "N", "runs of each cell (5)"},
    {"json", 0, OPT_FLAG, C(INSPECT) | C(BENCH), AT(json), 0, 0, NULL, "machine-readable output"},
    {"log-level", 0, OPT_LOG, C_ALL, AT(log_level), 0, 0, "LEVEL",
     "error, warn, info (default of serve) or debug"},
    {"log-json", 0, OPT_FLAG, C_ALL, AT(log_json), 0, 0, NULL, "log as JSON lines"},
    {"help", 'h', OPT_FLAG, C_ALL, AT(help), 0, 0, NULL, "this text"},
    {"version", 'V', OPT_FLAG, C_ALL, AT(version), 0, 0, NULL,
     "version; with --json the build and the machine as well"},
};

static const struct {
    const char *name, *usage, *help;
} COMMANDS[CLI_COMMAND_COUNT] = {
    [CLI_COMMAND_SERVE] = {"serve", "[serve] [--gguf] FILE [options]",
                           "Serve a model over HTTP (the default command)."},
    [CLI_COMMAND_RUN] = {"run", "run [--gguf] FILE [-p TEXT] [options]",
                         "Chat in the terminal. Ctrl-C stops the answer, Ctrl-D leaves."},
    [CLI_COMMAND_INSPECT] = {"inspect", "inspect FILE [--json]",
                             "Show metadata, tensors, sizes, chat template and quantisation mix."},
    [CLI_COMMAND_TOKENIZE] = {"tokenize", "tokenize --gguf FILE [--pieces] [--special] < TEXT",
                              "Text on standard input to a JSON array of token ids."},
    [CLI_COMMAND_DETOKENIZE] = {"detokenize", "detokenize --gguf FILE [--special] < IDS.json",
                                "JSON array of token ids on standard input to text."},
    [CLI_COMMAND_RENDER] = {"render", "render --template T.jinja --input CASE.json",
                            "Render one chat template, byte for byte."},
    [CLI_COMMAND_EVAL] = {"eval", "eval --gguf FILE --tokens IDS.json --logits OUT.f32",
                          "Logits of every position, with the kernels that serve."},
    [CLI_COMMAND_BENCH] = {"bench",
                           "bench --gguf FILE [-p N,..] [-n N] [-d N,..] [-b N,..] [--json]",
                           "Time prompt reading and decoding; results are checked."},
    [CLI_COMMAND_REPLAY] = {"replay", "replay FILE",
                            "Decide again each step of a plan log and compare."},
};

const char *cli_command_name(cli_command c)
{
    return COMMANDS[c].name;
}

static void options_init(struct cli_options *o)
{
    memset(o, 0, sizeof *o);
    o->host = "127.0.0.1";
    o->port = 11435;
    o->max_batch = 16;
    o->step_tokens = 256;
    o->queue = 256;
    o->drain_timeout_s = 10;
    o->backend = "cpu";
    o->log_level = LOG_LEVEL_INFO;
    o->chunk = 256;
    sample_params_init(&o->sampling);
    o->sampling.temperature = 0.8f;
    o->sampling.top_p = 0.95f;
    o->sampling.min_p = 0.05f;
    o->bench_prompt = (struct cli_list){{512}, 1};
    o->bench_depth = (struct cli_list){{0}, 1};
    o->bench_batch = (struct cli_list){{1}, 1};
    o->bench_decode = 128;
    o->bench_repeat = 5;
}

static int usage_error(const struct cli_options *o, const char *what, const char *value,
                       const char *why)
{
    fprintf(stderr, "tempo9: %s%s%s: %s\nusage: tempo9 %s\nTry 'tempo9 %s --help'.\n", what,
            value ? " " : "", value ? value : "", why, COMMANDS[o->command].usage,
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

static bool option_set(struct cli_options *o, const struct opt *opt, const char *value)
{
    char *field = (char *)o + opt->offset;
    double d;
    switch (opt->kind) {
    case OPT_FLAG: *(bool *)(void *)field = true; return true;
    case OPT_TEXT: *(const char **)(void *)field = value; return value[0] != 0;
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
    else
        snprintf(out, cap, "not a valid %s", opt->arg);
}

/* The sub-command is the first word, if it is one; "tempo9 --gguf M" and "tempo9 M.gguf" serve. */
static int command_find(struct cli_options *o, int argc, char **argv)
{
    o->command = CLI_COMMAND_SERVE;
    if (argc < 2 || argv[1][0] == '-')
        return 1;
    for (int i = 0; i < CLI_COMMAND_COUNT; i++)
        if (strcmp(argv[1], COMMANDS[i].name) == 0) {
            o->command = (cli_command)i;
            return 2;
        }
    return str_has_suffix(str_from(argv[1]), STR(".gguf")) ? 1 : 0;
}

/* Loose words: the model of any command that takes one. */
static int positional(struct cli_options *o, int n, char **words)
{
    if (n > 0 && (C_GGUF & (1u << o->command)) && !o->gguf) {
        o->gguf = words[0];
        n--, words++;
    }
    if (n > 0 && o->command == CLI_COMMAND_REPLAY) {
        o->replay = words[0];
        n--, words++;
    }
    return n > 0 ? usage_error(o, "unexpected word", words[0], "nothing takes it") : EXIT_DONE;
}

static int required(const struct cli_options *o)
{
    if (o->help || o->version)
        return EXIT_DONE;
    if (o->command == CLI_COMMAND_RENDER) {
        if (!o->template_path || !o->input)
            return usage_error(o, "--template and --input", NULL, "both are needed");
    } else if (o->command == CLI_COMMAND_REPLAY) {
        if (!o->replay)
            return usage_error(o, "FILE", NULL, "a plan log is needed");
    } else if (!o->gguf) {
        return usage_error(o, "--gguf", NULL, "a model file is needed");
    }
    if (o->command == CLI_COMMAND_EVAL && (!o->tokens || !o->logits))
        return usage_error(o, "--tokens and --logits", NULL, "both are needed");
    if (o->mmproj || o->image)
        return usage_error(o, o->mmproj ? "--mmproj" : "--image", NULL,
                           "images are not supported yet");
    if (o->speculation_k > 0)
        return usage_error(o, "--speculation-k", NULL, "speculation is not supported yet; use 0");
    if (o->log_prompts && o->log_level != LOG_LEVEL_DEBUG)
        return usage_error(o, "--log-prompts", NULL, "does something with --log-level debug only");
    if (!(o->sampling.top_p > 0))
        return usage_error(o, "--top-p", NULL, "must be greater than 0");
    if (o->json && o->command != CLI_COMMAND_INSPECT && o->command != CLI_COMMAND_BENCH)
        return usage_error(o, "--json", NULL, "goes with inspect, bench or --version here");
    if (o->ids && o->pieces)
        return usage_error(o, "--ids and --pieces", NULL, "only one of them");
    return EXIT_DONE;
}

/* The table as getopt wants it, reduced to one command. */
struct getopt_table {
    struct option longs[T9_COUNT(OPTIONS) + 1];
    const struct opt *by_long[T9_COUNT(OPTIONS)]; /* of value 256 + index */
    const struct opt *by_letter[128];
    char shorts[3 * T9_COUNT(OPTIONS) + 2];
};

static void getopt_table_init(struct getopt_table *t, cli_command command)
{
    memset(t, 0, sizeof *t);
    size_t n_shorts = 0;
    int n = 0;
    t->shorts[n_shorts++] = ':'; /* tells a missing value from an unknown option */
    for (size_t i = 0; i < T9_COUNT(OPTIONS); i++) {
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
    for (size_t i = 0; i < T9_COUNT(OPTIONS); i++) {
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

int cli_options_parse(struct cli_options *o, int argc, char **argv)
{
    options_init(o);
    int first = command_find(o, argc, argv);
    if (o->command != CLI_COMMAND_SERVE) /* the others print an answer, not their progress */
        o->log_level = LOG_LEVEL_WARN;
    if (first == 0)
        return usage_error(o, "unknown command", argv[1],
                           "known: serve run inspect tokenize detokenize render eval bench replay");

    struct getopt_table table;
    getopt_table_init(&table, o->command);
    argc -= first - 1; /* the command's own name is where getopt wants the program's */
    argv += first - 1;
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
            break;
        if (c == '?' || c == ':') {
            char letter[3] = {'-', (char)optopt, 0};
            return refuse(o, c, optopt > 0 && optopt < 128 ? letter : argv[optind - 1]);
        }
        const struct opt *opt = c >= 256 ? table.by_long[c - 256] : table.by_letter[c & 127];
        if (!option_set(o, opt, optarg)) {
            char why[96];
            range_text(opt, why, sizeof why);
            char what[40];
            snprintf(what, sizeof what, "--%s", opt->name);
            return usage_error(o, what, optarg, why);
        }
    }
    int rc = positional(o, argc - optind, argv + optind);
    return rc == EXIT_DONE ? required(o) : rc;
}

/* `text` from column `from` on, broken between words before column 80. */
static void print_wrapped(const char *text, int from)
{
    int column = from;
    for (const char *word = text; *word;) {
        int n = (int)strcspn(word, " ");
        if (column > from && column + 1 + n >= 80) {
            printf("\n%*s", from, "");
            column = from;
        }
        column += printf("%s%.*s", column > from ? " " : "", n, word);
        word += n;
        word += strspn(word, " ");
    }
    printf("\n");
}

static void option_print(const struct opt *opt)
{
    enum { HELP_COLUMN = 31 };
    char left[48], letter[8] = "    ";
    if (opt->letter)
        snprintf(letter, sizeof letter, "-%c, ", opt->letter);
    snprintf(left, sizeof left, "%s--%s %s", letter, opt->name, opt->arg ? opt->arg : "");
    printf("  %-28s ", left);
    print_wrapped(opt->help, HELP_COLUMN);
}

void cli_help(const struct cli_options *o)
{
    bool program = o->command == CLI_COMMAND_SERVE;
    printf("usage: tempo9 %s\n\n%s\n\n", COMMANDS[o->command].usage, COMMANDS[o->command].help);
    if (program) {
        printf("Commands (tempo9 COMMAND --help tells more):\n");
        for (int i = 0; i < CLI_COMMAND_COUNT; i++)
            printf("  %-11s %s\n", COMMANDS[i].name, COMMANDS[i].help);
        printf("\n");
    }
    printf("Options (in brackets: what holds without them):\n");
    for (size_t i = 0; i < T9_COUNT(OPTIONS); i++)
        if (OPTIONS[i].commands & (1u << o->command))
            option_print(&OPTIONS[i]);
    if (program)
        printf("\nExamples:\n"
               "  tempo9 model.gguf                serve it on http://127.0.0.1:11435\n"
               "  tempo9 run model.gguf            chat with it here\n"
               "  tempo9 inspect model.gguf        see what is in the file\n"
               "\nExit codes: 0 done, 1 failed, 2 wrong usage.\n");
}
