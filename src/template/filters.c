/*
 * template/filters.c - filters on single values and text, tojson among them. Filters on sequences
 * are in filters_seq.c. The filtered value comes as `self`, parameters as the table's spec names
 * them.
 */
#include "template/node.h"

#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool arg_int(struct rctx *c, struct val v, int64_t absent, int64_t *out)
{
    *out = absent;
    if (!val_given(v) || val_as_i64(v, out))
        return true;
    if (v.kind == V_UNDEF)
        return op_undefined(c, v);
    return rt_fail(c, T9_STATUS_INVALID, "expected an integer, not %s", val_type_name(v));
}

/* ---- numbers ---- */

static bool f_abs(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t i;
    (void)a;
    if (val_as_i64(self, &i))
        return i < 0 ? op_unary(c, OP_NEG, self, out) : (*out = val_int(i), true);
    if (self.kind == V_UNDEF)
        return op_undefined(c, self);
    if (self.kind == V_UINT) {
        *out = self;
        return true;
    }
    if (self.kind != V_FLOAT)
        return rt_fail(c, T9_STATUS_INVALID, "abs of %s", val_type_name(self));
    *out = val_float(fabs(self.f));
    return true;
}

static str trim_space(str s)
{
    size_t k;
    while (s.n && (k = uni_space_len(s.p, s.n)) > 0)
        s = str_slice(s, k, s.n);
    while (s.n) {
        size_t at = s.n - 1;
        while (at > 0 && ((unsigned char)s.p[at] & 0xc0) == 0x80)
            at--;
        if (uni_space_len(s.p + at, s.n - at) != s.n - at)
            break;
        s.n = at;
    }
    return s;
}

static int digit_value(char ch)
{
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    if (ch >= 'a' && ch <= 'z')
        return ch - 'a' + 10;
    if (ch >= 'A' && ch <= 'Z')
        return ch - 'A' + 10;
    return 99;
}

/* int(text, base): 1 a number, 0 none, -1 too large. */
static int parse_int(str s, int base, int64_t *out)
{
    bool negative = false;
    uint64_t u = 0;
    s = trim_space(s);
    if (s.n && (s.p[0] == '-' || s.p[0] == '+')) {
        negative = s.p[0] == '-';
        s = str_slice(s, 1, s.n);
    }
    if (s.n > 2 && s.p[0] == '0' && base != 10) {
        int want = (s.p[1] | 32) == 'x' ? 16 : (s.p[1] | 32) == 'o' ? 8 : 2;
        if (strchr("xXoObB", s.p[1]) && (base == want || base == 0)) {
            base = want;
            s = str_slice(s, s.p[2] == '_' ? 3 : 2, s.n);
        }
    }
    base = base == 0 ? 10 : base;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '_') {
            if (i == 0 || i + 1 == s.n || s.p[i + 1] == '_')
                return 0;
            continue;
        }
        int d = digit_value(s.p[i]);
        if (d >= base)
            return 0;
        if (!num_mul(u, (uint64_t)base, &u) || !num_add(u, (uint64_t)d, &u))
            return -1;
    }
    if (s.n == 0)
        return 0;
    if (u > (uint64_t)INT64_MAX + negative)
        return -1;
    *out = (int64_t)(negative ? 0 - u : u);
    return 1;
}

/* float(text) */
static bool parse_float(str s, double *out)
{
    char tmp[128];
    size_t n = 0, digits = 0;
    s = trim_space(s);
    bool negative = s.n && s.p[0] == '-';
    if (s.n && (s.p[0] == '-' || s.p[0] == '+'))
        s = str_slice(s, 1, s.n);
    static const char *const names[] = {"inf", "infinity", "nan"};
    for (size_t k = 0; k < 3; k++) {
        size_t len = strlen(names[k]), i = 0;
        while (len == s.n && i < len && (s.p[i] | 32) == names[k][i])
            i++;
        if (i == len && len == s.n) {
            *out = k == 2 ? (double)NAN : negative ? -(double)INFINITY : (double)INFINITY;
            return true;
        }
    }
    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];
        bool is_digit = ch >= '0' && ch <= '9';
        bool mid =
            i > 0 && i + 1 < s.n && digit_value(s.p[i - 1]) < 10 && digit_value(s.p[i + 1]) < 10;
        if (ch == '_' && mid)
            continue;
        if (n + 3 > sizeof tmp || !(is_digit || strchr(".eE+-", ch) != NULL) || !ch)
            return false;
        digits += is_digit;
        if (ch == '.' && (i == 0 || digit_value(s.p[i - 1]) >= 10))
            tmp[n++] = '0';
        tmp[n++] = ch;
        if (ch == '.' && (i + 1 == s.n || digit_value(s.p[i + 1]) >= 10))
            tmp[n++] = '0';
    }
    if (!digits || !num_parse_f64((str){tmp, n}, out))
        return false;
    if (negative)
        *out = -*out;
    return true;
}

