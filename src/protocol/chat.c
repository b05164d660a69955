/*
 * protocol/chat.c - life of a chat_request, warnings, and error values. One thread at a time.
 */
#include "protocol/chat.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

t9_status chat_fail(struct chat_error *e, t9_status status, const char *param, const char *code,
                    const char *fmt, ...)
{
    char msg[sizeof e->err.msg];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    (void)snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    e->code = code;
    e->http_status = 0;
    return t9_fail(&e->err, status, "%s", msg);
}

t9_status chat_fail_limit(struct chat_error *e, const char *msg)
{
    t9_status s = chat_fail(e, T9_STATUS_BUSY, NULL, "rate_limit_exceeded", "%s", msg);
    e->http_status = 429;
    return s;
}

int chat_error_http(const struct chat_error *e)
{
    return e->http_status ? e->http_status : t9_status_http(e->err.code);
}

const char *chat_role_name(chat_role r)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    return (unsigned)r < T9_COUNT(names) ? names[r] : "?";
}

void chat_request_init(struct chat_request *r, size_t arena_max_bytes)
{
    memset(r, 0, sizeof *r);
    arena_init(&r->arena, arena_max_bytes);
    arena_init(&r->kept, arena_max_bytes);
    t9_request_params_init(&r->sampling, sizeof r->sampling);
    r->n = 1;
    r->prompt_field = "messages";
    r->limit_field = "max_tokens";
    r->add_special = true;
}

void chat_request_deinit(struct chat_request *r)
{
    chat_request_drop_input(r);
    arena_deinit(&r->kept);
    memset(r, 0, sizeof *r);
}

void chat_request_drop_input(struct chat_request *r)
{
    if (r->doc)
        yyjson_doc_free(r->doc);
    r->doc = NULL;
    while (r->n_docs > 0)
        yyjson_doc_free(r->docs[--r->n_docs]);
    arena_deinit(&r->arena);
    r->model = r->reasoning_effort = r->suffix = (str){NULL, 0};
    r->messages = NULL;
    r->prompts = NULL;
    r->tools = NULL;
    r->n_messages = r->n_prompts = r->n_tools = 0;
    r->template_kwargs = NULL;
    r->sampling.bias = NULL;
    r->sampling.n_bias = 0;
}

t9_status chat_request_parse_more(struct chat_request *r, str text, yyjson_val **root,
                                  struct chat_error *err)
{
    struct t9_err e = {0};
    if (r->n_docs == CHAT_DOCS_MAX)
        return chat_fail(err, T9_STATUS_INTERNAL, NULL, NULL, "too many texts beside the body");
    t9_status s = json_parse(&r->docs[r->n_docs], text, JSON_LIMITS_REQUEST, &e);
    if (s != T9_STATUS_OK)
        return chat_fail(err, s, NULL, NULL, "%s", e.msg);
    *root = yyjson_doc_get_root(r->docs[r->n_docs++]);
    return T9_STATUS_OK;
}

void chat_warn(struct chat_request *r, const char *fmt, ...)
{
    char line[320];
    if (r->n_warnings == CHAT_WARNINGS_MAX)
        return;
    if (!r->warnings)
        r->warnings = arena_calloc(&r->kept, CHAT_WARNINGS_MAX, sizeof *r->warnings);
    if (!r->warnings) {
        r->warning_lost = true;
        return;
    }
    if (r->n_warnings == CHAT_WARNINGS_MAX - 1) {
        r->warnings[r->n_warnings++] = STR("further warnings were left out");
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t len = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    len -= utf8_incomplete_tail((str){line, len});
    for (size_t i = 0; i < r->n_warnings; i++)
        if (str_eq(r->warnings[i], (str){line, len}))
            return;
    str kept = arena_str(&r->kept, (str){line, len});
    r->warning_lost |= !kept.p;
    if (kept.p)
        r->warnings[r->n_warnings++] = kept;
}

const char *chat_brief(yyjson_val *v, char out[80])
{
    enum { OUT_BYTES = 80, TEXT_BYTES = 48 };
    if (yyjson_is_str(v)) {
        str s = json_str(v);
        bool cut = s.n > TEXT_BYTES;
        if (cut)
            s.n = TEXT_BYTES;
        s.n -= utf8_incomplete_tail(s);
        (void)snprintf(out, OUT_BYTES, "\"" STR_FMT "%s\"", STR_ARG(s), cut ? "..." : "");
        return out;
    }
    if (yyjson_is_num(v) || yyjson_is_bool(v) || yyjson_is_null(v)) {
        struct buf b;
        buf_init(&b, OUT_BYTES - 1);
        json_write_val(&b, v);
        (void)snprintf(out, OUT_BYTES, STR_FMT, STR_ARG(buf_str(&b)));
        buf_deinit(&b);
        return out;
    }
    bool empty = yyjson_get_len(v) == 0;
    (void)snprintf(out, OUT_BYTES, "%s%s",
                   !v      ? ""
                   : empty ? "an empty "
                           : "an ",
                   yyjson_is_arr(v)   ? "array"
                   : yyjson_is_obj(v) ? "object"
                                      : "nothing");
    return out;
}
