/*
 * engine/sched.c - the scheduling rules (decision D4). See sched.h.
 *
 * Decoding sequences get one row each. The length of a step bounds the gap between two tokens of
 * every stream (promise P3), so what is left of it is counted in time, by a measured cost model
 * that knows the depth of each prompt. A quarter of that time goes to the oldest prompt, so that it
 * always moves on; the rest to the prompt that needs least, so that a short one does not wait for a
 * long one. Where the step cannot even give everybody one row, each gets one in turn, least
 * recently served first. By P1 nothing of this can change a result.
 *
 * The cost model is fitted to relative errors, with coefficients that cannot be negative, by a few
 * rounds of coordinate descent from the last answer, with a weak pull to what a row and a key are
 * expected to cost: in directions in which the measured steps do not differ, that decides.
 */
#include "engine/sched.h"

#include "backend/kv_geom.h"

#include <math.h>

/* Below the promises by a margin, since an estimate misses at times. */
#define DECODING_STEP_NS 140e6
#define DECODING_STRETCH 1.7 /* of a decode-only step */
#define PROMPT_STEP_NS   200e6
/* Rows share the reading of experts' weights only in long steps (decision 0026). */
#define EXPERTS_STEP_NS 800e6
#define EXPERTS_STRETCH 4.0 /* of reading all experts once */

#define OLDEST_SHARE 0.25
#define FORGET       0.98
#define PRIOR        1.0 /* weight of what is expected, in steps */
#define STRETCH_MAX  2.0
#define OUTLIER      4.0 /* a step that took so many times longer than expected says less */

enum {
    FIRST_PROMPT_ROWS = 32, /* while nothing has been measured */
    OLDEST_TURN = 4,        /* steps; where the budget is one row */
    FIT_ROUNDS = 8,
    OUTLIER_AFTER = 20,
    MARGIN_TOKENS = 64,
    MARGIN_DOUBLINGS = 14,
};

/* ---- cost ---- */

double sched_keys(int32_t n_computed, int32_t n_rows)
{
    return (double)n_rows * (double)n_computed + 0.5 * (double)n_rows * ((double)n_rows + 1.0);
}

/* Expected part of a layer's experts that `rows` rows meet, each its own few by chance. */
static double part_met(const struct sched_cost *c, int32_t rows)
{
    return c->experts_met > 0.0 ? 1.0 - pow(1.0 - c->experts_met, (double)rows) : 0.0;
}

double sched_cost_ns(const struct sched_cost *c, int32_t rows, double keys)
{
    return c->stretch * (c->step_ns + (double)rows * c->row_ns + keys * c->key_ns +
                         part_met(c, rows) * c->experts_ns);
}

double sched_prompt_ns(const struct sched_cost *c, int32_t n_computed, int32_t n,
                       int32_t step_tokens)
{
    double all = sched_cost_ns(c, n, sched_keys(n_computed, n));
    if (n <= step_tokens)
        return all;
    double steps = (double)n / (double)step_tokens;
    double a_step = c->step_ns + part_met(c, step_tokens) * c->experts_ns;
    return all + (steps - 1.0) * a_step * c->stretch;
}

/* How much longer than expected a step took; follows upwards fast. */
static void follow_stretch(struct sched_cost *c, double ratio)
{
    c->stretch += (ratio - c->stretch) * (ratio > c->stretch ? 0.3 : 0.05);
    if (c->stretch > STRETCH_MAX)
        c->stretch = STRETCH_MAX;
    if (c->stretch < 1.0)
        c->stretch = 1.0;
}

/* What a prompt row costs beside the others of its step. */
static void follow_row(struct sched_fit *f, const double at[SCHED_TERMS], int32_t prompt_rows,
                       double y)
{
    if (prompt_rows == 0) {
        f->decode_ns += (f->decode_ns > 0.0 ? 0.1 : 1.0) * (y - f->decode_ns);
        return;
    }
    double more = at[0] > (double)prompt_rows ? y - f->decode_ns : y;
    if (more < 0.2 * y)
        more = 0.2 * y;
    double row_ns = more / ((double)prompt_rows + f->key_ratio * at[2] + f->experts_ratio * at[3]);
    f->row_ns += (f->row_ns > 0.0 ? 0.1 : 1.0) * (row_ns - f->row_ns);
}

