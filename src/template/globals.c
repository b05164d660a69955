/*
 * template/globals.c - global functions (range, dict, namespace, cycler, joiner, raise_exception,
 * strftime_now) and the methods of dictionaries, lists, loops and cyclers. Methods that change a
 * list or dictionary don't exist: the sandbox refuses them by name (ops.c).
 */
#include "template/node.h"

#include <string.h>

#define RANGE_ITEMS_MAX 100000 /* jinja2's sandbox */

/* ---- globals ---- */

static bool g_range(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t v[3] = {0, 0, 1}, first = 0, last = 0;
    (void)self;
    if (a->n < 1 || a->n > 3 || a->n_kw)
        return rt_fail(c, T9_STATUS_INVALID, "range takes one to three integers");
    for (size_t i = 0; i < a->n; i++) {
        if (a->pos[i].kind == V_UNDEF)
            return op_undefined(c, a->pos[i]);
        if (!val_as_i64(a->pos[i], &v[a->n == 1 ? 1 : i]))
            return rt_fail(c, T9_STATUS_INVALID, "range of %s", val_type_name(a->pos[i]));
    }
    if (v[2] == 0)
        return rt_fail(c, T9_STATUS_INVALID, "range: the step can't be zero");
    first = v[0];
    last = v[1];
    uint64_t n = 0;
    if (v[2] > 0 ? first < last : first > last) {
        uint64_t span =
            v[2] > 0 ? (uint64_t)last - (uint64_t)first : (uint64_t)first - (uint64_t)last;
        uint64_t by = v[2] > 0 ? (uint64_t)v[2] : 0 - (uint64_t)v[2];
        n = (span - 1) / by + 1;
    }
    if (n > RANGE_ITEMS_MAX)
        return rt_fail(c, T9_STATUS_TOO_LARGE, "range: more than %d numbers", RANGE_ITEMS_MAX);
    struct range *r = rt_alloc(c, 1, sizeof *r);
    if (!r)
        return false;
    *r = (struct range){.start = first, .step = v[2], .n = (size_t)n, .stop = last};
    *out = (struct val){.kind = V_RANGE, .range = r};
    return true;
}

/* dict(mapping or pairs, **kw) into m */
static bool fill_map(struct rctx *c, struct cargs *a, struct map *m)
{
    if (a->n > 1)
        return rt_fail(c, T9_STATUS_INVALID, "expected at most one positional argument");
    if (a->n == 1 && a->pos[0].kind == V_MAP) {
        const struct map *from = a->pos[0].map;
        for (size_t i = 0; i < from->n; i++)
            if (!map_set(c, m, from->keys[i], from->vals[i]))
                return false;
    } else if (a->n == 1) {
        struct seq s, pair;
        if (!val_seq(c, a->pos[0], &s))
            return false;
        for (size_t i = 0; i < s.n; i++) {
            if (!val_seq(c, seq_at(&s, i), &pair))
                return false;
            if (pair.n != 2)
                return rt_fail(c, T9_STATUS_INVALID, "dict: an element is no pair");
            if (!map_set(c, m, seq_at(&pair, 0), seq_at(&pair, 1)))
                return false;
        }
    }
    for (size_t i = 0; i < a->n_kw; i++)
        if (!map_set(c, m, val_jstr(a->kw[i].name), a->kw[i].v))
            return false;
    return true;
}

static bool g_dict(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct map *m = map_new(c);
    (void)self;
    *out = (struct val){.kind = V_MAP, .map = m};
    return m && fill_map(c, a, m);
}

static bool g_namespace(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct map *m = map_new(c);
    (void)self;
    *out = (struct val){.kind = V_NS, .map = m};
    return m && fill_map(c, a, m);
}

static bool g_cycler(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct cycler *y = rt_alloc(c, 1, sizeof *y);
    (void)self;
    if (!y)
        return false;
    if (a->n == 0 || a->n_kw)
        return rt_fail(c, T9_STATUS_INVALID, "cycler needs at least one item");
    *y = (struct cycler){a->pos, a->n, 0};
    *out = (struct val){.kind = V_CYCLER, .cycler = y};
    return true;
}

static bool g_joiner(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct cycler *y = rt_alloc(c, 1, sizeof *y);
    struct val *sep = y ? rt_alloc(c, 1, sizeof *sep) : NULL;
    (void)self;
    if (!sep || (a->pos[0].kind == V_MISSING && !val_str(c, ", ", &a->pos[0])))
        return false;
    *sep = a->pos[0];
    *y = (struct cycler){sep, 1, 0};
    *out = (struct val){.kind = V_JOINER, .cycler = y};
    return true;
}

