/*
 * template/ops.c - operators, subscripts, attributes and slices with Python's results. Integers are
 * 64-bit: what Python would compute with more bits is refused.
 */
#include "template/node.h"

#include <math.h>
#include <string.h>

bool(op_undefined)(struct rctx *c, struct val u)
{
    str name = u.s ? jstr_view(u.s) : STR("a value");
    if (name.n > 80)
        name.n = 80;
    if (u.sub == UNDEF_UNSAFE)
        return rt_fail(c, T9_STATUS_INVALID, "access to '" STR_FMT "' is unsafe", STR_ARG(name));
    if (u.sub == UNDEF_ATTR)
        return rt_fail(c, T9_STATUS_INVALID, "the object has no attribute '" STR_FMT "'",
                       STR_ARG(name));
    return rt_fail(c, T9_STATUS_INVALID, "'" STR_FMT "' is undefined", STR_ARG(name));
}

static bool overflow(struct rctx *c)
{
    return rt_fail(c, T9_STATUS_UNSUPPORTED, "an integer over 64 bits");
}

static bool div_zero(struct rctx *c)
{
    return rt_fail(c, T9_STATUS_INVALID, "division by zero");
}

/* ---- numbers ---- */

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

static bool int_pow(struct rctx *c, int64_t a, int64_t b, struct val *out)
{
    int64_t r = 1;
    if (b < 0) {
        if (a == 0)
            return div_zero(c);
        *out = val_float(pow((double)a, (double)b));
        return true;
    }
    if (a == 0 || a == 1 || a == -1) {
        *out = val_int(b == 0 || a == 1 ? 1 : a == 0 ? 0 : b % 2 ? -1 : 1);
        return true;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(r, a, &r))
            return overflow(c);
    *out = val_int(r);
    return true;
}

static bool int_op(struct rctx *c, int op, int64_t a, int64_t b, struct val *out)
{
    int64_t r = 0;
    bool bad = false;
    switch (op) {
    case OP_ADD: bad = __builtin_add_overflow(a, b, &r); break;
    case OP_SUB: bad = __builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: bad = __builtin_mul_overflow(a, b, &r); break;
    case OP_POW: return int_pow(c, a, b, out);
    case OP_DIV:
        if (b == 0)
            return div_zero(c);
        *out = val_float((double)((long double)a / (long double)b));
        return true;
    default:
        if (b == 0)
            return div_zero(c);
        if (b == -1) { /* INT64_MIN / -1 traps */
            bad = op == OP_FLOORDIV && a == INT64_MIN;
            r = op == OP_FLOORDIV && !bad ? -a : 0;
        } else {
            int64_t q = floor_div(a, b);
            r = op == OP_FLOORDIV ? q : a - q * b;
        }
    }
    *out = val_int(r);
    return !bad || overflow(c);
}

static bool float_op(struct rctx *c, int op, double a, double b, struct val *out)
{
    double r = 0, mod;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && b == 0)
        return div_zero(c);
    switch (op) {
    case OP_ADD: r = a + b; break;
    case OP_SUB: r = a - b; break;
    case OP_MUL: r = a * b; break;
    case OP_DIV: r = a / b; break;
    case OP_POW:
        if (a == 0 && b < 0)
            return div_zero(c);
        if (a < 0 && b != floor(b))
            return rt_fail(c, T9_STATUS_UNSUPPORTED, "a complex number, which is not supported");
        r = pow(a, b);
        if (isinf(r) && !isinf(a) && !isinf(b))
            return rt_fail(c, T9_STATUS_INVALID, "the result of a power is too large");
        break;
    default:
        mod = fmod(a, b);
        r = (a - mod) / b;
        if (mod != 0) {
            if ((b < 0) != (mod < 0)) {
                mod += b;
                r -= 1;
            }
        } else {
            mod = copysign(0.0, b);
        }
        if (op == OP_MOD) {
            r = mod;
        } else if (r != 0) {
            double fl = floor(r);
            r = r - fl > 0.5 ? fl + 1 : fl;
        } else {
            r = copysign(0.0, a / b);
        }
    }
    *out = val_float(r);
    return true;
}

/* ---- sequences ---- */

static bool repeat(struct rctx *c, struct val s, int64_t times, struct val *out)
{
    size_t n = s.kind == V_STR ? s.s->n : s.list->n;
    if (times <= 0 || n == 0)
        times = n == 0 ? 1 : 0;
    if (n && (uint64_t)times > c->limits.max_memory_bytes / n)
        return rt_fail(c, T9_STATUS_TOO_LARGE, "a repetition is too long");
    if (!rt_charge(c, (uint64_t)times * n / 64 + (uint64_t)times / 4))
        return false;
    if (s.kind == V_STR) {
        struct sb b;
        sb_init(c, &b, c->limits.max_memory_bytes);
        for (int64_t i = 0; i < times; i++)
            if (!sb_put_jstr(&b, s.s))
                return false;
        return sb_finish(&b, out);
    }
    struct val *items = rt_alloc(c, n * (size_t)times, sizeof *items);
    if (!items)
        return false;
    for (size_t i = 0; i < n * (size_t)times; i++)
        items[i] = s.list->items[i % n];
    return val_list(c, items, n * (size_t)times, s.kind, out);
}

