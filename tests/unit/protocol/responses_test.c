/*
 * What a Responses request is turned into and what is refused of it; transcripts of replies are in
 * tests/golden/openai_responses.
 */
#include "lib/t9test.h"

#include "protocol/responses.h"
#include "protocol/sealed.h"

static t9_status parse(bool strict, const char *json, struct chat_request *r, struct chat_error *e)
{
    memset(e, 0, sizeof *e);
    chat_request_init(r, 1 << 20);
    return responses_adapter.parse(str_from(json), strict, r, e);
}

static void refused(bool strict, const char *json, const char *param, const char *says)
{
    struct chat_request r;
    struct chat_error e;
    t9_status s = parse(strict, json, &r, &e);
    if (s == T9_STATUS_OK || chat_error_http(&e) != 400 || strcmp(e.param, param) != 0 ||
        !strstr(e.err.msg, says))
        fail_msg("%.120s: status %d, param %s, %s", json, (int)s, e.param, e.err.msg);
    chat_request_deinit(&r);
}

static void warned(const char *json, size_t n, const char *says)
{
    struct chat_request r;
    struct chat_error e;
    if (parse(false, json, &r, &e) != T9_STATUS_OK || r.n_warnings != n)
        fail_msg("%.120s: %zu warnings, %s", json, r.n_warnings, e.err.msg);
    for (size_t i = 0; i < n; i++) {
        if (str_find(r.warnings[i], str_from(says), 0) == (size_t)-1)
            fail_msg("%.120s: " STR_FMT, json, STR_ARG(r.warnings[i]));
    }
    chat_request_deinit(&r);
}

static void test_sealed(void **state)
{
    char text[300];
    struct arena arena;
    struct buf b;
    str got = {0};
    (void)state;
    arena_init(&arena, 1 << 20);
    buf_init(&b, 1 << 16);
    for (size_t n = 0; n < sizeof text; n++) {
        buf_clear(&b);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + (i * 7 + n) % 26);
        sealed_write((str){text, n}, &b);
        assert_true(sealed_read(buf_str(&b), &arena, &got));
        assert_true(str_eq(got, (str){text, n}));
    }
    /* Any letter changed, and any end cut off, is another seal. */
    got = STR("kept");
    for (size_t i = 0; i < b.n; i++) {
        char was = b.p[i];
        b.p[i] = was == 'A' ? 'B' : 'A';
        /* Bits behind the last byte say nothing. */
        bool same = sealed_read(buf_str(&b), &arena, &got) && i + 1 < b.n;
        assert_false(same);
        b.p[i] = was;
    }
    for (size_t n = 0; n + 1 < b.n; n++)
        assert_false(sealed_read(str_slice(buf_str(&b), 0, n), &arena, &got));
    buf_deinit(&b);
    arena_deinit(&arena);
}

