/*
 * cli/helpdoc.c - see helpdoc.h.
 */
#include "cli/helpdoc.h"

#include "cli/opttable.h"
#include "t9_build.h"

#include <string.h>

/* ---- manual pages ---- */

/* Text for man(7): what would be a macro, an escape or a dash is made to stand for itself. */
static void roff(struct buf *b, const char *text)
{
    if (*text == '.' || *text == '\'')
        buf_puts(b, "\\&");
    for (const char *p = text; *p; p++) {
        if (*p == '\\')
            buf_puts(b, "\\e");
        else if (*p == '-')
            buf_puts(b, "\\-");
        else
            buf_putc(b, *p);
    }
}

static void man_option(const struct opt *opt, struct buf *b)
{
    buf_puts(b, ".TP\n");
    if (opt->letter)
        buf_printf(b, "\\fB\\-%c\\fR, ", opt->letter);
    buf_puts(b, "\\fB\\-\\-");
    roff(b, opt->name);
    buf_puts(b, "\\fR");
    if (opt->arg) {
        buf_puts(b, " \\fI");
        roff(b, opt->arg);
        buf_puts(b, "\\fR");
    }
    buf_putc(b, '\n');
    roff(b, opt->help);
    buf_puts(b, ".\n");
}

void helpdoc_man(cli_command c, struct buf *b)
{
    const struct command *cmd = &COMMANDS[c];
    buf_puts(b, ".TH TEMPO9\\-");
    for (const char *p = cmd->name; *p; p++)
        buf_putc(b, (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p));
    buf_printf(b, " 1 \"\" \"tempo9 %s\" \"User Commands\"\n.SH NAME\ntempo9\\-%s \\- ", T9_VERSION,
               cmd->name);
    roff(b, cmd->help);
    buf_puts(b, "\n.SH SYNOPSIS\n.B tempo9\n");
    roff(b, cmd->usage);
    buf_puts(b, "\n.SH DESCRIPTION\n");
    roff(b, cmd->help);
    buf_puts(b, "\n.SH OPTIONS\nIn brackets: what holds without them.\n");
    for (int g = 0; g < OPT_GROUP_COUNT; g++) {
        bool begun = false;
        for (size_t i = 0; i < N_OPTIONS; i++) {
            const struct opt *opt = &OPTIONS[i];
            if (opt->group != (opt_group)g || !opt_is_of(opt, c))
                continue;
            if (!begun)
                buf_printf(b, ".SS %s\n", OPT_GROUP_NAMES[g]);
            begun = true;
            man_option(opt, b);
        }
    }
    buf_printf(b,
               ".SH EXIT STATUS\n0 done%s; 1 failed, with a message on standard error; 2 wrong "
               "usage%s.\n.SH SEE ALSO\n.BR tempo9 (1)\n",
               c == CLI_COMMAND_SERVE ? ", or stopped by a signal" : "",
               c == CLI_COMMAND_SERVE ? "" : "; 130 stopped by SIGINT (Ctrl\\-C), 143 by SIGTERM");
}

/* ---- completions ---- */

/* Whether the value of an option is a file. */
static bool takes_file(const struct opt *opt)
{
    return opt->arg && (strcmp(opt->arg, "FILE") == 0 || strcmp(opt->arg, "PATH") == 0 ||
                        strcmp(opt->arg, "DIR") == 0);
}

static void words_of(cli_command c, struct buf *b)
{
    const char *space = "";
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (!opt_is_of(&OPTIONS[i], c))
            continue;
        buf_printf(b, "%s--%s", space, OPTIONS[i].name);
        space = " ";
        if (OPTIONS[i].letter)
            buf_printf(b, " -%c", OPTIONS[i].letter);
    }
}

static void command_words(struct buf *b)
{
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        buf_printf(b, "%s%s", c ? " " : "", COMMANDS[c].name);
}

/* Options whose value is a file, and those whose value is something else, as patterns of case. */
static void value_patterns(struct buf *b, bool files)
{
    const char *bar = "";
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct opt *opt = &OPTIONS[i];
        if (opt->kind == OPT_FLAG || takes_file(opt) != files)
            continue;
        buf_printf(b, "%s--%s", bar, opt->name);
        bar = "|";
    }
}

static void bash(struct buf *b)
{
    buf_puts(
        b,
        "# bash completion for tempo9\n"
        "_tempo9()\n{\n"
        "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=serve words\n"
        "    COMPREPLY=()\n"
        "    case ${COMP_WORDS[1]} in\n        ");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        buf_printf(b, "%s%s", c ? "|" : "", COMMANDS[c].name);
    buf_puts(b, ") cmd=${COMP_WORDS[1]} ;;\n    esac\n    case $prev in\n        ");
    value_patterns(b, true);
    buf_puts(b, ")\n            COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n        ");
    value_patterns(b, false);
    buf_puts(b, ") return ;;\n    esac\n    case $cmd in\n");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        buf_printf(b, "        %s) words='", COMMANDS[c].name);
        words_of((cli_command)c, b);
        buf_puts(b, "' ;;\n");
    }
    buf_puts(b, "    esac\n"
                "    if [[ $cur == -* ]]; then\n"
                "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                "    elif [[ $COMP_CWORD -eq 1 || $cmd == help ]]; then\n"
                "        COMPREPLY=($(compgen -W '");
    command_words(b);
    buf_puts(b, "' -- \"$cur\"))\n"
                "        [[ $cmd == help ]] || COMPREPLY+=($(compgen -f -- \"$cur\"))\n"
                "    else\n"
                "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                "    fi\n}\n"
                "complete -o filenames -F _tempo9 tempo9\n");
}

