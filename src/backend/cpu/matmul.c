/*
 * backend/cpu/matmul.c - shares a product out over the workers.
 *
 * Two phases: the rows of x are quantised, then tiles of rows x panels are computed. The first ends
 * at a barrier, except for small x (decode of a few rows), which each worker quantises for itself:
 * that costs less than waiting for one another. K is never split, so no result depends on how many
 * workers there are or which of them took an item.
 */
#include "backend/cpu/isa.h"

#include "backend/cpu/pool.h"
#include "gguf/dtype.h"

#include <string.h>

enum {
    OWN_VALUES = 4096,  /* x up to this is quantised by each worker for itself */
    QUANT_CHUNK = 1024, /* columns of one item of the first phase; a multiple of both blocks */
    ROW_BLOCK = TILE_ROWS_ANY, /* rows of one item: their int8 form stays in the L2 cache */
    GROUP_PANELS = 4,      /* panels of one item with several rows, so that they stay there too */
    GROUP_PANELS_ONE = 32, /* with one row */
    ITEMS_PER_WORKER = 6,
};

/* How the int8 rows of an op lie: blocks of 32, then of 256, as far as its weights want them. */
struct act_form {
    bool want32, want256;
    size_t offset256, row_bytes;
    char *rows;
};

static size_t round_line(size_t n)
{
    return (n + 63) / 64 * 64;
}

size_t cpu_act_row_bytes(int32_t n_in)
{
    size_t n = (size_t)n_in;
    return round_line(n / ACT_BLOCK * sizeof(struct act32)) +
           round_line(n / ACT_BLOCK_K * sizeof(struct act256));
}

static tile_kind kind_of(uint32_t dtype)
{
    switch (dtype) {
#define X(name)                                                                                    \
    case DTYPE_##name: return TILE_KIND_##name;
        TILE_KIND_LIST(X)
#undef X
    default: return TILE_KIND_COUNT; /* tile_any's: weight_load lets no other type in */
    }
}

/* Columns [lo, hi) of row r. Both are multiples of QUANT_CHUNK or the row's end. */
static void quantise(const struct cpu_isa *isa, const struct act_form *f, const struct view *src,
                     int32_t r, int32_t lo, int32_t hi)
{
    char *row = f->rows + (size_t)r * f->row_bytes;
    const float *x = view_row(src, r) + lo;
    if (f->want32)
        isa->quant32((struct act32 *)(void *)row + lo / ACT_BLOCK, x, (hi - lo) / ACT_BLOCK);
    if (f->want256)
        isa->quant256((struct act256 *)(void *)(row + f->offset256) + lo / ACT_BLOCK_K, x,
                      (hi - lo) / ACT_BLOCK_K);
}

static void quantise_all(const struct cpu_isa *isa, struct act_form *f, const struct op *op,
                         struct be_task *t)
{
    const struct view *src = &op->src[0];
    if ((int64_t)src->rows * src->cols <= OWN_VALUES) {
        f->rows = t->local;
        for (int32_t r = 0; r < src->rows; r++)
            quantise(isa, f, src, r, 0, src->cols);
        return;
    }
    int64_t lo, hi;
    int32_t chunks = (src->cols + QUANT_CHUNK - 1) / QUANT_CHUNK;
    f->rows = t->shared;
    task_slice(t, (int64_t)src->rows * chunks, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t from = (int32_t)(i % chunks) * QUANT_CHUNK, to = from + QUANT_CHUNK;
        quantise(isa, f, src, (int32_t)(i / chunks), from, to < src->cols ? to : src->cols);
    }
    be_barrier(t);
}

