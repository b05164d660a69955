/*
 * template/format.c - str.format, the % operator on strings, and strftime.
 *
 * The literal parts of a format string keep its origins, substituted strings keep theirs.
 */
#include "template/value.h"

#include "base/num.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define WIDTH_MAX 1000000
#define PREC_MAX  100

struct spec {
    const struct jstr *src; /* the format string, for the origin of the fill */
    const char *fill;       /* NULL: a space, or '0' */
    size_t fill_n;
    char align, sign, group, type;
    bool alt, zero;
    int64_t width, prec; /* prec -1: none */
};

static bool bad_format(struct rctx *c, const char *what)
{
    return rt_fail(c, T9_STATUS_INVALID, "bad format string: %s", what);
}

/* Digits at *i; at most WIDTH_MAX. *out is -1 when there are none. */
static bool read_number(struct rctx *c, str s, size_t *i, int64_t *out)
{
    *out = -1;
    for (; *i < s.n && s.p[*i] >= '0' && s.p[*i] <= '9'; (*i)++) {
        *out = (*out < 0 ? 0 : *out) * 10 + (s.p[*i] - '0');
        if (*out > WIDTH_MAX)
            return rt_fail(c, T9_STATUS_TOO_LARGE, "a width in a format string is too large");
    }
    return true;
}

static bool parse_spec(struct rctx *c, str s, struct spec *f)
{
    size_t i = 0;
    uint32_t cp;
    size_t k = s.n ? uni_decode(s.p, s.n, &cp) : 0;
    f->prec = -1;
    if (k && k < s.n && memchr("<>=^", s.p[k], 4)) {
        f->fill = s.p;
        f->fill_n = k;
        f->align = s.p[k];
        i = k + 1;
    } else if (s.n && memchr("<>=^", s.p[0], 4)) {
        f->align = s.p[i++];
    }
    if (i < s.n && memchr("+- ", s.p[i], 3))
        f->sign = s.p[i++];
    if (i < s.n && s.p[i] == '#') {
        f->alt = true;
        i++;
    }
    if (i < s.n && s.p[i] == '0') {
        f->zero = true;
        i++;
    }
    if (!read_number(c, s, &i, &f->width))
        return false;
    if (i < s.n && (s.p[i] == ',' || s.p[i] == '_'))
        f->group = s.p[i++];
    if (i < s.n && s.p[i] == '.') {
        i++;
        if (!read_number(c, s, &i, &f->prec))
            return false;
        if (f->prec < 0)
            return bad_format(c, "no digits after '.'");
    }
    if (i < s.n)
        f->type = s.p[i++];
    return i == s.n || bad_format(c, "unknown format specifier");
}

static bool put_fill(struct sb *b, const struct spec *f, int64_t n)
{
    uint8_t origin =
        f->fill ? jstr_origin_at(f->src, (size_t)(f->fill - f->src->p)) : JINJA_ORIGIN_TEMPLATE;
    if (n > 0 && !rt_charge(b->c, (uint64_t)n / 4))
        return false;
    for (; n > 0; n--)
        if (!sb_put(b, f->fill ? f->fill : f->zero ? "0" : " ", f->fill ? f->fill_n : 1, origin))
            return false;
    return true;
}

static bool put_padded_str(struct sb *b, const struct jstr *s, struct spec *f)
{
    if (f->type && f->type != 's')
        return bad_format(b->c, "not a format for strings");
    if (f->sign || f->group || f->alt || f->align == '=')
        return bad_format(b->c, "sign, grouping and '=' are for numbers");
    size_t n = jstr_n_cp(s), to = s->n;
    if (f->prec >= 0 && (uint64_t)f->prec < n) {
        n = (size_t)f->prec;
        to = jstr_offset(s, n);
    }
    int64_t pad = f->width > (int64_t)n ? f->width - (int64_t)n : 0;
    int64_t left = f->align == '>' ? pad : f->align == '^' ? pad / 2 : 0;
    return put_fill(b, f, left) && sb_put_slice(b, s, 0, to) && put_fill(b, f, pad - left);
}

