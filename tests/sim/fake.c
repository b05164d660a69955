/* fake.c - see fake.h. Defines what model/, backend/be.c and base/clock.c would. */
#include "fake.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t sim_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t sim_chain(uint64_t chain, int32_t token)
{
    return sim_mix(chain * 3 + (uint64_t)token + 0x9e3779b97f4a7c15u);
}

void sim_logits(uint64_t chain, float out[SIM_VOCAB])
{
    for (uint32_t j = 0; j < SIM_VOCAB; j++)
        out[j] = (float)(sim_mix(chain + j) >> 40) * (6.0f / 16777216.0f);
}

struct model *sim_model(int kind)
{
    static const int32_t windows[SIM_KINDS] = {0, 0, 1, 33, 70, 300};
    static struct model all[SIM_KINDS];
    struct model *m = &all[kind];
    m->info = (struct model_info){
        .arch = "sim", .n_layers = 1, .n_vocab = SIM_VOCAB, .context_length = 1 << 20};
    m->info.n_recurrent = kind == SIM_KIND_HYBRID;
    m->window = windows[kind];
    return m;
}

const struct vocab *sim_vocab(void)
{
    static const uint8_t types[SIM_VOCAB];
    static const uint8_t flags[SIM_VOCAB] = {[SIM_EOG] = VOCAB_FLAG_EOG};
    static const uint32_t offsets[SIM_VOCAB + 1];
    static const int32_t eog[1] = {SIM_EOG};
    static const struct vocab v = {.n_tokens = SIM_VOCAB,
                                   .type = types,
                                   .flags = flags,
                                   .offset = offsets,
                                   .bytes = "",
                                   .eog = eog,
                                   .n_eog = 1};
    return &v;
}

/* ---- base/clock.h ---- */

static _Atomic uint64_t sim_ns = 1000000000u;

void sim_clock_set(uint64_t ns)
{
    atomic_store(&sim_ns, ns);
}

void sim_clock_add(uint64_t ns)
{
    atomic_fetch_add(&sim_ns, ns);
}

uint64_t clock_now_ns(void)
{
    return atomic_load_explicit(&sim_ns, memory_order_relaxed);
}

int64_t clock_unix_s(void)
{
    return (int64_t)(clock_now_ns() / 1000000000u);
}

void clock_sleep_ms(uint32_t ms)
{
    usleep(ms * 1000u);
}

void clock_iso8601(char out[32])
{
    snprintf(out, 32, "1970-01-01T00:00:00.000Z");
}

/* ---- model.h ---- */

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

t9_status model_kv_geom(const struct model *m, kv_type type, struct kv_geom *out,
                        struct t9_err *err)
{
    const struct kv_shape shapes[2] = {{1, 8, 0}, {1, 8, m->window}};
    return kv_geom_init(out, shapes, m->window > 0 ? 2 : 1, type)
               ? T9_STATUS_OK
               : t9_fail(err, T9_STATUS_INVALID, "geometry");
}

void model_state_geom(const struct model *m, struct state_geom *out)
{
    const struct state_shape shape = {.n_layers = m->info.n_recurrent, .taps = 2, .channels = 2500};
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

const char *be_name(const struct be *be)
{
    (void)be;
    return "sim";
}

const char *be_numerics(const struct be *be)
{
    (void)be;
    return "sim-1";
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
    (void)madvise(p, size_bytes, MADV_DONTNEED);
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
    (void)munmap(p, size_bytes);
}

static struct sim_slot *slot_of(const struct batch *b, int32_t seq, int32_t idx)
{
    const int32_t *table = b->page_table + (size_t)seq * (size_t)b->page_table_stride;
    char *page = kv_page_k(&b->kv->layers[0], b->kv_pool, table[idx / KV_PAGE_TOKENS], 0);
    return (struct sim_slot *)(void *)page + idx % KV_PAGE_TOKENS;
}

/* The same in window pages. */
static struct sim_slot *window_slot(const struct batch *b, int32_t seq, int32_t idx)
{
    const int32_t *table = b->window_table + (size_t)seq * (size_t)b->page_table_stride;
    char *page = kv_page_k(&b->kv->layers[1], b->window_pool, table[idx / KV_PAGE_TOKENS], 0);
    return (struct sim_slot *)(void *)page + idx % KV_PAGE_TOKENS;
}

static void fault(struct be *be, const char *what, int32_t seq, int32_t idx)
{
    if (atomic_load(&be->faulty))
        return;
    snprintf(be->fault, sizeof be->fault, "slot %d, token %d: %s", seq, idx, what);
    atomic_store(&be->faulty, true);
}

/* Every token before the row is there, in its place, and belongs to the same text. Returns the hash
 * of them. */
static uint64_t attend(struct be *be, const struct batch *b, int32_t seq, int32_t n)
{
    uint64_t chain = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct sim_slot *s = slot_of(b, seq, i);
        chain = sim_chain(chain, s->token);
        if (s->index != i || s->chain != chain) {
            fault(be, "its page holds another text", seq, i);
            return chain;
        }
    }
    return chain;
}

