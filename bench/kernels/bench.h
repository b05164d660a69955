/*
 * bench/kernels/bench.h - private to bench/kernels: what the cases share.
 */
#ifndef T9_BENCH_KERNELS_BENCH_H
#define T9_BENCH_KERNELS_BENCH_H

#include "backend/be.h"
#include "backend/limits.h"

#include <stdint.h>

enum {
    FROM_MEMORY_BYTES = 128 << 20
}; /* read in turn, so that little of it is in a core's cache */

uint32_t bench_rnd(void);
/* With one thread its own CPU time, so that a busy machine does not show; else the wall clock. */
uint64_t bench_timer_ns(int n_threads);

/* bench_kernels attention [threads [isa [type [d]]]]: the exit code. */
int bench_attention(int argc, char **argv);

#endif
