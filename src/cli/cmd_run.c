/*
 * cli/cmd_run.c - `run`: chat in the terminal through the same template, tokens and engine that
 * serve. Ctrl-C stops the answer (twice at the prompt: leaves), Ctrl-D leaves. With -p it answers
 * once. Standard output carries the answer and nothing else.
 */
#include "cli/cli.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "protocol/prep.h"
#include "t9_build.h"

#include <locale.h>
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
    struct runtime rt;
    struct prep *prep;
    struct chat_request req; /* its arena owns the history */
    size_t messages_cap;
    bool terminal;
    uint64_t seed;
};

/* Opens what `serve` opens, so that an answer here is the answer there. */
static t9_status chat_open(struct chat *c, struct t9_err *err)
{
    T9_TRY(runtime_open_tokenizer(&c->rt, c->o, err));
    T9_TRY(runtime_open_template(&c->rt, err));
    T9_TRY(runtime_open_model(&c->rt, c->o, c->o->step_tokens, err));
    T9_TRY(runtime_open_engine(&c->rt, c->o, err));
    struct prep_params pp = {.tokenizer = c->rt.tokenizer,
                             .engine = c->rt.engine,
                             .tmpl = c->rt.chat_template,
                             .model_name = gguf_file_name(c->rt.gguf),
                             .any_model = true,
                             .build_id = T9_BUILD_ID};
    T9_TRY(prep_new(&c->prep, &pp, err));
    chat_request_init(&c->req, CHAT_BYTES_MAX);
    c->seed = c->o->sampling.seed;
    if (!c->o->seed_set && getrandom(&c->seed, sizeof c->seed, 0) != (ssize_t)sizeof c->seed)
        c->seed = clock_now_ns();
    return T9_STATUS_OK;
}

static t9_status message_add(struct chat *c, chat_role role, str text, struct t9_err *err)
{
    if (c->req.n_messages == c->messages_cap) {
        size_t cap = c->messages_cap ? 2 * c->messages_cap : 16;
        struct chat_message *m = arena_calloc(&c->req.arena, cap, sizeof *m);
        if (!m)
            return t9_fail(err, T9_STATUS_TOO_LARGE, "the conversation is over %d MB",
                           CHAT_BYTES_MAX >> 20);
        if (c->req.n_messages)
            memcpy(m, c->req.messages, c->req.n_messages * sizeof *m);
        c->req.messages = m;
        c->messages_cap = cap;
    }
    str own = arena_str(&c->req.arena, text);
    if (!own.p)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "the conversation is over %d MB",
                       CHAT_BYTES_MAX >> 20);
    c->req.messages[c->req.n_messages++] =
        (struct chat_message){.role = role, .content = own, .has_content = true};
    return T9_STATUS_OK;
}

/* Writes the answer as it comes and keeps its text. `reason`: why it ended. */
static t9_status answer_stream(struct chat *c, struct request *r, struct buf *text,
                               finish_reason *reason, struct t9_err *err)
{
    struct event_cursor cursor = {0};
    struct detok d;
    size_t shown = 0;
    bool cancelled = false;
    detok_init(&d, tokenizer_vocab(c->rt.tokenizer));
    for (;;) {
        engine_wait(c->rt.engine, r, &cursor, 100);
        if (cli_interrupts() > 0 && !cancelled) {
            cancelled = true;
            engine_cancel(c->rt.engine, r);
        }
        struct event e = request_next(r, &cursor);
        if (e.kind == EVENT_TOKENS)
            for (int32_t i = e.from; i < e.to; i++)
                detok_push(&d, r->tokens[i], text, false);
        if (e.kind == EVENT_DONE)
            detok_finish(&d, text);
        cli_write(text->p + shown, text->n - shown);
        shown = text->n;
        if (fflush(stdout) != 0)
            engine_cancel(c->rt.engine, r);
        if (e.kind == EVENT_ERROR) {
            *err = e.error;
            return e.error.code;
        }
        if (e.kind == EVENT_DONE) {
            *reason = e.reason;
            return T9_STATUS_OK;
        }
    }
}

/* Computes, writes and remembers one answer; ends its line. CANCELLED: an interrupt stopped it
 * (what was written is kept). After any other failure the question is forgotten, so that roles
 * alternate.
 */
