/* backend/det_math.c - sincos for rotary angles. See det_math.h. */
#include "backend/det_math.h"

/* pi/2 in three parts; the first two have 30 bits, so n * part is exact for n below 2^23. */
#define PIO2_1     0x1.921fb54p+0
#define PIO2_2     0x1.10b4611800000p-30
#define PIO2_3     0x1.313198a2e0370p-61
#define TWO_OVR_PI 0x1.45f306dc9c883p-1
/* Above this a quadrant number would not fit; such angles have no meaning as float anyway. */
#define ANGLE_MAX 1e15

/* Taylor polynomials on |r| <= pi/4: error below 1e-13, far under a float's rounding. */
static double sin_poly(double r)
{
    double z = r * r;
    double p = -1.0 / 39916800.0 + z * (1.0 / 6227020800.0);
    p = 1.0 / 362880.0 + z * p;
    p = -1.0 / 5040.0 + z * p;
    p = 1.0 / 120.0 + z * p;
    p = -1.0 / 6.0 + z * p;
    return r + r * (z * p);
}

static double cos_poly(double r)
{
    double z = r * r;
    double p = 1.0 / 479001600.0 - z * (1.0 / 87178291200.0);
    p = -1.0 / 3628800.0 + z * p;
    p = 1.0 / 40320.0 + z * p;
    p = -1.0 / 720.0 + z * p;
    p = 1.0 / 24.0 + z * p;
    p = -0.5 + z * p;
    return 1.0 + z * p;
}

void det_sincos(float angle, float *sin_out, float *cos_out)
{
    double x = (double)angle;
    if (!(fabs(x) < ANGLE_MAX)) {
        *sin_out = *cos_out = NAN;
        return;
    }
    double n = rint(x * TWO_OVR_PI);
    double r = ((x - n * PIO2_1) - n * PIO2_2) - n * PIO2_3;
    double s = sin_poly(r), c = cos_poly(r);
    switch ((int64_t)n & 3) {
    case 0: *sin_out = (float)s, *cos_out = (float)c; break;
    case 1: *sin_out = (float)c, *cos_out = (float)-s; break;
    case 2: *sin_out = (float)-s, *cos_out = (float)-c; break;
    default: *sin_out = (float)-c, *cos_out = (float)s; break;
    }
}
