/*
 * template/parse_stmt.c - the template's life (jinja_parse, jinja_free, jinja_mentions) and its
 * statements. Expressions are in parse_expr.c.
 *
 * The tree, its strings and the symbol table live in one arena of the template.
 */
#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "template/node.h"

#include <stdarg.h>
#include <stdio.h>

#define TEMPLATE_ARENA_MAX ((size_t)256 << 20)

static struct node *parse_body(struct parser *p, const char *const *ends);

/* ---- services ---- */

bool(parse_fail)(struct parser *p, t9_status s, const char *fmt, ...)
{
    if (p->status != T9_STATUS_OK)
        return false;
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    p->status = t9_fail(p->err, s, "template line %u: %s", cur(p)->line, what);
    return false;
}

void *parse_alloc(struct parser *p, size_t n, size_t size_bytes)
{
    void *m = arena_calloc(&p->t->arena, n ? n : 1, size_bytes);
    if (!m && p->t->arena.used < p->t->arena.max / 2)
        parse_fail(p, T9_STATUS_NOMEM, "out of memory for a template");
    else if (!m)
        parse_fail(p, T9_STATUS_TOO_LARGE, "the template needs too much memory");
    return m;
}

bool parse_enter(struct parser *p)
{
    if (p->depth >= JINJA_NESTING_MAX)
        return parse_fail(p, T9_STATUS_TOO_LARGE, "nested more than %u levels deep",
                          JINJA_NESTING_MAX);
    p->depth++;
    return true;
}

struct node *node_new(struct parser *p, enum node_kind kind)
{
    if (++p->n_nodes > JINJA_NODES_MAX) {
        parse_fail(p, T9_STATUS_TOO_LARGE, "the template has more than %u nodes", JINJA_NODES_MAX);
        return NULL;
    }
    struct node *n = parse_alloc(p, 1, sizeof *n);
    if (n) {
        n->kind = (uint8_t)kind;
        n->line = cur(p)->line;
    }
    return n;
}

bool nlist_push(struct parser *p, struct nlist *l, struct node *n)
{
    if (!n)
        return false;
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        struct node **q = parse_alloc(p, cap, sizeof *q);
        if (!q)
            return false;
        if (l->n)
            memcpy(q, l->p, l->n * sizeof *q);
        l->p = q;
        l->cap = cap;
    }
    l->p[l->n++] = n;
    return true;
}

const struct jstr *parse_jstr(struct parser *p, str s)
{
    struct jstr *j = parse_alloc(p, 1, sizeof *j);
    str copy = j ? arena_str(&p->t->arena, s) : (str){0};
    if (!copy.p) {
        parse_fail(p, T9_STATUS_TOO_LARGE, "the template needs too much memory");
        return NULL;
    }
    *j = (struct jstr){.p = copy.p, .n = copy.n, .n_cp = utf8_count(copy)};
    return j;
}

static uint32_t sym_slot(const struct sym_table *t, str name)
{
    uint32_t mask = t->table_cap - 1;
    uint32_t i = (uint32_t)hash_xxh3_64(name.p, name.n, 0) & mask;
    while (t->table[i] && !str_eq(jstr_view(t->names[t->table[i] - 1]), name))
        i = (i + 1) & mask;
    return i;
}

static bool sym_grow(struct parser *p)
{
    struct sym_table *t = &p->t->syms;
    uint32_t cap = t->cap ? t->cap * 2 : 64;
    const struct jstr **names = parse_alloc(p, cap, sizeof *names);
    uint32_t *table = parse_alloc(p, (size_t)cap * 2, sizeof *table);
    if (!names || !table)
        return false;
    if (t->n)
        memcpy(names, t->names, t->n * sizeof *names);
    t->names = names;
    t->cap = cap;
    t->table = table;
    t->table_cap = cap * 2;
    for (uint32_t i = 0; i < t->n; i++)
        t->table[sym_slot(t, jstr_view(names[i]))] = i + 1;
    return true;
}

