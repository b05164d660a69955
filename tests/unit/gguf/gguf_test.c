/*
 * Tests of gguf/gguf.c and gguf/parse.c: a good model, each refusal, split models, failing
 * allocations, a file that shrinks, and seeded mutations of a small model.
 */
#include "gguf/gguf.h"

#include "base/file.h"
#include "base/mem.h"
#include "gguf/parse.h"
#include "lib/gguf_writer.h"
#include "lib/mkgguf.h"
#include "lib/t9test.h"

#include <glob.h>
#include <math.h>

static char dir[64];
static char path[128];

static int setup(void **state)
{
    (void)state;
    test_tmpdir(dir);
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    glob_t g;
    char pattern[80];
    snprintf(pattern, sizeof pattern, "%s/*", dir);
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (size_t i = 0; i < g.gl_pathc; i++)
            unlink(g.gl_pathv[i]);
        globfree(&g);
    }
    rmdir(dir);
    return 0;
}

/* ---- a good model ---- */

static void test_model(void **state)
{
    (void)state;
    struct mkgguf_params p = MKGGUF_DEFAULT;
    struct t9_err err = {0};
    struct gguf *g;
    p.dtype = DTYPE_Q4_K;
    p.mix = true;
    assert_int_equal(mkgguf_write(path, &p, &err), T9_STATUS_OK);
    assert_int_equal(gguf_open(&g, path, &err), T9_STATUS_OK);
    assert_string_equal(gguf_path(g), path);
    assert_string_equal(gguf_file_name(g), "m.gguf");
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_part_count(g), 1);
    assert_string_equal(gguf_part_path(g, 0), path);
    assert_null(gguf_part_path(g, 1));
    assert_int_equal(gguf_tensor_count(g), 20);
    assert_null(gguf_tensor_at(g, 20));
    str s;
    struct gguf_arr a;
    uint32_t u = 0;
    assert_int_equal(gguf_get_str(g, "general.architecture", &s, &err), T9_STATUS_OK);
    assert_true(str_eqz(s, "llama"));
    assert_int_equal(gguf_get_u32(g, "llama.embedding_length", &u, &err), T9_STATUS_OK);
    assert_int_equal(u, 256);
    assert_int_equal(gguf_get_arr(g, "tokenizer.ggml.tokens", &a, &err), T9_STATUS_OK);
    assert_int_equal(a.n, 512);
    assert_true(str_eqz(gguf_arr_str(&a, 'A'), "A"));
    assert_true(str_eqz(gguf_arr_str(&a, 511), "</tool_call>"));
    assert_null(gguf_arr_str(&a, 512).p);
    assert_int_equal(gguf_get_arr(g, "tokenizer.ggml.token_type", &a, &err), T9_STATUS_OK);
    assert_int_equal(gguf_arr_i64(&a, 505), 3);
    assert_int_equal(gguf_arr_i64(&a, 511), 4);
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.1.ffn_down.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, DTYPE_Q4_K);
    assert_int_equal(t->ne[0], 512);
    assert_int_equal(t->ne[1], 256);
    assert_int_equal(t->ne[3], 1);
    assert_int_equal(t->size_bytes, 288 * 256);
    assert_int_equal(gguf_tensor_find(g, "blk.0.ffn_down.weight")->dtype, DTYPE_Q6_K);
    assert_null(gguf_tensor_find(g, "blk.2.ffn_down.weight"));
    assert_null(gguf_tensor_find(g, ""));
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) {
        char key[64];
        snprintf(key, sizeof key, STR_FMT, STR_ARG(gguf_kv_at(g, i)->key));
        assert_ptr_equal(gguf_kv_find(g, key), gguf_kv_at(g, i));
    }
    t = gguf_tensor_find(g, "output_norm.weight");
    float norm[256];
    assert_int_equal(gguf_tensor_read(g, t, 0, norm, sizeof norm, &err), T9_STATUS_OK);
    for (int i = 0; i < 256; i++)
        assert_true(norm[i] > 0.5f && norm[i] < 1.5f);
    float one;
    assert_int_equal(gguf_tensor_read(g, t, 1020, &one, 4, &err), T9_STATUS_OK);
    assert_true(one == norm[255]);
    assert_int_equal(gguf_tensor_read(g, t, 1021, &one, 4, &err), T9_STATUS_INVALID);
    assert_int_equal(gguf_tensor_read(g, t, UINT64_MAX, &one, 4, &err), T9_STATUS_INVALID);
    /* A file that shrinks under us is a status. */
    assert_int_equal(truncate(path, (off_t)(t->offset + 100)), 0);
    assert_int_equal(gguf_tensor_read(g, t, 0, norm, sizeof norm, &err), T9_STATUS_IO);
    assert_non_null(strstr(err.msg, "m.gguf: tensor output_norm.weight: file ended at byte"));
    gguf_close(g);
    gguf_close(NULL);
}

