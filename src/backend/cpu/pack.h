/*
 * backend/cpu/pack.h - private to backend/cpu: weights in panels of 16 outputs.
 *
 * A panel holds outputs 16p .. 16p + 15, one per SIMD lane, for all of K; outputs beyond n_out are
 * zeros. Bits per weight stay those of the file. Quantised types, per block of K:
 *
 *     quants  [n_blocks][words][16] u32   word v of a lane = 4 bytes of the file's quants, so that
 *                                         4 consecutive k of a lane are what one 4-way int8 dot
 *                                         product takes
 *     aux     [n_blocks]: scale bytes [n_scales][16] u8, then [n_f16][16] f16 (d, then m or dmin)
 *
 * Quants start on a cache line; so does each panel. Float types: [K][16] values of the type.
 * What differs from the file's bytes: Q8_0 is stored plus 128 (unsigned), and the fifth bits of
 * Q5_0/Q5_1 are sorted so that bit g of byte b belongs to k = 4g + b.
 * Pure functions; any thread.
 */
#ifndef T9_BACKEND_CPU_PACK_H
#define T9_BACKEND_CPU_PACK_H

#include "backend/be.h"

enum { PANEL = 16 };

struct panel_geom {
    uint32_t dtype;
    int32_t block;    /* values of K in a block; 1 for float types */
    int32_t n_blocks; /* in a row */
    int32_t n_panels;
    size_t quants_bytes; /* of one block of 16 outputs */
    size_t aux_bytes;    /* of one block of 16 outputs */
    size_t aux_offset;   /* from the start of a panel to its aux */
    size_t panel_bytes;
};

/* false when the CPU backend has no panel for this type. n_in is a multiple of the type's block. */
bool panel_geom_init(struct panel_geom *g, uint32_t dtype, int32_t n_in, int32_t n_out);

/* Puts up to 16 rows of the file's layout (row_bytes each) into a panel; missing ones become 0. */
void panel_pack(const struct panel_geom *g, void *panel, const void *rows, int32_t n_rows,
                size_t row_bytes);
/* The inverse for one lane and block b: block_bytes of the file's layout. */
void panel_unpack(const struct panel_geom *g, const void *panel, int32_t lane, int32_t b,
                  void *out);

/* Reads src in slices and packs it into `panels`, n_panels * panel_bytes long (experts: one after
 * the other), on a cache line. */
t9_status panel_load(const struct panel_geom *g, const struct weight_src *src, size_t row_bytes,
                     void *panels, struct t9_err *err);

#endif
