/*
 * Requests: the field table held against the parser both ways, messages, arrangement for templates,
 * provenance of special tokens, and the life of a run against a scripted engine.
 */
#include "lib/t9test.h"

#include "lib/byte_tokenizer.h"
#include "lib/scripted_engine.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "protocol/anthropic.h"
#include "protocol/caller.h"
#include "protocol/divergence.h"
#include "protocol/endpoints.h"
#include "protocol/models.h"
#include "protocol/ollama.h"
#include "protocol/openai_chat.h"
#include "protocol/openai_completions.h"
#include "protocol/responses.h"
#include "protocol/run.h"
#include "protocol/run_impl.h"
#include "sdk/internal.h"

#define USER "{\"role\":\"user\",\"content\":\"hi\"}"

static t9_status parse(const char *json, struct chat_request *r, struct chat_error *e)
{
    memset(e, 0, sizeof *e);
    chat_request_init(r, 1 << 20);
    return openai_chat_adapter.parse(str_from(json), false, r, e);
}

/* What a request of each kind must have beside the field in question. */
static const char *frame_of(const struct chat_adapter *a, const char *field)
{
    bool chat = strcmp(a->name, "openai_chat") == 0 || strcmp(a->name, "apply_template") == 0 ||
                strcmp(a->name, "ollama_chat") == 0;
    bool generate = strcmp(a->name, "ollama_generate") == 0;
    if (strcmp(a->name, "anthropic_messages") == 0)
        return strcmp(field, "messages") == 0     ? "\"max_tokens\":9,"
               : strcmp(field, "max_tokens") == 0 ? "\"messages\":[" USER "],"
                                                  : "\"messages\":[" USER "],\"max_tokens\":9,";
    chat |= strcmp(a->name, "anthropic_count_tokens") == 0;
    if (strcmp(a->name, "openai_responses") == 0)
        return strcmp(field, "input") == 0 ? "" : "\"input\":\"hi\",";
    if (strcmp(a->name, "detokenize") == 0)
        return strcmp(field, "tokens") == 0 ? "" : "\"tokens\":[1],";
    if (strcmp(field, "messages") == 0 || strcmp(field, "content") == 0)
        return "";
    bool names = strcmp(field, "model") == 0 || strcmp(field, "name") == 0;
    if (strcmp(a->name, "ollama_show") == 0)
        return "";
    if (strcmp(a->name, "ollama_pull") == 0)
        return names ? "" : "\"model\":\"m\",";
    if (strcmp(field, "top_logprobs") == 0)
        return generate ? "\"prompt\":\"hi\",\"logprobs\":true,"
                        : "\"messages\":[" USER "],\"logprobs\":true,";
    if (generate)
        return strcmp(field, "prompt") == 0 ? "" : "\"prompt\":\"hi\",";
    if (chat)
        return "\"messages\":[" USER "],";
    if (strcmp(field, "echo") == 0)
        return "\"prompt\":\"hi\",";
    return strcmp(field, "prompt") == 0 ? "" : "\"prompt\":\"hi\",\"echo\":false,";
}

static t9_status parse_one(const struct chat_adapter *a, const char *name, const char *value,
                           struct chat_request *r, struct chat_error *e)
{
    char json[512];
    bool tokenize = strcmp(a->name, "tokenize") == 0;
    const char *frame = tokenize && strcmp(name, "prompt") != 0 && strcmp(name, "content") != 0 &&
                                strcmp(name, "messages") != 0
                            ? "\"prompt\":\"hi\","
                            : frame_of(a, name);
    const char *dot = strchr(name, '.');
    if (dot) /* a member; penalties are there for what changes them */
        snprintf(json, sizeof json, "{%s\"%.*s\":{%s\"%s\":%s}}", frame, (int)(dot - name), name,
                 strstr(dot, "repeat_last_n") ? "\"repeat_penalty\":1.5," : "", dot + 1, value);
    else
        snprintf(json, sizeof json, "{%s\"%s\":%s}", frame, name, value);
    memset(e, 0, sizeof *e);
    chat_request_init(r, 1 << 20);
    return a->parse(str_from(json), false, r, e);
}

static t9_status parse_field(const char *name, const char *value, struct chat_request *r,
                             struct chat_error *e)
{
    return parse_one(&openai_chat_adapter, name, value, r, e);
}

static const char *value_of(const char *const (*values)[2], size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(values[i][0], name) == 0)
            return values[i][1];
    }
    return NULL;
}

/* Fields of Anthropic's that have other values than OpenAI's, or that OpenAI does not have. */
static const char *anthropic_value(const char *name)
{
    static const char *const values[][2] = {
        {"system", "\"x\""},
        {"tools", "[{\"name\":\"f\",\"input_schema\":{}}]"},
        {"tool_choice", "{\"type\":\"none\"}"},
        {"thinking", "{\"type\":\"adaptive\"}"},
        {"output_config", "{\"effort\":\"low\"}"},
        {"cache_control", "{\"type\":\"ephemeral\"}"},
        {"stop_sequences", "[\"a\",\"b\"]"},
        {"context_management", "{\"edits\":[{\"type\":\"x\"}]}"},
        {"mcp_servers", "[{\"name\":\"x\"}]"},
        {"container", "\"x\""},
    };
    return value_of(values, T9_COUNT(values), name);
}

