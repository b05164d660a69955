/*
 * engine/checkpoint.c - where states of hybrid models are kept (decision D6), and who waits for
 * one.
 *
 * A state cannot be cut at a token, so a cached prefix is resumed where a state was kept and
 * nowhere else. One is kept, always at the end of a page:
 *   - where the request's marks say that others will leave it, and on a ladder before the end of
 *     what conversations have in common, for lists of tools that differ near their end;
 *   - at the end of the prompt;
 *   - where the text has become longer by an interval that grows with it, so that what is computed
 *     again after any change is at most that;
 *   - where another prompt leaves the text: whoever computes through that place leaves one there,
 *     the newcomer itself or the running sequence that it waits for.
 * What a sequence has at its end or when it is preempted goes to the tree without a copy (seq.c).
 *
 * Rows of a step are limited so that it ends at such a place; by P1 no cut changes a result.
 *
 * Models with window pages (kv/window.c) can go on wherever the windows are there: here is only
 * said where they are kept longer, at the same places but for intervals and the ladder.
 *
 * Engine thread only.
 */
#include "engine/internal.h"

enum {
    INTERVAL_TOKENS = 1024, /* at least; and ... */
    INTERVAL_PARTS = 19,    /* ... so that it is a twentieth of the text after it */
    GAP_TOKENS = 64,        /* from the checkpoint before; less is not worth a state */
    TURN_GAP_TOKENS = 256,  /* for turns before the last one */
    LADDER_STEPS = 4,
    LADDER_TOKENS = 1024,
};

struct due {
    int32_t at;
    ckpt_kind kind;
};

static int32_t whole_pages(int32_t n_tokens)
{
    return n_tokens / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
}

static void consider(struct due *d, const struct seq *s, int32_t n_tokens, ckpt_kind kind,
                     int32_t gap)
{
    int32_t at = whole_pages(n_tokens);
    if (at <= s->n_computed || at - s->ckpt_at < gap || at > s->n_known)
        return;
    if (at < d->at || (at == d->at && kind > d->kind))
        *d = (struct due){at, kind};
}

static void consider_prompt(struct due *d, const struct seq *s)
{
    const struct request *r = s->req;
    for (int32_t i = 0; i < r->n_marks; i++) {
        int32_t at = r->marks[i].n_tokens;
        bool is_head = r->marks[i].kind == MARK_KIND_HEAD;
        if (at > r->n_prompt)
            continue;
        consider(d, s, at, CKPT_KIND_MARK,
                 is_head || i + 1 == r->n_marks ? GAP_TOKENS : TURN_GAP_TOKENS);
        for (int32_t step = 0; is_head && step < LADDER_STEPS; step++)
            consider(d, s, at - (LADDER_TOKENS << step), CKPT_KIND_LADDER, GAP_TOKENS);
    }
    if (r->n_pin_tokens > 0 && r->n_pin_tokens <= r->n_prompt)
        consider(d, s, r->n_pin_tokens, CKPT_KIND_MARK, GAP_TOKENS);
    consider(d, s, r->n_prompt - 1, CKPT_KIND_END, GAP_TOKENS);
    consider(d, s, s->branch_at, CKPT_KIND_BRANCH, GAP_TOKENS);
}

/* The next place after what is computed. */
static struct due next_due(const struct engine *e, int32_t slot)
{
    const struct seq *s = &e->seqs[slot];
    struct due d = {.at = INT32_MAX};
    int32_t interval = s->ckpt_at / INTERVAL_PARTS;
    if (interval < INTERVAL_TOKENS)
        interval = INTERVAL_TOKENS;
    if (s->n_computed < s->req->n_prompt)
        consider_prompt(&d, s);
    consider(&d, s, s->ckpt_at + interval, CKPT_KIND_INTERVAL, GAP_TOKENS);
    for (int32_t i = 0; e->n_prefix_now > 0 && i < e->n_slots; i++) {
        const struct seq *w = &e->seqs[i];
        if (w->req && w->waits && w->wait_slot == slot && w->wait_id == s->req->id)
            consider(&d, s, w->wait_at, CKPT_KIND_BRANCH, 0);
    }
    return d;
}

void checkpoint_plan(struct engine *e)
{
    for (int32_t i = 0; e->state_bytes > 0 && e->tree && i < e->n_slots; i++) {
        struct seq *s = &e->seqs[i];
        if (!s->req || s->waits)
            continue;
        struct due d = next_due(e, i);
        s->ckpt_next = d.at;
        s->ckpt_kind = d.kind;
        e->sched[i].n_limit =
            d.at - s->n_computed < e->sched[i].n_pending ? d.at - s->n_computed : 0;
    }
}

