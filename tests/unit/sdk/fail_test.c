/*
 * Every allocation that a call makes fails once, in whatever thread and library it is made: the
 * call then returns an error or does without, what it gave out is nothing, and nothing is lost (the
 * address sanitizer's leak check sees the end).
 */
#include "tempo9.h"

#include "lib/failing_malloc.h"
#include "lib/mkgguf.h"
#include "lib/t9test.h"

#include <stdatomic.h>

/* The n-th allocation from now fails; 0: none. */
static _Atomic long countdown;

bool failing_malloc_fails(void)
{
    return atomic_load(&countdown) > 0 && atomic_fetch_sub(&countdown, 1) == 1;
}

static char folder[64], path[96];
static t9_model *model;
static t9_engine *engine;

static int setup(void **state)
{
    (void)state;
    struct mkgguf_params p = MKGGUF_DEFAULT;
    p.layers = 1;
    p.width = 64;
    p.ffn = 64;
    p.dtype = 8;
    test_tmpdir(folder);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    return mkgguf_write(path, &p, NULL) == T9_STATUS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    rmdir(folder);
    return 0;
}

/* ---- the calls: each cleans up after itself ---- */

static t9_status call_load(t9_err *err)
{
    struct t9_model_params p;
    t9_model *m = NULL;
    t9_model_params_init(&p, sizeof p);
    p.path = path;
    p.threads = 2;
    t9_status s = t9_model_load(&m, &p, err);
    assert_true((s == T9_STATUS_OK) == (m != NULL));
    t9_model_free(m);
    return s;
}

static t9_status call_engine(t9_err *err)
{
    struct t9_engine_params p;
    t9_engine *e = NULL;
    t9_engine_params_init(&p, sizeof p);
    p.model = model;
    p.kv_bytes = 4 << 20;
    t9_status s = t9_engine_new(&e, &p, err);
    assert_true((s == T9_STATUS_OK) == (e != NULL));
    t9_engine_free(e);
    return s;
}

static t9_status call_text(t9_err *err)
{
    static const char text[] = "the quick brown fox <|im_start|> \xc3\xa9\xf0\x9f\x98\x80";
    t9_ids ids = {0};
    t9_text back = {0};
    t9_detok *d = NULL;
    const char *part;
    size_t n;
    t9_status s = t9_tokenize(model, text, sizeof text - 1, T9_TOKENIZE_SPECIAL, &ids, err);
    if (s == T9_STATUS_OK)
        s = t9_detokenize(model, ids.p, ids.n, T9_DETOKENIZE_SPECIAL, &back, err);
    if (s == T9_STATUS_OK)
        s = t9_detok_new(&d, model, 0, err);
    if (s == T9_STATUS_OK) {
        s = t9_detok_push(d, ids.p, ids.n, &part, &n);
        err->code = s;
    }
    t9_detok_free(d);
    t9_text_free(&back);
    t9_ids_free(&ids);
    if (s == T9_STATUS_OK)
        s = t9_model_metadata(model, "general.architecture", 1000, &back, err);
    t9_text_free(&back);
    return s;
}

static t9_status call_chat(t9_err *err)
{
    static const char messages[] =
        "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"b\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"c\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"function\":"
        "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},"
        "{\"role\":\"tool\",\"content\":\"d\",\"tool_call_id\":\"1\"}]";
    struct t9_chat_params p;
    t9_ids ids = {0};
    t9_text text = {0};
    t9_chat_params_init(&p, sizeof p);
    p.messages = messages;
    p.messages_bytes = sizeof messages - 1;
    p.tools = "[{\"type\":\"function\"}]";
    p.tools_bytes = strlen(p.tools);
    p.kwargs = "{\"enable_thinking\":false}";
    p.kwargs_bytes = strlen(p.kwargs);
    t9_status s = t9_chat_tokens(model, &p, &ids, err);
    assert_true((s == T9_STATUS_OK) == (ids.p != NULL));
    if (s == T9_STATUS_OK)
        s = t9_chat_render(model, &p, &text, err);
    t9_ids_free(&ids);
    t9_text_free(&text);
    return s;
}

