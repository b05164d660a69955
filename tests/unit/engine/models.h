/* models.h - how tests of the engine load the tiny real models. */
#ifndef T9_TESTS_ENGINE_MODELS_H
#define T9_TESTS_ENGINE_MODELS_H

#include "engine/engine.h"
#include "lib/t9test.h"

#include <sys/stat.h>

struct loaded {
    struct gguf *g;
    struct be *be;
    struct model *m;
};

/* A vocabulary without end or suppressed tokens: texts have their full length. */
static inline const struct vocab *plain_vocab(int32_t n)
{
    static const uint8_t flags[1 << 18]; /* real models have large vocabularies */
    static struct vocab v;
    assert_true((size_t)n <= sizeof flags);
    v = (struct vocab){.n_tokens = (uint32_t)n, .flags = flags, .bos = -1, .eos = -1, .pad = -1};
    return &v;
}

/* The file must be there. */
static inline void load_file(struct loaded *l, const char *path, const char *backend, int n_threads)
{
    struct t9_err err = {0};
    struct be_params bp = {.n_threads = n_threads, .max_rows = 256};
    *l = (struct loaded){0};
    t9_status s = gguf_open(&l->g, path, &err);
    if (s == T9_STATUS_OK)
        s = be_new(&l->be, backend, &bp, &err);
    if (s == T9_STATUS_OK)
        s = model_load(&l->m, l->g, l->be, NULL, &err);
    if (s != T9_STATUS_OK)
        fail_msg("%s on %s: %s", path, backend, err.msg);
}

static inline bool load(struct loaded *l, const char *name, const char *backend, int n_threads)
{
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "%s/models/%s/model.gguf", T9_TEST_DATA_DIR, name);
    if (stat(path, &st) != 0)
        snprintf(path, sizeof path, "%s/models/%s/model.gguf", T9_FIXTURES_DIR, name);
    if (stat(path, &st) != 0)
        return false;
    load_file(l, path, backend, n_threads);
    return true;
}

/* A real model for what runs with T9_FULL only: T9_MODEL of the environment, else the default one
 * where it has been fetched. NULL, with the reason told, when there is nothing to do. */
static inline const char *full_model(void)
{
    const char *path = getenv("T9_MODEL");
    struct stat st;
    if (!path)
        path = T9_MODELS_DIR "/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!test_is_full())
        print_message("skipped: a long test, only with T9_FULL in the environment\n");
    else if (stat(path, &st) != 0)
        print_message("skipped: no %s (tools/get-deps model, or T9_MODEL)\n", path);
    else
        return path;
    return NULL;
}

static inline void unload(struct loaded *l)
{
    model_free(l->m);
    be_free(l->be);
    gguf_close(l->g);
}

#endif
