/*
 * sim_test: the real engine - scheduler, slots, prefix tree, page pool - over a simulated model and
 * clock (fake.h), under random arrivals, lengths, shared prefixes, cancels, deadlines, priorities
 * and pools that are far too small.
 *
 * An episode is one engine with parameters drawn from a seed. All arrivals come from the step hook,
 * on the engine's thread, so an episode depends on its seed alone. After every step: the engine's
 * own integrity check, every cached page against the text it claims to hold, and every new token
 * against the one that the sequence alone would have got. Samples run alone in a fresh engine
 * afterwards. A failure prints the seed:
 *
 *     sim_test --seed N            that episode alone, with what happened
 *     sim_test --steps N [--first-seed N]
 */
#include "fake.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "base/str.h"
#include "engine/internal.h"
#include "kv/tree.h"

#include <errno.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef T9_SIM_STEPS
#    define T9_SIM_STEPS 1000000
#endif

enum {
    EPISODE_STEPS = 4000,
    DRAIN_STEPS_MAX = 200000,
    STALL_S = 120, /* of real time without the engine coming back */
    LENGTH_MAX = 2048,
    ACTIVE_MAX = 64,
    CONVS = 6,
    SYSTEMS = 3,
    RECENT = 8,
    CANCEL_STEPS_MAX = 2,
};

struct text {
    int32_t n;
    int32_t tokens[LENGTH_MAX];
};

struct client {
    struct request *r;
    struct text prompt;
    int32_t conv;         /* whose turn it is, -1 = none */
    int32_t n_checked;    /* tokens of the log that were looked at */
    uint64_t chain;       /* hash of the prompt and those tokens */
    bool ended;           /* the solo run ends there */
    uint64_t cancel_step; /* when it was told to stop, 0 = never */
};

/* What all episodes together have seen. */
struct seen {
    uint64_t steps, requests, tokens, finished, cancelled, expired, refused, preempted, cached,
        hits_full, hits_partial, hits_inflight, evicted, overtaken, collisions, alone, idle, states,
        states_evicted, windows, windows_evicted, dropped, resumed[CKPT_KINDS];
};

struct episode {
    uint64_t seed, rng;
    bool verbose, hybrid;
    int kind; /* enum sim_kind */
    struct be be;
    struct engine_params p;
    struct engine *e;
    struct sampler *sampler;
    bool crowded;
    int32_t pages, length_max, system_max, active_target, arrival_percent, cancel_permille,
        reply_max;
    uint64_t step, n_steps, draining_since;
    struct client *clients[ACTIVE_MAX];
    int32_t n_clients;
    struct text convs[CONVS], systems[SYSTEMS], recent[RECENT];
    struct text sample_prompt;
    struct sample_params sample_params;
    int32_t sample_tokens[LENGTH_MAX], sample_n;
    int32_t sample_max;
    uint32_t sample_choice;
    bool sample_ignore_eos;
    uint64_t digest;
    struct seen seen;
    bool is_over;
    sem_t over; /* posted when all steps are made and nothing is open */
};

static uint32_t draw(struct episode *ep, uint32_t n)
{
    ep->rng = ep->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(sim_mix(ep->rng) >> 33) % n;
}

static int32_t between(struct episode *ep, int32_t lo, int32_t hi)
{
    return hi <= lo ? lo : lo + (int32_t)draw(ep, (uint32_t)(hi - lo + 1));
}

static bool percent(struct episode *ep, uint32_t n)
{
    return draw(ep, 100) < n;
}

__attribute__((format(printf, 2, 3), noreturn)) static void failed(const struct episode *ep,
                                                                   const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "sim_test: step %llu: ", (unsigned long long)ep->step);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\nreplay with: sim_test --seed %llu\n", (unsigned long long)ep->seed);
    va_end(args);
    fflush(NULL);
    _exit(1);
}

static void digest(struct episode *ep, uint64_t x)
{
    ep->digest = sim_mix(ep->digest * 31 + x + 1);
}