static void test_mkgguf_refuses(void **state)
{
    (void)state;
    struct t9_err err;
    struct mkgguf_params p = MKGGUF_DEFAULT;
    p.vocab = 100;
    assert_int_equal(mkgguf_write(path, &p, &err), T9_STATUS_INVALID);
    p = MKGGUF_DEFAULT;
    p.kv_heads = 3;
    assert_int_equal(mkgguf_write(path, &p, &err), T9_STATUS_INVALID);
    p = MKGGUF_DEFAULT;
    p.arch = "mamba";
    assert_int_equal(mkgguf_write(path, &p, &err), T9_STATUS_INVALID);
    p = MKGGUF_DEFAULT;
    p.dtype = 4; /* Q4_2, which no file has any more */
    assert_int_equal(mkgguf_write(path, &p, &err), T9_STATUS_INVALID);
}

/* ---- typed getters ---- */

static void check_get(t9_status st, t9_status want, const struct t9_err *err, const char *msg)
{
    assert_int_equal(st, want);
    if (msg)
        assert_string_equal(err->msg, msg);
}

static void write_getter_file(void)
{
    struct gguf_writer w;
    struct t9_err err;
    const int8_t i8 = -3;
    const uint64_t big = (uint64_t)1 << 40;
    const double f64 = 0.5;
    const double huge = 1e300;
    const uint32_t u32s[3] = {7, 8, 9};
    const int32_t i32s[2] = {5, -1};
    const float f32s[3] = {1.5f, -2.5f, 1e30f};
    const uint8_t bools[2] = {0, 1};
    gw_init(&w);
    gw_u32(&w, "u", 5);
    gw_raw(&w, "i8", GGUF_TYPE_I8, &i8, 1);
    gw_raw(&w, "big", GGUF_TYPE_U64, &big, 8);
    gw_f32(&w, "f", 0.25f);
    gw_raw(&w, "d", GGUF_TYPE_F64, &f64, 8);
    gw_raw(&w, "huge", GGUF_TYPE_F64, &huge, 8);
    gw_bool(&w, "b", true);
    gw_str(&w, "s", STR("text"));
    gw_arr(&w, "u32s", GGUF_TYPE_U32, u32s, 3);
    gw_arr(&w, "i32s", GGUF_TYPE_I32, i32s, 2);
    gw_arr(&w, "f32s", GGUF_TYPE_F32, f32s, 3);
    gw_arr(&w, "bools", GGUF_TYPE_BOOL, bools, 2);
    gw_arr(&w, "none", GGUF_TYPE_F64, NULL, 0);
    w.version = 2;
    assert_int_equal(gw_write(&w, path, &err), T9_STATUS_OK);
    gw_deinit(&w);
}

