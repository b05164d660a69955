/*
 * Whole models through the compare sink: op by op, cpu has canon's bits, canon stays near ref, and
 * a single changed weight is named by layer, op and column.
 */
#include "lib/forward.h"
#include "lib/t9test.h"
#include "unit/model/fixture.h"

#include "model/model_impl.h"

/* Two models of the same file on two backends; their weights are in the same order. */
struct pair {
    struct fwd a, b;
    struct compare c;
};

static const struct weight *other_weight(void *ctx, const struct weight *w)
{
    struct pair *p = ctx;
    return &p->b.m->weights[w - p->a.m->weights];
}

static bool pair_open(struct pair *p, const char *model, const char *first, const char *second,
                      float tolerance)
{
    char path[512];
    struct t9_err err = {0};
    struct fwd_params pa = {.backend = first, .n_threads = 2, .kv_type = KV_TYPE_F16};
    struct fwd_params pb = pa;
    pb.backend = second;
    memset(p, 0, sizeof(*p));
    if (!fixture_path(path, sizeof(path), model, "model.gguf")) {
        print_message("skipped: no fixture %s\n", model);
        return false;
    }
    if (fwd_open(&p->a, path, &pa, &err) != T9_STATUS_OK ||
        fwd_open(&p->b, path, &pb, &err) != T9_STATUS_OK) {
        print_message("skipped: %s\n", err.msg);
        fwd_close(&p->a);
        return false;
    }
    p->c = (struct compare){.be = p->a.be,
                            .other = p->b.be,
                            .other_weight = other_weight,
                            .ctx = p,
                            .tolerance = tolerance};
    p->a.compare = &p->c;
    return true;
}

static t9_status pair_run(struct pair *p, struct t9_err *err)
{
    int32_t tokens[40];
    struct fwd_seq s;
    for (int32_t i = 0; i < 40; i++)
        tokens[i] = (37 * i + 11) % model_info(p->a.m)->n_vocab;
    assert_int_equal(fwd_seq_init(&p->a, &s, tokens, 40, 40, err), T9_STATUS_OK);
    t9_status st = fwd_run(&p->a, &s, 33, err);
    fwd_seq_deinit(&p->a, &s);
    return st;
}

static void pair_close(struct pair *p)
{
    fwd_close(&p->a);
    fwd_close(&p->b);
}

static void agree(const char *model, const char *first, const char *second, float tolerance)
{
    struct pair p;
    struct t9_err err = {0};
    if (!pair_open(&p, model, first, second, tolerance))
        return;
    if (pair_run(&p, &err) != T9_STATUS_OK)
        fail_msg("%s", err.msg);
    print_message("%s, %s and %s: worst relative error of a row %.3g\n", model, first, second,
                  (double)p.c.worst);
    pair_close(&p);
}

/* Those with integer products: canon is another number than ref, cpu the same as canon. */
static const char *const quantised[] = {"wide-gemma4", "wide-gpt-oss", "wide-qwen3moe",
                                        "wide-qwen35"};

static const char *const models[] = {"qwen2",     "qwen3moe", "gpt-oss",   "lfm2moe",
                                     "qwen35moe", "gemma4-e", "gemma4-moe"};

static void test_cpu_is_canon(void **state)
{
    (void)state;
    for (size_t i = 0; i < T9_COUNT(models); i++) {
        agree(models[i], "cpu", "canon", 0);
        agree(models[i], "canon", "cpu", 0);
    }
    for (size_t i = 0; i < T9_COUNT(quantised); i++) {
        agree(quantised[i], "cpu", "canon", 0);
        agree(quantised[i], "canon", "cpu", 0);
    }
}

static void test_canon_is_near_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < T9_COUNT(models); i++) /* an f16 key or value may round the other way */
        agree(models[i], "canon", "ref", 2e-3f);
}

static void test_changed_weight_is_named(void **state)
{
    (void)state;
    struct pair p;
    struct t9_err err = {0};
    assert_true(pair_open(&p, "qwen2", "ref", "ref", 0));
    struct weight *down = &p.b.m->weights[p.b.m->layers[1].down - p.b.m->weights];
    /* Row 77 of the second layer's ffn_down: the exponent of its first value. */
    uint8_t *row = (uint8_t *)(uintptr_t)down->data + 77 * (down->size_bytes / (size_t)down->n_out);
    row[1] ^= 1;
    assert_int_equal(pair_run(&p, &err), T9_STATUS_INTERNAL);
    if (!strstr(err.msg, "layer 1, op 19 matmul, dst 0, row 0, column 77"))
        fail_msg("%s", err.msg);
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_is_canon),
        cmocka_unit_test(test_canon_is_near_ref),
        cmocka_unit_test(test_changed_weight_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
