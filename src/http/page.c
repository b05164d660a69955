/*
 * http/page.c - serves the page at "/" and its assets from the table that the build made. On the
 * library's threads; the table is constant and never copied.
 *
 * "/" is the page for browsers and a few lines of text for everybody else. Assets have a hash in
 * their name and may be kept for ever; the page itself is asked for again each time, which costs a
 * 304. Nothing here opens a file: a path is in the table or it is unknown.
 */
#include "http/page.h"

#include "http/internal.h"

#include <string.h>
#include <strings.h>

/* Everything comes from this server, no script or style stands in the page itself, and text becomes
 * markup only through the sanitiser's policy. */
#define PAGE_POLICY                                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "        \
    "'self'; "                                                                                     \
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "           \
    "require-trusted-types-for 'script'; trusted-types dompurify"

#define ROOT_TEXT                                                                                  \
    "tempo9 is running.\n\n"                                                                       \
    "POST /v1/chat/completions   chat, streamed or not (OpenAI's form)\n"                          \
    "POST /v1/responses          the same (OpenAI's newer form)\n"                                 \
    "POST /v1/messages           the same (Anthropic's form; with /count_tokens behind it)\n"      \
    "POST /api/chat              the same (Ollama's form; GET /api/tags and others)\n"             \
    "POST /v1/completions        text goes on\n"                                                   \
    "GET  /v1/models             the model served here\n"                                          \
    "GET  /openapi.json          all of it, described\n"                                           \
    "GET  /v1/capabilities       every request field and what is done with it\n"                   \
    "GET  /health                whether requests are taken\n"                                     \
    "GET  /v1/state              what the server is doing now\n"                                   \
    "GET  /metrics               counters for Prometheus\n\n"

/* ---- headers ---- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

/* One element of a comma-separated header with its parameters; moves *at past it. */
static str next_element(const char **at)
{
    const char *p = *at;
    while (is_space(*p) || *p == ',')
        p++;
    size_t n = strcspn(p, ",");
    *at = p + n;
    while (n > 0 && is_space(p[n - 1]))
        n--;
    return (str){p, n};
}

/* The element up to its parameters. */
static str name_of(str element)
{
    size_t n = 0;
    while (n < element.n && element.p[n] != ';' && !is_space(element.p[n]))
        n++;
    return (str){element.p, n};
}

/* Whether there is a parameter q with the value 0 in any of its spellings: "0", "0.", "0.000". */
static bool has_zero_weight(str element)
{
    for (size_t i = name_of(element).n; i < element.n; i++) {
        if (element.p[i] != ';')
            continue;
        size_t at = i + 1;
        while (at < element.n && is_space(element.p[at]))
            at++;
        if (at + 1 >= element.n || (element.p[at] | 0x20) != 'q' || element.p[at + 1] != '=')
            continue;
        at += 2;
        bool any = false, zero = true;
        for (; at < element.n && element.p[at] != ';' && !is_space(element.p[at]); at++) {
            any = true;
            zero &= element.p[at] == '0' || element.p[at] == '.';
        }
        return any && zero;
    }
    return false;
}

static bool named(str name, const char *z)
{
    return name.n == strlen(z) && strncasecmp(name.p, z, name.n) == 0;
}

bool page_takes_gzip(const char *accept)
{
    bool star = false;
    while (accept && *accept) {
        str element = next_element(&accept), name = name_of(element);
        if (named(name, "gzip") || named(name, "x-gzip"))
            return !has_zero_weight(element);
        if (named(name, "*"))
            star = !has_zero_weight(element);
    }
    return star;
}

bool page_takes_html(const char *accept)
{
    while (accept && *accept) {
        str element = next_element(&accept);
        if (named(name_of(element), "text/html"))
            return !has_zero_weight(element);
    }
    return false;
}

bool page_has_etag(const char *if_none_match, const char *etag)
{
    while (if_none_match && *if_none_match) {
        str element = next_element(&if_none_match);
        if (str_eqz(element, "*"))
            return true;
        if (element.n > 2 && element.p[0] == 'W' && element.p[1] == '/')
            element = str_slice(element, 2, element.n);
        if (str_eqz(element, etag))
            return true;
    }
    return false;
}

/* ---- replies ---- */

/* A list, up to its NUL: the elements are read without the blanks around them. */
static const char *list_of(const struct exchange *x, const char *name)
{
    return head_value(x->connection, name).p;
}

static const struct page_file *find_file(const char *path)
{
    for (size_t i = 0; i < page_n_files; i++)
        if (strcmp(page_files[i].path, path) == 0)
            return &page_files[i];
    return NULL;
}

static enum MHD_Result send_file(struct exchange *x, const struct page_file *f)
{
    bool known = page_has_etag(list_of(x, "If-None-Match"), f->etag);
    bool gzip = !known && f->gzip && page_takes_gzip(list_of(x, "Accept-Encoding"));
    const uint8_t *p = gzip ? f->gzip : f->bytes;
    size_t n = known ? 0 : gzip ? f->n_gzip : f->n_bytes;
    struct MHD_Response *r =
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)p, MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    if (!known)
        (void)MHD_add_response_header(r, "Content-Type", f->type);
    if (gzip)
        (void)MHD_add_response_header(r, "Content-Encoding", "gzip");
    (void)MHD_add_response_header(r, "ETag", f->etag);
    (void)MHD_add_response_header(r, "Vary",
                                  f->is_final ? "Accept-Encoding" : "Accept, Accept-Encoding");
    (void)MHD_add_response_header(r, "Cache-Control",
                                  f->is_final ? "public, max-age=31536000, immutable" : "no-cache");
    (void)MHD_add_response_header(r, "Content-Security-Policy", PAGE_POLICY);
    (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    (void)MHD_add_response_header(r, "Cross-Origin-Opener-Policy", "same-origin");
    (void)MHD_add_response_header(r, "Cross-Origin-Resource-Policy", "same-origin");
    return reply_response(x, known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, n, r);
}

static enum MHD_Result send_text(struct exchange *x)
{
    static const char with[] = ROOT_TEXT "Open this address in a browser for chat and dashboard.\n";
    static const char without[] =
        ROOT_TEXT "This build has no page for browsers. To get one, in the source folder:\n\n"
                  "  tools/get-deps web\n"
                  "  make\n\n"
                  "and start the server again.\n";
    str text = page_n_files ? STR(with) : STR(without);
    struct MHD_Response *r =
        MHD_create_response_from_buffer(text.n, (void *)(uintptr_t)text.p, MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    (void)MHD_add_response_header(r, "Content-Type", "text/plain; charset=utf-8");
    (void)MHD_add_response_header(r, "Cache-Control", "no-cache");
    (void)MHD_add_response_header(r, "Vary", "Accept");
    (void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    return reply_response(x, MHD_HTTP_OK, text.n, r);
}

enum MHD_Result page_get_root(struct exchange *x, const char *url)
{
    const struct page_file *f = find_file(url);
    return f && page_takes_html(list_of(x, "Accept")) ? send_file(x, f) : send_text(x);
}

enum MHD_Result page_get_asset(struct exchange *x, const char *url)
{
    const struct page_file *f = find_file(url);
    struct chat_error e = {0};
    if (f)
        return send_file(x, f);
    (void)chat_fail(&e, T9_STATUS_NOT_FOUND, NULL, "unknown_path",
                    "there is no such part of the page; reload it");
    return reply_error(x, &e);
}
