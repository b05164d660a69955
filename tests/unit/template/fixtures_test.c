/* Unit tests: whole templates, our own and, where they are, the published ones: every case must be
 * byte-equal to what Python's jinja2 renders, every expected error an error. */
#include "render.h"

#include <glob.h>

static yyjson_doc *read_json(const char *path)
{
    yyjson_doc *doc = yyjson_read_file(path, YYJSON_READ_NOFLAG, NULL, NULL);
    if (!doc)
        fail_msg("can't read %s", path);
    return doc;
}

static void read_text(const char *path, struct buf *b)
{
    char tmp[65536];
    size_t n;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    buf_init(b, 16 << 20);
    while ((n = fread(tmp, 1, sizeof tmp, f)) > 0)
        buf_append(b, tmp, n);
    fclose(f);
    assert_false(b->failed);
}

/* Renders one template's cases; returns how many were not as expected. */
static int check_template(const char *name, str source, yyjson_val *cases, yyjson_val *expected,
                          int *n_cases)
{
    struct jinja_env env = {.now_unix_s = FIXTURE_NOW_UNIX_S};
    struct jinja_template *t;
    struct t9_err err = {0};
    int bad = 0;
    size_t i, max;
    yyjson_val *k, *want;
    if (jinja_parse(&t, source, &err) != T9_STATUS_OK)
        fail_msg("%s: %s", name, err.msg);
    yyjson_obj_foreach(expected, i, max, k, want)
    {
        struct jinja_output out;
        str text = json_str(yyjson_obj_get(want, "text"));
        t9_status s =
            jinja_render(t, yyjson_obj_get(cases, yyjson_get_str(k)), NULL, &env, &out, &err);
        bool ok = s == T9_STATUS_OK ? text.p && str_eq(text, buf_str(&out.text)) : !text.p;
        if (!ok)
            print_error("%s, %s: %s\n", name, yyjson_get_str(k),
                        s == T9_STATUS_OK ? "the text differs" : err.msg);
        bad += !ok;
        ++*n_cases;
        jinja_output_deinit(&out);
    }
    jinja_free(t);
    return bad;
}

static void own_templates(void **state)
{
    (void)state;
    yyjson_doc *cases = read_json(T9_TEST_DATA_DIR "/templates/cases.json");
    yyjson_doc *expected = read_json(T9_TEST_DATA_DIR "/templates/expected.json");
    int n = 0, bad = 0;
    size_t i, max;
    yyjson_val *k, *v;
    yyjson_obj_foreach(yyjson_doc_get_root(expected), i, max, k, v)
    {
        char path[1024];
        struct buf source;
        const char *name = yyjson_is_str(k) ? yyjson_get_str(k) : "";
        snprintf(path, sizeof path, "%s/templates/%s.jinja", T9_TEST_DATA_DIR, name);
        read_text(path, &source);
        bad += check_template(name, buf_str(&source),
                              yyjson_obj_get(yyjson_doc_get_root(cases), name), v, &n);
        buf_deinit(&source);
    }
    yyjson_doc_free(cases);
    yyjson_doc_free(expected);
    assert_true(n >= 6);
    assert_int_equal(bad, 0);
}

static void published_templates(void **state)
{
    (void)state;
    glob_t g;
    int n = 0, bad = 0;
    if (glob(T9_FIXTURES_DIR "/templates/*.expected.json", 0, NULL, &g) != 0) {
        print_message("no templates in " T9_FIXTURES_DIR "\n");
        skip();
    }
    yyjson_doc *cases = read_json(T9_FIXTURES_DIR "/templates/cases.json");
    for (size_t i = 0; i < g.gl_pathc; i++) {
        char path[1024];
        struct buf source;
        size_t stem = strlen(g.gl_pathv[i]) - strlen(".expected.json");
        snprintf(path, sizeof path, "%.*s.jinja", (int)stem, g.gl_pathv[i]);
        yyjson_doc *expected = read_json(g.gl_pathv[i]);
        read_text(path, &source);
        bad += check_template(path, buf_str(&source), yyjson_doc_get_root(cases),
                              yyjson_doc_get_root(expected), &n);
        buf_deinit(&source);
        yyjson_doc_free(expected);
    }
    print_message("%zu templates, %d cases, %d different\n", g.gl_pathc, n, bad);
    globfree(&g);
    yyjson_doc_free(cases);
    assert_true(n > 0);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_templates),
        cmocka_unit_test(published_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
