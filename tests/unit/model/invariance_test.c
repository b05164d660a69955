/*
 * The same bits, always (P1), by hashes of logits rows: a sequence alone in one batch gives the
 * hashes that every other way of computing it must give: chunks of any size, token by token, ragged
 * batches with other sequences, scattered pages, any number of threads, any instruction set. `cpu`
 * is also held to `canon`, row by row.
 */
#include "lib/forward.h"
#include "lib/mkgguf.h"
#include "lib/quantize.h"
#include "lib/t9test.h"
#include "unit/model/fixture.h"

#include "base/hash.h"
#include "base/mem.h"
#include "gguf/dtype.h"

/* Sanitizers make the scalar backends very slow: shorter sequences (still over a page), fewer
 * types. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N = 40, TYPE_STEP = 4 };
#else
enum { N = 72, TYPE_STEP = 1 };
#endif
enum { N_SEQS = 3 };

/* What is run: a model file on a backend; `brief`: in ragged batches alone, which hold rows of all
 * kinds. */
struct subject {
    const char *name, *path;
    struct fwd_params p;
    bool brief;
};

static void must(t9_status st, const struct subject *s, const struct t9_err *err)
{
    if (st != T9_STATUS_OK)
        fail_msg("%s on %s: %s", s->name, s->p.backend, err->msg);
}

/* False when this build or machine has no such backend. */
static bool open_subject(struct fwd *f, const struct subject *s)
{
    struct t9_err err = {0};
    t9_status st = fwd_open(f, s->path, &s->p, &err);
    if (st == T9_STATUS_UNSUPPORTED) {
        print_message("%s on %s %s: skipped: %s\n", s->name, s->p.backend, s->p.isa ? s->p.isa : "",
                      err.msg);
        return false;
    }
    must(st, s, &err);
    return true;
}

/* Sequence k of a test: other tokens and another length each. */
static int32_t make_tokens(int32_t k, int32_t n_vocab, int32_t out[N])
{
    uint64_t seed = 1000 + (uint64_t)k;
    for (int32_t i = 0; i < N; i++)
        out[i] = (int32_t)(test_random(&seed) % (uint64_t)n_vocab);
    return N - 17 * k;
}

static void hash_rows(const struct fwd *f, const struct fwd_seq *s, uint64_t *out)
{
    size_t n_vocab = (size_t)model_info(f->m)->n_vocab;
    for (int32_t i = 0; i < s->done; i++)
        out[i] = hash_xxh3_64(fwd_logits(f, s, i), n_vocab * sizeof(float), 0);
}

static void same_rows(const struct subject *s, const char *what, int32_t arg, int32_t seq,
                      const uint64_t *got, const uint64_t *want, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (got[i] != want[i])
            fail_msg("%s on %s %s, %s %d: sequence %d, position %d has other bits", s->name,
                     s->p.backend, s->p.isa ? s->p.isa : "", what, arg, seq, i);
    }
}

/* Hashes of a sequence that is alone in its batches; with `logits` set, its rows, too. */
static void run_one(struct fwd *f, const struct subject *s, int32_t chunk, int32_t k,
                    uint64_t out[N], float **logits)
{
    struct t9_err err = {0};
    int32_t tokens[N], n = make_tokens(k, model_info(f->m)->n_vocab, tokens);
    struct fwd_seq seq;
    must(fwd_seq_init(f, &seq, tokens, n, n, &err), s, &err);
    must(fwd_run(f, &seq, chunk, &err), s, &err);
    hash_rows(f, &seq, out);
    if (logits) {
        size_t n_bytes = (size_t)n * (size_t)model_info(f->m)->n_vocab * sizeof(float);
        *logits = mem_alloc(n_bytes);
        assert_non_null(*logits);
        memcpy(*logits, seq.logits, n_bytes);
    }
    fwd_seq_deinit(f, &seq);
}

static int32_t seq_length(int32_t k)
{
    return N - 17 * k;
}

/* One sequence in chunks must give what it gave. */
static void check_one(struct fwd *f, const struct subject *s, const char *what, int32_t arg,
                      int32_t chunk, int32_t k, uint64_t want[N_SEQS][N])
{
    uint64_t got[N];
    run_one(f, s, chunk, k, got, NULL);
    same_rows(s, what, arg, k, got, want[k], seq_length(k));
}

/* Every path gets some of the ways; two threads with SIMD get them all, in the full run with both
 * types of cache. */
