/*
 * kv/checkpoint.c - states in the prefix tree: who owns them, where a prompt can go on, and which
 * one goes next. See checkpoint.h.
 *
 * States lie in lists by the power of two of what they are worth, tokens that would be computed
 * again x kind x hits, each ordered by last use, as cold pages do (evict.c); one may go while
 * sequences hold its page, since whoever resumes from a state has a copy. What a state saves grows
 * when the one before it goes: that is looked at when it is about to go itself, and if it has
 * become worth more it changes lists and another one is chosen. Of two intervals that are equally
 * long for their place in the text none is preferred, so thinning leaves growing intervals.
 *
 * Pages that no state needs are of no use here: they go before any state, and a state goes before
 * the pages that lead to it.
 */
#include "kv/checkpoint.h"

#include "kv/tree.h"

#include <string.h>

enum {
    SCAN_MAX = 64, /* children that are looked at, used most recently */
    LOOKS_MAX = 8, /* times that the choice of a victim is made anew */
    INTERVAL_TOKENS = 1024,
    INTERVAL_PARTS = 20, /* an interval is normal when it is this part of the text before it */
};

#define YOUNG_AGE_NS                                                                               \
    60e9 /* age that a new checkpoint counts as having beside those that are there */

/* ---- order ---- */

/* Tokens from the state before to this one's. */
static int32_t gap_of(const struct kv_node *n)
{
    int32_t gap = n->n_tokens;
    for (n = n->parent; n->parent && n->state_id < 0; n = n->parent)
        gap += n->n_tokens;
    return gap;
}

static int level_of(ckpt_kind kind, int32_t gap, int32_t at, uint32_t hits)
{
    static const int bonus[CKPT_KINDS] = {0, 1, 2, 3, 3};
    uint64_t worth = gap > 0 ? (uint64_t)gap : 1;
    int32_t normal = at / INTERVAL_PARTS;
    if (kind == CKPT_KIND_INTERVAL && normal > INTERVAL_TOKENS)
        worth = worth * INTERVAL_TOKENS / (uint64_t)normal + 1;
    int level = tree_log2((uint32_t)worth) + bonus[kind] + tree_log2((hits < 255 ? hits : 255) + 1);
    return level < TREE_STATE_LISTS - 1 ? level : TREE_STATE_LISTS - 2;
}

static int list_of(const struct kv_node *n, const struct tree_state *s)
{
    if (n->pin_until_ns)
        return TREE_STATES_PINNED;
    return level_of(s->kind, gap_of(n), s->at, s->n_hits);
}

static void unplace(struct kv_tree *t, struct tree_state *s)
{
    if (s->list < 0)
        return;
    struct state_list *l = &t->state_lists[s->list];
    *(s->prev ? &s->prev->next : &l->head) = s->next;
    *(s->next ? &s->next->prev : &l->tail) = s->prev;
    s->prev = s->next = NULL;
    s->list = -1;
}

void tree_state_place(struct kv_tree *t, struct kv_node *n)
{
    if (n->state_id < 0)
        return;
    struct tree_state *s = &t->states[n->state_id];
    unplace(t, s);
    s->list = (int8_t)list_of(n, s);
    struct state_list *l = &t->state_lists[s->list];
    struct tree_state *before = l->tail; /* goes between `before` and `after` */
    struct tree_state *after = NULL;
    if (l->head && l->head->used_ns <= s->used_ns) {
        after = l->head;
        before = NULL;
    }
    for (int i = 0; i < TREE_WALK_MAX && before && before->used_ns < s->used_ns; i++) {
        after = before;
        before = before->prev;
    }
    s->prev = before;
    s->next = after;
    *(before ? &before->next : &l->head) = s;
    *(after ? &after->prev : &l->tail) = s;
}

/* ---- owning ---- */

static void attach(struct kv_tree *t, struct kv_node *n, int32_t state, ckpt_kind kind, int32_t at,
                   uint64_t now_ns)
{
    n->state_id = state;
    t->states[state] =
        (struct tree_state){.node = n, .used_ns = now_ns, .at = at, .kind = kind, .list = -1};
    tree_unplace(t, n); /* the state's order is the page's too */
    tree_state_place(t, n);
    tree_gauge(&t->n.states, 1);
    t->n_state_changes++;
}

/* The state is the caller's. */
static int32_t detach(struct kv_tree *t, struct kv_node *n)
{
    int32_t state = n->state_id;
    unplace(t, &t->states[state]);
    t->states[state].node = NULL;
    n->state_id = -1;
    tree_gauge(&t->n.states, -1);
    t->n_state_changes++;
    return state;
}

void tree_state_drop(struct kv_tree *t, struct kv_node *n)
{
    if (n->state_id >= 0)
        kv_state_free(t->pool, detach(t, n));
}

uint64_t kv_tree_state_changes(const struct kv_tree *t)
{
    return t->n_state_changes;
}

bool kv_hold_has_state(const struct kv_hold *hold)
{
    return hold->last && hold->last->state_id >= 0;
}

