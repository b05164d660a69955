/*
 * base/memory.h - how much memory this process may still take: what the system has left, and what
 * the control groups that it is in allow. Any thread.
 */
#ifndef T9_BASE_MEMORY_H
#define T9_BASE_MEMORY_H

#include <stdint.h>

/* Bytes; UINT64_MAX when the system does not say. `root` goes before /proc and /sys ("" for the
 * real ones): tests have their own. */
uint64_t memory_available_bytes(const char *root);
/* The default budget of the KV cache: half of that, so that the rest of the machine, or of the
 * container, keeps working; at least 64 MB, and 1 GB when the system does not say. */
uint64_t memory_kv_default_bytes(const char *root);

#endif
