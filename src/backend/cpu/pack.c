/*
 * backend/cpu/pack.c - see pack.h.
 *
 * Every type is the same kind of move: some runs of 4-byte words go to lanes of the quants, some
 * scale bytes and f16 values to lanes of the aux. So a type is a row of a table.
 */
#include "backend/cpu/pack.h"

#include "base/mem.h"
#include "gguf/dtype.h"

#include <string.h>

enum {
    LINE = 64,
    SLICE_BYTES = 1 << 20,
    RUNS_MAX = 2,
};

/* How a run of words is changed on the way; each is its own inverse but SORT5. */
enum change { CHANGE_NONE, CHANGE_BIAS128, CHANGE_SORT5 };

static const struct form {
    uint32_t dtype;
    int32_t block, block_bytes;
    struct {
        uint8_t offset, words, change;
    } run[RUNS_MAX]; /* in the order in which they lie in the panel */
    uint8_t scales_offset, n_scales;
    uint8_t f16_offset[2], n_f16;
} forms[] = {
    /* A float type is 16 values a block of one. */
    {.dtype = DTYPE_F32, .block = 1, .block_bytes = 4},
    {.dtype = DTYPE_F16, .block = 1, .block_bytes = 2},
    {.dtype = DTYPE_BF16, .block = 1, .block_bytes = 2},
    {DTYPE_Q4_0, 32, 18, {{2, 4, CHANGE_NONE}}, 0, 0, {0}, 1},
    {DTYPE_Q4_1, 32, 20, {{4, 4, CHANGE_NONE}}, 0, 0, {0, 2}, 2},
    {DTYPE_Q5_0, 32, 22, {{6, 4, CHANGE_NONE}, {2, 1, CHANGE_SORT5}}, 0, 0, {0}, 1},
    {DTYPE_Q5_1, 32, 24, {{8, 4, CHANGE_NONE}, {4, 1, CHANGE_SORT5}}, 0, 0, {0, 2}, 2},
    {DTYPE_Q8_0, 32, 34, {{2, 8, CHANGE_BIAS128}}, 0, 0, {0}, 1},
    {DTYPE_Q4_K, 256, 144, {{16, 32, CHANGE_NONE}}, 4, 12, {0, 2}, 2},
    {DTYPE_Q5_K, 256, 176, {{48, 32, CHANGE_NONE}, {16, 8, CHANGE_NONE}}, 4, 12, {0, 2}, 2},
    {DTYPE_Q6_K, 256, 210, {{0, 32, CHANGE_NONE}, {128, 16, CHANGE_NONE}}, 192, 16, {208}, 1},
    {DTYPE_Q2_K, 256, 84, {{16, 16, CHANGE_NONE}}, 0, 16, {80, 82}, 2},
    {DTYPE_Q3_K, 256, 110, {{32, 16, CHANGE_NONE}, {0, 8, CHANGE_NONE}}, 96, 12, {108}, 1},
    {DTYPE_IQ1_S, 256, 50, {{2, 12, CHANGE_NONE}}, 0, 0, {0}, 1},
    {DTYPE_IQ1_M, 256, 56, {{0, 14, CHANGE_NONE}}, 0, 0, {0}, 0},
    {DTYPE_IQ2_XXS, 256, 66, {{2, 16, CHANGE_NONE}}, 0, 0, {0}, 1},
    {DTYPE_IQ2_XS, 256, 74, {{2, 16, CHANGE_NONE}}, 66, 8, {0}, 1},
    {DTYPE_IQ2_S, 256, 82, {{2, 18, CHANGE_NONE}}, 74, 8, {0}, 1},
    {DTYPE_IQ3_XXS, 256, 98, {{2, 24, CHANGE_NONE}}, 0, 0, {0}, 1},
    {DTYPE_IQ3_S, 256, 110, {{2, 26, CHANGE_NONE}}, 106, 4, {0}, 1},
    {DTYPE_IQ4_XS, 256, 136, {{8, 32, CHANGE_NONE}}, 2, 6, {0}, 1},
    {DTYPE_TQ1_0, 256, 54, {{0, 13, CHANGE_NONE}}, 0, 0, {52}, 1},
    {DTYPE_TQ2_0, 256, 66, {{0, 16, CHANGE_NONE}}, 0, 0, {64}, 1},
    {DTYPE_IQ4_NL, 32, 18, {{2, 4, CHANGE_NONE}}, 0, 0, {0}, 1},
    {DTYPE_MXFP4, 32, 17, {{1, 4, CHANGE_NONE}}, 0, 1, {0}, 0},
    {DTYPE_NVFP4, 64, 36, {{4, 8, CHANGE_NONE}}, 0, 4, {0}, 0},
    {DTYPE_Q1_0, 128, 18, {{2, 4, CHANGE_NONE}}, 0, 0, {0}, 1},
    {DTYPE_Q2_0, 64, 18, {{2, 4, CHANGE_NONE}}, 0, 0, {0}, 1},
};

