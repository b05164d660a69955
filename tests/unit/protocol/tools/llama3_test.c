/*
 * tests/unit/protocol/tools/llama3_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

static const char tools[] =
    "[{\"name\":\"search\",\"parameters\":{\"type\":\"object\",\"properties\":{\"query\":{"
    "\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}},{\"name\":\"now\"}]";

#define CALL_NOW "{\"name\": \"now\", \"parameters\": {}}"
#define NOW      "call: now\nargs: {}\nend\n"

static const struct dialect_case cases[] = {
    {"text alone", "Hello {world}.\n", "text: Hello {world}.\\n\n", 0},
    {"a call", "{\"name\": \"search\", \"parameters\": {\"query\": \"a\", \"n\": 2}}",
     "call: search\nargs: {\"query\": \"a\", \"n\": 2}\nend\n", 0},
    {"as its documents write it", "{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}",
     NOW, 0},
    {"after the tag", "<|python_tag|>" CALL_NOW, NOW, 0},
    {"several", CALL_NOW "; " CALL_NOW "\n" CALL_NOW, NOW NOW NOW, 0},
    {"in a list", "<|python_tag|>[" CALL_NOW ", " CALL_NOW "] then", NOW NOW "text: then\n", 0},
    {"a built-in tool", "<|python_tag|>search.call(query=\"a, \\\"b\\\"\")",
     "call: search\nargs: {\"query\":\"a, \\\\\"b\\\\\"\"}\nend\n", 0},
    {"a built-in tool that was not offered", "<|python_tag|>other.call(query=\"a\")",
     "text: <|python_tag|>other.call(query=\"a\")\n", 0},
    {"code", "<|python_tag|>print(1)\n", "text: <|python_tag|>print(1)\\n\n", 0},
    {"text before", "I will.\n" CALL_NOW "\nDone", "text: I will.\n" NOW "text: Done\n", 0},
    {"in the middle of a line", "Write " CALL_NOW ".", "text: Write " CALL_NOW ".\n", 0},
    {"not offered", "{\"name\": \"other\", \"parameters\": {\"a\": \"{\"}} x\n" CALL_NOW,
     "text: {\"name\": \"other\", \"parameters\": {\"a\": \"{\"}} x\n" NOW, 0},
    {"a call in an object", "{\"a\":\n" CALL_NOW "\n}", "text: {\"a\":\\n" CALL_NOW "\\n}\n", 0},
    {"cut", "{\"name\": \"search\", \"parameters\": {\"query\": \"a",
     "call: search\nargs: {\"query\": \"a\ncut\n", 0},
    {"one is enough", CALL_NOW "; " CALL_NOW, NOW, CHECK_ONE_CALL},
    {"no tools: as it is", CALL_NOW "\n", "text: " CALL_NOW "\\n\n", CHECK_NO_TOOLS},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("llama3", tools, cases, sizeof cases / sizeof *cases);
}

static const struct dialect_case generic[] = {
    {"bare", CALL_NOW, NOW, 0},
    {"fenced, with text", "Well:\n```json\n" CALL_NOW "\n```\nDone.",
     "text: Well:\n" NOW "text: Done.\n", 0},
    {"fenced and something else", "```json\n{\"name\": \"now\", \"age\": 3}\n```\n",
     "text: ```json\\n{\"name\": \"now\", \"age\": 3}\\n```\\n\n", 0},
    {"fenced in a line", "so ```json\n" CALL_NOW "\n``` ok",
     "text: so ```json\n" NOW "text: ``` ok\n", 0},
    {"reasoning", "<think>" CALL_NOW "</think>" CALL_NOW, "thinks: " CALL_NOW "\n" NOW, 0},
    {"another family's marker", "<tool_call>" CALL_NOW "</tool_call>",
     "text: <tool_call>" CALL_NOW "</tool_call>\n", 0},
};

static void test_generic(void **state)
{
    (void)state;
    dialect_check("generic_json", tools, generic, sizeof generic / sizeof *generic);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("llama3", dialect_rounds(), 4);
    dialect_round_trip("generic_json", dialect_rounds(), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_generic),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
