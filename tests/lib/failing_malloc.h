/*
 * tests/lib/failing_malloc.h - allocations that fail when the test says so. The test is linked with
 * -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign.
 */
#ifndef T9_TESTS_LIB_FAILING_MALLOC_H
#define T9_TESTS_LIB_FAILING_MALLOC_H

#include <stdbool.h>

/* The test's own: asked at each allocation, in whatever thread; true: it fails with ENOMEM. Must
 * not allocate. */
bool failing_malloc_fails(void);

#endif
