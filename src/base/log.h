/*
 * base/log.h - leveled log lines on stderr, text or JSON lines. Any thread; one write per line.
 * Prompts and answers never go here.
 */
#ifndef T9_BASE_LOG_H
#define T9_BASE_LOG_H

#include <stdbool.h>

typedef enum log_level {
    LOG_LEVEL_NONE = -1,
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
} log_level;

struct log_config {
    log_level level;
    bool json;    /* one JSON object a line: {"ts":...,"level":...,"module":...,"msg":...} */
    bool journal; /* for systemd's: "<N>" in front, N being syslog's level, and a text without time
                   */
};

/* Lines go to stderr. Call once before threads start; before that nothing is written, because a
 * library does not write to what its host owns. */
void log_configure(const struct log_config *c);
/* Lines go to `sink` instead, without time and level in front, NUL-terminated; NULL: nowhere. Any
 * thread: when it returns, the former sink is not called any more. */
typedef void (*log_sink)(void *ctx, log_level level, const char *module, const char *msg);
void log_redirect(log_level level, log_sink sink, void *ctx);
bool log_enabled(log_level level);
bool log_level_parse(const char *name, log_level *out);
void log_write(log_level level, const char *module, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define LOG_ERROR(module, ...) log_write(LOG_LEVEL_ERROR, module, __VA_ARGS__)
#define LOG_WARN(module, ...)  log_write(LOG_LEVEL_WARN, module, __VA_ARGS__)
#define LOG_INFO(module, ...)  log_write(LOG_LEVEL_INFO, module, __VA_ARGS__)
#define LOG_DEBUG(module, ...)                                                                     \
    do {                                                                                           \
        if (log_enabled(LOG_LEVEL_DEBUG))                                                          \
            log_write(LOG_LEVEL_DEBUG, module, __VA_ARGS__);                                       \
    } while (0)

#endif
