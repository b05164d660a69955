/*
 * tests/unit/protocol/tools/dialect_test.c - which dialect the templates of published models get.
 */
#include "protocol/tools/dialect.h"

#include "base/file.h"
#include "base/mem.h"
#include "lib/t9test.h"

static bool has_nothing(const void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
    return false;
}

static bool has_it(const void *ctx, const char *text)
{
    return strcmp(ctx, text) == 0;
}

static const struct {
    const char *template, *dialect;
} published[] = {
    {"Apriel-1.6-15b-Thinker-fixed", "apriel"},
    {"Bielik-11B-v3.0-Instruct", "hermes"},
    {"GLM-4.7-Flash", "glm"},
    {"GigaChat3-10B-A1.8B", "generic_json"},
    {"GigaChat3.1-10B-A1.8B", "json_tags"},
    {"HuggingFaceTB-SmolLM3-3B", "generic_json"}, /* this edition tells of no tools */
    {"Kimi-K2-Thinking", "kimi_k2"},
    {"LFM2.5-8B-A1B", "lfm2"},
    {"MiMo-VL", "hermes"},
    {"MiniMax-M3", "generic_json"}, /* its calls are not read */
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen_xml"},
    {"NVIDIA-Nemotron-Nano-v2", "json_tags"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"},
    {"Qwen-QwQ-32B", "hermes"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
    {"Qwen-Qwen3-0.6B", "hermes"},
    {"Qwen3-Coder", "qwen_xml"},
    {"Qwen3.5-4B", "qwen_xml"},
    {"StepFun3.5-Flash", "qwen_xml"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek"},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek"},
    {"fireworks-ai-llama-3-firefunction-v2", "json_tags"},
    {"google-gemma-4-31B-it", "gemma4"},
    {"google-gemma-4-31B-it-interleaved", "gemma4"},
    {"ibm-granite-granite-4.0", "hermes"},
    {"ibm-granite-granite-4.1", "hermes"},
    {"llama-cpp-deepseek-r1", "deepseek"},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3"},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama3"},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3"},
    {"microsoft-Phi-3.5-mini-instruct", "generic_json"},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral"},
    {"moonshotai-Kimi-K2", "kimi_k2"},
    {"openai-gpt-oss-120b", "harmony"},
    {"openbmb-MiniCPM5-1B", "generic_json"}, /* not read */
    {"poolside-Laguna-S-2.1", "glm"},
    {"poolside-Laguna-XS-2.1", "glm"},
    {"poolside-Laguna-XS.2", "glm"},
    {"tencent-Hy3", "generic_json"}, /* not read */
    {"unsloth-Apriel-1.5", "apriel"},
    {"upstage-Solar-Open-100B", "generic_json"}, /* not read */
};

static void test_published(void **state)
{
    (void)state;
    if (access(T9_FIXTURES_DIR "/templates", R_OK) != 0)
        skip();
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        char path[512];
        struct buf text;
        struct t9_err err = {0};
        buf_init(&text, 1 << 20);
        snprintf(path, sizeof path, T9_FIXTURES_DIR "/templates/%s.jinja", published[i].template);
        if (file_read_all(path, &text, &err) != T9_STATUS_OK)
            fail_msg("%s", err.msg);
        struct dialect_model m = {.chat_template = buf_str(&text), .has_token = has_nothing};
        if (strcmp(dialect_choose(&m)->name, published[i].dialect) != 0)
            fail_msg("%s: %s, not %s", published[i].template, dialect_choose(&m)->name,
                     published[i].dialect);
        buf_deinit(&text);
    }
}

static void test_without_a_template(void **state)
{
    struct dialect_model m = {.has_token = has_nothing};
    (void)state;
    assert_string_equal(dialect_choose(&m)->name, "generic_json");
    m.has_token = has_it;
    m.ctx = "[TOOL_CALLS]";
    assert_string_equal(dialect_choose(&m)->name, "mistral");
}

static void test_list(void **state)
{
    size_t n = 0;
    (void)state;
    for (const struct dialect *d; (d = dialect_at(n)) != NULL; n++) {
        assert_ptr_equal(dialect_find(str_from(d->name)), d);
        assert_non_null(d->step);
        assert_true((d->think_open == NULL) == (d->think_close == NULL));
    }
    assert_true(n >= 13);
    assert_string_equal(dialect_at(n - 1)->name, "generic_json");
    assert_null(dialect_find(STR("harmon")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_without_a_template),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
