/*
 * cli/cmd_replay.c - `replay`: asks the scheduler again what it was asked when a plan log was
 * written, and says where the answer differs or a step is missing. No model, no engine.
 */
#include "cli/cli.h"

#include "base/mem.h"
#include "engine/plan_log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Reads lines until the end or the first that differs. A last line without its line feed was cut
 * off when the program was ended; it is left out. */
static t9_status replay_lines(FILE *f, char *line, size_t cap, struct plan_replay *r, bool *cut,
                              struct t9_err *err)
{
    for (uint64_t n = 1; fgets(line, (int)cap, f); n++) {
        size_t len = strlen(line);
        if (len == 0 || line[len - 1] != '\n') {
            if (len + 1 < cap && feof(f)) {
                *cut = true;
                return T9_STATUS_OK;
            }
            return t9_fail(err, T9_STATUS_INVALID, "line %llu: not a line of a plan log",
                           (unsigned long long)n);
        }
        if (plan_replay_line(r, (str){line, len - 1}, err) != T9_STATUS_OK)
            return t9_err_prefix(err, "line %llu", (unsigned long long)n);
        if (cli_interrupts() > 0)
            return t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
    }
    return ferror(f) ? t9_fail_os(err, T9_STATUS_IO, errno, "it could not be read") : T9_STATUS_OK;
}

static t9_status replay(const char *path, struct plan_replay *r, bool *cut, struct t9_err *err)
{
    size_t cap = plan_log_line_cap(PLAN_LOG_SEQS_MAX) + 2;
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "rb");
    int error = errno;
    char *line = mem_alloc(cap);
    t9_status s = T9_STATUS_OK;
    if (!f)
        s = t9_fail_os(err, error == ENOENT ? T9_STATUS_NOT_FOUND : T9_STATUS_IO, error,
                       "it could not be opened");
    else if (!line)
        s = t9_fail(err, T9_STATUS_NOMEM, "no memory for a line of %zu bytes", cap);
    else
        s = replay_lines(f, line, cap, r, cut, err);
    if (s != T9_STATUS_OK && cli_interrupts() > 0) /* while a writer let us wait */
        s = t9_fail(err, T9_STATUS_CANCELLED, "interrupted");
    if (s == T9_STATUS_OK && r->n_steps == 0)
        s = t9_fail(err, T9_STATUS_INVALID, "there is no step in it: nothing was compared");
    mem_free(line);
    if (f && !is_stdin)
        (void)fclose(f);
    return s == T9_STATUS_OK || s == T9_STATUS_CANCELLED ? s : t9_err_prefix(err, "%s", path);
}

int cmd_replay(const struct cli_options *o)
{
    struct plan_replay r = {0};
    struct t9_err err = {0};
    bool cut = false;
    t9_status s = plan_replay_init(&r, &err);
    if (s == T9_STATUS_OK)
        s = replay(o->replay, &r, &cut, &err);
    unsigned long long n_steps = r.n_steps;
    unsigned long long first = r.first_step;
    plan_replay_deinit(&r);
    if (s != T9_STATUS_OK)
        return cli_fail(&err);
    printf("%llu step%s, the same plans", n_steps, n_steps == 1 ? "" : "s");
    if (first > 1)
        printf("; the log begins with step %llu", first);
    printf("%s\n", cut ? "; the last line is cut off and was left out" : "");
    return cli_finish_stdout();
}
