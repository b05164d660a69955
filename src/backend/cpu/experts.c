/*
 * backend/cpu/experts.c - products of a mixture of experts.
 *
 * Slots (a row and one of its experts) are sorted by expert, so that a panel is read once for all
 * rows that meet it; each worker sorts for itself, which is less than a barrier would cost. Their
 * int8 rows lie in that order, and results go straight to their slots. An item is an (expert, group
 * of panels, block of rows), so one row's few experts keep all workers busy too. When the shared
 * buffer does not hold the rows of all slots, they are taken in passes.
 */
#include "backend/cpu/product.h"

#include "backend/cpu/pool.h"

#include <string.h>

enum { WEIGHTS_MAX = 2 };

struct plan {
    const struct op *op;
    struct panel_geom g[WEIGHTS_MAX];
    struct act_form form;
    int32_t *first; /* [n_experts + 1] an expert's slots are slot[first[e]] to slot[first[e + 1]] */
    int32_t *slot;  /* row * K + j; at the end those that no expert has */
    int32_t n_slots, group;
    bool one; /* all slots share one row of x */
};

/* Where a slot's expert stands in the order; an id that is no expert's comes last. */
static int32_t expert_of(const struct op *op, int32_t slot)
{
    const struct view *ids = &op->src[1];
    int32_t r = slot / ids->cols, n = op->w[0]->n_experts;
    int32_t e =
        ((const int32_t *)ids->p)[(size_t)r * (size_t)ids->stride + (size_t)(slot - r * ids->cols)];
    return e < 0 || e >= n ? n : e;
}

/* Counts, then places: stable, so an expert's slots ascend. `memory` holds n_experts + 2 and
 * n_slots numbers. */
static void sort_slots(struct plan *p, int32_t *memory)
{
    const struct op *op = p->op;
    int32_t n_experts = op->w[0]->n_experts;
    p->first = memory;
    p->slot = memory + n_experts + 2;
    memset(p->first, 0, (size_t)(n_experts + 2) * sizeof(*p->first));
    for (int32_t s = 0; s < p->n_slots; s++)
        p->first[expert_of(op, s) + 1]++;
    for (int32_t e = 0; e < n_experts; e++)
        p->first[e + 1] += p->first[e];
    for (int32_t s = 0; s < p->n_slots; s++)
        p->slot[p->first[expert_of(op, s)]++] = s;
    /* Each start has moved to the next one's. */
    memmove(p->first + 1, p->first, (size_t)n_experts * sizeof(*p->first));
    p->first[0] = 0;
}

static void plan_init(struct plan *p, const struct op *op, struct be_task *t)
{
    const struct view *ids = &op->src[1];
    int32_t n_experts = op->w[0]->n_experts, n_in = op->w[0]->n_in, n_panels = 0, n_blocks = 0;
    bool one_row = true;
    *p = (struct plan){.op = op, .n_slots = ids->rows * ids->cols};
    p->one = ids->rows == 1 && op->src[0].cols == n_in;
    for (int k = 0; k < op->n_dst; k++) {
        (void)panel_geom_init(&p->g[k], op->w[k]->dtype, n_in, op->w[k]->n_out);
        n_panels += p->g[k].n_panels;
    }
    act_form_init(&p->form, p->g, op->n_dst, n_in, true);
    sort_slots(p, (int32_t *)(void *)((char *)t->local + PRODUCT_OWN_BYTES));
    for (int32_t e = 0; e < n_experts; e++) {
        int32_t n = p->first[e + 1] - p->first[e];
        n_blocks += product_row_blocks(n);
        one_row = one_row && n <= 1;
    }
    p->group = product_group(n_panels * n_blocks, t->nth, one_row);
}

/* Slots [lo, hi) of an expert in the order, with weight k. */
static struct product product_of(const struct plan *p, int k, const struct weight *w, int32_t lo,
                                 int32_t n, const char *act)
{
    const struct act_form *f = &p->form;
    size_t offset = p->g[k].block == ACT_BLOCK_K ? f->offset256
                    : p->g[k].block == 1         ? f->offset_f32
                                                 : 0;
    return (struct product){.w = w,
                            .g = &p->g[k],
                            .act = act + offset,
                            .act_stride = p->one ? 0 : f->row_bytes,
                            .n_rows = n,
                            .dst = p->op->dst[k].p,
                            .dst_stride = (size_t)w->n_out,
                            .dst_row = p->slot + lo};
}

/* The products of slots [lo, hi) of the order, whose rows f->rows has. */
static void pass_run(const struct plan *p, int32_t lo, int32_t hi, struct be_task *t)
{
    const struct op *op = p->op;
    int32_t done = 0;
    uint32_t item = pool_next(t->pool);
    for (int32_t e = 0; e < op->w[0]->n_experts && p->first[e] < hi; e++) {
        int32_t from = p->first[e] > lo ? p->first[e] : lo;
        int32_t to = p->first[e + 1] < hi ? p->first[e + 1] : hi;
        for (int k = 0; k < op->n_dst && from < to; k++) {
            int32_t n = product_items(p->g[k].n_panels, to - from, p->group);
            if (item < (uint32_t)(done + n)) {
                struct weight w = weight_expert(op->w[k], e);
                size_t row = p->one ? 0 : (size_t)(from - lo);
                struct product x =
                    product_of(p, k, &w, from, to - from, p->form.rows + row * p->form.row_bytes);
                x.isa = pool_user(t->pool);
                for (; item < (uint32_t)(done + n); item = pool_next(t->pool))
                    product_item(&x, p->group, (int32_t)item - done);
            }
            done += n;
        }
    }
}

/* Slots whose id is no expert's: a slip must show, not read wild. */
static void refuse_slots(const struct plan *p, const struct be_task *t)
{
    const struct op *op = p->op;
    for (int32_t i = p->first[op->w[0]->n_experts] + t->ith; i < p->n_slots; i += t->nth) {
        for (int k = 0; k < op->n_dst; k++) {
            int32_t n = op->w[k]->n_out;
            float *out = (float *)op->dst[k].p + (size_t)p->slot[i] * (size_t)n;
            for (int32_t o = 0; o < n; o++)
                out[o] = NAN;
        }
    }
}

void cpu_matmul_experts(const struct op *op, struct be_task *t)
{
    const struct view *src = &op->src[0];
    struct plan p;
    plan_init(&p, op, t);
    refuse_slots(&p, t);
    int32_t n_in = op->w[0]->n_in, n = p.first[op->w[0]->n_experts];
    bool shared = src->cols == n_in; /* a row's slots have the same input */
    bool all_fit = p.one || (size_t)n * p.form.row_bytes <= t->shared_bytes;
    size_t fit = all_fit ? (size_t)n : t->shared_bytes / p.form.row_bytes;
    for (int32_t lo = 0, hi; lo < n; lo = hi) {
        hi = (size_t)(n - lo) <= fit ? n : lo + (int32_t)fit;
        if (lo > 0) /* the rows of the last pass are read no more */
            pool_barrier(t->pool);
        struct product_src rows = {.p = src->p,
                                   .stride = (size_t)(shared ? src->stride : n_in),
                                   .pick = p.slot + lo,
                                   .per_pick = shared ? op->src[1].cols : 1,
                                   .n_rows = p.one ? 1 : hi - lo,
                                   .n_cols = n_in};
        act_form_fill(&p.form, &rows, t->local, t);
        pass_run(&p, lo, hi, t);
    }
}
