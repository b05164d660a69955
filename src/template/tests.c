/* template/tests.c - the tests of `x is test(args)`. Each gives back a boolean value. */
#include "template/node.h"

static bool yes(struct val *out, bool b)
{
    *out = val_bool(b);
    return true;
}

#define TEST(name, expr)                                                                           \
    static bool name(struct rctx *c, struct val self, struct cargs *a, struct val *out)            \
    {                                                                                              \
        (void)c;                                                                                   \
        (void)a;                                                                                   \
        return yes(out, expr);                                                                     \
    }

static bool is_iterable(struct val v)
{
    return v.kind == V_STR || val_is_listlike(v) || v.kind == V_MAP || v.kind == V_RANGE ||
           v.kind == V_GEN || v.kind == V_VIEW || v.kind == V_UNDEF || v.kind == V_LOOP;
}

static bool is_sequence(struct val v)
{
    return v.kind == V_STR || val_is_listlike(v) || v.kind == V_MAP || v.kind == V_RANGE ||
           v.kind == V_UNDEF;
}

static bool is_callable(struct val v)
{
    return v.kind == V_MACRO || v.kind == V_FN || v.kind == V_METHOD || v.kind == V_LOOP ||
           v.kind == V_JOINER || v.kind == V_UNDEF;
}

static bool is_known(struct val name, bool filter)
{
    return name.kind == V_STR && (filter ? filter_find(jstr_view(name.s)) != NULL
                                         : fn_find(test_table, jstr_view(name.s)) != NULL);
}

TEST(t_defined, self.kind != V_UNDEF)
TEST(t_undefined, self.kind == V_UNDEF)
TEST(t_none, self.kind == V_NONE)
TEST(t_boolean, self.kind == V_BOOL)
TEST(t_true, self.kind == V_BOOL && self.b)
TEST(t_false, self.kind == V_BOOL && !self.b)
TEST(t_integer, self.kind == V_INT || self.kind == V_UINT)
TEST(t_float, self.kind == V_FLOAT)
TEST(t_number, val_is_number(self))
TEST(t_string, self.kind == V_STR)
TEST(t_mapping, self.kind == V_MAP)
TEST(t_sequence, is_sequence(self))
TEST(t_iterable, is_iterable(self))
TEST(t_callable, is_callable(self))
TEST(t_escaped, self.kind == V_STR && self.s->markup)
TEST(t_filter, is_known(self, true))
TEST(t_test, is_known(self, false))

static bool string_case(struct rctx *c, struct val self, const char *method, struct val *out)
{
    struct cargs none = {0};
    return val_to_str(c, self, &self) &&
           fn_call(c, fn_find(str_methods, str_from(method)), self, &none, out);
}

static bool t_lower(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return string_case(c, self, "islower", out);
}
static bool t_upper(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return string_case(c, self, "isupper", out);
}

static bool remainder_is(struct rctx *c, struct val self, struct val by, int64_t want,
                         struct val *out)
{
    struct val rest;
    bool same;
    return op_binary(c, OP_MOD, self, by, &rest) && val_eq(c, rest, val_int(want), &same) &&
           yes(out, same);
}

static bool t_odd(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return remainder_is(c, self, val_int(2), 1, out);
}
static bool t_even(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return remainder_is(c, self, val_int(2), 0, out);
}
static bool t_divisibleby(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return remainder_is(c, self, a->pos[0], 0, out);
}

static bool t_in(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    bool r;
    return val_contains(c, a->pos[0], self, &r) && yes(out, r);
}

static bool t_sameas(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct val o = a->pos[0];
    (void)c;
    if (self.kind != o.kind)
        return yes(out, false);
    if (self.kind == V_NONE)
        return yes(out, true);
    if (self.kind == V_BOOL)
        return yes(out, self.b == o.b);
    return yes(out, self.u == o.u);
}

static bool t_eq(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    bool r;
    return val_eq(c, self, a->pos[0], &r) && yes(out, r);
}
static bool t_ne(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    bool r;
    return val_eq(c, self, a->pos[0], &r) && yes(out, !r);
}

/* -2 is a comparison with a NaN: never true. */
static bool t_lt(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int r;
    return val_cmp(c, self, a->pos[0], &r) && yes(out, r == -1);
}
static bool t_le(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int r;
    return val_cmp(c, self, a->pos[0], &r) && yes(out, r == -1 || r == 0);
}
static bool t_gt(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int r;
    return val_cmp(c, self, a->pos[0], &r) && yes(out, r == 1);
}
static bool t_ge(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int r;
    return val_cmp(c, self, a->pos[0], &r) && yes(out, r == 1 || r == 0);
}

const struct fn test_table[] = {{"odd", "", t_odd},
                                {"even", "", t_even},
                                {"divisibleby", "!num", t_divisibleby},
                                {"defined", "", t_defined},
                                {"undefined", "", t_undefined},
                                {"filter", "", t_filter},
                                {"test", "", t_test},
                                {"none", "", t_none},
                                {"boolean", "", t_boolean},
                                {"false", "", t_false},
                                {"true", "", t_true},
                                {"integer", "", t_integer},
                                {"float", "", t_float},
                                {"lower", "", t_lower},
                                {"upper", "", t_upper},
                                {"string", "", t_string},
                                {"mapping", "", t_mapping},
                                {"number", "", t_number},
                                {"sequence", "", t_sequence},
                                {"iterable", "", t_iterable},
                                {"callable", "", t_callable},
                                {"sameas", "!other", t_sameas},
                                {"escaped", "", t_escaped},
                                {"in", "!seq", t_in},
                                {"==", "!other", t_eq},
                                {"eq", "!other", t_eq},
                                {"equalto", "!other", t_eq},
                                {"!=", "!other", t_ne},
                                {"ne", "!other", t_ne},
                                {">", "!other", t_gt},
                                {"gt", "!other", t_gt},
                                {"greaterthan", "!other", t_gt},
                                {">=", "!other", t_ge},
                                {"ge", "!other", t_ge},
                                {"<", "!other", t_lt},
                                {"lt", "!other", t_lt},
                                {"lessthan", "!other", t_lt},
                                {"<=", "!other", t_le},
                                {"le", "!other", t_le},
                                {NULL, NULL, NULL}};

bool test_by_name(struct rctx *c, const struct jstr *name, struct val v, struct cargs *a, bool *out)
{
    struct val r;
    const struct fn *fn = fn_find(test_table, jstr_view(name));
    if (!fn)
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "no test is named '" STR_FMT "'",
                       STR_ARG(str_slice(jstr_view(name), 0, name->n > 60 ? 60 : name->n)));
    if (!fn_call(c, fn, v, a, &r))
        return false;
    *out = val_truth(r);
    return true;
}