static bool g_raise_exception(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)self;
    (void)out;
    if (!val_to_str(c, a->pos[0], &a->pos[0]))
        return false;
    str s = jstr_view(a->pos[0].s);
    size_t max = 180;
    while (s.n > max && max > 0 && ((unsigned char)s.p[max] & 0xc0) == 0x80)
        max--;
    if (s.n > max)
        s.n = max;
    c->line = 0; /* the message stands by itself */
    return rt_fail(c, T9_STATUS_INVALID, "template refused the conversation: " STR_FMT, STR_ARG(s));
}

static bool g_strftime_now(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)self;
    if (a->pos[0].kind != V_STR)
        return rt_fail(c, T9_STATUS_INVALID, "strftime_now needs a format string");
    return format_strftime(c, a->pos[0].s, out);
}

static bool g_unsupported(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)self;
    (void)a;
    (void)out;
    return rt_fail(c, T9_STATUS_UNSUPPORTED, "lipsum is not supported in chat templates");
}

const struct fn global_table[] = {{"range", NULL, g_range},
                                  {"dict", NULL, g_dict},
                                  {"namespace", NULL, g_namespace},
                                  {"cycler", NULL, g_cycler},
                                  {"joiner", "sep", g_joiner},
                                  {"raise_exception", "!message", g_raise_exception},
                                  {"strftime_now", "!format", g_strftime_now},
                                  {"lipsum", NULL, g_unsupported},
                                  {NULL, NULL, NULL}};

/* ---- dictionaries ---- */

static bool d_get(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    bool found;
    if (!map_get(c, self.map, a->pos[0], out, &found))
        return false;
    if (!found)
        *out = a->pos[1].kind == V_MISSING ? val_none() : a->pos[1];
    return true;
}

static bool view(struct val self, enum view_kind kind, struct val *out)
{
    *out = (struct val){.kind = V_VIEW, .sub = (uint8_t)kind, .map = self.map};
    return true;
}

static bool d_keys(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)c;
    (void)a;
    return view(self, VIEW_KEYS, out);
}
static bool d_values(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)c;
    (void)a;
    return view(self, VIEW_VALUES, out);
}
static bool d_items(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)c;
    (void)a;
    return view(self, VIEW_ITEMS, out);
}

/* Values are immutable, so a copy is the same value. */
static bool copy(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)c;
    (void)a;
    *out = self;
    return true;
}

const struct fn map_methods[] = {
    {"get", "!key default", d_get}, {"keys", "", d_keys}, {"values", "", d_values},
    {"items", "", d_items},         {"copy", "", copy},   {NULL, NULL, NULL}};

/* ---- lists ---- */

static bool l_count(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s;
    int64_t n = 0;
    if (!val_seq(c, self, &s))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool same;
        if (!val_eq(c, seq_at(&s, i), a->pos[0], &same))
            return false;
        n += same;
    }
    *out = val_int(n);
    return true;
}

static bool l_index(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s;
    if (!val_seq(c, self, &s))
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool same;
        if (!val_eq(c, seq_at(&s, i), a->pos[0], &same))
            return false;
        if (same) {
            *out = val_int((int64_t)i);
            return true;
        }
    }
    return rt_fail(c, T9_STATUS_INVALID, "index: the value is not in the list");
}

const struct fn list_methods[] = {{"count", "!value", l_count},
                                  {"index", "!value", l_index},
                                  {"copy", "", copy},
                                  {NULL, NULL, NULL}};

/* ---- loops ---- */

static bool o_cycle(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    if (a->n == 0 || a->n_kw)
        return rt_fail(c, T9_STATUS_INVALID, "loop.cycle needs at least one item");
    *out = a->pos[self.loop->idx % a->n];
    return true;
}

static bool o_changed(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct val now;
    bool same = false;
    if (!val_list(c, a->pos, a->n, V_TUPLE, &now))
        return false;
    if (self.loop->last_changed.kind == V_TUPLE && !val_eq(c, self.loop->last_changed, now, &same))
        return false;
    self.loop->last_changed = now;
    *out = val_bool(!same);
    return true;
}

const struct fn loop_methods[] = {
    {"cycle", NULL, o_cycle}, {"changed", NULL, o_changed}, {NULL, NULL, NULL}};

/* ---- cyclers ---- */

static bool y_next(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct cycler *y = self.cycler;
    (void)c;
    (void)a;
    *out = y->items[y->pos];
    y->pos = (y->pos + 1) % y->n;
    return true;
}

static bool y_reset(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)c;
    (void)a;
    self.cycler->pos = 0;
    *out = val_none();
    return true;
}

const struct fn cycler_methods[] = {
    {"next", "", y_next}, {"reset", "", y_reset}, {NULL, NULL, NULL}};
