/*
 * kv/check.c - proves what the prefix tree's code relies on. Walks everything, allocates; for tests
 * and debug builds only.
 */
#include "kv/tree.h"

#include "base/mem.h"

#include <string.h>

struct check {
    const struct kv_tree *t;
    struct t9_err *err;
    int32_t *refs;                      /* [n_ever] expected from the holds */
    uint8_t *page_seen;                 /* [pages_total] */
    int32_t *window_refs, *window_kept; /* [n_ever] expected from the holds and the points */
    uint8_t *window_seen;               /* [window pages of the pool] */
    struct kv_tree_stats sum;
    int32_t n_listed, n_promises, n_idle;
};

static t9_status bad(struct check *c, const struct kv_node *n, const char *what)
{
    return t9_fail(c->err, T9_STATUS_CORRUPT,
                   "prefix tree: node %d (page %d, %d tokens, %d refs, state %d): %s",
                   (int)(n - c->t->nodes), n->page, n->n_tokens, n->refs, n->state, what);
}

static bool is_node(const struct kv_tree *t, const struct kv_node *n)
{
    return n >= t->nodes && n < t->nodes + t->n_ever && n->state != NODE_FREE;
}

static t9_status count_holds(struct check *c, const struct kv_hold *holds, int32_t n_holds)
{
    for (int32_t i = 0; i < n_holds; i++) {
        int32_t k = 0;
        for (const struct kv_node *n = holds[i].last; n && n != &c->t->root; n = n->parent) {
            if (!is_node(c->t, n) || n->state != NODE_READY || n->n_tokens != KV_PAGE_TOKENS)
                return t9_fail(c->err, T9_STATUS_CORRUPT,
                               "prefix tree: hold %d goes through something else than a page", i);
            c->refs[n - c->t->nodes]++;
            c->window_refs[n - c->t->nodes] +=
                c->t->windows && holds[i].n_pages - k > holds[i].window_from;
            k++;
        }
        if (k != holds[i].n_pages)
            return t9_fail(c->err, T9_STATUS_CORRUPT,
                           "prefix tree: hold %d has %d pages, its chain %d", i, holds[i].n_pages,
                           k);
    }
    return T9_STATUS_OK;
}

/* Its state is one of the pool's, nobody else's, and in the list that its pin says. */
static t9_status check_state(struct check *c, const struct kv_node *n)
{
    const struct kv_tree *t = c->t;
    if (n->state_id < 0)
        return t->states && n->n_tokens < KV_PAGE_TOKENS ? bad(c, n, "a tail without a state")
                                                         : T9_STATUS_OK;
    if (!t->states || !kv_state_is_used(t->pool, n->state_id))
        return bad(c, n, "its state is not one that the pool has handed out");
    const struct tree_state *s = &t->states[n->state_id];
    int32_t at = 0;
    for (const struct kv_node *a = n; a != &t->root; a = a->parent)
        at += a->n_tokens;
    if (s->node != n || s->at != at)
        return bad(c, n, "its state belongs to another place");
    if (s->list < 0 || (s->list == TREE_STATES_PINNED) != (n->pin_until_ns != 0))
        return bad(c, n, "a pin and the lists of states disagree");
    c->sum.states++;
    return T9_STATUS_OK;
}

static void count_points(struct check *c)
{
    const struct kv_tree *t = c->t;
    for (int32_t i = 0; i < t->n_ever; i++) {
        const struct kv_node *n = &t->nodes[i];
        int32_t n_point = n->state == NODE_READY ? t->windows[i].n_point : 0;
        for (; n_point > 0 && n != &t->root; n_point--, n = n->parent)
            c->window_kept[n - t->nodes]++;
    }
}

/* Its window page, if it has one, is nobody else's; what needs it is what the counts say. */
static t9_status check_window(struct check *c, const struct kv_node *n)
{
    const struct kv_tree *t = c->t;
    if (!t->windows)
        return T9_STATUS_OK;
    const struct tree_window *w = tree_window(t, n);
    if (w->refs != c->window_refs[n - t->nodes] || w->kept != c->window_kept[n - t->nodes])
        return bad(c, n, "what needs its window page is not counted right");
    c->sum.points += w->n_point > 0;
    if (w->id < 0)
        return w->refs > 0 || w->kept > 0 ? bad(c, n, "a window page that is needed is gone")
                                          : T9_STATUS_OK;
    if (w->id >= kv_window_max(t->pool) || !kv_window_is_used(t->pool, w->id) ||
        c->window_seen[w->id]++)
        return bad(c, n, "its window page is another node's, or nobody's");
    c->sum.windows++;
    c->sum.cold_windows += w->refs == 0;
    c->n_idle += w->refs == 0 && w->kept == 0;
    return T9_STATUS_OK;
}