/* Inserts group separators into the integer digits of the number text at `digits`. */
static size_t group_digits(char *text, size_t n, size_t cap, char sep, size_t every)
{
    size_t int_n = 0, out = n;
    while (int_n < n && ((text[int_n] >= '0' && text[int_n] <= '9') ||
                         (every == 4 && ((text[int_n] | 32) >= 'a' && (text[int_n] | 32) <= 'f'))))
        int_n++;
    for (size_t at = int_n; at > every && out + 1 < cap;) {
        at -= every;
        memmove(text + at + 1, text + at, out - at);
        text[at] = sep;
        out++;
    }
    return out;
}

/* sign and prefix ("-0x"), then digits, padded to the width. */
static bool put_padded_number(struct sb *b, struct spec *f, bool negative, const char *prefix,
                              char *text, size_t n, size_t cap)
{
    char head[8];
    size_t h = 0;
    if (negative)
        head[h++] = '-';
    else if (f->sign == '+' || f->sign == ' ')
        head[h++] = f->sign;
    for (; *prefix; prefix++)
        head[h++] = *prefix;
    if (f->group) {
        bool by4 = f->group == '_' && f->type && strchr("boxX", f->type);
        n = group_digits(text, n, cap, f->group, by4 ? 4 : 3);
    }
    char align = f->align ? f->align : f->zero ? '=' : '>';
    int64_t pad = f->width - (int64_t)(h + n);
    if (pad < 0)
        pad = 0;
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    int64_t inner = align == '=' ? pad : 0;
    return put_fill(b, f, left) && sb_put(b, head, h, JINJA_ORIGIN_TEMPLATE) &&
           put_fill(b, f, inner) && sb_put(b, text, n, JINJA_ORIGIN_TEMPLATE) &&
           put_fill(b, f, pad - left - inner);
}

static bool put_float(struct sb *b, double v, struct spec *f)
{
    char text[640], fmt[16];
    bool negative = signbit(v) && !isnan(v);
    double m = fabs(v);
    char type = f->type;
    if (type && !strchr("eEfFgGn%", type))
        return bad_format(b->c, "not a format for numbers");
    if (f->prec > PREC_MAX)
        return rt_fail(b->c, T9_STATUS_UNSUPPORTED, "more than %d digits in a format", PREC_MAX);
    if (isnan(v) || isinf(v)) {
        bool big = type == 'E' || type == 'F' || type == 'G';
        memcpy(text, isnan(v) ? (big ? "NAN" : "nan") : (big ? "INF" : "inf"), 3);
        return put_padded_number(b, f, negative, "", text, 3, sizeof text);
    }
    size_t n;
    if (!type && f->prec < 0) {
        n = text_float(m, text);
    } else {
        if (type == '%')
            m *= 100;
        char conv = type == '%' ? 'f' : type == 'n' || !type ? 'g' : type;
        snprintf(fmt, sizeof fmt, "%%%s.*%c", f->alt ? "#" : "", conv);
        int prec = f->prec < 0 ? 6 : (int)f->prec;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = (size_t)snprintf(text, sizeof text, fmt, prec, m);
#pragma GCC diagnostic pop
        if (n >= sizeof text - 8)
            return rt_fail(b->c, T9_STATUS_UNSUPPORTED, "a number with too many digits");
        if (!type && !memchr(text, '.', n) && !memchr(text, 'e', n)) {
            memcpy(text + n, ".0", 2);
            n += 2;
        }
        if (type == '%')
            text[n++] = '%';
    }
    return put_padded_number(b, f, negative, "", text, n, sizeof text);
}

