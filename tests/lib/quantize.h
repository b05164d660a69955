/*
 * tests/lib/quantize.h - simple quantisers for tests. The rounding is plain; the block formats are
 * exact and use their whole range: scale 63, mins, negative d, negative sub-block scales.
 */
#ifndef T9_TESTS_LIB_QUANTIZE_H
#define T9_TESTS_LIB_QUANTIZE_H

#include "gguf/dtype.h"

/* Whether quantize_row makes blocks of this type from values (else it makes random ones). */
bool quantize_is_exact(uint32_t dtype);
/* n values (whole blocks) to blocks at dst. Types without a quantiser here (Q2_K, Q3_K, all of IQ
 * and TQ, MXFP4, NVFP4, Q1_0, Q2_0) get random codes whose scale fits the values' magnitude: enough
 * to compare two implementations on. INVALID for other types and for broken blocks. */
t9_status quantize_row(uint32_t dtype, const float *x, void *dst, size_t n, struct t9_err *err);

#endif
