/*
 * What single values of a Messages request mean, and what strict servers refuse. Whole requests and
 * replies are transcripts: tests/golden/anthropic_messages.
 */
#include "lib/t9test.h"

#include "protocol/anthropic_impl.h"

#define USER     "{\"role\":\"user\",\"content\":\"hi\"}"
#define BODY     "{\"max_tokens\":9,\"messages\":[" USER "],"
#define BLOCK(b) "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[" b "]}]}"
#define SAID(b)                                                                                    \
    "{\"max_tokens\":9,\"messages\":[" USER ",{\"role\":\"assistant\",\"content\":[" b "]}," USER  \
    "]}"
#define TEXT    "{\"type\":\"text\",\"text\":\"a\"}"
#define MARK(t) "\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"" t "\"}"
#define TOOL(n) "{\"name\":\"" n "\",\"input_schema\":{}}"

static t9_status parse(const struct chat_adapter *a, bool strict, const char *json,
                       struct chat_request *r, struct chat_error *e)
{
    memset(e, 0, sizeof *e);
    chat_request_init(r, 1 << 22);
    return a->parse(str_from(json), strict, r, e);
}

static void accept(const char *json, struct chat_request *r)
{
    struct chat_error e;
    if (parse(&anthropic_messages_adapter, true, json, r, &e) != T9_STATUS_OK)
        fail_msg("%.200s: %s", json, e.err.msg);
}

static void refused(bool strict, const char *json, const char *param, const char *says)
{
    struct chat_request r;
    struct chat_error e;
    t9_status s = parse(&anthropic_messages_adapter, strict, json, &r, &e);
    if (s == T9_STATUS_OK || chat_error_http(&e) != 400 || strcmp(e.param, param) != 0 ||
        !strstr(e.err.msg, says))
        fail_msg("%.200s: status %d, param %s, %s", json, (int)s, e.param, e.err.msg);
    chat_request_deinit(&r);
}

/* Left out with one warning, and refused by a strict server. */
static void left_out(const char *json, const char *param, const char *says)
{
    struct chat_request r;
    struct chat_error e;
    assert_int_equal(parse(&anthropic_messages_adapter, false, json, &r, &e), T9_STATUS_OK);
    if (r.n_warnings != 1 || str_find(r.warnings[0], str_from(says), 0) == (size_t)-1)
        fail_msg("%s: %zu warnings", json, r.n_warnings);
    chat_request_deinit(&r);
    refused(true, json, param, says);
}

static void test_strict(void **state)
{
    (void)state;
    left_out(BODY "\"x\":1}", "x", "\"x\"");
    left_out(BODY "\"thinking\":{\"type\":\"adaptive\",\"x\":1}}", "thinking.x", "\"x\"");
    left_out(BODY "\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"x\":1}]}", "tools[0].x",
             "\"x\"");
    left_out(BODY "\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}",
             "tools[0]", "web_search_20250305");
    left_out(BODY "\"tools\":[{\"type\":\"code_execution_20250825\",\"name\":\"c\"}]}", "tools[0]",
             "code_execution_20250825");
    left_out(BODY "\"mcp_servers\":[{\"name\":\"files\"}]}", "mcp_servers", "mcp_servers");
    left_out(BODY "\"mcp_servers\":[{\"url\":\"x\"}]}", "mcp_servers",
             "only Anthropic's servers connect to MCP");
    left_out(BODY "\"container\":\"c1\"}", "container",
             "only Anthropic's servers run code in containers");
    left_out(BODY "\"container\":{}}", "container", "container");
    left_out(BLOCK("{\"type\":\"text\",\"text\":\"a\",\"x\":1}"), "messages[0].content[0].x",
             "\"x\"");
    left_out(BLOCK("{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\","
                   "\"x\":1}}"),
             "messages[0].content[0].cache_control.x", "\"x\"");
    left_out(SAID(TEXT ",{\"type\":\"server_tool_use\",\"id\":\"a\"}"), "messages[1].content[1]",
             "server_tool_use");
    left_out("{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"x\":1}]}",
             "messages[0].x", "\"x\"");
}

static void test_thinking(void **state)
{
    static const struct {
        const char *json;
        bool thinking, wish;
    } cases[] = {
        {BODY "\"top_k\":1}", false, true},
        {BODY "\"thinking\":{\"type\":\"disabled\"}}", false, true},
        {BODY "\"thinking\":{\"type\":\"adaptive\",\"display\":\"omitted\"}}", true, true},
        {BODY "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}", true, false},
    };
    struct chat_request r;
    (void)state;
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        accept(cases[i].json, &r);
        assert_true(r.has_thinking && r.thinking == cases[i].thinking);
        assert_int_equal(r.thinking_is_wish, cases[i].wish);
        chat_request_deinit(&r);
    }
    refused(false, BODY "\"thinking\":{\"type\":\"enabled\"}}", "thinking.budget_tokens", "whole");
    refused(false, BODY "\"thinking\":{\"type\":\"between_tools\"}}", "thinking", "between_tools");
}

