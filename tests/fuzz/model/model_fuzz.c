/*
 * Fuzz target of the loaders in model/: the input is a script of changes to a whole made model
 * (tests/lib/changed_model.h). What loads is measured and run, in pieces; what does not says why,
 * and for no reason of ours.
 */
#include "base/num.h"
#include "lib/changed_model.h"
#include "lib/forward.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { N_TOKENS = 4, CHUNK = 3, N_KV_TYPES = KV_TYPE_Q8_0 + 1, SCRATCH_MAX_BYTES = 64 << 20 };

static void must(bool holds, const char *what, const struct t9_err *err)
{
    if (holds)
        return;
    fprintf(stderr, "%s: %s\n", what, err->msg);
    abort();
}

/* Whether two rows of logits are the same bits, but for what a NaN has of them. */
static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool both_nan = a[i] != a[i] && b[i] != b[i];
        if (!both_nan && num_bits_from_f32(a[i]) != num_bits_from_f32(b[i]))
            return false;
    }
    return true;
}

/* In pieces of CHUNK, and token by token: the numbers are the same, whatever the weights are. */
static void run(struct fwd *f)
{
    int32_t tokens[N_TOKENS], n_vocab = model_info(f->m)->n_vocab;
    struct fwd_seq s[2];
    struct t9_err err = {0};
    for (int32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = 31 * i % n_vocab;
    for (int i = 0; i < 2; i++) {
        must(fwd_seq_init(f, &s[i], tokens, N_TOKENS, N_TOKENS, &err) == T9_STATUS_OK, "sequence",
             &err);
        must(fwd_run(f, &s[i], i == 0 ? CHUNK : 1, &err) == T9_STATUS_OK, "forward", &err);
    }
    must(same(s[0].logits, s[1].logits, (size_t)N_TOKENS * (size_t)n_vocab),
         "logits depend on the chunks", &err);
    for (int i = 0; i < 2; i++)
        fwd_seq_deinit(f, &s[i]);
}

/* Loads and runs the file; returns whether it loaded. */
static bool try_file(const char *path, uint64_t file_bytes, const struct fwd_params *p)
{
    struct fwd f;
    struct t9_err err = {0};
    t9_status st = fwd_open(&f, path, p, &err);
    if (st != T9_STATUS_OK) {
        must(err.code == st && err.msg[0] != 0, "refused without a reason", &err);
        must(st == T9_STATUS_CORRUPT || st == T9_STATUS_UNSUPPORTED || st == T9_STATUS_TOO_LARGE,
             "refused for a reason of ours", &err);
        return false;
    }
    /* Padding of short rows and matrices included. */
    must(model_info(f.m)->weight_bytes <= 64 * file_bytes, "weights beyond the file's size", &err);
    must(f.scratch.cap <= SCRATCH_MAX_BYTES, "scratch beyond reason", &err);
    run(&f);
    fwd_close(&f);
    return true;
}

static bool try_script(struct cm_script s)
{
    static const char *const backends[] = {"cpu", "canon", "ref"};
    char path[64];
    struct t9_err err = {0};
    size_t model = cm_byte(&s);
    unsigned how = cm_byte(&s);
    struct fwd_params p = {.backend = backends[how % T9_COUNT(backends)],
                           .n_threads = 1,
                           .kv_type = (kv_type)(how / 4 % N_KV_TYPES),
                           .max_rows = 4,
                           .n_pages = 2};
    int fd = memfd_create("changed", MFD_CLOEXEC);
    must(fd >= 0, "memfd_create", &err);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    must(cm_write(path, model, &s, &err) == T9_STATUS_OK, "writing", &err);
    bool loaded = try_file(path, (uint64_t)lseek(fd, 0, SEEK_END), &p);
    (void)close(fd);
    return loaded;
}

/* Unchanged, each model loads and runs. */
static void init(void)
{
    struct t9_err err = {0};
    must(cm_init(model_known_archs(), &err) == T9_STATUS_OK, "a model for each architecture", &err);
    for (size_t i = 0; i < cm_count(); i++) {
        uint8_t plain = (uint8_t)i;
        (void)snprintf(err.msg, sizeof(err.msg), "model %zu", i);
        must(try_script((struct cm_script){&plain, 1}), "unchanged it does not load", &err);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static bool ready;
    if (!ready)
        init();
    ready = true;
    (void)try_script((struct cm_script){p, n});
    return 0;
}
