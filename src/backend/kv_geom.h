/*
 * backend/kv_geom.h - how keys and values lie in a page (decision D5), and their number formats.
 *
 * A page holds KV_PAGE_TOKENS tokens of one sequence for all layers that have keys and values of
 * their own, contiguous; layers may differ in heads and their size. Where some layers attend to all
 * tokens and others only to a window of them, the latter have extents of their own, window pages,
 * beside those of the former, so that they can go earlier: each layer belongs to one group.
 *     page  = layer 0 | layer 1 | ...       of its group
 *     layer = K of head 0 | K of head 1 | ... | V of head 0 | V of head 1 | ...
 *     K     = [head_dim][32]      transposed: the 32 keys of a block are SIMD lanes
 *     V     = [32][head_dim]      the head's dimensions are SIMD lanes
 * Absolute blocks of 32 keys are also the blocks of the attention's definition, so a block is a
 * page.
 *
 * With q8_0 the elements are int8 codes, and each K or V of a head ends with its scales, f16, one
 * for each KV_Q8_BLOCK dimensions of a token (the last block of a head may be shorter):
 *     scales of K = [n_blocks][32]
 *     scales of V = [32][n_blocks]
 * A token's codes depend on that token alone, so no page is ever quantised again.
 */
#ifndef T9_BACKEND_KV_GEOM_H
#define T9_BACKEND_KV_GEOM_H

#include "base/num.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KV_PAGE_TOKENS = 32,
    KV_LAYERS_MAX = 1024,
    KV_HEAD_DIM_MAX = 512, /* kernels keep a head on the stack */
    KV_Q8_BLOCK = 32,      /* dimensions under one scale */
};

typedef enum kv_type { KV_TYPE_F16, KV_TYPE_F32, KV_TYPE_BF16, KV_TYPE_Q8_0 } kv_type;

/* One layer's part of a page: all that an op needs to find keys and values in a pool. */
struct kv_layer {
    int32_t n_head_kv, head_dim;
    kv_type type;
    int32_t n_blocks;    /* scales of a token's K or V of a head; 0 for types without scales */
    size_t elt_bytes;    /* 1, 2 or 4 */
    size_t scale_offset; /* bytes from a head's K (or V) to its scales */
    size_t head_bytes;   /* bytes of K (or V) of one head, scales included; a multiple of 32 */
    size_t v_offset;     /* bytes from a head's K to its V */
    bool in_window;      /* it lies in window pages */
    size_t layer_offset; /* bytes from a page to this layer */
    size_t layer_bytes;  /* bytes of this layer in a page */
    size_t page_bytes;   /* of all layers of its group */
};

struct kv_geom {
    int32_t n_layers;
    kv_type type;
    size_t page_bytes;                     /* all layers but those below, rounded up to 4096 */
    size_t window_bytes;                   /* of a window page, likewise; 0: there are none */
    int32_t window;                        /* tokens that layers there see; 0: there are none */
    struct kv_layer layers[KV_LAYERS_MAX]; /* [n_layers] */
};

struct kv_shape {
    int32_t n_head_kv, head_dim;
    int32_t window; /* tokens that rows see, their own included; 0: all */
};

/* Bytes of a page in all its groups. */
static inline size_t kv_geom_bytes(const struct kv_geom *g)
{
    return g->page_bytes + g->window_bytes;
}
/* Pages before a row's own one that its window can reach; 0 without windows. */
static inline int32_t kv_window_span(const struct kv_geom *g)
{
    return g->window > 1 ? (g->window - 2) / KV_PAGE_TOKENS + 1 : 0;
}
/* The first page that the rows of page `page`, or any later ones, can see within the window. */
static inline int32_t kv_window_first(const struct kv_geom *g, int32_t page)
{
    int32_t span = kv_window_span(g);
    return page > span ? page - span : 0;
}

/* Fills *g for layers of these shapes; false when a size is out of range. */
bool kv_geom_init(struct kv_geom *g, const struct kv_shape *shapes, int32_t n_layers, kv_type type);
/* The same for n_layers of one shape. */
bool kv_geom_init_same(struct kv_geom *g, int32_t n_layers, int32_t n_head_kv, int32_t head_dim,
                       kv_type type);
const char *kv_type_name(kv_type t);              /* "f16", "f32", "bf16", "q8_0" */
bool kv_type_parse(const char *name, kv_type *t); /* false for an unknown name */

static inline char *kv_page_k(const struct kv_layer *g, void *pool, int32_t page, int32_t head)
{
    return (char *)pool + (size_t)page * g->page_bytes + g->layer_offset +
           (size_t)head * g->head_bytes;
}
static inline char *kv_page_v(const struct kv_layer *g, void *pool, int32_t page, int32_t head)
{
    return kv_page_k(g, pool, page, head) + g->v_offset;
}

/* ---- the definition of what is stored and read; `head` is what kv_page_k or kv_page_v gives ----
 */

/* Stores the key (value) of slot `slot`: x[head_dim]. */
void kv_store_k(const struct kv_layer *g, char *head, int32_t slot, const float *x);
void kv_store_v(const struct kv_layer *g, char *head, int32_t slot, const float *x);

/* Scale of a q8_0 block, f16, from its largest |x| as bits (without sign); *inv is what values are
 * multiplied by before they are rounded and clamped to +-127: 0 where all codes are 0. A block with
 * inf, NaN or a scale that f16 cannot hold has a scale of NaN: it must show. */
uint16_t kv_q8_scale(uint32_t amax_bits, float *inv);

/* Element `at` of a head under scale number `scale`. Exact: a code times an f16 needs 19 bits. */
static inline float kv_load(const struct kv_layer *g, const char *head, size_t at, size_t scale)
{
    const void *p = head;
    switch (g->type) {
    case KV_TYPE_F16: return num_f32_from_f16(((const uint16_t *)p)[at]);
    case KV_TYPE_BF16: return num_f32_from_bf16(((const uint16_t *)p)[at]);
    case KV_TYPE_Q8_0: {
        const void *scales = head + g->scale_offset;
        return (float)((const int8_t *)p)[at] * num_f32_from_f16(((const uint16_t *)scales)[scale]);
    }
    case KV_TYPE_F32: break;
    }
    return ((const float *)p)[at];
}
/* Dimension i of the key (value) in slot `slot`. */
static inline float kv_load_k(const struct kv_layer *g, const char *head, int32_t slot, int32_t i)
{
    size_t j = (size_t)slot, d = (size_t)i;
    return kv_load(g, head, d * KV_PAGE_TOKENS + j, d / KV_Q8_BLOCK * KV_PAGE_TOKENS + j);
}
static inline float kv_load_v(const struct kv_layer *g, const char *head, int32_t slot, int32_t i)
{
    size_t j = (size_t)slot, d = (size_t)i;
    return kv_load(g, head, j * (size_t)g->head_dim + d, j * (size_t)g->n_blocks + d / KV_Q8_BLOCK);
}

#endif
