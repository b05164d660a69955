/* backend/state_geom.h: where the parts of a recurrent state lie. */
#include "backend/state_geom.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 3 };

static const struct state_shape delta = {.n_layers = 2,
                                         .taps = 4,
                                         .channels = 2 * 1 * 5 + 2 * 7,
                                         .n_heads = 2,
                                         .n_key_heads = 1,
                                         .key_dim = 5,
                                         .value_dim = 7};

static void test_no_state(void **state)
{
    (void)state;
    struct state_geom g;
    assert_true(state_geom_init(&g, &(struct state_shape){0}));
    assert_int_equal(g.slot_bytes, 0);
}

/* Marks n floats from p on; none may be marked twice. */
static void mark(char *pool, uint8_t *seen, const float *p, size_t n)
{
    size_t at = (size_t)((const char *)p - pool);
    for (size_t i = 0; i < n * sizeof(float); i++)
        assert_int_equal(seen[at + i]++, 0);
}

/* Each part of each slot is inside of it, and no two parts share a byte. */
static void test_parts_are_apart(void **state)
{
    (void)state;
    static _Alignas(64) char pool[SLOTS * 16384];
    static uint8_t seen[sizeof(pool)];
    struct state_geom g;
    memset(seen, 0, sizeof(seen));
    assert_true(state_geom_init(&g, &delta));
    assert_true(g.slot_bytes * SLOTS <= sizeof(pool));
    assert_int_equal(g.slot_bytes % 4096, 0);
    for (int32_t slot = 0; slot < SLOTS; slot++) {
        for (int32_t il = 0; il < delta.n_layers; il++) {
            for (int32_t h = 0; h < delta.n_heads; h++)
                mark(pool, seen, state_matrix(&g, pool, slot, il, h), 5 * 7);
            mark(pool, seen, state_history(&g, pool, slot, il), 3 * (size_t)delta.channels);
            for (int32_t r = 0; r < STATE_JOURNAL_ROWS; r++) {
                mark(pool, seen, state_journal_conv(&g, pool, slot, il, r), (size_t)g.conv_cols);
                mark(pool, seen, state_journal_delta(&g, pool, slot, il, r), (size_t)g.delta_cols);
            }
        }
    }
    for (size_t i = 0; i < (size_t)SLOTS * g.slot_bytes; i++) {
        if (i % g.slot_bytes >= g.state_bytes + 2 * g.journal_layer_bytes)
            assert_int_equal(seen[i], 0);
    }
    /* A snapshot is the first bytes of a slot, and the journal is not in it. */
    assert_true((char *)state_journal_conv(&g, pool, 1, 0, 0) ==
                state_slot(&g, pool, 1) + g.state_bytes);
    assert_int_equal(g.delta_cols, 5 + 2 * 7 + 2 * 2);
}

static void test_refuses(void **state)
{
    (void)state;
    struct state_geom g;
    struct state_shape s = delta;
    s.taps = 1;
    assert_false(state_geom_init(&g, &s));
    s = delta;
    s.n_heads = 3;
    s.n_key_heads = 2;
    assert_false(state_geom_init(&g, &s));
    s = delta;
    s.key_dim = STATE_DIM_MAX + 1;
    assert_false(state_geom_init(&g, &s));
    s = delta;
    s.n_layers = -1;
    assert_false(state_geom_init(&g, &s));
    s = (struct state_shape){.n_layers = 1, .taps = 3, .channels = 8};
    assert_true(state_geom_init(&g, &s));
    assert_int_equal(g.delta_cols, 0);
    s.key_dim = 8;
    assert_false(state_geom_init(&g, &s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_state),
        cmocka_unit_test(test_parts_are_apart),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
