/*
 * template/value.c - what Python's object model does to values: truth, equality, order,
 * containment, length, iteration, dictionaries, and the take-over of the JSON arguments.
 *
 * Walks over nested values go through rt_enter, so the C stack is bounded.
 */
#include "template/value.h"

#include "base/hash.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

bool val_is_number(struct val v)
{
    return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_UINT || v.kind == V_FLOAT;
}

bool val_as_i64(struct val v, int64_t *out)
{
    if (v.kind != V_INT && v.kind != V_BOOL)
        return false;
    *out = v.kind == V_INT ? v.i : v.b;
    return true;
}

double val_as_f64(struct val v)
{
    switch (v.kind) {
    case V_BOOL: return v.b;
    case V_INT: return (double)v.i;
    case V_UINT: return (double)v.u;
    default: return v.f;
    }
}

bool val_truth(struct val v)
{
    switch (v.kind) {
    case V_MISSING:
    case V_UNDEF:
    case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.f != 0;
    case V_STR: return v.s->n != 0;
    case V_LIST:
    case V_TUPLE: return v.list->n != 0;
    case V_MAP:
    case V_VIEW: return v.map->n != 0;
    case V_RANGE: return v.range->n != 0;
    default: return true;
    }
}

/* Numbers by value; long double holds every int64, uint64 and double exactly where it has 64 bits
 * of mantissa or more (x86-64, AArch64). -2 when a NaN is in it. */
static int number_cmp(struct val a, struct val b)
{
    if (a.kind != V_FLOAT && b.kind != V_FLOAT && a.kind != V_UINT && b.kind != V_UINT) {
        int64_t x = a.kind == V_INT ? a.i : a.b, y = b.kind == V_INT ? b.i : b.b;
        return (x > y) - (x < y);
    }
    long double x = a.kind == V_FLOAT  ? (long double)a.f
                    : a.kind == V_UINT ? (long double)a.u
                                       : (long double)(a.kind == V_INT ? a.i : a.b);
    long double y = b.kind == V_FLOAT  ? (long double)b.f
                    : b.kind == V_UINT ? (long double)b.u
                                       : (long double)(b.kind == V_INT ? b.i : b.b);
    if (isnan(x) || isnan(y))
        return -2;
    return (x > y) - (x < y);
}

static bool list_eq(struct rctx *c, const struct list *a, const struct list *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        if (!val_eq(c, a->items[i], b->items[i], out))
            return false;
    return true;
}

static bool map_eq(struct rctx *c, const struct map *a, const struct map *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        struct val other;
        if (!map_get(c, b, a->keys[i], &other, out))
            return false;
        if (*out && !val_eq(c, a->vals[i], other, out))
            return false;
    }
    return true;
}

bool val_eq(struct rctx *c, struct val a, struct val b, bool *out)
{
    *out = false;
    if (!rt_charge(c, 1))
        return false;
    if (val_is_number(a) && val_is_number(b)) {
        *out = number_cmp(a, b) == 0;
        return true;
    }
    if (a.kind != b.kind)
        return true;
    bool ok = true;
    switch (a.kind) {
    case V_UNDEF:
    case V_NONE: *out = true; return true;
    case V_STR:
        *out = str_eq(jstr_view(a.s), jstr_view(b.s));
        return rt_charge(c, a.s->n == b.s->n ? a.s->n / 64 : 0);
    case V_LIST:
    case V_TUPLE:
        if (!rt_enter(c))
            return false;
        ok = list_eq(c, a.list, b.list, out);
        rt_leave(c);
        return ok;
    case V_MAP:
        if (!rt_enter(c))
            return false;
        ok = map_eq(c, a.map, b.map, out);
        rt_leave(c);
        return ok;
    case V_RANGE:
        *out = a.range->n == b.range->n &&
               (a.range->n == 0 || (a.range->start == b.range->start &&
                                    (a.range->n == 1 || a.range->step == b.range->step)));
        return true;
    default: *out = a.map == b.map && a.sub == b.sub; return true;
    }
}