static void fit(struct sched_fit *f)
{
    const double expected[SCHED_TERMS] = {f->row_ns, 0.0, f->row_ns * f->key_ratio,
                                          f->row_ns * f->experts_ratio};
    for (int i = 0; i < FIT_ROUNDS * SCHED_TERMS; i++) {
        int at = i % SCHED_TERMS;
        double rest = f->rhs[0][at] + f->rhs[1][at];
        double own = f->sum[0][at][at] + f->sum[1][at][at];
        for (int k = 0; k < SCHED_TERMS; k++)
            rest -= k == at ? 0.0 : (f->sum[0][at][k] + f->sum[1][at][k]) * f->x[k];
        if (expected[at] > 0.0) {
            rest += PRIOR / expected[at];
            own += PRIOR / (expected[at] * expected[at]);
        }
        if (own > 0.0)
            f->x[at] = rest > 0.0 ? rest / own : 0.0;
    }
}

void sched_cost_update(struct sched_fit *f, struct sched_cost *c, int32_t rows, int32_t prompt_rows,
                       double keys, uint64_t step_ns)
{
    const double at[SCHED_TERMS] = {(double)rows, 1.0, keys, part_met(c, rows)};
    double y = step_ns > 0 ? (double)step_ns : 1.0;
    double expected = 0.0;
    for (int i = 0; i < SCHED_TERMS; i++)
        expected += at[i] * f->x[i];
    if (c->stretch < 1.0)
        c->stretch = 1.0;
    if (f->n >= OUTLIER_AFTER && expected > 0.0) {
        if (y > OUTLIER * expected)
            y = OUTLIER * expected;
        follow_stretch(c, y / expected);
    }
    if (f->n < OUTLIER_AFTER)
        f->n++;
    double(*sum)[SCHED_TERMS] = f->sum[prompt_rows > 0];
    double *rhs = f->rhs[prompt_rows > 0];
    double weight = 1.0 / (y * y);
    for (int i = 0; i < SCHED_TERMS; i++) {
        for (int k = 0; k < SCHED_TERMS; k++)
            sum[i][k] = FORGET * sum[i][k] + weight * at[i] * at[k];
        rhs[i] = FORGET * rhs[i] + weight * at[i] * y;
    }
    follow_row(f, at, prompt_rows, y);
    fit(f);
    c->row_ns = f->x[0];
    c->step_ns = f->x[1];
    c->key_ns = f->x[2];
    c->experts_ns = f->x[3];
}

/* ---- the plan ---- */

static bool wants(const struct sched_seq *s)
{
    return s->n_pending > 0;
}

static bool is_prompt(const struct sched_seq *s)
{
    return s->n_pending > 0 && !s->decoding;
}

/* Rows that it may have in this step. */
static int32_t most_rows(const struct sched_seq *s)
{
    return s->n_limit > 0 && s->n_limit < s->n_pending ? s->n_limit : s->n_pending;
}

/* Least recently served first, one row each. */
static int32_t plan_in_turn(struct sched_seq *s, int32_t n, int32_t step_tokens)
{
    int32_t rows = 0;
    for (; rows < step_tokens; rows++) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++) {
            if (!wants(&s[i]) || s[i].n_rows > 0)
                continue;
            if (best < 0 || s[i].last_step < s[best].last_step ||
                (s[i].last_step == s[best].last_step && s[i].order < s[best].order))
                best = i;
        }
        if (best < 0)
            break;
        s[best].n_rows = 1;
    }
    return rows;
}

/* What is left of a step for prompts. */
struct budget {
    int32_t rows;
    int32_t given; /* rows that the step has */
    double ns;     /* without a measured cost: unused */
};

/* What n more rows of `s` cost in a step that has `given`. */
static double rows_ns(const struct sched_cost *c, const struct sched_seq *s, int32_t given,
                      int32_t n)
{
    double keys = sched_keys(s->n_computed, s->n_rows + n) - sched_keys(s->n_computed, s->n_rows);
    double met = part_met(c, given + n) - part_met(c, given);
    return c->stretch * ((double)n * c->row_ns + keys * c->key_ns + met * c->experts_ns);
}

/* Gives `s` as many more rows as ns and the budget allow. */
static void grant(struct sched_seq *s, struct budget *b, double ns, const struct sched_cost *c)
{
    int32_t most = most_rows(s) - s->n_rows;
    if (most > b->rows)
        most = b->rows;
    int32_t n = 0;
    /* The largest n that fits, by halves. */
    for (int32_t low = 0, high = most; low <= high && most > 0;) {
        int32_t mid = low + (high - low) / 2;
        if (rows_ns(c, s, b->given, mid) <= ns) {
            n = mid;
            low = mid + 1;
        } else {
            high = mid - 1;
        }
    }
    b->ns -= rows_ns(c, s, b->given, n);
    b->rows -= n;
    b->given += n;
    s->n_rows += n;
}

static int32_t oldest_prompt(const struct sched_seq *s, int32_t n)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (is_prompt(&s[i]) && (best < 0 || s[i].order < s[best].order))
            best = i;
    }
    return best;
}

