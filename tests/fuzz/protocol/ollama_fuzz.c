/*
 * tests/fuzz/protocol/ollama_fuzz.c - any bytes as the body of a request of Ollama's clients: it is
 * parsed or refused with a message; what was parsed is laid out as JSON that parses again, and ids
 * of results are those of calls.
 */
#include "base/mem.h"
#include "protocol/ollama.h"
#include "protocol/prep.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_json(struct buf *b)
{
    yyjson_doc *doc = NULL;
    if (!b->failed && json_parse(&doc, buf_str(b), JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
        abort();
    yyjson_doc_free(doc);
    buf_deinit(b);
}

static void check_request(const struct chat_request *r)
{
    struct buf b;
    buf_init(&b, (size_t)32 << 20);
    prep_write_messages(r, &b);
    check_json(&b);
    if (r->max_tokens < 0 || (r->no_engine && r->stream) || r->n_prompts > 1)
        abort();
    for (size_t i = 0; i < r->n_messages; i++) {
        const struct chat_message *m = &r->messages[i];
        for (size_t k = 0; k < m->n_calls; k++) {
            if (m->calls[k].id.n == 0)
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct chat_adapter *const adapters[] = {
        &ollama_chat_adapter, &ollama_generate_adapter, &ollama_show_adapter};
    struct chat_request r;
    struct chat_error e = {0};
    /* The first byte chooses strictness and which request it is. */
    unsigned choice = size ? data[0] : 0;
    str body = {(const char *)data + (size ? 1 : 0), size ? size - 1 : 0};
    chat_request_init(&r, (size_t)1 << 22);
    t9_status s = adapters[choice / 2 % 3]->parse(body, choice & 1, &r, &e);
    if (s == T9_STATUS_OK) {
        check_request(&r);
    } else {
        struct buf b;
        if (e.err.msg[0] == 0 || t9_status_http(s) < 400)
            abort();
        buf_init(&b, (size_t)1 << 16);
        ollama_error(&e, &b);
        check_json(&b);
    }
    chat_request_deinit(&r);
    return 0;
}