static bool f_int(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t base, i = 0;
    double f = 0;
    if (!arg_int(c, a->pos[1], 10, &base))
        return false;
    if (self.kind == V_UNDEF)
        return op_undefined(c, self);
    *out = a->pos[0].kind == V_MISSING ? val_int(0) : a->pos[0];
    if (val_as_i64(self, &i)) {
        *out = val_int(i);
        return true;
    }
    if (self.kind == V_UINT) {
        *out = self;
        return true;
    }
    if (self.kind == V_STR) {
        int r = base == 0 || (base >= 2 && base <= 36) ? parse_int(jstr_view(self.s), (int)base, &i)
                                                       : 0;
        if (r < 0)
            return rt_fail(c, T9_STATUS_UNSUPPORTED, "an integer over 64 bits");
        if (r > 0) {
            *out = val_int(i);
            return true;
        }
        if (!parse_float(jstr_view(self.s), &f))
            return true;
    } else if (self.kind == V_FLOAT) {
        f = self.f;
    } else {
        return true;
    }
    if (isnan(f) || isinf(f))
        return true;
    if (fabs(f) >= 9.2e18)
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "an integer over 64 bits");
    *out = val_int((int64_t)f);
    return true;
}

static bool f_float(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    double f = 0;
    if (self.kind == V_UNDEF)
        return op_undefined(c, self);
    if (val_is_number(self))
        *out = val_float(val_as_f64(self));
    else if (self.kind == V_STR && parse_float(jstr_view(self.s), &f))
        *out = val_float(f);
    else
        *out = a->pos[0].kind == V_MISSING ? val_float(0) : a->pos[0];
    return true;
}

/* round(f, digits), the decimal way: half to even on the exact binary value. */
static bool round_float(struct rctx *c, double f, int64_t digits, struct val *out)
{
    char tmp[400];
    double r = f;
    if (isnan(f) || isinf(f) || digits > 22 || f == 0) {
        *out = val_float(f);
        return true;
    }
    if (digits >= 0) {
        int n = snprintf(tmp, sizeof tmp, "%.*f", (int)digits, f);
        if (n <= 0 || (size_t)n >= sizeof tmp || !num_parse_f64((str){tmp, (size_t)n}, &r))
            return rt_fail(c, T9_STATUS_INVALID, "round: number out of range");
    } else if (digits < -308) {
        r = 0;
    } else {
        double p = pow(10, (double)-digits);
        r = rint(f / p) * p;
    }
    *out = val_float(r);
    return true;
}

static bool round_int(struct rctx *c, int64_t i, int64_t digits, struct val *out)
{
    int64_t p = 1;
    for (int64_t k = digits; k < 0; k++) {
        if (p > INT64_MAX / 10) {
            *out = val_int(0);
            return true;
        }
        p *= 10;
    }
    int64_t q = i / p, rest = i % p, half = p / 2;
    if (rest < 0) {
        rest += p;
        q--;
    }
    if (p > 1 && (rest > half || (rest == half && q % 2 != 0)))
        q++;
    if (__builtin_mul_overflow(q, p, &i))
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "an integer over 64 bits");
    *out = val_int(i);
    return true;
}