bool sym_intern(struct parser *p, str name, uint32_t *out)
{
    struct sym_table *t = &p->t->syms;
    if (t->n == t->cap && !sym_grow(p))
        return false;
    uint32_t slot = sym_slot(t, name);
    if (!t->table[slot]) {
        const struct jstr *s = parse_jstr(p, name);
        if (!s)
            return false;
        t->names[t->n++] = s;
        t->table[slot] = t->n;
    }
    *out = t->table[slot] - 1;
    return true;
}

bool skip_op(struct parser *p, int op)
{
    if (!cur_is_op(p, op))
        return false;
    advance(p);
    return true;
}

bool skip_name(struct parser *p, const char *z)
{
    if (!cur_is_name(p, z))
        return false;
    advance(p);
    return true;
}

bool expect_op(struct parser *p, int op)
{
    if (skip_op(p, op))
        return true;
    return parse_fail(
        p, T9_STATUS_INVALID, "expected '%c' before '" STR_FMT "'", op,
        STR_ARG(str_slice(cur(p)->text, 0, cur(p)->text.n > 20 ? 20 : cur(p)->text.n)));
}

static bool expect_block_end(struct parser *p)
{
    if (cur(p)->type != T_BLOCK_END)
        return parse_fail(p, T9_STATUS_INVALID, "expected the end of the tag");
    advance(p);
    return true;
}

static bool expect_name(struct parser *p, const char *z)
{
    return skip_name(p, z) || parse_fail(p, T9_STATUS_INVALID, "expected '%s'", z);
}

/* "endX %}" after a body that ended there. */
static bool finish_block(struct parser *p, const char *end)
{
    return expect_name(p, end) && expect_block_end(p);
}

/* ---- targets ---- */

static struct node *parse_target_one(struct parser *p, bool with_namespace)
{
    const struct tok *t = cur(p);
    if (t->type == T_OP && t->op == '(') {
        advance(p);
        struct nlist l = {0};
        while (!cur_is_op(p, ')')) {
            if (l.n && !expect_op(p, ','))
                return NULL;
            if (cur_is_op(p, ')'))
                break;
            if (!parse_enter(p) || !nlist_push(p, &l, parse_target_one(p, with_namespace)))
                return NULL;
            p->depth--;
        }
        advance(p);
        struct node *tuple = node_new(p, E_TUPLE);
        if (tuple) {
            tuple->list = l.p;
            tuple->n = l.n;
        }
        return tuple;
    }
    if (t->type != T_NAME || str_eqz(t->text, "true") || str_eqz(t->text, "false") ||
        str_eqz(t->text, "none") || str_eqz(t->text, "True") || str_eqz(t->text, "False") ||
        str_eqz(t->text, "None")) {
        parse_fail(p, T9_STATUS_INVALID, "expected the name of a variable to assign to");
        return NULL;
    }
    bool is_attr = with_namespace && t[1].type == T_OP && t[1].op == '.' && t[2].type == T_NAME;
    struct node *n = node_new(p, is_attr ? E_ATTR : E_NAME);
    uint32_t attr;
    if (!n || !sym_intern(p, t->text, &n->sym))
        return NULL;
    n->name = p->t->syms.names[n->sym];
    advance(p);
    if (is_attr) {
        advance(p);
        if (!sym_intern(p, cur(p)->text, &attr))
            return NULL;
        n->name = p->t->syms.names[attr];
        advance(p);
    }
    return n;
}

static struct node *parse_target(struct parser *p, bool with_namespace)
{
    struct node *first = parse_target_one(p, with_namespace);
    if (!first || !cur_is_op(p, ','))
        return first;
    struct nlist l = {0};
    struct node *tuple = node_new(p, E_TUPLE);
    if (!tuple || !nlist_push(p, &l, first))
        return NULL;
    while (skip_op(p, ',')) {
        if (cur(p)->type == T_BLOCK_END || cur_is_name(p, "in") || cur_is_op(p, '='))
            break;
        if (!nlist_push(p, &l, parse_target_one(p, with_namespace)))
            return NULL;
    }
    tuple->list = l.p;
    tuple->n = l.n;
    return tuple;
}

/* ---- statements ---- */

