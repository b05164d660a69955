/*
 * tests/lib/random.h - a seeded generator, for tests and for programs that stand beside them.
 */
#ifndef T9_TESTS_LIB_RANDOM_H
#define T9_TESTS_LIB_RANDOM_H

#include <stdint.h>

/* SplitMix64: a full-period generator whose streams differ for each seed. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#endif
