/*
 * engine/queue.c - who waits, and who starts.
 *
 * The list is in the order of priority, then of submission; a preempted request comes back to its
 * old place. The first one is not overtaken by a later one of its priority because that is smaller;
 * only requests at their key's limit are passed over. A request starts when a slot is free and the
 * pages of its known tokens and of some reply are to be had beside what the running ones need next.
 *
 * A request whose next page is just being computed for another one gets a slot but no rows (state
 * PREFIX). It takes pages as they appear, and goes on by itself when there are no more, when their
 * producer went away, or when that takes twice as long as computing would.
 *
 * Engine thread only.
 */
#include "base/clock.h"
#include "engine/internal.h"

enum {
    PREFIX_PATIENCE_STEPS = 32,
};

#define PREFIX_WAIT_MIN_NS 250000000u

/* ---- the list ---- */

static bool was_preempted(const struct request *r)
{
    return atomic_load_explicit(&r->n_preempted, memory_order_relaxed) > 0;
}

static void link_waiting(struct engine *e, struct request *r)
{
    struct request **at = &e->waiting;
    while (*at &&
           ((*at)->priority > r->priority || ((*at)->priority == r->priority && (*at)->id < r->id)))
        at = &(*at)->next;
    r->next = *at;
    *at = r;
    if (was_preempted(r))
        e->n_preempted_now++;
    atomic_store_explicit(&e->n_preempted, e->n_preempted_now, memory_order_relaxed);
}

void queue_insert(struct engine *e, struct request *r)
{
    link_waiting(e, r);
    atomic_fetch_add(&e->n_waiting, 1);
    atomic_fetch_add(&e->waiting_tokens, r->n_prompt);
}

void queue_take_submitted(struct engine *e)
{
    for (struct request *r; (r = ring_pop(e->ring)) != NULL;)
        link_waiting(e, r); /* counted when it was submitted */
}

/* `at` is where the list has it. */
static void unlink_waiting(struct engine *e, struct request **at)
{
    struct request *r = *at;
    *at = r->next;
    r->next = NULL;
    if (was_preempted(r))
        e->n_preempted_now--;
    atomic_fetch_sub(&e->n_waiting, 1);
    atomic_fetch_sub(&e->waiting_tokens, r->n_prompt);
    atomic_store_explicit(&e->n_preempted, e->n_preempted_now, memory_order_relaxed);
}

void queue_end_all(struct engine *e, finish_reason reason, const struct t9_err *err)
{
    while (e->waiting) {
        struct request *r = e->waiting;
        unlink_waiting(e, &e->waiting);
        loop_end_request(e, r, reason, err);
    }
}

void queue_end_some(struct engine *e, uint64_t now_ns)
{
    struct request **at = &e->waiting;
    while (*at) {
        struct request *r = *at;
        bool is_new = atomic_load_explicit(&r->clocks.admitted, memory_order_relaxed) == 0;
        if (atomic_load_explicit(&r->cancel, memory_order_relaxed)) {
            unlink_waiting(e, at);
            loop_end_request(e, r, FINISH_REASON_CANCELLED, NULL);
        } else if (is_new && r->deadline_ns != 0 && now_ns >= r->deadline_ns) {
            struct t9_err err;
            seq_expired_error(e, r, now_ns, &err);
            unlink_waiting(e, at);
            stats_count(&e->n.requests_expired, 1);
            loop_end_request(e, r, FINISH_REASON_ERROR, &err);
        } else {
            at = &r->next;
        }
    }
}

/* ---- room ---- */

/* Bytes that a slot needs beyond those it has, to compute what it knows and reply a little. */
static int64_t bytes_ahead(const struct engine *e, int32_t slot, int32_t n_preempted)
{
    const struct seq *s = &e->seqs[slot];
    int32_t n_left = s->req->prompt_only ? 0 : s->req->n_prompt + s->req->max_tokens - s->n_known;
    int64_t n = (int64_t)s->n_known + sched_margin_tokens(n_left, n_preempted);
    int64_t pages = sched_pages(n) - s->n_pages;
    int64_t windows = sched_pages(n) < e->window_pages ? sched_pages(n) : e->window_pages;
    windows -= s->n_pages - s->window_from;
    return (pages > 0 ? pages * (int64_t)e->geom.page_bytes : 0) +
           (windows > 0 ? windows * (int64_t)e->geom.window_bytes : 0) +
           (s->state < 0 ? (int64_t)e->state_bytes : 0);
}

/* Bytes that can be had beside what the running sequences need next. */
static int64_t room(const struct engine *e)
{
    int64_t n = seq_bytes_to_be_had(e);
    for (int32_t i = 0; i < e->n_slots; i++) {
        if (e->seqs[i].req && e->seqs[i].req->engine_private)
            n -= bytes_ahead(e, i, 0);
    }
    return n;
}

