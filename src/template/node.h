/* template/node.h - the tree that a template is parsed into. Private to src/template. */
#ifndef T9_TEMPLATE_NODE_H
#define T9_TEMPLATE_NODE_H

#include "template/value.h"

enum node_kind {
    /* expressions */
    E_CONST, /* cv */
    E_NAME,  /* sym */
    E_TUPLE, /* list */
    E_LIST,  /* list */
    E_DICT,  /* list: key, value, key, value */
    E_UNARY, /* op a */
    E_BIN,   /* a op b */
    E_AND,
    E_OR,
    E_NOT,
    E_CONCAT, /* list */
    E_CMP,    /* a, then list of E_CMP operands: op, a */
    E_COND,   /* a if b else c (c may be NULL) */
    E_ATTR,   /* a.name; as a target: namespace `sym` attribute name */
    E_ITEM,   /* a[b] */
    E_SLICE,  /* a[list[0]:list[1]:list[2]], parts may be NULL */
    E_CALL,   /* a(args) */
    E_FILTER, /* a | fn(args); a is NULL for the body of a filter block */
    E_TEST,   /* a is fn(args) */
    /* statements */
    S_OUTPUT, /* list of expressions */
    S_IF,     /* list: test, body, test, body; else: c */
    S_FOR,    /* target a, iterable b, body list[0], else c (or NULL), test list[1] (or NULL) */
    S_SET,    /* target a = b */
    S_SET_BLOCK,
    S_MACRO,  /* sym, args->pos: E_NAME parameters, list: defaults (NULL without), body a */
    S_CALL,   /* call block: as S_MACRO, and b the E_CALL */
    S_FILTER, /* a: E_FILTER chain, b: body */
    S_WITH,   /* list: target, value, ...; body a */
    S_SCOPE,  /* body a in a scope of its own */
    S_BREAK,
    S_CONTINUE,
    S_BODY /* list of statements */
};

enum op_kind {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_NEG,
    OP_POS,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

enum { MACRO_CALLER = 1, MACRO_VARARGS = 2, MACRO_KWARGS = 4 };

struct kwnode {
    const struct jstr *name;
    struct node *value;
};
struct args {
    struct node **pos;
    struct kwnode *kw;
    uint32_t n, n_kw;
    struct node *dyn_pos, *dyn_kw; /* *args, **kwargs */
};

struct node {
    uint8_t kind, op;
    uint8_t flags; /* S_FOR: recursive; S_MACRO, S_CALL: MACRO_* */
    uint32_t line, sym, n;
    struct node *a, *b, *c;
    struct node **list;
    union {
        struct args *args;
        const struct jstr *name;
    };
    union {
        struct val cv;
        struct {
            const struct fn *fn; /* NULL: unknown */
            const struct jstr *fn_name;
        };
    };
};

/* Symbols every template knows by number. */
enum { SYM_LOOP, SYM_CALLER, SYM_VARARGS, SYM_KWARGS, SYM_FIXED };

struct sym_table {
    const struct jstr **names;
    uint32_t n, cap;
    uint32_t *table;
    uint32_t table_cap;
};

struct jinja_template {
    struct arena arena;
    str source;
    struct node *body;
    struct sym_table syms;
};

struct tok {
    uint8_t type, op;
    uint32_t line;
    str text;
};
enum tok_type {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING, /* text with its quotes */
    T_INT,
    T_FLOAT,
    T_OP /* op is the character, or a TOK_* for two */
};
enum { TOK_EQ = 128, TOK_NE, TOK_LE, TOK_GE, TOK_FLOORDIV, TOK_POW };

#define TOKENS_MAX 1000000u

/* Splits the normalised source into tokens; *out is freed with mem_free. lexer.c. */
t9_status lex(str source, struct tok **out, size_t *n_out, struct t9_err *err);

/* ---- parser, shared by parse_stmt.c and parse_expr.c ---- */
struct parser {
    struct jinja_template *t;
    const struct tok *toks;
    size_t i, n_toks;
    struct t9_err *err;
    t9_status status;
    uint32_t depth, n_nodes;
    uint32_t soft;       /* inside a branch: unknown filters fail when reached only */
    uint32_t loops;      /* loops around, within the same macro */
    uint8_t macro_flags; /* of the macros being parsed: special names seen */
};

bool parse_fail(struct parser *p, t9_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__
#    define parse_fail(c, s, ...) t9_fail_false_(parse_fail(c, s, __VA_ARGS__))
#endif
void *parse_alloc(struct parser *p, size_t n, size_t size_bytes);
struct node *node_new(struct parser *p, enum node_kind kind);
bool parse_enter(struct parser *p);
bool sym_intern(struct parser *p, str name, uint32_t *out);
const struct jstr *parse_jstr(struct parser *p, str s); /* copy in the template, origin template */

/* Growable list of pointers in the template's arena. */
struct nlist {
    struct node **p;
    uint32_t n, cap;
};
bool nlist_push(struct parser *p, struct nlist *l, struct node *n);

static inline const struct tok *cur(const struct parser *p)
{
    return &p->toks[p->i];
}
static inline bool cur_is_op(const struct parser *p, int op)
{
    return cur(p)->type == T_OP && cur(p)->op == op;
}
static inline bool cur_is_name(const struct parser *p, const char *z)
{
    return cur(p)->type == T_NAME && str_eqz(cur(p)->text, z);
}
static inline void advance(struct parser *p)
{
    if (p->toks[p->i].type != T_EOF)
        p->i++;
}
bool skip_op(struct parser *p, int op);
bool skip_name(struct parser *p, const char *z);
bool expect_op(struct parser *p, int op);

struct node *parse_expression(struct parser *p);
struct node *parse_expr_nocond(struct parser *p);
/* One expression, or several with commas as a tuple. `stop`: a name that ends it ("in"). */
struct node *parse_tuple(struct parser *p, bool with_cond, bool parens);
struct node *parse_primary(struct parser *p);
struct node *parse_filters(struct parser *p, struct node *a, bool start_inline);
struct node *parse_postfix_chain(struct parser *p, struct node *a);

#endif