static void test_refused(void **state)
{
    (void)state;
    refused(false, "{}", "input", "missing");
    refused(false, "{\"input\":[]}", "input", "at least one item");
    refused(false, "{\"input\":7}", "input", "a string or an array");
    refused(false, "{\"input\":[{\"type\":\"web_search_call\"}]}", "input", "nothing to answer");
    refused(false, "{\"input\":[{\"role\":\"tool\",\"content\":\"a\"}]}", "input[0].role",
            "\"tool\"");
    refused(false, "{\"input\":[{\"role\":\"user\"}]}", "input[0].content", "a string or an array");
    refused(false, "{\"input\":[{\"type\":7}]}", "input[0].type", "kind of item");
    refused(false,
            "{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"a\",\"output\":{}}]}",
            "input[0].output", "a string or an array of parts");
    refused(
        false,
        "{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"a\",\"output\":[{\"type\":"
        "\"input_file\",\"file_id\":\"f\"}]}]}",
        "input[0].output", "input_file");
    refused(false, "{\"input\":\"a\",\"instructions\":[]}", "instructions", "a string");
    refused(false, "{\"input\":\"a\",\"max_output_tokens\":0}", "max_output_tokens", "not 0");
    refused(false, "{\"input\":\"a\",\"reasoning\":{\"effort\":\"all\"}}", "reasoning.effort",
            "low");
    refused(false, "{\"input\":\"a\",\"reasoning\":{\"summary\":\"all\"}}", "reasoning.summary",
            "concise");
    refused(false, "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_object\"}}}",
            "text.format", "json_object");
    refused(false, "{\"input\":\"a\",\"background\":true}", "background", "background");
    refused(false, "{\"input\":\"a\",\"truncation\":\"middle\"}", "truncation", "auto or disabled");
    refused(false, "{\"input\":\"a\",\"include\":[1]}", "include", "names");
    refused(false, "{\"input\":\"a\",\"tools\":[{\"name\":\"f\"}]}", "tools[0]", "a type");
    refused(false, "{\"input\":\"a\",\"tools\":[{\"type\":\"namespace\",\"tools\":[]}]}",
            "tools[0].name", "a name");
    refused(false, "{\"input\":\"a\",\"tools\":[{\"type\":\"namespace\",\"name\":\"n\"}]}",
            "tools[0].tools", "array");
    refused(false,
            "{\"input\":\"a\",\"tools\":[{\"type\":\"custom\",\"name\":\"f\",\"format\":{\"type\":"
            "\"grammar\"}}]}",
            "tools[0].format", "definition");
    refused(
        false,
        "{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":5}]}",
        "tools[0].description", "a string, not 5");
    refused(false,
            "{\"input\":\"a\",\"tools\":[{\"type\":\"custom\",\"name\":\"f\",\"description\":[]}]}",
            "tools[0].description", "a string");
    refused(false, "{\"input\":[{\"type\":\"reasoning\",\"summary\":5}]}", "input[0].summary",
            "a string or an array of parts");
    refused(false, "{\"input\":[{\"type\":\"reasoning\",\"content\":{\"a\":1}}]}",
            "input[0].content", "a string or an array of parts");
    refused(false, "{\"input\":[{\"type\":\"reasoning\",\"encrypted_content\":5}]}",
            "input[0].encrypted_content", "a string, not 5");
    refused(false, "{\"input\":\"a\",\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}}",
            "tool_choice", "\"function\"");
    refused(false,
            "{\"input\":\"a\",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\","
            "\"tools\":[]}}",
            "tool_choice", "enforced");
}

/* What is ignored with a warning is refused by a strict server. */
static void test_strict(void **state)
{
    static const char item[] = "{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"web_"
                               "search_call\"},{\"type\":"
                               "\"web_search_call\"}]}";
    static const char tool[] = "{\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}]}";
    static const char member[] = "{\"input\":[{\"role\":\"user\",\"content\":\"a\",\"x\":1}]}";
    static const char include[] = "{\"input\":\"a\",\"include\":[\"all\"]}";
    (void)state;
    warned(item, 1, "web_search_call");
    refused(true, item, "input[1].type", "strict");
    warned(tool, 1, "web_search");
    refused(true, tool, "tools[0].type", "strict");
    warned(member, 1, "\"x\"");
    refused(true, member, "input[0].x", "strict");
    warned(include, 1, "\"all\"");
    refused(true, include, "include", "known");
    /* What the clients of hosted models send asks for nothing here. */
    warned("{\"input\":\"a\",\"store\":false,\"truncation\":\"disabled\",\"background\":false,"
           "\"service_tier\":\"auto\",\"metadata\":{},\"prompt_cache_key\":\"k\",\"include\":["
           "\"code_interpreter_call.outputs\"],\"reasoning\":{\"effort\":null,\"summary\":null},"
           "\"text\":{\"verbosity\":\"medium\"},\"client_metadata\":{\"a\":\"b\"}}",
           0, "");
}

