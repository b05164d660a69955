/*
 * tests/fuzz/protocol/check.c - see check.h.
 */
#include "check.h"

#include "protocol/openai_chat.h"
#include "protocol/prep.h"
#include "sdk/history.h"

#include <stdlib.h>

static const struct json_limits limits = {(size_t)64 << 20, 160, (size_t)8 << 20};

static void check_written(const struct history *h)
{
    struct buf b;
    yyjson_doc *doc = NULL;
    buf_init(&b, (size_t)32 << 20);
    turns_write(h, &b);
    if (!b.failed && json_parse(&doc, buf_str(&b), limits, NULL) != T9_STATUS_OK)
        abort();
    yyjson_doc_free(doc);
    buf_deinit(&b);
}

static void check_conversation(const struct chat_request *r, struct history_caps caps)
{
    struct buf b;
    struct arena arena;
    struct history h = {0};
    struct turn *turns = NULL;
    size_t n = 0;
    yyjson_doc *doc = NULL;
    buf_init(&b, (size_t)32 << 20);
    arena_init(&arena, (size_t)64 << 20);
    prep_write_messages(r, &b);
    if (!b.failed) {
        if (json_parse(&doc, buf_str(&b), limits, NULL) != T9_STATUS_OK ||
            turns_read(&turns, &n, yyjson_doc_get_root(doc), &arena, NULL) != T9_STATUS_OK ||
            n != r->n_messages)
            abort();
        if (turns_arrange(&h, turns, n, caps, NULL) == T9_STATUS_OK)
            check_written(&h);
    }
    turns_deinit(&h);
    yyjson_doc_free(doc);
    arena_deinit(&arena);
    buf_deinit(&b);
}

void check_parser(const struct chat_adapter *a, const uint8_t *data, size_t size)
{
    struct chat_request r;
    struct chat_error e = {0};
    chat_request_init(&r, (size_t)1 << 22);
    /* The first byte chooses strictness and what the template takes. */
    unsigned choice = size ? data[0] : 0;
    str body = {(const char *)data + (size ? 1 : 0), size ? size - 1 : 0};
    t9_status s = a->parse(body, choice & 1, &r, &e);
    if (s == T9_STATUS_OK) {
        check_conversation(&r, (struct history_caps){.system = choice & 2,
                                                     .later_system = choice & 4,
                                                     .user_twice = choice & 8});
    } else {
        struct buf b;
        yyjson_doc *doc = NULL;
        buf_init(&b, (size_t)1 << 16);
        if (a->error)
            a->error(&e, &b);
        else
            openai_write_error(&e, &b);
        if (e.err.msg[0] == 0 || t9_status_http(s) < 400 ||
            json_parse(&doc, buf_str(&b), JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
            abort();
        yyjson_doc_free(doc);
        buf_deinit(&b);
    }
    chat_request_deinit(&r);
}
