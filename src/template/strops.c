/*
 * template/strops.c - the methods of Python's str, and the string operations that filters share
 * with them. Offsets and counts are in code points where Python's are; results keep their bytes'
 * origins.
 */
#include "base/utf8.h"
#include "template/value.h"

#include <string.h>

static bool want_str(struct rctx *c, struct val v, const struct jstr **out)
{
    *out = v.kind == V_STR ? v.s : NULL;
    if (v.kind == V_UNDEF)
        return op_undefined(c, v);
    return *out || rt_fail(c, T9_STATUS_INVALID, "expected a string, not %s", val_type_name(v));
}

static bool want_int(struct rctx *c, struct val v, int64_t absent, int64_t *out)
{
    *out = absent;
    if (v.kind == V_MISSING || val_as_i64(v, out))
        return true;
    if (v.kind == V_UNDEF)
        return op_undefined(c, v);
    return rt_fail(c, T9_STATUS_INVALID, "expected an integer, not %s", val_type_name(v));
}

/* Bytes of the character before `end`. */
static size_t char_before(const struct jstr *s, size_t end)
{
    size_t k = end - 1;
    while (k > 0 && ((unsigned char)s->p[k] & 0xc0) == 0x80)
        k--;
    return end - k;
}

/* ---- strip ---- */

static bool in_set(const struct jstr *chars, const char *p, size_t n)
{
    if (!chars)
        return uni_space_len(p, n) == n;
    return str_find(jstr_view(chars), (str){p, n}, 0) != (size_t)-1;
}

bool str_strip(struct rctx *c, const struct jstr *s, struct val chars, int sides, struct val *out)
{
    const struct jstr *set = NULL;
    size_t from = 0, to = s->n;
    if (val_given(chars) && !want_str(c, chars, &set))
        return false;
    while ((sides & 1) && from < to) {
        uint32_t cp;
        size_t k = uni_decode(s->p + from, to - from, &cp);
        if (!in_set(set, s->p + from, k))
            break;
        from += k;
    }
    while ((sides & 2) && to > from) {
        size_t k = char_before(s, to);
        if (!in_set(set, s->p + to - k, k))
            break;
        to -= k;
    }
    uint64_t cut = from + (s->n - to);
    return rt_charge(c, cut / 16 * (set ? set->n / 16 + 1 : 1)) && jstr_slice(c, s, from, to, out);
}

static bool m_strip(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return str_strip(c, self.s, a->pos[0], 3, out);
}
static bool m_lstrip(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return str_strip(c, self.s, a->pos[0], 1, out);
}
static bool m_rstrip(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return str_strip(c, self.s, a->pos[0], 2, out);
}

/* ---- split ---- */

static bool push_slice(struct rctx *c, struct vals *v, const struct jstr *s, size_t from, size_t to)
{
    struct val piece;
    return jstr_slice(c, s, from, to, &piece) && vals_push(c, v, piece);
}

static bool split_space(struct rctx *c, const struct jstr *s, int64_t max, struct vals *v)
{
    size_t i = 0, k;
    for (;;) {
        while (i < s->n && (k = uni_space_len(s->p + i, s->n - i)) > 0)
            i += k;
        if (i == s->n)
            return true;
        if (max == 0)
            break;
        size_t from = i;
        uint32_t cp;
        while (i < s->n && !uni_space_len(s->p + i, s->n - i))
            i += uni_decode(s->p + i, s->n - i, &cp);
        if (!push_slice(c, v, s, from, i))
            return false;
        max--;
    }
    size_t to = s->n;
    while (to > i && uni_space_len(s->p + to - char_before(s, to), char_before(s, to)))
        to -= char_before(s, to);
    return push_slice(c, v, s, i, to);
}

static bool split_sep(struct rctx *c, const struct jstr *s, const struct jstr *sep, int64_t max,
                      struct vals *v)
{
    size_t from = 0, at;
    while (max != 0 && (at = str_find(jstr_view(s), jstr_view(sep), from)) != (size_t)-1) {
        if (!push_slice(c, v, s, from, at))
            return false;
        from = at + sep->n;
        max--;
    }
    return push_slice(c, v, s, from, s->n);
}

