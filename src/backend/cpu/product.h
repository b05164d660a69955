/*
 * backend/cpu/product.h - private to backend/cpu: what op_matmul and op_matmul_experts share: the
 * int8 form of rows, and one product cut into items of panels and rows.
 */
#ifndef T9_BACKEND_CPU_PRODUCT_H
#define T9_BACKEND_CPU_PRODUCT_H

#include "backend/cpu/isa.h"

enum {
    /* x up to so many values is quantised by each worker for itself: that costs less than waiting
     * for one another. */
    PRODUCT_OWN_VALUES = 4096,
    PRODUCT_OWN_BYTES = 64 << 10, /* room for it, in any form */
    PRODUCT_ITEMS_PER_WORKER = 6,
    PRODUCT_GROUP = 4, /* panels of one item with several rows, so that they stay in the L2 cache */
    PRODUCT_GROUP_ONE = 32, /* with one row */
};

/* Rows of float32; the i-th is number pick[i] / per_pick of those at p, or number i. */
struct product_src {
    const float *p;
    size_t stride;
    const int32_t *pick; /* [n_rows] or NULL */
    int32_t per_pick;
    int32_t n_rows, n_cols;
};

/* How the rows of an op lie in the form that its weights want: blocks of 32, blocks of 256, floats
 * (where they are picked; else float weights read the op's own). */
struct act_form {
    bool want32, want256, want_f32;
    size_t offset256, offset_f32, row_bytes;
    char *rows;
};

/* For products of rows of n_in values with weights of these n geometries. */
void act_form_init(struct act_form *f, const struct panel_geom *g, int n, int32_t n_in,
                   bool picked);
/* Fills f->rows with src's rows: in `own`, or among all workers and then with a barrier in the
 * shared buffer, which has room for them. */
void act_form_fill(struct act_form *f, const struct product_src *src, char *own, struct be_task *t);

/* Rows that meet the same plain weight. */
struct product {
    const struct cpu_isa *isa;
    const struct weight *w;
    const struct panel_geom *g;
    const char *act; /* the rows in the form that g wants, act_stride bytes apart */
    size_t act_stride;
    int32_t n_rows;
    float *dst;
    size_t dst_stride;
    const int32_t *dst_row; /* as struct tile */
    bool accumulate;
};
/* An item is up to `group` panels times some rows. */
int32_t product_items(int32_t n_panels, int32_t n_rows, int32_t group);
void product_item(const struct product *p, int32_t group, int32_t i);
/* Panels of an item, where all products of an op together have so many panels times blocks of rows.
 */
int32_t product_group(int32_t n_panels, int nth, bool one_row);
int32_t product_row_blocks(int32_t n_rows);

/* Bytes of the int8 form of a row (both block sizes, a cache line's multiple). */
size_t cpu_act_row_bytes(int32_t n_in);

#endif
