/*
 * cli/speech.h - an answer as `run` shows it: what the model says goes to standard output, what it
 * thinks to a terminal on standard error, dimmed, and nowhere else. One thread at a time.
 */
#ifndef T9_CLI_SPEECH_H
#define T9_CLI_SPEECH_H

#include "cli/visible.h"

#include "base/err.h"
#include "protocol/prep.h"
#include "protocol/tools/answer.h"

struct speech {
    struct answer_parser *parser;
    struct buf said, thought; /* all of it so far */
    bool shows_thoughts, is_dim;
    struct visible visible;
};

/* An answer to `prompt` begins. Freed by speech_deinit whatever comes back. */
t9_status speech_init(struct speech *s, const struct prep *p, const t9_ids *prompt,
                      struct t9_err *err);
void speech_deinit(struct speech *s);
/* More of the answer, to be shown at once. */
t9_status speech_push(struct speech *s, str text, struct t9_err *err);
/* It is over. */
t9_status speech_end(struct speech *s, struct t9_err *err);

#endif
