/* wrap_malloc.c - see wrap_malloc.h. */
#include "wrap_malloc.h"

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
int __real_posix_memalign(void **p, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);
int __wrap_posix_memalign(void **p, size_t align, size_t n);

static _Thread_local uint64_t count;
static _Atomic uint64_t count_all;

static void add(void)
{
    count++;
    atomic_fetch_add_explicit(&count_all, 1, memory_order_relaxed);
}

void *__wrap_malloc(size_t n)
{
    add();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    add();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    add();
    return __real_realloc(p, n);
}

void __wrap_free(void *p)
{
    if (p)
        add();
    __real_free(p);
}

int __wrap_posix_memalign(void **p, size_t align, size_t n)
{
    add();
    return __real_posix_memalign(p, align, n);
}

uint64_t wrap_malloc_count(void)
{
    return count;
}

uint64_t wrap_malloc_count_all(void)
{
    return atomic_load_explicit(&count_all, memory_order_relaxed);
}
