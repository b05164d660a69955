/*
 * kv/tree.h - private to kv/: the prefix tree's nodes and what its files share.
 *
 * prefix.c walks and grows the tree, index.c finds a node by its hash, evict.c keeps the order in
 * which cold pages go, checkpoint.c the states of hybrid models, window.c the window pages of
 * models that have them, check.c proves the invariants. One thread, except the counters.
 */
#ifndef T9_KV_TREE_H
#define T9_KV_TREE_H

#include "kv/checkpoint.h"
#include "kv/prefix.h"
#include "kv/state.h"

#include <stdatomic.h>

#define TREE_AGE_MIN_NS 1e6 /* differences below do not matter */

enum {
    /* Entering a list by time walks at most so far from its tail; what would belong further up
     * enters there and is merely evicted too early by so many places. */
    TREE_WALK_MAX = 64,
    TREE_PRODUCERS = 256,        /* sequences that can have promises at one time */
    TREE_PROMISED_MAX = 1 << 16, /* promised nodes at one time */
    /* Cold lists: benefit doubles from one to the next. A tail of one token that was never used
     * again is in list 0, a whole page in list 5, one that was hit 255 times or more in list 13. */
    TREE_PAGE_LEVEL = 5,
    TREE_HITS_LEVEL_MAX = 8,
    TREE_PINNED = TREE_PAGE_LEVEL + TREE_HITS_LEVEL_MAX + 1,
    TREE_LISTS,
    /* In a tree with states only the first is used, by pages that no state needs, pinned or not;
     * those that a state needs are in none. In one with windows the first has the leaves that
     * cannot be resumed after, too. */
    TREE_USELESS = 0,
    /* The same for states, by tokens x kind x hits. */
    TREE_STATES_PINNED = 36,
    TREE_STATE_LISTS,
};

typedef enum node_state { NODE_FREE, NODE_READY, NODE_COMPUTING } node_state;

struct kv_node {
    int32_t tokens[KV_PAGE_TOKENS];
    uint64_t hash; /* of the text from the start to the end of this page; tails have none */
    struct kv_node *parent;
    struct kv_node *first_child; /* used most recently first */
    struct kv_node *sib_prev, *sib_next;
    struct kv_node *prev, *next; /* in a cold list, in its producer's promises, or free */
    struct kv_node *pin_prev, *pin_next;
    uint64_t used_ns;      /* held, released, copied from or added last */
    uint64_t pin_until_ns; /* 0 = not pinned */
    int32_t page;          /* -1 while COMPUTING */
    int32_t state_id;      /* checkpoint after the last token, -1 = none */
    int32_t refs;          /* holds whose chain goes through it */
    int32_t n_tokens;      /* KV_PAGE_TOKENS, fewer in a tail */
    uint32_t n_hits;
    uint8_t state;    /* node_state */
    int8_t list;      /* cold list it is in, -1 = none */
    int16_t producer; /* index of the promiser while COMPUTING */
    bool proven;      /* something that was computed after it has turned out to be numbers */
};

/* A checkpoint; its number is that of its buffer in the pool. */
struct tree_state {
    struct kv_node *node;
    struct tree_state *prev, *next; /* used most recently .. longest ago */
    uint64_t used_ns;
    int32_t at; /* tokens before it */
    uint32_t n_hits;
    ckpt_kind kind;
    int8_t list; /* -1 = none */
    bool proven; /* as a node's */
};

struct state_list {
    struct tree_state *head, *tail;
};

/* What a node has besides in a tree with windows; its number is the node's. */
struct tree_window {
    int32_t id;      /* window page, -1 = none */
    int32_t refs;    /* holds that need it */
    int32_t kept;    /* resume points that need it */
    int32_t n_point; /* the node is one: nodes whose windows it needs, its own included; 0 = none */
    uint64_t point_ns;           /* as a resume point used last */
    struct kv_node *prev, *next; /* in the list of windows that nobody needs */
    struct kv_node *point_prev, *point_next;
    int8_t point_list; /* index in t->points */
};

struct node_list {
    struct kv_node *head, *tail; /* used most recently .. longest ago */
};

struct producer {
    const void *who;      /* NULL = unused */
    struct kv_node *head; /* its promises, children before parents */
};

struct tree_counters {
    _Atomic int32_t nodes, pages, cold_pages, pinned_pages, tails, promised, states, windows,
        cold_windows, points;
    _Atomic uint64_t hits_full, hits_partial, hits_inflight, misses, hit_tokens, evicted_pages,
        evicted_states, evicted_windows, collisions, duplicates, overtaken;
};

struct kv_tree {
    struct kv_pool *pool;
    struct be *be;
    struct kv_node root; /* no page, never held, never freed */
    struct kv_node *nodes;
    size_t nodes_bytes;
    int32_t n_nodes_max, n_ever;
    struct kv_node *free_nodes;
    /* Open addressing; a slot is a node's number + 1, 0 = empty. Full pages only. */
    uint32_t *slots;
    size_t slots_bytes;
    uint32_t slot_mask;
    uint64_t hash_mask; /* all ones; tests keep few bits, to force collisions */
    int32_t n_promised_max;
    struct node_list cold[TREE_LISTS]; /* leaves that no sequence holds */
    struct kv_node *pinned;            /* all pinned nodes, in no order */
    uint64_t pin_next_ns;              /* no pin ends before */
    struct tree_state *states;         /* [of the pool]; NULL: the model has none */
    size_t states_bytes;
    struct state_list state_lists[TREE_STATE_LISTS];
    uint64_t n_state_changes;    /* kept or gone, since the start */
    struct tree_window *windows; /* [n_nodes_max]; NULL: the model has no window pages */
    size_t windows_bytes;
    struct node_list idle;      /* windows that nobody needs, by their links in `windows` */
    struct node_list points[2]; /* resume points; those of pinned nodes */
    struct producer producers[TREE_PRODUCERS];
    int32_t n_producers_ever;
    struct tree_counters n;
};

