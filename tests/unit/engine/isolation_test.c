/*
 * isolation_test: nothing of one conversation reaches another one (docs/isolation.md).
 *
 * Two hundred conversations of several turns at once, each with a marker that only its own prompts
 * have, over a pool that is too small: hits, misses, copies of partly shared pages, preemptions,
 * cancels at any moment. The prefix index gets a hash of a few bits, so that different texts meet
 * in it all the time. Checked while it runs, between two steps:
 *
 *   - the cached pages that a sequence reads stand, token by token, for its own text, and no other
 *     conversation's marker is in it;
 *   - sampled pages of sequences and of the cache are computed again, from the tokens that they
 *     stand for, by a second model with a second backend, page pool and other cuts: keys and values
 *     of all layers must be the same bits;
 *
 * and at the end: all that is cached then is computed again, every row of logits that was sampled
 * from is the one of the same conversation alone, and no marker is in another one's answer.
 *
 *     isolation_test          a tiny model
 *     isolation_test full     a model as people use it (T9_FULL)
 */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "engine/internal.h"
#include "kv/tree.h"
#include "lib/mkgguf.h"
#include "models.h"
#include "tokenizer/tokenizer.h"

enum {
    CONVS_MAX = 200,
    TURNS_MAX = 4,
    LENGTH_MAX = 1536,
    REPLY_MAX = 320,
    CHUNK_MAX = 77,
    SLOTS_MAX = 128,
    TEXT_BYTES = 16 * LENGTH_MAX,
    MARKER_DIGITS = 8,
    HASH_MASK = 0x3f,
    FIRST_TOKEN = 20,
    STALL_MS = 3600000,
};

struct setup {
    const char *path;
    kv_type type;
    int32_t n_convs, n_turns, pages;
    int32_t n_long;    /* conversations whose first answer has about REPLY_MAX tokens */
    int32_t reply_max; /* most turns; some get twice as much */
    int32_t stride;    /* steps from one sample to the next */
    int n_threads;
    int32_t solo_every; /* of how many conversations one is run alone at the end */
};

/* ---- a second opinion: pages from their tokens ---- */

struct second {
    struct loaded l;
    struct kv_geom geom;
    struct state_geom state;
    struct kv_pool *pool;
    struct batch_buf batch;
    struct tape tape;
    struct scratch scratch;
    size_t scratch_bytes;
};

static void ok(t9_status st, const struct t9_err *err)
{
    if (st != T9_STATUS_OK)
        fail_msg("%s", err->msg);
}

static void second_init(struct second *s, const struct setup *set)
{
    struct t9_err err = {0};
    size_t n_ops;
    void *mem;
    int32_t n_pages = sched_pages(LENGTH_MAX);
    load_file(&s->l, set->path, "cpu", 1);
    ok(model_kv_geom(s->l.m, set->type, &s->geom, &err), &err);
    model_state_geom(s->l.m, &s->state);
    ok(kv_pool_new(&s->pool, s->l.be, &s->geom,
                   (uint64_t)n_pages * kv_geom_bytes(&s->geom) + s->state.slot_bytes, &err),
       &err);
    ok(kv_pool_add_states(s->pool, &s->state, &err), &err);
    struct batch_limits limits = {.rows = CHUNK_MAX,
                                  .outputs = 1,
                                  .seqs = 1,
                                  .pages = n_pages,
                                  .n_vocab = model_info(s->l.m)->n_vocab};
    ok(batch_buf_init(&s->batch, s->l.be, &limits, &s->geom, kv_pool_base(s->pool),
                      kv_window_base(s->pool), &err),
       &err);
    ok(model_measure(s->l.m, &s->geom, CHUNK_MAX, 1, &s->scratch_bytes, &n_ops, &err), &err);
    ok(tape_init(&s->tape, n_ops, &err), &err);
    ok(be_reserve(s->l.be, s->scratch_bytes, &mem, &err), &err);
    s->scratch = (struct scratch){.base = mem, .cap = s->scratch_bytes};
    for (int32_t i = 0; i < n_pages; i++) {
        batch_pages(&s->batch, 0)[i] = kv_page_alloc(s->pool);
        if (s->geom.window > 0)
            batch_windows(&s->batch, 0)[i] = kv_window_alloc(s->pool);
    }
    if (s->state.shape.n_layers > 0) {
        batch_set_states(&s->batch, &s->state, kv_state_base(s->pool));
        *batch_state(&s->batch, 0) = kv_state_alloc(s->pool);
    }
}

