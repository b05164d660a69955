/*
 * tests/fuzz/protocol/openai_chat_fuzz.c - any bytes as the body of a chat completion request: it
 * is parsed or refused with a message, arranged, and written as the template's arguments, which
 * must parse again.
 */
#include "base/mem.h"
#include "protocol/history.h"
#include "protocol/openai_chat.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat_request r;
    struct chat_error e = {0};
    chat_request_init(&r, (size_t)1 << 22);
    /* The first byte chooses strictness and what the template takes. */
    unsigned choice = size ? data[0] : 0;
    str body = {(const char *)data + (size ? 1 : 0), size ? size - 1 : 0};
    t9_status s = openai_chat_adapter.parse(body, choice & 1, &r, &e);
    if (s == T9_STATUS_OK) {
        struct history h;
        struct history_caps caps = {choice & 2, choice & 4, choice & 8};
        if (history_arrange(&h, r.messages, r.n_messages, caps, NULL) == T9_STATUS_OK) {
            struct buf b;
            yyjson_doc *doc = NULL;
            struct json_limits limits = {(size_t)64 << 20, 160, (size_t)8 << 20};
            buf_init(&b, (size_t)32 << 20);
            history_write(&h, &b);
            if (!b.failed && json_parse(&doc, buf_str(&b), limits, NULL) != T9_STATUS_OK)
                abort();
            if (doc)
                yyjson_doc_free(doc);
            buf_deinit(&b);
        }
        history_deinit(&h);
    } else {
        struct buf b;
        yyjson_doc *doc = NULL;
        buf_init(&b, (size_t)1 << 16);
        openai_write_error(&e, &b);
        if (e.err.msg[0] == 0 || t9_status_http(s) < 400 ||
            json_parse(&doc, buf_str(&b), JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
            abort();
        yyjson_doc_free(doc);
        buf_deinit(&b);
    }
    chat_request_deinit(&r);
    return 0;
}
