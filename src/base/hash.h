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

/* A SHA that is fed piece by piece; one thread. UNSUPPORTED in a build without libcrypto. SHA-1 is
 * for the names that git gives to small files, never for trust in a stranger. */
typedef enum hash_sha_kind {
    HASH_SHA_1,
    HASH_SHA_256,
} hash_sha_kind;
struct hash_sha;
t9_status hash_sha_new(struct hash_sha **out, hash_sha_kind kind, struct t9_err *err);
void hash_sha_free(struct hash_sha *h); /* accepts NULL */
t9_status hash_sha_update(struct hash_sha *h, const void *p, size_t n, struct t9_err *err);
/* Lower-case hex digits (40 or 64) and a NUL. Nothing more can be fed afterwards. */
t9_status hash_sha_finish(struct hash_sha *h, char hex[65], struct t9_err *err);

#endif
