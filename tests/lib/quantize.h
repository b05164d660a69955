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

/* Writes the f16 scale d of a block, and m where the type has a second one. False for types whose
 * scales are no f16 (F16 counts as its own scale): nothing is written. */
bool quantize_set_scales(uint32_t dtype, void *block, uint16_t d, uint16_t m);

#endif
