/*
 * fake.h - a scripted model and backend for the engine's tests.
 *
 * The "model" writes each row's token into its KV page and computes a row of logits as a hash of
 * all tokens that it finds through the page table. So a wrong page, a wrong index, a stale value or
 * a missing row changes every later logit, and fake_logits() says what they must be.
 */
#ifndef T9_TESTS_ENGINE_FAKE_H
#define T9_TESTS_ENGINE_FAKE_H

#include "backend/be.h"
#include "model/model.h"
#include "tokenizer/vocab.h"

#include <semaphore.h>
#include <stdatomic.h>

enum {
    FAKE_VOCAB = 64,  /* rows of the output matrix */
    FAKE_TOKENS = 60, /* tokens of the vocabulary: four rows are padding */
    FAKE_EOG = 1,
    FAKE_SUPPRESSED = 2,
    FAKE_POISON =
        59, /* a sequence whose newest token this is gets a NaN among its logits; never sampled */
    FAKE_CONTEXT = 1 << 20, /* what the file declares */
    FAKE_LOG_CAP = 4096,
    FAKE_ROWS_MAX = 4096, /* of a step */
};

struct model {
    struct model_info info;
};

struct be {
    /* Set by the test between runs. */
    _Atomic uint64_t fail_at; /* be_run number that fails, 0 = none */
    _Atomic uint64_t delay_us;
    atomic_bool gated;  /* each run waits for a post of `permit` */
    sem_t permit, done; /* done is posted after each gated run */
    /* Read by the test. */
    _Atomic uint64_t runs;
    _Atomic uint64_t run_ns;            /* time spent in be_run */
    _Atomic uint64_t broken;            /* batches that broke a rule of batch.h */
    _Atomic int32_t rows[FAKE_LOG_CAP]; /* rows of run i */
    _Atomic int64_t reserved;           /* areas reserved and not given back */
};

struct be *fake_be_new(void);
void fake_be_free(struct be *be);
struct model *fake_model(void);
struct model *fake_hybrid(void); /* beside the pages a recurrent state of 4 KB */
const struct vocab *fake_vocab(void);
/* Logits that follow the tokens [n]. */
void fake_logits(const int32_t *tokens, int32_t n, float out[FAKE_VOCAB]);

#endif
