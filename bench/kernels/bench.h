/*
 * bench/kernels/bench.h - private to bench/kernels: what the cases share.
 */
#ifndef T9_BENCH_KERNELS_BENCH_H
#define T9_BENCH_KERNELS_BENCH_H

#include "backend/be.h"

#include <stdint.h>

enum {
    FROM_MEMORY_BYTES = 128 << 20
}; /* read in turn, so that little of it is in a core's cache */

uint32_t bench_rnd(void);
/* With one thread its own CPU time, so that a busy machine does not show; else the wall clock. */
uint64_t bench_timer_ns(int n_threads);

/* What the machine can do, from loops of nothing else; 0 where it cannot be measured. */
struct limits {
    double read_gbps;  /* GB/s */
    double dot_gops;   /* int8 dot products; a multiply and an add are two ops */
    double fma_gflops; /* float32; one fma is two */
};
struct limits bench_limits(int n_threads, const char *isa);

/* bench_kernels attention [threads [isa [type [d]]]]: the exit code. */
int bench_attention(int argc, char **argv);

#endif