/* A value of each honoured field that is right; a test fails for a row without one. */
static const char *right_value(const struct chat_adapter *a, const char *name)
{
    static const char *const values[][2] = {
        {"model", "\"m\""},
        {"name", "\"m\""},
        {"verbose", "true"},
        {"system", "\"x\""},
        {"raw", "true"},
        {"context", "[1,2]"},
        {"think", "true"},
        {"options", "{\"seed\":5}"},
        {"options.temperature", "0.5"},
        {"options.top_p", "0.5"},
        {"options.top_k", "5"},
        {"options.min_p", "0.5"},
        {"options.repeat_penalty", "1.5"},
        {"options.repeat_last_n", "0"},
        {"options.presence_penalty", "-0.5"},
        {"options.frequency_penalty", "0.5"},
        {"options.seed", "5"},
        {"options.stop", "[\"a\",\"b\"]"},
        {"options.num_predict", "5"},
        {"options.num_ctx", "5"},
        {"messages", "[" USER "]"},
        {"prompt", "\"x\""},
        {"content", "\"x\""},
        {"tokens", "[1,2]"},
        {"suffix", "\"x\""},
        {"max_tokens", "5"},
        {"max_completion_tokens", "5"},
        {"temperature", "0.5"},
        {"top_p", "0.5"},
        {"top_k", "5"},
        {"min_p", "0.5"},
        {"presence_penalty", "-0.5"},
        {"frequency_penalty", "0.5"},
        {"repetition_penalty", "1.5"},
        {"repeat_penalty", "1.5"},
        {"logit_bias", "{\"5\":-100,\"7\":1.5}"},
        {"seed", "5"},
        {"stop", "[\"a\",\"b\"]"},
        {"stop_token_ids", "[5,6]"},
        {"min_tokens", "5"},
        {"ignore_eos", "true"},
        {"n", "3"},
        {"stream", "true"},
        {"stream_options", "{\"include_usage\":true}"},
        {"return_token_ids", "true"},
        {"timings", "true"},
        {"priority", "-5"},
        {"queue_timeout_ms", "5"},
        {"top_logprobs", "5"},
        {"tools", "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"},
        {"tool_choice", "\"none\""},
        {"parallel_tool_calls", "false"},
        {"chat_template_kwargs", "{\"a\":1}"},
        {"enable_thinking", "true"},
        {"reasoning_effort", "\"low\""},
        {"echo", "true"},
        {"input", "[" USER "," USER "]"},
        {"instructions", "\"Be brief.\""},
        {"max_output_tokens", "5"},
        {"reasoning", "{\"effort\":\"low\"}"},
        {"include", "[\"message.output_text.logprobs\"]"},
        {"text", "{\"verbosity\":\"low\"}"},
        {"verbosity", "\"high\""},
        {"truncation", "\"auto\""},
        {"store", "true"},
        {"add_special_tokens", "false"},
        {"add_special", "false"},
        {"parse_special", "false"},
        {"return_token_strs", "true"},
        {"with_pieces", "true"},
        {"skip_special_tokens", "true"},
    };
    if (strcmp(a->name, "openai_responses") == 0 && strcmp(name, "tools") == 0)
        return "[{\"type\":\"function\",\"name\":\"f\"}]";
    bool anthropic = strncmp(a->name, "anthropic_", 10) == 0;
    const char *own = anthropic ? anthropic_value(name) : NULL;
    return own ? own : value_of(values, T9_COUNT(values), name);
}