static void test_getters(void **state)
{
    (void)state;
    struct gguf *g;
    struct t9_err err = {0};
    uint32_t u = 77;
    int64_t i = 77;
    float f = 77;
    bool b = false;
    str s;
    struct gguf_arr a;
    write_getter_file();
    assert_int_equal(gguf_open(&g, path, &err), T9_STATUS_OK);
    assert_int_equal(gguf_version(g), 2);
    assert_int_equal(gguf_tensor_count(g), 0);
    check_get(gguf_get_u32(g, "x", &u, &err), T9_STATUS_NOT_FOUND, &err,
              "m.gguf: key x is missing");
    check_get(gguf_get_u32(g, "f", &u, &err), T9_STATUS_CORRUPT, &err,
              "m.gguf: key f: type f32, expected an integer");
    check_get(gguf_get_u32(g, "i8", &u, &err), T9_STATUS_CORRUPT, &err,
              "m.gguf: key i8: -3 is negative");
    check_get(gguf_get_u32(g, "big", &u, &err), T9_STATUS_CORRUPT, &err,
              "m.gguf: key big: 1099511627776 does not fit 32 bits");
    assert_int_equal(u, 77);
    check_get(gguf_get_u32(g, "u", &u, NULL), T9_STATUS_OK, NULL, NULL);
    assert_int_equal(u, 5);
    check_get(gguf_get_i64(g, "i8", &i, &err), T9_STATUS_OK, &err, NULL);
    assert_true(i == -3);
    check_get(gguf_get_i64(g, "big", &i, &err), T9_STATUS_OK, &err, NULL);
    check_get(gguf_get_f32(g, "u", &f, &err), T9_STATUS_CORRUPT, &err,
              "m.gguf: key u: type u32, expected f32");
    check_get(gguf_get_f32(g, "f", &f, &err), T9_STATUS_OK, &err, NULL);
    assert_true(f == 0.25f);
    check_get(gguf_get_f32(g, "d", &f, &err), T9_STATUS_OK, &err, NULL);
    assert_true(f == 0.5f);
    check_get(gguf_get_f32(g, "huge", &f, &err), T9_STATUS_OK, &err, NULL);
    assert_true(isinf(f));
    check_get(gguf_get_bool(g, "b", &b, &err), T9_STATUS_OK, &err, NULL);
    assert_true(b);
    check_get(gguf_get_bool(g, "u", &b, &err), T9_STATUS_CORRUPT, &err, NULL);
    check_get(gguf_get_str(g, "s", &s, &err), T9_STATUS_OK, &err, NULL);
    assert_true(str_eqz(s, "text"));
    check_get(gguf_get_str(g, "u", &s, &err), T9_STATUS_CORRUPT, &err, NULL);
    check_get(gguf_get_arr(g, "s", &a, &err), T9_STATUS_CORRUPT, &err,
              "m.gguf: key s: type str, expected arr");
    check_get(gguf_get_arr(g, "f32s", &a, &err), T9_STATUS_OK, &err, NULL);
    assert_true(gguf_arr_f32(&a, 1) == -2.5f);
    assert_true(gguf_arr_i64(&a, 1) == -2);
    assert_true(gguf_arr_u64(&a, 1) == 0);
    assert_true(gguf_arr_u64(&a, 2) == UINT64_MAX);
    assert_true(gguf_arr_i64(&a, 2) == INT64_MAX);
    assert_true(gguf_arr_u64(&a, 3) == 0);
    assert_null(gguf_arr_str(&a, 0).p);
    check_get(gguf_get_u32_at(g, "u", 99, &u, &err), T9_STATUS_OK, &err, NULL);
    assert_int_equal(u, 5);
    check_get(gguf_get_u32_at(g, "u32s", 2, &u, &err), T9_STATUS_OK, &err, NULL);
    assert_int_equal(u, 9);
    check_get(gguf_get_u32_at(g, "u32s", 3, &u, &err), T9_STATUS_CORRUPT, &err,
              "m.gguf: key u32s: 3 elements, number 4 needed");
    check_get(gguf_get_u32_at(g, "i32s", 1, &u, &err), T9_STATUS_CORRUPT, &err, NULL);
    check_get(gguf_get_u32_at(g, "bools", 1, &u, &err), T9_STATUS_OK, &err, NULL);
    assert_int_equal(u, 1);
    check_get(gguf_get_u32_at(g, "f32s", 1, &u, &err), T9_STATUS_CORRUPT, &err, NULL);
    check_get(gguf_get_arr(g, "none", &a, &err), T9_STATUS_OK, &err, NULL);
    assert_int_equal(a.n, 0);
    gguf_close(g);
}

/* ---- refusals ---- */

static const uint8_t zeros[4096];

