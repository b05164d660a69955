/*
 * Fuzz target of what lies between the HTTP library and the protocol: a request's bytes as the
 * library would hand them over (line, headers, body in pieces) go through routes, guard, auth,
 * rate, request, exchange and reply of a real server, whose library is fake_mhd.c and whose engine
 * is scripted. Each request gets one well-formed reply, or none where the connection is given up; a
 * refusal says why in JSON; nothing but what is public is shown without a key.
 *
 * The first byte chooses the server and the length of the body's pieces.
 */
#include "fake_mhd.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "http/internal.h"
#include "lib/byte_tokenizer.h"
#include "lib/scripted_engine.h"
#include "sdk/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { N_SERVERS = 4, HEAD_BYTES_MAX = 8192 }; /* as much as the library takes, about */

static const char *const keys[] = {"first-key", "second-key"};
static const char *const origins[] = {"https://app.example"};

static void must(t9_status s)
{
    if (s != T9_STATUS_OK)
        abort();
}

/* 0: loopback; 1: with keys; 2: beyond loopback without; 3: with keys and small limits. */
static void choose_params(struct http_params *p, unsigned i)
{
    http_params_init(p);
    p->port = 0;
    p->n_prep = 1;
    if (i == 1 || i == 3) {
        p->api_keys = keys;
        p->n_api_keys = T9_COUNT(keys);
    }
    if (i == 0) {
        p->cors_origins = origins;
        p->n_cors_origins = T9_COUNT(origins);
    }
    if (i == 2) {
        p->host = "0.0.0.0";
        p->insecure = true;
    }
    if (i == 3) {
        p->body_bytes_max = 200;
        p->bodies_bytes_max = 180;
        p->requests_per_minute = 1000;
        p->max_open_per_client = 1;
    }
}

static struct http_server *server_of(unsigned i)
{
    static struct http_server *servers[N_SERVERS];
    struct engine_script script;
    struct http_params p;
    struct t9_err err = {0};
    struct log_config quiet = {.level = LOG_LEVEL_ERROR};
    t9_model *model;
    t9_engine *wrapped;
    if (servers[i])
        return servers[i];
    log_configure(&quiet);
    engine_script_init(&script);
    struct engine *engine = scripted_engine_new(&script);
    choose_params(&p, i);
    if (!engine)
        abort();
    must(sdk_model_wrap(&model, byte_tokenizer(true), NULL, &err));
    must(sdk_engine_wrap(&wrapped, model, engine, &err));
    p.prep.engine = wrapped;
    p.prep.model = model;
    p.prep.model_name = "scripted";
    p.prep.build_id = "fuzz";
    p.about = (struct capabilities){"0", "fuzz", "scripted", true};
    must(http_server_new(&servers[i], &p, &err));
    return servers[i];
}

/* ---- the library's reading of a head ---- */

struct input {
    char *method, *uri, *version; /* of `head` */
    char head[HEAD_BYTES_MAX + 1];
    const char *body;
    size_t n_body;
};

/* Cuts `*at` off at the end of its line; NULL at the end of the head. */
static char *next_line(char **at)
{
    char *line = *at, *end = strchr(line, '\n');
    if (!end || line[0] == '\n' || (line[0] == '\r' && line[1] == '\n'))
        return NULL;
    *at = end + 1;
    *end = 0;
    if (end > line && end[-1] == '\r')
        end[-1] = 0;
    return line;
}

/* The path ends at the last blank of the line, so it may have blanks of its own. */
static bool cut_line(struct input *in, char *line)
{
    char *first = strchr(line, ' '), *last = strrchr(line, ' ');
    if (!first || last == first || first == line)
        return false;
    *first = *last = 0;
    in->method = line;
    in->uri = first + 1;
    in->version = last + 1;
    return strncmp(in->version, "HTTP/", 5) == 0 && in->uri[0];
}

