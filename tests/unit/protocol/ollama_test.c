/*
 * What the API of Ollama's clients has of its own: values of fields, names of models, requests that
 * load, what is told of a model, and what is refused. Answers are in tests/golden/ollama_*.
 */
#include "lib/t9test.h"

#include "lib/byte_tokenizer.h"

#include "protocol/ollama.h"
#include "protocol/prep.h"
#include "sdk/internal.h"

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static t9_status parse(const struct chat_adapter *a, const char *json, struct chat_request *r,
                       struct chat_error *e)
{
    memset(e, 0, sizeof *e);
    chat_request_init(r, 1 << 20);
    return a->parse(str_from(json), false, r, e);
}

static void refused(const struct chat_adapter *a, const char *json, const char *param,
                    const char *says)
{
    struct chat_request r;
    struct chat_error e;
    t9_status s = parse(a, json, &r, &e);
    if (s == T9_STATUS_OK || chat_error_http(&e) != 400 || strcmp(e.param, param) != 0 ||
        !strstr(e.err.msg, says))
        fail_msg("%.120s: status %d, param %s, %s", json, (int)s, e.param, e.err.msg);
    chat_request_deinit(&r);
}

/* Parses what must be fine; freed by the caller. */
static void fine(const struct chat_adapter *a, const char *json, size_t n_warnings,
                 struct chat_request *r)
{
    struct chat_error e;
    if (parse(a, json, r, &e) != T9_STATUS_OK || r->n_warnings != n_warnings)
        fail_msg("%.120s: %zu warnings, %s", json, r->n_warnings, e.err.msg);
}

static void test_options(void **state)
{
    const struct chat_adapter *a = &ollama_chat_adapter;
    struct chat_request r;
    (void)state;
    fine(a,
         "{" USER ",\"options\":{\"temperature\":0.8,\"top_k\":40,\"top_p\":0.9,\"min_p\":0.1,"
         "\"typical_p\":1.0,\"tfs_z\":1,\"repeat_last_n\":-1,\"repeat_penalty\":1.1,"
         "\"presence_penalty\":0.5,\"frequency_penalty\":-0.5,\"mirostat\":0,\"mirostat_tau\":5,"
         "\"mirostat_eta\":0.1,\"penalize_newline\":true,\"stop\":[\"a\",\"b\"],\"seed\":42,"
         "\"num_predict\":100,\"num_ctx\":1024,\"num_keep\":5,\"num_batch\":2,\"num_gpu\":1,"
         "\"main_gpu\":0,\"low_vram\":false,\"f16_kv\":true,\"vocab_only\":false,"
         "\"embedding_only\":false,\"logits_all\":false,\"use_mmap\":true,\"use_mlock\":false,"
         "\"numa\":false,\"num_thread\":8},\"keep_alive\":\"5m\",\"format\":\"\"}",
         0, &r);
    assert_true(r.sampling.temperature == 0.8f && r.sampling.top_k == 40);
    assert_true(r.sampling.top_p == 0.9f && r.sampling.min_p == 0.1f);
    assert_true(r.sampling.repetition_penalty == 1.1f && r.sampling.presence_penalty == 0.5f);
    assert_true(r.sampling.frequency_penalty == -0.5f && r.has_seed && r.sampling.seed == 42);
    assert_true(r.max_tokens == 100 && r.wanted_length == 1024 && r.n_stops == 2 && r.stream);
    chat_request_deinit(&r);
    fine(a, "{" USER ",\"options\":{\"seed\":-1,\"num_predict\":-2,\"top_k\":-1,\"top_p\":0}}", 0,
         &r);
    assert_true(!r.has_seed && !r.seed_is_negative && r.max_tokens == 0 && r.sampling.top_k == 0);
    assert_true(r.sampling.top_p > 0 && r.sampling.top_p < 1e-20f);
    chat_request_deinit(&r);
    fine(a, "{" USER ",\"options\":{\"future\":1}}", 1, &r);
    assert_non_null(strstr(r.warnings[0].p, "\"future\" of options"));
    chat_request_deinit(&r);
    /* A member's name is none of the request's. */
    fine(a, "{" USER ",\"options.temperature\":0.5,\"temperature\":0.5}", 2, &r);
    assert_true(r.sampling.temperature < 0.4f || r.sampling.temperature > 0.6f);
    chat_request_deinit(&r);
    refused(a, "{" USER ",\"options\":{\"temperature\":-1}}", "options.temperature", "0 to 100");
    refused(a, "{" USER ",\"options\":{\"typical_p\":0.5}}", "options.typical_p", "sampler");
    refused(a, "{" USER ",\"options\":{\"num_predict\":-3}}", "options.num_predict", "-2");
    refused(a, "{" USER ",\"options\":{\"penalize_newline\":false}}", "options.penalize_newline",
            "exceptions");
    refused(a, "{" USER ",\"options\":{\"stop\":[7]}}", "options.stop", "strings");
    refused(a, "{" USER ",\"options\":[]}", "options", "an object");
}

