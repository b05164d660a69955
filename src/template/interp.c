/*
 * template/interp.c - renders a parsed template: scopes, expressions, statements, macro calls, and
 * the limits that everything else in this module charges against.
 *
 * Variables: the root's are an array by symbol number; every loop iteration, macro call, call block
 * and `with` has a scope of its own, a short list searched by number. Macros see the scope that
 * they were defined in, at the time of the call.
 */
#include "base/mem.h"
#include "template/node.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE, FLOW_ERROR };

static bool eval(struct rctx *c, const struct node *n, struct val *out);
static enum flow exec(struct rctx *c, const struct node *n);
static enum flow exec_body(struct rctx *c, const struct node *body);

/* ---- limits and errors ---- */

bool(rt_fail)(struct rctx *c, t9_status s, const char *fmt, ...)
{
    if (c->status != T9_STATUS_OK)
        return false;
    char what[232];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (c->line)
        c->status = t9_fail(c->err, s, "template line %u: %s", c->line, what);
    else
        c->status = t9_fail(c->err, s, "%s", what);
    return false;
}

bool rt_charge_slow(struct rctx *c)
{
    return rt_fail(c, T9_STATUS_TOO_LARGE, "the template takes more than %llu steps",
                   (unsigned long long)c->limits.max_steps);
}

void *rt_alloc(struct rctx *c, size_t n, size_t size_bytes)
{
    void *p = NULL;
    if (n == 0)
        n = 1;
    if (n <= c->limits.max_memory_bytes / size_bytes)
        p = arena_alloc(&c->arena, n * size_bytes);
    if (p)
        return p;
    /* The limit, or the system: who asks again with less gets nowhere in the second case. */
    size_t left = c->limits.max_memory_bytes - c->arena.used;
    if (n <= left / size_bytes && n * size_bytes + 16 <= left)
        rt_fail(c, T9_STATUS_NOMEM, "out of memory for a template's values");
    else
        rt_fail(c, T9_STATUS_TOO_LARGE, "the template needs more than %zu bytes of memory",
                c->limits.max_memory_bytes);
    return NULL;
}

bool rt_enter(struct rctx *c)
{
    if (c->depth >= c->limits.max_depth)
        return rt_fail(c, T9_STATUS_TOO_LARGE, "nested more than %u levels deep",
                       c->limits.max_depth);
    c->depth++;
    return true;
}

const char *val_type_name(struct val v)
{
    static const char *const names[] = {
        "nothing",     "an undefined value", "None",        "a boolean", "an integer", "an integer",
        "a float",     "a string",           "a list",      "a tuple",   "a dict",     "a range",
        "a generator", "a dict view",        "a namespace", "a macro",   "a function", "a method",
        "a loop",      "a cycler",           "a joiner"};
    return names[v.kind];
}

/* ---- variables ---- */

static struct val *scope_find(struct rctx *c, struct scope *s, uint32_t sym)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->vars[i].sym == sym) {
            c->steps += i / 16;
            return &s->vars[i].v;
        }
    }
    c->steps += s->n / 16;
    return NULL;
}

static struct scope *scope_new(struct rctx *c, struct scope *parent)
{
    struct scope *s = rt_alloc(c, 1, sizeof *s);
    if (s)
        *s = (struct scope){.parent = parent};
    return s;
}

