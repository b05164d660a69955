/*
 * base/json.c - bounded parsing and compact writing of JSON over yyjson.
 *
 * A scan before yyjson counts values and depth, so that a document over a limit is refused before
 * any memory is spent on it; one after it finds keys that an object has twice. Any thread; nothing
 * here has state.
 */
#include "base/json.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *alc_malloc(void *ctx, size_t size)
{
    (void)ctx;
    return mem_alloc(size);
}

static void *alc_realloc(void *ctx, void *p, size_t old_size, size_t size)
{
    (void)ctx;
    (void)old_size;
    return mem_realloc(p, size, 1);
}

static void alc_free(void *ctx, void *p)
{
    (void)ctx;
    mem_free(p);
}

static const yyjson_alc json_alc = {alc_malloc, alc_realloc, alc_free, NULL};

/* Offset after the string that opens at `i`; the end of the text when it never closes. */
static size_t skip_string(str text, size_t i)
{
    for (i++; i < text.n; i++) {
        if (text.p[i] == '\\')
            i++;
        else if (text.p[i] == '"')
            return i + 1;
    }
    return text.n;
}

static bool ends_scalar(char c)
{
    return c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}' || c == '"' ||
           c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Counts values (keys too) and depth of text that may be malformed; yyjson judges the syntax. */
static t9_status check_limits(str text, struct json_limits limits, struct t9_err *err)
{
    size_t n_values = 0;
    uint32_t depth = 0;
    for (size_t i = 0; i < text.n;) {
        char c = text.p[i];
        size_t at = i;
        if (c == ']' || c == '}') {
            depth -= depth > 0;
            i++;
            continue;
        }
        if (c == '"') {
            i = skip_string(text, i);
        } else if (c == '[' || c == '{') {
            i++;
            if (++depth > limits.max_depth)
                return t9_fail(err, T9_STATUS_TOO_LARGE,
                               "JSON nests deeper than %u levels at byte %zu", limits.max_depth,
                               at);
        } else if (ends_scalar(c)) {
            i++;
            continue;
        } else {
            while (i < text.n && !ends_scalar(text.p[i]))
                i++;
        }
        if (++n_values > limits.max_values)
            return t9_fail(err, T9_STATUS_TOO_LARGE, "JSON has more than %zu values at byte %zu",
                           limits.max_values, at);
    }
    return T9_STATUS_OK;
}

/* ---- keys that stand twice ---- */

struct hashed_key {
    uint64_t hash;
    yyjson_val *key;
};

/* Equal keys end up side by side; the bytes decide among equal hashes, so that keys made to have
 * one hash are sorted like others. */
static int by_hash(const void *a, const void *b)
{
    const struct hashed_key *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return str_cmp(json_str(x->key), json_str(y->key));
}

/* A key of a large object that stands there twice goes to *twin, else NULL does. */
static t9_status sort_for_twin(yyjson_val *obj, yyjson_val **twin, struct t9_err *err)
{
    size_t n = 0;
    struct hashed_key *keys = mem_calloc(yyjson_obj_size(obj), sizeof *keys);
    *twin = NULL;
    if (!keys)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for JSON with %zu keys in an object",
                       yyjson_obj_size(obj));
    yyjson_obj_iter it = yyjson_obj_iter_with(obj);
    for (yyjson_val *k = yyjson_obj_iter_next(&it); k; k = yyjson_obj_iter_next(&it), n++)
        keys[n] = (struct hashed_key){hash_xxh3_64(yyjson_get_str(k), yyjson_get_len(k), 0), k};
    qsort(keys, n, sizeof *keys, by_hash);
    for (size_t i = 1; i < n && !*twin; i++) {
        if (by_hash(&keys[i - 1], &keys[i]) == 0)
            *twin = keys[i].key;
    }
    mem_free(keys);
    return T9_STATUS_OK;
}

