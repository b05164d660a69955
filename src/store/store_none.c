/*
 * store/store_none.c - store.h in a build without SQLite: there is none to open, so that nothing
 * else is ever called.
 */
#include "store/store.h"

static t9_status none(struct t9_err *err)
{
    return t9_fail(err, T9_STATUS_UNSUPPORTED,
                   "this build stores no responses: it was made without SQLite (T9_SQLITE)");
}

t9_status store_open(struct store **out, const struct store_params *p, struct t9_err *err)
{
    (void)p;
    *out = NULL;
    return none(err);
}

void store_close(struct store *s)
{
    (void)s;
}

t9_status store_put(struct store *s, const struct store_row *row, struct t9_err *err)
{
    (void)s;
    (void)row;
    return none(err);
}

t9_status store_get(struct store *s, str id, uint64_t owner, struct buf *response,
                    struct buf *input, struct t9_err *err)
{
    (void)s;
    (void)id;
    (void)owner;
    (void)response;
    (void)input;
    return none(err);
}

t9_status store_conversation(struct store *s, str id, uint64_t owner, store_row_fn fn, void *ctx,
                             struct t9_err *err)
{
    (void)s;
    (void)id;
    (void)owner;
    (void)fn;
    (void)ctx;
    return none(err);
}

t9_status store_delete(struct store *s, str id, uint64_t owner, struct t9_err *err)
{
    (void)s;
    (void)id;
    (void)owner;
    return none(err);
}

void store_stats(struct store *s, struct store_stats *out)
{
    (void)s;
    *out = (struct store_stats){0};
}
