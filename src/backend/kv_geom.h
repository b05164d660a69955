/*
 * backend/kv_geom.h - how keys and values lie in a page (decision D5).
 *
 * A page holds KV_PAGE_TOKENS tokens of one sequence for all layers of a layer group, contiguous:
 *     page = layer 0 | layer 1 | ...        layer = K | V
 *     K    = [n_head_kv][head_dim][32]      transposed: the 32 keys of a block are SIMD lanes
 *     V    = [n_head_kv][32][head_dim]      the head's dimensions are SIMD lanes
 * Absolute blocks of 32 keys are also the blocks of the attention's definition, so a block is a
 * page.
 */
#ifndef T9_BACKEND_KV_GEOM_H
#define T9_BACKEND_KV_GEOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KV_PAGE_TOKENS = 32,
    KV_HEAD_DIM_MAX = 512, /* kernels keep a head on the stack */
};

typedef enum kv_type { KV_TYPE_F16, KV_TYPE_F32 } kv_type;

struct kv_geom {
    int32_t n_layers, n_head_kv, head_dim;
    kv_type type;
    size_t elt_bytes;   /* 2 or 4 */
    size_t v_offset;    /* bytes from the start of a layer to its V */
    size_t layer_bytes; /* bytes of one layer in a page */
    size_t page_bytes;  /* n_layers * layer_bytes rounded up to 4096 */
};

/* Fills *g; false when a size is out of range. */
bool kv_geom_init(struct kv_geom *g, int32_t n_layers, int32_t n_head_kv, int32_t head_dim,
                  kv_type type);
const char *kv_type_name(kv_type t);              /* "f16", "f32" */
bool kv_type_parse(const char *name, kv_type *t); /* false for an unknown name */

static inline char *kv_page_k(const struct kv_geom *g, void *pool, int32_t page, int32_t layer,
                              int32_t head)
{
    return (char *)pool + (size_t)page * g->page_bytes + (size_t)layer * g->layer_bytes +
           (size_t)head * (size_t)g->head_dim * KV_PAGE_TOKENS * g->elt_bytes;
}
static inline char *kv_page_v(const struct kv_geom *g, void *pool, int32_t page, int32_t layer,
                              int32_t head)
{
    return kv_page_k(g, pool, page, layer, head) + g->v_offset;
}

#endif