static bool scope_set(struct rctx *c, struct scope *s, uint32_t sym, struct val v)
{
    if (!s) {
        c->root[sym] = v;
        return true;
    }
    struct val *old = scope_find(c, s, sym);
    if (old) {
        *old = v;
        return true;
    }
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 4;
        struct var *vars = rt_alloc(c, cap, sizeof *vars);
        if (!vars)
            return false;
        if (s->n)
            memcpy(vars, s->vars, s->n * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    s->vars[s->n++] = (struct var){sym, v};
    return true;
}

static struct val lookup(struct rctx *c, uint32_t sym)
{
    for (struct scope *s = c->scope; s; s = s->parent) {
        struct val *v = scope_find(c, s, sym);
        c->steps++;
        if (v)
            return *v;
    }
    return c->root[sym].kind == V_MISSING ? val_undef(UNDEF_NAME, c->t->syms.names[sym])
                                          : c->root[sym];
}

static bool assign(struct rctx *c, const struct node *target, struct val v)
{
    if (target->kind == E_NAME)
        return scope_set(c, c->scope, target->sym, v);
    if (target->kind == E_ATTR) {
        struct val ns = lookup(c, target->sym);
        if (ns.kind != V_NS)
            return rt_fail(c, T9_STATUS_INVALID, "only a namespace has attributes to assign to");
        return map_set(c, ns.map, val_jstr(target->name), v);
    }
    struct seq s;
    if (!val_seq(c, v, &s))
        return false;
    if (s.n != target->n)
        return rt_fail(c, T9_STATUS_INVALID, "%zu values for %u names", s.n, target->n);
    for (uint32_t i = 0; i < target->n; i++)
        if (!assign(c, target->list[i], seq_at(&s, i)))
            return false;
    return true;
}

/* ---- calls ---- */

static bool push_kw(struct rctx *c, struct cargs *a, const struct jstr *name, struct val v)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (str_eq(jstr_view(a->kw[i].name), jstr_view(name)))
            return rt_fail(c, T9_STATUS_INVALID, "an argument is given twice");
    a->kw[a->n_kw++] = (struct kwarg){name, v};
    return rt_charge(c, a->n_kw / 4 + 1);
}

/* Arguments after *args and **kwargs are spread; `extra` adds room for the special caller. */
static bool eval_args(struct rctx *c, const struct args *n, size_t extra, struct cargs *out)
{
    struct val dyn_pos = val_missing(), dyn_kw = val_missing();
    struct seq spread = {0};
    static const struct args none;
    *out = (struct cargs){0};
    if (!n)
        n = &none;
    if (n->dyn_pos && (!eval(c, n->dyn_pos, &dyn_pos) || !val_seq(c, dyn_pos, &spread)))
        return false;
    if (n->dyn_kw && !eval(c, n->dyn_kw, &dyn_kw))
        return false;
    if (n->dyn_kw && dyn_kw.kind != V_MAP)
        return rt_fail(c, T9_STATUS_INVALID, "the argument after ** must be a mapping");
    size_t n_kw = n->n_kw + extra + (n->dyn_kw ? dyn_kw.map->n : 0);
    out->pos = rt_alloc(c, n->n + spread.n, sizeof *out->pos);
    out->kw = n_kw ? rt_alloc(c, n_kw, sizeof *out->kw) : NULL;
    if (!out->pos || (n_kw && !out->kw))
        return false;
    for (uint32_t i = 0; i < n->n; i++)
        if (!eval(c, n->pos[i], &out->pos[out->n++]))
            return false;
    for (size_t i = 0; i < spread.n; i++)
        out->pos[out->n++] = seq_at(&spread, i);
    for (uint32_t i = 0; i < n->n_kw; i++) {
        struct val v;
        if (!eval(c, n->kw[i].value, &v) || !push_kw(c, out, n->kw[i].name, v))
            return false;
    }
    for (size_t i = 0; n->dyn_kw && i < dyn_kw.map->n; i++) {
        if (dyn_kw.map->keys[i].kind != V_STR)
            return rt_fail(c, T9_STATUS_INVALID, "keywords must be strings");
        if (!push_kw(c, out, dyn_kw.map->keys[i].s, dyn_kw.map->vals[i]))
            return false;
    }
    return true;
}

/* Next parameter of a spec; false at its end. */
static bool spec_next(const char **spec, str *name, bool *required)
{
    while (**spec == ' ')
        (*spec)++;
    if (!**spec)
        return false;
    *required = **spec == '!';
    *spec += *required;
    name->p = *spec;
    while (**spec && **spec != ' ')
        (*spec)++;
    name->n = (size_t)(*spec - name->p);
    return true;
}

#define PARAMS_MAX 6

