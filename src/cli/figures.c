/*
 * cli/figures.c - see figures.h.
 */
#include "cli/figures.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void figures_sort(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
}

double figures_median(const double *v, size_t n)
{
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double figures_percentile(const double *v, size_t n, double p)
{
    double rank = ceil((double)n * p / 100);
    size_t at = rank < 1 ? 0 : (size_t)rank - 1;
    return v[at < n ? at : n - 1];
}

double figures_mean(const double *v, size_t n, double *standard_error)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (v[i] - mean) * (v[i] - mean);
    *standard_error = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : 0;
    return mean;
}

void figures_write(struct buf *out, const char *key, double v)
{
    buf_puts(out, ",");
    json_write_key(out, key);
    json_write_f64(out, v);
}
