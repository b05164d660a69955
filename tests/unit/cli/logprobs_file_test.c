/* Tests of cli/logprobs_file.c: what was written is read, and what was not written is refused. */
#include "cli/logprobs_file.h"

#include "lib/t9test.h"

#include <math.h>
#include <unistd.h>

static const struct logprobs_head HEAD = {3, 8, 1, 2, 0x123456789abcdef0u};
static const char *const PATH = "logprobs_file_test.tmp";

static struct logprobs_file *create(void)
{
    struct logprobs_file *f = NULL;
    struct file_out *out = NULL;
    struct t9_err err = {0};
    assert_int_equal(file_out_open(&out, PATH, FILE_OUT_WHOLE, &err), T9_STATUS_OK);
    assert_int_equal(logprobs_create(&f, out, &HEAD, &err), T9_STATUS_OK);
    return f;
}

static void write_rows(void)
{
    struct logprobs_file *f = create();
    struct t9_err err = {0};
    const float row[3] = {-1, -2, -3};
    for (int i = 0; i < 2; i++)
        assert_int_equal(logprobs_write(f, row, &err), T9_STATUS_OK);
    assert_int_equal(logprobs_finish(f, &err), T9_STATUS_OK);
    logprobs_close(f);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct logprobs_file *f = NULL;
    struct logprobs_head head;
    struct t9_err err = {0};
    float row[3];
    write_rows();
    assert_int_equal(logprobs_open(&f, PATH, &head, &err), T9_STATUS_OK);
    assert_memory_equal(&head, &HEAD, sizeof head);
    assert_int_equal(logprobs_read(f, row, &err), T9_STATUS_OK);
    assert_float_equal(row[2], -3, 0);
    assert_int_equal(logprobs_read(f, row, &err), T9_STATUS_OK);
    assert_int_equal(logprobs_read(f, row, &err), T9_STATUS_CORRUPT); /* no third row */
    logprobs_close(f);
    unlink(PATH);
}

static void test_unfinished_is_no_file(void **state)
{
    (void)state;
    struct logprobs_file *f = create();
    struct t9_err err = {0};
    logprobs_close(f);
    assert_int_equal(access(PATH, F_OK), -1);
    f = NULL;
    assert_int_equal(logprobs_open(&f, PATH, &(struct logprobs_head){0}, &err),
                     T9_STATUS_NOT_FOUND);
    logprobs_close(f);
}

/* A byte too few or too many. A stream shows the latter after its last row. */
static void test_length(void **state)
{
    (void)state;
    struct logprobs_file *f = NULL;
    struct logprobs_head head;
    struct t9_err err = {0};
    float row[3];
    for (int bytes = 55; bytes <= 57; bytes++) {
        write_rows();
        assert_int_equal(truncate(PATH, bytes), 0);
        assert_int_equal(logprobs_open(&f, PATH, &head, &err),
                         bytes == 56 ? T9_STATUS_OK : T9_STATUS_CORRUPT);
        logprobs_close(f);
        FILE *in = popen("cat logprobs_file_test.tmp", "r");
        char stream[32];
        snprintf(stream, sizeof stream, "/dev/fd/%d", fileno(in));
        assert_int_equal(logprobs_open(&f, stream, &head, &err), T9_STATUS_OK);
        assert_int_equal(logprobs_read(f, row, &err), T9_STATUS_OK);
        assert_int_equal(logprobs_read(f, row, &err),
                         bytes == 56 ? T9_STATUS_OK : T9_STATUS_CORRUPT);
        logprobs_close(f);
        pclose(in);
    }
    unlink(PATH);
}

static void overwrite(long at, const void *p, size_t n)
{
    FILE *f = fopen(PATH, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void test_hostile(void **state)
{
    (void)state;
    struct logprobs_file *f = NULL;
    struct logprobs_head head;
    struct t9_err err = {0};
    float row[3], nan = NAN, above = 0.5f;
    const uint32_t none = 0, huge = UINT32_MAX;
    for (int i = 0; i < 2; i++) {
        write_rows();
        overwrite(32 + 4, i ? &nan : &above, sizeof nan);
        assert_int_equal(logprobs_open(&f, PATH, &head, &err), T9_STATUS_OK);
        assert_int_equal(logprobs_read(f, row, &err), T9_STATUS_CORRUPT);
        logprobs_close(f);
        f = NULL;
        overwrite(8, i ? &none : &huge, sizeof none); /* n_vocab */
        assert_int_equal(logprobs_open(&f, PATH, &head, &err), T9_STATUS_CORRUPT);
        logprobs_close(f);
        f = NULL;
        overwrite(7, "\2", 1); /* version */
        assert_int_equal(logprobs_open(&f, PATH, &head, &err), T9_STATUS_CORRUPT);
        logprobs_close(f);
        f = NULL;
    }
    assert_int_equal(truncate(PATH, 20), 0);
    assert_int_equal(logprobs_open(&f, PATH, &head, &err), T9_STATUS_CORRUPT);
    logprobs_close(f);
    unlink(PATH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_unfinished_is_no_file),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
