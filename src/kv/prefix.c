/*
 * kv/prefix.c - the prefix tree: walks it along a prompt, grows it by computed pages, keeps the
 * promises of pages to come. See prefix.h.
 *
 * A READY node's ancestors are all READY, since a page is added only after a chain that is held.
 * Below a READY node a chain of COMPUTING ones can hang, all of one producer: promises are only
 * made below what the producer holds and stop at nodes of others. So giving promises back never
 * takes a node that somebody else builds on.
 *
 * Nodes of full pages are found by hash; partly matching pages among the children of one node, of
 * which only the first SCAN_MAX, used most recently, are looked at. What is missed by that costs
 * time, never a wrong text.
 */
#include "kv/tree.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

enum { SCAN_MAX = 64 };

/* ---- life ---- */

static t9_status reserve_memory(struct kv_tree *t, struct t9_err *err)
{
    int32_t pages = kv_pool_stats(t->pool).pages_total;
    t->n_promised_max = pages < TREE_PROMISED_MAX ? pages : TREE_PROMISED_MAX;
    t->n_nodes_max = pages + t->n_promised_max;
    uint32_t n_slots = 64;
    while (n_slots < 2u * (uint32_t)t->n_nodes_max)
        n_slots *= 2;
    t->slot_mask = n_slots - 1;
    t->nodes_bytes = (size_t)t->n_nodes_max * sizeof *t->nodes;
    t->slots_bytes = (size_t)n_slots * sizeof *t->slots;
    void *p;
    T9_TRY(be_reserve(t->be, t->nodes_bytes, &p, err));
    t->nodes = p;
    T9_TRY(be_reserve(t->be, t->slots_bytes, &p, err));
    t->slots = p;
    if (kv_window_max(t->pool) > 0) {
        t->windows_bytes = (size_t)t->n_nodes_max * sizeof *t->windows;
        T9_TRY(be_reserve(t->be, t->windows_bytes, &p, err));
        t->windows = p;
    }
    t->states_bytes = (size_t)kv_state_max(t->pool) * sizeof *t->states;
    if (t->states_bytes == 0)
        return T9_STATUS_OK;
    T9_TRY(be_reserve(t->be, t->states_bytes, &p, err));
    t->states = p;
    return T9_STATUS_OK;
}

static void free_memory(struct kv_tree *t)
{
    if (t->nodes)
        be_unreserve(t->be, t->nodes, t->nodes_bytes);
    if (t->slots)
        be_unreserve(t->be, t->slots, t->slots_bytes);
    if (t->states)
        be_unreserve(t->be, t->states, t->states_bytes);
    if (t->windows)
        be_unreserve(t->be, t->windows, t->windows_bytes);
    mem_free(t);
}

t9_status kv_tree_new(struct kv_tree **out, struct kv_pool *pool, str salt, struct t9_err *err)
{
    *out = NULL;
    struct kv_tree *t = mem_calloc(1, sizeof *t);
    if (!t)
        return t9_fail(err, T9_STATUS_NOMEM, "prefix cache: out of memory");
    t->pool = pool;
    t->be = kv_pool_be(pool);
    t->hash_mask = UINT64_MAX;
    t->root.state = NODE_READY;
    t->root.page = -1;
    t->root.state_id = -1;
    t->root.list = -1;
    t->root.hash = hash_xxh3_64(salt.p, salt.n, 0);
    t9_status st = reserve_memory(t, err);
    if (st != T9_STATUS_OK) {
        free_memory(t);
        return st;
    }
    *out = t;
    return T9_STATUS_OK;
}

void kv_tree_free(struct kv_tree *t)
{
    if (!t)
        return;
    for (int32_t i = 0; i < t->n_ever; i++) {
        if (t->nodes[i].state != NODE_READY)
            continue;
        kv_page_free(t->pool, t->nodes[i].page);
        tree_state_drop(t, &t->nodes[i]);
        if (t->windows && tree_window(t, &t->nodes[i])->id >= 0)
            kv_window_free(t->pool, tree_window(t, &t->nodes[i])->id);
    }
    free_memory(t);
}