static void note(const struct episode *ep, const char *what, const struct client *c)
{
    if (ep->verbose)
        printf("%6llu %-10s request %llu: prompt %d, cached %d, tokens %d\n",
               (unsigned long long)ep->step, what, (unsigned long long)c->r->id, c->r->n_prompt,
               atomic_load(&c->r->n_cached), atomic_load(&c->r->n_tokens));
}

/* ---- what requests look like ---- */

static void extend(struct episode *ep, struct text *t, int32_t n)
{
    for (int32_t i = 0; i < n && t->n < LENGTH_MAX; i++)
        t->tokens[t->n++] = between(ep, 2, SIM_VOCAB - 1);
}

static void random_texts(struct episode *ep)
{
    for (int i = 0; i < SYSTEMS; i++)
        extend(ep, &ep->systems[i],
               between(ep, 1,
                       ep->system_max < ep->length_max / 2 ? ep->system_max : ep->length_max / 2));
    for (int i = 0; i < CONVS; i++)
        ep->convs[i] = ep->systems[draw(ep, SYSTEMS)];
    for (int i = 0; i < RECENT; i++)
        ep->recent[i] = ep->systems[draw(ep, SYSTEMS)];
}

/* A prompt of at most length_max - 1 tokens; the conversation that it continues, or -1. */
static int32_t random_prompt(struct episode *ep, struct text *t)
{
    uint32_t kind = draw(ep, 100);
    int32_t room = ep->length_max - 1;
    int32_t conv = -1;
    *t = (struct text){0};
    if (kind < 40) {
        conv = (int32_t)draw(ep, CONVS);
        if (ep->convs[conv].n > (ep->crowded ? 100 : room - 4))
            ep->convs[conv] = ep->systems[draw(ep, SYSTEMS)];
        *t = ep->convs[conv];
        extend(ep, t, between(ep, 1, 40));
    } else if (kind < 65) {
        *t = ep->systems[draw(ep, SYSTEMS)];
        extend(ep, t, between(ep, 0, 60));
    } else if (kind < 85) {
        *t = ep->recent[draw(ep, RECENT)];
        t->n = percent(ep, 30) ? between(ep, 1, t->n) : t->n;
        if (percent(ep, 30))
            extend(ep, t, between(ep, 1, 20));
    } else if (kind < 90) {
        /* The same pages after different ones. */
        for (int32_t n = between(ep, 2, 5); n > 0 && t->n + KV_PAGE_TOKENS <= room; n--) {
            int32_t token = between(ep, 2, 3);
            for (int32_t i = 0; i < KV_PAGE_TOKENS; i++)
                t->tokens[t->n++] = token;
        }
        extend(ep, t, 1);
    } else {
        extend(ep, t, between(ep, 1, !ep->crowded && percent(ep, 20) ? room : 40));
    }
    if (t->n > room)
        t->n = room;
    ep->recent[draw(ep, RECENT)] = *t;
    return conv;
}

static void random_sampling(struct episode *ep, struct sample_params *s)
{
    sample_params_init(s);
    s->seed = draw(ep, 5);
    if (percent(ep, 30))
        s->temperature = 0.0f;
    if (percent(ep, 20))
        s->top_k = between(ep, 1, 10);
    if (percent(ep, 20))
        s->top_p = 0.8f;
}

static void random_marks(struct episode *ep, struct request *r)
{
    if (ep->kind == SIM_KIND_PLAIN || percent(ep, 30))
        return;
    r->n_marks = between(ep, 0, 4);
    for (int32_t i = 0, at = 1; i < r->n_marks; i++) {
        at += between(ep, 0, r->n_prompt);
        r->marks[i] = (struct request_mark){at, i ? MARK_KIND_TURN : MARK_KIND_HEAD};
    }
}

/* ---- clients ---- */

static void remove_client(struct episode *ep, int32_t at)
{
    request_free(ep->clients[at]->r);
    free(ep->clients[at]);
    ep->clients[at] = ep->clients[--ep->n_clients];
}

