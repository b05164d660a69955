/*
 * protocol/policy.c - walks a request through its protocol's table of fields. Any thread.
 */
#include "protocol/policy.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *policy_class_name(policy_class c)
{
    static const char *const names[] = {"honoured", "clamped", "no effect", "refused"};
    return (unsigned)c < T9_COUNT(names) ? names[c] : "?";
}

/* `where` is "" for the request itself. */
static const struct policy_field *find(const struct policy_field *fields, size_t n,
                                       const char *where, str name)
{
    size_t skip = *where ? strlen(where) + 1 : 0;
    for (size_t i = 0; i < n; i++) {
        const char *dot = strchr(fields[i].name, '.');
        bool here = dot ? skip && (size_t)(dot - fields[i].name) + 1 == skip &&
                              strncmp(fields[i].name, where, skip - 1) == 0
                        : !skip;
        if (here && str_eqz(name, fields[i].name + skip))
            return &fields[i];
    }
    return NULL;
}

/* `where` and `kind` are empty for the request itself; see policy_members. */
static t9_status unknown(struct policy_ctx *c, yyjson_val *key, const char *where, const char *kind)
{
    char brief[80], param[sizeof c->err->param];
    const char *of = *where ? " of " : "", *dot = *where ? "." : "";
    (void)chat_brief(key, brief);
    if (!c->strict) {
        chat_warn(c->request, "the field %s%s%s is not known and was ignored", brief, of, kind);
        return T9_STATUS_OK;
    }
    int n = snprintf(param, sizeof param, "%s%s%s", where, dot, yyjson_get_str(key));
    bool fits = n >= 0 && (size_t)n < sizeof param;
    return chat_fail(c->err, T9_STATUS_INVALID,
                     fits     ? param
                     : *where ? where
                              : NULL,
                     "unknown_parameter",
                     "the field %s%s%s is not known, and this server is strict: leave it out",
                     brief, of, where);
}

t9_status policy_members(struct policy_ctx *c, yyjson_val *obj, const char *const *names,
                         size_t n_names, const char *where, const char *kind)
{
    yyjson_obj_iter it = yyjson_obj_iter_with(obj);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        bool known = yyjson_is_null(yyjson_obj_iter_get_val(key));
        for (size_t i = 0; i < n_names && !known; i++)
            known = str_eqz(json_str(key), names[i]);
        if (!known)
            T9_TRY(unknown(c, key, where, kind));
    }
    return T9_STATUS_OK;
}

static bool same_value(yyjson_val *a, yyjson_val *b)
{
    int64_t x, y;
    if (policy_whole(a, &x) && policy_whole(b, &y))
        return x == y;
    if (yyjson_is_num(a) && yyjson_is_num(b))
        return !(yyjson_get_num(a) < yyjson_get_num(b)) && !(yyjson_get_num(a) > yyjson_get_num(b));
    return yyjson_equals(a, b);
}

/* Two names of one field must not say two things. */
static t9_status check_same(struct policy_ctx *c, const struct policy_field *f, yyjson_val *obj,
                            yyjson_val *v)
{
    yyjson_val *other = f->same_as ? json_get(obj, f->same_as) : NULL;
    if (!other || yyjson_is_null(other) || same_value(v, other))
        return T9_STATUS_OK;
    return chat_fail(c->err, T9_STATUS_INVALID, f->name, "invalid_value",
                     "%s and %s are two names of one parameter, and their values differ: send one "
                     "of them",
                     f->name, f->same_as);
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
    return policy_walk_in(c, fields, n_fields, "", obj);
}

t9_status policy_walk_in(struct policy_ctx *c, const struct policy_field *fields, size_t n_fields,
                         const char *where, yyjson_val *obj)
{
    yyjson_obj_iter it = yyjson_obj_iter_with(obj);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        yyjson_val *v = yyjson_obj_iter_get_val(key);
        if (yyjson_is_null(v))
            continue;
        const struct policy_field *f = find(fields, n_fields, where, json_str(key));
        T9_TRY(f ? one(c, f, v) : unknown(c, key, where, where));
        if (f)
            T9_TRY(check_same(c, f, obj, v));
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

bool policy_whole(yyjson_val *v, int64_t *out)
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
    if (!policy_whole(v, &i) || (double)i < f->min || (double)i > f->max)
        return out_of_range(c, f, "a whole number", v);
    memcpy(member(c, f), &i, sizeof i);
    return T9_STATUS_OK;
}

t9_status policy_i32(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v)
{
    int64_t i = 0;
    if (!policy_whole(v, &i) || (double)i < f->min || (double)i > f->max)
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
