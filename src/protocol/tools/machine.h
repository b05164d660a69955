/*
 * protocol/tools/machine.h - private to this folder: what a dialect's step function works with.
 *
 * step() is called whenever there is more text, and a last time with `last` set. It looks at the
 * unread text (machine_unread), takes from its front what it understands (machine_take) and returns
 * when it can't go on without more. With `last` it must take everything. What it leaves unread is
 * seen again, so it must not be scanned again and again: keep an offset in the state where a wait
 * can be long.
 */
#ifndef T9_PROTOCOL_TOOLS_MACHINE_H
#define T9_PROTOCOL_TOOLS_MACHINE_H

#include "base/buf.h"
#include "protocol/tools/answer.h"
#include "protocol/tools/dialect.h"

struct machine;

/* ---- input ---- */

str machine_unread(const struct machine *m);
void machine_take(struct machine *m, size_t n_bytes);
bool machine_is_last(const struct machine *m);
const struct answer_params *machine_params(const struct machine *m);

/* Where the first of `markers` (ended by NULL; the longest wins at one place) begins in `text` at
 * or after `from`: *which is its index. Not found: *which is -1, and the result is where the end of
 * `text` may be the beginning of one, text.n when it can't be. */
size_t machine_find(str text, size_t from, const char *const *markers, int *which);

/* ---- outside of calls ---- */

/* Takes content and reasoning up to the next of `markers` (ended by NULL, or NULL: none), takes
 * that marker, too, and returns its index; -1: all was taken but what may become a marker. The
 * dialect's think tags are seen to here. At most 13 markers; they are looked for in content only,
 * and only when tools were offered. White space around calls and at the edges of reasoning is not
 * content. */
int machine_outside(struct machine *m, const char *const *markers);
/* Content; of text that turned out to be no call, with its marker. */
void machine_text(struct machine *m, str text);
void machine_reasoning(struct machine *m, str text);
/* For dialects that find reasoning themselves: from here on it is or is not. */
void machine_set_reasoning(struct machine *m, bool on);
bool machine_in_reasoning(const struct machine *m);
/* Whether what comes now stands at the beginning of what is said, or of a line. */
bool machine_on_own_line(const struct machine *m);

/* ---- calls ---- */

/* The tool by this name, NULL when it was not offered. */
const struct answer_tool *machine_tool(const struct machine *m, str name);
/* Begins a call; id may be empty. */
void machine_call(struct machine *m, const struct answer_tool *tool, str id);
void machine_args(struct machine *m, str json);
/* Ends it. `complete`: the model wrote all of it. A call without a byte of arguments gets {}. */
void machine_call_end(struct machine *m, bool complete);
/* Whether a call has begun and not ended. */
bool machine_in_call(const struct machine *m);
/* Out of memory or over a limit: nothing more is done. */
void machine_fail(struct machine *m, t9_status s);

#endif
