/*
 * tests/unit/protocol/tools/kimi_k2_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

#define BEGIN "<|tool_calls_section_begin|>"
#define END   "<|tool_calls_section_end|>"
#define CALL  "<|tool_call_begin|>"
#define ARGS  "<|tool_call_argument_begin|>"
#define DONE  "<|tool_call_end|>"

static const char tools[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
    "\"type\":\"string\"}}}},{\"name\":\"now\"},{\"name\":\"a:1\"}]";

static const struct dialect_case cases[] = {
    {"text alone", "Hello.", "text: Hello.\n", 0},
    {"reasoning, text, two calls, text",
     "<think>Hm.</think>Let me see." BEGIN CALL "functions.get_weather:0" ARGS
     "{\"city\": \"Oslo\"}" DONE CALL "functions.now:1" ARGS "{}" DONE END "Done.",
     "thinks: Hm.\ntext: Let me see.\ncall: get_weather #functions.get_weather:0\nargs: {\"city\": "
     "\"Oslo\"}\nend\ncall: now #functions.now:1\nargs: {}\nend\ntext: Done.\n",
     0},
    {"white space between the markers",
     BEGIN "\n" CALL " functions.now:0 " ARGS "\n{}\n" DONE "\n" CALL "functions.now:1" ARGS
           "{}" DONE "\n" END "\n",
     "call: now #functions.now:0\nargs: {}\nend\ncall: now #functions.now:1\nargs: {}\nend\n", 0},
    {"no section", CALL "functions.now:12" ARGS "{}" DONE,
     "call: now #functions.now:12\nargs: {}\nend\n", 0},
    {"no number, no namespace",
     BEGIN CALL "functions.now" ARGS "{}" DONE CALL "now:1" ARGS "{}" END,
     "call: now\nargs: {}\nend\ncall: now\nargs: {}\nend\n", 0},
    {"a name with a colon", BEGIN CALL "functions.a:1:0" ARGS "{}" DONE END,
     "call: a:1 #functions.a:1:0\nargs: {}\nend\n", 0},
    {"markers in a string",
     BEGIN CALL "functions.get_weather:0" ARGS "{\"city\": \"" DONE END CALL "\"}" DONE END ".",
     "call: get_weather #functions.get_weather:0\nargs: {\"city\": \"" DONE END CALL
     "\"}\nend\ntext: .\n",
     0},
    {"one brace too few", BEGIN CALL "functions.get_weather:0" ARGS "{\"city\": \"a\"" DONE END "x",
     "call: get_weather #functions.get_weather:0\nargs: {\"city\": \"a\"\nend\ntext: x\n", 0},
    {"arguments that are no JSON", BEGIN CALL "functions.now:0" ARGS "later" DONE END,
     "call: now #functions.now:0\nargs: later\nend\n", 0},
    {"no arguments", BEGIN CALL "functions.now:0" ARGS DONE END,
     "call: now #functions.now:0\nargs: {}\nend\n", 0},
    {"not offered", "a" BEGIN "\n" CALL "functions.other:0" ARGS "{\"b\": 1}" DONE END "c",
     "text: a" BEGIN "\\n" CALL "functions.other:0" ARGS "{\"b\": 1}" DONE END "c\n", 0},
    {"not offered, then one that is",
     BEGIN CALL "functions.other:0" ARGS "{}" DONE CALL "functions.now:1" ARGS "{}" DONE END,
     "text: " BEGIN CALL "functions.other:0" ARGS "{}" DONE
     "\ncall: now #functions.now:1\nargs: {}\nend\n",
     0},
    {"a section of nothing", BEGIN "x" END, "text: " BEGIN "x" END "\n", 0},
    {"an end without a beginning", "a" DONE END "b", "text: a" DONE END "b\n", 0},
    {"no arguments' marker", BEGIN CALL "functions.now:0" DONE END,
     "text: " BEGIN CALL "functions.now:0" DONE END "\n", 0},
    {"cut in the arguments", BEGIN CALL "functions.get_weather:0" ARGS "{\"city\": \"",
     "call: get_weather #functions.get_weather:0\nargs: {\"city\": \"\ncut\n", 0},
    {"cut in the name", BEGIN CALL "functions.get_we", "text: " BEGIN CALL "functions.get_we\n", 0},
    {"cut after the marker", "a" BEGIN, "text: a" BEGIN "\n", 0},
    {"one is enough", BEGIN CALL "functions.now:0" ARGS "{}" DONE CALL "functions.now:1" ARGS "{}",
     "call: now #functions.now:0\nargs: {}\nend\n", CHECK_ONE_CALL},
    {"no tools: as it is", BEGIN CALL "functions.now:0" ARGS "{}" DONE END,
     "text: " BEGIN CALL "functions.now:0" ARGS "{}" DONE END "\n", CHECK_NO_TOOLS},
    {"reasoning was open", "a" CALL "</think>b", "thinks: a" CALL "\ntext: b\n",
     CHECK_REASONING_OPEN},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("kimi_k2", tools, cases, sizeof cases / sizeof *cases);
}

/* What waits for a name is bounded, however it comes. */
static void test_endless_head(void **state)
{
    char text[3100] = BEGIN CALL, parts[3200] = "text: " BEGIN CALL;
    struct dialect_case c = {"endless head", text, parts, 0};
    (void)state;
    memset(text + strlen(text), 'x', 2000);
    memcpy(text + strlen(text), ARGS "{}", sizeof ARGS "{}");
    memset(parts + strlen(parts), 'x', 2000);
    memcpy(parts + strlen(parts), ARGS "{}\n", sizeof ARGS "{}\n");
    dialect_check("kimi_k2", tools, &c, 1);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("kimi_k2", dialect_rounds(), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_endless_head),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
