/*
 * cli/figures.h - the few statistics that measuring commands print, and how. Pure functions.
 */
#ifndef T9_CLI_FIGURES_H
#define T9_CLI_FIGURES_H

#include "base/buf.h"

#include <stddef.h>

/* Sorts v[n] upwards. Values are never NaN. */
void figures_sort(double *v, size_t n);
/* Of sorted v[n], n >= 1: the middle one, or the mean of the two in the middle. */
double figures_median(const double *v, size_t n);
/* Of sorted v[n], n >= 1: the smallest value that at least p percent (0 .. 100) are not above. */
double figures_percentile(const double *v, size_t n, double p);
/* Mean of v[n], n >= 1, and its standard error: the standard deviation (n - 1) over sqrt(n); 0 when
 * n is 1. */
double figures_mean(const double *v, size_t n, double *standard_error);
/* A member of a JSON object, after others; NaN becomes null. */
void figures_write(struct buf *out, const char *key, double v);

#endif
