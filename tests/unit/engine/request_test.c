/*
 * request_test: events follow from a request's counters, in order, once each, tokens before the
 * end.
 */
#include "engine/request.c"

#include "lib/t9test.h"

static void order_of_events(void **state)
{
    (void)state;
    struct request *r = NULL;
    struct t9_err err;
    struct event_cursor c = {0};
    assert_int_equal(request_new(&r, 8, &err), T9_STATUS_OK);
    assert_int_equal(r->max_tokens, 8);
    r->n_prompt = 5;
    r->sampling.seed = 99;
    assert_int_equal(request_next(r, &c).kind, EVENT_NONE);

    atomic_store(&r->n_cached, 2);
    atomic_store(&r->clocks.admitted, 1);
    struct event ev = request_next(r, &c);
    assert_int_equal(ev.kind, EVENT_ADMITTED);
    assert_int_equal(ev.n_prompt, 5);
    assert_int_equal(ev.n_cached, 2);
    assert_int_equal(ev.seed, 99);
    assert_int_equal(request_next(r, &c).kind, EVENT_NONE);

    atomic_store(&r->n_prefilled, 3);
    ev = request_next(r, &c);
    assert_int_equal(ev.kind, EVENT_PROGRESS);
    assert_int_equal(ev.n_prefilled, 3);
    assert_int_equal(ev.n_prompt, 5);
    assert_int_equal(request_next(r, &c).kind, EVENT_NONE);

    atomic_store(&r->n_tokens, 1);
    atomic_store(&r->n_tokens, 4);
    ev = request_next(r, &c);
    assert_int_equal(ev.kind, EVENT_TOKENS);
    assert_int_equal(ev.from, 0);
    assert_int_equal(ev.to, 4);

    atomic_store(&r->n_tokens, 6);
    atomic_store(&r->finish, FINISH_REASON_LENGTH);
    ev = request_next(r, &c);
    assert_int_equal(ev.kind, EVENT_TOKENS);
    assert_int_equal(ev.from, 4);
    assert_int_equal(ev.to, 6);
    ev = request_next(r, &c);
    assert_int_equal(ev.kind, EVENT_DONE);
    assert_int_equal(ev.reason, FINISH_REASON_LENGTH);
    assert_int_equal(request_next(r, &c).kind, EVENT_NONE);

    /* A second reader sees everything from the start. */
    struct event_cursor late = {0};
    static const event_kind want[] = {EVENT_ADMITTED, EVENT_PROGRESS, EVENT_TOKENS, EVENT_DONE,
                                      EVENT_NONE};
    for (size_t i = 0; i < T9_COUNT(want); i++)
        assert_int_equal(request_next(r, &late).kind, want[i]);
    request_free(r);
}

static void error_before_admission(void **state)
{
    (void)state;
    struct request *r = NULL;
    struct t9_err err;
    struct event_cursor c = {0};
    assert_int_equal(request_new(&r, 1, &err), T9_STATUS_OK);
    t9_fail(&r->error, T9_STATUS_INTERNAL, "broken");
    atomic_store(&r->finish, FINISH_REASON_ERROR);
    struct event ev = request_next(r, &c);
    assert_int_equal(ev.kind, EVENT_ERROR);
    assert_string_equal(ev.error.msg, "broken");
    assert_int_equal(request_next(r, &c).kind, EVENT_NONE);
    request_free(r);
}

static void allocation(void **state)
{
    (void)state;
    struct request *r = NULL;
    struct t9_err err;
    assert_int_equal(request_new(&r, 0, &err), T9_STATUS_INVALID);
    assert_int_equal(request_new(&r, -5, &err), T9_STATUS_INVALID);
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_test_fail_nth(nth);
        assert_int_equal(request_new(&r, 10, &err), T9_STATUS_NOMEM);
        assert_null(r);
    }
    mem_test_fail_nth(0);
    request_free(NULL);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(finish_reason_name(FINISH_REASON_STOP), "stop");
    assert_string_equal(finish_reason_name((finish_reason)77), "?");
    assert_string_equal(req_state_name(REQ_STATE_RUNNING), "running");
    assert_string_equal(req_state_name((req_state)77), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_events),
        cmocka_unit_test(error_before_admission),
        cmocka_unit_test(allocation),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests_name("engine request", tests, NULL, NULL);
}