static struct node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct node *n = node_new(p, S_IF);
    struct nlist l = {0};
    if (!n)
        return NULL;
    p->soft++;
    for (;;) {
        if (!nlist_push(p, &l, parse_tuple(p, false, false)) || !expect_block_end(p) ||
            !nlist_push(p, &l, parse_body(p, ends)))
            return NULL;
        if (!skip_name(p, "elif"))
            break;
    }
    if (skip_name(p, "else")) {
        static const char *const end[] = {"endif", NULL};
        if (!expect_block_end(p) || !(n->c = parse_body(p, end)))
            return NULL;
    }
    p->soft--;
    n->list = l.p;
    n->n = l.n;
    return finish_block(p, "endif") ? n : NULL;
}

static struct node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    struct node *n = node_new(p, S_FOR);
    if (!n || !(n->list = parse_alloc(p, 2, sizeof *n->list)))
        return NULL;
    n->n = 2;
    n->a = parse_target(p, false);
    if (!n->a || !expect_name(p, "in") || !(n->b = parse_tuple(p, false, false)))
        return NULL;
    if (skip_name(p, "if") && !(n->list[1] = parse_expression(p)))
        return NULL;
    n->flags = skip_name(p, "recursive");
    p->loops++;
    if (!expect_block_end(p) || !(n->list[0] = parse_body(p, ends)))
        return NULL;
    p->loops--;
    if (skip_name(p, "else")) {
        static const char *const end[] = {"endfor", NULL};
        if (!expect_block_end(p) || !(n->c = parse_body(p, end)))
            return NULL;
    }
    return finish_block(p, "endfor") ? n : NULL;
}

static struct node *parse_set(struct parser *p)
{
    static const char *const ends[] = {"endset", NULL};
    struct node *n = node_new(p, S_SET);
    if (!n || !(n->a = parse_target(p, true)))
        return NULL;
    if (skip_op(p, '=')) {
        n->b = parse_tuple(p, true, false);
        return n->b ? n : NULL;
    }
    n->kind = S_SET_BLOCK;
    if (cur_is_op(p, '|')) {
        n->c = parse_filters(p, NULL, false);
        if (!n->c)
            return NULL;
    }
    if (!expect_block_end(p) || !(n->b = parse_body(p, ends)))
        return NULL;
    return finish_block(p, "endset") ? n : NULL;
}

/* "(a, b=1)" into n->args->pos (names) and n->list (defaults, NULL without). */
static bool parse_signature(struct parser *p, struct node *n)
{
    struct nlist names = {0};
    n->args = parse_alloc(p, 1, sizeof *n->args);
    if (!n->args || !expect_op(p, '('))
        return false;
    *n->args = (struct args){0};
    struct node *none = node_new(p, E_CONST); /* stands for "no default" in the growing list */
    struct nlist defaults = {0};
    while (!cur_is_op(p, ')')) {
        if (names.n && !expect_op(p, ','))
            return false;
        if (!nlist_push(p, &names, parse_target_one(p, false)))
            return false;
        struct node *d = none;
        if (skip_op(p, '='))
            d = parse_expression(p);
        else if (defaults.n && defaults.p[defaults.n - 1] != none)
            return parse_fail(p, T9_STATUS_INVALID,
                              "a parameter without a default follows one "
                              "with a default");
        if (!nlist_push(p, &defaults, d))
            return false;
    }
    advance(p);
    for (uint32_t i = 0; i < defaults.n; i++)
        if (defaults.p[i] == none)
            defaults.p[i] = NULL;
    n->args->pos = names.p;
    n->args->n = names.n;
    n->list = defaults.p;
    n->n = defaults.n;
    return true;
}

/* The body of a macro or call block; collects which special names it uses. */
static bool parse_macro_body(struct parser *p, struct node *n, const char *end)
{
    const char *const ends[] = {end, NULL};
    uint8_t outer = p->macro_flags;
    uint32_t loops = p->loops;
    p->macro_flags = 0;
    p->loops = 0;
    if (!expect_block_end(p) || !(n->a = parse_body(p, ends)))
        return false;
    n->flags = p->macro_flags;
    p->macro_flags |= outer;
    p->loops = loops;
    return finish_block(p, end);
}

