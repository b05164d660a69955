/*
 * memory_test: the memory that may still be taken, read from made-up /proc and /sys trees.
 */
#include "base/memory.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MB ((uint64_t)1 << 20)

static char root[64];

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/t9-memory-XXXXXX");
    return mkdtemp(root) ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* Writes root + path, and the folders on the way. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void meminfo(void)
{
    put("/proc/meminfo", "MemTotal:       8000000 kB\nMemFree:  100 kB\n"
                         "MemAvailable:    4194304 kB\nBuffers: 1 kB\n");
}

static void nothing_known(void **state)
{
    (void)state;
    assert_int_equal(memory_available_bytes(root), UINT64_MAX);
    assert_int_equal(memory_kv_default_bytes(root), 1024 * MB);
    put("/proc/meminfo", "MemAvailable: many kB\n");
    assert_int_equal(memory_available_bytes(root), UINT64_MAX);
    put("/proc/meminfo", "MemAvailable: 99999999999999999999 kB\n");
    assert_int_equal(memory_available_bytes(root), UINT64_MAX);
    put("/proc/meminfo", "MemAvailable: 18446744073709551615 kB\n");
    assert_int_equal(memory_available_bytes(root), UINT64_MAX);
}

static void no_groups(void **state)
{
    (void)state;
    meminfo();
    assert_int_equal(memory_available_bytes(root), 4096 * MB);
    assert_int_equal(memory_kv_default_bytes(root), 2048 * MB);
    put("/proc/meminfo", "MemAvailable: 1000 kB");
    assert_int_equal(memory_available_bytes(root), 1024000);
    assert_int_equal(memory_kv_default_bytes(root), 64 * MB);
}

static void version_2(void **state)
{
    (void)state;
    meminfo();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "1048576\n");
    assert_int_equal(memory_available_bytes(root), 4096 * MB);
    /* The group above has the limit; its file cache can go. */
    put("/sys/fs/cgroup/a/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/a/memory.current", "524288000\n");
    assert_int_equal(memory_available_bytes(root), 524 * MB);
    put("/sys/fs/cgroup/a/memory.stat", "anon 5\nactive_file 7\ninactive_file 104857600\n");
    assert_int_equal(memory_available_bytes(root), 624 * MB);
    put("/sys/fs/cgroup/a/b/memory.high", "209715200\n");
    assert_int_equal(memory_available_bytes(root), 199 * MB);
    put("/sys/fs/cgroup/a/b/memory.max", "104857600\n");
    assert_int_equal(memory_available_bytes(root), 99 * MB);
    /* More used than allowed. */
    put("/sys/fs/cgroup/a/b/memory.current", "1048576000\n");
    assert_int_equal(memory_kv_default_bytes(root), 64 * MB);
}

static void version_2_at_the_root(void **state)
{
    (void)state;
    meminfo();
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "2147483648\n");
    put("/sys/fs/cgroup/memory.current", "1073741824\n");
    assert_int_equal(memory_available_bytes(root), 1024 * MB);
    /* A path from outside the container. */
    put("/proc/self/cgroup", "0::/system.slice/docker-1.scope\n");
    assert_int_equal(memory_available_bytes(root), 1024 * MB);
}

static void version_1(void **state)
{
    (void)state;
    meminfo();
    put("/proc/self/cgroup", "9:name=systemd:/\n5:cpu,cpuacct:/c\n4:hugetlb,memory:/x/y\n0::/\n");
    put("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "4096\n");
    assert_int_equal(memory_available_bytes(root), 4096 * MB);
    put("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "1073741824\n");
    put("/sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "536870912\n");
    put("/sys/fs/cgroup/memory/x/y/memory.stat", "cache 9\ntotal_inactive_file 268435456\n");
    assert_int_equal(memory_available_bytes(root), 768 * MB);
}

static void strange_groups(void **state)
{
    (void)state;
    meminfo();
    char longest[3000] = "0::/";
    memset(longest + 4, 'a', sizeof longest - 5);
    longest[sizeof longest - 1] = '\0';
    put("/proc/self/cgroup", longest);
    assert_int_equal(memory_available_bytes(root), 4096 * MB);
    put("/proc/self/cgroup", "\n::\n:::\nmemory\n4:memory\n4:,memory,:/\n0::\n");
    put("/sys/fs/cgroup/memory.max", "bytes\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "-1\n");
    assert_int_equal(memory_available_bytes(root), 4096 * MB);
}

static void this_machine(void **state)
{
    (void)state;
    assert_true(memory_kv_default_bytes("") >= 64 * MB);
    assert_true(memory_available_bytes("") < (uint64_t)1 << 46);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_known, setup, teardown),
        cmocka_unit_test_setup_teardown(no_groups, setup, teardown),
        cmocka_unit_test_setup_teardown(version_2, setup, teardown),
        cmocka_unit_test_setup_teardown(version_2_at_the_root, setup, teardown),
        cmocka_unit_test_setup_teardown(version_1, setup, teardown),
        cmocka_unit_test_setup_teardown(strange_groups, setup, teardown),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
