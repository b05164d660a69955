/*
 * What single values of fields mean: spellings of numbers, two names of one field, members that
 * nobody knows, values that ask for nothing, and messages that name the limit.
 */
#include "lib/t9test.h"

#include "protocol/openai_chat.h"
#include "protocol/openai_completions.h"
#include "protocol/openai_tokens.h"
#include "protocol/openai_write.h"

#define USER "{\"role\":\"user\",\"content\":\"hi\"}"
#define CHAT "{\"messages\":[" USER "],"

static t9_status parse(const struct chat_adapter *a, bool strict, const char *json,
                       struct chat_request *r, struct chat_error *e)
{
    memset(e, 0, sizeof *e);
    chat_request_init(r, 1 << 20);
    return a->parse(str_from(json), strict, r, e);
}

static void refused(const struct chat_adapter *a, bool strict, const char *json, const char *param,
                    const char *says)
{
    struct chat_request r;
    struct chat_error e;
    t9_status s = parse(a, strict, json, &r, &e);
    if (s == T9_STATUS_OK || chat_error_http(&e) != 400 || strcmp(e.param, param) != 0 ||
        !strstr(e.err.msg, says))
        fail_msg("%.120s: status %d, param %s, %s", json, (int)s, e.param, e.err.msg);
    chat_request_deinit(&r);
}

static void fine(const struct chat_adapter *a, bool strict, const char *json, size_t n_warnings)
{
    struct chat_request r;
    struct chat_error e;
    if (parse(a, strict, json, &r, &e) != T9_STATUS_OK || r.n_warnings != n_warnings)
        fail_msg("%.120s: %zu warnings, %s", json, r.n_warnings, e.err.msg);
    chat_request_deinit(&r);
}

/* 5, 5.0 and 5e0 are one number; 5.5 is none of them. */
static void test_spellings(void **state)
{
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(parse(&openai_chat_adapter, false,
                           CHAT "\"seed\":1e5,\"stop_token_ids\":[5.0,1e1],\"max_tokens\":7.0}", &r,
                           &e),
                     T9_STATUS_OK);
    assert_true(r.has_seed && !r.seed_is_negative && r.sampling.seed == 100000);
    assert_true(r.stop_tokens[0] == 5 && r.stop_tokens[1] == 10 && r.max_tokens == 7);
    chat_request_deinit(&r);
    assert_int_equal(parse(&openai_completions_adapter, false, "{\"prompt\":[5.0,6e0]}", &r, &e),
                     T9_STATUS_OK);
    assert_true(r.prompts[0].n_tokens == 2 && r.prompts[0].tokens[1] == 6);
    chat_request_deinit(&r);
    assert_int_equal(
        parse(&openai_chat_adapter, false, CHAT "\"seed\":18446744073709551615}", &r, &e),
        T9_STATUS_OK);
    assert_true(r.sampling.seed == UINT64_MAX && !r.seed_is_negative);
    chat_request_deinit(&r);
    refused(&openai_chat_adapter, false, CHAT "\"seed\":1.5}", "seed", "not 1.5");
    refused(&openai_chat_adapter, false, CHAT "\"seed\":1e30}", "seed", "64 bits");
    refused(&openai_chat_adapter, false, CHAT "\"stop_token_ids\":[0.5]}", "stop_token_ids", "0.5");
    refused(&openai_completions_adapter, false, "{\"prompt\":[1,-2.0]}", "prompt", "-2.0");
}

/* A negative seed is its 64 bits, and comes back as it was sent. */
static void test_negative_seed(void **state)
{
    struct chat_request r;
    struct chat_error e;
    struct chat_event end = {0};
    struct buf b;
    (void)state;
    buf_init(&b, 4096);
    assert_int_equal(parse(&openai_chat_adapter, false, CHAT "\"seed\":-1}", &r, &e), T9_STATUS_OK);
    assert_true(r.sampling.seed == UINT64_MAX);
    struct chat_reply reply = {.seed = r.sampling.seed, .request = &r};
    openai_write_extras(&reply, &end, &b);
    buf_putc(&b, 0);
    assert_non_null(strstr(b.p, "{\"seed\":-1}"));
    chat_request_deinit(&r);
    buf_deinit(&b);
}

static void test_two_names(void **state)
{
    const struct chat_adapter *chat = &openai_chat_adapter, *tok = &tokenize_adapter;
    (void)state;
    fine(chat, true, CHAT "\"max_tokens\":5,\"max_completion_tokens\":5.0}", 0);
    fine(chat, true, CHAT "\"max_tokens\":null,\"max_completion_tokens\":6}", 0);
    fine(chat, true, CHAT "\"repeat_penalty\":1.5,\"repetition_penalty\":1.5}", 0);
    fine(tok, true, "{\"prompt\":\"a\",\"content\":\"a\"}", 0);
    refused(chat, false, CHAT "\"max_tokens\":5,\"max_completion_tokens\":6}",
            "max_completion_tokens", "max_tokens");
    refused(chat, false, CHAT "\"max_completion_tokens\":6,\"max_tokens\":5}",
            "max_completion_tokens", "max_tokens");
    refused(chat, false, CHAT "\"repetition_penalty\":1.5,\"repeat_penalty\":1}", "repeat_penalty",
            "repetition_penalty");
    refused(tok, false, "{\"prompt\":\"a\",\"content\":\"b\"}", "content", "prompt");
    refused(tok, false, "{\"prompt\":\"a\",\"add_special\":true,\"add_special_tokens\":false}",
            "add_special", "add_special_tokens");
}