static t9_status answer(struct chat *c, struct t9_err *err)
{
    struct tok_ids ids = {0};
    finish_reason reason = FINISH_REASON_NONE;
    struct chat_error ce = {0};
    struct request *r = NULL;
    struct buf text;
    buf_init(&text, CHAT_BYTES_MAX);
    t9_status s = prep_tokens(c->prep, &c->req, &ids, &ce);
    if (s != T9_STATUS_OK) {
        *err = ce.err;
        goto done;
    }
    int32_t room = engine_max_tokens(c->rt.engine, (int32_t)ids.n);
    if (room < 1) {
        s = t9_fail(err, T9_STATUS_TOO_LARGE,
                    "the conversation has %zu tokens and the limit is %d: start a new one with "
                    "/reset or raise --max-length",
                    ids.n, engine_max_length(c->rt.engine));
        goto done;
    }
    if (c->o->max_tokens > 0 && c->o->max_tokens < room)
        room = c->o->max_tokens;
    if ((s = request_new(&r, room, err)) != T9_STATUS_OK)
        goto done;
    r->prompt = ids.p;
    r->n_prompt = (int32_t)ids.n;
    r->max_tokens = room;
    r->sampling = c->o->sampling;
    r->sampling.seed = c->seed;
    if ((s = engine_submit(c->rt.engine, r, err)) != T9_STATUS_OK)
        goto done;
    s = answer_stream(c, r, &text, &reason, err);
    fputs("\n", stdout);
    fflush(stdout);
    if (s == T9_STATUS_OK)
        s = message_add(c, CHAT_ROLE_ASSISTANT, buf_str(&text), err);
    if (s == T9_STATUS_OK && reason == FINISH_REASON_LENGTH)
        fprintf(stderr, "[stopped after %d tokens, the limit]\n", room);
    if (s == T9_STATUS_OK && reason == FINISH_REASON_CANCELLED && cli_interrupts() > 0)
        s = t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
done:
    if (s != T9_STATUS_OK && s != T9_STATUS_CANCELLED)
        c->req.n_messages--;
    request_free(r);
    tok_ids_deinit(&ids);
    buf_deinit(&text);
    return s;
}

static t9_status reset(struct chat *c, struct t9_err *err)
{
    chat_request_deinit(&c->req);
    chat_request_init(&c->req, CHAT_BYTES_MAX);
    c->messages_cap = 0;
    return c->o->system ? message_add(c, CHAT_ROLE_SYSTEM, str_from(c->o->system), err)
                        : T9_STATUS_OK;
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

/* A slash and one word, as a command would be: a typing error must not become a message. */
static bool looks_like_command(str text)
{
    for (size_t i = 1; i < text.n; i++) {
        if (text.p[i] < 'a' || text.p[i] > 'z')
            return false;
    }
    return text.n > 1 && text.p[0] == '/';
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
        fprintf(stderr, "%s ready. /reset starts anew, Ctrl-C stops an answer, Ctrl-D leaves.\n",
                gguf_file_name(c->rt.gguf));
        editor_open(&ed);
    }
    for (;;) {
        cli_interrupts_clear();
        bool got = ed.el ? editor_line(&ed, &line) : line_read_plain(&line, c->terminal);
        if (!got && cli_interrupts() > 0 && ++idle_interrupts < 2) {
            clearerr(stdin);
            fprintf(stderr, "\n(once more or Ctrl-D to leave)\n");
            continue;
        }
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
        if (str_eqz(text, "/reset")) {
            s = reset(c, err);
        } else if (c->terminal && looks_like_command(text)) {
            fprintf(stderr, "(" STR_FMT " is no command: /reset starts anew, Ctrl-D leaves)\n",
                    STR_ARG(text));
        } else {
            cli_interrupts_clear();
            s = message_add(c, CHAT_ROLE_USER, text, err);
            if (s == T9_STATUS_OK)
                s = answer(c, err);
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
    t9_status s = chat_open(&c, &err);
    if (s == T9_STATUS_OK)
        s = reset(&c, &err);
    if (s == T9_STATUS_OK && o->prompt) {
        s = message_add(&c, CHAT_ROLE_USER, str_from(o->prompt), &err);
        if (s == T9_STATUS_OK)
            s = answer(&c, &err);
    } else if (s == T9_STATUS_OK) {
        s = chat_loop(&c, &err);
    }
    chat_request_deinit(&c.req);
    prep_free(c.prep);
    runtime_close(&c.rt);
    return s == T9_STATUS_OK ? cli_finish_stdout() : cli_fail(&err);
}
