/*
 * engine/seq.c - the slots: a sequence's pages, its hold on the prefix tree, and how it gives both
 * back.
 *
 * The first pages of a slot's table are the tree's and shared; a page that a sequence has filled
 * becomes the tree's at the end of the step, so that others can use it at once. The page that it
 * writes to is its own: a prefix that ends inside a page is copied. When the pool is empty, cache
 * that nobody uses goes first, pinned cache next, and then the newest sequence of the lowest
 * priority goes back to the queue; what it had computed stays as cache as long as there is room.
 * The oldest one of the highest priority never gives way, so something always ends.
 *
 * Engine thread only.
 */
#include "base/clock.h"
#include "base/log.h"
#include "engine/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DIVERGENCE_TOKENS = 8 };

int32_t *seq_known(const struct engine *e, int32_t slot)
{
    return e->known + (size_t)slot * (size_t)e->max_length;
}

int64_t seq_bytes_to_be_had(const struct engine *e)
{
    struct kv_pool_stats kv = kv_pool_stats(e->pool);
    struct kv_tree_stats tree = {0};
    if (e->tree)
        tree = kv_tree_stats(e->tree);
    return (int64_t)kv.free_bytes + tree.cold_pages * (int64_t)kv.page_bytes +
           tree.cold_windows * (int64_t)kv.window_bytes + tree.states * (int64_t)kv.state_bytes;
}

/* Drops cache until that many bytes are free, as far as that is possible; unpinned cache first.
 * keep_state (-1 = none) stays. */
static void make_free_beside(struct engine *e, uint64_t bytes, int32_t keep_state)
{
    uint64_t free_bytes = kv_pool_stats(e->pool).free_bytes;
    if (bytes <= free_bytes || !e->tree)
        return;
    uint64_t now_ns = clock_now_ns();
    uint64_t missing = bytes - free_bytes;
    uint64_t freed = kv_tree_free_bytes(e->tree, missing, false, keep_state, now_ns);
    if (freed < missing)
        (void)kv_tree_free_bytes(e->tree, missing - freed, true, keep_state, now_ns);
}

static void make_free(struct engine *e, uint64_t bytes)
{
    make_free_beside(e, bytes, -1);
}

static void publish_counts(struct engine *e)
{
    atomic_store_explicit(&e->n_running, e->n_running_now, memory_order_relaxed);
    atomic_store_explicit(&e->n_prefix, e->n_prefix_now, memory_order_relaxed);
}

/* ---- a request comes ---- */

void seq_place(struct engine *e, int32_t slot, struct request *r)
{
    int32_t *known = seq_known(e, slot);
    int32_t n_log = atomic_load_explicit(&r->n_tokens, memory_order_relaxed);
    memcpy(known, r->prompt, (size_t)r->n_prompt * sizeof *known);
    memcpy(known + r->n_prompt, r->tokens, (size_t)n_log * sizeof *known);
    e->seqs[slot] = (struct seq){
        .req = r, .n_known = r->n_prompt + n_log, .output = -1, .state = -1, .wait_slot = -1};
    e->sched[slot] = (struct sched_seq){
        .used = true, .priority = r->priority, .order = r->id, .last_step = e->step};
}

bool seq_wants_all_rows(const struct request *r)
{
    return r->prompt_logprobs && r->n_scored < r->n_prompt - 1;
}

struct kv_match seq_match(struct engine *e, int32_t slot, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    if (!e->tree || seq_wants_all_rows(s->req))
        return (struct kv_match){.tail_page = -1, .tail_window = -1, .state = -1};
    bool has_states = e->state_bytes > 0;
    /* With states a match walks the whole text, too much for each step of a slot that waits. */
    if (!has_states || !checkpoint_match_holds(e, slot)) {
        s->match = kv_tree_match(e->tree, &s->hold, seq_known(e, slot), s->n_known,
                                 batch_pages(&e->batch, slot), now_ns);
        s->match_changes = kv_tree_state_changes(e->tree);
        s->n_pages = s->hold.n_pages;
        s->n_computed = s->n_pages * KV_PAGE_TOKENS;
        s->window_from = s->hold.window_from;
        kv_hold_windows(e->tree, &s->hold, batch_windows(&e->batch, slot));
    }
    struct kv_match m = s->match;
    s->branch_at = m.n_common > s->n_computed + m.n_tail ? m.n_common : 0;
    if (has_states)
        checkpoint_look(e, slot, &m);
    return m;
}

