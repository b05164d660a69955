/*
 * tests/fuzz/protocol/anthropic_fuzz.c - any bytes as the body of a Messages request: it is parsed
 * or refused with a message; what was parsed is a conversation that the library reads, and its mark
 * lies within it. What a model may write is then said in all the ways in which a reply does it: it
 * must be JSON.
 */
#include "base/mem.h"
#include "protocol/anthropic.h"
#include "protocol/prep.h"
#include "sdk/history.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct json_limits limits = {(size_t)64 << 20, 160, (size_t)8 << 20};

static void check_json(const struct buf *b)
{
    yyjson_doc *doc = NULL;
    if (!b->failed && json_parse(&doc, buf_str(b), limits, NULL) != T9_STATUS_OK)
        abort();
    yyjson_doc_free(doc);
}

static void check_conversation(const struct chat_request *r)
{
    struct buf b;
    struct arena arena;
    struct turn *turns = NULL;
    size_t n = 0;
    yyjson_doc *doc = NULL;
    if (r->pin.n_messages > r->n_messages + 1 || r->pin.n_tools > r->n_tools)
        abort();
    buf_init(&b, (size_t)32 << 20);
    arena_init(&arena, (size_t)64 << 20);
    prep_write_messages(r, &b);
    if (!b.failed) {
        if (json_parse(&doc, buf_str(&b), limits, NULL) != T9_STATUS_OK ||
            turns_read(&turns, &n, yyjson_doc_get_root(doc), &arena, NULL) != T9_STATUS_OK)
            abort();
    }
    yyjson_doc_free(doc);
    arena_deinit(&arena);
    buf_deinit(&b);
}

/* The texts of the request come back as an answer, its calls as calls. */
static void check_reply(const struct chat_request *r)
{
    enum { PARTS_MAX = 16 };
    struct chat_part parts[PARTS_MAX];
    struct chat_choice c = {.parts = parts, .finish = T9_FINISH_STOP, .stop_token = -1, .stop = -1};
    struct chat_reply reply = {.id = "msg_1", .model = STR("m"), .build = "b", .request = r};
    struct chat_event end = {.kind = CHAT_EVENT_END};
    struct buf b;
    for (size_t i = 0; i < r->n_messages && c.n_parts + 3 < PARTS_MAX; i++) {
        const struct chat_message *m = &r->messages[i];
        if (m->reasoning.n)
            parts[c.n_parts++] =
                (struct chat_part){.kind = CHAT_EVENT_REASONING, .text = m->reasoning};
        if (m->content.n)
            parts[c.n_parts++] = (struct chat_part){.kind = CHAT_EVENT_TEXT, .text = m->content};
        parts[c.n_parts++] = (struct chat_part){.kind = CHAT_EVENT_CALL,
                                                .text = m->n_calls ? m->calls[0].args : m->content,
                                                .name = STR("f"),
                                                .call_id = m->tool_call_id,
                                                .complete = i % 3 != 0};
    }
    buf_init(&b, (size_t)64 << 20);
    anthropic_messages_adapter.whole(&reply, &c, 1, &end, &b);
    check_json(&b);
    buf_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat_request r;
    struct chat_error e = {0};
    /* The first byte chooses strictness and which of the two requests it is. */
    unsigned choice = size ? data[0] : 0;
    str body = {(const char *)data + (size ? 1 : 0), size ? size - 1 : 0};
    const struct chat_adapter *a =
        choice & 2 ? &anthropic_count_adapter : &anthropic_messages_adapter;
    chat_request_init(&r, (size_t)1 << 22);
    if (a->parse(body, choice & 1, &r, &e) == T9_STATUS_OK) {
        check_conversation(&r);
        check_reply(&r);
    } else {
        struct buf b;
        buf_init(&b, (size_t)1 << 16);
        anthropic_write_error(&e, &b);
        if (e.err.msg[0] == 0 || chat_error_http(&e) < 400)
            abort();
        check_json(&b);
        buf_deinit(&b);
    }
    chat_request_deinit(&r);
    return 0;
}
