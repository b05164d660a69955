/*
 * cli/cmd_run.c - `run`: chat in the terminal through the same template, tokens and engine that
 * serve, by way of the SDK. Ctrl-C stops the answer (twice at the prompt: leaves), Ctrl-D leaves.
 * With -p it answers once. Standard output carries the answer and nothing else; see speech.h.
 */
#include "cli/cli.h"
#include "cli/speech.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "tempo9.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#ifdef T9_HAVE_EDIT
#    include <histedit.h>
#endif

enum { LINE_BYTES_MAX = 1 << 20, CHAT_BYTES_MAX = 64 << 20 };

struct chat {
    const struct cli_options *o;
    struct session session;
    struct prep *prep;
    struct t9_model_info info;
    struct buf messages; /* "[{...},{...}", without the end */
    bool terminal;
    uint64_t seed;
};

/* Opens what `serve` opens, so that an answer here is the answer there. */
static t9_status chat_open(struct chat *c, struct t9_err *err)
{
    T9_TRY(session_open(&c->session, c->o, err));
    struct prep_params p = {.model = c->session.model, .engine = c->session.engine};
    T9_TRY(prep_new(&c->prep, &p, err));
    c->info = prep_info(c->prep)->model;
    c->seed = c->o->sampling.seed;
    if (!c->o->seed_set && getrandom(&c->seed, sizeof c->seed, 0) != (ssize_t)sizeof c->seed)
        c->seed = clock_now_ns();
    return T9_STATUS_OK;
}

static t9_status message_add(struct chat *c, const char *role, str text, str thought,
                             struct t9_err *err)
{
    struct buf *b = &c->messages;
    size_t before = b->n;
    buf_putc(b, b->n ? ',' : '[');
    buf_printf(b, "{\"role\":\"%s\",\"content\":", role);
    json_write_str(b, text);
    if (thought.n) {
        buf_puts(b, ",\"reasoning_content\":");
        json_write_str(b, thought);
    }
    buf_putc(b, '}');
    if (!b->failed)
        return T9_STATUS_OK;
    b->failed = false;
    b->n = before;
    return t9_fail(err, T9_STATUS_TOO_LARGE, "the conversation is over %d MB",
                   CHAT_BYTES_MAX >> 20);
}

/* Writes the answer as it comes and keeps it. `finish`: why it ended. */
static t9_status answer_stream(t9_request *r, struct speech *speech, t9_finish *finish,
                               struct t9_err *err)
{
    bool cancelled = false;
    for (;;) {
        struct t9_event e = {.struct_size = sizeof e};
        t9_status s = t9_request_next(r, 100, &e);
        if (s != T9_STATUS_OK)
            return t9_fail(err, s, "no memory for the text of the answer");
        if (cli_interrupts() > 0 && !cancelled) {
            cancelled = true;
            t9_request_cancel(r);
        }
        if (e.text_bytes)
            T9_TRY(speech_push(speech, (str){e.text, e.text_bytes}, err));
        if (fflush(stdout) != 0)
            t9_request_cancel(r);
        if (e.kind == T9_EVENT_ERROR) {
            *err = e.error;
            return e.error.code;
        }
        if (e.kind == T9_EVENT_DONE) {
            *finish = e.finish;
            return speech_end(speech, err);
        }
    }
}

/* The conversation as tokens. */
struct prompt {
    t9_ids ids;
    struct t9_mark marks[T9_MARKS_MAX];
    size_t n_marks;
};

static t9_status lay_out(struct chat *c, struct prompt *out, struct t9_err *err)
{
    struct t9_chat_params p;
    t9_chat_params_init(&p, sizeof p);
    buf_putc(&c->messages, ']');
    if (c->messages.failed) {
        c->messages.failed = false;
        return t9_fail(err, T9_STATUS_TOO_LARGE, "the conversation is over %d MB",
                       CHAT_BYTES_MAX >> 20);
    }
    p.messages = c->messages.p;
    p.messages_bytes = c->messages.n;
    t9_status s =
        t9_chat_tokens_marked(c->session.model, &p, &out->ids, out->marks, &out->n_marks, err);
    c->messages.n--;
    return s;
}

