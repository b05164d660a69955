/*
 * kv/window.c - window pages in the prefix tree: who needs them, and when they go before the rest
 * of their pages.
 *
 * Layers with a window need only the last tokens before a place to go on from there, the others
 * all. So a node may lack its window page, and a prefix is resumed where the windows before it are
 * there (prefix.c). A sequence's hold needs those that its next rows can see; it lets go of the
 * ones before as it grows, without giving them up: what nobody needs stays as cache until memory is
 * wanted, and then is the first to go, longest idle first. So the cache is what it was while there
 * is room, and a long sequence costs its other layers and a window when there is none.
 *
 * Places where prompts are expected to go on are resume points: the windows that are needed to
 * compute from anywhere in that page, or right after it, are counted as kept. Points compete with
 * cold pages, as one full page would; one that goes frees the windows that no other point and no
 * sequence needs. A leaf without its window cannot be resumed after, and goes before any point.
 */
#include "kv/tree.h"

void tree_window_init(struct kv_tree *t, const struct kv_node *n)
{
    if (t->windows)
        *tree_window(t, n) = (struct tree_window){.id = -1};
}

/* ---- windows that nobody needs ---- */

static bool is_idle(const struct tree_window *w)
{
    return w->id >= 0 && w->refs == 0 && w->kept == 0;
}

static void idle_link(struct kv_tree *t, struct kv_node *n)
{
    struct tree_window *w = tree_window(t, n);
    w->prev = NULL;
    w->next = t->idle.head;
    *(w->next ? &tree_window(t, w->next)->prev : &t->idle.tail) = n;
    t->idle.head = n;
}

static void idle_unlink(struct kv_tree *t, struct kv_node *n)
{
    struct tree_window *w = tree_window(t, n);
    *(w->prev ? &tree_window(t, w->prev)->next : &t->idle.head) = w->next;
    *(w->next ? &tree_window(t, w->next)->prev : &t->idle.tail) = w->prev;
    w->prev = w->next = NULL;
}

/* Somebody more, or fewer, needs a node's window, which is there. */
static void count_need(struct kv_tree *t, struct kv_node *n, int32_t refs, int32_t kept)
{
    struct tree_window *w = tree_window(t, n);
    bool was_idle = is_idle(w);
    bool was_cold = w->refs == 0;
    w->refs += refs;
    w->kept += kept;
    if (was_cold != (w->refs == 0))
        tree_gauge(&t->n.cold_windows, was_cold ? -1 : 1);
    if (was_idle && !is_idle(w))
        idle_unlink(t, n);
    else if (!was_idle && is_idle(w))
        idle_link(t, n);
}

/* Of a window that is idle. */
static void free_window(struct kv_tree *t, struct kv_node *n)
{
    struct tree_window *w = tree_window(t, n);
    idle_unlink(t, n);
    kv_window_free(t->pool, w->id);
    w->id = -1;
    tree_gauge(&t->n.windows, -1);
    tree_gauge(&t->n.cold_windows, -1);
}

void tree_window_give(struct kv_tree *t, struct kv_node *n, int32_t *window)
{
    struct tree_window *w = tree_window(t, n);
    if (w->id < 0) {
        w->id = *window;
        tree_gauge(&t->n.windows, 1);
        tree_gauge(&t->n.cold_windows, 1); /* until it is held */
        idle_link(t, n);
        return;
    }
    if (w->id != *window)
        kv_window_free(t->pool, *window);
    *window = w->id;
}

/* ---- holds ---- */

void tree_window_slide(struct kv_tree *t, struct kv_hold *hold, int32_t n_new)
{
    if (!t->windows)
        return;
    int32_t n_old = hold->n_pages - n_new;
    int32_t from = kv_window_first(kv_pool_geom(t->pool), hold->n_pages);
    int32_t end = hold->window_from < n_old && hold->window_from < from ? hold->window_from : from;
    struct kv_node *n = hold->last;
    for (int32_t i = hold->n_pages - 1; i >= end; i--, n = n->parent) {
        bool had = i >= hold->window_from && i < n_old;
        bool needs = i >= from;
        if (had != needs)
            count_need(t, n, needs ? 1 : -1, 0);
    }
    hold->window_from = from;
}

void tree_window_release(struct kv_tree *t, const struct kv_hold *hold)
{
    struct kv_node *n = hold->last;
    for (int32_t i = hold->n_pages - 1; t->windows && i >= hold->window_from; i--, n = n->parent)
        count_need(t, n, -1, 0);
}

void kv_hold_windows(const struct kv_tree *t, const struct kv_hold *hold, int32_t *windows)
{
    const struct kv_node *n = hold->last;
    for (int32_t i = hold->n_pages - 1; t->windows && i >= hold->window_from; i--, n = n->parent)
        windows[i] = tree_window(t, n)->id;
}

/* ---- resume points ---- */

