/*
 * The response store: what is put comes back, to its owner only, within its bounds; files that are
 * not ours, damaged or taken are refused with a message.
 */
#include "lib/t9test.h"

#include "base/log.h"
#include "base/mem.h"
#include "store/store.h"

#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t now_s = 1000;

static int64_t test_now(void)
{
    return now_s;
}

struct place {
    char dir[64], file[96];
};

static void make_place(struct place *p)
{
    snprintf(p->dir, sizeof p->dir, "/tmp/t9-store-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->file, sizeof p->file, "%s/responses.db", p->dir);
    now_s = 1000;
}

static void drop_place(const struct place *p)
{
    char path[128];
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < T9_COUNT(ends); i++) {
        snprintf(path, sizeof path, "%s%s", p->file, ends[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(p->dir), 0);
}

static struct store *open_store(const struct place *p, uint64_t max_bytes, int64_t max_responses)
{
    struct store_params params = {.path = p->file,
                                  .max_bytes = max_bytes,
                                  .max_responses = max_responses,
                                  .ttl_s = 100,
                                  .now_s = test_now};
    struct t9_err err = {0};
    struct store *s = NULL;
    if (store_open(&s, &params, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    return s;
}

static void refused(const struct place *p, t9_status status, const char *says)
{
    struct store_params params = {
        .path = p->file, .max_bytes = 1 << 20, .max_responses = 10, .ttl_s = 100};
    struct t9_err err = {0};
    struct store *s = NULL;
    t9_status st = store_open(&s, &params, &err);
    if (st != status || !strstr(err.msg, says) || s)
        fail_msg("status %d, %s", (int)st, err.msg);
}

static void read_file(const char *path, struct buf *out)
{
    char block[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;)
        buf_append(out, block, n);
    fclose(f);
    assert_false(out->failed);
}

static void put(struct store *s, const char *id, const char *previous, uint64_t owner,
                const char *response, const char *input)
{
    struct store_row row = {str_from(id), str_from(previous), owner, str_from(response),
                            str_from(input)};
    assert_int_equal(store_put(s, &row, NULL), T9_STATUS_OK);
}

static bool has(struct store *s, const char *id, uint64_t owner, const char *response)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    t9_status st = store_get(s, str_from(id), owner, &b, NULL, NULL);
    assert_true(st == T9_STATUS_OK || st == T9_STATUS_NOT_FOUND);
    bool same = st == T9_STATUS_OK && str_eqz(buf_str(&b), response);
    assert_true(same || st == T9_STATUS_NOT_FOUND);
    buf_deinit(&b);
    return same;
}

static t9_status tell(void *ctx, const struct store_row *row, struct t9_err *err)
{
    struct buf *b = ctx;
    (void)err;
    buf_printf(b, "%.*s:%.*s,", (int)row->input.n, row->input.p, (int)row->response.n,
               row->response.p);
    return T9_STATUS_OK;
}

static t9_status conversation(struct store *s, const char *id, const char *says)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    t9_status st = store_conversation(s, str_from(id), 7, tell, &b, NULL);
    if (st == T9_STATUS_OK && !str_eqz(buf_str(&b), says))
        fail_msg("%.*s", (int)b.n, b.p);
    buf_deinit(&b);
    return st;
}

static void test_kept(void **state)
{
    struct place p;
    struct stat st;
    (void)state;
    make_place(&p);
    struct store *s = open_store(&p, 1 << 20, 10);
    put(s, "a", "", 7, "A", "ia");
    assert_true(has(s, "a", 7, "A"));
    assert_false(has(s, "a", 8, "A"));
    assert_false(has(s, "b", 7, "B"));
    put(s, "b", "a", 7, "B", "ib");
    put(s, "c", "b", 7, "", "");
    put(s, "b2", "a", 7, "B2", "ib2");
    assert_int_equal(conversation(s, "c", "ia:A,ib:B,:,"), T9_STATUS_OK);
    assert_int_equal(conversation(s, "b2", "ia:A,ib2:B2,"), T9_STATUS_OK);
    assert_int_equal(conversation(s, "", ""), T9_STATUS_NOT_FOUND);
    assert_int_equal(stat(p.file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(s);
    /* After a restart, too. */
    s = open_store(&p, 1 << 20, 10);
    assert_int_equal(conversation(s, "c", "ia:A,ib:B,:,"), T9_STATUS_OK);
    assert_int_equal(store_delete(s, STR("b"), 8, NULL), T9_STATUS_NOT_FOUND);
    assert_int_equal(store_delete(s, STR("b"), 7, NULL), T9_STATUS_OK);
    assert_int_equal(store_delete(s, STR("b"), 7, NULL), T9_STATUS_NOT_FOUND);
    assert_int_equal(conversation(s, "c", ""), T9_STATUS_NOT_FOUND);
    assert_int_equal(conversation(s, "b2", "ia:A,ib2:B2,"), T9_STATUS_OK);
    store_close(s);
    drop_place(&p);
}

static void test_bounds(void **state)
{
    struct place p;
    struct store_stats st;
    char big[1001] = {0};
    (void)state;
    make_place(&p);
    memset(big, 'x', 1000);
    struct store *s = open_store(&p, 8000, 4);
    /* In number: the conversation that was used longest ago goes, whole. */
    put(s, "a", "", 7, "A", "");
    put(s, "a1", "a", 7, "A1", "");
    assert_true(has(s, "a1", 7, "A1"));
    now_s++;
    put(s, "b", "", 7, "B", "");
    put(s, "c", "", 7, "C", "");
    assert_true(has(s, "c", 7, "C")); /* it is written: the time may go on */
    now_s++;
    assert_int_equal(conversation(s, "a1", ":A,:A1,"), T9_STATUS_OK);
    put(s, "d", "", 7, "D", "");
    assert_true(has(s, "d", 7, "D") && has(s, "a1", 7, "A1") && has(s, "c", 7, "C"));
    assert_false(has(s, "b", 7, "B"));
    /* In bytes: a conversation is not thrown away for what goes on from it. */
    put(s, "e", "a1", 7, big, big);
    assert_true(has(s, "e", 7, big) && has(s, "a", 7, "A"));
    put(s, "f", "", 7, big, big);
    put(s, "g", "", 7, big, big);
    assert_true(has(s, "g", 7, big));
    store_stats(s, &st);
    assert_true(st.n_bytes <= 8000 && st.n_responses <= 4 && st.n_lost == 0);
    /* What is larger than all there may be is lost, and said so. */
    put(s, "h", "", 7, big, big);
    static char huge[9000];
    memset(huge, 'y', sizeof huge - 1);
    put(s, "i", "", 7, huge, "");
    assert_false(has(s, "i", 7, huge));
    store_stats(s, &st);
    assert_int_equal(st.n_lost, 1);
    /* In time, from the last use on. */
    assert_true(has(s, "h", 7, big));
    now_s += 101;
    put(s, "j", "", 7, "J", "");
    assert_true(has(s, "j", 7, "J"));
    assert_false(has(s, "h", 7, big));
    store_close(s);
    drop_place(&p);
}

/* What was taken out is not in the file any more. */
static void test_overwritten(void **state)
{
    struct place p;
    struct buf b;
    (void)state;
    make_place(&p);
    struct store *s = open_store(&p, 1 << 20, 10);
    put(s, "a", "", 7, "a secret that nobody else may know", "and what was asked");
    assert_int_equal(store_delete(s, STR("a"), 7, NULL), T9_STATUS_OK);
    store_close(s);
    buf_init(&b, 1 << 20);
    read_file(p.file, &b);
    assert_true(b.n > 0);
    assert_true(str_find(buf_str(&b), STR("secret that"), 0) == (size_t)-1);
    buf_deinit(&b);
    drop_place(&p);
}

static void sql(const char *file, const char *text)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_refused(void **state)
{
    struct place p;
    sqlite3 *db = NULL;
    (void)state;
    make_place(&p);
    /* Another program's, of another kind, or readable by others. */
    test_write_file(p.file, "this is no database, but long enough to look at", 47);
    assert_int_equal(chmod(p.file, 0600), 0);
    refused(&p, T9_STATUS_INVALID, "no database");
    assert_int_equal(chmod(p.file, 0640), 0);
    refused(&p, T9_STATUS_INVALID, "chmod 600");
    (void)unlink(p.file);
    sql(p.file, "CREATE TABLE t(x)");
    assert_int_equal(chmod(p.file, 0600), 0);
    refused(&p, T9_STATUS_INVALID, "another program");
    (void)unlink(p.file);
    assert_int_equal(mkdir(p.file, 0700), 0);
    refused(&p, T9_STATUS_IO, "can't be opened");
    assert_int_equal(rmdir(p.file), 0);
    /* Ours, but with more in it than we made. */
    store_close(open_store(&p, 1 << 20, 10));
    sql(p.file, "CREATE TRIGGER x AFTER INSERT ON responses BEGIN DELETE FROM responses; END");
    refused(&p, T9_STATUS_INVALID, "another program");
    sql(p.file, "DROP TRIGGER x");
    store_close(open_store(&p, 1 << 20, 10));
    /* In use. */
    assert_int_equal(sqlite3_open(p.file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    refused(&p, T9_STATUS_IO, "in use");
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    struct store *s = open_store(&p, 1 << 20, 10);
    refused(&p, T9_STATUS_IO, "in use");
    store_close(s);
    drop_place(&p);
}

/* A file that leads around, and any byte of it another: an error or an answer, never a crash. */
static void test_damaged(void **state)
{
    struct place p;
    struct buf b;
    (void)state;
    make_place(&p);
    struct store *s = open_store(&p, 1 << 20, 10);
    put(s, "a", "", 7, "A", "ia");
    put(s, "b", "a", 7, "B", "ib");
    store_close(s);
    sql(p.file, "UPDATE responses SET previous='b' WHERE id='a'");
    s = open_store(&p, 1 << 20, 10);
    assert_int_equal(conversation(s, "b", ""), T9_STATUS_TOO_LARGE);
    store_close(s);
    buf_init(&b, 1 << 20);
    read_file(p.file, &b);
    for (size_t at = 0; at < b.n; at += b.n / 200 + 1) {
        struct store_params params = {.path = p.file,
                                      .max_bytes = 1 << 20,
                                      .max_responses = 10,
                                      .ttl_s = 100,
                                      .now_s = test_now};
        struct buf out;
        char was = b.p[at];
        b.p[at] = (char)(was ^ 0x55);
        test_write_file(p.file, b.p, b.n);
        b.p[at] = was;
        if (store_open(&s, &params, NULL) != T9_STATUS_OK)
            continue;
        buf_init(&out, 1 << 20);
        (void)store_get(s, STR("b"), 7, &out, &out, NULL);
        (void)store_conversation(s, STR("b"), 7, tell, &out, NULL);
        put(s, "c", "b", 7, "C", "");
        (void)store_delete(s, STR("c"), 7, NULL);
        buf_deinit(&out);
        store_close(s);
    }
    buf_deinit(&b);
    drop_place(&p);
}

/* A full disk and no memory cost what was to be stored, and nothing else. */
static void test_faults(void **state)
{
    struct place p;
    struct store_stats st;
    struct rlimit all, little;
    static char big[1 << 20];
    (void)state;
    make_place(&p);
    memset(big, 'x', sizeof big - 1);
    struct store *s = open_store(&p, 64 << 20, 10);
    put(s, "a", "", 7, "A", "");
    assert_true(has(s, "a", 7, "A"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    little = all;
    little.rlim_cur = 1 << 18;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    put(s, "b", "", 7, big, "");
    assert_false(has(s, "b", 7, big));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    store_stats(s, &st);
    assert_int_equal(st.n_lost, 1);
    put(s, "c", "a", 7, "C", "");
    assert_true(has(s, "c", 7, "C") && has(s, "a", 7, "A"));
    struct store_row row = {STR("d"), STR(""), 7, STR("D"), STR("")};
    mem_test_fail_nth(1);
    assert_int_equal(store_put(s, &row, NULL), T9_STATUS_NOMEM);
    mem_test_fail_nth(1);
    assert_int_equal(conversation(s, "c", ""), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
    assert_int_equal(conversation(s, "c", ":A,:C,"), T9_STATUS_OK);
    row.id = STR("");
    assert_int_equal(store_put(s, &row, NULL), T9_STATUS_INVALID);
    store_close(s);
    drop_place(&p);
}

static void count_line(void *ctx, log_level level, const char *module, const char *msg)
{
    (void)level;
    (void)module;
    *(int *)ctx += strstr(msg, "was not stored") != NULL;
}

/* A store that fails all the time says so once a minute. */
static void test_told(void **state)
{
    struct place p;
    int n_told = 0;
    (void)state;
    make_place(&p);
    struct store *s = open_store(&p, 1024, 10);
    static char big[2048];
    memset(big, 'x', sizeof big - 1);
    log_redirect(LOG_LEVEL_WARN, count_line, &n_told);
    for (int i = 0; i < 30; i++, now_s += 5) { /* 0, 60 and 120 */
        put(s, "a", "", 7, big, "");
        assert_false(has(s, "a", 7, big));
    }
    log_redirect(LOG_LEVEL_NONE, NULL, NULL);
    assert_int_equal(n_told, 3);
    store_close(s);
    drop_place(&p);
}

/* Names that mean something else to SQLite are those of files here. */
static void test_names(void **state)
{
    static const char *const names[] = {":memory:", "file:r.db?mode=memory", "file:x", "r.db"};
    struct place p;
    char was[4096];
    struct stat st;
    (void)state;
    make_place(&p);
    assert_non_null(getcwd(was, sizeof was));
    assert_int_equal(chdir(p.dir), 0);
    for (size_t i = 0; i < T9_COUNT(names); i++) {
        snprintf(p.file, sizeof p.file, "%s", names[i]);
        struct store *s = open_store(&p, 1 << 20, 10);
        put(s, "a", "", 7, "A", "");
        store_close(s);
        assert_true(stat(names[i], &st) == 0 && st.st_size > 0);
        s = open_store(&p, 1 << 20, 10);
        assert_true(has(s, "a", 7, "A"));
        store_close(s);
        assert_int_equal(unlink(names[i]), 0);
    }
    assert_int_equal(chdir(was), 0);
    drop_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_overwritten), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_damaged),     cmocka_unit_test(test_faults),
        cmocka_unit_test(test_told),        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
