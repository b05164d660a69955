/*
 * protocol/pin.c - see pin.h.
 *
 * Where a message ends in a prompt only the template knows. So the conversation is laid out once
 * more with something else behind the mark: what both have in common is what the mark covers.
 */
#include "protocol/pin.h"

#include <string.h>

/* Begins as no text does that goes on, so that the two part at the mark. */
static const str other = {"\x01mark\x01", 6};

static bool is_whole_prompt(const struct chat_request *r)
{
    const struct chat_pin *pin = &r->pin;
    const struct chat_message *m = r->messages;
    return pin->n_messages == r->n_messages &&
           (pin->content_bytes == CHAT_PIN_ALL ||
            (pin->content_bytes >= m[r->n_messages - 1].content.n &&
             m[r->n_messages - 1].n_calls == 0));
}

/* The text with other text from `at` on put between; false without memory. */
static bool put_other(struct arena *a, str *text, size_t at)
{
    if (at > text->n)
        at = text->n;
    char *p = arena_alloc(a, text->n + other.n);
    if (!p)
        return false;
    if (at)
        memcpy(p, text->p, at);
    memcpy(p + at, other.p, other.n);
    if (text->n > at)
        memcpy(p + at + other.n, text->p + at, text->n - at);
    *text = (str){p, text->n + other.n};
    return true;
}

static bool mark_message(struct arena *a, const struct chat_pin *pin, struct chat_request *r)
{
    size_t i = pin->n_messages - 1, at = pin->content_bytes;
    struct chat_message *m = arena_calloc(a, r->n_messages, sizeof *m);
    if (!m)
        return false;
    memcpy(m, r->messages, r->n_messages * sizeof *m);
    r->messages = m;
    if (at == CHAT_PIN_ALL && m[i].n_calls && i + 1 < r->n_messages) {
        i++;
        at = 0;
    }
    m[i].has_content = true;
    return put_other(a, &m[i].content, at);
}

static bool mark_tools(struct arena *a, const struct chat_pin *pin, struct chat_request *r)
{
    size_t n = pin->n_tools;
    struct chat_tool *t = arena_calloc(a, r->n_tools + 1, sizeof *t);
    if (!t)
        return false;
    memcpy(t, r->tools, n * sizeof *t);
    t[n].name = STR("\x01mark\x01");
    if (r->n_tools > n)
        memcpy(t + n + 1, r->tools + n, (r->n_tools - n) * sizeof *t);
    r->tools = t;
    r->n_tools++;
    return true;
}

static size_t n_common(const struct prep_ids *a, const struct prep_ids *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->p[n] == b->p[n])
        n++;
    return n;
}

/* The marked prompt goes first: of two such texts the library remembers the later one, and that
 * must be the one that the conversation goes on with. */
static t9_status tokens_marked(const struct prep *p, struct chat_request *r, struct prep_ids *out,
                               struct prep_ids *marked, struct chat_error *err)
{
    struct arena_mark mark = arena_save(&r->arena);
    struct chat_request changed = *r;
    struct chat_error e = {0};
    bool fits = r->pin.n_messages ? mark_message(&r->arena, &r->pin, &changed)
                                  : mark_tools(&r->arena, &r->pin, &changed);
    bool found = fits && prep_tokens(p, &changed, marked, &e) == T9_STATUS_OK;
    arena_release(&r->arena, mark);
    T9_TRY(prep_tokens(p, r, out, err));
    if (found)
        r->sampling.n_pin_tokens = (int32_t)n_common(marked, out);
    else
        chat_warn(r, "cache_control has no effect: its place in the prompt could not be found");
    return T9_STATUS_OK;
}

t9_status pin_prompt(const struct prep *p, struct chat_request *r, struct prep_ids *out,
                     struct chat_error *err)
{
    struct prep_ids marked = {0};
    t9_status s;
    *out = (struct prep_ids){0};
    bool of_tools = r->pin.n_messages == 0;
    if (r->pin.ms == 0 || r->pin.n_messages > r->n_messages || r->pin.n_tools > r->n_tools ||
        (of_tools && (r->pin.n_tools == 0 || r->no_calls)))
        return prep_tokens(p, r, out, err);
    r->sampling.pin_ms = r->pin.ms;
    if (is_whole_prompt(r)) {
        s = prep_tokens(p, r, out, err);
        r->sampling.n_pin_tokens = (int32_t)out->n;
        return s;
    }
    s = tokens_marked(p, r, out, &marked, err);
    prep_ids_deinit(&marked);
    return s;
}