static bool f_round(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t digits, i;
    str method = STR("common");
    if (!arg_int(c, a->pos[0], 0, &digits))
        return false;
    if (a->pos[1].kind == V_STR)
        method = jstr_view(a->pos[1].s);
    if (self.kind == V_UNDEF)
        return op_undefined(c, self);
    if (self.kind == V_UINT)
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "an integer over 64 bits");
    if (!val_is_number(self))
        return rt_fail(c, T9_STATUS_INVALID, "round of %s", val_type_name(self));
    if (str_eqz(method, "common"))
        return val_as_i64(self, &i) ? round_int(c, i, digits < -20 ? -20 : digits, out)
                                    : round_float(c, self.f, digits, out);
    if (!str_eqz(method, "ceil") && !str_eqz(method, "floor"))
        return rt_fail(c, T9_STATUS_INVALID, "round: method must be common, ceil or floor");
    double p = pow(10, (double)digits), f = val_as_f64(self) * p;
    if (isinf(f) || isnan(f) || p == 0)
        return rt_fail(c, T9_STATUS_INVALID, "round: number out of range");
    *out = val_float((str_eqz(method, "ceil") ? ceil(f) : floor(f)) / p);
    return true;
}

/* ---- text ---- */

static bool f_upper(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return val_to_str(c, self, &self) && str_case(c, self.s, UNI_UPPER, out);
}
static bool f_lower(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return val_to_str(c, self, &self) && str_case(c, self.s, UNI_LOWER, out);
}
static bool f_title(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return val_to_str(c, self, &self) && str_case(c, self.s, UNI_TITLE, out);
}
static bool f_capitalize(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return val_to_str(c, self, &self) && str_capitalize(c, self.s, out);
}
static bool f_trim(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return val_to_str(c, self, &self) && str_strip(c, self.s, a->pos[0], 3, out);
}
static bool f_string(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return val_to_str(c, self, out);
}

static bool f_replace(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t count;
    return val_to_str(c, self, &self) && val_to_str(c, a->pos[0], &a->pos[0]) &&
           val_to_str(c, a->pos[1], &a->pos[1]) && arg_int(c, a->pos[2], -1, &count) &&
           str_replace(c, self.s, a->pos[0].s, a->pos[1].s, count, out);
}

static bool f_center(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t width;
    return val_to_str(c, self, &self) && arg_int(c, a->pos[0], 80, &width) &&
           str_pad(c, self.s, width, 3, NULL, out);
}

static bool f_format(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct val args;
    if (a->n && a->n_kw)
        return rt_fail(c, T9_STATUS_INVALID, "format takes positional or keyword arguments");
    if (!val_to_str(c, self, &self))
        return false;
    if (a->n_kw) {
        struct map *m = map_new(c);
        if (!m)
            return false;
        for (size_t i = 0; i < a->n_kw; i++)
            if (!map_set(c, m, val_jstr(a->kw[i].name), a->kw[i].v))
                return false;
        args = (struct val){.kind = V_MAP, .map = m};
    } else if (!val_list(c, a->pos, a->n, V_TUPLE, &args)) {
        return false;
    }
    return format_percent(c, self.s, args, out);
}

static bool make_markup(struct rctx *c, struct val v, struct val *out)
{
    struct jstr *s;
    if (!val_to_str(c, v, &v) || !(s = jstr_new(c, "", 0, 0)))
        return false;
    *s = *v.s;
    s->markup = true;
    *out = val_jstr(s);
    return true;
}

static bool f_safe(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return make_markup(c, self, out);
}

static bool f_escape(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    if (self.kind == V_STR && self.s->markup) {
        *out = self;
        return true;
    }
    return val_to_str(c, self, &self) && jstr_escape_html(c, self.s, out);
}

static bool f_forceescape(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return val_to_str(c, self, &self) && jstr_escape_html(c, self.s, out);
}

static bool indent_text(struct rctx *c, struct val width, struct val *out)
{
    int64_t n;
    if (width.kind == V_STR) {
        *out = width;
        return true;
    }
    if (!arg_int(c, width, 4, &n))
        return false;
    struct val space;
    return val_str(c, " ", &space) && op_binary(c, OP_MUL, space, val_int(n), out);
}

