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

#include "lib/dialect_forms.h"
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

/* `rounds` generated tool sets with calls written in the form of that name (dialect_forms.h): they
 * come back as exactly these. */
void dialect_round_trip(const char *form, size_t rounds, uint64_t seed);
/* 500, and many more in a full run. */
size_t dialect_rounds(void);

#endif