static t9_status check_ready(struct check *c, const struct kv_node *n, int32_t pages_total)
{
    if (n->page < 0 || n->page >= pages_total || !kv_page_is_used(c->t->pool, n->page))
        return bad(c, n, "its page is not one that the pool has handed out");
    if (c->page_seen[n->page]++)
        return bad(c, n, "its page belongs to another node too");
    if (n->refs != c->refs[n - c->t->nodes])
        return bad(c, n, "its references are not those of the holds");
    if (n->parent->state != NODE_READY)
        return bad(c, n, "a computed page after one that is not");
    if (n->proven && n->parent != &c->t->root && !n->parent->proven)
        return bad(c, n, "proven, after one that is not");
    if ((n->list >= 0) != (n->refs == 0 && !n->first_child && n->state_id < 0))
        return bad(c, n, "a cold leaf outside the lists, or something else in them");
    T9_TRY(check_state(c, n));
    T9_TRY(check_window(c, n));
    c->n_listed += n->list >= 0;
    c->sum.pages++;
    c->sum.cold_pages += n->refs == 0;
    c->sum.tails += n->n_tokens < KV_PAGE_TOKENS;
    return T9_STATUS_OK;
}

static t9_status check_computing(struct check *c, const struct kv_node *n)
{
    if (n->page != -1 || n->state_id >= 0 || c->t->states || n->refs != 0 || n->pin_until_ns ||
        n->n_tokens != KV_PAGE_TOKENS)
        return bad(c, n, "a promise with page, references, pin or as a tail");
    if (n->producer < 0 || n->producer >= c->t->n_producers_ever ||
        !c->t->producers[n->producer].who)
        return bad(c, n, "a promise of nobody");
    if (n->parent->state == NODE_COMPUTING && n->parent->producer != n->producer)
        return bad(c, n, "a promise that builds on another sequence's promise");
    c->sum.promised++;
    return T9_STATUS_OK;
}

static t9_status check_node(struct check *c, const struct kv_node *n, int32_t pages_total)
{
    const struct kv_tree *t = c->t;
    if (n->parent != &t->root && !is_node(t, n->parent))
        return bad(c, n, "its parent is gone");
    if (n->parent->n_tokens < KV_PAGE_TOKENS && n->parent != &t->root)
        return bad(c, n, "its parent is a tail");
    if (n->n_tokens < 1 || n->n_tokens > KV_PAGE_TOKENS)
        return bad(c, n, "its number of tokens");
    if (n->sib_prev ? n->sib_prev->sib_next != n : n->parent->first_child != n)
        return bad(c, n, "its parent's list of children");
    if (n->sib_next && (n->sib_next->sib_prev != n || n->sib_next->parent != n->parent))
        return bad(c, n, "its next sibling");
    if (n->n_tokens == KV_PAGE_TOKENS) {
        uint64_t collisions = 0;
        if (n->hash != tree_hash(t, n->parent, n->tokens) ||
            tree_find(t, n->parent, n->tokens, &collisions) != n)
            return bad(c, n, "the index does not find it");
    }
    c->sum.nodes++;
    c->sum.pinned_pages += n->pin_until_ns != 0;
    if (n->state == NODE_COMPUTING)
        return check_computing(c, n);
    return check_ready(c, n, pages_total);
}