static bool is_thorough(const struct subject *s)
{
    return s->p.isa && strcmp(s->p.isa, "scalar") != 0 && s->p.n_threads == 2 &&
           (s->p.kv_type == KV_TYPE_F16 || test_is_full());
}

static void check_chunks(struct fwd *f, const struct subject *s, uint64_t want[N_SEQS][N])
{
    static const int32_t chunks[] = {1, 33, 2, 3, 7, 16, 31, 32};
    size_t n = is_thorough(s) ? T9_COUNT(chunks) : test_is_full() ? 2 : 1;
    for (size_t i = 0; i < n; i++) {
        int32_t last = test_is_full() ? N_SEQS - 1 : 0; /* a longer text has the shorter's chunks */
        for (int32_t k = 0; k <= last; k++)
            check_one(f, s, "chunks of", chunks[i], chunks[i], k, want);
    }
}

/* Random schedules: each step gives some of the sequences a chunk, often a single token. */
static void check_ragged(struct fwd *f, const struct subject *s, uint64_t want[N_SEQS][N])
{
    struct t9_err err = {0};
    int32_t n_rounds = is_thorough(s) ? (test_is_full() ? 6 : 4) : test_is_full() ? 2 : 1;
    for (int32_t round = 0; round < n_rounds; round++) {
        uint64_t seed = (uint64_t)round, hashes[N];
        int32_t tokens[N_SEQS][N], left = 0;
        struct fwd_seq seqs[N_SEQS];
        for (int32_t k = 0; k < N_SEQS; k++) {
            int32_t n = make_tokens(k, model_info(f->m)->n_vocab, tokens[k]);
            must(fwd_seq_init(f, &seqs[k], tokens[k], n, n, &err), s, &err);
            left += n;
        }
        while (left > 0) {
            struct fwd_chunk chunks[N_SEQS];
            int32_t n_chunks = 0;
            for (int32_t k = 0; k < N_SEQS; k++) {
                int32_t rest = seqs[k].n - seqs[k].done;
                int32_t n = test_random(&seed) % 2 ? 1 : 1 + (int32_t)(test_random(&seed) % 21);
                n = n > rest ? rest : n;
                if (n > 0 && test_random(&seed) % 4 != 0)
                    chunks[n_chunks++] = (struct fwd_chunk){.seq = k, .n = n};
            }
            if (n_chunks == 0)
                continue;
            must(fwd_step(f, seqs, chunks, n_chunks, &err), s, &err);
            for (int32_t i = 0; i < n_chunks; i++)
                left -= chunks[i].n;
        }
        for (int32_t k = 0; k < N_SEQS; k++) {
            hash_rows(f, &seqs[k], hashes);
            same_rows(s, "ragged batches, round", round, k, hashes, want[k], seq_length(k));
        }
        /* Backwards, so that the next round's pages are in another order. */
        for (int32_t k = 0; k < N_SEQS; k++)
            fwd_seq_deinit(f, &seqs[k]);
    }
}

/* Rows that are guessed, of which some hold, and none: what comes after has the bits that it would
 * have without them. */
static void check_guesses(struct fwd *f, const struct subject *s, uint64_t want[N_SEQS][N])
{
    struct t9_err err = {0};
    uint64_t seed = 77, hashes[N];
    int32_t tokens[N], n = make_tokens(1, model_info(f->m)->n_vocab, tokens);
    struct fwd_seq seq;
    must(fwd_seq_init(f, &seq, tokens, n, n, &err), s, &err);
    while (seq.done < n) {
        struct fwd_chunk c = {.n = 1 + (int32_t)(test_random(&seed) % 11)};
        c.n = c.n < n - seq.done ? c.n : n - seq.done;
        int32_t most = c.n < STATE_JOURNAL_ROWS ? c.n : STATE_JOURNAL_ROWS;
        c.guess = (int32_t)(test_random(&seed) % (uint64_t)(most + 1));
        c.good = (int32_t)(test_random(&seed) % (uint64_t)(c.guess + 1));
        must(fwd_step(f, &seq, &c, 1, &err), s, &err);
    }
    hash_rows(f, &seq, hashes);
    same_rows(s, "guesses, seed", 77, 1, hashes, want[1], n);
    fwd_seq_deinit(f, &seq);
}