bool val_cmp(struct rctx *c, struct val a, struct val b, int *out)
{
    *out = 0;
    if (!rt_charge(c, 1))
        return false;
    if (val_is_number(a) && val_is_number(b)) {
        *out = number_cmp(a, b);
        return true;
    }
    if (a.kind == V_UNDEF || b.kind == V_UNDEF)
        return op_undefined(c, a.kind == V_UNDEF ? a : b);
    if (a.kind == V_STR && b.kind == V_STR) {
        int order = str_cmp(jstr_view(a.s), jstr_view(b.s));
        *out = (order > 0) - (order < 0);
        return rt_charge(c, a.s->n / 64);
    }
    if (a.kind == V_VIEW && b.kind == V_VIEW)
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "order of dict views is not supported");
    if (!val_is_listlike(a) || a.kind != b.kind)
        return rt_fail(c, T9_STATUS_INVALID, "can't order %s and %s", val_type_name(a),
                       val_type_name(b));
    if (!rt_enter(c))
        return false;
    bool ok = true, equal = true;
    size_t i = 0, n = a.list->n < b.list->n ? a.list->n : b.list->n;
    for (; ok && i < n; i++) {
        ok = val_eq(c, a.list->items[i], b.list->items[i], &equal);
        if (!equal)
            break;
    }
    if (ok && i < n)
        ok = val_cmp(c, a.list->items[i], b.list->items[i], out);
    else if (ok)
        *out = (a.list->n > b.list->n) - (a.list->n < b.list->n);
    rt_leave(c);
    return ok;
}

static bool seq_contains(struct rctx *c, struct val container, struct val item, bool *out)
{
    struct seq s;
    if (!val_seq(c, container, &s))
        return false;
    *out = false;
    for (size_t i = 0; !*out && i < s.n; i++)
        if (!val_eq(c, seq_at(&s, i), item, out))
            return false;
    return true;
}

bool val_contains(struct rctx *c, struct val container, struct val item, bool *out)
{
    struct val ignored;
    *out = false;
    switch (container.kind) {
    case V_STR:
        if (item.kind != V_STR)
            return rt_fail(c, T9_STATUS_INVALID, "'in <string>' needs a string, not %s",
                           val_type_name(item));
        *out = str_find(jstr_view(container.s), jstr_view(item.s), 0) != (size_t)-1;
        return rt_charge(c, container.s->n / 64);
    case V_MAP: return map_get(c, container.map, item, &ignored, out);
    case V_VIEW:
        if (container.sub == VIEW_KEYS)
            return map_get(c, container.map, item, &ignored, out);
        return seq_contains(c, container, item, out);
    case V_RANGE:
        if (val_is_number(item)) {
            double f = val_as_f64(item),
                   k = (f - (double)container.range->start) / (double)container.range->step;
            *out = k >= 0 && k < (double)container.range->n && k == floor(k);
        }
        return true;
    default: return seq_contains(c, container, item, out);
    }
}

bool val_len(struct rctx *c, struct val v, size_t *out)
{
    switch (v.kind) {
    case V_UNDEF:
        if (v.sub == UNDEF_UNSAFE)
            return op_undefined(c, v);
        *out = 0;
        return true;
    case V_STR:
        *out = jstr_n_cp(v.s);
        return rt_charge(c, v.s->n_cp == NCP_UNKNOWN ? v.s->n / 64 : 0);
    case V_LIST:
    case V_TUPLE: *out = v.list->n; return true;
    case V_MAP:
    case V_VIEW: *out = v.map->n; return true;
    case V_RANGE: *out = v.range->n; return true;
    case V_LOOP: *out = v.loop->seq->n; return true;
    default: return rt_fail(c, T9_STATUS_INVALID, "%s has no length", val_type_name(v));
    }
}

bool val_list(struct rctx *c, const struct val *items, size_t n, uint8_t kind, struct val *out)
{
    struct list *l = rt_alloc(c, 1, sizeof *l);
    if (!l)
        return false;
    *l = (struct list){items, n};
    *out = (struct val){.kind = kind, .list = l};
    return true;
}

