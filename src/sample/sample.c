/*
 * sample/sample.c - picks a token from a row of logits.
 *
 * Candidates are pairs of a sortable 32-bit image of the logit and the token id. The filters narrow
 * the list, the draw walks what is left. The walk is in id order when nothing had to be sorted,
 * else in falling order of the logit (ties by id); every sum runs along that order in double
 * precision, and exp is our own, so a token is a pure function of (logits, parameters, choice,
 * position) on every machine.
 *
 * Cost for a large vocabulary: one pass to find the maximum, one to collect; a bucket histogram
 * over the leading key bits then throws away what top_k or top_p cannot keep, so that only the head
 * of the distribution is ever sorted.
 *
 * Penalties count tokens anew at each call, from the sequence itself: there is no state that a
 * preemption, a batch or a cache could change.
 *
 * Engine thread only; nothing allocates after sampler_new.
 */
#include "sample/sample.h"

#include "base/mem.h"
#include "base/num.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    DIGIT_BITS = 11, /* three digits cover a 32-bit key */
    N_BUCKETS = 1 << DIGIT_BITS,
    SMALL_SORT = 32, /* insertion sort up to here */
    VOCAB_MAX = 1 << 26,
};

#define TEMPERATURE_MAX        100.0f
#define PENALTY_MAX            2.0f /* of presence and frequency */
#define REPETITION_PENALTY_MAX 10.0f
#define BIAS_MAX               100.0f

struct cand {
    uint32_t key; /* ascending key = falling logit */
    int32_t id;
};

struct sampler {
    int32_t n_vocab;
    struct cand *cand, *spare; /* [n_vocab] each */
    double *weight;            /* [n_vocab], beside cand */
    int32_t *times;            /* [n_vocab], zero between two calls */
    float *noted;              /* [n_vocab] */
    uint32_t count[3][N_BUCKETS];
    double mass[N_BUCKETS];
};

void sample_params_init(struct sample_params *p)
{
    *p = (struct sample_params){.temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};
}

static t9_status check_penalties(const struct sample_params *p, struct t9_err *err)
{
    if (!(fabsf(p->presence_penalty) <= PENALTY_MAX) ||
        !(fabsf(p->frequency_penalty) <= PENALTY_MAX))
        return t9_fail(err, T9_STATUS_INVALID,
                       "presence_penalty and frequency_penalty must be within -2 and 2, got %g and "
                       "%g",
                       (double)p->presence_penalty, (double)p->frequency_penalty);
    if (!(p->repetition_penalty >= 0.0f && p->repetition_penalty <= REPETITION_PENALTY_MAX))
        return t9_fail(err, T9_STATUS_INVALID, "repetition_penalty must be within 0 and %g, got %g",
                       (double)REPETITION_PENALTY_MAX, (double)p->repetition_penalty);
    if (p->n_bias < 0 || p->n_bias > SAMPLE_BIAS_MAX || (p->n_bias > 0 && !p->bias))
        return t9_fail(err, T9_STATUS_INVALID, "at most %d tokens can have a bias, got %d",
                       SAMPLE_BIAS_MAX, p->n_bias);
    for (int32_t i = 0; i < p->n_bias; i++) {
        if (!(fabsf(p->bias[i].bias) <= BIAS_MAX))
            return t9_fail(err, T9_STATUS_INVALID,
                           "the bias of token %d must be within -100 and 100, got %g",
                           p->bias[i].id, (double)p->bias[i].bias);
    }
    return T9_STATUS_OK;
}

t9_status sample_params_check(const struct sample_params *p, struct t9_err *err)
{
    /* Written so that a NaN fails each of them. */
    if (!(p->temperature >= 0.0f && p->temperature <= TEMPERATURE_MAX))
        return t9_fail(err, T9_STATUS_INVALID, "temperature must be within 0 and %g, got %g",
                       (double)TEMPERATURE_MAX, (double)p->temperature);
    if (!(p->top_p > 0.0f && p->top_p <= 1.0f))
        return t9_fail(err, T9_STATUS_INVALID, "top_p must be above 0 and at most 1, got %g",
                       (double)p->top_p);
    if (!(p->min_p >= 0.0f && p->min_p <= 1.0f))
        return t9_fail(err, T9_STATUS_INVALID, "min_p must be within 0 and 1, got %g",
                       (double)p->min_p);
    if (p->top_k < 0)
        return t9_fail(err, T9_STATUS_INVALID, "top_k must be 0 (off) or positive, got %d",
                       p->top_k);
    return check_penalties(p, err);
}

