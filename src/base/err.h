/*
 * base/err.h - status codes and the caller's message buffer (decision D10).
 *
 * Every function that can fail on data returns a t9_status. A human-readable message goes into an
 * optional `struct t9_err` that the caller owns; it is written once, at the point of knowledge, and
 * says what, where and what to do. Data is never asserted; T9_ASSERT is for programmer errors only.
 */
#ifndef T9_BASE_ERR_H
#define T9_BASE_ERR_H

#include <stddef.h>

/* X(name, http_status, openai_type): one table, protocols format from it. */
#define T9_STATUS_LIST(X)                                                                          \
    X(OK, 200, "")                                                                                 \
    X(AGAIN, 503, "server_error")            /* try again later; nothing was changed        */     \
    X(BUSY, 503, "server_error")             /* a bounded queue or pool is full              */    \
    X(INVALID, 400, "invalid_request_error") /* the caller's argument or data is wrong       */    \
    X(UNSUPPORTED, 400, "invalid_request_error") /* well-formed, but not something we do        */ \
    X(TOO_LARGE, 413, "invalid_request_error") /* over a stated limit                          */  \
    X(NOT_FOUND, 404, "invalid_request_error")                                                     \
    X(FORBIDDEN, 403, "invalid_request_error")                                                     \
    X(NOMEM, 500, "server_error")                                                                  \
    X(IO, 500, "server_error")      /* the OS refused or the file changed           */             \
    X(CORRUPT, 500, "server_error") /* a file or record is not what it claims       */             \
    X(CANCELLED, 499, "server_error")                                                              \
    X(INTERNAL, 500, "server_error")

/* tempo9.h has the same two for those outside; a test holds them together. */
#ifndef T9_STATUS_DEFINED
#    define T9_STATUS_DEFINED
typedef enum t9_status {
#    define X(name, http, type) T9_STATUS_##name,
    T9_STATUS_LIST(X)
#    undef X
        T9_STATUS_COUNT
} t9_status;

struct t9_err {
    t9_status code;
    char msg[240];
};
#endif

/* "OK", "INVALID", ...; "?" for a value outside the enum. */
const char *t9_status_name(t9_status s) __attribute__((visibility("default")));
/* The HTTP status a protocol answers with for `s`. */
int t9_status_http(t9_status s);
/* OpenAI's `error.type` for `s`. */
const char *t9_status_openai_type(t9_status s);

/* Writes code and formatted message into `err` (NULL allowed) and returns `code`. */
t9_status t9_fail(struct t9_err *err, t9_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, and ": " with what the system says about `error`, an errno. */
t9_status t9_fail_os(struct t9_err *err, t9_status code, int error, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#ifdef __clang_analyzer__
/* The analyzer sees one source file: without these it takes a failure for a possible success. */
static inline t9_status t9_fail_code_(t9_status returned, t9_status code)
{
    (void)returned;
    return code;
}
static inline int t9_fail_false_(int returned)
{
    (void)returned;
    return 0;
}
#    define t9_fail(err, code, ...) t9_fail_code_(t9_fail(err, code, __VA_ARGS__), code)
#    define t9_fail_os(err, code, error, ...)                                                      \
        t9_fail_code_(t9_fail_os(err, code, error, __VA_ARGS__), code)
#endif
/* The system's text for an errno, in the caller's buffer or static. */
const char *t9_errno_text(int error, char *z, size_t cap);
/* Puts "prefix: " before the message already in `err` (truncating at the end), returns err->code.
 */
t9_status t9_err_prefix(struct t9_err *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Programmer errors only: prints and aborts when T9_DEBUG is set, else nothing is evaluated. */
#ifdef T9_DEBUG
void t9_assert_failed(const char *expr, const char *file, int line) __attribute__((noreturn));
#    define T9_ASSERT(x) ((x) ? (void)0 : t9_assert_failed(#    x, __FILE__, __LINE__))
#else
#    define T9_ASSERT(x) ((void)sizeof(x))
#endif

#define T9_TRY(expr)                                                                               \
    do {                                                                                           \
        t9_status t9_try_ = (expr);                                                                \
        if (t9_try_ != T9_STATUS_OK)                                                               \
            return t9_try_;                                                                        \
    } while (0)

#define T9_COUNT(a) (sizeof(a) / sizeof((a)[0]))

#endif
