/*
 * protocol/tools/answer.c - see answer.h and machine.h: what all dialects share. Unread text waits
 * in `in`, parts in `parts` with their texts in `text`.
 */
#include "protocol/tools/answer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "protocol/tools/machine.h"
#include "protocol/tools/space.h"

#include <string.h>

enum { MARKERS_MAX = 16, PARTS_BYTES_MAX = 1 << 26 };

struct part_rec {
    answer_kind kind;
    int32_t call;
    size_t text_at, text_n, id_at, id_n; /* in `text` */
    uint32_t end;
    bool complete;
};

struct machine {
    struct answer_params params;
    struct buf in;
    size_t at; /* of `in`, what was taken */
    /* So many bytes of `in` were counted, and up to there the answer has so many characters. */
    size_t counted;
    uint32_t n_chars;
    uint32_t end; /* of what is said */
    bool last;

    struct buf parts; /* struct part_rec */
    struct buf text;
    size_t next; /* part that is read next */

    bool reasoning;
    bool edge;        /* white space that comes now belongs to nothing */
    bool said;        /* content or reasoning has come since the edge */
    struct buf space; /* white space that may turn out to be at an edge */

    int32_t n_calls, n_complete;
    bool in_call, has_args;
    t9_status status;
};

struct answer_parser {
    struct machine m;
    uint64_t state[]; /* the dialect's */
};

t9_status answer_parser_new(struct answer_parser **out, const struct answer_params *p,
                            struct t9_err *err)
{
    struct answer_parser *a = mem_calloc(1, sizeof *a + p->dialect->state_bytes + sizeof *a->state);
    *out = NULL;
    if (!a)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory to read an answer");
    struct machine *m = &a->m;
    m->params = *p;
    m->reasoning = p->reasoning_open || p->dialect->starts_in_reasoning;
    m->edge = m->reasoning;
    buf_init(&m->in, p->max_bytes);
    buf_init(&m->space, p->max_bytes);
    buf_init(&m->parts, PARTS_BYTES_MAX);
    buf_init(&m->text, p->max_bytes + PARTS_BYTES_MAX);
    *out = a;
    return T9_STATUS_OK;
}

void answer_parser_free(struct answer_parser *a)
{
    if (!a)
        return;
    buf_deinit(&a->m.in);
    buf_deinit(&a->m.space);
    buf_deinit(&a->m.parts);
    buf_deinit(&a->m.text);
    mem_free(a);
}

/* ---- parts ---- */

/* Nothing more is wanted. */
static bool is_satisfied(const struct machine *m)
{
    return m->params.one_call && m->n_complete > 0;
}

static struct part_rec *recs(const struct machine *m)
{
    return (struct part_rec *)(void *)m->parts.p;
}

static size_t n_recs(const struct machine *m)
{
    return m->parts.n / sizeof(struct part_rec);
}

/* Characters of the answer before this offset in `in`, which never goes back. */
static uint32_t chars_before(struct machine *m, size_t at)
{
    if (at > m->counted) {
        m->n_chars += (uint32_t)utf8_count(str_slice(buf_str(&m->in), m->counted, at));
        m->counted = at;
    }
    return m->n_chars;
}

/* Where a text ends that is mostly a view into `in`; else all that was taken counts. */
static uint32_t end_of(struct machine *m, str text)
{
    uintptr_t in = (uintptr_t)m->in.p, p = (uintptr_t)text.p;
    bool inside = m->in.n && p >= in && p + text.n <= in + m->in.n;
    return chars_before(m, inside ? (size_t)(p - in) + text.n : m->at);
}

/* Joins it to the part before where that is of one kind. */
static void add_part(struct machine *m, answer_kind kind, str text, str id, bool complete)
{
    size_t n = n_recs(m);
    struct part_rec *before = n > m->next ? &recs(m)[n - 1] : NULL;
    bool joins = kind == ANSWER_TEXT || kind == ANSWER_REASONING || kind == ANSWER_ARGS;
    if (is_satisfied(m))
        return;
    struct part_rec r = {.kind = kind,
                         .call = m->n_calls - 1,
                         .text_at = m->text.n,
                         .text_n = text.n,
                         .id_at = m->text.n + text.n,
                         .id_n = id.n,
                         .end = m->end,
                         .complete = complete};
    if (joins && text.n == 0)
        return;
    buf_puts_str(&m->text, text);
    buf_puts_str(&m->text, id);
    if (joins && before && before->kind == kind && before->text_at + before->text_n == r.text_at) {
        before->text_n += text.n;
        before->end = r.end;
    } else {
        buf_append(&m->parts, &r, sizeof r);
    }
    if (m->text.failed || m->parts.failed)
        machine_fail(m, T9_STATUS_NOMEM);
}