static void second_deinit(struct second *s)
{
    be_unreserve(s->l.be, s->scratch.base, s->scratch_bytes);
    tape_deinit(&s->tape);
    batch_buf_deinit(&s->batch);
    kv_pool_free(s->pool);
    unload(&s->l);
}

/* Computes the pages of a text from nothing, in chunks of other sizes than the engine's. */
static t9_status second_compute(struct second *s, const int32_t *tokens, int32_t n, uint64_t *rng,
                                struct t9_err *err)
{
    if (s->state.shape.n_layers > 0)
        kv_state_clear(s->pool, *batch_state(&s->batch, 0));
    for (int32_t at = 0; at < n;) {
        struct cx cx;
        int32_t n_now = 1 + (int32_t)(test_random(rng) % CHUNK_MAX);
        n_now = n_now < n - at ? n_now : n - at;
        batch_clear(&s->batch);
        if (!batch_add_rows(&s->batch, 0, tokens + at, n_now, at) || !batch_add_output(&s->batch))
            return t9_fail(err, T9_STATUS_INTERNAL, "the second model's chunk is too large");
        s->scratch.used = 0;
        cx_init_record(&cx, &s->tape, &s->scratch);
        T9_TRY(model_forward(s->l.m, &cx, &s->batch.b, err));
        if (cx.status != T9_STATUS_OK)
            return t9_fail(err, cx.status, "%s", cx.err.msg);
        T9_TRY(be_run(s->l.be, s->tape.ops, s->tape.n, err));
        at += n_now;
    }
    return T9_STATUS_OK;
}

/* Whether the first n slots of one head's keys and values are the same bytes, scales included. */
static bool same_head(const struct kv_layer *g, const char *ak, const char *bk, int32_t n)
{
    size_t dims = (size_t)g->head_dim;
    size_t slots = (size_t)n;
    size_t blocks = (size_t)g->n_blocks;
    const char *av = ak + g->v_offset;
    const char *bv = bk + g->v_offset;
    bool same = memcmp(av, bv, slots * dims * g->elt_bytes) == 0;
    for (size_t d = 0; d < dims; d++) {
        size_t at = d * KV_PAGE_TOKENS * g->elt_bytes;
        same = same && memcmp(ak + at, bk + at, slots * g->elt_bytes) == 0;
    }
    if (blocks == 0)
        return same;
    for (size_t b = 0; b < blocks; b++) {
        size_t at = g->scale_offset + b * KV_PAGE_TOKENS * sizeof(uint16_t);
        same = same && memcmp(ak + at, bk + at, slots * sizeof(uint16_t)) == 0;
    }
    return same && memcmp(av + g->scale_offset, bv + g->scale_offset,
                          slots * blocks * sizeof(uint16_t)) == 0;
}

/* The first head of a layer whose n slots differ between two pools' pages; -1: none. */
static int32_t other_head(const struct kv_layer *l, void *pool_a, int32_t page_a, void *pool_b,
                          int32_t page_b, int32_t n)
{
    for (int32_t h = 0; h < l->n_head_kv; h++) {
        if (!same_head(l, kv_page_k(l, pool_a, page_a, h), kv_page_k(l, pool_b, page_b, h), n))
            return h;
    }
    return -1;
}

/* ---- conversations ---- */

typedef enum cancel_kind {
    CANCEL_NEVER,
    CANCEL_AT_ONCE,
    CANCEL_IN_PROMPT,
    CANCEL_IN_REPLY
} cancel_kind;

struct conv {
    int32_t id, turn, n_tokens;
    int32_t tokens[LENGTH_MAX]; /* all turns so far */
    int32_t reply_at[TURNS_MAX], reply_n[TURNS_MAX];
    struct request *r;
    cancel_kind cancel;
    int32_t cancel_tokens;
    bool cancelled, retried, done;
};

/* What was seen, and the first thing that was wrong. */
struct tally {
    _Atomic int32_t wrong;
    char what[256];
    uint64_t pages_again, texts_again, tokens_again, chains_read, own_markers, rows_again;
    uint64_t n_cancelled, n_retried, n_turns;
};