/* Some have members, of which odd values have unknown ones; some do no more than warn. */
static bool may_warn(const char *name)
{
    static const char *const names[] = {"stream_options", "output_config",
                                        "mcp_servers",    "context_management",
                                        "container",      "reasoning",
                                        "text",           "store",
                                        "options",        "options.repeat_last_n"};
    for (size_t i = 0; i < T9_COUNT(names); i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* Everything of a request that a field may set, without addresses. */
static void fingerprint(const struct chat_request *r, struct buf *b)
{
    const struct t9_request_params *p = &r->sampling;
    buf_clear(b);
    buf_printf(b, "%.9g %.9g %.9g %d %llu %.9g %.9g %.9g %zu|", (double)p->temperature,
               (double)p->top_p, (double)p->min_p, p->top_k, (unsigned long long)p->seed,
               (double)p->presence_penalty, (double)p->frequency_penalty,
               (double)p->repetition_penalty, p->n_bias);
    for (size_t i = 0; i < p->n_bias; i++)
        buf_printf(b, "%d:%g ", p->bias[i].token, (double)p->bias[i].bias);
    buf_printf(b, "|%zu %zu %zu " STR_FMT " " STR_FMT " " STR_FMT "|", r->n_messages, r->n_prompts,
               r->n_stops, STR_ARG(r->model), STR_ARG(r->reasoning_effort), STR_ARG(r->suffix));
    if (r->n_prompts)
        buf_printf(b, STR_FMT " %zu|", STR_ARG(r->prompts[0].text), r->prompts[0].n_tokens);
    buf_printf(b, "%zu %lld|", r->before.n_tokens, (long long)r->wanted_length);
    buf_printf(b, "%lld %d %d %d %d %d %d|", (long long)r->max_tokens, r->n, r->min_tokens,
               r->n_stop_tokens, r->n_top, r->priority, (int)r->queue_timeout_ms);
    buf_printf(b, "%lld %zu %zu|", (long long)r->pin.ms, r->pin.n_messages, r->n_warnings);
    const bool flags[] = {
        r->has_seed,    r->ignore_eos, r->logprobs,         r->token_ids,
        r->stream,      r->timings,    r->include_usage,    r->has_thinking,
        r->has_suffix,  r->echo,       r->no_reply,         r->add_special,
        r->with_pieces, r->thinking,   r->no_parse_special, r->hide_special,
        r->n_tools > 0, r->no_calls,   r->one_call,         r->template_kwargs != NULL,
        r->verbose,     r->no_engine};
    for (size_t i = 0; i < T9_COUNT(flags); i++)
        buf_putc(b, flags[i] ? '1' : '0');
    buf_putc(b, 0);
}

/* Values that each class of field must take or refuse; and what is honoured is so indeed: its value
 * changes the request. */
static void check_row(const struct chat_adapter *a, const struct policy_field *f)
{
    static const char *const odd[] = {"true", "17", "\"x\"", "[1]", "{\"a\":1}"};
    struct chat_request r;
    struct chat_error e;
    assert_true(f->note && *f->note);
    bool read = f->cls == POLICY_HONOURED || f->cls == POLICY_CLAMPED;
    assert_int_equal(f->parse != NULL, read);
    size_t n_ok = 0;
    for (size_t k = 0; k < T9_COUNT(odd); k++) {
        t9_status s = parse_one(a, f->name, odd[k], &r, &e);
        n_ok += s == T9_STATUS_OK;
        if (s != T9_STATUS_OK) {
            assert_int_equal(t9_status_http(s), 400);
            assert_non_null(strstr(e.err.msg, f->name));
            assert_int_equal(strncmp(e.param, f->name, strlen(f->name)), 0);
        }
        assert_true(r.n_warnings == 0 || may_warn(f->name));
        chat_request_deinit(&r);
    }
    /* No effect takes all, refused takes none of these but a true that asks for nothing, the others
     * know their type. */
    if (f->cls == POLICY_NO_EFFECT)
        assert_int_equal(n_ok, T9_COUNT(odd));
    else if (f->cls == POLICY_REFUSED)
        assert_int_equal(n_ok, strcmp(f->name, "options.penalize_newline") == 0);
    else
        assert_true(n_ok < T9_COUNT(odd));
    if (!read || strcmp(f->name, "previous_response_id") == 0) /* see responses_test.c */
        return;
    struct buf with, without;
    buf_init(&with, 1 << 16);
    buf_init(&without, 1 << 16);
    const char *value = strcmp(f->name, "logprobs") != 0 ? right_value(a, f->name)
                        : f->parse == policy_bool        ? "true"
                                                         : "5";
    if (strcmp(f->name, "stream") == 0 && strncmp(a->name, "ollama", 6) == 0)
        value = "false"; /* true is what holds without it */
    if (!value)
        fail_msg("%s: no right value of %s to test it with", a->name, f->name);
    if (parse_one(a, f->name, value, &r, &e) != T9_STATUS_OK)
        fail_msg("%s %s: %s", a->name, f->name, e.err.msg);
    fingerprint(&r, &with);
    chat_request_deinit(&r);
    (void)parse_one(a, f->name, "null", &r, &e); /* null is absent */
    fingerprint(&r, &without);
    chat_request_deinit(&r);
    assert_string_not_equal(with.p, without.p);
    buf_deinit(&with);
    buf_deinit(&without);
}

static void test_tables(void **state)
{
    (void)state;
    assert_int_equal(n_endpoints, 12);
    for (size_t a = 0; a < n_endpoints; a++) {
        for (size_t i = 0; i < endpoints[a]->n_fields; i++) {
            for (size_t k = 0; k < i; k++)
                assert_string_not_equal(endpoints[a]->fields[i].name, endpoints[a]->fields[k].name);
            check_row(endpoints[a], &endpoints[a]->fields[i]);
        }
    }
}

static void test_neutral_values(void **state)
{
    static const char *const fine[][2] = {
        {"tools", "[]"},
        {"store", "false"},
        {"response_format", "{\"type\":\"text\"}"},
        {"tool_choice", "\"auto\""},
    };
    struct chat_request r;
    struct chat_error e;
    (void)state;
    for (size_t i = 0; i < T9_COUNT(fine); i++) {
        assert_int_equal(parse_field(fine[i][0], fine[i][1], &r, &e), T9_STATUS_OK);
        chat_request_deinit(&r);
    }
}

static void test_honoured(void **state)
{
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(
        parse("{\"messages\":[" USER "],\"temperature\":0.5,\"top_p\":0.25,\"top_k\":-1,"
              "\"min_p\":0.125,\"seed\":-1,\"max_completion_tokens\":9,\"stop\":[\"a\",\"b\"],"
              "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"ignore_eos\":true,"
              "\"priority\":-3,\"queue_timeout_ms\":2500,\"timings\":true,"
              "\"model\":\"m\",\"future_field\":[1]}",
              &r, &e),
        T9_STATUS_OK);
    assert_true(r.sampling.temperature == 0.5f && r.sampling.top_p == 0.25f);
    assert_true(r.sampling.min_p == 0.125f);
    assert_int_equal(r.sampling.top_k, 0);
    assert_true(r.has_seed && r.sampling.seed == UINT64_MAX);
    assert_int_equal(r.max_tokens, 9);
    assert_int_equal(r.n_stops, 2);
    assert_true(r.stream && r.include_usage && r.ignore_eos);
    assert_true(str_eqz(r.model, "m"));
    assert_true(r.priority == -3 && r.queue_timeout_ms == 2500 && r.timings);
    assert_int_equal(r.n_warnings, 1);
    chat_request_deinit(&r);

    struct policy_ctx strict = {&r, &e, true};
    chat_request_init(&r, 1 << 16);
    yyjson_doc *doc = NULL;
    assert_int_equal(json_parse(&doc, STR("{\"future\":1}"), JSON_LIMITS_REQUEST, NULL),
                     T9_STATUS_OK);
    assert_int_equal(
        policy_walk(&strict, openai_chat_fields, openai_chat_n_fields, yyjson_doc_get_root(doc)),
        T9_STATUS_INVALID);
    yyjson_doc_free(doc);
    chat_request_deinit(&r);
}

static void test_messages(void **state)
{
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(
        parse(
            "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":"
            "\"a\"},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null,"
            "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":\"{\\\"x\\\":1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\","
            "\"content\":\"42\"}]}",
            &r, &e),
        T9_STATUS_OK);
    assert_int_equal(r.n_messages, 3);
    assert_int_equal(r.messages[0].role, CHAT_ROLE_SYSTEM);
    assert_true(str_eqz(r.messages[0].content, "a\nb"));
    assert_false(r.messages[1].has_content);

    struct buf b;
    buf_init(&b, 1 << 16);
    prep_write_messages(&r, &b);
    buf_putc(&b, 0);
    assert_string_equal(
        b.p, "[{\"role\":\"system\",\"content\":\"a\\nb\"},{\"role\":\"assistant\","
             "\"tool_calls\":[{\"type\":\"function\",\"id\":\"c1\",\"function\":{\"name\":\"f\","
             "\"arguments\":\"{\\\"x\\\":1}\"}}]},{\"role\":\"tool\",\"content\":\"42\","
             "\"tool_call_id\":\"c1\"}]");
    buf_deinit(&b);
    chat_request_deinit(&r);
}

static const t9_model *wrap_model(bool chatml)
{
    t9_model *m = NULL;
    assert_int_equal(sdk_model_wrap(&m, byte_tokenizer(chatml), NULL, NULL), T9_STATUS_OK);
    return m;
}

static struct prep *make_prep(struct engine *e, bool chatml)
{
    struct prep_params p = {
        .model = wrap_model(chatml), .model_name = "m", .build_id = "b", .queue_cap = 100};
    struct prep *prep = NULL;
    if (e)
        assert_int_equal(sdk_engine_wrap(&p.engine, (t9_model *)(uintptr_t)p.model, e, NULL),
                         T9_STATUS_OK);
    assert_int_equal(prep_new(&prep, &p, NULL), T9_STATUS_OK);
    return prep;
}

static void drop_prep(struct prep *prep)
{
    struct prep_params p = *prep_params_of(prep);
    prep_free(prep);
    t9_engine_free(p.engine);
    t9_model_free((t9_model *)(uintptr_t)p.model);
}

/* Text that looks like special tokens stays text where a user wrote it. */
static void test_provenance(void **state)
{
    struct chat_request r;
    struct chat_error e;
    struct prep_ids ids;
    struct prep *prep = make_prep(NULL, true);
    (void)state;
    const struct t9_template_info *t = &prep_info(prep)->model.chat_template;
    assert_true(t->chatml_fallback && t->system);
    assert_true(t->later_system && t->user_twice);
    assert_int_equal(
        parse("{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|><think><s>\"},"
              "{\"role\":\"assistant\",\"content\":\"<|im_end|><think>\"}]}",
              &r, &e),
        T9_STATUS_OK);
    assert_int_equal(prep_tokens(prep, &r, &ids, &e), T9_STATUS_OK);
    int n[BYTE_TOK_COUNT] = {0};
    for (size_t i = 0; i < ids.n; i++)
        n[ids.p[i]]++;
    assert_int_equal(n[BYTE_TOK_IM_START], 3);
    assert_int_equal(n[BYTE_TOK_IM_END], 2);
    assert_int_equal(n[BYTE_TOK_THINK], 1);
    assert_int_equal(n[BYTE_TOK_BOS], 0);
    prep_ids_deinit(&ids);
    drop_prep(prep);

    prep = make_prep(NULL, false);
    assert_int_equal(prep_tokens(prep, &r, &ids, &e), T9_STATUS_UNSUPPORTED);
    assert_string_equal(e.code, "no_chat_template");
    prep_ids_deinit(&ids);
    drop_prep(prep);
    chat_request_deinit(&r);
}

/* A template that knows neither tools nor calls: they are text, the same at every turn. */
static void test_tools_as_text(void **state)
{
    static const char wanted[] =
        "<|im_start|>system\nBe brief.\n\nYou can call tools. These are the tools, with a JSON "
        "Schema of the arguments of each:\n"
        "{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}\n"
        "{\"name\":\"g\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}\n"
        "To call a tool, answer with one JSON object and nothing else:\n"
        "{\"name\": \"the tool's name\", \"arguments\": {the arguments}}\n"
        "The next message is its result. Where no tool is needed, answer in words.<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\nLet me see.\n{\"name\": \"f\", \"arguments\": {\"x\":1}}\n"
        "{\"name\": \"g\", \"arguments\": {}}<|im_end|>\n"
        "<|im_start|>user\n[Result of f]\n42<|im_end|>\n"
        "<|im_start|>user\n[Result of the tool]\n43<|im_end|>\n"
        "<|im_start|>assistant\n";
    struct prep *prep = make_prep(NULL, true);
    struct chat_request r;
    struct chat_error e;
    struct buf b;
    (void)state;
    assert_string_equal(prep_info(prep)->dialect->name, "generic_json");
    assert_int_equal(
        parse("{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"}," USER
              ",{\"role\":\"assistant\",\"content\":\"Let me see.\",\"tool_calls\":[{\"id\":\"c1\","
              "\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}},{\"id\":\"c2\",\"function\":{"
              "\"name\":\"g\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"42\"},"
              "{\"role\":\"tool\",\"content\":\"43\"}],\"tools\":[{\"type\":\"function\","
              "\"function\":"
              "{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}},{"
              "\"type\":"
              "\"function\",\"function\":{\"name\":\"g\"}}]}",
              &r, &e),
        T9_STATUS_OK);
    prep_note_switches(prep, &r);
    assert_int_equal(r.n_warnings, 1);
    assert_non_null(strstr(r.warnings[0].p, "knows no tools"));
    buf_init(&b, 1 << 16);
    assert_int_equal(prep_render(prep, &r, &b, &e), T9_STATUS_OK);
    buf_putc(&b, 0);
    assert_string_equal(b.p, wanted);
    /* tool_choice none: nothing is told of. */
    r.no_calls = true;
    buf_clear(&b);
    assert_int_equal(prep_render(prep, &r, &b, &e), T9_STATUS_OK);
    assert_true(str_has_prefix(buf_str(&b), STR("<|im_start|>system\nBe brief.<|im_end|>")));
    buf_deinit(&b);
    chat_request_deinit(&r);
    drop_prep(prep);
}

/* A switch that the template lacks is told by the name that the client knows. */
static void test_names_of_switches(void **state)
{
    static const struct {
        const struct chat_adapter *a;
        const char *json, *name;
    } cases[] = {
        {&openai_chat_adapter, "{\"messages\":[" USER "],\"enable_thinking\":true}",
         "enable_thinking"},
        {&openai_chat_adapter, "{\"messages\":[" USER "],\"reasoning_effort\":\"low\"}",
         "reasoning_effort"},
        {&responses_adapter, "{\"input\":\"hi\",\"reasoning\":{\"effort\":\"low\"}}",
         "reasoning.effort"},
        {&ollama_chat_adapter, "{\"messages\":[" USER "],\"think\":false}", "think"},
        {&ollama_chat_adapter, "{\"messages\":[" USER "],\"think\":\"high\"}", "think"},
        {&ollama_generate_adapter, "{\"prompt\":\"hi\",\"think\":true}", "think"},
        {&anthropic_messages_adapter,
         "{\"messages\":[" USER "],\"max_tokens\":9,"
         "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}",
         "thinking"},
    };
    struct prep *prep = make_prep(NULL, true);
    (void)state;
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        struct chat_request r;
        struct chat_error e = {0};
        char want[64];
        chat_request_init(&r, 1 << 20);
        assert_int_equal(cases[i].a->parse(str_from(cases[i].json), false, &r, &e), T9_STATUS_OK);
        prep_note_switches(prep, &r);
        assert_true(r.n_warnings > 0);
        snprintf(want, sizeof want, "%s has no effect: ", cases[i].name);
        str last = r.warnings[r.n_warnings - 1];
        if (!str_has_prefix(last, str_from(want)))
            fail_msg("%s: " STR_FMT, cases[i].json, STR_ARG(last));
        chat_request_deinit(&r);
    }
    drop_prep(prep);
}

