/*
 * cli/config.c - the one place that reads the environment. An option always wins over it.
 */
#include "cli/cli.h"

#include <stdlib.h>

const char *config_api_key(const struct cli_options *o)
{
    const char *key = o->api_key ? o->api_key : getenv("TEMPO9_API_KEY");
    return key && key[0] ? key : NULL;
}
