/* Tests of hub/files.c: the hub's answer, and the choice among its files. */
#include "hub/files.h"

#include "lib/t9test.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA256 COMMIT "0123456789abcdef01234567"

struct fixture {
    struct arena arena;
    struct hub_files files;
    struct hub_choice choice;
    struct buf listing;
    struct t9_err err;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->arena, 8 << 20);
    buf_init(&f->listing, 1 << 20);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_deinit(&f->arena);
    buf_deinit(&f->listing);
    free(f);
    return 0;
}

static void test_answer(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(
        hub_files_parse(
            &f->files, &f->arena,
            STR("{\"id\":\"a/b\",\"sha\":\"" COMMIT "\",\"siblings\":["
                "{\"rfilename\":\"README.md\",\"size\":3},"
                "{\"rfilename\":\"../evil.txt\"},"
                "{\"rfilename\":\"m-Q8_0.gguf\",\"size\":9,\"lfs\":{\"sha256\":\"" SHA256
                "\",\"size\":77,\"pointerSize\":130}},"
                "{\"rfilename\":\"n.gguf\",\"size\":5,\"blobId\":\"" COMMIT "\"}]}"),
            &f->err),
        T9_STATUS_OK);
    assert_string_equal(f->files.commit, COMMIT);
    assert_int_equal(f->files.n, 2);
    assert_string_equal(f->files.v[0].path.p, "m-Q8_0.gguf");
    assert_int_equal(f->files.v[0].size_bytes, 77);
    assert_string_equal(f->files.v[0].hash, SHA256);
    assert_int_equal(f->files.v[1].size_bytes, 5);
    assert_string_equal(f->files.v[1].hash, COMMIT);
}

static void test_hostile_answers(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "null",
        "{\"sha\":1,\"siblings\":[]}",
        "{\"sha\":\"" COMMIT "\"}",
        "{\"sha\":\"../../../../../../../../../../etc/passwd\",\"siblings\":[]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":{}}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"a/../x.gguf\",\"size\":1}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"/x.gguf\",\"size\":1}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"x.gguf\"}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"x.gguf\",\"size\":-1}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"x.gguf\",\"size\":1}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"x.gguf\",\"size\":1,"
        "\"lfs\":{\"sha256\":\"../../x\",\"size\":1}}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"x.gguf\",\"size\":1,"
        "\"lfs\":{\"sha256\":\"" COMMIT "\",\"size\":1}}]}",
        "{\"sha\":\"" COMMIT "\",\"siblings\":[{\"rfilename\":\"x.gguf\","
        "\"lfs\":{\"sha256\":\"" SHA256 "\",\"size\":99999999999999999999}}]}",
    };
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        t9_status s = hub_files_parse(&f->files, &f->arena, str_from(bad[i]), &f->err);
        if (s != T9_STATUS_CORRUPT)
            fail_msg("%s: %s", bad[i], t9_status_name(s));
        assert_int_equal(f->err.code, s);
        assert_true(f->err.msg[0] != 0);
    }
    /* Deeper than any answer of a hub is. */
    char deep[200];
    memset(deep, '[', sizeof deep);
    assert_int_equal(hub_files_parse(&f->files, &f->arena, (str){deep, sizeof deep}, &f->err),
                     T9_STATUS_TOO_LARGE);
}

/* Makes a list out of names with spaces between, and chooses. */
static t9_status choose(struct fixture *f, const char *names, const char *spec)
{
    static struct hub_file v[64];
    struct hub_name name;
    f->files = (struct hub_files){.v = v};
    buf_clear(&f->listing);
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, " ");
        v[f->files.n] =
            (struct hub_file){.path = arena_str(&f->arena, (str){p, n}), .size_bytes = 1000};
        f->files.n++;
        p += n + (p[n] == ' ');
    }
    assert_int_equal(hub_name_parse(&name, spec, &f->err), T9_STATUS_OK);
    return hub_choose(&f->choice, &f->files, &name, &f->listing, &f->err);
}

static void chosen(struct fixture *f, const char *names, const char *spec, const char *path)
{
    t9_status s = choose(f, names, spec);
    if (s != T9_STATUS_OK)
        fail_msg("%s of '%s': %s", spec, names, f->err.msg);
    assert_string_equal(f->choice.part[0]->path.p, path);
}

