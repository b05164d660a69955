/*
 * tests/unit/protocol/tools/glm_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

static const char tools[] =
    "[{\"name\":\"edit\",\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{"
    "\"type\":\"string\"},\"line\":{\"type\":\"integer\"},\"all\":{\"type\":\"boolean\"}}}},"
    "{\"name\":\"now\"}]";

#define CALL_NOW "<tool_call>now\n</tool_call>"
#define NOW      "call: now\nargs: {}\nend\n"

static const struct dialect_case cases[] = {
    {"text alone", "a < b\n", "text: a < b\\n\n", 0},
    {"lines",
     "\n<think>x</think>\nSo:\n<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>1e5</"
     "arg_value>\n"
     "<arg_key>line</arg_key>\n<arg_value>12</arg_value>\n<arg_key>all</arg_key>\n"
     "<arg_value>FALSE</arg_value>\n</tool_call>\n",
     "thinks: x\ntext: So:\ncall: edit\nargs: {\"path\":\"1e5\",\"line\":12,\"all\":false}\nend\n",
     0},
    {"no lines",
     "<tool_call>edit<arg_key>path</arg_key><arg_value>\na\n</arg_value><arg_key>line</arg_key>"
     "<arg_value>x</arg_value></tool_call>",
     "call: edit\nargs: {\"path\":\"\\\\na\\\\n\",\"line\":\"x\"}\nend\n", 0},
    {"two, back to back", "<tool_call>now</tool_call>" CALL_NOW, NOW NOW, 0},
    {"text after", CALL_NOW "\n\nand so on\n", NOW "text: and so on\\n\n", 0},
    {"no closing tag between two", "<tool_call>now\n<tool_call>now\n</tool_call>", NOW NOW, 0},
    {"no closing tag of a value",
     "<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>a</tool_call>\n" CALL_NOW,
     "call: edit\nargs: {\"path\":\"a\"}\nend\n" NOW, 0},
    {"tags in a string",
     "<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>a</arg_value> b</tool_call>c<arg_key>"
     "<think></arg_value>\n</tool_call>",
     "call: edit\nargs: {\"path\":\"a</arg_value> b</tool_call>c<arg_key><think>\"}\nend\n", 0},
    {"not offered",
     "<tool_call>other\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n" CALL_NOW,
     "text: "
     "<tool_call>other\\n<arg_key>a</arg_key>\\n<arg_value>1</arg_value>\\n</tool_call>\n" NOW,
     0},
    {"no call at all", "The tag <tool_call> is one <b>.\n" CALL_NOW,
     "text: The tag <tool_call> is one <b>.\n" NOW, 0},
    {"text where tags are expected",
     "<tool_call>edit\nhm <b>\n<arg_key>line</arg_key> : <arg_value>3</arg_value></tool_call>",
     "call: edit\nargs: {}\nend\n", 0},
    {"cut in a string", "<tool_call>edit\n<arg_key>path</arg_key>\n<arg_value>a\nb",
     "call: edit\nargs: {\"path\":\"a\\\\nb\ncut\n", 0},
    {"cut in a number", "<tool_call>edit\n<arg_key>line</arg_key>\n<arg_value>12",
     "call: edit\nargs: {\"line\":\ncut\n", 0},
    {"cut after a value", "<tool_call>edit\n<arg_key>line</arg_key>\n<arg_value>12</arg_value>\n",
     "call: edit\nargs: {\"line\":12\ncut\n", 0},
    {"cut in the name", "<tool_call>no", "text: <tool_call>no\n", 0},
    {"one is enough", CALL_NOW CALL_NOW "x", NOW, CHECK_ONE_CALL},
    {"no tools: as it is", "\n" CALL_NOW "\n", "text: \\n<tool_call>now\\n</tool_call>\\n\n",
     CHECK_NO_TOOLS},
    {"reasoning is open", "a\n" CALL_NOW "\n</think>\n" CALL_NOW,
     "thinks: a\\n<tool_call>now\\n</tool_call>\n" NOW, CHECK_REASONING_OPEN},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("glm", tools, cases, sizeof cases / sizeof *cases);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("glm", dialect_rounds(), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