/* Whatever the order of the members. */
static void test_penalty_window(void **state)
{
    const struct chat_adapter *a = &ollama_chat_adapter;
    struct chat_request r;
    (void)state;
    fine(a,
         "{" USER ",\"options\":{\"repeat_last_n\":0,\"repeat_penalty\":1.5,"
         "\"presence_penalty\":1,\"frequency_penalty\":1}}",
         0, &r);
    assert_true(r.sampling.repetition_penalty == 1 && r.sampling.presence_penalty == 0 &&
                r.sampling.frequency_penalty == 0);
    chat_request_deinit(&r);
    fine(a, "{" USER ",\"options\":{\"repeat_last_n\":64,\"repeat_penalty\":1.5}}", 1, &r);
    assert_true(r.sampling.repetition_penalty == 1.5f);
    chat_request_deinit(&r);
    fine(a, "{" USER ",\"options\":{\"repeat_last_n\":64,\"repeat_penalty\":1}}", 0, &r);
    chat_request_deinit(&r);
    refused(a, "{" USER ",\"options\":{\"repeat_last_n\":-2}}", "options.repeat_last_n", "-1");
}

static void test_load(void **state)
{
    static const char *const loads[] = {
        "{}", "{\"messages\":[]}", "{\"messages\":null,\"stream\":true}",
        "{\"messages\":[],\"keep_alive\":-1}", "{\"messages\":[],\"keep_alive\":\"1h0m\"}"};
    static const char *const unloads[] = {"0", "0.0", "\"0\"", "\"0s\"", "\"0h0m\""};
    struct chat_request r;
    char json[64];
    (void)state;
    for (size_t i = 0; i < T9_COUNT(loads); i++) {
        fine(&ollama_chat_adapter, loads[i], 0, &r);
        assert_true(r.no_engine && !r.stream);
        chat_request_deinit(&r);
    }
    for (size_t i = 0; i < T9_COUNT(unloads); i++) {
        snprintf(json, sizeof json, "{\"prompt\":\"\",\"keep_alive\":%s}", unloads[i]);
        refused(&ollama_generate_adapter, json, "keep_alive", "unload");
        snprintf(json, sizeof json, "{\"prompt\":\"hi\",\"keep_alive\":%s}", unloads[i]);
        fine(&ollama_generate_adapter, json, 0, &r);
        assert_false(r.no_engine);
        chat_request_deinit(&r);
    }
}

static void test_messages(void **state)
{
    const struct chat_adapter *a = &ollama_chat_adapter;
    (void)state;
    refused(a, "{\"messages\":{}}", "messages", "an array");
    refused(a, "{\"messages\":[7]}", "messages[0]", "an object");
    refused(a, "{\"messages\":[{\"role\":\"robot\"}]}", "messages[0].role", "assistant or tool");
    refused(a, "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0].content",
            "a string");
    refused(a, "{\"messages\":[{\"role\":\"user\",\"tool_calls\":[{}]}]}", "messages[0].tool_calls",
            "assistant");
    refused(a,
            "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
            "\"arguments\":[]}}]}]}",
            "messages[0].tool_calls", "arguments");
    refused(a, "{" USER ",\"top_logprobs\":2}", "top_logprobs", "logprobs");
    refused(a, "{" USER ",\"think\":\"some\"}", "think", "medium");
}

