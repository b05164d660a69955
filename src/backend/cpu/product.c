/*
 * backend/cpu/product.c - see product.h. K is never split, and a row's int8 form is its own, so no
 * result depends on how items are cut or which worker takes one.
 */
#include "backend/cpu/product.h"

#include "backend/cpu/pool.h"
#include "gguf/dtype.h"

#include <string.h>

enum {
    QUANT_CHUNK = 1024, /* columns of one step of filling a form; a multiple of both blocks */
    ROW_BLOCK = TILE_ROWS_ANY, /* rows of one item: their int8 form stays in the L2 cache */
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

void act_form_init(struct act_form *f, const struct panel_geom *g, int n, int32_t n_in, bool picked)
{
    *f = (struct act_form){0};
    for (int k = 0; k < n; k++) {
        f->want32 = f->want32 || (g[k].block > 1 && g[k].block < ACT_BLOCK_K);
        f->want256 = f->want256 || g[k].block == ACT_BLOCK_K;
        f->want_f32 = f->want_f32 || (picked && g[k].block == 1);
    }
    if (f->want32)
        f->offset256 = round_line((size_t)(n_in / ACT_BLOCK) * sizeof(struct act32));
    f->offset_f32 = f->offset256;
    if (f->want256)
        f->offset_f32 += round_line((size_t)(n_in / ACT_BLOCK_K) * sizeof(struct act256));
    f->row_bytes = f->offset_f32 + (f->want_f32 ? (size_t)n_in * sizeof(float) : 0);
}

/* Columns [lo, hi) of row r. Both are multiples of QUANT_CHUNK or the row's end. */
static void fill(const struct cpu_isa *isa, const struct act_form *f, const struct product_src *src,
                 int32_t r, int32_t lo, int32_t hi)
{
    char *row = f->rows + (size_t)r * f->row_bytes;
    size_t from = (size_t)(src->pick ? src->pick[r] / src->per_pick : r);
    const float *x = src->p + from * src->stride + lo;
    if (f->want32)
        isa->quant32((struct act32 *)(void *)row + lo / ACT_BLOCK, x, (hi - lo) / ACT_BLOCK);
    if (f->want256)
        isa->quant256((struct act256 *)(void *)(row + f->offset256) + lo / ACT_BLOCK_K, x,
                      (hi - lo) / ACT_BLOCK_K);
    if (f->want_f32)
        memcpy((float *)(void *)(row + f->offset_f32) + lo, x, (size_t)(hi - lo) * sizeof(float));
}

void act_form_fill(struct act_form *f, const struct product_src *src, char *own, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    if ((int64_t)src->n_rows * src->n_cols <= PRODUCT_OWN_VALUES) {
        f->rows = own;
        for (int32_t r = 0; r < src->n_rows; r++)
            fill(isa, f, src, r, 0, src->n_cols);
        return;
    }
    int64_t lo, hi;
    int32_t chunks = (src->n_cols + QUANT_CHUNK - 1) / QUANT_CHUNK;
    f->rows = t->shared;
    task_slice(t, (int64_t)src->n_rows * chunks, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        int32_t from = (int32_t)(i % chunks) * QUANT_CHUNK, to = from + QUANT_CHUNK;
        fill(isa, f, src, (int32_t)(i / chunks), from, to < src->n_cols ? to : src->n_cols);
    }
    be_barrier(t);
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

/* The tile's panels times its first n rows, in the largest tiles that fit. */
static void tiles(const struct cpu_isa *isa, tile_kind kind, struct tile *t, int32_t n)
{
    if (kind == TILE_KIND_COUNT) {
        isa->tile_any(t, n);
        return;
    }
    for (int32_t rows = TILE_ROWS_MAX; n > 0 && rows > 0; rows--) {
        tile_fn fn = isa->tile[kind][rows];
        for (; fn && n >= rows; n -= rows) {
            fn(t);
            tile_advance(t, rows);
        }
    }
}

int32_t product_row_blocks(int32_t n_rows)
{
    return (n_rows + ROW_BLOCK - 1) / ROW_BLOCK;
}

int32_t product_items(int32_t n_panels, int32_t n_rows, int32_t group)
{
    return (n_panels + group - 1) / group * product_row_blocks(n_rows);
}

int32_t product_group(int32_t n_panels, int nth, bool one_row)
{
    int32_t most = one_row ? PRODUCT_GROUP_ONE : PRODUCT_GROUP;
    int32_t group = n_panels / (nth * PRODUCT_ITEMS_PER_WORKER);
    return group < 1 ? 1 : group > most ? most : group;
}

void product_item(const struct product *p, int32_t group, int32_t i)
{
    const struct weight *w = p->w;
    const struct panel_geom *g = p->g;
    int32_t row_blocks = product_row_blocks(p->n_rows);
    int32_t panel = i / row_blocks * group, row = i % row_blocks * ROW_BLOCK;
    struct tile t = {.g = g,
                     .panel = (const char *)w->data + (size_t)panel * g->panel_bytes,
                     .act = p->act,
                     .act_stride = p->act_stride,
                     .dst = p->dst + panel * PANEL,
                     .dst_stride = p->dst_stride,
                     .dst_row = p->dst_row,
                     .bias = w->bias ? w->bias + panel * PANEL : NULL,
                     .accumulate = p->accumulate};
    t.n_panels = g->n_panels - panel < group ? g->n_panels - panel : group;
    t.n_out = w->n_out - panel * PANEL < t.n_panels * PANEL ? w->n_out - panel * PANEL
                                                            : t.n_panels * PANEL;
    tile_advance(&t, row);
    tiles(p->isa, kind_of(w->dtype), &t, p->n_rows - row < ROW_BLOCK ? p->n_rows - row : ROW_BLOCK);
}
