/* Tests of cli/options.c: every kind of value, the rules between options, and the table itself. */
#include "cli/options.c"

#include "cli/helpdoc.h"
#include "lib/t9test.h"

/* What main.c has. */
static char last_failure[512];
int cli_fail(const struct t9_err *err)
{
    snprintf(last_failure, sizeof last_failure, "%s", err->msg);
    return EXIT_FAILED;
}

void cli_write(const void *p, size_t n)
{
    fwrite(p, 1, n, stdout);
}

int cli_finish_stdout(void)
{
    return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
}

/* Parses words separated by one space; "" in the text is an empty argument. */
static int parse(struct cli_options *o, const char *words)
{
    static char text[512];
    static char *argv[40];
    int argc = 0;
    argv[argc++] = (char[]){"tempo9"};
    snprintf(text, sizeof text, "%s", words);
    for (char *p = text; *p;) {
        char *space = strchr(p, ' ');
        if (space)
            *space = 0;
        if (strcmp(p, "\"\"") == 0)
            *p = 0;
        argv[argc++] = p;
        p = space ? space + 1 : p + strlen(p);
        assert_true(argc < 39);
    }
    argv[argc] = NULL;
    return cli_options_parse(o, argc, argv);
}

/* What is refused explains itself on standard error: a hundred times here. */
static int quietly(struct cli_options *o, const char *words)
{
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    int nowhere = open("/dev/null", O_WRONLY);
    assert_true(kept >= 0 && nowhere >= 0 && dup2(nowhere, STDERR_FILENO) >= 0);
    int rc = parse(o, words);
    fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    close(nowhere);
    return rc;
}

static void refused(const char *words)
{
    struct cli_options o;
    int rc = quietly(&o, words);
    if (rc != EXIT_USAGE)
        fail_msg("'%s' gives %d", words, rc);
}

static void taken(struct cli_options *o, const char *words)
{
    int rc = parse(o, words);
    if (rc != EXIT_DONE)
        fail_msg("'%s' gives %d", words, rc);
}

static void test_defaults(void **state)
{
    (void)state;
    struct cli_options o;
    taken(&o, "m.gguf");
    assert_int_equal(o.command, CLI_COMMAND_SERVE);
    assert_string_equal(o.gguf, "m.gguf");
    assert_string_equal(o.host, "127.0.0.1");
    assert_string_equal(o.backend, "cpu");
    assert_int_equal(o.port, 11435);
    assert_int_equal(o.max_batch, 16);
    assert_int_equal(o.max_length, 0);
    assert_int_equal(o.log_level, LOG_LEVEL_INFO);
    assert_false(o.insecure || o.strict || o.json || o.kv_type_set || o.seed_set);
    assert_int_equal(o.api_keys.n, 0);
    taken(&o, "run m.gguf");
    assert_int_equal(o.log_level, LOG_LEVEL_WARN);
}

static void test_commands(void **state)
{
    (void)state;
    struct cli_options o;
    taken(&o, "--gguf m");
    assert_int_equal(o.command, CLI_COMMAND_SERVE);
    taken(&o, "--port 1 m.gguf");
    assert_int_equal(o.port, 1);
    taken(&o, "serve m --port=2");
    assert_int_equal(o.port, 2);
    static const char *const with_model[] = {"serve",    "run",        "inspect",
                                             "tokenize", "detokenize", "bench"};
    for (size_t i = 0; i < T9_COUNT(with_model); i++) {
        char words[64];
        snprintf(words, sizeof words, "%s model", with_model[i]);
        taken(&o, words);
        assert_string_equal(cli_command_name(o.command), with_model[i]);
        assert_string_equal(o.gguf, "model");
        refused(with_model[i]);
        snprintf(words, sizeof words, "%s model more", with_model[i]);
        refused(words);
        snprintf(words, sizeof words, "%s --help", with_model[i]);
        taken(&o, words);
        assert_true(o.help);
    }
    refused("");
    refused("model"); /* neither a command nor a .gguf */
    refused("render --template x");
    refused("eval m --tokens x");
    taken(&o, "render --template x --input -");
    taken(&o, "eval m --tokens x --logits y");
    taken(&o, "-- m");
    assert_string_equal(o.gguf, "m");
}