static void test_choice(void **state)
{
    struct fixture *f = *state;
    chosen(f, "x-Q2_K.gguf", "a/b", "x-Q2_K.gguf");
    chosen(f, "mmproj-F16.gguf x-Q2_K.gguf mtp-x.gguf", "a/b", "x-Q2_K.gguf");
    assert_string_equal(f->choice.mmproj->path.p, "mmproj-F16.gguf");
    chosen(f, "x-Q8_0.gguf x-Q4_K_S.gguf x-Q4_K_M.gguf", "a/b", "x-Q4_K_M.gguf");
    assert_null(f->choice.mmproj);
    chosen(f, "x-Q8_0.gguf x-Q4_K_S.gguf", "a/b", "x-Q4_K_S.gguf");
    chosen(f, "x-Q2_K.gguf x.q8_0.gguf", "a/b", "x.q8_0.gguf");
    chosen(f, "x-Q2_K.gguf x-Q8_0.gguf", "a/b:q2_k", "x-Q2_K.gguf");
    chosen(f, "x-Q2_K.gguf x-Q8_0.gguf", "a/b:x-Q2_K.gguf", "x-Q2_K.gguf");
    chosen(f, "x-UD-Q2_K.gguf x-Q2_K.gguf", "a/b:UD-Q2_K", "x-UD-Q2_K.gguf");
    /* An image encoder is served when somebody insists; loading will say what it is. */
    chosen(f, "x-Q2_K.gguf mmproj.gguf", "a/b:mmproj.gguf", "mmproj.gguf");
}

static void test_choice_is_the_users(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(choose(f, "x-Q2_K.gguf x-Q3_K.gguf", "a/b"), T9_STATUS_INVALID);
    buf_putc(&f->listing, 0);
    assert_non_null(strstr(f->listing.p, "Q2_K"));
    assert_non_null(strstr(f->listing.p, "x-Q3_K.gguf"));
    /* Two of the usual one are no choice either, and the next in line is not taken instead. */
    assert_int_equal(choose(f, "x-Q4_K_M.gguf y-Q4_K_M.gguf x-Q8_0.gguf", "a/b"),
                     T9_STATUS_INVALID);
    assert_int_equal(choose(f, "x-UD-Q2_K.gguf x-Q2_K.gguf", "a/b:Q2_K"), T9_STATUS_INVALID);
    assert_int_equal(choose(f, "x-Q2_K.gguf", "a/b:Q2"), T9_STATUS_NOT_FOUND);
    assert_int_equal(choose(f, "x-Q2_K.gguf", "a/b:y.gguf"), T9_STATUS_NOT_FOUND);
    assert_int_equal(choose(f, "mmproj.gguf", "a/b"), T9_STATUS_NOT_FOUND);
    assert_int_equal(choose(f, "", "a/b"), T9_STATUS_NOT_FOUND);
}

static void test_splits(void **state)
{
    struct fixture *f = *state;
    static const char all[] = "d/x-Q8_0-00002-of-00003.gguf d/x-Q8_0-00003-of-00003.gguf "
                              "d/x-Q8_0-00001-of-00003.gguf e/x-Q8_0-00002-of-00002.gguf";
    chosen(f, all, "a/b", "d/x-Q8_0-00001-of-00003.gguf");
    assert_int_equal(f->choice.n, 3);
    assert_string_equal(f->choice.part[2]->path.p, "d/x-Q8_0-00003-of-00003.gguf");
    chosen(f, all, "a/b:d/x-Q8_0-00002-of-00003.gguf", "d/x-Q8_0-00001-of-00003.gguf");
    assert_int_equal(choose(f, "x-00001-of-00002.gguf", "a/b"), T9_STATUS_NOT_FOUND);
    assert_non_null(strstr(f->err.msg, "part 2 of 2"));
    assert_int_equal(choose(f, "x-00001-of-99999.gguf", "a/b"), T9_STATUS_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_answer, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_choice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_choice_is_the_users, setup, teardown),
        cmocka_unit_test_setup_teardown(test_splits, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