static bool read_head(struct input *in, struct MHD_Connection *c, const uint8_t *p, size_t n)
{
    size_t n_head = n < HEAD_BYTES_MAX ? n : HEAD_BYTES_MAX;
    memcpy(in->head, p, n_head);
    in->head[n_head] = 0;
    char *at = in->head, *line = next_line(&at);
    if (!line || !cut_line(in, line))
        return false;
    while ((line = next_line(&at)) != NULL) {
        char *colon = strchr(line, ':');
        if (!colon || c->n_headers == FAKE_HEADERS_MAX)
            return false;
        *colon = 0;
        c->headers[c->n_headers++] =
            (struct fake_header){line, colon + 1 + strspn(colon + 1, " \t")};
    }
    /* What is left begins with the empty line. */
    size_t skip = (size_t)(at - in->head) + (at[0] == '\r') + (at[0] != 0);
    skip = skip < n ? skip : n;
    in->body = (const char *)p + skip;
    in->n_body = n - skip;
    return true;
}

/* ---- a request's course ---- */

static enum MHD_Result hand_over(struct http_server *s, struct MHD_Connection *c,
                                 const struct input *in, str piece, void **ctx)
{
    size_t left = piece.n;
    enum MHD_Result ok =
        request_on_data(s, c, in->uri, in->method, in->version, piece.p, &left, ctx);
    if (ok == MHD_YES && left != 0)
        abort();
    return ok;
}

/* Until a response is there; false when the connection is given up. */
static bool drive(struct http_server *s, struct MHD_Connection *c, struct input *in, size_t piece,
                  void **ctx)
{
    *ctx = request_on_line(s, in->uri, c);
    in->uri[strcspn(in->uri, "?")] = 0;
    (void)request_unescape(s, c, in->uri);
    if (hand_over(s, c, in, (str){0}, ctx) != MHD_YES)
        return false;
    for (size_t at = 0; at < in->n_body && !c->response; at += piece) {
        size_t n = in->n_body - at < piece ? in->n_body - at : piece;
        if (hand_over(s, c, in, (str){in->body + at, n}, ctx) != MHD_YES)
            return false;
    }
    while (!c->response) {
        if (hand_over(s, c, in, (str){0}, ctx) != MHD_YES)
            return false;
        if (!c->response && !fake_connection_wait(c))
            abort();
    }
    return true;
}

/* ---- what must hold ---- */

static bool has_key(const struct MHD_Connection *c)
{
    for (size_t i = 0; i < c->n_headers; i++)
        for (size_t k = 0; k < T9_COUNT(keys); k++)
            if (strstr(c->headers[i].value, keys[k]))
                return true;
    return false;
}

static void check_reply(struct http_server *s, struct MHD_Connection *c, const char *url,
                        const struct buf *body)
{
    const struct route *route = route_find(url);
    yyjson_doc *doc = NULL;
    if (c->status >= 400) {
        if (json_parse(&doc, buf_str(body), JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
            abort();
        /* Below /api/ it is a string, as Ollama writes it. */
        yyjson_val *error = yyjson_obj_get(yyjson_doc_get_root(doc), "error");
        bool is_api = strncmp(url, "/api/", 5) == 0;
        if (!yyjson_is_str(is_api ? error : yyjson_obj_get(error, "message")))
            abort();
        yyjson_doc_free(doc);
    }
    bool shown = c->status == 200 && body->n > 0;
    if (shown && (!route || (s->p.n_api_keys && !route->is_public && !has_key(c))))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct input in;
    struct MHD_Connection c = {0};
    int fds[2];
    if (n == 0 || !read_head(&in, &c, p + 1, n - 1))
        return 0;
    struct http_server *s = server_of(p[0] % N_SERVERS);
    size_t piece = p[0] / N_SERVERS ? p[0] / N_SERVERS : (size_t)65536;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        abort();
    fake_connection_init(&c, fds[0]);
    request_on_connection(s, &c, &c.socket_context, MHD_CONNECTION_NOTIFY_STARTED);
    struct buf body;
    void *ctx = NULL;
    buf_init(&body, (size_t)64 << 20);
    bool whole = drive(s, &c, &in, piece, &ctx);
    if (whole && fake_response_read(&c, &body))
        check_reply(s, &c, in.uri, &body);
    request_on_completed(s, &c, &ctx,
                         whole ? MHD_REQUEST_TERMINATED_COMPLETED_OK
                               : MHD_REQUEST_TERMINATED_WITH_ERROR);
    fake_connection_deinit(&c);
    request_on_connection(s, &c, &c.socket_context, MHD_CONNECTION_NOTIFY_CLOSED);
    buf_deinit(&body);
    close(fds[0]);
    close(fds[1]);
    return 0;
}