struct world {
    const struct setup *set;
    struct loaded l;
    struct tokenizer *tok;
    struct second second;
    struct engine *e;
    struct conv convs[CONVS_MAX];
    uint32_t markers[CONVS_MAX];
    uint64_t row[CONVS_MAX][LENGTH_MAX + 1]; /* hash of the logits by position, 0 = none */
    uint64_t seen_id[SLOTS_MAX];             /* by slot: the request whose prefix was read */
    uint64_t rng, hook_rng, n_steps;
    atomic_bool closing, closed;
    struct tally tally;
    struct engine_stats stats;
    struct kv_tree_stats tree;
};

static struct world world;

__attribute__((format(printf, 2, 3))) static void wrong(struct world *w, const char *fmt, ...)
{
    if (atomic_fetch_add(&w->tally.wrong, 1) > 0)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->tally.what, sizeof w->tally.what, fmt, args);
    va_end(args);
}

static const char *const systems[] = {
    "You are a helpful assistant. Please answer the question with a short answer and then explain "
    "the reason for the answer. The system sends a message to the user and the user sends a "
    "message to the assistant.",
    "You are a helpful assistant. Please answer the question with a short answer and then explain "
    "the reason for the answer. Call the tool with the name and the arguments of the function. If "
    "there is an error, then say that there is an error and try again with other arguments.",
    ("The weather in Paris is sunny and the weather in London is rainy. What is the capital of "
     "France? The capital of France is Paris. You are a helpful assistant."),
    "Write a function that returns the sum of two numbers. def add(a, b): return a + b.",
};
static const char *const questions[] = {
    "Once upon a time there was a little girl who lived in a village near the forest. When she was "
    "older she went to the city and worked in a library where there were many books. Repeat my "
    "code word.",
    ("It is not the strongest of the species that survives but the one that is the most responsive "
     "to change. What is my code word?"),
    "The time is 12:30. Say the code word that I gave to you and nothing else.",
};

static int32_t conv_of_marker(const struct world *w, uint32_t marker)
{
    for (int32_t i = 0; i < w->set->n_convs; i++) {
        if (w->markers[i] == marker)
            return i;
    }
    return -1;
}

/* Reads a text for markers: returns another conversation's, -1 when there is none; *own says
 * whether its own is there. */
static int32_t foreign_marker(const struct world *w, int32_t id, const int32_t *tokens, int32_t n,
                              bool *own)
{
    static _Thread_local char text[TEXT_BYTES];
    size_t used = 0;
    *own = false;
    for (int32_t i = 0; i < n; i++) {
        str piece = tokenizer_piece(w->tok, tokens[i]);
        if (used + piece.n >= sizeof text)
            break;
        memcpy(text + used, piece.p, piece.n);
        used += piece.n;
    }
    for (size_t at = 0; at + 3 + MARKER_DIGITS <= used; at++) {
        if (memcmp(text + at, "mk-", 3) != 0)
            continue;
        char digits[MARKER_DIGITS + 1] = {0};
        char *end;
        memcpy(digits, text + at + 3, MARKER_DIGITS);
        uint32_t marker = (uint32_t)strtoul(digits, &end, 16);
        int32_t whose = end == digits + MARKER_DIGITS ? conv_of_marker(w, marker) : -1;
        if (whose == id)
            *own = true;
        else if (whose >= 0)
            return whose;
    }
    return -1;
}

static void make_convs(struct world *w)
{
    for (int32_t i = 0; i < w->set->n_convs; i++) {
        w->convs[i] = (struct conv){.id = i};
        w->markers[i] = (uint32_t)hash_xxh3_64(&i, sizeof i, 77);
        for (int32_t k = 0; k < i; k++)
            assert_true(w->markers[k] != w->markers[i]);
    }
}

