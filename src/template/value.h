/*
 * template/value.h - values, strings with origins, and the rendering context shared by the files of
 * this module. Private to src/template.
 *
 * A value is 16 bytes and passed by copy; what it points to lives in the rendering's arena (or in
 * the template's, for constants) and never changes, except namespaces, loops, generators, cyclers
 * and joiners. Since lists and maps are immutable (the sandbox forbids append and update), only a
 * namespace can make a cycle; every walk over values is bounded by depth all the same.
 *
 * Every function that can fail returns false after recording the error in the context.
 */
#ifndef T9_TEMPLATE_VALUE_H
#define T9_TEMPLATE_VALUE_H

#include "base/arena.h"
#include "template/template.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum val_kind {
    V_MISSING, /* no argument given, no variable bound; never seen by a template */
    V_UNDEF,   /* jinja2's Undefined; `s` names it, sub is an enum undef_why */
    V_NONE,
    V_BOOL,
    V_INT,
    V_UINT, /* an integer over INT64_MAX out of JSON: printed and compared, no arithmetic */
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_MAP,
    V_RANGE,
    V_GEN,  /* one-shot iterator */
    V_VIEW, /* dict.keys(), .values(), .items() by sub = enum view_kind */
    V_NS,
    V_MACRO,
    V_FN, /* global function */
    V_METHOD,
    V_LOOP,
    V_CYCLER,
    V_JOINER
};

enum undef_why { UNDEF_NAME, UNDEF_ATTR, UNDEF_UNSAFE, UNDEF_OTHER };
enum { TUPLE_GROUP = 1 }; /* sub of a V_TUPLE out of groupby: has .grouper and .list */
enum view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct val {
    uint8_t kind, sub;
    uint32_t aux;
    union {
        bool b;
        int64_t i;
        uint64_t u;
        double f;
        const struct jstr *s;
        const struct list *list;
        struct map *map;
        const struct range *range;
        struct gen *gen;
        const struct macro *macro;
        const struct fn *fn;
        const struct method *method;
        struct loop *loop;
        struct cycler *cycler;
    };
};

/* Bytes up to `end` have `origin`; the last run may end beyond the string and is cut at n. */
struct jrun {
    size_t end;
    uint8_t origin;
};

/* Spare room after a string made by concatenation, so that `x = x + y` in a loop stays linear. */
struct jback {
    size_t used, cap;
};

#define NCP_UNKNOWN ((size_t)-1)

/* Valid UTF-8. n_runs == 0: all bytes have `origin`. n_cp: code points, or NCP_UNKNOWN. */
struct jstr {
    const char *p;
    size_t n, n_cp;
    const struct jrun *runs;
    uint32_t n_runs;
    uint8_t origin;
    bool markup; /* came through `safe` or `escape`: `+` escapes the other side */
    struct jback *back;
};

struct list {
    const struct val *items;
    size_t n;
};

struct map {
    struct val *keys, *vals;
    size_t n, cap;
    uint32_t *table; /* open addressing, index + 1; NULL while small */
    size_t table_cap;
};

struct range {
    int64_t start, step;
    size_t n;
    int64_t stop; /* as written, for repr */
};

struct gen {
    struct list items;
    size_t pos;
};

struct method {
    struct val self;
    const struct fn *fn;
};

struct scope;
struct node;
struct macro {
    const struct node *def;
    struct scope *closure;
};

struct loop {
    const struct node *def;
    struct scope *closure;
    struct seq *seq;
    size_t idx;
    uint32_t depth0;
    struct val last_changed;
};

struct cycler {
    struct val *items; /* a joiner keeps its separator in items[0] */
    size_t n, pos;
};

/* Something to walk over by index: the items of a list, or a range computed as it goes. */
struct seq {
    const struct val *items; /* NULL for a range */
    size_t n;
    int64_t start, step;
};

/* String under construction, in the arena. */
struct sb {
    struct rctx *c;
    char *p;
    size_t n, cap;
    struct jrun *runs;
    uint32_t n_runs, runs_cap;
    size_t max; /* bytes; over it is TOO_LARGE */
};

/* Evaluated arguments of a call. After binding by a spec, pos[i] is parameter i or V_MISSING. */
struct kwarg {
    const struct jstr *name;
    struct val v;
};
struct cargs {
    struct val *pos;
    size_t n;
    struct kwarg *kw;
    size_t n_kw;
};

/* A filter, test, method or global. `spec` names the parameters in order, '!' before a required
 * one ("!old !new count"); NULL: the arguments come as they are. */
struct fn {
    const char *name;
    const char *spec;
    bool (*call)(struct rctx *c, struct val self, struct cargs *a, struct val *out);
};

struct var {
    uint32_t sym;
    struct val v;
};
struct scope {
    struct scope *parent; /* NULL: the root, whose variables are in rctx.root */
    struct var *vars;
    uint32_t n, cap;
};

