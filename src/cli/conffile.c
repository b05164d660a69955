/*
 * cli/conffile.c - see conffile.h. One thread.
 */
#include "cli/conffile.h"

#include "base/buf.h"
#include "base/file.h"

#include <string.h>

enum { CONFFILE_BYTES_MAX = 1 << 20, LINE_BYTES_MAX = 8192 };

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

/* One line without its end, which is a NUL. */
static t9_status take_line(char *line, size_t n, int number, const char *path, conffile_line take,
                           void *ctx, struct t9_err *err)
{
    if (memchr(line, 0, n) || n > LINE_BYTES_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "%s:%d: the line %s", path, number,
                       n > LINE_BYTES_MAX ? "is too long" : "has a NUL byte in it");
    str whole = str_trim((str){line, n});
    if (whole.n == 0 || whole.p[0] == '#')
        return T9_STATUS_OK;
    size_t at = (size_t)(whole.p - line), end = at;
    line[at + whole.n] = 0;
    while (name_byte(line[end]))
        end++;
    size_t rest = end + strspn(line + end, " \t");
    bool named = line[at] >= 'a' && line[at] <= 'z';
    if (!named || (line[rest] != 0 && line[rest] != '='))
        return t9_fail(
            err, T9_STATUS_INVALID,
            "%s:%d: not of the form name = value, with an option's name without its dashes", path,
            number);
    char *value = NULL;
    if (line[rest] == '=') {
        rest++;
        value = line + rest + strspn(line + rest, " \t");
    }
    line[end] = 0;
    return take(ctx, number, line + at, value, err);
}

t9_status conffile_parse(char *text, size_t n, const char *path, conffile_line take, void *ctx,
                         struct t9_err *err)
{
    int number = 0;
    for (size_t at = 0; at < n;) {
        char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - (text + at)) : n - at;
        text[at + length] = 0;
        T9_TRY(take_line(text + at, length, ++number, path, take, ctx, err));
        at += length + 1;
    }
    return T9_STATUS_OK;
}

t9_status conffile_read(const char *path, conffile_line take, void *ctx, struct t9_err *err)
{
    static struct buf text; /* the options point into it */
    buf_deinit(&text);
    buf_init(&text, CONFFILE_BYTES_MAX);
    T9_TRY(file_read_all(path, &text, err));
    size_t n = text.n;
    buf_putc(&text, 0);
    if (text.failed)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "%s: larger than %d bytes", path,
                       CONFFILE_BYTES_MAX);
    return conffile_parse(text.p, n, path, take, ctx, err);
}

bool conffile_bool(const char *value, bool *out)
{
    static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false",
                                                                                "off", "0"};
    for (size_t i = 0; i < T9_COUNT(yes); i++) {
        if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
            *out = strcmp(value, yes[i]) == 0;
            return true;
        }
    }
    return false;
}
