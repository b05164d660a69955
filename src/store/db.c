/*
 * store/db.c - see db.h. Two tables: responses, and the conversations that they are of, which have
 * the time of their last use. The file is ours alone while it is open: it is locked, its schema
 * must be word for word the one below, and SQLite takes no other SQL from it.
 */
#include "store/db.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define APPLICATION_ID  0x74395253 /* t9RS */
#define SCHEMA_VERSION  1
#define VALUE_BYTES_MAX ((int)1 << 30)

enum {
    STATEMENT_PUT,
    STATEMENT_CONVERSATION,
    STATEMENT_GET,
    STATEMENT_TOUCH,
    STATEMENT_DELETE,
    STATEMENT_DELETE_LAST,
    STATEMENT_TOTALS,
    STATEMENT_EXPIRE_ROWS,
    STATEMENT_EXPIRE,
    STATEMENT_OLDEST,
    STATEMENT_EVICT_ROWS,
    STATEMENT_EVICT,
    N_STATEMENTS
};

struct db {
    sqlite3 *sql;
    sqlite3_stmt *statements[N_STATEMENTS];
};

static const char *const schema[] = {
    "CREATE TABLE conversations(root TEXT PRIMARY KEY,used INTEGER NOT NULL)",
    /* one text in parentheses, so that no comma is missed */
    ("CREATE TABLE responses(id TEXT PRIMARY KEY,root TEXT NOT NULL,previous TEXT NOT NULL,owner "
     "INTEGER NOT NULL,bytes INTEGER NOT NULL,response BLOB NOT NULL,input BLOB NOT NULL)"),
    "CREATE INDEX conversation_use ON conversations(used)",
    "CREATE INDEX response_root ON responses(root,bytes)",
};

static const char *const texts[N_STATEMENTS] = {
    [STATEMENT_PUT] = "INSERT INTO responses VALUES(?1,coalesce((SELECT root FROM responses WHERE "
                      "id=?2),?1),?2,?3,?4,?5,?6)",
    [STATEMENT_CONVERSATION] = "INSERT INTO conversations SELECT root,?2 FROM responses WHERE "
                               "id=?1 ON CONFLICT(root) DO UPDATE SET used=?2",
    [STATEMENT_GET] = "SELECT previous,owner,response,input FROM responses WHERE id=?1",
    [STATEMENT_TOUCH] = "UPDATE conversations SET used=?2 WHERE root=(SELECT root FROM responses "
                        "WHERE id=?1)",
    [STATEMENT_DELETE] = "DELETE FROM responses WHERE id=?1",
    [STATEMENT_DELETE_LAST] =
        "DELETE FROM conversations WHERE root=(SELECT root FROM responses WHERE "
        "id=?1) AND (SELECT count(*) FROM responses r WHERE r.root="
        "conversations.root)=1",
    [STATEMENT_TOTALS] = "SELECT coalesce(sum(bytes),0),count(*) FROM responses",
    [STATEMENT_EXPIRE_ROWS] = "DELETE FROM responses WHERE root IN (SELECT root FROM conversations "
                              "WHERE used<?1)",
    [STATEMENT_EXPIRE] = "DELETE FROM conversations WHERE used<?1",
    [STATEMENT_OLDEST] = "SELECT root FROM conversations WHERE root IS NOT (SELECT root FROM "
                         "responses WHERE id=?1) ORDER BY used,root LIMIT 1",
    [STATEMENT_EVICT_ROWS] = "DELETE FROM responses WHERE root=?1",
    [STATEMENT_EVICT] = "DELETE FROM conversations WHERE root=?1",
};

/* SQLite's own words for it, which name no content. */
static t9_status fail(struct db *d, const char *what, struct t9_err *err)
{
    int rc = d->sql ? sqlite3_errcode(d->sql) : SQLITE_NOMEM;
    t9_status s = rc == SQLITE_NOMEM ? T9_STATUS_NOMEM : T9_STATUS_IO;
    return t9_fail(err, s, "the response store can't %s: %s", what, sqlite3_errstr(rc));
}

/* ---- the file ---- */