static void test_effort(void **state)
{
    static const char *const cases[][2] = {
        {"low", "low"}, {"medium", "medium"}, {"high", "high"}, {"xhigh", "high"}, {"max", "high"}};
    struct chat_request r;
    char json[256];
    (void)state;
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        snprintf(json, sizeof json, BODY "\"output_config\":{\"effort\":\"%s\"}}", cases[i][0]);
        accept(json, &r);
        assert_true(str_eqz(r.reasoning_effort, cases[i][1]) && r.effort_is_wish);
        chat_request_deinit(&r);
    }
}

/* The last place, and the longest time. */
static void test_marks(void **state)
{
    struct chat_request r;
    (void)state;
    accept(BODY "\"system\":[{\"type\":\"text\",\"text\":\"long\"," MARK(
               "1h") "},{\"type\":"
                     "\"text\",\"text\":\"ago\"," MARK("5m") "}]}",
           &r);
    assert_true(r.pin.ms == 3600000 && r.pin.n_messages == 1);
    assert_int_equal(r.pin.content_bytes, strlen("long\nago"));
    chat_request_deinit(&r);
    accept("{\"max_tokens\":9,\"tools\":[" TOOL("f") ",{\"name\":\"g\",\"input_schema\":{}," MARK(
               "5m") "}," TOOL("h") "],\"messages\":[" USER "]}",
           &r);
    assert_true(r.pin.ms == 300000 && r.pin.n_messages == 0 && r.pin.n_tools == 2);
    chat_request_deinit(&r);
    accept(BODY "\"cache_control\":{\"type\":\"ephemeral\"}}", &r);
    assert_true(r.pin.ms == 300000 && r.pin.n_messages == 1);
    assert_true(r.pin.content_bytes == CHAT_PIN_ALL);
    chat_request_deinit(&r);
    accept(BODY "\"cache_control\":null}", &r);
    assert_int_equal(r.pin.ms, 0);
    chat_request_deinit(&r);
}

/* Texts, results and texts again keep their order; ids are the template's own. */
static void test_results(void **state)
{
    struct chat_request r;
    (void)state;
    accept("{\"max_tokens\":9,\"messages\":[" USER
           ",{\"role\":\"assistant\",\"content\":[{\"type\":"
           "\"tool_use\",\"id\":\"toolu_x\",\"name\":\"f\",\"input\":{\"b\":1.50,\"a\":[]}},{"
           "\"type\":\"tool_use\",\"id\":\"y\",\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\","
           "\"content\":[" TEXT ",{\"type\":\"tool_result\",\"tool_use_id\":\"toolu_x\"}," TEXT
           "," TEXT ",{\"type\":\"tool_result\",\"tool_use_id\":\"y\",\"is_error\":true,"
           "\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"g\"}]}]}]}",
           &r);
    static const struct {
        chat_role role;
        const char *content;
    } want[] = {{CHAT_ROLE_USER, "hi"}, {CHAT_ROLE_ASSISTANT, ""}, {CHAT_ROLE_USER, "a"},
                {CHAT_ROLE_TOOL, ""},   {CHAT_ROLE_USER, "a\na"},  {CHAT_ROLE_TOOL, "Error: g"}};
    assert_int_equal(r.n_messages, T9_COUNT(want));
    for (size_t i = 0; i < T9_COUNT(want); i++) {
        assert_int_equal(r.messages[i].role, want[i].role);
        assert_true(str_eqz(r.messages[i].content, want[i].content));
    }
    assert_true(str_eqz(r.messages[1].calls[0].id, "x") &&
                str_eqz(r.messages[1].calls[0].args, "{\"b\":1.5,\"a\":[]}"));
    assert_true(str_eqz(r.messages[3].tool_call_id, "x") &&
                str_eqz(r.messages[5].tool_call_id, "y"));
    assert_int_equal(r.n_warnings, 0);
    chat_request_deinit(&r);
}

static void test_limits(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 1 << 22);
    buf_puts(&b, "{\"max_tokens\":9,\"messages\":[{\"role\":\"assistant\",\"content\":[");
    for (int i = 0; i <= T9_CALLS_MAX; i++)
        buf_printf(&b, "%s{\"type\":\"tool_use\",\"id\":\"a%d\",\"name\":\"f\",\"input\":{}}",
                   i ? "," : "", i);
    buf_puts(&b, "]}]}");
    buf_putc(&b, 0);
    refused(false, b.p, "messages[0].content", "calls, and at most");
    buf_deinit(&b);
    refused(false, "{\"messages\":[" USER "]}", "max_tokens", "missing");
    refused(false, "{\"max_tokens\":9}", "messages", "missing");
    refused(false, BODY "\"tools\":[{\"input_schema\":{}}]}", "tools[0].name", "must have 1 to");
    refused(false, BODY "\"stop_sequences\":\"a\"}", "stop_sequences", "array");
    refused(false,
            BODY
            "\"stop_sequences\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
            "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]}",
            "stop_sequences", "stop_sequences has more than 16 strings");
    refused(false, SAID("{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":\"x\"}"),
            "messages[1].content[0].input", "an object");
    refused(false, BLOCK("{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":{}}"),
            "messages[0].content[0]", "tool_use");
    refused(false,
            "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
            "\"container_upload\"}]}]}",
            "messages", "nothing is left");
}