/* Where a prompt left the cached texts. The log gets places only: whoever has the model can turn
 * token ids into text. */
static void note_divergence(struct engine *e, int32_t slot)
{
    struct seq *s = &e->seqs[slot];
    const int32_t *known = seq_known(e, slot);
    int32_t cached[DIVERGENCE_TOKENS];
    int32_t at;
    int32_t n;
    if (!e->tree || seq_wants_all_rows(s->req) || s->n_computed >= s->n_known - 1 ||
        !kv_tree_divergence(e->tree, known, s->n_known, &at, cached, DIVERGENCE_TOKENS, &n))
        return;
    stats_count(&e->n.prefix_diverged, 1);
    if (!log_enabled(LOG_LEVEL_DEBUG))
        return;
    LOG_DEBUG("engine",
              "request %" PRIu64 ": %d of %d tokens reused; it leaves the cached text at token %d",
              s->req->id, s->n_computed, s->n_known, at);
    if (e->p.diverged) {
        int32_t n_asked = s->n_known - at < DIVERGENCE_TOKENS ? s->n_known - at : DIVERGENCE_TOKENS;
        struct engine_divergence d = {s->req->id, at, cached, known + at, n, n_asked};
        e->p.diverged(e->p.diverged_ctx, &d);
    }
}

/* Adds a page of its own, in all groups, to a slot's table; with what the tail of a match has, if
 * one is given. False when there is no room. */
static bool add_page(struct engine *e, int32_t slot, const struct kv_match *from)
{
    struct seq *s = &e->seqs[slot];
    int32_t window = kv_window_alloc(e->pool);
    if (window < 0 && e->geom.window > 0)
        return false;
    /* Now: memory of a window page that is not used any more may go to the page below. */
    if (window >= 0 && from)
        kv_window_copy(e->pool, window, from->tail_window);
    int32_t page = kv_page_alloc(e->pool);
    if (page >= 0 && from)
        kv_page_copy(e->pool, page, from->tail_page);
    if (page >= 0 && window >= 0)
        batch_windows(&e->batch, slot)[s->n_pages] = window;
    else if (window >= 0)
        kv_window_free(e->pool, window);
    if (page >= 0)
        batch_pages(&e->batch, slot)[s->n_pages++] = page;
    return page >= 0;
}

/* Copies what is usable of a page that the tree keeps into a page of its own. */
static void copy_tail(struct engine *e, int32_t slot, const struct kv_match *m)
{
    if (m->n_tail < 1 || m->tail_page < 0)
        return;
    make_free(e, kv_geom_bytes(&e->geom));
    if (add_page(e, slot, m))
        e->seqs[slot].n_computed += m->n_tail;
}

static void count_hit(struct engine *e, const struct seq *s)
{
    struct engine_counters *n = &e->n;
    int32_t cached = s->n_computed;
    if (s->was_shared)
        stats_count(&n->prefix_inflight, 1);
    else if (cached > 0 && cached == s->req->n_prompt - 1)
        stats_count(&n->prefix_full, 1);
    else
        stats_count(cached > 0 ? &n->prefix_partial : &n->prefix_miss, 1);
    stats_count(&n->cached_tokens, (uint64_t)cached);
    stats_count(&n->requests_admitted, 1);
}

static void add_duration(_Atomic uint64_t *sum, uint64_t begin_ns, uint64_t now_ns)
{
    if (now_ns > begin_ns)
        stats_count(sum, now_ns - begin_ns);
}

static void start_clocks(struct engine *e, struct seq *s, uint64_t now_ns)
{
    struct request *r = s->req;
    if (atomic_load_explicit(&r->clocks.admitted, memory_order_relaxed) != 0) {
        add_duration(&r->clocks.preempted_ns, r->paused_ns, now_ns);
        if (r->n_lost > s->n_computed)
            stats_count(&e->n.recomputed_tokens, (uint64_t)(r->n_lost - s->n_computed));
        return;
    }
    if (s->waits)
        add_duration(&r->clocks.prefix_ns, r->paused_ns, now_ns);
    atomic_store_explicit(&r->n_cached, s->n_computed, memory_order_relaxed);
    atomic_store_explicit(&r->n_prefilled, s->n_computed, memory_order_relaxed);
    count_hit(e, s);
    loop_set_clock(&r->clocks.admitted, now_ns);
}

/* A state of its own, and a page for the tail of the match; false when one of them cannot be had.
 */
