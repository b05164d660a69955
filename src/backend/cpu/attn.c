/*
 * backend/cpu/attn.c - shares attention out over the workers.
 *
 * An item is a tile: some consecutive rows of one sequence times the query heads of one KV head
 * (they read the same keys and values). With few tiles and a long context (decode), an item is one
 * split of 512 keys of a tile: the splits' states go to the shared buffer and are combined after a
 * barrier, ascending, which is what a tile that walks all its splits does too.
 */
#include "backend/cpu/isa.h"

#include "backend/cpu/pool.h"

#include <string.h>

enum {
    SPLIT_ITEMS_PER_WORKER = 4, /* with fewer tiles than this a worker, tiles are split */
    LINE = 64,
};

/* How an op is cut; the same for every worker. */
struct plan {
    const struct cpu_isa *isa;
    const struct op *op;
    int32_t d, d_pad, n_head, n_head_kv, group;
    int32_t tile_heads, head_tiles, tile_rows;
    int32_t n_tiles, n_splits; /* n_splits: of the longest row */
    size_t state_floats;       /* of one pair */
    bool split;
};

/* A cursor over tiles of rows: items are claimed in ascending order, so it only walks forward. */
struct cursor {
    int32_t tile, row, n_rows;
};

static int32_t seq_of(const struct plan *p, int32_t row)
{
    return view_i32_at(&p->op->src[2], row);
}

/* Rows of the tile that starts at `row`: of one sequence. */
static int32_t tile_rows_at(const struct plan *p, int32_t row)
{
    int32_t n = 1, all = p->op->dst[0].rows;
    while (n < p->tile_rows && row + n < all && seq_of(p, row + n) == seq_of(p, row))
        n++;
    return n;
}

static void cursor_to(const struct plan *p, struct cursor *c, int32_t tile)
{
    if (c->n_rows == 0)
        c->n_rows = tile_rows_at(p, 0);
    for (; c->tile < tile; c->tile++) {
        c->row += c->n_rows;
        c->n_rows = tile_rows_at(p, c->row);
    }
}

static void plan_init(struct plan *p, const struct op *op, const struct be_task *t)
{
    int32_t rows = op->dst[0].rows, longest = 0;
    *p = (struct plan){.isa = pool_user(t->pool), .op = op};
    p->d = op->kv->head_dim;
    p->d_pad = (p->d + 15) / 16 * 16;
    p->state_floats = (size_t)(ATTN_STATE_PAD + p->d_pad);
    p->n_head = op->i[0];
    p->n_head_kv = op->kv->n_head_kv;
    p->group = p->n_head / p->n_head_kv;
    p->tile_heads = p->group < ATTN_PAIRS ? p->group : ATTN_PAIRS;
    p->head_tiles = (p->group + p->tile_heads - 1) / p->tile_heads;
    p->tile_rows = ATTN_PAIRS / p->tile_heads;
    for (int32_t r = 0; r < rows; p->n_tiles++)
        r += tile_rows_at(p, r);
    for (int32_t r = 0; r < rows; r++) {
        int32_t first, end;
        attn_range(op, r, &first, &end);
        longest = end > longest ? end : longest;
    }
    p->n_splits = (longest + ATTN_SPLIT - 1) / ATTN_SPLIT;
    size_t room = (size_t)rows * (size_t)p->n_head * (size_t)p->n_splits * p->state_floats;
    p->split = t->nth > 1 && p->n_splits > 1 && room * sizeof(float) <= t->shared_bytes &&
               p->n_tiles * p->n_head_kv * p->head_tiles < t->nth * SPLIT_ITEMS_PER_WORKER;
}

/* Where split s of (row, head) leaves its state. */
static float *partial_at(const struct plan *p, const struct be_task *t, int32_t row, int32_t head,
                         int32_t s)
{
    size_t i = ((size_t)row * (size_t)p->n_head + (size_t)head) * (size_t)p->n_splits + (size_t)s;
    return (float *)t->shared + i * p->state_floats;
}

static void state_reset(float *state, size_t floats)
{
    memset(state, 0, floats * sizeof(float));
    state[0] = -INFINITY;
}

/* The state that a head's splits are combined into. */
static void state_start(const struct plan *p, float *state, int32_t head)
{
    state_reset(state, p->state_floats);
    attn_start(p->op, head, &state[0], &state[1]);
}

