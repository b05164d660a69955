/*
 * cli/sampling.c - how answers are sampled when a request says nothing: the option, else what the
 * model file recommends (general.sampling.*), else the API's plain defaults.
 */
#include "cli/cli.h"

#include "tempo9.h"

void sampling_resolve(const struct cli_options *o, const struct t9_model *m,
                      struct t9_request_params *out)
{
    struct t9_model_info info = {.struct_size = sizeof info};
    struct t9_err err = {0};
    t9_request_params_init(out, sizeof *out);
    if (t9_model_sampling(m, out, &err) != T9_STATUS_OK) {
        (void)t9_model_info(m, &info);
        LOG_WARN("serve", "the sampling that %s recommends is not used: %s", info.file_name,
                 err.msg);
    }
    struct cli_sampling s = o->sampling;
    const struct cli_sampling file = {.temperature = out->temperature,
                                      .top_p = out->top_p,
                                      .min_p = out->min_p,
                                      .repetition_penalty = out->repetition_penalty,
                                      .top_k = out->top_k};
    sampling_fill(&s, &file);
    out->temperature = s.temperature;
    out->top_p = s.top_p;
    out->min_p = s.min_p;
    out->repetition_penalty = s.repetition_penalty;
    out->top_k = s.top_k;
    LOG_INFO("serve",
             "unless a request says otherwise: temperature %g, top_p %g, top_k %d, min_p %g, "
             "repetition_penalty %g",
             (double)out->temperature, (double)out->top_p, out->top_k, (double)out->min_p,
             (double)out->repetition_penalty);
}