/* False when the queue is full. On another thread than the engine's it must be the only one: the
 * engine may run the hook before this returns. */
static bool submit(struct episode *ep, struct client *c)
{
    struct t9_err err;
    int32_t n_prompt = c->r->n_prompt;
    ep->clients[ep->n_clients++] = c;
    ep->seen.requests++;
    t9_status st = engine_submit(ep->e, c->r, &err);
    if (st == T9_STATUS_OK)
        return true;
    if (st != T9_STATUS_BUSY)
        failed(ep, "a request of %d tokens was refused: %s", n_prompt, err.msg);
    ep->seen.refused++;
    digest(ep, 1000);
    remove_client(ep, ep->n_clients - 1);
    return false;
}

static struct client *new_client(struct episode *ep, const struct text *prompt, int32_t max_tokens)
{
    struct client *c = calloc(1, sizeof *c);
    struct t9_err err;
    if (!c || request_new(&c->r, max_tokens, &err) != T9_STATUS_OK)
        failed(ep, "out of memory");
    c->prompt = *prompt;
    c->r->prompt = c->prompt.tokens;
    c->r->n_prompt = prompt->n;
    c->r->max_tokens = max_tokens;
    c->conv = -1;
    for (int32_t i = 0; i < prompt->n; i++)
        c->chain = sim_chain(c->chain, prompt->tokens[i]);
    return c;
}

/* One arrival: one request, or several choices of one prompt. False when the queue is full. */
static bool arrive(struct episode *ep)
{
    struct text prompt;
    int32_t conv = random_prompt(ep, &prompt);
    int32_t n_choices = percent(ep, 10) ? between(ep, 2, 4) : 1;
    int32_t room = engine_max_tokens(ep->e, prompt.n);
    int32_t max_tokens = between(ep, 1, ep->reply_max);
    if (max_tokens > room || percent(ep, 3))
        max_tokens = room;
    struct sample_params sampling;
    random_sampling(ep, &sampling);
    int32_t priority = percent(ep, 25) ? between(ep, -1, 2) : 0;
    uint64_t key = draw(ep, 4);
    uint64_t deadline = percent(ep, 4) ? clock_now_ns() + 1000000u * draw(ep, 3000) : 0;
    for (int32_t i = 0; i < n_choices && ep->n_clients < ACTIVE_MAX; i++) {
        struct client *c = new_client(ep, &prompt, max_tokens);
        c->conv = conv;
        c->r->sampling = sampling;
        c->r->choice = (uint32_t)i;
        c->r->priority = priority;
        c->r->client_key = key;
        c->r->deadline_ns = deadline;
        c->r->ignore_eos = percent(ep, ep->crowded ? 70 : 10);
        random_marks(ep, c->r);
        if (percent(ep, 3)) {
            c->r->n_pin_tokens = between(ep, 1, prompt.n);
            c->r->pin_until_ns = clock_now_ns() + 1000000u * draw(ep, 20000);
        }
        if (!submit(ep, c))
            return false;
    }
    return true;
}

/* The token that the sequence alone gets next; SIM_EOG ends it unless ignored. */
static int32_t solo_token(struct episode *ep, const struct client *c)
{
    float logits[SIM_VOCAB];
    sim_logits(c->chain, logits);
    return sampler_pick(ep->sampler, logits, &c->r->sampling, c->r->choice,
                        (uint64_t)c->r->n_prompt + (uint64_t)c->n_checked);
}

static void check_new_tokens(struct episode *ep, struct client *c)
{
    int32_t n = atomic_load_explicit(&c->r->n_tokens, memory_order_acquire);
    for (; c->n_checked < n; c->n_checked++) {
        int32_t want = solo_token(ep, c);
        int32_t got = c->r->tokens[c->n_checked];
        if (want == SIM_EOG && !c->r->ignore_eos)
            failed(ep, "request %llu goes on after its end: token %d is %d",
                   (unsigned long long)c->r->id, c->n_checked, got);
        if (got != want)
            failed(ep, "request %llu: token %d is %d, alone it is %d", (unsigned long long)c->r->id,
                   c->n_checked, got, want);
        c->chain = sim_chain(c->chain, got);
        digest(ep, (uint64_t)got);
        ep->seen.tokens++;
    }
}