bool val_gen(struct rctx *c, const struct val *items, size_t n, struct val *out)
{
    struct gen *g = rt_alloc(c, 1, sizeof *g);
    if (!g)
        return false;
    *g = (struct gen){{items, n}, 0};
    *out = (struct val){.kind = V_GEN, .gen = g};
    return true;
}

bool vals_push(struct rctx *c, struct vals *v, struct val x)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 8;
        struct val *p = rt_alloc(c, cap, sizeof *p);
        if (!p)
            return false;
        if (v->n)
            memcpy(p, v->p, v->n * sizeof *p);
        v->p = p;
        v->cap = cap;
    }
    v->p[v->n++] = x;
    return rt_charge(c, 1);
}

static bool str_seq(struct rctx *c, const struct jstr *s, struct seq *out)
{
    size_t n = jstr_n_cp(s);
    struct val *items = rt_alloc(c, n, sizeof *items);
    if (!items || !rt_charge(c, n / 4))
        return false;
    size_t i = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t cp;
        size_t len = uni_decode(s->p + i, s->n - i, &cp);
        if (!jstr_slice(c, s, i, i + len, &items[k]))
            return false;
        i += len;
    }
    *out = (struct seq){.items = items, .n = n};
    return true;
}

static bool view_seq(struct rctx *c, struct val v, struct seq *out)
{
    const struct map *m = v.map;
    if (v.sub != VIEW_ITEMS) {
        *out = (struct seq){.items = v.sub == VIEW_KEYS ? m->keys : m->vals, .n = m->n};
        return true;
    }
    struct val *items = rt_alloc(c, m->n, sizeof *items);
    struct val *pairs = items ? rt_alloc(c, m->n, 2 * sizeof *pairs) : NULL;
    if (!pairs || !rt_charge(c, m->n / 4))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        pairs[2 * i] = m->keys[i];
        pairs[2 * i + 1] = m->vals[i];
        if (!val_list(c, &pairs[2 * i], 2, V_TUPLE, &items[i]))
            return false;
    }
    *out = (struct seq){.items = items, .n = m->n};
    return true;
}

bool val_seq(struct rctx *c, struct val v, struct seq *out)
{
    *out = (struct seq){0};
    switch (v.kind) {
    case V_UNDEF: return v.sub != UNDEF_UNSAFE || op_undefined(c, v);
    case V_STR: return str_seq(c, v.s, out);
    case V_LIST:
    case V_TUPLE: *out = (struct seq){.items = v.list->items, .n = v.list->n}; return true;
    case V_MAP: *out = (struct seq){.items = v.map->keys, .n = v.map->n}; return true;
    case V_VIEW: return view_seq(c, v, out);
    case V_RANGE:
        *out = (struct seq){.n = v.range->n, .start = v.range->start, .step = v.range->step};
        return true;
    case V_GEN:
        if (v.gen->pos < v.gen->items.n)
            *out = (struct seq){.items = v.gen->items.items + v.gen->pos,
                                .n = v.gen->items.n - v.gen->pos};
        v.gen->pos = v.gen->items.n;
        return true;
    default: return rt_fail(c, T9_STATUS_INVALID, "%s is not iterable", val_type_name(v));
    }
}

struct val seq_at(const struct seq *s, size_t i)
{
    return s->items ? s->items[i] : val_int(s->start + (int64_t)i * s->step);
}

/* ---- maps ---- */

#define MAP_TABLE_FROM 8u

bool val_hashable(struct val v)
{
    if (v.kind == V_TUPLE) {
        /* flat tuples only: nested ones are no keys of any chat template */
        for (size_t i = 0; i < v.list->n; i++)
            if (v.list->items[i].kind == V_TUPLE || !val_hashable(v.list->items[i]))
                return false;
        return true;
    }
    return v.kind != V_LIST && v.kind != V_MAP && v.kind != V_NS && v.kind != V_VIEW;
}

static uint64_t key_hash(struct val k)
{
    if (k.kind == V_STR)
        return hash_xxh3_64(k.s->p, k.s->n, 1);
    if (val_is_number(k)) {
        double f = val_as_f64(k);
        f = f == 0 ? 0 : f;
        return hash_xxh3_64(&f, sizeof f, 2);
    }
    if (k.kind == V_TUPLE)
        return k.list->n + 77;
    return k.kind;
}

