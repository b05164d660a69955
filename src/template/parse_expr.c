/*
 * template/parse_expr.c - expressions: a precedence climber over binary operators (jinja2's order:
 * or, and, not, comparisons, + -, ~, * / // %, **, unary), then postfix chains, filters and tests.
 *
 * Recursion is bounded by JINJA_NESTING_MAX in parse_enter.
 */
#include "base/num.h"
#include "base/utf8.h"
#include "template/node.h"

static struct node *parse_binary(struct parser *p, int min_prec);
static struct node *parse_unary(struct parser *p, bool with_filter);

enum { PREC_OR = 1, PREC_AND, PREC_NOT, PREC_CMP, PREC_ADD, PREC_CONCAT, PREC_MUL, PREC_POW };

/* ---- literals ---- */

static bool hex_value(str s, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < s.n; i++) {
        int d = num_hex_digit(s.p[i]);
        if (d < 0)
            return false;
        *out = *out * 16 + (uint32_t)d;
    }
    return true;
}

/* One escape at s.p[0] == '\\'; writes to w, returns the bytes written, sets *used; -1 if bad. */
static int decode_escape(str s, size_t *used, char *w)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char ch = s.n > 1 ? s.p[1] : 0;
    *used = 2;
    const char *q = ch ? strchr(from, ch) : NULL;
    if (q) {
        w[0] = to[q - from];
        return 1;
    }
    if (ch == '\n')
        return 0;
    size_t n_hex = ch == 'x' ? 2 : ch == 'u' ? 4 : ch == 'U' ? 8 : 0;
    uint32_t cp = 0;
    if (n_hex) {
        if (s.n < 2 + n_hex || !hex_value((str){s.p + 2, n_hex}, &cp))
            return -1;
        *used = 2 + n_hex;
    } else if (ch >= '0' && ch <= '7') {
        size_t k = 1;
        while (k < 4 && k < s.n && s.p[k] >= '0' && s.p[k] <= '7')
            cp = cp * 8 + (uint32_t)(s.p[k++] - '0');
        *used = k;
    } else if (ch == 'N') {
        return -1;
    } else {
        w[0] = '\\';
        *used = 1;
        return 1;
    }
    size_t n = utf8_encode(cp, w);
    return n ? (int)n : -1;
}

/* Decodes a literal with its quotes to w (room for its length); returns the length or (size_t)-1.
 */
static size_t decode_string(str lit, char *w)
{
    size_t n = 0;
    for (size_t i = 1; i + 1 < lit.n;) {
        if (lit.p[i] != '\\') {
            w[n++] = lit.p[i++];
            continue;
        }
        size_t used;
        char tmp[8];
        int k = decode_escape((str){lit.p + i, lit.n - 1 - i}, &used, tmp);
        if (k < 0)
            return (size_t)-1;
        memcpy(w + n, tmp, (size_t)k);
        n += (size_t)k;
        i += used;
    }
    return n;
}

static struct node *parse_string(struct parser *p)
{
    size_t total = 0;
    for (size_t k = p->i; p->toks[k].type == T_STRING; k++)
        total += p->toks[k].text.n;
    char *w = parse_alloc(p, total, 1);
    struct node *node = w ? node_new(p, E_CONST) : NULL;
    if (!node)
        return NULL;
    size_t n = 0;
    while (cur(p)->type == T_STRING) {
        size_t k = decode_string(cur(p)->text, w + n);
        if (k == (size_t)-1) {
            parse_fail(p, T9_STATUS_INVALID, "bad escape in a string");
            return NULL;
        }
        n += k;
        advance(p);
    }
    const struct jstr *s = parse_jstr(p, (str){w, n});
    node->cv = val_jstr(s);
    return s ? node : NULL;
}