/* The words of the user's next turn, after what was said before. */
static void append_turn(struct world *w, struct conv *c)
{
    char text[2048];
    char system[256];
    struct t9_err err = {0};
    uint32_t marker = w->markers[c->id];
    const char *shared = systems[(size_t)c->id % 4];
    snprintf(system, sizeof system, "The code word of this chat is mk-%08x. It is a secret.",
             marker);
    int n = c->turn == 0 ? snprintf(text, sizeof text, "<|im_start|>system\n%s<|im_end|>\n",
                                    c->id % 3 == 0 ? system : shared)
                         : snprintf(text, sizeof text, "<|im_end|>\n");
    n +=
        snprintf(text + n, sizeof text - (size_t)n,
                 "<|im_start|>user\nMy code word is mk-%08x. %s<|im_end|>\n<|im_start|>assistant\n",
                 marker, questions[(size_t)(c->id / 4 + c->turn) % 3]);
    struct tok_ids ids = {0};
    struct tok_span span = {{text, (size_t)n}, true, true};
    tok_ids_init(&ids, LENGTH_MAX);
    ok(tokenizer_encode(w->tok, &span, 1, false, &ids, &err), &err);
    if (c->n_tokens + (int32_t)ids.n > LENGTH_MAX - REPLY_MAX)
        fail_msg("conversation %d is too long: %d and %d tokens", c->id, c->n_tokens, (int)ids.n);
    if (c->turn == 0 && c->id % 5 == 0) /* these share not even the first token */
        c->tokens[c->n_tokens++] = FIRST_TOKEN + c->id;
    memcpy(c->tokens + c->n_tokens, ids.p, ids.n * sizeof *ids.p);
    c->n_tokens += (int32_t)ids.n;
    tok_ids_deinit(&ids);
}

static void ask(struct world *w, struct conv *c)
{
    struct t9_err err = {0};
    uint64_t draw = test_random(&w->rng);
    int32_t max = 4 + (int32_t)(draw % (uint64_t)w->set->reply_max);
    /* Neighbours get more at first than what admission sets aside: pages run out. */
    bool is_long = c->turn == 0 && c->id >= w->set->n_convs / 2 &&
                   c->id < w->set->n_convs / 2 + w->set->n_long;
    if (is_long)
        max = REPLY_MAX - (int32_t)(draw >> 32 & 63);
    ok(request_new(&c->r, max, &err), &err);
    c->r->prompt = c->tokens;
    c->r->n_prompt = c->n_tokens;
    c->r->choice = (uint32_t)c->id;
    c->r->priority = c->retried || c->id % 10 == 9; /* asked again while it is cached */
    sample_params_init(&c->r->sampling);
    c->r->sampling.temperature = c->id % 2 ? 0.8f : 0.0f;
    c->r->sampling.seed = (uint64_t)c->id + 1;
    c->cancelled = false;
    c->cancel = CANCEL_NEVER;
    c->r->ignore_eos = is_long;
    if (!c->retried && !is_long && draw >> 40 & 1)
        c->cancel = (cancel_kind)(draw >> 41 & 3);
    c->cancel_tokens = 1 + (int32_t)(draw >> 48 & 7);
    ok(engine_submit(w->e, c->r, &err), &err);
}

static void maybe_cancel(struct world *w, struct conv *c)
{
    int32_t n = atomic_load(&c->r->n_tokens);
    int32_t prefilled = atomic_load(&c->r->n_prefilled);
    bool now = c->cancel == CANCEL_AT_ONCE ||
               (c->cancel == CANCEL_IN_PROMPT && (prefilled > 0 || n > 0)) ||
               (c->cancel == CANCEL_IN_REPLY && n >= c->cancel_tokens);
    if (!now || c->cancelled)
        return;
    c->cancelled = true;
    engine_cancel(w->e, c->r);
}

/* A turn has ended. One that was cancelled is asked again or goes on with what there was. */
static void take_answer(struct world *w, struct conv *c)
{
    struct request *r = c->r;
    finish_reason why = (finish_reason)atomic_load(&r->finish);
    int32_t n = atomic_load(&r->n_tokens);
    bool own;
    if (why == FINISH_REASON_ERROR)
        fail_msg("conversation %d: %s", c->id, r->error.msg);
    w->tally.n_cancelled += why == FINISH_REASON_CANCELLED;
    int32_t whose = foreign_marker(w, c->id, r->tokens, n, &own);
    if (whose >= 0)
        wrong(w, "an answer to conversation %d has the marker of %d", c->id, whose);
    w->tally.own_markers += own;
    c->retried = why == FINISH_REASON_CANCELLED && !c->retried && (c->id + c->turn) % 2 == 0;
    if (c->retried) {
        w->tally.n_retried++;
    } else {
        c->reply_at[c->turn] = c->n_tokens;
        c->reply_n[c->turn] = n;
        memcpy(c->tokens + c->n_tokens, r->tokens, sizeof *r->tokens * (size_t)n);
        c->n_tokens += n;
        /* What an answer that was cancelled had beyond this one. */
        memset(&w->row[c->id][c->n_tokens + 1], 0,
               sizeof **w->row * (size_t)(LENGTH_MAX - c->n_tokens));
        c->turn++;
        w->tally.n_turns++;
        c->done = c->turn == w->set->n_turns;
        if (!c->done)
            append_turn(w, c);
    }
    request_free(r);
    c->r = NULL;
    if (!c->done)
        ask(w, c);
}

