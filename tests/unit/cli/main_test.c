/* Tests of cli/main.c: dispatch, exit codes, signals. The commands are replaced by recorders. */
int program_main(int argc, char **argv);
#define main program_main
#include "cli/main.c"
#undef main

#include "base/utf8.h"
#include "lib/t9test.h"

#include <stdlib.h>
#include <sys/wait.h>

static int called;
static const char *seen_gguf;
static int parse_rc;
static struct cli_options parsed;

static int record(const struct cli_options *o, cli_command c)
{
    called = c;
    seen_gguf = o->gguf;
    return EXIT_DONE;
}

#define RECORDER(name, NAME)                                                                       \
    int cmd_##name(const struct cli_options *o)                                                    \
    {                                                                                              \
        return record(o, CLI_COMMAND_##NAME);                                                      \
    }
RECORDER(serve, SERVE)
RECORDER(run, RUN)
RECORDER(inspect, INSPECT)
RECORDER(tokenize, TOKENIZE)
RECORDER(detokenize, DETOKENIZE)
RECORDER(render, RENDER)
RECORDER(eval, EVAL)
RECORDER(bench, BENCH)
RECORDER(perplexity, PERPLEXITY)
RECORDER(replay, REPLAY)
RECORDER(pull, PULL)
RECORDER(openapi, OPENAPI)
RECORDER(help, HELP)

static int source_rc;

int source_resolve(struct cli_options *o)
{
    assert_true(o->command != CLI_COMMAND_PULL); /* it does so itself, to print the path */
    if (o->hf)
        o->gguf = "found";
    return source_rc;
}

int source_list_ollama(const struct cli_options *o)
{
    (void)o;
    called = 101;
    return EXIT_DONE;
}

int cli_options_parse(struct cli_options *o, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    *o = parsed;
    return parse_rc;
}

bool config_stderr_is_journal(void)
{
    return false;
}

void cli_help(const struct cli_options *o)
{
    (void)o;
    called = 100;
}

void identity_write(struct buf *out, const struct runtime *rt)
{
    assert_null(rt);
    buf_puts(out, "\"version\":\"x\"");
}

void identity_known_write(struct buf *out)
{
    buf_puts(out, "\"architectures\":[]");
}

static void test_dispatch(void **state)
{
    (void)state;
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        parsed = (struct cli_options){.command = (cli_command)c};
        called = -1;
        assert_int_equal(program_main(0, NULL), EXIT_DONE);
        assert_int_equal(called, c);
    }
    called = -1;
    parsed.help = true;
    assert_int_equal(program_main(0, NULL), EXIT_DONE);
    assert_int_equal(called, 100);
    called = -1;
    parse_rc = EXIT_USAGE;
    assert_int_equal(program_main(0, NULL), EXIT_USAGE);
    assert_int_equal(called, -1);
    parse_rc = EXIT_DONE;
}

static void test_model_by_name(void **state)
{
    (void)state;
    struct sigaction now;
    parsed = (struct cli_options){.command = CLI_COMMAND_INSPECT, .hf = "a/b"};
    assert_int_equal(program_main(0, NULL), EXIT_DONE);
    assert_int_equal(called, CLI_COMMAND_INSPECT);
    assert_string_equal(seen_gguf, "found");
    sigaction(SIGINT, NULL, &now); /* of a command that has nothing to wind up */
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    called = -1;
    source_rc = EXIT_SIGNAL + SIGINT;
    assert_int_equal(program_main(0, NULL), EXIT_SIGNAL + SIGINT);
    assert_int_equal(called, -1);
    parsed.command = CLI_COMMAND_SERVE; /* to stop it is no failure, unlike a download that fails */
    assert_int_equal(program_main(0, NULL), EXIT_SIGNAL + SIGINT);
    atomic_store(&interrupts, 1);
    assert_int_equal(program_main(0, NULL), EXIT_DONE);
    assert_int_equal(called, -1);
    cli_interrupts_clear();
    source_rc = EXIT_DONE;
    parsed = (struct cli_options){.list_ollama = true};
    assert_int_equal(program_main(0, NULL), EXIT_DONE);
    assert_int_equal(called, 101);
}