static bool f_indent(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct val ind, nl, with_nl, lines;
    bool first = val_truth(a->pos[1]), blank = val_truth(a->pos[2]);
    struct sb b;
    if (self.kind == V_UNDEF)
        return op_undefined(c, self);
    if (self.kind != V_STR)
        return rt_fail(c, T9_STATUS_INVALID, "indent of %s", val_type_name(self));
    if (!indent_text(c, a->pos[0], &ind) || !val_str(c, "\n", &nl) ||
        !jstr_concat(c, self.s, nl.s, &with_nl) || !str_lines(c, with_nl.s, false, &lines))
        return false;
    sb_init(c, &b, c->limits.max_memory_bytes);
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct jstr *line = lines.list->items[i].s;
        bool indented = i == 0 ? first : blank || line->n > 0;
        if ((i && !sb_put_jstr(&b, nl.s)) || (indented && !sb_put_jstr(&b, ind.s)) ||
            !sb_put_jstr(&b, line))
            return false;
    }
    if (!sb_finish(&b, out))
        return false;
    return !self.s->markup || make_markup(c, *out, out);
}

static bool f_truncate(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t length, leeway;
    struct val end = a->pos[2], head;
    size_t len;
    *out = self;
    if (self.kind != V_STR) {
        if (!val_len(c, self, &len))
            return false;
        return len <= 5 || rt_fail(c, T9_STATUS_UNSUPPORTED,
                                   "truncate of something else than a string is not supported");
    }
    if (!arg_int(c, a->pos[0], 255, &length) || !arg_int(c, a->pos[3], 5, &leeway) ||
        (end.kind == V_MISSING && !val_str(c, "...", &end)))
        return false;
    if (end.kind != V_STR)
        return rt_fail(c, T9_STATUS_INVALID, "truncate: the end must be a string");
    int64_t n = (int64_t)jstr_n_cp(self.s), n_end = (int64_t)jstr_n_cp(end.s);
    if (length < n_end || leeway < 0)
        return rt_fail(c, T9_STATUS_INVALID, "truncate: length is below the end's");
    if (n <= leeway || n - leeway <= length)
        return true;
    size_t to = jstr_offset(self.s, (size_t)(length - n_end));
    if (!val_truth(a->pos[1])) {
        size_t at = to;
        while (at > 0 && self.s->p[at - 1] != ' ')
            at--;
        to = at > 0 ? at - 1 : to;
    }
    return jstr_slice(c, self.s, 0, to, &head) && jstr_concat(c, head.s, end.s, out);
}

static bool f_wordcount(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t n = 0;
    bool inside = false;
    (void)a;
    if (!val_to_str(c, self, &self))
        return false;
    for (size_t i = 0; i < self.s->n;) {
        uint32_t cp;
        i += uni_decode(self.s->p + i, self.s->n - i, &cp);
        bool word = uni_is_alpha(cp) || uni_is_numeric(cp) || cp == '_';
        n += word && !inside;
        inside = word;
    }
    *out = val_int(n);
    return rt_charge(c, self.s->n / 8);
}

static bool f_urlencode(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct sb b;
    (void)a;
    if (self.kind != V_STR && self.kind != V_NONE && self.kind != V_UNDEF && !val_is_number(self))
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "urlencode of %s is not supported",
                       val_type_name(self));
    if (!val_to_str(c, self, &self))
        return false;
    sb_init(c, &b, c->limits.max_memory_bytes);
    for (size_t i = 0; i < self.s->n; i++) {
        unsigned char ch = (unsigned char)self.s->p[i];
        char hex[8];
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                     (ch >= '0' && ch <= '9') || (ch && strchr("_.-~/", ch));
        snprintf(hex, sizeof hex, "%%%02X", ch);
        if (plain ? !sb_put_slice(&b, self.s, i, i + 1)
                  : !sb_put(&b, hex, 3, jstr_origin_at(self.s, i)))
            return false;
    }
    return rt_charge(c, self.s->n / 8) && sb_finish(&b, out);
}

/* ---- any value ---- */

static bool f_default(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    if (self.kind != V_UNDEF && !(val_truth(a->pos[1]) && !val_truth(self))) {
        *out = self;
        return true;
    }
    *out = a->pos[0];
    return a->pos[0].kind != V_MISSING || val_str(c, "", out);
}

static bool f_length(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    size_t n;
    (void)a;
    if (!val_len(c, self, &n))
        return false;
    *out = val_int((int64_t)n);
    return true;
}

static bool f_attr(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    if (self.kind == V_UNDEF)
        return op_undefined(c, self);
    if (!val_to_str(c, a->pos[0], &a->pos[0]))
        return false;
    return op_attr_only(c, self, a->pos[0].s, out);
}

