/*
 * ahead_test: memory comes before it is used, in bounds that follow use, and goes back.
 */
#include "kv/ahead.c"

#include "base/clock.h"
#include "resident.h"

#include <string.h>

static char *reserve(size_t n)
{
    char *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    return p;
}

static bool reaches(struct ahead *a, size_t done)
{
    for (int i = 0; i < 5000 && atomic_load(&a->done) < done; i++)
        clock_sleep_ms(1);
    return atomic_load(&a->done) == done;
}

static void follows_use(void **state)
{
    (void)state;
    const size_t size = (size_t)1024 * MB;
    char *p = reserve(size);
    struct ahead a = {0};
    assert_int_equal(ahead_init(&a, p, size, NULL), T9_STATUS_OK);
    clock_sleep_ms(5);
    assert_int_equal(resident(p, size), 0); /* starting costs nothing */
    ahead_grow(&a, 2 * MB, SIZE_MAX);
    assert_true(reaches(&a, 4 * MB));
    assert_int_equal(resident(p + 2 * MB, size - 2 * MB), 2 * MB);
    assert_int_equal(resident(p, 2 * MB), 0); /* in use: somebody writes it anyway */
    for (size_t used = 2 * MB; used <= (size_t)200 * MB; used += MB / 4)
        ahead_grow(&a, used, SIZE_MAX);
    size_t want = atomic_load(&a.want);
    assert_true(want > (size_t)(200 + 32) * MB && want <= (size_t)(200 + 64) * MB);
    assert_true(reaches(&a, want));
    assert_int_equal(resident(p + (size_t)200 * MB, size - (size_t)200 * MB),
                     want - (size_t)200 * MB);
    size_t end = ahead_shrink(&a, MB);
    assert_true(end >= want);
    assert_int_equal(madvise(p + MB, end - MB, MADV_DONTNEED), 0);
    assert_true(resident(p, size) <= 2 * MB);
    ahead_grow(&a, 8 * MB, 3 * MB);
    assert_true(reaches(&a, 11 * MB));
    assert_int_equal(ahead_beyond(&a, 9 * MB), 2 * MB);
    assert_int_equal(ahead_beyond(&a, 12 * MB), 0);
    ahead_grow(&a, 8 * MB, SIZE_MAX);
    assert_true(reaches(&a, 16 * MB));
    assert_int_equal(resident(p + 8 * MB, size - 8 * MB), 8 * MB);
    ahead_deinit(&a);
    munmap(p, size);
}

static void small_pools(void **state)
{
    (void)state;
    const size_t size = 32 * MB;
    char *p = reserve(size);
    struct ahead a = {0};
    assert_int_equal(ahead_init(&a, p, size, NULL), T9_STATUS_OK);
    ahead_grow(&a, 10 * MB, SIZE_MAX);
    assert_true(reaches(&a, 12 * MB)); /* a sixteenth */
    ahead_grow(&a, 32 * MB - 1000, SIZE_MAX);
    ahead_grow(&a, 32 * MB, SIZE_MAX);
    assert_true(atomic_load(&a.want) <= size);
    ahead_deinit(&a);
    ahead_deinit(&a);
    munmap(p, size);
}

/* Where the system cannot be asked. */
static void touching_changes_nothing(void **state)
{
    (void)state;
    char *p = reserve(2 * MB);
    memset(p, 0x5a, MB);
    touch(p, 2 * MB);
    assert_int_equal(resident(p, 2 * MB), 2 * MB);
    for (size_t i = 0; i < MB; i += 512) {
        assert_int_equal(p[i], 0x5a);
        assert_int_equal(p[MB + i], 0);
    }
    munmap(p, 2 * MB);
}

/* Growth, shrinking and the thread at any moment of each other; what is in use keeps its bytes. */
static void races(void **state)
{
    (void)state;
    const size_t size = (size_t)256 * MB;
    char *p = reserve(size);
    struct ahead a = {0};
    assert_int_equal(ahead_init(&a, p, size, NULL), T9_STATUS_OK);
    for (int round = 0; round < 30; round++) {
        for (size_t used = MB; used <= (size_t)16 * MB; used += MB / 4) {
            ahead_grow(&a, used, SIZE_MAX);
            p[used - 1] = (char)round;
        }
        size_t end = ahead_shrink(&a, MB);
        assert_int_equal(madvise(p + MB, end - MB, MADV_DONTNEED), 0);
        assert_int_equal(p[MB - 1], (char)round);
    }
    ahead_deinit(&a);
    (void)ahead_shrink(&a, 0);
    munmap(p, size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_use),
        cmocka_unit_test(small_pools),
        cmocka_unit_test(touching_changes_nothing),
        cmocka_unit_test(races),
    };
    return cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
}