static bool take_room(struct engine *e, struct seq *s, const struct kv_match *m, int32_t *page)
{
    bool wants_page = m->n_tail > 0;
    make_free_beside(e, e->state_bytes + (wants_page ? e->geom.page_bytes : 0), m->state);
    s->state = kv_state_alloc(e->pool);
    *page = wants_page ? kv_page_alloc(e->pool) : -1;
    if (s->state >= 0 && (!wants_page || *page >= 0))
        return true;
    if (s->state >= 0)
        kv_state_free(e->pool, s->state);
    if (*page >= 0)
        kv_page_free(e->pool, *page);
    s->state = -1;
    return false;
}

static void preempt(struct engine *e, int32_t slot);

/* Goes on from the state of the match: in a copy, or where there is no room for one, in the tree's
 * own. Without a match it begins with zeros; if nobody runs, those that wait for a prefix give way
 * for that. */
static bool take_state(struct engine *e, int32_t slot, const struct kv_match *m, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    int32_t page;
    bool ok = take_room(e, s, m, &page);
    while (!ok && m->state < 0 && e->n_running_now == 0) {
        e->sched[slot].used = false;
        int32_t victim = sched_victim(e->sched, e->n_slots);
        e->sched[slot].used = true;
        if (victim < 0)
            return false;
        preempt(e, victim);
        ok = take_room(e, s, m, &page);
    }
    if (!ok && m->state < 0)
        return false;
    if (m->state >= 0) {
        kv_tree_use_state(e->tree, m, now_ns);
        stats_count(&e->n.checkpoint_hits[m->state_kind], 1);
    }
    if (!ok) {
        kv_tree_take_state(e->tree, m);
        s->state = m->state;
        page = m->tail_page;
    } else if (m->state >= 0) {
        kv_state_copy(e->pool, s->state, m->state);
        if (page >= 0)
            kv_page_copy(e->pool, page, m->tail_page);
    } else {
        kv_state_clear(e->pool, s->state);
    }
    if (page >= 0)
        batch_pages(&e->batch, slot)[s->n_pages++] = page;
    s->n_computed += m->n_tail;
    s->ckpt_at = s->n_computed;
    *batch_state(&e->batch, slot) = s->state;
    return true;
}

bool seq_start(struct engine *e, int32_t slot, const struct kv_match *m, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    struct request *r = s->req;
    if (e->state_bytes == 0)
        copy_tail(e, slot, m);
    else if (!take_state(e, slot, m, now_ns))
        return false;
    if (e->tree)
        (void)kv_tree_keep_windows(e->tree, &s->hold, now_ns); /* others may leave it here, too */
    note_divergence(e, slot);
    start_clocks(e, s, now_ns);
    if (e->tree)
        kv_tree_promise(e->tree, &s->hold, seq_known(e, slot), s->n_known, r);
    if (s->waits)
        e->n_prefix_now--;
    s->waits = false;
    e->n_running_now++;
    publish_counts(e);
    struct sched_seq *plan = &e->sched[slot];
    plan->n_computed = s->n_computed;
    plan->n_pending = s->n_known - s->n_computed;
    plan->decoding = plan->n_pending == 1 && s->n_computed >= r->n_prompt;
    plan->last_step = e->step;
    r->engine_private = s;
    atomic_store_explicit(&r->state, REQ_STATE_RUNNING, memory_order_relaxed);
    loop_notify(r);
    return true;
}

/* ---- a request goes ---- */

void seq_spoil(struct engine *e, int32_t slot)
{
    uint64_t now_ns = clock_now_ns();
    e->seqs[slot].spoilt = true;
    for (int32_t i = 0; e->tree && e->n_prefix_now > 0 && i < e->n_slots; i++) {
        struct seq *s = &e->seqs[i];
        if (!s->req || !s->waits)
            continue;
        kv_tree_release(e->tree, &s->hold, now_ns);
        s->n_pages = s->n_computed = s->window_from = 0;
        s->match_changes = UINT64_MAX; /* its match does not hold any more */
    }
}

