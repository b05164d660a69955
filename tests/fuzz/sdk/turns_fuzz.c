/*
 * Fuzz target of sdk/history: messages from JSON, arranged for a template of any abilities (the
 * first byte chooses) and written. What is written parses, reads as messages again, and keeps the
 * limits.
 */
#include "sdk/history.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const struct json_limits limits = {1 << 20, 64, 10000};

static void check_written(const struct history *h)
{
    struct buf out;
    struct arena arena;
    struct turn *turns;
    size_t n_turns;
    yyjson_doc *doc = NULL;
    const struct json_limits wide = {64 << 20, 128, 1 << 20};
    buf_init(&out, 64 << 20);
    arena_init(&arena, 64 << 20);
    turns_write(h, &out);
    if (!out.failed && h->n_entries) {
        if (json_parse(&doc, buf_str(&out), wide, NULL) != T9_STATUS_OK ||
            turns_read(&turns, &n_turns, yyjson_doc_get_root(doc), &arena, NULL) != T9_STATUS_OK ||
            n_turns != h->n_entries)
            abort();
    }
    yyjson_doc_free(doc);
    arena_deinit(&arena);
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    yyjson_doc *doc = NULL;
    struct arena arena;
    struct history h = {0};
    struct turn *turns = NULL;
    size_t n_turns = 0;
    if (n < 1)
        return 0;
    struct history_caps caps = {p[0] & 1, (p[0] & 2) != 0, (p[0] & 4) != 0};
    arena_init(&arena, 1 << 20);
    if (json_parse(&doc, (str){(const char *)p + 1, n - 1}, limits, NULL) == T9_STATUS_OK &&
        turns_read(&turns, &n_turns, yyjson_doc_get_root(doc), &arena, NULL) == T9_STATUS_OK &&
        turns_arrange(&h, turns, n_turns, caps, NULL) == T9_STATUS_OK)
        check_written(&h);
    turns_deinit(&h);
    yyjson_doc_free(doc);
    arena_deinit(&arena);
    return 0;
}