bool fn_call(struct rctx *c, const struct fn *fn, struct val self, struct cargs *a, struct val *out)
{
    if (!fn->spec)
        return fn->call(c, self, a, out);
    struct val bound[PARAMS_MAX];
    const char *spec = fn->spec;
    str name;
    bool required;
    size_t n = 0, used_kw = 0;
    for (; n < PARAMS_MAX && spec_next(&spec, &name, &required); n++) {
        bound[n] = n < a->n ? a->pos[n] : val_missing();
        for (size_t k = 0; k < a->n_kw; k++) {
            if (!str_eq(jstr_view(a->kw[k].name), name))
                continue;
            if (n < a->n)
                return rt_fail(c, T9_STATUS_INVALID, "%s: '" STR_FMT "' is given twice", fn->name,
                               STR_ARG(name));
            bound[n] = a->kw[k].v;
            used_kw++;
        }
        if (required && bound[n].kind == V_MISSING)
            return rt_fail(c, T9_STATUS_INVALID, "%s: '" STR_FMT "' is missing", fn->name,
                           STR_ARG(name));
    }
    if (a->n > n)
        return rt_fail(c, T9_STATUS_INVALID, "%s takes at most %zu arguments", fn->name, n);
    if (used_kw < a->n_kw)
        return rt_fail(c, T9_STATUS_INVALID, "%s got an unexpected keyword argument", fn->name);
    struct cargs full = {.pos = bound, .n = n};
    return fn->call(c, self, &full, out);
}

/* Takes the keyword argument `sym` out of `a`. */
static struct val take_kw(struct cargs *a, const struct jstr *name)
{
    for (size_t i = 0; i < a->n_kw; i++) {
        if (str_eq(jstr_view(a->kw[i].name), jstr_view(name))) {
            struct val v = a->kw[i].v;
            memmove(&a->kw[i], &a->kw[i + 1], (a->n_kw - i - 1) * sizeof *a->kw);
            a->n_kw--;
            return v;
        }
    }
    return val_missing();
}

/* Binds varargs, kwargs and caller, or refuses what is left over. */
static bool bind_special(struct rctx *c, const struct node *def, struct cargs *a, struct scope *s,
                         bool has_caller_param)
{
    if ((def->flags & MACRO_CALLER) && !has_caller_param) {
        struct val v = take_kw(a, c->t->syms.names[SYM_CALLER]);
        if (!val_given(v))
            v = val_undef(UNDEF_NAME, c->t->syms.names[SYM_CALLER]);
        if (!scope_set(c, s, SYM_CALLER, v))
            return false;
    }
    if (def->flags & MACRO_KWARGS) {
        struct map *m = map_new(c);
        if (!m)
            return false;
        for (size_t i = 0; i < a->n_kw; i++)
            if (!map_set(c, m, val_jstr(a->kw[i].name), a->kw[i].v))
                return false;
        if (!scope_set(c, s, SYM_KWARGS, (struct val){.kind = V_MAP, .map = m}))
            return false;
    } else if (a->n_kw) {
        return rt_fail(c, T9_STATUS_INVALID, "a macro got an unexpected keyword argument");
    }
    size_t n = def->args->n, n_extra = a->n > n ? a->n - n : 0;
    if (def->flags & MACRO_VARARGS) {
        struct val v;
        return val_list(c, a->pos + (n_extra ? n : 0), n_extra, V_TUPLE, &v) &&
               scope_set(c, s, SYM_VARARGS, v);
    }
    return n_extra == 0 || rt_fail(c, T9_STATUS_INVALID, "a macro takes at most %zu arguments", n);
}

static bool bind_params(struct rctx *c, const struct node *def, struct cargs *a, struct scope *s)
{
    bool has_caller = false;
    for (uint32_t i = 0; i < def->args->n; i++) {
        const struct node *param = def->args->pos[i];
        struct val v = i < a->n ? a->pos[i] : take_kw(a, param->name);
        has_caller |= param->sym == SYM_CALLER;
        if (v.kind == V_MISSING)
            v = def->list[i] ? val_missing() : val_undef(UNDEF_NAME, param->name);
        if (!scope_set(c, s, param->sym, v))
            return false;
    }
    return bind_special(c, def, a, s, has_caller);
}