bool answer_parser_next(struct answer_parser *a, struct answer_part *out)
{
    struct machine *m = &a->m;
    *out = (struct answer_part){0};
    if (m->next >= n_recs(m))
        return false;
    const struct part_rec *r = &recs(m)[m->next++];
    out->kind = r->kind;
    out->call = r->call;
    out->text = (str){m->text.p + r->text_at, r->text_n};
    out->id = (str){m->text.p + r->id_at, r->id_n};
    out->complete = r->complete;
    out->end = r->end;
    return true;
}

bool answer_parser_is_satisfied(const struct answer_parser *a)
{
    return is_satisfied(&a->m);
}

int32_t answer_parser_n_calls(const struct answer_parser *a)
{
    return a->m.n_complete;
}

/* ---- running ---- */

static t9_status run(struct answer_parser *a)
{
    struct machine *m = &a->m;
    if (m->status == T9_STATUS_OK && m->in.failed)
        machine_fail(m, T9_STATUS_TOO_LARGE);
    if (m->status == T9_STATUS_OK && !answer_parser_is_satisfied(a))
        m->params.dialect->step(m, a->state);
    if (answer_parser_is_satisfied(a))
        m->at = m->in.n;
    (void)chars_before(m, m->at);
    m->counted -= m->at;
    buf_consume(&m->in, m->at);
    m->at = 0;
    return m->status;
}

/* Read parts go; what was read must not be asked for again. */
static void drop_read(struct machine *m)
{
    if (m->next < n_recs(m))
        return;
    buf_clear(&m->parts);
    buf_clear(&m->text);
    m->next = 0;
}

t9_status answer_parser_push(struct answer_parser *a, str text)
{
    drop_read(&a->m);
    buf_puts_str(&a->m.in, text);
    return run(a);
}

static void flush_space(struct machine *m);

t9_status answer_parser_end(struct answer_parser *a)
{
    struct machine *m = &a->m;
    drop_read(m);
    m->last = true;
    (void)run(a);
    if (m->in_call)
        machine_call_end(m, false);
    if (!m->reasoning && !m->edge && !answer_parser_is_satisfied(a))
        flush_space(m);
    return m->status;
}

void machine_fail(struct machine *m, t9_status s)
{
    if (m->status != T9_STATUS_OK)
        return;
    m->status = s;
}

str machine_unread(const struct machine *m)
{
    str text = buf_str(&m->in);
    return text.p ? str_slice(text, m->at, text.n) : STR("");
}

void machine_take(struct machine *m, size_t n_bytes)
{
    m->at += n_bytes;
}

bool machine_is_last(const struct machine *m)
{
    return m->last;
}

const struct answer_params *machine_params(const struct machine *m)
{
    return &m->params;
}

/* ---- markers ---- */

/* Whether text ends, at `at`, inside of the marker. */
static bool may_begin(str text, size_t at, str marker)
{
    size_t n = text.n - at;
    return n < marker.n && memcmp(text.p + at, marker.p, n) == 0;
}

static int marker_at(str text, size_t at, const char *const *markers, bool *maybe)
{
    int best = -1;
    size_t best_n = 0;
    for (int i = 0; markers[i]; i++) {
        str marker = str_from(markers[i]);
        if (marker.p[0] != text.p[at])
            continue;
        if (marker.n > best_n && marker.n <= text.n - at &&
            memcmp(text.p + at, marker.p, marker.n) == 0) {
            best = i;
            best_n = marker.n;
        }
        *maybe |= may_begin(text, at, marker);
    }
    return best;
}

size_t machine_find(str text, size_t from, const char *const *markers, int *which)
{
    for (size_t at = from; at < text.n; at++) {
        bool maybe = false;
        *which = marker_at(text, at, markers, &maybe);
        /* A longer one may be on its way. */
        if (maybe) {
            *which = -1;
            return at;
        }
        if (*which >= 0)
            return at;
    }
    *which = -1;
    return text.n;
}

/* ---- content and reasoning ---- */

static void add_said(struct machine *m, str text)
{
    add_part(m, m->reasoning ? ANSWER_REASONING : ANSWER_TEXT, text, (str){0}, false);
}