/* A writer with two keys and two tensors, t0 (64 x 2 F32) and t1 (32 x 4 Q8_0). */
static void good_writer(struct gguf_writer *w)
{
    const uint64_t ne0[2] = {64, 2};
    const uint64_t ne1[2] = {32, 4};
    gw_init(w);
    gw_str(w, "general.architecture", STR("x"));
    gw_u32(w, "n", 1);
    gw_tensor(w, "t0", DTYPE_F32, 2, ne0, zeros, 512);
    gw_tensor(w, "t1", DTYPE_Q8_0, 2, ne1, zeros, 136);
}

static void expect_refusal(const void *p, size_t n, t9_status want, const char *part_of_msg)
{
    struct gguf *g;
    struct t9_err err = {0};
    test_write_file(path, p, n);
    t9_status st = gguf_open(&g, path, &err);
    if (st != want || !strstr(err.msg, part_of_msg) || err.code != want)
        fail_msg("expected %s \"%s\", got %s \"%s\"", t9_status_name(want), part_of_msg,
                 t9_status_name(st), err.msg);
    assert_null(g);
    if (st != T9_STATUS_NOT_FOUND && st != T9_STATUS_INVALID)
        assert_true(str_has_prefix(str_from(err.msg), STR("m.gguf: ")));
}

/* Finishes and frees w, and expects its file to be refused. */
static void expect_writer_refused(struct gguf_writer *w, t9_status want, const char *part_of_msg)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    assert_int_equal(gw_finish(w, &out, NULL), T9_STATUS_OK);
    gw_deinit(w);
    expect_refusal(out.p, out.n, want, part_of_msg);
    buf_deinit(&out);
}

static void test_bad_headers(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct buf out;
    struct gguf *g;
    struct t9_err err;
    snprintf(path, sizeof path, "%s/none.gguf", dir);
    assert_int_equal(gguf_open(&g, path, &err), T9_STATUS_NOT_FOUND);
    assert_int_equal(gguf_open(&g, dir, &err), T9_STATUS_INVALID);
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    expect_refusal("", 0, T9_STATUS_CORRUPT, "truncated");
    expect_refusal("GGU", 3, T9_STATUS_CORRUPT, "truncated");
    expect_refusal("PK\x03\x04.......................", 24, T9_STATUS_CORRUPT, "not a GGUF file");
    expect_refusal("version https://git-lfs.github.com/spec/v1", 42, T9_STATUS_CORRUPT,
                   "Git LFS pointer");
    expect_refusal("tjgg....................", 24, T9_STATUS_UNSUPPORTED, "before GGUF");
    expect_refusal("GGUF\0\0\0\3....................", 24, T9_STATUS_UNSUPPORTED, "big-endian");
    expect_refusal("GGUF\1\0\0\0....................", 24, T9_STATUS_UNSUPPORTED, "version 1");
    expect_refusal("GGUF\4\0\0\0....................", 24, T9_STATUS_UNSUPPORTED, "version 4");
    buf_init(&out, 1 << 20);
    good_writer(&w);
    assert_int_equal(gw_finish(&w, &out, NULL), T9_STATUS_OK);
    gw_deinit(&w);
    test_write_file(path, out.p, out.n);
    assert_int_equal(gguf_open(&g, path, &err), T9_STATUS_OK); /* the base of all that follows */
    gguf_close(g);
    /* Cut anywhere, it is refused and says so. */
    for (size_t n = 0; n < out.n; n += n < 300 ? 1 : 37)
        expect_refusal(out.p, n, T9_STATUS_CORRUPT, n < 300 ? "" : "cut short");
    /* Counts that no file of this size can hold. */
    for (size_t at = 8; at <= 16; at += 8) {
        char *copy = mem_strndup(out.p, out.n);
        memset(copy + at, 0xFF, 8);
        expect_refusal(copy, out.n, T9_STATUS_CORRUPT, "header counts");
        memset(copy + at, 0, 8);
        copy[at] = 40;
        expect_refusal(copy, out.n, T9_STATUS_CORRUPT, "");
        mem_free(copy);
    }
    buf_deinit(&out);
}