static struct node *parse_number(struct parser *p)
{
    str t = cur(p)->text;
    char tmp[64];
    size_t n = 0;
    struct node *node = node_new(p, E_CONST);
    if (!node)
        return NULL;
    for (size_t i = 0; i < t.n; i++) {
        if (t.p[i] == '_')
            continue;
        if (n == sizeof tmp) {
            parse_fail(p, T9_STATUS_UNSUPPORTED, "a number of more than 64 digits");
            return NULL;
        }
        tmp[n++] = t.p[i];
    }
    bool ok;
    if (cur(p)->type == T_FLOAT) {
        double f = 0;
        ok = num_parse_f64((str){tmp, n}, &f);
        node->cv = val_float(f);
    } else if (n > 2 && tmp[0] == '0' && strchr("bBoOxX", tmp[1])) {
        uint64_t v = 0, base = strchr("bB", tmp[1]) ? 2 : strchr("oO", tmp[1]) ? 8 : 16;
        ok = true;
        for (size_t i = 2; ok && i < n; i++) {
            uint32_t d = 0;
            ok = hex_value((str){tmp + i, 1}, &d) && d < base && num_mul(v, base, &v) &&
                 num_add(v, d, &v) && v <= INT64_MAX;
        }
        node->cv = val_int((int64_t)v);
    } else {
        int64_t v = 0;
        ok = num_parse_i64((str){tmp, n}, &v) && !(n > 1 && tmp[0] == '0' && v != 0);
        node->cv = val_int(v);
    }
    if (!ok) {
        parse_fail(p, T9_STATUS_INVALID, "bad number " STR_FMT, STR_ARG(str_slice(t, 0, n)));
        return NULL;
    }
    advance(p);
    return node;
}

/* ---- primaries ---- */

/* Elements up to `close`, which is eaten; `pairs` for a dict. */
static struct node *parse_elements(struct parser *p, enum node_kind kind, int close)
{
    struct node *node = node_new(p, kind);
    struct nlist l = {0};
    if (!node)
        return NULL;
    advance(p);
    while (!cur_is_op(p, close)) {
        if (l.n > 0 && !expect_op(p, ','))
            return NULL;
        if (cur_is_op(p, close))
            break;
        if (!nlist_push(p, &l, parse_expression(p)))
            return NULL;
        if (kind == E_DICT && (!expect_op(p, ':') || !nlist_push(p, &l, parse_expression(p))))
            return NULL;
    }
    advance(p);
    node->list = l.p;
    node->n = l.n;
    return node;
}

static struct node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        struct val v;
    } consts[] = {{"true", {.kind = V_BOOL, .b = true}},
                  {"True", {.kind = V_BOOL, .b = true}},
                  {"false", {.kind = V_BOOL, .b = false}},
                  {"False", {.kind = V_BOOL, .b = false}},
                  {"none", {.kind = V_NONE}},
                  {"None", {.kind = V_NONE}}};
    str name = cur(p)->text;
    for (size_t i = 0; i < T9_COUNT(consts); i++) {
        if (str_eqz(name, consts[i].name)) {
            struct node *node = node_new(p, E_CONST);
            if (node)
                node->cv = consts[i].v;
            advance(p);
            return node;
        }
    }
    struct node *node = node_new(p, E_NAME);
    if (!node || !sym_intern(p, name, &node->sym))
        return NULL;
    node->name = p->t->syms.names[node->sym];
    if (node->sym == SYM_CALLER)
        p->macro_flags |= MACRO_CALLER;
    else if (node->sym == SYM_VARARGS)
        p->macro_flags |= MACRO_VARARGS;
    else if (node->sym == SYM_KWARGS)
        p->macro_flags |= MACRO_KWARGS;
    advance(p);
    return node;
}

struct node *parse_primary(struct parser *p)
{
    switch (cur(p)->type) {
    case T_NAME: return parse_name(p);
    case T_STRING: return parse_string(p);
    case T_INT:
    case T_FLOAT: return parse_number(p);
    default: break;
    }
    if (cur_is_op(p, '(')) {
        advance(p);
        struct node *node = parse_tuple(p, true, true);
        return node && expect_op(p, ')') ? node : NULL;
    }
    if (cur_is_op(p, '['))
        return parse_elements(p, E_LIST, ']');
    if (cur_is_op(p, '{'))
        return parse_elements(p, E_DICT, '}');
    parse_fail(p, T9_STATUS_INVALID, "expected an expression");
    return NULL;
}