static void test_numbers(void **state)
{
    (void)state;
    struct cli_options o;
    static const char *const bad[] = {"abc",  "\"\"", "-1",  "65536", "1x",
                                      "0x10", "1.0",  "1e3", "+1",    "99999999999999999999"};
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        char words[64];
        snprintf(words, sizeof words, "m.gguf --port %s", bad[i]);
        refused(words);
    }
    refused("m.gguf --port");
    taken(&o, "m.gguf --port 0");
    taken(&o, "m.gguf --port 65535");
    assert_int_equal(o.port, 65535);
    taken(&o, "m.gguf --kv-memory 3G");
    assert_true(o.kv_memory_bytes == (uint64_t)3 << 30);
    refused("m.gguf --kv-memory 0");
    refused("m.gguf --kv-memory 1Q");
    taken(&o, "run m --seed 18446744073709551615");
    assert_true(o.seed_set && o.sampling.seed == UINT64_MAX);
    refused("run m --seed -1");
    taken(&o, "run m --temperature 0.5 --top-p 1 --min-p 0 --top-k 7");
    assert_true(o.sampling.temperature == 0.5f && o.sampling.top_p == 1.0f);
    assert_true(o.sampling.min_p == 0.0f && o.sampling.top_k == 7);
    taken(&o, "run m");
    assert_true(o.sampling.temperature == 0.8f && o.sampling.top_k == 0);
    assert_true(o.sampling.repetition_penalty == 1.0f);
    /* What the server is not told it asks the model file for. */
    taken(&o, "serve m --top-p 0.5");
    assert_true(o.sampling.top_p == 0.5f && isnan(o.sampling.temperature));
    assert_true(isnan(o.sampling.min_p) && o.sampling.top_k == -1);
    const struct cli_sampling plain = {.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    sampling_fill(&o.sampling, &plain);
    assert_true(o.sampling.temperature == 1.0f && o.sampling.top_p == 0.5f);
    assert_true(o.sampling.top_k == 0 && o.sampling.repetition_penalty == 1.0f);
    refused("serve m --top-p 0");
    refused("serve m --repetition-penalty 0");
    refused("run m --temperature nan");
    refused("run m --temperature inf");
    refused("run m --temperature 101");
    refused("run m --top-p 0");
    refused("run m --top-p 1.01");
}

static void test_lists(void **state)
{
    (void)state;
    struct cli_options o;
    taken(&o, "bench m -p 1,20,300 -b 8 -d 0,4096");
    assert_int_equal(o.bench_prompt.n, 3);
    assert_int_equal(o.bench_prompt.v[2], 300);
    assert_int_equal(o.bench_batch.v[0], 8);
    assert_int_equal(o.bench_depth.v[1], 4096);
    refused("bench m -p 1,,2");
    refused("bench m -p ,1");
    refused("bench m -p 1,");
    refused("bench m -b 0");
    refused("bench m -b 1025");
    taken(&o, "bench m -p 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16");
    refused("bench m -p 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17");
}

static void test_words(void **state)
{
    (void)state;
    struct cli_options o;
    taken(&o, "m.gguf --kv-type f32 --log-level debug");
    assert_true(o.kv_type_set && o.kv_type == KV_TYPE_F32);
    assert_int_equal(o.log_level, LOG_LEVEL_DEBUG);
    refused("m.gguf --kv-type f8");
    refused("m.gguf --log-level loud");
    refused("m.gguf --name \"\"");
    taken(&o, "render --template x --input - --now 2026-11-29T09:05:07");
    assert_true(o.now_set && o.now_unix_s == 1795943107);
    taken(&o, "render --template x --input - --now 1970-01-01T00:00:00");
    assert_true(o.now_set && o.now_unix_s == 0);
    taken(&o, "render --template x --input - --now 2000-02-29T00:00:00");
    assert_true(o.now_unix_s == 951782400);
    refused("render --template x --input - --now 2026-13-01T00:00:00");
    refused("render --template x --input - --now 2026-00-01T00:00:00");
    refused("render --template x --input - --now 2026-11-29 09:05:07");
    refused("render --template x --input - --now 2026-11-29T09:05:0x");
}

