/*
 * backend/limits.h - what the machine can do, from loops of nothing else: the yardsticks of
 * kernels and of `bench`. Not for the time in which anything else runs.
 */
#ifndef T9_BACKEND_LIMITS_H
#define T9_BACKEND_LIMITS_H

#include <stdint.h>

enum { BE_LIMITS_THREADS_MAX = 64 };

/* 0 where it could not be measured. */
struct be_limits {
    double read_gbps;  /* reading memory in turn, GB/s */
    double dot_gops;   /* int8 dot products in registers; a multiply and an add are two ops */
    double fma_gflops; /* float32 in registers; one fma is two */
};
/* Best of three to twenty short rounds, on n_threads threads (at most BE_LIMITS_THREADS_MAX are
 * started), with the instruction set that be_isa names. Takes about a quarter of a second (some,
 * where all is slow) and 128 MiB, or measures nothing where memory or threads cannot be had. */
struct be_limits be_limits_measure(int n_threads, const char *isa);

#endif
