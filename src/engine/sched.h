/*
 * engine/sched.h - private to engine/: who gets how many rows of the next step, who may start and
 * who gives way.
 *
 * Pure functions of the structs given; no clock, no model, no memory of their own. Any thread.
 * What sched_plan was given and what it answered can be logged and replayed (plan_log.h).
 */
#ifndef T9_ENGINE_SCHED_H
#define T9_ENGINE_SCHED_H

#include <stdbool.h>
#include <stdint.h>

/* One sequence slot as the scheduler sees it. */
struct sched_seq {
    bool used;          /* somebody is in it; one that gets no rows holds pages all the same */
    bool decoding;      /* all but its newest token is computed: n_pending is 1 */
    int32_t priority;   /* higher first */
    int32_t n_pending;  /* tokens known but not computed; 0 = gets nothing */
    int32_t n_computed; /* tokens before them: what each row attends to besides */
    uint64_t order;     /* number of its submission */
    uint64_t last_step; /* step in which it got rows last */
    int32_t n_limit;    /* rows of this step at most; 0 = no limit */
    int32_t n_rows;     /* out: rows of this step, <= n_pending and n_limit */
};

/* The cost of a step in ns: step_ns + rows * row_ns + attended keys * key_ns + experts_ns times the
 * part of a layer's experts that so many rows meet, all of it times stretch. All 0 = nothing
 * measured yet. */
struct sched_cost {
    double step_ns, row_ns, key_ns;
    double experts_ns; /* to read the weights of all experts once */
    double stretch;    /* >= 1: how much longer steps took than this says, lately */
    /* Part of a layer's experts that one row meets, at most 1; 0 = no experts. Set by the owner. */
    double experts_met;
};

enum { SCHED_TERMS = 4 }; /* rows, 1, keys, experts met */

/* Least squares over measured steps, older ones forgotten. Steps with and without prompt rows are
 * forgotten apart, so that an hour of decoding does not wipe out what a prompt row costs. */
struct sched_fit {
    double sum[2][SCHED_TERMS][SCHED_TERMS], rhs[2][SCHED_TERMS];
    double x[SCHED_TERMS];
    /* Where steps do not tell the terms apart: what a prompt row adds to a step, moving average,
     * and what an attended key and reading all experts cost of that. The ratios are set by the
     * owner; 0 = unknown. */
    double decode_ns, row_ns, key_ratio, experts_ratio;
    int32_t n;
};

struct sched_step {
    uint64_t step;
    int32_t step_tokens; /* rows in all */
    struct sched_cost cost;
};

/* Writes n_rows of all n slots and returns their sum, at most step_tokens. */
int32_t sched_plan(struct sched_seq *seqs, int32_t n, const struct sched_step *in);

/* Keys that n_rows rows after n_computed tokens attend to. */
double sched_keys(int32_t n_computed, int32_t n_rows);
double sched_cost_ns(const struct sched_cost *c, int32_t rows, double keys);
/* Time to compute n tokens after n_computed alone, in steps of at most step_tokens rows. */
double sched_prompt_ns(const struct sched_cost *c, int32_t n_computed, int32_t n,
                       int32_t step_tokens);
/* A step of so many rows (prompt_rows of them from prompts) and keys took step_ns: improves the
 * model. */
void sched_cost_update(struct sched_fit *f, struct sched_cost *c, int32_t rows, int32_t prompt_rows,
                       double keys, uint64_t step_ns);

/* The used slot that gives its pages back first: of the lowest priority the newest; -1 = none. */
int32_t sched_victim(const struct sched_seq *seqs, int32_t n);
/* Tokens of reply that a request must have room for before it starts, at most n_left: more for one
 * that was preempted before, so that it is not preempted again and again. */
int32_t sched_margin_tokens(int32_t n_left, int32_t n_preempted);

/* Pages that n_tokens need. */
int32_t sched_pages(int64_t n_tokens);

#endif
