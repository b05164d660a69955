/*
 * engine/testing.h - what simulators and tests see of a running engine beyond engine.h. Nothing of
 * the program includes it.
 */
#ifndef T9_ENGINE_TESTING_H
#define T9_ENGINE_TESTING_H

#include "base/err.h"
#include "kv/prefix.h"

struct engine;

/* Called on the engine thread after each step, with the engine between two steps, and each time
 * before it sleeps because nothing is left (once it has made a step). Set before the first submit.
 */
typedef void (*engine_step_hook)(void *ctx, struct engine *e);
void engine_set_step_hook(struct engine *e, engine_step_hook hook, void *ctx);

/* Inside the hook only. CORRUPT with what is wrong: kv_tree_check with the holds of all sequences;
 * page tables against the tree and the pool (every page is the tree's or one sequence's); counters
 * against lists. */
t9_status engine_check(struct engine *e, struct t9_err *err);
struct kv_tree *engine_tree(struct engine *e); /* NULL without prefix cache */
struct kv_pool *engine_pool(struct engine *e);

#endif
