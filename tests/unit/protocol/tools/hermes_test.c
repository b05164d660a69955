/*
 * tests/unit/protocol/tools/hermes_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

static const char tools[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
    "\"type\":\"string\"}}}},{\"name\":\"now\"}]";

static const struct dialect_case cases[] = {
    {"text alone", "Hello <b>world</b>.\n", "text: Hello <b>world</b>.\\n\n", 0},
    {"a call",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
     "call: get_weather\nargs: {\"city\": \"Oslo\"}\nend\n", 0},
    {"reasoning, text, two calls, text",
     "<think>\nHm.\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", "
     "\"arguments\": {}}\n</tool_call>\n\nDone.\n",
     "thinks: Hm.\ntext: Let me see.\ncall: get_weather\nargs: {\"city\": \"Oslo\"}\nend\n"
     "call: now\nargs: {}\nend\ntext: Done.\\n\n",
     0},
    {"back to back, no line feeds",
     "<tool_call>{\"name\":\"now\"}</tool_call><tool_call>{\"name\":\"now\"}</tool_call>",
     "call: now\nargs: {}\nend\ncall: now\nargs: {}\nend\n", 0},
    {"no closing tag", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}",
     "call: now\nargs: {}\nend\n", 0},
    {"no closing tag between two",
     "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n<tool_call>\n{\"name\": \"now\", "
     "\"arguments\": {}}",
     "call: now\nargs: {}\nend\ncall: now\nargs: {}\nend\n", 0},
    {"two in one tag",
     "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": "
     "{}}\n</tool_call>",
     "call: now\nargs: {}\nend\ncall: now\nargs: {}\nend\n", 0},
    {"a list in one tag",
     "<tool_call>[{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\"}]</tool_call> ok",
     "call: now\nargs: {}\nend\ncall: now\nargs: {}\nend\ntext: ok\n", 0},
    {"one brace too many", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}}\n</tool_call>",
     "call: now\nargs: {}\nend\n", 0},
    {"one brace too few", "<tool_call>\n{\"name\": \"now\", \"arguments\": {}\n</tool_call>x",
     "call: now\nargs: {}\nend\ntext: x\n", 0},
    {"arguments first",
     "<tool_call>{\"arguments\": {\"city\": \"a}\\\"\"}, \"name\": \"get_weather\"}</tool_call>",
     "call: get_weather\nargs: {\"city\": \"a}\\\\\"\"}\nend\n", 0},
    {"arguments as text, other names",
     "<tool_call>{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"get_weather\","
     " \"parameters\": \"{\\\"city\\\": \\\"Oslo\\\"}\"}}</tool_call>",
     "call: get_weather #c1\nargs: {\"city\": \"Oslo\"}\nend\n", 0},
    {"members that are not of a call, arguments null",
     "<tool_call>{\"x\": [1, {\"y\": \"}\"}], \"n\": 12, \"name\": \"now\", \"arguments\": null , "
     "\"z\": true}</tool_call>",
     "call: now\nargs: {}\nend\n", 0},
    {"a line feed in a string", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"1\n2\"}}",
     "call: now\nargs: {\"a\": \"1\\\\n2\"}\nend\n", 0},
    {"markers in a string",
     "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"</tool_call><tool_call>{</think>\"}}</tool_call>.",
     "call: get_weather\nargs: {\"city\": \"</tool_call><tool_call>{</think>\"}\nend\ntext: .\n",
     0},
    {"not offered",
     "A <tool_call>\n{\"name\": \"other\", \"arguments\": {\"t\": "
     "\"<tool_call>\"}}\n</tool_call>\n",
     "text: A <tool_call>\\n{\"name\": \"other\", \"arguments\": {\"t\": "
     "\"<tool_call>\"}}\\n</tool_call>\\n\n",
     0},
    {"not offered, then one that is",
     "<tool_call>\n{\"name\": \"other\"}\n</tool_call>\n<tool_call>{\"name\": \"now\"}",
     "text: <tool_call>\\n{\"name\": \"other\"}\\n</tool_call>\ncall: now\nargs: {}\nend\n", 0},
    {"no JSON", "<tool_call>\nnow()</tool_call> and <tool_call><tool_call>{\"name\":\"now\"}",
     "text: <tool_call>\\nnow()</tool_call> and <tool_call>\ncall: now\nargs: {}\nend\n", 0},
    {"a name that is no string", "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
     "text: <tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>\n", 0},
    {"cut in the arguments", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"O",
     "call: get_weather\nargs: {\"city\": \"O\ncut\n", 0},
    {"cut in the name", "<tool_call>{\"name\": \"get_we", "text: <tool_call>{\"name\": \"get_we\n",
     0},
    {"broken after the name", "<tool_call>{\"name\": \"now\"; }</tool_call>", "call: now\ncut\n",
     0},
    {"one call is enough",
     "<tool_call>{\"name\":\"now\"}</tool_call><tool_call>{\"name\":\"now\"}</tool_call> text",
     "call: now\nargs: {}\nend\n", CHECK_ONE_CALL},
    {"no tools: as it is", " <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n\n",
     "text:  <tool_call>\\n{\"name\": \"now\", \"arguments\": {}}\\n</tool_call>\\n\\n\n",
     CHECK_NO_TOOLS},
    {"no tools: reasoning", "<think>a</think>\n\nb\n", "thinks: a\ntext: b\\n\n", CHECK_NO_TOOLS},
    {"reasoning was open, and is opened again",
     "\n<think>\na <tool_call>{\"name\":\"now\"}\n</think>\n<tool_call>{\"name\":\"now\"}",
     "thinks: a <tool_call>{\"name\":\"now\"}\ncall: now\nargs: {}\nend\n", CHECK_REASONING_OPEN},
    {"reasoning was open and never ends", "a\n\nb\n", "thinks: a\\n\\nb\n", CHECK_REASONING_OPEN},
    {"stray closing of reasoning", "</think>\n\na </think> b\n</think>\nc",
     "text: a </think> b\\n\\nc\n", 0},
    {"reasoning between calls",
     "<tool_call>{\"name\":\"now\"}</tool_call>\n<think>b</think>\n<tool_call>{\"name\":\"now\"}",
     "call: now\nargs: {}\nend\nthinks: b\ncall: now\nargs: {}\nend\n", 0},
    {"bare", "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>", "call: now\nargs: {}\nend\n",
     0},
    {"bare and no call", "{\"name\": \"now\", \"age\": 3, \"x\": \"<tool_call>\"} yes",
     "text: {\"name\": \"now\", \"age\": 3, \"x\": \"<tool_call>\"} yes\n", 0},
    {"bare without arguments", "{\"name\": \"now\"}", "text: {\"name\": \"now\"}\n", 0},
    {"braces in text", "if (a) { return {}; }\n{ x }\n", "text: if (a) { return {}; }\\n{ x }\\n\n",
     0},
    {"fenced",
     "Here:\n```json\n{\"name\": \"now\", \"arguments\": {}}\n```\nand\n```json\n{\"a\": 1}\n```",
     "text: Here:\ncall: now\nargs: {}\nend\ntext: and\\n```json\\n{\"a\": 1}\\n```\n", 0},
    {"part of a marker at the end", "a <tool_ca", "text: a <tool_ca\n", 0},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("hermes", tools, cases, sizeof cases / sizeof *cases);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("hermes", dialect_rounds(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
