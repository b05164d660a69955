/*
 * base/log.c - log lines on stderr.
 *
 * A line is built on the stack and written with one write(2), so lines of several threads do not
 * mix and logging never allocates. Control characters and malformed UTF-8 in a message are escaped:
 * a hostile model name cannot forge a line or drive a terminal. Any thread.
 */
#include "base/log.h"

#include "base/clock.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_MSG_MAX  2048
#define LOG_LINE_MAX (LOG_MSG_MAX * 6 + 256) /* "\u00XX" is the longest escape */

static _Atomic int log_level_now = LOG_LEVEL_NONE;
static atomic_bool log_json_now;
static atomic_bool log_journal_now;

/* Held while the sink runs, so that who replaces it knows when the old one is done. Lines that go
 * to stderr never touch it. */
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool sink_wanted;
static log_sink sink_fn;
static void *sink_ctx;

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const journal_marks[] = {"<3>", "<4>", "<6>", "<7>"};

struct line {
    size_t n;
    char p[LOG_LINE_MAX];
};

void log_configure(const struct log_config *c)
{
    atomic_store(&sink_wanted, false);
    atomic_store(&log_level_now, (int)c->level);
    atomic_store(&log_json_now, c->json);
    atomic_store(&log_journal_now, c->journal);
}

void log_redirect(log_level level, log_sink sink, void *ctx)
{
    (void)pthread_mutex_lock(&sink_lock);
    sink_fn = sink;
    sink_ctx = ctx;
    atomic_store(&sink_wanted, true);
    atomic_store(&log_level_now, sink ? (int)level : LOG_LEVEL_NONE);
    (void)pthread_mutex_unlock(&sink_lock);
}

bool log_enabled(log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level_now, memory_order_relaxed);
}

bool log_level_parse(const char *name, log_level *out)
{
    for (int i = 0; i <= LOG_LEVEL_DEBUG; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *out = (log_level)i;
            return true;
        }
    }
    return false;
}

static void line_put(struct line *l, const char *p, size_t n)
{
    if (n > sizeof l->p - 1 - l->n)
        n = sizeof l->p - 1 - l->n;
    memcpy(l->p + l->n, p, n);
    l->n += n;
}

static void line_puts(struct line *l, const char *z)
{
    line_put(l, z, strlen(z));
}

/* Appends msg with control characters as \uXXXX (JSON) or \xXX (text). */
static void line_put_escaped(struct line *l, const char *msg, size_t n, bool json)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        char esc[8];
        size_t len = utf8_decode(msg + i, n - i, &cp);
        if (len == 0) {
            line_puts(l, "\xEF\xBF\xBD");
            i++;
            continue;
        }
        if (cp < 0x20 || cp == 0x7F || (cp >= 0x80 && cp < 0xA0)) {
            snprintf(esc, sizeof esc, json ? "\\u%04x" : "\\x%02x", (unsigned)cp);
            line_puts(l, esc);
        } else {
            if (json && (cp == '"' || cp == '\\'))
                line_put(l, "\\", 1);
            line_put(l, msg + i, len);
        }
        i += len;
    }
}

static void line_begin(struct line *l, log_level level, bool json)
{
    char ts[32];
    bool journal = atomic_load_explicit(&log_journal_now, memory_order_relaxed);
    l->n = 0;
    if (journal)
        line_puts(l, journal_marks[level]);
    if (journal && !json)
        return; /* time and level are the journal's */
    clock_iso8601(ts);
    line_puts(l, json ? "{\"ts\":\"" : "");
    line_puts(l, ts);
    line_puts(l, json ? "\",\"level\":\"" : " ");
    line_puts(l, level_names[level]);
    line_puts(l, json ? "\",\"module\":\"" : " ");
}

void log_write(log_level level, const char *module, const char *fmt, ...)
{
    static const char cut_mark[] = " [cut]";
    if (!log_enabled(level) || level < LOG_LEVEL_ERROR || level > LOG_LEVEL_DEBUG)
        return;
    char msg[LOG_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    int wanted = vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (wanted < 0)
        return;
    size_t n = (size_t)wanted;
    if (n >= sizeof msg) {
        n = sizeof msg - sizeof cut_mark;
        n -= utf8_incomplete_tail((str){msg, n});
        memcpy(msg + n, cut_mark, sizeof cut_mark - 1);
        n += sizeof cut_mark - 1;
    }
    if (atomic_load(&sink_wanted)) {
        (void)pthread_mutex_lock(&sink_lock);
        if (sink_fn)
            sink_fn(sink_ctx, level, module, msg);
        (void)pthread_mutex_unlock(&sink_lock);
        return;
    }
    struct line l;
    bool json = atomic_load_explicit(&log_json_now, memory_order_relaxed);
    line_begin(&l, level, json);
    line_put_escaped(&l, module, strlen(module), json);
    line_puts(&l, json ? "\",\"msg\":\"" : ": ");
    line_put_escaped(&l, msg, n, json);
    line_puts(&l, json ? "\"}" : "");
    l.p[l.n++] = '\n';
    while (write(STDERR_FILENO, l.p, l.n) < 0 && errno == EINTR)
        continue;
}
