/*
 * tests/lib/scripted_engine.c - see scripted_engine.h. Steps every millisecond while requests live.
 */
#include "lib/scripted_engine.h"

#include "base/clock.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIVE_MAX = 4096, PROMPT_MAX = 65536 };

struct live {
    struct request *r;
    uint64_t submitted_ns, next_ns;
    const int32_t *reply;
    int32_t *own_reply; /* where it must outlive the next request's */
    int32_t n_reply, n;
    bool admitted, prefilled;
};

/* A prompt and its answer. */
struct past {
    int32_t *tokens;
    int32_t n;
};

struct engine {
    struct engine_script script;
    struct past past[SCRIPTED_TEXTS];
    size_t n_past;
    struct thread thread;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct live live[LIVE_MAX];
    int n_live;
    bool stop;
    int n_cancels;
    uint64_t cancel_ns;
    int32_t prompt[PROMPT_MAX];
    int32_t n_prompt, max_tokens;
    struct sample_params sampling;
    int32_t priority;
    uint64_t client_key, deadline_ns;
    struct engine_stats stats;
};

const double STATS_BUCKET_MS[15] = {1,   2,    5,    10,   20,    50,    100,  200,
                                    500, 1000, 2000, 5000, 10000, 30000, 60000};

void engine_script_init(struct engine_script *s)
{
    *s = (struct engine_script){
        .fail_at = -1, .max_length = 4096, .queue_cap = 1024, .retry_after_s = 1};
}

/* ---- what was computed before ---- */

static int32_t in_common(const struct past *p, const struct request *r)
{
    int32_t n = 0;
    while (n < p->n && n < r->n_prompt && p->tokens[n] == r->prompt[n])
        n++;
    return n;
}

static int32_t cached(const struct engine *e, const struct request *r)
{
    int32_t most = e->script.remembers ? 0 : e->script.n_cached;
    for (size_t i = 0; e->script.remembers && i < SCRIPTED_TEXTS; i++) {
        int32_t n = in_common(&e->past[i], r);
        most = n > most ? n : most;
    }
    return most < r->n_prompt ? most : r->n_prompt - 1;
}

static void remember(struct engine *e, const struct request *r)
{
    struct past *p = &e->past[e->n_past % SCRIPTED_TEXTS];
    int32_t n_tokens = atomic_load(&r->n_tokens);
    int32_t *tokens = malloc(sizeof *tokens * (size_t)(r->n_prompt + n_tokens));
    if (!tokens)
        return;
    memcpy(tokens, r->prompt, sizeof *tokens * (size_t)r->n_prompt);
    if (n_tokens)
        memcpy(tokens + r->n_prompt, r->tokens, sizeof *tokens * (size_t)n_tokens);
    free(p->tokens);
    *p = (struct past){tokens, r->n_prompt + n_tokens};
    e->n_past++;
}

/* ---- one request ---- */

static void tell(struct request *r)
{
    if (r->notify && !atomic_exchange(&r->notified, true))
        r->notify(r->notify_ctx, r);
}

static void end(struct engine *e, struct live *l, finish_reason reason)
{
    struct request *r = l->r;
    void (*notify)(void *, struct request *) = r->notify;
    void *ctx = r->notify_ctx;
    if (reason == FINISH_REASON_STOP)
        e->stats.requests_stop++;
    if (reason == FINISH_REASON_CANCELLED)
        e->stats.requests_cancelled++;
    if (e->script.remembers)
        remember(e, r);
    free(l->own_reply);
    atomic_store(&r->state, REQ_STATE_DONE);
    atomic_store(&r->finish, reason);
    if (notify)
        notify(ctx, r);
}

static bool choose_reply(struct engine *e, struct live *l)
{
    const struct engine_script *s = &e->script;
    l->reply = s->reply ? s->reply : l->r->prompt;
    l->n_reply = s->reply ? s->n_reply : l->r->n_prompt;
    if (!s->answer)
        return true;
    l->n_reply = s->answer(s->answer_ctx, l->r, &l->reply);
    l->own_reply = malloc(sizeof *l->own_reply * (size_t)(l->n_reply + 1));
    if (!l->own_reply)
        return false;
    if (l->n_reply)
        memcpy(l->own_reply, l->reply, sizeof *l->own_reply * (size_t)l->n_reply);
    l->reply = l->own_reply;
    return true;
}

