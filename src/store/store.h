/*
 * store/store.h - responses that are kept for a while, in a file of their own (SQLite). What is
 * kept is text to the store: it knows ids, whose they are, and what came before.
 *
 * Bounded in bytes and in number, and each conversation expires some time after its last use; what
 * was used last goes last. The file can be read by its owner only, and what is taken out of it is
 * overwritten. Nothing that is stored goes to the log.
 *
 * Any thread, but for open and close. store_put copies and returns; a thread of the store writes.
 * The others read the file, and wait for what was put before them.
 */
#ifndef T9_STORE_STORE_H
#define T9_STORE_STORE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct store;

enum {
    STORE_ID_BYTES_MAX = 64,
    STORE_CONVERSATION_MAX = 4096,          /* responses */
    STORE_CONVERSATION_BYTES_MAX = 64 << 20 /* of their texts, that are read at once */
};

struct store_params {
    const char *path;
    uint64_t max_bytes; /* of what is kept; the file is somewhat larger */
    int64_t max_responses;
    int64_t ttl_s;
    int64_t (*now_s)(void); /* NULL: the clock */
};

struct store_row {
    str id;
    str previous;        /* the one that it goes on from, or empty */
    uint64_t owner;      /* who may see it */
    str response, input; /* texts */
};

/* INVALID: the path is no file of ours; IO: it can't be had, or another program has it;
 * UNSUPPORTED: a build without SQLite. The message says which and what to do. */
t9_status store_open(struct store **out, const struct store_params *p, struct t9_err *err);
void store_close(struct store *s); /* writes what was put; NULL allowed */

/* BUSY when too much waits to be written. What can't be written later on is told in the log. */
t9_status store_put(struct store *s, const struct store_row *row, struct t9_err *err);
/* Appends to the buffers, each of which may be NULL. NOT_FOUND, also for another owner. */
t9_status store_get(struct store *s, str id, uint64_t owner, struct buf *response,
                    struct buf *input, struct t9_err *err);
typedef t9_status (*store_row_fn)(void *ctx, const struct store_row *row, struct t9_err *err);
/* Tells of `id` and all that it goes on from, the first one first, and counts as a use of them.
 * NOT_FOUND when one of them is not there, TOO_LARGE beyond the bounds above. */
t9_status store_conversation(struct store *s, str id, uint64_t owner, store_row_fn fn, void *ctx,
                             struct t9_err *err);
/* NOT_FOUND as above. */
t9_status store_delete(struct store *s, str id, uint64_t owner, struct t9_err *err);

struct store_stats {
    uint64_t n_bytes;
    int64_t n_responses;
    uint64_t n_lost; /* put, and not written */
};
void store_stats(struct store *s, struct store_stats *out);

#endif