static void test_generate(void **state)
{
    const struct chat_adapter *a = &ollama_generate_adapter;
    struct chat_request r;
    (void)state;
    fine(a, "{\"prompt\":\"p\",\"suffix\":\"s\",\"system\":\"\",\"template\":\"\",\"images\":[]}",
         0, &r);
    assert_true(r.n_prompts == 1 && r.has_suffix && r.token_ids && r.n_messages == 0);
    chat_request_deinit(&r);
    fine(a, "{\"prompt\":\"p\",\"raw\":true}", 0, &r);
    assert_true(r.n_prompts == 1 && !r.token_ids);
    chat_request_deinit(&r);
    refused(a, "{\"prompt\":\"p\",\"raw\":true,\"suffix\":\"s\"}", "suffix", "raw");
    refused(a, "{\"prompt\":\"p\",\"raw\":true,\"context\":[1]}", "context", "raw");
    refused(a, "{\"prompt\":\"p\",\"suffix\":\"s\",\"system\":\"y\"}", "system", "suffix");
    refused(a, "{\"prompt\":\"p\",\"context\":[-1]}", "context", "token ids");
    refused(a, "{\"prompt\":\"p\",\"context\":\"1\"}", "context", "array");
    refused(a, "{\"prompt\":[\"p\"]}", "prompt", "a string");
}

/* ---- the model ---- */

struct served {
    t9_model *model;
    struct prep *prep;
};

static void serve(struct served *s, const char *name)
{
    static const char *const aliases[] = {"default"};
    struct prep_params p = {.model_name = name,
                            .aliases = aliases,
                            .n_aliases = 1,
                            .build_id = "b",
                            .model_time_s = 1700000000};
    assert_int_equal(sdk_model_wrap(&s->model, byte_tokenizer(true), NULL, NULL), T9_STATUS_OK);
    p.model = s->model;
    assert_int_equal(prep_new(&s->prep, &p, NULL), T9_STATUS_OK);
}

static void unserve(struct served *s)
{
    prep_free(s->prep);
    t9_model_free(s->model);
}

static bool knows(const struct served *s, const struct chat_adapter *a, const char *model)
{
    struct chat_request r;
    struct chat_error e;
    char json[128];
    snprintf(json, sizeof json, "{\"model\":\"%s\"}", model);
    assert_int_equal(parse(a, json, &r, &e), T9_STATUS_OK);
    t9_status st = prep_check_model(s->prep, &r, &e);
    assert_true(st == T9_STATUS_OK || chat_error_http(&e) == 404);
    chat_request_deinit(&r);
    return st == T9_STATUS_OK;
}

static void test_names(void **state)
{
    const struct chat_adapter *show = &ollama_show_adapter, *chat = &ollama_chat_adapter;
    struct served s;
    (void)state;
    serve(&s, "m");
    assert_true(knows(&s, show, "m") && knows(&s, show, "m:latest") && knows(&s, chat, "default"));
    assert_true(knows(&s, chat, "default:latest") && knows(&s, chat, ""));
    assert_false(knows(&s, chat, "m:7b") || knows(&s, show, "m:latest:latest") ||
                 knows(&s, chat, "x"));
    unserve(&s);
    serve(&s, "m:7b");
    assert_true(knows(&s, chat, "m:7b"));
    assert_false(knows(&s, chat, "m") || knows(&s, chat, "m:latest"));
    unserve(&s);
    serve(&s, "m:latest");
    assert_true(knows(&s, chat, "m") && knows(&s, chat, "m:latest"));
    unserve(&s);
}