static struct node *parse_macro(struct parser *p)
{
    struct node *n = node_new(p, S_MACRO);
    if (!n)
        return NULL;
    struct node *name = parse_target_one(p, false);
    if (!name || name->kind != E_NAME) {
        parse_fail(p, T9_STATUS_INVALID, "expected the name of the macro");
        return NULL;
    }
    n->sym = name->sym;
    return parse_signature(p, n) && parse_macro_body(p, n, "endmacro") ? n : NULL;
}

static struct node *parse_call_block(struct parser *p)
{
    struct node *n = node_new(p, S_CALL);
    if (!n)
        return NULL;
    if (cur_is_op(p, '(')) {
        if (!parse_signature(p, n))
            return NULL;
    } else if (!(n->args = parse_alloc(p, 1, sizeof *n->args))) {
        return NULL;
    }
    n->b = parse_expression(p);
    if (!n->b)
        return NULL;
    if (n->b->kind != E_CALL) {
        parse_fail(p, T9_STATUS_INVALID, "expected a call in the call block");
        return NULL;
    }
    n->sym = SYM_CALLER;
    return parse_macro_body(p, n, "endcall") ? n : NULL;
}

static struct node *parse_filter_block(struct parser *p)
{
    static const char *const ends[] = {"endfilter", NULL};
    struct node *n = node_new(p, S_FILTER);
    if (!n || !(n->a = parse_filters(p, NULL, true)) || !expect_block_end(p) ||
        !(n->b = parse_body(p, ends)))
        return NULL;
    return finish_block(p, "endfilter") ? n : NULL;
}

static struct node *parse_with(struct parser *p)
{
    static const char *const ends[] = {"endwith", NULL};
    struct node *n = node_new(p, S_WITH);
    struct nlist l = {0};
    while (n && cur(p)->type != T_BLOCK_END) {
        if (l.n && !expect_op(p, ','))
            return NULL;
        if (!nlist_push(p, &l, parse_target_one(p, false)) || !expect_op(p, '=') ||
            !nlist_push(p, &l, parse_expression(p)))
            return NULL;
    }
    if (!n || !expect_block_end(p) || !(n->a = parse_body(p, ends)))
        return NULL;
    n->list = l.p;
    n->n = l.n;
    return finish_block(p, "endwith") ? n : NULL;
}

/* generation and autoescape: the body in a scope of its own, nothing else. */
static struct node *parse_scope(struct parser *p, const char *end, bool is_function)
{
    const char *const ends[] = {end, NULL};
    struct node *n = node_new(p, S_SCOPE);
    uint32_t loops = p->loops;
    if (is_function)
        p->loops = 0;
    if (!n || !expect_block_end(p) || !(n->a = parse_body(p, ends)))
        return NULL;
    p->loops = loops;
    return finish_block(p, end) ? n : NULL;
}

static struct node *parse_loop_control(struct parser *p, enum node_kind kind)
{
    if (p->loops == 0) {
        parse_fail(p, T9_STATUS_INVALID, "break or continue outside a loop");
        return NULL;
    }
    return node_new(p, kind);
}

static struct node *parse_print(struct parser *p)
{
    struct node *n = node_new(p, S_OUTPUT);
    struct nlist l = {0};
    while (n && cur(p)->type != T_BLOCK_END) {
        if (l.n && !expect_op(p, ','))
            return NULL;
        if (!nlist_push(p, &l, parse_expression(p)))
            return NULL;
    }
    if (n) {
        n->list = l.p;
        n->n = l.n;
    }
    return n;
}

