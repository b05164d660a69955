/*
 * engine/state.c - the snapshot that engine_state_read copies, and what testing.h offers.
 *
 * The engine thread writes, any thread reads, nobody waits for the writer: the version is odd while
 * words change, and a reader whose words do not all belong to one version takes them again. Words
 * are release-stored and acquire-loaded, so a reader that has seen one new word sees the odd
 * version too.
 */
#include "base/clock.h"
#include "engine/internal.h"

#include <string.h>

enum { STATE_WORDS = (sizeof(struct engine_state) + 7) / 8 };

static void describe(const struct request *r, int32_t n_pages, uint64_t now_ns,
                     struct engine_state_seq *out)
{
    uint64_t queued_ns = atomic_load_explicit(&r->clocks.queued, memory_order_relaxed);
    *out = (struct engine_state_seq){
        .id = r->id,
        .state = req_state_name((req_state)atomic_load_explicit(&r->state, memory_order_relaxed)),
        .age_ns = now_ns > queued_ns ? now_ns - queued_ns : 0,
        .priority = r->priority,
        .n_prompt = r->n_prompt,
        .n_prefilled = atomic_load_explicit(&r->n_prefilled, memory_order_relaxed),
        .n_cached = atomic_load_explicit(&r->n_cached, memory_order_relaxed),
        .n_tokens = atomic_load_explicit(&r->n_tokens, memory_order_relaxed),
        .max_tokens = r->max_tokens,
        .n_pages = n_pages,
        .n_preempted = atomic_load_explicit(&r->n_preempted, memory_order_relaxed),
    };
}

static void fill(const struct engine *e, struct engine_state *s, uint64_t now_ns)
{
    struct kv_pool_stats kv = kv_pool_stats(e->pool);
    struct kv_tree_stats tree = {0};
    if (e->tree)
        tree = kv_tree_stats(e->tree);
    s->step = e->step;
    s->at_ns = now_ns;
    s->pages_free = (int32_t)(kv.free_bytes / kv.page_bytes);
    s->pages_total = kv.pages_used + s->pages_free;
    s->pages_cold = tree.cold_pages;
    s->pages_pinned = tree.pinned_pages;
    s->states_used = kv.states_used - tree.states;
    s->states_kept = tree.states;
    s->tree_nodes = tree.nodes;
    s->tree_tails = tree.tails;
    s->tree_promised = tree.promised;
    s->n_running = e->n_running_now;
    s->n_prefix = e->n_prefix_now;
    s->n_waiting = atomic_load_explicit(&e->n_waiting, memory_order_relaxed);
    s->n_preempted = e->n_preempted_now;
    s->cost_step_ns = e->cost.stretch * e->cost.step_ns;
    s->cost_row_ns = e->cost.stretch * e->cost.row_ns;
    s->cost_key_ns = e->cost.stretch * e->cost.key_ns;
    s->cost_experts_ns = e->cost.stretch * e->cost.experts_ns;
    s->decode_step_ns = e->decode_step_ns;
    s->n_seqs = s->n_queue = 0;
    for (int32_t i = 0; i < e->n_slots && s->n_seqs < ENGINE_STATE_SEQS_MAX; i++) {
        if (e->seqs[i].req)
            describe(e->seqs[i].req, e->seqs[i].n_pages, now_ns, &s->seqs[s->n_seqs++]);
    }
    for (const struct request *r = e->waiting; r && s->n_queue < ENGINE_STATE_SEQS_MAX; r = r->next)
        describe(r, 0, now_ns, &s->queue[s->n_queue++]);
}

void state_publish(struct engine *e, uint64_t now_ns)
{
    struct state_box *box = e->state;
    fill(e, e->state_next, now_ns);
    const char *from = (const char *)e->state_next;
    uint64_t version = atomic_load_explicit(&box->version, memory_order_relaxed);
    atomic_store_explicit(&box->version, version + 1, memory_order_relaxed);
    for (size_t i = 0; i < STATE_WORDS; i++) {
        uint64_t word;
        memcpy(&word, from + 8 * i, sizeof word);
        if (word != atomic_load_explicit(&box->word[i], memory_order_relaxed))
            atomic_store_explicit(&box->word[i], word, memory_order_release);
    }
    atomic_store_explicit(&box->version, version + 2, memory_order_release);
}

void engine_state_read(const struct engine *e, struct engine_state *out)
{
    const struct state_box *box = e->state;
    char *to = (char *)out;
    for (;;) {
        uint64_t version = atomic_load_explicit(&box->version, memory_order_acquire);
        for (size_t i = 0; i < STATE_WORDS && version % 2 == 0; i++) {
            uint64_t word = atomic_load_explicit(&box->word[i], memory_order_acquire);
            memcpy(to + 8 * i, &word, sizeof word);
        }
        if (version % 2 == 0 &&
            version == atomic_load_explicit(&box->version, memory_order_relaxed))
            return;
    }
}

/* ---- testing.h ---- */

struct kv_tree *engine_tree(struct engine *e)
{
    return e->tree;
}

struct kv_pool *engine_pool(struct engine *e)
{
    return e->pool;
}