static void finish(const struct plan *p, const float *all, int32_t row, int32_t head)
{
    float *out = view_row(&p->op->dst[0], row) + (size_t)head * (size_t)p->d;
    float inv = 1.0f / all[1];
    for (int32_t i = 0; i < p->d; i++)
        out[i] = all[ATTN_STATE_PAD + i] * inv;
}

/* A tile being computed: what attn_tile does not say. */
struct tile_job {
    struct attn_tile tile;
    int32_t row, n_rows, kv_head, head; /* first row, first query head */
    int32_t n_heads, first, end;        /* keys that any pair sees */
    float *all;                         /* [n_pairs][state_floats] */
};

/* Pairs are row by row, so that heads of a row, which see the same keys, are neighbours. */
static void tile_init(struct tile_job *j, const struct plan *p, const struct be_task *t,
                      const struct cursor *c, int32_t kv_head, int32_t head_tile)
{
    *j = (struct tile_job){.row = c->row, .n_rows = c->n_rows, .kv_head = kv_head};
    struct attn_tile *a = &j->tile;
    int32_t from = head_tile * p->tile_heads;
    j->head = kv_head * p->group + from;
    j->n_heads = p->group - from < p->tile_heads ? p->group - from : p->tile_heads;
    j->first = INT32_MAX;
    a->head_dim = p->d;
    a->d_pad = p->d_pad;
    a->scale = p->op->f[0];
    a->n_pairs = j->n_rows * j->n_heads;
    a->q = t->local;
    a->k = a->q + ATTN_PAIRS * p->d_pad;
    a->v = a->k + KV_PAGE_TOKENS * p->d_pad;
    a->p = a->v + KV_PAGE_TOKENS * p->d_pad;
    a->state = a->p + ATTN_PAIRS * KV_PAGE_TOKENS;
    j->all = a->state + ATTN_PAIRS * p->state_floats;
    for (int32_t i = 0; i < a->n_pairs; i++) {
        int32_t row = j->row + i / j->n_heads, head = j->head + i % j->n_heads;
        const float *q = view_row(&p->op->src[0], row) + (size_t)head * (size_t)p->d;
        for (int32_t k = 0; k < p->d; k++)
            a->q[k * ATTN_PAIRS + i] = q[k];
        attn_range(p->op, row, &a->first[i], &a->end[i]);
        if (a->first[i] >= a->end[i])
            continue;
        j->first = a->first[i] < j->first ? a->first[i] : j->first;
        j->end = a->end[i] > j->end ? a->end[i] : j->end;
    }
}

static bool pair_sees(const struct attn_tile *a, int32_t i, int32_t split)
{
    return a->first[i] < split + ATTN_SPLIT && a->end[i] > split && a->first[i] < a->end[i];
}

/* A page's keys and values of a KV head; op's src 3 and 4 are the page table and the pool. */
static const char *block_k(const struct plan *p, const struct tile_job *j, int32_t block)
{
    const struct op *op = p->op;
    int32_t page = kv_page_at(&op->src[3], seq_of(p, j->row), block);
    return kv_page_k(op->kv, op->src[4].p, page, j->kv_head);
}

/* Pages lie anywhere, so the CPU does not foresee the next block; its bytes are asked for while
 * this one is computed. */
static void block_prefetch(const struct plan *p, const struct tile_job *j, int32_t block)
{
    const char *k = block_k(p, j, block), *v = k + p->op->kv->v_offset;
    for (size_t i = 0; i < p->op->kv->head_bytes; i += LINE) {
        __builtin_prefetch(k + i, 0, 2);
        __builtin_prefetch(v + i, 0, 2);
    }
}

/* The blocks of one split, into a->state. */
static void tile_split(const struct plan *p, const struct tile_job *j, int32_t split)
{
    const struct attn_tile *a = &j->tile;
    const struct kv_layer *kv = p->op->kv;
    int32_t from = j->first / KV_PAGE_TOKENS * KV_PAGE_TOKENS, to = split + ATTN_SPLIT;
    from = from > split ? from : split;
    to = to < j->end ? to : j->end;
    for (int32_t i = 0; i < a->n_pairs; i++)
        state_reset(a->state + (size_t)i * p->state_floats, p->state_floats);
    if (a->n_pairs <= p->isa->attn_near_pairs && p->d == p->d_pad) {
        for (int32_t block = from; block < to; block += KV_PAGE_TOKENS) {
            int32_t next = block + KV_PAGE_TOKENS < j->end ? block + KV_PAGE_TOKENS : block;
            p->isa->attn_near(a, kv, block_k(p, j, block), block_k(p, j, next), block);
        }
        return;
    }
    for (int32_t block = from; block < to; block += KV_PAGE_TOKENS) {
        const char *k = block_k(p, j, block);
        if (block + KV_PAGE_TOKENS < to)
            block_prefetch(p, j, block + KV_PAGE_TOKENS);
        p->isa->attn_load(a, kv, k, k + kv->v_offset);
        p->isa->attn_block(a, block);
    }
}