bool kv_tree_keep_state(struct kv_tree *t, const struct kv_hold *hold, int32_t state,
                        ckpt_kind kind, uint64_t now_ns)
{
    struct kv_node *n = hold->last;
    bool ok = n && kv_state_is_used(t->pool, state);
    if (!ok)
        return false;
    if (n->state_id < 0) {
        attach(t, n, state, kind, hold->n_pages * KV_PAGE_TOKENS, now_ns);
        return true;
    }
    struct tree_state *s = &t->states[n->state_id];
    s->used_ns = now_ns;
    if (s->kind < kind)
        s->kind = kind;
    tree_state_place(t, n);
    return false;
}

/* The tail of exactly these tokens; NULL = none. */
static struct kv_node *equal_tail(const struct kv_node *parent, const int32_t *tokens, int32_t n)
{
    struct kv_node *c = parent->first_child;
    for (int i = 0; c && i < SCAN_MAX; c = c->sib_next, i++) {
        if (c->n_tokens == n && c->state == NODE_READY &&
            memcmp(c->tokens, tokens, (size_t)n * sizeof *tokens) == 0)
            return c;
    }
    return NULL;
}

void kv_tree_add_tail_state(struct kv_tree *t, const struct kv_hold *hold, const int32_t *tokens,
                            int32_t n, int32_t page, int32_t state, uint64_t now_ns)
{
    struct kv_node *parent = tree_hold_end(t, hold);
    bool fits = n > 0 && n < KV_PAGE_TOKENS && kv_page_is_used(t->pool, page) &&
                kv_state_is_used(t->pool, state);
    struct kv_node *tail = fits ? equal_tail(parent, tokens, n) : NULL;
    if (tail) {
        t->states[tail->state_id].used_ns = now_ns;
        tree_state_place(t, tail);
    } else if (fits && (tail = tree_add_node(t, parent, tokens, n, page)) != NULL) {
        attach(t, tail, state, CKPT_KIND_END, hold->n_pages * KV_PAGE_TOKENS + n, now_ns);
        tail->used_ns = now_ns;
        return;
    }
    kv_page_free(t->pool, page);
    kv_state_free(t->pool, state);
}

void kv_tree_use_state(struct kv_tree *t, const struct kv_match *m, uint64_t now_ns)
{
    if (m->state < 0)
        return;
    struct tree_state *s = &t->states[m->state];
    s->used_ns = now_ns;
    if (s->n_hits < UINT32_MAX)
        s->n_hits++;
    tree_state_place(t, s->node);
}

void kv_tree_take_state(struct kv_tree *t, const struct kv_match *m)
{
    if (m->state < 0)
        return;
    struct kv_node *n = t->states[m->state].node;
    (void)detach(t, n);
    if (n->n_tokens < KV_PAGE_TOKENS)
        (void)tree_remove_node(t, n);
    else
        tree_place(t, n);
}

/* ---- looking ---- */

/* The longest tail below `parent` that is a beginning of tokens[0 .. n). */
static struct kv_node *longest_tail(const struct kv_node *parent, const int32_t *tokens, int32_t n)
{
    struct kv_node *best = NULL;
    struct kv_node *c = parent->first_child;
    for (int i = 0; c && i < SCAN_MAX; c = c->sib_next, i++) {
        if (c->n_tokens < KV_PAGE_TOKENS && c->n_tokens <= n &&
            (!best || c->n_tokens > best->n_tokens) &&
            memcmp(c->tokens, tokens, (size_t)c->n_tokens * sizeof *tokens) == 0)
            best = c;
    }
    return best;
}

/* Holds `last` and its ancestors, n_pages nodes. */
static void hold_chain(struct kv_tree *t, struct kv_hold *hold, struct kv_node *last,
                       int32_t n_pages, int32_t *pages, uint64_t now_ns)
{
    struct kv_node *n = last;
    for (int32_t i = n_pages - 1; i >= 0; i--, n = n->parent) {
        tree_hold_node(t, n, now_ns);
        pages[i] = n->page;
    }
    hold->last = n_pages > 0 ? last : NULL;
    hold->n_pages = n_pages;
}

struct kv_match tree_match_states(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens,
                                  int32_t n, int32_t *pages, uint64_t now_ns)
{
    struct kv_match m = {.tail_page = -1, .tail_window = -1, .state = -1};
    int32_t n_whole = n > 0 ? (n - 1) / KV_PAGE_TOKENS : 0;
    int32_t n_before = hold->n_pages;
    int32_t depth = 0;
    uint64_t collisions = 0;
    struct kv_node *node = &t->root;
    struct kv_node *tail = NULL;
    kv_tree_release(t, hold, now_ns);
    while (depth < n_whole) {
        struct kv_node *next =
            tree_find(t, node, tokens + (size_t)depth * KV_PAGE_TOKENS, &collisions);
        if (!next)
            break;
        node = next;
        depth++;
    }
    m.n_common = depth * KV_PAGE_TOKENS;
    for (;; node = node->parent, depth--) {
        int32_t at = depth * KV_PAGE_TOKENS;
        if ((tail = longest_tail(node, tokens + at, n - 1 - at)) != NULL || node->state_id >= 0 ||
            node == &t->root)
            break;
    }
    const struct kv_node *found = tail ? tail : node;
    m.state = found->state_id;
    hold_chain(t, hold, node, depth, pages, now_ns);
    m.n_ready = depth > n_before ? depth - n_before : 0;
    if (tail) {
        m.n_tail = tail->n_tokens;
        m.tail_page = tail->page;
    }
    if (m.state >= 0)
        m.state_kind = t->states[m.state].kind;
    tree_count(&t->n.collisions, collisions);
    return m;
}