/* Every list holds only what belongs there; with the counts equal, it holds all of it. */
static t9_status check_lists(struct check *c)
{
    const struct kv_tree *t = c->t;
    int32_t n_listed = 0;
    for (int i = 0; i < TREE_LISTS; i++) {
        const struct kv_node *prev = NULL;
        for (const struct kv_node *n = t->cold[i].head; n; prev = n, n = n->next, n_listed++) {
            if (!is_node(t, n) || n->list != i || n->prev != prev)
                return bad(c, n, "a cold list is broken");
            if ((i == TREE_PINNED) != (n->pin_until_ns != 0 && !t->states))
                return bad(c, n, "a pin and the cold lists disagree");
        }
        if (t->cold[i].tail != prev)
            return t9_fail(c->err, T9_STATUS_CORRUPT, "prefix tree: cold list %d's tail", i);
    }
    int32_t n_promised = 0;
    for (int i = 0; i < t->n_producers_ever; i++) {
        const struct producer *p = &t->producers[i];
        if ((p->who == NULL) != (p->head == NULL))
            return t9_fail(c->err, T9_STATUS_CORRUPT, "prefix tree: producer %d", i);
        for (const struct kv_node *n = p->head; n; n = n->next, n_promised++) {
            if (!is_node(t, n) || n->state != NODE_COMPUTING || n->producer != i)
                return bad(c, n, "a producer's promises are broken");
        }
    }
    int32_t n_pinned = 0;
    for (const struct kv_node *n = t->pinned; n; n = n->pin_next, n_pinned++) {
        if (!is_node(t, n) || !n->pin_until_ns || n->pin_until_ns < t->pin_next_ns)
            return bad(c, n, "the list of pins is broken");
    }
    if (n_listed != c->n_listed || n_promised != c->sum.promised || n_pinned != c->sum.pinned_pages)
        return t9_fail(c->err, T9_STATUS_CORRUPT,
                       "prefix tree: lists hold %d cold, %d promised, %d pinned; the nodes say %d, "
                       "%d, %d",
                       n_listed, n_promised, n_pinned, c->n_listed, c->sum.promised,
                       c->sum.pinned_pages);
    return T9_STATUS_OK;
}

static t9_status check_state_lists(struct check *c)
{
    const struct kv_tree *t = c->t;
    int32_t n = 0;
    for (int i = 0; i < TREE_STATE_LISTS; i++) {
        const struct tree_state *prev = NULL;
        for (const struct tree_state *s = t->state_lists[i].head; s; prev = s, s = s->next, n++) {
            if (s->list != i || s->prev != prev || !s->node ||
                s->node->state_id != (int32_t)(s - t->states))
                return t9_fail(c->err, T9_STATUS_CORRUPT, "prefix tree: list of states %d", i);
        }
        if (t->state_lists[i].tail != prev)
            return t9_fail(c->err, T9_STATUS_CORRUPT, "prefix tree: list of states %d's tail", i);
    }
    if (n != c->sum.states)
        return t9_fail(c->err, T9_STATUS_CORRUPT,
                       "prefix tree: the lists hold %d states, the nodes have %d", n,
                       c->sum.states);
    return T9_STATUS_OK;
}

static t9_status check_window_lists(struct check *c)
{
    const struct kv_tree *t = c->t;
    const struct kv_node *prev = NULL;
    int32_t n_idle = 0;
    int32_t n_points = 0;
    if (!t->windows)
        return T9_STATUS_OK;
    for (const struct kv_node *n = t->idle.head; n; prev = n, n = tree_window(t, n)->next) {
        const struct tree_window *w = tree_window(t, n);
        if (!is_node(t, n) || w->id < 0 || w->refs > 0 || w->kept > 0 || w->prev != prev)
            return bad(c, n, "the list of idle window pages is broken");
        n_idle++;
    }
    if (t->idle.tail != prev)
        return t9_fail(c->err, T9_STATUS_CORRUPT, "prefix tree: the idle list's tail");
    for (int i = 0; i < (int)T9_COUNT(t->points); i++) {
        prev = NULL;
        for (const struct kv_node *n = t->points[i].head; n;
             prev = n, n = tree_window(t, n)->point_next, n_points++) {
            const struct tree_window *w = tree_window(t, n);
            if (!is_node(t, n) || w->n_point < 1 || w->point_prev != prev ||
                (i == 1) != (n->pin_until_ns != 0))
                return bad(c, n, "a list of resume points is broken");
        }
        if (t->points[i].tail != prev)
            return t9_fail(c->err, T9_STATUS_CORRUPT, "prefix tree: list of points %d's tail", i);
    }
    if (n_idle != c->n_idle || n_points != c->sum.points)
        return t9_fail(c->err, T9_STATUS_CORRUPT,
                       "prefix tree: lists hold %d idle window pages and %d points; the nodes say "
                       "%d and %d",
                       n_idle, n_points, c->n_idle, c->sum.points);
    return T9_STATUS_OK;
}

