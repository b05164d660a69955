/*
 * sample/sample.h - from a row of logits to a token. Engine thread only; no allocation.
 *
 * Random numbers come from Philox4x32-10 (Salmon et al. 2011) keyed by (seed, choice) with the
 * position as counter (decision D13): the n-th token of a request depends on nothing else. All sums
 * run in a fixed order and every tie goes to the lower token id, so the same logits and seed give
 * the same token on any machine and in any batch.
 *
 * Order: bias, penalties, temperature, then min_p, top_k, top_p (each over what the one before
 * left), then the draw. Log probabilities are of the model's own row, before all of these.
 */
#ifndef T9_SAMPLE_SAMPLE_H
#define T9_SAMPLE_SAMPLE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { SAMPLE_BIAS_MAX = 1024, SAMPLE_TOP_MAX = 20 };

struct sample_bias {
    int32_t id;
    float bias; /* -100 .. 100, added to the logit */
};

struct sample_params {
    float temperature; /* 0 = greedy (arg max); else > 0, up to 100 */
    float top_p;       /* (0, 1]; 1 = off */
    float min_p;       /* [0, 1]; 0 = off: keep tokens with p >= min_p * p_max */
    int32_t top_k;     /* 0 = off */
    uint64_t seed;
    /* -2 .. 2; 0 = off. Taken from the logit of a token that was generated before: once, and once
     * for each time that it was. */
    float presence_penalty, frequency_penalty;
    /* Above 0, up to 10; 0 and 1 = off. The logit of a token that the prompt or the answer has is
     * divided by it when positive, else multiplied. */
    float repetition_penalty;
    /* [n_bias], at most SAMPLE_BIAS_MAX; owned by the caller, constant while it is used. */
    const struct sample_bias *bias;
    int32_t n_bias;
};

/* A token and the natural logarithm of its probability, -infinity for probability 0. tempo9.h has
 * the same for those outside, who get the rows as they are. */
#ifndef T9_LOGPROB_DEFINED
#    define T9_LOGPROB_DEFINED
struct t9_logprob {
    int32_t token;
    float logprob;
};
#endif

/* temperature 1, top_p 1, repetition_penalty 1, the rest 0 */
void sample_params_init(struct sample_params *p);
/* INVALID naming the parameter and its range. */
t9_status sample_params_check(const struct sample_params *p, struct t9_err *err);

struct sampler; /* scratch for one vocabulary */
t9_status sampler_new(struct sampler **out, int32_t n_vocab, struct t9_err *err);
void sampler_free(struct sampler *s);
/* Token for `logits` f32[n_vocab] at `position` (index of the sampled token in its sequence) of
 * choice `choice`. Returns -1 when no logit is finite: the caller ends the request with an error.
 * Infinities and NaN are never picked; a row that the model gave must have none (the caller's to
 * see to), while -inf forbids a token. */
int32_t sampler_pick(struct sampler *s, const float *logits, const struct sample_params *p,
                     uint32_t choice, uint64_t position);

/* Changes a row of logits f32[n_vocab] by bias and penalties. `tokens` [n_tokens] are the sequence
 * so far, the first n_prompt of them the prompt; their repetition counts, while presence and
 * frequency count what was generated. A pure function of its arguments; ids outside the vocabulary
 * have no effect. Time grows with n_tokens where a penalty is on. */
void sampler_adjust(struct sampler *s, float *logits, const struct sample_params *p,
                    const int32_t *tokens, int32_t n_tokens, int32_t n_prompt);

/* Notes the row as the model gave it, for sampler_logprobs: call it before sampler_adjust. */
void sampler_note(struct sampler *s, const float *logits);
/* Writes out[1 + n_top]: first `id`, then the n_top likeliest tokens of the noted row, falling, the
 * lower id first among equals. The log-softmax of that row; with fewer finite logits than n_top the
 * rest has id -1. */
void sampler_logprobs(struct sampler *s, int32_t id, int32_t n_top, struct t9_logprob *out);

/* Philox4x32-10, one block. Exposed for tests against the published vectors. */
void philox4x32_10(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

#endif