/* ---- nodes ---- */

static void child_link(struct kv_node *parent, struct kv_node *n)
{
    n->parent = parent;
    n->sib_prev = NULL;
    n->sib_next = parent->first_child;
    if (n->sib_next)
        n->sib_next->sib_prev = n;
    parent->first_child = n;
}

static void child_unlink(struct kv_node *n)
{
    *(n->sib_prev ? &n->sib_prev->sib_next : &n->parent->first_child) = n->sib_next;
    if (n->sib_next)
        n->sib_next->sib_prev = n->sib_prev;
}

/* Children used most recently come first. */
static void child_to_front(struct kv_node *n)
{
    if (n->sib_prev) {
        struct kv_node *parent = n->parent;
        child_unlink(n);
        child_link(parent, n);
    }
}

/* A node below `parent`, in no list and not in the index. NULL when all are used, which the bounds
 * on pages and promises exclude. */
static struct kv_node *node_new(struct kv_tree *t, struct kv_node *parent, const int32_t *tokens,
                                int32_t n_tokens)
{
    struct kv_node *n = t->free_nodes;
    if (n)
        t->free_nodes = n->next;
    else if (t->n_ever < t->n_nodes_max)
        n = &t->nodes[t->n_ever++];
    else
        return NULL;
    *n = (struct kv_node){
        .page = -1, .state_id = -1, .n_tokens = n_tokens, .list = -1, .producer = -1};
    memcpy(n->tokens, tokens, (size_t)n_tokens * sizeof *tokens);
    tree_window_init(t, n);
    child_link(parent, n);
    if (parent->list >= 0)
        tree_unplace(t, parent);
    tree_gauge(&t->n.nodes, 1);
    return n;
}

/* Takes a COMPUTING node out of its producer's promises. */
static void promise_unlink(struct kv_tree *t, struct kv_node *n)
{
    struct producer *p = &t->producers[n->producer];
    *(n->prev ? &n->prev->next : &p->head) = n->next;
    if (n->next)
        n->next->prev = n->prev;
    n->prev = n->next = NULL;
    n->producer = -1;
    if (!p->head)
        p->who = NULL;
    tree_gauge(&t->n.promised, -1);
}

static void node_set_ready(struct kv_tree *t, struct kv_node *n, int32_t page)
{
    n->state = NODE_READY;
    n->page = page;
    tree_gauge(&t->n.pages, 1);
    tree_gauge(&t->n.cold_pages, 1); /* until it is held */
    if (n->n_tokens < KV_PAGE_TOKENS)
        tree_gauge(&t->n.tails, 1);
}

struct kv_node *tree_add_node(struct kv_tree *t, struct kv_node *parent, const int32_t *tokens,
                              int32_t n_tokens, int32_t page)
{
    struct kv_node *n = node_new(t, parent, tokens, n_tokens);
    if (n)
        node_set_ready(t, n, page);
    return n;
}

int32_t tree_remove_node(struct kv_tree *t, struct kv_node *n)
{
    T9_ASSERT(!n->first_child && n->refs == 0);
    struct kv_node *parent = n->parent;
    int32_t page = n->page;
    tree_state_drop(t, n);
    tree_window_drop(t, n);
    tree_unplace(t, n);
    tree_unpin(t, n);
    if (n->n_tokens == KV_PAGE_TOKENS)
        tree_unindex(t, n);
    if (n->state == NODE_COMPUTING) {
        promise_unlink(t, n);
    } else {
        tree_gauge(&t->n.pages, -1);
        tree_gauge(&t->n.cold_pages, -1);
        if (n->n_tokens < KV_PAGE_TOKENS)
            tree_gauge(&t->n.tails, -1);
    }
    child_unlink(n);
    n->state = NODE_FREE;
    n->next = t->free_nodes;
    t->free_nodes = n;
    tree_gauge(&t->n.nodes, -1);
    if (!parent->first_child)
        tree_place(t, parent);
    return page;
}