/* All ways of one subject against `want`; with `fill` set, `want` is computed first. */
static bool check_subject(struct subject s, uint64_t want[N_SEQS][N], bool fill)
{
    struct fwd f;
    if (!open_subject(&f, &s))
        return false;
    for (int32_t k = 0; k < N_SEQS; k++) {
        if (fill)
            run_one(&f, &s, 64, k, want[k], NULL);
        else
            check_one(&f, &s, "threads", s.p.n_threads, 64, k, want);
    }
    check_ragged(&f, &s, want);
    if (f.state_pool)
        check_guesses(&f, &s, want);
    if (!s.brief)
        check_chunks(&f, &s, want);
    fwd_close(&f);
    if (s.brief)
        return true;
    s.p.page_seed = 99;
    assert_true(open_subject(&f, &s));
    check_one(&f, &s, "scattered pages, seed", 99, 17, 0, want);
    fwd_close(&f);
    return true;
}

/* A row must depend on its sequence: equal hashes everywhere would prove nothing. */
static void rows_differ(uint64_t want[N_SEQS][N])
{
    assert_true(want[0][N / 2] != want[1][N / 2]);
    assert_true(want[0][3] != want[0][4]);
}

static void check_model(const char *name, const char *path, kv_type kv)
{
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    uint64_t want[N_SEQS][N];
    struct subject s = {.name = name, .path = path, .p = {.backend = "ref", .n_threads = 1}};
    s.p.kv_type = kv;
    s.p.max_rows = 70;
    s.brief = kv != KV_TYPE_F16 && !test_is_full();
    assert_true(check_subject(s, want, true));
    rows_differ(want);
    s.p.backend = "canon";
    s.brief = !test_is_full(); /* what cpu is held to below in all ways */
    if (!check_subject(s, want, true))
        return;
    rows_differ(want);
    s.p.backend = "cpu";
    int n_checked = 0;
    for (size_t i = 0; i < T9_COUNT(isas); i++) {
        s.p.isa = isas[i];
        bool scalar = strcmp(isas[i], "scalar") == 0; /* canon's own kernels on the pool */
        s.brief = scalar && kv != KV_TYPE_F16 && !test_is_full();
        for (s.p.n_threads = scalar ? 3 : 1; s.p.n_threads <= (scalar ? 3 : 4); s.p.n_threads++) {
            if (!check_subject(s, want, false))
                break;
            n_checked++;
        }
    }
    print_message("%-14s %s: ref and canon invariant; cpu equal to canon in %d settings\n", name,
                  kv_type_name(kv), n_checked);
}

static void check_fixture(const char *name)
{
    char path[512];
    if (!fixture_path(path, sizeof(path), name, "model.gguf")) {
        print_message("skipped: no fixture %s\n", name);
        skip();
    }
    check_model(name, path, KV_TYPE_F16);
    bool slow = strcmp(name, "gpt-oss") == 0 || strcmp(name, "lfm2moe") == 0 ||
                strncmp(name, "qwen35", 6) == 0;
    if (!slow || test_is_full())
        check_model(name, path, KV_TYPE_Q8_0);
    /* The cache's type knows nothing of the architecture: one is enough in the short run. */
    if (strcmp(name, "llama") != 0 && !test_is_full())
        return;
    check_model(name, path, KV_TYPE_F32);
    check_model(name, path, KV_TYPE_BF16);
}

static void test_gemma3(void **state)
{
    (void)state;
    check_fixture("gemma3");
}

static void test_gemma4(void **state)
{
    (void)state;
    check_fixture("shape-gemma4");
    if (!test_is_full()) /* they have no layer that this one has not */
        return;
    check_fixture("gemma4-e");
    check_fixture("gemma4-moe");
}

static void test_gpt_oss(void **state)
{
    (void)state;
    check_fixture("gpt-oss");
}

static void test_lfm2(void **state)
{
    (void)state;
    if (test_is_full()) /* it has no layer that the other has not */
        check_fixture("lfm2");
    check_fixture("lfm2moe");
}

static void test_qwen35(void **state)
{
    (void)state;
    check_fixture("shape-qwen3next");
    if (!test_is_full()) /* they have no layer that this one has not, but for the heads' order */
        return;
    check_fixture("qwen35");
    check_fixture("qwen35moe");
}

static void test_llama(void **state)
{
    (void)state;
    check_fixture("llama");
}

static void test_ministral3(void **state)
{
    (void)state;
    check_fixture("ministral3");
}

