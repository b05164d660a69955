/*
 * cli/helpdoc.h - manual pages and completions of shells, made from the table of options.
 */
#ifndef T9_CLI_HELPDOC_H
#define T9_CLI_HELPDOC_H

#include "cli/cli.h"

/* The page tempo9(1): docs/man/tempo9.1, which the build puts into the program. */
extern const unsigned char helpdoc_program[];
extern const size_t helpdoc_program_bytes;
/* The page tempo9-COMMAND(1), in man(7) macros. */
void helpdoc_man(cli_command c, struct buf *out);
/* For "bash", "zsh" or "fish"; INVALID for another. */
t9_status helpdoc_completion(const char *shell, struct buf *out, struct t9_err *err);

#endif
