/*
 * tests/unit/protocol/tools/harmony_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

static const char tools[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
    "\"type\":\"string\"}}}},{\"name\":\"now\"}]";

#define CALLS_WEATHER "call: get_weather\nargs: {\"city\": \"Oslo\"}\nend\n"

static const struct dialect_case cases[] = {
    {"an answer", "<|channel|>final<|message|>Hello <b>you</b>.<|return|>",
     "text: Hello <b>you</b>.\n", 0},
    {"no tools, the end marker is not text", "<|channel|>final<|message|>Hello\n",
     "text: Hello\\n\n", CHECK_NO_TOOLS},
    {"reasoning and an answer",
     "<|channel|>analysis<|message|>Hm, to=5.\n<|end|><|start|>assistant<|channel|>final<|message|>"
     "Yes.",
     "thinks: Hm, to=5.\ntext: Yes.\n", 0},
    {"the same without tools",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
     "thinks: Hm.\ntext: Yes.\n", CHECK_NO_TOOLS},
    {"a call",
     "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": "
     "\"Oslo\"}<|call|>",
     CALLS_WEATHER, 0},
    {"a call whose marker ended the answer",
     "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": "
     "\"Oslo\"}",
     CALLS_WEATHER, 0},
    {"the recipient in the role",
     " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Oslo\"}<|call|>",
     CALLS_WEATHER, 0},
    {"the recipient in the role of a later message",
     "<|channel|>analysis<|message|>I ask.<|end|><|start|>assistant to=functions.get_weather"
     "<|channel|>commentary<|message|>{\"city\": \"Oslo\"}<|call|>",
     "thinks: I ask.\n" CALLS_WEATHER, 0},
    {"a call on the channel of reasoning",
     "<|channel|>analysis to=functions.get_weather code<|message|>{\"city\": \"Oslo\"}<|call|>",
     CALLS_WEATHER, 0},
    {"a recipient without its namespace",
     "<|channel|>commentary to=get_weather<|message|>{\"city\": \"Oslo\"}", CALLS_WEATHER, 0},
    {"text before the call",
     "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.now<|message|>{}<|call|>",
     "text: Let me see.\ncall: now\nargs: {}\nend\n", 0},
    {"two messages are two paragraphs",
     "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>final"
     "<|message|>Done.",
     "text: Let me see.\\n\\nDone.\n", 0},
    {"two thoughts",
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b",
     "thinks: a\\n\\nb\n", 0},
    {"two calls",
     "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|><|start|>"
     "assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
     "{\"city\": \"Oslo\"}<|call|>",
     "call: now\nargs: {}\nend\n" CALLS_WEATHER, 0},
    {"one is enough",
     "<|channel|>commentary to=functions.now<|message|>{}<|call|><|start|>assistant<|channel|>"
     "commentary to=functions.now<|message|>{}",
     "call: now\nargs: {}\nend\n", CHECK_ONE_CALL},
    {"a stray channel",
     "<|channel|>commentary<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>"
     "commentary<|channel|>final<|message|>b",
     "thinks: a\ntext: b\n", 0},
    {"end markers forgotten",
     "<|channel|>analysis<|message|>a<|start|>assistant<|channel|>commentary<|message|>b<|channel|>"
     "final<|message|>c",
     "thinks: a\ntext: b\\n\\nc\n", 0},
    {"messages without text",
     "<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>"
     "final<|end|><|start|>assistant<|channel|>final<|message|>a",
     "text: a\n", 0},
    {"markers in a string",
     "<|channel|>commentary to=functions.get_weather<|message|>{\"city\": \"<|call|>\\\"<|end|>\"}"
     "<|call|>",
     "call: get_weather\nargs: {\"city\": \"<|call|>\\\\\"<|end|>\"}\nend\n", 0},
    {"no arguments", "<|channel|>commentary to=functions.now<|message|><|call|>",
     "call: now\nargs: {}\nend\n", 0},
    {"arguments that are no JSON",
     "<|channel|>commentary to=functions.now<|message|>print(1)<|call|>",
     "call: now\nargs: print(1)\nend\n", 0},
    {"one brace too few",
     "<|channel|>commentary to=functions.get_weather<|message|>{\"city\": \"Oslo\"<|call|>",
     "call: get_weather\nargs: {\"city\": \"Oslo\"\nend\n", 0},
    {"text after the arguments",
     "<|channel|>commentary to=functions.now<|message|>{} ok<|end|><|start|>assistant<|channel|>"
     "final<|message|>b",
     "call: now\nargs: {}\nend\ntext: ok\\n\\nb\n", 0},
    {"a line feed in a string",
     "<|channel|>commentary to=functions.get_weather<|message|>{\"city\": \"a\nb\"}",
     "call: get_weather\nargs: {\"city\": \"a\\\\nb\"}\nend\n", 0},
    {"not offered",
     "<|channel|>commentary to=functions.other <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "text: <|channel|>commentary to=functions.other <|constrain|>json<|message|>{\"a\": "
     "1}<|call|>\n",
     0},
    {"not offered, on the channel of reasoning",
     "<|channel|>analysis to=python<|message|>1+1<|call|>",
     "text: <|channel|>analysis to=python<|message|>1+1<|call|>\n", 0},
    {"no tools: no calls", "<|channel|>commentary to=functions.now<|message|>{}",
     "text: <|channel|>commentary to=functions.now<|message|>{}\n", CHECK_NO_TOOLS},
    {"cut in the arguments",
     "<|channel|>commentary to=functions.get_weather<|message|>{\"city\": \"Os",
     "call: get_weather\nargs: {\"city\": \"Os\ncut\n", 0},
    {"cut before the arguments", "<|channel|>commentary to=functions.get_weather<|message|>",
     "call: get_weather\ncut\n", 0},
    {"cut in the header", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>comm",
     "thinks: a\n", 0},
    {"no format at all", "Just an answer.", "text: Just an answer.\n", 0},
    {"no format, with markers later", "a < b<|end|><|start|>assistant<|channel|>final<|message|>c",
     "text: a < b\\n\\nc\n", 0},
    {"reasoning was open", "a<|end|><|start|>assistant<|channel|>final<|message|>b",
     "thinks: a\ntext: b\n", CHECK_REASONING_OPEN},
    {"nothing but markers", "<|end|><|call|><|return|>", "", 0},
    {"a message to itself", "<|start|>assistant to=assistant<|channel|>final<|message|>a",
     "text: a\n", 0},
    {"a word that only looks like a recipient",
     "<|channel|>commentary onto=functions.now<|message|>a", "text: a\n", 0},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("harmony", tools, cases, sizeof cases / sizeof *cases);
}

/* A header that never ends is content: what waits is bounded. */
static void test_endless_header(void **state)
{
    char text[3100] = "<|channel|>", parts[3200] = "text: <|channel|>";
    struct dialect_case c = {"endless header", text, parts, 0};
    (void)state;
    memset(text + strlen(text), 'x', 3000);
    memset(parts + strlen(parts), 'x', 3000);
    parts[strlen(parts)] = '\n';
    dialect_check("harmony", tools, &c, 1);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("harmony", dialect_rounds(), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_endless_header),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