static void test_qwen2(void **state)
{
    (void)state;
    check_fixture("qwen2");
}

static void test_qwen3(void **state)
{
    (void)state;
    check_fixture("qwen3");
}

static void test_qwen3moe(void **state)
{
    (void)state;
    check_fixture("qwen3moe");
}

static void test_qwen3vl(void **state)
{
    (void)state;
    check_fixture("qwen3vl-media");
}

/* ---- quantised models of width 256 ---- */

/* Logits of the first sequence on a backend, which the caller frees, and hashes of the first n. */
static float *logits_of(const struct subject *s, int32_t n, uint64_t hashes[N_SEQS][N],
                        size_t *n_vocab)
{
    struct fwd f;
    float *out = NULL;
    assert_true(open_subject(&f, s));
    for (int32_t k = 0; k < n; k++)
        run_one(&f, s, 64, k, hashes[k], k == 0 ? &out : NULL);
    *n_vocab = (size_t)model_info(f.m)->n_vocab;
    fwd_close(&f);
    return out;
}

/* Against canon: every path alone, the SIMD ones also in chunks, ragged and with other threads; of
 * these `few` leaves token by token. */
static int check_quant_paths(struct subject s, uint64_t want[N_SEQS][N], bool few)
{
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    int n_checked = 0;
    s.p.backend = "cpu";
    for (size_t i = 0; i < T9_COUNT(isas); i++) {
        bool scalar = i == 0;
        s.p.isa = isas[i];
        for (s.p.n_threads = 1; s.p.n_threads <= (scalar ? 1 : 3); s.p.n_threads += 2) {
            struct fwd f;
            if (!open_subject(&f, &s))
                break;
            check_one(&f, &s, "threads", s.p.n_threads, 64, scalar ? N_SEQS - 1 : 0, want);
            if (!scalar && few) {
                check_one(&f, &s, "chunks of", 1, 1, N_SEQS - 1, want);
            } else if (!scalar) {
                check_chunks(&f, &s, want);
                check_ragged(&f, &s, want);
            }
            if (!scalar && f.state_pool)
                check_guesses(&f, &s, want);
            fwd_close(&f);
            n_checked++;
        }
    }
    return n_checked;
}

static void check_made(const char *what, const struct mkgguf_params *mp)
{
    char dir[64], path[128], name[64];
    struct t9_err err = {0};
    uint64_t want[N_SEQS][N];
    size_t n_vocab;
    test_tmpdir(dir);
    snprintf(path, sizeof(path), "%s/m.gguf", dir);
    snprintf(name, sizeof(name), "%s %s%s", mp->arch, gguf_dtype_name(mp->dtype), what);
    if (mkgguf_write(path, mp, &err) != T9_STATUS_OK)
        fail_msg("%s: %s", name, err.msg);
    struct subject s = {.name = name, .path = path, .p = {.backend = "ref", .n_threads = 1}};
    s.p.max_rows = 70;
    float *ref = logits_of(&s, 1, want, &n_vocab);
    s.p.backend = "canon";
    float *canon = logits_of(&s, N_SEQS, want, &n_vocab);
    rows_differ(want);
    bool exact = quantize_is_exact(mp->dtype), routed = mkgguf_has_experts(mp);
    double e = (routed ? fixture_error_median : fixture_error)(canon, ref, N, (int32_t)n_vocab);
    int n_checked = check_quant_paths(s, want, !exact && !test_is_full());
    print_message("%-14s canon differs from ref by %.3g; cpu equal to canon in %d settings\n", name,
                  e, n_checked);
    /* Random codes have larger outliers than weights that were quantised; a delta net brings random
     * keys, short or long, to one length. */
    bool delta = strncmp(mp->arch, "qwen35", 6) == 0 || strcmp(mp->arch, "qwen3next") == 0;
    if (!(e <= (exact && !delta ? 0.05 : 0.1)))
        fail_msg("%s: canon differs from ref by %g", name, e);
    mem_free(ref);
    mem_free(canon);
    (void)unlink(path);
    (void)rmdir(dir);
}

static void check_quant(const char *arch, uint32_t dtype, bool mix)
{
    struct mkgguf_params mp = MKGGUF_DEFAULT;
    mp.arch = arch;
    mp.dtype = dtype;
    mp.mix = mix;
    mp.untied = mix;
    check_made(mix ? " mix" : "", &mp);
}

