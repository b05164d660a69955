/*
 * protocol/tools/loose.c - see loose.h. A stack of open objects and arrays; strings are handed on
 * as they come, bare words when they have ended.
 */
#include "protocol/tools/loose.h"

#include "base/num.h"
#include "protocol/tools/space.h"
#include "protocol/tools/typing.h"

enum { OUT_BYTES_MAX = 1 << 26 };
/* White space that is looked through for what follows a quote. */
enum { AHEAD_BYTES_MAX = 64 };
enum { FRAME_ARRAY = 0, FRAME_OBJECT = 1, FRAME_HAS_ITEMS = 2 };
enum { QUOTE_DOUBLE, QUOTE_SINGLE, QUOTE_DOUBLE_3, QUOTE_SINGLE_3, QUOTE_MARK };

enum {
    PHASE_ITEM,   /* an item or the end of the innermost frame comes next */
    PHASE_ASSIGN, /* a key was written */
    PHASE_VALUE,  /* and what separates it from its value */
    PHASE_AFTER,  /* a value has ended */
    PHASE_STRING,
};

/* How a look at the text came out. */
typedef enum look {
    LOOK_MORE, /* can't be told without more text */
    LOOK_NO,
    LOOK_YES,
} look;

/* One run over the unread text. */
struct reader {
    struct loose *l;
    const struct loose_syntax *syntax;
    const struct answer_tool *tool;
    bool last;
    str text;
    size_t at;
    struct buf out;
    loose_result result;
};

/* ---- what is written ---- */

static void put_char(struct buf *out, char c)
{
    if (c == '"' || c == '\\') {
        buf_putc(out, '\\');
        buf_putc(out, c);
    } else if (c == '\n') {
        buf_puts(out, "\\n");
    } else if (c == '\t') {
        buf_puts(out, "\\t");
    } else if ((unsigned char)c < 0x20) {
        buf_printf(out, "\\u%04x", (unsigned)(unsigned char)c);
    } else {
        buf_putc(out, c);
    }
}

static void put_chars(struct buf *out, str s)
{
    for (size_t i = 0; i < s.n; i++)
        put_char(out, s.p[i]);
}

static void put_string(struct buf *out, str s)
{
    buf_putc(out, '"');
    put_chars(out, s);
    buf_putc(out, '"');
}

/* Digits with single underscores between them, from *at on. */
static size_t put_digits(struct buf *out, str s, size_t *at)
{
    size_t n = 0;
    for (; *at < s.n; (*at)++) {
        bool joins = s.p[*at] == '_' && n > 0 && *at + 1 < s.n;
        if (!joins && (s.p[*at] < '0' || s.p[*at] > '9'))
            break;
        if (joins)
            continue;
        buf_putc(out, s.p[*at]);
        n++;
    }
    return n;
}

/* A decimal number as Python or JSON write it, as JSON. */
static bool put_decimal(struct buf *out, str s)
{
    size_t begin = out->n, at = 0, n_frac = 0;
    if (at < s.n && (s.p[at] == '-' || s.p[at] == '+')) {
        if (s.p[at++] == '-')
            buf_putc(out, '-');
    }
    bool zero = at < s.n && s.p[at] == '0';
    size_t n_int = put_digits(out, s, &at);
    bool good = !(zero && n_int > 1);
    if (n_int == 0)
        buf_putc(out, '0');
    if (at < s.n && s.p[at] == '.') {
        at++;
        buf_putc(out, '.');
        n_frac = put_digits(out, s, &at);
        if (n_frac == 0)
            buf_putc(out, '0');
    }
    good = good && n_int + n_frac > 0;
    if (at < s.n && (s.p[at] == 'e' || s.p[at] == 'E')) {
        buf_putc(out, s.p[at++]);
        if (at < s.n && (s.p[at] == '-' || s.p[at] == '+'))
            buf_putc(out, s.p[at++]);
        good = put_digits(out, s, &at) > 0 && good;
    }
    if (good && at == s.n)
        return true;
    out->n = begin;
    return false;
}

