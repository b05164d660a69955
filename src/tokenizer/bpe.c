/*
 * tokenizer/bpe.c - byte-pair merging of one word, from its bytes or its characters: the pair with
 * the lowest rank first, the leftmost of equals, until no pair of neighbours has a rank.
 *
 * Short words scan an array of ranks; long ones use a heap over a linked list, O(n log n), so that
 * one word of a megabyte is no trap. Ranks come from one hash table keyed by the two ids. A scratch
 * may hold a direct-mapped cache of recent short words: it belongs to one call, so nothing is
 * shared between threads. No recursion. The tables are immutable after load.
 */
#include "tokenizer/parts.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

#define SHORT_BYTES     40
#define CACHE_SLOTS     4096U
#define CACHE_KEY_BYTES 26
#define CACHE_IDS       6
/* Below this a cache costs more to clear than it saves. */
#define CACHE_TEXT_BYTES_MIN 8192
#define NO_PAIR              UINT64_MAX
#define NIL                  UINT32_MAX
#define NO_SYMBOL            (-1)

struct bpe_cached {
    uint8_t n_bytes, n_ids; /* n_bytes 0 = empty */
    char key[CACHE_KEY_BYTES];
    int32_t ids[CACHE_IDS];
};

struct bpe_sym {
    int32_t id;
    uint32_t prev, next;
    uint64_t pair; /* value of the pair (this, next), NO_PAIR when it has none or this is gone */
};

static uint32_t pair_hash(uint64_t key)
{
    return (uint32_t)((key * 0x9E3779B97F4A7C15U) >> 32);
}

t9_status bpe_init(struct bpe *b, uint32_t n_merges, struct t9_err *err)
{
    uint32_t cap = 16;
    while (cap < 2 * n_merges)
        cap *= 2;
    b->mask = cap - 1;
    b->pair = mem_alloc((size_t)cap * sizeof(*b->pair));
    if (!b->pair)
        return t9_fail(err, T9_STATUS_NOMEM, "tokenizer: no memory for %u merges", n_merges);
    memset(b->pair, 0xFF, (size_t)cap * sizeof(*b->pair));
    return T9_STATUS_OK;
}

void bpe_deinit(struct bpe *b)
{
    mem_free(b->pair);
    b->pair = NULL;
}

static uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

bool bpe_add(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t merged)
{
    uint64_t key = pair_key(left, right);
    uint32_t i = pair_hash(key) & b->mask;
    while (b->pair[i].key != UINT64_MAX) {
        if (b->pair[i].key == key)
            return false;
        i = (i + 1) & b->mask;
    }
    b->pair[i] = (struct bpe_pair){key, (uint64_t)rank << 32 | (uint32_t)merged};
    return true;
}

/* rank << 32 | merged id, or NO_PAIR. */
static inline uint64_t pair_get(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = pair_key(left, right);
    uint32_t i = pair_hash(key) & b->mask;
    while (b->pair[i].key != key) {
        if (b->pair[i].key == UINT64_MAX)
            return NO_PAIR;
        i = (i + 1) & b->mask;
    }
    return b->pair[i].val;
}

/* The first symbol at *pos: a byte's or a character's. NO_SYMBOL: the vocabulary lacks that byte.
 * Symbols below it, or from n_tokens on, are no tokens. */
static inline int32_t next_symbol(const struct tokenizer *t, str word, size_t *pos)
{
    if (t->kind == TOK_KIND_BPE)
        return t->bpe.byte_id[(uint8_t)word.p[(*pos)++]];
    return chars_next(&t->chars, word, pos);
}

static inline void push_symbol(const struct tokenizer *t, struct bpe_scratch *s, str word,
                               int32_t id, struct tok_ids *out)
{
    if ((uint32_t)id < t->vocab.n_tokens) {
        tok_ids_push(out, id);
        s->after_unknown = false;
    } else {
        chars_push_unknown(t, s, word, id, out);
    }
}

static void merge_short(const struct tokenizer *t, struct bpe_scratch *s, str word,
                        struct tok_ids *out)
{
    const struct bpe *b = &t->bpe;
    int32_t id[SHORT_BYTES];
    uint64_t pair[SHORT_BYTES];
    size_t n = 0;
    for (size_t i = 0; i < word.n;) {
        id[n] = next_symbol(t, word, &i);
        n += id[n] != NO_SYMBOL;
    }
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = pair_get(b, id[i], id[i + 1]);
    while (n > 1) {
        size_t at = 0;
        for (size_t i = 1; i + 1 < n; i++)
            at = pair[i] >> 32 < pair[at] >> 32 ? i : at;
        if (pair[at] == NO_PAIR)
            break;
        id[at] = (int32_t)(uint32_t)pair[at];
        n--;
        memmove(id + at + 1, id + at + 2, (n - at - 1) * sizeof(*id));
        if (at + 1 < n) {
            memmove(pair + at + 1, pair + at + 2, (n - at - 2) * sizeof(*pair));
            pair[at] = pair_get(b, id[at], id[at + 1]);
        }
        if (at > 0)
            pair[at - 1] = pair_get(b, id[at - 1], id[at]);
    }
    for (size_t i = 0; i < n; i++)
        push_symbol(t, s, word, id[i], out);
}

/* Heap of rank << 32 | position of the left symbol. */
static void heap_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (size_t c = 2 * i + 1; c < n; c = 2 * i + 1) {
        if (c + 1 < n && h[c + 1] < h[c])
            c++;
        if (h[c] >= x)
            break;
        h[i] = h[c];
        i = c;
    }
    h[i] = x;
}