/* Defaults are evaluated in the call's scope, after the given arguments are bound. */
static bool bind_defaults(struct rctx *c, const struct node *def, struct scope *s)
{
    for (uint32_t i = 0; i < def->args->n; i++) {
        struct val *slot = scope_find(c, s, def->args->pos[i]->sym), v;
        if (!slot || slot->kind != V_MISSING)
            continue;
        *slot = val_undef(UNDEF_NAME, def->args->pos[i]->name);
        if (!eval(c, def->list[i], &v) || !scope_set(c, s, def->args->pos[i]->sym, v))
            return false;
    }
    return true;
}

/* Runs a body into a string of its own. */
static enum flow capture(struct rctx *c, const struct node *body, struct val *out)
{
    struct sb b, *outer = c->out;
    sb_init(c, &b, c->limits.max_memory_bytes);
    c->out = &b;
    enum flow f = exec_body(c, body);
    c->out = outer;
    if (f == FLOW_NEXT && !sb_finish(&b, out))
        f = FLOW_ERROR;
    return f;
}

static bool call_macro(struct rctx *c, const struct macro *m, struct cargs *a, struct val *out)
{
    struct scope *s = scope_new(c, m->closure), *outer = c->scope;
    if (!s || !bind_params(c, m->def, a, s))
        return false;
    c->scope = s;
    bool ok = bind_defaults(c, m->def, s) && capture(c, m->def->a, out) == FLOW_NEXT;
    c->scope = outer;
    return ok;
}

static bool run_loop(struct rctx *c, const struct node *n, struct val iterable, uint32_t depth0,
                     enum flow *flow);

/* loop(items) in a recursive loop: the loop's body over other items, as text. */
static bool call_loop(struct rctx *c, struct loop *l, struct cargs *a, struct val *out)
{
    if (!l->def->flags)
        return rt_fail(c, T9_STATUS_INVALID, "the loop is not recursive");
    if (a->n != 1 || a->n_kw)
        return rt_fail(c, T9_STATUS_INVALID, "loop() takes one iterable");
    struct sb b, *outer = c->out;
    struct scope *scope = c->scope;
    enum flow flow;
    sb_init(c, &b, c->limits.max_memory_bytes);
    c->out = &b;
    c->scope = l->closure;
    bool ok = run_loop(c, l->def, a->pos[0], l->depth0 + 1, &flow);
    c->out = outer;
    c->scope = scope;
    return ok && sb_finish(&b, out);
}

bool rt_call(struct rctx *c, struct val callee, struct cargs *a, struct val *out)
{
    bool ok;
    switch (callee.kind) {
    case V_UNDEF: return op_undefined(c, callee);
    case V_FN: return fn_call(c, callee.fn, val_none(), a, out);
    case V_METHOD: return fn_call(c, callee.method->fn, callee.method->self, a, out);
    case V_JOINER:
        if (callee.cycler->pos++ == 0)
            return val_str(c, "", out);
        *out = callee.cycler->items[0];
        return true;
    case V_MACRO:
    case V_LOOP:
        if (!rt_enter(c))
            return false;
        ok = callee.kind == V_MACRO ? call_macro(c, callee.macro, a, out)
                                    : call_loop(c, callee.loop, a, out);
        rt_leave(c);
        return ok;
    default: return rt_fail(c, T9_STATUS_INVALID, "%s can't be called", val_type_name(callee));
    }
}

/* ---- expressions ---- */

static bool eval_items(struct rctx *c, const struct node *n, struct val *out)
{
    struct val *items = rt_alloc(c, n->n, sizeof *items);
    if (!items)
        return false;
    for (uint32_t i = 0; i < n->n; i++)
        if (!eval(c, n->list[i], &items[i]))
            return false;
    return val_list(c, items, n->n, n->kind == E_LIST ? V_LIST : V_TUPLE, out);
}

static bool eval_dict(struct rctx *c, const struct node *n, struct val *out)
{
    struct map *m = map_new(c);
    if (!m)
        return false;
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct val k, v;
        if (!eval(c, n->list[i], &k) || !eval(c, n->list[i + 1], &v) || !map_set(c, m, k, v))
            return false;
    }
    *out = (struct val){.kind = V_MAP, .map = m};
    return true;
}