static bool has_room(const struct engine *e, int32_t slot)
{
    const struct request *r = e->seqs[slot].req;
    int32_t times = atomic_load_explicit(&r->n_preempted, memory_order_relaxed);
    /* With nobody running it starts in any case: it fits alone, and takes what it needs. */
    return e->n_running_now == 0 || bytes_ahead(e, slot, times) <= room(e);
}

/* ---- PREFIX ---- */

static void begin_wait(struct engine *e, int32_t slot, const struct kv_match *m, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    struct request *r = s->req;
    double ns = 2.0 * sched_prompt_ns(&e->cost, s->n_computed, m->n_pending * KV_PAGE_TOKENS,
                                      e->p.step_tokens);
    s->waits = true;
    s->moved_step = e->step;
    s->give_up_ns =
        now_ns + (ns > (double)PREFIX_WAIT_MIN_NS ? (uint64_t)ns : (uint64_t)PREFIX_WAIT_MIN_NS);
    e->n_prefix_now++;
    atomic_store_explicit(&e->n_prefix, e->n_prefix_now, memory_order_relaxed);
    if (atomic_load_explicit(&r->clocks.admitted, memory_order_relaxed) != 0)
        return;
    r->paused_ns = now_ns;
    atomic_store_explicit(&r->state, REQ_STATE_PREFIX, memory_order_relaxed);
}

/* The PREFIX slot that comes after `last` by priority and age; -1 = none. */
static int32_t next_waiting_slot(const struct engine *e, int32_t last)
{
    int32_t best = -1;
    for (int32_t i = 0; i < e->n_slots; i++) {
        const struct sched_seq *s = &e->sched[i];
        if (!e->seqs[i].waits)
            continue;
        if (last >= 0 &&
            (s->priority > e->sched[last].priority ||
             (s->priority == e->sched[last].priority && s->order <= e->sched[last].order)))
            continue;
        if (best < 0 || s->priority > e->sched[best].priority ||
            (s->priority == e->sched[best].priority && s->order < e->sched[best].order))
            best = i;
    }
    return best;
}

/* False when somebody could start but finds no place: then nobody else may either. */
static bool start_waiting(struct engine *e, uint64_t now_ns)
{
    for (int32_t i = -1; e->n_prefix_now > 0 && (i = next_waiting_slot(e, i)) >= 0;) {
        struct seq *s = &e->seqs[i];
        int32_t n_pages = s->n_pages;
        struct kv_match m = seq_match(e, i, now_ns);
        if (s->n_pages > n_pages) {
            s->moved_step = e->step;
            s->was_shared = true;
        }
        bool gives_up = now_ns >= s->give_up_ns || e->step > s->moved_step + PREFIX_PATIENCE_STEPS;
        if (m.pending && !gives_up && e->n_running_now > 0)
            continue;
        if (e->n_running_now >= e->p.max_batch || !has_room(e, i))
            return false;
        if (!seq_start(e, i, &m, now_ns))
            return false;
        if (m.pending)
            stats_count(&e->n.prefix_given_up, 1);
    }
    return true;
}

/* ---- admission ---- */

static bool key_is_full(const struct engine *e, const struct request *r)
{
    if (e->p.max_running_per_key < 1 || r->client_key == 0)
        return false;
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_slots; i++)
        n += e->seqs[i].req && e->seqs[i].req->client_key == r->client_key;
    return n >= e->p.max_running_per_key;
}

static int32_t free_slot(const struct engine *e)
{
    for (int32_t i = 0; i < e->n_slots; i++) {
        if (!e->seqs[i].req)
            return i;
    }
    return -1;
}

/* Starts a request or lets it wait for its prefix; false when there is no room for it. */
static bool start(struct engine *e, struct request *r, int32_t slot, uint64_t now_ns)
{
    if (r->id == e->blocked_id && e->n_running_now > 0 && room(e) <= e->blocked_room)
        return false;
    seq_place(e, slot, r);
    struct kv_match m = seq_match(e, slot, now_ns);
    if (m.pending) {
        begin_wait(e, slot, &m, now_ns);
    } else if (!has_room(e, slot) || !seq_start(e, slot, &m, now_ns)) {
        seq_leave(e, slot);
        e->blocked_id = r->id;
        e->blocked_room = room(e);
        return false;
    }
    e->blocked_id = 0;
    return true;
}

void queue_admit(struct engine *e)
{
    uint64_t now_ns = clock_now_ns();
    int32_t n_before = e->n_running_now;
    struct request **at = &e->waiting;
    bool goes_on = start_waiting(e, now_ns);
    while (goes_on && *at && e->n_running_now < e->p.max_batch) {
        struct request *r = *at;
        if (key_is_full(e, r)) {
            at = &r->next;
            continue;
        }
        int32_t slot = free_slot(e);
        if (slot < 0 || !start(e, r, slot, now_ns))
            break;
        /* Others may have come back to the list for it. */
        for (at = &e->waiting; *at != r;)
            at = &(*at)->next;
        unlink_waiting(e, at);
    }
    if (e->n_running_now != n_before)
        signal_raise(&e->signal);
}
