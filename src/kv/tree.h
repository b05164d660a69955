/*
 * kv/tree.h - private to kv/: the prefix tree's nodes and what its files share.
 *
 * prefix.c walks and grows the tree, index.c finds a node by its hash, evict.c keeps the order in
 * which cold pages go, check.c proves the invariants. One thread, except the counters.
 */
#ifndef T9_KV_TREE_H
#define T9_KV_TREE_H

#include "kv/prefix.h"

#include <stdatomic.h>

enum {
    TREE_PRODUCERS = 256,        /* sequences that can have promises at one time */
    TREE_PROMISED_MAX = 1 << 16, /* promised nodes at one time */
    /* Cold lists: benefit doubles from one to the next. A tail of one token that was never used
     * again is in list 0, a whole page in list 5, one that was hit 255 times or more in list 13. */
    TREE_PAGE_LEVEL = 5,
    TREE_HITS_LEVEL_MAX = 8,
    TREE_PINNED = TREE_PAGE_LEVEL + TREE_HITS_LEVEL_MAX + 1,
    TREE_LISTS,
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
    int32_t refs;          /* holds whose chain goes through it */
    int32_t n_tokens;      /* KV_PAGE_TOKENS, fewer in a tail */
    uint32_t n_hits;
    uint8_t state;    /* node_state */
    int8_t list;      /* cold list it is in, -1 = none */
    int16_t producer; /* index of the promiser while COMPUTING */
};

struct node_list {
    struct kv_node *head, *tail; /* used most recently .. longest ago */
};

struct producer {
    const void *who;      /* NULL = unused */
    struct kv_node *head; /* its promises, children before parents */
};

struct tree_counters {
    _Atomic int32_t nodes, pages, cold_pages, pinned_pages, tails, promised;
    _Atomic uint64_t hits_full, hits_partial, hits_inflight, misses, hit_tokens, evicted_pages,
        collisions, duplicates, overtaken;
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
    struct producer producers[TREE_PRODUCERS];
    int32_t n_producers_ever;
    struct tree_counters n;
};

static inline void tree_count(_Atomic uint64_t *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline void tree_gauge(_Atomic int32_t *c, int32_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* ---- prefix.c ---- */
/* Takes a node without children out of everything and frees its page, if any. */
void tree_remove(struct kv_tree *t, struct kv_node *n);

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

#endif
