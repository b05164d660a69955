/*
 * template/lexer.c - splits a template's source into tokens, with jinja2's white-space rules for
 * trim_blocks and lstrip_blocks, `-` and `+` signs, comments and raw blocks.
 *
 * The source is already normalised (line ends are \n, one trailing newline removed, valid UTF-8).
 * Tokens are views into it; string literals keep their quotes and are decoded by the parser.
 */
#include "base/mem.h"
#include "template/node.h"

#include <stdint.h>

struct lexer {
    const char *p;
    size_t n, i;
    size_t line_at; /* lines are counted up to here */
    uint32_t line;
    bool line_starting; /* the last tag ended with a newline, or nothing was read yet */
    struct tok *toks;
    size_t n_toks, cap;
    struct t9_err *err;
    t9_status status;
};

static bool lex_fail(struct lexer *l, t9_status s, const char *what)
{
    l->status = t9_fail(l->err, s, "template line %u: %s", l->line, what);
    return false;
}

static void count_lines(struct lexer *l, size_t to)
{
    for (; l->line_at < to; l->line_at++)
        l->line += l->p[l->line_at] == '\n';
}

static bool push(struct lexer *l, enum tok_type type, int op, size_t from, size_t to)
{
    count_lines(l, from);
    if (l->n_toks == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 256;
        if (cap > 2 * (size_t)TOKENS_MAX)
            return lex_fail(l, T9_STATUS_TOO_LARGE, "the template has more than a million tokens");
        struct tok *t = mem_realloc(l->toks, cap, sizeof *t);
        if (!t)
            return lex_fail(l, T9_STATUS_NOMEM, "out of memory");
        l->toks = t;
        l->cap = cap;
    }
    l->toks[l->n_toks++] = (struct tok){.type = (uint8_t)type,
                                        .op = (uint8_t)op,
                                        .line = l->line,
                                        .text = {l->p + from, to - from}};
    return true;
}

