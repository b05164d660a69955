/*
 * resident.h - how much of a range has memory. For one source file of a test.
 */
#ifndef T9_TESTS_KV_RESIDENT_H
#define T9_TESTS_KV_RESIDENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { MB = 1 << 20 };

/* Bytes of [p, p + n) that have memory. */
static size_t resident(void *p, size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *in = malloc(n / page);
    size_t sum = 0;
    assert_non_null(in);
    assert_int_equal(mincore(p, n, in), 0);
    for (size_t i = 0; i < n / page; i++)
        sum += (in[i] & 1u) * page;
    free(in);
    return sum;
}

#endif