static void test_rules(void **state)
{
    (void)state;
    struct cli_options o;
    refused("m.gguf --json");
    refused("run m --json");
    taken(&o, "bench m --json");
    taken(&o, "--version --json");
    assert_true(o.version && o.json);
    taken(&o, "run --version --json");
    refused("m.gguf --mmproj x");
    refused("eval m --tokens x --logits y --image z");
    refused("m.gguf --speculation-k 1");
    taken(&o, "m.gguf --speculation-k 0");
    refused("tokenize m --ids --pieces");
    refused("m.gguf --strict=yes");
    refused("m.gguf --no-such");
    refused("m.gguf -Z");
    refused("run m --port 1"); /* of another command */
    refused("inspect m -t 2");
}

/* Names and letters are unique within a command, defaults of the text are not empty, ranges hold.
 */
static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct opt *a = &OPTIONS[i];
        assert_true(a->commands != 0 && a->help && a->help[0]);
        assert_true((a->kind == OPT_FLAG) == (a->arg == NULL));
        if (a->kind == OPT_I32 || a->kind == OPT_FLOAT || a->kind == OPT_LIST)
            assert_true(a->min < a->max);
        assert_true(a->offset < sizeof(struct cli_options));
        for (size_t k = 0; k < i; k++) {
            const struct opt *b = &OPTIONS[k];
            if (!(a->commands & b->commands))
                continue;
            assert_string_not_equal(a->name, b->name);
            assert_true(a->letter == 0 || a->letter != b->letter);
        }
    }
}

/* The file's text through the parser, with more words behind --config. */
static int configured(struct cli_options *o, const char *text, const char *words)
{
    char path[64] = "/tmp/t9-conf-XXXXXX", line[512];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(line, sizeof line, "--config %s%s%s", path, words[0] ? " " : "", words);
    last_failure[0] = 0;
    int rc = quietly(o, line);
    unlink(path);
    return rc;
}

static void misconfigured(const char *text, const char *why)
{
    struct cli_options o;
    if (configured(&o, text, "m.gguf") != EXIT_USAGE || !strstr(last_failure, why))
        fail_msg("'%s' gives '%s', not '%s'", text, last_failure, why);
}

static void test_config(void **state)
{
    (void)state;
    struct cli_options o;
    assert_int_equal(configured(&o,
                                "# a comment\r\n\n  gguf = a model.gguf \nport=8080\ninsecure\n"
                                "strict = no\napi-key = one\napi-key = two\nkv-memory = 2G",
                                ""),
                     EXIT_DONE);
    assert_string_equal(o.gguf, "a model.gguf");
    assert_int_equal(o.port, 8080);
    assert_true(o.insecure && !o.strict);
    assert_int_equal(o.api_keys.n, 2);
    assert_string_equal(o.api_keys.v[1], "two");
    assert_true(o.kv_memory_bytes == (uint64_t)2 << 30);
    /* The command line wins; a list on it replaces the file's. */
    assert_int_equal(configured(&o, "gguf = a\nport = 1\napi-key = one\napi-key = two\n",
                                "b.gguf --port 2 --api-key three"),
                     EXIT_DONE);
    assert_string_equal(o.gguf, "b.gguf");
    assert_int_equal(o.port, 2);
    assert_int_equal(o.api_keys.n, 1);
    assert_string_equal(o.api_keys.v[0], "three");
    /* A model named in one way replaces the file's, named in another. */
    assert_int_equal(configured(&o, "gguf = a\n", "--hf o/r:Q8_0"), EXIT_DONE);
    assert_null(o.gguf);
    assert_string_equal(o.hf, "o/r:Q8_0");
    assert_int_equal(configured(&o, "hf = o/r\n", "m.gguf"), EXIT_DONE);
    assert_null(o.hf);
    assert_int_equal(configured(&o, "hf = o/r\n", ""), EXIT_DONE);
    assert_string_equal(o.hf, "o/r");
    misconfigured("\nno-such = 1\n", ":2: there is no option \"no-such\"");
    misconfigured("port = 70000\n", ":1: port = 70000: not a value from 0 to 65535");
    misconfigured("port\n", ":1: port needs a value");
    misconfigured("port =\n", ":1: port = ");
    misconfigured("--port = 1\n", ":1: not of the form");
    misconfigured("port 1\n", ":1: not of the form");
    misconfigured("strict = perhaps\n", ":1: strict is yes or no");
    misconfigured("port = 1\nhost = ::1\nport = 1\n", ":3: port is on line 1 already");
    misconfigured("strict\nstrict = no\n", ":2: strict is on line 1 already");
    misconfigured("help\n", ":1: there is no option");
    misconfigured("config = x\n", ":1: there is no option");
    misconfigured("list-ollama\n", ":1: there is no option");
    misconfigured("prompt = x\n", ":1: there is no option"); /* of another command */
    assert_int_equal(quietly(&o, "m.gguf --config /no/such/file"), EXIT_USAGE);
    assert_non_null(strstr(last_failure, "/no/such/file"));
    refused("run m --config x");
}