static bool eval_concat(struct rctx *c, const struct node *n, struct val *out)
{
    struct val acc, part;
    if (!val_str(c, "", &acc))
        return false;
    for (uint32_t i = 0; i < n->n; i++) {
        if (!eval(c, n->list[i], &part) || !val_to_str(c, part, &part))
            return false;
        if (!jstr_concat(c, acc.s, part.s, &acc))
            return false;
    }
    *out = acc;
    return true;
}

static bool compare(struct rctx *c, int op, struct val a, struct val b, bool *out)
{
    int r;
    switch (op) {
    case OP_EQ:
    case OP_NE:
        if (!val_eq(c, a, b, out))
            return false;
        *out = *out == (op == OP_EQ);
        return true;
    case OP_IN:
    case OP_NOT_IN:
        if (!val_contains(c, b, a, out))
            return false;
        *out = *out == (op == OP_IN);
        return true;
    default:
        if (!val_cmp(c, a, b, &r))
            return false;
        *out = r != -2 && (op == OP_LT   ? r < 0
                           : op == OP_LE ? r <= 0
                           : op == OP_GT ? r > 0
                                         : r >= 0);
        return true;
    }
}

static bool eval_cmp(struct rctx *c, const struct node *n, struct val *out)
{
    struct val a, b;
    bool r = true;
    if (!eval(c, n->a, &a))
        return false;
    for (uint32_t i = 0; r && i < n->n; i++) {
        if (!eval(c, n->list[i]->a, &b) || !compare(c, n->list[i]->op, a, b, &r))
            return false;
        a = b;
    }
    *out = val_bool(r);
    return true;
}

static bool eval_slice(struct rctx *c, const struct node *n, struct val *out)
{
    struct val obj, bounds[3];
    if (!eval(c, n->a, &obj))
        return false;
    for (int i = 0; i < 3; i++) {
        bounds[i] = val_none();
        if (n->list[i] && !eval(c, n->list[i], &bounds[i]))
            return false;
    }
    return op_slice(c, obj, bounds, out);
}

static bool eval_filter(struct rctx *c, const struct node *n, struct val self, struct val *out)
{
    struct cargs a;
    if (!n->fn)
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "no filter is named '" STR_FMT "'",
                       STR_ARG(jstr_view(n->fn_name)));
    return eval_args(c, n->args, 0, &a) && fn_call(c, n->fn, self, &a, out);
}

static bool eval_test(struct rctx *c, const struct node *n, struct val *out)
{
    struct val self;
    struct cargs a;
    if (!n->fn)
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "no test is named '" STR_FMT "'",
                       STR_ARG(jstr_view(n->fn_name)));
    return eval(c, n->a, &self) && eval_args(c, n->args, 0, &a) && fn_call(c, n->fn, self, &a, out);
}

static bool eval_call(struct rctx *c, const struct node *n, struct val *out)
{
    struct val callee;
    struct cargs a;
    if (!eval(c, n->a, &callee) || !eval_args(c, n->args, 0, &a))
        return false;
    c->line = n->line;
    return rt_call(c, callee, &a, out);
}

