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
    static const uint8_t flags[4096];
    static struct vocab v;
    assert_true((size_t)n <= sizeof flags);
    v = (struct vocab){.n_tokens = (uint32_t)n, .flags = flags, .bos = -1, .eos = -1, .pad = -1};
    return &v;
}

static inline bool load(struct loaded *l, const char *name, const char *backend, int n_threads)
{
    char path[512];
    struct stat st;
    struct t9_err err = {0};
    struct be_params bp = {.n_threads = n_threads, .max_rows = 256};
    *l = (struct loaded){0};
    snprintf(path, sizeof path, "%s/models/%s/model.gguf", T9_TEST_DATA_DIR, name);
    if (stat(path, &st) != 0)
        snprintf(path, sizeof path, "%s/models/%s/model.gguf", T9_FIXTURES_DIR, name);
    if (stat(path, &st) != 0)
        return false;
    t9_status s = gguf_open(&l->g, path, &err);
    if (s == T9_STATUS_OK)
        s = be_new(&l->be, backend, &bp, &err);
    if (s == T9_STATUS_OK)
        s = model_load(&l->m, l->g, l->be, NULL, &err);
    if (s != T9_STATUS_OK)
        fail_msg("%s on %s: %s", name, backend, err.msg);
    return true;
}

static inline void unload(struct loaded *l)
{
    model_free(l->m);
    be_free(l->be);
    gguf_close(l->g);
}

#endif
