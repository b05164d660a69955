/*
 * http/rate.c - see rate.h. A client may be in one of WAYS places, chosen by a seeded hash, so that
 * nobody can aim at another's.
 */
#include "http/rate.h"

#include "base/hash.h"
#include "base/mem.h"

enum { SETS = 1024, WAYS = 8 };

struct rate_bucket {
    uint64_t client; /* 0: nobody */
    uint64_t at_ns;
    double left;
};

t9_status rate_init(struct rate *r, int32_t per_minute, uint64_t seed, struct t9_err *err)
{
    (void)pthread_mutex_init(&r->lock, NULL);
    r->buckets = NULL;
    r->seed = seed;
    r->most = per_minute;
    r->per_ns = per_minute / 60e9;
    if (per_minute <= 0)
        return T9_STATUS_OK;
    r->buckets = mem_calloc((size_t)SETS * WAYS, sizeof *r->buckets);
    return r->buckets ? T9_STATUS_OK : t9_fail(err, T9_STATUS_NOMEM, "no memory");
}

void rate_deinit(struct rate *r)
{
    mem_free(r->buckets);
    r->buckets = NULL;
    (void)pthread_mutex_destroy(&r->lock);
}

static void refill(const struct rate *r, struct rate_bucket *b, uint64_t now_ns)
{
    if (now_ns > b->at_ns) {
        b->left += (double)(now_ns - b->at_ns) * r->per_ns;
        b->at_ns = now_ns;
    }
    if (b->left > r->most)
        b->left = r->most;
}

static struct rate_bucket *find(struct rate *r, uint64_t client, uint64_t now_ns)
{
    size_t set = hash_xxh3_64(&client, sizeof client, r->seed) % SETS;
    struct rate_bucket *ways = r->buckets + set * WAYS, *best = ways;
    for (int i = 0; i < WAYS; i++) {
        struct rate_bucket *b = &ways[i];
        if (b->client == client)
            return b;
        refill(r, b, now_ns);
        if (best->client && (!b->client || b->left > best->left))
            best = b;
    }
    *best = (struct rate_bucket){.client = client, .at_ns = now_ns, .left = r->most};
    return best;
}

int32_t rate_take(struct rate *r, uint64_t client, uint64_t now_ns)
{
    int32_t wait_s = 0;
    if (!r->buckets)
        return 0;
    pthread_mutex_lock(&r->lock);
    struct rate_bucket *b = find(r, client ? client : 1, now_ns);
    refill(r, b, now_ns);
    if (b->left >= 1)
        b->left -= 1;
    else
        wait_s = 1 + (int32_t)((1 - b->left) / r->per_ns / 1e9);
    pthread_mutex_unlock(&r->lock);
    return wait_s;
}
