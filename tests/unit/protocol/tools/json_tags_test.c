/*
 * tests/unit/protocol/tools/json_tags_test.c - these and Apriel's, which differs in its reasoning.
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

static const char tools[] = "[{\"name\":\"now\"},{\"name\":\"then\"}]";

#define CALLS                                                                                      \
    "[{\"name\": \"now\", \"arguments\": {\"a\": 1}}, {\"name\": \"then\", \"arguments\": {}}]"
#define PARTS "call: now\nargs: {\"a\": 1}\nend\ncall: then\nargs: {}\nend\n"

static const struct dialect_case cases[] = {
    {"Nemotron", "<think>\nx\n</think>\n\nSo.\n<TOOLCALL>" CALLS "</TOOLCALL>",
     "thinks: x\ntext: So.\n" PARTS, 0},
    {"GigaChat", "So.<|function_call|>{\"name\": \"now\", \"arguments\": {\"a\": 1}}",
     "text: So.\ncall: now\nargs: {\"a\": 1}\nend\n", 0},
    {"FireFunction", " functools" CALLS, PARTS, 0},
    {"the Python module", "Import functools.wraps or functools[0].",
     "text: Import functools.wraps or functools[0].\n", 0},
    {"not offered", "<TOOLCALL>[{\"name\": \"other\", \"arguments\": {}}]</TOOLCALL>.",
     "text: <TOOLCALL>[{\"name\": \"other\", \"arguments\": {}}]</TOOLCALL>.\n", 0},
    {"cut", "<TOOLCALL>[{\"name\": \"now\", \"arguments\": {\"a\": [1",
     "call: now\nargs: {\"a\": [1\ncut\n", 0},
    {"no tools: as it is", "<TOOLCALL>" CALLS "</TOOLCALL>",
     "text: <TOOLCALL>" CALLS "</TOOLCALL>\n", CHECK_NO_TOOLS},
};

static const struct dialect_case apriel[] = {
    {"reasoning and calls",
     "\nFirst, <tool_calls>.\n[BEGIN FINAL RESPONSE]\nSo.\n<tool_calls>" CALLS "</tool_calls>\n",
     "thinks: First, <tool_calls>.\ntext: So.\n" PARTS, CHECK_REASONING_OPEN},
    {"reasoning that the answer opens",
     "Here are my reasoning steps:\na\n[BEGIN FINAL RESPONSE]\nb", "thinks: a\ntext: b\n", 0},
    {"one tag for each call",
     "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call> <tool_call>{\"name\": \"now\"}",
     "call: now\nargs: {}\nend\ncall: now\nargs: {}\nend\n", 0},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("json_tags", tools, cases, sizeof cases / sizeof *cases);
    dialect_check("apriel", tools, apriel, sizeof apriel / sizeof *apriel);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("json_tags", dialect_rounds(), 6);
    dialect_round_trip("apriel", dialect_rounds(), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
