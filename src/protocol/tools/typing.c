/*
 * protocol/tools/typing.c - see typing.h.
 */
#include "protocol/tools/typing.h"

#include <math.h>

enum { DEPTH_MAX = 24, VISITS_MAX = 1000, VALUES_MAX = 1 << 20 };

/* One question to a schema. */
struct walk {
    yyjson_val *root;
    int depth, n_visits;
};

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_word(str text, const char *word)
{
    size_t n = strlen(word);
    if (text.n != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (lower(text.p[i]) != word[i])
            return false;
    }
    return true;
}

/* ---- schemas ---- */

static unsigned type_named(str name)
{
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {
        {"string", TYPING_STRING},
        {"integer", TYPING_INTEGER},
        {"number", TYPING_INTEGER | TYPING_NUMBER},
        {"boolean", TYPING_BOOLEAN},
        {"null", TYPING_NULL},
        {"array", TYPING_ARRAY},
        {"object", TYPING_OBJECT},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (is_word(name, names[i].name))
            return names[i].types;
    }
    return TYPING_ANY;
}

static unsigned type_of_value(yyjson_val *v)
{
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_STR: return TYPING_STRING;
    case YYJSON_TYPE_NUM: return yyjson_is_int(v) ? TYPING_INTEGER : TYPING_NUMBER;
    case YYJSON_TYPE_BOOL: return TYPING_BOOLEAN;
    case YYJSON_TYPE_NULL: return TYPING_NULL;
    case YYJSON_TYPE_ARR: return TYPING_ARRAY;
    case YYJSON_TYPE_OBJ: return TYPING_OBJECT;
    default: return TYPING_ANY;
    }
}

/* What `of` makes of all elements of an array; an empty one or none: any. */
static unsigned any_of(struct walk *w, yyjson_val *list,
                       unsigned (*of)(struct walk *w, yyjson_val *v, str key), str key)
{
    unsigned types = 0;
    size_t i, n;
    yyjson_val *v;
    if (!yyjson_is_arr(list))
        return TYPING_ANY;
    yyjson_arr_foreach(list, i, n, v)
    {
        if (w->n_visits++ > VISITS_MAX)
            break;
        types |= of(w, v, key);
    }
    return types ? types : TYPING_ANY;
}

static unsigned named(struct walk *w, yyjson_val *v, str key)
{
    (void)w;
    (void)key;
    return type_named(json_str(v));
}

static unsigned of_value(struct walk *w, yyjson_val *v, str key)
{
    (void)w;
    (void)key;
    return type_of_value(v);
}

/* What a reference into the schema points at, NULL when nothing. */
static yyjson_val *referred(const struct walk *w, yyjson_val *schema)
{
    str ref = json_str(json_get(schema, "$ref"));
    if (ref.n == 0 || ref.p[0] != '#')
        return NULL;
    return ref.n == 1 ? w->root : yyjson_ptr_getn(w->root, ref.p + 1, ref.n - 1);
}

static unsigned of_schema(struct walk *w, yyjson_val *schema, str key);

/* What a schema says through other schemas, by `of`. */
static unsigned combined(struct walk *w, yyjson_val *schema,
                         unsigned (*of)(struct walk *w, yyjson_val *v, str key), str key)
{
    unsigned types = TYPING_ANY;
    yyjson_val *all = json_get(schema, "allOf"), *ref = referred(w, schema), *v;
    size_t i, n;
    types &= any_of(w, json_get(schema, "anyOf"), of, key);
    types &= any_of(w, json_get(schema, "oneOf"), of, key);
    if (yyjson_is_arr(all)) {
        yyjson_arr_foreach(all, i, n, v)
        {
            if (w->n_visits++ > VISITS_MAX)
                break;
            types &= of(w, v, key);
        }
    }
    return ref ? types & of(w, ref, key) : types;
}

/* The types that a schema permits; `key` is not looked at. */
static unsigned of_schema(struct walk *w, yyjson_val *schema, str key)
{
    if (!yyjson_is_obj(schema) || w->depth >= DEPTH_MAX || w->n_visits++ > VISITS_MAX)
        return TYPING_ANY;
    w->depth++;
    yyjson_val *type = json_get(schema, "type"), *only = json_get(schema, "const");
    unsigned types = yyjson_is_str(type) ? type_named(json_str(type)) : any_of(w, type, named, key);
    types &= any_of(w, json_get(schema, "enum"), of_value, key);
    if (only)
        types &= type_of_value(only);
    types &= combined(w, schema, of_schema, key);
    if (types == TYPING_ANY && json_get(schema, "properties"))
        types = TYPING_OBJECT;
    else if (types == TYPING_ANY && json_get(schema, "items"))
        types = TYPING_ARRAY;
    /* Who writes a default of null means that null may be given. */
    if (yyjson_is_true(json_get(schema, "nullable")) || yyjson_is_null(json_get(schema, "default")))
        types |= TYPING_NULL;
    w->depth--;
    return types ? types : TYPING_ANY;
}

