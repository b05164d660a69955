/* tokenizer/strmap.c - hash map from the bytes of a token to its id. Any thread once filled. */
#include "tokenizer/parts.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

t9_status strmap_init(struct strmap *m, uint32_t n_max, struct t9_err *err)
{
    uint32_t cap = 16;
    while (cap < 2 * n_max)
        cap *= 2;
    m->mask = cap - 1;
    m->slot = mem_alloc((size_t)cap * sizeof(*m->slot));
    if (!m->slot)
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for a map of %u tokens", n_max);
    memset(m->slot, 0xFF, (size_t)cap * sizeof(*m->slot));
    return T9_STATUS_OK;
}

void strmap_deinit(struct strmap *m)
{
    mem_free(m->slot);
    m->slot = NULL;
}

/* The slot that holds `key` or the empty one where it belongs. */
static int32_t *find_slot(const struct strmap *m, const struct vocab *v, str key)
{
    uint32_t i = (uint32_t)hash_xxh3_64(key.p, key.n, 0) & m->mask;
    while (m->slot[i] >= 0 && !str_eq(vocab_piece(v, m->slot[i]), key))
        i = (i + 1) & m->mask;
    return &m->slot[i];
}

bool strmap_add(struct strmap *m, const struct vocab *v, int32_t id)
{
    int32_t *slot = find_slot(m, v, vocab_piece(v, id));
    if (*slot >= 0)
        return false;
    *slot = id;
    return true;
}

int32_t strmap_get(const struct strmap *m, const struct vocab *v, str key)
{
    return *find_slot(m, v, key);
}
