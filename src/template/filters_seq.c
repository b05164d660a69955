/*
 * template/filters_seq.c - filters over sequences and mappings.
 *
 * Where jinja2 gives back a generator, these compute all items at once and give a one-shot
 * iterator: the same text, the same refusals (no length, no index, no JSON), no laziness.
 */
#include "template/node.h"

#include "base/num.h"

#include <string.h>

/* All items in an array of their own, that may be written to. */
static bool copy_items(struct rctx *c, struct val v, struct vals *out)
{
    struct seq s;
    if (!val_seq(c, v, &s) || !rt_charge(c, s.n / 4))
        return false;
    out->p = rt_alloc(c, s.n, sizeof *out->p);
    out->n = out->cap = s.n;
    if (!out->p)
        return false;
    for (size_t i = 0; i < s.n; i++)
        out->p[i] = seq_at(&s, i);
    return true;
}

/* ---- attribute getters: "a.b.0", or an integer ---- */

static bool get_path(struct rctx *c, struct val item, str path, struct val fallback,
                     struct val *out)
{
    *out = item;
    for (size_t from = 0; from <= path.n;) {
        size_t to = from;
        int64_t idx;
        while (to < path.n && path.p[to] != '.')
            to++;
        str part = str_slice(path, from, to);
        struct jstr *name = jstr_new(c, part.p, part.n, JINJA_ORIGIN_TEMPLATE);
        if (!name)
            return false;
        struct val key = num_parse_i64(part, &idx) && idx >= 0 && part.p[0] != '+' ? val_int(idx)
                                                                                   : val_jstr(name);
        if (!op_getitem(c, *out, key, out))
            return false;
        if (out->kind == V_UNDEF && val_given(fallback))
            *out = fallback;
        from = to + 1;
    }
    return true;
}

static bool get_attr(struct rctx *c, struct val item, struct val attr, struct val fallback,
                     struct val *out)
{
    *out = item;
    if (!val_given(attr))
        return true;
    if (attr.kind == V_STR)
        return get_path(c, item, jstr_view(attr.s), fallback, out);
    if (attr.kind == V_INT) {
        if (!op_getitem(c, item, attr, out))
            return false;
        if (out->kind == V_UNDEF && val_given(fallback))
            *out = fallback;
        return true;
    }
    return rt_fail(c, T9_STATUS_INVALID, "an attribute must be a string or an integer");
}

static bool fold_case(struct rctx *c, bool case_sensitive, struct val *v)
{
    if (case_sensitive || v->kind != V_STR)
        return true;
    return str_case(c, v->s, UNI_LOWER, v);
}

/* Sort key: a list of the values of "a,b" (or of the item itself). */
static bool multi_key(struct rctx *c, struct val item, struct val attr, bool case_sensitive,
                      struct val *out)
{
    struct vals parts = {0};
    if (attr.kind != V_STR) {
        struct val v;
        if (!get_attr(c, item, attr, val_missing(), &v) || !fold_case(c, case_sensitive, &v) ||
            !vals_push(c, &parts, v))
            return false;
        return val_list(c, parts.p, parts.n, V_LIST, out);
    }
    str path = jstr_view(attr.s);
    for (size_t from = 0; from <= path.n;) {
        size_t to = from;
        struct val v;
        while (to < path.n && path.p[to] != ',')
            to++;
        if (!get_path(c, item, str_slice(path, from, to), val_missing(), &v) ||
            !fold_case(c, case_sensitive, &v) || !vals_push(c, &parts, v))
            return false;
        from = to + 1;
    }
    return val_list(c, parts.p, parts.n, V_LIST, out);
}

/* ---- order ---- */

/* sort(reverse, case_sensitive, attribute) */
static bool f_sort(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct vals v = {0};
    if (!copy_items(c, self, &v))
        return false;
    struct val *keys = rt_alloc(c, v.n, sizeof *keys);
    if (!keys)
        return false;
    for (size_t i = 0; i < v.n; i++)
        if (!multi_key(c, v.p[i], a->pos[2], val_truth(a->pos[1]), &keys[i]))
            return false;
    return val_sort(c, keys, v.p, v.n, val_truth(a->pos[0])) && val_list(c, v.p, v.n, V_LIST, out);
}

