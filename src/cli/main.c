/*
 * cli/main.c - entry point: standard streams, options, signals, dispatch.
 */
#include "cli/cli.h"

#include "base/buf.h"
#include "cli/source.h"
#include "cli/visible.h"
#include "t9_build.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* An answer comes in pieces of some bytes, a listing as a whole. */
#define SHOWN_BYTES_MAX ((size_t)1 << 30)

static atomic_int interrupts, last_signal;

static void on_signal(int sig)
{
    atomic_store(&last_signal, sig);
    atomic_fetch_add(&interrupts, 1);
}

int cli_interrupts(void)
{
    return atomic_load(&interrupts);
}

void cli_interrupts_clear(void)
{
    atomic_store(&interrupts, 0);
}

int cli_interrupt_status(void)
{
    return EXIT_SIGNAL + atomic_load(&last_signal);
}

static void ignore(int sig)
{
    struct sigaction a = {.sa_handler = SIG_IGN};
    sigemptyset(&a.sa_mask);
    sigaction(sig, &a, NULL);
}

void cli_signals_init(bool watch_interrupts)
{
    struct sigaction a = {.sa_handler = watch_interrupts ? on_signal : SIG_DFL};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    ignore(SIGPIPE);
    ignore(SIGXFSZ); /* a file at its limit is a failed write, not an end */
}

void cli_hangup_watch(void)
{
    struct sigaction now, a = {.sa_handler = on_signal};
    sigemptyset(&a.sa_mask);
    if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &a, NULL);
}

/* From now on the signal ends the program, unless it is ignored. */
static void end_at_once(int sig)
{
    struct sigaction now, at_once = {.sa_handler = SIG_DFL};
    sigemptyset(&at_once.sa_mask);
    if (sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        sigaction(sig, &at_once, NULL);
}

bool cli_interrupt_wait_for(int64_t timeout_ms)
{
    sigset_t stop, old;
    struct timespec limit = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000};
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGHUP);
    sigprocmask(SIG_BLOCK, &stop, &old); /* no signal slips in between the look and the sleep */
    bool interrupted = cli_interrupts() > 0;
    while (!interrupted) {
        int rc = ppoll(NULL, 0, timeout_ms < 0 ? NULL : &limit, &old);
        interrupted = cli_interrupts() > 0;
        if (rc == 0)
            break;
    }
    if (interrupted) {
        end_at_once(SIGINT);
        end_at_once(SIGTERM);
        end_at_once(SIGHUP);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    return interrupted;
}

void cli_interrupt_wait(void)
{
    (void)cli_interrupt_wait_for(-1);
}

/* Messages quote files and templates. */
void cli_put_text(FILE *out, str text)
{
    struct visible v = {.lines = false};
    struct buf b;
    buf_init(&b, SHOWN_BYTES_MAX);
    visible_push(&v, text.p, text.n, &b);
    visible_end(&v, &b);
    fwrite(b.p, 1, b.n, out);
    buf_deinit(&b);
}

void cli_put_message(FILE *out, const char *msg)
{
    cli_put_text(out, str_from(msg));
}

int cli_fail(const struct t9_err *err)
{
    fputs("tempo9: ", stderr);
    cli_put_message(stderr, err->msg[0] ? err->msg : t9_status_name(err->code));
    fputc('\n', stderr);
    return err->code == T9_STATUS_CANCELLED && cli_interrupts() > 0 ? cli_interrupt_status()
                                                                    : EXIT_FAILED;
}

/* What a terminal has been given so far. */
static struct visible shown = {.lines = true};

static void write_shown(const void *p, size_t n)
{
    struct buf b;
    buf_init(&b, SHOWN_BYTES_MAX);
    if (p)
        visible_push(&shown, p, n, &b);
    else
        visible_end(&shown, &b);
    if (b.n > 0)
        fwrite(b.p, 1, b.n, stdout);
    if (b.failed)
        fputs("\n(more than can be shown)\n", stdout);
    buf_deinit(&b);
}

void cli_write(const void *p, size_t n)
{
    if (n == 0)
        return;
    if (isatty(STDOUT_FILENO) == 1)
        write_shown(p, n);
    else
        fwrite(p, 1, n, stdout);
}

void cli_write_end(void)
{
    if (shown.n_held > 0)
        write_shown(NULL, 0);
}

