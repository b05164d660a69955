/*
 * hub/cache.h - one repository's folder in the cache on disk (layout: hub/hub.h).
 *
 * Every step goes by descriptors and never follows a link below the cache's folder, so that what
 * somebody else put there cannot lead a write elsewhere; a snapshot's link is followed only when it
 * is the one that the layout has.
 */
#ifndef T9_HUB_CACHE_H
#define T9_HUB_CACHE_H

#include "hub/files.h"

struct hub_cache {
    const char *dir;
    char folder[HUB_REPO_MAX + 16]; /* models--OWNER--REPO */
    int root, repo, blobs, snapshots, locks;
};

/* Opens the repository's folder. With `create` it is made; else NOT_FOUND when it is not there.
 * `dir` must outlive it. */
t9_status hub_cache_open(struct hub_cache *c, const char *dir, const char *repo, bool create,
                         struct t9_err *err);
void hub_cache_close(struct hub_cache *c); /* accepts one that failed to open */

/* The commit that refs/main names; NOT_FOUND when there is none. */
t9_status hub_cache_ref_read(const struct hub_cache *c, char commit[41], struct t9_err *err);
t9_status hub_cache_ref_write(const struct hub_cache *c, const char *commit, struct t9_err *err);

/* The GGUF files of a snapshot whose bytes are there; hashes are left empty. */
t9_status hub_cache_list(const struct hub_cache *c, const char *commit, struct arena *arena,
                         struct hub_files *out, struct t9_err *err);

/* Whether the blob is there with exactly this size. */
bool hub_cache_has(const struct hub_cache *c, const char *hash, uint64_t size_bytes);
/* Makes snapshots/COMMIT/PATH a relative link to the blob, replacing what is there. */
t9_status hub_cache_link(const struct hub_cache *c, const char *commit, str path, const char *hash,
                         struct t9_err *err);
/* The full path of a file of a snapshot. */
t9_status hub_cache_path(const struct hub_cache *c, const char *commit, str path,
                         char out[HUB_FILE_PATH_MAX], struct t9_err *err);

/* Opens HASH.incomplete for going on; *size_bytes is what it has. */
t9_status hub_cache_partial_open(const struct hub_cache *c, const char *hash, int *fd,
                                 uint64_t *size_bytes, struct t9_err *err);
/* Syncs it and makes it the blob. */
t9_status hub_cache_partial_finish(const struct hub_cache *c, const char *hash, int fd,
                                   struct t9_err *err);
void hub_cache_partial_remove(const struct hub_cache *c, const char *hash);
uint64_t hub_cache_partial_bytes(const struct hub_cache *c, const char *hash);

/* Bytes that this user may still write where the blobs are. */
uint64_t hub_cache_free_bytes(const struct hub_cache *c);

/* Takes the lock of one blob without waiting: BUSY when another program has it. Close *fd to give
 * it back. */
t9_status hub_cache_lock(const struct hub_cache *c, const char *hash, int *fd, struct t9_err *err);

#endif
