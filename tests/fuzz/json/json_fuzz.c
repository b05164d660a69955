/*
 * Fuzz target of base/json: what parses is within the limits, has no key twice in an object, is
 * written again and parses to an equal value; strings survive the writer.
 */
#include "base/json.h"
#include "base/utf8.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const struct json_limits limits = {
    .max_bytes = 1 << 20, .max_depth = 64, .max_values = 10000};

static void check_written(yyjson_val *root)
{
    struct buf b;
    struct t9_err err;
    yyjson_doc *again;
    buf_init(&b, 16 << 20);
    json_write_val(&b, root);
    /* Escapes can make the text longer, so the second parse has room for that. */
    struct json_limits wide = limits;
    wide.max_bytes = b.max;
    if (b.failed || json_parse(&again, buf_str(&b), wide, &err) != T9_STATUS_OK)
        abort();
    if (!yyjson_equals(root, yyjson_doc_get_root(again)))
        abort();
    yyjson_doc_free(again);
    buf_deinit(&b);
}

/* Members of `obj` by this name. */
static size_t count_key(yyjson_val *obj, str name)
{
    size_t n = 0, idx, max;
    yyjson_val *key, *v;
    yyjson_obj_foreach(obj, idx, max, key, v)
    {
        n += str_eq(json_str(key), name);
    }
    return n;
}

static void check_keys(yyjson_doc *doc)
{
    yyjson_val *root = yyjson_doc_get_root(doc);
    for (size_t i = 0; i < yyjson_doc_get_val_count(doc); i++) {
        size_t idx, max;
        yyjson_val *key, *v;
        yyjson_obj_foreach(&root[i], idx, max, key, v)
        {
            if (count_key(&root[i], json_str(key)) != 1)
                abort();
        }
    }
}

static void check_string(str s)
{
    struct buf b;
    struct buf clean;
    struct t9_err err;
    yyjson_doc *doc;
    struct json_limits wide = limits;
    wide.max_bytes = 16 << 20;
    buf_init(&b, wide.max_bytes);
    buf_init(&clean, wide.max_bytes);
    json_write_str(&b, s);
    utf8_sanitize(&clean, s);
    if (json_parse(&doc, buf_str(&b), wide, &err) != T9_STATUS_OK)
        abort();
    if (!str_eq(json_str(yyjson_doc_get_root(doc)), buf_str(&clean)))
        abort();
    yyjson_doc_free(doc);
    buf_deinit(&b);
    buf_deinit(&clean);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    yyjson_doc *doc;
    struct t9_err err = {0};
    str text = {(const char *)p, n};
    t9_status st = json_parse(&doc, text, limits, &err);
    if (st == T9_STATUS_OK) {
        yyjson_val *root = yyjson_doc_get_root(doc);
        if (yyjson_doc_get_val_count(doc) > limits.max_values || !utf8_valid(text))
            abort();
        (void)json_get(root, "model");
        check_keys(doc);
        check_written(root);
        yyjson_doc_free(doc);
    } else if (err.code != st || err.msg[0] == 0) {
        abort();
    }
    check_string(text);
    return 0;
}
