/*
 * base/mem.h - the only place that calls malloc. Any thread.
 *
 * Each function returns NULL on failure or on an overflowing size; nothing here ends the process.
 * Tests can make the n-th allocation of the calling thread fail and can count allocations.
 */
#ifndef T9_BASE_MEM_H
#define T9_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t size_bytes);
void *mem_calloc(size_t n, size_t size_bytes);
/* Resizes to n * size_bytes; on failure returns NULL and leaves `p` valid. */
void *mem_realloc(void *p, size_t n, size_t size_bytes);
/* `align` is a power of two >= 16; free with mem_free. */
void *mem_alloc_aligned(size_t align, size_t size_bytes);
void mem_free(void *p);
/* What the system may back where one byte is asked for, on most machines. */
enum { MEM_HUGE_BYTES = 2 << 20 };
/* A hint: this memory is streamed through and should lie in huge pages, which need fewer TLB
 * entries. `p` is on a page; a system that can't does nothing. */
void mem_want_huge(void *p, size_t size_bytes);
/* NUL-terminated copy of n bytes at p, or NULL. */
char *mem_strndup(const char *p, size_t n);

/* Allocations made through this header by the calling thread since it started. */
uint64_t mem_thread_alloc_count(void);
/* The n-th following allocation of the calling thread fails (1 = the next one); 0 switches it off.
 */
void mem_test_fail_nth(uint64_t n);

#endif
