/*
 * backend/kv_geom.c - sizes of a KV page. Pure functions, any thread.
 */
#include "backend/kv_geom.h"

#include <string.h>

enum {
    LAYERS_MAX = 4096,
    HEADS_MAX = 4096,
    PAGE_ALIGN = 4096,
};

bool kv_geom_init(struct kv_geom *g, int32_t n_layers, int32_t n_head_kv, int32_t head_dim,
                  kv_type type)
{
    *g = (struct kv_geom){0};
    if (n_layers < 1 || n_layers > LAYERS_MAX || n_head_kv < 1 || n_head_kv > HEADS_MAX ||
        head_dim < 1 || head_dim > KV_HEAD_DIM_MAX)
        return false;
    if (type != KV_TYPE_F16 && type != KV_TYPE_F32)
        return false;
    g->n_layers = n_layers;
    g->n_head_kv = n_head_kv;
    g->head_dim = head_dim;
    g->type = type;
    g->elt_bytes = type == KV_TYPE_F16 ? 2 : 4;
    /* At most 2^12 heads * 2^9 dims * 2^5 tokens * 4 bytes * 2 * 2^12 layers = 2^41: no overflow.
     */
    g->v_offset = (size_t)n_head_kv * (size_t)head_dim * KV_PAGE_TOKENS * g->elt_bytes;
    g->layer_bytes = 2 * g->v_offset;
    g->page_bytes = (g->layer_bytes * (size_t)n_layers + PAGE_ALIGN - 1) / PAGE_ALIGN * PAGE_ALIGN;
    return true;
}

const char *kv_type_name(kv_type t)
{
    switch (t) {
    case KV_TYPE_F16: return "f16";
    case KV_TYPE_F32: return "f32";
    }
    return "?";
}

bool kv_type_parse(const char *name, kv_type *t)
{
    static const kv_type all[] = {KV_TYPE_F16, KV_TYPE_F32};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(name, kv_type_name(all[i])) == 0) {
            *t = all[i];
            return true;
        }
    }
    return false;
}