/* A unix socket or an address, never one that is named and does nothing. */
static void test_address(void **state)
{
    (void)state;
    struct cli_options o;
    refused("m.gguf --unix s --port 1");
    refused("m.gguf --host ::1 --unix s");
    misconfigured("unix = s\nport = 1\n", "unix is there instead of host and port");
    taken(&o, "m.gguf --unix s");
    assert_string_equal(o.unix_path, "s");
    taken(&o, "m.gguf --port 0");
    assert_null(o.unix_path);
    assert_string_equal(o.host, "127.0.0.1");
    assert_int_equal(o.port, 0);
    /* The command line replaces the file's kind. */
    assert_int_equal(configured(&o, "gguf = a\nhost = ::1\nport = 1\n", "--unix s"), EXIT_DONE);
    assert_string_equal(o.unix_path, "s");
    assert_int_equal(configured(&o, "gguf = a\nunix = s\n", "--port 2"), EXIT_DONE);
    assert_null(o.unix_path);
    assert_int_equal(o.port, 2);
    assert_string_equal(o.host, "127.0.0.1");
    assert_int_equal(configured(&o, "gguf = a\nhost = ::1\nport = 1\n", "--port 2"), EXIT_DONE);
    assert_string_equal(o.host, "::1");
    assert_int_equal(o.port, 2);
    assert_int_equal(configured(&o, "gguf = a\nunix = s\n", ""), EXIT_DONE);
    assert_string_equal(o.unix_path, "s");
}

/* What is written instead of the model's name. */
static void test_model_path(void **state)
{
    (void)state;
    struct cli_options o;
    char dir[] = "/tmp/t9-model-XXXXXX", path[64], words[128];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a.gguf", dir);
    test_write_file(path, "x", 1);
    snprintf(words, sizeof words, "%s/a", dir);
    assert_int_equal(quietly(&o, words), EXIT_FAILED);
    assert_non_null(strstr(last_failure, "did you mean"));
    snprintf(words, sizeof words, "run %s/a", dir);
    assert_int_equal(quietly(&o, words), EXIT_FAILED);
    assert_int_equal(quietly(&o, dir), EXIT_FAILED);
    assert_non_null(strstr(last_failure, "is a folder"));
    snprintf(words, sizeof words, "%s/other-name", dir);
    taken(&o, words); /* opening it tells */
    taken(&o, path);
    assert_string_equal(o.gguf, path);
    unlink(path);
    rmdir(dir);
}

static void test_help(void **state)
{
    (void)state;
    struct cli_options o;
    taken(&o, "--help");
    assert_true(o.help && o.command == CLI_COMMAND_SERVE);
    taken(&o, "--help-all");
    taken(&o, "help");
    assert_true(o.command == CLI_COMMAND_HELP && !o.has_topic);
    taken(&o, "help run");
    assert_true(o.has_topic && o.topic == CLI_COMMAND_RUN);
    refused("help nothing");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        helpdoc_man((cli_command)c, &b);
        assert_false(b.failed);
        for (size_t i = 0; i < N_OPTIONS; i++) {
            char name[64] = "\\-\\-";
            for (const char *p = OPTIONS[i].name; *p; p++)
                snprintf(name + strlen(name), sizeof name - strlen(name), *p == '-' ? "\\-" : "%c",
                         *p);
            strncat(name, "\\fR", sizeof name - strlen(name) - 1);
            bool there = str_find(buf_str(&b), str_from(name), 0) != (size_t)-1;
            assert_int_equal(there, opt_is_of(&OPTIONS[i], (cli_command)c));
        }
        buf_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_commands),
        cmocka_unit_test(test_numbers),  cmocka_unit_test(test_lists),
        cmocka_unit_test(test_words),    cmocka_unit_test(test_rules),
        cmocka_unit_test(test_table),    cmocka_unit_test(test_config),
        cmocka_unit_test(test_address),  cmocka_unit_test(test_model_path),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