/* Advances one request; true when it ended. */
static bool step(struct engine *e, struct live *l, uint64_t now)
{
    struct request *r = l->r;
    const struct engine_script *s = &e->script;
    if (atomic_load(&r->cancel) || e->stop) {
        end(e, l, FINISH_REASON_CANCELLED);
        return true;
    }
    if (!l->admitted) {
        if (r->deadline_ns && now >= r->deadline_ns) {
            t9_fail(&r->error, T9_STATUS_AGAIN, "the time limit passed in the queue");
            e->stats.requests_expired++;
            end(e, l, FINISH_REASON_ERROR);
            return true;
        }
        if (now < l->submitted_ns + (uint64_t)s->queue_ms * 1000000)
            return false;
        l->admitted = true;
        l->next_ns = now + (uint64_t)s->prefill_ms * 1000000;
        atomic_store(&r->n_cached, cached(e, r));
        atomic_store(&r->n_preempted, s->n_preempted);
        atomic_store(&r->clocks.prefix_ns, (uint64_t)s->prefix_ms * 1000000);
        atomic_store(&r->clocks.preempted_ns, (uint64_t)s->n_preempted * 1000000);
        atomic_store(&r->state, REQ_STATE_RUNNING);
        atomic_store(&r->clocks.admitted, now);
        tell(r);
    }
    for (int burst = 0; burst < 1000 && now >= l->next_ns; burst++) {
        if (s->allowed && l->n >= atomic_load(s->allowed))
            return false;
        if (!l->prefilled) {
            l->prefilled = true;
            atomic_store(&r->n_prefilled, r->n_prompt);
            atomic_store(&r->clocks.prefilled, now);
            atomic_store(&r->clocks.first_token, now);
        }
        if (l->n == s->fail_at) {
            t9_fail(&r->error, T9_STATUS_INTERNAL, "the script says so");
            end(e, l, FINISH_REASON_ERROR);
            return true;
        }
        if (r->prompt_only || l->n == l->n_reply || l->n == r->max_tokens) {
            atomic_store(&r->clocks.last_token, now);
            end(e, l,
                !r->prompt_only && l->n == l->n_reply ? FINISH_REASON_STOP : FINISH_REASON_LENGTH);
            return true;
        }
        r->tokens[l->n] = l->reply[l->n];
        atomic_store(&r->n_tokens, ++l->n);
        e->stats.generated_tokens++;
        l->next_ns = now + (uint64_t)s->gap_ms * 1000000;
        tell(r);
    }
    return false;
}

static void run(void *arg)
{
    struct engine *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->stop || e->n_live) {
        if (e->n_live == 0) {
            pthread_cond_wait(&e->more, &e->lock);
            continue;
        }
        uint64_t now = clock_now_ns();
        for (int i = 0; i < e->n_live;) {
            if (step(e, &e->live[i], now))
                e->live[i] = e->live[--e->n_live];
            else
                i++;
        }
        e->stats.steps++;
        pthread_mutex_unlock(&e->lock);
        clock_sleep_ms(1);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
}

struct engine *scripted_engine_new(const struct engine_script *s)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    e->script = *s;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->more, NULL);
    /* Tests tell it from the server by that name. */
    if (thread_start(&e->thread, "scripted", run, e, NULL) != T9_STATUS_OK) {
        free(e);
        return NULL;
    }
    return e;
}

void scripted_engine_free(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->more);
    pthread_mutex_unlock(&e->lock);
    thread_join(&e->thread);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->more);
    for (size_t i = 0; i < SCRIPTED_TEXTS; i++)
        free(e->past[i].tokens);
    free(e);
}

t9_status engine_submit(struct engine *e, struct request *r, struct t9_err *err)
{
    t9_status s = T9_STATUS_OK;
    struct live l = {.r = r};
    pthread_mutex_lock(&e->lock);
    if (e->script.invalid) {
        s = t9_fail(err, T9_STATUS_INVALID, "%s", e->script.invalid);
    } else if (e->n_live >= e->script.queue_cap || e->n_live == LIVE_MAX) {
        s = t9_fail(err, T9_STATUS_BUSY, "%d requests are waiting already; try again later",
                    e->n_live);
    } else if (!choose_reply(e, &l)) {
        s = t9_fail(err, T9_STATUS_NOMEM, "no memory");
    } else {
        l.submitted_ns = clock_now_ns();
        atomic_store(&r->clocks.queued, l.submitted_ns);
        e->live[e->n_live++] = l;
        e->n_prompt = r->n_prompt < PROMPT_MAX ? r->n_prompt : PROMPT_MAX;
        memcpy(e->prompt, r->prompt, (size_t)e->n_prompt * sizeof *e->prompt);
        e->sampling = r->sampling;
        e->max_tokens = r->max_tokens;
        e->priority = r->priority;
        e->client_key = r->client_key;
        e->deadline_ns = r->deadline_ns;
        e->stats.requests_admitted++;
        pthread_cond_signal(&e->more);
    }
    pthread_mutex_unlock(&e->lock);
    return s;
}

