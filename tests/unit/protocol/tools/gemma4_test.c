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

static void write_value(struct buf *out, yyjson_val *v, bool quoted_keys)
{
    yyjson_val *key, *item;
    size_t i, n;
    const char *quote = quoted_keys ? Q : "";
    if (yyjson_is_str(v)) {
        buf_printf(out, Q STR_FMT Q, STR_ARG(json_str(v)));
    } else if (yyjson_is_arr(v)) {
        buf_putc(out, '[');
        yyjson_arr_foreach(v, i, n, item)
        {
            buf_puts(out, i ? "," : "");
            write_value(out, item, quoted_keys);
        }
        buf_putc(out, ']');
    } else if (yyjson_is_obj(v)) {
        buf_putc(out, '{');
        yyjson_obj_foreach(v, i, n, key, item)
        {
            buf_printf(out, "%s%s" STR_FMT "%s:", i ? "," : "", quote, STR_ARG(json_str(key)),
                       quote);
            write_value(out, item, quoted_keys);
        }
        buf_putc(out, '}');
    } else {
        json_write_val(out, v);
    }
}

static void write_calls(struct buf *out, const struct dialect_call *calls, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "<|tool_call>call:" STR_FMT, STR_ARG(calls[i].name));
        write_value(out, calls[i].args, test_random(seed) % 2);
        buf_puts(out, "<tool_call|>");
    }
}

/* A string can't have its own quote in it. */
static bool can_carry(str s)
{
    return str_find(s, STR(Q), 0) == (size_t)-1;
}

static void test_round_trip(void **state)
{
    static const struct dialect_form form = {
        .dialect = "gemma4", .write = write_calls, .can_carry = can_carry};
    (void)state;
    dialect_round_trip(&form, dialect_rounds(), 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
