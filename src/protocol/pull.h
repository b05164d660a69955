/*
 * protocol/pull.h - a model that is fetched while a client is told how far it is. What fetches is
 * not ours: whoever starts the server gives it, and there is none unless that is wanted.
 *
 * A thread of its own fetches; one download at a time. The reader takes what is newest: who reads
 * late misses figures, never the end.
 */
#ifndef T9_PROTOCOL_PULL_H
#define T9_PROTOCOL_PULL_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PULL_NAME_BYTES_MAX = 512, PULL_FILE_BYTES_MAX = 512 };

struct pull_progress {
    const char *file;
    uint64_t total_bytes, done_bytes; /* of all files */
};

/* Outlives the server. */
struct pull_hook {
    /* Fetches the model of that name, or finds that it is there. Calls `progress` at least once a
     * second; false from it stops everything with CANCELLED. */
    t9_status (*get)(void *ctx, const char *name,
                     bool (*progress)(void *to, const struct pull_progress *p), void *to,
                     struct t9_err *err);
    void *ctx;
    atomic_bool busy; /* a download is under way */
};

struct pull;
/* BUSY while another one is under way. `wake` is called on the download's thread when something is
 * new and the reader has seen all that was before, and once at its end (`last`); no call comes
 * after that one. */
t9_status pull_start(struct pull **out, struct pull_hook *hook, const char *name,
                     void (*wake)(void *ctx, bool last), void *ctx, struct t9_err *err);
/* Stops it, soon. Any thread. */
void pull_stop(struct pull *p);
/* Waits for the thread, which is about to end once the last wake was made. NULL allowed. */
void pull_free(struct pull *p);

typedef enum pull_state { PULL_SAME, PULL_MOVED, PULL_OVER } pull_state;
/* What is new for the reader. MOVED fills *out, whose text lives until the next call; OVER fills
 * *err, whose code is OK when the model is there. */
pull_state pull_next(struct pull *p, struct pull_progress *out, struct t9_err *err);

#endif