/* dictsort(case_sensitive, by, reverse) */
static bool f_dictsort(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    bool by_value = false;
    if (self.kind == V_UNDEF)
        return op_undefined(c, self);
    if (self.kind != V_MAP)
        return rt_fail(c, T9_STATUS_INVALID, "dictsort of %s", val_type_name(self));
    if (a->pos[1].kind != V_MISSING) {
        str by = a->pos[1].kind == V_STR ? jstr_view(a->pos[1].s) : (str){0};
        by_value = str_eqz(by, "value");
        if (!by_value && !str_eqz(by, "key"))
            return rt_fail(c, T9_STATUS_INVALID, "dictsort: by must be 'key' or 'value'");
    }
    struct vals v = {0};
    struct val view = {.kind = V_VIEW, .sub = VIEW_ITEMS, .map = self.map};
    if (!copy_items(c, view, &v))
        return false;
    struct val *keys = rt_alloc(c, v.n, sizeof *keys);
    if (!keys)
        return false;
    for (size_t i = 0; i < v.n; i++) {
        keys[i] = v.p[i].list->items[by_value];
        if (!fold_case(c, val_truth(a->pos[0]), &keys[i]))
            return false;
    }
    return val_sort(c, keys, v.p, v.n, val_truth(a->pos[2])) && val_list(c, v.p, v.n, V_LIST, out);
}

static bool f_reverse(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct vals v = {0};
    (void)a;
    if (self.kind == V_STR) {
        struct val bounds[3] = {val_none(), val_none(), val_int(-1)};
        return op_slice(c, self, bounds, out);
    }
    if (!copy_items(c, self, &v))
        return false;
    for (size_t i = 0; i < v.n / 2; i++) {
        struct val t = v.p[i];
        v.p[i] = v.p[v.n - 1 - i];
        v.p[v.n - 1 - i] = t;
    }
    if (self.kind == V_GEN)
        return val_list(c, v.p, v.n, V_LIST, out);
    return val_gen(c, v.p, v.n, out);
}

/* unique(case_sensitive, attribute) */
static bool f_unique(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s;
    struct vals v = {0};
    struct map *seen = map_new(c);
    if (!seen || !val_seq(c, self, &s))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        struct val item = seq_at(&s, i), key;
        size_t before = seen->n;
        if (!get_attr(c, item, a->pos[1], val_missing(), &key) ||
            !fold_case(c, val_truth(a->pos[0]), &key) || !map_set(c, seen, key, val_none()))
            return false;
        if (seen->n > before && !vals_push(c, &v, item))
            return false;
    }
    return val_gen(c, v.p, v.n, out);
}

/* min and max: (case_sensitive, attribute) */
static bool extreme(struct rctx *c, struct val self, struct cargs *a, int want, struct val *out)
{
    struct seq s;
    struct val best_key = val_none();
    if (!val_seq(c, self, &s))
        return false;
    *out = val_undef(UNDEF_OTHER, NULL);
    for (size_t i = 0; i < s.n; i++) {
        struct val item = seq_at(&s, i), key;
        int cmp = want;
        if (!get_attr(c, item, a->pos[1], val_missing(), &key) ||
            !fold_case(c, val_truth(a->pos[0]), &key) || (i && !val_cmp(c, key, best_key, &cmp)))
            return false;
        if (cmp == want) {
            best_key = key;
            *out = item;
        }
    }
    return true;
}

static bool f_min(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return extreme(c, self, a, -1, out);
}
static bool f_max(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return extreme(c, self, a, 1, out);
}

/* groupby(attribute, default, case_sensitive) */
static bool f_groupby(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct vals v = {0}, groups = {0};
    if (!copy_items(c, self, &v))
        return false;
    struct val *keys = rt_alloc(c, v.n, sizeof *keys);
    if (!keys)
        return false;
    for (size_t i = 0; i < v.n; i++)
        if (!get_attr(c, v.p[i], a->pos[0], a->pos[1], &keys[i]) ||
            !fold_case(c, val_truth(a->pos[2]), &keys[i]))
            return false;
    if (!val_sort(c, keys, v.p, v.n, false))
        return false;
    for (size_t from = 0; from < v.n;) {
        size_t to = from + 1;
        bool same = true;
        for (; to < v.n; to++) {
            if (!val_eq(c, keys[from], keys[to], &same))
                return false;
            if (!same)
                break;
        }
        struct val *pair = rt_alloc(c, 2, sizeof *pair), group;
        if (!pair || !get_attr(c, v.p[from], a->pos[0], a->pos[1], &pair[0]) ||
            !val_list(c, v.p + from, to - from, V_LIST, &pair[1]) ||
            !val_list(c, pair, 2, V_TUPLE, &group))
            return false;
        group.sub = TUPLE_GROUP;
        if (!vals_push(c, &groups, group))
            return false;
        from = to;
    }
    return val_list(c, groups.p, groups.n, V_LIST, out);
}

/* ---- selection ---- */