/* A line that changes with every request must not be the beginning of the prompt. */
static void test_accounting_line(void **state)
{
    static const char *const cases[][2] = {
        {"x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;\\n\\nYou are", "You are"},
        {"x-anthropic-billing-header: cch=1;\\nYou are\\nx-anthropic-billing-header: kept",
         "You are\\nx-anthropic-billing-header: kept"},
        {" x-anthropic-billing-header: kept", " x-anthropic-billing-header: kept"},
        {"x-anthropic-billing-header: cch=1;", NULL},
    };
    (void)state;
    for (size_t i = 0; i < T9_COUNT(cases); i++) {
        struct chat_request r;
        struct chat_error e;
        struct buf got, want;
        char body[512];
        snprintf(body, sizeof body,
                 "{\"messages\":[{\"role\":\"system\",\"content\":\"%s\"}," USER "]}", cases[i][0]);
        assert_int_equal(parse(body, &r, &e), T9_STATUS_OK);
        buf_init(&got, 4096);
        buf_init(&want, 4096);
        prep_write_messages(&r, &got);
        buf_puts(&want, "[");
        if (cases[i][1])
            buf_printf(&want, "{\"role\":\"system\",\"content\":\"%s\"},", cases[i][1]);
        buf_puts(&want, USER "]");
        buf_putc(&got, 0);
        buf_putc(&want, 0);
        assert_string_equal(got.p, want.p);
        buf_deinit(&got);
        buf_deinit(&want);
        chat_request_deinit(&r);
    }
}