static yyjson_val *compare_for_twin(yyjson_val *obj)
{
    yyjson_obj_iter it = yyjson_obj_iter_with(obj);
    for (yyjson_val *k = yyjson_obj_iter_next(&it); k; k = yyjson_obj_iter_next(&it)) {
        yyjson_obj_iter rest = it;
        for (yyjson_val *o = yyjson_obj_iter_next(&rest); o; o = yyjson_obj_iter_next(&rest)) {
            if (str_eq(json_str(k), json_str(o)))
                return o;
        }
    }
    return NULL;
}

/* Keys in messages: escaped, and cut where they are long. */
static void write_key_briefly(struct buf *b, yyjson_val *key)
{
    enum { SHOWN_BYTES = 40 };
    str s = json_str(key);
    bool cut = s.n > SHOWN_BYTES;
    s.n = cut ? SHOWN_BYTES : s.n;
    s.n -= utf8_incomplete_tail(s);
    json_write_str(b, s);
    if (cut)
        buf_puts(b, "...");
}

static bool is_plain(yyjson_val *key)
{
    str s = json_str(key);
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '_' && c != '-' && c != '$')
            return false;
    }
    return s.n > 0 && s.n <= 40;
}

/* The child of `v` that is `obj` or holds it, and its step of the path. A document's values lie in
 * the order of its text, so the last one that does not begin after `obj` is it. */
static yyjson_val *write_step(yyjson_val *v, const yyjson_val *obj, struct buf *path)
{
    yyjson_val *child = NULL, *name = NULL;
    size_t idx, max, at = 0;
    yyjson_val *key, *item;
    yyjson_obj_foreach(v, idx, max, key, item)
    {
        if (item > obj)
            break;
        child = item;
        name = key;
    }
    yyjson_arr_foreach(v, idx, max, item)
    {
        if (item > obj)
            break;
        child = item;
        at = idx;
    }
    if (!name) {
        buf_printf(path, "[%zu]", at);
    } else {
        buf_puts(path, path->n ? "." : "");
        if (is_plain(name))
            buf_puts_str(path, json_str(name));
        else
            write_key_briefly(path, name);
    }
    return child;
}

static t9_status twin_error(yyjson_val *root, const yyjson_val *obj, yyjson_val *key,
                            struct t9_err *err)
{
    enum { SHOWN_PATH_BYTES = 120, KEY_BYTES_MAX = 400 };
    struct buf name, path;
    buf_init(&name, KEY_BYTES_MAX);
    buf_init(&path, 64 * 1024);
    write_key_briefly(&name, key);
    for (yyjson_val *v = root; v && v != obj;)
        v = write_step(v, obj, &path);
    str shown = buf_str(&path);
    bool cut = shown.n > SHOWN_PATH_BYTES;
    shown.n = cut ? SHOWN_PATH_BYTES : shown.n;
    shown.n -= utf8_incomplete_tail(shown);
    t9_status s = name.failed || path.failed
                      ? t9_fail(err, T9_STATUS_NOMEM, "no memory to name a key that stands twice")
                  : path.n ? t9_fail(err, T9_STATUS_INVALID,
                                     "the key " STR_FMT " stands twice in " STR_FMT "%s",
                                     STR_ARG(buf_str(&name)), STR_ARG(shown), cut ? "..." : "")
                           : t9_fail(err, T9_STATUS_INVALID,
                                     "the key " STR_FMT " stands twice in the outermost object",
                                     STR_ARG(buf_str(&name)));
    buf_deinit(&name);
    buf_deinit(&path);
    return s;
}

/* Readers differ in which of two equal keys they take, so who wrote them can't rely on either. */
static t9_status check_keys(yyjson_doc *doc, struct t9_err *err)
{
    enum { COMPARED_MAX = 16 }; /* more keys are sorted */
    yyjson_val *root = yyjson_doc_get_root(doc);
    size_t n = yyjson_doc_get_val_count(doc);
    for (yyjson_val *v = root; v < root + n; v++) {
        yyjson_val *twin = NULL;
        if (yyjson_obj_size(v) > COMPARED_MAX)
            T9_TRY(sort_for_twin(v, &twin, err));
        else if (yyjson_obj_size(v) > 1)
            twin = compare_for_twin(v);
        if (twin)
            return twin_error(root, v, twin, err);
    }
    return T9_STATUS_OK;
}