/* The price of find_last over all of s, which compares at every offset. */
static bool charge_find_last(struct rctx *c, const struct jstr *s, const struct jstr *sep)
{
    return rt_charge(c, (s->n / 32 + 1) * (sep->n / 32 + 1));
}

/* Offset of the last `sep` that ends at or before `end`, or (size_t)-1. */
static size_t find_last(const struct jstr *s, str sep, size_t end)
{
    for (size_t i = end >= sep.n ? end - sep.n + 1 : 0; i > 0; i--)
        if (memcmp(s->p + i - 1, sep.p, sep.n) == 0)
            return i - 1;
    return (size_t)-1;
}

static void reverse(struct vals *v)
{
    for (size_t i = 0; i < v->n / 2; i++) {
        struct val t = v->p[i];
        v->p[i] = v->p[v->n - 1 - i];
        v->p[v->n - 1 - i] = t;
    }
}

static bool rsplit_sep(struct rctx *c, const struct jstr *s, const struct jstr *sep, int64_t max,
                       struct vals *v)
{
    size_t to = s->n, at;
    if (!charge_find_last(c, s, sep))
        return false;
    while (max != 0 && (at = find_last(s, jstr_view(sep), to)) != (size_t)-1) {
        if (!push_slice(c, v, s, at + sep->n, to))
            return false;
        to = at;
        max--;
    }
    return push_slice(c, v, s, 0, to);
}

static bool rsplit_space(struct rctx *c, const struct jstr *s, int64_t max, struct vals *v)
{
    size_t i = s->n;
    for (;;) {
        while (i > 0 && uni_space_len(s->p + i - char_before(s, i), char_before(s, i)))
            i -= char_before(s, i);
        if (i == 0)
            return true;
        if (max == 0)
            break;
        size_t to = i;
        while (i > 0 && !uni_space_len(s->p + i - char_before(s, i), char_before(s, i)))
            i -= char_before(s, i);
        if (!push_slice(c, v, s, i, to))
            return false;
        max--;
    }
    size_t from = 0, k;
    while (from < i && (k = uni_space_len(s->p + from, i - from)) > 0)
        from += k;
    return push_slice(c, v, s, from, i);
}

static bool split(struct rctx *c, const struct jstr *s, struct cargs *a, bool right,
                  struct val *out)
{
    const struct jstr *sep = NULL;
    int64_t max;
    struct vals v = {0};
    if ((val_given(a->pos[0]) && !want_str(c, a->pos[0], &sep)) ||
        !want_int(c, a->pos[1], -1, &max) || !rt_charge(c, s->n / 32))
        return false;
    if (sep && sep->n == 0)
        return rt_fail(c, T9_STATUS_INVALID, "split with an empty separator");
    bool ok;
    if (right)
        ok = sep ? rsplit_sep(c, s, sep, max, &v) : rsplit_space(c, s, max, &v);
    else
        ok = sep ? split_sep(c, s, sep, max, &v) : split_space(c, s, max, &v);
    if (right)
        reverse(&v);
    return ok && val_list(c, v.p, v.n, V_LIST, out);
}

