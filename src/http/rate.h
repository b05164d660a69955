/*
 * http/rate.h - how many requests a minute one client may make: a token bucket for each of the
 * clients seen last. The table has a fixed size; a new client takes the place of the one that has
 * most left of its allowance, which loses nothing that matters. Any thread.
 */
#ifndef T9_HTTP_RATE_H
#define T9_HTTP_RATE_H

#include "base/err.h"

#include <pthread.h>
#include <stdint.h>

struct rate_bucket;

struct rate {
    pthread_mutex_t lock;
    struct rate_bucket *buckets; /* NULL: no limit */
    uint64_t seed;
    double per_ns, most;
};

/* per_minute 0: no limit. As many may come at once after a minute of silence. */
t9_status rate_init(struct rate *r, int32_t per_minute, uint64_t seed, struct t9_err *err);
void rate_deinit(struct rate *r);
/* Takes one request of `client`'s allowance. 0: it was there; else seconds until it is. */
int32_t rate_take(struct rate *r, uint64_t client, uint64_t now_ns);

#endif
