/*
 * What is found out about a template's ways with tools, and how calls, results and reasoning of a
 * conversation reach it, over a tokenizer of bytes.
 */
#include "lib/t9test.h"

#include "lib/byte_tokenizer.h"
#include "sdk/internal.h"
#include "template/template.h"

#include <stdlib.h>

#define CALL(id, name, args)                                                                       \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":" args "}}"
#define USER "{\"role\":\"user\",\"content\":\"q\"}"

struct model {
    struct jinja_template *template;
    t9_model *model;
    struct t9_template_tools can;
};

static void open_model(struct model *m, str source)
{
    struct t9_model_info info = {.struct_size = sizeof info};
    t9_err err = {0};
    size_t n = 0;
    if (jinja_parse(&m->template, source, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(sdk_model_wrap(&m->model, byte_tokenizer(true), m->template, NULL),
                     T9_STATUS_OK);
    assert_int_equal(t9_model_info(m->model, &info), T9_STATUS_OK);
    m->can = info.template_tools;
    const char *text = t9_template_source(m->model, &n);
    assert_true(str_eq((str){text, n}, source));
}

static void close_model(struct model *m)
{
    t9_model_free(m->model);
    jinja_free(m->template);
}

static void check_render(const t9_model *m, const char *messages, const char *want)
{
    struct t9_chat_params p;
    t9_text out = {0};
    t9_err err = {0};
    t9_chat_params_init(&p, sizeof p);
    p.messages = messages;
    p.messages_bytes = strlen(messages);
    if (t9_chat_render(m, &p, &out, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(out.p, want);
    t9_text_free(&out);
}

/* A template, what it can do, and a conversation as it shows it. */
static void check(const char *source, const char *can, const char *messages, const char *want)
{
    struct model m;
    char got[64];
    open_model(&m, str_from(source));
    snprintf(got, sizeof got, "%s%s%s%s%s", m.can.tools ? "tools " : "",
             m.can.calls ? "calls " : "", m.can.results ? "results " : "",
             m.can.arguments_text ? "text " : "", m.can.reasoning ? "reasoning " : "");
    assert_string_equal(got, can);
    check_render(m.model, messages, want);
    close_model(&m);
}

#define FOR  "{% for m in messages %}{{ m.role }}:"
#define ARGS "{% for c in m.tool_calls or [] %}{{ c.function.name }}="
#define DONE "{% endfor %};{% endfor %}"

static void test_arguments(void **state)
{
    static const char messages[] =
        "[" USER
        ",{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f", "\"{\\\"x\\\":1}\"") "," CALL(
            "b", "g", "{\"y\":[2]}") "]},"
                                     "{\"role\":\"tool\",\"tool_call_id\":"
                                     "\"a\",\"content\":\"r\"}]";
    (void)state;
    check(FOR "{{ m.content or '' }}" ARGS "{{ c.function.arguments | tojson }}" DONE,
          "calls results ", messages, "user:q;assistant:f={\"x\": 1}g={\"y\": [2]};tool:r;");
    /* Joined to text: an object would be an error. */
    check(FOR "{{ m.content or '' }}" ARGS "{{ '' + c.function.arguments }}" DONE,
          "calls results text ", messages, "user:q;assistant:f={\"x\":1}g={\"y\":[2]};tool:r;");
    /* Printed: an object would be no JSON. */
    check(FOR "{{ m.content or '' }}" ARGS "{{ c.function.arguments }}" DONE, "calls results text ",
          messages, "user:q;assistant:f={\"x\":1}g={\"y\":[2]};tool:r;");
    /* Shows none of it. */
    check(FOR "{{ m.content or '' }};{% endfor %}", "results ", messages,
          "user:q;assistant:;tool:r;");
    check("{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}", "", messages,
          "q;");
}

static void test_content(void **state)
{
    static const char messages[] =
        "[" USER
        ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALL("a", "f", "{}") "]}]";
    (void)state;
    /* null is an error here, and there it says that there are calls alone. */
    check(FOR "{{ m.content + '' }}" ARGS "{{ c.function.arguments | tojson }}" DONE,
          "calls results ", messages, "user:q;assistant:f={};");
    check(FOR "{% if m.content is none %}-{% endif %}{{ m.content or '' }}" ARGS
              "{{ c.function.arguments | tojson }}" DONE,
          "calls results ", messages, "user:q;assistant:-f={};");
    check(FOR "{% if m.content is none %}-{% endif %}{{ m.content or '' }}" ARGS
              "{{ c.function.arguments | tojson }}" DONE,
          "calls results ",
          "[" USER
          ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL("a", "f", "{}") "]}]",
          "user:q;assistant:-f={};");
}

static void test_names_of_results(void **state)
{
    static const char messages[] =
        "[" USER ",{\"role\":\"assistant\",\"tool_calls\":[" CALL("a", "f", "{}") "," CALL(
            "b", "g", "{}") "]},"
                            "{\"role\":\"tool\",\"tool_call_id\":\"b\",\"content\":\"1\"},"
                            "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"2\"},"
                            "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"name\":\"own\","
                            "\"content\":\"3\"},"
                            "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"4\"}]";
    (void)state;
    check(FOR "{{ m.name }} {{ m.content or '' }}" ARGS "{{ c.function.arguments | tojson }}" DONE,
          "calls results ", messages,
          "user: q;assistant: f={}g={};tool:g 1;tool:f 2;tool:own 3;tool: 4;");
}

static void test_reasoning(void **state)
{
    static const char messages[] =
        "[" USER ",{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"tool_calls\":[" CALL(
            "a", "f", "{}") "]},{\"role\":\"assistant\",\"reasoning_content\":\"u\",\"content\":"
                            "\"c\",\"tool_calls\":[" CALL("b", "f", "{}") "]}]";
    (void)state;
    check(FOR "{{ m.reasoning_content }}|{{ m.content or '' }}" ARGS
              "{{ c.function.arguments | tojson }}" DONE,
          "calls results reasoning ", messages, "user:|q;assistant:t|f={};assistant:u|cf={};");
    /* By another name, and not beside content and a call: it is what is left out then. */
    check(FOR "{% if m.thinking and m.content and m.tool_calls %}{{ raise_exception('both') }}"
              "{% endif %}{{ m.thinking }}|{{ m.content or '' }}" ARGS
              "{{ c.function.arguments | tojson }}" DONE,
          "calls results reasoning ", messages, "user:|q;assistant:t|f={};assistant:|cf={};");
}

static void test_tools(void **state)
{
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]";
    struct model m;
    struct t9_chat_params p;
    t9_text out = {0};
    (void)state;
    open_model(&m, STR("{{ tools | tojson if tools }}{{ messages[0].content }}"));
    assert_true(m.can.tools && !m.can.calls && !m.can.results);
    t9_chat_params_init(&p, sizeof p);
    p.messages = "[" USER "]";
    p.messages_bytes = strlen(p.messages);
    p.tools = tools;
    p.tools_bytes = sizeof tools - 1;
    assert_int_equal(t9_chat_render(m.model, &p, &out, NULL), T9_STATUS_OK);
    assert_string_equal(out.p, "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]q");
    t9_text_free(&out);
    close_model(&m);
}

static void test_too_many_calls(void **state)
{
    struct model m;
    struct t9_chat_params p;
    t9_ids ids = {0};
    t9_err err = {0};
    struct buf b;
    (void)state;
    open_model(&m, STR("{{ messages[0].content }}"));
    buf_init(&b, 1 << 20);
    buf_puts(&b, "[{\"role\":\"assistant\",\"tool_calls\":[");
    for (int i = 0; i <= T9_CALLS_MAX; i++)
        buf_puts(&b, i ? "," CALL("a", "f", "{}") : CALL("a", "f", "{}"));
    buf_puts(&b, "]}]");
    t9_chat_params_init(&p, sizeof p);
    p.messages = b.p;
    p.messages_bytes = b.n;
    assert_int_equal(t9_chat_tokens(m.model, &p, &ids, &err), T9_STATUS_INVALID);
    assert_non_null(strstr(err.msg, "messages[0] has 513 tool_calls"));
    buf_deinit(&b);
    close_model(&m);
}

/* Of real models, where their templates are at hand. */
static void test_fixtures(void **state)
{
    static const struct {
        const char *name;
        bool tools, calls, results, text, reasoning;
    } known[] = {
        {"Qwen-Qwen2.5-7B-Instruct", true, true, true, false, false},
        {"Qwen-Qwen3-0.6B", true, true, true, false, true},
        {"Qwen3-Coder", true, true, true, false, false},
        {"meta-llama-Llama-3.1-8B-Instruct", true, true, true, false, false},
        {"mistralai-Mistral-Nemo-Instruct-2407", true, true, true, false, false},
        {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", false, true, true, true, false},
        {"openai-gpt-oss-120b", true, true, true, false, true},
        {"google-gemma-4-31B-it", true, true, true, false, true},
        {"LFM2.5-8B-A1B", true, true, true, false, true},
        {"microsoft-Phi-3.5-mini-instruct", false, false, false, false, false},
    };
    static char source[1 << 20];
    (void)state;
    for (size_t i = 0; i < T9_COUNT(known); i++) {
        char path[512];
        struct model m;
        snprintf(path, sizeof path, "%s/templates/%s.jinja", T9_FIXTURES_DIR, known[i].name);
        FILE *f = fopen(path, "rb");
        if (!f) {
            print_message("no %s\n", path);
            skip();
        }
        size_t n = fread(source, 1, sizeof source, f);
        fclose(f);
        open_model(&m, (str){source, n});
        if (m.can.tools != known[i].tools || m.can.calls != known[i].calls ||
            m.can.results != known[i].results || m.can.arguments_text != known[i].text ||
            m.can.reasoning != known[i].reasoning)
            fail_msg("%s: %d %d %d %d %d", known[i].name, m.can.tools, m.can.calls, m.can.results,
                     m.can.arguments_text, m.can.reasoning);
        close_model(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_names_of_results),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_too_many_calls),
        cmocka_unit_test(test_fixtures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