struct node *parse_tuple(struct parser *p, bool with_cond, bool parens)
{
    struct nlist l = {0};
    bool is_tuple = false;
    struct node *node = NULL;
    uint32_t line = cur(p)->line;
    for (;;) {
        if (cur(p)->type == T_VAR_END || cur(p)->type == T_BLOCK_END || cur_is_op(p, ')') ||
            (is_tuple && cur_is_name(p, "recursive")))
            break;
        node = with_cond ? parse_expression(p) : parse_expr_nocond(p);
        if (!nlist_push(p, &l, node))
            return NULL;
        if (!cur_is_op(p, ','))
            break;
        is_tuple = true;
        advance(p);
    }
    if (!is_tuple && l.n == 1)
        return node;
    if (l.n == 0 && !parens) {
        parse_fail(p, T9_STATUS_INVALID, "expected an expression");
        return NULL;
    }
    node = node_new(p, E_TUPLE);
    if (!node)
        return NULL;
    node->line = line;
    node->list = l.p;
    node->n = l.n;
    return node;
}

/* ---- postfix: attributes, subscripts, calls ---- */

static bool push_kwarg(struct parser *p, struct args *a, uint32_t *cap, struct kwnode kw)
{
    if (a->n_kw == *cap) {
        uint32_t want = *cap ? *cap * 2 : 4;
        struct kwnode *k = parse_alloc(p, want, sizeof *k);
        if (!k)
            return false;
        if (a->n_kw)
            memcpy(k, a->kw, a->n_kw * sizeof *k);
        a->kw = k;
        *cap = want;
    }
    a->kw[a->n_kw++] = kw;
    return true;
}

static bool parse_one_arg(struct parser *p, struct args *a, struct nlist *pos, uint32_t *kw_cap)
{
    if (skip_op(p, '*')) {
        if (a->dyn_pos || a->dyn_kw)
            return parse_fail(p, T9_STATUS_INVALID, "bad arguments in a call");
        return (a->dyn_pos = parse_expression(p)) != NULL;
    }
    if (skip_op(p, TOK_POW)) {
        if (a->dyn_kw)
            return parse_fail(p, T9_STATUS_INVALID, "bad arguments in a call");
        return (a->dyn_kw = parse_expression(p)) != NULL;
    }
    const struct tok *next = cur(p) + 1;
    if (cur(p)->type == T_NAME && next->type == T_OP && next->op == '=') {
        uint32_t sym;
        if (a->dyn_kw)
            return parse_fail(p, T9_STATUS_INVALID, "bad arguments in a call");
        if (!sym_intern(p, cur(p)->text, &sym))
            return false;
        struct kwnode kw = {.name = p->t->syms.names[sym]};
        advance(p);
        advance(p);
        kw.value = parse_expression(p);
        return kw.value && push_kwarg(p, a, kw_cap, kw);
    }
    if (a->dyn_pos || a->dyn_kw || a->n_kw)
        return parse_fail(p, T9_STATUS_INVALID, "a positional argument after a keyword argument");
    return nlist_push(p, pos, parse_expression(p));
}

/* From "(" to ")". */
static struct args *parse_args(struct parser *p)
{
    struct args *a = parse_alloc(p, 1, sizeof *a);
    struct nlist pos = {0};
    uint32_t kw_cap = 0;
    if (!a || !expect_op(p, '('))
        return NULL;
    *a = (struct args){0};
    bool comma = false;
    while (!cur_is_op(p, ')')) {
        if (comma && !expect_op(p, ','))
            return NULL;
        if (comma && cur_is_op(p, ')'))
            break;
        if (!parse_one_arg(p, a, &pos, &kw_cap))
            return NULL;
        comma = true;
    }
    advance(p);
    a->pos = pos.p;
    a->n = pos.n;
    return a;
}

static struct node *parse_call(struct parser *p, struct node *a)
{
    struct node *node = node_new(p, E_CALL);
    if (!node)
        return NULL;
    node->a = a;
    node->args = parse_args(p);
    return node->args ? node : NULL;
}

