/*
 * backend/kv_geom.c - sizes of a KV page; keys and values of one token to the page's format. Any
 * thread; two threads may store different slots or heads of a page at the same time.
 */
#include "backend/kv_geom.h"

#include <math.h>
#include <string.h>

enum {
    HEADS_MAX = 4096,
    PAGE_ALIGN = 4096,
};

/* 0 for a number that is no type. */
static size_t elt_bytes_of(kv_type type)
{
    switch (type) {
    case KV_TYPE_F16:
    case KV_TYPE_BF16: return 2;
    case KV_TYPE_F32: return 4;
    case KV_TYPE_Q8_0: return 1;
    }
    return 0;
}

/* All but where the layer lies in a page. */
static bool layer_init(struct kv_layer *l, struct kv_shape s, kv_type type)
{
    size_t elt_bytes = elt_bytes_of(type);
    if (s.n_head_kv < 1 || s.n_head_kv > HEADS_MAX || s.head_dim < 1 ||
        s.head_dim > KV_HEAD_DIM_MAX || elt_bytes == 0)
        return false;
    if (s.window < 0)
        return false;
    *l = (struct kv_layer){.n_head_kv = s.n_head_kv, .head_dim = s.head_dim, .type = type};
    if (type == KV_TYPE_Q8_0)
        l->n_blocks = (s.head_dim + KV_Q8_BLOCK - 1) / KV_Q8_BLOCK;
    l->elt_bytes = elt_bytes;
    l->scale_offset = (size_t)s.head_dim * KV_PAGE_TOKENS * elt_bytes;
    l->head_bytes = l->scale_offset + (size_t)l->n_blocks * KV_PAGE_TOKENS * sizeof(uint16_t);
    l->v_offset = (size_t)s.n_head_kv * l->head_bytes;
    l->layer_bytes = 2 * l->v_offset;
    return true;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_ALIGN - 1) / PAGE_ALIGN * PAGE_ALIGN;
}

/* The window of the layers that have one, the widest; 0 where all layers are of one group. */
static int32_t window_of(const struct kv_shape *shapes, int32_t n_layers)
{
    int32_t widest = 0;
    bool all = true;
    for (int32_t i = 0; i < n_layers; i++) {
        widest = shapes[i].window > widest ? shapes[i].window : widest;
        all = all && shapes[i].window > 0;
    }
    return all ? 0 : widest;
}

bool kv_geom_init(struct kv_geom *g, const struct kv_shape *shapes, int32_t n_layers, kv_type type)
{
    *g = (struct kv_geom){.type = type};
    if (n_layers < 1 || n_layers > KV_LAYERS_MAX)
        return false;
    /* At most 2^9 dims * 2^5 tokens * 4 bytes * 2^12 heads * 2 * 2^10 layers = 2^39: no overflow.
     */
    size_t at[2] = {0, 0}; /* of the group without windows, with */
    g->window = window_of(shapes, n_layers);
    for (int32_t i = 0; i < n_layers; i++) {
        struct kv_layer *l = &g->layers[i];
        if (!layer_init(l, shapes[i], type))
            return false;
        l->in_window = g->window > 0 && shapes[i].window > 0;
        l->layer_offset = at[l->in_window];
        at[l->in_window] += l->layer_bytes;
    }
    g->n_layers = n_layers;
    g->page_bytes = whole_pages(at[0]);
    g->window_bytes = whole_pages(at[1]);
    for (int32_t i = 0; i < n_layers; i++)
        g->layers[i].page_bytes = g->layers[i].in_window ? g->window_bytes : g->page_bytes;
    return true;
}

bool kv_geom_init_same(struct kv_geom *g, int32_t n_layers, int32_t n_head_kv, int32_t head_dim,
                       kv_type type)
{
    struct kv_shape shapes[KV_LAYERS_MAX];
    for (int32_t i = 0; i < KV_LAYERS_MAX; i++)
        shapes[i] = (struct kv_shape){n_head_kv, head_dim, 0};
    return kv_geom_init(g, shapes, n_layers, type);
}

