/*
 * hub/fetch.c - HTTP GET by libcurl. See hub/fetch.h.
 *
 * Redirects are followed here and not by libcurl, because each hop is looked at: the token goes to
 * the endpoint's own scheme, host and port and nowhere else, and plain http only to this machine,
 * and only when the endpoint is this machine as well. Proxies are libcurl's affair.
 */
#include "hub/fetch.h"

#ifdef T9_HAVE_CURL

#    include "base/buf.h"
#    include "base/mem.h"
#    include "base/num.h"

#    include <curl/curl.h>
#    include <stdio.h>
#    include <strings.h>

enum { HOPS_MAX = 8, IGNORED_BODY_MAX = 1 << 20, URL_MAX = 16384 };

struct origin {
    char scheme[8], host[256], port[8];
};

struct hub_fetch {
    CURL *curl;
    const struct hub_params *p;
    struct origin home;
    bool home_is_local;
    char why[CURL_ERROR_SIZE];
    /* of the hop that runs */
    const struct hub_request *req;
    struct hub_reply *reply;
    bool at_home, begun, refused;
    size_t ignored;
};

static bool url_part(CURLU *u, CURLUPart what, unsigned flags, char *out, size_t cap)
{
    char *text = NULL;
    out[0] = 0;
    if (curl_url_get(u, what, &text, flags) != CURLUE_OK || !text)
        return false;
    size_t n = strlen(text);
    if (n < cap)
        memcpy(out, text, n + 1);
    curl_free(text);
    return n < cap;
}

/* False for what is no URL of http or https, or has a user's name in it. */
static bool origin_parse(struct origin *o, const char *url)
{
    CURLU *u = curl_url();
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              url_part(u, CURLUPART_SCHEME, 0, o->scheme, sizeof o->scheme) &&
              url_part(u, CURLUPART_HOST, 0, o->host, sizeof o->host) &&
              url_part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, o->port, sizeof o->port);
    char *user = NULL;
    if (ok && curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_OK)
        ok = false;
    curl_free(user);
    curl_url_cleanup(u);
    return ok && (strcmp(o->scheme, "https") == 0 || strcmp(o->scheme, "http") == 0);
}

static bool is_local(const struct origin *o)
{
    if (strcasecmp(o->host, "localhost") == 0 || strcmp(o->host, "[::1]") == 0)
        return true;
    return strncmp(o->host, "127.", 4) == 0 && strspn(o->host, "0123456789.") == strlen(o->host);
}

static bool same_origin(const struct origin *a, const struct origin *b)
{
    return strcmp(a->scheme, b->scheme) == 0 && strcasecmp(a->host, b->host) == 0 &&
           strcmp(a->port, b->port) == 0;
}

/* A header's value when `line` is the header `name`, trimmed; {NULL, 0} otherwise. */
static str header_value(str line, const char *name)
{
    size_t n = strlen(name);
    if (line.n <= n || line.p[n] != ':' || strncasecmp(line.p, name, n) != 0)
        return (str){NULL, 0};
    return str_trim(str_slice(line, n + 1, line.n));
}

static void keep_text(char *out, size_t cap, str v)
{
    /* Cut text would only look equal: too long is unknown. */
    if (v.n >= cap)
        v.n = 0;
    memcpy(out, v.p, v.n);
    out[v.n] = 0;
}

static void keep_number(int64_t *out, str v)
{
    int64_t n;
    *out = num_parse_i64(v, &n) && n >= 0 ? n : -1;
}

/* Content-Range: bytes FIRST-LAST/TOTAL */
static void keep_range(struct hub_reply *r, str v)
{
    size_t dash = str_find(v, STR("-"), 0), slash = str_find(v, STR("/"), 0);
    if (!str_has_prefix(v, STR("bytes ")) || dash == (size_t)-1 || slash == (size_t)-1 ||
        dash < 6 || slash < dash)
        return;
    keep_number(&r->range_first, str_slice(v, 6, dash));
    keep_number(&r->range_total, str_slice(v, slash + 1, v.n));
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct hub_fetch *f = ctx;
    struct hub_reply *r = f->reply;
    str line = {p, size * n}, v;
    if (str_has_prefix(line, STR("HTTP/"))) { /* a new answer: after a 100, for one */
        r->etag[0] = r->error_code[0] = 0;
        r->length = r->range_first = r->range_total = r->retry_after_s = -1;
    } else if ((v = header_value(line, "ETag")).p) {
        keep_text(r->etag, sizeof r->etag, v);
    } else if ((v = header_value(line, "X-Linked-ETag")).p && f->at_home) {
        keep_text(r->linked_etag, sizeof r->linked_etag, v);
    } else if ((v = header_value(line, "X-Error-Code")).p && f->at_home) {
        keep_text(r->error_code, sizeof r->error_code, v);
    } else if ((v = header_value(line, "Content-Length")).p) {
        keep_number(&r->length, v);
    } else if ((v = header_value(line, "Content-Range")).p) {
        keep_range(r, v);
    }
    return line.n;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct hub_fetch *f = ctx;
    n *= size;
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &f->reply->status);
    if (f->reply->status != 200 && f->reply->status != 206) {
        f->ignored += n;
        return f->ignored > IGNORED_BODY_MAX ? 0 : n;
    }
    if (!f->begun && !f->req->begin(f->req->ctx, f->reply)) {
        f->refused = true;
        return 0;
    }
    f->begun = true;
    if (f->req->data(f->req->ctx, p, n))
        return n;
    f->refused = true;
    return 0;
}

