/*
 * kv/prefix.h - the prefix tree (decision D5): which pages hold the keys and values of which
 * tokens, shared between finished, running and starting sequences. Engine thread only.
 *
 * A node is one page: 32 tokens after its parent's, or fewer in a tail (a leaf). Nodes are found by
 * XXH3 of (salt, parent's hash, tokens) and every hit re-checks parent and tokens, so a collision
 * is a miss and never somebody else's text. The salt is the numerics id, the model and the KV type.
 *
 * A node is READY (its page is computed) or COMPUTING (a sequence, the producer, has promised it;
 * it may have no page yet), so that a second request with the same prefix waits instead of
 * computing it again. Nodes that no sequence uses are cold cache: they stay until the pool needs
 * their pages.
 *
 * By P1 a page computed by one sequence has the bits that any other would have computed.
 */
#ifndef T9_KV_PREFIX_H
#define T9_KV_PREFIX_H

#include "base/err.h"
#include "base/str.h"
#include "kv/kv.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_tree;
struct kv_node;

/* The pool is not owned and outlives the tree. `salt` is hashed into every key. Nodes and index lie
 * in reserved address space, enough for every page of the pool and for bounded promises: nothing is
 * allocated after this, and memory is touched as nodes come. */
t9_status kv_tree_new(struct kv_tree **out, struct kv_pool *pool, str salt, struct t9_err *err);
void kv_tree_free(struct kv_tree *t); /* all pages that it holds go back to the pool */

/* A sequence's hold on the tree: the chain of nodes that covers its first tokens. Zeroed = empty.
 */
struct kv_hold {
    struct kv_node *last; /* deepest node held; each of its ancestors is held too */
    int32_t n_pages;      /* nodes in the chain */
    int32_t window_from;  /* of these, from this one on the window pages are held, too */
    int32_t n_proven;     /* of these, the first that kv_tree_prove has been told of */
    bool waiting;         /* the last match said `pending`; for the counters */
};

struct kv_match {
    int32_t n_ready;     /* full READY pages, now held, ids written to `pages` */
    int32_t n_tail;      /* tokens of the best partly matching page after them (0..31) ... */
    int32_t tail_page;   /* ... to be copied into an own page by the caller; -1 = none */
    int32_t tail_window; /* its window page, if it has one */
    bool pending;        /* the next page is being COMPUTED by another sequence: waiting pays */
    int32_t n_pending;   /* full pages that another sequence has promised beyond n_ready */
    int32_t n_common; /* tokens, whole pages, that are cached. What of it is not held lacks what is
                         needed to go on after it: a state, or its window pages */
    /* Of hybrid models (checkpoint.h): */
    int32_t state; /* the one after all pages held and n_tail; -1 = none, and nothing is held */
    int32_t state_kind; /* ckpt_kind */
};
/* Walks the tree along tokens[0 .. n), using at most n - 1 of them (the last token of a prompt is
 * always computed, since its logits are wanted). Extends `hold` from where it stands and writes the
 * ids of newly held pages to pages[hold->n_pages ...] (n_pages as it was before). `tail_page` is
 * not held: its bytes stay what they are until the next page but one is allocated, so the caller
 * takes an own page (evicting for it if need be) and copies at once. A sequence that has promises
 * of its own would see them as pending: it matches first, then promises.
 *
 * In a tree with window pages it stops where the last one is whose window is there; kv_hold_windows
 * says which these are. tail_window is to be copied before tail_page is, and lasts as long.
 *
 * For a hybrid model it lets go of what is held and looks anew, since the state that the hold led
 * to may be gone; nothing is pending, and a tail is copied as a whole. The state stays what it is
 * until something is evicted or taken. */
struct kv_match kv_tree_match(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens,
                              int32_t n, int32_t *pages, uint64_t now_ns);

/* Writes the ids of the window pages held to windows[hold->window_from ... hold->n_pages); nothing
 * in a tree without. */
void kv_hold_windows(const struct kv_tree *t, const struct kv_hold *hold, int32_t *windows);

/* Promises the full pages of tokens after the hold up to n (whole pages only), so that others wait
 * for them. Stops silently where somebody else's node exists already, and at the bounds on promises
 * (a promise saves work, nothing relies on it). `producer` is any non-NULL identity. */
void kv_tree_promise(struct kv_tree *t, const struct kv_hold *hold, const int32_t *tokens,
                     int32_t n, const void *producer);
/* The producer gives its promises back (cancelled, preempted, failed). Nodes that nobody computed
 * vanish; whoever waited sees no pending page any more and computes itself. */