static bool list_add(struct rctx *c, struct val a, struct val b, struct val *out)
{
    size_t n = a.list->n + b.list->n;
    struct val *items = rt_alloc(c, n, sizeof *items);
    if (!items || !rt_charge(c, n / 8))
        return false;
    if (a.list->n)
        memcpy(items, a.list->items, a.list->n * sizeof *items);
    if (b.list->n)
        memcpy(items + a.list->n, b.list->items, b.list->n * sizeof *items);
    return val_list(c, items, n, a.kind, out);
}

static bool str_add(struct rctx *c, struct val a, struct val b, struct val *out)
{
    if (a.s->markup && !b.s->markup && !jstr_escape_html(c, b.s, &b))
        return false;
    if (b.s->markup && !a.s->markup && !jstr_escape_html(c, a.s, &a))
        return false;
    return jstr_concat(c, a.s, b.s, out);
}

static bool bad_operands(struct rctx *c, int op, struct val a, struct val b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    if (a.kind == V_UNDEF || b.kind == V_UNDEF)
        return op_undefined(c, a.kind == V_UNDEF ? a : b);
    if (a.kind == V_UINT || b.kind == V_UINT)
        return overflow(c);
    if (a.kind == V_VIEW || b.kind == V_VIEW)
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "arithmetic on a dict view is not supported");
    return rt_fail(c, T9_STATUS_INVALID, "'%s' doesn't work on %s and %s", names[op],
                   val_type_name(a), val_type_name(b));
}

bool op_binary(struct rctx *c, int op, struct val a, struct val b, struct val *out)
{
    int64_t x, y;
    if (val_as_i64(a, &x) && val_as_i64(b, &y))
        return int_op(c, op, x, y, out);
    if (val_is_number(a) && val_is_number(b) && (a.kind == V_FLOAT || b.kind == V_FLOAT))
        return float_op(c, op, val_as_f64(a), val_as_f64(b), out);
    if (op == OP_ADD && a.kind == V_STR && b.kind == V_STR)
        return str_add(c, a, b, out);
    if (op == OP_ADD && val_is_listlike(a) && a.kind == b.kind)
        return list_add(c, a, b, out);
    if (op == OP_MUL && (a.kind == V_STR || val_is_listlike(a)) && val_as_i64(b, &y))
        return repeat(c, a, y, out);
    if (op == OP_MUL && (b.kind == V_STR || val_is_listlike(b)) && val_as_i64(a, &x))
        return repeat(c, b, x, out);
    if (op == OP_MOD && a.kind == V_STR)
        return format_percent(c, a.s, b, out);
    return bad_operands(c, op, a, b);
}

bool op_unary(struct rctx *c, int op, struct val a, struct val *out)
{
    int64_t i;
    if (val_as_i64(a, &i)) {
        if (op == OP_NEG && i == INT64_MIN)
            return overflow(c);
        *out = val_int(op == OP_NEG ? -i : i);
        return true;
    }
    if (a.kind == V_FLOAT) {
        *out = val_float(op == OP_NEG ? -a.f : a.f);
        return true;
    }
    return bad_operands(c, op == OP_NEG ? OP_SUB : OP_ADD, a, a);
}

/* ---- subscripts ---- */

static bool item_at(struct rctx *c, struct val obj, int64_t i, struct val *out)
{
    size_t n;
    if (!val_len(c, obj, &n))
        return false;
    if (i < 0)
        i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n) {
        *out = val_undef(UNDEF_OTHER, NULL);
        return true;
    }
    if (obj.kind == V_STR) {
        size_t at = jstr_offset(obj.s, (size_t)i);
        uint32_t cp;
        size_t len = uni_decode(obj.s->p + at, obj.s->n - at, &cp);
        return rt_charge(c, at / 64) && jstr_slice(c, obj.s, at, at + len, out);
    }
    struct seq s;
    if (!val_seq(c, obj, &s))
        return false;
    *out = seq_at(&s, (size_t)i);
    return true;
}

bool op_getitem(struct rctx *c, struct val obj, struct val key, struct val *out)
{
    bool found = false;
    int64_t i;
    if (obj.kind == V_UNDEF)
        return op_undefined(c, obj);
    if (obj.kind == V_MAP) {
        if (val_hashable(key) && !map_get(c, obj.map, key, out, &found))
            return false;
        if (found)
            return true;
    } else if ((obj.kind == V_STR || val_is_listlike(obj) || obj.kind == V_RANGE) &&
               val_as_i64(key, &i)) {
        return item_at(c, obj, i, out);
    }
    if (key.kind == V_STR)
        return op_attr_only(c, obj, key.s, out);
    *out = val_undef(UNDEF_OTHER, NULL);
    return true;
}