void engine_cancel(struct engine *e, struct request *r)
{
    pthread_mutex_lock(&e->lock);
    e->n_cancels++;
    e->cancel_ns = clock_now_ns();
    pthread_mutex_unlock(&e->lock);
    atomic_store(&r->cancel, true); /* whoever sees it end finds it counted */
}

/* For the library over it, which a test opens by sdk_engine_wrap. */
void engine_params_init(struct engine_params *p)
{
    *p = (struct engine_params){0};
}

t9_status engine_new(struct engine **out, const struct engine_params *p, struct t9_err *err)
{
    (void)p;
    *out = NULL;
    return t9_fail(err, T9_STATUS_UNSUPPORTED, "a scripted engine is made by scripted_engine_new");
}

void engine_free(struct engine *e)
{
    scripted_engine_free(e);
}

bool engine_drain(struct engine *e, int timeout_ms)
{
    (void)timeout_ms;
    return scripted_engine_live(e) == 0;
}

int32_t engine_max_tokens(const struct engine *e, int32_t n_prompt)
{
    return n_prompt < e->script.max_length ? e->script.max_length - n_prompt : 0;
}

int32_t engine_retry_after_s(const struct engine *e)
{
    return e->script.retry_after_s;
}

void engine_state_read(const struct engine *e, struct engine_state *out)
{
    if (e->script.state)
        *out = *e->script.state;
    else
        memset(out, 0, sizeof *out);
}

const char *engine_limit_reason(const struct engine *e)
{
    (void)e;
    return "set by the script";
}

int32_t engine_max_length(const struct engine *e)
{
    return e->script.max_length;
}

void engine_stats_read(const struct engine *e, struct engine_stats *out)
{
    struct engine *w = (struct engine *)(uintptr_t)e;
    pthread_mutex_lock(&w->lock);
    *out = w->stats;
    out->running = w->n_live;
    out->kv_pages_total = 100;
    out->kv_pages_used = 15;
    out->kv_page_bytes = 1000;
    /* As many bytes in states, of which more are used. */
    out->kv_states_used = 7;
    out->kv_states_kept = 3;
    out->kv_state_bytes = 10000;
    out->checkpoint_hits[2] = 5;
    pthread_mutex_unlock(&w->lock);
}

int scripted_engine_live(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    int n = e->n_live;
    pthread_mutex_unlock(&e->lock);
    return n;
}

int scripted_engine_cancels(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    int n = e->n_cancels;
    pthread_mutex_unlock(&e->lock);
    return n;
}

uint64_t scripted_engine_cancel_ns(struct engine *e)
{
    pthread_mutex_lock(&e->lock);
    uint64_t ns = e->cancel_ns;
    pthread_mutex_unlock(&e->lock);
    return ns;
}

int32_t scripted_engine_prompt(struct engine *e, int32_t *out, int32_t cap)
{
    pthread_mutex_lock(&e->lock);
    int32_t n = e->n_prompt < cap ? e->n_prompt : cap;
    if (out)
        memcpy(out, e->prompt, (size_t)n * sizeof *out);
    pthread_mutex_unlock(&e->lock);
    return n;
}

void scripted_engine_queueing(struct engine *e, int32_t *priority, uint64_t *client_key,
                              uint64_t *deadline_ns)
{
    pthread_mutex_lock(&e->lock);
    *priority = e->priority;
    *client_key = e->client_key;
    *deadline_ns = e->deadline_ns;
    pthread_mutex_unlock(&e->lock);
}

struct sample_params scripted_engine_sampling(struct engine *e, int32_t *max_tokens)
{
    pthread_mutex_lock(&e->lock);
    struct sample_params p = e->sampling;
    *max_tokens = e->max_tokens;
    pthread_mutex_unlock(&e->lock);
    return p;
}