static t9_status submit(struct chat *c, const struct prompt *prompt, t9_request **r,
                        struct t9_err *err)
{
    const t9_ids *ids = &prompt->ids;
    struct t9_request_params p;
    const struct cli_sampling *sampling = &c->o->sampling;
    if (ids->n == 0)
        return t9_fail(err, T9_STATUS_INVALID,
                       "the model's template makes no text of this conversation, so that there is "
                       "nothing to answer; see tempo9 inspect for the template");
    if (t9_engine_max_tokens(c->session.engine, (int32_t)ids->n) < 1)
        return t9_fail(err, T9_STATUS_TOO_LARGE,
                       "the conversation has %zu tokens and the limit is %d (%s): start a new one "
                       "with /reset",
                       ids->n, t9_engine_max_length(c->session.engine),
                       t9_engine_limit_reason(c->session.engine));
    t9_request_params_init(&p, sizeof p);
    p.prompt = ids->p;
    p.n_prompt = ids->n;
    p.marks = prompt->marks;
    p.n_marks = prompt->n_marks;
    p.max_tokens = c->o->max_tokens;
    p.temperature = sampling->temperature;
    p.top_p = sampling->top_p;
    p.min_p = sampling->min_p;
    p.top_k = sampling->top_k;
    p.repetition_penalty = sampling->repetition_penalty;
    p.seed = c->seed;
    p.shown_ids = prep_info(c->prep)->shown_ids;
    p.n_shown_ids = prep_info(c->prep)->n_shown_ids;
    return t9_engine_submit(c->session.engine, &p, r, err);
}

/* Computes, writes and remembers one answer; ends its line. CANCELLED: an interrupt stopped it
 * (what was written is kept). After any other failure the question, which begins at `question` of
 * the messages, is forgotten, so that roles alternate.
 */
static t9_status answer(struct chat *c, size_t question, struct t9_err *err)
{
    struct t9_request_info info = {.struct_size = sizeof info};
    t9_finish finish = T9_FINISH_NONE;
    struct prompt prompt = {0};
    t9_request *r = NULL;
    struct speech speech = {0};
    t9_status s = lay_out(c, &prompt, err);
    if (s == T9_STATUS_OK)
        s = submit(c, &prompt, &r, err);
    if (s == T9_STATUS_OK)
        s = speech_init(&speech, c->prep, &prompt.ids, err);
    if (s != T9_STATUS_OK)
        goto done;
    s = answer_stream(r, &speech, &finish, err);
    cli_write_end();
    fputs("\n", stdout);
    fflush(stdout);
    if (s == T9_STATUS_OK)
        s = message_add(c, "assistant", buf_str(&speech.said), buf_str(&speech.thought), err);
    if (s == T9_STATUS_OK && finish == T9_FINISH_LENGTH &&
        t9_request_info(r, &info) == T9_STATUS_OK)
        fprintf(stderr, "[stopped after %d tokens, the limit]\n", info.max_tokens);
    if (s == T9_STATUS_OK && finish == T9_FINISH_CANCELLED && cli_interrupts() > 0)
        s = t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
done:
    if (s != T9_STATUS_OK && s != T9_STATUS_CANCELLED)
        c->messages.n = question;
    t9_request_free(r);
    t9_ids_free(&prompt.ids);
    speech_deinit(&speech);
    return s;
}

static t9_status reset(struct chat *c, struct t9_err *err)
{
    buf_clear(&c->messages);
    return c->o->system ? message_add(c, "system", str_from(c->o->system), (str){0}, err)
                        : T9_STATUS_OK;
}

/* A question and its answer. */
static t9_status ask(struct chat *c, str text, struct t9_err *err)
{
    size_t question = c->messages.n;
    T9_TRY(message_add(c, "user", text, (str){0}, err));
    return answer(c, question, err);
}

/* One line without its line feed. false at the end of input. */
static bool line_read_plain(struct buf *line, bool prompt)
{
    if (prompt) {
        fputs("> ", stdout);
        fflush(stdout);
    }
    buf_clear(line);
    for (;;) {
        int ch = getchar();
        if (ch == EOF)
            return line->n > 0;
        if (ch == '\n')
            return true;
        buf_putc(line, (char)ch);
    }
}

#ifdef T9_HAVE_EDIT
static char *prompt_text(EditLine *el)
{
    static char text[] = "> ";
    (void)el;
    return text;
}

struct editor {
    EditLine *el;
    History *history;
};

static void editor_open(struct editor *ed)
{
    HistEvent ev;
    (void)setlocale(LC_CTYPE, ""); /* else the editor drops what is not ASCII */
    ed->el = el_init("tempo9", stdin, stdout, stderr);
    ed->history = history_init();
    if (!ed->el || !ed->history)
        return;
    history(ed->history, &ev, H_SETSIZE, 200);
    el_set(ed->el, EL_PROMPT, prompt_text);
    el_set(ed->el, EL_EDITOR, "emacs");
    el_set(ed->el, EL_HIST, history, ed->history);
}

static void editor_close(struct editor *ed)
{
    if (ed->history)
        history_end(ed->history);
    if (ed->el)
        el_end(ed->el);
}

