/*
 * engine/sched.h - private to engine/: who gets how many rows of the next step, and who may start.
 *
 * Pure functions of the structs given; no clock, no model, no memory of their own. Any thread.
 */
#ifndef T9_ENGINE_SCHED_H
#define T9_ENGINE_SCHED_H

#include <stdbool.h>
#include <stdint.h>

/* One sequence slot as the scheduler sees it. */
struct sched_seq {
    int32_t n_pending;  /* tokens known but not computed; 0 = free slot, gets nothing */
    bool decoding;      /* its prompt is done: n_pending is 1 */
    uint64_t order;     /* admission number: prompts are served lowest first */
    uint64_t last_step; /* step in which it got rows last */
    int32_t n_rows;     /* out: rows of this step, <= n_pending */
};

/* What steps have cost so far, in ns; 0 = not known yet. */
struct sched_cost {
    double decode_step_ns; /* a step with decode rows only */
    double prompt_row_ns;  /* one prompt row beside them */
};

/* Writes n_rows of all n slots and returns their sum. At most step_tokens rows in all, at most
 * prompt_rows_max of them from prompts. */
int32_t sched_plan(struct sched_seq *seqs, int32_t n, int32_t step_tokens, int32_t prompt_rows_max);

/* Prompt rows that keep the next step within its time: 200 ms or twice a decode-only step while
 * somebody decodes, about 250 ms otherwise (promise P3). Between 1 and step_tokens. */
int32_t sched_prompt_rows(const struct sched_cost *c, int32_t step_tokens, bool decoding);
void sched_cost_update(struct sched_cost *c, int32_t decode_rows, int32_t prompt_rows,
                       uint64_t step_ns);

/* Pages that n_tokens need. */
int32_t sched_pages(int64_t n_tokens);

#endif