static inline void tree_count(_Atomic uint64_t *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline int tree_log2(uint32_t x)
{
    return 31 - __builtin_clz(x);
}

static inline void tree_gauge(_Atomic int32_t *c, int32_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* ---- prefix.c ---- */
/* Takes a node without children out of everything and frees its page and state, if any. */
void tree_remove(struct kv_tree *t, struct kv_node *n);
/* The same, but the page is the caller's. */
int32_t tree_remove_node(struct kv_tree *t, struct kv_node *n);
/* A READY node that nobody holds below a parent, with a page that is the tree's from now on; not
 * placed yet. NULL when all nodes are used. */
struct kv_node *tree_add_node(struct kv_tree *t, struct kv_node *parent, const int32_t *tokens,
                              int32_t n_tokens, int32_t page);
void tree_hold_node(struct kv_tree *t, struct kv_node *n, uint64_t now_ns);
struct kv_node *tree_hold_end(struct kv_tree *t, const struct kv_hold *hold);
/* The least useful cold leaf and what it is worth; NULL = none. */
struct kv_node *tree_least(const struct kv_tree *t, bool pinned_too, uint64_t now_ns,
                           double *score);
/* What a page in a list of that level is worth. */
double tree_score(int level, uint64_t used_ns, uint64_t now_ns);

/* ---- index.c ---- */
/* Hash of a full page after `parent`. */
uint64_t tree_hash(const struct kv_tree *t, const struct kv_node *parent, const int32_t *tokens);
/* The full page of exactly these tokens after exactly this parent; NULL = none. *collisions counts
 * nodes of the same hash that are something else. */
struct kv_node *tree_find(const struct kv_tree *t, const struct kv_node *parent,
                          const int32_t *tokens, uint64_t *collisions);
void tree_index(struct kv_tree *t, struct kv_node *n);
void tree_unindex(struct kv_tree *t, const struct kv_node *n);

/* ---- evict.c ---- */
/* Puts a node where its use, holds, children and pin say: into a cold list or out of all. */
void tree_place(struct kv_tree *t, struct kv_node *n);
void tree_unplace(struct kv_tree *t, struct kv_node *n);
void tree_unpin(struct kv_tree *t, struct kv_node *n);
/* Ends the pins whose time is over. Looks at them only when one can be. */
void tree_pins_expire(struct kv_tree *t, uint64_t now_ns);

/* ---- checkpoint.c: of trees with states ---- */
/* kv_tree_match. */
struct kv_match tree_match_states(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens,
                                  int32_t n, int32_t *pages, uint64_t now_ns);
/* Puts a node's state, if any, where its worth and its pin say. */
void tree_state_place(struct kv_tree *t, struct kv_node *n);
void tree_state_drop(struct kv_tree *t, struct kv_node *n); /* frees it, if any */
/* Frees the least useful page, window page or state; returns its bytes, 0 = there is none. */
uint64_t tree_free_one(struct kv_tree *t, bool pinned_too, int32_t keep_state, uint64_t now_ns);

/* ---- window.c: window_init, _drop, _slide, _release and point_place do nothing in trees without
 * windows; the others are for trees with them ---- */
static inline struct tree_window *tree_window(const struct kv_tree *t, const struct kv_node *n)
{
    return &t->windows[n - t->nodes];
}
/* Whether a page can be of use: what comes after its first token can be computed from it. */
static inline bool tree_is_whole(const struct kv_tree *t, const struct kv_node *n)
{
    return !t->windows || tree_window(t, n)->id >= 0;
}
void tree_window_init(struct kv_tree *t, const struct kv_node *n);
/* A window page of the caller's becomes the node's, or goes when it has one already; that one's id
 * is written back. */
void tree_window_give(struct kv_tree *t, struct kv_node *n, int32_t *window);
void tree_window_drop(struct kv_tree *t, struct kv_node *n); /* all that a node has here */
/* A hold has grown by its last n_new nodes: it needs other windows now. All of them are there. */
void tree_window_slide(struct kv_tree *t, struct kv_hold *hold, int32_t n_new);
void tree_window_release(struct kv_tree *t, const struct kv_hold *hold);
/* Makes node number `page` of its chain a resume point, or says that it was used. False when a
 * window that it needs is not there. */
bool tree_point_set(struct kv_tree *t, struct kv_node *n, int32_t page, uint64_t now_ns);
void tree_point_place(struct kv_tree *t, struct kv_node *n); /* after a change of its pin */
/* tree_free_one. */
uint64_t tree_free_windowed(struct kv_tree *t, bool pinned_too, uint64_t now_ns);

#endif
