/*
 * protocol/tools/json_call.c - see json_call.h. A scanner for the members of one object, and of the
 * object "function" in it; json_scan finds the ends of values. What was looked at stays unread
 * until the call has begun.
 */
#include "protocol/tools/json_call.h"

#include "protocol/tools/space.h"

enum phase {
    BEFORE,   /* the object */
    KEY,      /* a member's key, or the end */
    IN_KEY,   /* inside of its quotes */
    COLON,    /* after it */
    VALUE,    /* before a value */
    IN_VALUE, /* inside */
    COMMA,    /* after a value */
    RAW,      /* it is no call: content to the object's end */
    ENDED,
};

enum key { KEY_OTHER, KEY_TYPE, KEY_NAME, KEY_ID, KEY_ARGS, KEY_FUNCTION };

/* What a step over one byte or value says. */
enum verdict { GO, WAIT, NO_JSON, NO_CALL };

void json_call_start(struct json_call *c, const char *prefix, bool in_object, bool bare)
{
    *c = (struct json_call){.prefix = prefix, .bare = bare, .phase = in_object ? KEY : BEFORE};
    if (in_object)
        (void)json_scan_push(&c->whole, STR("{"), NULL);
}

static enum key key_of(str key)
{
    static const struct {
        const char *name;
        enum key key;
    } keys[] = {
        {"name", KEY_NAME},         {"arguments", KEY_ARGS}, {"parameters", KEY_ARGS},
        {"function", KEY_FUNCTION}, {"type", KEY_TYPE},      {"id", KEY_ID},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (str_eqz(key, keys[i].name))
            return keys[i].key;
    }
    return KEY_OTHER;
}

/* ---- values ---- */

/* The text of a JSON string with its quotes; free the document. Not one: {NULL, 0}. */
static str decode(const struct machine *m, str quoted, yyjson_doc **doc)
{
    struct json_limits limits = {machine_params(m)->max_bytes, 1, 1};
    *doc = NULL;
    if (json_parse(doc, quoted, limits, NULL) != T9_STATUS_OK)
        return (str){0};
    return json_str(yyjson_doc_get_root(*doc));
}

/* The text of a value as JSON: control characters in strings escaped, a string's own text. */
static void say_args(struct machine *m, str value)
{
    yyjson_doc *doc = NULL;
    str inner = value.n && value.p[0] == '"' ? decode(m, value, &doc) : (str){0};
    if (inner.p) {
        machine_args(m, str_trim(inner));
    } else if (!str_eqz(value, "null")) {
        struct json_scan scan = {0};
        struct buf out;
        buf_init(&out, machine_params(m)->max_bytes * 6 + 16);
        (void)json_scan_push(&scan, value, &out);
        if (out.failed)
            machine_fail(m, T9_STATUS_NOMEM);
        machine_args(m, buf_str(&out));
        buf_deinit(&out);
    }
    yyjson_doc_free(doc);
}

/* The name is known and a call certain. */
static void begin(struct json_call *c, struct machine *m)
{
    str text = machine_unread(m);
    yyjson_doc *doc = NULL;
    if (c->begun || !c->tool || (c->bare && !c->saw_args))
        return;
    str id = c->id_to ? decode(m, str_slice(text, c->id_from, c->id_to), &doc) : (str){0};
    machine_call(m, c->tool, id);
    yyjson_doc_free(doc);
    c->begun = true;
    if (c->has_args)
        say_args(m, str_slice(text, c->args_from, c->args_to));
}

/* A value is complete: [from, at). */
static enum verdict value_done(struct json_call *c, struct machine *m)
{
    str value = str_slice(machine_unread(m), c->from, c->at);
    bool is_text = value.n && value.p[0] == '"';
    yyjson_doc *doc = NULL;
    if (is_text && (c->key == KEY_NAME || c->key == KEY_FUNCTION) && !c->tool) {
        c->tool = machine_tool(m, decode(m, value, &doc));
        yyjson_doc_free(doc);
        if (!c->tool)
            return NO_CALL;
        begin(c, m);
    } else if (c->key == KEY_NAME && !c->tool) {
        return NO_CALL;
    } else if (c->key == KEY_ID && is_text) {
        c->id_from = c->from;
        c->id_to = c->at;
    } else if (c->key == KEY_ARGS && !c->has_args) {
        c->has_args = true;
        c->args_from = c->from;
        c->args_to = c->at;
        if (c->begun)
            say_args(m, value);
    }
    return GO;
}

static enum verdict in_value(struct json_call *c, struct machine *m)
{
    str text = machine_unread(m), rest = str_slice(text, c->at, text.n);
    if (c->streams) {
        struct buf out;
        buf_init(&out, machine_params(m)->max_bytes * 6 + 16);
        c->at += json_scan_push(&c->scan, rest, &out);
        if (out.failed)
            machine_fail(m, T9_STATUS_NOMEM);
        machine_args(m, buf_str(&out));
        buf_deinit(&out);
        if (!c->scan.done)
            return WAIT;
        c->has_args = true;
    } else {
        c->at += json_scan_push(&c->scan, rest, NULL);
        if (!c->scan.done)
            return WAIT;
        enum verdict v = value_done(c, m);
        if (v != GO)
            return v;
    }
    c->phase = COMMA;
    return GO;
}

