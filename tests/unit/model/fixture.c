/* tests/unit/model/fixture.c - see fixture.h. */
#include "unit/model/fixture.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool fixture_path(char *out, size_t n, const char *name, const char *file)
{
    static const char *const roots[] = {T9_TEST_DATA_DIR, T9_FIXTURES_DIR};
    if (name[0] == '/') {
        (void)snprintf(out, n, "%s/%s", name, file);
        return access(out, R_OK) == 0;
    }
    for (size_t i = 0; i < T9_COUNT(roots); i++) {
        (void)snprintf(out, n, "%s/models/%s/%s", roots[i], name, file);
        if (access(out, R_OK) == 0)
            return true;
    }
    return false;
}

static t9_status read_ints(yyjson_val *arr, size_t max, int32_t *out, int32_t *n,
                           struct t9_err *err)
{
    *n = 0;
    size_t count = yyjson_arr_size(arr);
    if (count == 0 || count > max)
        return t9_fail(err, T9_STATUS_CORRUPT, "%zu tokens", count);
    yyjson_arr_iter it = yyjson_arr_iter_with(arr);
    for (yyjson_val *v; (v = yyjson_arr_iter_next(&it)) != NULL;)
        out[(*n)++] = (int32_t)yyjson_get_int(v);
    return T9_STATUS_OK;
}

static t9_status read_media(struct fixture *f, yyjson_val *media, struct t9_err *err)
{
    int32_t n = 0;
    if (!media)
        return T9_STATUS_OK;
    f->media_first = (int32_t)yyjson_get_int(json_get(media, "first"));
    f->media_rows = (int32_t)yyjson_get_int(json_get(media, "rows"));
    f->n_deepstack = (int32_t)yyjson_get_int(json_get(media, "deepstack"));
    T9_TRY(read_ints(json_get(media, "positions"), T9_COUNT(f->pos), f->pos, &n, err));
    return n == 3 * f->n_tokens ? T9_STATUS_OK : t9_fail(err, T9_STATUS_CORRUPT, "%d positions", n);
}

static t9_status read_json(struct fixture *f, const char *path, struct t9_err *err)
{
    struct buf text;
    yyjson_doc *doc = NULL;
    buf_init(&text, 1 << 20);
    t9_status st = file_read_all(path, &text, err);
    if (st == T9_STATUS_OK)
        st = json_parse(&doc, buf_str(&text), JSON_LIMITS_REQUEST, err);
    yyjson_val *root = yyjson_doc_get_root(doc), *greedy = json_get(root, "greedy");
    if (st == T9_STATUS_OK) {
        f->n_vocab = (int32_t)yyjson_get_int(json_get(root, "vocab"));
        f->quantised = yyjson_is_true(json_get(root, "quantised"));
        f->n_prompt = (int32_t)yyjson_get_int(json_get(greedy, "prompt"));
        st = read_ints(json_get(root, "tokens"), FIXTURE_TOKENS_MAX, f->tokens, &f->n_tokens, err);
        if (st == T9_STATUS_OK && greedy)
            st = read_ints(json_get(greedy, "tokens"), FIXTURE_TOKENS_MAX, f->greedy, &f->n_greedy,
                           err);
    }
    if (st == T9_STATUS_OK)
        st = read_media(f, json_get(root, "media"), err);
    yyjson_doc_free(doc);
    buf_deinit(&text);
    return st;
}

t9_status fixture_floats(const char *name, const char *file, size_t n, float **out,
                         struct t9_err *err)
{
    char path[512];
    struct buf bytes;
    size_t want = n * sizeof(float);
    if (!fixture_path(path, sizeof(path), name, file))
        return t9_fail(err, T9_STATUS_NOT_FOUND, "no %s of %s", file, name);
    buf_init(&bytes, want);
    t9_status st = file_read_all(path, &bytes, err);
    if (st == T9_STATUS_OK && bytes.n != want)
        st = t9_fail(err, T9_STATUS_CORRUPT, "%s has %zu bytes, %zu wanted", path, bytes.n, want);
    if (st == T9_STATUS_OK && (*out = mem_alloc(want)) != NULL)
        memcpy(*out, bytes.p, want);
    buf_deinit(&bytes);
    return st;
}

t9_status fixture_load(struct fixture *f, const char *name, struct t9_err *err)
{
    char path[512];
    *f = (struct fixture){0};
    if (!fixture_path(f->path, sizeof(f->path), name, "model.gguf") ||
        !fixture_path(path, sizeof(path), name, "reference.json"))
        return t9_fail(err, T9_STATUS_NOT_FOUND, "no fixture %s", name);
    T9_TRY(read_json(f, path, err));
    return fixture_floats(name, "logits.f32", (size_t)f->n_tokens * (size_t)f->n_vocab, &f->logits,
                          err);
}

void fixture_free(struct fixture *f)
{
    mem_free(f->logits);
    f->logits = NULL;
}

static double row_error(const float *ours, const float *reference, int32_t n)
{
    double diff = 0, norm = 0;
    for (int32_t i = 0; i < n; i++) {
        double d = (double)ours[i] - (double)reference[i];
        diff += d * d;
        norm += (double)reference[i] * (double)reference[i];
    }
    return sqrt(diff / norm);
}

double fixture_error(const float *ours, const float *reference, int32_t n_rows, int32_t n_vocab)
{
    double worst = 0;
    for (int32_t r = 0; r < n_rows; r++) {
        size_t at = (size_t)r * (size_t)n_vocab;
        double e = row_error(ours + at, reference + at, n_vocab);
        if (!(e <= worst)) /* a NaN is the worst */
            worst = e;
    }
    return worst;
}

double fixture_error_median(const float *ours, const float *reference, int32_t n_rows,
                            int32_t n_vocab)
{
    double sorted[2 * FIXTURE_TOKENS_MAX];
    int32_t n = n_rows < 2 * FIXTURE_TOKENS_MAX ? n_rows : 2 * FIXTURE_TOKENS_MAX;
    for (int32_t r = 0; r < n; r++) {
        size_t at = (size_t)r * (size_t)n_vocab;
        double e = row_error(ours + at, reference + at, n_vocab);
        int32_t i = r;
        for (; i > 0 && !(sorted[i - 1] <= e); i--) /* NaN counts as the largest */
            sorted[i] = sorted[i - 1];
        sorted[i] = e;
    }
    return sorted[n / 2];
}
