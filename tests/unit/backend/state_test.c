/*
 * The ops of recurrent layers: ref against values worked out by hand, cpu against canon bit for bit
 * (every instruction set and number of threads), rows in any steps against all rows in one, rows
 * that are taken back, and what is refused.
 */
#include "unit/backend/cpu_rig.h"
#include "unit/backend/ops.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>

static void near(const float *got, const float *want, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * fmaxf(1, fabsf(want[i]))))
            fail_msg("element %d is %.9g, %.9g wanted", i, (double)got[i], (double)want[i]);
    }
}

/* ---- sequences that are run in steps ---- */

enum { SEQS = 3, TOKENS = 48, ROWS = 40, SLOTS = 5 };

/* An op, and what its rows are made of. */
struct subject {
    const char *name;
    struct state_geom g;
    int32_t n_in, n_out; /* columns of a row of `in` and of the result */
    bool silu, tiled;
    struct weight w;
    float *in[SEQS]; /* [TOKENS][n_in] */
    void (*submit)(struct cx *cx, const struct subject *s, const struct op_state *state,
                   struct view in, struct view out);
};

/* Where the sequences are on one backend. */
struct world {
    char *pool;
    float *out[SEQS]; /* [TOKENS][n_out] */
    int32_t done[SEQS], accept[SEQS];
};

static const int32_t slots[SEQS] = {3, 0, 4};

static void world_init(struct world *w, const struct subject *s)
{
    size_t n = SLOTS * s->g.slot_bytes;
    *w = (struct world){.pool = mem_alloc_aligned(4096, n)};
    assert_non_null(w->pool);
    memset(w->pool, 0xff, n); /* of a slot only the state is zeroed at a sequence's start */
    for (int k = 0; k < SEQS; k++) {
        memset(state_slot(&s->g, w->pool, slots[k]), 0, s->g.state_bytes);
        w->out[k] = mem_calloc((size_t)(TOKENS * s->n_out), sizeof(float));
        assert_non_null(w->out[k]);
    }
}

static void world_deinit(struct world *w)
{
    mem_free(w->pool);
    for (int k = 0; k < SEQS; k++)
        mem_free(w->out[k]);
}

/* What a step gives a sequence: n rows, of which `guess` may be taken back and `good` of these will
 * hold; the others are made up. */
struct part {
    int32_t n, guess, good;
};

struct step {
    const struct subject *s;
    struct world *w;
    struct part part[SEQS];
    bool journal; /* false: nothing is guessed and the views are absent */
    float *in, *out;
    int32_t row_seq[ROWS], slot[SEQS], accept[SEQS], guess[SEQS], n_rows;
};

static void submit_step(struct cx *cx, void *arg)
{
    struct step *t = arg;
    const struct subject *s = t->s;
    struct op_state state = {.row_seq = view_i32(t->row_seq, t->n_rows, 1),
                             .slot = view_i32(t->slot, SEQS, 1),
                             .pool = {t->w->pool, 1, 1, 1, VIEW_BYTES, 0},
                             .geom = &s->g,
                             .layer = s->g.shape.n_layers - 1};
    if (t->journal) {
        state.accept = view_i32(t->accept, SEQS, 1);
        state.guess = view_i32(t->guess, SEQS, 1);
    }
    struct view in = view_f32(t->in, t->n_rows, s->n_in),
                out = view_f32(t->out, t->n_rows, s->n_out);
    in.stride += 3;
    out.stride += 5;
    s->submit(cx, s, &state, in, out);
}