void checkpoint_keep(struct engine *e, int32_t slot, uint64_t now_ns)
{
    struct seq *s = &e->seqs[slot];
    if (!e->tree || s->state < 0 || s->n_computed != s->ckpt_next)
        return;
    s->ckpt_at = s->n_computed; /* also when there is no room: not tried again right after */
    if (kv_hold_has_state(&s->hold)) {
        (void)kv_tree_keep_state(e->tree, &s->hold, s->state, s->ckpt_kind, now_ns);
        return;
    }
    int32_t copy =
        kv_tree_room_for_state(e->tree, s->ckpt_kind, now_ns) ? kv_state_alloc(e->pool) : -1;
    if (copy < 0)
        return;
    kv_state_copy(e->pool, copy, s->state);
    if (kv_tree_keep_state(e->tree, &s->hold, copy, s->ckpt_kind, now_ns))
        stats_count(&e->n.checkpoints_kept[s->ckpt_kind], 1);
    else
        kv_state_free(e->pool, copy);
}

/* ---- window pages ---- */

/* Whether n tokens end in that page. */
static bool ends_in(int32_t n, int32_t page)
{
    return n > 0 && (n - 1) / KV_PAGE_TOKENS == page;
}

void checkpoint_keep_windows(struct engine *e, int32_t slot, uint64_t now_ns)
{
    const struct seq *s = &e->seqs[slot];
    const struct request *r = s->req;
    int32_t page = s->hold.n_pages - 1;
    bool keeps = ends_in(r->n_prompt - 1, page) || ends_in(r->n_pin_tokens, page) ||
                 ends_in(s->branch_at, page);
    for (int32_t i = 0; i < r->n_marks && !keeps; i++)
        keeps = ends_in(r->marks[i].n_tokens, page);
    if (keeps)
        (void)kv_tree_keep_windows(e->tree, &s->hold, now_ns);
}

/* ---- waiting for somebody else's state ---- */

static int32_t n_same(const int32_t *a, const int32_t *b, int32_t n)
{
    int32_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* The running sequence that will come furthest along the slot's text, from where the slot could
 * start by itself or further: then waiting for it pays. */
static void find_producer(const struct engine *e, struct seq *s, int32_t slot)
{
    const int32_t *known = seq_known(e, slot);
    s->wait_slot = -1;
    s->wait_at = s->n_computed + GAP_TOKENS - 1;
    for (int32_t i = 0; i < e->n_slots; i++) {
        const struct seq *p = &e->seqs[i];
        if (!p->req || p->waits || !p->req->engine_private || p->n_computed < s->n_computed)
            continue;
        int32_t n = whole_pages(p->n_known < s->n_known - 1 ? p->n_known : s->n_known - 1);
        if (n <= p->n_computed || n <= s->wait_at)
            continue;
        n = whole_pages(n_same(known, seq_known(e, i), n));
        if (n <= p->n_computed || n <= s->wait_at)
            continue;
        s->wait_slot = i;
        s->wait_id = p->req->id;
        s->wait_at = n;
    }
}

/* Whether the one that the slot waits for is still on its way to wait_at. */
static bool producer_comes(const struct engine *e, const struct seq *s)
{
    const struct seq *p = s->wait_slot >= 0 ? &e->seqs[s->wait_slot] : NULL;
    return p && p->req && !p->waits && p->req->id == s->wait_id && p->n_computed < s->wait_at;
}

bool checkpoint_match_holds(const struct engine *e, int32_t slot)
{
    const struct seq *s = &e->seqs[slot];
    return s->waits && s->match_changes == kv_tree_state_changes(e->tree) &&
           (s->wait_slot < 0 || producer_comes(e, s));
}

void checkpoint_look(struct engine *e, int32_t slot, struct kv_match *m)
{
    struct seq *s = &e->seqs[slot];
    int32_t resumes = s->n_computed + m->n_tail;
    if (!producer_comes(e, s) || s->wait_at <= resumes) {
        find_producer(e, s, slot);
        s->wait_seen = 0;
    }
    if (s->wait_slot < 0)
        return;
    const struct seq *p = &e->seqs[s->wait_slot];
    if (p->n_computed > s->wait_seen)
        s->moved_step = e->step;
    s->wait_seen = p->n_computed;
    m->pending = true;
    m->n_pending = (s->wait_at - s->n_computed) / KV_PAGE_TOKENS;
}
