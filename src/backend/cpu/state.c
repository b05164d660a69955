/*
 * backend/cpu/state.c - drivers of the ops of recurrent layers: canon's, with the lanes of an
 * instruction set.
 */
#include "backend/cpu/isa.h"

#include "backend/cpu/pool.h"

void cpu_conv_state(const struct op *op, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    canon_conv_state_by(op, t, isa->conv_row);
}

void cpu_delta_prepare(const struct op *op, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    canon_delta_prepare_by(op, t, isa->l2_norm);
}

void cpu_delta_net(const struct op *op, struct be_task *t)
{
    const struct cpu_isa *isa = pool_user(t->pool);
    canon_delta_net_by(op, t, isa->delta_walk);
}
