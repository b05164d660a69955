/* Tests of cli/config.c: what the environment says. */
#include "cli/cli.h"

#include "lib/t9test.h"

#include <stdlib.h>
#include <sys/stat.h>

static void test_journal(void **state)
{
    (void)state;
    struct stat st;
    char v[64];
    assert_int_equal(fstat(STDERR_FILENO, &st), 0);
    unsetenv("JOURNAL_STREAM");
    assert_false(config_stderr_is_journal());
    for (int other = 0; other < 2; other++) {
        snprintf(v, sizeof v, "%ju:%ju", (uintmax_t)st.st_dev,
                 (uintmax_t)st.st_ino + (unsigned)other);
        setenv("JOURNAL_STREAM", v, 1);
        assert_int_equal(config_stderr_is_journal(), !other);
    }
    static const char *const bad[] = {"", ":", "1", "a:b", "1:2:3"};
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        setenv("JOURNAL_STREAM", bad[i], 1);
        assert_false(config_stderr_is_journal());
    }
    unsetenv("JOURNAL_STREAM");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_journal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