void tree_remove(struct kv_tree *t, struct kv_node *n)
{
    int32_t page = tree_remove_node(t, n);
    if (page >= 0)
        kv_page_free(t->pool, page);
}

void tree_hold_node(struct kv_tree *t, struct kv_node *n, uint64_t now_ns)
{
    if (n->refs++ == 0) {
        tree_unplace(t, n);
        tree_gauge(&t->n.cold_pages, -1);
    }
    n->used_ns = now_ns;
    child_to_front(n);
}

static void hold_extend(struct kv_tree *t, struct kv_hold *hold, struct kv_node *n, uint64_t now_ns)
{
    tree_hold_node(t, n, now_ns);
    hold->last = n;
    hold->n_pages++;
    tree_window_slide(t, hold, 1);
}

struct kv_node *tree_hold_end(struct kv_tree *t, const struct kv_hold *hold)
{
    return hold->last ? hold->last : &t->root;
}

/* ---- looking ---- */

static int32_t n_common(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* The READY child, if it is whole, that shares most tokens with tokens[0 .. n); NULL when none
 * shares one. */
static struct kv_node *best_child(const struct kv_tree *t, const struct kv_node *parent,
                                  const int32_t *tokens, int32_t n, int32_t *n_shared)
{
    struct kv_node *best = NULL;
    *n_shared = 0;
    struct kv_node *c = parent->first_child;
    for (int i = 0; c && i < SCAN_MAX; c = c->sib_next, i++) {
        if (c->state != NODE_READY || !tree_is_whole(t, c))
            continue;
        int32_t common = n_common(c->tokens, tokens, n < c->n_tokens ? n : c->n_tokens);
        if (common > *n_shared) {
            *n_shared = common;
            best = c;
        }
    }
    return best;
}

static void node_hit(struct kv_node *n)
{
    if (n->n_hits < UINT32_MAX)
        n->n_hits++;
}

/* The tail part of a match. */
static void match_tail(struct kv_tree *t, struct kv_match *m, struct kv_node *node,
                       const int32_t *tokens, int32_t n, uint64_t now_ns)
{
    struct kv_node *best = best_child(t, node, tokens, n, &m->n_tail);
    if (!best)
        return;
    m->tail_page = best->page;
    m->tail_window = t->windows ? tree_window(t, best)->id : -1;
    if (m->pending)
        return; /* asked again and again while it waits; not a use yet */
    node_hit(best);
    best->used_ns = now_ns;
    child_to_front(best);
    if (best->list >= 0)
        tree_place(t, best);
}

/* Whole pages of `node`'s descendants along tokens that somebody has promised. */
static int32_t count_promised(const struct kv_tree *t, const struct kv_node *node,
                              const int32_t *tokens, int32_t n_pages, uint64_t *collisions)
{
    int32_t k = 0;
    for (; k < n_pages; k++) {
        node = tree_find(t, node, tokens + (size_t)k * KV_PAGE_TOKENS, collisions);
        if (!node || node->state != NODE_COMPUTING)
            break;
    }
    return k;
}

static void match_count(struct kv_tree *t, struct kv_hold *hold, const struct kv_match *m)
{
    if (m->n_ready > 0)
        tree_count(hold->waiting ? &t->n.hits_inflight : &t->n.hits_full, 1);
    if (m->n_tail > 0 && !m->pending)
        tree_count(&t->n.hits_partial, 1);
    if (m->n_ready == 0 && m->n_tail == 0 && !m->pending && hold->n_pages == 0)
        tree_count(&t->n.misses, 1);
    tree_count(&t->n.hit_tokens,
               (uint64_t)m->n_ready * KV_PAGE_TOKENS + (m->pending ? 0 : (uint64_t)m->n_tail));
    hold->waiting = m->pending;
}

/* Extends a hold by the n nodes that end in `last`. */
static void hold_to(struct kv_tree *t, struct kv_hold *hold, struct kv_node *last, int32_t n,
                    uint64_t now_ns)
{
    if (n == 0)
        return;
    struct kv_node *node = last;
    for (int32_t i = 0; i < n; i++, node = node->parent) {
        node_hit(node);
        tree_hold_node(t, node, now_ns);
    }
    hold->last = last;
    hold->n_pages += n;
    tree_window_slide(t, hold, n);
}

struct kv_match kv_tree_match(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens,
                              int32_t n, int32_t *pages, uint64_t now_ns)
{
    struct kv_match m = {.tail_page = -1, .tail_window = -1, .state = -1};
    if (t->states)
        return tree_match_states(t, hold, tokens, n, pages, now_ns);
    struct kv_node *node = tree_hold_end(t, hold);
    struct kv_node *last = node; /* of those that can be resumed after */
    int32_t n_whole = n > 0 ? (n - 1) / KV_PAGE_TOKENS : 0;
    int32_t n_before = hold->n_pages;
    int32_t depth = n_before;
    int32_t whole_from = hold->window_from; /* from here on the windows are there */
    uint64_t collisions = 0;
    while (depth < n_whole) {
        const int32_t *at = tokens + (size_t)depth * KV_PAGE_TOKENS;
        struct kv_node *next = tree_find(t, node, at, &collisions);
        if (!next || next->state != NODE_READY)
            break;
        pages[depth++] = next->page;
        node = next;
        if (!tree_is_whole(t, node))
            whole_from = depth;
        if (whole_from <= kv_window_first(kv_pool_geom(t->pool), depth)) {
            m.n_ready = depth - n_before;
            last = node;
        }
    }
    m.n_common = depth * KV_PAGE_TOKENS;
    hold_to(t, hold, last, m.n_ready, now_ns);
    if (depth < n_whole)
        m.n_pending = count_promised(t, node, tokens + m.n_common, n_whole - depth, &collisions);
    m.pending = m.n_pending > 0;
    int32_t done = hold->n_pages * KV_PAGE_TOKENS;
    if (n - 1 > done)
        match_tail(t, &m, last, tokens + done, n - 1 - done, now_ns);
    match_count(t, hold, &m);
    tree_count(&t->n.collisions, collisions);
    return m;
}

bool kv_tree_divergence(const struct kv_tree *t, const int32_t *tokens, int32_t n, int32_t *index,
                        int32_t *cached, int32_t n_max, int32_t *n_cached)
{
    const struct kv_node *node = &t->root;
    int32_t done = 0;
    uint64_t collisions = 0;
    *index = *n_cached = 0;
    while (n - done >= KV_PAGE_TOKENS) {
        const struct kv_node *next = tree_find(t, node, tokens + done, &collisions);
        if (!next || next->state != NODE_READY)
            break;
        node = next;
        done += KV_PAGE_TOKENS;
    }
    int32_t common;
    const struct kv_node *near = best_child(t, node, tokens + done, n - done, &common);
    for (near = near ? near : node->first_child; near; near = near->sib_next) {
        if (near->state == NODE_READY)
            break;
    }
    *index = done + common;
    if (!near || *index >= n || common >= near->n_tokens)
        return false;
    int32_t k = near->n_tokens - common;
    *n_cached = k < n_max ? k : n_max;
    memcpy(cached, near->tokens + common, (size_t)*n_cached * sizeof *cached);
    return true;
}

/* ---- promises ---- */

/* The index of `who` among the producers, a new one when it has none; -1 = all are used. */
static int producer_slot(struct kv_tree *t, const void *who)
{
    int unused = -1;
    for (int i = 0; i < t->n_producers_ever; i++) {
        if (t->producers[i].who == who)
            return i;
        if (!t->producers[i].who && unused < 0)
            unused = i;
    }
    if (unused < 0 && t->n_producers_ever < TREE_PRODUCERS)
        unused = t->n_producers_ever++;
    return unused;
}

void kv_tree_promise(struct kv_tree *t, const struct kv_hold *hold, const int32_t *tokens,
                     int32_t n, const void *producer)
{
    struct kv_node *node = tree_hold_end(t, hold);
    int slot = producer_slot(t, producer);
    uint64_t collisions = 0;
    for (int32_t i = hold->n_pages; slot >= 0 && !t->states && i < n / KV_PAGE_TOKENS; i++) {
        const int32_t *at = tokens + (size_t)i * KV_PAGE_TOKENS;
        struct kv_node *next = tree_find(t, node, at, &collisions);
        if (next && next->producer != slot)
            break;
        if (!next) {
            if (atomic_load_explicit(&t->n.promised, memory_order_relaxed) >= t->n_promised_max ||
                !(next = node_new(t, node, at, KV_PAGE_TOKENS)))
                break;
            next->hash = tree_hash(t, node, at);
            next->state = NODE_COMPUTING;
            next->producer = (int16_t)slot;
            struct producer *p = &t->producers[slot];
            p->who = producer;
            next->next = p->head;
            if (p->head)
                p->head->prev = next;
            p->head = next;
            tree_index(t, next);
            tree_gauge(&t->n.promised, 1);
        }
        node = next;
    }
    tree_count(&t->n.collisions, collisions);
}

void kv_tree_unpromise(struct kv_tree *t, const void *producer)
{
    for (int i = 0; i < t->n_producers_ever; i++) {
        if (t->producers[i].who != producer)
            continue;
        while (t->producers[i].head)
            tree_remove(t, t->producers[i].head);
    }
}

/* ---- growing ---- */

/* A text of n tokens after `parent` is about to be there: tails that it begins with say nothing
 * more. Returns the hits that they had. */
static uint32_t drop_shorter_tails(struct kv_tree *t, struct kv_node *parent, const int32_t *tokens,
                                   int32_t n)
{
    uint32_t hits = 0;
    struct kv_node *c = parent->first_child;
    for (int i = 0; c && i < SCAN_MAX; i++) {
        struct kv_node *next = c->sib_next;
        if (c->state == NODE_READY && c->n_tokens < n &&
            n_common(c->tokens, tokens, c->n_tokens) == c->n_tokens) {
            hits = hits > c->n_hits ? hits : c->n_hits;
            tree_remove(t, c);
        }
        c = next;
    }
    return hits;
}

t9_status kv_tree_add(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens32,
                      int32_t *page, int32_t *window, const void *producer, uint64_t now_ns)
{
    if (!kv_page_is_used(t->pool, *page) || (t->windows && !kv_window_is_used(t->pool, *window)))
        return t9_fail(NULL, T9_STATUS_INTERNAL, "page %d is not in use", *page);
    struct kv_node *parent = tree_hold_end(t, hold);
    uint64_t collisions = 0;
    struct kv_node *n = tree_find(t, parent, tokens32, &collisions);
    tree_count(&t->n.collisions, collisions);
    if (n && n->state == NODE_READY) {
        if (n->page != *page) {
            kv_page_free(t->pool, *page);
            tree_count(&t->n.duplicates, 1);
        }
        *page = n->page;
        if (t->windows)
            tree_window_give(t, n, window);
        hold_extend(t, hold, n, now_ns);
        return T9_STATUS_OK;
    }
    if (n) {
        if (t->producers[n->producer].who != producer)
            tree_count(&t->n.overtaken, 1);
        promise_unlink(t, n);
    } else {
        n = node_new(t, parent, tokens32, KV_PAGE_TOKENS);
        if (!n)
            return t9_fail(NULL, T9_STATUS_INTERNAL, "the prefix tree has no node left");
        n->hash = tree_hash(t, parent, tokens32);
        tree_index(t, n);
    }
    node_set_ready(t, n, *page);
    if (t->windows)
        tree_window_give(t, n, window);
    hold_extend(t, hold, n, now_ns);
    if (!t->states)
        n->n_hits = drop_shorter_tails(t, parent, tokens32, KV_PAGE_TOKENS);
    return T9_STATUS_OK;
}

void kv_tree_add_tail(struct kv_tree *t, const struct kv_hold *hold, const int32_t *tokens,
                      int32_t n, int32_t page, int32_t window, uint64_t now_ns)
{
    struct kv_node *parent = tree_hold_end(t, hold);
    int32_t n_shared = 0;
    struct kv_node *best = NULL;
    bool fits = n > 0 && n < KV_PAGE_TOKENS && kv_page_is_used(t->pool, page) && !t->states &&
                (!t->windows || kv_window_is_used(t->pool, window));
    if (fits)
        best = best_child(t, parent, tokens, n, &n_shared);
    if (best && n_shared == n) {
        best->used_ns = now_ns;
        child_to_front(best);
        if (t->windows)
            (void)tree_point_set(t, best, hold->n_pages, now_ns);
        if (best->list >= 0)
            tree_place(t, best);
    }
    struct kv_node *tail = NULL;
    if (fits && n_shared < n) {
        tail = node_new(t, parent, tokens, n);
        /* Not before: the parent must not look like a leaf in between. */
        if (tail)
            tail->n_hits = drop_shorter_tails(t, parent, tokens, n);
    }
    if (!tail) {
        kv_page_free(t->pool, page);
        if (t->windows)
            kv_window_free(t->pool, window);
        return;
    }
    tail->used_ns = now_ns;
    node_set_ready(t, tail, page);
    if (t->windows) {
        tree_window_give(t, tail, &window);
        (void)tree_point_set(t, tail, hold->n_pages, now_ns);
    }
    tree_place(t, tail);
}

void kv_tree_release(struct kv_tree *t, struct kv_hold *hold, uint64_t now_ns)
{
    tree_window_release(t, hold);
    for (struct kv_node *n = hold->last; n && n != &t->root; n = n->parent) {
        n->used_ns = now_ns;
        if (--n->refs == 0) {
            tree_gauge(&t->n.cold_pages, 1);
            tree_place(t, n);
        }
    }
    *hold = (struct kv_hold){0};
}

/* ---- what has failed ---- */

void kv_tree_prove(struct kv_tree *t, struct kv_hold *hold)
{
    struct kv_node *n = hold->last;
    for (; hold->n_proven < hold->n_pages; hold->n_proven++, n = n->parent) {
        n->proven = true;
        if (n->state_id >= 0)
            t->states[n->state_id].proven = true;
    }
}

/* Of a node that nobody holds, so nobody holds or has promised one below it. */
static void remove_subtree(struct kv_tree *t, struct kv_node *top)
{
    struct kv_node *n = top;
    for (bool more = true; more;) {
        while (n->first_child)
            n = n->first_child;
        struct kv_node *parent = n->parent;
        more = n != top;
        tree_remove(t, n);
        n = parent;
    }
}

void kv_tree_discard(struct kv_tree *t, struct kv_hold *hold, uint64_t now_ns)
{
    struct kv_node *n = hold->last;
    kv_tree_release(t, hold, now_ns);
    while (n && n != &t->root && !n->proven && n->refs == 0) {
        struct kv_node *parent = n->parent;
        remove_subtree(t, n);
        n = parent;
    }
    for (; n && n != &t->root; n = n->parent) {
        if (n->state_id < 0 || t->states[n->state_id].proven)
            continue;
        tree_state_drop(t, n);
        tree_place(t, n);
    }
}

struct kv_tree_stats kv_tree_stats(const struct kv_tree *t)
{
    const struct tree_counters *n = &t->n;
#define READ(field) .field = atomic_load_explicit(&n->field, memory_order_relaxed)
    return (struct kv_tree_stats){
        READ(nodes),           READ(pages),      READ(cold_pages),   READ(pinned_pages),
        READ(tails),           READ(promised),   READ(hits_full),    READ(hits_partial),
        READ(hits_inflight),   READ(misses),     READ(hit_tokens),   READ(evicted_pages),
        READ(collisions),      READ(duplicates), READ(overtaken),    READ(states),
        READ(evicted_states),  READ(windows),    READ(cold_windows), READ(points),
        READ(evicted_windows),
    };
#undef READ
}
