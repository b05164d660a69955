/*
 * template/text.c - values as text: Python's str() and repr(), and json.dumps.
 *
 * Strings inside keep their origins byte by byte; the punctuation around them and the numbers
 * between them count as the user's, so nothing that a container prints can pass for the template's.
 * A number or constant printed by itself counts as the template's.
 */
#include "template/value.h"

#include "base/num.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PUNCT JINJA_ORIGIN_USER

/* Digits (no leading or trailing zeros) and decimal exponent: value = 0.d1d2d3... * 10^exp10. */
static size_t shortest_digits(double f, char digits[20], int *exp10)
{
    char tmp[40];
    for (int prec = 0; prec < 17; prec++) {
        snprintf(tmp, sizeof tmp, "%.*e", prec, f);
        double back;
        if ((num_parse_f64(str_from(tmp), &back) && back == f) || prec == 16)
            break;
    }
    size_t n = 0;
    const char *q = tmp;
    for (; *q && *q != 'e'; q++)
        if (*q >= '0' && *q <= '9' && n < 18)
            digits[n++] = *q;
    int64_t e = 0;
    if (*q == 'e')
        num_parse_i64(str_from(q[1] == '+' ? q + 2 : q + 1), &e);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    *exp10 = (int)e + 1;
    return n;
}

size_t text_float(double f, char out[40])
{
    if (isnan(f) || isinf(f)) {
        const char *z = isnan(f) ? "nan" : f < 0 ? "-inf" : "inf";
        memcpy(out, z, strlen(z) + 1);
        return strlen(z);
    }
    size_t w = 0;
    if (signbit(f))
        out[w++] = '-';
    f = fabs(f);
    if (f == 0) {
        memcpy(out + w, "0.0", 4);
        return w + 3;
    }
    char d[20] = {0};
    int point;
    size_t n = shortest_digits(f, d, &point);
    if (point > -4 && point <= 16) {
        if (point <= 0)
            out[w++] = '0';
        for (int i = 0; i < point; i++)
            out[w++] = (size_t)i < n ? d[i] : '0';
        out[w++] = '.';
        for (int i = point; i < 0; i++)
            out[w++] = '0';
        size_t from = point > 0 ? (size_t)point : 0;
        if (from >= n)
            out[w++] = '0';
        for (size_t i = from; i < n; i++)
            out[w++] = d[i];
        out[w] = 0;
        return w;
    }
    out[w++] = d[0];
    if (n > 1) {
        out[w++] = '.';
        memcpy(out + w, d + 1, n - 1);
        w += n - 1;
    }
    int e = point - 1;
    w += (size_t)snprintf(out + w, 8, "e%c%02d", e < 0 ? '-' : '+', e < 0 ? -e : e);
    return w;
}

static bool put_z(struct sb *b, const char *z, uint8_t origin)
{
    return sb_put(b, z, strlen(z), origin);
}

/* None, booleans and numbers. */
static bool put_scalar(struct sb *b, struct val v, uint8_t origin)
{
    char tmp[40];
    switch (v.kind) {
    case V_NONE: return put_z(b, "None", origin);
    case V_BOOL: return put_z(b, v.b ? "True" : "False", origin);
    case V_INT: snprintf(tmp, sizeof tmp, "%" PRId64, v.i); return put_z(b, tmp, origin);
    case V_UINT: snprintf(tmp, sizeof tmp, "%" PRIu64, v.u); return put_z(b, tmp, origin);
    default: return sb_put(b, tmp, text_float(v.f, tmp), origin);
    }
}

/* ---- repr ---- */