static void talk(struct world *w)
{
    int32_t n_done = 0;
    uint64_t moved_ns = clock_now_ns();
    for (int32_t i = 0; i < w->set->n_convs; i++) {
        append_turn(w, &w->convs[i]);
        ask(w, &w->convs[i]);
    }
    while (n_done < w->set->n_convs) {
        usleep(300);
        for (int32_t i = 0; i < w->set->n_convs; i++) {
            struct conv *c = &w->convs[i];
            if (c->done)
                continue;
            maybe_cancel(w, c);
            if (atomic_load_explicit(&c->r->finish, memory_order_acquire) == FINISH_REASON_NONE)
                continue;
            take_answer(w, c);
            n_done += c->done;
            moved_ns = clock_now_ns();
        }
        if (clock_now_ns() - moved_ns > (uint64_t)STALL_MS * 1000000)
            fail_msg("nothing ends; %d conversations are done", n_done);
    }
}

/* ---- looking between two steps, on the engine's thread ---- */

static void compute_again(struct world *w, const char *what, const int32_t *tokens, int32_t n,
                          const int32_t *pages, const int32_t *windows)
{
    struct second *s = &w->second;
    struct t9_err err = {0};
    if (second_compute(s, tokens, n, &w->hook_rng, &err) != T9_STATUS_OK) {
        wrong(w, "%s", err.msg);
        return;
    }
    const int32_t *theirs = batch_pages(&s->batch, 0);
    const int32_t *their_windows = batch_windows(&s->batch, 0);
    for (int32_t i = 0; i * KV_PAGE_TOKENS < n; i++) {
        int32_t left = n - i * KV_PAGE_TOKENS;
        int32_t n_slots = left < KV_PAGE_TOKENS ? left : KV_PAGE_TOKENS;
        for (int32_t layer = 0; layer < s->geom.n_layers; layer++) {
            const struct kv_layer *kv = &s->geom.layers[layer];
            if (kv->in_window && windows[i] < 0)
                continue;
            int32_t head = kv->in_window
                               ? other_head(kv, kv_window_base(w->e->pool), windows[i],
                                            kv_window_base(s->pool), their_windows[i], n_slots)
                               : other_head(kv, kv_pool_base(w->e->pool), pages[i],
                                            kv_pool_base(s->pool), theirs[i], n_slots);
            if (head >= 0)
                wrong(w, "%s: page %d of %d tokens (id %d), layer %d, head %d: other bits", what, i,
                      n, pages[i], layer, head);
        }
        w->tally.pages_again++;
    }
    w->tally.texts_again++;
    w->tally.tokens_again += (uint64_t)n;
}

/* Tokens, pages and window pages (-1 = not there) from the start to the end of a node; 0 when it is
 * longer than any text here. */
static int32_t chain_of(const struct kv_tree *t, const struct kv_node *n, int32_t *tokens,
                        int32_t *pages, int32_t *windows)
{
    int32_t depth = 0;
    for (const struct kv_node *k = n; k != &t->root; k = k->parent)
        depth++;
    if (depth > LENGTH_MAX / KV_PAGE_TOKENS)
        return 0;
    int32_t n_tokens = (depth - 1) * KV_PAGE_TOKENS + n->n_tokens;
    for (int32_t i = depth - 1; i >= 0; i--, n = n->parent) {
        memcpy(tokens + (size_t)i * KV_PAGE_TOKENS, n->tokens,
               sizeof *tokens * (size_t)n->n_tokens);
        pages[i] = n->page;
        windows[i] = t->windows ? t->windows[n - t->nodes].id : -1;
    }
    return n_tokens;
}

