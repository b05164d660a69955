/*
 * tests/unit/protocol/tools/gemma4_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

#define Q "<|\"|>"

static const char tools[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
    "\"type\":\"string\"}}}},{\"name\":\"now\"}]";

/* One call of `now` with these arguments. */
#define CALL(args) "<|tool_call>call:now{" args "}<tool_call|>"
#define ARGS(json) "call: now\nargs: " json "\nend\n"

static const struct dialect_case cases[] = {
    {"text alone", "Hello {you}.", "text: Hello {you}.\n", 0},
    {"reasoning, text, two calls, text",
     "<|channel>thought\nHm.\n<channel|>Let me see.<|tool_call>call:get_weather{city:" Q "Oslo" Q
     "}<tool_call|><|tool_call>call:now{}<tool_call|>Done.",
     "thinks: Hm.\ntext: Let me see.\ncall: get_weather\nargs: {\"city\":\"Oslo\"}\nend\ncall: "
     "now\n"
     "args: {}\nend\ntext: Done.\n",
     0},
    {"reasoning without tools", "<|channel>thought\nHm.\n<channel|>\nYes.",
     "thinks: Hm.\ntext: Yes.\n", CHECK_NO_TOOLS},
    {"empty channels",
     "<|channel>thought\n<channel|><|channel><channel|>a<|channel>thought<channel|>", "text: a\n",
     0},
    {"trailing markers", "a<channel|><|channel>", "text: a\n", CHECK_NO_TOOLS},
    {"a channel within", "<|channel>thought\na<|channel>thought\nb<channel|>c<channel|>",
     "thinks: a\\nb\ntext: c\n", 0},
    {"a channel of another name", "<|channel>final\na<channel|>", "text: final\\na\n", 0},
    {"reasoning after a call", CALL("") "<|channel>thought\na<channel|>" CALL(""),
     ARGS("{}") "thinks: a\n" ARGS("{}"), 0},
    {"calls in reasoning are none", "<|channel>thought\n" CALL("") "<channel|>a",
     "thinks: " CALL("") "\ntext: a\n", 0},
    {"values",
     CALL("a:true,b:false,c:null,d:None,e:-1.5,f:1e-05,g:[1,[" Q "x" Q "]],h:{i:{},j:[]},k:{" Q
          "l" Q ":" Q Q "}"),
     ARGS("{\"a\":true,\"b\":false,\"c\":null,\"d\":null,\"e\":-1.5,\"f\":1e-05,\"g\":[1,[\"x\"]],"
          "\"h\":{\"i\":{},\"j\":[]},\"k\":{\"l\":\"\"}}"),
     0},
    {"strings have no escapes", CALL("a:" Q "\"b\" \\n\n}<tool_call|>, 'c'\t" Q),
     "call: now\nargs: {\"a\":\"\\\\\"b\\\\\" \\\\\\\\n\\\\n}<tool_call|>, 'c'\\\\t\"}\nend\n", 0},
    {"usual quotes", CALL("a:\"b\\\"c\\n\", \"d\" : \"e\""),
     "call: now\nargs: {\"a\":\"b\\\\\"c\\\\n\",\"d\":\"e\"}\nend\n", 0},
    {"white space", "<|tool_call> call: now { a : 1 , b : [ 2 , 3 ] } <tool_call|>\n",
     ARGS("{\"a\":1,\"b\":[2,3]}"), 0},
    {"without call:", "<|tool_call>now{}<tool_call|>", ARGS("{}"), 0},
    {"bare words", CALL("a:Oslo,b:it's late,c:12:30"),
     ARGS("{\"a\":\"Oslo\",\"b\":\"it's late\",\"c\":\"12:30\"}"), 0},
    {"brackets left open", "<|tool_call>call:now{a:{b:[1<tool_call|>c",
     ARGS("{\"a\":{\"b\":[1]}}") "text: c\n", 0},
    {"names without values", CALL("a:,b,c:"), ARGS("{\"a\":null,\"b\":null,\"c\":null}"), 0},
    {"no end marker", "<|tool_call>call:now{}", ARGS("{}"), 0},
    {"not offered", "a<|tool_call>call:other{b:1}<tool_call|>c",
     "text: a<|tool_call>call:other{b:1}<tool_call|>c\n", 0},
    {"no call at all", "<|tool_call>now<tool_call|>", "text: <|tool_call>now<tool_call|>\n", 0},
    {"an end without a beginning", "a<tool_call|>b", "text: a<tool_call|>b\n", 0},
    {"cut in a string", "<|tool_call>call:now{a:" Q "b<", "call: now\nargs: {\"a\":\"b<\ncut\n", 0},
    {"cut in a word", "<|tool_call>call:now{a:12", "call: now\nargs: {\"a\":\ncut\n", 0},
    {"cut in the name", "<|tool_call>call:no", "text: <|tool_call>call:no\n", 0},
    {"cut in the name of a channel", "<|channel>thought", "", 0},
    {"no tools: as it is", CALL("a:1"), "text: " CALL("a:1") "\n", CHECK_NO_TOOLS},
    {"one is enough", CALL("") CALL(""), ARGS("{}"), CHECK_ONE_CALL},
    {"reasoning was open", "a<channel|>b", "thinks: a\ntext: b\n", CHECK_REASONING_OPEN},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("gemma4", tools, cases, sizeof cases / sizeof *cases);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("gemma4", dialect_rounds(), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
