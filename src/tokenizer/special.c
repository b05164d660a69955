/*
 * tokenizer/special.c - finding special tokens in text, linear for any number of them.
 *
 * All markers go, spelled backwards, into one Aho-Corasick automaton, and the text is read from its
 * end. The state at position i then knows the longest marker that BEGINS at i, so leftmost-longest
 * selection is one pass over the hits in order of position. Provenance costs nothing extra: for
 * each kind of marker the automaton reads every stretch of text where that kind is allowed by
 * itself, so a hit can not reach out of it. Ordinary text stays in the root state, where a table of
 * 256 answers.
 *
 * Immutable after special_new; any thread.
 */
#include "tokenizer/parts.h"

#include "base/mem.h"

#include <string.h>

struct special_set {
    uint64_t *edge; /* hash of (state << 8 | byte) << 32 | next state; 0 = empty */
    uint32_t edge_mask;
    uint32_t n_states;
    uint32_t root[256];                  /* next state from the root, 0 = stay */
    uint32_t *fail;                      /* [n_states] the longest proper suffix that is a state */
    int32_t *best[SPECIAL_KINDS];        /* [n_states] longest marker that ends here, -1 = none */
    uint32_t *best_bytes[SPECIAL_KINDS]; /* its length */
    bool any[SPECIAL_KINDS];
};

/* Build only: the trie as lists of children. */
struct trie {
    uint32_t *child, *next; /* [n_states_max] first child, next sibling; 0 = none */
    uint8_t *byte;          /* [n_states_max] byte on the edge that leads here */
    uint32_t *queue;        /* [n_states_max] states by depth */
};

static uint32_t edge_slot(const struct special_set *s, uint32_t key)
{
    uint32_t i = (key * 0x9E3779B1U) & s->edge_mask;
    while (s->edge[i] && (uint32_t)(s->edge[i] >> 32) != key)
        i = (i + 1) & s->edge_mask;
    return i;
}

/* Next state by an edge of the trie, 0 when there is none. */
static uint32_t edge_get(const struct special_set *s, uint32_t state, uint8_t byte)
{
    if (!state)
        return s->root[byte];
    return (uint32_t)s->edge[edge_slot(s, state << 8 | byte)];
}

static uint32_t trie_child(struct special_set *s, struct trie *t, uint32_t state, uint8_t byte)
{
    uint32_t to = edge_get(s, state, byte);
    if (to)
        return to;
    to = s->n_states++;
    uint32_t key = state << 8 | byte;
    s->edge[edge_slot(s, key)] = (uint64_t)key << 32 | to;
    if (!state)
        s->root[byte] = to;
    t->byte[to] = byte;
    t->next[to] = t->child[state];
    t->child[state] = to;
    return to;
}

static void trie_add(struct special_set *s, struct trie *t, const struct special_entry *e)
{
    uint32_t state = 0;
    for (size_t i = e->text.n; i-- > 0;)
        state = trie_child(s, t, state, (uint8_t)e->text.p[i]);
    if (s->best[e->kind][state] < 0) {
        s->best[e->kind][state] = e->id;
        s->best_bytes[e->kind][state] = (uint32_t)e->text.n;
    }
    s->any[e->kind] = true;
}

static uint32_t step(const struct special_set *s, uint32_t state, uint8_t byte)
{
    while (state) {
        uint32_t to = edge_get(s, state, byte);
        if (to)
            return to;
        state = s->fail[state];
    }
    return s->root[byte];
}

/* Failure links in order of depth; a state without a marker of its own inherits its suffix's. */
static void link_failures(struct special_set *s, struct trie *t)
{
    size_t head = 0, tail = 0;
    for (uint32_t c = t->child[0]; c; c = t->next[c])
        t->queue[tail++] = c;
    while (head < tail) {
        uint32_t state = t->queue[head++];
        for (int k = 0; k < SPECIAL_KINDS; k++) {
            if (s->best[k][state] < 0) {
                s->best[k][state] = s->best[k][s->fail[state]];
                s->best_bytes[k][state] = s->best_bytes[k][s->fail[state]];
            }
        }
        for (uint32_t c = t->child[state]; c; c = t->next[c]) {
            s->fail[c] = step(s, s->fail[state], t->byte[c]);
            t->queue[tail++] = c;
        }
    }
}

static bool set_alloc(struct special_set *s, struct trie *t, size_t n_states_max)
{
    uint32_t cap = 16;
    while (cap < 2 * n_states_max)
        cap *= 2;
    s->edge_mask = cap - 1;
    s->edge = mem_calloc(cap, sizeof(*s->edge));
    s->fail = mem_calloc(n_states_max, sizeof(*s->fail));
    bool ok = s->edge && s->fail;
    for (int k = 0; k < SPECIAL_KINDS; k++) {
        s->best[k] = mem_alloc(n_states_max * sizeof(*s->best[k]));
        s->best_bytes[k] = mem_calloc(n_states_max, sizeof(*s->best_bytes[k]));
        ok = ok && s->best[k] && s->best_bytes[k];
        if (ok)
            memset(s->best[k], 0xFF, n_states_max * sizeof(*s->best[k]));
    }
    t->child = mem_calloc(n_states_max, sizeof(*t->child));
    t->next = mem_calloc(n_states_max, sizeof(*t->next));
    t->byte = mem_calloc(n_states_max, 1);
    t->queue = mem_calloc(n_states_max, sizeof(*t->queue));
    return ok && t->child && t->next && t->byte && t->queue;
}

