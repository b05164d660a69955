/*
 * kv/evict.c - which cold page goes next: the one with the least benefit, tokens that a hit would
 * save x how often it was hit / time since its last use (all pages have the same bytes).
 *
 * Leaves that nobody holds lie in lists by the power of two of tokens x hits, each ordered by last
 * use. Within a list the tail is the least, so the least of all is among the tails: a fixed number
 * of comparisons, whatever the size of the cache. A page whose last child goes becomes a leaf and
 * enters its list where its own last use says, so a conversation is eaten from its end. Pinned
 * leaves have a list of their own. In trees with states the states decide (checkpoint.c); in trees
 * with windows they come before the pages (window.c).
 */
#include "kv/tree.h"

/* The list of a node that is a cold leaf. */
static int list_of(const struct kv_tree *t, const struct kv_node *n)
{
    if (t->states) /* it leads to no state, pinned or not */
        return TREE_USELESS;
    if (n->pin_until_ns)
        return TREE_PINNED;
    if (!tree_is_whole(t, n))
        return TREE_USELESS;
    int level = tree_log2((uint32_t)n->n_tokens);
    uint32_t hits = n->n_hits < 255 ? n->n_hits : 255;
    return level + tree_log2(hits + 1);
}

void tree_unplace(struct kv_tree *t, struct kv_node *n)
{
    if (n->list < 0)
        return;
    struct node_list *l = &t->cold[n->list];
    *(n->prev ? &n->prev->next : &l->head) = n->next;
    *(n->next ? &n->next->prev : &l->tail) = n->prev;
    n->prev = n->next = NULL;
    n->list = -1;
}

void tree_place(struct kv_tree *t, struct kv_node *n)
{
    tree_unplace(t, n);
    if (n == &t->root || n->state != NODE_READY || n->refs > 0 || n->first_child ||
        n->state_id >= 0)
        return;
    n->list = (int8_t)list_of(t, n);
    struct node_list *l = &t->cold[n->list];
    struct kv_node *before = l->tail; /* goes between `before` and `after` */
    struct kv_node *after = NULL;
    if (l->head && l->head->used_ns <= n->used_ns) {
        after = l->head;
        before = NULL;
    } else {
        for (int i = 0; i < TREE_WALK_MAX && before && before->used_ns < n->used_ns; i++) {
            after = before;
            before = before->prev;
        }
    }
    n->prev = before;
    n->next = after;
    *(before ? &before->next : &l->head) = n;
    *(after ? &after->prev : &l->tail) = n;
}

void tree_unpin(struct kv_tree *t, struct kv_node *n)
{
    if (!n->pin_until_ns)
        return;
    n->pin_until_ns = 0;
    *(n->pin_prev ? &n->pin_prev->pin_next : &t->pinned) = n->pin_next;
    if (n->pin_next)
        n->pin_next->pin_prev = n->pin_prev;
    n->pin_prev = n->pin_next = NULL;
    tree_gauge(&t->n.pinned_pages, -1);
}

int32_t kv_tree_pin(struct kv_tree *t, const int32_t *tokens, int32_t n, uint64_t until_ns)
{
    struct kv_node *node = &t->root;
    int32_t pages = 0;
    uint64_t collisions = 0;
    for (; pages < n / KV_PAGE_TOKENS; pages++) {
        node = tree_find(t, node, tokens + (size_t)pages * KV_PAGE_TOKENS, &collisions);
        if (!node || node->state != NODE_READY)
            break;
        if (until_ns <= node->pin_until_ns)
            continue;
        if (!node->pin_until_ns) {
            node->pin_next = t->pinned;
            if (t->pinned)
                t->pinned->pin_prev = node;
            t->pinned = node;
            tree_gauge(&t->n.pinned_pages, 1);
        }
        node->pin_until_ns = until_ns;
        if (t->pin_next_ns == 0 || until_ns < t->pin_next_ns)
            t->pin_next_ns = until_ns;
        tree_place(t, node);
        tree_state_place(t, node);
        tree_point_place(t, node);
    }
    tree_count(&t->n.collisions, collisions);
    return pages;
}

void tree_pins_expire(struct kv_tree *t, uint64_t now_ns)
{
    if (!t->pinned || now_ns < t->pin_next_ns)
        return;
    uint64_t next_ns = 0;
    for (struct kv_node *n = t->pinned, *following; n; n = following) {
        following = n->pin_next;
        if (n->pin_until_ns <= now_ns) {
            tree_unpin(t, n);
            tree_place(t, n);
            tree_state_place(t, n);
            tree_point_place(t, n);
        } else if (next_ns == 0 || n->pin_until_ns < next_ns) {
            next_ns = n->pin_until_ns;
        }
    }
    t->pin_next_ns = next_ns;
}

double tree_score(int level, uint64_t used_ns, uint64_t now_ns)
{
    double age = now_ns > used_ns ? (double)(now_ns - used_ns) : 0.0;
    return (double)(1 << level) / (age + TREE_AGE_MIN_NS);
}

struct kv_node *tree_least(const struct kv_tree *t, bool pinned_too, uint64_t now_ns, double *score)
{
    struct kv_node *best = NULL;
    *score = 0.0;
    for (int i = 0; i < TREE_PINNED; i++) {
        struct kv_node *n = t->cold[i].tail;
        double worth = n ? tree_score(i, n->used_ns, now_ns) : 0.0;
        if (n && (!best || worth < *score)) {
            best = n;
            *score = worth;
        }
    }
    return best || !pinned_too ? best : t->cold[TREE_PINNED].tail;
}

int32_t kv_tree_evict(struct kv_tree *t, int32_t n_pages, bool pinned_too, uint64_t now_ns)
{
    bool others = t->states || t->windows;
    double score;
    tree_pins_expire(t, now_ns);
    int32_t freed = 0;
    while (others && freed < n_pages && tree_free_one(t, pinned_too, -1, now_ns) > 0)
        freed++;
    if (others)
        return freed;
    while (freed < n_pages) {
        struct kv_node *n = tree_least(t, pinned_too, now_ns, &score);
        if (!n)
            break;
        tree_remove(t, n);
        freed++;
    }
    tree_count(&t->n.evicted_pages, (uint64_t)freed);
    return freed;
}