/* One batch of all parts that have rows. */
static void run_step(struct be *be, const struct subject *s, struct world *w,
                     const struct part part[SEQS], bool journal)
{
    static const int32_t seq_of[SEQS] = {0, 1, 2};
    size_t in_stride = (size_t)s->n_in + 3, out_stride = (size_t)s->n_out + 5;
    struct step t = {.s = s, .w = w, .journal = journal};
    t.in = rig_floats(ROWS * in_stride, 1);
    t.out = rig_floats(ROWS * out_stride, 1);
    for (int k = 0; k < SEQS; k++) {
        const struct part *p = &part[k];
        t.slot[k] = slots[k];
        t.accept[k] = w->accept[k];
        t.guess[k] = p->guess;
        for (int32_t i = 0; i < p->n; i++, t.n_rows++) {
            t.row_seq[t.n_rows] = seq_of[k];
            if (i < p->n - p->guess + p->good)
                memcpy(t.in + (size_t)t.n_rows * in_stride,
                       s->in[k] + (size_t)(w->done[k] + i) * (size_t)s->n_in,
                       (size_t)s->n_in * sizeof(float));
        }
    }
    rig_run(be, submit_step, &t);
    for (int32_t k = 0, row = 0; k < SEQS; row += part[k++].n) {
        int32_t n_true = part[k].n - part[k].guess + part[k].good;
        for (int32_t i = 0; i < n_true; i++)
            memcpy(w->out[k] + (size_t)(w->done[k] + i) * (size_t)s->n_out,
                   t.out + (size_t)(row + i) * out_stride, (size_t)s->n_out * sizeof(float));
        if (part[k].n == 0)
            continue;
        w->done[k] += n_true;
        w->accept[k] = part[k].good;
    }
    mem_free(t.in);
    mem_free(t.out);
}

/* All tokens of a sequence in as few steps as there are batches. */
static void run_plain(struct be *be, const struct subject *s, struct world *w, int32_t chunk)
{
    for (int k = 0; k < SEQS; k++) {
        while (w->done[k] < TOKENS) {
            struct part part[SEQS] = {0};
            int32_t left = TOKENS - w->done[k];
            part[k].n = left < chunk ? left : chunk;
            run_step(be, s, w, part, false);
        }
    }
}

/* Steps of random sizes with random guesses; the last ones take what was accepted into the state.
 */
static void run_random(struct be *be, const struct subject *s, struct world *w)
{
    for (bool left = true; left;) {
        struct part part[SEQS] = {0};
        int32_t n_rows = 0;
        left = false;
        for (int k = 0; k < SEQS; k++) {
            struct part *p = &part[k];
            int32_t rest = TOKENS - w->done[k];
            if (rest == 0 || rig_rnd() % 4 == 0) {
                left |= rest > 0;
                continue;
            }
            p->n = rig_rnd() % 2 ? 1 : 1 + (int32_t)(rig_rnd() % 13);
            p->n = p->n > rest ? rest : p->n;
            /* The last token is never a guess. */
            p->guess = p->n == rest ? 0 : (int32_t)(rig_rnd() % (STATE_JOURNAL_ROWS + 1));
            p->guess = p->guess > p->n ? p->n : p->guess;
            p->good = (int32_t)(rig_rnd() % (uint32_t)(p->guess + 1));
            n_rows += p->n;
            left = true;
        }
        if (n_rows > 0)
            run_step(be, s, w, part, true);
    }
}

static void same_world(const struct subject *s, const char *isa, int threads,
                       const struct world *got, const struct world *want)
{
    for (int k = 0; k < SEQS; k++) {
        assert_int_equal(got->done[k], TOKENS);
        rig_same_bits(s->name, isa, threads, got->out[k], want->out[k],
                      (size_t)(TOKENS * s->n_out));
        rig_same_bits("the state", isa, threads, state_slot(&s->g, got->pool, slots[k]),
                      state_slot(&s->g, want->pool, slots[k]), s->g.state_bytes / sizeof(float));
    }
    /* Nobody else's slot is touched. */
    for (size_t i = 0; i < s->g.slot_bytes; i++) {
        if ((got->pool + s->g.slot_bytes)[i] != (char)0xff)
            fail_msg("%s, %s: another slot was written", s->name, isa);
    }
}

/* Every way to run a subject against its tokens in one step on canon. */
static void check_subject(const struct subject *s)
{
    static const int32_t chunks[] = {1, 2, 7, 33};
    struct world want, got;
    world_init(&want, s);
    run_plain(rig.canon, s, &want, ROWS);
    for (size_t i = 0; i <= T9_COUNT(chunks); i++) {
        world_init(&got, s);
        if (i < T9_COUNT(chunks))
            run_plain(rig.canon, s, &got, chunks[i]);
        else
            run_random(rig.canon, s, &got);
        same_world(s, "canon", 1, &got, &want);
        world_deinit(&got);
    }
    FOR_EACH_CPU(be, isa, threads)
    {
        world_init(&got, s);
        run_plain(be, s, &got, chunks[threads % (int)T9_COUNT(chunks)]);
        same_world(s, rig_isas[isa], threads, &got, &want);
        world_deinit(&got);
        world_init(&got, s);
        run_random(be, s, &got);
        same_world(s, rig_isas[isa], threads, &got, &want);
        world_deinit(&got);
    }
    world_deinit(&want);
}

