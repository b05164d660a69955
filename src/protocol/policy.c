/*
 * protocol/policy.c - walks a request through its protocol's table of fields. Any thread.
 */
#include "protocol/policy.h"

#include "base/utf8.h"

#include <math.h>
#include <string.h>

const char *policy_class_name(policy_class c)
{
    static const char *const names[] = {"honoured", "clamped", "no effect", "refused"};
    return (unsigned)c < T9_COUNT(names) ? names[c] : "?";
}

static const struct policy_field *find(const struct policy_field *fields, size_t n, str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eqz(name, fields[i].name))
            return &fields[i];
    return NULL;
}

static t9_status unknown(struct policy_ctx *c, yyjson_val *key)
{
    char brief[80];
    (void)chat_brief(key, brief);
    if (!c->strict) {
        chat_warn(c->request, "the field %s is not known and was ignored", brief);
        return T9_STATUS_OK;
    }
    bool fits = yyjson_get_len(key) < sizeof c->err->param;
    return chat_fail(c->err, T9_STATUS_INVALID, fits ? yyjson_get_str(key) : NULL,
                     "unknown_parameter",
                     "the field %s is not known, and this server is strict: leave it out", brief);
}

static t9_status one(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    char brief[80];
    switch (f->cls) {
    case POLICY_HONOURED:
    case POLICY_CLAMPED: return f->parse(c, f, v);
    case POLICY_NO_EFFECT: return T9_STATUS_OK;
    case POLICY_REFUSED: break;
    }
    if (f->neutral && f->neutral(v))
        return T9_STATUS_OK;
    return chat_fail(c->err, T9_STATUS_UNSUPPORTED, f->name, "unsupported_parameter",
                     "%s = %s is not supported: %s", f->name, chat_brief(v, brief), f->note);
}

t9_status policy_walk(struct policy_ctx *c, const struct policy_field *fields, size_t n_fields,
                      yyjson_val *obj)
{
    yyjson_obj_iter it = yyjson_obj_iter_with(obj);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *v = yyjson_obj_iter_get_val(key);
        if (yyjson_is_null(v))
            continue;
        const struct policy_field *f = find(fields, n_fields, json_str(key));
        T9_TRY(f ? one(c, f, v) : unknown(c, key));
    }
    return T9_STATUS_OK;
}

t9_status policy_wrong(struct policy_ctx *c, const char *name, const char *wanted, yyjson_val *v)
{
    char brief[80];
    return chat_fail(c->err, T9_STATUS_INVALID, name, "invalid_value", "%s must be %s, not %s",
                     name, wanted, chat_brief(v, brief));
}

static t9_status out_of_range(struct policy_ctx *c, const struct policy_field *f, const char *kind,
                              yyjson_val *v)
{
    char brief[80];
    /* The largest whole number that JSON carries exactly is no limit that a person has to know. */
    if (f->max >= 9007199254740991.0)
        return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                         "%s must be %s of at least %.15g, not %s", f->name, kind, f->min,
                         chat_brief(v, brief));
    return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                     "%s must be %s from %.15g to %.15g, not %s", f->name, kind, f->min, f->max,
                     chat_brief(v, brief));
}

static void *member(struct policy_ctx *c, const struct policy_field *f)
{
    return (char *)c->request + f->offset;
}

t9_status policy_f32(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    double d = yyjson_get_num(v);
    if (!yyjson_is_num(v) || !(d >= f->min && d <= f->max))
        return out_of_range(c, f, "a number", v);
    float x = (float)d;
    /* A positive number too small for a float must not turn into an "off" of 0. */
    if (d > 0 && x <= 0)
        x = 1e-30f;
    memcpy(member(c, f), &x, sizeof x);
    return T9_STATUS_OK;
}

/* Whole numbers may come as 5 or 5.0: JavaScript clients do not know the difference. */
static bool whole(yyjson_val *v, int64_t *out)
{
    if (yyjson_is_uint(v)) {
        uint64_t u = yyjson_get_uint(v);
        *out = (int64_t)u;
        return u <= INT64_MAX;
    }
    if (yyjson_is_sint(v)) {
        *out = yyjson_get_sint(v);
        return true;
    }
    double d = yyjson_get_num(v);
    if (!yyjson_is_real(v) || !(fabs(d) <= 9007199254740992.0) || d != floor(d))
        return false;
    *out = (int64_t)d;
    return true;
}

t9_status policy_i64(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    int64_t i = 0;
    if (!whole(v, &i) || (double)i < f->min || (double)i > f->max)
        return out_of_range(c, f, "a whole number", v);
    memcpy(member(c, f), &i, sizeof i);
    return T9_STATUS_OK;
}

t9_status policy_i32(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    int64_t i = 0;
    if (!whole(v, &i) || (double)i < f->min || (double)i > f->max)
        return out_of_range(c, f, "a whole number", v);
    int32_t x = (int32_t)i;
    memcpy(member(c, f), &x, sizeof x);
    return T9_STATUS_OK;
}

t9_status policy_bool(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    if (!yyjson_is_bool(v))
        return policy_wrong(c, f->name, "true or false", v);
    bool x = yyjson_is_true(v);
    memcpy(member(c, f), &x, sizeof x);
    return T9_STATUS_OK;
}

bool policy_is_false(yyjson_val *v)
{
    return yyjson_is_false(v);
}

bool policy_is_zero(yyjson_val *v)
{
    return yyjson_is_num(v) && !(yyjson_get_num(v) < 0) && !(yyjson_get_num(v) > 0);
}

bool policy_is_empty(yyjson_val *v)
{
    return (yyjson_is_arr(v) && yyjson_arr_size(v) == 0) ||
           (yyjson_is_obj(v) && yyjson_obj_size(v) == 0) ||
           (yyjson_is_str(v) && yyjson_get_len(v) == 0);
}

void policy_write(struct buf *b, const struct policy_field *fields, size_t n_fields)
{
    buf_putc(b, '[');
    for (size_t i = 0; i < n_fields; i++) {
        if (i)
            buf_putc(b, ',');
        buf_putc(b, '{');
        json_write_key(b, "name");
        json_write_str(b, str_from(fields[i].name));
        buf_putc(b, ',');
        json_write_key(b, "class");
        json_write_str(b, str_from(policy_class_name(fields[i].cls)));
        buf_putc(b, ',');
        json_write_key(b, "note");
        json_write_str(b, str_from(fields[i].note));
        buf_putc(b, '}');
    }
    buf_putc(b, ']');
}

static void write_range(struct buf *b, const struct policy_field *f, const char *type)
{
    buf_printf(b, "{\"type\":\"%s\",\"minimum\":%.15g,\"maximum\":%.17g}", type, f->min, f->max);
}

static void write_plain_schema(struct buf *b, const struct policy_field *f)
{
    if (f->schema)
        buf_puts(b, f->schema);
    else if (f->parse == policy_f32)
        write_range(b, f, "number");
    else if (f->parse == policy_i32 || f->parse == policy_i64)
        write_range(b, f, "integer");
    else if (f->parse == policy_bool)
        buf_puts(b, "{\"type\":\"boolean\"}");
    else
        buf_puts(b, "{}");
}

/* null is absent everywhere. */
void policy_write_schema(struct buf *b, const struct policy_field *f)
{
    buf_puts(b, "{\"description\":");
    json_write_str(b, str_from(f->note));
    buf_puts(b, ",\"anyOf\":[");
    write_plain_schema(b, f);
    buf_puts(b, ",{\"type\":\"null\"}]}");
}
