/*
 * cli/help.c - the text of --help, in short for the program and whole for one command, and `help`.
 */
#include "cli/opttable.h"

#include "cli/helpdoc.h"

#include <stdio.h>
#include <string.h>

/* `text` from column `from` on, broken between words before column 80. */
static void print_wrapped(const char *text, int from)
{
    int column = from;
    for (const char *word = text; *word;) {
        int n = (int)strcspn(word, " ");
        if (column > from && column + 1 + n >= 80) {
            printf("\n%*s", from, "");
            column = from;
        }
        column += printf("%s%.*s", column > from ? " " : "", n, word);
        word += n;
        word += strspn(word, " ");
    }
    printf("\n");
}

static void print_option(const struct opt *opt)
{
    enum { HELP_COLUMN = 31 };
    char left[48], letter[8] = "    ";
    if (opt->letter)
        snprintf(letter, sizeof letter, "-%c, ", opt->letter);
    snprintf(left, sizeof left, "%s--%s %s", letter, opt->name, opt->arg ? opt->arg : "");
    printf("  %-28s ", left);
    print_wrapped(opt->help, HELP_COLUMN);
}

static void print_options(cli_command c, bool only_common)
{
    for (int g = 0; g < OPT_GROUP_COUNT; g++) {
        bool begun = false;
        for (size_t i = 0; i < N_OPTIONS; i++) {
            const struct opt *opt = &OPTIONS[i];
            if (opt->group != (opt_group)g || !opt_is_of(opt, c) || (only_common && !opt->common))
                continue;
            if (!begun)
                printf("\n%s:\n", OPT_GROUP_NAMES[g]);
            begun = true;
            print_option(opt);
        }
    }
}

static void print_commands(void)
{
    printf("\nCommands (tempo9 help COMMAND explains one):\n");
    for (int i = 0; i < CLI_COMMAND_COUNT; i++) {
        printf("  %-11s ", COMMANDS[i].name);
        print_wrapped(COMMANDS[i].help, 14);
    }
}

static void print_program(void)
{
    printf("tempo9 serves language models (GGUF files) on this machine, to many at once.\n"
           "\n"
           "  tempo9 model.gguf          serve it on http://127.0.0.1:11435, to clients\n"
           "                             of OpenAI, Anthropic and Ollama\n"
           "  tempo9 run model.gguf      chat with it in this terminal\n");
    print_commands();
    printf("\nThe commonest options of serve (in brackets: what holds without them):");
    print_options(CLI_COMMAND_SERVE, true);
    printf("\ntempo9 --help-all lists every option; man tempo9 tells more.\n"
           "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 or 143 stopped by a signal.\n");
}

static void print_command(cli_command c)
{
    printf("usage: tempo9 %s\n\n", COMMANDS[c].usage);
    print_wrapped(COMMANDS[c].help, 0);
    printf("\nOptions (in brackets: what holds without them):");
    print_options(c, false);
}

void cli_help(const struct cli_options *o)
{
    if (o->command == CLI_COMMAND_SERVE && !o->help_all)
        print_program();
    else
        print_command(o->command);
}

int cmd_help(const struct cli_options *o)
{
    struct buf out;
    if (!o->man && !o->completion) {
        if (o->has_topic)
            print_command(o->topic);
        else
            print_program();
        return cli_finish_stdout();
    }
    buf_init(&out, 1 << 20);
    struct t9_err err = {0};
    t9_status s = T9_STATUS_OK;
    if (o->man && o->has_topic)
        helpdoc_man(o->topic, &out);
    else if (o->man)
        buf_append(&out, helpdoc_program, helpdoc_program_bytes);
    else
        s = helpdoc_completion(o->completion, &out, &err);
    if (s == T9_STATUS_OK && out.failed)
        s = t9_fail(&err, T9_STATUS_NOMEM, "no memory");
    if (s == T9_STATUS_OK)
        cli_write(out.p, out.n);
    buf_deinit(&out);
    return s == T9_STATUS_OK ? cli_finish_stdout() : cli_fail(&err);
}