/* The types that a schema of objects permits for a member. */
static unsigned of_member(struct walk *w, yyjson_val *schema, str key)
{
    if (!yyjson_is_obj(schema) || w->depth >= DEPTH_MAX || w->n_visits++ > VISITS_MAX)
        return TYPING_ANY;
    w->depth++;
    yyjson_val *more = json_get(schema, "additionalProperties");
    yyjson_val *own = yyjson_obj_getn(json_get(schema, "properties"), key.p, key.n);
    unsigned types = combined(w, schema, of_member, key);
    if (own)
        types &= of_schema(w, own, key);
    else if (types == TYPING_ANY && yyjson_is_obj(more))
        types = of_schema(w, more, key);
    w->depth--;
    return types ? types : TYPING_ANY;
}

unsigned typing_of(yyjson_val *schema, str key)
{
    struct walk w = {.root = schema};
    return of_member(&w, schema, key);
}

bool typing_declares(yyjson_val *schema, str key)
{
    return yyjson_obj_getn(json_get(schema, "properties"), key.p, key.n) != NULL;
}

/* ---- values ---- */

/* Whether it is one JSON value of these types. */
static bool is_json(str text, unsigned types)
{
    struct json_limits limits = {text.n, 128, VALUES_MAX};
    yyjson_doc *doc = NULL;
    if (text.n == 0 || json_parse(&doc, text, limits, NULL) != T9_STATUS_OK)
        return false;
    yyjson_val *v = yyjson_doc_get_root(doc);
    unsigned type = type_of_value(v);
    if (type == TYPING_NUMBER && trunc(yyjson_get_num(v)) == yyjson_get_num(v))
        type |= TYPING_INTEGER; /* 5.0 is an integer to a schema */
    if (type == TYPING_INTEGER)
        type |= TYPING_NUMBER;
    yyjson_doc_free(doc);
    return (type & types) != 0;
}

/* Appends true, false or null for a word that means it, in any case. */
static bool write_word(struct buf *out, str text, unsigned types)
{
    const char *json = NULL;
    if ((types & TYPING_BOOLEAN) && is_word(text, "true"))
        json = "true";
    else if ((types & TYPING_BOOLEAN) && is_word(text, "false"))
        json = "false";
    else if ((types & TYPING_NULL) && (is_word(text, "null") || is_word(text, "none")))
        json = "null";
    if (json)
        buf_puts(out, json);
    return json != NULL;
}

void typing_write(struct buf *out, unsigned types, str raw)
{
    str text = str_trim(raw);
    unsigned others = types & ~(unsigned)TYPING_STRING;
    size_t n = out->n;
    if (others && is_json(text, others)) {
        buf_puts_str(out, text);
        return;
    }
    if (write_word(out, text, others))
        return;
    if ((others & (TYPING_ARRAY | TYPING_OBJECT)) && typing_from_python(out, text)) {
        if (is_json(str_slice(buf_str(out), n, out->n), others & (TYPING_ARRAY | TYPING_OBJECT)))
            return;
        out->n = n;
    }
    json_write_str(out, raw);
}

/* ---- Python ---- */

static bool is_name(char c)
{
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* Appends a quoted string from `at`; returns where it ends, 0: it does not. */
static size_t python_string(struct buf *out, str text, size_t at)
{
    char quote = text.p[at++];
    buf_putc(out, '"');
    for (; at < text.n && text.p[at] != quote; at++) {
        char c = text.p[at];
        if (c == '\\' && at + 1 < text.n) {
            at++;
            if (text.p[at] != '\'')
                buf_putc(out, '\\');
            buf_putc(out, text.p[at]);
        } else if (c == '"') {
            buf_puts(out, "\\\"");
        } else if ((unsigned char)c < 0x20) {
            buf_printf(out, "\\u%04x", (unsigned)(unsigned char)c);
        } else {
            buf_putc(out, c);
        }
    }
    buf_putc(out, '"');
    return at < text.n ? at + 1 : 0;
}

/* Appends a name from `at`, those of Python's constants as JSON's; returns its end. */
static size_t python_name(struct buf *out, str text, size_t at)
{
    size_t end = at;
    while (end < text.n && is_name(text.p[end]))
        end++;
    str name = str_slice(text, at, end);
    if (str_eqz(name, "True"))
        name = STR("true");
    else if (str_eqz(name, "False"))
        name = STR("false");
    else if (str_eqz(name, "None"))
        name = STR("null");
    buf_puts_str(out, name);
    return end;
}

bool typing_from_python(struct buf *out, str text)
{
    size_t n = out->n, at = 0;
    while (at < text.n) {
        char c = text.p[at];
        if (c == '\'' || c == '"') {
            at = python_string(out, text, at);
            if (at == 0)
                break;
        } else if (is_name(c)) {
            at = python_name(out, text, at);
        } else {
            buf_putc(out, c);
            at++;
        }
    }
    if (text.n > 0 && at == text.n && is_json(str_slice(buf_str(out), n, out->n), TYPING_ANY))
        return true;
    out->n = n;
    return false;
}