int cli_finish_stdout(void)
{
    cli_write_end();
    if (fflush(stdout) == 0 && !ferror(stdout))
        return EXIT_DONE;
    struct pollfd out = {.fd = STDOUT_FILENO};
    bool reader_left = poll(&out, 1, 0) == 1 && (out.revents & POLLERR);
    if (!reader_left) /* `tempo9 inspect M | head` is no failure to talk about */
        fprintf(stderr, "tempo9: standard output could not be written; is the disk full?\n");
    return EXIT_FAILED;
}

static int print_version(const struct cli_options *o)
{
    if (!o->json) {
        printf("tempo9 %s (%s)\n", T9_VERSION, T9_BUILD_ID); /* the id ends in -dirty itself */
        return cli_finish_stdout();
    }
    struct buf b;
    buf_init(&b, 1 << 16);
    buf_puts(&b, "{");
    identity_write(&b, NULL);
    buf_puts(&b, ",");
    identity_known_write(&b);
    buf_puts(&b, "}\n");
    cli_write(b.p, b.n);
    buf_deinit(&b);
    return cli_finish_stdout();
}

static bool has_terminal(void)
{
    int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* These wind something up when they are stopped; for the others the default, ending at once, is
 * right. */
static void watch_if_needed(cli_command c)
{
    bool watch = c == CLI_COMMAND_SERVE || c == CLI_COMMAND_RUN || c == CLI_COMMAND_EVAL ||
                 c == CLI_COMMAND_BENCH || c == CLI_COMMAND_PERPLEXITY || c == CLI_COMMAND_REPLAY ||
                 c == CLI_COMMAND_PULL;
    cli_signals_init(watch);
    if (watch && c != CLI_COMMAND_RUN) /* a conversation ends with its terminal */
        cli_hangup_watch();
}

/* A standard stream that is closed would be the next file that is opened: the model would be read
 * as the user's text, and messages written into a log. Nothing there can be read from or written
 * to, so that whoever needs the stream still hears of it; what goes to standard error is lost. */
static bool streams_open(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd < (int)T9_COUNT(modes); fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) != fd)
            return false;
    return true;
}

int main(int argc, char **argv)
{
    static int (*const commands[CLI_COMMAND_COUNT])(const struct cli_options *) = {
        [CLI_COMMAND_SERVE] = cmd_serve,
        [CLI_COMMAND_RUN] = cmd_run,
        [CLI_COMMAND_INSPECT] = cmd_inspect,
        [CLI_COMMAND_TOKENIZE] = cmd_tokenize,
        [CLI_COMMAND_DETOKENIZE] = cmd_detokenize,
        [CLI_COMMAND_RENDER] = cmd_render,
        [CLI_COMMAND_EVAL] = cmd_eval,
        [CLI_COMMAND_BENCH] = cmd_bench,
        [CLI_COMMAND_PERPLEXITY] = cmd_perplexity,
        [CLI_COMMAND_REPLAY] = cmd_replay,
        [CLI_COMMAND_PULL] = cmd_pull,
        [CLI_COMMAND_OPENAPI] = cmd_openapi,
        [CLI_COMMAND_HELP] = cmd_help,
    };
    if (!streams_open())
        return EXIT_FAILED;
    cli_signals_init(false);
    struct cli_options o;
    int rc = cli_options_parse(&o, argc, argv);
    if (rc != EXIT_DONE)
        return rc;
    if (o.help || o.help_all) {
        cli_help(&o);
        return cli_finish_stdout();
    }
    if (o.version)
        return print_version(&o);
    struct log_config log = {o.log_level, o.log_json, config_stderr_is_journal()};
    log_configure(&log);
    if (o.list_ollama)
        return source_list_ollama(&o);
    if (o.command == CLI_COMMAND_SERVE && !has_terminal())
        ignore(SIGHUP); /* no terminal went away: somebody means "read your files again" */
    if (o.command != CLI_COMMAND_PULL) {
        if (o.hf) /* a download is stopped in order, whoever needs it */
            cli_signals_init(true);
        rc = source_resolve(&o);
        if (rc != EXIT_DONE) /* to stop a server is no failure */
            return o.command == CLI_COMMAND_SERVE && cli_interrupts() > 0 ? EXIT_DONE : rc;
    }
    watch_if_needed(o.command);
    return commands[o.command](&o);
}