static yyjson_doc *read_json(const struct buf *b)
{
    yyjson_doc *doc = NULL;
    assert_false(b->failed);
    if (json_parse(&doc, buf_str(b), JSON_LIMITS_REQUEST, NULL) != T9_STATUS_OK)
        fail_msg("no JSON: %.*s", (int)b->n, b->p);
    return doc;
}

static void check_listed(void (*write)(const struct prep *p, struct buf *out), const char *name,
                         const char *listed)
{
    struct served s;
    struct buf b;
    serve(&s, name);
    buf_init(&b, 1 << 16);
    write(s.prep, &b);
    yyjson_doc *doc = read_json(&b);
    yyjson_val *models = json_get(yyjson_doc_get_root(doc), "models");
    yyjson_val *m = yyjson_arr_get_first(models);
    assert_int_equal(yyjson_arr_size(models), 1);
    assert_true(str_eqz(json_str(json_get(m, "name")), listed));
    assert_true(str_eqz(json_str(json_get(m, "model")), listed));
    assert_int_equal(json_str(json_get(m, "digest")).n, 64);
    assert_true(str_eqz(json_str(json_get(json_get(m, "details"), "format")), "gguf"));
    yyjson_doc_free(doc);
    buf_deinit(&b);
    unserve(&s);
}

static void test_lists(void **state)
{
    (void)state;
    check_listed(ollama_write_tags, "m", "m:latest");
    check_listed(ollama_write_tags, "m:7b", "m:7b");
    check_listed(ollama_write_ps, "m", "m:latest");
}

static void check_answer(const struct chat_adapter *a, const char *json, const char *member,
                         const char *value)
{
    struct chat_request r;
    struct chat_error e;
    struct served s;
    struct buf b;
    serve(&s, "m");
    buf_init(&b, 1 << 16);
    assert_int_equal(parse(a, json, &r, &e), T9_STATUS_OK);
    assert_int_equal(a->answer(s.prep, &r, &b, &e), T9_STATUS_OK);
    yyjson_doc *doc = read_json(&b);
    if (!str_eqz(json_str(json_get(yyjson_doc_get_root(doc), member)), value))
        fail_msg("%s: %.*s", member, (int)b.n, b.p);
    yyjson_doc_free(doc);
    buf_deinit(&b);
    chat_request_deinit(&r);
    unserve(&s);
}

static void test_answers(void **state)
{
    (void)state;
    check_answer(&ollama_chat_adapter, "{\"messages\":[]}", "done_reason", "load");
    check_answer(&ollama_generate_adapter, "{\"future\":1}", "response", "");
    check_answer(&ollama_show_adapter, "{\"model\":\"m\",\"verbose\":true}", "modified_at",
                 "2023-11-14T22:13:20Z");
}

static void test_refusals(void **state)
{
    static const char *const paths[] = {"/api/create", "/api/copy",  "/api/delete",    "/api/push",
                                        "/api/blobs/", "/api/embed", "/api/embeddings"};
    static const char *const others[] = {"/api/chat", "/api/embedx", "/api/blobs", "/"};
    struct chat_error e;
    struct buf b;
    (void)state;
    for (size_t i = 0; i < T9_COUNT(paths); i++) {
        memset(&e, 0, sizeof e);
        assert_true(ollama_refusal(paths[i], &e));
        assert_int_equal(chat_error_http(&e), 400);
        assert_int_equal(strncmp(e.err.msg, paths[i], strlen(paths[i])), 0);
        buf_init(&b, 4096);
        ollama_error(&e, &b);
        yyjson_doc *doc = read_json(&b);
        assert_true(str_eqz(json_str(json_get(yyjson_doc_get_root(doc), "error")), e.err.msg));
        yyjson_doc_free(doc);
        buf_deinit(&b);
    }
    for (size_t i = 0; i < T9_COUNT(others); i++)
        assert_false(ollama_refusal(others[i], &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),  cmocka_unit_test(test_penalty_window),
        cmocka_unit_test(test_load),     cmocka_unit_test(test_messages),
        cmocka_unit_test(test_generate), cmocka_unit_test(test_names),
        cmocka_unit_test(test_lists),    cmocka_unit_test(test_answers),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