/* One subscript: an expression, or a slice with up to three parts. */
static struct node *parse_subscript(struct parser *p, struct node *obj)
{
    struct node *part[3] = {0};
    uint32_t n = 0;
    while (n < 3) {
        if (!cur_is_op(p, ':') && !cur_is_op(p, ']') && !cur_is_op(p, ',')) {
            part[n] = parse_expression(p);
            if (!part[n])
                return NULL;
        }
        n++;
        if (!skip_op(p, ':'))
            break;
    }
    bool is_slice = n > 1;
    struct node *node = node_new(p, is_slice ? E_SLICE : E_ITEM);
    if (!node)
        return NULL;
    node->a = obj;
    if (!is_slice) {
        node->b = part[0];
        if (!part[0])
            parse_fail(p, T9_STATUS_INVALID, "expected a subscript");
        return part[0] ? node : NULL;
    }
    node->n = 3;
    node->list = parse_alloc(p, 3, sizeof *node->list);
    if (!node->list)
        return NULL;
    memcpy(node->list, part, sizeof part);
    return node;
}

static struct node *parse_dot(struct parser *p, struct node *obj)
{
    const struct tok *t = cur(p);
    struct node *node = NULL;
    if (t->type == T_NAME) {
        uint32_t sym;
        node = node_new(p, E_ATTR);
        if (!node || !sym_intern(p, t->text, &sym))
            return NULL;
        node->name = p->t->syms.names[sym];
        advance(p);
    } else if (t->type == T_INT) {
        node = node_new(p, E_ITEM);
        if (!node)
            return NULL;
        node->b = parse_number(p);
        if (!node->b)
            return NULL;
    } else {
        parse_fail(p, T9_STATUS_INVALID, "expected a name or number after '.'");
        return NULL;
    }
    node->a = obj;
    return node;
}

struct node *parse_postfix_chain(struct parser *p, struct node *a)
{
    uint32_t depth = p->depth; /* a chain of n links is evaluated n levels deep */
    while (a) {
        if (skip_op(p, '.')) {
            a = parse_enter(p) ? parse_dot(p, a) : NULL;
        } else if (skip_op(p, '[')) {
            a = parse_enter(p) ? parse_subscript(p, a) : NULL;
            if (a && !expect_op(p, ']'))
                a = NULL;
        } else if (cur_is_op(p, '(')) {
            a = parse_enter(p) ? parse_call(p, a) : NULL;
        } else {
            break;
        }
    }
    p->depth = depth;
    return a;
}

/* ---- filters and tests ---- */

/* A dotted name; the table's entry goes to node->fn, NULL if unknown within a branch. */
static bool parse_fn_name(struct parser *p, struct node *node, bool is_test)
{
    if (cur(p)->type != T_NAME)
        return parse_fail(p, T9_STATUS_INVALID, "expected the name of a %s",
                          is_test ? "test" : "filter");
    str name = cur(p)->text;
    advance(p);
    while (cur_is_op(p, '.') && cur(p)[1].type == T_NAME) {
        advance(p);
        name.n = (size_t)(cur(p)->text.p + cur(p)->text.n - name.p);
        advance(p);
    }
    node->fn = is_test ? fn_find(test_table, name) : filter_find(name);
    node->fn_name = parse_jstr(p, name);
    if (!node->fn_name)
        return false;
    if (!node->fn && !p->soft)
        return parse_fail(p, T9_STATUS_UNSUPPORTED, "no %s is named '" STR_FMT "'",
                          is_test ? "test" : "filter", STR_ARG(name));
    return true;
}

static struct node *parse_filter(struct parser *p, struct node *a)
{
    struct node *node = node_new(p, E_FILTER);
    if (!node || !parse_fn_name(p, node, false))
        return NULL;
    node->a = a;
    if (cur_is_op(p, '(')) {
        node->args = parse_args(p);
        if (!node->args)
            return NULL;
    }
    return node;
}

struct node *parse_filters(struct parser *p, struct node *a, bool start_inline)
{
    uint32_t depth = p->depth;
    bool ok = true;
    while (ok && (start_inline || skip_op(p, '|'))) {
        a = parse_enter(p) ? parse_filter(p, a) : NULL;
        ok = a != NULL;
        start_inline = false;
    }
    p->depth = depth;
    return ok ? a : NULL;
}

