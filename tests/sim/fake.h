/*
 * fake.h - the simulator's model, backend and clock.
 *
 * Each slot of a page holds a token, its index, and a hash of all tokens up to it. A row reads
 * every slot before it through its page table, as attention would, and is a fault when one of them
 * is not what belongs there: a wrong page, a stale tail, a page that somebody else writes to. A
 * model with a window has the same in window pages, of which a row reads what lies in its window.
 * The logits are a function of the hash, so they say which token comes next in any sequence.
 *
 * Time is simulated: a step takes what a cost model with seeded noise says, and nothing else takes
 * any. So a seed gives the same run on every machine.
 */
#ifndef T9_TESTS_SIM_FAKE_H
#define T9_TESTS_SIM_FAKE_H

#include "backend/be.h"
#include "model/model.h"
#include "tokenizer/vocab.h"

#include <stdatomic.h>

enum {
    SIM_VOCAB = 40,
    SIM_EOG = 1,
    SIM_STATE_BYTES = 12288, /* three pages */
};

/* What a model has beside its pages. */
enum sim_kind {
    SIM_KIND_PLAIN,
    SIM_KIND_HYBRID, /* a recurrent state */
    SIM_KIND_WINDOW, /* window pages; windows of several sizes from here on */
    SIM_KINDS = SIM_KIND_WINDOW + 4
};

struct model {
    struct model_info info;
    int32_t window;
};

struct be {
    uint64_t rng;             /* noise of the clock; engine thread */
    const struct kv_geom *kv; /* of the last batch */
    void *kv_pool, *window_pool;
    const struct state_geom *state;
    void *state_pool;
    _Atomic int64_t reserved; /* areas reserved and not given back */
    atomic_bool faulty;       /* release-stored after `fault` */
    char fault[200];
};

/* What a page holds of one token. */
struct sim_slot {
    uint64_t chain; /* of the tokens up to this one */
    int32_t token, index;
};

/* What a state holds: the hash of all tokens so far. */
uint64_t *sim_state(const struct state_geom *g, void *pool, int32_t slot);
uint64_t sim_mix(uint64_t x);
/* The hash of one token more; that of no tokens is 0. */
uint64_t sim_chain(uint64_t chain, int32_t token);
/* Logits that follow the tokens of this hash. */
void sim_logits(uint64_t chain, float out[SIM_VOCAB]);
struct model *sim_model(int kind); /* enum sim_kind */
const struct vocab *sim_vocab(void);
void sim_clock_set(uint64_t ns);
void sim_clock_add(uint64_t ns);

#endif