static bool repr_char(struct sb *b, const struct jstr *s, size_t i, size_t len, uint32_t cp,
                      char quote)
{
    char tmp[16];
    uint8_t origin = jstr_origin_at(s, i);
    if (cp == '\\' || cp == (unsigned char)quote) {
        tmp[0] = '\\';
        tmp[1] = (char)cp;
        return sb_put(b, tmp, 2, origin);
    }
    if (cp == '\n' || cp == '\r' || cp == '\t')
        return put_z(b, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t", origin);
    if (uni_printable(cp))
        return sb_put_slice(b, s, i, i + len);
    snprintf(tmp, sizeof tmp, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    return put_z(b, tmp, origin);
}

static bool repr_str(struct sb *b, const struct jstr *s)
{
    char quote = s->n && memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    size_t i = 0, plain = 0;
    if (s->markup && !put_z(b, "Markup(", PUNCT))
        return false;
    if (!sb_put(b, &quote, 1, PUNCT) || !rt_charge(b->c, s->n / 16))
        return false;
    while (i < s->n) {
        uint32_t cp;
        size_t len = uni_decode(s->p + i, s->n - i, &cp);
        if (cp < 0x20 || cp >= 0x7f || cp == '\\' || cp == (unsigned char)quote) {
            if (!sb_put_slice(b, s, plain, i) || !repr_char(b, s, i, len, cp, quote))
                return false;
            plain = i + len;
        }
        i += len;
    }
    return sb_put_slice(b, s, plain, s->n) && sb_put(b, &quote, 1, PUNCT) &&
           (!s->markup || put_z(b, ")", PUNCT));
}

static bool repr_items(struct sb *b, const struct seq *s, const char *open, const char *close)
{
    if (!put_z(b, open, PUNCT))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        if (i && !put_z(b, ", ", PUNCT))
            return false;
        if (!text_repr(b, seq_at(s, i)))
            return false;
    }
    return put_z(b, close, PUNCT);
}

static bool repr_map(struct sb *b, const struct map *m)
{
    if (!put_z(b, "{", PUNCT))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        if (i && !put_z(b, ", ", PUNCT))
            return false;
        if (!text_repr(b, m->keys[i]) || !put_z(b, ": ", PUNCT) || !text_repr(b, m->vals[i]))
            return false;
    }
    return put_z(b, "}", PUNCT);
}

static bool repr_range(struct sb *b, const struct range *r)
{
    char tmp[96];
    if (r->step == 1)
        snprintf(tmp, sizeof tmp, "range(%" PRId64 ", %" PRId64 ")", r->start, r->stop);
    else
        snprintf(tmp, sizeof tmp, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", r->start, r->stop,
                 r->step);
    return put_z(b, tmp, PUNCT);
}

static bool repr_nested(struct sb *b, struct val v)
{
    static const char *const views[] = {"dict_keys([", "dict_values([", "dict_items(["};
    struct seq s;
    switch (v.kind) {
    case V_LIST:
    case V_TUPLE:
        if (!val_seq(b->c, v, &s))
            return false;
        if (v.kind == V_LIST)
            return repr_items(b, &s, "[", "]");
        return repr_items(b, &s, "(", s.n == 1 ? ",)" : ")");
    case V_MAP: return repr_map(b, v.map);
    case V_NS: return put_z(b, "<Namespace ", PUNCT) && repr_map(b, v.map) && put_z(b, ">", PUNCT);
    case V_VIEW: return val_seq(b->c, v, &s) && repr_items(b, &s, views[v.sub], "])");
    case V_RANGE: return repr_range(b, v.range);
    case V_UNDEF: return put_z(b, "Undefined", PUNCT);
    default:
        /* an object without a printed form: Python shows its address */
        return put_z(b, "<", PUNCT) && put_z(b, val_type_name(v), PUNCT) && put_z(b, ">", PUNCT);
    }
}

bool text_repr(struct sb *b, struct val v)
{
    if (v.kind == V_STR)
        return repr_str(b, v.s);
    if (v.kind == V_NONE || val_is_number(v))
        return put_scalar(b, v, PUNCT);
    if (!rt_charge(b->c, 1) || !rt_enter(b->c))
        return false;
    bool ok = repr_nested(b, v);
    rt_leave(b->c);
    return ok;
}

bool text_str(struct sb *b, struct val v)
{
    if (v.kind == V_STR)
        return sb_put_jstr(b, v.s);
    if (v.kind == V_UNDEF)
        return v.sub != UNDEF_UNSAFE || op_undefined(b->c, v);
    if (v.kind == V_NONE || val_is_number(v))
        return put_scalar(b, v, JINJA_ORIGIN_TEMPLATE);
    return text_repr(b, v);
}

bool val_to_str(struct rctx *c, struct val v, struct val *out)
{
    struct sb b;
    if (v.kind == V_STR) {
        *out = v;
        return true;
    }
    sb_init(c, &b, c->limits.max_memory_bytes);
    return text_str(&b, v) && sb_finish(&b, out);
}

/* ---- JSON ---- */

static bool json_escape(struct sb *b, const struct jstr *s, size_t i, uint32_t cp)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    char tmp[16];
    const char *q = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (q)
        snprintf(tmp, sizeof tmp, "\\%c", to[q - from]);
    else if (cp < 0x10000)
        snprintf(tmp, sizeof tmp, "\\u%04x", cp);
    else
        snprintf(tmp, sizeof tmp, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                 0xdc00 + ((cp - 0x10000) & 0x3ff));
    return put_z(b, tmp, jstr_origin_at(s, i));
}

