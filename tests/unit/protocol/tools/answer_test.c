/*
 * tests/unit/protocol/tools/answer_test.c - what holds for all dialects: limits, lack of memory,
 * answers that are made to be slow, and answers of one dialect that another one reads.
 */
#include "protocol/tools/answer.h"

#include "base/buf.h"
#include "base/mem.h"
#include "lib/t9test.h"
#include "protocol/tools/dialect.h"

#include <time.h>

static const struct answer_tool tools[] = {{.name = {"f", 1}}};

static struct answer_params params_of(const struct dialect *d)
{
    return (struct answer_params){
        .dialect = d, .tools = tools, .n_tools = 1, .max_bytes = (size_t)1 << 22};
}

/* The beginnings of what makes a reader wait. */
static const char *const openings[] = {
    "{\"name\": \"f\", \"arguments\": {\"a\": \"",
    "<tool_call>",
    "<tool_call>{\"arguments\": {\"a\": \"",
    "<tool_call>{\"name\": \"",
    "<tool_call>\n<function=f>\n<parameter=a>\n",
    "<tool_call>\n<function=f>\n",
    "<tool_call>f\n<arg_key>",
    "<tool_call>f\n<arg_key>a</arg_key><arg_value>",
    "<|channel|>commentary to=functions.f<|message|>{\"a\": \"",
    "<|channel|>",
    "<|tool_call>call:f{a:",
    "<|tool_call>call:f{a:<|\"|>",
    "<|tool_calls_section_begin|><|tool_call_begin|>",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a",
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": [",
    "[TOOL_CALLS]",
    "[TOOL_CALLS]f[ARGS]{\"a\": ",
    "<|tool_call_start|>[f(a=",
    "<|tool_call_start|>[f(a='",
    "<|python_tag|>f.call(a=\"",
};

static const char *const fillers[] = {" ", "x", "<", "\n", "{", "[", "\"", "</parameter>",
                                      "(", "é"};

/* Of this thread alone: what others do on the machine is no fault of a dialect. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t read_in_pieces(const struct dialect *d, const char *opening, const char *filler,
                               size_t n)
{
    struct answer_params p = params_of(d);
    struct answer_parser *a;
    struct answer_part part;
    uint64_t start = cpu_ns();
    assert_int_equal(answer_parser_new(&a, &p, NULL), T9_STATUS_OK);
    assert_int_equal(answer_parser_push(a, str_from(opening)), T9_STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(answer_parser_push(a, str_from(filler)), T9_STATUS_OK);
        while (answer_parser_next(a, &part))
            ;
    }
    assert_int_equal(answer_parser_end(a), T9_STATUS_OK);
    answer_parser_free(a);
    return cpu_ns() - start;
}

/* Twice the text takes about twice the time, whatever it is made of. A short run looks at some of
 * the ways. */
static void test_no_slow_answers(void **state)
{
    size_t n = 40000, every = test_is_full() ? 1 : 7, way = 0;
    (void)state;
    for (size_t k = 0; dialect_at(k); k++) {
        for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
            for (size_t f = 0; f < sizeof fillers / sizeof *fillers; f++) {
                if (way++ % every)
                    continue;
                uint64_t took_ns = read_in_pieces(dialect_at(k), openings[i], fillers[f], n);
                /* Far from usual, and from what a second look at everything takes. */
                if (took_ns > n * 15000)
                    fail_msg("%s: %s and %zu times %s took %d ms", dialect_at(k)->name, openings[i],
                             n, fillers[f], (int)(took_ns / 1000000));
            }
        }
    }
}

static void test_waiting_text_is_bounded(void **state)
{
    struct answer_params p = params_of(dialect_find(STR("hermes")));
    struct answer_parser *a;
    t9_status s = T9_STATUS_OK;
    (void)state;
    p.max_bytes = 1000;
    assert_int_equal(answer_parser_new(&a, &p, NULL), T9_STATUS_OK);
    assert_int_equal(answer_parser_push(a, STR("<tool_call>{\"arguments\": {\"a\": \"")),
                     T9_STATUS_OK);
    for (int i = 0; i < 1000 && s == T9_STATUS_OK; i++)
        s = answer_parser_push(a, STR("xx"));
    assert_int_equal(s, T9_STATUS_TOO_LARGE);
    assert_int_equal(answer_parser_push(a, STR("\"}}")), T9_STATUS_TOO_LARGE);
    assert_int_equal(answer_parser_end(a), T9_STATUS_TOO_LARGE);
    answer_parser_free(a);
}

/* Whichever allocation fails: it is told, and nothing is lost or touched twice. */
static void test_no_memory(void **state)
{
    static const char text[] = "a\n<tool_call>{\"arguments\": {\"a\": \"\n\"}, \"name\": \"f\"}"
                               "</tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n"
                               "</function>\n[TOOL_CALLS]f[ARGS]{}<|tool_call_start|>[f(a=1)]";
    (void)state;
    for (size_t k = 0; dialect_at(k); k++) {
        bool failed = true;
        for (uint64_t nth = 1; failed; nth++) {
            struct answer_params p = params_of(dialect_at(k));
            struct answer_parser *a = NULL;
            struct answer_part part;
            assert_true(nth < 1000);
            mem_test_fail_nth(nth);
            t9_status s = answer_parser_new(&a, &p, NULL);
            for (size_t i = 0; s == T9_STATUS_OK && i + 1 < sizeof text; i++) {
                s = answer_parser_push(a, (str){text + i, 1});
                while (answer_parser_next(a, &part))
                    ;
            }
            if (s == T9_STATUS_OK)
                s = answer_parser_end(a);
            failed = mem_thread_alloc_count() && s != T9_STATUS_OK;
            mem_test_fail_nth(0);
            answer_parser_free(a);
        }
    }
}

static void test_counts(void **state)
{
    struct answer_params p = params_of(dialect_find(STR("hermes")));
    struct answer_parser *a;
    (void)state;
    p.one_call = true;
    assert_int_equal(answer_parser_new(&a, &p, NULL), T9_STATUS_OK);
    assert_int_equal(answer_parser_push(a, STR("<tool_call>{\"name\": \"f\"")), T9_STATUS_OK);
    assert_false(answer_parser_is_satisfied(a));
    assert_int_equal(answer_parser_n_calls(a), 0);
    assert_int_equal(answer_parser_push(a, STR("}")), T9_STATUS_OK);
    assert_true(answer_parser_is_satisfied(a));
    assert_int_equal(answer_parser_n_calls(a), 1);
    assert_int_equal(answer_parser_end(a), T9_STATUS_OK);
    assert_int_equal(answer_parser_n_calls(a), 1);
    answer_parser_free(a);
    answer_parser_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_slow_answers),
        cmocka_unit_test(test_waiting_text_is_bounded),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