static bool editor_line(struct editor *ed, struct buf *line)
{
    HistEvent ev;
    int n = 0;
    buf_clear(line);
    el_resize(ed->el); /* the window may have another width now */
    const char *p = el_gets(ed->el, &n);
    if (!p || n <= 0)
        return false;
    if (n > 1)
        history(ed->history, &ev, H_ENTER, p);
    buf_append(line, p, p[n - 1] == '\n' ? (size_t)n - 1 : (size_t)n);
    return true;
}
#else
struct editor {
    void *el;
};
static void editor_open(struct editor *ed)
{
    ed->el = NULL;
}
static void editor_close(struct editor *ed)
{
    (void)ed;
}
static bool editor_line(struct editor *ed, struct buf *line)
{
    (void)ed;
    return line_read_plain(line, true);
}
#endif

/* A slash and one word, as a command would be: a typing error must not become a message, nor what a
 * script takes for a command. It ends nothing either, on a terminal or not. */
static bool looks_like_command(str text)
{
    for (size_t i = 1; i < text.n; i++) {
        if (text.p[i] < 'a' || text.p[i] > 'z')
            return false;
    }
    return text.n > 1 && text.p[0] == '/';
}

/* What looks like a command, but for those that leave. */
static t9_status do_command(struct chat *c, str text, struct t9_err *err)
{
    struct t9_err unknown = {0};
    if (str_eqz(text, "/reset"))
        return reset(c, err);
    if (str_eqz(text, "/help")) {
        fputs("/reset starts a new conversation, /quit or /exit leaves, /help says this.\n",
              stderr);
        return T9_STATUS_OK;
    }
    (void)t9_fail(&unknown, T9_STATUS_INVALID,
                  STR_FMT " is no command, and was not sent: /help names them", STR_ARG(text));
    (void)cli_fail(&unknown);
    return T9_STATUS_OK;
}

/* Whether a signal asked for the end. Ctrl-C in a conversation asks for the end of an answer. */
static bool must_end(const struct chat *c)
{
    return cli_interrupts() > 0 && !(c->terminal && cli_interrupt_status() == EXIT_SIGNAL + SIGINT);
}

/* Turns until the end of input. An interrupt at the prompt starts a fresh line; two in a row leave.
 */
static t9_status chat_loop(struct chat *c, struct t9_err *err)
{
    struct editor ed = {0};
    struct buf line;
    t9_status s = T9_STATUS_OK;
    int idle_interrupts = 0;
    buf_init(&line, LINE_BYTES_MAX);
    if (c->terminal) {
        cli_put_message(stderr, c->info.file_name);
        fputs(" ready. /help names commands, Ctrl-C stops an answer, Ctrl-D leaves.\n", stderr);
        editor_open(&ed);
    }
    for (;;) {
        if (must_end(c)) {
            s = t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
            break;
        }
        cli_interrupts_clear();
        bool got = ed.el ? editor_line(&ed, &line) : line_read_plain(&line, c->terminal);
        if (!got && must_end(c))
            continue;
        if (!got && cli_interrupts() > 0 && ++idle_interrupts < 2) {
            clearerr(stdin);
            fprintf(stderr, "\n(once more or Ctrl-D to leave)\n");
            continue;
        }
        if (!got && ferror(stdin) && cli_interrupts() == 0)
            s = t9_fail(err, T9_STATUS_IO, "standard input can't be read");
        if (!got)
            break;
        idle_interrupts = 0;
        str text = str_trim(buf_str(&line));
        if (line.failed) {
            fprintf(stderr, "tempo9: a line may have %d bytes at most; it was not sent\n",
                    LINE_BYTES_MAX);
            continue;
        }
        if (text.n == 0)
            continue;
        if (str_eqz(text, "/quit") || str_eqz(text, "/exit"))
            break;
        if (looks_like_command(text)) {
            s = do_command(c, text, err);
        } else {
            cli_interrupts_clear();
            s = ask(c, text, err);
        }
        if ((s != T9_STATUS_OK && !c->terminal) || ferror(stdout))
            break;
        if (s != T9_STATUS_OK && s != T9_STATUS_CANCELLED)
            cli_fail(err); /* the conversation goes on */
        s = T9_STATUS_OK;
    }
    if (c->terminal)
        fputs("\n", stdout);
    editor_close(&ed);
    buf_deinit(&line);
    return s;
}

int cmd_run(const struct cli_options *o)
{
    struct chat c = {
        .o = o, .terminal = !o->prompt && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1};
    struct t9_err err = {0};
    buf_init(&c.messages, CHAT_BYTES_MAX);
    t9_status s = chat_open(&c, &err);
    if (s == T9_STATUS_OK)
        s = reset(&c, &err);
    if (s == T9_STATUS_OK)
        s = o->prompt ? ask(&c, str_from(o->prompt), &err) : chat_loop(&c, &err);
    buf_deinit(&c.messages);
    prep_free(c.prep);
    session_close(&c.session);
    return s == T9_STATUS_OK ? cli_finish_stdout() : cli_fail(&err);
}