/* Rows [lo, hi) times the tile's panels, in the largest tiles that fit. */
static void tiles(const struct cpu_isa *isa, tile_kind kind, const struct tile *base, int32_t lo,
                  int32_t hi)
{
    struct tile t = *base;
    t.act += (size_t)lo * t.act_stride;
    t.dst += (size_t)lo * t.dst_stride;
    if (kind == TILE_KIND_COUNT) {
        isa->tile_any(&t, hi - lo);
        return;
    }
    for (int size = TILE_SIZES - 1; lo < hi && size >= 0; size--) {
        tile_fn fn = isa->tile[kind][size];
        int32_t rows = 1 << size;
        for (; fn && hi - lo >= rows; lo += rows) {
            fn(&t);
            t.act += (size_t)rows * t.act_stride;
            t.dst += (size_t)rows * t.dst_stride;
        }
    }
}

/* Item `i` of weight k: a group of panels, a block of rows. */
static void item_run(const struct cpu_isa *isa, const struct act_form *f, const struct op *op,
                     int k, const struct panel_geom *g, int32_t group, int32_t i)
{
    const struct weight *w = op->w[k];
    const struct view *src = &op->src[0], *dst = &op->dst[k];
    int32_t row_blocks = (src->rows + ROW_BLOCK - 1) / ROW_BLOCK;
    int32_t panel = i / row_blocks * group, row = i % row_blocks * ROW_BLOCK;
    struct tile t = {.g = g,
                     .panel = (const char *)w->data + (size_t)panel * g->panel_bytes,
                     .act = f->rows,
                     .act_stride = f->row_bytes,
                     .dst = (float *)dst->p + panel * PANEL,
                     .dst_stride = (size_t)dst->stride,
                     .bias = w->bias ? w->bias + panel * PANEL : NULL,
                     .accumulate = (op->flags & OP_FLAG_ACCUMULATE) != 0};
    t.n_panels = g->n_panels - panel < group ? g->n_panels - panel : group;
    t.n_out = w->n_out - panel * PANEL < t.n_panels * PANEL ? w->n_out - panel * PANEL
                                                            : t.n_panels * PANEL;
    if (g->block == ACT_BLOCK_K) {
        t.act += f->offset256;
    } else if (g->block == 1) {
        t.act = src->p;
        t.act_stride = (size_t)src->stride * sizeof(float);
    }
    tiles(isa, kind_of(w->dtype), &t, row,
          row + ROW_BLOCK < src->rows ? row + ROW_BLOCK : src->rows);
}

void cpu_matmul(const struct op *op, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    const struct view *src = &op->src[0];
    struct panel_geom g[OP_DST_MAX];
    struct act_form f = {0};
    int32_t n_panels = 0, row_blocks = (src->rows + ROW_BLOCK - 1) / ROW_BLOCK;
    for (int k = 0; k < op->n_dst; k++) {
        (void)panel_geom_init(&g[k], op->w[k]->dtype, op->w[k]->n_in, op->w[k]->n_out);
        f.want32 = f.want32 || (g[k].block > 1 && g[k].block < ACT_BLOCK_K);
        f.want256 = f.want256 || g[k].block == ACT_BLOCK_K;
        n_panels += g[k].n_panels;
    }
    f.offset256 = f.want32 ? round_line((size_t)src->cols / ACT_BLOCK * sizeof(struct act32)) : 0;
    f.row_bytes = f.offset256;
    if (f.want256)
        f.row_bytes += round_line((size_t)src->cols / ACT_BLOCK_K * sizeof(struct act256));
    if (f.row_bytes > 0)
        quantise_all(isa, &f, op, t);

    int32_t most = src->rows == 1 ? GROUP_PANELS_ONE : GROUP_PANELS;
    int32_t group = n_panels * row_blocks / (t->nth * ITEMS_PER_WORKER);
    group = group < 1 ? 1 : group > most ? most : group;
    int32_t done = 0; /* items of the weights before k */
    uint32_t item = pool_next(t->pool);
    for (int k = 0; k < op->n_dst; k++) {
        int32_t n = (g[k].n_panels + group - 1) / group * row_blocks;
        for (; item < (uint32_t)(done + n); item = pool_next(t->pool))
            item_run(isa, &f, op, k, &g[k], group, (int32_t)item - done);
        done += n;
    }
}
