/*
 * engine/plan_log.h - one line of JSON per step: what the scheduler was given and what it answered;
 * and the replay that asks the same scheduler again.
 *
 *     {"t9_plan":2,"step":S,"step_tokens":T,"cost":[step,row,key,stretch,experts,met],
 *      "seqs":[[decoding,priority,n_pending,n_computed,order,last_step,n_rows],...],"rows":R}
 *
 * with ",n_limit" after the n_rows of a sequence that has a limit,
 * without blanks or line feed. The costs are the bits of IEEE doubles as whole numbers, so that a
 * replay decides on the same bits. Free slots are left out. A log is data from outside: every line
 * is checked and refused with what is wrong.
 */
#ifndef T9_ENGINE_PLAN_LOG_H
#define T9_ENGINE_PLAN_LOG_H

#include "base/err.h"
#include "base/str.h"
#include "engine/sched.h"

enum { PLAN_LOG_SEQS_MAX = 2048 };

/* Bytes that a line of n sequences takes at most. */
size_t plan_log_line_cap(int32_t n);
/* Writes one line into out [cap >= plan_log_line_cap(n)]; returns its length. */
size_t plan_log_encode(char *out, size_t cap, const struct sched_step *in,
                       const struct sched_seq *seqs, int32_t n, int32_t rows);

struct plan_replay {
    struct sched_step in;
    struct sched_seq *seqs; /* [PLAN_LOG_SEQS_MAX] */
    int32_t n, rows;
    uint64_t n_steps;               /* lines that were the same */
    uint64_t first_step, last_step; /* of these */
};

t9_status plan_replay_init(struct plan_replay *r, struct t9_err *err);
void plan_replay_deinit(struct plan_replay *r); /* accepts a zeroed one */
/* Reads one line into r. INVALID when it is no plan. */
t9_status plan_log_decode(struct plan_replay *r, str line, struct t9_err *err);
/* Reads one line and plans again. CORRUPT when the plan differs: names step and sequence; and when
 * its step is not the one after that of the line before: names those that are missing. */
t9_status plan_replay_line(struct plan_replay *r, str line, struct t9_err *err);

#endif
