/*
 * cli/sampling.c - how answers are sampled when a request says nothing: the option, else what the
 * model file recommends (general.sampling.*), else the API's plain defaults.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A number of the file; false when there is none. */
static bool file_number(const struct gguf *g, const char *key, double *out)
{
    struct t9_err err;
    float f = 0;
    int64_t i = 0;
    t9_status s = gguf_get_f32(g, key, &f, &err);
    *out = (double)f;
    if (s != T9_STATUS_OK && s != T9_STATUS_NOT_FOUND) {
        s = gguf_get_i64(g, key, &i, &err);
        *out = (double)i;
    }
    if (s != T9_STATUS_OK && s != T9_STATUS_NOT_FOUND)
        LOG_WARN("serve", "%s: %s is no number and is not used", gguf_file_name(g), key);
    return s == T9_STATUS_OK;
}

static void read_file(const struct gguf *g, struct sample_params *p)
{
    double v = 0;
    if (file_number(g, "general.sampling.temp", &v))
        p->temperature = (float)v;
    if (file_number(g, "general.sampling.top_p", &v))
        p->top_p = (float)v;
    if (file_number(g, "general.sampling.min_p", &v))
        p->min_p = (float)v;
    if (file_number(g, "general.sampling.penalty_repeat", &v))
        p->repetition_penalty = (float)v;
    if (file_number(g, "general.sampling.top_k", &v) && fabs(v) <= INT32_MAX)
        p->top_k = v > 0 ? (int32_t)v : 0;
}

void sampling_resolve(const struct cli_options *o, const struct gguf *g, struct sample_params *out)
{
    struct sample_params plain, file;
    struct t9_err err = {0};
    sample_params_init(&plain);
    sampling_init(&file);
    read_file(g, &file);
    sampling_fill(&file, &plain);
    if (sample_params_check(&file, &err) != T9_STATUS_OK) {
        LOG_WARN("serve", "the sampling that %s recommends is not used: %s", gguf_file_name(g),
                 err.msg);
        file = plain;
    }
    *out = o->sampling;
    sampling_fill(out, &file);
    LOG_INFO("serve",
             "unless a request says otherwise: temperature %g, top_p %g, top_k %d, min_p %g, "
             "repetition_penalty %g",
             (double)out->temperature, (double)out->top_p, out->top_k, (double)out->min_p,
             (double)out->repetition_penalty);
}
