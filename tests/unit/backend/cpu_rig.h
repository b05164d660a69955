/*
 * tests/unit/backend/cpu_rig.h - canon, and cpu with every instruction set and number of threads,
 * to compare them; random and extreme weights and rows. One rig a test program.
 */
#ifndef T9_TESTS_UNIT_BACKEND_CPU_RIG_H
#define T9_TESTS_UNIT_BACKEND_CPU_RIG_H

#include "backend/be.h"
#include "gguf/dtype.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* Sanitizers make canon and the scalar path very slow: every so many cases only. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RIG_STEP = 4 };
#else
enum { RIG_STEP = 1 };
#endif

enum {
    RIG_ROWS_MAX = 40,
    RIG_THREADS_MAX = 4,
    RIG_ISAS = 3,
    RIG_TYPES = 28,       /* types of weights */
    RIG_TYPES_TILED = 16, /* the first of them, which have tiles of their own */
};

extern const char *const rig_isas[RIG_ISAS];
extern const uint32_t rig_dtypes[RIG_TYPES];

extern struct rig {
    struct be *canon;
    struct be *cpu[RIG_ISAS][RIG_THREADS_MAX]; /* NULL where the machine has no such ISA */
    uint64_t rng;
} rig;

#define FOR_EACH_CPU(be, isa, threads)                                                             \
    for (int isa = 0; isa < RIG_ISAS; isa++)                                                       \
        for (int threads = 1; threads <= RIG_THREADS_MAX; threads++)                               \
            for (struct be *be = rig.cpu[isa][threads - 1]; be; be = NULL)

/* For cmocka's groups. What this machine lacks is named and left out. */
int rig_setup(void **state);
int rig_teardown(void **state);

uint32_t rig_rnd(void);
float rig_rnd_f32(float scale); /* about normal */
/* The caller frees these. */
float *rig_floats(size_t n, float scale);
/* With `extreme`, blocks and scales from the corners of their types. */
uint8_t *rig_rnd_weight(uint32_t dtype, int32_t n_in, int32_t n_out, bool extreme);
/* Makes some blocks of x zeros, huge, tiny, one outlier, NaN, inf. */
void rig_extreme_rows(float *x, size_t n);

void rig_same_bits(const char *what, const char *isa, int threads, const void *got,
                   const void *want, size_t n);
/* n_experts as of struct weight_src. */
struct weight rig_load(struct be *be, uint32_t dtype, void *data, int32_t n_in, int32_t n_out,
                       int32_t n_experts);
void rig_run(struct be *be, void (*fn)(struct cx *cx, void *arg), void *arg);

#endif