static const struct form *form_of(uint32_t dtype)
{
    for (size_t i = 0; i < T9_COUNT(forms); i++) {
        if (forms[i].dtype == dtype)
            return &forms[i];
    }
    return NULL;
}

static size_t round_line(size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

bool panel_geom_init(struct panel_geom *g, uint32_t dtype, int32_t n_in, int32_t n_out)
{
    const struct form *f = form_of(dtype);
    *g = (struct panel_geom){0};
    if (!f)
        return false;
    g->dtype = dtype;
    g->block = f->block;
    g->n_blocks = n_in / f->block;
    g->n_panels = (n_out + PANEL - 1) / PANEL;
    if (f->block == 1) {
        g->quants_bytes = (size_t)f->block_bytes * PANEL;
    } else {
        g->quants_bytes = (size_t)(f->run[0].words + f->run[1].words) * 4 * PANEL;
        g->aux_bytes = (size_t)(f->n_scales + 2 * f->n_f16) * PANEL;
    }
    g->aux_offset = (size_t)g->n_blocks * g->quants_bytes;
    g->panel_bytes = round_line(g->aux_offset + (size_t)g->n_blocks * g->aux_bytes);
    return true;
}

/* Fifth bits: bit 4g + b of the file becomes bit 8b + g. */
static uint32_t sort5(uint32_t x)
{
    uint32_t y = 0;
    for (int e = 0; e < 32; e++)
        y |= (x >> e & 1) << (8 * (e % 4) + e / 4);
    return y;
}

static uint32_t unsort5(uint32_t y)
{
    uint32_t x = 0;
    for (int e = 0; e < 32; e++)
        x |= (y >> (8 * (e % 4) + e / 4) & 1) << e;
    return x;
}

static uint32_t change_apply(int change, uint32_t x, bool inverse)
{
    switch (change) {
    case CHANGE_BIAS128: return x ^ 0x80808080u;
    case CHANGE_SORT5: return inverse ? unsort5(x) : sort5(x);
    default: return x;
    }
}

static void pack_block(const struct panel_geom *g, const struct form *f, char *panel, int32_t lane,
                       int32_t b, const char *src)
{
    char *quants = panel + (size_t)b * g->quants_bytes;
    if (f->block == 1) {
        memcpy(quants + lane * f->block_bytes, src, (size_t)f->block_bytes);
        return;
    }
    uint32_t *word = (uint32_t *)(void *)quants + lane;
    for (int r = 0; r < RUNS_MAX; r++) {
        for (int i = 0; i < f->run[r].words; i++, word += PANEL) {
            uint32_t x;
            memcpy(&x, src + f->run[r].offset + 4 * i, sizeof(x));
            *word = change_apply(f->run[r].change, x, false);
        }
    }
    char *aux = panel + g->aux_offset + (size_t)b * g->aux_bytes;
    for (int i = 0; i < f->n_scales; i++)
        aux[i * PANEL + lane] = src[f->scales_offset + i];
    aux += f->n_scales * PANEL;
    for (int i = 0; i < f->n_f16; i++)
        memcpy(aux + 2 * (i * PANEL + lane), src + f->f16_offset[i], 2);
}

void panel_unpack(const struct panel_geom *g, const void *panel, int32_t lane, int32_t b, void *out)
{
    const struct form *f = form_of(g->dtype);
    const char *quants = (const char *)panel + (size_t)b * g->quants_bytes;
    char *dst = out;
    if (f->block == 1) {
        memcpy(dst, quants + lane * f->block_bytes, (size_t)f->block_bytes);
        return;
    }
    const uint32_t *word = (const uint32_t *)(const void *)quants + lane;
    for (int r = 0; r < RUNS_MAX; r++) {
        for (int i = 0; i < f->run[r].words; i++, word += PANEL) {
            uint32_t x = change_apply(f->run[r].change, *word, true);
            memcpy(dst + f->run[r].offset + 4 * i, &x, sizeof(x));
        }
    }
    const char *aux = (const char *)panel + g->aux_offset + (size_t)b * g->aux_bytes;
    for (int i = 0; i < f->n_scales; i++)
        dst[f->scales_offset + i] = aux[i * PANEL + lane];
    aux += f->n_scales * PANEL;
    for (int i = 0; i < f->n_f16; i++)
        memcpy(dst + f->f16_offset[i], aux + 2 * (i * PANEL + lane), 2);
}

void panel_pack(const struct panel_geom *g, void *panel, const void *rows, int32_t n_rows,
                size_t row_bytes)
{
    const struct form *f = form_of(g->dtype);
    if (n_rows < PANEL)
        memset(panel, 0, g->panel_bytes);
    /* Block by block over all lanes: the panel is written a few cache lines at a time. */
    for (int32_t b = 0; b < g->n_blocks; b++) {
        for (int32_t lane = 0; lane < n_rows; lane++)
            pack_block(g, f, panel, lane, b,
                       (const char *)rows + (size_t)lane * row_bytes +
                           (size_t)b * (size_t)f->block_bytes);
    }
}

/* Matrix number `at` of src, through `slice`, which has room for slice_rows rows. */
static t9_status load_one(const struct panel_geom *g, const struct weight_src *src, int32_t at,
                          char *slice, int32_t slice_rows, size_t row_bytes, char *panel,
                          struct t9_err *err)
{
    uint64_t base = (uint64_t)at * (uint64_t)src->n_out;
    for (int32_t row = 0; row < src->n_out; row += slice_rows) {
        int32_t n = src->n_out - row < slice_rows ? src->n_out - row : slice_rows;
        T9_TRY(src->read(src->ctx, (base + (uint64_t)row) * row_bytes, slice, (size_t)n * row_bytes,
                         err));
        for (int32_t i = 0; i < n; i += PANEL, panel += g->panel_bytes)
            panel_pack(g, panel, slice + (size_t)i * row_bytes, n - i < PANEL ? n - i : PANEL,
                       row_bytes);
    }
    return T9_STATUS_OK;
}

t9_status panel_load(const struct panel_geom *g, const struct weight_src *src, size_t row_bytes,
                     void *panels, struct t9_err *err)
{
    size_t panels_per_slice = SLICE_BYTES / (row_bytes * PANEL);
    if (panels_per_slice < 1)
        panels_per_slice = 1;
    int32_t slice_rows = (int32_t)panels_per_slice * PANEL;
    int32_t n = src->n_experts > 0 ? src->n_experts : 1;
    t9_status st = T9_STATUS_OK;
    char *slice = mem_alloc((size_t)slice_rows * row_bytes), *panel = panels;
    if (!slice)
        return t9_fail(err, T9_STATUS_NOMEM, "%s: no memory for %zu bytes", src->name,
                       (size_t)slice_rows * row_bytes);
    for (int32_t at = 0; at < n && st == T9_STATUS_OK; at++)
        st = load_one(g, src, at, slice, slice_rows, row_bytes,
                      panel + (size_t)at * (size_t)g->n_panels * g->panel_bytes, err);
    mem_free(slice);
    return st;
}