static void check_end(struct episode *ep, const struct client *c, finish_reason reason)
{
    const struct request *r = c->r;
    bool eog = c->n_checked < r->max_tokens && !r->ignore_eos && solo_token(ep, c) == SIM_EOG;
    switch (reason) {
    case FINISH_REASON_STOP:
        if (!eog)
            failed(ep, "request %llu stopped where alone it goes on", (unsigned long long)r->id);
        break;
    case FINISH_REASON_LENGTH:
        if (c->n_checked != r->max_tokens)
            failed(ep, "request %llu ends after %d of %d tokens", (unsigned long long)r->id,
                   c->n_checked, r->max_tokens);
        break;
    case FINISH_REASON_CANCELLED:
        if (!c->cancel_step)
            failed(ep, "request %llu was cancelled by nobody", (unsigned long long)r->id);
        break;
    default:
        if (reason != FINISH_REASON_ERROR || r->error.code != T9_STATUS_AGAIN || !r->deadline_ns ||
            r->deadline_ns > clock_now_ns() || c->n_checked > 0)
            failed(ep, "request %llu ends with an error: %s", (unsigned long long)r->id,
                   r->error.msg);
        ep->seen.expired++;
    }
}

/* Keeps one request of the episode for a run alone. */
static void keep_sample(struct episode *ep, const struct client *c)
{
    if (c->n_checked == 0 || (ep->sample_n > 0 && draw(ep, 20) != 0))
        return;
    ep->sample_prompt = c->prompt;
    ep->sample_params = c->r->sampling;
    ep->sample_choice = c->r->choice;
    ep->sample_max = c->r->max_tokens;
    ep->sample_ignore_eos = c->r->ignore_eos;
    ep->sample_n = c->n_checked;
    memcpy(ep->sample_tokens, c->r->tokens, (size_t)c->n_checked * sizeof(int32_t));
}

static void take_end(struct episode *ep, int32_t at, finish_reason reason)
{
    struct client *c = ep->clients[at];
    check_end(ep, c, reason);
    note(ep, finish_reason_name(reason), c);
    digest(ep, (uint64_t)reason + 100);
    ep->seen.cached += (uint64_t)atomic_load(&c->r->n_cached);
    ep->seen.preempted += (uint64_t)atomic_load(&c->r->n_preempted);
    ep->seen.cancelled += reason == FINISH_REASON_CANCELLED;
    if (reason == FINISH_REASON_STOP || reason == FINISH_REASON_LENGTH) {
        ep->seen.finished++;
        keep_sample(ep, c);
        if (c->conv >= 0 && c->prompt.n + c->n_checked < LENGTH_MAX) {
            struct text *conv = &ep->convs[c->conv];
            *conv = c->prompt;
            memcpy(conv->tokens + conv->n, c->r->tokens, (size_t)c->n_checked * sizeof(int32_t));
            conv->n += c->n_checked;
        }
    }
    remove_client(ep, at);
}

/* ---- after every step ---- */