static size_t int_digits(uint64_t u, unsigned base, bool upper, char out[72])
{
    char tmp[72];
    size_t n = 0;
    do {
        tmp[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[u % base];
        u /= base;
    } while (u);
    for (size_t i = 0; i < n; i++)
        out[i] = tmp[n - 1 - i];
    return n;
}

static bool put_int(struct sb *b, struct val v, struct spec *f)
{
    char text[256];
    char type = f->type ? f->type : 'd';
    bool negative = v.kind == V_INT && v.i < 0;
    uint64_t u = v.kind == V_UINT ? v.u : v.kind == V_BOOL ? v.b : (uint64_t)v.i;
    if (negative)
        u = 0 - u;
    if (strchr("eEfFgG%", type))
        return put_float(b, val_as_f64(v), f);
    if (!strchr("bdoxXn", type))
        return bad_format(b->c, "not a format for integers");
    if (f->prec >= 0)
        return bad_format(b->c, "a precision for an integer");
    unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'x' || type == 'X' ? 16 : 10;
    size_t n = int_digits(u, base, type == 'X', text);
    const char *prefix = !f->alt       ? ""
                         : base == 2   ? "0b"
                         : base == 8   ? "0o"
                         : type == 'x' ? "0x"
                         : type == 'X' ? "0X"
                                       : "";
    return put_padded_number(b, f, negative, prefix, text, n, sizeof text);
}

/* format(v, spec) */
static bool put_formatted(struct sb *b, struct val v, const struct jstr *src, str spec)
{
    struct spec f = {.src = src};
    struct val s;
    if (spec.n == 0)
        return text_str(b, v);
    if (!parse_spec(b->c, spec, &f))
        return false;
    if (v.kind == V_STR) {
        if (f.zero && !f.align)
            f.align = '<';
        return put_padded_str(b, v.s, &f);
    }
    if (v.kind == V_FLOAT)
        return put_float(b, v.f, &f);
    if (val_is_number(v))
        return put_int(b, v, &f);
    if (v.kind == V_UNDEF && val_to_str(b->c, v, &s))
        return put_padded_str(b, s.s, &f);
    return rt_fail(b->c, T9_STATUS_INVALID, "a format for %s must be empty", val_type_name(v));
}

/* ---- str.format ---- */

struct format_state {
    struct cargs *a;
    int64_t next; /* automatic numbering; -1 after a number was given */
};

static bool kwarg_get(struct rctx *c, const struct cargs *a, str name, struct val *out)
{
    for (size_t i = 0; i < a->n_kw; i++) {
        if (str_eq(jstr_view(a->kw[i].name), name)) {
            *out = a->kw[i].v;
            return true;
        }
    }
    return rt_fail(c, T9_STATUS_INVALID, "format: no argument is named '" STR_FMT "'",
                   STR_ARG(str_slice(name, 0, name.n > 60 ? 60 : name.n)));
}

static bool field_root(struct rctx *c, struct format_state *st, str name, struct val *out)
{
    int64_t i;
    if (name.n == 0) {
        if (st->next < 0)
            return bad_format(c, "numbered and unnumbered fields are mixed");
        i = st->next++;
    } else if (num_parse_i64(name, &i) && i >= 0) {
        if (st->next > 0)
            return bad_format(c, "numbered and unnumbered fields are mixed");
        st->next = -1;
    } else {
        return kwarg_get(c, st->a, name, out);
    }
    if ((uint64_t)i >= st->a->n)
        return rt_fail(c, T9_STATUS_INVALID, "format: argument %" PRId64 " is missing", i);
    *out = st->a->pos[i];
    return true;
}

/* "name.attr[key]" */
static bool field_value(struct rctx *c, struct format_state *st, str f, struct val *out)
{
    size_t i = 0;
    while (i < f.n && f.p[i] != '.' && f.p[i] != '[')
        i++;
    if (!field_root(c, st, str_slice(f, 0, i), out))
        return false;
    while (i < f.n) {
        bool item = f.p[i] == '[';
        if (!item && f.p[i] != '.')
            return bad_format(c, "expected '.' or '[' in a field");
        size_t from = ++i;
        while (i < f.n && (item ? f.p[i] != ']' : f.p[i] != '.' && f.p[i] != '['))
            i++;
        str part = str_slice(f, from, i);
        if (part.n == 0 || (item && i++ == f.n))
            return bad_format(c, "an empty or open part in a field");
        int64_t idx;
        struct jstr *name = jstr_new(c, part.p, part.n, JINJA_ORIGIN_USER);
        struct val obj = *out;
        if (!name)
            return false;
        bool ok = !item                                   ? op_getattr(c, obj, name, out)
                  : num_parse_i64(part, &idx) && idx >= 0 ? op_getitem(c, obj, val_int(idx), out)
                                                          : op_getitem(c, obj, val_jstr(name), out);
        if (!ok)
            return false;
    }
    return true;
}

/* The inside of one {...}. */
static bool put_field(struct sb *b, struct format_state *st, const struct jstr *fmt, str f)
{
    struct val v;
    size_t i = 0;
    while (i < f.n && f.p[i] != '!' && f.p[i] != ':') {
        if (f.p[i] == '[')
            while (i < f.n && f.p[i] != ']')
                i++;
        i += i < f.n;
    }
    if (!field_value(b->c, st, str_slice(f, 0, i), &v))
        return false;
    if (i < f.n && f.p[i] == '!') {
        char conv = i + 1 < f.n ? f.p[i + 1] : 0;
        struct sb t;
        if ((conv != 's' && conv != 'r') || (i + 2 < f.n && f.p[i + 2] != ':'))
            return bad_format(b->c, "unknown conversion");
        sb_init(b->c, &t, b->max);
        if (!(conv == 's' ? text_str(&t, v) : text_repr(&t, v)) || !sb_finish(&t, &v))
            return false;
        i += 2;
    }
    return put_formatted(b, v, fmt, i < f.n ? str_slice(f, i + 1, f.n) : (str){0});
}

bool format_method(struct rctx *c, const struct jstr *fmt, struct cargs *a, struct val *out)
{
    struct sb b;
    struct format_state st = {.a = a};
    sb_init(c, &b, c->limits.max_memory_bytes);
    size_t plain = 0;
    if (!rt_charge(c, fmt->n / 16))
        return false;
    for (size_t i = 0; i < fmt->n; i++) {
        char ch = fmt->p[i];
        if (ch != '{' && ch != '}')
            continue;
        if (!sb_put_slice(&b, fmt, plain, i))
            return false;
        if (i + 1 < fmt->n && fmt->p[i + 1] == ch) {
            plain = ++i;
            continue;
        }
        if (ch == '}')
            return bad_format(c, "single '}'");
        size_t from = ++i;
        while (i < fmt->n && fmt->p[i] != '}' && fmt->p[i] != '{')
            i++;
        if (i == fmt->n)
            return bad_format(c, "a field is not closed");
        if (fmt->p[i] == '{')
            return rt_fail(c, T9_STATUS_UNSUPPORTED, "nested fields in a format string");
        if (!rt_charge(c, 1) || !put_field(&b, &st, fmt, str_slice(jstr_view(fmt), from, i)))
            return false;
        plain = i + 1;
    }
    return sb_put_slice(&b, fmt, plain, fmt->n) && sb_finish(&b, out);
}

/* ---- % ---- */

struct percent {
    struct val args;
    size_t next, n;
};

static bool percent_next(struct rctx *c, struct percent *p, struct val *out)
{
    if (p->args.kind == V_TUPLE) {
        if (p->next >= p->n)
            return rt_fail(c, T9_STATUS_INVALID, "not enough arguments for a format string");
        *out = p->args.list->items[p->next++];
        return true;
    }
    if (p->next++ > 0)
        return rt_fail(c, T9_STATUS_INVALID, "not enough arguments for a format string");
    *out = p->args;
    return true;
}

/* Flags, width, precision after '%' (and its key); leaves *i at the conversion. */
static bool percent_spec(struct rctx *c, const struct jstr *fmt, size_t *i, struct percent *p,
                         struct spec *f)
{
    str s = jstr_view(fmt);
    bool left = false;
    for (; *i < s.n && memchr("#0- +", s.p[*i], 5); (*i)++) {
        left |= s.p[*i] == '-';
        f->zero |= s.p[*i] == '0';
        f->alt |= s.p[*i] == '#';
        if (s.p[*i] == '+' || (s.p[*i] == ' ' && !f->sign))
            f->sign = s.p[*i];
    }
    for (int k = 0; k < 2; k++) {
        int64_t *to = k == 0 ? &f->width : &f->prec;
        if (k == 1 && (*i >= s.n || s.p[*i] != '.'))
            break;
        *i += k == 1;
        if (*i < s.n && s.p[*i] == '*') {
            struct val v;
            if (!percent_next(c, p, &v))
                return false;
            if (!val_as_i64(v, to) || *to > WIDTH_MAX || *to < -WIDTH_MAX)
                return bad_format(c, "'*' needs a small integer");
            if (k == 0 && *to < 0) {
                left = true;
                *to = -*to;
            }
            (*i)++;
        } else if (!read_number(c, s, i, to)) {
            return false;
        }
        if (k == 1 && *to < 0)
            *to = 0;
    }
    if (*i < s.n && memchr("hlL", s.p[*i], 3))
        (*i)++;
    f->align = left ? '<' : f->zero ? '=' : '>';
    if (left)
        f->zero = false;
    return true;
}

static bool percent_number(struct sb *b, struct val v, char conv, struct spec *f)
{
    if (!val_is_number(v))
        return rt_fail(b->c, T9_STATUS_INVALID, "%%%c needs a number, not %s", conv,
                       val_type_name(v));
    f->type = conv;
    if (strchr("eEfFgG", conv))
        return put_float(b, val_as_f64(v), f);
    if (v.kind == V_FLOAT) {
        if (strchr("xXo", conv) || isnan(v.f) || fabs(v.f) >= 9e18)
            return rt_fail(b->c, T9_STATUS_INVALID, "%%%c needs an integer", conv);
        v = val_int((int64_t)v.f);
    }
    f->type = conv == 'i' || conv == 'u' ? 'd' : conv;
    if (f->prec >= 0)
        return rt_fail(b->c, T9_STATUS_UNSUPPORTED, "a precision for an integer in %% formatting");
    return put_int(b, v, f);
}

static bool percent_conv(struct sb *b, struct val v, char conv, struct spec *f)
{
    struct sb t;
    struct val s;
    switch (conv) {
    case 's':
    case 'r':
    case 'a':
        sb_init(b->c, &t, b->max);
        if (!(conv == 's' ? text_str(&t, v) : text_repr(&t, v)) || !sb_finish(&t, &s))
            return false;
        f->sign = 0;
        f->alt = f->zero = false;
        f->align = f->align == '<' ? '<' : '>';
        return put_padded_str(b, s.s, f);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': return percent_number(b, v, conv, f);
    case 'c':
        if (v.kind == V_STR && jstr_n_cp(v.s) == 1) {
            f->zero = false;
            f->align = f->align == '<' ? '<' : '>';
            f->sign = 0;
            return put_padded_str(b, v.s, f);
        }
        return bad_format(b->c, "%c needs one character");
    default: return bad_format(b->c, "unknown conversion after '%'");
    }
}

/* One conversion from just after its '%'. */
static bool percent_one(struct sb *b, const struct jstr *fmt, size_t *i, struct percent *p)
{
    struct spec f = {.src = fmt, .prec = -1};
    struct val v = val_missing();
    bool keyed = *i < fmt->n && fmt->p[*i] == '(';
    if (keyed) {
        size_t from = ++*i;
        while (*i < fmt->n && fmt->p[*i] != ')')
            (*i)++;
        if (*i == fmt->n || p->args.kind != V_MAP)
            return bad_format(b->c, "a key needs a mapping");
        struct jstr *key = jstr_new(b->c, fmt->p + from, *i - from, JINJA_ORIGIN_USER);
        bool found;
        if (!key || !map_get(b->c, p->args.map, val_jstr(key), &v, &found))
            return false;
        if (!found)
            return bad_format(b->c, "a key is not in the mapping");
        (*i)++;
    }
    if (!percent_spec(b->c, fmt, i, p, &f))
        return false;
    if (*i == fmt->n)
        return bad_format(b->c, "incomplete conversion");
    char conv = fmt->p[(*i)++];
    if (conv == '%')
        return sb_put_slice(b, fmt, *i - 1, *i);
    if (!keyed && !percent_next(b->c, p, &v))
        return false;
    return percent_conv(b, v, conv, &f);
}

bool format_percent(struct rctx *c, const struct jstr *fmt, struct val args, struct val *out)
{
    struct sb b;
    struct percent p = {.args = args, .n = args.kind == V_TUPLE ? args.list->n : 1};
    size_t plain = 0, i = 0;
    sb_init(c, &b, c->limits.max_memory_bytes);
    if (!rt_charge(c, fmt->n / 16))
        return false;
    while (i < fmt->n) {
        if (fmt->p[i] != '%') {
            i++;
            continue;
        }
        if (!rt_charge(c, 1) || !sb_put_slice(&b, fmt, plain, i))
            return false;
        i++;
        if (!percent_one(&b, fmt, &i, &p))
            return false;
        plain = i;
    }
    bool may_be_left = args.kind == V_MAP || args.kind == V_LIST || args.kind == V_RANGE;
    if (p.next < p.n && !(args.kind != V_TUPLE && may_be_left))
        return rt_fail(c, T9_STATUS_INVALID, "not all arguments of a format string were used");
    return sb_put_slice(&b, fmt, plain, fmt->n) && sb_finish(&b, out);
}

/* ---- strftime ---- */

/* Civil date of a day count since 1970-01-01 (proleptic Gregorian, eras of 400 years). */
static void civil(int64_t unix_s, struct tm *tm)
{
    int64_t days = unix_s / 86400, secs = unix_s % 86400;
    if (secs < 0) {
        secs += 86400;
        days--;
    }
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    int64_t month = mp < 10 ? mp + 3 : mp - 9, year = yoe + era * 400 + (month <= 2);
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    *tm = (struct tm){.tm_year = (int)(year - 1900),
                      .tm_mon = (int)month - 1,
                      .tm_mday = (int)(doy - (153 * mp + 2) / 5 + 1),
                      .tm_hour = (int)(secs / 3600),
                      .tm_min = (int)(secs / 60 % 60),
                      .tm_sec = (int)(secs % 60),
                      .tm_wday = (int)(((days + 4) % 7 + 7) % 7)};
    tm->tm_yday = before[month - 1] + tm->tm_mday - 1 + (leap && month > 2);
}

bool format_strftime(struct rctx *c, const struct jstr *fmt, struct val *out)
{
    struct tm tm;
    int64_t now = c->env.now_unix_s;
    if (now > (int64_t)1 << 36 || now < -((int64_t)1 << 36))
        return rt_fail(c, T9_STATUS_INVALID, "the clock is out of range");
    civil(now + c->env.utc_offset_s, &tm);
    struct sb b;
    sb_init(c, &b, c->limits.max_memory_bytes);
    for (size_t i = 0; i < fmt->n;) {
        size_t from = i++;
        if (fmt->p[from] != '%' || i == fmt->n) {
            if (!sb_put_slice(&b, fmt, from, i))
                return false;
            continue;
        }
        if (memchr("-_0^#", fmt->p[i], 5) && i + 1 < fmt->n)
            i++;
        char conv = fmt->p[i++], one[8] = {0}, text[96];
        if (conv == 'z' || conv == 'Z') /* a naive time has no zone */
            continue;
        if (conv == 'f') {
            if (!sb_put(&b, "000000", 6, JINJA_ORIGIN_TEMPLATE))
                return false;
            continue;
        }
        if (!conv || !strchr("aAbBcCdDeFgGhHIjmMnprRsStTuUVwWxXyY%", conv) || conv == 's')
            return rt_fail(c, T9_STATUS_UNSUPPORTED, "strftime_now: '%%%c' is not supported",
                           conv >= 0x20 && conv < 0x7f ? conv : '?');
        memcpy(one, fmt->p + from, i - from);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        size_t n = strftime(text, sizeof text, one, &tm);
#pragma GCC diagnostic pop
        if (!sb_put(&b, text, n, JINJA_ORIGIN_TEMPLATE))
            return false;
    }
    return rt_charge(c, fmt->n) && sb_finish(&b, out);
}