static bool f_first(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s;
    (void)a;
    if (self.kind == V_GEN) {
        struct gen *g = self.gen;
        *out = g->pos < g->items.n ? g->items.items[g->pos++] : val_undef(UNDEF_OTHER, NULL);
        return true;
    }
    if (!val_seq(c, self, &s))
        return false;
    *out = s.n ? seq_at(&s, 0) : val_undef(UNDEF_OTHER, NULL);
    return true;
}

static bool f_last(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s;
    (void)a;
    if (self.kind == V_GEN)
        return rt_fail(c, T9_STATUS_INVALID, "an iterator can't be reversed for 'last'");
    if (!val_seq(c, self, &s))
        return false;
    *out = s.n ? seq_at(&s, s.n - 1) : val_undef(UNDEF_OTHER, NULL);
    return true;
}

struct selector {
    struct val attr; /* V_MISSING: the item itself */
    const struct jstr *test;
    struct cargs args;
};

static bool selector_init(struct rctx *c, struct cargs *a, bool by_attr, struct selector *s)
{
    size_t off = 0;
    *s = (struct selector){.attr = val_missing()};
    if (by_attr) {
        if (a->n == 0)
            return rt_fail(c, T9_STATUS_INVALID, "selectattr needs the name of an attribute");
        s->attr = a->pos[0];
        off = 1;
    }
    if (a->n > off) {
        if (a->pos[off].kind != V_STR)
            return rt_fail(c, T9_STATUS_INVALID, "select needs the name of a test");
        s->test = a->pos[off].s;
        s->args = (struct cargs){a->pos + off + 1, a->n - off - 1, a->kw, a->n_kw};
    }
    return true;
}

static bool select_items(struct rctx *c, struct val self, struct cargs *a, bool by_attr, bool want,
                         struct val *out)
{
    struct selector sel = {.attr = val_missing()};
    struct seq s = {0};
    struct vals v = {0};
    if (val_truth(self) && (!val_seq(c, self, &s) || !selector_init(c, a, by_attr, &sel)))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        struct val item = seq_at(&s, i), x;
        bool hit;
        if (!get_attr(c, item, sel.attr, val_missing(), &x))
            return false;
        struct cargs args = sel.args;
        if (!sel.test)
            hit = val_truth(x);
        else if (!test_by_name(c, sel.test, x, &args, &hit))
            return false;
        if (hit == want && !vals_push(c, &v, item))
            return false;
    }
    return val_gen(c, v.p, v.n, out);
}

static bool f_select(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return select_items(c, self, a, false, true, out);
}
static bool f_reject(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return select_items(c, self, a, false, false, out);
}
static bool f_selectattr(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return select_items(c, self, a, true, true, out);
}
static bool f_rejectattr(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return select_items(c, self, a, true, false, out);
}

/* map(attribute=.., default=..) or map("filter", args...) */
static bool f_map(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s = {0};
    struct vals v = {0};
    struct val attr = val_missing(), fallback = val_missing();
    if (!val_truth(self))
        return val_gen(c, NULL, 0, out);
    for (size_t i = 0; a->n == 0 && i < a->n_kw; i++) {
        if (str_eqz(jstr_view(a->kw[i].name), "attribute"))
            attr = a->kw[i].v;
        else if (str_eqz(jstr_view(a->kw[i].name), "default"))
            fallback = a->kw[i].v;
        else
            return rt_fail(c, T9_STATUS_INVALID, "map: unexpected keyword argument");
    }
    if (a->n == 0 ? attr.kind == V_MISSING : a->pos[0].kind != V_STR)
        return rt_fail(c, T9_STATUS_INVALID, "map needs a filter's name or attribute=");
    if (!val_seq(c, self, &s))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        struct val r;
        struct cargs args = {a->pos + 1, a->n ? a->n - 1 : 0, a->kw, a->n_kw};
        bool ok = a->n == 0 ? get_attr(c, seq_at(&s, i), attr, fallback, &r)
                            : filter_by_name(c, a->pos[0].s, seq_at(&s, i), &args, &r);
        if (!ok || !vals_push(c, &v, r))
            return false;
    }
    return val_gen(c, v.p, v.n, out);
}

/* ---- shape ---- */

static bool f_list(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct vals v = {0};
    (void)a;
    return copy_items(c, self, &v) && val_list(c, v.p, v.n, V_LIST, out);
}