/* Every page of the tree holds its own text. */
static void check_cached_text(struct episode *ep)
{
    const struct kv_tree *t = engine_tree(ep->e);
    if (!t || !ep->be.kv)
        return;
    char *base = ep->be.kv_pool;
    size_t page_bytes = ep->be.kv->page_bytes;
    for (int32_t i = 0; i < t->n_ever; i++) {
        const struct kv_node *n = &t->nodes[i];
        if (n->state != NODE_READY)
            continue;
        const struct sim_slot *s =
            (const struct sim_slot *)(const void *)(base + (size_t)n->page * page_bytes);
        const struct sim_slot *before = NULL;
        if (n->parent != &t->root)
            before = (const struct sim_slot *)(const void *)(base +
                                                             (size_t)n->parent->page * page_bytes) +
                     KV_PAGE_TOKENS - 1;
        for (int32_t k = 0; k < n->n_tokens; before = &s[k++]) {
            if (s[k].token != n->tokens[k] || s[k].index != (before ? before->index + 1 : 0) ||
                s[k].chain != sim_chain(before ? before->chain : 0, n->tokens[k]))
                failed(ep, "cached page %d, token %d: it holds another text", n->page, k);
        }
        if (t->windows && t->windows[i].id < 0) {
            ep->seen.dropped++;
        } else if (t->windows) {
            const char *window =
                (const char *)ep->be.window_pool + (size_t)t->windows[i].id * page_bytes;
            if (memcmp(window, s, (size_t)n->n_tokens * sizeof *s) != 0)
                failed(ep, "window page %d: it holds another text", t->windows[i].id);
            ep->seen.windows++;
        }
        if (n->state_id < 0)
            continue;
        if (*sim_state(ep->be.state, ep->be.state_pool, n->state_id) != s[n->n_tokens - 1].chain)
            failed(ep, "cached state %d is one of another text", n->state_id);
        ep->seen.states++;
    }
}

static void check_clients(struct episode *ep)
{
    for (int32_t i = ep->n_clients - 1; i >= 0; i--) {
        struct client *c = ep->clients[i];
        finish_reason reason =
            (finish_reason)atomic_load_explicit(&c->r->finish, memory_order_acquire);
        check_new_tokens(ep, c);
        if (reason != FINISH_REASON_NONE) {
            take_end(ep, i, reason);
        } else if (c->cancel_step && ep->step > c->cancel_step + CANCEL_STEPS_MAX) {
            failed(ep, "request %llu runs on after a cancel", (unsigned long long)c->r->id);
        } else if (!c->cancel_step && draw(ep, 10000) < (uint32_t)ep->cancel_permille) {
            c->cancel_step = ep->step;
            engine_cancel(ep->e, c->r);
        }
    }
}

static void after_step(void *ctx, struct engine *e)
{
    struct episode *ep = ctx;
    struct t9_err err = {0};
    if (ep->is_over)
        return;
    ep->step++;
    if (atomic_load(&ep->be.faulty))
        failed(ep, "%s", ep->be.fault);
    if (engine_check(e, &err) != T9_STATUS_OK)
        failed(ep, "%s", err.msg);
    if (ep->pages <= 64 || ep->step % 4 == 0)
        check_cached_text(ep);
    check_clients(ep);
    bool goes_on = ep->step < ep->n_steps;
    while (goes_on && ep->n_clients < ep->active_target &&
           percent(ep, (uint32_t)ep->arrival_percent) && arrive(ep))
        continue;
    if (goes_on && ep->n_clients == 0) {
        /* A quiet time. Not a real one: a sleeping engine calls no hook. */
        sim_clock_add(draw(ep, 3) * 1000000000u);
        ep->seen.idle++;
        while (ep->n_clients == 0)
            (void)arrive(ep);
    }
    if (!goes_on && ep->step > ep->n_steps + DRAIN_STEPS_MAX)
        failed(ep, "%d requests do not end", ep->n_clients);
    if (!goes_on && ep->n_clients == 0 && !ep->is_over) {
        ep->is_over = true;
        (void)sem_post(&ep->over);
    }
}

/* ---- episodes ---- */

static int32_t pick(struct episode *ep, const int32_t *of, uint32_t n)
{
    return of[draw(ep, n)];
}

/* Many short prompts with long replies at once, in a pool for a few of them. */
static void crowd(struct episode *ep)
{
    ep->pages = between(ep, 6, 48);
    ep->p.kv_bytes = (uint64_t)ep->pages * 4096;
    ep->p.max_batch = between(ep, 4, 16);
    ep->p.step_tokens = between(ep, 16, 128);
    ep->p.queue_cap = 256;
    ep->p.max_running_per_key = 0;
    ep->active_target = between(ep, 8, ACTIVE_MAX);
    ep->arrival_percent = 60;
    ep->system_max = between(ep, 1, 40);
    ep->reply_max = between(ep, 60, 1000);
    ep->cancel_permille = between(ep, 0, 3);
    ep->crowded = true;
}

