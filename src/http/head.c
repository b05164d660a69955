/*
 * http/head.c - a request's head: refused unless it has one meaning only, and then read from. On
 * the library's threads; nothing here has state.
 *
 * What two readers could understand differently (two Hosts, two lengths, a header that goes on
 * behind a NUL) is how one client's request becomes another's behind a proxy, so it is refused for
 * everybody. The library is lenient, and ends names and values at a NUL; it leaves the bytes of the
 * head where they arrived, so that what lies between two headers shows what it left out.
 */
#include "http/hostname.h"
#include "http/internal.h"
#include "protocol/caller.h"

#include <string.h>
#include <strings.h>

str head_value(struct MHD_Connection *c, const char *name)
{
    const char *value = NULL;
    size_t n = 0;
    (void)MHD_lookup_connection_value_n(c, MHD_HEADER_KIND, name, strlen(name), &value, &n);
    return str_trim((str){value, n});
}

/* ---- one meaning only ---- */

enum { SINGLES_MAX = 16, HEAD_BYTES_MAX = 65536 };

/* Of these the first one or the last one could be meant; of others there may be several, or we
 * don't read them. The headers that callers have beside these are singles too. */
static const char *const singles[] = {"Host",         "Content-Length", "Transfer-Encoding",
                                      "Content-Type", "Origin",         "Authorization",
                                      "X-Api-Key",    "X-Request-Id"};
static const char *const single_codes[] = {"invalid_host", "invalid_length", "invalid_encoding"};

enum { SINGLE_HOST, SINGLE_LENGTH, SINGLE_ENCODING };

struct head_scan {
    unsigned n_single[SINGLES_MAX];
    bool bad_name, folded, foreign_expect;
    const char *bad_value; /* name of the header that has it */
    const char *last;      /* name of the one before */
    const char *end;       /* of its value */
};

static const char *single_name(size_t i)
{
    size_t n = T9_COUNT(singles);
    return i < n ? singles[i] : i - n < caller_n_headers ? caller_headers[i - n].name : NULL;
}

/* A name with a blank in it or before its colon is another header to us than to readers that drop
 * the blank. */
static bool is_header_name(const char *name)
{
    static const char ok[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                             "!#$%&'*+-.^_`|~";
    return name[0] && !name[strspn(name, ok)];
}

static bool has_control(const char *value)
{
    for (const char *p = value; *p; p++) {
        if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7F)
            return true;
    }
    return false;
}

static bool is_continue(str value)
{
    return value.n == 12 && strncasecmp(value.p, "100-continue", 12) == 0;
}

/* Whether the value begins where its name ends. It does not where the library added the line below
 * to the name, because that line began with a blank. */
static bool is_adjacent(const char *name, const char *value)
{
    const char *p = name + strlen(name) + 1;
    if (value < p || (size_t)(value - p) > HEAD_BYTES_MAX)
        return false;
    while (p < value && (*p == ' ' || *p == '\t'))
        p++;
    return p == value;
}

/* Whether anything but blanks and ends of lines lies between what ends at `end` and `to`. The
 * library makes NULs of each end, which is of one or two bytes. */
static bool hides_text(const char *end, const char *to, size_t n_lines)
{
    size_t n_nul = 0;
    if (to < end || (size_t)(to - end) > HEAD_BYTES_MAX)
        return true;
    for (; end < to && (!*end || strchr(" \t\r\n", *end)); end++)
        n_nul += !*end;
    return end < to || n_nul > 2 * n_lines;
}

/* Where the head ends, below its empty line; `method` is where it begins. */
static const char *head_end(struct MHD_Connection *c, const char *method)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info ? method + info->header_size : method;
}

enum { URI_BYTES_MAX = 8192, PARAMETERS_MAX = 64 };

/* The library splits the query next, at a cost in memory for each parameter, and where that ends it
 * never answers. So of one that is too long it gets one parameter, and the refusal is ours. */
static bool is_long(const char *uri)
{
    size_t n = 0;
    for (const char *p = strchr(uri, '?'); p; p = strchr(p + 1, '&'))
        n++;
    if (n <= PARAMETERS_MAX && strlen(uri) <= URI_BYTES_MAX)
        return false;
    for (char *p = strchr(uri, '?'); p; p = strchr(p + 1, '&'))
        *p = *p == '&' ? '_' : *p;
    return true;
}

head_line head_line_of(const char *uri)
{
    if (is_long(uri))
        return HEAD_LINE_LONG;
    if (strncmp(uri + strlen(uri) + 1, "HTTP/", 5) != 0)
        return HEAD_LINE_NUL;
    return strchr(uri, ' ') ? HEAD_LINE_BLANK : HEAD_LINE_GOOD;
}

