/* backend/canon/canon.c - canon's kernel table. */
#include "backend/canon/canon.h"

#include "backend/be_impl.h"

void canon_kernels(struct be_kernels *k)
{
    k->fn[OP_EMBED_ROWS] = canon_embed_rows;
    k->fn[OP_GATHER_ROWS] = canon_gather_rows;
    k->fn[OP_RMSNORM] = canon_rmsnorm;
    k->fn[OP_MATMUL] = canon_matmul;
    k->fn[OP_ROPE_ANGLES] = canon_rope_angles;
    k->fn[OP_QK_NORM_ROPE_STORE] = canon_qk_norm_rope_store;
    k->fn[OP_ATTN_PAGED] = canon_attn_paged;
    k->fn[OP_ACT_MUL] = canon_act_mul;
    k->fn[OP_ADD] = canon_add;
    k->fn[OP_SCALE] = canon_scale;
    k->fn[OP_SOFTCAP] = canon_softcap;
    k->fn[OP_MOE_ROUTE] = canon_moe_route;
    k->fn[OP_MATMUL_EXPERTS] = canon_matmul_experts;
    k->fn[OP_MOE_COMBINE] = canon_moe_combine;
    k->fn[OP_CONV_STATE] = canon_conv_state;
    k->fn[OP_DELTA_PREPARE] = canon_delta_prepare;
    k->fn[OP_DELTA_NET] = canon_delta_net;
}

void canon_work_bytes(int32_t max_rows, int32_t max_cols, size_t *shared_bytes, size_t *local_bytes)
{
    (void)max_rows;
    (void)max_cols;
    *shared_bytes = 0;
    *local_bytes = 0;
}
