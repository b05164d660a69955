/*
 * cli/cmd_pull.c - `pull`: fetches a model into the cache and prints its path.
 */
#include "cli/source.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int cmd_pull(const struct cli_options *o)
{
    struct cli_options resolved = *o;
    int rc = source_resolve(&resolved);
    if (rc != EXIT_DONE)
        return rc;
    cli_write(resolved.gguf, strlen(resolved.gguf));
    cli_write("\n", 1);
    if (isatty(STDOUT_FILENO) == 1)
        fprintf(stderr, "tempo9: to serve it: tempo9 --hf %s\n", o->hf);
    return cli_finish_stdout();
}
