/*
 * Fuzz target of engine/plan_log: a line of a file is a plan or refused with words; what was read
 * is the same when it is written and read again, and the scheduler can be asked again for it.
 */
#include "engine/plan_log.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static bool same(const struct plan_replay *a, const struct plan_replay *b)
{
    if (a->n != b->n || a->rows != b->rows || a->in.step != b->in.step)
        return false;
    for (int32_t i = 0; i < a->n; i++) {
        const struct sched_seq *x = &a->seqs[i], *y = &b->seqs[i];
        if (x->n_rows != y->n_rows || x->priority != y->priority || x->n_pending != y->n_pending ||
            x->order != y->order)
            return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static struct plan_replay first, again;
    struct t9_err err = {0};
    if (!first.seqs)
        must(plan_replay_init(&first, &err) == T9_STATUS_OK &&
             plan_replay_init(&again, &err) == T9_STATUS_OK);
    /* Of just its size, so that one byte too far is seen. */
    char *line = malloc(n + 1);
    if (!line)
        return 0;
    if (n)
        memcpy(line, p, n);
    if (plan_log_decode(&first, (str){line, n}, &err) == T9_STATUS_OK) {
        must(first.n >= 0 && first.n <= PLAN_LOG_SEQS_MAX);
        size_t cap = plan_log_line_cap(first.n);
        char *text = malloc(cap);
        must(text != NULL);
        size_t n_text = plan_log_encode(text, cap, &first.in, first.seqs, first.n, first.rows);
        must(n_text <= cap);
        str whole = {text, n_text - (n_text && text[n_text - 1] == '\n')};
        must(plan_log_decode(&again, whole, &err) == T9_STATUS_OK && same(&first, &again));
        free(text);
    } else {
        must(err.msg[0] != 0);
    }
    (void)plan_replay_line(&again, (str){line, n}, &err);
    free(line);
    return 0;
}