static bool m_split(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return split(c, self.s, a, false, out);
}
static bool m_rsplit(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return split(c, self.s, a, true, out);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool str_lines(struct rctx *c, const struct jstr *s, bool keep_ends, struct val *out)
{
    struct vals v = {0};
    size_t from = 0, i = 0;
    while (i < s->n) {
        uint32_t cp;
        size_t k = uni_decode(s->p + i, s->n - i, &cp);
        if (is_line_end(cp)) {
            size_t end = i + k;
            if (cp == '\r' && end < s->n && s->p[end] == '\n')
                end++;
            if (!push_slice(c, &v, s, from, keep_ends ? end : i))
                return false;
            from = i = end;
        } else {
            i += k;
        }
    }
    if (from < s->n && !push_slice(c, &v, s, from, s->n))
        return false;
    return rt_charge(c, s->n / 16) && val_list(c, v.p, v.n, V_LIST, out);
}

static bool m_splitlines(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return str_lines(c, self.s, val_truth(a->pos[0]), out);
}

static bool three(struct rctx *c, const struct jstr *s, size_t at, size_t n, bool found, bool right,
                  struct val *out)
{
    struct val *v = rt_alloc(c, 3, sizeof *v);
    if (!v)
        return false;
    size_t cut[4] = {0, at, at + n, s->n};
    if (!found) {
        cut[1] = cut[2] = right ? 0 : s->n;
    }
    for (int i = 0; i < 3; i++)
        if (!jstr_slice(c, s, cut[i], cut[i + 1], &v[i]))
            return false;
    return val_list(c, v, 3, V_TUPLE, out);
}

static bool partition(struct rctx *c, const struct jstr *s, struct val v, bool right,
                      struct val *out)
{
    const struct jstr *sep = NULL;
    if (!want_str(c, v, &sep) || !charge_find_last(c, s, sep))
        return false;
    if (sep->n == 0)
        return rt_fail(c, T9_STATUS_INVALID, "partition with an empty separator");
    size_t at =
        right ? find_last(s, jstr_view(sep), s->n) : str_find(jstr_view(s), jstr_view(sep), 0);
    return three(c, s, at, sep->n, at != (size_t)-1, right, out);
}

static bool m_partition(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return partition(c, self.s, a->pos[0], false, out);
}
static bool m_rpartition(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return partition(c, self.s, a->pos[0], true, out);
}

/* ---- searching ---- */

/* Byte range of [start:end] given in code points; false in *inside when start is beyond the end. */
static bool sub_range(struct rctx *c, const struct jstr *s, struct val *bounds, size_t *from,
                      size_t *to, bool *inside)
{
    int64_t n = (int64_t)jstr_n_cp(s), v[2] = {0, n};
    for (int k = 0; k < 2; k++) {
        if (val_given(bounds[k]) && !want_int(c, bounds[k], 0, &v[k]))
            return false;
        if (v[k] < 0)
            v[k] = v[k] + n < 0 ? 0 : v[k] + n;
    }
    *inside = v[0] <= n;
    if (v[1] > n)
        v[1] = n;
    if (v[0] > v[1]) {
        *inside = false;
        v[0] = v[1];
    }
    *from = jstr_offset(s, (size_t)v[0]);
    *to = jstr_offset(s, (size_t)v[1]);
    return rt_charge(c, s->n / 32);
}

static bool affix(struct rctx *c, str s, struct val v, bool prefix, bool *out)
{
    const struct jstr *z;
    *out = false;
    if (v.kind == V_TUPLE) {
        for (size_t i = 0; !*out && i < v.list->n; i++) {
            if (v.list->items[i].kind == V_TUPLE)
                return rt_fail(c, T9_STATUS_INVALID, "expected a string, not a tuple");
            if (!affix(c, s, v.list->items[i], prefix, out))
                return false;
        }
        return true;
    }
    if (!want_str(c, v, &z))
        return false;
    *out = prefix ? str_has_prefix(s, jstr_view(z)) : str_has_suffix(s, jstr_view(z));
    return true;
}

static bool starts_ends(struct rctx *c, struct val self, struct cargs *a, bool prefix,
                        struct val *out)
{
    size_t from = 0, to = self.s->n;
    bool inside = true, r = false;
    if ((val_given(a->pos[1]) || val_given(a->pos[2])) &&
        !sub_range(c, self.s, &a->pos[1], &from, &to, &inside))
        return false;
    if (!affix(c, str_slice(jstr_view(self.s), from, to), a->pos[0], prefix, &r))
        return false;
    *out = val_bool(r && inside);
    return true;
}

static bool m_startswith(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return starts_ends(c, self, a, true, out);
}
static bool m_endswith(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return starts_ends(c, self, a, false, out);
}

static bool find(struct rctx *c, struct val self, struct cargs *a, bool right, bool must,
                 struct val *out)
{
    const struct jstr *needle;
    size_t from, to, at = (size_t)-1;
    bool inside;
    if (!want_str(c, a->pos[0], &needle) || !sub_range(c, self.s, &a->pos[1], &from, &to, &inside))
        return false;
    if (inside && right) {
        if (!charge_find_last(c, self.s, needle))
            return false;
        at = find_last(self.s, jstr_view(needle), to);
        if (at != (size_t)-1 && at < from)
            at = (size_t)-1;
    } else if (inside) {
        at = str_find((str){self.s->p, to}, jstr_view(needle), from);
    }
    if (at == (size_t)-1 && must)
        return rt_fail(c, T9_STATUS_INVALID, "substring not found");
    struct jstr head = {.p = self.s->p, .n = at, .n_cp = NCP_UNKNOWN};
    *out = val_int(at == (size_t)-1 ? -1 : (int64_t)jstr_n_cp(&head));
    return true;
}

static bool m_find(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return find(c, self, a, false, false, out);
}
static bool m_rfind(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return find(c, self, a, true, false, out);
}
static bool m_index(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return find(c, self, a, false, true, out);
}
static bool m_rindex(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return find(c, self, a, true, true, out);
}

static bool m_count(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    const struct jstr *z;
    size_t from, to;
    bool inside;
    int64_t n = 0;
    if (!want_str(c, a->pos[0], &z) || !sub_range(c, self.s, &a->pos[1], &from, &to, &inside))
        return false;
    str s = str_slice(jstr_view(self.s), from, to);
    if (z->n == 0) {
        struct jstr part = {.p = s.p, .n = s.n, .n_cp = NCP_UNKNOWN};
        n = inside ? (int64_t)jstr_n_cp(&part) + 1 : 0;
    } else {
        for (size_t at = 0; (at = str_find(s, jstr_view(z), at)) != (size_t)-1; at += z->n)
            n++;
    }
    *out = val_int(n);
    return true;
}

/* ---- replace, remove ---- */

bool str_replace(struct rctx *c, const struct jstr *s, const struct jstr *old,
                 const struct jstr *with, int64_t count, struct val *out)
{
    struct sb b;
    size_t from = 0;
    sb_init(c, &b, c->limits.max_memory_bytes);
    if (!rt_charge(c, s->n / 32))
        return false;
    if (old->n == 0) {
        for (; count != 0 && from <= s->n; count--) {
            uint32_t cp;
            size_t k = from < s->n ? uni_decode(s->p + from, s->n - from, &cp) : 0;
            if (!rt_charge(c, 1) || !sb_put_jstr(&b, with) || !sb_put_slice(&b, s, from, from + k))
                return false;
            if (from == s->n)
                return sb_finish(&b, out);
            from += k;
        }
        return sb_put_slice(&b, s, from, s->n) && sb_finish(&b, out);
    }
    size_t at = str_find(jstr_view(s), jstr_view(old), 0);
    if (at == (size_t)-1 || count == 0) {
        *out = val_jstr(s);
        return true;
    }
    for (; count != 0 && at != (size_t)-1; count--) {
        if (!rt_charge(c, 1) || !sb_put_slice(&b, s, from, at) || !sb_put_jstr(&b, with))
            return false;
        from = at + old->n;
        at = str_find(jstr_view(s), jstr_view(old), from);
    }
    return sb_put_slice(&b, s, from, s->n) && sb_finish(&b, out);
}

static bool m_replace(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    const struct jstr *old, *with;
    int64_t count;
    return want_str(c, a->pos[0], &old) && want_str(c, a->pos[1], &with) &&
           want_int(c, a->pos[2], -1, &count) && str_replace(c, self.s, old, with, count, out);
}

static bool m_removeprefix(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    const struct jstr *z;
    if (!want_str(c, a->pos[0], &z))
        return false;
    size_t from = str_has_prefix(jstr_view(self.s), jstr_view(z)) ? z->n : 0;
    return jstr_slice(c, self.s, from, self.s->n, out);
}

static bool m_removesuffix(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    const struct jstr *z;
    if (!want_str(c, a->pos[0], &z))
        return false;
    size_t cut = str_has_suffix(jstr_view(self.s), jstr_view(z)) ? z->n : 0;
    return jstr_slice(c, self.s, 0, self.s->n - cut, out);
}

/* ---- case ---- */

/* Final sigma: a cased letter before (over ignorable ones) and none after. */
static bool is_final_sigma(const struct jstr *s, size_t at, size_t len)
{
    uint32_t cp;
    size_t i = at;
    bool cased = false;
    while (i > 0) {
        size_t k = char_before(s, i);
        uni_decode(s->p + i - k, k, &cp);
        i -= k;
        if (!uni_case_ignorable(cp)) {
            cased = uni_is_cased(cp);
            break;
        }
    }
    if (!cased)
        return false;
    for (i = at + len; i < s->n;) {
        i += uni_decode(s->p + i, s->n - i, &cp);
        if (!uni_case_ignorable(cp))
            return !uni_is_cased(cp);
    }
    return true;
}

static bool put_mapped(struct sb *b, const struct jstr *s, size_t at, size_t len, uint32_t cp,
                       enum uni_case to)
{
    uint32_t mapped[3];
    char bytes[16];
    size_t n = 0;
    uint32_t k = uni_map(cp, to, mapped);
    if (cp == 0x3a3 && to == UNI_LOWER && is_final_sigma(s, at, len))
        mapped[0] = 0x3c2;
    for (uint32_t i = 0; i < k; i++)
        n += utf8_encode(mapped[i], bytes + n);
    return sb_put(b, bytes, n, jstr_origin_at(s, at));
}

enum case_rule { CASE_ALL, CASE_FIRST, CASE_WORDS, CASE_SWAP, CASE_JINJA_TITLE };

/* Which mapping a character gets, from the rule and what came before it. */
static enum uni_case case_for(enum case_rule rule, enum uni_case to, uint32_t cp, bool *start)
{
    enum uni_case r = to;
    switch (rule) {
    case CASE_ALL: break;
    case CASE_FIRST:
        r = *start ? UNI_TITLE : UNI_LOWER;
        *start = false;
        break;
    case CASE_WORDS:
        r = *start ? UNI_TITLE : UNI_LOWER;
        *start = !uni_is_cased(cp);
        break;
    case CASE_SWAP: r = uni_is_upper(cp) ? UNI_LOWER : UNI_UPPER; break;
    case CASE_JINJA_TITLE:
        r = *start ? UNI_UPPER : UNI_LOWER;
        *start = uni_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
        break;
    }
    return r;
}

static bool case_map(struct rctx *c, const struct jstr *s, enum case_rule rule, enum uni_case to,
                     struct val *out)
{
    struct sb b;
    bool start = true;
    sb_init(c, &b, c->limits.max_memory_bytes);
    if (!rt_charge(c, s->n / 8))
        return false;
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        size_t len = uni_decode(s->p + i, s->n - i, &cp);
        enum uni_case how = case_for(rule, to, cp, &start);
        if (!put_mapped(&b, s, i, len, cp, how))
            return false;
        i += len;
    }
    return sb_finish(&b, out);
}