static void test_model_names(void **state)
{
    static const char *const aliases[] = {"other"};
    struct prep_params p = {
        .model = wrap_model(true), .model_name = "m", .aliases = aliases, .n_aliases = 1};
    struct prep *prep = NULL;
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(prep_new(&prep, &p, NULL), T9_STATUS_OK);
    chat_request_init(&r, 1 << 16);
    assert_int_equal(prep_check_model(prep, &r, &e), T9_STATUS_OK);
    r.model = STR("other");
    assert_int_equal(prep_check_model(prep, &r, &e), T9_STATUS_OK);
    r.model = STR("gpt-5");
    assert_int_equal(prep_check_model(prep, &r, &e), T9_STATUS_NOT_FOUND);
    assert_string_equal(e.param, "model");
    prep_free(prep);
    p.any_model = true;
    assert_int_equal(prep_new(&prep, &p, NULL), T9_STATUS_OK);
    assert_int_equal(prep_check_model(prep, &r, &e), T9_STATUS_OK);
    assert_int_equal(r.n_warnings, 1);
    drop_prep(prep);
    chat_request_deinit(&r);
}

static t9_status set_header(struct chat_caller *c, const char *name, const char *value)
{
    struct chat_error e = {0};
    for (size_t i = 0; i < caller_n_headers; i++) {
        if (strcmp(caller_headers[i].name, name) != 0)
            continue;
        t9_status s = caller_headers[i].parse(c, &caller_headers[i], str_from(value), &e);
        if (s != T9_STATUS_OK)
            assert_string_equal(e.param, name);
        return s;
    }
    fail_msg("no header %s", name);
    return T9_STATUS_INTERNAL;
}

static void test_caller_headers(void **state)
{
    static const char *const bad[] = {"", "x", "1x", "101", "-101", "1.5", "99999999999999999999"};
    struct chat_caller c = {0}, d = {0};
    char name[200];
    (void)state;
    for (size_t i = 0; i < T9_COUNT(bad); i++)
        assert_int_equal(set_header(&c, "x-tempo9-priority", bad[i]), T9_STATUS_INVALID);
    assert_int_equal(set_header(&c, "x-tempo9-queue-timeout-ms", "0"), T9_STATUS_INVALID);
    assert_int_equal(set_header(&c, "x-tempo9-queue-timeout-ms", "86400001"), T9_STATUS_INVALID);
    assert_false(c.has_priority || c.queue_timeout_ms);
    assert_int_equal(set_header(&c, "x-tempo9-priority", "-100"), T9_STATUS_OK);
    assert_int_equal(set_header(&c, "x-tempo9-queue-timeout-ms", "1"), T9_STATUS_OK);
    assert_true(c.has_priority && c.priority == -100 && c.queue_timeout_ms == 1);
    /* Names: the same key for the same name, under the same API key. */
    memset(name, 'a', sizeof name);
    name[129] = 0;
    assert_int_equal(set_header(&c, "x-tempo9-client", name), T9_STATUS_INVALID);
    assert_int_equal(set_header(&c, "x-tempo9-client", ""), T9_STATUS_INVALID);
    assert_int_equal(c.client_key, 0);
    assert_int_equal(set_header(&c, "x-tempo9-client", "alice"), T9_STATUS_OK);
    assert_int_equal(set_header(&d, "x-tempo9-client", "alice"), T9_STATUS_OK);
    assert_true(c.client_key && c.client_key == d.client_key);
    d.client_key = caller_key("secret");
    assert_true(d.client_key && d.client_key != caller_key("secre") && caller_key(NULL) == 0);
    assert_int_equal(set_header(&d, "x-tempo9-client", "alice"), T9_STATUS_OK);
    assert_true(c.client_key != d.client_key);
}

