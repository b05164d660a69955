/*
 * backend/cpu/isa.h - private to backend/cpu: what one instruction set provides, and the
 * shared drivers that use it (cpu/matmul.c, cpu/attn.c, cpu/rows.c).
 *
 * The drivers share out the work; the functions here do it, for one instruction set each. Each must
 * equal canon bit for bit. They are compiled from kernels/<family>.inc by kernels/<isa>.c, the only
 * files with ISA flags.
 *
 * If you add an instruction set: a header kernels/simd_<isa>.h with the lane operations, a file
 * kernels/<isa>.c that includes the families, a line in cpu.c's table, its flags in sources.cmake.
 */
#ifndef T9_BACKEND_CPU_ISA_H
#define T9_BACKEND_CPU_ISA_H

#include "backend/canon/canon.h"
#include "backend/cpu/pack.h"

/* X(dtype): the types with tiles of their own, in the order of cpu_isa.tile: floats, blocks of 32,
 * blocks of 256. The others' tile is tile_any. */
#define TILE_KIND_LIST_FLOAT(X) X(F32) X(F16) X(BF16)
#define TILE_KIND_LIST_32(X)    X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(IQ4_NL) X(MXFP4)
#define TILE_KIND_LIST_K(X)     X(Q4_K) X(Q5_K) X(Q6_K) X(Q2_K) X(Q3_K) X(IQ4_XS)
#define TILE_KIND_LIST(X)       TILE_KIND_LIST_FLOAT(X) TILE_KIND_LIST_32(X) TILE_KIND_LIST_K(X)

typedef enum tile_kind {
#define X(name) TILE_KIND_##name,
    TILE_KIND_LIST(X)
#undef X
        TILE_KIND_COUNT
} tile_kind;

enum {
    TILE_ROWS_MAX = 16, /* most rows of a tile */
    TILE_ROWS_ANY = 64, /* most rows of tile_any */
    ATTN_PAIRS = 32,    /* (row, head) pairs of one attention tile */
    ATTN_STATE_PAD = 16 /* floats before an o vector: m, l, unused (keeps o on a cache line) */
};

/* rows x 16 n_panels outputs of one weight. */
struct tile {
    const struct panel_geom *g;
    const char *panel;      /* n_panels of them, g->panel_bytes apart */
    const char *act;        /* blocks of a row: act32, act256, or f32 */
    size_t act_stride;      /* bytes from row to row */
    float *dst;             /* [rows][n_out] */
    size_t dst_stride;      /* elements */
    const int32_t *dst_row; /* [rows]: their places in dst; NULL: 0, 1, ... */
    const float *bias;      /* [n_out] or NULL */
    int32_t n_panels;
    int32_t n_out; /* <= 16 n_panels */
    bool accumulate;
};
typedef void (*tile_fn)(const struct tile *t);

/* To the rows after the first n. */
static inline void tile_advance(struct tile *t, int32_t n)
{
    t->act += (size_t)n * t->act_stride;
    if (t->dst_row)
        t->dst_row += n;
    else
        t->dst += (size_t)n * t->dst_stride;
}

/* Keys and values of one page's head as f32, and the pairs that look at them. */
struct attn_tile {
    int32_t head_dim, d_pad; /* d_pad: head_dim rounded up to 16 */
    int32_t n_pairs;
    float scale;
    float *q;                                   /* [head_dim][ATTN_PAIRS] */
    int32_t first[ATTN_PAIRS], end[ATTN_PAIRS]; /* visible keys */
    float *state; /* [n_pairs][ATTN_STATE_PAD + d_pad]: m, l, ..., o */
    float *k;     /* [head_dim][32] */
    float *v;     /* [32][d_pad] */
    float *p;     /* [n_pairs][32] */
};

struct cpu_isa {
    const char *name;
    void (*quant32)(struct act32 *dst, const float *x, int32_t n_blocks);
    void (*quant256)(struct act256 *dst, const float *x, int32_t n_blocks);
    tile_fn tile[TILE_KIND_COUNT][TILE_ROWS_MAX + 1]; /* by rows; NULL: there is none. 1 there is */
    /* Types that have no row there: 1 .. TILE_ROWS_ANY rows. */
    void (*tile_any)(const struct tile *t, int32_t n_rows);

    void (*rmsnorm)(float *dst, const float *x, const float *w, int32_t n, float eps);
    /* dst[i] = act(gate[i]) * up[i] */
    void (*act_mul)(float *dst, const float *gate, const float *up, int32_t n, act_kind act);
    void (*add)(float *dst, const float *a, const float *b, int32_t n);
    void (*scale)(float *dst, const float *x, float factor, int32_t n);
    void (*softcap)(float *dst, const float *x, float cap, int32_t n);
    /* dst[i] (+)= sum of w[j] * y[j * stride + i], j ascending */
    void (*combine)(float *dst, const float *y, size_t stride, const float *w, int32_t n_slots,
                    int32_t n, bool accumulate);
    conv_row_fn conv_row;
    l2_norm_fn l2_norm;
    delta_walk_fn delta_walk;
    /* x[0, n_rot) rotated in place by cos[half], sin[half]. */
    void (*rope)(float *x, const float *angles, int32_t n_rot, bool neox);
    void (*f16_from_f32)(uint16_t *dst, const float *src, int32_t n);
    void (*bf16_from_f32)(uint16_t *dst, const float *src, int32_t n);
    /* Codes [n_blocks][32] and scales of KV_TYPE_Q8_0; x is padded with zeros to n_blocks * 32. */
    void (*kv_q8_from_f32)(int8_t *codes, uint16_t *scales, const float *x, int32_t n_blocks);

    /* Fills t->k and t->v from a head of a page: what kv_page_k and kv_page_v give. */
    void (*attn_load)(const struct attn_tile *t, const struct kv_layer *g, const char *k,
                      const char *v);
    /* One block of 32 keys from `block` on: updates the state of each pair that sees any of them.
     */
    void (*attn_block)(const struct attn_tile *t, int32_t block);
    /* Both for at most attn_near_pairs pairs and a head_dim that is a multiple of 16, without t->k
     * and t->v. `next_k` is the K of the page that will be read next. */
    int32_t attn_near_pairs;
    void (*attn_near)(const struct attn_tile *t, const struct kv_layer *g, const char *k,
                      const char *next_k, int32_t block);
    /* all = all combined with split, both [ATTN_STATE_PAD + d_pad]. */
    void (*attn_combine)(float *all, const float *split, int32_t d_pad);
};

extern const struct cpu_isa cpu_isa_avx2, cpu_isa_avx512;

/* Drivers. be_task.pool is a struct pool whose user is the struct cpu_isa. */
void cpu_matmul(const struct op *op, struct be_task *t);
void cpu_embed_rows(const struct op *op, struct be_task *t);
void cpu_rmsnorm(const struct op *op, struct be_task *t);
void cpu_qk_norm_rope_store(const struct op *op, struct be_task *t);
void cpu_attn_paged(const struct op *op, struct be_task *t);
/* ACT_MUL, ADD, SCALE, SOFTCAP */
void cpu_elements(const struct op *op, struct be_task *t);
void cpu_matmul_experts(const struct op *op, struct be_task *t);
void cpu_moe_combine(const struct op *op, struct be_task *t);
void cpu_conv_state(const struct op *op, struct be_task *t);
void cpu_delta_prepare(const struct op *op, struct be_task *t);
void cpu_delta_net(const struct op *op, struct be_task *t);

void cpu_work_bytes(int32_t max_rows, int32_t max_cols, size_t *shared_bytes, size_t *local_bytes);

#endif