/* 0x1f, 0o17, 0b1. */
static bool put_based(struct buf *out, str s)
{
    uint64_t v = 0;
    int base = 0;
    if (s.n < 3 || s.p[0] != '0')
        return false;
    if (s.p[1] == 'x' || s.p[1] == 'X')
        base = 16;
    else if (s.p[1] == 'o' || s.p[1] == 'O')
        base = 8;
    else if (s.p[1] == 'b' || s.p[1] == 'B')
        base = 2;
    for (size_t i = 2; i < s.n; i++) {
        int digit = num_hex_digit(s.p[i]);
        if (digit < 0 || digit >= base || v > (UINT64_MAX - 15) / 16)
            return false;
        v = v * (uint64_t)base + (uint64_t)digit;
    }
    buf_printf(out, "%llu", (unsigned long long)v);
    return true;
}

static bool is_one_of(str s, const char *a, const char *b)
{
    return str_eqz(s, a) || str_eqz(s, b);
}

/* The value of a bare word; is_text: it is no number, whatever it looks like. */
static void put_word(struct buf *out, str s, bool is_text)
{
    if (is_one_of(s, "True", "true"))
        buf_puts(out, "true");
    else if (is_one_of(s, "False", "false"))
        buf_puts(out, "false");
    else if (is_one_of(s, "None", "null"))
        buf_puts(out, "null");
    else if (is_text || (!put_decimal(out, s) && !put_based(out, s)))
        put_string(out, s);
}

/* ---- frames ---- */

static uint8_t *top(const struct reader *r)
{
    return &r->l->frames[r->l->depth - 1];
}

static bool is_outermost(const struct reader *r)
{
    return r->l->depth == 1;
}

static void begin_item(struct reader *r)
{
    if (*top(r) & FRAME_HAS_ITEMS)
        buf_putc(&r->out, ',');
    *top(r) |= FRAME_HAS_ITEMS;
}

static void put_key(struct reader *r, str key)
{
    begin_item(r);
    r->l->is_text = is_outermost(r) && typing_of(r->tool->schema, key) == TYPING_STRING;
    put_string(&r->out, key);
    buf_putc(&r->out, ':');
}

/* The name of the next value that has none: of the schema's next property, else by its number. */
static void put_positional_key(struct reader *r)
{
    size_t i = r->l->n_positional++;
    yyjson_val *properties = yyjson_obj_get(r->tool->schema, "properties");
    yyjson_obj_iter it = yyjson_obj_iter_with(properties);
    yyjson_val *key = NULL;
    for (size_t n = 0; n <= i; n++) {
        key = yyjson_obj_iter_next(&it);
        if (!key)
            break;
    }
    if (key) {
        put_key(r, (str){yyjson_get_str(key), yyjson_get_len(key)});
        return;
    }
    begin_item(r);
    r->l->is_text = false;
    buf_printf(&r->out, "\"arg%zu\":", i + 1);
}

static void open_frame(struct reader *r, uint8_t kind)
{
    if (r->l->depth == LOOSE_DEPTH_MAX) {
        r->result = LOOSE_DEEP;
        return;
    }
    buf_putc(&r->out, kind == FRAME_OBJECT ? '{' : '[');
    r->l->frames[r->l->depth++] = kind;
    r->l->phase = PHASE_ITEM;
}

static void close_frame(struct reader *r)
{
    buf_putc(&r->out, *top(r) & FRAME_OBJECT ? '}' : ']');
    r->l->depth--;
    r->l->phase = PHASE_AFTER;
    if (r->l->depth == 0)
        r->result = LOOSE_CLOSED;
}

/* A key that has no value. */
static void fill_value(struct reader *r)
{
    if (r->l->phase == PHASE_ASSIGN)
        buf_putc(&r->out, ':');
    if (r->l->phase == PHASE_ASSIGN || r->l->phase == PHASE_VALUE)
        buf_puts(&r->out, "null");
}

static void end_here(struct reader *r)
{
    fill_value(r);
    while (r->l->depth > 0)
        close_frame(r);
    r->result = LOOSE_ENDED;
}

/* ---- looking ---- */

static bool is_closer(char c)
{
    return c == ')' || c == ']' || c == '}';
}

static look mark_at(const struct reader *r, size_t at, const char *mark)
{
    if (!mark)
        return LOOK_NO;
    str rest = str_slice(r->text, at, r->text.n);
    if (str_has_prefix(rest, str_from(mark)))
        return LOOK_YES;
    return str_has_prefix(str_from(mark), rest) ? LOOK_MORE : LOOK_NO;
}