static bool eval_kind(struct rctx *c, const struct node *n, struct val *out)
{
    struct val a, b;
    switch (n->kind) {
    case E_TUPLE:
    case E_LIST: return eval_items(c, n, out);
    case E_DICT: return eval_dict(c, n, out);
    case E_UNARY: return eval(c, n->a, &a) && op_unary(c, n->op, a, out);
    case E_BIN: return eval(c, n->a, &a) && eval(c, n->b, &b) && op_binary(c, n->op, a, b, out);
    case E_AND:
    case E_OR:
        if (!eval(c, n->a, out))
            return false;
        return val_truth(*out) == (n->kind == E_OR) || eval(c, n->b, out);
    case E_NOT:
        if (!eval(c, n->a, &a))
            return false;
        *out = val_bool(!val_truth(a));
        return true;
    case E_CONCAT: return eval_concat(c, n, out);
    case E_CMP: return eval_cmp(c, n, out);
    case E_COND:
        if (!eval(c, n->a, &a))
            return false;
        if (val_truth(a))
            return eval(c, n->b, out);
        *out = val_undef(UNDEF_OTHER, NULL);
        return !n->c || eval(c, n->c, out);
    case E_ATTR: return eval(c, n->a, &a) && op_getattr(c, a, n->name, out);
    case E_ITEM: return eval(c, n->a, &a) && eval(c, n->b, &b) && op_getitem(c, a, b, out);
    case E_SLICE: return eval_slice(c, n, out);
    case E_CALL: return eval_call(c, n, out);
    case E_FILTER: return eval(c, n->a, &a) && eval_filter(c, n, a, out);
    case E_TEST: return eval_test(c, n, out);
    default: return rt_fail(c, T9_STATUS_INTERNAL, "a statement where an expression was expected");
    }
}

static bool eval(struct rctx *c, const struct node *n, struct val *out)
{
    if (!rt_charge(c, 1))
        return false;
    if (n->kind == E_CONST) {
        *out = n->cv;
        return true;
    }
    c->line = n->line;
    if (n->kind == E_NAME) {
        *out = lookup(c, n->sym);
        return true;
    }
    if (!rt_enter(c))
        return false;
    bool ok = eval_kind(c, n, out);
    rt_leave(c);
    return ok;
}

/* ---- statements ---- */

static enum flow next_if(bool ok)
{
    return ok ? FLOW_NEXT : FLOW_ERROR;
}

static enum flow exec_output(struct rctx *c, const struct node *n)
{
    for (uint32_t i = 0; i < n->n; i++) {
        struct val v;
        if (!eval(c, n->list[i], &v) || !text_str(c->out, v))
            return FLOW_ERROR;
    }
    return FLOW_NEXT;
}

static enum flow exec_if(struct rctx *c, const struct node *n)
{
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct val v;
        if (!eval(c, n->list[i], &v))
            return FLOW_ERROR;
        if (v.kind == V_UNDEF && v.sub == UNDEF_UNSAFE)
            return next_if(op_undefined(c, v));
        if (val_truth(v))
            return exec_body(c, n->list[i + 1]);
    }
    return n->c ? exec_body(c, n->c) : FLOW_NEXT;
}

/* The items for which the loop's `if` holds, each judged with the target bound in `s`. */
static bool filter_items(struct rctx *c, const struct node *n, struct scope *s, struct seq *seq)
{
    struct vals kept = {0};
    struct scope *outer = c->scope;
    bool ok = true;
    c->scope = s;
    for (size_t i = 0; ok && i < seq->n; i++) {
        struct val item = seq_at(seq, i), v;
        ok = assign(c, n->a, item) && eval(c, n->list[1], &v) &&
             (!val_truth(v) || vals_push(c, &kept, item));
    }
    c->scope = outer;
    *seq = (struct seq){.items = kept.p, .n = kept.n};
    return ok;
}

static bool run_loop(struct rctx *c, const struct node *n, struct val iterable, uint32_t depth0,
                     enum flow *flow)
{
    struct seq seq;
    struct scope *outer = c->scope, *s = scope_new(c, outer);
    struct loop *l = s ? rt_alloc(c, 1, sizeof *l) : NULL;
    *flow = FLOW_ERROR;
    if (!l || !val_seq(c, iterable, &seq) || (n->list[1] && !filter_items(c, n, s, &seq)))
        return false;
    struct seq *kept = rt_alloc(c, 1, sizeof *kept); /* outlives this frame: macros may hold loop */
    if (!kept)
        return false;
    *kept = seq;
    *l = (struct loop){.def = n, .closure = outer, .seq = kept, .depth0 = depth0};
    struct val loop_val = {.kind = V_LOOP, .loop = l};
    enum flow f = FLOW_NEXT;
    for (size_t i = 0; i < seq.n && f != FLOW_BREAK; i++) {
        l->idx = i;
        s->n = 0;
        c->scope = s;
        f = FLOW_ERROR;
        if (rt_charge(c, 1) && scope_set(c, s, SYM_LOOP, loop_val) &&
            assign(c, n->a, seq_at(&seq, i)))
            f = exec_body(c, n->list[0]);
        if (f == FLOW_ERROR)
            break;
    }
    c->scope = outer;
    if (f != FLOW_ERROR)
        f = seq.n == 0 && n->c ? exec_body(c, n->c) : FLOW_NEXT;
    *flow = f;
    return f != FLOW_ERROR;
}