static int on_progress(void *ctx, curl_off_t dt, curl_off_t dn, curl_off_t ut, curl_off_t un)
{
    struct hub_fetch *f = ctx;
    (void)dt, (void)dn, (void)ut, (void)un;
    return f->req->go_on(f->req->ctx) ? 0 : 1;
}

static void options_set(struct hub_fetch *f)
{
    CURL *c = f->curl;
    const char *protocols = f->home_is_local ? "http,https" : "https";
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, f->why);
    curl_easy_setopt(c, CURLOPT_USERAGENT, f->p->user_agent);
#    if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, protocols);
#    else
    curl_easy_setopt(
        c, CURLOPT_PROTOCOLS,
        (long)(protocols[4] == ',' ? CURLPROTO_HTTP | CURLPROTO_HTTPS : CURLPROTO_HTTPS));
#    endif
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)f->p->stall_s);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, f);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, f);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, f);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
}

t9_status hub_fetch_new(struct hub_fetch **out, const struct hub_params *p, struct t9_err *err)
{
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return t9_fail(err, T9_STATUS_INTERNAL, "libcurl did not start");
    struct hub_fetch *f = mem_calloc(1, sizeof *f);
    if (f) {
        f->p = p;
        f->curl = curl_easy_init();
    }
    if (!f || !f->curl) {
        hub_fetch_free(f);
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for libcurl");
    }
    if (!origin_parse(&f->home, p->endpoint)) {
        hub_fetch_free(f);
        return t9_fail(err, T9_STATUS_INVALID,
                       "HF_ENDPOINT is not an address like " HUB_ENDPOINT_DEFAULT
                       " (without a user's name)");
    }
    f->home_is_local = is_local(&f->home);
    if (strcmp(f->home.scheme, "https") != 0 && !f->home_is_local) {
        t9_fail(err, T9_STATUS_INVALID,
                "HF_ENDPOINT: http is allowed on this machine only (127.0.0.1); %s needs https",
                f->home.host);
        hub_fetch_free(f);
        return T9_STATUS_INVALID;
    }
    options_set(f);
    *out = f;
    return T9_STATUS_OK;
}

void hub_fetch_free(struct hub_fetch *f)
{
    if (f && f->curl)
        curl_easy_cleanup(f->curl);
    mem_free(f);
    curl_global_cleanup();
}

/* What libcurl's failure means for the caller. */
static t9_status curl_failed(const struct hub_fetch *f, CURLcode code, const struct origin *at,
                             struct t9_err *err)
{
    const char *why = f->why[0] ? f->why : curl_easy_strerror(code);
    switch (code) {
    case CURLE_ABORTED_BY_CALLBACK: return t9_fail(err, T9_STATUS_CANCELLED, "stopped");
    case CURLE_WRITE_ERROR:
        if (f->refused)
            return t9_fail(err, T9_STATUS_CANCELLED, "stopped");
        return t9_fail(err, T9_STATUS_CORRUPT, "%s: an answer that does not end", at->host);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
        return t9_fail(err, T9_STATUS_IO, "%s: its certificate is not valid here: %s", at->host,
                       why);
    case CURLE_OUT_OF_MEMORY: return t9_fail(err, T9_STATUS_NOMEM, "no memory for libcurl");
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT: return t9_fail(err, T9_STATUS_IO, "%s: %s", at->host, why);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return t9_fail(err, T9_STATUS_AGAIN, "%s cannot be reached: %s", at->host, why);
    default: return t9_fail(err, T9_STATUS_AGAIN, "%s: the connection failed: %s", at->host, why);
    }
}

