/*
 * engine/sched.c - the scheduling rules (decision D4). See sched.h.
 *
 * Decoding sequences get one row each; what is left of the step goes to prompts in the order of
 * their admission, the first as much as it can use. Where the step cannot even give everybody one
 * row, each gets one in turn, least recently served first, so that neither streams nor prompts
 * starve.
 *
 * The length of a step bounds the gap between two tokens of every stream, so prompts get only as
 * many rows as the measured cost allows. By P1 this cannot change any result.
 */
#include "engine/sched.h"

#include "backend/kv_geom.h"

/* Below the promises by a margin, since an estimate misses at times. */
#define DECODING_STEP_NS 140e6
#define DECODING_STRETCH 1.7 /* of a decode-only step */
#define PROMPT_STEP_NS   200e6

enum {
    FIRST_PROMPT_ROWS = 32, /* while nothing has been measured */
    MEASURED_ROWS_MIN = 4,  /* fewer say little about the cost of a row */
};

/* The slot that `better` prefers among those that want rows and have none yet; -1 = none. */
static int32_t pick(const struct sched_seq *s, int32_t n, bool want_decoding, bool by_age)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (s[i].n_pending < 1 || s[i].n_rows > 0 || (!by_age && s[i].decoding != want_decoding))
            continue;
        if (best < 0 || (by_age && s[i].last_step < s[best].last_step) ||
            ((!by_age || s[i].last_step == s[best].last_step) && s[i].order < s[best].order))
            best = i;
    }
    return best;
}

static int32_t plan_in_turn(struct sched_seq *s, int32_t n, int32_t step_tokens)
{
    int32_t rows = 0;
    while (rows < step_tokens) {
        int32_t i = pick(s, n, false, true);
        if (i < 0)
            break;
        s[i].n_rows = 1;
        rows++;
    }
    return rows;
}

int32_t sched_plan(struct sched_seq *seqs, int32_t n, int32_t step_tokens, int32_t prompt_rows_max)
{
    int32_t n_decode = 0;
    int32_t n_prompt = 0;
    for (int32_t i = 0; i < n; i++) {
        seqs[i].n_rows = 0;
        if (seqs[i].n_pending > 0)
            *(seqs[i].decoding ? &n_decode : &n_prompt) += 1;
    }
    if (n_decode + (n_prompt > 0) > step_tokens)
        return plan_in_turn(seqs, n, step_tokens);
    for (int32_t i = 0; i < n; i++) {
        if (seqs[i].n_pending > 0 && seqs[i].decoding)
            seqs[i].n_rows = 1;
    }
    int32_t left = step_tokens - n_decode;
    if (left > prompt_rows_max)
        left = prompt_rows_max;
    int32_t rows = n_decode;
    while (left > 0) {
        int32_t i = pick(seqs, n, false, false);
        if (i < 0)
            break;
        int32_t take = seqs[i].n_pending < left ? seqs[i].n_pending : left;
        seqs[i].n_rows = take;
        left -= take;
        rows += take;
    }
    return rows;
}

int32_t sched_prompt_rows(const struct sched_cost *c, int32_t step_tokens, bool decoding)
{
    double rows = FIRST_PROMPT_ROWS;
    if (c->prompt_row_ns > 0.0) {
        double step_ns = PROMPT_STEP_NS;
        if (decoding) {
            step_ns = DECODING_STRETCH * c->decode_step_ns;
            if (step_ns < DECODING_STEP_NS)
                step_ns = DECODING_STEP_NS;
            step_ns -= c->decode_step_ns;
        }
        rows = step_ns / c->prompt_row_ns;
    }
    if (rows >= (double)step_tokens)
        return step_tokens;
    return rows < 1.0 ? 1 : (int32_t)rows;
}

/* Moves half way to a new measurement: fast enough to follow a growing depth, slow enough for one
 * disturbed step not to matter much. */
static void follow(double *estimate, double measured)
{
    *estimate = *estimate > 0.0 ? 0.5 * (*estimate + measured) : measured;
}

void sched_cost_update(struct sched_cost *c, int32_t decode_rows, int32_t prompt_rows,
                       uint64_t step_ns)
{
    if (prompt_rows == 0) {
        follow(&c->decode_step_ns, (double)step_ns);
        return;
    }
    if (prompt_rows < MEASURED_ROWS_MIN)
        return;
    double base = decode_rows > 0 ? c->decode_step_ns : 0.0;
    double prompt_ns = (double)step_ns - base;
    if (prompt_ns < 0.1 * (double)step_ns)
        prompt_ns = 0.1 * (double)step_ns;
    follow(&c->prompt_row_ns, prompt_ns / (double)prompt_rows);
}

int32_t sched_pages(int64_t n_tokens)
{
    return (int32_t)((n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}
