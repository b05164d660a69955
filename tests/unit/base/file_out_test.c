/* Tests of base/file_out.c: what a path may be, and what is there before, during and after. */
#include "base/file_out.h"

#include "base/mem.h"
#include "lib/t9test.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char dir[64];

static const char *at(const char *name)
{
    static char path[4][400];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static int setup(void **state)
{
    (void)state;
    test_tmpdir(dir);
    return 0;
}

/* Removes what a test has left; every test says itself what that may be. */
static int teardown(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            (void)remove(at(e->d_name));
    closedir(d);
    return rmdir(dir);
}

static int n_files(void)
{
    int n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void expect_text(const char *path, const char *want)
{
    char got[64] = {0};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    (void)fread(got, 1, sizeof got - 1, f);
    fclose(f);
    assert_string_equal(got, want);
}

static void write_whole(const char *path, const char *text)
{
    struct file_out *f = NULL;
    struct t9_err err;
    assert_int_equal(file_out_open(&f, path, FILE_OUT_WHOLE, &err), T9_STATUS_OK);
    assert_int_equal(file_out_write(f, text, strlen(text), &err), T9_STATUS_OK);
    assert_int_equal(file_out_finish(f, &err), T9_STATUS_OK);
    file_out_close(f);
}

static void refused(const char *path, const char *word)
{
    struct file_out *f = NULL;
    struct t9_err err = {0};
    assert_int_not_equal(file_out_open(&f, path, FILE_OUT_WHOLE, &err), T9_STATUS_OK);
    assert_null(f);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, word));
}