static void on_wake(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
}

/* Reads a chat with a scripted answer, a token a byte, to its end. What a stop must cancel goes on
 * for much longer than a reader can be late. */
static void read_chat(const char *text, const char *body, const char *want, t9_finish how,
                      int32_t n_completion)
{
    int32_t reply[1024];
    struct engine_script script;
    struct chat_run *run = NULL;
    struct chat_error e = {0};
    struct buf got;
    atomic_int wakes = 0;
    size_t n_text = strlen(text);
    bool cancels = strlen(want) < n_text;
    for (size_t i = 0; i < T9_COUNT(reply); i++)
        reply[i] = i < n_text ? (unsigned char)text[i] : '.';
    engine_script_init(&script);
    script.reply = reply;
    script.n_reply = cancels ? (int32_t)T9_COUNT(reply) : (int32_t)n_text;
    script.gap_ms = 3;
    struct engine *engine = scripted_engine_new(&script);
    struct prep *prep = make_prep(engine, true);
    struct chat_run_hooks hooks = {on_wake, &wakes, NULL};
    struct chat_caller caller = {.received_ns = clock_now_ns()};
    assert_int_equal(chat_run_new(&run, prep, &openai_chat_adapter, hooks, &caller, NULL),
                     T9_STATUS_OK);
    assert_int_equal(chat_run_start(run, str_from(body), &e), T9_STATUS_OK);
    buf_init(&got, 1 << 16);
    struct chat_event ev = {0};
    t9_finish finish = T9_FINISH_NONE;
    bool let_go = false;
    int taken = 0;
    while (!let_go || ev.kind != CHAT_EVENT_END) {
        for (; taken < atomic_load(&wakes); taken++)
            let_go |= chat_run_notified(run);
        if (ev.kind == CHAT_EVENT_END)
            continue;
        ev = chat_run_next(run);
        if (ev.kind == CHAT_EVENT_TEXT)
            buf_puts_str(&got, ev.text);
        if (ev.kind == CHAT_EVENT_FINISH)
            finish = ev.finish;
        assert_int_not_equal(ev.kind, CHAT_EVENT_ERROR);
    }
    assert_int_equal(finish, how);
    assert_int_equal(ev.usage.n_completion, n_completion);
    assert_true(str_eqz(buf_str(&got), want));
    assert_int_equal(scripted_engine_cancels(engine), cancels);
    buf_deinit(&got);
    chat_run_free(run);
    drop_prep(prep);
    scripted_engine_free(engine);
}

/* A stop string ends the answer and cancels the request. */
static void test_run_stop(void **state)
{
    (void)state;
    read_chat("one two three four", "{\"messages\":[" USER "],\"stop\":\" three\"}", "one two",
              T9_FINISH_STOP, (int32_t)strlen("one two three"));
}

/* One that is complete within the first min_tokens tokens does not count; one that begins there and
 * is complete later does. */
static void test_run_min_tokens(void **state)
{
    (void)state;
    read_chat("one two one two three",
              "{\"messages\":[" USER "],\"stop\":[\"two\",\"zz\"],\"min_tokens\":7}",
              "one two one ", T9_FINISH_STOP, 15);
    read_chat("one two one two", "{\"messages\":[" USER "],\"stop\":[\"ne two\"],\"min_tokens\":6}",
              "o", T9_FINISH_STOP, 7);
    read_chat("one two", "{\"messages\":[" USER "],\"stop\":[\"two\",\"twom\"],\"min_tokens\":7}",
              "one two", T9_FINISH_STOP, 7);
}

struct several {
    struct engine *engine;
    struct prep *prep;
    struct chat_run *run;
    atomic_int wakes;
};

static void several_begin(struct several *t, int32_t queue_cap, const char *body)
{
    struct engine_script script;
    struct chat_error e = {0};
    engine_script_init(&script);
    script.queue_cap = queue_cap;
    script.gap_ms = 1;
    t->engine = scripted_engine_new(&script);
    t->prep = make_prep(t->engine, true);
    atomic_store(&t->wakes, 0);
    struct chat_run_hooks hooks = {on_wake, &t->wakes, NULL};
    struct chat_caller caller = {.received_ns = clock_now_ns()};
    assert_int_equal(
        chat_run_new(&t->run, t->prep, &openai_completions_adapter, hooks, &caller, NULL),
        T9_STATUS_OK);
    if (chat_run_start(t->run, str_from(body), &e) != T9_STATUS_OK)
        fail_msg("%s", e.err.msg);
}

static void several_end(struct several *t)
{
    for (int taken = 0;;) {
        if (taken < atomic_load(&t->wakes)) {
            taken++;
            if (chat_run_notified(t->run))
                break;
        }
    }
    chat_run_free(t->run);
    drop_prep(t->prep);
    scripted_engine_free(t->engine);
}

