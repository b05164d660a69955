/*
 * base/mem.c - the one place that calls malloc, with per-thread counting and failure injection.
 *
 * The counters are thread-local: a test that makes the n-th allocation fail does not disturb other
 * threads, and the engine can show that a step allocated nothing. Any thread.
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Sizes beyond this are programming or input errors; sanitizers end the process for them. */
#define MEM_SIZE_MAX ((size_t)1 << 39)

static _Thread_local uint64_t alloc_count;
static _Thread_local uint64_t fail_countdown;

/* Counts one allocation; false when it must fail. */
static bool admit(size_t size_bytes)
{
    alloc_count++;
    if (fail_countdown > 0 && --fail_countdown == 0)
        return false;
    return size_bytes <= MEM_SIZE_MAX;
}

void *mem_alloc(size_t size_bytes)
{
    if (!admit(size_bytes))
        return NULL;
    return malloc(size_bytes ? size_bytes : 1);
}

void *mem_calloc(size_t n, size_t size_bytes)
{
    size_t total;
    if (__builtin_mul_overflow(n, size_bytes, &total) || !admit(total))
        return NULL;
    return calloc(total ? total : 1, 1);
}

void *mem_realloc(void *p, size_t n, size_t size_bytes)
{
    size_t total;
    if (__builtin_mul_overflow(n, size_bytes, &total) || !admit(total))
        return NULL;
    return realloc(p, total ? total : 1);
}

void *mem_alloc_aligned(size_t align, size_t size_bytes)
{
    void *p = NULL;
    if (!admit(size_bytes))
        return NULL;
    if (posix_memalign(&p, align, size_bytes ? size_bytes : align) != 0)
        return NULL;
    return p;
}

void mem_free(void *p)
{
    free(p);
}

void mem_want_huge(void *p, size_t size_bytes)
{
#ifdef MADV_HUGEPAGE
    (void)madvise(p, size_bytes, MADV_HUGEPAGE); /* a refusal does no harm */
#else
    (void)p, (void)size_bytes;
#endif
}

char *mem_strndup(const char *p, size_t n)
{
    if (n >= MEM_SIZE_MAX)
        return NULL;
    char *copy = mem_alloc(n + 1);
    if (!copy)
        return NULL;
    if (n)
        memcpy(copy, p, n);
    copy[n] = 0;
    return copy;
}

uint64_t mem_thread_alloc_count(void)
{
    return alloc_count;
}

void mem_test_fail_nth(uint64_t n)
{
    fail_countdown = n;
}