static enum flow exec_for(struct rctx *c, const struct node *n)
{
    struct val iterable;
    enum flow f;
    if (!eval(c, n->b, &iterable))
        return FLOW_ERROR;
    c->line = n->line;
    return run_loop(c, n, iterable, 0, &f) ? f : FLOW_ERROR;
}

/* A chain of filters without a subject (set and filter blocks) applied to `v`. */
static bool apply_chain(struct rctx *c, const struct node *n, struct val v, struct val *out)
{
    if (!rt_enter(c))
        return false;
    bool ok = (!n->a || apply_chain(c, n->a, v, &v)) && eval_filter(c, n, v, out);
    rt_leave(c);
    return ok;
}

static enum flow exec_set(struct rctx *c, const struct node *n)
{
    struct val v;
    if (n->kind == S_SET_BLOCK) {
        enum flow f = capture(c, n->b, &v);
        if (f != FLOW_NEXT)
            return f;
        if (n->c && !apply_chain(c, n->c, v, &v))
            return FLOW_ERROR;
    } else if (!eval(c, n->b, &v)) {
        return FLOW_ERROR;
    }
    return next_if(assign(c, n->a, v));
}

static bool make_macro(struct rctx *c, const struct node *n, struct val *out)
{
    struct macro *m = rt_alloc(c, 1, sizeof *m);
    if (!m)
        return false;
    *m = (struct macro){n, c->scope};
    *out = (struct val){.kind = V_MACRO, .macro = m};
    return true;
}

static enum flow exec_call_block(struct rctx *c, const struct node *n)
{
    struct val callee, caller, v;
    struct cargs a;
    if (!make_macro(c, n, &caller) || !eval(c, n->b->a, &callee) ||
        !eval_args(c, n->b->args, 1, &a) || !push_kw(c, &a, c->t->syms.names[SYM_CALLER], caller) ||
        !rt_call(c, callee, &a, &v))
        return FLOW_ERROR;
    return next_if(text_str(c->out, v));
}

static enum flow exec_filter_block(struct rctx *c, const struct node *n)
{
    struct val v;
    struct scope *outer = c->scope;
    c->scope = scope_new(c, outer);
    enum flow f = c->scope ? capture(c, n->b, &v) : FLOW_ERROR;
    c->scope = outer;
    if (f != FLOW_NEXT)
        return f;
    return next_if(apply_chain(c, n->a, v, &v) && text_str(c->out, v));
}

/* `with` and the transparent blocks: values are evaluated outside, the body runs inside. */
static enum flow exec_scope(struct rctx *c, const struct node *n)
{
    struct scope *outer = c->scope, *s = scope_new(c, outer);
    bool ok = s != NULL;
    for (uint32_t i = 0; ok && i < n->n; i += 2) {
        struct val v;
        ok = eval(c, n->list[i + 1], &v);
        c->scope = s;
        ok = ok && assign(c, n->list[i], v);
        c->scope = outer;
    }
    if (!ok)
        return FLOW_ERROR;
    c->scope = s;
    enum flow f = exec_body(c, n->a);
    c->scope = outer;
    return f;
}

static enum flow exec_body(struct rctx *c, const struct node *body)
{
    enum flow f = FLOW_NEXT;
    if (!rt_enter(c))
        return FLOW_ERROR;
    for (uint32_t i = 0; f == FLOW_NEXT && i < body->n; i++)
        f = exec(c, body->list[i]);
    rt_leave(c);
    return f;
}