static void random_engine(struct episode *ep)
{
    static const int32_t step_tokens[] = {1, 2, 5, 16, 33, 64, 128};
    static const int32_t batches[] = {1, 2, 3, 4, 8, 16};
    static const int32_t queues[] = {4, 32, 256, 256};
    engine_params_init(&ep->p);
    ep->kind = (int)draw(ep, SIM_KINDS);
    if (percent(ep, 30))
        ep->kind = SIM_KIND_HYBRID;
    ep->hybrid = ep->kind == SIM_KIND_HYBRID;
    uint32_t size = draw(ep, 10);
    ep->pages = size < 4 ? between(ep, 2, 8) : between(ep, 8, size < 8 ? 40 : 120);
    ep->p.model = sim_model(ep->kind);
    ep->p.be = &ep->be;
    ep->p.vocab = sim_vocab();
    ep->p.kv_type = KV_TYPE_F16;
    ep->p.kv_bytes = (uint64_t)ep->pages * 4096;
    ep->p.max_batch = pick(ep, batches, T9_COUNT(batches));
    ep->p.step_tokens = pick(ep, step_tokens, T9_COUNT(step_tokens));
    ep->p.queue_cap = pick(ep, queues, T9_COUNT(queues));
    ep->p.max_length = percent(ep, 50) ? between(ep, 40, 600) : LENGTH_MAX - 1;
    ep->p.max_running_per_key = percent(ep, 20) ? between(ep, 1, 3) : 0;
    ep->p.no_prefix_cache = percent(ep, 4);
    ep->active_target = between(ep, 1, percent(ep, 50) ? 8 : 40);
    ep->system_max = LENGTH_MAX / 2;
    ep->arrival_percent = between(ep, 5, 80);
    ep->cancel_permille = percent(ep, 50) ? 0 : between(ep, 1, 60);
    ep->reply_max = percent(ep, 70) ? between(ep, 1, 40) : between(ep, 20, 200);
    if (percent(ep, 50))
        crowd(ep);
    if (ep->hybrid)
        ep->p.kv_bytes += (uint64_t)(1 + draw(ep, 4) * draw(ep, 4)) * SIM_STATE_BYTES;
    /* Window pages for some of its tokens. */
    if (ep->kind >= SIM_KIND_WINDOW)
        ep->p.kv_bytes += (uint64_t)between(ep, 1, ep->pages) * 4096;
}

static void open_engine(struct episode *ep)
{
    struct t9_err err;
    if (engine_new(&ep->e, &ep->p, &err) != T9_STATUS_OK)
        failed(ep, "engine_new: %s", err.msg);
    engine_set_step_hook(ep->e, after_step, ep);
}

static void wait_over(struct episode *ep)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STALL_S;
    while (sem_timedwait(&ep->over, &until) != 0) {
        if (errno != EINTR)
            failed(ep, "the engine sleeps with %d open requests", ep->n_clients);
    }
}

