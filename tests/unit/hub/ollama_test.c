/* Tests of hub/ollama.c: a store as Ollama has it, and ones that it would not have. */
#include "hub/ollama.h"

#include "lib/t9test.h"

#include <sys/stat.h>

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LAYER(kind, digest, size)                                                                  \
    "{\"mediaType\":\"application/vnd.ollama.image." kind "\",\"digest\":\"" digest                \
    "\",\"size\":" size "}"
#define MODEL        LAYER("model", "sha256:" HEX, "5")
#define LAYERS(list) "{\"schemaVersion\":2,\"layers\":[" list "]}"

static void test_manifest(void **state)
{
    (void)state;
    struct ollama_manifest m;
    struct t9_err err;
    assert_int_equal(
        ollama_manifest_parse(&m,
                              STR(LAYERS(LAYER("template", "sha256:x", "1") "," MODEL "," LAYER(
                                  "projector", "sha256:y", "2"))),
                              &err),
        T9_STATUS_OK);
    assert_string_equal(m.hash, HEX);
    assert_int_equal(m.size_bytes, 5);
    assert_true(m.has_projector);
    static const struct {
        const char *text;
        t9_status s;
    } bad[] = {
        {"", T9_STATUS_CORRUPT},
        {"{", T9_STATUS_CORRUPT},
        {"[]", T9_STATUS_CORRUPT},
        {"{\"layers\":{}}", T9_STATUS_CORRUPT},
        {LAYERS(""), T9_STATUS_UNSUPPORTED},
        {LAYERS("1,null,[]"), T9_STATUS_UNSUPPORTED},
        {LAYERS(MODEL "," MODEL), T9_STATUS_UNSUPPORTED},
        {LAYERS(MODEL "," LAYER("adapter", "sha256:" HEX, "1")), T9_STATUS_UNSUPPORTED},
        {LAYERS(LAYER("tensor", "sha256:" HEX, "1")), T9_STATUS_UNSUPPORTED},
        {LAYERS(LAYER("model", "sha256:../../../etc/passwd", "1")), T9_STATUS_CORRUPT},
        {LAYERS(LAYER("model", HEX, "1")), T9_STATUS_CORRUPT},
        {LAYERS(LAYER("model", "sha256:" HEX, "-1")), T9_STATUS_CORRUPT},
        {LAYERS(LAYER("model", "sha256:" HEX, "\"5\"")), T9_STATUS_CORRUPT},
    };
    for (size_t i = 0; i < T9_COUNT(bad); i++) {
        t9_status s = ollama_manifest_parse(&m, str_from(bad[i].text), &err);
        if (s != bad[i].s || err.code != s)
            fail_msg("%s: %s", bad[i].text, t9_status_name(s));
    }
}

struct seen {
    char text[1024];
};

static void each(void *ctx, const char *name, uint64_t size_bytes, const char *problem)
{
    struct seen *s = ctx;
    size_t n = strlen(s->text);
    snprintf(s->text + n, sizeof s->text - n, "%s %llu %s\n", name, (unsigned long long)size_bytes,
             problem ? "bad" : "ok");
}

static void file_make(const char *dir, const char *path, const char *text)
{
    char full[256];
    snprintf(full, sizeof full, "%s/%s", dir, path);
    for (char *p = full + strlen(dir) + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            mkdir(full, 0700);
            *p = '/';
        }
    test_write_file(full, text, strlen(text));
}

static void test_store(void **state)
{
    (void)state;
    char dir[64], expect[256];
    struct hub_model m;
    struct t9_err err;
    struct seen seen = {""};
    test_tmpdir(dir);
    assert_int_equal(hub_ollama_list(dir, each, &seen, &err), T9_STATUS_NOT_FOUND);
    assert_non_null(strstr(err.msg, "OLLAMA_MODELS"));
    file_make(dir, "manifests/registry.ollama.ai/library/b/latest", LAYERS(MODEL));
    file_make(dir, "manifests/registry.ollama.ai/library/b/1b", LAYERS(MODEL));
    file_make(dir, "manifests/hf.co/o/r/Q8_0", LAYERS(MODEL));
    file_make(dir, "manifests/registry.ollama.ai/me/a/bad", "{}");
    file_make(dir, "manifests/registry.ollama.ai/library/gone/latest",
              LAYERS(LAYER("model", "sha256:f" HEX, "5")));
    file_make(dir, "blobs/sha256-" HEX, "GGUF!");
    assert_int_equal(hub_ollama_list(dir, each, &seen, &err), T9_STATUS_OK);
    assert_string_equal(seen.text, "b:1b 5 ok\nb:latest 5 ok\ngone:latest 0 bad\n"
                                   "hf.co/o/r:Q8_0 5 ok\nme/a:bad 0 bad\n");
    assert_int_equal(hub_ollama_find(&m, dir, "b", NULL, NULL, &err), T9_STATUS_OK);
    snprintf(expect, sizeof expect, "%s/blobs/sha256-" HEX, dir);
    assert_string_equal(m.path, expect);
    assert_string_equal(m.name, "b:latest");
    assert_int_equal(hub_ollama_find(&m, dir, "b:2b", NULL, NULL, &err), T9_STATUS_NOT_FOUND);
    assert_int_equal(hub_ollama_find(&m, dir, "me/a:bad", NULL, NULL, &err), T9_STATUS_CORRUPT);
    assert_int_equal(hub_ollama_find(&m, dir, "../b", NULL, NULL, &err), T9_STATUS_INVALID);
    file_make(dir, "blobs/sha256-" HEX, "GGUF is cut");
    assert_int_equal(hub_ollama_find(&m, dir, "b", NULL, NULL, &err), T9_STATUS_CORRUPT);
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifest),
        cmocka_unit_test(test_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