void seq_leave(struct engine *e, int32_t slot)
{
    struct seq *s = &e->seqs[slot];
    const int32_t *pages = batch_pages(&e->batch, slot);
    const int32_t *windows = batch_windows(&e->batch, slot);
    int32_t n_shared = s->hold.n_pages;
    int32_t n_tail = s->n_computed - n_shared * KV_PAGE_TOKENS;
    int32_t n_own = n_shared;
    uint64_t now_ns = clock_now_ns();
    bool keeps = e->tree && !s->spoilt;
    if (e->tree)
        kv_tree_unpromise(e->tree, s->req);
    if (keeps && n_tail > 0 && n_tail < KV_PAGE_TOKENS && s->n_pages > n_shared) {
        const int32_t *tokens = seq_known(e, slot) + (s->n_computed - n_tail);
        if (s->state >= 0)
            kv_tree_add_tail_state(e->tree, &s->hold, tokens, n_tail, pages[n_shared], s->state,
                                   now_ns);
        else
            kv_tree_add_tail(e->tree, &s->hold, tokens, n_tail, pages[n_shared],
                             windows ? windows[n_shared] : -1, now_ns);
        n_own++;
    } else if (s->state >= 0 &&
               !(keeps && n_tail == 0 &&
                 kv_tree_keep_state(e->tree, &s->hold, s->state, CKPT_KIND_END, now_ns))) {
        kv_state_free(e->pool, s->state);
    }
    /* The newest first, so that the oldest lies on top of the stack and is used again first. */
    for (int32_t i = s->n_pages - 1; i >= n_own; i--) {
        kv_page_free(e->pool, pages[i]);
        if (windows && i >= s->window_from)
            kv_window_free(e->pool, windows[i]);
    }
    if (keeps && n_tail == 0 && !s->waits)
        (void)kv_tree_keep_windows(e->tree, &s->hold, now_ns);
    if (keeps)
        kv_tree_release(e->tree, &s->hold, now_ns);
    else if (e->tree)
        kv_tree_discard(e->tree, &s->hold, now_ns);
    if (s->waits)
        e->n_prefix_now--;
    else if (s->req->engine_private)
        e->n_running_now--;
    s->req->engine_private = NULL;
    *s = (struct seq){0};
    e->sched[slot] = (struct sched_seq){0};
    e->trimmed = false;
    publish_counts(e);
}

void seq_end(struct engine *e, int32_t slot, finish_reason reason, const struct t9_err *err)
{
    struct request *r = e->seqs[slot].req;
    seq_leave(e, slot);
    loop_end_request(e, r, reason, err);
}

void seq_end_all(struct engine *e, finish_reason reason, const struct t9_err *err)
{
    for (int32_t i = 0; i < e->n_slots; i++) {
        if (e->seqs[i].req)
            seq_end(e, i, reason, err);
    }
}

void seq_expired_error(const struct engine *e, const struct request *r, uint64_t now_ns,
                       struct t9_err *err)
{
    uint64_t queued_ns = atomic_load_explicit(&r->clocks.queued, memory_order_relaxed);
    (void)t9_fail(err, T9_STATUS_AGAIN,
                  "the request waited %.1f s for its turn and its deadline has passed; try again "
                  "in %d s",
                  now_ns > queued_ns ? (double)(now_ns - queued_ns) * 1e-9 : 0.0,
                  engine_retry_after_s(e));
}

void seq_end_some(struct engine *e, uint64_t now_ns)
{
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct seq *s = &e->seqs[i];
        if (!s->req)
            continue;
        bool is_new = atomic_load_explicit(&s->req->clocks.admitted, memory_order_relaxed) == 0;
        if (atomic_load_explicit(&s->req->cancel, memory_order_relaxed)) {
            seq_end(e, i, FINISH_REASON_CANCELLED, NULL);
        } else if (is_new && s->req->deadline_ns != 0 && now_ns >= s->req->deadline_ns) {
            struct t9_err err;
            seq_expired_error(e, s->req, now_ns, &err);
            stats_count(&e->n.requests_expired, 1);
            seq_end(e, i, FINISH_REASON_ERROR, &err);
        }
    }
}

/* Back to the queue, to its old place there. */
static void preempt(struct engine *e, int32_t slot)
{
    struct seq *s = &e->seqs[slot];
    struct request *r = s->req;
    uint64_t now_ns = clock_now_ns();
    bool is_new = atomic_load_explicit(&r->clocks.admitted, memory_order_relaxed) == 0;
    if (is_new) {
        add_duration(&r->clocks.prefix_ns, r->paused_ns, now_ns);
    } else if (!s->waits) {
        int32_t times = atomic_load_explicit(&r->n_preempted, memory_order_relaxed) + 1;
        atomic_store_explicit(&r->n_preempted, times, memory_order_relaxed);
        r->n_lost = s->n_computed;
        r->paused_ns = now_ns;
        stats_count(&e->n.preemptions, 1);
        LOG_DEBUG("engine", "request %" PRIu64 " gives its %d pages back after %d tokens (time %d)",
                  r->id, s->n_pages, s->n_computed, times);
    }
    seq_leave(e, slot);
    atomic_store_explicit(&r->state, is_new ? REQ_STATE_WAITING : REQ_STATE_PREEMPTED,
                          memory_order_relaxed);
    queue_insert(e, r);
}