struct map *map_new(struct rctx *c)
{
    struct map *m = rt_alloc(c, 1, sizeof *m);
    if (m)
        *m = (struct map){0};
    return m;
}

/* Index of the key in the map, or n. *slot: where it is or belongs in the table, when there is one.
 */
static bool map_find(struct rctx *c, const struct map *m, struct val key, size_t *idx, size_t *slot)
{
    bool same = false;
    *idx = m->n;
    if (!m->table) {
        for (size_t i = 0; i < m->n; i++) {
            if (!val_eq(c, m->keys[i], key, &same))
                return false;
            if (same) {
                *idx = i;
                break;
            }
        }
        return true;
    }
    size_t mask = m->table_cap - 1, i = (size_t)key_hash(key) & mask;
    for (; m->table[i]; i = (i + 1) & mask) {
        if (!val_eq(c, m->keys[m->table[i] - 1], key, &same))
            return false;
        if (same) {
            *idx = m->table[i] - 1;
            break;
        }
    }
    *slot = i;
    return true;
}

static bool map_rebuild(struct rctx *c, struct map *m)
{
    size_t cap = m->cap * 2;
    m->table = rt_alloc(c, cap, sizeof *m->table);
    if (!m->table)
        return false;
    memset(m->table, 0, cap * sizeof *m->table);
    m->table_cap = cap;
    for (size_t i = 0; i < m->n; i++) {
        size_t k = (size_t)key_hash(m->keys[i]) & (cap - 1);
        while (m->table[k])
            k = (k + 1) & (cap - 1);
        m->table[k] = (uint32_t)i + 1;
    }
    return rt_charge(c, m->n / 4);
}

static bool map_grow(struct rctx *c, struct map *m)
{
    size_t cap = m->cap ? m->cap * 2 : 4;
    if (cap > UINT32_MAX / 4)
        return rt_fail(c, T9_STATUS_TOO_LARGE, "a map has too many members");
    struct val *keys = rt_alloc(c, cap, sizeof *keys);
    struct val *vals = keys ? rt_alloc(c, cap, sizeof *vals) : NULL;
    if (!vals)
        return false;
    if (m->n) {
        memcpy(keys, m->keys, m->n * sizeof *keys);
        memcpy(vals, m->vals, m->n * sizeof *vals);
    }
    m->keys = keys;
    m->vals = vals;
    m->cap = cap;
    return cap <= MAP_TABLE_FROM || map_rebuild(c, m);
}

bool map_set(struct rctx *c, struct map *m, struct val key, struct val v)
{
    size_t idx, slot = 0;
    if (!val_hashable(key))
        return rt_fail(c, T9_STATUS_INVALID, "%s can't be a key", val_type_name(key));
    if (m->n == m->cap && !map_grow(c, m))
        return false;
    if (!map_find(c, m, key, &idx, &slot))
        return false;
    if (idx < m->n) {
        m->vals[idx] = v;
        return true;
    }
    m->keys[m->n] = key;
    m->vals[m->n] = v;
    m->n++;
    if (m->table)
        m->table[slot] = (uint32_t)m->n;
    return true;
}

bool map_get(struct rctx *c, const struct map *m, struct val key, struct val *out, bool *found)
{
    size_t idx, slot;
    if (!val_hashable(key))
        return rt_fail(c, T9_STATUS_INVALID, "%s can't be a key", val_type_name(key));
    if (!map_find(c, m, key, &idx, &slot))
        return false;
    *found = idx < m->n;
    if (*found)
        *out = m->vals[idx];
    return true;
}

/* ---- arguments ---- */

static bool json_string(struct rctx *c, yyjson_val *v, struct val *out)
{
    uint8_t origin = JINJA_ORIGIN_USER;
    if (c->env.origin)
        origin = c->env.origin(c->env.origin_ctx, v) & JINJA_ORIGIN_MAX;
    struct jstr *s = jstr_new(c, yyjson_get_str(v), yyjson_get_len(v), origin);
    if (!s)
        return false;
    s->n_cp = utf8_count(jstr_view(s));
    *out = val_jstr(s);
    return true;
}