/* Whether an argument without parentheses follows a test's name: `x is divisibleby 3`. */
static bool at_bare_test_arg(const struct parser *p)
{
    switch (cur(p)->type) {
    case T_STRING:
    case T_INT:
    case T_FLOAT: return true;
    case T_NAME: return !cur_is_name(p, "else") && !cur_is_name(p, "or") && !cur_is_name(p, "and");
    default: return cur_is_op(p, '[') || cur_is_op(p, '{');
    }
}

static struct node *parse_test(struct parser *p, struct node *a)
{
    bool negate = skip_name(p, "not");
    struct node *node = node_new(p, E_TEST);
    if (!node || !parse_fn_name(p, node, true))
        return NULL;
    node->a = a;
    if (cur_is_op(p, '(')) {
        node->args = parse_args(p);
        if (!node->args)
            return NULL;
    } else if (at_bare_test_arg(p)) {
        if (cur_is_name(p, "is")) {
            parse_fail(p, T9_STATUS_INVALID, "tests can't be chained with 'is'");
            return NULL;
        }
        struct node *arg = parse_primary(p);
        arg = arg ? parse_postfix_chain(p, arg) : NULL;
        struct nlist l = {0};
        node->args = parse_alloc(p, 1, sizeof *node->args);
        if (!arg || !node->args || !nlist_push(p, &l, arg))
            return NULL;
        *node->args = (struct args){.pos = l.p, .n = 1};
    }
    if (!negate)
        return node;
    struct node *not_node = node_new(p, E_NOT);
    if (not_node)
        not_node->a = node;
    return not_node;
}

static struct node *parse_filter_expr(struct parser *p, struct node *a)
{
    uint32_t depth = p->depth;
    while (a) {
        if (skip_op(p, '|'))
            a = parse_enter(p) ? parse_filter(p, a) : NULL;
        else if (skip_name(p, "is"))
            a = parse_enter(p) ? parse_test(p, a) : NULL;
        else if (cur_is_op(p, '('))
            a = parse_enter(p) ? parse_call(p, a) : NULL;
        else
            break;
    }
    p->depth = depth;
    return a;
}

/* ---- operators ---- */

static struct node *parse_unary(struct parser *p, bool with_filter)
{
    struct node *node;
    if (!parse_enter(p))
        return NULL;
    if (cur_is_op(p, '-') || cur_is_op(p, '+')) {
        node = node_new(p, E_UNARY);
        if (!node)
            return NULL;
        node->op = cur_is_op(p, '-') ? OP_NEG : OP_POS;
        advance(p);
        node->a = parse_unary(p, false);
        if (!node->a)
            return NULL;
    } else {
        node = parse_primary(p);
    }
    node = node ? parse_postfix_chain(p, node) : NULL;
    if (with_filter)
        node = node ? parse_filter_expr(p, node) : NULL;
    p->depth--;
    return node;
}

/* The operator at the cursor: its precedence (0: none) and kind. */
static int binary_op(const struct parser *p, enum node_kind *kind, int *op)
{
    *op = 0;
    if (cur(p)->type == T_NAME) {
        *kind = cur_is_name(p, "or") ? E_OR : cur_is_name(p, "and") ? E_AND : E_CMP;
        if (*kind != E_CMP)
            return *kind == E_OR ? PREC_OR : PREC_AND;
        *op = OP_IN;
        if (cur_is_name(p, "in"))
            return PREC_CMP;
        *op = OP_NOT_IN;
        const struct tok *next = cur(p) + 1;
        bool not_in = cur_is_name(p, "not") && next->type == T_NAME && str_eqz(next->text, "in");
        return not_in ? PREC_CMP : 0;
    }
    static const struct {
        uint8_t tok, op, kind, prec;
    } ops[] = {{TOK_EQ, OP_EQ, E_CMP, PREC_CMP}, {TOK_NE, OP_NE, E_CMP, PREC_CMP},
               {'<', OP_LT, E_CMP, PREC_CMP},    {TOK_LE, OP_LE, E_CMP, PREC_CMP},
               {'>', OP_GT, E_CMP, PREC_CMP},    {TOK_GE, OP_GE, E_CMP, PREC_CMP},
               {'+', OP_ADD, E_BIN, PREC_ADD},   {'-', OP_SUB, E_BIN, PREC_ADD},
               {'~', 0, E_CONCAT, PREC_CONCAT},  {'*', OP_MUL, E_BIN, PREC_MUL},
               {'/', OP_DIV, E_BIN, PREC_MUL},   {TOK_FLOORDIV, OP_FLOORDIV, E_BIN, PREC_MUL},
               {'%', OP_MOD, E_BIN, PREC_MUL},   {TOK_POW, OP_POW, E_BIN, PREC_POW}};
    for (size_t i = 0; cur(p)->type == T_OP && i < T9_COUNT(ops); i++) {
        if (cur(p)->op == ops[i].tok) {
            *kind = (enum node_kind)ops[i].kind;
            *op = ops[i].op;
            return ops[i].prec;
        }
    }
    return 0;
}