static void test_bad_keys(void **state)
{
    (void)state;
    struct gguf_writer w;
    const uint8_t two = 2;
    const uint32_t nested[3] = {GGUF_TYPE_ARR, 1, 0};
    good_writer(&w);
    gw_u32(&w, "n", 2);
    expect_writer_refused(&w, T9_STATUS_CORRUPT, "key n appears twice");
    good_writer(&w);
    gw_u32(&w, "", 2);
    expect_writer_refused(&w, T9_STATUS_CORRUPT, "empty key");
    good_writer(&w);
    gw_raw(&w, "bool", GGUF_TYPE_BOOL, &two, 1);
    expect_writer_refused(&w, T9_STATUS_CORRUPT, "key bool: bool has value 2");
    good_writer(&w);
    gw_arr(&w, "bools", GGUF_TYPE_BOOL, "\1\2", 2);
    expect_writer_refused(&w, T9_STATUS_CORRUPT, "key bools: bool at index 1 has value 2");
    good_writer(&w);
    gw_raw(&w, "odd\n", (gguf_type)13, &two, 1);
    expect_writer_refused(&w, T9_STATUS_CORRUPT, "key odd?: unknown value type 13");
    good_writer(&w);
    gw_raw(&w, "nested", GGUF_TYPE_ARR, nested, sizeof nested);
    expect_writer_refused(&w, T9_STATUS_UNSUPPORTED, "key nested: arrays of arrays");
    const uint32_t odd[3] = {99, 1, 0};
    good_writer(&w);
    gw_raw(&w, "odd", GGUF_TYPE_ARR, odd, sizeof odd);
    expect_writer_refused(&w, T9_STATUS_CORRUPT, "key odd: unknown element type 99");
    const uint32_t many[3] = {GGUF_TYPE_U64, 0xFFFFFFFF, 0xFFFFFFFF};
    good_writer(&w);
    gw_raw(&w, "many", GGUF_TYPE_ARR, many, sizeof many);
    expect_writer_refused(&w, T9_STATUS_TOO_LARGE, "key many: array of 18446744073709551615");
    const uint32_t more[3] = {GGUF_TYPE_STR, 1000, 0};
    good_writer(&w);
    gw_raw(&w, "more", GGUF_TYPE_ARR, more, sizeof more);
    expect_writer_refused(&w, T9_STATUS_CORRUPT, "");
    static const uint32_t alignments[] = {0, 1, 7, 24, 33, 4, 2097152, 0x80000000};
    for (size_t i = 0; i < T9_COUNT(alignments); i++) {
        good_writer(&w);
        gw_u32(&w, "general.alignment", alignments[i]);
        expect_writer_refused(&w, T9_STATUS_CORRUPT, "general.alignment");
    }
    good_writer(&w);
    gw_str(&w, "general.alignment", STR("32"));
    expect_writer_refused(&w, T9_STATUS_CORRUPT, "key general.alignment: type str, expected u32");
}

static void bad_tensor(const char *name, uint32_t dtype, uint32_t n_dims, const uint64_t *ne,
                       uint64_t offset, t9_status want, const char *msg)
{
    struct gguf_writer w;
    good_writer(&w);
    gw_tensor_info(&w, name, dtype, n_dims, ne, offset);
    buf_append(&w.data, zeros, sizeof zeros);
    expect_writer_refused(&w, want, msg);
}

