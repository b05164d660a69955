/*
 * model/rope.c - rotary frequencies: none, linear and YaRN scaling, with optional per-frequency
 * factors. In double, rounded to float once; pure, any thread.
 */
#include "model/model_impl.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

/* Pair index at which a frequency turns `turns` times within the original context. */
static double yarn_pair(const struct rope_params *p, double turns)
{
    return p->n_rot * log((double)p->original_context / (turns * 2 * PI)) /
           (2 * log((double)p->freq_base));
}

static double yarn_magnitude(double factor, double multiplier)
{
    return factor <= 1 ? 1 : 0.1 * multiplier * log(factor) + 1;
}

void rope_frequencies(const struct rope_params *p, const float *factors, float *inv_freq,
                      float *magnitude)
{
    double low = 0, high = 0, scale = 1;
    *magnitude = 1;
    if (p->scaling != ROPE_SCALING_NONE)
        scale = 1 / (double)p->factor;
    if (p->scaling == ROPE_SCALING_YARN) {
        low = yarn_pair(p, (double)p->beta_fast);
        high = yarn_pair(p, (double)p->beta_slow);
        low = fmax(0, p->yarn_exact ? low : floor(low));
        high = fmin(p->n_rot - 1, p->yarn_exact ? high : ceil(high));
        double a = yarn_magnitude((double)p->factor, 1);
        if (p->log_multiplier != 0)
            a /= yarn_magnitude((double)p->factor, (double)p->log_multiplier);
        *magnitude = (float)(a * (double)p->attn_factor);
    }
    for (int32_t i = 0; i < p->n_rot / 2; i++) {
        double f = pow((double)p->freq_base, -2.0 * i / p->n_rot);
        if (factors)
            f /= (double)factors[i];
        if (p->scaling == ROPE_SCALING_YARN) {
            double ramp = fmin(1, fmax(0, (i - low) / fmax(high - low, 0.001)));
            f = f * (1 - ramp) + f * scale * ramp;
        } else {
            f *= scale;
        }
        inv_freq[i] = (float)f;
    }
}