/* One request of the episode once more, in an engine of its own with room for everything. */
static void run_alone(struct episode *ep)
{
    if (ep->sample_n == 0)
        return;
    struct client *c = new_client(ep, &ep->sample_prompt, ep->sample_max);
    c->r->sampling = ep->sample_params;
    c->r->choice = ep->sample_choice;
    c->r->ignore_eos = ep->sample_ignore_eos;
    ep->p.kv_bytes = (uint64_t)(4 * LENGTH_MAX / KV_PAGE_TOKENS) * 4096 + SIM_STATE_BYTES;
    ep->p.max_length = LENGTH_MAX;
    ep->p.max_batch = 1;
    ep->p.step_tokens = LENGTH_MAX;
    struct t9_err err;
    if (engine_new(&ep->e, &ep->p, &err) != T9_STATUS_OK ||
        engine_submit(ep->e, c->r, &err) != T9_STATUS_OK)
        failed(ep, "alone: %s", err.msg);
    struct event_cursor cursor = {0};
    while (request_next(c->r, &cursor).kind != EVENT_DONE) {
        if (!cursor.ended && !engine_wait(ep->e, c->r, &cursor, -1))
            failed(ep, "alone: it does not end");
        if (cursor.ended)
            break;
    }
    if (atomic_load(&c->r->n_tokens) != ep->sample_n ||
        memcmp(c->r->tokens, ep->sample_tokens, (size_t)ep->sample_n * sizeof(int32_t)) != 0)
        failed(ep, "a request of %d tokens has another text in an engine of its own",
               ep->sample_prompt.n);
    engine_free(ep->e);
    request_free(c->r);
    free(c);
    ep->seen.alone++;
}

static void add_tree_stats(struct episode *ep)
{
    struct kv_tree *t = engine_tree(ep->e);
    if (!t)
        return;
    struct kv_tree_stats s = kv_tree_stats(t);
    ep->seen.hits_full += s.hits_full;
    ep->seen.hits_partial += s.hits_partial;
    ep->seen.hits_inflight += s.hits_inflight;
    ep->seen.evicted += s.evicted_pages;
    ep->seen.overtaken += s.overtaken;
    ep->seen.collisions += s.collisions;
    ep->seen.states_evicted += s.evicted_states;
    ep->seen.windows_evicted += s.evicted_windows;
    for (int i = 0; i < CKPT_KINDS; i++)
        ep->seen.resumed[i] += atomic_load(&ep->e->n.checkpoint_hits[i]);
}

/* The same seed gives the same digest. */
static uint64_t run_episode(uint64_t seed, uint64_t n_steps, bool verbose, struct seen *seen)
{
    struct episode *ep = calloc(1, sizeof *ep);
    if (!ep)
        _exit(1);
    ep->seed = seed;
    ep->rng = sim_mix(seed + 77);
    ep->be.rng = seed;
    ep->verbose = verbose;
    ep->n_steps = n_steps;
    sim_clock_set(1000000000u);
    if (sem_init(&ep->over, 0, 0) != 0 || sampler_new(&ep->sampler, SIM_VOCAB, NULL) != 0)
        failed(ep, "out of memory");
    random_engine(ep);
    open_engine(ep);
    ep->length_max = engine_max_length(ep->e);
    random_texts(ep);
    if (verbose)
        printf("%d pages, %d tokens a request, %d sequences, %d rows a step, queue of %d\n",
               ep->pages, ep->length_max, ep->p.max_batch, ep->p.step_tokens, ep->p.queue_cap);
    struct kv_tree *tree = engine_tree(ep->e);
    if (tree && percent(ep, 20))
        tree->hash_mask = percent(ep, 50) ? 0 : 7; /* no text may come of a collision */
    /* One only: the engine runs from here on, and what it sees must not depend on when. */
    struct text prompt = {0};
    (void)random_prompt(ep, &prompt);
    (void)submit(ep, new_client(ep, &prompt, 1));
    wait_over(ep);
    add_tree_stats(ep);
    ep->seen.steps = ep->step;
    engine_free(ep->e);
    run_alone(ep);
    if (atomic_load(&ep->be.reserved) != 0)
        failed(ep, "%lld areas of address space were not given back",
               (long long)atomic_load(&ep->be.reserved));
    uint64_t *sum = (uint64_t *)seen;
    const uint64_t *one = (const uint64_t *)&ep->seen;
    for (size_t i = 0; i < sizeof *seen / sizeof *sum; i++)
        sum[i] += one[i];
    uint64_t d = ep->digest;
    sampler_free(ep->sampler);
    (void)sem_destroy(&ep->over);
    free(ep);
    return d;
}

