/*
 * Fuzz target of cli/conffile: names are of the letters that names have, values are lines, and what
 * is refused is refused with the file's name and a line that there is.
 */
#include "cli/conffile.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static t9_status take(void *ctx, int line, char *name, char *value, struct t9_err *err)
{
    int *last = ctx;
    bool flag;
    if (line <= *last || name[0] < 'a' || name[0] > 'z' || strpbrk(name, " \t\r\n="))
        abort();
    *last = line;
    if (value && (strchr(value, '\n') || value[0] == ' ' || value[0] == '\t'))
        abort();
    if (value && conffile_bool(value, &flag) && strlen(value) > 5)
        abort();
    return strcmp(name, "stop") == 0 ? t9_fail(err, T9_STATUS_INVALID, "conf:%d: stop", line)
                                     : T9_STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct t9_err err = {0};
    int last = 0;
    char *text = malloc(n + 1);
    if (!text)
        return 0;
    if (n)
        memcpy(text, p, n);
    text[n] = 0;
    if (conffile_parse(text, n, "conf", take, &last, &err) != T9_STATUS_OK &&
        strncmp(err.msg, "conf:", 5) != 0)
        abort();
    free(text);
    return 0;
}
