/*
 * protocol/policy.h - the table of fields of a protocol. One table per protocol feeds its parser,
 * /v1/capabilities and the manual, so what is said and what is done can't differ.
 *
 * A field is honoured, clamped, accepted without effect (it can't change the answer) or refused by
 * name. Fields that no table knows are ignored with a warning. `null` means absent everywhere.
 * Immutable; any thread.
 */
#ifndef T9_PROTOCOL_POLICY_H
#define T9_PROTOCOL_POLICY_H

#include "protocol/chat.h"

typedef enum policy_class {
    POLICY_HONOURED,
    POLICY_CLAMPED,   /* honoured as far as it fits, with a warning */
    POLICY_NO_EFFECT, /* accepted; can't change the answer */
    POLICY_REFUSED,   /* 400 naming it, unless its value asks for nothing */
} policy_class;

const char *policy_class_name(policy_class c);

struct policy_ctx {
    struct chat_request *request;
    struct chat_error *err;
    bool strict; /* unknown fields are refused */
};

struct policy_field {
    const char *name; /* "stop"; "options.stop" is the member of the field "options" */
    policy_class cls;
    /* HONOURED and CLAMPED: takes the value over (it is not null). */
    t9_status (*parse)(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
    /* REFUSED: whether this value asks for nothing and is fine. NULL: no value is. */
    bool (*neutral)(yyjson_val *v);
    double min, max;  /* for policy_f32, policy_i32, policy_i64 */
    size_t offset;    /* of the member of struct chat_request that they fill */
    const char *note; /* one sentence for people; never empty */
    /* The field of which this is another name: where both are given they must say the same. */
    const char *same_as;
    /* JSON Schema of its values; NULL: follows from policy_f32 and its kin, else any value. */
    const char *schema;
    bool required; /* beside the one that says what it is about */
};

/* Appends the field's JSON Schema with its note as the description. */
void policy_write_schema(struct buf *b, const struct policy_field *f);

/* Takes the members of `obj` in order through `fields`; the first failure ends it. */
t9_status policy_walk(struct policy_ctx *c, const struct policy_field *fields, size_t n_fields,
                      yyjson_val *obj);
/* The same for the members of the field `where`, whose value is `obj`. */
t9_status policy_walk_in(struct policy_ctx *c, const struct policy_field *fields, size_t n_fields,
                         const char *where, yyjson_val *obj);

/* Refuses (strict) or warns of members of `obj` that are not among `names`; null members are
 * absent. `where` names it in an error ("messages[3]"), `kind` in a warning ("a message"). */
t9_status policy_members(struct policy_ctx *c, yyjson_val *obj, const char *const *names,
                         size_t n_names, const char *where, const char *kind);
/* A whole number, however it is spelled: 5, 5.0 and 5e0 are one in JSON. False when `v` is none, or
 * is one that 64 bits with a sign (written as a fraction: 53 bits) don't hold. */
bool policy_whole(yyjson_val *v, int64_t *out);

/* Parsers of plain values into the member at f->offset; range f->min .. f->max, both included. */
t9_status policy_f32(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status policy_i32(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status policy_i64(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
t9_status policy_bool(struct policy_ctx *c, const struct policy_field *f, yyjson_val *v);
/* "NAME must be WANTED, not VALUE" with param and INVALID. */
t9_status policy_wrong(struct policy_ctx *c, const char *name, const char *wanted, yyjson_val *v);

/* Values that ask for nothing. */
bool policy_is_false(yyjson_val *v);
bool policy_is_zero(yyjson_val *v);
bool policy_is_empty(yyjson_val *v); /* [], {} or "" */

/* Appends [{"name":..,"class":..,"note":..}, ...]. */
void policy_write(struct buf *b, const struct policy_field *fields, size_t n_fields);

#endif