/* What lies in the window of a row is there, as the pages have it. `own`: the row itself is
 * written, too. */
static void attend_window(struct be *be, const struct batch *b, int32_t seq, int32_t row, bool own)
{
    int32_t first = row - b->kv->window + 1;
    for (int32_t i = first > 0 ? first : 0; i < row + own; i++) {
        const struct sim_slot *s = slot_of(b, seq, i);
        const struct sim_slot *w = window_slot(b, seq, i);
        if (w->index != i || w->chain != s->chain || w->token != s->token) {
            fault(be, "its window page holds another text", seq, i);
            return;
        }
    }
}

uint64_t *sim_state(const struct state_geom *g, void *pool, int32_t slot)
{
    return (uint64_t *)(void *)state_history(g, pool, slot, 0);
}

static bool rules_hold(const struct batch *b, int32_t row)
{
    int32_t idx = b->kv_idx[row];
    if (b->row_seq[row] < 0 || b->row_seq[row] >= b->n_seqs || idx < 0 ||
        idx / KV_PAGE_TOKENS >= b->page_table_stride || b->token[row] < 0 ||
        b->token[row] >= SIM_VOCAB || b->pos[3 * row] != idx)
        return false;
    return row == 0 || b->row_seq[row - 1] < b->row_seq[row] ||
           (b->row_seq[row - 1] == b->row_seq[row] && b->kv_idx[row - 1] + 1 == idx);
}

static void run_batch(struct be *be, const struct batch *b)
{
    uint64_t chain = 0;
    uint64_t keys = 0;
    for (int32_t row = 0; row < b->n_rows; row++) {
        int32_t seq = b->row_seq[row];
        int32_t idx = b->kv_idx[row];
        if (!rules_hold(b, row)) {
            fault(be, "the batch breaks its rules", seq, idx);
            return;
        }
        if (row == 0 || b->row_seq[row - 1] != seq) {
            chain = attend(be, b, seq, idx);
            if (b->kv->window > 0)
                attend_window(be, b, seq, idx, false);
        }
        uint64_t *state = b->state ? sim_state(b->state, b->state_pool, b->state_slot[seq]) : NULL;
        if (state && *state != chain) {
            fault(be, "its state is of another text", seq, idx);
            return;
        }
        chain = sim_chain(chain, b->token[row]);
        if (state)
            *state = chain;
        *slot_of(b, seq, idx) =
            (struct sim_slot){.chain = chain, .token = b->token[row], .index = idx};
        if (b->kv->window > 0)
            *window_slot(b, seq, idx) = *slot_of(b, seq, idx);
        keys += (uint64_t)idx;
    }
    for (int32_t o = 0; o < b->n_outputs; o++) {
        int32_t row = b->out_row[o];
        /* Once more, now that all rows are written: nobody wrote over this sequence. */
        if (b->kv->window > 0)
            attend_window(be, b, b->row_seq[row], b->kv_idx[row], true);
        sim_logits(attend(be, b, b->row_seq[row], b->kv_idx[row] + 1),
                   b->logits + (size_t)o * SIM_VOCAB);
    }
    be->rng = be->rng * 6364136223846793005u + 1442695040888963407u;
    uint64_t noise = be->rng >> 33;
    uint64_t ns = 4000000 + (uint64_t)b->n_rows * 700000 + keys * 300;
    ns += ns * (noise % 20) / 100;
    if (noise % 97 == 0)
        ns *= 6;
    sim_clock_add(ns);
    be->kv = b->kv;
    be->kv_pool = b->kv_pool;
    be->window_pool = b->window_pool;
    be->state = b->state;
    be->state_pool = b->state_pool;
}

t9_status be_run(struct be *be, const struct op *ops, size_t n, struct t9_err *err)
{
    if (n != 1)
        return t9_fail(err, T9_STATUS_INTERNAL, "%zu ops", n);
    run_batch(be, ops[0].src[0].p);
    return T9_STATUS_OK;
}