/* ---- what goes ---- */

static double score_of(int level, double age_ns)
{
    return (double)((uint64_t)1 << level) / (age_ns + TREE_AGE_MIN_NS);
}

static double age_of(const struct tree_state *s, uint64_t now_ns)
{
    return now_ns > s->used_ns ? (double)(now_ns - s->used_ns) : 0.0;
}

/* The last one of a list that may go. */
static struct tree_state *last_of(const struct kv_tree *t, int list, int32_t keep)
{
    struct tree_state *s = t->state_lists[list].tail;
    return s && s - t->states == keep ? s->prev : s;
}

/* The least useful state as the lists have it, below a score. */
static struct tree_state *least_listed(const struct kv_tree *t, int32_t keep, double below,
                                       uint64_t now_ns)
{
    struct tree_state *best = NULL;
    for (int i = 0; i < TREE_STATES_PINNED; i++) {
        struct tree_state *s = last_of(t, i, keep);
        double score = s ? score_of(i, age_of(s, now_ns)) : 0.0;
        if (s && score < below) {
            best = s;
            below = score;
        }
    }
    return best;
}

/* The least useful state, NULL when none is below that score. */
static struct tree_state *least(struct kv_tree *t, int32_t keep, double below, uint64_t now_ns)
{
    struct tree_state *s = NULL;
    for (int i = 0; i < LOOKS_MAX; i++) {
        s = least_listed(t, keep, below, now_ns);
        if (!s || list_of(s->node, s) == s->list)
            break;
        tree_state_place(t, s->node);
    }
    return s;
}

/* Frees a state, and its page if that is a tail's. Returns the bytes. */
static uint64_t free_state(struct kv_tree *t, struct tree_state *s)
{
    struct kv_node *n = s->node;
    uint64_t bytes = kv_state_bytes(t->pool);
    tree_state_drop(t, n);
    tree_count(&t->n.evicted_states, 1);
    if (n->n_tokens == KV_PAGE_TOKENS) {
        tree_place(t, n);
        return bytes;
    }
    tree_remove(t, n);
    tree_count(&t->n.evicted_pages, 1);
    return bytes + kv_pool_geom(t->pool)->page_bytes;
}

static uint64_t free_page(struct kv_tree *t, struct kv_node *n)
{
    tree_remove(t, n);
    tree_count(&t->n.evicted_pages, 1);
    return kv_pool_geom(t->pool)->page_bytes;
}

/* Frees one thing of the least use; 0 = there is none. */
static uint64_t free_one(struct kv_tree *t, bool pinned_too, int32_t keep, double below,
                         uint64_t now_ns)
{
    struct tree_state *s;
    if (t->cold[TREE_USELESS].tail)
        return free_page(t, t->cold[TREE_USELESS].tail);
    if ((s = least(t, keep, below, now_ns)) != NULL)
        return free_state(t, s);
    if (pinned_too && (s = last_of(t, TREE_STATES_PINNED, keep)) != NULL)
        return free_state(t, s);
    return 0;
}

#define ANY_SCORE 1e300

uint64_t tree_free_one(struct kv_tree *t, bool pinned_too, int32_t keep_state, uint64_t now_ns)
{
    if (t->windows)
        return tree_free_windowed(t, pinned_too, now_ns);
    return free_one(t, pinned_too, keep_state, ANY_SCORE, now_ns);
}

uint64_t kv_tree_free_bytes(struct kv_tree *t, uint64_t bytes, bool pinned_too, int32_t keep_state,
                            uint64_t now_ns)
{
    uint64_t page_bytes = kv_pool_geom(t->pool)->page_bytes;
    uint64_t freed = 0;
    if (!t->states && !t->windows)
        return page_bytes *
               (uint64_t)kv_tree_evict(t, (int32_t)((bytes + page_bytes - 1) / page_bytes),
                                       pinned_too, now_ns);
    tree_pins_expire(t, now_ns);
    while (freed < bytes) {
        uint64_t n = tree_free_one(t, pinned_too, keep_state, now_ns);
        if (n == 0)
            break;
        freed += n;
    }
    return freed;
}

bool kv_tree_room_for_state(struct kv_tree *t, ckpt_kind kind, uint64_t now_ns)
{
    uint64_t wanted = kv_state_bytes(t->pool);
    double below = kind >= CKPT_KIND_BRANCH
                       ? ANY_SCORE
                       : score_of(level_of(kind, INTERVAL_TOKENS, 0, 0), YOUNG_AGE_NS);
    tree_pins_expire(t, now_ns);
    while (kv_pool_stats(t->pool).free_bytes < wanted) {
        if (free_one(t, false, -1, below, now_ns) == 0)
            return false;
    }
    return true;
}
