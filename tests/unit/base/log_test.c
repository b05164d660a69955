/* Tests of base/log.c: levels, one line a message, escapes, JSON form. */
#include "base/log.h"

#include "base/json.h"
#include "base/thread.h"
#include "lib/t9test.h"

static int saved_stderr;
static char log_path[96];

/* Sends descriptor 2 to a file. */
static void capture_begin(void)
{
    snprintf(log_path, sizeof log_path, "/tmp/t9-log-%d", (int)getpid());
    saved_stderr = dup(2);
    int fd = open(log_path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    assert_true(fd >= 0);
    dup2(fd, 2);
    close(fd);
}

static size_t capture_end(char *out, size_t cap)
{
    dup2(saved_stderr, 2);
    close(saved_stderr);
    FILE *f = fopen(log_path, "rb");
    assert_non_null(f);
    size_t n = fread(out, 1, cap - 1, f);
    fclose(f);
    unlink(log_path);
    out[n] = 0;
    return n;
}

static char text[1 << 20];

static void test_levels(void **state)
{
    (void)state;
    log_level l = LOG_LEVEL_ERROR;
    assert_true(log_level_parse("debug", &l));
    assert_int_equal(l, LOG_LEVEL_DEBUG);
    assert_false(log_level_parse("loud", &l));
    log_configure(&(struct log_config){.level = LOG_LEVEL_WARN});
    capture_begin();
    LOG_INFO("m", "hidden");
    LOG_DEBUG("m", "hidden");
    LOG_WARN("mod", "shown %d", 5);
    capture_end(text, sizeof text);
    assert_null(strstr(text, "hidden"));
    assert_non_null(strstr(text, "Z warn mod: shown 5\n"));
    assert_false(log_enabled(LOG_LEVEL_INFO));
    assert_true(log_enabled(LOG_LEVEL_ERROR));
}

static void test_escapes(void **state)
{
    (void)state;
    log_configure(&(struct log_config){.level = LOG_LEVEL_INFO});
    capture_begin();
    LOG_INFO("m", "a\nb\x1b[31m\xFF\xC3\xA9");
    capture_end(text, sizeof text);
    assert_non_null(strstr(text, "m: a\\x0ab\\x1b[31m\xEF\xBF\xBD\xC3\xA9\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void test_json_and_cut(void **state)
{
    (void)state;
    static char big[5000];
    memset(big, '"', sizeof big - 1);
    log_configure(&(struct log_config){.level = LOG_LEVEL_INFO, .json = true});
    capture_begin();
    LOG_ERROR("mod", "%s", big);
    size_t n = capture_end(text, sizeof text);
    yyjson_doc *doc;
    struct t9_err err;
    assert_int_equal(json_parse(&doc, (str){text, n}, JSON_LIMITS_REQUEST, &err), T9_STATUS_OK);
    yyjson_val *root = yyjson_doc_get_root(doc);
    assert_true(str_eqz(json_str(json_get(root, "level")), "error"));
    assert_true(str_eqz(json_str(json_get(root, "module")), "mod"));
    assert_true(str_has_suffix(json_str(json_get(root, "msg")), STR("\" [cut]")));
    assert_int_equal(json_str(json_get(root, "ts")).n, 24);
    yyjson_doc_free(doc);
}

/* The journal has a time and a level of its own. */
static void test_journal(void **state)
{
    (void)state;
    log_configure(&(struct log_config){.level = LOG_LEVEL_DEBUG, .journal = true});
    capture_begin();
    LOG_ERROR("mod", "a\nb");
    LOG_WARN("mod", "b");
    LOG_INFO("mod", "c");
    LOG_DEBUG("mod", "d");
    log_configure(&(struct log_config){.level = LOG_LEVEL_INFO, .json = true, .journal = true});
    LOG_INFO("mod", "e");
    capture_end(text, sizeof text);
    log_configure(&(struct log_config){.level = LOG_LEVEL_INFO});
    static const char want[] = "<3>mod: a\\x0ab\n<4>mod: b\n<6>mod: c\n<7>mod: d\n<6>{\"ts\":\"";
    assert_memory_equal(text, want, sizeof want - 1);
}

static void write_lines(void *arg)
{
    for (int i = 0; i < 500; i++)
        LOG_INFO("t", "line %s end", (const char *)arg);
}

/* Lines of several threads do not mix. */
static void test_lines_are_whole(void **state)
{
    (void)state;
    static char a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    static char b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    struct thread t[2];
    struct t9_err err;
    log_configure(&(struct log_config){.level = LOG_LEVEL_INFO});
    capture_begin();
    assert_int_equal(thread_start(&t[0], "a", write_lines, a, &err), T9_STATUS_OK);
    assert_int_equal(thread_start(&t[1], "b", write_lines, b, &err), T9_STATUS_OK);
    thread_join(&t[0]);
    thread_join(&t[1]);
    capture_end(text, sizeof text);
    int n = 0;
    for (char *p = text; *p; n++) {
        char *end = strchr(p, '\n');
        assert_non_null(end);
        *end = 0;
        assert_true(strstr(p, a) || strstr(p, b));
        assert_int_equal(strlen(p), 24 + strlen(" info t: line  end") + strlen(a));
        p = end + 1;
    }
    assert_int_equal(n, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),          cmocka_unit_test(test_journal),
        cmocka_unit_test(test_escapes),         cmocka_unit_test(test_json_and_cut),
        cmocka_unit_test(test_lines_are_whole),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