bool str_case(struct rctx *c, const struct jstr *s, enum uni_case to, struct val *out)
{
    return case_map(c, s, to == UNI_TITLE ? CASE_JINJA_TITLE : CASE_ALL, to, out);
}

bool str_capitalize(struct rctx *c, const struct jstr *s, struct val *out)
{
    return case_map(c, s, CASE_FIRST, UNI_LOWER, out);
}

static bool m_upper(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return case_map(c, self.s, CASE_ALL, UNI_UPPER, out);
}
static bool m_lower(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return case_map(c, self.s, CASE_ALL, UNI_LOWER, out);
}
static bool m_title(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return case_map(c, self.s, CASE_WORDS, UNI_LOWER, out);
}
static bool m_capitalize(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return str_capitalize(c, self.s, out);
}
static bool m_swapcase(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return case_map(c, self.s, CASE_SWAP, UNI_LOWER, out);
}

/* ---- is...() ---- */

static bool is_space_any(uint32_t cp)
{
    return uni_is_space(cp);
}
static bool is_alnum(uint32_t cp)
{
    return uni_is_alpha(cp) || uni_is_numeric(cp);
}

static bool all_of(struct rctx *c, const struct jstr *s, bool (*pred)(uint32_t), struct val *out)
{
    bool r = s->n > 0;
    for (size_t i = 0; r && i < s->n;) {
        uint32_t cp;
        i += uni_decode(s->p + i, s->n - i, &cp);
        r = pred(cp);
    }
    *out = val_bool(r);
    return rt_charge(c, s->n / 16);
}

