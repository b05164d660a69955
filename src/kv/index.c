/*
 * kv/index.c - finds the node of a full page: open addressing with linear probing over slots that
 * hold node numbers. Load stays at or below one half, removal moves later entries back, so there
 * are no tombstones and a look-up takes one or two probes however long the server has run.
 *
 * The hash only says where to look: parent and tokens decide.
 */
#include "kv/tree.h"

#include "base/hash.h"

#include <string.h>

uint64_t tree_hash(const struct kv_tree *t, const struct kv_node *parent, const int32_t *tokens)
{
    return hash_xxh3_64(tokens, KV_PAGE_TOKENS * sizeof *tokens, parent->hash) & t->hash_mask;
}

/* XXH3's low bits are as good as any. */
static uint32_t home(const struct kv_tree *t, uint64_t hash)
{
    return (uint32_t)hash & t->slot_mask;
}

struct kv_node *tree_find(const struct kv_tree *t, const struct kv_node *parent,
                          const int32_t *tokens, uint64_t *collisions)
{
    uint64_t hash = tree_hash(t, parent, tokens);
    for (uint32_t at = home(t, hash); t->slots[at]; at = (at + 1) & t->slot_mask) {
        struct kv_node *n = &t->nodes[t->slots[at] - 1];
        if (n->hash != hash)
            continue;
        if (n->parent == parent && memcmp(n->tokens, tokens, sizeof n->tokens) == 0)
            return n;
        (*collisions)++;
    }
    return NULL;
}

void tree_index(struct kv_tree *t, struct kv_node *n)
{
    uint32_t at = home(t, n->hash);
    while (t->slots[at])
        at = (at + 1) & t->slot_mask;
    t->slots[at] = (uint32_t)(n - t->nodes) + 1;
}

void tree_unindex(struct kv_tree *t, const struct kv_node *n)
{
    uint32_t number = (uint32_t)(n - t->nodes) + 1;
    uint32_t hole = home(t, n->hash);
    while (t->slots[hole] && t->slots[hole] != number)
        hole = (hole + 1) & t->slot_mask;
    bool found = t->slots[hole] != 0;
    T9_ASSERT(found);
    if (!found)
        return;
    /* An entry may move into the hole unless its home lies after the hole on the way to it. */
    for (uint32_t at = (hole + 1) & t->slot_mask; t->slots[at]; at = (at + 1) & t->slot_mask) {
        uint32_t h = home(t, t->nodes[t->slots[at] - 1].hash);
        if (((at - h) & t->slot_mask) >= ((at - hole) & t->slot_mask)) {
            t->slots[hole] = t->slots[at];
            hole = at;
        }
    }
    t->slots[hole] = 0;
}
