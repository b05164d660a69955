/*
 * engine/request.c - requests and the reader's side of their events.
 *
 * There is no event queue: what a reader has not seen yet follows from the request's counters and
 * its cursor, so a slow reader costs nothing and gets several tokens in one event. Any thread may
 * read; the engine writes.
 */
#include "engine/request.h"

#include "base/mem.h"

t9_status request_new(struct request **out, int32_t max_tokens, struct t9_err *err)
{
    *out = NULL;
    if (max_tokens < 1)
        return t9_fail(err, T9_STATUS_INVALID, "max_tokens must be at least 1, got %d", max_tokens);
    struct request *r = mem_calloc(1, sizeof *r);
    if (r)
        r->tokens = mem_alloc((size_t)max_tokens * sizeof *r->tokens);
    if (!r || !r->tokens) {
        mem_free(r);
        return t9_fail(err, T9_STATUS_NOMEM, "no memory for a request of %d tokens", max_tokens);
    }
    r->max_tokens = max_tokens;
    r->stop_token = -1;
    sample_params_init(&r->sampling);
    *out = r;
    return T9_STATUS_OK;
}

t9_status request_want_logprobs(struct request *r, int32_t n_top, bool prompt, struct t9_err *err)
{
    if (n_top < 0 || n_top > SAMPLE_TOP_MAX)
        return t9_fail(err, T9_STATUS_INVALID,
                       "log probabilities of %d tokens beside each; 0 to %d are possible", n_top,
                       SAMPLE_TOP_MAX);
    size_t row_bytes = (size_t)(1 + n_top) * sizeof *r->logprobs;
    r->n_top = n_top;
    r->logprobs = mem_alloc((size_t)r->max_tokens * row_bytes);
    if (prompt)
        r->prompt_logprobs = mem_calloc((size_t)r->n_prompt, row_bytes);
    if (r->logprobs && (!prompt || r->prompt_logprobs))
        return T9_STATUS_OK;
    return t9_fail(err, T9_STATUS_NOMEM, "no memory for log probabilities of %d tokens",
                   r->max_tokens);
}

void request_free(struct request *r)
{
    if (!r)
        return;
    mem_free(r->logprobs);
    mem_free(r->prompt_logprobs);
    mem_free(r->tokens);
    mem_free(r);
}

struct event request_next(struct request *r, struct event_cursor *c)
{
    struct event ev = {.kind = EVENT_NONE, .n_prompt = r->n_prompt};
    if (c->ended)
        return ev;
    /* Read before all else: when it is set, everything below is final. */
    finish_reason reason = (finish_reason)atomic_load_explicit(&r->finish, memory_order_acquire);
    if (!c->admitted && atomic_load_explicit(&r->clocks.admitted, memory_order_acquire) != 0) {
        c->admitted = true;
        ev.kind = EVENT_ADMITTED;
        ev.n_cached = atomic_load_explicit(&r->n_cached, memory_order_relaxed);
        ev.seed = r->sampling.seed;
        return ev;
    }
    int32_t n_prefilled = atomic_load_explicit(&r->n_prefilled, memory_order_relaxed);
    if (c->admitted && n_prefilled > c->n_prefilled) {
        c->n_prefilled = n_prefilled;
        ev.kind = EVENT_PROGRESS;
        ev.n_prefilled = n_prefilled;
        return ev;
    }
    int32_t n_tokens = atomic_load_explicit(&r->n_tokens, memory_order_acquire);
    if (n_tokens > c->n_tokens) {
        ev.kind = EVENT_TOKENS;
        ev.from = c->n_tokens;
        ev.to = n_tokens;
        c->n_tokens = n_tokens;
        return ev;
    }
    if (reason == FINISH_REASON_NONE)
        return ev;
    c->ended = true;
    ev.kind = reason == FINISH_REASON_ERROR ? EVENT_ERROR : EVENT_DONE;
    ev.reason = reason;
    if (reason == FINISH_REASON_ERROR)
        ev.error = r->error;
    return ev;
}

const char *finish_reason_name(finish_reason r)
{
    switch (r) {
    case FINISH_REASON_NONE: return "none";
    case FINISH_REASON_STOP: return "stop";
    case FINISH_REASON_LENGTH: return "length";
    case FINISH_REASON_CANCELLED: return "cancelled";
    case FINISH_REASON_ERROR: return "error";
    }
    return "?";
}

const char *req_state_name(req_state s)
{
    switch (s) {
    case REQ_STATE_WAITING: return "waiting";
    case REQ_STATE_PREFIX: return "prefix";
    case REQ_STATE_RESTORE: return "restore";
    case REQ_STATE_MEDIA: return "media";
    case REQ_STATE_GRAMMAR: return "grammar";
    case REQ_STATE_RUNNING: return "running";
    case REQ_STATE_PREEMPTED: return "preempted";
    case REQ_STATE_DONE: return "done";
    }
    return "?";
}