static void test_unknown_members(void **state)
{
    const struct chat_adapter *a = &openai_chat_adapter;
    (void)state;
    /* Each is told of once, however many messages have it. */
    fine(a, false,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"x\":1},{\"role\":\"user\","
         "\"content\":\"b\",\"x\":2},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
         "\"c\",\"y\":1}]}],\"stream_options\":{\"z\":1}}",
         3);
    /* What clients send back of an answer. */
    fine(a, true,
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"refusal\":null,\"audio\":null,"
         "\"annotations\":[],\"function_call\":null,\"tool_calls\":null},{\"role\":\"user\","
         "\"content\":[{\"type\":\"text\",\"text\":\"c\",\"cache_control\":{}}]}],"
         "\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false}}",
         0);
    refused(a, true, "{\"messages\":[" USER ",{\"role\":\"user\",\"content\":\"b\",\"x\":2}]}",
            "messages[1].x", "\"x\" of messages[1]");
    refused(a, true,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\","
            "\"y\":1}]}]}",
            "messages[0].content.y", "strict");
    refused(a, true, CHAT "\"stream_options\":{\"z\":1}}", "stream_options.z", "\"z\"");
}

/* A list that is too long says how long, not that an object is no object. */
static void test_too_many(void **state)
{
    struct buf b;
    (void)state;
    buf_init(&b, 1 << 20);
    buf_puts(&b, CHAT "\"logit_bias\":{");
    for (int i = 0; i < 1025; i++)
        buf_printf(&b, "%s\"%d\":1", i ? "," : "", i);
    buf_puts(&b, "}}");
    buf_putc(&b, 0);
    refused(&openai_chat_adapter, false, b.p, "logit_bias", "1025 biases, and at most 1024");
    buf_clear(&b);
    buf_puts(&b, CHAT "\"stop_token_ids\":[");
    for (int i = 0; i < 129; i++)
        buf_printf(&b, "%s%d", i ? "," : "", i);
    buf_puts(&b, "]}");
    buf_putc(&b, 0);
    refused(&openai_chat_adapter, false, b.p, "stop_token_ids", "129 token ids, and at most 128");
    buf_deinit(&b);
}

static void test_completions(void **state)
{
    const struct chat_adapter *a = &openai_completions_adapter;
    struct chat_request r;
    struct chat_error e;
    (void)state;
    assert_int_equal(parse(a, true, "{\"prompt\":\"a\",\"suffix\":\"\",\"echo\":true}", &r, &e),
                     T9_STATUS_OK);
    assert_false(r.has_suffix);
    chat_request_deinit(&r);
    fine(a, true, "{\"prompt\":\"a\",\"best_of\":1.0,\"typical_p\":1}", 0);
    refused(a, false, "{\"prompt\":\"a\",\"best_of\":2}", "best_of", "best_of = 2");
    refused(a, false, "{\"prompt\":\"a\",\"typical_p\":0.9}", "typical_p", "typical_p = 0.9");
    refused(a, false, "{\"prompt\":\"a\",\"echo\":true,\"max_tokens\":0,\"min_tokens\":1}",
            "min_tokens", "max_tokens 0");
}

/* ---- likeliest tokens of a completion ---- */

static str letter(const void *ctx, int32_t id)
{
    return (str){(const char *)ctx + id, 1};
}

/* The picked token is among them, also where it is not among the likeliest; each text once. */
static void test_top_logprobs(void **state)
{
    static const struct t9_logprob rows[] = {{3, -3}, {0, -1}, {1, -2}, {0, -1}, {0, -1},
                                             {1, -2}, {2, -1}, {2, -1}, {-1, 0}};
    static const int32_t ids[] = {3, 0, 2};
    static const uint32_t starts[] = {0, 1, 2};
    struct chat_request q = {.logprobs = true, .n_top = 2};
    struct chat_reply reply = {.request = &q, .piece = letter, .piece_ctx = "abcd", .build = "b"};
    struct chat_choice c = {.text = STR("dac"), .finish = T9_FINISH_LENGTH, .stop_token = -1};
    struct chat_event end = {0};
    struct buf b;
    (void)state;
    c.answer =
        (struct chat_tokens){.ids = ids, .n = 3, .logprobs = rows, .n_top = 2, .starts = starts};
    buf_init(&b, 8192);
    openai_completions_adapter.whole(&reply, &c, 1, &end, &b);
    buf_putc(&b, 0);
    assert_non_null(strstr(b.p, "\"top_logprobs\":[{\"a\":-1,\"b\":-2,\"d\":-3},"
                                "{\"a\":-1,\"b\":-2},{\"c\":-1}]"));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings),    cmocka_unit_test(test_negative_seed),
        cmocka_unit_test(test_two_names),    cmocka_unit_test(test_unknown_members),
        cmocka_unit_test(test_too_many),     cmocka_unit_test(test_completions),
        cmocka_unit_test(test_top_logprobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
