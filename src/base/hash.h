/* base/hash.h - XXH3 for keys and integrity; SHA-256 (libcrypto) for pins and run identity. */
#ifndef T9_BASE_HASH_H
#define T9_BASE_HASH_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

uint64_t hash_xxh3_64(const void *p, size_t n, uint64_t seed);

/* SHA-256 of a whole file as 64 lower-case hex digits and a NUL. UNSUPPORTED in a build without
 * libcrypto. */
t9_status hash_sha256_file(const char *path, char hex[65], struct t9_err *err);

#endif