/* Choices are told apart and each ends once; the scripted engine answers with the prompt. */
static void test_run_choices(void **state)
{
    static struct several t;
    struct chat_event ev = {0};
    int n_finished = 0, n_last = 0;
    size_t n_text[6] = {0};
    (void)state;
    several_begin(&t, 64, "{\"prompt\":[\"abc\",\"de\"],\"n\":3,\"echo\":true}");
    while (ev.kind != CHAT_EVENT_END) {
        ev = chat_run_next(t.run);
        assert_int_not_equal(ev.kind, CHAT_EVENT_ERROR);
        if (ev.kind == CHAT_EVENT_TEXT)
            n_text[ev.choice] += ev.text.n;
        n_finished += ev.kind == CHAT_EVENT_FINISH;
        n_last += ev.kind == CHAT_EVENT_FINISH && ev.is_last;
    }
    assert_int_equal(n_finished, 6);
    assert_int_equal(n_last, 1);
    for (int i = 0; i < 6; i++)
        assert_int_equal(n_text[i], i < 3 ? 6 : 4);
    assert_int_equal(ev.usage.n_prompt, 5);
    assert_int_equal(ev.usage.n_completion, 3 * 3 + 3 * 2);
    several_end(&t);
}

/* What the engine has against a request whose prompt fits is not its length. */
static void test_run_invalid(void **state)
{
    struct engine_script script;
    struct chat_run *run = NULL;
    struct chat_error e = {0};
    struct chat_run_hooks hooks = {NULL, NULL, NULL};
    struct chat_caller caller = {.received_ns = clock_now_ns()};
    (void)state;
    engine_script_init(&script);
    script.invalid = "token 0 of the prompt is 97; the model knows tokens 0 to 96";
    struct engine *engine = scripted_engine_new(&script);
    struct prep *prep = make_prep(engine, true);
    assert_int_equal(chat_run_new(&run, prep, &openai_completions_adapter, hooks, &caller, NULL),
                     T9_STATUS_OK);
    assert_int_equal(chat_run_start(run, STR("{\"prompt\":\"a\"}"), &e), T9_STATUS_INVALID);
    assert_int_equal(chat_error_http(&e), 400);
    assert_string_equal(e.code, "invalid_value");
    assert_string_equal(e.param, "prompt");
    assert_string_equal(e.err.msg, script.invalid);
    chat_run_free(run);
    drop_prep(prep);
    scripted_engine_free(engine);
}

/* When the queue takes some of the choices only, the client is told so, and all is let go of. */
static void test_run_choices_refused(void **state)
{
    static struct several t;
    (void)state;
    several_begin(&t, 2, "{\"prompt\":\"abc\",\"n\":5}");
    struct chat_event ev = chat_run_next(t.run);
    assert_int_equal(ev.kind, CHAT_EVENT_ERROR);
    assert_int_equal(chat_error_http(&ev.error), 503);
    assert_true(chat_run_is_over(t.run) && chat_run_failed_early(t.run));
    assert_int_equal(chat_run_next(t.run).kind, CHAT_EVENT_NONE);
    several_end(&t);
}

/* A request that waits has given back its body and prompt, but for what its reply tells of. */
static void test_run_input_dropped(void **state)
{
    static struct several t;
    (void)state;
    several_begin(&t, 64,
                  "{\"prompt\":\"abc\",\"stop\":[\"x\"],\"stop_token_ids\":[7],"
                  "\"logit_bias\":{\"5\":1},\"max_tokens\":9999}");
    const struct chat_request *q = &t.run->request;
    assert_true(!q->doc && !q->arena.head && !q->prompts && !q->sampling.bias);
    assert_true(!t.run->prompts[0].p && !t.run->prompts[0].made.p);
    assert_int_equal(t.run->prompts[0].n, 3);
    assert_int_equal(q->n_stops, 1);
    assert_true(str_eqz(q->stops[0], "x"));
    assert_int_equal(q->stop_tokens[0], 7);
    assert_int_equal(q->n_warnings, 1);
    assert_non_null(strstr(q->warnings[0].p, "max_tokens 9999"));
    several_end(&t);
    several_begin(&t, 64, "{\"prompt\":[[1,2]],\"return_token_ids\":true}");
    assert_int_equal(t.run->reply.n_prompt_ids, 2);
    assert_int_equal(t.run->reply.prompt_ids[1], 2);
    several_end(&t);
}

static void run_refused(int32_t max_length, const char *body, const char *param, const char *says)
{
    struct engine_script script;
    struct chat_run *run = NULL;
    struct chat_error e = {0};
    struct chat_run_hooks hooks = {NULL, NULL, NULL};
    struct chat_caller caller = {.received_ns = clock_now_ns()};
    engine_script_init(&script);
    script.max_length = max_length;
    struct engine *engine = scripted_engine_new(&script);
    struct prep *prep = make_prep(engine, true);
    assert_int_equal(chat_run_new(&run, prep, &openai_completions_adapter, hooks, &caller, NULL),
                     T9_STATUS_OK);
    assert_int_not_equal(chat_run_start(run, str_from(body), &e), T9_STATUS_OK);
    if (chat_error_http(&e) != 400 || strcmp(e.param, param) != 0 || !strstr(e.err.msg, says))
        fail_msg("%s: %d %s: %s", body, chat_error_http(&e), e.param, e.err.msg);
    chat_run_free(run);
    drop_prep(prep);
    scripted_engine_free(engine);
}

/* What can never be taken is refused for good, and the one of several prompts is named. */
static void test_run_refused(void **state)
{
    (void)state;
    run_refused(4096, "{\"prompt\":[\"a\",\"b\"],\"n\":51}", "n", "(--queue) has room for 100");
    run_refused(4096, "{\"prompt\":[\"a\",\"b\"],\"n\":65}", "n", "may ask for 128");
    run_refused(8, "{\"prompt\":[\"a\",\"12345678\"]}", "prompt[1]",
                "prompt[1]: prompt is too long: 8 tokens > 8 maximum");
    run_refused(8, "{\"prompt\":[[1],[1,99999]]}", "prompt[1]", "99999");
    run_refused(8, "{\"prompt\":\"12345678\"}", "prompt",
                "prompt is too long: 8 tokens > 8 maximum");
    run_refused(8, "{\"prompt\":\"123456789\",\"max_tokens\":0,\"echo\":true}", "prompt",
                "prompt is too long: 9 tokens > 8 maximum");
}

