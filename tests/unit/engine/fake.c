/* fake.c - see fake.h. Defines what model/ and backend/ would. */
#include "fake.h"

#include "base/clock.h"
#include "base/hash.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct be *fake_be_new(void)
{
    struct be *be = calloc(1, sizeof *be);
    sem_init(&be->permit, 0, 0);
    sem_init(&be->done, 0, 0);
    return be;
}

void fake_be_free(struct be *be)
{
    sem_destroy(&be->permit);
    sem_destroy(&be->done);
    free(be);
}

struct model *fake_model(void)
{
    static struct model m = {
        .info = {
            .arch = "fake", .n_layers = 1, .n_vocab = FAKE_VOCAB, .context_length = FAKE_CONTEXT}};
    return &m;
}

struct model *fake_hybrid(void)
{
    static struct model m = {.info = {.arch = "fake",
                                      .n_layers = 1,
                                      .n_recurrent = 1,
                                      .n_vocab = FAKE_VOCAB,
                                      .context_length = FAKE_CONTEXT}};
    return &m;
}

const struct vocab *fake_vocab(void)
{
    static const uint8_t types[FAKE_TOKENS];
    static const uint8_t flags[FAKE_TOKENS] = {[FAKE_EOG] = VOCAB_FLAG_EOG};
    static const uint32_t offsets[FAKE_TOKENS + 1];
    static const int32_t eog[1] = {FAKE_EOG};
    /* The last one lies in the padding: it must not be written beyond the sampled rows. */
    static const int32_t suppress[2] = {FAKE_SUPPRESSED, FAKE_VOCAB + 5};
    static const struct vocab v = {.n_tokens = FAKE_TOKENS,
                                   .type = types,
                                   .flags = flags,
                                   .offset = offsets,
                                   .bytes = "",
                                   .eog = eog,
                                   .n_eog = 1,
                                   .suppress = suppress,
                                   .n_suppress = 2};
    return &v;
}

static void logits_of_hash(uint64_t h, int32_t last, float out[FAKE_VOCAB])
{
    for (uint32_t j = 0; j < FAKE_VOCAB; j++) {
        uint64_t x = hash_xxh3_64(&j, sizeof j, h);
        out[j] = (float)(x >> 40) * (6.0f / 16777216.0f);
    }
    /* Rows that must never be sampled look best. */
    out[FAKE_SUPPRESSED] = 50.0f;
    out[FAKE_TOKENS + 1] = 60.0f;
    out[FAKE_POISON] = -50.0f;
    if (last == FAKE_POISON) {
        out[7] = NAN;
    }
}

static uint64_t chain(uint64_t h, int32_t token)
{
    return hash_xxh3_64(&token, sizeof token, h);
}

void fake_logits(const int32_t *tokens, int32_t n, float out[FAKE_VOCAB])
{
    uint64_t h = 0;
    for (int32_t i = 0; i < n; i++)
        h = chain(h, tokens[i]);
    logits_of_hash(h, tokens[n - 1], out);
}

/* ---- model.h ---- */

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

t9_status model_kv_geom(const struct model *m, kv_type type, struct kv_geom *out,
                        struct t9_err *err)
{
    (void)m;
    return kv_geom_init_same(out, 1, 1, 8, type) ? T9_STATUS_OK
                                                 : t9_fail(err, T9_STATUS_INVALID, "geometry");
}

void model_state_geom(const struct model *m, struct state_geom *out)
{
    const struct state_shape shape = {.n_layers = m->info.n_recurrent, .taps = 2, .channels = 4};
    const struct state_shape none = {0};
    (void)state_geom_init(out, m->info.n_recurrent > 0 ? &shape : &none);
}

t9_status model_measure(const struct model *m, const struct kv_geom *kv, int32_t max_rows,
                        int32_t max_outputs, size_t *scratch_bytes, size_t *n_ops,
                        struct t9_err *err)
{
    (void)m, (void)kv, (void)max_rows, (void)max_outputs, (void)err;
    *scratch_bytes = 4096;
    *n_ops = 1;
    return T9_STATUS_OK;
}

t9_status model_forward(const struct model *m, struct cx *cx, const struct batch *b,
                        struct t9_err *err)
{
    (void)m;
    struct op op = {.kind = OP_ADD, .n_src = 1};
    memcpy(&op.src[0].p, &b, sizeof b);
    cx->status = cx->submit(cx, &op);
    return cx->status == T9_STATUS_OK ? T9_STATUS_OK : t9_fail(err, cx->status, "submit");
}