static bool m_isalpha(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return all_of(c, self.s, uni_is_alpha, out);
}
static bool m_isdigit(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return all_of(c, self.s, uni_is_digit, out);
}
static bool m_isdecimal(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return all_of(c, self.s, uni_is_decimal, out);
}
static bool m_isnumeric(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return all_of(c, self.s, uni_is_numeric, out);
}
static bool m_isalnum(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return all_of(c, self.s, is_alnum, out);
}
static bool m_isspace(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return all_of(c, self.s, is_space_any, out);
}

static bool one_case(struct rctx *c, const struct jstr *s, bool upper, struct val *out)
{
    bool cased = false, r = true;
    for (size_t i = 0; r && i < s->n;) {
        uint32_t cp;
        i += uni_decode(s->p + i, s->n - i, &cp);
        if (uni_is_cased(cp)) {
            cased = true;
            r = upper ? uni_is_upper(cp) : uni_is_lower(cp);
        }
    }
    *out = val_bool(r && cased);
    return rt_charge(c, s->n / 16);
}

static bool m_isupper(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return one_case(c, self.s, true, out);
}
static bool m_islower(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    return one_case(c, self.s, false, out);
}

static bool m_isascii(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)a;
    bool r = true;
    for (size_t i = 0; r && i < self.s->n; i++)
        r = (unsigned char)self.s->p[i] < 0x80;
    *out = val_bool(r);
    return rt_charge(c, self.s->n / 64);
}

