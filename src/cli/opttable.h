/*
 * cli/opttable.h - the one table of commands and options. The parser, the configuration file, the
 * help, the manual pages and the completions of shells are made from it.
 */
#ifndef T9_CLI_OPTTABLE_H
#define T9_CLI_OPTTABLE_H

#include "cli/cli.h"

#include <stddef.h>

typedef enum opt_kind {
    OPT_FLAG,  /* bool */
    OPT_TEXT,  /* const char * */
    OPT_TEXTS, /* struct cli_texts; adds one */
    OPT_I32,   /* int32_t in [min, max] */
    OPT_BYTES, /* uint64_t with K, M, G, T */
    OPT_FLOAT, /* float in [min, max] */
    OPT_SEED,  /* uint64_t and seed_set */
    OPT_LIST,  /* struct cli_list of numbers in [min, max] */
    OPT_KV,
    OPT_LOG,
    OPT_NOW,
} opt_kind;

typedef enum opt_group {
    OPT_GROUP_MODEL,
    OPT_GROUP_SERVER,
    OPT_GROUP_LIMITS,
    OPT_GROUP_COMPUTE,
    OPT_GROUP_ANSWER,
    OPT_GROUP_COMMAND, /* of one command */
    OPT_GROUP_GENERAL,
    OPT_GROUP_COUNT,
} opt_group;

struct opt {
    const char *name;
    char letter; /* 0: none */
    opt_kind kind;
    uint32_t commands;
    size_t offset;
    double min, max;
    const char *arg, *help;
    opt_group group;
    bool common; /* in the short help */
};

struct command {
    const char *name, *usage, *help;
};

extern const struct opt OPTIONS[];
extern const size_t N_OPTIONS;
extern const struct command COMMANDS[CLI_COMMAND_COUNT];
extern const char *const OPT_GROUP_NAMES[OPT_GROUP_COUNT];

static inline bool opt_is_of(const struct opt *opt, cli_command c)
{
    return opt->commands & (1u << c);
}

#endif