static enum flow exec(struct rctx *c, const struct node *n)
{
    struct val v;
    if (!rt_charge(c, 1))
        return FLOW_ERROR;
    c->line = n->line;
    switch (n->kind) {
    case S_OUTPUT: return exec_output(c, n);
    case S_IF: return exec_if(c, n);
    case S_FOR: return exec_for(c, n);
    case S_SET:
    case S_SET_BLOCK: return exec_set(c, n);
    case S_MACRO: return next_if(make_macro(c, n, &v) && scope_set(c, c->scope, n->sym, v));
    case S_CALL: return exec_call_block(c, n);
    case S_FILTER: return exec_filter_block(c, n);
    case S_WITH:
    case S_SCOPE: return exec_scope(c, n);
    case S_BREAK: return FLOW_BREAK;
    case S_CONTINUE: return FLOW_CONTINUE;
    case S_BODY: return exec_body(c, n);
    default: return next_if(rt_fail(c, T9_STATUS_INTERNAL, "an expression where a statement was"));
    }
}

/* ---- rendering ---- */

static bool bind_globals(struct rctx *c)
{
    for (uint32_t i = 0; i < c->t->syms.n; i++) {
        const struct fn *fn = fn_find(global_table, jstr_view(c->t->syms.names[i]));
        c->root[i] = fn ? (struct val){.kind = V_FN, .fn = fn} : val_missing();
    }
    return true;
}

static bool bind_kwargs(struct rctx *c, yyjson_val *kwargs)
{
    if (!kwargs)
        return true;
    if (!yyjson_is_obj(kwargs))
        return rt_fail(c, T9_STATUS_INVALID, "the arguments of a template must be a JSON object");
    for (uint32_t i = 0; i < c->t->syms.n; i++) {
        const struct jstr *name = c->t->syms.names[i];
        yyjson_val *found = NULL, *k, *v;
        size_t idx, max;
        yyjson_obj_foreach(kwargs, idx, max, k, v)
        {
            if (yyjson_get_len(k) == name->n && memcmp(yyjson_get_str(k), name->p, name->n) == 0)
                found = v;
        }
        if (found && !val_from_json(c, found, &c->root[i]))
            return false;
    }
    return true;
}

/* Hands text and origins over into the caller's memory. */
static bool take_output(struct rctx *c, const struct sb *b, struct jinja_output *out)
{
    buf_init(&out->text, b->n + 1);
    buf_append(&out->text, b->p, b->n);
    out->spans = mem_calloc(b->n_runs ? b->n_runs : 1, sizeof *out->spans);
    if (!out->spans || out->text.failed)
        return rt_fail(c, T9_STATUS_NOMEM, "out of memory for the rendered text");
    out->n_spans = out->spans_cap = b->n_runs;
    for (uint32_t i = 0; i < b->n_runs; i++)
        out->spans[i] = (struct jinja_span){b->runs[i].end, b->runs[i].origin};
    return true;
}

t9_status jinja_render(const struct jinja_template *t, yyjson_val *kwargs,
                       const struct jinja_limits *limits, const struct jinja_env *env,
                       struct jinja_output *out, struct t9_err *err)
{
    struct rctx c = {.t = t, .err = err, .limits = limits ? *limits : JINJA_LIMITS_DEFAULT};
    struct sb text;
    *out = (struct jinja_output){0};
    if (env)
        c.env = *env;
    arena_init(&c.arena, c.limits.max_memory_bytes);
    sb_init(&c, &text, c.limits.max_output_bytes);
    c.out = &text;
    c.root = rt_alloc(&c, t->syms.n, sizeof *c.root);
    bool ok = c.root && bind_globals(&c) && bind_kwargs(&c, kwargs) &&
              exec_body(&c, t->body) == FLOW_NEXT && take_output(&c, &text, out);
    if (!ok)
        jinja_output_deinit(out);
    arena_deinit(&c.arena);
    return ok ? T9_STATUS_OK : c.status;
}

void jinja_output_deinit(struct jinja_output *out)
{
    buf_deinit(&out->text);
    mem_free(out->spans);
    *out = (struct jinja_output){0};
}