/* Items of an answer are one message; what comes after calls begins another. */
static void test_messages(void **state)
{
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(
        parse(true,
              "{\"instructions\":\"s\",\"input\":[{\"role\":\"user\",\"content\":\"q\"},"
              "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\","
              "\"text\":\"a\"}]},{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\","
              "\"text\":\"b\"}]},{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\","
              "\"arguments\":\"{}\"},{\"type\":\"function_call\",\"call_id\":\"2\",\"name\":\"g\","
              "\"arguments\":\"{}\"},{\"role\":\"assistant\",\"content\":\"t\"},{\"type\":"
              "\"function_call\",\"call_id\":\"3\",\"name\":\"h\",\"arguments\":\"{}\"}]}",
              &r, &e),
        T9_STATUS_OK);
    assert_int_equal(r.n_messages, 4);
    assert_true(r.messages[0].role == CHAT_ROLE_SYSTEM && str_eqz(r.messages[0].content, "s"));
    assert_true(str_eqz(r.messages[2].reasoning, "a\nb") && r.messages[2].n_calls == 2);
    assert_true(str_eqz(r.messages[2].calls[1].name, "g") && !r.messages[2].has_content);
    assert_true(str_eqz(r.messages[3].content, "t") && r.messages[3].n_calls == 1);
    assert_true(str_eqz(r.messages[3].calls[0].id, "3"));
    chat_request_deinit(&r);
}

/* Texts that are no arrays of parts are texts all the same. */
static void test_reasoning(void **state)
{
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(parse(true,
                           "{\"input\":[{\"type\":\"reasoning\",\"summary\":\"a\"},"
                           "{\"type\":\"reasoning\",\"summary\":\"\",\"content\":\"b\"},"
                           "{\"type\":\"reasoning\",\"summary\":null,\"content\":[]},"
                           "{\"role\":\"assistant\",\"content\":\"t\"}]}",
                           &r, &e),
                     T9_STATUS_OK);
    assert_int_equal(r.n_messages, 1);
    assert_true(str_eqz(r.messages[0].reasoning, "a\nb") && str_eqz(r.messages[0].content, "t"));
    chat_request_deinit(&r);
}

#define ALLOWED(allowed)                                                                           \
    "{\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":"                \
    "\"web_search\"},{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\","    \
    "\"name\":\"g\"}]}],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\"" allowed     \
    "}}"

/* What is allowed must be among the tools; one that was left out is told of. */
static void test_allowed(void **state)
{
    (void)state;
    refused(false, ALLOWED(""), "tool_choice.tools", "array");
    refused(false, ALLOWED(",\"tools\":5"), "tool_choice.tools", "array");
    refused(false, ALLOWED(",\"tools\":[{\"name\":\"f\"},5]"), "tool_choice.tools[1]", "object");
    refused(false, ALLOWED(",\"tools\":[{\"type\":\"function\",\"name\":\"zz\"}]"),
            "tool_choice.tools[0]", "\"zz\"");
    refused(false, ALLOWED(",\"tools\":[{\"type\":\"function\",\"name\":\"g\"}]"),
            "tool_choice.tools[0]", "\"g\"");
    refused(false, ALLOWED(",\"tools\":[{\"type\":\"mcp\"}]"), "tool_choice.tools[0]", "\"mcp\"");
    warned(ALLOWED(",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"namespace\","
                   "\"name\":\"n\"}]"),
           1, "web_search");
    warned(ALLOWED(",\"tools\":[{\"name\":\"f\"},{\"type\":\"web_search\"}]"), 2, "web_search");
}

/* A namespace that ends as such names do is not given another sign. */
static void test_names(void **state)
{
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(
        parse(true,
              "{\"input\":\"a\",\"tools\":[{\"type\":\"namespace\",\"name\":\"mcp__x__\",\"tools\":"
              "[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"custom\",\"name\":\"c\"}]},"
              "{\"type\":\"custom\",\"name\":\"d\"}],\"tool_choice\":{\"type\":\"allowed_tools\","
              "\"mode\":\"auto\",\"tools\":[{\"type\":\"custom\",\"name\":\"d\"},{\"type\":"
              "\"function\",\"name\":\"f\",\"namespace\":\"mcp__x__\"}]}}",
              &r, &e),
        T9_STATUS_OK);
    assert_int_equal(r.n_tools, 2);
    assert_true(str_eqz(r.tools[0].name, "mcp__x__f") && str_eqz(r.tools[1].name, "d"));
    assert_true(responses_own(&r)->tools[1].is_text);
    chat_request_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sealed),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_strict),  cmocka_unit_test(test_messages),
        cmocka_unit_test(test_names),   cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
