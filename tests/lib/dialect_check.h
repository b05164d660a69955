/*
 * tests/lib/dialect_check.h - holds a dialect to what protocol/tools/answer.h promises.
 *
 * Parts are compared as text, one a line:
 *
 *     text: Let me see.
 *     thinks: two\nlines
 *     call: get_weather #id
 *     args: {"city":"Oslo"}
 *     end                            the call is complete; "cut": it is not
 *
 * with line feeds written \n and backslashes doubled.
 */
#ifndef T9_TESTS_LIB_DIALECT_CHECK_H
#define T9_TESTS_LIB_DIALECT_CHECK_H

#include "base/buf.h"
#include "base/json.h"
#include "protocol/tools/answer.h"
#include "protocol/tools/dialect.h"

enum {
    CHECK_REASONING_OPEN = 1,
    CHECK_ONE_CALL = 2,
    CHECK_NO_TOOLS = 4,
};

struct dialect_case {
    const char *what;
    const char *text;
    const char *parts;
    unsigned flags;
};

/* Each answer in one piece, cut in two at every character, and character by character has these
 * parts; cut off at every character, no call is complete that was not. `tools` is a JSON array of
 * {"name": NAME, "parameters": SCHEMA}. */
void dialect_check(const char *dialect, const char *tools, const struct dialect_case *cases,
                   size_t n);

/* ---- round trip ---- */

struct dialect_call {
    str name;
    yyjson_val *args, *schema;
};

/* How a model of a dialect writes. */
struct dialect_form {
    const char *dialect;
    /* Appends calls as the model writes them. `seed`: for choices where the form has any
     * (test_random). */
    void (*write)(struct buf *out, const struct dialect_call *calls, size_t n, uint64_t *seed);
    /* Whether this form can carry this string as it is; NULL: any. */
    bool (*can_carry)(str s);
    bool names_are_words; /* letters, digits, underscores only */
    bool no_text_before, no_text_after;
    size_t max_calls; /* in one answer; 0: 4 */
};

/* Whether one of `tags` (ended by NULL) stands in it with another tag behind it, after any white
 * space: then no reader can tell that it is text. */
bool dialect_tag_before_tag(str s, const char *const *tags);

/* `rounds` generated tool sets with calls written in the form: they come back as exactly these. */
void dialect_round_trip(const struct dialect_form *form, size_t rounds, uint64_t seed);
/* 500, and many more in a full run. */
size_t dialect_rounds(void);

#endif
