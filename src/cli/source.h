/*
 * cli/source.h - a model by name instead of by path: --hf, --ollama and `pull`, with what a person
 * sees of it on standard error.
 */
#ifndef T9_CLI_SOURCE_H
#define T9_CLI_SOURCE_H

#include "cli/cli.h"
#include "protocol/pull.h"

/* Fetches or finds the model of --hf or --ollama; o->gguf is then its path, and o->name what
 * clients call it unless the user said so. Without either option nothing happens. Returns an exit
 * code after a message. */
int source_resolve(struct cli_options *o);
/* The server's pull_hook, over the options that it was started with. */
t9_status source_pull(void *options, const char *name,
                      bool (*progress)(void *to, const struct pull_progress *p), void *to,
                      struct t9_err *err);
/* --list-ollama, on standard output. */
int source_list_ollama(const struct cli_options *o);

#endif