static void subject_init(struct subject *s, const struct state_shape *shape)
{
    assert_true(state_geom_init(&s->g, shape));
    for (int k = 0; k < SEQS; k++)
        s->in[k] = rig_floats((size_t)(TOKENS * s->n_in), 1);
}

static void subject_deinit(struct subject *s)
{
    for (int k = 0; k < SEQS; k++)
        mem_free(s->in[k]);
}

static struct weight vector(const char *name, const float *values, int32_t n)
{
    struct weight w;
    struct weight_src src = ops_src(name, DTYPE_F32, values, n, 1);
    assert_int_equal(be_vector_load(rig.canon, &w, &src, NULL), T9_STATUS_OK);
    return w;
}

/* ---- the convolution ---- */

static void submit_conv(struct cx *cx, const struct subject *s, const struct op_state *state,
                        struct view in, struct view out)
{
    op_conv_state(cx, out, in, &s->w, s->silu, state);
}

static void test_conv(void **state)
{
    (void)state;
    static const struct state_shape shapes[] = {
        {.n_layers = 1, .taps = 2, .channels = 1},    {.n_layers = 2, .taps = 3, .channels = 16},
        {.n_layers = 3, .taps = 4, .channels = 37},   {.n_layers = 1, .taps = 4, .channels = 256},
        {.n_layers = 1, .taps = 5, .channels = 1027}, {.n_layers = 1, .taps = 8, .channels = 300},
    };
    rig.rng = 31;
    for (size_t i = 0; i < T9_COUNT(shapes); i++) {
        int32_t c = shapes[i].channels;
        char name[64];
        snprintf(name, sizeof(name), "convolution of %d taps, %d channels", shapes[i].taps, c);
        struct subject s = {
            .name = name, .n_in = c, .n_out = c, .silu = i % 2 == 0, .submit = submit_conv};
        subject_init(&s, &shapes[i]);
        float *w = rig_floats((size_t)(shapes[i].taps * c), 1);
        s.w = vector("conv", w, shapes[i].taps * c);
        check_subject(&s);
        be_weight_free(rig.canon, &s.w);
        mem_free(w);
        subject_deinit(&s);
    }
}

/* Two channels, three taps: 1 10 100 and 1 0 -1, the oldest first. */
static void test_conv_by_hand(void **state)
{
    (void)state;
    static const float taps[] = {1, 1, 10, 0, 100, -1};
    static const float x[] = {1, 1, 2, 2, 3, 4, 4, 8};
    struct state_shape shape = {.n_layers = 1, .taps = 3, .channels = 2};
    struct state_geom g;
    struct bench b;
    float y[8];
    int32_t zero[4] = {0}, accept = 0, guess = 2;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_true(state_geom_init(&g, &shape));
    struct weight w = vector("conv", taps, 6);
    char *pool = mem_calloc(1, g.slot_bytes);
    assert_non_null(pool);
    struct op_state s = {.row_seq = view_i32(zero, 4, 1),
                         .slot = view_i32(zero, 1, 1),
                         .accept = view_i32(&accept, 1, 1),
                         .guess = view_i32(&guess, 1, 1),
                         .pool = {pool, 1, 1, 1, VIEW_BYTES, 0},
                         .geom = &g};
    op_conv_state(&b.cx, view_f32(y, 4, 2), view_f32(x, 4, 2), &w, false, &s);
    near(y, (const float[]){100, -1, 210, -2, 321, -3, 432, -6}, 8);
    near(state_history(&g, pool, 0, 0), x, 4); /* the last two are guesses */
    near(state_journal_conv(&g, pool, 0, 0, 0), x + 4, 2);
    near(state_journal_conv(&g, pool, 0, 0, 1), x + 6, 2);
    /* One of them holds; then 1, 2. */
    accept = 1;
    guess = 0;
    s.row_seq.rows = 1;
    op_conv_state(&b.cx, view_f32(y, 1, 2), view_f32(x, 1, 2), &w, false, &s);
    near(y, (const float[]){132, 1}, 2);
    near(state_history(&g, pool, 0, 0), (const float[]){3, 4, 1, 1}, 4);
    accept = 0;
    op_conv_state(&b.cx, view_f32(y, 1, 2), view_f32(x, 1, 2), &w, true, &s);
    near(y, (const float[]){113, 3 / (1 + expf(-3))}, 2);
    assert_int_equal(b.cx.status, T9_STATUS_OK);
    be_weight_free(b.be, &w);
    be_free(b.be);
    mem_free(pool);
}

