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
float bench_value(void); /* -1 .. 1 */
/* Random blocks with ordinary scales, n_bytes of them, for mem_free. */
char *bench_weight_data(uint32_t dtype, size_t n_bytes);
/* weight_src.read; ctx: the weight's bytes. */
t9_status bench_read(void *ctx, uint64_t off, void *dst, size_t n, struct t9_err *err);
/* With one thread its own CPU time, so that a busy machine does not show; else the wall clock. */
uint64_t bench_timer_ns(int n_threads);

/* bench_kernels attention [threads [isa [type [d]]]]: the exit code. */
int bench_attention(int argc, char **argv);
/* bench_kernels experts [threads [isa [type [n_experts used [n_in n_out]]]]]: the exit code. */
int bench_experts(int argc, char **argv);

#endif