static void point_link(struct kv_tree *t, struct kv_node *n)
{
    struct tree_window *w = tree_window(t, n);
    w->point_list = n->pin_until_ns != 0;
    struct node_list *l = &t->points[w->point_list];
    w->point_prev = NULL;
    w->point_next = l->head;
    *(l->head ? &tree_window(t, l->head)->point_prev : &l->tail) = n;
    l->head = n;
}

static void point_unlink(struct kv_tree *t, const struct kv_node *n)
{
    struct tree_window *w = tree_window(t, n);
    struct node_list *l = &t->points[w->point_list];
    *(w->point_prev ? &tree_window(t, w->point_prev)->point_next : &l->head) = w->point_next;
    *(w->point_next ? &tree_window(t, w->point_next)->point_prev : &l->tail) = w->point_prev;
}

void tree_point_place(struct kv_tree *t, struct kv_node *n)
{
    if (!t->windows || tree_window(t, n)->n_point == 0)
        return;
    point_unlink(t, n);
    point_link(t, n);
}

static void keep_chain(struct kv_tree *t, struct kv_node *n, int32_t n_nodes, int32_t kept)
{
    for (int32_t i = 0; i < n_nodes; i++, n = n->parent)
        count_need(t, n, 0, kept);
}

bool tree_point_set(struct kv_tree *t, struct kv_node *n, int32_t page, uint64_t now_ns)
{
    struct tree_window *w = tree_window(t, n);
    int32_t n_nodes = page - kv_window_first(kv_pool_geom(t->pool), page) + 1;
    const struct kv_node *a = n;
    w->point_ns = now_ns;
    if (w->n_point > 0) {
        tree_point_place(t, n);
        return true;
    }
    for (int32_t i = 0; i < n_nodes; i++, a = a->parent) {
        if (!tree_is_whole(t, a))
            return false;
    }
    w->n_point = n_nodes;
    keep_chain(t, n, n_nodes, 1);
    point_link(t, n);
    tree_gauge(&t->n.points, 1);
    return true;
}

static void point_clear(struct kv_tree *t, struct kv_node *n)
{
    struct tree_window *w = tree_window(t, n);
    int32_t n_nodes = w->n_point;
    if (n_nodes == 0)
        return;
    point_unlink(t, n);
    w->n_point = 0;
    keep_chain(t, n, n_nodes, -1);
    tree_gauge(&t->n.points, -1);
}

bool kv_tree_keep_windows(struct kv_tree *t, const struct kv_hold *hold, uint64_t now_ns)
{
    return t->windows && hold->last && tree_point_set(t, hold->last, hold->n_pages - 1, now_ns);
}

/* ---- what goes ---- */

void tree_window_drop(struct kv_tree *t, struct kv_node *n)
{
    if (!t->windows)
        return;
    point_clear(t, n);
    if (tree_window(t, n)->id >= 0)
        free_window(t, n);
}

static uint64_t free_idle(struct kv_tree *t)
{
    struct kv_node *n = t->idle.tail;
    free_window(t, n);
    tree_count(&t->n.evicted_windows, 1);
    tree_place(t, n); /* as a leaf it is useless now */
    return kv_pool_geom(t->pool)->window_bytes;
}

static uint64_t free_leaf(struct kv_tree *t, struct kv_node *n)
{
    const struct kv_geom *g = kv_pool_geom(t->pool);
    bool whole = tree_is_whole(t, n);
    tree_remove(t, n);
    tree_count(&t->n.evicted_pages, 1);
    tree_count(&t->n.evicted_windows, whole);
    return g->page_bytes + (whole ? g->window_bytes : 0);
}

/* What a resume point is worth: as a page that is whole and has its hits. */
static double score_of(const struct kv_tree *t, const struct kv_node *n, uint64_t now_ns)
{
    uint32_t hits = n->n_hits < 255 ? n->n_hits : 255;
    return tree_score(TREE_PAGE_LEVEL + tree_log2(hits + 1), tree_window(t, n)->point_ns, now_ns);
}

uint64_t tree_free_windowed(struct kv_tree *t, bool pinned_too, uint64_t now_ns)
{
    for (;;) {
        if (t->idle.tail)
            return free_idle(t);
        if (t->cold[TREE_USELESS].tail)
            return free_leaf(t, t->cold[TREE_USELESS].tail);
        double score;
        struct kv_node *leaf = tree_least(t, pinned_too, now_ns, &score);
        struct kv_node *point = t->points[0].tail;
        if (!point && pinned_too)
            point = t->points[1].tail;
        bool pinned_leaf = leaf && leaf->list == TREE_PINNED;
        bool pinned_point = point && point->pin_until_ns != 0;
        if (leaf && (!point || (pinned_point && !pinned_leaf) ||
                     (pinned_point == pinned_leaf && score <= score_of(t, point, now_ns))))
            return free_leaf(t, leaf);
        if (!point)
            return 0;
        point_clear(t, point); /* that alone frees nothing when all of it is needed otherwise */
    }
}