t9_status sampler_new(struct sampler **out, int32_t n_vocab, struct t9_err *err)
{
    *out = NULL;
    if (n_vocab < 1 || n_vocab > VOCAB_MAX)
        return t9_fail(err, T9_STATUS_INVALID, "sampler: a vocabulary of %d tokens is not possible",
                       n_vocab);
    struct sampler *s = mem_calloc(1, sizeof *s);
    if (s) {
        s->n_vocab = n_vocab;
        s->cand = mem_alloc((size_t)n_vocab * sizeof *s->cand);
        s->spare = mem_alloc((size_t)n_vocab * sizeof *s->spare);
        s->weight = mem_alloc((size_t)n_vocab * sizeof *s->weight);
        s->times = mem_calloc((size_t)n_vocab, sizeof *s->times);
        s->noted = mem_alloc((size_t)n_vocab * sizeof *s->noted);
    }
    if (!s || !s->cand || !s->spare || !s->weight || !s->times || !s->noted) {
        sampler_free(s);
        return t9_fail(err, T9_STATUS_NOMEM, "sampler: out of memory for %d tokens", n_vocab);
    }
    *out = s;
    return T9_STATUS_OK;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    mem_free(s->cand);
    mem_free(s->spare);
    mem_free(s->weight);
    mem_free(s->times);
    mem_free(s->noted);
    mem_free(s);
}

/*
 * e^x for x <= 0 in double, from nothing but IEEE additions and multiplications: the same bits on
 * every machine, which libm does not promise. x = k ln 2 + r with |r| <= ln 2 / 2, e^r by its
 * Taylor series to r^13 (error below 1 ulp), then scaled by 2^k. Below -708 the result is 0: such a
 * token could not be drawn by a 53-bit random number.
 */
static double exp_neg(double x)
{
    static const double inv_fact[] = {
        1.0 / 6227020800.0,
        1.0 / 479001600.0,
        1.0 / 39916800.0,
        1.0 / 3628800.0,
        1.0 / 362880.0,
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    };
    const double log2_e = 0x1.71547652b82fep+0;
    const double ln2_hi = 0x1.62e42feep-1; /* 29 bits: k * ln2_hi is exact */
    const double ln2_lo = 0x1.a39ef35793c76p-33;
    if (!(x >= -708.0))
        return 0.0;
    int k = (int)(x * log2_e - 0.5);
    double r = (x - (double)k * ln2_hi) - (double)k * ln2_lo;
    double y = inv_fact[0];
    for (size_t i = 1; i < T9_COUNT(inv_fact); i++)
        y = y * r + inv_fact[i];
    uint64_t bits = (uint64_t)(int64_t)(k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

/* Smallest x <= 0 whose e^x reaches p (0 < p <= 1), by bisection of exp_neg itself. */
static double ln_of(double p)
{
    double lo = -709.0;
    double hi = 0.0;
    for (int i = 0; i < 64; i++) {
        double mid = 0.5 * (lo + hi);
        if (exp_neg(mid) >= p)
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

static uint32_t key_of(float logit)
{
    uint32_t u = num_bits_from_f32(logit + 0.0f); /* -0 becomes +0: equal logits, equal keys */
    return u & 0x80000000u ? u : ~(u | 0x80000000u);
}

static float logit_of(uint32_t key)
{
    return num_f32_from_bits(key & 0x80000000u ? key : ~key & 0x7fffffffu);
}

/* Id of the largest finite logit, the lowest id among equals; -1 when there is none. Infinities and
 * NaN fail one of the two comparisons and so are never picked. */
static int32_t arg_max(const float *logits, int32_t n)
{
    int32_t best = -1;
    float max = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (logits[i] > max && logits[i] < INFINITY) {
            max = logits[i];
            best = i;
        }
    }
    return best;
}

/* Fills cand with the finite logits, in id order, whose scaled distance from `max` is at least
 * x_min. Returns how many. */
static int32_t collect(struct sampler *s, const float *logits, float max, double inv_t,
                       double x_min)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        float l = logits[i];
        if (!(l > -INFINITY && l < INFINITY) || ((double)l - (double)max) * inv_t < x_min)
            continue;
        s->cand[n++] = (struct cand){key_of(l), i};
    }
    return n;
}

static void swap_lists(struct sampler *s)
{
    struct cand *t = s->cand;
    s->cand = s->spare;
    s->spare = t;
}

/* Sorts cand[0..n) by key; stable, so equal logits stay in id order. */
static void sort_cands(struct sampler *s, int32_t n)
{
    if (n <= SMALL_SORT) {
        for (int32_t i = 1; i < n; i++) {
            struct cand c = s->cand[i];
            int32_t j = i;
            for (; j > 0 && s->cand[j - 1].key > c.key; j--)
                s->cand[j] = s->cand[j - 1];
            s->cand[j] = c;
        }
        return;
    }
    memset(s->count, 0, sizeof s->count);
    for (int32_t i = 0; i < n; i++) {
        for (int d = 0; d < 3; d++)
            s->count[d][(s->cand[i].key >> (d * DIGIT_BITS)) & (N_BUCKETS - 1)]++;
    }
    for (int d = 0; d < 3; d++) {
        uint32_t start = 0;
        for (int b = 0; b < N_BUCKETS; b++) {
            uint32_t c = s->count[d][b];
            s->count[d][b] = start;
            start += c;
        }
        for (int32_t i = 0; i < n; i++) {
            uint32_t b = (s->cand[i].key >> (d * DIGIT_BITS)) & (N_BUCKETS - 1);
            s->spare[s->count[d][b]++] = s->cand[i];
        }
        swap_lists(s);
    }
}

static uint32_t bucket_of(struct cand c)
{
    return c.key >> (32 - DIGIT_BITS);
}

/* Drops the candidates in buckets after `last`, keeping the order of the others. */
static int32_t keep_buckets(struct sampler *s, int32_t n, uint32_t last)
{
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++) {
        if (bucket_of(s->cand[i]) <= last)
            s->cand[m++] = s->cand[i];
    }
    return m;
}