/* ---- be.h ---- */

const char *be_numerics(const struct be *be)
{
    (void)be;
    return "fake-1";
}

t9_status be_reserve(struct be *be, size_t size_bytes, void **out, struct t9_err *err)
{
    void *p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return t9_fail(err, T9_STATUS_NOMEM, "no address space for %zu bytes", size_bytes);
    atomic_fetch_add(&be->reserved, 1);
    *out = p;
    return T9_STATUS_OK;
}

void be_decommit(struct be *be, void *p, size_t size_bytes)
{
    (void)be;
    madvise(p, size_bytes, MADV_DONTNEED);
}

void be_want_huge(struct be *be, void *p, size_t size_bytes)
{
    (void)be;
    (void)p;
    (void)size_bytes;
}

void be_unreserve(struct be *be, void *p, size_t size_bytes)
{
    atomic_fetch_sub(&be->reserved, 1);
    munmap(p, size_bytes);
}

static int32_t *slot_of(const struct batch *b, int32_t row, int32_t idx)
{
    const int32_t *table = b->page_table + (size_t)b->row_seq[row] * (size_t)b->page_table_stride;
    char *page = kv_page_k(&b->kv->layers[0], b->kv_pool, table[idx / KV_PAGE_TOKENS], 0);
    return (int32_t *)(void *)page + idx % KV_PAGE_TOKENS;
}

static bool rules_hold(const struct batch *b, int32_t row)
{
    int32_t idx = b->kv_idx[row];
    if (b->row_seq[row] < 0 || b->row_seq[row] >= b->n_seqs || idx < 0 ||
        idx / KV_PAGE_TOKENS >= b->page_table_stride)
        return false;
    for (int32_t a = 0; a < 3; a++) {
        if (b->pos[3 * row + a] != idx)
            return false;
    }
    return row == 0 || b->row_seq[row - 1] < b->row_seq[row] ||
           (b->row_seq[row - 1] == b->row_seq[row] && b->kv_idx[row - 1] + 1 == idx);
}

/* The row's sequence has a state that is the hash of its tokens. */
static uint64_t take_into_state(const struct batch *b, int32_t row)
{
    int32_t at = b->state_slot[b->row_seq[row]];
    uint64_t *h = (uint64_t *)(void *)state_history(b->state, b->state_pool, at, 0);
    *h = chain(*h, b->token[row]);
    return *h;
}

static void run_batch(struct be *be, const struct batch *b)
{
    uint64_t of_state[FAKE_ROWS_MAX] = {0};
    for (int32_t row = 0; row < b->n_rows; row++) {
        if (!rules_hold(b, row) || row >= FAKE_ROWS_MAX) {
            atomic_fetch_add(&be->broken, 1);
            return;
        }
        *slot_of(b, row, b->kv_idx[row]) = b->token[row];
        if (b->state)
            of_state[row] = take_into_state(b, row);
    }
    for (int32_t o = 0; o < b->n_outputs; o++) {
        int32_t row = b->out_row[o];
        uint64_t h = 0;
        for (int32_t i = 0; i <= b->kv_idx[row]; i++)
            h = chain(h, *slot_of(b, row, i));
        if (b->state && of_state[row] != h)
            h = ~h; /* another text's state: other logits */
        logits_of_hash(h, b->token[row], b->logits + (size_t)o * FAKE_VOCAB);
    }
}

t9_status be_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err)
{
    const struct batch *b = ops[0].src[0].p;
    uint64_t begin_ns = clock_now_ns();
    bool gated = atomic_load(&be->gated);
    while (gated && sem_wait(&be->permit) != 0 && errno == EINTR)
        continue;
    uint64_t run = atomic_fetch_add(&be->runs, 1) + 1;
    if (run < FAKE_LOG_CAP)
        atomic_store(&be->rows[run], b->n_rows);
    uint64_t delay_us = atomic_load(&be->delay_us);
    if (delay_us)
        usleep((useconds_t)delay_us);
    bool fails = run == atomic_load(&be->fail_at) || n != 1;
    if (!fails)
        run_batch(be, b);
    atomic_fetch_add(&be->run_ns, clock_now_ns() - begin_ns);
    if (gated)
        sem_post(&be->done);
    return fails ? t9_fail(err, T9_STATUS_INTERNAL, "device lost") : T9_STATUS_OK;
}