/* At the first byte of a value. */
static enum verdict value(struct json_call *c, struct machine *m, char first)
{
    if (first == ',' || first == '}' || first == ']' || first == ':')
        return NO_JSON;
    if (c->key == KEY_FUNCTION && first == '{' && !c->nested) {
        c->nested = true;
        c->phase = KEY;
        c->at++;
        return GO;
    }
    c->from = c->at;
    c->scan = (struct json_scan){0};
    c->saw_args |= c->key == KEY_ARGS;
    c->phase = IN_VALUE;
    begin(c, m);
    c->streams = c->begun && c->key == KEY_ARGS && !c->has_args && (first == '{' || first == '[');
    return GO;
}

/* ---- members ---- */

static enum verdict in_key(struct json_call *c, str text)
{
    for (; c->at < text.n && text.p[c->at] != '"'; c->at++) {
        if (text.p[c->at] == '\\')
            return NO_JSON; /* no key of a call is written so */
    }
    if (c->at == text.n)
        return WAIT;
    c->key = (int)key_of(str_slice(text, c->from, c->at));
    c->at++;
    c->phase = COLON;
    return c->key == KEY_OTHER && c->bare && !c->begun ? NO_CALL : GO;
}

/* The object's end, or that of the one in it. */
static enum verdict close(struct json_call *c)
{
    c->at++;
    c->phase = c->nested ? COMMA : ENDED;
    if (!c->nested && !c->begun)
        return NO_CALL;
    c->nested = false;
    return GO;
}

static enum verdict one_byte(struct json_call *c, struct machine *m, char b)
{
    switch (c->phase) {
    case BEFORE:
        if (b != '{' && (b != '[' || c->bare))
            return NO_JSON;
        if (b == '{')
            c->phase = KEY;
        c->at++;
        return GO;
    case KEY:
    case COMMA:
        if (b == '}')
            return close(c);
        if (b == ',' && c->phase == COMMA) {
            c->phase = KEY;
        } else if (b == '"' && c->phase == KEY) {
            c->phase = IN_KEY;
            c->from = c->at + 1;
        } else {
            return NO_JSON;
        }
        c->at++;
        return GO;
    case COLON:
        if (b != ':')
            return NO_JSON;
        c->phase = VALUE;
        c->at++;
        return GO;
    default: return value(c, m, b);
    }
}

static enum verdict advance(struct json_call *c, struct machine *m)
{
    str text = machine_unread(m);
    if (c->phase == IN_KEY)
        return in_key(c, text);
    if (c->phase == IN_VALUE)
        return in_value(c, m);
    c->at = space_skip(text, c->at);
    return c->at < text.n ? one_byte(c, m, text.p[c->at]) : WAIT;
}

/* ---- ends ---- */

static json_call_result all_is_text(struct json_call *c, struct machine *m, size_t n)
{
    str text = machine_unread(m);
    machine_text(m, str_from(c->prefix));
    machine_text(m, str_slice(text, 0, n));
    machine_take(m, n);
    c->prefix = "";
    c->phase = ENDED;
    return JSON_CALL_TEXT;
}

/* Content up to the object's end. */
static json_call_result raw(struct json_call *c, struct machine *m)
{
    str text = machine_unread(m);
    size_t n = json_scan_push(&c->whole, text, NULL);
    (void)all_is_text(c, m, n);
    c->phase = RAW;
    return c->whole.done || machine_is_last(m) ? JSON_CALL_TEXT : JSON_CALL_MORE;
}

/* Of a call that has begun, what was looked at is of no more use. */
static void let_go(struct json_call *c, struct machine *m)
{
    if (!c->begun)
        return;
    bool held = c->phase == IN_KEY || (c->phase == IN_VALUE && !c->streams);
    size_t n = held ? c->from : c->at;
    machine_take(m, n);
    c->at -= n;
    c->from = 0;
}

static json_call_result ended(struct json_call *c, struct machine *m, bool complete)
{
    machine_take(m, c->at);
    machine_call_end(m, complete);
    c->phase = ENDED;
    return JSON_CALL_DONE;
}

json_call_result json_call_step(struct json_call *c, struct machine *m)
{
    enum verdict v = GO;
    if (c->phase == RAW)
        return raw(c, m);
    while (v == GO && c->phase != ENDED)
        v = advance(c, m);
    if (c->begun) {
        if (v == GO)
            return ended(c, m, true);
        if (v != WAIT || machine_is_last(m))
            return ended(c, m, c->has_args);
        let_go(c, m);
        return JSON_CALL_MORE;
    }
    if (v == NO_CALL)
        return raw(c, m);
    if (v == NO_JSON || machine_is_last(m))
        return all_is_text(c, m, v == NO_JSON ? c->at : machine_unread(m).n);
    return JSON_CALL_MORE;
}
