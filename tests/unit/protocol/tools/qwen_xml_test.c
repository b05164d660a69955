/*
 * tests/unit/protocol/tools/qwen_xml_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

static const char tools[] =
    "[{\"name\":\"edit\",\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{"
    "\"type\":\"string\"},\"line\":{\"type\":\"integer\"},\"all\":{\"type\":\"boolean\"},"
    "\"tags\":{\"type\":\"array\"},\"any\":{\"type\":[\"string\",\"integer\"]}}}},"
    "{\"name\":\"now\"}]";

#define CALL_NOW "<tool_call>\n<function=now>\n</function>\n</tool_call>"
#define NOW      "call: now\nargs: {}\nend\n"

static const struct dialect_case cases[] = {
    {"text alone", "a < b, <b>c</b>, the <function> of it\n",
     "text: a < b, <b>c</b>, the <function> of it\\n\n", 0},
    {"every type",
     "<think>\nx\n</think>\n\nSo:\n\n<tool_call>\n<function=edit>\n<parameter=path>\n02134\n"
     "</parameter>\n<parameter=line>\n12\n</parameter>\n<parameter=all>\nTrue\n</parameter>\n"
     "<parameter=tags>\n[1, \"b\"]\n</parameter>\n<parameter=any>\n1e\n</parameter>\n"
     "</function>\n</tool_call>\n",
     "thinks: x\ntext: So:\ncall: edit\nargs: "
     "{\"path\":\"02134\",\"line\":12,\"all\":true,\"tags\":"
     "[1, \"b\"],\"any\":\"1e\"}\nend\n",
     0},
    {"what can't be read stays text",
     "<tool_call><function=edit><parameter=line>\ntwelve\n</parameter><parameter=tags>\n[1,\n"
     "</parameter></function></tool_call>",
     "call: edit\nargs: {\"line\":\"twelve\",\"tags\":\"[1,\"}\nend\n", 0},
    {"one line feed at each side",
     "<tool_call>\n<function=edit>\n<parameter=path>\n\n  a\n\n\n</parameter>\n</function>\n"
     "</tool_call>",
     "call: edit\nargs: {\"path\":\"\\\\n  a\\\\n\\\\n\"}\nend\n", 0},
    {"empty strings",
     "<tool_call>\n<function=edit>\n<parameter=path>\n\n</parameter>\n<parameter=any></parameter>\n"
     "</function>\n</tool_call>",
     "call: edit\nargs: {\"path\":\"\",\"any\":\"\"}\nend\n", 0},
    {"two, back to back", CALL_NOW CALL_NOW, NOW NOW, 0},
    {"text after", CALL_NOW "\n\nand so on\n", NOW "text: and so on\\n\n", 0},
    {"no opening tag",
     "I do.\n<function=edit>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>\nok",
     "text: I do.\ncall: edit\nargs: {\"path\":\"a\"}\nend\ntext: ok\n", 0},
    {"no outer tags, two", "<function=now>\n</function>\n<function=now></function>", NOW NOW, 0},
    {"two in one tag",
     "<tool_call><function=now></function>\n<function=now></function></tool_call>", NOW NOW, 0},
    {"spaces and quotes in tags",
     "<tool_call>\n<function = edit >\n<parameter= \"path\" >\na\n</parameter >\n</function >\n"
     "</tool_call>",
     "call: edit\nargs: {\"path\":\"a\"}\nend\n", 0},
    {"no closing tag of a parameter, then another",
     "<tool_call>\n<function=edit>\n<parameter=path>\na\n<parameter=line>\n3\n</parameter>\n"
     "</function>\n</tool_call>",
     "call: edit\nargs: {\"path\":\"a\",\"line\":3}\nend\n", 0},
    {"no closing tag of the last parameter",
     "<tool_call>\n<function=edit>\n<parameter=line>\n3\n</function>\n</tool_call>",
     "call: edit\nargs: {\"line\":3}\nend\n", 0},
    {"no closing tag of the function",
     "<tool_call>\n<function=edit>\n<parameter=line>\n3\n</parameter>\n</tool_call>" CALL_NOW,
     "call: edit\nargs: {\"line\":3}\nend\n" NOW, 0},
    {"tags in a string",
     "<tool_call>\n<function=edit>\n<parameter=path>\n<parameter=zz>\n</parameter> x\n</function>\n"
     "y </tool_call>\n</tool_call> <think></think><function=now>\n</parameter>\n</function>\n"
     "</tool_call>",
     "call: edit\nargs: {\"path\":\"<parameter=zz>\\\\n</parameter> x\\\\n</function>\\\\ny "
     "</tool_call>\\\\n</tool_call> <think></think><function=now>\"}\nend\n",
     0},
    {"not offered",
     "<tool_call>\n<function=other>\n<parameter=a>\n<function=now>\n</parameter>\n</function>\n"
     "</tool_call>\n" CALL_NOW,
     "text: <tool_call>\\n<function=other>\\n<parameter=a>\\n<function=now>\\n</parameter>\\n"
     "</function>\\n</tool_call>\n" NOW,
     0},
    {"not offered and bare", "See <function=other> and\n" CALL_NOW,
     "text: See <function=other> and\n" NOW, 0},
    {"no call at all", "<tool_call>\nhm <tool_call>" CALL_NOW,
     "text: <tool_call>\\nhm <tool_call>\n" NOW, 0},
    {"text where tags are expected",
     "<tool_call>\n<function=edit>\nhm <b>\n<parameter=line>\n3\n</parameter> so\n</function>\n"
     "</tool_call>",
     "call: edit\nargs: {\"line\":\"3\\\\n</parameter> so\"}\nend\n", 0},
    {"JSON between the tags",
     "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n" CALL_NOW, NOW NOW, 0},
    {"cut in a string", "<tool_call>\n<function=edit>\n<parameter=path>\na\nb",
     "call: edit\nargs: {\"path\":\"a\\\\nb\ncut\n", 0},
    {"cut in a number", "<tool_call>\n<function=edit>\n<parameter=line>\n12",
     "call: edit\nargs: {\"line\":\ncut\n", 0},
    {"cut after a parameter", "<tool_call>\n<function=edit>\n<parameter=line>\n12\n</parameter>\n",
     "call: edit\nargs: {\"line\":12\ncut\n", 0},
    {"cut after what may be its end",
     "<tool_call>\n<function=edit>\n<parameter=path>\na\n</function>",
     "call: edit\nargs: {\"path\":\"a\"\ncut\n", 0},
    {"cut in the name", "<tool_call>\n<function=ed", "text: <tool_call>\\n<function=ed\n", 0},
    {"one is enough", CALL_NOW CALL_NOW "x", NOW, CHECK_ONE_CALL},
    {"no tools: as it is", "\n" CALL_NOW "\n",
     "text: \\n<tool_call>\\n<function=now>\\n</function>\\n</tool_call>\\n\n", CHECK_NO_TOOLS},
    {"reasoning is open", "a\n" CALL_NOW "\n</think>\n" CALL_NOW,
     "thinks: a\\n<tool_call>\\n<function=now>\\n</function>\\n</tool_call>\n" NOW,
     CHECK_REASONING_OPEN},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("qwen_xml", tools, cases, sizeof cases / sizeof *cases);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("qwen_xml", dialect_rounds(), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