t9_status special_new(struct special_set **out, const struct special_entry *e, size_t n,
                      struct t9_err *err)
{
    *out = NULL;
    if (!n)
        return T9_STATUS_OK;
    size_t n_states_max = 1;
    for (size_t i = 0; i < n; i++) {
        n_states_max += e[i].text.n;
        if (n_states_max > TOK_SPECIAL_BYTES_MAX)
            return t9_fail(err, T9_STATUS_CORRUPT,
                           "tokenizer: the special tokens have more than %u bytes together",
                           TOK_SPECIAL_BYTES_MAX);
    }
    t9_status st = T9_STATUS_OK;
    struct trie t = {0};
    struct special_set *s = mem_calloc(1, sizeof(*s));
    if (!s || !set_alloc(s, &t, n_states_max)) {
        st = t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for %zu special tokens", n);
        goto done;
    }
    s->n_states = 1;
    for (size_t i = 0; i < n; i++) {
        if (e[i].text.n)
            trie_add(s, &t, &e[i]);
    }
    link_failures(s, &t);
    *out = s;
    s = NULL;
done:
    mem_free(t.child);
    mem_free(t.next);
    mem_free(t.byte);
    mem_free(t.queue);
    special_free(s);
    return st;
}

void special_free(struct special_set *s)
{
    if (!s)
        return;
    mem_free(s->edge);
    mem_free(s->fail);
    for (int k = 0; k < SPECIAL_KINDS; k++) {
        mem_free(s->best[k]);
        mem_free(s->best_bytes[k]);
    }
    mem_free(s);
}

static bool matches_push(struct special_matches *m, struct special_match x)
{
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 64;
        struct special_match *p = mem_realloc(m->p, cap, sizeof(*p));
        if (!p)
            return false;
        m->p = p;
        m->cap = cap;
    }
    m->p[m->n++] = x;
    return true;
}

/* Reads text[from, to) from its end and pushes, at each position, the longest marker that begins
 * there: positions descend. */
static bool scan_back(const struct special_set *s, int kind, str text, size_t from, size_t to,
                      struct special_matches *hits)
{
    const unsigned char *p = (const unsigned char *)text.p;
    uint32_t state = 0;
    for (size_t i = to; i-- > from;) {
        if (!state) {
            while (!s->root[p[i]]) {
                if (i == from)
                    return true;
                i--;
            }
        }
        state = step(s, state, p[i]);
        int32_t id = s->best[kind][state];
        if (id >= 0 &&
            !matches_push(hits, (struct special_match){i, s->best_bytes[kind][state], id, kind}))
            return false;
    }
    return true;
}

/* Hits of one kind over the whole text, positions descending. Neighbouring spans that both allow
 * the kind are one stretch: a marker may lie across their border. */
static bool scan_kind(const struct special_set *s, int kind, str text, const struct tok_span *spans,
                      size_t n_spans, struct special_matches *hits)
{
    if (!s->any[kind])
        return true;
    size_t end = text.n, to = text.n;
    bool open = false;
    for (size_t i = n_spans; i-- > 0;) {
        if (!spans[i].text.n)
            continue;
        bool allowed =
            kind == SPECIAL_TEXT ||
            (kind == SPECIAL_CONTROL ? spans[i].parse_control : spans[i].parse_user_defined);
        if (allowed && !open)
            to = end;
        if (!allowed && open && !scan_back(s, kind, text, end, to, hits))
            return false;
        open = allowed;
        end -= spans[i].text.n;
    }
    return !open || scan_back(s, kind, text, 0, to, hits);
}

static const struct special_match *last_of(const struct special_matches *m)
{
    return &m->p[m->n - 1];
}

/* Leftmost, then longest. */
static bool is_before(const struct special_match *a, const struct special_match *b)
{
    return a->from != b->from ? a->from < b->from : a->n_bytes > b->n_bytes;
}

t9_status special_find(const struct special_set *s, str text, const struct tok_span *spans,
                       size_t n_spans, struct special_matches *out, struct t9_err *err)
{
    t9_status st = T9_STATUS_OK;
    struct special_matches hits[SPECIAL_KINDS] = {{0}};
    bool ok = true;
    for (int k = 0; ok && s && k < SPECIAL_KINDS; k++)
        ok = scan_kind(s, k, text, spans, n_spans, &hits[k]);
    /* Merge from the back of the lists, which is the front of the text. */
    for (size_t end = 0; ok;) {
        int best = -1;
        for (int k = 0; k < SPECIAL_KINDS; k++) {
            if (hits[k].n && (best < 0 || is_before(last_of(&hits[k]), last_of(&hits[best]))))
                best = k;
        }
        if (best < 0)
            break;
        struct special_match m = *last_of(&hits[best]);
        hits[best].n--;
        if (m.from < end)
            continue;
        end = m.from + m.n_bytes;
        ok = matches_push(out, m);
    }
    if (!ok)
        st = t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for the special tokens of a text");
    for (int k = 0; k < SPECIAL_KINDS; k++)
        mem_free(hits[k].p);
    return st;
}
