/* tokenizer/strmap.c - hash map from the bytes of a token to its id. Any thread once filled. */
#include "tokenizer/parts.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

#define SLOT_EMPTY UINT64_MAX /* no id is UINT32_MAX */

t9_status strmap_init(struct strmap *m, uint32_t n_max, struct t9_err *err)
{
    uint32_t cap = 16;
    while (cap < 2 * n_max)
        cap *= 2;
    m->mask = cap - 1;
    m->slot = mem_alloc((size_t)cap * sizeof(*m->slot));
    if (!m->slot)
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for a map of %u tokens", n_max);
    memset(m->slot, 0xFF, (size_t)cap * sizeof(*m->slot)); /* SLOT_EMPTY */
    return T9_STATUS_OK;
}

void strmap_deinit(struct strmap *m)
{
    mem_free(m->slot);
    m->slot = NULL;
}

/* The slot that holds `key` or the empty one where it belongs. The high half of a slot is that of
 * the hash: most other keys are told apart without looking at their bytes. */
static uint64_t *find_slot(const struct strmap *m, const struct vocab *v, str key, uint64_t hash)
{
    uint32_t i = (uint32_t)hash & m->mask;
    while (
        m->slot[i] != SLOT_EMPTY &&
        ((m->slot[i] ^ hash) >> 32 || !str_eq(vocab_piece(v, (int32_t)(uint32_t)m->slot[i]), key)))
        i = (i + 1) & m->mask;
    return &m->slot[i];
}

bool strmap_add(struct strmap *m, const struct vocab *v, int32_t id)
{
    str key = vocab_piece(v, id);
    uint64_t hash = hash_xxh3_64(key.p, key.n, 0);
    uint64_t *slot = find_slot(m, v, key, hash);
    if (*slot != SLOT_EMPTY)
        return false;
    *slot = (hash & ~(uint64_t)UINT32_MAX) | (uint32_t)id;
    return true;
}

int32_t strmap_get(const struct strmap *m, const struct vocab *v, str key)
{
    uint64_t slot = *find_slot(m, v, key, hash_xxh3_64(key.p, key.n, 0));
    return slot == SLOT_EMPTY ? -1 : (int32_t)(uint32_t)slot;
}
