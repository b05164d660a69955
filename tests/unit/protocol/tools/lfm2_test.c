/*
 * tests/unit/protocol/tools/lfm2_test.c
 */
#include "lib/dialect_check.h"
#include "lib/t9test.h"

#define BEGIN "<|tool_call_start|>"
#define END   "<|tool_call_end|>"

static const char tools[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{"
    "\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}},{\"name\":\"now\"},{\"name\":\"a.b\"},"
    "{\"name\":\"brave_search\"}]";

/* One call of `now` with these arguments. */
#define CALL(args) BEGIN "[now(" args ")]" END
#define ARGS(json) "call: now\nargs: " json "\nend\n"

static const struct dialect_case cases[] = {
    {"text alone", "Hello [now()].", "text: Hello [now()].\n", 0},
    {"reasoning, text, two calls, text",
     "<think>Hm.</think>Let me see." BEGIN "[get_weather(city=\"Oslo\", days=3), now()]" END
     "Done.",
     "thinks: Hm.\ntext: Let me see.\ncall: get_weather\nargs: "
     "{\"city\":\"Oslo\",\"days\":3}\nend\n"
     "call: now\nargs: {}\nend\ntext: Done.\n",
     0},
    {"no list, lines", BEGIN "\nnow()\nget_weather( city = 'Oslo' , )\n" END,
     "call: now\nargs: {}\nend\ncall: get_weather\nargs: {\"city\":\"Oslo\"}\nend\n", 0},
    {"literals",
     CALL("a=True, b=False, c=None, d=true, e=false, f=null, g=-1, h=+2.5, i=.5, j=5., k=1_000, "
          "l=0xff, m=1e-7, n=00, o=0o17, p=0b101"),
     ARGS("{\"a\":true,\"b\":false,\"c\":null,\"d\":true,\"e\":false,\"f\":null,\"g\":-1,\"h\":2.5,"
          "\"i\":0.5,\"j\":5.0,\"k\":1000,\"l\":255,\"m\":1e-7,\"n\":\"00\",\"o\":15,\"p\":5}"),
     0},
    {"containers",
     CALL("a=[1, 'b', [], (2, 3,)], c={'d': {\"e\": None}, 'f': [True,], 1: 2}, g={}, h=()"),
     ARGS("{\"a\":[1,\"b\",[],[2,3]],\"c\":{\"d\":{\"e\":null},\"f\":[true],\"1\":2},\"g\":{},"
          "\"h\":[]}"),
     0},
    {"strings",
     CALL("a='', b=\"\", c='\"', d=\"it's\", e='''x\n'y' ''', f=\"\"\"\"z\"\"\", g=r'\\d\\'', "
          "h=b'i', j=\"\\n\\t\\x41\\u00e9\\U0001f642\\101\\q\\\\\""),
     "call: now\nargs: {\"a\":\"\",\"b\":\"\",\"c\":\"\\\\\"\",\"d\":\"it's\",\"e\":\"x\\\\n'y' "
     "\",\"f\":\"\\\\\"z\",\"g\":\"\\\\\\\\d\\\\\\\\'\",\"h\":\"i\",\"j\":\"\\\\n\\\\tA\\\\u00e9"
     "\\\\ud83d\\\\ude42A\\\\\\\\q\\\\\\\\\"}\nend\n",
     0},
    {"surrogates",
     CALL("a=\"\\ud83d\\ude42\", b=\"\\ud83dx\", c=\"\\ude42\", d=\"\\ud83d\", e=\"\\u12\""),
     "call: now\nargs: {\"a\":\"\\\\ud83d\\\\ude42\",\"b\":\"\\\\ufffdx\",\"c\":\"\\\\ufffd\","
     "\"d\":\"\\\\ufffd\",\"e\":\"\\\\\\\\u12\"}\nend\n",
     0},
    {"quotes that were left as they are",
     CALL("a='it's', b=\"say \"hi\" now\", c='x', d=['don't', 'y']"),
     "call: now\nargs: {\"a\":\"it's\",\"b\":\"say \\\\\"hi\\\\\" "
     "now\",\"c\":\"x\",\"d\":[\"don't\""
     ",\"y\"]}\nend\n",
     0},
    {"values without names", BEGIN "[get_weather('Oslo', 3), get_weather(\"A\", days=1)]" END,
     "call: get_weather\nargs: {\"city\":\"Oslo\",\"days\":3}\nend\ncall: get_weather\nargs: "
     "{\"city\":\"A\",\"days\":1}\nend\n",
     0},
    {"values without names nor schema", CALL("[1], {'a': 2}, word, 'b'"),
     ARGS("{\"arg1\":[1],\"arg2\":{\"a\":2},\"arg3\":\"word\",\"arg4\":\"b\"}"), 0},
    {"bare words", CALL("a=New York, b=f(1, 2), c=x[0], d=02134"),
     ARGS("{\"a\":\"New York\",\"b\":\"f(1, 2)\",\"c\":\"x[0]\",\"d\":\"02134\"}"), 0},
    {"numbers where the schema permits strings alone",
     BEGIN "[get_weather(city=12, days=12), get_weather(12.5), get_weather([1], 7), "
           "get_weather(city=None, x=1)]" END,
     "call: get_weather\nargs: {\"city\":\"12\",\"days\":12}\nend\ncall: get_weather\nargs: "
     "{\"city\":\"12.5\"}\nend\ncall: get_weather\nargs: {\"city\":[1],\"days\":7}\nend\ncall: "
     "get_weather\nargs: {\"city\":null,\"x\":1}\nend\n",
     0},
    {"names without values", CALL("a=, b={'c', 'd':}, e="),
     ARGS("{\"a\":null,\"b\":{\"c\":null,\"d\":null},\"e\":null}"), 0},
    {"brackets left open", BEGIN "[now(a=[1, {'b': 2" END "x",
     "call: now\nargs: {\"a\":[1,{\"b\":2}]}\nend\ntext: x\n", 0},
    {"a name with a dot", BEGIN "[a.b(c=1), brave_search.call(query=\"q\")]" END,
     "call: a.b\nargs: {\"c\":1}\nend\ncall: brave_search\nargs: {\"query\":\"q\"}\nend\n", 0},
    {"markers in a string", CALL("a=\"" END ")]\", b='" BEGIN "'"),
     ARGS("{\"a\":\"" END ")]\",\"b\":\"" BEGIN "\"}"), 0},
    {"JSON in its place", BEGIN "[{\"name\": \"now\", \"arguments\": {\"a\": 1}}]" END "x",
     "call: now\nargs: {\"a\": 1}\nend\ntext: x\n", 0},
    {"JSON that is no call", BEGIN "[{\"name\": \"other\"}]" END,
     "text: " BEGIN "[{\"name\": \"other\"}]" END "\n", 0},
    {"not offered", "a" BEGIN "[other(b=1)]" END "c", "text: a" BEGIN "[other(b=1)]" END "c\n", 0},
    {"one that is, one that is not", BEGIN "[now(), other(b=1)]" END "c",
     "call: now\nargs: {}\nend\ntext: , other(b=1)]c\n", 0},
    {"no call at all", BEGIN "hello" END, "text: " BEGIN "hello" END "\n", 0},
    {"cut in a string", BEGIN "[now(a=\"b", "call: now\nargs: {\"a\":\"b\ncut\n", 0},
    {"cut in a word", BEGIN "[now(a=12", "call: now\nargs: {\"a\":\ncut\n", 0},
    {"cut in the name", BEGIN "[no", "text: " BEGIN "[no\n", 0},
    {"cut after the call", BEGIN "[now()", "call: now\nargs: {}\nend\n", 0},
    {"no tools: as it is", CALL(""), "text: " CALL("") "\n", CHECK_NO_TOOLS},
    {"one is enough", BEGIN "[now(), now()]" END, "call: now\nargs: {}\nend\n", CHECK_ONE_CALL},
};

static void test_answers(void **state)
{
    (void)state;
    dialect_check("lfm2", tools, cases, sizeof cases / sizeof *cases);
}

/* What is nested too deeply ends the call, which is not complete then. */
static void test_deep(void **state)
{
    char text[400] = BEGIN "[now(a=", parts[400] = "call: now\nargs: {\"a\":";
    struct dialect_case c = {"deep", text, parts, 0};
    (void)state;
    memset(text + strlen(text), '[', 70);
    memset(parts + strlen(parts), '[', 63);
    memcpy(parts + strlen(parts), "\ncut\ntext: ", sizeof "\ncut\ntext: ");
    memset(parts + strlen(parts), '[', 6);
    memcpy(parts + strlen(parts), "\n", 2);
    dialect_check("lfm2", tools, &c, 1);
}

/* What waits for a call is bounded: looking at it again costs little. */
static void test_endless_space(void **state)
{
    char text[1000] = BEGIN, parts[1000] = "text: " BEGIN;
    struct dialect_case c = {"endless space", text, parts, 0};
    (void)state;
    memset(text + strlen(text), ' ', 600);
    memcpy(text + strlen(text), "now()", sizeof "now()");
    memset(parts + strlen(parts), ' ', 600);
    memcpy(parts + strlen(parts), "now()\n", sizeof "now()\n");
    dialect_check("lfm2", tools, &c, 1);
}

/* ---- round trip ---- */

static void test_round_trip(void **state)
{
    (void)state;
    dialect_round_trip("lfm2", dialect_rounds(), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_endless_space),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