static void test_signals(void **state)
{
    (void)state;
    struct sigaction now;
    cli_signals_init(true);
    cli_interrupts_clear();
    assert_int_equal(cli_interrupts(), 0);
    raise(SIGINT);
    raise(SIGTERM);
    assert_int_equal(cli_interrupts(), 2);
    assert_int_equal(cli_interrupt_status(), 143);
    assert_int_equal(cli_fail(&(struct t9_err){T9_STATUS_CANCELLED, "stopped"}), 143);
    assert_int_equal(cli_fail(&(struct t9_err){T9_STATUS_IO, "broken"}), EXIT_FAILED);
    cli_interrupt_wait(); /* returns at once; the next one would end the program */
    sigaction(SIGINT, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    cli_signals_init(false);
    sigaction(SIGTERM, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    sigaction(SIGPIPE, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_IGN);
}

/* What a server in a session of its own, with or without a terminal, hears of a SIGHUP; -1 when it
 * ends the server. */
static int hangups_of_server(bool on_terminal)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int master = on_terminal ? posix_openpt(O_RDWR | O_NOCTTY) : -1;
        if (setsid() < 0 || (on_terminal && (grantpt(master) < 0 || unlockpt(master) < 0 ||
                                             open(ptsname(master), O_RDWR) < 0)))
            _exit(100);
        parsed.command = CLI_COMMAND_SERVE;
        (void)program_main(0, NULL);
        cli_interrupts_clear();
        raise(SIGHUP);
        _exit(cli_interrupts());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A terminal that goes away stops a server in order, one that has none or was started by nohup does
 * not hear of it, and neither does whoever has nothing to wind up. */
static void test_hangup(void **state)
{
    (void)state;
    struct sigaction now, ignore = {.sa_handler = SIG_IGN}, as_at_start = {.sa_handler = SIG_DFL};
    sigaction(SIGHUP, &as_at_start, NULL); /* the tests before have run a server */
    parsed = (struct cli_options){.command = CLI_COMMAND_RUN};
    assert_int_equal(program_main(0, NULL), EXIT_DONE);
    sigaction(SIGHUP, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    assert_int_equal(hangups_of_server(true), 1);
    assert_int_equal(hangups_of_server(false), 0);
    parsed.command = CLI_COMMAND_BENCH;
    assert_int_equal(program_main(0, NULL), EXIT_DONE);
    cli_interrupts_clear();
    raise(SIGHUP);
    assert_int_equal(cli_interrupts(), 1);
    cli_interrupt_wait();
    sigaction(SIGHUP, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    sigaction(SIGHUP, &ignore, NULL);
    assert_int_equal(program_main(0, NULL), EXIT_DONE);
    cli_interrupts_clear();
    raise(SIGHUP);
    assert_int_equal(cli_interrupts(), 0);
    raise(SIGTERM);
    cli_interrupt_wait();
    sigaction(SIGHUP, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_IGN);
    cli_signals_init(false);
}

/* ---- what a terminal is shown ---- */

static const char RAW[] = "a\tb\n\x1b[31m\r\x07\x7f\xc2\x9b"
                          "1\xc3\xa9\xe6\x9d\xb1\xf0\x9f\x90\x8b.";
static const char SHOWN[] =
    "a\tb\n\\x1b[31m\\x0d\\x07\\x7f\\x9b1\xc3\xa9\xe6\x9d\xb1\xf0\x9f\x90\x8b.";

/* The text in pieces of `step` bytes. */
static void show(const char *p, size_t n, size_t step, bool lines, struct buf *out)
{
    struct visible v = {.lines = lines};
    for (size_t i = 0; i < n; i += step)
        visible_push(&v, p + i, n - i < step ? n - i : step, out);
    visible_end(&v, out);
    buf_putc(out, 0);
}

static void test_visible(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    for (size_t step = 1; step < sizeof RAW; step++) {
        buf_clear(&b);
        show(RAW, sizeof RAW - 1, step, true, &b);
        assert_string_equal(b.p, SHOWN);
        /* Cut in a character, spoiled by what follows, stray. */
        buf_clear(&b);
        show("\xe6\x9d"
             "A\xf0\x9f\x90\xc3\xa9\x80",
             9, step, true, &b);
        assert_non_null(strstr(b.p, "\xef\xbf\xbd"
                                    "A\xef\xbf\xbd"));
        assert_non_null(strstr(b.p, "\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd"));
        assert_true(utf8_valid((str){b.p, b.n - 1}));
        buf_clear(&b);
        show("x\xe6\x9d", 3, step, true, &b);
        assert_string_equal(b.p, "x\xef\xbf\xbd");
    }
    buf_clear(&b);
    show("a\nb\tc", 5, 5, false, &b);
    assert_string_equal(b.p, "a\\x0ab\\x09c");
    buf_deinit(&b);
}

static void test_fail(void **state)
{
    (void)state;
    struct t9_err err = {0};
    t9_fail(&err, T9_STATUS_IO, "what happened");
    assert_int_equal(cli_fail(&err), EXIT_FAILED);
    assert_int_equal(cli_finish_stdout(), EXIT_DONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dispatch), cmocka_unit_test(test_model_by_name),
        cmocka_unit_test(test_signals),  cmocka_unit_test(test_hangup),
        cmocka_unit_test(test_visible),  cmocka_unit_test(test_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
