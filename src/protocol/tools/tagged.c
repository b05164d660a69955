/*
 * protocol/tools/tagged.c - see tagged.h.
 */
#include "protocol/tools/tagged.h"

#include "protocol/tools/space.h"

#include <string.h>

enum { NAME_BYTES_MAX = 256 };

tag_fit tag_at(str text, size_t at, const char *tag)
{
    str t = str_from(tag);
    size_t n = text.n - at < t.n ? text.n - at : t.n;
    if (n > 0 && memcmp(text.p + at, t.p, n) != 0)
        return TAG_NO;
    return n == t.n ? TAG_YES : TAG_MAYBE;
}

tag_fit tag_follows(str text, size_t at, const char *const *tags)
{
    tag_fit best = TAG_NO;
    size_t from = space_skip(text, at);
    if (from - at > TAG_SPACE_MAX)
        return TAG_NO;
    for (; *tags && best != TAG_YES; tags++) {
        tag_fit fit = tag_at(text, from, *tags);
        best = fit > best ? fit : best;
    }
    return best;
}

static str without_quotes(str name)
{
    char c = name.n > 1 ? name.p[0] : 0;
    bool quoted = (c == '"' || c == '\'') && name.p[name.n - 1] == c;
    return quoted ? str_slice(name, 1, name.n - 1) : name;
}

tag_fit tag_with_name(str text, size_t at, const char *open, str *name, size_t *end)
{
    tag_fit fit = tag_at(text, at, open);
    if (fit != TAG_YES)
        return fit;
    size_t from = at + strlen(open);
    at = space_skip(text, from);
    if ((at < text.n && text.p[at] != '=') || at - from > TAG_SPACE_MAX)
        return TAG_NO;
    from = at + 1;
    for (at = from; at < text.n; at++) {
        if (text.p[at] == '>')
            break;
        if (text.p[at] == '<' || text.p[at] == '\n' || at - from > NAME_BYTES_MAX)
            return TAG_NO;
    }
    if (at >= text.n)
        return TAG_MAYBE;
    *name = without_quotes(str_trim(str_slice(text, from, at)));
    *end = at + 1;
    return name->n > 0 ? TAG_YES : TAG_NO;
}

void tagged_begin(struct tagged *t, struct machine *m, const struct answer_tool *tool, str key)
{
    typed_key(&t->args, m, key);
    t->types = typing_of(tool->schema, key);
    t->begun = false;
    t->fresh = true;
    t->seen = 0;
    if (t->types == TYPING_STRING)
        typed_quote(m);
}

/* The first n unread bytes are of the value, maybe but for a line feed at their end. */
static void pass(struct tagged *t, struct machine *m, bool trims, size_t n)
{
    str text = machine_unread(m);
    size_t sure = n;
    if (t->types == TYPING_STRING) {
        if (trims && n > 0 && text.p[n - 1] == '\n')
            sure--;
        typed_text(m, str_slice(text, 0, sure));
        machine_take(m, sure);
        t->fresh &= sure == 0;
        n -= sure;
    }
    t->seen = n;
}

/* The value is the first n unread bytes. */
static void finish(struct tagged *t, struct machine *m, bool trims, size_t n)
{
    str value = str_slice(machine_unread(m), 0, n);
    if (trims && n > 0 && value.p[n - 1] == '\n')
        value.n--;
    if (t->types == TYPING_STRING) {
        typed_text(m, value);
        typed_quote(m);
    } else {
        typed_value(m, t->types, value);
    }
}

tagged_result tagged_step(struct tagged *t, struct machine *m, const struct answer_tool *tool,
                          const struct tagged_syntax *syntax)
{
    struct tagged_end end;
    bool last = machine_is_last(m);
    str text = machine_unread(m);
    if (text.n == 0)
        return TAGGED_MORE;
    if (!t->begun && syntax->trims && text.p[0] == '\n') {
        machine_take(m, 1);
        text = machine_unread(m);
    }
    t->begun = true;
    size_t at;
    for (at = t->seen; at < text.n; at++) {
        if (text.p[at] != '<')
            continue;
        bool own_line = at > 0 ? text.p[at - 1] == '\n' : t->fresh;
        tag_fit fit = syntax->ends(tool, text, at, own_line, last, &end);
        if (fit == TAG_YES) {
            finish(t, m, syntax->trims, at);
            machine_take(m, end.unsure ? text.n : at + end.n_bytes);
            return end.unsure ? TAGGED_CUT : TAGGED_DONE;
        }
        if (fit == TAG_MAYBE && !last)
            break;
    }
    pass(t, m, syntax->trims, at);
    if (last)
        machine_take(m, machine_unread(m).n);
    return TAGGED_MORE;
}