const char *kv_type_name(kv_type t)
{
    switch (t) {
    case KV_TYPE_F16: return "f16";
    case KV_TYPE_F32: return "f32";
    case KV_TYPE_BF16: return "bf16";
    case KV_TYPE_Q8_0: return "q8_0";
    }
    return "?";
}

bool kv_type_parse(const char *name, kv_type *t)
{
    static const kv_type all[] = {KV_TYPE_F16, KV_TYPE_F32, KV_TYPE_BF16, KV_TYPE_Q8_0};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(name, kv_type_name(all[i])) == 0) {
            *t = all[i];
            return true;
        }
    }
    return false;
}

uint16_t kv_q8_scale(uint32_t amax_bits, float *inv)
{
    *inv = 0;
    uint16_t d = num_f16_from_f32(num_f32_from_bits(amax_bits) / 127.0f);
    if ((d & 0x7c00) == 0x7c00) /* inf or NaN */
        return 0x7e00;
    if (d != 0)
        *inv = 1.0f / num_f32_from_f16(d);
    return d;
}

/* Codes of n <= KV_Q8_BLOCK values, `step` bytes apart; returns their scale. */
static uint16_t quantise(int8_t *q, size_t step, const float *x, int32_t n)
{
    uint32_t amax = 0;
    float inv;
    for (int32_t i = 0; i < n; i++) {
        uint32_t u = num_bits_from_f32(x[i]) & 0x7fffffffu; /* as bits, NaN is the largest */
        amax = u > amax ? u : amax;
    }
    uint16_t d = kv_q8_scale(amax, &inv);
    for (int32_t i = 0; i < n; i++) {
        /* inf * 0 must not reach the conversion. The clamp is for scales below f16's normal range.
         */
        float y = inv > 0 ? rintf(x[i] * inv) : 0;
        y = y > 127.0f ? 127.0f : y < -127.0f ? -127.0f : y;
        q[(size_t)i * step] = (int8_t)y;
    }
    return d;
}

/* x[head_dim] to elements `at`, `at` + step, ...; scales to `scale`, `scale` + scale_step, ... */
static void store(const struct kv_layer *g, char *head, size_t at, size_t step, size_t scale,
                  size_t scale_step, const float *x)
{
    void *p = head, *scales = head + g->scale_offset;
    size_t d = (size_t)g->head_dim;
    switch (g->type) {
    case KV_TYPE_F16:
        for (size_t i = 0; i < d; i++)
            ((uint16_t *)p)[at + i * step] = num_f16_from_f32(x[i]);
        break;
    case KV_TYPE_BF16:
        for (size_t i = 0; i < d; i++)
            ((uint16_t *)p)[at + i * step] = num_bf16_from_f32(x[i]);
        break;
    case KV_TYPE_F32:
        for (size_t i = 0; i < d; i++)
            ((float *)p)[at + i * step] = x[i];
        break;
    case KV_TYPE_Q8_0:
        for (size_t i = 0; i < d; i += KV_Q8_BLOCK) {
            int32_t n = d - i < KV_Q8_BLOCK ? (int32_t)(d - i) : KV_Q8_BLOCK;
            ((uint16_t *)scales)[scale + i / KV_Q8_BLOCK * scale_step] =
                quantise((int8_t *)p + at + i * step, step, x + i, n);
        }
        break;
    }
}

void kv_store_k(const struct kv_layer *g, char *head, int32_t slot, const float *x)
{
    store(g, head, (size_t)slot, KV_PAGE_TOKENS, (size_t)slot, KV_PAGE_TOKENS, x);
}

void kv_store_v(const struct kv_layer *g, char *head, int32_t slot, const float *x)
{
    store(g, head, (size_t)slot * (size_t)g->head_dim, 1, (size_t)slot * (size_t)g->n_blocks, 1, x);
}