/* The pages that a sequence shares: do they stand for its text, and is it only its own? */
static void read_prefix(struct world *w, int32_t slot)
{
    int32_t tokens[LENGTH_MAX] = {0};
    int32_t pages[LENGTH_MAX / KV_PAGE_TOKENS] = {0};
    int32_t windows[LENGTH_MAX / KV_PAGE_TOKENS] = {0};
    const struct seq *s = &w->e->seqs[slot];
    int32_t id = (int32_t)s->req->choice;
    bool own;
    int32_t n = s->hold.last ? chain_of(w->e->tree, s->hold.last, tokens, pages, windows) : 0;
    if (n != s->hold.n_pages * KV_PAGE_TOKENS ||
        memcmp(tokens, seq_known(w->e, slot), sizeof *tokens * (size_t)n) != 0 ||
        memcmp(pages, batch_pages(&w->e->batch, slot), sizeof *pages * (size_t)s->hold.n_pages) !=
            0)
        wrong(w, "conversation %d reads cached pages of another text", id);
    if (w->seen_id[slot] == s->req->id)
        return;
    w->seen_id[slot] = s->req->id;
    w->tally.chains_read += n > 0;
    int32_t whose = foreign_marker(w, id, tokens, n, &own);
    if (whose >= 0)
        wrong(w, "the cached prefix of conversation %d has the marker of %d", id, whose);
}

static void sample_slot(struct world *w)
{
    int32_t first = (int32_t)(test_random(&w->hook_rng) % (uint64_t)w->e->n_slots);
    for (int32_t i = 0; i < w->e->n_slots; i++) {
        int32_t slot = (first + i) % w->e->n_slots;
        const struct seq *s = &w->e->seqs[slot];
        if (!s->req || s->n_computed < 1)
            continue;
        compute_again(w, "a sequence", seq_known(w->e, slot), s->n_computed,
                      batch_pages(&w->e->batch, slot), batch_windows(&w->e->batch, slot));
        return;
    }
}

static void compute_node_again(struct world *w, const struct kv_node *n)
{
    int32_t tokens[LENGTH_MAX] = {0};
    int32_t pages[LENGTH_MAX / KV_PAGE_TOKENS] = {0};
    int32_t windows[LENGTH_MAX / KV_PAGE_TOKENS] = {0};
    int32_t n_tokens = chain_of(w->e->tree, n, tokens, pages, windows);
    if (n_tokens > 0)
        compute_again(w, "the cache", tokens, n_tokens, pages, windows);
    else
        wrong(w, "the cache has a text that is too long");
}

static void sample_tree(struct world *w)
{
    const struct kv_tree *t = w->e->tree;
    uint64_t first = test_random(&w->hook_rng);
    for (int32_t i = 0; i < t->n_ever; i++) {
        const struct kv_node *n = &t->nodes[(first + (uint64_t)i) % (uint64_t)t->n_ever];
        if (n->state != NODE_READY)
            continue;
        compute_node_again(w, n);
        return;
    }
}

static void all_of_tree(struct world *w)
{
    const struct kv_tree *t = w->e->tree;
    for (int32_t i = 0; i < t->n_ever; i++) {
        if (t->nodes[i].state == NODE_READY && !t->nodes[i].first_child)
            compute_node_again(w, &t->nodes[i]);
    }
}

static void look(void *ctx, struct engine *e)
{
    struct world *w = ctx;
    w->n_steps++;
    for (int32_t i = 0; i < e->n_slots; i++) {
        if (e->seqs[i].req)
            read_prefix(w, i);
    }
    if (w->n_steps % (uint64_t)w->set->stride == 0)
        sample_slot(w);
    if (w->n_steps % (uint64_t)w->set->stride == (uint64_t)w->set->stride / 2)
        sample_tree(w);
    if (atomic_load(&w->closing) && !atomic_load(&w->closed)) {
        all_of_tree(w);
        w->tree = kv_tree_stats(e->tree);
        atomic_store(&w->closed, true);
    }
}

