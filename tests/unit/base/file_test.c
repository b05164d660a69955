/* Tests of base/file.c and base/hash.c. */
#include "base/file.h"

#include "base/hash.h"
#include "base/mem.h"
#include "lib/t9test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

static void test_read_at(void **state)
{
    (void)state;
    char dir[64];
    char path[96];
    char got[8];
    struct file f;
    struct t9_err err;
    test_tmpdir(dir);
    snprintf(path, sizeof path, "%s/a", dir);
    assert_int_equal(file_open(&f, path, &err), T9_STATUS_NOT_FOUND);
    assert_non_null(strstr(err.msg, path));
    file_close(&f);
    assert_int_equal(file_open(&f, dir, &err), T9_STATUS_INVALID);
    test_write_file(path, "0123456789", 10);
    assert_int_equal(file_open(&f, path, &err), T9_STATUS_OK);
    assert_int_equal(f.size_bytes, 10);
    assert_int_equal(file_read_at(&f, 3, got, 4, &err), T9_STATUS_OK);
    assert_memory_equal(got, "3456", 4);
    assert_int_equal(file_read_at(&f, 10, got, 0, &err), T9_STATUS_OK);
    assert_int_equal(file_read_at(&f, 8, got, 4, &err), T9_STATUS_IO);
    assert_string_equal(err.msg, "file ended at byte 10, 12 expected");
    assert_int_equal(file_read_at(&f, UINT64_MAX, got, 4, &err), T9_STATUS_INVALID);
    assert_int_equal(truncate(path, 5), 0); /* the file shrinks under us */
    assert_int_equal(file_read_at(&f, 3, got, 4, &err), T9_STATUS_IO);
    file_close(&f);
    file_close(&f);
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_open(&f, path, &err), T9_STATUS_INVALID); /* and does not hang */
    unlink(path);
    snprintf(path, sizeof path, "%s/a", dir);
    unlink(path);
    rmdir(dir);
}

static void test_read_all(void **state)
{
    (void)state;
    char dir[64];
    char path[96];
    struct t9_err err;
    struct buf out;
    test_tmpdir(dir);
    snprintf(path, sizeof path, "%s/a", dir);
    size_t n = 300000;
    char *data = mem_alloc(n);
    for (size_t i = 0; i < n; i++)
        data[i] = (char)(i * 7);
    test_write_file(path, data, n);
    buf_init(&out, n);
    assert_int_equal(file_read_all(path, &out, &err), T9_STATUS_OK); /* exactly the maximum */
    assert_int_equal(out.n, n);
    assert_memory_equal(out.p, data, n);
    buf_deinit(&out);
    buf_init(&out, n - 1);
    assert_int_equal(file_read_all(path, &out, &err), T9_STATUS_TOO_LARGE);
    buf_deinit(&out);
    buf_init(&out, n);
    mem_test_fail_nth(2);
    assert_int_equal(file_read_all(path, &out, &err), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
    buf_deinit(&out);
    buf_init(&out, n);
    assert_int_equal(file_read_all("/nonexistent/x", &out, &err), T9_STATUS_NOT_FOUND);
    assert_int_equal(file_read_all(dir, &out, &err), T9_STATUS_IO);
    buf_deinit(&out);
    mem_free(data);
    unlink(path);
    rmdir(dir);
}

static void on_signal(int sig)
{
    (void)sig;
}

/* A FIFO whose writer says nothing, or that has none, is waited for until a signal comes. */
static void test_signal(void **state)
{
    (void)state;
    struct sigaction a = {.sa_handler = on_signal};
    char dir[64];
    char path[96];
    struct t9_err err;
    struct buf out;
    test_tmpdir(dir);
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(sigaction(SIGALRM, &a, NULL), 0);
    buf_init(&out, 1000);
    alarm(1);
    assert_int_equal(file_read_all(path, &out, &err), T9_STATUS_CANCELLED);
    int writer = open(path, O_RDWR);
    assert_true(writer >= 0);
    alarm(1);
    assert_int_equal(file_read_all(path, &out, &err), T9_STATUS_CANCELLED);
    assert_string_equal(err.msg, "interrupted");
    close(writer);
    buf_deinit(&out);
    unlink(path);
    rmdir(dir);
}

static void test_hashes(void **state)
{
    (void)state;
    assert_true(hash_xxh3_64("", 0, 0) == 0x2D06800538D394C2u);
    assert_true(hash_xxh3_64("a", 1, 0) != hash_xxh3_64("a", 1, 1));
    char dir[64];
    char path[96];
    char hex[65];
    struct t9_err err;
    test_tmpdir(dir);
    snprintf(path, sizeof path, "%s/a", dir);
    test_write_file(path, "abc", 3);
    t9_status st = hash_sha256_file(path, hex, &err);
#ifdef T9_HAVE_CRYPTO
    assert_int_equal(st, T9_STATUS_OK);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(hash_sha256_file(dir, hex, &err), T9_STATUS_INVALID);
    mem_test_fail_nth(1);
    assert_int_equal(hash_sha256_file(path, hex, &err), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
#else
    assert_int_equal(st, T9_STATUS_UNSUPPORTED);
#endif
    unlink(path);
    rmdir(dir);
}

static void test_running_hashes(void **state)
{
    (void)state;
    struct hash_sha *h = NULL;
    struct t9_err err;
    char hex[65];
    t9_status st = hash_sha_new(&h, HASH_SHA_256, &err);
#ifdef T9_HAVE_CRYPTO
    assert_int_equal(st, T9_STATUS_OK);
    assert_int_equal(hash_sha_update(h, "a", 1, &err), T9_STATUS_OK);
    assert_int_equal(hash_sha_update(h, "bc", 2, &err), T9_STATUS_OK);
    assert_int_equal(hash_sha_finish(h, hex, &err), T9_STATUS_OK);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hash_sha_free(h);
    assert_int_equal(hash_sha_new(&h, HASH_SHA_1, &err), T9_STATUS_OK);
    assert_int_equal(hash_sha_update(h, "abc", 3, &err), T9_STATUS_OK);
    assert_int_equal(hash_sha_finish(h, hex, &err), T9_STATUS_OK);
    assert_string_equal(hex, "a9993e364706816aba3e25717850c26c9cd0d89d");
    hash_sha_free(h);
    mem_test_fail_nth(1);
    assert_int_equal(hash_sha_new(&h, HASH_SHA_1, &err), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
    assert_null(h);
#else
    assert_int_equal(st, T9_STATUS_UNSUPPORTED);
    assert_int_equal(hash_sha_finish(h, hex, &err), T9_STATUS_UNSUPPORTED);
#endif
    hash_sha_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_at),        cmocka_unit_test(test_read_all),
        cmocka_unit_test(test_signal),         cmocka_unit_test(test_hashes),
        cmocka_unit_test(test_running_hashes),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
