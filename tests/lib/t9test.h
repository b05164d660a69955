/*
 * tests/lib/t9test.h - what every unit test needs around cmocka: its includes in the right order, a
 * folder for temporary files, and a seeded generator (random.h).
 */
#ifndef T9_TESTS_LIB_T9TEST_H
#define T9_TESTS_LIB_T9TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/random.h"

/* Whether T9_FULL is in the environment (make nightly): more sizes and repetitions of what a short
 * run proves as well. */
static inline bool test_is_full(void)
{
    return getenv("T9_FULL") != NULL;
}

/* Makes a fresh folder and writes its path; fails the test when that is not possible. */
static inline void test_tmpdir(char out[64])
{
    snprintf(out, 64, "/tmp/t9-test-XXXXXX");
    assert_non_null(mkdtemp(out));
}

/* Writes a file of n bytes. */
static inline void test_write_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

#endif
