/* backend/canon/canon_quant.c - activations of a row to int8 blocks. */
#include "backend/canon/canon.h"

#include "base/num.h"

/* q = round-half-even(x * inv). |x| <= amax, so |q| <= 127 without a clamp. Returns the scale. */
static float quantise(int8_t *q, const float *x, int n)
{
    uint32_t amax = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u = num_bits_from_f32(x[i]) & 0x7fffffffu; /* as bits, NaN is the largest */
        amax = u > amax ? u : amax;
    }
    float d, inv;
    canon_act_scale(amax, &d, &inv);
    for (int i = 0; i < n; i++) {
        /* inv is 0 for a block that is 0, inf or NaN; inf * 0 must not reach the conversion. */
        q[i] = inv > 0 ? (int8_t)rintf(x[i] * inv) : 0;
    }
    return d;
}

void canon_quant32(struct act32 *out, const float *x)
{
    out->d = quantise(out->q, x, ACT_BLOCK);
    out->sum = 0;
    for (int i = 0; i < ACT_BLOCK; i++)
        out->sum += out->q[i];
    out->fsum = (float)out->sum;
}

void canon_quant256(struct act256 *out, const float *x)
{
    out->d = quantise(out->q, x, ACT_BLOCK_K);
    for (int j = 0; j < 16; j++) {
        int sum = 0;
        for (int i = 0; i < 16; i++)
            sum += out->q[16 * j + i];
        out->sum16[j] = (int16_t)sum;
    }
    for (int j = 0; j < 8; j++)
        out->sum32[j] = (int16_t)(out->sum16[2 * j] + out->sum16[2 * j + 1]);
}
