/* Tests of hub/name.c: what is a name, what is a safe path, and which quantisation a file has. */
#include "hub/name.c"

#include "lib/t9test.h"

static void test_repositories(void **state)
{
    (void)state;
    struct hub_name n;
    struct t9_err err;
    assert_int_equal(hub_name_parse(&n, "Qwen/Qwen3-0.6B-GGUF", &err), T9_STATUS_OK);
    assert_string_equal(n.repo, "Qwen/Qwen3-0.6B-GGUF");
    assert_string_equal(n.select, "");
    assert_int_equal(hub_name_parse(&n, "a/b:Q4_K_M", &err), T9_STATUS_OK);
    assert_string_equal(n.repo, "a/b");
    assert_string_equal(n.select, "Q4_K_M");
    assert_false(n.is_file);
    assert_int_equal(hub_name_parse(&n, "a/b:UD-Q4_K_XL", &err), T9_STATUS_OK);
    assert_int_equal(hub_name_parse(&n, "a/b:sub/x-Q8_0.GGUF", &err), T9_STATUS_OK);
    assert_true(n.is_file);
    assert_string_equal(n.select, "sub/x-Q8_0.GGUF");

    char long_name[300];
    memset(long_name, 'a', sizeof long_name);
    memcpy(long_name, "b/", 2);
    long_name[sizeof long_name - 1] = 0;
    const char *const bad[] = {
        "",
        "a",
        "/b",
        "a/",
        "a/b/c",
        "../b",
        "a/..",
        "a/b:",
        "a/-b",
        "a/b-",
        ".a/b",
        "a/b.",
        "a--b/c",
        "a/b..c",
        "a b/c",
        "a/b:../x.gguf",
        "a/b\n",
        "a/b:x/y",
        "a/b:/x.gguf",
        "a/b:a\\b.gguf",
        "a/b:./x.gguf",
        "a/b?c",
        "a/b#c",
        "a/b%2e",
        "a@x/b",
        "http://x/y",
        "a/b:x//y.gguf",
        long_name,
        "\xC3\xA4/b",
        "a/b:q 4",
        "a/b:q:4",
        "a/b:Q4\x01",
    };
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        if (hub_name_parse(&n, bad[i], &err) != T9_STATUS_INVALID)
            fail_msg("taken: '%s'", bad[i]);
        assert_non_null(strstr(err.msg, "OWNER/REPO"));
    }
}

static void test_paths(void **state)
{
    (void)state;
    assert_true(hub_path_ok(STR("x.gguf")));
    assert_true(hub_path_ok(STR("a/b/x y.gguf")));
    assert_true(hub_path_ok(STR("..x/y..")));
    assert_false(hub_path_ok(STR("")));
    assert_false(hub_path_ok(STR("/x")));
    assert_false(hub_path_ok(STR("x/")));
    assert_false(hub_path_ok(STR("a/../x")));
    assert_false(hub_path_ok(STR("a/./x")));
    assert_false(hub_path_ok(STR("..")));
    assert_false(hub_path_ok(STR("a\\x")));
    assert_false(hub_path_ok(STR("a\nx")));
    assert_false(hub_path_ok(STR("a\0x")));
    assert_false(hub_path_ok(STR("\xFF")));
    assert_false(hub_path_ok(STR("1/2/3/4/5/6/7/8/9")));
    assert_true(hub_path_ok(STR("1/2/3/4/5/6/7/8")));
}

static void test_kinds(void **state)
{
    (void)state;
    assert_true(hub_is_weights(STR("m-Q4_0.gguf")));
    assert_true(hub_is_weights(STR("M.GGUF")));
    assert_false(hub_is_weights(STR(".gguf")));
    assert_false(hub_is_weights(STR("a/.gguf")));
    assert_false(hub_is_weights(STR("m.safetensors")));
    assert_false(hub_is_weights(STR("mmproj-F16.gguf")));
    assert_false(hub_is_weights(STR("sub/MMPROJ-model.gguf")));
    assert_false(hub_is_weights(STR("m-mmproj-f16.gguf")));
    assert_false(hub_is_weights(STR("mtp-m.gguf")));
    assert_true(hub_is_weights(STR("smtp-m.gguf")));
    assert_true(hub_is_mmproj(STR("m.mmproj.gguf")));
    assert_false(hub_is_mmproj(STR("m.gguf")));
}