static t9_status check_counts(struct check *c)
{
    struct kv_tree_stats s = kv_tree_stats(c->t);
    const struct kv_tree_stats *w = &c->sum;
    if (s.nodes != w->nodes || s.pages != w->pages || s.cold_pages != w->cold_pages ||
        s.pinned_pages != w->pinned_pages || s.tails != w->tails || s.promised != w->promised ||
        s.states != w->states)
        return t9_fail(c->err, T9_STATUS_CORRUPT,
                       "prefix tree: counters say %d nodes, %d pages, %d cold, %d pinned, %d "
                       "tails, %d promised, %d states; counted %d, %d, %d, %d, %d, %d, %d",
                       s.nodes, s.pages, s.cold_pages, s.pinned_pages, s.tails, s.promised,
                       s.states, w->nodes, w->pages, w->cold_pages, w->pinned_pages, w->tails,
                       w->promised, w->states);
    if (s.windows != w->windows || s.cold_windows != w->cold_windows || s.points != w->points)
        return t9_fail(c->err, T9_STATUS_CORRUPT,
                       "prefix tree: counters say %d window pages, %d cold, %d points; counted %d, "
                       "%d, %d",
                       s.windows, s.cold_windows, s.points, w->windows, w->cold_windows, w->points);
    if (s.pages > kv_pool_stats(c->t->pool).pages_used ||
        s.states > kv_pool_stats(c->t->pool).states_used)
        return t9_fail(c->err, T9_STATUS_CORRUPT,
                       "prefix tree: more pages or states than the pool gave");
    return T9_STATUS_OK;
}

/* Slots hold each indexed node once: check_node found every node, so counting is enough. */
static t9_status check_slots(struct check *c)
{
    const struct kv_tree *t = c->t;
    int32_t n = 0;
    int32_t want = 0;
    for (uint32_t i = 0; i <= t->slot_mask; i++)
        n += t->slots[i] != 0;
    for (int32_t i = 0; i < t->n_ever; i++)
        want += t->nodes[i].state != NODE_FREE && t->nodes[i].n_tokens == KV_PAGE_TOKENS;
    if (n != want)
        return t9_fail(c->err, T9_STATUS_CORRUPT, "prefix tree: %d index entries for %d full pages",
                       n, want);
    return T9_STATUS_OK;
}

static t9_status check_all(struct check *c, const struct kv_hold *holds, int32_t n_holds,
                           int32_t pages_total)
{
    const struct kv_tree *t = c->t;
    T9_TRY(count_holds(c, holds, n_holds));
    if (t->windows)
        count_points(c);
    for (int32_t i = 0; i < t->n_ever; i++) {
        if (t->nodes[i].state != NODE_FREE)
            T9_TRY(check_node(c, &t->nodes[i], pages_total));
    }
    T9_TRY(check_lists(c));
    T9_TRY(check_state_lists(c));
    T9_TRY(check_window_lists(c));
    T9_TRY(check_counts(c));
    return check_slots(c);
}

t9_status kv_tree_check(const struct kv_tree *t, const struct kv_hold *holds, int32_t n_holds,
                        struct t9_err *err)
{
    int32_t pages_total = kv_pool_stats(t->pool).pages_total;
    struct check c = {.t = t, .err = err};
    c.refs = mem_calloc((size_t)t->n_ever + 1, sizeof *c.refs);
    c.page_seen = mem_calloc((size_t)pages_total, 1);
    c.window_refs = mem_calloc((size_t)t->n_ever + 1, sizeof *c.window_refs);
    c.window_kept = mem_calloc((size_t)t->n_ever + 1, sizeof *c.window_kept);
    c.window_seen = mem_calloc((size_t)kv_window_max(t->pool) + 1, 1);
    t9_status st = c.refs && c.page_seen && c.window_refs && c.window_kept && c.window_seen
                       ? check_all(&c, holds, n_holds, pages_total)
                       : t9_fail(err, T9_STATUS_NOMEM, "prefix tree check: out of memory");
    mem_free(c.refs);
    mem_free(c.page_seen);
    mem_free(c.window_refs);
    mem_free(c.window_kept);
    mem_free(c.window_seen);
    return st;
}