static void test_whole(void **state)
{
    (void)state;
    struct file_out *f = NULL;
    struct t9_err err;
    struct stat st;
    write_whole(at("new"), "one");
    expect_text(at("new"), "one");
    assert_int_equal(chmod(at("new"), 0640), 0);
    /* What was there stays until the end, and after a failure. */
    assert_int_equal(file_out_open(&f, at("new"), FILE_OUT_WHOLE, &err), T9_STATUS_OK);
    assert_int_equal(file_out_write(f, "two", 3, &err), T9_STATUS_OK);
    expect_text(at("new"), "one");
    assert_int_equal(n_files(), 2);
    file_out_close(f);
    expect_text(at("new"), "one");
    write_whole(at("new"), "three");
    expect_text(at("new"), "three");
    assert_int_equal(stat(at("new"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(n_files(), 1);
    file_out_close(NULL);
    mem_test_fail_nth(1);
    assert_int_equal(file_out_open(&f, at("x"), FILE_OUT_WHOLE, &err), T9_STATUS_NOMEM);
    mem_test_fail_nth(0);
}

static void test_large(void **state)
{
    (void)state;
    struct file_out *f = NULL;
    struct t9_err err;
    struct stat st;
    static char block[300000];
    assert_int_equal(file_out_open(&f, at("large"), FILE_OUT_WHOLE, &err), T9_STATUS_OK);
    for (size_t n = 1; n <= sizeof block; n *= 3) {
        memset(block, (int)('a' + n % 20), n);
        assert_int_equal(file_out_write(f, block, n, &err), T9_STATUS_OK);
    }
    assert_int_equal(file_out_write(f, block, sizeof block, &err), T9_STATUS_OK);
    assert_int_equal(file_out_finish(f, &err), T9_STATUS_OK);
    file_out_close(f);
    assert_int_equal(stat(at("large"), &st), 0);
    assert_int_equal(st.st_size, (177147 * 3 - 1) / 2 + (int)sizeof block);
    FILE *in = fopen(at("large"), "rb");
    assert_non_null(in);
    for (size_t n = 1, i = 0; n <= sizeof block; n *= 3, i = 0)
        for (; i < n; i++)
            if (getc(in) != (int)('a' + n % 20))
                fail_msg("byte %zu of the block of %zu", i, n);
    fclose(in);
}

/* The link stays, what it points to is replaced; also where that is not there yet. */
static void test_links(void **state)
{
    (void)state;
    struct stat st;
    write_whole(at("file"), "old");
    assert_int_equal(mkdir(at("d"), 0700), 0);
    assert_int_equal(symlink("file", at("link")), 0);
    assert_int_equal(symlink(at("link"), at("d/far")), 0);
    write_whole(at("d/far"), "new");
    expect_text(at("file"), "new");
    assert_int_equal(lstat(at("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(at("d/far"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(unlink(at("file")), 0);
    write_whole(at("d/far"), "again");
    expect_text(at("file"), "again");
    assert_int_equal(symlink("ring", at("ring")), 0);
    refused(at("ring"), "cannot be written");
    assert_int_equal(unlink(at("d/far")), 0);
}

static void test_special(void **state)
{
    (void)state;
    struct stat st;
    struct t9_err err;
    struct file_out *f = NULL;
    char got[8] = {0};
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    int reader = open(at("fifo"), O_RDONLY | O_NONBLOCK);
    write_whole(at("fifo"), "through");
    assert_int_equal(read(reader, got, sizeof got), 7);
    assert_string_equal(got, "through");
    close(reader);
    assert_int_equal(stat(at("fifo"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    write_whole("/dev/null", "nothing");
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    assert_int_equal(file_out_open(&f, "/dev/full", FILE_OUT_WHOLE, &err), T9_STATUS_OK);
    assert_int_equal(file_out_write(f, "x", 1, &err), T9_STATUS_OK);
    assert_int_equal(file_out_finish(f, &err), T9_STATUS_IO);
    assert_non_null(strstr(err.msg, "/dev/full"));
    file_out_close(f);
    assert_int_equal(n_files(), 1);
}

/* What a killed process of the same number has left is neither in the way nor written to. */
static void test_taken_name(void **state)
{
    (void)state;
    char left[32];
    snprintf(left, sizeof left, "new.%ld.part", (long)getpid());
    assert_int_equal(symlink("elsewhere", at(left)), 0);
    write_whole(at("new"), "one");
    expect_text(at("new"), "one");
    assert_int_equal(access(at("elsewhere"), F_OK), -1);
    assert_int_equal(n_files(), 2);
}

/* No name that was cut is removed. */
static void test_longest_path(void **state)
{
    (void)state;
    char path[4096];
    struct file_out *f = NULL;
    struct t9_err err;
    write_whole(at("kept"), "x");
    int n = snprintf(path, sizeof path, "%s", dir);
    while (n < (int)sizeof path - 6)
        path[n++] = '/';
    snprintf(path + n, sizeof path - (size_t)n, "/kept");
    assert_int_equal(strlen(path), sizeof path - 1);
    assert_int_equal(file_out_open(&f, path, FILE_OUT_WHOLE, &err), T9_STATUS_INVALID);
    expect_text(at("kept"), "x");
}

static void test_refused(void **state)
{
    (void)state;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", at("sock"));
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    refused(at("sock"), "socket");
    close(s);
    refused(dir, "folder");
    refused(at("none/x"), "No such file");
    static char longest[5000];
    memset(longest, 'x', sizeof longest - 1);
    struct file_out *f = NULL;
    struct t9_err err;
    assert_int_equal(file_out_open(&f, longest, FILE_OUT_WHOLE, &err), T9_STATUS_INVALID);
    if (geteuid() != 0) {
        write_whole(at("locked"), "kept");
        assert_int_equal(chmod(at("locked"), 0400), 0);
        refused(at("locked"), "cannot be written");
    }
    assert_int_equal(n_files(), geteuid() != 0 ? 2 : 1);
}

static void test_full_disk(void **state)
{
    (void)state;
    static const char block[100000];
    struct rlimit old, limit;
    struct file_out *f = NULL;
    struct t9_err err;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = 1000, .rlim_max = old.rlim_max};
    assert_int_equal(file_out_open(&f, at("big"), FILE_OUT_WHOLE, &err), T9_STATUS_OK);
    assert_int_equal(file_out_write(f, block, sizeof block, &err), T9_STATUS_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(file_out_finish(f, &err), T9_STATUS_IO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    file_out_close(f);
    assert_int_equal(n_files(), 0);
}

static void test_log(void **state)
{
    (void)state;
    struct file_out *f = NULL;
    struct t9_err err;
    test_write_file(at("log"), "before", 6);
    assert_int_equal(file_out_open(&f, at("log"), FILE_OUT_LOG, &err), T9_STATUS_OK);
    expect_text(at("log"), "");
    assert_int_equal(file_out_write(f, "line\n", 5, &err), T9_STATUS_OK);
    assert_int_equal(file_out_finish(f, &err), T9_STATUS_OK);
    file_out_close(f);
    expect_text(at("log"), "line\n");
    assert_int_equal(file_out_open(&f, at("log"), FILE_OUT_LOG, &err), T9_STATUS_OK);
    file_out_close(f);
    assert_int_equal(n_files(), 1);
}

static void on_signal(int sig)
{
    (void)sig;
}

/* Who writes a log has other work to do: a reader that stops is not waited for. */
static void test_log_reader(void **state)
{
    (void)state;
    static char block[200000], in[65536];
    struct file_out *f = NULL;
    struct t9_err err = {0};
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    int reader = open(at("fifo"), O_RDONLY | O_NONBLOCK);
    assert_int_equal(file_out_open(&f, at("fifo"), FILE_OUT_LOG, &err), T9_STATUS_OK);
    assert_int_equal(file_out_write(f, block, sizeof block, &err), T9_STATUS_OK);
    assert_int_equal(file_out_write(f, block, sizeof block, &err), T9_STATUS_IO);
    assert_non_null(strstr(err.msg, "does not keep up"));
    file_out_close(f);
    while (read(reader, in, sizeof in) > 0)
        ;
    assert_int_equal(file_out_open(&f, at("fifo"), FILE_OUT_LOG, &err), T9_STATUS_OK);
    assert_int_equal(file_out_write(f, "line", 4, &err), T9_STATUS_OK);
    assert_int_equal(file_out_finish(f, &err), T9_STATUS_OK);
    file_out_close(f);
    assert_int_equal(read(reader, in, sizeof in), 4);
    close(reader);
}

/* What a shell appends to keeps what it has. */
static void test_standard_output(void **state)
{
    (void)state;
    static const char *const names[] = {"out", "/dev/stdout"};
    test_write_file(at("out"), "a", 1);
    int terminal = dup(STDOUT_FILENO), fd = open(at("out"), O_WRONLY | O_APPEND);
    fflush(stdout);
    assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    struct file_out *f[2] = {NULL, NULL};
    struct t9_err err;
    t9_status s[2][3];
    for (int i = 0; i < 2; i++) {
        s[i][0] = file_out_open(&f[i], i ? names[i] : at(names[i]), FILE_OUT_WHOLE, &err);
        s[i][1] = f[i] ? file_out_write(f[i], i ? "c" : "b", 1, &err) : T9_STATUS_OK;
        s[i][2] = f[i] ? file_out_finish(f[i], &err) : T9_STATUS_OK;
        file_out_close(f[i]);
    }
    (void)dup2(terminal, STDOUT_FILENO);
    close(terminal);
    close(fd);
    for (int i = 0; i < 6; i++)
        assert_int_equal(s[i / 3][i % 3], T9_STATUS_OK);
    expect_text(at("out"), "abc");
    assert_int_equal(n_files(), 1);
}

/* A FIFO without a reader waits, until a signal. */
static void test_signal(void **state)
{
    (void)state;
    struct sigaction a = {.sa_handler = on_signal};
    struct file_out *f = NULL;
    struct t9_err err;
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(sigaction(SIGALRM, &a, NULL), 0);
    alarm(1);
    assert_int_equal(file_out_open(&f, at("fifo"), FILE_OUT_WHOLE, &err), T9_STATUS_CANCELLED);
    assert_null(f);
}

static void test_same(void **state)
{
    (void)state;
    write_whole(at("a"), "x");
    write_whole(at("b"), "x");
    assert_int_equal(symlink("a", at("l")), 0);
    assert_int_equal(link(at("a"), at("h")), 0);
    assert_true(file_same(at("a"), at("l")));
    assert_true(file_same(at("h"), at("l")));
    assert_false(file_same(at("a"), at("b")));
    assert_false(file_same(at("no"), at("no")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_special, setup, teardown),
        cmocka_unit_test_setup_teardown(test_taken_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_longest_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log_reader, setup, teardown),
        cmocka_unit_test_setup_teardown(test_standard_output, setup, teardown),
        cmocka_unit_test_setup_teardown(test_signal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_same, setup, teardown),
    };
    return cmocka_run_group_tests_name("file_out", tests, NULL, NULL);
}