static bool json_str_text(struct sb *b, const struct jstr *s, const struct json_style *st)
{
    size_t i = 0, plain = 0;
    if (!put_z(b, "\"", PUNCT) || !rt_charge(b->c, s->n / 32))
        return false;
    while (i < s->n) {
        unsigned char ch = (unsigned char)s->p[i];
        if (ch >= 0x20 && ch != '"' && ch != '\\' && (ch < 0x7f || !st->ascii)) {
            i++;
            continue;
        }
        uint32_t cp;
        size_t len = uni_decode(s->p + i, s->n - i, &cp);
        if (!sb_put_slice(b, s, plain, i) || !json_escape(b, s, i, cp))
            return false;
        i += len;
        plain = i;
    }
    return sb_put_slice(b, s, plain, s->n) && put_z(b, "\"", PUNCT);
}

static bool json_scalar(struct sb *b, struct val v)
{
    if (v.kind == V_NONE)
        return put_z(b, "null", PUNCT);
    if (v.kind == V_BOOL)
        return put_z(b, v.b ? "true" : "false", PUNCT);
    if (v.kind == V_FLOAT && isnan(v.f))
        return put_z(b, "NaN", PUNCT);
    if (v.kind == V_FLOAT && isinf(v.f))
        return put_z(b, v.f < 0 ? "-Infinity" : "Infinity", PUNCT);
    return put_scalar(b, v, PUNCT);
}

static bool json_key(struct sb *b, struct val k, const struct json_style *st)
{
    if (k.kind == V_STR)
        return json_str_text(b, k.s, st);
    if (k.kind != V_NONE && !val_is_number(k))
        return rt_fail(b->c, T9_STATUS_INVALID, "%s can't be a JSON key", val_type_name(k));
    return put_z(b, "\"", PUNCT) && json_scalar(b, k) && put_z(b, "\"", PUNCT);
}

static bool json_line(struct sb *b, const struct json_style *st, uint32_t level)
{
    if (!st->indent)
        return true;
    if (!put_z(b, "\n", PUNCT))
        return false;
    for (uint32_t i = 0; i < level; i++)
        if (!sb_put_jstr(b, st->indent))
            return false;
    return true;
}

static bool json_any(struct sb *b, struct val v, const struct json_style *st, uint32_t level);

/* Sorted keys come as an array of indices into the map. */
static bool json_map(struct sb *b, const struct map *m, const struct json_style *st, uint32_t level)
{
    struct val *keys = m->keys, *vals = m->vals;
    if (m->n == 0)
        return put_z(b, "{}", PUNCT);
    if (st->sort_keys) {
        keys = rt_alloc(b->c, m->n, sizeof *keys);
        vals = keys ? rt_alloc(b->c, m->n, sizeof *vals) : NULL;
        if (!vals)
            return false;
        memcpy(keys, m->keys, m->n * sizeof *keys);
        memcpy(vals, m->vals, m->n * sizeof *vals);
        if (!val_sort(b->c, keys, vals, m->n, false))
            return false;
    }
    if (!put_z(b, "{", PUNCT))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        if ((i && !sb_put_jstr(b, st->item_sep)) || !json_line(b, st, level + 1) ||
            !json_key(b, keys[i], st) || !sb_put_jstr(b, st->key_sep) ||
            !json_any(b, vals[i], st, level + 1))
            return false;
    }
    return json_line(b, st, level) && put_z(b, "}", PUNCT);
}

static bool json_list(struct sb *b, const struct list *l, const struct json_style *st,
                      uint32_t level)
{
    if (l->n == 0)
        return put_z(b, "[]", PUNCT);
    if (!put_z(b, "[", PUNCT))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        if ((i && !sb_put_jstr(b, st->item_sep)) || !json_line(b, st, level + 1) ||
            !json_any(b, l->items[i], st, level + 1))
            return false;
    }
    return json_line(b, st, level) && put_z(b, "]", PUNCT);
}

static bool json_any(struct sb *b, struct val v, const struct json_style *st, uint32_t level)
{
    if (v.kind == V_STR)
        return json_str_text(b, v.s, st);
    if (v.kind == V_NONE || val_is_number(v))
        return json_scalar(b, v);
    if (!val_is_listlike(v) && v.kind != V_MAP)
        return rt_fail(b->c, T9_STATUS_INVALID, "%s can't be written as JSON", val_type_name(v));
    if (!rt_charge(b->c, 1) || !rt_enter(b->c))
        return false;
    bool ok = v.kind == V_MAP ? json_map(b, v.map, st, level) : json_list(b, v.list, st, level);
    rt_leave(b->c);
    return ok;
}

bool text_json(struct sb *b, struct val v, const struct json_style *st)
{
    return json_any(b, v, st, 0);
}
