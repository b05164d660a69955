/* Tests of cli/main.c: dispatch, exit codes, signals. The commands are replaced by recorders. */
int program_main(int argc, char **argv);
#define main program_main
#include "cli/main.c"
#undef main

#include "lib/t9test.h"

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
RECORDER(replay, REPLAY)
RECORDER(pull, PULL)
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
    source_rc = EXIT_INTERRUPTED;
    assert_int_equal(program_main(0, NULL), EXIT_INTERRUPTED);
    assert_int_equal(called, -1);
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
    cli_interrupt_wait(); /* returns at once; the next one would end the program */
    sigaction(SIGINT, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    cli_signals_init(false);
    sigaction(SIGTERM, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_DFL);
    sigaction(SIGPIPE, NULL, &now);
    assert_ptr_equal(now.sa_handler, SIG_IGN);
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
        cmocka_unit_test(test_dispatch),
        cmocka_unit_test(test_model_by_name),
        cmocka_unit_test(test_signals),
        cmocka_unit_test(test_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