static void flush_space(struct machine *m)
{
    add_said(m, buf_str(&m->space));
    buf_clear(&m->space);
}

/* Says text without white space at its edges. */
static void say(struct machine *m, str text)
{
    size_t from = 0, to = text.n;
    bool holds = m->reasoning || m->params.n_tools > 0;
    while (m->edge && from < to && space_is(text.p[from]))
        from++;
    while (holds && to > from && space_is(text.p[to - 1]))
        to--;
    if (to > from) {
        m->end = end_of(m, str_slice(text, from, to));
        flush_space(m);
        add_said(m, str_slice(text, from, to));
        m->edge = false;
        m->said = true;
    }
    if (!m->edge)
        buf_puts_str(&m->space, str_slice(text, to, text.n));
    if (m->space.failed)
        machine_fail(m, T9_STATUS_TOO_LARGE);
}

static void to_edge(struct machine *m)
{
    buf_clear(&m->space);
    m->edge = true;
    m->said = false;
}

void machine_set_reasoning(struct machine *m, bool on)
{
    if (m->reasoning == on)
        return;
    m->reasoning = on;
    to_edge(m);
}

bool machine_in_reasoning(const struct machine *m)
{
    return m->reasoning;
}

void machine_text(struct machine *m, str text)
{
    machine_set_reasoning(m, false);
    say(m, text);
}

void machine_reasoning(struct machine *m, str text)
{
    machine_set_reasoning(m, true);
    say(m, text);
}

bool machine_on_own_line(const struct machine *m)
{
    return !m->said || (m->space.n > 0 && m->space.p[m->space.n - 1] == '\n');
}

/* A think tag was found: what it is to the reader, or that it is text. */
static void think_tag(struct machine *m, str tag, bool opens)
{
    bool first = !m->said;
    if (m->reasoning && !opens)
        machine_set_reasoning(m, false);
    else if (!m->reasoning && opens && first)
        machine_set_reasoning(m, true);
    else if (!m->reasoning && !opens && first)
        to_edge(m);
    else if (opens ? !(m->reasoning && first) : !machine_on_own_line(m))
        say(m, tag);
}

int machine_outside(struct machine *m, const char *const *markers)
{
    const struct dialect *d = m->params.dialect;
    const char *all[MARKERS_MAX];
    for (;;) {
        int n = 0, n_calls = 0, which;
        for (; !m->reasoning && m->params.n_tools && markers && markers[n] && n < MARKERS_MAX - 3;
             n++)
            all[n] = markers[n];
        n_calls = n;
        if (d->think_open) {
            all[n++] = d->think_open;
            all[n++] = d->think_close;
        }
        all[n] = NULL;
        str text = machine_unread(m);
        size_t at = machine_find(text, 0, all, &which);
        if (which < 0 && m->last && at < text.n) {
            bool ignored = false;
            which = marker_at(text, at, all, &ignored);
            at = which < 0 ? text.n : at;
        }
        say(m, str_slice(text, 0, at));
        machine_take(m, at);
        if (which < 0)
            return -1;
        str marker = str_from(all[which]);
        machine_take(m, marker.n);
        if (which < n_calls)
            return which;
        think_tag(m, marker, which == n_calls);
    }
}

/* ---- calls ---- */

const struct answer_tool *machine_tool(const struct machine *m, str name)
{
    for (size_t i = 0; i < m->params.n_tools; i++) {
        if (str_eq(m->params.tools[i].name, name))
            return &m->params.tools[i];
    }
    return NULL;
}

void machine_call(struct machine *m, const struct answer_tool *tool, str id)
{
    m->reasoning = false;
    to_edge(m);
    if (is_satisfied(m))
        return;
    m->n_calls++;
    m->end = chars_before(m, m->at);
    m->in_call = true;
    m->has_args = false;
    add_part(m, ANSWER_CALL, tool->name, id, false);
}

void machine_args(struct machine *m, str json)
{
    m->has_args |= json.n > 0;
    m->end = chars_before(m, m->at);
    add_part(m, ANSWER_ARGS, json, (str){0}, false);
}

void machine_call_end(struct machine *m, bool complete)
{
    if (!m->in_call)
        return;
    if (complete && !m->has_args)
        machine_args(m, STR("{}"));
    add_part(m, ANSWER_CALL_END, (str){0}, (str){0}, complete);
    m->in_call = false;
    m->n_complete += complete;
    to_edge(m);
}

bool machine_in_call(const struct machine *m)
{
    return m->in_call;
}