/* The headers of one hop; NULL when out of memory. */
static struct curl_slist *headers_make(const struct hub_fetch *f)
{
    struct curl_slist *list = NULL;
    struct buf b;
    bool ok = true;
    buf_init(&b, 8192);
    for (int i = 0; i < 3 && ok; i++) {
        buf_clear(&b);
        if (i == 0 && f->at_home && f->p->token)
            buf_printf(&b, "Authorization: Bearer %s", f->p->token);
        else if (i == 1 && f->req->from_bytes)
            buf_printf(&b, "Range: bytes=%llu-", (unsigned long long)f->req->from_bytes);
        else if (i == 2 && f->req->from_bytes && f->req->if_range)
            buf_printf(&b, "If-Range: %s", f->req->if_range);
        else
            continue;
        buf_putc(&b, 0);
        struct curl_slist *more = b.failed ? NULL : curl_slist_append(list, b.p);
        ok = more != NULL;
        list = ok ? more : list;
    }
    if (b.p)
        explicit_bzero(b.p, b.cap);
    buf_deinit(&b);
    if (!ok) {
        curl_slist_free_all(list);
        return NULL;
    }
    /* Never empty, so that NULL is an error only. */
    struct curl_slist *more = curl_slist_append(list, "Accept: */*");
    if (!more)
        curl_slist_free_all(list);
    return more;
}

/* One request to `url`, without following. */
static t9_status hop(struct hub_fetch *f, const char *url, struct t9_err *err)
{
    struct origin at;
    if (!origin_parse(&at, url))
        return t9_fail(err, T9_STATUS_IO, "%s sent us to something that is no web address",
                       f->reply->host[0] ? f->reply->host : "the hub");
    if (strcmp(at.scheme, "https") != 0 && !(f->home_is_local && is_local(&at)))
        return t9_fail(err, T9_STATUS_FORBIDDEN,
                       "%s sent us to %s without encryption (http); refused",
                       f->reply->host[0] ? f->reply->host : "the hub", at.host);
    f->at_home = same_origin(&at, &f->home);
    f->begun = f->refused = false;
    f->ignored = 0;
    f->why[0] = 0;
    f->reply->status = 0;
    snprintf(f->reply->host, sizeof f->reply->host, "%.127s", at.host);
    struct curl_slist *headers = headers_make(f);
    if (!headers)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a request");
    curl_easy_setopt(f->curl, CURLOPT_URL, url);
    curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(f->curl, CURLOPT_TIMEOUT, (long)f->req->time_limit_s);
    /* This machine is never asked by way of a proxy. */
    curl_easy_setopt(f->curl, CURLOPT_NOPROXY, is_local(&at) ? "*" : NULL);
    CURLcode code = curl_easy_perform(f->curl);
    curl_easy_setopt(f->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    curl_easy_getinfo(f->curl, CURLINFO_RESPONSE_CODE, &f->reply->status);
    if (code != CURLE_OK)
        return curl_failed(f, code, &at, err);
    curl_off_t wait_s = 0;
    if (curl_easy_getinfo(f->curl, CURLINFO_RETRY_AFTER, &wait_s) == CURLE_OK && wait_s > 0)
        f->reply->retry_after_s = wait_s;
    return T9_STATUS_OK;
}

static bool is_redirect(long status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

t9_status hub_fetch_get(struct hub_fetch *f, const struct hub_request *req, struct hub_reply *r,
                        struct t9_err *err)
{
    char *url = mem_strndup(req->url, strlen(req->url));
    t9_status s = T9_STATUS_OK;
    memset(r, 0, sizeof *r);
    f->req = req;
    f->reply = r;
    for (int n = 0;; n++) {
        if (!url) {
            s = t9_fail(err, T9_STATUS_NOMEM, "no memory for an address");
            break;
        }
        s = hop(f, url, err);
        if (s != T9_STATUS_OK || !is_redirect(r->status))
            break;
        const char *next = NULL;
        curl_easy_getinfo(f->curl, CURLINFO_REDIRECT_URL, &next);
        if (!next || strlen(next) > URL_MAX || n == HOPS_MAX) {
            s = t9_fail(err, T9_STATUS_IO, "%s: %s", r->host,
                        n == HOPS_MAX ? "sent us on too many times"
                                      : "sent us on without a usable address");
            break;
        }
        mem_free(url);
        url = mem_strndup(next, strlen(next));
    }
    /* A body of no bytes calls nobody; it begins all the same. */
    if (s == T9_STATUS_OK && (r->status == 200 || r->status == 206) && !f->begun &&
        !req->begin(req->ctx, r))
        s = t9_fail(err, T9_STATUS_CANCELLED, "stopped");
    mem_free(url);
    return s;
}

#else

t9_status hub_fetch_new(struct hub_fetch **out, const struct hub_params *p, struct t9_err *err)
{
    (void)p;
    *out = NULL;
    return t9_fail(err, T9_STATUS_UNSUPPORTED,
                   "this build downloads nothing: it was made without libcurl (T9_CURL); "
                   "--offline uses what is in the cache");
}

void hub_fetch_free(struct hub_fetch *f)
{
    (void)f;
}

t9_status hub_fetch_get(struct hub_fetch *f, const struct hub_request *req, struct hub_reply *r,
                        struct t9_err *err)
{
    (void)f, (void)req, (void)r;
    return t9_fail(err, T9_STATUS_UNSUPPORTED, "this build has no libcurl");
}

#endif