static t9_status check_line(head_line line, struct chat_error *err)
{
    if (line == HEAD_LINE_BLANK)
        return chat_fail(err, T9_STATUS_INVALID, NULL, "invalid_request_line",
                         "the request line has a blank in its path: write it as %%20");
    if (line == HEAD_LINE_NUL)
        return chat_fail(err, T9_STATUS_INVALID, NULL, "invalid_request_line",
                         "the request line has a NUL in it");
    if (line == HEAD_LINE_LONG) {
        (void)chat_fail(err, T9_STATUS_INVALID, NULL, "uri_too_long",
                        "path and query have more than %d bytes, or more than %d parameters",
                        URI_BYTES_MAX, PARAMETERS_MAX);
        err->http_status = MHD_HTTP_URI_TOO_LONG;
        return err->err.code;
    }
    return T9_STATUS_OK;
}

static enum MHD_Result scan_header(void *scan, enum MHD_ValueKind kind, const char *name,
                                   const char *value)
{
    struct head_scan *s = scan;
    const char *known;
    (void)kind;
    value = value ? value : "";
    for (size_t i = 0; i < SINGLES_MAX && (known = single_name(i)) != NULL; i++)
        s->n_single[i] += strcasecmp(name, known) == 0;
    s->bad_name |= !is_header_name(name);
    s->folded |= !is_adjacent(name, value);
    if (s->last && !s->folded && hides_text(s->end, name, 1))
        s->bad_value = s->last;
    if (has_control(value))
        s->bad_value = name;
    if (strcasecmp(name, "Expect") == 0)
        s->foreign_expect |= !is_continue(str_trim(str_from(value)));
    s->last = name;
    s->end = value + strlen(value);
    return MHD_YES;
}

static t9_status check_headers(const struct head_scan *n, struct chat_error *err)
{
    if (n->folded)
        return chat_fail(err, T9_STATUS_INVALID, NULL, "invalid_header",
                         "the request has a line that begins with a blank: write a header in one "
                         "line");
    if (n->bad_name)
        return chat_fail(err, T9_STATUS_INVALID, NULL, "invalid_header",
                         "the request has a header whose name is empty or has a blank or another "
                         "byte in it that no name has");
    if (n->bad_value)
        return chat_fail(err, T9_STATUS_INVALID, n->bad_value, "invalid_header",
                         "the header %.80s has a control character in its value", n->bad_value);
    for (size_t i = 0; i < SINGLES_MAX; i++) {
        if (n->n_single[i] > 1)
            return chat_fail(err, T9_STATUS_INVALID, single_name(i),
                             i < T9_COUNT(single_codes) ? single_codes[i] : "invalid_header",
                             "the request has %u %s headers; one is allowed", n->n_single[i],
                             single_name(i));
    }
    return T9_STATUS_OK;
}

/* The library decides by the bytes as they are: "chunked " is not chunked to it. */
static bool is_chunked(struct MHD_Connection *c)
{
    const char *value = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Transfer-Encoding");
    return value && strcasecmp(value, "chunked") == 0;
}

t9_status head_check(struct MHD_Connection *c, const char *method, const char *version,
                     head_line line, struct chat_error *err)
{
    struct head_scan n = {0};
    struct hostname host;
    (void)MHD_get_connection_values(c, MHD_HEADER_KIND, scan_header, &n);
    if (n.last && !n.folded && hides_text(n.end, head_end(c, method), 2))
        n.bad_value = n.last;
    T9_TRY(check_line(line, err));
    T9_TRY(check_headers(&n, err));
    if (n.n_single[SINGLE_HOST] == 0 && strcmp(version, "HTTP/1.1") == 0)
        return chat_fail(err, T9_STATUS_INVALID, "Host", "invalid_host",
                         "the request has no Host header, which HTTP/1.1 asks for");
    if (n.n_single[SINGLE_LENGTH] && n.n_single[SINGLE_ENCODING])
        return chat_fail(
            err, T9_STATUS_INVALID, "Content-Length", "invalid_length",
            "the request has both Content-Length and Transfer-Encoding; one of them is "
            "allowed");
    if (n.n_single[SINGLE_ENCODING] && strcmp(version, "HTTP/1.0") == 0)
        return chat_fail(err, T9_STATUS_INVALID, "Transfer-Encoding", "invalid_encoding",
                         "HTTP/1.0 has no Transfer-Encoding");
    if (n.n_single[SINGLE_ENCODING] && !is_chunked(c))
        return chat_fail(err, T9_STATUS_INVALID, "Transfer-Encoding", "invalid_encoding",
                         "the only Transfer-Encoding that is understood is chunked");
    if (n.n_single[SINGLE_HOST] && !hostname_parse(head_value(c, "Host"), &host))
        return chat_fail(err, T9_STATUS_INVALID, "Host", "invalid_host",
                         "the Host header is neither a name nor an address with an optional port");
    if (!n.foreign_expect)
        return T9_STATUS_OK;
    t9_status s = chat_fail(err, T9_STATUS_INVALID, "Expect", "expectation_failed",
                            "the only expectation that can be met is 100-continue");
    err->http_status = MHD_HTTP_EXPECTATION_FAILED;
    return s;
}