static t9_status call_answer(t9_err *err)
{
    static const int32_t prompt[] = {72, 105};
    static const int32_t stop = 300;
    static const struct t9_logit_bias bias = {65, 1};
    const char *stops[] = {"zzzz", "yyy"};
    struct t9_request_params p;
    t9_request *r = NULL;
    t9_request_params_init(&p, sizeof p);
    p.prompt = prompt;
    p.n_prompt = 2;
    p.max_tokens = 6;
    p.stops = stops;
    p.n_stops = 2;
    p.stop_ids = &stop;
    p.n_stop_ids = 1;
    p.bias = &bias;
    p.n_bias = 1;
    p.n_logprobs = 3;
    p.prompt_logprobs = true;
    p.text_starts = true;
    t9_status s = t9_engine_submit(engine, &p, &r, err);
    assert_true((s == T9_STATUS_OK) == (r != NULL));
    while (s == T9_STATUS_OK) {
        struct t9_event ev = {.struct_size = sizeof ev};
        s = t9_request_next(r, -1, &ev);
        err->code = s;
        if (ev.kind == T9_EVENT_ERROR) {
            *err = ev.error;
            s = ev.error.code;
        }
        if (ev.kind == T9_EVENT_DONE || ev.kind == T9_EVENT_ERROR)
            break;
    }
    t9_request_free(r);
    return s;
}

/* One that goes on, whose beginning is kept. */
static t9_status call_long_chat(t9_err *err)
{
    static char messages[9000];
    struct t9_chat_params p;
    t9_ids ids = {0};
    int n = snprintf(messages, sizeof messages, "[{\"role\":\"user\",\"content\":\"%5000d\"},", 1);
    n += snprintf(messages + n, sizeof messages - (size_t)n,
                  "{\"role\":\"assistant\",\"content\":\"%1000d\"},"
                  "{\"role\":\"user\",\"content\":\"c\"}]",
                  2);
    t9_chat_params_init(&p, sizeof p);
    p.messages = messages;
    p.messages_bytes = (size_t)n;
    t9_status s = t9_chat_tokens(model, &p, &ids, err);
    assert_true((s == T9_STATUS_OK) == (ids.p != NULL));
    assert_true(s != T9_STATUS_OK || ids.n > 1000);
    t9_ids_free(&ids);
    return s;
}

/* Fails allocation 1, 2, ... of the call until it makes fewer. A failure that a call can do without
 * is allowed, but not many: they would hide the ones that are lost. */
static void fail_each(const char *name, t9_status (*call)(t9_err *), long least, long quiet_max)
{
    long n = 1, quiet = 0;
    for (;; n++) {
        t9_err err = {0};
        atomic_store(&countdown, n);
        t9_status s = call(&err);
        long left = atomic_exchange(&countdown, 0);
        if (left > 0) {
            assert_int_equal(s, T9_STATUS_OK);
            break;
        }
        if (s == T9_STATUS_OK)
            print_message("%s: allocation %ld was not missed\n", name, n);
        quiet += s == T9_STATUS_OK;
        if (s != T9_STATUS_OK && err.code != s)
            fail_msg("%s, allocation %ld: status %s, message for %s", name, n, t9_status_name(s),
                     t9_status_name(err.code));
        assert_true(n < 5000);
    }
    print_message("%s: %ld allocations, %ld not missed\n", name, n - 1, quiet);
    assert_true(n - 1 >= least);
    assert_true(quiet <= quiet_max);
}

static void test_load(void **state)
{
    (void)state;
    fail_each("load", call_load, 30, 1); /* a table is cut to its size or stays as it is */
}

static t9_model *load(void)
{
    struct t9_model_params p;
    t9_model *m = NULL;
    t9_model_params_init(&p, sizeof p);
    p.path = path;
    p.threads = 1;
    assert_int_equal(t9_model_load(&m, &p, NULL), T9_STATUS_OK);
    return m;
}

static void test_calls(void **state)
{
    (void)state;
    struct t9_engine_params p;
    model = load();
    fail_each("engine", call_engine, 10, 0);
    fail_each("text", call_text, 5, 0);
    fail_each("chat", call_chat, 20, 0);
    fail_each("long chat", call_long_chat, 20, 3); /* what is known is a help and no need */
    t9_engine_params_init(&p, sizeof p);
    p.model = model;
    p.kv_bytes = 4 << 20;
    assert_int_equal(t9_engine_new(&engine, &p, NULL), T9_STATUS_OK);
    fail_each("answer", call_answer, 8, 0);
    t9_engine_free(engine);
    t9_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load), cmocka_unit_test(test_calls)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
