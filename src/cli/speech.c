/*
 * cli/speech.c - see speech.h.
 */
#include "cli/speech.h"

#include "cli/cli.h"

#include <stdio.h>
#include <unistd.h>

#define SPEECH_BYTES_MAX ((size_t)64 << 20)

t9_status speech_init(struct speech *s, const struct prep *p, const t9_ids *prompt,
                      struct t9_err *err)
{
    struct answer_params params = {
        .dialect = prep_info(p)->dialect,
        .reasoning_open = prep_opens_reasoning(p, prep_info(p)->dialect, prompt->p, prompt->n),
        .max_bytes = SPEECH_BYTES_MAX};
    *s = (struct speech){.shows_thoughts = isatty(STDERR_FILENO) == 1, .visible.lines = true};
    buf_init(&s->said, SPEECH_BYTES_MAX);
    buf_init(&s->thought, SPEECH_BYTES_MAX);
    return answer_parser_new(&s->parser, &params, err);
}

void speech_deinit(struct speech *s)
{
    answer_parser_free(s->parser);
    buf_deinit(&s->said);
    buf_deinit(&s->thought);
}

static void dim(struct speech *s, bool on)
{
    if (s->is_dim == on)
        return;
    s->is_dim = on;
    fputs(on ? "\033[2m" : "\033[22m\n\n", stderr);
}

static void think(struct speech *s, str text)
{
    struct buf out;
    buf_puts_str(&s->thought, text);
    if (!s->shows_thoughts)
        return;
    dim(s, true);
    buf_init(&out, 8 * text.n + 64);
    visible_push(&s->visible, text.p, text.n, &out);
    (void)fwrite(out.p, 1, out.n, stderr);
    buf_deinit(&out);
}

static void say(struct speech *s, str text)
{
    dim(s, false);
    buf_puts_str(&s->said, text);
    cli_write(text.p, text.n);
}

static t9_status show_parts(struct speech *s, t9_status status, struct t9_err *err)
{
    struct answer_part part;
    while (answer_parser_next(s->parser, &part)) {
        if (part.kind == ANSWER_TEXT)
            say(s, part.text);
        if (part.kind == ANSWER_REASONING)
            think(s, part.text);
    }
    if (status == T9_STATUS_OK && (s->said.failed || s->thought.failed))
        status = T9_STATUS_TOO_LARGE;
    return status == T9_STATUS_OK ? status
                                  : t9_fail(err, status, "the answer is too long to be kept");
}

t9_status speech_push(struct speech *s, str text, struct t9_err *err)
{
    return show_parts(s, answer_parser_push(s->parser, text), err);
}

t9_status speech_end(struct speech *s, struct t9_err *err)
{
    t9_status status = show_parts(s, answer_parser_end(s->parser), err);
    dim(s, false);
    return status;
}