static void keep_row(void *ctx, const struct request *r, int32_t position, const float *logits,
                     int32_t n_vocab)
{
    struct world *w = ctx;
    uint64_t *row = &w->row[r->choice][position];
    uint64_t hash = hash_xxh3_64(logits, sizeof *logits * (size_t)n_vocab, 0) | 1;
    /* A turn that is asked again is the same text and the same random numbers. */
    if (*row != 0 && *row != hash)
        wrong(w, "conversation %u, position %d: other logits when asked again", r->choice,
              position);
    *row = hash;
}

/* ---- the end ---- */

struct solo {
    struct world *w;
    int32_t id;
};

static bool solo_row(void *ctx, int32_t position, const float *logits)
{
    struct solo *s = ctx;
    uint64_t row = s->w->row[s->id][position + 1];
    if (row == 0)
        return true;
    size_t bytes = sizeof *logits * (size_t)model_info(s->w->l.m)->n_vocab;
    s->w->tally.rows_again++;
    if (row != (hash_xxh3_64(logits, bytes, 0) | 1))
        wrong(s->w, "conversation %d, position %d: not the logits that it gets alone", s->id,
              position + 1);
    return true;
}

static void run_alone(struct world *w)
{
    for (int32_t i = 0; i < w->set->n_convs; i += w->set->solo_every) {
        struct conv *c = &w->convs[i];
        struct solo solo = {w, i};
        struct t9_err err = {0};
        struct eval_params p = {w->l.m, w->l.be, w->set->type, 96, 0};
        ok(eval_logits(&p, c->tokens, c->n_tokens, solo_row, &solo, &err), &err);
    }
}

static void open_engine(struct world *w)
{
    struct engine_params p;
    struct t9_err err = {0};
    struct kv_geom geom;
    engine_params_init(&p);
    ok(model_kv_geom(w->l.m, w->set->type, &geom, &err), &err);
    p.model = w->l.m;
    p.be = w->l.be;
    p.vocab = tokenizer_vocab(w->tok);
    p.kv_type = w->set->type;
    p.kv_bytes = kv_geom_bytes(&geom) * (uint64_t)w->set->pages;
    p.max_length = LENGTH_MAX;
    p.max_batch = 32;
    p.step_tokens = 128;
    ok(engine_new(&w->e, &p, &err), &err);
    assert_true(w->e->n_slots <= SLOTS_MAX);
    engine_tree(w->e)->hash_mask = HASH_MASK;
    engine_set_step_hook(w->e, look, w);
    engine_set_logits_hook(w->e, keep_row, w);
}

/* One more request wakes the engine, and its hook looks at all that is left. */
static void close_engine(struct world *w)
{
    static const int32_t prompt[1] = {1};
    struct request *r;
    struct t9_err err = {0};
    struct event_cursor c = {.admitted = true, .n_prefilled = INT32_MAX, .n_tokens = INT32_MAX};
    ok(request_new(&r, 1, &err), &err);
    r->prompt = prompt;
    r->n_prompt = 1;
    r->choice = 0;
    w->row[0][1] = 0;
    atomic_store(&w->closing, true);
    ok(engine_submit(w->e, r, &err), &err);
    assert_true(engine_wait(w->e, r, &c, STALL_MS));
    request_free(r);
    engine_stats_read(w->e, &w->stats);
    engine_free(w->e);
    w->row[0][1] = 0;
    assert_true(atomic_load(&w->closed));
}

static void report(const struct world *w, double seconds)
{
    const struct engine_stats *s = &w->stats;
    const struct tally *t = &w->tally;
    print_message("%d conversations, %d turns, %d pages of KV %s: %d hits (%d full, %d partial, %d "
                  "in flight), %d misses; %d preemptions, %d cancels (%d asked again)\n",
                  (int)w->set->n_convs, (int)t->n_turns, (int)w->set->pages,
                  kv_type_name(w->set->type),
                  (int)(s->prefix_full + s->prefix_partial + s->prefix_inflight),
                  (int)s->prefix_full, (int)s->prefix_partial, (int)s->prefix_inflight,
                  (int)s->prefix_miss, (int)s->preemptions, (int)t->n_cancelled, (int)t->n_retried);
    print_message("%d prompt tokens computed, %d from the cache, %d generated; %d pages evicted, "
                  "%d hash collisions met\n",
                  (int)s->prompt_tokens, (int)s->cached_tokens, (int)s->generated_tokens,
                  (int)s->evicted_pages, (int)w->tree.collisions);
    print_message("%d pages of %d texts (%d tokens) computed again, %d rows of logits compared "
                  "with the conversation alone, %d cached prefixes and %d answers read for "
                  "markers (%d answers had their own): %d things wrong; %.0f s\n",
                  (int)t->pages_again, (int)t->texts_again, (int)t->tokens_again,
                  (int)t->rows_again, (int)t->chains_read, (int)(t->n_turns + t->n_retried),
                  (int)t->own_markers, (int)t->wrong, seconds);
}

