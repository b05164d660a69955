/*
 * store/db.h - private to this folder: the file. One thread at a time; store.c sees to that.
 */
#ifndef T9_STORE_DB_H
#define T9_STORE_DB_H

#include "store/store.h"

struct db;

t9_status db_open(struct db **out, const char *path, struct t9_err *err);
void db_close(struct db *d); /* NULL allowed */
/* What is kept: the sum of what db_put counted, and rows. */
t9_status db_totals(struct db *d, uint64_t *n_bytes, int64_t *n_rows, struct t9_err *err);

t9_status db_begin(struct db *d, struct t9_err *err);
t9_status db_commit(struct db *d, struct t9_err *err);
void db_rollback(struct db *d);

/* Adds a row to the conversation of its `previous`, or to one of its own; counts n_bytes for it. */
t9_status db_put(struct db *d, const struct store_row *row, int64_t used_s, uint64_t n_bytes,
                 struct t9_err *err);
/* Views of the row, until the next call. NOT_FOUND. */
t9_status db_get(struct db *d, str id, struct store_row *out, struct t9_err *err);
t9_status db_touch(struct db *d, str id, int64_t used_s, struct t9_err *err);
t9_status db_delete(struct db *d, str id, struct t9_err *err);
/* Takes out conversations that were last used before `before_s`; or the one whose last use is
 * longest ago, but not that of `id`: NOT_FOUND when there is no other. */
t9_status db_expire(struct db *d, int64_t before_s, struct t9_err *err);
t9_status db_evict(struct db *d, str id, struct t9_err *err);

#endif