t9_status json_parse(yyjson_doc **out, str text, struct json_limits limits, struct t9_err *err)
{
    *out = NULL;
    if (text.n > limits.max_bytes)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "JSON of %zu bytes is over the limit of %zu",
                       text.n, limits.max_bytes);
    if (text.n == 0)
        return t9_fail(err, T9_STATUS_INVALID, "invalid JSON: empty input at byte 0");
    T9_TRY(check_limits(text, limits, err));
    yyjson_read_err why;
    /* Without the in-situ flag yyjson copies the text and does not write to it. */
    union {
        const char *in;
        char *out;
    } p = {.in = text.p};
    yyjson_doc *doc = yyjson_read_opts(p.out, text.n, YYJSON_READ_NOFLAG, &json_alc, &why);
    if (!doc && why.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return t9_fail(err, T9_STATUS_NOMEM, "out of memory for JSON of %zu bytes", text.n);
    if (!doc)
        return t9_fail(err, T9_STATUS_INVALID, "invalid JSON: %s at byte %zu", why.msg, why.pos);
    t9_status s = check_keys(doc, err);
    if (s == T9_STATUS_OK)
        *out = doc;
    else
        yyjson_doc_free(doc);
    return s;
}

str json_str(yyjson_val *v)
{
    if (!yyjson_is_str(v))
        return (str){NULL, 0};
    return (str){yyjson_get_str(v), yyjson_get_len(v)};
}

yyjson_val *json_get(yyjson_val *obj, const char *key)
{
    return yyjson_obj_get(obj, key);
}

/* The escape of an ASCII character in a JSON string; NULL when it stands for itself. */
static const char *ascii_escape(unsigned char c, char esc[8])
{
    switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: break;
    }
    if (c >= 0x20)
        return NULL;
    snprintf(esc, 8, "\\u%04x", (unsigned)c);
    return esc;
}

/* Length of the run at s[i..] that can be copied as it is: whole characters that need no escape. */
static size_t plain_run(str s, size_t i)
{
    size_t from = i;
    while (i < s.n) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x80) {
            if (c < 0x20 || c == '"' || c == '\\')
                break;
            i++;
            continue;
        }
        uint32_t cp;
        size_t len = utf8_decode(s.p + i, s.n - i, &cp);
        if (len == 0)
            break;
        i += len;
    }
    return i - from;
}

void json_write_str(struct buf *b, str s)
{
    char esc[8];
    buf_putc(b, '"');
    for (size_t i = 0; i < s.n && !b->failed;) {
        size_t n = plain_run(s, i);
        if (n) {
            buf_append(b, s.p + i, n);
            i += n;
            continue;
        }
        const char *e = ascii_escape((unsigned char)s.p[i], esc);
        if (e) {
            buf_puts(b, e);
            i++;
            continue;
        }
        /* Malformed: hand the part up to the next plain or escaped byte to the sanitizer. */
        size_t to = i + 1;
        while (to < s.n && ((unsigned char)s.p[to] & 0x80) && plain_run(s, to) == 0)
            to++;
        utf8_sanitize(b, str_slice(s, i, to));
        i = to;
    }
    buf_putc(b, '"');
}

void json_write_key(struct buf *b, const char *key)
{
    json_write_str(b, str_from(key));
    buf_putc(b, ':');
}

void json_write_i64(struct buf *b, int64_t v)
{
    buf_printf(b, "%lld", (long long)v);
}

void json_write_f64(struct buf *b, double v)
{
    char text[32];
    if (!isfinite(v)) {
        buf_puts(b, "null");
        return;
    }
    buf_append(b, text, num_format_f64(v, text));
}

void json_write_bool(struct buf *b, bool v)
{
    buf_puts(b, v ? "true" : "false");
}

void json_write_val(struct buf *b, yyjson_val *v)
{
    size_t n = 0;
    if (b->failed)
        return;
    char *text = yyjson_val_write_opts(v, YYJSON_WRITE_INF_AND_NAN_AS_NULL, &json_alc, &n, NULL);
    if (!text) {
        b->failed = true;
        return;
    }
    buf_append(b, text, n);
    mem_free(text);
}