/* All splits of a tile, combined, to dst. */
static void tile_whole(const struct plan *p, struct tile_job *j)
{
    const struct attn_tile *a = &j->tile;
    for (int32_t i = 0; i < a->n_pairs; i++)
        state_start(p, j->all + (size_t)i * p->state_floats, j->head + i % j->n_heads);
    for (int32_t s = j->first / ATTN_SPLIT * ATTN_SPLIT; s < j->end; s += ATTN_SPLIT) {
        tile_split(p, j, s);
        for (int32_t i = 0; i < a->n_pairs; i++) {
            size_t at = (size_t)i * p->state_floats;
            if (pair_sees(a, i, s))
                p->isa->attn_combine(j->all + at, a->state + at, p->d_pad);
        }
    }
    for (int32_t i = 0; i < a->n_pairs; i++) {
        int32_t row = j->row + i / j->n_heads, head = j->head + i % j->n_heads;
        if (a->first[i] < a->end[i])
            finish(p, j->all + (size_t)i * p->state_floats, row, head);
        else
            memset(view_row(&p->op->dst[0], row) + (size_t)head * (size_t)p->d, 0,
                   (size_t)p->d * sizeof(float));
    }
}

static void tile_partial(const struct plan *p, const struct tile_job *j, const struct be_task *t,
                         int32_t s)
{
    const struct attn_tile *a = &j->tile;
    if (j->first >= (s + 1) * ATTN_SPLIT || j->end <= s * ATTN_SPLIT)
        return;
    tile_split(p, j, s * ATTN_SPLIT);
    for (int32_t i = 0; i < a->n_pairs; i++) {
        if (pair_sees(a, i, s * ATTN_SPLIT))
            memcpy(partial_at(p, t, j->row + i / j->n_heads, j->head + i % j->n_heads, s),
                   a->state + (size_t)i * p->state_floats, p->state_floats * sizeof(float));
    }
}

/* Second phase of split tiles: (row, head) by (row, head). */
static void combine_all(const struct plan *p, const struct be_task *t)
{
    int64_t lo, hi;
    float *all = t->local;
    task_slice(t, (int64_t)p->op->dst[0].rows * p->n_head, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t row = (int32_t)(i / p->n_head), head = (int32_t)(i % p->n_head), first, end;
        attn_range(p->op, row, &first, &end);
        if (first >= end) {
            memset(view_row(&p->op->dst[0], row) + (size_t)head * (size_t)p->d, 0,
                   (size_t)p->d * sizeof(float));
            continue;
        }
        state_start(p, all, head);
        for (int32_t s = first / ATTN_SPLIT; s * ATTN_SPLIT < end; s++)
            p->isa->attn_combine(all, partial_at(p, t, row, head, s), p->d_pad);
        finish(p, all, row, head);
    }
}

void cpu_attn_paged(const struct op *op, struct be_task *t)
{
    struct plan p;
    struct cursor c = {0};
    struct tile_job job;
    plan_init(&p, op, t);
    int32_t per_tile = p.n_head_kv * p.head_tiles * (p.split ? p.n_splits : 1);
    int64_t n_items = (int64_t)p.n_tiles * per_tile;
    for (int64_t i = pool_next(t->pool); i < n_items; i = pool_next(t->pool)) {
        int32_t rest = (int32_t)(i % per_tile);
        cursor_to(&p, &c, (int32_t)(i / per_tile));
        int32_t s = p.split ? rest % p.n_splits : 0;
        rest = p.split ? rest / p.n_splits : rest;
        tile_init(&job, &p, t, &c, rest / p.head_tiles, rest % p.head_tiles);
        if (p.split)
            tile_partial(&p, &job, t, s);
        else
            tile_whole(&p, &job);
    }
    if (p.split) {
        pool_barrier(t->pool);
        combine_all(&p, t);
    }
}
