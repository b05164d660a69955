/*
 * tests/unit/model/fixture.h - a tiny model with the reference library's logits (tests/data/models
 * or the fixtures folder).
 */
#ifndef T9_TESTS_UNIT_MODEL_FIXTURE_H
#define T9_TESTS_UNIT_MODEL_FIXTURE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { FIXTURE_TOKENS_MAX = 256 };

struct fixture {
    char path[512]; /* of model.gguf */
    int32_t n_vocab;
    bool quantised; /* the matrices: integer paths round what the reference does not */
    int32_t tokens[FIXTURE_TOKENS_MAX], n_tokens;
    int32_t n_prompt, greedy[FIXTURE_TOKENS_MAX], n_greedy; /* 0: no continuation */
    float *logits;                                          /* [n_tokens][n_vocab] */
    /* With media rows: the place of the first, how many, layers with inputs behind them, positions
     * [n_tokens][3]. The files are the test's to read. */
    int32_t media_first, media_rows, n_deepstack, pos[3 * FIXTURE_TOKENS_MAX];
};

/* The name of a folder of either, or a path from the root. NOT_FOUND when neither place has a model
 * of this name. */
t9_status fixture_load(struct fixture *f, const char *name, struct t9_err *err);
void fixture_free(struct fixture *f);
/* n floats of a file of this model; the caller frees. */
t9_status fixture_floats(const char *name, const char *file, size_t n, float **out,
                         struct t9_err *err);
/* Only the path. */
bool fixture_path(char *out, size_t n, const char *name, const char *file);
/* Largest over n rows of ||ours - reference|| / ||reference||. */
double fixture_error(const float *ours, const float *reference, int32_t n_rows, int32_t n_vocab);
/* The middle one instead of the largest: for models with experts in coarse numbers, where rounding
 * decides between two experts that are nearly equal, and the row then differs by as much as they
 * do. */
double fixture_error_median(const float *ours, const float *reference, int32_t n_rows,
                            int32_t n_vocab);

#endif