static void print_seen(const struct seen *s)
{
    printf("%llu steps, %llu requests (%llu finished, %llu cancelled, %llu expired, %llu refused), "
           "%llu tokens, %llu again in an engine of their own\n",
           (unsigned long long)s->steps, (unsigned long long)s->requests,
           (unsigned long long)s->finished, (unsigned long long)s->cancelled,
           (unsigned long long)s->expired, (unsigned long long)s->refused,
           (unsigned long long)s->tokens, (unsigned long long)s->alone);
    printf(
        "%llu preemptions, %llu prompt tokens reused, hits %llu full, %llu partial, %llu in "
        "flight, %llu pages evicted, %llu promises overtaken, %llu collisions, %llu times idle\n",
        (unsigned long long)s->preempted, (unsigned long long)s->cached,
        (unsigned long long)s->hits_full, (unsigned long long)s->hits_partial,
        (unsigned long long)s->hits_inflight, (unsigned long long)s->evicted,
        (unsigned long long)s->overtaken, (unsigned long long)s->collisions,
        (unsigned long long)s->idle);
    printf("%llu cached states looked at, %llu dropped; resumed from %llu intervals, %llu ladders, "
           "%llu branches, %llu marks, %llu ends\n",
           (unsigned long long)s->states, (unsigned long long)s->states_evicted,
           (unsigned long long)s->resumed[0], (unsigned long long)s->resumed[1],
           (unsigned long long)s->resumed[2], (unsigned long long)s->resumed[3],
           (unsigned long long)s->resumed[4]);
    printf("%llu cached window pages looked at, %llu times none there; %llu dropped\n",
           (unsigned long long)s->windows, (unsigned long long)s->dropped,
           (unsigned long long)s->windows_evicted);
}

/* A simulation that never gets into trouble proves nothing. */
static bool was_hard_enough(const struct seen *s)
{
    const uint64_t all[] = {s->finished,
                            s->cancelled,
                            s->expired,
                            s->refused,
                            s->preempted,
                            s->cached,
                            s->alone,
                            s->hits_full,
                            s->hits_partial,
                            s->hits_inflight,
                            s->evicted,
                            s->collisions,
                            s->states_evicted,
                            s->windows,
                            s->dropped,
                            s->windows_evicted,
                            s->resumed[CKPT_KIND_BRANCH],
                            s->resumed[CKPT_KIND_MARK],
                            s->resumed[CKPT_KIND_END]};
    for (size_t i = 0; i < T9_COUNT(all); i++) {
        if (all[i] == 0) {
            printf("kind %zu of trouble never happened\n", i);
            return false;
        }
    }
    return true;
}

static bool number(const char *arg, uint64_t *out)
{
    return arg && num_parse_u64(str_from(arg), out);
}

int main(int argc, char **argv)
{
    uint64_t steps = T9_SIM_STEPS;
    uint64_t first = 1;
    uint64_t only = 0;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        uint64_t *to = !strcmp(argv[i], "--seed")         ? &only
                       : !strcmp(argv[i], "--steps")      ? &steps
                       : !strcmp(argv[i], "--first-seed") ? &first
                                                          : NULL;
        if (!to || !number(value, to)) {
            fprintf(stderr, "usage: sim_test [--seed N | --steps N --first-seed N]\n");
            return 2;
        }
    }
    log_configure(&(struct log_config){.level = LOG_LEVEL_ERROR});
    struct seen seen = {0};
    if (only > 0) {
        uint64_t d = run_episode(only, EPISODE_STEPS, true, &seen);
        printf("digest %016llx\n", (unsigned long long)d);
        print_seen(&seen);
        return 0;
    }
    uint64_t again = run_episode(first, EPISODE_STEPS, false, &seen);
    for (uint64_t seed = first; seen.steps < steps; seed++) {
        uint64_t d = run_episode(seed, EPISODE_STEPS, false, &seen);
        if (seed == first && d != again) {
            fprintf(stderr, "sim_test: seed %llu does not replay\n", (unsigned long long)seed);
            return 1;
        }
    }
    print_seen(&seen);
    return steps < 100000 || was_hard_enough(&seen) ? 0 : 1;
}
