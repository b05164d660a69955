/*
 * Logits of the tiny models that another engine made and scored (the fixtures folder models-peer),
 * to 1e-4. Its files have the keys that it writes for every model, whatever they say, and random
 * factors of products (`*.scale`), of which it applies some, and tensors that it does not read; a
 * file that has such is refused here. So the test writes what the reference computed: those factors
 * are in the weights, the others, these tensors and the foreign keys are gone.
 */
#include "lib/forward.h"
#include "lib/gguf_writer.h"
#include "lib/t9test.h"
#include "unit/model/fixture.h"

#include "base/mem.h"

static bool has_end(str name, const char *const *ends)
{
    for (; *ends; ends++) {
        if (str_has_suffix(name, str_from(*ends)))
            return true;
    }
    return false;
}

static void copy_key(struct gguf_writer *w, const struct gguf_kv *kv)
{
    static const char *const foreign[] = {"softcapping", "expert_weights_norm", "attention.scale",
                                          NULL};
    char key[128];
    snprintf(key, sizeof(key), STR_FMT, STR_ARG(kv->key));
    if (has_end(kv->key, foreign))
        return;
    switch (kv->type) {
    case GGUF_TYPE_U32: gw_u32(w, key, (uint32_t)kv->u); break;
    case GGUF_TYPE_F32: gw_f32(w, key, (float)kv->f); break;
    case GGUF_TYPE_BOOL: gw_bool(w, key, kv->b); break;
    case GGUF_TYPE_STR: gw_str(w, key, kv->s); break;
    case GGUF_TYPE_ARR:
        if (kv->arr.type != GGUF_TYPE_STR) /* the tokenizer's */
            gw_arr(w, key, kv->arr.type, kv->arr.data, kv->arr.n);
        break;
    default: break;
    }
}

/* All of a tensor; the caller frees. */
static float *values_of(const struct gguf *g, const struct gguf_tensor *t)
{
    float *v = mem_alloc((size_t)t->size_bytes);
    assert_non_null(v);
    assert_int_equal(t->dtype, DTYPE_F32);
    assert_int_equal(gguf_tensor_read(g, t, 0, v, (size_t)t->size_bytes, NULL), T9_STATUS_OK);
    return v;
}

/* Ends of names: products whose factors the reference applies, tensors that it does not read. */
struct peer {
    const char *scaled[8], *unread[7];
};

static const struct peer lfm2 = {
    {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight"},
    {".scale", ".input_scale"}};
static const struct peer qwen3next = {
    {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight", "_shexp.weight",
     "_exps.weight"},
    {".scale", ".input_scale", "attn_q.bias", "attn_k.bias", "attn_v.bias", "ssm_in.weight"}};

static void copy_tensor(struct gguf_writer *w, const struct gguf *g, const struct gguf_tensor *t,
                        const struct peer *p)
{
    char name[128], scale_name[128];
    if (has_end(t->name, p->unread))
        return;
    snprintf(name, sizeof(name), STR_FMT, STR_ARG(t->name));
    float *v = values_of(g, t);
    snprintf(scale_name, sizeof(scale_name), "%.*s.scale", (int)(t->name.n - strlen(".weight")),
             name);
    const struct gguf_tensor *s = gguf_tensor_find(g, scale_name);
    if (s && has_end(t->name, p->scaled)) {
        float *scale = values_of(g, s); /* one, or one of each expert */
        size_t n = t->size_bytes / sizeof(float), n_scales = s->size_bytes / sizeof(float);
        for (size_t i = 0; i < n; i++)
            v[i] *= scale[i / (n / n_scales)];
        mem_free(scale);
    }
    gw_tensor(w, name, t->dtype, t->n_dims, t->ne, v, t->size_bytes);
    mem_free(v);
}

static void write_meant(const char *from, const char *to, const struct peer *p)
{
    struct gguf *g = NULL;
    struct gguf_writer w;
    struct t9_err err = {0};
    if (gguf_open(&g, from, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    gw_init(&w);
    for (uint64_t i = 0; i < gguf_kv_count(g); i++)
        copy_key(&w, gguf_kv_at(g, i));
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++)
        copy_tensor(&w, g, gguf_tensor_at(g, i), p);
    assert_int_equal(gw_write(&w, to, &err), T9_STATUS_OK);
    gw_deinit(&w);
    gguf_close(g);
}

static void check_backend(const struct fixture *x, const char *path, const char *backend)
{
    struct fwd f;
    struct fwd_seq s;
    struct t9_err err = {0};
    struct fwd_params p = {.backend = backend, .n_threads = 2, .kv_type = KV_TYPE_F32};
    t9_status st = fwd_open(&f, path, &p, &err);
    if (st == T9_STATUS_UNSUPPORTED && strcmp(backend, "cpu") == 0) {
        print_message("skipped: %s\n", err.msg);
        return;
    }
    if (st != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(fwd_seq_init(&f, &s, x->tokens, x->n_tokens, x->n_tokens, &err), T9_STATUS_OK);
    assert_int_equal(fwd_run(&f, &s, 11, &err), T9_STATUS_OK);
    double e = fixture_error(s.logits, x->logits, x->n_tokens, x->n_vocab);
    print_message("%-5s relative error %.3g\n", backend, e);
    assert_true(e <= 1e-4);
    fwd_seq_deinit(&f, &s);
    fwd_close(&f);
}

static void check_peer(const char *name, const struct peer *p)
{
    static const char *const backends[] = {"ref", "canon", "cpu"};
    char folder[64], dir[64], path[128];
    struct fixture x;
    struct t9_err err = {0};
    snprintf(folder, sizeof(folder), "../models-peer/%s", name);
    t9_status st = fixture_load(&x, folder, &err);
    if (st == T9_STATUS_NOT_FOUND) {
        print_message("skipped: %s\n", err.msg);
        skip();
    }
    if (st != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    test_tmpdir(dir);
    snprintf(path, sizeof(path), "%s/model.gguf", dir);
    write_meant(x.path, path, p);
    for (size_t i = 0; i < T9_COUNT(backends); i++)
        check_backend(&x, path, backends[i]);
    (void)unlink(path);
    (void)rmdir(dir);
    fixture_free(&x);
}

static void test_lfm2(void **state)
{
    (void)state;
    check_peer("lfm2-dense", &lfm2);
}

static void test_lfm2moe(void **state)
{
    (void)state;
    check_peer("lfm2moe-moe", &lfm2);
}

static void test_qwen3next(void **state)
{
    (void)state;
    check_peer("qwen3next-moe", &qwen3next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lfm2),
        cmocka_unit_test(test_lfm2moe),
        cmocka_unit_test(test_qwen3next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
