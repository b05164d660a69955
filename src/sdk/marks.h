/*
 * sdk/marks.h - private to sdk/: where in a prompt other prompts are likely to part from it. Any
 * thread; nothing here has state.
 */
#ifndef T9_SDK_MARKS_H
#define T9_SDK_MARKS_H

#include "template/template.h"
#include "tempo9.h"
#include "tokenizer/tokenizer.h"

/* Where the strings of a rendering come from, beyond the template's own classes. */
enum {
    ORIGIN_ASSISTANT = 2, /* content of an assistant's message */
    ORIGIN_TURN = 3,      /* content of another message that is not the system's */
};

/* The marks of the text, whose encoding can be taken up at `cuts`; returns how many. */
size_t marks_find(const struct jinja_output *text, const struct tok_cuts *cuts,
                  struct t9_mark out[T9_MARKS_MAX]);

#endif
