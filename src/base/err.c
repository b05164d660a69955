/*
 * base/err.c - the status table and the writers of `struct t9_err`.
 *
 * Messages are cut at the size of the buffer, never inside a UTF-8 character. Any thread: nothing
 * here has state.
 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int http;
    const char *openai_type;
} status_table[T9_STATUS_COUNT] = {
#define X(name, http, type) {#name, http, type},
    T9_STATUS_LIST(X)
#undef X
};

const char *t9_status_name(t9_status s)
{
    return (unsigned)s < T9_STATUS_COUNT ? status_table[s].name : "?";
}

int t9_status_http(t9_status s)
{
    return (unsigned)s < T9_STATUS_COUNT ? status_table[s].http : 500;
}

const char *t9_status_openai_type(t9_status s)
{
    return (unsigned)s < T9_STATUS_COUNT ? status_table[s].openai_type : "server_error";
}

/* Removes a character that vsnprintf cut in two, so that the message stays valid UTF-8. */
static void drop_cut_char(char *z, size_t cap, int wanted)
{
    if (wanted < 0) {
        z[0] = 0;
        return;
    }
    if ((size_t)wanted < cap)
        return;
    size_t n = cap - 1;
    size_t back = 0;
    while (back < 3 && back < n && ((unsigned char)z[n - 1 - back] & 0xC0) == 0x80)
        back++;
    if (back == n)
        return;
    unsigned char lead = (unsigned char)z[n - 1 - back];
    size_t need = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (need > back)
        z[n - 1 - back] = 0;
}

t9_status(t9_fail)(struct t9_err *err, t9_status code, const char *fmt, ...)
{
    if (!err)
        return code;
    err->code = code;
    va_list ap;
    va_start(ap, fmt);
    int wanted = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    drop_cut_char(err->msg, sizeof err->msg, wanted);
    return code;
}

const char *t9_errno_text(int error, char *z, size_t cap)
{
    return strerror_r(error, z, cap);
}

t9_status(t9_fail_os)(struct t9_err *err, t9_status code, int error, const char *fmt, ...)
{
    char what[sizeof err->msg], why[96];
    if (!err)
        return code;
    va_list ap;
    va_start(ap, fmt);
    int wanted = vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    drop_cut_char(what, sizeof what, wanted);
    return (t9_fail)(err, code, "%s: %s", what, t9_errno_text(error, why, sizeof why));
}

t9_status t9_err_prefix(struct t9_err *err, const char *fmt, ...)
{
    if (!err)
        return T9_STATUS_INTERNAL;
    char prefix[sizeof err->msg];
    char old[sizeof err->msg];
    va_list ap;
    va_start(ap, fmt);
    int wanted = vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    drop_cut_char(prefix, sizeof prefix, wanted);
    memcpy(old, err->msg, sizeof old);
    old[sizeof old - 1] = 0;
    size_t n_prefix = strlen(prefix);
    size_t n_old = strlen(old);
    size_t cap = sizeof err->msg;
    memcpy(err->msg, prefix, n_prefix);
    size_t at = n_prefix;
    for (const char *sep = ": "; *sep && at < cap - 1; sep++)
        err->msg[at++] = *sep;
    size_t n_copy = n_old < cap - 1 - at ? n_old : cap - 1 - at;
    memcpy(err->msg + at, old, n_copy);
    err->msg[at + n_copy] = 0;
    drop_cut_char(err->msg, cap, (int)(at + n_old));
    return err->code;
}

#ifdef T9_DEBUG
void t9_assert_failed(const char *expr, const char *file, int line)
{
    fprintf(stderr, "tempo9: assertion failed: %s (%s:%d)\n", expr, file, line);
    abort();
}
#endif
