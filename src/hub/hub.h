/*
 * hub/hub.h - where models come from besides a path: a Hugging Face hub with its local cache, and
 * Ollama's store on this machine.
 *
 * The hub is the only thing that tempo9 ever connects to, and only inside hub_get(). The cache has
 * the layout that the hub's own tools use, so that a model is on the disk once:
 *
 *   DIR/models--OWNER--REPO/blobs/HASH            the bytes, named by their hash
 *   DIR/models--OWNER--REPO/blobs/HASH.incomplete what is there of them so far
 *   DIR/models--OWNER--REPO/snapshots/COMMIT/NAME a relative link to the blob
 *   DIR/models--OWNER--REPO/refs/main             the commit that was last asked for
 *   DIR/.locks/models--OWNER--REPO/HASH.lock      held (flock) while HASH is downloaded
 *
 * Everything that a server, a manifest or a folder says is checked: names, sizes, hashes, links.
 * One thread at a time; nothing here reads the environment or writes to a terminal.
 */
#ifndef T9_HUB_HUB_H
#define T9_HUB_HUB_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { HUB_FILE_PATH_MAX = 4096, HUB_MODEL_NAME_MAX = 520, HUB_HASH_MAX = 65 };

#define HUB_ENDPOINT_DEFAULT "https://huggingface.co"

struct hub_progress {
    const char *file;                 /* name in the repository */
    uint64_t done_bytes, total_bytes; /* of all files that are fetched */
    uint64_t fetched_bytes;           /* that came over the network */
    bool waiting;                     /* for another program's download, or before a new try */
};

struct hub_params {
    const char *cache_dir;
    const char *endpoint;   /* https://HOST, or http:// of this machine */
    const char *token;      /* NULL: none. Sent to the endpoint and to nobody else, never logged. */
    const char *user_agent; /* "tempo9/1.2.3" */
    bool offline;           /* connect to nothing: what is in the cache, or NOT_FOUND */
    bool cache_will_do;     /* a hub that cannot be reached is no failure when the cache has it */
    int32_t retries;        /* further tries without progress after a failure that may pass */
    int32_t stall_s;        /* seconds without a byte before a connection counts as cut */
    /* Called often (at least once a second); false stops everything with CANCELLED. May be NULL. */
    bool (*progress)(void *ctx, const struct hub_progress *p);
    /* One line that a person should see, without an end of line. May be NULL. */
    void (*note)(void *ctx, const char *text);
    void *ctx;
};

struct hub_model {
    char path[HUB_FILE_PATH_MAX];  /* of the first part */
    char name[HUB_MODEL_NAME_MAX]; /* for clients: the file's name, or Ollama's NAME:TAG */
};

/*
 * Finds the file that `spec` means (OWNER/REPO, OWNER/REPO:QUANT or OWNER/REPO:FILE.gguf), fetches
 * what the cache lacks of it, and checks the hash. A download that was stopped goes on where it
 * was. INVALID: the name, or a choice that the user must make (note() listed it). NOT_FOUND,
 * FORBIDDEN: said by the hub. IO: network or disk. CORRUPT: wrong hash (the file is removed) or an
 * answer that contradicts itself. CANCELLED: by progress(). UNSUPPORTED: a build without libcurl.
 */
t9_status hub_get(struct hub_model *out, const struct hub_params *p, const char *spec,
                  struct t9_err *err);

/* The file of MODEL[:TAG] ([HOST/][NAMESPACE/]MODEL) in Ollama's store at `dir`, which is only
 * read. `note` as above, may be NULL. */
t9_status hub_ollama_find(struct hub_model *out, const char *dir, const char *spec,
                          void (*note)(void *ctx, const char *text), void *ctx, struct t9_err *err);

/* Calls `each` for every model of the store, sorted by name; `problem` is NULL, or why it cannot be
 * used. NOT_FOUND when there is no store. */
t9_status hub_ollama_list(const char *dir,
                          void (*each)(void *ctx, const char *name, uint64_t size_bytes,
                                       const char *problem),
                          void *ctx, struct t9_err *err);

#endif