static bool bind_method(struct rctx *c, struct val self, const struct fn *fn, struct val *out)
{
    struct method *m = rt_alloc(c, 1, sizeof *m);
    if (!m)
        return false;
    *m = (struct method){self, fn};
    *out = (struct val){.kind = V_METHOD, .method = m};
    return true;
}

static const struct fn *method_of(struct val obj, str name)
{
    switch (obj.kind) {
    case V_STR: return fn_find(str_methods, name);
    case V_MAP: return fn_find(map_methods, name);
    case V_LIST: return fn_find(list_methods, name);
    case V_TUPLE:
    case V_RANGE: return str_eqz(name, "copy") ? NULL : fn_find(list_methods, name);
    case V_LOOP: return fn_find(loop_methods, name);
    case V_CYCLER: return fn_find(cycler_methods, name);
    default: return NULL;
    }
}

static struct val loop_neighbour(const struct loop *l, int64_t step)
{
    int64_t i = (int64_t)l->idx + step;
    if (i < 0 || (uint64_t)i >= l->seq->n)
        return val_undef(UNDEF_OTHER, NULL);
    return seq_at(l->seq, (size_t)i);
}

static bool loop_attr(const struct loop *l, str name, struct val *out)
{
    int64_t n = (int64_t)l->seq->n, i = (int64_t)l->idx;
    if (str_eqz(name, "index"))
        *out = val_int(i + 1);
    else if (str_eqz(name, "index0"))
        *out = val_int(i);
    else if (str_eqz(name, "revindex"))
        *out = val_int(n - i);
    else if (str_eqz(name, "revindex0"))
        *out = val_int(n - i - 1);
    else if (str_eqz(name, "first"))
        *out = val_bool(i == 0);
    else if (str_eqz(name, "last"))
        *out = val_bool(i + 1 == n);
    else if (str_eqz(name, "length"))
        *out = val_int(n);
    else if (str_eqz(name, "depth"))
        *out = val_int((int64_t)l->depth0 + 1);
    else if (str_eqz(name, "depth0"))
        *out = val_int(l->depth0);
    else if (str_eqz(name, "previtem"))
        *out = loop_neighbour(l, -1);
    else if (str_eqz(name, "nextitem"))
        *out = loop_neighbour(l, 1);
    else
        return false;
    return true;
}

/* What the immutable sandbox refuses: members that change a list or map, and private ones. */
static bool is_unsafe(struct val obj, str name)
{
    static const char *const on_list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                          "sort",   "extend", "remove", NULL};
    static const char *const on_map[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    if (name.n && name.p[0] == '_')
        return str_eqz(name, "__class__") || str_eqz(name, "__init__") ||
               str_eqz(name, "__doc__") || str_eqz(name, "__len__") ||
               str_eqz(name, "__getitem__") || str_eqz(name, "__dict__");
    const char *const *z = obj.kind == V_LIST ? on_list : obj.kind == V_MAP ? on_map : NULL;
    for (; z && *z; z++)
        if (str_eqz(name, *z))
            return true;
    return false;
}

/* getattr(obj, name) in Python's sense; *found is false when there is none. */
static bool python_attr(struct rctx *c, struct val obj, const struct jstr *name, struct val *out,
                        bool *found)
{
    str z = jstr_view(name);
    *found = true;
    if (obj.kind == V_NS)
        return map_get(c, obj.map, val_jstr(name), out, found);
    if (obj.kind == V_LOOP && loop_attr(obj.loop, z, out))
        return true;
    if (obj.kind == V_CYCLER && str_eqz(z, "current")) {
        *out = obj.cycler->items[obj.cycler->pos];
        return true;
    }
    if (obj.kind == V_TUPLE && obj.sub == TUPLE_GROUP &&
        (str_eqz(z, "grouper") || str_eqz(z, "list"))) {
        *out = obj.list->items[str_eqz(z, "list")];
        return true;
    }
    if (obj.kind == V_MACRO && str_eqz(z, "name")) {
        *out = val_jstr(c->t->syms.names[obj.macro->def->sym]);
        return true;
    }
    if (is_unsafe(obj, z)) {
        *out = val_undef(UNDEF_UNSAFE, name);
        return true;
    }
    const struct fn *m = method_of(obj, z);
    if (m)
        return bind_method(c, obj, m, out);
    *found = false;
    return true;
}