/* Leaves the k best, sorted. */
static int32_t keep_top_k(struct sampler *s, int32_t n, int32_t k)
{
    memset(s->count[0], 0, sizeof s->count[0]);
    for (int32_t i = 0; i < n; i++)
        s->count[0][bucket_of(s->cand[i])]++;
    uint32_t last = 0;
    for (int64_t sum = s->count[0][0]; sum < k && last < N_BUCKETS - 1;)
        sum += s->count[0][++last];
    n = keep_buckets(s, n, last);
    sort_cands(s, n);
    return n < k ? n : k;
}

/* weight[i] = e^((logit - max) / T) for cand[0..n); returns their sum in list order. */
static double weigh(struct sampler *s, int32_t n, float max, double inv_t)
{
    double total = 0.0;
    for (int32_t i = 0; i < n; i++) {
        double x = ((double)logit_of(s->cand[i].key) - (double)max) * inv_t;
        s->weight[i] = exp_neg(x);
        total += s->weight[i];
    }
    return total;
}

/*
 * Leaves the shortest head of the falling order whose weights sum to top_p of all; sorted, weights
 * filled in. `sorted` says that cand already is.
 */
static int32_t keep_top_p(struct sampler *s, int32_t n, float max, double inv_t, double top_p,
                          bool sorted)
{
    double wanted = top_p * weigh(s, n, max, inv_t);
    if (!sorted) {
        /* The margin keeps the bucket sums' own rounding from cutting a token that the exact walk
         * below would have kept. */
        double enough = wanted * (1.0 + 1e-9);
        memset(s->mass, 0, sizeof s->mass);
        for (int32_t i = 0; i < n; i++)
            s->mass[bucket_of(s->cand[i])] += s->weight[i];
        uint32_t last = 0;
        for (double sum = s->mass[0]; sum < enough && last < N_BUCKETS - 1;)
            sum += s->mass[++last];
        n = keep_buckets(s, n, last);
        sort_cands(s, n);
        (void)weigh(s, n, max, inv_t);
    }
    double sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        sum += s->weight[i];
        if (sum >= wanted)
            return i + 1;
    }
    return n;
}

/* Uniform in [0, 1) with 53 bits. The seed is the key; position and choice are the counter. */
static double uniform(uint64_t seed, uint32_t choice, uint64_t position)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t ctr[4] = {(uint32_t)position, (uint32_t)(position >> 32), choice, 0};
    uint32_t r[4];
    philox4x32_10(ctr, key, r);
    return (double)(((uint64_t)r[0] << 32 | r[1]) >> 11) * 0x1p-53;
}

/* Walks the weights until the drawn share of their sum is passed. */
static int32_t draw(const struct sampler *s, int32_t n, double u)
{
    double total = 0.0;
    for (int32_t i = 0; i < n; i++)
        total += s->weight[i];
    double goal = u * total;
    double sum = 0.0;
    int32_t pick = s->cand[0].id;
    for (int32_t i = 0; i < n; i++) {
        if (s->weight[i] <= 0.0)
            continue;
        pick = s->cand[i].id;
        sum += s->weight[i];
        if (sum > goal)
            break;
    }
    return pick;
}

