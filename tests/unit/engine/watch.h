/*
 * watch.h - an engine whose every invariant, of tree, pool and slots, is checked after each step;
 * and a request to it that must fail. For one source file of a test.
 */
#ifndef T9_TESTS_ENGINE_WATCH_H
#define T9_TESTS_ENGINE_WATCH_H

#include "drive.h"
#include "engine/internal.h"

/* What the hook has seen; engine thread only, read after engine_free. */
struct watch {
    int steps, faults;
    struct t9_err first;
};

static void check_step(void *ctx, struct engine *e)
{
    struct watch *w = ctx;
    struct t9_err err;
    w->steps++;
    if (engine_check(e, &err) != T9_STATUS_OK && w->faults++ == 0)
        w->first = err;
}

static struct engine *start_watched(const struct engine_params *p, struct watch *w)
{
    struct engine *e = start(p);
    *w = (struct watch){0};
    engine_set_step_hook(e, check_step, w);
    return e;
}

static void end_watched(struct engine *e, struct be *be, const struct watch *w)
{
    engine_free(e);
    if (w->faults > 0)
        fail_msg("%d of %d steps: %s", w->faults, w->steps, w->first.msg);
    assert_int_equal(atomic_load(&be->broken), 0);
    assert_int_equal(atomic_load(&be->reserved), 0);
    fake_be_free(be);
}

/* A request for the first n tokens, with the last one poisoned: its logits are not numbers. */
static void run_failing(struct engine *e, int32_t *prompt, int32_t n)
{
    int32_t last = prompt[n - 1];
    prompt[n - 1] = FAKE_POISON;
    struct request *r = make(prompt, n, 5);
    submit(e, r);
    assert_int_equal(read_to_end(e, r).kind, EVENT_ERROR);
    request_free(r);
    prompt[n - 1] = last;
}

#endif