/* Of the highest priority the one with the fewest tokens left, among those that want more rows. */
static int32_t next_prompt(const struct sched_seq *s, int32_t n)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++) {
        if (!is_prompt(&s[i]) || s[i].n_rows == most_rows(&s[i]))
            continue;
        if (best < 0 || s[i].priority > s[best].priority ||
            (s[i].priority == s[best].priority &&
             (s[i].n_pending < s[best].n_pending ||
              (s[i].n_pending == s[best].n_pending && s[i].order < s[best].order))))
            best = i;
    }
    return best;
}

static void plan_prompts(struct sched_seq *s, int32_t n, int32_t n_prompts, struct budget *b,
                         const struct sched_step *in)
{
    int32_t rows_before = b->rows;
    int32_t oldest = oldest_prompt(s, n);
    if (n_prompts > 1)
        grant(&s[oldest], b, OLDEST_SHARE * b->ns, &in->cost);
    while (b->rows > 0) {
        int32_t i = next_prompt(s, n);
        if (i < 0)
            break;
        grant(&s[i], b, b->ns, &in->cost);
        if (s[i].n_rows < most_rows(&s[i]))
            break;
    }
    if (b->rows < rows_before || b->rows == 0)
        return;
    /* Not even one row fits the time: one all the same, or prompts would wait for ever. */
    int32_t i = in->step % OLDEST_TURN == 0 ? oldest : next_prompt(s, n);
    s[i].n_rows = 1;
    b->rows--;
}

/* The time that a step without streams may take. Rows of other experts each read other weights: a
 * short step spends its time on reading what it uses once. */
static double prompt_step_ns(const struct sched_cost *c)
{
    double most = EXPERTS_STRETCH * c->stretch * c->experts_ns;
    if (most > EXPERTS_STEP_NS)
        most = EXPERTS_STEP_NS;
    return most > PROMPT_STEP_NS ? most : PROMPT_STEP_NS;
}

/* The time that prompts may take in a step with these decode rows. */
static double prompt_ns(const struct sched_cost *c, int32_t n_decode, double decode_keys)
{
    double alone = sched_cost_ns(c, n_decode, decode_keys);
    if (n_decode == 0)
        return prompt_step_ns(c) - alone;
    double most = DECODING_STRETCH * alone;
    return (most > DECODING_STEP_NS ? most : DECODING_STEP_NS) - alone;
}

int32_t sched_plan(struct sched_seq *seqs, int32_t n, const struct sched_step *in)
{
    int32_t n_decode = 0;
    int32_t n_prompts = 0;
    double decode_keys = 0.0;
    for (int32_t i = 0; i < n; i++) {
        seqs[i].n_rows = 0;
        n_prompts += is_prompt(&seqs[i]);
        if (wants(&seqs[i]) && seqs[i].decoding) {
            n_decode++;
            decode_keys += sched_keys(seqs[i].n_computed, 1);
        }
    }
    if (n_decode + (n_prompts > 0) > in->step_tokens)
        return plan_in_turn(seqs, n, in->step_tokens);
    for (int32_t i = 0; i < n; i++) {
        if (wants(&seqs[i]) && seqs[i].decoding)
            seqs[i].n_rows = 1;
    }
    struct budget b = {.rows = in->step_tokens - n_decode, .given = n_decode};
    if (in->cost.row_ns + in->cost.step_ns + in->cost.experts_ns > 0.0)
        b.ns = prompt_ns(&in->cost, n_decode, decode_keys);
    else if (b.rows > FIRST_PROMPT_ROWS)
        b.rows = FIRST_PROMPT_ROWS;
    if (b.ns < 0.0)
        b.ns = 0.0;
    int32_t left = b.rows;
    if (n_prompts > 0)
        plan_prompts(seqs, n, n_prompts, &b, in);
    return n_decode + (left - b.rows);
}

/* ---- who starts, who gives way ---- */

int32_t sched_victim(const struct sched_seq *seqs, int32_t n)
{
    int32_t worst = -1;
    for (int32_t i = 0; i < n; i++) {
        if (seqs[i].used &&
            (worst < 0 || seqs[i].priority < seqs[worst].priority ||
             (seqs[i].priority == seqs[worst].priority && seqs[i].order > seqs[worst].order)))
            worst = i;
    }
    return worst;
}

int32_t sched_margin_tokens(int32_t n_left, int32_t n_preempted)
{
    int32_t doublings = n_preempted < MARGIN_DOUBLINGS ? n_preempted : MARGIN_DOUBLINGS;
    int32_t margin = MARGIN_TOKENS << doublings;
    return margin < n_left ? margin : n_left;
}

int32_t sched_pages(int64_t n_tokens)
{
    return (int32_t)((n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}