static void test_bad_tensors(void **state)
{
    (void)state;
    const uint64_t ok[5] = {32, 1, 1, 1, 1};
    const uint64_t zero[2] = {32, 0};
    const uint64_t odd[1] = {4095};
    const uint64_t huge[4] = {(uint64_t)1 << 40, (uint64_t)1 << 40, 1, 1};
    const uint64_t wide[1] = {(uint64_t)1 << 63};
    const uint64_t far[1] = {(uint64_t)1 << 20};
    const uint64_t free_at = 704; /* after t1, aligned */
    char name[300];
    bad_tensor("t0", DTYPE_F32, 1, ok, free_at, T9_STATUS_CORRUPT, "tensor t0 appears twice");
    bad_tensor("", DTYPE_F32, 1, ok, free_at, T9_STATUS_CORRUPT, "empty name");
    bad_tensor("t", DTYPE_F32, 0, ok, free_at, T9_STATUS_CORRUPT, "tensor t: 0 dimensions");
    bad_tensor("t", DTYPE_F32, 5, ok, free_at, T9_STATUS_CORRUPT, "tensor t: 5 dimensions");
    bad_tensor("t", DTYPE_F32, 2, zero, free_at, T9_STATUS_CORRUPT, "tensor t: dimension 1 is 0");
    bad_tensor("t", DTYPE_Q4_K, 1, odd, free_at, T9_STATUS_CORRUPT,
               "m.gguf: tensor t: type Q4_K has 4095 columns, not a multiple of 256");
    bad_tensor("t", 43, 1, ok, free_at, T9_STATUS_UNSUPPORTED, "tensor t: unknown type 43");
    bad_tensor("t", 33, 1, ok, free_at, T9_STATUS_UNSUPPORTED, "type Q4_0_8_8 was removed");
    bad_tensor("t", DTYPE_F32, 4, huge, free_at, T9_STATUS_CORRUPT, "overflows 64 bits");
    bad_tensor("t", DTYPE_F32, 1, wide, free_at, T9_STATUS_CORRUPT, "overflows 64 bits");
    bad_tensor("t", DTYPE_F32, 1, ok, free_at + 1, T9_STATUS_CORRUPT, "not a multiple of 32");
    bad_tensor("t", DTYPE_F32, 1, ok, UINT64_MAX - 31, T9_STATUS_CORRUPT, "overflows 64 bits");
    bad_tensor("t", DTYPE_F32, 1, ok, 1 << 20, T9_STATUS_CORRUPT, "cut short");
    bad_tensor("t", DTYPE_F32, 1, far, free_at, T9_STATUS_CORRUPT, "cut short");
    bad_tensor("t", DTYPE_F32, 1, ok, 512, T9_STATUS_CORRUPT, "overlaps that of");
    bad_tensor("t", DTYPE_F32, 1, ok, 480, T9_STATUS_CORRUPT, "overlaps that of t0");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    bad_tensor(name, DTYPE_F32, 1, ok, free_at, T9_STATUS_TOO_LARGE, "tensor name");
    name[GGUF_TENSOR_NAME_MAX] = 0;
    bad_tensor(name, 43, 1, ok, free_at, T9_STATUS_UNSUPPORTED, "nnn...: unknown type 43");
}

/* ---- split models ---- */

static void write_part(uint32_t no, uint32_t named_no, uint32_t said_count, int32_t total,
                       const char *tensor)
{
    struct gguf_writer w;
    const uint64_t ne[1] = {8};
    float v[8];
    uint16_t no16 = (uint16_t)no;
    uint16_t count16 = (uint16_t)said_count;
    for (int i = 0; i < 8; i++)
        v[i] = (float)no;
    gw_init(&w);
    if (no == 0)
        gw_str(&w, "general.architecture", STR("x"));
    gw_raw(&w, "split.no", GGUF_TYPE_U16, &no16, 2);
    gw_raw(&w, "split.count", GGUF_TYPE_U16, &count16, 2);
    if (total >= 0)
        gw_raw(&w, "split.tensors.count", GGUF_TYPE_I32, &total, 4);
    gw_tensor(&w, tensor, DTYPE_F32, 1, ne, v, sizeof v);
    snprintf(path, sizeof path, "%s/s-%05u-of-00003.gguf", dir, named_no + 1);
    assert_int_equal(gw_write(&w, path, NULL), T9_STATUS_OK);
    gw_deinit(&w);
}

static void write_three(void)
{
    write_part(0, 0, 3, 3, "a");
    write_part(1, 1, 3, 3, "b");
    write_part(2, 2, 3, 3, "c");
}

static void expect_split_refused(t9_status want, const char *msg)
{
    struct gguf *g;
    struct t9_err err = {0};
    t9_status st = gguf_open(&g, path, &err);
    if (st != want || !strstr(err.msg, msg))
        fail_msg("expected %s \"%s\", got %s \"%s\"", t9_status_name(want), msg, t9_status_name(st),
                 err.msg);
}