/* Members that may be missing, and may not be anything. */
static void test_members(void **state)
{
#define DOC(m)    BLOCK("{\"type\":\"document\"," m ",\"source\":{\"type\":\"text\",\"data\":\"x\"}}")
#define SIGNED(s) SAID("{\"type\":\"thinking\",\"thinking\":\"a\",\"signature\":" s "}")
#define SCREEN(m) BODY "\"tools\":[{\"type\":\"computer_20250124\",\"name\":\"c\"," m "}]}"
    static const char *const damaged[] = {"\"t9s1\"", "\"t9s10eb285279d58c00ac786bba41e3a00c\"",
                                          "\"t9s10eb285279d58c00ac786bba41e3a00c2\"",
                                          "\"t9s10eb285279d58c00ac786bba41e3a00c2ff\""};
    static const char *const fine[] = {"null", "\"\"", "\"t9s\"", "\"EqQBCgIYAhIM\""};
    struct chat_request r;
    struct chat_error e;
    (void)state;
    refused(false, DOC("\"title\":5"), "messages[0].content[0].title", "a string, not 5");
    refused(false, DOC("\"context\":[]"), "messages[0].content[0].context", "a string");
    refused(false, SIGNED("5"), "messages[1].content[0].signature", "a string, not 5");
    refused(false, SIGNED("[]"), "messages[1].content[0].signature", "a string");
    refused(false, SCREEN("\"display_width_px\":-1"), "tools[0].display_width_px", "not -1");
    refused(false, SCREEN("\"display_width_px\":9,\"display_height_px\":\"x\""),
            "tools[0].display_height_px", "a whole number");
    refused(false, BODY "\"tools\":[{\"name\":\"f\",\"input_schema\":{},\"description\":5}]}",
            "tools[0].description", "a string, not 5");
    accept(DOC("\"title\":null,\"context\":\"c\""), &r);
    assert_true(str_eqz(r.messages[0].content, "c\nx"));
    chat_request_deinit(&r);
    accept(SCREEN("\"display_width_px\":null"), &r);
    chat_request_deinit(&r);
    for (size_t i = 0; i < T9_COUNT(damaged) + T9_COUNT(fine); i++) {
        char json[512];
        bool is_damaged = i < T9_COUNT(damaged);
        (void)snprintf(json, sizeof json, SIGNED("%s"),
                       is_damaged ? damaged[i] : fine[i - T9_COUNT(damaged)]);
        assert_int_equal(parse(&anthropic_messages_adapter, false, json, &r, &e), T9_STATUS_OK);
        if (r.n_warnings != is_damaged)
            fail_msg("%s: %zu warnings", json, r.n_warnings);
        chat_request_deinit(&r);
    }
}

/* What is counted needs no max_tokens, and takes it. */
static void test_count(void **state)
{
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(parse(&anthropic_count_adapter, true, "{\"messages\":[" USER "]}", &r, &e),
                     T9_STATUS_OK);
    assert_int_equal(r.max_tokens, 0);
    chat_request_deinit(&r);
    assert_int_equal(parse(&anthropic_count_adapter, true,
                           BODY "\"stream\":true,\"temperature\":\"?\"}", &r, &e),
                     T9_STATUS_OK);
    assert_false(r.stream);
    chat_request_deinit(&r);
}

/* The same however the text came, another for another text, and for none. */
static void test_seal(void **state)
{
    str text = STR("Let me think \xE6\x97\xA5.");
    char whole[ANTHROPIC_SIGNATURE_BYTES + 1], cut[ANTHROPIC_SIGNATURE_BYTES + 1];
    struct anthropic_seal seal = {0};
    (void)state;
    anthropic_seal_add(&seal, text);
    str want = anthropic_seal_text(&seal, whole);
    assert_int_equal(want.n, strlen(whole));
    for (size_t at = 0; at <= text.n; at++) {
        struct anthropic_seal s = {0};
        anthropic_seal_add(&s, str_slice(text, 0, at));
        assert_int_equal(str_eq(want, anthropic_seal_text(&s, cut)), at == text.n);
        anthropic_seal_add(&s, str_slice(text, at, text.n));
        assert_true(str_eq(want, anthropic_seal_text(&s, cut)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strict),  cmocka_unit_test(test_thinking),
        cmocka_unit_test(test_effort),  cmocka_unit_test(test_marks),
        cmocka_unit_test(test_results), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_count),   cmocka_unit_test(test_seal),
        cmocka_unit_test(test_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