/* A prompt that fills the context can be scored: nothing comes after it. */
static void test_run_prompt_only(void **state)
{
    static struct several t;
    struct chat_event ev = {0};
    struct buf text;
    (void)state;
    buf_init(&text, 1 << 16);
    char body[4200] = "{\"max_tokens\":0,\"echo\":true,\"prompt\":\"";
    size_t n = strlen(body);
    memset(body + n, 'x', 4096);
    strcpy(body + n + 4096, "\"}");
    several_begin(&t, 4, body);
    while (ev.kind != CHAT_EVENT_END) {
        ev = chat_run_next(t.run);
        assert_int_not_equal(ev.kind, CHAT_EVENT_ERROR);
        if (ev.kind == CHAT_EVENT_TEXT)
            buf_puts_str(&text, ev.text);
        if (ev.kind == CHAT_EVENT_FINISH)
            assert_int_equal(ev.finish, T9_FINISH_LENGTH);
    }
    assert_int_equal(text.n, 4096);
    assert_int_equal(ev.usage.n_completion, 0);
    buf_deinit(&text);
    several_end(&t);
}

/* Texts of both sides, on one line whatever the prompt has in it. */
static void test_divergence_text(void **state)
{
    const int32_t cached[] = {'a', '\n', '"', BYTE_TOK_IM_END}, asked[] = {0xE6, 0x97};
    struct t9_divergence d = {7, 40, 4, 2, cached, asked};
    const t9_model *m = wrap_model(true);
    struct buf b;
    (void)state;
    buf_init(&b, 1 << 12);
    divergence_write(m, &d, &b);
    assert_true(utf8_valid(buf_str(&b)));
    buf_putc(&b, 0);
    assert_non_null(strstr(b.p, "cached \"a\\n\\\"<|im_end|>\" (97 10 34 "));
    assert_non_null(strstr(b.p, "), asked for \""));
    assert_non_null(strstr(b.p, "\" (230 151)"));
    assert_null(strchr(b.p, '\n'));
    buf_deinit(&b);
    t9_model_free((t9_model *)(uintptr_t)m);
}

/* The description parses, has every row that is not refused, and refers to nothing unknown. */
static void test_openapi(void **state)
{
    struct buf b;
    yyjson_doc *doc = NULL;
    (void)state;
    buf_init(&b, 1 << 20);
    openapi_write("1", &b);
    assert_int_equal(json_parse(&doc, buf_str(&b), JSON_LIMITS_REQUEST, NULL), T9_STATUS_OK);
    yyjson_val *root = yyjson_doc_get_root(doc);
    yyjson_val *schemas = json_get(json_get(root, "components"), "schemas");
    for (size_t a = 0; a < n_endpoints; a++) {
        yyjson_val *post = json_get(json_get(json_get(root, "paths"), endpoints[a]->path), "post");
        yyjson_val *schema = json_get(
            json_get(json_get(json_get(post, "requestBody"), "content"), "application/json"),
            "schema");
        yyjson_val *properties = json_get(schema, "properties");
        yyjson_val *refused = json_get(schema, "x-tempo9-refused");
        yyjson_val *options = json_get(
            yyjson_arr_get_first(json_get(json_get(properties, "options"), "anyOf")), "properties");
        assert_int_equal(yyjson_obj_size(properties) + yyjson_obj_size(refused) +
                             yyjson_obj_size(options),
                         endpoints[a]->n_fields);
        for (size_t i = 0; i < endpoints[a]->n_fields; i++) {
            const struct policy_field *f = &endpoints[a]->fields[i];
            const char *dot = strchr(f->name, '.');
            assert_non_null(f->cls == POLICY_REFUSED ? json_get(refused, f->name)
                            : dot                    ? json_get(options, dot + 1)
                                                     : json_get(properties, f->name));
        }
    }
    buf_putc(&b, 0);
    static const char ref[] = "#/components/schemas/";
    for (const char *p = b.p; (p = strstr(p, ref)) != NULL;) {
        char name[64];
        p += sizeof ref - 1;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "\""), p);
        assert_non_null(json_get(schemas, name));
    }
    yyjson_doc_free(doc);
    buf_deinit(&b);
}

static void test_capabilities_are_json(void **state)
{
    struct prep *prep = make_prep(NULL, true);
    struct capabilities c = {"1", "b", "n", true};
    struct buf b;
    yyjson_doc *doc = NULL;
    (void)state;
    buf_init(&b, 1 << 20);
    capabilities_write(prep, &c, &b);
    assert_int_equal(json_parse(&doc, buf_str(&b), JSON_LIMITS_REQUEST, NULL), T9_STATUS_OK);
    yyjson_val *fields = json_get(
        json_get(json_get(yyjson_doc_get_root(doc), "protocols"), "openai_chat"), "fields");
    assert_int_equal(yyjson_arr_size(fields), openai_chat_n_fields);
    yyjson_val *headers = json_get(
        json_get(json_get(yyjson_doc_get_root(doc), "protocols"), "openai_chat"), "headers");
    assert_int_equal(yyjson_arr_size(headers), caller_n_headers);
    yyjson_doc_free(doc);
    buf_deinit(&b);
    drop_prep(prep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_neutral_values),
        cmocka_unit_test(test_honoured),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_provenance),
        cmocka_unit_test(test_tools_as_text),
        cmocka_unit_test(test_names_of_switches),
        cmocka_unit_test(test_accounting_line),
        cmocka_unit_test(test_model_names),
        cmocka_unit_test(test_caller_headers),
        cmocka_unit_test(test_run_stop),
        cmocka_unit_test(test_run_min_tokens),
        cmocka_unit_test(test_run_refused),
        cmocka_unit_test(test_run_prompt_only),
        cmocka_unit_test(test_run_choices),
        cmocka_unit_test(test_run_choices_refused),
        cmocka_unit_test(test_run_invalid),
        cmocka_unit_test(test_run_input_dropped),
        cmocka_unit_test(test_divergence_text),
        cmocka_unit_test(test_openapi),
        cmocka_unit_test(test_capabilities_are_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