static void test_quantised(void **state)
{
    (void)state;
    static const char *const archs[] = {"llama",    "qwen2",     "qwen3",    "gemma3", "mistral3",
                                        "qwen3moe", "gpt-oss",   "qwen3vl",  "lfm2",   "lfm2moe",
                                        "qwen35",   "qwen35moe", "qwen3next"};
    uint32_t n = 0;
    for (uint32_t id = 0; id < DTYPE_ID_END; id++) {
        if (dtype_can_dequantize(id) && n++ % TYPE_STEP == 0)
            check_quant(archs[n % T9_COUNT(archs)], id, false);
    }
    check_quant("llama", DTYPE_Q4_K, true);
    check_quant("qwen3", DTYPE_Q5_K, true);
    check_quant("qwen2", DTYPE_IQ3_XXS, true);
    check_quant("qwen3moe", DTYPE_Q4_K, true);
    check_quant("gpt-oss", DTYPE_MXFP4, true);
}

/* Shapes of experts: odd widths, one layer, a row's experts all there are or one of many. */
static void test_experts(void **state)
{
    (void)state;
    struct mkgguf_params mp = MKGGUF_DEFAULT;
    mp.arch = "qwen3moe";
    mp.dtype = DTYPE_Q4_K;
    mp.mix = mp.merged = true;
    mp.experts = 128;
    mp.experts_used = 8;
    mp.ffn = 96;
    check_made(" mix, 8 of 128, merged", &mp);
    mp.merged = false;
    mp.layers = 1;
    mp.experts = mp.experts_used = 3;
    mp.ffn = 352;
    mp.head_dim = 48;
    check_made(" mix, 3 of 3", &mp);
    mp = MKGGUF_DEFAULT;
    mp.arch = "gpt-oss";
    mp.dtype = DTYPE_MXFP4;
    mp.width = 288;
    mp.heads = 6;
    mp.kv_heads = 1;
    mp.ffn = 160;
    mp.experts = 32;
    mp.experts_used = 4;
    mp.untied = true;
    check_made(", 4 of 32", &mp);
    mp.experts_used = 1;
    mp.dtype = DTYPE_BF16;
    check_made(", 1 of 32", &mp);
}

/* Its three forms: heads of 512 and 256 with keys taken for values, per-layer inputs with shared
 * keys, experts. The window is smaller than the sequences. */
static void test_gemma4_made(void **state)
{
    (void)state;
    struct mkgguf_params mp = MKGGUF_DEFAULT;
    mp.arch = "gemma4";
    mp.dtype = DTYPE_Q4_K;
    mp.mix = true;
    mp.head_dim = 512;
    mp.heads = 2;
    check_made(" mix, dense", &mp);
    mp.head_dim = 64;
    mp.heads = 4;
    mp.layers = 5;
    mp.ple = 64;
    mp.shared_kv = 2;
    check_made(" mix, per-layer inputs", &mp);
    mp.ple = mp.shared_kv = 0;
    mp.layers = 3;
    mp.ffn = 256;
    mp.experts = 16;
    mp.experts_used = 4;
    mp.merged = true;
    mp.dtype = DTYPE_Q8_0;
    check_made(" mix, experts", &mp);
}

/* Delta nets: heads in both orders, fused tensors, one head, sizes that fill no vector. */
static void test_delta(void **state)
{
    (void)state;
    struct mkgguf_params mp = MKGGUF_DEFAULT;
    mp.arch = "qwen3next";
    mp.dtype = DTYPE_Q4_K;
    mp.mix = mp.merged = true;
    mp.ssm_heads = 6;
    mp.ssm_dim = 40;
    check_made(" mix, fused, 6 heads of 40", &mp);
    mp.arch = "qwen35";
    mp.merged = false;
    mp.layers = 3;
    mp.period = 3;
    mp.ssm_heads = mp.ssm_key_heads = 1;
    mp.ssm_dim = 128;
    check_made(" mix, a head of 128", &mp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma3),      cmocka_unit_test(test_gemma4),
        cmocka_unit_test(test_gemma4_made), cmocka_unit_test(test_gpt_oss),
        cmocka_unit_test(test_lfm2),        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_ministral3),  cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_qwen3),       cmocka_unit_test(test_qwen3moe),
        cmocka_unit_test(test_quantised),   cmocka_unit_test(test_experts),
        cmocka_unit_test(test_qwen3vl),     cmocka_unit_test(test_qwen35),
        cmocka_unit_test(test_delta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