/* ---- the delta net ---- */

/* A row is c, then the gates. */
static void submit_delta(struct cx *cx, const struct subject *s, const struct op_state *state,
                         struct view in, struct view out)
{
    struct view c = in, gates = in;
    c.cols = s->g.shape.channels;
    gates.cols = 2 * s->g.shape.n_heads;
    gates.p = (float *)in.p + c.cols;
    op_delta_net(cx, out, c, gates, s->tiled, state);
}

/* Keys of a length about 1, decay and strength within 0 .. 1; some at their ends. */
static void delta_inputs(struct subject *s)
{
    const struct state_shape *h = &s->g.shape;
    int32_t n_keys = 2 * h->n_key_heads * h->key_dim;
    float scale = 1.7f / sqrtf((float)h->key_dim);
    for (int k = 0; k < SEQS; k++) {
        for (int32_t t = 0; t < TOKENS; t++) {
            float *row = s->in[k] + (size_t)t * (size_t)s->n_in;
            for (int32_t i = 0; i < n_keys; i++)
                row[i] *= scale;
            for (int32_t i = h->channels; i < s->n_in; i++)
                row[i] =
                    rig_rnd() % 16 == 0 ? (float)(rig_rnd() % 2) : (float)(rig_rnd() % 1024) / 1024;
        }
    }
}

static void check_delta(struct state_shape shape, bool tiled)
{
    char name[128];
    int32_t n_values = shape.n_heads * shape.value_dim;
    shape.channels = 2 * shape.n_key_heads * shape.key_dim + n_values;
    snprintf(name, sizeof(name), "delta net of %d heads of %d x %d, %d of keys%s", shape.n_heads,
             shape.value_dim, shape.key_dim, shape.n_key_heads, tiled ? ", tiled" : "");
    struct subject s = {.name = name,
                        .n_in = shape.channels + 2 * shape.n_heads,
                        .n_out = n_values,
                        .tiled = tiled,
                        .submit = submit_delta};
    subject_init(&s, &shape);
    delta_inputs(&s);
    check_subject(&s);
    subject_deinit(&s);
}

static void test_delta(void **state)
{
    (void)state;
    static const struct state_shape shapes[] = {
        {1, 4, 0, 1, 1, 16, 16},   {2, 4, 0, 6, 3, 24, 33}, {1, 4, 0, 4, 2, 32, 32},
        {1, 2, 0, 2, 1, 128, 128}, {1, 4, 0, 3, 3, 1, 1},   {1, 4, 0, 2, 2, 256, 40},
        {1, 3, 0, 8, 1, 40, 5},
    };
    rig.rng = 32;
    for (size_t i = 0; i < T9_COUNT(shapes); i += RIG_STEP) {
        check_delta(shapes[i], i % 2 == 0);
        if (shapes[i].n_heads > shapes[i].n_key_heads && shapes[i].n_key_heads > 1)
            check_delta(shapes[i], i % 2 != 0);
    }
}

