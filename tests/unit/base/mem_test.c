/* Tests of base/mem.c, base/buf.c and base/arena.c, with allocation failure at every step. */
#include "base/mem.h"

#include "base/arena.h"
#include "base/buf.h"
#include "lib/t9test.h"

static void test_mem_sizes(void **state)
{
    (void)state;
    void *p = mem_alloc(0);
    assert_non_null(p);
    mem_free(p);
    assert_null(mem_calloc(SIZE_MAX, 2));
    assert_null(mem_alloc(SIZE_MAX));
    p = mem_calloc(3, 5);
    for (int i = 0; i < 15; i++)
        assert_int_equal(((char *)p)[i], 0);
    ((char *)p)[14] = 9;
    assert_null(mem_realloc(p, SIZE_MAX / 2, 4));
    assert_int_equal(((char *)p)[14], 9);
    p = mem_realloc(p, 100, 1);
    assert_int_equal(((char *)p)[14], 9);
    mem_free(p);
    for (size_t align = 16; align <= 4096; align *= 2) {
        p = mem_alloc_aligned(align, 33);
        assert_int_equal((uintptr_t)p % align, 0);
        mem_free(p);
    }
    char *z = mem_strndup("hello", 3);
    assert_string_equal(z, "hel");
    mem_free(z);
}

static void test_mem_fail_nth(void **state)
{
    (void)state;
    uint64_t before = mem_thread_alloc_count();
    mem_test_fail_nth(2);
    void *a = mem_alloc(1);
    void *b = mem_alloc(1);
    void *c = mem_alloc(1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    assert_int_equal(mem_thread_alloc_count() - before, 3);
    mem_free(a);
    mem_free(c);
}

static void test_buf_grows_to_max(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 10);
    buf_puts(&b, "12345");
    buf_printf(&b, "%d", 67890);
    assert_false(b.failed);
    assert_true(str_eqz(buf_str(&b), "1234567890"));
    buf_putc(&b, 'x');
    assert_true(b.failed);
    assert_int_equal(b.n, 10);
    buf_clear(&b);
    buf_puts(&b, "12345678901");
    assert_true(b.failed);
    assert_int_equal(b.n, 0);
    buf_puts(&b, "sticky");
    assert_int_equal(b.n, 0);
    buf_clear(&b);
    buf_puts_str(&b, STR("abcdef"));
    buf_consume(&b, 2);
    assert_true(str_eqz(buf_str(&b), "cdef"));
    buf_consume(&b, 100);
    assert_int_equal(b.n, 0);
    assert_null(buf_reserve(&b, SIZE_MAX));
    buf_deinit(&b);
    buf_deinit(&b);
    buf_init(&b, 0);
    buf_append(&b, NULL, 0);
    assert_false(b.failed);
    buf_putc(&b, 'x');
    assert_true(b.failed);
    buf_deinit(&b);
}

/* Whatever allocation fails, the buffer holds a prefix of what was written and says so. */
static void test_buf_fail_nth(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 12; nth++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        mem_test_fail_nth(nth);
        for (int i = 0; i < 5000; i++)
            buf_printf(&b, "%04d", i);
        mem_test_fail_nth(0);
        assert_int_equal(b.failed, nth <= 10); /* capacities of 64 bytes to 32 KiB */
        assert_int_equal(b.n % 4, 0);
        for (size_t i = 0; i < b.n / 4; i++) {
            char want[16];
            snprintf(want, sizeof want, "%04d", (int)i);
            assert_memory_equal(b.p + 4 * i, want, 4);
        }
        buf_deinit(&b);
    }
}

static void test_arena_cap_and_marks(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 64 << 10);
    char *first = arena_alloc(&a, 3);
    assert_int_equal((uintptr_t)first % 16, 0);
    memset(first, 'a', 3);
    struct arena_mark m = arena_save(&a);
    size_t used = a.used;
    size_t n = 0;
    char *p;
    while ((p = arena_alloc(&a, 1000)) != NULL) {
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, (int)n, 1000);
        n++;
    }
    assert_int_equal(n, 65); /* (65536 - 16) / 1008 */
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_calloc(&a, SIZE_MAX, 2));
    arena_release(&a, m);
    assert_int_equal(a.used, used);
    assert_memory_equal(first, "aaa", 3);
    p = arena_calloc(&a, 4, 4);
    assert_memory_equal(p, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    str s = arena_str(&a, STR("view"));
    assert_int_equal(s.n, 4);
    assert_string_equal(s.p, "view");
    arena_deinit(&a);
    arena_deinit(&a);
    struct arena zero = {0};
    arena_deinit(&zero);
    arena_init(&a, 1000);
    m = arena_save(&a); /* of an empty arena */
    assert_non_null(arena_alloc(&a, 900));
    arena_release(&a, m);
    assert_non_null(arena_alloc(&a, 1000 - 8 - 16));
    arena_deinit(&a);
}

static void test_arena_fail_nth(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 9; nth++) {
        struct arena a;
        arena_init(&a, 1 << 20);
        mem_test_fail_nth(nth);
        size_t n_failed = 0;
        for (int i = 0; i < 200; i++) {
            char *p = arena_alloc(&a, 256);
            if (p)
                memset(p, i, 256);
            else
                n_failed++;
        }
        mem_test_fail_nth(0);
        /* A later attempt succeeds: only the one chunk failed. Chunks: 0.5, 1, ... 32 KiB. */
        assert_int_equal(n_failed, nth <= 7 ? 1 : 0);
        arena_deinit(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mem_sizes),           cmocka_unit_test(test_mem_fail_nth),
        cmocka_unit_test(test_buf_grows_to_max),    cmocka_unit_test(test_buf_fail_nth),
        cmocka_unit_test(test_arena_cap_and_marks), cmocka_unit_test(test_arena_fail_nth),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