static void quant_is(const char *path, const char *quant)
{
    str got = hub_quant(str_from(path));
    if (!str_eqz(got, quant))
        fail_msg("%s: '%.*s' instead of '%s'", path, STR_ARG(got), quant);
}

static void test_quants(void **state)
{
    (void)state;
    quant_is("Qwen3-0.6B-Q8_0.gguf", "Q8_0");
    quant_is("model.Q4_K_M.gguf", "Q4_K_M");
    quant_is("Q4_K_M.gguf", "Q4_K_M");
    quant_is("d-1.2/m-F16-00001-of-00003.gguf", "F16");
    quant_is("m-UD-Q4_K_XL.gguf", "Q4_K_XL");
    assert_true(hub_quant_is(STR("m-Q4_K_M.gguf"), STR("q4_k_m")));
    assert_false(hub_quant_is(STR("m-Q4_K_M.gguf"), STR("Q4_K")));
    assert_false(hub_quant_is(STR("m-Q4_K_M.gguf"), STR("K_M")));
    assert_false(hub_quant_is(STR("m-IQ4_XS.gguf"), STR("Q4_XS")));
    assert_true(hub_quant_is(STR("m-UD-Q4_K_XL.gguf"), STR("ud-q4_k_xl")));
    assert_false(hub_quant_is(STR("m-XUD-Q4_K_XL.gguf"), STR("UD-Q4_K_XL")));
    assert_true(hub_quant_is(STR("m-Q8_0-00002-of-00002.gguf"), STR("Q8_0")));
}

static void test_splits(void **state)
{
    (void)state;
    struct hub_split s;
    assert_true(hub_split_parse(&s, STR("d/m-Q8_0-00002-of-00010.gguf")));
    assert_true(str_eqz(s.stem, "d/m-Q8_0"));
    assert_int_equal(s.no, 2);
    assert_int_equal(s.count, 10);
    assert_false(hub_split_parse(&s, STR("m-00003-of-00002.gguf")));
    assert_false(hub_split_parse(&s, STR("m-00000-of-00002.gguf")));
    assert_false(hub_split_parse(&s, STR("-00001-of-00002.gguf")));
    assert_false(hub_split_parse(&s, STR("d/-00001-of-00002.gguf")));
    assert_false(hub_split_parse(&s, STR("m-0000a-of-00002.gguf")));
    assert_false(hub_split_parse(&s, STR("m-00001-of-00002.bin")));
}

static void ollama_is(const char *spec, const char *host, const char *space, const char *model,
                      const char *tag, const char *shown)
{
    struct ollama_name n;
    struct t9_err err;
    char text[600];
    assert_int_equal(ollama_name_parse(&n, spec, &err), T9_STATUS_OK);
    assert_string_equal(n.host, host);
    assert_string_equal(n.space, space);
    assert_string_equal(n.model, model);
    assert_string_equal(n.tag, tag);
    ollama_name_format(&n, text, sizeof text);
    assert_string_equal(text, shown);
}

static void test_ollama_names(void **state)
{
    (void)state;
    struct ollama_name n;
    struct t9_err err;
    ollama_is("llama3.2", OLLAMA_HOST_DEFAULT, "library", "llama3.2", "latest", "llama3.2:latest");
    ollama_is("llama3.2:1b", OLLAMA_HOST_DEFAULT, "library", "llama3.2", "1b", "llama3.2:1b");
    ollama_is("me/m:x", OLLAMA_HOST_DEFAULT, "me", "m", "x", "me/m:x");
    ollama_is("hf.co/o/r:Q8_0", "hf.co", "o", "r", "Q8_0", "hf.co/o/r:Q8_0");
    ollama_is("h:5000/o/r", "h:5000", "o", "r", "latest", "h:5000/o/r:latest");
    static const char *const bad[] = {
        "",   ":",   "a:",   "a/",   "/a", "a/b/c/d", "../a",   "a:..",   "a/../b", "a:b:c",
        ".a", "a b", "a\\b", "a:b/", "-a", "a\n",     "a/b/c:", "a:/b/c", "a//b",   "a:b/c"};
    for (size_t i = 0; i < T9_COUNT(bad); i++)
        if (ollama_name_parse(&n, bad[i], &err) != T9_STATUS_INVALID)
            fail_msg("taken: '%s'", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repositories), cmocka_unit_test(test_paths),
        cmocka_unit_test(test_kinds),        cmocka_unit_test(test_quants),
        cmocka_unit_test(test_splits),       cmocka_unit_test(test_ollama_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
