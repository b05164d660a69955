/*
 * cli/conffile.h - the configuration file: lines of "name = value" with the names of the options,
 * or a name alone for one that takes no value. Empty lines and lines that begin with # say nothing.
 * Values are taken as they stand, without quotes; white space around them is not part of them.
 */
#ifndef T9_CLI_CONFFILE_H
#define T9_CLI_CONFFILE_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* `value` is NULL for a name alone. Both are NUL-terminated and last until the program ends. */
typedef t9_status (*conffile_line)(void *ctx, int line, char *name, char *value,
                                   struct t9_err *err);

/* Calls `take` for each line that says something; stops at its first error. Messages begin with
 * path:line. What was read is kept until the program ends, for the options that point into it. */
t9_status conffile_read(const char *path, conffile_line take, void *ctx, struct t9_err *err);
/* The same for a text in memory, which is changed: it must have room for one NUL after n bytes. */
t9_status conffile_parse(char *text, size_t n, const char *path, conffile_line take, void *ctx,
                         struct t9_err *err);
/* yes, true, on, 1 and their opposites. */
bool conffile_bool(const char *value, bool *out);

#endif