static t9_status check_slot(const struct engine *e, int32_t slot, struct t9_err *err)
{
    const struct seq *s = &e->seqs[slot];
    const struct sched_seq *plan = &e->sched[slot];
    const int32_t *pages = batch_pages(&e->batch, slot);
    if (plan->used != (s->req != NULL))
        return t9_fail(err, T9_STATUS_CORRUPT, "slot %d: the scheduler sees it otherwise", slot);
    if (!s->req)
        return s->n_pages == 0 && s->hold.n_pages == 0
                   ? T9_STATUS_OK
                   : t9_fail(err, T9_STATUS_CORRUPT, "slot %d is free and holds pages", slot);
    if (s->hold.n_pages > s->n_pages || s->n_computed > s->n_pages * KV_PAGE_TOKENS ||
        s->n_computed > s->n_known ||
        (e->tree && s->n_computed / KV_PAGE_TOKENS != s->hold.n_pages))
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "slot %d: %d of %d tokens computed in %d pages, %d of them shared", slot,
                       s->n_computed, s->n_known, s->n_pages, s->hold.n_pages);
    if (!s->waits && plan->n_pending != s->n_known - s->n_computed)
        return t9_fail(err, T9_STATUS_CORRUPT, "slot %d: %d tokens pending, not %d", slot,
                       plan->n_pending, s->n_known - s->n_computed);
    if (e->state_bytes > 0 && (s->waits ? s->state >= 0
                                        : !kv_state_is_used(e->pool, s->state) ||
                                              *batch_state(&e->batch, slot) != s->state))
        return t9_fail(err, T9_STATUS_CORRUPT, "slot %d: state %d is not its own", slot, s->state);
    if (e->state_bytes > 0 && e->tree && checkpoint_match_holds(e, slot) && s->match.n_tail == 0 &&
        kv_hold_has_state(&s->hold) != (s->match.state >= 0))
        return t9_fail(err, T9_STATUS_CORRUPT, "slot %d waits with a match that is not true", slot);
    for (int32_t other = 0; other < slot && s->state >= 0; other++) {
        if (e->seqs[other].req && e->seqs[other].state == s->state)
            return t9_fail(err, T9_STATUS_CORRUPT, "slots %d and %d both have state %d", other,
                           slot, s->state);
    }
    int32_t first = kv_window_first(&e->geom, s->n_computed / KV_PAGE_TOKENS);
    if (e->geom.window > 0 &&
        (s->window_from != first || (e->tree && s->hold.window_from != first)))
        return t9_fail(err, T9_STATUS_CORRUPT, "slot %d: window pages from %d on, not from %d",
                       slot, s->window_from, first);
    /* An own page is in no other table. */
    for (int32_t i = s->hold.n_pages; i < s->n_pages; i++) {
        for (int32_t other = 0; other < e->n_slots; other++) {
            const int32_t *theirs = batch_pages(&e->batch, other);
            for (int32_t k = 0; k < e->seqs[other].n_pages; k++) {
                if (theirs[k] == pages[i] && (other != slot || k != i))
                    return t9_fail(err, T9_STATUS_CORRUPT, "slots %d and %d both have page %d",
                                   slot, other, pages[i]);
            }
        }
    }
    return T9_STATUS_OK;
}

t9_status engine_check(struct engine *e, struct t9_err *err)
{
    int32_t n_holds = 0;
    int32_t n_own = 0;
    int32_t n_running = 0;
    int32_t n_prefix = 0;
    int32_t n_states = 0;
    int32_t n_own_windows = 0;
    for (int32_t i = 0; i < e->n_slots; i++) {
        const struct seq *s = &e->seqs[i];
        T9_TRY(check_slot(e, i, err));
        n_states += s->req && s->state >= 0;
        n_own += s->n_pages - s->hold.n_pages;
        if (e->geom.window > 0)
            n_own_windows += s->n_pages - (e->tree ? s->hold.n_pages : s->window_from);
        n_running += s->req && !s->waits;
        n_prefix += s->req && s->waits;
        if (s->hold.n_pages > 0)
            e->check_holds[n_holds++] = s->hold;
    }
    if (n_running != e->n_running_now || n_prefix != e->n_prefix_now)
        return t9_fail(err, T9_STATUS_CORRUPT, "%d sequences run and %d wait, counted %d and %d",
                       n_running, n_prefix, e->n_running_now, e->n_prefix_now);
    struct kv_tree_stats tree = {0};
    if (e->tree) {
        T9_TRY(kv_tree_check(e->tree, e->check_holds, n_holds, err));
        tree = kv_tree_stats(e->tree);
    }
    struct kv_pool_stats kv = kv_pool_stats(e->pool);
    if (kv.pages_used != tree.pages + n_own)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%d pages are used; the tree has %d and the sequences %d", kv.pages_used,
                       tree.pages, n_own);
    if (kv.windows_used != tree.windows + n_own_windows)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%d window pages are used; the tree has %d and the sequences %d",
                       kv.windows_used, tree.windows, n_own_windows);
    if (kv.states_used != tree.states + n_states)
        return t9_fail(err, T9_STATUS_CORRUPT,
                       "%d states are used; the tree has %d and the sequences %d", kv.states_used,
                       tree.states, n_states);
    return T9_STATUS_OK;
}