/* A key head of two dimensions, two value heads of one, by ref and canon. */
static void test_delta_by_hand(void **state)
{
    (void)state;
    static const char *const names[] = {"ref", "canon"};
    /* q | k | v of two heads | decay, then strength of both */
    static const float in[] = {1, 0, 1, 0, 4, 8, 0.5f, 1, 0.5f, 1, /* S is 0: u = 2, 8 */
                               1, 1, 0, 1, 2, 4, 0.5f, 1, 1,    0.5f};
    struct state_shape shape = {1, 2, 6, 2, 1, 2, 1};
    for (size_t i = 0; i < T9_COUNT(names); i++) {
        struct state_geom g;
        struct bench b;
        float y[4];
        int32_t zero[2] = {0};
        assert_int_equal(bench_init(&b, names[i]), T9_STATUS_OK);
        assert_true(state_geom_init(&g, &shape));
        char *pool = mem_calloc(1, g.slot_bytes);
        assert_non_null(pool);
        struct op_state s = {.row_seq = view_i32(zero, 2, 1),
                             .slot = view_i32(zero, 1, 1),
                             .pool = {pool, 1, 1, 1, VIEW_BYTES, 0},
                             .geom = &g};
        struct view c = view_f32(in, 2, 6), gates = view_f32(in + 6, 2, 4);
        c.stride = gates.stride = 10;
        op_delta_net(&b.cx, view_f32(y, 2, 2), c, gates, true, &s);
        assert_int_equal(b.cx.status, T9_STATUS_OK);
        /* Then S is (2, 0) * 0.5 + (0, 2) and (8, 0) + (0, 2). */
        near(y, (const float[]){2, 8, 3, 10}, 4);
        near(state_matrix(&g, pool, 0, 0, 0), (const float[]){1, 2}, 2);
        near(state_matrix(&g, pool, 0, 0, 1), (const float[]){8, 2}, 2);
        be_free(b.be);
        mem_free(pool);
    }
}

/* ---- what the delta net takes ---- */

struct prepare_case {
    struct state_geom g;
    int32_t rows;
    float *c, *gates;
    const float *alpha, *beta;
    struct weight a, dt;
};

static void prepare(struct cx *cx, void *arg)
{
    struct prepare_case *p = arg;
    int32_t n = p->g.shape.n_heads;
    struct view c = view_f32(p->c, p->rows, p->g.shape.channels),
                alpha = view_f32(p->alpha, p->rows, n);
    c.stride += 7;
    alpha.stride += 2;
    op_delta_prepare(cx, &(struct op_delta_prepare){c, view_f32(p->gates, p->rows, 2 * n), alpha,
                                                    view_f32(p->beta, p->rows, n), &p->a, &p->dt,
                                                    &p->g, 1e-6f});
}

static void test_prepare(void **state)
{
    (void)state;
    static const struct state_shape shapes[] = {
        {1, 4, 16 * 3, 1, 1, 16, 16},
        {1, 4, 2 * 3 * 37 + 6 * 5, 6, 3, 37, 5},
        {1, 2, 2 * 2 * 128 + 4 * 128, 4, 2, 128, 128},
    };
    rig.rng = 33;
    for (size_t i = 0; i < T9_COUNT(shapes); i++) {
        struct prepare_case p = {.rows = 33};
        assert_true(state_geom_init(&p.g, &shapes[i]));
        int32_t n = shapes[i].n_heads;
        size_t n_c = (size_t)(p.rows * (shapes[i].channels + 7)),
               n_gates = (size_t)(p.rows * 2 * n);
        float *in = rig_floats(n_c, 3), *want = rig_floats(n_c, 1), *got = rig_floats(n_c, 1);
        float *want_gates = rig_floats(n_gates, 1), *got_gates = rig_floats(n_gates, 1);
        float *alpha = rig_floats((size_t)(p.rows * (n + 2)), 12);
        float *beta = rig_floats((size_t)(p.rows * n), 4), *a = rig_floats((size_t)n, 1);
        for (int32_t k = 0; k < n; k++)
            a[k] = -fabsf(a[k]);
        memset(in, 0, (size_t)shapes[i].key_dim * sizeof(float)); /* no direction: stays 0 */
        p.alpha = alpha;
        p.beta = beta;
        p.a = vector("a", a, n);
        p.dt = vector("dt", a, n);
        p.c = want;
        p.gates = want_gates;
        memcpy(want, in, n_c * sizeof(float));
        rig_run(rig.canon, prepare, &p);
        for (int32_t k = 0; k < shapes[i].key_dim; k++)
            assert_true(want[k] == 0);
        FOR_EACH_CPU(be, isa, threads)
        {
            memcpy(got, in, n_c * sizeof(float));
            p.c = got;
            p.gates = got_gates;
            rig_run(be, prepare, &p);
            rig_same_bits("prepared rows", rig_isas[isa], threads, got, want, n_c);
            rig_same_bits("gates", rig_isas[isa], threads, got_gates, want_gates, n_gates);
        }
        be_weight_free(rig.canon, &p.a);
        be_weight_free(rig.canon, &p.dt);
        mem_free(in);
        mem_free(want);
        mem_free(got);
        mem_free(want_gates);
        mem_free(got_gates);
        mem_free(alpha);
        mem_free(beta);
        mem_free(a);
    }
}