/* ---- join, padding ---- */

static bool m_join(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    struct seq s;
    struct sb b;
    if (!val_seq(c, a->pos[0], &s))
        return false;
    sb_init(c, &b, c->limits.max_memory_bytes);
    for (size_t i = 0; i < s.n; i++) {
        const struct jstr *item;
        if (!rt_charge(c, 1) || !want_str(c, seq_at(&s, i), &item) ||
            (i && !sb_put_jstr(&b, self.s)) || !sb_put_jstr(&b, item))
            return false;
    }
    return sb_finish(&b, out);
}

static bool put_fill(struct sb *b, const struct jstr *fill, int64_t n)
{
    if (n > 0 && !rt_charge(b->c, (uint64_t)n / 4))
        return false;
    for (; n > 0; n--)
        if (!(fill ? sb_put_jstr(b, fill) : sb_put(b, " ", 1, JINJA_ORIGIN_TEMPLATE)))
            return false;
    return true;
}

/* side: 1 text at the left, 2 at the right, 3 in the middle. */
bool str_pad(struct rctx *c, const struct jstr *s, int64_t width, int side, const struct jstr *fill,
             struct val *out)
{
    struct sb b;
    int64_t n = (int64_t)jstr_n_cp(s), pad = width > n ? width - n : 0;
    int64_t left = side == 1 ? 0 : side == 2 ? pad : pad / 2 + (pad & width & 1);
    if (fill && jstr_n_cp(fill) != 1)
        return rt_fail(c, T9_STATUS_INVALID, "the fill must be one character");
    sb_init(c, &b, c->limits.max_memory_bytes);
    return put_fill(&b, fill, left) && sb_put_jstr(&b, s) && put_fill(&b, fill, pad - left) &&
           sb_finish(&b, out);
}

static bool pad_method(struct rctx *c, struct val self, struct cargs *a, int side, struct val *out)
{
    int64_t width;
    const struct jstr *fill = NULL;
    return want_int(c, a->pos[0], 0, &width) &&
           (a->pos[1].kind == V_MISSING || want_str(c, a->pos[1], &fill)) &&
           str_pad(c, self.s, width, side, fill, out);
}