/* All operands of a comparison chain or of a run of `~`, after the first. */
static struct node *parse_run(struct parser *p, struct node *first, enum node_kind kind, int prec)
{
    struct node *node = node_new(p, kind);
    struct nlist l = {0};
    if (!node || (kind == E_CONCAT && !nlist_push(p, &l, first)))
        return NULL;
    node->a = first;
    enum node_kind next_kind;
    int op;
    while (binary_op(p, &next_kind, &op) == prec) {
        if (op == OP_NOT_IN)
            advance(p);
        advance(p);
        struct node *operand = parse_binary(p, prec + 1);
        if (kind == E_CMP && operand) {
            struct node *part = node_new(p, E_CMP);
            if (!part)
                return NULL;
            part->op = (uint8_t)op;
            part->a = operand;
            operand = part;
        }
        if (!nlist_push(p, &l, operand))
            return NULL;
    }
    node->list = l.p;
    node->n = l.n;
    return node;
}

static struct node *parse_not(struct parser *p)
{
    struct node *node = node_new(p, E_NOT);
    if (!node)
        return NULL;
    advance(p);
    node->a = parse_binary(p, PREC_NOT);
    return node->a ? node : NULL;
}

static struct node *parse_binary(struct parser *p, int min_prec)
{
    if (!parse_enter(p))
        return NULL;
    uint32_t depth = p->depth;
    struct node *left;
    if (min_prec <= PREC_NOT && cur_is_name(p, "not"))
        left = parse_not(p);
    else
        left = parse_unary(p, true);
    enum node_kind kind;
    int op, prec;
    /* After `not x` only `and` and `or` can follow: what binds tighter belongs to x. */
    while (left && (prec = binary_op(p, &kind, &op)) >= min_prec && prec > 0) {
        if (kind == E_CMP || kind == E_CONCAT) {
            left = parse_run(p, left, kind, prec);
            continue;
        }
        struct node *node = parse_enter(p) ? node_new(p, kind) : NULL;
        if (!node)
            return NULL;
        advance(p);
        node->op = (uint8_t)op;
        node->a = left;
        node->b = parse_binary(p, prec + 1);
        left = node->b ? node : NULL;
    }
    p->depth = depth - 1;
    return left;
}

struct node *parse_expr_nocond(struct parser *p)
{
    return parse_binary(p, PREC_OR);
}

struct node *parse_expression(struct parser *p)
{
    if (!parse_enter(p))
        return NULL;
    uint32_t depth = p->depth;
    struct node *left = parse_binary(p, PREC_OR);
    while (left && skip_name(p, "if")) {
        struct node *node = parse_enter(p) ? node_new(p, E_COND) : NULL;
        if (!node)
            return NULL;
        node->b = left;
        p->soft++;
        node->a = parse_binary(p, PREC_OR);
        if (node->a && skip_name(p, "else")) {
            node->c = parse_expression(p);
            if (!node->c)
                node->a = NULL;
        }
        p->soft--;
        left = node->a ? node : NULL;
    }
    p->depth = depth - 1;
    return left;
}
