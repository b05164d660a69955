/*
 * http/routes.c - which path is what, and the answers that need no engine. On the library's
 * threads.
 */
#include "base/log.h"
#include "http/internal.h"
#include "protocol/anthropic.h"
#include "protocol/endpoints.h"
#include "protocol/ollama.h"
#include "protocol/openai_chat.h"
#include "protocol/openai_completions.h"
#include "protocol/openai_tokens.h"
#include "protocol/responses.h"

#include <string.h>

static enum MHD_Result get_health(struct exchange *x, const char *url)
{
    bool stopping = atomic_load(&x->server->stopping);
    (void)url;
    return reply_bytes(x, stopping ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK, "application/json",
                       stopping ? STR("{\"status\":\"stopping\"}") : STR("{\"status\":\"ok\"}"));
}

static enum MHD_Result send_buf(struct exchange *x, const char *type, struct buf *b)
{
    enum MHD_Result ok = b->failed ? MHD_NO : reply_bytes(x, MHD_HTTP_OK, type, buf_str(b));
    buf_deinit(b);
    return ok;
}

static enum MHD_Result get_metrics(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    metrics_write(x->server, &b);
    return send_buf(x, "text/plain; version=0.0.4; charset=utf-8", &b);
}

static enum MHD_Result get_state(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    state_write(x->server, &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result get_capabilities(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    capabilities_write(x->server->prep, &x->server->p.about, &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result get_openapi(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    openapi_write(x->server->p.about.version, &b);
    return send_buf(x, "application/json", &b);
}

static models_form form_of(const struct exchange *x)
{
    return x->anthropic ? MODELS_FORM_ANTHROPIC : MODELS_FORM_OPENAI;
}

static enum MHD_Result get_models(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    models_write_list(x->server->prep, x->server->started_s, form_of(x), &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result get_model(struct exchange *x, const char *url)
{
    struct buf b;
    struct chat_error e = {0};
    str id = str_from(url + strlen(x->route->path));
    buf_init(&b, 1 << 20);
    if (models_write_one(x->server->prep, id, x->server->started_s, form_of(x), &b))
        return send_buf(x, "application/json", &b);
    buf_deinit(&b);
    (void)chat_fail(&e, T9_STATUS_NOT_FOUND, "model", "model_not_found",
                    "there is no model \"%.80s\" here; /v1/models lists what there is", id.p);
    return reply_error(x, &e);
}

static enum MHD_Result get_ollama_tags(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    ollama_write_tags(x->server->prep, &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result get_ollama_ps(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 1 << 20);
    ollama_write_ps(x->server->prep, &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result get_ollama_version(struct exchange *x, const char *url)
{
    struct buf b;
    (void)url;
    buf_init(&b, 4096);
    ollama_write_version(x->server->p.about.version, &b);
    return send_buf(x, "application/json", &b);
}

static enum MHD_Result refuse_ollama(struct exchange *x, const char *url)
{
    struct chat_error e = {0};
    (void)ollama_refusal(url, &e);
    return reply_error(x, &e);
}

static const struct route routes[] = {
    {.path = "/v1/chat/completions", .methods = ROUTE_POST, .adapter = &openai_chat_adapter},
    {.path = "/v1/completions", .methods = ROUTE_POST, .adapter = &openai_completions_adapter},
    {.path = "/v1/messages", .methods = ROUTE_POST, .adapter = &anthropic_messages_adapter},
    {.path = "/v1/messages/count_tokens",
     .methods = ROUTE_POST,
     .adapter = &anthropic_count_adapter},
    {.path = "/v1/responses", .methods = ROUTE_POST, .adapter = &responses_adapter},
    {.path = "/v1/responses/",
     .methods = ROUTE_GET | ROUTE_DELETE,
     .is_prefix = true,
     .url_is_body = true,
     .no_store = true,
     .adapter = &responses_kept_adapter},
    {.path = "/tokenize", .methods = ROUTE_POST, .adapter = &tokenize_adapter},
    {.path = "/detokenize", .methods = ROUTE_POST, .adapter = &detokenize_adapter},
    {.path = "/apply-template", .methods = ROUTE_POST, .adapter = &apply_template_adapter},
    {.path = "/api/chat", .methods = ROUTE_POST, .adapter = &ollama_chat_adapter},
    {.path = "/api/generate", .methods = ROUTE_POST, .adapter = &ollama_generate_adapter},
    {.path = "/api/show", .methods = ROUTE_POST, .adapter = &ollama_show_adapter},
    {.path = "/api/pull", .methods = ROUTE_POST, .adapter = &ollama_pull_adapter},
    {.path = "/api/tags", .methods = ROUTE_GET, .get = get_ollama_tags},
    {.path = "/api/ps", .methods = ROUTE_GET, .get = get_ollama_ps},
    {.path = "/api/version", .methods = ROUTE_GET, .get = get_ollama_version},
    {.path = "/api/create", .methods = ROUTE_ANY, .get = refuse_ollama},
    {.path = "/api/copy", .methods = ROUTE_ANY, .get = refuse_ollama},
    {.path = "/api/delete", .methods = ROUTE_ANY, .get = refuse_ollama},
    {.path = "/api/push", .methods = ROUTE_ANY, .get = refuse_ollama},
    {.path = "/api/blobs/", .methods = ROUTE_ANY, .is_prefix = true, .get = refuse_ollama},
    {.path = "/api/embed", .methods = ROUTE_ANY, .get = refuse_ollama},
    {.path = "/api/embeddings", .methods = ROUTE_ANY, .get = refuse_ollama},
    {.path = "/openapi.json", .methods = ROUTE_GET, .is_public = true, .get = get_openapi},
    {.path = "/v1/models", .methods = ROUTE_GET, .get = get_models},
    {.path = "/v1/models/", .methods = ROUTE_GET, .is_prefix = true, .get = get_model},
    {.path = "/v1/capabilities", .methods = ROUTE_GET, .get = get_capabilities},
    {.path = "/v1/state", .methods = ROUTE_GET, .no_store = true, .get = get_state},
    {.path = "/metrics", .methods = ROUTE_GET, .no_store = true, .get = get_metrics},
    {.path = "/health",
     .methods = ROUTE_GET,
     .is_public = true,
     .no_store = true,
     .get = get_health},
    {.path = "/", .methods = ROUTE_GET, .is_public = true, .get = page_get_root},
    {.path = "/assets/",
     .methods = ROUTE_GET,
     .is_prefix = true,
     .is_public = true,
     .get = page_get_asset},
};

const struct route *route_find(const char *url)
{
    for (size_t i = 0; i < T9_COUNT(routes); i++) {
        size_t n = strlen(routes[i].path);
        if (routes[i].is_prefix ? strncmp(url, routes[i].path, n) == 0 && url[n]
                                : strcmp(url, routes[i].path) == 0)
            return &routes[i];
    }
    return NULL;
}

const char *route_allow(const struct route *r)
{
    return r->methods == ROUTE_POST     ? "POST, OPTIONS"
           : r->methods == ROUTE_GET    ? "GET, HEAD, OPTIONS"
           : !(r->methods & ROUTE_POST) ? "DELETE, GET, HEAD, OPTIONS"
                                        : "DELETE, GET, HEAD, POST, OPTIONS";
}

bool route_allows(const struct route *r, const char *method)
{
    if (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0)
        return r->methods & ROUTE_GET;
    return (strcmp(method, "POST") == 0 && (r->methods & ROUTE_POST)) ||
           (strcmp(method, "DELETE") == 0 && (r->methods & ROUTE_DELETE));
}