/* A tag, after its name was eaten: parses up to and with the "%}" of its end. */
static struct node *parse_tag(struct parser *p, str name)
{
    struct node *n;
    if (str_eqz(name, "if"))
        return parse_if(p);
    if (str_eqz(name, "for"))
        return parse_for(p);
    if (str_eqz(name, "macro"))
        return parse_macro(p);
    if (str_eqz(name, "call"))
        return parse_call_block(p);
    if (str_eqz(name, "filter"))
        return parse_filter_block(p);
    if (str_eqz(name, "with"))
        return parse_with(p);
    if (str_eqz(name, "generation"))
        return parse_scope(p, "endgeneration", true);
    if (str_eqz(name, "autoescape")) {
        n = parse_expression(p);
        if (n && (n->kind != E_CONST || n->cv.kind != V_BOOL || n->cv.b)) {
            parse_fail(p, T9_STATUS_UNSUPPORTED, "autoescape is not supported");
            return NULL;
        }
        return n ? parse_scope(p, "endautoescape", false) : NULL;
    }
    if (str_eqz(name, "set")) {
        n = parse_set(p);
        /* the block form has eaten its end already */
        return n && (n->kind == S_SET_BLOCK || expect_block_end(p)) ? n : NULL;
    }
    if (str_eqz(name, "break") || str_eqz(name, "continue"))
        n = parse_loop_control(p, str_eqz(name, "break") ? S_BREAK : S_CONTINUE);
    else if (str_eqz(name, "print"))
        n = parse_print(p);
    else {
        bool known = str_eqz(name, "include") || str_eqz(name, "import") || str_eqz(name, "from") ||
                     str_eqz(name, "extends") || str_eqz(name, "block");
        parse_fail(p, known ? T9_STATUS_UNSUPPORTED : T9_STATUS_INVALID,
                   known ? "the tag '" STR_FMT "' is not supported in chat templates"
                         : "unknown or misplaced tag '" STR_FMT "'",
                   STR_ARG(name));
        return NULL;
    }
    return n && expect_block_end(p) ? n : NULL;
}

static bool is_end(str name, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (str_eqz(name, *ends))
            return true;
    return false;
}

static struct node *parse_data(struct parser *p)
{
    struct node *n = node_new(p, E_CONST);
    const struct jstr *s = n ? parse_jstr(p, cur(p)->text) : NULL;
    if (!s)
        return NULL;
    n->cv = val_jstr(s);
    advance(p);
    return n;
}

/* Data and {{ }} up to the next tag as one S_OUTPUT. */
static struct node *parse_output(struct parser *p)
{
    struct node *out = node_new(p, S_OUTPUT);
    struct nlist l = {0};
    while (out && (cur(p)->type == T_DATA || cur(p)->type == T_VAR_BEGIN)) {
        struct node *part;
        if (cur(p)->type == T_DATA) {
            part = parse_data(p);
        } else {
            advance(p);
            part = parse_tuple(p, true, false);
            if (part && cur(p)->type != T_VAR_END) {
                parse_fail(p, T9_STATUS_INVALID, "expected '}}'");
                return NULL;
            }
            advance(p);
        }
        if (!nlist_push(p, &l, part))
            return NULL;
    }
    if (out) {
        out->list = l.p;
        out->n = l.n;
    }
    return out;
}

/* Statements up to a tag named in `ends` (left with the cursor on its name), or to the end of the
 * template when `ends` is NULL. */
static struct node *parse_body(struct parser *p, const char *const *ends)
{
    struct node *body = parse_enter(p) ? node_new(p, S_BODY) : NULL;
    struct nlist l = {0};
    while (body) {
        struct node *n;
        if (cur(p)->type == T_BLOCK_BEGIN) {
            advance(p);
            str name = cur(p)->text;
            if (cur(p)->type != T_NAME) {
                parse_fail(p, T9_STATUS_INVALID, "expected the name of a tag");
                return NULL;
            }
            if (is_end(name, ends))
                break;
            advance(p);
            n = parse_tag(p, name);
        } else if (cur(p)->type == T_EOF) {
            if (!ends)
                break;
            parse_fail(p, T9_STATUS_INVALID, "the template ends before '%s'", ends[0]);
            return NULL;
        } else {
            n = parse_output(p);
        }
        if (!nlist_push(p, &l, n))
            return NULL;
    }
    if (body) {
        body->list = l.p;
        body->n = l.n;
        p->depth--;
    }
    return body;
}

/* ---- the template ---- */