static void test_prepare_by_hand(void **state)
{
    (void)state;
    static const char *const names[] = {"ref", "canon"};
    const float minus[] = {-1, -0.5f}, dt[] = {1, 0}, alpha[] = {-1, 25}, beta[] = {0, -2};
    for (size_t i = 0; i < T9_COUNT(names); i++) {
        struct bench b;
        float c[] = {3, 4, 0, 0, 0, -5, 7, 8}, gates[4];
        struct state_shape shape = {1, 2, 6, 2, 1, 2, 1};
        struct state_geom g;
        struct weight w = vector("a", minus, 2), d = vector("dt", dt, 2);
        assert_int_equal(bench_init(&b, names[i]), T9_STATUS_OK);
        assert_true(state_geom_init(&g, &shape));
        op_delta_prepare(&b.cx, &(struct op_delta_prepare){view_f32(c, 1, 6), view_f32(gates, 1, 4),
                                                           view_f32(alpha, 1, 2),
                                                           view_f32(beta, 1, 2), &w, &d, &g, 11});
        assert_int_equal(b.cx.status, T9_STATUS_OK);
        /* 3 4 over sqrt(25 + 11) and sqrt(2); no key; values as they are. */
        near(c, (const float[]){0.353553391f, 0.471404521f, 0, 0, 0, -5}, 6);
        /* exp(-ln 2), exp(-12.5), sigmoid */
        near(gates, (const float[]){0.5f, 3.72665317e-6f, 0.5f, 0.119202922f}, 4);
        be_weight_free(b.be, &w);
        be_weight_free(b.be, &d);
        be_free(b.be);
    }
}

/* ---- refusals ---- */

static void refused(struct bench *b, const char *part)
{
    if (b->cx.status != T9_STATUS_INVALID || !strstr(b->cx.err.msg, part))
        fail_msg("status %s, message \"%s\", \"%s\" wanted", t9_status_name(b->cx.status),
                 b->cx.err.msg, part);
    b->cx.status = T9_STATUS_OK;
}

static void test_refusals(void **state)
{
    (void)state;
    static float f[64], g[64];
    static int32_t zero[8];
    struct bench b;
    struct state_shape shape = {.n_layers = 2, .taps = 3, .channels = 4};
    struct state_geom geom, none = {0};
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_true(state_geom_init(&geom, &shape));
    struct weight w = vector("conv", f, 12), short_w = vector("short", f, 11);
    struct view x = view_f32(f, 2, 4), y = view_f32(g, 2, 4);
    struct op_state good = {.row_seq = view_i32(zero, 2, 1),
                            .slot = view_i32(zero, 3, 1),
                            .pool = {f, 1, 1, 1, VIEW_BYTES, 0},
                            .geom = &geom},
                    s = good;
    s.geom = NULL;
    op_conv_state(&b.cx, y, x, &w, true, &s);
    refused(&b, "geometry of the state is absent");
    s.geom = &none;
    op_conv_state(&b.cx, y, x, &w, true, &s);
    refused(&b, "geometry of the state is absent");
    s = good;
    s.layer = 2;
    op_conv_state(&b.cx, y, x, &w, true, &s);
    refused(&b, "state layer 2 of 2");
    s = good;
    s.row_seq.rows = 1;
    op_conv_state(&b.cx, y, x, &w, true, &s);
    refused(&b, "row_seq is [1, 1], [2, 1] wanted");
    s = good;
    s.guess = view_i32(zero, 3, 1);
    op_conv_state(&b.cx, y, x, &w, true, &s);
    refused(&b, "accept is absent");
    s.accept = view_i32(zero, 2, 1);
    op_conv_state(&b.cx, y, x, &w, true, &s);
    refused(&b, "accept is [2, 1], [3, 1] wanted");
    s = good;
    s.pool.p = NULL;
    op_conv_state(&b.cx, y, x, &w, true, &s);
    refused(&b, "state pool is absent");
    op_conv_state(&b.cx, view_f32(g, 2, 5), x, &w, true, &good);
    refused(&b, "dst is [2, 5], [2, 4] wanted");
    op_conv_state(&b.cx, y, y, &w, true, &good);
    refused(&b, "dst is x");
    op_conv_state(&b.cx, y, x, &short_w, true, &good);
    refused(&b, "short has 11 values, 12 wanted");
    be_weight_free(b.be, &w);
    be_weight_free(b.be, &short_w);
    be_free(b.be);
}