static bool at(const struct lexer *l, size_t i, const char *z)
{
    size_t n = strlen(z);
    return i <= l->n && l->n - i >= n && memcmp(l->p + i, z, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t i)
{
    size_t k;
    while (i < l->n && (k = uni_space_len(l->p + i, l->n - i)) > 0)
        i += k;
    return i;
}

/* End of [from, to) without white space at its end. */
static size_t rstrip_to(const struct lexer *l, size_t from, size_t to)
{
    while (to > from) {
        size_t k = to - 1;
        while (k > from && ((unsigned char)l->p[k] & 0xc0) == 0x80)
            k--;
        if (uni_space_len(l->p + k, to - k) != to - k)
            break;
        to = k;
    }
    return to;
}

/* The text before a tag, cut as the tag's sign and lstrip_blocks ask. */
static bool push_text(struct lexer *l, size_t from, size_t to, char sign, bool is_variable)
{
    size_t end = to;
    if (sign == '-') {
        end = rstrip_to(l, from, to);
    } else if (sign != '+' && !is_variable) {
        size_t bol = to;
        while (bol > from && l->p[bol - 1] != '\n')
            bol--;
        if ((bol > from || l->line_starting) && bol < to && rstrip_to(l, bol, to) == bol)
            end = bol;
    }
    return end == from || push(l, T_DATA, 0, from, end);
}

/* Matches the end of a tag of two characters at i: "-%}" with white space after it, "+%}" (not for
 * variables), "%}" with one newline after it (blocks and comments). Returns the end or 0. */
static size_t tag_end(struct lexer *l, size_t i, const char *two, bool is_variable)
{
    if (i < l->n && l->p[i] == '-' && at(l, i + 1, two))
        return skip_space(l, i + 3);
    if (i < l->n && l->p[i] == '+' && !is_variable && at(l, i + 1, two))
        return i + 3;
    if (!at(l, i, two))
        return 0;
    i += 2;
    return !is_variable && i < l->n && l->p[i] == '\n' ? i + 1 : i;
}

/* "{%-? raw -?%}" or, for "endraw", its end. On a match returns the end and sets the sign. */
static size_t match_raw(struct lexer *l, size_t i, const char *word, char *sign)
{
    bool is_end = word[0] == 'e';
    if (!at(l, i, "{%"))
        return 0;
    i += 2;
    *sign = 0;
    if (i < l->n && (l->p[i] == '-' || l->p[i] == '+'))
        *sign = l->p[i++];
    i = skip_space(l, i);
    if (!at(l, i, word))
        return 0;
    i = skip_space(l, i + strlen(word));
    if (is_end)
        return tag_end(l, i, "%}", false);
    if (i < l->n && l->p[i] == '-' && at(l, i + 1, "%}"))
        return skip_space(l, i + 3);
    return at(l, i, "%}") ? i + 2 : 0;
}

static void end_tag(struct lexer *l, size_t end)
{
    count_lines(l, end);
    l->i = end;
    l->line_starting = end > 0 && l->p[end - 1] == '\n';
}

static bool lex_raw(struct lexer *l)
{
    size_t from = l->i;
    for (size_t i = from; i + 1 < l->n; i++) {
        const char *q = memchr(l->p + i, '{', l->n - i);
        if (!q)
            break;
        i = (size_t)(q - l->p);
        char sign;
        size_t end = match_raw(l, i, "endraw", &sign);
        if (end) {
            if (!push_text(l, from, i, sign, false))
                return false;
            end_tag(l, end);
            return true;
        }
    }
    return lex_fail(l, T9_STATUS_INVALID, "missing end of raw block");
}

static bool lex_comment(struct lexer *l, size_t i)
{
    size_t from = i;
    for (; i + 1 < l->n; i++) {
        if (l->p[i] != '#' || l->p[i + 1] != '}')
            continue;
        size_t start = i > from && (l->p[i - 1] == '-' || l->p[i - 1] == '+') ? i - 1 : i;
        end_tag(l, tag_end(l, start, "#}", false));
        return true;
    }
    return lex_fail(l, T9_STATUS_INVALID, "missing end of comment");
}

static bool is_digit(char ch)
{
    return ch >= '0' && ch <= '9';
}

static bool is_name_char(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_' ||
           (unsigned char)ch >= 0x80;
}

/* "(\d+_)*\d+" from i; returns its end. */
static size_t digits(const struct lexer *l, size_t i)
{
    while (i < l->n && (is_digit(l->p[i]) || (l->p[i] == '_' && i + 1 < l->n && i > 0 &&
                                              is_digit(l->p[i - 1]) && is_digit(l->p[i + 1]))))
        i++;
    return i;
}

static bool lex_number(struct lexer *l)
{
    size_t i = l->i, from = i;
    bool after_dot = from > 0 && l->p[from - 1] == '.';
    if (l->p[i] == '0' && i + 1 < l->n && strchr("bBoOxX", l->p[i + 1])) {
        size_t k = i + 2;
        while (k < l->n &&
               (is_digit(l->p[k]) || l->p[k] == '_' || (l->p[k] >= 'a' && l->p[k] <= 'f') ||
                (l->p[k] >= 'A' && l->p[k] <= 'F')))
            k++;
        l->i = k;
        return push(l, T_INT, 0, from, k);
    }
    i = digits(l, i);
    bool is_float = false;
    if (!after_dot && i + 1 < l->n && l->p[i] == '.' && is_digit(l->p[i + 1])) {
        i = digits(l, i + 1);
        is_float = true;
    }
    if (!after_dot && i < l->n && (l->p[i] == 'e' || l->p[i] == 'E')) {
        size_t k = i + 1;
        if (k < l->n && (l->p[k] == '+' || l->p[k] == '-'))
            k++;
        if (k < l->n && is_digit(l->p[k])) {
            i = digits(l, k);
            is_float = true;
        }
    }
    l->i = i;
    return push(l, is_float ? T_FLOAT : T_INT, 0, from, i);
}

static bool lex_string(struct lexer *l)
{
    char quote = l->p[l->i];
    for (size_t i = l->i + 1; i < l->n; i++) {
        if (l->p[i] == '\\') {
            i++;
        } else if (l->p[i] == quote) {
            size_t from = l->i;
            l->i = i + 1;
            return push(l, T_STRING, 0, from, i + 1);
        }
    }
    return lex_fail(l, T9_STATUS_INVALID, "a string is not closed");
}

static bool lex_operator(struct lexer *l, char *stack, uint32_t *n_open)
{
    static const struct {
        const char two[3];
        uint8_t op;
    } pairs[] = {{"==", TOK_EQ}, {"!=", TOK_NE},       {"<=", TOK_LE},
                 {">=", TOK_GE}, {"//", TOK_FLOORDIV}, {"**", TOK_POW}};
    size_t from = l->i;
    for (size_t k = 0; k < T9_COUNT(pairs); k++) {
        if (at(l, from, pairs[k].two)) {
            l->i += 2;
            return push(l, T_OP, pairs[k].op, from, l->i);
        }
    }
    char ch = l->p[from];
    if (!ch || !strchr("+-/*%~[](){}><=.:|,;", ch))
        return lex_fail(l, T9_STATUS_INVALID, "unexpected character in an expression");
    if (strchr("([{", ch)) {
        if (*n_open == JINJA_NESTING_MAX)
            return lex_fail(l, T9_STATUS_TOO_LARGE, "brackets are nested too deeply");
        stack[(*n_open)++] = ch == '(' ? ')' : ch == '[' ? ']' : '}';
    } else if (strchr(")]}", ch)) {
        if (*n_open == 0 || stack[--*n_open] != ch)
            return lex_fail(l, T9_STATUS_INVALID, "a closing bracket has no opening one");
    }
    l->i++;
    return push(l, T_OP, (unsigned char)ch, from, l->i);
}

/* The inside of {{ }} or {% %}, from l->i to and with its end. */
static bool lex_tag(struct lexer *l, bool is_variable)
{
    char stack[JINJA_NESTING_MAX];
    uint32_t n_open = 0;
    for (;;) {
        l->i = skip_space(l, l->i);
        if (l->i >= l->n) {
            count_lines(l, l->n);
            return lex_fail(l, T9_STATUS_INVALID, "the template ends inside a tag");
        }
        size_t end = n_open ? 0 : tag_end(l, l->i, is_variable ? "}}" : "%}", is_variable);
        if (end) {
            if (!push(l, is_variable ? T_VAR_END : T_BLOCK_END, 0, l->i, l->i))
                return false;
            end_tag(l, end);
            return true;
        }
        char ch = l->p[l->i];
        bool ok;
        if (is_digit(ch)) {
            ok = lex_number(l);
        } else if (is_name_char(ch)) {
            size_t from = l->i;
            while (l->i < l->n && (is_name_char(l->p[l->i]) || is_digit(l->p[l->i])) &&
                   !uni_space_len(l->p + l->i, l->n - l->i))
                l->i++;
            ok = push(l, T_NAME, 0, from, l->i);
        } else if (ch == '\'' || ch == '"') {
            ok = lex_string(l);
        } else {
            ok = lex_operator(l, stack, &n_open);
        }
        if (!ok)
            return false;
    }
}

/* Offset of the next "{{", "{%" or "{#" at or after i, or n. */
static size_t next_tag(const struct lexer *l, size_t i)
{
    while (i + 1 < l->n) {
        const char *q = memchr(l->p + i, '{', l->n - 1 - i);
        if (!q)
            return l->n;
        i = (size_t)(q - l->p);
        if (l->p[i + 1] == '{' || l->p[i + 1] == '%' || l->p[i + 1] == '#')
            return i;
        i++;
    }
    return l->n;
}

static bool lex_all(struct lexer *l)
{
    while (l->i < l->n) {
        size_t s = next_tag(l, l->i);
        if (s == l->n)
            return push(l, T_DATA, 0, l->i, l->n);
        char kind = l->p[s + 1], sign = 0;
        size_t raw_end = match_raw(l, s, "raw", &sign);
        if (raw_end) {
            if (!push_text(l, l->i, s, sign, false))
                return false;
            end_tag(l, raw_end);
            if (!lex_raw(l))
                return false;
            continue;
        }
        size_t i = s + 2;
        sign = 0;
        if (i < l->n && (l->p[i] == '-' || l->p[i] == '+'))
            sign = l->p[i++];
        if (!push_text(l, l->i, s, sign, kind == '{'))
            return false;
        l->line_starting = false;
        l->i = i;
        bool ok;
        if (kind == '#') {
            ok = lex_comment(l, i);
        } else {
            ok = push(l, kind == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN, 0, s, i) &&
                 lex_tag(l, kind == '{');
        }
        if (!ok)
            return false;
    }
    return true;
}

t9_status lex(str source, struct tok **out, size_t *n_out, struct t9_err *err)
{
    struct lexer l = {.p = source.p, .n = source.n, .line = 1, .line_starting = true, .err = err};
    if (lex_all(&l) && push(&l, T_EOF, 0, l.n, l.n)) {
        *out = l.toks;
        *n_out = l.n_toks;
        return T9_STATUS_OK;
    }
    mem_free(l.toks);
    return l.status;
}