/* separators=(item, key) */
static bool json_separators(struct rctx *c, struct val v, struct json_style *st)
{
    if (!val_given(v))
        return true;
    if (!val_is_listlike(v) || v.list->n != 2 || v.list->items[0].kind != V_STR ||
        v.list->items[1].kind != V_STR)
        return rt_fail(c, T9_STATUS_INVALID, "tojson: separators must be two strings");
    st->item_sep = v.list->items[0].s;
    st->key_sep = v.list->items[1].s;
    return true;
}

static bool f_tojson(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct json_style st = {.ascii = val_truth(a->pos[0]), .sort_keys = val_truth(a->pos[3])};
    struct val indent;
    if (val_given(a->pos[1])) {
        if (!indent_text(c, a->pos[1], &indent))
            return false;
        st.indent = indent.s;
        if (a->pos[1].kind != V_STR &&
            !(st.indent = jstr_new(c, indent.s->p, indent.s->n, JINJA_ORIGIN_USER)))
            return false;
    }
    /* what the template did not write itself is part of the value */
    struct jstr *item = jstr_new(c, ", ", st.indent ? 1 : 2, JINJA_ORIGIN_USER);
    struct jstr *key = jstr_new(c, ": ", 2, JINJA_ORIGIN_USER);
    if (!item || !key)
        return false;
    st.item_sep = item;
    st.key_sep = key;
    struct sb b;
    sb_init(c, &b, c->limits.max_memory_bytes);
    return json_separators(c, a->pos[2], &st) && text_json(&b, self, &st) && sb_finish(&b, out);
}

static bool f_unsupported(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)self;
    (void)a;
    (void)out;
    return rt_fail(c, T9_STATUS_UNSUPPORTED, "this filter is not supported in chat templates");
}

const struct fn filter_table[] = {{"abs", "", f_abs},
                                  {"attr", "!name", f_attr},
                                  {"capitalize", "", f_capitalize},
                                  {"center", "width", f_center},
                                  {"count", "", f_length},
                                  {"d", "default_value boolean", f_default},
                                  {"default", "default_value boolean", f_default},
                                  {"e", "", f_escape},
                                  {"escape", "", f_escape},
                                  {"float", "default", f_float},
                                  {"forceescape", "", f_forceescape},
                                  {"format", NULL, f_format},
                                  {"indent", "width first blank", f_indent},
                                  {"int", "default base", f_int},
                                  {"length", "", f_length},
                                  {"lower", "", f_lower},
                                  {"replace", "!old !new count", f_replace},
                                  {"round", "precision method", f_round},
                                  {"safe", "", f_safe},
                                  {"string", "", f_string},
                                  {"title", "", f_title},
                                  {"tojson", "ensure_ascii indent separators sort_keys", f_tojson},
                                  {"trim", "chars", f_trim},
                                  {"truncate", "length killwords end leeway", f_truncate},
                                  {"upper", "", f_upper},
                                  {"urlencode", "", f_urlencode},
                                  {"wordcount", "", f_wordcount},
                                  {"filesizeformat", NULL, f_unsupported},
                                  {"pprint", NULL, f_unsupported},
                                  {"random", NULL, f_unsupported},
                                  {"striptags", NULL, f_unsupported},
                                  {"urlize", NULL, f_unsupported},
                                  {"wordwrap", NULL, f_unsupported},
                                  {"xmlattr", NULL, f_unsupported},
                                  {NULL, NULL, NULL}};

const struct fn *fn_find(const struct fn *table, str name)
{
    for (; table->name; table++)
        if (str_eqz(name, table->name))
            return table;
    return NULL;
}

const struct fn *filter_find(str name)
{
    const struct fn *fn = fn_find(filter_table, name);
    return fn ? fn : fn_find(filter_table2, name);
}

bool filter_by_name(struct rctx *c, const struct jstr *name, struct val v, struct cargs *a,
                    struct val *out)
{
    const struct fn *fn = filter_find(jstr_view(name));
    if (!fn)
        return rt_fail(c, T9_STATUS_UNSUPPORTED, "no filter is named '" STR_FMT "'",
                       STR_ARG(str_slice(jstr_view(name), 0, name->n > 60 ? 60 : name->n)));
    return fn_call(c, fn, v, a, out);
}
