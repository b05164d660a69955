/* Tests of hub/cache.c: the layout, and what somebody else may have put in its place. */
#include "hub/cache.h"

#include "lib/t9test.h"

#include <sys/stat.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define HASH   COMMIT "0123456789abcdef01234567"
#define REPO   "models--o--r"

struct fixture {
    char dir[64];
    struct hub_cache c;
    struct t9_err err;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    test_tmpdir(f->dir);
    assert_int_equal(hub_cache_open(&f->c, f->dir, "o/r", true, &f->err), T9_STATUS_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    hub_cache_close(&f->c);
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", f->dir);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

static const char *in(const struct fixture *f, const char *path)
{
    static char out[2][512];
    static int i;
    i = !i;
    snprintf(out[i], sizeof out[i], "%s/" REPO "/%s", f->dir, path);
    return out[i];
}

static void blob_write(struct fixture *f, const char *text)
{
    int fd;
    uint64_t n;
    assert_int_equal(hub_cache_partial_open(&f->c, HASH, &fd, &n, &f->err), T9_STATUS_OK);
    assert_int_equal(n, 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(hub_cache_partial_bytes(&f->c, HASH), strlen(text));
    assert_int_equal(hub_cache_partial_finish(&f->c, HASH, fd, &f->err), T9_STATUS_OK);
    close(fd);
}

static size_t list(struct fixture *f, struct arena *arena, struct hub_files *files)
{
    arena_init(arena, 8 << 20);
    assert_int_equal(hub_cache_list(&f->c, COMMIT, arena, files, &f->err), T9_STATUS_OK);
    return files->n;
}

static void test_layout(void **state)
{
    struct fixture *f = *state;
    char text[128], commit[41];
    struct arena arena;
    struct hub_files files;
    assert_int_equal(hub_cache_ref_read(&f->c, commit, &f->err), T9_STATUS_NOT_FOUND);
    blob_write(f, "weights");
    assert_true(hub_cache_has(&f->c, HASH, 7));
    assert_false(hub_cache_has(&f->c, HASH, 8));
    assert_int_equal(hub_cache_partial_bytes(&f->c, HASH), 0);
    assert_int_equal(hub_cache_link(&f->c, COMMIT, STR("x.gguf"), HASH, &f->err), T9_STATUS_OK);
    assert_int_equal(hub_cache_link(&f->c, COMMIT, STR("a/b/y.gguf"), HASH, &f->err), T9_STATUS_OK);
    assert_int_equal(hub_cache_link(&f->c, COMMIT, STR("x.gguf"), HASH, &f->err), T9_STATUS_OK);
    ssize_t n = readlink(in(f, "snapshots/" COMMIT "/x.gguf"), text, sizeof text);
    assert_true(str_eqz((str){text, (size_t)n}, "../../blobs/" HASH));
    n = readlink(in(f, "snapshots/" COMMIT "/a/b/y.gguf"), text, sizeof text);
    assert_true(str_eqz((str){text, (size_t)n}, "../../../../blobs/" HASH));
    assert_int_equal(access(in(f, "snapshots/" COMMIT "/a/b/y.gguf"), R_OK), 0);
    assert_int_equal(hub_cache_ref_write(&f->c, COMMIT, &f->err), T9_STATUS_OK);
    assert_int_equal(hub_cache_ref_read(&f->c, commit, &f->err), T9_STATUS_OK);
    assert_string_equal(commit, COMMIT);
    struct stat sb;
    assert_int_equal(stat(in(f, "refs/main"), &sb), 0);
    assert_int_equal(sb.st_size, 40); /* without an end of line, as the hub's tools write it */
    assert_int_equal(list(f, &arena, &files), 2);
    assert_int_equal(files.v[0].size_bytes, 7);
    arena_deinit(&arena);
    char path[HUB_FILE_PATH_MAX];
    assert_int_equal(hub_cache_path(&f->c, COMMIT, STR("x.gguf"), path, &f->err), T9_STATUS_OK);
    assert_string_equal(path, in(f, "snapshots/" COMMIT "/x.gguf"));
}

static void test_nothing_there(void **state)
{
    struct fixture *f = *state;
    struct hub_cache c;
    assert_int_equal(hub_cache_open(&c, f->dir, "o/other", false, &f->err), T9_STATUS_NOT_FOUND);
    hub_cache_close(&c);
    assert_int_equal(hub_cache_open(&c, "/dev/null/x", "o/r", true, &f->err), T9_STATUS_IO);
}

static void test_links_lead_nowhere(void **state)
{
    struct fixture *f = *state;
    char victim[96], text[8] = "";
    int fd;
    uint64_t n;
    struct arena arena;
    struct hub_files files;
    snprintf(victim, sizeof victim, "%s/victim", f->dir);
    test_write_file(victim, "mine", 4);
    /* a partial file that is a link, hard or soft, or no file at all */
    assert_int_equal(symlink(victim, in(f, "blobs/" HASH ".incomplete")), 0);
    assert_int_equal(hub_cache_partial_open(&f->c, HASH, &fd, &n, &f->err), T9_STATUS_IO);
    assert_int_equal(hub_cache_partial_bytes(&f->c, HASH), 0);
    assert_int_equal(unlink(in(f, "blobs/" HASH ".incomplete")), 0);
    assert_int_equal(link(victim, in(f, "blobs/" HASH ".incomplete")), 0);
    assert_int_equal(hub_cache_partial_open(&f->c, HASH, &fd, &n, &f->err), T9_STATUS_IO);
    assert_non_null(strstr(f->err.msg, "plain file"));
    assert_int_equal(unlink(in(f, "blobs/" HASH ".incomplete")), 0);
    assert_int_equal(mkfifo(in(f, "blobs/" HASH ".incomplete"), 0600), 0);
    assert_int_equal(hub_cache_partial_open(&f->c, HASH, &fd, &n, &f->err), T9_STATUS_IO);
    /* a blob and a ref that are links */
    assert_int_equal(symlink(victim, in(f, "blobs/" HASH)), 0);
    assert_false(hub_cache_has(&f->c, HASH, 4));
    assert_int_equal(mkdir(in(f, "refs"), 0700), 0);
    assert_int_equal(symlink(victim, in(f, "refs/main")), 0);
    char commit[41];
    assert_int_equal(hub_cache_ref_read(&f->c, commit, &f->err), T9_STATUS_IO);
    assert_int_equal(hub_cache_ref_write(&f->c, COMMIT, &f->err), T9_STATUS_OK);
    /* a snapshot that is a link to another folder, and links in one */
    assert_int_equal(symlink(f->dir, in(f, "snapshots/" COMMIT)), 0);
    assert_int_equal(hub_cache_link(&f->c, COMMIT, STR("x.gguf"), HASH, &f->err), T9_STATUS_IO);
    assert_non_null(strstr(f->err.msg, "a link or a file"));
    assert_int_equal(unlink(in(f, "snapshots/" COMMIT)), 0);
    assert_int_equal(mkdir(in(f, "snapshots/" COMMIT), 0700), 0);
    assert_int_equal(symlink(victim, in(f, "snapshots/" COMMIT "/a.gguf")), 0);
    assert_int_equal(symlink("../../blobs/../../victim", in(f, "snapshots/" COMMIT "/b.gguf")), 0);
    assert_int_equal(symlink("../../blobs/" HASH, in(f, "snapshots/" COMMIT "/c.gguf")), 0);
    assert_int_equal(symlink(f->dir, in(f, "snapshots/" COMMIT "/d")), 0);
    assert_int_equal(list(f, &arena, &files), 0);
    arena_deinit(&arena);
    /* what stood in the way of a new link is replaced, not followed */
    assert_int_equal(hub_cache_link(&f->c, COMMIT, STR("a.gguf"), HASH, &f->err), T9_STATUS_OK);
    fd = open(victim, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof text), 4);
    close(fd);
    assert_string_equal(text, "mine");
}

static void test_folder_is_a_link(void **state)
{
    struct fixture *f = *state;
    struct hub_cache c;
    char at[128];
    snprintf(at, sizeof at, "%s/models--o--evil", f->dir);
    assert_int_equal(symlink("/tmp", at), 0);
    assert_int_equal(hub_cache_open(&c, f->dir, "o/evil", true, &f->err), T9_STATUS_IO);
    assert_int_equal(hub_cache_open(&c, f->dir, "o/evil", false, &f->err), T9_STATUS_IO);
}

static void test_ref_of_another_kind(void **state)
{
    struct fixture *f = *state;
    char commit[41];
    assert_int_equal(mkdir(in(f, "refs"), 0700), 0);
    test_write_file(in(f, "refs/main"), "../../../../../../../../../etc/xxxxxxxxx", 40);
    assert_int_equal(hub_cache_ref_read(&f->c, commit, &f->err), T9_STATUS_CORRUPT);
    test_write_file(in(f, "refs/main"), COMMIT "\n", 41);
    assert_int_equal(hub_cache_ref_read(&f->c, commit, &f->err), T9_STATUS_OK);
}

static void test_lock(void **state)
{
    struct fixture *f = *state;
    int a, b;
    assert_int_equal(hub_cache_lock(&f->c, HASH, &a, &f->err), T9_STATUS_OK);
    assert_int_equal(hub_cache_lock(&f->c, HASH, &b, &f->err), T9_STATUS_BUSY);
    close(a);
    assert_int_equal(hub_cache_lock(&f->c, HASH, &b, &f->err), T9_STATUS_OK);
    close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_layout, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links_lead_nowhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder_is_a_link, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ref_of_another_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