static void test_delta_refusals(void **state)
{
    (void)state;
    static float f[64], g[64];
    static int32_t zero[8];
    struct bench b;
    struct state_shape shape = {1, 2, 6, 2, 1, 2, 1}, wide = {1, 2, 7, 2, 1, 2, 1};
    struct state_geom geom, other, conv;
    assert_int_equal(bench_init(&b, "ref"), T9_STATUS_OK);
    assert_true(state_geom_init(&geom, &shape));
    assert_true(state_geom_init(&other, &wide));
    assert_true(
        state_geom_init(&conv, &(struct state_shape){.n_layers = 1, .taps = 2, .channels = 6}));
    struct weight w = vector("a", f, 2), long_w = vector("long", f, 3);
    struct view c = view_f32(f, 2, 6), gates = view_f32(g, 2, 4), y = view_f32(g + 8, 2, 2);
    struct view two = view_f32(f, 2, 2);
    struct op_state good = {.row_seq = view_i32(zero, 2, 1),
                            .slot = view_i32(zero, 1, 1),
                            .pool = {f, 1, 1, 1, VIEW_BYTES, 0},
                            .geom = &geom},
                    s = good;
    s.geom = &conv;
    op_delta_net(&b.cx, y, c, gates, true, &s);
    refused(&b, "the geometry has no delta net");
    s.geom = &other;
    op_delta_net(&b.cx, y, c, gates, true, &s);
    refused(&b, "q, k and v are 6 of 7 channels");
    op_delta_net(&b.cx, c, c, gates, true, &good);
    refused(&b, "dst is [2, 6], [2, 2] wanted");
    op_delta_net(&b.cx, y, view_f32(f, 2, 5), gates, true, &good);
    refused(&b, "c is [2, 5], [2, 6] wanted");
    op_delta_net(&b.cx, view_f32(f, 2, 2), c, gates, true, &good);
    refused(&b, "dst is c");
    op_delta_net(&b.cx, y, c, y, true, &good);
    refused(&b, "gates is [2, 2], [2, 4] wanted");
    const struct op_delta_prepare fine = {c, gates, two, two, &w, &w, &geom, 0};
    struct op_delta_prepare p = fine;
    p.geom = &conv;
    op_delta_prepare(&b.cx, &p);
    refused(&b, "the geometry has no delta net");
    p = fine;
    p.gates = y;
    op_delta_prepare(&b.cx, &p);
    refused(&b, "gates is [2, 2], [2, 4] wanted");
    p = fine;
    p.alpha = c;
    op_delta_prepare(&b.cx, &p);
    refused(&b, "alpha is [2, 6], [2, 2] wanted");
    p = fine;
    p.beta = c;
    op_delta_prepare(&b.cx, &p);
    refused(&b, "beta is [2, 6], [2, 2] wanted");
    p = fine;
    p.eps = -1;
    op_delta_prepare(&b.cx, &p);
    refused(&b, "epsilon is -1");
    p = fine;
    p.dt = &long_w;
    op_delta_prepare(&b.cx, &p);
    refused(&b, "long has 3 values, 2 wanted");
    be_weight_free(b.be, &w);
    be_weight_free(b.be, &long_w);
    be_free(b.be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv),     cmocka_unit_test(test_conv_by_hand),
        cmocka_unit_test(test_delta),    cmocka_unit_test(test_delta_by_hand),
        cmocka_unit_test(test_prepare),  cmocka_unit_test(test_prepare_by_hand),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_delta_refusals),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