/* ---- pages of a step ---- */

static int32_t pages_wanted(const struct engine *e, int32_t slot)
{
    const struct seq *s = &e->seqs[slot];
    int32_t rows = e->sched[slot].n_rows;
    return rows > 0 ? sched_pages((int64_t)s->n_computed + rows) - s->n_pages : 0;
}

static void grow(struct engine *e, int32_t slot)
{
    while (pages_wanted(e, slot) > 0 && add_page(e, slot, NULL))
        continue;
}

/* The slot that still wants pages and gives way last; -1 = none. */
static int32_t first_wanting(const struct engine *e)
{
    int32_t best = -1;
    for (int32_t i = 0; i < e->n_slots; i++) {
        const struct sched_seq *s = &e->sched[i];
        if (pages_wanted(e, i) < 1)
            continue;
        if (best < 0 || s->priority > e->sched[best].priority ||
            (s->priority == e->sched[best].priority && s->order < e->sched[best].order))
            best = i;
    }
    return best;
}

t9_status seq_grow_all(struct engine *e, struct t9_err *err)
{
    int32_t wanted = 0;
    for (int32_t i = 0; i < e->n_slots; i++)
        wanted += pages_wanted(e, i);
    if (wanted == 0)
        return T9_STATUS_OK;
    make_free(e, (uint64_t)wanted * kv_geom_bytes(&e->geom));
    for (int32_t i; (i = first_wanting(e)) >= 0;) {
        grow(e, i);
        while (pages_wanted(e, i) > 0) {
            int32_t victim = sched_victim(e->sched, e->n_slots);
            if (victim == i && e->n_running_now + e->n_prefix_now == 1)
                return t9_fail(err, T9_STATUS_INTERNAL,
                               "no KV page for token %d of the only sequence, which has %d pages",
                               e->seqs[i].n_computed + e->sched[i].n_rows, e->seqs[i].n_pages);
            preempt(e, victim);
            if (victim == i)
                break;
            make_free(e, (uint64_t)pages_wanted(e, i) * kv_geom_bytes(&e->geom));
            grow(e, i);
        }
    }
    return T9_STATUS_OK;
}

/* Lets go of window pages that no further row can see. */
static void slide_window(struct engine *e, int32_t slot)
{
    struct seq *s = &e->seqs[slot];
    int32_t *windows = batch_windows(&e->batch, slot);
    int32_t from = kv_window_first(&e->geom, s->n_computed / KV_PAGE_TOKENS);
    for (; windows && s->window_from < from; s->window_from++) {
        if (!e->tree)
            kv_window_free(e->pool, windows[s->window_from]);
        windows[s->window_from] = -1; /* the tree's hold on it is gone already */
    }
}

t9_status seq_keep_pages(struct engine *e, int32_t slot, uint64_t now_ns, struct t9_err *err)
{
    struct seq *s = &e->seqs[slot];
    int32_t *pages = batch_pages(&e->batch, slot);
    int32_t *windows = batch_windows(&e->batch, slot);
    const int32_t *known = seq_known(e, slot);
    while (e->tree && (s->hold.n_pages + 1) * KV_PAGE_TOKENS <= s->n_computed) {
        int32_t at = s->hold.n_pages;
        t9_status st = kv_tree_add(e->tree, &s->hold, known + (size_t)at * KV_PAGE_TOKENS,
                                   &pages[at], windows ? &windows[at] : NULL, s->req, now_ns);
        if (st != T9_STATUS_OK)
            return t9_fail(err, st, "page %d of a sequence is not one that the pool handed out",
                           pages[at]);
        if (kv_hold_has_state(&s->hold))
            s->ckpt_at = s->hold.n_pages * KV_PAGE_TOKENS;
        if (windows)
            checkpoint_keep_windows(e, slot, now_ns);
    }
    slide_window(e, slot);
    return T9_STATUS_OK;
}