void kv_tree_unpromise(struct kv_tree *t, const void *producer);

/* The sequence computed one more full page: 32 tokens after the hold, in `page`, which the sequence
 * owned. The node becomes READY and held; the tree owns the page now. When an equal READY node
 * exists already, the given page goes back to the pool and *page is set to the shared one; a window
 * page likewise (NULL in a tree without). Window pages that no row after these tokens can see are
 * not held any more. Fails only for a page that the pool has not handed out (INTERNAL); then
 * nothing has changed. */
t9_status kv_tree_add(struct kv_tree *t, struct kv_hold *hold, const int32_t *tokens32,
                      int32_t *page, int32_t *window, const void *producer, uint64_t now_ns);
/* A sequence ends: its partly filled last page (n < 32 tokens after the hold) becomes a tail that
 * later prompts may copy from. The tree owns the page (and the window page, -1 in a tree without)
 * now, or has freed it. For a hybrid model it would be of no use: see kv_tree_add_tail_state. */
void kv_tree_add_tail(struct kv_tree *t, const struct kv_hold *hold, const int32_t *tokens,
                      int32_t n, int32_t page, int32_t window, uint64_t now_ns);
/* In a tree with window pages: a prompt is expected to go on from somewhere in the hold's last page
 * or right after it, so what is needed for that goes later than other windows. False when nothing
 * is held or some of it is gone already. */
bool kv_tree_keep_windows(struct kv_tree *t, const struct kv_hold *hold, uint64_t now_ns);
/* Lets go of the whole chain; the nodes stay as cold cache. */
void kv_tree_release(struct kv_tree *t, struct kv_hold *hold, uint64_t now_ns);

/* What was computed after all pages held has turned out to be numbers, so they hold numbers, too.
 * Costs as much as there are pages that it was not told of before. */
void kv_tree_prove(struct kv_tree *t, struct kv_hold *hold);
/* kv_tree_release after a computation that has failed: what may be its cause or its product, pages
 * and states of the chain that nobody has proven, does not stay, nor what hangs below. A page that
 * another sequence holds does: that one proves it or discards it, too. */
void kv_tree_discard(struct kv_tree *t, struct kv_hold *hold, uint64_t now_ns);

/* Pins the nodes along tokens[0 .. n) (whole pages that are READY) until the time given; pinned
 * nodes are evicted last, when nothing else is left. Returns pages pinned. */
int32_t kv_tree_pin(struct kv_tree *t, const int32_t *tokens, int32_t n, uint64_t until_ns);
/* Frees at least n_pages cold pages when it can, least benefit first (tokens a hit would save x how
 * recently and often it was used / bytes; leaves before their parents; unpinned before pinned).
 * Returns pages freed. For a hybrid model states count as pages: see kv_tree_free_bytes. */
int32_t kv_tree_evict(struct kv_tree *t, int32_t n_pages, bool pinned_too, uint64_t now_ns);

/* Where a prompt left the tree, for the debug log: index of the first differing token and up to
 * n_max tokens of what the nearest cached text has there. false when the tree is empty there. */
bool kv_tree_divergence(const struct kv_tree *t, const int32_t *tokens, int32_t n, int32_t *index,
                        int32_t *cached, int32_t n_max, int32_t *n_cached);

struct kv_tree_stats {
    int32_t nodes, pages, cold_pages, pinned_pages, tails, promised, states;
    int32_t windows, cold_windows, points; /* window pages; that no hold needs; resume points */
    /* Matches that held full pages at once; that found a tail to copy; that held pages which
     * another sequence was computing; that found nothing. A match may count as full and partial. */
    uint64_t hits_full, hits_partial, hits_inflight, misses;
    uint64_t hit_tokens, evicted_pages, evicted_states, evicted_windows;
    uint64_t collisions; /* equal hashes of different text met while looking */
    uint64_t duplicates; /* pages computed although an equal one was there in the end */
    uint64_t overtaken;  /* promised pages that another sequence than the promiser computed */
};
struct kv_tree_stats kv_tree_stats(const struct kv_tree *t); /* any thread */

/* Every invariant that tests rely on: one owner per page, reference counts equal holds, parents
 * outlive children, hash index and tree agree, the tree's and the pool's counts agree. `holds` are
 * all that exist. CORRUPT with what is wrong. Tests and debug builds. */
t9_status kv_tree_check(const struct kv_tree *t, const struct kv_hold *holds, int32_t n_holds,
                        struct t9_err *err);

#endif