static bool f_items(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct vals v = {0};
    (void)a;
    if (self.kind == V_UNDEF)
        return val_gen(c, NULL, 0, out);
    if (self.kind != V_MAP)
        return rt_fail(c, T9_STATUS_INVALID, "items of %s", val_type_name(self));
    struct val view = {.kind = V_VIEW, .sub = VIEW_ITEMS, .map = self.map};
    return copy_items(c, view, &v) && val_gen(c, v.p, v.n, out);
}

/* join(d, attribute) */
static bool f_join(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s;
    struct val sep = a->pos[0];
    struct sb b;
    if ((sep.kind == V_MISSING && !val_str(c, "", &sep)) || !val_to_str(c, sep, &sep) ||
        !val_seq(c, self, &s))
        return false;
    sb_init(c, &b, c->limits.max_memory_bytes);
    for (size_t i = 0; i < s.n; i++) {
        struct val item;
        if (!rt_charge(c, 1) || !get_attr(c, seq_at(&s, i), a->pos[1], val_missing(), &item) ||
            (i && !sb_put_jstr(&b, sep.s)) || !text_str(&b, item))
            return false;
    }
    return sb_finish(&b, out);
}

/* sum(attribute, start) */
static bool f_sum(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s;
    struct val acc = a->pos[1].kind == V_MISSING ? val_int(0) : a->pos[1];
    if (!val_seq(c, self, &s))
        return false;
    if (acc.kind == V_STR)
        return rt_fail(c, T9_STATUS_INVALID, "sum can't add strings");
    for (size_t i = 0; i < s.n; i++) {
        struct val item;
        if (!rt_charge(c, 1) || !get_attr(c, seq_at(&s, i), a->pos[0], val_missing(), &item) ||
            !op_binary(c, OP_ADD, acc, item, &acc))
            return false;
    }
    *out = acc;
    return true;
}

static bool want_count(struct rctx *c, struct val v, int64_t *out)
{
    if (val_as_i64(v, out) && *out > 0 && *out < 1000000)
        return true;
    return rt_fail(c, T9_STATUS_INVALID, "expected a positive count");
}

/* batch(linecount, fill_with) */
static bool f_batch(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct vals v = {0}, rows = {0};
    int64_t width;
    if (!want_count(c, a->pos[0], &width) || !copy_items(c, self, &v))
        return false;
    for (size_t i = 0; i < v.n; i += (size_t)width) {
        struct vals row = {0};
        struct val list;
        for (size_t k = i; k < i + (size_t)width; k++) {
            if (k >= v.n && !val_given(a->pos[1]))
                break;
            if (!vals_push(c, &row, k < v.n ? v.p[k] : a->pos[1]))
                return false;
        }
        if (!val_list(c, row.p, row.n, V_LIST, &list) || !vals_push(c, &rows, list))
            return false;
    }
    return val_gen(c, rows.p, rows.n, out);
}

/* slice(slices, fill_with) */
static bool f_slice(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct vals v = {0}, rows = {0};
    int64_t n;
    if (!want_count(c, a->pos[0], &n) || !copy_items(c, self, &v))
        return false;
    size_t per = v.n / (size_t)n, extra = v.n % (size_t)n, at = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        struct vals row = {0};
        struct val list;
        for (size_t k = 0; k < per + (i < extra); k++)
            if (!vals_push(c, &row, v.p[at++]))
                return false;
        if (val_given(a->pos[1]) && i >= extra && !vals_push(c, &row, a->pos[1]))
            return false;
        if (!val_list(c, row.p, row.n, V_LIST, &list) || !vals_push(c, &rows, list))
            return false;
    }
    return val_gen(c, rows.p, rows.n, out);
}

const struct fn filter_table2[] = {{"batch", "!linecount fill_with", f_batch},
                                   {"dictsort", "case_sensitive by reverse", f_dictsort},
                                   {"first", "", f_first},
                                   {"groupby", "!attribute default case_sensitive", f_groupby},
                                   {"items", "", f_items},
                                   {"join", "d attribute", f_join},
                                   {"last", "", f_last},
                                   {"list", "", f_list},
                                   {"map", NULL, f_map},
                                   {"max", "case_sensitive attribute", f_max},
                                   {"min", "case_sensitive attribute", f_min},
                                   {"reject", NULL, f_reject},
                                   {"rejectattr", NULL, f_rejectattr},
                                   {"reverse", "", f_reverse},
                                   {"select", NULL, f_select},
                                   {"selectattr", NULL, f_selectattr},
                                   {"slice", "!slices fill_with", f_slice},
                                   {"sort", "reverse case_sensitive attribute", f_sort},
                                   {"sum", "attribute start", f_sum},
                                   {"unique", "case_sensitive attribute", f_unique},
                                   {NULL, NULL, NULL}};
