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
    for (size_t i = 0; i < T9_COUNT(roots); i++) {
        (void)snprintf(out, n, "%s/models/%s/%s", roots[i], name, file);
        if (access(out, R_OK) == 0)
            return true;
    }
    return false;
}

static t9_status read_ints(yyjson_val *arr, int32_t *out, int32_t *n, struct t9_err *err)
{
    *n = 0;
    size_t count = yyjson_arr_size(arr);
    if (count == 0 || count > FIXTURE_TOKENS_MAX)
        return t9_fail(err, T9_STATUS_CORRUPT, "%zu tokens", count);
    yyjson_arr_iter it = yyjson_arr_iter_with(arr);
    for (yyjson_val *v; (v = yyjson_arr_iter_next(&it)) != NULL;)
        out[(*n)++] = (int32_t)yyjson_get_int(v);
    return T9_STATUS_OK;
}

static t9_status read_json(struct fixture *f, const char *path, struct t9_err *err)
{
    struct buf text;
    yyjson_doc *doc = NULL;
    buf_init(&text, 1 << 20);
    t9_status st = file_read_all(path, &text, err);
    if (st == T9_STATUS_OK)
        st = json_parse(&doc, buf_str(&text), JSON_LIMITS_REQUEST, err);
    if (st == T9_STATUS_OK) {
        yyjson_val *root = yyjson_doc_get_root(doc), *greedy = json_get(root, "greedy");
        f->n_vocab = (int32_t)yyjson_get_int(json_get(root, "vocab"));
        f->n_prompt = (int32_t)yyjson_get_int(json_get(greedy, "prompt"));
        st = read_ints(json_get(root, "tokens"), f->tokens, &f->n_tokens, err);
        if (st == T9_STATUS_OK)
            st = read_ints(json_get(greedy, "tokens"), f->greedy, &f->n_greedy, err);
    }
    yyjson_doc_free(doc);
    buf_deinit(&text);
    return st;
}

t9_status fixture_load(struct fixture *f, const char *name, struct t9_err *err)
{
    char path[512];
    struct buf bytes;
    *f = (struct fixture){0};
    if (!fixture_path(f->path, sizeof(f->path), name, "model.gguf") ||
        !fixture_path(path, sizeof(path), name, "reference.json"))
        return t9_fail(err, T9_STATUS_NOT_FOUND, "no fixture %s", name);
    T9_TRY(read_json(f, path, err));
    if (!fixture_path(path, sizeof(path), name, "logits.f32"))
        return t9_fail(err, T9_STATUS_NOT_FOUND, "no logits of %s", name);
    size_t want = (size_t)f->n_tokens * (size_t)f->n_vocab * sizeof(float);
    buf_init(&bytes, want);
    t9_status st = file_read_all(path, &bytes, err);
    if (st == T9_STATUS_OK && bytes.n != want)
        st = t9_fail(err, T9_STATUS_CORRUPT, "%s has %zu bytes, %zu wanted", path, bytes.n, want);
    if (st == T9_STATUS_OK && (f->logits = mem_alloc(want)) != NULL)
        memcpy(f->logits, bytes.p, want);
    buf_deinit(&bytes);
    return st;
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
