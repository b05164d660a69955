/*
 * backend/cpu/matmul.c - shares a product out over the workers.
 *
 * Two phases: the rows of x are quantised, then tiles of rows x panels are computed. The first ends
 * at a barrier, except for small x (decode of a few rows), which each worker quantises for itself.
 */
#include "backend/cpu/product.h"

#include "backend/cpu/pool.h"

void cpu_matmul(const struct op *op, struct be_task *t)
{
    const struct view *src = &op->src[0];
    struct panel_geom g[OP_DST_MAX];
    struct act_form f;
    struct product_src rows = {
        .p = src->p, .stride = (size_t)src->stride, .n_rows = src->rows, .n_cols = src->cols};
    int32_t n_panels = 0;
    for (int k = 0; k < op->n_dst; k++) {
        (void)panel_geom_init(&g[k], op->w[k]->dtype, op->w[k]->n_in, op->w[k]->n_out);
        n_panels += g[k].n_panels;
    }
    act_form_init(&f, g, op->n_dst, src->cols, false);
    if (f.row_bytes > 0)
        act_form_fill(&f, &rows, t->local, t);

    int32_t group = product_group(n_panels * product_row_blocks(src->rows), t->nth, src->rows == 1);
    int32_t done = 0; /* items of the weights before k */
    uint32_t item = pool_next(t->pool);
    for (int k = 0; k < op->n_dst; k++) {
        struct product p = {.isa = pool_user(t->pool),
                            .w = op->w[k],
                            .g = &g[k],
                            .act = f.rows,
                            .act_stride = f.row_bytes,
                            .n_rows = src->rows,
                            .dst = op->dst[k].p,
                            .dst_stride = (size_t)op->dst[k].stride,
                            .accumulate = (op->flags & OP_FLAG_ACCUMULATE) != 0};
        if (g[k].block == ACT_BLOCK_K) {
            p.act += f.offset256;
        } else if (g[k].block == 1) {
            p.act = src->p;
            p.act_stride = (size_t)src->stride * sizeof(float);
        }
        int32_t n = product_items(g[k].n_panels, src->rows, group);
        for (; item < (uint32_t)(done + n); item = pool_next(t->pool))
            product_item(&p, group, (int32_t)item - done);
        done += n;
    }
}