/* Whether a string begins at r->at; its opening is taken then. */
static look string_begins(struct reader *r)
{
    size_t at = r->at;
    look mark = mark_at(r, at, r->syntax->quote);
    bool raw = false;
    if (mark == LOOK_YES) {
        r->l->quote = QUOTE_MARK;
        r->at += str_from(r->syntax->quote).n;
        return LOOK_YES;
    }
    if (mark == LOOK_MORE)
        return LOOK_MORE;
    while (r->syntax->is_python && at < r->text.n && at < r->at + 2 &&
           memchr("rRbBuUfF", r->text.p[at], 8)) {
        raw = raw || (r->text.p[at] | 0x20) == 'r';
        at++;
    }
    if (at == r->text.n)
        return LOOK_MORE;
    char c = r->text.p[at];
    if (c != '"' && !(c == '\'' && r->syntax->is_python))
        return LOOK_NO;
    size_t n = 0;
    while (r->syntax->is_python && n < 3 && at + n < r->text.n && r->text.p[at + n] == c)
        n++;
    if (n > 0 && n < 3 && at + n == r->text.n && !r->last)
        return LOOK_MORE;
    bool triple = n == 3;
    r->l->quote = c == '"' ? (triple ? QUOTE_DOUBLE_3 : QUOTE_DOUBLE)
                           : (triple ? QUOTE_SINGLE_3 : QUOTE_SINGLE);
    r->l->raw = raw;
    r->at = at + (triple ? 3 : 1);
    return LOOK_YES;
}

/* Whether the quote at `at` closes the string. Models leave quotes within strings as they are, so
 * one that is not followed by what can follow a string belongs to it. */
static look string_ends(const struct reader *r, size_t at)
{
    const struct loose *l = r->l;
    size_t n = l->quote >= QUOTE_DOUBLE_3 ? 3 : 1;
    for (size_t i = 1; i < n; i++) {
        if (at + i == r->text.n)
            return LOOK_MORE;
        if (r->text.p[at + i] != r->text.p[at])
            return LOOK_NO;
    }
    size_t next = at + n;
    if (n == 3)
        return LOOK_YES;
    while (next < r->text.n && next - at < AHEAD_BYTES_MAX && space_is(r->text.p[next]))
        next++;
    if (next == r->text.n)
        return r->last ? LOOK_YES : LOOK_MORE;
    char c = r->text.p[next];
    if (c == ',' || is_closer(c) || (c == ':' && l->is_key) || next - at == AHEAD_BYTES_MAX)
        return LOOK_YES;
    return mark_at(r, next, r->syntax->end);
}

/* Whether the bare word at r->at has ended; *end is where then. */
static bool word_ends(struct reader *r, char assign, size_t *end)
{
    struct loose *l = r->l;
    for (;; l->seen++) {
        size_t at = r->at + l->seen;
        if (at == r->text.n)
            return false;
        char c = r->text.p[at];
        look mark = mark_at(r, at, r->syntax->end);
        if (mark == LOOK_MORE && !r->last)
            return false;
        if (mark == LOOK_YES || (l->n_open == 0 && (c == ',' || is_closer(c) || c == assign))) {
            *end = at;
            l->seen = l->n_open = 0;
            return true;
        }
        if (c == '(' || c == '[' || c == '{')
            l->n_open++;
        else if (is_closer(c))
            l->n_open--;
    }
}

/* ---- strings ---- */

/* Hexadecimal digits; false when they are none. */
static bool hex_at(str text, size_t at, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = at; i < at + n; i++) {
        int digit = i < text.n ? num_hex_digit(text.p[i]) : -1;
        if (digit < 0)
            return false;
        *out = *out * 16 + (uint32_t)digit;
    }
    return true;
}

static void put_code_point(struct buf *out, uint32_t c)
{
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    if (c < 0x80) {
        put_char(out, (char)c);
    } else if (c < 0x10000) {
        buf_printf(out, "\\u%04x", c);
    } else {
        c -= 0x10000;
        buf_printf(out, "\\u%04x\\u%04x", 0xd800 + (c >> 10), 0xdc00 + (c & 0x3ff));
    }
}

/* Bytes of an escape with so many hexadecimal digits, at the backslash; 0: there must be more. */
static size_t hex_escape(struct reader *r, size_t at, size_t n_digits)
{
    uint32_t c, low;
    size_t n = 2 + n_digits;
    bool is_pair = false;
    if (at + n > r->text.n && !r->last)
        return 0;
    if (!hex_at(r->text, at + 2, n_digits, &c)) {
        put_char(&r->out, '\\');
        return 1;
    }
    if (n_digits == 4 && c >= 0xd800 && c < 0xdc00) {
        if (at + 2 * n > r->text.n && !r->last)
            return 0;
        is_pair = at + n + 2 <= r->text.n && memcmp(r->text.p + at + n, "\\u", 2) == 0 &&
                  hex_at(r->text, at + n + 2, 4, &low) && low >= 0xdc00 && low < 0xe000;
    }
    if (is_pair)
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    put_code_point(&r->out, c);
    return is_pair ? 2 * n : n;
}

