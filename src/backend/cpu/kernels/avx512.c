/* backend/cpu/kernels/avx512.c - the kernel families for AVX-512 (F, BW, DQ, VL) with VNNI. */
#include "backend/cpu/kernels/simd_avx512.h"

#include "backend/cpu/isa.h"
#include "backend/det_math.h"
#include "gguf/dtype.h"

#define ISA_TILES_8_16
#include "backend/cpu/kernels/matmul.inc"

#include "backend/cpu/kernels/rows.inc"

#include "backend/cpu/kernels/attn.inc"

#include "backend/cpu/kernels/state.inc"

#ifdef T9_TILES_FEW
#    define TILES_5_TO_7(kind)
#else
#    define TILES_5_TO_7(kind) tile_##kind##_5, tile_##kind##_6, tile_##kind##_7,
#endif
#define TILE_ROW(kind, last)                                                                       \
    [TILE_KIND_##kind] = {NULL,                                                                    \
                          tile_##kind##_1,                                                         \
                          tile_##kind##_2,                                                         \
                          tile_##kind##_3,                                                         \
                          tile_##kind##_4,                                                         \
                          TILES_5_TO_7(kind)[8] = tile_##kind##_8,                                 \
                          [16] = (last)},
#define TILE_ROW_8(kind)  TILE_ROW(kind, NULL)
#define TILE_ROW_16(kind) TILE_ROW(kind, tile_##kind##_16)

const struct cpu_isa cpu_isa_avx512 = {
    .name = ISA_NAME,
    .quant32 = quant32,
    .quant256 = quant256,
    .tile = {TILE_KIND_LIST_FLOAT(TILE_ROW_8) TILE_KIND_LIST_32(TILE_ROW_16)
                 TILE_KIND_LIST_K(TILE_ROW_8)},
    .tile_any = tile_any,
    .rmsnorm = rmsnorm,
    .act_mul = act_mul,
    .add = add,
    .scale = scale_by,
    .softcap = softcap,
    .combine = combine,
    .conv_row = conv_row,
    .l2_norm = l2_norm,
    .delta_walk = delta_walk,
    .rope = rope,
    .f16_from_f32 = f16_from_f32,
    .bf16_from_f32 = bf16_from_f32,
    .kv_q8_from_f32 = kv_q8_from_f32,
    .attn_load = attn_load,
    .attn_block = attn_block,
    .attn_near_pairs = NEAR_PAIRS,
    .attn_near = attn_near,
    .attn_combine = attn_combine,
};