int32_t sampler_pick(struct sampler *s, const float *logits, const struct sample_params *p,
                     uint32_t choice, uint64_t position)
{
    int32_t best = arg_max(logits, s->n_vocab);
    if (best < 0 || p->temperature == 0.0f || p->top_k == 1)
        return best;
    float max = logits[best];
    double inv_t = 1.0 / (double)p->temperature;
    double x_min = p->min_p > 0.0f ? ln_of((double)p->min_p) : -HUGE_VAL;
    int32_t n = collect(s, logits, max, inv_t, x_min);
    bool sorted = false;
    if (p->top_k > 0 && p->top_k < n) {
        n = keep_top_k(s, n, p->top_k);
        sorted = true;
    }
    if (p->top_p < 1.0f)
        n = keep_top_p(s, n, max, inv_t, (double)p->top_p, sorted);
    else
        (void)weigh(s, n, max, inv_t);
    return draw(s, n, uniform(p->seed, choice, position));
}

/* ---- bias and penalties ---- */

/* Divides or multiplies the logit of each token once. */
static void penalise_repetition(struct sampler *s, float *logits, float penalty,
                                const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t id = tokens[i];
        if (id < 0 || id >= s->n_vocab || s->times[id]++ > 0)
            continue;
        logits[id] = logits[id] > 0.0f ? logits[id] / penalty : logits[id] * penalty;
    }
}

static void penalise_presence(struct sampler *s, float *logits, const struct sample_params *p,
                              const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (tokens[i] >= 0 && tokens[i] < s->n_vocab)
            s->times[tokens[i]]++;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t id = tokens[i];
        if (id < 0 || id >= s->n_vocab || s->times[id] == 0)
            continue;
        logits[id] -= p->presence_penalty + p->frequency_penalty * (float)s->times[id];
        s->times[id] = 0;
    }
}

void sampler_adjust(struct sampler *s, float *logits, const struct sample_params *p,
                    const int32_t *tokens, int32_t n_tokens, int32_t n_prompt)
{
    for (int32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id >= 0 && p->bias[i].id < s->n_vocab)
            logits[p->bias[i].id] += p->bias[i].bias;
    }
    bool repeats = p->repetition_penalty > 0.0f &&
                   (p->repetition_penalty < 1.0f || p->repetition_penalty > 1.0f);
    if (repeats) {
        penalise_repetition(s, logits, p->repetition_penalty, tokens, n_tokens);
        for (int32_t i = 0; i < n_tokens; i++) {
            if (tokens[i] >= 0 && tokens[i] < s->n_vocab)
                s->times[tokens[i]] = 0;
        }
    }
    if (fabsf(p->presence_penalty) > 0.0f || fabsf(p->frequency_penalty) > 0.0f)
        penalise_presence(s, logits, p, tokens + n_prompt, n_tokens - n_prompt);
}

/* ---- log probabilities ---- */

void sampler_note(struct sampler *s, const float *logits)
{
    memcpy(s->noted, logits, (size_t)s->n_vocab * sizeof *s->noted);
}

static bool is_finite(float l)
{
    return l > -INFINITY && l < INFINITY;
}

/* The k largest finite logits into ids, falling, the lower id first among equals. */
static int32_t top_ids(const struct sampler *s, int32_t k, int32_t ids[SAMPLE_TOP_MAX])
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_vocab && k > 0; i++) {
        float l = s->noted[i];
        if (!is_finite(l) || (n == k && !(l > s->noted[ids[n - 1]])))
            continue;
        int32_t at = n < k ? n++ : n - 1;
        for (; at > 0 && s->noted[ids[at - 1]] < l; at--)
            ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return n;
}

void sampler_logprobs(struct sampler *s, int32_t id, int32_t n_top, struct t9_logprob *out)
{
    int32_t ids[SAMPLE_TOP_MAX];
    int32_t k = n_top < SAMPLE_TOP_MAX ? n_top : SAMPLE_TOP_MAX;
    int32_t best = arg_max(s->noted, s->n_vocab);
    int32_t n = top_ids(s, k, ids);
    double max = best < 0 ? 0.0 : (double)s->noted[best];
    double sum = 0.0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (is_finite(s->noted[i]))
            sum += exp_neg((double)s->noted[i] - max);
    }
    double ln_sum = sum > 0.0 ? -ln_of(1.0 / sum) : 0.0;
    for (int32_t i = 0; i <= n_top; i++) {
        int32_t t = i == 0 ? id : i - 1 < n ? ids[i - 1] : -1;
        bool known = t >= 0 && t < s->n_vocab && is_finite(s->noted[t]);
        out[i] =
            (struct t9_logprob){t, known ? (float)((double)s->noted[t] - max - ln_sum) : -INFINITY};
    }
}