static size_t octal_escape(struct reader *r, size_t at)
{
    uint32_t c = 0;
    size_t n = 1;
    while (n < 4 && at + n < r->text.n && r->text.p[at + n] >= '0' && r->text.p[at + n] <= '7')
        c = c * 8 + (uint32_t)(r->text.p[at + n++] - '0');
    if (n < 4 && at + n == r->text.n && !r->last)
        return 0;
    put_code_point(&r->out, c);
    return n;
}

/* The escape at the backslash; how many bytes, 0: there must be more. */
static size_t escape(struct reader *r, size_t at)
{
    static const char from[] = "ntrabfv\\'\"/", to[] = "\n\t\r\a\b\f\v\\'\"/";
    if (at + 1 == r->text.n && !r->last)
        return 0;
    char c = at + 1 < r->text.n ? r->text.p[at + 1] : 0;
    if (c == 'x')
        return hex_escape(r, at, 2);
    if (c == 'u')
        return hex_escape(r, at, 4);
    if (c == 'U')
        return hex_escape(r, at, 8);
    if (c >= '0' && c <= '7')
        return octal_escape(r, at);
    if (c == '\n')
        return 2;
    const char *known = c ? memchr(from, c, sizeof from - 1) : NULL;
    if (!known) {
        /* Not one that is known: Python leaves it as it is. */
        put_char(&r->out, '\\');
        return 1;
    }
    put_char(&r->out, to[known - from]);
    return 2;
}

static void end_string(struct reader *r, size_t at)
{
    r->at = at;
    buf_putc(&r->out, '"');
    r->l->phase = r->l->is_key ? PHASE_ASSIGN : PHASE_AFTER;
}

/* A string within the mark that has no escapes. */
static bool marked_string(struct reader *r)
{
    const char *const marks[] = {r->syntax->quote, NULL};
    int which;
    size_t at = machine_find(r->text, r->at, marks, &which);
    if (which < 0 && r->last)
        at = r->text.n;
    put_chars(&r->out, str_slice(r->text, r->at, at));
    r->at = at;
    if (which >= 0)
        end_string(r, at + str_from(r->syntax->quote).n);
    return which >= 0;
}

static bool string(struct reader *r)
{
    struct loose *l = r->l;
    if (l->quote == QUOTE_MARK)
        return marked_string(r);
    char quote = l->quote == QUOTE_DOUBLE || l->quote == QUOTE_DOUBLE_3 ? '"' : '\'';
    size_t n_quote = l->quote >= QUOTE_DOUBLE_3 ? 3 : 1;
    while (r->at < r->text.n) {
        char c = r->text.p[r->at];
        if (c == quote) {
            look ends = string_ends(r, r->at);
            if (ends == LOOK_MORE && !r->last)
                return false;
            if (ends == LOOK_YES) {
                end_string(r, r->at + n_quote);
                return true;
            }
        } else if (c == '\\' && !l->raw) {
            size_t n = escape(r, r->at);
            if (n == 0)
                return false;
            r->at += n;
            continue;
        }
        put_char(&r->out, c);
        r->at++;
    }
    return false;
}

/* ---- phases: false when there must be more text, or at the end ---- */

/* A value, where it is the innermost frame's next. `named`: its key was written. */
static bool value(struct reader *r, bool named)
{
    struct loose *l = r->l;
    size_t end;
    char c = r->text.p[r->at];
    bool positional = !named && (*top(r) & FRAME_OBJECT);
    look quoted = string_begins(r);
    if (quoted == LOOK_MORE && !r->last)
        return false;
    bool opens = c == '{' || c == '[' || c == '(';
    if (quoted != LOOK_YES && !opens && !word_ends(r, 0, &end))
        return false;
    if (positional)
        put_positional_key(r);
    else if (!named)
        begin_item(r);
    if (quoted == LOOK_YES) {
        buf_putc(&r->out, '"');
        l->is_key = false;
        l->phase = PHASE_STRING;
    } else if (opens) {
        r->at++;
        open_frame(r, c == '{' ? FRAME_OBJECT : FRAME_ARRAY);
    } else {
        put_word(&r->out, str_trim(str_slice(r->text, r->at, end)), l->is_text && is_outermost(r));
        r->at = end;
        l->phase = PHASE_AFTER;
    }
    return r->result == LOOSE_MORE;
}