static bool json_array(struct rctx *c, yyjson_val *v, struct val *out)
{
    size_t n = yyjson_arr_size(v), i, max;
    struct val *items = rt_alloc(c, n, sizeof *items);
    yyjson_val *e;
    if (!items)
        return false;
    yyjson_arr_foreach(v, i, max, e)
    {
        if (!val_from_json(c, e, &items[i]))
            return false;
    }
    return val_list(c, items, n, V_LIST, out);
}

static bool json_object(struct rctx *c, yyjson_val *v, struct val *out)
{
    struct map *m = map_new(c);
    size_t i, max;
    yyjson_val *k, *e;
    if (!m)
        return false;
    yyjson_obj_foreach(v, i, max, k, e)
    {
        struct val key, value;
        if (!json_string(c, k, &key) || !val_from_json(c, e, &value) || !map_set(c, m, key, value))
            return false;
    }
    *out = (struct val){.kind = V_MAP, .map = m};
    return true;
}

bool val_from_json(struct rctx *c, yyjson_val *v, struct val *out)
{
    bool ok = true;
    switch (yyjson_get_type(v)) {
    case YYJSON_TYPE_NULL: *out = val_none(); return true;
    case YYJSON_TYPE_BOOL: *out = val_bool(yyjson_get_bool(v)); return true;
    case YYJSON_TYPE_NUM:
        if (yyjson_is_real(v))
            *out = val_float(yyjson_get_real(v));
        else if (yyjson_is_uint(v) && yyjson_get_uint(v) > INT64_MAX)
            *out = (struct val){.kind = V_UINT, .u = yyjson_get_uint(v)};
        else
            *out = val_int(yyjson_is_uint(v) ? (int64_t)yyjson_get_uint(v) : yyjson_get_sint(v));
        return true;
    case YYJSON_TYPE_STR: return json_string(c, v, out);
    default: break;
    }
    if (!rt_enter(c))
        return false;
    if (yyjson_is_arr(v))
        ok = json_array(c, v, out);
    else if (yyjson_is_obj(v))
        ok = json_object(c, v, out);
    else
        ok = rt_fail(c, T9_STATUS_INVALID, "an argument is no JSON value");
    rt_leave(c);
    return ok;
}

/* ---- sorting: bottom-up merge, stable, stops at the first pair that can't be ordered ---- */

struct merge {
    struct val *k, *v, *tk, *tv; /* keys, items, and room for both */
};

static bool merge_runs(struct rctx *c, struct merge *m, size_t lo, size_t mid, size_t hi,
                       bool reverse)
{
    size_t i = lo, j = mid, w = lo;
    while (i < mid || j < hi) {
        bool left = j == hi;
        if (i < mid && j < hi) {
            int cmp;
            if (!val_cmp(c, m->k[i], m->k[j], &cmp))
                return false;
            left = reverse ? cmp >= 0 || cmp == -2 : cmp <= 0;
        }
        size_t from = left ? i++ : j++;
        m->tk[w] = m->k[from];
        m->tv[w++] = m->v[from];
    }
    return true;
}

bool val_sort(struct rctx *c, struct val *keys, struct val *items, size_t n, bool reverse)
{
    struct merge m = {.k = keys, .v = items};
    m.tk = rt_alloc(c, n, sizeof *m.tk);
    m.tv = m.tk ? rt_alloc(c, n, sizeof *m.tv) : NULL;
    if (!m.tv)
        return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n;
            size_t hi = mid + width < n ? mid + width : n;
            if (!merge_runs(c, &m, lo, mid, hi, reverse))
                return false;
        }
        struct merge t = m;
        m = (struct merge){.k = t.tk, .v = t.tv, .tk = t.k, .tv = t.v};
    }
    if (m.k != keys && n) {
        memcpy(keys, m.k, n * sizeof *keys);
        memcpy(items, m.v, n * sizeof *items);
    }
    return true;
}