bool op_attr_only(struct rctx *c, struct val obj, const struct jstr *name, struct val *out)
{
    bool found;
    if (!python_attr(c, obj, name, out, &found))
        return false;
    if (!found)
        *out = val_undef(UNDEF_ATTR, name);
    return true;
}

bool op_getattr(struct rctx *c, struct val obj, const struct jstr *name, struct val *out)
{
    bool found;
    if (obj.kind == V_UNDEF && !is_unsafe(obj, jstr_view(name)))
        return op_undefined(c, obj);
    if (!python_attr(c, obj, name, out, &found))
        return false;
    if (!found && obj.kind == V_MAP && !map_get(c, obj.map, val_jstr(name), out, &found))
        return false;
    if (!found)
        *out = val_undef(UNDEF_ATTR, name);
    return true;
}

/* ---- slices ---- */

/* Python's slice.indices(n). */
static bool slice_bounds(struct rctx *c, const struct val b[3], int64_t n, int64_t *start,
                         int64_t *stop, int64_t *step)
{
    int64_t v[3] = {0, 0, 1};
    for (int k = 0; k < 3; k++) {
        if (b[k].kind == V_UNDEF)
            return op_undefined(c, b[k]);
        if (val_given(b[k]) && !val_as_i64(b[k], &v[k]))
            return rt_fail(c, T9_STATUS_INVALID, "a slice needs integers, not %s",
                           val_type_name(b[k]));
    }
    if (v[2] == 0)
        return rt_fail(c, T9_STATUS_INVALID, "a slice's step can't be zero");
    int64_t lower = v[2] < 0 ? -1 : 0, upper = v[2] < 0 ? n - 1 : n;
    for (int k = 0; k < 2; k++) {
        if (!val_given(b[k])) {
            v[k] = (k == 0) == (v[2] > 0) ? lower : upper;
            continue;
        }
        if (v[k] < 0)
            v[k] = v[k] + n < lower ? lower : v[k] + n;
        else
            v[k] = v[k] > upper ? upper : v[k];
    }
    *start = v[0];
    *stop = v[1];
    *step = v[2];
    return true;
}

static size_t slice_count(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0 ? start >= stop : start <= stop)
        return 0;
    uint64_t span = step > 0 ? (uint64_t)(stop - start) : (uint64_t)(start - stop);
    uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (size_t)((span - 1) / by + 1);
}

static bool slice_str(struct rctx *c, const struct jstr *s, int64_t start, int64_t step, size_t n,
                      struct val *out)
{
    if (!rt_charge(c, s->n_cp == s->n ? n / 16 : s->n / 16))
        return false;
    if (step == 1 || n == 0) {
        size_t from = n ? jstr_offset(s, (size_t)start) : 0;
        size_t to = n ? jstr_offset(s, (size_t)start + n) : 0;
        return jstr_slice(c, s, from, to, out);
    }
    struct seq chars;
    struct sb b;
    if (!val_seq(c, val_jstr(s), &chars))
        return false;
    sb_init(c, &b, c->limits.max_memory_bytes);
    for (size_t i = 0; i < n; i++)
        if (!sb_put_jstr(&b, chars.items[start + (int64_t)i * step].s))
            return false;
    return sb_finish(&b, out);
}

bool op_slice(struct rctx *c, struct val obj, const struct val bounds[3], struct val *out)
{
    int64_t start = 0, stop = 0, step = 1;
    size_t len;
    if (obj.kind == V_UNDEF)
        return op_undefined(c, obj);
    if (obj.kind != V_STR && !val_is_listlike(obj) && obj.kind != V_RANGE)
        return rt_fail(c, T9_STATUS_INVALID, "a slice of %s", val_type_name(obj));
    if (!val_len(c, obj, &len) || !slice_bounds(c, bounds, (int64_t)len, &start, &stop, &step))
        return false;
    size_t n = slice_count(start, stop, step);
    if (obj.kind == V_STR)
        return slice_str(c, obj.s, start, step, n, out);
    if (obj.kind == V_RANGE) {
        struct range *r = rt_alloc(c, 1, sizeof *r);
        if (!r)
            return false;
        const struct range *o = obj.range;
        /* what lies beyond the last number may wrap: it is printed, never walked */
        uint64_t by = (uint64_t)o->step;
        *r = (struct range){.start = (int64_t)((uint64_t)o->start + (uint64_t)start * by),
                            .step = (int64_t)((uint64_t)step * by),
                            .n = n,
                            .stop = (int64_t)((uint64_t)o->start + (uint64_t)stop * by)};
        *out = (struct val){.kind = V_RANGE, .range = r};
        return true;
    }
    struct val *items = rt_alloc(c, n, sizeof *items);
    if (!items || !rt_charge(c, n / 8))
        return false;
    for (size_t i = 0; i < n; i++)
        items[i] = obj.list->items[start + (int64_t)i * step];
    return val_list(c, items, n, obj.kind, out);
}
