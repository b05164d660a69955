/*
 * tests/unit/protocol/tools/deepseek_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

#define BEGIN "<｜tool▁calls▁begin｜>"
#define END   "<｜tool▁calls▁end｜>"
#define CALL  "<｜tool▁call▁begin｜>"
#define SEP   "<｜tool▁sep｜>"
#define DONE  "<｜tool▁call▁end｜>"
#define OSLO  "{\"city\": \"Oslo\"}"

static const char tools[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
    "\"type\":\"string\"}}}},{\"name\":\"now\"},{\"name\":\"function\"}]";

static const struct dialect_case cases[] = {
    {"text alone", "Hello.", "text: Hello.\n", 0},
    {"V3.1",
     "Let me see." BEGIN CALL "get_weather" SEP OSLO DONE CALL "now" SEP "{}" DONE END "Done.",
     "text: Let me see.\ncall: get_weather\nargs: " OSLO
     "\nend\ncall: now\nargs: {}\nend\ntext: Done.\n",
     0},
    {"R1",
     BEGIN CALL "function" SEP "get_weather\n```json\n" OSLO "\n```" DONE "\n" CALL "function" SEP
                "now\n```json\n{}\n```" DONE END "Done.",
     "call: get_weather\nargs: " OSLO "\nend\ncall: now\nargs: {}\nend\ntext: Done.\n", 0},
    {"R1, a line feed before the end", BEGIN CALL "function" SEP "now\n```json\n{}\n```\n" DONE END,
     "call: now\nargs: {}\nend\n", 0},
    {"R1 without a fence", CALL "function" SEP "now\n{}" DONE, "call: now\nargs: {}\nend\n", 0},
    {"R1, a fence without a language", CALL "function" SEP "get_weather\n```\n" OSLO "\n```" DONE,
     "call: get_weather\nargs: " OSLO "\nend\n", 0},
    {"R1 without line feeds", CALL "function" SEP "get_weather```json" OSLO "```" DONE "x",
     "call: get_weather\nargs: " OSLO "\nend\ntext: x\n", 0},
    {"R1 without arguments", CALL "function" SEP "now\n" DONE "x",
     "call: now\nargs: {}\nend\ntext: x\n", 0},
    {"a tool of that name", CALL "function" SEP OSLO DONE, "call: function\nargs: " OSLO "\nend\n",
     0},
    {"reasoning was open", "\nHm.\n</think>\n\n" BEGIN CALL "now" SEP "{}" DONE END,
     "thinks: Hm.\ncall: now\nargs: {}\nend\n", CHECK_REASONING_OPEN},
    {"reasoning is opened by the model", "<think>\nHm.\n</think>\n\nYes.",
     "thinks: Hm.\ntext: Yes.\n", 0},
    {"markers in a string", CALL "get_weather" SEP "{\"city\": \"" DONE "```" END "\"}" DONE ".",
     "call: get_weather\nargs: {\"city\": \"" DONE "```" END "\"}\nend\ntext: .\n", 0},
    {"one brace too few",
     BEGIN CALL "function" SEP "get_weather\n```json\n{\"city\": \"a\"" DONE END "x",
     "call: get_weather\nargs: {\"city\": \"a\"\nend\ntext: x\n", 0},
    {"not offered", "a" BEGIN CALL "function" SEP "other\n```json\n{\"b\": 1}\n```" DONE END "c",
     "text: a" BEGIN CALL "function" SEP "other\\n```json\\n{\"b\": 1}\\n```" DONE END "c\n", 0},
    {"not offered, V3.1", CALL "other" SEP "{}" DONE, "text: " CALL "other" SEP "{}" DONE "\n", 0},
    {"cut in the arguments", BEGIN CALL "function" SEP "get_weather\n```json\n{\"ci",
     "call: get_weather\nargs: {\"ci\ncut\n", 0},
    {"cut before the arguments", BEGIN CALL "function" SEP "get_weather\n```js",
     "call: get_weather\nargs: js\ncut\n", 0},
    {"cut in the name", BEGIN CALL "function" SEP "get_we",
     "text: " BEGIN CALL "function" SEP "get_we\n", 0},
    {"cut in the fence after them", CALL "function" SEP "now\n```json\n{}\n``",
     "call: now\nargs: {}\nend\ntext: ``\n", 0},
    {"bare", "So:\n{\"name\": \"now\", \"arguments\": {}}\nDone.",
     "text: So:\ncall: now\nargs: {}\nend\ntext: Done.\n", 0},
    {"bare in a fence, then with markers",
     "```json\n{\"name\": \"get_weather\", \"arguments\": " OSLO "}\n```\n" CALL "now" SEP
     "{}" DONE,
     "call: get_weather\nargs: " OSLO "\nend\ncall: now\nargs: {}\nend\n", 0},
    {"two bare ones",
     "{\"name\": \"now\", \"arguments\": {}}\n{\"name\": \"now\", \"arguments\": {}}",
     "call: now\nargs: {}\nend\ncall: now\nargs: {}\nend\n", 0},
    {"JSON that is no call, and braces in a line",
     "{\"a\": 1} and {\"name\": \"now\", \"arguments\": {}}",
     "text: {\"a\": 1} and {\"name\": \"now\", \"arguments\": {}}\n", 0},
    {"no tools: as it is", BEGIN CALL "now" SEP "{}" DONE END,
     "text: " BEGIN CALL "now" SEP "{}" DONE END "\n", CHECK_NO_TOOLS},
    {"one is enough", CALL "now" SEP "{}" DONE CALL "now" SEP "{}" DONE,
     "call: now\nargs: {}\nend\n", CHECK_ONE_CALL},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("deepseek", tools, cases, sizeof cases / sizeof *cases);
}

/* ---- round trips ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("deepseek", dialect_rounds(), 4);
    dialect_round_trip("deepseek_r1", dialect_rounds(), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
