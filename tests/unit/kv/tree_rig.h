/*
 * tree_rig.h - what the tests of the prefix tree share: a pool and a tree at a time, the check of
 * its invariants, texts and their hashes. For one source file of a test.
 */
#ifndef T9_TESTS_KV_TREE_RIG_H
#define T9_TESTS_KV_TREE_RIG_H

#include "base/hash.h"
#include "kv/checkpoint.h"
#include "kv/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct be *be;
static struct kv_geom geom;
static struct kv_pool *pool;
static struct kv_tree *tree;
static uint64_t now;

/* What a group's setup function returns. */
static int rig_open(void)
{
    struct be_params bp = {.n_threads = 1, .max_rows = 1};
    struct t9_err err;
    return be_new(&be, "ref", &bp, &err) == T9_STATUS_OK ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    be_free(be);
    return 0;
}

/* A tree over the pool. */
static void rig_open_tree(void)
{
    struct t9_err err;
    assert_int_equal(kv_tree_new(&tree, pool, STR("salt"), &err), T9_STATUS_OK);
    now = 1000000000000u;
}

/* Nothing may be left in use. */
static void close_tree(void)
{
    kv_tree_free(tree);
    assert_int_equal(kv_pool_stats(pool).pages_used, 0);
    assert_int_equal(kv_pool_stats(pool).windows_used, 0);
    assert_int_equal(kv_pool_stats(pool).states_used, 0);
    kv_pool_free(pool);
}

static void check(const struct kv_hold *holds, int32_t n)
{
    struct t9_err err = {0};
    if (kv_tree_check(tree, holds, n, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
}

static uint64_t hash_of(const int32_t *tokens, int32_t n)
{
    return hash_xxh3_64(tokens, (size_t)n * sizeof *tokens, 9);
}

static void count_up(int32_t *tokens, int32_t n, int32_t base)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = base + i;
}

#endif