static bool m_ljust(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return pad_method(c, self, a, 1, out);
}
static bool m_rjust(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return pad_method(c, self, a, 2, out);
}
static bool m_center(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return pad_method(c, self, a, 3, out);
}

static bool m_zfill(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    int64_t width;
    struct sb b;
    const struct jstr *s = self.s;
    if (!want_int(c, a->pos[0], 0, &width))
        return false;
    int64_t n = (int64_t)jstr_n_cp(s);
    size_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+') ? 1 : 0;
    sb_init(c, &b, c->limits.max_memory_bytes);
    if (!sb_put_slice(&b, s, 0, sign) || (width > n && !rt_charge(c, (uint64_t)(width - n) / 4)))
        return false;
    for (int64_t i = n; i < width; i++)
        if (!sb_put(&b, "0", 1, JINJA_ORIGIN_TEMPLATE))
            return false;
    return sb_put_slice(&b, s, sign, s->n) && sb_finish(&b, out);
}

static bool m_format(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    return format_method(c, self.s, a, out);
}

/* A method that Python has and we don't: there, so `is defined` holds, but can't be called. */
static bool m_unsupported(struct rctx *c, struct val self, struct cargs *a, struct val *out)
{
    (void)self;
    (void)a;
    (void)out;
    return rt_fail(c, T9_STATUS_UNSUPPORTED, "this string method is not supported");
}

const struct fn str_methods[] = {{"strip", "chars", m_strip},
                                 {"lstrip", "chars", m_lstrip},
                                 {"rstrip", "chars", m_rstrip},
                                 {"split", "sep maxsplit", m_split},
                                 {"rsplit", "sep maxsplit", m_rsplit},
                                 {"splitlines", "keepends", m_splitlines},
                                 {"partition", "!sep", m_partition},
                                 {"rpartition", "!sep", m_rpartition},
                                 {"startswith", "!prefix start end", m_startswith},
                                 {"endswith", "!suffix start end", m_endswith},
                                 {"find", "!sub start end", m_find},
                                 {"rfind", "!sub start end", m_rfind},
                                 {"index", "!sub start end", m_index},
                                 {"rindex", "!sub start end", m_rindex},
                                 {"count", "!sub start end", m_count},
                                 {"replace", "!old !new count", m_replace},
                                 {"removeprefix", "!prefix", m_removeprefix},
                                 {"removesuffix", "!suffix", m_removesuffix},
                                 {"upper", "", m_upper},
                                 {"lower", "", m_lower},
                                 {"title", "", m_title},
                                 {"capitalize", "", m_capitalize},
                                 {"swapcase", "", m_swapcase},
                                 {"isalpha", "", m_isalpha},
                                 {"isdigit", "", m_isdigit},
                                 {"isdecimal", "", m_isdecimal},
                                 {"isnumeric", "", m_isnumeric},
                                 {"isalnum", "", m_isalnum},
                                 {"isspace", "", m_isspace},
                                 {"isupper", "", m_isupper},
                                 {"islower", "", m_islower},
                                 {"isascii", "", m_isascii},
                                 {"join", "!iterable", m_join},
                                 {"ljust", "!width fillchar", m_ljust},
                                 {"rjust", "!width fillchar", m_rjust},
                                 {"center", "!width fillchar", m_center},
                                 {"zfill", "!width", m_zfill},
                                 {"format", NULL, m_format},
                                 {"casefold", NULL, m_unsupported},
                                 {"encode", NULL, m_unsupported},
                                 {"expandtabs", NULL, m_unsupported},
                                 {"format_map", NULL, m_unsupported},
                                 {"isidentifier", NULL, m_unsupported},
                                 {"isprintable", NULL, m_unsupported},
                                 {"istitle", NULL, m_unsupported},
                                 {"maketrans", NULL, m_unsupported},
                                 {"translate", NULL, m_unsupported},
                                 {NULL, NULL, NULL}};
