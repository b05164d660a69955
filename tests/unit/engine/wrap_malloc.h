/* wrap_malloc.h - counts calls of the C allocator by thread (the test is linked with --wrap). */
#ifndef T9_TESTS_ENGINE_WRAP_MALLOC_H
#define T9_TESTS_ENGINE_WRAP_MALLOC_H

#include <stdint.h>

/* Calls of malloc, calloc, realloc, posix_memalign and free by the calling thread. */
uint64_t wrap_malloc_count(void);
/* By all threads together. */
uint64_t wrap_malloc_count_all(void);

#endif
