/*
 * tests/unit/protocol/tools/mistral_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

#define OSLO "{\"city\": \"Oslo\"}"

static const char tools[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
    "\"type\":\"string\"}}}},{\"name\":\"now\"}]";

static const struct dialect_case cases[] = {
    {"text alone", "Hello [you].", "text: Hello [you].\n", 0},
    {"v3",
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": " OSLO ", \"id\": \"abcdefghi\"}, "
     "{\"name\": \"now\", \"arguments\": {}, \"id\": \"123456789\"}]",
     "call: get_weather\nargs: " OSLO "\nend\ncall: now\nargs: {}\nend\n", 0},
    {"v3, ids first, white space, text",
     "Let me see.[TOOL_CALLS] [{\"id\": \"abcdefghi\", \"name\": \"get_weather\", "
     "\"arguments\": " OSLO "}]\nDone.",
     "text: Let me see.\ncall: get_weather #abcdefghi\nargs: " OSLO "\nend\ntext: Done.\n", 0},
    {"v3 without a list", "[TOOL_CALLS]{\"name\": \"now\", \"arguments\": {}}",
     "call: now\nargs: {}\nend\n", 0},
    {"v11",
     "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]" OSLO "[TOOL_CALLS]now[CALL_ID]1[ARGS]{}",
     "call: get_weather #abcdefghi\nargs: " OSLO "\nend\ncall: now #1\nargs: {}\nend\n", 0},
    {"v13", "a[TOOL_CALLS]get_weather[ARGS]" OSLO "[TOOL_CALLS]now[ARGS]{}\nb",
     "text: a\ncall: get_weather\nargs: " OSLO "\nend\ncall: now\nargs: {}\nend\ntext: b\n", 0},
    {"white space, no marker before the arguments", "[TOOL_CALLS] get_weather " OSLO,
     "call: get_weather\nargs: " OSLO "\nend\n", 0},
    {"reasoning", "[THINK]Hm.\n[/THINK]Yes.[TOOL_CALLS]now[ARGS]{}",
     "thinks: Hm.\ntext: Yes.\ncall: now\nargs: {}\nend\n", 0},
    {"markers in a string", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"[TOOL_CALLS]now[ARGS]{\"}.",
     "call: get_weather\nargs: {\"city\": \"[TOOL_CALLS]now[ARGS]{\"}\nend\ntext: .\n", 0},
    {"one brace too few", "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"a\"[TOOL_CALLS]now[ARGS]{}",
     "call: get_weather\nargs: {\"city\": \"a\"\nend\ncall: now\nargs: {}\nend\n", 0},
    {"no arguments, then another", "[TOOL_CALLS]now[ARGS][TOOL_CALLS]now[ARGS]{}",
     "call: now\nargs: {}\nend\ncall: now\nargs: {}\nend\n", 0},
    {"arguments that are no JSON", "[TOOL_CALLS]now[ARGS]soon", "call: now\nargs: soon\ncut\n", 0},
    {"not offered", "a[TOOL_CALLS]other[ARGS]{\"b\": 1} c",
     "text: a[TOOL_CALLS]other[ARGS]{\"b\": 1} c\n", 0},
    {"not offered, v3", "[TOOL_CALLS][{\"name\": \"other\", \"arguments\": {}}]",
     "text: [TOOL_CALLS][{\"name\": \"other\", \"arguments\": {}}]\n", 0},
    {"not offered, then one that is", "[TOOL_CALLS]other[ARGS]{}[TOOL_CALLS]now[ARGS]{}",
     "text: [TOOL_CALLS]other[ARGS]{}\ncall: now\nargs: {}\nend\n", 0},
    {"a marker after a marker", "[TOOL_CALLS][TOOL_CALLS]now[ARGS]{}",
     "text: [TOOL_CALLS]\ncall: now\nargs: {}\nend\n", 0},
    {"cut in the arguments", "[TOOL_CALLS]get_weather[ARGS]{\"city\"",
     "call: get_weather\nargs: {\"city\"\ncut\n", 0},
    {"cut in the name", "[TOOL_CALLS]get_we", "text: [TOOL_CALLS]get_we\n", 0},
    {"cut in the id", "[TOOL_CALLS]now[CALL_ID]abc", "text: [TOOL_CALLS]now[CALL_ID]abc\n", 0},
    {"no tools: as it is", "[TOOL_CALLS]now[ARGS]{}", "text: [TOOL_CALLS]now[ARGS]{}\n",
     CHECK_NO_TOOLS},
    {"one is enough", "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]now[ARGS]{}",
     "call: now\nargs: {}\nend\n", CHECK_ONE_CALL},
    {"reasoning was open", "a[TOOL_CALLS]b[/THINK]c", "thinks: a[TOOL_CALLS]b\ntext: c\n",
     CHECK_REASONING_OPEN},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("mistral", tools, cases, sizeof cases / sizeof *cases);
}

/* ---- round trips ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("mistral_list", dialect_rounds(), 6);
    dialect_round_trip("mistral", dialect_rounds(), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
