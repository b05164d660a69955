/*
 * kv/checkpoint.h - checkpoints of recurrent states in the prefix tree (decision D6). Engine thread
 * only.
 *
 * A tree whose pool has states is one of a hybrid model: a cached prefix can be resumed only where
 * a state was kept, since a state cannot be cut at a token. A node owns at most one, the state
 * after its last token; a tail always owns one and is resumed only as a whole. A match holds pages
 * up to the deepest state; what comes after it is computed again. There are no promises in such a
 * tree: whether somebody else is computing a prefix is the engine's to see.
 */
#ifndef T9_KV_CHECKPOINT_H
#define T9_KV_CHECKPOINT_H

#include "kv/prefix.h"

/* Why a state was kept; the later kinds are worth more. */
typedef enum ckpt_kind {
    CKPT_KIND_INTERVAL, /* the text had become that much longer */
    CKPT_KIND_LADDER,   /* before the end of what conversations have in common */
    CKPT_KIND_BRANCH,   /* another text left this one here */
    CKPT_KIND_MARK,     /* the caller expects others to leave it here */
    CKPT_KIND_END,      /* of a prompt, or of all that a sequence had */
    CKPT_KINDS
} ckpt_kind;

/* Grows whenever a state comes or goes. As long as it does not, what a match found is what another
 * one would find with the same tokens and hold, but for n_common. */
uint64_t kv_tree_state_changes(const struct kv_tree *t);

/* What the hold's last page has; false: no state. */
bool kv_hold_has_state(const struct kv_hold *hold);
/* The state after the hold's last token, which the caller owned, becomes its last node's. False
 * when that has one already (its kind is raised to the better one) or when nothing is held: the
 * state is still the caller's. */
bool kv_tree_keep_state(struct kv_tree *t, const struct kv_hold *hold, int32_t state,
                        ckpt_kind kind, uint64_t now_ns);
/* As kv_tree_add_tail, with the state after the n tokens. The tree owns both or has freed them. */
void kv_tree_add_tail_state(struct kv_tree *t, const struct kv_hold *hold, const int32_t *tokens,
                            int32_t n, int32_t page, int32_t state, uint64_t now_ns);

/* Somebody goes on from the state of a match: for the order in which states go. */
void kv_tree_use_state(struct kv_tree *t, const struct kv_match *m, uint64_t now_ns);
/* The state of a match, and its tail's page if it has one, leave the tree and are the caller's. */
void kv_tree_take_state(struct kv_tree *t, const struct kv_match *m);

/* Frees cold pages and states until so many bytes are freed, when it can; returns how many were.
 * First pages that no state needs, then the state with the least benefit (tokens that would be
 * computed again x its kind x how recently and often it was used); pinned ones last, and only if
 * pinned_too. keep_state (-1 = none) stays. In a tree without states: window pages that nobody
 * needs, then what is least useful of cold pages and resume points (window.c). */
uint64_t kv_tree_free_bytes(struct kv_tree *t, uint64_t bytes, bool pinned_too, int32_t keep_state,
                            uint64_t now_ns);
/* Makes room for one more checkpoint, unless what would have to go is worth more. */
bool kv_tree_room_for_state(struct kv_tree *t, ckpt_kind kind, uint64_t now_ns);

#endif