struct rctx {
    const struct jinja_template *t;
    struct arena arena;
    struct jinja_limits limits;
    struct jinja_env env;
    struct t9_err *err;
    t9_status status;
    uint64_t steps;
    uint32_t depth, line;
    struct val *root;    /* [n_syms] */
    struct scope *scope; /* innermost; NULL at the root */
    struct sb *out;
};

/* ---- errors and limits (interp.c) ---- */
bool rt_fail(struct rctx *c, t9_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__
#    define rt_fail(c, s, ...) t9_fail_false_(rt_fail(c, s, __VA_ARGS__))
#endif
bool rt_charge_slow(struct rctx *c);
static inline bool rt_charge(struct rctx *c, uint64_t n)
{
    c->steps += n;
    return c->steps <= c->limits.max_steps || rt_charge_slow(c);
}
void *rt_alloc(struct rctx *c, size_t n, size_t size_bytes); /* NULL: error recorded */
bool rt_enter(struct rctx *c);                               /* one level deeper; pair with leave */
static inline void rt_leave(struct rctx *c)
{
    c->depth--;
}
const char *val_type_name(struct val v);

/* ---- small constructors ---- */
static inline struct val val_none(void)
{
    return (struct val){.kind = V_NONE};
}
static inline struct val val_missing(void)
{
    return (struct val){.kind = V_MISSING};
}
static inline struct val val_bool(bool b)
{
    return (struct val){.kind = V_BOOL, .b = b};
}
static inline struct val val_int(int64_t i)
{
    return (struct val){.kind = V_INT, .i = i};
}
static inline struct val val_float(double f)
{
    return (struct val){.kind = V_FLOAT, .f = f};
}
static inline struct val val_jstr(const struct jstr *s)
{
    return (struct val){.kind = V_STR, .s = s};
}
static inline struct val val_undef(enum undef_why why, const struct jstr *name)
{
    return (struct val){.kind = V_UNDEF, .sub = (uint8_t)why, .s = name};
}
static inline bool val_given(struct val v) /* an argument that is there and not None */
{
    return v.kind != V_MISSING && v.kind != V_NONE;
}
static inline bool val_is_listlike(struct val v)
{
    return v.kind == V_LIST || v.kind == V_TUPLE;
}

/* ---- strings with origins (jstr.c) ---- */
struct jstr *jstr_new(struct rctx *c, const char *p, size_t n, uint8_t origin); /* no copy */
bool val_str(struct rctx *c, const char *z, struct val *out); /* static text, origin template */
size_t jstr_n_cp(const struct jstr *s);
/* Byte offset of code point `cp` (may be n_cp). */
size_t jstr_offset(const struct jstr *s, size_t cp);
bool jstr_slice(struct rctx *c, const struct jstr *s, size_t from, size_t to, struct val *out);
bool jstr_concat(struct rctx *c, const struct jstr *a, const struct jstr *b, struct val *out);
uint8_t jstr_origin_at(const struct jstr *s, size_t byte);
void sb_init(struct rctx *c, struct sb *b, size_t max_bytes);
bool sb_put(struct sb *b, const char *p, size_t n, uint8_t origin);
bool sb_put_slice(struct sb *b, const struct jstr *s, size_t from, size_t to);
static inline bool sb_put_jstr(struct sb *b, const struct jstr *s)
{
    return sb_put_slice(b, s, 0, s->n);
}
bool sb_finish(struct sb *b, struct val *out);
bool jstr_escape_html(struct rctx *c, const struct jstr *s, struct val *out);
static inline str jstr_view(const struct jstr *s)
{
    return (str){s->p, s->n};
}

/* ---- values (value.c) ---- */
bool val_truth(struct val v);
bool val_eq(struct rctx *c, struct val a, struct val b, bool *out);
/* a <=> b for ordering; a type error when they can't be ordered. */
bool val_cmp(struct rctx *c, struct val a, struct val b, int *out);
bool val_contains(struct rctx *c, struct val container, struct val item, bool *out);
bool val_len(struct rctx *c, struct val v, size_t *out); /* error without a length */
bool val_hashable(struct val v);
bool val_list(struct rctx *c, const struct val *items, size_t n, uint8_t kind, struct val *out);
bool val_gen(struct rctx *c, const struct val *items, size_t n, struct val *out);
bool val_seq(struct rctx *c, struct val v, struct seq *out); /* iter(v); error if not iterable */
struct val seq_at(const struct seq *s, size_t i);
struct map *map_new(struct rctx *c);
bool map_set(struct rctx *c, struct map *m, struct val key, struct val v);
bool map_get(struct rctx *c, const struct map *m, struct val key, struct val *out, bool *found);
bool val_from_json(struct rctx *c, yyjson_val *v, struct val *out);
bool val_as_i64(struct val v, int64_t *out); /* int or bool; false without an error */
bool val_is_number(struct val v);
double val_as_f64(struct val v); /* of a number */
/* list-like in whole, in order, stable; `keys` (n of them) are sorted along with items. */
bool val_sort(struct rctx *c, struct val *keys, struct val *items, size_t n, bool reverse);

/* Growable array of values in the arena. */
struct vals {
    struct val *p;
    size_t n, cap;
};
bool vals_push(struct rctx *c, struct vals *v, struct val x);

/* ---- text (text.c) ---- */
size_t text_float(double f, char out[40]); /* Python's repr */
bool text_str(struct sb *b, struct val v); /* Python's str() */
bool text_repr(struct sb *b, struct val v);
bool val_to_str(struct rctx *c, struct val v, struct val *out); /* keeps a string as it is */
struct json_style {
    bool ascii, sort_keys;
    const struct jstr *indent; /* NULL: one line */
    const struct jstr *item_sep, *key_sep;
};
bool text_json(struct sb *b, struct val v, const struct json_style *st);

/* ---- Unicode (unicode.c) ---- */
size_t uni_decode(const char *p, size_t n, uint32_t *cp); /* valid UTF-8; 1 byte if it is not */
bool uni_is_space(uint32_t cp);
size_t uni_space_len(const char *p, size_t n); /* bytes of the white space character at p, or 0 */
bool uni_printable(uint32_t cp);
enum uni_case { UNI_UPPER, UNI_LOWER, UNI_TITLE };
/* Full case mapping to 1..3 code points. */
uint32_t uni_map(uint32_t cp, enum uni_case to, uint32_t out[3]);
bool uni_is_cased(uint32_t cp);
bool uni_is_upper(uint32_t cp);
bool uni_is_lower(uint32_t cp);
bool uni_is_alpha(uint32_t cp);
bool uni_is_decimal(uint32_t cp);
bool uni_is_digit(uint32_t cp);
bool uni_is_numeric(uint32_t cp);
bool uni_case_ignorable(uint32_t cp);

/* ---- string operations shared by methods and filters (strops.c) ---- */
extern const struct fn str_methods[];
bool str_strip(struct rctx *c, const struct jstr *s, struct val chars, int sides, struct val *out);
bool str_case(struct rctx *c, const struct jstr *s, enum uni_case to, struct val *out);
bool str_capitalize(struct rctx *c, const struct jstr *s, struct val *out);
bool str_replace(struct rctx *c, const struct jstr *s, const struct jstr *old,
                 const struct jstr *with, int64_t count, struct val *out);
bool str_lines(struct rctx *c, const struct jstr *s, bool keep_ends, struct val *out);
bool str_pad(struct rctx *c, const struct jstr *s, int64_t width, int side, const struct jstr *fill,
             struct val *out);

/* ---- formatting (format.c) ---- */
bool format_method(struct rctx *c, const struct jstr *fmt, struct cargs *a, struct val *out);
bool format_percent(struct rctx *c, const struct jstr *fmt, struct val args, struct val *out);
bool format_strftime(struct rctx *c, const struct jstr *fmt, struct val *out);

/* ---- operators (ops.c) ---- */
bool op_binary(struct rctx *c, int op, struct val a, struct val b, struct val *out);
bool op_unary(struct rctx *c, int op, struct val a, struct val *out);
bool op_getitem(struct rctx *c, struct val obj, struct val key, struct val *out);
bool op_getattr(struct rctx *c, struct val obj, const struct jstr *name, struct val *out);
/* Python's getattr alone, without falling back to members of a map. */
bool op_attr_only(struct rctx *c, struct val obj, const struct jstr *name, struct val *out);
bool op_slice(struct rctx *c, struct val obj, const struct val bounds[3], struct val *out);
bool op_undefined(struct rctx *c, struct val undef);
#ifdef __clang_analyzer__
#    define op_undefined(c, v) t9_fail_false_(op_undefined(c, v))
#endif

/* ---- calls (interp.c) ---- */
bool rt_call(struct rctx *c, struct val callee, struct cargs *a, struct val *out);
bool fn_call(struct rctx *c, const struct fn *fn, struct val self, struct cargs *a,
             struct val *out);

/* ---- tables; each ends with a NULL name ---- */
extern const struct fn filter_table[];  /* filters.c; filter's value is `self` */
extern const struct fn filter_table2[]; /* filters_seq.c */
extern const struct fn test_table[];    /* tests.c */
extern const struct fn global_table[];  /* globals.c */
extern const struct fn map_methods[], list_methods[], loop_methods[],
    cycler_methods[]; /* globals.c */
const struct fn *fn_find(const struct fn *table, str name);
const struct fn *filter_find(str name);
bool filter_by_name(struct rctx *c, const struct jstr *name, struct val v, struct cargs *a,
                    struct val *out);
bool test_by_name(struct rctx *c, const struct jstr *name, struct val v, struct cargs *a,
                  bool *out);

#endif