/* SQLite would make it readable for others, as the umask has it. */
static t9_status check_file(const char *path, struct t9_err *err)
{
    struct stat st;
    char why[96];
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (fd < 0)
        return t9_fail(err, T9_STATUS_IO, "%.150s can't be opened: %s", path,
                       t9_errno_text(errno, why, sizeof why));
    int rc = fstat(fd, &st);
    (void)close(fd);
    if (rc != 0 || !S_ISREG(st.st_mode))
        return t9_fail(err, T9_STATUS_INVALID, "%.150s is no file, and responses are kept in one",
                       path);
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return t9_fail(err, T9_STATUS_INVALID,
                       "%.150s may be opened by others: chmod 600 it, or name a new file", path);
    return T9_STATUS_OK;
}

static t9_status run(struct db *d, const char *sql, const char *what, struct t9_err *err)
{
    return sqlite3_exec(d->sql, sql, NULL, NULL, NULL) == SQLITE_OK ? T9_STATUS_OK
                                                                    : fail(d, what, err);
}

static t9_status number(struct db *d, const char *sql, int64_t *out, struct t9_err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(d->sql, sql, -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(st, 0);
    t9_status s = rc == SQLITE_ROW ? T9_STATUS_OK : fail(d, "be read", err);
    (void)sqlite3_finalize(st);
    return s;
}

static t9_status make_schema(struct db *d, struct t9_err *err)
{
    char sql[96];
    T9_TRY(run(d, "BEGIN IMMEDIATE", "be made", err));
    for (size_t i = 0; i < T9_COUNT(schema); i++)
        T9_TRY(run(d, schema[i], "be made", err));
    (void)snprintf(sql, sizeof sql, "PRAGMA application_id=%d;PRAGMA user_version=%d;COMMIT",
                   APPLICATION_ID, SCHEMA_VERSION);
    return run(d, sql, "be made", err);
}

/* Nothing but what make_schema made, word for word: no view, no trigger, no other column. */
static t9_status check_schema(struct db *d, const char *path, struct t9_err *err)
{
    sqlite3_stmt *st = NULL;
    size_t n = 0;
    bool same = true;
    int rc = sqlite3_prepare_v2(
        d->sql, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid", -1, &st,
        NULL);
    while (rc == SQLITE_OK && same && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *sql = (const char *)sqlite3_column_text(st, 0);
        same = sql && n < T9_COUNT(schema) && strcmp(sql, schema[n]) == 0;
        n++;
        rc = SQLITE_OK;
    }
    t9_status s = rc == SQLITE_OK || rc == SQLITE_DONE ? T9_STATUS_OK : fail(d, "be read", err);
    (void)sqlite3_finalize(st);
    T9_TRY(s);
    if (!same || n != T9_COUNT(schema))
        return t9_fail(err, T9_STATUS_INVALID,
                       "%.150s is a database of another program or version: name a new file", path);
    return T9_STATUS_OK;
}

static t9_status open_schema(struct db *d, const char *path, struct t9_err *err)
{
    int64_t n_tables = 0, application = 0, version = 0;
    T9_TRY(number(d, "SELECT count(*) FROM sqlite_schema", &n_tables, err));
    T9_TRY(number(d, "PRAGMA application_id", &application, err));
    T9_TRY(number(d, "PRAGMA user_version", &version, err));
    if (n_tables == 0 && application == 0 && version == 0)
        return make_schema(d, err);
    if (application != APPLICATION_ID || version != SCHEMA_VERSION)
        return t9_fail(err, T9_STATUS_INVALID,
                       "%.150s is a database of another program or version: name a new file", path);
    return check_schema(d, path, err);
}

/* No SQL of the file's is run, and freed content is overwritten. */
static t9_status configure(struct db *d, struct t9_err *err)
{
    (void)sqlite3_db_config(d->sql, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(d->sql, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_db_config(d->sql, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    (void)sqlite3_db_config(d->sql, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    (void)sqlite3_limit(d->sql, SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
    return run(d,
               "PRAGMA locking_mode=EXCLUSIVE;PRAGMA auto_vacuum=FULL;PRAGMA cell_size_check=ON;"
               "PRAGMA secure_delete=ON;PRAGMA temp_store=MEMORY;PRAGMA mmap_size=0;"
               "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;"
               "PRAGMA journal_size_limit=16777216;BEGIN EXCLUSIVE;COMMIT",
               "be opened", err);
}

/* With a folder in front no path is a name that SQLite gives a sense of its own, as :memory: and
 * file: have. */
static int open_plain(struct db *d, const char *path)
{
    struct buf name;
    buf_init(&name, SIZE_MAX);
    buf_puts(&name, path[0] == '/' ? "" : "./");
    buf_puts(&name, path);
    buf_putc(&name, '\0');
    int rc = name.failed ? SQLITE_NOMEM
                         : sqlite3_open_v2(name.p, &d->sql,
                                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    buf_deinit(&name);
    return rc;
}

static t9_status open_database(struct db *d, const char *path, struct t9_err *err)
{
    T9_TRY(check_file(path, err));
    int rc = open_plain(d, path);
    t9_status s = rc == SQLITE_OK ? configure(d, err) : fail(d, "be opened", err);
    int code = d->sql ? sqlite3_errcode(d->sql) & 0xff : rc;
    if (s != T9_STATUS_OK && code == SQLITE_BUSY)
        return t9_fail(err, T9_STATUS_IO,
                       "%.150s is in use by another program: stop that, or name another file",
                       path);
    if (s != T9_STATUS_OK && (code == SQLITE_NOTADB || code == SQLITE_CORRUPT))
        return t9_fail(err, T9_STATUS_INVALID,
                       "%.150s is no database, or is damaged: move it away, or name a new file",
                       path);
    T9_TRY(s);
    T9_TRY(open_schema(d, path, err));
    for (size_t i = 0; i < N_STATEMENTS; i++) {
        if (sqlite3_prepare_v3(d->sql, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &d->statements[i],
                               NULL) != SQLITE_OK)
            return fail(d, "be read", err);
    }
    return T9_STATUS_OK;
}

t9_status db_open(struct db **out, const char *path, struct t9_err *err)
{
    struct db *d = mem_calloc(1, sizeof *d);
    *out = NULL;
    if (!d)
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for the response store");
    t9_status s = open_database(d, path, err);
    if (s != T9_STATUS_OK)
        db_close(d);
    else
        *out = d;
    return s;
}

void db_close(struct db *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < N_STATEMENTS; i++)
        (void)sqlite3_finalize(d->statements[i]);
    (void)sqlite3_close(d->sql);
    mem_free(d);
}

/* ---- statements ---- */

static sqlite3_stmt *begin(struct db *d, int which)
{
    (void)sqlite3_reset(d->statements[which]);
    (void)sqlite3_clear_bindings(d->statements[which]);
    return d->statements[which];
}

static void bind_text(sqlite3_stmt *st, int at, str v)
{
    (void)sqlite3_bind_text64(st, at, v.n ? v.p : "", v.n, SQLITE_STATIC, SQLITE_UTF8);
}

/* Runs one that gives no rows. What could not be bound is no memory, which step tells, too. */
static t9_status finish(struct db *d, sqlite3_stmt *st, const char *what, struct t9_err *err)
{
    t9_status s = sqlite3_step(st) == SQLITE_DONE ? T9_STATUS_OK : fail(d, what, err);
    (void)sqlite3_reset(st);
    (void)sqlite3_clear_bindings(st);
    return s;
}

static t9_status finish_id(struct db *d, int which, str id, const char *what, struct t9_err *err)
{
    sqlite3_stmt *st = begin(d, which);
    bind_text(st, 1, id);
    return finish(d, st, what, err);
}

static t9_status finish_use(struct db *d, int which, str id, int64_t used_s, struct t9_err *err)
{
    sqlite3_stmt *st = begin(d, which);
    bind_text(st, 1, id);
    (void)sqlite3_bind_int64(st, 2, used_s);
    return finish(d, st, "be written", err);
}

t9_status db_begin(struct db *d, struct t9_err *err)
{
    return run(d, "BEGIN IMMEDIATE", "be written", err);
}

t9_status db_commit(struct db *d, struct t9_err *err)
{
    return run(d, "COMMIT", "be written", err);
}

void db_rollback(struct db *d)
{
    (void)sqlite3_exec(d->sql, "ROLLBACK", NULL, NULL, NULL);
}

t9_status db_totals(struct db *d, uint64_t *n_bytes, int64_t *n_rows, struct t9_err *err)
{
    sqlite3_stmt *st = begin(d, STATEMENT_TOTALS);
    if (sqlite3_step(st) != SQLITE_ROW)
        return fail(d, "be read", err);
    int64_t bytes = sqlite3_column_int64(st, 0);
    *n_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    *n_rows = sqlite3_column_int64(st, 1);
    (void)sqlite3_reset(st);
    return T9_STATUS_OK;
}

t9_status db_put(struct db *d, const struct store_row *row, int64_t used_s, uint64_t n_bytes,
                 struct t9_err *err)
{
    sqlite3_stmt *st = begin(d, STATEMENT_PUT);
    bind_text(st, 1, row->id);
    bind_text(st, 2, row->previous);
    (void)sqlite3_bind_int64(st, 3, (int64_t)row->owner);
    (void)sqlite3_bind_int64(st, 4, (int64_t)n_bytes);
    (void)sqlite3_bind_blob64(st, 5, row->response.n ? row->response.p : "", row->response.n,
                              SQLITE_STATIC);
    (void)sqlite3_bind_blob64(st, 6, row->input.n ? row->input.p : "", row->input.n, SQLITE_STATIC);
    T9_TRY(finish(d, st, "be written", err));
    return finish_use(d, STATEMENT_CONVERSATION, row->id, used_s, err);
}

static str column(sqlite3_stmt *st, int at)
{
    const void *p = sqlite3_column_blob(st, at);
    int n = sqlite3_column_bytes(st, at);
    return p && n > 0 ? (str){p, (size_t)n} : STR("");
}

t9_status db_get(struct db *d, str id, struct store_row *out, struct t9_err *err)
{
    sqlite3_stmt *st = begin(d, STATEMENT_GET);
    bind_text(st, 1, id);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_DONE) {
        (void)sqlite3_reset(st);
        return t9_fail(err, T9_STATUS_NOT_FOUND, "there is no such response");
    }
    if (rc != SQLITE_ROW)
        return fail(d, "be read", err);
    *out = (struct store_row){.id = id,
                              .previous = column(st, 0),
                              .owner = (uint64_t)sqlite3_column_int64(st, 1),
                              .response = column(st, 2),
                              .input = column(st, 3)};
    return T9_STATUS_OK;
}

t9_status db_touch(struct db *d, str id, int64_t used_s, struct t9_err *err)
{
    return finish_use(d, STATEMENT_TOUCH, id, used_s, err);
}

t9_status db_delete(struct db *d, str id, struct t9_err *err)
{
    T9_TRY(finish_id(d, STATEMENT_DELETE_LAST, id, "be written", err));
    return finish_id(d, STATEMENT_DELETE, id, "be written", err);
}

t9_status db_expire(struct db *d, int64_t before_s, struct t9_err *err)
{
    static const int which[] = {STATEMENT_EXPIRE_ROWS, STATEMENT_EXPIRE};
    for (size_t i = 0; i < T9_COUNT(which); i++) {
        sqlite3_stmt *st = begin(d, which[i]);
        (void)sqlite3_bind_int64(st, 1, before_s);
        T9_TRY(finish(d, st, "be written", err));
    }
    return T9_STATUS_OK;
}

t9_status db_evict(struct db *d, str id, struct t9_err *err)
{
    char root[STORE_ID_BYTES_MAX];
    sqlite3_stmt *st = begin(d, STATEMENT_OLDEST);
    bind_text(st, 1, id);
    int rc = sqlite3_step(st);
    str found = rc == SQLITE_ROW ? column(st, 0) : (str){0};
    bool fits = found.n <= sizeof root;
    if (rc == SQLITE_ROW && fits && found.n)
        memcpy(root, found.p, found.n);
    (void)sqlite3_reset(st);
    if (rc == SQLITE_DONE)
        return t9_fail(err, T9_STATUS_NOT_FOUND, "there is no other conversation");
    if (rc != SQLITE_ROW)
        return fail(d, "be read", err);
    if (!fits)
        return t9_fail(err, T9_STATUS_IO, "the response store has an id that we never wrote");
    T9_TRY(finish_id(d, STATEMENT_EVICT_ROWS, (str){root, found.n}, "be written", err));
    return finish_id(d, STATEMENT_EVICT, (str){root, found.n}, "be written", err);
}
