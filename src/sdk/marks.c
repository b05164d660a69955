/*
 * sdk/marks.c - see marks.h.
 *
 * What is common to many conversations ends where the first turn's own text begins; a turn that is
 * edited or asked anew differs where its text begins; the next request goes on where the last text
 * ends, before the words that invited the answer. All of these are places between a template's
 * special tokens, and there the tokens are known to be the same whatever comes next.
 */
#include "sdk/marks.h"

enum { TURNS_MAX = T9_MARKS_MAX - 2 /* beside the head and the end */ };

/* Cuts that lie at or before byte n_bytes. */
static size_t n_cuts_upto(const struct tok_cuts *cuts, size_t n_bytes)
{
    size_t low = 0, high = cuts->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cuts->p[mid].n_bytes <= n_bytes)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static size_t put(struct t9_mark *out, size_t n, uint32_t n_tokens, t9_mark_kind kind)
{
    if (n_tokens < 1 || n_tokens > INT32_MAX || (n && (int64_t)n_tokens <= out[n - 1].n_tokens))
        return n;
    out[n] = (struct t9_mark){(int32_t)n_tokens, kind};
    return n + 1;
}

/* The byte where the text of span i begins, if it is a turn's and not its continuation. */
static bool begins_turn(const struct jinja_output *text, size_t i, size_t *at)
{
    const struct jinja_span *s = text->spans;
    *at = i ? s[i - 1].end : 0;
    return s[i].origin == ORIGIN_TURN && (i == 0 || s[i - 1].origin != ORIGIN_TURN);
}

size_t marks_find(const struct jinja_output *text, const struct tok_cuts *cuts,
                  struct t9_mark out[T9_MARKS_MAX])
{
    size_t n = 0, n_turns = 0, at, last_end = 0;
    for (size_t i = 0; i < text->n_spans; i++) {
        n_turns += begins_turn(text, i, &at);
        if (text->spans[i].origin != JINJA_ORIGIN_TEMPLATE)
            last_end = text->spans[i].end;
    }
    size_t turn = 0;
    for (size_t i = 0; i < text->n_spans; i++) {
        if (!begins_turn(text, i, &at))
            continue;
        size_t k = n_cuts_upto(cuts, at);
        bool is_head = turn++ == 0;
        if (k && (is_head || turn + TURNS_MAX > n_turns))
            n = put(out, n, cuts->p[k - 1].n_tokens, is_head ? T9_MARK_HEAD : T9_MARK_TURN);
    }
    size_t k = n_cuts_upto(cuts, last_end);
    if (n_turns && k < cuts->n)
        n = put(out, n, cuts->p[k].n_tokens, T9_MARK_TURN);
    return n;
}