static void heap_push(uint64_t *h, size_t *n, uint64_t x)
{
    size_t i = (*n)++;
    while (i > 0 && h[(i - 1) / 2] > x) {
        h[i] = h[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h[i] = x;
}

static bool scratch_grow(struct bpe_scratch *s, size_t n)
{
    if (n <= s->sym_cap)
        return true;
    size_t cap = s->sym_cap * 2 > n ? s->sym_cap * 2 : n;
    mem_free(s->sym);
    mem_free(s->heap);
    s->sym_cap = 0;
    s->sym = mem_calloc(cap, sizeof(*s->sym));
    s->heap = mem_calloc(cap, 2 * sizeof(*s->heap));
    if (!s->sym || !s->heap)
        return false;
    s->sym_cap = cap;
    return true;
}

static uint64_t heap_key(uint64_t pair, uint32_t pos)
{
    return (pair & 0xFFFFFFFF00000000U) | pos;
}

/* Sets the pair that begins at symbol i and queues it. */
static void sym_pair(const struct bpe *b, struct bpe_scratch *s, size_t *n_heap, uint32_t i)
{
    struct bpe_sym *x = &s->sym[i];
    x->pair = x->next == NIL ? NO_PAIR : pair_get(b, x->id, s->sym[x->next].id);
    if (x->pair != NO_PAIR)
        heap_push(s->heap, n_heap, heap_key(x->pair, i));
}

static bool merge_long(const struct tokenizer *t, struct bpe_scratch *s, str word,
                       struct tok_ids *out)
{
    const struct bpe *b = &t->bpe;
    if (!scratch_grow(s, word.n))
        return false;
    struct bpe_sym *sym = s->sym;
    uint32_t n = 0;
    for (size_t i = 0; i < word.n;) {
        int32_t id = next_symbol(t, word, &i);
        if (id == NO_SYMBOL)
            continue;
        sym[n] = (struct bpe_sym){id, n - 1, n + 1, NO_PAIR};
        n++;
    }
    if (!n)
        return true;
    sym[0].prev = NIL;
    sym[n - 1].next = NIL;
    size_t n_heap = 0;
    for (uint32_t i = 0; i + 1 < n; i++) {
        sym[i].pair = pair_get(b, sym[i].id, sym[i + 1].id);
        if (sym[i].pair != NO_PAIR)
            s->heap[n_heap++] = heap_key(sym[i].pair, i);
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        heap_down(s->heap, n_heap, i);
    /* Each merge takes one entry and adds two at most, and there are fewer than n merges: 2 n hold.
     */
    while (n_heap) {
        uint64_t top = s->heap[0];
        s->heap[0] = s->heap[--n_heap];
        heap_down(s->heap, n_heap, 0);
        uint32_t at = (uint32_t)top;
        if (sym[at].pair == NO_PAIR || heap_key(sym[at].pair, at) != top)
            continue; /* the pair it stood for is gone */
        uint32_t gone = sym[at].next;
        sym[at].id = (int32_t)(uint32_t)sym[at].pair;
        sym[at].next = sym[gone].next;
        sym[gone].pair = NO_PAIR;
        if (sym[at].next != NIL)
            sym[sym[at].next].prev = at;
        sym_pair(b, s, &n_heap, at);
        if (sym[at].prev != NIL)
            sym_pair(b, s, &n_heap, sym[at].prev);
    }
    for (uint32_t i = 0; i != NIL; i = sym[i].next)
        push_symbol(t, s, word, sym[i].id, out);
    return true;
}

void bpe_scratch_init(struct bpe_scratch *s, size_t text_bytes)
{
    *s = (struct bpe_scratch){0};
    if (text_bytes >= CACHE_TEXT_BYTES_MIN)
        s->cache = mem_calloc(CACHE_SLOTS, sizeof(*s->cache));
}

void bpe_scratch_deinit(struct bpe_scratch *s)
{
    mem_free(s->sym);
    mem_free(s->heap);
    mem_free(s->cache);
    *s = (struct bpe_scratch){0};
}

bool bpe_encode_word(const struct tokenizer *t, struct bpe_scratch *s, str word,
                     struct tok_ids *out)
{
    if (word.n == 1) {
        size_t pos = 0;
        int32_t id = next_symbol(t, word, &pos);
        if (id != NO_SYMBOL)
            push_symbol(t, s, word, id, out);
        return true;
    }
    struct bpe_cached *c = NULL;
    if (s->cache && word.n <= CACHE_KEY_BYTES) {
        c = &s->cache[hash_xxh3_64(word.p, word.n, 0) & (CACHE_SLOTS - 1)];
        if (c->n_bytes == word.n && memcmp(c->key, word.p, word.n) == 0) {
            for (size_t i = 0; i < c->n_ids; i++)
                tok_ids_push(out, c->ids[i]);
            s->after_unknown = false;
            return true;
        }
    }
    size_t first = out->n;
    s->saw_unknown = false;
    bool ignore_merges = t->rule && t->rule->ignore_merges;
    int32_t whole = ignore_merges ? strmap_get(&t->words, &t->vocab, word) : -1;
    if (whole >= 0)
        tok_ids_push(out, whole);
    else if (word.n <= SHORT_BYTES)
        merge_short(t, s, word, out);
    else if (!merge_long(t, s, word, out))
        return false;
    if (c && !s->saw_unknown && !out->failed && out->n - first <= CACHE_IDS) {
        c->n_bytes = (uint8_t)word.n;
        c->n_ids = (uint8_t)(out->n - first);
        memcpy(c->key, word.p, word.n);
        memcpy(c->ids, out->p + first, c->n_ids * sizeof(*c->ids));
    }
    return true;
}
