/* Tests of tokenizer/source.c: the keys of a real GGUF file, written by the test. */
#include "toy.h"

#include "base/log.h"
#include "base/mem.h"
#include "gguf/gguf.h"

#include <stdlib.h>
#include <unistd.h>

static struct toy y;

/* The file under construction: keys are counted as they are added. */
static struct buf kvs;
static uint64_t n_kvs;

static void put(const void *p, size_t n)
{
    buf_append(&kvs, p, n);
}
static void put_u32(uint32_t v)
{
    put(&v, sizeof(v));
}
static void put_u64(uint64_t v)
{
    put(&v, sizeof(v));
}
static void put_str(str s)
{
    put_u64(s.n);
    put(s.p, s.n);
}
static void key(const char *name, gguf_type type)
{
    put_str(str_from(name));
    put_u32((uint32_t)type);
    n_kvs++;
}
static void key_str(const char *name, const char *value)
{
    key(name, GGUF_TYPE_STR);
    put_str(str_from(value));
}
static void key_u32(const char *name, uint32_t value)
{
    key(name, GGUF_TYPE_U32);
    put_u32(value);
}
static void key_bool(const char *name, bool value)
{
    key(name, GGUF_TYPE_BOOL);
    put(&value, 1);
}
static void key_strs(const char *name, const str *s, uint64_t n)
{
    key(name, GGUF_TYPE_ARR);
    put_u32(GGUF_TYPE_STR);
    put_u64(n);
    for (uint64_t i = 0; i < n; i++)
        put_str(s[i]);
}
static void key_ints(const char *name, const int32_t *v, uint64_t n)
{
    key(name, GGUF_TYPE_ARR);
    put_u32(GGUF_TYPE_I32);
    put_u64(n);
    put(v, n * sizeof(*v));
}

static void begin(const char *model, const char *pre)
{
    buf_init(&kvs, 1U << 22);
    n_kvs = 0;
    toy_init(&y, "qwen2");
    toy_token(&y, STR("<|im_end|>"), TOK_TYPE_CONTROL);
    toy_token(&y, STR("<think>"), TOK_TYPE_USER_DEFINED);
    key_str("general.architecture", "llama");
    if (model)
        key_str("tokenizer.ggml.model", model);
    if (pre)
        key_str("tokenizer.ggml.pre", pre);
}

/* Writes the file, opens it, makes the tokenizer and closes the file. */
static t9_status finish(struct tokenizer **t, struct t9_err *err)
{
    char path[] = "/tmp/t9-source-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct buf file;
    buf_init(&file, 1U << 22);
    const uint32_t head[2] = {0x46554747, 3};
    const uint64_t counts[2] = {0, n_kvs};
    buf_append(&file, head, sizeof(head));
    buf_append(&file, counts, sizeof(counts));
    buf_append(&file, kvs.p, kvs.n);
    assert_int_equal(write(fd, file.p, file.n), file.n);
    assert_int_equal(close(fd), 0);
    struct gguf *g = NULL;
    if (gguf_open(&g, path, err) != T9_STATUS_OK)
        fail_msg("%s", err->msg);
    t9_status st = tokenizer_new(t, g, err);
    gguf_close(g);
    (void)unlink(path);
    buf_deinit(&file);
    buf_deinit(&kvs);
    return st;
}

static void add_tables(void)
{
    key_strs("tokenizer.ggml.tokens", y.token, y.src.n_tokens);
    key_ints("tokenizer.ggml.token_type", y.type, y.src.n_tokens);
    key_strs("tokenizer.ggml.merges", y.merge, y.src.n_merges);
}