/* Text between single quotes of a shell, without what zsh's _arguments reads as its own. */
static void quoted(struct buf *b, const char *text, bool zsh)
{
    for (const char *p = text; *p; p++) {
        if (*p == '\'')
            buf_puts(b, zsh ? "'\\''" : "\\'");
        else if (*p == '\\' || (zsh && (*p == ':' || *p == '[' || *p == ']')))
            buf_printf(b, "\\%c", *p);
        else
            buf_putc(b, *p);
    }
}

static void zsh_option(const struct opt *opt, struct buf *b)
{
    const char *many = opt->kind == OPT_TEXTS ? "*" : "";
    for (int form = opt->letter ? 0 : 1; form < 2; form++) {
        if (form == 0)
            buf_printf(b, "            '%s-%c", many, opt->letter);
        else
            buf_printf(b, "            '%s--%s", many, opt->name);
        buf_puts(b, "[");
        quoted(b, opt->help, true);
        buf_puts(b, "]");
        if (opt->arg) {
            buf_puts(b, ":");
            quoted(b, opt->arg, true);
            buf_puts(b, takes_file(opt) ? ":_files" : ":");
        }
        buf_puts(b, "' \\\n");
    }
}

static void zsh(struct buf *b)
{
    buf_puts(b, "#compdef tempo9\n\n_tempo9()\n{\n    local cmd=serve\n    local -a commands\n"
                "    commands=(\n");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        buf_printf(b, "        '%s:", COMMANDS[c].name);
        quoted(b, COMMANDS[c].help, true);
        buf_puts(b, "'\n");
    }
    buf_puts(b, "    )\n    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
                "        _describe command commands\n        _files\n        return\n    fi\n"
                "    case $words[2] in\n        ");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        buf_printf(b, "%s%s", c ? "|" : "", COMMANDS[c].name);
    buf_puts(b, ") cmd=$words[2]; shift words; (( CURRENT-- )) ;;\n    esac\n    case $cmd in\n");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        buf_printf(b, "        %s) _arguments \\\n", COMMANDS[c].name);
        for (size_t i = 0; i < N_OPTIONS; i++)
            if (opt_is_of(&OPTIONS[i], (cli_command)c))
                zsh_option(&OPTIONS[i], b);
        buf_puts(b,
                 c == CLI_COMMAND_HELP ? "            '*:command:(" : "            '*:file:_files");
        if (c == CLI_COMMAND_HELP) {
            command_words(b);
            buf_putc(b, ')');
        }
        buf_puts(b, "' ;;\n");
    }
    buf_puts(b, "    esac\n}\n\n_tempo9 \"$@\"\n");
}

static void fish_option(const struct opt *opt, cli_command c, struct buf *b)
{
    buf_printf(b, "complete -c tempo9 -n 'test (__tempo9_command) = %s' -l %s", COMMANDS[c].name,
               opt->name);
    if (opt->letter)
        buf_printf(b, " -s %c", opt->letter);
    if (opt->arg)
        buf_puts(b, takes_file(opt) ? " -rF" : " -x");
    buf_puts(b, " -d '");
    quoted(b, opt->help, false);
    buf_puts(b, "'\n");
}

static void fish(struct buf *b)
{
    buf_puts(b, "# fish completion for tempo9\n"
                "# The command that is being typed: the first word, if it is one.\n"
                "function __tempo9_command\n"
                "    set -l words (commandline -opc)\n"
                "    if contains -- \"$words[2]\" ");
    command_words(b);
    buf_puts(b, "\n        echo $words[2]\n    else\n        echo serve\n    end\nend\n"
                "complete -c tempo9 -n 'test (__tempo9_command) = help' -f -a '");
    command_words(b);
    buf_puts(b, "'\n");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        buf_printf(b, "complete -c tempo9 -n 'test (count (commandline -opc)) -eq 1' -a %s -d '",
                   COMMANDS[c].name);
        quoted(b, COMMANDS[c].help, false);
        buf_puts(b, "'\n");
        for (size_t i = 0; i < N_OPTIONS; i++)
            if (opt_is_of(&OPTIONS[i], (cli_command)c))
                fish_option(&OPTIONS[i], (cli_command)c, b);
    }
}

t9_status helpdoc_completion(const char *shell, struct buf *out, struct t9_err *err)
{
    static const struct {
        const char *name;
        void (*write)(struct buf *b);
    } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
    for (size_t i = 0; i < T9_COUNT(shells); i++)
        if (strcmp(shell, shells[i].name) == 0) {
            shells[i].write(out);
            return T9_STATUS_OK;
        }
    return t9_fail(err, T9_STATUS_INVALID, "--completion %s: bash, zsh and fish are known", shell);
}