/* Line ends become \n, one newline at the end goes. */
static str normalise(struct arena *a, str s)
{
    char *w = arena_alloc(a, s.n + 1);
    size_t n = 0;
    if (!w)
        return (str){0};
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\r') {
            w[n++] = '\n';
            if (i + 1 < s.n && s.p[i + 1] == '\n')
                i++;
        } else {
            w[n++] = s.p[i];
        }
    }
    if (n && w[n - 1] == '\n')
        n--;
    return (str){w, n};
}

static t9_status parse_all(struct jinja_template *t, str source, struct t9_err *err)
{
    static const char *const fixed[SYM_FIXED] = {"loop", "caller", "varargs", "kwargs"};
    str text = normalise(&t->arena, source);
    if (!text.p)
        return t9_fail(err, T9_STATUS_NOMEM, "out of memory for a template");
    struct tok *toks = NULL;
    struct parser p = {.t = t, .err = err};
    T9_TRY(lex(text, &toks, &p.n_toks, err));
    p.toks = toks;
    uint32_t sym;
    bool ok = true;
    for (uint32_t i = 0; ok && i < SYM_FIXED; i++)
        ok = sym_intern(&p, str_from(fixed[i]), &sym);
    if (ok)
        t->body = parse_body(&p, NULL);
    mem_free(toks);
    if (t->body || p.status != T9_STATUS_OK)
        return p.status;
    return t9_fail(err, T9_STATUS_NOMEM, "out of memory for a template");
}

t9_status jinja_parse(struct jinja_template **out, str source, struct t9_err *err)
{
    *out = NULL;
    if (source.n > JINJA_SOURCE_BYTES_MAX)
        return t9_fail(err, T9_STATUS_TOO_LARGE, "the template has %zu bytes, at most %zu are read",
                       source.n, JINJA_SOURCE_BYTES_MAX);
    if (!utf8_valid(source))
        return t9_fail(err, T9_STATUS_INVALID, "the template is not valid UTF-8");
    struct jinja_template *t = mem_calloc(1, sizeof *t);
    if (!t)
        return t9_fail(err, T9_STATUS_NOMEM, "out of memory for a template");
    arena_init(&t->arena, TEMPLATE_ARENA_MAX);
    t9_status s = parse_all(t, source, err);
    if (s == T9_STATUS_OK) {
        t->source = arena_str(&t->arena, source);
        if (!t->source.p)
            s = t9_fail(err, T9_STATUS_NOMEM, "out of memory for a template");
    }
    if (s != T9_STATUS_OK) {
        jinja_free(t);
        return s;
    }
    *out = t;
    return T9_STATUS_OK;
}

void jinja_free(struct jinja_template *t)
{
    if (!t)
        return;
    arena_deinit(&t->arena);
    mem_free(t);
}

static bool node_mentions(const struct node *n, str name);

static bool args_mention(const struct args *a, str name)
{
    bool found = false;
    for (uint32_t i = 0; !found && i < a->n; i++)
        found = node_mentions(a->pos[i], name);
    for (uint32_t i = 0; !found && i < a->n_kw; i++)
        found = node_mentions(a->kw[i].value, name);
    return found || node_mentions(a->dyn_pos, name) || node_mentions(a->dyn_kw, name);
}

/* Names are in the symbol table; string constants inside expressions are looked for here. Depth is
 * bounded by the parser's nesting (chains are at most that long within each level). */
static bool node_mentions(const struct node *n, str name)
{
    if (!n)
        return false;
    if (n->kind == E_CONST)
        return n->cv.kind == V_STR && str_eq(jstr_view(n->cv.s), name);
    bool found = false;
    for (uint32_t i = 0; !found && i < n->n; i++)
        found = node_mentions(n->list[i], name);
    if (!found && n->args && (n->kind == E_CALL || n->kind == E_FILTER || n->kind == E_TEST))
        found = args_mention(n->args, name);
    return found || node_mentions(n->a, name) || node_mentions(n->b, name) ||
           node_mentions(n->c, name);
}

str jinja_source(const struct jinja_template *t)
{
    return t->source;
}

bool jinja_mentions(const struct jinja_template *t, const char *name)
{
    str s = str_from(name);
    return t->syms.table[sym_slot(&t->syms, s)] != 0 || node_mentions(t->body, s);
}