/* A key of an object, or a value that needs none. */
static bool key(struct reader *r)
{
    struct loose *l = r->l;
    bool python_top = is_outermost(r) && r->syntax->is_python;
    char assign = is_outermost(r) ? r->syntax->assign : ':';
    char c = r->text.p[r->at];
    size_t end;
    if (python_top && (c == '{' || c == '[' || c == '('))
        return value(r, false);
    size_t begin = r->at;
    look quoted = l->seen > 0 ? LOOK_NO : string_begins(r);
    if (quoted == LOOK_MORE && !r->last)
        return false;
    if (quoted == LOOK_YES && python_top) {
        r->at = begin;
        return value(r, false);
    }
    if (quoted == LOOK_YES) {
        begin_item(r);
        buf_putc(&r->out, '"');
        l->is_key = true;
        l->is_text = false;
        l->phase = PHASE_STRING;
        return true;
    }
    if (!word_ends(r, assign, &end))
        return false;
    str word = str_trim(str_slice(r->text, r->at, end));
    bool assigned = r->text.p[end] == assign;
    if (python_top && !assigned) {
        put_positional_key(r);
        put_word(&r->out, word, l->is_text);
        l->phase = PHASE_AFTER;
    } else {
        put_key(r, word);
        l->phase = PHASE_VALUE;
    }
    r->at = end + assigned;
    return true;
}

/* Brackets, commas and markers that are the same to all phases; LOOK_NO: it is something else. */
static look punctuation(struct reader *r)
{
    char c = r->text.p[r->at];
    look end = mark_at(r, r->at, r->syntax->end);
    if (end == LOOK_YES) {
        end_here(r);
        return LOOK_YES;
    }
    if (end == LOOK_MORE && !r->last)
        return LOOK_MORE;
    if (c == ',') {
        fill_value(r);
        r->l->phase = PHASE_ITEM;
    } else if (is_closer(c)) {
        fill_value(r);
        r->l->phase = PHASE_AFTER;
        if (!is_outermost(r) || c == r->syntax->close)
            close_frame(r);
    } else {
        return LOOK_NO;
    }
    r->at++;
    return LOOK_YES;
}

static bool advance(struct reader *r)
{
    struct loose *l = r->l;
    if (l->phase == PHASE_STRING)
        return string(r);
    if (l->seen == 0) {
        r->at = space_skip(r->text, r->at);
        if (r->at == r->text.n)
            return false;
        look mark = punctuation(r);
        if (mark != LOOK_NO)
            return mark == LOOK_YES && r->result == LOOSE_MORE;
    }
    switch (l->phase) {
    case PHASE_ITEM: return *top(r) & FRAME_OBJECT ? key(r) : value(r, false);
    case PHASE_VALUE: return value(r, true);
    case PHASE_ASSIGN:
        if (r->text.p[r->at] == (is_outermost(r) ? r->syntax->assign : ':')) {
            buf_putc(&r->out, ':');
            l->phase = PHASE_VALUE;
        }
        break;
    default: break;
    }
    /* After a value nothing but the above makes sense: it goes. */
    r->at++;
    return true;
}

void loose_begin(struct loose *l, struct machine *m)
{
    *l = (struct loose){.depth = 1, .frames = {FRAME_OBJECT}};
    machine_args(m, STR("{"));
}

loose_result loose_step(struct loose *l, struct machine *m, const struct loose_syntax *syntax,
                        const struct answer_tool *tool)
{
    struct reader r = {.l = l,
                       .syntax = syntax,
                       .tool = tool,
                       .last = machine_is_last(m),
                       .text = machine_unread(m),
                       .result = LOOSE_MORE};
    buf_init(&r.out, OUT_BYTES_MAX);
    while (advance(&r))
        ;
    if (r.out.failed)
        machine_fail(m, T9_STATUS_NOMEM);
    else
        machine_args(m, buf_str(&r.out));
    buf_deinit(&r.out);
    if (r.last && r.result == LOOSE_MORE)
        r.at = r.text.n;
    machine_take(m, r.at);
    return r.result;
}