static void test_split(void **state)
{
    (void)state;
    struct gguf *g;
    struct t9_err err = {0};
    write_three();
    for (int i = 1; i <= 3; i++) {
        float v[8];
        snprintf(path, sizeof path, "%s/s-%05d-of-00003.gguf", dir, i);
        assert_int_equal(gguf_open(&g, path, &err), T9_STATUS_OK);
        assert_int_equal(gguf_part_count(g), 3);
        assert_string_equal(gguf_file_name(g), "s-00001-of-00003.gguf");
        assert_int_equal(gguf_tensor_count(g), 3);
        assert_non_null(gguf_kv_find(g, "general.architecture"));
        const struct gguf_tensor *t = gguf_tensor_find(g, "c");
        assert_int_equal(t->part, 2);
        assert_int_equal(gguf_tensor_read(g, t, 0, v, sizeof v, &err), T9_STATUS_OK);
        assert_true(v[7] == 2);
        gguf_close(g);
    }
    write_part(1, 1, 3, 3, "a");
    expect_split_refused(T9_STATUS_CORRUPT, "s-00002-of-00003.gguf: tensor a appears twice");
    write_part(1, 1, 4, 3, "b");
    expect_split_refused(T9_STATUS_CORRUPT, "says it is part 2 of 4, its name says 2 of 3");
    write_part(2, 1, 3, 3, "b");
    expect_split_refused(T9_STATUS_CORRUPT, "says it is part 3 of 3, its name says 2 of 3");
    write_three();
    write_part(0, 0, 3, 4, "a");
    expect_split_refused(T9_STATUS_CORRUPT, "split.tensors.count is 4 but the 3 parts hold 3");
    write_part(0, 0, 3, -1, "a");
    expect_split_refused(T9_STATUS_CORRUPT, "split.tensors.count is missing");
    write_three();
    unlink(path); /* the third */
    expect_split_refused(T9_STATUS_NOT_FOUND, "s-00003-of-00003.gguf: part 3 of 3 is missing");
    write_three();
    char other[128];
    snprintf(other, sizeof other, "%s/renamed.gguf", dir);
    assert_int_equal(rename(path, other), 0);
    snprintf(path, sizeof path, "%s", other);
    expect_split_refused(T9_STATUS_CORRUPT, "renamed.gguf: one of 3 parts: name them");
    snprintf(path, sizeof path, "%s/x-00001-of-99999.gguf", dir);
    expect_split_refused(T9_STATUS_TOO_LARGE, "99999 parts");
    struct gguf_writer w;
    good_writer(&w);
    snprintf(path, sizeof path, "%s/x-00001-of-00002.gguf", dir);
    assert_int_equal(gw_write(&w, path, NULL), T9_STATUS_OK);
    gw_deinit(&w);
    expect_split_refused(T9_STATUS_CORRUPT, "has no split.no and split.count");
    snprintf(path, sizeof path, "%s/m.gguf", dir);
}

/* ---- failing allocations, mutations ---- */

static void test_fail_nth(void **state)
{
    (void)state;
    struct mkgguf_params p = MKGGUF_DEFAULT;
    p.layers = 1;
    assert_int_equal(mkgguf_write(path, &p, NULL), T9_STATUS_OK);
    uint64_t nth = 1;
    for (;; nth++) {
        struct gguf *g;
        struct t9_err err = {0};
        mem_test_fail_nth(nth);
        t9_status st = gguf_open(&g, path, &err);
        mem_test_fail_nth(0);
        if (st == T9_STATUS_OK) {
            gguf_close(g);
            break;
        }
        assert_int_equal(st, T9_STATUS_NOMEM);
        assert_null(g);
        assert_true(nth < 100);
    }
    assert_true(nth > 8);
}

/* Touches everything that an opened model offers. */
static void walk(const struct gguf *g)
{
    uint8_t data[256];
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        sum += kv->key.n;
        if (kv->type == GGUF_TYPE_STR && kv->s.n)
            sum += (uint8_t)kv->s.p[kv->s.n - 1];
        for (uint64_t k = 0; kv->type == GGUF_TYPE_ARR && k < kv->arr.n; k++) {
            str s = gguf_arr_str(&kv->arr, k);
            sum += s.n ? (uint8_t)s.p[s.n - 1] : 0;
            sum += gguf_arr_u64(&kv->arr, k) + (uint64_t)gguf_arr_i64(&kv->arr, k);
        }
    }
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        size_t n = t->size_bytes < sizeof data ? (size_t)t->size_bytes : sizeof data;
        assert_int_equal(gguf_tensor_read(g, t, t->size_bytes - n, data, n, NULL), T9_STATUS_OK);
        sum += data[0];
    }
    assert_true(sum != 0);
}