static void test_everything_read(void **state)
{
    (void)state;
    static const int32_t suppress[] = {5, 2};
    struct tokenizer *t = NULL;
    struct t9_err err = {0};
    begin("gpt2", "qwen2");
    add_tables();
    key_u32("tokenizer.ggml.bos_token_id", 7);
    key_u32("tokenizer.ggml.eos_token_id", 8);
    key_u32("tokenizer.ggml.eot_token_id", 9);
    key_u32("tokenizer.ggml.padding_token_id", 10);
    key_bool("tokenizer.ggml.add_bos_token", true);
    key_bool("tokenizer.ggml.add_eos_token", true);
    key_ints("tokenizer.ggml.suppress_tokens", suppress, 2);
    assert_int_equal(finish(&t, &err), T9_STATUS_OK);
    assert_int_equal(err.code, T9_STATUS_OK);
    assert_string_equal(tokenizer_model_name(t), "gpt2");
    assert_string_equal(tokenizer_pre_name(t), "qwen2");
    const struct vocab *v = tokenizer_vocab(t);
    assert_int_equal(v->n_tokens, y.src.n_tokens);
    assert_int_equal(tokenizer_bos(t), 7);
    assert_int_equal(tokenizer_eos(t), 8);
    assert_int_equal(v->pad, 10);
    assert_int_equal(v->n_eog, 3); /* eos, eot, <|im_end|> */
    assert_true(tokenizer_is_eog(t, 9));
    assert_int_equal(v->n_suppress, 2);
    assert_true(tokenizer_add_bos(t) && tokenizer_add_eos(t));
    struct tok_ids ids;
    struct tok_span s = toy_raw(STR("hello<think>"));
    tok_ids_init(&ids, 10);
    assert_int_equal(tokenizer_encode(t, &s, 1, false, &ids, &err), T9_STATUS_OK);
    assert_int_equal(ids.n, 2);
    assert_true(str_eq(tokenizer_piece(t, ids.p[0]), STR("hello")));
    tok_ids_deinit(&ids);
    tokenizer_free(t);
}

static void test_only_what_is_needed(void **state)
{
    (void)state;
    struct tokenizer *t = NULL;
    begin("gpt2", NULL);
    key_strs("tokenizer.ggml.tokens", y.token, 256);
    assert_int_equal(finish(&t, &(struct t9_err){0}), T9_STATUS_OK);
    assert_int_equal(tokenizer_bos(t), -1);
    assert_false(tokenizer_add_bos(t));
    tokenizer_free(t);
}

static void expect_refused(t9_status code, const char *part)
{
    struct tokenizer *t = NULL;
    struct t9_err err = {0};
    assert_int_equal(finish(&t, &err), code);
    assert_null(t);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, part);
}

static void test_refused(void **state)
{
    (void)state;
    begin(NULL, NULL);
    expect_refused(T9_STATUS_NOT_FOUND, "tokenizer.ggml.model");
    begin("gpt2", "qwen2");
    expect_refused(T9_STATUS_NOT_FOUND, "tokenizer.ggml.tokens");
    begin("gpt2", "qwen2");
    key_ints("tokenizer.ggml.tokens", y.type, 20);
    expect_refused(T9_STATUS_CORRUPT, "expected strings");
    begin("gpt2", "qwen2");
    key_strs("tokenizer.ggml.tokens", y.token, 20);
    key_ints("tokenizer.ggml.token_type", y.type, 19);
    expect_refused(T9_STATUS_CORRUPT, "19 elements, but there are 20 tokens");
    begin("gpt2", "qwen2");
    key_strs("tokenizer.ggml.tokens", y.token, 20);
    key_ints("tokenizer.ggml.merges", y.type, 19);
    expect_refused(T9_STATUS_CORRUPT, "tokenizer.ggml.merges");
    begin("gpt2", "qwen2");
    add_tables();
    key_str("tokenizer.ggml.eos_token_id", "two");
    expect_refused(T9_STATUS_CORRUPT, "eos_token_id");
    begin("llama", "default");
    add_tables();
    expect_refused(T9_STATUS_CORRUPT, "tokenizer.ggml.scores is missing");
    begin("llama", "default");
    add_tables();
    key_ints("tokenizer.ggml.scores", y.type, 20);
    expect_refused(T9_STATUS_CORRUPT, "expected floats");
    begin("gemma4", "qwen2");
    add_tables();
    expect_refused(T9_STATUS_UNSUPPORTED, "'qwen2'; known for this kind: gemma4, default");
    begin("t5", "default");
    add_tables();
    expect_refused(T9_STATUS_UNSUPPORTED, "'t5'; known kinds: gpt2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_read),
        cmocka_unit_test(test_only_what_is_needed),
        cmocka_unit_test(test_refused),
    };
    log_configure(&(struct log_config){.level = LOG_LEVEL_ERROR});
    return cmocka_run_group_tests(tests, NULL, NULL);
}
