/* base/hash.c - hashes by xxHash and, where built in (T9_HAVE_CRYPTO), OpenSSL. Any thread. */
#include "base/hash.h"

#include "base/file.h"
#include "base/mem.h"

#include <string.h>
#include <xxhash.h>
#ifdef T9_HAVE_CRYPTO
#    include <openssl/evp.h>
#endif

uint64_t hash_xxh3_64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

#ifdef T9_HAVE_CRYPTO

#    define SHA_CHUNK_BYTES ((size_t)1 << 20)

static void hex_write(const unsigned char *digest, size_t n, char *hex)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * n] = 0;
}

struct hash_sha {
    EVP_MD_CTX *ctx;
};

t9_status hash_sha_new(struct hash_sha **out, hash_sha_kind kind, struct t9_err *err)
{
    *out = NULL;
    struct hash_sha *h = mem_calloc(1, sizeof *h);
    if (!h)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a hash");
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx) {
        hash_sha_free(h);
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a hash");
    }
    if (EVP_DigestInit_ex(h->ctx, kind == HASH_SHA_1 ? EVP_sha1() : EVP_sha256(), NULL) != 1) {
        hash_sha_free(h);
        return t9_fail(err, T9_STATUS_INTERNAL, "%s is not available",
                       kind == HASH_SHA_1 ? "SHA-1" : "SHA-256");
    }
    *out = h;
    return T9_STATUS_OK;
}

void hash_sha_free(struct hash_sha *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->ctx);
    mem_free(h);
}

t9_status hash_sha_update(struct hash_sha *h, const void *p, size_t n, struct t9_err *err)
{
    if (EVP_DigestUpdate(h->ctx, p, n) != 1)
        return t9_fail(err, T9_STATUS_INTERNAL, "a hash failed");
    return T9_STATUS_OK;
}

t9_status hash_sha_finish(struct hash_sha *h, char hex[65], struct t9_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    hex[0] = 0;
    if (EVP_DigestFinal_ex(h->ctx, digest, &n) != 1 || n > 32)
        return t9_fail(err, T9_STATUS_INTERNAL, "a hash failed");
    hex_write(digest, n, hex);
    return T9_STATUS_OK;
}

static t9_status sha256_stream(const struct file *f, EVP_MD_CTX *ctx, unsigned char *chunk,
                               struct t9_err *err)
{
    if (EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1)
        return t9_fail(err, T9_STATUS_INTERNAL, "SHA-256 is not available");
    for (uint64_t off = 0; off < f->size_bytes;) {
        uint64_t left = f->size_bytes - off;
        size_t n = left < SHA_CHUNK_BYTES ? (size_t)left : SHA_CHUNK_BYTES;
        T9_TRY(file_read_at(f, off, chunk, n, err));
        if (EVP_DigestUpdate(ctx, chunk, n) != 1)
            return t9_fail(err, T9_STATUS_INTERNAL, "SHA-256 failed");
        off += n;
    }
    return T9_STATUS_OK;
}

t9_status hash_sha256_file(const char *path, char hex[65], struct t9_err *err)
{
    unsigned char digest[32];
    struct file f;
    EVP_MD_CTX *ctx = NULL;
    unsigned char *chunk = NULL;
    t9_status st = file_open(&f, path, err);
    if (st != T9_STATUS_OK)
        return st;
    ctx = EVP_MD_CTX_new();
    chunk = mem_alloc(SHA_CHUNK_BYTES);
    if (!ctx || !chunk) {
        st = t9_fail(err, T9_STATUS_NOMEM, "%s: out of memory for SHA-256", path);
        goto done;
    }
    st = sha256_stream(&f, ctx, chunk, err);
    if (st == T9_STATUS_OK && EVP_DigestFinal_ex(ctx, digest, NULL) != 1)
        st = t9_fail(err, T9_STATUS_INTERNAL, "SHA-256 failed");
    if (st != T9_STATUS_OK) {
        t9_err_prefix(err, "%s", path);
        goto done;
    }
    hex_write(digest, sizeof digest, hex);
done:
    mem_free(chunk);
    EVP_MD_CTX_free(ctx);
    file_close(&f);
    return st;
}

#else

t9_status hash_sha_new(struct hash_sha **out, hash_sha_kind kind, struct t9_err *err)
{
    (void)kind;
    *out = NULL;
    return t9_fail(err, T9_STATUS_UNSUPPORTED, "this build has no SHA-256 (libcrypto)");
}

void hash_sha_free(struct hash_sha *h)
{
    (void)h;
}

t9_status hash_sha_update(struct hash_sha *h, const void *p, size_t n, struct t9_err *err)
{
    (void)h, (void)p, (void)n;
    return t9_fail(err, T9_STATUS_UNSUPPORTED, "this build has no SHA-256 (libcrypto)");
}

t9_status hash_sha_finish(struct hash_sha *h, char hex[65], struct t9_err *err)
{
    (void)h;
    hex[0] = 0;
    return t9_fail(err, T9_STATUS_UNSUPPORTED, "this build has no SHA-256 (libcrypto)");
}

t9_status hash_sha256_file(const char *path, char hex[65], struct t9_err *err)
{
    hex[0] = 0;
    return t9_fail(err, T9_STATUS_UNSUPPORTED, "%s: this build has no SHA-256 (libcrypto)", path);
}

#endif