/* One mutation of the copy: flipped bits, a cut, a number replaced by an extreme one. */
static size_t mutate(uint8_t *p, size_t n, size_t n_meta, uint64_t *seed)
{
    static const uint64_t extremes[] = {0,          1,          UINT64_MAX, (uint64_t)1 << 63,
                                        UINT32_MAX, 1u << 20,   255,        (uint64_t)1 << 32,
                                        7,          0x7FFFFFFF, 65536,      (uint64_t)-32};
    size_t at = test_random(seed) % (n_meta - 8);
    switch (test_random(seed) % 4) {
    case 0:
        for (uint64_t k = test_random(seed) % 8; k < 8; k++)
            p[test_random(seed) % n_meta] ^= (uint8_t)(1u << (test_random(seed) % 8));
        return n;
    case 1: return test_random(seed) % 2 ? at : test_random(seed) % n;
    case 2:
        memcpy(p + at, &extremes[test_random(seed) % T9_COUNT(extremes)],
               test_random(seed) % 2 ? 8 : 4);
        return n;
    default:
        p[8 + test_random(seed) % 16] = (uint8_t)test_random(seed); /* the header's counts */
        return n;
    }
}

static void test_mutations(void **state)
{
    (void)state;
    struct mkgguf_params p = MKGGUF_DEFAULT;
    struct buf model;
    uint64_t seed = 20261129;
    p.width = 32;
    p.heads = 2;
    p.kv_heads = 1;
    p.ffn = 32;
    p.layers = 1;
    p.vocab = 280;
    assert_int_equal(mkgguf_write(path, &p, NULL), T9_STATUS_OK);
    buf_init(&model, 1 << 20);
    assert_int_equal(file_read_all(path, &model, NULL), T9_STATUS_OK);
    struct gguf *g;
    assert_int_equal(gguf_open(&g, path, NULL), T9_STATUS_OK);
    size_t n_meta = (size_t)gguf_tensor_at(g, 0)->offset;
    gguf_close(g);
    uint8_t *copy = mem_alloc(model.n);
    int n_refused = 0;
    for (int i = 0; i < 600; i++) {
        struct t9_err err = {0};
        memcpy(copy, model.p, model.n);
        size_t n = mutate(copy, model.n, n_meta, &seed);
        test_write_file(path, copy, n);
        t9_status st = gguf_open(&g, path, &err);
        if (st == T9_STATUS_OK) {
            walk(g);
            gguf_close(g);
            continue;
        }
        n_refused++;
        assert_true(st == T9_STATUS_CORRUPT || st == T9_STATUS_UNSUPPORTED ||
                    st == T9_STATUS_TOO_LARGE);
        assert_int_equal(err.code, st);
        assert_true(str_has_prefix(str_from(err.msg), STR("m.gguf: ")));
        assert_true(strlen(err.msg) > 12);
    }
    assert_true(n_refused > 200 && n_refused < 600);
    mem_free(copy);
    buf_deinit(&model);
}

/* ---- real files, where they are ---- */

static void test_fixtures(void **state)
{
    (void)state;
    glob_t files;
    if (glob(T9_FIXTURES_DIR "/models*/*/*.gguf", 0, NULL, &files) != 0)
        skip();
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct gguf *g;
        struct t9_err err = {0};
        if (gguf_open(&g, files.gl_pathv[i], &err) != T9_STATUS_OK)
            fail_msg("%s", err.msg);
        walk(g);
        gguf_close(g);
    }
    globfree(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),     cmocka_unit_test(test_mkgguf_refuses),
        cmocka_unit_test(test_getters),   cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_keys),  cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_split),     cmocka_unit_test(test_fail_nth),
        cmocka_unit_test(test_mutations), cmocka_unit_test(test_fixtures),
    };
    return cmocka_run_group_tests_name("gguf", tests, setup, teardown);
}
