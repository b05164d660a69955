/* Memory for weights: many to a piece, on huge pages, given back with the last of a piece. */
#include "backend/cpu/slab.c"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static size_t n_pieces(const struct slabs *s)
{
    size_t n = 0;
    for (const struct slab *p = s->first; p; p = p->next)
        n++;
    return n;
}

static void test_small_ones_share_a_piece(void **state)
{
    (void)state;
    struct slabs s = {0};
    char *p[100];
    for (size_t i = 0; i < 100; i++) {
        p[i] = slabs_alloc(&s, 100 * i);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % LINE, 0);
        memset(p[i], (int)i, 100 * i);
    }
    assert_int_equal(n_pieces(&s), 1);
    assert_int_equal((uintptr_t)p[0] % MEM_HUGE_BYTES, 0);
    for (size_t i = 0; i < 100; i++) {
        for (size_t k = 0; k < 100 * i; k++)
            assert_int_equal(p[i][k], (char)i);
        slabs_free(&s, p[i]);
    }
    assert_int_equal(n_pieces(&s), 0);
}

static void test_pieces_double_and_take_what_is_larger(void **state)
{
    (void)state;
    struct slabs s = {0};
    char *a = slabs_alloc(&s, MEM_HUGE_BYTES), *b = slabs_alloc(&s, 1),
         *c = slabs_alloc(&s, 3 * MEM_HUGE_BYTES), *d = slabs_alloc(&s, 1),
         *e = slabs_alloc(&s, SLAB_BYTES_MAX + 1);
    assert_int_equal(s.first->size_bytes, SLAB_BYTES_MAX + MEM_HUGE_BYTES);
    assert_int_equal(s.first->next->size_bytes, 4 * MEM_HUGE_BYTES);
    assert_int_equal(s.first->next->next->size_bytes, 2 * MEM_HUGE_BYTES);
    assert_ptr_equal(d, c + 3 * MEM_HUGE_BYTES);
    assert_int_equal(n_pieces(&s), 4);
    slabs_free(&s, c);
    slabs_free(&s, NULL);
    assert_int_equal(n_pieces(&s), 4); /* d is in it */
    slabs_free(&s, d);
    slabs_free(&s, a);
    assert_int_equal(n_pieces(&s), 2);
    *b = *e = 1; /* still there */
    slabs_deinit(&s);
    assert_null(s.first);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct slabs s = {0};
    for (uint64_t n = 1; n <= 2; n++) {
        mem_test_fail_nth(n);
        assert_null(slabs_alloc(&s, 1));
        mem_test_fail_nth(0);
        assert_null(s.first);
    }
    assert_null(slabs_alloc(&s, SIZE_MAX));
    assert_null(slabs_alloc(&s, SIZE_MAX - MEM_HUGE_BYTES));
    slabs_deinit(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_ones_share_a_piece),
        cmocka_unit_test(test_pieces_double_and_take_what_is_larger),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