static void isolation(const struct setup *set)
{
    struct world *w = &world;
    struct t9_err err = {0};
    uint64_t began_ns = clock_now_ns();
    memset(w, 0, sizeof *w);
    w->set = set;
    w->rng = 11;
    w->hook_rng = 12;
    load_file(&w->l, set->path, "cpu", set->n_threads);
    ok(tokenizer_new(&w->tok, w->l.g, &err), &err);
    second_init(&w->second, set);
    make_convs(w);
    open_engine(w);
    talk(w);
    close_engine(w);
    run_alone(w);
    report(w, (double)(clock_now_ns() - began_ns) * 1e-9);
    second_deinit(&w->second);
    tokenizer_free(w->tok);
    unload(&w->l);
    if (atomic_load(&w->tally.wrong) > 0)
        fail_msg("%d things wrong; the first: %s", atomic_load(&w->tally.wrong), w->tally.what);
    /* All of it was there to go wrong. */
    assert_true(w->stats.prefix_full > 0 || set->n_convs < CONVS_MAX);
    assert_true(w->stats.prefix_partial > 0 && w->stats.prefix_inflight > 0);
    assert_true(w->stats.prefix_miss > 0);
    assert_true(w->stats.preemptions > 0 && w->tally.n_cancelled > 0);
    assert_true(w->tree.collisions > 0 && w->stats.evicted_pages > 0);
    assert_true(w->tally.pages_again > 0 && w->tally.rows_again > 0);
}

static void tiny(kv_type type)
{
    char dir[64];
    char path[96];
    struct t9_err err = {0};
    struct mkgguf_params p = MKGGUF_DEFAULT;
    p.width = 64;
    p.ffn = 128;
    test_tmpdir(dir);
    snprintf(path, sizeof path, "%s/tiny.gguf", dir);
    ok(mkgguf_write(path, &p, &err), &err);
    struct setup set = {.path = path,
                        .type = type,
                        .n_convs = type == KV_TYPE_F16 ? CONVS_MAX : 80,
                        .n_turns = type == KV_TYPE_F16 ? 3 : 2,
                        .pages = type == KV_TYPE_F16 ? 160 : 90,
                        .reply_max = 60,
                        .n_long = 40,
                        .stride = 20,
                        .n_threads = 1,
                        .solo_every = 1};
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
    set.n_turns = 2;
    set.stride = 60;
    set.solo_every = 4;
#endif
    isolation(&set);
    unlink(path);
    rmdir(dir);
}

static void tiny_f16(void **state)
{
    (void)state;
    tiny(KV_TYPE_F16);
}

static void tiny_q8_0(void **state)
{
    (void)state;
    tiny(KV_TYPE_Q8_0);
}

static void full(void **state)
{
    (void)state;
    const struct setup set = {.path = full_model(),
                              .type = KV_TYPE_F16,
                              .n_convs = CONVS_MAX,
                              .n_turns = 3,
                              .pages = 120,
                              .reply_max = 20,
                              .n_long = 30,
                              .stride = 12,
                              .n_threads = 1,
                              .solo_every = 8};
    isolation(&set);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tiny_tests[] = {
        cmocka_unit_test(tiny_f16),
        cmocka_unit_test(tiny_q8_0),
    };
    const struct CMUnitTest full_tests[] = {cmocka_unit_test(full)};
    const struct log_config quiet = {.level = LOG_LEVEL_ERROR};
    log_configure(&quiet);
    if (argc < 2 || strcmp(argv[1], "full") != 0)
        return cmocka_run_group_tests_name("isolation", tiny_tests, NULL, NULL);
    return full_model() ? cmocka_run_group_tests_name("isolation full", full_tests, NULL, NULL)
                        : 77;
}
